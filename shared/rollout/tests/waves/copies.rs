//! Labs that were set up from one image: all of their hosts are copies of one machine.

use std::collections::BTreeSet;

use fallow_domain::Duration;
use fallow_rollout::HostNow;

use crate::fleet::{Fleet, NEW, SOAK, host, id, paused, released, taken_back};

/// So many copies of the first one, and behind them other machines.
fn lab(copies: usize, others: usize) -> Vec<HostNow> {
    let of = |number: usize| if number < copies { 0 } else { number };
    (0..copies + others).map(|number| HostNow { machine: id(of(number)), ..host(number) }).collect()
}

/// A wave that reaches all copies but none of the others, which take the version; after a minute some go.
fn copies_go((copies, others): (usize, usize), goes: impl Fn(usize) -> bool) -> Fleet {
    let mut hosts = lab(copies, others);
    let group: fallow_fleet::GroupName = "lab".parse().unwrap();
    hosts[..copies].iter_mut().for_each(|host| host.groups = vec![group.clone()]);
    let mut fleet = Fleet::with(1, "lab,100%", hosts);
    fleet.take();
    assert_eq!(fleet.hosts.iter().filter(|host| host.version == NEW).count(), copies);
    assert_eq!(fleet.watch(Duration::from_mins(1)), None);
    for at in (0..copies).filter(|at| goes(*at)) {
        fleet.hosts[at].connected = false;
    }
    fleet
}

#[test]
fn r6_5_copies_that_are_lost_are_missed_although_one_that_is_left_speaks_for_all() {
    let why = paused(copies_go((60, 3), |at| at != 7).watch(SOAK));
    assert!(why.contains("59 of 60 hosts that it has reached are off, 0 of the 3 others"), "{why}");
    assert!(why.contains("a machine and its copies count as one"), "{why}");
    // Half of them are more than a fifth of a machine.
    paused(copies_go((60, 3), |at| at % 2 == 0).watch(SOAK));
    // A few are off at any time.
    released(copies_go((60, 3), |at| at % 10 == 0).watch(SOAK));
}

#[test]
fn r6_5_when_all_copies_are_lost_nobody_waits_for_a_weekend_to_say_so() {
    let mut fleet = copies_go((60, 3), |_| true);
    assert_eq!(fleet.watch(SOAK * 2 - Duration::from_mins(1)), None);
    let why = paused(fleet.watch(SOAK * 2));
    assert!(why.contains("60 of 60 hosts that it has reached are off"), "{why}");
    // In the evening the others go as well.
    let mut fleet = copies_go((60, 3), |_| true);
    fleet.hosts.iter_mut().for_each(|host| host.connected = false);
    assert_eq!(fleet.watch(SOAK * 6), None);
}

#[test]
fn r6_5_copies_that_are_off_count_no_more_than_one_machine() {
    // The image alone, and nine machines that are there.
    let mut hosts = lab(60, 29);
    let group: fallow_fleet::GroupName = "lab".parse().unwrap();
    hosts[..69].iter_mut().for_each(|host| host.groups = vec![group.clone()]);
    let mut fleet = Fleet::with(1, "lab,100%", hosts);
    fleet.take();
    fleet.hosts[..60].iter_mut().for_each(|host| host.connected = false);
    released(fleet.watch(SOAK * 2));
}

/// A lab whose first host did well with the version; those of the second wave take it.
fn second_wave() -> Fleet {
    let mut fleet = Fleet::with(1, "1,10,100%", lab(60, 0));
    fleet.take();
    let passed = fleet.watch(SOAK * 2).unwrap();
    fleet.apply(&passed);
    assert_eq!(fleet.of_wave(2).len(), 9);
    fleet.take();
    fleet
}

#[test]
fn r6_5_each_wave_of_a_lab_from_one_image_is_judged_by_a_host_that_it_reached() {
    type Change = fn(&mut HostNow);
    let offers_less: Change = |host| host.offered = 0.1;
    let idles: Change = |host| host.computing = 0.1;
    for (change, gate) in [(offers_less, "(gate offered)"), (idles, "(gate idle)")] {
        for starts_anew in [false, true] {
            let mut fleet = second_wave();
            if starts_anew {
                fleet.start_anew();
            }
            fleet.of_wave(2).into_iter().for_each(|at| change(&mut fleet.hosts[at]));
            let why = taken_back(fleet.watch(SOAK * 2));
            assert!(why.contains("on 1 host with the new version") && why.ends_with(gate), "{why}");
        }
    }
    // And they may do well.
    let mut fleet = second_wave();
    let why = released(fleet.watch(SOAK * 2));
    assert!(why.starts_with("1 host with it for") && !why.contains("not seen"), "{why}");
    let first = fleet.of_wave(1)[0];
    assert!(!fleet.hosts[first].speaks, "the first wave's host speaks on");
    // At night none of them is there: the first one speaks, and they are waited for.
    let mut fleet = second_wave();
    fleet.of_wave(2).into_iter().for_each(|at| fleet.hosts[at].connected = false);
    fleet.hosts.iter_mut().filter(|host| host.version != NEW).for_each(|host| host.connected = false);
    assert_eq!(fleet.watch(SOAK * 4), None);
    assert!(fleet.hosts[first].speaks);
}

#[test]
fn r6_5_copies_of_one_machine_are_no_trial_for_a_wave_whose_other_machines_are_all_off() {
    for copies in [20, 60] {
        // Copies, and 20 machines of others.
        let waves_of = |number| Fleet::with(number, "1,20%,100%", lab(copies, 20));
        let of_both = |fleet: &Fleet| {
            let second = fleet.of_wave(2);
            let others = second.iter().filter(|at| **at >= copies).count();
            others * 4 >= second.len() && others < second.len()
        };
        let numbers: Vec<u64> = (1..60).filter(|number| of_both(&waves_of(*number))).collect();
        assert!(numbers.len() >= 5, "{numbers:?}");
        for number in numbers {
            let mut fleet = waves_of(number);
            fleet.take();
            let passed = fleet.watch(SOAK * 2).unwrap();
            fleet.apply(&passed);
            assert_eq!(fleet.rollout.released, 2);
            fleet.hosts[copies..].iter_mut().for_each(|host| host.connected = false);
            fleet.take();
            assert_eq!(fleet.watch(SOAK * 20), None, "rollout {number}");
            // In the morning one of them is enough.
            let other = fleet.of_wave(2).into_iter().find(|at| *at >= copies).unwrap();
            fleet.hosts[other].connected = true;
            fleet.take();
            released(fleet.watch(SOAK * 2));
        }
    }
}

/// The hosts that have it when the last wave before all is released.
fn reached_in_the_end(number: u64, waves: &str, hosts: &[HostNow]) -> (usize, usize) {
    let mut fleet = Fleet::with(number, waves, hosts.to_vec());
    while fleet.rollout.released + 1 < fleet.rollout.plan.waves.len() {
        fleet.promote();
    }
    let reached = || fleet.hosts.iter().filter(|host| fleet.has_reached(host));
    let machines: BTreeSet<_> = reached().map(|host| &host.machine).collect();
    (reached().count(), machines.len())
}

#[test]
fn r6_5_a_wave_that_counts_is_as_large_as_it_is_called_whatever_group_went_before() {
    let staff: fallow_fleet::GroupName = "staff".parse().unwrap();
    // A lab that is there, and 40 machines that are off, 15 of which are of the staff.
    let mut hosts = lab(60, 40);
    hosts[60..].iter_mut().for_each(|host| host.connected = false);
    hosts[60..75].iter_mut().for_each(|host| host.groups = vec![staff.clone()]);
    for number in 1..20 {
        for waves in ["10,30,100%", "10,staff,30,100%", "staff,30,100%"] {
            let (reached, _) = reached_in_the_end(number, waves, &hosts);
            assert_eq!(reached, 30, "{waves}");
        }
    }
    // 20 of the lab are a group: they are one machine, of which 10 more follow until 30 hosts have it; and
    // so many other machines that are off that 30 places are taken.
    let mut hosts = lab(60, 40);
    hosts[60..].iter_mut().for_each(|host| host.connected = false);
    hosts[..20].iter_mut().for_each(|host| host.groups = vec![staff.clone()]);
    for number in 1..20 {
        assert_eq!(reached_in_the_end(number, "staff,30,100%", &hosts), (49, 20));
    }
}
