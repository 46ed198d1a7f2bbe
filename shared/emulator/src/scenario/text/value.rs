//! Values that only scenario files have: what each kind accepts, and what is said when it does not.

use fallow_config::{BadValue, FromValue, amount_value, text, unexpected, word};
use fallow_domain::Duration;
use toml::de::DeValue;

use super::super::{Bandwidth, CoprocessorKind, Estimate, OffKind, QueuedState};
use super::hours::{parse_days, parse_hours};
use super::units::parse_bandwidth;

/// Days of the week, Monday first.
pub(crate) struct Days(pub(crate) [bool; 7]);

/// Hours of the day, from the midnight before.
pub(crate) struct Hours {
    pub(crate) from: Duration,
    pub(crate) to: Duration,
}

impl FromValue for Bandwidth {
    fn from_value(value: &DeValue<'_>) -> Result<Self, BadValue> {
        let units = "B/s, kB/s, MB/s, GB/s, kbit/s, Mbit/s or Gbit/s";
        amount_value(value, parse_bandwidth, &format!("a speed with its unit ({units}), such as \"1 MB/s\""))
    }
}

impl FromValue for Days {
    fn from_value(value: &DeValue<'_>) -> Result<Self, BadValue> {
        let expected = "days of the week, such as \"mon-fri\" or \"mon,wed,sat-sun\"";
        parse_days(text(value, expected)?).map(Self).ok_or_else(|| unexpected(value, expected))
    }
}

impl FromValue for Hours {
    fn from_value(value: &DeValue<'_>) -> Result<Self, BadValue> {
        let expected = "two times of the day, such as \"9-17:30\", or \"22-6\" over midnight";
        let hours = parse_hours(text(value, expected)?);
        hours.map(|(from, to)| Self { from, to }).ok_or_else(|| unexpected(value, expected))
    }
}

impl FromValue for Estimate {
    fn from_value(value: &DeValue<'_>) -> Result<Self, BadValue> {
        word(value, &[("fixed", Self::Fixed), ("true", Self::True)])
    }
}

impl FromValue for OffKind {
    fn from_value(value: &DeValue<'_>) -> Result<Self, BadValue> {
        word(value, &[("suspend", Self::Suspend), ("shutdown", Self::Shutdown)])
    }
}

impl FromValue for CoprocessorKind {
    fn from_value(value: &DeValue<'_>) -> Result<Self, BadValue> {
        word(value, &Self::ALL.map(|kind| (kind.name(), kind)))
    }
}

impl FromValue for QueuedState {
    fn from_value(value: &DeValue<'_>) -> Result<Self, BadValue> {
        word(value, &Self::ALL.map(|state| (state.name(), state)))
    }
}
