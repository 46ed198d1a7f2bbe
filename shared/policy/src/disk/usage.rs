//! The state of a host's disk: files and jobs by project, with the sums and orders that plans need (R4.2,
//! R4.3).
//!
//! `changes.rs` keeps it up to date; everything here only looks things up. Sums have 128 bits, so that no
//! size that a server invents can make one overflow.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fallow_domain::{Bytes, Instant, JobId, ProjectId, Share};

use super::changes::DiskJob;
use super::file::{FileAttributes, FileId, Protection, Protections};
use super::limit::TotalLimit;
use super::order::{DeletionChoice, Rank, WhyNext};
use super::sizes::OrderedSizes;

/// What is on the disk of a host, whose it is, and who needs it.
///
/// Until a first limit is set nothing is over it and nothing is admitted.
#[derive(Clone, Debug, Default)]
pub struct DiskUse {
    pub(super) now: Instant,
    pub(super) files: BTreeMap<FileId, Record>,
    pub(super) files_ever: u64,
    pub(super) jobs: BTreeMap<JobId, DiskJob>,
    pub(super) projects: BTreeMap<ProjectId, ProjectUse>,
    /// Sum of the usages of all projects.
    pub(super) projects_used: u128,
    pub(super) own: Bytes,
    pub(super) limit: Option<TotalLimit>,
}

/// One file.
#[derive(Clone, Debug)]
pub(super) struct Record {
    pub(super) project: ProjectId,
    pub(super) name: Arc<str>,
    pub(super) attributes: FileAttributes,
    pub(super) protections: Protections,
    /// False for one that is gone while jobs still refer to it: it may come again.
    pub(super) present: bool,
}

/// One project.
#[derive(Clone, Debug)]
pub(super) struct ProjectUse {
    pub(super) share: Share,
    pub(super) choice: DeletionChoice,
    /// Its part among all projects by share.
    pub(super) fraction: f64,
    pub(super) limit: Bytes,
    /// Bytes of all its files.
    pub(super) used: u128,
    /// Bytes beside its files: slot directories.
    pub(super) other: Bytes,
    pub(super) deletable: OrderedSizes,
    /// The deletable files by date, where the project chose expiration.
    pub(super) expirations: BTreeSet<(Instant, FileId)>,
    pub(super) queued: BTreeSet<(Instant, JobId)>,
    /// Bytes of files that only queued jobs keep.
    pub(super) queued_only: u128,
    pub(super) names: BTreeMap<Arc<str>, FileId>,
}

impl Record {
    /// The place in the order of deletion, if the file may be deleted and that frees anything.
    pub(super) fn deletable(&self, id: FileId, choice: DeletionChoice, now: Instant) -> Option<Rank> {
        let may = self.attributes.size > Bytes(0) && self.protections.strongest().is_none();
        may.then(|| choice.rank(id, &self.attributes, now))
    }
}

impl ProjectUse {
    pub(super) fn usage(&self) -> u128 {
        self.used + u128::from(self.other.0)
    }

    /// Usage over limit; negative while the project leaves some of its part.
    pub(super) fn excess(&self) -> i128 {
        i128::try_from(self.usage()).unwrap_or(i128::MAX) - i128::from(self.limit.0)
    }
}

/// The nearest number of bytes that the type holds: 0 for negative ones.
pub(super) fn to_bytes(bytes: i128) -> Bytes {
    Bytes(u64::try_from(bytes.max(0)).unwrap_or(u64::MAX))
}

/// As [`to_bytes`].
pub(super) fn sum_to_bytes(bytes: u128) -> Bytes {
    Bytes(u64::try_from(bytes).unwrap_or(u64::MAX))
}

impl DiskUse {
    /// The limit of agent and projects together, once a volume was measured (R4.1).
    pub const fn total_limit(&self) -> Option<TotalLimit> {
        self.limit
    }

    /// What all projects together may use: the total limit without the agent's own usage (R4.2).
    pub fn all_projects_limit(&self) -> Option<Bytes> {
        self.limit.map(|limit| Bytes(limit.bytes.0.saturating_sub(self.own.0)))
    }

    /// What one project may use while all use theirs (R4.2).
    pub fn project_limit(&self, project: ProjectId) -> Bytes {
        self.projects.get(&project).map_or(Bytes(0), |p| p.limit)
    }

    /// What one project uses: its files and its slot directories.
    pub fn project_usage(&self, project: ProjectId) -> Bytes {
        self.projects.get(&project).map_or(Bytes(0), |p| sum_to_bytes(p.usage()))
    }

    /// What the agent itself uses: state, logs, notices (R4.2).
    pub const fn own_usage(&self) -> Bytes {
        self.own
    }

    /// What the agent and all projects use, with what is reserved for files on their way.
    pub fn used_total(&self) -> Bytes {
        sum_to_bytes(self.projects_used + u128::from(self.own.0))
    }

    /// What projects may still use (R4.2); nothing while the limit is exceeded or not known.
    pub fn free(&self) -> Bytes {
        to_bytes(-self.lacking(0))
    }

    /// By how much usage exceeds the owner's limit; 0 within it.
    pub fn over(&self) -> Bytes {
        to_bytes(self.overrun())
    }

    /// The projects that exceed their limits and by how much, the greatest first (R4.3). Among equals the one
    /// that was attached first.
    pub fn offenders(&self) -> Vec<(ProjectId, Bytes)> {
        self.offenders_over(0).into_iter().map(|(project, excess)| (project, to_bytes(excess))).collect()
    }

    /// The project that exceeds its limit by most (R4.3).
    pub fn greatest_offender(&self) -> Option<(ProjectId, Bytes)> {
        self.offenders().into_iter().next()
    }

    /// The id of a file.
    pub fn file_id(&self, project: ProjectId, name: &str) -> Option<FileId> {
        self.projects.get(&project)?.names.get(name).copied()
    }

    /// What a file is. `None` for one that is not there.
    pub fn attributes(&self, file: FileId) -> Option<&FileAttributes> {
        self.files.get(&file).filter(|record| record.present).map(|record| &record.attributes)
    }

    /// Why a file is not to be deleted (R4.5), if it is not.
    pub fn protection(&self, file: FileId) -> Option<Protection> {
        self.files.get(&file)?.protections.strongest()
    }

    /// What deletions in a project could free at most.
    pub fn deletable(&self, project: ProjectId) -> Bytes {
        self.projects.get(&project).map_or(Bytes(0), |p| sum_to_bytes(p.deletable.total()))
    }

    /// What one project uses beside its files: slot directories, files without an owner.
    pub fn other_usage(&self, project: ProjectId) -> Bytes {
        self.projects.get(&project).map_or(Bytes(0), |p| p.other)
    }

    /// The files of a project that would go first if it had to lose some, at most so many: each by its name,
    /// what deleting it frees, and why it is the next.
    pub fn next_deletions(&self, project: ProjectId, most: usize) -> Vec<(String, Bytes, WhyNext)> {
        let mut next = Vec::new();
        let Some(mut walk) = self.projects.get(&project).map(|p| p.deletable.walk()) else { return next };
        while next.len() < most
            && let Some((rank, bytes)) = walk.peek()
        {
            walk.advance();
            next.extend(self.next_words(rank.file).map(|(name, why)| (name, bytes, why)));
        }
        next
    }

    /// The number of files.
    pub fn files(&self) -> usize {
        self.files.len()
    }

    pub(super) fn offenders_over(&self, floor: i128) -> Vec<(ProjectId, i128)> {
        let all = self.projects.iter().map(|(id, project)| (*id, project.excess()));
        let mut offenders: Vec<_> = all.filter(|(_, excess)| *excess > floor).collect();
        offenders.sort_by_key(|(id, excess)| (std::cmp::Reverse(*excess), *id));
        offenders
    }

    /// A project's excess, which protects it from giving way to lesser offenders; 0 if it has none.
    pub(super) fn floor(&self, project: ProjectId) -> i128 {
        self.projects.get(&project).map_or(0, ProjectUse::excess).max(0)
    }

    /// Usage over the owner's limit; negative or 0 within it, or while none is known.
    pub(super) fn overrun(&self) -> i128 {
        let used = i128::try_from(self.projects_used).unwrap_or(i128::MAX >> 1) + i128::from(self.own.0);
        self.limit.map_or(0, |limit| used - i128::from(limit.bytes.0))
    }

    /// Bytes missing for projects to use `more` beside what they use; negative if there is room.
    pub(super) fn lacking(&self, more: u64) -> i128 {
        let wanted = i128::try_from(self.projects_used).unwrap_or(i128::MAX >> 1);
        wanted + i128::from(more) - i128::from(self.all_projects_limit().unwrap_or_default().0)
    }

    /// The name of a file and why it is the next of its project.
    pub(super) fn next_words(&self, file: FileId) -> Option<(String, WhyNext)> {
        let record = self.files.get(&file)?;
        let choice = self.projects.get(&record.project)?.choice;
        Some((record.name.as_ref().to_owned(), choice.why_next(&record.attributes, self.now)))
    }
}
