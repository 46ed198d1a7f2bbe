//! What OpenCL says of a device (R3.15).

use serde::{Deserialize, Serialize};

use crate::Bytes;

/// A device as OpenCL shows it (BOINC: `coproc_opencl`). The names of BOINC's elements stand beside what is
/// called otherwise here.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenClDevice {
    /// Its place among the GPUs of its platform, from 0 (BOINC: `opencl_device_index`).
    pub index: u32,
    /// Model.
    pub name: String,
    /// Who made it, in words.
    pub vendor: String,
    /// Who made it, as a number of the vendor's.
    pub vendor_id: u32,
    /// It can be used now.
    pub available: bool,
    /// What it can do with numbers of 16 bits, as bits; 0 if nothing (BOINC: `half_fp_config`).
    pub half: u64,
    /// The same of 32 bits (BOINC: `single_fp_config`).
    pub single: u64,
    /// The same of 64 bits (BOINC: `double_fp_config`).
    pub double: u64,
    /// It has the lowest byte of a number first (BOINC: `endian_little`).
    pub little_endian: bool,
    /// What it can execute, as bits (BOINC: `execution_capabilities`).
    pub executes: u64,
    /// The names of its extensions, parted by blanks.
    pub extensions: String,
    /// Its memory (BOINC: `global_mem_size`).
    pub memory: Bytes,
    /// The memory of one compute unit (BOINC: `local_mem_size`).
    pub local_memory: Bytes,
    /// Highest clock in MHz (BOINC: `max_clock_frequency`).
    pub clock_mhz: u32,
    /// Compute units (BOINC: `max_compute_units`).
    pub compute_units: u32,
    /// The version of its platform, such as `OpenCL 3.0 `.
    pub platform_version: String,
    /// The version that the device has, which servers compare, such as `OpenCL 2.0 AMD-APP (3590.0)`.
    pub device_version: String,
    /// The version of its driver.
    pub driver_version: String,
}

impl OpenClDevice {
    /// The version of OpenCL that the device has, such as (2, 0). None where it does not say.
    pub fn version(&self) -> Option<(u32, u32)> {
        let number = self.device_version.strip_prefix("OpenCL ")?.split(' ').next()?;
        let (major, minor) = number.split_once('.')?;
        Some((major.parse().ok()?, minor.parse().ok()?))
    }

    /// What this device and another one can both do; in words it is the one with the lower version.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        let (lower, higher) = if other.version() < self.version() { (other, self) } else { (self, other) };
        let has = |name: &&str| higher.extensions.split(' ').any(|one| one == *name);
        let extensions: Vec<&str> = lower.extensions.split(' ').filter(has).collect();
        Self {
            available: self.available && other.available,
            half: self.half & other.half,
            single: self.single & other.single,
            double: self.double & other.double,
            executes: self.executes & other.executes,
            extensions: extensions.join(" "),
            memory: self.memory.min(other.memory),
            local_memory: self.local_memory.min(other.local_memory),
            clock_mhz: self.clock_mhz.min(other.clock_mhz),
            compute_units: self.compute_units.min(other.compute_units),
            ..lower.clone()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(version: &str, double: u64, extensions: &str, mebibytes: u64) -> OpenClDevice {
        OpenClDevice {
            name: format!("of {version}"),
            double,
            extensions: extensions.to_owned(),
            memory: Bytes::from_mebibytes(mebibytes),
            device_version: version.to_owned(),
            ..OpenClDevice::default()
        }
    }

    #[test]
    fn r3_15_the_version_is_read_as_servers_read_it() {
        for (text, version) in [
            ("OpenCL 2.0 AMD-APP (3590.0)", Some((2, 0))),
            ("OpenCL 3.0 NEO ", Some((3, 0))),
            ("OpenCL 1.2", Some((1, 2))),
            ("OpenCL x.1", None),
            ("3.0", None),
            ("", None),
        ] {
            assert_eq!(device(text, 0, "", 0).version(), version, "{text}");
        }
    }

    #[test]
    fn r3_15_of_unlike_devices_only_what_both_can_do_is_said() {
        let (new, old) = (device("OpenCL 3.0", 63, "a b c", 8_000), device("OpenCL 1.2", 0, "c a", 16_000));
        let expected =
            OpenClDevice { memory: Bytes::from_mebibytes(8_000), ..device("OpenCL 1.2", 0, "c a", 0) };
        assert_eq!(new.and(&old), expected);
        assert_eq!(old.and(&new), expected);
        assert_eq!(new.and(&new), new);
    }
}
