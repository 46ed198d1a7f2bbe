//! Jobs that cannot be in time any more are given up where the composition says so.

use fallow_boinc::runtime::exit;
use fallow_domain::{Bytes, Duration, Instant, JobId, ProjectId, ResourceType, SlotId, Usage};
use fallow_policy::job_queue::Devices;

use super::{NOW, client, id_of, put_job};
use crate::machine::Client;
use crate::state::{Process, Stage};
use crate::why::Why;
use crate::{Action, Cause, Effect, Event, TaskEnd};

const HOUR: Duration = Duration::from_hours(1);

/// The host is there for half an hour from then on, in which somebody looks at the clock.
fn stays(client: &mut Client, from: Instant) {
    for minutes in 0..=30 {
        client.handle(from + Duration::from_mins(minutes), Event::WakeUp);
    }
}

/// A client whose two CPUs have tasks: 40 hours long and half done, with half an hour to their deadlines, so
/// that they run first and are late. A job of 1000 s waits whose deadline is in an hour.
fn full(policy: &str) -> (Client, ProjectId, [JobId; 2], JobId) {
    let mut client = client(0, &["a"]);
    client.config.composition = policy.parse().unwrap();
    stays(&mut client, NOW);
    fill(client)
}

fn fill(mut client: Client) -> (Client, ProjectId, [JobId; 2], JobId) {
    let a = id_of(&client, "a");
    let tasks = [(1, 0), (2, 1)].map(|(id, slot)| {
        let id = put_job(&mut client, id, a, Usage::ONE_CPU);
        client.edit_job(id, |job| {
            job.result.report_deadline = NOW + HOUR;
            (job.process, job.slot, job.run.begun) = (Process::Executing(7), Some(SlotId(slot)), true);
            (job.run.base, job.run.elapsed, job.run.fraction_done) = (HOUR * 20, HOUR * 20, 0.5);
        });
        id
    });
    let waits = put_job(&mut client, 3, a, Usage::ONE_CPU);
    client.edit_job(waits, |job| job.result.report_deadline = NOW + HOUR.mul_f64(1.5));
    client.reassess(waits);
    client.actions.take();
    (client, a, tasks, waits)
}

fn decided(client: &mut Client) -> Vec<Action> {
    client.decide_what_runs();
    client.actions.take()
}

fn aborted(actions: &[Action]) -> Vec<JobId> {
    let aborted = actions.iter().filter_map(|action| match action.effect {
        Effect::AbortTask { job } => Some(job),
        _ => None,
    });
    aborted.collect()
}

fn was_started(client: &Client, id: JobId) -> bool {
    client.state.jobs[&id].run.starts > 0
}

#[test]
fn a_job_that_would_be_late_begins_when_those_that_are_lost_are_given_up() {
    let (mut client, _, _, waits) = full("CS2");
    let actions = decided(&mut client);
    assert!(aborted(&actions).is_empty() && !was_started(&client, waits), "without the switch");
    let (mut client, _, tasks, waits) = full("CS2,abort=hopeless");
    let actions = decided(&mut client);
    assert_eq!(aborted(&actions), tasks);
    assert!(was_started(&client, waits));
    let told = |action: &&Action| matches!(&action.effect, Effect::Notice { text, .. } if text.contains("given up, for"));
    assert_eq!(actions.iter().filter(told).count(), 2);
    assert!(
        tasks
            .iter()
            .all(|id| client.state.jobs[id].outcome.as_ref().unwrap().exit_status == exit::ABORTED_BY_CLIENT)
    );
}

#[test]
fn the_reason_is_a_value_and_a_job_that_never_began_is_reported_as_such() {
    let overdue = |client: &mut Client, a| {
        let id = put_job(client, 4, a, Usage::ONE_CPU);
        client.edit_job(id, |job| {
            (job.received_at, job.result.report_deadline) = (NOW - HOUR * 2, NOW - HOUR);
        });
        id
    };
    let (mut client, a, tasks, _) = full("CS2,abort=hopeless");
    let unknown = overdue(&mut client, a);
    let actions = decided(&mut client);
    let reason =
        actions.iter().find(|action| matches!(action.effect, Effect::AbortTask { job } if job == tasks[0]));
    let why = reason.map(|action| &action.reason.why);
    assert!(matches!(why, Some(Why::Own(Cause::Hopeless(why))) if why.needs > why.hope), "{why:?}");
    assert!(was_started(&client, unknown), "nothing is known of how long jobs of its version take");
    let (mut client, a, tasks, _) = full("CS2,abort=hopeless");
    (0..8).for_each(|_| client.learn_estimate(tasks[0], Duration::from_secs(1_000)));
    let known = overdue(&mut client, a);
    decided(&mut client);
    assert!(!was_started(&client, known));
    assert_eq!(client.state.jobs[&known].outcome.as_ref().unwrap().exit_status, exit::UNSTARTED_LATE);
}

/// Else only jobs that were short enough would be learned from.
#[test]
fn what_a_job_that_is_given_up_would_have_taken_is_learned() {
    let (mut client, a, _, _) = full("CS2_JC3,abort=hopeless");
    decided(&mut client);
    let told = client.compose_request(a, &Default::default()).unwrap().0.duration_correction_factor;
    assert_eq!(told, 100.0, "two jobs that were to take 1000 s, and half done after 20 h");
}

/// A dual boot, or a virtual machine that goes on with another clock: before a time server corrects it, work
/// of days would be lost.
#[test]
fn r1_12_a_clock_that_is_set_forward_gives_no_job_up_until_it_has_proved_true() {
    let (mut client, _, tasks, waits) = full("CS2,abort=hopeless");
    for id in tasks.into_iter().chain([waits]) {
        client.edit_job(id, |job| job.result.report_deadline = NOW + HOUR * 24 * 10);
    }
    assert!(aborted(&decided(&mut client)).is_empty());
    let ahead = NOW + HOUR * 24 * 365;
    for seconds in [0, 5, 10] {
        let step = client.handle(ahead + Duration::from_secs(seconds), Event::WakeUp);
        assert!(aborted(&step.actions).is_empty(), "before it is corrected");
    }
    client.handle(NOW + HOUR, Event::WakeUp);
    stays(&mut client, NOW + HOUR);
    assert!(aborted(&decided(&mut client)).is_empty(), "it was");
    client.handle(ahead, Event::WakeUp);
    stays(&mut client, ahead);
    client.decide_what_runs();
    assert_eq!(aborted(&client.actions.take()), tasks, "nobody corrects it");
}

#[test]
fn of_jobs_that_are_held_only_those_are_judged_that_have_begun_or_are_old() {
    let (mut client, a, tasks, waits) = full("CS2,abort=hopeless");
    let young = put_job(&mut client, 4, a, Usage::ONE_CPU);
    let all = |client: &Client| client.may_be_hopeless().into_iter().collect::<Vec<_>>();
    assert_eq!(all(&client), tasks);
    let deadline = client.state.jobs[&waits].result.report_deadline;
    client.handle(NOW + deadline.since(NOW) / 2, Event::WakeUp);
    assert_eq!(all(&client), [tasks[0], tasks[1], waits]);
    client.edit_job(young, |job| job.result.report_deadline = NOW);
    assert!(all(&client).contains(&young));
    client.abort_job(waits, exit::ABORTED_BY_PROJECT, &Cause::AbortedByProject);
    assert!(!all(&client).contains(&waits));
}

#[test]
fn r1_12_nor_does_the_clock_of_an_agent_that_has_just_come_up() {
    let mut client = client(0, &["a"]);
    client.config.composition = "CS2,abort=hopeless".parse().unwrap();
    let (mut client, _, tasks, _) = fill(client);
    assert!(aborted(&decided(&mut client)).is_empty());
    client.config.tells_away = true;
    assert_eq!(aborted(&decided(&mut client)), tasks, "the clock of a simulation is right");
}

/// Jobs of its version take 1000 s.
fn known(client: &mut Client, of: JobId) {
    (0..8).for_each(|_| client.learn_estimate(of, Duration::from_secs(1_000)));
}

#[test]
fn a_job_that_still_downloads_is_given_up_too_and_goes_back_to_its_project() {
    let (mut client, a, tasks, _) = full("CS2,abort=hopeless");
    known(&mut client, tasks[0]);
    let downloads = put_job(&mut client, 4, a, Usage::ONE_CPU);
    client.edit_job(downloads, |job| {
        (job.stage, job.received_at, job.result.report_deadline) = (Stage::Downloading, NOW - HOUR, NOW);
    });
    decided(&mut client);
    let job = &client.state.jobs[&downloads];
    assert_eq!(
        (job.stage, job.outcome.as_ref().unwrap().exit_status),
        (Stage::Reporting, exit::UNSTARTED_LATE)
    );
}

#[test]
fn what_is_hopeless_is_given_up_while_computing_is_suspended_too() {
    let (mut client, _, tasks, waits) = full("CS2,abort=hopeless");
    let step = client.handle(client.now(), Event::OwnerSuspended(true));
    assert_eq!(aborted(&step.actions), tasks);
    assert!(!was_started(&client, waits));
}

#[test]
fn the_gpu_of_a_task_that_is_given_up_goes_to_the_next_when_its_process_is_gone() {
    let mut client = client(1, &["a"]);
    client.config.composition = "CS2,abort=hopeless".parse().unwrap();
    stays(&mut client, NOW);
    let a = id_of(&client, "a");
    let usage = Usage::from_cpus(0.1).with_coprocessor(ResourceType::Nvidia, 1.0);
    let [task, next] = [1, 2].map(|id| put_job(&mut client, id, a, usage));
    client.edit_job(task, |job| {
        job.result.report_deadline = NOW + HOUR;
        (job.process, job.slot, job.run.begun) = (Process::Executing(7), Some(SlotId(0)), true);
        (job.run.elapsed, job.run.fraction_done, job.run.devices) = (HOUR * 20, 0.5, Devices::first(1));
    });
    client.actions.take();
    assert_eq!(aborted(&decided(&mut client)), [task]);
    assert!(!was_started(&client, next), "its memory may still be full");
    let end = TaskEnd {
        exit: exit::Ended::Code(194),
        finish: None,
        temporary_exit: None,
        cpu_time: HOUR,
        is_charged: false,
        stderr: String::new(),
        outputs: Vec::new(),
        peak_working_set: Bytes(0),
        disk_usage: Bytes(0),
        made_room: None,
        memory_exceeded: None,
        killed: None,
    };
    client.handle(client.now(), Event::TaskEnded { job: task, end: Box::new(end) });
    assert!(was_started(&client, next));
}
