//! How fast files come or go, as servers are told of it (BOINC: `net_stats`).
//!
//! Two figures: a speed in bytes per second, of which a large file says more than a small one, and bytes per day, an
//! average that decays. Both by BOINC's formulas, so that a server compares like with like.

use fallow_domain::{Bytes, Duration, Instant};
use serde::{Deserialize, Serialize};

use crate::math::exp_minus;

/// After so long what was moved counts half.
const HALF_LIFE: Duration = Duration::from_hours(7 * 24);
const DAY: f64 = 86_400.0;

/// The rate in one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NetworkRate {
    /// Bytes per second while something moves.
    pub per_second: f64,
    /// Bytes per day.
    pub per_day: f64,
    /// When this was brought up to date last; none before the first file.
    pub at: Option<Instant>,
}

impl NetworkRate {
    /// A file of so many bytes has been moved since `began`. Nothing is learned of one whose beginning is not known, that
    /// is empty, or that took no time.
    pub fn observe(&mut self, now: Instant, began: Option<Instant>, bytes: Bytes) {
        let Some(took) = began.map(|began| now.since(began)).filter(|took| took.is_positive()) else {
            return;
        };
        // BOINC takes the natural logarithm of the size; its whole part in base two is the same on every machine (R5.12).
        let Some(magnitude) = bytes.0.checked_ilog2() else { return };
        let (bytes, took) = (bytes.as_f64(), took.as_secs_f64());
        let speed = bytes / took;
        let weight = match self.at {
            None => 1.0,
            Some(_) => f64::from(magnitude) * std::f64::consts::LN_2 / 500.0,
        };
        self.per_second = weight * speed + (1.0 - weight) * self.per_second;
        self.per_day = match self.at {
            None => speed * DAY,
            Some(at) => self.decayed(now.since(at).max(Duration::ZERO).as_secs_f64(), bytes),
        };
        self.at = Some(now);
    }

    /// As if the bytes had come evenly in the time since the last look.
    fn decayed(&self, since: f64, bytes: f64) -> f64 {
        let rate = std::f64::consts::LN_2 / HALF_LIFE.as_secs_f64();
        let kept = exp_minus(since * rate);
        let new = if 1.0 - kept > 1e-6 { (1.0 - kept) * bytes / since } else { rate * bytes };
        kept * self.per_day + new * DAY
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(secs: f64) -> Instant {
        Instant::from_secs_f64(1e9 + secs)
    }

    #[test]
    fn r6_2_the_first_file_gives_the_rate_and_later_ones_move_it_as_boinc_has_it() {
        let mut rate = NetworkRate::default();
        rate.observe(at(10.0), Some(at(0.0)), Bytes(1_000_000));
        assert_eq!((rate.per_second, rate.per_day), (1e5, 1e5 * DAY));
        rate.observe(at(DAY), Some(at(DAY - 1.0)), Bytes(1_000_000));
        let weight = 19.0 * 2_f64.ln() / 500.0;
        assert!((rate.per_second - (weight * 1e6 + (1.0 - weight) * 1e5)).abs() < 1e-6);
        let kept = 0.5_f64.powf((DAY - 10.0) / (7.0 * DAY));
        let expected = kept * 1e5 * DAY + (1.0 - kept) * 1e6 / ((DAY - 10.0) / DAY);
        assert!((rate.per_day / expected - 1.0).abs() < 1e-9, "{} is not {expected}", rate.per_day);
    }

    #[test]
    fn nothing_is_learned_of_files_without_size_or_time() {
        let mut rate = NetworkRate::default();
        rate.observe(at(1.0), Some(at(1.0)), Bytes(5));
        rate.observe(at(1.0), Some(at(0.0)), Bytes(0));
        rate.observe(at(1.0), None, Bytes(5));
        assert_eq!(rate, NetworkRate::default());
        rate.observe(at(2.0), Some(at(1.0)), Bytes(5));
        rate.observe(at(0.0), Some(at(-1.0)), Bytes(5));
        assert!(rate.per_day.is_finite() && rate.per_second.is_finite());
    }
}
