//! Contact with projects: master pages and scheduler RPCs, whom to ask and for what.
//!
//! `fallow_policy::rpc_session` decides, `fallow_policy::fetch::bounds` what is enough; this module gathers
//! what it decides by, makes the request, and takes in what came of it.

use fallow_boinc::scheduler::SchedulerReply;
use fallow_domain::{Duration, Instant, JobId, MasterUrl, ProjectId};
use fallow_policy::fetch::{RankedProject, WorkBackoff, WorkRequest};
use fallow_policy::rpc_session::{AfterRpcFailure, Candidate, SchedulerRpc, Sessions, WhyRpc};
use fallow_policy::rpc_timing::{MasterPage, RequestedBy, RpcState};

use crate::connection::NetworkUse;
use crate::machine::Client;
use crate::pages::Pages;
use crate::planning::Refusal;
use crate::state::Project;
use crate::timers::Timer;
use crate::wanted::Wanted;
use crate::why::WhyCalled;
use crate::{Cause, Effect, NoticeLevel, Reason, Rule, TransferError};

impl Client {
    pub(crate) fn request_contact(&mut self, url: &MasterUrl, by: RequestedBy) {
        match self.project_of(url) {
            Some(id) => {
                let is_in_flight = self.sessions.in_flight(id).is_some();
                self.wanted_mut().ask(id, by, is_in_flight);
                if by == RequestedBy::Owner {
                    self.edit_rpc(id, RpcState::on_owner_request);
                }
                // Who asks for contact knows better than a backoff (R1.4).
                self.clear_type_backoffs(id);
            }
            None => self.notice(NoticeLevel::Warn, None, format!("cannot contact {url}: not attached to it")),
        }
    }

    /// Who wants contact with a project; the client itself, if nobody does.
    pub(crate) fn requested_by(&self, id: ProjectId) -> RequestedBy {
        self.wanted.by(id)
    }

    /// Reads master pages that are due, checks the need for work, and makes the next RPC if there is one to
    /// make (R1.9). Others may be in flight to other projects (R1.10).
    pub(crate) fn poll_network(&mut self) {
        let now = self.now();
        self.ledger.observe_backoffs(now);
        let overdue = self.state.projects.observe(now);
        self.poll_master_pages();
        // What was asked of a scheduler that does not answer is still lacking.
        if self.sessions.observe(now) {
            self.want_fetch();
        }
        self.give_up_for_requests();
        if self.sessions.has_just_begun(now) {
            return;
        }
        self.refresh_work_fetch();
        self.refresh_reports();
        let due = self.reports.any();
        let news = self.state.projects.keys().any(|id| self.has_news_for(*id));
        if !(due || overdue || news || self.fetch.made().wants_work())
            && self.wanted.is_empty()
            && self.sessions.is_idle()
        {
            return;
        }
        let mut candidates = self.candidates();
        if let Some(hung) = self.sessions_mut().crowded_out(&candidates) {
            self.give_up_rpc(hung, Cause::OthersWait);
            self.count_failure(hung);
            self.project_failed(hung);
            self.refresh_work_fetch();
            candidates = self.candidates();
        }
        if let Some(ask) = self.sessions_mut().poll(&candidates, now) {
            self.ask(ask);
        }
    }

    /// Who asks for contact is not made to wait for an answer that is overdue already.
    fn give_up_for_requests(&mut self) {
        let sessions = &self.sessions;
        let overdue = self.wanted.meanwhile().filter(|id| sessions.is_overdue(*id));
        let overdue: Vec<ProjectId> = overdue.collect();
        for id in overdue {
            self.wanted_mut().next_rpc(id);
            self.give_up_rpc(id, Cause::ContactRequested);
            self.count_failure(id);
            self.want_fetch();
        }
    }

    /// Reads master pages that are due (R1.6).
    fn poll_master_pages(&mut self) {
        let now = self.now();
        let due: Vec<_> = self
            .state
            .projects
            .values()
            .filter(|project| !self.pages.is_being_read(project.id))
            .filter_map(|project| Some((project.id, project.url.clone(), project.rpc.master_page_due(now)?)))
            .collect();
        for (project, url, why) in due {
            self.pages_mut().begin(project);
            self.act(Effect::FetchMasterPage { project, url }, Reason::new(Rule::MasterPages, why));
        }
    }

    pub(crate) fn master_page_read(&mut self, id: ProjectId, outcome: Result<Vec<String>, TransferError>) {
        if !self.pages_mut().end(id) {
            return;
        }
        let now = self.now();
        let Some(url) = self.state.projects.get(&id).map(|project| project.url.clone()) else { return };
        let verdict = self.judge_page(id, &outcome);
        let page = match outcome {
            Ok(urls) if urls.is_empty() => {
                self.note_contact_failed(id);
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
                self.note_contact_failed(id);
                let text = format!("the page {url} could not be read: {error}");
                self.notice(NoticeLevel::Warn, Some(id), text);
                MasterPage::Unreadable
            }
        };
        let known = self.state.projects.get(&id).is_some_and(|project| !project.scheduler_urls.is_empty());
        self.with_rpc(id, |rpc, rng| rpc.on_master_page(now, page, known, rng));
        if let Some(verdict) = verdict {
            self.conclude_attaching(id, verdict);
        }
    }

    fn candidates(&self) -> Vec<Candidate> {
        let now = self.now();
        let by_project = self.config.composition.fetch.backoff() == WorkBackoff::ByProject;
        let candidate = |id: ProjectId| {
            let project = self.state.projects.get(&id)?;
            // The project wants to hear of us; but that is no request by a person, so backoffs hold (R1.4).
            let overdue = project.contact_by.is_some_and(|wait| !wait.holds(now))
                && project.rpc.min_rpc_time(now, RequestedBy::Client).is_none();
            // So does a job with a message for its project (BOINC).
            let news = self.has_news_for(id) && project.rpc.min_rpc_time(now, RequestedBy::Client).is_none();
            let requested_by = self.requested_by(id);
            let requested = requested_by != RequestedBy::Client || overdue || news;
            // Whoever asks for contact, the project's user wants no work of these types; nor does a first
            // request.
            let left_out = &project.left_out();
            let wanted = |plan: WorkRequest| self.bounded(id, plan.without(left_out)).without(left_out);
            let asking = self.fetch.made().of(id);
            let request = wanted(asking.map(|asking| asking.request).unwrap_or_default());
            let piggyback = wanted(asking.map(|asking| asking.piggyback).unwrap_or_default());
            let for_idle = || match project.detach_when_done {
                true => WorkRequest::default(),
                false => wanted(asking.map(|asking| asking.for_idle).unwrap_or_default()),
            };
            Some(Candidate {
                project: id,
                schedulers: project.scheduler_urls.len(),
                may_ask: project.rpc.min_rpc_time(now, requested_by).is_none(),
                // Where waits are by resource type the policy has seen to them.
                may_fetch: !by_project || project.rpc.min_work_time(now).is_none(),
                request: if request.is_none() && requested { piggyback } else { request },
                piggyback,
                due: self.reports.why(id),
                requested,
                by_owner: (requested_by == RequestedBy::Owner).then(for_idle),
            })
        };
        self.ranked().into_iter().filter_map(candidate).collect()
    }

    /// All projects in the order of their turns, those that hung lately when they were last asked after all
    /// others.
    fn ranked(&self) -> Vec<ProjectId> {
        let (hung, mut ranked): (Vec<_>, Vec<_>) =
            self.ranked_by_policy().into_iter().partition(|id| self.sessions.has_hung(*id));
        ranked.extend(hung);
        ranked
    }

    /// All projects, by the policy's order (R1.11).
    fn ranked_by_policy(&self) -> Vec<ProjectId> {
        let host = self.plan_host();
        let projects = self.state.projects.values().map(|p| RankedProject {
            id: p.id,
            share: p.share,
            recent: self.ledger.recent_cpu(p.id, self.now()),
            debt: self.overall_debt(p.id, &host),
        });
        self.config.composition.fetch.rank(&projects.collect::<Vec<_>>())
    }

    fn ask(&mut self, ask: SchedulerRpc) {
        let id = ask.project;
        self.settle_disk();
        let url = self
            .state
            .projects
            .get(&id)
            .and_then(|project| project.scheduler_urls.get(ask.scheduler).cloned());
        let (Some(url), Some((request, reported))) = (url, self.compose_request(id, &ask.work)) else {
            return self.sessions_mut().abandon(id);
        };
        self.number_rpc(id);
        let carried = self.trickles_for(id).into_iter().map(|(key, _)| key).collect();
        let unseen = self.state.projects.get(&id).is_some_and(|project| project.job_time.is_none());
        let by_policy = || self.fetch.made().of(id).and_then(|asking| asking.why.clone());
        let why = WhyCalled {
            reason: ask.reason,
            wanted: Duration::from_secs_f64(ask.work.scalar().get()),
            reports: reported.len(),
            unknown: unseen && !ask.work.is_none(),
            policy: matches!(ask.reason, WhyRpc::NeedsWork { .. }).then(by_policy).flatten(),
        };
        self.wanted_mut().next_rpc(id);
        self.carried.begin(id, reported.into_iter().collect(), carried);
        self.count(id, |totals| totals.rpcs += 1);
        self.ledger.rpc_made(self.clock.now());
        self.act(
            Effect::CallScheduler { project: id, url, request: Box::new(request) },
            Reason::new(Rule::RpcOrder, why),
        );
    }

    /// A scheduler has answered, or has not (R6.2).
    pub(crate) fn scheduler_answered(
        &mut self,
        id: ProjectId,
        outcome: Result<Box<SchedulerReply>, TransferError>,
    ) {
        let Some(asked) = self.sessions.in_flight(id).map(|ask| ask.work) else { return };
        let verdict = self.judge_answer(id, &outcome);
        match &outcome {
            Ok(reply) => self.note_answer(id, reply),
            Err(_) => self.note_contact_failed(id),
        }
        match outcome {
            Ok(reply) if reply.project_is_down => {
                let delay = reply.request_delay;
                self.notice(NoticeLevel::Warn, Some(id), "the project says that it is down");
                let now = self.now();
                self.with_rpc(id, |rpc, _| rpc.on_request_delay(now, delay));
                // It speaks for the project: its other schedulers are not asked against the delay (R1.3 a).
                self.sessions_mut().answered(id, 0);
                self.count_failure(id);
                self.project_failed(id);
            }
            Ok(reply) => self.rpc_succeeded(id, asked, *reply),
            Err(error) => {
                self.notice(NoticeLevel::Warn, Some(id), format!("scheduler RPC failed: {error}"));
                self.rpc_failed(id);
            }
        }
        if let Some(verdict) = verdict {
            self.conclude_attaching(id, verdict);
        }
    }

    fn rpc_succeeded(&mut self, id: ProjectId, asked: WorkRequest, mut reply: SchedulerReply) {
        self.take_key(id, &mut reply);
        let (now, delay) = (self.now(), reply.request_delay);
        self.wanted_mut().forget(id);
        self.trickles_told(id, reply.message_ack);
        let first = JobId(self.state.host.next_job);
        let refusal = Refusal::of(&reply);
        let arrived = self.apply_reply(id, reply);
        self.learn_job_time(id, first);
        let jobs = arrived.iter().map(|(_, jobs)| *jobs as usize).sum();
        self.types_answered(id, &asked, &arrived, refusal);
        self.sessions_mut().answered(id, jobs);
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
    }

    /// Tries the next scheduler; after the last one the project is left alone for a while (R1.3 b).
    fn rpc_failed(&mut self, id: ProjectId) {
        self.count_failure(id);
        match self.sessions_mut().failed(id) {
            Some(AfterRpcFailure::NextScheduler(ask)) => self.ask(ask),
            Some(AfterRpcFailure::AllFailed) => self.project_failed(id),
            None => {}
        }
    }

    fn count_failure(&mut self, id: ProjectId) {
        self.count(id, |totals| totals.rpc_failures += 1);
    }

    /// Gives up an RPC in flight: nobody wants to know its answer any more.
    pub(crate) fn give_up_rpc(&mut self, id: ProjectId, why: Cause) {
        self.sessions_mut().abandon(id);
        self.carried.forget(id);
        self.act(Effect::GiveUpRpc { project: id }, why);
    }

    /// The project is left alone for a while, and what it was asked for is asked of the next one at once
    /// (R1.5).
    fn project_failed(&mut self, id: ProjectId) {
        let now = self.now();
        self.wanted_mut().failed(id);
        self.carried.forget(id);
        if let Some(failure) = self.with_rpc(id, |rpc, rng| rpc.on_failure(now, rng)) {
            let text = format!(
                "no scheduler answered, {} times in a row: next try in {}",
                failure.failures, failure.wait
            );
            self.notice(NoticeLevel::Warn, Some(id), text);
        }
    }

    /// When an RPC in flight holds something back no longer.
    pub(crate) fn next_session_change(&self) -> Option<Instant> {
        if self.access.used() == NetworkUse::Closed { None } else { self.sessions.next_change(self.now()) }
    }

    /// When a master page is to be read: also while the answer of an RPC is awaited.
    pub(crate) fn next_master_page(&self) -> Option<Instant> {
        if self.access.used() == NetworkUse::Closed {
            return None;
        }
        let pages = self.state.projects.values().filter(|project| !self.pages.is_being_read(project.id));
        let pages = pages.filter_map(|project| project.rpc.master_page_due_at(self.now()));
        pages.filter(|at| *at > self.now()).min()
    }

    /// When a project can be asked for something that it cannot be asked for now.
    pub(crate) fn next_project(&self) -> Option<Instant> {
        if self.access.used() != NetworkUse::Open {
            return None;
        }
        let now = self.now();
        let waits = |project: &Project| {
            [
                project.rpc.min_rpc_time(now, RequestedBy::Client).map(|wait| wait.at),
                project.rpc.min_rpc_time(now, RequestedBy::Fleet).map(|wait| wait.at),
                project.rpc.min_work_time(now).map(|wait| wait.at),
                project.contact_by.map(|wait| now + wait.left(now)),
            ]
        };
        self.state.projects.values().flat_map(waits).flatten().filter(|wait| *wait > now).min()
    }

    /// What RPCs are in flight, to be changed.
    pub(crate) fn sessions_mut(&mut self) -> &mut Sessions {
        self.timers.stale(Timer::Session);
        &mut self.sessions
    }

    /// With whom contact is wanted, to be changed.
    pub(crate) fn wanted_mut(&mut self) -> &mut Wanted {
        self.timers.stale(Timer::Contact);
        &mut self.wanted
    }

    /// Which master pages are being read, to be changed.
    pub(crate) fn pages_mut(&mut self) -> &mut Pages {
        self.timers.stale(Timer::MasterPage);
        &mut self.pages
    }
}
