//! `fallow up` as its users run it: real processes, real work, from nothing to validated results.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests: failures are panics")]

use std::time::Duration;

use fallow_e2e::{PATIENCE, Up, command, processes_in, wait_for};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// Exponents of all Mersenne primes in the range of the quick run.
const KNOWN: [u64; 22] =
    [2, 3, 5, 7, 13, 17, 19, 31, 61, 89, 107, 127, 521, 607, 1279, 2203, 2281, 3217, 4253, 4423, 9689, 9941];
/// Two CPU minutes on two cores, with room for a machine that is slow or does other things too.
const QUICK: Duration = Duration::from_mins(20);

#[test]
fn a_fleet_computes_from_nothing_to_validated_results_and_leaves_no_process() {
    let dir = tempfile::tempdir().unwrap();
    let lines = run(dir.path(), &["--quick", "--until-done", "--json"]);
    let summary = of_kind(&lines, "summary").pop().expect("a summary");
    check(&summary);
    let progress = of_kind(&lines, "progress");
    let all_linked = progress.iter().any(|line| {
        let hosts = line["hosts"].as_array().unwrap();
        hosts.len() == 3 && hosts.iter().all(|host| host["connected"] == true && host["usable_cpus"] == 1)
    });
    assert!(all_linked, "three agents, one CPU each");
    // The CPU time that the coordinator adds up is that which each agent counts, task by task and host by
    // host.
    let last = progress.last().unwrap();
    for project in last["projects"].as_array().unwrap() {
        let of_agents = sum(last["hosts"].as_array().unwrap(), &project["url"], "cpu_time_micros");
        assert_eq!(project["cpu_time_micros"].as_i64().unwrap(), of_agents);
        let parts: i64 = ["in_progress", "success", "error", "late"]
            .iter()
            .map(|part| {
                sum(last["hosts"].as_array().unwrap(), &project["url"], &format!("cpu_{part}_micros"))
            })
            .sum();
        assert_eq!(parts, of_agents, "every CPU second has an outcome");
    }

    // The same directory again: nothing is submitted or computed twice.
    let lines = run(dir.path(), &["--until-done", "--json"]);
    let again = of_kind(&lines, "summary").pop().expect("a summary");
    check(&again);
    for (before, after) in
        summary["projects"].as_array().unwrap().iter().zip(again["projects"].as_array().unwrap())
    {
        for same in ["url", "workunits", "cpu_time_micros", "jobs_over"] {
            assert_eq!(before[same], after[same], "{same}");
        }
    }
}

#[test]
fn the_first_ctrl_c_stops_everything_cleanly() {
    let mut up = Up::start(&["--quick", "--agents", "2"], &[]);
    wait_for("two agents at work", PATIENCE, || {
        (1..=2).all(|number| !up.tasks(&format!("agent-{number}")).is_empty()).then_some(())
    });
    let second = command("fallow").arg("up").arg("--dir").arg(up.dir()).output().unwrap();
    assert_eq!(second.status.code(), Some(6), "a directory has one supervisor");
    assert!(String::from_utf8_lossy(&second.stderr).contains("another `fallow up` runs"));
    interrupt(&up);
    let status = up.wait(PATIENCE);
    assert_eq!(status.code(), Some(0), "{:?}", up.said());
    assert!(up.said().iter().any(|line| line == "all processes have ended"), "{:?}", up.said());
    assert_eq!(up.processes(), []);
    for daemon in ["coordinator", "agent-1", "agent-2"] {
        let file = up.dir().join(daemon).join("daemon.json");
        assert!(!file.exists(), "{} is there after a clean end", file.display());
    }
}

#[test]
fn every_signal_that_ends_the_supervisor_stops_the_daemons_too() {
    for signal in [Signal::TERM, Signal::HUP, Signal::QUIT] {
        let mut up = Up::start(&["--quick", "--agents", "2"], &[]);
        wait_for("two agents", PATIENCE, || up.daemon("agent-2").and(up.daemon("agent-1")));
        send(&up, signal);
        assert_eq!(up.wait(PATIENCE).code(), Some(0), "{signal:?}: {:?}", up.said());
        assert_eq!(up.processes(), [], "{signal:?}");
    }
}

#[test]
fn an_agent_that_stays_dead_is_told_again_with_its_jobs_and_the_command_that_starts_it() {
    let mut up = Up::start(&["--quick", "--agents", "2"], &[]);
    wait_for("two agents at work", PATIENCE, || {
        (1..=2).all(|number| !up.tasks(&format!("agent-{number}")).is_empty()).then_some(())
    });
    // What its jobs are called is known once it has reported them.
    let name = wait_for("its jobs at the coordinator", PATIENCE, || {
        let id = identity(&up, "agent-2");
        let hosts = up.json(&["hosts"])["hosts"].as_array().unwrap().clone();
        let host = hosts.into_iter().find(|host| host["agent_id"] == id)?;
        assert_eq!(host["name"], "agent-2");
        host["tasks"].get(0)?["name"].as_str().map(str::to_owned)
    });
    // The listing of jobs calls it by the name that it has among the hosts.
    let job = up.json(&["jobs", name.split('_').next().unwrap(), "--job", &name]);
    assert_eq!(
        (&job["job"]["agent_name"], &job["job"]["agent_id"]),
        (&"agent-2".into(), &identity(&up, "agent-2"))
    );
    up.daemon("agent-2").unwrap().signal(Signal::KILL);
    let said = |text: &str| up.said().iter().any(|line| line.contains(text)).then_some(());
    wait_for("its end", PATIENCE, || said("agent-2 was ended by signal 9"));
    wait_for("the reminder", PATIENCE, || said("agent-2 has not run for"));
    let lines = up.said();
    let place = lines.iter().position(|line| line.contains("agent-2 has not run for")).unwrap();
    let project = name.split('_').next().unwrap();
    assert!(lines[place].contains("until their deadline: ") && lines[place].contains(project), "{lines:?}");
    assert!(lines[place + 1].contains("fallow-agent run --dir"), "{lines:?}");
    interrupt(&up);
    assert_eq!(up.wait(PATIENCE).code(), Some(0), "{:?}", up.said());
}

#[test]
fn other_work_in_the_directory_of_an_earlier_run_is_refused_with_advice() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("up.json"), r#"{"exponents":[2,100],"quick":true}"#).unwrap();
    let run =
        command("fallow").args(["up", "--exponents", "2..200", "--dir"]).arg(dir.path()).output().unwrap();
    let said = String::from_utf8_lossy(&run.stderr).into_owned();
    assert_eq!(run.status.code(), Some(3), "{said}");
    assert!(said.contains("2..100") && said.contains("another --dir"), "{said}");
    assert_eq!(processes_in(dir.path()), []);
}

/// Runs it to its end and gives its lines; nothing of it may be left.
fn run(dir: &std::path::Path, arguments: &[&str]) -> Vec<Value> {
    let child = std::process::Command::new("timeout")
        .arg(QUICK.as_secs().to_string())
        .arg(fallow_e2e::binary("fallow"))
        .arg("up")
        .args(arguments)
        .arg("--dir")
        .arg(dir)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&child.stdout).into_owned();
    let tail: Vec<_> = said.lines().rev().take(3).collect();
    let error = String::from_utf8_lossy(&child.stderr);
    assert_eq!(child.status.code(), Some(0), "{error}\n{tail:#?}");
    assert_eq!(processes_in(dir), []);
    said.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn of_kind(lines: &[Value], event: &str) -> Vec<Value> {
    lines.iter().filter(|line| line["event"] == event).cloned().collect()
}

fn check(summary: &Value) {
    let found: Vec<u64> = serde_json::from_value(summary["mersenne_exponents"].clone()).unwrap();
    assert_eq!(found, KNOWN);
    let projects = summary["projects"].as_array().unwrap();
    assert_eq!(projects.len(), 2);
    for project in projects {
        let workunits = &project["workunits"];
        assert!(workunits.as_u64().unwrap() > 0);
        assert_eq!(&project["workunits_validated"], workunits);
        assert_eq!(&project["validated_by_quorum_on_different_hosts"], workunits);
        assert_eq!(project["workunits_failed"], 0);
        assert!(project["cpu_time_micros"].as_i64().unwrap() > 0);
        let points = project["points_from_share"].as_f64().expect("time in which both had work");
        // A run of two minutes has few turns of the scheduler; the long run is within 5.
        assert!(points.abs() < 15.0, "{}: {points}", project["name"]);
    }
    let agents = summary["agents"].as_array().unwrap();
    assert_eq!(agents.len(), 3);
    for figure in ["idleness", "waste", "share_violation", "share_deviation", "monotony"] {
        let mean = summary["metrics_mean"][figure].as_f64().expect(figure);
        assert!((0.0..=1.0).contains(&mean), "{figure}: {mean}");
    }
}

fn sum(hosts: &[Value], url: &Value, what: &str) -> i64 {
    let projects = hosts.iter().flat_map(|host| host["projects"].as_array().unwrap());
    projects.filter(|project| project["url"] == *url).map(|project| project[what].as_i64().unwrap()).sum()
}

fn identity(up: &Up, agent: &str) -> Value {
    let file = std::fs::read(up.dir().join(agent).join("identity.json")).unwrap();
    serde_json::from_slice::<Value>(&file).unwrap()["agent_id"].clone()
}

fn interrupt(up: &Up) {
    send(up, Signal::INT);
}

fn send(up: &Up, signal: Signal) {
    let supervisor = up.processes().into_iter().find(|process| process.command.contains(" up "));
    let pid = supervisor.and_then(|process| Pid::from_raw(process.pid as i32)).expect("the supervisor");
    kill_process(pid, signal).unwrap();
}
