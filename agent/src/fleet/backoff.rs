//! When to try to connect again: doubling from half a second up to a minute, and then a random part of that.
//!
//! The jitter comes after the cap: with a jitter before it, all agents of a fleet whose coordinator was gone
//! for long would come back in the same second of each minute.

use std::time::Duration;

use fallow_policy::backoff::Backoff as Intervals;
use rand::Rng;

const INTERVALS: Intervals = Intervals {
    first: fallow_domain::Duration::from_micros(500_000),
    max: fallow_domain::Duration::from_secs(60),
};

/// Counts failures.
#[derive(Debug, Default)]
pub struct Backoff {
    failures: u32,
}

impl Backoff {
    /// How long to wait after another failure.
    pub fn next(&mut self, rng: &mut impl Rng) -> Duration {
        self.failures = self.failures.saturating_add(1);
        INTERVALS.draw(self.failures, rng).into()
    }

    /// How long to wait when asking again soon cannot help.
    pub fn longest(&mut self, rng: &mut impl Rng) -> Duration {
        INTERVALS.draw(u32::MAX, rng).into()
    }

    /// It worked.
    pub fn reset(&mut self) {
        self.failures = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;

    #[test]
    fn r6_3_waits_double_up_to_a_minute_and_are_spread_at_the_cap_too() {
        let mut rng = rand::rngs::StdRng::seed_from_u64(1);
        let mut backoff = Backoff::default();
        let (first, longest) = (Duration::from_millis(500), Duration::from_secs(60));
        let mut cap = first;
        for _ in 0..20 {
            let wait = backoff.next(&mut rng);
            assert!(wait >= cap / 2 && wait <= cap, "{wait:?} at {cap:?}");
            cap = (cap * 2).min(longest);
        }
        let at_cap: Vec<Duration> = (0..10).map(|_| backoff.next(&mut rng)).collect();
        assert!(
            at_cap.windows(2).any(|pair| pair[0].abs_diff(pair[1]) > Duration::from_secs(2)),
            "{at_cap:?}"
        );
        backoff.reset();
        assert!(backoff.next(&mut rng) <= first);
    }
}
