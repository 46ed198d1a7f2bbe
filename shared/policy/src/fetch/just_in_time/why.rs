//! Why work is fetched just in time, or ahead.

use std::fmt;

use fallow_domain::{Duration, InstanceSeconds, ResourceType};

use crate::fetch::FetchPriority;

/// What makes the host ask.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Occasion {
    /// Instances idle.
    Idle {
        /// So many.
        idle: f64,
        /// What idles until the near future ends.
        lacking: InstanceSeconds,
    },
    /// Instances idle, and what waits needs more of them.
    Unfilled {
        /// So many.
        idle: f64,
    },
    /// An instance will idle soon.
    Soon {
        /// After so much on-time.
        after: Duration,
        /// What idles until the near future ends.
        lacking: InstanceSeconds,
    },
    /// Whether a project has work is not known: it never had any, or had none for long.
    Untried,
    /// Less on-time than is to be is covered by work held.
    Ahead {
        /// What is covered.
        held: Duration,
        /// What is to be.
        wanted: Duration,
    },
}

impl Occasion {
    /// What comes first is less.
    pub const fn urgency(&self) -> u8 {
        match self {
            Self::Idle { .. } | Self::Unfilled { .. } => 0,
            Self::Soon { .. } => 1,
            Self::Untried => 2,
            Self::Ahead { .. } => 3,
        }
    }

    /// What idles until the near future ends.
    pub const fn lacking(&self) -> InstanceSeconds {
        match self {
            Self::Idle { lacking, .. } | Self::Soon { lacking, .. } => *lacking,
            Self::Unfilled { .. } | Self::Untried | Self::Ahead { .. } => InstanceSeconds::ZERO,
        }
    }
}

/// Why a project is asked.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WhyJustInTime {
    /// The type that is needed.
    pub kind: ResourceType,
    /// What makes the host ask.
    pub occasion: Occasion,
    /// What the project is owed.
    pub priority: FetchPriority,
    /// How its typical job fits; none if none is known.
    pub job: Option<Fit>,
}

/// Whether a job is in time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fit {
    /// On-time from now to its end.
    pub takes: Duration,
    /// On-time within its deadline.
    pub there: Duration,
}

impl Fit {
    /// Whether there is as much on-time as it takes.
    pub fn is_in_time(&self) -> bool {
        self.takes <= self.there
    }
}

impl fmt::Display for WhyJustInTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, priority, .. } = self;
        match self.occasion {
            Occasion::Idle { idle, .. } => write!(f, "{idle:.2} {kind} idle")?,
            Occasion::Unfilled { idle } => {
                write!(f, "{idle:.2} {kind} idle, and jobs that wait need more")?;
            }
            Occasion::Soon { after, .. } => write!(f, "a {kind} idles in {after}")?,
            Occasion::Untried => write!(f, "{kind}: whether it has work is not known")?,
            Occasion::Ahead { held, wanted } => {
                write!(f, "{kind}: work for {held} is held, and {wanted} are to be covered")?;
            }
        }
        write!(f, "; it stands best ({priority})")?;
        match self.job {
            Some(Fit { takes, there }) => write!(f, ", its jobs take {takes}, and have {there}"),
            None => write!(f, ", nothing is known of its jobs"),
        }
    }
}
