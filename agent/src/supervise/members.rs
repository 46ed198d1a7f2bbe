//! Which processes are whose, without reading of every process on the machine each second.
//!
//! Model: a look reads of the processes known from before, and of those that are new on the machine: the
//! kernel gives process ids in rising order and tells the last one (`/proc/loadavg`). All of `/proc` is read
//! when a task is new, when ids began anew at the bottom, when so many were given that looking at each would
//! cost more, and now and then in case that something was missed.
//!
//! A process belongs to a task if it is in the session of the task's first process, or the child of one that
//! belongs to it, or if it has the task's number ([`crate::brand`]); it stays the task's whatever session it
//! makes for itself later. Each such session is given its task's low priority too, at each look, for the
//! kernel weighs sessions before it weighs processes, and a process can take its session's priority back.
//! These sessions end with the task, and the guard knows of them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use fallow_domain::Bytes;

use super::departed::Departed;
use crate::brand;
use crate::proc::{self, Process, Sessions, Used};
use crate::sys::{self, Urgency};

/// More new ids than these, and reading all of `/proc` is no dearer on a usual machine.
const NEW_MAX: u32 = 512;
/// How often all of `/proc` is read without a reason.
const NET: Duration = Duration::from_secs(60);

/// What is known of a task's first process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct First {
    /// How much of the machine all of the task may take.
    pub(super) urgency: Urgency,
    /// The number that its processes have; 0 where they have none.
    pub(super) brand: u64,
}

/// The processes of all tasks.
#[derive(Debug, Default)]
pub(super) struct Members {
    known: BTreeMap<u32, Member>,
    /// The first processes of tasks of which something is not stopped.
    awake: BTreeSet<u32>,
    /// Sessions that members made for themselves, by the first process of their task.
    strays: BTreeMap<u32, Sessions>,
    /// What those used that are gone.
    departed: Departed,
    given: Option<Given>,
    all_read_at: Option<Instant>,
}

#[derive(Clone, Copy, Debug)]
struct Member {
    /// The first process of its task.
    leader: u32,
    start: u64,
}

/// The last process id that had been given at the look before, and at the one before that: a process may have
/// its id an instant before it can be seen.
#[derive(Clone, Copy, Debug)]
struct Given {
    older: u32,
    newer: u32,
}

impl Members {
    /// Looks at the tasks whose first processes and urgencies these are. Returns what each of them uses.
    pub(super) fn look(&mut self, leaders: &BTreeMap<u32, First>) -> BTreeMap<u32, Used> {
        let candidates = self.candidates(leaders);
        let mut members = self.of(leaders, &candidates);
        // An id may be a thread's. The kernel tells of it what its whole process uses, which is counted
        // already.
        members.retain(|(_, process)| self.is_known(process) || proc::is_process(process.pid));
        lower_groups(leaders, &members);
        self.departed.look(&mut members);
        self.strays = strays(&members);
        let awake = members.iter().filter(|(_, process)| !process.stopped && !process.zombie);
        self.awake = awake.map(|(leader, _)| *leader).collect();
        self.known = members
            .iter()
            .map(|(leader, process)| (process.pid, Member { leader: *leader, start: process.start }))
            .collect();
        let of = |leader| members.iter().filter(move |member| member.0 == leader).map(|member| &member.1);
        let used = |leader| proc::total(of(leader)).plus_ticks(self.departed.gone(leader));
        leaders.keys().map(|&leader| (leader, used(leader))).collect()
    }

    /// Every process that may belong to a task.
    fn candidates(&mut self, leaders: &BTreeMap<u32, First>) -> Vec<Process> {
        let last = proc::last_id();
        let new = self.given.zip(last).and_then(|(given, last)| {
            (last.checked_sub(given.older)? <= NEW_MAX).then_some(given.older.saturating_add(1)..=last)
        });
        self.given =
            last.map(|last| Given { older: self.given.map_or(last, |given| given.newer), newer: last });
        let is_known = leaders.keys().all(|leader| self.known.contains_key(leader));
        let is_due = self.all_read_at.is_none_or(|at| at.elapsed() >= NET);
        match new.filter(|_| is_known && !is_due) {
            Some(new) => {
                let ids: BTreeSet<u32> = self.known.keys().copied().chain(new).collect();
                ids.into_iter().filter_map(proc::find).collect()
            }
            None => {
                self.all_read_at = Some(Instant::now());
                proc::all()
            }
        }
    }

    /// Those of `candidates` that belong to a task, each with its task's first process.
    fn of(&self, leaders: &BTreeMap<u32, First>, candidates: &[Process]) -> Vec<(u32, Process)> {
        let mut children: BTreeMap<u32, Vec<&Process>> = BTreeMap::new();
        for process in candidates {
            children.entry(process.parent).or_default().push(process);
        }
        let brands: BTreeMap<u64, u32> =
            leaders.iter().map(|(&leader, first)| (first.brand, leader)).collect();
        let by_brand = |process: &Process| brands.get(&brand::of(process)?).copied();
        let mut members: Vec<(u32, Process)> = candidates
            .iter()
            .filter_map(|process| {
                Some((self.leader(leaders, process).or_else(|| by_brand(process))?, *process))
            })
            .collect();
        let mut found: BTreeSet<u32> = members.iter().map(|member| member.1.pid).collect();
        let mut at = 0;
        while let Some(&(leader, parent)) = members.get(at) {
            // A child is younger than its parent, or the parent's id is another's by now.
            let own = children.get(&parent.pid).into_iter().flatten();
            let own = own.filter(|child| parent.start <= child.start);
            members.extend(own.filter(|child| found.insert(child.pid)).map(|child| (leader, **child)));
            at += 1;
        }
        members
    }

    fn is_known(&self, process: &Process) -> bool {
        self.known.get(&process.pid).is_some_and(|member| member.start == process.start)
    }

    /// Whose a process is by what was known of it or by its session.
    fn leader(&self, leaders: &BTreeMap<u32, First>, process: &Process) -> Option<u32> {
        let known = self.known.get(&process.pid).filter(|member| member.start == process.start);
        let leader = known.map_or(process.session, |member| member.leader);
        Some(leader).filter(|leader| leaders.contains_key(leader))
    }

    /// Whether some process of a task was not stopped, by the last look.
    pub(super) fn is_awake(&self, leader: u32) -> bool {
        self.awake.contains(&leader)
    }

    /// What a task has in the swap space, by its processes of the last look.
    pub(super) fn swap(&self, leader: u32) -> Bytes {
        let own = || self.known.iter().filter(|(_, member)| member.leader == leader).map(|(pid, _)| *pid);
        let shares = own().nth(1).is_some();
        own().fold(Bytes(0), |all, pid| all.plus(fallow_daemon::proc::swapped(pid, shares)))
    }

    /// Sessions that processes of a task made for themselves.
    pub(super) fn strays(&self, leader: u32) -> Sessions {
        self.strays.get(&leader).cloned().unwrap_or_default()
    }

    /// The same of all tasks.
    pub(super) fn all_strays(&self) -> Sessions {
        self.strays.values().flatten().map(|(&session, &start)| (session, start)).collect()
    }
}

/// Sees to it that the sessions have their task's priority. What the kernel does not take now is tried at the
/// next look.
fn lower_groups(leaders: &BTreeMap<u32, First>, members: &[(u32, Process)]) {
    let mut seen = BTreeSet::new();
    for (leader, process) in members {
        if seen.insert(process.session) {
            let urgency = leaders.get(leader).map_or(Urgency::Idle, |first| first.urgency);
            sys::lower_group(process.pid, urgency);
        }
    }
}

fn strays(members: &[(u32, Process)]) -> BTreeMap<u32, Sessions> {
    let starts: BTreeMap<u32, u64> =
        members.iter().map(|(_, process)| (process.pid, process.start)).collect();
    let mut strays: BTreeMap<u32, Sessions> = BTreeMap::new();
    for (leader, process) in members.iter().filter(|(leader, process)| process.session != *leader) {
        let start = match starts.get(&process.session) {
            Some(&start) => start,
            None if proc::find(process.session).is_none() => 0,
            // Its first process is no task's. That cannot be, and whatever it is, it is not to be killed.
            None => continue,
        };
        strays.entry(*leader).or_default().insert(process.session, start);
    }
    strays
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(pid: u32, parent: u32, session: u32, start: u64) -> Process {
        let mut process = proc::find(std::process::id()).unwrap();
        (process.pid, process.parent, process.session, process.start) = (pid, parent, session, start);
        process
    }

    fn first(urgency: Urgency) -> First {
        First { urgency, brand: 0 }
    }

    fn leaders() -> BTreeMap<u32, First> {
        BTreeMap::from([(10, first(Urgency::Idle)), (20, first(Urgency::Low))])
    }

    fn pids(members: &[(u32, Process)]) -> Vec<(u32, u32)> {
        let mut pids: Vec<_> = members.iter().map(|(leader, process)| (*leader, process.pid)).collect();
        pids.sort_unstable();
        pids
    }

    #[test]
    fn a_task_is_its_session_and_what_that_started_in_sessions_of_their_own() {
        let all = [
            process(10, 1, 10, 1),
            process(11, 10, 10, 2),
            // An orphan of the session.
            process(12, 1, 10, 2),
            // A session of a child's own, with ids that began anew at the bottom.
            process(9, 12, 9, 3),
            process(8, 9, 9, 4),
            process(20, 1, 20, 1),
            process(30, 1, 30, 1),
        ];
        let members = Members::default().of(&leaders(), &all);
        assert_eq!(pids(&members), [(10, 8), (10, 9), (10, 10), (10, 11), (10, 12), (20, 20)]);
    }

    #[test]
    fn what_is_known_stays_its_tasks_and_a_later_process_of_its_id_does_not() {
        let known = [(12, 10), (13, 10), (14, 40)].map(|(pid, leader)| (pid, Member { leader, start: 2 }));
        let members = Members { known: BTreeMap::from(known), ..Members::default() };
        // Its parent is gone, its session is its own.
        let all = [process(12, 1, 12, 2), process(13, 1, 13, 7), process(14, 1, 14, 2)];
        assert_eq!(pids(&members.of(&leaders(), &all)), [(10, 12)]);
    }

    /// The program of the test below: threads that compute as soon as they are asked for, until its input
    /// ends.
    #[test]
    #[ignore = "a program for another test"]
    fn busy_threads() {
        let mut line = String::new();
        std::io::stdin().read_line(&mut line).unwrap();
        for _ in 0..line.trim().parse().unwrap_or(0) {
            std::thread::spawn(|| {
                loop {
                    std::hint::spin_loop();
                }
            });
        }
        std::io::copy(&mut std::io::stdin(), &mut std::io::sink()).unwrap();
    }

    #[test]
    fn threads_that_came_between_two_looks_are_not_counted_beside_their_process() {
        let name = format!("{}::busy_threads", module_path!().split_once("::").unwrap().1);
        let mut command = std::process::Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", &name, "--ignored", "--nocapture"]);
        command.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::null());
        // As urgent as the test itself: nothing else on the machine makes it take long.
        sys::isolate(&mut command, Urgency::Inherited, None);
        let mut task = command.spawn().unwrap();
        let leaders = BTreeMap::from([(task.id(), first(Urgency::Inherited))]);
        let mut members = Members::default();
        members.look(&leaders);
        members.look(&leaders);
        std::io::Write::write_all(task.stdin.as_mut().unwrap(), b"4\n").unwrap();
        let end = Instant::now() + Duration::from_secs(120);
        let (mut told, mut counted) = (members.look(&leaders)[&task.id()], Used::default());
        while counted.cpu.as_secs_f64() < 0.2 && Instant::now() < end {
            told = members.look(&leaders)[&task.id()];
            // The kernel's own count, taken later: never less than it was.
            counted = proc::find(task.id()).map_or(counted, |process| proc::total([&process].into_iter()));
            assert!(told.cpu <= counted.cpu, "{told:?} of {counted:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
        let known = members.known.len();
        proc::kill_session(task.id());
        task.wait().unwrap();
        assert!(told.cpu.as_secs_f64() > 0.1, "{told:?} of {counted:?}");
        assert_eq!(known, 1);
    }

    #[test]
    fn a_child_that_came_between_two_looks_is_counted() {
        let mut command = std::process::Command::new("/bin/sh");
        command.args(["-c", "read go; sleep 1000 & wait"]).stdin(std::process::Stdio::piped());
        sys::isolate(&mut command, Urgency::Idle, None);
        let mut task = command.spawn().unwrap();
        let leaders = BTreeMap::from([(task.id(), first(Urgency::Idle))]);
        let mut members = Members::default();
        members.look(&leaders);
        assert_eq!(members.known.len(), 1);
        members.look(&leaders);
        let before = members.all_read_at;
        drop(task.stdin.take());
        let end = Instant::now() + Duration::from_secs(120);
        while members.known.len() < 2 && Instant::now() < end {
            members.look(&leaders);
        }
        let known = members.known.len();
        proc::kill_session(task.id());
        task.wait().unwrap();
        assert_eq!(known, 2);
        assert!(before.is_some());
        members.look(&BTreeMap::new());
        assert!(members.known.is_empty());
    }

    #[test]
    fn r6_10_the_time_of_what_has_left_its_task_by_all_means_counts_and_goes_on_counting_when_it_is_gone() {
        let brand = crate::brand::Brand::of_life("/nowhere:members:").of_slot(1);
        let mut command = std::process::Command::new("/bin/sh");
        command.args(["-c", "(setsid env -i perl -e 'fork && exit; 1 while 1' &); exec sleep 1000"]);
        sys::isolate(&mut command, Urgency::Inherited, None);
        sys::limit(&mut command, sys::Limits { brand: brand.value(), ..sys::Limits::default() });
        let mut task = command.spawn().unwrap();
        let leader = First { urgency: Urgency::Inherited, brand: brand.value() };
        let leaders = BTreeMap::from([(task.id(), leader)]);
        let mut members = Members::default();
        let cpu = |members: &mut Members| members.look(&leaders)[&task.id()].cpu.as_secs_f64();
        let end = Instant::now() + Duration::from_secs(120);
        while cpu(&mut members) < 0.3 && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(5));
        }
        let before = cpu(&mut members);
        let detached = |process: &Process| process.pid != task.id();
        let killed = proc::end(|_| crate::brand::find(brand).into_iter().filter(detached).collect());
        while members.known.len() > 1 && Instant::now() < end {
            members.look(&leaders);
        }
        let (known, after) = (members.known.len(), cpu(&mut members));
        proc::kill_session(task.id());
        task.wait().unwrap();
        assert!(before >= 0.3 && killed == 1 && known == 1, "{before} {killed} {known}");
        assert!(after >= before, "{after} of {before}");
    }

    #[test]
    fn a_task_that_takes_its_groups_priority_back_has_it_for_one_look_at_most() {
        if std::fs::read_to_string("/proc/sys/kernel/sched_autogroup_enabled").is_err() {
            return println!("skipped: this kernel has no automatic groups");
        }
        let mut command = std::process::Command::new("/bin/sh");
        command
            .args(["-c", "read go; until echo 0 > /proc/$$/autogroup; do sleep 0.1; done; echo; read end"]);
        command.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
        sys::isolate(&mut command, Urgency::Idle, None);
        let mut task = command.spawn().unwrap();
        let path = format!("/proc/{}/autogroup", task.id());
        let leaders = BTreeMap::from([(task.id(), first(Urgency::Idle))]);
        let group = || std::fs::read_to_string(&path).unwrap();
        let mut members = Members::default();
        // The kernel takes a change in a tenth of a second only.
        let lowered = |members: &mut Members| {
            let end = Instant::now() + Duration::from_secs(120);
            while !group().ends_with(" nice 19\n") && Instant::now() < end {
                members.look(&leaders);
                std::thread::sleep(Duration::from_millis(20));
            }
            group().ends_with(" nice 19\n")
        };
        let at_first = lowered(&mut members);
        members.look(&leaders);
        std::io::Write::write_all(task.stdin.as_mut().unwrap(), b"go\n").unwrap();
        std::io::Read::read_exact(task.stdout.as_mut().unwrap(), &mut [0]).unwrap();
        let taken = group().ends_with(" nice 0\n");
        let again = lowered(&mut members);
        proc::kill_session(task.id());
        task.wait().unwrap();
        assert_eq!((at_first, taken, again), (true, true, true));
    }
}
