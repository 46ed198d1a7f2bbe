//! Large fleets, of whose hosts a part is watched one by one: all are counted.

use fallow_rollout::HostNow;

use crate::fleet::{Fleet, OLD, SOAK, host, id, paused, released};

/// Machines of which `copied` have so many hosts each, behind each other, and `single` have one. All get the
/// version at once and take it, but for those that hang.
fn with_hanging((copied, copies): (usize, usize), single: usize, hangs: fn(usize) -> bool) -> Fleet {
    let all = copied * copies + single;
    let machine = |number: usize| if number < copied * copies { number / copies * copies } else { number };
    let hosts: Vec<HostNow> =
        (0..all).map(|number| HostNow { machine: id(machine(number)), ..host(number) }).collect();
    let mut fleet = Fleet::with(1, "100%", hosts);
    fleet.take();
    for at in (0..copied * copies).filter(|at| hangs(at % copies)) {
        fleet.hosts[at].version = OLD;
    }
    fleet
}

#[test]
fn r6_5_machines_most_of_whose_copies_lack_a_version_are_all_counted_however_many_copies_there_are() {
    let mut fleet = with_hanging((100, 400), 0, |copy| copy % 5 < 3);
    let why = paused(fleet.watch(SOAK * 4));
    assert!(why.starts_with("100 of 100 hosts that are there do not take the version"), "{why}");
}

#[test]
fn r6_5_machines_that_take_a_version_are_all_counted_however_many_there_are() {
    // 1,300 of 10,000 do not take it: less than a fifth.
    let mut fleet = with_hanging((1_300, 3), 8_700, |copy| copy < 2);
    released(fleet.watch(SOAK * 2));
    // 2,600 of 10,000 are more than that.
    let mut fleet = with_hanging((2_600, 3), 7_400, |copy| copy < 2);
    let why = paused(fleet.watch(SOAK * 4));
    assert!(why.starts_with("2600 of 10000 hosts that are there do not take the version"), "{why}");
}
