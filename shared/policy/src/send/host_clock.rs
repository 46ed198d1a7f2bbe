//! The clock of a simulation on a host: what passes on it while the host computes.
//!
//! Model: WS2 knows one figure of a host, its availability, and stretches running times by it. WS3 knows how
//! much on-time there is within times to come: deadlines are told on a clock that stands still while the host
//! is off, and running times as they are.

use fallow_domain::{Duration, Instant, OnTimeTable};

use crate::on_time::Sureness;

/// How a host's time passes in a simulation.
#[derive(Clone, Copy, Debug)]
pub(super) enum HostClock<'a> {
    /// Jobs take so many times as long as they run.
    Stretched(f64),
    /// Jobs take as long as they run, and deadlines are when so much on-time has passed.
    OnTime(&'a OnTimeTable, Sureness),
}

impl HostClock<'_> {
    /// How many times as long as it runs a job takes.
    pub(super) const fn stretch(&self) -> f64 {
        match self {
            Self::Stretched(stretch) => *stretch,
            Self::OnTime(..) => 1.0,
        }
    }

    /// An instant on this clock, which shows what the time is now. One that has passed stays where it is.
    pub(super) fn at(&self, now: Instant, instant: Instant) -> Instant {
        let length = instant - now;
        match self {
            Self::OnTime(table, sureness) if length.is_positive() => now + within(table, length, *sureness),
            Self::OnTime(..) | Self::Stretched(_) => instant,
        }
    }
}

/// On-time within a time to come.
pub(super) fn within(table: &OnTimeTable, length: Duration, sureness: Sureness) -> Duration {
    match sureness {
        Sureness::Sure => table.sure(length),
        // A host tells of nothing that is less sure.
        Sureness::Even | Sureness::Possible | Sureness::Hope => table.possible(length),
    }
}
