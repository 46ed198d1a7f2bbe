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

    /// Whether it is time; then the next one is in ten seconds.
    pub(super) fn is_due(&mut self) -> bool {
        let is_due = self.is_wanted() && self.last.is_none_or(|at| at.elapsed() >= EVERY);
        if is_due {
            self.last = Some(Instant::now());
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r6_4_nobody_looks_at_the_swap_space_unless_it_is_limited_and_then_seldom() {
        let mut looks = SwapLooks::default();
        assert!(!looks.is_due());
        looks.wanted().store(true, Ordering::Relaxed);
        assert!(looks.is_due() && !looks.is_due());
        looks.wanted().store(false, Ordering::Relaxed);
        looks.last = None;
        assert!(!looks.is_due());
    }
}
