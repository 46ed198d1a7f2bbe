//! Random histories of a real agent on a small real volume, by seeds: others fill it to any degree and leave
//! it again, the agent is killed and started anew, files that nobody knows come, kept ones vanish.
//!
//! What a task that has begun reads is there whatever happens, and in the end each job was reported once: as
//! done, or as given back.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use super::{GIVEN_BACK, Keeper, Kind, agent, as_child, disk, inputs, leave, passes_on, suspended_by};
use crate::daemon::{Daemon, outcome};
use crate::spinning::attach;
use crate::support::wait_for;

/// From which seed on, and how many histories one after the other: `FALLOW_SMALL_DISK_SEED=1
/// FALLOW_SMALL_DISK_HISTORIES=20`.
const SEED: &str = "FALLOW_SMALL_DISK_SEED";
const HISTORIES: &str = "FALLOW_SMALL_DISK_HISTORIES";
/// So many jobs there are.
const JOBS: usize = 12;
/// So many things happen.
const EVENTS: u64 = 14;

struct Draws(u64);

impl Draws {
    fn below(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % most
    }
}

/// What a job reads.
fn input_of(result: &str) -> Option<String> {
    Some(format!("{}_in", result.strip_suffix("_0")?))
}

/// The inputs of tasks that have begun and are not over.
fn needed(dir: &Path) -> BTreeSet<String> {
    let (_, text) = outcome(dir, &["status", "--json"]);
    let status: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
    let tasks = status["tasks"].as_array().cloned().unwrap_or_default();
    let begun = tasks.iter().filter(|task| task["pid"].is_u64());
    let name = |task: &serde_json::Value| input_of(task["name"].as_str()?);
    begun.filter_map(name).collect()
}

fn history(volume: &Path, seed: u64) {
    let mut draws = Draws(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let dir = &volume.join(format!("agent{seed}"));
    let elsewhere = tempfile::tempdir().unwrap();
    let log = elsewhere.path().join("log");
    let script = "sleep 1; cat in >/dev/null || exit 9; \
                  until echo 0 2>/dev/null > boinc_finish_called; do sleep 0.1; done 2>/dev/null";
    let keeper = Keeper::new(script, JOBS);
    let mut daemon = agent(dir, &log);
    disk(dir);
    attach(dir, &keeper.server);
    let mut told = Vec::new();
    for _ in 0..EVENTS {
        let kept = std::fs::read_dir(dir.join("projects")).unwrap().flatten().next();
        match (draws.below(8), kept.map(|entry| entry.path())) {
            (0, _) => {
                // To the last block, or nearly.
                let bytes = draws.below(3) << 20;
                told.push(format!("{bytes} bytes are left"));
                leave(volume, bytes);
            }
            (1 | 2, _) => {
                let bytes = (900 + draws.below(400)) << 20;
                told.push(format!("{bytes} bytes are left"));
                leave(volume, bytes);
            }
            (3 | 4, _) => {
                told.push("others go".to_owned());
                let _ = std::fs::remove_file(volume.join("fill"));
            }
            (5, _) => {
                told.push("the agent is killed".to_owned());
                daemon.kill();
                drop(daemon);
                // One that begins on a volume without any space says so and ends.
                let _ = std::fs::remove_file(volume.join("fill"));
                daemon = agent(dir, &log);
            }
            (6, Some(project)) => {
                told.push("a file comes that nobody knows".to_owned());
                let _ = std::fs::write(project.join(format!("stray{}", draws.below(3))), [1; 5_000]);
            }
            (7, Some(project)) => {
                // One that is kept, and that no job needs any more.
                let mut over = keeper.reports().into_iter().filter_map(|report| input_of(&report.name));
                if let Some(name) = over.find(|name| project.join(name).exists()) {
                    told.push(format!("{name} vanishes"));
                    let _ = std::fs::remove_file(project.join(name));
                }
            }
            _ => {}
        }
        // Time for some looks of the agent's, whatever they find.
        for _ in 0..4 {
            std::thread::sleep(Duration::from_millis(400));
            let (before, here) = (needed(dir), inputs(dir));
            let still = needed(dir);
            for name in before.intersection(&still) {
                assert!(here.contains(name), "seed {seed}: {name} is gone, and a task needs it: {told:#?}");
            }
        }
    }
    let _ = std::fs::remove_file(volume.join("fill"));
    wait_for("work again", || suspended_by(dir).is_null().then_some(()));
    let reported = || {
        let mut reported: BTreeMap<String, BTreeSet<i32>> = BTreeMap::new();
        for report in keeper.reports() {
            reported.entry(report.name).or_default().insert(report.exit_status);
        }
        reported
    };
    wait_for("all jobs", || (reported().len() == JOBS).then_some(()));
    let reported = reported();
    let is_right =
        |statuses: &BTreeSet<i32>| [0, GIVEN_BACK].map(|status| [status].into()).contains(statuses);
    assert!(reported.values().all(is_right), "seed {seed}: {reported:?} {told:#?}");
    let found = disk(dir);
    assert!(found["used"].as_u64() <= found["limit"].as_u64(), "seed {seed}: {found}");
    end(daemon, dir);
}

fn end(daemon: Daemon, dir: &Path) {
    outcome(dir, &["stop"]);
    drop(daemon);
    let _ = std::fs::remove_dir_all(dir);
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

fn child_lives(volume: &Path) {
    let (first, count) = (number(SEED).unwrap_or(1), number(HISTORIES).unwrap_or(1));
    for seed in first..first + count {
        let why = std::panic::catch_unwind(|| history(volume, seed));
        if let Err(why) = why {
            println!(
                "replay: {SEED}={seed} {HISTORIES}=1 cargo test -p fallow-agent --test agent small_disk::histories"
            );
            std::panic::resume_unwind(why);
        }
    }
}

#[test]
fn child_living() {
    as_child(child_lives);
}

#[test]
fn r4_12_on_a_tmpfs_no_task_loses_what_it_reads_and_each_job_is_reported_whatever_happens() {
    passes_on(Kind::Tmpfs, 1_300, "small_disk::histories::child_living");
}

#[test]
fn r4_12_on_an_ext4_no_task_loses_what_it_reads_and_each_job_is_reported_whatever_happens() {
    passes_on(Kind::Ext4, 1_300, "small_disk::histories::child_living");
}
