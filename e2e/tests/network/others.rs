//! Other programs that use the network of an agent's machine (R6.4).

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use fallow_e2e::{PATIENCE, binary, command, wait_for};
use serde_json::Value;

use crate::machines::{Machines, SERVER, fallow, logged, on, said};

/// A job with a long input besides what is computed.
const BATCH: &str = "[[workunits]]\napplication = \"mersenne\"\noutputs = [{ open_name = \"out\" }]\nflops = 1e9\nquorum = 1\n\
    inputs = [{ open_name = \"in\", text = \"from=2 to=300\\n\" }, { open_name = \"long\", path = \"long\" }]\n";

/// Of each the agent downloads two files at once, the program and the long input: eight together.
const PROJECTS: [&str; 4] = ["primes1", "primes2", "primes3", "primes4"];

/// Four megabytes a second at the most, which nobody takes.
const OTHER_PROGRAM: &str = "
import socket, sys, time
other = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
while True:
    for _ in range(30):
        try:
            other.sendto(bytes(1400), (sys.argv[1], 9))
        except OSError:
            pass
    time.sleep(0.01)
";

/// A file of eight megabytes that nobody can compress for the way.
fn long_file(at: &Path, number: u64) {
    let mut state = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let bytes: Vec<u8> = (0..8_000_000 / 8).flat_map(|_| next().to_le_bytes()).collect();
    fs::write(at, bytes).unwrap();
}

/// What there is of files that are not complete yet.
fn partial(projects: &Path) -> u64 {
    let all = fs::read_dir(projects).into_iter().flatten().flatten();
    let partial = all.flat_map(|project| fs::read_dir(project.path().join(".partial")).into_iter().flatten());
    partial.flatten().filter_map(|file| Some(file.metadata().ok()?.len())).sum()
}

/// What the clients' machine has sent.
fn sent(machines: &Machines) -> u64 {
    let mut read = Command::new("cat");
    read.arg("/proc/net/dev");
    let text = said(&machines.clients, &read);
    let line = text.lines().find_map(|line| line.trim().strip_prefix("fc")).unwrap();
    line.split_whitespace().nth(9).unwrap().parse().unwrap()
}

/// The agent takes none of what it moves itself, which is more than others may move, for theirs.
#[test]
fn r6_4_files_wait_while_other_programs_use_the_network_and_go_on_when_they_have_ended() {
    let Some(machines) = Machines::new() else { return };
    let (server, clients) = (machines.server.as_str(), machines.clients.as_str());
    let dir = tempfile::Builder::new().prefix("fallow-e2e-").tempdir().unwrap();
    let lab = dir.path().join("coordinator");
    let advertised = format!("{SERVER}:24001");
    let run = ["coordinator", "run", "--listen", "0.0.0.0:24001", "--http", "0.0.0.0:24002"];
    let run = [&run[..], &["--advertise", &advertised]].concat();
    let _coordinator = logged(on(server, &fallow(&lab, &run)), &dir.path().join("coordinator.log"));
    wait_for("the coordinator to answer", PATIENCE, || {
        on(server, &fallow(&lab, &["hosts"])).output().unwrap().status.success().then_some(())
    });
    let json = |arguments: &[&str]| -> Value {
        serde_json::from_str(&said(server, &fallow(&lab, &[arguments, &["--json"]].concat()))).unwrap()
    };
    let mersenne = binary("mersenne");
    for project in PROJECTS {
        json(&["project", "create", project, "--request-delay", "1s"]);
        json(&["project", "set", project, "report-immediately=true"]);
        json(&["app", "add", project, "mersenne", mersenne.to_str().unwrap(), "--version", "1.0"]);
    }

    let (place, log) = (dir.path().join("agent"), dir.path().join("agent.log"));
    let token = json(&["tokens", "create"])["tokens"][0].as_str().unwrap().to_owned();
    let mut agent = command("fallow-agent");
    agent.arg("run").arg("--dir").arg(&place).args(["--benchmark-after-ms", "3600000"]);
    agent.env("FALLOW_TOKEN", &token);
    let _agent = logged(on(clients, &agent), &log);
    let asked = |arguments: &[&str]| {
        let mut agent = command("fallow-agent");
        agent.args(arguments).arg("--dir").arg(&place);
        on(clients, &agent).output().unwrap()
    };
    let host = || -> Option<Value> {
        let status: Value = serde_json::from_slice(&asked(&["status", "--json"]).stdout).ok()?;
        status.get("host").cloned()
    };
    wait_for("the agent to answer", PATIENCE, host);
    // So little that what comes before it is read, by the limit on downloads, would be too much.
    let limits = |text: &str| {
        fs::write(place.join("preferences.toml"), text).unwrap();
        let reloaded = asked(&["preferences", "reload"]);
        assert!(reloaded.status.success(), "{}", String::from_utf8_lossy(&reloaded.stderr));
    };
    limits("other_network_max = \"100 kB\"\ndownload_max = \"1 MB\"\n");
    let batch = dir.path().join("batch.toml");
    fs::write(&batch, BATCH).unwrap();
    for (project, number) in PROJECTS.into_iter().zip(1..) {
        long_file(&dir.path().join("long"), number);
        json(&["submit", project, "--file", batch.to_str().unwrap()]);
    }

    let waits = || host().and_then(|host| Some(host["files_wait"].as_str()?.to_owned()));
    let projects = place.join("projects");
    wait_for("a part of the files", PATIENCE * 2, || (partial(&projects) > 6_000_000).then_some(()));
    let told = || fs::read_to_string(&log).unwrap().matches("files wait: ").count();
    assert_eq!((waits(), told()), (None, 0), "it waits for itself");
    let mut other = Command::new("python3");
    other.args(["-c", OTHER_PROGRAM, SERVER]);
    let other = logged(on(clients, &other), &dir.path().join("other.log"));
    let why = wait_for("files to wait for the other program", PATIENCE, waits);
    assert!(why.starts_with("other programs use the network: ") && why.contains("100 kB"), "{why}");
    let text = String::from_utf8_lossy(&asked(&["status"]).stdout).into_owned();
    assert!(text.contains("\nfiles wait: other programs use the network: "), "{text}");
    let moves = |bytes: u64| {
        let until = sent(&machines) + bytes;
        wait_for("the other program", PATIENCE, || (sent(&machines) > until).then_some(()));
    };
    // What was on its way to the disk is there when nothing more has come for seconds.
    let came = wait_for("no more to come", PATIENCE, || {
        let came = partial(&projects);
        moves(8_000_000);
        (partial(&projects) == came).then_some(came)
    });
    moves(20_000_000);
    assert_eq!((partial(&projects), waits().is_some()), (came, true));
    drop(other);
    wait_for("files to go on", PATIENCE, || (partial(&projects) > came).then_some(()));
    assert_eq!(waits(), None);
    limits("other_network_max = \"100 kB\"\n");
    // It is asked again and again: a second wait so soon after the first is not told in the log.
    // Where the agent stands still, what came meanwhile may be more than is forgiven: once, and not for good.
    let (mut times, mut waited) = (0, false);
    wait_for("all workunits to be validated", Duration::from_mins(10), || {
        let is_waiting = waits().is_some();
        times += u32::from(is_waiting && !waited);
        waited = is_waiting;
        let projects = json(&["projects"]);
        let is_done = |project: &Value| project["workunits_validated"] == 1;
        projects["projects"].as_array().unwrap().iter().all(is_done).then_some(())
    });
    assert!(times <= 1, "it waits for itself, {times} times");
}
