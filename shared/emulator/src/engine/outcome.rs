//! What comes out of a run.

use fallow_domain::{Duration, Metric, PerType, ResourceType};

/// What a run came to.
#[derive(Clone, Debug, PartialEq)]
pub struct RunOutcome {
    /// The metrics over the whole run, by the product's own code (R5.30 to R5.35).
    pub figures: RunFigures,
    /// Scheduler RPCs made, answered or not.
    pub rpcs: u64,
    /// Of those, the ones that nobody answered.
    pub rpcs_failed: u64,
    /// Scheduler RPCs per job reported (R5.34); none when no job was reported.
    pub rpcs_per_job: Option<f64>,
    /// Jobs sent to the hosts.
    pub jobs_sent: u64,
    /// Jobs computed to their end and reported, in time or late.
    pub jobs_finished: u64,
    /// Jobs that missed their deadline: reported late, or past it when the run ended.
    pub jobs_late: u64,
    /// Jobs that were reported as failed.
    pub jobs_failed: u64,
    /// Jobs that a client held on average, from arrival to acknowledged report.
    pub mean_queue: f64,
    /// How long was simulated: the scenario's duration, or less if the run was stopped.
    pub simulated: Duration,
    /// How long of that the hosts were on, summed over them.
    pub host_on: Duration,
    /// Instance time of each type while the hosts were on.
    pub capacity: PerType<Duration>,
    /// Instance time of each type that jobs used, lost work included.
    pub used: PerType<Duration>,
    /// Used instance time whose results were lost with a process: beyond its last checkpoint.
    pub lost: Duration,
    /// How often clients were called.
    pub events: u64,
    /// The projects, in the scenario's order.
    pub projects: Vec<ProjectOutcome>,
    /// The hosts, in order.
    pub hosts: Vec<HostOutcome>,
    /// How far the jobs of finite supplies came; none if no supply is finite.
    pub batch: Option<BatchOutcome>,
    /// What ran when on the first host, if it was asked for.
    pub timeline: Option<Timeline>,
}

impl RunOutcome {
    /// How the jobs fell to the hosts. One that was never on could have none, and counts for nothing.
    #[must_use]
    pub fn parts(&self) -> Parts {
        let jobs = || self.hosts.iter().filter(|host| host.on.is_positive()).map(|host| host.jobs_sent);
        Parts {
            with_jobs: jobs().filter(|jobs| *jobs > 0).count(),
            least: jobs().min().unwrap_or(0),
            most: jobs().max().unwrap_or(0),
        }
    }
}

/// How the jobs of a run fell to the hosts that were on in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Parts {
    /// Hosts that were sent a job.
    pub with_jobs: usize,
    /// The fewest jobs that one was sent.
    pub least: u64,
    /// The most.
    pub most: u64,
}

/// What one of the hosts had of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostOutcome {
    /// How long it was on.
    pub on: Duration,
    /// Jobs that it was sent.
    pub jobs_sent: u64,
    /// Jobs that it computed to their end and reported, in time or late.
    pub jobs_finished: u64,
}

/// When a batch was done: all jobs of finite supplies, those that failed included. None while one of them is
/// not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BatchOutcome {
    /// When the last of them came to its end on its host.
    pub computed: Option<Duration>,
    /// When the last of them was reported.
    pub reported: Option<Duration>,
}

/// The metrics of a run. None where nothing happened that could be judged.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RunFigures {
    /// R5.30.
    pub idleness: Option<f64>,
    /// R5.31.
    pub waste: Option<f64>,
    /// R5.32.
    pub share_violation: Option<f64>,
    /// R5.35.
    pub share_deviation: Option<f64>,
    /// R5.33.
    pub monotony: Option<f64>,
}

impl RunFigures {
    /// One of them.
    #[must_use]
    pub const fn of(&self, metric: Metric) -> Option<f64> {
        match metric {
            Metric::Idleness => self.idleness,
            Metric::Waste => self.waste,
            Metric::ShareViolation => self.share_violation,
            Metric::ShareDeviation => self.share_deviation,
            Metric::Monotony => self.monotony,
        }
    }
}

/// What one project had of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct ProjectOutcome {
    /// Its name.
    pub name: String,
    /// Instance time of each type that its jobs used, lost work included.
    pub used: PerType<Duration>,
    /// Instance time of jobs that missed their deadline, over all types.
    pub wasted: Duration,
    /// RPCs to it.
    pub rpcs: u64,
    /// Jobs sent.
    pub jobs_sent: u64,
    /// Jobs computed to their end and reported, in time or late.
    pub jobs_finished: u64,
    /// Jobs that missed their deadline.
    pub jobs_late: u64,
    /// Jobs that were reported as failed.
    pub jobs_failed: u64,
    /// Jobs that work send refused to send (R5.6).
    pub jobs_refused: u64,
    /// The duration correction factor that a client reported last (R5.8).
    pub correction: f64,
    /// Its part of all processing, instances weighted by speed; none when nothing was processed.
    pub received: Option<f64>,
    /// The part that was due to it (R5.32), when the metrics tell.
    pub due: Option<f64>,
}

/// What ran when on a host. Times are from the beginning of the run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Timeline {
    /// Stretches of a job on an instance, in the order in which they ended. Time in which the host was off is
    /// not cut out: see [`Timeline::off`].
    pub spans: Vec<Span>,
    /// When the host was off.
    pub off: Vec<(Duration, Duration)>,
    /// What became of each job that was reported, or was past its deadline at the end, in order of that.
    pub outcomes: Vec<EndedJob>,
}

/// A job on an instance.
#[derive(Clone, Debug, PartialEq)]
pub struct Span {
    /// The type of the instance: the coprocessor's for a job that uses one, whose CPUs are not drawn.
    pub kind: ResourceType,
    /// Which instance of the type, from 0. A job on several has a span on each.
    pub instance: u32,
    /// The job's project, by its place in the scenario.
    pub project: usize,
    /// The job's number within its project, in the order of sending from 0.
    pub job: u64,
    /// From when.
    pub from: Duration,
    /// Until when.
    pub to: Duration,
}

/// What became of a job.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EndedJob {
    /// Its project, by its place in the scenario.
    pub project: usize,
    /// Its number within its project.
    pub job: u64,
    /// When it was sent.
    pub sent: Duration,
    /// Its deadline.
    pub deadline: Duration,
    /// When it was reported; none if it was late and unreported at the end of the run.
    pub reported: Option<Duration>,
    /// Whether it met its deadline.
    pub met: bool,
    /// Whether it failed.
    pub failed: bool,
}
