//! Who waits for an agent's link, and how long (R6.10).
//!
//! Whoever has a host's certificate can open connections without end, each of which waits until it is known
//! whether it gets the link. So few may wait at once, and they go on one after the other, at a pace. The
//! process that has the link has places and a pace of its own for when it comes again: however many copies
//! come, they hold it up for nothing.

use tokio::sync::{Mutex, Semaphore, SemaphorePermit};
use tokio::time::{Instant, sleep_until};

use super::limits::{LINKS, WAITING};
use super::pace::{self, Pace};

/// The two lines in which connections wait for the link.
#[derive(Debug)]
pub(super) struct Arrivals {
    /// Of the process that has the link, by what it says of itself and others cannot know.
    holder: Line,
    others: Line,
}

impl Default for Arrivals {
    fn default() -> Self {
        Self { holder: Line::of(LINKS), others: Line::of(WAITING) }
    }
}

impl Arrivals {
    /// The line in which a connection waits.
    pub(super) const fn line(&self, is_holders: bool) -> &Line {
        if is_holders { &self.holder } else { &self.others }
    }
}

/// A line of connections.
#[derive(Debug)]
pub(super) struct Line {
    places: Semaphore,
    /// Who comes first goes on first.
    first: Mutex<()>,
    pace: Pace,
}

impl Line {
    fn of(places: usize) -> Self {
        Self { places: Semaphore::new(places), first: Mutex::default(), pace: Pace::default() }
    }

    /// A place in it, until it is dropped; none where there is no more.
    pub(super) fn place(&self) -> Option<SemaphorePermit<'_>> {
        self.places.try_acquire().ok()
    }

    /// Returns when it is the caller's turn. `rate` is what the agent may say in a second, in messages.
    pub(super) async fn turn(&self, rate: u32) {
        let _first = self.first.lock().await;
        if let Some(until) = self.pace.held_until(Instant::now()) {
            sleep_until(until).await;
        }
        self.pace.charge(pace::CONNECTION, rate, Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use fallow_daemon::lock;

    use tokio::task::JoinSet;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn r6_10_connections_of_a_host_wait_one_behind_the_other_and_no_more_of_them_than_there_are_places()
    {
        let (arrivals, passed) = (Arc::new(Arrivals::default()), Arc::new(std::sync::Mutex::new(Vec::new())));
        let (mut waiting, mut refused) = (JoinSet::new(), 0);
        // What was saved up is spent.
        for _ in 0..110 {
            arrivals.line(false).turn(500).await;
        }
        let begun = Instant::now();
        for _ in 0..10 * WAITING {
            let (arrivals, passed) = (arrivals.clone(), passed.clone());
            waiting.spawn(async move {
                let line = arrivals.line(false);
                let Some(_place) = line.place() else { return false };
                line.turn(500).await;
                lock(&passed).push(Instant::now());
                true
            });
        }
        while let Some(joined) = waiting.join_next().await {
            refused += usize::from(!joined.unwrap());
        }
        let passed = lock(&passed).clone();
        assert_eq!((refused, passed.len()), (9 * WAITING, WAITING));
        let each = Duration::from_secs(pace::CONNECTION.into()) / 500;
        assert!(passed.windows(2).all(|pair| pair[1] - pair[0] >= each), "{passed:?}");
        // Nobody waits for longer than agents wait for an answer.
        assert!(begun.elapsed() < Duration::from_secs(7), "{:?}", begun.elapsed());
        // Places are given back, also of those who went away while they waited.
        let given_up = arrivals.clone();
        let given_up = tokio::spawn(async move {
            let _place = given_up.line(false).place().unwrap();
            given_up.line(false).turn(500).await;
        });
        tokio::task::yield_now().await;
        given_up.abort();
        assert!(given_up.await.unwrap_err().is_cancelled());
        let all: Vec<_> = std::iter::from_fn(|| arrivals.line(false).place()).collect();
        assert_eq!(all.len(), WAITING);
        // Who has the link has places of its own, and waits for none of them.
        let own = arrivals.line(true);
        let _place = own.place().unwrap();
        let now = Instant::now();
        own.turn(500).await;
        assert_eq!(now, Instant::now());
    }
}
