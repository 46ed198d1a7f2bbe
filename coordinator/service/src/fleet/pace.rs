//! How fast one agent may speak (R6.10).
//!
//! What an agent says costs the coordinator time, and some of it leads to documents that are made for it
//! alone. Each agent has so much of that in a second, and may save it up for some seconds; beyond that its
//! stream is read later, and it waits: nothing is refused. An agent at its work is never held up: what it has
//! to say at first, of ten thousand jobs, is a tenth of what it has saved up.

use std::sync::Mutex;
use std::time::Duration;

use fallow_daemon::lock;
use tokio::time::Instant;

use super::limits::{BYTES_OF_MESSAGE, PROBE, SAVED_UP};

/// A new connection, with what it begins with.
pub(super) const CONNECTION: u32 = 50;
/// Documents that are made anew because the agent has other labels.
pub(super) const RELABELLED: u32 = 100;
/// So many entries cost as much as a message.
const ENTRIES: usize = 20;
/// An agent is held up for so long at most: less than it may take to say that it is there ([`PROBE`]), or it
/// would be taken for gone.
const LONGEST: Duration = Duration::from_secs(2);
const _: () = assert!(2 * LONGEST.as_secs() < PROBE.as_secs(), "it has to have time to answer");

/// What a message costs with so many entries and removals, in so many bytes.
pub(super) fn message(entries: usize, bytes: usize) -> u32 {
    u32::try_from(1 + (entries / ENTRIES).max(bytes / BYTES_OF_MESSAGE)).unwrap_or(u32::MAX)
}

/// The pace of what the process says that has the agent's link, and another one of the connections that want
/// it: however many copies come, nothing that the first process says is read later for that.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// When what it has said would be paid for if it had saved up nothing.
    paid: Mutex<Option<Instant>>,
}

impl Pace {
    /// It has said something that costs as much as so many messages, of which it has `rate` in a second.
    pub(super) fn charge(&self, cost: u32, rate: u32, now: Instant) {
        let time = Duration::from_secs(cost.into()) / rate.max(1);
        let mut paid = lock(&self.paid);
        let from = paid.map_or(now, |paid| paid.max(now));
        *paid = Some((from + time).min(now + SAVED_UP + LONGEST));
    }

    /// Until when nothing more of it is read; none if it may go on.
    pub(super) fn held_until(&self, now: Instant) -> Option<Instant> {
        let free = (*lock(&self.paid))?.checked_sub(SAVED_UP)?;
        (free > now).then_some(free)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r6_10_an_agent_says_much_at_once_and_then_no_more_than_its_pace() {
        let (pace, begin) = (Pace::default(), Instant::now());
        // The first snapshot of ten thousand jobs, after some new connections.
        (0..10).for_each(|_| pace.charge(CONNECTION, 500, begin));
        pace.charge(message(10_000, 4 << 20), 500, begin);
        assert_eq!(pace.held_until(begin), None);
        let (mut now, mut said) = (begin, 0);
        while now < begin + Duration::from_secs(100) {
            now = pace.held_until(now).unwrap_or(now);
            pace.charge(message(1, 300), 500, now);
            said += 1;
        }
        assert!((50_000..55_000).contains(&said), "{said}");
        // Whoever was silent has saved up, and no more than for some seconds.
        let later = now + Duration::from_hours(1);
        let at_once = (0..).take_while(|_| {
            pace.charge(1, 500, later);
            pace.held_until(later).is_none()
        });
        assert_eq!(at_once.count(), 5_000);
    }

    #[test]
    fn r6_10_long_messages_count_by_their_bytes_however_few_entries_are_in_them() {
        let (pace, mut now) = (Pace::default(), Instant::now());
        let (end, mut bytes) = (now + Duration::from_secs(100), 0);
        while now < end {
            now = pace.held_until(now).unwrap_or(now);
            pace.charge(message(1, 1 << 20), 500, now);
            bytes += 1 << 20;
        }
        // What 110 seconds allow, a message more.
        assert!(bytes < 110 * 500 * BYTES_OF_MESSAGE + (1 << 20), "{bytes}");
        assert!(bytes > 100 * 490 * BYTES_OF_MESSAGE, "{bytes}");
    }

    #[test]
    fn r6_10_whatever_an_agent_says_it_is_held_up_for_no_longer_than_it_may_be_silent() {
        let (pace, now) = (Pace::default(), Instant::now());
        (0..1_000).for_each(|_| pace.charge(u32::MAX, 1, now));
        assert!(pace.held_until(now).unwrap() <= now + LONGEST);
    }
}
