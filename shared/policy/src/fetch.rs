//! Whom to ask for how much work of each type, by long-term debt and simulated shortfall (WF2: R5.4, R3.9, R3.10).
//!
//! Model: the round-robin simulation says what the host lacks of each type, and of each project against its share. Needs
//! have an order: idle coprocessors, idle CPUs, coprocessors that will idle within the buffer, CPUs that will. The first
//! need for which a project will do is met by the best one: the largest overall debt + own shortfall x the type's
//! speed. A request made because instances idle asks for that type only; one made for a shortfall asks also for the
//! other types in shortfall for which the same project is best.
//!
//! Passed over are projects that are *tight* (the simulation shows a job of theirs missing its deadline: more work
//! would make it worse) or *over-served*, and those of share zero beside others; unless an instance idles and no other
//! project will do. Then the tight or over-served one is asked for the whole shortfall, and the one of share zero for a
//! job for each idle instance.
//!
//! A project that is not known to supply jobs of a type (R3.5), and not backed off for it, comes before all others and is
//! asked for its own shortfall: its debt does not grow before it has supplied something, and theirs, which sum to 0, have
//! always a larger one among them. Otherwise it would never be asked, and nobody would ever know.
//!
//! The best project is asked for what it is owed, debt and own shortfall together, within the whole shortfall: a project
//! that is owed nothing beyond its share of the queue leaves the others theirs. Asking it for everything would fill a
//! long queue with one project's jobs, and violate the shares for days.
//!
//! A check looks at each project once for each type and sorts nothing.

use std::fmt;

use fallow_domain::{Duration, PerType, ProjectId, ResourceType, Share};

use crate::composition::{Accounting, FetchWhen};
use crate::work_fetch::REQUEST_MIN;

/// Less than this of an instance does not count as idle: the CPU beside a GPU job that takes a hair of it is no reason
/// to ask for work.
pub const IDLE_MIN: f64 = 0.01;

/// What a request for work asks for (R3.2).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct WorkRequest {
    /// Instance-seconds of each type.
    pub seconds: PerType<f64>,
    /// Instances of each type that are idle now and should each get a job.
    pub instances: PerType<f64>,
}

impl WorkRequest {
    /// The same, but nothing of some types.
    #[must_use]
    pub fn without(mut self, types: &PerType<bool>) -> Self {
        for (kind, _) in types.iter().filter(|(_, left_out)| **left_out) {
            self.seconds[kind] = 0.0;
            self.instances[kind] = 0.0;
        }
        self
    }

    /// A request for CPU seconds.
    pub fn cpu(seconds: Duration, idle: f64) -> Self {
        let seconds = seconds.max(Duration::ZERO).as_secs_f64();
        Self { seconds: PerType::cpu(seconds), instances: PerType::cpu(idle) }
    }
    /// Whether it asks for work of a type.
    pub fn asks(&self, kind: ResourceType) -> bool {
        self.seconds[kind] > 0.0 || self.instances[kind] > 0.0
    }
    /// The types that it asks for.
    pub fn types(&self) -> impl Iterator<Item = ResourceType> + '_ {
        ResourceType::ALL.into_iter().filter(|kind| self.asks(*kind))
    }
    /// Whether it asks for no work at all.
    pub fn is_none(&self) -> bool {
        self.types().next().is_none()
    }
    /// The one number that older servers understand: the largest of the seconds (R3.2).
    pub fn scalar(&self) -> f64 {
        self.seconds.iter().map(|(_, seconds)| *seconds).fold(0.0, f64::max)
    }
}

/// What the host lacks of a type, as the simulation shows it (R3.8).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TypeNeed {
    /// Instances that are idle now and for which there is no job.
    pub idle: f64,
    /// Instance-seconds that will idle within the buffer.
    pub shortfall: f64,
    /// How long no instance idles.
    pub saturated: Duration,
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
    /// What `FetchCandidate::standing` is.
    pub accounting: Accounting,
}

impl FetchRules {
    /// Whether what is lacking of a type is a reason to ask somebody: idle instances always, a shortfall by the rule.
    pub fn is_reason_to_ask(&self, need: &TypeNeed) -> bool {
        need.idle >= IDLE_MIN || self.is_short(need)
    }

    /// Whether a type's shortfall is a reason to ask (R5.4).
    fn is_short(&self, need: &TypeNeed) -> bool {
        let below = self.when == FetchWhen::AnyShortfall || need.saturated < self.buffer_min;
        need.shortfall > 0.0 && below
    }
}

/// A project that could be asked.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FetchCandidate {
    /// The project.
    pub id: ProjectId,
    /// Its share.
    pub share: Share,
    /// How it stands: its overall long-term debt in CPU seconds (R3.4), or its priority by recent credit
    /// (`recent_credit`). More is better.
    pub standing: f64,
    /// Whether it got much more than its share (`over_served`).
    pub over_served: bool,
    /// Whether the simulation shows a job of it missing its deadline, of whatever type.
    pub tight: bool,
    /// Whether it may supply work at all: not suspended, not told to send none.
    pub may_supply: bool,
    /// Whether it may be asked now: its minimum RPC time is past, and it has schedulers.
    pub may_ask: bool,
    /// Whether it did not answer when it was last asked, lately (`Sessions::has_hung`): any other with a share comes first.
    pub hung: bool,
    /// Types for which it is backed off (R3.7).
    pub backed_off: PerType<bool>,
    /// Types that it is not known to supply (R3.5): their debts do not accumulate.
    pub untried: PerType<bool>,
    /// Its shortfall against its own share, in instance-seconds (R3.8).
    pub shortfall: PerType<f64>,
}

/// Whether a project got much more than its share: its overall debt is below -(scheduling period + a buffer), the buffer
/// being what may be held of its jobs while it waits for its turn, the whole work buffer.
pub fn over_served(overall_debt: f64, scheduling_period: Duration, buffer: Duration) -> bool {
    overall_debt < -(scheduling_period + buffer).max(Duration::ZERO).as_secs_f64()
}

/// What makes the host ask.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Trigger {
    /// So many instances are idle.
    Idle(f64),
    /// So many instance-seconds will idle within the buffer.
    Shortfall(f64),
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
    pub standing: f64,
    /// Its own shortfall of the type, in instance-seconds.
    pub shortfall: f64,
    /// What would have kept it from being asked, had another project been there.
    pub last_resort: Option<PassedOver>,
}

/// A project to ask.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FetchAsk {
    /// The project.
    pub project: ProjectId,
    /// For what.
    pub request: WorkRequest,
    /// Why.
    pub why: WhyFetch,
}

/// The outcome of a check.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WorkPlan {
    /// The project to ask now, if there is a need that one can meet.
    pub ask: Option<FetchAsk>,
    /// What each project may be asked for in an RPC that happens anyway (R1.9, R3.7): every type in shortfall for which
    /// it is the best choice, backed off for it or not. In the order of the candidates, without those that get none.
    pub rides: Vec<(ProjectId, WorkRequest)>,
}

impl WorkPlan {
    /// What a project may be asked for in an RPC that happens anyway.
    pub fn ride_along(&self, project: ProjectId) -> WorkRequest {
        self.rides.iter().find(|(id, _)| *id == project).map(|(_, request)| *request).unwrap_or_default()
    }
}

/// Decides whom to ask for what.
pub fn plan(rules: &FetchRules, needs: &PerType<TypeNeed>, candidates: &[FetchCandidate]) -> WorkPlan {
    let check =
        Check { rules, needs, candidates, shares: candidates.iter().any(|c| c.may_supply && shares(c)) };
    let best = PerType::from_fn(|kind| check.best(kind, Eligible::Regular));
    WorkPlan { ask: check.ask(&best), rides: check.rides(&best) }
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
    fn ask(&self, best: &PerType<Option<&'a FetchCandidate>>) -> Option<FetchAsk> {
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

    fn ask_for_idle(&self, kind: ResourceType, candidate: &FetchCandidate) -> FetchAsk {
        let mut request = WorkRequest::default();
        self.add(&mut request, kind, candidate);
        let trigger = Trigger::Idle(self.needs[kind].idle);
        FetchAsk { project: candidate.id, request, why: self.why(kind, trigger, candidate) }
    }

    fn ask_for_shortfall(
        &self,
        kind: ResourceType,
        candidate: &FetchCandidate,
        best: &PerType<Option<&'a FetchCandidate>>,
    ) -> FetchAsk {
        let mut request = WorkRequest::default();
        for other in ResourceType::ALL {
            let is_best = best[other].is_some_and(|best| best.id == candidate.id);
            if is_best && self.needs[other].shortfall > 0.0 {
                self.add(&mut request, other, candidate);
            }
        }
        let trigger = Trigger::Shortfall(self.needs[kind].shortfall);
        FetchAsk { project: candidate.id, request, why: self.why(kind, trigger, candidate) }
    }

    fn why(&self, kind: ResourceType, trigger: Trigger, candidate: &FetchCandidate) -> WhyFetch {
        let FetchCandidate { standing, shortfall, .. } = *candidate;
        let last_resort = self.passed_over(candidate);
        WhyFetch { kind, trigger, standing, shortfall: shortfall[kind], last_resort }
    }

    fn rides(&self, best: &PerType<Option<&'a FetchCandidate>>) -> Vec<(ProjectId, WorkRequest)> {
        let mut rides = Vec::new();
        for candidate in self.candidates.iter().filter(|c| c.may_supply && self.passed_over(c).is_none()) {
            let mut request = WorkRequest::default();
            for kind in ResourceType::ALL.into_iter().filter(|kind| self.needs[*kind].shortfall > 0.0) {
                if best[kind]
                    .is_none_or(|best| best.id == candidate.id || self.is_better(kind, candidate, best))
                {
                    self.add(&mut request, kind, candidate);
                }
            }
            if !request.is_none() {
                rides.push((candidate.id, request));
            }
        }
        rides
    }

    /// The best project to ask for a type (R3.9).
    fn best(&self, kind: ResourceType, eligible: Eligible) -> Option<&'a FetchCandidate> {
        let will_do = |c: &&FetchCandidate| {
            c.may_supply
                && c.may_ask
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
            .then(other.hung.cmp(&one.hung))
            .then(one.untried[kind].cmp(&other.untried[kind]))
            .then(self.score(kind, one).total_cmp(&self.score(kind, other)))
            .then(other.id.cmp(&one.id))
            .is_gt()
    }

    /// In CPU seconds, if debts rank: what the project is owed, and its shortfall.
    fn score(&self, kind: ResourceType, candidate: &FetchCandidate) -> f64 {
        match self.rules.accounting {
            Accounting::Debt => candidate.standing + candidate.shortfall[kind] * self.rules.speeds[kind],
            Accounting::RecentCredit => candidate.standing,
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
        let least = REQUEST_MIN.as_secs_f64();
        let idle = if need.idle >= IDLE_MIN { need.idle } else { 0.0 };
        let own = candidate.shortfall[kind].max(0.0);
        let owed = match (self.passed_over(candidate), self.rules.accounting) {
            (Some(PassedOver::NoShare), _) => least,
            (Some(_), _) => need.shortfall,
            (None, _) if candidate.untried[kind] => own,
            (None, Accounting::Debt) => own.max(self.score(kind, candidate) / self.rules.speeds[kind]),
            (None, Accounting::RecentCredit) => own,
        };
        let seconds = if owed > 0.0 { owed.min(need.shortfall) } else { need.shortfall };
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
        let Self { kind, standing, shortfall, .. } = self;
        match self.trigger {
            Trigger::Idle(idle) => write!(f, "{idle:.2} {kind} idle")?,
            Trigger::Shortfall(seconds) => write!(f, "{kind} short of {seconds:.0} s")?,
        }
        match self.last_resort {
            Some(passed) => write!(f, "; it {passed}, but no other project will do"),
            None => write!(f, "; it stands best ({standing:.1}, own shortfall {shortfall:.0} s)"),
        }
    }
}
