//! What operators say to a hosted project and what it tells them: plain values, no wire formats.

use std::path::PathBuf;

use fallow_domain::{AccountKey, AgentId, Bytes, Duration, Flops, Instant, KeyFingerprint, MasterUrl, Usage};
use serde::{Deserialize, Serialize};

use super::settings::ProjectSettings;
use super::workunit::{Outcome, Rules, ServerState, Validation};

/// A hosted project, as operators and agents need it.
#[derive(Clone, Debug, PartialEq)]
pub struct ProjectInfo {
    /// Its name in URLs, directories and the store.
    pub name: String,
    /// Its master URL.
    pub url: MasterUrl,
    /// The project's own account, for clients that its operator attaches by hand. Each agent has another of
    /// its own.
    pub account_key: AccountKey,
    /// What was decided about it.
    pub settings: ProjectSettings,
    /// When it was made.
    pub created_at: Instant,
    /// The key by which its programs are signed.
    pub code_sign_key: KeyFingerprint,
    /// Whether the private part of that key lies elsewhere.
    pub is_signed_elsewhere: bool,
    /// Why the last host that asked got nothing; none if a job was sent since.
    pub last_refusal: Option<NoWork>,
}

/// A host that asked for work and got none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoWork {
    /// When.
    pub at: Instant,
    /// The host's number in the project.
    pub host: u64,
    /// The agent on it; none for a client outside the fleet.
    pub agent: Option<AgentId>,
    /// Its name.
    pub host_name: String,
    /// Why, in the words that its owner is told.
    pub reason: String,
}

/// How many of what there is. Kept up to date with every change, never counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Counts {
    /// Workunits ever submitted.
    pub workunits: u64,
    /// Those with a canonical job.
    pub workunits_validated: u64,
    /// Those given up.
    pub workunits_failed: u64,
    /// Jobs that wait for a host.
    pub jobs_unsent: u64,
    /// Jobs that a host has.
    pub jobs_in_progress: u64,
    /// Jobs that are reported, late or not needed any more.
    pub jobs_over: u64,
}

/// A version of an application, from files on this machine.
#[derive(Clone, Debug, PartialEq)]
pub struct NewAppVersion {
    /// The application's name, such as `mersenne`.
    pub application: String,
    /// Its name for people; empty for the same.
    pub friendly_name: String,
    /// The version in BOINC's counting: 100 for 1.00.
    pub version: u32,
    /// BOINC platform, such as `x86_64-pc-linux-gnu`.
    pub platform: String,
    /// The files; the first is the main program.
    pub files: Vec<PathBuf>,
    /// The signatures of the files, in their order, as BOINC writes them: for a project whose code-signing
    /// key is kept elsewhere. Those that are missing or empty are made here.
    pub signatures: Vec<String>,
    /// What a job of it uses (R3.1). One with a coprocessor is for hosts that have that.
    pub usage: Usage,
    /// Its jobs need the network while they run (BOINC: `needs_network`).
    pub needs_network: bool,
}

impl Default for NewAppVersion {
    fn default() -> Self {
        Self {
            application: String::new(),
            friendly_name: String::new(),
            version: 0,
            platform: String::new(),
            files: Vec::new(),
            signatures: Vec::new(),
            usage: Usage::ONE_CPU,
            needs_network: false,
        }
    }
}

/// Work to be done.
#[derive(Clone, Debug, PartialEq)]
pub struct NewWorkunit {
    /// Unique in the project; empty to have one made.
    pub name: String,
    /// The application that does it.
    pub application: String,
    /// What it is started with.
    pub command_line: String,
    /// Files it reads.
    pub inputs: Vec<NewInput>,
    /// Files it writes.
    pub outputs: Vec<OutputSpec>,
    /// Estimated size (BOINC: `rsc_fpops_est`).
    pub flops_estimate: Flops,
    /// Size at which a job is aborted (BOINC: `rsc_fpops_bound`).
    pub flops_bound: Flops,
    /// Memory it needs (BOINC: `rsc_memory_bound`).
    pub memory_bound: Bytes,
    /// Disk space at which a job is aborted (BOINC: `rsc_disk_bound`).
    pub disk_bound: Bytes,
    /// Latency bound: a job's deadline is this long after it was sent (BOINC: `delay_bound`).
    pub delay_bound: Duration,
    /// Redundancy.
    pub rules: Rules,
    /// How outputs are compared, by name; see [`COMPARATORS`](super::COMPARATORS).
    pub comparator: String,
}

impl NewWorkunit {
    /// A workunit with the given sizes in proportion and modest limits: bound ten times the estimate, 256 MiB
    /// of memory, 100 MiB of disk, a week's deadline, and no redundancy (quorum 1).
    pub fn new(application: impl Into<String>, flops_estimate: Flops) -> Self {
        Self {
            name: String::new(),
            application: application.into(),
            command_line: String::new(),
            inputs: Vec::new(),
            outputs: Vec::new(),
            flops_estimate,
            flops_bound: Flops::new(flops_estimate.get() * 10.0).unwrap_or(flops_estimate),
            memory_bound: Bytes::from_mebibytes(256),
            disk_bound: Bytes::from_mebibytes(100),
            delay_bound: Duration::from_hours(7 * 24),
            rules: Rules { quorum: 1, initial_jobs: 1, max_error_jobs: 3, max_total_jobs: 6 },
            comparator: "bytewise".to_owned(),
        }
    }
}

/// A submission, or a piece of a long one.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SubmissionPiece {
    /// Names the submission: what is repeated under its key is taken once. Empty: none, and this is all of
    /// it.
    pub key: String,
    /// Fingerprint of the whole submission, made by whoever sends it. Another one under the same key is
    /// refused.
    pub digest: String,
    /// Workunits of the whole.
    pub total: u64,
    /// How many of them come before those here.
    pub offset: u64,
    /// Nothing is taken: the answer says only whether it would be.
    pub check_only: bool,
    /// The work.
    pub workunits: Vec<NewWorkunit>,
}

impl SubmissionPiece {
    /// A submission that has no key.
    pub fn whole(workunits: Vec<NewWorkunit>) -> Self {
        Self { total: workunits.len() as u64, workunits, ..Self::default() }
    }
}

/// What became of a piece.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SubmissionStatus {
    /// Names of its workunits, whether taken now or before. None of those that were only checked.
    pub names: Vec<String>,
    /// Workunits of the whole submission that are stored now.
    pub taken: u64,
    /// When the first of it was; none if nothing is.
    pub begun_at: Option<Instant>,
    /// Workunits of this piece that were stored before.
    pub known: u64,
}

/// A file that a job reads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NewInput {
    /// The name under which the application opens it.
    pub open_name: String,
    /// What is in it.
    pub content: Vec<u8>,
    /// The name under which hosts keep it, for all workunits that read it (R4.11; BOINC: `sticky`). Empty: it
    /// is this workunit's own.
    pub keep_as: String,
    /// Instead of the content of an input that hosts keep: the SHA-256, in lower-case hexadecimal, of what
    /// was sent before under this name. Empty: the content is here.
    pub sha256: String,
}

/// A file that a job writes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputSpec {
    /// The name under which the application opens it.
    pub open_name: String,
    /// A longer file makes the job an error (BOINC: `max_nbytes`).
    pub max_bytes: Bytes,
}

/// Part of a list, and whether there is more behind it.
#[derive(Clone, Debug, PartialEq)]
pub struct Page<T> {
    /// The entries, in order of their name.
    pub items: Vec<T>,
    /// Ask again with the last name for the rest.
    pub more: bool,
}

/// Where a workunit stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkunitStatus {
    /// Its jobs are not all over, or no quorum agrees yet.
    Active,
    /// It has a canonical job.
    Validated,
    /// It is given up.
    Failed,
}

/// A workunit as operators see it.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkunitView {
    /// Its name.
    pub name: String,
    /// The application that does it.
    pub application: String,
    /// Where it stands.
    pub state: WorkunitStatus,
    /// Why it failed; empty otherwise.
    pub error: String,
    /// Jobs on different hosts that must agree.
    pub quorum: u32,
    /// The job whose outputs were chosen; empty before that.
    pub canonical_job: String,
    /// Its jobs in the order they were made.
    pub jobs: Vec<JobView>,
}

/// A job as operators see it.
#[derive(Clone, Debug, PartialEq)]
pub struct JobView {
    /// Its name.
    pub name: String,
    /// Where it stands.
    pub state: ServerState,
    /// How it ended.
    pub outcome: Option<Outcome>,
    /// What the comparison said.
    pub validation: Option<Validation>,
    /// What an unsent job waits for, such as `a host that has not failed it`; empty for any host.
    pub waits_for: String,
    /// Where `waits_for` says that fewer hosts ask for work than must agree: how many more ask that count as
    /// one with others, as copies of a host.
    pub copied_hosts: u64,
    /// When it is tried again, if that is put off after an error of its workunit.
    pub waits_until: Option<Instant>,
    /// The host that has or had it, by its number in the project; 0 for none.
    pub host_id: u64,
    /// The agent on that host; none for a client outside the fleet.
    pub agent: Option<AgentId>,
    /// That host's own name.
    pub host_name: String,
    /// When it was sent last.
    pub sent_at: Option<Instant>,
    /// When its report is due.
    pub deadline: Option<Instant>,
    /// When it was reported.
    pub received_at: Option<Instant>,
    /// CPU time as the host reported it.
    pub cpu_time: Duration,
    /// Exit status as the host reported it.
    pub exit_status: i32,
    /// How often it was sent, to the same host again when that had lost it.
    pub times_sent: u32,
}

/// All that is known of a job: what its host reported, with its last words.
#[derive(Clone, Debug, PartialEq)]
pub struct JobReport {
    /// The job.
    pub job: JobView,
    /// Its workunit.
    pub workunit: String,
    /// Where that stands.
    pub workunit_state: WorkunitStatus,
    /// Why the workunit failed; empty otherwise.
    pub workunit_error: String,
    /// The application that does it.
    pub application: String,
    /// What it was started with.
    pub command_line: String,
    /// The application version that it was sent with, in BOINC's counting; 0 before that.
    pub version: u32,
    /// The platform of that version; empty before that.
    pub platform: String,
    /// The end of its standard error, after what the client itself said of the failure; empty for one that
    /// succeeded. Holds no control characters but line ends and tabs.
    pub stderr: String,
}

/// The chosen outputs of a validated workunit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CanonicalResult {
    /// The workunit.
    pub workunit: String,
    /// The job that they come from.
    pub job: String,
    /// Hosts whose jobs agreed with it, itself included.
    pub agreeing_hosts: u32,
    /// The files.
    pub outputs: Vec<OutputContent>,
}

/// A file that a job wrote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutputContent {
    /// The name under which the application opened it.
    pub open_name: String,
    /// What is in it.
    pub content: Vec<u8>,
}

/// What came to wait for hosts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NewJobs {
    /// Unsent jobs that were not there before.
    pub jobs: u64,
    /// Agents to be told: one a job, and one more for each account that had a copy already. None during the
    /// backoff after an error: they count when it ends, although no job is new then.
    pub agents: u64,
}
