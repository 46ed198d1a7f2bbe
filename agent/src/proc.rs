//! What the kernel says of processes: `/proc`.
//!
//! A task is the processes of its application's session, those of the sessions that these make
//! (`supervise::members`), and those that have its number ([`crate::brand`]), whatever became of them.
//! Processes also carry a mark in their environment ([`MARK`]), by which those are found that could have no
//! number.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Read as _};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::{Duration as StdDuration, Instant};

pub use fallow_daemon::proc::{Process, Used, all, find, thread_in, total};
use rustix::process::{Pid, Signal};

use crate::{fleeting, owner};

/// The environment variable that marks the processes of tasks: `PATH:PLACE:LIFE:SLOT:`, by path and place of
/// the agent's directory.
pub const MARK: &str = "FALLOW_TASK";

/// Sessions by their ids, with the start of the first process of each, and 0 where that was gone when the
/// session was found.
pub type Sessions = BTreeMap<u32, u64>;

/// True if an id is a process's own and not that of one of its further threads, which `/proc` shows as well.
/// What is gone is none. This takes a microsecond where the system has the call for it (Linux 5.3).
pub fn is_process(pid: u32) -> bool {
    match to_pid(pid).map(|pid| rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty())) {
        Some(Ok(_)) => true,
        // It is unknown, or kept from containers.
        Some(Err(rustix::io::Errno::NOSYS | rustix::io::Errno::PERM)) => {
            status(pid, "Tgid:").and_then(|id| id.parse().ok()) == Some(pid)
        }
        _ => false,
    }
}

/// What `/proc/PID/status` says after such a word as `Uid:`. The name of the process is in there too, and can
/// hold any bytes.
pub fn status(pid: u32, word: &str) -> Option<String> {
    let status = fs::read(format!("/proc/{pid}/status")).ok()?;
    let value = status.split(|&byte| byte == b'\n').find_map(|line| line.strip_prefix(word.as_bytes()))?;
    Some(String::from_utf8_lossy(value).trim().to_owned())
}

/// The users that a process runs as or can become again, as the kernel itself keeps them. The first is the
/// one that it runs as. The owner of its directory in `/proc` says less: a process can have that be root.
pub fn users(pid: u32) -> Vec<u32> {
    let all = status(pid, "Uid:").unwrap_or_default();
    all.split_whitespace().filter_map(|id| id.parse().ok()).collect()
}

/// The user that a process runs as, as the kernel itself keeps it.
pub fn user(pid: u32) -> Option<u32> {
    users(pid).first().copied()
}

/// A text of the kernel's, such as `/proc/self/mountinfo`. Some hold names that others chose, in which any
/// bytes can be: what is no text in them is replaced.
///
/// # Errors
/// It cannot be read.
pub fn text(path: impl AsRef<Path>) -> io::Result<String> {
    Ok(String::from_utf8_lossy(&fs::read(path)?).into_owned())
}

/// The last process id that was given, to a process or a thread; ids are given in rising order, and begin
/// anew at the bottom once the highest is reached. None where the kernel does not say.
pub fn last_id() -> Option<u32> {
    fs::read_to_string("/proc/loadavg").ok()?.split_whitespace().last()?.parse().ok()
}

/// For how long the present thread has waited for a CPU since it began. None where the kernel does not count
/// it.
pub fn thread_waited() -> Option<StdDuration> {
    let text = fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    text.split_whitespace().nth(1)?.parse().ok().map(StdDuration::from_nanos)
}

/// How many processes and threads a user has, as far as they can be seen.
pub fn threads_of_user(user: rustix::fs::Uid) -> u32 {
    use std::os::unix::fs::MetadataExt as _;
    let user = user.as_raw();
    let is_own = |process: &Process| {
        fs::metadata(format!("/proc/{}", process.pid)).is_ok_and(|data| data.uid() == user)
    };
    all().iter().filter(|process| is_own(process)).fold(0, |sum, process| sum.saturating_add(process.threads))
}

/// Those of `processes` that run as one of these users, or could become it again.
pub fn of_users(processes: &[Process], users: &Range<u32>) -> Vec<Process> {
    let is_theirs =
        |process: &&Process| !process.zombie && self::users(process.pid).iter().any(|id| users.contains(id));
    processes.iter().filter(is_theirs).copied().collect()
}

/// A user as a range of its own.
pub fn only(user: rustix::fs::Uid) -> Range<u32> {
    user.as_raw()..user.as_raw().saturating_add(1)
}

/// Whether a process runs in a container of somebody's: it has other processes around it than this one, and
/// the same users. A job that makes itself such surroundings has to make itself users as well; where the
/// kernel has one kind of users only, no job can make any.
pub fn is_in_container(pid: u32) -> bool {
    let is_same = |kind: &str| {
        let of = |whose: &str| fs::read_link(format!("/proc/{whose}/ns/{kind}")).ok();
        Some(of("self")? == of(&pid.to_string())?)
    };
    is_same("pid") == Some(false) && is_same("user") != Some(false)
}

/// Ends all processes of these users, but those of containers, and waits until they are gone.
///
/// # Errors
/// Some are there still, for the system cannot kill them, or they fork faster than they can be killed.
pub fn end_of_users(users: &Range<u32>) -> io::Result<()> {
    let left = |all: &[Process]| -> Vec<Process> {
        let theirs = of_users(all, users).into_iter();
        theirs.filter(|process| !is_in_container(process.pid)).collect()
    };
    let is_of = |pid| {
        self::users(pid).iter().any(|id| users.contains(id)) && is_process(pid) && !is_in_container(pid)
    };
    let (give_up, first) = (Instant::now() + DYING_MAX, users.start);
    while end_all(left, is_of) > 0 {
        if Instant::now() > give_up
            && let Some(one) = left(&all()).first()
        {
            let pid = one.pid;
            let why = format!("processes of the users from {first} on cannot be killed, such as {pid}");
            return Err(io::Error::other(why));
        }
        if Instant::now() > give_up + FLEEING_MAX {
            let why = format!("processes of the users from {first} on fork faster than they can be killed");
            return Err(io::Error::other(why));
        }
        std::thread::sleep(StdDuration::from_millis(10));
    }
    Ok(())
}

/// What the processes of `session` use together, out of a list of [`all`].
pub fn used(processes: &[Process], session: u32) -> Used {
    total(processes.iter().filter(|process| process.session == session))
}

/// Whether a process runs as this one's user, as tasks do, or as one of those that tasks have. No other is
/// asked for its environment: it could keep whoever asks waiting for its memory.
fn may_be_task(process: &Process) -> bool {
    let own = rustix::process::geteuid();
    user(process.pid).is_some_and(|user| user == own.as_raw() || own.is_root() && owner::is_jobs(user))
}

/// Those of `processes` that carry a mark which begins with `prefix`. Others' processes cannot be looked
/// into: they are left out.
///
/// A process that loads its program has no environment for a moment. It is looked at again, and left out
/// only if it still has none after half a second.
pub fn marked(processes: impl IntoIterator<Item = Process>, prefix: &str) -> Vec<Process> {
    let give_up = Instant::now() + LOADING_MAX;
    let living = processes.into_iter().filter(|process| !process.zombie);
    let mut open: Vec<Process> = living.filter(may_be_task).collect();
    let mut marked = Vec::new();
    loop {
        open.retain(|process| match standing(process, prefix) {
            Standing::Marked => {
                marked.push(*process);
                false
            }
            Standing::Unmarked => false,
            Standing::Loading => true,
        });
        if open.is_empty() || Instant::now() > give_up {
            return marked;
        }
        std::thread::sleep(StdDuration::from_millis(1));
    }
}

/// So long a process may load its program before it is taken for one without an environment.
const LOADING_MAX: StdDuration = StdDuration::from_millis(500);

/// So long it takes at most until a process is gone that was killed, unless it waits for a disk.
const DYING_MAX: StdDuration = StdDuration::from_secs(5);
/// So much longer it is tried to kill what no list has.
pub const FLEEING_MAX: StdDuration = StdDuration::from_secs(30);

/// What a process's environment says of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    Marked,
    Unmarked,
    /// It says nothing yet.
    Loading,
}

fn standing(process: &Process, prefix: &str) -> Standing {
    if let Some(standing) = by_environment(process, prefix) {
        return standing;
    }
    match find(process.pid).filter(|now| now.start == process.start && !now.zombie && now.has_memory) {
        Some(now) if !now.is_loaded => Standing::Loading,
        // It may have been loaded only after the first look.
        Some(_) => by_environment(process, prefix).unwrap_or(Standing::Unmarked),
        None => Standing::Unmarked,
    }
}

/// The first bytes of a file in `/proc`, so many at most. A process may call all of its memory its arguments
/// or its environment, terabytes that it has never written to.
pub fn start_of(path: impl AsRef<Path>, most: u64) -> io::Result<Vec<u8>> {
    let mut start = Vec::new();
    fs::File::open(path)?.take(most).read_to_end(&mut start)?;
    Ok(start)
}

/// So much of an environment is looked at, in bytes: of tasks it is some hundred.
const ENVIRONMENT_MAX: u64 = 256 << 10;

/// The environment of a process. Where its first thread has ended, the others have it.
fn environment(process: &Process) -> io::Result<Vec<u8>> {
    let dir = PathBuf::from(format!("/proc/{}", process.pid));
    let of_first = start_of(dir.join("environ"), ENVIRONMENT_MAX);
    if process.threads <= 1 || of_first.as_ref().is_ok_and(|environment| !environment.is_empty()) {
        return of_first;
    }
    let threads = fs::read_dir(dir.join("task")).into_iter().flatten().flatten().map(|thread| thread.path());
    let lives = |thread: &PathBuf| thread_in(thread).is_some_and(|it| !it.zombie && it.has_memory);
    threads
        .into_iter()
        .find(lives)
        .map_or(of_first, |thread| start_of(thread.join("environ"), ENVIRONMENT_MAX))
}

/// None where the environment is empty.
fn by_environment(process: &Process, prefix: &str) -> Option<Standing> {
    let Ok(environment) = environment(process) else {
        return Some(Standing::Unmarked);
    };
    let is_marked = environment.split(|&byte| byte == 0).any(|entry| {
        entry
            .strip_prefix(MARK.as_bytes())
            .and_then(|rest| rest.strip_prefix(b"="))
            .is_some_and(|mark| mark.starts_with(prefix.as_bytes()))
    });
    match is_marked {
        true => Some(Standing::Marked),
        false if environment.is_empty() => None,
        false => Some(Standing::Unmarked),
    }
}

/// Kills every process of a session, at once and without asking. Returns how many there were.
pub fn kill_session(session: u32) -> usize {
    // The group first, which is atomic; then whatever left the group but not the session.
    kill_group(session);
    kill(all().into_iter().filter(|process| process.session == session && !process.zombie))
}

/// Kills every process of a group, all at once.
pub fn kill_group(group: u32) {
    if let Some(pid) = to_pid(group) {
        let _ = rustix::process::kill_process_group(pid, Signal::KILL);
    }
}

/// Kills every process whose mark begins with `prefix`. Returns how many there were.
pub fn kill_marked(prefix: &str) -> usize {
    kill(marked(all(), prefix).into_iter())
}

/// The living processes of these sessions, out of a list of [`all`].
pub fn of_sessions<'a>(
    processes: &'a [Process],
    sessions: &'a Sessions,
) -> impl Iterator<Item = &'a Process> {
    processes.iter().filter(|process| !process.zombie).filter(|process| {
        sessions.get(&process.session).is_some_and(|&start| {
            // While any process of a session lives, its id is not given to another; so if there is a first
            // process, it is the one that was known, or the session is a later one.
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

/// The sessions that children of a session's living processes made for themselves, out of a list of [`all`].
/// Its first process has to be in the list, be it a zombie.
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

/// Most rounds of [`end`], should processes fork faster than they can be stopped.
const ROUNDS_MAX: u32 = 20;

/// Ends all processes that `pick` picks from those that there are. Returns about how many there were, and 0
/// only where the last look found none.
///
/// They are stopped first, round after round, until no round finds one that was not: what is stopped forks no
/// more, and leaves no room for others where their number is limited.
pub fn end(pick: impl Fn(&[Process]) -> Vec<Process>) -> usize {
    end_with(&pick, None)
}

/// The same, also of those whose ids `has_id` says to be of the same kind, and which no list may have. These
/// are killed at once: whoever is stopped can have a timer of his own let him go on.
pub fn end_all(pick: impl Fn(&[Process]) -> Vec<Process>, has_id: impl Fn(u32) -> bool) -> usize {
    end_with(&pick, Some(&has_id))
}

fn end_with(pick: &dyn Fn(&[Process]) -> Vec<Process>, has_id: Option<&dyn Fn(u32) -> bool>) -> usize {
    let mut told: BTreeSet<(u32, u64)> = BTreeSet::new();
    let (mut lists, killed) = (fleeting::Lists::default(), Cell::new(0));
    let kill_one = |pid| {
        signal(pid, Signal::KILL);
        killed.set(killed.get() + 1);
    };
    for _ in 0..ROUNDS_MAX {
        lists.begin();
        let all = all();
        let found = pick(&all);
        let mut news = false;
        for process in found.iter().filter(|process| told.insert((process.pid, process.start))) {
            news = true;
            signal(process.pid, Signal::STOP);
        }
        let listed = || all.iter().map(|process| process.pid).collect();
        if news {
            lists.had_news();
        } else if has_id.is_none_or(|has_id| lists.have_all(&listed(), has_id, kill_one)) {
            return kill(found.into_iter()) + killed.get();
        }
    }
    // Something may be left that no list has.
    (kill(pick(&all()).into_iter()) + killed.get()).max(1)
}

/// Sends a process a signal, if it is there.
pub fn signal(pid: u32, what: Signal) {
    let _ = to_pid(pid).map(|pid| rustix::process::kill_process(pid, what));
}

/// A process id as the system's calls take it; none for 0, 1 and what is out of range.
pub fn to_pid(pid: u32) -> Option<Pid> {
    i32::try_from(pid).ok().filter(|&pid| pid > 1).and_then(Pid::from_raw)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn this_very_process_is_found_and_uses_memory() {
        let me = find(std::process::id()).unwrap();
        assert!(used(&[me], me.session).memory.0 > 0);
        assert_eq!(marked([me], "no such mark"), []);
    }

    #[test]
    fn a_process_is_known_by_its_mark_while_it_still_loads_its_program() {
        for number in 0..300 {
            let mark = format!("/a mark of a test/{}:{number}:", std::process::id());
            let mut child = Command::new("sleep").arg("1000").env(MARK, &mark).spawn().unwrap();
            let found = marked(find(child.id()), &mark);
            child.kill().unwrap();
            child.wait().unwrap();
            assert_eq!(found.len(), 1, "process {number}");
        }
    }

    #[test]
    fn r6_10_a_process_is_known_by_its_mark_after_its_first_thread_has_ended() {
        let exit = if cfg!(target_arch = "aarch64") { 93 } else { 60 };
        let program = format!("async {{ sleep 1000 }}; syscall({exit}, 0)");
        let mark = format!("/a mark of a test/{}:threads:", std::process::id());
        let mut command = Command::new("perl");
        let mut child = command.args(["-Mthreads", "-e", &program]).env(MARK, &mark).spawn().unwrap();
        let stat = || fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap();
        while !stat().contains(") Z ") {
            std::thread::sleep(StdDuration::from_millis(5));
        }
        let found = marked(find(child.id()), &mark);
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(found.len(), 1);
    }

    #[test]
    fn r6_12_of_what_a_process_calls_its_arguments_and_its_environment_only_the_start_is_read() {
        // It says that both are all of a gibibyte that it has never written to.
        let (map, own_break, say) =
            if cfg!(target_arch = "aarch64") { (222, 214, 167) } else { (9, 12, 157) };
        let program = format!(
            "my $all = 1 << 30; my $at = syscall({map}, 0, $all, 3, 0x4022, -1, 0); open S, '/proc/self/stat'; \
             my @s = split / /, <S> =~ s/.*\\) //r; my @told = (@s[23, 24, 42, 43, 44], syscall({own_break}, 0), $s[25], \
             $at, $at + $all, $at, $at + $all, 0); my $map = pack 'Q12 L2', @told, 0, ~0 & 0xffffffff; \
             $| = 1; print syscall({say}, 35, 14, $map, length $map, 0), \"\\n\"; <STDIN>"
        );
        let mut command = Command::new("perl");
        command
            .args(["-e", &program])
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut said = [0; 2];
        child.stdout.as_mut().unwrap().read_exact(&mut said).unwrap();
        if &said == b"-1" {
            println!("skipped: this kernel lets nobody say where in his memory his environment is");
            child.kill().unwrap();
            child.wait().unwrap();
            return;
        }
        assert_eq!(&said, b"0\n");
        let process = find(child.id()).unwrap();
        assert_eq!(environment(&process).unwrap().len() as u64, ENVIRONMENT_MAX);
        let arguments = start_of(format!("/proc/{}/cmdline", child.id()), 4096).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(arguments.len(), 4096);
    }

    #[test]
    fn r6_10_a_process_whose_name_is_no_text_is_known_by_its_user_and_by_its_mark() {
        let mark = format!("/a mark of a test/{}:name:", std::process::id());
        let mut command = Command::new("perl");
        let program = "open C, '>', '/proc/self/comm'; syswrite C, \"\\xff\\xfe)\\nUid: 7\"; syswrite STDOUT, 'x'; <STDIN>";
        command.args(["-e", program]).env(MARK, &mark);
        let piped = std::process::Stdio::piped;
        let mut child = command.stdin(piped()).stdout(piped()).spawn().unwrap();
        child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        let name = fs::read(format!("/proc/{}/comm", child.id())).unwrap();
        let process = find(child.id()).unwrap();
        let own = only(rustix::process::getuid());
        let (is_known, is_own) = (is_process(process.pid), of_users(&[process], &own) == [process]);
        let is_marked = marked([process], &mark) == [process];
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(String::from_utf8(name).is_err(), "it has no such name");
        assert!(is_known && is_own && is_marked, "known: {is_known}, own: {is_own}, marked: {is_marked}");
    }

    #[test]
    fn a_process_with_an_empty_environment_keeps_nobody_waiting() {
        let mut child = Command::new("sleep").arg("1000").env_clear().spawn().unwrap();
        while !find(child.id()).unwrap().is_loaded {
            std::thread::yield_now();
        }
        let process = find(child.id()).unwrap();
        assert_eq!(standing(&process, "any"), Standing::Unmarked);
        child.kill().unwrap();
        while !find(child.id()).unwrap().zombie {
            std::thread::yield_now();
        }
        assert_eq!(standing(&process, "any"), Standing::Unmarked);
        child.wait().unwrap();
    }

    #[test]
    fn init_and_every_process_at_once_are_never_meant() {
        assert_eq!((to_pid(0), to_pid(1), to_pid(u32::MAX)), (None, None, None));
    }
}
