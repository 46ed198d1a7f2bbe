//! A host with a CPU and a GPU, and two projects with equal shares, one of which has jobs for GPUs only:
//! real processes, with a stand-in for the driver's library (R3.13).
//!
//! Some jobs only; `FALLOW_GPU_JOBS=400 cargo test -p fallow-e2e --test gpu_shares -- --nocapture` takes ten
//! minutes, and comes nearer.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "tests: failures are panics")]
#![allow(clippy::disallowed_methods, reason = "how many jobs there are comes from outside")]

use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use fallow_e2e::{Lab, PATIENCE, wait_for};
use serde_json::Value;

#[path = "../../agent/tests/agent/gpus/stand_in.rs"]
mod stand_in;
use stand_in::StandIn;

const GPU_ONLY: &str = "gpu-only";
const BOTH: &str = "both";

/// Says where it ran, from when to when. Its version for GPUs is told a device.
const JOB: &str = r#"#!/bin/sh
place() { sed -n 's:.*<soft_link>\(.*\)</soft_link>.*:\1:p' "$1"; }
on=cpu
[ "$1" != --device ] || on=gpu
from=$(date +%s.%N)
sleep 1
echo "$on $from $(date +%s.%N)" >"$(place out)"
echo 0 >boinc_finish_called
"#;

/// A device of compute capability 2.0 with one multiprocessor, whose 32 cores do two operations in a cycle,
/// at so many MHz.
fn device(mhz: f64) -> String {
    format!("gpu 1 2 0 {mhz:.0} 32 4096 Stand-in\n")
}

const FLOPS_AT_ONE_MHZ: f64 = 64e6;

/// What the agent took a CPU's speed to be at its starts.
fn speeds(lab: &Lab) -> Vec<f64> {
    let log = lab.agent_log(1);
    let after = log.split("fpops=").skip(1);
    after.map(|rest| rest.split_whitespace().next().unwrap().parse().unwrap()).collect()
}

/// A job that is over: its project, whether it ran on the GPU, from when to when.
struct Ran {
    project: &'static str,
    on: String,
    from: f64,
    to: f64,
}

fn ran(lab: &Lab) -> Vec<Ran> {
    let of = |project: &'static str| {
        let results = lab.json(&["results", project]);
        let outputs = results["results"].as_array().unwrap().iter().map(|one| &one["outputs"][0]["text"]);
        let read = |text: &Value| {
            let [on, from, to] = text.as_str().unwrap().split_whitespace().collect::<Vec<_>>()[..] else {
                panic!("{text}")
            };
            Ran { project, on: on.to_owned(), from: from.parse().unwrap(), to: to.parse().unwrap() }
        };
        outputs.map(read).collect::<Vec<_>>()
    };
    [of(GPU_ONLY), of(BOTH)].into_iter().flatten().collect()
}

/// Seconds, since both projects had jobs on the GPU.
#[derive(Debug)]
struct Seen {
    gpu_jobs: usize,
    /// Of the project with jobs for GPUs only.
    own: f64,
    own_on_cpu: f64,
    /// Of the other one on the GPU, and on the CPU.
    shared: f64,
    cpu: f64,
    passed: f64,
}

impl Seen {
    fn of(all: &[Ran]) -> Self {
        let began = |project| {
            let of = all.iter().filter(|one| one.project == project && one.on == "gpu");
            of.map(|one| one.from).fold(f64::INFINITY, f64::min)
        };
        let since = began(GPU_ONLY).max(began(BOTH));
        let took = |project: &str, on: &str| -> f64 {
            let of = all.iter().filter(|one| one.project == project && one.on == on && one.from >= since);
            of.map(|one| one.to - one.from).sum()
        };
        Self {
            gpu_jobs: all.iter().filter(|one| one.on == "gpu").count(),
            own: took(GPU_ONLY, "gpu"),
            own_on_cpu: took(GPU_ONLY, "cpu"),
            shared: took(BOTH, "gpu"),
            cpu: took(BOTH, "cpu"),
            passed: all.iter().map(|one| one.to).fold(since, f64::max) - since,
        }
    }

    /// The part of the GPU that the project with jobs for GPUs only had.
    fn part(&self) -> f64 {
        self.own / (self.own + self.shared)
    }
}

/// Many jobs of a second each.
fn submit(lab: &Lab, project: &str, jobs: usize) {
    let job = "[[workunits]]\napplication = 'job'\noutputs = [{ open_name = 'out' }]\nflops = 1e10\n";
    let file = lab.place().with_file_name("batch.toml");
    std::fs::write(&file, job.repeat(jobs)).unwrap();
    lab.json(&["submit", project, "--file", file.to_str().unwrap()]);
}

#[test]
fn r3_13_a_project_with_gpu_jobs_only_gets_three_quarters_of_a_gpu_twice_as_fast_as_the_cpu() {
    let jobs = std::env::var("FALLOW_GPU_JOBS").ok().and_then(|jobs| jobs.parse().ok()).unwrap_or(60);
    let stand_in = StandIn::telling(&device(100.0));
    let library = stand_in.library();
    let mut lab = Lab::start_with(1, move |run| {
        run.arg("--nvml-library").arg(&library).env("FALLOW_LOG", "info,fallow_agent::engine=debug");
    });
    // How fast the CPU is, is known by then: the device is twice as fast as it from the next start on.
    let mhz = 2.0 * speeds(&lab)[0] / FLOPS_AT_ONE_MHZ;
    stand_in.tell(&device(mhz));
    lab.kill_agent(1);
    lab.start_agent(1);
    let fpops = wait_for("the agent to say how fast it is", PATIENCE, || speeds(&lab).get(1).copied());
    // One CPU, and a few jobs at once, so that the next request is never far.
    lab.json(&[
        "preferences",
        "set",
        "--cpu-fraction",
        "1%",
        "--buffer-min",
        "8s",
        "--buffer-additional",
        "4s",
    ]);
    let program = lab.place().with_file_name("job");
    std::fs::write(&program, JOB).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    for project in [GPU_ONLY, BOTH] {
        lab.json(&["project", "create", project, "--request-delay", "1s"]);
        lab.json(&[
            "app",
            "add",
            project,
            "job",
            program.to_str().unwrap(),
            "--version",
            "1.0",
            "--uses",
            "nvidia=1,cpu=0.05",
        ]);
    }
    lab.json(&["app", "add", BOTH, "job", program.to_str().unwrap(), "--version", "1.0"]);
    submit(&lab, GPU_ONLY, 3 * jobs);
    submit(&lab, BOTH, 6 * jobs);

    let patience = PATIENCE + Duration::from_secs(5) * u32::try_from(jobs).unwrap();
    // Both have half of all; 0.75 where the GPU is just twice as fast, but the look at a CPU is a short one.
    let ratio = mhz.round() * FLOPS_AT_ONE_MHZ / fpops;
    let expected = ((1.0 + ratio) / (2.0 * ratio)).min(1.0);
    // A few jobs of a second each decide to whom the next one belongs. Where others take the CPUs for a
    // while, some take much longer than they compute: then it takes more of them, of which there are twice as
    // many.
    let tolerance = 0.02 + 2.0 / jobs as f64;
    let seen = wait_for("so many jobs of the GPU", patience, || {
        let seen = Seen::of(&ran(&lab));
        let is_near = (seen.part() - expected).abs() < tolerance;
        (seen.gpu_jobs >= 2 * jobs || seen.gpu_jobs >= jobs && is_near).then_some(seen)
    });
    println!(
        "a GPU {ratio:.3} times as fast as the CPU; {:.1} % of it for {GPU_ONLY}, where {:.1} % are to be expected; {seen:?}",
        100.0 * seen.part(),
        100.0 * expected
    );
    assert_eq!(seen.own_on_cpu, 0.0);
    assert!((seen.part() - expected).abs() < tolerance, "{} of the GPU", seen.part());
    // The job takes a second; where others take the CPUs, its start and its end as long again and more.
    assert!(seen.cpu > 0.2 * seen.passed, "{seen:?}");
}
