//! When the client is to be called again: a table of timers, one for each reason.
//!
//! **Model.** A timer has an instant or none, and the first of all instants is the next wake-up. Where what
//! it waits for is one figure, it is set there. Where that follows from many (the waits of all transfers, the
//! tasks that run), whoever changes one of them says that the timer is *stale*. It is worked out again when
//! the wake-up is wanted, once, by the part of the client that it belongs to. So is one that has passed, for
//! another instant may lie behind it. Any other holds: nothing is worked out because an event happened
//! somewhere else.
//!
//! Instants that lie in the past wait for nothing and are left out when a timer is worked out, but for what
//! is overdue and was not done: that is due at once.

use fallow_domain::{Duration, Instant};

use crate::machine::Client;

/// A reason to look at the clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Timer {
    /// What runs is to be decided (R2.2).
    Schedule,
    /// A task that waits can be started again.
    Restart,
    /// Tasks pause or go on by the limit on CPU time (R2.8), or a measurement of the CPUs is waited for no
    /// longer.
    Throttle,
    /// The shell is to say that the host is awake.
    Watch,
    /// A project has taken too long to say whether it accepts what its owner gave.
    Attachment,
    /// Downloads under way are found to come to nothing.
    Stall,
    /// A transfer can begin that had to wait.
    Transfer,
    /// Files wait no longer for other programs that use the network (R6.4).
    OtherNetwork,
    /// The network may be used again (R1.13).
    Connection,
    /// A project for which the network is wanted can be contacted.
    Contact,
    /// The need for work is to be checked (R2.16).
    Fetch,
    /// An RPC in flight holds something back no longer (R1.10).
    Session,
    /// A master page is to be read (R1.6).
    MasterPage,
    /// A project can be asked for something that it could not be asked for (R1.3).
    Project,
    /// A finished job is due for reporting (R1.8).
    Report,
    /// The clock is to be looked at in the trial of a document (R6.5).
    Trial,
    /// The hours in which the host may compute begin or end (R6.4).
    Hours,
    /// Nobody uses the host any more, if there is no further input, or a pause ends (R6.2).
    InUse,
    /// A device that was in use may be used again (R3.14).
    Devices,
    /// The disk is to be measured (R4.1).
    Disk,
}

/// The timers of a client. All are stale at first.
#[derive(Debug)]
pub(crate) struct Timers {
    due: [Instant; Timer::ALL.len()],
}

/// Of a timer that is to be worked out, as one that has passed.
const STALE: Instant = Instant::from_micros(i64::MIN);
/// Of a timer that waits for nothing.
const NEVER: Instant = Instant::FAR_FUTURE;

/// However long nothing is due, the clock is looked at so often.
const LOOK_PERIOD: Duration = Duration::from_hours(1);
/// Never at once again for something that only an event can change.
const PAUSE: Duration = Duration::from_millis(100);

impl Timer {
    const ALL: [Self; 20] = [
        Self::Schedule,
        Self::Restart,
        Self::Throttle,
        Self::Watch,
        Self::Attachment,
        Self::Stall,
        Self::Transfer,
        Self::OtherNetwork,
        Self::Connection,
        Self::Contact,
        Self::Fetch,
        Self::Session,
        Self::MasterPage,
        Self::Project,
        Self::Report,
        Self::Trial,
        Self::Hours,
        Self::InUse,
        Self::Devices,
        Self::Disk,
    ];
    /// Those that wait for something else, or for nothing, when the network may be used in another way.
    pub(crate) const OF_NETWORK: [Self; 8] = [
        Self::Transfer,
        Self::Connection,
        Self::Contact,
        Self::Fetch,
        Self::Session,
        Self::MasterPage,
        Self::Project,
        Self::Report,
    ];
    /// Those that wait for when a project may be asked.
    pub(crate) const OF_PROJECTS: [Self; 3] = [Self::Contact, Self::MasterPage, Self::Project];
    /// Those that wait for when finished jobs are reported.
    pub(crate) const OF_REPORTS: [Self; 2] = [Self::Contact, Self::Report];
    /// Those that wait as long as some task has a process, or executes.
    pub(crate) const OF_PROCESSES: [Self; 2] = [Self::Throttle, Self::Watch];
}

impl Default for Timers {
    fn default() -> Self {
        Self { due: [STALE; Timer::ALL.len()] }
    }
}

impl Timers {
    /// It is due then, or never as things stand.
    pub(crate) fn set(&mut self, timer: Timer, at: Option<Instant>) {
        self.due[timer as usize] = at.unwrap_or(NEVER);
    }

    /// When it is due may have changed.
    pub(crate) fn stale(&mut self, timer: Timer) {
        self.due[timer as usize] = STALE;
    }

    /// The same of several.
    pub(crate) fn all_stale(&mut self, timers: impl IntoIterator<Item = Timer>) {
        timers.into_iter().for_each(|timer| self.stale(timer));
    }

    /// The clock was set back: instants that lay in the past may come once more.
    pub(crate) fn clock_set_back(&mut self) {
        *self = Self::default();
    }

    /// Whether it has passed or is stale. If not, nothing that it waits for is due.
    pub(crate) fn may_be_due(&self, timer: Timer, now: Instant) -> bool {
        self.due[timer as usize] <= now
    }

    /// Those that are taken to hold, and when they are due.
    #[cfg(test)]
    pub(crate) fn held(&self, now: Instant) -> impl Iterator<Item = (Timer, Instant)> {
        let held = Timer::ALL.into_iter().filter(move |timer| !self.may_be_due(*timer, now));
        held.map(|timer| (timer, self.due[timer as usize]))
    }

    /// The first of all.
    fn next(&self) -> Instant {
        self.due.into_iter().fold(NEVER, Instant::min)
    }
}

impl Client {
    /// When to call again if nothing happens.
    pub(crate) fn next_wake_up(&mut self) -> Instant {
        self.note_network_use();
        for timer in Timer::ALL {
            if self.timers.may_be_due(timer, self.now()) {
                let at = self.work_out(timer);
                self.timers.set(timer, at);
            }
        }
        let next = self.timers.next();
        next.max(self.now() + PAUSE).min(self.now() + LOOK_PERIOD)
    }

    /// When a timer is due, as things stand.
    pub(crate) fn work_out(&self, timer: Timer) -> Option<Instant> {
        match timer {
            Timer::Schedule => self.next_decision(),
            Timer::Restart => self.next_restart(),
            Timer::Throttle => self.next_throttle(),
            Timer::Watch => self.next_watch(),
            Timer::Attachment => self.next_attachment(),
            Timer::Stall => self.next_stall(),
            Timer::Transfer => self.next_transfer_wake_up(),
            Timer::OtherNetwork => self.other_network.next_change(self.now()),
            Timer::Connection => self.next_connection(),
            Timer::Contact => self.next_contact(),
            Timer::Fetch => self.next_fetch_check(),
            Timer::Session => self.next_session_change(),
            Timer::MasterPage => self.next_master_page(),
            Timer::Project => self.next_project(),
            Timer::Report => self.next_report(),
            Timer::Trial => self.next_trial(),
            Timer::Hours => self.next_hours(),
            Timer::InUse => self.state.host.next_in_use(),
            Timer::Devices => self.next_device(),
            Timer::Disk => self.next_disk(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Instant = Instant::from_micros(1_800_000_000_000_000);

    fn to_be_worked_out(timers: &Timers, now: Instant) -> Vec<Timer> {
        Timer::ALL.into_iter().filter(|timer| timers.may_be_due(*timer, now)).collect()
    }

    #[test]
    fn the_first_timer_is_the_next_wake_up_and_one_that_has_passed_or_is_stale_is_worked_out_again() {
        let later = NOW + Duration::from_secs(10);
        let mut timers = Timers::default();
        assert_eq!(to_be_worked_out(&timers, NOW), Timer::ALL);
        Timer::ALL.into_iter().for_each(|timer| timers.set(timer, None));
        assert_eq!((to_be_worked_out(&timers, NOW), timers.next()), (vec![], NEVER));
        timers.set(Timer::Watch, Some(later));
        timers.set(Timer::Stall, Some(later + Duration::from_secs(1)));
        assert_eq!((to_be_worked_out(&timers, NOW), timers.next()), (vec![], later));
        assert_eq!(to_be_worked_out(&timers, later), [Timer::Watch]);
        timers.stale(Timer::Report);
        assert_eq!(to_be_worked_out(&timers, NOW), [Timer::Report]);
        timers.clock_set_back();
        assert_eq!(to_be_worked_out(&timers, NOW), Timer::ALL);
    }

    #[test]
    fn each_timer_has_a_place_of_its_own() {
        let places: Vec<usize> = Timer::ALL.into_iter().map(|timer| timer as usize).collect();
        assert_eq!(places, (0..Timer::ALL.len()).collect::<Vec<_>>());
    }
}
