//! An application that was made with BOINC's own library, as Debian ships it (`libboinc-app-dev`), under our
//! agent with all layers of confinement that there are: `e2e/peers/application.cpp`.
//!
//! Without that library, or a C++ compiler, the test says so and passes, unless `FALLOW_REQUIRE_PEERS=1`.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "tests: failures are panics")]
#![allow(clippy::disallowed_methods, reason = "how much is measured comes from outside")]

mod yielding;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use fallow_e2e::{Lab, PATIENCE, Process, command, peers_required, wait_for};
use serde_json::Value;

/// Compiles it into a directory.
fn compiled(dir: &Path) -> Option<PathBuf> {
    let program = dir.join("counter");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/peers/application.cpp");
    let mut compile = Command::new("g++");
    compile.args(["-O1", "-o"]).arg(&program).args([source, "-lboinc_api", "-lboinc", "-pthread"]);
    let output = compile.output();
    if output.as_ref().is_ok_and(|output| output.status.success()) {
        return Some(program);
    }
    let why = output.map_or_else(
        |error| format!("cannot run g++: {error}"),
        |output| String::from_utf8_lossy(&output.stderr).into_owned(),
    );
    assert!(!peers_required(), "e2e/peers/install.sh installs BOINC's library and g++: {why}");
    println!("skipped: BOINC's library or g++ is missing (e2e/peers/install.sh installs them)");
    None
}

/// The one task of the lab's one agent, as its status has it.
fn task(lab: &Lab) -> Option<Value> {
    let mut asks = command("fallow-agent");
    let output = asks.args(["status", "--json", "--dir"]).arg(lab.agent_place(1)).output().unwrap();
    let status: Value = serde_json::from_slice(&output.stdout).ok()?;
    status["tasks"].get(0).cloned()
}

fn tell(lab: &Lab, words: &[&str]) {
    let told = command("fallow-agent").args(words).arg("--dir").arg(lab.agent_place(1)).output().unwrap();
    assert!(told.status.success(), "{words:?}: {}", String::from_utf8_lossy(&told.stderr));
}

/// The process of the one task, and its CPU time in clock ticks.
fn process(lab: &Lab) -> Option<Process> {
    let pid = task(lab)?["pid"].as_u64()?;
    Process::read(u32::try_from(pid).ok()?)
}

/// Adds the application, whose jobs use so much of a CPU.
fn add(lab: &Lab, program: &Path, uses: &str) {
    let program = program.to_str().unwrap();
    lab.json(&["app", "add", "sums", "counter", program, "--version", "1.0", "--uses", uses]);
}

/// Submits jobs with these inputs: how far they count, and with how many children.
fn submit(lab: &Lab, inputs: &[&str]) {
    let one = |input: &&str| {
        format!(
            "[[workunits]]\napplication = 'counter'\nflops = 1e13\noutputs = [{{ open_name = 'out' }}]\n\
             inputs = [{{ open_name = 'in', text = \"{input}\\n\" }}]\n"
        )
    };
    let batch = lab.place().with_file_name("batch.toml");
    std::fs::write(&batch, inputs.iter().map(one).collect::<String>()).unwrap();
    lab.json(&["submit", "sums", "--file", batch.to_str().unwrap()]);
}

#[test]
fn r6_2_an_application_of_boincs_own_library_checkpoints_rests_leaves_and_goes_on_as_it_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let Some(program) = compiled(dir.path()) else { return };
    let mut lab = Lab::start(1);
    lab.json(&["preferences", "set", "--checkpoint-period", "1s", "--leave-in-memory", "true"]);
    add(&lab, &program, "cpu=1");
    submit(&lab, &["12"]);

    let told = |what, holds: &dyn Fn(&Value) -> bool| {
        wait_for(what, PATIENCE, || task(&lab).filter(|task| holds(task)));
    };
    told("it to say how far it is", &|task| task["fraction_done"].as_f64() > Some(0.0));
    told("a checkpoint", &|task| task["checkpoint_cpu_time"].as_f64() > Some(0.0));

    tell(&lab, &["snooze", "1h"]);
    let rests = || {
        let before = process(&lab)?;
        std::thread::sleep(Duration::from_secs(1));
        process(&lab).filter(|now| *now == before)
    };
    let at_rest = wait_for("it to rest", PATIENCE, rests);
    tell(&lab, &["snooze", "off"]);
    let goes_on = || process(&lab).filter(|now| now.ticks > at_rest.ticks + 20);
    let now = wait_for("it to go on", PATIENCE, goes_on);
    assert_eq!(now.pid, at_rest.pid, "it stayed in memory");

    tell(&lab, &["stop"]);
    wait_for("the agent to end", PATIENCE, || lab.agent(1).is_none().then_some(()));
    assert!(!now.is_alive(), "it left when it was asked to");
    lab.kill_agent(1);
    lab.start_agent(1);

    let result =
        wait_for("it to be done", 5 * PATIENCE, || lab.json(&["results", "sums"])["results"].get(0).cloned());
    let counted = result["outputs"][0]["text"].as_str().unwrap_or_else(|| panic!("{result}"));
    let from =
        counted.trim_end().strip_prefix("counted to 12, at last from ").and_then(|from| from.parse().ok());
    assert!(from.is_some_and(|from: u32| from > 0), "it went on from a checkpoint: {counted}");
}
