//! How long hosts are waited for, and what is seen meanwhile.

use fallow_domain::Duration;
use fallow_rollout::HostNow;

use crate::fleet::{Fleet, NEW, OLD, SOAK, host, id, paused, released, taken_back};
use crate::own_hosts::{NIGHT, at_night, come};

const HOUR: Duration = Duration::from_hours(1);
const DAY: Duration = Duration::from_hours(24);

/// Twelve machines, the first wave of which is one that is there and takes the version.
fn of_one(soak: Duration) -> (Fleet, usize) {
    let mut fleet = Fleet::soaked(1, ("1,100%", soak), (0..12).map(host).collect());
    fleet.take();
    let one = fleet.of_wave(1)[0];
    (fleet, one)
}

fn be_there(fleet: &mut Fleet, at: usize, is_there: bool, time: Duration) {
    fleet.hosts[at].connected = is_there;
    assert_eq!(fleet.watch(time), None);
}

#[test]
fn r6_5_a_host_that_is_there_with_the_version_after_a_weekend_is_not_said_to_be_off() {
    // It is watched for a day, of which half is what a host has to be there: two hours on Friday, eight on
    // Monday, and the rest on Tuesday.
    let (mut fleet, one) = of_one(DAY);
    be_there(&mut fleet, one, true, HOUR * 2);
    be_there(&mut fleet, one, false, HOUR * 62);
    be_there(&mut fleet, one, true, HOUR * 8 + Duration::from_mins(30));
    be_there(&mut fleet, one, false, HOUR * 16);
    fleet.hosts[one].connected = true;
    let why = released(fleet.watch(HOUR * 2));
    assert!(why.starts_with("1 host with it for 12 h at least, in 3.8 days"), "{why}");
}

#[test]
fn r6_5_a_host_that_comes_at_the_end_of_three_days_is_still_seen() {
    let (mut fleet, one) = of_one(Duration::from_mins(30));
    be_there(&mut fleet, one, false, HOUR * 72 - Duration::from_mins(10));
    fleet.hosts[one].connected = true;
    released(fleet.watch(HOUR));
    // So is one of the wave's own.
    let mut fleet = at_night("1,10%,100%");
    assert_eq!(fleet.watch(HOUR * 72 - Duration::from_mins(1)), None);
    come(&mut fleet, 1);
    released(fleet.watch(SOAK));
}

#[test]
fn r6_5_a_host_that_is_there_by_day_and_does_not_take_the_version_is_not_said_to_be_off() {
    let (mut fleet, one) = of_one(HOUR * 3);
    fleet.hosts[one].version = OLD;
    be_there(&mut fleet, one, false, HOUR * 63);
    be_there(&mut fleet, one, true, HOUR * 8);
    be_there(&mut fleet, one, false, HOUR * 16);
    fleet.hosts[one].connected = true;
    let why = paused(fleet.watch(HOUR * 2));
    assert!(why.starts_with("1 of 1 host that are there do not take the version"), "{why}");
}

#[test]
fn r6_5_hosts_that_are_never_there_for_long_enough_are_not_waited_for_without_end() {
    let (mut fleet, one) = of_one(HOUR * 2);
    for _ in 0..9 {
        be_there(&mut fleet, one, true, Duration::from_mins(5));
        be_there(&mut fleet, one, false, HOUR * 10);
    }
    let why = paused(fleet.watch(HOUR * 2));
    assert!(why.starts_with("none of 1 host has been there with it for half of 2 h"), "{why}");
    assert!(why.contains("in 3.8 days: they come and go, or do not take it"), "{why}");
    // One that died soon is missed after three days, as if it had never been there.
    let (mut fleet, one) = of_one(DAY);
    be_there(&mut fleet, one, true, HOUR);
    fleet.hosts[one].connected = false;
    let why = paused(fleet.watch(HOUR * 73));
    assert!(why.starts_with("none of 1 host is there"), "{why}");
}

/// Nine of the first wave's ten take the version, and one hangs. In the morning four of the second wave
/// come.
fn one_hangs_and_four_come() -> (Fleet, Vec<usize>) {
    let mut fleet = Fleet::with(1, "10,24,100%", (0..60).map(host).collect());
    fleet.take();
    let hangs = fleet.of_wave(1)[0];
    fleet.hosts[hangs].version = OLD;
    let passed = fleet.watch(SOAK * 2).unwrap();
    fleet.apply(&passed);
    let (first, second) = (fleet.of_wave(1), fleet.of_wave(2));
    for at in (0..60).filter(|at| !first.contains(at)) {
        fleet.hosts[at].connected = false;
    }
    assert_eq!(fleet.watch(NIGHT), None);
    let four = second.into_iter().take(4).collect::<Vec<_>>();
    four.iter().for_each(|at| fleet.hosts[*at].connected = true);
    assert_eq!(fleet.watch(Duration::from_mins(2)), None, "they are slow");
    (fleet, four)
}

#[test]
fn r6_5_hosts_that_are_slow_have_their_time_although_one_of_another_wave_hangs() {
    let (mut fleet, four) = one_hangs_and_four_come();
    four.iter().for_each(|at| fleet.hosts[*at].version = NEW);
    released(fleet.watch(SOAK));
    // When they have had it, it is said.
    let (mut fleet, _) = one_hangs_and_four_come();
    assert_eq!(fleet.watch(SOAK * 2), None);
    let why = paused(fleet.watch(SOAK));
    assert!(why.starts_with("5 of 14 hosts that are there do not take the version"), "{why}");
}

#[test]
fn r6_5_one_of_a_waves_own_hosts_has_tried_the_version_for_half_of_the_time_and_not_two_in_turn() {
    let mut fleet = at_night("1,10%,100%");
    assert_eq!(fleet.watch(NIGHT), None);
    let [first, second] = fleet.of_wave(2)[..2] else { panic!() };
    fleet.hosts[first].connected = true;
    fleet.take();
    assert_eq!(fleet.watch(SOAK * 4 / 10), None);
    (fleet.hosts[first].connected, fleet.hosts[second].connected) = (false, true);
    fleet.take();
    assert_eq!(fleet.watch(SOAK * 4 / 10), None);
    released(fleet.watch(SOAK));
}

#[test]
fn r6_5_a_group_that_a_wave_names_is_waited_for_however_small_it_is() {
    let room: fallow_fleet::GroupName = "test-room".parse().unwrap();
    let mut hosts: Vec<HostNow> = (0..60).map(host).collect();
    for host in &mut hosts[..8] {
        (host.connected, host.groups) = (false, vec![room.clone()]);
    }
    let mut fleet = Fleet::with(1, "40,test-room,100%", hosts);
    fleet.take();
    let passed = fleet.watch(SOAK * 2).unwrap();
    fleet.apply(&passed);
    assert_eq!(fleet.of_wave(2).len(), 8);
    assert_eq!(fleet.watch(NIGHT), None);
    come(&mut fleet, 1);
    released(fleet.watch(SOAK));
}

#[test]
fn r6_5_a_few_hosts_that_are_off_hold_up_no_lab_that_was_set_up_from_one_image() {
    let lab = |off: usize| {
        let hosts: Vec<HostNow> = (0..60)
            .map(|number| HostNow { machine: id(0), connected: number >= off, ..host(number) })
            .collect();
        let mut fleet = Fleet::with(1, &format!("{},100%", 60 - off), hosts);
        fleet.take();
        let passed = fleet.watch(SOAK * 2).unwrap();
        fleet.apply(&passed);
        fleet
    };
    let why = released(lab(10).watch(SOAK * 2));
    assert!(why.contains("none of the wave's own 10 hosts: they are off, and few"), "{why}");
    assert_eq!(lab(11).watch(NIGHT), None);
}

#[test]
fn r6_5_nobody_waits_for_a_weekend_where_hosts_die_before_they_tell_anything() {
    let mut fleet = Fleet::with(1, "4,100%", (0..12).map(host).collect());
    // They are given it, and are gone.
    assert_eq!(fleet.watch(Duration::from_secs(15)), None);
    fleet.of_wave(1).into_iter().for_each(|at| fleet.hosts[at].connected = false);
    let why = paused(fleet.watch(SOAK * 4));
    assert!(why.starts_with("4 of 4 hosts that it has reached are off, 0 of the 8 others"), "{why}");
}

#[test]
fn r6_5_what_harms_late_is_seen_while_a_wave_waits_for_its_own_hosts() {
    let mut fleet = at_night("1,10%,100%");
    assert_eq!(fleet.watch(SOAK * 2), None);
    let first = fleet.of_wave(1)[0];
    fleet.hosts[first].offered = 0.0;
    let why = taken_back(fleet.watch(SOAK * 4));
    assert!(why.ends_with("(gate offered)"), "{why}");
}
