//! Who asked for work lately, and so may take a job that failed elsewhere.
//!
//! A copy of a failed job goes to another account first: the fault may be the host's. When all that asked for work within
//! [`LATELY`] have had a copy, there is nobody else, and waiting for somebody would be for ever: then it goes to the same
//! host again, until the workunit's limit of errors ends it.
//!
//! Some of those may be unable to run it (another platform, too little memory). They ask while it waits, and go away with
//! nothing: when all the others did, it waits for [`PATIENCE`] at most. Those that are merely busy are waited for as long
//! as they asked [`LATELY`], or one broken host that is always idle would use up the attempts of every workunit. After
//! that long, whoever asks gets it.

use std::collections::{BTreeMap, BTreeSet};

use fallow_domain::{Duration, Instant};

use super::error::ProjectError;
use super::keys::Keys;
use super::records::Host;
use super::txn::{Txn, decode};

/// Machines of people are on at some time of each day.
const LATELY: Duration = Duration::from_hours(24);
/// How long a job that failed waits when all others that ask go away with nothing. Idle hosts ask every few minutes.
const PATIENCE: Duration = Duration::from_mins(30);

/// Accounts and when they last asked for work.
#[derive(Debug, Default)]
pub(crate) struct Seekers {
    asked: BTreeMap<u64, Instant>,
    /// When those that could have taken more last got nothing.
    left_without: BTreeMap<u64, Instant>,
    swept: Option<Instant>,
}

impl Seekers {
    /// As it follows from the hosts in the store, but for those of an account that is sent no work.
    pub(crate) fn load(txn: &Txn<'_>, keys: &Keys, but: u64) -> Result<Self, ProjectError> {
        let mut seekers = Self::default();
        for (key, value) in txn.scan(&keys.hosts(), None, usize::MAX)? {
            let host: Host = decode("host", &key, &value)?;
            if let Some(at) = host.last_request.filter(|_| host.account != but) {
                seekers.asked(host.account, at);
            }
        }
        Ok(seekers)
    }

    /// An account asked for work.
    pub(crate) fn asked(&mut self, account: u64, now: Instant) {
        let last = self.asked.entry(account).or_insert(now);
        *last = (*last).max(now);
        if self.swept.is_none_or(|swept| now < swept || now.since(swept) > LATELY) {
            self.swept = Some(now);
            self.asked.retain(|_, last| now.since(*last) <= LATELY);
            self.left_without.retain(|_, last| now.since(*last) <= LATELY);
        }
    }

    /// An account asked, could have taken more, and got nothing.
    pub(crate) fn left_without(&mut self, account: u64, now: Instant) {
        self.left_without.insert(account, now);
    }

    /// Whether a job that waits since then, of a workunit that failed on the account that asks, is for that account
    /// again. `had` are all that had a copy.
    pub(crate) fn is_for_anybody(&self, had: &BTreeSet<u64>, since: Instant, now: Instant) -> bool {
        let is_lately = |last: &Instant| now.since(*last) <= LATELY;
        let mut others =
            self.asked.iter().filter(|(id, last)| is_lately(last) && !had.contains(id)).map(|(id, _)| id);
        let waited = now.since(since);
        let passed_it = |id: &u64| self.left_without.get(id).is_some_and(|at| *at >= since);
        match () {
            () if waited >= LATELY => true,
            () if waited >= PATIENCE => others.all(passed_it),
            () => others.next().is_none(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r6_8_a_failed_job_waits_for_others_as_long_as_there_are_any_and_not_for_ever() {
        let mut seekers = Seekers::default();
        let t = |minutes| Instant::EPOCH + Duration::from_mins(minutes);
        seekers.asked(1, t(0));
        assert!(seekers.is_for_anybody(&[1].into(), t(0), t(0)), "there is nobody else");
        seekers.asked(2, t(1));
        assert!(!seekers.is_for_anybody(&[1].into(), t(0), t(1)));
        assert!(seekers.is_for_anybody(&[1, 2].into(), t(1), t(1)), "all have tried");
        assert!(!seekers.is_for_anybody(&[1].into(), t(1), t(31)), "the other may be busy");
        seekers.left_without(2, t(1));
        assert!(!seekers.is_for_anybody(&[1].into(), t(2), t(32)), "that was before it failed");
        assert!(!seekers.is_for_anybody(&[1].into(), t(1), t(30)), "somebody new may come");
        assert!(seekers.is_for_anybody(&[1].into(), t(1), t(31)), "the other cannot take it");
        seekers.asked(2, t(26 * 60));
        assert!(seekers.is_for_anybody(&[1].into(), t(2 * 60), t(26 * 60)), "patience has an end");
        let mut seekers = Seekers::default();
        seekers.asked(2, t(1));
        // The other one is gone since yesterday.
        seekers.asked(1, t(26 * 60));
        assert!(seekers.is_for_anybody(&[1].into(), t(26 * 60), t(26 * 60)));
    }
}
