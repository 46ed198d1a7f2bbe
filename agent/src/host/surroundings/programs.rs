//! Which of some programs run: by the names of their files, as processes give them.
//!
//! Beside a look at anything else, and waited for for some seconds only: a process's arguments are in its own
//! memory, and where it keeps that to itself, as while a file system does not answer it, whoever asks for
//! them waits. Until there is an answer, what was seen the last time holds. A process that has let one look
//! wait too long is not asked again as long as that look hangs, but known by the name that the kernel keeps
//! of it; and where several do so, none is asked.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::{Duration as StdDuration, Instant};

use fallow_client::LooksFor;
use fallow_daemon::lock;

use crate::brand::Brand;
use crate::host::work::Work;
use crate::proc::{self, Process};

/// The longest name that the kernel keeps of a process.
const NAME_KEPT: usize = 15;

/// Too many files are open, of this process or of all, or there is no memory.
const SHORT: [Option<i32>; 3] = [Some(libc::EMFILE), Some(libc::ENFILE), Some(libc::ENOMEM)];

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

/// Looks for them: what to look for, how the marks of all tasks of this agent begin, and whom to ask. None
/// where the processes of this machine cannot be listed.
pub(super) type Scan = fn(&Lists, &str, &Asking) -> Option<Running>;

/// Whom a look asks how it was started.
#[derive(Default)]
pub(super) struct Asking {
    /// Nobody.
    nobody: bool,
    /// Not these.
    silent: BTreeSet<ProcessKey>,
    /// Who is asked just now, and since when.
    now: Mutex<Option<(ProcessKey, Instant)>>,
}

/// A process's id and its start.
type ProcessKey = (u32, u64);

/// One answer takes far less.
const ANSWER_MAX: StdDuration = StdDuration::from_millis(500);

/// So many looks may hang at a time, each in a thread of its own.
const STUCK_MAX: usize = 4;

impl Asking {
    /// What a process says, if it is asked.
    fn ask<T>(&self, process: ProcessKey, say: impl FnOnce() -> T) -> Option<T> {
        if self.nobody || self.silent.contains(&process) {
            return None;
        }
        *lock(&self.now) = Some((process, Instant::now()));
        let said = say();
        *lock(&self.now) = None;
        Some(said)
    }

    /// Who keeps the look waiting.
    fn keeps_waiting(&self) -> Option<ProcessKey> {
        lock(&self.now).filter(|(_, since)| since.elapsed() >= ANSWER_MAX).map(|(process, _)| process)
    }
}

/// A look that has begun.
struct Look {
    /// What it looks for.
    lists: Lists,
    asking: Arc<Asking>,
    work: Work<Option<Running>>,
}

/// Who looks for programs.
pub(super) struct Scans {
    scan: Scan,
    patience: [StdDuration; 2],
    /// What is looked for.
    lists: Lists,
    /// A look that goes on. There is one at a time, beside those that hang.
    running: Option<Look>,
    /// Looks that hang, and at whom.
    stuck: Vec<(ProcessKey, Look)>,
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
            stuck: Vec::new(),
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
            self.lists = lists.map(Clone::clone);
            (self.is_answered, self.has_failed) = (false, false);
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
            self.leave_stuck();
        }
        let is_wanted = |(seen, list): (&Option<String>, &BTreeSet<String>)| {
            seen.clone().filter(|program| list.contains(program))
        };
        let [all, gpus] = &self.seen;
        [(all, &self.lists[0]), (gpus, &self.lists[1])].map(is_wanted)
    }

    /// Whether a look has ended that looked for what is looked for now. So it is where that is nothing.
    pub(super) fn are_answered(&self) -> bool {
        self.is_answered || self.lists.iter().all(BTreeSet::is_empty)
    }

    /// A look that begins now, up to its end.
    async fn answer(&mut self, mark: &str) -> io::Result<()> {
        // One that goes on still has passed by some of what runs now: it counts, and another one follows.
        if self.running.is_some() {
            self.end().await?;
        }
        self.stuck.retain(|(_, look)| look.work.goes_on());
        let asking = Arc::new(Asking {
            nobody: self.stuck.len() >= STUCK_MAX,
            silent: self.stuck.iter().map(|(process, _)| *process).collect(),
            now: Mutex::default(),
        });
        let work = {
            let (scan, lists, mark, asking) =
                (self.scan, self.lists.clone(), mark.to_owned(), Arc::clone(&asking));
            Work::begin(move || scan(&lists, &mark, &asking))?
        };
        self.running = Some(Look { lists: self.lists.clone(), asking, work });
        self.end().await
    }

    async fn end(&mut self) -> io::Result<()> {
        let Some(look) = &mut self.running else { return Ok(()) };
        let seen = look.work.end().await;
        let is_current = look.lists == self.lists;
        self.running = None;
        self.seen =
            seen?.ok_or_else(|| io::Error::other("the processes of this machine cannot be listed"))?;
        self.is_answered |= is_current;
        Ok(())
    }

    /// Waits no longer for a look that a process keeps waiting.
    fn leave_stuck(&mut self) {
        let Some(process) = self.running.as_ref().and_then(|look| look.asking.keeps_waiting()) else {
            return;
        };
        let pid = process.0;
        tracing::warn!(
            pid,
            "this process does not say how it was started: it is known by the kernel's name of it alone"
        );
        self.stuck.extend(self.running.take().map(|look| (process, look)));
    }
}

/// Which programs run. Tasks of the agent whose marks begin with `mark` are none, whatever they call
/// themselves: also processes of theirs that have cleared their environment, which are known by their number.
pub(super) fn running(lists: &Lists, mark: &str, asking: &Asking) -> Option<Running> {
    let brand = Brand::of_agent(mark);
    let mut found = [None, None];
    let all = proc::all();
    // Where descriptors are short, or the kernel shows nothing, nothing was seen.
    all.iter().find(|process| process.pid == std::process::id())?;
    // What has a number is not even asked for its arguments.
    for process in all.into_iter().filter(|process| !process.zombie && !brand.is_on(process)) {
        if found.iter().zip(lists).all(|(found, list)| found.is_some() || list.is_empty()) {
            break;
        }
        let names = Names::of(process, asking)?;
        let called = lists.each_ref().map(|list| list.iter().find(|program| names.are_of(program)));
        let is_news = found.iter().zip(called).any(|(found, called)| found.is_none() && called.is_some());
        // Its environment is in its own memory as well.
        let is_marked = || !proc::marked([process], mark).is_empty();
        if is_news && asking.ask((process.pid, process.start), is_marked) != Some(true) {
            for (found, called) in found.iter_mut().zip(called) {
                *found = found.take().or_else(|| called.cloned());
            }
        }
    }
    Some(found)
}

/// What a process is called.
struct Names {
    /// By the kernel.
    kept: Vec<u8>,
    /// How it was started: the beginning of its arguments, each with a zero behind it. Empty if it does not
    /// say.
    line: Vec<u8>,
}

impl Names {
    /// None where this process can open no file just now.
    fn of(process: Process, asking: &Asking) -> Option<Self> {
        let dir = format!("/proc/{}", process.pid);
        // A process that is gone by now is called nothing.
        let read = |bytes: io::Result<Vec<u8>>| match bytes {
            Ok(bytes) => Some(bytes),
            Err(error) if SHORT.contains(&error.raw_os_error()) => None,
            Err(_) => Some(Vec::new()),
        };
        let kept = read(fs::read(format!("{dir}/comm")))?.trim_ascii_end().to_vec();
        let say = || proc::start_of(format!("{dir}/cmdline"), ARGUMENT_MAX);
        let line = asking.ask((process.pid, process.start), say).unwrap_or(Ok(Vec::new()));
        Some(Self { kept, line: read(line)? })
    }

    /// Whether this is a program that is called so by the kernel, or by how it was started. The kernel calls
    /// a script by its own name, and its interpreter is given that as well.
    fn are_of(&self, program: &str) -> bool {
        let cut = &program.as_bytes()[..NAME_KEPT.min(program.len())];
        let mut files = self.line.split(|byte| *byte == 0).map(|argument| {
            let file = argument.rsplit(|byte| *byte == b'/').next();
            file.is_some_and(|file| file.eq_ignore_ascii_case(program.as_bytes()))
        });
        files.next() == Some(true)
            || (self.kept.eq_ignore_ascii_case(cut)
                && (cut.len() == program.len()
                    || self.line.first().is_none_or(|first| *first == 0)
                    || files.any(|is_it| is_it)))
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

    use super::*;

    #[test]
    fn r6_4_a_program_is_known_by_the_name_of_its_file_and_a_task_is_none() {
        let name = format!("exclusive{}", std::process::id());
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join(&name);
        fs::copy("/bin/sleep", &program).unwrap();
        let wanted: BTreeSet<String> = [name.to_uppercase()].into();
        let lists = [wanted, BTreeSet::new()];
        let runs = |mark: &str| running(&lists, mark, &Asking::default()).unwrap()[0].clone();
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
        const LONG: &str = "a-program-of-long-name";
        let table = [
            (LONG, "a-program-of-lo", "/opt/a-program-of-long-name\0", true),
            (LONG, "other", "a-program-of-long-name\0", true),
            (LONG, "a-program-of-lo", "a-program-of-lovely-name\0", false),
            // A script, and a process that does not say how it was started.
            (LONG, "a-program-of-lo", "/usr/bin/python3\0-u\0/opt/A-program-of-long-name\0film\0", true),
            (LONG, "a-program-of-lo", "", true),
            (LONG, "less", "less\0a-program-of-long-name\0", false),
            ("game", "game", "python3\0", true),
            ("game", "gamer", "gamer\0", false),
            ("game", "", "", false),
            // Cut within a letter.
            ("fourteen-bytes\u{fc}ber", "fourteen-bytes\u{c3}", "", true),
        ];
        for (program, kept, line, expected) in table {
            // Bytes, each written as a letter.
            let bytes = |text: &str| text.chars().map(|c| u32::from(c) as u8).collect();
            let names = Names { kept: bytes(kept), line: bytes(line) };
            assert_eq!(names.are_of(program), expected, "{program} {kept} {line:?}");
        }
    }

    #[test]
    fn r6_4_a_script_with_a_long_name_is_known_by_it() {
        let name = format!("a-script-of-long-name-{}", std::process::id());
        let dir = tempfile::tempdir().unwrap();
        let script = dir.path().join(&name);
        fs::write(&script, "#!/bin/sh\necho begun; read x\n").unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(&script, mode).unwrap();
        let piped = std::process::Stdio::piped;
        let mut child = Command::new(&script).stdin(piped()).stdout(piped()).spawn().unwrap();
        std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut [0; 6]).unwrap();
        let lists = [[name.clone()].into(), BTreeSet::new()];
        let found = running(&lists, "mark", &Asking::default());
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(found, Some([Some(name), None]));
    }

    #[tokio::test]
    async fn r6_4_a_process_that_never_says_how_it_was_started_hides_no_other() {
        static HANGS: AtomicBool = AtomicBool::new(true);
        static ASKED: AtomicU32 = AtomicU32::new(0);
        // Of a hundred processes the last is the program, and all others keep whoever asks them waiting.
        let scan: Scan = |lists, _, asking| {
            for pid in 1..100 {
                asking.ask((pid, 7), || {
                    ASKED.fetch_add(1, Ordering::Relaxed);
                    while HANGS.load(Ordering::Relaxed) {
                        std::thread::sleep(StdDuration::from_millis(1));
                    }
                });
            }
            Some(lists.each_ref().map(|list| list.first().cloned()))
        };
        let _goes = Goes(&HANGS);
        let mut scans = Scans::new(scan);
        scans.patience = [ANSWER_MAX + StdDuration::from_millis(50); 2];
        let wanted = LooksFor { programs: ["game".to_owned()].into(), ..LooksFor::default() };
        for number in 0.. {
            let found = scans.look(&wanted, "mark").await;
            assert_eq!(found[0].is_some(), scans.are_answered());
            if scans.are_answered() {
                break;
            }
            assert!(number < 1_000, "it is never answered");
        }
        let asked = ASKED.load(Ordering::Relaxed) as usize;
        assert_eq!(asked, STUCK_MAX, "one hangs in each look, and then none is asked");
        // Whoever answers again is asked again.
        HANGS.store(false, Ordering::Relaxed);
        while ASKED.load(Ordering::Relaxed) < 4 * 99 {
            let _ = scans.look(&wanted, "mark").await;
        }
    }

    /// Lets whatever hangs go on, at the end.
    struct Goes(&'static AtomicBool);
    impl Drop for Goes {
        fn drop(&mut self) {
            self.0.store(false, Ordering::Relaxed);
        }
    }

    #[tokio::test]
    async fn r6_4_where_a_process_does_not_say_what_it_is_what_was_seen_last_holds() {
        static HANGS: AtomicBool = AtomicBool::new(false);
        static BEGUN: AtomicU32 = AtomicU32::new(0);
        let scan: Scan = |lists, _, _| {
            BEGUN.fetch_add(1, Ordering::Relaxed);
            while HANGS.load(Ordering::Relaxed) {
                std::thread::yield_now();
            }
            Some(lists.each_ref().map(|list| list.first().cloned()))
        };
        let _goes = Goes(&HANGS);
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
