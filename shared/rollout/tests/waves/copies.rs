//! Labs that were set up from one image: all of their hosts are copies of one machine.

use fallow_domain::Duration;
use fallow_rollout::HostNow;

use crate::fleet::{Fleet, NEW, SOAK, host, id, paused, released};

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
