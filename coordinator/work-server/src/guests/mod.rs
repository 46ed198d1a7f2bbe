//! Who gives way when a port has no place left: one rule for both of the coordinator's ports.
//!
//! Anybody can open connections, and there is room for so many only. A connection is known while a request is in
//! progress on it that shows whose it is; it keeps its place so long, and each account can keep a few. All others are
//! guests. When a newcomer finds no place, one of them gives way, in this order:
//!
//! 1. who has not said anything whole yet: the oldest;
//! 2. who waits between two requests: whoever does so longest;
//! 3. who has asked and is not answered yet: the oldest;
//! 4. who is being answered: whoever has taken nothing of it for longest; where all take theirs, the oldest.
//!
//! Each is left some time first ([`Patience`]). Nothing here is done for each packet: a connection changes its place with a
//! request's begin and end, and how an answer goes is looked at when somebody has to give way.

mod call;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, sleep_until};

pub use call::{Call, attend};

/// How long guests are left in peace.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// With whatever they do, or do not do.
    pub grace: Duration,
    /// Between two parts of an answer.
    pub stall: Duration,
    /// With an answer of which they take one part after the other.
    pub answer: Duration,
}

/// Of which connections something counts that is asked without showing whose it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Open {
    /// Downloads and pages are for everybody.
    ToAll,
    /// Who is not known has said nothing yet, whatever it was.
    ToMembers,
}

/// All connections of a port.
#[derive(Clone, Debug)]
pub struct Guests(Arc<All>);

#[derive(Debug)]
struct All {
    patience: Patience,
    open: Open,
    start: Instant,
    state: Mutex<State>,
    /// Somebody is a guest again.
    changed: Notify,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    Silent,
    Idle,
    Asking,
    Answered,
}

#[derive(Debug, Default)]
struct State {
    next: u64,
    all: BTreeMap<u64, Member>,
    /// Guests of each rank, by when they came to it; those that are being answered by when they took something last, as far
    /// as that was looked at.
    lines: [BTreeSet<(Instant, u64)>; 4],
    /// Those that are being answered, by the begin of that.
    answered: BTreeSet<(Instant, u64)>,
    /// How many connections are known, by whose they are.
    known: BTreeMap<String, usize>,
}

#[derive(Debug)]
struct Member {
    /// Where it stands in the line; nowhere while it is known.
    stands: Option<(Rank, Instant)>,
    whose: Option<String>,
    /// Requests in progress.
    calls: usize,
    has_shown: bool,
    answered_since: Instant,
    /// When it took a part of its answer last, in microseconds from the port's begin.
    took: Arc<AtomicU64>,
    away: Option<oneshot::Sender<()>>,
}

/// One connection. Those who serve it say here when it is known whose it is.
#[derive(Clone, Debug)]
pub struct Guest {
    number: u64,
    took: Arc<AtomicU64>,
    all: Guests,
}

/// What comes of it when somebody is to give way.
#[derive(Debug, PartialEq, Eq)]
enum Turn {
    Went,
    /// Not before then.
    At(Instant),
    /// All are known.
    Nobody,
}

impl Guests {
    /// Nobody is there yet.
    #[must_use]
    pub fn new(open: Open, patience: Patience) -> Self {
        let (start, state) = (Instant::now(), Mutex::default());
        Self(Arc::new(All { patience, open, start, state, changed: Notify::new() }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A new connection, and what is sent to it when it has to give way.
    pub fn enter(&self) -> (Guest, oneshot::Receiver<()>) {
        let (away, goes) = oneshot::channel();
        let (took, now) = (Arc::<AtomicU64>::default(), Instant::now());
        let mut state = self.state();
        let number = state.next;
        state.next += 1;
        let member = Member {
            stands: None,
            whose: None,
            calls: 0,
            has_shown: false,
            answered_since: now,
            took: took.clone(),
            away: Some(away),
        };
        state.all.insert(number, member);
        state.stand(number, Some((Rank::Silent, now)));
        (Guest { number, took, all: self.clone() }, goes)
    }

    /// Sends one away, as soon as one may be. Waits as long as all are known.
    pub async fn one_gives_way(&self) {
        loop {
            let turn = self.state().send_away(self.0.patience, self.0.start, Instant::now());
            match turn {
                Turn::Went => return,
                Turn::At(at) => tokio::select! {
                    () = sleep_until(at) => {}
                    () = self.0.changed.notified() => {}
                },
                Turn::Nobody => self.0.changed.notified().await,
            }
        }
    }
}

impl State {
    /// Gives a connection another place in the line, or none.
    fn stand(&mut self, number: u64, place: Option<(Rank, Instant)>) {
        let Some(member) = self.all.get_mut(&number) else { return };
        if let Some((rank, since)) = std::mem::replace(&mut member.stands, place) {
            self.lines[rank as usize].remove(&(since, number));
            self.answered.remove(&(member.answered_since, number));
        }
        if let Some((rank, since)) = place {
            self.lines[rank as usize].insert((since, number));
            if rank == Rank::Answered {
                self.answered.insert((member.answered_since, number));
            }
        }
    }

    fn first(&self, rank: Rank) -> Option<(Instant, u64)> {
        self.lines[rank as usize].first().copied()
    }

    fn send_away(&mut self, patience: Patience, start: Instant, now: Instant) -> Turn {
        let due = |rank| self.first(rank).map(|(since, number)| (since + patience.grace, number));
        let (silent, idle, asking) = (due(Rank::Silent), due(Rank::Idle), due(Rank::Asking));
        let holders = [Rank::Silent, Rank::Idle].map(|rank| self.lines[rank as usize].len());
        let first_holder = silent.into_iter().chain(idle).find(|(at, _)| *at <= now);
        let next = silent.into_iter().chain(idle).map(|(at, _)| at).min();
        match (first_holder, next, asking) {
            (Some((_, number)), ..) => self.go(number),
            // As long as those who only hold a place have half of all, places come fast enough from them alone. Were there
            // few of them, newcomers would wait for each.
            (None, Some(at), _) if holders.iter().sum::<usize>() * 2 >= self.all.len() => Turn::At(at),
            (.., Some((at, number))) if at <= now => self.go(number),
            _ => {
                let next = next.into_iter().chain(asking.map(|(at, _)| at)).min();
                match (self.send_answered_away(patience, start, now), next) {
                    (Turn::At(at), Some(next)) => Turn::At(at.min(next)),
                    (Turn::Nobody, Some(next)) => Turn::At(next),
                    (turn, _) => turn,
                }
            }
        }
    }

    fn send_answered_away(&mut self, patience: Patience, start: Instant, now: Instant) -> Turn {
        // Whoever took something since it was looked at last goes further back.
        while let Some((since, number)) = self.first(Rank::Answered)
            && let Some(member) = self.all.get(&number)
            && let took = start + Duration::from_micros(member.took.load(Ordering::Relaxed))
            && took > since
        {
            self.stand(number, Some((Rank::Answered, took)));
        }
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
        self.stand(number, None);
        if let Some(away) = self.all.get_mut(&number).and_then(|member| member.away.take()) {
            // If it has just ended, there is a place as well.
            let _ = away.send(());
        }
        Turn::Went
    }

    /// It is nobody's any more.
    fn forget_whose(&mut self, number: u64) {
        let whose = self.all.get_mut(&number).and_then(|member| member.whose.take());
        let Some(whose) = whose else { return };
        if let Some(known) = self.known.get_mut(&whose) {
            *known -= 1;
            if *known == 0 {
                self.known.remove(&whose);
            }
        }
    }
}

impl Guest {
    /// It has shown whose it is. It keeps its place until no request is in progress on it; if others of the same have `most`
    /// places by now, it stays a guest.
    pub fn is_known(&self, whose: &str, most: usize) {
        let mut state = self.all.state();
        let has_room = state.known.get(whose).is_none_or(|known| *known < most);
        let Some(member) = state.all.get_mut(&self.number) else { return };
        member.has_shown = true;
        let Some((rank, _)) = member.stands else { return };
        if member.calls > 0 && has_room {
            member.whose = Some(whose.to_owned());
            *state.known.entry(whose.to_owned()).or_default() += 1;
            state.stand(self.number, None);
        } else if rank == Rank::Silent {
            let rank = if member.calls > 0 { Rank::Asking } else { Rank::Idle };
            state.stand(self.number, Some((rank, Instant::now())));
        }
    }

    /// Whether it has ever shown whose it is.
    pub fn has_shown(&self) -> bool {
        self.all.state().all.get(&self.number).is_some_and(|member| member.has_shown)
    }

    /// It has ended.
    pub fn leaves(&self) {
        let mut state = self.all.state();
        state.forget_whose(self.number);
        state.stand(self.number, None);
        state.all.remove(&self.number);
    }

    /// A request begins, until the call is dropped.
    pub fn begins(&self) -> Call {
        let mut state = self.all.state();
        if let Some(member) = state.all.get_mut(&self.number) {
            member.calls += 1;
            let may_ask = self.all.0.open == Open::ToAll;
            if may_ask && member.stands.is_some_and(|(rank, _)| rank < Rank::Asking) {
                state.stand(self.number, Some((Rank::Asking, Instant::now())));
            }
        }
        Call(self.clone())
    }

    /// The head of its answer is there.
    fn is_answered(&self) {
        let now = Instant::now();
        let mut state = self.all.state();
        let Some(member) = state.all.get_mut(&self.number) else { return };
        let is_asking = member.stands.is_some_and(|(rank, _)| rank == Rank::Asking);
        if is_asking && self.all.0.open == Open::ToAll {
            member.answered_since = now;
            state.stand(self.number, Some((Rank::Answered, now)));
        }
    }

    /// There was room for one more part of its answer.
    fn takes(&self) {
        let micros = self.all.0.start.elapsed().as_micros();
        self.took.store(u64::try_from(micros).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// A request has ended.
    fn ends(&self) {
        let mut state = self.all.state();
        let Some(member) = state.all.get_mut(&self.number) else { return };
        member.calls -= 1;
        // Who was sent away stays so.
        if member.calls > 0 || member.away.is_none() {
            return;
        }
        if member.has_shown || self.all.0.open == Open::ToAll {
            state.forget_whose(self.number);
            state.stand(self.number, Some((Rank::Idle, Instant::now())));
        }
        drop(state);
        self.all.0.changed.notify_one();
    }
}
