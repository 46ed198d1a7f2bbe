//! Makes simulated runs: threads, the clock, a progress bar, and Ctrl-C, for the commands that simulate.

use std::io::{IsTerminal as _, Write as _};
use std::path::Path;
use std::process::ExitCode as ProcessExit;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use fallow_domain::ExitCode;
use fallow_emulator::experiment::{Case, FinishedRun, Interrupted, RunEnvironment, run_all};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;

use super::Failure;

/// What a shell gives for a program that Ctrl-C ended.
pub(super) const INTERRUPTED: u8 = 130;
/// How long a run may take to notice that it is to end.
const PATIENCE: Duration = Duration::from_secs(3);
/// How often a plain line tells of progress.
const LINES: Duration = Duration::from_secs(5);

/// How a batch of runs ended.
pub(super) enum BatchEnd {
    /// All were made; their results are in the order of the cases.
    Done(Vec<FinishedRun>),
    /// Ctrl-C or a signal came first.
    Interrupted(ProcessExit),
}

/// Makes runs until a signal asks for an end. One for all batches of a command: what comes between two of
/// them ends the next one at once.
pub(super) struct Runs {
    runtime: Runtime,
    interrupt: Option<Signal>,
    terminate: Option<Signal>,
}

impl Runs {
    /// From now on, Ctrl-C and SIGTERM end batches and not the process.
    pub(super) fn new() -> Result<Self, Failure> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| Failure::internal("the runtime does not start", error))?;
        let (interrupt, terminate) = {
            let _inside = runtime.enter();
            // One that cannot be listened to ends the process as ever.
            (signal(SignalKind::interrupt()).ok(), signal(SignalKind::terminate()).ok())
        };
        Ok(Self { runtime, interrupt, terminate })
    }

    /// Makes all runs. What they are for is said beside the progress; `finished` is told of each as it is
    /// made, by its place among the cases.
    pub(super) fn make(
        &mut self,
        cases: &[Case],
        what: &str,
        finished: &(dyn Fn(usize, &FinishedRun) + Sync),
    ) -> Result<BatchEnd, Failure> {
        let stop = AtomicBool::new(false);
        let done = AtomicUsize::new(0);
        let began = Instant::now();
        let clock = || began.elapsed().into();
        let progress = Progress::new(cases.len(), what);
        let made = |count: usize| {
            done.fetch_max(count, Ordering::Relaxed);
            progress.made();
        };
        let shell = RunEnvironment { clock: &clock, progress: &made, finished, stop: &stop };
        let (ended, mut end) = oneshot::channel();
        let made = std::thread::scope(|scope| {
            let work = scope.spawn(|| {
                let made = run_all(cases, shell);
                // Received below, unless a signal came first.
                let _ = ended.send(());
                made
            });
            let Self { runtime, interrupt, terminate } = self;
            runtime.block_on(async {
                tokio::select! {
                    () = next(interrupt) => {}
                    () = next(terminate) => {}
                    _ = &mut end => return,
                }
                stop.store(true, Ordering::Relaxed);
                // Runs look at it now and then. One that does not in time is not waited for, nor when asked
                // twice.
                tokio::select! {
                    () = next(interrupt) => leave(),
                    () = next(terminate) => leave(),
                    () = tokio::time::sleep(PATIENCE) => leave(),
                    _ = &mut end => {}
                }
            });
            work.join()
        });
        progress.clear();
        match made {
            Ok(Ok(made)) => Ok(BatchEnd::Done(made)),
            Ok(Err(Interrupted)) => {
                let done = done.load(Ordering::Relaxed);
                super::warn(&format!("interrupted after {done} of {} runs", cases.len()));
                Ok(BatchEnd::Interrupted(INTERRUPTED.into()))
            }
            Err(_) => Err(Failure::new(ExitCode::Internal, "a simulation failed: see above")),
        }
    }
}

/// Ends the process in the middle of a run. What is written is written in lines, each of them whole.
fn leave() {
    super::warn("interrupted in the middle of a run");
    std::process::exit(INTERRUPTED.into());
}

/// Waits for a signal.
async fn next(signal: &mut Option<Signal>) {
    match signal {
        Some(signal) => {
            signal.recv().await;
        }
        None => std::future::pending().await,
    }
}

/// A bar on a terminal, a plain line now and then elsewhere; both on standard error.
struct Progress<'a> {
    what: &'a str,
    total: usize,
    made: AtomicUsize,
    bar: Option<ProgressBar>,
    last: Mutex<Instant>,
}

impl<'a> Progress<'a> {
    fn new(total: usize, what: &'a str) -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar =
                ProgressBar::with_draw_target(Some(total as u64), ProgressDrawTarget::stderr_with_hz(10));
            // No colours: NO_COLOR has nothing to take away.
            if let Ok(style) = ProgressStyle::with_template("{msg} {bar:40} {pos}/{len} runs, {eta} left") {
                bar.set_style(style);
            }
            bar.set_message(what.to_owned());
            bar
        });
        Self { what, total, made: AtomicUsize::new(0), bar, last: Mutex::new(Instant::now()) }
    }

    fn made(&self) {
        let made = self.made.fetch_add(1, Ordering::Relaxed) + 1;
        match &self.bar {
            Some(bar) => bar.inc(1),
            None => {
                // Another thread that writes just now writes for all.
                let Ok(mut last) = self.last.try_lock() else { return };
                if last.elapsed() >= LINES {
                    *last = Instant::now();
                    let _ =
                        writeln!(std::io::stderr(), "fallow: {}: {made} of {} runs", self.what, self.total);
                }
            }
        }
    }

    fn clear(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// A directory to write into, made if it is not there, before long work is done for it. `option` named it.
pub(super) fn directory(option: &str, path: &Path) -> Result<(), Failure> {
    if path.exists() && !path.is_dir() {
        let text = format!(
            "{option}: {} is a file, and a directory is needed: name another, or move the file away",
            path.display()
        );
        return Err(Failure::bad_input(text));
    }
    let writable = std::fs::create_dir_all(path).and_then(|()| {
        // Permissions do not tell all: a read-only file system, a full quota.
        let probe = path.join(format!(".fallow-probe.{}", std::process::id()));
        std::fs::write(&probe, b"")?;
        std::fs::remove_file(&probe)
    });
    let what = || format!("{option}: cannot write into {}", path.display());
    writable.map_err(|error| Failure::unwritable(&what(), &error))
}

/// A file to write, before long work is done for it: what it lies in is made if it is not there. `option`
/// named it.
pub(super) fn file(option: &str, path: &Path) -> Result<(), Failure> {
    if path.is_dir() {
        let text = format!(
            "{option}: {} is a directory, and a file is needed: name one in it, such as {}",
            path.display(),
            path.join("timeline.svg").display()
        );
        return Err(Failure::bad_input(text));
    }
    match path.parent() {
        // A pipe or a device is taken as it is: nothing is made beside it.
        Some(dir) if !dir.as_os_str().is_empty() && !is_special(path) => directory(option, dir),
        _ => Ok(()),
    }
}

/// Writes a file: the whole of it, or none. Whoever ends this process, or fills the disk, leaves what was
/// there before.
pub(super) fn write(path: &Path, text: &str) -> Result<(), Failure> {
    let failed = |error| Failure::unwritable(&format!("cannot write {}", path.display()), &error);
    if is_special(path) {
        return std::fs::write(path, text).map_err(failed);
    }
    // Where a link leads, so that it stays a link.
    let target = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let name = target.file_name().unwrap_or_default().to_string_lossy();
    let part = target.with_file_name(format!(".{name}.{}.part", std::process::id()));
    fallow_daemon::file::write_by(&target, &part, text.as_bytes(), 0o666).map_err(failed)
}

/// Whether it is there and is no regular file: a pipe, a terminal, `/dev/null`. Nothing is renamed over
/// those.
fn is_special(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|there| !there.is_file())
}

/// A picture that was drawn.
pub(super) fn drawn(svg: Result<String, fallow_emulator::plot::DrawError>) -> Result<String, Failure> {
    svg.map_err(|error| Failure::internal("a picture is missing", error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_written_whole_and_nothing_else_is_left_beside_it() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("table.txt");
        write(&file, "first").unwrap();
        write(&file, "second").unwrap();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "second");
        // A directory of that name cannot be replaced.
        std::fs::create_dir_all(dir.path().join("taken/inner")).unwrap();
        assert!(write(&dir.path().join("taken"), "x").is_err());
        let mut names: Vec<_> =
            std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["table.txt", "taken"]);
    }

    #[test]
    fn a_link_stays_a_link_and_a_device_a_device() {
        let dir = tempfile::tempdir().unwrap();
        let (file, link) = (dir.path().join("file"), dir.path().join("link"));
        write(&file, "first").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        write(&link, "second").unwrap();
        assert!(link.is_symlink());
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "second");
        let null = dir.path().join("null");
        std::os::unix::fs::symlink("/dev/null", &null).unwrap();
        write(&null, "third").unwrap();
        assert!(null.is_symlink() && is_special(Path::new("/dev/null")));
    }
}
