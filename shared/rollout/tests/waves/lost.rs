//! Hosts that a version switches off are missed, whoever was off before.

use fallow_domain::Duration;
use fallow_rollout::HostNow;

use crate::fleet::{Fleet, SOAK, host, paused, released};
use crate::own_hosts::{at_night, come};

/// 400 machines, of which three of five are on, and the first of which have the version. Those that are off
/// have been so for months.
fn by_day(waves: &str) -> Fleet {
    let hosts: Vec<HostNow> =
        (0..400).map(|number| HostNow { connected: number % 5 < 3, ..host(number) }).collect();
    let mut fleet = Fleet::with(1, waves, hosts);
    fleet.take();
    fleet
}

fn pass(fleet: &mut Fleet) {
    let passed = fleet.watch(SOAK * 2).unwrap();
    fleet.apply(&passed);
    fleet.take();
}

/// So many of ten of those are switched off that are on and in the wave that was released last.
fn switch_off(fleet: &mut Fleet, of_ten: usize) -> (usize, usize) {
    let of_wave = fleet.of_wave(fleet.rollout.released);
    let there: Vec<_> = of_wave.into_iter().filter(|at| fleet.hosts[*at].connected).collect();
    let off: Vec<_> = there.iter().enumerate().filter(|(at, _)| at % 10 < of_ten).collect();
    for (_, at) in &off {
        fleet.hosts[**at].connected = false;
    }
    (off.len(), there.len())
}

#[test]
fn r6_5_hosts_that_a_version_switches_off_are_missed_however_many_others_have_been_off_for_months() {
    let mut fleet = by_day("1,10%,100%");
    pass(&mut fleet);
    assert_eq!(fleet.watch(Duration::from_mins(1)), None);
    let (off, there) = switch_off(&mut fleet, 4);
    let why = paused(fleet.watch(SOAK * 2));
    let all = there + 1;
    assert!(
        why.starts_with(&format!("{off} of {all} hosts that it has reached are off, 0 of the 2")),
        "{why}"
    );
}

#[test]
fn r6_5_in_the_evening_hosts_of_a_wave_go_as_all_others_do() {
    let mut fleet = by_day("1,10%,100%");
    pass(&mut fleet);
    assert_eq!(fleet.watch(Duration::from_mins(1)), None);
    for at in (0..400).filter(|at| at % 10 != 0) {
        fleet.hosts[at].connected = false;
    }
    released(fleet.watch(SOAK * 2));
}

#[test]
fn r6_5_one_host_of_few_that_goes_at_night_beside_many_that_are_off_anyway_is_no_loss() {
    let mut fleet = at_night("1,10%,100%");
    assert_eq!(fleet.watch(SOAK * 2), None);
    come(&mut fleet, 3);
    assert_eq!(fleet.watch(Duration::from_mins(1)), None);
    let goes = fleet.of_wave(2)[0];
    fleet.hosts[goes].connected = false;
    released(fleet.watch(SOAK * 2));
}

#[test]
fn r6_5_a_last_wave_whose_hosts_vanish_is_looked_at_beside_those_that_had_the_version_before() {
    let mut fleet = by_day("1,10%,100%");
    pass(&mut fleet);
    pass(&mut fleet);
    assert_eq!(fleet.rollout.released, 3);
    assert_eq!(fleet.watch(Duration::from_mins(1)), None);
    let mut evening = by_day("1,10%,100%");
    pass(&mut evening);
    pass(&mut evening);
    assert_eq!(evening.watch(Duration::from_mins(1)), None);
    let (off, there) = switch_off(&mut fleet, 6);
    let why = paused(fleet.watch(SOAK * 2));
    assert!(
        why.starts_with(&format!("{off} of {there} hosts of the newest wave are off, 0 of the 15 that had")),
        "{why}"
    );
    // In the evening those that had it before go as well.
    for at in (0..400).filter(|at| at % 10 != 0) {
        evening.hosts[at].connected = false;
    }
    released(evening.watch(SOAK * 2));
}

#[test]
fn r6_5_a_last_wave_is_not_held_beside_a_group_that_is_always_on() {
    // The group's machines stand elsewhere and run by night, too: they are no sample of the others.
    let mut hosts: Vec<HostNow> = (0..200).map(host).collect();
    let group: fallow_fleet::GroupName = "servers".parse().unwrap();
    hosts[..50].iter_mut().for_each(|host| host.groups = vec![group.clone()]);
    for waves in ["servers,100%", "10%,servers,100%", "50,100%"] {
        let mut fleet = Fleet::with(1, waves, hosts.clone());
        fleet.take();
        while fleet.rollout.released < fleet.rollout.plan.waves.len() {
            pass(&mut fleet);
        }
        assert_eq!(fleet.watch(Duration::from_mins(1)), None);
        for at in 0..200 {
            let host = &mut fleet.hosts[at];
            host.connected = !host.groups.is_empty() || at % 20 == 0;
        }
        released(fleet.watch(SOAK * 2));
    }
}
