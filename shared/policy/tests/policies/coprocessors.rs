//! R3.14 and R2.5 with GPU jobs.

use fallow_domain::{JobId, PerType, ProjectId, ResourceType};
use fallow_policy::accounting::Debt;
use fallow_policy::cpu_schedule::{
    ProjectSnapshot, RunAction, Schedule, ScheduleHost, WhyNotRun, choose as choose_with,
};
use fallow_policy::job_queue::{Devices, Instances, JobQueue, JobSnapshot, RunState};
use proptest::prelude::*;

use crate::world::{self, With, any_jobs, any_projects, at_min, carry_out, job, project, ran};

const CPU: ResourceType = ResourceType::Cpu;
const GPU: ResourceType = ResourceType::Nvidia;

fn host(cpus: u32, gpus: &[u32]) -> ScheduleHost {
    let mut host = world::host(cpus);
    host.devices[GPU] = gpus.iter().copied().collect();
    host
}

fn gpu_job(id: u64, project: u32, cpus: f64, gpus: f64) -> JobSnapshot {
    job(id, project, 5).cpus(cpus).nvidia(gpus)
}

fn choose(host: &ScheduleHost, projects: &[ProjectSnapshot], jobs: &[JobSnapshot]) -> Schedule {
    choose_with(host, &PerType::default(), projects, &jobs.iter().copied().collect(), at_min(0))
}

fn devices(schedule: &Schedule) -> Vec<(u64, Vec<u32>)> {
    schedule.run.iter().map(|chosen| (chosen.job.0, chosen.devices.iter().collect())).collect()
}

fn why_not(schedule: &Schedule, id: u64) -> Option<WhyNotRun> {
    let mut passed = schedule.preempt.iter().chain(&schedule.waiting);
    passed.find(|passed| passed.job == JobId(id))?.why.reason().copied()
}

#[test]
fn r6_4_a_job_takes_none_of_the_devices_that_are_not_for_it_and_leaves_one_that_no_more_is() {
    let barred = |id, numbers: &[u32]| JobSnapshot {
        barred: numbers.iter().copied().collect(),
        ..gpu_job(id, 1, 1.0, 1.0)
    };
    let projects = [project(1, 0.0)];
    let jobs = [barred(1, &[0]), barred(2, &[0]), barred(3, &[1])];
    let schedule = choose(&host(4, &[0, 1]), &projects, &jobs);
    assert_eq!(devices(&schedule), [(1, vec![1]), (3, vec![0])]);
    let schedule = choose(&host(4, &[0]), &projects, &[barred(1, &[0])]);
    assert!(schedule.run.is_empty());
    assert!(matches!(why_not(&schedule, 1), Some(WhyNotRun::DevicesUsable { .. })));
    let running = barred(1, &[0]).running_since(0).on(0);
    let schedule = choose(&host(4, &[0, 1]), &projects, &[running]);
    assert!(schedule.run.is_empty() && schedule.preempt[0].gives_up_devices);
}

#[test]
fn r3_14_gpu_jobs_come_before_cpu_jobs_each_on_a_device() {
    let jobs = [job(1, 1, 1), job(2, 1, 1), gpu_job(3, 2, 1.0, 1.0), gpu_job(4, 2, 1.0, 1.0)];
    let projects = [project(1, 300.0), project(2, -300.0)];
    let schedule = choose(&host(2, &[0, 1]), &projects, &jobs);
    assert_eq!(devices(&schedule), [(3, vec![0]), (4, vec![1])]);
    let schedule = choose(&host(3, &[0]), &projects, &jobs);
    assert_eq!(devices(&schedule), [(3, vec![0]), (1, vec![]), (2, vec![])]);
}

#[test]
fn r3_14_fractions_share_a_device_and_whole_ones_stay_free() {
    let jobs = [gpu_job(1, 1, 0.1, 0.5), gpu_job(2, 1, 0.1, 0.5), gpu_job(3, 1, 0.1, 1.0)];
    assert_eq!(
        devices(&choose(&host(1, &[0, 1]), &[project(1, 0.0)], &jobs)),
        [(1, vec![0]), (2, vec![0]), (3, vec![1])]
    );
    let wide = [gpu_job(1, 1, 0.1, 2.0), gpu_job(2, 1, 0.1, 0.5)];
    assert_eq!(
        devices(&choose(&host(1, &[1, 3, 7]), &[project(1, 0.0)], &wide)),
        [(1, vec![1, 3]), (2, vec![7])]
    );
}

#[test]
fn r3_14_a_job_keeps_its_device_while_it_runs() {
    // The endangered job goes first, and leaves the running ones their devices.
    let tight = ProjectSnapshot { misses: PerType::from_fn(|_| 1), ..project(2, 0.0) };
    let jobs = [
        gpu_job(1, 1, 0.1, 1.0).running_since(-5).on(0),
        gpu_job(2, 1, 0.1, 0.5).running_since(-5).on(1),
        gpu_job(3, 2, 0.1, 0.5),
    ];
    let schedule = choose(&host(1, &[0, 1, 2]), &[project(1, 0.0), tight], &jobs);
    assert_eq!(devices(&schedule), [(3, vec![1]), (1, vec![0]), (2, vec![1])]);
    // What the running ones leave does not suffice: it takes another device, or else one of theirs.
    let whole = [jobs[0], jobs[1], gpu_job(3, 2, 0.1, 1.0)];
    let schedule = choose(&host(1, &[0, 1, 2]), &[project(1, 0.0), tight], &whole);
    assert_eq!(devices(&schedule), [(3, vec![2]), (1, vec![0]), (2, vec![1])]);
    let schedule = choose(&host(1, &[0, 1]), &[project(1, 0.0), tight], &whole);
    assert_eq!(devices(&schedule), [(3, vec![0]), (2, vec![1])]);
}

#[test]
fn r3_14_a_device_that_is_excluded_or_busy_is_not_used() {
    let jobs = [gpu_job(1, 1, 0.1, 1.0), gpu_job(2, 1, 0.1, 1.0)];
    let schedule = choose(&host(1, &[1]), &[project(1, 0.0)], &jobs);
    assert_eq!(devices(&schedule), [(1, vec![1])]);
    assert_eq!(why_not(&schedule, 2), None, "it only waits for its turn");
    let none = choose(&host(1, &[]), &[project(1, 0.0)], &jobs);
    assert!(none.run.is_empty());
}

#[test]
fn r3_14_a_task_whose_device_is_taken_away_is_preempted_and_goes_on_elsewhere() {
    let mut queue: JobQueue = [gpu_job(1, 1, 0.1, 1.0).running_since(-5).on(0)].into_iter().collect();
    let host = host(1, &[1]);
    let first = choose_with(&host, &PerType::default(), &[project(1, 0.0)], &queue, at_min(0));
    assert_eq!(why_not(&first, 1), Some(WhyNotRun::DeviceGone { devices: Devices::NONE.with(0) }));
    assert!(first.preempt[0].gives_up_devices && first.decide_by <= at_min(1));
    carry_out(&mut queue, &first, at_min(0));
    let then = choose_with(&host, &PerType::default(), &[project(1, 0.0)], &queue, at_min(0));
    assert_eq!((then.run[0].action, devices(&then)), (RunAction::Resume, vec![(1, vec![1])]));
}

#[test]
fn r2_4_a_gpu_task_leaves_memory_and_so_gives_way_at_a_checkpoint_only() {
    let projects = [project(1, -30.0), project(2, 30.0)];
    for (began, checkpointed, stays) in
        [(-70, -70, true), (-70, -5, true), (-70, 0, false), (-120, -5, false)]
    {
        let task = gpu_job(1, 1, 0.1, 1.0).running_since(began).checkpointed(checkpointed).on(0);
        let schedule = choose(&host(1, &[0]), &projects, &[task, gpu_job(2, 2, 0.1, 1.0)]);
        assert_eq!(ran(&schedule), [if stays { 1 } else { 2 }], "{began} {checkpointed}");
    }
}

#[test]
fn r2_5_only_the_fractional_cpus_of_gpu_jobs_exceed_the_cpus_and_by_less_than_one() {
    // (CPUs of the GPU jobs, jobs of one CPU that run beside them on two CPUs)
    for (cpus, gpu_jobs, beside) in [
        (vec![0.2], 1, 2),
        (vec![0.9], 1, 2),
        (vec![0.6, 0.6], 2, 1),
        (vec![1.0], 1, 1),
        (vec![1.3], 1, 1),
        (vec![0.5, 1.0], 2, 1),
        (vec![2.5], 1, 0),
        (vec![1.0, 1.0, 1.0], 2, 0),
        (vec![0.99, 0.99, 0.99], 3, 0),
        (vec![0.99, 0.99, 0.99, 0.99], 3, 0),
    ] {
        let on_gpu = (1..).zip(&cpus).map(|(id, cpus)| gpu_job(id, 1, *cpus, 1.0));
        let jobs: Vec<_> = on_gpu.chain((11..15).map(|id| job(id, 1, 5))).collect();
        let schedule = choose(&host(2, &[0, 1, 2, 3]), &[project(1, 0.0)], &jobs);
        let on_gpus = schedule.run.iter().filter(|chosen| chosen.job.0 < 10).count();
        assert_eq!((on_gpus, schedule.run.len() - on_gpus), (gpu_jobs, beside), "{cpus:?}");
    }
}

#[test]
fn r3_14_a_job_that_no_device_can_ever_hold_is_told_of_and_blocks_nobody() {
    let jobs = [gpu_job(1, 1, 0.1, 3.0), gpu_job(2, 2, 0.1, 1.0), gpu_job(3, 1, 9.0, 1.0)];
    let schedule = choose(&host(2, &[0, 1]), &[project(1, 900.0), project(2, 0.0)], &jobs);
    assert_eq!(ran(&schedule), [2]);
    assert!(matches!(why_not(&schedule, 1), Some(WhyNotRun::DevicesUsable { .. })));
    assert!(matches!(why_not(&schedule, 3), Some(WhyNotRun::CpusUsable { .. })));
    // It leaves its device starved: there is nothing that could run there.
    assert_eq!(schedule.starved[GPU], Instances::ONE);
    assert!(host(2, &[0, 1]).can_never_run(&jobs[0].needs()).is_some());
    assert!(host(2, &[0, 1]).can_never_run(&jobs[1].needs()).is_none());
}

#[test]
fn r2_6_nothing_runs_on_a_device_while_computing_is_suspended() {
    let jobs = [gpu_job(1, 1, 0.1, 1.0).running_since(-1).on(0)];
    let schedule = choose(&host(0, &[0]), &[project(1, 0.0)], &jobs);
    assert!(schedule.run.is_empty() && schedule.preempt.len() == 1);
}

#[test]
fn r5_1_the_project_owed_most_of_a_type_gets_its_device() {
    let owed = |id, cpu, gpu| {
        let mut project = project(id, cpu);
        project.priority[GPU] = Debt::from_secs(gpu);
        project
    };
    let jobs = [gpu_job(1, 1, 0.1, 1.0), gpu_job(2, 2, 0.1, 1.0), job(3, 1, 5), job(4, 2, 5)];
    let schedule = choose(&host(1, &[0]), &[owed(1, 9_000.0, 0.0), owed(2, 0.0, 9_000.0)], &jobs);
    assert_eq!(ran(&schedule), [2, 3]);
}

/// Jobs of which some use GPUs, in states that may be inconsistent, as after a change of preferences.
fn any_mixed_jobs() -> impl Strategy<Value = Vec<JobSnapshot>> {
    let gpu = prop::option::weighted(0.4, (prop_oneof![Just(1.0), 0.1..2.5_f64], 0_u32..4));
    (any_jobs(50), prop::collection::vec(gpu, 50)).prop_map(|(jobs, gpus)| {
        let with = |(job, gpu): (JobSnapshot, Option<(f64, u32)>)| match gpu {
            Some((count, device)) => {
                let job = job.nvidia(count);
                (0..count.ceil() as u32).fold(job, |job, more| job.on((device + more) % 4))
            }
            None => job,
        };
        jobs.into_iter().zip(gpus).map(with).collect()
    })
}

fn room_of(schedule: &Schedule, queue: &JobQueue, device: u32) -> f64 {
    let on = schedule.run.iter().filter(|chosen| chosen.devices.contains(device));
    1.0 - on.filter_map(|chosen| queue.get(chosen.job)).map(|job| job.usage.of(GPU).min(1.0)).sum::<f64>()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(768))]

    #[test]
    fn r2_5_no_decision_overcommits_cpus_gpus_or_memory(
        jobs in any_mixed_jobs(), projects in any_projects(), cpus in 0_u32..9, gpus in 0_u32..5,
        misses in 0_u32..4,
    ) {
        let queue: JobQueue = jobs.into_iter().collect();
        let numbers: Vec<u32> = (0..gpus).collect();
        let host = host(cpus, &numbers);
        let projects: Vec<_> =
            projects.into_iter().map(|p| ProjectSnapshot { misses: PerType::from_fn(|_| misses), ..p }).collect();
        let schedule = choose_with(&host, &PerType::default(), &projects, &queue, at_min(0));
        let running = || schedule.run.iter().filter_map(|chosen| queue.get(chosen.job));
        let is_gpu = |job: &&JobSnapshot| job.usage.coprocessor.is_some();
        let cpus_of = |job: &JobSnapshot| job.needs().cpus.as_f64();
        let all: f64 = running().map(cpus_of).sum();
        let fractions: f64 = running().filter(is_gpu).map(|job| cpus_of(job).fract()).sum();
        prop_assert!(all < f64::from(cpus) + 1.0, "{all} CPUs");
        prop_assert!(all - fractions <= f64::from(cpus) + 1e-6, "{all} CPUs, of GPU fractions {fractions}");
        prop_assert!(running().map(|job| job.working_set.0).sum::<u64>() <= host.memory_limit.0);
        for device in 0..64 {
            prop_assert!(room_of(&schedule, &queue, device) > -1e-5, "device {device}");
        }
        for chosen in &schedule.run {
            let job = queue.get(chosen.job).expect("chosen from the queue");
            let needed = job.usage.of(GPU).ceil() as u32;
            prop_assert!(chosen.devices.are_within(host.devices[GPU]));
            prop_assert_eq!(chosen.devices.count(), needed);
            if let RunState::Running { devices, .. } = job.state && chosen.action == RunAction::Continue {
                prop_assert!(devices.count() != needed || devices == chosen.devices, "it moved");
            }
        }
    }

    #[test]
    fn r3_14_no_instance_idles_while_a_job_could_run_there(
        jobs in any_mixed_jobs(), projects in any_projects(), cpus in 1_u32..9, gpus in 0_u32..5,
    ) {
        let queue: JobQueue = jobs.into_iter().collect();
        let numbers: Vec<u32> = (0..gpus).collect();
        let host = host(cpus, &numbers);
        let schedule = choose_with(&host, &PerType::default(), &projects, &queue, at_min(0));
        let running = || schedule.run.iter().filter_map(|chosen| queue.get(chosen.job));
        let memory: u64 = running().map(|job| job.working_set.0).sum();
        let (mut all, mut whole) = (0.0, 0.0);
        for job in running() {
            let cpus = job.needs().cpus.as_f64();
            all += cpus;
            whole += if job.usage.coprocessor.is_some() { cpus.floor() } else { cpus };
        }
        for job in queue.iter().filter(|job| job.is_runnable() && job.project != ProjectId(6)) {
            let needs = job.needs();
            let cpus_fit = match needs.coprocessor {
                None => whole + needs.cpus.as_f64() <= f64::from(cpus) - 1e-6,
                // Dealt before the CPU jobs, it need not find what they took.
                Some(_) => all + needs.cpus.as_f64() < f64::from(cpus) + 1.0 - 1e-5,
            } && all + needs.cpus.as_f64() < f64::from(cpus) + 1.0 - 1e-5;
            let gpus_fit = needs.coprocessor.is_none_or(|(_, count)| {
                let part = count.as_f64().min(1.0);
                let free = numbers.iter().filter(|device| room_of(&schedule, &queue, **device) >= part + 1e-5);
                free.count() >= count.as_f64().ceil() as usize
            });
            let fits = cpus_fit && gpus_fit && memory + job.working_set.0 <= host.memory_limit.0;
            let runs = schedule.run.iter().any(|chosen| chosen.job == job.id);
            // A task cannot move: it has to be preempted first.
            prop_assert!(runs || !fits || (job.is_running() && needs.coprocessor.is_some()), "{:?}", job);
        }
        prop_assert_eq!(schedule.idle[CPU] >= schedule.starved[CPU], true);
    }

    #[test]
    fn r3_14_a_decision_made_twice_is_the_same_on_the_same_devices(
        jobs in any_mixed_jobs(), projects in any_projects(), cpus in 1_u32..9,
    ) {
        // No task stands on a device at first: those that chance put there stand on one together, or without
        // memory, which no decision leaves behind.
        let waiting = |job: JobSnapshot| match job.is_running() && job.usage.coprocessor.is_some() {
            true => job.state(RunState::Preempted),
            false => job,
        };
        let mut queue: JobQueue = jobs.into_iter().map(waiting).collect();
        let host = host(cpus, &[0, 1, 2, 3]);
        let last = choose_with(&host, &PerType::default(), &projects, &queue, at_min(0));
        carry_out(&mut queue, &last, at_min(0));
        let on = |schedule: &Schedule| { let mut on = devices(schedule); on.sort(); on };
        let again = choose_with(&host, &PerType::default(), &projects, &queue, at_min(0));
        prop_assert_eq!(on(&last), on(&again));
        prop_assert!(again.preempt.is_empty());
    }
}
