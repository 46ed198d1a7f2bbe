//! Which jobs run now: weighted round-robin among projects (R2.2 to R2.6; CS1 of R5.1), preceded by jobs
//! that would be late (CS2 of R5.2), on CPUs and on particular devices of coprocessors (R3.14).
//!
//! Model: the instances of each resource type are allocated one after the other, those of coprocessors
//! before the CPUs. Each goes to the project with the largest anticipated priority that has a job which
//! fits; that priority then falls by the expected payoff. Within the project a running task comes before a
//! preempted one, and both before the unstarted job of earliest deadline; ties go to the job that needs
//! least time, then to the smaller id. A job that does not fit (too few CPUs, too little memory, no device
//! left) waits, and others are tried. A priority is what a project is owed of a type in instance-seconds,
//! by whatever account.
//!
//! Before that, two kinds of running tasks keep their instances:
//! - a task whose *time slice* is not over: one scheduling period since it was started, resumed or chosen
//!   again. So a decision that is repeated after a moment is the same, although debts change all the
//!   time;
//! - with "preempt only at a checkpoint", a task past its slice that has not made a checkpoint yet, for at
//!   most one further scheduling period (R2.4: a task that never makes one is preempted after two
//!   periods).
//!
//! They too are allocated by priority: with fewer CPUs or less memory (R2.6) the tasks of the least owed
//! projects give way at once. All of them give way if the project that is owed most has a job that does not
//! fit beside them, and is owed at least one slice of it. Otherwise slices that never end at the same time
//! would starve a job that needs several CPUs.
//!
//! Before everything else come endangered jobs. Of a project with n simulated misses these are the n jobs
//! of earliest deadline; they are taken earliest first over all projects, and preempt tasks in their
//! slices. A job that ran for this reason and is out of danger keeps its slice. So a miss that comes and
//! goes between decisions does not start and stop a task each time.
//!
//! The caller decides again when a CPU frees, a job arrives, fails or is aborted, preferences change, a
//! task that was kept for its checkpoint makes one (`ScheduledJob::until_checkpoint`), and at
//! `Schedule::decide_by`.
//!
//! A [`CpuPolicy`] decides from a [`CpuSituation`]; each policy is a file here and a line in `registry`.
//! Both of ours use the same allocation, [`choose`].

mod allocation;
mod crowding;
mod endangered;
mod free_resources;
mod reason;
mod schedule;

use fallow_domain::{Bytes, Duration, Instant, JobId, PerType, ProjectId, ResourceType, Share};

use crate::accounting::Debt;
use crate::choice::Policy;
use crate::job_queue::{Devices, Instances, JobQueue, Needs};
use crate::round_robin::Outlook;
use crate::why::Why;
use allocation::Allocation;
use free_resources::Capacity;
pub use reason::{SchedulingRule, WhyNotRun, WhyRun};

policies!(cpu);

/// The policy that is followed.
pub type CpuChoice = Policy<dyn CpuPolicy>;

/// Decides which jobs run.
pub trait CpuPolicy: Send + Sync + 'static {
    /// Its name in compositions: `CS`, then letters or digits, four at most. `CS0` is for tests and examples.
    fn name(&self) -> &'static str;

    /// What it does, in a few words for `--help`: 48 bytes at most.
    fn summary(&self) -> &'static str;

    /// Decides. The same situation gives the same decision.
    fn decide(&self, situation: &CpuSituation<'_>) -> Schedule;

    /// Whether [`CpuSituation::outlook`] is to be made for it. Without, no time is spent on that and it is
    /// empty.
    fn looks_ahead(&self) -> bool {
        true
    }
}

/// A host with jobs that could run.
#[derive(Clone, Copy, Debug)]
pub struct CpuSituation<'a> {
    /// The time.
    pub now: Instant,
    /// What it offers to jobs.
    pub host: ScheduleHost,
    /// Instance time of each type that all projects used since the last decision.
    pub used: PerType<Duration>,
    /// The projects that take part, none of them with misses: those are for a policy to find in `outlook`.
    pub projects: &'a [ProjectSnapshot],
    /// What becomes of the jobs held (R3.8), if the policy looks ahead.
    pub outlook: &'a Outlook,
    /// The jobs. Every runnable one is to be considered.
    pub queue: &'a JobQueue,
}

/// A checkpoint made this recently counts as "at a checkpoint": longer than a shell takes to hear of it and
/// ask for a decision, short enough that next to no work is lost.
pub const CHECKPOINT_FRESH: Duration = Duration::from_secs(10);

/// What the host offers to jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScheduleHost {
    /// CPUs that may be used (R2.6); 0 while computing is suspended.
    pub usable: u32,
    /// Devices that may be used of each coprocessor type: those that nothing excludes and no owner's program
    /// is using (R3.14).
    pub devices: PerType<Devices>,
    /// The time slice, and the payoff expected at least.
    pub scheduling_period: Duration,
    /// Memory that running jobs may use together.
    pub memory_limit: Bytes,
    /// Preempt a task only at a checkpoint, since it would lose what it did after it. Sensible when preempted
    /// tasks do not stay in memory; those on coprocessors never do, and are always treated so.
    pub preempt_only_at_checkpoint: bool,
}

impl ScheduleHost {
    /// Why a job with such needs could not run even if nothing else did: its owner has to be told.
    pub fn can_never_run(&self, needs: &Needs) -> Option<WhyNotRun> {
        Capacity::of(self).can_never_run(needs)
    }

    /// Instances of a type that may be used.
    fn instances(&self, kind: ResourceType) -> u32 {
        match kind {
            ResourceType::Cpu => self.usable,
            _ => self.devices[kind].count(),
        }
    }
}

/// A project that takes part in the decision. Tasks of other projects are preempted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ProjectSnapshot {
    /// The project.
    pub id: ProjectId,
    /// Its share; zero ranks behind all others.
    pub share: Share,
    /// What it is owed of each type, in instance-seconds, updated to now, by whatever account.
    pub priority: PerType<Debt>,
    /// Jobs of each type that a round-robin simulation shows late; zero throughout for CS1.
    pub misses: PerType<u32>,
}

/// What is done to a job that runs from now on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunAction {
    /// It runs already.
    Continue,
    /// It was preempted.
    Resume,
    /// It gets a slot.
    Start,
}

/// A job that is to run.
#[derive(Clone, Debug)]
pub struct ScheduledJob {
    /// The job.
    pub job: JobId,
    /// Its project.
    pub project: ProjectId,
    /// What makes it run.
    pub action: RunAction,
    /// When its time slice began; to be kept in `RunState::Running`.
    pub slice_began: Instant,
    /// The devices of its coprocessor type to run it on, none for a CPU job; to be kept in
    /// `RunState::Running`.
    pub devices: Devices,
    /// It runs on only until it makes a checkpoint: decide again as soon as it has made one.
    pub until_checkpoint: bool,
    /// The rule by which it runs: told with the reason.
    pub rule: SchedulingRule,
    /// Why it runs; of [`choose`] a [`WhyRun`].
    pub why: Why,
}

/// A job that does not run.
#[derive(Clone, Debug)]
pub struct UnscheduledJob {
    /// The job.
    pub job: JobId,
    /// One that runs gives up its devices and leaves memory at once, even if it loses what it did since its
    /// last checkpoint.
    pub gives_up_devices: bool,
    /// Why it does not run; of [`choose`] a [`WhyNotRun`].
    pub why: Why,
}

/// A decision.
#[derive(Clone, Debug, Default)]
pub struct Schedule {
    /// Jobs that run from now on, in the order in which they were chosen.
    pub run: Vec<ScheduledJob>,
    /// Running tasks to preempt.
    pub preempt: Vec<UnscheduledJob>,
    /// Jobs that were next in turn and did not fit: every such task, and of the unstarted jobs one for each
    /// project and need. All other jobs wait for their turn only.
    pub waiting: Vec<UnscheduledJob>,
    /// Instances left over.
    pub idle: PerType<Instances>,
    /// The part of them that no runnable job could use: idleness (R5.30).
    pub starved: PerType<Instances>,
    /// When to decide again even if nothing happens: after a scheduling period (R2.2), or when a slice or a
    /// wait for a checkpoint ends.
    pub decide_by: Instant,
}

/// Decides which jobs run. `used` is W, the instance time of each type used by all projects since the last
/// decision. Every runnable job of the queue is considered.
pub fn choose(
    host: &ScheduleHost,
    used: &PerType<Duration>,
    projects: &[ProjectSnapshot],
    queue: &JobQueue,
    now: Instant,
) -> Schedule {
    let allocate = |hold: &PerType<bool>| Allocation::new(host, used, projects, queue, now).finish(hold);
    let mut hold = PerType::from_fn(|_| true);
    loop {
        let held = allocate(&hold);
        // Tasks of one type that give way may free memory or CPUs that now crowd another type's project out:
        // looked at again, or the next decision would come out differently. Each turn ends the holds of a
        // further type.
        let crowded = PerType::from_fn(|kind| hold[kind] && held.crowded_out(kind));
        if crowded == PerType::default() {
            return held.into_schedule();
        }
        // Tasks give way only where that helps: what keeps the project out may be of another type.
        let without = allocate(&hold.map(|kind, hold| *hold && !crowded[kind]));
        let helps = crowded.map(|kind, crowded| *crowded && without.serves_most_owed(kind));
        if helps == PerType::default() {
            return held.into_schedule();
        }
        hold = hold.map(|kind, hold| *hold && !helps[kind]);
    }
}
