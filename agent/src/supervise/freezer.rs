//! Stops all tasks for somebody who wants the machine, or one that does not heed messages, and has each go on
//! (R6.2, R6.10).
//!
//! Model: SIGSTOP, first to each task's process group and to those of the sessions that it is known to have
//! made, which takes microseconds, then to whatever else these sessions hold or has the task's number
//! ([`crate::brand`]), in rounds, until no round finds a process that was not stopped before: one that is
//! stopped cannot fork. What comes and goes between two rounds is found by its id ([`crate::fleeting`]). An
//! application that is told to suspend looks a tenth of a second later, or never; so it is stopped first, and
//! not told at all while it is. SIGCONT undoes it, for one task at a time.
//!
//! Whoever hears of the owner first may call, on any thread; nothing here waits for a disk. A task that was
//! told to leave goes on, or it never would; it has little time for that while somebody wants the machine.
//!
//! Left out: the freezer of control groups, which no process can undo: it stops no sooner, its worst case is
//! later, and not all hosts have it. What goes on by a SIGCONT is stopped again by the next look, and a task
//! that goes on again and again is killed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use rustix::process::{Signal, kill_process_group};

use super::meter::Meter;
use crate::brand;
use crate::fleeting::Lists;
use crate::proc::{self, Process, Sessions};

/// Most rounds for one task, should it fork faster than it can be stopped.
const ROUNDS: u32 = 20;
/// So many processes are made from one look to the next, and they may be those of one that forks without
/// pause: it makes thousands.
const MANY: u32 = 200;

/// The tasks that can be stopped, by their first processes.
#[derive(Debug, Default)]
pub struct Freezer {
    tasks: Mutex<BTreeMap<u32, Arc<Meter>>>,
    /// All are to be stopped as soon as somebody uses the host.
    armed: AtomicBool,
    fired: AtomicBool,
    /// Somebody wants the host for himself.
    wanted: AtomicBool,
    /// The last process id that had been given when stopped tasks were looked at last.
    last_id: AtomicU32,
}

impl Freezer {
    /// Whether all are to be stopped as soon as somebody uses the host. It is the client that says so.
    pub fn arm(&self, armed: bool) {
        self.armed.store(armed, Ordering::Relaxed);
    }

    /// Whether somebody wants the host for himself. It is the client that says so; until then, all were
    /// stopped for somebody.
    pub fn set_wanted(&self, wanted: bool) {
        self.wanted.store(wanted, Ordering::Relaxed);
    }

    pub(super) fn is_wanted(&self) -> bool {
        self.wanted.load(Ordering::Relaxed)
    }

    /// Somebody uses the host.
    pub fn input(&self) {
        if self.armed.load(Ordering::Relaxed) {
            self.fired.store(true, Ordering::Relaxed);
            self.freeze();
        }
    }

    /// Whether that has stopped tasks since it was asked last.
    pub fn has_fired(&self) -> bool {
        self.fired.swap(false, Ordering::Relaxed)
    }

    /// Whether it has, and that was not asked since then.
    pub fn is_news(&self) -> bool {
        self.fired.load(Ordering::Relaxed)
    }

    /// Stops all tasks for somebody, but those that were told to leave: they have to hurry.
    pub fn freeze(&self) {
        self.wanted.store(true, Ordering::Relaxed);
        self.freeze_again();
    }

    /// Stops all tasks once more, where that was ordered.
    pub(super) fn freeze_again(&self) {
        self.freeze_those(|_| true, |meter| meter.set_frozen(true));
    }

    /// Stops all tasks to be counted. Each goes on when that is over, unless it is stopped for something else
    /// by then.
    pub(super) fn hold_still(&self) {
        self.freeze_those(|_| true, |meter| meter.set_counted_still(true));
    }

    /// A task was counted. True if it goes on.
    pub(super) fn let_move(&self, leader: u32) -> bool {
        let tasks = fallow_daemon::lock(&self.tasks);
        let Some(meter) = tasks.get(&leader).filter(|meter| meter.is_counted_still()) else { return false };
        meter.set_counted_still(false);
        let goes_on = !meter.is_frozen() && !meter.is_gone();
        if goes_on {
            wake(leader, meter);
        }
        goes_on
    }

    /// Stops some tasks.
    pub(super) fn freeze_some(&self, leaders: &BTreeSet<u32>) {
        if !leaders.is_empty() {
            self.freeze_those(|leader| leaders.contains(&leader), |meter| meter.set_frozen(true));
        }
    }

    fn freeze_those(&self, wanted: impl Fn(u32) -> bool, note: impl Fn(&Meter)) {
        let tasks = fallow_daemon::lock(&self.tasks);
        let stay = |meter: &Meter| !meter.is_gone() && !meter.is_leaving();
        let stopped: Vec<_> =
            tasks.iter().filter(|(leader, meter)| wanted(**leader) && stay(meter)).collect();
        // All groups at first: that is nearly everything.
        for (leader, meter) in &stopped {
            note(meter);
            signal_first(**leader, meter, Signal::STOP);
            for (session, start) in meter.strays().iter() {
                // Its first process leads a group as well. Where that is gone, the id may be another's.
                if proc::find(*session).is_some_and(|first| first.start == *start && !first.zombie) {
                    signal_group(*session, Signal::STOP);
                }
            }
        }
        stop(&stopped, true);
    }

    /// Stops again what goes on of stopped tasks.
    pub(super) fn enforce(&self) {
        let last = proc::last_id().unwrap_or_default();
        let new = last.checked_sub(self.last_id.swap(last, Ordering::Relaxed));
        let tasks = fallow_daemon::lock(&self.tasks);
        let stay = |meter: &Meter| !meter.is_gone() && meter.is_frozen();
        let stopped: Vec<_> = tasks.iter().filter(|(_, meter)| stay(meter)).collect();
        stop(&stopped, new.is_none_or(|new| new >= MANY));
    }

    /// Has a task go on, if it was stopped. One that is counted just now does when that is over, unless it is
    /// to leave.
    pub(super) fn thaw(&self, leader: u32) {
        let tasks = fallow_daemon::lock(&self.tasks);
        let Some(meter) = tasks.get(&leader).filter(|meter| meter.is_frozen()) else { return };
        meter.set_frozen(false);
        if meter.is_leaving() {
            meter.set_counted_still(false);
        }
        if !meter.is_frozen() && !meter.is_gone() {
            wake(leader, meter);
        }
    }

    /// A task is up.
    pub(super) fn add(&self, leader: u32, meter: Arc<Meter>) {
        fallow_daemon::lock(&self.tasks).insert(leader, meter);
    }

    /// A task is gone.
    pub(super) fn remove(&self, meter: &Arc<Meter>) {
        fallow_daemon::lock(&self.tasks).retain(|_, other| !Arc::ptr_eq(other, meter));
    }
}

/// Has all processes of a task go on.
fn wake(leader: u32, meter: &Meter) {
    signal_first(leader, meter, Signal::CONT);
    let all = proc::all();
    let sessions = sessions(leader, meter, &all);
    // Also those that do not look stopped: one that waits for a CPU has yet to hear that it is to stop.
    let branded = brand::sorted(&all);
    let branded = branded.get(&meter.brand()).into_iter().flatten();
    let all_of_it = proc::of_sessions(&all, &sessions).chain(branded);
    all_of_it.for_each(|process| proc::signal(process.pid, Signal::CONT));
}

/// Stops whatever these tasks hold beside their groups. Also what no list may have, where that is wanted: it
/// takes some milliseconds where others fork.
fn stop(tasks: &[(&u32, &Arc<Meter>)], also_fleeting: bool) {
    let mut told: BTreeSet<(u32, u64)> = BTreeSet::new();
    let numbers: BTreeSet<u64> = tasks.iter().map(|(_, meter)| meter.brand()).collect();
    let is_theirs = |pid| brand::of_id(pid).is_some_and(|number| numbers.contains(&number));
    let mut lists = Lists::default();
    for _ in 0..ROUNDS {
        if tasks.is_empty() {
            return;
        }
        lists.begin();
        let all = proc::all();
        let branded = brand::sorted(&all);
        let mut news = false;
        for (leader, meter) in tasks {
            let sessions = sessions(**leader, meter, &all);
            let branded = branded.get(&meter.brand()).into_iter().flatten();
            let processes = proc::of_sessions(&all, &sessions).chain(branded);
            for process in processes.filter(|process| !process.stopped) {
                // Also one that was told before and computes until it hears of it.
                news |= told.insert((process.pid, process.start));
                proc::signal(process.pid, Signal::STOP);
            }
        }
        let have_all = |lists: &mut Lists| lists.have_all(is_theirs, |pid| proc::signal(pid, Signal::STOP));
        if !news && (!also_fleeting || have_all(&mut lists)) {
            return;
        }
    }
}

/// A task's sessions, its own first process's among them. Those that are new are noted.
fn sessions(leader: u32, meter: &Meter, all: &[Process]) -> Sessions {
    let mut strays = meter.strays();
    let mut sessions = strays.clone();
    match all.iter().find(|process| process.pid == leader) {
        Some(first) if meter.is_other(first) => {}
        first => drop(sessions.insert(leader, first.map_or(0, |first| first.start))),
    }
    proc::follow(&mut sessions, all);
    strays.extend(sessions.iter().filter(|(id, _)| **id != leader).map(|(id, start)| (*id, *start)));
    sessions
}

/// A task's own group. Once its first process is gone, the id may be another's.
fn signal_first(leader: u32, meter: &Meter, what: Signal) {
    if !proc::find(leader).is_some_and(|first| meter.is_other(&first)) {
        signal_group(leader, what);
    }
}

fn signal_group(leader: u32, what: Signal) {
    if let Some(pid) = proc::to_pid(leader) {
        let _ = kill_process_group(pid, what);
    }
}

#[cfg(test)]
#[path = "freezer_tests.rs"]
mod tests;
