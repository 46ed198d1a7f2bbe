//! The machine itself: takes an event, lets each part act on it, then looks what is due, and says when to
//! call again.

use std::collections::{BTreeMap, BTreeSet};

use fallow_boinc::scheduler::ClientVersion;
use fallow_domain::{Duration, Instant, JobId, Preferences, ProjectId};
use fallow_policy::composition::Composition;
use fallow_policy::job_queue::JobQueue;
use fallow_policy::metrics::ProjectStretch;
use fallow_policy::round_robin::RoundRobin;
use fallow_policy::rpc_timing::RpcState;
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::SeedableRng;

use crate::devices::Usable;
use crate::incoming::Incoming;
use crate::ledger::Ledger;
use crate::record::{self, Record, RestoreError};
use crate::rpc::Network;
use crate::set_aside::SetAside;
use crate::state::State;
use crate::throttle::Throttle;
use crate::{Action, Effect, Entity, Event, NoticeLevel, Reason, Step};

/// What does not change while a client lives.
#[derive(Clone, Debug)]
pub struct ClientConfig {
    /// Seed of the host's own random stream. Each host has another, or all would call at the same moment.
    pub seed: u64,
    /// The version that servers are told.
    pub version: ClientVersion,
    /// The policies that it follows (R5).
    pub composition: Composition,
    /// Whether [`Step::changes`] and [`Step::touched`] are filled, and reasons told in words. A simulation,
    /// which neither restarts a client nor tells anybody of it, does without.
    pub keeps_records: bool,
}

impl ClientConfig {
    /// The default policies, and records kept.
    pub fn new(seed: u64, version: ClientVersion) -> Self {
        Self { seed, version, composition: Composition::default(), keeps_records: true }
    }
}

/// A volunteer-computing client. See the crate's documentation for how to turn it.
#[derive(Debug)]
pub struct Client {
    pub(crate) config: ClientConfig,
    pub(crate) state: State,
    pub(crate) ledger: Ledger,
    pub(crate) queue: JobQueue,
    pub(crate) net: Network,
    pub(crate) rng: Pcg64Mcg,
    pub(crate) now: Instant,
    pub(crate) started_at: Instant,
    /// A CPU freed, a job arrived, failed or was aborted, preferences changed (R2.2, R2.6).
    pub(crate) schedule_due: bool,
    /// The set of runnable jobs changed (R2.16).
    pub(crate) fetch_due: bool,
    pub(crate) decided_at: Instant,
    pub(crate) decide_by: Instant,
    pub(crate) fetch_checked_at: Instant,
    /// Until then the last check of work fetch holds if nothing happens.
    pub(crate) fetch_check_by: Instant,
    pub(crate) round_robin: RoundRobin,
    /// What may be used of the host.
    pub(crate) usable: Usable,
    /// Memory for what the metrics are told at every turn.
    pub(crate) stretches: Vec<ProjectStretch>,
    /// The share of time that computing is possible, as plans take it.
    pub(crate) planned_active: f64,
    pub(crate) saved_at: Instant,
    metrics_saved_at: Instant,
    /// When the shell was asked to call again.
    pub(crate) wake_at: Instant,
    /// When something is due next, whether the host is there or not.
    due_at: Instant,
    /// Jobs charged since they were last stored.
    pub(crate) charged: BTreeSet<JobId>,
    /// The duration correction that the queue's estimates were made with.
    pub(crate) queued_factor: BTreeMap<ProjectId, f64>,
    dirty: BTreeSet<Record>,
    touched: BTreeSet<Entity>,
    pub(crate) actions: Vec<Action>,
    durable: bool,
    pub(crate) throttle: Throttle,
    /// The preferences in force, kept because they are asked for at every turn.
    effective: Preferences,
    /// Jobs that are held and cannot run now, or ever.
    pub(crate) set_aside: SetAside,
    /// CPU jobs that wait for files.
    pub(crate) incoming: Incoming,
    /// Jobs whose owner was told that they cannot run here.
    pub(crate) told_hopeless: BTreeSet<JobId>,
    /// The host is off or asleep ([`Event::HostAway`]).
    pub(crate) away: bool,
    /// Notices of the present step, by project.
    told: BTreeMap<ProjectId, usize>,
}

/// Most notices about a project in one step. A project can have ten thousand jobs fail at once, and must not fill the log
/// with that.
const NOTICES_MAX: usize = 20;

/// How often running totals are stored when nothing else happens. What a killed agent had not stored is
/// recovered from its applications' channels.
const SAVE_PERIOD: Duration = Duration::from_secs(10);
/// However long nothing is due, the clock is looked at so often.
const LOOK_PERIOD: Duration = Duration::from_hours(1);
/// The history behind the metrics is longer; so much of it may be lost with a killed agent.
const METRICS_SAVE_PERIOD: Duration = Duration::from_secs(60);

impl Client {
    /// Takes up a stored client, or begins a new one when there are no records.
    ///
    /// # Errors
    /// [`RestoreError`] for a record that is newer than this program or cannot be read. Nothing is changed
    /// then.
    pub fn restore(
        config: ClientConfig,
        records: impl IntoIterator<Item = (Vec<u8>, Vec<u8>)>,
    ) -> Result<Self, RestoreError> {
        let mut state = State::default();
        let mut ledger = Ledger::default();
        for (key, value) in records {
            record::restore(&mut state, &mut ledger, &key, &value)?;
        }
        // A restart goes on with another part of the host's stream instead of repeating the last one's draws.
        let rng = Pcg64Mcg::seed_from_u64(config.seed ^ state.meta.draws.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let mut client = Self {
            config,
            state,
            ledger,
            queue: JobQueue::default(),
            net: Network::default(),
            rng,
            now: Instant::EPOCH,
            started_at: Instant::EPOCH,
            schedule_due: false,
            fetch_due: false,
            decided_at: Instant::EPOCH,
            decide_by: Instant::EPOCH,
            fetch_checked_at: Instant::EPOCH,
            fetch_check_by: Instant::EPOCH,
            round_robin: RoundRobin::default(),
            planned_active: 1.0,
            usable: Usable::default(),
            stretches: Vec::new(),
            saved_at: Instant::EPOCH,
            metrics_saved_at: Instant::EPOCH,
            wake_at: Instant::EPOCH,
            due_at: Instant::EPOCH,
            throttle: Throttle::default(),
            charged: BTreeSet::new(),
            queued_factor: BTreeMap::new(),
            dirty: BTreeSet::new(),
            touched: BTreeSet::new(),
            actions: Vec::new(),
            durable: false,
            effective: Preferences::default(),
            set_aside: SetAside::default(),
            incoming: Incoming::default(),
            told_hopeless: BTreeSet::new(),
            away: false,
            told: BTreeMap::new(),
        };
        client.preferences_changed();
        client.rebuild();
        Ok(client)
    }

    /// Takes an event in, at the time `now`, and says what follows from it. Pure: the same client, time and
    /// event give the same step.
    pub fn handle(&mut self, now: Instant, event: Event) -> Step {
        let set_back = now < self.now;
        self.now = now;
        if set_back {
            self.clock_set_back();
        }
        let seen = self.observe();
        if let Some(seen) = &seen {
            self.settle_before_backoffs_end(seen.from);
        }
        let back = matches!(event, Event::HostBack);
        let news = !matches!(event, Event::HostAway | Event::HostBack | Event::WakeUp);
        self.take(event);
        if let Some(seen) = seen {
            self.observe_metrics(seen);
        }
        if self.away {
            if news {
                // What follows from it is decided when the host is back.
                self.due_at = Instant::EPOCH;
            }
            self.wake_at = Instant::FAR_FUTURE;
            return self.finish_step(None);
        }
        // Coming back changes nothing by itself: what became due meanwhile is seen to by the wake-up asked
        // for before.
        if self.is_up() && !(back && now < self.due_at) {
            self.poll();
            self.due_at = self.next_wake_up();
        }
        let wake_at = self.is_up().then_some(self.due_at);
        self.wake_at = wake_at.unwrap_or(self.wake_at);
        self.finish_step(wake_at)
    }

    /// What waits for a time waits no longer than it was meant to (R1.12).
    pub(crate) fn clock_set_back(&mut self) {
        self.transfers_observe();
        self.ledger.type_backoffs.observe(self.now);
        self.net.reports_due = None;
        self.due_at = Instant::EPOCH;
    }

    fn is_up(&self) -> bool {
        self.state.host.is_some()
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::Started(startup) => self.start(*startup),
            Event::WakeUp => {}
            Event::HostAway => self.away = true,
            Event::HostBack => self.away = false,
            Event::BenchmarksRun(what) => self.benchmarks_run(what),
            Event::Attach { url, account_key, share } => self.attach(url, account_key, share),
            Event::Detach { url } => self.detach_url(&url),
            Event::DocumentOffered(document) => self.offer_document(document),
            Event::DocumentUnreadable { version, reason } => self.refuse_document(version, reason),
            Event::OwnerSuspended(suspended) => self.owner_suspends(suspended),
            Event::OwnerExcludedDevices(devices) => self.owner_excludes(devices),
            Event::ContactRequested { url, by } => self.request_contact(&url, by),
            Event::MasterPageRead { project, outcome } => self.master_page_read(project, outcome),
            Event::SchedulerAnswered { project, outcome } => self.scheduler_answered(project, outcome),
            Event::DownloadEnded { file, outcome } => self.download_ended(&file, outcome),
            Event::UploadEnded { file, outcome } => self.upload_ended(&file, outcome),
            Event::TrafficMeasured(traffic) => self.traffic_measured(&traffic),
            Event::TaskStarted { job, pid } => self.task_started(job, pid),
            Event::TaskStartFailed { job, reason, fault } => self.task_start_failed(job, reason, fault),
            Event::TasksSampled(samples) => self.tasks_sampled(samples),
            Event::TrickleFound { job, name, nbytes } => self.trickle_found(job, &name, nbytes),
            Event::UploadWanted { job, output } => self.upload_wanted(job, output),
            Event::TaskEnded { job, end } => self.task_ended(job, &end),
            Event::OutputsGone { job } => self.outputs_deleted(job),
            Event::HostMeasured(facts) => self.edit_host(*facts),
        }
    }

    /// Does what time alone makes due, and what the event left to be decided.
    fn poll(&mut self) {
        self.wake_tasks();
        let connected = self.is_connected();
        if connected {
            self.poll_transfers();
        }
        self.poll_stalls();
        self.poll_limits();
        let overdue = self.now >= self.decide_by || self.decided_at > self.now;
        if self.schedule_due || overdue {
            self.schedule();
        }
        self.poll_throttle();
        if connected {
            self.poll_network();
        }
        self.drop_finished_projects();
        let old = self.now.since(self.saved_at) >= SAVE_PERIOD || self.saved_at > self.now;
        if self.config.keeps_records && old {
            self.save_running();
        }
    }

    fn save_running(&mut self) {
        self.saved_at = self.now;
        self.mark(Record::Ledger);
        if self.now.since(self.metrics_saved_at) >= METRICS_SAVE_PERIOD || self.metrics_saved_at > self.now {
            self.metrics_saved_at = self.now;
            self.mark(Record::Metrics);
        }
        let running: Vec<JobId> = self.state.jobs.slots().values().copied().collect();
        for job in running {
            self.mark(Record::Job(job));
        }
    }

    fn next_wake_up(&self) -> Instant {
        let computing = self.config.keeps_records
            && self
                .state
                .jobs
                .slots()
                .values()
                .any(|job| self.state.jobs.get(job).is_some_and(|job| job.process.exists()));
        let mut at = self
            .next_network_wake_up()
            .min(if self.net.closed_until.is_some() {
                Instant::FAR_FUTURE
            } else {
                self.next_transfer_wake_up()
            })
            .min(self.next_stall())
            .min(self.next_task_wake_up())
            .min(self.next_decision())
            .min(self.next_throttle());
        if computing && self.config.keeps_records {
            at = at.min(self.saved_at + SAVE_PERIOD);
        }
        // A project left, or a start failed, after the decision was made.
        if self.schedule_due {
            at = self.now;
        }
        // Never at once again for something that only an event can change.
        at.max(self.now + Duration::from_millis(100)).min(self.now + LOOK_PERIOD)
    }

    pub(crate) fn finish_step(&mut self, wake_at: Option<Instant>) -> Step {
        // Taken apart only if there is something: there is a step for every event.
        let told = if self.told.is_empty() { BTreeMap::new() } else { std::mem::take(&mut self.told) };
        for (project, told) in told {
            if told > NOTICES_MAX {
                let text = format!("... and {} more of such notices about this project", told - NOTICES_MAX);
                self.announce(NoticeLevel::Warn, Some(project), text);
            }
        }
        if !self.config.keeps_records {
            self.dirty.clear();
            let (actions, durable) = (std::mem::take(&mut self.actions), std::mem::take(&mut self.durable));
            return Step { actions, durable, wake_at, ..Step::default() };
        }
        let mut dirty = std::mem::take(&mut self.dirty);
        // The ledger holds the charges of all jobs: after a crash, what only it knew would be charged again.
        if dirty.contains(&Record::Ledger) {
            dirty.extend(std::mem::take(&mut self.charged).into_iter().map(Record::Job));
        }
        Step {
            actions: std::mem::take(&mut self.actions),
            changes: dirty.iter().map(|record| record.change(&self.state, &self.ledger)).collect(),
            durable: std::mem::take(&mut self.durable),
            wake_at,
            touched: std::mem::take(&mut self.touched).into_iter().collect(),
        }
    }

    /// The preferences in force: the document's under the owner's limits.
    pub(crate) fn preferences(&self) -> &Preferences {
        &self.effective
    }

    /// The document or the owner's limits changed.
    pub(crate) fn preferences_changed(&mut self) {
        let wished = self.state.meta.document.as_ref().map(|document| document.preferences.clone());
        self.effective = wished.unwrap_or_default().tightened(&self.state.meta.owner);
        self.host_changed();
    }

    /// CPUs that may be used now (R2.6).
    pub(crate) fn usable_cpus(&self) -> u32 {
        let ncpus = self.state.host.as_ref().map_or(1, |host| host.ncpus);
        self.preferences().usable_cpus(ncpus)
    }

    pub(crate) fn act(&mut self, effect: Effect, reason: Reason) {
        self.actions.push(Action { effect, reason });
    }

    pub(crate) fn notice(&mut self, level: NoticeLevel, project: Option<ProjectId>, text: impl Into<String>) {
        if !self.config.keeps_records && level == NoticeLevel::Info {
            return;
        }
        if let Some(project) = project {
            let told = self.told.entry(project).or_default();
            *told += 1;
            if *told > NOTICES_MAX {
                return;
            }
        }
        self.announce(level, project, text);
    }

    /// A notice that is told however many there were before it: one that sums up others.
    pub(crate) fn announce(
        &mut self,
        level: NoticeLevel,
        project: Option<ProjectId>,
        text: impl Into<String>,
    ) {
        let effect = Effect::Notice { level, project, text: text.into() };
        self.act(effect, Reason::new("notice", String::new()));
    }

    /// A text for people, where somebody may read it.
    pub(crate) fn said(&self, text: impl FnOnce() -> String) -> String {
        if self.config.keeps_records { text() } else { String::new() }
    }

    /// Stores a record at the end of the step, and lets its view be sent.
    pub(crate) fn mark(&mut self, record: Record) {
        if !self.config.keeps_records {
            return;
        }
        match &record {
            Record::Meta => self.touch(Entity::Host),
            Record::Project(id) => self.touch(Entity::Project(*id)),
            Record::Job(id) => {
                self.touch(Entity::Job(*id));
                // A job says how much of it is charged, the ledger what the charges add up to: both or
                // neither.
                self.dirty.insert(Record::Ledger);
            }
            Record::Ledger | Record::Metrics | Record::Version(_) | Record::Workunit(_) | Record::File(_) => {
            }
        }
        self.dirty.insert(record);
    }

    /// The same, and it must survive a power cut.
    pub(crate) fn mark_durable(&mut self, record: Record) {
        self.durable = true;
        self.mark(record);
    }

    /// Stores a record at the end of the step, of which no view shows what has changed.
    pub(crate) fn store_only(&mut self, record: Record) {
        self.dirty.insert(record);
    }

    pub(crate) fn touch(&mut self, entity: Entity) {
        if self.config.keeps_records {
            self.touched.insert(entity);
        }
    }

    /// The host's stream, used only through this, so that a restart knows how far it was.
    pub(crate) fn draw(&mut self) -> &mut Pcg64Mcg {
        self.note_draw();
        &mut self.rng
    }

    /// Changes a project's RPC timing by something that may need a draw.
    pub(crate) fn with_rpc<T>(
        &mut self,
        id: ProjectId,
        change: impl FnOnce(&mut RpcState, &mut Pcg64Mcg) -> T,
    ) -> Option<T> {
        self.note_draw();
        let rng = &mut self.rng;
        let (told, found) = self.state.projects.edit_rpc(id, |rpc| change(rpc, rng))?;
        self.note_project_difference(id, found);
        Some(told)
    }
}
