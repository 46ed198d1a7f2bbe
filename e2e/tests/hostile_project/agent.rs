//! The agent under attack: the real program in a directory of its own, and what it takes of the machine.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Output};
use std::time::{Duration, Instant};

use fallow_e2e::{PATIENCE, Process, command, processes_in, wait_for};
use rustix::process::Signal;
use tempfile::TempDir;

/// How soon the owner has his answer, on a machine whose CPUs all compute.
const ANSWER: Duration = Duration::from_secs(5);

/// A running agent. Dropped, it and its tasks are killed.
pub(crate) struct Agent {
    dir: TempDir,
    child: Child,
}

impl Agent {
    pub(crate) fn start() -> Self {
        let dir = tempfile::Builder::new().prefix("fallow-hostile-").tempdir().unwrap();
        let log = File::create(dir.path().join("log")).unwrap();
        fs::write(dir.path().join("key"), "0123456789abcdef0123456789abcdef\n").unwrap();
        let mut run = command("fallow-agent");
        // The CPUs are not measured meanwhile: that suspends all tasks.
        run.args(["run", "--benchmark-after-ms", "3600000", "--dir"]).arg(dir.path().join("agent"));
        let child = run.stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap();
        let agent = Self { dir, child };
        wait_for("the agent to answer", PATIENCE, || agent.ask(&["status"]).status.success().then_some(()));
        agent
    }

    /// Its data.
    pub(crate) fn dir(&self) -> PathBuf {
        self.dir.path().join("agent")
    }

    /// What it logged.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.dir.path().join("log")).unwrap()
    }

    fn ask(&self, arguments: &[&str]) -> Output {
        command("fallow-agent").args(arguments).arg("--dir").arg(self.dir()).output().unwrap()
    }

    /// Runs a command of the owner's that has to succeed.
    pub(crate) fn tell(&self, arguments: &[&str]) {
        let output = self.ask(arguments);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{arguments:?} ended with {}: {said}", output.status);
    }

    /// Attaches a project. One that is attached so is not asked first.
    pub(crate) fn attach_unasked(&self, url: &str) -> bool {
        let key = self.dir.path().join("key");
        let key = key.to_str().unwrap();
        self.ask(&["attach", url, "--account-key-file", key, "--no-wait"]).status.success()
    }

    /// What the owner sees, at once.
    pub(crate) fn status(&self) -> serde_json::Value {
        // The machine may stand still meanwhile, but not each time.
        let mut waited = Vec::new();
        for _ in 0..3 {
            let start = Instant::now();
            let output = self.ask(&["status", "--json"]);
            waited.push(start.elapsed());
            assert!(output.status.success(), "no status: {}", String::from_utf8_lossy(&output.stderr));
            if waited.iter().any(|took| *took < ANSWER) {
                return serde_json::from_slice(&output.stdout).unwrap();
            }
        }
        panic!("the owner waited {waited:?} for the status\n{}", self.log_end());
    }

    /// CPU seconds that it accounts to a project.
    pub(crate) fn cpu_time_of(&self, url: &str) -> f64 {
        let status = self.status();
        let projects = status["projects"].as_array().unwrap();
        let project = projects.iter().find(|project| project["url"] == url);
        project.map_or(0.0, |project| project["cpu_time"].as_f64().unwrap())
    }

    /// How many tasks of a project have a process, and how many CPUs there are for them.
    pub(crate) fn running(&self, url: &str) -> (usize, usize) {
        let status = self.status();
        let tasks = status["tasks"].as_array().unwrap();
        let runs = |task: &&serde_json::Value| task["project_url"] == url && task["phase"] == "running";
        (tasks.iter().filter(runs).count(), status["host"]["usable_cpus"].as_u64().unwrap() as usize)
    }

    /// Clock ticks of CPU time that it used itself.
    pub(crate) fn own_ticks(&self) -> u64 {
        Process::read(self.child.id()).map_or(0, |process| process.ticks)
    }

    /// The most memory that it ever held, in bytes.
    pub(crate) fn peak_memory(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
    }

    /// What its directory holds, in bytes.
    pub(crate) fn disk(&self) -> u64 {
        size_of(&self.dir())
    }

    /// Files of this name anywhere in its directory, beside it, and where temporary files are.
    pub(crate) fn find(&self, name: &str) -> Vec<PathBuf> {
        let mut found = vec![Path::new("/tmp").join(name)];
        found.retain(|path| path.exists());
        walk(self.dir.path(), &mut |path| {
            if path.file_name().is_some_and(|own| own == name) {
                found.push(path.to_owned());
            }
        });
        found
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// The end of its log, for failures.
    pub(crate) fn log_end(&self) -> String {
        let log = self.log();
        let from = log.char_indices().rev().nth(6_000).map_or(0, |(at, _)| at);
        log[from..].to_owned()
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        for process in processes_in(self.dir.path()) {
            process.signal(Signal::KILL);
        }
        if std::thread::panicking() {
            println!("the agent's log ended so:\n{}", self.log_end());
        }
    }
}

fn size_of(path: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let mut sum = 0;
    walk(path, &mut |path| sum += fs::symlink_metadata(path).map_or(0, |data| data.blocks() * 512));
    sum
}

/// All below a folder. Files may come and go meanwhile.
fn walk(folder: &Path, look: &mut impl FnMut(&Path)) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        look(&entry.path());
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            walk(&entry.path(), look);
        }
    }
}
