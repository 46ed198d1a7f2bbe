//! A coordinator that is killed at random moments of rollouts, over real agents (R6.5): nobody has a version
//! that was not released to him, nothing acknowledged is lost, and each rollout ends.
//!
//! A few times only; `FALLOW_KILLS=200 cargo test -p fallow-e2e --test rollout_kills -- --nocapture` does it
//! 200 times in some twenty minutes, and says what happened.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "tests: failures are panics")]
#![allow(clippy::disallowed_methods, reason = "the moments are random, and how many comes from outside")]

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use fallow_e2e::{Lab, PATIENCE, command, wait_for};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use serde_json::Value;

const AGENTS: usize = 4;

/// What was seen so far of the hosts that have a version.
#[derive(Default)]
struct Seen(BTreeMap<u64, BTreeSet<String>>);

impl Seen {
    /// What holds whenever one looks: the version was released to each host that ever had it. Hosts are
    /// looked at before the rollout, which only goes on.
    fn check(&mut self, lab: &Lab) -> Value {
        // By the agents' own word, and by what the coordinator heard.
        let of_agent = |agent: usize| {
            let mut asks = command("fallow-agent");
            asks.args(["status", "--json", "--dir"]).arg(lab.agent_place(agent));
            let said: Value = serde_json::from_slice(&asks.output().unwrap().stdout).unwrap();
            let id = said["fleet"]["agent_id"].as_str().unwrap().to_owned();
            (id, said["host"]["document_version"].as_u64().unwrap())
        };
        let mut follow: Vec<(String, u64)> = (1..=AGENTS).map(of_agent).collect();
        follow.extend(lab.hosts().iter().map(|host| {
            let id = host["agent_id"].as_str().unwrap().to_owned();
            (id, host["document_version"].as_u64().unwrap())
        }));
        // What they are to have is asked for after that, and then whether the rollout is still under way: as
        // long as it is, nothing that was released is taken back.
        let wanted: BTreeMap<String, u64> = lab
            .hosts()
            .iter()
            .map(|host| {
                let id = host["agent_id"].as_str().unwrap().to_owned();
                (id, host["document_wanted"].as_u64().unwrap())
            })
            .collect();
        let rollout = lab.json(&["rollout"])["rollout"].clone();
        if rollout.is_null() {
            return rollout;
        }
        let version = rollout["version"].as_u64().unwrap();
        let ids = follow.into_iter().filter(|(_, follows)| *follows == version).map(|(id, _)| id);
        let seen = self.0.entry(version).or_default();
        seen.extend(ids);
        if is_open(&rollout) {
            for id in seen.iter() {
                assert_eq!(wanted[id], version, "{id} had it, and it was not released to it: {rollout}");
            }
            let released = rollout["released_hosts"].as_u64().unwrap();
            assert!(seen.len() as u64 <= released, "{seen:?} had it: {rollout}");
        }
        rollout
    }
}

fn is_open(rollout: &Value) -> bool {
    rollout["phase"].as_str().is_some_and(|phase| !["completed", "taken_back"].contains(&phase))
}

/// What is left of a command while whose coordinator is killed: the version that it made, if it was told.
fn set(lab: &Lab, part: u32) -> Option<u64> {
    let made = lab.asked(&["preferences", "set", "--cpu-fraction", &format!("{part}%")])?;
    made["document_version"].as_u64()
}

#[test]
fn r6_5_a_coordinator_that_is_killed_again_and_again_releases_nothing_too_early_and_loses_nothing() {
    let kills = std::env::var("FALLOW_KILLS").ok().and_then(|kills| kills.parse().ok()).unwrap_or(6);
    let mut rng = StdRng::seed_from_u64(7);
    let mut lab = Lab::start(AGENTS);
    lab.json(&["rollout", "plan", "--waves", "1,50%", "--soak", "5s"]);
    let mut seen = Seen::default();
    // The newest version that a command was told is made, with what it says, and how many ended in which way.
    let (mut acknowledged, mut ended) = ((1, 100), [0, 0]);
    for kill in 0..kills {
        let rollout = seen.check(&lab);
        if rollout["phase"] == "paused" {
            // Hosts may be off for longer than a wave: their agents wait longer after each kill.
            let _ = lab.asked(&["rollout", "resume"]);
        }
        let pause = Duration::from_millis(rng.random_range(0..9_000));
        if is_open(&rollout) {
            std::thread::sleep(pause);
            lab.kill_coordinator();
        } else {
            if rollout["version"].as_u64() == Some(acknowledged.0) {
                let is_taken_back = rollout["phase"] == "taken_back";
                ended[usize::from(is_taken_back)] += 1;
                assert_eq!(is_taken_back, acknowledged.1 == 1, "one that takes the CPUs away: {rollout}");
            }
            // One in three takes the CPUs away.
            let part = if rng.random_range(0..3) == 0 { 1 } else { rng.random_range(60..100) };
            // Now and then it is killed while it is told.
            let is_cut = rng.random_bool(0.3);
            let made = match is_cut {
                false => {
                    let made = set(&lab, part);
                    std::thread::sleep(pause);
                    lab.kill_coordinator();
                    made
                }
                true => {
                    let coordinator = lab.take_coordinator();
                    std::thread::scope(|both| {
                        let made = both.spawn(|| set(&lab, part));
                        std::thread::sleep(pause / 30);
                        drop(coordinator);
                        made.join().unwrap()
                    })
                }
            };
            if let Some(made) = made {
                acknowledged = (made, part);
            }
        }
        lab.start_coordinator();
        let newest = lab.json(&["hosts"])["document_version"].as_u64().unwrap();
        let (known, said) = acknowledged;
        assert!(newest >= known, "version {known} was acknowledged, and {newest} is the newest");
        if newest == known {
            let holds = lab.json(&["preferences"])["preferences"]["cpu_fraction"].as_f64().unwrap();
            assert!(
                (holds * 100.0 - f64::from(said)).abs() < 0.5,
                "version {known} says {said}%, not {holds}"
            );
        }
        println!("{kill}: version {newest}, {}", seen.check(&lab)["stands"]);
    }
    let phase = wait_for("the rollout to end", 3 * PATIENCE, || {
        let phase = seen.check(&lab)["phase"].as_str().unwrap_or("completed").to_owned();
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
