//! How much work to ask of whom: expected starvation per project (R2.10 to R2.16; WF1 of R5.3).
//!
//! Model: a project needs `min_results` jobs at once to use its share of the CPUs. It starves when fewer are left,
//! which happens after the estimated CPU time of all its jobs, but the `min_results - 1` of latest deadline, at the
//! rate at which the host computes for it. A project that starves sooner than the *low* time is asked for as much
//! as moves its starvation to the *high* time.
//!
//! Low and high compose three rules that read alike (R1.11): R2.14's connection period T (T and 2T), the work-buffer
//! marks (minimum, minimum + additional), and WF1 as it was evaluated (ask below the whole buffer, fill up to it).
//! Version 4 takes the marks; the trigger stays R2.14's, per project, so that one full project does not hide
//! another that starves.
//!
//! A check looks at sums that the queue keeps, and at up to `min_results - 1` jobs per project, which is less than
//! one job per CPU over all projects: it does not depend on the number of jobs.

use std::fmt;

use fallow_domain::{Duration, Fraction, ProjectId, Share};

use crate::job_queue::{Cpus, JobQueue};
use crate::share_fraction::share_fractions;

/// A project that starves now is asked for at least this much, however small the buffer: a server answers any
/// request above zero with at least one job if it has one.
pub const REQUEST_MIN: Duration = Duration::from_secs(1);

/// When to ask, and how far to fill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkBuffer {
    /// A project that starves before this is asked.
    pub low: Duration,
    /// And asked for as much as makes it last this long.
    pub high: Duration,
}

impl WorkBuffer {
    /// R2.10: starvation between T and 2T from now.
    pub fn connection_period(t: Duration) -> Self {
        Self { low: t, high: t + t }
    }
    /// R1.11: the marks, minimum and minimum + additional.
    pub fn marks(min: Duration, additional: Duration) -> Self {
        Self { low: min, high: min + additional.max(Duration::ZERO) }
    }
    /// R5.3: asking below the whole buffer and filling up to it.
    pub fn whole(min: Duration, additional: Duration) -> Self {
        let whole = min + additional.max(Duration::ZERO);
        Self { low: whole, high: whole }
    }
    /// R1.13: with a connection interval, work for that much more is kept.
    #[must_use]
    pub fn beyond(self, connection_interval: Duration) -> Self {
        let more = connection_interval.max(Duration::ZERO);
        Self { low: self.low + more, high: self.high + more }
    }
}

/// The host as work fetch sees it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FetchHost {
    /// CPUs that may be used.
    pub usable: u32,
    /// Share of time that computing is allowed and running (R2.12).
    pub active_fraction: Fraction,
    /// The marks.
    pub buffer: WorkBuffer,
}

/// An attached project.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FetchProject {
    /// The project.
    pub id: ProjectId,
    /// Its share.
    pub share: Share,
    /// Whether it may supply work at all: not suspended, not told to send none. A backoff does not count: its
    /// place in the fractions is kept while it lasts.
    pub may_supply: bool,
}

/// How pressing a need for work is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Urgency {
    /// There is enough.
    #[default]
    None,
    /// It will run out before the low mark.
    NeedWork,
    /// It has run out.
    NeedWorkImmediately,
}

/// What one project needs, and the figures behind it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Need {
    /// The project.
    pub project: ProjectId,
    /// How pressing.
    pub urgency: Urgency,
    /// CPU seconds to ask for (R2.15); zero when nothing is needed.
    pub request: Duration,
    /// CPU seconds up to the high mark, to ask for when an RPC happens anyway (R1.9).
    pub fill: Duration,
    /// When it starves (R2.14).
    pub starves_in: Duration,
    /// Jobs it may need at once (R2.11).
    pub min_results: u32,
    /// CPU seconds per second that the host computes for it (R2.12).
    pub rate: f64,
}

/// The outcome of a check: for every project that may supply work, by id.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FetchPlan {
    /// The largest urgency.
    pub urgency: Urgency,
    /// What each project needs.
    pub needs: Vec<Need>,
    /// CPUs that no job, running, queued or on its way, would use: each should get a job.
    pub idle_cpus: u32,
}

impl FetchPlan {
    /// What one project needs, if it may supply work.
    pub fn of(&self, project: ProjectId) -> Option<&Need> {
        self.needs.iter().find(|need| need.project == project)
    }
}

/// The jobs that a project may need at once (R2.11).
pub fn min_results(usable: u32, share_fraction: f64) -> u32 {
    // A hair of tolerance: 3 CPUs at a fraction of 1/3 need one job, whatever the rounding of 1/3.
    (f64::from(usable) * share_fraction - 1e-9).ceil().max(0.0) as u32
}

/// CPU seconds per second that the host computes for a project (R2.12).
pub fn avg_proc_rate(share_fraction: f64, usable: u32, active_fraction: Fraction) -> f64 {
    share_fraction * f64::from(usable) * active_fraction.get()
}

/// The time until a project has only `k` jobs left (R2.13), at `rate` CPU seconds per second. At rate 0 its work
/// lasts for ever.
pub fn ettprc(queue: &JobQueue, project: ProjectId, k: u32, rate: f64) -> Duration {
    let work = queue.remaining_but_latest(project, k as usize);
    match () {
        () if !work.is_positive() => Duration::ZERO,
        () if rate <= 0.0 => Duration::MAX,
        () => Duration::from_secs_f64(work.as_secs_f64() / rate),
    }
}

/// Checks all projects (R2.14, R2.15).
pub fn check(host: &FetchHost, projects: &[FetchProject], queue: &JobQueue) -> FetchPlan {
    let supplying = projects.iter().filter(|p| p.may_supply).map(|p| (p.id, p.share));
    let needs: Vec<Need> = share_fractions(supplying)
        .into_iter()
        .map(|(project, fraction)| need(host, project, fraction, queue))
        .collect();
    let idle = Cpus::whole(host.usable).minus(queue.cpus()).as_f64();
    FetchPlan {
        urgency: needs.iter().map(|need| need.urgency).max().unwrap_or_default(),
        needs,
        idle_cpus: idle.ceil() as u32,
    }
}

fn need(host: &FetchHost, project: ProjectId, fraction: f64, queue: &JobQueue) -> Need {
    let min_results = min_results(host.usable, fraction);
    let rate = avg_proc_rate(fraction, host.usable, host.active_fraction);
    let starves_in = ettprc(queue, project, min_results.saturating_sub(1), rate);
    let urgency = match () {
        // A project whose share counts for nothing beside others starves nobody.
        () if rate <= 0.0 => Urgency::None,
        () if starves_in == Duration::ZERO => Urgency::NeedWorkImmediately,
        () if starves_in < host.buffer.low => Urgency::NeedWork,
        () => Urgency::None,
    };
    let missing = (host.buffer.high - starves_in).max(Duration::ZERO).mul_f64(rate);
    let fill = if urgency == Urgency::None { missing } else { missing.max(REQUEST_MIN) };
    let request = if urgency == Urgency::None { Duration::ZERO } else { fill };
    Need { project, urgency, request, fill, starves_in, min_results, rate }
}

impl fmt::Display for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { starves_in, min_results, rate, .. } = self;
        match self.urgency {
            Urgency::None => write!(f, "there is enough: ")?,
            Urgency::NeedWork => write!(f, "it runs out: ")?,
            Urgency::NeedWorkImmediately => return write!(f, "fewer than {min_results} jobs are left"),
        }
        match *starves_in {
            Duration::MAX => write!(f, "at {rate:.2} CPUs it lasts for ever"),
            _ => write!(f, "fewer than {min_results} jobs are left in {starves_in} at {rate:.2} CPUs"),
        }
    }
}
