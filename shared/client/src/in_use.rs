//! Whether somebody uses the host, and what follows from it (R6.2, R6.4; BOINC: `run_if_user_active`,
//! `run_gpu_if_user_active`, `idle_time_to_run`).
//!
//! Model: the shell's sensors tell of input, at the first one after a pause and then every few seconds. From
//! the last one on the host is in use for as long as the preferences say; a timer ends that. Beside it there
//! may be somebody of whose input no sensor can see anything: then the host is in use until that ends. A
//! shell that tells nothing has no sensors, and nobody uses its host.
//!
//! When use begins, all processes of tasks are stopped at once, whatever else is decided of them; then it is
//! decided as ever, with computing suspended. Tasks stay in memory, also where preempted ones would leave:
//! saving their state takes CPU time and the disk at the very moment at which somebody wants both. Those on
//! coprocessors leave, for they would hold the memory of their device.
//!
//! Not stored: whether somebody uses the host is seen anew at each start.

use fallow_domain::{Duration, Instant, JobId};

use crate::machine::Client;
use crate::timers::Timer;
use crate::{Cause, Effect, Entity, NoticeLevel};

/// Where use goes on for at least so long after an input, an input is seen in time that is seen twenty
/// seconds late.
const LATE_IS_FINE: Duration = Duration::from_secs(30);

/// What is known of people who use the host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct InUse {
    last_input: Option<Instant>,
    /// Somebody may be there of whose input nothing can be seen.
    is_unseen: bool,
    /// Nobody looks for input.
    is_blind: bool,
    is_so: bool,
    /// When it was looked for the first time: nothing is known of the time before.
    watched_since: Option<Instant>,
    /// When it ends without further input; none where it does not, or nobody uses it.
    until: Option<Instant>,
}

/// Whether somebody uses a host, for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InUseView {
    /// Somebody does.
    pub is_so: bool,
    /// Until when, if there is no further input; none where nobody uses it, or somebody does of whose input
    /// nothing can be seen.
    pub until: Option<Instant>,
    /// So long after the last input it is idle.
    pub idle_after: Duration,
    /// What rests meanwhile, by the preferences.
    pub rests: Rests,
}

/// What rests while somebody uses a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rests {
    /// All computing.
    Computing,
    /// What computes on coprocessors.
    Coprocessors,
    /// Nothing.
    Nothing,
}

/// How closely it is to be looked whether somebody uses the host, where nothing tells of it by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Attention {
    /// There is no task that he could notice.
    #[default]
    Idle,
    /// All tasks that are there rest.
    Resting,
    /// Tasks compute.
    Close,
}

impl Attention {
    /// What it is with tasks that are `there`, some of which may `compute`. Where use ends soon after the
    /// last input, input has to be seen soon, or tasks would go on beside somebody who types.
    const fn of(there: bool, compute: bool, idle_after: Duration) -> Self {
        match (there, compute) {
            (false, _) => Self::Idle,
            (true, false) if idle_after.as_micros() >= LATE_IS_FINE.as_micros() => Self::Resting,
            (true, _) => Self::Close,
        }
    }
}

impl InUse {
    /// Somebody uses it, by the last look.
    pub(crate) const fn is_so(&self) -> bool {
        self.is_so
    }

    pub(crate) const fn until(&self) -> Option<Instant> {
        self.until
    }

    /// When it was looked for the first time, which is when the agent was started.
    pub(crate) const fn watched_since(&self) -> Option<Instant> {
        self.watched_since
    }

    /// Works out whether somebody uses it.
    pub(crate) fn look(&mut self, now: Instant, idle_after: Duration) {
        self.watched_since.get_or_insert(now);
        self.until = match self.last_input {
            _ if self.is_unseen => None,
            input => input.map(|input| input + idle_after).filter(|until| now < *until),
        };
        self.is_so = self.is_unseen || self.until.is_some();
    }

    /// When there was no input for so long, if there is none until then.
    pub(crate) fn silent_at(&self, limit: Option<Duration>) -> Option<Instant> {
        let since = self.last_input.max(self.watched_since)?;
        Some(since + limit.filter(|_| !self.is_unseen && !self.is_blind)?)
    }

    /// Whether input is told where there is some.
    pub(crate) const fn set_sensed(&mut self, is_sensed: bool) {
        self.is_blind = !is_sensed;
    }

    /// Whether it is.
    pub(crate) const fn is_sensed(&self) -> bool {
        !self.is_blind
    }

    /// The clock was set back: no input lies in the future.
    pub(crate) fn observe(&mut self, now: Instant) {
        self.watched_since = self.watched_since.map(|since| since.min(now));
        self.last_input = self.last_input.map(|input| input.min(now));
    }
}

impl Client {
    /// Somebody used the host, so long ago.
    pub(crate) fn owner_input(&mut self, ago: Duration) {
        let at = self.now() - ago.max(Duration::ZERO);
        let seen = &mut self.state.host.in_use_mut().last_input;
        *seen = Some(seen.map_or(at, |before| before.max(at)));
        self.timers.stale(Timer::InUse);
    }

    /// Somebody may use the host of whose input nothing can be seen, or does no more.
    pub(crate) fn owner_unseen(&mut self, unseen: bool) {
        self.state.host.in_use_mut().is_unseen = unseen;
        self.timers.stale(Timer::InUse);
    }

    /// Whether all tasks are to be stopped as soon as there is input, whatever else there is to do.
    pub fn gives_way_to_input(&self) -> bool {
        !self.preferences().run_in_use
    }

    /// Whether somebody has the machine for himself: he uses it, or has paused computing.
    pub fn is_wanted_by_people(&self) -> bool {
        self.state.host.gives_way() || self.state.host.is_snoozed()
    }

    /// The same, as long as none is stopped for somebody already: whether a sensor is to stop them by itself.
    pub fn is_armed(&self) -> bool {
        self.gives_way_to_input() && !self.state.host.gives_way()
    }

    /// All tasks were stopped for somebody for whom the client may not give way: what is to compute goes on.
    pub(crate) fn tasks_frozen(&mut self) {
        if self.is_wanted_by_people() {
            return;
        }
        let executing = self.executing().map(|job| job.id).filter(|id| !self.is_paused(*id));
        for job in executing.collect::<Vec<JobId>>() {
            self.act(Effect::ResumeTask { job }, Cause::GivesNoWay);
        }
    }

    /// Whether any task has a process, or is about to.
    pub fn has_processes(&self) -> bool {
        let held = self.state.jobs.slots().values().filter_map(|id| self.state.jobs.get(id));
        held.into_iter().any(|job| job.process.exists())
    }

    /// How closely it is to be looked whether somebody uses the host.
    pub fn attention(&self) -> Attention {
        let held = self.state.jobs.slots().values().filter_map(|id| self.state.jobs.get(id));
        let computes = held.into_iter().any(|job| job.process.exists() && !job.process.is_suspended());
        Attention::of(self.has_processes(), computes, self.preferences().idle_after)
    }

    /// Begins or ends the use of the host by people.
    pub(crate) fn poll_in_use(&mut self) {
        let now = self.now();
        if !self.timers.may_be_due(Timer::InUse, now) {
            return;
        }
        let was = self.state.host.in_use().is_so;
        let snoozed = self.state.host.is_snoozed();
        let found = self.state.host.look_at_clock(now);
        self.see_to(found);
        if self.state.host.in_use().is_so != was {
            // Whether somebody is there is no document's doing; what follows from it, is.
            self.spare_tasks();
            self.touch(Entity::Host);
        }
        if snoozed && !self.state.host.is_snoozed() {
            self.snooze_ended();
        }
        self.tell_stop();
        let Some(gives_way) = self.state.host.tell_in_use() else { return };
        self.touch(Entity::Host);
        if gives_way {
            self.act(Effect::FreezeTasks, Cause::InUse);
        }
        let idle_after = self.preferences().idle_after;
        let text = match gives_way {
            true => {
                format!("computing rests: somebody uses the machine, until {idle_after} after the last input")
            }
            false => "nobody uses the machine any more: computing may go on".to_owned(),
        };
        self.notice(NoticeLevel::Info, None, text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r6_2_it_is_looked_closely_while_tasks_compute_and_also_while_they_rest_where_use_ends_soon() {
        let table = [
            (false, false, 180, Attention::Idle),
            (true, false, 180, Attention::Resting),
            (true, false, 30, Attention::Resting),
            (true, false, 29, Attention::Close),
            (true, false, 10, Attention::Close),
            (true, true, 180, Attention::Close),
        ];
        for (there, compute, idle_after, expected) in table {
            let found = Attention::of(there, compute, Duration::from_secs(idle_after));
            assert_eq!(found, expected, "{there} {compute} {idle_after}");
        }
    }
}
