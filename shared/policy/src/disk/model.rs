//! R4 once more, read off its text: full scans of plain lists, without any order or sum that is kept. The
//! tests compare the real state with it.

use std::collections::{BTreeMap, BTreeSet};

use fallow_domain::{Bytes, Instant, JobId, ProjectId, Share};

use super::*;
use crate::share_fraction::share_fractions;

#[derive(Clone, Debug)]
pub(super) struct ModelFile {
    pub(super) project: ProjectId,
    pub(super) name: String,
    pub(super) attributes: FileAttributes,
    pub(super) holds: BTreeSet<Hold>,
    pub(super) present: bool,
}

#[derive(Clone, Debug, Default)]
pub(super) struct ModelProject {
    pub(super) share: f64,
    pub(super) choice: DeletionChoice,
    pub(super) other: u64,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Model {
    pub(super) now: Instant,
    pub(super) files: BTreeMap<FileId, ModelFile>,
    pub(super) jobs: BTreeMap<JobId, DiskJob>,
    pub(super) projects: BTreeMap<ProjectId, ModelProject>,
    pub(super) own: u64,
    pub(super) limit: u64,
}

/// A plan of the model: what is deleted and given back, in order, and whether that is enough.
#[derive(Debug, Default, PartialEq)]
pub(super) struct ModelPlan {
    pub(super) steps: Vec<Result<FileId, JobId>>,
    pub(super) is_enough: bool,
}

impl Model {
    pub(super) fn all_projects(&self) -> u64 {
        self.limit.saturating_sub(self.own)
    }

    pub(super) fn project_limit(&self, id: ProjectId) -> u64 {
        let shares = self.projects.iter().map(|(id, p)| (*id, Share::new(p.share).unwrap()));
        (self.all_projects() as f64 * share_fractions(shares).get(&id).copied().unwrap_or(0.0)) as u64
    }

    pub(super) fn usage(&self, id: ProjectId) -> u64 {
        let files = self.files.values().filter(|file| file.present && file.project == id);
        files.map(|file| file.attributes.size.0).sum::<u64>() + self.projects[&id].other
    }

    pub(super) fn used(&self) -> u64 {
        self.projects.keys().map(|id| self.usage(*id)).sum()
    }

    fn excess(&self, id: ProjectId) -> i64 {
        if !self.projects.contains_key(&id) {
            return 0;
        }
        self.usage(id) as i64 - self.project_limit(id) as i64
    }

    fn referring(&self, file: FileId) -> impl Iterator<Item = &DiskJob> {
        self.jobs.values().filter(move |job| job.files.contains(&file))
    }

    pub(super) fn is_protected(&self, file: FileId) -> bool {
        !self.files[&file].holds.is_empty() || self.referring(file).next().is_some()
    }

    fn is_expired(&self, file: &ModelFile) -> bool {
        self.projects[&file.project].choice.expiration && file.attributes.expires < self.now
    }

    /// R4.6 as a comparison of any two files of a project.
    fn before(&self, a: FileId, b: FileId) -> std::cmp::Ordering {
        let (x, y) = (&self.files[&a], &self.files[&b]);
        let (p, q) = (x.attributes, y.attributes);
        let by_use = p.last_used.cmp(&q.last_used).then(p.arrived.cmp(&q.arrived)).then(a.cmp(&b));
        match (self.is_expired(x), self.is_expired(y)) {
            (true, true) => p.expires.cmp(&q.expires).then(p.last_used.cmp(&q.last_used)).then(a.cmp(&b)),
            (true, false) => std::cmp::Ordering::Less,
            (false, true) => std::cmp::Ordering::Greater,
            (false, false) if self.projects[&x.project].choice.priority => {
                p.priority.cmp(&q.priority).then(p.arrived.cmp(&q.arrived)).then(by_use)
            }
            (false, false) => p.priority.cmp(&q.priority).then(by_use),
        }
    }

    /// The first file to go of a project, among those up to a level or expired.
    fn next(&self, id: ProjectId, level: u8) -> Option<FileId> {
        let may = |(file, record): &(&FileId, &ModelFile)| {
            record.project == id
                && record.present
                && record.attributes.size > Bytes(0)
                && !self.is_protected(**file)
                && (record.attributes.priority.level() <= level || self.is_expired(record))
        };
        let candidates = self.files.iter().filter(may).map(|(file, _)| *file);
        candidates.min_by(|a, b| self.before(*a, *b))
    }

    fn delete(&mut self, file: FileId, plan: &mut ModelPlan) {
        self.files.get_mut(&file).unwrap().present = false;
        plan.steps.push(Ok(file));
    }

    /// R4.4 for a file of `bytes` in `project`.
    pub(super) fn admit(&self, project: ProjectId, bytes: u64) -> ModelPlan {
        let mut left = self.clone();
        let mut plan = ModelPlan::default();
        let fits = |left: &Self| left.used() + bytes <= left.all_projects();
        let floor = self.excess(project).max(0);
        left.shrink_offenders(floor, &fits, &mut plan);
        while !fits(&left) {
            let Some(file) = left.next(project, 5) else { break };
            left.delete(file, &mut plan);
        }
        plan.is_enough = fits(&left);
        plan
    }

    fn shrink_offenders(&mut self, floor: i64, fits: &impl Fn(&Self) -> bool, plan: &mut ModelPlan) {
        for level in 1..=5 {
            let mut checked = BTreeSet::new();
            loop {
                let unchecked = self.projects.keys().filter(|id| !checked.contains(*id)).copied();
                let greatest = unchecked.max_by_key(|id| (self.excess(*id), std::cmp::Reverse(*id)));
                let Some(greatest) = greatest.filter(|id| self.excess(*id) > floor) else { break };
                checked.insert(greatest);
                while !fits(self) && self.excess(greatest) > floor {
                    let Some(file) = self.next(greatest, level) else { break };
                    self.delete(file, plan);
                }
            }
        }
    }

    /// R4.8; nothing while the limit is kept.
    pub(super) fn shrink(&self) -> ModelPlan {
        let mut left = self.clone();
        let mut plan = ModelPlan::default();
        let fits = |left: &Self| left.used() + left.own <= left.limit;
        left.shrink_offenders(0, &fits, &mut plan);
        left.in_turn(&fits, |left, id| {
            let Some(file) = left.next(id, 5) else { return false };
            left.delete(file, &mut plan);
            true
        });
        left.in_turn(&fits, |left, id| left.give_back(id, &fits, &mut plan));
        plan.is_enough = fits(&left);
        plan
    }

    /// Projects in turn, the greatest excess first, until it fits or none can go on.
    fn in_turn(&mut self, fits: &impl Fn(&Self) -> bool, mut turn: impl FnMut(&mut Self, ProjectId) -> bool) {
        let mut order: Vec<ProjectId> = self.projects.keys().copied().collect();
        order.sort_by_key(|id| (std::cmp::Reverse(self.excess(*id)), *id));
        loop {
            let mut any = false;
            for id in &order {
                if fits(self) {
                    return;
                }
                any |= turn(self, *id);
            }
            if !any {
                return;
            }
        }
    }

    /// Downloads for a job that was given back end if nobody else needs them.
    pub(super) fn cancel_downloads(&mut self, files: &BTreeSet<FileId>) {
        for file in files {
            if self.referring(*file).next().is_none() && self.files[file].holds == [Hold::Transfer].into() {
                self.files.get_mut(file).unwrap().holds.clear();
            }
        }
    }

    fn give_back(&mut self, id: ProjectId, fits: &impl Fn(&Self) -> bool, plan: &mut ModelPlan) -> bool {
        let keeps = |job: &DiskJob| {
            job.files.iter().any(|file| {
                let record = &self.files[file];
                let queued_only = self.referring(*file).all(|other| other.stage == JobStage::Queued);
                let held = record.holds.iter().any(|hold| *hold != Hold::Transfer);
                record.present && record.attributes.size > Bytes(0) && !held && queued_only
            })
        };
        let queued = self.jobs.iter().filter(|(_, job)| job.project == id && job.stage == JobStage::Queued);
        let latest = queued.filter(|(_, job)| keeps(job)).max_by_key(|(job, known)| (known.deadline, **job));
        let Some((job, _)) = latest else { return false };
        let job = *job;
        let before: BTreeSet<FileId> = self.jobs.remove(&job).unwrap().files.into_iter().collect();
        plan.steps.push(Err(job));
        self.cancel_downloads(&before);
        while !fits(self) {
            let Some(file) = self.next(id, 5).filter(|file| before.contains(file)) else { break };
            self.delete(file, plan);
        }
        true
    }
}
