//! What the kernel says of processes: `/proc`.

use std::fs;
use std::io::Read;
use std::path::Path;

use fallow_domain::{Bytes, Duration};
use serde::{Deserialize, Serialize};

/// A process that is what it was: an id is given again in time, with another start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessId {
    /// Its id.
    pub pid: u32,
    /// When it began, in clock ticks since boot (field 22 of `/proc/PID/stat`).
    pub start_time: u64,
}

impl ProcessId {
    /// A process that lives now.
    pub fn of(pid: u32) -> Option<Self> {
        find(pid).filter(|found| !found.zombie).map(|found| Self { pid, start_time: found.start })
    }

    /// This very process.
    pub fn own() -> Self {
        let pid = std::process::id();
        Self::of(pid).unwrap_or(Self { pid, start_time: 0 })
    }

    /// True while it lives.
    pub fn is_alive(self) -> bool {
        Self::of(self.pid) == Some(self)
    }
}

/// One process, as `/proc/PID/stat` tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process {
    /// Its id.
    pub pid: u32,
    /// Its parent: init or a reaper where its own is gone.
    pub parent: u32,
    /// Its session, which is the id of the session's first process.
    pub session: u32,
    /// Its start, in clock ticks since boot: tells it from a later process of the same id.
    pub start: u64,
    /// It has ended and waits to be taken away.
    pub zombie: bool,
    /// It was stopped by a signal, and goes on by another.
    pub stopped: bool,
    /// It waits and hears of no signal meanwhile (state `D`): for a disk, or for a child that has yet to
    /// execute its program.
    pub waits: bool,
    /// It has memory: it is none of the kernel's own threads, and does not end just now.
    pub has_memory: bool,
    /// Its program is loaded: the kernel has put its arguments and its environment in place. Of others'
    /// processes that is not shown: false.
    pub is_loaded: bool,
    /// Its threads, the first one among them.
    pub threads: u32,
    /// CPU time of itself, in clock ticks.
    pub ticks: u64,
    /// That of the children it waited for, and of those that these waited for.
    pub waited_ticks: u64,
    /// Resident pages.
    pub pages: u64,
}

/// What processes use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Used {
    /// CPU time.
    pub cpu: Duration,
    /// Main memory.
    pub memory: Bytes,
    /// How many processes and threads they are.
    pub threads: u32,
}

impl Used {
    /// The same with so much more CPU time, in clock ticks.
    #[must_use]
    pub fn plus_ticks(self, ticks: u64) -> Self {
        Self { cpu: self.cpu + cpu_time(ticks), ..self }
    }
}

/// All processes that can be seen, in no order.
pub fn all() -> Vec<Process> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).filter_map(find).collect()
}

/// One process, if it exists.
pub fn find(pid: u32) -> Option<Process> {
    // The kernel gives the line as a whole to one read: at most a name of 64 bytes and 52 numbers.
    let mut line = [0; 2048];
    let len = fs::File::open(format!("/proc/{pid}/stat")).ok()?.read(&mut line).ok()?;
    // A process may call itself what it likes, and be found all the same.
    let process = parse(&String::from_utf8_lossy(&line[..len]))?;
    // Its first thread has ended, and others go on: what the kernel says of it is theirs.
    match process.zombie && process.threads > 1 {
        true => Some(living_thread(pid).map_or(process, |thread| Process {
            zombie: false,
            stopped: thread.stopped,
            has_memory: thread.has_memory,
            waits: thread.waits,
            is_loaded: thread.is_loaded,
            pages: thread.pages,
            ..process
        })),
        false => Some(process),
    }
}

/// One of a process's threads that has not ended.
fn living_thread(pid: u32) -> Option<Process> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).ok()?.flatten();
    threads.filter_map(|thread| thread_in(&thread.path())).find(|thread| !thread.zombie)
}

/// What the kernel says of the process or the thread in such a directory as `/proc/1/task/1`.
pub fn thread_in(dir: &Path) -> Option<Process> {
    parse(&String::from_utf8_lossy(&fs::read(dir.join("stat")).ok()?))
}

/// A line of `/proc/PID/stat`. The name in it can hold anything, parentheses too; the fields follow the last
/// one.
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
        zombie: matches!(fields.first(), Some(&("Z" | "X" | "x"))),
        stopped: fields.first() == Some(&"T"),
        waits: fields.first() == Some(&"D"),
        has_memory: number(20)? > 0,
        is_loaded: number(48).unwrap_or(0) > 0,
        threads: number(17).and_then(|threads| u32::try_from(threads).ok()).unwrap_or(1),
        ticks: (11..=12).filter_map(number).fold(0, u64::saturating_add),
        waited_ticks: (13..=14).filter_map(number).fold(0, u64::saturating_add),
        pages: fields.get(21)?.parse().unwrap_or(0),
    })
}

/// What these processes use together.
pub fn total<'a>(processes: impl Iterator<Item = &'a Process>) -> Used {
    let (mut ticks, mut pages, mut threads) = (0_u64, 0_u64, 0_u32);
    for process in processes {
        ticks = ticks.saturating_add(process.ticks).saturating_add(process.waited_ticks);
        pages = pages.saturating_add(process.pages);
        threads = threads.saturating_add(process.threads);
    }
    Used {
        cpu: cpu_time(ticks),
        memory: Bytes(pages.saturating_mul(rustix::param::page_size() as u64)),
        threads,
    }
}

/// The largest page tables of a process whose part of what it shares is asked for: to say it, the kernel goes
/// through all of them, 40 ms for so much.
const TABLES_MAX: Bytes = Bytes(16 << 20);

/// What of a process's memory is in the swap space; of one that `shares` memory with processes that it
/// forked, its part of that. Nothing, if there is no such process.
pub fn swapped(pid: u32, shares: bool) -> Bytes {
    let read = |what: &str| fs::read(format!("/proc/{pid}/{what}")).unwrap_or_default();
    let status = read("status");
    let status = String::from_utf8_lossy(&status);
    let all = amount_in("VmSwap:", &status).unwrap_or(Bytes(0));
    let tables = amount_in("VmPTE:", &status).unwrap_or(Bytes(u64::MAX));
    if !shares || all == Bytes(0) || tables > TABLES_MAX {
        return all;
    }
    amount_in("SwapPss:", &String::from_utf8_lossy(&read("smaps_rollup"))).unwrap_or(all)
}

fn amount_in(name: &str, text: &str) -> Option<Bytes> {
    let kibibytes = text.lines().find_map(|line| line.strip_prefix(name));
    let kibibytes = kibibytes.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok())?;
    Some(Bytes(kibibytes.saturating_mul(1024)))
}

fn cpu_time(ticks: u64) -> Duration {
    let per_second = rustix::param::clock_ticks_per_second().max(1);
    let micros = u128::from(ticks) * 1_000_000 / u128::from(per_second);
    Duration::from_micros(i64::try_from(micros).unwrap_or(i64::MAX))
}

/// Names this boot of the machine; none where the kernel does not say (in a sandbox without `/proc/sys`, for
/// instance).
pub fn boot() -> Option<String> {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").ok().map(|id| id.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn a_stat_line_is_read_whatever_the_program_calls_itself() {
        let line = "42 (a) b (c)) S 1 42 42 0 -1 4194304 100 0 0 0 150 50 30 20 39 19 1 0 777 1000 3 184 0";
        let process = parse(line).unwrap();
        assert_eq!((process.pid, process.session, process.start, process.zombie), (42, 42, 777, false));
        assert_eq!((process.ticks, process.waited_ticks, process.threads), (200, 50, 1));
        assert_eq!(process.pages, 3);
        assert!(parse(&line.replace(") S", ") Z")).unwrap().zombie);
        let stopped = parse(&line.replace(") S", ") T")).unwrap();
        assert!(stopped.stopped && !process.stopped);
    }

    #[test]
    fn r6_4_what_of_a_process_is_in_the_swap_space_is_what_the_kernel_says() {
        let status = "Name:\tVmSwap: 9 kB\nVmRSS:\t    4096 kB\nVmSwap:\t      12 kB\nThreads:\t1\n";
        assert_eq!(amount_in("VmSwap:", status), Some(Bytes(12 << 10)));
        assert_eq!(amount_in("VmSwap:", "Name:\tkthreadd\n"), None);
        // Where this kernel has swap space at all, it says of each process how much it has there.
        let own = fs::read_to_string("/proc/self/status").unwrap();
        assert!(own.contains("VmSwap:") && own.contains("VmPTE:"), "{own}");
        // Its part, where others have the same.
        let own = fs::read_to_string("/proc/self/smaps_rollup").unwrap();
        assert!(amount_in("SwapPss:", &own).is_some(), "{own}");
        assert_eq!(swapped(0, true), Bytes(0));
    }

    /// Such a process goes on: it is none that waits to be taken away.
    #[test]
    #[allow(clippy::disallowed_methods, reason = "a real process is waited for")]
    fn r6_10_a_process_whose_first_thread_has_ended_lives_as_long_as_others_do() {
        // Also with a name that is no text.
        let (exit, name) = if cfg!(target_arch = "aarch64") { (93, 167) } else { (60, 157) };
        let named = format!("my $name = qq(\\xff); syscall({name}, 15, $name)");
        let program =
            format!("async {{ {named}; my $x = 'x' x 30_000_000; sleep 1000 }}; syscall({exit}, 0)");
        let mut child = Command::new("perl").args(["-Mthreads", "-e", &program]).spawn().unwrap();
        let id = child.id();
        let stat = || fs::read_to_string(format!("/proc/{id}/stat")).unwrap();
        let told = |what: &dyn Fn(&Process) -> bool| {
            let end = std::time::Instant::now() + std::time::Duration::from_secs(60);
            while !find(id).is_some_and(|process| what(&process)) {
                assert!(std::time::Instant::now() < end, "{:?}", find(id));
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
        };
        told(&|process| stat().contains(") Z ") && process.pages * 4096 > 20_000_000);
        let process = find(id).unwrap();
        assert!(
            !process.zombie && process.has_memory && !process.stopped && process.is_loaded,
            "{process:?}"
        );
        let pid = rustix::process::Pid::from_child(&child);
        rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
        told(&|process| process.stopped && !process.zombie);
        child.kill().unwrap();
        told(&|process| process.zombie);
        child.wait().unwrap();
    }

    #[test]
    fn lines_that_are_none_are_nothing() {
        for line in ["", "1", "1 (x", "1 (x) S", "x (x) S 1 2 3"] {
            assert_eq!(parse(line), None, "{line:?}");
        }
    }

    #[test]
    fn a_process_whose_name_is_no_text_is_found() {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", "printf '\\377\\376' > /proc/$$/comm; echo; read wait"]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        let found = ProcessId::of(child.id());
        let _ = child.kill();
        child.wait().unwrap();
        assert_eq!(found.map(|process| process.pid), Some(child.id()));
    }

    #[test]
    fn this_very_process_lives_and_uses_memory() {
        let own = ProcessId::own();
        assert!(own.is_alive() && own.start_time > 0);
        assert!(total([find(own.pid).unwrap()].iter()).memory.0 > 0);
        assert!(!ProcessId { start_time: own.start_time + 1, ..own }.is_alive());
    }

    #[test]
    fn a_dead_process_does_not_live_even_before_somebody_buries_it() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let process = ProcessId::of(child.id()).unwrap();
        child.kill().unwrap();
        // The kernel makes it a zombie in its own time.
        while process.is_alive() {
            std::thread::yield_now();
        }
        assert!(find(child.id()).is_some_and(|found| found.zombie));
        child.wait().unwrap();
    }
}
