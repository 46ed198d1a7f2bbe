//! A coordinator that is killed at random moments of rollouts, over real agents (R6.5): nobody has a version
//! that was not released to him, nothing acknowledged is lost, and each rollout ends.
//!
//! A few times only; `FALLOW_KILLS=200 cargo test -p fallow-e2e --test rollout_kills -- --nocapture` does it
//! 200 times in some twenty minutes, and says what happened.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "tests: failures are panics")]
#![allow(clippy::disallowed_methods, reason = "the moments are random, and how many comes from outside")]

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fallow_e2e::{Killed, PATIENCE, command, fallow_json, wait_for};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use serde_json::Value;

const AGENTS: usize = 4;

struct Lab {
    dir: tempfile::TempDir,
    coordinator: Option<Killed>,
    agents: Vec<Killed>,
}

impl Lab {
    fn start() -> Self {
        let dir = tempfile::Builder::new().prefix("fallow-e2e-").tempdir().unwrap();
        let mut lab = Self { dir, coordinator: None, agents: Vec::new() };
        lab.start_coordinator();
        lab.json(&["project", "create", "sums"]);
        let tokens = lab.json(&["tokens", "create", "--uses", &AGENTS.to_string()]);
        let token = lab.dir.path().join("token");
        std::fs::write(&token, tokens["tokens"][0].as_str().unwrap()).unwrap();
        for number in 1..=AGENTS {
            let mut run = command("fallow-agent");
            run.args(["run", "--dir"]).arg(lab.dir.path().join(format!("agent-{number}")));
            run.arg("--token-file").arg(&token);
            lab.agents.push(lab.spawn(run, &format!("agent-{number}.log")));
        }
        wait_for("all agents to follow the first version", PATIENCE, || lab.all_follow(1).then_some(()));
        lab
    }

    fn place(&self) -> PathBuf {
        self.dir.path().join("coordinator")
    }

    fn spawn(&self, mut run: std::process::Command, log: &str) -> Killed {
        let log = File::options().create(true).append(true).open(self.dir.path().join(log)).unwrap();
        Killed(run.stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap())
    }

    fn start_coordinator(&mut self) {
        let mut run = command("fallow");
        run.args(["coordinator", "run", "--dir"]).arg(self.place());
        self.coordinator = Some(self.spawn(run, "coordinator.log"));
        wait_for("the coordinator to answer", PATIENCE, || {
            asked(&self.place(), &["hosts"]).is_some().then_some(())
        });
    }

    fn json(&self, arguments: &[&str]) -> Value {
        fallow_json(&self.place(), arguments)
    }

    fn hosts(&self) -> Vec<Value> {
        self.json(&["hosts"])["hosts"].as_array().unwrap().clone()
    }

    fn all_follow(&self, version: u64) -> bool {
        let hosts = self.hosts();
        hosts.len() == AGENTS && hosts.iter().all(|host| host["document_version"] == version)
    }

    /// What holds whenever one looks: hosts were looked at before the rollout, which only goes on.
    fn check(&self) -> Value {
        let (hosts, rollout) = (self.hosts(), self.json(&["rollout"])["rollout"].clone());
        if rollout.is_null() {
            return rollout;
        }
        let is_open = !["completed", "taken_back"].contains(&rollout["phase"].as_str().unwrap());
        let have_it =
            hosts.iter().filter(|host| host["document_version"] == rollout["version"]).count() as u64;
        let released = rollout["released_hosts"].as_u64().unwrap();
        assert!(!is_open || have_it <= released, "{have_it} have it, released to {released}: {rollout}");
        rollout
    }
}

/// What a command prints, if it succeeds: the coordinator may be gone in the middle of it.
fn asked(dir: &Path, arguments: &[&str]) -> Option<Value> {
    let output = command("fallow").args(arguments).arg("--dir").arg(dir).arg("--json").output().unwrap();
    output.status.success().then(|| serde_json::from_slice(&output.stdout).ok())?
}

#[test]
fn r6_5_a_coordinator_that_is_killed_again_and_again_releases_nothing_too_early_and_loses_nothing() {
    let kills = std::env::var("FALLOW_KILLS").ok().and_then(|kills| kills.parse().ok()).unwrap_or(5);
    let mut rng = StdRng::seed_from_u64(7);
    let mut lab = Lab::start();
    lab.json(&["rollout", "plan", "--waves", "1,50%", "--soak", "5s"]);
    // The newest that a command was told is made, and what became of those before.
    let (mut acknowledged, mut ended) = (1, [0, 0]);
    for kill in 0..kills {
        let rollout = lab.check();
        let is_open =
            rollout["phase"].as_str().is_some_and(|phase| !["completed", "taken_back"].contains(&phase));
        if !is_open {
            if rollout["version"].as_u64() == Some(acknowledged) {
                ended[usize::from(rollout["phase"] == "taken_back")] += 1;
            }
            // One in three takes the CPUs away.
            let part = if rng.random_range(0..3) == 0 { 1 } else { rng.random_range(60..100) };
            let set = ["preferences", "set", "--cpu-fraction", &format!("{part}%")];
            let made = asked(&lab.place(), &set);
            acknowledged = made.and_then(|made| made["document_version"].as_u64()).unwrap_or(acknowledged);
        }
        std::thread::sleep(Duration::from_millis(rng.random_range(0..9_000)));
        drop(lab.coordinator.take());
        lab.start_coordinator();
        let newest = lab.json(&["hosts"])["document_version"].as_u64().unwrap();
        assert!(
            newest >= acknowledged,
            "version {acknowledged} was acknowledged, and {newest} is the newest"
        );
        println!("{kill}: version {newest}, {}", lab.check()["stands"]);
    }
    let phase = wait_for("the rollout to end", 3 * PATIENCE, || {
        let phase = lab.check()["phase"].as_str().unwrap_or("completed").to_owned();
        if phase == "paused" {
            lab.json(&["rollout", "resume"]);
        }
        ["completed", "taken_back"].contains(&phase.as_str()).then_some(phase)
    });
    let newest = lab.json(&["hosts"])["document_version"].as_u64().unwrap();
    wait_for("all agents to follow the newest version", PATIENCE, || lab.all_follow(newest).then_some(()));
    println!("{} completed, {} taken back, the last one {phase}", ended[0], ended[1]);
    let checked = command("fallow").args(["audit", "--check", "--dir"]).arg(lab.place()).output().unwrap();
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
}
