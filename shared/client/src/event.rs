//! Everything that can happen to a client, in one closed list.
//!
//! A shell turns what it meets (replies, ended processes, an owner's command) into one of these. Nothing else
//! reaches the client.

use std::collections::{BTreeMap, BTreeSet};

use fallow_boinc::runtime::exit::Ended;
use fallow_boinc::runtime::finish::{Finish, TemporaryExit};
use fallow_boinc::runtime::message::AppStatus;
use fallow_boinc::scheduler::SchedulerReply;
use fallow_domain::{
    AccountKey, Bytes, Device, DocumentVersion, Duration, FleetDocument, HostFacts, Instant, JobId,
    LocalTime, MasterUrl, ProjectId, Share, SlotId,
};
use fallow_policy::confinement::{HostLayer, TaskLayers};
use fallow_policy::other_network::NetworkMoved;

pub use fallow_policy::rpc_timing::RequestedBy;

use crate::{
    AppConfigFound, DeviceTemperature, DeviceUser, Direction, FileKey, Goes, PreferenceFiles, Surroundings,
};

/// Something that happened, to be told to [`crate::Client::handle`] with the time at which it did.
#[derive(Clone, Debug)]
pub enum Event {
    /// The shell is up. Always the first event, once per start of the agent.
    Started(Box<Startup>),
    /// The wake-up that the client asked for, or any other look at the clock.
    WakeUp,
    /// The host is about to go off or to sleep: nothing runs and nothing is called before
    /// [`Event::HostBack`]. The time between counts as time in which computing is not possible.
    HostAway,
    /// The host is there again, with every process as it was.
    HostBack,
    /// It is time to measure how fast the CPUs are, which [`crate::Effect::MeasureSpeed`] asks for if it may
    /// be done now; or that is over.
    BenchmarksRun(Benchmarks),
    /// Somebody at this host wants a project, and waits until it is clear what comes of it:
    /// [`crate::Effect::TellVerdict`] says so, in this step or in a later one.
    Attach(AttachRequest),
    /// Somebody who wanted a project does not wait any more: it stays attached, whatever it says.
    WaiterGone(Waiter),
    /// The agent is about to end: whoever still waits for a project hears that nothing comes of it.
    Ending,
    /// Somebody at this host wants rid of a project: its jobs are aborted, its files deleted.
    Detach {
        /// The project.
        url: MasterUrl,
    },
    /// The agent is a host of the fleet of this certificate authority, named by its fingerprint: what follows
    /// comes from its coordinator.
    FleetJoined {
        /// The authority.
        authority: String,
    },
    /// A document came from the coordinator.
    DocumentOffered(Box<FleetDocument>),
    /// A document came that could not even be read; `version` as far as known.
    DocumentUnreadable {
        /// The version it claims.
        version: DocumentVersion,
        /// What is wrong with it.
        reason: String,
    },
    /// The coordinator has acknowledged a report that names this version as the one that is followed, or said
    /// that the report came and cannot be stored.
    DocumentAcknowledged {
        /// The version.
        version: DocumentVersion,
        /// Since when it is followed, as the report says.
        taken_at: Instant,
    },
    /// What the host's clock on the wall shows: at the start, and again when that is due
    /// ([`LocalTime::until`]). Without it, UTC.
    LocalTime(LocalTime),
    /// Somebody used the host, so long ago: told at the first input after a pause, and while it goes on
    /// again every few seconds.
    OwnerInput {
        /// How long ago it was, by what the sensor can say.
        ago: Duration,
    },
    /// Somebody may use the host of whose input nothing can be seen: that counts as use for as long as it
    /// lasts. Told when it begins and ends.
    OwnerUnseen(bool),
    /// A sensor of the shell has stopped all tasks at once, as [`crate::Client::gives_way_to_input`] has it,
    /// before the client heard of the input.
    TasksFrozen,
    /// Somebody at this host wants no computing for so long, at most [`crate::SNOOZE_MAX`]; none: not any
    /// more.
    Snoozed(Duration),
    /// The host's preference files were read: before [`Event::Started`], and whenever they are read again.
    PreferenceFilesRead(Box<PreferenceFiles>),
    /// The owner's `app_config.xml` of each project that has one was read: before [`Event::Started`], and
    /// whenever they are read again. Those of projects that are not among them are no more.
    AppConfigsRead(BTreeMap<ProjectId, AppConfigFound>),
    /// The same after a project was attached: they are taken of projects of which none was looked for yet.
    NewAppConfigsRead(BTreeMap<ProjectId, AppConfigFound>),
    /// It was looked which layers of confinement the host has: before [`Event::Started`].
    LayersSeen(Vec<HostLayer>),
    /// It was looked what goes on around the tasks, as [`crate::Client::looks_for`] asks.
    SurroundingsSeen(Surroundings),
    /// It was looked what went over the network so far, as [`crate::Client::looks_for`] asks.
    NetworkMoved(NetworkMoved),
    /// The owner suspends or resumes all computing.
    OwnerSuspended(bool),
    /// The owner says which devices must not be used, whatever the coordinator's document allows (R3.14).
    OwnerExcludedDevices(BTreeSet<Device>),
    /// It was looked who uses the host's devices: every process on them that is none of our tasks' (R3.14).
    DevicesSeen(Vec<DeviceUser>),
    /// It was looked how hot the host's devices are: all that tell it. To be told before `DevicesSeen` of the
    /// same look, so that nothing is begun on one that is too hot.
    DevicesFelt(Vec<DeviceTemperature>),
    /// Somebody asks for contact with a project soon (R1.4).
    ContactRequested {
        /// The project.
        url: MasterUrl,
        /// Who: the owner's word overrides more than the coordinator's.
        by: RequestedBy,
    },
    /// A master page was read, or could not be.
    MasterPageRead {
        /// The project.
        project: ProjectId,
        /// The scheduler URLs it names, possibly none; or what went wrong.
        outcome: Result<Vec<String>, TransferError>,
    },
    /// A scheduler answered, or did not.
    SchedulerAnswered {
        /// The project.
        project: ProjectId,
        /// The reply, read whole; or what went wrong.
        outcome: Result<Box<SchedulerReply>, TransferError>,
    },
    /// An attempt at a download is over. Success means: complete, verified, in its place.
    DownloadEnded {
        /// The file.
        file: FileKey,
        /// Nothing, or what went wrong.
        outcome: Result<Bytes, TransferError>,
    },
    /// An attempt at an upload is over.
    UploadEnded {
        /// The file.
        file: FileKey,
        /// Nothing, or what went wrong.
        outcome: Result<(), TransferError>,
    },
    /// What was measured of transfers and calls.
    TrafficMeasured(Vec<Traffic>),
    /// Files came to so much more, as they crossed the wire, since that was said last: at the end of each
    /// transfer, and before that when [`crate::Client::transfers_left`] is used up.
    FilesMoved {
        /// What was sent.
        up: Bytes,
        /// What was fetched.
        down: Bytes,
    },
    /// A task's process runs.
    TaskStarted {
        /// The job.
        job: JobId,
        /// Its process.
        pid: u32,
        /// What it was started without.
        without: TaskLayers,
    },
    /// A task's process could not be started.
    TaskStartFailed {
        /// The job.
        job: JobId,
        /// What went wrong.
        reason: String,
        /// Whose fault it is, and so what helps.
        fault: StartFault,
    },
    /// What the shell saw of the processes, about once a second while any exists.
    TasksSampled(Vec<TaskSample>),
    /// A running application left a message to its project, which lies in the project's directory by now.
    TrickleFound {
        /// The job.
        job: JobId,
        /// The file's name.
        name: String,
        /// Its size.
        nbytes: Bytes,
    },
    /// A running application wants an output sent before it is done.
    UploadWanted {
        /// The job.
        job: JobId,
        /// The output as it is now.
        output: OutputFound,
    },
    /// A task's process is gone.
    TaskEnded {
        /// The job.
        job: JobId,
        /// How, and what it left.
        end: Box<TaskEnd>,
    },
    /// The outputs of a job without a process were deleted, with its slot, to make room on a full disk (see
    /// [`crate::Room`]).
    OutputsGone {
        /// The job.
        job: JobId,
    },
    /// The host was measured again (R4.1): at most every ten minutes and before big writes.
    HostMeasured(Box<HostFacts>),
    /// The disk was measured, as [`crate::Effect::MeasureDisk`] asks for; or why it could not be.
    DiskMeasured(Result<Box<DiskFound>, String>),
    /// So much is free on the volume that holds the agent's data, when a shell sees that this has changed.
    VolumeSeen {
        /// What an ordinary user may still write there.
        free: Bytes,
    },
}

/// Somebody who waits for an answer, by a number that the shell gave him.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Waiter(pub u64);

/// A project that somebody at this host wants. One that is attached already gets the new key and share.
#[derive(Clone, Debug)]
pub struct AttachRequest {
    /// Who is told what comes of it.
    pub waiter: Waiter,
    /// The project.
    pub url: MasterUrl,
    /// The account to compute for. None for the one that is known already, and for a project of the
    /// coordinator's document.
    pub account_key: Option<AccountKey>,
    /// Its weight. Without one it keeps what it had, and takes at first what its user set on its web site.
    pub share: Option<Share>,
    /// It is attached without being asked whether it accepts the account.
    pub unseen: bool,
}

/// Bytes that went one way.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Traffic {
    /// Which way.
    pub direction: Direction,
    /// As they crossed the wire.
    pub bytes: Bytes,
    /// How long it took, from the first of them on.
    pub took: Duration,
}

/// Why a task could not be started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StartFault {
    /// The job, or its application: trying again cannot help.
    Job,
    /// This host: a full disk, too few descriptors, a file that cannot be read. It passes, and says nothing
    /// about the job.
    Host,
    /// The slot cannot be used: what an earlier job left cannot be moved away, or what the task left itself
    /// is gone. Another slot can.
    Slot,
    /// These files of the project are gone, or are not what they were when they came: they are to be fetched
    /// again.
    Files(Vec<String>),
}

/// What the shell found when it came up.
#[derive(Clone, Debug)]
pub struct Startup {
    /// The host.
    pub host: HostFacts,
    /// What was in the slot directories. No process of an earlier life runs any more.
    pub slots: Vec<SlotFound>,
    /// Bytes of each complete file in the project directories.
    pub files: Vec<(FileKey, Bytes)>,
    /// Files that an earlier life was to delete, and perhaps did not any more.
    pub doomed: Vec<FileKey>,
}

/// What a look at the disk found (R4.1, R4.12). Bytes are those of blocks unless it says lengths; what has
/// several names counts once.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DiskFound {
    /// The size of the volume that holds the agent's data.
    pub size: Bytes,
    /// What an ordinary user may still write there.
    pub free: Bytes,
    /// What the agent and all projects occupy of it.
    pub ours: Bytes,
    /// Of that, what is in no project's directory and in no slot: state and logs.
    pub own: Bytes,
    /// What waits to be removed, and is nobody's any more: no part of the two before.
    pub trash: Bytes,
    /// What is in each project's directory, all of it.
    pub projects: Vec<(ProjectId, Bytes)>,
    /// The files and links in these directories and among the parts of downloads there. All that the client
    /// knows; of others as many as one can remember.
    pub files: Vec<FileFound>,
    /// What each slot holds.
    pub slots: Vec<(SlotId, Bytes)>,
    /// Files of which it cannot be said whether they are there: their records stay.
    pub unsure: BTreeSet<FileKey>,
    /// Projects whose directories cannot be read. Nothing that was found of them, or was not, is believed.
    pub unseen: BTreeSet<ProjectId>,
    /// How long it took, but for the time in which others had the CPUs.
    pub took: Duration,
}

impl DiskFound {
    /// Of each of these files this is there by now, in its project's directory and among the parts of
    /// downloads: that counts, and what was found of it before does not.
    pub fn put(&mut self, now: BTreeMap<FileKey, Vec<FileFound>>) {
        let mut changes: BTreeMap<ProjectId, (Bytes, Bytes)> = BTreeMap::new();
        self.files.retain(|file| {
            let stays = !now.contains_key(&file.key);
            if !stays {
                let (was, _) = changes.entry(file.key.project).or_default();
                *was = was.plus(file.blocks);
            }
            stays
        });
        for file in now.into_values().flatten() {
            let (_, is) = changes.entry(file.key.project).or_default();
            *is = is.plus(file.blocks);
            self.files.push(file);
        }
        for (project, (was, is)) in changes {
            let of_project = self.projects.iter_mut().filter(|(id, _)| *id == project);
            for sum in of_project.map(|(_, sum)| sum).chain([&mut self.ours]) {
                *sum = Bytes(sum.0.saturating_sub(was.0)).plus(is);
            }
        }
    }
}

/// A file or a link in a project's directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileFound {
    /// Its project and its name.
    pub key: FileKey,
    /// Its blocks.
    pub blocks: Bytes,
    /// Its length.
    pub length: Bytes,
    /// When it was changed last, by any means.
    pub changed: Instant,
    /// It lies among the parts of downloads.
    pub is_part: bool,
}

/// A slot directory that an earlier life of the agent left.
#[derive(Clone, Debug)]
pub struct SlotFound {
    /// The slot.
    pub slot: SlotId,
    /// Whose it was, as the shell noted when it filled it. The records may have given the slot to another job
    /// since, whose start was stored and not carried out.
    pub job: Option<JobId>,
    /// Which start of it filled the slot, as the shell noted then; none if it did not.
    pub start: Option<u32>,
    /// The last status that the application wrote into its channel, if it can be read.
    pub last_status: Option<AppStatus>,
    /// Set when the application had called finish before it ended: the task is done and must not run again.
    pub finished: Option<Box<TaskEnd>>,
}

/// One look at a running or suspended task.
#[derive(Clone, Debug, PartialEq)]
pub struct TaskSample {
    /// The job.
    pub job: JobId,
    /// CPU time of the task's processes since this start, as the kernel counts it.
    pub cpu_time: Duration,
    /// Main memory its processes hold.
    pub working_set: Bytes,
    /// What of their memory is in the swap space, where that was looked at: every ten seconds while
    /// [`crate::Client::counts_swap`].
    pub swap: Option<Bytes>,
    /// How many processes and threads it has.
    pub threads: u32,
    /// What its files hold, when they were counted last; that is about once a minute.
    pub disk: Option<DiskHeld>,
    /// What the application said of itself since the last look, if anything.
    pub status: Option<AppStatus>,
}

/// What the files of a task hold: in its slot, its outputs, and what has no name and is open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskHeld {
    /// All of them.
    pub all: Bytes,
    /// Of that, files without a name that its processes hold open.
    pub nameless: Bytes,
    /// Why that is not all there is.
    pub uncounted: Option<Uncounted>,
}

/// Why what a task holds cannot be counted to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Uncounted {
    /// There are more files than can be counted.
    TooMany,
    /// Its directories were moved each time they were counted.
    Moved,
    /// It closes directories again as soon as they are opened up to be counted, executes a program that
    /// nobody may read, so that nobody sees what it holds open, or leaves descriptors in sockets.
    Closed,
}

/// How a task's process ended, and what it left.
#[derive(Clone, Debug, PartialEq)]
pub struct TaskEnd {
    /// Exit code or signal.
    pub exit: Ended,
    /// `boinc_finish_called`, if there was one.
    pub finish: Option<Finish>,
    /// `boinc_temporary_exit`, if there was one.
    pub temporary_exit: Option<TemporaryExit>,
    /// CPU time of the task's processes since this start, as the kernel counts it.
    pub cpu_time: Duration,
    /// That time was charged at an earlier end, at which the outputs could not be taken: it counts towards
    /// the result only.
    pub is_charged: bool,
    /// The end of `stderr.txt`.
    pub stderr: String,
    /// The output files that exist now.
    pub outputs: Vec<OutputFound>,
    /// Most memory held.
    pub peak_working_set: Bytes,
    /// Bytes of the slot directory, and of the outputs that were written elsewhere.
    pub disk_usage: Bytes,
    /// Why it was killed to make room on a full disk (see [`crate::Room`]), and its slot emptied, if it was.
    pub made_room: Option<Goes>,
    /// The system itself killed its processes, for they needed more memory than the most that it gives them,
    /// which is this. It knows the instant; what is seen once a second may miss it.
    pub memory_exceeded: Option<Bytes>,
    /// Why the agent itself killed its processes, if it did.
    pub killed: Option<String>,
}

/// An output file in the project directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutputFound {
    /// Its name in the project directory.
    pub name: String,
    /// Its size.
    pub nbytes: Bytes,
    /// MD5 in lower-case hexadecimal.
    pub md5: String,
}

/// Why something over the network did not work.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}")]
pub struct TransferError {
    /// What went wrong, in words: what, where, why.
    pub what: String,
    /// What it means for the next attempt.
    pub kind: TransferErrorKind,
}

/// The measurement of the CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Benchmarks {
    /// It is due.
    Begin,
    /// It is due once more, for nothing has come of the last one. The owner has heard of it.
    Retry,
    /// It is over, whatever came of it.
    End,
}

/// What a failed transfer means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransferErrorKind {
    /// Try again later: no connection, a timeout, a server error.
    Transient,
    /// The other side refused for good: this URL need not be tried again.
    Permanent,
    /// An answer came that could not be understood.
    BadReply,
    /// The file came, but its MD5 is wrong (BOINC: -119).
    WrongMd5,
    /// The file came, but its signature is missing or wrong (BOINC: -120).
    WrongSignature,
    /// The file came, but its size is wrong (BOINC: -221).
    WrongSize,
    /// The disk is full. Nothing is lost; try again later (R4.12).
    DiskFull,
    /// A file on this host could not be read or written. That passes, or somebody sees to it: try again
    /// later.
    LocalFile,
    /// The file to send is gone, or is not what it was: no later attempt can send it.
    Changed,
}

impl TransferError {
    /// Builds one.
    pub fn new(kind: TransferErrorKind, what: impl Into<String>) -> Self {
        Self { what: what.into(), kind }
    }
}
