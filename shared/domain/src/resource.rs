//! Kinds of processing resources, and how much of them a job uses (R3.1).

use serde::{Deserialize, Serialize};

/// A kind of processing resource (BOINC: processor resource).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum ResourceType {
    /// The CPUs of the host.
    Cpu,
}

/// What a job holds while it runs; it does not change while it does.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Usage {
    /// CPUs, possibly a fraction of one or several (BOINC: `avg_ncpus`). Finite, not negative.
    pub cpus: f64,
}

impl Usage {
    /// One CPU.
    pub const ONE_CPU: Self = Self { cpus: 1.0 };

    /// From what a server says; anything that is not a sensible number of CPUs becomes one CPU.
    pub fn from_cpus(cpus: f64) -> Self {
        if cpus.is_finite() && cpus > 0.0 && cpus <= 1e6 { Self { cpus } } else { Self::ONE_CPU }
    }
}
