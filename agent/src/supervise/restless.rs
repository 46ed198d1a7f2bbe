//! A task that goes on although its processes are stopped (R6.10).
//!
//! Nothing but SIGCONT does that, which any process of the same user may send: one that a timer of the task's
//! own sends comes a thousand times a second, and being stopped again by the next look is no hindrance.
//! Whoever uses the machine is not to wait for it: such a task is killed. One look is no proof, since a
//! process is told to stop between two of them, and one that waits for a disk hears of it later.

use fallow_domain::Duration;

/// CPU time from one look to the next, a second later, beyond which it is not stopped.
const COMPUTES: Duration = Duration::from_millis(100);
/// After so many such looks one after the other it is killed.
const LOOKS: u32 = 4;

/// What the last looks have found.
#[derive(Debug, Default)]
pub(super) struct Restless {
    cpu_then: Option<Duration>,
    looks: u32,
}

impl Restless {
    /// A look, and the CPU time of all of it until now. True when it is to be killed.
    pub(super) fn look(&mut self, is_stopped: bool, cpu: Duration) -> bool {
        if !is_stopped {
            *self = Self::default();
            return false;
        }
        let goes_on = self.cpu_then.replace(cpu).is_some_and(|then| cpu - then > COMPUTES);
        self.looks = if goes_on { self.looks + 1 } else { 0 };
        self.looks >= LOOKS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r6_10_a_task_is_restless_when_it_computes_at_one_look_after_the_other_while_it_is_stopped() {
        let at = |looks: &[(bool, i64)]| {
            let mut restless = Restless::default();
            looks.iter().any(|&(stopped, millis)| restless.look(stopped, Duration::from_millis(millis)))
        };
        assert!(at(&[(true, 0), (true, 200), (true, 400), (true, 600), (true, 800)]));
        // It was stopped only after the first.
        assert!(!at(&[(false, 0), (true, 900), (true, 1_000), (true, 1_000), (true, 1_000), (true, 1_000)]));
        // It went on meanwhile, as it may.
        assert!(!at(&[(true, 0), (true, 200), (true, 400), (true, 600), (false, 800), (true, 1_000)]));
        assert!(!at(&[(true, 0), (true, 90), (true, 180), (true, 270), (true, 360), (true, 450)]));
    }
}
