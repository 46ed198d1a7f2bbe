//! Stops all tasks for somebody who wants the machine, or one that does not heed messages, and has each go on
//! (R6.2, R6.10).
//!
//! Model: SIGSTOP, first to each task's process group and to those of the sessions that it is known to
//! have made, which takes microseconds, then to whatever else these sessions hold or has the task's number
//! ([`crate::brand`]), in rounds, until no round finds a process that was not stopped before: one that is
//! stopped cannot fork. What comes and goes between two rounds is found by its id ([`crate::fleeting`]),
//! by the supervisor's thread and at each look while somebody forks fast: whoever stops tasks for their
//! owner does not wait for that, and nobody for more than some seconds. An application that is told to
//! suspend looks a tenth of a second later, or never; so it is stopped first, and not told at all while it
//! is. SIGCONT undoes it, for one task at a time.
//!
//! Whoever hears of the owner first may call, on any thread; nothing here waits for a disk. A task that was
//! told to leave goes on, or it never would; it has little time for that while somebody wants the machine.
//!
//! Left out: the freezer of control groups, which no process can undo: it stops no sooner, its worst case is
//! later, and not all hosts have it. What goes on by a SIGCONT is stopped again by the next look, and a task
//! that goes on again and again is killed, whether a list has it or not.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::process::{Signal, kill_process_group};

use super::meter::Meter;
use crate::brand;
use crate::fleeting::Lists;
use crate::proc::{self, Process, Sessions};

/// Most rounds for one task, should it fork faster than it can be stopped.
const ROUNDS: u32 = 20;
/// So long it is tried to stop what no list has.
const LONGEST: Duration = Duration::from_secs(2);
/// After so many lists, one that has new processes in the last is said to go on.
const LISTS_MIN: u32 = 5;

/// What of tasks is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reach {
    /// What a list has.
    Listed,
    /// All of it. That takes some tenths of a second where others fork all the time, and [`LONGEST`] where
    /// something goes on.
    All,
}

/// The tasks that can be stopped, by their first processes.
#[derive(Debug, Default)]
pub struct Freezer {
    tasks: Mutex<BTreeMap<u32, Arc<Meter>>>,
    /// All are to be stopped as soon as somebody uses the host.
    armed: AtomicBool,
    fired: AtomicBool,
    /// Somebody wants the host for himself.
    wanted: AtomicBool,
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
        self.freeze_those(|_| true, |meter| meter.set_frozen(true), Reach::Listed);
    }

    /// Stops all tasks once more, where that was ordered, and what of them no list has: that takes some time,
    /// which nobody else is to wait for.
    pub(super) fn freeze_again(&self) {
        self.freeze_those(|_| true, |meter| meter.set_frozen(true), Reach::All);
    }

    /// Stops all tasks to be counted. Each goes on when that is over, unless it is stopped for something else
    /// by then.
    pub(super) fn hold_still(&self) {
        self.freeze_those(|_| true, |meter| meter.set_counted_still(true), Reach::All);
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
            self.freeze_those(
                |leader| leaders.contains(&leader),
                |meter| meter.set_frozen(true),
                Reach::Listed,
            );
        }
    }

    fn freeze_those(&self, wanted: impl Fn(u32) -> bool, note: impl Fn(&Meter), reach: Reach) {
        let stay = |meter: &Meter| !meter.is_gone() && !meter.is_leaving();
        let stopped = {
            let tasks = fallow_daemon::lock(&self.tasks);
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
            stopped.into_iter().map(|(leader, meter)| (*leader, Arc::clone(meter))).collect::<Vec<_>>()
        };
        self.stop(&stopped, reach);
    }

    /// Whether tasks are stopped.
    pub(super) fn has_stopped(&self) -> bool {
        fallow_daemon::lock(&self.tasks).values().any(|meter| is_to_stand(meter))
    }

    /// Stops again what goes on of stopped tasks. Returns those that fork faster than lists are read, by
    /// their first processes.
    pub(super) fn enforce(&self, reach: Reach) -> BTreeSet<u32> {
        let stopped: Vec<_> = {
            let tasks = fallow_daemon::lock(&self.tasks);
            let stopped = tasks.iter().filter(|(_, meter)| is_to_stand(meter));
            stopped.map(|(leader, meter)| (*leader, Arc::clone(meter))).collect()
        };
        self.stop(&stopped, reach)
    }

    /// Stops whatever these tasks hold beside their groups, as long as they are to be stopped. Returns those
    /// that fork faster than lists are read.
    fn stop(&self, tasks: &[(u32, Arc<Meter>)], reach: Reach) -> BTreeSet<u32> {
        let mut told: BTreeSet<(u32, u64)> = BTreeSet::new();
        let (mut lists, mut fleeting) = (Lists::default(), BTreeSet::new());
        // Those of which the last list had something new.
        let mut moving = BTreeSet::new();
        for _ in 0..ROUNDS {
            if tasks.is_empty() || lists.time() > LONGEST {
                break;
            }
            moving.clear();
            lists.begin();
            let all = proc::all();
            let branded = brand::sorted(&all);
            let lock = fallow_daemon::lock(&self.tasks);
            for (leader, meter) in tasks.iter().filter(|(_, meter)| is_to_stand(meter)) {
                let sessions = sessions(*leader, meter, &all);
                let branded = branded.get(&meter.brand()).into_iter().flatten();
                let processes = proc::of_sessions(&all, &sessions).chain(branded);
                for process in processes.filter(|process| !process.stopped) {
                    // Also one that was told before and computes until it hears of it.
                    if told.insert((process.pid, process.start)) {
                        moving.insert(*leader);
                    }
                    proc::signal(process.pid, Signal::STOP);
                }
            }
            drop(lock);
            let listed = || all.iter().map(|process| process.pid).collect();
            let mut has_all =
                || reach == Reach::Listed || self.stop_fleeting(tasks, &mut lists, &listed(), &mut fleeting);
            if moving.is_empty() {
                if has_all() {
                    break;
                }
            } else {
                lists.had_news();
            }
        }
        // One that has new processes in each list is not stopped by that either. Where lists take long, it
        // may not have heard of it yet.
        if lists.count() >= LISTS_MIN {
            fleeting.extend(moving);
        }
        fleeting
    }

    /// Stops what of these tasks no list has, and says of which. Whether a list had all.
    fn stop_fleeting(
        &self,
        tasks: &[(u32, Arc<Meter>)],
        lists: &mut Lists,
        listed: &BTreeSet<u32>,
        fleeting: &mut BTreeSet<u32>,
    ) -> bool {
        let tasks: BTreeMap<u64, &(u32, Arc<Meter>)> =
            tasks.iter().map(|task| (task.1.brand(), task)).collect();
        let found: Cell<Option<&(u32, Arc<Meter>)>> = Cell::new(None);
        lists.have_all(
            listed,
            |id| {
                found.set(brand::of_id(id).and_then(|number| tasks.get(&number).copied()));
                found.get().is_some() && proc::is_process(id)
            },
            |pid| {
                // Whoever has the task go on waits for that, or did before.
                let _tasks = fallow_daemon::lock(&self.tasks);
                if let Some((leader, _)) = found.get().filter(|(_, meter)| is_to_stand(meter)) {
                    proc::signal(pid, Signal::STOP);
                    fleeting.insert(*leader);
                }
            },
        )
    }

    /// Has a task go on, if it was stopped. One that is counted just now does when that is over, unless it is
    /// to leave.
    pub(super) fn thaw(&self, leader: u32) {
        let tasks = fallow_daemon::lock(&self.tasks);
        // A count may hold it without its being stopped.
        let is_held = |meter: &&Arc<Meter>| meter.is_frozen() || meter.is_leaving();
        let Some(meter) = tasks.get(&leader).filter(is_held) else { return };
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
    // Whoever counts it is to know when it has begun to go on, and that all of it does.
    meter.note_woken();
    signal_first(leader, meter, Signal::CONT);
    let all = proc::all();
    let sessions = sessions(leader, meter, &all);
    // Also those that do not look stopped: one that waits for a CPU has yet to hear that it is to stop.
    let branded = brand::sorted(&all);
    let branded = branded.get(&meter.brand()).into_iter().flatten();
    let all_of_it = proc::of_sessions(&all, &sessions).chain(branded);
    all_of_it.for_each(|process| proc::signal(process.pid, Signal::CONT));
    meter.note_woken();
}

/// Whether a task is there that is to be stopped.
fn is_to_stand(meter: &Meter) -> bool {
    !meter.is_gone() && meter.is_frozen()
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
