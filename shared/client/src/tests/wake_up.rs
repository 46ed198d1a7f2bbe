//! The wake-up as it follows from the whole state, without timers: what the table of timers must come to at
//! every event.

use fallow_domain::{Duration, Instant};
use fallow_policy::rpc_timing::RequestedBy;

use crate::machine::Client;

/// Whether the next wake-up is what follows from the whole state, and so is each timer that is taken to hold.
pub(crate) fn check(client: &Client, wake_up: Instant) {
    assert_eq!(wake_up, afresh(client), "a timer is stale and was not marked so");
    super::disk::check_books(client);
    for (timer, at) in client.timers.held(client.now()) {
        let afresh = client.work_out(timer).unwrap_or(Instant::FAR_FUTURE);
        assert_eq!(at, afresh, "{timer:?} is stale and was not marked so");
    }
}

/// When to call again, worked out from nothing.
fn afresh(client: &Client) -> Instant {
    let now = client.now();
    let transfers = client.next_transfer_wake_up().filter(|_| client.access.closed_until().is_none());
    let of_tasks = [client.next_stall(), client.next_restart(), client.next_throttle(), client.next_watch()];
    let (attachment, trial) = (client.next_attachment(), client.next_trial());
    let others_gone = client.other_network.next_change(now);
    let runnable = client.state.projects.keys().any(|project| client.workload.queue().is_runnable(*project));
    let decision = runnable.then(|| client.schedule.holds_until());
    let others =
        [network(client), transfers, attachment, trial, decision, client.next_device(), client.next_disk()];
    let of_people = [client.next_hours(), client.state.host.next_in_use()];
    let all = of_tasks.into_iter().chain(others).chain(of_people).chain([others_gone]);
    let at = if client.schedule.is_wanted() { now } else { first(all) };
    at.max(now + Duration::from_millis(100)).min(now + Duration::from_hours(1))
}

fn first(instants: impl IntoIterator<Item = Option<Instant>>) -> Instant {
    instants.into_iter().flatten().min().unwrap_or(Instant::FAR_FUTURE)
}

fn network(client: &Client) -> Option<Instant> {
    let (now, projects) = (client.now(), client.state.projects.values());
    let backoff = client.ledger.type_backoffs().next_end(now);
    let fetch = first([Some(client.fetch.holds_until()), backoff]);
    if let Some(until) = client.access.closed_until() {
        let until = if until > now { until } else { Instant::FAR_FUTURE };
        return Some(first([Some(until), Some(fetch), client.next_contactable()]));
    }
    let beside = client.sessions.next_change(now);
    if client.sessions.has_just_begun(now) {
        let pages = projects.filter(|project| !client.pages.is_being_read(project.id));
        let pages = pages.filter_map(|project| project.rpc.master_page_due_at(now)).filter(|at| *at > now);
        return Some(first([beside, pages.min()]));
    }
    let waits = projects.flat_map(|project| {
        [
            project.rpc.min_rpc_time(now, RequestedBy::Client).map(|wait| wait.at),
            project.rpc.min_rpc_time(now, RequestedBy::Fleet).map(|wait| wait.at),
            project.rpc.min_work_time(now).map(|wait| wait.at),
            project.rpc.master_page_due_at(now).filter(|_| !client.pages.is_being_read(project.id)),
            project.contact_by.map(|wait| now + wait.left(now)),
        ]
    });
    let waits = waits.flatten().filter(|wait| *wait > now).min();
    let reports = client.reports.next();
    Some(first([Some(fetch), beside, waits, reports]))
}
