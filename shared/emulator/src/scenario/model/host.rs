//! The machine: processors, memory, disk, network, and when it is on.

use std::fmt;
use std::num::{NonZeroU32, NonZeroU64};

use fallow_domain::{Bytes, Duration, ResourceType, Speed};

use super::availability::Availability;
use super::job::Uses;

/// The machine that computes.
#[derive(Clone, Debug, PartialEq)]
pub struct HostModel {
    /// Its CPUs.
    pub cpus: NonZeroU32,
    /// The speed of one CPU.
    pub flops: Speed,
    /// When it computes. Off time stops work and is not available time (R5.30).
    pub available: Availability,
    /// What happens to running jobs when it goes off.
    pub off: OffKind,
    /// Least time between periods of network activity, 0 for always connected (R1.13).
    pub connection_interval: Duration,
    /// Its coprocessors, each kind once.
    pub coprocessors: Vec<CoprocessorModel>,
    /// Its memory. None: enough for everything.
    pub memory: Option<Bytes>,
    /// The disk that holds the client's data. None: enough for everything.
    pub disk: Option<Bytes>,
    /// Speed of downloads. None: files are there at once.
    pub download: Option<Bandwidth>,
    /// Speed of uploads. None: files are gone at once.
    pub upload: Option<Bandwidth>,
}

impl HostModel {
    /// Its coprocessors of a kind, if it has any.
    #[must_use]
    pub fn coprocessor(&self, kind: CoprocessorKind) -> Option<&CoprocessorModel> {
        self.coprocessors.iter().find(|coprocessor| coprocessor.kind == kind)
    }

    /// How fast a job runs that has for itself what it uses: on its coprocessor instances, which its CPUs
    /// only feed, or else on its CPUs. None: the host lacks the coprocessor, or the job uses nothing.
    #[must_use]
    pub fn speed_for(&self, uses: Uses) -> Option<Speed> {
        let speed = match uses.coprocessor {
            Some(used) => self.coprocessor(used.kind)?.flops.get() * used.instances,
            None => self.flops.get() * uses.cpus,
        };
        Speed::new(speed).ok()
    }
}

/// What happens to running jobs when the host goes off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OffKind {
    /// They stop where they are and go on there: a machine that sleeps, or whose owner is at the keyboard.
    #[default]
    Suspend,
    /// They end, and go on from their last checkpoint: a machine that is switched off.
    Shutdown,
}

/// Coprocessors of one kind.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CoprocessorModel {
    /// Their kind.
    pub kind: CoprocessorKind,
    /// How many.
    pub count: NonZeroU32,
    /// The speed of one.
    pub flops: Speed,
}

/// A kind of coprocessor (R3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CoprocessorKind {
    /// BOINC: `NVIDIA`, `CUDA`.
    Nvidia,
    /// BOINC: `ATI`.
    Amd,
    /// BOINC: `intel_gpu`.
    Intel,
    /// BOINC: `apple_gpu`.
    Apple,
}

impl CoprocessorKind {
    /// All kinds, in order.
    pub const ALL: [Self; 4] = [Self::Nvidia, Self::Amd, Self::Intel, Self::Apple];

    /// Its name in scenario files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Nvidia => "nvidia",
            Self::Amd => "amd",
            Self::Intel => "intel",
            Self::Apple => "apple",
        }
    }

    /// The resource type that it is.
    #[must_use]
    pub const fn resource(self) -> ResourceType {
        match self {
            Self::Nvidia => ResourceType::Nvidia,
            Self::Amd => ResourceType::Amd,
            Self::Intel => ResourceType::Intel,
            Self::Apple => ResourceType::Apple,
        }
    }

    /// The kind that a resource type is; none for the CPU.
    #[must_use]
    pub fn from_resource(resource: ResourceType) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.resource() == resource)
    }

    /// The kind of that name in scenario files.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

impl fmt::Display for CoprocessorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A speed of transfer: whole bytes per second, above zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bandwidth(NonZeroU64);

impl Bandwidth {
    /// From bytes per second; none for zero.
    #[must_use]
    pub const fn from_bytes_per_second(bytes: u64) -> Option<Self> {
        match NonZeroU64::new(bytes) {
            Some(bytes) => Some(Self(bytes)),
            None => None,
        }
    }
    /// Bytes per second.
    #[must_use]
    pub const fn bytes_per_second(self) -> u64 {
        self.0.get()
    }
    /// How long a transfer takes that has the network for itself.
    #[must_use]
    pub fn time_for(self, bytes: Bytes) -> Duration {
        Duration::from_secs_f64(bytes.as_f64() / self.0.get() as f64)
    }
}
