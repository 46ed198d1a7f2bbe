//! `fallow` as a process, for tests.
#![allow(dead_code, unreachable_pub, reason = "each test has a part of it")]

use std::fs::File;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use fallow_coordinator::daemon::DaemonFile;
use rustix::process::{Pid, Signal, kill_process};

/// What has to come is waited for so long: it costs nothing where it comes, and a machine may be slow.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// Waits until there is something.
pub fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < end, "waited {PATIENCE:?} for {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

pub struct Running(pub Child);

impl Running {
    /// A coordinator in DIR/coordinator.
    pub fn start(dir: &Path) -> Self {
        let mut command = command();
        command.args(["coordinator", "run", "--dir"]).arg(dir.join("coordinator"));
        Self::of(command, dir)
    }

    /// The coordinator in DIR/coordinator that this command runs. It logs to DIR/log.
    pub fn of(mut command: Command, dir: &Path) -> Self {
        let coordinator = dir.join("coordinator");
        let log = File::options().append(true).create(true).open(dir.join("log")).unwrap();
        let child = command.stderr(log).spawn().unwrap();
        let running = Self(child);
        wait_for("the coordinator's start", || {
            DaemonFile::read(&coordinator).ok().filter(|file| file.process.pid == running.0.id())
        });
        running
    }

    /// Asks it to end.
    pub fn stop(&mut self) -> Option<i32> {
        kill_process(Pid::from_child(&self.0), Signal::TERM).unwrap();
        self.0.wait().unwrap().code()
    }
}

impl Running {
    /// Ends it in the middle of whatever it does.
    pub fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub fn command() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fallow"));
    command.env_remove("FALLOW_DIR").env_remove("FALLOW_LOG").env_remove("OTEL_EXPORTER_OTLP_ENDPOINT");
    command.stdin(Stdio::null());
    command
}

/// A tool's command about the coordinator in DIR.
pub fn fallow(dir: &Path, arguments: &[&str]) -> Output {
    command().args(arguments).env("FALLOW_DIR", dir).output().unwrap()
}

/// A command that works, and what it printed.
pub fn done(dir: &Path, arguments: &[&str]) -> String {
    let output = fallow(dir, arguments);
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", text(&output));
    String::from_utf8(output.stdout).unwrap()
}

/// The same with `--json`.
pub fn json(dir: &Path, arguments: &[&str]) -> serde_json::Value {
    serde_json::from_str(&done(dir, &[arguments, &["--json"]].concat())).unwrap()
}

/// A coordinator that is expected not to start.
pub fn run(dir: &Path, arguments: &[&str]) -> Output {
    command().args(["coordinator", "run", "--dir"]).arg(dir).args(arguments).output().unwrap()
}

pub fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}
