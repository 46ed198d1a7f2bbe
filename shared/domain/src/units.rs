//! Amounts with their unit: bytes, floating-point operations, instance-seconds, speeds, fractions, shares.

use std::fmt;
use std::ops::{Add, Div, Mul};

use serde::{Deserialize, Serialize};

use crate::{Duration, Invalid};

/// A number of bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Bytes(pub u64);

impl Bytes {
    /// From mebibytes.
    pub const fn from_mebibytes(mib: u64) -> Self {
        Self(mib.saturating_mul(1 << 20))
    }
    /// From the floating-point form that BOINC writes; negative, NaN and absurd values saturate.
    pub fn from_f64(bytes: f64) -> Self {
        Self(bytes.round() as u64)
    }
    /// As the floating-point number that BOINC writes.
    pub fn as_f64(self) -> f64 {
        self.0 as f64
    }
    /// The sum; saturates.
    pub const fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const MIB: u64 = 1 << 20;
        const GIB: u64 = 1 << 30;
        let tenths = |unit: f64| (self.as_f64() / unit * 10.0).round() / 10.0;
        match self.0 {
            // As people give them.
            bytes if bytes >= GIB && bytes.is_multiple_of(GIB) => write!(f, "{} GiB", bytes / GIB),
            bytes if bytes >= MIB && bytes.is_power_of_two() => write!(f, "{} MiB", bytes / MIB),
            0..=9_999 => write!(f, "{} B", self.0),
            10_000..=999_949 => write!(f, "{} kB", tenths(1e3)),
            999_950..=9_999_949_999 => write!(f, "{} MB", tenths(1e6)),
            _ => write!(f, "{} GB", tenths(1e9)),
        }
    }
}

/// A number of floating-point operations: the size of a job (BOINC: `rsc_fpops_est`). Finite, not negative.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(try_from = "f64", into = "f64")]
pub struct Flops(f64);

/// Floating-point operations per second (BOINC: `p_fpops`, `flops`). Finite and above zero.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(try_from = "f64", into = "f64")]
pub struct Speed(f64);

/// Processing: instances of a resource type times the seconds for which they are busy. Two CPUs for an hour
/// are 7,200. It can be negative, where somebody had more than he was to have.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
pub struct InstanceSeconds(f64);

impl InstanceSeconds {
    /// Nothing.
    pub const ZERO: Self = Self(0.0);
    /// From a number of them.
    pub const fn new(instance_seconds: f64) -> Self {
        Self(instance_seconds)
    }
    /// One instance for so long; as many seconds.
    pub fn of_one(time: Duration) -> Self {
        Self(time.as_secs_f64())
    }
    /// The raw number, for arithmetic.
    pub const fn get(self) -> f64 {
        self.0
    }
    /// Whether it is more than nothing.
    pub fn is_positive(self) -> bool {
        self.0 > 0.0
    }
    /// The larger of two.
    #[must_use]
    pub const fn max(self, other: Self) -> Self {
        Self(self.0.max(other.0))
    }
    /// The smaller of two.
    #[must_use]
    pub const fn min(self, other: Self) -> Self {
        Self(self.0.min(other.0))
    }
}

impl Add for InstanceSeconds {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0 + other.0)
    }
}
impl Mul<f64> for InstanceSeconds {
    type Output = Self;
    fn mul(self, factor: f64) -> Self {
        Self(self.0 * factor)
    }
}
impl Div<f64> for InstanceSeconds {
    type Output = Self;
    fn div(self, divisor: f64) -> Self {
        Self(self.0 / divisor)
    }
}
impl fmt::Display for InstanceSeconds {
    /// As a plain number, with the digits that the format asks for.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A part of a whole, from 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(try_from = "f64", into = "f64")]
pub struct Fraction(f64);

/// A project's resource share: a weight, finite and not negative (BOINC: `resource_share`, default 100).
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(try_from = "f64", into = "f64")]
pub struct Share(f64);

macro_rules! checked {
    ($name:ident, $what:literal, $expected:literal, $ok:expr) => {
        impl $name {
            /// Checks the value.
            ///
            /// # Errors
            /// [`Invalid`] with what was expected, when the value is out of range or not a number.
            pub fn new(value: f64) -> Result<Self, Invalid> {
                let ok: fn(f64) -> bool = $ok;
                if ok(value) { Ok(Self(value)) } else { Err(Invalid::new($what, value, $expected)) }
            }
            /// The raw number, for arithmetic.
            pub const fn get(self) -> f64 {
                self.0
            }
        }
        impl TryFrom<f64> for $name {
            type Error = Invalid;
            fn try_from(value: f64) -> Result<Self, Invalid> {
                Self::new(value)
            }
        }
        impl From<$name> for f64 {
            fn from(value: $name) -> f64 {
                value.0
            }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

checked!(Flops, "number of floating-point operations", "a finite number of 0 or more", |v| v.is_finite()
    && v >= 0.0);
checked!(Speed, "speed in FLOPS", "a finite number above 0", |v| v.is_finite() && v > 0.0);
checked!(Fraction, "fraction", "a number from 0 to 1", |v| (0.0..=1.0).contains(&v));
checked!(Share, "resource share", "a number from 0 to 1,000,000,000", |v| (0.0..=1e9).contains(&v));

impl Flops {
    /// How long this takes at `speed`.
    pub fn at(self, speed: Speed) -> Duration {
        Duration::from_secs_f64(self.0 / speed.0)
    }
}

impl Fraction {
    /// Nothing.
    pub const ZERO: Self = Self(0.0);
    /// The whole.
    pub const ONE: Self = Self(1.0);
    /// The nearest fraction to `value`; NaN becomes 0.
    #[inline]
    pub fn clamped(value: f64) -> Self {
        if value.is_nan() { Self::ZERO } else { Self(value.clamp(0.0, 1.0)) }
    }
}

impl Share {
    /// BOINC's default, 100.
    pub const DEFAULT: Self = Self(100.0);
    /// No share: the project computes only when nobody else can.
    pub const ZERO: Self = Self(0.0);

    /// A share that somebody gives a project: 0, or large enough to mean something against others. Shares
    /// that were stored or come from servers may be anything that [`Share::new`] takes.
    ///
    /// # Errors
    /// [`Invalid`] with what was expected.
    pub fn given(value: f64) -> Result<Self, Invalid> {
        if value == 0.0 || (1e-3..=1e9).contains(&value) {
            return Ok(Self(value + 0.0));
        }
        let expected = "0, or a number from 0.001 to 1,000,000,000";
        let is_short = (1e-3..1e15).contains(&value.abs());
        let shown = if is_short { value.to_string() } else { format!("{value:e}") };
        Err(Invalid::new("resource share", shown, expected))
    }
}

impl Default for Share {
    fn default() -> Self {
        Self::DEFAULT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_is_said_in_the_unit_that_people_give_it_in() {
        let said = [9_999, 10_000, 1_838_100, 999_950, 1 << 20, 1_230_000_000, 10_000_000_000, 1 << 30]
            .map(|bytes| Bytes(bytes).to_string());
        let expected = ["9999 B", "10 kB", "1.8 MB", "1 MB", "1 MiB", "1230 MB", "10 GB", "1 GiB"];
        assert_eq!(said, expected);
    }

    #[test]
    fn negative_and_absurd_shares_are_refused_with_the_reason() {
        for bad in [-1.0, f64::NAN, f64::INFINITY, 1e10] {
            let error = Share::new(bad).unwrap_err();
            assert!(error.to_string().contains("expected a number from 0 to"), "{error}");
        }
        assert_eq!(Share::new(0.0).unwrap(), Share::ZERO);
        for bad in [1e-300, -0.5, 9e-4, 1.1e9, f64::NAN] {
            let error = Share::given(bad).unwrap_err().to_string();
            assert!(error.contains("from 0.001 to 1,000,000,000") && error.len() < 120, "{error}");
        }
        assert_eq!((Share::given(0.0).unwrap(), Share::given(0.001).unwrap().get()), (Share::ZERO, 0.001));
    }

    #[test]
    fn a_stored_value_out_of_range_is_an_error_and_not_a_type_that_holds_nonsense() {
        assert!(serde_json::from_str::<Fraction>("1.5").is_err());
        assert!(serde_json::from_str::<Speed>("0.0").is_err());
        assert_eq!(serde_json::from_str::<Fraction>("0.5").unwrap(), Fraction::clamped(0.5));
    }
}
