//! Which jobs run now: weighted round-robin among projects by debt (R2.2 to R2.6; CS1 of R5.1).
//!
//! Model: the CPUs are dealt out. Each goes to the project with the largest anticipated debt that has a job which
//! fits; that debt then falls by the expected payoff. Within the project a running task comes before a preempted
//! one, and both before the unstarted job of earliest deadline; ties go to the smaller id. What does not fit
//! (CPUs left, memory left) waits, and others are tried.
//!
//! Before that, running tasks in the middle of something keep their CPU:
//! - a task whose *time slice* (one scheduling period since it was started, resumed or chosen again) is not over,
//!   so that a decision repeated after a moment is the same although debts move all the time;
//! - with "preempt only at a checkpoint", a task past its slice until it makes a checkpoint, for at most one
//!   further scheduling period (R2.4's bound: a task that never checkpoints is preempted after two periods).
//!
//! They too are dealt by debt, so that with fewer CPUs or less memory (R2.6) the least owed give way at once. And
//! they give way altogether when the project that is owed most, and owed at least one slice of its job, has a job
//! that does not fit beside them: otherwise slices that never end together would starve a job of several CPUs.
//!
//! The caller decides again when a CPU frees, a job arrives, fails or is aborted, preferences change, a task that
//! was kept for its checkpoint makes one, and at `Schedule::decide_by`.
//!
//! Not in here: coprocessors (a job's CPUs are never overcommitted here) and deadlines across projects.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::fmt;

use fallow_domain::{Bytes, Duration, Instant, JobId, ProjectId, Share};

use crate::debt::Debt;
use crate::job_queue::{Cpus, JobQueue, JobSnapshot, JobState, Needs};

/// A checkpoint made this recently counts as "at a checkpoint": longer than a shell takes to hear of it and ask
/// for a decision, short enough that next to no work is lost.
pub const CHECKPOINT_FRESH: Duration = Duration::from_secs(10);

/// What the host offers to jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostCpus {
    /// CPUs that may be used (R2.6); 0 while computing is suspended.
    pub usable: u32,
    /// The time slice, and the payoff expected at least.
    pub scheduling_period: Duration,
    /// Memory that running jobs may use together.
    pub memory_limit: Bytes,
    /// Preempt a task only at a checkpoint, since it would lose what it did after it. Sensible when preempted
    /// tasks do not stay in memory.
    pub preempt_only_at_checkpoint: bool,
}

/// A project that takes part in the decision. Tasks of other projects are preempted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ProjectSnapshot {
    /// The project.
    pub id: ProjectId,
    /// Its share; zero ranks behind all others.
    pub share: Share,
    /// What it is owed, updated to now.
    pub debt: Debt,
}

/// Why a job runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum WhyChosen {
    /// It runs, and its time slice lasts until then.
    InTimeSlice {
        /// End of the slice.
        ends: Instant,
    },
    /// It runs past its slice and has not made a checkpoint; it is preempted then at the latest.
    BeforeCheckpoint {
        /// The bound.
        latest: Instant,
    },
    /// Its project had the largest anticipated debt of those with a job that fits.
    MostOwed {
        /// That debt when the job was chosen.
        anticipated: Debt,
    },
}

/// Why a job does not run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum WhyNot {
    /// Other projects are owed more: this is what its project was owed at the end of the decision.
    Outranked {
        /// The anticipated debt.
        anticipated: Debt,
    },
    /// It needs more CPUs than were left.
    CpusLeft {
        /// CPUs needed.
        needed: Cpus,
        /// CPUs left.
        left: Cpus,
    },
    /// It needs more CPUs than may be used at all.
    CpusUsable {
        /// CPUs needed.
        needed: Cpus,
        /// CPUs that may be used.
        usable: Cpus,
    },
    /// It needs more memory than was left.
    MemoryLeft {
        /// Memory needed.
        needed: Bytes,
        /// Memory left.
        left: Bytes,
    },
    /// It needs more memory than jobs may use at all.
    MemoryLimit {
        /// Memory needed.
        needed: Bytes,
        /// The limit.
        limit: Bytes,
    },
    /// Its project takes no part, as when it is suspended.
    ProjectOut,
}

/// What is done to a job that runs from now on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// It runs already.
    Continue,
    /// It was preempted.
    Resume,
    /// It gets a slot.
    Start,
}

/// A job that is to run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Chosen {
    /// The job.
    pub job: JobId,
    /// Its project.
    pub project: ProjectId,
    /// What makes it run.
    pub action: Action,
    /// When its time slice began; to be kept in `JobState::Running`.
    pub slice_began: Instant,
    /// Why it runs.
    pub reason: WhyChosen,
}

/// A job that does not run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Passed {
    /// The job.
    pub job: JobId,
    /// Why not.
    pub reason: WhyNot,
}

/// A decision.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Schedule {
    /// Jobs that run from now on, in the order in which they were chosen.
    pub run: Vec<Chosen>,
    /// Running tasks to preempt.
    pub preempt: Vec<Passed>,
    /// Jobs that were next in turn and did not fit: every such task, and of the unstarted jobs one for each
    /// project and need. All other jobs wait for their turn only.
    pub waiting: Vec<Passed>,
    /// CPUs left over.
    pub idle: Cpus,
    /// The part of them that no runnable job could use: idleness (R5.30).
    pub starved: Cpus,
    /// When to decide again even if nothing happens: after a scheduling period (R2.2), or when a slice or a wait
    /// for a checkpoint ends.
    pub decide_by: Instant,
}

/// Decides which jobs run. `used` is W, the CPU time used by all projects since the last decision (the result of
/// `Debts::update`). Every runnable job of the queue is considered.
pub fn choose(
    host: &HostCpus,
    used: Duration,
    projects: &[ProjectSnapshot],
    queue: &JobQueue,
    now: Instant,
) -> Schedule {
    let with_holds = Deal::new(host, used, projects, queue, now).finish(true);
    match with_holds.crowded_out(projects, queue) {
        true => Deal::new(host, used, projects, queue, now).finish(false).into_schedule(),
        false => with_holds.into_schedule(),
    }
}

/// A project in the deal, ordered so that the next one to be served is the greatest.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Contender {
    counts: bool,
    anticipated: f64,
    id: ProjectId,
}

impl Eq for Contender {}
impl PartialOrd for Contender {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Contender {
    fn cmp(&self, other: &Self) -> Ordering {
        self.counts
            .cmp(&other.counts)
            .then(self.anticipated.total_cmp(&other.anticipated))
            .then(other.id.cmp(&self.id))
    }
}

impl Contender {
    fn new(project: &ProjectSnapshot) -> Self {
        Self { counts: project.share.get() > 0.0, anticipated: project.debt.as_cpu_secs(), id: project.id }
    }
}

/// A deal in progress.
struct Deal<'a> {
    host: &'a HostCpus,
    queue: &'a JobQueue,
    now: Instant,
    payoff_secs: f64,
    contenders: BTreeMap<ProjectId, Contender>,
    free: Needs,
    picked: BTreeSet<JobId>,
    passed: BTreeMap<JobId, WhyNot>,
    run: Vec<Chosen>,
}

impl<'a> Deal<'a> {
    fn new(
        host: &'a HostCpus,
        used: Duration,
        projects: &[ProjectSnapshot],
        queue: &'a JobQueue,
        now: Instant,
    ) -> Self {
        let per_cpu = used.as_secs_f64() / f64::from(host.usable.max(1));
        Self {
            host,
            queue,
            now,
            payoff_secs: per_cpu.max(host.scheduling_period.as_secs_f64()),
            contenders: projects.iter().map(|p| (p.id, Contender::new(p))).collect(),
            free: Needs { cpus: Cpus::whole(host.usable), memory: host.memory_limit },
            picked: BTreeSet::new(),
            passed: BTreeMap::new(),
            run: Vec::new(),
        }
    }

    fn finish(mut self, hold: bool) -> Self {
        if hold {
            self.deal(Self::held);
        }
        self.deal(Self::next_job);
        self
    }

    /// Serves the project that is owed most until nothing is left or nothing fits.
    fn deal(&mut self, pick: fn(&mut Self, ProjectId) -> Option<(JobSnapshot, Option<WhyChosen>)>) {
        let mut heap: BinaryHeap<Contender> = self.contenders.values().copied().collect();
        while self.free.cpus > Cpus::ZERO {
            let Some(mut top) = heap.pop() else { break };
            if let Some((job, reason)) = pick(self, top.id) {
                let anticipated = Debt::from_cpu_secs(top.anticipated);
                self.take(&job, reason.unwrap_or(WhyChosen::MostOwed { anticipated }));
                top.anticipated -= self.payoff_secs * job.needs().cpus.as_f64();
                self.contenders.insert(top.id, top);
                heap.push(top);
            }
        }
    }

    fn take(&mut self, job: &JobSnapshot, reason: WhyChosen) {
        let needs = job.needs();
        self.free.cpus = self.free.cpus.minus(needs.cpus);
        self.free.memory = Bytes(self.free.memory.0.saturating_sub(needs.memory.0));
        self.picked.insert(job.id);
        self.passed.remove(&job.id);
        let (action, slice_began) = match (job.state, reason) {
            (JobState::Running { .. }, WhyChosen::MostOwed { .. }) => (Action::Continue, self.now),
            (JobState::Running { slice_began, .. }, _) => (Action::Continue, slice_began),
            (JobState::Preempted, _) => (Action::Resume, self.now),
            _ => (Action::Start, self.now),
        };
        self.run.push(Chosen { job: job.id, project: job.project, action, slice_began, reason });
    }

    /// The next running task of a project that keeps its CPU.
    fn held(&mut self, project: ProjectId) -> Option<(JobSnapshot, Option<WhyChosen>)> {
        let queue = self.queue;
        let running = &queue.project(project)?.running;
        running.iter().filter_map(|(_, id)| queue.get(*id)).find_map(|job| {
            let reason = self.why_held(job)?;
            self.fits(job).then_some((*job, Some(reason)))
        })
    }

    fn why_held(&self, job: &JobSnapshot) -> Option<WhyChosen> {
        let JobState::Running { slice_began, checkpointed_at } = job.state else { return None };
        // A slice that begins in the future comes from a clock that jumped back: it is over (R1.12).
        if slice_began > self.now {
            return None;
        }
        let ends = slice_began + self.host.scheduling_period;
        let latest = ends + self.host.scheduling_period;
        let at_checkpoint =
            checkpointed_at > slice_began && self.now.since(checkpointed_at) < CHECKPOINT_FRESH;
        match () {
            () if self.now < ends => Some(WhyChosen::InTimeSlice { ends }),
            () if self.host.preempt_only_at_checkpoint && !at_checkpoint && self.now < latest => {
                Some(WhyChosen::BeforeCheckpoint { latest })
            }
            () => None,
        }
    }

    /// The next job of a project (R2.3): a running task, else a preempted one, else the unstarted job of
    /// earliest deadline, of those that fit.
    fn next_job(&mut self, project: ProjectId) -> Option<(JobSnapshot, Option<WhyChosen>)> {
        let queue = self.queue;
        let jobs = queue.project(project)?;
        for (_, id) in jobs.running.iter().chain(&jobs.preempted) {
            if let Some(job) = queue.get(*id)
                && self.fits(job)
            {
                return Some((*job, None));
            }
        }
        let mut earliest: Option<&JobSnapshot> = None;
        for bucket in jobs.unstarted.values() {
            let first = bucket.iter().map(|(_, id)| id).find(|id| !self.picked.contains(id));
            let Some(job) = first.and_then(|id| queue.get(*id)) else { continue };
            let earlier = |than: &JobSnapshot| (job.deadline, job.id) < (than.deadline, than.id);
            if self.fits(job) && earliest.is_none_or(earlier) {
                earliest = Some(job);
            }
        }
        earliest.map(|job| (*job, None))
    }

    /// Whether a job not yet picked fits into what is left; notes why if not.
    fn fits(&mut self, job: &JobSnapshot) -> bool {
        if self.picked.contains(&job.id) {
            return false;
        }
        let (needs, free) = (job.needs(), self.free);
        let usable = Cpus::whole(self.host.usable);
        let limit = self.host.memory_limit;
        let reason = match () {
            () if needs.cpus > usable => WhyNot::CpusUsable { needed: needs.cpus, usable },
            () if needs.memory > limit => WhyNot::MemoryLimit { needed: needs.memory, limit },
            () if needs.cpus > free.cpus => WhyNot::CpusLeft { needed: needs.cpus, left: free.cpus },
            () if needs.memory > free.memory => {
                WhyNot::MemoryLeft { needed: needs.memory, left: free.memory }
            }
            () => return true,
        };
        self.passed.insert(job.id, reason);
        false
    }

    /// Whether the project that is owed most got nothing because of tasks in their slices, although it is owed
    /// at least one slice of a job that would fit without them.
    fn crowded_out(&self, projects: &[ProjectSnapshot], queue: &JobQueue) -> bool {
        let taking_part = projects.iter().filter(|p| queue.is_runnable(p.id));
        let Some(most) = taking_part.map(Contender::new).max() else { return false };
        if self.run.iter().any(|chosen| chosen.project == most.id) {
            return false;
        }
        let period = self.host.scheduling_period.as_secs_f64();
        let room = Needs { cpus: Cpus::whole(self.host.usable), memory: self.host.memory_limit };
        queue.project(most.id).is_some_and(|jobs| {
            let tasks = jobs.running.iter().chain(&jobs.preempted).filter_map(|(_, id)| queue.get(*id));
            let mut needs = tasks.map(JobSnapshot::needs).chain(jobs.unstarted.keys().copied());
            needs.any(|needs| {
                needs.fit(room)
                    && most.anticipated >= period * needs.cpus.as_f64()
                    && !self.fits_after_one_slice(needs)
            })
        })
    }

    /// Whether the end of a single task's slice makes enough room, so that waiting for it is enough.
    fn fits_after_one_slice(&self, needs: Needs) -> bool {
        let chosen = self.run.iter().filter_map(|chosen| self.queue.get(chosen.job));
        let mut rooms = chosen.map(|job| Needs {
            cpus: self.free.cpus.plus(job.needs().cpus),
            memory: self.free.memory.plus(job.needs().memory),
        });
        needs.fit(self.free) || rooms.any(|room| needs.fit(room))
    }

    fn into_schedule(self) -> Schedule {
        let why = |job: &JobSnapshot| match self.contenders.get(&job.project) {
            None => WhyNot::ProjectOut,
            Some(c) => self
                .passed
                .get(&job.id)
                .copied()
                .unwrap_or(WhyNot::Outranked { anticipated: Debt::from_cpu_secs(c.anticipated) }),
        };
        let preempt: Vec<Passed> = self
            .queue
            .running()
            .filter(|job| !self.picked.contains(&job.id))
            .map(|job| Passed { job: job.id, reason: why(job) })
            .collect();
        let is_running =
            |id: &JobId| matches!(self.queue.get(*id).map(|j| j.state), Some(JobState::Running { .. }));
        let waiting = self
            .passed
            .iter()
            .filter(|(id, _)| !is_running(id))
            .map(|(id, reason)| Passed { job: *id, reason: *reason })
            .collect();
        let ends = self.run.iter().filter_map(|chosen| match chosen.reason {
            WhyChosen::InTimeSlice { ends } => Some(ends),
            WhyChosen::BeforeCheckpoint { latest } => Some(latest),
            WhyChosen::MostOwed { .. } => None,
        });
        let runnable =
            self.contenders.keys().fold(Cpus::ZERO, |sum, id| sum.plus(self.queue.runnable_cpus(*id)));
        Schedule {
            preempt,
            waiting,
            idle: self.free.cpus,
            starved: Cpus::whole(self.host.usable).minus(runnable),
            decide_by: ends.fold(self.now + self.host.scheduling_period, Instant::min),
            run: self.run,
        }
    }
}

impl fmt::Display for Cpus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cpus = self.as_f64();
        write!(f, "{cpus} CPU{}", if cpus == 1.0 { "" } else { "s" })
    }
}

impl fmt::Display for WhyChosen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InTimeSlice { .. } => write!(f, "its time slice is not over"),
            Self::BeforeCheckpoint { .. } => write!(f, "it has not made a checkpoint since its slice ended"),
            Self::MostOwed { anticipated } => write!(f, "its project is owed most ({anticipated})"),
        }
    }
}

impl fmt::Display for WhyNot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Outranked { anticipated } => {
                write!(f, "other projects are owed more than its own ({anticipated})")
            }
            Self::CpusLeft { needed, left } => write!(f, "it needs {needed} and {left} were left"),
            Self::CpusUsable { needed, usable } => write!(f, "it needs {needed} of {usable} usable"),
            Self::MemoryLeft { needed, left } => {
                write!(f, "it needs {needed} of memory and {left} were left")
            }
            Self::MemoryLimit { needed, limit } => {
                write!(f, "it needs {needed} of memory and jobs may use {limit}")
            }
            Self::ProjectOut => write!(f, "its project takes no part"),
        }
    }
}
