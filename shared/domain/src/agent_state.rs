//! What an agent says of itself (R6.3): entries, each of the host, its disk, a project or a task, and each
//! under a key of its own.
//!
//! Amounts are totals since the agent's store was made; of what was done about the disk, since its start.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{
    Bytes, DocumentVersion, Duration, Fraction, Instant, MasterUrl, OrganisationKey, OwnerLimits,
    Preferences, ResourceType, Share,
};

/// Which part of an agent's state an entry tells of. In order: the host, its disk, projects, tasks.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum EntryKey {
    /// The host as a whole.
    Host,
    /// What was decided about its disk.
    Disk,
    /// A project that is attached.
    Project(MasterUrl),
    /// A job that the host has.
    Task {
        /// Its project.
        project: MasterUrl,
        /// Its name, which no other job of the project has.
        name: String,
    },
}

/// An entry.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Entry {
    /// The host as a whole. In a box: there is one, and every task would take as much memory.
    Host(Box<HostState>),
    /// What was decided about its disk of late, the last at the end (R4.13). Apart from the host, which
    /// changes far more often.
    Disk(Vec<DiskDecision>),
    /// A project.
    Project(ProjectState),
    /// A task.
    Task(TaskState),
}

impl Entry {
    /// The key that it has.
    #[must_use]
    pub fn key(&self) -> EntryKey {
        match self {
            Self::Host(_) => EntryKey::Host,
            Self::Disk(_) => EntryKey::Disk,
            Self::Project(project) => EntryKey::Project(project.url.clone()),
            Self::Task(task) => EntryKey::Task { project: task.project.clone(), name: task.name.clone() },
        }
    }
}

/// The host as a whole.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HostState {
    /// The name that the host has in its network.
    pub hostname: String,
    /// What people on the host call the agent: the name of its directory, unless that is the usual one. May
    /// be empty.
    pub name: String,
    /// CPUs of the machine.
    pub cpus: u32,
    /// CPUs that may be used now.
    pub usable_cpus: u32,
    /// CPUs that nothing runs on, of those.
    pub idle_cpus: u32,
    /// Who suspended computing, if anybody.
    pub suspended_by: Option<SuspendedBy>,
    /// What keeps it from contacting projects, if anything does.
    #[serde(default)]
    pub network_rests: Option<NetworkRest>,
    /// The document that is followed.
    pub document_version: DocumentVersion,
    /// The content of that document, as the coordinator named it; empty where the agent does not say.
    #[serde(default)]
    pub document_content: String,
    /// When it was applied; the epoch if there is none.
    pub document_applied_at: Instant,
    /// The newest document that was refused since, and why.
    pub document_refused: Option<(DocumentVersion, String)>,
    /// The version that the host went back from last by itself, unless a newer one was confirmed since
    /// (R6.5): it had that one, which is not the same as never to have had it.
    #[serde(default)]
    pub rolled_back: Option<RolledBack>,
    /// The metrics over one day, seven and thirty (R5.34).
    pub metrics: [Metrics; 3],
    /// CPU time of all tasks, those of detached projects too.
    pub cpu_time: Duration,
    /// Scheduler RPCs made.
    pub scheduler_rpcs: u64,
    /// Jobs over.
    pub jobs_finished: u64,
    /// When this life of the agent began.
    pub started_at: Instant,
    /// Operating system, such as `linux`; empty where the agent does not say.
    #[serde(default)]
    pub os: String,
    /// Architecture of the CPUs, such as `x86_64`; empty where the agent does not say.
    #[serde(default)]
    pub arch: String,
    /// Main memory; 0 where the agent does not say.
    #[serde(default)]
    pub memory: Bytes,
    /// Coprocessors, how many of each kind.
    #[serde(default)]
    pub coprocessors: BTreeMap<ResourceType, u32>,
    /// What runs the virtual machine that the host is, such as `kvm`; empty where it is none, and of older
    /// agents.
    #[serde(default)]
    pub hypervisor: String,
    /// What the agent's container was made with, such as `docker`; empty where it is in none.
    #[serde(default)]
    pub container: String,
    /// The program that runs containers there, such as `podman`; empty where there is none.
    #[serde(default)]
    pub container_engine: String,
    /// Version of the agent; empty where it does not say.
    #[serde(default)]
    pub agent_version: String,
    /// Somebody uses the machine, and less of it computes meanwhile by files of its owner.
    #[serde(default)]
    pub in_use: bool,
    /// The limits of the host's owner (R6.4).
    #[serde(default)]
    pub owner: OwnerLimits,
    /// What the owner says in all, with where; none where he says nothing, and of older agents.
    #[serde(default)]
    pub owner_word: Option<Box<OwnerWord>>,
    /// Projects of the document that the owner detached.
    #[serde(default)]
    pub declined: Vec<MasterUrl>,
    /// The keys by which documents must be signed that the host follows (R6.10); none where it follows
    /// whatever its coordinator says.
    #[serde(default)]
    pub organisation: Vec<OrganisationKey>,
    /// How it stands with the disk; none while that was not measured, and of older agents.
    #[serde(default)]
    pub disk: Option<Box<DiskSpace>>,
}

/// How it stands with the disk of a host (R4.1), and what was done about it since the agent was started.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskSpace {
    /// What agent and projects may use together.
    pub limit: Bytes,
    /// What limits that, in words.
    pub limited_by: String,
    /// What they use.
    pub used: Bytes,
    /// What has to be freed until computing goes on; 0 where it does.
    pub missing: Bytes,
    /// Computing is suspended for want of space, whatever else suspends it.
    pub is_suspended: bool,
    /// Files deleted.
    pub deleted_files: u64,
    /// Their bytes.
    pub deleted: Bytes,
    /// Jobs given back to their servers.
    pub jobs_given_back: u64,
}

/// Something that was decided about the disk of a host (R4.13).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskDecision {
    /// When.
    pub at: Instant,
    /// What.
    pub what: DiskAct,
    /// Whose file or job it was, if anybody's.
    pub project: Option<MasterUrl>,
    /// The name of the file or job; empty where it is about none.
    pub name: String,
    /// What it frees; of a suspension, what others have to free.
    pub bytes: Bytes,
    /// The rule by which it was decided, such as `R4.8`.
    pub rule: String,
    /// Why, for people.
    pub why: String,
}

/// What can be decided about a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DiskAct {
    /// A file was deleted.
    Deleted,
    /// A job was given back to its server.
    GivenBack,
    /// Computing was suspended.
    Suspended,
    /// Computing may go on.
    Resumed,
    /// Something that a newer agent knows and this version does not.
    Other,
}

impl DiskAct {
    /// For people.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Deleted => "deleted",
            Self::GivenBack => "given back",
            Self::Suspended => "suspended",
            Self::Resumed => "resumed",
            Self::Other => "other",
        }
    }
}

/// What the commands and the files of a host's owner come to, beside the document that it follows (R6.4).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OwnerWord {
    /// How many preferences he says, those too of which the document is stricter.
    pub said: u32,
    /// All preferences in force, whatever time it is.
    pub preferences: Preferences,
    /// Those of them that are his and not the document's: their keys, such as `hours`, each with where he
    /// says it, such as `preferences.toml, line 7`.
    pub places: BTreeMap<String, String>,
}

/// A version of the document that a host went back from by itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RolledBack {
    /// The version.
    pub version: DocumentVersion,
    /// When.
    pub at: Instant,
    /// What was wrong under it, for people.
    pub why: String,
}

/// Who suspended computing on a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SuspendedBy {
    /// Its owner, on the host itself.
    Owner,
    /// The fleet's document.
    Coordinator,
    /// Nobody: it is none of the hours in which the host may compute.
    Hours,
    /// Somebody who uses the host.
    InUse,
    /// Somebody on the host, for a while.
    Snooze,
    /// Nobody: the host runs on its battery.
    Battery,
    /// Other programs of the host, which need it.
    OtherPrograms,
    /// Nobody: there was no input for so long that the host is to go to sleep.
    NoInput,
    /// A file of preferences on the host that cannot be read.
    PreferenceFile,
    /// Nobody: there is less space on the disk than its owner wants left.
    Disk,
    /// Nobody: the agent was started a moment ago, and is to wait.
    StartDelay,
    /// Preferences require layers of confinement that the host lacks.
    Confinement,
    /// Somebody whom a newer agent knows and this version does not.
    Other,
}

impl SuspendedBy {
    /// For people.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Owner => "owner",
            Self::Coordinator => "coordinator",
            Self::Hours => "hours",
            Self::InUse => "in use",
            Self::Snooze => "snooze",
            Self::Battery => "battery",
            Self::OtherPrograms => "other programs",
            Self::NoInput => "no input",
            Self::PreferenceFile => "preference file",
            Self::Disk => "disk",
            Self::StartDelay => "start delay",
            Self::Confinement => "confinement",
            Self::Other => "other",
        }
    }
}

impl fmt::Display for SuspendedBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What in the preferences of the network keeps a host from contacting projects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NetworkRest {
    /// It is none of the hours of the network.
    Hours,
    /// As much was transferred as may be in some days.
    Amount,
    /// The host is not on WiFi.
    Wifi,
    /// It is not known yet whether the host is on WiFi; or it is something that only a newer agent knows.
    Other,
}

impl NetworkRest {
    /// As programs read it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Hours => "hours",
            Self::Amount => "amount",
            Self::Wifi => "wifi",
            Self::Other => "other",
        }
    }
}

/// The metrics of a window (R5.30 to R5.35). None where nothing happened that could be judged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Metrics {
    /// R5.30.
    pub idleness: Option<Fraction>,
    /// R5.31.
    pub waste: Option<Fraction>,
    /// R5.32.
    pub share_violation: Option<Fraction>,
    /// R5.35.
    #[serde(default)]
    pub share_deviation: Option<Fraction>,
    /// R5.33.
    pub monotony: Option<Fraction>,
    /// Scheduler RPCs per job with a known fate (R5.34).
    pub rpcs_per_job: Option<f64>,
}

/// A project that a host is attached to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProjectState {
    /// Its URL.
    pub url: MasterUrl,
    /// Its name, as it or the coordinator gave it.
    pub name: String,
    /// Its weight.
    pub share: Share,
    /// Short-term debt (R2.1) in CPU time; below zero where the project had more than its due.
    pub debt: Duration,
    /// CPU time as the kernel counts it.
    pub cpu_time: Duration,
    /// Of that, what jobs took whose fate is open.
    pub cpu_in_progress: Duration,
    /// What jobs took that were done in time.
    pub cpu_success: Duration,
    /// What jobs took that failed.
    pub cpu_error: Duration,
    /// What jobs took that were done too late.
    pub cpu_late: Duration,
    /// CPU time used while every project of the host with a share had runnable work.
    pub cpu_contested: Duration,
    /// Scheduler RPCs made.
    pub scheduler_rpcs: u64,
    /// Of those, the ones that failed.
    pub scheduler_failures: u64,
    /// No scheduler RPC before this instant, and why.
    pub min_rpc_time: Option<(Instant, String)>,
    /// Jobs done in time.
    pub jobs_success: u64,
    /// Jobs that failed.
    pub jobs_error: u64,
    /// Jobs done too late.
    pub jobs_late: u64,
}

/// A job that a host has.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TaskState {
    /// Its project.
    pub project: MasterUrl,
    /// Its name.
    pub name: String,
    /// Where it stands; none if the agent does not say.
    pub phase: Option<Phase>,
    /// CPU time towards its result, lost work excluded.
    pub cpu_time: Duration,
    /// The same at its last checkpoint.
    pub checkpoint_cpu_time: Duration,
    /// How much of it is done, as the application says.
    pub fraction_done: Fraction,
    /// When its report is due.
    pub deadline: Instant,
}

/// Where a job stands, for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Its files are on their way.
    Downloading,
    /// It could run and has not begun.
    Ready,
    /// It runs.
    Running,
    /// It began and waits.
    Preempted,
    /// Its outputs are on their way.
    Uploading,
    /// Done, to be reported.
    ReadyToReport,
    /// Failed, to be reported.
    Failed,
}
