//! A coordinator that stands still just after it has sent a version: a real agent goes back from it by
//! itself, and operators see why (R6.5).
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests: failures are panics")]

use std::process::Stdio;

use fallow_e2e::{Killed, PATIENCE, command, fallow_json, wait_for};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

struct Lab {
    dir: tempfile::TempDir,
    coordinator: Killed,
    agent: Option<Killed>,
}

impl Lab {
    fn start() -> Self {
        let dir = tempfile::Builder::new().prefix("fallow-e2e-").tempdir().unwrap();
        let mut run = command("fallow");
        run.args(["coordinator", "run", "--dir"]).arg(dir.path().join("coordinator"));
        let coordinator = Killed(run.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
        let mut lab = Self { dir, coordinator, agent: None };
        wait_for("the coordinator to answer", PATIENCE, || {
            let mut hosts = command("fallow");
            hosts.args(["hosts", "--dir"]).arg(lab.dir.path().join("coordinator"));
            hosts.output().unwrap().status.success().then_some(())
        });
        let token = lab.json(&["tokens", "create"])["tokens"][0].as_str().unwrap().to_owned();
        let mut agent = command("fallow-agent");
        agent.args(["run", "--benchmark-after-ms", "3600000", "--confirm-within-ms", "20000", "--dir"]);
        agent.arg(lab.dir.path().join("agent")).env("FALLOW_TOKEN", token);
        lab.agent = Some(Killed(agent.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()));
        lab
    }

    fn json(&self, arguments: &[&str]) -> Value {
        fallow_json(&self.dir.path().join("coordinator"), arguments)
    }

    /// Sets a preference. Says which version that is.
    fn set(&self, percent: u32) -> u64 {
        self.json(&["preferences", "set", "--cpu-fraction", &format!("{percent}%")]);
        self.json(&["hosts"])["document_version"].as_u64().unwrap()
    }

    fn host(&self) -> Option<Value> {
        self.json(&["hosts"])["hosts"].get(0).cloned()
    }

    /// What the agent says of itself.
    fn agent(&self) -> Option<Value> {
        let mut status = command("fallow-agent");
        status.args(["status", "--json", "--dir"]).arg(self.dir.path().join("agent"));
        serde_json::from_slice::<Value>(&status.output().unwrap().stdout).ok()?.get("host").cloned()
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.coordinator.0.id()).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    /// Stops the coordinator as soon as the agent follows a version, and lets it go on when the agent has
    /// gone back. False if the version was confirmed before that.
    fn goes_back_from(&self, version: u64) -> bool {
        let follows = || self.agent().filter(|host| host["document_version"] == version);
        wait_for("the version", PATIENCE, follows);
        self.signal(Signal::STOP);
        // An acknowledgement may have been on its way.
        let went_back = wait_for("it to be confirmed, or the agent to go back", PATIENCE, || {
            let host = self.agent()?;
            let follows = host["document_version"].as_u64()?;
            let is_confirmed = follows == version && host["document_on_trial"] == false;
            let went_back = follows < version && host["document_rolled_back"][0] == version;
            (is_confirmed || went_back).then_some(went_back)
        });
        self.signal(Signal::CONT);
        went_back
    }
}

#[test]
fn r6_5_an_agent_goes_back_from_what_a_coordinator_that_stands_still_does_not_acknowledge_and_operators_see_why()
 {
    let lab = Lab::start();
    let first = lab.set(90);
    wait_for("the first version to be confirmed", PATIENCE, || {
        lab.agent().filter(|host| host["document_version"] == first && host["document_on_trial"] == false)
    });
    // The machine may be so slow that the version is confirmed before the coordinator can be stopped.
    let failed = (50..80).map(|percent| lab.set(percent)).find(|version| {
        // The coordinator that goes on offers it once more, and stands still again.
        lab.goes_back_from(*version) && lab.goes_back_from(*version)
    });
    let failed = failed.unwrap();
    let host = wait_for("the refusal", PATIENCE, || {
        lab.host().filter(|host| host["document_refused_version"] == failed)
    });
    assert_eq!(host["document_rolled_back_version"], failed, "{host}");
    assert!(host["document_version"].as_u64().unwrap() < failed, "{host}");
    let why = host["document_rollback"].as_str().unwrap();
    assert!(why.contains("acknowledged nothing for 20 s of time on, for the second time"), "{why}");
    let mut hosts = command("fallow");
    let said =
        hosts.args(["hosts", "--wide", "--dir"]).arg(lab.dir.path().join("coordinator")).output().unwrap();
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    let refused = format!("refused document {failed}: this host went back from it");
    assert!(said.contains(&refused), "{said}");

    // A newer version is another matter.
    let newer = lab.set(85);
    wait_for("the newer version to be confirmed", PATIENCE, || {
        lab.host().filter(|host| {
            host["document_version"] == newer
                && host["document_rolled_back_version"] == 0
                && host["document_refusal"] == ""
        })
    });
}
