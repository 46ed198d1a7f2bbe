//! A coordinator and agents of its own, each a process with a directory.

use std::fs::File;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use crate::{Killed, PATIENCE, command, fallow_json, wait_for};

/// A coordinator with a project, and agents that were enrolled with one token and follow its first document.
/// All of them are killed with it, and their directory goes.
pub struct Lab {
    agents: Vec<Option<Killed>>,
    coordinator: Option<Killed>,
    /// What each agent's command is given besides.
    changed: Box<dyn Fn(&mut Command) + Send + Sync>,
    dir: tempfile::TempDir,
}

impl Lab {
    /// Starts them, and waits until all agents follow the first version.
    #[must_use]
    pub fn start(agents: usize) -> Self {
        Self::start_with(agents, |_| ())
    }

    /// The same, with agents whose commands are changed so first.
    #[must_use]
    pub fn start_with(agents: usize, changed: impl Fn(&mut Command) + Send + Sync + 'static) -> Self {
        let dir = tempfile::Builder::new().prefix("fallow-e2e-").tempdir().unwrap();
        let mut lab = Self { agents: Vec::new(), coordinator: None, changed: Box::new(changed), dir };
        lab.start_coordinator();
        lab.json(&["project", "create", "sums", "--request-delay", "1s"]);
        let tokens = lab.json(&["tokens", "create", "--uses", &agents.to_string()]);
        let token = lab.dir.path().join("token");
        std::fs::write(&token, tokens["tokens"][0].as_str().unwrap()).unwrap();
        for number in 1..=agents {
            lab.agents.push(None);
            lab.start_agent(number);
            // One machine in the place of hundreds has not their CPUs: agents give up that get no answer.
            if number.is_multiple_of(5) {
                wait_for("agents to enrol", PATIENCE, || (lab.hosts().len() == number).then_some(()));
            }
        }
        let patience = PATIENCE + Duration::from_secs(2) * u32::try_from(agents).unwrap();
        wait_for("all agents to follow the first version", patience, || lab.all_follow(1).then_some(()));
        lab
    }

    /// The coordinator's directory.
    #[must_use]
    pub fn place(&self) -> PathBuf {
        self.dir.path().join("coordinator")
    }

    /// An agent's directory. They are counted from 1.
    #[must_use]
    pub fn agent_place(&self, number: usize) -> PathBuf {
        self.dir.path().join(format!("agent-{number}"))
    }

    /// What an agent has logged, in all its lives.
    #[must_use]
    pub fn agent_log(&self, number: usize) -> String {
        std::fs::read_to_string(self.dir.path().join(format!("agent-{number}.log"))).unwrap_or_default()
    }

    /// Starts an agent.
    pub fn start_agent(&mut self, number: usize) {
        let mut run = command("fallow-agent");
        run.args(["run", "--dir"]).arg(self.agent_place(number));
        // Else each of many would measure the CPUs while the others start.
        run.args(["--benchmark-after-ms", "3600000", "--token-file"]).arg(self.dir.path().join("token"));
        (self.changed)(&mut run);
        let agent = self.spawn(run, &format!("agent-{number}.log"));
        self.agents[number - 1] = Some(agent);
    }

    /// Kills an agent, as `kill -9` does: its tasks and its guard are left.
    pub fn kill_agent(&mut self, number: usize) {
        drop(self.agents[number - 1].take());
    }

    /// The process of an agent, if it was not killed and has not ended.
    pub fn agent(&mut self, number: usize) -> Option<u32> {
        let agent = self.agents[number - 1].as_mut()?;
        agent.0.try_wait().unwrap().is_none().then_some(agent.0.id())
    }

    fn spawn(&self, mut run: Command, log: &str) -> Killed {
        let log = File::options().create(true).append(true).open(self.dir.path().join(log)).unwrap();
        Killed(run.stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap())
    }

    /// Starts the coordinator, and waits until it answers.
    pub fn start_coordinator(&mut self) {
        let mut run = command("fallow");
        run.args(["coordinator", "run", "--dir"]).arg(self.place());
        self.coordinator = Some(self.spawn(run, "coordinator.log"));
        wait_for("the coordinator to answer", PATIENCE, || self.asked(&["hosts"]).is_some().then_some(()));
    }

    /// Kills the coordinator, as `kill -9` does.
    pub fn kill_coordinator(&mut self) {
        drop(self.coordinator.take());
    }

    /// The coordinator's process, which is killed when it is dropped.
    #[must_use]
    pub fn take_coordinator(&mut self) -> Option<Killed> {
        self.coordinator.take()
    }

    /// What a command of the operator's prints with `--json`.
    pub fn json(&self, arguments: &[&str]) -> Value {
        fallow_json(&self.place(), arguments)
    }

    /// The same, if it succeeds: the coordinator may be gone in the middle of it.
    #[must_use]
    pub fn asked(&self, arguments: &[&str]) -> Option<Value> {
        let mut asks = command("fallow");
        let output = asks.args(arguments).arg("--dir").arg(self.place()).arg("--json").output().unwrap();
        output.status.success().then(|| serde_json::from_slice(&output.stdout).ok())?
    }

    /// The exit status of a command of the operator's, and all that it says.
    #[must_use]
    pub fn says(&self, arguments: &[&str]) -> (i32, String) {
        let output = command("fallow").args(arguments).arg("--dir").arg(self.place()).output().unwrap();
        let said = [output.stdout, output.stderr].map(|said| String::from_utf8_lossy(&said).into_owned());
        (output.status.code().unwrap(), said.concat())
    }

    /// The hosts, as `fallow hosts --json` has them.
    #[must_use]
    pub fn hosts(&self) -> Vec<Value> {
        self.json(&["hosts"])["hosts"].as_array().unwrap().clone()
    }

    /// Whether all agents are in the fleet, and follow this version.
    #[must_use]
    pub fn all_follow(&self, version: u64) -> bool {
        let hosts = self.hosts();
        hosts.len() == self.agents.len() && hosts.iter().all(|host| host["document_version"] == version)
    }
}
