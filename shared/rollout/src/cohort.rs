//! Which hosts a wave has.

use std::collections::{BTreeMap, BTreeSet};

use fallow_domain::{AgentId, Fraction};
use ring::digest::{Context, SHA256};

use crate::HostNow;

/// Where a host stands in the order of a rollout: the first 64 bits of a SHA-256 over both. It depends on
/// nothing else, so a fleet that grows moves nobody, and each rollout begins with other hosts.
#[must_use]
pub fn position(rollout: u64, host: &AgentId) -> u64 {
    let mut hash = Context::new(&SHA256);
    hash.update(&rollout.to_be_bytes());
    hash.update(host.0.as_bytes());
    let digest = hash.finish();
    digest.as_ref().iter().take(8).fold(0, |position, byte| position << 8 | u64::from(*byte))
}

/// Whether a host that stands there is in such a part of the fleet.
pub(crate) fn is_in_part(position: impl FnOnce() -> u64, part: Fraction) -> bool {
    // The last of all positions is in the whole as well.
    part == Fraction::ONE || (position() as f64) < part.get() * 2_f64.powi(64)
}

/// The hosts that a wave of so many adds to those that were reached: the first in order, those that compute
/// before those that rest, and both before those that are off.
///
/// Of a machine and its copies one counts, whose turn comes as its machine's does: whoever has one machine
/// can have made the copies, and must have no more lots for that. Each machine's second copy, and then its
/// third, comes when no other machine is left that is there: a lab may be set up from one image, and hosts
/// that are off try nothing. Such copies fill the places of machines that are off: a wave has as many hosts
/// as it is called, but for copies that were reached otherwise.
///
/// Of the hosts that were `reached`, earlier waves of this kind `counted` some: each has a place. A machine
/// of which a group's wave, or a part's, reached many has one.
pub(crate) fn first<'h>(
    rollout: u64,
    count: u32,
    counted: impl Fn(&AgentId) -> bool,
    reached: impl Iterator<Item = &'h HostNow>,
    open: impl Iterator<Item = &'h HostNow>,
) -> BTreeSet<AgentId> {
    let count = count as usize;
    // How many hosts of each machine have it, or have their turn before others of the machine; and how many
    // have a place of their own.
    let mut turns: BTreeMap<&AgentId, usize> = BTreeMap::new();
    let mut places_of: BTreeMap<&AgentId, usize> = BTreeMap::new();
    for host in reached {
        *turns.entry(&host.machine).or_default() += 1;
        *places_of.entry(&host.machine).or_default() += usize::from(counted(&host.id));
    }
    let mut hosts: usize = turns.values().sum();
    let mut places: usize = places_of.values().map(|places| (*places).max(1)).sum();
    let rests = |host: &HostNow| host.rests || host.pause.is_some();
    let mut open: Vec<_> =
        open.map(|host| ((!host.connected, rests(host), position(rollout, &host.id)), host)).collect();
    open.sort_unstable_by_key(|(place, host)| (*place, &host.id));
    let in_turn = open.into_iter().map(|((is_off, rests, _), host)| {
        let turn = turns.entry(&host.machine).or_default();
        let place = (is_off, *turn, rests, position(rollout, &host.machine), &host.id);
        *turn += 1;
        place
    });
    let mut in_turn: Vec<_> = in_turn.collect();
    in_turn.sort_unstable();
    let has_place = |(_, turn, ..): &(_, usize, _, _, _)| {
        // A machine's first host has a place of its own, a further one only where hosts are lacking.
        let is_taken = if *turn == 0 { places < count } else { hosts < count };
        (places, hosts) = (places + usize::from(is_taken), hosts + usize::from(is_taken));
        is_taken
    };
    in_turn.into_iter().filter(has_place).map(|(.., id)| id.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn none(_: &AgentId) -> bool {
        false
    }

    const fn all(_: &AgentId) -> bool {
        true
    }

    fn host(number: usize) -> AgentId {
        AgentId(format!("01HOST{number}"))
    }

    #[test]
    fn r6_5_parts_of_a_fleet_are_as_large_as_they_are_called_and_others_in_each_rollout() {
        let part = Fraction::new(0.1).unwrap();
        let members = |rollout: u64| -> BTreeSet<usize> {
            (0..10_000).filter(|number| is_in_part(|| position(rollout, &host(*number)), part)).collect()
        };
        let (first, second) = (members(1), members(2));
        assert!((900..1_100).contains(&first.len()), "{}", first.len());
        let both = first.intersection(&second).count();
        assert!((60..140).contains(&both), "{both} of 100");
        assert!((0..10_000).all(|number| is_in_part(|| position(1, &host(number)), Fraction::ONE)));
    }

    #[test]
    fn r6_5_hosts_that_are_counted_out_are_there_if_any_are() {
        let hosts: Vec<_> = (0..50)
            .map(|number| HostNow { connected: number % 10 == 0, ..HostNow::named(host(number)) })
            .collect();
        let of = |count| first(7, count, none, [].iter(), hosts.iter());
        let is_there = |id: &AgentId| hosts.iter().any(|host| host.id == *id && host.connected);
        assert!(of(0).is_empty());
        assert!(of(5).iter().all(is_there) && of(5).len() == 5);
        assert!(of(1).is_subset(&of(2)) && of(2).is_subset(&of(30)));
        // Of those that are there, two of five rest.
        let resting = |number: usize| number == 10 || number == 30;
        let mut some_rest = hosts.clone();
        some_rest.iter_mut().enumerate().for_each(|(number, host)| host.rests = resting(number));
        let rests = |id: &AgentId| some_rest.iter().any(|host| host.id == *id && host.rests);
        let chosen = first(7, 3, none, [].iter(), some_rest.iter());
        assert!(!chosen.iter().any(rests) && chosen.iter().all(is_there), "{chosen:?}");
        assert_eq!(first(7, 5, none, [].iter(), some_rest.iter()), of(5));
        assert_eq!((of(30).len(), of(1_000).len()), (30, 50));
    }

    /// Ten hosts, and a machine with 89 copies.
    fn one_with_copies() -> Vec<HostNow> {
        let of = |number: usize| host(if number < 10 { number } else { 10 });
        (0..100)
            .map(|number| HostNow { machine: of(number), connected: true, ..HostNow::named(host(number)) })
            .collect()
    }

    fn machines(hosts: &[HostNow], of: &BTreeSet<AgentId>) -> usize {
        let chosen = hosts.iter().filter(|host| of.contains(&host.id));
        chosen.map(|host| &host.machine).collect::<BTreeSet<_>>().len()
    }

    #[test]
    fn r6_5_a_machine_with_copies_has_no_better_lot_than_any_other() {
        let hosts = one_with_copies();
        let is_drawn = |rollout: &u64| {
            let chosen = first(*rollout, 1, none, [].iter(), hosts.iter());
            hosts.iter().any(|one| chosen.contains(&one.id) && one.machine == host(10))
        };
        // One of eleven, but for chance.
        let drawn = (0..1_000).filter(is_drawn).count();
        assert!((60..125).contains(&drawn), "{drawn} of 1000");
        for rollout in 0..100 {
            let five = first(rollout, 5, none, [].iter(), hosts.iter());
            assert_eq!((five.len(), machines(&hosts, &five)), (5, 5));
        }
    }

    #[test]
    fn r6_5_further_copies_are_counted_out_when_no_other_machine_is_left() {
        let hosts = one_with_copies();
        let mut reached = BTreeSet::new();
        for (count, hosts_then, machines_then) in
            [(1, 1, 1), (5, 5, 5), (11, 11, 11), (30, 30, 11), (200, 100, 11)]
        {
            let (has, open): (Vec<_>, Vec<_>) = hosts.iter().partition(|host| reached.contains(&host.id));
            reached.extend(first(7, count, all, has.into_iter(), open.into_iter()));
            assert_eq!((reached.len(), machines(&hosts, &reached)), (hosts_then, machines_then));
        }
        // Copies that have it already, as by their group, stand for one machine.
        let has = || hosts.iter().skip(10).take(20);
        let open = hosts.iter().filter(|host| !has().any(|other| other.id == host.id));
        let more = first(7, 5, none, has(), open);
        assert_eq!((more.len(), machines(&hosts, &more)), (4, 4));
        // A lab that was set up from one image goes out as if these were machines.
        let lab = &hosts[10..];
        assert_eq!([1, 5, 200].map(|count| first(7, count, none, [].iter(), lab.iter()).len()), [1, 5, 90]);
    }

    #[test]
    fn r6_5_copies_that_are_there_are_counted_out_before_machines_that_are_off() {
        // A lab of 60 that was set up from one image, and nine hosts that nobody switches on any more.
        let hosts: Vec<_> = (0..69)
            .map(|number| HostNow {
                machine: host(number.min(9)),
                connected: number >= 9,
                ..HostNow::named(host(number))
            })
            .collect();
        let is_there = |id: &AgentId| hosts.iter().any(|host| host.id == *id && host.connected);
        let plans: [&[(u32, bool)]; 2] = [
            &[(1, true), (10, true), (60, true), (69, false)],
            &[(5, true), (9, true), (10, true), (20, true)],
        ];
        for (rollout, plan) in (0..20).flat_map(|rollout| plans.map(|plan| (rollout, plan))) {
            let mut reached = BTreeSet::new();
            for &(count, is_all_there) in plan {
                let (has, open): (Vec<_>, Vec<_>) = hosts.iter().partition(|host| reached.contains(&host.id));
                reached.extend(first(rollout, count, all, has.into_iter(), open.into_iter()));
                assert_eq!((reached.len(), reached.iter().all(is_there)), (count as usize, is_all_there));
            }
        }
    }
}
