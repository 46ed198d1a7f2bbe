//! Documents that an organisation signs with a key that the coordinator does not have, and a real agent that
//! follows nothing else (R6.10).
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "tests: failures are panics"
)]

use std::path::{Path, PathBuf};
use std::process::Stdio;

use fallow_domain::DocumentVersion;
use fallow_e2e::{Killed, PATIENCE, command, wait_for};
use serde_json::Value;

/// A coordinator, and an agent of its fleet.
struct Fleet {
    place: tempfile::TempDir,
    _coordinator: Option<Killed>,
}

impl Fleet {
    fn start() -> Self {
        let place = tempfile::tempdir().unwrap();
        let coordinator = run(&place.path().join("coordinator"));
        let fleet = Self { place, _coordinator: Some(coordinator) };
        fleet.wait();
        fleet
    }

    fn wait(&self) {
        wait_for("the coordinator", PATIENCE, || (self.tool(&["hosts"]).0 == 0).then_some(()));
    }

    fn path(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    fn tool(&self, arguments: &[&str]) -> (i32, String) {
        let mut tool = command("fallow");
        tool.args(arguments).env("FALLOW_DIR", self.path("coordinator")).stdin(Stdio::null());
        let output = tool.output().unwrap();
        let said = [output.stdout, output.stderr].map(|said| String::from_utf8_lossy(&said).into_owned());
        (output.status.code().unwrap(), said.concat())
    }

    fn ok(&self, arguments: &[&str]) -> String {
        let (code, said) = self.tool(arguments);
        assert_eq!(code, 0, "{arguments:?}: {said}");
        said
    }

    fn sign(&self, key: &str) -> String {
        self.ok(&["organisation", "sign", "--key", self.path(key).to_str().unwrap(), "--yes"])
    }

    fn new_key(&self, name: &str) -> String {
        self.ok(&["organisation", "new-key", self.path(name).to_str().unwrap()]).trim().to_owned()
    }

    /// A token, without what is said about it beside.
    fn token(&self) -> String {
        let made: Value = serde_json::from_str(&self.ok(&["tokens", "create", "--json"])).unwrap();
        made["tokens"][0].as_str().unwrap().to_owned()
    }

    fn agent(&self) -> Killed {
        self.agent_in("agent")
    }

    /// An agent with this directory, whose programs may leave their marks; what it says is in `log`.
    fn agent_in(&self, directory: &str) -> Killed {
        let token = self.token();
        let mut agent = command("fallow-agent");
        agent.args(["run", "--unconfined", "--dir"]).arg(self.path(directory)).env("FALLOW_TOKEN", token);
        let log = std::fs::File::create(self.path("log")).unwrap();
        Killed(agent.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().unwrap())
    }

    /// What an agent says that does not start with this token and key.
    fn refused_agent(&self, key: &str) -> (i32, String) {
        let token = self.token();
        let mut agent = command("fallow-agent");
        agent.args(["run", "--organisation-key", key, "--dir"]).arg(self.path("refused"));
        let output = agent.env("FALLOW_TOKEN", token).stdin(Stdio::null()).output().unwrap();
        (output.status.code().unwrap(), String::from_utf8_lossy(&output.stderr).into_owned())
    }

    fn host(&self) -> Value {
        let (code, said) = self.tool(&["hosts", "--json"]);
        if code != 0 {
            return Value::Null;
        }
        let hosts: Value = serde_json::from_str(&said).unwrap();
        hosts["hosts"][0].clone()
    }

    fn follows(&self, version: u64) {
        wait_for("the host to follow it", PATIENCE, || {
            (self.host()["document_version"] == version).then_some(())
        });
    }

    /// What `fallow-agent status --linked` ends with, and the host's own words.
    fn linked(&self) -> (i32, String) {
        let mut asks = command("fallow-agent");
        let output = asks.args(["status", "--linked", "--dir"]).arg(self.path("agent")).output().unwrap();
        let said = [output.stdout, output.stderr].map(|said| String::from_utf8_lossy(&said).into_owned());
        (output.status.code().unwrap(), said.concat())
    }

    /// Waits until the host refuses documents for this reason, and the newest line of the audit log that
    /// tells of such a thing is about that; the host follows what it did.
    fn refuses(&self, why: &str, follows: u64) {
        let entry = wait_for("the host to refuse them, and a line in the audit log", PATIENCE, || {
            let host = self.host();
            let said = host["document_refusal"].as_str().filter(|said| said.contains(why))?;
            // A coordinator that has just begun anew may not answer yet.
            let (code, told) = self.tool(&["audit", "--action", "document refused", "--json"]);
            let told: Value = (code == 0).then(|| serde_json::from_str(&told).unwrap())?;
            let entry = told["entries"].as_array()?.last()?.clone();
            let version = DocumentVersion(host["document_refused_version"].as_u64()?);
            let is_on_record = entry["reason"] == said && entry["object"] == format!("version {version}");
            assert_eq!(host["document_version"], follows, "{host}");
            (is_on_record && entry["actor"] == host["agent_id"]).then_some(entry)
        });
        println!("refused: {entry}");
        let (code, said) = wait_for("the host to be linked and say so", PATIENCE, || {
            // A coordinator that has just begun anew may not have its link yet.
            Some(self.linked()).filter(|(code, _)| *code != 4)
        });
        assert_eq!(code, 5, "{said}");
        assert!(said.contains("this agent refused version") && said.contains(why), "{said}");
        assert!(said.contains(&format!("it follows version {}", DocumentVersion(follows))), "{said}");
        assert_eq!((&entry["outcome"], &entry["actor_kind"]), (&"refused".into(), &"agent".into()));
        assert!(entry["from"].as_str().unwrap().starts_with("127.0.0.1:"), "{entry}");
    }
}

fn run(dir: &Path) -> Killed {
    let mut run = command("fallow");
    run.args(["coordinator", "run", "--dir"]).arg(dir).stdin(Stdio::null());
    Killed(run.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
}

fn newest(fleet: &Fleet) -> u64 {
    let shown: Value = serde_json::from_str(&fleet.ok(&["organisation", "show", "--json"])).unwrap();
    shown["document_version"].as_u64().unwrap()
}

#[test]
fn r6_10_a_host_follows_what_its_organisation_has_signed_and_nothing_that_the_coordinator_makes_up() {
    let fleet = Fleet::start();
    let key = fleet.new_key("org.key");
    fleet.ok(&["organisation", "set", &key]);
    fleet.ok(&["project", "create", "sieve"]);
    let (code, said) = fleet.refused_agent(&fleet.new_key("mistyped.key"));
    assert!(code == 3 && said.contains("the token was not spent"), "{code}: {said}");
    let _agent = fleet.agent();
    // What waits nobody gets.
    wait_for("the host to be linked", PATIENCE, || (fleet.host()["connected"] == true).then_some(()));
    let shown = fleet.ok(&["organisation", "show"]);
    assert!(shown.contains("Version 1 waits for its signature"), "{shown}");
    assert_eq!(fleet.host()["document_version"], 0);
    let said = fleet.sign("org.key");
    assert!(
        said.contains("projects.sieve.url") && said.contains("Version 1 is signed and goes out."),
        "{said}"
    );
    fleet.follows(1);
    assert_eq!(fleet.linked().0, 0);
    let backup = fleet.path("backup.tar");
    fleet.ok(&["backup", backup.to_str().unwrap()]);

    assert_eq!(fleet.host()["organisation_keys"][0], key.as_str());
    let shown = fleet.ok(&["hosts", "show", fleet.host()["agent_id"].as_str().unwrap()]);
    assert!(shown.contains("signed by") && shown.contains(&key), "{shown}");

    // Several changes, and one signature.
    fleet.ok(&["shares", "set", "sieve=40"]);
    fleet.ok(&["preferences", "set", "--cpu-fraction", "50%"]);
    assert_eq!((&fleet.host()["document_version"], &fleet.host()["document_wanted"]), (&1.into(), &1.into()));
    let drift = fleet.ok(&["hosts", "--drift"]);
    assert!(
        drift.contains("All hosts follow") && drift.contains("version 3 waits until it is signed"),
        "{drift}"
    );
    let (code, said) = fleet.tool(&["rollout", "watch"]);
    assert!(
        code == 3 && said.contains("version 3 waits until it is signed, and nothing goes out"),
        "{code}: {said}"
    );
    let mistyped = fleet.path("mistyped.key");
    let (code, said) = fleet.tool(&["organisation", "sign", "--key", mistyped.to_str().unwrap(), "--yes"]);
    assert!(code == 3 && said.contains(&format!("hosts follow what is signed by {key}")), "{code}: {said}");
    std::fs::write(fleet.path("public"), &key).unwrap();
    let public = fleet.path("public");
    let (code, said) = fleet.tool(&["organisation", "sign", "--key", public.to_str().unwrap(), "--yes"]);
    assert!(code == 3 && said.contains("it is the public part"), "{code}: {said}");
    let said = fleet.sign("org.key");
    assert!(said.contains("projects.sieve.share") && said.contains("preferences.cpu_fraction"), "{said}");
    fleet.follows(3);

    // Somebody who has the coordinator, and not the key: unsigned, and signed by himself.
    fleet.ok(&["organisation", "set", "--none"]);
    fleet.ok(&["shares", "set", "sieve=10"]);
    fleet.refuses("the documents are not signed", 3);
    let other = fleet.new_key("other.key");
    fleet.ok(&["organisation", "set", &other]);
    let (code, said) =
        fleet.tool(&["organisation", "sign", "--key", fleet.path("other.key").to_str().unwrap(), "--yes"]);
    assert_eq!(code, 0, "{said}");
    fleet.refuses("is not by the key", 3);
    // The owner's key again.
    fleet.ok(&["organisation", "set", "--none"]);
    fleet.ok(&["organisation", "set", &key]);
    let known = ["--known-key", other.as_str(), "--good-key", key.as_str()];
    let path = fleet.path("org.key");
    let sign = ["organisation", "sign", "--key", path.to_str().unwrap(), "--yes"];
    fleet.ok(&[&sign[..], &known[..]].concat());
    let newest = newest(&fleet);
    fleet.follows(newest);

    // An older one, as from a coordinator that was put back.
    fleet.ok(&["restore", backup.to_str().unwrap()]);
    fleet.wait();
    fleet.refuses("this host has followed some that were signed at", newest);
    fleet.sign("org.key");
    wait_for("the host to follow the new term", PATIENCE, || {
        (fleet.host()["document_version"].as_u64()? >> 40 == 1).then_some(())
    });
    assert_eq!(fleet.linked().0, 0);
    fleet.ok(&["audit", "--check"]);
}

#[test]
fn r6_5_while_a_version_waits_hosts_with_the_one_before_follow_what_they_are_to_follow() {
    let fleet = Fleet::start();
    let key = fleet.new_key("org.key");
    fleet.ok(&["organisation", "set", &key]);
    fleet.ok(&["project", "create", "sieve"]);
    fleet.sign("org.key");
    let _agent = fleet.agent();
    fleet.follows(1);
    fleet.ok(&["shares", "set", "sieve=40"]);
    assert_eq!(fleet.host()["document_wanted"], 1);
    let said = fleet.ok(&["hosts", "--drift"]);
    assert!(said.contains("All hosts follow what they are to follow."), "{said}");
}

#[test]
fn r6_5_what_was_signed_and_does_harm_is_taken_back_to_what_was_signed_before_it() {
    let fleet = Fleet::start();
    let key = fleet.new_key("org.key");
    fleet.ok(&["organisation", "set", &key]);
    fleet.ok(&["project", "create", "sieve"]);
    fleet.sign("org.key");
    let _agent = fleet.agent();
    fleet.follows(1);
    fleet.ok(&["rollout", "plan", "--waves", "100%", "--soak", "1h"]);
    let said = fleet.ok(&["preferences", "set", "--cpu-fraction", "1%"]);
    assert!(!said.contains("rollout"), "{said}");
    let said = fleet.sign("org.key");
    assert!(said.contains("as rollout 1"), "{said}");
    fleet.follows(2);
    fleet.ok(&["rollout", "abort", "--message", "too little"]);
    fleet.follows(3);
    let preferences: Value = serde_json::from_str(&fleet.ok(&["preferences", "--json"])).unwrap();
    assert_eq!(preferences["preferences"]["cpu_fraction"], 1.0, "as before: {preferences}");
    assert_eq!(newest(&fleet), 3);
    let shown = fleet.ok(&["organisation", "show"]);
    assert!(shown.contains("Version 3 is signed."), "{shown}");

    // An emergency goes to all hosts at once when it is signed.
    let said = fleet.ok(&["preferences", "set", "--suspended", "true", "--emergency"]);
    assert!(said.contains("waits until it is signed"), "{said}");
    let said = fleet.sign("org.key");
    assert!(!said.contains("rollout"), "{said}");
    wait_for("the host to be suspended", PATIENCE, || {
        (fleet.host()["suspended_by"] == "coordinator").then_some(())
    });
}

#[test]
fn r6_5_who_takes_back_to_what_was_never_signed_is_told_that_it_waits() {
    let fleet = Fleet::start();
    fleet.ok(&["project", "create", "sieve"]);
    let _agent = fleet.agent();
    fleet.follows(1);
    let key = fleet.new_key("org.key");
    fleet.ok(&["organisation", "set", &key]);
    fleet.ok(&["rollout", "plan", "--waves", "100%", "--soak", "1h"]);
    fleet.ok(&["preferences", "set", "--cpu-fraction", "1%"]);
    let said = fleet.sign("org.key");
    assert!(said.contains("as rollout 1"), "{said}");
    fleet.follows(2);
    let said = fleet.ok(&["rollout", "abort", "--message", "too little"]);
    assert!(said.contains("version 3 waits until it is signed"), "{said}");
    fleet.sign("org.key");
    fleet.follows(3);
}

/// A program that leaves a mark of its own.
fn program(fleet: &Fleet, name: &str) -> String {
    use std::os::unix::fs::PermissionsExt as _;
    let (path, mark) = (fleet.path(name), fleet.path(&format!("{name}.mark")));
    let script = format!("#!/bin/sh\necho ran >>{}\necho 0 >boinc_finish_called\n", mark.display());
    std::fs::write(&path, script).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path.to_str().unwrap().to_owned()
}

/// Submits a workunit and gives what is shown of its first job when that is over.
fn compute(fleet: &Fleet, name: &str) -> String {
    fleet.ok(&["submit", "sieve", "--app", "sieve", "--name", name, "--flops", "1e9"]);
    wait_for("a job to be over", PATIENCE, || {
        let shown = fleet.ok(&["jobs", "sieve", "--job", &format!("{name}_0")]);
        (shown.contains("success") || shown.contains("error")).then_some(shown)
    })
}

#[test]
fn r6_10_who_has_the_coordinator_can_have_no_host_run_a_program_that_its_organisation_did_not_sign() {
    let mut fleet = Fleet::start();
    let key = fleet.new_key("org.key");
    fleet.ok(&["organisation", "set", &key]);
    let sieve_key = fleet.path("sieve.key").to_str().unwrap().to_owned();
    let fingerprint = fleet.ok(&["project", "new-key", &sieve_key]).trim().to_owned();
    let made = ["project", "create", "sieve", "--code-sign-key"];
    fleet.ok(&[&made[..], &[&format!("{sieve_key}.public")]].concat());
    let shown = fleet.ok(&["project", "show", "sieve"]);
    assert!(shown.contains("kept elsewhere") && shown.contains(&fingerprint), "{shown}");
    let said = fleet.sign("org.key");
    assert!(said.contains("projects.sieve.code_sign_key") && said.contains(&fingerprint), "{said}");

    let good = program(&fleet, "good");
    let add = ["app", "add", "sieve", "sieve", &good, "--version", "1.0"];
    let (code, said) = fleet.tool(&add);
    assert!(
        code != 0 && said.contains("is not kept here") && said.contains("--code-sign-key"),
        "{code}: {said}"
    );
    fleet.ok(&[&add[..], &["--code-sign-key", &sieve_key]].concat());
    let agent = fleet.agent();
    fleet.follows(1);
    let shown = compute(&fleet, "first");
    assert!(fleet.path("good.mark").exists() && shown.contains("success"), "{shown}");

    // Somebody has the coordinator now, and puts a key of his own in its place. The host that was there asks
    // no such server for work; a new one has heard of no key but from its documents.
    drop(agent);
    drop(fleet._coordinator.take());
    let keys = fleet.path("coordinator/projects/sieve/keys");
    let stranger = fleet.path("stranger.key");
    fleet.ok(&["project", "new-key", stranger.to_str().unwrap()]);
    std::fs::copy(&stranger, keys.join("code_sign_private")).unwrap();
    std::fs::copy(fleet.path("stranger.key.public"), keys.join("code_sign_public")).unwrap();
    fleet._coordinator = Some(run(&fleet.path("coordinator")));
    fleet.wait();
    let bad = program(&fleet, "bad");
    fleet.ok(&["app", "add", "sieve", "sieve", &bad, "--version", "2.0"]);
    let _agent = fleet.agent_in("another");
    fleet.ok(&["submit", "sieve", "--app", "sieve", "--name", "second", "--flops", "1e9"]);
    let log = wait_for("the host to hear of the other key", PATIENCE, || {
        let log = std::fs::read_to_string(fleet.path("log")).unwrap();
        log.contains("and the fleet's documents name").then_some(log)
    });
    println!("{log}");
    assert!(log.contains("no job is taken") && !log.contains("got 1 job"), "{log}");
    assert!(!fleet.path("bad.mark").exists(), "a program ran that nobody had signed");
}
