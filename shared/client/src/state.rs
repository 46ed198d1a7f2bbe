//! What a client knows: the one value that everything is decided from.
//!
//! The records here are what is stored, one value per key (see `record.rs`); what can be worked out from them
//! (which files a job waits for, the scheduling queue) is not, and is rebuilt at start.

use std::collections::{BTreeMap, BTreeSet};

use fallow_boinc::scheduler::WebPreferences;
use fallow_boinc::signature::PublicKey;
use fallow_domain::{
    AccountKey, Bytes, DocumentVersion, Duration, FleetDocument, Flops, Instant, JobId, KeyFingerprint,
    MasterUrl, OwnerLimits, PerType, ProjectId, ResourceTypes, Share, SlotId, Speed, Usage,
};
use fallow_policy::backoff::Wait;
use fallow_policy::completion::DurationCorrection;
use fallow_policy::confinement::TaskLayers;
use fallow_policy::disk::DeletionChoice;
use fallow_policy::job_queue::Devices;
use fallow_policy::rpc_timing::RpcState;
use fallow_policy::transfer_backoff::TransferBackoff;
use serde::{Deserialize, Deserializer, Serialize};

use crate::confirmation::{RolledBack, Trial};
use crate::described::{Application, FileDescription, JobDescription};
use crate::end_state::EndState;
use crate::file_table::Files;
use crate::file_use::FileUse;
use crate::host_edit::HostRecord;
use crate::job_table::Jobs;
use crate::project_table::Projects;
use crate::quota::Quota;
use crate::slots::Slots;
use crate::transfers::Transfers;
use crate::trickles::Trickles;
use crate::versions::{VersionKey, Versions};
use crate::workunits::Workunits;
use crate::{Direction, DiskHeld, FileKey, RequiredSignature};

/// What concerns the host as a whole.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Meta {
    pub next_project: u32,
    pub next_job: u64,
    pub owner: OwnerLimits,
    pub document: Option<FleetDocument>,
    pub document_applied_at: Instant,
    pub document_refused: Option<(DocumentVersion, String)>,
    /// Projects of the document that the owner detached: not taken up again before he attaches them himself.
    /// Kept when the document drops one, for it may come back.
    #[serde(default)]
    pub declined: BTreeSet<MasterUrl>,
    /// The certificate authority of the fleet that the document is of; none if that was never said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fleet: Option<String>,
    /// The trial of the document, if it is not confirmed yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trial: Option<Trial>,
    /// Versions that the host went back from by itself, the last one at the end.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rolled_back: Vec<RolledBack>,
    /// Until when somebody on the host has paused computing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snoozed_until: Option<Instant>,
    /// On how many occasions something may have been drawn from the host's random stream, so that a restart
    /// does not repeat it.
    pub draws: u64,
}

/// A project, apart from its accounts with us (`Totals`, debts), which change far more often.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Project {
    pub id: ProjectId,
    pub url: MasterUrl,
    pub name: String,
    pub account_key: AccountKey,
    pub share: Share,
    /// The share that the owner gave it. Without one, what the user set on the project's web site holds; the
    /// coordinator's document goes before both.
    #[serde(default)]
    pub chosen_share: Option<Share>,
    /// Its directory, where it is not BOINC's name for it: another project had that one already.
    #[serde(default)]
    pub directory: Option<String>,
    pub from_document: bool,
    /// No more work is fetched; detached when the last job is reported.
    pub detach_when_done: bool,
    pub scheduler_urls: Vec<String>,
    pub rpc: RpcState,
    pub hostid: u64,
    pub rpc_seqno: u64,
    pub code_sign_key: Option<String>,
    /// The only key that its programs may be signed by, as the document in force says; none: the first that
    /// its server shows.
    #[serde(default)]
    pub required_key: Option<KeyFingerprint>,
    /// Types of which it is asked for no jobs, as the document in force says (R6.4).
    #[serde(default, skip_serializing_if = "ResourceTypes::is_empty")]
    pub without: ResourceTypes,
    pub correction: DurationCorrection,
    pub dont_use_dcf: bool,
    pub send_full_workload: bool,
    /// Contact by then even without need (BOINC: `next_rpc_delay`).
    pub contact_by: Option<Wait>,
    pub identity: Identity,
    pub apps: BTreeMap<String, Application>,
    /// Resource types for which it said last that it has no programs (BOINC: `no_rsc_apps`).
    #[serde(default)]
    pub lacks: PerType<bool>,
    /// The instance time of its jobs by their size, as they came last; none while it has sent none.
    #[serde(default)]
    pub job_time: Option<Duration>,
    /// In which order it wants its files deleted (R4.6).
    #[serde(default, skip_serializing_if = "Deletes::is_usual")]
    pub deletes: Deletes,
    /// What the user set for it on its web site, worked out from `identity`.
    #[serde(skip)]
    pub web: WebPreferences,
    /// Types of which the owner lets its jobs use none of the host's devices, worked out from his files.
    #[serde(skip)]
    pub barred: PerType<bool>,
}

/// What a project says about which of its files go first (BOINC: `deletion_policy_priority`,
/// `deletion_policy_expire`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Deletes {
    /// Within a level in order of arrival.
    pub by_priority: bool,
    /// What is past its date goes first.
    pub expired_first: bool,
}

impl Deletes {
    fn is_usual(&self) -> bool {
        *self == Self::default()
    }
}

impl From<Deletes> for DeletionChoice {
    fn from(Deletes { by_priority, expired_first }: Deletes) -> Self {
        Self { priority: by_priority, expiration: expired_first }
    }
}

impl Project {
    /// The name of its directory, which no other project shares.
    pub(crate) fn directory(&self) -> String {
        self.directory.clone().unwrap_or_else(|| self.url.stem())
    }

    /// Reads what its user set on its web site, as it holds at this host's venue.
    pub(crate) fn read_web_preferences(&mut self) {
        self.web = WebPreferences::parse(&self.identity.project_preferences, &self.identity.venue);
    }

    /// The types of which it is asked for no jobs: its user's on its web site, those that the document in
    /// force says, and those of which its jobs may use no device.
    pub(crate) fn left_out(&self) -> PerType<bool> {
        self.web.without.map(|kind, left_out| *left_out || self.without.contains(kind) || self.barred[kind])
    }

    /// From now on its programs must be signed by this key, where one is said. Another one that was taken on
    /// trust is forgotten.
    pub(crate) fn require_key(&mut self, required: Option<KeyFingerprint>) {
        self.required_key = required;
        let held = self.code_sign_key.as_deref();
        if held.is_some_and(|held| !self.may_sign(held)) {
            self.code_sign_key = None;
        }
    }

    /// Whether the key that a document names, if it names one, is the one that holds for it now.
    pub(crate) fn shows_key(&self, named: Option<KeyFingerprint>) -> bool {
        let is_held = |named| {
            let held = self.code_sign_key.as_deref().and_then(|held| PublicKey::parse(held).ok());
            held.is_some_and(|held| held.fingerprint() == named)
        };
        named.is_none_or(|named| self.required_key == Some(named) || is_held(named))
    }

    /// Whether its programs may be signed by a key, in BOINC's text form.
    pub(crate) fn may_sign(&self, key: &str) -> bool {
        let is = |required| PublicKey::parse(key).is_ok_and(|key| key.fingerprint() == required);
        self.required_key.is_none_or(is)
    }

    /// Gives one that the owner attached its weight: what he gave it, else what its user set on its web site.
    /// Says whether that is another than before.
    pub(crate) fn settle_share(&mut self) -> bool {
        if self.from_document {
            return false;
        }
        let share = self.chosen_share.or(self.web.share).unwrap_or(Share::DEFAULT);
        std::mem::replace(&mut self.share, share) != share
    }
}

/// What a project told us about our account there; echoed or passed on to applications.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Identity {
    pub user_id: u64,
    pub team_id: u64,
    pub user_name: String,
    pub team_name: String,
    pub cross_project_id: String,
    pub user_total_credit: f64,
    pub user_expavg_credit: f64,
    pub host_total_credit: f64,
    pub host_expavg_credit: f64,
    pub venue: String,
    pub project_preferences: String,
    /// What the user set for all projects on this one's web site (BOINC: `global_preferences`).
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub global_preferences: String,
    /// When that came, as it is now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub global_preferences_at: Option<Instant>,
}

/// Compared with every reply of a server. Most of the texts are empty as a rule, and where the C library
/// compares with AVX-512, comparing nothing with nothing takes a hundred times as long as to find that there
/// is nothing to compare.
impl PartialEq for Identity {
    fn eq(&self, other: &Self) -> bool {
        let is_same = |one: &str, other: &str| one.len() == other.len() && (one.is_empty() || one == other);
        let mut texts = self.texts().into_iter().zip(other.texts());
        self.numbers() == other.numbers() && texts.all(|(one, other)| is_same(one, other))
    }
}

impl Identity {
    fn texts(&self) -> [&str; 6] {
        // Every field is named, so that none is forgotten here or in `numbers`.
        let Self {
            user_id: _,
            team_id: _,
            user_name,
            team_name,
            cross_project_id,
            user_total_credit: _,
            user_expavg_credit: _,
            host_total_credit: _,
            host_expavg_credit: _,
            venue,
            project_preferences,
            global_preferences,
            // It differs where they do.
            global_preferences_at: _,
        } = self;
        [user_name, team_name, cross_project_id, venue, project_preferences, global_preferences]
    }

    const fn numbers(&self) -> (u64, u64, [f64; 4]) {
        let Self { user_total_credit, user_expavg_credit, host_total_credit, host_expavg_credit, .. } = self;
        let credits = [*user_total_credit, *user_expavg_credit, *host_total_credit, *host_expavg_credit];
        (self.user_id, self.team_id, credits)
    }
}

/// A file of a project, present or to come.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct File {
    pub info: FileDescription,
    /// Must carry a signature: it belongs to an application version.
    pub signed: bool,
    pub status: FileStatus,
    /// The signature by which it was accepted when it came: its project may have another key since.
    #[serde(default)]
    pub proof: Option<RequiredSignature>,
    /// Of a finished output.
    pub found: Option<(Bytes, String)>,
    /// Of an output that has changed: how long what it was may be at a server, which may have been sent in
    /// part.
    #[serde(default, alias = "anew", deserialize_with = "stale")]
    pub stale: Bytes,
    pub transfer: Option<Transfer>,
    /// What decides how long it stays when no job needs it.
    #[serde(default, skip_serializing_if = "Kept::is_unknown")]
    pub kept: Kept,
}

/// Since when a file is here, and until when (R4.7). Older versions stored nothing of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Kept {
    /// When it came.
    pub arrived: Option<Instant>,
    /// When the last job that used it was forgotten; before that, it is in use.
    pub last_used: Option<Instant>,
    /// Its project wants it kept until then (BOINC: `sticky_lifetime`).
    pub sticky_until: Option<Instant>,
}

impl Kept {
    /// Nothing is known of it.
    fn is_unknown(&self) -> bool {
        *self == Self::default()
    }
}

/// Reads a length, or what earlier versions stored under `anew`: whether it begins anew, whatever a server
/// has.
fn stale<'de, D: Deserializer<'de>>(source: D) -> Result<Bytes, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Stored {
        Length(Bytes),
        Anew(bool),
    }
    Ok(match Stored::deserialize(source)? {
        Stored::Length(length) => length,
        Stored::Anew(true) => Bytes(u64::MAX),
        Stored::Anew(false) => Bytes(0),
    })
}

impl File {
    /// In how many places it may be had, or sent to.
    pub(crate) fn urls(&self) -> usize {
        match &self.transfer {
            Some(transfer) if transfer.direction == Direction::Upload => self.info.upload_urls.len(),
            _ => self.info.gzipped_urls.len() + self.info.download_urls.len(),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum FileStatus {
    /// Not here yet.
    Absent,
    /// Here, complete, verified (an output: written by its application).
    Present,
    /// An output that the server has.
    Uploaded,
    /// Given up, with BOINC's error number and the reason.
    Failed(i32, String),
}

/// A download or upload that is not over.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Transfer {
    #[serde(rename = "upload")]
    pub direction: Direction,
    pub url_index: usize,
    pub backoff: TransferBackoff,
    /// Handed to the shell. Not kept over a restart.
    #[serde(skip)]
    pub active: bool,
}

/// A job given to this host.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Job {
    pub id: JobId,
    pub project: ProjectId,
    pub result: JobDescription,
    pub version: VersionKey,
    pub received_at: Instant,
    pub usage: Usage,
    /// What it uses by its project, where the owner has it counted with something else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub declared: Option<Usage>,
    pub flops_estimate: Flops,
    /// Of one instance of this application on this host.
    pub speed: Speed,
    /// Elapsed time after which the job is aborted.
    pub elapsed_max: Duration,
    pub stage: Stage,
    pub slot: Option<SlotId>,
    pub run: Run,
    pub outcome: Option<Outcome>,
    #[serde(skip)]
    pub process: Process,
    #[serde(skip)]
    pub given: Given,
}

/// What a job's process was started with (R6.10).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Given {
    pub network: bool,
    /// What the shell could not give it.
    pub without: TaskLayers,
}

/// Where a job stands, coarsely.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Stage {
    /// Files are missing.
    Downloading,
    /// Can run, or runs.
    Runnable,
    /// Over; outputs are on their way.
    Uploading,
    /// To be reported.
    Reporting,
}

/// What a task has done so far.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Run {
    /// CPU time charged to the project for it, lost work included.
    pub charged: Duration,
    /// Instance time of its coprocessor charged likewise.
    #[serde(default)]
    pub charged_coprocessor: Duration,
    /// CPU time towards the result when the present process began.
    pub base: Duration,
    /// CPU time of the present process that is charged.
    pub process_cpu: Duration,
    /// The last start has not been seen to fail or to end: what its channel says after a crash is not charged
    /// yet beyond `process_cpu`.
    pub live: bool,
    /// Starts that were decided so far. The shell notes the number beside the slot, so that after a crash the
    /// channel of the last start is told from that of the one before.
    #[serde(default)]
    pub starts: u32,
    /// CPU time towards the result at the last checkpoint.
    pub checkpoint_cpu: Duration,
    /// What the application itself said then; a change of it is a checkpoint.
    pub checkpoint_said: Duration,
    pub elapsed: Duration,
    pub checkpoint_elapsed: Duration,
    /// What the last run had come to at its end: what it had left may be taken later.
    #[serde(default)]
    pub end_elapsed: Duration,
    pub fraction_done: f64,
    /// The same at the last checkpoint, to which a task falls back with its CPU time.
    #[serde(default)]
    pub checkpoint_fraction: f64,
    pub working_set: Bytes,
    pub peak_working_set: Bytes,
    /// What of its memory was in the swap space when that was looked at last.
    #[serde(skip)]
    pub swap: Bytes,
    /// What it had there when it had to leave memory for that while it ran; none once it starts again.
    #[serde(skip)]
    pub swapped: Bytes,
    /// So many times in a row it had to leave for that soon after it had started.
    #[serde(skip)]
    pub swap_exits: u32,
    /// So many times it held more of it then than all tasks may, and had saved nothing since the first.
    #[serde(skip)]
    pub swap_vain: u32,
    /// What `elapsed` was when its process started.
    #[serde(skip)]
    pub elapsed_base: Duration,
    /// The most that its files ever held.
    pub disk_usage: Bytes,
    /// What they held when they were counted last.
    #[serde(skip)]
    pub disk_held: DiskHeld,
    /// Ends without a finish file since the last checkpoint.
    pub premature_exits: u32,
    /// Those of them that came soon after their start, one after the other.
    #[serde(default)]
    pub quick_exits: u32,
    /// Starts in a row that the host has not brought about.
    #[serde(default)]
    pub failed_starts: u32,
    /// How often it was ended to make room on a full disk.
    #[serde(default)]
    pub made_room: u32,
    /// Not to be started before.
    pub not_before: Instant,
    /// When the present time slice began.
    pub slice_since: Instant,
    /// The devices of its coprocessor type that it runs on.
    #[serde(skip)]
    pub devices: Devices,
    /// Has ever been given to the shell.
    pub begun: bool,
    /// Has ever had a process: its slot is filled.
    pub ran: bool,
    pub checkpoint_at: Option<Instant>,
}

impl Run {
    /// CPU time towards the result, lost work excluded.
    pub(crate) fn cpu(&self) -> Duration {
        self.base + self.process_cpu
    }
}

/// The process of a task, as far as the client steers it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Process {
    #[default]
    None,
    /// Handed to the shell.
    Starting,
    Executing(u32),
    Suspended(u32),
    /// Told to leave memory.
    Quitting(Option<u32>),
    /// Told to give up.
    Aborting(Option<u32>),
}

impl Process {
    pub(crate) fn exists(self) -> bool {
        self != Self::None
    }
    pub(crate) fn is_suspended(self) -> bool {
        matches!(self, Self::Suspended(_))
    }
    pub(crate) fn computes(self) -> bool {
        matches!(self, Self::Starting | Self::Executing(_))
    }
    pub(crate) fn pid(self) -> Option<u32> {
        match self {
            Self::Executing(pid) | Self::Suspended(pid) => Some(pid),
            Self::Quitting(pid) | Self::Aborting(pid) => pid,
            Self::None | Self::Starting => None,
        }
    }
}

/// How a job ended.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Outcome {
    pub exit_status: i32,
    pub state: EndState,
    pub message: Option<String>,
    pub stderr: String,
    pub at: Instant,
}

impl Outcome {
    /// The job is done.
    pub(crate) fn is_success(&self) -> bool {
        self.exit_status == 0 && self.state == EndState::Done
    }
}

impl State {
    /// The files of an application version.
    pub(crate) fn version_files(&self, key: &VersionKey) -> Vec<FileKey> {
        let files = self.versions.get(key).map(|version| version.files.as_slice()).unwrap_or_default();
        files.iter().map(|file| FileKey { project: key.project, name: file.file_name.clone() }).collect()
    }

    /// The files that a job reads: its version's and its workunit's.
    pub(crate) fn input_files(&self, job: &Job) -> Vec<FileKey> {
        let mut keys = self.version_files(&job.version);
        let inputs = self.workunits.get(&job.workunit());
        let inputs = inputs.map(|workunit| workunit.files.as_slice()).unwrap_or_default();
        keys.extend(inputs.iter().map(|file| FileKey { project: job.project, name: file.file_name.clone() }));
        keys
    }
}

/// What the client knows.
#[derive(Debug, Default)]
pub(crate) struct State {
    pub host: HostRecord,
    pub projects: Projects,
    pub versions: Versions,
    pub workunits: Workunits,
    pub files: Files,
    pub jobs: Jobs,
    // Worked out from the above.
    /// Who needs which file.
    pub file_use: FileUse,
    /// Slots that no job can be put into yet.
    pub slots: Slots,
    /// Files with a transfer that is not over.
    pub transfers: Transfers,
    /// Messages of jobs to their projects. The files are the record.
    pub trickles: Trickles,
    /// What was transferred of late. A record of its own.
    pub quota: Quota,
}
