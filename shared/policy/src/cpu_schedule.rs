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

mod deal;

use std::fmt;

use fallow_domain::{Bytes, Duration, Instant, JobId, ProjectId, Share};

use crate::debt::Debt;
use crate::job_queue::{Cpus, JobQueue};
use deal::Deal;

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
