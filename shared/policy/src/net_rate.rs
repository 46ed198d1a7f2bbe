//! How fast a host's transfers are (BOINC: `net_stats`).
//!
//! Model, the stock client's: the usual speed follows the speeds of single transfers, the large ones more
//! than the small ones; the average amount a day fades by half in a week. Servers are told of them. Nothing
//! is decided by them here, so the platform's logarithm will do.

use fallow_domain::{Bytes, Duration, Instant};
use serde::{Deserialize, Serialize};

use crate::math::exp_minus;

/// In so many seconds the average fades by half.
const HALF_LIFE: f64 = 7.0 * 86_400.0;
/// The share of a transfer's speed in the usual one is the logarithm of its bytes over this.
const WEIGHT: f64 = 500.0;

/// What was measured in one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NetRate {
    /// The usual speed in bytes a second (BOINC: `bwup`, `bwdown`); 0 when nothing was measured.
    pub speed: f64,
    /// Bytes a day (BOINC: `avg_up`, `avg_down`).
    pub average: f64,
    /// When that was brought up to date (BOINC: `avg_time_up`, `avg_time_down`).
    pub at: Option<Instant>,
}

impl NetRate {
    /// So many bytes took so long, until now.
    pub fn update(&mut self, now: Instant, bytes: Bytes, took: Duration) {
        let (bytes, secs) = (bytes.as_f64(), took.as_secs_f64());
        if bytes <= 0.0 || secs <= 0.0 {
            return;
        }
        let speed = bytes / secs;
        if self.speed > 0.0 {
            let weight = (bytes.ln() / WEIGHT).min(1.0);
            self.speed = weight * speed + (1.0 - weight) * self.speed;
        } else {
            self.speed = speed;
        }
        self.average = match self.at {
            None => speed * 86_400.0,
            Some(at) => {
                let passed = now.since(at).as_secs_f64();
                let fades = exp_minus(passed * std::f64::consts::LN_2 / HALF_LIFE);
                let day = if 1.0 - fades > 1e-6 {
                    (1.0 - fades) * bytes * 86_400.0 / passed
                } else {
                    std::f64::consts::LN_2 * bytes * 86_400.0 / HALF_LIFE
                };
                self.average * fades + day
            }
        };
        self.at = Some(now);
    }
}

/// Both directions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NetRates {
    /// Uploads, and all else that is sent.
    pub up: NetRate,
    /// Downloads, and all else that is fetched.
    pub down: NetRate,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speeds_and_averages_are_those_of_the_stock_client() {
        let t0 = Instant::from_secs_f64(1.8e9);
        let mut rate = NetRate::default();
        rate.update(t0, Bytes(1_000_000), Duration::from_secs(2));
        assert_eq!((rate.speed, rate.at), (500_000.0, Some(t0)));
        assert!((rate.average - 43_200_000_000.0).abs() < 1.0);
        // ln(1e6) / 500 = 0.02763: the next one moves it by so much.
        rate.update(t0 + Duration::from_hours(24 * 7), Bytes(1_000_000), Duration::from_secs(1));
        assert!((rate.speed - 513_815.5).abs() < 1.0, "{}", rate.speed);
        // Half of it has faded, and half of a megabyte in seven days has come.
        let expected = 21_600_000_000.0 + 0.5 * 1_000_000.0 / 7.0;
        assert!((rate.average - expected).abs() < 10.0, "{}", rate.average);
    }

    #[test]
    fn nothing_and_no_time_say_nothing() {
        let mut rate = NetRate::default();
        rate.update(Instant::EPOCH, Bytes(0), Duration::from_secs(1));
        rate.update(Instant::EPOCH, Bytes(5), Duration::ZERO);
        assert_eq!(rate, NetRate::default());
    }
}
