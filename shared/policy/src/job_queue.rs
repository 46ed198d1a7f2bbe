//! The jobs of a host, kept in the order in which policies want them.
//!
//! The caller keeps one queue beside its jobs and tells it of every change; a decision then touches the jobs
//! that it takes and passes over, and not all ten thousand. Per project there are: running and preempted tasks
//! (few, by deadline), unstarted jobs bucketed by what they need (`Needs`: CPUs and memory; jobs of one
//! application version share them, so there are few buckets) and ordered by deadline, and the sums that work
//! fetch wants. Ties are broken by job id everywhere.
//!
//! A change costs O(log jobs). The queue is derived state: it is rebuilt after a restart, not stored.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use fallow_domain::{Bytes, Duration, Instant, JobId, ProjectId, Usage};

/// How far a job is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobState {
    /// Files still on their way. It cannot run yet, but it is work held: work fetch counts it, so that a
    /// project is not asked twice for the same shortfall.
    Incoming,
    /// Ready to run, never started.
    Unstarted,
    /// A task that does not run now.
    Preempted,
    /// A task that runs.
    Running {
        /// When its present time slice began: when it was started or resumed, or chosen again at a slice's
        /// end (`Chosen::slice_began`).
        slice_began: Instant,
        /// Its latest checkpoint, or its start if it has made none since.
        checkpointed_at: Instant,
    },
}

/// What policies know of one job.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct JobSnapshot {
    /// The job.
    pub id: JobId,
    /// Its project.
    pub project: ProjectId,
    /// What it uses while it runs.
    pub usage: Usage,
    /// How far it is.
    pub state: JobState,
    /// By when its report is wanted. For planning with a connection interval the caller gives it that much
    /// earlier (R1.13).
    pub deadline: Instant,
    /// Memory that it needs: measured for a task, the server's estimate for an unstarted job.
    pub working_set: Bytes,
    /// Estimated CPU time left (R5.7, R5.8).
    pub remaining: Duration,
}

/// CPUs in millionths, so that sums are exact. A fraction is rounded down: three thirds fit on one CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cpus(u64);

impl Cpus {
    /// None.
    pub const ZERO: Self = Self(0);
    /// One CPU.
    pub const ONE: Self = Self(1_000_000);
    /// A job counts for at least a hundredth of a CPU, so that no server can have processes started without
    /// bound by declaring that they use nothing.
    pub const USAGE_MIN: Self = Self(10_000);

    /// Whole CPUs.
    pub const fn whole(cpus: u32) -> Self {
        Self(cpus as u64 * 1_000_000)
    }
    /// What a job uses.
    pub fn of(usage: Usage) -> Self {
        // `as` saturates and takes NaN for 0.
        Self((usage.cpus * 1e6).floor() as u64).max(Self::USAGE_MIN)
    }
    /// As a number of CPUs.
    pub fn as_f64(self) -> f64 {
        self.0 as f64 / 1e6
    }
    pub(crate) const fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
    pub(crate) const fn minus(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl fmt::Display for Cpus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cpus = self.as_f64();
        write!(f, "{cpus} CPU{}", if cpus == 1.0 { "" } else { "s" })
    }
}

/// What a job must find free to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Needs {
    /// CPUs.
    pub cpus: Cpus,
    /// Memory.
    pub memory: Bytes,
}

impl Needs {
    /// Whether this much room is enough.
    pub fn fit(self, room: Self) -> bool {
        self.cpus <= room.cpus && self.memory <= room.memory
    }
}

impl JobSnapshot {
    /// What it must find free to run.
    pub fn needs(&self) -> Needs {
        Needs { cpus: Cpus::of(self.usage), memory: self.working_set }
    }
    /// Whether it could run now.
    pub const fn is_runnable(&self) -> bool {
        !matches!(self.state, JobState::Incoming)
    }
    /// The time left for sums: never negative, and at most a year, beyond which no policy plans, so that no
    /// estimate from a server makes a sum saturate.
    fn left(&self) -> Duration {
        self.remaining.max(Duration::ZERO).min(Duration::from_hours(24 * 365))
    }
}

/// A job's place in an order by deadline.
pub(crate) type ByDeadline = (Instant, JobId);

/// The jobs of one project.
#[derive(Clone, Debug, Default)]
pub(crate) struct ProjectJobs {
    pub(crate) running: BTreeSet<ByDeadline>,
    pub(crate) preempted: BTreeSet<ByDeadline>,
    pub(crate) unstarted: BTreeMap<Needs, BTreeSet<ByDeadline>>,
    all: BTreeMap<ByDeadline, Duration>,
    runnable: usize,
    remaining: Duration,
    runnable_cpus: Cpus,
    cpus: Cpus,
}

/// All jobs of a host that are not finished.
#[derive(Clone, Debug, Default)]
pub struct JobQueue {
    jobs: BTreeMap<JobId, JobSnapshot>,
    projects: BTreeMap<ProjectId, ProjectJobs>,
}

impl JobQueue {
    /// Adds a job, or replaces what was known of it.
    pub fn insert(&mut self, job: JobSnapshot) {
        self.remove(job.id);
        let place = (job.deadline, job.id);
        let project = self.projects.entry(job.project).or_default();
        match job.state {
            JobState::Incoming => false,
            JobState::Unstarted => project.unstarted.entry(job.needs()).or_default().insert(place),
            JobState::Preempted => project.preempted.insert(place),
            JobState::Running { .. } => project.running.insert(place),
        };
        let cpus = job.needs().cpus;
        if job.is_runnable() {
            project.runnable += 1;
            project.runnable_cpus = project.runnable_cpus.plus(cpus);
        }
        project.cpus = project.cpus.plus(cpus);
        project.remaining += job.left();
        project.all.insert(place, job.left());
        self.jobs.insert(job.id, job);
    }

    /// Forgets a job: finished, failed, aborted, or suspended by its user.
    pub fn remove(&mut self, id: JobId) -> Option<JobSnapshot> {
        let job = self.jobs.remove(&id)?;
        let place = (job.deadline, job.id);
        if let Some(project) = self.projects.get_mut(&job.project) {
            project.running.remove(&place);
            project.preempted.remove(&place);
            if let Some(bucket) = project.unstarted.get_mut(&job.needs()) {
                bucket.remove(&place);
                if bucket.is_empty() {
                    project.unstarted.remove(&job.needs());
                }
            }
            let cpus = job.needs().cpus;
            if job.is_runnable() {
                project.runnable -= 1;
                project.runnable_cpus = project.runnable_cpus.minus(cpus);
            }
            project.cpus = project.cpus.minus(cpus);
            project.remaining -= job.left();
            project.all.remove(&place);
            if project.all.is_empty() {
                self.projects.remove(&job.project);
            }
        }
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

    /// Whether a project has a job that could run now (R2.1).
    pub fn is_runnable(&self, project: ProjectId) -> bool {
        self.projects.get(&project).is_some_and(|p| p.runnable > 0)
    }

    /// Estimated CPU time left of all jobs of a project.
    pub fn remaining(&self, project: ProjectId) -> Duration {
        self.projects.get(&project).map_or(Duration::ZERO, |p| p.remaining)
    }

    /// Estimated CPU time left of all jobs of a project but the `k` of latest deadline (R2.13).
    pub fn remaining_but_latest(&self, project: ProjectId, k: usize) -> Duration {
        let Some(jobs) = self.projects.get(&project) else { return Duration::ZERO };
        let skipped: Duration = jobs.all.values().rev().take(k).copied().sum();
        jobs.remaining - skipped
    }

    /// CPUs that the runnable jobs of a project could use at once.
    pub fn runnable_cpus(&self, project: ProjectId) -> Cpus {
        self.projects.get(&project).map_or(Cpus::ZERO, |p| p.runnable_cpus)
    }

    /// CPUs that all jobs could use at once, those on their way included.
    pub fn cpus(&self) -> Cpus {
        self.projects.values().fold(Cpus::ZERO, |sum, p| sum.plus(p.cpus))
    }

    pub(crate) fn project(&self, project: ProjectId) -> Option<&ProjectJobs> {
        self.projects.get(&project)
    }

    /// Takes note of a decision that was carried out: what it started, resumed or chose again runs with its new
    /// time slice, and what it preempted is preempted.
    pub fn apply(&mut self, schedule: &crate::cpu_schedule::Schedule, now: Instant) {
        for chosen in &schedule.run {
            self.update(chosen.job, |job| {
                let checkpointed_at = match job.state {
                    JobState::Running { checkpointed_at, .. } => checkpointed_at,
                    _ => now,
                };
                job.state = JobState::Running { slice_began: chosen.slice_began, checkpointed_at };
            });
        }
        for passed in &schedule.preempt {
            self.update(passed.job, |job| job.state = JobState::Preempted);
        }
    }

    /// The tasks that run, by project, then by deadline.
    pub fn running(&self) -> impl Iterator<Item = &JobSnapshot> {
        self.projects.values().flat_map(|p| &p.running).filter_map(|(_, id)| self.jobs.get(id))
    }
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
