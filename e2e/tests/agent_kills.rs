//! Agents that are killed at random moments of a run of many jobs, each of which is a tree of processes
//! (R6.1, R6.10): every job finishes exactly once, and nothing is left of it.
//!
//! Some kills only; `FALLOW_KILLS=1000 cargo test -p fallow-e2e --test agent_kills -- --nocapture` does it a
//! thousand times in some twenty minutes, and says what happened. `FALLOW_SEED` draws other moments.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "tests: failures are panics")]
#![allow(clippy::disallowed_methods, reason = "the moments are random, and how many comes from outside")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use fallow_e2e::{Lab, PATIENCE, Process, wait_for};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use rustix::process::Signal;
use serde_json::Value;

const AGENTS: usize = 4;
/// A job's steps, with a checkpoint after each.
const STEPS: u32 = 5;

fn of_environment(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(default)
}

/// A job: a child, a grandchild, and a daemon in a session of its own, forked twice, with nothing in its
/// environment and another name, which tries to take off the number that it is known by. All of them have
/// `token` in their command lines. It sleeps [`STEPS`] times, and writes its input and how far it has come.
fn tree(token: &str) -> String {
    let prlimit = if cfg!(target_arch = "aarch64") { 261 } else { 302 };
    format!(
        r#"#!/bin/sh
place() {{ sed -n 's:.*<soft_link>\(.*\)</soft_link>.*:\1:p' "$1"; }}
sh -c 'sleep 1000 & wait' {token} &
perl -e 'sleep 1000' {token} &
setsid env -i perl -e 'fork and exit; syscall({prlimit}, 0, 10, pack("QQ", 5, 5), 0); chdir "/"; $0 = "{token} daemon"; sleep 1000' &
step=0
[ ! -f checkpoint ] || step=$(cat checkpoint)
while [ "$step" -lt {STEPS} ]; do
    perl -e 'select undef, undef, undef, 0.2' {token}
    step=$((step + 1))
    echo "$step" >checkpoint.new && mv checkpoint.new checkpoint
done
echo "$(cat "$(place in)") $step" >"$(place out)"
echo 0 >boinc_finish_called
"#
    )
}

/// What these agents and their jobs do, and what happened to them.
struct Run {
    lab: Lab,
    token: String,
    rng: StdRng,
    kills: BTreeMap<&'static str, u32>,
    /// All processes that were agents.
    agents: BTreeSet<u32>,
}

impl Run {
    fn start(seed: u64, jobs: u64) -> Self {
        let lab = Lab::start(AGENTS);
        let token = format!("fallow-kills-{}-{seed}", std::process::id());
        let program = lab.place().with_file_name("tree");
        fs::write(&program, tree(&token)).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        lab.json(&["app", "add", "sums", "tree", program.to_str().unwrap(), "--version", "1.0"]);
        let workunit = |number| {
            format!(
                "[[workunits]]\nname = \"w{number}\"\napplication = \"tree\"\nflops = 1e9\n\
                 inputs = [{{ open_name = \"in\", text = \"{number}\" }}]\noutputs = [{{ open_name = \"out\" }}]\n"
            )
        };
        let batch = lab.place().with_file_name("batch.toml");
        fs::write(&batch, (0..jobs).map(workunit).collect::<String>()).unwrap();
        lab.json(&["submit", "sums", "--file", batch.to_str().unwrap()]);
        Self { lab, token, rng: StdRng::seed_from_u64(seed), kills: BTreeMap::new(), agents: BTreeSet::new() }
    }

    /// Processes of jobs, as they were when one looked.
    fn of_jobs(&self) -> Vec<Process> {
        let pids = fs::read_dir("/proc").unwrap().flatten();
        let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let all = pids.filter_map(Process::read).filter(|process| !process.zombie);
        all.filter(|process| process.command.contains(&self.token)).collect()
    }

    /// Kills an agent, and its guard with it one time in three.
    fn kill(&mut self, number: usize) {
        let Some(pid) = self.lab.agent(number) else { panic!("{}", self.log_end(number)) };
        self.agents.insert(pid);
        let with_guard = self.rng.random_range(0..3) == 0;
        let guard = children(pid).into_iter().find(|child| child.command.contains(" guard "));
        self.lab.kill_agent(number);
        if let Some(guard) = guard.filter(|_| with_guard) {
            guard.signal(Signal::KILL);
            *self.kills.entry("with its guard").or_default() += 1;
        } else {
            *self.kills.entry("alone").or_default() += 1;
        }
    }

    fn log_end(&self, number: usize) -> String {
        let log = self.lab.agent_log(number);
        let from = log.char_indices().rev().nth(6_000).map_or(0, |(at, _)| at);
        format!("agent {number} has ended by itself; its log ends so:\n{}", &log[from..])
    }

    fn jobs(&self) -> Vec<Value> {
        self.lab.json(&["jobs", "sums"])["workunits"].as_array().unwrap().clone()
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        (1..=AGENTS).for_each(|number| self.lab.kill_agent(number));
        self.of_jobs().iter().for_each(|process| process.signal(Signal::KILL));
    }
}

fn children(of: u32) -> Vec<Process> {
    let tasks = fs::read_dir(format!("/proc/{of}/task")).into_iter().flatten().flatten();
    let lists = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    let pids: Vec<u32> = lists
        .flat_map(|list| list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>())
        .collect();
    pids.into_iter().filter_map(Process::read).collect()
}

/// What lies in a directory, but for some names.
fn left_in(dir: &Path, but: &[&str]) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path());
    let is_left = |path: &PathBuf| !but.iter().any(|name| path.ends_with(name));
    entries.filter(is_left).collect()
}

/// Jobs that an agent began again after they were finished.
fn computed_again(log: &str) -> Vec<String> {
    let (mut finished, mut again) = (BTreeSet::new(), Vec::new());
    for line in log.lines() {
        let name_after =
            |word: &str| line.split_once(word).and_then(|(_, rest)| rest.split_whitespace().next());
        if let Some(name) = name_after(": finished ") {
            finished.insert(name.to_owned());
        }
        let begun = name_after(": starting ").or_else(|| name_after(": resuming "));
        again.extend(begun.filter(|name| finished.contains(*name)).map(str::to_owned));
    }
    again
}

/// All System V memory of this machine by its number, and who made it. Other agents make some, too.
fn memory() -> BTreeMap<u32, u32> {
    let all = fs::read_to_string("/proc/sysvipc/shm").unwrap_or_default();
    let field = |line: &str, number| line.split_whitespace().nth(number)?.parse().ok();
    all.lines().skip(1).filter_map(|line| Some((field(line, 1)?, field(line, 4)?))).collect()
}

/// Control groups with our name.
fn groups() -> Vec<PathBuf> {
    let mut groups = left_in(Path::new("/sys/fs/cgroup"), &[]);
    groups.retain(|path| path.is_dir() && path.to_string_lossy().contains("fallow"));
    groups
}

#[test]
fn r6_1_agents_that_are_killed_again_and_again_finish_every_job_exactly_once_and_leave_nothing() {
    let (kills, seed) = (of_environment("FALLOW_KILLS", 40), of_environment("FALLOW_SEED", 11));
    let before = (memory(), groups());
    let jobs = 20 + 2 * kills;
    let mut run = Run::start(seed, jobs);
    println!("seed {seed}: {kills} kills of {AGENTS} agents, {jobs} jobs");
    let begin = Instant::now();
    // When each agent is killed next, or started again.
    let mut next: Vec<Instant> = vec![begin; AGENTS];
    let mut killed = 0;
    while killed < kills {
        let number = (1..=AGENTS).min_by_key(|number| next[number - 1]).unwrap();
        std::thread::sleep(next[number - 1].saturating_duration_since(Instant::now()));
        let pause = if run.lab.agent(number).is_some() {
            run.kill(number);
            killed += 1;
            // One in ten is away for longer than its guard waits.
            if run.rng.random_range(0..10) == 0 { 13_000 } else { run.rng.random_range(0..500) }
        } else {
            run.lab.start_agent(number);
            // Mostly in the midst of jobs; at times of its start.
            if run.rng.random_range(0..4) == 0 {
                run.rng.random_range(0..400)
            } else {
                run.rng.random_range(400..5_000)
            }
        };
        next[number - 1] = Instant::now() + Duration::from_millis(pause);
        if killed.is_multiple_of(50) && run.lab.agent(number).is_none() {
            println!("{killed} kills after {:.0?}: {:?}", begin.elapsed(), tally(&run.jobs()));
        }
    }
    for number in 1..=AGENTS {
        if run.lab.agent(number).is_none() {
            run.lab.start_agent(number);
        }
    }
    println!("{:?} in {:.0?}; jobs: {:?}", run.kills, begin.elapsed(), tally(&run.jobs()));
    wait_for("all jobs to be validated", PATIENCE + Duration::from_secs(jobs), || {
        let project = run.lab.json(&["projects"])["projects"][0].clone();
        assert_eq!(project["workunits_failed"], 0, "{project}");
        (project["workunits_validated"] == jobs).then_some(())
    });
    check(&mut run, jobs, &before);
    println!("all gone after {:.0?}: {:?}", begin.elapsed(), tally(&run.jobs()));
}

/// How many jobs there are of each state and outcome.
fn tally(workunits: &[Value]) -> BTreeMap<String, usize> {
    let mut tally = BTreeMap::new();
    for job in workunits.iter().flat_map(|workunit| workunit["jobs"].as_array().unwrap()) {
        let word = |key: &str| job[key].as_str().unwrap_or("-").to_owned();
        *tally.entry(format!("{} {}", word("state"), word("outcome"))).or_default() += 1;
    }
    tally
}

fn check(run: &mut Run, jobs: u64, (memory_before, groups_before): &(BTreeMap<u32, u32>, Vec<PathBuf>)) {
    let workunits = run.jobs();
    assert_eq!(workunits.len() as u64, jobs);
    for workunit in &workunits {
        let outcomes: Vec<&Value> =
            workunit["jobs"].as_array().unwrap().iter().map(|job| &job["outcome"]).collect();
        let of = |outcome: &str| outcomes.iter().filter(|other| **other == outcome).count();
        assert_eq!((of("success"), of("error")), (1, 0), "{workunit}");
    }
    let results = run.lab.json(&["results", "sums"])["results"].as_array().unwrap().clone();
    let mut found: Vec<String> =
        results.iter().map(|result| result["outputs"][0]["text"].as_str().unwrap().to_owned()).collect();
    let mut right: Vec<String> = (0..jobs).map(|number| format!("{number} {STEPS}\n")).collect();
    found.sort();
    right.sort();
    assert_eq!(found, right);
    for number in 1..=AGENTS {
        let Some(pid) = run.lab.agent(number) else { panic!("{}", run.log_end(number)) };
        run.agents.insert(pid);
    }
    everything_goes(run);
    assert_eq!(run.of_jobs(), [], "processes are left");
    let mut memory = memory();
    memory.retain(|number, maker| run.agents.contains(maker) && !memory_before.contains_key(number));
    assert_eq!(memory, BTreeMap::new(), "System V memory is left");
    assert_eq!(&groups(), groups_before, "control groups are left");
    for number in 1..=AGENTS {
        assert_eq!(computed_again(&run.lab.agent_log(number)), Vec::<String>::new(), "agent {number}");
    }
}

/// What is acknowledged goes, also where a kill came between the decision and the deletion (R4.12): long
/// before the hour in which what nobody owns would go. Some agents have yet to hear that their last reports
/// arrived.
fn everything_goes(run: &Run) {
    let begin = Instant::now();
    let left = || (1..=AGENTS).flat_map(|number| left(&run.lab.agent_place(number))).collect::<Vec<_>>();
    while !left().is_empty() {
        assert!(begin.elapsed() < 3 * PATIENCE, "this is left of jobs: {:#?}", left());
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// What is left of jobs in an agent's directory.
fn left(dir: &Path) -> Vec<PathBuf> {
    let mut left = left_in(&dir.join("slots"), &[]);
    left.extend(left_in(&dir.join("trash"), &[]));
    for project in left_in(&dir.join("projects"), &[]) {
        left.extend(left_in(&project.join(".partial"), &[]));
        let is_program = |path: &PathBuf| path.file_name().unwrap().to_string_lossy().starts_with("tree");
        left.extend(left_in(&project, &[".partial"]).into_iter().filter(|path| !is_program(path)));
    }
    left.extend(left_in(dir, &[]).into_iter().filter(|path| path.to_string_lossy().ends_with(".new")));
    left
}
