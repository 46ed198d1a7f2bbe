//! Counts what tasks hold of the disk while they stand still (R6.10).
//!
//! Model: a task that computes can move its files out of the way of a count, and another one would have to go
//! in its stead. So before one has to go that holds no more than it may, all are stopped, counted, and let go
//! on. That takes a second or two, or as long as counting them, and happens only while nothing can be stored.
//!
//! One of which something has run meanwhile may hold anything: a signal that it has made for itself lets it
//! go on. So may one that is not counted by the longest time that the others may wait for it.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use fallow_domain::JobId;

use super::Supervision;
use super::disk::Files;
use super::groups::TaskGroup;
use super::meter::Meter;
use crate::proc::{self, Process};

/// After so long they go on, and what is known by then has to do.
const LONGEST: Duration = Duration::from_secs(120);
/// So long it may take until all of them stand still: a thread that waits for a disk is stopped after that.
const SETTLE: Duration = Duration::from_secs(30);
/// So much CPU time of a group is none: what the system takes for others may count there.
const NOTHING: fallow_domain::Duration = fallow_domain::Duration::from_millis(10);

/// A count of tasks that stand still.
#[derive(Debug)]
pub(super) struct StillCount {
    /// When they were stopped.
    since: Instant,
    /// When it began, and how they stood then; none for one that did not. Before that a count is over that
    /// had begun earlier.
    begun: Option<(Instant, BTreeMap<JobId, Option<Stood>>)>,
}

/// How a task stands still.
#[derive(Debug)]
struct Stood {
    /// How often the threads of each of its processes were run, where the system tells.
    runs: BTreeMap<(u32, u64), Option<u64>>,
    /// CPU time of its control group.
    group: Option<fallow_domain::Duration>,
}

impl Stood {
    /// None where something of it does not stand still.
    fn of(files: &Files, meter: &Meter) -> Option<Self> {
        let of_each = |process: &Process| Some(((process.pid, process.start), runs(process)?));
        let runs = files.processes().iter().map(of_each).collect::<Option<_>>()?;
        Some(Self { runs, group: meter.group().and_then(TaskGroup::cpu) })
    }

    /// Whether something of it has run by the time when it stands like this.
    fn has_run(&self, later: &Self) -> bool {
        let group = self.group.zip(later.group).is_some_and(|(was, is)| is - was > NOTHING);
        let is_new = later.runs.keys().any(|process| !self.runs.contains_key(process));
        // One that is gone has run to its end.
        let again = self.runs.iter().any(|(process, was)| match later.runs.get(process) {
            Some(is) => was.zip(*is).is_some_and(|(was, is)| was != is),
            None => true,
        });
        group || is_new || again
    }
}

/// How often the threads of a process were run, where the system tells; none while one of them goes on.
fn runs(process: &Process) -> Option<Option<u64>> {
    let mut all = Some(0_u64);
    for entry in std::fs::read_dir(format!("/proc/{}/task", process.pid)).into_iter().flatten().flatten() {
        let thread = entry.path();
        if proc::thread_in(&thread).is_some_and(|thread| !thread.stopped && !thread.zombie) {
            return None;
        }
        let told = std::fs::read_to_string(thread.join("schedstat")).ok();
        let runs = told.and_then(|told| told.split_whitespace().nth(2)?.parse::<u64>().ok());
        all = all.zip(runs).map(|(all, runs)| all.wrapping_add(runs));
    }
    Some(all)
}

impl Supervision {
    /// Whether all tasks were counted just now while they stood still. If not, that is begun, or goes on.
    pub(super) fn has_counted_still(&mut self) -> bool {
        let Some(mut count) = self.still_count.take() else {
            self.freezer.hold_still();
            self.still_count = Some(StillCount { since: Instant::now(), begun: None });
            return false;
        };
        let is_late = count.since.elapsed() >= LONGEST;
        let is_counting = self.disk.is_counting();
        if is_late || (count.begun.is_some() && !is_counting) {
            self.note_who_moved(&count, is_late);
            self.still_count = Some(count);
            self.end_still_count();
            return true;
        }
        if count.begun.is_none() && !is_counting {
            let stood = self.stand();
            let now = Instant::now();
            if stood.values().all(Option::is_some) || count.since.elapsed() >= SETTLE {
                let places = self.places();
                count.begun = self.disk.count(places, self.shared.dir.path()).then_some((now, stood));
            }
        }
        self.still_count = Some(count);
        false
    }

    /// Whether tasks stand still for a count.
    pub(super) const fn counts_still(&self) -> bool {
        self.still_count.is_some()
    }

    /// Has all tasks go on that were stopped for a count.
    pub(super) fn end_still_count(&mut self) {
        if self.still_count.take().is_some() {
            for task in self.tasks.values_mut() {
                if task.is_to_rest() {
                    // It goes on when it is told to: a process that it has stopped itself is not woken.
                    task.meter().set_frozen(true);
                }
                if task.pid().is_some_and(|pid| self.freezer.let_move(pid)) {
                    task.was_counted();
                }
            }
        }
    }

    /// How the tasks stand that are stopped to be counted.
    fn stand(&self) -> BTreeMap<JobId, Option<Stood>> {
        let tasks = self.tasks.iter().filter(|(_, task)| task.meter().is_counted_still());
        tasks.map(|(&job, task)| (job, Stood::of(&task.files(&self.shared), &task.meter()))).collect()
    }

    fn note_who_moved(&self, count: &StillCount, is_late: bool) {
        let Some((begun, stood)) = &count.begun else { return };
        let now = self.stand();
        for (job, was) in stood {
            let Some(task) = self.tasks.get(job) else { continue };
            let has_run = match (was, now.get(job)) {
                (Some(was), Some(Some(is))) => was.has_run(is),
                // It is told to leave by now.
                (_, None) => false,
                _ => true,
            };
            if has_run || (is_late && !task.meter().was_counted_after(*begun)) {
                task.meter().set_unsized(true);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};
    use std::sync::Arc;

    use rustix::process::{Pid, Signal, kill_process};

    use super::*;
    use crate::proc::Sessions;

    #[test]
    fn r6_10_what_has_run_for_an_instant_while_it_was_counted_is_known_by_it() {
        let mut first = Command::new("setsid").args(["sleep", "1000"]).stdin(Stdio::null()).spawn().unwrap();
        let meter = Arc::<Meter>::default();
        let end = Instant::now() + Duration::from_secs(60);
        let wait_for = |mut found: Box<dyn FnMut() -> Option<Stood> + '_>| loop {
            if let Some(stood) = found() {
                return stood;
            }
            assert!(Instant::now() < end, "it never comes to that");
            std::thread::sleep(Duration::from_millis(5));
        };
        let leader = first.id();
        let stand = || {
            let process = proc::find(leader).filter(|process| process.session == leader)?;
            let sessions = Sessions::from([(leader, process.start)]);
            let files =
                Files { slot: "/nowhere".into(), outputs: Vec::new(), sessions, meter: Arc::clone(&meter) };
            Stood::of(&files, &meter)
        };
        let tell = |what| kill_process(Pid::from_raw(leader.cast_signed()).unwrap(), what).unwrap();
        while proc::find(leader).is_none_or(|process| process.session != leader) {
            assert!(Instant::now() < end, "no session");
        }
        assert!(stand().is_none(), "it goes on");
        tell(Signal::STOP);
        let stood = wait_for(Box::new(stand));
        assert!(!stood.has_run(&stand().unwrap()));
        // Another stop is none of its doing.
        tell(Signal::STOP);
        assert!(!stood.has_run(&stand().unwrap()));
        tell(Signal::CONT);
        wait_for(Box::new(|| stand().is_none().then(|| Stood { runs: BTreeMap::new(), group: None })));
        tell(Signal::STOP);
        let again = wait_for(Box::new(stand));
        assert!(stood.has_run(&again));
        // One that is gone has run, too, and so has one that is new.
        let none = Stood { runs: BTreeMap::new(), group: None };
        assert!(stood.has_run(&none) && none.has_run(&stood) && !none.has_run(&none));
        first.kill().unwrap();
        first.wait().unwrap();
    }
}
