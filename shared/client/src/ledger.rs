//! The accounts: CPU time by project and by what became of it, debts, averages, metrics.
//!
//! CPU time is what the kernel counted, booked when it is seen. Every second of it is in a project's total once, and in
//! one of four accounts: of jobs that are not over, succeeded in time, failed, or were late.

use std::collections::BTreeMap;

use fallow_domain::{Duration, Instant, JobId, ProjectId};
use fallow_policy::active_fraction::ActiveFraction;
use fallow_policy::debt::Debts;
use fallow_policy::decay::RecentCpu;
use fallow_policy::estimate;
use fallow_policy::job_queue::Cpus;
use fallow_policy::metrics::{Fate, Metrics, ProjectStretch, Stretch};
use serde::{Deserialize, Serialize};

use crate::machine::Client;
use crate::state::{Job, Process};
use crate::{Entity, Totals};

/// The accounts of a host.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Ledger {
    pub totals: BTreeMap<ProjectId, Totals>,
    /// Of projects that are detached.
    pub past: Totals,
    pub debts: Debts,
    pub recent: BTreeMap<ProjectId, RecentCpu>,
    /// CPU time used since the last decision (R2.1).
    pub period: BTreeMap<ProjectId, Duration>,
    pub active: ActiveFraction,
    /// A record of its own: it is larger and less precious than the accounts.
    #[serde(skip)]
    pub metrics: Metrics,
    pub first_start: Option<Instant>,
    /// How long the agent has been up, and how long of that it was allowed to compute.
    pub up: Duration,
    pub up_active: Duration,
    #[serde(skip)]
    pub session_active: Duration,
    /// Used since the last look, for the metrics.
    #[serde(skip)]
    pub fresh: BTreeMap<ProjectId, Duration>,
    /// When time was last accounted for. Stored, so that the time an agent is down counts as such.
    pub observed_at: Option<Instant>,
    /// CPUs that no runnable job could use, by the last decision.
    #[serde(skip)]
    pub starved: Cpus,
    /// The last decision kept a task for its checkpoint.
    #[serde(skip)]
    pub waits_for_checkpoint: bool,
    /// CPUs that each project got in the last decision.
    #[serde(skip)]
    pub dealt: BTreeMap<ProjectId, f64>,
}

/// What was available in the time since the last look.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    from: Instant,
    available: Cpus,
    starved: Cpus,
    /// Instance time lost to the limit on CPU time (R2.8).
    pub throttled: Duration,
}

/// A look at the clock that comes later than asked for by more than this was slept through, or the clock was set.
const LATE: Duration = Duration::from_secs(60);
/// Time of which nothing is known counts as off for so long at most: a clock that is set by years, as at the first
/// contact with a time server, must not make a host look as if it were never there (R1.12).
const OFF_MAX: Duration = Duration::from_hours(72);

impl Totals {
    fn add(&mut self, other: &Self) {
        self.cpu += other.cpu;
        self.cpu_in_progress += other.cpu_in_progress;
        self.cpu_success += other.cpu_success;
        self.cpu_error += other.cpu_error;
        self.cpu_late += other.cpu_late;
        self.cpu_contested += other.cpu_contested;
        self.rpcs += other.rpcs;
        self.rpc_failures += other.rpc_failures;
        self.jobs_success += other.jobs_success;
        self.jobs_error += other.jobs_error;
        self.jobs_late += other.jobs_late;
    }
}

impl Ledger {
    /// The agent is up again; the time it was down is nobody's.
    pub(crate) fn come_up(&mut self, now: Instant) {
        self.first_start.get_or_insert(now);
        self.observed_at = Some(now);
        self.fresh.clear();
    }

    pub(crate) fn forget_project(&mut self, id: ProjectId) {
        if let Some(totals) = self.totals.remove(&id) {
            self.past.add(&totals);
        }
        self.recent.remove(&id);
        self.period.remove(&id);
        self.fresh.remove(&id);
    }

    /// Over all projects, detached ones too.
    pub(crate) fn all(&self) -> Totals {
        let mut all = self.past;
        for totals in self.totals.values() {
            all.add(totals);
        }
        all
    }
}

impl Client {
    /// Books CPU time of a task.
    pub(crate) fn charge(&mut self, id: JobId, cpu: Duration) {
        if !cpu.is_positive() {
            return;
        }
        let contested = self.is_contested();
        let now = self.now;
        let Some(job) = self.state.jobs.get_mut(&id) else { return };
        let project = job.project;
        job.run.charged += cpu;
        self.charged.insert(id);
        let totals = self.ledger.totals.entry(project).or_default();
        totals.cpu += cpu;
        totals.cpu_in_progress += cpu;
        if contested {
            totals.cpu_contested += cpu;
        }
        *self.ledger.period.entry(project).or_default() += cpu;
        *self.ledger.fresh.entry(project).or_default() += cpu;
        self.ledger.recent.entry(project).or_insert_with(|| RecentCpu::new(now)).update(now, cpu);
        self.touch(Entity::Project(project));
        self.touch(Entity::Host);
    }

    /// Whether every project with a share, and more than one, has runnable work: only then do shares decide who gets a
    /// CPU.
    fn is_contested(&self) -> bool {
        let mut sharing =
            self.state.projects.values().filter(|p| p.share.get() > 0.0 && !p.detach_when_done).peekable();
        let several = sharing.clone().nth(1).is_some();
        several && sharing.all(|project| self.queue.is_runnable(project.id))
    }

    /// A job is over and forgotten: what it cost moves to the account of what became of it.
    pub(crate) fn book_job(&mut self, job: &Job) {
        let late = self.now > job.result.report_deadline;
        let success =
            job.outcome.as_ref().is_some_and(|outcome| outcome.exit_status == 0 && outcome.state == 5);
        let totals = self.ledger.totals.entry(job.project).or_default();
        let cost = job.run.charged;
        totals.cpu_in_progress -= cost;
        match (success, late) {
            (true, false) => {
                totals.cpu_success += cost;
                totals.jobs_success += 1;
            }
            (true, true) => {
                totals.cpu_late += cost;
                totals.jobs_late += 1;
            }
            (false, _) => {
                totals.cpu_error += cost;
                totals.jobs_error += 1;
            }
        }
        let fate = if success && late { Fate::Missed } else { Fate::InTime };
        self.ledger.metrics.job_settled(self.now, cost, fate);
    }

    /// Accounts for the time since the last look, as things stood before the event: availability, elapsed times.
    pub(crate) fn observe(&mut self) -> Option<Seen> {
        let from = self.ledger.observed_at?;
        self.ledger.observed_at = Some(self.now);
        if self.now <= from {
            return None;
        }
        // Computing is vouched for only as long as the shell was sure to call.
        // Nor while the host was away.
        let vouched = if self.away { from } else { (self.wake_at + LATE).min(self.now).max(from) };
        let (length, off) = (vouched.since(from), self.now.since(vouched));
        self.ledger.active.observe(off.min(OFF_MAX), false);
        let allowed = !self.preferences().suspended;
        self.ledger.active.observe(length, allowed);
        self.ledger.up += length;
        if allowed {
            self.ledger.up_active += length;
            self.ledger.session_active += length;
        }
        let executing: Vec<JobId> = self.state.slots.values().copied().collect();
        for id in executing {
            let paused = self.is_paused(id);
            if let Some(job) = self.state.jobs.get_mut(&id)
                && matches!(job.process, Process::Executing(_))
                && !paused
            {
                job.run.elapsed += length;
            }
        }
        let here = allowed && !off.is_positive();
        let or_none = |cpus| if here { cpus } else { Cpus::ZERO };
        Some(Seen {
            from,
            available: or_none(Cpus::whole(self.usable_cpus())),
            starved: or_none(self.ledger.starved),
            throttled: length.mul_f64(self.paused_cpus()),
        })
    }

    /// Books that time, and what was used in it, for the metrics.
    pub(crate) fn observe_metrics(&mut self, seen: Seen) {
        let fresh = std::mem::take(&mut self.ledger.fresh);
        let projects: Vec<ProjectStretch> = self
            .state
            .projects
            .values()
            .map(|project| ProjectStretch {
                project: project.id,
                share: project.share,
                used: fresh.get(&project.id).copied().unwrap_or_default(),
                could_use: self.queue.runnable_cpus(project.id),
            })
            .collect();
        self.ledger.metrics.observe(&Stretch {
            from: seen.from,
            to: self.now,
            available: seen.available,
            starved: seen.starved,
            throttled: seen.throttled,
            scheduling_period: self.preferences().scheduling_period,
            projects: &projects,
        });
    }

    /// The estimated CPU time of a whole job (R5.8).
    fn estimated(&self, job: &Job) -> Duration {
        let by_size = by_size(job);
        match self.state.projects.get(&job.project) {
            Some(project) if !project.dont_use_dcf => project.correction.apply(by_size),
            _ => by_size,
        }
    }

    pub(crate) fn estimated_total(&self, id: JobId) -> Duration {
        self.state.jobs.get(&id).map_or(Duration::ZERO, by_size)
    }

    /// The estimated CPU time that a job still needs (R5.7).
    pub(crate) fn remaining(&self, job: &Job) -> Duration {
        let done = fallow_domain::Fraction::clamped(job.run.fraction_done);
        estimate::remaining(done, job.run.cpu(), self.estimated(job))
    }

    /// The estimated wall time that a job still needs while it runs with all the CPUs that it uses.
    pub(crate) fn running_time_left(&self, job: &Job) -> Duration {
        self.remaining(job).mul_f64(1.0 / job.usage.cpus.max(0.01))
    }

    /// Learns from a finished job how wrong its estimate was (R5.8).
    pub(crate) fn learn_estimate(&mut self, id: JobId, estimated: Duration) {
        let Some(job) = self.state.jobs.get(&id) else { return };
        let (project, actual) = (job.project, job.run.cpu());
        if let Some(project) = self.state.projects.get_mut(&project) {
            project.correction = project.correction.learned(estimated, actual);
            project.rpc.on_job_success();
        }
        self.mark(crate::record::Record::Project(project));
        self.estimates_changed(project);
    }

    /// Tells the queue when a project's estimates have moved away from those it holds. Small steps are let gather, so
    /// that a correction which has settled costs nothing with ten thousand jobs.
    pub(crate) fn estimates_changed(&mut self, id: ProjectId) {
        let Some(project) = self.state.projects.get(&id) else { return };
        let factor = if project.dont_use_dcf { 1.0 } else { project.correction.get() };
        let held = self.queued_factor.insert(id, factor).unwrap_or(1.0);
        if (factor / held - 1.0).abs() <= 0.02 {
            self.queued_factor.insert(id, held);
            return;
        }
        let jobs: Vec<JobId> = self.jobs_of(id);
        for job in jobs {
            self.requeue(job);
        }
    }

    /// The jobs of a project.
    pub(crate) fn jobs_of(&self, project: ProjectId) -> Vec<JobId> {
        let from = crate::FileKey { project, name: String::new() };
        let names = self.state.job_names.range(from..);
        names.take_while(|(key, _)| key.project == project).map(|(_, id)| *id).collect()
    }
}

/// The CPU time of a whole job by its size. The speed is that of all CPUs that it uses at once.
fn by_size(job: &Job) -> Duration {
    estimate::by_size(job.flops_estimate, job.speed).mul_f64(job.usage.cpus.max(0.01))
}
