//! A plan while it is made: the files chosen for deletion so far, and by how much each project then still
//! exceeds its limit.

use std::collections::BTreeMap;

use fallow_domain::{Bytes, ProjectId};

use super::order::LEVEL_MAX;
use super::reason::{Deletion, DeletionRule};
use super::sizes::Walk;
use super::usage::{DiskUse, to_bytes};

/// Files chosen so far, until they free what is needed.
pub(super) struct DeletionPlan<'a> {
    pub(super) disk: &'a DiskUse,
    need: i128,
    parts: BTreeMap<ProjectId, Part<'a>>,
    pub(super) deletions: Vec<Deletion>,
}

/// What is left of a project.
struct Part<'a> {
    excess: i128,
    walk: Walk<'a>,
}

impl<'a> DeletionPlan<'a> {
    /// A plan to free `need` bytes.
    pub(super) fn new(disk: &'a DiskUse, need: i128) -> Self {
        let part = |(id, project): (&ProjectId, &'a super::usage::ProjectUse)| {
            (*id, Part { excess: project.excess(), walk: project.deletable.walk() })
        };
        Self { disk, need, parts: disk.projects.iter().map(part).collect(), deletions: Vec::new() }
    }

    pub(super) const fn is_enough(&self) -> bool {
        self.need <= 0
    }

    /// What is still to be freed.
    pub(super) fn missing(&self) -> Bytes {
        to_bytes(self.need)
    }

    /// All projects, the one that is most over its limit (or least under it) first.
    pub(super) fn by_excess(&self) -> Vec<ProjectId> {
        let mut projects: Vec<_> = self.parts.keys().copied().collect();
        projects.sort_by_key(|id| (std::cmp::Reverse(self.excess(*id)), *id));
        projects
    }

    /// Projects whose excess is above `floor` lose files until it no longer is or there is enough: the lowest
    /// level of all of them first, and of each level the greatest offender first (R4.4, second step).
    pub(super) fn shrink_offenders(&mut self, floor: i128, rule: impl Fn(Bytes, Bytes) -> DeletionRule) {
        let mut offenders = self.by_excess();
        offenders.retain(|id| self.excess(*id) > floor);
        for level in 1..=LEVEL_MAX {
            offenders.retain(|id| self.excess(*id) > floor);
            offenders.sort_by_key(|id| (std::cmp::Reverse(self.excess(*id)), *id));
            for id in &offenders {
                let limit = self.disk.project_limit(*id);
                while self.excess(*id) > floor && !self.is_enough() {
                    if !self.take(*id, level, rule(to_bytes(self.excess(*id)), limit)) {
                        break;
                    }
                }
            }
        }
    }

    /// Takes the next file of the project that exceeds its limit by most, or leaves least of it, among those
    /// that can lose one.
    pub(super) fn take_from_greatest(&mut self, rule: DeletionRule) -> bool {
        self.by_excess().into_iter().any(|project| self.take(project, LEVEL_MAX, rule))
    }

    /// Takes the next file of a project in its order of deletion, if there is one up to `level`.
    pub(super) fn take(&mut self, project: ProjectId, level: u8, rule: DeletionRule) -> bool {
        let Some(part) = self.parts.get_mut(&project) else { return false };
        let Some((rank, bytes)) = part.walk.peek().filter(|(rank, _)| rank.level <= level) else {
            return false;
        };
        let Some((name, why)) = self.disk.next_words(rank.file) else { return false };
        part.walk.advance();
        self.delete(Deletion { file: rank.file, name, project, bytes, rule, why });
        true
    }

    /// Counts a deletion.
    pub(super) fn delete(&mut self, deletion: Deletion) {
        if let Some(part) = self.parts.get_mut(&deletion.project) {
            part.excess -= i128::from(deletion.bytes.0);
        }
        self.need -= i128::from(deletion.bytes.0);
        self.deletions.push(deletion);
    }

    fn excess(&self, project: ProjectId) -> i128 {
        self.parts.get(&project).map_or(0, |part| part.excess)
    }
}
