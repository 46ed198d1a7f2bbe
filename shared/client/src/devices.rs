//! What may be used of the host, and how GPU tasks leave devices that others are to have (R3.14).

use fallow_domain::{Fraction, HostFacts, JobId, PerType, Preferences, ResourceType};
use fallow_policy::job_queue::Devices;
use fallow_policy::plan_host::PlanHost;

use crate::machine::Client;
use crate::record::Record;
use crate::state::{Job, Process};
use crate::{Cause, Effect};

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
    fn measured(&self, facts: &HostFacts, preferences: &Preferences) -> Self {
        let mut devices = PerType::default();
        for coprocessor in facts.coprocessors.iter().filter(|coprocessor| coprocessor.kind.is_coprocessor()) {
            let excluded = preferences.excluded(coprocessor.kind);
            devices[coprocessor.kind] = excluded.fold(Devices::first(coprocessor.count), Devices::without);
        }
        let host = PlanHost::new(facts, preferences, Fraction::ONE);
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

    /// The host was measured, or preferences changed: works out what may be used of it. What it offered until
    /// now earned projects their debts until now; what it offered in an earlier life of the agent is not
    /// known.
    pub(crate) fn host_changed(&mut self) {
        let usable = match self.state.host.facts() {
            Some(facts) => self.usable.measured(facts, self.preferences()),
            None => Usable::default(),
        };
        if self.usable.is_measured && self.usable.host != usable.host {
            self.settle_long_term();
            self.mark(Record::Ledger);
        }
        self.usable = usable;
        self.leave_excluded_devices();
    }

    /// Whether a task stands on devices that must not be used any more.
    pub(crate) fn is_excluded(&self, job: &Job) -> bool {
        devices_of(job).is_some_and(|(kind, devices)| !devices.are_within(self.usable.devices[kind]))
    }

    /// Tasks that wait in the memory of a device which must not be used any more leave it at once. Those that
    /// run are preempted by the decision that follows.
    fn leave_excluded_devices(&mut self) {
        let held = self.state.jobs.slots().values().filter_map(|id| self.state.jobs.get(id));
        let waits = |job: &&Job| matches!(job.process, Process::Suspended(_)) && self.is_excluded(job);
        let waiting: Vec<JobId> = held.filter(waits).map(|job| job.id).collect();
        for id in waiting {
            let pid = self.state.jobs.get(&id).and_then(|job| job.process.pid());
            self.act(Effect::QuitTask { job: id }, Cause::DeviceExcluded);
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
