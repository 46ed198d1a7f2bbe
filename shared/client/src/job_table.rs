//! The jobs that are held, and who is where among them: by name, in slots, uploading, to be reported, writing
//! a file, by when half of their time has passed.
//!
//! Anybody may look; a job is changed by [`Jobs::edit`] alone, which keeps the indexes by the difference, so
//! that they are always those that follow from the jobs. Each change costs O(log n).

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Deref;

use fallow_domain::{Instant, JobId, ProjectId, SlotId};

use crate::FileKey;
use crate::job_diff::{Difference, Outline};
use crate::state::{Job, Process, Stage};

/// The jobs, to be looked at as a map.
#[derive(Debug, Default)]
pub(crate) struct Jobs {
    all: BTreeMap<JobId, Job>,
    index: Index,
}

/// What follows from the jobs.
#[derive(Debug, Default, PartialEq)]
struct Index {
    names: BTreeMap<FileKey, JobId>,
    slots: BTreeMap<SlotId, JobId>,
    uploading: BTreeSet<JobId>,
    reporting: BTreeSet<JobId>,
    outputs: BTreeSet<(FileKey, JobId)>,
    workunits: BTreeMap<FileKey, u32>,
    half_times: BTreeSet<(Instant, JobId)>,
}

impl Deref for Jobs {
    type Target = BTreeMap<JobId, Job>;
    fn deref(&self) -> &Self::Target {
        &self.all
    }
}

impl Job {
    pub(crate) fn name(&self) -> FileKey {
        FileKey { project: self.project, name: self.result.name.clone() }
    }

    pub(crate) fn workunit(&self) -> FileKey {
        FileKey { project: self.project, name: self.result.workunit.clone() }
    }

    pub(crate) fn output_files(&self) -> Vec<FileKey> {
        let outputs = self.result.files.iter();
        outputs.map(|file| FileKey { project: self.project, name: file.file_name.clone() }).collect()
    }

    /// When half of the time from its arrival to its deadline has passed, of one that is not over.
    fn half_time(&self) -> Option<Instant> {
        half_time(self.stage, self.received_at, self.result.report_deadline)
    }
}

fn half_time(stage: Stage, received: Instant, deadline: Instant) -> Option<Instant> {
    let goes_on = matches!(stage, Stage::Downloading | Stage::Runnable);
    goes_on.then(|| received + (deadline - received) / 2)
}

impl Jobs {
    /// Takes in a job, in place of another of the same id.
    pub(crate) fn insert(&mut self, job: Job) {
        self.remove(job.id);
        self.index.insert(&job);
        self.all.insert(job.id, job);
    }

    /// Changes a job, but for its id, its project, its names and its files. Says what follows from it.
    pub(crate) fn edit<T>(
        &mut self,
        id: JobId,
        change: impl FnOnce(&mut Job) -> T,
    ) -> Option<(T, Difference)> {
        let job = self.all.get_mut(&id)?;
        let (before, slot, stage) = (Outline::of(job), job.slot, job.stage);
        let (received, deadline) = (job.received_at, job.result.report_deadline);
        let told = change(job);
        if job.slot != slot {
            self.index.leave(slot, id);
            self.index.take(job.slot, id);
        }
        if job.stage != stage {
            self.index.move_to(job.stage, id);
        }
        if job.stage != stage || job.result.report_deadline != deadline {
            let half = half_time(stage, received, deadline);
            self.index.has_half_time(half, job.half_time(), id);
        }
        Some((told, before.until(job)))
    }

    /// Adds to the running totals of tasks that execute. No difference to anybody before somebody looks at
    /// them.
    pub(crate) fn change_executed(&mut self, mut add: impl FnMut(&mut Job)) {
        for id in self.index.slots.values() {
            let job = self.all.get_mut(id).filter(|job| matches!(job.process, Process::Executing(_)));
            job.map(&mut add);
        }
    }

    pub(crate) fn remove(&mut self, id: JobId) -> Option<Job> {
        let job = self.all.remove(&id)?;
        self.index.remove(&job);
        Some(job)
    }

    /// Jobs that hold a slot.
    pub(crate) fn slots(&self) -> &BTreeMap<SlotId, JobId> {
        &self.index.slots
    }

    /// Jobs that are over and whose outputs are on their way.
    pub(crate) fn uploading(&self) -> &BTreeSet<JobId> {
        &self.index.uploading
    }

    /// Jobs to be reported.
    pub(crate) fn reporting(&self) -> &BTreeSet<JobId> {
        &self.index.reporting
    }

    /// The job of a name.
    pub(crate) fn named(&self, name: &FileKey) -> Option<JobId> {
        self.index.names.get(name).copied()
    }

    /// The jobs of a project, by name.
    pub(crate) fn of(&self, project: ProjectId) -> impl Iterator<Item = JobId> + '_ {
        let from = FileKey { project, name: String::new() };
        self.index.names.range(from..).take_while(move |(key, _)| key.project == project).map(|(_, id)| *id)
    }

    /// Who writes a file.
    pub(crate) fn writers(&self, key: &FileKey) -> impl Iterator<Item = JobId> + '_ {
        let writers = self.index.outputs.range((key.clone(), JobId(0))..=(key.clone(), JobId(u64::MAX)));
        writers.map(|(_, id)| *id)
    }

    /// Jobs that are not over, and half of whose time has passed by then.
    pub(crate) fn past_half_time(&self, now: Instant) -> impl Iterator<Item = JobId> + '_ {
        self.index.half_times.range(..=(now, JobId(u64::MAX))).map(|(_, id)| *id)
    }

    /// Whether a job of this workunit is held.
    pub(crate) fn any_of_workunit(&self, workunit: &FileKey) -> bool {
        self.index.workunits.contains_key(workunit)
    }

    /// Whether the indexes are those that follow from the jobs.
    #[cfg(test)]
    pub(crate) fn is_consistent(&self) -> bool {
        let mut anew = Index::default();
        self.all.values().for_each(|job| anew.insert(job));
        anew == self.index
    }
}

impl Index {
    fn insert(&mut self, job: &Job) {
        self.names.insert(job.name(), job.id);
        self.take(job.slot, job.id);
        self.move_to(job.stage, job.id);
        self.outputs.extend(job.output_files().into_iter().map(|key| (key, job.id)));
        *self.workunits.entry(job.workunit()).or_default() += 1;
        self.has_half_time(None, job.half_time(), job.id);
    }

    fn remove(&mut self, job: &Job) {
        self.names.remove(&job.name());
        self.leave(job.slot, job.id);
        self.uploading.remove(&job.id);
        self.reporting.remove(&job.id);
        self.has_half_time(job.half_time(), None, job.id);
        for key in job.output_files() {
            self.outputs.remove(&(key, job.id));
        }
        if let Some(jobs) = self.workunits.get_mut(&job.workunit()) {
            *jobs -= 1;
            if *jobs == 0 {
                self.workunits.remove(&job.workunit());
            }
        }
    }

    fn take(&mut self, slot: Option<SlotId>, id: JobId) {
        self.slots.extend(slot.map(|slot| (slot, id)));
    }

    fn leave(&mut self, slot: Option<SlotId>, id: JobId) {
        if let Some(slot) = slot.filter(|slot| self.slots.get(slot) == Some(&id)) {
            self.slots.remove(&slot);
        }
    }

    fn has_half_time(&mut self, before: Option<Instant>, now: Option<Instant>, id: JobId) {
        if let Some(before) = before {
            self.half_times.remove(&(before, id));
        }
        self.half_times.extend(now.map(|now| (now, id)));
    }

    fn move_to(&mut self, stage: Stage, id: JobId) {
        self.uploading.remove(&id);
        self.reporting.remove(&id);
        match stage {
            Stage::Uploading => self.uploading.insert(id),
            Stage::Reporting => self.reporting.insert(id),
            Stage::Downloading | Stage::Runnable => false,
        };
    }
}
