//! Two fleets side by side, with the same jobs, whose hosts are off now and then: one follows the default
//! policies, the other those that were published. Real processes, real sockets, real deadlines.
//!
//! Hours are seconds here: eight seconds stand for an hour of a lab. Jobs take an hour, their deadline is
//! after six, the buffer is the default's 8.4 hours, and hosts are on for five to nine hours and then off for
//! half an hour, as by a power cut: the agent and all that it runs are killed, and started again later. When
//! that happens is drawn from a seed and is the same for both fleets. It is no waiting for luck: nothing is
//! hoped to have happened by then.
//!
//! What does not shrink with the rest are lengths of the policies themselves: WF3 looks five minutes ahead,
//! on-time is learned in half hours, and no job is given up before a host has been there for half an hour. So
//! here WS3 makes the difference: it holds back what could only be in time if the host were never off,
//! although it knows nothing of the host's hours yet.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "tests: failures are panics"
)]

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use fallow_e2e::{PATIENCE, command, fallow_json, processes_in, wait_for};
use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

/// Of each fleet, with one CPU each.
const AGENTS: usize = 6;
/// More than all hosts of a fleet could do meanwhile.
const JOBS: usize = 300;
/// For so long hosts go off and on.
const SPAN: Duration = Duration::from_secs(130);
/// What is computed before, so that all know how long jobs take: jobs of a second, for each host more than
/// enough.
const LESSONS: usize = 72;
/// What CPUs of today do in a second.
const FLOPS: f64 = 5e9;
/// A job sleeps so often for [`STEP_SECS`], and makes a checkpoint each time. It sleeps, so that a few CPUs
/// run all agents; and for less than ten seconds, since a client learns from longer ones how much of its time
/// a job computes.
const STEPS: u32 = 4;
const STEP_SECS: u32 = 2;
/// From when a job is sent.
const DEADLINE: &str = "48s";
const BUFFER_MIN: &str = "19s";
const BUFFER_ADDITIONAL: &str = "48s";
/// Milliseconds for which a host is on or off, at least and at most.
const ON: (u64, u64) = (40_000, 70_000);
const OFF: (u64, u64) = (3_000, 6_000);
const SEED: u64 = 31;
/// At least a quarter less is to be wasted. Where machines have time for all these processes, hardly anything
/// is.
const LESS: f64 = 0.75;

#[test]
fn r5_31_hosts_that_are_off_now_and_then_waste_less_by_the_default_than_by_what_was_published() {
    // Jobs sleep in seconds of the clock: where the machine stands still for some, nothing is shown.
    let [ours, published] = (0..3).find_map(|_| trial()).expect("the machine keeps no time");
    assert!(ours.wasted() < LESS * published.wasted(), "less is wasted");
    // Where others take the CPUs, some jobs more or less are at the wrong side of the span's end.
    assert!(ours.in_time * 10 > published.in_time * 9, "and it is not that fewer are in time");
    assert!(ours.idle() < published.idle() + 0.05, "nor that hosts idle");
}

/// What became of the jobs of two fleets whose hosts go off and on at the same times. None where that came
/// late.
fn trial() -> Option<[Found; 2]> {
    let mut ours = Fleet::start("default", &[]);
    let mut published = Fleet::start("published", &["send=WS2,ws2=published"]);
    [&ours, &published].iter().for_each(|fleet| fleet.submit(LESSONS, 1, 1, "1h"));
    [&ours, &published].iter().for_each(|fleet| fleet.learn());
    let switches = switches(SEED);
    [&ours, &published].iter().for_each(|fleet| fleet.submit(JOBS, STEPS, STEP_SECS, DEADLINE));
    let begin = Instant::now();
    println!("seed {SEED}; a host goes off or on after so many seconds:");
    for (host, each) in switches.iter().enumerate() {
        let seconds: Vec<String> = each.iter().map(|at| format!("{:.1}", at.as_secs_f64())).collect();
        println!("{host}: {}", seconds.join(" "));
    }
    let mut all: Vec<(Duration, usize)> =
        switches.iter().enumerate().flat_map(|(host, each)| each.iter().map(move |at| (*at, host))).collect();
    all.sort_unstable();
    let mut late = Duration::ZERO;
    for (at, host) in all {
        std::thread::sleep((begin + at).saturating_duration_since(Instant::now()));
        late = late.max((begin + at).elapsed());
        [&mut ours, &mut published].into_iter().for_each(|fleet| fleet.switch(host));
    }
    std::thread::sleep((begin + SPAN).saturating_duration_since(Instant::now()));
    let found = [&mut ours, &mut published].map(|fleet| {
        fleet.stop();
        let found = fleet.found(begin);
        println!("{}: {found:.0?}, wasted {:.2}, idle {:.2}", fleet.policy, found.wasted(), found.idle());
        found
    });
    println!("a host went off or on {:.1} s late at most", late.as_secs_f64());
    (late < Duration::from_secs(2)).then_some(found)
}

/// When each host goes off, on, off, ... By turns, from the beginning of the span.
fn switches(mut seed: u64) -> Vec<Vec<Duration>> {
    let mut between = |(least, most): (u64, u64)| {
        // Knuth's MMIX generator.
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        Duration::from_millis(least + (seed >> 33) % (most - least))
    };
    let mut of_host = || {
        let mut at = vec![between((0, ON.1))];
        while let Some(last) = at.last().filter(|last| **last < SPAN) {
            let next = *last + between(if at.len() % 2 == 1 { OFF } else { ON });
            at.push(next);
        }
        at.pop();
        at
    };
    (0..AGENTS).map(|_| of_host()).collect()
}

/// What became of jobs that were begun. Seconds are those that they slept.
#[derive(Debug, Default)]
struct Found {
    in_time: u32,
    /// Or never returned.
    late: u32,
    /// Neither, for their deadline has not passed yet.
    open: u32,
    seconds_in_time: u32,
    seconds_late: u32,
    seconds_open: u32,
    /// For which hosts were on.
    seconds_on: f64,
}

impl Found {
    /// The part of what was computed, as far as it is known what became of it.
    fn wasted(&self) -> f64 {
        f64::from(self.seconds_late) / f64::from(self.seconds_late + self.seconds_in_time)
    }

    /// The part of the time for which hosts were on.
    fn idle(&self) -> f64 {
        let computed = self.seconds_in_time + self.seconds_late + self.seconds_open;
        1.0 - f64::from(computed) / self.seconds_on
    }
}

/// A coordinator with a project, and agents that have asked it for work in vain. Dropped, all processes are
/// killed.
struct Fleet {
    policy: &'static str,
    dir: TempDir,
    coordinator: Child,
    /// Those that are on, and since when.
    agents: Vec<Option<(Child, Instant)>>,
    /// When each was on.
    on: Vec<(Instant, Instant)>,
}

impl Fleet {
    fn start(policy: &'static str, settings: &[&str]) -> Self {
        let dir = tempfile::Builder::new().prefix("fallow-e2e-").tempdir().unwrap();
        let coordinator = spawn(dir.path(), "coordinator", command("fallow").args(["coordinator", "run"]));
        let agents = (0..AGENTS).map(|_| None).collect();
        let mut fleet = Self { policy, dir, coordinator, agents, on: Vec::new() };
        wait_for("the coordinator to answer", PATIENCE, || {
            let mut ask = command("fallow");
            ask.args(["projects", "--json", "--dir"]).arg(fleet.dir.path()).stderr(Stdio::null());
            ask.output().unwrap().status.success().then_some(())
        });
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        let fraction = format!("{}%", 100.0 / cpus as f64);
        let buffer = ["--buffer-min", BUFFER_MIN, "--buffer-additional", BUFFER_ADDITIONAL];
        fleet.json(&[&["preferences", "set", "--cpu-fraction", &fraction][..], &buffer].concat());
        fleet.json(&["project", "create", "lab", "--request-delay", "1s"]);
        if !settings.is_empty() {
            fleet.json(&[&["project", "set", "lab"][..], settings].concat());
        }
        let program = fleet.path("nap");
        fs::write(&program, nap(&fleet.path("slept"))).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        fleet.json(&["app", "add", "lab", "nap", program.to_str().unwrap(), "--version", "1.0"]);
        for host in 0..AGENTS {
            let mut create = command("fallow");
            let made = create.args(["tokens", "create", "--dir"]).arg(fleet.dir.path()).output().unwrap();
            fs::write(fleet.path(&format!("token-{host}")), made.stdout).unwrap();
            fleet.switch(host);
        }
        wait_for("every agent to ask in vain", PATIENCE, || {
            let has_asked = |host| {
                let log = fs::read_to_string(fleet.path(&format!("agent-{host}.log")));
                log.is_ok_and(|log| log.contains("asked for work"))
            };
            (0..AGENTS).all(has_asked).then_some(())
        });
        fleet
    }

    /// Jobs that sleep so often for so many seconds.
    fn submit(&self, jobs: usize, steps: u32, secs: u32, deadline: &str) {
        let flops = FLOPS * f64::from(steps * secs);
        // A workunit does not fail however often it is late.
        let workunit = format!(
            "[[workunits]]\napplication = \"nap\"\ncommand_line = \"{steps} {secs}\"\nflops = {flops:e}\n\
             deadline = \"{deadline}\"\nmax_error_jobs = 50\nmax_total_jobs = 100\n"
        );
        let file = self.path(&format!("batch-{jobs}.toml"));
        fs::write(&file, workunit.repeat(jobs)).unwrap();
        self.json(&["submit", "lab", "--file", file.to_str().unwrap()]);
    }

    /// Until all that was submitted is computed. It does not count.
    fn learn(&self) {
        wait_for("the first jobs to end", PATIENCE, || {
            (self.json(&["projects"])["projects"][0]["workunits_validated"] == LESSONS).then_some(())
        });
        File::create(self.path("slept")).unwrap();
    }

    /// A host that is off goes on, and one that is on goes off.
    fn switch(&mut self, host: usize) {
        let Some((mut agent, since)) = self.agents[host].take() else {
            let mut run = command("fallow-agent");
            // Its jobs say in a file of the test's how far they are.
            run.args(["run", "--unconfined", "--policy", self.policy, "--token-file"]);
            // The CPUs are not measured meanwhile: that suspends all tasks.
            run.arg(self.path(&format!("token-{host}"))).args(["--benchmark-after-ms", "3600000"]);
            let agent = spawn(self.dir.path(), &format!("agent-{host}"), &mut run);
            self.agents[host] = Some((agent, Instant::now()));
            return;
        };
        agent.kill().unwrap();
        agent.wait().unwrap();
        wait_for("all that an agent runs to end", PATIENCE, || {
            let left = processes_in(&self.path(&format!("agent-{host}")));
            left.iter().for_each(|process| process.signal(Signal::KILL));
            left.is_empty().then_some(())
        });
        self.on.push((since, Instant::now()));
    }

    /// All hosts go off.
    fn stop(&mut self) {
        for host in 0..AGENTS {
            if self.agents[host].is_some() {
                self.switch(host);
            }
        }
    }

    /// What became of the jobs: by what they wrote down themselves, and by when the server had sent them and
    /// got them back.
    fn found(&self, begin: Instant) -> Found {
        let on = self.on.iter().map(|(from, to)| to.saturating_duration_since(begin.max(*from)));
        let mut found = Found { seconds_on: on.sum::<Duration>().as_secs_f64(), ..Found::default() };
        let mut slept: BTreeMap<String, u32> = BTreeMap::new();
        for job in fs::read_to_string(self.path("slept")).unwrap().lines() {
            *slept.entry(job.to_owned()).or_default() += STEP_SECS;
        }
        for workunit in self.json(&["jobs", "lab"])["workunits"].as_array().unwrap() {
            for job in workunit["jobs"].as_array().unwrap() {
                let Some(seconds) = slept.remove(job["name"].as_str().unwrap()) else { continue };
                let [received, deadline] = [&job["received_at"], &job["deadline"]].map(in_order);
                if job["outcome"] == "success" && received <= deadline {
                    found.in_time += 1;
                    found.seconds_in_time += seconds;
                } else if job["state"] == "in progress" {
                    found.open += 1;
                    found.seconds_open += seconds;
                } else {
                    found.late += 1;
                    found.seconds_late += seconds;
                }
            }
        }
        assert!(slept.is_empty(), "the server does not know {slept:?}");
        found
    }

    fn json(&self, arguments: &[&str]) -> Value {
        fallow_json(self.dir.path(), arguments)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        // Daemons first, so that nobody starts another task.
        let agents = self.agents.iter_mut().flatten().map(|(agent, _)| agent);
        for daemon in agents.chain([&mut self.coordinator]) {
            drop(daemon.kill());
            drop(daemon.wait());
        }
        processes_in(self.dir.path()).iter().for_each(|process| process.signal(Signal::KILL));
    }
}

/// Starts a daemon in a directory of this name, with its log beside it.
fn spawn(dir: &Path, name: &str, daemon: &mut Command) -> Child {
    let log = File::options().append(true).create(true).open(dir.join(format!("{name}.log"))).unwrap();
    daemon.arg("--dir").arg(dir.join(name)).stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap()
}

/// An instant as a text that is in order: `2026-11-24T03:41:50.5Z` with all its digits.
fn in_order(instant: &Value) -> String {
    let text = instant.as_str().unwrap().trim_end_matches('Z');
    let (second, fraction) = text.split_once('.').unwrap_or((text, ""));
    format!("{second}.{fraction:0<9}")
}

/// A script that sleeps so often for so many seconds, and writes its job's name to a file after each step.
/// What it has done it finds in its checkpoint.
fn nap(slept: &Path) -> String {
    format!(
        "#!/bin/sh
job=$(sed -n 's:.*<result_name>\\(.*\\)</result_name>.*:\\1:p' init_data.xml)
echo start >>checkpoint
step=$(grep -c done checkpoint)
while [ \"$step\" -lt \"$1\" ]; do
    sleep \"$2\"
    echo \"$job\" >>{}
    echo done >>checkpoint
    step=$((step + 1))
done
echo 0 >boinc_finish_called
",
        slept.display()
    )
}
