//! The line of those who may have to give way, and the places that accounts keep. Time comes in.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::Patience;
use super::stream::Flow;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Rank {
    Silent,
    Idle,
    Asking,
    /// It asks, and has shown whose it is, which has no place for it.
    Shown,
    /// Or was, and not all of it is sent.
    Answered,
}

/// What comes of it when somebody is to give way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    Went,
    /// Not before then.
    At(Instant),
    /// All are known.
    Nobody,
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) next: u64,
    pub(super) all: BTreeMap<u64, Member>,
    /// Guests of each rank, by when they came to it; those that are being answered by when they took something last, as far
    /// as that was looked at.
    pub(super) lines: [BTreeSet<(Instant, u64)>; 5],
    /// Those that are being answered, by the begin of that.
    pub(super) answered: BTreeSet<(Instant, u64)>,
    /// Those that wait between two requests, by when they came.
    pub(super) idle: BTreeSet<(Instant, u64)>,
    /// Those that have asked and are not answered yet, by when they came.
    pub(super) asking: BTreeSet<(Instant, u64)>,
    /// When one of these was last sent away for its age.
    aged: Option<Instant>,
    pub(super) accounts: BTreeMap<String, Account>,
    /// Places that members may keep in all, and those that they do.
    most: usize,
    kept: usize,
    /// Those that would keep a place if members could keep more of them.
    pub(super) unplaced: BTreeSet<u64>,
}

#[derive(Debug)]
pub(super) struct Member {
    came: Instant,
    /// Where it stands in the line; nowhere while it is known.
    pub(super) stands: Option<(Rank, Instant)>,
    /// Of an account, while a request is in progress that showed it.
    whose: Option<String>,
    /// Requests in progress.
    pub(super) calls: usize,
    has_shown: bool,
    answered_since: Instant,
    flow: Arc<Flow>,
    /// None of one that was sent away.
    pub(super) away: Option<oneshot::Sender<()>>,
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

impl State {
    pub(super) fn new(most: usize) -> Self {
        Self {
            next: 0,
            all: BTreeMap::new(),
            lines: Default::default(),
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

    pub(super) fn enter(&mut self, flow: Arc<Flow>, away: oneshot::Sender<()>, now: Instant) -> u64 {
        let number = self.next;
        self.next += 1;
        let member = Member {
            came: now,
            stands: None,
            whose: None,
            calls: 0,
            has_shown: false,
            answered_since: now,
            flow,
            away: Some(away),
        };
        self.all.insert(number, member);
        self.stand(number, Some((Rank::Silent, now)));
        number
    }

    pub(super) fn leaves(&mut self, number: u64) {
        self.forget_whose(number);
        self.stand(number, None);
        self.all.remove(&number);
    }

    pub(super) fn has_shown(&self, number: u64) -> bool {
        self.all.get(&number).is_some_and(|member| member.has_shown)
    }

    /// Gives a connection another place in the line, or none.
    pub(super) fn stand(&mut self, number: u64, place: Option<(Rank, Instant)>) {
        let Some(member) = self.all.get_mut(&number) else { return };
        let ages = [(member.came, number), (member.answered_since, number)];
        if let Some((rank, since)) = std::mem::replace(&mut member.stands, place) {
            self.lines[rank as usize].remove(&(since, number));
            self.of_age(rank, ages, |line, age| line.remove(&age));
        }
        if let Some((rank, since)) = place {
            self.lines[rank as usize].insert((since, number));
            self.of_age(rank, ages, BTreeSet::insert);
        }
    }

    /// Where those of a rank stand by age: that of the connection, or of its answer.
    fn of_age(
        &mut self,
        rank: Rank,
        [came, answered]: [(Instant, u64); 2],
        change: impl FnOnce(&mut BTreeSet<(Instant, u64)>, (Instant, u64)) -> bool,
    ) {
        match rank {
            Rank::Silent => true,
            Rank::Idle => change(&mut self.idle, came),
            Rank::Asking | Rank::Shown => change(&mut self.asking, came),
            Rank::Answered => change(&mut self.answered, answered),
        };
    }
}

/// Requests.
impl State {
    pub(super) fn begins(&mut self, number: u64, may_ask: bool, now: Instant) {
        let Some(member) = self.all.get_mut(&number) else { return };
        member.calls += 1;
        if may_ask && member.stands.is_some_and(|(rank, _)| rank < Rank::Asking) {
            self.stand(number, Some((Rank::Asking, now)));
        }
    }

    /// Whose, of how many places at most, and whether he is an operator.
    pub(super) fn shows(
        &mut self,
        number: u64,
        (whose, most, is_operator): (&str, usize, bool),
        now: Instant,
    ) {
        let Some(member) = self.all.get_mut(&number) else { return };
        member.has_shown = true;
        // Whoever is known, or was sent away, stays so.
        let Some((rank, _)) = member.stands else { return };
        let asks = member.calls > 0;
        let shown = if asks { Rank::Shown } else { Rank::Idle };
        if rank < shown {
            self.stand(number, Some((shown, now)));
        }
        if asks {
            self.forget_whose(number);
            self.take_place(number, whose, most, is_operator);
        }
    }

    /// `may_ask` where any answer counts. Elsewhere a member without a place of its own would stay by requests of which each
    /// has an answer.
    pub(super) fn is_answered(&mut self, number: u64, may_ask: bool, now: Instant) {
        let Some(member) = self.all.get_mut(&number) else { return };
        match member.stands {
            None => member.answered_since = now,
            Some((Rank::Asking | Rank::Shown, _)) if may_ask => {
                member.answered_since = now;
                self.stand(number, Some((Rank::Answered, now)));
            }
            // It may have to take it when its request has ended.
            Some((Rank::Shown, _)) => member.answered_since = now,
            Some(_) => {}
        }
    }

    pub(super) fn ends(&mut self, number: u64, may_ask: bool, now: Instant) {
        let Some(member) = self.all.get_mut(&number) else { return };
        member.calls -= 1;
        // Who was sent away stays so.
        if member.calls > 0 || member.away.is_none() || !(member.has_shown || may_ask) {
            return;
        }
        self.forget_whose(number);
        self.stand(number, Some((Rank::Idle, now)));
    }
}

/// Places of those who are known.
impl State {
    fn take_place(&mut self, number: u64, whose: &str, most: usize, is_operator: bool) {
        let Some(member) = self.all.get_mut(&number) else { return };
        member.whose = Some(whose.to_owned());
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
            self.stand(number, None);
            return;
        }
        self.unplaced.insert(number);
        while self.kept < self.most
            && let Some(first) = self.unplaced.pop_first()
        {
            self.kept += 1;
            self.stand(first, None);
        }
    }

    /// It is nobody's any more. What it kept is the next one's.
    fn forget_whose(&mut self, number: u64) {
        let whose = self.all.get_mut(&number).and_then(|member| member.whose.take());
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

    /// Whether those who are known have all the places that they may keep, and somebody would have one.
    pub(super) fn is_crowded(&self, turn: Turn) -> bool {
        let is_known = |member: &Member| member.stands.is_none() && member.away.is_some();
        let all_known = || !self.all.is_empty() && self.all.values().all(is_known);
        !self.unplaced.is_empty() || (turn == Turn::Nobody && all_known())
    }
}

/// Who gives way.
impl State {
    fn first(&self, rank: Rank) -> Option<(Instant, u64)> {
        self.lines[rank as usize].first().copied()
    }

    /// For somebody who has no place. There is none since `full_since`. Those who go for their age go one after the other: all of
    /// them in the time of an answer, or slower.
    pub(super) fn send_away(&mut self, patience: Patience, full_since: Instant, now: Instant) -> Turn {
        self.look(patience, now);
        // Where half of the guests say nothing, places come fast enough from them.
        let guests: usize = self.lines.iter().map(BTreeSet::len).sum();
        let is_silent = self.lines[Rank::Silent as usize].len() * 2 >= guests;
        let old = if is_silent { None } else { self.oldest_idle(patience, now) };
        // Of those who ask there goes one now and then all the same, or they would stay as long as silent ones come.
        let guests = u32::try_from(guests).unwrap_or(u32::MAX).max(1);
        let pause = if is_silent { patience.grace } else { patience.grace.min(patience.answer / guests) };
        let aged_enough = self.aged.map(|last| last + pause);
        let next_old = match old.map(|(at, number)| (aged_enough.map_or(at, |then| at.max(then)), number)) {
            Some((at, number)) if at <= now => {
                self.aged = Some(now);
                return self.go(number);
            }
            old => old.map(|(at, _)| at),
        };
        let turn = match self.send_due_away(patience, now) {
            Turn::At(next) => {
                self.send_asking_away(next, patience, aged_enough.max(Some(full_since + patience.grace)), now)
            }
            turn => turn,
        };
        match (turn, next_old) {
            (Turn::At(next), Some(old)) => Turn::At(next.min(old)),
            (turn, _) => turn,
        }
    }

    /// Whoever always has just asked for something is never due for that. If it has been there for longer than an answer may
    /// take, it goes between two requests. When that is, and who.
    fn oldest_idle(&mut self, patience: Patience, now: Instant) -> Option<(Instant, u64)> {
        while let Some((came, number)) = self.idle.first().copied() {
            let (at, member) = (came + patience.answer, self.all.get(&number)?);
            match member.stands {
                // Its answer is not all sent.
                Some((_, since)) if at <= now && member.flow.is_unsent() => {
                    let took = member.flow.took();
                    self.stand(number, Some((Rank::Answered, took.max(since))));
                }
                _ => return Some((at, number)),
            }
        }
        None
    }

    /// And if there is nothing between its requests, it goes with the last one, when the port was full for a while.
    fn send_asking_away(
        &mut self,
        next: Instant,
        patience: Patience,
        not_before: Option<Instant>,
        now: Instant,
    ) -> Turn {
        let Some((came, number)) = self.asking.first().copied() else { return Turn::At(next) };
        let old = came + patience.answer;
        let at = not_before.map_or(old, |then| old.max(then));
        if at > now {
            return Turn::At(next.min(at));
        }
        self.aged = Some(now);
        self.go(number)
    }

    fn send_due_away(&mut self, patience: Patience, now: Instant) -> Turn {
        let due = |(rank, patience)| self.first(rank).map(|(since, number)| (since + patience, number));
        let holders = [(Rank::Silent, patience.silent), (Rank::Idle, patience.grace)].map(due);
        let askers = [(Rank::Asking, patience.grace), (Rank::Shown, patience.grace)].map(due);
        let ready = |of: [Option<(Instant, u64)>; 2]| of.into_iter().flatten().find(|(at, _)| *at <= now);
        let soonest = |of: [Option<(Instant, u64)>; 2]| of.into_iter().flatten().map(|(at, _)| at).min();
        let holding = self.lines[Rank::Silent as usize].len() + self.lines[Rank::Idle as usize].len();
        if let Some((_, number)) = ready(holders) {
            return self.go(number);
        }
        // As long as those who only hold a place have half of all, places come fast enough from them alone. Were there
        // few of them, newcomers would wait for each.
        if let Some(at) = soonest(holders).filter(|_| holding * 2 >= self.all.len()) {
            return Turn::At(at);
        }
        if let Some((_, number)) = ready(askers) {
            return self.go(number);
        }
        let next = soonest(holders).into_iter().chain(soonest(askers)).min();
        match (self.send_answered_away(patience, now), next) {
            (Turn::At(at), Some(next)) => Turn::At(at.min(next)),
            (Turn::Nobody, Some(next)) => Turn::At(next),
            (turn, _) => turn,
        }
    }

    /// Looks how answers go: who took something since it was looked at last goes further back. One whose request has ended is
    /// idle, unless part of its answer waits to be sent.
    fn look(&mut self, patience: Patience, now: Instant) {
        while let Some((since, number)) = self.first(Rank::Answered)
            && let Some(member) = self.all.get(&number)
        {
            let took = member.flow.took();
            match () {
                () if member.calls == 0 && !member.flow.is_unsent() => {
                    self.stand(number, Some((Rank::Idle, took.max(since))));
                }
                () if took > since => self.stand(number, Some((Rank::Answered, took))),
                () => break,
            }
        }
        while let Some((since, number)) = self.first(Rank::Idle)
            && since + patience.grace <= now
            && let Some(member) = self.all.get(&number)
            && member.flow.is_unsent()
        {
            let took = member.flow.took();
            self.stand(number, Some((Rank::Answered, took.max(since))));
        }
    }

    fn send_answered_away(&mut self, patience: Patience, now: Instant) -> Turn {
        let (Some((took, slow)), Some((since, old))) =
            (self.first(Rank::Answered), self.answered.first().copied())
        else {
            return Turn::Nobody;
        };
        let (slow_goes, old_goes) = (took + patience.stall, since + patience.answer);
        match () {
            () if slow_goes <= now => self.go(slow),
            () if old_goes <= now => self.go(old),
            () => Turn::At(slow_goes.min(old_goes)),
        }
    }

    fn go(&mut self, number: u64) -> Turn {
        self.forget_whose(number);
        self.stand(number, None);
        if let Some(away) = self.all.get_mut(&number).and_then(|member| member.away.take()) {
            // If it has just ended, there is a place as well.
            let _ = away.send(());
        }
        Turn::Went
    }
}
