//! Who asked for work lately, and so may take a job that failed elsewhere.
//!
//! A copy of a failed job goes to another account first: the fault may be the host's. When all that asked for
//! work within [`LATELY`] have had a copy, there is nobody else, and waiting for somebody would be for ever:
//! then it goes to the same host again, until the workunit's limit of errors ends it: first to those that had
//! the fewest copies, so that one that is always first to ask does not use up the attempts of the others.
//!
//! Some of those may be unable to run it: no version for their platform or for the types that they ask for,
//! too little memory or disk, too slow for the deadline. What each has was seen when it asked
//! ([`HostLimits`]), so that it does not matter whether it got other work then. Others ask while the job
//! waits, could take more, and go away with nothing. When only such are left, it waits for [`PATIENCE`] at
//! most. Those that are merely busy are waited for as long as they asked [`LATELY`], or one broken host that
//! is always idle would use up the attempts of every workunit. After that long, whoever asks gets it.
//!
//! **Very many.** A fleet has a hundred thousand hosts, and a queue very many jobs that failed; whoever asks
//! is answered while nobody else is. So nobody looks at all: those that are much alike are in one class
//! ([`HostClass`]), in the order in which they last went away with nothing, and in those of their sizes and
//! speeds ([`HostClassMembers`]). A class whose best could not run a job, or whose worst could, is judged as
//! a whole; of one in between some members are looked at, in each order. If that decides nothing, one of the
//! others is waited for, but not for longer than [`UNKNOWN_WAIT`].

use std::collections::{BTreeMap, BTreeSet};

use fallow_domain::{Duration, Instant, PerType, ResourceType};

use super::host_class::{Feasible, HostClassMembers, Left};
use super::host_limits::{HostClass, HostLimits};

/// Machines of people are on at some time of each day.
const LATELY: Duration = Duration::from_hours(24);
/// How long a job that failed waits when all others that ask go away with nothing or cannot run it. Idle
/// hosts ask every few minutes.
const PATIENCE: Duration = Duration::from_mins(30);
/// The longest wait for an account of which it is not known whether it could run the job: half an hour, some
/// times over.
const UNKNOWN_WAIT: Duration = Duration::from_hours(2);

/// How far in the future an account may have asked: requests overtake each other. Further on is a time before
/// the clock was set back.
const AHEAD: Duration = Duration::from_mins(5);

/// Accounts that asked for work lately, and when. Whether a copied machine is one of them, or counts as the
/// first one, says `counted_requesters`.
#[derive(Clone, Debug, Default)]
pub(crate) struct RecentRequesters {
    /// Those that asked within [`LATELY`].
    all: BTreeMap<u64, Requester>,
    /// When each last asked for work of each type, the oldest first.
    by_time: BTreeSet<(Instant, u64, ResourceType)>,
    /// Those of clients outside the fleet.
    outside: BTreeSet<u64>,
    /// Those of copied machines, by what they count as where several must agree.
    copies: BTreeMap<u64, BTreeSet<u64>>,
    /// The same accounts by what they ask for and by host class; of accounts that only the store told of, no
    /// class is known.
    classes: BTreeMap<(PerType<bool>, Option<HostClass>), HostClassMembers>,
}

/// An account that asks for work.
#[derive(Clone, Debug, Default)]
struct Requester {
    /// When it last asked for work of each type.
    asked: PerType<Option<Instant>>,
    /// What its hosts can take; none as long as only the store told of it.
    limits: Option<HostLimits>,
    /// When it could have taken more of each type and last got nothing: while it has enough of one, it
    /// may ask for another in vain.
    left_without: PerType<Option<Instant>>,
    /// What it counts as where several must agree, if it is a copied machine's.
    copy_of: Option<u64>,
}

impl Requester {
    fn asks(&self) -> PerType<bool> {
        self.asked.map(|_, last| last.is_some())
    }

    /// When it last got nothing, of each type that it asks for.
    fn left(&self) -> Left {
        let asked = self.left_without.iter().filter(|(kind, _)| self.asked[*kind].is_some());
        asked.map(|(kind, left)| (kind, *left)).collect()
    }

    /// When it last got nothing of any of these types that it asks for; none if it may have enough of
    /// one of them.
    fn left_without(&self, types: &PerType<bool>) -> Option<Instant> {
        let of_each =
            self.left_without.iter().filter(|(kind, _)| types[*kind] && self.asked[*kind].is_some());
        of_each.map(|(_, left)| *left).min().flatten()
    }

    fn class(&self) -> (PerType<bool>, Option<HostClass>) {
        (self.asks(), self.limits.as_ref().map(HostLimits::host_class))
    }
}

impl RecentRequesters {
    /// An account asked for work of these types; what its host can take, if that is known.
    pub(crate) fn asked(
        &mut self,
        account: u64,
        types: &PerType<bool>,
        limits: Option<HostLimits>,
        now: Instant,
    ) {
        self.keep_lately(now);
        self.note(account, types, limits, now);
    }

    /// The same at any time, of which nothing is dropped.
    pub(crate) fn note(
        &mut self,
        account: u64,
        types: &PerType<bool>,
        limits: Option<HostLimits>,
        at: Instant,
    ) {
        self.change(account, |requester| {
            for (kind, _) in types.iter().filter(|(_, asks)| **asks) {
                requester.asked[kind] = requester.asked[kind].max(Some(at));
            }
            if let Some(limits) = limits {
                requester.limits = Some(match requester.limits.take() {
                    Some(before) => before.renewed(limits),
                    None => limits,
                });
            }
        });
    }

    /// Whether an account asked lately.
    pub(crate) fn knows(&mut self, account: u64, now: Instant) -> bool {
        self.keep_lately(now);
        self.all.contains_key(&account)
    }

    /// Whether an account asked for work after that, or is not known to ask at all.
    pub(crate) fn has_asked_since(&self, account: u64, since: Instant) -> bool {
        let last = |of: &Requester| of.asked.iter().filter_map(|(_, at)| *at).max();
        self.all.get(&account).and_then(last).is_none_or(|at| at > since)
    }

    /// An account that asked is no agent's.
    pub(crate) fn note_outside(&mut self, account: u64) {
        if self.all.contains_key(&account) {
            self.outside.insert(account);
        }
    }

    /// An account that asked is a copied machine's.
    pub(crate) fn note_copy(&mut self, account: u64, voter: u64) {
        if let Some(requester) = self.all.get_mut(&account) {
            requester.copy_of = Some(voter);
            self.copies.entry(voter).or_default().insert(account);
        }
    }

    /// How many copied machines asked lately that count as this account.
    pub(crate) fn copies(&mut self, voter: u64, now: Instant) -> usize {
        self.keep_lately(now);
        self.copies.get(&voter).map_or(0, BTreeSet::len)
    }

    /// How many accounts outside the fleet asked lately.
    pub(crate) fn outside(&mut self, now: Instant) -> usize {
        self.keep_lately(now);
        self.outside.len()
    }

    /// How many asked lately, or have something to do.
    pub(crate) fn count(&mut self, having: &BTreeSet<u64>, now: Instant) -> usize {
        self.keep_lately(now);
        self.all.len() + having.iter().filter(|account| !self.all.contains_key(account)).count()
    }

    /// An account asked for these types, could have taken more, and got nothing.
    pub(crate) fn left_without(&mut self, account: u64, types: &PerType<bool>, now: Instant) {
        self.change(account, |requester| {
            for (kind, _) in types.iter().filter(|(_, asks)| **asks) {
                requester.left_without[kind] = Some(now);
            }
        });
    }

    /// An account was closed: nobody waits for it.
    pub(crate) fn forget(&mut self, account: u64) {
        self.change(account, |requester| requester.asked = PerType::default());
    }

    /// Whether anybody but these asked for work lately.
    pub(crate) fn has_others(&mut self, than: &BTreeSet<u64>, now: Instant) -> bool {
        self.keep_lately(now);
        self.all.len() > than.iter().filter(|account| self.all.contains_key(account)).count()
    }

    /// Whether a job that waits since then, of a workunit that failed on the account that asks, is for
    /// that account again. A `since` later than `now` is from before the clock was set back: it counts
    /// as waited long enough. `had` are all that had a copy. The job is of these types; `can` says
    /// whether an account that is this and asks for these could run it: one that has more of everything
    /// can if another one can. With `voters`, of whom a machine and its copies are one, `had` are such;
    /// whether they could run it is looked at for each account.
    pub(crate) fn is_for_anybody(
        &mut self,
        voters: Option<&mut Self>,
        had: &BTreeSet<u64>,
        since: Instant,
        now: Instant,
        (types, can): (&PerType<bool>, impl Fn(&HostLimits, &PerType<bool>) -> bool),
    ) -> bool {
        let (waited, counts_voters) = (now.since(since), voters.is_some());
        if since > now || waited >= LATELY {
            return true;
        }
        if waited < PATIENCE {
            return !voters.unwrap_or(self).has_others(had, now);
        }
        self.keep_lately(now);
        let of = |account| {
            let requester = self.all.get(&account)?;
            Some((requester.left_without(types), requester.limits.as_ref()?))
        };
        let voter = |account| self.all.get(&account).and_then(|requester| requester.copy_of);
        let has_had =
            |account: u64| had.contains(&voter(account).filter(|_| counts_voters).unwrap_or(account));
        !self.classes.iter().any(|((asks, _), class)| {
            match class.find(types, (had.len(), has_had), since, |limits| can(limits, asks), of) {
                Feasible::No => false,
                Feasible::Yes => true,
                Feasible::Unknown => waited < UNKNOWN_WAIT,
            }
        })
    }

    /// Drops what was asked for too long ago. What was asked in the future, before the clock was set back,
    /// was asked now at the latest.
    fn keep_lately(&mut self, now: Instant) {
        while let Some((at, account, _)) = self.by_time.last().copied()
            && at.since(now) > AHEAD
        {
            self.change(account, |requester| {
                requester.asked = requester.asked.map(|_, last| last.map(|at| at.min(now)));
                requester.left_without = requester.left_without.map(|_, last| last.map(|at| at.min(now)));
            });
        }
        while let Some((at, account, kind)) = self.by_time.first().copied()
            && now.since(at) > LATELY
        {
            self.change(account, |requester| requester.asked[kind] = None);
        }
    }

    /// The only way to change what is known of an account: takes it out of its places and puts it into its
    /// new ones.
    fn change(&mut self, account: u64, change: impl FnOnce(&mut Requester)) {
        let mut requester = self.all.remove(&account).unwrap_or_default();
        let key = requester.class();
        if let Some(class) = self.classes.get_mut(&key) {
            class.remove(account, requester.left(), requester.limits.as_ref());
            if class.is_empty() {
                self.classes.remove(&key);
            }
        }
        for (at, kind) in times(&requester) {
            self.by_time.remove(&(at, account, kind));
        }
        change(&mut requester);
        if !requester.asked.iter().any(|(_, last)| last.is_some()) {
            self.outside.remove(&account);
            if let Some(voter) = requester.copy_of
                && let Some(copies) = self.copies.get_mut(&voter)
            {
                copies.remove(&account);
                if copies.is_empty() {
                    self.copies.remove(&voter);
                }
            }
            return;
        }
        self.by_time.extend(times(&requester).map(|(at, kind)| (at, account, kind)));
        let key = requester.class();
        let class = self.classes.entry(key).or_default();
        class.add(account, requester.left(), requester.limits.as_ref());
        self.all.insert(account, requester);
    }
}

#[cfg(test)]
impl RecentRequesters {
    /// Entries of what is kept of copied machines.
    pub(crate) fn kept_of_copies(&self) -> usize {
        self.copies.len() + self.copies.values().map(BTreeSet::len).sum::<usize>()
    }
}

/// When an account last asked for each type that it asked for.
fn times(requester: &Requester) -> impl Iterator<Item = (Instant, ResourceType)> {
    requester.asked.iter().filter_map(|(kind, last)| Some(((*last)?, kind)))
}

#[cfg(test)]
mod tests {
    use fallow_domain::{Bytes, ResourceType};
    use proptest::prelude::*;

    use super::*;

    fn ask(requesters: &mut RecentRequesters, account: u64, now: Instant) {
        requesters.asked(account, &PerType::cpu(true), None, now);
    }

    fn is_for_anybody(
        requesters: &mut RecentRequesters,
        had: &BTreeSet<u64>,
        since: Instant,
        now: Instant,
    ) -> bool {
        requesters.is_for_anybody(None, had, since, now, (&PerType::cpu(true), |_, _| true))
    }

    #[test]
    fn r6_8_a_failed_job_waits_for_others_as_long_as_there_are_any_and_not_for_ever() {
        let mut requesters = RecentRequesters::default();
        let t = |minutes| Instant::EPOCH + Duration::from_mins(minutes);
        ask(&mut requesters, 1, t(0));
        assert!(is_for_anybody(&mut requesters, &[1].into(), t(0), t(0)), "there is nobody else");
        ask(&mut requesters, 2, t(1));
        assert!(!is_for_anybody(&mut requesters, &[1].into(), t(0), t(1)));
        assert!(is_for_anybody(&mut requesters, &[1, 2].into(), t(1), t(1)), "all have tried");
        assert!(!is_for_anybody(&mut requesters, &[1].into(), t(1), t(31)), "the other may be busy");
        requesters.left_without(2, &PerType::cpu(true), t(1));
        assert!(!is_for_anybody(&mut requesters, &[1].into(), t(2), t(32)), "that was before it failed");
        assert!(!is_for_anybody(&mut requesters, &[1].into(), t(1), t(30)), "somebody new may come");
        assert!(is_for_anybody(&mut requesters, &[1].into(), t(1), t(31)), "the other cannot take it");
        ask(&mut requesters, 2, t(26 * 60));
        assert!(is_for_anybody(&mut requesters, &[1].into(), t(2 * 60), t(26 * 60)), "patience has an end");
        let mut requesters = RecentRequesters::default();
        ask(&mut requesters, 2, t(1));
        // The other one is gone since yesterday.
        ask(&mut requesters, 1, t(26 * 60));
        assert!(is_for_anybody(&mut requesters, &[1].into(), t(26 * 60), t(26 * 60)));
    }

    #[test]
    fn r6_8_of_very_many_that_asked_few_are_looked_at_for_each_failed_job() {
        let mut requesters = RecentRequesters::default();
        let t = |minutes| Instant::EPOCH + Duration::from_mins(minutes);
        for account in 1..=100_000 {
            requesters.asked(account, &PerType::cpu(true), Some(HostLimits::default()), t(0));
        }
        let looked_at = std::cell::Cell::new(0);
        for _ in 0..20 {
            let cannot = |_: &HostLimits, _: &PerType<bool>| {
                looked_at.set(looked_at.get() + 1);
                false
            };
            assert!(requesters.is_for_anybody(None, &[1].into(), t(1), t(40), (&PerType::cpu(true), cannot)));
        }
        assert!(looked_at.get() <= 20 * 2, "{}", looked_at.get());
    }

    #[test]
    fn r6_8_a_failed_job_waits_half_an_hour_however_many_hosts_that_are_much_alike_cannot_run_it() {
        let mut requesters = RecentRequesters::default();
        let t = |minutes| Instant::EPOCH + Duration::from_mins(minutes);
        let mut ask = |account, memory| {
            requesters.asked(
                account,
                &PerType::cpu(true),
                Some(HostLimits::with_memory(Bytes(memory))),
                t(0),
            );
            let can = |limits: &HostLimits, _: &PerType<bool>| limits.memory() >= Bytes(12_000_000_000);
            requesters.is_for_anybody(None, &[1].into(), t(1), t(31), (&PerType::cpu(true), can))
        };
        ask(1, 16_000_000_000);
        for account in 2..=200 {
            assert!(ask(account, 8_000_000_000 + account), "{account} hosts");
        }
        assert!(!ask(201, 13_000_000_000), "this one could, and may be busy");
    }

    #[test]
    fn r6_8_hosts_too_many_to_be_looked_at_are_waited_for_for_two_hours() {
        let mut requesters = RecentRequesters::default();
        let t = |minutes| Instant::EPOCH + Duration::from_mins(minutes);
        for account in 2..=10_000 {
            let [memory, disk] = if account % 2 == 0 { [15, 5] } else { [5, 15] };
            let limits = HostLimits::with_memory(Bytes(memory << 30)).with_disk(Bytes(disk << 30));
            requesters.asked(account, &PerType::cpu(true), Some(limits), t(0));
        }
        let looked_at = std::cell::Cell::new(0);
        let can = |limits: &HostLimits, _: &PerType<bool>| {
            looked_at.set(looked_at.get() + 1);
            limits.memory() >= Bytes(12 << 30) && limits.disk() >= Bytes(12 << 30)
        };
        assert!(!requesters.is_for_anybody(None, &[1].into(), t(1), t(120), (&PerType::cpu(true), can)));
        assert!(requesters.is_for_anybody(None, &[1].into(), t(1), t(121), (&PerType::cpu(true), can)));
        assert!(looked_at.get() <= 2 * 400, "{}", looked_at.get());
    }

    #[test]
    fn r6_8_who_asked_for_a_gpu_this_day_is_waited_for_and_who_asks_for_cpus_alone_is_not() {
        let mut requesters = RecentRequesters::default();
        let t = |minutes| Instant::EPOCH + Duration::from_mins(minutes);
        let cpu = PerType::cpu(true);
        let mut both = cpu;
        both[ResourceType::Nvidia] = true;
        requesters.asked(2, &both, Some(HostLimits::default()), t(0));
        requesters.asked(2, &cpu, Some(HostLimits::default()), t(23 * 60));
        let mut is_for_anybody = |since, now| {
            let can = |_: &HostLimits, asks: &PerType<bool>| asks[ResourceType::Nvidia];
            requesters.is_for_anybody(None, &[1].into(), since, now, (&both, can))
        };
        assert!(!is_for_anybody(t(1), t(32)));
        assert!(!is_for_anybody(t(24 * 60 + 1), t(24 * 60 + 30)), "somebody new may come");
        assert!(is_for_anybody(t(24 * 60 + 1), t(24 * 60 + 31)));
    }

    #[test]
    fn r6_8_who_asks_for_a_gpu_in_vain_is_waited_for_with_what_it_has_enough_of() {
        let mut requesters = RecentRequesters::default();
        let t = |minutes| Instant::EPOCH + Duration::from_mins(minutes);
        let (cpu, mut gpu) = (PerType::cpu(true), PerType::default());
        gpu[ResourceType::Nvidia] = true;
        for (types, minute) in [(&cpu, 0), (&gpu, 2)] {
            requesters.asked(2, types, Some(HostLimits::default()), t(minute));
        }
        requesters.left_without(2, &gpu, t(2));
        let mut is_for_anybody = |types: &PerType<bool>| {
            let can = |_: &HostLimits, asks: &PerType<bool>| types.iter().any(|(kind, of)| *of && asks[kind]);
            requesters.is_for_anybody(None, &[1].into(), t(1), t(32), (types, can))
        };
        assert_eq!([is_for_anybody(&cpu), is_for_anybody(&gpu)], [false, true]);
        requesters.left_without(2, &cpu, t(3));
        let can = |_: &HostLimits, _: &PerType<bool>| true;
        assert!(requesters.is_for_anybody(None, &[1].into(), t(1), t(32), (&cpu, can)));
    }

    #[test]
    fn r6_8_very_many_that_ask_for_their_gpus_in_vain_are_not_waited_for_while_their_cpus_have_enough() {
        let mut requesters = RecentRequesters::default();
        let t = |minutes| Instant::EPOCH + Duration::from_mins(minutes);
        let (cpu, mut gpu) = (PerType::cpu(true), PerType::default());
        gpu[ResourceType::Nvidia] = true;
        for account in 2..=1_000 {
            requesters.asked(account, &cpu, Some(HostLimits::default()), t(0));
            requesters.asked(account, &gpu, Some(HostLimits::default()), t(2));
            requesters.left_without(account, &gpu, t(2));
        }
        let mut is_for_anybody = |types: &PerType<bool>| {
            let can = |_: &HostLimits, asks: &PerType<bool>| types.iter().any(|(kind, of)| *of && asks[kind]);
            requesters.is_for_anybody(None, &[1].into(), t(1), t(32), (types, can))
        };
        assert_eq!([is_for_anybody(&cpu), is_for_anybody(&gpu)], [false, true]);
    }

    #[test]
    fn r6_8_who_asked_before_the_clock_was_set_back_is_waited_for_for_a_day_and_not_till_that_time_comes() {
        let t = |minutes| Instant::EPOCH + Duration::from_mins(minutes);
        let year = 365 * 24 * 60;
        let mut requesters = RecentRequesters::default();
        ask(&mut requesters, 2, t(year));
        requesters.left_without(2, &PerType::cpu(true), t(year));
        assert!(is_for_anybody(&mut requesters, &[1].into(), t(year), t(0)), "that time is not waited for");
        ask(&mut requesters, 1, t(0));
        assert!(!is_for_anybody(&mut requesters, &[1].into(), t(5), t(36)), "it went away before that");
        assert_eq!(requesters.count(&BTreeSet::new(), t(24 * 60)), 2);
        assert_eq!(requesters.count(&BTreeSet::new(), t(24 * 60 + 1)), 0);
    }

    /// What is said of [`RecentRequesters`], by looking at all: each account's last requests, memory and last
    /// times without a job of each type.
    #[derive(Default)]
    struct Plain(BTreeMap<u64, (Asked, u64, Asked)>);

    type Asked = PerType<Option<Instant>>;

    impl Plain {
        fn is_for_anybody(
            &self,
            had: &BTreeSet<u64>,
            (since, now): (Instant, Instant),
            (types, need): (&PerType<bool>, u64),
        ) -> bool {
            let lately = |at: &Option<Instant>| at.is_some_and(|at| now.since(at) <= LATELY);
            let mut others = self
                .0
                .iter()
                .filter(|(id, (asked, ..))| asked.iter().any(|(_, at)| lately(at)) && !had.contains(id));
            let waited = now.since(since);
            match () {
                () if waited >= LATELY => true,
                () if waited >= PATIENCE => others.all(|(_, (asked, memory, left))| {
                    let is_busy = |kind| lately(&asked[kind]) && left[kind].is_none_or(|at| at < since);
                    *memory < need || !types.iter().any(|(kind, of)| *of && is_busy(kind))
                }),
                () => others.next().is_none(),
            }
        }
    }

    proptest! {
        #[test]
        fn r6_8_who_is_waited_for_is_the_same_as_if_all_were_looked_at(
            steps in prop::collection::vec((1_u64..9, 0_i64..400, 0_u64..40, 0_usize..3, any::<bool>()), 1..40),
            questions in prop::collection::vec(
                (prop::collection::btree_set(1_u64..9, 0..4), 0_i64..1_500, 0_u64..40, 0_usize..3),
                1..9,
            ),
            crowd in (0_u64..150, 0_u64..40, any::<bool>()),
        ) {
            let (mut requesters, mut plain, mut now) = (RecentRequesters::default(), Plain::default(), Instant::EPOCH);
            let (many, memory, without) = crowd;
            let (mut both, mut gpus) = (PerType::cpu(true), PerType::default());
            (both[ResourceType::Nvidia], gpus[ResourceType::Nvidia]) = (true, true);
            let all_types = [PerType::cpu(true), gpus, both];
            for account in 100..100 + many {
                requesters.asked(account, &both, Some(HostLimits::with_memory(Bytes(memory))), now);
                if without {
                    requesters.left_without(account, &both, now);
                }
                let asked = both.map(|_, asks| asks.then_some(now));
                let left = both.map(|_, asks| (*asks && without).then_some(now));
                plain.0.insert(account, (asked, memory, left));
            }
            for (account, minutes, memory, types, without) in steps {
                now = now + Duration::from_mins(minutes);
                let types = all_types[types];
                requesters.asked(account, &types, Some(HostLimits::with_memory(Bytes(memory))), now);
                let entry = plain.0.entry(account).or_default();
                entry.1 = memory;
                types.iter().filter(|(_, asks)| **asks).for_each(|(kind, _)| entry.0[kind] = Some(now));
                if without {
                    requesters.left_without(account, &types, now);
                    types.iter().filter(|(_, asks)| **asks).for_each(|(kind, _)| entry.2[kind] = Some(now));
                }
                for (had, waited, need, of) in &questions {
                    let of = &all_types[*of];
                    let since = now - Duration::from_mins(*waited);
                    let can = |limits: &HostLimits, asks: &PerType<bool>| {
                        of.iter().any(|(kind, of)| *of && asks[kind]) && limits.memory() >= Bytes(*need)
                    };
                    let expected = plain.is_for_anybody(had, (since, now), (of, *need));
                    prop_assert_eq!(requesters.is_for_anybody(None, had, since, now, (of, can)), expected);
                }
            }
        }
    }
}
