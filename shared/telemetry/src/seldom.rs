//! Warnings that anybody can cause, as often as he likes: said once in a while, with how often it was so.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How often such a warning is said at most.
const PAUSE: Duration = Duration::from_secs(10);

/// One kind of warning.
#[derive(Debug, Default)]
pub struct Seldom(Mutex<(Option<Instant>, u64)>);

impl Seldom {
    /// It was not so yet.
    #[must_use]
    pub const fn new() -> Self {
        Self(Mutex::new((None, 0)))
    }

    /// It was so once more. Whether to say it now, and if so how often it was so since it was last said.
    #[expect(clippy::disallowed_methods, reason = "the log goes by the clock; nothing is decided by it")]
    pub fn times(&self) -> Option<u64> {
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
        let seldom = Seldom::new();
        assert_eq!((0..10_000).filter_map(|_| seldom.times()).collect::<Vec<_>>(), [1]);
        seldom.0.lock().unwrap().0 = None;
        assert_eq!(seldom.times(), Some(10_000));
    }
}
