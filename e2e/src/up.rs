//! `fallow up` as a process, and what can be seen of it.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::process::Signal;

use crate::{Process, command, fallow_json, processes_in, wait_for};

/// A running `fallow up`. Dropped, it and everything it started is killed.
pub struct Up {
    child: Child,
    dir: tempfile::TempDir,
    said: Arc<Mutex<Vec<String>>>,
}

impl Up {
    /// Starts it in a directory of its own.
    pub fn start(arguments: &[&str], environment: &[(&str, &str)]) -> Self {
        let dir = tempfile::Builder::new().prefix("fallow-e2e-").tempdir().unwrap();
        let mut command = command("fallow");
        command.arg("up").args(arguments).arg("--dir").arg(dir.path()).envs(environment.iter().copied());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let said = Arc::new(Mutex::new(Vec::new()));
        let (out, err) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
        collect(out, "", &said);
        collect(err, "stderr: ", &said);
        Self { child, dir, said }
    }

    /// Its directory.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// What it printed so far, line by line; lines of standard error begin with `stderr: `.
    pub fn said(&self) -> Vec<String> {
        self.said.lock().unwrap().clone()
    }

    /// What `fallow` prints about it with `--json`.
    pub fn json(&self, arguments: &[&str]) -> serde_json::Value {
        fallow_json(self.dir(), arguments)
    }

    /// The daemon whose directory is DIR/`name`, such as `agent-1` or `coordinator`.
    pub fn daemon(&self, name: &str) -> Option<Process> {
        let file = std::fs::read(self.dir().join(name).join("daemon.json")).ok()?;
        let daemon: serde_json::Value = serde_json::from_slice(&file).ok()?;
        Process::read(u32::try_from(daemon["pid"].as_u64()?).ok()?).filter(|process| !process.zombie)
    }

    /// The tasks of an agent that have a process now.
    pub fn tasks(&self, agent: &str) -> Vec<Process> {
        let slots: PathBuf = self.dir().join(agent).join("slots");
        let slots = slots.canonicalize().unwrap_or(slots);
        processes_in(&slots).into_iter().filter(|process| process.cwd.starts_with(&slots)).collect()
    }

    /// Whether it is still running.
    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Waits for its end.
    pub fn wait(&mut self, at_most: Duration) -> ExitStatus {
        let said = Arc::clone(&self.said);
        let child = &mut self.child;
        let what = "the end of fallow up";
        let end = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            wait_for(what, at_most, || child.try_wait().unwrap())
        }));
        end.unwrap_or_else(|_| panic!("{what} did not come; it said:\n{}", said.lock().unwrap().join("\n")))
    }

    /// Every process that belongs to it, itself included.
    pub fn processes(&self) -> Vec<Process> {
        processes_in(self.dir())
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        for process in self.processes() {
            process.signal(Signal::KILL);
        }
        if std::thread::panicking() {
            println!("fallow up said:\n{}", self.said().join("\n"));
        }
    }
}

fn collect(from: impl std::io::Read + Send + 'static, prefix: &'static str, into: &Arc<Mutex<Vec<String>>>) {
    let into = Arc::clone(into);
    std::thread::spawn(move || {
        for line in BufReader::new(from).lines().map_while(Result::ok) {
            into.lock().unwrap().push(format!("{prefix}{line}"));
        }
    });
}
