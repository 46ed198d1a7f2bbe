//! A wave is not passed on what the hosts of earlier waves show.

use fallow_domain::{Duration, Instant};
use fallow_rollout::HostNow;

use crate::fleet::{Fleet, OLD, SOAK, host, paused, released};

const NIGHT: Duration = Duration::from_hours(10);
const LONG_WEEKEND: Duration = Duration::from_hours(73);

/// 100 machines of which 95 are off for the night. The first wave was a host that is there, and passed; all
/// of the second wave are off.
fn at_night(waves: &str) -> Fleet {
    let hosts: Vec<HostNow> = (0..100).map(host).collect();
    let number = (1..).find(|number| {
        let fleet = Fleet::with(*number, waves, hosts.clone());
        (5..15).contains(&fleet.of_wave(2).len()) || fleet.rollout.plan.waves.len() == 2
    });
    let mut fleet = Fleet::with(number.unwrap(), waves, hosts);
    fleet.take();
    let second = fleet.of_wave(2);
    let mut others = (0..100).filter(|at| !second.contains(at) && !fleet.has_reached(&fleet.hosts[*at]));
    let awake: Vec<_> = others.by_ref().take(4).collect();
    let night = fleet.now;
    for at in 0..100 {
        if !fleet.has_reached(&fleet.hosts[at]) && (second.contains(&at) || !awake.contains(&at)) {
            (fleet.hosts[at].connected, fleet.hosts[at].seen) = (false, Some(night));
        }
    }
    let passed = fleet.watch(SOAK * 2).unwrap();
    fleet.apply(&passed);
    assert_eq!(fleet.rollout.released, 2);
    fleet
}

fn come(fleet: &mut Fleet, number: usize) {
    let wave = fleet.of_wave(fleet.rollout.released);
    for at in wave.into_iter().take(number) {
        fleet.hosts[at].connected = true;
    }
    fleet.take();
}

#[test]
fn r6_5_a_wave_whose_hosts_are_all_off_waits_for_the_morning_whoever_of_earlier_waves_is_there() {
    for waves in ["1,10%,100%", "1,100%"] {
        let mut fleet = at_night(waves);
        assert_eq!(fleet.watch(NIGHT), None, "{waves}");
        come(&mut fleet, 1);
        // It is seen as long as any other that a version is judged by.
        assert_eq!(fleet.watch(SOAK / 3), None, "{waves}");
        let why = released(fleet.watch(SOAK));
        assert!(why.starts_with("2 hosts with it for"), "{why}");
    }
}

#[test]
fn r6_5_after_a_long_weekend_somebody_looks_at_a_wave_none_of_whose_hosts_came() {
    let why = paused(at_night("1,10%,100%").watch(LONG_WEEKEND));
    assert!(why.starts_with("none of the wave's own ") && why.contains("hosts is there"), "{why}");
}

#[test]
fn r6_5_a_wave_whose_hosts_do_not_take_the_version_is_for_somebody_to_look_at_whoever_has_it() {
    // One of ten that are there: a fifth may lack it, but not all of a wave.
    let hosts: Vec<HostNow> = (0..12).map(host).collect();
    let mut fleet = Fleet::with(1, "9,10,100%", hosts);
    fleet.take();
    let passed = fleet.watch(SOAK * 2).unwrap();
    fleet.apply(&passed);
    assert_eq!(fleet.of_wave(2).len(), 1);
    assert_eq!(fleet.watch(SOAK * 2), None);
    let why = paused(fleet.watch(SOAK * 2));
    assert!(
        why.starts_with("1 of 1 host of this wave that are there do not take the version, such as pc-"),
        "{why}"
    );
}

#[test]
fn r6_5_a_wave_of_hosts_that_are_gone_for_long_or_for_good_holds_nothing_up() {
    type Change = fn(&mut HostNow, Instant);
    let gone_for_long: Change = |host, now| host.seen = Some(now - Duration::from_hours(100));
    let never_there: Change = |host, _| host.seen = Some(Instant::EPOCH);
    let other_labels: Change = |host, _| host.changed = false;
    for change in [gone_for_long, never_there, other_labels] {
        let mut fleet = at_night("1,10%,100%");
        for at in fleet.of_wave(2) {
            change(&mut fleet.hosts[at], fleet.now);
        }
        let why = released(fleet.watch(SOAK * 2));
        let is_said = why.contains("but none of the wave's own");
        let has_hosts = fleet.of_wave(2).iter().any(|at| fleet.hosts[*at].changed);
        assert!(why.starts_with("1 host with it for") && is_said == has_hosts, "{why}");
    }
    // They left the fleet.
    let mut fleet = at_night("1,10%,100%");
    let wave = fleet.of_wave(2);
    let mut at = 0..;
    fleet.hosts.retain(|_| !wave.contains(&at.next().unwrap()));
    released(fleet.watch(SOAK * 2));
    // Nobody is there but hosts that are off for long: the last wave ends.
    let hosts: Vec<HostNow> = (0..6)
        .map(|number| match number {
            5 => HostNow { connected: false, version: OLD, seen: Some(Instant::EPOCH), ..host(number) },
            _ => host(number),
        })
        .collect();
    let mut fleet = Fleet::with(1, "5,100%", hosts);
    fleet.take();
    let passed = fleet.watch(SOAK * 2).unwrap();
    fleet.apply(&passed);
    released(fleet.watch(SOAK * 2));
}

#[test]
fn r6_5_a_coordinator_that_starts_anew_every_night_goes_on_waiting_for_a_waves_hosts() {
    let mut fleet = at_night("1,10%,100%");
    for _ in 0..2 {
        assert_eq!(fleet.watch(NIGHT), None);
        fleet.start_anew();
    }
    come(&mut fleet, 3);
    let why = released(fleet.watch(SOAK * 2));
    assert!(why.starts_with("4 hosts with it for"), "{why}");
}

#[test]
fn r6_5_hosts_that_come_in_the_morning_are_not_judged_by_one_that_is_slow() {
    // All are off for longer than three times the soak time; then all come, and one hangs.
    let hosts: Vec<HostNow> = (0..20).map(host).collect();
    let mut fleet = Fleet::with(1, "100%", hosts);
    fleet.hosts.iter_mut().for_each(|host| host.connected = false);
    assert_eq!(fleet.watch(SOAK * 6), None);
    fleet.hosts.iter_mut().for_each(|host| host.connected = true);
    fleet.take();
    fleet.hosts[0].version = OLD;
    let why = released(fleet.watch(SOAK));
    assert!(why.starts_with("19 hosts with it for"), "{why}");
}
