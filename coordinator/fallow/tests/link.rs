//! A coordinator as a process: agents and operators' tools at its ports, and what is left when it is killed.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests: failures are panics")]

#[path = "../../service/tests/peers/mod.rs"]
mod peers;
#[path = "link/ports.rs"]
mod ports;
mod support;
#[path = "link/threads.rs"]
mod threads;

use std::time::Duration;

use fallow_coordinator::operator::TokenFile;
use fallow_proto::fleet::v1 as wire;
use peers::{Agent, PATIENCE, connect, enroll, hello, host, seen, tokens};
use tokio::time::timeout;
use wire::from_agent::Body as Said;

#[tokio::test]
async fn r6_3_a_coordinator_that_was_killed_still_knows_roughly_when_an_agent_was_seen() {
    // Where this process stands still for some heartbeats, the link is cut and shows nothing: it is tried
    // with longer ones.
    for heartbeat in [500, 2_000, 8_000] {
        if is_known_after_a_kill(heartbeat).await {
            return;
        }
    }
    panic!("each of the links was cut");
}

/// Looks at one coordinator with heartbeats of so many milliseconds. False if the link did not last.
async fn is_known_after_a_kill(heartbeat: i64) -> bool {
    let dir = tempfile::tempdir().unwrap();
    let place = dir.path().join("coordinator");
    let run = || {
        let mut command = support::command();
        command.args(["coordinator", "run", "--heartbeat", &format!("{heartbeat}ms"), "--dir"]).arg(&place);
        support::Running::of(command, dir.path())
    };
    let access = || TokenFile::read(&place.join("operator.token")).unwrap();
    let operator = async || connect(&access()).await.unwrap();
    let mut running = run();
    let mut tools = operator().await;
    let token = tokens(&mut tools, 1).await.remove(0);
    let identity = enroll(&access(), &token).await.unwrap();
    let mut agent = Agent::open(&identity, hello(&identity, "e", 0)).await;
    agent.snapshot(1, vec![host()]).await;
    agent.acknowledged(1).await;
    let at_snapshot = seen(&mut tools).await;
    // Several times as long as it takes to be kept, heartbeats are all that comes.
    let later = async {
        while seen(&mut tools).await < at_snapshot + 16_000 * heartbeat {
            if agent.to.is_closed() {
                return false;
            }
            agent.say(Said::Heartbeat(wire::Heartbeat { sent_at_micros: 1 })).await;
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        true
    };
    if !timeout(PATIENCE * 2, later).await.unwrap() {
        return false;
    }
    running.kill();
    let mut running = run();
    let kept = seen(&mut operator().await).await;
    assert!(kept > at_snapshot + 2_000 * heartbeat, "{kept}, at the snapshot {at_snapshot}");
    assert_eq!(running.stop(), Some(0));
    true
}
