//! The engine: turns the product's own client, one or many, through virtual time (R5.10).
//!
//! # Model
//! Time jumps from one thing that happens to the next: the host goes on or off, a job reaches its end or a
//! checkpoint, a transfer or an RPC ends, the client's wake-up is due. There is no step.
//!
//! - **The host** is on and off in turn. Off stops everything: jobs, transfers, RPCs, the client. So
//!   everything on the host is timed by a clock that runs only while it is on, and going off costs nothing
//!   but telling the client. When it goes off, jobs lose nothing ([`crate::scenario::OffKind::Suspend`], as
//!   in the evaluation of Kondo, Anderson and McLeod, 2007), or their processes end and what was done since
//!   the last checkpoint is lost (`Shutdown`).
//! - **Several hosts** are all alike and differ in luck: each has its client and is on and off by itself.
//!   They share the projects: their jobs, and when their servers answer.
//! - **Jobs** run at full speed while they run: a job ends when its *true* size is worked off, and says truly
//!   how much of it is done. What the client believes comes from the project's estimates, apart from that. A
//!   job without a checkpoint interval keeps its progress always; one with an interval has checkpoints at
//!   whole multiples of it, to which it falls back when its process ends before it does. A suspended job
//!   stays in memory and loses nothing.
//! - **Projects** answer at once (or after [`RunOptions::rpc_latency`]) while they are up, and not at all
//!   while they are down. A transfer during which the project went down fails at the time it would have
//!   ended.
//! - **Files** go over the host's link one after another in each direction, in the order in which the client
//!   starts them; empty files take no time. Application versions are empty.
//!
//! # Left out
//! Jobs of a project that is over 100% of the CPUs because of GPU jobs do not slow each other down; memory
//! bandwidth, disk speed and the time to start a process are nothing; a server is never slow.
//!
//! # Numbers
//! A run is decided by scenario, composition and seed alone, to the last bit, on every machine (R5.12). What
//! has no number of its own draws from streams named after it, see `random.rs`.

mod account;
mod arrival;
pub(crate) mod availability;
mod calendar;
mod effects;
mod host;
mod jobs;
mod known_host;
mod machine;
mod outcome;
pub(crate) mod random;
mod server;
mod setup;
mod supply;
mod timeline;
mod world;

pub use outcome::{
    BatchOutcome, EndedJob, HostOutcome, Parts, ProjectOutcome, RunFigures, RunOutcome, Span, Timeline,
};

use fallow_domain::Duration;
use fallow_policy::composition::Composition;

use crate::scenario::Scenario;

/// What can be asked of a run beside its result.
#[derive(Clone, Copy, Default)]
pub struct RunOptions<'a> {
    /// Record what ran when on the first host.
    pub timeline: bool,
    /// How long a scheduler or a master page takes to answer.
    pub rpc_latency: Duration,
    /// Called now and then with the time simulated so far; the run stops when it returns false.
    pub watch: Option<&'a (dyn Fn(Duration) -> bool + Sync)>,
}

impl std::fmt::Debug for RunOptions<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RunOptions")
            .field("timeline", &self.timeline)
            .field("rpc_latency", &self.rpc_latency)
            .field("watched", &self.watch.is_some())
            .finish()
    }
}

/// Simulates a scenario under a composition of policies.
///
/// The scenario is taken as sound ([`Scenario::check`]); what is not makes a run without sense, never a
/// panic.
#[must_use]
pub fn run(scenario: &Scenario, composition: Composition, seed: u64, options: RunOptions<'_>) -> RunOutcome {
    world::World::new(scenario, composition, seed, options).run()
}
