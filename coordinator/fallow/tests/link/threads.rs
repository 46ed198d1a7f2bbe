//! A coordinator on a machine where others have taken all threads that its user may have.

use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::support::{Running, done, wait_for};

/// Whom nothing belongs to.
const NOBODY: u32 = 65_534;

/// A command of a user whose threads are counted, as root's are not.
fn as_counted(mut command: Command) -> Command {
    if rustix::process::geteuid().is_root() {
        command.uid(NOBODY).gid(NOBODY);
    }
    command
}

/// A collector of telemetry that answers nothing, found by a name. Whoever calls stays connected until it
/// hangs up.
#[derive(Clone)]
struct Collector(Arc<Mutex<Vec<TcpStream>>>);

impl Collector {
    /// Gives where it listens, too.
    fn start() -> (Self, String) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("http://localhost:{}", listener.local_addr().unwrap().port());
        let calls = Self(Arc::default());
        let mine = calls.clone();
        std::thread::spawn(move || {
            for call in listener.incoming() {
                mine.0.lock().unwrap().push(call.unwrap());
            }
        });
        (calls, endpoint)
    }

    fn wait_for_a_call(&self) {
        wait_for("a call of the coordinator's", || (!self.0.lock().unwrap().is_empty()).then_some(()));
    }

    fn hang_up(&self) {
        self.0.lock().unwrap().clear();
    }
}

/// The program, where that user reaches it and DIR.
fn program(dir: &Path) -> PathBuf {
    let program = crate::support::command().get_program().into();
    if !rustix::process::geteuid().is_root() {
        return program;
    }
    std::fs::set_permissions(dir, PermissionsExt::from_mode(0o755)).unwrap();
    chown(dir, Some(NOBODY), Some(NOBODY)).unwrap();
    // By another process: what is open for writing here is so in whatever other tests fork meanwhile, and
    // then it cannot be executed.
    let copy = dir.join("fallow");
    assert!(Command::new("cp").args([&program, &copy]).status().unwrap().success());
    copy
}

/// A command of that user, for what may have no more threads.
fn with_no_more() -> Command {
    let mut command = as_counted(Command::new("prlimit"));
    command.arg("--nproc=1:1");
    command
}

#[test]
fn r6_10_a_coordinator_to_which_the_system_gives_no_thread_goes_on_with_those_that_it_has() {
    let dir = tempfile::tempdir().unwrap();
    let (collector, endpoint) = Collector::start();
    let mut command = as_counted(Command::new(program(dir.path())));
    command.env("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint).env("OTEL_METRIC_EXPORT_INTERVAL", "1000");
    command.args(["coordinator", "run", "--dir"]).arg(dir.path().join("coordinator"));
    let mut running = Running::of(command, dir.path());
    let log = || std::fs::read_to_string(dir.path().join("log")).unwrap();
    collector.wait_for_a_call();
    let status = std::fs::read_to_string(format!("/proc/{}/status", running.0.id())).unwrap();
    let threads = status.lines().find_map(|line| line.strip_prefix("Threads:")).unwrap();
    let threads: usize = threads.trim().parse().unwrap();
    let cpus = std::thread::available_parallelism().unwrap().get();
    assert!(threads <= 1 + 18 + cpus, "it takes more than it looks for at its start: {threads}");
    // It has more than that already.
    let process = format!("--pid={}", running.0.id());
    assert!(with_no_more().arg(process).status().unwrap().success());
    let another = with_no_more().args(["sh", "-c", "true | true"]).output().unwrap();
    assert!(!another.status.success(), "that user can have more processes: nothing is shown");
    // A runtime lets threads end that have nothing to do. Nobody asks for anything meanwhile; what the
    // coordinator does by itself three times a minute it has done twice by then.
    let end = Instant::now() + Duration::from_secs(45);
    while Instant::now() < end {
        assert_eq!(running.0.try_wait().unwrap(), None, "it has ended: {}", log());
        std::thread::sleep(Duration::from_millis(100));
    }
    done(dir.path(), &["hosts"]);
    // Its name is looked up in a thread.
    collector.hang_up();
    collector.wait_for_a_call();
    assert_eq!(running.stop(), Some(0), "{}", log());
    assert!(!log().contains("panicked"), "{}", log());
}

#[test]
fn r6_10_a_coordinator_for_which_there_are_too_few_threads_says_so_and_does_not_begin() {
    let dir = tempfile::tempdir().unwrap();
    let (program, place) = (program(dir.path()), dir.path().join("coordinator"));
    for threads in [1, 2, 3, 4, 6, 9, 12] {
        // One that waits for ever is ended, which has another code.
        let mut command = as_counted(Command::new("timeout"));
        command.args(["--signal=KILL", "100", "prlimit", &format!("--nproc={threads}:{threads}")]);
        command.arg(&program).args(["coordinator", "run", "--dir"]).arg(&place);
        let output = command.output().unwrap();
        let said = crate::support::text(&output);
        assert_eq!(output.status.code(), Some(1), "{threads}: {said}");
        assert!(said.contains("let its user have more processes"), "{threads}: {said}");
        assert!(!place.exists(), "{threads}");
    }
}
