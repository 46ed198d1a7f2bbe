//! What is known about a host.

use serde::{Deserialize, Serialize};

use crate::{Bytes, Coprocessor, Speed, Virtualization};

/// The speed of one CPU, as benchmarks measured it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct HostSpeed {
    /// Floating-point operations per second of one CPU (BOINC: `p_fpops`).
    pub fpops: Speed,
    /// Integer operations per second of one CPU (BOINC: `p_iops`).
    pub iops: Speed,
    /// Memory bandwidth in bytes per second (BOINC: `p_membw`).
    pub membw: f64,
    /// When this was measured, in seconds since the epoch (BOINC: `p_calculated`).
    pub measured_at: f64,
}

/// One machine, as its agent found it (BOINC: `host_info`). Facts only; no wishes, no limits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HostFacts {
    /// Seconds east of UTC.
    pub timezone: i64,
    /// The host's name.
    pub domain_name: String,
    /// Its address as it sees it, for the server's information.
    pub ip_addr: String,
    /// A random identity of 32 hexadecimal digits made once per host (BOINC: `host_cpid`).
    pub host_cpid: String,
    /// Logical CPUs.
    pub ncpus: u32,
    /// CPU vendor, such as `AuthenticAMD`.
    pub cpu_vendor: String,
    /// CPU model.
    pub cpu_model: String,
    /// CPU features, separated by blanks.
    pub cpu_features: String,
    /// Measured speed.
    pub speed: HostSpeed,
    /// Main memory.
    pub memory: Bytes,
    /// CPU cache.
    pub cache: Bytes,
    /// Swap space.
    pub swap: Bytes,
    /// Size of the volume that holds the agent's data.
    pub disk_total: Bytes,
    /// Free space there.
    pub disk_free: Bytes,
    /// Operating system, such as `Linux Debian`.
    pub os_name: String,
    /// Its version.
    pub os_version: String,
    /// BOINC platforms that this host runs, the primary one first, such as `x86_64-pc-linux-gnu`.
    pub platforms: Vec<String>,
    /// Coprocessors, one entry a kind (R3.1).
    #[serde(default)]
    pub coprocessors: Vec<Coprocessor>,
    /// Whether it is a machine of its own, and what on it could run other systems.
    #[serde(default)]
    pub virtualization: Virtualization,
}
