//! A number by which the kernel itself knows whose a process is, whatever that does.
//!
//! Model: each process of a task has a limit of a resource that Linux has not counted since 2.4.25 (the
//! number of its file locks), and that limit is the number. The kernel hands it on to whatever a process
//! forks and executes. A new session, a second fork, a cleared environment or another name change nothing of
//! it, and where jobs are confined, it cannot be set (see [`crate::confine`]). Whoever runs as the same user
//! can ask for it, by a call that takes a microsecond.
//!
//! The number says which agent's directory, which life of that agent and which slot. Two of these would have
//! to be alike in 28, 19 and 15 bits to be taken for each other, and to be of one user besides.
//!
//! Left out: a process that nothing confines can lower its own number and be known by its session, its
//! [mark](crate::proc::MARK) and its control group alone. So is everything where an administrator's limit is
//! lower than the number.

use std::collections::BTreeMap;

use fallow_boinc::signature::md5_hex;

use crate::owner::is_of_slot;
use crate::proc::{self, Process};
use crate::sys;

/// Bits of a directory's name in a number.
const DIR_BITS: u32 = 28;
/// Bits of the name of an agent's life.
const LIFE_BITS: u32 = 19;
/// Bits of a slot's number.
const SLOT_BITS: u32 = 15;
/// Set in all numbers, so that no limit that a person would set is one.
const ALL: u64 = 1 << (DIR_BITS + LIFE_BITS + SLOT_BITS);

/// The numbers of one task, of one life of an agent, or of all lives of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Brand {
    value: u64,
    /// The low bits that say nothing.
    open: u32,
}

impl Brand {
    /// Those of the agent whose marks begin so: `PATH:PLACE:`.
    pub fn of_agent(mark: &str) -> Self {
        let dir = mark.trim_end_matches(':');
        Self { value: ALL | hash(dir, DIR_BITS) << (LIFE_BITS + SLOT_BITS), open: LIFE_BITS + SLOT_BITS }
    }

    /// Those of one of its lives, by the beginning of the marks of that: `PATH:PLACE:LIFE:`.
    pub fn of_life(mark: &str) -> Self {
        let (dir, life) = mark.trim_end_matches(':').rsplit_once(':').unwrap_or((mark, ""));
        let agent = Self::of_agent(dir);
        Self { value: agent.value | hash(life, LIFE_BITS) << SLOT_BITS, open: SLOT_BITS }
    }

    /// That of the task in one of its slots.
    #[must_use]
    pub fn of_slot(self, slot: u32) -> Self {
        Self { value: self.value | (u64::from(slot) & ((1 << SLOT_BITS) - 1)), open: 0 }
    }

    /// The slot of the task that has this number.
    pub fn slot(value: u64) -> u32 {
        (value & ((1 << SLOT_BITS) - 1)) as u32
    }

    /// The number, of a task.
    pub fn value(self) -> u64 {
        self.value
    }

    /// Whether a number is one of them.
    pub fn covers(self, value: u64) -> bool {
        value >> self.open == self.value >> self.open
    }

    /// Whether a process has one of them.
    pub fn is_on(self, process: &Process) -> bool {
        of(process).is_some_and(|value| self.covers(value))
    }

    /// Whether this id is that of a process that has one of them.
    pub fn is_on_id(self, pid: u32) -> bool {
        of_id(pid).is_some_and(|value| self.covers(value)) && proc::is_process(pid)
    }
}

/// The number of a process that lives, if it has one.
pub fn of(process: &Process) -> Option<u64> {
    // The kernel's own threads, and what is gone, compute for nobody.
    process.has_memory.then(|| of_id(process.pid)).flatten()
}

/// The number of the process that has this id.
pub fn of_id(pid: u32) -> Option<u64> {
    // Anybody may lower his own limit to a task's number, and root sees the limits of all.
    sys::lock_limit(pid).filter(|value| value & !(ALL - 1) == ALL && is_own(pid, Brand::slot(*value)))
}

/// Whether a process runs as this one's user, as tasks do, or below root's agent as that of the slot that its
/// number names. To anybody but root the kernel says the limits of his own processes alone.
fn is_own(pid: u32, slot: u32) -> bool {
    let own = rustix::process::geteuid();
    !own.is_root() || proc::user(pid).is_some_and(|user| user == own.as_raw() || is_of_slot(user, slot))
}

/// Those of these processes that have a number, by it.
pub fn sorted(processes: &[Process]) -> BTreeMap<u64, Vec<Process>> {
    let mut sorted: BTreeMap<u64, Vec<Process>> = BTreeMap::new();
    for process in processes.iter().filter(|process| !process.zombie) {
        if let Some(value) = of(process) {
            sorted.entry(value).or_default().push(*process);
        }
    }
    sorted
}

/// The living processes that have one of these numbers.
pub fn find(brand: Brand) -> Vec<Process> {
    proc::all().into_iter().filter(|process| !process.zombie && brand.is_on(process)).collect()
}

/// As many bits of a text's MD5 sum, which stays the same over versions of this program.
fn hash(text: &str, bits: u32) -> u64 {
    let sum = md5_hex(text.as_bytes());
    let sum = sum.get(..16).and_then(|digits| u64::from_str_radix(digits, 16).ok()).unwrap_or(0);
    sum >> (u64::BITS - bits)
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;
    use crate::owner;
    use crate::sys::Urgency;

    #[test]
    fn r6_10_a_number_tells_directory_life_and_slot_and_is_never_a_limit_that_somebody_would_set() {
        let agent = Brand::of_agent("/var/lib/a:b");
        let (one, other) = (Brand::of_life("/var/lib/a:b:12.34:"), Brand::of_life("/var/lib/a:b:12.35:"));
        let task = one.of_slot(3);
        for brand in [agent, one, task] {
            assert!(brand.covers(task.value()), "{brand:?}");
        }
        for brand in [Brand::of_agent("/var/lib/a"), other, one.of_slot(4)] {
            assert!(!brand.covers(task.value()), "{brand:?}");
        }
        assert!(task.value() >> 62 == 1 && !agent.covers(u64::MAX) && !agent.covers(4096));
        // What an older version has left is found after an upgrade.
        assert_eq!(format!("{:x}", task.value()), "65f1d6f0c3a10003");
    }

    #[test]
    fn r6_10_a_process_of_another_user_is_no_tasks_whatever_limit_it_sets_itself() {
        if !rustix::process::geteuid().is_root() {
            println!("only root can be another user");
            return;
        }
        let brand = Brand::of_life("/nowhere:other:").of_slot(2);
        // Users of jobs: those of this slot of two agents', and of the next one.
        let jobs = |block: u32, number: u32| owner::FIRST + block * owner::BLOCK + number;
        let all = [(jobs(7, 3), true), (jobs(8, 3), true), (jobs(7, 4), false), (jobs(7, 0), false)];
        for (uid, is_one) in all.into_iter().chain([(65_534, false), (0, true)]) {
            let mut command = Command::new("sleep");
            std::os::unix::process::CommandExt::uid(&mut command, uid);
            sys::limit(&mut command, sys::Limits { brand: brand.value(), ..sys::Limits::default() });
            let mut child = command.arg("1000").spawn().unwrap();
            let limit = sys::lock_limit(child.id());
            let found = find(brand).iter().any(|process| process.pid == child.id());
            child.kill().unwrap();
            let _ = child.wait();
            // Root in a container may not be told it.
            assert!(limit == Some(brand.value()) || (limit.is_none() && !is_one), "{uid}: {limit:?}");
            assert_eq!(found, is_one, "{uid}");
        }
    }

    #[test]
    fn r6_10_a_process_that_has_left_by_all_means_is_known_by_its_number() {
        let brand = Brand::of_life("/nowhere:left:").of_slot(7);
        let script = "(setsid setsid env -i perl -e '$0 = \"kworker/0:1\"; fork && exit; print \"$$\\n\"; \
                      close STDOUT; sleep 1000' &) ; exit 0";
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]).stdin(Stdio::null()).stdout(Stdio::piped());
        sys::isolate(&mut command, Urgency::Inherited, None);
        sys::limit(&mut command, sys::Limits { brand: brand.value(), ..sys::Limits::default() });
        let output = command.spawn().unwrap().wait_with_output().unwrap();
        let pid: u32 = String::from_utf8_lossy(&output.stdout).trim().parse().unwrap();
        let found = find(brand);
        proc::kill(found.iter().copied());
        let pids: Vec<u32> = found.iter().map(|process| process.pid).collect();
        assert!(pids.contains(&pid), "{pid} of {pids:?}");
        assert!(found.iter().all(|process| process.session != std::process::id()));
    }
}
