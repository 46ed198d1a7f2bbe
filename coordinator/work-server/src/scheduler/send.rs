//! Choosing jobs for a request (R3.12, R4.10, R5.5, R5.6).
//!
//! Candidates come from the queue of workunits with unsent jobs, the oldest first. Of each workunit an
//! account gets one job; another only if that one failed and nobody else can take it (`requesters`). Two
//! windows of the queue are looked at: its head, and, if that is not enough, a stretch that moves on with
//! every request of the host, so that a host whose jobs at the head wait for *other* hosts still finds work
//! behind them, at a bounded cost per request. Which of the candidates are sent is the policy's decision.
//!
//! All of that is a pass, made with the disk space that is free. A host that deletes files for jobs tells
//! what would be free then; only if a pass sends nothing for want of space the next is made, with more
//! (R4.10).

use std::collections::{BTreeMap, BTreeSet};

use fallow_boinc::scheduler::{InProgressResult, SchedulerRequest, type_name};
use fallow_daemon::lock;
use fallow_domain::{Bytes, Duration, InProgress, Instant, PerType, ResourceType, Usage};
use fallow_policy::disk::holders::prefer_local;
use fallow_policy::disk::passes::SpacePass;
use fallow_policy::send::{Demand, HeldJobs, Load, Offer, SendDecision, SendHost, SendSituation};
use tracing::debug;

use super::spread::{BatchPart, counted_instances};
use super::work_request::{WorkRequest, wanted};
use super::{LISTED_MAX, ReplyContent, SentJob, lists_too_many, note};
use crate::asking_hosts;
use crate::error::ProjectError;
use crate::host_limits::OfTypes;
use crate::index::{self, RetryAt};
use crate::listing::in_seconds;
use crate::new_hosts;
use crate::operator_types::NoWork;
use crate::project::Project;
use crate::records::{Host, UnsentEntry, Version, min_interval};
use crate::store_keys::tail;
use crate::txn::{Txn, decode};
use crate::workunit::{CopyHistory, HostAccount, Workunit};

/// Queue entries looked at in each of the two windows.
const WINDOW: usize = 256;
/// Jobs in one reply. A host that wants more asks again after the delay.
pub(super) const JOBS_MAX: usize = 100;

/// A workunit with a job for this host.
struct Candidate {
    workunit: Workunit,
    index: u32,
    version: Version,
}

/// Why workunits were passed over, for the message to the host's owner.
#[derive(Default)]
struct Passed {
    memory: Option<(String, Bytes)>,
    disk: Option<(String, Bytes)>,
    time: usize,
    /// Workunits of which the account has a copy or has computed one; they wait for others.
    has_one: usize,
    /// Workunits whose copies failed on the account; they wait for others.
    failed: usize,
    /// Those that wait for others that have failed them, too, but had fewer copies.
    failed_more: usize,
    /// Among those that wait for others are some for which a machine and its copies count as one.
    counts_voters: bool,
    /// Workunits that are tried again later, after an error.
    retries: Vec<RetryAt>,
}

impl Passed {
    /// When the first of these workunits is tried again.
    fn first_retry(&self) -> Option<Instant> {
        self.retries.iter().map(|retry| retry.at).min()
    }
}

/// Sends jobs.
pub(super) fn send(
    project: &Project,
    txn: &mut Txn<'_>,
    request: &SchedulerRequest,
    reply: &mut ReplyContent,
    now: Instant,
) -> Result<(), ProjectError> {
    let catalog = project.catalog();
    let is_new = note_new(project, txn, reply, now)?;
    let experience = reply.experience.clone();
    let Some(mut work_request) = WorkRequest::of(request, &catalog, &experience) else {
        if holds_none(project, txn, reply)? {
            reply.host.told_delay = None;
        }
        reply.host.waiting &= !request.dont_send_work;
        return Ok(());
    };
    let asks = work_request.types();
    for sent in &reply.jobs {
        // What was lost and is sent again counts.
        let estimate = work_request.estimate(&sent.workunit, &sent.version);
        work_request.wanted.fill(sent.version.usage, estimate);
    }
    if work_request.wanted.is_open() && !refused(project, request, is_new, reply, now) {
        reply.host.last_request = Some(now);
        let limits = work_request.limits(reply.host.id, project.settings().delete_from_self);
        let mut requesters = lock(&project.requesters);
        requesters.asked(reply.host_account(), &asks, Some(&limits), now);
        if reply.host.agent.is_none() {
            requesters.note_outside(reply.host.account);
        }
        drop(requesters);
        send_what_suits(project, txn, request, (&work_request, is_new), reply, now)?;
    }
    reply.host.waiting = is_in_vain(request, &work_request, reply);
    Ok(())
}

/// Whether the host is one of which nothing is known yet. What is remembered of it is then as the store says.
fn note_new(
    project: &Project,
    txn: &Txn<'_>,
    reply: &ReplyContent,
    now: Instant,
) -> Result<bool, ProjectError> {
    let is_new = new_hosts::is_new(txn, &project.keys, &reply.host)?;
    let of = (reply.host.account, reply.host.id);
    let mut asking = lock(&project.asking);
    if !is_new {
        asking.not_new(of, project.settings().poll, now);
    } else if asking.new.knows(of) {
        asking.new.holds(of, room(project, txn, reply)?.held as u64, now);
    }
    Ok(is_new)
}

/// Whether the client got no job of a type that it asked for and may hope for: it backs off then (R3.7).
fn is_in_vain(request: &SchedulerRequest, work_request: &WorkRequest<'_>, reply: &ReplyContent) -> bool {
    let asked = wanted(request, 1.0);
    let has_versions = work_request.catalog.types(&work_request.capacity.platforms);
    // A project without a program yet gets one soon; for a GPU it rarely does.
    let may_hope = |kind| has_versions[kind] || kind == ResourceType::Cpu;
    let got = |kind| reply.jobs.iter().any(|sent| sent.version.kind() == kind);
    if asked.unsupported(&PerType::default()) == PerType::default() {
        // It knows the scalar only.
        return reply.jobs.is_empty();
    }
    ResourceType::ALL.into_iter().any(|kind| asked.wants(kind) && may_hope(kind) && !got(kind))
}

fn send_what_suits(
    project: &Project,
    txn: &mut Txn<'_>,
    request: &SchedulerRequest,
    (work_request, is_new): (&WorkRequest<'_>, bool),
    reply: &mut ReplyContent,
    now: Instant,
) -> Result<(), ProjectError> {
    let mut passed = Passed::default();
    let Room { more: room, held: in_progress } = room(project, txn, reply)?;
    if is_new {
        let (of, instances) = ((reply.host.account, reply.host.id), counted_instances(work_request));
        let mut asking = lock(&project.asking);
        asking.new.asked(of, instances);
        asking.new.holds(of, in_progress as u64, now);
    }
    let mut part = BatchPart::of(project, txn, reply, work_request, (in_progress, is_new), now)?;
    let from = reply.host.search_from;
    let held: Option<BTreeSet<&str>> =
        request.other_results.as_ref().map(|held| held.iter().map(|job| job.name.as_str()).collect());
    let assigned = work_request.disk.assign(project.settings().delete_from_self, |pass, space| {
        let lacked_space = std::mem::take(&mut passed).disk.is_some();
        if room == 0 || (pass != SpacePass::Free && !lacked_space) {
            return Ok(Vec::new());
        }
        reply.host.search_from = from;
        let search = Search {
            project,
            txn,
            request,
            work_request,
            held: held.as_ref(),
            space,
            room,
            now,
            host_account: reply.host_account(),
            may_try: reply.host.trials.may_try(in_progress as u64, now),
        };
        search.pass(reply, &mut passed, part.as_mut())
    });
    let assigned: Option<(SpacePass, Vec<Candidate>)> = assigned?;
    // Whoever has enough to do, or would be too late now, may well take more later. So may one whose disk is
    // full as long as it holds jobs: they take of it.
    let has_part = part.as_ref().is_some_and(|part| part.why.is_some());
    let is_filled = passed.disk.is_some() && in_progress > 0;
    let may_later = room == 0 || has_part || passed.time > 0 || is_filled || !passed.retries.is_empty();
    let before = reply.jobs.len();
    if let Some((pass, chosen)) = assigned {
        debug!(project = %project.name, host = reply.host.id, jobs = chosen.len(), %pass, "jobs chosen");
        chosen.into_iter().try_for_each(|candidate| give(project, txn, reply, candidate, now))?;
    }
    if is_new {
        let (of, sent) = ((reply.host.account, reply.host.id), reply.jobs.len() - before);
        let jobs = reply.jobs.iter().filter_map(|sent| sent.workunit.jobs.get(sent.index as usize));
        let due = jobs.filter_map(|job| job.deadline).max().unwrap_or(now);
        lock(&project.asking).new.sent(of, sent as u64, due);
    }
    match part {
        Some(part) => part.tell(project, reply, reply.jobs.len() - before, now),
        None => reply.host.told_delay = None,
    }
    if reply.jobs.is_empty() && !may_later {
        // Whoever was refused a job for the sake of others could have taken it, unless it lacks room for any.
        let lacks_room = passed.disk.is_some() || passed.memory.is_some();
        if lacks_room || passed.failed + passed.failed_more == 0 {
            lock(&project.requesters).left_without(reply.host_account(), &work_request.types(), now);
        }
        // Whoever has no space for any of the jobs, or has had a copy of each, leaves them to others until it
        // asks again.
        if lacks_room || passed.has_one > 0 {
            let of = (reply.host.account, reply.host.id);
            lock(&project.asking).cannot_take(of, project.settings().poll, now);
        }
    }
    if reply.jobs.is_empty() {
        // It may have been told in vain, or ask for nothing for a long time from now on.
        project.note_retries(passed.retries.iter().copied());
    }
    // Jobs that are there for others are no lack.
    let refusal = (reply.jobs.is_empty() && !has_part).then(|| {
        let said = reply.messages.len();
        say_why(project, work_request, &passed, room, reply, now);
        let reasons: Vec<&str> = reply.messages.iter().skip(said).map(|note| note.text.as_str()).collect();
        NoWork {
            at: now,
            host: reply.host.id,
            agent: reply.host.agent.clone(),
            host_name: reply.host.name.clone(),
            reason: reasons.join("; "),
        }
    });
    *lock(&project.last_no_work) = refusal;
    Ok(())
}

/// Whether the host gets nothing at all this time.
fn refused(
    project: &Project,
    request: &SchedulerRequest,
    is_new: bool,
    reply: &mut ReplyContent,
    now: Instant,
) -> bool {
    let held = request.code_sign_key.as_deref().map(str::trim);
    if held.is_some_and(|key| key != project.signing_keys.code_sign_public().trim()) {
        reply.messages.push(note(
            "The code-signing key of this project is another one. To fix, remove and add this project.",
        ));
        return true;
    }
    if project.was_shared(reply.host.account) {
        let name = &project.name;
        reply.messages.push(note(format!(
            "No new work for the account key that all agents had together: each agent gets a key of its own from its \
             coordinator; attach any other client again with the key that `fallow project show {name}` shows"
        )));
        return true;
    }
    if request.platform_name == "anonymous" {
        reply.messages.push(note("This project does not support anonymous platforms"));
        return true;
    }
    if lists_too_many(request) {
        reply.messages.push(note(format!(
            "Not sending work - more than {LISTED_MAX} jobs of this project are listed as held"
        )));
        return true;
    }
    // A request in the future is from before the clock was set back: nobody has to wait for that time to
    // come.
    let since = reply.host.last_request.filter(|last| *last <= now).map(|last| now.since(last));
    if let Some(since) = since.filter(|since| *since < min_interval(&project.settings(), &reply.host)) {
        let text = format!("Not sending work - last request too recent: {:.0} sec", since.as_secs_f64());
        reply.messages.push(note(text));
        return true;
    }
    let window = asking_hosts::window(project.settings().poll);
    let let_in = |host: &Host| lock(&project.asking).new.let_in(host.account, host.id, window, now);
    if let Err(wait) = if is_new { let_in(&reply.host) } else { Ok(()) } {
        let time = in_seconds(wait);
        reply.messages.push(note(format!(
            "Not sending work - many computers of this account have returned no valid result yet; it may have one \
             more in {time}"
        )));
        return true;
    }
    false
}

/// Whether the host has no job of the project.
fn holds_none(project: &Project, txn: &Txn<'_>, reply: &ReplyContent) -> Result<bool, ProjectError> {
    Ok(txn.scan(&project.keys.held_by(reply.host.id), None, 1)?.is_empty())
}

/// How many jobs the host has, and how many more it may have.
struct Room {
    held: usize,
    more: usize,
}

fn room(project: &Project, txn: &Txn<'_>, reply: &ReplyContent) -> Result<Room, ProjectError> {
    let most = u64::from(reply.host.ncpus) * u64::from(project.settings().max_in_progress_per_cpu);
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    let held = txn.scan(&project.keys.held_by(reply.host.id), None, most)?.len();
    Ok(Room { held, more: most.saturating_sub(held).min(JOBS_MAX) })
}

/// One pass over the queue.
struct Search<'a> {
    project: &'a Project,
    txn: &'a Txn<'a>,
    request: &'a SchedulerRequest,
    work_request: &'a WorkRequest<'a>,
    /// Names of the jobs that the host says it holds, if it says so.
    held: Option<&'a BTreeSet<&'a str>>,
    /// Disk space that the jobs may take.
    space: Bytes,
    /// Jobs that the host may have more.
    room: usize,
    now: Instant,
    host_account: HostAccount,
    /// Whether a job may be tried on the host that would be late by its estimate.
    may_try: bool,
}

/// What was found, and what more would be looked for.
struct Found<'c> {
    /// Of each application that jobs in the queue are of.
    versions: BTreeMap<String, OfTypes<'c>>,
    candidates: Vec<Candidate>,
    still: Demand,
    disk: Bytes,
    /// The host has input files: whatever the windows hold is looked at, to find the jobs that read them.
    is_choosy: bool,
}

impl<'a> Search<'a> {
    /// Finds candidates and lets the policy choose.
    fn pass(
        &self,
        reply: &mut ReplyContent,
        passed: &mut Passed,
        part: Option<&mut BatchPart>,
    ) -> Result<Vec<Candidate>, ProjectError> {
        let mut candidates = self.search(reply, passed)?;
        let has_local = self.prefer_local(reply.host.id, &mut candidates);
        self.cut(reply, &mut candidates);
        let mut chosen = self.choose(&candidates, passed);
        if let Some(part) = part {
            let of = |at: &usize| candidates.get(*at).map(|candidate| self.takes(candidate));
            let mut sent = part.cut(&chosen.iter().filter_map(of).collect::<Vec<_>>(), self.now).into_iter();
            chosen.retain(|_| sent.next() == Some(true));
        }
        // What was found and not needed is the first to be looked at next time.
        let left = if has_local {
            // Not in the order of the queue.
            let others = candidates.iter().enumerate().filter(|(at, _)| chosen.binary_search(at).is_err());
            others.map(|(_, candidate)| candidate).min_by_key(|candidate| candidate.workunit.sequence)
        } else {
            chosen.last().and_then(|last| candidates.get(last + 1))
        };
        if let Some(left) = left.filter(|left| left.workunit.sequence <= reply.host.search_from) {
            reply.host.search_from = left.workunit.sequence - 1;
        }
        let numbered = candidates.into_iter().enumerate();
        Ok(numbered.filter(|(at, _)| chosen.binary_search(at).is_ok()).map(|(_, one)| one).collect())
    }

    /// What a job uses, and how long it takes here.
    fn takes(&self, Candidate { workunit, version, .. }: &Candidate) -> (Usage, Duration) {
        (version.usage, self.work_request.estimate(workunit, version))
    }

    /// Puts jobs first whose inputs the host has (R4.11). Says whether there are any.
    fn prefer_local(&self, host: u64, candidates: &mut [Candidate]) -> bool {
        let holders = lock(&self.project.holders);
        let locality = |candidate: &Candidate| {
            let inputs = candidate.workunit.inputs.iter();
            holders.locality(&host, inputs.map(|input| (input.file_name.as_str(), Bytes(input.nbytes))))
        };
        let has_local = candidates.iter().any(|candidate| locality(candidate).held > Bytes(0));
        if has_local {
            prefer_local(candidates, locality);
        }
        has_local
    }

    /// Twice what is wanted, so that the policy can refuse half of it.
    fn looked_for(&self, reply: &ReplyContent) -> Demand {
        let mut wanted = wanted(self.request, 2.0);
        for sent in &reply.jobs {
            let estimate = self.work_request.estimate(&sent.workunit, &sent.version);
            wanted.fill(sent.version.usage, estimate);
        }
        wanted
    }

    /// Of all that was found, the first that the request can take.
    fn cut(&self, reply: &ReplyContent, candidates: &mut Vec<Candidate>) {
        let (mut still, mut disk) = (self.looked_for(reply), Bytes(0));
        candidates.retain(|Candidate { workunit, version, .. }| {
            let with = disk.plus(workunit.disk_bound);
            let fits = still.wants(version.kind()) && with <= self.space;
            if fits {
                disk = with;
                still.fill(version.usage, self.work_request.estimate(workunit, version));
            }
            fits
        });
    }

    /// Candidates for this host in both windows, at most `room`, and no more than the request can take.
    fn search(&self, reply: &mut ReplyContent, passed: &mut Passed) -> Result<Vec<Candidate>, ProjectError> {
        let prefix = self.project.keys.all_unsent();
        let mut found = Found {
            versions: BTreeMap::new(),
            candidates: Vec::new(),
            still: self.looked_for(reply),
            disk: Bytes(0),
            is_choosy: lock(&self.project.holders).files(&reply.host.id).next().is_some(),
        };
        let head = self.txn.scan(&prefix, None, WINDOW)?;
        let head_end = head.last().map(|(key, _)| key.clone());
        let head_is_all = head.len() < WINDOW;
        self.gather(head, &mut found, passed)?;
        let Some(head_end) = head_end.filter(|_| !head_is_all && !self.is_enough(&found)) else {
            return Ok(found.candidates);
        };
        let from = self.project.keys.unsent(reply.host.search_from).max(head_end);
        let stretch = self.txn.scan(&prefix, Some(&from), WINDOW)?;
        let is_last = stretch.len() < WINDOW;
        let ends: Vec<u64> = stretch.iter().map(|(key, _)| sequence_of(tail(key, &prefix))).collect();
        let looked_at = self.gather(stretch, &mut found, passed)?;
        reply.host.search_from = match looked_at.checked_sub(1).and_then(|last| ends.get(last)) {
            Some(last) if !(is_last && looked_at == ends.len()) => *last,
            // The end: begin behind the head again.
            _ => 0,
        };
        Ok(found.candidates)
    }

    /// Adds what suits the host from a window. Gives the number of entries looked at.
    fn gather(
        &self,
        window: Vec<(Vec<u8>, Vec<u8>)>,
        found: &mut Found<'a>,
        passed: &mut Passed,
    ) -> Result<usize, ProjectError> {
        let all = window.len();
        for (position, (key, value)) in window.into_iter().enumerate() {
            if self.is_enough(found) {
                return Ok(position);
            }
            let entry: UnsentEntry = decode("queue entry", &key, &value)?;
            let versions = found.versions.entry(entry.application);
            let versions = versions.or_insert_with_key(|application| self.work_request.versions(application));
            let Some(version) = self.work_request.choose(versions, &found.still) else { continue };
            let HostAccount { account, voter, .. } = self.host_account;
            if entry.accounts.contains(if entry.counts_voters { &voter } else { &account }) {
                passed.has_one += 1;
                passed.counts_voters |= entry.counts_voters;
                continue;
            }
            let workunit = index::read(self.txn, &self.project.keys, &entry.workunit)?;
            let Some(workunit) = workunit else { continue };
            let Some(index) = workunit.unsent().filter(|_| self.may_have(&workunit, passed)) else {
                continue;
            };
            if workunit.memory_bound > self.work_request.capacity.memory {
                passed.memory.get_or_insert((workunit.application.clone(), workunit.memory_bound));
            } else if workunit.disk_bound.plus(found.disk) > self.space {
                passed.disk.get_or_insert((workunit.application.clone(), workunit.disk_bound));
            } else if self.is_late_even_alone(&workunit, version, Duration::ZERO) {
                // Not counted as found: whatever lies behind it is looked at as if it were not there.
                passed.time += 1;
            } else {
                if !found.is_choosy {
                    found.still.fill(version.usage, self.work_request.estimate(&workunit, version));
                    found.disk = found.disk.plus(workunit.disk_bound);
                }
                found.candidates.push(Candidate { workunit, index, version: version.clone() });
            }
        }
        Ok(all)
    }

    /// Whether the account may have a copy of the workunit.
    fn may_have(&self, workunit: &Workunit, passed: &mut Passed) -> bool {
        // A client that does not list what it holds may hold it.
        let is_held = |name: &str| self.held.as_ref().is_none_or(|held| held.contains(name));
        let history = workunit.history(self.host_account, is_held);
        let for_all = workunit.retry_at(CopyHistory::None, self.now);
        let waits_for_others = match history {
            CopyHistory::None => false,
            CopyHistory::HasCopy => true,
            CopyHistory::Failed => {
                for_all.is_none() && !self.project.is_for_again(workunit, self.host_account, self.now)
            }
        };
        if waits_for_others {
            passed.counts_voters |= workunit.counts_voters();
            match history {
                CopyHistory::HasCopy => passed.has_one += 1,
                CopyHistory::None | CopyHistory::Failed => {
                    let no_new_one = self.project.is_for_anybody(workunit, &workunit.accounts(), self.now);
                    *if no_new_one { &mut passed.failed_more } else { &mut passed.failed } += 1;
                }
            }
            return false;
        }
        let retry = for_all.or_else(|| workunit.retry_at(history, self.now));
        passed.retries.extend(retry.map(|until| RetryAt::of(workunit, until)));
        retry.is_none()
    }

    /// The host as policies look at it, but for the jobs that it has.
    fn situation(&self) -> SendSituation<'_> {
        let Self { project, request, work_request, now, .. } = *self;
        SendSituation {
            now,
            demand: work_request.wanted,
            host: SendHost {
                instances: work_request.capacity.instances,
                availability: request.time_stats.availability(),
            },
            on_time: request.time_stats.fallow_on_time.as_ref(),
            switches: project.settings().send.ws2,
            held: None,
            may_try: self.may_try,
        }
    }

    /// Whether the host would miss the deadline of a job that it began now and interrupted for no other,
    /// after a delay.
    fn is_late_even_alone(&self, workunit: &Workunit, version: &Version, delay: Duration) -> bool {
        let estimate = self.work_request.estimate(workunit, version);
        let (policy, bound) = (self.project.settings().send.policy, workunit.delay_bound - delay);
        policy.is_late_alone(&self.situation(), version.kind(), estimate, bound)
    }

    /// Whether the candidates would fill the request even if the policy refused half of them.
    fn is_enough(&self, found: &Found<'_>) -> bool {
        found.candidates.len() >= self.room || !found.still.is_open()
    }

    /// The policy's choice: positions in `candidates`, rising.
    fn choose(&self, candidates: &[Candidate], passed: &mut Passed) -> Vec<usize> {
        let Self { project, request, work_request, now, .. } = *self;
        let offers = candidates.iter().enumerate().map(|(id, candidate)| Offer {
            id,
            estimate: work_request.estimate(&candidate.workunit, &candidate.version),
            deadline: now + candidate.workunit.delay_bound,
            usage: candidate.version.usage,
        });
        let rules = project.settings().send;
        let mut situation = self.situation();
        let Some(held) = request.in_progress_results.as_ref().filter(|_| rules.policy.needs_workload())
        else {
            // Without the host's workload, a job is still not sent to a host that cannot make it even alone.
            let delay = request.estimated_delay.max(Duration::ZERO);
            let (late, alone): (Vec<_>, Vec<_>) = offers.partition(|offer| {
                candidates.get(offer.id).is_some_and(|candidate| {
                    self.is_late_even_alone(&candidate.workunit, &candidate.version, delay)
                })
            });
            passed.time += late.len();
            return self.take(rules.policy.decide(&situation, &mut alone.into_iter()), candidates, passed);
        };
        let held: Vec<InProgress> = earliest(held).into_iter().map(InProgress::from).collect();
        let list = || held.clone();
        situation.held = Some(HeldJobs { load: Load::of(&held), list: &list });
        self.take(rules.policy.decide(&situation, &mut { offers }), candidates, passed)
    }

    /// What the policy sends. What it refused is told to the host's owner if nothing else is sent, and
    /// logged.
    fn take(&self, sent: SendDecision<usize>, candidates: &[Candidate], passed: &mut Passed) -> Vec<usize> {
        for (position, refusal) in &sent.refused {
            let workunit = candidates.get(*position).map(|candidate| candidate.workunit.name.as_str());
            debug!(project = %self.project.name, workunit, %refusal, "not sent");
        }
        if let Some(trial) = sent.trial.and_then(|position| candidates.get(position)) {
            debug!(project = %self.project.name, workunit = %trial.workunit.name, "tried, though late by its estimate");
        }
        passed.time += sent.refused.len();
        sent.send
    }
}

/// Of the jobs in progress, of all projects, those with the earliest deadlines: no more than can be planned
/// with in time.
fn earliest(held: &[InProgressResult]) -> Vec<&InProgressResult> {
    let mut held: Vec<&InProgressResult> = held.iter().collect();
    if held.len() > LISTED_MAX {
        held.select_nth_unstable_by_key(LISTED_MAX, |job| job.report_deadline);
        held.truncate(LISTED_MAX);
    }
    held
}

fn sequence_of(text: &str) -> u64 {
    u64::from_str_radix(text, 16).unwrap_or_default()
}

fn give(
    project: &Project,
    txn: &mut Txn<'_>,
    reply: &mut ReplyContent,
    candidate: Candidate,
    now: Instant,
) -> Result<(), ProjectError> {
    let Candidate { workunit: before, index, version } = candidate;
    let mut after = before.clone();
    if after.send(index, reply.host_account(), now, version.version, &version.platform) {
        index::write(txn, &project.keys, Some(&before), &after, now)?;
        let kept = after.inputs.iter().filter(|input| input.sticky);
        let kept = kept.map(|input| (input.file_name.as_str(), Bytes(input.nbytes)));
        project.note_sent_files(txn, reply.host.id, kept)?;
        reply.host.trials.sent(now);
        reply.jobs.push(SentJob { workunit: after, index, version });
    }
    Ok(())
}

/// So many jobs wait, and the pronoun for them.
fn jobs_that_wait(count: usize) -> (String, &'static str) {
    if count == 1 { ("1 job waits".to_owned(), "it") } else { (format!("{count} jobs wait"), "them") }
}

/// A client that asked and got nothing is told the reason.
fn say_why(
    project: &Project,
    work_request: &WorkRequest<'_>,
    passed: &Passed,
    room: usize,
    reply: &mut ReplyContent,
    now: Instant,
) {
    let megabytes = |bytes: Bytes| bytes.as_f64() / 1e6;
    if room == 0 {
        reply.messages.push(note("This computer has reached a limit on tasks in progress"));
    }
    if let Some((application, needs)) = &passed.memory {
        let (needs, has) = (megabytes(*needs), megabytes(work_request.capacity.memory));
        reply.messages.push(note(format!(
            "{application} needs {needs:.2} MB RAM but only {has:.2} MB is available for use."
        )));
    }
    if let Some((application, needs)) = &passed.disk {
        let most = work_request.disk.passes(project.settings().delete_from_self).last();
        let (needs, has) = (megabytes(*needs), megabytes(most.map_or(Bytes(0), |(_, space)| space)));
        reply.messages.push(note(format!(
            "{application} needs {needs:.2} MB of disk space but only {has:.2} MB is available for use."
        )));
    }
    if passed.time > 0 {
        reply.messages.push(note("Tasks won't finish in time on this computer"));
    }
    // An agent is its account's only host; others may have many.
    let (who, whose) = match reply.host.agent {
        Some(_) => ("a host", "host"),
        None => ("an account", "account"),
    };
    if passed.failed > 0 {
        let (jobs, it) = jobs_that_wait(passed.failed);
        reply.messages.push(note(format!("{jobs} for {who} that has not failed {it}")));
    }
    if passed.failed_more > 0 {
        let (jobs, it) = jobs_that_wait(passed.failed_more);
        reply.messages.push(note(format!("{jobs} for {who} that has failed {it} less often")));
    }
    if let Some(at) = passed.first_retry() {
        let time = in_seconds(at.since(now));
        reply.messages.push(note(match passed.retries.len() {
            1 => format!("1 job that failed is tried again in {time}"),
            count => format!("{count} jobs that failed are tried again, the first in {time}"),
        }));
    }
    let of_copies = || lock(&project.requesters).said_of_copies(reply.host_account(), now);
    let of_copies = passed.counts_voters.then(of_copies).flatten();
    if passed.has_one > 0 {
        let (jobs, it) = jobs_that_wait(passed.has_one);
        let or_copy = if of_copies.is_some() { ", or one that it counts as one with," } else { "" };
        reply.messages.push(note(format!(
            "{jobs} for another {whose}: this one{or_copy} has a copy of {it}, or has computed one"
        )));
    }
    reply.messages.extend(of_copies.map(note));
    if reply.messages.is_empty() {
        let platforms = &work_request.capacity.platforms;
        let has_versions: PerType<bool> = work_request.catalog.types(platforms);
        let lacking = work_request.wanted.unsupported(&has_versions);
        reply.messages.push(note(match () {
            () if work_request.catalog.platforms().next().is_none() => {
                "This project has no application yet".to_owned()
            }
            () if platforms.is_empty() => "No application of this project runs on this platform".to_owned(),
            () if !work_request.wanted.is_supported(&has_versions) => {
                let kinds = lacking.iter().filter(|(_, lacks)| **lacks).map(|(kind, _)| type_name(kind));
                format!("No application of this project uses {}", kinds.collect::<Vec<_>>().join(" or "))
            }
            () => "Project has no tasks available".to_owned(),
        }));
    }
}

#[cfg(test)]
#[path = "send_tests.rs"]
mod tests;
