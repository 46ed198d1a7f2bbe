//! The limit on CPU time (R2.8), to keep a machine cool or quiet: tasks run only a part of each stretch of
//! time.
//!
//! Once a second the limit is added to a credit; with a whole second of credit tasks compute for a second,
//! otherwise they pause for one. So half the time means every other second, and a tenth one second in ten:
//! smooth enough for a fan, and no busier than a heartbeat. What is decided about tasks is not touched by it:
//! a paused task is a running one that holds its breath. Versions that ask not to be throttled (BOINC:
//! `dont_throttle`) are left alone, and so are jobs on coprocessors, whose time is no CPU time.
//!
//! While the CPUs are measured (R6.2) every task holds its breath, as in the stock client, where the reason
//! is called CPU benchmarks: the figures are those of the machine, not of what its tasks leave of it. A
//! measurement without an end does not keep them waiting. Where one is tried again, the owner's programs
//! leave too little CPU time for it, which may go on for days: then jobs on coprocessors go on, and nobody is
//! told again. Where computing is suspended or paused nothing is measured, nor while somebody uses the host
//! for whom nothing else rests; what was begun before is given up: the owner wants his CPUs for himself.

use fallow_domain::{Duration, Instant, JobId};
use fallow_policy::job_queue::Cpus;

use crate::machine::Client;
use crate::state::{Job, Process};
use crate::timers::Timer;
use crate::versions::Versions;
use crate::{Benchmarks, Cause, Effect, NoticeLevel};

/// How long tasks compute or pause at a time.
const CYCLE: Duration = Duration::from_secs(1);

/// The longest that tasks wait for the CPUs to be measured (BOINC: `MAX_CPU_BENCHMARKS_SECONDS`).
const MEASURE_MAX: Duration = Duration::from_secs(60);

/// Where in the cycle the host is. Not stored: a restart begins a new one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Throttle {
    credit: f64,
    paused: bool,
    turned_at: Instant,
    measuring: Option<Measuring>,
}

/// A measurement of the CPUs.
#[derive(Clone, Copy, Debug)]
struct Measuring {
    since: Instant,
    is_retry: bool,
    is_given_up: bool,
}

impl Default for Throttle {
    fn default() -> Self {
        Self { credit: 0.0, paused: false, turned_at: Instant::EPOCH, measuring: None }
    }
}

impl Measuring {
    /// Whether a task holds its breath meanwhile.
    const fn holds(self, job: &Job) -> bool {
        !self.is_retry || job.usage.coprocessor.is_none()
    }
}

impl Throttle {
    /// Whether the CPUs are measured.
    pub(crate) const fn is_measuring(&self) -> bool {
        self.measuring.is_some()
    }

    /// Whether a task that would execute pauses now.
    pub(crate) fn holds(&self, job: &Job, versions: &Versions) -> bool {
        self.measuring.is_some_and(|measuring| measuring.holds(job))
            || self.paused && is_throttled(job, versions)
    }
}

/// Whether the limit on CPU time is one for a job.
fn is_throttled(job: &Job, versions: &Versions) -> bool {
    job.usage.coprocessor.is_none()
        && !versions.get(&job.version).is_some_and(|version| version.dont_throttle)
}

impl Client {
    /// The CPUs are to be measured, or that is over.
    pub(crate) fn benchmarks_run(&mut self, what: Benchmarks) {
        match (what, self.throttle.measuring) {
            (Benchmarks::Begin | Benchmarks::Retry, None) if !self.may_measure() => {}
            (Benchmarks::Begin | Benchmarks::Retry, None) => self.begin_benchmarks(what == Benchmarks::Retry),
            (Benchmarks::End, Some(measuring)) => self.end_benchmarks(measuring),
            _ => {}
        }
    }

    fn may_measure(&self) -> bool {
        !self.preferences().suspended && !self.state.host.in_use().is_so
    }

    /// Gives a measurement up that may not go on. Tasks wait until the shell says that it is over.
    pub(crate) fn poll_benchmarks(&mut self) {
        let may = self.may_measure();
        if let Some(measuring) = self.throttle.measuring.as_mut().filter(|one| !may && !one.is_given_up) {
            measuring.is_given_up = true;
            self.act(Effect::GiveUpMeasuring, Cause::BenchmarksUnwanted);
        }
    }

    fn begin_benchmarks(&mut self, is_retry: bool) {
        let measuring = Measuring { since: self.now(), is_retry, is_given_up: false };
        let waits = |job: &&Job| measuring.holds(job) && !self.is_paused(job.id);
        let waiting: Vec<JobId> = self.executing().filter(waits).map(|job| job.id).collect();
        for job in waiting {
            self.act(Effect::SuspendTask { job }, Cause::Benchmarks);
        }
        self.throttle = Throttle { measuring: Some(measuring), ..Throttle::default() };
        self.timers.stale(Timer::Throttle);
        self.act(Effect::MeasureSpeed, Cause::BenchmarksOld);
        if !is_retry {
            self.notice(NoticeLevel::Info, None, "computing is suspended: CPU benchmarks in progress");
        }
    }

    fn end_benchmarks(&mut self, measuring: Measuring) {
        self.throttle = Throttle { turned_at: self.now(), ..Throttle::default() };
        self.timers.stale(Timer::Throttle);
        let waiting: Vec<JobId> =
            self.executing().filter(|job| measuring.holds(job)).map(|job| job.id).collect();
        for job in waiting {
            self.act(Effect::ResumeTask { job }, Cause::BenchmarksOver);
        }
        if !measuring.is_retry {
            self.notice(NoticeLevel::Info, None, "computing goes on: the CPU benchmarks are over");
        }
    }

    /// Turns the cycle on.
    pub(crate) fn poll_throttle(&mut self) {
        if let Some(measuring) = self.throttle.measuring {
            let waited = self.now() - measuring.since;
            if waited >= Duration::ZERO && waited < MEASURE_MAX {
                return;
            }
            self.end_benchmarks(measuring);
        }
        let limit = self.preferences().cpu_time_fraction.get();
        let waited = self.now() - self.throttle.turned_at;
        if limit >= 1.0 {
            if self.throttle.paused {
                self.pause(false, &Cause::CpuTimeUnlimited);
            }
            self.throttle = Throttle { turned_at: self.now(), ..Throttle::default() };
        } else if waited >= CYCLE || waited < Duration::ZERO {
            // The timer has passed, is stale since the clock was set back, or there is nothing to limit.
            self.throttle.turned_at = self.now();
            self.throttle.credit += limit;
            let run = self.throttle.credit >= 1.0 - 1e-9;
            if run {
                self.throttle.credit -= 1.0;
            }
            if run == self.throttle.paused {
                self.pause(!run, &Cause::CpuTimeLimited(limit));
            }
        }
    }

    fn pause(&mut self, paused: bool, why: &Cause) {
        self.throttle.paused = paused;
        let executing: Vec<JobId> = self.throttled_jobs().map(|job| job.id).collect();
        for job in executing {
            let effect = if paused { Effect::SuspendTask { job } } else { Effect::ResumeTask { job } };
            self.act(effect, why.clone());
        }
    }

    /// Whether a task that would now begin or resume to compute holds its breath first.
    pub(crate) fn is_paused(&self, id: JobId) -> bool {
        self.state.jobs.get(&id).is_some_and(|job| self.is_job_paused(job))
    }

    /// The same of a job that was looked up.
    fn is_job_paused(&self, job: &Job) -> bool {
        self.throttle.holds(job, &self.state.versions)
    }

    /// CPUs that tasks would use now if it were not for the limit or a measurement.
    pub(crate) fn paused_cpus(&self) -> f64 {
        if let Some(measuring) = self.throttle.measuring {
            let held = self.executing().filter(|job| measuring.holds(job));
            held.map(|job| Cpus::of(job.usage).as_f64()).sum()
        } else if self.throttle.paused {
            self.throttled_jobs().map(|job| Cpus::of(job.usage).as_f64()).sum()
        } else {
            0.0
        }
    }

    fn is_throttled(&self, job: &Job) -> bool {
        is_throttled(job, &self.state.versions)
    }

    pub(crate) fn throttled_jobs(&self) -> impl Iterator<Item = &Job> {
        self.executing().filter(|job| self.is_throttled(job))
    }

    pub(crate) fn executing(&self) -> impl Iterator<Item = &Job> {
        let held = self.state.jobs.slots().values().filter_map(|id| self.state.jobs.get(id));
        held.filter(|job| matches!(job.process, Process::Executing(_)))
    }

    /// When the cycle turns, while there is a limit and something to limit; or when a measurement is waited
    /// for no longer.
    pub(crate) fn next_throttle(&self) -> Option<Instant> {
        if let Some(measuring) = self.throttle.measuring {
            return Some(measuring.since + MEASURE_MAX);
        }
        let limited = self.preferences().cpu_time_fraction.get() < 1.0;
        let turns = limited && self.throttled_jobs().next().is_some();
        turns.then(|| self.throttle.turned_at + CYCLE)
    }
}
