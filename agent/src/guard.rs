//! The guard: a small process that outlives the agent by some seconds, and sees to it that nothing of the
//! agent goes on computing after a `kill -9`.
//!
//! Model: the agent holds one end of a socket, the guard reads the other: `+PID`, `+PID START` and `-PID`, a
//! line for each session of a task, also those that its processes made for themselves. The end of the socket
//! is the end of the agent. Applications that notice by themselves that their client is gone (they look every
//! 10 s) get [`GRACE`] to save their work and leave; what is left then is killed. A process is told from a
//! later one of the same id by its start time, and a task's stray processes by their number
//! ([`crate::brand`]) or by the mark in their environment, or below root's agent by their user.
//!
//! Left out: guarding against a kill of agent and guard at once; then the agent's next start finds what is
//! left. Applications that were stopped notice nothing meanwhile, and hold their memory until then.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io::{BufRead, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use crate::brand::Brand;
use crate::cgroup::Group;
use crate::proc::{self, Process, Sessions};
use crate::sys::{self, Urgency};
use crate::users;

/// How long applications have to leave by themselves: BOINC's library looks for its client every 10 s.
pub const GRACE: Duration = Duration::from_secs(11);

/// How long it takes at most until a group is empty of what was killed.
const GONE: Duration = Duration::from_secs(2);

/// How often the guard looks whether everything is gone already.
const LOOK: Duration = Duration::from_millis(250);

/// The guard process itself: reads from `input` until it ends, then waits and kills.
///
/// `mark` is the beginning of the mark that processes of this life of the agent carry; `groups` is the
/// control group that those of its tasks are in, and `users` the first of the users that they run as, if
/// there are such.
pub fn watch(input: impl BufRead, mark: &str, grace: Duration, groups: Option<&Path>, users: Option<u32>) {
    // Now, as long as the agent is there. What a job has closed by then, where this guard takes the place of
    // an earlier one, is opened again.
    let groups = groups.and_then(TaskGroups::open);
    let mut watched = Sessions::new();
    for line in input.lines() {
        match line {
            Ok(line) => note(&mut watched, &line),
            Err(_) => break,
        }
    }
    let end = Instant::now() + grace;
    let brand = Brand::of_life(mark);
    let is_over = || {
        let in_groups = groups.as_ref().is_some_and(|groups| groups.jobs.is_populated());
        !in_groups && remaining(&proc::all(), &watched, mark, brand).is_empty()
    };
    while Instant::now() < end && !is_over() {
        std::thread::sleep(LOOK.min(grace));
    }
    // Several rounds, for a process may fork between the look and the kill.
    for _ in 0..20 {
        if let Some(groups) = &groups {
            groups.jobs.kill();
        }
        if proc::end_all(|all| remaining(all, &watched, mark, brand), |pid| brand.is_on_id(pid)) == 0 {
            break;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    // What is known by its user alone. Nothing is where no task was left, and then the agent waits.
    if let Some(first) = users.filter(|_| !watched.is_empty()) {
        users::end_left(first);
    }
    if let Some(groups) = groups {
        let _ = groups.parent.remove_within(&groups.name, GONE);
        // So that the next agent can be started in the group that this one had: no process can enter one that
        // hands controllers on.
        groups.parent.take_controllers_back();
    }
}

/// The control group of all tasks of a life, and where it lies.
struct TaskGroups {
    parent: Group,
    jobs: Group,
    name: String,
}

impl TaskGroups {
    fn open(place: &Path) -> Option<Self> {
        let parent = Group::open(place.parent()?).ok()?;
        let name = place.file_name()?.to_str()?.to_owned();
        Some(Self { jobs: parent.child(&name).ok()?, parent, name })
    }
}

fn note(watched: &mut Sessions, line: &str) {
    let mut words = line.split_whitespace();
    let Some(word) = words.next() else { return };
    if let Some(pid) = word.strip_prefix('+').and_then(|pid| pid.parse().ok()) {
        let start = words.next().and_then(|start| start.parse().ok());
        watched.insert(pid, start.or_else(|| Some(proc::find(pid)?.start)).unwrap_or(0));
    } else if let Some(pid) = word.strip_prefix('-').and_then(|pid| pid.parse::<u32>().ok()) {
        watched.remove(&pid);
    }
}

/// Of all processes those of the watched sessions, and those with the number or the mark.
fn remaining(all: &[Process], watched: &Sessions, mark: &str, brand: Brand) -> Vec<Process> {
    let of_tasks: BTreeSet<u32> = proc::of_sessions(all, watched).map(|process| process.pid).collect();
    let me = std::process::id();
    let others = all.iter().filter(|process| !process.zombie && process.pid != me).copied();
    let is_known = |process: &Process| of_tasks.contains(&process.pid) || brand.is_on(process);
    let (mut remaining, rest): (Vec<_>, Vec<_>) = others.partition(is_known);
    remaining.extend(proc::marked(rest, mark));
    remaining
}

/// The agent's side: starts the guard, tells it of tasks, and starts it again if it is gone.
#[derive(Debug)]
pub struct GuardHandle {
    program: PathBuf,
    mark: String,
    grace: Duration,
    groups: Option<PathBuf>,
    users: Option<u32>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    watched: Sessions,
    /// Those of them that tasks' processes made for themselves.
    strays: Sessions,
    running: Option<(Child, UnixStream)>,
}

impl GuardHandle {
    /// Starts a guard by running `program`, which is `fallow-agent` itself. `groups` is the control group of
    /// all tasks, if there is one, and `users` the first of the users that they run as
    /// ([`users::Users::block`]).
    ///
    /// # Errors
    /// An I/O error of the operating system, when the process cannot be started.
    pub fn start(
        program: PathBuf,
        mark: String,
        grace: Duration,
        groups: Option<PathBuf>,
        users: Option<u32>,
    ) -> std::io::Result<Self> {
        let handle = Self {
            program,
            mark,
            grace,
            groups,
            users,
            state: Mutex::new(State { watched: Sessions::new(), strays: Sessions::new(), running: None }),
        };
        handle.restart(&mut handle.lock())?;
        Ok(handle)
    }

    /// Tells the guard of a task's first process.
    pub fn add(&self, pid: u32, start: u64) {
        let mut state = self.lock();
        state.watched.insert(pid, start);
        self.say(&mut state, &format!("+{pid} {start}\n"));
    }

    /// Tells the guard that nothing is left of a task.
    pub fn remove(&self, pid: u32) {
        let mut state = self.lock();
        state.strays.remove(&pid);
        state.watched.remove(&pid);
        self.say(&mut state, &format!("-{pid}\n"));
    }

    /// Tells the guard of the sessions that tasks' processes made for themselves, where these are others than
    /// before.
    pub fn keep_strays(&self, strays: &Sessions) {
        let before = std::mem::take(&mut self.lock().strays);
        for (&session, &start) in strays.iter().filter(|(session, _)| !before.contains_key(session)) {
            self.add(session, start);
        }
        before
            .keys()
            .filter(|session| !strays.contains_key(session))
            .for_each(|&session| self.remove(session));
        self.lock().strays.clone_from(strays);
    }

    /// Starts the guard again if it is gone. To be called now and then.
    pub fn check(&self) {
        let mut state = self.lock();
        let gone = state.running.as_mut().is_none_or(|(child, _)| !matches!(child.try_wait(), Ok(None)));
        if gone {
            tracing::warn!("the guard process is gone: starting it again");
            if let Err(error) = self.restart(&mut state) {
                tracing::error!(%error, "cannot start the guard process; trying again");
            }
        }
    }

    /// Runs `start` with the guard's end of the socket, by which a new process tells of itself.
    pub fn with_line<T>(&self, start: impl FnOnce(Option<BorrowedFd<'_>>) -> T) -> T {
        // A descriptor of its own, so that a restart of the guard meanwhile cannot close it.
        let line: Option<OwnedFd> =
            self.lock().running.as_ref().and_then(|(_, line)| line.try_clone().ok()).map(OwnedFd::from);
        start(line.as_ref().map(AsFd::as_fd))
    }

    fn say(&self, state: &mut State, line: &str) {
        let said =
            state.running.as_mut().is_some_and(|(_, stream)| stream.write_all(line.as_bytes()).is_ok());
        if !said && let Err(error) = self.restart(state) {
            tracing::error!(%error, "cannot start the guard process; trying again");
        }
    }

    fn restart(&self, state: &mut State) -> std::io::Result<()> {
        if let Some((mut child, stream)) = state.running.take() {
            drop(stream);
            // It is gone, or cannot be spoken to: either way it must not outlive us as a second guard.
            let _ = child.kill();
            let _ = child.wait();
        }
        let (ours, theirs) = UnixStream::pair()?;
        // A guard that does not read must not stop the agent.
        ours.set_write_timeout(Some(Duration::from_secs(1)))?;
        let mut command = Command::new(&self.program);
        command
            .arg("guard")
            .arg("--mark")
            .arg(&self.mark)
            .arg("--grace-ms")
            .arg(self.grace.as_millis().to_string())
            .args(self.groups.iter().flat_map(|place| [OsStr::new("--groups"), place.as_os_str()]))
            .args(self.users.iter().flat_map(|first| ["--users".to_owned(), first.to_string()]))
            .env_clear()
            .current_dir("/")
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        sys::isolate(&mut command, Urgency::Inherited, None);
        let child = command.spawn()?;
        let mut stream = ours;
        for (pid, start) in &state.watched {
            stream.write_all(format!("+{pid} {start}\n").as_bytes())?;
        }
        state.running = Some((child, stream));
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        fallow_daemon::lock(&self.state)
    }
}

impl Drop for GuardHandle {
    /// A clean end: the guard is let go and taken away.
    fn drop(&mut self) {
        let mut state = self.lock();
        let idle = state.watched.is_empty();
        if let Some((mut child, stream)) = state.running.take() {
            drop(stream);
            if idle {
                let _ = child.wait();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_add_and_remove_and_nonsense_is_passed_over() {
        let mut watched = Sessions::new();
        for line in ["+7 70", "+8 80", "", "hello", "+x", "-9", "-7", "+4294967296 1"] {
            note(&mut watched, line);
        }
        assert_eq!(watched, Sessions::from([(8, 80)]));
    }

    #[test]
    fn a_later_process_with_the_id_of_a_watched_one_is_not_meant() {
        let me = proc::find(std::process::id()).unwrap();
        let Some(first) = proc::find(me.session) else { return };
        let other = Sessions::from([(me.session, first.start + 1)]);
        let brand = Brand::of_life("no such:mark:");
        assert!(remaining(&proc::all(), &other, "no such mark", brand).is_empty());
    }
}
