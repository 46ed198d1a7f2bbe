//! Choosing jobs for a request (R3.12, R5.5, R5.6).
//!
//! Candidates come from the queue of workunits with unsent jobs, the oldest first. Of each workunit a host gets one job
//! ever. Two windows of the queue are looked at: its head, and, if that is not enough, a stretch that moves on with
//! every request of the host, so that a host whose jobs at the head wait for *other* hosts still finds work behind
//! them, at a bounded cost per request. Which of the candidates are sent is the policy's decision.

use fallow_boinc::scheduler::SchedulerRequest;
use fallow_domain::{Bytes, Duration, Fraction, Instant, PerType, Usage};
use fallow_policy::work_send::{InProgress, Offer, SendHost, Wanted, Ws2Switches, ws1, ws2};
use tracing::debug;

use super::{Outcome as Done, SentJob, estimate, note, speed};
use crate::project::error::ProjectError;
use crate::project::hosted::Project;
use crate::project::index;
use crate::project::keys::tail;
use crate::project::records::{UnsentEntry, Version, min_interval};
use crate::project::txn::{Txn, decode};
use crate::project::types::WorkSend;
use crate::project::workunit::Workunit;

/// Queue entries looked at in each of the two windows.
const WINDOW: usize = 256;
/// Jobs in one reply. A host that wants more asks again after the delay.
const JOBS_MAX: usize = 100;

/// A workunit with a job for this host.
struct Candidate {
    workunit: Workunit,
    index: u32,
    version: Version,
}

/// What a request asks for and what its host can take.
struct Wish {
    seconds: Duration,
    idle: u32,
    /// Of one CPU, in FLOPS.
    speed: f64,
    memory: Bytes,
    disk: Bytes,
    platforms: Vec<String>,
}

/// Why workunits were passed over, for the message to the host's owner.
#[derive(Default)]
struct Passed {
    memory: Option<(String, Bytes)>,
    disk: Option<(String, Bytes)>,
    time: usize,
}

/// Sends jobs.
pub(super) fn send(
    project: &Project,
    txn: &mut Txn<'_>,
    request: &SchedulerRequest,
    done: &mut Done,
    now: Instant,
) -> Result<(), ProjectError> {
    let Some(mut wish) = wish(request) else { return Ok(()) };
    for sent in &done.jobs {
        // What was lost and is sent again counts.
        wish.seconds -= estimate(&sent.workunit, wish.speed);
        wish.idle = wish.idle.saturating_sub(1);
    }
    if !(wish.seconds.is_positive() || wish.idle > 0) || refused(project, request, done, now) {
        return Ok(());
    }
    done.host.last_request = Some(now);
    let mut passed = Passed::default();
    let room = room(project, txn, done)?;
    let candidates =
        if room == 0 { Vec::new() } else { search(project, txn, &wish, done, &mut passed, room)? };
    let chosen = choose(project, request, &wish, &candidates, &mut passed, now);
    // What was found and not needed is the first to be looked at next time.
    let left = chosen.last().and_then(|last| candidates.get(last + 1));
    if let Some(left) = left.filter(|left| left.workunit.sequence <= done.host.search_from) {
        done.host.search_from = left.workunit.sequence - 1;
    }
    for (position, candidate) in candidates.into_iter().enumerate() {
        if chosen.binary_search(&position).is_ok() {
            give(project, txn, done, candidate, now)?;
        }
    }
    if done.jobs.is_empty() {
        say_why(project, &wish, &passed, room, done);
    }
    Ok(())
}

/// What is asked for, if anything is.
fn wish(request: &SchedulerRequest) -> Option<Wish> {
    // Old clients know the scalar only; newer ones send the CPU's seconds in it too.
    let seconds = if request.cpu_req_secs > 0.0 { request.cpu_req_secs } else { request.work_req_seconds };
    let idle = request.cpu_req_instances.ceil().clamp(0.0, 4_096.0);
    if request.dont_send_work || !(seconds > 0.0 || idle > 0.0) {
        return None;
    }
    let platforms: Vec<String> = request.platforms().map(str::to_owned).collect();
    let usable = request
        .global_preferences
        .as_ref()
        .map_or(90.0, |prefs| prefs.ram_max_used_busy_pct.max(prefs.ram_max_used_idle_pct).clamp(0.0, 100.0));
    Some(Wish {
        seconds: Duration::from_secs_f64(seconds),
        idle: idle as u32,
        speed: speed(request),
        memory: Bytes::from_f64(request.host_info.m_nbytes * usable / 100.0),
        disk: disk(request),
        platforms,
    })
}

/// Disk space that jobs may still take: the project's share less what it uses, within what is free.
fn disk(request: &SchedulerRequest) -> Bytes {
    let usage = &request.disk_usage;
    let free = request.host_info.d_free.max(0.0);
    let share = usage.d_project_share.as_f64();
    // An old client or a fresh one says nothing about shares.
    let allowed = if share > 0.0 { share - usage.d_boinc_used_project.as_f64() } else { free };
    Bytes::from_f64(allowed.min(free).max(0.0))
}

/// Whether the host gets nothing at all this time.
fn refused(project: &Project, request: &SchedulerRequest, done: &mut Done, now: Instant) -> bool {
    let held = request.code_sign_key.as_deref().map(str::trim);
    if held.is_some_and(|key| key != project.keyring.code_sign_public().trim()) {
        done.messages.push(note(
            "The code-signing key of this project is another one. To fix, remove and add this project.",
        ));
        return true;
    }
    if request.platform_name == "anonymous" {
        done.messages.push(note("This project does not support anonymous platforms"));
        return true;
    }
    // A request in the future is from before the clock was set back: nobody has to wait for that time to come.
    let since = done.host.last_request.filter(|last| *last <= now).map(|last| now.since(last));
    if let Some(since) = since.filter(|since| *since < min_interval(&project.info.settings)) {
        let text = format!("Not sending work - last request too recent: {:.0} sec", since.as_secs_f64());
        done.messages.push(note(text));
        return true;
    }
    false
}

/// How many jobs more the host may have.
fn room(project: &Project, txn: &Txn<'_>, done: &Done) -> Result<usize, ProjectError> {
    let most = u64::from(done.host.ncpus) * u64::from(project.info.settings.max_in_progress_per_cpu);
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    let held = txn.scan(&project.keys.held_by(done.host.id), None, most)?.len();
    Ok(most.saturating_sub(held).min(JOBS_MAX))
}

/// Candidates for this host in both windows, at most `room`, and no more than the request can take.
fn search(
    project: &Project,
    txn: &Txn<'_>,
    wish: &Wish,
    done: &mut Done,
    passed: &mut Passed,
    room: usize,
) -> Result<Vec<Candidate>, ProjectError> {
    let prefix = project.keys.all_unsent();
    let mut found = Vec::new();
    let head = txn.scan(&prefix, None, WINDOW)?;
    let head_end = head.last().map(|(key, _)| key.clone());
    let head_is_all = head.len() < WINDOW;
    gather(project, txn, wish, done.host.id, head, &mut found, passed, room)?;
    let Some(head_end) = head_end.filter(|_| !head_is_all && !enough(wish, &found, room)) else {
        return Ok(found);
    };
    let from = project.keys.unsent(done.host.search_from).max(head_end);
    let stretch = txn.scan(&prefix, Some(&from), WINDOW)?;
    let is_last = stretch.len() < WINDOW;
    let ends: Vec<u64> = stretch.iter().map(|(key, _)| sequence_of(tail(key, &prefix))).collect();
    let looked_at = gather(project, txn, wish, done.host.id, stretch, &mut found, passed, room)?;
    done.host.search_from = match looked_at.checked_sub(1).and_then(|last| ends.get(last)) {
        Some(last) if !(is_last && looked_at == ends.len()) => *last,
        // The end: begin behind the head again.
        _ => 0,
    };
    Ok(found)
}

fn sequence_of(text: &str) -> u64 {
    u64::from_str_radix(text, 16).unwrap_or_default()
}

/// Adds what suits the host from a window. Gives the number of entries looked at.
#[allow(clippy::too_many_arguments, reason = "one loop over a window, called twice")]
fn gather(
    project: &Project,
    txn: &Txn<'_>,
    wish: &Wish,
    host: u64,
    window: Vec<(Vec<u8>, Vec<u8>)>,
    found: &mut Vec<Candidate>,
    passed: &mut Passed,
    room: usize,
) -> Result<usize, ProjectError> {
    let catalog = project.catalog();
    let all = window.len();
    for (position, (key, value)) in window.into_iter().enumerate() {
        if enough(wish, found, room) {
            return Ok(position);
        }
        let entry: UnsentEntry = decode("queue entry", &key, &value)?;
        if entry.hosts.contains(&host) {
            continue;
        }
        let Some(version) = catalog.version_for(&entry.application, &wish.platforms) else { continue };
        let Some(workunit) = index::read(txn, &project.keys, &entry.workunit)? else { continue };
        let Some(index) = workunit.job_for(host) else { continue };
        let used = found.iter().fold(Bytes(0), |all, candidate| all.plus(candidate.workunit.disk_bound));
        if workunit.memory_bound > wish.memory {
            passed.memory.get_or_insert((workunit.application.clone(), workunit.memory_bound));
        } else if workunit.disk_bound.plus(used) > wish.disk {
            passed.disk.get_or_insert((workunit.application.clone(), workunit.disk_bound));
        } else {
            found.push(Candidate { workunit, index, version: version.clone() });
        }
    }
    Ok(all)
}

/// Whether the candidates would fill the request even if the policy refused half of them.
fn enough(wish: &Wish, found: &[Candidate], room: usize) -> bool {
    let seconds: Duration = found.iter().map(|candidate| estimate(&candidate.workunit, wish.speed)).sum();
    found.len() >= room || (seconds >= wish.seconds * 2 && found.len() >= 2 * wish.idle as usize)
}

/// The policy's choice: positions in `candidates`, rising.
fn choose(
    project: &Project,
    request: &SchedulerRequest,
    wish: &Wish,
    candidates: &[Candidate],
    passed: &mut Passed,
    now: Instant,
) -> Vec<usize> {
    let stats = &request.time_stats;
    let availability = Fraction::clamped(stats.on_frac.clamp(0.0, 1.0) * stats.active_frac.clamp(0.0, 1.0));
    let offers = candidates.iter().enumerate().map(|(id, candidate)| Offer {
        id,
        estimate: estimate(&candidate.workunit, wish.speed),
        deadline: now + candidate.workunit.delay_bound,
        usage: Usage::ONE_CPU,
    });
    let wanted = Wanted::cpu(wish.seconds, wish.idle);
    match (project.info.settings.work_send, &request.in_progress_results) {
        (WorkSend::Deadlines, Some(held)) => {
            let host = SendHost { instances: PerType::cpu(usable_cpus(request)), availability };
            let held: Vec<InProgress> = held
                .iter()
                .map(|job| InProgress {
                    deadline: job.report_deadline,
                    remaining: job.time_remaining,
                    usage: Usage::from_cpus(job.avg_ncpus),
                })
                .collect();
            let sent = ws2(wanted, &host, &held, offers, Ws2Switches::IMPROVED, now);
            for (position, refusal) in &sent.refused {
                let workunit = candidates.get(*position).map(|candidate| candidate.workunit.name.as_str());
                debug!(project = %project.name, workunit, %refusal, "not sent");
            }
            passed.time = sent.refused.len();
            sent.send
        }
        _ => {
            // Without the host's workload, a job is still not sent to a host that cannot make it even alone.
            let stretch = 1.0 / availability.get().max(0.01);
            let (alone, late): (Vec<_>, Vec<_>) = offers.partition(|offer| {
                now + request.estimated_delay.max(Duration::ZERO) + offer.estimate.mul_f64(stretch)
                    <= offer.deadline
            });
            passed.time = late.len();
            ws1(wanted, alone)
        }
    }
}

fn usable_cpus(request: &SchedulerRequest) -> u32 {
    let cpus = request.host_info.p_ncpus.clamp(1, 4_096);
    request.global_preferences.as_ref().map_or(cpus, |prefs| prefs.to_domain().usable_cpus(cpus))
}

fn give(
    project: &Project,
    txn: &mut Txn<'_>,
    done: &mut Done,
    candidate: Candidate,
    now: Instant,
) -> Result<(), ProjectError> {
    let Candidate { workunit: before, index, version } = candidate;
    let mut after = before.clone();
    if after.send(index, done.host.id, now, version.version, &version.platform) {
        index::write(txn, &project.keys, Some(&before), &after)?;
        done.jobs.push(SentJob { workunit: after, index, version });
    }
    Ok(())
}

/// A client that asked and got nothing is told the reason.
fn say_why(project: &Project, wish: &Wish, passed: &Passed, room: usize, done: &mut Done) {
    let megabytes = |bytes: Bytes| bytes.as_f64() / 1e6;
    if room == 0 {
        done.messages.push(note("This computer has reached a limit on tasks in progress"));
    }
    if let Some((application, needs)) = &passed.memory {
        let (needs, has) = (megabytes(*needs), megabytes(wish.memory));
        done.messages.push(note(format!(
            "{application} needs {needs:.2} MB RAM but only {has:.2} MB is available for use."
        )));
    }
    if let Some((application, needs)) = &passed.disk {
        let (needs, has) = (megabytes(*needs), megabytes(wish.disk));
        done.messages.push(note(format!(
            "{application} needs {needs:.2} MB of disk space but only {has:.2} MB is available for use."
        )));
    }
    if passed.time > 0 {
        done.messages.push(note("Tasks won't finish in time on this computer"));
    }
    if done.messages.is_empty() {
        let catalog = project.catalog();
        let runs_here = wish.platforms.iter().any(|platform| catalog.knows_platform(platform));
        done.messages.push(note(if runs_here {
            "Project has no tasks available"
        } else {
            "No application of this project runs on this platform"
        }));
    }
}
