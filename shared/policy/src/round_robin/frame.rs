//! What all flows of a simulation use (R3.8): its horizon in time, which jobs a type can run, what was found
//! out.

use fallow_domain::{Duration, Instant, JobId};

use crate::job_queue::{Entry, Summary};

/// Rates closer than this are the same.
pub(super) const RATE_EPSILON: f64 = 1e-9;
/// Ends this much after a deadline, in seconds, are rounding.
pub(super) const TIME_EPSILON: f64 = 1e-5;

/// How far a simulation looks, and how it turns times by the clock into seconds of computing from now on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Horizon {
    pub(super) now: Instant,
    pub(super) margin: Duration,
    pub(super) active: f64,
    /// The window in seconds of computing.
    pub(super) window: f64,
    /// The part of it that is near, in seconds of computing.
    pub(super) near: f64,
}

impl Horizon {
    /// Seconds of computing until a deadline, less the margin.
    pub(super) fn until(&self, deadline: Instant) -> f64 {
        (deadline - self.margin - self.now).as_secs_f64() * self.active
    }
}

impl Default for Horizon {
    fn default() -> Self {
        Self { now: Instant::EPOCH, margin: Duration::ZERO, active: 1.0, window: 0.0, near: 0.0 }
    }
}

/// What a type has: a job that uses more can never run.
#[derive(Clone, Copy, Debug)]
pub(super) struct TypeCapacity {
    pub(super) instances: f32,
    pub(super) cpus: f32,
}

impl TypeCapacity {
    pub(super) fn job(&self, entry: &Entry) -> bool {
        entry.amount <= self.instances && entry.cpus <= self.cpus
    }
    pub(super) fn all(&self, summary: &Summary) -> bool {
        summary.largest <= self.instances && summary.most_cpus <= self.cpus
    }
}

/// What was found out about jobs of all flows.
#[derive(Clone, Debug, Default)]
pub(super) struct Findings {
    /// Jobs that end too late, by project and order.
    pub(super) late: Vec<(usize, u32, JobId)>,
    /// The least time that an end lies before its deadline, in seconds of computing.
    pub(super) slack: f64,
    /// It is known that no job ends too late, and `slack` is known.
    pub(super) none_late: bool,
}
