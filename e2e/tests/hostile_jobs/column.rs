//! One column of the table: an agent of root's or of an ordinary user's, with all layers or without some.

use std::fs::{self, File};
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use fallow_e2e::{Killed, PATIENCE, Process, command, processes_in, wait_for};
use rustix::fs::{Mode, OFlags};
use serde_json::Value;

use crate::attacks::{ATTACKS, Attack, Who};
use crate::project::{Account, Coordinator};

/// An ordinary user that owns nothing.
pub(crate) const NOBODY: u32 = 65_534;
/// The project of all neighbours.
pub(crate) const NEIGHBOURS: &str = "neighbours";

/// The pipe in its slot before which a job waits until somebody opens the other end.
pub(crate) const GATE: &str = "gate";

/// What is left away of the layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Without {
    Nothing,
    Layer(&'static str),
    Everything,
}

/// What is left away, and whose agent it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kind {
    pub(crate) root: bool,
    pub(crate) without: Without,
}

impl Kind {
    /// The name of its project.
    pub(crate) fn name(self) -> String {
        let user = if self.root { "root" } else { "user" };
        match self.without {
            Without::Nothing => format!("{user}-confined"),
            Without::Layer(layer) => format!("{user}-no-{layer}"),
            Without::Everything => format!("{user}-bare"),
        }
    }

    /// Whether an attack could be made by its jobs were it not for the layers.
    pub(crate) fn can_try(self, attack: &Attack) -> bool {
        match attack.1 {
            Who::Anybody | Who::Perhaps | Who::Always(_) => true,
            Who::Root => self.root,
            Who::Ordinary => !self.root,
        }
    }
}

/// A running agent, with a neighbour of the jobs that are to come.
pub(crate) struct Column {
    pub(crate) kind: Kind,
    dir: PathBuf,
    program: PathBuf,
    pub(crate) agent: Killed,
    neighbour: Process,
    /// Files of somebody's own, one directory for each attack.
    owner: PathBuf,
    _datagrams: UnixDatagram,
}

impl Column {
    /// Starts the agent in a directory of its own below `place`, attaches it, and waits for its neighbour to
    /// run.
    pub(crate) fn start(
        kind: Kind,
        place: &Path,
        program: &Path,
        fleet: &Coordinator,
        lab: &Coordinator,
    ) -> Self {
        let dir = place.join(kind.name());
        let owner = place.join(format!("{}-owner", kind.name()));
        for made in [&dir, &owner] {
            fs::create_dir(made).unwrap();
            own(kind, made);
        }
        let token = dir.with_extension("token");
        fs::write(&token, fleet.token()).unwrap();
        own(kind, &token);
        let mut run = as_user(kind, program);
        run.args(["run", "--benchmark-after-ms", "3600000", "--stop-grace-ms", "2000", "--token-file"])
            .arg(&token);
        match kind.without {
            Without::Nothing => &mut run,
            Without::Layer(layer) => run.args(["--without-layers", layer]),
            Without::Everything => run.arg("--unconfined"),
        };
        let log = File::create(dir.with_extension("log")).unwrap();
        run.arg("--dir").arg(&dir).stdout(log.try_clone().unwrap()).stderr(log);
        let agent = Killed(run.spawn().unwrap());
        let ask = |arguments: &[&str]| asked(kind, program, &dir, arguments);
        wait_for("the agent to be in its fleet", PATIENCE, || {
            (dir.join("identity.key").exists() && ask(&["status"]).status.success()).then_some(())
        });
        // The neighbour first, so that it is there when the others come.
        attach(&ask, &lab.account(NEIGHBOURS, &kind.name()), &dir.with_extension("key"), kind);
        // And not one that it has forked: that has its command line until it executes another program.
        let neighbour = wait_for("the neighbour", PATIENCE, || {
            let status: Value = serde_json::from_slice(&ask(&["status", "--json"]).stdout).ok()?;
            let pid = u32::try_from(status["tasks"].get(0)?["pid"].as_u64()?).ok()?;
            Process::read(pid).filter(|process| process.command.contains("neighbour"))
        });
        let datagrams = UnixDatagram::bind(dir.join("datagrams")).unwrap();
        own(kind, &dir.join("datagrams"));
        let column =
            Self { kind, dir, program: program.to_owned(), agent, neighbour, owner, _datagrams: datagrams };
        let account = lab.account(&kind.name(), &kind.name());
        let ask = |arguments: &[&str]| column.ask(arguments);
        attach(&ask, &account, &column.dir.with_extension("key"), kind);
        column
    }

    /// What the owner sees.
    pub(crate) fn ask(&self, arguments: &[&str]) -> Output {
        asked(self.kind, &self.program, &self.dir, arguments)
    }

    /// Has it ask its project at once. Some of its jobs have failed, after which it would wait.
    pub(crate) fn nudge(&self) {
        self.ask(&["update", &self.kind.name()]);
    }

    /// Has its owner let jobs have so much memory.
    pub(crate) fn limit_memory(&self, most: u64) {
        let memory = fs::read_to_string("/proc/meminfo").unwrap();
        let total: u64 = memory.split_whitespace().nth(1).unwrap().parse().unwrap();
        let percent = most as f64 / (total * 1024) as f64 * 100.0;
        let preferences = self.dir.join("preferences.toml");
        fs::write(&preferences, format!("memory_fraction = \"{percent:.2}%\"\n")).unwrap();
        own(self.kind, &preferences);
        let told = self.ask(&["preferences", "reload"]);
        assert!(told.status.success(), "{}", String::from_utf8_lossy(&told.stderr));
    }

    /// Lets a job of its go that waits behind its gate, and waits until its slot is empty again.
    pub(crate) fn let_go(&self, workunit: &str) {
        let job = format!(">{workunit}_0<");
        let has_it = |slot: &PathBuf| {
            fs::read_to_string(slot.join("init_data.xml")).is_ok_and(|data| data.contains(&job))
        };
        let waits = |what: &str| format!("{what} of {workunit} of {}", self.kind.name());
        let slot = wait_for(&waits("the slot"), PATIENCE, || self.slots().into_iter().find(has_it));
        wait_for(&waits("the end"), PATIENCE, || {
            // Again and again: it may not have come to its gate yet. Nobody waits here for it to do so.
            let mode = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW;
            drop(rustix::fs::open(slot.join(GATE), mode, Mode::empty()));
            (!has_it(&slot)).then_some(())
        });
    }

    pub(crate) fn status(&self) -> Value {
        let output = self.ask(&["status", "--json"]);
        assert!(output.status.success(), "{}\n{}", String::from_utf8_lossy(&output.stderr), self.log_end());
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// The text of an attack by its number, with what it needs to know of this agent.
    pub(crate) fn script(&self, number: usize, text: &str, known: &[(&str, String)]) -> String {
        let owner = self.owner.join(number.to_string());
        fs::create_dir(&owner).unwrap();
        own(self.kind, &owner);
        for name in ["letter", "long", "short", "mode"] {
            fs::write(owner.join(name), "precious").unwrap();
            own(self.kind, &owner.join(name));
        }
        let stems = fs::read_dir(self.dir.join("projects")).unwrap().flatten();
        let mut stems = stems.map(|entry| entry.file_name().into_string().unwrap());
        let other = stems.find(|stem| stem.ends_with(NEIGHBOURS)).unwrap();
        // Its own is made with the first file.
        let own_stem = other.replace(NEIGHBOURS, &self.kind.name());
        let programs = fs::read_dir(self.dir.join("projects").join(&other)).unwrap().flatten();
        let program = programs
            .map(|entry| entry.file_name().into_string().unwrap())
            .find(|name| name.starts_with("neighbour"))
            .unwrap();
        let own_known = [
            ("DIR", self.dir.display().to_string()),
            ("OWNER", owner.display().to_string()),
            ("OWN", own_stem),
            ("OTHER", other),
            ("PROGRAM", program),
            ("SLOT", self.slot()),
            ("PID", self.neighbour.pid.to_string()),
            ("AGENT", self.agent.0.id().to_string()),
        ];
        let known = own_known.iter().chain(known);
        // Longer ones first: some begin as others do.
        let mut known: Vec<_> = known.collect();
        known.sort_by_key(|(name, _)| std::cmp::Reverse(name.len()));
        known.iter().fold(text.to_owned(), |text, (name, value)| text.replace(name, value))
    }

    fn slot(&self) -> String {
        self.neighbour.cwd.file_name().unwrap().to_str().unwrap().to_owned()
    }

    /// The attacks that its jobs can try, by their numbers.
    pub(crate) fn attacks(&self, known: &[(&str, String)]) -> Vec<(usize, String)> {
        let tried = ATTACKS.iter().enumerate().filter(|(_, attack)| self.kind.can_try(attack));
        tried.map(|(number, attack)| (number, self.script(number, attack.2, known))).collect()
    }

    /// Whether the files of somebody's own are as they were, where an attack failed.
    pub(crate) fn is_unharmed(&self, number: usize) -> bool {
        let whole = |name: &str| {
            fs::read(self.owner.join(number.to_string()).join(name)).is_ok_and(|bytes| bytes == b"precious")
        };
        ["letter", "long", "short", "mode"].into_iter().all(whole)
    }

    /// Whether the neighbour is the process that it was.
    pub(crate) fn neighbour_lives(&self) -> bool {
        self.neighbour.is_alive()
    }

    /// Has the neighbour end, as the good job that it is.
    pub(crate) fn release(&self) {
        let slot = self.dir.join("slots").join(self.slot());
        wait_for("the neighbour's slot", PATIENCE, || slot.join("init_data.xml").exists().then_some(()));
        fs::write(slot.join("go"), "").unwrap();
    }

    pub(crate) fn slots(&self) -> Vec<PathBuf> {
        let slots = fs::read_dir(self.dir.join("slots")).into_iter().flatten().flatten();
        slots.map(|entry| entry.path()).collect()
    }

    /// All processes of it and its jobs that can be known by their directories.
    pub(crate) fn processes(&self) -> Vec<Process> {
        processes_in(&self.dir)
    }

    /// What its agent logged with this in it.
    pub(crate) fn log_lines(&self, part: &str) -> Vec<String> {
        let log = fs::read_to_string(self.dir.with_extension("log")).unwrap();
        log.lines().filter(|line| line.contains(part)).map(str::to_owned).collect()
    }

    pub(crate) fn log_end(&self) -> String {
        let log = fs::read_to_string(self.dir.with_extension("log")).unwrap();
        let from = log.char_indices().rev().nth(6_000).map_or(0, |(at, _)| at);
        format!("the log of {} ends so:\n{}", self.kind.name(), &log[from..])
    }
}

fn attach(ask: &impl Fn(&[&str]) -> Output, account: &Account, file: &Path, kind: Kind) {
    fs::write(file, format!("{}\n", account.key)).unwrap();
    own(kind, file);
    let told = ask(&["attach", &account.url, "--account-key-file", file.to_str().unwrap()]);
    assert!(told.status.success(), "{}: {}", account.url, String::from_utf8_lossy(&told.stderr));
}

/// Gives a file to the user of an agent, who alone may read it.
fn own(kind: Kind, path: &Path) {
    if !kind.root && rustix::process::geteuid().is_root() {
        chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
    }
    let mode = if path.is_dir() { 0o700 } else { 0o644 };
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

fn as_user(kind: Kind, program: &Path) -> Command {
    let mut agent = Command::new(program);
    agent
        .env_clear()
        .envs(command("fallow-agent").get_envs().filter_map(|(name, value)| Some((name, value?))));
    agent.env("PATH", std::env::var_os("PATH").unwrap_or_default()).stdin(Stdio::null());
    if !kind.root && rustix::process::geteuid().is_root() {
        agent.uid(NOBODY).gid(NOBODY);
    }
    agent
}

fn asked(kind: Kind, program: &Path, dir: &Path, arguments: &[&str]) -> Output {
    as_user(kind, program).args(arguments).arg("--dir").arg(dir).output().unwrap()
}
