//! The processes of a demonstration: started, watched, stopped.
//!
//! A daemon is a child of ours, or was started by hand and is known by its `daemon.json`; both are stopped in
//! the same way. Each child is the leader of a process group of its own, so that Ctrl-C in the terminal
//! reaches only the supervisor, which then ends them in order: agents first, so that they report to a
//! coordinator that still runs.

use std::fs::OpenOptions;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use fallow_daemon::{DaemonFile, ProcessId};
use fallow_domain::{ExitCode, printable};
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep};

use super::progress::Reporter;
use super::site::DemoDirectory;
use crate::cli::Failure;

/// How long a daemon may take to end when asked. An agent waits ten seconds for its tasks.
const PATIENCE: Duration = Duration::from_secs(25);
const POLL: Duration = Duration::from_millis(50);

/// A daemon.
pub(super) struct Daemon {
    pub(super) name: String,
    dir: PathBuf,
    program: PathBuf,
    /// What starts it again by hand.
    arguments: Vec<String>,
    child: Option<Child>,
    process: Option<ProcessId>,
}

/// All daemons of a demonstration.
pub(super) struct Daemons {
    pub(super) coordinator: Daemon,
    pub(super) agents: Vec<Daemon>,
}

/// What happened to a daemon since it was last looked at.
pub(super) enum DaemonEvent {
    Died(String),
    Back(u32),
}

/// Sends a signal to a process, if it is still the same.
fn signal(process: ProcessId, signal: Signal) {
    if let (true, Some(pid)) = (process.is_alive(), i32::try_from(process.pid).ok().and_then(Pid::from_raw)) {
        // Gone in between is what was wanted.
        let _ = kill_process(pid, signal);
    }
}

impl Daemon {
    fn new(name: &str, dir: PathBuf, program: PathBuf, command: &[&str]) -> Self {
        let mut arguments: Vec<String> = command.iter().map(|&argument| argument.to_owned()).collect();
        arguments.extend(["--dir".to_owned(), dir.to_string_lossy().into_owned()]);
        Self { name: name.to_owned(), dir, program, arguments, child: None, process: None }
    }

    /// Its directory.
    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Where what it says goes.
    pub(super) fn log(&self) -> PathBuf {
        self.dir.join("log")
    }

    /// The command that starts it by hand, to be pasted into a shell.
    pub(super) fn by_hand(&self) -> String {
        let program = self.program.to_string_lossy();
        let words = [&*program].into_iter().chain(self.arguments.iter().map(String::as_str));
        words.map(printable::shell_word).collect::<Vec<_>>().join(" ")
    }

    /// An agent's name in the fleet, once it has one.
    pub(super) fn agent_id(&self) -> Option<String> {
        let identity: serde_json::Value =
            serde_json::from_slice(&std::fs::read(self.dir.join("identity.json")).ok()?).ok()?;
        identity.get("agent_id")?.as_str().map(str::to_owned)
    }

    /// Its process id, while it runs.
    pub(super) fn pid(&self) -> Option<u32> {
        self.process.filter(|process| process.is_alive()).map(|process| process.pid)
    }

    /// Takes over one that runs already.
    pub(super) fn adopt(&mut self) -> bool {
        let recorded = DaemonFile::<()>::read(&self.dir).ok();
        self.process = recorded.map(|file| file.process).filter(|process| process.is_alive());
        self.process.is_some()
    }

    /// Starts it.
    pub(super) fn start(&mut self, more: &[String]) -> Result<(), Failure> {
        std::fs::create_dir_all(&self.dir).map_err(|error| Failure::file("make", &self.dir, error))?;
        let path = self.log();
        let fail = |error| Failure::file("write", &path, error);
        let log = OpenOptions::new().append(true).create(true).open(&path).map_err(fail)?;
        let both = log.try_clone().map_err(fail)?;
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).args(more).process_group(0);
        command.stdin(Stdio::null()).stdout(log).stderr(both);
        let child = command.spawn().map_err(|error| {
            Failure::caused(ExitCode::Internal, format!("cannot start {}", self.program.display()), error)
        })?;
        self.process = child.id().and_then(ProcessId::of);
        self.child = Some(child);
        Ok(())
    }

    /// The last thing it said.
    pub(super) fn last_words(&self) -> String {
        use std::io::{Read as _, Seek as _, SeekFrom};
        let tail = || {
            let mut file = std::fs::File::open(self.log()).ok()?;
            let length = file.metadata().ok()?.len();
            file.seek(SeekFrom::Start(length.saturating_sub(4_096))).ok()?;
            let mut bytes = Vec::new();
            file.read_to_end(&mut bytes).ok()?;
            let text = String::from_utf8_lossy(&bytes);
            text.lines().rev().find(|line| !line.trim().is_empty()).map(str::to_owned)
        };
        tail().unwrap_or_default()
    }

    /// If the child has ended: how.
    pub(super) fn ended(&mut self) -> Option<ExitStatus> {
        let status = self.child.as_mut()?.try_wait().ok()??;
        self.child = None;
        self.process = None;
        Some(status)
    }

    /// Looks whether it died or came back.
    pub(super) fn look(&mut self) -> Option<DaemonEvent> {
        if let Some(status) = self.ended() {
            return Some(DaemonEvent::Died(describe(status)));
        }
        match self.process {
            Some(process) if process.is_alive() => None,
            Some(_) if self.child.is_some() => None,
            Some(_) => {
                self.process = None;
                Some(DaemonEvent::Died("ended".to_owned()))
            }
            None => self.adopt().then(|| DaemonEvent::Back(self.process.map_or(0, |process| process.pid))),
        }
    }

    /// Finds one that was restarted by hand a moment ago, then asks it to end.
    fn ask_to_end(&mut self) {
        self.look();
        if let Some(process) = self.process {
            signal(process, Signal::TERM);
        }
    }

    /// Waits for its end; kills it where it takes too long.
    async fn wait(&mut self, reporter: &Reporter) {
        let mut patience = Instant::now() + PATIENCE;
        while self.is_up() {
            if Instant::now() > patience {
                patience = Instant::now() + PATIENCE;
                let text = format!("{} did not end in {} s and is killed", self.name, PATIENCE.as_secs());
                reporter.say("killed", &text);
                self.kill();
            }
            sleep(POLL).await;
        }
    }

    fn is_up(&mut self) -> bool {
        self.ended();
        self.process.is_some_and(ProcessId::is_alive)
    }

    fn kill(&mut self) {
        if let Some(process) = self.process {
            signal(process, Signal::KILL);
        }
    }
}

/// What a daemon's status means: its log may have found no space.
fn meaning(status: i32) -> Option<&'static str> {
    let code = ExitCode::ALL.into_iter().find(|code| i32::from(code.number()) == status)?;
    Some(match code {
        ExitCode::Success => return None,
        ExitCode::Internal => "internal fault",
        ExitCode::Usage => "bad command line",
        ExitCode::BadInput => "bad configuration or input",
        ExitCode::Unreachable => "not reachable",
        ExitCode::Refused => "refused",
        ExitCode::InUse => "directory or port in use",
        ExitCode::BadStore => "bad store",
        ExitCode::NoSpace => "no space, or not writable",
        ExitCode::JobsFailed => "jobs failed",
        ExitCode::TakenBack => "a rollout was taken back",
    })
}

/// How a process ended, for people.
pub(super) fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => match meaning(code) {
            Some(meaning) => format!("ended with status {code} ({meaning})"),
            None => format!("ended with status {code}"),
        },
        (None, Some(signal)) => format!("was ended by signal {signal}"),
        (None, None) => "ended".to_owned(),
    }
}

impl Daemons {
    pub(super) fn new(site: &DemoDirectory, agents: u32) -> Self {
        let coordinator =
            Daemon::new("coordinator", site.coordinator(), site.binary("fallow"), &["coordinator", "run"]);
        let agent = |number| {
            Daemon::new(&format!("agent-{number}"), site.agent(number), site.binary("fallow-agent"), &["run"])
        };
        Self { coordinator, agents: (1..=agents).map(agent).collect() }
    }

    fn all(&mut self) -> impl Iterator<Item = &mut Daemon> {
        self.agents.iter_mut().chain([&mut self.coordinator])
    }

    /// Reports what died, with what starts it again, and what came back.
    pub(super) fn look(&mut self, reporter: &Reporter) {
        for daemon in self.all() {
            match daemon.look() {
                Some(DaemonEvent::Died(how)) => {
                    let (name, command, log) = (&daemon.name, daemon.by_hand(), daemon.log());
                    let last = daemon.last_words();
                    let last = if last.is_empty() { last } else { format!(", last line: {last}") };
                    let log = log.display();
                    let text = format!("{name} {how} (log: {log}{last}); start it again with:\n  {command}");
                    reporter.say("died", &text);
                }
                Some(DaemonEvent::Back(pid)) => {
                    reporter.say("back", &format!("{} is back as process {pid}", daemon.name));
                }
                None => {}
            }
        }
    }

    /// Ends all: the agents together, then the coordinator.
    pub(super) async fn stop(&mut self, reporter: &Reporter) {
        for agent in &mut self.agents {
            agent.ask_to_end();
        }
        for agent in &mut self.agents {
            agent.wait(reporter).await;
        }
        self.coordinator.ask_to_end();
        self.coordinator.wait(reporter).await;
    }

    /// Ends all at once.
    pub(super) async fn kill(&mut self, reporter: &Reporter) {
        reporter.say("killed", "killing everything");
        self.all().for_each(Daemon::kill);
        for daemon in self.all() {
            daemon.wait(reporter).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_that_starts_a_daemon_by_hand_can_be_pasted() {
        let daemon = Daemon::new("agent-1", "/tmp/a b/agent-1".into(), "/bin/fallow-agent".into(), &["run"]);
        assert_eq!(daemon.by_hand(), "/bin/fallow-agent run --dir '/tmp/a b/agent-1'");
    }

    #[test]
    fn a_status_is_told_with_its_meaning() {
        assert_eq!(describe(ExitStatus::from_raw(8 << 8)), "ended with status 8 (no space, or not writable)");
        assert_eq!(describe(ExitStatus::from_raw(9)), "was ended by signal 9");
    }
}
