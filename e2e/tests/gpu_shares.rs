//! A host with a CPU and a GPU, and two projects with equal shares, one of which has jobs for GPUs only:
//! real processes, with a stand-in for the driver's library (R3.13).
//!
//! It is judged after a number of jobs that stands before it begins. Some jobs only; `FALLOW_GPU_JOBS=400
//! cargo test -p fallow-e2e --test gpu_shares -- --nocapture` takes ten minutes, and comes nearer.
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

/// Seconds until so many jobs of the GPU had ended.
#[derive(Debug)]
struct Seen {
    /// Of the project with jobs for GPUs only.
    own: f64,
    own_on_cpu: f64,
    /// Of the other one on the GPU, and on the CPU.
    shared: f64,
    cpu: f64,
    passed: f64,
}

impl Seen {
    /// What is to be judged: the first jobs of the GPU that ended, so many, and what had ended on the CPU by
    /// then. None while it is not all there: jobs are told of in the order in which their outputs arrive.
    fn of(all: &[Ran], jobs: usize) -> Option<Self> {
        let mut ends: Vec<f64> = all.iter().filter(|one| one.on == "gpu").map(|one| one.to).collect();
        ends.sort_by(f64::total_cmp);
        ends.get(jobs + LATE - 1)?;
        let end = ends[jobs - 1];
        let took = |project: &str, on: &str| -> f64 {
            let of = all.iter().filter(|one| one.project == project && one.on == on && one.to <= end);
            of.map(|one| one.to - one.from).sum()
        };
        let begin = all.iter().map(|one| one.from).fold(end, f64::min);
        Some(Self {
            own: took(GPU_ONLY, "gpu"),
            own_on_cpu: took(GPU_ONLY, "cpu"),
            shared: took(BOTH, "gpu"),
            cpu: took(BOTH, "cpu"),
            passed: end - begin,
        })
    }

    /// The part of the GPU that the project with jobs for GPUs only had.
    fn part(&self) -> f64 {
        self.own / (self.own + self.shared)
    }
}

/// So many jobs more are waited for, so that none of those before is missing.
const LATE: usize = 8;

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
    let seen = wait_for("so many jobs of the GPU", patience, || Seen::of(&ran(&lab), jobs));
    // Both have half of all that was used; 0.75 where the GPU is just twice as fast, but the look at a CPU is
    // a short one. The CPU was used at least for as long as the jobs there say, and at most all the time:
    // where others take the CPUs, a job's start and its end, of which it says nothing, take as long as it.
    let ratio = mhz.round() * FLOPS_AT_ONE_MHZ / fpops;
    let due = [seen.cpu / seen.passed, 1.0].map(|used| ((used + ratio) / (2.0 * ratio)).min(1.0));
    // The next job of the GPU goes to whom more is due, so that no project is ever ahead by more than a few
    // jobs, however many have run: by the one that was chosen last, by what one on the CPU takes that is not
    // over, and by one that ran because the other project's had not been fetched yet. Who is ahead by a job
    // has one more of so many.
    let tolerance = 3.0 / jobs as f64;
    println!(
        "a GPU {ratio:.3} times as fast as the CPU; of {jobs} jobs' time on it {:.1} % for {GPU_ONLY}, where {:.1} to \
         {:.1} % are due, to {:.1} %; {seen:?}",
        100.0 * seen.part(),
        100.0 * due[0],
        100.0 * due[1],
        100.0 * tolerance,
    );
    assert_eq!(seen.own_on_cpu, 0.0);
    let may = due[0] - tolerance..=due[1] + tolerance;
    assert!(may.contains(&seen.part()), "{} of the GPU, where {may:?} may be", seen.part());
    // Else it would not be told from half and half.
    assert!(seen.cpu > 0.2 * seen.passed && *may.start() > 0.5, "{seen:?}");
}
