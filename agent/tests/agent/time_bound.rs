//! A job that runs for longer than its project lets it (BOINC: `rsc_fpops_bound`).

use fallow_boinc::scheduler::{ResultState, SchedulerReply};
use fallow_domain::{Flops, Speed};

use crate::attach::{RIGHT, attach, status};
use crate::daemon::{Daemon, command, outcome};
use crate::support::{is_alive, wait_for};
use crate::turns::{reported, working_with};

/// A job that never ends by itself, and takes next to no CPU time.
const ENDLESS: &[u8] = b"#!/bin/sh\nwhile :; do sleep 1; done\n";

/// So many seconds it may run, on whatever host: its application is said to have 1 GFLOPS. Bounds below two
/// minutes are taken for mistakes.
fn bound(reply: &mut SchedulerReply) {
    for version in &mut reply.app_versions {
        version.flops = Speed::new(1e9).ok();
    }
    for workunit in &mut reply.workunits {
        // A few of them are work enough.
        workunit.rsc_fpops_est = Flops::new(1e14).ok();
        workunit.rsc_fpops_bound = Flops::new(121e9).ok();
    }
}

#[test]
fn r6_10_a_real_task_that_runs_longer_than_its_project_allows_ends_and_is_reported_with_197() {
    let server = working_with(ENDLESS, bound);
    let dir = tempfile::tempdir().unwrap();
    let agent_dir = dir.path().join("agent");
    let log = dir.path().join("log");
    let mut run = command(&agent_dir, &["run", "--benchmark-after-ms", "10000000"]);
    run.stdout(std::process::Stdio::null()).stderr(std::fs::File::create(&log).unwrap());
    let _daemon = Daemon::of(run, &agent_dir);
    assert_eq!(attach(&agent_dir, &server.url(""), RIGHT, &["--no-wait"]).0, 0);
    let (name, pid) = wait_for("a task", || {
        let status = status(&agent_dir);
        let mut tasks = status["tasks"].as_array()?.iter();
        let task = tasks.find(|task| task["phase"] == "running")?;
        Some((task["name"].as_str()?.to_owned(), u32::try_from(task["pid"].as_u64()?).ok()?))
    });
    let report = wait_for("its end", || reported(&server).into_iter().find(|report| report.name == name));
    assert_eq!((report.exit_status, report.state), (197, ResultState::ComputeError), "{report:?}");
    let message = report.stderr_out.message.clone().unwrap_or_default();
    assert!(message.contains("exceeded elapsed time limit") && message.contains("allowed 2"), "{message}");
    let ran = report.final_elapsed_time.as_secs_f64();
    assert!((121.0..200.0).contains(&ran), "{report:?}");
    assert!(!is_alive(pid));
    let text = std::fs::read_to_string(&log).unwrap();
    assert!(text.contains("exceeded elapsed time limit"), "{text}");
    assert_eq!(outcome(&agent_dir, &["stop"]).0, 0);
}
