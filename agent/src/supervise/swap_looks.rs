//! When it is looked how much of the swap space tasks hold: only while somebody limits that, and then every
//! ten seconds, for the kernel says it in a text of each process that takes time to make.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How often.
const EVERY: Duration = Duration::from_secs(10);

/// The looks of one thread.
#[derive(Debug, Default)]
pub(super) struct SwapLooks {
    wanted: Arc<AtomicBool>,
    last: Option<Instant>,
}

impl SwapLooks {
    /// Where it is said whether somebody wants to know.
    pub(super) fn wanted(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.wanted)
    }

    /// Whether somebody wants to know.
    pub(super) fn is_wanted(&self) -> bool {
        self.wanted.load(Ordering::Relaxed)
    }

    /// Whether it is time in a look that began at `began`; then the next one is in ten seconds. Counted from
    /// beginning to beginning, as looks are: what a look takes does not make it every second one of them.
    pub(super) fn is_due(&mut self, began: Instant) -> bool {
        let is_over = |last: Instant| began.saturating_duration_since(last) >= EVERY;
        let is_due = self.is_wanted() && self.last.is_none_or(is_over);
        if is_due {
            self.last = Some(began);
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r6_4_nobody_looks_at_the_swap_space_unless_it_is_limited_and_then_seldom() {
        let (mut looks, now) = (SwapLooks::default(), Instant::now());
        assert!(!looks.is_due(now));
        looks.wanted().store(true, Ordering::Relaxed);
        assert!(looks.is_due(now) && !looks.is_due(now));
        // Looks that begin every ten seconds are all of them due.
        for n in 1..4 {
            let at = now + EVERY * n;
            assert!(!looks.is_due(at - Duration::from_millis(1)) && looks.is_due(at), "{n}");
        }
        looks.wanted().store(false, Ordering::Relaxed);
        looks.last = None;
        assert!(!looks.is_due(now));
    }
}
