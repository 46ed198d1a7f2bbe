//! A coordinator that is killed at random moments of rollouts, over real agents (R6.5): nobody has a version
//! that was not released to him, nothing acknowledged is lost, and each rollout ends.
//!
//! A few times only; `FALLOW_KILLS=200 cargo test -p fallow-e2e --test rollout_kills -- --nocapture` does it
//! 200 times in some twenty minutes, and says what happened.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "tests: failures are panics")]
#![allow(clippy::disallowed_methods, reason = "the moments are random, and how many comes from outside")]

use std::time::Duration;

use fallow_e2e::{Lab, PATIENCE, command, wait_for};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use serde_json::Value;

const AGENTS: usize = 4;

/// What holds whenever one looks: hosts were looked at before the rollout, which only goes on.
fn check(lab: &Lab) -> Value {
    let (hosts, rollout) = (lab.hosts(), lab.json(&["rollout"])["rollout"].clone());
    if rollout.is_null() {
        return rollout;
    }
    let is_open = !["completed", "taken_back"].contains(&rollout["phase"].as_str().unwrap());
    let have_it = hosts.iter().filter(|host| host["document_version"] == rollout["version"]).count() as u64;
    let released = rollout["released_hosts"].as_u64().unwrap();
    assert!(!is_open || have_it <= released, "{have_it} have it, released to {released}: {rollout}");
    rollout
}

#[test]
fn r6_5_a_coordinator_that_is_killed_again_and_again_releases_nothing_too_early_and_loses_nothing() {
    let kills = std::env::var("FALLOW_KILLS").ok().and_then(|kills| kills.parse().ok()).unwrap_or(5);
    let mut rng = StdRng::seed_from_u64(7);
    let mut lab = Lab::start(AGENTS);
    lab.json(&["rollout", "plan", "--waves", "1,50%", "--soak", "5s"]);
    // The newest that a command was told is made, and what became of those before.
    let (mut acknowledged, mut ended) = (1, [0, 0]);
    for kill in 0..kills {
        let rollout = check(&lab);
        let is_open =
            rollout["phase"].as_str().is_some_and(|phase| !["completed", "taken_back"].contains(&phase));
        if rollout["phase"] == "paused" {
            // Hosts may be off for longer than a wave: their agents wait longer after each kill.
            let _ = lab.asked(&["rollout", "resume"]);
        }
        if !is_open {
            if rollout["version"].as_u64() == Some(acknowledged) {
                ended[usize::from(rollout["phase"] == "taken_back")] += 1;
            }
            // One in three takes the CPUs away.
            let part = if rng.random_range(0..3) == 0 { 1 } else { rng.random_range(60..100) };
            let set = ["preferences", "set", "--cpu-fraction", &format!("{part}%")];
            let made = lab.asked(&set);
            acknowledged = made.and_then(|made| made["document_version"].as_u64()).unwrap_or(acknowledged);
        }
        std::thread::sleep(Duration::from_millis(rng.random_range(0..9_000)));
        lab.kill_coordinator();
        lab.start_coordinator();
        let newest = lab.json(&["hosts"])["document_version"].as_u64().unwrap();
        assert!(
            newest >= acknowledged,
            "version {acknowledged} was acknowledged, and {newest} is the newest"
        );
        println!("{kill}: version {newest}, {}", check(&lab)["stands"]);
    }
    let phase = wait_for("the rollout to end", 3 * PATIENCE, || {
        let phase = check(&lab)["phase"].as_str().unwrap_or("completed").to_owned();
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
