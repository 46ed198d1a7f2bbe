//! Jobs: how large they are, how large they are said to be, and what they need.

use fallow_domain::{Bytes, Duration, Flops, Fraction};

use super::host::CoprocessorKind;

/// One kind of jobs of a project.
#[derive(Clone, Debug, PartialEq)]
pub struct ApplicationModel {
    /// Its name. No other application of the project has it.
    pub name: String,
    /// How often its jobs are sent against the project's other applications; finite and above 0.
    pub weight: f64,
    /// Time from sending a job to its deadline.
    pub latency_bound: Duration,
    /// What the project says a job takes.
    pub estimated_flops: Flops,
    /// What a job takes in truth.
    pub true_flops: TrueFlops,
    /// Whether estimates know a job's own size.
    pub estimate: Estimate,
    /// What a job holds while it runs.
    pub uses: Uses,
    /// Computing time between two checkpoints. None: a job never loses anything.
    pub checkpoint: Option<Duration>,
    /// Size of a job's input files.
    pub input: Bytes,
    /// Size of a job's output files.
    pub output: Bytes,
    /// Memory that a job needs while it runs.
    pub memory: Bytes,
    /// How many jobs the project has to send, beside those queued at the beginning. None: as many as are
    /// asked for.
    pub jobs: Option<u64>,
    /// Probability that a job fails, at a point drawn evenly over its length.
    pub failure: Fraction,
}

/// The true size of jobs: normal, drawn again at zero or less (R5.11); or log-normal, as sizes of real
/// applications often are: most jobs are shorter than the mean, and a few are many times as long.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TrueFlops {
    /// The mean, above 0.
    pub mean: Flops,
    /// The standard deviation of normal sizes; 0: all the same.
    pub deviation: Flops,
    /// The standard deviation of the natural logarithm of log-normal sizes; 0: they are not log-normal.
    pub log_deviation: f64,
}

impl TrueFlops {
    /// All jobs are of the same size.
    pub fn all(mean: Flops) -> Self {
        Self::normal(mean, Flops::default())
    }

    /// Sizes are normal.
    pub fn normal(mean: Flops, deviation: Flops) -> Self {
        Self { mean, deviation, log_deviation: 0.0 }
    }
}

/// How the project estimates a job's size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Estimate {
    /// Always [`ApplicationModel::estimated_flops`].
    #[default]
    Fixed,
    /// Following each job's own size: true size × `estimated_flops` / mean true size.
    True,
}

/// What a job holds while it runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Uses {
    /// CPUs, possibly a fraction; finite, 0 or more, and above 0 without a coprocessor.
    pub cpus: f64,
    /// A coprocessor.
    pub coprocessor: Option<CoprocessorUse>,
}

/// Use of a coprocessor.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CoprocessorUse {
    /// Its kind.
    pub kind: CoprocessorKind,
    /// How many instances, possibly a fraction; finite and above 0.
    pub instances: f64,
}

/// A job that the client holds when the simulation begins.
#[derive(Clone, Debug, PartialEq)]
pub struct QueuedJob {
    /// Its name.
    pub name: String,
    /// The name of its application, one of its project's.
    pub application: String,
    /// When it arrived, from the beginning: zero or negative.
    pub received: Duration,
    /// Its deadline, from the beginning: negative if it has passed.
    pub deadline: Duration,
    /// How much of it is done.
    pub fraction_done: Fraction,
    /// How long it has run.
    pub elapsed: Duration,
    /// How long it needs in truth if it runs alone on what it uses. None: drawn like a new job's, times what
    /// is not done.
    pub remaining: Option<Duration>,
    /// Where it stands.
    pub state: QueuedState,
}

/// Where a queued job stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum QueuedState {
    /// It was not started.
    #[default]
    Waiting,
    /// It runs.
    Running,
    /// It was started and does not run.
    Preempted,
    /// It is computed and waits to be reported.
    Finished,
}

impl ApplicationModel {
    /// Jobs of the base scenario's size and latency bound times `factor` (R5.15).
    #[must_use]
    pub fn base(name: impl Into<String>, factor: u32) -> Self {
        let size = Flops::new(BASE_FLOPS * f64::from(factor)).unwrap_or_default();
        Self { latency_bound: BASE_LATENCY_BOUND * i64::from(factor), ..Self::of_size(name, size) }
    }

    /// Jobs of a size that is known exactly, on one CPU, with the base latency bound.
    #[must_use]
    pub fn of_size(name: impl Into<String>, size: Flops) -> Self {
        Self {
            name: name.into(),
            weight: 1.0,
            latency_bound: BASE_LATENCY_BOUND,
            estimated_flops: size,
            true_flops: TrueFlops::all(size),
            estimate: Estimate::Fixed,
            uses: Uses::ONE_CPU,
            checkpoint: None,
            input: Bytes(0),
            output: Bytes(0),
            memory: Bytes(0),
            jobs: None,
            failure: Fraction::ZERO,
        }
    }
}

/// 13,000 s on a CPU of 1e9 FLOPS (R5.15).
const BASE_FLOPS: f64 = 1.3e13;
/// 9 days (R5.15).
const BASE_LATENCY_BOUND: Duration = Duration::from_hours(9 * 24);

impl Uses {
    /// One CPU and nothing else.
    pub const ONE_CPU: Self = Self { cpus: 1.0, coprocessor: None };
}

impl QueuedState {
    /// All states, in order.
    pub const ALL: [Self; 4] = [Self::Waiting, Self::Running, Self::Preempted, Self::Finished];

    /// Its name in scenario files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Running => "running",
            Self::Preempted => "preempted",
            Self::Finished => "finished",
        }
    }
}
