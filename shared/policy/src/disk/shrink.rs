//! What is done while the owner's limit is exceeded (R4.8).
//!
//! This is asked first in every pass of the agent's loop: the agent's own writing, a new limit or other
//! programs can exceed the limit. There are four stages. Each begins when the one before has nothing left to
//! do:
//! 1. offenders shrink to their limits;
//! 2. every project in turn loses one file;
//! 3. every project in turn gives back one queued job, whose files are deleted;
//! 4. computing is suspended.
//!
//! The plan ends with the first step that brings usage under the limit.
//!
//! The project that exceeds its limit by most has the first turn, so that it is not always the first attached
//! one that loses one file more than others. Each project loses files in its own order, so no project
//! protects its files from the owner by giving them a high priority. A queued job is not given back if
//! something that stays keeps all of its files: nothing would be gained.
//!
//! Nothing is remembered between passes. Computing is suspended as long as the answer has a
//! [`DiskSuspension`], and resumes when it has none. While it has one and nothing can be deleted, an answer
//! costs a step for each project.

use std::collections::BTreeMap;
use std::fmt;

use fallow_domain::{Bytes, Instant, JobId, ProjectId};

use super::deletion_plan::DeletionPlan;
use super::file::FileId;
use super::limit::TotalLimit;
use super::order::LEVEL_MAX;
use super::reason::{Deletion, DeletionRule, ReturnedJob, counted};
use super::usage::{DiskUse, sum_to_bytes, to_bytes};

/// What to do about an exceeded limit.
#[derive(Clone, Debug, PartialEq)]
pub struct ShrinkPlan {
    /// By how much the limit is exceeded.
    pub over: Bytes,
    /// The limit.
    pub limit: TotalLimit,
    /// What to do, in this order. Whoever carries it out may stop when usage is under the limit.
    pub steps: Vec<ShrinkStep>,
    /// That computing is to be suspended, because the steps are not enough.
    pub suspension: Option<DiskSuspension>,
}

/// One step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ShrinkStep {
    /// Delete a file.
    Delete(Deletion),
    /// Give a queued job back to its server and cancel the downloads that no other job needs
    /// ([`DiskUse::give_back`] names them). The files that go for it follow as steps of their own.
    GiveBack(ReturnedJob),
}

/// Why computing is suspended: for the owner, the operator and the metrics.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DiskSuspension {
    /// How many bytes have to be freed by somebody else.
    pub missing: Bytes,
    /// The limit.
    pub limit: TotalLimit,
    /// Files that are deleted, in all stages.
    pub files: usize,
    /// Their bytes.
    pub freed: Bytes,
    /// Queued jobs that are given back.
    pub jobs: usize,
    /// What the agent itself uses: state, logs, notices.
    pub own: Bytes,
    /// What projects are left with: running and unacknowledged jobs, transfers, keys, applications in use.
    pub kept: Bytes,
}

impl DiskUse {
    /// Plans how to get under the owner's limit. `None` while usage is within it, or no limit is known.
    pub fn shrink(&self) -> Option<ShrinkPlan> {
        let limit = self.limit?;
        let over = self.overrun();
        if over <= 0 {
            return None;
        }
        let mut plan = DeletionPlan::new(self, over);
        plan.shrink_offenders(0, |excess, limit| DeletionRule::OffenderShrinks { excess, limit });
        lose_files_in_turn(&mut plan);
        let mut steps: Vec<ShrinkStep> = plan.deletions.drain(..).map(ShrinkStep::Delete).collect();
        give_back_jobs_in_turn(&mut plan, &mut steps);
        let suspension = (!plan.is_enough()).then(|| self.suspension(limit, &plan, &steps));
        Some(ShrinkPlan { over: to_bytes(over), limit, steps, suspension })
    }

    /// What goes first while there is no space to store anything: files until they come to `enough`, and at
    /// most so many. How many it takes is not known, so whoever carries it out tries again in between. No job
    /// is given back: that would have to be stored.
    pub fn first_to_go(&self, enough: Bytes, most: usize) -> Vec<Deletion> {
        let mut plan = DeletionPlan::new(self, i128::MAX);
        let mut freed = Bytes(0);
        while plan.deletions.len() < most
            && freed < enough
            && plan.take_from_greatest(DeletionRule::NothingStored)
        {
            freed = freed.plus(plan.deletions.last().map_or(Bytes(0), |deletion| deletion.bytes));
        }
        plan.deletions
    }

    fn suspension(&self, limit: TotalLimit, plan: &DeletionPlan<'_>, steps: &[ShrinkStep]) -> DiskSuspension {
        let mut suspension = DiskSuspension {
            missing: plan.missing(),
            limit,
            files: 0,
            freed: Bytes(0),
            jobs: 0,
            own: self.own,
            kept: Bytes(0),
        };
        for step in steps {
            match step {
                ShrinkStep::Delete(deletion) => {
                    suspension.files += 1;
                    suspension.freed = suspension.freed.plus(deletion.bytes);
                }
                ShrinkStep::GiveBack(_) => suspension.jobs += 1,
            }
        }
        suspension.kept = sum_to_bytes(self.projects_used.saturating_sub(u128::from(suspension.freed.0)));
        suspension
    }
}

/// The second stage.
fn lose_files_in_turn(plan: &mut DeletionPlan<'_>) {
    let mut projects = plan.by_excess();
    while !projects.is_empty() && !plan.is_enough() {
        projects.retain(|project| !plan.is_enough() && plan.take(*project, LEVEL_MAX, DeletionRule::InTurn));
    }
}

/// The third stage.
fn give_back_jobs_in_turn(plan: &mut DeletionPlan<'_>, steps: &mut Vec<ShrinkStep>) {
    if plan.is_enough() {
        return;
    }
    let mut projects: Vec<Jobs<'_>> =
        plan.by_excess().into_iter().filter_map(|id| Jobs::of(plan.disk, id)).collect();
    while !projects.is_empty() && !plan.is_enough() {
        projects.retain_mut(|jobs| !plan.is_enough() && jobs.give_back(plan, steps));
    }
}

/// The queued jobs of a project, as far as they have not been given back.
struct Jobs<'a> {
    project: ProjectId,
    /// Latest deadline first.
    jobs: std::iter::Rev<std::collections::btree_set::Iter<'a, (Instant, JobId)>>,
    /// Bytes that only they keep.
    left: u128,
    /// How many of the jobs that need a file have been given back.
    released: BTreeMap<FileId, u32>,
}

impl<'a> Jobs<'a> {
    fn of(disk: &'a DiskUse, project: ProjectId) -> Option<Self> {
        let part = disk.projects.get(&project)?;
        let jobs = part.queued.iter().rev();
        Some(Self { project, jobs, left: part.queued_only, released: BTreeMap::new() })
    }

    /// Gives back the next job that keeps anything, and deletes what nobody needs any more until that is
    /// enough. False when there is no such job.
    fn give_back(&mut self, plan: &mut DeletionPlan<'_>, steps: &mut Vec<ShrinkStep>) -> bool {
        let disk = plan.disk;
        while self.left > 0 {
            let Some((deadline, job)) = self.jobs.next().copied() else { return false };
            let Some(freed) = self.release(disk, job) else { continue };
            let bytes = freed.iter().map(|(_, bytes)| u128::from(bytes.0)).sum();
            self.left -= bytes;
            let frees = sum_to_bytes(bytes);
            steps.push(ShrinkStep::GiveBack(ReturnedJob { job, project: self.project, deadline, frees }));
            for (file, bytes) in freed {
                let Some((name, why)) = disk.next_words(file).filter(|_| !plan.is_enough()) else { break };
                let rule = DeletionRule::JobGivenBack { job };
                plan.delete(Deletion { file, name, project: self.project, bytes, rule, why });
            }
            steps.extend(plan.deletions.drain(..).map(ShrinkStep::Delete));
            return true;
        }
        false
    }

    /// The files that nobody needs any more without this job, in order of deletion. `None` if something that
    /// stays keeps all its files.
    fn release(&mut self, disk: &DiskUse, job: JobId) -> Option<Vec<(FileId, Bytes)>> {
        let choice = disk.projects.get(&self.project)?.choice;
        let mut keeps_any = false;
        let mut freed = Vec::new();
        for file in &disk.jobs.get(&job)?.files {
            let Some(record) = disk.files.get(file) else { continue };
            let Some(needed_by) = record.protections.only_queued() else { continue };
            if record.attributes.size == Bytes(0) {
                continue;
            }
            keeps_any = true;
            let released = self.released.entry(*file).or_default();
            *released += 1;
            if *released == needed_by {
                freed.push((choice.rank(*file, &record.attributes, disk.now), record.attributes.size));
            }
        }
        freed.sort_unstable();
        keeps_any.then(|| freed.into_iter().map(|(rank, bytes)| (rank.file, bytes)).collect())
    }
}

impl fmt::Display for ShrinkStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Delete(deletion) => deletion.fmt(f),
            Self::GiveBack(job) => job.fmt(f),
        }
    }
}

impl fmt::Display for DiskSuspension {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { missing, limit, freed, own, kept, .. } = self;
        // Also what others take of the space that is to stay free.
        let to_free = missing.plus(limit.short());
        let (files, jobs) = (counted(self.files, "unneeded file"), counted(self.jobs, "queued job"));
        write!(
            f,
            "computing is suspended: usage exceeds the disk limit of {limit} by {missing}. Deleted: {files} ({freed}); \
             given back: {jobs}. What is left are {own} of the agent's own and {kept} that running and unreported jobs \
             need. {}; computing then resumes by itself",
            limit.bound.widen(to_free)
        )
    }
}
