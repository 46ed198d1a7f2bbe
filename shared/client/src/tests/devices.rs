//! GPUs: on which device, when they leave it, and what they cost.

use fallow_domain::{
    Device, DocumentVersion, Duration, FleetDocument, JobId, Preferences, ResourceType, SlotId, Usage,
};
use fallow_policy::accounting::Debt;
use fallow_policy::cpu_schedule::{self, ScheduledJob, SchedulingRule, UnscheduledJob, WhyRun};
use fallow_policy::fetch::WorkRequest;
use fallow_policy::job_queue::Devices;
use fallow_policy::why::Why;

use super::{NOW, client, host, id_of, put_job};
use crate::machine::Client;
use crate::record::Record;
use crate::state::Process;
use crate::{Effect, Event};

fn document(preferences: Preferences) -> Event {
    Event::DocumentOffered(
        FleetDocument {
            content: String::new(),
            version: DocumentVersion(1),
            projects: Vec::new(),
            preferences,
        }
        .into(),
    )
}

fn gpu_job() -> Usage {
    Usage::from_cpus(0.1).with_coprocessor(ResourceType::Nvidia, 1.0)
}

#[test]
fn r3_14_a_gpu_task_in_memory_that_is_to_go_on_on_another_device_is_started_anew_there() {
    for (devices, quits) in [(Devices::first(1), false), (Devices::NONE.with(1), true)] {
        let mut client = client(2, &["a"]);
        let a = id_of(&client, "a");
        let id = put_job(&mut client, 1, a, gpu_job());
        client.edit_job(id, |job| {
            (job.process, job.slot) = (Process::Suspended(7), Some(SlotId(0)));
            (job.run.begun, job.run.devices) = (true, Devices::first(1));
        });
        client.actions.take();
        client.run(&ScheduledJob {
            job: id,
            project: a,
            action: cpu_schedule::RunAction::Resume,
            slice_began: NOW,
            devices,
            until_checkpoint: false,
            rule: SchedulingRule::MostOwedFirst,
            why: Why::new(WhyRun::MostOwed { anticipated: Debt::ZERO }),
        });
        let quit = client.actions.iter().any(|action| matches!(action.effect, Effect::QuitTask { .. }));
        let resumed = client.actions.iter().any(|action| matches!(action.effect, Effect::ResumeTask { .. }));
        assert_eq!((quit, resumed), (quits, !quits));
    }
}

#[test]
fn r3_14_a_gpu_task_begins_only_when_the_one_before_it_has_left_the_device() {
    let busy = Devices::first(1);
    for (process, devices, begins) in [
        (Process::Quitting(Some(7)), busy, false),
        (Process::Aborting(Some(7)), busy, false),
        (Process::Quitting(Some(7)), Devices::NONE.with(1), true),
        (Process::None, busy, true),
    ] {
        let mut client = client(2, &["a"]);
        let a = id_of(&client, "a");
        let before = put_job(&mut client, 1, a, gpu_job());
        client.edit_job(before, |job| {
            (job.process, job.slot, job.run.devices) = (process, Some(SlotId(0)), busy);
        });
        let id = put_job(&mut client, 2, a, gpu_job());
        client.run(&ScheduledJob {
            job: id,
            project: a,
            action: cpu_schedule::RunAction::Start,
            slice_began: NOW,
            devices,
            until_checkpoint: false,
            rule: SchedulingRule::MostOwedFirst,
            why: Why::new(WhyRun::MostOwed { anticipated: Debt::ZERO }),
        });
        // Whether it could be set up here or not, it was tried.
        let job = &client.state.jobs[&id];
        assert_eq!(job.run.starts > 0, begins, "{process:?} {devices}");
    }
}

#[test]
fn r5_31_a_late_gpu_job_wastes_the_time_of_its_gpu_before_it_is_reported_too() {
    let mut client = client(1, &["a"]);
    let a = id_of(&client, "a");
    let id = put_job(&mut client, 1, a, gpu_job());
    client.edit_job(id, |job| {
        job.run.charged = Duration::from_secs(10);
        job.run.charged_coprocessor = Duration::from_secs(1_000);
        job.slot = Some(SlotId(0));
    });
    assert_eq!(client.worth(&client.state.jobs[&id]), Duration::from_secs(2_010));
    client.clock.turn(NOW + Duration::from_hours(241));
    assert_eq!(client.late_unreported(), Duration::from_secs(2_010));
}

#[test]
fn r2_8_the_limit_on_cpu_time_leaves_gpu_jobs_alone() {
    let mut client = client(1, &["a"]);
    let a = id_of(&client, "a");
    for (id, usage) in [(1, gpu_job()), (2, Usage::ONE_CPU)] {
        let id = put_job(&mut client, id, a, usage);
        let slot = Some(SlotId(id.0 as u32));
        client.edit_job(id, |job| (job.process, job.slot) = (Process::Executing(1), slot));
    }
    let throttled: Vec<JobId> = client.throttled_jobs().map(|job| job.id).collect();
    assert_eq!(throttled, [JobId(2)]);
}

#[test]
fn r3_14_a_gpu_that_comes_or_goes_leads_to_a_decision() {
    let mut client = client(1, &["a"]);
    for gpus in [1, 2, 0] {
        client.schedule.take_wanted();
        let before = client.plan_host().instances[ResourceType::Nvidia];
        client.edit_host(host(gpus));
        assert_eq!(client.schedule.is_wanted(), gpus != before, "{before} to {gpus}");
    }
}

#[test]
fn r3_14_devices_that_preferences_or_the_owner_exclude_are_left_alone_by_number() {
    let mut client = client(3, &["a"]);
    let a = id_of(&client, "a");
    let nvidia = ResourceType::Nvidia;
    let device = |number| Device::new(nvidia, number).unwrap();
    put_job(&mut client, 1, a, gpu_job());
    let excluded_devices = [device(0), device(7)].into();
    client.handle(NOW, document(Preferences { excluded_devices, ..Preferences::default() }));
    client.schedule.take_wanted();
    client.owner_excludes([device(2)].into());
    assert!(client.schedule.is_wanted(), "what runs there has to leave");
    let check = |client: &Client| {
        assert_eq!(client.schedule_host(false).devices[nvidia], Devices::NONE.with(1));
        assert_eq!(client.plan_host().instances[nvidia], 1);
    };
    check(&client);
    let (request, _) = client.compose_request(a, &WorkRequest::default()).unwrap();
    assert_eq!(request.coprocs[0].count, 1, "nor does a server send work for them");

    let stored = Record::Meta.change(&client.state, &client.ledger);
    let mut again = Client::restore(client.config.clone(), [(stored.key, stored.value.unwrap())]).unwrap();
    again.edit_host(host(3));
    check(&again);

    client.owner_excludes([device(1), device(2)].into());
    assert_eq!(client.plan_host().instances[nvidia], 0);
    let (request, _) = client.compose_request(a, &WorkRequest::default()).unwrap();
    assert!(request.coprocs.is_empty());
    client.owner_excludes([].into());
    assert_eq!(client.plan_host().instances[nvidia], 2, "what the fleet excludes stays so");
}

#[test]
fn r2_4_a_preempted_gpu_task_leaves_memory_once_it_has_made_a_checkpoint() {
    // Whatever the policy calls its reason.
    let why = Why::new("owed less, or excluded");
    for (usage, checkpoint, gives_up_devices, quits) in [
        (gpu_job(), 5, false, true),
        (gpu_job(), 0, false, false),
        (gpu_job(), 0, true, true),
        (Usage::ONE_CPU, 5, false, false),
        (Usage::ONE_CPU, 0, true, true),
    ] {
        let mut client = client(1, &["a"]);
        let a = id_of(&client, "a");
        client.handle(NOW, document(Preferences { leave_in_memory: true, ..Preferences::default() }));
        let id = put_job(&mut client, 1, a, usage);
        client.edit_job(id, |job| {
            (job.process, job.slot, job.run.begun) = (Process::Executing(1), Some(SlotId(0)), true);
            job.run.checkpoint_cpu = Duration::from_secs(checkpoint);
        });
        client.actions.take();
        client.preempt(&UnscheduledJob { job: id, gives_up_devices, why: why.clone() });
        let quit = client.actions.iter().any(|action| matches!(action.effect, Effect::QuitTask { .. }));
        let stays = client.actions.iter().any(|action| matches!(action.effect, Effect::SuspendTask { .. }));
        assert_eq!((quit, stays), (quits, !quits), "{usage:?} {checkpoint}");
    }
}

#[test]
fn r3_14_a_task_on_the_only_gpu_leaves_it_at_once_when_it_is_excluded() {
    for (gpus, process) in
        [(1, Process::Executing(7)), (2, Process::Executing(7)), (1, Process::Suspended(7))]
    {
        let mut client = client(gpus, &["a"]);
        let a = id_of(&client, "a");
        client.handle(NOW, document(Preferences { leave_in_memory: true, ..Preferences::default() }));
        let id = put_job(&mut client, 1, a, gpu_job());
        client.edit_job(id, |job| {
            (job.process, job.slot, job.run.begun) = (process, Some(SlotId(0)), true);
            (job.run.devices, job.run.slice_since) = (Devices::first(1), NOW);
        });
        let excluded = [Device::new(ResourceType::Nvidia, 0).unwrap()].into();
        let step = client.handle(NOW + Duration::from_secs(10), Event::OwnerExcludedDevices(excluded));
        let quits =
            step.actions.iter().filter(|action| matches!(action.effect, Effect::QuitTask { .. })).count();
        assert_eq!(
            (quits, client.state.jobs[&id].process),
            (1, Process::Quitting(Some(7))),
            "{gpus} {process:?}"
        );
    }
}

#[test]
fn r3_14_a_gpu_task_waits_for_a_forgotten_one_on_its_device_too() {
    let mut client = client(1, &["a"]);
    let a = id_of(&client, "a");
    let forgotten = put_job(&mut client, 1, a, gpu_job());
    client.edit_job(forgotten, |job| {
        (job.process, job.slot) = (Process::Aborting(Some(7)), Some(SlotId(0)));
        job.run.devices = Devices::first(1);
    });
    client.forget_job(forgotten, false);
    let id = put_job(&mut client, 2, a, gpu_job());
    assert!(client.is_being_left(id, Devices::first(1)));
    client.schedule.take_wanted();
    client.left(forgotten);
    assert!(client.schedule.is_wanted() && !client.is_being_left(id, Devices::first(1)));
}

/// What an idle host with a CPU and a GPU asks a project for that holds 20 jobs of this usage which cannot
/// run: CPU seconds and GPU seconds.
fn asked_beside(usage: Usage, excluded: bool) -> (Client, f64, f64) {
    let mut client = client(1, &["a"]);
    let a = id_of(&client, "a");
    for id in 1..=20 {
        let id = put_job(&mut client, id, a, usage);
        let waits = if excluded { Duration::ZERO } else { Duration::from_hours(1) };
        client.edit_job(id, |job| job.run.not_before = NOW + waits);
    }
    client.edit_project(a, |project| project.job_time = Some(Duration::from_secs(1_000)));
    if excluded {
        let excluded_devices = [Device::new(ResourceType::Nvidia, 0).unwrap()].into();
        client.handle(NOW, document(Preferences { excluded_devices, ..Preferences::default() }));
    }
    let outcome = Ok(vec!["http://127.0.0.1/cgi".to_owned()]);
    let step = client.handle(NOW, Event::MasterPageRead { project: a, outcome });
    let request = step.actions.into_iter().find_map(|action| match action.effect {
        Effect::CallScheduler { request, .. } => Some(request),
        _ => None,
    });
    let (cpu, gpu) = request
        .map(|request| (request.cpu_req_secs, request.coprocs.iter().map(|of| of.req_secs).sum()))
        .unwrap_or_default();
    (client, cpu, gpu)
}

#[test]
fn r3_9_jobs_of_one_type_that_cannot_run_keep_their_project_from_no_work_of_another() {
    let (client, cpu, gpu) = asked_beside(gpu_job(), true);
    assert!(cpu > 0.0 && gpu == 0.0, "the GPU is excluded: {cpu} {gpu}");
    let why = client.project_views()[0].enough.clone().unwrap_or_default();
    assert!(why.starts_with("NVIDIA GPU: 20 of its jobs"), "{why}");
    let (_, cpu, gpu) = asked_beside(gpu_job(), false);
    assert!(cpu > 0.0 && gpu == 0.0, "its GPU jobs wait to be started again: {cpu} {gpu}");
    let (_, cpu, gpu) = asked_beside(Usage::ONE_CPU, false);
    assert!(cpu == 0.0 && gpu > 0.0, "its CPU jobs do: {cpu} {gpu}");
}

#[test]
fn r6_4_gpus_are_left_alone_while_somebody_uses_the_host_and_cpus_only_where_preferences_say_so() {
    for (run_in_use, run_gpu_in_use, cpu_goes_on, gpu_goes_on) in [
        (true, true, true, true),
        (true, false, true, false),
        (false, true, false, false),
        (false, false, false, false),
    ] {
        let mut client = client(1, &["a"]);
        let a = id_of(&client, "a");
        let preferences = Preferences { run_in_use, run_gpu_in_use, ..Preferences::default() };
        client.handle(NOW, document(preferences));
        for (number, usage) in [(1, gpu_job()), (2, Usage::ONE_CPU)] {
            let id = put_job(&mut client, number, a, usage);
            client.edit_job(id, |job| {
                let slot = SlotId(u32::try_from(number).unwrap());
                (job.process, job.slot, job.run.begun) = (Process::Executing(7), Some(slot), true);
                job.run.checkpoint_cpu = Duration::from_secs(5);
                if usage.coprocessor.is_some() {
                    job.run.devices = Devices::first(1);
                }
            });
        }
        client.handle(NOW, Event::WakeUp);
        let step = client.handle(NOW, Event::OwnerInput { ago: Duration::ZERO });
        let goes_on = |id| {
            !step.actions.iter().any(|action| match action.effect {
                Effect::QuitTask { job } | Effect::SuspendTask { job } => job == JobId(id),
                _ => false,
            })
        };
        assert_eq!((goes_on(2), goes_on(1)), (cpu_goes_on, gpu_goes_on), "{run_in_use} {run_gpu_in_use}");
        let freezes = step.actions.iter().any(|action| matches!(action.effect, Effect::FreezeTasks));
        assert_eq!(freezes, !run_in_use);
        // Its process may leave meanwhile. It only rests, so plans go on to reckon with it.
        client.set_process(JobId(1), Process::None);
        assert!(client.workload.queue().get(JobId(1)).is_some(), "{run_in_use} {run_gpu_in_use}");
    }
}
