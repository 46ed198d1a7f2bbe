//! The accounts: CPU time by project and by what became of it, debts, averages, metrics.
//!
//! CPU time is what the kernel counted, booked when it is seen. Every second of it is in a project's total
//! once, and in one of four accounts: of jobs that are not over, succeeded in time, failed, or were late.

use std::collections::{BTreeMap, BTreeSet};

use fallow_domain::{Duration, Instant, JobId, PerType, ProjectId, ResourceType};
use fallow_policy::accounting::recent_credit::RecentCredit;
use fallow_policy::accounting::{Debts, LongTermDebts};
use fallow_policy::active_fraction::ActiveFraction;
use fallow_policy::completion::{self, CpuEfficiency, DurationCorrection, JobProgress, Learned, Progress};
use fallow_policy::decay::RecentCpu;
use fallow_policy::fetch::RecentJobs;
use fallow_policy::metrics::{DeadlineOutcome, Metrics, Observation, ProjectObservation};
use fallow_policy::net_rate::NetRates;
use fallow_policy::network_period::NetworkPeriods;
use fallow_policy::on_time::OnTime;
use fallow_policy::rpc_timing::RpcState;
use fallow_policy::type_backoff::TypeBackoffs;
use serde::{Deserialize, Serialize};

use crate::droughts::Droughts;
use crate::machine::Client;
use crate::state::{Job, Outcome, Process};
use crate::stretches::Stretches;
use crate::{Entity, Totals};

/// The accounts of a host.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Ledger {
    pub totals: BTreeMap<ProjectId, Totals>,
    /// Of projects that are detached.
    pub past: Totals,
    pub debts: Debts,
    #[serde(default)]
    pub credit: RecentCredit,
    pub recent: BTreeMap<ProjectId, RecentCpu>,
    /// CPU time used since the last decision (R2.1).
    #[serde(default)]
    pub spent: BTreeMap<ProjectId, PerType<Duration>>,
    /// Instance time used since long-term debts were settled, and how long computing was possible since
    /// (R3.3). Stored like the debts: while nothing is needed they are settled hours apart.
    #[serde(default)]
    pub long_period: BTreeMap<ProjectId, PerType<Duration>>,
    #[serde(default)]
    pub unsettled: Duration,
    #[serde(default)]
    pub long_term: LongTermDebts,
    #[serde(default)]
    pub type_backoffs: TypeBackoffs,
    #[serde(default)]
    pub periods: NetworkPeriods,
    /// Stored with the rest when that is stored: it is not worth a write.
    #[serde(default)]
    pub net: NetRates,
    pub active: ActiveFraction,
    /// How much of their running time CPU jobs compute (R5.7): measured for the host, and held against all of
    /// them.
    #[serde(default)]
    pub cpu_efficiency: CpuEfficiency,
    /// A record of its own: it is larger and less precious than the accounts.
    #[serde(skip)]
    pub metrics: Metrics,
    /// How long the host is on within times to come. A record of its own, as the metrics.
    #[serde(skip)]
    pub on_time: OnTime,
    /// What the jobs of each project are like. Not stored: these accounts are written every few seconds, and
    /// the next job of a project tells it again.
    #[serde(skip)]
    pub recent_jobs: BTreeMap<ProjectId, RecentJobs>,
    /// How long instances stood idle without a pause.
    #[serde(default, skip_serializing_if = "Droughts::are_none")]
    pub droughts: Droughts,
    pub first_start: Option<Instant>,
    /// How long the agent has been up, and how long of that it was allowed to compute.
    pub up: Duration,
    pub up_active: Duration,
    #[serde(skip)]
    pub session_active: Duration,
    /// How long this life of the agent has been up, stored for the next one to know.
    #[serde(default)]
    pub session: Duration,
    /// How long the one before was.
    #[serde(skip)]
    pub previous_uptime: Duration,
    /// What the metrics are told next.
    #[serde(skip)]
    pub stretches: Stretches,
    /// When time was last accounted for. Stored, so that the time an agent is down counts as such.
    pub observed_at: Option<Instant>,
    /// CPUs that no runnable job could use, by the last decision.
    #[serde(skip)]
    pub starved: PerType<f64>,
    /// The last decision kept a task for its checkpoint.
    #[serde(skip)]
    pub waits_for_checkpoint: bool,
    /// CPUs that each project got in the last decision.
    #[serde(skip)]
    pub dealt: BTreeSet<ProjectId>,
}

/// What was available in the time since the last look.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    pub from: Instant,
    available: PerType<u32>,
    starved: PerType<f64>,
    /// Instance time lost to the limit on CPU time (R2.8).
    pub throttled: Duration,
}

/// Time of which nothing is known counts as off for so long at most: a clock that is set by years, as at the
/// first contact with a time server, must not make a host look as if it were never there (R1.12).
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
        self.previous_uptime = std::mem::take(&mut self.session);
        self.observed_at = Some(now);
        self.stretches.come_up();
    }

    pub(crate) fn forget_project(&mut self, id: ProjectId) {
        if let Some(totals) = self.totals.remove(&id) {
            self.past.add(&totals);
        }
        self.recent.remove(&id);
        self.spent.remove(&id);
        self.long_period.remove(&id);
        self.long_term.forget(id);
        self.credit.forget(id);
        self.type_backoffs.clear_project(id);
        self.recent_jobs.remove(&id);
        self.stretches.forget(id);
    }

    /// Takes note of instance time used, for the debts.
    fn used(&mut self, project: ProjectId, kind: ResourceType, time: Duration) {
        self.spent.entry(project).or_default()[kind] += time;
        self.long_period.entry(project).or_default()[kind] += time;
        self.stretches.use_up(project, kind, time);
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
    /// Books CPU time of a task, which the task's own record counts already.
    pub(crate) fn charge(&mut self, id: JobId, project: ProjectId, cpu: Duration) {
        if !cpu.is_positive() {
            return;
        }
        let (contested, now) = (self.is_contested(), self.now());
        self.records.charged(id);
        let totals = self.ledger.totals.entry(project).or_default();
        totals.cpu += cpu;
        totals.cpu_in_progress += cpu;
        if contested {
            totals.cpu_contested += cpu;
        }
        self.ledger.used(project, ResourceType::Cpu, cpu);
        // Under any policy, for the day when it changes.
        self.ledger.recent.entry(project).or_insert_with(|| RecentCpu::new(now)).update(now, cpu);
        self.touch(Entity::Project(project));
        self.touch(Entity::Host);
    }

    /// Whether every project with a share, and more than one, has runnable work: only then do shares decide
    /// who gets a CPU.
    fn is_contested(&self) -> bool {
        let mut sharing =
            self.state.projects.values().filter(|p| p.share.get() > 0.0 && !p.detach_when_done).peekable();
        let several = sharing.clone().nth(1).is_some();
        several && sharing.all(|project| self.workload.queue().is_runnable(project.id))
    }

    /// A job is over and forgotten: what it cost moves to the account of what became of it.
    pub(crate) fn book_job(&mut self, job: &Job) {
        let late = self.now() > job.result.report_deadline;
        let success = job.outcome.as_ref().is_some_and(Outcome::is_success);
        let cost = job.run.charged;
        let worth = self.worth(job);
        self.count(job.project, |totals| {
            totals.cpu_in_progress -= cost;
            let (cpu, jobs) = match (success, late) {
                (true, false) => (&mut totals.cpu_success, &mut totals.jobs_success),
                (true, true) => (&mut totals.cpu_late, &mut totals.jobs_late),
                (false, _) => (&mut totals.cpu_error, &mut totals.jobs_error),
            };
            *cpu += cost;
            *jobs += 1;
        });
        let fate = if success && late { DeadlineOutcome::Missed } else { DeadlineOutcome::Met };
        self.ledger.metrics.job_settled(self.now(), worth, fate);
    }

    /// All the instance time that a job used, weighted by speed: what it counts for in the metrics.
    pub(crate) fn worth(&self, job: &Job) -> Duration {
        match job.usage.coprocessor {
            Some((kind, _)) => {
                job.run.charged + job.run.charged_coprocessor.mul_f64(self.plan_host().speeds[kind])
            }
            None => job.run.charged,
        }
    }

    /// Accounts for the time since the last look, as things stood before the event: availability, elapsed
    /// times.
    pub(crate) fn observe(&mut self) -> Option<Seen> {
        let from = self.ledger.observed_at?;
        self.ledger.observed_at = Some(self.now());
        if self.now() <= from {
            return None;
        }
        // What a crash kept from the store: up to here the agent was there, as the accounts say.
        self.ledger.on_time.observe(from, true);
        // Computing is vouched for only as long as the shell was sure to call.
        let vouched = self.presence.vouched(from, self.now());
        let (length, off) = (vouched.since(from), self.now().since(vouched));
        if off.is_positive() {
            self.ledger.active.observe(off.min(OFF_MAX), false);
        }
        let allowed = !self.preferences().suspended;
        if length.is_positive() {
            self.ledger.active.observe(length, allowed);
            self.ledger.on_time.observe(vouched, allowed);
        }
        if off.is_positive() {
            self.ledger.on_time.observe(self.now(), false);
        }
        if allowed {
            self.ledger.droughts.observe(length, &self.ledger.starved);
        }
        self.ledger.up += length;
        self.ledger.session += length;
        if allowed {
            self.ledger.up_active += length;
            self.ledger.session_active += length;
            self.ledger.unsettled += length;
        }
        if length.is_positive() {
            let slots: Vec<JobId> = self.state.jobs.slots().values().copied().collect();
            slots.into_iter().for_each(|id| self.ran_for(id, length));
        }
        let here = allowed && !off.is_positive();
        self.note_stretches(here);
        Some(Seen {
            from,
            available: if here { self.plan_host().instances } else { PerType::default() },
            starved: if here { self.ledger.starved } else { PerType::default() },
            throttled: length.mul_f64(self.paused_cpus()),
        })
    }

    /// Notes for the metrics how projects stood in that time: the event that ended it may end jobs, too.
    fn note_stretches(&mut self, here: bool) {
        let instances = self.plan_host().instances;
        let (queue, dealt) = (self.workload.queue(), &self.ledger.dealt);
        self.ledger.stretches.note(self.state.projects.values().map(|project| ProjectObservation {
            project: project.id,
            share: project.share,
            used: PerType::default(),
            running: here && dealt.contains(&project.id),
            could_use: instances.map(|kind, count| match count {
                0 => 0.0,
                _ => queue.runnable_instances(project.id, kind).as_f64(),
            }),
        }));
    }

    /// Counts the elapsed time of a task that executes.
    fn ran_for(&mut self, id: JobId, length: Duration) {
        if self.is_paused(id) {
            return;
        }
        let job = self.state.jobs.get(&id);
        let Some(job) = job.filter(|job| matches!(job.process, Process::Executing(_))) else { return };
        // The kernel counts CPU time only.
        let used = job.usage.coprocessor.map(|(kind, count)| (kind, length.mul_f64(count)));
        if let Some((kind, used)) = used {
            self.ledger.used(job.project, kind, used);
        }
        self.state.jobs.ran_for(id, length, used.map_or(Duration::ZERO, |(_, used)| used));
    }

    /// Books that time, and what was used in it, for the metrics.
    pub(crate) fn observe_metrics(&mut self, seen: Seen) {
        // What was used before the host went away, and is only seen now, is booked when it is back: it says
        // nothing about a time without instances.
        if seen.available != PerType::default() {
            self.ledger.stretches.book();
        }
        self.ledger.metrics.observe(&Observation {
            from: seen.from,
            to: self.now(),
            available: seen.available,
            starved: seen.starved,
            speeds: self.plan_host().speeds,
            throttled: seen.throttled,
            scheduling_period: self.preferences().scheduling_period,
            projects: self.ledger.stretches.projects(),
        });
    }

    /// What a project's finished jobs took over what they were to take by their size (R5.8); 1 where it says
    /// so.
    fn learned(&self, id: ProjectId) -> DurationCorrection {
        let project = self.state.projects.get(&id).filter(|project| !project.dont_use_dcf);
        project.map_or(DurationCorrection::default(), |project| project.correction)
    }

    /// The factor by which a project's estimates are corrected.
    pub(crate) fn correction(&self, id: ProjectId) -> DurationCorrection {
        self.config.composition.completion.factor(self.learned(id))
    }

    /// The running time of a whole job by its size, uncorrected: what a correction is learned against.
    pub(crate) fn estimated_total(&self, id: JobId) -> Duration {
        self.state.jobs.get(&id).map_or(Duration::ZERO, by_size)
    }

    /// The wall time that a job still needs while it runs with all that it uses (R5.7).
    pub(crate) fn running_time_left(&self, job: &Job) -> Duration {
        let progress = match job.usage.coprocessor {
            Some(_) => Progress::Coprocessor(running_time(job)),
            None => Progress::Cpu(running_time(job), self.ledger.cpu_efficiency),
        };
        let job = JobProgress {
            by_size: by_size(job),
            fraction_done: fallow_domain::Fraction::clamped(job.run.fraction_done),
            progress,
            learned: self.learned(job.project),
        };
        self.config.composition.completion.estimate(&job).left
    }

    /// Learns from a finished job how wrong its estimate was (R5.8), and how much of its time on a CPU it
    /// computed.
    pub(crate) fn learn_estimate(&mut self, id: JobId, estimated: Duration) {
        let Some(job) = self.state.jobs.get(&id) else { return };
        let (project, actual, before) = (job.project, running_time(job), self.ledger.cpu_efficiency);
        if job.usage.coprocessor.is_none() {
            self.ledger.cpu_efficiency = before.learned(actual, job.run.elapsed);
        }
        self.edit_correction(project, |correction| correction.learned(estimated, actual));
        self.edit_rpc(project, RpcState::on_job_success);
        // How much of its time a job computes is measured for the host, and holds for all of them.
        if self.ledger.cpu_efficiency != before {
            let projects: Vec<ProjectId> = self.state.projects.keys().copied().collect();
            projects.into_iter().for_each(|project| self.estimates_changed(project));
        }
    }

    /// Tells the queue when what a project's estimates depend on has moved away from what those that it holds
    /// were made from.
    pub(crate) fn estimates_changed(&mut self, id: ProjectId) {
        let completion = self.config.composition.completion;
        let learned = Learned { correction: self.learned(id), efficiency: self.ledger.cpu_efficiency };
        let basis = completion.depends_on(&learned);
        if !self.workload.estimate_by(id, basis, || completion.depends_on(&Learned::default())) {
            return;
        }
        let jobs: Vec<JobId> = self.jobs_of(id);
        for job in jobs {
            self.reassess(job);
        }
    }

    /// The jobs of a project.
    pub(crate) fn jobs_of(&self, project: ProjectId) -> Vec<JobId> {
        self.state.jobs.of(project).collect()
    }
}

/// The running time of a whole job by its size. The speed is that of all that it uses at once.
fn by_size(job: &Job) -> Duration {
    completion::by_size_of(job.flops_estimate, job.speed)
}

/// How long a job has run towards its result: by the CPU time that it used of each of its CPUs, or, if it is
/// a coprocessor's job, by the clock.
fn running_time(job: &Job) -> Duration {
    match job.usage.coprocessor {
        Some(_) => job.run.elapsed,
        None => job.run.cpu().mul_f64(1.0 / job.usage.cpus.max(0.01)),
    }
}
