//! A change that waits for a second person, and the orders that a rollout takes, as two operators give them
//! against a running coordinator with agents at its port (R6.5, R6.10).
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests: failures are panics")]

#[path = "../../service/tests/peers/mod.rs"]
mod peers;
mod support;

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Output;

use fallow_proto::fleet::v1 as wire;
use fallow_tls::{AccessString, Purpose};
use peers::{Agent, enroll, hello};
use serde_json::Value;
use support::{Running, done, fallow, json, text, wait_for};
use wire::from_coordinator::Body as Heard;

const TEST_ROOM: &str = "name = \"test-room\"\nprecedence = 20\nselector = \"room=12\"\n\n[preferences]\n\
    buffer_min = \"2 h\"\n";

/// Somebody with a token of his own, far from the coordinator's directory.
struct Person {
    elsewhere: tempfile::TempDir,
    token: PathBuf,
}

impl Person {
    fn new(dir: &Path, name: &str, role: &str) -> Self {
        let elsewhere = tempfile::tempdir().unwrap();
        let token = elsewhere.path().join("operator.token");
        std::fs::write(&token, done(dir, &["operators", "create", name, "--role", role])).unwrap();
        // Else each command warns of it.
        std::fs::set_permissions(&token, std::fs::Permissions::from_mode(0o600)).unwrap();
        Self { elsewhere, token }
    }

    fn says(&self, arguments: &[&str]) -> Output {
        let token = ["--operator-token-file", self.token.to_str().unwrap()];
        fallow(self.elsewhere.path(), &[arguments, &token].concat())
    }

    /// Something that works, and all that it printed.
    fn does(&self, arguments: &[&str]) -> String {
        let output = self.says(arguments);
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", text(&output));
        text(&output)
    }

    fn json(&self, arguments: &[&str]) -> Value {
        let output = self.says(&[arguments, &["--json"]].concat());
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", text(&output));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    fn refused(&self, arguments: &[&str], status: i32, said: &str) {
        let output = self.says(arguments);
        assert_eq!(output.status.code(), Some(status), "{arguments:?}: {}", text(&output));
        assert!(text(&output).contains(said), "{arguments:?}: {}", text(&output));
    }
}

/// A host that takes each document that it is sent, as long as this is kept.
struct Follower(tokio::task::JoinHandle<()>);

impl Drop for Follower {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn follower(dir: &Path, name: &str, labels: &[&str]) -> Follower {
    let token = done(dir, &[&["tokens", "create"], labels].concat());
    let access = AccessString::parse(&token, Purpose::Enrolment).unwrap();
    let identity = enroll(&access, &access.secret).await.unwrap();
    let mut agent = Agent::open(&identity, hello(&identity, "e", 0)).await;
    let mut state = wire::HostState {
        hostname: name.into(),
        name: name.into(),
        cpus: 8,
        usable_cpus: 8,
        idle_cpus: 8,
        ..Default::default()
    };
    let entry = |state: &wire::HostState| wire::Entry {
        key: "host".into(),
        value: Some(wire::entry::Value::Host(Box::new(state.clone()))),
    };
    agent.snapshot(1, vec![entry(&state)]).await;
    Follower(tokio::spawn(async move {
        let mut sequence = 1;
        while let Ok(heard) = agent.next().await {
            let Heard::Document(document) = heard else { continue };
            state.document_version = document.version;
            sequence += 1;
            agent.delta(sequence, vec![entry(&state)], &[]).await;
        }
    }))
}

/// The hosts that have a version of the documents.
fn having(dir: &Path, version: u64) -> Vec<String> {
    let hosts = json(dir, &["hosts"])["hosts"].as_array().unwrap().clone();
    let having = hosts.iter().filter(|host| host["document_version"] == version);
    let mut names: Vec<String> = having.map(|host| host["name"].as_str().unwrap().to_owned()).collect();
    names.sort();
    names
}

/// Waits until these hosts have the version, and no other.
fn until_have(dir: &Path, version: u64, names: &[&str]) {
    wait_for(&format!("{names:?} to have version {version}"), || {
        (having(dir, version) == names).then_some(())
    });
}

/// A coordinator with a project and a group, three hosts, of which one is in the group, and a plan.
async fn lab(dir: &Path) -> (Running, Vec<Follower>) {
    let running = Running::start(dir);
    done(dir, &["project", "create", "sums"]);
    let group = dir.join("test-room.toml");
    std::fs::write(&group, TEST_ROOM).unwrap();
    done(dir, &["apply", "-f", group.to_str().unwrap()]);
    let hosts = vec![
        follower(dir, "pc-1", &[]).await,
        follower(dir, "pc-2", &["--label", "room=12"]).await,
        follower(dir, "pc-3", &[]).await,
    ];
    until_have(dir, 2, &["pc-1", "pc-2", "pc-3"]);
    let plan = ["rollout", "plan", "--waves", "test-room,100%", "--soak", "30d", "--approval-over", "0"];
    let said = done(dir, &[&plan[..], &["--message", "four eyes"]].concat());
    let expected = "Changes go out in waves of test-room,100%, each watched for 30 days; one for more than 0 hosts waits for a second person.\n";
    assert_eq!(said, expected);
    (running, hosts)
}

#[tokio::test(flavor = "multi_thread")]
async fn r6_5_a_change_waits_for_a_second_person_and_its_rollout_takes_each_order_of_him() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let (mut running, hosts) = lab(dir).await;
    let (ann, bob) = (Person::new(dir, "ann", "operator"), Person::new(dir, "bob", "operator"));
    let plan = bob.json(&["rollout", "plan"]);
    assert_eq!((&plan["waves"], &plan["approval_over"]), (&"test-room,100%".into(), &0.into()));
    ann.refused(&["rollout", "plan", "--at-once"], 5, "needs the role administrator");

    let changed = ann.does(&["preferences", "set", "--cpu-fraction", "75%", "--message", "exams"]);
    let waits =
        "no host gets it yet: rollout 1 waits until somebody else approves it with `fallow rollout approve`";
    assert!(changed.contains(waits), "{changed}");
    let approve = ["rollout", "approve", "--message", "I looked twice"];
    ann.refused(&approve, 5, "ann began rollout 1: somebody else has to approve it");
    ann.refused(&["rollout", "promote"], 3, "waits until a second person approves it");
    let waiting = ann.json(&["rollout"])["rollout"].clone();
    assert_eq!((&waiting["phase"], &waiting["begun_by"]), (&"waiting".into(), &"ann".into()));
    assert_eq!((&waiting["released_waves"], &waiting["changes_hosts"]), (&0.into(), &3.into()));
    assert_eq!(having(dir, 3), [""; 0], "a host has what nobody approved");

    // The group is the first wave, and the rest waits.
    let begun = bob.json(&["rollout", "approve", "--rollout", "1", "--message", "looks right"]);
    assert_eq!((&begun["number"], &begun["phase"]), (&1.into(), &"watching".into()));
    until_have(dir, 3, &["pc-2"]);
    bob.refused(&["rollout", "approve"], 3, "is at wave 1 of 2");

    let paused = bob.does(&["rollout", "pause", "--message", "lunch"]);
    assert!(paused.contains("Rollout 1 of version 3, after 2, begun by ann at "), "{paused}");
    assert!(paused.contains("is paused at wave 1 of 2"), "{paused}");
    assert!(paused.contains("bob pauses it (lunch)"), "{paused}");
    bob.refused(&["rollout", "pause"], 3, "rollout 1 cannot be told to pause: it is paused");
    assert_eq!(ann.json(&["rollout"])["rollout"]["phase"], "paused");
    let resumed = ann.json(&["rollout", "resume", "--message", "back"]);
    assert_eq!((&resumed["phase"], &resumed["released_waves"]), (&"watching".into(), &1.into()));
    assert_eq!(bob.json(&["rollout", "pause"])["phase"], "paused");
    assert!(bob.does(&["rollout", "resume"]).contains("is at wave 1 of 2"));
    assert_eq!(having(dir, 3), ["pc-2"], "who looks on gets no wave");

    bob.refused(&["rollout", "promote", "--wave", "1"], 3, "is at wave 1 of 2");
    let promoted = bob.does(&["rollout", "promote", "--wave", "2", "--message", "Friday"]);
    assert!(promoted.contains("is at wave 2 of 2"), "{promoted}");
    until_have(dir, 3, &["pc-1", "pc-2", "pc-3"]);
    let listed = ann.does(&["rollout", "list"]);
    let words: Vec<&str> = listed.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!(
        (listed.lines().count(), &words[..2], &words[3..]),
        (2, &["1", "3"][..], &["ann", "watching"][..])
    );
    let completed = bob.json(&["rollout", "promote"]);
    assert_eq!((&completed["phase"], &completed["version"]), (&"completed".into(), &3.into()));
    let listed = bob.json(&["rollout", "list"]);
    assert_eq!((&listed["rollouts"][0], listed["rollouts"].as_array().unwrap().len()), (&completed, 1));

    // What is so already goes out by no rollout, and neither does what is only tried.
    let again = ann.does(&["preferences", "set", "--cpu-fraction", "75%"]);
    assert!(again.contains("nothing was changed") && !again.contains("rollout"), "{again}");
    let group = dir.join("test-room.toml");
    let again = ann.does(&["apply", "-f", group.to_str().unwrap()]);
    assert!(again.contains("nothing was changed") && !again.contains("rollout"), "{again}");
    let changed = ann.does(&["shares", "set", "sums=2"]);
    assert!(changed.contains("rollout 2 waits"), "{changed}");
    bob.json(&["rollout", "approve"]);
    let tried = ann.does(&["apply", "-f", group.to_str().unwrap(), "--dry-run"]);
    assert!(tried.contains("nothing was changed") && !tried.contains("goes out"), "{tried}");
    bob.json(&["rollout", "abort"]);

    let entries = json(dir, &["audit", "--action", "rollout", "--limit", "60"])["entries"].clone();
    let entries = entries.as_array().unwrap();
    let said =
        |entry: &Value| ["actor", "outcome", "message"].map(|key| entry[key].as_str().unwrap().to_owned());
    let orders: Vec<[String; 3]> = entries.iter().map(said).collect();
    for expected in [
        ["ann", "refused", "I looked twice"],
        ["ann", "refused", ""],
        ["bob", "done", "looks right"],
        ["bob", "done", "lunch"],
        ["ann", "done", "back"],
        ["bob", "done", ""],
        ["bob", "refused", ""],
        ["bob", "done", "Friday"],
    ] {
        assert!(orders.iter().any(|order| order == &expected), "{expected:?} is not in {entries:#?}");
    }
    let approved = entries.iter().find(|entry| entry["message"] == "looks right").unwrap();
    assert!(approved["object"].as_str().unwrap().contains("bob approves it"), "{approved}");
    let table = done(dir, &["audit", "--wide", "--limit", "60"]);
    for words in [
        "rollout planned",
        "bob approves it",
        "bob pauses it",
        "ann resumes it",
        "bob releases the next wave",
    ] {
        assert!(table.contains(words), "{words} is not in\n{table}");
    }
    drop(hosts);
    assert_eq!(running.stop(), Some(0));
}
