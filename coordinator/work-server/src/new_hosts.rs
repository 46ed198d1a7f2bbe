//! New hosts: those of accounts outside the fleet of which no result was found valid yet (R6.8, R6.10).
//!
//! Whoever has the key of such an account is given a new host for each request that names none, as often as
//! he likes: no rule that goes by the host binds him. So an account may bring [`NEW_MAX`] new hosts at once,
//! and one more every [`NEXT_AFTER`]; any other is sent no work until then, or until one of those before it
//! has returned a valid result. What they hold together is bounded by `fallow_policy::send::new_hosts`.
//!
//! A host counts as new as long as it holds jobs whose deadlines have not passed, or asked of late; whoever
//! comes again after that is one more. What it returned counts as held for a day more: failures and nonsense
//! are quick to make. Kept in memory; after a restart it is what hosts' records and jobs say, without what
//! they returned.

use std::collections::BTreeMap;

use fallow_domain::{Duration, Instant};

use super::asking_hosts::INSTANCES_MAX;
use super::error::ProjectError;
use super::index;
use super::records::Host;
use super::store_keys::{Keys, job_of, tail};
use super::txn::Txn;

/// New hosts that an account may have at once: a room full of machines.
const NEW_MAX: usize = 64;
/// After so long it may have one more.
const NEXT_AFTER: Duration = Duration::from_mins(1);
/// So many of a host's first results are taken for valid before they are compared.
const BELIEVED: u64 = 4;
/// For so long after the last of them jobs that a new host returned count as held.
const RETURNED_FOR: Duration = Duration::from_hours(24);

/// What is known of a new host.
#[derive(Clone, Copy, Debug)]
struct NewHost {
    asked_at: Instant,
    instances: u64,
    /// Jobs that it holds, and the last of their deadlines.
    held: u64,
    until: Instant,
    /// Jobs that it returned, and when the last of them.
    returned: u64,
    returned_at: Instant,
}

impl NewHost {
    /// Jobs that it counts for.
    fn held(&self, now: Instant) -> u64 {
        let held = if now <= self.until { self.held } else { 0 };
        held + self.returned(now)
    }

    fn returned(&self, now: Instant) -> u64 {
        if (now - RETURNED_FOR..=now).contains(&self.returned_at) { self.returned } else { 0 }
    }

    fn asked_within(&self, window: Duration, now: Instant) -> bool {
        // What was asked in the future was asked before the clock was set back.
        (now - window..=now).contains(&self.asked_at)
    }
}

/// Those of one account.
#[derive(Debug, Default)]
struct OfAccount {
    hosts: BTreeMap<u64, NewHost>,
    /// When the last was let in.
    let_in_at: Option<Instant>,
}

/// The new hosts of all accounts outside the fleet.
#[derive(Debug, Default)]
pub(crate) struct NewHosts {
    accounts: BTreeMap<u64, OfAccount>,
}

/// Whether nothing that a host returned was found valid yet, and nothing else speaks for it: an agent of the
/// fleet is its account's only host.
pub(crate) fn is_new(txn: &Txn<'_>, keys: &Keys, host: &Host) -> Result<bool, ProjectError> {
    // Credit is granted with the first valid result.
    Ok(host.agent.is_none() && !txn.contains(&keys.host_credit(host.id))?)
}

impl NewHosts {
    /// Takes note of a new host in the store, by the jobs that it holds.
    pub(crate) fn load(&mut self, txn: &Txn<'_>, keys: &Keys, host: &Host) -> Result<(), ProjectError> {
        let Some(asked_at) = host.last_request else { return Ok(()) };
        let (prefix, mut held, mut until) = (keys.held_by(host.id), 0, Instant::EPOCH);
        for (key, _) in txn.scan(&prefix, None, usize::MAX)? {
            let Some((name, index)) = job_of(tail(&key, &prefix)) else { continue };
            let workunit = index::read(txn, keys, name)?;
            let job = workunit.as_ref().and_then(|workunit| workunit.jobs.get(index as usize));
            held += 1;
            until = job.and_then(|job| job.deadline).map_or(until, |deadline| until.max(deadline));
        }
        let instances = u64::from(host.ncpus);
        let hosts = &mut self.accounts.entry(host.account).or_default().hosts;
        hosts.insert(host.id, NewHost { asked_at, instances, held, until, returned: 0, returned_at: until });
        Ok(())
    }

    /// Whether a new host of the account may be sent work; if not, how long another has to wait for that.
    /// `window` is for how long who asked counts as there.
    pub(crate) fn let_in(
        &mut self,
        account: u64,
        host: u64,
        window: Duration,
        now: Instant,
    ) -> Result<(), Duration> {
        let of_account = self.accounts.entry(account).or_default();
        of_account.hosts.retain(|_, host| host.held(now) > 0 || host.asked_within(window, now));
        if let Some(known) = of_account.hosts.get_mut(&host) {
            known.asked_at = now;
            return Ok(());
        }
        let since = of_account.let_in_at.filter(|at| *at <= now).map(|at| now.since(at));
        if of_account.hosts.len() >= NEW_MAX
            && let Some(since) = since.filter(|since| *since < NEXT_AFTER)
        {
            return Err(NEXT_AFTER - since);
        }
        of_account.let_in_at = Some(now);
        let new = NewHost { asked_at: now, instances: 1, held: 0, until: now, returned: 0, returned_at: now };
        of_account.hosts.insert(host, new);
        Ok(())
    }

    /// Whether a host of an account is one of those that count.
    pub(crate) fn knows(&self, (account, host): (u64, u64)) -> bool {
        self.accounts.get(&account).is_some_and(|of_account| of_account.hosts.contains_key(&host))
    }

    /// A host of an account that was let in has so many instances.
    pub(crate) fn asked(&mut self, of: (u64, u64), instances: u64) {
        if let Some(known) = self.of(of) {
            known.instances = instances;
        }
    }

    /// It holds so many jobs. What it held before and holds no more, whoever reported it or gave it up, is
    /// returned.
    pub(crate) fn holds(&mut self, of: (u64, u64), held: u64, now: Instant) {
        if let Some(known) = self.of(of) {
            let gone = if now <= known.until { known.held.saturating_sub(held) } else { 0 };
            if gone > 0 {
                (known.returned, known.returned_at) = (known.returned(now) + gone, now);
            }
            known.held = held;
        }
    }

    /// How many of its successes are taken for valid before anybody knows: of the first few that it returns,
    /// so that it has work while they are compared.
    pub(crate) fn believed(&self, (account, host): (u64, u64), successes: u64, now: Instant) -> u64 {
        let known = self.accounts.get(&account).and_then(|of_account| of_account.hosts.get(&host));
        known.map_or(0, |known| successes.min(BELIEVED.saturating_sub(known.returned(now))))
    }

    /// It was sent so many jobs, the last of which is due then.
    pub(crate) fn sent(&mut self, of: (u64, u64), jobs: u64, due: Instant) {
        if let Some(known) = self.of(of) {
            known.held += jobs;
            known.until = known.until.max(due);
        }
    }

    /// Whether it counts for a job.
    pub(crate) fn has_any(&self, (account, host): (u64, u64), now: Instant) -> bool {
        let known = self.accounts.get(&account).and_then(|of_account| of_account.hosts.get(&host));
        known.is_some_and(|host| host.held(now) > 0)
    }

    /// It counts no longer. Says whether it did.
    pub(crate) fn forget(&mut self, account: u64, host: u64) -> bool {
        let of_account = self.accounts.get_mut(&account);
        of_account.is_some_and(|of_account| of_account.hosts.remove(&host).is_some())
    }

    /// Jobs that the new hosts of the account hold.
    pub(crate) fn held(&self, account: u64, now: Instant) -> u64 {
        self.hosts(account).map(|host| host.held(now)).sum()
    }

    /// Instances that those of them have together that asked within `window`: no more than one host has.
    pub(crate) fn instances(&self, account: u64, window: Duration, now: Instant) -> u64 {
        let there = self.hosts(account).filter(|host| host.asked_within(window, now));
        there.map(|host| host.instances).sum::<u64>().min(INSTANCES_MAX)
    }

    fn hosts(&self, account: u64) -> impl Iterator<Item = &NewHost> {
        self.accounts.get(&account).into_iter().flat_map(|of_account| of_account.hosts.values())
    }

    fn of(&mut self, (account, host): (u64, u64)) -> Option<&mut NewHost> {
        self.accounts.get_mut(&account)?.hosts.get_mut(&host)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: Duration = Duration::from_mins(10);

    fn at(minutes: i64) -> Instant {
        Instant::EPOCH + Duration::from_mins(1_000 + minutes)
    }

    #[test]
    fn r6_10_an_account_brings_64_new_hosts_at_once_and_then_one_a_minute() {
        let mut new = NewHosts::default();
        let mut let_in = |host: u64, now| new.let_in(1, host, WINDOW, now);
        assert!((0..64).all(|host| let_in(host, at(0)).is_ok()));
        assert_eq!(let_in(64, at(0)), Err(NEXT_AFTER));
        assert_eq!(let_in(63, at(0)), Ok(()), "it is there already");
        assert_eq!(let_in(64, at(1)), Ok(()));
        assert_eq!(let_in(65, at(1)), Err(NEXT_AFTER));
        // The clock was set back.
        assert_eq!(let_in(65, at(-100)), Ok(()));
        assert_eq!(new.let_in(2, 65, WINDOW, at(0)), Ok(()), "another account");
    }

    #[test]
    fn r6_10_new_hosts_count_until_they_are_away_and_their_jobs_are_due_or_one_of_their_results_is_valid() {
        let mut new = NewHosts::default();
        let fill = |new: &mut NewHosts, from: u64, now| {
            (from..from + 100).filter(|host| new.let_in(1, *host, WINDOW, now).is_ok()).count()
        };
        assert_eq!(fill(&mut new, 0, at(0)), 64);
        (0..4).for_each(|host| new.asked((1, host), 4));
        (0..4).for_each(|host| new.sent((1, host), 4, at(60)));
        assert_eq!((new.held(1, at(60)), new.held(1, at(61))), (16, 0));
        assert_eq!((new.instances(1, WINDOW, at(0)), new.instances(1, WINDOW, at(11))), (76, 0));
        assert_eq!(fill(&mut new, 100, at(11)), 60);
        assert!(new.forget(1, 0) && !new.forget(1, 0));
        assert_eq!(fill(&mut new, 200, at(11)), 1);
        assert_eq!(fill(&mut new, 300, at(61)), 64);
        (300..364).for_each(|host| new.asked((1, host), 4));
        assert_eq!(new.instances(1, WINDOW, at(61)), INSTANCES_MAX);
    }

    #[test]
    fn r6_10_jobs_that_a_new_host_returned_count_as_held_for_a_day() {
        let mut new = NewHosts::default();
        assert_eq!(new.let_in(1, 1, WINDOW, at(0)), Ok(()));
        new.sent((1, 1), 4, at(60));
        assert_eq!(new.believed((1, 1), 9, at(1)), 4);
        new.holds((1, 1), 0, at(1));
        assert_eq!(new.believed((1, 1), 9, at(1)), 0);
        let day = 60 * 24;
        assert_eq!([1, 30, 61, day + 1, day + 2].map(|minute| new.held(1, at(minute))), [4, 4, 4, 4, 0]);
        assert_eq!([day + 1, day + 2].map(|minute| new.has_any((1, 1), at(minute))), [true, false]);
        new.holds((1, 1), 0, at(day + 2));
        assert_eq!(new.held(1, at(day + 2)), 0, "what it returned long ago counts no more");
        assert!(!new.knows((1, 2)), "nobody has let it in");
    }
}
