//! A real agent that is refused when it wants to enrol: its owner hears why and gets an exit code, and the
//! operator of the coordinator finds it in the audit log (R6.10).
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "tests: failures are panics"
)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

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
    let spent = fs::read_to_string(lab.place().with_file_name("token")).unwrap();
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
    let file = fs::read_to_string(lab.place().join("daemon.json")).unwrap();
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

/// How often the newest token was used.
fn used(lab: &Lab, listed: usize) -> u64 {
    let tokens = lab.json(&["tokens", "list"])["tokens"].as_array().unwrap().clone();
    assert_eq!(tokens.len(), listed);
    tokens.iter().filter(|token| token["uses"] == 7).map(|token| token["used"].as_u64().unwrap()).sum()
}

/// What an agent's directory is like, and what comes of that.
type Unusable = (&'static str, fn(&Path) -> PathBuf, i32, &'static str);

#[test]
fn r6_10_an_agent_that_cannot_run_where_it_is_to_says_why_and_spends_no_token() {
    let lab = Lab::start(1);
    let token = token(&lab, &["--uses", "7"]);
    let unusable: &[Unusable] = &[
        (
            "a file in the directory's place",
            |place| {
                fs::write(place, "x").unwrap();
                place.to_owned()
            },
            3,
            "is not a directory",
        ),
        (
            "a file on the way to it",
            |place| {
                fs::write(place, "x").unwrap();
                place.join("agent")
            },
            8,
            "Not a directory",
        ),
        ("a name that is too long", |place| place.join("x".repeat(300)), 8, "File name too long"),
        (
            "a file in the store's place",
            |place| {
                fs::create_dir(place).unwrap();
                fs::write(place.join("store"), "x").unwrap();
                place.to_owned()
            },
            8,
            "cannot be created or written",
        ),
        (
            "a store that is none",
            |place| {
                fs::create_dir_all(place.join("store/sled")).unwrap();
                fs::write(place.join("store/sled/conf"), "x".repeat(100)).unwrap();
                fs::write(place.join("store/sled/db"), "x".repeat(100)).unwrap();
                place.to_owned()
            },
            7,
            "is corrupted",
        ),
    ];
    for (number, (what, make, status, why)) in unusable.iter().enumerate() {
        let place = make(&lab.place().with_file_name(format!("unusable-{number}")));
        let mut agent = command("fallow-agent");
        agent.args(["run", "--dir"]).arg(&place).env("FALLOW_TOKEN", &token);
        refused_to_run(&lab, agent, what, (*status, why));
    }
    // Something that cannot be taken away lies where the socket is to be.
    if rustix::process::geteuid().is_root() {
        let place = lab.place().with_file_name("no-socket");
        fs::create_dir(&place).unwrap();
        let socket = place.join("control.sock");
        fs::write(&socket, "x").unwrap();
        let script = "mount --bind \"$0\" \"$0\" && exec \"$@\"";
        let mut agent = Command::new("unshare");
        agent.args(["--mount", "sh", "-c", script]).arg(&socket);
        agent.arg(fallow_e2e::binary("fallow-agent")).args(["run", "--dir"]).arg(&place);
        agent.env("FALLOW_TOKEN", &token);
        refused_to_run(&lab, agent, "no socket", (1, "cannot open the control socket"));
    }
    // The path of a socket there would be too long for the kernel, and is another one.
    let deep = lab.place().with_file_name("d".repeat(150));
    let mut agent = command("fallow-agent");
    agent.args(["run", "--dir"]).arg(&deep).env("FALLOW_TOKEN", &token);
    let _agent = Killed(agent.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    wait_for("the agent to enrol", PATIENCE, || (used(&lab, 2) == 1).then_some(()));
}

/// Sees to it that an agent ends so, and that the coordinator has not heard of it.
fn refused_to_run(lab: &Lab, mut agent: Command, what: &str, (status, why): (i32, &str)) {
    let output = agent.stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    println!("{what}: {}: {said}", output.status);
    assert_eq!(output.status.code(), Some(status), "{what}: {said}");
    assert!(said.contains(why), "{what}: {said}");
    assert_eq!(used(lab, 2), 0, "{what}: it spent the token");
}

#[test]
fn r6_10_an_agent_with_another_hosts_certificate_ends_with_status_7_and_goes_on_with_its_own() {
    let mut lab = Lab::start(2);
    lab.kill_agent(1);
    // Somebody who puts a backup back mixes up two machines.
    let identity = |agent: usize| lab.agent_place(agent).join("identity.json");
    let (own, of_other) = (identity(1), identity(2));
    let was = fs::read(&own).unwrap();
    fs::copy(of_other, &own).unwrap();
    let mut agent = command("fallow-agent");
    let output = agent.args(["run", "--dir"]).arg(lab.agent_place(1)).stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    println!("{}: {said}", output.status);
    assert_eq!(output.status.code(), Some(7), "{said}");
    assert!(said.contains("do not fit") && said.contains("restore both from one copy"), "{said}");
    let hosts = lab.hosts();
    let connected = hosts.iter().filter(|host| host["connected"] == true).count();
    assert_eq!((hosts.len(), connected), (2, 1), "the other one is not disturbed: {hosts:?}");
    fs::write(&own, was).unwrap();
    lab.start_agent(1);
    wait_for("both to be linked", PATIENCE, || {
        let hosts = lab.hosts();
        (hosts.len() == 2 && hosts.iter().all(|host| host["connected"] == true)).then_some(())
    });
}
