//! A job whose output is larger than its project takes (BOINC: `max_nbytes`).

use fallow_boinc::scheduler::{FileInfo, FileRef, ResultState, SchedulerReply};
use fallow_domain::Bytes;

use crate::attach::{RIGHT, attach};
use crate::daemon::{Daemon, outcome};
use crate::support::wait_for;
use crate::turns::{reported, working_with};

/// Writes a byte more than its project takes where its job's number is odd, else as many as it takes.
const WRITES: &[u8] = b"#!/bin/sh\n\
    if grep -q '<result_name>job[0-9]*[13579]<' init_data.xml; then bytes=1001; else bytes=1000; fi\n\
    head -c $bytes /dev/zero > out\n\
    echo 0 > boinc_finish_called\n";

fn takes_1000_bytes(reply: &mut SchedulerReply) {
    for result in &mut reply.results {
        let name = format!("{}_0", result.name);
        reply.files.push(FileInfo {
            name: name.clone(),
            upload_urls: vec!["http://127.0.0.1:9/up".into()],
            max_nbytes: Some(Bytes(1_000)),
            ..FileInfo::default()
        });
        result.files.push(FileRef {
            file_name: name,
            open_name: Some("out".into()),
            copy_file: true,
            ..FileRef::default()
        });
    }
}

#[test]
fn r6_10_a_real_job_whose_output_is_larger_than_its_project_takes_is_reported_with_that_and_others_are_not() {
    let server = working_with(WRITES, takes_1000_bytes);
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let _daemon = Daemon::start(dir);
    assert_eq!(attach(dir, &server.url(""), RIGHT, &["--no-wait"]).0, 0);
    let is_odd = |name: &str| name.ends_with(['1', '3', '5', '7', '9']);
    let report = wait_for("the report of a job that wrote too much", || reported(&server).into_iter().next());
    assert_eq!((report.exit_status, report.state), (-131, ResultState::ComputeError), "{report:?}");
    let message = report.stderr_out.message.clone().unwrap_or_default();
    assert!(message.contains(&format!("{}_0", report.name)) && message.contains("-131"), "{message}");
    // Nobody takes the next one's output, and so it is kept, and sent later.
    wait_for("an output that is to be sent", || {
        let (_, status) = outcome(dir, &["status", "--json"]);
        let status: serde_json::Value = serde_json::from_str(&status).unwrap_or_default();
        let waits = |task: &serde_json::Value| {
            task["phase"] == "uploading" && !is_odd(task["name"].as_str().unwrap_or_default())
        };
        status["tasks"].as_array()?.iter().any(waits).then_some(())
    });
    let reports = reported(&server);
    assert!(reports.iter().all(|report| is_odd(&report.name) && report.exit_status == -131), "{reports:?}");
    assert_eq!(outcome(dir, &["stop"]).0, 0);
}
