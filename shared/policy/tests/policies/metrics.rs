//! R5.30 to R5.34.

use std::collections::BTreeMap;

use fallow_domain::{Duration, Fraction, Instant, ProjectId};
use fallow_policy::job_queue::Cpus;
use fallow_policy::metrics::{Fate, Figures, Metrics, ProjectStretch, Stretch, Window, cpus_switched};
use proptest::prelude::*;

use crate::world::{PERIOD, at_min};

const HOUR: Duration = Duration::from_hours(1);

fn project(id: u32, share: f64, used: Duration, could_use: u32) -> ProjectStretch {
    let could_use = Cpus::whole(could_use);
    ProjectStretch { project: ProjectId(id), share: crate::world::share(share), used, could_use }
}

fn stretch(
    from: Instant,
    to: Instant,
    available: u32,
    starved: u32,
    projects: &[ProjectStretch],
) -> Stretch<'_> {
    Stretch {
        from,
        to,
        available: Cpus::whole(available),
        starved: Cpus::whole(starved),
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
    metrics.observe(&stretch(at_min(0), at_min(60), 4, 1, &[]));
    metrics.observe(&stretch(at_min(60), at_min(120), 4, 0, &[]));
    // Two hours off do not count.
    metrics.observe(&stretch(at_min(120), at_min(240), 0, 0, &[]));
    assert!(near(day(&metrics, at_min(240)).idleness, 1.0 / 8.0));
}

#[test]
fn r5_31_waste_is_the_time_spent_on_jobs_that_missed_their_deadline() {
    let mut metrics = Metrics::default();
    metrics.job_settled(at_min(0), HOUR * 6, Fate::InTime);
    metrics.job_settled(at_min(1), HOUR * 2, Fate::Missed);
    assert!(near(day(&metrics, at_min(2)).waste, 0.25));
    // A late job that is not reported counts as well.
    assert!(near(metrics.figures(Window::Day, at_min(2), HOUR * 4).waste, 0.5));
}

#[test]
fn r5_32_share_violation_is_half_the_sum_of_distances_from_what_is_due() {
    let one = |a: (f64, i64, u32), b: (f64, i64, u32)| {
        let mut metrics = Metrics::default();
        let projects = [project(1, a.0, HOUR * a.1, a.2), project(2, b.0, HOUR * b.1, b.2)];
        metrics.observe(&stretch(at_min(0), at_min(60), 4, 0, &projects));
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

#[test]
fn r5_33_monotony_compares_switches_made_with_switches_possible() {
    let figure = |switches: f64, shares: &[f64]| {
        let mut metrics = Metrics::default();
        let used = HOUR * 10 / shares.len() as i64;
        let projects: Vec<_> = (1..).zip(shares).map(|(id, share)| project(id, *share, used, 9)).collect();
        metrics.observe(&stretch(at_min(0), at_min(600), 1, 0, &projects));
        metrics.switched(at_min(30), switches);
        day(&metrics, at_min(600)).monotony
    };
    // One CPU, ten hours, a period of one hour: ten switches are possible.
    assert!(near(figure(10.0, &[50.0, 50.0]), 0.0));
    assert!(near(figure(4.0, &[50.0, 50.0]), 0.6));
    assert!(near(figure(0.0, &[50.0, 50.0]), 1.0));
    assert!(near(figure(99.0, &[50.0, 50.0]), 0.0));
    assert!(near(figure(0.0, &[50.0]), 0.0), "with one project it is 0");
}

#[test]
fn r5_33_a_switch_is_a_cpu_that_goes_from_one_project_to_another() {
    let cpus =
        |rows: &[(u32, f64)]| rows.iter().map(|(id, n)| (ProjectId(*id), *n)).collect::<BTreeMap<_, _>>();
    assert_eq!(cpus_switched(&cpus(&[(1, 2.0)]), &cpus(&[(1, 1.0), (2, 1.0)])), 1.0);
    assert_eq!(cpus_switched(&cpus(&[(1, 2.0)]), &cpus(&[(1, 2.0), (2, 1.0)])), 0.0, "it was idle");
    assert_eq!(cpus_switched(&cpus(&[(1, 2.0), (2, 1.0)]), &cpus(&[(2, 1.0)])), 0.0, "it idles now");
}

#[test]
fn r5_34_windows_of_a_day_a_week_and_a_month_forget_what_is_older() {
    let mut metrics = Metrics::default();
    let hour = 60;
    metrics.observe(&stretch(at_min(0), at_min(hour), 1, 1, &[]));
    metrics.rpc_made(at_min(5));
    metrics.rpc_made(at_min(6));
    metrics.job_settled(at_min(7), HOUR, Fate::InTime);
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
fn r5_34_the_history_survives_being_stored_and_stays_small() {
    let mut metrics = Metrics::default();
    for minute in 0..60_000 {
        let projects = [project(1, 75.0, HOUR / 80, 2), project(2, 25.0, HOUR / 240, 2)];
        metrics.observe(&stretch(at_min(minute), at_min(minute + 1), 1, 0, &projects));
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
    metrics.observe(&stretch(at_min(0), far, 1, 1, &[]));
    metrics.observe(&stretch(far, at_min(0), 1, 1, &[]));
    metrics.observe(&stretch(at_min(0), at_min(60), 1, 0, &[]));
    assert!(near(day(&metrics, at_min(60)).idleness, 0.0), "what lies in the future is forgotten");
}

#[test]
fn histories_of_several_hosts_can_be_merged() {
    let (mut a, mut b) = (Metrics::default(), Metrics::default());
    a.observe(&stretch(at_min(0), at_min(60), 3, 0, &[]));
    b.observe(&stretch(at_min(0), at_min(60), 1, 1, &[]));
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
        once.observe(&stretch(at_min(0), at_min(600), 2, starved, &whole));
        for pair in cuts.windows(2) {
            let part = row(pair[1] - pair[0]);
            often.observe(&stretch(at_min(pair[0]), at_min(pair[1]), 2, starved, &part));
        }
        let (once, often) = (day(&once, at_min(600)), day(&often, at_min(600)));
        let close = |a: Option<Fraction>, b: Option<Fraction>| match (a, b) {
            (Some(a), Some(b)) => (a.get() - b.get()).abs() < 1e-3,
            (a, b) => a == b,
        };
        prop_assert!(close(once.idleness, often.idleness));
        prop_assert!(close(once.share_violation, often.share_violation));
        prop_assert!(close(once.monotony, often.monotony));
    }
}
