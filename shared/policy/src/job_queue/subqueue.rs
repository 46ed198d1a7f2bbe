//! The jobs of one project and main type, in the order of R2.3, and their sums.

use std::collections::{BTreeMap, BTreeSet, btree_map};

use fallow_domain::{Duration, Instant, JobId};

use super::sorted::{Entry, SortKey, SortedJobs, Summary};
use super::{Cpus, Instances, JobSnapshot, Needs, RunState};

/// The jobs of one project and main type.
#[derive(Clone, Debug, Default)]
pub(crate) struct Subqueue {
    /// By deadline and id, as the next two are.
    pub(crate) running: Vec<Entry>,
    pub(crate) preempted: Vec<Entry>,
    /// Jobs that never ran, those on their way included.
    pub(crate) queued: SortedJobs,
    /// Of these the ones that could run, by what they need.
    pub(crate) unstarted: BTreeMap<Needs, BTreeSet<SortKey>>,
    /// How many of all jobs use so much of the main type and are of that application.
    pub(crate) sizes: BTreeMap<(Instances, Option<u32>), usize>,
    pub(crate) count: usize,
    pub(crate) runnable: usize,
    /// Instance time left, of the main type and of the CPU.
    pub(crate) work: Duration,
    pub(crate) cpu_time: Duration,
    /// Instances that all jobs, and those that could run, would use at once.
    pub(crate) instances: Instances,
    pub(crate) runnable_instances: Instances,
    pub(crate) cpus: Cpus,
    pub(crate) runnable_cpus: Cpus,
}

fn entry(job: &JobSnapshot) -> Entry {
    Entry {
        deadline: job.deadline,
        left: job.left(),
        id: job.id,
        amount: job.main_instances().as_f64() as f32,
        cpus: Cpus::of(job.usage).as_f64() as f32,
        ready: job.is_runnable(),
    }
}

fn find(tasks: &[Entry], deadline: Instant, id: JobId) -> Result<usize, usize> {
    tasks.binary_search_by(|other| (other.deadline, other.id).cmp(&(deadline, id)))
}

impl Subqueue {
    /// The jobs in the order of R2.3, in pieces: running, preempted, then the chunks of the others. None
    /// after the last.
    pub(crate) fn piece(&self, number: usize) -> Option<&[Entry]> {
        match number {
            0 => Some(&self.running),
            1 => Some(&self.preempted),
            _ => self.queued.chunks().get(number - 2).map(|chunk| chunk.entries.as_slice()),
        }
    }

    /// What all jobs come to, and the first of their deadlines.
    pub(super) fn summary(&self) -> (Summary, Instant) {
        let (mut sum, mut earliest) = (Summary::NONE, Instant::FAR_FUTURE);
        for entry in self.running.iter().chain(&self.preempted) {
            sum.add(entry);
            earliest = earliest.min(entry.deadline);
        }
        for chunk in self.queued.chunks() {
            sum.merge(&chunk.summary);
        }
        let queued = self.queued.iter().next().map(|entry| entry.deadline);
        (sum, queued.map_or(earliest, |queued| earliest.min(queued)))
    }

    pub(crate) fn tasks(&self) -> impl Iterator<Item = JobId> {
        self.running.iter().chain(&self.preempted).map(|entry| entry.id)
    }

    fn tasks_in(&mut self, state: RunState) -> Option<&mut Vec<Entry>> {
        match state {
            RunState::Running { .. } => Some(&mut self.running),
            RunState::Preempted => Some(&mut self.preempted),
            RunState::Downloading | RunState::Unstarted => None,
        }
    }

    pub(crate) fn insert(&mut self, job: &JobSnapshot) {
        let entry = entry(job);
        match self.tasks_in(job.state) {
            Some(tasks) => {
                if let Err(at) = find(tasks, job.deadline, job.id) {
                    tasks.insert(at, entry);
                }
            }
            None => self.queued.insert(entry),
        }
        if job.state == RunState::Unstarted {
            self.unstarted.entry(job.needs()).or_default().insert(entry.sort_key());
        }
        self.count += 1;
        let (work, cpu_time) = job.instance_time();
        self.work += work;
        self.cpu_time += cpu_time;
        let (instances, cpus) = (job.main_instances(), Cpus::of(job.usage));
        *self.sizes.entry((instances, job.application)).or_default() += 1;
        self.instances = self.instances.plus(instances);
        self.cpus = self.cpus.plus(cpus);
        if job.is_runnable() {
            self.runnable += 1;
            self.runnable_instances = self.runnable_instances.plus(instances);
            self.runnable_cpus = self.runnable_cpus.plus(cpus);
        }
    }

    /// Instances that jobs on their way will use.
    pub(crate) fn coming(&self) -> f64 {
        self.instances.minus(self.runnable_instances).as_f64()
    }

    pub(crate) fn remove(&mut self, job: &JobSnapshot) {
        let entry = entry(job);
        match self.tasks_in(job.state) {
            Some(tasks) => {
                if let Ok(at) = find(tasks, job.deadline, job.id) {
                    tasks.remove(at);
                }
            }
            None => self.queued.remove(&entry.sort_key()),
        }
        if job.state == RunState::Unstarted
            && let Some(bucket) = self.unstarted.get_mut(&job.needs())
        {
            bucket.remove(&entry.sort_key());
            if bucket.is_empty() {
                self.unstarted.remove(&job.needs());
            }
        }
        self.count -= 1;
        let (work, cpu_time) = job.instance_time();
        self.work -= work;
        self.cpu_time -= cpu_time;
        let (instances, cpus) = (job.main_instances(), Cpus::of(job.usage));
        if let btree_map::Entry::Occupied(mut alike) = self.sizes.entry((instances, job.application)) {
            *alike.get_mut() -= 1;
            if *alike.get() == 0 {
                alike.remove();
            }
        }
        self.instances = self.instances.minus(instances);
        self.cpus = self.cpus.minus(cpus);
        if job.is_runnable() {
            self.runnable -= 1;
            self.runnable_instances = self.runnable_instances.minus(instances);
            self.runnable_cpus = self.runnable_cpus.minus(cpus);
        }
    }

    /// A task of which nothing but the time left has changed, and by that so much instance time left of the
    /// main type and of the CPU.
    pub(crate) fn progress(&mut self, job: &JobSnapshot, work: Duration, cpu_time: Duration) {
        if let Some(tasks) = self.tasks_in(job.state)
            && let Ok(at) = find(tasks, job.deadline, job.id)
            && let Some(task) = tasks.get_mut(at)
        {
            task.left = job.left();
        }
        self.work += work;
        self.cpu_time += cpu_time;
    }
}
