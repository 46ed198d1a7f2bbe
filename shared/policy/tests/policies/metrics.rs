//! R5.30 to R5.35.

use fallow_domain::{Duration, Fraction, Instant, PerType, ProjectId, ResourceType};
use fallow_policy::metrics::{DeadlineOutcome, Figures, Metrics, Observation, ProjectObservation, Window};
use proptest::prelude::*;

use ResourceType::Nvidia;

use crate::world::{PERIOD, at_min};

const HOUR: Duration = Duration::from_hours(1);

fn project(id: u32, share: f64, used: Duration, could_use: u32) -> ProjectObservation {
    ProjectObservation {
        project: ProjectId(id),
        share: crate::world::share(share),
        used: PerType::cpu(used),
        running: used.is_positive(),
        could_use: PerType::cpu(f64::from(could_use)),
        could_get: PerType::cpu(f64::from(could_use)),
    }
}

fn observation(
    from: Instant,
    to: Instant,
    available: u32,
    starved: u32,
    projects: &[ProjectObservation],
) -> Observation<'_> {
    Observation {
        from,
        to,
        available: PerType::cpu(available),
        starved: PerType::cpu(f64::from(starved)),
        speeds: PerType::cpu(1.0),
        throttled: Duration::ZERO,
        scheduling_period: PERIOD,
        projects,
    }
}

fn day(metrics: &Metrics, now: Instant) -> Figures {
    metrics.figures(Window::Day, now, Duration::ZERO)
}

fn near(figure: Option<Fraction>, expected: f64) -> bool {
    figure.is_some_and(|figure| (figure.get() - expected).abs() < 1e-9)
}

#[test]
fn r5_30_idleness_is_the_available_time_without_a_runnable_job() {
    let mut metrics = Metrics::default();
    assert_eq!(day(&metrics, at_min(0)), Figures::default());
    metrics.observe(&observation(at_min(0), at_min(60), 4, 1, &[]));
    metrics.observe(&observation(at_min(60), at_min(120), 4, 0, &[]));
    // Two hours off do not count.
    metrics.observe(&observation(at_min(120), at_min(240), 0, 0, &[]));
    assert!(near(day(&metrics, at_min(240)).idleness, 1.0 / 8.0));
}

#[test]
fn r5_31_waste_is_the_time_spent_on_jobs_that_missed_their_deadline() {
    let mut metrics = Metrics::default();
    metrics.job_settled(at_min(0), HOUR * 6, DeadlineOutcome::Met);
    metrics.job_settled(at_min(1), HOUR * 2, DeadlineOutcome::Missed);
    assert!(near(day(&metrics, at_min(2)).waste, 0.25));
    // A late job that is not reported counts as well.
    assert!(near(metrics.figures(Window::Day, at_min(2), HOUR * 4).waste, 0.5));
}

#[test]
fn r5_32_share_violation_is_half_the_sum_of_distances_from_what_is_due() {
    let one = |a: (f64, i64, u32), b: (f64, i64, u32)| {
        let mut metrics = Metrics::default();
        let projects = [project(1, a.0, HOUR * a.1, a.2), project(2, b.0, HOUR * b.1, b.2)];
        metrics.observe(&observation(at_min(0), at_min(60), 4, 0, &projects));
        day(&metrics, at_min(60)).share_violation
    };
    assert!(near(one((75.0, 3, 9), (25.0, 1, 9)), 0.0));
    assert!(near(one((75.0, 1, 9), (25.0, 3, 9)), 0.5));
    assert!(near(one((50.0, 4, 9), (50.0, 0, 9)), 0.5));
    assert!(near(one((0.0, 4, 9), (50.0, 0, 9)), 1.0));
    // A project that had nothing to send is owed nothing; one with a single job is due one CPU.
    assert!(near(one((50.0, 4, 9), (50.0, 0, 0)), 0.0));
    assert!(near(one((50.0, 1, 1), (50.0, 3, 9)), 0.0));
}

/// Share violation and share deviation of four CPUs over hours with two projects of equal share: of each hour
/// what both used, and what they could have got.
fn deviation(hours: &[([i64; 2], [u32; 2])]) -> (Option<Fraction>, Option<Fraction>) {
    let mut metrics = Metrics::default();
    for (hour, (used, could_get)) in (0..).zip(hours) {
        let row = |place: usize| ProjectObservation {
            could_get: PerType::cpu(f64::from(could_get[place])),
            ..project(place as u32 + 1, 50.0, HOUR * used[place], used[place] as u32)
        };
        let projects = [row(0), row(1)];
        metrics.observe(&observation(at_min(hour * 60), at_min(hour * 60 + 60), 4, 0, &projects));
    }
    let figures = metrics.figures(Window::Whole, at_min(hours.len() as i64 * 60), Duration::ZERO);
    (figures.share_violation, figures.share_deviation)
}

#[test]
fn r5_35_a_project_that_is_sent_no_work_is_owed_its_part_unless_it_is_known_to_have_none() {
    // By the work at hand nothing is wrong with any of them.
    for (hours, expected) in [
        (&[([2, 2], [4, 4])][..], 0.0),
        (&[([4, 0], [4, 4])], 0.5),
        (&[([4, 0], [4, 0])], 0.0),
        // Down for an hour: three quarters of both hours are the other's.
        (&[([2, 2], [4, 4]), ([4, 0], [4, 0])], 0.0),
        // It has one job more when it has no work: one CPU is its.
        (&[([3, 1], [4, 1])], 0.0),
        (&[([4, 0], [4, 1])], 0.25),
        // Hours are made up for.
        (&[([4, 0], [4, 4]), ([0, 4], [4, 4])], 0.0),
        // Idle CPUs are nobody's.
        (&[([1, 1], [4, 4])], 0.0),
        (&[([2, 2], [4, 4]), ([0, 0], [4, 0])], 0.25),
    ] {
        let (violation, deviation) = deviation(hours);
        assert!(near(violation, 0.0) && near(deviation, expected), "{hours:?}: {violation:?} {deviation:?}");
    }
}

#[test]
fn r5_35_what_is_due_by_supply_is_a_part_of_the_whole_speed_and_time_off_is_nobodys() {
    let figure = |gpu_minutes_of_a: i64, gpu_of_b: f64| {
        let mut metrics = Metrics::default();
        let mut a = project(1, 50.0, Duration::ZERO, 0);
        let mut b = project(2, 50.0, HOUR, 1);
        a.used[Nvidia] = Duration::from_mins(gpu_minutes_of_a);
        b.used[Nvidia] = Duration::from_mins(60 - gpu_minutes_of_a);
        (a.could_get[Nvidia], b.could_get[Nvidia]) = (1.0, gpu_of_b);
        let projects = [a, b];
        let mut observed = observation(at_min(0), at_min(60), 1, 0, &projects);
        (observed.available[Nvidia], observed.speeds[Nvidia]) = (1, 2.0);
        metrics.observe(&observed);
        let off = [1, 2].map(|id| project(id, 50.0, Duration::ZERO, 9));
        metrics.observe(&observation(at_min(60), at_min(600), 0, 0, &off));
        day(&metrics, at_min(600)).share_deviation
    };
    // Three CPUs' worth: half of it is 45 minutes of the GPU, if the other has the CPU and could have the
    // GPU.
    assert!(near(figure(45, 1.0), 0.0));
    assert!(near(figure(60, 1.0), 1.0 / 6.0));
    assert!(near(figure(60, 0.0), 0.0));
}

#[test]
fn r5_35_to_a_project_without_a_share_is_due_what_it_uses_while_the_others_have_no_work() {
    let figure = |used_by_a: i64, a_could_get: f64, used_by_z: i64| {
        let mut metrics = Metrics::default();
        let a = ProjectObservation {
            could_get: PerType::cpu(a_could_get),
            ..project(1, 50.0, HOUR * used_by_a, used_by_a as u32)
        };
        let z = ProjectObservation { could_get: PerType::cpu(4.0), ..project(2, 0.0, HOUR * used_by_z, 4) };
        for hour in 0..3 {
            metrics.observe(&observation(at_min(hour * 60), at_min(hour * 60 + 60), 4, 0, &[a, z]));
        }
        day(&metrics, at_min(180)).share_deviation
    };
    assert!(near(figure(4, 4.0, 0), 0.0) && near(figure(1, 1.0, 3), 0.0));
    assert!(near(figure(1, 1.0, 0), 0.0), "nobody owes it anything");
    assert!(near(figure(2, 4.0, 2), 0.5), "it took what the other could have had");
}

#[test]
fn r5_35_in_a_history_stored_before_there_was_supply_what_was_due_by_work_stands_in() {
    let old =
        r#"{"hours": {"500000": {"parts": {"1": {"got": 3.0, "due": 2.0}, "2": {"got": 1.0, "due": 2.0}}}}}"#;
    let metrics: Metrics = serde_json::from_str(old).unwrap();
    let figures = day(&metrics, Instant::from_secs_f64(500_000.5 * 3_600.0));
    assert!(near(figures.share_violation, 0.25) && near(figures.share_deviation, 0.25));
    let stored = serde_json::to_string(&metrics).unwrap();
    let again: Metrics = serde_json::from_str(&stored).unwrap();
    assert_eq!(day(&again, Instant::from_secs_f64(500_000.5 * 3_600.0)), figures);
}

/// Runs projects of these shares in turns of so many minutes on one CPU, for thirty days.
fn in_turns(shares: &[f64], turns: &[(u32, i64)], cpu: Duration) -> f64 {
    let mut metrics = Metrics::default();
    let mut minute = 0;
    while minute < 30 * 24 * 60 {
        for (running, minutes) in turns {
            let row = |(id, share): (u32, &f64)| {
                let used = if id == *running { cpu } else { Duration::ZERO };
                ProjectObservation { running: id == *running, ..project(id, *share, used, 9) }
            };
            let projects: Vec<_> = (1..).zip(shares).map(row).collect();
            metrics.observe(&observation(at_min(minute), at_min(minute + minutes), 1, 0, &projects));
            minute += minutes;
        }
    }
    metrics.figures(Window::Whole, at_min(minute), Duration::ZERO).monotony.map_or(f64::NAN, Fraction::get)
}

#[test]
fn r5_33_monotony_is_0_if_the_host_switches_as_often_as_possible_and_1_if_it_never_does() {
    assert_eq!(in_turns(&[50.0, 50.0], &[(1, 60), (2, 60)], HOUR), 0.0);
    assert_eq!(in_turns(&[75.0, 25.0], &[(1, 60), (1, 60), (1, 60), (2, 60)], HOUR), 0.0);
    assert_eq!(in_turns(&[1.0, 1.0, 1.0], &[(1, 60), (2, 60), (3, 60)], HOUR), 0.0);
    // Ten hours at a time: nine of each absence are not necessary.
    assert!((in_turns(&[50.0, 50.0], &[(1, 600), (2, 600)], HOUR) - 0.9).abs() < 0.01);
    assert!(in_turns(&[50.0, 50.0], &[(1, 60)], HOUR) > 0.99, "it never switches");
    assert_eq!(in_turns(&[50.0], &[(1, 60)], HOUR), 0.0, "with one project it is 0");
    assert_eq!(in_turns(&[50.0, 0.0], &[(1, 60)], HOUR), 0.0, "a project without a share is not missed");
}

#[test]
fn r5_33_monotony_does_not_depend_on_how_contended_the_cpus_are() {
    let turns = [(1, 600), (2, 600)];
    let calm = in_turns(&[50.0, 50.0], &turns, HOUR);
    assert_eq!(in_turns(&[50.0, 50.0], &turns, Duration::from_secs(60)), calm);
}

#[test]
fn r5_33_two_projects_with_a_cpu_each_need_no_switches() {
    let mut metrics = Metrics::default();
    let projects = [project(1, 50.0, HOUR * 10, 9), project(2, 50.0, HOUR * 10, 9)];
    metrics.observe(&observation(at_min(0), at_min(600), 2, 0, &projects));
    assert!(near(day(&metrics, at_min(600)).monotony, 0.0));
}

#[test]
fn r5_33_time_off_makes_no_absence_longer() {
    let mut metrics = Metrics::default();
    for turn in 0..20 {
        let row = |id| {
            let running = id == turn % 2 + 1;
            let used = if running { HOUR } else { Duration::ZERO };
            ProjectObservation { running, ..project(id, 50.0, used, 9) }
        };
        let begins = i64::from(turn) * 600;
        metrics.observe(&observation(at_min(begins), at_min(begins + 60), 1, 0, &[row(1), row(2)]));
        let off = [1, 2].map(|id| project(id, 50.0, Duration::ZERO, 9));
        metrics.observe(&observation(at_min(begins + 60), at_min(begins + 600), 0, 0, &off));
    }
    let whole = metrics.figures(Window::Whole, at_min(12_000), Duration::ZERO);
    assert!(near(whole.monotony, 0.0));
}

#[test]
fn r5_30_types_count_by_their_speed() {
    let mut metrics = Metrics::default();
    let mut observed = observation(at_min(0), at_min(60), 2, 0, &[]);
    (observed.available[Nvidia], observed.speeds[Nvidia], observed.starved[Nvidia]) = (1, 8.0, 1.0);
    metrics.observe(&observed);
    assert!(near(day(&metrics, at_min(60)).idleness, 0.8));
}

#[test]
fn r5_32_with_a_gpu_what_is_due_is_the_fair_division_of_the_whole_speed() {
    let figure = |gpu_minutes_of_a: i64| {
        let mut metrics = Metrics::default();
        let mut a = project(1, 50.0, Duration::ZERO, 0);
        let mut b = project(2, 50.0, HOUR, 9);
        a.used[Nvidia] = Duration::from_mins(gpu_minutes_of_a);
        b.used[Nvidia] = Duration::from_mins(60 - gpu_minutes_of_a);
        (a.could_use[Nvidia], b.could_use[Nvidia]) = (9.0, 9.0);
        let projects = [a, b];
        let mut observed = observation(at_min(0), at_min(60), 1, 0, &projects);
        (observed.available[Nvidia], observed.speeds[Nvidia]) = (1, 2.0);
        metrics.observe(&observed);
        day(&metrics, at_min(60)).share_violation
    };
    assert!(near(figure(45), 0.0));
    assert!(near(figure(60), 1.0 / 6.0));
    assert!(near(figure(0), 0.5));
}

#[test]
fn r5_34_windows_of_a_day_a_week_and_a_month_forget_what_is_older() {
    let mut metrics = Metrics::default();
    let hour = 60;
    metrics.observe(&observation(at_min(0), at_min(hour), 1, 1, &[]));
    metrics.rpc_made(at_min(5));
    metrics.rpc_made(at_min(6));
    metrics.job_settled(at_min(7), HOUR, DeadlineOutcome::Met);
    let now = |days: i64| at_min(days * 24 * hour);
    assert_eq!(metrics.figures(Window::Day, now(0) + HOUR, Duration::ZERO).rpcs_per_job, Some(2.0));
    for (window, days, seen) in [
        (Window::Day, 2, false),
        (Window::Week, 2, true),
        (Window::Week, 9, false),
        (Window::Month, 9, true),
        (Window::Month, 40, false),
    ] {
        let figures = metrics.figures(window, now(days), Duration::ZERO);
        assert_eq!(figures.idleness.is_some(), seen, "{window:?} after {days} days");
    }
}

#[test]
fn r5_34_the_whole_history_is_summed_as_well() {
    let mut metrics = Metrics::default();
    for hour in 0..24 * 400 {
        let starved = u32::from(hour < 24 * 100);
        metrics.observe(&observation(at_min(hour * 60), at_min(hour * 60 + 60), 1, starved, &[]));
        metrics.rpc_made(at_min(hour * 60));
        metrics.job_settled(at_min(hour * 60 + 30), HOUR, DeadlineOutcome::Met);
    }
    let whole = metrics.figures(Window::Whole, at_min(24 * 400 * 60), Duration::ZERO);
    assert!(near(whole.idleness, 0.25));
    assert_eq!(whole.rpcs_per_job, Some(1.0));
}

#[test]
fn r5_34_a_history_stored_before_there_were_types_is_read() {
    let old = r#"{"hours": {"500000": {"available": 3600.0, "starved": 900.0, "throttled": 0.0,
        "parts": {"1": {"got": 2700.0, "due": 2700.0}}, "settled": 100.0, "missed": 50.0, "jobs": 2.0, "rpcs": 3.0,
        "switches": 1.0, "switches_possible": 2.0}}, "days": {}}"#;
    let metrics: Metrics = serde_json::from_str(old).unwrap();
    let now = Instant::from_secs_f64(500_000.5 * 3_600.0);
    let figures = day(&metrics, now);
    assert!(near(figures.idleness, 0.25) && near(figures.waste, 0.5) && near(figures.share_violation, 0.0));
}

#[test]
fn r5_34_the_history_survives_being_stored_and_stays_small() {
    let mut metrics = Metrics::default();
    for minute in 0..60_000 {
        let projects = [project(1, 75.0, HOUR / 80, 2), project(2, 25.0, HOUR / 240, 2)];
        metrics.observe(&observation(at_min(minute), at_min(minute + 1), 1, 0, &projects));
    }
    let stored = serde_json::to_string(&metrics).unwrap();
    assert!(stored.len() < 30_000, "{}", stored.len());
    let restored: Metrics = serde_json::from_str(&stored).unwrap();
    let (a, b) = (day(&metrics, at_min(60_000)), day(&restored, at_min(60_000)));
    assert!(near(a.share_violation, 0.0) && near(b.share_violation, 0.0));
}

#[test]
fn r1_12_clock_jumps_neither_hang_nor_spoil_the_history() {
    let mut metrics = Metrics::default();
    let far = at_min(0) + Duration::from_hours(24 * 365 * 100);
    metrics.observe(&observation(at_min(0), far, 1, 1, &[]));
    metrics.observe(&observation(far, at_min(0), 1, 1, &[]));
    metrics.observe(&observation(at_min(0), at_min(60), 1, 0, &[]));
    assert!(near(day(&metrics, at_min(60)).idleness, 0.0), "what lies in the future is forgotten");
}

#[test]
fn histories_of_several_hosts_can_be_merged() {
    let (mut a, mut b) = (Metrics::default(), Metrics::default());
    a.observe(&observation(at_min(0), at_min(60), 3, 0, &[]));
    b.observe(&observation(at_min(0), at_min(60), 1, 1, &[]));
    a.merge(&b);
    assert!(near(day(&a, at_min(60)).idleness, 0.25));
}

proptest! {
    #[test]
    fn the_figures_do_not_depend_on_how_a_stretch_is_cut(
        cuts in prop::collection::vec(1_i64..599, 0..20), used in 0_i64..600, starved in 0_u32..2,
    ) {
        let row = |minutes: i64| [
            project(1, 60.0, Duration::from_secs(used * minutes / 10), 2),
            project(2, 40.0, Duration::from_secs(60 * minutes), 2),
        ];
        let mut cuts = cuts;
        cuts.extend([0, 600]);
        cuts.sort_unstable();
        let (mut once, mut often) = (Metrics::default(), Metrics::default());
        let whole = row(600);
        once.observe(&observation(at_min(0), at_min(600), 2, starved, &whole));
        for pair in cuts.windows(2) {
            let part = row(pair[1] - pair[0]);
            often.observe(&observation(at_min(pair[0]), at_min(pair[1]), 2, starved, &part));
        }
        let (once, often) = (day(&once, at_min(600)), day(&often, at_min(600)));
        let close = |a: Option<Fraction>, b: Option<Fraction>| match (a, b) {
            (Some(a), Some(b)) => (a.get() - b.get()).abs() < 1e-3,
            (a, b) => a == b,
        };
        prop_assert!(close(once.idleness, often.idleness));
        prop_assert!(close(once.share_violation, often.share_violation));
        prop_assert!(close(once.share_deviation, often.share_deviation));
        prop_assert!(close(once.monotony, often.monotony));
    }
}
