//! Makes simulated runs: threads, the clock, a progress bar, and Ctrl-C, for the commands that simulate.

use std::io::{IsTerminal as _, Write as _};
use std::path::Path;
use std::process::ExitCode as ProcessExit;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use fallow_emulator::experiment::{Case, Finished, Shell, Stopped, run_all};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;

use super::Failure;

/// What a shell gives for a program that Ctrl-C ended.
const INTERRUPTED: u8 = 130;
/// How often a plain line tells of progress.
const LINES: Duration = Duration::from_secs(5);

/// How a batch of runs ended.
pub(super) enum Batch {
    /// All were made; their results are in the order of the cases.
    Done(Vec<Finished>),
    /// Ctrl-C or a signal came first.
    Interrupted(ProcessExit),
}

/// Makes all runs. What they are for is said beside the progress.
pub(super) fn make(cases: &[Case], what: &str) -> Result<Batch, Failure> {
    let stop = AtomicBool::new(false);
    let done = AtomicUsize::new(0);
    let began = Instant::now();
    let clock = || began.elapsed().into();
    let progress = Progress::new(cases.len(), what);
    let made = |count: usize| {
        done.fetch_max(count, Ordering::Relaxed);
        progress.made();
    };
    let shell = Shell { clock: &clock, progress: &made, stop: &stop };
    let (ended, end) = oneshot::channel();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::internal("the runtime does not start", error))?;
    let finished = std::thread::scope(|scope| {
        let work = scope.spawn(|| {
            let finished = run_all(cases, shell);
            // Received below, unless a signal came first.
            let _ = ended.send(());
            finished
        });
        runtime.block_on(async {
            tokio::select! {
                () = a_signal() => stop.store(true, Ordering::Relaxed),
                _ = end => {}
            }
        });
        work.join()
    });
    progress.clear();
    match finished {
        Ok(Ok(finished)) => Ok(Batch::Done(finished)),
        Ok(Err(Stopped)) => {
            let done = done.load(Ordering::Relaxed);
            super::warn(&format!("interrupted after {done} of {} runs", cases.len()));
            Ok(Batch::Interrupted(INTERRUPTED.into()))
        }
        Err(_) => Err(Failure::new(fallow_domain::ExitCode::Internal, "a simulation failed: see above")),
    }
}

/// Waits for the first signal that asks for an end.
async fn a_signal() {
    let listen = |kind| signal(kind).ok();
    let (mut interrupt, mut terminate) = (listen(SignalKind::interrupt()), listen(SignalKind::terminate()));
    let next = async |signal: &mut Option<tokio::signal::unix::Signal>| match signal {
        Some(signal) => {
            signal.recv().await;
        }
        // It cannot be listened to; then it ends the process as ever.
        None => std::future::pending().await,
    };
    tokio::select! {
        () = next(&mut interrupt) => {}
        () = next(&mut terminate) => {}
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

/// A directory to write into, made if it is not there, before long work is done for it.
pub(super) fn directory(path: &Path) -> Result<(), Failure> {
    let writable = std::fs::create_dir_all(path).and_then(|()| {
        // Permissions do not tell all: a read-only file system, a full quota.
        let probe = path.join(".fallow-probe");
        std::fs::write(&probe, b"")?;
        std::fs::remove_file(&probe)
    });
    writable.map_err(|error| unwritable("write into", path, error))
}

/// Writes a file.
pub(super) fn write(path: &Path, text: &str) -> Result<(), Failure> {
    std::fs::write(path, text).map_err(|error| unwritable("write", path, error))
}

/// What is written is no input: whatever the reason, it is a place that cannot be written to.
fn unwritable(action: &str, path: &Path, source: std::io::Error) -> Failure {
    Failure::caused(fallow_domain::ExitCode::NoSpace, format!("cannot {action} {}", path.display()), source)
}

/// A picture that was drawn.
pub(super) fn drawn(svg: Result<String, fallow_emulator::plot::DrawError>) -> Result<String, Failure> {
    svg.map_err(|error| Failure::internal("a picture is missing", error))
}
