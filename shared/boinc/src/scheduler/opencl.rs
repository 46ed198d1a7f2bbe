//! What OpenCL says of a device, in a request (R3.15; BOINC: `coproc_opencl`).

use fallow_domain::{Bytes, OpenClDevice};

use crate::xml::elements;

elements! {
/// The properties by which servers choose programs for OpenCL, each field under its element's name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OpenCl {
    /// Model.
    pub name: String,
    /// Who made the device.
    pub vendor: String,
    /// The same as a number.
    pub vendor_id: u32,
    /// It can be used now.
    pub available: bool,
    /// What it can do with numbers of 16 bits, as bits.
    pub half_fp_config: u64,
    /// With those of 32 bits.
    pub single_fp_config: u64,
    /// With those of 64 bits: 0 if nothing.
    pub double_fp_config: u64,
    /// It has the lowest byte of a number first.
    pub endian_little: bool,
    /// What it can execute, as bits.
    pub execution_capabilities: u64,
    /// The names of its extensions, parted by blanks.
    pub extensions: String,
    /// Its memory.
    pub global_mem_size: Bytes,
    /// The memory of one compute unit.
    pub local_mem_size: Bytes,
    /// Highest clock in MHz.
    pub max_clock_frequency: u32,
    /// Compute units.
    pub max_compute_units: u32,
    /// The version of its platform.
    pub opencl_platform_version: String,
    /// The version of OpenCL that it has: `OpenCL`, a blank, the number.
    pub opencl_device_version: String,
    /// The version of its driver.
    pub opencl_driver_version: String,
}
}

impl From<OpenClDevice> for OpenCl {
    fn from(device: OpenClDevice) -> Self {
        Self {
            name: device.name,
            vendor: device.vendor,
            vendor_id: device.vendor_id,
            available: device.available,
            half_fp_config: device.half,
            single_fp_config: device.single,
            double_fp_config: device.double,
            endian_little: device.little_endian,
            execution_capabilities: device.executes,
            extensions: device.extensions,
            global_mem_size: device.memory,
            local_mem_size: device.local_memory,
            max_clock_frequency: device.clock_mhz,
            max_compute_units: device.compute_units,
            opencl_platform_version: device.platform_version,
            opencl_device_version: device.device_version,
            opencl_driver_version: device.driver_version,
        }
    }
}
