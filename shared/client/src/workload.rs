//! What policies hold of each job: whether plans reckon with it, whether it is held and cannot run, what it
//! needs when its files are here.
//!
//! Derived state: it is worked out again after a restart. A job is put where it stands whenever something
//! changes that this follows from, and what has changed by that for others is the answer.

use std::collections::{BTreeMap, BTreeSet};

use fallow_domain::{Bytes, Instant, JobId, ProjectId};
use fallow_policy::completion::Basis;
use fallow_policy::job_queue::{AtOnce, JobQueue, JobSnapshot};

use crate::incoming::Incoming;
use crate::set_aside::SetAside;

/// The jobs of a host as policies see them.
#[derive(Debug, Default)]
pub(crate) struct Workload {
    /// Those that plans reckon with.
    queue: JobQueue,
    set_aside: SetAside,
    incoming: Incoming,
    /// Those whose owner was told that they cannot run here.
    told_unrunnable: BTreeSet<JobId>,
    /// What their estimates were made from, beside the jobs themselves.
    estimated_by: BTreeMap<ProjectId, Basis>,
}

/// Where a job stands.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Place {
    /// Plans reckon with it.
    Queued(JobSnapshot),
    /// It is held and keeps no instance busy: until the instant, if there is one, or until something else
    /// changes.
    Aside(JobSnapshot, Option<Instant>),
    /// It is over, its files do not come, or it is not held any more.
    Nowhere,
}

/// What a CPU job that waits for files is going to use.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Needs {
    pub project: ProjectId,
    pub cpus: f64,
    pub memory: Bytes,
}

/// What has changed for others.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moved {
    /// Which jobs plans reckon with. The progress of a task lets none run, and keeps none from running.
    pub queued: bool,
    /// Until when the job waits.
    pub wait: bool,
}

impl Workload {
    /// The jobs that plans reckon with.
    pub(crate) const fn queue(&self) -> &JobQueue {
        &self.queue
    }

    /// Those that are held and cannot run now, or ever.
    pub(crate) const fn set_aside(&self) -> &SetAside {
        &self.set_aside
    }

    /// CPU jobs that wait for files, also for such as do not come.
    pub(crate) const fn incoming(&self) -> &Incoming {
        &self.incoming
    }

    /// Puts a job where it stands now. It `needs` something if it is a CPU job that waits for files.
    pub(crate) fn place(&mut self, id: JobId, place: &Place, needs: Option<Needs>) -> Moved {
        let before = (self.queue.generation(), self.set_aside.until(id));
        match needs {
            Some(Needs { project, cpus, memory }) => self.incoming.insert(id, project, cpus, memory),
            None => self.incoming.remove(id),
        }
        match place {
            Place::Queued(job) => {
                self.set_aside.remove(id);
                self.queue.insert(*job);
            }
            Place::Aside(job, until) => {
                self.queue.remove(id);
                self.set_aside.insert(id, job.project, job.usage.main_type(), *until);
            }
            Place::Nowhere => {
                self.queue.remove(id);
                self.set_aside.remove(id);
            }
        }
        Moved { queued: self.queue.generation() != before.0, wait: self.set_aside.until(id) != before.1 }
    }

    /// Takes note that the owner is told that a job cannot run here. Says whether it is for the first time.
    pub(crate) fn note_told_unrunnable(&mut self, id: JobId) -> bool {
        self.told_unrunnable.insert(id)
    }

    /// A job is not held any more, and was taken from its place before.
    pub(crate) fn forget_job(&mut self, id: JobId) {
        self.told_unrunnable.remove(&id);
    }

    /// Takes note of what a project's estimates are to be made from. Says whether that has moved away from
    /// what those of the jobs here were made from. `at_first` gives what they were made from where nothing is
    /// noted of the project yet.
    pub(crate) fn estimate_by(
        &mut self,
        project: ProjectId,
        basis: Basis,
        at_first: impl FnOnce() -> Basis,
    ) -> bool {
        let held = self.estimated_by.entry(project).or_insert_with(at_first);
        let has_moved = held.has_moved(&basis);
        if has_moved {
            *held = basis;
        }
        has_moved
    }

    /// Says how many jobs of a project may run at once.
    pub(crate) fn limit(&mut self, project: ProjectId, limits: AtOnce) {
        self.queue.limit(project, limits);
    }

    /// A project is detached, and its jobs are gone.
    pub(crate) fn forget_project(&mut self, project: ProjectId) {
        self.estimated_by.remove(&project);
        self.limit(project, AtOnce::default());
    }

    /// Whether jobs stand where they do in another.
    #[cfg(test)]
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        self.queue.iter().eq(other.queue.iter())
            && (&self.set_aside, &self.incoming) == (&other.set_aside, &other.incoming)
    }
}
