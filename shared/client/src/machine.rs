//! The machine itself: takes an event, lets each part act on it, then looks what is due, and says when to
//! call again.

use fallow_boinc::scheduler::ClientVersion;
use fallow_domain::{Duration, Instant, LocalPreferences, Preferences, ProjectId};
use fallow_policy::composition::Composition;
use fallow_policy::fetch::FetchDecision;
use fallow_policy::hopeless::AbortWhich;
use fallow_policy::other_network::OtherNetwork;
use fallow_policy::round_robin::RoundRobin;
use fallow_policy::rpc_session::Sessions;
use fallow_policy::rpc_timing::RpcState;
use rand_pcg::Pcg64Mcg;

use crate::accounts::Ledger;
use crate::actions::Actions;
use crate::app_configs::AppConfigs;
use crate::attaching::Attachments;
use crate::carried::Carried;
use crate::clock::Clock;
use crate::connection::Access;
use crate::decision::Decision;
use crate::devices::Usable;
use crate::disk::Disk;
use crate::held_back::HeldBack;
use crate::known_devices::KnownDevices;
use crate::messages::Hearings;
use crate::pages::Pages;
use crate::planning::Planned;
use crate::presence::Presence;
use crate::random::Random;
use crate::record::{self, Record, RestoreError};
use crate::records::Records;
use crate::reports::Reports;
use crate::stalls::Stalls;
use crate::state::State;
use crate::throttle::Throttle;
use crate::timers::{Timer, Timers};
use crate::trial::Watch;
use crate::wanted::Wanted;
use crate::wifi::Wifi;
use crate::workload::Workload;
use crate::{Effect, Event, Reason, Step};

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
    /// One that does not is asked to call every few seconds while tasks compute: a longer time without a
    /// call was slept through.
    pub tells_away: bool,
    /// Whether a later life of the client may follow other policies, as an agent's may. Then it learns what
    /// any policy looks at, and not only what its own does.
    pub may_change_policy: bool,
    /// How long a new version of the fleet's document is on trial before the client goes back from it
    /// (R6.5), in time in which the agent is up. None where nobody says what a coordinator has acknowledged
    /// ([`Event::DocumentAcknowledged`]): then each version holds from the beginning.
    pub confirm_within: Option<Duration>,
    /// How often the shell measures the disk when [`Effect::MeasureDisk`] asks for it (R4.1). None where it
    /// does not, as in a simulation: then files are fetched and kept as if there were space for all.
    pub measure_disk: Option<Duration>,
    /// Whether jobs may have the network where preferences allow it and their application asks for it
    /// (R6.10): the owner's word that no document widens.
    pub jobs_network: bool,
    /// Whether the shell looks around as [`Client::looks_for`] asks, and answers each question. Then no job
    /// is started before the first look that was made for it. One that does not, as in a simulation, says by
    /// itself what happens there.
    pub answers_looks: bool,
    /// Whether input is told where there is some. Where nobody looks for it, it is not missed (R6.4).
    pub senses_input: bool,
}

impl ClientConfig {
    /// The default policies, which may be others one day, on a host that may go to sleep unnoticed.
    pub fn new(seed: u64, version: ClientVersion) -> Self {
        let composition = Composition::default();
        Self {
            seed,
            version,
            composition,
            tells_away: false,
            may_change_policy: true,
            confirm_within: None,
            measure_disk: None,
            jobs_network: false,
            answers_looks: false,
            senses_input: true,
        }
    }

    /// Whether the CPU time that projects got of late is wanted.
    pub(crate) fn learns_recent_cpu(&self) -> bool {
        self.may_change_policy || self.composition.fetch.ranks_by_recent_cpu()
    }

    /// Whether it is wanted when the host is on, and how long there is no chance to get work.
    pub(crate) fn learns_habits(&self) -> bool {
        let Composition { fetch, send, abort, .. } = self.composition;
        let any_looks = fetch.looks_at_habits() || send.needs_on_time() || abort != AbortWhich::None;
        self.may_change_policy || any_looks
    }

    /// Whether it is wanted what the last jobs of each version took.
    pub(crate) fn learns_experience(&self) -> bool {
        let Composition { completion, abort, .. } = self.composition;
        self.may_change_policy || completion.looks_at_versions() || abort != AbortWhich::None
    }
}

/// A volunteer-computing client. See the crate's documentation for how to turn it.
#[derive(Debug)]
pub struct Client {
    pub(crate) config: ClientConfig,
    pub(crate) state: State,
    pub(crate) ledger: Ledger,
    /// What policies hold of each job.
    pub(crate) workload: Workload,
    /// RPCs in flight, and those that failed.
    pub(crate) sessions: Sessions,
    /// Master pages that are being read.
    pub(crate) pages: Pages,
    /// Whether the network may be used.
    pub(crate) access: Access,
    /// What RPCs in flight carry.
    pub(crate) carried: Carried,
    /// With whom somebody wants contact.
    pub(crate) wanted: Wanted,
    /// What is due for reporting.
    pub(crate) reports: Reports,
    /// What the owner says of projects' applications.
    pub(crate) app_configs: AppConfigs,
    /// What projects say.
    pub(crate) hearings: Hearings,
    /// Transfers that failures of others hold back.
    pub(crate) held_back: HeldBack,
    /// Whether transfers wait for other programs.
    pub(crate) other_network: OtherNetwork,
    /// Files give way to somebody who has the machine for himself.
    pub(crate) files_yield: bool,
    /// Whether they wait for WiFi.
    pub(crate) wifi: Wifi,
    /// Downloads that come to nothing, and what is enough.
    pub(crate) stalls: Stalls,
    /// Projects that somebody waits for, who wants to know whether they accept his account.
    pub(crate) attaching: Attachments,
    /// What runs.
    pub(crate) schedule: Decision<()>,
    /// What work to ask of whom.
    pub(crate) fetch: Decision<FetchDecision>,
    /// What becomes of the work held.
    pub(crate) round_robin: RoundRobin,
    /// A buffer for the projects of a round-robin simulation, used again each time.
    pub(crate) planned: Planned,
    /// The devices of the host, and who uses them.
    pub(crate) known_devices: KnownDevices,
    /// What may be used of the host.
    pub(crate) usable: Usable,
    /// The disk, as it was measured.
    pub(crate) disk: Disk,
    /// The limit on CPU time, and measurements of the CPUs.
    pub(crate) throttle: Throttle,
    pub(crate) clock: Clock,
    /// Whether the host is there, and when the shell is to call.
    pub(crate) presence: Presence,
    /// The trial of a document.
    pub(crate) watch: Watch,
    pub(crate) timers: Timers,
    pub(crate) random: Random,
    /// What is to be done in this step.
    pub(crate) actions: Actions,
    /// What is to be stored, and whom to show, if anybody wants to know.
    pub(crate) records: Records,
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
        state.host.in_use_mut().set_sensed(config.senses_input);
        let mut ledger = Ledger::default();
        for (key, value) in records {
            record::restore(&mut state, &mut ledger, &key, &value)?;
        }
        let random = Random::after(config.seed, state.host.draws);
        let mut client = Self {
            config,
            state,
            ledger,
            workload: Workload::default(),
            sessions: Sessions::default(),
            pages: Pages::default(),
            access: Access::default(),
            carried: Carried::default(),
            wanted: Wanted::default(),
            reports: Reports::default(),
            app_configs: AppConfigs::default(),
            hearings: Hearings::default(),
            held_back: HeldBack::default(),
            other_network: OtherNetwork::default(),
            files_yield: false,
            wifi: Wifi::default(),
            stalls: Stalls::default(),
            attaching: Attachments::default(),
            schedule: Decision::default(),
            fetch: Decision::default(),
            round_robin: RoundRobin::default(),
            planned: Planned::default(),
            known_devices: KnownDevices::default(),
            usable: Usable::default(),
            disk: Disk::default(),
            throttle: Throttle::default(),
            clock: Clock::default(),
            presence: Presence::default(),
            watch: Watch::default(),
            timers: Timers::default(),
            random,
            actions: Actions::default(),
            records: Records::default(),
        };
        client.rebuild();
        Ok(client)
    }

    /// Takes an event in, at the time `now`, and says what follows from it. Pure: the same client, time and
    /// event give the same step.
    pub fn handle(&mut self, now: Instant, event: Event) -> Step {
        if self.clock.turn(now) {
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
        if self.presence.is_away() {
            if news {
                // What follows from it is decided when the host is back.
                self.presence.set_due_at_once();
            }
            self.presence.ask_for_no_call();
            return self.finish_step(None);
        }
        if !self.is_up() {
            return self.finish_step(None);
        }
        // Coming back changes nothing by itself: what became due meanwhile is seen to by the wake-up asked
        // for before.
        if !back || self.presence.is_due(now) {
            self.poll();
            let due_at = self.next_wake_up();
            self.presence.set_due(due_at);
            #[cfg(test)]
            crate::tests::wake_up::check(self, due_at);
        }
        let call_at = self.presence.ask_for_call();
        self.finish_step(Some(call_at))
    }

    /// What waits for a time waits no longer than it was meant to (R1.12).
    pub(crate) fn clock_set_back(&mut self) {
        self.transfers_observe();
        self.observe_attaching();
        self.ledger.observe_backoffs(self.clock.now());
        for id in self.ledger.experience_set_back(self.clock.now()) {
            self.store_only(Record::Experience(id));
        }
        self.state.projects.observe(self.clock.now());
        if self.state.host.observe(self.clock.now()) {
            self.mark(Record::Meta);
        }
        self.reports.forget();
        self.disk.observe(self.clock.now());
        self.other_network.observe(self.clock.now());
        self.timers.clock_set_back();
        self.presence.clock_set_back(self.clock.now());
        self.presence.set_due_at_once();
    }

    fn is_up(&self) -> bool {
        self.state.host.facts().is_some()
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::Started(startup) => self.start(*startup),
            Event::WakeUp => self.give_up_attaching(),
            Event::HostAway => self.presence.leave(),
            Event::HostBack => self.presence.come_back(),
            Event::BenchmarksRun(what) => self.benchmarks_run(what),
            Event::Attach(request) => self.attach_for(request),
            Event::WaiterGone(waiter) => self.attach_unseen(waiter),
            Event::Ending => self.stop_attaching(),
            Event::Detach { url } => self.detach_url(&url),
            Event::FleetJoined { authority } => self.join_fleet(authority),
            Event::DocumentOffered(document) => self.offer_document(*document),
            Event::DocumentUnreadable { version, reason } => self.refuse_document(version, reason),
            Event::DocumentAcknowledged { version, taken_at } => {
                self.document_acknowledged(version, taken_at);
            }
            Event::LocalTime(local) => self.set_local_time(local),
            Event::OwnerInput { ago } => self.owner_input(ago),
            Event::OwnerUnseen(unseen) => self.owner_unseen(unseen),
            Event::TasksFrozen => self.tasks_frozen(),
            Event::Snoozed(time) => self.snooze(time),
            Event::PreferenceFilesRead(files) => self.preference_files_read(*files),
            Event::AppConfigsRead(found) => self.app_configs_read(found),
            Event::NewAppConfigsRead(found) => self.new_app_configs_read(found),
            Event::LayersSeen(layers) => self.layers_seen(layers),
            Event::SurroundingsSeen(seen) => self.surroundings_seen(seen),
            Event::NetworkMoved(moved) => self.network_moved(moved),
            Event::OwnerSuspended(suspended) => self.owner_suspends(suspended),
            Event::OwnerExcludedDevices(devices) => self.owner_excludes(devices),
            Event::DevicesSeen(users) => self.devices_seen(&users),
            Event::DevicesFelt(temperatures) => self.devices_felt(&temperatures),
            Event::ContactRequested { url, by } => self.request_contact(&url, by),
            Event::MasterPageRead { project, outcome } => self.master_page_read(project, outcome),
            Event::SchedulerAnswered { project, outcome } => self.scheduler_answered(project, outcome),
            Event::DownloadEnded { file, outcome } => self.download_ended(&file, outcome),
            Event::UploadEnded { file, outcome } => self.upload_ended(&file, outcome),
            Event::TrafficMeasured(traffic) => self.traffic_measured(&traffic),
            Event::FilesMoved { up, down } => self.files_moved(up, down),
            Event::TaskStarted { job, pid, without } => self.task_started(job, pid, without),
            Event::TaskStartFailed { job, reason, fault } => self.task_start_failed(job, reason, fault),
            Event::TasksSampled(samples) => self.tasks_sampled(&samples),
            Event::TrickleFound { job, name, nbytes } => self.trickle_found(job, &name, nbytes),
            Event::UploadWanted { job, output } => self.upload_wanted(job, output),
            Event::TaskEnded { job, end } => self.task_ended(job, &end),
            Event::OutputsGone { job } => self.outputs_deleted(job),
            Event::HostMeasured(facts) => self.edit_host(*facts),
            Event::VolumeSeen { free } => self.volume_seen(free),
            Event::DiskMeasured(found) => self.disk_measured(found.map(|found| *found)),
        }
    }

    /// Does what time alone makes due, and what the event left to be decided.
    fn poll(&mut self) {
        // What can bring jobs to those that may run comes before it is known what looks are for.
        self.poll_devices();
        self.wake_tasks();
        self.poll_looks();
        self.poll_in_use();
        self.poll_hours();
        self.poll_disk();
        self.poll_quota();
        self.poll_wifi();
        self.poll_people();
        self.poll_other_network();
        let connected = self.is_connected();
        if connected {
            self.poll_transfers();
        }
        self.poll_stalls();
        self.poll_limits();
        if self.schedule.is_due(self.now()) {
            self.decide_what_runs();
        }
        self.poll_benchmarks();
        self.poll_throttle();
        if connected {
            self.poll_network();
        }
        self.poll_trial();
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

    pub(crate) fn now(&self) -> Instant {
        self.clock.now()
    }

    /// The preferences beside those of a document, in force.
    pub(crate) fn local_preferences(&self) -> &LocalPreferences {
        &self.state.host.merged().values.fleet.local
    }

    /// The preferences in force: the document's under the owner's limits.
    pub(crate) fn preferences(&self) -> &Preferences {
        self.state.host.preferences()
    }

    /// CPUs that may be used now (R2.6).
    pub(crate) fn usable_cpus(&self) -> u32 {
        let ncpus = self.state.host.facts().map_or(1, |host| host.ncpus);
        self.preferences().usable_cpus(ncpus)
    }

    pub(crate) fn act(&mut self, effect: Effect, reason: impl Into<Reason>) {
        self.actions.add(effect, reason.into());
    }

    /// Changes a project's RPC timing by something that may need a draw.
    pub(crate) fn with_rpc<T>(
        &mut self,
        id: ProjectId,
        change: impl FnOnce(&mut RpcState, &mut Pcg64Mcg) -> T,
    ) -> Option<T> {
        self.note_draw();
        let rng = self.random.stream();
        let edited = self.state.projects.edited_rpc(id, |rpc| change(rpc, rng))?;
        Some(self.take_in_rpc(id, edited))
    }
}
