//! How an agent runs: what its command line comes to.

use std::path::PathBuf;
use std::time::Duration as StdDuration;

use fallow_domain::OrganisationKey;
use fallow_policy::composition::Composition;
use fallow_tls::{AccessString, Address, Proxies};

use crate::confine::Allowed;
use crate::dir::DataDir;
use crate::host;
use crate::host::owner::OwnerSensors;

/// How an agent runs.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Its data directory.
    pub dir: DataDir,
    /// Its fleet.
    pub enrolment: Enrolment,
    /// The proxies that it connects through.
    pub proxies: Proxies,
    /// The policies to follow.
    pub policy: Composition,
    /// The program that is run as the guard: `fallow-agent` itself.
    pub guard: PathBuf,
    /// What jobs may do beside computing.
    pub allowed: Allowed,
    /// Whether nothing is computed on a host that lacks a layer of confinement.
    pub require_confinement: bool,
    /// Whether a root agent runs even where jobs can be confined by nothing.
    pub root_without_confinement: bool,
    /// Whether no job is confined (for tests).
    pub unconfined: bool,
    /// Layers of confinement that are left away although the host has them.
    pub without_layers: Vec<String>,
    /// How long applications have to leave after the agent was killed.
    pub guard_grace: StdDuration,
    /// How long they have at a clean end.
    pub stop_grace: StdDuration,
    /// How long after the start the CPUs are measured, if they have to be.
    pub benchmark_after: StdDuration,
    /// How long each of the two programs runs that measure them.
    pub benchmark_phase: StdDuration,
    /// Where GPUs are looked for.
    pub gpus: host::gpu::Sources,
    /// How long a new version of the fleet's document is on trial before the agent goes back from it, in time
    /// in which it is up (R6.5).
    pub confirm_within: StdDuration,
    /// Where the kernel says what the machine is fed by.
    pub power: PathBuf,
    /// Where it says what each interface of the network is.
    pub interfaces: PathBuf,
    /// Where it lists routes.
    pub routes: PathBuf,
    /// Where it says how much memory there is.
    pub memory: PathBuf,
    /// How long between two looks at that and at other programs.
    pub look_every: StdDuration,
    /// How long the system is not asked again for directories or a control group of a job's own that it could
    /// not give (R6.10).
    pub layers_again: StdDuration,
    /// How often the disk is measured (R4.1).
    pub measure_disk: StdDuration,
    /// What senses whether somebody uses the machine.
    pub owner: OwnerSensors,
    /// Where people of the machine may ask, if anywhere.
    pub people_socket: Option<PathBuf>,
}

/// What is said of the fleet to join, or to go on in.
#[derive(Clone, Debug, Default)]
pub struct Enrolment {
    /// Where the coordinator is, if not where the token says or where it was.
    pub coordinator: Option<Address>,
    /// An enrolment token; none where the agent is enrolled already, or in no fleet.
    pub token: Option<AccessString>,
    /// The keys by which documents must be signed, as the owner of the host says it; none: as the token says.
    pub organisation: Vec<OrganisationKey>,
}
