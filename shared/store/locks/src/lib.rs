//! Locks for sled 0.34, in the place of `parking_lot` 0.11, which it asks for.
//!
//! Purpose: an idle daemon sleeps. sled keeps seven threads for its files, and each of them looks once a
//! second whether there is work, though whoever has some wakes them all: 420 wake-ups a minute, nearly all
//! that an idle agent has (R6.2). Here these seven wait for an hour instead. All else is `parking_lot` 0.12,
//! so that sled no longer brings in 0.11 and `instant`, which nobody maintains.
//!
//! Model: sled asks for a wait with an end ([`Condvar::wait_until`]) in that one place. Its threads are named
//! `sled-io-NUMBER`, and the first seven never end; further ones, which it starts under load, end after a few
//! seconds without work, so that their waits stay as short as they are asked for.
#![forbid(unsafe_code)]

use std::time::{Duration, Instant};

pub use maintained::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard, WaitTimeoutResult};

/// Threads of sled's that never end (its `DESIRED_WAITING_THREADS`).
const ENDLESS: u32 = 7;
/// How long they wait for work, unless somebody wakes them.
const LONG: Duration = Duration::from_secs(3600);

/// What threads wait at until another one wakes them.
#[derive(Debug, Default)]
pub struct Condvar(maintained::Condvar);

impl Condvar {
    /// One at which nobody waits.
    pub const fn new() -> Self {
        Self(maintained::Condvar::new())
    }

    /// Wakes one of those that wait. True if there was one.
    pub fn notify_one(&self) -> bool {
        self.0.notify_one()
    }

    /// Wakes all that wait. Says how many.
    pub fn notify_all(&self) -> usize {
        self.0.notify_all()
    }

    /// Waits until it is woken.
    pub fn wait<T: ?Sized>(&self, guard: &mut MutexGuard<'_, T>) {
        self.0.wait(guard);
    }

    /// The same, for so long at most.
    pub fn wait_for<T: ?Sized>(&self, guard: &mut MutexGuard<'_, T>, most: Duration) -> WaitTimeoutResult {
        self.0.wait_for(guard, most)
    }

    /// The same, until then at most; one of sled's endless threads waits longer.
    pub fn wait_until<T: ?Sized>(&self, guard: &mut MutexGuard<'_, T>, end: Instant) -> WaitTimeoutResult {
        let end = if is_endless(std::thread::current().name()) { end + LONG } else { end };
        self.0.wait_until(guard, end)
    }
}

fn is_endless(name: Option<&str>) -> bool {
    let number = name.and_then(|name| name.strip_prefix("sled-io-"));
    number.and_then(|number| number.parse::<u32>().ok()).is_some_and(|number| number < ENDLESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_threads_that_never_end_wait_longer_than_they_are_asked_to() {
        let named = |name: &str| is_endless(Some(name));
        assert!(named("sled-io-0") && named("sled-io-6"));
        assert!(!named("sled-io-7") && !named("sled-io-60") && !named("sled-io-") && !named("main"));
        assert!(!is_endless(None));
    }
}
