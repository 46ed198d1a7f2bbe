//! That no project is forgotten: random hosts and projects over thirty days, under the default policies.

use std::num::NonZeroU32;

use fallow_domain::{Duration, Flops, Fraction, Share};
use fallow_emulator::engine::{RunOptions, run};
use fallow_emulator::scenario::{
    ApplicationModel, Availability, Estimate, ProjectModel, Scenario, TrueFlops, Uses,
};
use fallow_policy::composition::Composition;
use proptest::prelude::*;

use crate::engine_runs::{DAY, project, simulate, tiny};

/// The least part of what its share says that a project is to get.
const LEAST: f64 = 0.25;

/// On always, or for this part of the time, with so many minutes off at a time.
fn any_hours(least: f64) -> impl Strategy<Value = Availability> {
    let on_and_off = (least..0.95, 20_i64..1_440).prop_map(|(fraction, minutes)| Availability::OnOff {
        fraction: Fraction::clamped(fraction),
        mean: Duration::from_mins(minutes),
    });
    prop_oneof![1 => Just(Availability::Always), 2 => on_and_off]
}

/// A project with jobs without end: of a quarter of an hour to six hours on some CPUs, with estimates up to
/// four times too long or too short. They have five times as long as a host needs that is on for so little
/// of the time as any here, and four days.
fn any_project(cpus: u32) -> impl Strategy<Value = ProjectModel> {
    let job = (900.0..21_600.0_f64, 0.25..4.0_f64, 0.0..0.5_f64, 5.0..40.0_f64);
    let wide = prop_oneof![4 => Just(1.0), 1 => Just(f64::from(cpus)), 1 => Just(0.5)];
    let share = prop_oneof![Just(25.0), Just(100.0), Just(300.0)];
    (job, wide, share, any_hours(0.6)).prop_map(|((secs, wrong, spread, slack), cpus, share, available)| {
        let size = |secs: f64| Flops::new(secs * 1e9 * cpus).unwrap_or_default();
        let application = ApplicationModel {
            latency_bound: Duration::from_secs_f64(secs * slack * 2.0) + DAY * 4,
            estimated_flops: size(secs * wrong),
            true_flops: TrueFlops { mean: size(secs), deviation: Flops::default(), log_deviation: spread },
            estimate: Estimate::Fixed,
            uses: Uses { cpus, coprocessor: None },
            checkpoint: Some(Duration::from_mins(5)),
            ..ApplicationModel::of_size("a", size(secs))
        };
        ProjectModel { available, ..ProjectModel::new("p", Share::new(share).unwrap(), application) }
    })
}

fn any_scenario() -> impl Strategy<Value = Scenario> {
    (1_u32..5).prop_flat_map(|cpus| {
        let projects = prop::collection::vec(any_project(cpus), 2..6);
        let interval = prop_oneof![3 => Just(0), 1 => 1_i64..24];
        (projects, any_hours(0.4), interval).prop_map(move |(projects, available, interval)| {
            let mut scenario = Scenario { duration: DAY * 30, ..Scenario::base() };
            scenario.host.cpus = NonZeroU32::new(cpus).unwrap();
            scenario.host.available = available;
            scenario.host.connection_interval = Duration::from_hours(interval);
            scenario.projects = projects;
            for (number, project) in scenario.projects.iter_mut().enumerate() {
                project.name = format!("p{number}");
            }
            scenario
        })
    })
}

#[test]
fn r3_6_under_a_limit_on_cpu_time_a_project_of_a_small_share_gets_its_part() {
    let mut scenario = tiny(2, 1_800, DAY * 4);
    scenario.client.cpu_time_fraction = Fraction::clamped(0.6);
    scenario.projects = [("small", 20.0), ("one", 100.0), ("other", 100.0)]
        .map(|(name, share)| ProjectModel { share: Share::new(share).unwrap(), ..project(name, 1_800) })
        .into();
    for policy in ["default", "published"] {
        let received = simulate(&scenario, policy).projects[0].received.unwrap();
        assert!((received - 20.0 / 220.0).abs() < 0.02, "{policy}: {received:.3}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn r3_9_over_thirty_days_no_project_with_a_share_starves_under_the_default(
        scenario in any_scenario(), seed in 1_u64..1_000,
    ) {
        let outcome = run(&scenario, Composition::default(), seed, RunOptions::default());
        let shares: f64 = scenario.projects.iter().map(|project| project.share.get()).sum();
        for (project, model) in outcome.projects.iter().zip(&scenario.projects) {
            let (received, due) = (project.received.unwrap_or_default(), model.share.get() / shares);
            prop_assert!(received >= LEAST * due, "{}: {received:.3} of {due:.3}, seed {seed}\nBEGIN\n{}END", project.name, scenario.to_toml());
        }
    }
}
