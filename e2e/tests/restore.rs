//! A coordinator that is put back to a backup while agents are linked to it (R6.5, R6.9).
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "tests: failures are panics"
)]

use std::collections::BTreeMap;
use std::process::Stdio;
use std::time::{Duration, Instant};

use fallow_e2e::{Killed, PATIENCE, Up, command, wait_for};
use serde_json::Value;

/// How often hosts are suspended, to see it once within a second.
const TRIALS: u32 = 20;

fn fallow(up: &Up, arguments: &[&str]) -> String {
    let output = command("fallow").args(arguments).arg("--dir").arg(up.dir()).output().unwrap();
    let said = [output.stdout, output.stderr].map(|said| String::from_utf8_lossy(&said).into_owned());
    assert!(output.status.success(), "{arguments:?}: {}", said.concat());
    said.concat()
}

/// Whether all three hosts are linked, and this holds for each.
fn all(up: &Up, holds: impl Fn(&Value) -> bool) -> Option<()> {
    up.daemon("coordinator")?;
    let hosts = up.json(&["hosts"]);
    let hosts = hosts["hosts"].as_array()?;
    let linked = hosts.iter().filter(|host| host["connected"] == true && holds(host)).count();
    (linked == 3).then_some(())
}

fn is_suspended(host: &Value) -> bool {
    host["suspended_by"] == "coordinator"
}

#[test]
fn r6_5_after_a_restore_agents_that_follow_newer_versions_take_what_the_coordinator_says() {
    let up = Up::start(&["--exponents", "2..9689"], &[]);
    wait_for("all agents to be linked", 2 * PATIENCE, || all(&up, |_| true));
    let file = up.dir().with_extension("backup.tar");
    let path = file.to_str().unwrap();
    fallow(&up, &["backup", path]);
    let before = up.json(&["hosts"])["document_version"].as_u64().unwrap();
    // Which host is in which group is as the backup has it, too.
    fallow(&up, &["hosts", "label", "agent-1", "room=13"]);
    for share in ["60", "50", "40"] {
        fallow(&up, &["shares", "set", &format!("mersenne={share}")]);
    }
    wait_for("all agents to follow the newest version", PATIENCE, || {
        all(&up, |host| host["document_version"] == before + 3)
    });

    fallow(&up, &["restore", path, "--message", "a trial"]);
    wait_for("all agents to be linked again", PATIENCE, || {
        all(&up, |host| host["document_version"] != before + 3)
    });
    let labels = up.json(&["hosts", "show", "agent-1"])["labels"].to_string();
    assert!(labels.contains("hostname") && !labels.contains("room"), "{labels}");
    // Something else on this machine may hold some of them up, but not one time after the other.
    for trial in 1.. {
        // Whoever looks needs a while for that.
        let looks = Instant::now();
        up.json(&["hosts"]);
        let looks = looks.elapsed();
        fallow(&up, &["preferences", "set", "--suspended", "true"]);
        let ended = Instant::now();
        let mut suspended = BTreeMap::new();
        wait_for("all agents to be suspended", PATIENCE, || {
            let hosts = up.json(&["hosts"]);
            for host in hosts["hosts"].as_array()?.iter().filter(|host| is_suspended(host)) {
                suspended.entry(host["name"].to_string()).or_insert_with(|| ended.elapsed());
            }
            (suspended.len() == 3).then_some(())
        });
        println!("seen to be suspended after the command's end: {suspended:.1?}; a look takes {looks:.1?}");
        if suspended.values().all(|after| *after < Duration::from_secs(1) + 3 * looks) {
            break;
        }
        assert!(trial < TRIALS, "each time some host takes longer than a second");
        fallow(&up, &["preferences", "set", "--suspended", "false"]);
        wait_for("all agents to go on", PATIENCE, || all(&up, |host| !is_suspended(host)));
    }
    all(&up, is_suspended).expect("all are linked and suspended");
    assert_eq!(up.json(&["shares"])["projects"][0]["share"], 75.0);

    // Once more, by other means: the coordinator does not know that it was put back; its agents tell it.
    let coordinator = up.daemon("coordinator").unwrap();
    coordinator.signal(rustix::process::Signal::KILL);
    wait_for("the coordinator to be gone", PATIENCE, || (!coordinator.is_alive()).then_some(()));
    let dir = up.dir().join("coordinator");
    std::fs::remove_dir_all(&dir).unwrap();
    let output = command("fallow").args(["restore", path, "--dir"]).arg(&dir).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut run = command("fallow");
    run.args(["coordinator", "run", "--dir"]).arg(&dir);
    let _restarted = Killed(run.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    wait_for("all agents to be linked to the new one", PATIENCE, || all(&up, |_| true));
    wait_for("all of them to be told of", PATIENCE, || {
        let table = fallow(&up, &["hosts"]);
        (table.matches("which this coordinator does not have").count() == 3).then_some(())
    });
    fallow(&up, &["restore", "--new-term"]);
    wait_for("all agents to go on computing", PATIENCE, || all(&up, |host| !is_suspended(host)));
    let newest = up.json(&["hosts"])["document_version"].clone();
    wait_for("all agents to follow it", PATIENCE, || all(&up, |host| host["document_version"] == newest));
    fallow(&up, &["audit", "--check"]);
    std::fs::remove_file(&file).unwrap();
}
