//! Room for one more file (R4.4): which files are deleted for it, or why it cannot come.
//!
//! Free space is used first, then the space of offenders' files, then that of the project's own files. If all
//! of that is too little, the file is refused and nothing is deleted.

use std::fmt;

use fallow_domain::{Bytes, ProjectId};

use super::deletion_plan::DeletionPlan;
use super::order::LEVEL_MAX;
use super::reason::{Deletion, DeletionRule, counted};
use super::report::DiskReport;
use super::usage::{DiskUse, to_bytes};

/// Whether a file may come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Admission {
    /// It fits.
    Fits {
        /// What is free beside it.
        left: Bytes,
    },
    /// It fits once these are deleted, in this order.
    AfterDeleting(Vec<Deletion>),
    /// It cannot come; nothing is deleted.
    Refused(WhyNotAdmitted),
}

/// Why a file cannot come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhyNotAdmitted {
    /// The volume was not measured yet, so there is no limit to keep.
    NotMeasured,
    /// It is larger than everything that projects may use.
    LargerThanLimit {
        /// The file's size.
        bytes: Bytes,
        /// What projects may use together.
        all_projects: Bytes,
    },
    /// What may be deleted for it is not enough.
    NoRoom {
        /// The file's size.
        bytes: Bytes,
        /// What is missing.
        missing: Bytes,
        /// What could be had.
        report: DiskReport,
    },
}

impl DiskUse {
    /// Plans for a file of `bytes` more in `project` (R4.4). Nothing changes: the caller deletes what the
    /// plan says, tells this state, and then adds the file.
    pub fn admit(&self, project: ProjectId, bytes: Bytes) -> Admission {
        let Some(all_projects) = self.all_projects_limit() else {
            return Admission::Refused(WhyNotAdmitted::NotMeasured);
        };
        let need = self.lacking(bytes.0);
        if need <= 0 {
            return Admission::Fits { left: to_bytes(-need) };
        }
        if bytes > all_projects {
            return Admission::Refused(WhyNotAdmitted::LargerThanLimit { bytes, all_projects });
        }
        // Known from sums, so that a refusal costs no walk over files.
        let missing = to_bytes(need - self.reclaimable(project).sum());
        if missing > Bytes(0) {
            let report = self.report(project);
            return Admission::Refused(WhyNotAdmitted::NoRoom { bytes, missing, report });
        }
        let mut plan = DeletionPlan::new(self, need);
        let gives_way = |excess, limit| DeletionRule::OffenderGivesWay { to: project, excess, limit };
        plan.shrink_offenders(self.floor(project), gives_way);
        while !plan.is_enough() && plan.take(project, LEVEL_MAX, DeletionRule::OwnRoom) {}
        Admission::AfterDeleting(plan.deletions)
    }
}

impl Admission {
    /// What is to be deleted first.
    pub fn deletions(&self) -> &[Deletion] {
        match self {
            Self::AfterDeleting(deletions) => deletions,
            Self::Fits { .. } | Self::Refused(_) => &[],
        }
    }

    /// Whether the file may come.
    pub const fn is_accepted(&self) -> bool {
        !matches!(self, Self::Refused(_))
    }
}

impl fmt::Display for Admission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fits { left } => write!(f, "it fits; {left} are left"),
            Self::AfterDeleting(deletions) => {
                let bytes = deletions.iter().fold(Bytes(0), |sum, deletion| sum.plus(deletion.bytes));
                write!(f, "it fits without {} ({bytes})", counted(deletions.len(), "file"))
            }
            Self::Refused(refusal) => refusal.fmt(f),
        }
    }
}

impl fmt::Display for WhyNotAdmitted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotMeasured => write!(f, "the disk has not been measured yet"),
            Self::LargerThanLimit { bytes, all_projects } => {
                write!(f, "{bytes} are more than the {all_projects} that all projects may use together")
            }
            Self::NoRoom { bytes, missing, report } => {
                write!(f, "{bytes} do not fit, {missing} are missing: {report}; ")?;
                if report.used_project > report.project_limit {
                    write!(f, "the project itself exceeds its limit of {}; ", report.project_limit)?;
                }
                write!(f, "the rest belongs to jobs, or to projects that others do not displace")
            }
        }
    }
}
