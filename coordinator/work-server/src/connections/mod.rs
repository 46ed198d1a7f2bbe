//! Which connection is evicted when a port has no place left: one rule for both of the coordinator's ports
//! (R6.10).
//!
//! Anybody can open connections, and there are places for so many only. A connection is authenticated while a
//! request is in progress on it that shows whose it is; it keeps its place so long. Each account can keep a
//! few places, and all members (accounts that are no operator's) together leave some to others. Every other
//! connection can be evicted. When a newcomer finds no place, one of those is closed, in this order:
//!
//! 1. one that has not sent anything complete yet: the oldest;
//! 2. one that is idle between two requests: the one that has been so for longest;
//! 3. one whose request is not answered yet: the oldest;
//! 4. the same of an account that has all the places that it may keep: the oldest;
//! 5. one that is being answered, up to the last byte that the kernel takes: the one that has taken nothing
//!    of it for longest; where all take theirs, the oldest.
//!
//! Nobody stays by sending one request after another without end. A connection that is older than an answer
//! may take is evicted first, as soon as it is idle between two requests, unless half of those that can be
//! evicted have sent nothing. If it is never idle, it is evicted when the port was full for a while and no
//! other one is due. Such connections go one after the other.
//!
//! Nobody takes all places by saying nothing (`source`). One address (of IPv6: one network of 64 bits) may
//! have a quarter of the places with connections that have sent nothing complete: at a port for members, all
//! that are not authenticated. Where it has more, its oldest are closed for its newer ones as soon as they
//! may be. When a newcomer finds no place, or no descriptor, the oldest of an address that has more than a
//! quarter of all that are there is closed at once. Below that, too, the oldest of the address that has most
//! goes before others' that are as silent.
//!
//! Each is left some time first ([`Timeouts`]). Nothing here is done for each packet: a connection changes
//! its class with a request's begin and end, and how far an answer has come is looked at when one has to be
//! evicted.

mod call;
mod eviction_queue;
mod source;
mod stream;
#[cfg(test)]
mod tests;

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, sleep_until};

use self::eviction_queue::{Eviction, EvictionQueue};
use self::stream::Flow;

pub use self::call::{Call, attend};
pub use self::source::Source;
pub use self::stream::TrackedStream;

/// How long a connection that is not authenticated is left before it may be evicted.
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    /// As long as it has not sent anything complete.
    pub silent: Duration,
    /// In every other class.
    pub grace: Duration,
    /// Between two parts of an answer that it takes.
    pub stall: Duration,
    /// With an answer of which it takes one part after the other; and how old a connection gets that sends
    /// one request after another.
    pub answer: Duration,
}

/// Whether requests without authentication count as activity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// They do: downloads and pages are for everybody.
    Public,
    /// They do not: a connection that is not authenticated has sent nothing yet, whatever it was.
    Authenticated {
        /// How long each request may take to authenticate. Little of it is read before.
        within: Duration,
    },
}

/// Connections that say nothing which an address may have however few places there are: that many begin at
/// once where a laboratory starts.
const SILENT_MIN: usize = 4;

/// How many connections that say nothing an address may have of so many.
fn part_of(connections: usize) -> usize {
    (connections / 4).max(SILENT_MIN)
}

/// All connections of a port.
#[derive(Clone, Debug)]
pub struct Connections(Arc<All>);

#[derive(Debug)]
struct All {
    timeouts: Timeouts,
    access: Access,
    /// Places that each member may keep, whatever it could have elsewhere: an eighth of those for all
    /// members, and two at least.
    each: usize,
    start: Instant,
    queue: Mutex<EvictionQueue>,
    /// A connection may be evicted that could not be before.
    changed: Notify,
}

/// One connection, in one of its requests if there is one. Whoever serves the request says here when it is
/// authenticated.
#[derive(Clone, Debug)]
pub struct ConnectionHandle {
    number: u64,
    flow: Arc<Flow>,
    /// Bytes that may still be read on its connection of requests that are not authenticated.
    allowance: Arc<AtomicUsize>,
    /// This request is authenticated.
    is_authenticated: Arc<AtomicBool>,
    all: Connections,
}

impl Connections {
    /// No connection yet, at a port of so many places. Members may keep `kept` of them in all, operators any.
    #[must_use]
    pub fn new(access: Access, timeouts: Timeouts, places: usize, kept: usize) -> Self {
        let silent = part_of(places);
        let (start, queue) = (Instant::now(), Mutex::new(EvictionQueue::new(kept, silent)));
        Self(Arc::new(All {
            timeouts,
            access,
            each: (kept / 8).max(2),
            start,
            queue,
            changed: Notify::new(),
        }))
    }

    fn queue(&self) -> MutexGuard<'_, EvictionQueue> {
        fallow_daemon::lock(&self.0.queue)
    }

    /// A new connection from an address, if that is known, and what receives a message when it is evicted.
    /// Evicts older ones of that address which say nothing, if there are too many.
    pub fn enter(&self, from: Option<IpAddr>) -> (ConnectionHandle, oneshot::Receiver<()>) {
        let (evict, evicted) = oneshot::channel();
        let flow = Arc::new(Flow::new(self.0.start));
        let number = {
            let (mut queue, now, source) = (self.queue(), Instant::now(), from.map(Source::of));
            if let Some(source) = source {
                queue.thin_out(source, self.0.timeouts, now);
            }
            queue.enter(flow.clone(), evict, source, now)
        };
        let allowance = Arc::new(AtomicUsize::new(call::UNAUTHENTICATED_MAX));
        (
            ConnectionHandle { number, flow, allowance, is_authenticated: Arc::default(), all: self.clone() },
            evicted,
        )
    }

    /// How many connections that say nothing an address has, if those are more than its part of all places.
    pub fn beyond_its_part(&self, from: IpAddr) -> Option<usize> {
        self.queue().count_beyond(Source::of(from))
    }

    /// Evicts one at once, if an address has more than its part of all that are here by saying nothing.
    pub fn evict_of_flood(&self) -> bool {
        self.queue().evict_beyond()
    }

    /// Evicts one, as soon as one may be, from a port that is full since then. Waits as long as all are
    /// authenticated. Calls `crowded` when members have all the places that they may keep.
    pub async fn evict_one(&self, full_since: Instant, crowded: impl Fn()) {
        loop {
            let (eviction, is_crowded) = {
                let mut queue = self.queue();
                let eviction = queue.evict(self.0.timeouts, full_since, Instant::now());
                (eviction, queue.is_crowded(eviction))
            };
            if is_crowded {
                crowded();
            }
            match eviction {
                Eviction::Done => return,
                Eviction::At(at) => tokio::select! {
                    () = sleep_until(at) => {}
                    () = self.0.changed.notified() => {}
                },
                Eviction::None => self.0.changed.notified().await,
            }
        }
    }
}

impl ConnectionHandle {
    /// The same in a request that is not authenticated yet.
    fn in_request(&self) -> Self {
        Self { is_authenticated: Arc::default(), ..self.clone() }
    }

    /// This request is authenticated as this account's. The connection keeps its place until no request is in
    /// progress on it. If others of the account have `most` places by now, or an eighth of those for all
    /// members, it waits for one of them, and can be evicted so long.
    pub fn authenticated_as(&self, whose: &str, most: usize) {
        self.authenticate(whose, most.min(self.all.0.each), false);
    }

    /// The same of an operator who is called so. He may keep a place that members leave.
    pub fn authenticated_as_operator(&self, whose: &str, most: usize) {
        self.authenticate(whose, most, true);
    }

    fn authenticate(&self, whose: &str, most: usize, is_operator: bool) {
        self.is_authenticated.store(true, Ordering::Relaxed);
        self.flow.is_known.store(true, Ordering::Relaxed);
        self.all.queue().authenticate(self.number, (whose, most, is_operator), Instant::now());
    }

    /// Whether any of its requests was ever authenticated.
    pub fn was_authenticated(&self) -> bool {
        self.all.queue().was_authenticated(self.number)
    }

    /// It has ended.
    pub fn leaves(&self) {
        self.all.queue().leaves(self.number);
    }

    /// A request begins, until the call is dropped.
    pub fn begins(&self) -> Call {
        self.all.queue().begins(self.number, self.all.0.access == Access::Public, Instant::now());
        Call(self.clone())
    }

    /// The head of its answer is there.
    fn is_answered(&self) {
        self.all.queue().is_answered(self.number, self.all.0.access == Access::Public, Instant::now());
    }

    /// A request has ended.
    fn ends(&self) {
        self.all.queue().ends(self.number, self.all.0.access == Access::Public, Instant::now());
        self.all.0.changed.notify_one();
    }
}
