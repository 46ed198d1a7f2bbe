//! Looking ahead: what becomes of the work held, and what work to ask of whom.
//!
//! The round-robin simulation is made at most once for a state of the queue, and serves the choice of what
//! runs (R5.2) and work fetch (R5.4) alike. Long-term debts are settled whenever a plan is made from them.

use std::collections::BTreeMap;

use fallow_domain::{Duration, Instant, PerType, ProjectId, ResourceType};
use fallow_policy::composition::{Accounting, CpuPolicy, FetchPolicy, FetchWhen};
use fallow_policy::fetch::{self, FetchCandidate, FetchRules, TypeNeed, WorkRequest};
use fallow_policy::long_term_debt::LongTermPeriod;
use fallow_policy::plan_host::PlanHost;
use fallow_policy::recent_credit::CreditRank;
use fallow_policy::round_robin::PlanProject;
use fallow_policy::type_backoff::ReplyForType;
use fallow_policy::work_fetch::{self, FetchHost, FetchProject, Urgency, WorkBuffer};
use fallow_policy::work_send::Load;

use crate::machine::Client;
use crate::plan::Plan;
use crate::record::Record;
use crate::state::Project;

/// Work fetch is checked at least this often where its outcome may change with time alone (R2.16).
const CHECK_PERIOD: Duration = Duration::from_secs(60);
/// Nor is it checked again sooner, however near the end of what a plan holds for.
const CHECK_SOONEST: Duration = Duration::from_secs(1);
/// The measured share of time that computing is possible moves all the time; plans follow it in steps of this
/// size.
const ACTIVE_STEP: f64 = 0.01;

impl Client {
    /// What the jobs in progress come to, for a server that plans with them (R5.6) and is modelled beside the
    /// client.
    pub fn load(&self) -> Load {
        self.queue.load().put_off(self.preferences().connection_interval)
    }

    /// How much work is to be held: the whole buffer, and the time between contacts (R1.13).
    fn window(&self) -> Duration {
        let preferences = self.preferences();
        preferences.buffer_min + preferences.buffer_additional + preferences.connection_interval
    }

    /// Simulates what becomes of the queue (R3.8), unless what is known of it still holds. The outcome is in
    /// `round_robin`.
    pub(crate) fn look_ahead(&mut self) {
        let active = self.ledger.active.get().get();
        if (active - self.planned_active).abs() > ACTIVE_STEP {
            self.planned_active = active;
        }
        let host = self.plan_host();
        let window = self.window();
        let projects: Vec<PlanProject> = self
            .state
            .projects
            .values()
            .map(|p| PlanProject { id: p.id, share: p.share, counts: !p.detach_when_done })
            .collect();
        // Deadlines in the queue are a connection interval early already.
        self.round_robin.simulate(&host, &projects, &self.queue, window, Duration::ZERO, self.now);
    }

    /// Jobs of each project and type that would be late, for the choice of what runs; none under CS1.
    pub(crate) fn misses(&mut self) -> Vec<(ProjectId, PerType<u32>)> {
        if self.config.composition.cpu == CpuPolicy::Cs1 {
            return Vec::new();
        }
        self.look_ahead();
        let outlook = self.round_robin.outlook();
        let late = outlook.projects.iter().filter(|project| project.misses != PerType::default());
        late.map(|project| (project.id, project.misses)).collect()
    }

    /// Books the time since the last plan in the long-term debts (R3.3).
    pub(crate) fn settle_long_term(&mut self) {
        self.settle_long_term_as_of(self.now);
    }

    /// Books it before the end of a backoff since `from` makes a difference: what was held back until then
    /// was so for the whole time since the last plan, however long that is on a quiet host.
    pub(crate) fn settle_before_backoffs_end(&mut self, from: Instant) {
        if self.ledger.type_backoffs.next_end(from).is_some_and(|end| end <= self.now) {
            self.settle_long_term_as_of(from);
        }
    }

    /// Books it by what was held back at an instant since the last plan.
    fn settle_long_term_as_of(&mut self, instant: Instant) {
        let length = std::mem::take(&mut self.ledger.unsettled);
        if length == Duration::ZERO && self.ledger.long_period.is_empty() {
            return;
        }
        let owed = |id: &ProjectId| self.ledger.long_term.has_debts(*id);
        if self.state.projects.len() < 2 && !self.state.projects.keys().any(owed) {
            // Who is alone is owed nothing, and owes nothing: not even to one that has left (R3.6).
            return self.ledger.long_period.clear();
        }
        let used = std::mem::take(&mut self.ledger.long_period);
        let host = self.plan_host();
        let periods: Vec<LongTermPeriod> = self
            .state
            .projects
            .values()
            .map(|project| LongTermPeriod {
                project: project.id,
                share: project.share,
                used: used.get(&project.id).copied().unwrap_or_default(),
                may_supply: PerType::from_fn(|kind| {
                    !project.detach_when_done
                        && !project.web.without[kind]
                        && !self.ledger.type_backoffs.holds(project.id, kind, instant)
                }),
            })
            .collect();
        self.ledger.long_term.settle(length, &host, &periods);
    }

    /// Checks the need for work if its outcome may have changed.
    pub(crate) fn refresh_work_fetch(&mut self) {
        // Tasks may come to their ends faster than the last check took for granted (R2.16).
        let old = self.now.since(self.fetch_checked_at) >= CHECK_PERIOD;
        if self.fetch_due || old || self.now >= self.next_fetch_check() || self.fetch_checked_at > self.now {
            self.check_work_fetch();
        }
    }

    /// Decides what work to ask of whom.
    fn check_work_fetch(&mut self) {
        self.fetch_due = false;
        self.fetch_checked_at = self.now;
        self.settle_long_term();
        if self.preferences().suspended {
            self.net.plan = Plan::default();
            self.fetch_check_by = self.now + CHECK_PERIOD;
            return;
        }
        self.look_what_is_enough();
        match self.config.composition.fetch {
            FetchPolicy::Wf1 => self.plan_by_starvation(),
            FetchPolicy::Wf2 => self.plan_by_shortfall(),
        }
    }

    /// WF1 (R5.3): each project by its own expected starvation (R2.10 to R2.16).
    fn plan_by_starvation(&mut self) {
        let preferences = self.preferences();
        let (min, additional) = (preferences.buffer_min, preferences.buffer_additional);
        let buffer = match self.config.composition.fetch_when {
            FetchWhen::AnyShortfall => WorkBuffer::whole(min, additional),
            FetchWhen::BelowMinimum => WorkBuffer::marks(min, additional),
        };
        let host = FetchHost {
            usable: self.plan_host().instances,
            active_fraction: self.ledger.active.get(),
            buffer: buffer.beyond(preferences.connection_interval),
        };
        let projects: Vec<FetchProject> = self
            .state
            .projects
            .values()
            .map(|project| {
                // One that has programs for nothing here is asked all the same, as BOINC does: it could never
                // take it back otherwise, and asking in vain backs off by itself.
                let lacks_all = host.usable.iter().all(|(kind, count)| *count == 0 || project.lacks[kind]);
                let gathered = self.gathered(project.id);
                FetchProject {
                    id: project.id,
                    share: project.share,
                    may_supply: PerType::from_fn(|kind| {
                        !project.detach_when_done
                            && (lacks_all || !project.lacks[kind])
                            && !project.web.without[kind]
                            && !gathered[kind]
                    }),
                }
            })
            .collect();
        let plan = work_fetch::check(&host, &projects, &self.queue);
        // Where nobody who starves may be asked now, only the end of a wait or another's starvation makes a
        // difference.
        let starving = plan.needs.iter().filter(|need| need.urgency > Urgency::None).map(|need| need.project);
        let waits = starving
            .filter_map(|id| self.state.projects.get(&id))
            .all(|project| !self.may_contact(project) || project.rpc.min_work_time(self.now).is_some());
        let holds_for = if waits { plan.holds_for.max(CHECK_SOONEST) } else { CHECK_PERIOD };
        self.fetch_check_by = self.now + holds_for;
        self.net.plan = Plan::Starvation(plan);
    }

    /// Whether a project may be asked for work now, as far as the contact itself goes.
    fn may_contact(&self, project: &Project) -> bool {
        !project.scheduler_urls.is_empty()
            && project.rpc.min_rpc_time(self.now, self.asker(project.id)).is_none()
            && self.net.sessions.in_flight(project.id).is_none()
            && self.enough_of(project.id).is_none()
    }

    /// WF2 (R5.4): one project at a time, by long-term debt and simulated shortfall.
    fn plan_by_shortfall(&mut self) {
        self.look_ahead();
        let now = self.now;
        let host = self.plan_host();
        let outlook = self.round_robin.outlook();
        let needs = outlook.types.map(|_, of| TypeNeed {
            idle: of.idle,
            shortfall: of.shortfall,
            saturated: of.saturated,
        });
        // While nothing is short, nothing is asked for until something may be.
        let short = needs.map(|_, need| need.shortfall > 0.0 || need.idle >= fetch::IDLE_MIN);
        if !short.iter().any(|(_, short)| *short) {
            self.net.plan = Plan::default();
            self.fetch_check_by = outlook.valid_until.max(now + CHECK_SOONEST);
            return;
        }
        let (period, window) = (self.preferences().scheduling_period, self.window());
        let by_credit = (self.config.composition.accounting == Accounting::RecentCredit)
            .then(|| self.credit_priorities(&host, window));
        let candidates: Vec<FetchCandidate> = self
            .state
            .projects
            .values()
            .map(|project| {
                let id = project.id;
                let of = outlook.of(id);
                let standing = self.ledger.long_term.overall(id, &host.speeds);
                FetchCandidate {
                    id,
                    share: project.share,
                    standing: by_credit.as_ref().map_or(standing, |by| by.get(&id).copied().unwrap_or(0.0)),
                    over_served: by_credit.is_none() && fetch::over_served(standing, period, window),
                    tight: of.is_some_and(|of| of.misses != PerType::default()),
                    may_supply: !project.detach_when_done && self.enough_of(id).is_none(),
                    may_ask: self.may_contact(project),
                    hung: self.net.sessions.has_hung(id),
                    backed_off: self.held_back(project),
                    untried: PerType::from_fn(|kind| !self.ledger.long_term.supplies(id, kind)),
                    shortfall: of.map(|of| of.shortfall).unwrap_or_default(),
                }
            })
            .collect();
        let rules = FetchRules {
            speeds: host.speeds,
            when: self.config.composition.fetch_when,
            buffer_min: self.preferences().buffer_min + self.preferences().connection_interval,
            accounting: self.config.composition.accounting,
        };
        // Where nobody may be asked for what is short, or it is no reason to ask yet, only the end of a wait,
        // another shortfall or less than the minimum makes a difference.
        let reason = |kind| rules.is_reason_to_ask(&needs[kind]);
        let may_be_asked = |candidate: &FetchCandidate| {
            let any = short.iter().any(|(kind, _)| reason(kind) && !candidate.backed_off[kind]);
            candidate.may_supply && candidate.may_ask && any
        };
        self.fetch_check_by = if candidates.iter().any(may_be_asked) {
            now + CHECK_PERIOD
        } else {
            let later = short.iter().filter(|(kind, short)| **short && !reason(*kind));
            // Instances are busy for so long by the measured share of time; computing may go on all the time.
            let active = host.active_fraction.get().max(0.01);
            let lasts =
                later.map(|(kind, _)| now + (needs[kind].saturated - rules.buffer_min).mul_f64(active));
            let waits = self
                .state
                .projects
                .values()
                .filter_map(|project| Some(project.rpc.min_rpc_time(now, self.asker(project.id))?.at));
            let waits = waits.chain(self.ledger.type_backoffs.next_end(now));
            lasts.chain(waits).fold(outlook.valid_until, Instant::min).max(now + CHECK_SOONEST)
        };
        self.net.plan = Plan::Shortfall(fetch::plan(&rules, &needs, &candidates));
    }

    /// The types that a project is not asked for now: it said that it has nothing, its user wants none, or jobs of it
    /// gather that cannot run.
    fn held_back(&self, project: &Project) -> PerType<bool> {
        let held = self.ledger.type_backoffs.held(project.id, self.now);
        let gathered = self.gathered(project.id);
        PerType::from_fn(|kind| held[kind] || project.web.without[kind] || gathered[kind])
    }

    /// The priority of each project for work fetch by recent credit.
    fn credit_priorities(&self, host: &PlanHost, window: Duration) -> BTreeMap<ProjectId, f64> {
        let queued = |id| -> f64 {
            let types = host.types();
            types.map(|kind| self.queue.remaining_on(id, kind).as_secs_f64() * host.speeds[kind]).sum()
        };
        let projects = self.state.projects.values();
        let ranks: Vec<CreditRank> =
            projects.map(|p| CreditRank { project: p.id, share: p.share, queued: queued(p.id) }).collect();
        self.ledger.credit.priorities(host, window, &ranks)
    }

    /// Takes in what a reply brought of each type that was asked for (R3.5, R3.7, R3.11).
    pub(crate) fn types_answered(&mut self, id: ProjectId, asked: &WorkRequest, jobs: &PerType<u32>) {
        self.settle_long_term();
        let lacks = self.state.projects.get(&id).map(|project| project.lacks).unwrap_or_default();
        for kind in ResourceType::ALL {
            let reply = match jobs[kind] {
                0 if !asked.asks(kind) => continue,
                0 if lacks[kind] => ReplyForType::NotSupported,
                0 => ReplyForType::NoneNow,
                count => ReplyForType::Jobs(count),
            };
            self.note_draw();
            let after = self.ledger.type_backoffs.on_reply(id, kind, reply, self.now, &mut self.rng);
            self.ledger.long_term.on_reply(id, kind, reply, after);
        }
        self.mark(Record::Ledger);
    }

    /// When a check may come out differently although nothing happens.
    pub(crate) fn next_fetch_check(&self) -> Instant {
        let backoff = self.ledger.type_backoffs.next_end(self.now).unwrap_or(Instant::FAR_FUTURE);
        self.fetch_check_by.min(backoff)
    }
}
