//! Changes that go out in waves over real agents (R6.5): one that is good, one that takes the CPUs away, one
//! whose project is nowhere; and a coordinator that is killed in the middle.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "tests: failures are panics"
)]

use std::process::Stdio;

use fallow_e2e::{Killed, PATIENCE, Up, command, wait_for};

fn fallow(up: &Up, arguments: &[&str]) -> (i32, String) {
    let output = command("fallow").args(arguments).arg("--dir").arg(up.dir()).output().unwrap();
    let said = [output.stdout, output.stderr].map(|said| String::from_utf8_lossy(&said).into_owned());
    (output.status.code().unwrap(), said.concat())
}

#[test]
fn r6_5_real_agents_get_what_is_good_in_waves_and_are_given_back_what_they_had_where_it_harms() {
    let up = Up::start(&["--exponents", "2..9689"], &[]);
    wait_for("all agents to compute", 2 * PATIENCE, || {
        up.daemon("coordinator")?;
        let hosts = up.json(&["hosts"]);
        let busy = |host: &serde_json::Value| host["tasks_running"].as_u64().is_some_and(|tasks| tasks > 0);
        let busy = hosts["hosts"].as_array()?.iter().filter(|host| busy(host)).count();
        (busy == 3).then_some(())
    });
    let (code, said) = fallow(&up, &["rollout", "plan", "--waves", "1,50%", "--soak", "6s"]);
    assert!(code == 0 && said.contains("in waves of 1,50%,100%"), "{said}");

    let (code, said) = fallow(&up, &["preferences", "set", "--cpu-fraction", "40%"]);
    assert!(code == 0 && said.contains("as rollout 1"), "{said}");
    let (code, said) = fallow(&up, &["shares", "set", "mersenne=1"]);
    assert!(code == 3 && said.contains("rollout 1"), "{code}: {said}");
    let (code, said) = fallow(&up, &["rollout", "watch"]);
    assert!(code == 0 && said.contains("is that of all hosts"), "{code}: {said}");
    // Whoever looks late finds it among the steps.
    assert!(
        said.contains("released to 1 of 3 hosts") || said.contains("wave 1 of 3 (1) is released"),
        "{said}"
    );

    let (code, said) = fallow(&up, &["preferences", "set", "--cpu-fraction", "1%"]);
    assert!(code == 0 && said.contains("as rollout 2"), "{said}");
    // It goes on where it was.
    let coordinator = up.daemon("coordinator").unwrap();
    coordinator.signal(rustix::process::Signal::KILL);
    wait_for("the coordinator to be gone", PATIENCE, || (!coordinator.is_alive()).then_some(()));
    let mut run = command("fallow");
    run.args(["coordinator", "run", "--dir"]).arg(up.dir().join("coordinator"));
    let _restarted = Killed(run.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    wait_for("the coordinator to come back", PATIENCE, || {
        let again = up.daemon("coordinator")?;
        (again.pid != coordinator.pid && fallow(&up, &["rollout"]).0 == 0).then_some(())
    });
    let (code, said) = fallow(&up, &["rollout", "watch"]);
    assert!(code == 10 && said.contains("gate offered"), "{code}: {said}");
    assert!(!said.contains("wave 2"), "{said}");

    let file = up.dir().with_extension("ghost.toml");
    let group = "name = \"ghosts\"\nprecedence = 10\nselector = \"\"\n[projects.ghost]\nshare = 1000\n\
        url = \"http://127.0.0.1:9/ghost/\"\naccount_key = \"0123456789abcdef0123456789abcdef\"\n";
    std::fs::write(&file, group).unwrap();
    let (code, said) = fallow(&up, &["apply", "-f", file.to_str().unwrap()]);
    std::fs::remove_file(&file).unwrap();
    assert!(code == 0 && said.contains("as rollout 3"), "{code}: {said}");
    let (code, said) = fallow(&up, &["rollout", "watch"]);
    assert!(code == 10 && said.contains("gate cut-off"), "{code}: {said}");
    let groups = up.json(&["groups"]);
    assert_eq!(groups["groups"].as_array().unwrap().len(), 0);
    wait_for("all agents to follow the newest version", PATIENCE, || {
        let hosts = up.json(&["hosts"]);
        let newest = |host: &serde_json::Value| host["document_version"] == hosts["document_version"];
        hosts["hosts"].as_array()?.iter().all(newest).then_some(())
    });
    let (_, said) = fallow(&up, &["audit"]);
    assert_eq!(said.matches("rollout taken back").count(), 2, "{said}");

    // How that one ended is no word on what goes to all hosts at once.
    let (code, said) = fallow(&up, &["rollout", "plan", "--at-once"]);
    assert_eq!(code, 0, "{said}");
    let (code, said) = fallow(&up, &["preferences", "set", "--cpu-fraction", "60%"]);
    assert_eq!(code, 0, "{said}");
    let (code, said) = fallow(&up, &["rollout", "watch"]);
    assert!(code == 0 && said.contains("went to all hosts at once"), "{code}: {said}");
}
