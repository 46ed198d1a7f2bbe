//! Looking ahead: what becomes of the work held, and what work to ask of whom.
//!
//! The round-robin simulation is made at most once for a state of the queue, and serves the choice of what
//! runs (R5.2) and work fetch (R5.4) alike. Long-term debts are settled whenever a plan is made from them.

use fallow_boinc::scheduler::SchedulerReply;
use fallow_domain::{Duration, Instant, PerType, ProjectId, ResourceType};
use fallow_policy::accounting::{AccountingSituation, Debt, LongTermPeriod};
use fallow_policy::fetch::{
    CHECK_PERIOD, CHECK_SOONEST, FetchContact, FetchDecision, FetchPriority, FetchProject, FetchSituation,
    WorkRequest,
};
use fallow_policy::plan_host::PlanHost;
use fallow_policy::round_robin::{Outlook, PlanProject};
use fallow_policy::type_backoff::ReplyForType;

use crate::connection::NetworkUse;
use crate::machine::Client;
use crate::record::Record;
use crate::state::Project;
use crate::timers::Timer;

/// How long it is not looked again what to ask for where there is nobody to ask, or computing is suspended.
const QUIET_PERIOD: Duration = Duration::from_hours(1);

/// Why a project that has jobs sent none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// They would be late here.
    Late,
    /// They are spread over hosts, and this one has its part.
    Part,
}

impl Refusal {
    /// As a reply says it.
    pub(crate) fn of(reply: &SchedulerReply) -> Option<Self> {
        match () {
            () if reply.gives_a_part() => Some(Self::Part),
            () if reply.refuses_late_jobs() => Some(Self::Late),
            () => None,
        }
    }
}

/// A buffer for the projects of a round-robin simulation, used again each time.
#[derive(Debug, Default)]
pub(crate) struct Planned(Vec<PlanProject>);

impl Client {
    /// How much work is to be held: the whole buffer, and the time between contacts (R1.13).
    pub(crate) fn window(&self) -> Duration {
        let preferences = self.preferences();
        preferences.buffer_min + preferences.buffer_additional + preferences.connection_interval
    }

    /// Simulates what becomes of the queue (R3.8), unless what is known of it still holds. The outcome is in
    /// `round_robin`.
    pub(crate) fn look_ahead(&mut self) {
        self.usable.follow_active(self.ledger.active_fraction());
        let host = self.plan_host();
        let least = self.config.composition.fetch.looks_at_least();
        let window = self.window().max(least.mul_f64(1.0 / host.active_fraction.get().max(0.01)));
        let project = |p: &Project| PlanProject { id: p.id, share: p.share, counts: !p.detach_when_done };
        let mut projects = std::mem::take(&mut self.planned);
        projects.0.clear();
        projects.0.extend(self.state.projects.values().map(project));
        // Deadlines in the queue are a connection interval early already.
        self.round_robin.simulate(
            &host,
            &projects.0,
            self.workload.queue(),
            window,
            Duration::ZERO,
            self.now(),
        );
        self.planned = projects;
    }

    /// Books the time since the last plan in the long-term debts (R3.3).
    pub(crate) fn settle_long_term(&mut self) {
        self.settle_long_term_as_of(self.now());
    }

    /// A project may be asked for all types again. It earned nothing of those that it was not asked for until
    /// now.
    pub(crate) fn clear_type_backoffs(&mut self, id: ProjectId) {
        self.settle_long_term();
        self.ledger.clear_backoffs(id);
        self.want_fetch();
    }

    /// Books it before the end of a backoff since `from` makes a difference: what was held back until then
    /// was so for the whole time since the last plan, however long that is on a quiet host.
    pub(crate) fn settle_before_backoffs_end(&mut self, from: Instant) {
        if self.ledger.type_backoffs().next_end(from).is_some_and(|end| end <= self.now()) {
            self.settle_long_term_as_of(from);
        }
    }

    /// Books it by what was held back at an instant since the last plan. Who is known to be down earns
    /// nothing, as nothing of what it earned could be had.
    fn settle_long_term_as_of(&mut self, instant: Instant) {
        let owed = |id: &ProjectId| self.ledger.long_term().has_debts(*id);
        let is_alone = self.state.projects.len() < 2;
        if is_alone && !self.state.projects.keys().any(owed) {
            return self.ledger.forget_unsettled();
        }
        let used = self.ledger.take_unsettled();
        // Who is alone is owed nothing, and owes nothing: not even to one that has left (R3.6).
        if used.is_none() && !is_alone {
            return;
        }
        let used = used.unwrap_or_default();
        let host = self.plan_host();
        let held = self.held_below_share();
        let may_supply = |project: &Project, kind| {
            !project.detach_when_done
                && !held.holds(project.id, kind)
                && !project.rpc.is_down(instant)
                && !project.left_out()[kind]
                && !self.ledger.type_backoffs().lacks_work(project.id, kind, instant)
        };
        let used_of = |project: &Project, kind| {
            used.get(&project.id).map_or(0.0, |used: &PerType<Duration>| used[kind].as_secs_f64())
        };
        // What those have of each type together among whom it is divided: shares, and what they used.
        let of_all = PerType::from_fn(|kind| {
            let supplies = |p: &&Project| may_supply(p, kind) && self.ledger.long_term().supplies(p.id, kind);
            let all = self.state.projects.values().filter(supplies);
            all.fold((0.0, 0.0), |(shares, secs), p| (shares + p.share.get(), secs + used_of(p, kind)))
        });
        // As long as more is here than the owner lets run, it is we who do not ask: that earns nothing. What
        // it uses beyond its share it pays for all the same.
        let is_unasked = |project: &Project, kind| {
            let (shares, secs): (f64, f64) = of_all[kind];
            self.workload.queue().at_once(project.id).is_some()
                && self.gathered(project.id)[kind]
                && used_of(project, kind) * shares <= project.share.get() * secs
        };
        let periods: Vec<LongTermPeriod> = self
            .state
            .projects
            .values()
            .map(|project| LongTermPeriod {
                project: project.id,
                share: project.share,
                used: used
                    .get(&project.id)
                    .map(|used| held.but_of_held(project.id, used))
                    .unwrap_or_default(),
                may_supply: PerType::from_fn(|kind| may_supply(project, kind) && !is_unasked(project, kind)),
                forgotten: PerType::from_fn(|kind| held.for_good(project.id, kind)),
            })
            .collect();
        self.ledger.settle_long_term(&host, &periods);
    }

    /// Checks the need for work if its outcome may have changed.
    pub(crate) fn refresh_work_fetch(&mut self) {
        // Tasks may come to their ends faster than the last check took for granted (R2.16).
        if self.fetch.is_due(self.now()) || self.fetch.age(self.now()) >= CHECK_PERIOD {
            self.check_work_fetch();
        }
    }

    /// Decides what work to ask of whom.
    fn check_work_fetch(&mut self) {
        self.settle_long_term();
        if self.state.projects.is_empty() || self.preferences().suspended {
            // That changes by an event, and not with time.
            return self.follow(FetchDecision::nothing(self.now() + QUIET_PERIOD));
        }
        self.look_what_is_enough();
        let (composition, none) = (self.config.composition, Outlook::default());
        let looks_ahead = composition.fetch.looks_ahead();
        if looks_ahead {
            self.look_ahead();
        }
        let preferences = self.preferences();
        let decision = composition.fetch.decide(&FetchSituation {
            now: self.now(),
            host: self.plan_host(),
            active_fraction: self.ledger.active_fraction(),
            buffer_min: preferences.buffer_min,
            buffer_additional: preferences.buffer_additional,
            connection_interval: preferences.connection_interval,
            when: composition.fetch_when,
            scheduling_period: preferences.scheduling_period,
            queue: self.workload.queue(),
            outlook: if looks_ahead { self.round_robin.outlook() } else { &none },
            on_time: self.ledger.on_time(),
            droughts: self.ledger.longest_droughts(),
            backoffs_end: self.ledger.type_backoffs().next_end(self.now()),
            projects: &|| self.fetch_projects(),
            priorities: &|| self.fetch_priorities(),
            contact: &|id| self.state.projects.get(&id).map(|p| self.fetch_contact(p)).unwrap_or_default(),
            typical: &|id| self.ledger.typical_jobs(id, self.now()),
        });
        self.follow(decision);
    }

    /// Follows a decision within what holds whatever a policy says: nobody is asked who is leaving or not
    /// attached, and it is not decided again at once. (Who may not be contacted yet is asked when he may:
    /// `rpc_session` sees to it.)
    fn follow(&mut self, mut decision: FetchDecision) {
        let projects = &self.state.projects;
        decision.retain(|id| projects.get(&id).is_some_and(|project| !project.detach_when_done));
        self.fetch.make(self.now(), decision.check_by.max(self.now() + CHECK_SOONEST), decision);
        self.timers.stale(Timer::Fetch);
    }

    /// The projects as fetch policies look at them.
    fn fetch_projects(&self) -> Vec<FetchProject> {
        let project = |project: &Project| FetchProject {
            id: project.id,
            share: project.share,
            detach_when_done: project.detach_when_done,
            lacks: project.lacks,
            supplies: self.ledger.long_term().supplied(project.id),
            left_out: project.left_out(),
            unrunnable: self.gathered(project.id),
        };
        self.state.projects.values().map(project).collect()
    }

    /// Whether one of them may be asked now.
    fn fetch_contact(&self, project: &Project) -> FetchContact {
        let id = project.id;
        let wait = project.rpc.min_rpc_time(self.now(), self.requested_by(id));
        let at_limit = self.enough_of(id).is_some();
        let free = !project.scheduler_urls.is_empty() && self.sessions.in_flight(id).is_none();
        FetchContact {
            may_contact: wait.is_none() && free && !at_limit,
            at_limit,
            contact_from: wait.map(|wait| wait.at),
            work_waits: project.rpc.min_work_time(self.now()).is_some(),
            hung: self.sessions.has_hung(id),
            backed_off: self.ledger.type_backoffs().held(id, self.now()),
            has_work: self.ledger.type_backoffs().has_work(id, self.now()),
        }
    }

    /// How they stand against each other.
    fn fetch_priorities(&self) -> Vec<FetchPriority> {
        let accounting = self.config.composition.accounting;
        accounting.fetch_priorities(&self.books(), self.workload.queue(), self.window())
    }

    /// What a project is owed over all types, in CPU seconds (R3.4).
    pub(crate) fn overall_debt(&self, id: ProjectId, host: &PlanHost) -> Debt {
        self.ledger.long_term().overall(id, &host.speeds)
    }

    /// The books by which projects are compared.
    pub(crate) fn books(&self) -> AccountingSituation<'_> {
        self.ledger.books(self.plan_host(), self.state.projects.shares())
    }

    /// Takes in what a reply brought of each type that was asked for (R3.5, R3.7, R3.11).
    pub(crate) fn types_answered(
        &mut self,
        id: ProjectId,
        asked: &WorkRequest,
        jobs: &PerType<u32>,
        refusal: Option<Refusal>,
    ) {
        let held_against = self.config.composition.fetch.holds_late_refusals_against();
        self.settle_long_term();
        let lacks = self.state.projects.get(&id).map(|project| project.lacks).unwrap_or_default();
        for kind in ResourceType::ALL {
            let reply = match jobs[kind] {
                0 if !asked.asks(kind) => continue,
                0 if lacks[kind] => ReplyForType::NotSupported,
                // Of a type of which nothing is held there is no part.
                0 if refusal == Some(Refusal::Part) && self.holds_some(id, kind) => {
                    self.ledger.has_part(id, kind, self.now());
                    continue;
                }
                0 if refusal == Some(Refusal::Late) => ReplyForType::RefusedLate,
                0 => ReplyForType::NoneNow,
                count => ReplyForType::Jobs(count),
            };
            if matches!(reply, ReplyForType::Jobs(_)) {
                self.ledger.drought_ends(kind);
            }
            if reply == ReplyForType::RefusedLate && !held_against {
                self.ledger.refused_as_late(id, kind, self.now());
                continue;
            }
            self.note_draw();
            self.ledger.type_answered(id, kind, reply, self.clock.now(), self.random.stream());
        }
        self.want_fetch();
        self.mark(Record::Ledger);
    }

    /// Whether a job of a project is here, in whatever state, whose main type this is.
    fn holds_some(&self, id: ProjectId, kind: ResourceType) -> bool {
        self.state.jobs.values().any(|job| job.project == id && job.usage.main_type() == kind)
    }

    /// A job of a project ended here. One that had given this host its part may have more for it.
    pub(crate) fn part_is_done(&mut self, id: ProjectId) {
        if self.ledger.part_is_done(id) {
            self.want_fetch();
            self.mark(Record::Ledger);
        }
    }

    /// The types of which there is no chance to get work. While the network may not be used that is as it was
    /// when it was closed: how long the host is alone between contacts, fetch policies know.
    pub(crate) fn unserved(&self) -> PerType<bool> {
        match self.access.used() {
            NetworkUse::Closed => self.access.unserved_when_closed(),
            _ => self.fetch.made().unserved,
        }
    }

    /// When a check may come out differently although nothing happens.
    pub(crate) fn next_fetch_check(&self) -> Option<Instant> {
        if self.access.used() == NetworkUse::Awaited {
            return None;
        }
        let backoff = self.ledger.type_backoffs().next_end(self.now());
        let holds_until = self.fetch.holds_until();
        Some(backoff.map_or(holds_until, |end| end.min(holds_until)))
    }
}
