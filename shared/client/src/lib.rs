//! The client as a pure state machine: events and time in; effects with reasons, changes of state and the
//! next wake-up out.
//!
//! All that a volunteer-computing client decides is decided here, by the policies of `fallow-policy`: what to
//! run, what to fetch, whom to contact when, what to report, what to delete. Nothing here reads a clock,
//! opens a file or draws a random number of its own, so that a simulator turns the very machine that a host
//! runs (R5.10).
//!
//! # Turning it
//! ```text
//! let mut client = Client::restore(config, stored records)?;
//! let step = client.handle(now, Event::Started(..));
//! loop {
//!     store step.changes in one atomic batch (durably if step.durable)      // before acting
//!     carry out step.actions in order
//!     wait for an event or step.wake_at
//!     step = client.handle(now, event)
//! }
//! ```
#![forbid(unsafe_code)]

mod accounts;
mod actions;
mod app_configs;
mod arrival;
mod attaching;
mod budget;
mod carried;
mod cause;
mod clock;
mod confinement;
mod confirmation;
mod connection;
mod cut;
mod decision;
mod described;
mod device_view;
mod devices;
mod direction;
mod disk;
mod disk_edit;
mod disk_view;
mod dropped;
mod effect;
mod end_state;
mod estimates;
mod event;
mod file_edit;
mod file_table;
mod file_use;
mod files;
mod gpu_exclusions;
mod held_back;
mod hopeless;
mod host_edit;
mod in_force;
mod in_use;
mod incoming;
mod job_diff;
mod job_edit;
mod job_table;
mod jobs;
mod jobs_network;
mod known_devices;
mod ledger;
mod libraries;
mod limits;
mod machine;
mod messages;
mod other_network;
mod pages;
mod people;
mod planning;
mod presence;
mod project_edit;
mod project_table;
mod projects;
mod quota;
mod random;
mod record;
mod records;
mod reply;
mod reports;
mod request;
mod room;
mod rpc;
mod schedule;
mod separation;
mod set_aside;
mod setup;
mod slots;
mod snooze;
mod stalls;
mod startup;
mod state;
mod stretches;
mod surroundings;
mod swap;
mod tasks;
mod throttle;
mod timers;
mod transfers;
mod trial;
mod trickles;
mod under_way;
mod versions;
mod view;
mod wanted;
mod watch;
mod why;
mod wifi;
mod workload;
mod workunits;

pub use app_configs::{AppConfigFound, AppConfigView};
pub use attaching::{Attached, NotAttached, Verdict};
pub use cause::{Cause, LimitExceeded, Rule};
pub use cut::cut;
pub use device_view::{DeviceState, DeviceView};
pub use direction::Direction;
pub use disk::DiskDeed;
pub use disk_view::{DiskProjectView, DiskView};
pub use effect::*;
pub use event::*;
pub use in_force::{NAMING_PROGRAMS, PreferenceFiles};
pub use in_use::{Attention, InUseView, Rests};
pub use known_devices::{DeviceTemperature, DeviceUser};
pub use limits::TaskLimits;
pub use machine::{Client, ClientConfig};
pub use messages::NoWork;
pub use record::RestoreError;
pub use room::{Goes, Held, Press, Room};
pub use separation::separate;
pub use snooze::{SNOOZE_MAX, SNOOZE_SAME};
pub use surroundings::{CpuWork, LooksFor, NetworkOver, Surroundings};
pub use trickles::{TRICKLE_MAX, TRICKLES_OF_JOB};
pub use view::*;
pub use why::{Why, WhyCalled};

use fallow_domain::{Duration, Instant, JobId, ProjectId};

/// What one event led to.
#[derive(Debug, Default)]
pub struct Step {
    /// What to do, in this order.
    pub actions: Vec<Action>,
    /// What to store before doing it, in one atomic batch.
    pub changes: Vec<Change>,
    /// The changes must survive a power cut: a job is done, a document accepted, a report acknowledged.
    pub durable: bool,
    /// When to call again with [`Event::WakeUp`] if nothing else happens before.
    pub wake_at: Option<Instant>,
    /// Whose view has changed: what the fleet link has to send again.
    pub touched: Vec<Entity>,
}

/// A record to be stored (`Some`) or deleted (`None`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The record's key.
    pub key: Vec<u8>,
    /// Its value.
    pub value: Option<Vec<u8>>,
}

/// Something that has a view.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Entity {
    /// [`HostView`].
    Host,
    /// [`Client::disk_decisions`]; gone while there are none.
    Disk,
    /// [`ProjectView`]; gone when the client has none of that id any more.
    Project(ProjectId),
    /// [`TaskView`]; likewise.
    Job(JobId),
}

/// A file of a project.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
pub struct FileKey {
    /// The project.
    pub project: ProjectId,
    /// The file's name in the project's directory.
    pub name: String,
}

/// What a project has had of this host since the store was made. Only ever rises, but for `in_progress`.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Totals {
    /// CPU time as the kernel counts it. The next four add up to it.
    pub cpu: Duration,
    /// Of jobs that are not over.
    pub cpu_in_progress: Duration,
    /// Of jobs that succeeded in time.
    pub cpu_success: Duration,
    /// Of jobs that failed, were aborted or were never reported.
    pub cpu_error: Duration,
    /// Of jobs that were late.
    pub cpu_late: Duration,
    /// CPU time used while every project of the host with a share had runnable work.
    pub cpu_contested: Duration,
    /// Scheduler RPCs.
    pub rpcs: u64,
    /// Of those, the ones that failed.
    pub rpc_failures: u64,
    /// Jobs that succeeded in time.
    pub jobs_success: u64,
    /// Jobs that failed, were aborted or were never reported.
    pub jobs_error: u64,
    /// Jobs that were late.
    pub jobs_late: u64,
}

// The modelled host of the integration tests names the crate from outside.
#[cfg(test)]
extern crate self as fallow_client;
#[cfg(test)]
mod tests;
