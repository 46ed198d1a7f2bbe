//! Counts what tasks hold of the disk while they stand still (R6.10).
//!
//! Model: a task that computes can move its files out of the way of a count, and another one would have to go
//! in its stead. So before one has to go that holds no more than it may, all are stopped, counted, and let go
//! on. That takes a second or two, or as long as counting them, and happens only while nothing can be stored.
//!
//! One of which something has run meanwhile may hold anything: a signal that it has made for itself lets it
//! go on. So may one of which the count has missed something, and one that is not counted by the longest time
//! that the others may wait for it.
//!
//! A thread that waits and cannot be stopped stands still as well, as long as it has not run: that of a
//! process whose child was stopped before it executed its program does.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fallow_domain::JobId;

use super::Supervision;
use super::disk::Files;
use super::groups::TaskGroup;
use super::meter::Meter;
use crate::proc::{self, Process};

/// After so long they go on, and what is known by then has to do.
const LONGEST: Duration = Duration::from_secs(120);
/// So long it may take until all of them stand still: a thread that waits for a disk may take longer.
const SETTLE: Duration = Duration::from_secs(30);
/// So much CPU time of a group is none: what the system takes for others may count there.
const NOTHING: fallow_domain::Duration = fallow_domain::Duration::from_millis(10);

/// A count of tasks that stand still.
#[derive(Debug)]
pub(super) struct StillCount {
    /// When it was wanted.
    since: Instant,
    /// When they were stopped: not before a count is over that had begun earlier.
    stopped: Option<Instant>,
    /// When it began, and how they stood then; none for one that did not.
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
        let all = files.processes();
        let has_child = |parent: u32| all.iter().any(|child| child.parent == parent && child.stopped);
        let of_each =
            |process: &Process| Some(((process.pid, process.start), runs(process, has_child(process.pid))?));
        let runs = all.iter().map(of_each).collect::<Option<_>>()?;
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
fn runs(process: &Process, may_wait: bool) -> Option<Option<u64>> {
    let is_still = |thread: Process| thread.stopped || thread.zombie || (may_wait && thread.waits);
    let mut all = Some(0_u64);
    for entry in std::fs::read_dir(format!("/proc/{}/task", process.pid)).into_iter().flatten().flatten() {
        let thread = entry.path();
        if proc::thread_in(&thread).is_some_and(|thread| !is_still(thread)) {
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
        let now = Instant::now();
        let mut count =
            self.still_count.take().unwrap_or(StillCount { since: now, stopped: None, begun: None });
        let is_counting = self.disk.is_counting();
        let is_late = count.stopped.unwrap_or(count.since).elapsed() >= LONGEST;
        if is_late || (count.begun.is_some() && !is_counting) {
            self.note_who_moved(&count, is_late);
            self.still_count = Some(count);
            self.end_still_count();
            return true;
        }
        if !is_counting && count.stopped.is_none() {
            self.freezer.hold_still();
            count.stopped = Some(now);
        } else if let Some(stopped) = count.stopped.filter(|_| !is_counting) {
            let stood = self.stand();
            if stopped.elapsed() >= SETTLE || stood.values().all(Option::is_some) {
                let places = self.places();
                let is_begun = self.disk.count(places, self.shared.dir.path());
                count.begun = is_begun.then_some((now, stood));
            }
        }
        self.still_count = Some(count);
        false
    }

    /// Whether tasks stand still for a count, or soon will.
    pub(super) const fn counts_still(&self) -> bool {
        self.still_count.is_some()
    }

    /// Has all tasks go on that were stopped for a count.
    pub(super) fn end_still_count(&mut self) {
        if self.still_count.take().is_some_and(|count| count.stopped.is_some()) {
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
        let Some((begun, stood)) = &count.begun else {
            // An earlier count is not over: it has not come to an end with these.
            let earlier = self.disk.begun().unwrap_or(count.since);
            let unknown = |meter: &Arc<Meter>| !meter.was_counted_after(earlier);
            let meters = self.tasks.values().map(|task| task.meter());
            return meters.filter(unknown).for_each(|meter| meter.set_unsized(true));
        };
        let now = self.stand();
        for (job, was) in stood {
            let Some(task) = self.tasks.get(job) else { continue };
            let has_run = match (was, now.get(job)) {
                (Some(was), Some(Some(is))) => was.has_run(is),
                // It is told to leave by now.
                (_, None) => false,
                _ => true,
            };
            let meter = task.meter();
            let is_counted = meter.was_counted_after(*begun);
            // What it holds by a socket, say. One that stands still moves nothing.
            let has_missed = is_counted && meter.has_missed();
            if has_run || has_missed || (is_late && !is_counted) {
                meter.set_unsized(true);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

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

    #[test]
    fn r6_10_what_waits_for_a_program_that_it_has_just_started_stands_still() {
        // Its child is stopped before it executes anything, and until then a parent waits that shares its
        // memory.
        let (call, flags) = if cfg!(target_arch = "aarch64") { (220, 0x4111) } else { (56, 0x4111) };
        let program =
            format!("setpgrp; if (syscall({call}, {flags}, 0, 0, 0, 0) == 0) {{ kill 'STOP', $$ }}");
        let mut first =
            Command::new("setsid").args(["perl", "-e", &program]).stdin(Stdio::null()).spawn().unwrap();
        let child = || proc::all().into_iter().find(|child| child.parent == first.id());
        let is_stopped = || child().is_some_and(|child| child.stopped);
        let waits = || proc::find(first.id()).is_some_and(|process| process.waits) && is_stopped();
        let end = Instant::now() + Duration::from_secs(60);
        while !waits() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(5));
        }
        let process = proc::find(first.id()).unwrap();
        let child = child();
        let (still, waiting) = (runs(&process, false), runs(&process, true));
        let again = runs(&process, true);
        child.iter().for_each(|child| proc::signal(child.pid, Signal::KILL));
        first.kill().unwrap();
        first.wait().unwrap();
        assert!(process.waits && child.is_some_and(|child| child.stopped));
        assert!(still.is_none() && waiting.is_some() && waiting == again);
    }
}
