//! The steps of a plan, each with its reason in words for users (R4.13): file, project, rule, bytes.

use std::fmt;

use fallow_domain::{Bytes, Instant, JobId, ProjectId};

use super::file::FileId;
use super::order::WhyNext;

/// A file to delete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deletion {
    /// The file.
    pub file: FileId,
    /// Its name in its project.
    pub name: String,
    /// Its project.
    pub project: ProjectId,
    /// What deleting it frees.
    pub bytes: Bytes,
    /// The rule by which its project loses a file.
    pub rule: DeletionRule,
    /// Why it is this one.
    pub why: WhyNext,
}

/// A queued job to give back to its server, so that its files are no longer needed (R4.8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReturnedJob {
    /// The job.
    pub job: JobId,
    /// Its project.
    pub project: ProjectId,
    /// Its deadline, the latest of its project's queued jobs.
    pub deadline: Instant,
    /// Bytes of the files that nobody needs any more without it.
    pub frees: Bytes,
}

/// Why a project loses a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeletionRule {
    /// It uses more than its limit, and another project needs room (R4.4, second step).
    OffenderGivesWay {
        /// Who needs room.
        to: ProjectId,
        /// By how much it exceeded its limit before it lost this file.
        excess: Bytes,
        /// Its limit.
        limit: Bytes,
    },
    /// It needs room itself (R4.4, third step).
    OwnRoom,
    /// The owner's limit is exceeded, and the project exceeds its own (R4.8, first step).
    OffenderShrinks {
        /// By how much it exceeded its limit before it lost this file.
        excess: Bytes,
        /// Its limit.
        limit: Bytes,
    },
    /// The owner's limit is exceeded, and projects lose files in turn (R4.8, second step).
    InTurn,
    /// There is no space to store anything, and its project exceeds its limit by most, or leaves least of it.
    NothingStored,
    /// The owner's limit is exceeded, and the job that needed the file was given back (R4.8, third step).
    JobGivenBack {
        /// The last of the jobs that needed it.
        job: JobId,
    },
}

/// "1 file", "2 files".
pub(super) fn counted(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

impl fmt::Display for Deletion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, project, bytes, rule, why, .. } = self;
        write!(f, "delete {name} of project {project} ({bytes}): {rule}; {why}")
    }
}

impl fmt::Display for ReturnedJob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { job, project, frees, .. } = self;
        write!(
            f,
            "give back job {job} of project {project}: the disk limit is exceeded and only files that jobs need are \
             left; of its project's queued jobs it has the latest deadline; this frees {frees}"
        )
    }
}

impl fmt::Display for DeletionRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OffenderGivesWay { to, excess, limit } => {
                write!(f, "it exceeds its disk limit of {limit} by {excess} and project {to} needs room")
            }
            Self::OwnRoom => write!(f, "its project needs room, and nobody else has to give way"),
            Self::OffenderShrinks { excess, limit } => {
                write!(f, "the disk limit is exceeded, and so is the project's own of {limit}, by {excess}")
            }
            Self::InTurn => write!(f, "the disk limit is exceeded and each project loses a file in turn"),
            Self::NothingStored => {
                write!(f, "no job needs it, and there is no space on the disk to store anything")
            }
            Self::JobGivenBack { job } => {
                write!(f, "the disk limit is exceeded and job {job}, which needed it, is given back")
            }
        }
    }
}
