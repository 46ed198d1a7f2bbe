//! A fleet of thirty agents, and a batch that three of them could hold: real processes, default preferences.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "tests: failures are panics"
)]

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use fallow_e2e::{PATIENCE, command, fallow_json, processes_in, wait_for};
use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

const AGENTS: usize = 30;
const JOBS: u64 = 600;
/// How long a job takes. It sleeps, and for much longer than it takes to start it: a few CPUs run all agents,
/// and else who computes most would be for the system's scheduler to say.
const SECONDS: &str = "3";
/// What a CPU of today does in 48 seconds: estimates are sixteen times too long.
const FLOPS: &str = "216e9";
/// An even part is 20 jobs. If no host computes more than this, the batch ends 20 times sooner than on one.
const MOST: u64 = 30;

#[test]
fn r6_8_a_small_batch_is_computed_by_the_whole_fleet_and_no_host_hoards_it() {
    let fleet = Fleet::start();
    let batch: String = (0..JOBS).map(|_| workunit()).collect();
    fs::write(fleet.path("batch.toml"), batch).unwrap();
    let begin = Instant::now();
    fleet.json(&["submit", "batch", "--file", fleet.path("batch.toml").to_str().unwrap()]);
    wait_for("the batch to end", 5 * PATIENCE, || {
        let project = fleet.json(&["projects"])["projects"][0].clone();
        assert_eq!(project["workunits_failed"], 0, "{project}");
        (project["workunits_validated"] == JOBS).then_some(())
    });
    let took = begin.elapsed();
    let finished = wait_for("agents to tell what they have computed", PATIENCE, || {
        let hosts = fleet.json(&["hosts"])["hosts"].as_array()?.clone();
        let each: Option<Vec<u64>> = hosts.iter().map(|host| host["jobs_finished"].as_u64()).collect();
        each.filter(|each| each.iter().sum::<u64>() == JOBS)
    });
    let most = finished.iter().max().copied().unwrap_or_default();
    println!("the batch ended after {took:.1?}; jobs of each host: {finished:?}");
    println!(
        "by its jobs, the busiest host ended {:.1} times sooner than one alone",
        JOBS as f64 / most as f64
    );
    assert_eq!(finished.len(), AGENTS);
    assert!(finished.iter().all(|jobs| *jobs > 0), "some have none: {finished:?}");
    assert!(most <= MOST, "some hoard: {finished:?}");
}

fn workunit() -> String {
    format!("[[workunits]]\napplication = \"nap\"\nflops = {FLOPS}\n")
}

/// A coordinator with a project, and agents of one CPU each that have asked it for work in vain. Dropped, all
/// processes are killed.
struct Fleet {
    dir: TempDir,
    daemons: Vec<Child>,
}

impl Fleet {
    fn start() -> Self {
        let dir = tempfile::Builder::new().prefix("fallow-e2e-").tempdir().unwrap();
        let mut fleet = Self { dir, daemons: Vec::new() };
        fleet.run("coordinator", command("fallow").args(["coordinator", "run"]));
        wait_for("the coordinator to answer", PATIENCE, || {
            let mut ask = command("fallow");
            ask.args(["projects", "--json", "--dir"]).arg(fleet.dir.path()).stderr(Stdio::null());
            ask.output().unwrap().status.success().then_some(())
        });
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        let fraction = format!("{}%", 100.0 / cpus as f64);
        fleet.json(&["preferences", "set", "--cpu-fraction", &fraction]);
        fleet.json(&["project", "create", "batch"]);
        let program = fleet.path("nap");
        fs::write(&program, format!("#!/bin/sh\nsleep {SECONDS}\necho 0 >boinc_finish_called\n")).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        fleet.json(&["app", "add", "batch", "nap", program.to_str().unwrap(), "--version", "1.0"]);
        for number in 0..AGENTS {
            fleet.enrol(number);
            // Agents give up that get no answer for long.
            if number % 5 == 4 {
                let identity = fleet.path(&format!("agent-{number}/identity.json"));
                wait_for("it to enrol", PATIENCE, || identity.exists().then_some(()));
            }
        }
        wait_for("every agent to ask in vain", PATIENCE, || {
            let has_asked = |number| {
                let log = fs::read_to_string(fleet.path(&format!("agent-{number}.log")));
                log.is_ok_and(|log| log.contains("asked for work"))
            };
            (0..AGENTS).all(has_asked).then_some(())
        });
        fleet
    }

    fn enrol(&mut self, number: usize) {
        let made =
            command("fallow").args(["tokens", "create", "--dir"]).arg(self.dir.path()).output().unwrap();
        let token = self.path(&format!("token-{number}"));
        fs::write(&token, made.stdout).unwrap();
        // The CPUs are not measured meanwhile: that suspends all tasks.
        let run = ["run", "--benchmark-after-ms", "3600000", "--token-file"];
        self.run(&format!("agent-{number}"), command("fallow-agent").args(run).arg(token));
    }

    /// Starts a daemon in a directory of this name, with its log beside it.
    fn run(&mut self, name: &str, daemon: &mut Command) {
        let log = File::create(self.path(&format!("{name}.log"))).unwrap();
        daemon.arg("--dir").arg(self.path(name)).stdout(log.try_clone().unwrap()).stderr(log);
        self.daemons.push(daemon.spawn().unwrap());
    }

    fn json(&self, arguments: &[&str]) -> Value {
        fallow_json(self.dir.path(), arguments)
    }

    fn path(&self, name: &str) -> PathBuf {
        Path::new(self.dir.path()).join(name)
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        // Daemons first, so that nobody starts another task.
        self.daemons.iter_mut().for_each(|daemon| drop(daemon.kill()));
        self.daemons.iter_mut().for_each(|daemon| drop(daemon.wait()));
        processes_in(self.dir.path()).iter().for_each(|process| process.signal(Signal::KILL));
    }
}
