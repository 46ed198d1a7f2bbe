//! Waits and randomised exponential backoff (R1.3, R1.12).
//!
//! Model: the nth failure in a row picks an interval that doubles up to a maximum, and a wait drawn uniformly
//! from the interval's upper half, so that hosts that failed together do not come back together. A wait
//! remembers when it began, so that a clock that jumps back cannot make it longer than it was meant to be.

use fallow_domain::{Duration, Instant};
use rand::Rng;
use serde::{Deserialize, Serialize};

/// What a contact showed of a project (it is down, it has no work) counts as known for so long, while it is
/// not asked again: as the longest backoff of RPCs (R1.3, R5.35).
pub const KNOWN_FOR: Duration = Duration::from_hours(4);

/// A wait in progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wait {
    began: Instant,
    length: Duration,
}

impl Wait {
    /// Waits `length` from now; a negative length is none.
    pub fn new(now: Instant, length: Duration) -> Self {
        Self { began: now, length: length.max(Duration::ZERO) }
    }

    /// When it ends, as the clock stands.
    pub fn until(&self) -> Instant {
        self.began + self.length
    }

    /// How long it still takes: never more than its whole length, whatever the clock did (R1.12).
    pub fn left(&self, now: Instant) -> Duration {
        (self.until() - now).max(Duration::ZERO).min(self.length)
    }

    /// Whether it still holds.
    pub fn holds(&self, now: Instant) -> bool {
        self.left(now).is_positive()
    }

    /// Whether what led to it is still known: it holds, or it began less than [`KNOWN_FOR`] ago.
    pub fn is_known(&self, now: Instant) -> bool {
        self.holds(now) || now - self.began < KNOWN_FOR
    }

    /// Takes note of the time: a wait that began in the future (the clock jumped back) begins again now, and
    /// so ends after its own length at the latest. To be called on every turn.
    pub fn observe(&mut self, now: Instant) {
        self.began = self.began.min(now);
    }
}

/// Intervals that double from a first one up to a maximum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// The interval after the first failure.
    pub first: Duration,
    /// No interval is longer.
    pub max: Duration,
}

impl Backoff {
    /// The interval after the nth failure in a row, n = 1 being the first.
    pub fn interval(&self, failures: u32) -> Duration {
        let doublings = failures.saturating_sub(1).min(40);
        (self.first * (1_i64 << doublings)).min(self.max)
    }

    /// Draws the wait after the nth failure in a row.
    pub fn draw(&self, failures: u32, rng: &mut (impl Rng + ?Sized)) -> Duration {
        self.interval(failures).mul_f64(0.5 + 0.5 * unit(rng))
    }
}

/// A number from 0 up to, not including, 1: 53 bits of the next draw, so that the same generator gives the
/// same numbers whatever the version of the library around it (R5.12).
fn unit(rng: &mut (impl Rng + ?Sized)) -> f64 {
    (rng.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rand::SeedableRng;
    use rand_pcg::Pcg64;

    const HOURS_4: Backoff = Backoff { first: Duration::from_secs(60), max: Duration::from_hours(4) };

    #[test]
    fn r1_3_intervals_double_from_a_minute_to_four_hours() {
        let minutes: Vec<_> = (1..=10).map(|n| HOURS_4.interval(n).as_secs_f64() / 60.0).collect();
        assert_eq!(minutes, [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 240.0, 240.0]);
        assert_eq!(HOURS_4.interval(u32::MAX), Duration::from_hours(4));
    }

    proptest! {
        #[test]
        fn r1_3_each_draw_lies_in_the_upper_half_of_its_interval(n in 1_u32..100, seed in any::<u64>()) {
            let drawn = HOURS_4.draw(n, &mut Pcg64::seed_from_u64(seed));
            let interval = HOURS_4.interval(n);
            prop_assert!(drawn >= interval / 2 && drawn <= interval);
        }

        #[test]
        fn r1_12_no_wait_outlasts_its_length_under_any_clock_jumps(
            length in 0_i64..100_000,
            steps in prop::collection::vec((1_i64..1_000, prop::option::of(-1_000_000_i64..1_000_000)), 1..400),
        ) {
            let length = Duration::from_secs(length);
            let mut clock = Instant::from_secs_f64(1.8e9);
            let mut wait = Wait::new(clock, length);
            let mut waited = Duration::ZERO;
            for (step, jump) in steps {
                clock = clock + Duration::from_secs(step);
                waited += Duration::from_secs(step);
                prop_assert!(wait.left(clock) <= length);
                if let Some(jump) = jump {
                    // The jump itself is seen at the next turn; each jump may begin the wait again once.
                    clock = clock + Duration::from_secs(jump);
                    wait.observe(clock);
                    waited = Duration::ZERO;
                }
                if waited >= length {
                    prop_assert!(!wait.holds(clock));
                }
            }
        }
    }
}
