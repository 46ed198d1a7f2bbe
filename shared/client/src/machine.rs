//! The machine itself: takes an event, lets each part act on it, then looks what is due, and says when to
//! call again.

use std::collections::{BTreeMap, BTreeSet};

use fallow_boinc::scheduler::ClientVersion;
use fallow_domain::{Instant, JobId, Preferences, ProjectId};
use fallow_policy::completion::Basis;
use fallow_policy::composition::Composition;
use fallow_policy::job_queue::JobQueue;
use fallow_policy::metrics::ProjectStretch;
use fallow_policy::round_robin::RoundRobin;
use fallow_policy::rpc_timing::RpcState;
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::SeedableRng;

use crate::attaching::Attachments;
use crate::carried::Carried;
use crate::connection::Access;
use crate::decision::Decision;
use crate::devices::Usable;
use crate::held_back::HeldBack;
use crate::incoming::Incoming;
use crate::ledger::Ledger;
use crate::messages::Hearings;
use crate::record::{self, RestoreError};
use crate::records::Records;
use crate::reports::Reports;
use crate::rpc::Network;
use crate::set_aside::SetAside;
use crate::stalls::Stalls;
use crate::state::State;
use crate::throttle::Throttle;
use crate::timers::{Timer, Timers};
use crate::wanted::Wanted;
use crate::{Action, Effect, Event, Reason, Step};

/// What does not change while a client lives.
#[derive(Clone, Debug)]
pub struct ClientConfig {
    /// Seed of the host's own random stream. Each host has another, or all would call at the same moment.
    pub seed: u64,
    /// The version that servers are told.
    pub version: ClientVersion,
    /// The policies that it follows (R5).
    pub composition: Composition,
    /// Whether the shell says when the host goes off or to sleep ([`Event::HostAway`]), as a simulation does.
    /// One that does not is asked to call every few seconds while there are tasks: a longer time without a
    /// call was slept through.
    pub tells_away: bool,
}

impl ClientConfig {
    /// The default policies, on a host that may go to sleep unnoticed.
    pub fn new(seed: u64, version: ClientVersion) -> Self {
        Self { seed, version, composition: Composition::default(), tells_away: false }
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
    /// Whether the network may be used.
    pub(crate) access: Access,
    /// What RPCs in flight carry.
    pub(crate) carried: Carried,
    /// With whom somebody wants contact.
    pub(crate) wanted: Wanted,
    /// What is due for reporting.
    pub(crate) reports: Reports,
    /// What projects say.
    pub(crate) hearings: Hearings,
    /// Transfers that failures of others hold back.
    pub(crate) held_back: HeldBack,
    /// Downloads that come to nothing, and what is enough.
    pub(crate) stalls: Stalls,
    pub(crate) rng: Pcg64Mcg,
    pub(crate) now: Instant,
    pub(crate) started_at: Instant,
    /// What runs.
    pub(crate) schedule: Decision,
    /// What work to ask of whom.
    pub(crate) fetch: Decision,
    pub(crate) round_robin: RoundRobin,
    /// What may be used of the host.
    pub(crate) usable: Usable,
    /// Memory for what the metrics are told at every turn.
    pub(crate) stretches: Vec<ProjectStretch>,
    /// The share of time that computing is possible, as plans take it.
    pub(crate) planned_active: f64,
    /// When it was last noted that the host is awake ([`ClientConfig::tells_away`]).
    pub(crate) seen_awake_at: Instant,
    pub(crate) timers: Timers,
    /// When the shell was asked to call again.
    pub(crate) wake_at: Instant,
    /// When something is due next, whether the host is there or not.
    due_at: Instant,
    pub(crate) records: Records,
    /// What the queue's estimates were made from, beside the jobs themselves.
    pub(crate) queued_by: BTreeMap<ProjectId, Basis>,
    pub(crate) actions: Vec<Action>,
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
    /// Projects that somebody waits for, who wants to know whether they accept his account.
    pub(crate) attaching: Attachments,
}

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
            access: Access::default(),
            carried: Carried::default(),
            wanted: Wanted::default(),
            reports: Reports::default(),
            hearings: Hearings::default(),
            held_back: HeldBack::default(),
            stalls: Stalls::default(),
            rng,
            now: Instant::EPOCH,
            started_at: Instant::EPOCH,
            schedule: Decision::default(),
            fetch: Decision::default(),
            round_robin: RoundRobin::default(),
            planned_active: 1.0,
            usable: Usable::default(),
            stretches: Vec::new(),
            seen_awake_at: Instant::EPOCH,
            timers: Timers::default(),
            wake_at: Instant::EPOCH,
            due_at: Instant::EPOCH,
            throttle: Throttle::default(),
            records: Records::default(),
            queued_by: BTreeMap::new(),
            actions: Vec::new(),
            effective: Preferences::default(),
            set_aside: SetAside::default(),
            incoming: Incoming::default(),
            told_hopeless: BTreeSet::new(),
            away: false,
            attaching: Attachments::new(),
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
            #[cfg(test)]
            crate::tests::wake_up::check(self, self.due_at);
        }
        let wake_at = self.is_up().then_some(self.due_at);
        self.wake_at = wake_at.unwrap_or(self.wake_at);
        self.finish_step(wake_at)
    }

    /// What waits for a time waits no longer than it was meant to (R1.12).
    pub(crate) fn clock_set_back(&mut self) {
        self.transfers_observe();
        self.observe_attaching();
        self.ledger.type_backoffs.observe(self.now);
        self.state.projects.observe(self.now);
        self.reports.forget();
        self.timers.clock_set_back();
        self.due_at = Instant::EPOCH;
    }

    fn is_up(&self) -> bool {
        self.state.host.is_some()
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::Started(startup) => self.start(*startup),
            Event::WakeUp => self.give_up_attaching(),
            Event::HostAway => self.away = true,
            Event::HostBack => self.away = false,
            Event::BenchmarksRun(what) => self.benchmarks_run(what),
            Event::Attach(request) => self.attach_for(request),
            Event::WaiterGone(waiter) => self.attach_unseen(waiter),
            Event::Ending => self.stop_attaching(),
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
        if self.schedule.is_due(self.now) {
            self.decide_what_runs();
        }
        self.poll_throttle();
        if connected {
            self.poll_network();
        }
        self.drop_finished_projects();
        self.poll_watch();
        self.save_running();
    }

    /// What runs is to be decided: a CPU freed, a job arrived, failed or was aborted, preferences changed
    /// (R2.2, R2.6).
    pub(crate) fn want_schedule(&mut self) {
        self.schedule.want();
        self.timers.set(Timer::Schedule, Some(Instant::EPOCH));
    }

    /// The need for work is to be checked: the set of runnable jobs changed (R2.16), or whom to ask.
    pub(crate) fn want_fetch(&mut self) {
        self.fetch.want();
    }

    /// The preferences in force: the document's under the owner's limits.
    pub(crate) fn preferences(&self) -> &Preferences {
        &self.effective
    }

    /// The document or the owner's limits changed.
    pub(crate) fn preferences_changed(&mut self) {
        let wished = self.state.meta.document.as_ref().map(|document| document.preferences.clone());
        self.effective = wished.unwrap_or_default().tightened(&self.state.meta.owner);
        self.timers.stale(Timer::Throttle);
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
