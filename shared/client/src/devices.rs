//! What may be used of the host, and how GPU tasks leave devices that others are to have (R3.14).

use std::num::NonZeroU32;

use fallow_domain::{
    Bytes, CoprocessorDevice, Device, Fraction, HostFacts, JobId, LocalPreferences, PerType, Preferences,
    ResourceType,
};
use fallow_policy::job_queue::Devices;
use fallow_policy::plan_host::PlanHost;

use crate::known_devices::{DeviceTemperature, DeviceUser, KnownDevices, LOOK_PERIOD};
use crate::machine::Client;
use crate::record::Record;
use crate::state::{Job, Process, Stage};
use crate::timers::Timer;
use crate::{Cause, Effect, Entity, NoticeLevel};

/// The steps in which plans follow the share of time that computing is possible.
const ACTIVE_STEP: f64 = 0.01;

/// What may be used of the host under the preferences in force, kept because it is asked for at every turn.
#[derive(Clone, Debug)]
pub(crate) struct Usable {
    host: PlanHost,
    devices: PerType<Devices>,
    /// Whether the host was measured in this life of the agent.
    is_measured: bool,
    /// The share of time that computing is possible, as plans take it.
    active: f64,
}

impl Default for Usable {
    fn default() -> Self {
        Self { host: PlanHost::cpus(1), devices: PerType::default(), is_measured: false, active: 1.0 }
    }
}

impl Usable {
    /// What it becomes by what was measured, or by other preferences.
    fn measured(
        &self,
        facts: &HostFacts,
        (preferences, local): (&Preferences, &LocalPreferences),
        known: &KnownDevices,
    ) -> Self {
        let mut devices = PerType::default();
        let mut host = PlanHost::new(facts, preferences, Fraction::ONE);
        for coprocessor in facts.coprocessors.iter().filter(|coprocessor| coprocessor.kind.is_coprocessor()) {
            let kind = coprocessor.kind;
            if !local.use_gpus {
                host.instances[kind] = 0;
                continue;
            }
            let free = known.free(kind);
            let all = free.unwrap_or_else(|| Devices::first(coprocessor.count));
            devices[kind] = preferences.excluded(kind).fold(all, Devices::without);
            if free.is_some() {
                host.instances[kind] = devices[kind].count();
            }
        }
        Self { host, devices, is_measured: true, active: self.active }
    }

    /// Takes in the measured share of time that computing is possible. It moves all the time; plans follow it
    /// in steps.
    pub(crate) fn follow_active(&mut self, active: Fraction) {
        if (active.get() - self.active).abs() > ACTIVE_STEP {
            self.active = active.get();
        }
    }

    fn plan_host(&self) -> PlanHost {
        PlanHost { active_fraction: Fraction::clamped(self.active), ..self.host }
    }
}

/// The devices that a job runs on, if it is a coprocessor's.
pub(crate) fn devices_of(job: &Job) -> Option<(ResourceType, Devices)> {
    job.usage.coprocessor.map(|(kind, _)| (kind, job.run.devices))
}

impl Client {
    /// The host as the policies plan with it.
    pub(crate) fn plan_host(&self) -> PlanHost {
        self.usable.plan_host()
    }

    /// The devices of each coprocessor type that may be used (R3.14).
    pub(crate) fn usable_devices(&self) -> PerType<Devices> {
        self.usable.devices
    }

    /// Those of them on which something may be begun now: it is known who uses them.
    pub(crate) fn devices_to_begin_on(&self) -> PerType<Devices> {
        let may_begin = |kind, number: &u32| self.known_devices.may_begin(kind, *number);
        self.usable.devices.map(|kind, devices| devices.iter().filter(|one| may_begin(kind, one)).collect())
    }

    /// Whether a device may be used.
    pub(crate) fn may_use(&self, kind: ResourceType, device: &CoprocessorDevice) -> bool {
        let number = self.known_devices.number_of(kind, &device.address);
        number.is_some_and(|number| self.usable.devices[kind].contains(number))
    }

    /// The most that was seen free of a device's memory: what our own tasks hold of it now is not said.
    pub(crate) fn most_free(&self, kind: ResourceType, device: &CoprocessorDevice) -> Bytes {
        let number = self.known_devices.number_of(kind, &device.address);
        let known = number.and_then(|number| self.known_devices.device(kind, number));
        known.map_or(device.free, |known| known.free)
    }

    /// The host was measured, or preferences changed: works out what may be used of it. What it offered until
    /// now earned projects their debts until now; what it offered in an earlier life of the agent is not
    /// known.
    pub(crate) fn host_changed(&mut self) {
        let usable = match self.state.host.facts() {
            Some(facts) => {
                let preferences = (self.preferences(), self.local_preferences());
                self.usable.measured(facts, preferences, &self.known_devices)
            }
            None => Usable::default(),
        };
        if self.usable.is_measured && self.usable.host != usable.host {
            self.settle_long_term();
            self.mark(Record::Ledger);
        }
        self.usable = usable;
        self.leave_excluded_devices();
    }

    /// Whether there is a coprocessor that jobs may use while nobody uses the host.
    pub(crate) fn has_usable_devices(&self) -> bool {
        ResourceType::COPROCESSORS.into_iter().any(|kind| self.usable.devices[kind].count() > 0)
    }

    /// Whether a task stands on devices that must not be used any more.
    pub(crate) fn is_excluded(&self, job: &Job) -> bool {
        devices_of(job).is_some_and(|(kind, devices)| !devices.are_within(self.usable.devices[kind]))
            || self.is_barred(job)
    }

    /// Why a task has to leave its devices.
    pub(crate) fn why_left(&self, id: JobId) -> Cause {
        let held = self.state.jobs.get(&id).and_then(devices_of);
        let (kind, devices) = held.unwrap_or((ResourceType::Cpu, Devices::NONE));
        let bad = devices.iter().filter(|number| !self.usable.devices[kind].contains(*number));
        let named = bad.filter_map(|number| Device::new(kind, number).ok());
        let mut why: Vec<String> = named.map(|one| format!("{one} is {}", self.device_state(one))).collect();
        if self.state.jobs.get(&id).is_some_and(|job| self.is_barred(job)) {
            why.push("preferences keep it from this project (excluded_of_projects)".to_owned());
        }
        Cause::DeviceExcluded(why.join(", "))
    }

    /// What a job ran on, for whoever looks for a broken device among many (R3.14).
    pub(crate) fn ran_on(&self, kind: ResourceType, devices: Devices) -> String {
        let at = devices.iter().filter_map(|number| self.known_devices.device(kind, number));
        let at: Vec<String> = at.map(|one| format!("{} at {}", one.model, one.address)).collect();
        let which = if at.is_empty() { String::new() } else { format!(" ({})", at.join(", ")) };
        format!(" on {kind} {devices}{which}")
    }

    /// Somebody looked who uses devices.
    pub(crate) fn devices_seen(&mut self, users: &[DeviceUser]) {
        let first = self.known_devices.awaits_look();
        let before = self.usable.devices;
        let news = self.known_devices.seen(users, self.now());
        self.devices_changed(news, before);
        if first {
            self.want_schedule();
        }
    }

    /// Somebody looked how hot devices are.
    pub(crate) fn devices_felt(&mut self, temperatures: &[DeviceTemperature]) {
        self.known_devices.felt(temperatures);
        self.judge_heat();
    }

    /// Devices have other temperatures, or the host's preferences allow them others.
    pub(crate) fn judge_heat(&mut self) {
        let before = self.usable.devices;
        let most = self.local_preferences().gpu_temperature_max;
        let news = self.known_devices.judge_heat(most.map(NonZeroU32::get));
        if !news.is_empty() {
            self.devices_changed(news, before);
        }
    }

    /// Devices that nobody uses any more may be used again.
    pub(crate) fn poll_devices(&mut self) {
        if !self.timers.may_be_due(Timer::Devices, self.now()) {
            return;
        }
        let before = self.usable.devices;
        let news = self.known_devices.release(self.now());
        self.devices_changed(news, before);
    }

    fn devices_changed(&mut self, news: Vec<String>, before: PerType<Devices>) {
        self.timers.stale(Timer::Devices);
        for text in news {
            self.notice(NoticeLevel::Info, None, text);
        }
        self.host_changed();
        if self.usable.devices != before {
            self.touch(Entity::Host);
            self.reassess_all();
            self.want_schedule();
            self.want_fetch();
        }
    }

    /// When a device is released that was in use.
    pub(crate) fn next_device(&self) -> Option<fallow_domain::Instant> {
        self.known_devices.next_release()
    }

    /// Has somebody look who uses devices while that matters: there are jobs for them, and computing is
    /// allowed.
    pub(crate) fn look_at_devices(&mut self) {
        let waits = |job: &Job| {
            let kind = job.usage.coprocessor.map(|(kind, _)| kind);
            let is_known = kind.is_some_and(|kind| self.known_devices.tells_of(kind));
            is_known && job.stage == Stage::Runnable && job.outcome.is_none()
        };
        let knows = ResourceType::COPROCESSORS.into_iter().any(|kind| self.known_devices.tells_of(kind));
        let may_compute = !self.preferences().suspended && !self.state.host.spares_devices();
        let matters = knows && may_compute && self.state.jobs.values().any(waits);
        if self.known_devices.look(matters) {
            self.act(Effect::WatchDevices(matters.then_some(LOOK_PERIOD)), Cause::DevicesMatter(matters));
        }
    }

    /// Tasks that wait in the memory of a device which must not be used any more leave it at once. Those that
    /// run are preempted by the decision that follows.
    fn leave_excluded_devices(&mut self) {
        let held = self.state.jobs.slots().values().filter_map(|id| self.state.jobs.get(id));
        let waits = |job: &&Job| matches!(job.process, Process::Suspended(_)) && self.is_excluded(job);
        let waiting: Vec<JobId> = held.filter(waits).map(|job| job.id).collect();
        for id in waiting {
            let pid = self.state.jobs.get(&id).and_then(|job| job.process.pid());
            self.act(Effect::QuitTask { job: id }, self.why_left(id));
            self.set_process(id, Process::Quitting(pid));
        }
    }

    /// Whether a task that was told to leave one of the devices that a job is to run on is still there: it
    /// holds the memory of the device until its process is gone.
    pub(crate) fn is_being_left(&self, id: JobId, devices: Devices) -> bool {
        let Some((wanted, _)) = self.state.jobs.get(&id).and_then(devices_of) else { return false };
        let held = self.state.jobs.slots().values().filter_map(|id| self.state.jobs.get(id));
        let quitting = held
            .filter(|job| matches!(job.process, Process::Quitting(_) | Process::Aborting(_)))
            .filter_map(devices_of);
        quitting.chain(self.state.slots.devices()).any(|(kind, held)| kind == wanted && held.meet(devices))
    }
}
