//! Who asked for work lately, as each workunit counts them (R6.8, R6.10).
//!
//! Where one result is enough, every account counts, also that of a copied machine: a job that failed on the
//! first one goes to a copy at once. Where several must agree, a machine and all its copies are one account
//! (`Workunit::counts_as`). So nobody waits there for a copy that never counts as another host, and who reads
//! how many hosts are there is not misled.
//!
//! **Cost.** There are two tables as soon as there is a copied machine; most fleets have none.

use std::collections::BTreeSet;

use fallow_domain::{Instant, PerType};

use super::error::ProjectError;
use super::host_limits::HostLimits;
use super::records::Host;
use super::requesters::RecentRequesters;
use super::store_keys::Keys;
use super::txn::{Txn, decode};
use super::workunit::{HostAccount, Workunit};

/// Accounts that asked for work lately, counted in both ways.
#[derive(Debug, Default)]
pub(crate) struct CountedRequesters {
    accounts: RecentRequesters,
    /// The same, of a machine and its copies one; none as long as there is no copy.
    voters: Option<RecentRequesters>,
}

impl CountedRequesters {
    /// As it follows from the hosts in the store, but for those of an account that is sent no work.
    pub(crate) fn load(txn: &Txn<'_>, keys: &Keys, but: u64) -> Result<Self, ProjectError> {
        let mut requesters = Self::default();
        for (key, value) in txn.scan(&keys.hosts(), None, usize::MAX)? {
            let host: Host = decode("host", &key, &value)?;
            if let Some(at) = host.last_request.filter(|_| host.account != but) {
                let all = PerType::from_fn(|_| true);
                requesters.note(host.host_account(), |table, account| table.note(account, &all, None, at));
                if host.agent.is_none() {
                    requesters.note_outside(host.account);
                }
            }
        }
        Ok(requesters)
    }

    fn note(&mut self, of: HostAccount, note: impl Fn(&mut RecentRequesters, u64)) {
        if of.voter != of.account {
            // Until now each account counted as itself.
            self.voters.get_or_insert_with(|| self.accounts.clone());
        }
        note(&mut self.accounts, of.account);
        if of.voter != of.account {
            self.accounts.note_copy(of.account, of.voter);
        }
        if let Some(voters) = &mut self.voters {
            note(voters, of.voter);
        }
    }

    /// A host asked for work of these types; what it can take, if that is known.
    pub(crate) fn asked(
        &mut self,
        of: HostAccount,
        types: &PerType<bool>,
        limits: Option<&HostLimits>,
        now: Instant,
    ) {
        self.note(of, |table, account| table.asked(account, types, limits.cloned(), now));
    }

    /// A host asked for work of these types, could have taken more, and got nothing.
    pub(crate) fn left_without(&mut self, of: HostAccount, types: &PerType<bool>, now: Instant) {
        self.note(of, |table, account| table.left_without(account, types, now));
    }

    /// A host was taken out of the fleet: nobody waits for it, and it counts no more.
    pub(crate) fn forget(&mut self, of: HostAccount, now: Instant) {
        self.accounts.forget(of.account);
        let is_left = self.accounts.knows(of.voter, now) || self.accounts.copies(of.voter, now) > 0;
        if let Some(voters) = self.voters.as_mut().filter(|_| !is_left) {
            voters.forget(of.voter);
        }
    }

    /// An account that asked is no agent's.
    pub(crate) fn note_outside(&mut self, account: u64) {
        self.accounts.note_outside(account);
    }

    /// How many accounts outside the fleet asked lately.
    pub(crate) fn outside(&mut self, now: Instant) -> usize {
        self.accounts.outside(now)
    }

    /// Those that asked, as a workunit counts them.
    pub(crate) fn counted(&mut self, workunit: &Workunit) -> &mut RecentRequesters {
        match &mut self.voters {
            Some(voters) if workunit.counts_voters() => voters,
            _ => &mut self.accounts,
        }
    }

    /// Whether nobody but these is waited for who could run a workunit that failed on whoever asks
    /// ([`RecentRequesters::is_for_anybody`]).
    pub(crate) fn is_for_anybody(
        &mut self,
        (workunit, had): (&Workunit, &BTreeSet<u64>),
        now: Instant,
        can: (&PerType<bool>, impl Fn(&HostLimits, &PerType<bool>) -> bool),
    ) -> bool {
        let voters = self.voters.as_mut().filter(|_| workunit.counts_voters());
        self.accounts.is_for_anybody(voters, had, workunit.quiet_since(now), now, can)
    }

    /// Whether an account asked for work lately.
    pub(crate) fn knows(&mut self, account: u64, now: Instant) -> bool {
        self.accounts.knows(account, now)
    }

    /// Whether an account asked for work after that, or has not asked for so long that nobody waits for it.
    pub(crate) fn has_asked_since(&mut self, account: u64, since: Instant) -> bool {
        self.accounts.has_asked_since(account, since)
    }

    /// How many asked lately, or have a copy or have computed one, that a workunit does not count by
    /// themselves.
    pub(crate) fn uncounted(&mut self, workunit: &Workunit, now: Instant) -> usize {
        let having = workunit.having().map(|of| of.account).collect();
        let all = self.accounts.count(&having, now);
        let having = workunit.having().map(|of| workunit.counts_as(of)).collect();
        all.saturating_sub(self.counted(workunit).count(&having, now))
    }

    /// What a host is told that waits for another one where several must agree, if it is one of several that
    /// count as one there.
    pub(crate) fn said_of_copies(&mut self, of: HostAccount, now: Instant) -> Option<String> {
        let accounts = &mut self.accounts;
        let all = accounts.copies(of.voter, now) + usize::from(accounts.knows(of.voter, now));
        let others = all.saturating_sub(usize::from(accounts.knows(of.account, now)));
        let who = match others {
            0 if of.voter == of.account => return None,
            0 => "This host is a copy of another machine: where several hosts must agree, both count as one"
                .to_owned(),
            others => {
                let others = if others == 1 { "1 other".to_owned() } else { format!("{others} others") };
                format!(
                    "This host and {others} are copies of one machine: where several hosts must agree, all count as one"
                )
            }
        };
        Some(format!(
            "{who}. To make one count by itself, enrol it anew in an empty directory, with a token from `fallow tokens create`"
        ))
    }
}

#[cfg(test)]
mod tests {
    use fallow_domain::Duration;

    use super::*;
    use crate::workunit::Rules;
    use crate::workunit::tests::workunit;

    #[test]
    fn r6_8_a_host_that_asked_before_the_clock_was_set_back_hides_no_other_after_a_restart() {
        let t = |minutes| Instant::EPOCH + Duration::from_mins(minutes);
        let dir = tempfile::tempdir().unwrap();
        let store = fallow_store::SledStore::open(dir.path()).unwrap();
        let (mut txn, keys) = (Txn::new(&store), Keys::new("p"));
        for (id, asked) in [(1, t(0)), (2, t(365 * 24 * 60)), (3, t(1))] {
            let host = Host {
                id,
                account: id,
                voter: 0,
                cpid: String::new(),
                name: String::new(),
                agent: None,
                created_at: t(0),
                last_rpc: asked,
                rpc_seqno: 0,
                last_request: Some(asked),
                ncpus: 1,
                told_delay: None,
                search_from: 0,
                waiting: false,
                copied_at: None,
                trials: fallow_policy::send::Trials::default(),
                top_ups: fallow_policy::send::TopUps::default(),
            };
            txn.put("host", keys.host(id), &host).unwrap();
        }
        let mut requesters = CountedRequesters::load(&txn, &keys, 0).unwrap();
        let nobody = BTreeSet::new();
        assert_eq!((requesters.accounts.count(&nobody, t(2)), requesters.outside(t(2))), (3, 3));
        assert_eq!(requesters.accounts.count(&nobody, t(24 * 60 + 2)), 1);
    }

    #[test]
    fn r6_10_a_machine_and_its_copies_are_one_where_several_must_agree_whoever_of_them_asks_first() {
        let t = |minutes| Instant::EPOCH + Duration::from_mins(minutes);
        let of =
            |quorum| workunit(Rules { quorum, initial_jobs: quorum, max_error_jobs: 3, max_total_jobs: 9 });
        let (one, two) = (of(1), of(2));
        // The first one, two copies, and a stranger.
        let hosts = [(1, 1), (2, 1), (3, 1), (4, 4)];
        for first in 0..hosts.len() {
            let mut requesters = CountedRequesters::default();
            for (account, voter) in hosts.iter().cycle().skip(first).take(hosts.len()) {
                let of = HostAccount { host: *account, account: *account, voter: *voter };
                requesters.asked(of, &PerType::cpu(true), None, t(0));
            }
            let mut count = |workunit| requesters.counted(workunit).count(&BTreeSet::new(), t(1));
            assert_eq!([count(&one), count(&two)], [4, 2]);
            assert_eq!([requesters.uncounted(&one, t(1)), requesters.uncounted(&two, t(1))], [0, 2]);
            let day = t(24 * 60 + 1);
            assert_eq!([requesters.uncounted(&one, day), requesters.uncounted(&two, day)], [0, 0]);
            let said = requesters.said_of_copies(HostAccount { host: 1, account: 1, voter: 1 }, day);
            assert_eq!(said, None, "they are gone");
            let said = requesters.said_of_copies(HostAccount { host: 2, account: 2, voter: 1 }, day).unwrap();
            assert!(said.starts_with("This host is a copy of another machine: "), "{said}");
        }
    }

    #[test]
    fn r6_10_of_very_many_copies_that_are_gone_nothing_is_kept() {
        let t = |minutes| Instant::EPOCH + Duration::from_mins(minutes);
        let mut requesters = CountedRequesters::default();
        let mut ask = |account, voter, now| {
            let of = HostAccount { host: account, account, voter };
            requesters.asked(of, &PerType::cpu(true), None, now);
            requesters.said_of_copies(of, now).unwrap_or_default()
        };
        let said = (1..=10_000).map(|account| ask(account, 1, t(0))).last().unwrap();
        assert!(said.starts_with("This host and 9999 others are copies of one machine"), "{said}");
        assert!(ask(2, 1, t(60)).contains(" 9999 others "));
        assert!(ask(2, 1, t(24 * 60 + 1)).starts_with("This host is a copy of another machine"));
        ask(10_001, 10_001, t(48 * 60 + 2));
        assert_eq!(requesters.accounts.kept_of_copies(), 0);
    }
}
