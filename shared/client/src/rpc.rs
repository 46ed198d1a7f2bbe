//! Contact with projects: master pages and scheduler RPCs, whom to ask and for what.
//!
//! `fallow_policy::rpc_session` decides, `fallow_policy::fetch::bounds` what is enough; this module gathers what it
//! decides by, makes the request, and takes in what came of it.

use std::collections::{BTreeMap, BTreeSet};

use fallow_boinc::scheduler::SchedulerReply;
use fallow_domain::{Duration, Instant, JobId, MasterUrl, ProjectId};
use fallow_policy::decay::RecentCpu;
use fallow_policy::fetch::bounds::{Enough, Gathered};
use fallow_policy::fetch::{FetchDecision, RankedProject, WorkBackoff, WorkRequest};
use fallow_policy::report_due::{self, FinishedJob, WhyDue};
use fallow_policy::rpc_session::{AfterFailure, Ask, Candidate, Sessions, WhyAsk};
use fallow_policy::rpc_timing::{Asker, MasterPage, RpcState};
use fallow_policy::transfer_backoff::ProjectTransferBackoff;

use crate::machine::Client;
use crate::messages::{Hearing, NoWork};
use crate::state::Job;
use crate::under_way::UnderWay;
use crate::why::WhyCalled;
use crate::{Effect, FileKey, NoticeLevel, Reason, TransferError};

/// Contact with the outside that is under way. Not stored: after a restart nothing is.
#[derive(Debug, Default)]
pub(crate) struct Network {
    pub sessions: Sessions,
    /// Jobs that the RPC in flight to each project reports.
    pub reporting: BTreeMap<ProjectId, BTreeSet<JobId>>,
    pub pages: BTreeSet<ProjectId>,
    /// Projects that somebody wants contact with, and who (R1.4).
    pub requested: BTreeMap<ProjectId, Asker>,
    /// Those of them with which contact was wanted after the RPC in flight had begun: its failure is none of theirs.
    pub asked_meanwhile: BTreeSet<ProjectId>,
    /// What work to ask of whom.
    pub plan: FetchDecision,
    /// The network is not to be used before then (R1.13).
    pub closed_until: Option<Instant>,
    /// Messages of jobs that the RPC in flight to each project carries.
    pub trickling: BTreeMap<ProjectId, Vec<FileKey>>,
    pub transfers: BTreeMap<(ProjectId, bool), ProjectTransferBackoff>,
    /// Which projects have jobs due for reporting; none when that has to be worked out again.
    pub reports_due: Option<ReportsDue>,
    /// Downloads under way, by project.
    pub downloads: BTreeMap<ProjectId, UnderWay>,
    /// How much of what each project says is still to be told.
    pub hearing: BTreeMap<ProjectId, Hearing>,
    /// What each project said when it sent no work the last time.
    pub no_work: BTreeMap<ProjectId, NoWork>,
    /// Projects that are asked for no more work, by the last look.
    pub enough: BTreeMap<ProjectId, Enough>,
    /// Types that a project is asked for no more of, likewise.
    pub gathered: BTreeMap<ProjectId, Gathered>,
}

/// Why finished jobs are due for reporting, by project, and when that may change although nothing happens.
#[derive(Debug)]
pub(crate) struct ReportsDue {
    by_project: BTreeMap<ProjectId, WhyDue>,
    next: Instant,
}

impl Client {
    pub(crate) fn request_contact(&mut self, url: &MasterUrl, by: Asker) {
        match self.project_of(url) {
            Some(id) => {
                if self.net.sessions.in_flight(id).is_some() {
                    self.net.asked_meanwhile.insert(id);
                }
                let asker = self.net.requested.entry(id).or_default();
                *asker = by.max(*asker);
                if by == Asker::Owner {
                    self.edit_rpc(id, RpcState::on_owner_request);
                }
                // Who asks for contact knows better than a backoff (R1.4).
                self.clear_type_backoffs(id);
                self.fetch_due = true;
            }
            None => self.notice(NoticeLevel::Warn, None, format!("cannot contact {url}: not attached to it")),
        }
    }

    /// Who wants contact with a project; the client itself, if nobody does.
    pub(crate) fn asker(&self, id: ProjectId) -> Asker {
        self.net.requested.get(&id).copied().unwrap_or_default()
    }

    /// Reads master pages that are due, checks the need for work, and makes the next RPC if there is one to
    /// make. Others may be in flight to other projects (R1.10).
    pub(crate) fn poll_network(&mut self) {
        let now = self.now;
        self.ledger.type_backoffs.observe(now);
        let overdue = self.state.projects.observe(now);
        self.poll_master_pages();
        // What was asked of a scheduler that does not answer is still lacking.
        self.fetch_due |= self.net.sessions.observe(now);
        self.give_up_for_requests();
        if self.net.sessions.has_just_begun(now) {
            return;
        }
        self.refresh_work_fetch();
        if self.net.reports_due.as_ref().is_none_or(|due| due.next <= now) {
            self.net.reports_due = Some(self.due_reports());
        }
        let due = self.net.reports_due.as_ref().is_some_and(|due| !due.by_project.is_empty());
        let news = self.state.projects.keys().any(|id| self.has_news_for(*id));
        if !(due || overdue || news || self.net.plan.wants_work())
            && self.net.requested.is_empty()
            && self.net.sessions.is_idle()
        {
            return;
        }
        let mut candidates = self.candidates();
        if let Some(hung) = self.net.sessions.crowded_out(&candidates) {
            self.give_up_rpc(hung, "it hangs, and another project waits for its turn");
            self.count_failure(hung);
            self.project_failed(hung);
            self.refresh_work_fetch();
            candidates = self.candidates();
        }
        if let Some(ask) = self.net.sessions.poll(&candidates, now) {
            self.ask(ask);
        }
    }

    /// Who asks for contact is not made to wait for an answer that is overdue already.
    fn give_up_for_requests(&mut self) {
        let sessions = &self.net.sessions;
        let overdue = self.net.asked_meanwhile.iter().copied().filter(|id| sessions.is_left_behind(*id));
        let overdue: Vec<ProjectId> = overdue.collect();
        for id in overdue {
            self.net.asked_meanwhile.remove(&id);
            self.give_up_rpc(id, "it hangs, and somebody asks for contact");
            self.count_failure(id);
            self.fetch_due = true;
        }
    }

    fn poll_master_pages(&mut self) {
        let now = self.now;
        let due: Vec<_> = self
            .state
            .projects
            .values()
            .filter(|project| !self.net.pages.contains(&project.id))
            .filter_map(|project| Some((project.id, project.url.clone(), project.rpc.master_page_due(now)?)))
            .collect();
        for (project, url, why) in due {
            self.net.pages.insert(project);
            self.act(Effect::FetchMasterPage { project, url }, Reason::new("R1.6", why));
        }
    }

    pub(crate) fn master_page_read(&mut self, id: ProjectId, outcome: Result<Vec<String>, TransferError>) {
        if !self.net.pages.remove(&id) {
            return;
        }
        let now = self.now;
        let Some(url) = self.state.projects.get(&id).map(|project| project.url.clone()) else { return };
        let page = match outcome {
            Ok(urls) if urls.is_empty() => {
                let text = format!("the page {url} names no scheduler: is it a project's?");
                self.notice(NoticeLevel::Error, Some(id), text);
                MasterPage::NoSchedulers
            }
            Ok(urls) => {
                let new = self.edit_project(id, |project| {
                    let known = std::mem::replace(&mut project.scheduler_urls, urls);
                    project.scheduler_urls.iter().any(|url| !known.contains(url))
                });
                if new == Some(true) { MasterPage::NewScheduler } else { MasterPage::KnownSchedulers }
            }
            Err(error) => {
                let text = format!("the page {url} could not be read: {error}");
                self.notice(NoticeLevel::Warn, Some(id), text);
                MasterPage::Unreadable
            }
        };
        let known = self.state.projects.get(&id).is_some_and(|project| !project.scheduler_urls.is_empty());
        self.with_rpc(id, |rpc, rng| rpc.on_master_page(now, page, known, rng));
    }

    fn candidates(&self) -> Vec<Candidate> {
        let now = self.now;
        let by_project = self.config.composition.fetch.backoff() == WorkBackoff::ByProject;
        let candidate = |id: ProjectId| {
            let project = self.state.projects.get(&id)?;
            // The project wants to hear of us; but that is no request by a person, so backoffs hold (R1.4).
            let overdue = project.contact_by.is_some_and(|wait| !wait.holds(now))
                && project.rpc.min_rpc_time(now, Asker::Client).is_none();
            // So does a job with a message for its project (BOINC).
            let news = self.has_news_for(id) && project.rpc.min_rpc_time(now, Asker::Client).is_none();
            let asker = self.asker(id);
            let requested = asker != Asker::Client || overdue || news;
            // Whoever asks for contact, the project's user wants no work of these types; nor does a first request.
            let left_out = &project.web.without;
            let wanted = |plan: WorkRequest| self.bounded(id, plan.without(left_out)).without(left_out);
            let asking = self.net.plan.of(id);
            let request = wanted(asking.map(|asking| asking.request).unwrap_or_default());
            let fill = wanted(asking.map(|asking| asking.fill).unwrap_or_default());
            let for_idle = || match project.detach_when_done {
                true => WorkRequest::default(),
                false => wanted(asking.map(|asking| asking.for_idle).unwrap_or_default()),
            };
            Some(Candidate {
                project: id,
                schedulers: project.scheduler_urls.len(),
                may_ask: project.rpc.min_rpc_time(now, asker).is_none(),
                // Where waits are by resource type the policy has seen to them.
                may_fetch: !by_project || project.rpc.min_work_time(now).is_none(),
                request: if request.is_none() && requested { fill } else { request },
                fill,
                due: self.net.reports_due.as_ref().and_then(|due| due.by_project.get(&id).copied()),
                requested,
                by_owner: (asker == Asker::Owner).then(for_idle),
            })
        };
        self.ranked().into_iter().filter_map(candidate).collect()
    }

    /// All projects in the order of their turns, those that hung lately when they were last asked after all others.
    fn ranked(&self) -> Vec<ProjectId> {
        let (hung, mut ranked): (Vec<_>, Vec<_>) =
            self.ranked_by_policy().into_iter().partition(|id| self.net.sessions.has_hung(*id));
        ranked.extend(hung);
        ranked
    }

    /// All projects, by the policy's order (R1.11).
    fn ranked_by_policy(&self) -> Vec<ProjectId> {
        let host = self.plan_host();
        let recent = |id| self.ledger.recent.get(&id).copied().unwrap_or(RecentCpu::new(self.now));
        let projects = self.state.projects.values().map(|p| RankedProject {
            id: p.id,
            share: p.share,
            recent: recent(p.id),
            debt: self.overall_debt(p.id, &host),
        });
        self.config.composition.fetch.rank(&projects.collect::<Vec<_>>())
    }

    /// Per project, why its finished jobs are due for reporting, if they are (R1.8).
    fn due_reports(&self) -> ReportsDue {
        let interval = self.preferences().connection_interval;
        let mut due = ReportsDue { by_project: BTreeMap::new(), next: Instant::FAR_FUTURE };
        let mut ready: BTreeMap<ProjectId, usize> = BTreeMap::new();
        for job in self.state.jobs.reporting().iter().filter_map(|id| self.state.jobs.get(id)) {
            let Some(report) = finished(job) else { continue };
            let count = ready.entry(job.project).or_default();
            *count += 1;
            let why = report_due::report_due(self.now, &report, interval).or(report_due::many_due(*count));
            if let Some(why) = why.or_else(|| self.in_period().then_some(WhyDue::Connected)) {
                let first = due.by_project.entry(job.project).or_insert(why);
                *first = why.min(*first);
            } else {
                due.next = due.next.min(report_due::report_due_at(&report, interval).0);
            }
        }
        due
    }

    fn ask(&mut self, ask: Ask) {
        let id = ask.project;
        let url = self
            .state
            .projects
            .get(&id)
            .and_then(|project| project.scheduler_urls.get(ask.scheduler).cloned());
        let (Some(url), Some((request, reported))) = (url, self.compose_request(id, &ask.work)) else {
            return self.net.sessions.abandon(id);
        };
        self.number_rpc(id);
        let carried = self.trickles_for(id).into_iter().map(|(key, _)| key).collect();
        self.net.trickling.insert(id, carried);
        let unseen = self.state.projects.get(&id).is_some_and(|project| project.job_time.is_none());
        let by_policy = || self.net.plan.of(id).and_then(|asking| asking.why.clone());
        let why = WhyCalled {
            reason: ask.reason,
            wanted: Duration::from_secs_f64(ask.work.scalar()),
            reports: reported.len(),
            unknown: unseen && !ask.work.is_none(),
            policy: matches!(ask.reason, WhyAsk::NeedsWork { .. }).then(by_policy).flatten(),
        };
        self.net.asked_meanwhile.remove(&id);
        self.net.reporting.insert(id, reported.into_iter().collect());
        self.count(id, |totals| totals.rpcs += 1);
        self.ledger.metrics.rpc_made(self.now);
        self.act(
            Effect::CallScheduler { project: id, url, request: Box::new(request) },
            Reason::new("R1.9", why),
        );
    }

    pub(crate) fn scheduler_answered(
        &mut self,
        id: ProjectId,
        outcome: Result<Box<SchedulerReply>, TransferError>,
    ) {
        let Some(asked) = self.net.sessions.in_flight(id).map(|ask| ask.work) else { return };
        match outcome {
            Ok(reply) if reply.project_is_down => {
                let delay = reply.request_delay;
                self.notice(NoticeLevel::Warn, Some(id), "the project says that it is down");
                let now = self.now;
                self.with_rpc(id, |rpc, _| rpc.on_request_delay(now, delay));
                // It speaks for the project: its other schedulers are not asked against the delay (R1.3 a).
                self.net.sessions.answered(id, 0);
                self.count_failure(id);
                self.project_failed(id);
            }
            Ok(reply) => self.rpc_succeeded(id, asked, *reply),
            Err(error) => {
                self.notice(NoticeLevel::Warn, Some(id), format!("scheduler RPC failed: {error}"));
                self.rpc_failed(id);
            }
        }
    }

    fn rpc_succeeded(&mut self, id: ProjectId, asked: WorkRequest, reply: SchedulerReply) {
        let (now, delay) = (self.now, reply.request_delay);
        self.net.requested.remove(&id);
        self.net.asked_meanwhile.remove(&id);
        self.trickles_told(id, reply.message_ack);
        let first = JobId(self.state.meta.next_job);
        let arrived = self.apply_reply(id, reply);
        self.learn_job_time(id, first);
        let jobs = arrived.iter().map(|(_, jobs)| *jobs as usize).sum();
        self.types_answered(id, &asked, &arrived);
        self.net.sessions.answered(id, jobs);
        let by_project = self.config.composition.fetch.backoff() == WorkBackoff::ByProject;
        self.with_rpc(id, |rpc, rng| {
            rpc.on_success();
            rpc.on_request_delay(now, delay);
            if by_project && !asked.is_none() {
                rpc.on_work_reply(now, jobs, rng);
            }
        });
        if !asked.is_none() {
            let text = self
                .said(|| format!("asked for work, got {jobs} {}", if jobs == 1 { "job" } else { "jobs" }));
            self.notice(NoticeLevel::Info, Some(id), text);
        }
        self.fetch_due = true;
    }

    /// Tries the next scheduler; after the last one the project is left alone for a while (R1.3 b).
    fn rpc_failed(&mut self, id: ProjectId) {
        self.count_failure(id);
        match self.net.sessions.failed(id) {
            Some(AfterFailure::NextScheduler(ask)) => self.ask(ask),
            Some(AfterFailure::AllFailed) => self.project_failed(id),
            None => {}
        }
    }

    fn count_failure(&mut self, id: ProjectId) {
        self.count(id, |totals| totals.rpc_failures += 1);
    }

    /// Gives up an RPC in flight: nobody wants to know its answer any more.
    pub(crate) fn give_up_rpc(&mut self, id: ProjectId, why: &str) {
        self.net.sessions.abandon(id);
        self.net.reporting.remove(&id);
        self.net.trickling.remove(&id);
        self.act(Effect::GiveUpRpc { project: id }, Reason::new("R1.10", why));
    }

    /// The project is left alone for a while, and what it was asked for is asked of the next one at once (R1.5).
    fn project_failed(&mut self, id: ProjectId) {
        let now = self.now;
        if !self.net.asked_meanwhile.remove(&id) {
            self.net.requested.remove(&id);
        }
        self.net.reporting.remove(&id);
        self.net.trickling.remove(&id);
        if let Some(failure) = self.with_rpc(id, |rpc, rng| rpc.on_failure(now, rng)) {
            let text = format!(
                "no scheduler answered, {} times in a row: next try in {}",
                failure.failures, failure.wait
            );
            self.notice(NoticeLevel::Warn, Some(id), text);
        }
    }

    pub(crate) fn next_network_wake_up(&self) -> Instant {
        let now = self.now;
        if let Some(until) = self.next_connection() {
            // Where the interval is over and nothing is needed, only a new need makes a difference.
            let until = if until > now { until } else { Instant::FAR_FUTURE };
            return until.min(self.next_fetch_check()).min(self.next_contactable());
        }
        let beside = self.net.sessions.next_change(now).unwrap_or(Instant::FAR_FUTURE);
        if self.net.sessions.has_just_begun(now) {
            // Nothing is decided before its answer; only master pages are read meanwhile.
            let pages = self.state.projects.values().filter(|project| !self.net.pages.contains(&project.id));
            let pages = pages.filter_map(|project| project.rpc.master_page_due_at(now));
            return pages.filter(|at| *at > now).fold(beside, Instant::min);
        }
        let mut at = self.next_fetch_check().min(beside);
        for project in self.state.projects.values() {
            let waits = [
                project.rpc.min_rpc_time(now, Asker::Client).map(|wait| wait.at),
                project.rpc.min_rpc_time(now, Asker::Fleet).map(|wait| wait.at),
                project.rpc.min_work_time(now).map(|wait| wait.at),
                project.rpc.master_page_due_at(now).filter(|_| !self.net.pages.contains(&project.id)),
                project.contact_by.map(|wait| now + wait.left(now)),
            ];
            at = waits.into_iter().flatten().filter(|wait| *wait > now).fold(at, Instant::min);
        }
        at.min(self.net.reports_due.as_ref().map_or(Instant::FAR_FUTURE, |due| due.next))
    }
}

fn finished(job: &Job) -> Option<FinishedJob> {
    let outcome = job.outcome.as_ref()?;
    Some(FinishedJob {
        completed_at: outcome.at,
        deadline: job.result.report_deadline,
        report_at_once: job.result.report_immediately,
    })
}
