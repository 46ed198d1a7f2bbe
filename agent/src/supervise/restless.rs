//! A task that goes on although its processes are stopped (R6.10).
//!
//! Nothing but SIGCONT does that, which any process of the same user may send: one that a timer of the task's
//! own sends comes a thousand times a second, and being stopped again by the next look is no hindrance.
//! Whoever uses the machine is not to wait for it: such a task is killed. What is stopped uses no CPU time,
//! so all that it uses since then counts, however it spreads it. It begins to count with the second look: a
//! process is told to stop between two, and one in a call of the kernel's hears of it at the end of that.

use fallow_domain::Duration;

/// CPU time that a stopped task may use before it is killed.
const MOST: Duration = Duration::from_secs(1);
/// Looks, a second apart, before it counts.
const FIRST: u32 = 2;

/// What the looks have found since the task was stopped.
#[derive(Debug, Default)]
pub(super) struct Restless {
    looks: u32,
    /// The CPU time at the last look that did not count.
    cpu_then: Duration,
}

impl Restless {
    /// It was let go on: what it used until the next look counts for nothing, also where it is stopped again
    /// before that.
    pub(super) fn goes_on(&mut self) {
        *self = Self::default();
    }

    /// A look, and the CPU time of all of it until now. True when it is to be killed.
    pub(super) fn look(&mut self, is_stopped: bool, cpu: Duration) -> bool {
        if !is_stopped {
            self.goes_on();
            return false;
        }
        if self.looks < FIRST {
            (self.looks, self.cpu_then) = (self.looks + 1, cpu);
        }
        cpu - self.cpu_then > MOST
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r6_10_a_task_is_restless_when_it_uses_a_second_of_cpu_time_while_it_is_stopped() {
        let at = |looks: &[(bool, i64)]| {
            let mut restless = Restless::default();
            looks.iter().any(|&(stopped, millis)| restless.look(stopped, Duration::from_millis(millis)))
        };
        assert!(at(&[(true, 0), (true, 900), (true, 1_500), (true, 1_901)]));
        assert!(!at(&[(true, 0), (true, 900), (true, 1_500), (true, 1_900)]));
        // With rests between, which are no excuse.
        assert!(at(&[(true, 0), (true, 0), (true, 600), (true, 600), (true, 600), (true, 1_001)]));
        // It was stopped only after the first.
        assert!(!at(&[(false, 0), (true, 9_000), (true, 9_900), (true, 9_950), (true, 9_950)]));
        // It was let go on and stopped again with no look between.
        let mut restless = Restless::default();
        (0..5).for_each(|_| assert!(!restless.look(true, Duration::ZERO)));
        restless.goes_on();
        assert!(!restless.look(true, Duration::from_secs(30)));
        // It went on meanwhile, as it may.
        assert!(!at(&[(true, 0), (true, 0), (true, 900), (false, 5_000), (true, 5_900), (true, 6_000)]));
    }
}
