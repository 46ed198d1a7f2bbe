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
pub use fallow_config::{Diagnostic, Diagnostics, Problem, Severity};
pub use files::{Directory, FileError, Files, NoFiles};
pub use model::availability::{Availability, OfficeHours, Trace, TraceChange};
pub use model::client::{Buffer, ClientModel};
pub use model::host::{Bandwidth, CoprocessorKind, CoprocessorModel, HostModel, OffKind};
pub use model::job::{ApplicationModel, CoprocessorUse, Estimate, QueuedJob, QueuedState, TrueFlops, Uses};
pub use model::outage::OutageModel;
pub use model::project::ProjectModel;
pub use model::scenario::Scenario;
pub use text::load::LoadError;
pub use text::read::Loaded;
pub use vary::{Variant, Vary, VaryError};
