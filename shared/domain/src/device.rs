//! Single devices of a host: what preferences name when they leave some of them alone (R3.14).

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::{Invalid, ResourceType};

/// Devices are numbered from 0; a higher number than this is an error.
const NUMBER_MAX: u32 = 63;
const EXPECTED: &str = "nvidia, amd, intel or apple and a number from 0 to 63, such as nvidia:0";

/// One device of a coprocessor type, written `nvidia:0`. Numbers are those that the type's driver counts by,
/// from 0 (BOINC: the number in `ignore_nvidia_dev` and its like).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Device {
    kind: ResourceType,
    number: u32,
}

impl Device {
    /// A device by its type and number.
    ///
    /// # Errors
    /// [`Invalid`] for a CPU, which is no device, and for a number above 63.
    pub fn new(kind: ResourceType, number: u32) -> Result<Self, Invalid> {
        let device = Self { kind, number };
        match kind.is_coprocessor() && number <= NUMBER_MAX {
            true => Ok(device),
            false => Err(Invalid::new("device", device, EXPECTED)),
        }
    }

    /// Its type, never the CPU.
    pub const fn kind(self) -> ResourceType {
        self.kind
    }

    /// Its number, at most 63.
    pub const fn number(self) -> u32 {
        self.number
    }

    /// Reads several of them, parted by commas or blanks; `none` for none.
    ///
    /// # Errors
    /// [`Invalid`] for the first that is none.
    pub fn read_list(text: &str) -> Result<BTreeSet<Self>, Invalid> {
        let names: Vec<&str> = text.split([',', ' ']).filter(|name| !name.is_empty()).collect();
        match names.as_slice() {
            [] => Err(Invalid::new("device", text, EXPECTED)),
            [none] if none.eq_ignore_ascii_case("none") => Ok(BTreeSet::new()),
            names => names.iter().map(|name| name.parse()).collect(),
        }
    }

    /// Several of them for people: `nvidia:0, nvidia:1`, or `none`.
    pub fn list<'a>(devices: impl IntoIterator<Item = &'a Self>) -> String {
        let all: Vec<String> = devices.into_iter().map(Self::to_string).collect();
        if all.is_empty() { "none".to_owned() } else { all.join(", ") }
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.kind.name(), self.number)
    }
}

impl FromStr for Device {
    type Err = Invalid;
    fn from_str(text: &str) -> Result<Self, Invalid> {
        let bad = || Invalid::new("device", text, EXPECTED);
        let (kind, number) = text.trim().split_once(':').ok_or_else(bad)?;
        let kind = ResourceType::from_name(&kind.to_ascii_lowercase()).ok_or_else(bad)?;
        Self::new(kind, number.parse().map_err(|_| bad())?)
    }
}

impl TryFrom<String> for Device {
    type Error = Invalid;
    fn try_from(text: String) -> Result<Self, Invalid> {
        text.parse()
    }
}
impl From<Device> for String {
    fn from(device: Device) -> Self {
        device.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r3_14_a_device_reads_as_it_is_written() {
        let device = Device::new(ResourceType::Nvidia, 1).unwrap();
        assert_eq!((device.to_string().as_str(), "nvidia:1".parse()), ("nvidia:1", Ok(device)));
        let stored = serde_json::to_string(&device).unwrap();
        assert_eq!((stored.as_str(), serde_json::from_str(&stored).unwrap()), ("\"nvidia:1\"", device));
    }

    #[test]
    fn r3_14_a_list_of_devices_is_read_however_it_is_written() {
        let list = |text: &str| Device::read_list(text).map(|devices| Device::list(&devices));
        for text in ["nvidia:0,amd:1", "NVIDIA:0 amd:1", " amd:1, nvidia:0 "] {
            assert_eq!(list(text).unwrap(), "nvidia:0, amd:1", "{text}");
        }
        assert_eq!(list("None").unwrap(), "none");
        assert!(list("").is_err() && list("none,nvidia:0").is_err());
    }

    #[test]
    fn r3_14_what_is_no_device_is_refused() {
        for bad in ["", "nvidia", "nvidia:", "nvidia:-1", "nvidia:64", "cpu:0", "voodoo:0", "0:nvidia"] {
            assert!(bad.parse::<Device>().is_err(), "{bad}");
        }
        assert!(serde_json::from_str::<Device>("\"cpu:0\"").is_err());
    }
}
