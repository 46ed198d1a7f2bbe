//! Jobs that the host should have against those that it says it has.
//!
//! A client lists every job that it holds. A job that should be there and is not was lost (a reply that never
//! arrived, a restored disk): it is sent again, to the same host, because no other can take this copy. A job
//! that is there and should not be is aborted; one that another host of the same account was sent may be
//! there, because a client that was restored from an older copy of its directory gets a new number. Of an
//! agent whose directory runs twice (`host`) nothing is lost that one copy of it does not list: the other has
//! it.

use std::collections::BTreeSet;

use fallow_boinc::scheduler::SchedulerRequest;
use fallow_domain::Instant;
use tracing::info;

use super::{ReplyContent, SentJob, lists_too_many};
use crate::error::ProjectError;
use crate::host_limits::HostCapacity;
use crate::index;
use crate::project::Project;
use crate::records::Version;
use crate::store_keys::{job_of, split_job_name, tail};
use crate::txn::Txn;
use crate::workunit::{Workunit, WorkunitState};

/// A host that loses a job more often than this is given another chance elsewhere.
const TIMES_SENT_MAX: u32 = 5;
/// Lost jobs sent again in one reply; the rest follows with the next.
const RESENT_MAX: usize = 100;

/// Compares, for clients that say what they hold.
pub(super) fn check(
    project: &Project,
    txn: &mut Txn<'_>,
    request: &SchedulerRequest,
    reply: &mut ReplyContent,
    now: Instant,
) -> Result<(), ProjectError> {
    let Some(others) = request.other_results.as_ref().filter(|_| !lists_too_many(request)) else {
        return Ok(());
    };
    let present: BTreeSet<&str> = others.iter().map(|other| other.name.as_str()).collect();
    for name in &present {
        check_present(project, txn, name, reply)?;
    }
    if reply.host.is_copied(now) {
        return Ok(());
    }
    let catalog = project.catalog();
    let capacity = HostCapacity::of(request, &catalog);
    let prefix = project.keys.held_by(reply.host.id);
    for (key, _) in txn.scan(&prefix, None, usize::MAX)? {
        let Some((name, index)) = job_of(tail(&key, &prefix)) else { continue };
        if present.contains(format!("{name}_{index}").as_str()) {
            continue;
        }
        let Some(workunit) = index::read(txn, &project.keys, name)? else { continue };
        let version = capacity.version(&catalog, &workunit.application, |_| true);
        lost(project, txn, (request, version), reply, (&workunit, index), now)?;
    }
    Ok(())
}

/// Whether a job may stay where it is.
fn check_present(
    project: &Project,
    txn: &Txn<'_>,
    job: &str,
    reply: &mut ReplyContent,
) -> Result<(), ProjectError> {
    let found = match split_job_name(job) {
        Some((name, index)) => index::read(txn, &project.keys, name)?.map(|workunit| (workunit, index)),
        None => None,
    };
    let Some((workunit, index)) = found else {
        reply.aborts.push(job.to_owned());
        return Ok(());
    };
    let Some(record) = workunit.jobs.get(index as usize).filter(|record| record.is_of(reply.host_account()))
    else {
        reply.aborts.push(job.to_owned());
        return Ok(());
    };
    // A late job may still be of use, and one that was reported is gone from the client soon.
    let awaited = record.is_awaited();
    match &workunit.state {
        WorkunitState::Active if awaited => {}
        WorkunitState::Validated { .. } if awaited => reply.aborts_if_not_started.push(job.to_owned()),
        WorkunitState::Failed { .. } if awaited => reply.aborts.push(job.to_owned()),
        _ => reply.aborts.push(job.to_owned()),
    }
    Ok(())
}

/// Sends a lost job again if that makes sense, with the version that the host can run; otherwise another host
/// gets a copy, and this one after a while.
fn lost(
    project: &Project,
    txn: &mut Txn<'_>,
    (request, version): (&SchedulerRequest, Option<&Version>),
    reply: &mut ReplyContent,
    (workunit, index): (&Workunit, u32),
    now: Instant,
) -> Result<(), ProjectError> {
    let mut after = workunit.clone();
    let times_sent = workunit.jobs.get(index as usize).map_or(0, |job| job.times_sent);
    let wanted = workunit.state == WorkunitState::Active
        && times_sent < TIMES_SENT_MAX
        && !project.was_shared(reply.host.account);
    match version {
        Some(version) if wanted => {
            if request.dont_send_work || reply.jobs.len() >= RESENT_MAX {
                return Ok(());
            }
            let host = reply.host.id;
            if after.send(index, reply.host_account(), now, version.version, &version.platform) {
                if let Some(times) = project.log_limits.sent_again.allow() {
                    let (project, job) = (&project.name, after.job_name(index));
                    info!(%project, host, %job, times, "lost by its host, sent again");
                }
                index::write(txn, &project.keys, Some(workunit), &after, now)?;
                reply.jobs.push(SentJob { workunit: after, index, version: version.clone() });
            }
        }
        _ => {
            if after.lose(index, now) {
                if let Some(times) = project.log_limits.lost.allow() {
                    let (project, host, job) = (&project.name, reply.host.id, after.job_name(index));
                    info!(%project, host, %job, times, "lost by its host");
                }
                index::write(txn, &project.keys, Some(workunit), &after, now)?;
            }
        }
    }
    Ok(())
}
