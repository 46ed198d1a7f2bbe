//! The accounts of a host, with private fields: who had what of it, who owes whom, how long it was there,
//! what it has learned of itself. Who books what, and when, is said in `ledger.rs`.
//!
//! CPU time is what the kernel counted, booked when it is seen. Every second of it is in a project's total
//! once, and in one of four accounts: of jobs that are not over, succeeded in time, failed, or were late.

use std::collections::{BTreeMap, BTreeSet};

use fallow_boinc::scheduler::TimeStats;
use fallow_domain::{Duration, Fraction, Instant, PerType, ProjectId, ResourceType, Share, Speed};
use fallow_policy::accounting::recent_credit::RecentCredit;
use fallow_policy::accounting::{
    AccountingSituation, Debt, Debts, LongTermDebts, LongTermPeriod, ShortTermPeriod,
};
use fallow_policy::active_fraction::ActiveFraction;
use fallow_policy::completion::{CpuEfficiency, EndedJob, Experience};
use fallow_policy::decay::RecentCpu;
use fallow_policy::droughts::Droughts;
use fallow_policy::fetch::{RecentJobs, TypicalJob};
use fallow_policy::metrics::{DeadlineOutcome, Figures, Metrics, Observation, ProjectObservation, Window};
use fallow_policy::net_rate::NetRates;
use fallow_policy::network_period::{Connection, NetworkNeeds, NetworkPeriods};
use fallow_policy::on_time::OnTime;
use fallow_policy::plan_host::PlanHost;
use fallow_policy::type_backoff::{ReplyForType, TypeBackoffs};
use rand_pcg::Pcg64Mcg;
use serde::{Deserialize, Serialize};

use crate::stretches::Stretches;
use crate::versions::VersionKey;
use crate::{Direction, Totals, Traffic};

/// The accounts of a host.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Ledger {
    totals: BTreeMap<ProjectId, Totals>,
    /// Of projects that are detached.
    past: Totals,
    debts: Debts,
    #[serde(default)]
    credit: RecentCredit,
    recent: BTreeMap<ProjectId, RecentCpu>,
    /// CPU time used since the last decision (R2.1).
    #[serde(default)]
    spent: BTreeMap<ProjectId, PerType<Duration>>,
    /// Instance time used since long-term debts were settled (R3.3). Stored like the debts: while nothing is
    /// needed they are settled hours apart.
    #[serde(default)]
    long_period: BTreeMap<ProjectId, PerType<Duration>>,
    #[serde(default)]
    long_term: LongTermDebts,
    #[serde(default)]
    type_backoffs: TypeBackoffs,
    #[serde(default)]
    periods: NetworkPeriods,
    /// Stored with the rest when that is stored: it is not worth a write.
    #[serde(default)]
    net: NetRates,
    active: ActiveFraction,
    /// How much of their running time CPU jobs compute (R5.7): measured for the host, and held against all of
    /// them.
    #[serde(default)]
    cpu_efficiency: CpuEfficiency,
    /// What the last jobs of each project took over what they were to take. Records of their own.
    #[serde(skip)]
    experience: BTreeMap<ProjectId, Experience<VersionKey>>,
    /// A record of its own: it is larger and less precious than the accounts.
    #[serde(skip)]
    metrics: Metrics,
    /// How long the host is on within times to come. A record of its own, as the metrics.
    #[serde(skip)]
    on_time: OnTime,
    /// What the jobs of each project are like. Not stored: these accounts are written every few seconds, and
    /// the next job of a project tells it again.
    #[serde(skip)]
    recent_jobs: BTreeMap<ProjectId, RecentJobs>,
    /// How long there was no chance to get work.
    #[serde(default, skip_serializing_if = "Droughts::are_none")]
    droughts: Droughts,
    first_start: Option<Instant>,
    /// How long the agent has been up, and how long of that it was allowed to compute.
    up: Duration,
    up_active: Duration,
    #[serde(skip)]
    session_active: Duration,
    /// How long this life of the agent has been up, stored for the next one to know.
    #[serde(default)]
    session: Duration,
    /// How long the one before was.
    #[serde(skip)]
    previous_uptime: Duration,
    /// What the metrics are told next.
    #[serde(skip)]
    stretches: Stretches,
    /// When time was last accounted for. Stored, so that the time an agent is down counts as such.
    observed_at: Option<Instant>,
    /// Instances of each type that no runnable job could use, by the last decision.
    #[serde(skip)]
    starved: PerType<f64>,
    /// The last decision kept a task for its checkpoint.
    #[serde(skip)]
    waits_for_checkpoint: bool,
    /// The projects whose tasks compute by the last decision.
    #[serde(skip)]
    computing: BTreeSet<ProjectId>,
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
        self.experience.remove(&id);
        self.stretches.forget(id);
    }

    /// Looks at the clock: since when time is to be accounted for, if any has passed.
    pub(crate) fn look(&mut self, now: Instant) -> Option<Instant> {
        let from = self.observed_at?;
        self.observed_at = Some(now);
        if now <= from {
            return None;
        }
        Some(from)
    }

    /// Time has passed. The host was there until `there_until`, and computing was `allowed`.
    pub(crate) fn time_passed(&mut self, from: Instant, there_until: Instant, now: Instant, allowed: bool) {
        let (length, off) = (there_until.since(from), now.since(there_until));
        if off.is_positive() {
            self.active.observe(off.min(OFF_MAX), false);
        }
        if length.is_positive() {
            self.active.observe(length, allowed);
        }
        self.up += length;
        self.session += length;
        if allowed {
            self.up_active += length;
            self.session_active += length;
        }
    }

    /// Learns when the host is on, and how long there is no chance to get work, from the time since the last
    /// look. It was there until `there_until`, computing was `allowed`, and work of the types `unserved`
    /// could not be had.
    pub(crate) fn learn_habits(
        &mut self,
        from: Instant,
        there_until: Instant,
        now: Instant,
        allowed: bool,
        unserved: &PerType<bool>,
    ) {
        let length = there_until.since(from);
        // What a crash kept from the store: up to here the agent was there, as the accounts say.
        self.on_time.observe(from, true);
        if length.is_positive() {
            self.on_time.observe(there_until, allowed);
        }
        if now.since(there_until).is_positive() {
            self.on_time.observe(now, false);
        }
        if allowed {
            self.droughts.observe(length, unserved);
        }
    }

    /// A task used CPU time, while every project of the host had runnable work or not.
    pub(crate) fn charge(&mut self, project: ProjectId, cpu: Duration, contested: bool) {
        let totals = self.totals.entry(project).or_default();
        totals.cpu += cpu;
        totals.cpu_in_progress += cpu;
        if contested {
            totals.cpu_contested += cpu;
        }
        self.used(project, ResourceType::Cpu, cpu);
    }

    /// A project used CPU time of late.
    pub(crate) fn note_recent_cpu(&mut self, project: ProjectId, cpu: Duration, now: Instant) {
        self.recent.entry(project).or_insert_with(|| RecentCpu::new(now)).update(now, cpu);
    }

    /// A project is attached.
    pub(crate) fn open_account(&mut self, id: ProjectId) {
        self.totals.entry(id).or_default();
    }

    /// Counts something of a project in its totals. Says whether they have changed.
    pub(crate) fn count(&mut self, id: ProjectId, change: impl FnOnce(&mut Totals)) -> bool {
        let totals = self.totals.entry(id).or_default();
        let before = *totals;
        change(totals);
        *totals != before
    }

    /// Takes note of instance time used, for the debts.
    pub(crate) fn used(&mut self, project: ProjectId, kind: ResourceType, time: Duration) {
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

    /// What a project has had of this host.
    pub(crate) fn totals_of(&self, id: ProjectId) -> Totals {
        self.totals.get(&id).copied().unwrap_or_default()
    }

    /// What a project used of the CPUs lately.
    pub(crate) fn recent_cpu(&self, id: ProjectId, now: Instant) -> RecentCpu {
        self.recent.get(&id).copied().unwrap_or(RecentCpu::new(now))
    }

    /// What a project is owed of the CPUs in the short term.
    pub(crate) fn cpu_debt(&self, id: ProjectId) -> Debt {
        self.debts.of(id)[ResourceType::Cpu]
    }

    /// Instance time that a project used since short-term debts were settled (R2.1).
    pub(crate) fn spent_by(&self, id: ProjectId) -> PerType<Duration> {
        self.spent.get(&id).copied().unwrap_or_default()
    }

    /// Settles short-term debts for the time since it was done last. Returns the instance time that all
    /// projects used.
    pub(crate) fn settle_short_term(
        &mut self,
        host: &PlanHost,
        period: &[ShortTermPeriod],
    ) -> PerType<Duration> {
        for used in self.spent.values_mut() {
            *used = PerType::default();
        }
        if let [alone] = period
            && self.debts.iter().next().is_none()
        {
            return alone.used;
        }
        self.debts.update(host, period)
    }

    /// Books what projects used in their recent credit.
    pub(crate) fn book_credit(
        &mut self,
        now: Instant,
        host: &PlanHost,
        cpu: Speed,
        period: &[ShortTermPeriod],
    ) {
        for project in period {
            self.credit.update(project.project, now, &project.used, &host.speeds, cpu);
        }
    }

    /// What projects used since long-term debts were settled last, if anything was used (R3.3).
    pub(crate) fn take_unsettled(&mut self) -> Option<BTreeMap<ProjectId, PerType<Duration>>> {
        let is_any = self.long_period.values().any(|used| *used != PerType::default());
        is_any.then(|| std::mem::take(&mut self.long_period))
    }

    /// Nothing of that is to be settled.
    pub(crate) fn forget_unsettled(&mut self) {
        // It is soon needed again.
        self.long_period.values_mut().for_each(|used| *used = PerType::default());
    }

    /// Settles long-term debts.
    pub(crate) fn settle_long_term(&mut self, host: &PlanHost, periods: &[LongTermPeriod]) {
        self.long_term.settle(host, periods);
    }

    /// What projects owe and are owed in the long term.
    pub(crate) const fn long_term(&self) -> &LongTermDebts {
        &self.long_term
    }

    /// The books by which projects are compared.
    pub(crate) fn books<'a>(
        &'a self,
        host: PlanHost,
        projects: &'a [(ProjectId, Share)],
    ) -> AccountingSituation<'a> {
        let (short_term, long_term, credit) = (&self.debts, &self.long_term, &self.credit);
        AccountingSituation { host, projects, short_term, long_term, credit }
    }

    /// For which types projects are not asked for work, and until when.
    pub(crate) const fn type_backoffs(&self) -> &TypeBackoffs {
        &self.type_backoffs
    }

    /// What is waited for is waited for no longer than it was meant to be (R1.12).
    pub(crate) fn observe_backoffs(&mut self, now: Instant) {
        self.type_backoffs.observe(now);
    }

    /// A project may be asked for all types again.
    pub(crate) fn clear_backoffs(&mut self, id: ProjectId) {
        self.type_backoffs.clear_project(id);
    }

    /// A project was asked for jobs of a type, and answered (R3.5, R3.7).
    pub(crate) fn type_answered(
        &mut self,
        id: ProjectId,
        kind: ResourceType,
        reply: ReplyForType,
        now: Instant,
        rng: &mut Pcg64Mcg,
    ) {
        let after = self.type_backoffs.on_reply(id, kind, reply, now, rng);
        self.long_term.on_reply(id, kind, reply, after);
    }

    /// It has jobs, and sent none because they would be late here.
    pub(crate) fn refused_as_late(&mut self, id: ProjectId, kind: ResourceType, now: Instant) {
        self.type_backoffs.on_late_refusal(id, kind, now);
    }

    /// It has jobs, and sent none because this host has its part of them.
    pub(crate) fn has_part(&mut self, id: ProjectId, kind: ResourceType, now: Instant) {
        self.type_backoffs.on_part(id, kind, now);
    }

    /// A job of a project ended. Says whether it may be asked again for that.
    pub(crate) fn part_is_done(&mut self, id: ProjectId) -> bool {
        self.type_backoffs.on_job_ended(id)
    }

    /// Work of a type came.
    pub(crate) fn drought_ends(&mut self, kind: ResourceType) {
        self.droughts.end(kind);
    }

    /// A job of a project came.
    pub(crate) fn job_came(&mut self, id: ProjectId, now: Instant, kind: ResourceType, like: TypicalJob) {
        self.recent_jobs.entry(id).or_default().came(now, kind, like);
    }

    /// What a project's jobs are like.
    pub(crate) fn typical_jobs(&self, id: ProjectId, now: Instant) -> PerType<Option<TypicalJob>> {
        let recent = self.recent_jobs.get(&id);
        PerType::from_fn(|kind| recent.and_then(|recent| recent.typical(now, kind)))
    }

    /// What was decided to run: instances that no runnable job could use, and whether a task was kept for its
    /// checkpoint.
    pub(crate) fn decided(&mut self, starved: PerType<f64>, waits_for_checkpoint: bool) {
        self.starved = starved;
        self.waits_for_checkpoint = waits_for_checkpoint;
    }

    /// The projects whose tasks compute by that decision.
    pub(crate) fn now_compute(&mut self, projects: BTreeSet<ProjectId>) {
        self.computing = projects;
    }

    /// Whether the last decision kept a task for its checkpoint.
    pub(crate) const fn waits_for_checkpoint(&self) -> bool {
        self.waits_for_checkpoint
    }

    /// How much of the time computing was possible, of late.
    pub(crate) fn active_fraction(&self) -> Fraction {
        self.active.get()
    }

    /// How long the host is on within times to come.
    pub(crate) const fn on_time(&self) -> &OnTime {
        &self.on_time
    }

    /// How long there was no chance to get work, at the longest of late.
    pub(crate) fn longest_droughts(&self) -> PerType<Duration> {
        self.droughts.longest()
    }

    /// How much of their running time CPU jobs compute.
    pub(crate) const fn cpu_efficiency(&self) -> CpuEfficiency {
        self.cpu_efficiency
    }

    /// A connection to the network may begin or end (R1.13).
    pub(crate) fn poll_network_period(
        &mut self,
        now: Instant,
        interval: Duration,
        needs: &NetworkNeeds,
    ) -> Connection {
        self.periods.poll(now, interval, needs)
    }

    /// So many bytes were transferred in so long, until now.
    pub(crate) fn transferred(&mut self, now: Instant, part: &Traffic) {
        let rate = match part.direction {
            Direction::Download => &mut self.net.down,
            Direction::Upload => &mut self.net.up,
        };
        rate.update(now, part.bytes, part.took);
    }

    /// How fast transfers are.
    pub(crate) const fn net_rates(&self) -> NetRates {
        self.net
    }

    /// What servers are told of how long the host was there. This life began at `started_at`.
    pub(crate) fn time_stats(&self, now: Instant, started_at: Instant) -> TimeStats {
        let active = self.active.get().get();
        TimeStats {
            active_frac: active,
            // Nothing holds a GPU back but what holds the CPUs back.
            gpu_active_frac: active,
            cpu_and_network_available_frac: active,
            client_start_time: started_at,
            total_start_time: self.first_start.unwrap_or(started_at),
            total_duration: self.up,
            total_active_duration: self.up_active,
            total_gpu_active_duration: self.up_active,
            now,
            previous_uptime: self.previous_uptime,
            session_active_duration: self.session_active,
            session_gpu_active_duration: self.session_active,
            ..TimeStats::default()
        }
    }

    /// Instances that no runnable job could use, by the last decision.
    pub(crate) const fn starved(&self) -> PerType<f64> {
        self.starved
    }

    /// Learns from a job how much of its running time it computed. Says whether that changes anything.
    pub(crate) fn learn_efficiency(&mut self, computed: Duration, running: Duration) -> bool {
        let before = self.cpu_efficiency;
        self.cpu_efficiency = before.learned(computed, running);
        self.cpu_efficiency != before
    }

    /// How projects stand from now on, for the metrics. Of those that may run, those do whose tasks compute.
    pub(crate) fn note_stretches<P>(
        &mut self,
        projects: impl Iterator<Item = P>,
        observe: impl Fn(P, &TypeBackoffs) -> ProjectObservation,
    ) {
        let (computing, backoffs) = (&self.computing, &self.type_backoffs);
        self.stretches.note(projects.map(|project| {
            let seen = observe(project, backoffs);
            ProjectObservation { running: seen.running && computing.contains(&seen.project), ..seen }
        }));
    }

    /// Books what was used since the last look, for the metrics.
    pub(crate) fn book_stretches(&mut self) {
        self.stretches.book();
    }

    /// Time has passed, for the metrics, in which projects stood as it was noted.
    pub(crate) fn observe_metrics(
        &mut self,
        observation: impl FnOnce(&[ProjectObservation]) -> Observation<'_>,
    ) {
        self.metrics.observe(&observation(self.stretches.projects()));
    }

    /// A job that used so much is over, for the metrics.
    pub(crate) fn job_settled(&mut self, now: Instant, worth: Duration, fate: DeadlineOutcome) {
        self.metrics.job_settled(now, worth, fate);
    }

    /// An RPC is made, for the metrics.
    pub(crate) fn rpc_made(&mut self, now: Instant) {
        self.metrics.rpc_made(now);
    }

    /// The metrics of a window that ends now.
    pub(crate) fn figures(&self, window: Window, now: Instant, late_unreported: Duration) -> Figures {
        self.metrics.figures(window, now, late_unreported)
    }
}

/// The records in which the accounts are stored: themselves, the metrics, the host's hours, and what was
/// learned of each project's jobs.
impl Ledger {
    /// The history behind the metrics: larger and less precious than the rest, which this record leaves out.
    pub(crate) const fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// Takes up the accounts as they were stored.
    pub(crate) fn restore(&mut self, stored: Self) {
        let Self { metrics, on_time, experience, .. } = std::mem::take(self);
        *self = Self { metrics, on_time, experience, ..stored };
    }

    /// What was learned from the last jobs of a project, if any ended.
    pub(crate) fn experience_of(&self, id: ProjectId) -> Option<&Experience<VersionKey>> {
        self.experience.get(&id)
    }

    /// The projects of which something was learned from jobs that ended.
    #[cfg(test)]
    pub(crate) const fn experience(&self) -> &BTreeMap<ProjectId, Experience<VersionKey>> {
        &self.experience
    }

    /// Learns from a job of a version of a project.
    pub(crate) fn learn_from(&mut self, id: ProjectId, now: Instant, version: &VersionKey, job: EndedJob) {
        self.experience.entry(id).or_default().learn(now, version, job);
    }

    /// The clock was set back: no job has ended later than now. Says of which projects that changes what was
    /// learned.
    pub(crate) fn experience_set_back(&mut self, now: Instant) -> Vec<ProjectId> {
        let changed =
            self.experience.iter_mut().filter_map(|(id, known)| known.clock_set_back(now).then_some(*id));
        changed.collect()
    }

    /// Takes up what was learned from the last jobs of a project as it was stored.
    pub(crate) fn restore_experience(&mut self, id: ProjectId, stored: Experience<VersionKey>) {
        self.experience.insert(id, stored);
    }

    /// Takes up the metrics as they were stored.
    pub(crate) fn restore_metrics(&mut self, stored: Metrics) {
        self.metrics = stored;
    }

    /// Takes up what was learned of the host's hours.
    pub(crate) fn restore_on_time(&mut self, stored: OnTime) {
        self.on_time = stored;
    }
}
