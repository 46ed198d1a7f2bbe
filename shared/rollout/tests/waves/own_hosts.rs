//! A wave is not passed on what the hosts of earlier waves show.

use fallow_domain::Duration;
use fallow_rollout::HostNow;

use crate::fleet::{Fleet, OLD, SOAK, host, paused, released, taken_back};

pub(crate) const NIGHT: Duration = Duration::from_hours(10);
const LONG_WEEKEND: Duration = Duration::from_hours(73);

/// 100 machines of which 95 are off for the night. The first wave was a host that is there, and passed; all
/// of the second wave are off.
pub(crate) fn at_night(waves: &str) -> Fleet {
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
    for at in 0..100 {
        if !fleet.has_reached(&fleet.hosts[at]) && (second.contains(&at) || !awake.contains(&at)) {
            fleet.hosts[at].connected = false;
        }
    }
    let passed = fleet.watch(SOAK * 2).unwrap();
    fleet.apply(&passed);
    assert_eq!(fleet.rollout.released, 2);
    fleet
}

pub(crate) fn come(fleet: &mut Fleet, number: usize) {
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
        // Not that both of them had it all night.
        assert!(why.starts_with("2 hosts with it for 2 min at least, in 10 h"), "{why}");
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
fn r6_5_a_wave_whose_hosts_left_or_get_nothing_new_holds_nothing_up() {
    let mut fleet = at_night("1,10%,100%");
    fleet.of_wave(2).into_iter().for_each(|at| fleet.hosts[at].changed = false);
    let why = released(fleet.watch(SOAK * 2));
    assert!(why.starts_with("1 host with it for") && !why.contains("wave's own"), "{why}");
    // They left the fleet.
    let mut fleet = at_night("1,10%,100%");
    let wave = fleet.of_wave(2);
    let mut at = 0..;
    fleet.hosts.retain(|_| !wave.contains(&at.next().unwrap()));
    released(fleet.watch(SOAK * 2));
}

/// Twelve machines, of which so many are off, in two waves: those that are on first.
fn a_last_wave_off(off: usize) -> Fleet {
    let hosts: Vec<HostNow> =
        (0..12).map(|number| HostNow { connected: number >= off, version: OLD, ..host(number) }).collect();
    let mut fleet = Fleet::with(1, &format!("{},100%", 12 - off), hosts);
    fleet.take();
    let passed = fleet.watch(SOAK * 2).unwrap();
    fleet.apply(&passed);
    fleet
}

#[test]
fn r6_5_a_few_hosts_that_are_off_hold_no_rollout_up_for_days_and_many_do() {
    let why = released(a_last_wave_off(2).watch(SOAK * 2));
    assert!(why.contains("none of the wave's own 2 hosts: they are off, and few"), "{why}");
    // However long they are off: nobody has tried the version whom this wave concerns.
    let mut many = a_last_wave_off(6);
    assert_eq!(many.watch(NIGHT), None);
    come(&mut many, 1);
    released(many.watch(SOAK * 2));
    let why = paused(a_last_wave_off(6).watch(LONG_WEEKEND));
    assert!(why.starts_with("none of the wave's own 6 hosts is there"), "{why}");
}

#[test]
fn r6_5_a_few_hosts_that_had_the_version_and_went_are_not_passed_over_as_switched_off() {
    // The last wave's two are there at first; they take the version, and vanish.
    let mut fleet = a_last_wave_off(2);
    come(&mut fleet, 2);
    assert_eq!(fleet.watch(SOAK / 10), None);
    for at in fleet.of_wave(2) {
        (fleet.hosts[at].connected, fleet.hosts[at].given) = (false, Some(true));
    }
    assert_eq!(fleet.watch(SOAK * 6), None);
}

#[test]
fn r6_5_few_is_what_is_few_beside_hosts_that_have_tried_the_version() {
    // Of the first wave's ten one is there: two of the last wave are not few beside it.
    let mut fleet = a_last_wave_off(2);
    for at in 3..12 {
        (fleet.hosts[at].connected, fleet.hosts[at].given) = (false, Some(false));
        fleet.hosts[at].version = OLD;
    }
    fleet.hosts[..2].iter_mut().for_each(|host| host.given = Some(false));
    assert_eq!(fleet.watch(SOAK * 2), None);
}

#[test]
fn r6_5_hosts_that_were_off_when_their_wave_was_released_are_not_missed_before_they_had_the_version() {
    // The others come in the morning, or are on all the weekend; the wave's own hosts are still off.
    let mut fleet = at_night("1,10%,100%");
    assert_eq!(fleet.watch(NIGHT), None);
    let wave = fleet.of_wave(2);
    for at in (0..100).filter(|at| !wave.contains(at)) {
        fleet.hosts[at].connected = true;
    }
    for at in wave {
        fleet.hosts[at].given = Some(false);
    }
    assert_eq!(fleet.watch(SOAK * 6), None);
    come(&mut fleet, 3);
    let why = released(fleet.watch(SOAK * 2));
    assert!(why.starts_with("4 hosts with it for"), "{why}");
}

#[test]
fn r6_5_who_comes_first_in_the_morning_and_is_slow_is_waited_for_as_at_any_time() {
    let mut fleet = at_night("1,10%,100%");
    assert_eq!(fleet.watch(NIGHT), None);
    let first = fleet.of_wave(2)[0];
    fleet.hosts[first].connected = true;
    assert_eq!(fleet.watch(SOAK * 2), None);
    let why = paused(fleet.watch(SOAK * 2));
    assert!(why.contains("do not take the version, such as pc-"), "{why}");
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

/// A host offers a tenth of its CPUs with the version. Beside it so many others do so without it, of so many.
fn beside(fare_likewise: usize, others: usize) -> Fleet {
    let mut fleet = Fleet::with(1, "1,100%", (0..=others).map(host).collect());
    fleet.take();
    let first = fleet.of_wave(1)[0];
    let rest = (0..=others).filter(|at| *at != first).take(fare_likewise);
    for at in rest.chain([first]).collect::<Vec<_>>() {
        fleet.hosts[at].offered = 0.1;
    }
    fleet
}

#[test]
fn r6_5_one_host_that_tells_of_fewer_cpus_does_not_hide_that_a_version_takes_them() {
    for (fare_likewise, others) in [(0, 1), (1, 1), (1, 2), (2, 2), (1, 3), (1, 10)] {
        let why = taken_back(beside(fare_likewise, others).watch(SOAK * 2));
        assert!(why.ends_with("(gate offered)"), "{why}");
    }
    // What happens to several others as well is not the version's doing.
    released(beside(3, 3).watch(SOAK * 2));
}
