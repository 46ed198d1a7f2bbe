//! Runs with several hosts, which share the projects.

use std::num::NonZeroU32;

use fallow_domain::{Duration, Fraction, ResourceType};
use fallow_emulator::engine::{RunOptions, RunOutcome, run};
use fallow_emulator::scenario::{Availability, QueuedJob, QueuedState, Scenario, Trace, TraceChange};
use fallow_policy::composition::Composition;

use super::engine_runs::{DAY, HOUR, application, s, secs, simulate, tiny};

/// So many hosts that are always on, with one CPU each, and jobs of so many seconds.
fn fleet(hosts: u32, job: i64, duration: Duration) -> Scenario {
    Scenario { hosts: NonZeroU32::new(hosts).unwrap(), ..tiny(1, job, duration) }
}

fn comes_and_goes(scenario: &mut Scenario) {
    scenario.host.available = Availability::OnOff { fraction: Fraction::clamped(0.8), mean: s(1_000) };
}

fn sent(outcome: &RunOutcome) -> Vec<u64> {
    outcome.hosts.iter().map(|host| host.jobs_sent).collect()
}

#[test]
fn r5_12_a_fleet_does_the_same_from_the_same_seed_and_each_host_has_luck_of_its_own() {
    let mut scenario = fleet(7, 3_000, DAY * 3);
    comes_and_goes(&mut scenario);
    application(&mut scenario).failure = Fraction::clamped(0.1);
    let once = |seed| {
        let options = RunOptions { timeline: true, ..RunOptions::default() };
        run(&scenario, Composition::default(), seed, options)
    };
    let first = once(1);
    assert_eq!(format!("{first:?}"), format!("{:?}", once(1)));
    assert_ne!(format!("{first:?}"), format!("{:?}", once(2)));
    let mut on: Vec<Duration> = first.hosts.iter().map(|host| host.on).collect();
    on.sort();
    on.dedup();
    assert_eq!(on.len(), 7, "{on:?}");
    assert_eq!(first.host_on, on.into_iter().sum());
}

#[test]
fn r5_12_a_host_more_changes_nothing_of_when_the_others_are_on() {
    let on = |hosts| {
        let mut scenario = fleet(hosts, 3_000, DAY * 3);
        comes_and_goes(&mut scenario);
        let outcome = simulate(&scenario, "CS2_WF2_WS2_JC2");
        let on: Vec<Duration> = outcome.hosts.iter().map(|host| host.on).collect();
        (on, outcome.timeline.unwrap().off)
    };
    let ((one, alone), (three, _), (five, among)) = (on(1), on(3), on(5));
    assert_eq!((one.as_slice(), three.as_slice()), (&five[..1], &five[..3]));
    assert_eq!(alone, among, "the timeline is the first host's");
}

#[test]
fn r5_11_hosts_take_their_jobs_from_one_supply_and_its_end_is_known() {
    let mut scenario = fleet(3, 1_000, s(20_000));
    application(&mut scenario).jobs = Some(7);
    // So that nobody takes more than one ahead.
    scenario.client.buffer.min = Duration::ZERO;
    scenario.client.buffer.additional = s(1);
    let outcome = simulate(&scenario, "CS2_WF2_WS2_JC2");
    assert_eq!((outcome.jobs_sent, outcome.jobs_finished), (7, 7));
    assert_eq!(sent(&outcome).iter().sum::<u64>(), 7);
    assert!(sent(&outcome).iter().all(|jobs| (2..=3).contains(jobs)), "{:?}", sent(&outcome));
    assert!(outcome.hosts.iter().all(|host| host.jobs_finished == host.jobs_sent));
    // Seven jobs in threes: three rounds, and at once the time at which nothing is left to do.
    let batch = outcome.batch.unwrap();
    assert_eq!(batch.computed, Some(s(3_000)));
    assert!(batch.reported.unwrap() >= s(3_000), "{batch:?}");
    // 7,000 s of 60,000 s are used, by all hosts together.
    assert_eq!(outcome.used[ResourceType::Cpu], s(7_000));
    assert_eq!(outcome.capacity[ResourceType::Cpu], s(60_000));
    let idleness = outcome.figures.idleness.unwrap();
    assert!((idleness - 53.0 / 60.0).abs() < 1e-6, "{idleness}");
}

#[test]
fn r5_11_a_batch_that_is_not_done_has_no_end_and_one_without_bound_is_none() {
    let mut scenario = fleet(2, 1_000, s(1_500));
    application(&mut scenario).jobs = Some(4);
    let unfinished = simulate(&scenario, "CS2_WF2_WS2_JC2").batch.unwrap();
    assert_eq!((unfinished.computed, unfinished.reported), (None, None));
    // Computed, and not reported: that may take an hour.
    scenario.duration = s(4_500);
    let computed = simulate(&scenario, "CS2_WF2_WS2_JC2").batch.unwrap();
    assert_eq!((computed.computed, computed.reported), (Some(s(4_000)), None));
    application(&mut scenario).jobs = None;
    assert_eq!(simulate(&scenario, "CS2_WF2_WS2_JC2").batch, None);
}

#[test]
fn r5_31_the_waste_of_a_fleet_is_that_of_all_its_hosts() {
    let mut scenario = fleet(2, 1_000, s(10_000));
    application(&mut scenario).jobs = Some(3);
    application(&mut scenario).latency_bound = s(1_500);
    // The first host takes all three, of which two are late, as it would alone.
    let outcome = simulate(&scenario, "CS2_WF2_WS1_JC2");
    assert_eq!((sent(&outcome), outcome.jobs_late), (vec![3, 0], 2));
    assert!((outcome.figures.waste.unwrap() - 2.0 / 3.0).abs() < 1e-9, "{:?}", outcome.figures);
}

#[test]
fn r5_11_hosts_with_a_recording_all_follow_it_and_a_server_is_down_for_all_of_them() {
    let mut scenario = fleet(4, 1_000, DAY);
    let trace = |changes: &[(i64, bool)]| {
        let changes = changes.iter().map(|(hour, on)| TraceChange { at: HOUR * *hour, on: *on }).collect();
        Availability::Trace(Trace { file: "t.csv".into(), changes, end: None })
    };
    scenario.host.available = trace(&[(0, true), (20, false)]);
    scenario.projects[0].available = trace(&[(0, true), (10, false)]);
    let outcome = simulate(&scenario, "CS2_WF2_WS2_JC2");
    assert!(outcome.hosts.iter().all(|host| host.on == HOUR * 20));
    // What was reported before it went down is all that ever is.
    assert!(outcome.hosts.iter().all(|host| (20..=36).contains(&host.jobs_finished)), "{:?}", outcome.hosts);
    assert!(outcome.rpcs_failed >= 4, "{}", outcome.rpcs_failed);
}

#[test]
fn r5_11_each_host_holds_what_was_queued() {
    let mut scenario = fleet(3, 1_000, s(20_000));
    application(&mut scenario).jobs = Some(0);
    scenario.projects[0].queue = vec![QueuedJob {
        name: "q".into(),
        application: "p1".into(),
        received: -HOUR,
        deadline: DAY,
        fraction_done: Fraction::clamped(0.5),
        elapsed: s(500),
        remaining: None,
        state: QueuedState::Preempted,
    }];
    let outcome = simulate(&scenario, "CS2_WF2_WS2_JC2");
    assert_eq!((sent(&outcome), outcome.used[ResourceType::Cpu]), (vec![1, 1, 1], s(1_500)));
}

/// On hosts that come and go, as lab machines do. By default nobody bounds what the first to ask may take.
#[test]
fn r6_8_hosts_that_are_on_have_their_parts_of_a_batch_that_is_spread_and_it_ends_far_sooner() {
    let of = |policy: &str, spread| {
        let mut scenario = Scenario { duration: HOUR * 4, ..Scenario::batch300() };
        // A third of it all.
        scenario.hosts = NonZeroU32::new(100).unwrap();
        application(&mut scenario).jobs = Some(2_000);
        scenario.projects[0].spread = spread;
        let outcome = simulate(&scenario, policy);
        assert_eq!(outcome.jobs_sent, 2_000, "{policy} {spread}");
        outcome
    };
    let took = |outcome: &RunOutcome| secs(outcome.batch.unwrap().computed.unwrap());
    let default = of("CS2_WF2_WS2_JC2", false);
    assert_eq!(default.parts().most, 1_000, "two hosts take all that is left after the first jobs");
    for (policy, sooner) in [("CS2_WF2_WS2_JC2", 3.0), ("CS2_WF3_WS3_JC3", 5.0)] {
        let spread = of(policy, true);
        let parts = spread.parts();
        // Some are off until it is all over.
        assert!(parts.with_jobs >= 90 && parts.most <= 60, "{policy}: {parts:?}");
        println!("{policy}: {parts:?}, {} s, by default {} s", took(&spread), took(&default));
        assert!(took(&spread) * sooner < took(&default), "{policy}: {} {}", took(&spread), took(&default));
    }
}
