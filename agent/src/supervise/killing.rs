//! Kills all processes of a task, also those that left its session.

use std::time::Duration as StdDuration;

use super::meter::Meter;
use crate::brand;
use crate::owner::Owner;
use crate::proc::{self, Sessions};

/// How often processes that left a task's session are looked for and killed at its end, at most.
const STRAY_ROUNDS: u32 = 20;

/// Kills all of a task's processes that a list has: the session of its first one, and what left it. The rest
/// ends when its first one has.
pub(super) fn kill(pid: u32, meter: &Meter) {
    if let Some(group) = meter.group() {
        group.kill();
    }
    let mut strays = meter.strays();
    let all = proc::all();
    strays.extend(proc::offspring(pid, &all));
    // The group first, all of it at once. What is left waits stopped until nothing is that forks.
    let mut known = strays.clone();
    // Nobody who stops the tasks for their owner waits for this.
    drop(strays);
    let first = all.iter().find(|first| first.pid == pid);
    // Once its group is empty, its id may be another's.
    match first.filter(|first| meter.is_other(first)) {
        Some(_) => {}
        None => proc::kill_group(pid),
    }
    known.extend(first.filter(|first| !meter.is_other(first)).map(|first| (first.pid, first.start)));
    proc::end(|all| of_task(all, &known, meter.brand()));
}

/// The living processes that have a task's number, or are of its sessions.
fn of_task(all: &[proc::Process], sessions: &Sessions, brand: u64) -> Vec<proc::Process> {
    let by_session: Vec<u32> = proc::of_sessions(all, sessions).map(|process| process.pid).collect();
    let is_own = |process: &&proc::Process| {
        !process.zombie && (by_session.contains(&process.pid) || brand::of(process) == Some(brand))
    };
    all.iter().filter(is_own).copied().collect()
}

/// Whether the process that has this id has the task's number.
fn has_number(pid: u32, meter: &Meter) -> bool {
    brand::of_id(pid) == Some(meter.brand()) && proc::is_process(pid)
}

/// Kills what left the session: it is known by its number, by the session that it made for itself, by its
/// mark, or by the user that nobody but this task has, and ends with its task all the same. `young` were made
/// since the last look. Returns those sessions, and whether nothing runs as that user any more.
pub(super) fn kill_strays(
    meter: &Meter,
    young: Sessions,
    mark: &str,
    user: Option<Owner>,
) -> (Sessions, std::io::Result<()>) {
    let mut strays = meter.strays().clone();
    strays.extend(young);
    // Several rounds, for one may fork between the look and the kill.
    for _ in 0..STRAY_ROUNDS {
        let all = proc::all();
        proc::follow(&mut strays, &all);
        let known = proc::end_all(|all| of_task(all, &strays, meter.brand()), |pid| has_number(pid, meter));
        if known + proc::kill_marked(mark) == 0 {
            break;
        }
        std::thread::sleep(StdDuration::from_millis(20));
    }
    (strays, user.map_or(Ok(()), |user| proc::end_of_users(&proc::only(user.uid))))
}
