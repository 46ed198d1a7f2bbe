//! Changes that go out in waves over a fleet of real agents without jobs (R6.5): one that is good, one that
//! takes the CPUs away, and one whose project is nowhere.
//!
//! A few agents only; `FALLOW_AGENTS=200 cargo test -p fallow-e2e --test rollout_fleet -- --nocapture` does
//! it with 200, and shows what operators see.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests: failures are panics")]
#![allow(clippy::disallowed_methods, reason = "how many agents comes from outside")]

use std::time::Instant;

use fallow_e2e::{Lab, PATIENCE, wait_for};

fn succeeds(lab: &Lab, arguments: &[&str]) -> String {
    let (code, said) = lab.says(arguments);
    assert_eq!(code, 0, "{arguments:?}: {said}");
    println!("$ fallow {}\n{said}", arguments.join(" "));
    said
}

/// What is told of a rollout until it is over: it is taken back, for this reason.
fn is_taken_back(lab: &Lab, gate: &str) {
    let (code, said) = lab.says(&["rollout", "watch"]);
    println!("$ fallow rollout watch\n{said}");
    assert!(code == 10 && said.contains(&format!("gate {gate}")), "{code}: {said}");
    assert!(!said.contains("wave 2"), "{said}");
}

#[test]
fn r6_5_a_change_reaches_a_fleet_in_waves_and_one_that_makes_hosts_idle_stops_at_the_first() {
    let agents = std::env::var("FALLOW_AGENTS").ok().and_then(|agents| agents.parse().ok()).unwrap_or(12);
    let began = Instant::now();
    let lab = Lab::start(agents);
    println!("{agents} agents have joined in {:.1} s", began.elapsed().as_secs_f64());
    succeeds(&lab, &["rollout", "plan", "--waves", "1,10%", "--soak", "6s"]);

    let said = succeeds(&lab, &["preferences", "set", "--cpu-fraction", "80%"]);
    assert!(said.contains("as rollout 1"), "{said}");
    let said = succeeds(&lab, &["rollout", "watch"]);
    assert!(said.contains("is that of all hosts"), "{said}");
    // Whoever looks late finds it among the steps.
    let first = format!("released to 1 of {agents} hosts");
    assert!(said.contains(&first) || said.contains("wave 1 of 3 (1) is released"), "{said}");

    succeeds(&lab, &["preferences", "set", "--cpu-fraction", "1%"]);
    is_taken_back(&lab, "offered");

    let file = lab.place().join("ghosts.toml");
    let ghosts = "name = \"ghosts\"\nprecedence = 10\nselector = \"\"\n[projects.ghost]\nshare = 1000\n\
        url = \"http://127.0.0.1:9/ghost/\"\naccount_key = \"0123456789abcdef0123456789abcdef\"\n";
    std::fs::write(&file, ghosts).unwrap();
    succeeds(&lab, &["apply", "-f", file.to_str().unwrap()]);
    is_taken_back(&lab, "cut-off");

    let newest = lab.json(&["hosts"])["document_version"].as_u64().unwrap();
    wait_for("all agents to follow the newest version", PATIENCE, || lab.all_follow(newest).then_some(()));
    assert!(lab.json(&["groups"])["groups"].as_array().unwrap().is_empty());
    let said = succeeds(&lab, &["audit", "--limit", "40"]);
    assert_eq!(said.matches("rollout taken back").count(), 2, "{said}");
    succeeds(&lab, &["audit", "--check"]);
}
