//! Who asked for work lately, and so may take a job that failed elsewhere.
//!
//! A copy of a failed job goes to another account first: the fault may be the host's. When all that asked for work within
//! [`LATELY`] have had a copy, there is nobody else, and waiting for somebody would be for ever: then it goes to the same
//! host again, until the workunit's limit of errors ends it.
//!
//! Some of those may be unable to run it: no version for their platform or for the types that they ask for, too little
//! memory or disk, too slow for the deadline. What each is was seen when it asked ([`Means`]), so that it does not matter
//! whether it got other work then. Others ask while the job waits, could take more, and go away with nothing. When only
//! such are left, it waits for [`PATIENCE`] at most. Those that are merely busy are waited for as long as they asked
//! [`LATELY`], or one broken host that is always idle would use up the attempts of every workunit. After that long,
//! whoever asks gets it.

use std::collections::{BTreeMap, BTreeSet};

use fallow_domain::{Duration, Instant, PerType};

use super::error::ProjectError;
use super::keys::Keys;
use super::records::Host;
use super::scheduler::Means;
use super::txn::{Txn, decode};

/// Machines of people are on at some time of each day.
const LATELY: Duration = Duration::from_hours(24);
/// How long a job that failed waits when all others that ask go away with nothing or cannot run it. Idle hosts ask every
/// few minutes.
const PATIENCE: Duration = Duration::from_mins(30);

/// Accounts and when they last asked for work.
#[derive(Debug, Default)]
pub(crate) struct Seekers {
    all: BTreeMap<u64, Seeker>,
    swept: Option<Instant>,
}

/// An account that asks for work.
#[derive(Debug, Default)]
struct Seeker {
    /// When it last asked for work of each type.
    asked: PerType<Option<Instant>>,
    /// What its hosts are; none as long as only the store told of it.
    means: Option<Means>,
    /// When it could have taken more and last got nothing.
    left_without: Option<Instant>,
}

impl Seeker {
    /// For which types it asked lately.
    fn asks(&self, now: Instant) -> PerType<bool> {
        self.asked.map(|_, last| last.is_some_and(|last| now.since(last) <= LATELY))
    }

    fn is_there(&self, now: Instant) -> bool {
        self.asks(now).iter().any(|(_, asks)| *asks)
    }
}

impl Seekers {
    /// As it follows from the hosts in the store, but for those of an account that is sent no work.
    pub(crate) fn load(txn: &Txn<'_>, keys: &Keys, but: u64) -> Result<Self, ProjectError> {
        let mut seekers = Self::default();
        for (key, value) in txn.scan(&keys.hosts(), None, usize::MAX)? {
            let host: Host = decode("host", &key, &value)?;
            if let Some(at) = host.last_request.filter(|_| host.account != but) {
                seekers.asked(host.account, &PerType::from_fn(|_| true), None, at);
            }
        }
        Ok(seekers)
    }

    /// An account asked for work of these types; what its host is, if that is known.
    pub(crate) fn asked(&mut self, account: u64, types: &PerType<bool>, means: Option<Means>, now: Instant) {
        let seeker = self.all.entry(account).or_default();
        for (kind, _) in types.iter().filter(|(_, asks)| **asks) {
            seeker.asked[kind] = seeker.asked[kind].max(Some(now));
        }
        if let Some(means) = means {
            seeker.means = Some(match seeker.means.take() {
                Some(before) => before.renewed(means),
                None => means,
            });
        }
        if self.swept.is_none_or(|swept| now < swept || now.since(swept) > LATELY) {
            self.swept = Some(now);
            self.all.retain(|_, seeker| seeker.is_there(now));
        }
    }

    /// An account asked, could have taken more, and got nothing.
    pub(crate) fn left_without(&mut self, account: u64, now: Instant) {
        self.all.entry(account).or_default().left_without = Some(now);
    }

    /// Whether anybody but these asked for work lately.
    pub(crate) fn has_others(&self, than: &BTreeSet<u64>, now: Instant) -> bool {
        self.all.iter().any(|(id, seeker)| seeker.is_there(now) && !than.contains(id))
    }

    /// Whether a job that waits since then, of a workunit that failed on the account that asks, is for that account
    /// again. `had` are all that had a copy; `can` says whether an account that is this and asks for these types could
    /// run it.
    pub(crate) fn is_for_anybody(
        &self,
        had: &BTreeSet<u64>,
        since: Instant,
        now: Instant,
        can: impl Fn(&Means, &PerType<bool>) -> bool,
    ) -> bool {
        let others = self.all.iter().filter(|(id, seeker)| seeker.is_there(now) && !had.contains(id));
        let mut others = others.map(|(_, seeker)| seeker);
        let waited = now.since(since);
        let passed_it = |seeker: &Seeker| seeker.left_without.is_some_and(|at| at >= since);
        let cannot =
            |seeker: &Seeker| seeker.means.as_ref().is_some_and(|means| !can(means, &seeker.asks(now)));
        match () {
            () if waited >= LATELY => true,
            () if waited >= PATIENCE => others.all(|seeker| passed_it(seeker) || cannot(seeker)),
            () => others.next().is_none(),
        }
    }
}

#[cfg(test)]
mod tests {
    use fallow_domain::ResourceType;

    use super::*;

    fn ask(seekers: &mut Seekers, account: u64, now: Instant) {
        seekers.asked(account, &PerType::cpu(true), None, now);
    }

    fn is_for_anybody(seekers: &Seekers, had: &BTreeSet<u64>, since: Instant, now: Instant) -> bool {
        seekers.is_for_anybody(had, since, now, |_, _| true)
    }

    #[test]
    fn r6_8_a_failed_job_waits_for_others_as_long_as_there_are_any_and_not_for_ever() {
        let mut seekers = Seekers::default();
        let t = |minutes| Instant::EPOCH + Duration::from_mins(minutes);
        ask(&mut seekers, 1, t(0));
        assert!(is_for_anybody(&seekers, &[1].into(), t(0), t(0)), "there is nobody else");
        ask(&mut seekers, 2, t(1));
        assert!(!is_for_anybody(&seekers, &[1].into(), t(0), t(1)));
        assert!(is_for_anybody(&seekers, &[1, 2].into(), t(1), t(1)), "all have tried");
        assert!(!is_for_anybody(&seekers, &[1].into(), t(1), t(31)), "the other may be busy");
        seekers.left_without(2, t(1));
        assert!(!is_for_anybody(&seekers, &[1].into(), t(2), t(32)), "that was before it failed");
        assert!(!is_for_anybody(&seekers, &[1].into(), t(1), t(30)), "somebody new may come");
        assert!(is_for_anybody(&seekers, &[1].into(), t(1), t(31)), "the other cannot take it");
        ask(&mut seekers, 2, t(26 * 60));
        assert!(is_for_anybody(&seekers, &[1].into(), t(2 * 60), t(26 * 60)), "patience has an end");
        let mut seekers = Seekers::default();
        ask(&mut seekers, 2, t(1));
        // The other one is gone since yesterday.
        ask(&mut seekers, 1, t(26 * 60));
        assert!(is_for_anybody(&seekers, &[1].into(), t(26 * 60), t(26 * 60)));
    }

    #[test]
    fn r6_8_who_asked_for_a_gpu_this_day_is_waited_for_and_who_asks_for_cpus_alone_is_not() {
        let mut seekers = Seekers::default();
        let t = |minutes| Instant::EPOCH + Duration::from_mins(minutes);
        let cpu = PerType::cpu(true);
        let mut both = cpu;
        both[ResourceType::Nvidia] = true;
        seekers.asked(2, &both, Some(Means::default()), t(0));
        seekers.asked(2, &cpu, Some(Means::default()), t(23 * 60));
        let is_for_anybody = |since, now| {
            seekers.is_for_anybody(&[1].into(), since, now, |_, asks| asks[ResourceType::Nvidia])
        };
        assert!(!is_for_anybody(t(1), t(32)));
        assert!(!is_for_anybody(t(24 * 60 + 1), t(24 * 60 + 30)), "somebody new may come");
        assert!(is_for_anybody(t(24 * 60 + 1), t(24 * 60 + 31)));
    }
}
