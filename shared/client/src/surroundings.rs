//! What goes on at the host beside people: its power, its network, other programs (R6.2, R6.4; BOINC:
//! `run_on_batteries`, `battery_charge_min_pct`, `battery_max_temperature`, `network_wifi_only`,
//! `suspend_cpu_usage`, `exclusive_app`).
//!
//! Model: the shell looks every few seconds while there is something to look for and some job depends on it
//! ([`Client::looks_for`], [`fallow_policy::looks`]), and tells what it saw. While no job does, what was seen
//! before keeps nobody; no job is started before the first look that was made for it, or before a minute is
//! over in which none was. The load of other programs is what the CPUs did without the tasks: the shell knows
//! the first, the client the second. It is taken over two looks, for the tasks' time is known a little late,
//! and computing rests for a while from the last look at which it was too high, so that it does not come and
//! go.

use std::collections::BTreeSet;
use std::num::NonZeroU32;

use fallow_domain::agent_state::SuspendedBy;
use fallow_domain::{Duration, Fraction, Instant, LocalPreferences};
use fallow_policy::looks::{Asked, LookPace, Looking, PATIENCE, Stakes};

use crate::machine::Client;
use crate::state::{Job, Process};
use crate::timers::Timer;
use crate::{Cause, Effect, Entity, NoticeLevel};

/// For so long computing rests once other programs have used too much (BOINC's client likewise, 20 s).
const BUSY_FOR: Duration = Duration::from_secs(20);
/// So soon after a look another one says nothing: the tasks' own time is known by the second only, and what
/// is missing of it would look like that of others.
const TOO_SOON: Duration = Duration::from_secs(5);
/// A longer time between two looks says nothing: the host slept, or nobody looked.
const LOOKS_APART: Duration = Duration::from_secs(60);
/// A battery that was too hot has to cool by so many degrees, so that computing does not come and go.
const COOLED: u32 = 5;

/// What the shell sees around the tasks.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Surroundings {
    /// For which question ([`LooksFor::number`]).
    pub number: u64,
    /// The host runs on its battery.
    pub on_battery: bool,
    /// How far its battery is charged; none where that is not told, or was not looked at.
    pub battery_charge: Option<Fraction>,
    /// How hot it is in degrees Celsius, rounded up; likewise.
    pub battery_temperature: Option<u32>,
    /// What leads to the network; none where it was not looked at.
    pub network: Option<NetworkOver>,
    /// An exclusive program that runs, if any does.
    pub exclusive: Option<String>,
    /// The same of the programs that want coprocessors for themselves.
    pub gpu_exclusive: Option<String>,
    /// Hardly any memory is left on the host.
    pub memory_short: bool,
    /// What the CPUs have done so far; none where it was not looked at.
    pub cpu_worked: Option<CpuWork>,
}

/// What a host's way to the network begins with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NetworkOver {
    /// A wireless network.
    Wifi,
    /// Another interface, by its name.
    Other(String),
    /// Nothing: it has no way out.
    Nothing,
}

/// What all CPUs of the machine have done so far, for whomever.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuWork {
    /// The time that they have worked, together.
    pub time: Duration,
    /// How many there are.
    pub cpus: u32,
}

/// What there is to look for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LooksFor {
    /// How often.
    pub pace: LookPace,
    /// And why, as far as it is about computing.
    pub why: Looking,
    /// The number of this question, which the answer has as well. It rises when jobs wait for the answer.
    pub number: u64,
    /// Whether the host runs on its battery.
    pub battery: bool,
    /// How far its battery is charged.
    pub charge: bool,
    /// How hot its battery is.
    pub heat: bool,
    /// What leads to the network.
    pub wifi: bool,
    /// Whether one of these programs runs.
    pub programs: BTreeSet<String>,
    /// Whether one of these does.
    pub gpu_programs: BTreeSet<String>,
    /// How much the CPUs work.
    pub load: bool,
    /// What goes over the network ([`crate::Event::NetworkMoved`]).
    pub network: bool,
    /// Whether memory is short: there are tasks in it that do not run and would leave it.
    pub memory: bool,
}

/// A look at the CPUs.
#[derive(Clone, Copy, Debug)]
struct Look {
    at: Instant,
    /// Time that the CPUs have worked, and that of tasks in it.
    worked: Duration,
    ours: Duration,
}

/// What is known of all that; not stored.
#[derive(Clone, Debug, Default)]
pub(crate) struct Around {
    asked: Asked,
    /// The shell answers what it is asked, so jobs wait for that.
    answers: bool,
    seen: Surroundings,
    /// Jobs waited for a look until they were to wait no longer; that is not told yet.
    is_unanswered: bool,
    /// Its battery was hotter than it may be, and was not seen to have cooled since.
    is_hot: bool,
    /// It was looked how hot the battery is, and it does not tell.
    tells_no_heat: bool,
    /// The last looks at the CPUs, the newest one last.
    looks: Vec<Look>,
    /// Part of all CPUs that other programs used by the last looks.
    load: Option<Fraction>,
    busy_until: Option<Instant>,
    /// For what that began: how much others used, how much they may, and which preference says so.
    busy: Option<(Fraction, Fraction, &'static str)>,
}

impl LooksFor {
    /// Whether there is nothing to look at.
    pub fn is_nothing(&self) -> bool {
        let Self { pace, why, number, .. } = *self;
        *self == Self { pace, why, number, ..Self::default() }
    }
}

impl Surroundings {
    /// Whether nothing is seen.
    pub fn is_nothing(&self) -> bool {
        *self == Self { number: self.number, ..Self::default() }
    }
}

impl Around {
    /// It is looked for what these stakes say, from now on.
    pub(crate) fn ask(&mut self, stakes: Stakes, local: &LocalPreferences, now: Instant) {
        // The load of others is no matter of a start: it is known after two looks beside tasks.
        let wanted = !local.run_on_batteries
            || local.battery_charge_min.is_some()
            || local.battery_temperature_max.is_some()
            || !local.exclusive_programs.is_empty()
            || !local.exclusive_gpu_programs.is_empty();
        self.asked.look(Looking::at(stakes), wanted, now);
        self.is_unanswered |= self.answers && self.asked.give_up(now);
    }

    /// Whether the shell answers what it is asked.
    pub(crate) const fn set_answers(&mut self, answers: bool) {
        self.answers = answers;
    }

    /// Whether jobs wait for a look.
    pub(crate) fn is_awaited(&self) -> bool {
        self.awaited_until().is_some()
    }

    /// Until when they do.
    pub(crate) fn awaited_until(&self) -> Option<Instant> {
        self.asked.patience_ends().filter(|_| self.answers)
    }

    /// Whether it is to be told that they waited in vain. Then that is told.
    const fn tell_unanswered(&mut self) -> bool {
        std::mem::replace(&mut self.is_unanswered, false)
    }

    /// Whether it is looked, and what was seen is not from before.
    pub(crate) fn is_known(&self) -> bool {
        self.asked.looking().pace() > LookPace::Never && !self.is_awaited()
    }

    /// Takes in what was seen. `ours` is the CPU time of all tasks so far.
    fn take(&mut self, seen: Surroundings, now: Instant, ours: Duration) {
        self.asked.answer(seen.number);
        let is_soon = self.looks.last().is_some_and(|last| last.at <= now && now - last.at < TOO_SOON);
        match seen.cpu_worked {
            None => {
                self.load = None;
                self.looks.clear();
            }
            // Something else was looked for; what was known of the load holds.
            Some(_) if is_soon => {}
            Some(CpuWork { time, cpus }) => {
                let look = Look { at: now, worked: time, ours };
                let is_near = |look: &Look| look.at < now && now - look.at <= LOOKS_APART;
                self.looks.retain(is_near);
                self.load = self.looks.first().map(|first| first.load_until(&look, cpus));
                self.looks.push(look);
                if self.looks.len() > 2 {
                    self.looks.remove(0);
                }
            }
        }
        // While the host rests anyway nobody looks, so nothing is seen of the battery.
        self.tells_no_heat = seen.battery_temperature.is_none() && self.is_known();
        self.seen = seen;
    }

    /// Works out for what computing is to rest under these preferences.
    pub(crate) fn look(&mut self, now: Instant, local: &LocalPreferences, in_use: bool) {
        self.is_hot = match (local.battery_temperature_max, self.seen.battery_temperature) {
            (None, _) => false,
            (Some(most), Some(degrees)) => {
                degrees > most.get() || self.is_hot && degrees + COOLED > most.get()
            }
            // One that was hot has not cooled because nobody looks.
            (Some(_), None) => self.is_hot && !self.tells_no_heat,
        };
        let always = local.other_load_max.map(|most| (most, "other_load_max"));
        let then = local.other_load_max_in_use.map(|most| (most, "other_load_max_in_use"));
        let most = match (in_use, always, then) {
            (true, Some(one), Some(other)) => Some(if one.0 < other.0 { one } else { other }),
            (true, one, other) => one.or(other),
            (false, one, _) => one,
        };
        match (self.load, most) {
            (_, None) => self.busy_until = None,
            (Some(load), Some((most, key))) if load > most => {
                // As it began: it is not to be said anew with each look.
                if self.busy_until.is_none_or(|until| until <= now) {
                    self.busy = Some((load, most, key));
                }
                let since = self.looks.last().map_or(now, |look| look.at);
                self.busy_until = Some(since + BUSY_FOR);
            }
            _ => {}
        }
        self.busy_until = self.busy_until.filter(|until| now < *until);
    }

    /// What keeps the host from computing, by the last look, and in words.
    pub(crate) fn stops(&self, local: &LocalPreferences) -> Option<(SuspendedBy, String)> {
        match () {
            () if self.seen.on_battery && !local.run_on_batteries => {
                Some((SuspendedBy::Battery, "the machine runs on its battery".to_owned()))
            }
            () if let Some((charge, least)) = self.lacks_charge(local) => {
                let [charge, least] = [charge, least].map(|part| part.get() * 100.0);
                let why = format!(
                    "its battery is charged to {charge:.0} %, and battery_charge_min is {least:.0} %"
                );
                Some((SuspendedBy::Battery, why))
            }
            () if let Some(degrees) = self.seen.battery_temperature.filter(|_| self.is_hot) => {
                let most = local.battery_temperature_max.map_or(0, NonZeroU32::get);
                let until = most.saturating_sub(COOLED);
                let why = format!(
                    "its battery has {degrees} °C, and battery_temperature_max is {most} °C: until it has {until} °C"
                );
                Some((SuspendedBy::Battery, why))
            }
            () if let Some(name) = self.exclusive(local) => {
                Some((SuspendedBy::OtherPrograms, format!("{name} runs, which wants the machine for itself")))
            }
            () if self.busy_until.is_some() => {
                let much = self.busy.map(|(load, most, key)| {
                    let [load, most] = [load, most].map(|part| part.get() * 100.0);
                    format!(": {load:.0} % of them, and {key} is {most:.0} %")
                });
                let much = much.unwrap_or_default();
                Some((SuspendedBy::OtherPrograms, format!("other programs use the CPUs{much}")))
            }
            () => None,
        }
    }

    /// The program that wants the machine for itself and runs, by the last look.
    pub(crate) fn exclusive(&self, local: &LocalPreferences) -> Option<&String> {
        self.seen.exclusive.as_ref().filter(|name| local.exclusive_programs.contains(*name))
    }

    /// What keeps the host from computing on coprocessors, likewise in words.
    pub(crate) fn stops_devices(&self, local: &LocalPreferences) -> Option<String> {
        let name = self.seen.gpu_exclusive.as_ref();
        let name = name.filter(|name| local.exclusive_gpu_programs.contains(*name))?;
        Some(format!("{name} runs, which wants GPUs for itself"))
    }

    /// How far the battery is charged and would have to be, where that is too little.
    fn lacks_charge(&self, local: &LocalPreferences) -> Option<(Fraction, Fraction)> {
        self.seen.battery_charge.zip(local.battery_charge_min).filter(|(charge, least)| charge < least)
    }

    /// What leads to the network, by the last look.
    pub(crate) const fn network(&self) -> Option<&NetworkOver> {
        self.seen.network.as_ref()
    }

    pub(crate) const fn busy_until(&self) -> Option<Instant> {
        self.busy_until
    }

    /// The clock was set back.
    pub(crate) fn observe(&mut self, now: Instant) {
        self.looks.clear();
        self.asked.observe(now);
        self.busy_until = self.busy_until.map(|until| until.min(now + BUSY_FOR));
    }
}

impl Look {
    fn load_until(&self, later: &Self, cpus: u32) -> Fraction {
        let others = (later.worked - self.worked).as_secs_f64() - (later.ours - self.ours).as_secs_f64();
        Fraction::clamped(others / ((later.at - self.at).as_secs_f64() * f64::from(cpus.max(1))))
    }
}

impl Client {
    /// What the shell is to look for: nothing that makes no difference.
    pub fn looks_for(&self) -> LooksFor {
        let local = self.local_preferences();
        let limited = local.other_load_max.is_some() || local.other_load_max_in_use.is_some();
        let asked = &self.state.host.around().asked;
        let of_jobs = asked.looking().pace();
        let is_looked = of_jobs > LookPace::Never;
        let programs = |of: &BTreeSet<String>| if is_looked { of.clone() } else { BTreeSet::new() };
        let of_files = match local.network_wifi_only {
            // Projects may be contacted at any time.
            true if self.state.transfers.any() => LookPace::Often,
            true => LookPace::Seldom,
            false => LookPace::Never,
        };
        LooksFor {
            pace: of_jobs.max(of_files),
            why: asked.looking(),
            number: asked.number(),
            battery: is_looked && !local.run_on_batteries,
            charge: is_looked && local.battery_charge_min.is_some(),
            heat: is_looked && local.battery_temperature_max.is_some(),
            wifi: local.network_wifi_only,
            programs: programs(&local.exclusive_programs),
            gpu_programs: programs(&local.exclusive_gpu_programs),
            network: self.watches_network(),
            memory: self.may_leave_memory().next().is_some(),
            load: is_looked && limited && (self.executing().next().is_some() || self.state.host.is_busy()),
        }
    }

    /// Whether jobs wait for a look at what goes on around them, which was asked for.
    pub fn awaits_look(&self) -> bool {
        self.state.host.around().is_awaited()
    }

    /// Says for what it would be looked now. What follows is seen to with what people do.
    pub(crate) fn poll_looks(&mut self) {
        // Of those that are set aside only such as wait for their time. The others can run once something
        // else changes, which puts them into the queue.
        let jobs = self.has_processes()
            || !self.workload.queue().is_empty()
            || self.workload.set_aside().has_waiting();
        let stakes = Stakes { jobs, projects: !self.state.projects.is_empty(), rests: false };
        if self.state.host.set_stakes(stakes, self.config.answers_looks) {
            self.timers.stale(Timer::InUse);
        }
    }

    /// What is there around the tasks.
    pub(crate) fn surroundings_seen(&mut self, seen: Surroundings) {
        let now = self.now();
        let ours = self.ledger.all().cpu;
        // What measures the CPUs is no other program's.
        let cpu_worked = seen.cpu_worked.filter(|_| !self.throttle.is_measuring());
        if seen.memory_short {
            self.give_memory_back();
        }
        self.state.host.around_mut().take(Surroundings { cpu_worked, ..seen }, now, ours);
        self.timers.stale(Timer::InUse);
    }

    /// Tasks in memory that do not run and have saved their state. One without a checkpoint would lose all.
    fn may_leave_memory(&self) -> impl Iterator<Item = &Job> {
        let held = self.state.jobs.slots().values().filter_map(|id| self.state.jobs.get(id));
        let waits = held.filter(|job| matches!(job.process, Process::Suspended(_)));
        waits.filter(|job| job.run.checkpoint_cpu.is_positive())
    }

    /// Memory is short: of the tasks that do not run the largest one leaves it that has saved its state, and
    /// another one at a later look if that was not enough. Not before the one that leaves has left: it takes
    /// memory once more for that.
    fn give_memory_back(&mut self) {
        let mut held = self.state.jobs.slots().values().filter_map(|id| self.state.jobs.get(id));
        if held.any(|job| matches!(job.process, Process::Quitting(_))) {
            return;
        }
        let largest =
            self.may_leave_memory().max_by_key(|job| (job.run.working_set, std::cmp::Reverse(job.id)));
        let Some((id, Process::Suspended(pid))) = largest.map(|job| (job.id, job.process)) else { return };
        self.act(Effect::QuitTask { job: id }, Cause::MemoryShort);
        self.steer_job(id, |job| job.process = Process::Quitting(Some(pid)));
        self.refresh(id);
    }

    /// Says that something around the tasks keeps the host from computing, or its coprocessors, or does no
    /// more; and that it could not be looked at.
    pub(crate) fn tell_stop(&mut self) {
        if self.state.host.around_mut().tell_unanswered() {
            let text = format!(
                "it was not seen within {PATIENCE} how it stands with the battery and other programs: jobs wait for that no \
                 longer, and rest for it once it is seen; the agent's log may say what keeps it from looking"
            );
            self.notice(NoticeLevel::Warn, None, text);
        }
        if let Some(why) = self.state.host.tell_devices_stop() {
            self.touch(Entity::Host);
            let text = match why {
                Some(why) => format!("GPUs rest: {why}"),
                None => "what GPUs rested for is over".to_owned(),
            };
            self.notice(NoticeLevel::Info, None, text);
        }
        let Some(why) = self.state.host.tell_stop() else { return };
        self.spare_tasks();
        self.touch(Entity::Host);
        let text = match why {
            Some(why) => format!("computing rests: {why}"),
            None => "what computing rested for is over".to_owned(),
        };
        self.notice(NoticeLevel::Info, None, text);
    }
}
