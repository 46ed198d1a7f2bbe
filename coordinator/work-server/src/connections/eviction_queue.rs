//! The queue of connections that can be evicted, by class, and the places that accounts keep. Time comes in.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::source::{SilentBySource, Source};
use super::stream::Flow;
use super::{Timeouts, part_of};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum EvictionClass {
    /// It has not sent anything complete yet.
    Silent,
    /// It waits between two requests.
    Idle,
    /// Its request is not answered yet.
    Asking,
    /// The same, and its request is authenticated, but its account has no place left for it.
    Authenticated,
    /// It is being answered, or the answer is not all sent yet.
    Answered,
}

/// Whether a connection could be evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Eviction {
    Done,
    /// Not before then.
    At(Instant),
    /// All are authenticated.
    None,
}

#[derive(Debug)]
pub(super) struct EvictionQueue {
    pub(super) next: u64,
    pub(super) all: BTreeMap<u64, ConnectionState>,
    /// Connections of each class, by when they came to it; those that are being answered by when they took
    /// something last, as far as that was looked at.
    pub(super) queues: [BTreeSet<(Instant, u64)>; 5],
    /// Those that have sent nothing complete, by where they come from; and how many of one source may be so.
    pub(super) silent: SilentBySource,
    silent_most: usize,
    /// Those that are being answered, by the begin of that.
    pub(super) answered: BTreeSet<(Instant, u64)>,
    /// Those that wait between two requests, by when they came.
    pub(super) idle: BTreeSet<(Instant, u64)>,
    /// Those that have asked and are not answered yet, by when they came.
    pub(super) asking: BTreeSet<(Instant, u64)>,
    /// When one of these was last evicted for its age.
    aged: Option<Instant>,
    pub(super) accounts: BTreeMap<String, Account>,
    /// Places that members may keep in all, and those that they do.
    most: usize,
    kept: usize,
    /// Those that would keep a place if members could keep more of them.
    pub(super) unplaced: BTreeSet<u64>,
}

#[derive(Debug)]
pub(super) struct ConnectionState {
    came: Instant,
    source: Option<Source>,
    /// Where it stands in the queue; nowhere while it is authenticated.
    pub(super) queued: Option<(EvictionClass, Instant)>,
    /// Its account, while a request is in progress that is authenticated.
    whose: Option<String>,
    /// Requests in progress.
    pub(super) calls: usize,
    was_authenticated: bool,
    answered_since: Instant,
    flow: Arc<Flow>,
    /// None of one that was evicted.
    pub(super) evict: Option<oneshot::Sender<()>>,
}

/// What one account holds.
#[derive(Debug, Default)]
pub(super) struct Account {
    /// How many of its places are taken.
    taken: usize,
    /// Connections for which it has none; the first gets the next.
    waits: BTreeSet<u64>,
    is_operator: bool,
}

impl EvictionQueue {
    pub(super) fn new(most: usize, silent_most: usize) -> Self {
        Self {
            next: 0,
            all: BTreeMap::new(),
            queues: Default::default(),
            silent: SilentBySource::default(),
            silent_most,
            answered: BTreeSet::new(),
            idle: BTreeSet::new(),
            asking: BTreeSet::new(),
            aged: None,
            accounts: BTreeMap::new(),
            most,
            kept: 0,
            unplaced: BTreeSet::new(),
        }
    }

    pub(super) fn enter(
        &mut self,
        flow: Arc<Flow>,
        evict: oneshot::Sender<()>,
        source: Option<Source>,
        now: Instant,
    ) -> u64 {
        let number = self.next;
        self.next += 1;
        let connection = ConnectionState {
            came: now,
            source,
            queued: None,
            whose: None,
            calls: 0,
            was_authenticated: false,
            answered_since: now,
            flow,
            evict: Some(evict),
        };
        self.all.insert(number, connection);
        self.requeue(number, Some((EvictionClass::Silent, now)));
        number
    }

    pub(super) fn leaves(&mut self, number: u64) {
        self.forget_whose(number);
        self.requeue(number, None);
        self.all.remove(&number);
    }

    pub(super) fn was_authenticated(&self, number: u64) -> bool {
        self.all.get(&number).is_some_and(|connection| connection.was_authenticated)
    }

    /// Gives a connection another place in the queue, or none.
    pub(super) fn requeue(&mut self, number: u64, place: Option<(EvictionClass, Instant)>) {
        let Some(connection) = self.all.get_mut(&number) else { return };
        let ages = [(connection.came, number), (connection.answered_since, number)];
        let source = connection.source;
        if let Some((class, since)) = std::mem::replace(&mut connection.queued, place) {
            self.queues[class as usize].remove(&(since, number));
            if let (EvictionClass::Silent, Some(source)) = (class, source) {
                self.silent.remove(source, (since, number));
            }
            self.of_age(class, ages, |eviction_queue, age| eviction_queue.remove(&age));
        }
        if let Some((class, since)) = place {
            self.queues[class as usize].insert((since, number));
            if let (EvictionClass::Silent, Some(source)) = (class, source) {
                self.silent.insert(source, (since, number));
            }
            self.of_age(class, ages, BTreeSet::insert);
        }
    }

    /// Where those of a class stand by age: that of the connection, or of its answer.
    fn of_age(
        &mut self,
        class: EvictionClass,
        [came, answered]: [(Instant, u64); 2],
        change: impl FnOnce(&mut BTreeSet<(Instant, u64)>, (Instant, u64)) -> bool,
    ) {
        match class {
            EvictionClass::Silent => true,
            EvictionClass::Idle => change(&mut self.idle, came),
            EvictionClass::Asking | EvictionClass::Authenticated => change(&mut self.asking, came),
            EvictionClass::Answered => change(&mut self.answered, answered),
        };
    }
}

/// Requests.
impl EvictionQueue {
    pub(super) fn begins(&mut self, number: u64, may_ask: bool, now: Instant) {
        let Some(connection) = self.all.get_mut(&number) else { return };
        connection.calls += 1;
        if may_ask && connection.queued.is_some_and(|(class, _)| class < EvictionClass::Asking) {
            self.requeue(number, Some((EvictionClass::Asking, now)));
        }
    }

    /// A request is authenticated: whose it is, how many places that account may have, and whether it is an
    /// operator's.
    pub(super) fn authenticate(
        &mut self,
        number: u64,
        (whose, most, is_operator): (&str, usize, bool),
        now: Instant,
    ) {
        let Some(connection) = self.all.get_mut(&number) else { return };
        connection.was_authenticated = true;
        // One that keeps its place, or was evicted, stays so.
        let Some((class, _)) = connection.queued else { return };
        let asks = connection.calls > 0;
        let next = if asks { EvictionClass::Authenticated } else { EvictionClass::Idle };
        if class < next {
            self.requeue(number, Some((next, now)));
        }
        if asks {
            self.forget_whose(number);
            self.take_place(number, whose, most, is_operator);
        }
    }

    /// `may_ask` where requests without authentication count. Elsewhere a member's connection without a place
    /// of its own would stay by requests of which each has an answer.
    pub(super) fn is_answered(&mut self, number: u64, may_ask: bool, now: Instant) {
        let Some(connection) = self.all.get_mut(&number) else { return };
        match connection.queued {
            None => connection.answered_since = now,
            Some((EvictionClass::Asking | EvictionClass::Authenticated, _)) if may_ask => {
                connection.answered_since = now;
                self.requeue(number, Some((EvictionClass::Answered, now)));
            }
            // It may have to take it when its request has ended.
            Some((EvictionClass::Authenticated, _)) => connection.answered_since = now,
            Some(_) => {}
        }
    }

    pub(super) fn ends(&mut self, number: u64, may_ask: bool, now: Instant) {
        let Some(connection) = self.all.get_mut(&number) else { return };
        connection.calls -= 1;
        // One that was evicted stays so.
        if connection.calls > 0 || connection.evict.is_none() || !(connection.was_authenticated || may_ask) {
            return;
        }
        self.forget_whose(number);
        self.requeue(number, Some((EvictionClass::Idle, now)));
    }
}

/// Places that accounts keep.
impl EvictionQueue {
    fn take_place(&mut self, number: u64, whose: &str, most: usize, is_operator: bool) {
        let Some(connection) = self.all.get_mut(&number) else { return };
        connection.whose = Some(whose.to_owned());
        let account = self.accounts.entry(whose.to_owned()).or_default();
        account.is_operator = is_operator;
        if account.taken >= most {
            account.waits.insert(number);
            return;
        }
        account.taken += 1;
        self.place(number, is_operator);
    }

    /// It has a place of its account's: it keeps it as soon as members may keep one more.
    fn place(&mut self, number: u64, is_operator: bool) {
        if is_operator {
            self.requeue(number, None);
            return;
        }
        self.unplaced.insert(number);
        while self.kept < self.most
            && let Some(first) = self.unplaced.pop_first()
        {
            self.kept += 1;
            self.requeue(first, None);
        }
    }

    /// It is no account's any more. The place that it kept is the next one's.
    fn forget_whose(&mut self, number: u64) {
        let whose = self.all.get_mut(&number).and_then(|connection| connection.whose.take());
        let Some(whose) = whose else { return };
        let Some(account) = self.accounts.get_mut(&whose) else { return };
        let is_operator = account.is_operator;
        let mut next = None;
        if !account.waits.remove(&number) {
            next = account.waits.pop_first();
            account.taken = account.taken - 1 + usize::from(next.is_some());
            if !is_operator && !self.unplaced.remove(&number) {
                self.kept -= 1;
            }
        }
        if account.taken == 0 && account.waits.is_empty() {
            self.accounts.remove(&whose);
        }
        match next {
            Some(next) => self.place(next, is_operator),
            // Of another account.
            None => {
                if let Some(next) = self.unplaced.first().copied() {
                    self.place(next, false);
                }
            }
        }
    }

    /// Whether members have all the places that they may keep, and another one would have one.
    pub(super) fn is_crowded(&self, eviction: Eviction) -> bool {
        let authenticated_as =
            |connection: &ConnectionState| connection.queued.is_none() && connection.evict.is_some();
        let all_known = || !self.all.is_empty() && self.all.values().all(authenticated_as);
        !self.unplaced.is_empty() || (eviction == Eviction::None && all_known())
    }
}

/// Which one is evicted.
impl EvictionQueue {
    fn first(&self, class: EvictionClass) -> Option<(Instant, u64)> {
        self.queues[class as usize].first().copied()
    }

    /// Evicts those of a source that say nothing and are due, if there are as many as it may have: one more
    /// comes from there.
    pub(super) fn thin_out(&mut self, source: Source, timeouts: Timeouts, now: Instant) {
        while let Some((count, (since, number))) = self.silent.of(source)
            && count >= self.silent_most
            && since + timeouts.silent <= now
        {
            self.evict_now(number);
        }
    }

    /// How many of a source say nothing, if those are more than it may have.
    pub(super) fn count_beyond(&self, source: Source) -> Option<usize> {
        let (count, _) = self.silent.of(source)?;
        (count > self.silent_most).then_some(count)
    }

    /// The oldest that says nothing, of the source that has most of them, if those are more than its part of
    /// all that are there: where descriptors are scarce these are fewer than there are places.
    fn beyond_its_part(&self) -> Option<u64> {
        let (count, (_, number)) = self.silent.most()?;
        (count > part_of(self.all.len())).then_some(number)
    }

    /// Evicts one of a source that has more than its part, if there is any.
    pub(super) fn evict_beyond(&mut self) -> bool {
        let beyond = self.beyond_its_part();
        beyond.is_some_and(|number| self.evict_now(number) == Eviction::Done)
    }

    /// Evicts one for a newcomer that has no place; there is none since `full_since`. Those that are evicted
    /// for their age go one after the other: all of them in the time of an answer, or slower.
    pub(super) fn evict(&mut self, timeouts: Timeouts, full_since: Instant, now: Instant) -> Eviction {
        if self.evict_beyond() {
            return Eviction::Done;
        }
        self.look(timeouts, now);
        // Where half of those that can be evicted have sent nothing, places come fast enough from them.
        let connections: usize = self.queues.iter().map(BTreeSet::len).sum();
        let is_silent = self.queues[EvictionClass::Silent as usize].len() * 2 >= connections;
        let old = if is_silent { None } else { self.oldest_idle(timeouts, now) };
        // One of those that keep asking is evicted now and then all the same, or they would stay as long as
        // silent ones come.
        let connections = u32::try_from(connections).unwrap_or(u32::MAX).max(1);
        let pause =
            if is_silent { timeouts.grace } else { timeouts.grace.min(timeouts.answer / connections) };
        let aged_enough = self.aged.map(|last| last + pause);
        let next_old = match old.map(|(at, number)| (aged_enough.map_or(at, |then| at.max(then)), number)) {
            Some((at, number)) if at <= now => {
                self.aged = Some(now);
                return self.evict_now(number);
            }
            old => old.map(|(at, _)| at),
        };
        let eviction = match self.evict_due(timeouts, now) {
            Eviction::At(next) => {
                self.evict_asking(next, timeouts, aged_enough.max(Some(full_since + timeouts.grace)), now)
            }
            eviction => eviction,
        };
        match (eviction, next_old) {
            (Eviction::At(next), Some(old)) => Eviction::At(next.min(old)),
            (eviction, _) => eviction,
        }
    }

    /// A connection that keeps asking is never idle long enough. Once it is older than an answer may take, it
    /// is evicted between two requests: when, and which.
    fn oldest_idle(&mut self, timeouts: Timeouts, now: Instant) -> Option<(Instant, u64)> {
        while let Some((came, number)) = self.idle.first().copied() {
            let (at, connection) = (came + timeouts.answer, self.all.get(&number)?);
            match connection.queued {
                // Its answer is not all sent.
                Some((_, since)) if at <= now && connection.flow.is_unsent() => {
                    let took = connection.flow.took();
                    self.requeue(number, Some((EvictionClass::Answered, took.max(since))));
                }
                _ => return Some((at, number)),
            }
        }
        None
    }

    /// One that is never idle between its requests is evicted during one, when the port was full for a while.
    fn evict_asking(
        &mut self,
        next: Instant,
        timeouts: Timeouts,
        not_before: Option<Instant>,
        now: Instant,
    ) -> Eviction {
        let Some((came, number)) = self.asking.first().copied() else { return Eviction::At(next) };
        let old = came + timeouts.answer;
        let at = not_before.map_or(old, |then| old.max(then));
        if at > now {
            return Eviction::At(next.min(at));
        }
        self.aged = Some(now);
        self.evict_now(number)
    }

    fn evict_due(&mut self, timeouts: Timeouts, now: Instant) -> Eviction {
        let due = |(class, timeouts)| self.first(class).map(|(since, number)| (since + timeouts, number));
        let holders =
            [(EvictionClass::Silent, timeouts.silent), (EvictionClass::Idle, timeouts.grace)].map(due);
        let askers =
            [(EvictionClass::Asking, timeouts.grace), (EvictionClass::Authenticated, timeouts.grace)]
                .map(due);
        let ready = |of: [Option<(Instant, u64)>; 2]| of.into_iter().flatten().find(|(at, _)| *at <= now);
        let soonest = |of: [Option<(Instant, u64)>; 2]| of.into_iter().flatten().map(|(at, _)| at).min();
        let holding = self.queues[EvictionClass::Silent as usize].len()
            + self.queues[EvictionClass::Idle as usize].len();
        if let Some((_, number)) = ready(holders) {
            // If it says nothing, the oldest of the source that has most of those goes for it.
            let is_silent = self.queues[EvictionClass::Silent as usize].first().map(|(_, first)| *first);
            let most = self.silent.most().filter(|_| is_silent == Some(number));
            let of_most = most.filter(|(_, (since, _))| *since + timeouts.silent <= now);
            return self.evict_now(of_most.map_or(number, |(_, (_, number))| number));
        }
        // As long as those who only hold a place have half of all, places come fast enough from them alone.
        // Were there few of them, newcomers would wait for each.
        if let Some(at) = soonest(holders).filter(|_| holding * 2 >= self.all.len()) {
            return Eviction::At(at);
        }
        if let Some((_, number)) = ready(askers) {
            return self.evict_now(number);
        }
        let next = soonest(holders).into_iter().chain(soonest(askers)).min();
        match (self.evict_answered(timeouts, now), next) {
            (Eviction::At(at), Some(next)) => Eviction::At(at.min(next)),
            (Eviction::None, Some(next)) => Eviction::At(next),
            (eviction, _) => eviction,
        }
    }

    /// Looks how far answers have come: a connection that took something since the last look goes further
    /// back. One whose request has ended is idle, unless part of its answer waits to be sent.
    fn look(&mut self, timeouts: Timeouts, now: Instant) {
        while let Some((since, number)) = self.first(EvictionClass::Answered)
            && let Some(connection) = self.all.get(&number)
        {
            let took = connection.flow.took();
            match () {
                () if connection.calls == 0 && !connection.flow.is_unsent() => {
                    self.requeue(number, Some((EvictionClass::Idle, took.max(since))));
                }
                () if took > since => self.requeue(number, Some((EvictionClass::Answered, took))),
                () => break,
            }
        }
        while let Some((since, number)) = self.first(EvictionClass::Idle)
            && since + timeouts.grace <= now
            && let Some(connection) = self.all.get(&number)
            && connection.flow.is_unsent()
        {
            let took = connection.flow.took();
            self.requeue(number, Some((EvictionClass::Answered, took.max(since))));
        }
    }

    fn evict_answered(&mut self, timeouts: Timeouts, now: Instant) -> Eviction {
        let (Some((took, slow)), Some((since, old))) =
            (self.first(EvictionClass::Answered), self.answered.first().copied())
        else {
            return Eviction::None;
        };
        let (slow_goes, old_goes) = (took + timeouts.stall, since + timeouts.answer);
        match () {
            () if slow_goes <= now => self.evict_now(slow),
            () if old_goes <= now => self.evict_now(old),
            () => Eviction::At(slow_goes.min(old_goes)),
        }
    }

    fn evict_now(&mut self, number: u64) -> Eviction {
        self.forget_whose(number);
        self.requeue(number, None);
        if let Some(evict) = self.all.get_mut(&number).and_then(|connection| connection.evict.take()) {
            // If it has just ended, there is a place as well.
            let _ = evict.send(());
        }
        Eviction::Done
    }
}
