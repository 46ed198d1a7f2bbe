//! Reports of finished jobs.
//!
//! Every report is acknowledged, also a repeated one and one for a job that nobody knows: a client keeps what
//! is not acknowledged, and would report it for ever. Of very many, the rest waits for the next request: the
//! project's lock is held meanwhile.

use fallow_boinc::scheduler::{ReportedResult, ResultState, SchedulerRequest};
use fallow_daemon::lock;
use fallow_domain::{Duration, Instant};
use tracing::info;

use super::ReplyContent;
use crate::credit;
use crate::error::ProjectError;
use crate::host_limits::{HostCapacity, speed};
use crate::index;
use crate::new_hosts;
use crate::printable;
use crate::project::Project;
use crate::store_keys::split_job_name;
use crate::txn::Txn;
use crate::workunit::{Outcome, Report};

/// Reports taken from one request. A client repeats those that were not acknowledged.
const REPORTS_MAX: usize = 10_000;
/// The end of standard error that is kept of a job in error.
const STDERR_KEPT: usize = 4_096;
/// What is kept of what a client says of a failure, in bytes.
const MESSAGE_KEPT: usize = 1_024;
/// Files whose failed upload is told of.
const FILES_NAMED: usize = 4;
/// Exit status of a job that took longer than its bound.
const TIME_LIMIT: i32 = 197;
/// Exit statuses of jobs that were aborted: by the client's owner, by the project, through a GUI.
const ABORTED: [i32; 3] = [194, 202, 203];

/// Takes all reports of a request.
pub(super) fn take(
    project: &Project,
    txn: &mut Txn<'_>,
    request: &SchedulerRequest,
    reply: &mut ReplyContent,
    now: Instant,
) -> Result<(), ProjectError> {
    let catalog = project.catalog();
    let capacity = HostCapacity::of(request, &catalog);
    let (mut has_learned, mut successes) = (false, 0);
    for result in request.results.iter().take(REPORTS_MAX) {
        reply.acks.push(result.name.clone());
        let found = match split_job_name(&result.name) {
            Some((name, index)) => index::read(txn, &project.keys, name)?.map(|workunit| (workunit, index)),
            None => None,
        };
        let Some((before, index)) = found else {
            reply.not_taken.note(&result.name);
            continue;
        };
        let mut after = before.clone();
        let mut report = report_of(result);
        if let Some(job) = before.jobs.get(index as usize) {
            // No host has more CPU time than its CPUs had.
            let most =
                job.sent_at.map_or(Duration::ZERO, |sent| now.since(sent)) * i64::from(reply.host.ncpus);
            report.claimed = credit::claim(report.cpu_time.min(most), speed(request), before.flops_bound);
        }
        let (outcome, exit) = (report.outcome, report.exit_status);
        let is_success = outcome == Outcome::Success;
        if after.report(index, reply.host_account(), report, now) {
            let job = after.job_name(index);
            if matches!(outcome, Outcome::Error | Outcome::Aborted)
                && let Some(times) = project.log_limits.failed.allow()
            {
                let (project, host, outcome) = (&project.name, reply.host.id, outcome.as_str());
                info!(%project, host, %job, exit, outcome, times, "a job failed on its host");
            }
            reply.reported.push(job);
            successes += u64::from(is_success);
            let deadline = before.jobs.get(index as usize).and_then(|job| job.deadline);
            let is_early = deadline.is_none_or(|deadline| now <= deadline) && exit != TIME_LIMIT;
            match outcome {
                Outcome::Error if is_early => reply.host.trials.failed(),
                _ => reply.host.trials.over(is_success && is_early),
            }
            let experience = &mut reply.experience;
            has_learned |= is_success && experience.learn(&catalog, &capacity, &before, result, now);
            reply.to_compare |= !after.to_compare().is_empty();
            index::write(txn, &project.keys, Some(&before), &after, now)?;
        } else {
            reply.not_taken.note(&result.name);
        }
    }
    let rest = REPORTS_MAX.saturating_sub(request.results.len());
    for name in request.unknown_results.iter().take(rest) {
        reply.acks.push(name.clone());
        reply.not_taken.note(name);
    }
    if new_hosts::is_new(txn, &project.keys, &reply.host)? {
        let of = (reply.host.account, reply.host.id);
        successes = lock(&project.asking).new.believed(of, successes, now);
    }
    reply.host.top_ups.returned(successes);
    if has_learned {
        reply.experience.write(txn, &project.keys, reply.host.id)?;
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
        Outcome::Success => String::new(),
        _ => last_words(result),
    };
    Report { outcome, cpu_time: result.final_cpu_time, claimed: 0.0, exit_status: result.exit_status, stderr }
}

/// What is kept of a failed job: what its client said of the failure, and the end of its standard error.
fn last_words(result: &ReportedResult) -> String {
    let said = &result.stderr_out;
    let mut words = Vec::new();
    if let Some(message) = said.message.as_deref().map(str::trim).filter(|message| !message.is_empty()) {
        words.push(printable::lines(message, MESSAGE_KEPT));
    }
    let files = result.files.iter().filter_map(|file| Some((&file.name, file.error_msg.as_deref()?)));
    words.extend(
        files.take(FILES_NAMED).map(|(name, why)| printable::line(&format!("{name}: {why}"), MESSAGE_KEPT)),
    );
    let text = said.stderr_txt.as_str();
    let start = text.ceil_char_boundary(text.len().saturating_sub(STDERR_KEPT));
    words.push(printable::lines(&text[start..], 3 * STDERR_KEPT));
    words.retain(|words| !words.is_empty());
    words.join("\n")
}
