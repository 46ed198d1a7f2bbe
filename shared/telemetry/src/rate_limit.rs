//! A rate limit for warnings that anybody can cause as often as he likes: one line at most every [`PAUSE`],
//! which tells how often it happened.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The shortest time between two log lines.
const PAUSE: Duration = Duration::from_secs(10);

/// The rate limit of one kind of warning.
#[derive(Debug, Default)]
pub struct RateLimit(Mutex<(Option<Instant>, u64)>);

impl RateLimit {
    /// No occurrence yet.
    #[must_use]
    pub const fn new() -> Self {
        Self(Mutex::new((None, 0)))
    }

    /// Counts an occurrence. Returns the number since the last log line if another line is due, else none.
    #[expect(clippy::disallowed_methods, reason = "the log goes by the clock; nothing is decided by it")]
    pub fn allow(&self) -> Option<u64> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.1 += 1;
        if state.0.is_some_and(|last| last.elapsed() < PAUSE) {
            return None;
        }
        state.0 = Some(Instant::now());
        Some(std::mem::take(&mut state.1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_happens_ten_thousand_times_is_said_once_and_counted() {
        let rate_limit = RateLimit::new();
        assert_eq!((0..10_000).filter_map(|_| rate_limit.allow()).collect::<Vec<_>>(), [1]);
        rate_limit.0.lock().unwrap().0 = None;
        assert_eq!(rate_limit.allow(), Some(10_000));
    }
}
