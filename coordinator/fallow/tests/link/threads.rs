//! A coordinator on a machine where others have taken all threads that its user may have.

use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::support::{Running, done};

/// Whom nothing belongs to.
const NOBODY: u32 = 65_534;

/// A command of a user whose threads are counted, as root's are not.
fn as_counted(mut command: Command) -> Command {
    if rustix::process::geteuid().is_root() {
        command.uid(NOBODY).gid(NOBODY);
    }
    command
}

/// A coordinator in DIR/coordinator whose threads are counted.
fn counted(dir: &Path) -> Running {
    let mut command = crate::support::command();
    if rustix::process::geteuid().is_root() {
        // That user has to reach the program and the directory.
        std::fs::set_permissions(dir, PermissionsExt::from_mode(0o755)).unwrap();
        let program = dir.join("fallow");
        std::fs::copy(command.get_program(), &program).unwrap();
        chown(dir, Some(NOBODY), Some(NOBODY)).unwrap();
        command = Command::new(program);
        command.env_remove("FALLOW_LOG").env_remove("OTEL_EXPORTER_OTLP_ENDPOINT");
    }
    let mut command = as_counted(command);
    command.args(["coordinator", "run", "--dir"]).arg(dir.join("coordinator"));
    Running::of(command, dir)
}

#[test]
fn r6_10_a_coordinator_to_which_the_system_gives_no_thread_goes_on_with_those_that_it_has() {
    let dir = tempfile::tempdir().unwrap();
    let mut running = counted(dir.path());
    let log = || std::fs::read_to_string(dir.path().join("log")).unwrap();
    // It has more than that already.
    let process = format!("--pid={}", running.0.id());
    let mut limit = as_counted(Command::new("prlimit"));
    assert!(limit.args([&process, "--nproc=1:1"]).status().unwrap().success());
    // A runtime lets threads end that have nothing to do. Nobody asks for anything meanwhile; what the
    // coordinator does by itself three times a minute it has done twice by then.
    let end = Instant::now() + Duration::from_secs(45);
    while Instant::now() < end {
        assert_eq!(running.0.try_wait().unwrap(), None, "it has ended: {}", log());
        std::thread::sleep(Duration::from_millis(100));
    }
    done(dir.path(), &["hosts"]);
    assert_eq!(running.stop(), Some(0), "{}", log());
    assert!(!log().contains("panicked"), "{}", log());
}
