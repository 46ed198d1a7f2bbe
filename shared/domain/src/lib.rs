//! Units, ids, projects, hosts and preferences: types that cannot hold nonsense.
//!
//! Everything above this room speaks in these types. They carry their unit in their name, are built by
//! constructors that name the unit, and refuse values that mean nothing (a negative share, a fraction of 3).
//! Nothing here reads a clock, a file or a random number.
//!
//! The types can be serialised because the client's state is stored; wire formats have types of their own.
#![forbid(unsafe_code)]

pub mod agent_state;
pub mod amount;
mod coprocessor_device;
mod device;
mod document;
mod error;
mod exit_code;
mod gpu_exclusion;
mod hex;
mod host;
mod hours;
mod ids;
mod in_progress;
mod key_fingerprint;
mod label;
mod local_preferences;
mod master_url;
mod metric;
mod on_time_table;
mod opencl_device;
mod organisation_key;
mod preferences;
pub mod printable;
mod required_layer;
mod resource;
mod resource_types;
mod signed_documents;
mod time;
mod units;
mod virtualization;

pub use coprocessor_device::CoprocessorDevice;
pub use device::Device;
pub use document::{DocumentVersion, FleetDocument, ProjectAssignment};
pub use error::Invalid;
pub use exit_code::ExitCode;
pub use gpu_exclusion::{Barred, GpuExclusion};
pub use hex::{from_hex, hex};
pub use host::{HostFacts, HostSpeed};
pub use hours::{Hours, LocalTime};
pub use ids::{AccountKey, AgentId, JobId, ProjectId, SlotId};
pub use in_progress::InProgress;
pub use key_fingerprint::KeyFingerprint;
pub use label::{FACTS, LABEL_LENGTH_MAX, LABELS_MAX, LabelName, LabelValue, Labels};
pub use local_preferences::LocalPreferences;
pub use master_url::MasterUrl;
pub use metric::{FigureName, Metric, RPCS_PER_JOB};
pub use on_time_table::{ON_TIME_ROWS_MAX, OnTimeTable, OnTimeWithin};
pub use opencl_device::OpenClDevice;
pub use organisation_key::OrganisationKey;
pub use preferences::{OwnerLimits, Preferences};
pub use required_layer::RequiredLayer;
pub use resource::{Coprocessor, PerType, ResourceType, Usage};
pub use resource_types::ResourceTypes;
pub use signed_documents::SignedDocuments;
pub use time::{Duration, Instant};
pub use units::{Bytes, Flops, Fraction, InstanceSeconds, Share, Speed};
pub use virtualization::{ContainerEngine, ContainerEngineKind, Installed, Virtualization};
