//! R3.8, against the same fluid worked out the slow way.

use fallow_domain::{Duration, Fraction, Instant, JobId, PerType, ProjectId, ResourceType};
use fallow_policy::job_queue::{JobQueue, JobSnapshot, RunState};
use fallow_policy::plan_host::PlanHost;
use fallow_policy::round_robin::{Outlook, PlanProject, RoundRobin};
use proptest::prelude::*;

use crate::fluid;
use crate::world::{With, any_jobs, at_min, job, share};

const CPU: ResourceType = ResourceType::Cpu;
const GPU: ResourceType = ResourceType::Nvidia;
const DAY: Duration = Duration::from_hours(24);

fn project(id: u32, weight: f64) -> PlanProject {
    PlanProject { id: ProjectId(id), share: share(weight), counts: true }
}

fn with_gpus(cpus: u32, gpus: u32) -> PlanHost {
    let mut host = PlanHost::cpus(cpus);
    host.instances[GPU] = gpus;
    host.speeds[GPU] = 10.0;
    host
}

fn simulate(host: &PlanHost, projects: &[PlanProject], jobs: &[JobSnapshot], window: Duration) -> Outlook {
    let queue: JobQueue = jobs.iter().copied().collect();
    RoundRobin::default().simulate(host, projects, &queue, window, Duration::ZERO, at_min(0)).clone()
}

fn late(outlook: &Outlook) -> Vec<u64> {
    outlook.late.iter().map(|id| id.0).collect()
}

fn near(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-3 + 1e-6 * a.abs().max(b.abs())
}

#[test]
fn r3_8_a_job_misses_its_deadline_when_its_share_of_the_host_does_not_suffice() {
    // Two projects on one CPU: each job of an hour takes two.
    let jobs = [job(1, 1, 2), job(2, 2, 1)];
    let outlook = simulate(&PlanHost::cpus(1), &[project(1, 100.0), project(2, 100.0)], &jobs, DAY);
    assert_eq!(late(&outlook), [2]);
    assert_eq!(outlook.of(ProjectId(2)).unwrap().misses[CPU], 1);
    // With three times the share it takes 80 minutes, and still misses; with a CPU of its own it does not.
    assert_eq!(late(&simulate(&PlanHost::cpus(1), &[project(1, 100.0), project(2, 300.0)], &jobs, DAY)), [2]);
    assert!(
        !simulate(&PlanHost::cpus(2), &[project(1, 100.0), project(2, 100.0)], &jobs, DAY).is_endangered()
    );
}

#[test]
fn r3_8_a_job_on_one_cpu_is_never_faster_than_that() {
    let outlook = simulate(&PlanHost::cpus(8), &[project(1, 100.0)], &[job(1, 1, 1), job(2, 1, 0)], DAY);
    assert_eq!(late(&outlook), [2]);
    assert_eq!(outlook.types[CPU].idle, 6.0);
}

#[test]
fn r3_8_times_are_stretched_by_the_time_that_the_host_is_off() {
    let jobs = [job(1, 1, 2).left(Duration::from_mins(90))];
    let host = |on: f64| PlanHost { active_fraction: Fraction::clamped(on), ..PlanHost::cpus(1) };
    assert!(late(&simulate(&host(0.75), &[project(1, 1.0)], &jobs, DAY)).is_empty());
    assert_eq!(late(&simulate(&host(0.74), &[project(1, 1.0)], &jobs, DAY)), [1]);
    // Half the time on, three hours of 90 minutes' work, and 21 hours of the day with nothing to do, by the
    // clock.
    let outlook = simulate(&host(0.5), &[project(1, 1.0)], &jobs, DAY);
    assert_eq!(outlook.types[CPU].saturated, Duration::from_hours(3));
    assert!(near(outlook.types[CPU].shortfall.get(), 21.0 * 3_600.0));
}

#[test]
fn r3_8_a_deadline_counts_less_the_margin() {
    let queue: JobQueue = [job(1, 1, 2)].into_iter().collect();
    let late_with = |margin| {
        let mut robin = RoundRobin::default();
        robin.simulate(&PlanHost::cpus(1), &[project(1, 1.0)], &queue, DAY, margin, at_min(0)).late.len()
    };
    assert_eq!((late_with(Duration::from_mins(60)), late_with(Duration::from_mins(61))), (0, 1));
}

#[test]
fn r3_8_shortfall_is_what_idles_within_the_window_overall_and_against_each_share() {
    // Project 1 has three hours of work, project 2 one: both run on a CPU each, then 1 has one CPU, then
    // none.
    let jobs = [job(1, 1, 99).left(Duration::from_hours(3)), job(2, 2, 99)];
    let projects = [project(1, 100.0), project(2, 100.0)];
    let outlook = simulate(&PlanHost::cpus(2), &projects, &jobs, Duration::from_hours(4));
    let hours = |secs: f64| secs / 3_600.0;
    assert_eq!(outlook.types[CPU].saturated, Duration::from_hours(1));
    assert!(near(hours(outlook.types[CPU].shortfall.get()), 4.0));
    let own = |id| hours(outlook.of(ProjectId(id)).unwrap().shortfall[CPU].get());
    assert!(near(own(1), 1.0) && near(own(2), 3.0));
    // One that may not supply work is not short of any, and leaves its share to the others.
    let silent = [project(1, 100.0), PlanProject { counts: false, ..project(3, 100.0) }];
    let outlook = simulate(&PlanHost::cpus(2), &silent, &jobs, Duration::from_hours(4));
    assert!(near(hours(outlook.of(ProjectId(1)).unwrap().shortfall[CPU].get()), 5.0));
    assert_eq!(outlook.of(ProjectId(3)).unwrap().shortfall[CPU].get(), 0.0);
}

#[test]
fn r3_8_gpu_jobs_run_on_their_type_and_take_their_whole_cpus_off_the_cpus() {
    let gpu = |id, cpus| job(id, 1, 99).cpus(cpus).nvidia(1.0);
    let cpu = [job(11, 2, 99), job(12, 2, 99), job(13, 2, 99)];
    let projects = [project(1, 1.0), project(2, 1.0)];
    let outlook =
        |jobs: &[JobSnapshot]| simulate(&with_gpus(2, 2), &projects, &[jobs, &cpu[..]].concat(), DAY);
    let busy = outlook(&[gpu(1, 1.0), gpu(2, 0.3)]);
    assert_eq!((busy.types[GPU].idle, busy.types[CPU].idle), (0.0, 0.0));
    // For an hour one CPU is left, then there are two.
    assert_eq!(busy.types[CPU].saturated, Duration::from_hours(2));
    let light = outlook(&[gpu(1, 0.3)]);
    assert_eq!((light.types[GPU].idle, light.types[CPU].saturated), (1.0, Duration::from_hours(1)));
}

#[test]
fn a_job_that_would_not_fit_on_the_empty_host_keeps_nobody_waiting() {
    let jobs = [job(1, 1, 99).cpus(4.0), job(2, 1, 1), job(3, 1, 0).nvidia(1.0)];
    let outlook = simulate(&PlanHost::cpus(2), &[project(1, 1.0)], &jobs, DAY);
    assert!(!outlook.is_endangered());
    assert_eq!(outlook.types[CPU].idle, 1.0);
}

#[test]
fn r3_8_a_share_of_zero_gets_what_the_others_leave() {
    let jobs = [job(1, 1, 2), job(2, 2, 1)];
    let outlook = simulate(&PlanHost::cpus(1), &[project(1, 100.0), project(2, 0.0)], &jobs, DAY);
    assert_eq!(late(&outlook), [2]);
    assert_eq!(outlook.types[CPU].saturated, Duration::from_hours(2));
}

#[test]
fn nothing_is_simulated_again_while_nothing_changed() {
    let mut queue: JobQueue = (1..=8).map(|id| job(id, 1, 99).running_since(-1)).collect();
    let (host, projects) = (PlanHost::cpus(2), [project(1, 1.0)]);
    let mut robin = RoundRobin::default();
    let mut run = |queue: &JobQueue, minute| {
        robin.simulate(&host, &projects, queue, Duration::from_hours(2), Duration::ZERO, at_min(minute));
        robin.runs()
    };
    assert_eq!((run(&queue, 0), run(&queue, 1)), (1, 1));
    // Tasks come closer to their ends as time goes by.
    for id in 1..=2 {
        queue.update(JobId(id), |job| job.remaining = Duration::from_mins(50));
    }
    assert_eq!(run(&queue, 10), 1);
    // One comes closer to it than time went by, another one is further from it than thought, a job arrives.
    queue.update(JobId(1), |job| job.remaining = Duration::from_mins(5));
    assert_eq!(run(&queue, 11), 2);
    queue.update(JobId(1), |job| job.remaining = Duration::from_mins(6));
    assert_eq!(run(&queue, 11), 3);
    queue.insert(job(9, 1, 99));
    assert_eq!(run(&queue, 11), 4);
    // The two hours that the work suffices for are not all there any more.
    assert_eq!(run(&queue, 200), 5);
}

/// Hosts with up to two GPUs, on most of the time.
fn any_host() -> impl Strategy<Value = PlanHost> {
    (1_u32..9, 0_u32..3, prop_oneof![3 => Just(1.0), 1 => 0.2..1.0_f64]).prop_map(|(cpus, gpus, on)| {
        PlanHost { active_fraction: Fraction::clamped(on), ..with_gpus(cpus, gpus) }
    })
}

/// Projects 1 to 6, some of which count for nothing or do not count.
fn any_plan_projects() -> impl Strategy<Value = Vec<PlanProject>> {
    let weight = prop_oneof![4 => 1.0..500.0_f64, 2 => Just(100.0), 1 => Just(0.0)];
    prop::collection::vec((weight, prop::bool::weighted(0.8)), 1..7).prop_map(|rows| {
        (1..).zip(rows).map(|(id, (weight, counts))| PlanProject { counts, ..project(id, weight) }).collect()
    })
}

fn some_on_gpus(jobs: Vec<JobSnapshot>, which: &[(bool, f64)]) -> Vec<JobSnapshot> {
    let on_gpu = |(job, (gpu, count)): (JobSnapshot, &(bool, f64))| match gpu {
        true => job.nvidia(*count),
        false => job,
    };
    jobs.into_iter().zip(which.iter().cycle()).map(on_gpu).collect()
}

fn check(
    host: &PlanHost,
    projects: &[PlanProject],
    jobs: &[JobSnapshot],
    window: Duration,
) -> Result<(), TestCaseError> {
    check_within(host, projects, jobs, window, 0.0)
}

/// Checks all figures, those of idle times within so many seconds of each instance.
fn check_within(
    host: &PlanHost,
    projects: &[PlanProject],
    jobs: &[JobSnapshot],
    window: Duration,
    within: f64,
) -> Result<(), TestCaseError> {
    let outlook = simulate(host, projects, jobs, window);
    let active = host.active_fraction.get();
    let seconds = window.as_secs_f64() * active;
    let fluid = fluid::simulate(host, projects, jobs, seconds);
    for kind in host.types() {
        let of = &outlook.types[kind];
        prop_assert!(near(of.idle, fluid.idle[kind]), "{kind} idle {} {}", of.idle, fluid.idle[kind]);
        let shortfall = fluid.shortfall[kind] / active;
        let within_all = within * f64::from(host.instances[kind]) / active;
        let near = |one: f64, other: f64| near(one, other) || (one - other).abs() <= within_all;
        prop_assert!(near(of.shortfall.get(), shortfall), "{kind} shortfall {} {shortfall}", of.shortfall);
        let (saturated, exact) = (of.saturated.as_secs_f64() * active, fluid.saturated[kind]);
        let is_bound = saturated >= seconds - within - 1e-3 && saturated <= exact + within + 1e-3;
        prop_assert!(near(saturated, exact) || is_bound, "{kind} saturated {saturated} {exact}");
        for project in &outlook.projects {
            let (own, exact) =
                (project.shortfall[kind].get(), fluid.own_shortfall[&project.id][kind] / active);
            prop_assert!(near(own, exact), "{kind} shortfall of {} {own} {exact}", project.id);
        }
    }
    let slack = |job: &JobSnapshot| {
        let until = (job.deadline - at_min(0)).as_secs_f64() * active;
        fluid.ends.get(&job.id).map(|end| until - end)
    };
    for job in jobs {
        let Some(slack) = slack(job).filter(|slack| slack.abs() > 1e-2) else { continue };
        prop_assert_eq!(outlook.late.contains(&job.id), slack < 0.0, "job {} with {}", job.id, slack);
    }
    let misses: u32 = outlook.projects.iter().map(|p| p.misses.iter().map(|(_, n)| *n).sum::<u32>()).sum();
    prop_assert_eq!(misses as usize, outlook.late.len());
    // Nobody who was in time is late before the plan has to be made anew.
    let valid = (outlook.valid_until - at_min(0)).as_secs_f64() * active;
    for slack in jobs.iter().filter_map(slack).filter(|slack| *slack > 1e-2) {
        prop_assert!(valid <= slack + 1e-2, "valid for {valid}, slack {slack}");
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(768))]

    #[test]
    fn r3_8_the_simulation_agrees_with_the_fluid_worked_out_the_slow_way(
        host in any_host(), projects in any_plan_projects(), jobs in any_jobs(40),
        gpus in prop::collection::vec((prop::bool::weighted(0.3), 0.2..2.5_f64), 1..40), window in 0_i64..60,
    ) {
        check(&host, &projects, &some_on_gpus(jobs, &gpus), Duration::from_hours(window))?;
    }

}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn r3_8_it_agrees_where_jobs_are_alike_and_fill_several_chunks(
        host in any_host(), projects in any_plan_projects(), count in 100_u64..590, hours in 1_i64..600,
        window in 0_i64..100, started in 0_u64..5,
    ) {
        let job = |id: u64| {
            let spread = (id * 7_919 % 1_009) as i64 * hours * 3;
            JobSnapshot { deadline: at_min(spread / 60 + 60), ..job(id, 1 + id as u32 % 3, 0) }
                .state(if id <= started { RunState::Preempted } else { RunState::Unstarted })
        };
        let jobs: Vec<_> = (1..=count).map(job).collect();
        check(&host, &projects, &jobs, Duration::from_hours(window))?;
    }

}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Of long queues whole chunks are passed over where nobody can be late: idle times are then wrong by a
    /// job for each instance at most.
    #[test]
    fn r3_8_it_agrees_within_one_job_where_queues_are_long(
        host in any_host(), projects in any_plan_projects(), count in 300_u64..3_000, days in 1_i64..60,
        part in 0.1..1.2_f64, tight in prop::bool::weighted(0.3), lengths in prop::collection::vec(60_i64..7_200, 3),
    ) {
        let job = |id: u64| {
            let spread = (id * 7_919 % 1_009) as i64 * if tight { 2 } else { 30 };
            let left = Duration::from_secs(lengths[id as usize % 3]);
            JobSnapshot { deadline: at_min(spread + days * 1_440), ..job(id, 1 + u32::from(id.is_multiple_of(5)), 0) }.left(left)
        };
        let jobs: Vec<_> = (1..=count).map(job).collect();
        let work: f64 = jobs.iter().map(|job| job.remaining.as_secs_f64()).sum();
        let window = Duration::from_secs_f64(part * work / f64::from(host.instances[CPU]));
        check_within(&host, &projects, &jobs, window, 7_200.0)?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn r3_8_an_outcome_that_is_handed_out_again_hides_no_new_miss(
        host in any_host(), projects in any_plan_projects(), jobs in any_jobs(30), part in 0.0..1.0_f64,
    ) {
        let queue: JobQueue = jobs.into_iter().collect();
        let mut robin = RoundRobin::default();
        let window = Duration::from_hours(10);
        let first = robin.simulate(&host, &projects, &queue, window, Duration::ZERO, at_min(0)).clone();
        let valid = (first.valid_until - at_min(0)).min(DAY * 100);
        let now = at_min(0) + (valid.mul_f64(part) - Duration::from_millis(1)).max(Duration::ZERO);
        // Nothing was computed in the meantime: nothing worse than that can happen.
        let anew = RoundRobin::default().simulate(&host, &projects, &queue, window, Duration::ZERO, now).clone();
        prop_assert_eq!(&first.late, &anew.late);
        for (kind, of) in anew.types.iter() {
            prop_assert!(!of.shortfall.is_positive() || first.types[kind].shortfall.is_positive());
        }
    }

    #[test]
    fn the_simulation_is_total_for_absurd_jobs(
        host in any_host(), rows in prop::collection::vec((any::<i64>(), any::<i64>(), any::<f64>()), 0..30),
        window in any::<i64>(), now in any::<i64>(),
    ) {
        let jobs = (1..).zip(rows).map(|(id, (deadline, left, cpus))| JobSnapshot {
            deadline: Instant::from_micros(deadline),
            ..job(id, 1 + id as u32 % 2, 0).left(Duration::from_micros(left)).cpus(cpus)
        });
        let queue: JobQueue = jobs.collect();
        let projects = [project(1, 1.0), project(2, 1e9)];
        let mut robin = RoundRobin::default();
        let now = Instant::from_micros(now);
        let outlook = robin.simulate(&host, &projects, &queue, Duration::from_micros(window), Duration::ZERO, now);
        prop_assert!(outlook.types.iter().all(|(_, of)| of.shortfall.get().is_finite() && of.idle.is_finite()));
        prop_assert!(outlook.valid_until >= now);
    }
}

#[test]
fn queues_of_nothing_are_short_of_everything() {
    let outlook = simulate(&with_gpus(4, 1), &[project(1, 3.0), project(2, 1.0)], &[], DAY);
    assert_eq!((outlook.types[CPU].idle, outlook.types[GPU].idle), (4.0, 1.0));
    assert!(near(outlook.types[CPU].shortfall.get(), 4.0 * 86_400.0));
    let own: Vec<PerType<f64>> =
        outlook.projects.iter().map(|p| p.shortfall.map(|_, own| own.get())).collect();
    assert!(near(own[0][CPU], 3.0 * 86_400.0) && near(own[1][GPU], 0.25 * 86_400.0));
}

#[test]
fn r3_8_a_long_queue_whose_jobs_are_few_for_the_cpus_or_uneven_is_not_passed_over() {
    let hours = Duration::from_hours;
    let far = |id: u64, left: Duration| {
        JobSnapshot { deadline: at_min(1_000_000 + id as i64), ..job(id, 1, 0) }.left(left)
    };
    let saturated = |cpus: u32, jobs: &[JobSnapshot], window: Duration| {
        let of = simulate(&PlanHost::cpus(cpus), &[project(1, 1.0)], jobs, window).types[CPU];
        (of.saturated.as_secs_f64() / 3_600.0, of.shortfall.get() / 3_600.0)
    };
    // 256 CPUs, each with a task of which an hour is left, and 44 jobs more: 212 CPUs are short for 7 of 8
    // hours.
    let mut jobs: Vec<_> = (1..=256).map(|id| far(id, hours(1)).running_since(-1)).collect();
    jobs.extend((257..=300).map(|id| far(id, hours(72))));
    let (busy, short) = saturated(256, &jobs, hours(8));
    assert!(near(busy, 1.0) && near(short, 212.0 * 7.0), "{busy} {short}");
    // A month's task on one of two CPUs, and 999 jobs of a minute for the other one.
    let mut jobs = vec![far(1, hours(720)).running_since(-1)];
    jobs.extend((2..=1_000).map(|id| far(id, Duration::from_mins(1))));
    let (busy, short) = saturated(2, &jobs, hours(12));
    assert!(busy >= 12.0 && short == 0.0, "{busy} {short}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Whatever is passed over, no job that would be late is overlooked.
    #[test]
    fn r3_8_no_miss_is_overlooked_in_long_queues_of_jobs_of_any_width(
        host in any_host(), projects in any_plan_projects(), count in 200_u64..900, days in 1_i64..40,
        part in 0.05..1.3_f64, started in 0_u64..9, lengths in prop::collection::vec(1_i64..20_000, 7),
        widths in prop::collection::vec(prop::sample::select(vec![0.25, 0.5, 1.0, 2.0, 3.0, 20.0]), 5),
    ) {
        let job = |id: u64| {
            let spread = (id * 7_919 % 1_009) as i64 * 10;
            let project = 1 + u32::from(id.is_multiple_of(5)) + u32::from(id.is_multiple_of(7));
            let job = JobSnapshot { deadline: at_min(spread + days * 1_440), ..job(id, project, 0) };
            let job = job.left(Duration::from_secs(lengths[id as usize % 7])).cpus(widths[id as usize % 5]);
            if id <= started { job.running_since(-1) } else { job }
        };
        let jobs: Vec<_> = (1..=count).map(job).collect();
        let work: f64 = jobs.iter().map(|job| job.remaining.as_secs_f64() * job.usage.cpus).sum();
        let window = Duration::from_secs_f64(part * work / f64::from(host.instances[CPU]));
        check_within(&host, &projects, &jobs, window, 20_000.0)?;
    }
}
