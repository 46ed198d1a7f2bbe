//! Why a job runs, and why one does not.

use std::fmt;

use fallow_domain::{Bytes, Duration, Instant, ResourceType};

use crate::accounting::Debt;
use crate::job_queue::{Cpus, Devices, Instances, NoPlace};

/// Why a job runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum WhyRun {
    /// It is one of the jobs of earliest deadline of a project that would miss deadlines (R5.2).
    Endangered {
        /// Its deadline.
        deadline: Instant,
        /// Jobs of its project and type that the simulation shows late.
        misses: u32,
    },
    /// It runs, and its time slice lasts until then.
    InTimeSlice {
        /// End of the slice.
        ends: Instant,
    },
    /// It runs past its slice and has not made a checkpoint; it is preempted then at the latest.
    BeforeCheckpoint {
        /// The bound.
        latest: Instant,
    },
    /// Its project had the largest anticipated priority of those with a job that fits.
    MostOwed {
        /// That priority when the job was chosen.
        anticipated: Debt,
    },
}

/// The rule by which a job runs. It is printed as the id of a requirement, or as what a policy calls its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SchedulingRule {
    /// Endangered jobs run first, the earliest deadline before all others (R5.2).
    EarliestDeadlineFirst,
    /// A running task keeps its instances for its time slice, or until it makes a checkpoint (R2.4).
    KeepsRunning,
    /// The next job is one of the project that is owed most (R2.3).
    MostOwedFirst,
    /// A rule of a policy's own, by the name that it gives it.
    Own(&'static str),
}

impl SchedulingRule {
    /// What it is called where it is told with a reason, such as `R2.3`.
    pub const fn id(self) -> &'static str {
        match self {
            Self::EarliestDeadlineFirst => "R5.2",
            Self::KeepsRunning => "R2.4",
            Self::MostOwedFirst => "R2.3",
            Self::Own(name) => name,
        }
    }
}

impl fmt::Display for SchedulingRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.id())
    }
}

impl WhyRun {
    /// The rule that applied.
    pub const fn rule(&self) -> SchedulingRule {
        match self {
            Self::Endangered { .. } => SchedulingRule::EarliestDeadlineFirst,
            Self::InTimeSlice { .. } | Self::BeforeCheckpoint { .. } => SchedulingRule::KeepsRunning,
            Self::MostOwed { .. } => SchedulingRule::MostOwedFirst,
        }
    }
}

/// Why a job does not run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum WhyNotRun {
    /// Other projects are owed more: this is what its project was owed at the end of the decision.
    Outranked {
        /// The anticipated priority.
        anticipated: Debt,
    },
    /// It needs more CPUs than were left.
    CpusLeft {
        /// CPUs needed.
        needed: Cpus,
        /// CPUs left.
        left: Cpus,
    },
    /// It needs more CPUs than may be used at all.
    CpusUsable {
        /// CPUs needed.
        needed: Cpus,
        /// CPUs that may be used.
        usable: Cpus,
    },
    /// It needs more memory than was left.
    MemoryLeft {
        /// Memory needed.
        needed: Bytes,
        /// Memory left.
        left: Bytes,
    },
    /// It needs more memory than jobs may use at all.
    MemoryLimit {
        /// Memory needed.
        needed: Bytes,
        /// The limit.
        limit: Bytes,
    },
    /// No device of its coprocessor type had as much room left, or not as many devices did.
    DevicesLeft {
        /// The type.
        kind: ResourceType,
        /// Instances needed.
        needed: Instances,
    },
    /// It needs more devices than may be used at all (R3.14).
    DevicesUsable {
        /// The type.
        kind: ResourceType,
        /// Instances needed.
        needed: Instances,
        /// Devices that may be used.
        usable: u32,
    },
    /// A device that it runs on may not be used any more (R3.14). It can go on elsewhere: decide again once
    /// it is preempted.
    DeviceGone {
        /// The devices that it ran on.
        devices: Devices,
    },
    /// As many jobs of its project or its application run as the host's owner lets run at once.
    NoPlace(NoPlace),
    /// Its project takes no part, as when it is suspended.
    ProjectOut,
}

impl WhyNotRun {
    /// Whether it has to leave a device that may not be used any more.
    pub(super) const fn is_device_gone(&self) -> bool {
        matches!(self, Self::DeviceGone { .. })
    }
}

/// Instance time, for people.
fn owed(debt: Debt) -> Duration {
    Duration::from_secs_f64(debt.as_secs())
}

impl fmt::Display for WhyRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Endangered { misses, .. } => {
                write!(f, "its project would miss {misses} deadlines, and its own is among the earliest")
            }
            Self::InTimeSlice { .. } => write!(f, "its time slice is not over"),
            Self::BeforeCheckpoint { .. } => write!(f, "it has not made a checkpoint since its slice ended"),
            Self::MostOwed { anticipated } => write!(f, "its project is owed most ({})", owed(*anticipated)),
        }
    }
}

impl fmt::Display for WhyNotRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Outranked { anticipated } => {
                write!(f, "others come before it, and its project is owed {}", owed(*anticipated))
            }
            Self::CpusLeft { needed, left } => write!(f, "it needs {needed} and {left} were left"),
            Self::CpusUsable { needed, usable } => write!(f, "it needs {needed} of {usable} usable"),
            Self::MemoryLeft { needed, left } => {
                write!(f, "it needs {needed} of memory and {left} were left")
            }
            Self::MemoryLimit { needed, limit } => {
                write!(f, "it needs {needed} of memory and jobs may use {limit}")
            }
            Self::DevicesLeft { kind, needed } => {
                write!(f, "it needs {} of a free {kind}", needed.as_f64())
            }
            Self::DevicesUsable { kind, needed, usable } => {
                write!(f, "it needs {} of {usable} usable {kind}s", needed.as_f64())
            }
            Self::DeviceGone { devices } => write!(f, "device {devices} may not be used any more"),
            Self::NoPlace(NoPlace::OfProject(most)) => {
                write!(f, "the owner lets {most} of its project's jobs run at once")
            }
            Self::NoPlace(NoPlace::OfApplication(most)) => {
                write!(f, "the owner lets {most} of its application's jobs run at once")
            }
            Self::ProjectOut => write!(f, "its project takes no part"),
        }
    }
}
