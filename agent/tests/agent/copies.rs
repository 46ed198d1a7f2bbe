//! An agent that is a copy of another one: it becomes a host of its own, by itself (R6.10).

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use fallow_agent::dir::DataDir;
use fallow_agent::fleet::identity::{self, Identity};
use fallow_agent::records::Records;
use fallow_proto::fleet::v1::{Probe, from_coordinator};

use crate::attach::RIGHT;
use crate::link::{Agent, Coordinator, GOOD, document, host, token};
use crate::support::{agent, is_alive, put};

/// Runs a command of the agent's owner.
fn owner(dir: &DataDir, arguments: &[&str]) {
    let mut command = Command::new(agent());
    command.args(arguments).arg("--dir").arg(dir.path()).env("FALLOW_ACCOUNT_KEY", RIGHT);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

#[tokio::test(flavor = "multi_thread")]
async fn r6_10_an_agent_answers_at_once_who_asks_whether_it_is_there() {
    let (dir, coordinator) = (tempfile::tempdir().unwrap(), Coordinator::default());
    let (address, _serving) = coordinator.serve(None).await;
    let _process = Agent::start(dir.path(), &token(&coordinator, address, GOOD));
    coordinator.until("the snapshot", host).await;
    for number in [7, 8] {
        coordinator.send(from_coordinator::Body::Probe(Probe { number }), "").await;
        coordinator
            .until("the answer", |held| held.probe_answers.last().filter(|last| **last == number).map(drop))
            .await;
    }
    let held = coordinator.0.lock().unwrap();
    let hello = &held.hellos[0];
    assert_eq!(hello.boot.len(), 16);
    assert!([0, 32].contains(&hello.machine.len()));
}

#[tokio::test(flavor = "multi_thread")]
async fn r6_10_a_copy_starts_anew_in_its_process_as_another_host_that_keeps_its_owners_word_and_nothing_else()
{
    let (dir, coordinator) = (tempfile::tempdir().unwrap(), Coordinator::default());
    let (address, _serving) = coordinator.serve(None).await;
    let process = Agent::start(dir.path(), &token(&coordinator, address, GOOD));
    let dir = DataDir::at(dir.path());
    coordinator.until("the snapshot", host).await;
    coordinator.send(document(1, 75.0), "").await;
    let has = |url: &'static str| {
        move |held: &crate::link::Held| held.entries.contains_key(&format!("project/{url}")).then_some(())
    };
    let (fleets, own) = ("http://127.0.0.1:9/p/", "http://127.0.0.1:9/own/");
    coordinator.until("the fleet's project", has(fleets)).await;
    owner(&dir, &["suspend"]);
    owner(&dir, &["exclude", "nvidia:3"]);
    owner(&dir, &["attach", own, "--no-wait", "--share", "33"]);
    coordinator.until("the owner's project", has(own)).await;
    let own_key = identity::key(&dir).unwrap().fingerprint();
    put(&dir.slots().join("0/half-done"), b"x");
    put(&dir.projects().join("127.0.0.1_9_own/a-file"), b"x");

    // Another process has this identity by now.
    coordinator.is_copied();
    let snapshots = coordinator.0.lock().unwrap().snapshots;
    let state = coordinator
        .until("what the new host says", |held| host(held).filter(|_| held.snapshots > snapshots))
        .await;
    assert_eq!(state.document_version, 0, "it is sent the document that is for it");
    let limits = state.owner.unwrap();
    assert!(limits.suspended && limits.excluded_devices == ["nvidia:3"], "{limits:?}");
    assert!(is_alive(process.0.id()), "in the same process");
    let identity = Identity::read(&dir.identity()).unwrap().unwrap();
    assert_eq!(identity.agent_id().0, "agent-2");
    let key = identity::key(&dir).unwrap().fingerprint();
    assert!(identity.says.key == key && key != own_key);
    assert!(!dir.separation().exists() && !dir.separation_key().exists());
    assert!(!dir.slots().join("0").exists() && !dir.projects().join("127.0.0.1_9_own/a-file").exists());
    {
        let held = coordinator.0.lock().unwrap();
        assert_eq!(held.separated, [key]);
        let [first, .., new] = &held.hellos[..] else { panic!("{} Hellos", held.hellos.len()) };
        assert_eq!((new.agent_id.as_str(), new.document_version), ("agent-2", 0));
        assert!(first.epoch != new.epoch && first.boot != new.boot);
        assert!(held.entries.contains_key(&format!("project/{own}")), "{:?}", held.entries.keys());
        assert!(!held.entries.contains_key(&format!("project/{fleets}")));
    }
    // The fleet's projects come with the document for it.
    coordinator.send(document(1, 75.0), "").await;
    coordinator.until("the fleet's project again", has(fleets)).await;
}

fn copy(from: &Path, to: &Path) {
    assert!(Command::new("cp").arg("-a").args([from, to]).status().unwrap().success());
}

#[tokio::test(flavor = "multi_thread")]
async fn r6_10_a_copy_that_is_killed_at_any_moment_is_who_it_was_or_a_host_with_nothing_of_the_first_ones() {
    let (place, coordinator) = (tempfile::tempdir().unwrap(), Coordinator::default());
    let (address, _serving) = coordinator.serve(None).await;
    let first = place.path().join("first");
    let process = Agent::start(&first, &token(&coordinator, address, GOOD));
    coordinator.until("the snapshot", host).await;
    coordinator.send(document(1, 75.0), "").await;
    let fleets = "project/http://127.0.0.1:9/p/";
    coordinator.until("the fleet's project", |held| held.entries.get(fleets).map(drop)).await;
    owner(&DataDir::at(&first), &["stop"]);
    drop(process);
    put(&first.join("slots/0/half-done"), b"x");
    coordinator.is_copied();

    let mut became = [0, 0];
    for step in 0..40 {
        let dir = place.path().join(format!("copy-{step}"));
        copy(&first, &dir);
        let dir = DataDir::at(&dir);
        let process = Agent::start(dir.path(), "");
        tokio::time::sleep(Duration::from_millis(10 * step)).await;
        drop(process);
        let identity = Identity::read(&dir.identity()).unwrap().unwrap();
        let is_new = identity.agent_id().0 == "agent-2";
        became[usize::from(is_new)] += 1;
        let records = Records::open(&dir).unwrap();
        let keys: Vec<_> = records.client().unwrap().into_iter().map(|(key, _)| key).collect();
        let has_project = keys.iter().any(|key| key.starts_with(b"project/"));
        if is_new {
            assert!(!has_project && !dir.slots().join("0").exists(), "killed after {step} steps: {keys:?}");
        } else if !dir.separation().exists() {
            assert!(has_project, "killed after {step} steps: {keys:?}");
        }
    }
    println!("killed as the copy: {}, as the new host: {}", became[0], became[1]);

    // One that was killed when it had just decided goes on to the end.
    let dir = DataDir::at(&place.path().join("last"));
    copy(&first, dir.path());
    let process = Agent::start(dir.path(), "");
    crate::support::wait_for("the decision", || {
        let is_new = || {
            Identity::read(&dir.identity()).ok().flatten().is_some_and(|read| read.agent_id().0 == "agent-2")
        };
        (dir.separation().exists() || is_new()).then_some(())
    });
    drop(process);
    let snapshots = coordinator.0.lock().unwrap().snapshots;
    let _process = Agent::start(dir.path(), "");
    coordinator
        .until("what the new host says", |held| host(held).filter(|_| held.snapshots > snapshots))
        .await;
    assert!(!coordinator.0.lock().unwrap().entries.contains_key(fleets));
    assert!(!dir.separation().exists() && !dir.slots().join("0").exists());
}
