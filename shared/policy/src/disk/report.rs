//! The three amounts of free space that a request carries (R4.9).
//!
//! They are what [`DiskUse::admit`] would find. A file of up to `free` bytes comes without any deletion. One
//! of up to `with_offenders` bytes comes if files of others are deleted that exceed their limits. One of up
//! to `with_self` bytes comes if the project's own files are deleted too. A larger one is refused. The
//! amounts are read off the sums of the orders; no file is looked at for them.

use std::fmt;

use fallow_domain::{Bytes, ProjectId};

use super::usage::{DiskUse, to_bytes};

/// What one project's server is told of the disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskReport {
    /// Free now.
    pub free: Bytes,
    /// Free if others that exceed their limits gave way.
    pub with_offenders: Bytes,
    /// Free if the project's own deletable files went too.
    pub with_self: Bytes,
    /// Used by the agent and all projects (BOINC: `d_boinc_used_total`).
    pub used_total: Bytes,
    /// Used by this project (BOINC: `d_boinc_used_project`).
    pub used_project: Bytes,
    /// This project's limit (BOINC: `d_project_share`).
    pub project_limit: Bytes,
}

/// What deletions can free for one project.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reclaimable {
    offenders: u128,
    own: u128,
}

impl Reclaimable {
    /// All of it.
    pub(super) fn sum(self) -> i128 {
        i128::try_from(self.offenders + self.own).unwrap_or(i128::MAX)
    }
}

impl DiskUse {
    /// The amounts for one project. All are 0 until a volume was measured.
    pub fn report(&self, project: ProjectId) -> DiskReport {
        let reclaimable = self.reclaimable(project);
        let with = |reclaimable: Reclaimable| match self.limit {
            Some(_) => to_bytes(reclaimable.sum() - self.lacking(0)),
            None => Bytes(0),
        };
        DiskReport {
            free: with(Reclaimable { offenders: 0, own: 0 }),
            with_offenders: with(Reclaimable { own: 0, ..reclaimable }),
            with_self: with(reclaimable),
            used_total: self.used_total(),
            used_project: self.project_usage(project),
            project_limit: self.project_limit(project),
        }
    }

    /// What R4.4 would free for a file of any size.
    pub(super) fn reclaimable(&self, project: ProjectId) -> Reclaimable {
        let floor = self.floor(project);
        let over = self.projects.values().map(|other| (other, other.excess() - floor));
        let giving_way = over.filter(|(_, over)| *over > 0);
        Reclaimable {
            offenders: giving_way.map(|(other, over)| other.deletable.reaching(over.unsigned_abs())).sum(),
            own: self.projects.get(&project).map_or(0, |project| project.deletable.total()),
        }
    }
}

impl fmt::Display for DiskReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { free, with_offenders, with_self, .. } = self;
        write!(
            f,
            "{free} free, {with_offenders} if projects above their limits gave way, {with_self} if its own unneeded \
             files went too"
        )
    }
}
