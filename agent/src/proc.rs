//! What the kernel says of processes: `/proc`.
//!
//! A task is all processes of its session: the application has a session of its own, and what it starts stays in it
//! unless it goes out of its way. Processes also carry a mark in their environment ([`MARK`]), by which those that
//! left the session, or that an earlier life of the agent left, are found.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;

use fallow_domain::{Bytes, Duration};
use rustix::process::{Pid, Signal};

/// The environment variable that marks the processes of tasks: `DATA_DIRECTORY:LIFE:SLOT:`.
pub const MARK: &str = "FALLOW_TASK";

/// One process, as `/proc/PID/stat` tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process {
    /// Its id.
    pub pid: u32,
    /// Its parent: init or a reaper where its own is gone.
    pub parent: u32,
    /// Its session, which is the id of the task's first process.
    pub session: u32,
    /// Its start, in clock ticks since boot: tells it from a later process of the same id.
    pub start: u64,
    /// It has ended and waits to be taken away.
    pub zombie: bool,
    /// CPU time of itself and of the children it waited for, in clock ticks.
    ticks: u64,
    /// Resident pages.
    pages: u64,
}

/// What a session uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Used {
    /// CPU time.
    pub cpu: Duration,
    /// Main memory.
    pub memory: Bytes,
}

/// Sessions by their ids, with the start of the first process of each, and 0 where that was gone when the session was found.
pub type Sessions = BTreeMap<u32, u64>;

/// All processes that can be seen, in no order.
pub fn all() -> Vec<Process> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).filter_map(find).collect()
}

/// Names this boot of the machine; empty where the kernel does not say.
pub fn boot() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id")
        .map_or_else(|_| String::new(), |id| id.trim().to_owned())
}

/// One process, if it exists.
pub fn find(pid: u32) -> Option<Process> {
    // The kernel gives the line as a whole to one read: at most a name of 64 bytes and 52 numbers.
    let mut line = [0; 2048];
    let len = fs::File::open(format!("/proc/{pid}/stat")).ok()?.read(&mut line).ok()?;
    // A process may call itself what it likes, and be found all the same.
    parse(&String::from_utf8_lossy(&line[..len]))
}

/// True if an id is a process's own and not that of one of its further threads, which `/proc` shows as well.
pub fn is_process(pid: u32) -> bool {
    let Ok(status) = fs::read(format!("/proc/{pid}/status")) else { return false };
    let group = status.split(|&byte| byte == b'\n').find_map(|line| line.strip_prefix(b"Tgid:"));
    group.and_then(|id| std::str::from_utf8(id).ok()?.trim().parse().ok()) == Some(pid)
}

/// The last process id that was given, to a process or a thread; ids are given in rising order, and begin anew at the
/// bottom once the highest is reached. None where the kernel does not say.
pub fn last_id() -> Option<u32> {
    fs::read_to_string("/proc/loadavg").ok()?.split_whitespace().last()?.parse().ok()
}

/// A line of `/proc/PID/stat`. The name in it can hold anything, parentheses too; the fields follow the last one.
fn parse(line: &str) -> Option<Process> {
    let (head, tail) = line.rsplit_once(')')?;
    let pid = head.split_once(' ')?.0.parse().ok()?;
    let fields: Vec<&str> = tail.split_whitespace().collect();
    let number = |index: usize| fields.get(index)?.parse::<u64>().ok();
    Some(Process {
        pid,
        parent: u32::try_from(number(1)?).ok()?,
        session: u32::try_from(number(3)?).ok()?,
        start: number(19)?,
        zombie: matches!(fields.first(), Some(&("Z" | "X"))),
        ticks: (11..=14).filter_map(number).fold(0, u64::saturating_add),
        pages: fields.get(21)?.parse().unwrap_or(0),
    })
}

/// What the processes of `session` use together, out of a list of [`all`].
pub fn used(processes: &[Process], session: u32) -> Used {
    total(processes.iter().filter(|process| process.session == session))
}

/// What these processes use together.
pub fn total<'a>(processes: impl Iterator<Item = &'a Process>) -> Used {
    let (mut ticks, mut pages) = (0_u64, 0_u64);
    for process in processes {
        ticks = ticks.saturating_add(process.ticks);
        pages = pages.saturating_add(process.pages);
    }
    let per_second = rustix::param::clock_ticks_per_second().max(1);
    let micros = u128::from(ticks) * 1_000_000 / u128::from(per_second);
    Used {
        cpu: Duration::from_micros(i64::try_from(micros).unwrap_or(i64::MAX)),
        memory: Bytes(pages.saturating_mul(rustix::param::page_size() as u64)),
    }
}

/// True if the process carries a mark that begins with `prefix`. Others' processes cannot be looked into: false.
pub fn is_marked(pid: u32, prefix: &str) -> bool {
    let Ok(environment) = fs::read(format!("/proc/{pid}/environ")) else { return false };
    environment.split(|&byte| byte == 0).any(|entry| {
        entry
            .strip_prefix(MARK.as_bytes())
            .and_then(|rest| rest.strip_prefix(b"="))
            .is_some_and(|mark| mark.starts_with(prefix.as_bytes()))
    })
}

/// Kills every process of a session, at once and without asking. Returns how many there were.
pub fn kill_session(session: u32) -> usize {
    // The group first, which is atomic; then whatever left the group but not the session.
    if let Some(pid) = to_pid(session) {
        let _ = rustix::process::kill_process_group(pid, Signal::KILL);
    }
    kill(all().into_iter().filter(|process| process.session == session && !process.zombie))
}

/// Kills every process whose mark begins with `prefix`. Returns how many there were.
pub fn kill_marked(prefix: &str) -> usize {
    kill(all().into_iter().filter(|process| !process.zombie && is_marked(process.pid, prefix)))
}

/// The living processes of these sessions, out of a list of [`all`].
pub fn of_sessions<'a>(
    processes: &'a [Process],
    sessions: &'a Sessions,
) -> impl Iterator<Item = &'a Process> {
    processes.iter().filter(|process| !process.zombie).filter(|process| {
        sessions.get(&process.session).is_some_and(|&start| {
            // While any process of a session lives, its id is not given to another; so if there is a first process, it is
            // the one that was known, or the session is a later one.
            let first = processes.iter().find(|first| first.pid == process.session);
            first.is_none_or(|first| first.start == start)
        })
    })
}

/// Adds the sessions that children of processes of these made for themselves.
pub fn follow(sessions: &mut Sessions, processes: &[Process]) {
    let parents: BTreeMap<u32, u64> =
        of_sessions(processes, sessions).map(|parent| (parent.pid, parent.start)).collect();
    // A child is younger than its parent, or the parent's id is another's by now.
    let is_child =
        |process: &&Process| parents.get(&process.parent).is_some_and(|&start| start <= process.start);
    let own = processes.iter().filter(|process| process.session == process.pid).filter(is_child);
    sessions.extend(own.map(|process| (process.pid, process.start)));
}

/// The sessions that children of a session's living processes made for themselves, out of a list of [`all`]. Its first
/// process has to be in the list, be it a zombie.
pub fn offspring(session: u32, processes: &[Process]) -> Sessions {
    let first = processes.iter().find(|process| process.pid == session);
    let mut sessions: Sessions = first.map(|first| (session, first.start)).into_iter().collect();
    follow(&mut sessions, processes);
    sessions.remove(&session);
    sessions
}

/// Kills these processes. Returns how many there were.
pub fn kill(processes: impl Iterator<Item = Process>) -> usize {
    processes
        .filter_map(|process| to_pid(process.pid))
        .filter(|&pid| rustix::process::kill_process(pid, Signal::KILL).is_ok())
        .count()
}

/// A process id as the system's calls take it; none for 0, 1 and what is out of range.
pub fn to_pid(pid: u32) -> Option<Pid> {
    i32::try_from(pid).ok().filter(|&pid| pid > 1).and_then(Pid::from_raw)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stat_line_is_read_whatever_the_program_calls_itself() {
        let line = "42 (a) b (c)) S 1 42 42 0 -1 4194304 100 0 0 0 150 50 30 20 39 19 1 0 777 1000 3 184 0";
        let process = parse(line).unwrap();
        assert_eq!((process.pid, process.session, process.start, process.zombie), (42, 42, 777, false));
        assert_eq!(process.ticks, 250);
        assert_eq!(process.pages, 3);
    }

    #[test]
    fn lines_that_are_none_are_nothing() {
        for line in ["", "1", "1 (x", "1 (x) S", "x (x) S 1 2 3"] {
            assert_eq!(parse(line), None, "{line:?}");
        }
    }

    #[test]
    fn a_process_whose_name_is_no_text_is_found() {
        let mut command = std::process::Command::new("/bin/sh");
        command.args(["-c", "printf '\\377\\376' > /proc/$$/comm; echo; read wait; exec sleep 1000"]);
        command.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
        crate::sys::isolate(&mut command, crate::sys::Urgency::Inherited, None);
        let mut child = command.spawn().unwrap();
        child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        let found = find(child.id());
        let _ = child.kill();
        child.wait().unwrap();
        assert_eq!(found.map(|process| process.session), Some(child.id()));
    }

    #[test]
    fn this_very_process_is_found_and_uses_memory() {
        let me = find(std::process::id()).unwrap();
        assert!(used(&[me], me.session).memory.0 > 0);
        assert!(!is_marked(me.pid, "no such mark"));
    }

    #[test]
    fn init_and_every_process_at_once_are_never_meant() {
        assert_eq!((to_pid(0), to_pid(1), to_pid(u32::MAX)), (None, None, None));
    }
}
