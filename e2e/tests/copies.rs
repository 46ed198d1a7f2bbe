//! A disk image that is started twice, as real processes: one agent goes on with its jobs, the other becomes
//! a host of its own without them, and operators see it (R6.10).
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests: failures are panics")]

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use fallow_e2e::{Killed, PATIENCE, binary, command, fallow_json, processes_in, wait_for};
use serde_json::Value;

const MINUTE: Duration = Duration::from_secs(60);

/// One job, which takes some ten seconds of CPU time.
const BATCH: &str = "[[workunits]]\napplication = \"mersenne\"\ninputs = [{ open_name = \"in\", text = \"from=2 to=6000\\n\" }]\n\
    outputs = [{ open_name = \"out\" }]\nflops = 5e10\nflops_bound = 5e13\nquorum = 1\n";

fn logged(mut command: Command, log: &Path) -> Killed {
    let log = File::create(log).unwrap();
    Killed(command.stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap())
}

/// A coordinator with a project that has one job, and agents' directories beside it.
struct Lab {
    dir: tempfile::TempDir,
    _coordinator: Killed,
    token: String,
}

impl Lab {
    fn start() -> Self {
        let dir = tempfile::Builder::new().prefix("fallow-e2e-").tempdir().unwrap();
        let mut run = command("fallow");
        run.args(["coordinator", "run", "--dir"]).arg(dir.path().join("coordinator"));
        let coordinator = logged(run, &dir.path().join("coordinator.log"));
        let mut lab = Self { dir, _coordinator: coordinator, token: String::new() };
        wait_for("the coordinator to answer", PATIENCE, || {
            let mut hosts = command("fallow");
            hosts.args(["hosts", "--dir"]).arg(lab.place("coordinator"));
            hosts.output().unwrap().status.success().then_some(())
        });
        lab.json(&["project", "create", "primes", "--request-delay", "1s"]);
        lab.json(&["project", "set", "primes", "report-immediately=true"]);
        let program = binary("mersenne");
        lab.json(&["app", "add", "primes", "mersenne", program.to_str().unwrap(), "--version", "1.0"]);
        let batch = lab.place("batch.toml");
        fs::write(&batch, BATCH).unwrap();
        lab.json(&["submit", "primes", "--file", batch.to_str().unwrap()]);
        lab.token = lab.json(&["tokens", "create"])["tokens"][0].as_str().unwrap().to_owned();
        lab
    }

    fn place(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn json(&self, arguments: &[&str]) -> Value {
        fallow_json(&self.place("coordinator"), arguments)
    }

    fn hosts(&self) -> Vec<Value> {
        self.json(&["hosts"])["hosts"].as_array().unwrap().clone()
    }

    fn agent(&self, name: &str, log: &str) -> Killed {
        let mut agent = command("fallow-agent");
        agent.args(["run", "--benchmark-after-ms", "3600000", "--dir"]).arg(self.place(name));
        agent.env("FALLOW_TOKEN", &self.token);
        logged(agent, &self.place(log))
    }

    fn log(&self, log: &str) -> String {
        fs::read_to_string(self.place(log)).unwrap_or_default()
    }
}

#[test]
fn r6_10_of_a_copied_image_that_runs_twice_one_goes_on_and_the_other_is_a_host_of_its_own_within_a_minute() {
    let lab = Lab::start();
    let mut agent = lab.agent("agent-1", "before.log");
    wait_for("the job to run", 5 * MINUTE, || {
        let hosts = lab.hosts();
        (hosts.first()?["tasks"][0]["phase"] == "running").then_some(())
    });
    let job = lab.hosts()[0]["tasks"][0]["name"].as_str().unwrap().to_owned();
    let stopped = command("fallow-agent").args(["stop", "--dir"]).arg(lab.place("agent-1")).status().unwrap();
    assert!(stopped.success());
    agent.0.wait().unwrap();
    let copied = Command::new("cp").arg("-a").args([lab.place("agent-1"), lab.place("agent-2")]).status();
    assert!(copied.unwrap().success());

    let _first = lab.agent("agent-1", "first.log");
    wait_for("the first one's link", PATIENCE, || {
        let hosts = lab.hosts();
        (hosts.len() == 1 && hosts[0]["connected"] == true && hosts[0]["name"] == "agent-1").then_some(())
    });
    let began = Instant::now();
    let mut second = lab.agent("agent-2", "second.log");
    let hosts = wait_for("two hosts to be linked", MINUTE, || {
        let hosts = lab.hosts();
        (hosts.len() == 2 && hosts.iter().all(|host| host["connected"] == true)).then_some(hosts)
    });
    assert!(began.elapsed() < MINUTE, "{:?}", began.elapsed());
    println!("two hosts after {:?}", began.elapsed());
    let [one, other] = &hosts[..] else { panic!("{hosts:?}") };
    let first = one["agent_id"].as_str().unwrap();
    assert_eq!((&one["name"], &one["copy_of"]), (&"agent-1".into(), &"".into()));
    assert_eq!(other["copy_of"], first, "{other}");
    assert!(other["copy_note"].as_str().unwrap().contains("from 127.0.0.1"), "{other}");
    assert_ne!(other["agent_id"], first);
    // It has nothing of the first one's, and runs in the process that it ran in.
    assert!(second.0.try_wait().unwrap().is_none());
    wait_for("its report without tasks", PATIENCE, || {
        let hosts = lab.hosts();
        (hosts[1]["name"] == "agent-2" && hosts[1]["tasks_held"] == 0).then_some(())
    });
    assert_eq!(processes_in(&lab.place("agent-2").join("slots")), []);

    // The job is computed by the first one alone.
    let project = wait_for("the job to be over", 10 * MINUTE, || {
        let project = lab.json(&["projects"])["projects"][0].clone();
        (project["workunits_validated"] == 1).then_some(project)
    });
    assert_eq!(project["workunits_failed"], 0, "{project}");
    wait_for("the first one to say so", PATIENCE, || (lab.hosts()[0]["jobs_finished"] == 1).then_some(()));
    let (first_log, second_log) = (lab.log("first.log"), lab.log("second.log"));
    assert_eq!(
        (&lab.hosts()[1]["jobs_finished"], &lab.hosts()[1]["tasks_held"]),
        (&0.into(), &0.into()),
        "{first_log}\n{second_log}"
    );
    assert!(first_log.contains(&format!("finished {job}")), "{first_log}");
    assert!(!second_log.contains(&format!("finished {job}")), "{second_log}");
    // Its link stood all the time.
    assert_eq!(first_log.matches("linked to the coordinator").count(), 1, "{first_log}");
    assert!(!first_log.contains("no link to the coordinator"), "{first_log}");
    let warned = lab.log("coordinator.log");
    assert_eq!(warned.matches("two live processes have one host's identity").count(), 1, "{warned}");

    // Whoever takes the first one out of the fleet is told of the other, and can have it taken out with it.
    let mut revoke = command("fallow");
    revoke.args(["hosts", "revoke", first, "--with-copies", "--dir"]).arg(lab.place("coordinator"));
    let said = String::from_utf8_lossy(&revoke.output().unwrap().stdout).into_owned();
    let other = other["agent_id"].as_str().unwrap();
    assert!(said.contains(&format!("({other}), a copy of it, is no host of the fleet any more")), "{said}");
    assert!(!said.contains("was a copy of it, and is still"), "{said}");
    wait_for("both to be out", PATIENCE, || {
        lab.hosts().iter().all(|host| host["connected"] == false).then_some(())
    });
}
