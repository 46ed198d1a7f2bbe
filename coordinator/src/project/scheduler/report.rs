//! Reports of finished jobs.
//!
//! Every report is acknowledged, also a repeated one and one for a job that nobody knows: a client keeps what is not
//! acknowledged, and would report it for ever. Of very many, the rest waits for the next request: the project's lock is
//! held meanwhile.

use fallow_boinc::scheduler::{ReportedResult, ResultState, SchedulerRequest};
use fallow_domain::Instant;
use tracing::info;

use super::Outcome as Done;
use crate::project::error::ProjectError;
use crate::project::hosted::Project;
use crate::project::index;
use crate::project::keys::split_job_name;
use crate::project::txn::Txn;
use crate::project::workunit::{Outcome, Report};

/// Reports taken from one request. A client repeats those that were not acknowledged.
const REPORTS_MAX: usize = 10_000;
/// The end of standard error that is kept of a job in error.
const STDERR_KEPT: usize = 4_096;
/// Exit statuses of jobs that were aborted: by the client's owner, by the project, through a GUI.
const ABORTED: [i32; 3] = [194, 202, 203];

/// Takes all reports of a request.
pub(super) fn take(
    project: &Project,
    txn: &mut Txn<'_>,
    request: &SchedulerRequest,
    done: &mut Done,
    now: Instant,
) -> Result<(), ProjectError> {
    for result in request.results.iter().take(REPORTS_MAX) {
        done.acks.push(result.name.clone());
        let Some((name, index)) = split_job_name(&result.name) else { continue };
        let Some(before) = index::read(txn, &project.keys, name)? else { continue };
        let mut after = before.clone();
        let report = report_of(result);
        if matches!(report.outcome, Outcome::Error | Outcome::Aborted) {
            info!(
                project = %project.name, host = done.host.id, job = %result.name, exit = report.exit_status,
                outcome = report.outcome.as_str(), "a job failed on its host"
            );
        }
        if after.report(index, done.host.id, report, now) {
            done.to_compare |= !after.to_compare().is_empty();
            index::write(txn, &project.keys, Some(&before), &after)?;
        }
    }
    Ok(())
}

fn report_of(result: &ReportedResult) -> Report {
    let outcome = match () {
        // A failed upload shows only in the file (boinc-client reports state 5 then).
        () if result.is_success() && result.files.iter().all(|file| file.error_msg.is_none()) => {
            Outcome::Success
        }
        () if result.state == ResultState::Aborted || ABORTED.contains(&result.exit_status) => {
            Outcome::Aborted
        }
        () => Outcome::Error,
    };
    let stderr = match outcome {
        Outcome::Success => "",
        _ => result.stderr_out.stderr_txt.as_str(),
    };
    let start = stderr.ceil_char_boundary(stderr.len().saturating_sub(STDERR_KEPT));
    Report {
        outcome,
        cpu_time: result.final_cpu_time,
        exit_status: result.exit_status,
        stderr: stderr[start..].to_owned(),
    }
}
