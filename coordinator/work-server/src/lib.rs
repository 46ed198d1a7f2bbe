//! The lab's own projects: a work server that unmodified BOINC clients attach to (R6.8).
//!
//! **Model.** A project has accounts, hosts, applications and workunits. A workunit is computed by several
//! jobs on different hosts until enough of them agree ([`Rules`]); then one job's outputs are kept as
//! canonical. Clients get and report jobs in scheduler RPCs, and move files by plain HTTP. Everything but
//! file content is in the store, under `project/NAME/`; each operation is one atomic batch there. Nothing
//! looks through all jobs: what is to be done next is found in indexes that are derived from the workunits.
//!
//! **Entrance.** [`ProjectServer`]: the operator's calls, and the HTTP service as a router.
//!
//! - `workunit`, `validate`: the life of a workunit, pure.
//! - `project`: one project. `index`, `txn`, `store_keys`, `records`: how it is stored.
//! - `scheduler`: the scheduler RPC. `web`: everything else over HTTP.
//! - `accounts`: the agents' keys. `signing_keys`: those of applications and uploads. `requesters`,
//!   `counted_requesters`, `host_class`: who asked for work lately. `host_limits`: what hosts can take.
//! - `sticky_inputs`: inputs that hosts keep. `host_files`: which host has which. `app_files`: whether files
//!   of applications are still what was signed.
//! - `credit`: what work is worth.
//! - `settings`: what operators may change. `operator_types`: what operators say and are told. `idle_hosts`:
//!   hosts that asked in vain.
//! - `background`: deadlines, comparisons, deletions (BOINC: transitioner, validator, file deleter).
//! - [`connections`]: which connection of a port is evicted when it is full, for whoever listens.
//!
//! **Who counts as one.** Each agent of the fleet has an account of its own in each project, and one host
//! (`accounts`, `scheduler::host`). Other clients attach with accounts that people make, if the operator lets
//! them. An account gets a second job of a workunit only if its first one failed or was lost. A copied
//! machine and the first one count as one account where several must agree (`workunit`).
//!
//! **Omitted**: teams, forums, preferences edited on the project's pages, plan classes beside those of
//! coprocessors, homogeneous redundancy, locality scheduling, trickles (acknowledged, not kept), weak account
//! keys.
#![forbid(unsafe_code)]

mod accounts;
mod app_files;
mod apps;
mod asking_hosts;
mod background;
mod catalog;
mod comparator;
pub mod connections;
mod counted_requesters;
mod credit;
mod error;
mod host_class;
mod host_experience;
mod host_files;
mod host_limits;
mod idle_hosts;
mod index;
mod layout;
mod listing;
mod log_limits;
mod names;
mod new_hosts;
mod operator_types;
mod orphans;
mod project;
mod random;
mod records;
mod requesters;
mod scheduler;
mod server;
mod settings;
mod signing_keys;
mod sticky_inputs;
mod store_keys;
mod submit;
mod txn;
mod validate;
mod web;
mod workunit;

pub use apps::APP_FILE_MAX;
pub use comparator::COMPARATORS;
pub use error::ProjectError;
pub use listing::PAGE_MAX;
pub use operator_types::{
    CanonicalResult, Counts, JobReport, JobView, NewAppVersion, NewInput, NewJobs, NewWorkunit, NoWork,
    OutputContent, OutputSpec, Page, ProjectInfo, SubmissionPiece, SubmissionStatus, WorkunitStatus,
    WorkunitView,
};
pub use server::{Clock, ProjectServer, Via};
pub use settings::{DeletionPolicy, ProjectSettings, SETTINGS, SendRules};
pub use submit::{SUBMIT_ALL_MAX, SUBMIT_MAX};
pub use workunit::{LOST_FREE, LOST_FREE_EACH, Outcome, Rules, ServerState, TOTAL_MAX, Validation};

// What comes from hosts, jobs and peers is shown in many places here.
use fallow_domain::printable;
