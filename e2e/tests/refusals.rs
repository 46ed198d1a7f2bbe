//! A real agent that is refused when it wants to enrol: its owner hears why and gets an exit code, and the
//! operator of the coordinator finds it in the audit log (R6.10).
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "tests: failures are panics"
)]

use std::process::Stdio;

use fallow_e2e::{Killed, Lab, PATIENCE, command, fallow_json, wait_for};
use serde_json::Value;

/// How an agent ends that is started with this token in an empty directory, and what it says.
fn enrol(lab: &Lab, name: &str, token: &str) -> (i32, String) {
    let place = lab.place().with_file_name(name);
    let mut agent = command("fallow-agent");
    agent.args(["run", "--dir"]).arg(&place).env("FALLOW_TOKEN", token.trim());
    let output = agent.stdin(Stdio::null()).output().unwrap();
    assert!(!place.join("identity.json").exists(), "{name}: it has an identity");
    let said = [output.stdout, output.stderr].map(|said| String::from_utf8_lossy(&said).into_owned());
    (output.status.code().unwrap(), said.concat())
}

/// What the audit log has of this.
fn recorded(lab: &Lab, action: &str) -> Vec<Value> {
    lab.json(&["audit", "--action", action])["entries"].as_array().unwrap().clone()
}

fn token(lab: &Lab, options: &[&str]) -> String {
    let made = lab.json(&[&["tokens", "create"], options].concat());
    made["tokens"][0].as_str().unwrap().to_owned()
}

#[test]
fn r6_10_an_agent_with_a_spent_expired_or_revoked_token_ends_with_status_5_and_says_why() {
    let lab = Lab::start(1);
    // The only agent enrolled with it.
    let spent = std::fs::read_to_string(lab.place().with_file_name("token")).unwrap();
    let revoked = token(&lab, &[]);
    let listed = lab.json(&["tokens", "list"]);
    let unused = listed["tokens"].as_array().unwrap().iter().find(|token| token["used"] == 0).unwrap();
    let (code, said) = lab.says(&["tokens", "revoke", unused["id"].as_str().unwrap()]);
    assert_eq!(code, 0, "{said}");
    // That it has expired is known when the operator is told so.
    let expired = token(&lab, &["--expires", "1s"]);
    wait_for("the token to expire", PATIENCE, || {
        let listed = lab.json(&["tokens", "list"]);
        listed["tokens"].as_array()?.iter().any(|token| token["state"] == "expired").then_some(())
    });
    for (number, (name, token, why)) in [
        ("spent", &spent, "this enrolment token was used before, 1 of 1 times"),
        ("expired", &expired, "this enrolment token has expired"),
        ("revoked", &revoked, "this enrolment token was revoked"),
    ]
    .into_iter()
    .enumerate()
    {
        let (code, said) = enrol(&lab, name, token);
        println!("{name}: {code}: {said}");
        assert!(code == 5 && said.contains(why), "{name}: {code}: {said}");
        assert!(said.contains("make another with `fallow tokens create`"), "{name}: {said}");
        let entries = wait_for("the line in the audit log", PATIENCE, || {
            Some(recorded(&lab, "enrolment refused")).filter(|entries| entries.len() > number)
        });
        assert_eq!(entries.len(), number + 1, "{entries:?}");
        let entry = &entries[number];
        assert!(entry["reason"].as_str().unwrap().contains(why), "{entry}");
        assert_eq!((&entry["outcome"], &entry["actor_kind"]), (&"refused".into(), &"stranger".into()));
        assert!(entry["from"].as_str().unwrap().starts_with("127.0.0.1:"), "{entry}");
    }
    assert_eq!(lab.hosts().len(), 1);
}

/// What `fallow-agent status --linked` ends with and says.
fn linked(lab: &Lab, agent: usize) -> (i32, String) {
    let mut asks = command("fallow-agent");
    let output = asks.args(["status", "--linked", "--dir"]).arg(lab.agent_place(agent)).output().unwrap();
    (output.status.code().unwrap(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn r6_10_a_host_whose_certificate_is_refused_says_so_with_status_5_and_one_without_a_coordinator_with_4() {
    let mut lab = Lab::start(2);
    for agent in [1, 2] {
        assert_eq!(linked(&lab, agent), (0, String::new()));
    }
    let revoked = lab.hosts()[0]["agent_id"].as_str().unwrap().to_owned();
    lab.json(&["hosts", "revoke", &revoked, "--message", "stolen"]);
    let of_agent = |agent: usize| {
        let status =
            command("fallow-agent").args(["status", "--json", "--dir"]).arg(lab.agent_place(agent)).output();
        let status: Value = serde_json::from_slice(&status.unwrap().stdout).unwrap();
        status["fleet"]["agent_id"].as_str().unwrap().to_owned()
    };
    let (refused, other) = if of_agent(1) == revoked { (1, 2) } else { (2, 1) };
    // First it only sees that its link ends, and hears why when it asks for another.
    let said = wait_for("the host to hear of it", PATIENCE, || {
        let (code, said) = linked(&lab, refused);
        (code == 5).then_some(said)
    });
    println!("5: {said}");
    assert!(said.contains("taken out of the fleet by an operator (stolen)"), "{said}");
    assert_eq!(linked(&lab, other).0, 0);
    let entries = wait_for("the line in the audit log", PATIENCE, || {
        Some(recorded(&lab, "link refused")).filter(|entries| !entries.is_empty())
    });
    println!("{}", entries[0]);
    lab.kill_coordinator();
    let (code, said) = wait_for("the other to lose its link", PATIENCE, || {
        let (code, said) = linked(&lab, other);
        (code != 0).then_some((code, said))
    });
    assert!(code == 4 && said.contains("no link to the coordinator at"), "{code}: {said}");
}

#[test]
fn r6_10_an_agent_that_meets_another_authoritys_coordinator_spends_no_token_and_ends_with_status_5() {
    let mut lab = Lab::start(1);
    let token = token(&lab, &[]);
    let file = std::fs::read_to_string(lab.place().join("daemon.json")).unwrap();
    let file: Value = serde_json::from_str(&file).unwrap();
    let address = file["fleet"].as_str().unwrap().trim_start_matches("https://").to_owned();
    lab.kill_agent(1);
    lab.kill_coordinator();
    // Somebody else sits where the token leads to.
    let other = lab.place().with_file_name("other");
    let mut run = command("fallow");
    run.args(["coordinator", "run", "--listen", &address, "--dir"]).arg(&other);
    let somebody = Killed(run.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    wait_for("the other coordinator", PATIENCE, || {
        let asked = command("fallow").args(["hosts", "--dir"]).arg(&other).output().unwrap();
        asked.status.success().then_some(())
    });
    let (code, said) = enrol(&lab, "agent", &token);
    println!("{code}: {said}");
    assert!(code == 5 && said.contains("its certificate is of another authority"), "{code}: {said}");
    assert!(said.contains("Nothing secret was sent to it"), "{said}");
    let heard = fallow_json(&other, &["audit"]);
    assert_eq!(heard["entries"], Value::Array(Vec::new()), "it heard nothing");
    drop(somebody);
    lab.start_coordinator();
    let listed = lab.json(&["tokens", "list"]);
    let used: Vec<_> = listed["tokens"].as_array().unwrap().iter().map(|token| &token["used"]).collect();
    assert!(used.contains(&&Value::from(0)), "the token was not spent: {listed}");
    let (code, said) = lab.says(&["audit", "--check"]);
    assert_eq!(code, 0, "{said}");
}
