//! Why the client does what none of the policies decides that a composition chooses from (CS, WF, WS, JC): a
//! value until somebody prints it.

use std::fmt;

use fallow_domain::{Bytes, Duration};
use fallow_policy::cpu_schedule::SchedulingRule;
use fallow_policy::disk::{Deletion, DeletionRule, ReturnedJob};
use fallow_policy::hopeless::WhyHopeless;
use fallow_policy::job_queue::Devices;
use fallow_policy::other_network::OthersUse;
use fallow_policy::transfer_quota::Spent;

use crate::Uncounted;

/// The rule by which something is done. It is printed as the id of a requirement, as BOINC's word for it, or
/// as what it is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// A rule of CPU scheduling.
    Scheduling(SchedulingRule),
    /// A task gives way to another whose turn has come.
    GivesWay,
    /// Master pages are read when a project is new or its schedulers fail.
    MasterPages,
    /// Scheduler RPCs are made for what is most urgent.
    RpcOrder,
    /// No project waits for another one's answer.
    NoWaitingForOthers,
    /// CPU time is limited.
    CpuTimeLimit,
    /// Devices are left alone.
    ExcludedDevices,
    /// The disk is believed over the records.
    DiskBelieved,
    /// The owner's word is done, and he is answered.
    OwnersWord,
    /// What servers are told of the host is measured.
    HostFacts,
    /// A full disk is made room on.
    FullDisk,
    /// Outputs may be sent before their job is done.
    EarlyUploads,
    /// The disk is measured.
    DiskMeasured,
    /// Room is made on the disk for a file.
    RoomForFile,
    /// The owner's limit on the disk is exceeded.
    DiskLimit,
    /// Transfers are tried again after failures.
    Transfers,
    /// Messages between jobs and their projects.
    Trickles,
    /// Jobs are aborted.
    Abort,
    /// Projects are detached.
    Detach,
    /// Files without users go.
    Files,
    /// Tasks have limits.
    Limits,
    /// People are told.
    Notice,
    /// Slots are emptied.
    Slots,
    /// Tasks belong to jobs.
    Tasks,
    /// Documents are on trial before they are confirmed.
    Confirmation,
}

impl Rule {
    /// What it is called where it is told with a reason.
    #[must_use]
    pub const fn id(self) -> &'static str {
        match self {
            Self::Scheduling(rule) => rule.id(),
            Self::GivesWay => "R2.4",
            Self::MasterPages => "R1.6",
            Self::RpcOrder => "R1.9",
            Self::NoWaitingForOthers => "R1.10",
            Self::CpuTimeLimit => "R2.8",
            Self::ExcludedDevices => "R3.14",
            Self::DiskBelieved => "R4.12",
            Self::OwnersWord | Self::HostFacts => "R6.2",
            Self::DiskMeasured => "R4.1",
            Self::RoomForFile => "R4.4",
            Self::DiskLimit => "R4.8",
            Self::FullDisk => "R6.10",
            Self::EarlyUploads => "BOINC early uploads",
            Self::Transfers => "BOINC transfers",
            Self::Trickles => "BOINC trickles",
            Self::Abort => "abort",
            Self::Detach => "detach",
            Self::Files => "files",
            Self::Limits => "limits",
            Self::Notice => "notice",
            Self::Slots => "slots",
            Self::Tasks => "tasks",
            Self::Confirmation => "R6.5",
        }
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.id())
    }
}

/// Why something is done, with the figures behind it.
#[derive(Clone, Debug, PartialEq)]
pub enum Cause {
    /// The owner waits for an answer.
    OwnerWaits,
    /// Somebody uses the host.
    InUse,
    /// Somebody uses the host, for whom nothing rests.
    GivesNoWay,
    /// A task's device must not be used any more, for this reason.
    DeviceExcluded(String),
    /// There are jobs for devices that may run now, or there are none any more.
    DevicesMatter(bool),
    /// A task goes on on other devices.
    DeviceChanged(Devices),
    /// No job needs a file any more.
    FileNotNeeded,
    /// A file that was kept need not be any longer, as its project says (BOINC: `delete_file_info`).
    ProjectKeepsNoMore,
    /// A file was kept for as long as its project wanted (BOINC: `sticky_lifetime`).
    LifetimeOver,
    /// The documents name a key, and it has not signed a file that a program could load.
    KeyNamed,
    /// A file's download is given up.
    DownloadGivenUp,
    /// A transfer's turn has come.
    TransferDue {
        /// The file's name.
        file: String,
        /// How many attempts in a row have failed.
        failures: u32,
    },
    /// So much was transferred in the last days that no more may be.
    TransfersSpent(Spent),
    /// Other programs use the network, for which transfers wait.
    OthersUseNetwork(OthersUse),
    /// The host is not on WiFi, and files are to be transferred nowhere else.
    NoWifi,
    /// A file is there that is no job's.
    FileLeftOver,
    /// The last measurement of the disk is old, or somebody has met a full disk.
    DiskMeasured,
    /// Space is needed, and it is the next to go.
    Deleted(Box<Deletion>),
    /// Space is needed, and only what jobs need is left.
    GivenBack(ReturnedJob),
    /// A file is there that nothing has owned for so long.
    Orphan(Duration),
    /// A file is not on the disk as it is recorded.
    NotAsRecorded,
    /// Something is in a slot that is no job's.
    SlotLeftOver,
    /// The job of a slot is over.
    JobOver,
    /// The job of a slot was forgotten before, and its process has ended now.
    ProcessGone,
    /// A task's job is gone.
    JobGone,
    /// A job is not wanted any more.
    AbortedByProject,
    /// A job cannot be in time any more.
    Hopeless(WhyHopeless),
    /// The owner detaches a project.
    DetachedByOwner,
    /// The coordinator has dropped a project, and nothing of it is left.
    DroppedByCoordinator,
    /// An RPC is about an account that is another one now.
    AccountChanged,
    /// An RPC hangs, and another project waits for its turn.
    OthersWait,
    /// An RPC hangs, and somebody asks for contact.
    ContactRequested,
    /// A task began in a pause of the limit on CPU time.
    BegunInPause,
    /// CPU time is limited to this part.
    CpuTimeLimited(f64),
    /// There is no limit on CPU time any more.
    CpuTimeUnlimited,
    /// Memory is short on the host.
    MemoryShort,
    /// Preferences let its project's jobs have the network no more.
    NetworkTakenBack,
    /// It was started without a layer of confinement that is required.
    Unconfined,
    /// Tasks hold too much of the swap space.
    SwapFull {
        /// So much, all together.
        held: Bytes,
        /// What they may.
        most: Bytes,
    },
    /// An output was written to while it was sent.
    WrittenSince,
    /// An early upload is over.
    UploadEnded {
        /// The file's name.
        file: String,
        /// How it ended, 0 for well.
        status: i32,
    },
    /// An output was deleted to make room.
    MadeRoom,
    /// A task goes beyond a limit.
    LimitExceeded(LimitExceeded),
    /// The CPUs' speed is measured, for which nothing else may run.
    Benchmarks,
    /// The speed that is known is old.
    BenchmarksOld,
    /// The speed has been measured.
    BenchmarksOver,
    /// Somebody uses the host, or computing is suspended.
    BenchmarksUnwanted,
    /// A file is called like no message.
    NoMessage,
    /// A message is too long, or one of too many.
    TooManyMessages,
    /// The project has a job's message.
    MessageAcknowledged,
    /// A project has a message for a job.
    MessageToJob,
    /// The host went back from a version of the coordinator's document.
    WentBack,
    /// People are told something: its text says why.
    Told,
}

/// A limit of a task, and what goes beyond it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitExceeded {
    /// It ran for too long.
    Elapsed {
        /// So long.
        ran: Duration,
        /// What its project allows.
        allowed: Duration,
    },
    /// Its working set is too large for this host.
    Memory {
        /// That large.
        working_set: Bytes,
        /// What this host allows.
        limit: Bytes,
    },
    /// The system killed it, for it needed more memory than it may have there.
    MemoryHeld {
        /// So much.
        most: Bytes,
    },
    /// By itself it holds more of the swap space than all tasks may, each time that it runs.
    Swap {
        /// So much.
        held: Bytes,
        /// What tasks may hold.
        most: Bytes,
    },
    /// It has started too many processes and threads.
    Threads {
        /// So many.
        threads: u32,
        /// What this host allows.
        allowed: u32,
    },
    /// Its files hold too much.
    Disk {
        /// So much.
        held: Bytes,
        /// Of that, files without a name, which its processes hold open.
        nameless: Bytes,
        /// What its project allows, or the volume has.
        allowed: Bytes,
    },
    /// Its files cannot be counted, so nobody can say that they hold no more than they may.
    UncountedDisk {
        /// Why not.
        why: Uncounted,
        /// What was counted.
        held: Bytes,
        /// What its project allows, or the volume has.
        allowed: Bytes,
    },
}

impl Cause {
    /// The rule by which that is a reason.
    #[must_use]
    pub const fn rule(&self) -> Rule {
        match self {
            Self::OwnerWaits
            | Self::InUse
            | Self::GivesNoWay
            | Self::BenchmarksUnwanted
            | Self::MemoryShort
            | Self::OthersUseNetwork(_)
            | Self::NoWifi
            | Self::NetworkTakenBack
            | Self::Unconfined
            | Self::SwapFull { .. } => Rule::OwnersWord,
            Self::Benchmarks | Self::BenchmarksOld | Self::BenchmarksOver => Rule::HostFacts,
            Self::DeviceExcluded(_) | Self::DeviceChanged(_) | Self::DevicesMatter(_) => {
                Rule::ExcludedDevices
            }
            Self::FileNotNeeded
            | Self::ProjectKeepsNoMore
            | Self::LifetimeOver
            | Self::DownloadGivenUp
            | Self::KeyNamed => Rule::Files,
            Self::TransferDue { .. } | Self::TransfersSpent(_) => Rule::Transfers,
            Self::FileLeftOver | Self::Orphan(_) | Self::NotAsRecorded => Rule::DiskBelieved,
            Self::DiskMeasured => Rule::DiskMeasured,
            Self::Deleted(deletion) => match deletion.rule {
                DeletionRule::OffenderGivesWay { .. } | DeletionRule::OwnRoom => Rule::RoomForFile,
                DeletionRule::OffenderShrinks { .. }
                | DeletionRule::InTurn
                | DeletionRule::NothingStored
                | DeletionRule::JobGivenBack { .. } => Rule::DiskLimit,
            },
            Self::GivenBack(_) => Rule::DiskLimit,
            Self::SlotLeftOver | Self::JobOver | Self::ProcessGone => Rule::Slots,
            Self::JobGone => Rule::Tasks,
            Self::AbortedByProject | Self::Hopeless(_) => Rule::Abort,
            Self::DetachedByOwner | Self::DroppedByCoordinator => Rule::Detach,
            Self::AccountChanged | Self::OthersWait | Self::ContactRequested => Rule::NoWaitingForOthers,
            Self::BegunInPause | Self::CpuTimeLimited(_) | Self::CpuTimeUnlimited => Rule::CpuTimeLimit,
            Self::WrittenSince | Self::UploadEnded { .. } => Rule::EarlyUploads,
            Self::MadeRoom => Rule::FullDisk,
            Self::LimitExceeded(_) => Rule::Limits,
            Self::NoMessage | Self::TooManyMessages | Self::MessageAcknowledged | Self::MessageToJob => {
                Rule::Trickles
            }
            Self::WentBack => Rule::Confirmation,
            Self::Told => Rule::Notice,
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Self::DeviceChanged(devices) => return write!(f, "it goes on on device {devices}"),
            Self::TransferDue { file, failures } => {
                return write!(f, "{file}, after {failures} failures in a row");
            }
            Self::SwapFull { held, most } => {
                return write!(
                    f,
                    "tasks hold {held} of the swap space, and may hold {most} (`swap_fraction`)"
                );
            }
            Self::TransfersSpent(spent) => return spent.fmt(f),
            Self::OthersUseNetwork(others) => return others.fmt(f),
            Self::CpuTimeLimited(limit) => return write!(f, "CPU time is limited to {:.0} %", limit * 100.0),
            Self::UploadEnded { file, status } => return write!(f, "{file} ended with {status}"),
            Self::LimitExceeded(limit) => return limit.fmt(f),
            Self::Hopeless(why) => return why.fmt(f),
            Self::Deleted(deletion) => return write!(f, "{}; {}", deletion.rule, deletion.why),
            Self::GivenBack(job) => {
                return write!(f, "given back for want of disk space; this frees {}", job.frees);
            }
            Self::Orphan(age) => return write!(f, "nothing has owned it for {age}"),
            Self::NotAsRecorded => "the disk is believed over the records",
            Self::DiskMeasured => "what is known of the disk is old",
            Self::OwnerWaits => "the owner waits for it",
            Self::InUse => "somebody uses the host",
            Self::GivesNoWay => "nothing rests for whoever uses the host",
            Self::DeviceExcluded(why) if why.is_empty() => "its device must not be used any more",
            Self::DeviceExcluded(why) => return write!(f, "its device must not be used any more: {why}"),
            Self::DevicesMatter(true) => "there are jobs for devices that may run now",
            Self::DevicesMatter(false) => "no job for a device may run now",
            Self::FileNotNeeded => "no job needs it any more",
            Self::ProjectKeepsNoMore => "its project wants it kept no longer",
            Self::LifetimeOver => "it was kept for as long as its project wanted",
            Self::KeyNamed => "the fleet's documents name the key by which it must be signed",
            Self::DownloadGivenUp => "its download is given up",
            Self::FileLeftOver | Self::SlotLeftOver => "left over, and no job's",
            Self::JobOver => "the job is over",
            Self::ProcessGone => "its job is gone, and now its process",
            Self::JobGone => "its job is gone",
            Self::AbortedByProject => "aborted by the project",
            Self::DetachedByOwner => "detached by the owner",
            Self::DroppedByCoordinator => {
                "no longer in the coordinator's document, and its last job is reported"
            }
            Self::AccountChanged => "it is about another account",
            Self::OthersWait => "it hangs, and another project waits for its turn",
            Self::ContactRequested => "it hangs, and somebody asks for contact",
            Self::BegunInPause => "it began in a pause of the limit on CPU time",
            Self::CpuTimeUnlimited => "there is no limit on CPU time any more",
            Self::NoWifi => "this machine is not on WiFi (`network_wifi_only`)",
            Self::MemoryShort => "memory is short on the host, and it does not run",
            Self::NetworkTakenBack => {
                "it may have the network no more (`jobs_network`), and starts again without"
            }
            Self::Unconfined => {
                "it was started without a layer of confinement that is required, and starts again"
            }
            Self::WrittenSince => "it was written to since",
            Self::MadeRoom => "it was deleted to make room on a full disk",
            Self::Benchmarks => "CPU benchmarks in progress",
            Self::BenchmarksOld => "the figure that is known is old",
            Self::BenchmarksOver => "the CPU benchmarks are over",
            Self::BenchmarksUnwanted => {
                "the CPUs are not to be measured while somebody uses the host or computing is suspended"
            }
            Self::NoMessage => "its name is no message's",
            Self::TooManyMessages => "there are too many, or it is too long",
            Self::MessageAcknowledged => "the project has it",
            Self::MessageToJob => "the project has a message for it",
            Self::WentBack => "this host went back from a version of the coordinator's document",
            Self::Told => "",
        };
        f.write_str(text)
    }
}

impl fmt::Display for Uncounted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TooMany => "they are too many",
            Self::Moved => "it moves them about while they are counted",
            Self::Closed => "it keeps the agent from looking at some of them",
        })
    }
}

impl fmt::Display for LimitExceeded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Elapsed { ran, allowed } => {
                write!(f, "exceeded elapsed time limit: ran for {ran}, allowed {allowed}")
            }
            Self::Memory { working_set, limit } => {
                write!(f, "working set of {working_set} is over this host's limit of {limit}")
            }
            Self::MemoryHeld { most } => {
                write!(f, "it needed more memory than the {most} that it may have here: the system killed it")
            }
            Self::Swap { held, most } => {
                write!(
                    f,
                    "each time that it ran it soon held more of the swap space, {held} now, than the {most} that all tasks \
                     may hold here (`swap_fraction`), and it has saved nothing"
                )
            }
            Self::Threads { threads, allowed } => {
                write!(f, "has {threads} processes and threads, this host allows {allowed}")
            }
            Self::Disk { held, nameless: Bytes(0), allowed } => {
                write!(f, "its files hold {held}, and may hold {allowed}")
            }
            Self::Disk { held, nameless, allowed } => write!(
                f,
                "its files hold {held}, {nameless} of it without a name and open, and may hold {allowed}"
            ),
            Self::UncountedDisk { why, held, allowed } => write!(
                f,
                "its files hold {held} and more that cannot be counted: {why}; they may hold {allowed}"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Reason;

    #[test]
    fn a_reason_is_printed_with_its_figures_and_its_rule() {
        let printed = |cause: Cause| Reason::from(cause).to_string();
        assert_eq!(printed(Cause::CpuTimeLimited(0.5)), "CPU time is limited to 50 % [R2.8]");
        assert_eq!(printed(Cause::JobOver), "the job is over [slots]");
        let due = Cause::TransferDue { file: "in".to_owned(), failures: 2 };
        assert_eq!(printed(due), "in, after 2 failures in a row [BOINC transfers]");
        let disk = LimitExceeded::Disk { held: Bytes(2_000), nameless: Bytes(0), allowed: Bytes(1_000) };
        assert_eq!(
            printed(Cause::LimitExceeded(disk)),
            "its files hold 2000 B, and may hold 1000 B [limits]"
        );
        let own = Rule::Scheduling(SchedulingRule::Own("own"));
        assert_eq!((Rule::RpcOrder.to_string(), own.to_string()), ("R1.9".to_owned(), "own".to_owned()));
    }
}
