//! Who gives way when a port has no place left: one rule for both of the coordinator's ports.
//!
//! Anybody can open connections, and there is room for so many only. A connection is known while a request is in
//! progress on it that shows whose it is; it keeps its place so long. Each account can keep a few, and all members together
//! leave some to others. All other connections are guests. When a newcomer finds no place, one of them gives way, in this
//! order:
//!
//! 1. who has not said anything whole yet: the oldest;
//! 2. who waits between two requests: whoever does so longest;
//! 3. who has asked and is not answered yet: the oldest;
//! 4. who has shown whose it is as well, which has all the places that it may keep: the oldest;
//! 5. who is being answered, up to the last byte that the kernel takes: whoever has taken nothing of it for longest; where all
//!    take theirs, the oldest.
//!
//! Nobody stays by asking for one thing after another without end. A connection that is older than an answer may take goes
//! first, as soon as it waits between two requests, unless half of the guests say nothing. If it never does, it goes when the
//! port was full for a while and nobody's time is over. Such connections go one after the other.
//!
//! Each is left some time first ([`Patience`]). Nothing here is done for each packet: a connection changes its place with a
//! request's begin and end, and how an answer goes is looked at when somebody has to give way.

mod call;
mod line;
mod stream;
#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, sleep_until};

use self::line::{State, Turn};
use self::stream::Flow;

pub use self::call::{Call, attend};
pub use self::stream::Attended;

/// How long guests are left in peace.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// Before they have said anything whole.
    pub silent: Duration,
    /// With whatever else they do, or do not do.
    pub grace: Duration,
    /// Between two parts of an answer.
    pub stall: Duration,
    /// With an answer of which they take one part after the other; and how old a connection gets that asks for one thing after
    /// another.
    pub answer: Duration,
}

/// Of which connections something counts that is asked without showing whose it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Open {
    /// Downloads and pages are for everybody.
    ToAll,
    /// Who is not known has said nothing yet, whatever it was.
    ToMembers {
        /// How long each request may take to show whose it is. Little of it is read before.
        greeting: Duration,
    },
}

/// All connections of a port.
#[derive(Clone, Debug)]
pub struct Guests(Arc<All>);

#[derive(Debug)]
struct All {
    patience: Patience,
    open: Open,
    /// Places that each member may keep, whatever it could have elsewhere: an eighth of those for all members, and two at
    /// least.
    each: usize,
    start: Instant,
    state: Mutex<State>,
    /// Somebody is a guest again.
    changed: Notify,
}

/// One connection, in one of its requests if there is one. Those who serve it say here when it is known whose it is.
#[derive(Clone, Debug)]
pub struct Guest {
    number: u64,
    flow: Arc<Flow>,
    /// What may still be read on its connection of requests that have not shown whose they are.
    greets: Arc<AtomicUsize>,
    /// This request has shown whose it is.
    shown: Arc<AtomicBool>,
    all: Guests,
}

impl Guests {
    /// Nobody is there yet. Members may keep `kept` places in all, operators any.
    #[must_use]
    pub fn new(open: Open, patience: Patience, kept: usize) -> Self {
        let (start, state) = (Instant::now(), Mutex::new(State::new(kept)));
        Self(Arc::new(All { patience, open, each: (kept / 8).max(2), start, state, changed: Notify::new() }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A new connection, and what is sent to it when it has to give way.
    pub fn enter(&self) -> (Guest, oneshot::Receiver<()>) {
        let (away, goes) = oneshot::channel();
        let flow = Arc::new(Flow::new(self.0.start));
        let number = self.state().enter(flow.clone(), away, Instant::now());
        let greets = Arc::new(AtomicUsize::new(call::GREETING_BYTES));
        (Guest { number, flow, greets, shown: Arc::default(), all: self.clone() }, goes)
    }

    /// Sends one away, as soon as one may be, from a port that is full since then. Waits as long as all are known. Calls
    /// `crowded` when those who are known have all the places that they may keep.
    pub async fn one_gives_way(&self, full_since: Instant, crowded: impl Fn()) {
        loop {
            let (turn, is_crowded) = {
                let mut state = self.state();
                let turn = state.send_away(self.0.patience, full_since, Instant::now());
                (turn, state.is_crowded(turn))
            };
            if is_crowded {
                crowded();
            }
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

impl Guest {
    /// The same in a request that has not shown anything yet.
    fn in_request(&self) -> Self {
        Self { shown: Arc::default(), ..self.clone() }
    }

    /// This request has shown whose it is. The connection keeps its place until none is in progress on it; if others of the
    /// same have `most` places by now, or an eighth of those for all members, it waits for one of them, and is a guest so long.
    pub fn is_known(&self, whose: &str, most: usize) {
        self.shows(whose, most.min(self.all.0.each), false);
    }

    /// The same of an operator. He may keep a place that members leave.
    pub fn is_operator(&self, most: usize) {
        self.shows("operator", most, true);
    }

    fn shows(&self, whose: &str, most: usize, is_operator: bool) {
        self.shown.store(true, Ordering::Relaxed);
        self.all.state().shows(self.number, (whose, most, is_operator), Instant::now());
    }

    /// Whether any of its requests has ever shown whose it is.
    pub fn has_shown(&self) -> bool {
        self.all.state().has_shown(self.number)
    }

    /// It has ended.
    pub fn leaves(&self) {
        self.all.state().leaves(self.number);
    }

    /// A request begins, until the call is dropped.
    pub fn begins(&self) -> Call {
        self.all.state().begins(self.number, self.all.0.open == Open::ToAll, Instant::now());
        Call(self.clone())
    }

    /// The head of its answer is there.
    fn is_answered(&self) {
        self.all.state().is_answered(self.number, self.all.0.open == Open::ToAll, Instant::now());
    }

    /// A request has ended.
    fn ends(&self) {
        self.all.state().ends(self.number, self.all.0.open == Open::ToAll, Instant::now());
        self.all.0.changed.notify_one();
    }
}
