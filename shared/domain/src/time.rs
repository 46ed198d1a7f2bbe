//! Instants and durations of our own, so that a simulator can build, print and store them.
//!
//! Both count whole microseconds: enough for a scheduler, exact in arithmetic, the same on every machine.

use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Div, Mul, Neg, Sub, SubAssign};

use serde::{Deserialize, Serialize};

/// A point in time: microseconds since the Unix epoch, UTC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Instant(i64);

/// A length of time in microseconds. It can be negative, as the difference of two instants can.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Duration(i64);

const MICROS: f64 = 1_000_000.0;

fn micros_from_secs(secs: f64) -> i64 {
    nearest(secs * MICROS)
}

/// The nearest whole number, by an addition and no call of a mathematics library: durations are multiplied
/// all the time.
fn nearest(value: f64) -> i64 {
    // `as` cuts off, saturates and turns NaN into 0, so no input can panic or wrap.
    (value + 0.5_f64.copysign(value)) as i64
}

impl Instant {
    /// The Unix epoch.
    pub const EPOCH: Self = Self(0);
    /// Later than every instant that can occur.
    pub const FAR_FUTURE: Self = Self(i64::MAX);

    /// From microseconds since the epoch.
    pub const fn from_micros(micros: i64) -> Self {
        Self(micros)
    }
    /// From seconds since the epoch, as BOINC writes them; saturates, and takes NaN for the epoch.
    pub fn from_secs_f64(secs: f64) -> Self {
        Self(micros_from_secs(secs))
    }
    /// Microseconds since the epoch.
    pub const fn as_micros(self) -> i64 {
        self.0
    }
    /// Seconds since the epoch, as BOINC writes them.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / MICROS
    }
    /// The time from `earlier` to `self`; zero if the clock went backwards in between (R1.12).
    #[inline]
    pub fn since(self, earlier: Self) -> Duration {
        Duration(self.0.saturating_sub(earlier.0).max(0))
    }
}

impl Duration {
    /// No time.
    pub const ZERO: Self = Self(0);
    /// Longer than every duration that can occur.
    pub const MAX: Self = Self(i64::MAX);

    /// From microseconds.
    pub const fn from_micros(micros: i64) -> Self {
        Self(micros)
    }
    /// From milliseconds.
    pub const fn from_millis(millis: i64) -> Self {
        Self(millis.saturating_mul(1_000))
    }
    /// From whole seconds.
    pub const fn from_secs(secs: i64) -> Self {
        Self(secs.saturating_mul(1_000_000))
    }
    /// From seconds; saturates, and takes NaN for zero.
    pub fn from_secs_f64(secs: f64) -> Self {
        Self(micros_from_secs(secs))
    }
    /// From minutes.
    pub const fn from_mins(mins: i64) -> Self {
        Self::from_secs(mins.saturating_mul(60))
    }
    /// From hours.
    pub const fn from_hours(hours: i64) -> Self {
        Self::from_secs(hours.saturating_mul(3_600))
    }
    /// From days, as BOINC's work-buffer preferences give them.
    pub fn from_days_f64(days: f64) -> Self {
        Self::from_secs_f64(days * 86_400.0)
    }
    /// Whole microseconds.
    pub const fn as_micros(self) -> i64 {
        self.0
    }
    /// Seconds.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / MICROS
    }
    /// Days.
    pub fn as_days_f64(self) -> f64 {
        self.as_secs_f64() / 86_400.0
    }
    /// True above zero.
    pub const fn is_positive(self) -> bool {
        self.0 > 0
    }
    /// This duration times a factor; saturates.
    pub fn mul_f64(self, factor: f64) -> Self {
        Self(nearest(self.0 as f64 * factor))
    }
}

impl Add<Duration> for Instant {
    type Output = Self;
    fn add(self, rhs: Duration) -> Self {
        Self(self.0.saturating_add(rhs.0))
    }
}
impl Sub<Duration> for Instant {
    type Output = Self;
    fn sub(self, rhs: Duration) -> Self {
        Self(self.0.saturating_sub(rhs.0))
    }
}
impl Sub for Instant {
    type Output = Duration;
    fn sub(self, rhs: Self) -> Duration {
        Duration(self.0.saturating_sub(rhs.0))
    }
}
impl Add for Duration {
    type Output = Self;
    fn add(self, rhs: Self) -> Self {
        Self(self.0.saturating_add(rhs.0))
    }
}
impl Sub for Duration {
    type Output = Self;
    fn sub(self, rhs: Self) -> Self {
        Self(self.0.saturating_sub(rhs.0))
    }
}
impl AddAssign for Duration {
    fn add_assign(&mut self, rhs: Self) {
        *self = *self + rhs;
    }
}
impl SubAssign for Duration {
    fn sub_assign(&mut self, rhs: Self) {
        *self = *self - rhs;
    }
}
impl Neg for Duration {
    type Output = Self;
    fn neg(self) -> Self {
        Self(self.0.saturating_neg())
    }
}
impl Mul<i64> for Duration {
    type Output = Self;
    fn mul(self, rhs: i64) -> Self {
        Self(self.0.saturating_mul(rhs))
    }
}
impl Div<i64> for Duration {
    type Output = Self;
    /// Division by zero gives zero: a policy is total.
    fn div(self, rhs: i64) -> Self {
        Self(self.0.checked_div(rhs).unwrap_or(0))
    }
}
impl Sum for Duration {
    fn sum<I: Iterator<Item = Self>>(iter: I) -> Self {
        iter.fold(Self::ZERO, Add::add)
    }
}

impl fmt::Display for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Each unit, and how many of it are one of the next. Below two of the next it is the better one, but
        // one of the next is just that.
        let units = [("s", 1.0, 60.0), ("min", 60.0, 60.0), ("h", 3_600.0, 24.0)];
        let tenths = |unit: f64| (self.as_secs_f64() / unit * 10.0).round() / 10.0 + 0.0;
        let fits = |(_, unit, next): &&(&str, f64, f64)| {
            let value = tenths(*unit).abs();
            value < 2.0 * next && value != *next
        };
        match units.iter().find(fits) {
            Some((name, unit, _)) => write!(f, "{} {name}", tenths(*unit)),
            None if tenths(86_400.0) == 1.0 => f.write_str("1 day"),
            None => write!(f, "{} days", tenths(86_400.0)),
        }
    }
}

impl From<std::time::Duration> for Duration {
    fn from(std: std::time::Duration) -> Self {
        Self(i64::try_from(std.as_micros()).unwrap_or(i64::MAX))
    }
}
impl From<Duration> for std::time::Duration {
    /// A negative duration becomes zero.
    fn from(ours: Duration) -> Self {
        Self::from_micros(u64::try_from(ours.0).unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_saturates_instead_of_wrapping() {
        assert_eq!(Instant::FAR_FUTURE + Duration::MAX, Instant::FAR_FUTURE);
        assert_eq!(Duration::from_secs(i64::MAX), Duration::MAX);
        assert_eq!(Duration::from_secs_f64(f64::NAN), Duration::ZERO);
        assert_eq!(Duration::from_secs(1) / 0, Duration::ZERO);
    }

    #[test]
    fn r1_12_a_clock_that_jumps_back_gives_no_negative_age() {
        let (early, late) = (Instant::from_secs_f64(10.0), Instant::from_secs_f64(20.0));
        assert_eq!(early.since(late), Duration::ZERO);
        assert_eq!(early - late, Duration::from_secs(-10));
    }

    #[test]
    fn a_time_is_said_in_the_unit_that_fits_and_without_a_fraction_where_it_has_none() {
        for (secs, said) in [
            (0.0, "0 s"),
            (-0.01, "0 s"),
            (45.26, "45.3 s"),
            (60.0, "1 min"),
            (90.0, "90 s"),
            (119.99, "2 min"),
            (600.0, "10 min"),
            (3_600.0, "1 h"),
            (7_199.9, "2 h"),
            (8_640.0, "2.4 h"),
            (86_400.0, "1 day"),
            (172_800.0, "2 days"),
            (-3_600.0, "-1 h"),
        ] {
            assert_eq!(Duration::from_secs_f64(secs).to_string(), said, "{secs}");
        }
    }

    #[test]
    fn seconds_survive_the_way_to_micros_and_back() {
        assert_eq!(Instant::from_secs_f64(1_795_227_344.194_374).as_secs_f64(), 1_795_227_344.194_374);
    }
}
