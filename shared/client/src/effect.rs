//! Everything a client can ask its shell to do.
//!
//! An effect is a value; the shell carries it out and answers with an [`crate::Event`]. It chooses nothing:
//! which URL, which slot, when to try again is all decided here. Each effect travels in an [`Action`] with
//! its reason.

use std::fmt;

use fallow_boinc::runtime::init_data::AppInitData;
use fallow_boinc::scheduler::SchedulerRequest;
use fallow_domain::{Bytes, Duration, JobId, MasterUrl, ProjectId, SlotId};
use fallow_policy::confinement::TaskLayers;
use serde::{Deserialize, Serialize};

use crate::cause::{Cause, Rule};
use crate::why::Why;
use crate::{FileKey, Verdict, Waiter};

/// Something to be done, and why.
#[derive(Clone, Debug)]
pub struct Action {
    /// What to do.
    pub effect: Effect,
    /// Why.
    pub reason: Reason,
}

/// Why something was decided: by which rule, on which figures.
#[derive(Clone, Debug)]
pub struct Reason {
    /// By which rule.
    pub rule: Rule,
    /// The figures.
    pub why: Why,
}

impl Reason {
    /// A reason that a rule has.
    pub fn new(rule: Rule, why: impl Into<Why>) -> Self {
        Self { rule, why: why.into() }
    }
}

impl From<Cause> for Reason {
    fn from(cause: Cause) -> Self {
        Self { rule: cause.rule(), why: Why::Own(cause) }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} [{}]", self.why, self.rule)
    }
}

/// What a shell can be asked to do.
#[derive(Clone, Debug)]
pub enum Effect {
    /// GET a master page; answer with `MasterPageRead`.
    FetchMasterPage {
        /// The project.
        project: ProjectId,
        /// Where.
        url: MasterUrl,
    },
    /// POST a request to a scheduler; answer with `SchedulerAnswered`.
    CallScheduler {
        /// The project.
        project: ProjectId,
        /// The scheduler's URL.
        url: String,
        /// The request.
        request: Box<SchedulerRequest>,
    },
    /// Give up an RPC to a scheduler that is under way; no answer.
    GiveUpRpc {
        /// The project.
        project: ProjectId,
    },
    /// One attempt to get a file, from where an earlier attempt stopped; verify it; put it into the
    /// project's directory; answer with `DownloadEnded`.
    Download(Box<Download>),
    /// One attempt to send a file, from where the server says it stopped; answer with `UploadEnded`.
    Upload(Box<Upload>),
    /// Give up a transfer that is under way, if it is; no answer.
    CancelTransfer {
        /// The file.
        file: FileKey,
    },
    /// Fill a slot and start a task's process in it; answer with `TaskStarted` or `TaskStartFailed`, later
    /// with `TasksSampled` and in the end with `TaskEnded`.
    StartTask(Box<TaskSetup>),
    /// Stop every process of all tasks at once, whatever they do, but of those that were told to leave. They
    /// go on when their task is resumed, or told to leave. To be done before anything else of its step, and
    /// before the step is stored: somebody wants the machine.
    FreezeTasks,
    /// Tell the application to suspend; the process stays.
    SuspendTask {
        /// The job.
        job: JobId,
    },
    /// Tell the application to go on.
    ResumeTask {
        /// The job.
        job: JobId,
    },
    /// Tell the application to leave memory; kill it when it has not after a minute. `TaskEnded` follows.
    QuitTask {
        /// The job.
        job: JobId,
    },
    /// Tell the application to give up; kill it when it has not after a minute. `TaskEnded` follows.
    AbortTask {
        /// The job.
        job: JobId,
    },
    /// Kill all of a task's processes at once: what it takes, it takes from others meanwhile. `TaskEnded`
    /// follows.
    KillTask {
        /// The job.
        job: JobId,
    },
    /// Put a message of the project into a task's slot, and tell the application.
    DeliverTrickle {
        /// The job.
        job: JobId,
        /// Its slot.
        slot: SlotId,
        /// The name of the file to make there.
        name: String,
        /// The message.
        text: String,
    },
    /// Tell an application what became of an output that it wanted sent early.
    TellUpload {
        /// The job.
        job: JobId,
        /// Its slot.
        slot: SlotId,
        /// The name by which it opens the output.
        open_name: String,
        /// 0 if the server has it, else BOINC's error number.
        status: i32,
    },
    /// Empty a slot directory.
    CleanSlot {
        /// The slot.
        slot: SlotId,
    },
    /// Delete a file of a project, and what there is of it so far.
    DeleteFile {
        /// The file.
        file: FileKey,
        /// Its project.
        url: MasterUrl,
    },
    /// Delete a project's directory: it is detached.
    DeleteProject {
        /// The project.
        project: ProjectId,
        /// Its URL, which names the directory.
        url: MasterUrl,
    },
    /// Look who uses the host's devices, so often, and answer with `DevicesSeen` at once and whenever that
    /// has changed; or look no more.
    WatchDevices(Option<Duration>),
    /// Measure the disk: the volume, and what the agent and its projects have on it. Answer with
    /// `DiskMeasured`.
    MeasureDisk,
    /// Measure how fast the CPUs are; answer with `BenchmarksRun(End)`.
    MeasureSpeed,
    /// Give that up, if it goes on: somebody wants the CPUs for himself.
    GiveUpMeasuring,
    /// Begin the link to the coordinator anew, if it stands: the client went back from a version of the
    /// document, and what is offered over the next link is offered to who follows the one before.
    LinkAnew,
    /// Tell somebody who wanted a project what came of it.
    TellVerdict {
        /// Who.
        waiter: Waiter,
        /// The project.
        url: MasterUrl,
        /// What came of it.
        verdict: Verdict,
    },
    /// Say something to whoever reads the log or asks for notices.
    Notice {
        /// How much it matters.
        level: NoticeLevel,
        /// The project it is about, if any.
        project: Option<ProjectId>,
        /// The message.
        text: String,
    },
}

/// How much a notice matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoticeLevel {
    /// Of interest.
    Info,
    /// An owner or operator may want to act.
    Warn,
    /// Something failed.
    Error,
}

/// A file to get.
#[derive(Clone, Debug, PartialEq)]
pub struct Download {
    /// The file.
    pub file: FileKey,
    /// Its project, which names the directory.
    pub url: MasterUrl,
    /// Where to get it.
    pub from: String,
    /// The content at `from` is compressed with gzip, to be expanded on arrival.
    pub gzipped: bool,
    /// Its size, if the project said.
    pub nbytes: Option<Bytes>,
    /// The most that it may become, if the project did not say its size.
    pub limit: Bytes,
    /// That limit is this host's own: a file that exceeds it fails for want of space and not for its size.
    pub limited_by_host: bool,
    /// So much must stay free on the volume.
    pub keep_free: Bytes,
    /// MD5 of its content in lower-case hexadecimal, to be checked when there is no signature.
    pub md5: Option<String>,
    /// A signature to be checked.
    pub signature: Option<RequiredSignature>,
    /// To be made executable.
    pub executable: bool,
}

/// The signature that a file of an application version must have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequiredSignature {
    /// The signature as text; empty when the project gave none, which is an error.
    pub signature: String,
    /// The project's code-signing key as text.
    pub key: String,
}

/// A file to send.
#[derive(Clone, Debug, PartialEq)]
pub struct Upload {
    /// The file.
    pub file: FileKey,
    /// Its project, which names the directory.
    pub url: MasterUrl,
    /// Where to send it.
    pub to: String,
    /// The server's permission, to be echoed as it came.
    pub xml_signature: String,
    /// The most it may be, as the server signed it.
    pub max_nbytes: f64,
    /// Its size.
    pub nbytes: Bytes,
    /// Its MD5.
    pub md5: String,
    /// So much of what the server has may be of what it was before: only what is more than that is its
    /// beginning. Servers write over what they have, and cut nothing off.
    pub stale: Bytes,
}

/// All that is needed to start a task's process.
#[derive(Clone, Debug)]
pub struct TaskSetup {
    /// The job.
    pub job: JobId,
    /// Its name, for logs.
    pub name: String,
    /// Where it runs.
    pub slot: SlotId,
    /// Which start of the job this is. To be noted beside the slot once it is filled and its old channel is
    /// gone.
    pub start: u32,
    /// True when nothing of it is worth keeping: the slot is emptied first. False resumes from a checkpoint.
    pub fresh: bool,
    /// Its project, which names the directory.
    pub url: MasterUrl,
    /// The main program's name in the project's directory.
    pub program: String,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// What its environment says beside what every task's does.
    pub environment: Vec<(&'static str, &'static str)>,
    /// The files of its application, to be looked at before the start.
    pub application: Vec<ApplicationFile>,
    /// The files it finds in its slot.
    pub files: Vec<SlotFile>,
    /// What `init_data.xml` says. The shell fills in what only it knows: `client_pid`, `boinc_dir`,
    /// `project_dir`.
    pub init_data: Box<AppInitData>,
    /// The application keeps its channel in `boinc_mmap_file` (API 6.0 and later).
    pub mapped_channel: bool,
    /// What its slot and its outputs may hold.
    pub disk_max: Bytes,
    /// Needs more than idle priority: it feeds a coprocessor, which would wait for it. The stock client
    /// gives that also to wrappers and to whatever says that it needs less than a CPU; but those may compute
    /// without a pause, and each would take a tenth of a CPU from the owner's programs.
    pub special: bool,
    /// It may open connections, and be connected to (R6.10).
    pub network: bool,
    /// What it has to have to be started; without that the start fails (R6.10).
    pub required: TaskLayers,
}

/// A file that an application finds in its slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotFile {
    /// Its name in the project's directory.
    pub name: String,
    /// The name under which the application opens it.
    pub open_name: String,
    /// A copy instead of a soft link (BOINC: `copy_file`); outputs are moved back at the end.
    pub copy: bool,
    /// Made by the application.
    pub output: bool,
    /// An output to be compressed with gzip, under the same name, when the task ends (BOINC:
    /// `gzip_when_done`).
    pub gzip: bool,
    /// The most that an output may be, where its project says (BOINC: `max_nbytes`).
    pub max_nbytes: Option<Bytes>,
}

/// What a file of an application must be to be executed or loaded.
#[derive(Clone, Debug, PartialEq)]
pub struct ApplicationFile {
    /// Its name in the project's directory.
    pub name: String,
    /// Its size, if it is known.
    pub nbytes: Option<Bytes>,
    /// The signature by which it was accepted when it came, and the one that its project gives now: one of
    /// them must be right.
    pub signatures: Vec<RequiredSignature>,
    /// It must be executable.
    pub executable: bool,
}
