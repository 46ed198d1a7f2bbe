//! The lab's own projects: a work server that unmodified BOINC clients attach to (R6.8).
//!
//! **Model.** A project has accounts, hosts, applications and workunits. A workunit is computed by several jobs on
//! different hosts until enough of them agree ([`Rules`]); then one job's outputs are kept as canonical. Clients get and
//! report jobs in scheduler RPCs, and move files by plain HTTP. Everything but file content is in the store, under
//! `project/NAME/`; each operation is one atomic batch there. Nothing looks through all jobs: what is to be done next is
//! found in indexes that are derived from the workunits.
//!
//! **Entrance.** [`ProjectServer`]: the operator's calls, and the HTTP service as a router.
//!
//! - `workunit`, `verdict`: the life of a workunit, pure.
//! - `index`, `txn`, `keys`, `records`: how it is stored.
//! - `scheduler`: the scheduler RPC. `web`: everything else over HTTP.
//! - `accounts`: the agents' keys. `seekers`, `alike`: who asked for work lately. `kept`: inputs that hosts keep.
//! - `credit`: what work is worth.
//! - `settings`: what operators may change. `waiting`: hosts that asked in vain.
//! - `upkeep`: deadlines, comparisons, deletions.
//! - [`guests`]: connections of nobody in particular, for whoever listens.
//!
//! **Who counts as one.** Each agent of the fleet has an account of its own in each project, and one host (`accounts`,
//! `scheduler::host`). Other clients attach with accounts that people make, if the operator lets them. No two jobs of a
//! workunit go to one account.
//!
//! **Omitted**: teams, forums, preferences edited on the
//! project's pages, plan classes beside those of coprocessors, homogeneous redundancy, locality scheduling, trickles (acknowledged,
//! not kept), weak account keys.
#![forbid(unsafe_code)]

mod accounts;
mod alike;
mod apps;
mod catalog;
mod comparator;
mod credit;
mod error;
pub mod guests;
mod holders;
mod hosted;
mod index;
mod intact;
mod kept;
mod keyring;
mod keys;
mod layout;
mod listing;
mod names;
mod random;
mod records;
mod scheduler;
mod seekers;
mod server;
mod settings;
mod submit;
mod txn;
mod types;
mod upkeep;
mod verdict;
mod waiting;
mod web;
mod workunit;

pub use apps::APP_FILE_MAX;
pub use comparator::COMPARATORS;
pub use error::ProjectError;
pub use listing::PAGE_MAX;
pub use server::{Clock, ProjectServer};
pub use settings::{DeletionPolicy, ProjectSettings, SETTINGS, SendRules};
pub use submit::SUBMIT_MAX;
pub use types::{
    CanonicalResult, Counts, JobReport, JobView, NewAppVersion, NewInput, NewJobs, NewWorkunit,
    OutputContent, OutputSpec, Page, Piece, ProjectInfo, Refusal, Taken, WorkunitView,
};
pub use workunit::{JobState, Outcome, Rules, TOTAL_MAX, Validation};

// What comes from hosts, jobs and peers is shown in many places here.
use fallow_domain::printable;
