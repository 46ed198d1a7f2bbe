//! Faults that a simulator of clients can have and this one must not: each once seen in another.

use fallow_domain::{Duration, Flops, Fraction, ResourceType};
use fallow_emulator::engine::{EndedJob, RunOutcome};
use fallow_emulator::scenario::{Availability, OutageModel, Scenario, Trace, TraceChange};

use crate::engine_runs::{DAY, HOUR, application, project, s, secs, simulate, tiny};

fn available(fraction: f64) -> Scenario {
    let mut scenario = Scenario { duration: DAY * 30, ..Scenario::base() };
    let fraction = Fraction::clamped(fraction);
    scenario.host.available = Availability::OnOff { fraction, mean: s(1_000) };
    scenario
}
fn used(outcome: &RunOutcome) -> f64 {
    secs(outcome.used[ResourceType::Cpu])
}

#[test]
fn time_off_stops_jobs() {
    let outcome = simulate(&available(0.2), "CS2_WF2_WS2_JC2");
    let full = 2.0 * 30.0 * 86_400.0;
    assert!(used(&outcome) / full < 0.22, "{}", used(&outcome) / full);
    assert!((used(&outcome) - 2.0 * secs(outcome.host_on)).abs() < 1.0, "and only that");
}

#[test]
fn the_true_size_decides_when_a_job_ends_and_the_estimate_what_is_believed() {
    let mut scenario = tiny(1, 1_000, DAY * 4);
    application(&mut scenario).estimated_flops = Flops::new(4e12).unwrap();
    let with = |policy| simulate(&scenario, policy);
    let (jc1, jc2) = (with("CS2_WF2_WS1_JC1"), with("CS2_WF2_WS1_JC2"));
    for outcome in [&jc1, &jc2] {
        let timeline = outcome.timeline.as_ref().unwrap();
        let first = timeline.spans.iter().find(|span| span.job == 0).unwrap();
        assert_eq!(secs(first.to - first.from), 1_000.0);
    }
    // Only the correction learns that a buffer takes four times as many jobs.
    assert!((jc2.projects[0].correction - 0.25).abs() < 0.02, "{}", jc2.projects[0].correction);
    assert!(jc2.mean_queue > 1.5 * jc1.mean_queue, "{} {}", jc2.mean_queue, jc1.mean_queue);
}

#[test]
fn with_perfect_estimates_the_correction_factor_settles_at_1() {
    for fraction in [1.0, 0.5] {
        let outcome = simulate(&available(fraction), "CS2_WF2_WS2_JC2");
        assert!((outcome.projects[0].correction - 1.0).abs() < 1e-6, "{}", outcome.projects[0].correction);
    }
}

#[test]
fn a_job_takes_its_own_length_and_no_rounding_counts_as_work() {
    let mut scenario = tiny(2, 1, DAY * 5);
    application(&mut scenario).true_flops.mean = Flops::new(1234.567e9).unwrap();
    application(&mut scenario).estimated_flops = Flops::new(1234.567e9).unwrap();
    let outcome = simulate(&scenario, "CS2_WF2_WS2_JC2");
    let spans = outcome.timeline.as_ref().unwrap().spans.iter();
    let whole: Vec<_> = spans.filter(|span| span.to < scenario.duration).collect();
    assert!(whole.iter().all(|span| span.to - span.from == Duration::from_micros(1_234_567_000)));
    assert_eq!(whole.len(), 2 * (5.0 * 86_400.0_f64 / 1_234.567).floor() as usize);
}

#[test]
fn every_project_is_asked_at_the_beginning_however_long_the_queue() {
    let mut scenario = tiny(2, 3_600, DAY * 3);
    scenario.client.buffer.min = DAY * 4;
    scenario.projects = ["a", "b", "c", "d"].into_iter().map(|name| project(name, 3_600)).collect();
    let outcome = simulate(&scenario, "CS2_WF2_WS1_JC2");
    let first_day = outcome.timeline.as_ref().unwrap().spans.iter().filter(|span| span.from < DAY);
    let mut seen = [false; 4];
    first_day.for_each(|span| seen[span.project] = true);
    assert_eq!(seen, [true; 4]);
    assert!(outcome.figures.share_violation.unwrap() < 0.15, "{:?}", outcome.figures);
}

#[test]
fn a_project_that_is_up_more_often_fails_less_often() {
    let failed = |fraction| {
        let mut scenario = tiny(2, 3_600, DAY * 80);
        let fraction = Fraction::clamped(fraction);
        scenario.projects[0].available = Availability::OnOff { fraction, mean: HOUR * 20 };
        let outcome = simulate(&scenario, "CS2_WF2_WS1_JC2");
        outcome.rpcs_failed as f64 / outcome.rpcs as f64
    };
    let (seldom, hardly) = (failed(0.9), failed(0.99));
    assert!(seldom < 0.2 && hardly < 0.05 && hardly < seldom / 2.0, "{seldom} {hardly}");
}

/// Two projects whose jobs take an hour and are due in a day; on the second day one of them is down.
fn one_down(outage: bool) -> Scenario {
    let mut scenario = tiny(2, 3_600, DAY * 3);
    scenario.projects = ["a", "b"].into_iter().map(|name| project(name, 3_600)).collect();
    scenario.projects.iter_mut().for_each(|project| project.applications[0].latency_bound = HOUR * 12);
    let change = |hours, on| TraceChange { at: HOUR * hours, on };
    let changes = vec![change(0, true), change(24, false), change(48, true)];
    let down = Availability::Trace(Trace { file: "down.csv".into(), changes, end: None });
    match outage {
        true => {
            scenario.outages =
                vec![OutageModel { name: "net".into(), projects: Vec::new(), available: down }];
        }
        false => scenario.projects[0].available = down,
    }
    scenario
}

#[test]
fn r5_31_a_report_waits_while_its_project_is_down_and_the_job_is_late_by_then() {
    let outcome = simulate(&one_down(false), "CS2_WF2_WS1_JC2");
    let reported = |job: &EndedJob| job.reported.filter(|_| job.project == 0);
    let of_a = || outcome.timeline.as_ref().unwrap().outcomes.iter().filter(|job| job.project == 0);
    assert!(of_a().filter_map(reported).all(|at| !(DAY..DAY * 2).contains(&at)), "nobody took reports");
    let late: Vec<&EndedJob> = of_a().filter(|job| !job.met).collect();
    let waited = |job: &&EndedJob| job.sent < DAY && job.deadline < DAY * 2 && job.reported >= Some(DAY * 2);
    assert!(late.iter().filter(|job| waited(job)).count() >= 2, "{late:?}");
    assert_eq!(outcome.projects[0].jobs_late, late.len() as u64);
    assert!(outcome.figures.waste.unwrap() > 0.0);
}

#[test]
fn r5_11_an_outage_takes_all_projects_away_that_depend_on_it_at_the_same_times() {
    let reported = |scenario: &Scenario| {
        let jobs = simulate(scenario, "CS2_WF2_WS1_JC2").timeline.unwrap().outcomes;
        [0, 1].map(|project| {
            let mut own = jobs.iter().filter(|job| job.project == project);
            own.any(|job| job.reported.is_some_and(|at| (DAY + HOUR..DAY * 2).contains(&at)))
        })
    };
    let mut scenario = one_down(true);
    assert_eq!(reported(&scenario), [false, false], "all depend on it");
    scenario.outages[0].projects = vec!["b".into()];
    assert_eq!(reported(&scenario), [true, false]);
}

#[test]
fn time_off_is_no_capacity() {
    let outcome = simulate(&available(0.2), "CS2_WF2_WS2_JC2");
    assert!((secs(outcome.capacity[ResourceType::Cpu]) - 2.0 * secs(outcome.host_on)).abs() < 1e-3);
    assert!(outcome.figures.idleness.unwrap() < 0.01, "{:?}", outcome.figures);
}

#[test]
fn a_late_job_that_is_never_reported_is_waste() {
    let mut scenario = tiny(1, 40_000, s(30_000));
    application(&mut scenario).latency_bound = s(20_000);
    let outcome = simulate(&scenario, "CS2_WF2_WS1_JC2");
    assert_eq!((outcome.jobs_finished, outcome.jobs_late >= 1), (0, true));
    assert_eq!(outcome.figures.waste, Some(1.0));
    assert_eq!(outcome.timeline.unwrap().outcomes[0].reported, None);
}

#[test]
fn share_violation_stays_within_its_bounds() {
    let mut scenario = tiny(1, 3_600, DAY * 3);
    scenario.projects = vec![project("a", 3_600), project("b", 3_600)];
    // One that never answers owes nobody, and one that has nothing to send neither.
    scenario.projects[1].applications[0].jobs = Some(0);
    let outcome = simulate(&scenario, "CS2_WF2_WS2_JC2");
    assert!(outcome.figures.share_violation.unwrap() < 0.01, "{:?}", outcome.figures);
    let mut worst = Scenario { duration: DAY, ..Scenario::mix(3) };
    worst.client.buffer.min = DAY * 10;
    let violation = simulate(&worst, "CS1_WF1_WS1_JC1").figures.share_violation.unwrap();
    assert!((0.0..=1.0).contains(&violation));
}

/// The client hears of what its tasks did in the end before the host is off only when it is on again.
#[test]
fn r5_32_what_was_used_before_the_host_went_off_violates_no_share() {
    let scenario = Scenario { duration: DAY * 40, ..Scenario::mix(3) };
    let outcome = simulate(&scenario, "CS2_WF1_WS2_JC2");
    assert!(outcome.host_on < DAY * 36);
    // WF1 holds jobs of all projects all the time, and CS2 gives each of them its share.
    assert!(outcome.figures.share_violation.unwrap() < 0.005, "{:?}", outcome.figures);
}

#[test]
fn finished_jobs_are_freed() {
    let outcome = simulate(&tiny(4, 3_600, DAY * 20), "CS2_WF2_WS2_JC2");
    assert!(outcome.jobs_finished > 1_900);
    // No more are held than the buffer takes.
    assert!(outcome.mean_queue < 50.0, "{}", outcome.mean_queue);
}
