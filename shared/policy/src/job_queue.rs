//! The jobs of a host, kept in the order in which policies want them.
//!
//! The caller keeps one queue beside its jobs and tells it of every change. So a decision looks at the jobs
//! that it takes and passes over, and not at all ten thousand. For each project and main resource type
//! (R3.1) there is a subqueue with:
//! - running and preempted tasks (few, by deadline);
//! - jobs that never ran, in order of deadline;
//! - those of them that could run now, grouped by what they need (`Needs`; the jobs of one application
//!   version need the same, so there are few groups);
//! - the sums that work fetch wants.
//!
//! Of equal deadlines the job with the least time left comes first, then the smaller id.
//!
//! A change costs O(log jobs); progress of a task costs less. The queue is derived state: it is rebuilt
//! after a restart, not stored.
//!
//! `generation` tells whether a plan made from the queue still holds. Progress of running tasks does not
//! change it, because a plan expects them to make progress. It is added to `progressed` instead, so that a
//! planner can tell when tasks went faster than time.

mod instances;
mod limits;
mod sorted;
mod subqueue;

use std::collections::BTreeMap;

use fallow_domain::{Bytes, Duration, Instant, JobId, PerType, ProjectId, ResourceType, Usage};

use crate::send::Load;

pub use instances::{Cpus, Devices, Instances, Needs};
pub(crate) use limits::Places;
pub use limits::{AtOnce, NoPlace};
pub(crate) use sorted::{Entry, Summary};
pub(crate) use subqueue::Subqueue;

/// Whether a job runs, and if not, how near it is to running.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunState {
    /// Files still on their way. It cannot run yet, but it is work held: work fetch counts it, so that a
    /// project is not asked twice for the same shortfall.
    Downloading,
    /// Ready to run, never started.
    Unstarted,
    /// A task that does not run now.
    Preempted,
    /// A task that runs.
    Running {
        /// When its present time slice began: when it was started or resumed, or chosen again at a slice's
        /// end (`ScheduledJob::slice_began`).
        slice_began: Instant,
        /// Its latest checkpoint, or its start if it has made none since.
        checkpointed_at: Instant,
        /// The devices of its coprocessor type that it runs on (`ScheduledJob::devices`), none for a CPU job.
        devices: Devices,
    },
}

impl RunState {
    /// Whether a task runs in a time slice that lasts. A slice that begins in the future comes from a clock
    /// that jumped back: it is over (R1.12).
    pub(crate) fn is_in_slice(self, now: Instant, scheduling_period: Duration) -> bool {
        match self {
            Self::Running { slice_began, .. } => slice_began <= now && now < slice_began + scheduling_period,
            _ => false,
        }
    }
}

/// What policies know of one job.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct JobSnapshot {
    /// The job.
    pub id: JobId,
    /// Its project.
    pub project: ProjectId,
    /// The number of its application among those of its project, where the owner limits how many of these
    /// run at once ([`AtOnce`]).
    pub application: Option<u32>,
    /// Devices of its coprocessor type that the owner does not let it use.
    pub barred: Devices,
    /// What it uses while it runs.
    pub usage: Usage,
    /// How far it is.
    pub state: RunState,
    /// By when its report is wanted. For planning with a connection interval the caller gives it that much
    /// earlier (R1.13).
    pub deadline: Instant,
    /// Memory that it needs: measured for a task, the server's estimate for an unstarted job.
    pub working_set: Bytes,
    /// Estimated running time left (R5.7, R5.8): wall time while it runs with all that it uses.
    pub remaining: Duration,
}

/// No policy plans beyond a year, so that no estimate from a server makes a sum saturate.
const LEFT_MAX: Duration = Duration::from_hours(24 * 365);

impl JobSnapshot {
    /// What it must find free to run.
    pub fn needs(&self) -> Needs {
        let coprocessor =
            self.usage.coprocessor.map(|(kind, _)| (kind, Instances::of_type(self.usage, kind)));
        Needs {
            cpus: Cpus::of(self.usage),
            memory: self.working_set,
            coprocessor,
            application: self.application,
            barred: self.barred,
        }
    }
    /// Whether it could run now.
    pub const fn is_runnable(&self) -> bool {
        !matches!(self.state, RunState::Downloading)
    }
    /// Whether it is a task that runs.
    pub const fn is_running(&self) -> bool {
        matches!(self.state, RunState::Running { .. })
    }
    /// The time left for plans and sums: never negative, and at most a year.
    pub(crate) fn left(&self) -> Duration {
        self.remaining.max(Duration::ZERO).min(LEFT_MAX)
    }
    /// Instances of its main type that it uses.
    pub(crate) fn main_instances(&self) -> Instances {
        Instances::of_type(self.usage, self.usage.main_type())
    }
    /// Instance time left, of its main type and of the CPU.
    fn instance_time(&self) -> (Duration, Duration) {
        let of = |instances: Instances| match instances {
            Instances::ONE => self.left(),
            some => self.left().mul_f64(some.as_f64()),
        };
        (of(self.main_instances()), of(Cpus::of(self.usage)))
    }
}

/// The jobs of one project, by main type.
type ProjectJobs = PerType<Subqueue>;

/// All jobs of a host that are not finished.
#[derive(Clone, Debug, Default)]
pub struct JobQueue {
    jobs: BTreeMap<JobId, JobSnapshot>,
    projects: BTreeMap<ProjectId, ProjectJobs>,
    /// How many jobs may run at once, of projects where that is limited.
    limits: BTreeMap<ProjectId, AtOnce>,
    generation: u64,
    progressed: PerType<Duration>,
}

impl JobQueue {
    /// Adds a job, or replaces what was known of it.
    pub fn insert(&mut self, job: JobSnapshot) {
        match self.jobs.get_mut(&job.id) {
            Some(known) if *known == job => return,
            Some(known) => {
                let before = std::mem::replace(known, job);
                if is_progress(&before, &job) {
                    return self.progress(&before, &job);
                }
                self.take_out(&before);
            }
            None => {
                self.jobs.insert(job.id, job);
            }
        }
        self.projects.entry(job.project).or_default()[job.usage.main_type()].insert(&job);
        self.changed();
    }

    /// Forgets a job: finished, failed, aborted, or suspended by its user.
    pub fn remove(&mut self, id: JobId) -> Option<JobSnapshot> {
        let job = self.jobs.remove(&id)?;
        self.take_out(&job);
        self.changed();
        Some(job)
    }

    /// Changes a job in place; nothing happens when it is not known.
    pub fn update(&mut self, id: JobId, change: impl FnOnce(&mut JobSnapshot)) {
        if let Some(mut job) = self.jobs.get(&id).copied() {
            change(&mut job);
            job.id = id;
            self.insert(job);
        }
    }

    fn take_out(&mut self, job: &JobSnapshot) {
        if let Some(project) = self.projects.get_mut(&job.project) {
            project[job.usage.main_type()].remove(job);
            if project.iter().all(|(_, subqueue)| subqueue.count == 0) {
                self.projects.remove(&job.project);
            }
        }
    }

    fn progress(&mut self, before: &JobSnapshot, job: &JobSnapshot) {
        let kind = job.usage.main_type();
        let ((work_then, cpu_time_then), (work, cpu_time)) = (before.instance_time(), job.instance_time());
        if let Some(project) = self.projects.get_mut(&job.project) {
            project[kind].progress(job, work - work_then, cpu_time - cpu_time_then);
        }
        if job.is_running() && job.left() <= before.left() {
            self.progressed[kind] += work_then - work;
        } else {
            self.changed();
        }
    }

    fn changed(&mut self) {
        self.generation += 1;
        self.progressed = PerType::default();
    }

    /// Changes with everything that matters to plans but the progress of running tasks.
    pub const fn generation(&self) -> u64 {
        self.generation
    }

    /// Instance time by which running tasks came closer to their ends in this generation, by main type.
    pub const fn progressed(&self) -> &PerType<Duration> {
        &self.progressed
    }

    /// What is known of a job.
    pub fn get(&self, id: JobId) -> Option<&JobSnapshot> {
        self.jobs.get(&id)
    }

    /// All jobs, by id.
    pub fn iter(&self) -> impl Iterator<Item = &JobSnapshot> {
        self.jobs.values()
    }

    /// The number of jobs.
    pub fn len(&self) -> usize {
        self.jobs.len()
    }

    /// True without jobs.
    pub fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }

    /// The projects that have jobs.
    pub fn projects(&self) -> impl Iterator<Item = ProjectId> + '_ {
        self.projects.keys().copied()
    }

    fn sum<T: Default>(
        &self,
        project: ProjectId,
        of: impl Fn(&Subqueue) -> T,
        plus: impl Fn(T, T) -> T,
    ) -> T {
        let subqueues = self.projects.get(&project);
        subqueues.map_or_else(T::default, |subqueues| {
            subqueues.iter().fold(T::default(), |sum, (_, subqueue)| plus(sum, of(subqueue)))
        })
    }

    /// Whether a project has a job that could run now (R2.1).
    pub fn is_runnable(&self, project: ProjectId) -> bool {
        self.sum(project, |subqueue| subqueue.runnable, |a, b| a + b) > 0
    }

    /// Whether a project has a job of a main type that could run now.
    pub fn is_runnable_on(&self, project: ProjectId, kind: ResourceType) -> bool {
        self.subqueue(project, kind).is_some_and(|subqueue| subqueue.runnable > 0)
    }

    /// Of so many instances of a type, those that nothing uses although jobs wait: each of them needs more
    /// than is left. What jobs on their way will use is not among them.
    pub fn unfilled(&self, kind: ResourceType, instances: u32) -> f64 {
        let subqueues = || self.projects.values().map(|of| &of[kind]);
        let running = subqueues().flat_map(|subqueue| &subqueue.running);
        let left = f64::from(instances) - running.map(|task| f64::from(task.amount)).sum::<f64>();
        if left < 1.0 {
            return 0.0;
        }
        let of_kind = |needs: &Needs| match needs.coprocessor {
            Some((_, count)) => count.as_f64(),
            None => needs.cpus.as_f64(),
        };
        let preempted = subqueues().flat_map(|of| &of.preempted).map(|task| f64::from(task.amount));
        let unstarted = subqueues().flat_map(|of| of.unstarted.keys()).map(of_kind);
        let least = preempted.chain(unstarted).reduce(f64::min);
        let coming: f64 = subqueues().map(|of| of.coming()).sum();
        let unfilled = least.filter(|least| *least > left).map_or(0.0, |_| left - coming);
        if unfilled < 1.0 { 0.0 } else { unfilled }
    }

    /// How many jobs of a project there are.
    pub fn count(&self, project: ProjectId) -> usize {
        self.sum(project, |subqueue| subqueue.count, |a, b| a + b)
    }

    /// Whether a project has a job of a main type that could run and has not begun.
    pub fn has_unstarted(&self, project: ProjectId, kind: ResourceType) -> bool {
        self.subqueue(project, kind).is_some_and(|subqueue| !subqueue.unstarted.is_empty())
    }

    /// Estimated CPU time left of all jobs of a project, CPUs of GPU jobs included.
    pub fn remaining(&self, project: ProjectId) -> Duration {
        self.sum(project, |subqueue| subqueue.cpu_time, |a, b| a + b)
    }

    /// Estimated instance time left of all jobs of a project and main type.
    pub fn remaining_on(&self, project: ProjectId, kind: ResourceType) -> Duration {
        self.subqueue(project, kind).map_or(Duration::ZERO, |subqueue| subqueue.work)
    }

    /// Estimated instance time left of all jobs of a project and main type but the `k` of latest deadline
    /// (R2.13).
    pub fn remaining_on_but_latest(&self, project: ProjectId, kind: ResourceType, k: usize) -> Duration {
        let Some(subqueue) = self.subqueue(project, kind) else { return Duration::ZERO };
        if k == 0 {
            return subqueue.work;
        }
        let tasks = subqueue.running.iter().chain(&subqueue.preempted);
        let mut latest: Vec<_> =
            tasks.chain(subqueue.queued.iter().rev().take(k)).map(Entry::sort_key).collect();
        latest.sort_unstable_by(|a, b| b.cmp(a));
        let skipped = latest.iter().take(k).filter_map(|(_, _, id)| self.jobs.get(id));
        subqueue.work - skipped.map(|job| job.instance_time().0).sum()
    }

    /// The sums over all CPU jobs, for a server that plans with them (R5.6).
    pub fn load(&self) -> Load {
        let mut load = Load::NONE;
        for subqueue in self.projects.values().map(|subqueues| &subqueues[ResourceType::Cpu]) {
            let (summary, earliest) = subqueue.summary();
            load.work += subqueue.work;
            load.longest = load.longest.max(Duration::from_secs_f64(summary.longest));
            load.earliest = load.earliest.min(earliest);
            // What uses less than a CPU is held for less work than its running time; longer than a year is
            // cut off.
            let whole = summary.largest <= 1.0 && summary.smallest >= 1.0;
            load.one_cpu_each &= subqueue.count == 0 || (whole && load.longest < LEFT_MAX);
        }
        load
    }

    /// CPUs that the runnable jobs of a project could use at once, GPU jobs included.
    pub fn runnable_cpus(&self, project: ProjectId) -> Cpus {
        self.sum(project, |subqueue| subqueue.runnable_cpus, Cpus::plus)
    }

    /// Instances of a type that the runnable jobs of a project with that main type could use at once.
    pub fn runnable_instances(&self, project: ProjectId, kind: ResourceType) -> Instances {
        self.subqueue(project, kind).map_or(Instances::ZERO, |subqueue| subqueue.runnable_instances)
    }

    /// CPUs that all jobs could use at once, those on their way included.
    pub fn cpus(&self) -> Cpus {
        self.projects
            .keys()
            .fold(Cpus::ZERO, |sum, id| sum.plus(self.sum(*id, |subqueue| subqueue.cpus, Cpus::plus)))
    }

    /// Instances of a type that all jobs with that main type could use at once, those on their way included.
    pub fn instances(&self, kind: ResourceType) -> Instances {
        self.projects.values().fold(Instances::ZERO, |sum, subqueues| sum.plus(subqueues[kind].instances))
    }

    /// Instances of a type that the jobs of a project with that main type could use at once, those on their
    /// way included.
    pub fn held_instances(&self, project: ProjectId, kind: ResourceType) -> Instances {
        self.subqueue(project, kind).map_or(Instances::ZERO, |subqueue| subqueue.instances)
    }

    pub(crate) fn subqueue(&self, project: ProjectId, kind: ResourceType) -> Option<&Subqueue> {
        self.projects.get(&project).map(|subqueues| &subqueues[kind])
    }

    /// The tasks that run, by project, then by main type, then by deadline.
    pub fn running(&self) -> impl Iterator<Item = &JobSnapshot> {
        let subqueues = self.projects.values().flat_map(PerType::iter);
        subqueues.flat_map(|(_, subqueue)| &subqueue.running).filter_map(|entry| self.jobs.get(&entry.id))
    }
}

/// Whether a task's place is the same, so that only sums change.
fn is_progress(before: &JobSnapshot, after: &JobSnapshot) -> bool {
    let same_state = match (before.state, after.state) {
        (RunState::Running { devices, .. }, RunState::Running { devices: then, .. }) => devices == then,
        (RunState::Preempted, RunState::Preempted) => true,
        _ => false,
    };
    let JobSnapshot {
        project,
        application,
        barred,
        usage,
        deadline,
        working_set: _,
        remaining: _,
        id: _,
        state: _,
    } = *after;
    same_state
        && (before.project, before.application, before.barred) == (project, application, barred)
        && before.usage == usage
        && before.deadline == deadline
}

impl FromIterator<JobSnapshot> for JobQueue {
    fn from_iter<I: IntoIterator<Item = JobSnapshot>>(jobs: I) -> Self {
        let mut queue = Self::default();
        for job in jobs {
            queue.insert(job);
        }
        queue
    }
}
