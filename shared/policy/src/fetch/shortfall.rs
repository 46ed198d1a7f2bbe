//! Whom to ask for how much work of each type, by long-term debt and simulated shortfall (WF2: R5.4, R3.2,
//! R3.9, R3.10).
//!
//! Model: the round-robin simulation says what the host lacks of each type, and what each project lacks of
//! its own share. Needs come in this order: idle coprocessors, idle CPUs, coprocessors that will idle
//! within the buffer, CPUs that will. The first need for which some project will do is met, by the best
//! such project: the one with the largest sum of overall debt and own shortfall times the type's speed. A
//! request made because instances idle asks for that type only. One made for a shortfall also asks for
//! other types in shortfall, where the same project is the best for them.
//!
//! Three kinds of projects are passed over: those that are *tight* (the simulation shows a job of theirs
//! missing its deadline, which more work would make worse), those that are *over-served*, and those of
//! share zero beside others. If an instance idles and no other project will do, they are asked after all: a
//! tight or over-served project for the whole shortfall, one of share zero for a job for each idle
//! instance.
//!
//! A project that is not known to supply jobs of a type (R3.5), and is not backed off for it, comes before
//! all others and is asked for its own shortfall. Its debt does not grow before it has supplied something,
//! and of the others, whose debts sum to 0, there is always one with a larger debt. So it would never be
//! asked otherwise, and nobody would learn whether it supplies the type.
//!
//! The best project is asked for what it is owed, debt and own shortfall together, but never for more than
//! the whole shortfall. What it is not owed is left for the others. Asking it for everything would fill a
//! long queue with one project's jobs, and violate the shares for days.
//!
//! A check looks at each project once for each type and sorts nothing.

use std::fmt;

use fallow_domain::{Duration, InstanceSeconds, Instant, PerType, ProjectId, ResourceType, Share};

use super::{
    CHECK_PERIOD, FetchContact, FetchDecision, FetchPolicy, FetchPriority, FetchProject, FetchSituation,
    FetchWhen, IDLE_MIN, ProjectRequest, REQUEST_MIN, WorkRequest, unserved,
};
use crate::why::Why;

/// WF2.
#[derive(Clone, Copy, Debug)]
pub struct Shortfall;

/// What the host lacks of a type, as the simulation shows it (R3.8).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TypeNeed {
    /// Instances that are idle now and for which there is no job.
    pub idle: f64,
    /// What will idle within the buffer.
    pub shortfall: InstanceSeconds,
    /// How long no instance idles.
    pub saturated: Duration,
}

impl TypeNeed {
    /// Whether anything is lacking of it, be it a reason to ask or not.
    fn is_any(&self) -> bool {
        self.shortfall.is_positive() || self.idle >= IDLE_MIN
    }
}

/// How requests are made up.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FetchRules {
    /// Speed of one instance of each type relative to one CPU (R3.4).
    pub speeds: PerType<f64>,
    /// When a shortfall is a reason to ask.
    pub when: FetchWhen,
    /// The minimum work buffer, with the connection interval (R1.13); for `FetchWhen::BelowMinimum`.
    pub buffer_min: Duration,
}

impl FetchRules {
    /// Whether what is lacking of a type is a reason to ask somebody: idle instances always, a shortfall by
    /// the rule.
    pub fn is_reason_to_ask(&self, need: &TypeNeed) -> bool {
        need.idle >= IDLE_MIN || self.is_short(need)
    }

    /// Whether a type's shortfall is a reason to ask (R5.4).
    fn is_short(&self, need: &TypeNeed) -> bool {
        let below = self.when == FetchWhen::AnyShortfall || need.saturated < self.buffer_min;
        need.shortfall.is_positive() && below
    }
}

/// A project that could be asked.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FetchCandidate {
    /// The project.
    pub id: ProjectId,
    /// Its share.
    pub share: Share,
    /// How it stands. More is better.
    pub priority: FetchPriority,
    /// Whether it got much more than its share (`over_served`).
    pub over_served: bool,
    /// Whether the simulation shows a job of it missing its deadline, of whatever type.
    pub tight: bool,
    /// Whether it may supply work at all: not suspended, not told to send none.
    pub may_supply: bool,
    /// Whether it may be asked now.
    pub contact: FetchContact,
    /// Types for which it is backed off (R3.7).
    pub backed_off: PerType<bool>,
    /// Types that it is not known to supply (R3.5): their debts do not accumulate.
    pub untried: PerType<bool>,
    /// Its shortfall against its own share (R3.8).
    pub shortfall: PerType<InstanceSeconds>,
}

/// Whether a project got much more than its share: its overall debt is below -(scheduling period + a buffer),
/// the buffer being what may be held of its jobs while it waits for its turn, the whole work buffer. Who is
/// only ranked is owed nothing and owes nothing.
pub fn over_served(priority: FetchPriority, scheduling_period: Duration, buffer: Duration) -> bool {
    let most = (scheduling_period + buffer).max(Duration::ZERO).as_secs_f64();
    matches!(priority, FetchPriority::Debt(debt) if debt.as_secs() < -most)
}

/// What makes the host ask.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Trigger {
    /// So many instances are idle.
    Idle(f64),
    /// So much will idle within the buffer.
    Shortfall(InstanceSeconds),
}

/// Why a project is asked although it would be passed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PassedOver {
    /// One of its jobs would miss its deadline.
    Tight,
    /// It got much more than its share.
    OverServed,
    /// Its share is zero.
    NoShare,
}

/// Why a project is asked.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WhyFetch {
    /// The type that is needed.
    pub kind: ResourceType,
    /// What is lacking of it.
    pub trigger: Trigger,
    /// How the project stands.
    pub priority: FetchPriority,
    /// Its own shortfall of the type.
    pub shortfall: InstanceSeconds,
    /// What would have kept it from being asked, had another project been there.
    pub last_resort: Option<PassedOver>,
}

/// A project to ask.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PlannedRequest {
    /// The project.
    pub project: ProjectId,
    /// For what.
    pub request: WorkRequest,
    /// Why.
    pub why: WhyFetch,
}

/// The outcome of a check.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ShortfallPlan {
    /// The project to ask now, if there is a need that one can meet.
    pub ask: Option<PlannedRequest>,
    /// What each project may be asked for in an RPC that happens anyway (R1.9, R3.7): every type in shortfall
    /// for which it is the best choice, backed off for it or not. In the order of the candidates, without
    /// those that get none.
    pub piggybacks: Vec<(ProjectId, WorkRequest)>,
}

impl ShortfallPlan {
    /// The same for each project. What is asked for because instances idle is lacking whomever it is asked
    /// of.
    fn asks(&self, candidates: &[FetchCandidate]) -> Vec<ProjectRequest> {
        let idles = |request: &WorkRequest| request.instances.iter().any(|(_, idle)| *idle >= IDLE_MIN);
        let for_idle = self.ask.map(|ask| ask.request).filter(idles).unwrap_or_default();
        // Piggybacked requests are in the order of the candidates.
        let mut piggybacks = self.piggybacks.iter().peekable();
        let project_request = |candidate: &FetchCandidate| {
            let ask = self.ask.filter(|ask| ask.project == candidate.id);
            let piggyback = piggybacks.next_if(|(id, _)| *id == candidate.id);
            ProjectRequest {
                project: candidate.id,
                request: ask.map(|ask| ask.request).unwrap_or_default(),
                piggyback: piggyback.map(|(_, request)| *request).unwrap_or_default(),
                for_idle,
                why: ask.map(|ask| Why::new(ask.why)),
            }
        };
        candidates.iter().map(project_request).collect()
    }
}

impl FetchPolicy for Shortfall {
    fn name(&self) -> &'static str {
        "WF2"
    }

    fn summary(&self) -> &'static str {
        "by debt and what is short overall"
    }

    fn ranks_by_recent_cpu(&self) -> bool {
        false
    }

    fn looks_at_habits(&self) -> bool {
        false
    }

    fn decide(&self, situation: &FetchSituation<'_>) -> FetchDecision {
        let outlook = situation.outlook;
        let needs = outlook.types.map(|_, of| TypeNeed {
            idle: of.idle,
            shortfall: of.shortfall,
            saturated: of.saturated,
        });
        // While nothing is short, nothing is asked for until something may be.
        let short = needs.map(|_, need| need.is_any());
        if !short.iter().any(|(_, short)| *short) {
            return FetchDecision::nothing(outlook.valid_until);
        }
        let projects = situation.projects();
        let candidates: Vec<FetchCandidate> = projects
            .iter()
            .zip(situation.priorities())
            .map(|(project, priority)| candidate(situation, project, priority))
            .collect();
        let rules = FetchRules {
            speeds: situation.host.speeds,
            when: situation.when,
            buffer_min: situation.buffer_min + situation.connection_interval,
        };
        let check_by = check_by(situation, &rules, &needs, &short, &candidates);
        let plan = plan(&rules, &needs, &candidates);
        let wanted = PerType::from_fn(|kind| rules.is_reason_to_ask(&needs[kind]));
        let unserved = unserved(wanted, &projects.iter().zip(candidates.iter().map(|of| &of.contact)));
        FetchDecision::new(plan.asks(&candidates), check_by).with_wanted(wanted, unserved)
    }
}

/// A project as this policy looks at it.
fn candidate(
    situation: &FetchSituation<'_>,
    project: &FetchProject,
    priority: FetchPriority,
) -> FetchCandidate {
    let of = situation.outlook.of(project.id);
    let contact = situation.contact(project.id);
    let window = situation.window();
    FetchCandidate {
        id: project.id,
        share: project.share,
        priority,
        over_served: over_served(priority, situation.scheduling_period, window),
        tight: of.is_some_and(|of| of.misses != PerType::default()),
        may_supply: !project.detach_when_done && !contact.at_limit,
        contact,
        backed_off: project.closed(&contact),
        untried: project.supplies.map(|_, supplies| !supplies),
        shortfall: of.map(|of| of.shortfall).unwrap_or_default(),
    }
}

/// When a check may come out differently although nothing happens. Where nobody may be asked for what is
/// short, or it is no reason to ask yet, only the end of a wait, another shortfall or less than the minimum
/// makes a difference.
fn check_by(
    situation: &FetchSituation<'_>,
    rules: &FetchRules,
    needs: &PerType<TypeNeed>,
    short: &PerType<bool>,
    candidates: &[FetchCandidate],
) -> Instant {
    let (now, outlook) = (situation.now, situation.outlook);
    let reason = |kind| rules.is_reason_to_ask(&needs[kind]);
    let may_be_asked = |candidate: &FetchCandidate| {
        let any = short.iter().any(|(kind, _)| reason(kind) && !candidate.backed_off[kind]);
        candidate.may_supply && candidate.contact.may_contact && any
    };
    if candidates.iter().any(may_be_asked) {
        return now + CHECK_PERIOD;
    }
    let later = short.iter().filter(|(kind, short)| **short && !reason(*kind));
    // Instances are busy for so long by the measured share of time; computing may go on all the time.
    let active = situation.host.active_fraction.get().max(0.01);
    let lasts = later.map(|(kind, _)| now + (needs[kind].saturated - rules.buffer_min).mul_f64(active));
    let waits = candidates.iter().filter_map(|of| of.contact.contact_from).chain(situation.backoffs_end);
    lasts.chain(waits).fold(outlook.valid_until, Instant::min)
}

/// Decides whom to ask for what.
pub fn plan(rules: &FetchRules, needs: &PerType<TypeNeed>, candidates: &[FetchCandidate]) -> ShortfallPlan {
    let check =
        Check { rules, needs, candidates, shares: candidates.iter().any(|c| c.may_supply && shares(c)) };
    let lacks = |kind: ResourceType| needs[kind].is_any();
    let best = PerType::from_fn(|kind| if lacks(kind) { check.best(kind, Eligible::Regular) } else { None });
    ShortfallPlan { ask: check.ask(&best), piggybacks: check.piggybacks(&best) }
}

fn shares(candidate: &FetchCandidate) -> bool {
    candidate.share.get() > 0.0
}

#[derive(Clone, Copy, PartialEq)]
enum Eligible {
    Regular,
    Anyone,
}

struct Check<'a> {
    rules: &'a FetchRules,
    needs: &'a PerType<TypeNeed>,
    candidates: &'a [FetchCandidate],
    /// Whether there is a project with a share.
    shares: bool,
}

impl<'a> Check<'a> {
    /// The first need, in the order of R3.10, for which a project will do.
    fn ask(&self, best: &PerType<Option<&'a FetchCandidate>>) -> Option<PlannedRequest> {
        let order = || ResourceType::COPROCESSORS.into_iter().chain([ResourceType::Cpu]);
        let idle = order().filter(|kind| self.needs[*kind].idle >= IDLE_MIN).find_map(|kind| {
            let candidate = best[kind].or_else(|| self.best(kind, Eligible::Anyone))?;
            Some(self.ask_for_idle(kind, candidate))
        });
        idle.or_else(|| {
            order()
                .filter(|kind| self.rules.is_short(&self.needs[*kind]))
                .find_map(|kind| Some(self.ask_for_shortfall(kind, best[kind]?, best)))
        })
    }

    fn ask_for_idle(&self, kind: ResourceType, candidate: &FetchCandidate) -> PlannedRequest {
        let mut request = WorkRequest::default();
        self.add(&mut request, kind, candidate);
        let trigger = Trigger::Idle(self.needs[kind].idle);
        PlannedRequest { project: candidate.id, request, why: self.why(kind, trigger, candidate) }
    }

    fn ask_for_shortfall(
        &self,
        kind: ResourceType,
        candidate: &FetchCandidate,
        best: &PerType<Option<&'a FetchCandidate>>,
    ) -> PlannedRequest {
        let mut request = WorkRequest::default();
        for other in ResourceType::ALL {
            let is_best = best[other].is_some_and(|best| best.id == candidate.id);
            if is_best && self.needs[other].shortfall.is_positive() {
                self.add(&mut request, other, candidate);
            }
        }
        let trigger = Trigger::Shortfall(self.needs[kind].shortfall);
        PlannedRequest { project: candidate.id, request, why: self.why(kind, trigger, candidate) }
    }

    fn why(&self, kind: ResourceType, trigger: Trigger, candidate: &FetchCandidate) -> WhyFetch {
        let FetchCandidate { priority, shortfall, .. } = *candidate;
        let last_resort = self.passed_over(candidate);
        WhyFetch { kind, trigger, priority, shortfall: shortfall[kind], last_resort }
    }

    fn piggybacks(&self, best: &PerType<Option<&'a FetchCandidate>>) -> Vec<(ProjectId, WorkRequest)> {
        let mut piggybacks = Vec::new();
        for candidate in self.candidates.iter().filter(|c| c.may_supply && self.passed_over(c).is_none()) {
            let mut request = WorkRequest::default();
            for kind in ResourceType::ALL.into_iter().filter(|kind| self.needs[*kind].shortfall.is_positive())
            {
                if best[kind]
                    .is_none_or(|best| best.id == candidate.id || self.is_better(kind, candidate, best))
                {
                    self.add(&mut request, kind, candidate);
                }
            }
            if !request.is_none() {
                piggybacks.push((candidate.id, request));
            }
        }
        piggybacks
    }

    /// The best project to ask for a type (R3.9).
    fn best(&self, kind: ResourceType, eligible: Eligible) -> Option<&'a FetchCandidate> {
        let will_do = |c: &&FetchCandidate| {
            c.may_supply
                && c.contact.may_contact
                && !c.backed_off[kind]
                && (eligible == Eligible::Anyone || self.passed_over(c).is_none())
        };
        let candidates = self.candidates.iter().filter(will_do);
        candidates
            .reduce(|best, candidate| if self.is_better(kind, candidate, best) { candidate } else { best })
    }

    /// Whether one is better than another; of equals the smaller id is. A project without a share comes last.
    fn is_better(&self, kind: ResourceType, one: &FetchCandidate, other: &FetchCandidate) -> bool {
        shares(one)
            .cmp(&shares(other))
            .then(other.contact.hung.cmp(&one.contact.hung))
            .then(one.untried[kind].cmp(&other.untried[kind]))
            .then(self.score(kind, one).total_cmp(&self.score(kind, other)))
            .then(other.id.cmp(&one.id))
            .is_gt()
    }

    /// What the project is owed and its shortfall, in CPU seconds; or its rank, where nothing is owed.
    fn score(&self, kind: ResourceType, candidate: &FetchCandidate) -> f64 {
        match candidate.priority {
            FetchPriority::Debt(debt) => {
                debt.as_secs() + candidate.shortfall[kind].get() * self.rules.speeds[kind]
            }
            FetchPriority::Score(rank) => rank,
        }
    }

    fn passed_over(&self, candidate: &FetchCandidate) -> Option<PassedOver> {
        match candidate {
            c if self.shares && !shares(c) => Some(PassedOver::NoShare),
            c if c.tight => Some(PassedOver::Tight),
            c if c.over_served => Some(PassedOver::OverServed),
            _ => None,
        }
    }

    fn add(&self, request: &mut WorkRequest, kind: ResourceType, candidate: &FetchCandidate) {
        let need = &self.needs[kind];
        let least = InstanceSeconds::of_one(REQUEST_MIN);
        let idle = if need.idle >= IDLE_MIN { need.idle } else { 0.0 };
        let own = candidate.shortfall[kind].max(InstanceSeconds::ZERO);
        let owed = match (self.passed_over(candidate), candidate.priority) {
            (Some(PassedOver::NoShare), _) => least,
            (Some(_), _) => need.shortfall,
            (None, _) if candidate.untried[kind] => own,
            (None, FetchPriority::Debt(_)) => {
                own.max(InstanceSeconds::new(self.score(kind, candidate) / self.rules.speeds[kind]))
            }
            (None, FetchPriority::Score(_)) => own,
        };
        let seconds = if owed.is_positive() { owed.min(need.shortfall) } else { need.shortfall };
        request.seconds[kind] = seconds.max(least);
        request.instances[kind] = idle;
    }
}

impl fmt::Display for PassedOver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tight => "has a job that would miss its deadline",
            Self::OverServed => "got much more than its share",
            Self::NoShare => "has no share",
        })
    }
}

impl fmt::Display for WhyFetch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, priority, shortfall, .. } = self;
        match self.trigger {
            Trigger::Idle(idle) => write!(f, "{idle:.2} {kind} idle")?,
            Trigger::Shortfall(seconds) => write!(f, "{kind} short of {seconds:.0} s")?,
        }
        match self.last_resort {
            Some(passed) => write!(f, "; it {passed}, but no other project will do"),
            None => write!(f, "; it stands best ({priority}, own shortfall {shortfall:.0} s)"),
        }
    }
}
