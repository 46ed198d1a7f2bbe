//! R2.2 to R2.6.

use std::collections::BTreeMap;

use fallow_domain::{Bytes, Duration, JobId, PerType, ProjectId, ResourceType, Share};
use fallow_policy::accounting::{Debts, ShortTermPeriod};
use fallow_policy::cpu_schedule::{
    ProjectSnapshot, RunAction, Schedule, ScheduleHost, WhyNotRun, WhyRun, choose as choose_with,
};
use fallow_policy::job_queue::{Cpus, JobQueue, JobSnapshot, RunState};
use fallow_policy::plan_host::PlanHost;
use proptest::prelude::*;

use crate::world::{
    PERIOD, With, any_jobs, any_projects, at_min, carry_out, host, job, project, ran, share, why,
};

fn choose(host: &ScheduleHost, projects: &[ProjectSnapshot], jobs: &[JobSnapshot]) -> Schedule {
    choose_with(host, &PerType::default(), projects, &jobs.iter().copied().collect(), at_min(0))
}

fn why_not(schedule: &Schedule, id: u64) -> Option<WhyNotRun> {
    let mut passed = schedule.preempt.iter().chain(&schedule.waiting);
    passed.find(|passed| passed.job == JobId(id))?.why.reason().copied()
}

#[test]
fn r2_3_the_project_owed_most_gets_the_cpu_and_ties_go_to_the_smaller_id() {
    let jobs = [job(1, 1, 5), job(2, 2, 5)];
    assert_eq!(ran(&choose(&host(1), &[project(1, 0.0), project(2, 5.0)], &jobs)), [2]);
    assert_eq!(ran(&choose(&host(1), &[project(2, 5.0), project(1, 5.0)], &jobs)), [1]);
}

#[test]
fn r2_3_a_running_task_comes_before_a_preempted_one_and_both_before_an_unstarted_job() {
    let unstarted = job(1, 1, 1);
    let preempted = job(2, 1, 2).state(RunState::Preempted);
    let running = job(3, 1, 3).running_since(-90);
    let jobs = [unstarted, preempted, running];
    let schedule = choose(&host(3), &[project(1, 0.0)], &jobs);
    assert_eq!(ran(&schedule), [3, 2, 1]);
    let actions: Vec<_> = schedule.run.iter().map(|chosen| chosen.action).collect();
    assert_eq!(actions, [RunAction::Continue, RunAction::Resume, RunAction::Start]);
}

#[test]
fn r2_3_of_unstarted_jobs_the_earliest_deadline_comes_first() {
    let jobs = [job(1, 1, 9), job(2, 1, 3).cpus(0.5), job(3, 1, 6).cpus(0.5), job(4, 1, 3)];
    assert_eq!(ran(&choose(&host(1), &[project(1, 0.0)], &jobs)), [2, 3]);
    assert_eq!(ran(&choose(&host(2), &[project(1, 0.0)], &jobs)), [2, 4, 3]);
}

#[test]
fn r2_3_the_anticipated_debt_falls_by_the_payoff_so_that_cpus_spread_over_projects() {
    let jobs: Vec<_> = (1..=8).map(|id| job(id, 1 + (id as u32 - 1) / 4, 5)).collect();
    // One period is the least payoff: a lead of 90 minutes is worth one CPU more.
    let projects = [project(1, 90.0), project(2, 0.0)];
    assert_eq!(ran(&choose(&host(4), &projects, &jobs)), [1, 2, 5, 3]);
    // With four hours used on four CPUs a minute ago it is still one hour; with 16, four hours a CPU.
    let queue = jobs.iter().copied().collect();
    let big = choose_with(&host(4), &PerType::cpu(Duration::from_hours(16)), &projects, &queue, at_min(0));
    assert_eq!(ran(&big), [1, 5, 2, 6]);
}

#[test]
fn r2_3_a_project_with_share_zero_runs_only_what_others_leave() {
    let jobs = [job(1, 1, 5), job(2, 2, 5)];
    let nothing = ProjectSnapshot { share: Share::ZERO, ..project(1, 500.0) };
    assert_eq!(ran(&choose(&host(1), &[nothing, project(2, -500.0)], &jobs)), [2]);
    assert_eq!(ran(&choose(&host(2), &[nothing, project(2, -500.0)], &jobs)), [2, 1]);
}

#[test]
fn r2_4_a_task_keeps_its_cpu_until_its_time_slice_ends() {
    let jobs = [job(1, 1, 5).running_since(-59), job(2, 2, 5)];
    let projects = [project(1, -30.0), project(2, 30.0)];
    let schedule = choose(&host(1), &projects, &jobs);
    assert_eq!(why(&schedule.run[0]), WhyRun::InTimeSlice { ends: at_min(1) });
    assert!(!schedule.run[0].until_checkpoint);
    assert_eq!(schedule.decide_by, at_min(1));
    assert_eq!(schedule.run[0].slice_began, at_min(-59));

    let over = [job(1, 1, 5).running_since(-60), job(2, 2, 5)];
    let schedule = choose(&host(1), &projects, &over);
    assert_eq!(ran(&schedule), [2]);
    assert!(matches!(why_not(&schedule, 1), Some(WhyNotRun::Outranked { .. })));
}

#[test]
fn r2_4_a_task_chosen_again_gets_a_new_slice() {
    let schedule = choose(&host(1), &[project(1, 0.0)], &[job(1, 1, 5).running_since(-60)]);
    assert_eq!((schedule.run[0].action, schedule.run[0].slice_began), (RunAction::Continue, at_min(0)));
}

#[test]
fn r2_4_a_task_is_preempted_only_at_a_checkpoint_but_after_two_periods_in_any_case() {
    let careful = ScheduleHost { preempt_only_at_checkpoint: true, ..host(1) };
    let projects = [project(1, -30.0), project(2, 30.0)];
    for (began, checkpointed, stays) in
        [(-70, -70, true), (-70, -5, true), (-70, 0, false), (-120, -5, false)]
    {
        let task = job(1, 1, 5).running_since(began).checkpointed(checkpointed);
        let schedule = choose(&careful, &projects, &[task, job(2, 2, 5)]);
        assert_eq!(ran(&schedule), [if stays { 1 } else { 2 }], "{began} {checkpointed}");
        if stays {
            assert_eq!(why(&schedule.run[0]), WhyRun::BeforeCheckpoint { latest: at_min(50) });
            assert!(schedule.run[0].until_checkpoint);
            assert_eq!(schedule.decide_by, at_min(50));
        }
    }
}

#[test]
fn r1_12_a_slice_that_begins_in_the_future_is_over() {
    let jobs = [job(1, 1, 5).running_since(5_000), job(2, 2, 5)];
    assert_eq!(ran(&choose(&host(1), &[project(1, -30.0), project(2, 30.0)], &jobs)), [2]);
}

#[test]
fn r2_5_fractions_are_packed_and_what_does_not_fit_waits() {
    let third = 1.0 / 3.0;
    let jobs = [job(1, 1, 1).cpus(third), job(2, 1, 2).cpus(third), job(3, 1, 3).cpus(third), job(4, 1, 4)];
    let schedule = choose(&host(1), &[project(1, 0.0)], &jobs);
    assert_eq!(ran(&schedule), [1, 2, 3]);
    assert!(matches!(why_not(&schedule, 4), Some(WhyNotRun::CpusLeft { .. })));
}

#[test]
fn r2_5_a_job_larger_than_what_is_left_waits_and_others_are_tried() {
    let jobs = [job(1, 1, 1).cpus(2.0), job(2, 1, 2).cpus(2.0), job(3, 2, 9), job(4, 1, 9).cpus(8.0)];
    let schedule = choose(&host(3), &[project(1, 300.0), project(2, 0.0)], &jobs);
    assert_eq!(ran(&schedule), [1, 3]);
    let needed = Cpus::whole(8);
    assert_eq!(why_not(&schedule, 4), Some(WhyNotRun::CpusUsable { needed, usable: Cpus::whole(3) }));
}

#[test]
fn r2_5_a_job_whose_working_set_does_not_fit_waits_and_others_are_tried() {
    let jobs =
        [job(1, 1, 1).memory(3_000), job(2, 1, 2).memory(1_500), job(3, 1, 3), job(4, 1, 4).memory(9_000)];
    let schedule = choose(&host(4), &[project(1, 0.0)], &jobs);
    assert_eq!(ran(&schedule), [1, 3]);
    let left = Bytes::from_mebibytes(900);
    assert_eq!(
        why_not(&schedule, 2),
        Some(WhyNotRun::MemoryLeft { needed: Bytes::from_mebibytes(1_500), left })
    );
    assert!(matches!(why_not(&schedule, 4), Some(WhyNotRun::MemoryLimit { .. })));
    assert_eq!(
        (schedule.idle[ResourceType::Cpu], schedule.starved[ResourceType::Cpu]),
        (Cpus::whole(2), Cpus::ONE)
    );
}

#[test]
fn r2_5_slices_that_never_end_together_do_not_starve_a_job_of_all_cpus() {
    let narrow = [job(1, 1, 5).running_since(-10), job(2, 1, 5).running_since(-40), job(3, 1, 5)];
    let wide = job(4, 2, 5).cpus(2.0);
    let jobs = [&narrow[..], &[wide]].concat();
    // Owed less than a slice of the wide job, it waits; owed that much, it gets both CPUs.
    assert_eq!(ran(&choose(&host(2), &[project(1, -119.0), project(2, 119.0)], &jobs)), [1, 2]);
    let schedule = choose(&host(2), &[project(1, -120.0), project(2, 120.0)], &jobs);
    assert_eq!(ran(&schedule), [4]);
    assert_eq!(schedule.preempt.len(), 2);
    // And keeps them for its slice, although it is owed nothing any more.
    let mut queue: JobQueue = jobs.into_iter().collect();
    carry_out(&mut queue, &schedule, at_min(0));
    let later = choose_with(
        &host(2),
        &PerType::cpu(Duration::from_mins(2)),
        &[project(1, -118.0), project(2, 118.0)],
        &queue,
        at_min(1),
    );
    assert_eq!(ran(&later), [4]);
}

#[test]
fn r2_6_fewer_usable_cpus_take_effect_at_once_and_the_least_owed_gives_way() {
    let jobs = [job(1, 1, 5).running_since(-1), job(2, 2, 5).running_since(-1)];
    let projects = [project(1, -5.0), project(2, 5.0)];
    assert_eq!(ran(&choose(&host(1), &projects, &jobs)), [2]);
    let suspended = choose(&host(0), &projects, &jobs);
    assert!(suspended.run.is_empty());
    assert_eq!(suspended.preempt.len(), 2);
}

#[test]
fn tasks_of_a_project_that_takes_no_part_are_preempted() {
    let schedule = choose(&host(1), &[project(2, 0.0)], &[job(1, 1, 5).running_since(-1)]);
    assert_eq!(why_not(&schedule, 1), Some(WhyNotRun::ProjectOut));
    assert_eq!(
        (schedule.idle[ResourceType::Cpu], schedule.starved[ResourceType::Cpu]),
        (Cpus::ONE, Cpus::ONE)
    );
}

#[test]
fn a_job_on_its_way_does_not_run() {
    let schedule = choose(&host(1), &[project(1, 0.0)], &[job(1, 1, 5).state(RunState::Downloading)]);
    assert!(schedule.run.is_empty() && schedule.waiting.is_empty());
}

/// Lets a host decide every few minutes, as events of all kinds make it, and returns CPU minutes by project.
fn run_host(usable: u32, shares: &[f64], every_min: i64, minutes: i64) -> Vec<f64> {
    let mut queue: JobQueue = (0..400).map(|id| job(id, 1 + id as u32 % shares.len() as u32, 99)).collect();
    let mut debts = Debts::default();
    let mut got: BTreeMap<ProjectId, f64> = BTreeMap::new();
    let mut running: BTreeMap<ProjectId, i64> = BTreeMap::new();
    for minute in (0..minutes).step_by(every_min as usize) {
        let period: Vec<_> = (1..)
            .zip(shares)
            .map(|(id, weight)| ShortTermPeriod {
                project: ProjectId(id),
                share: share(*weight),
                used: PerType::cpu(Duration::from_mins(
                    running.get(&ProjectId(id)).copied().unwrap_or(0) * every_min,
                )),
                runnable: PerType::cpu(true),
            })
            .collect();
        let used = debts.update(&PlanHost::cpus(usable), &period);
        let projects: Vec<_> = period
            .iter()
            .map(|p| ProjectSnapshot {
                share: p.share,
                priority: debts.of(p.project),
                ..project(p.project.0, 0.0)
            })
            .collect();
        let schedule = choose_with(&host(usable), &used, &projects, &queue, at_min(minute));
        carry_out(&mut queue, &schedule, at_min(minute));
        running.clear();
        for chosen in &schedule.run {
            *running.entry(chosen.project).or_default() += 1;
            *got.entry(chosen.project).or_default() += every_min as f64;
        }
    }
    got.into_values().collect()
}

/// Shows R5.1 as well.
#[test]
fn r2_3_shares_are_respected_over_two_days() {
    for (usable, every) in [(1, 60), (1, 7), (2, 13), (3, 60), (8, 5)] {
        let got = run_host(usable, &[75.0, 25.0], every, 2_880);
        let fraction = got[0] / (got[0] + got[1]);
        assert!((fraction - 0.75).abs() < 0.03, "{usable} CPUs, every {every} min: {fraction}");
        assert!((got[0] + got[1] - f64::from(usable) * 2_880.0).abs() < f64::from(usable) * 60.0);
    }
    let got = run_host(4, &[4.0, 3.0, 2.0, 1.0], 11, 5_760);
    let sum: f64 = got.iter().sum();
    for (got, share) in got.iter().zip([0.4, 0.3, 0.2, 0.1]) {
        assert!((got / sum - share).abs() < 0.03, "{got} of {sum} for {share}");
    }
}

fn used(queue: &JobQueue, schedule: &Schedule) -> (Cpus, Bytes) {
    let chosen = schedule.run.iter().filter_map(|chosen| queue.get(chosen.job));
    let cpus = chosen.clone().map(|job| (job.needs().cpus.as_f64() * 1e6).round() as u32).sum::<u32>();
    let memory = chosen.fold(Bytes(0), |sum, job| sum.plus(job.working_set));
    (Cpus::of(fallow_domain::Usage { cpus: f64::from(cpus) / 1e6 + 1e-9, coprocessor: None }), memory)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn r2_5_no_decision_overcommits_cpus_or_memory(
        jobs in any_jobs(60), projects in any_projects(), cpus in 0_u32..9, careful in any::<bool>(),
    ) {
        let queue: JobQueue = jobs.into_iter().collect();
        let host = ScheduleHost { preempt_only_at_checkpoint: careful, ..host(cpus) };
        let schedule = choose_with(&host, &PerType::default(), &projects, &queue, at_min(0));
        let (used, memory) = used(&queue, &schedule);
        prop_assert!(schedule.run.is_empty() || used <= Cpus::whole(cpus));
        prop_assert!(memory <= host.memory_limit);
        let mut ids = ran(&schedule);
        ids.sort_unstable();
        ids.dedup();
        prop_assert_eq!(ids.len(), schedule.run.len());
    }

    #[test]
    fn r2_3_a_decision_repeated_after_a_moment_is_the_same(
        jobs in any_jobs(60), projects in any_projects(), cpus in 1_u32..9, careful in any::<bool>(),
    ) {
        let mut queue: JobQueue = jobs.into_iter().collect();
        let host = ScheduleHost { preempt_only_at_checkpoint: careful, ..host(cpus) };
        let first = choose_with(&host, &PerType::default(), &projects, &queue, at_min(0));
        carry_out(&mut queue, &first, at_min(0));
        let now = at_min(0) + Duration::from_millis(100);
        let second = choose_with(&host, &PerType::cpu(Duration::from_millis(100)), &projects, &queue, now);
        let sorted = |schedule: &Schedule| { let mut ids = ran(schedule); ids.sort_unstable(); ids };
        prop_assert_eq!(sorted(&first), sorted(&second));
        prop_assert!(second.preempt.is_empty());
        prop_assert!(second.run.iter().all(|chosen| chosen.action == RunAction::Continue));
    }

    #[test]
    fn r2_3_no_cpu_idles_while_a_job_that_fits_could_run(
        jobs in any_jobs(60), projects in any_projects(), cpus in 1_u32..9,
    ) {
        let queue: JobQueue = jobs.into_iter().collect();
        let host = host(cpus);
        let schedule = choose_with(&host, &PerType::default(), &projects, &queue, at_min(0));
        let (_, memory) = used(&queue, &schedule);
        for job in queue.iter().filter(|job| job.is_runnable() && job.project != ProjectId(6)) {
            let runs = schedule.run.iter().any(|chosen| chosen.job == job.id);
            let fits = job.needs().cpus <= schedule.idle[ResourceType::Cpu] && memory.plus(job.working_set) <= host.memory_limit;
            prop_assert!(runs || !fits, "{:?} could have run", job);
        }
    }

    #[test]
    fn r2_6_more_cpus_are_never_used_less(
        rows in prop::collection::vec((1_u32..6, 0_i64..50), 0..40), projects in any_projects(), cpus in 1_u32..9,
    ) {
        let jobs: Vec<_> = (1..).zip(rows).map(|(id, (p, deadline))| job(id, p, deadline)).collect();
        let (fewer, more) = (choose(&host(cpus), &projects, &jobs), choose(&host(cpus + 1), &projects, &jobs));
        prop_assert!(more.run.len() >= fewer.run.len());
        prop_assert_eq!(more.run.len(), jobs.len().min(cpus as usize + 1).min(40));
        // What runs with fewer CPUs runs with more.
        prop_assert_eq!(&ran(&more)[..fewer.run.len()], &ran(&fewer)[..]);
    }

    #[test]
    fn r2_6_more_cpus_are_never_used_less_by_waiting_jobs_whatever_they_need(
        jobs in any_jobs(40), projects in any_projects(), cpus in 1_u32..9,
    ) {
        let waiting = |job: &JobSnapshot| !matches!(job.state, RunState::Running { .. });
        let jobs: Vec<_> = jobs.into_iter().filter(waiting).collect();
        let queue: JobQueue = jobs.iter().copied().collect();
        let used = |cpus| used(&queue, &choose(&host(cpus), &projects, &jobs)).0;
        prop_assert!(used(cpus + 1) >= used(cpus), "{} {}", used(cpus), used(cpus + 1));
    }

    #[test]
    fn every_running_task_is_continued_or_preempted_with_a_reason(
        jobs in any_jobs(40), projects in any_projects(), cpus in 0_u32..5,
    ) {
        let schedule = choose(&host(cpus), &projects, &jobs);
        for job in jobs.iter().filter(|job| matches!(job.state, RunState::Running { .. })) {
            let continued = schedule.run.iter().any(|c| c.job == job.id && c.action == RunAction::Continue);
            let preempted = schedule.preempt.iter().any(|passed| passed.job == job.id);
            prop_assert!(continued != preempted);
        }
        prop_assert!(schedule.decide_by > at_min(0) && schedule.decide_by <= at_min(0) + PERIOD);
    }
}
