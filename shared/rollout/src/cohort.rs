//! Which hosts a wave has.

use std::collections::BTreeSet;

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

/// Whether a host is in such a part of the fleet.
pub(crate) fn is_in_part(rollout: u64, host: &AgentId, part: Fraction) -> bool {
    // The last of all positions is in the whole as well.
    part == Fraction::ONE || (position(rollout, host) as f64) < part.get() * 2_f64.powi(64)
}

/// The hosts of a wave that counts them: the first in order, those that compute before those that rest, and
/// both before those that are off.
pub(crate) fn first<'h>(
    rollout: u64,
    count: u32,
    hosts: impl Iterator<Item = &'h HostNow>,
) -> BTreeSet<AgentId> {
    let rests = |host: &HostNow| host.rests || host.pause.is_some();
    let mut ordered: Vec<_> =
        hosts.map(|host| (!host.connected, rests(host), position(rollout, &host.id), &host.id)).collect();
    let count = (count as usize).min(ordered.len());
    if count > 0 && count < ordered.len() {
        ordered.select_nth_unstable(count - 1);
    }
    ordered.into_iter().take(count).map(|(.., id)| id.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(number: usize) -> AgentId {
        AgentId(format!("01HOST{number}"))
    }

    #[test]
    fn r6_5_parts_of_a_fleet_are_as_large_as_they_are_called_and_others_in_each_rollout() {
        let part = Fraction::new(0.1).unwrap();
        let members = |rollout: u64| -> BTreeSet<usize> {
            (0..10_000).filter(|number| is_in_part(rollout, &host(*number), part)).collect()
        };
        let (first, second) = (members(1), members(2));
        assert!((900..1_100).contains(&first.len()), "{}", first.len());
        let both = first.intersection(&second).count();
        assert!((60..140).contains(&both), "{both} of 100");
        assert!((0..10_000).all(|number| is_in_part(1, &host(number), Fraction::ONE)));
    }

    #[test]
    fn r6_5_hosts_that_are_counted_out_are_there_if_any_are() {
        let hosts: Vec<_> = (0..50)
            .map(|number| HostNow { connected: number % 10 == 0, ..HostNow::named(host(number)) })
            .collect();
        let of = |count| first(7, count, hosts.iter());
        let is_there = |id: &AgentId| hosts.iter().any(|host| host.id == *id && host.connected);
        assert!(of(0).is_empty());
        assert!(of(5).iter().all(is_there) && of(5).len() == 5);
        assert!(of(1).is_subset(&of(2)) && of(2).is_subset(&of(30)));
        // Of those that are there, two of five rest.
        let resting = |number: usize| number == 10 || number == 30;
        let mut some_rest = hosts.clone();
        some_rest.iter_mut().enumerate().for_each(|(number, host)| host.rests = resting(number));
        let rests = |id: &AgentId| some_rest.iter().any(|host| host.id == *id && host.rests);
        let chosen = first(7, 3, some_rest.iter());
        assert!(!chosen.iter().any(rests) && chosen.iter().all(is_there), "{chosen:?}");
        assert_eq!(first(7, 5, some_rest.iter()), of(5));
        assert_eq!((of(30).len(), of(1_000).len()), (30, 50));
    }
}
