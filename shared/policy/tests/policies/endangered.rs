//! R5.2: what the simulation shows late runs first.

use fallow_domain::{Duration, JobId, PerType, ProjectId, ResourceType};
use fallow_policy::cpu_schedule::{
    ProjectSnapshot, RunAction, Schedule, WhyNotRun, WhyRun, choose as choose_with,
};
use fallow_policy::job_queue::{JobQueue, JobSnapshot, RunState};
use fallow_policy::plan_host::PlanHost;
use fallow_policy::round_robin::{PlanProject, RoundRobin};
use proptest::prelude::*;

use crate::world::{With, any_jobs, any_projects, at_min, carry_out, host, job, project, ran, share, why};

fn tight(id: u32, debt_min: f64, misses: u32) -> ProjectSnapshot {
    ProjectSnapshot { misses: PerType::cpu(misses), ..project(id, debt_min) }
}

fn choose(cpus: u32, projects: &[ProjectSnapshot], jobs: &[JobSnapshot]) -> Schedule {
    choose_with(&host(cpus), &PerType::default(), projects, &jobs.iter().copied().collect(), at_min(0))
}

#[test]
fn r5_2_with_n_misses_the_n_jobs_of_earliest_deadline_run_first() {
    // (misses of project 1, misses of project 2, what two CPUs run); project 2 is owed most.
    let jobs = [job(1, 1, 4), job(2, 1, 2), job(3, 1, 9), job(4, 2, 3), job(5, 2, 8), job(6, 2, 9)];
    for (first, second, expected) in [
        (0, 0, [4, 5]),
        (1, 0, [2, 4]),
        (2, 0, [2, 1]),
        (3, 0, [2, 1]),
        (0, 1, [4, 5]),
        (1, 1, [2, 4]),
        (2, 2, [2, 4]),
        (9, 9, [2, 4]),
    ] {
        let schedule = choose(2, &[tight(1, -300.0, first), tight(2, 300.0, second)], &jobs);
        assert_eq!(ran(&schedule), expected, "{first} and {second} misses");
    }
}

#[test]
fn r5_2_of_equal_deadlines_the_started_comes_first_then_what_needs_least() {
    let minutes = |n| Duration::from_mins(n);
    let table = [
        job(1, 1, 5).left(minutes(50)),
        job(2, 1, 5).left(minutes(90)).running_since(-1),
        job(3, 1, 5).left(minutes(40)),
        job(4, 1, 5).left(minutes(40)),
        job(5, 2, 5).left(minutes(80)).state(RunState::Preempted),
        job(6, 2, 5).left(minutes(10)),
        job(7, 2, 4).left(minutes(99)),
    ];
    let order = [7, 5, 2, 6, 3, 4, 1];
    for cpus in 1..=7 {
        let schedule = choose(cpus, &[tight(1, 0.0, 9), tight(2, 0.0, 9)], &table);
        assert_eq!(ran(&schedule), order[..cpus as usize]);
        assert!(schedule.run.iter().all(|chosen| matches!(why(chosen), WhyRun::Endangered { .. })));
    }
}

#[test]
fn r5_2_endangered_jobs_preempt_tasks_in_their_slices_and_the_others_go_round_robin() {
    let jobs = [job(1, 1, 9).running_since(-5), job(2, 1, 9).running_since(-5), job(3, 2, 1), job(4, 2, 9)];
    let schedule = choose(2, &[tight(1, 60.0, 0), tight(2, 0.0, 1)], &jobs);
    assert_eq!(ran(&schedule), [3, 1]);
    let deadline = at_min(60);
    assert_eq!(why(&schedule.run[0]), WhyRun::Endangered { deadline, misses: 1 });
    assert_eq!(schedule.run[0].rule.to_string(), "R5.2");
    assert!(matches!(&schedule.preempt[..], [passed] if passed.job == JobId(2)));
}

#[test]
fn r5_2_a_task_in_its_slice_gives_way_to_no_job_of_the_same_deadline() {
    // Project 1 misses one deadline, and its task 1 runs for that. Task 4 of the same deadline, which was
    // started because a CPU was left, needs less and is now the first of project 1. There is memory for one
    // of the jobs 1 and 3.
    let jobs = |began| {
        [
            job(1, 1, 10).memory(2_500).left(Duration::from_hours(9)).running_since(began),
            job(3, 2, 10).memory(2_500),
            job(4, 1, 10).left(Duration::from_mins(1)).running_since(began),
        ]
    };
    let projects = [tight(1, 0.0, 1), tight(2, 0.0, 1)];
    for (began, expected) in [(-5, [4, 1]), (-60, [4, 3])] {
        let schedule = choose(2, &projects, &jobs(began));
        assert_eq!(ran(&schedule), expected, "slices began {began} min ago");
    }
}

#[test]
fn r5_2_a_job_that_is_not_there_yet_is_passed_over() {
    let jobs = [job(1, 1, 1).state(RunState::Downloading), job(2, 1, 2), job(3, 2, 9)];
    assert_eq!(ran(&choose(1, &[tight(1, -300.0, 1), tight(2, 300.0, 0)], &jobs)), [2]);
}

#[test]
fn r5_2_an_endangered_job_that_does_not_fit_waits_and_others_are_tried() {
    let jobs = [job(1, 1, 1).memory(9_000), job(2, 1, 2), job(3, 2, 9)];
    let schedule = choose(1, &[tight(1, -300.0, 2), tight(2, 300.0, 0)], &jobs);
    assert_eq!(ran(&schedule), [2]);
    let told = schedule.waiting.iter().find(|passed| passed.job == JobId(1)).expect("it is told of");
    assert!(matches!(told.why.reason(), Some(WhyNotRun::MemoryLimit { .. })));
}

#[test]
fn r5_2_a_task_out_of_danger_keeps_its_slice_so_that_misses_that_come_and_go_switch_nothing() {
    let mut queue: JobQueue = [job(1, 1, 9).running_since(-5), job(2, 2, 1)].into_iter().collect();
    let mut switches = 0;
    // The simulation shows project 2's job late at every other decision.
    for minute in (0..60).step_by(5) {
        let misses = u32::from(minute % 10 == 0);
        let projects = [tight(1, 0.0, 0), tight(2, -60.0, misses)];
        let schedule = choose_with(&host(1), &PerType::default(), &projects, &queue, at_min(minute));
        switches += schedule.run.iter().filter(|chosen| chosen.action != RunAction::Continue).count();
        carry_out(&mut queue, &schedule, at_min(minute));
        assert_eq!(ran(&schedule), [2]);
    }
    assert_eq!(switches, 1);
}

#[test]
fn r5_1_without_misses_nothing_is_preempted_in_its_slice() {
    let jobs = [job(1, 1, 9).running_since(-5), job(2, 2, 1)];
    assert_eq!(ran(&choose(1, &[tight(1, -60.0, 0), tight(2, 60.0, 0)], &jobs)), [1]);
}

/// Two days on two CPUs in a closed loop: simulate, decide, compute for ten minutes. Each of three projects
/// gets a job of three hours now and then, the last with eight hours of time and the others with days.
/// Returns the jobs that were late and the tasks that were preempted.
fn two_days(with_misses: bool) -> (usize, usize) {
    let (step, host) = (Duration::from_mins(10), host(2));
    let plan: Vec<_> =
        (1..4).map(|id| PlanProject { id: ProjectId(id), share: share(100.0), counts: true }).collect();
    let (mut queue, mut robin) = (JobQueue::default(), RoundRobin::default());
    let (mut late, mut preempted, mut id) = (0, 0, 0);
    for minute in (0..2_880).step_by(10) {
        for (project, every, hours) in [(1, 120, 300), (2, 120, 200), (3, 540, 8)] {
            if minute % every == 0 {
                id += 1;
                let deadline = at_min(minute) + Duration::from_hours(hours);
                queue.insert(JobSnapshot { deadline, ..job(id, project, 0).left(Duration::from_hours(3)) });
            }
        }
        let now = at_min(minute);
        let outlook =
            robin.simulate(&PlanHost::cpus(2), &plan, &queue, Duration::from_hours(6), Duration::ZERO, now);
        let misses = |at: usize| if with_misses { outlook.projects[at].misses } else { PerType::default() };
        let snapshots: Vec<_> =
            (0..3).map(|at| ProjectSnapshot { misses: misses(at), ..project(1 + at as u32, 0.0) }).collect();
        let schedule = choose_with(&host, &PerType::default(), &snapshots, &queue, now);
        preempted += schedule.preempt.len();
        carry_out(&mut queue, &schedule, now);
        for chosen in &schedule.run {
            queue.update(chosen.job, |job| job.remaining -= step);
            if queue.get(chosen.job).is_some_and(|job| !job.remaining.is_positive()) {
                late += queue.remove(chosen.job).map_or(0, |job| usize::from(job.deadline < now + step));
            }
        }
    }
    let unfinished = queue.iter().filter(|job| job.deadline < at_min(2_880)).count();
    (late + unfinished, preempted)
}

#[test]
fn r5_2_in_a_closed_loop_deadlines_are_met_and_tasks_hardly_come_and_go() {
    let (late, preempted) = two_days(true);
    let (late_without, _) = two_days(false);
    assert!(late == 0 && late_without > 0, "{late} late, without the simulation {late_without}");
    // Six jobs of three slices each: whoever makes room for one, and the one itself when it is out of danger.
    assert!(preempted <= 2 * 6 * 3, "{preempted} tasks were preempted");
}

/// Projects some of which miss deadlines.
fn any_tight_projects() -> impl Strategy<Value = Vec<ProjectSnapshot>> {
    (any_projects(), prop::collection::vec(prop_oneof![Just(0), 1_u32..9], 5)).prop_map(
        |(projects, misses)| {
            let with = |(project, misses): (ProjectSnapshot, u32)| ProjectSnapshot {
                misses: PerType::cpu(misses),
                ..project
            };
            projects.into_iter().zip(misses).map(with).collect()
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn r5_2_a_decision_made_twice_is_the_same(
        jobs in any_jobs(60), projects in any_tight_projects(), cpus in 1_u32..9,
    ) {
        let mut queue: JobQueue = jobs.into_iter().collect();
        let host = host(cpus);
        let first = choose_with(&host, &PerType::default(), &projects, &queue, at_min(0));
        let again = choose_with(&host, &PerType::default(), &projects, &queue, at_min(0));
        prop_assert_eq!(format!("{first:?}"), format!("{again:?}"));
        carry_out(&mut queue, &first, at_min(0));
        let now = at_min(0) + Duration::from_millis(100);
        let second = choose_with(&host, &PerType::default(), &projects, &queue, now);
        let sorted = |schedule: &Schedule| { let mut ids = ran(schedule); ids.sort_unstable(); ids };
        prop_assert_eq!(sorted(&first), sorted(&second));
        prop_assert!(second.preempt.is_empty());
    }

    #[test]
    fn r5_2_no_cpu_idles_and_none_is_overcommitted_whatever_is_in_danger(
        jobs in any_jobs(60), projects in any_tight_projects(), cpus in 1_u32..9,
    ) {
        let queue: JobQueue = jobs.into_iter().collect();
        let host = host(cpus);
        let schedule = choose_with(&host, &PerType::default(), &projects, &queue, at_min(0));
        let running = || schedule.run.iter().filter_map(|chosen| queue.get(chosen.job));
        let used: f64 = running().map(|job| job.needs().cpus.as_f64()).sum();
        let memory: u64 = running().map(|job| job.working_set.0).sum();
        prop_assert!(used <= f64::from(cpus) + 1e-9 && memory <= host.memory_limit.0);
        for job in queue.iter().filter(|job| job.is_runnable() && projects.iter().any(|p| p.id == job.project)) {
            let runs = schedule.run.iter().any(|chosen| chosen.job == job.id);
            let fits = job.needs().cpus <= schedule.idle[ResourceType::Cpu]
                && memory + job.working_set.0 <= host.memory_limit.0;
            prop_assert!(runs || !fits, "{:?} could have run", job);
        }
    }
}
