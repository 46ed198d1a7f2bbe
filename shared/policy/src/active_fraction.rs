//! The measured share of time that computing is allowed and running (R2.12).
//!
//! Model: a decaying average over ten days, the memory that a weekly rhythm of use needs. Time on and time
//! observed fade alike, so the figure is right from the first hour on and does not depend on how often it is
//! updated. Until something was observed the host counts as always available, as if one hour of it had been
//! seen: the first minutes of a host decide little.

use fallow_domain::{Duration, Fraction};
use serde::{Deserialize, Serialize};

use crate::math::decay;

/// The time in which an observation fades by a factor e.
pub const MEMORY: Duration = Duration::from_hours(240);

const PRIOR_SECS: f64 = 3_600.0;

/// The active fraction of one host.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ActiveFraction {
    on_secs: f64,
    seen_secs: f64,
}

impl Default for ActiveFraction {
    fn default() -> Self {
        Self { on_secs: PRIOR_SECS, seen_secs: PRIOR_SECS }
    }
}

impl ActiveFraction {
    /// Adds a stretch of time in which computing was on, or off. Time in which the agent was not running
    /// counts as off. A negative stretch (a clock that jumped back) is ignored.
    pub fn observe(&mut self, length: Duration, on: bool) {
        let steps = length.max(Duration::ZERO).as_secs_f64() / MEMORY.as_secs_f64();
        let (keep, mean) = decay(steps);
        let fresh = MEMORY.as_secs_f64() * steps * mean;
        self.seen_secs = self.seen_secs * keep + fresh;
        self.on_secs = self.on_secs * keep + if on { fresh } else { 0.0 };
    }

    /// The fraction.
    pub fn get(&self) -> Fraction {
        Fraction::clamped(if self.seen_secs > 0.0 { self.on_secs / self.seen_secs } else { 1.0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn r2_12_a_host_that_is_on_four_fifths_of_the_time_measures_that() {
        let mut active = ActiveFraction::default();
        for _ in 0..10_000 {
            active.observe(Duration::from_secs(1_000), true);
            active.observe(Duration::from_secs(250), false);
        }
        assert!((active.get().get() - 0.8).abs() < 0.001);
    }

    #[test]
    fn r2_12_an_unobserved_host_counts_as_available() {
        assert_eq!(ActiveFraction::default().get(), Fraction::ONE);
    }

    proptest! {
        #[test]
        fn r2_12_the_measure_does_not_depend_on_how_often_it_is_updated(
            stretches in prop::collection::vec((0_i64..1_000_000, any::<bool>()), 1..20), parts in 2_i64..50,
        ) {
            let (mut once, mut often) = (ActiveFraction::default(), ActiveFraction::default());
            for (secs, on) in stretches {
                once.observe(Duration::from_secs(secs * parts), on);
                for _ in 0..parts {
                    often.observe(Duration::from_secs(secs), on);
                }
            }
            prop_assert!((once.get().get() - often.get().get()).abs() < 1e-6);
        }
    }
}
