//! Which hosts asked for work of late: those that a small batch is spread over (R6.8).
//!
//! A host that idles asks again after the project's `poll`, or is told of new jobs; so whoever did not ask
//! for twice as long is away or has enough. New hosts of one account outside the fleet count as one
//! ([`NewHosts`]). Kept in memory; after a restart it is what hosts' records say.

use std::collections::{BTreeMap, BTreeSet};

use fallow_domain::{Duration, Instant};
use fallow_policy::send::spread::AskingFleet;

use super::error::ProjectError;
use super::new_hosts::{self, NewHosts};
use super::records::Host;
use super::store_keys::Keys;
use super::txn::{Txn, decode};

/// Whoever asked within this is there, however short the project's `poll` is.
const LATELY: Duration = Duration::from_mins(10);
/// How far in the future a host may have asked: requests overtake each other. Further on is a time before the
/// clock was set back.
const AHEAD: Duration = Duration::from_mins(5);

/// A host counts for so many instances at most, whatever it claims: what it gets of a small batch grows with
/// that, and what others get shrinks. More than most machines have.
pub(crate) const INSTANCES_MAX: u64 = 128;

/// Who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Asker {
    Host(u64),
    /// The new hosts of an account outside the fleet.
    NewOf(u64),
}

impl Asker {
    pub(crate) fn of(host: &Host, is_new: bool) -> Self {
        if is_new { Self::NewOf(host.account) } else { Self::Host(host.id) }
    }
}

/// One that asked.
#[derive(Clone, Copy, Debug, Default)]
struct Asking {
    at: Instant,
    instances: u64,
}

/// Hosts that asked for work of late.
#[derive(Debug, Default)]
pub(crate) struct AskingHosts {
    all: BTreeMap<Asker, Asking>,
    /// The same, the oldest first.
    by_time: BTreeSet<(Instant, Asker)>,
    /// Of all of them.
    instances: u64,
    /// Those that count as one for each account.
    pub(crate) new: NewHosts,
}

/// For how long who asked is there, in a project with this `poll`.
pub(crate) fn window(poll: Duration) -> Duration {
    LATELY.max(poll * 2)
}

impl AskingHosts {
    /// As it follows from the hosts in the store, in a project with this `poll`.
    pub(crate) fn load(txn: &Txn<'_>, keys: &Keys, poll: Duration) -> Result<Self, ProjectError> {
        let (mut asking, mut new_at) = (Self::default(), BTreeMap::<u64, Instant>::new());
        for (key, value) in txn.scan(&keys.hosts(), None, usize::MAX)? {
            let host: Host = decode("host", &key, &value)?;
            let Some(at) = host.last_request else { continue };
            if new_hosts::is_new(txn, keys, &host)? {
                asking.new.load(txn, keys, &host)?;
                let last = new_at.entry(host.account).or_insert(at);
                *last = at.max(*last);
            } else {
                asking.asked(Asker::Host(host.id), u64::from(host.ncpus), at);
            }
        }
        for (account, at) in new_at {
            let instances = asking.new.instances(account, window(poll), at);
            asking.asked(Asker::NewOf(account), instances, at);
        }
        Ok(asking)
    }

    /// Those that are there, in a project with this `poll`.
    pub(crate) fn fleet(&mut self, poll: Duration, now: Instant) -> AskingFleet {
        let window = window(poll);
        while let Some((at, host)) = self.by_time.first().copied()
            && now.since(at) > window
        {
            self.forget(host);
        }
        while let Some((at, host)) = self.by_time.last().copied()
            && at.since(now) > AHEAD
        {
            self.forget(host);
        }
        AskingFleet { hosts: self.all.len() as u64, instances: self.instances }
    }

    /// A host asked, which has so many instances.
    pub(crate) fn asked(&mut self, host: Asker, instances: u64, at: Instant) {
        self.forget(host);
        let instances = instances.min(INSTANCES_MAX);
        self.all.insert(host, Asking { at, instances });
        self.by_time.insert((at, host));
        self.instances += instances;
    }

    /// A host of an account asked, and could take none of the jobs that there are: it counts no more until it
    /// asks again. A new one that holds jobs keeps its place: it says itself what it has room for.
    pub(crate) fn cannot_take(&mut self, (account, host): (u64, u64), poll: Duration, now: Instant) {
        if !self.new.has_any((account, host), now) {
            self.not_new((account, host), poll, now);
        }
        self.forget(Asker::Host(host));
    }

    /// A host of an account that was new is so no more.
    pub(crate) fn not_new(&mut self, (account, host): (u64, u64), poll: Duration, now: Instant) {
        if !self.new.forget(account, host) {
            return;
        }
        let group = Asker::NewOf(account);
        let (instances, at) =
            (self.new.instances(account, window(poll), now), self.all.get(&group).map(|group| group.at));
        match at.filter(|_| instances > 0) {
            Some(at) => self.asked(group, instances, at),
            None => drop(self.forget(group)),
        }
    }

    fn forget(&mut self, host: Asker) -> Option<Asking> {
        let asking = self.all.remove(&host)?;
        self.by_time.remove(&(asking.at, host));
        self.instances -= asking.instances;
        Some(asking)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r6_8_a_batch_is_spread_over_the_hosts_that_asked_within_ten_minutes_or_two_polls() {
        let at = |minutes| Instant::EPOCH + Duration::from_mins(minutes);
        let poll = Duration::from_mins(8);
        let mut asking = AskingHosts::default();
        let fleet = |hosts, instances| AskingFleet { hosts, instances };
        assert_eq!(asking.fleet(poll, at(0)), fleet(0, 0));
        asking.asked(Asker::Host(1), 4, at(0));
        asking.asked(Asker::Host(2), 2, at(1));
        asking.asked(Asker::Host(1), 8, at(2));
        assert_eq!(asking.fleet(poll, at(2)), fleet(2, 10), "each is there once");
        assert_eq!(asking.fleet(poll, at(17)), fleet(2, 10));
        assert_eq!(asking.fleet(Duration::ZERO, at(12)), fleet(1, 8));
        assert_eq!(asking.fleet(Duration::ZERO, at(13)), fleet(0, 0));
    }

    #[test]
    fn r6_8_a_host_counts_for_no_more_instances_than_most_machines_have_and_not_at_all_if_it_can_take_nothing()
     {
        let mut asking = AskingHosts::default();
        asking.asked(Asker::Host(1), 1_000_000, Instant::EPOCH);
        assert_eq!(asking.fleet(Duration::ZERO, Instant::EPOCH).instances, INSTANCES_MAX);
        asking.cannot_take((1, 1), Duration::ZERO, Instant::EPOCH);
        assert_eq!(asking.fleet(Duration::ZERO, Instant::EPOCH), AskingFleet { hosts: 0, instances: 0 });
    }

    #[test]
    fn r6_8_a_host_that_asked_before_the_clock_was_set_back_is_not_there() {
        let at = |minutes| Instant::EPOCH + Duration::from_mins(minutes);
        let mut asking = AskingHosts::default();
        asking.asked(Asker::Host(1), 1, at(1_000));
        asking.asked(Asker::Host(2), 1, at(4));
        assert_eq!(asking.fleet(Duration::ZERO, at(0)), AskingFleet { hosts: 1, instances: 1 });
    }
}
