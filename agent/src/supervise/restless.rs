//! A task that goes on although it is to rest (R6.10).
//!
//! One whose processes are stopped: nothing but SIGCONT has it go on, which any process of the same user
//! may send: one that a timer of the task's own sends comes a thousand times a second, and being stopped
//! again by the next look is no hindrance. Whoever uses the machine is not to wait for it: such a task is
//! killed. What is stopped uses no CPU time, so all that it uses since then counts, however it spreads it.
//! It begins to count with the second look: a process is told to stop between two, and one in a call of
//! the kernel's hears of it at the end of that. What processes use that no list has is not known, so a
//! task of which some looks find such processes is killed as well.
//!
//! One that was told to rest by a message: an application made with BOINC's library does so within a second,
//! or at the end of what it must not leave half done. Another may not heed messages. It computes for three
//! seconds at most (of CPU time) and is stopped then, as for somebody at the machine, and at once each time
//! after that. What one that rests needs to look whether it may go on, up to a tenth of a second in each
//! look, is no computing. (One that reads no messages is stopped sooner: see [`super::hearing`].)

use fallow_domain::Duration;

/// Looks, a second apart, before it counts.
const FIRST: u32 = 2;
/// Looks in a row that find something that no list has.
const FLED_MAX: u32 = 3;

/// What the looks have found since the task was to rest.
#[derive(Debug)]
pub(super) struct Restless {
    /// CPU time that it may use meanwhile.
    most: Duration,
    /// So much from one look to the next does not count.
    least: Duration,
    looks: u32,
    /// How many of them in a row have found something that no list has.
    fled: u32,
    /// The CPU time at the last look that did not count, and what did not count since.
    cpu_then: Duration,
    /// The CPU time at the last look.
    cpu_last: Duration,
}

impl Restless {
    /// Of a task whose processes are stopped.
    pub(super) fn stopped() -> Self {
        Self::with(Duration::from_secs(1), Duration::ZERO)
    }

    /// Of a task that was told to rest.
    pub(super) fn told() -> Self {
        Self::with(Duration::from_secs(3), Duration::from_millis(100))
    }

    fn with(most: Duration, least: Duration) -> Self {
        Self { most, least, looks: 0, fled: 0, cpu_then: Duration::ZERO, cpu_last: Duration::ZERO }
    }

    /// It was let go on: what it used until the next look counts for nothing, also where it is to rest again
    /// before that.
    pub(super) fn goes_on(&mut self) {
        *self = Self::with(self.most, self.least);
    }

    /// Whether a look has found something that goes on and that no list has. True when that was so too often.
    pub(super) fn note_fleeing(&mut self, flees: bool) -> bool {
        self.fled = if flees { self.fled + u32::from(self.looks >= FIRST) } else { 0 };
        self.fled >= FLED_MAX
    }

    /// A look, and the CPU time of all of it until now. True when it has used too much.
    pub(super) fn look(&mut self, is_to_rest: bool, cpu: Duration) -> bool {
        if !is_to_rest {
            self.goes_on();
            return false;
        }
        if self.looks < FIRST {
            (self.looks, self.cpu_then) = (self.looks + 1, cpu);
        } else if cpu - self.cpu_last <= self.least {
            self.cpu_then += cpu - self.cpu_last;
        }
        self.cpu_last = cpu;
        cpu - self.cpu_then > self.most
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r6_10_a_task_is_restless_when_three_looks_in_a_row_have_found_what_no_list_has() {
        let mut restless = Restless::stopped();
        let mut look = |flees: bool| {
            let too_often = restless.note_fleeing(flees);
            restless.look(true, Duration::ZERO) || too_often
        };
        // Between the first two it is told to stop.
        assert_eq!([true; 4].map(&mut look), [false; 4]);
        assert_eq!([false, true, true].map(&mut look), [false; 3]);
        assert!(look(true));
        restless.goes_on();
        assert!(!restless.note_fleeing(true));
    }

    #[test]
    fn r6_10_a_task_is_restless_when_it_uses_a_second_of_cpu_time_while_it_is_stopped() {
        let at = |looks: &[(bool, i64)]| {
            let mut restless = Restless::stopped();
            looks.iter().any(|&(stopped, millis)| restless.look(stopped, Duration::from_millis(millis)))
        };
        assert!(at(&[(true, 0), (true, 900), (true, 1_500), (true, 1_901)]));
        assert!(!at(&[(true, 0), (true, 900), (true, 1_500), (true, 1_900)]));
        // With rests between, which are no excuse.
        assert!(at(&[(true, 0), (true, 0), (true, 600), (true, 600), (true, 600), (true, 1_001)]));
        // It was stopped only after the first.
        assert!(!at(&[(false, 0), (true, 9_000), (true, 9_900), (true, 9_950), (true, 9_950)]));
        // It was let go on and stopped again with no look between.
        let mut restless = Restless::stopped();
        (0..5).for_each(|_| assert!(!restless.look(true, Duration::ZERO)));
        restless.goes_on();
        assert!(!restless.look(true, Duration::from_secs(30)));
        // Told by a message: it may take longer until it rests.
        let mut told = Restless::told();
        assert!(
            [0, 1_000, 2_500, 4_000].iter().all(|&millis| !told.look(true, Duration::from_millis(millis)))
        );
        assert!(told.look(true, Duration::from_millis(4_101)));
        // One that only looks whether it may go on, all night.
        let mut told = Restless::told();
        assert!((0..30_000).all(|look| !told.look(true, Duration::from_millis(look * 90))));
        // It went on meanwhile, as it may.
        assert!(!at(&[(true, 0), (true, 0), (true, 900), (false, 5_000), (true, 5_900), (true, 6_000)]));
    }
}
