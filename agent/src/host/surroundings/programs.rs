//! Which of some programs run: by the names of their files, as processes give them.
//!
//! Beside a look at anything else, and waited for for some seconds only: a process's arguments are in its own
//! memory, and where it keeps that to itself, as while a file system does not answer it, whoever asks for
//! them waits. Until there is an answer, what was seen the last time holds.

use std::collections::BTreeSet;
use std::fs;
use std::time::Duration as StdDuration;

use fallow_client::LooksFor;
use tokio::task::JoinHandle;

use crate::brand::Brand;
use crate::proc::{self, Process};

/// The longest name that the kernel keeps of a process.
const NAME_KEPT: usize = 15;

/// The longest first argument that is looked at, in bytes: a path.
const ARGUMENT_MAX: u64 = 4096;

/// So long it is waited for the first answer to a question.
const PATIENCE: StdDuration = StdDuration::from_secs(10);

/// So long it is waited for any other: one that comes later counts at the next look.
const LATER: StdDuration = StdDuration::from_secs(1);

/// Programs beside which nothing is computed, and those beside which no GPU is used.
pub(super) type Lists = [BTreeSet<String>; 2];

/// One of each that runs.
pub(super) type Running = [Option<String>; 2];

/// Looks for them. The last says how the marks of all tasks of this agent begin.
pub(super) type Scan = fn(&Lists, &str) -> Running;

/// Who looks for programs.
pub(super) struct Scans {
    scan: Scan,
    patience: [StdDuration; 2],
    /// What is looked for.
    lists: Lists,
    /// A look that goes on, and what it looks for. There is one at a time.
    running: Option<(Lists, JoinHandle<Running>)>,
    /// What the last one saw.
    seen: Running,
    /// It looked for what is looked for now.
    is_answered: bool,
    has_failed: bool,
}

impl Scans {
    pub(super) const fn new(scan: Scan) -> Self {
        Self {
            scan,
            patience: [PATIENCE, LATER],
            lists: [BTreeSet::new(), BTreeSet::new()],
            running: None,
            seen: [None, None],
            is_answered: false,
            has_failed: false,
        }
    }

    /// Which programs run of those that are wanted, by a look that begins now or, where that takes too long,
    /// by the last one that ended.
    pub(super) async fn look(&mut self, wanted: &LooksFor, mark: &str) -> Running {
        let lists = [&wanted.programs, &wanted.gpu_programs];
        if lists != self.lists.each_ref() {
            (self.lists, self.is_answered) = (lists.map(Clone::clone), false);
        }
        if self.lists.iter().any(|list| !list.is_empty()) {
            let [first, later] = self.patience;
            let patience = if self.is_answered || self.has_failed { later } else { first };
            let trouble = match tokio::time::timeout(patience, self.answer(mark)).await {
                Ok(Ok(())) => None,
                Ok(Err(error)) => Some(error.to_string()),
                Err(_elapsed) => Some(format!("it has not ended within {patience:?}")),
            };
            let fails = trouble.is_some();
            if let Some(why) = trouble.filter(|_| !self.has_failed) {
                tracing::warn!(why, "a look for exclusive programs has failed: what the last one saw holds");
            }
            self.has_failed = fails;
        }
        let is_wanted = |(seen, list): (&Option<String>, &BTreeSet<String>)| {
            seen.clone().filter(|program| list.contains(program))
        };
        let [all, gpus] = &self.seen;
        [(all, &self.lists[0]), (gpus, &self.lists[1])].map(is_wanted)
    }

    /// A look that begins now, up to its end.
    async fn answer(&mut self, mark: &str) -> Result<(), tokio::task::JoinError> {
        // One that goes on still has passed by some of what runs now: it counts, and another one follows.
        if self.running.is_some() {
            self.end().await?;
        }
        let (scan, lists, mark) = (self.scan, self.lists.clone(), mark.to_owned());
        let look = tokio::task::spawn_blocking(move || scan(&lists, &mark));
        self.running = Some((self.lists.clone(), look));
        self.end().await
    }

    async fn end(&mut self) -> Result<(), tokio::task::JoinError> {
        let Some((lists, look)) = &mut self.running else { return Ok(()) };
        let seen = look.await;
        self.is_answered |= seen.is_ok() && *lists == self.lists;
        self.running = None;
        self.seen = seen?;
        Ok(())
    }
}

/// Which programs run. Tasks of the agent whose marks begin with `mark` are none, whatever they call
/// themselves: also processes of theirs that have cleared their environment, which are known by their number.
pub(super) fn running(lists: &Lists, mark: &str) -> Running {
    let brand = Brand::of_agent(mark);
    let mut found = [None, None];
    // What has a number is not even asked for its arguments.
    for process in proc::all().into_iter().filter(|process| !process.zombie && !brand.is_on(process)) {
        if found.iter().zip(lists).all(|(found, list)| found.is_some() || list.is_empty()) {
            break;
        }
        let names = Names::of(process);
        let called = lists.each_ref().map(|list| list.iter().find(|program| names.are_of(program)));
        let is_news = found.iter().zip(called).any(|(found, called)| found.is_none() && called.is_some());
        if is_news && proc::marked([process], mark).is_empty() {
            for (found, called) in found.iter_mut().zip(called) {
                *found = found.take().or_else(|| called.cloned());
            }
        }
    }
    found
}

/// What a process is called.
struct Names {
    /// By the kernel.
    kept: String,
    /// By how it was started.
    file: String,
}

impl Names {
    fn of(process: Process) -> Self {
        let dir = format!("/proc/{}", process.pid);
        let kept = fs::read_to_string(format!("{dir}/comm")).unwrap_or_default();
        let line = proc::start_of(format!("{dir}/cmdline"), ARGUMENT_MAX).unwrap_or_default();
        let first = String::from_utf8_lossy(line.split(|byte| *byte == 0).next().unwrap_or_default());
        let file = first.rsplit('/').next().unwrap_or_default().to_owned();
        Self { kept: kept.trim_end().to_owned(), file }
    }

    fn are_of(&self, program: &str) -> bool {
        is(program, &self.kept, &self.file)
    }
}

/// Whether a program is one that is called so by the kernel, or by how it was started.
fn is(program: &str, kept: &str, file: &str) -> bool {
    let cut = program.get(..NAME_KEPT.min(program.len())).unwrap_or(program);
    file.eq_ignore_ascii_case(program)
        || (kept.eq_ignore_ascii_case(cut) && (cut.len() == program.len() || file.is_empty()))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn r6_4_a_program_is_known_by_the_name_of_its_file_and_a_task_is_none() {
        let name = format!("exclusive{}", std::process::id());
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join(&name);
        fs::copy("/bin/sleep", &program).unwrap();
        let wanted: BTreeSet<String> = [name.to_uppercase()].into();
        let lists = [wanted, BTreeSet::new()];
        let runs = |mark: &str| running(&lists, mark)[0].clone();
        assert_eq!(runs("mark"), None);
        for (mark, expected) in [("", Some(name.to_uppercase())), ("mark of a task", None)] {
            let mut child = Command::new(&program).arg("1000").env(proc::MARK, mark).spawn().unwrap();
            while fs::read(format!("/proc/{}/cmdline", child.id())).unwrap().is_empty() {
                std::thread::yield_now();
            }
            let found = runs("mark of");
            // One that has its number is a task as well, though it carries no mark.
            let number = Some(Brand::of_life("mark of:1:").of_slot(3).value());
            let pid = rustix::process::Pid::from_child(&child);
            let limit = rustix::process::Rlimit { current: number, maximum: number };
            rustix::process::prlimit(Some(pid), rustix::process::Resource::Locks, limit).unwrap();
            let of_task = runs("mark of");
            child.kill().unwrap();
            child.wait().unwrap();
            assert_eq!((found, of_task), (expected, None));
        }
    }

    #[test]
    fn r6_4_a_long_name_that_the_kernel_cuts_is_not_taken_for_another() {
        assert!(is("a-program-of-long-name", "a-program-of-lo", "a-program-of-long-name"));
        assert!(!is("a-program-of-long-name", "a-program-of-lo", "a-program-of-lovely-name"));
        assert!(is("game", "game", "python3") && !is("game", "gamer", "gamer"));
    }

    #[tokio::test]
    async fn r6_4_where_a_process_does_not_say_what_it_is_what_was_seen_last_holds() {
        use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
        static HANGS: AtomicBool = AtomicBool::new(false);
        static BEGUN: AtomicU32 = AtomicU32::new(0);
        let scan: Scan = |lists, _| {
            BEGUN.fetch_add(1, Ordering::Relaxed);
            while HANGS.load(Ordering::Relaxed) {
                std::thread::yield_now();
            }
            lists.each_ref().map(|list| list.first().cloned())
        };
        struct Goes;
        impl Drop for Goes {
            // A runtime that ends waits for what it has begun.
            fn drop(&mut self) {
                HANGS.store(false, Ordering::Relaxed);
            }
        }
        let _goes = Goes;
        let mut scans = Scans::new(scan);
        let wanted = |name: &str| LooksFor { programs: [name.to_owned()].into(), ..LooksFor::default() };
        let one = |name: &str| [Some(name.to_owned()), None];
        let begun = || BEGUN.load(Ordering::Relaxed);
        assert_eq!(scans.look(&LooksFor::default(), "mark").await, [None, None]);
        assert_eq!(begun(), 0, "nothing is wanted");
        scans.patience = [StdDuration::from_secs(60); 2];
        assert_eq!(scans.look(&wanted("game"), "mark").await, one("game"));
        HANGS.store(true, Ordering::Relaxed);
        scans.patience = [StdDuration::from_millis(20); 2];
        for _ in 0..3 {
            assert_eq!(scans.look(&wanted("game"), "mark").await, one("game"));
        }
        // What comes and goes begins no more of them, and what was seen is not forgotten by it.
        for _ in 0..3 {
            assert_eq!(scans.look(&LooksFor::default(), "mark").await, [None, None]);
            assert_eq!(scans.look(&wanted("film"), "mark").await, [None, None]);
            assert_eq!(scans.look(&wanted("game"), "mark").await, one("game"));
        }
        while begun() < 2 {
            tokio::time::sleep(StdDuration::from_millis(1)).await;
        }
        assert_eq!(begun(), 2, "one hangs, and no more are begun");
        HANGS.store(false, Ordering::Relaxed);
        while scans.look(&wanted("film"), "mark").await != one("film") {
            tokio::time::sleep(StdDuration::from_millis(1)).await;
        }
        assert!(begun() > 2, "it was looked anew");
    }
}
