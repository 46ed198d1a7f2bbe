//! What is simulated: a host, a client and its projects (R5.11).
//!
//! A [`Scenario`] holds everything that is given, and nothing that is drawn: the seed comes beside it. It is
//! read from a TOML file, taken from a BOINC client's data directory, or built in ([`Scenario::base`],
//! [`Scenario::mix`]).
//!
//! **Time.** A simulation begins at 0; what lies before (a queued job's arrival) is a negative duration.
//!
//! **What makes sense** is said in one place: fields whose type cannot rule nonsense out (a buffer of -1 day)
//! are looked at by [`Scenario::check`], which every reader calls.

mod boinc;
mod check;
mod files;
mod model;
mod presets;
mod text;
mod vary;

pub use boinc::{BoincError, FromBoinc};
pub use check::{Problem, Severity};
pub use files::{Directory, FileError, Files, NoFiles};
pub use model::availability::{Availability, Trace, TraceChange};
pub use model::client::{Buffer, ClientModel};
pub use model::host::{Bandwidth, CoprocessorKind, CoprocessorModel, HostModel, OffKind};
pub use model::job::{ApplicationModel, CoprocessorUse, Estimate, QueuedJob, QueuedState, TrueFlops, Uses};
pub use model::project::ProjectModel;
pub use text::diagnostic::{Diagnostic, Diagnostics};
pub use text::load::LoadError;
pub use text::read::Loaded;
pub use vary::{Variant, Vary, VaryError};

use std::collections::BTreeSet;

use fallow_domain::{Duration, Preferences};

/// Everything that is given to a simulation, but for its seed and its policies.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// Its name, as shown in tables and files.
    pub name: String,
    /// How long is simulated.
    pub duration: Duration,
    /// The machine.
    pub host: HostModel,
    /// The client's preferences.
    pub client: ClientModel,
    /// The projects it is attached to, at least one, in the order of attachment. No two have the same name.
    pub projects: Vec<ProjectModel>,
}

impl Scenario {
    /// The client's preferences as the product's own code takes them.
    #[must_use]
    pub fn preferences(&self) -> Preferences {
        // By name, so that none is forgotten.
        let ClientModel {
            scheduling_period,
            buffer: Buffer { min: buffer_min, additional: buffer_additional },
            leave_in_memory,
            checkpoint_period,
            cpu_fraction,
            cpu_time_fraction,
            memory_fraction,
            disk_fraction,
            disk_free_min,
        } = self.client;
        Preferences {
            cpu_fraction,
            cpu_time_fraction,
            buffer_min,
            buffer_additional,
            scheduling_period,
            checkpoint_period,
            leave_in_memory,
            suspended: false,
            memory_fraction,
            disk_fraction,
            disk_free_min,
            connection_interval: self.host.connection_interval,
            excluded_devices: BTreeSet::new(),
        }
    }
}
