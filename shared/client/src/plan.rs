//! What work fetch has decided, by whichever policy (R5.3, R5.4).

use fallow_domain::ProjectId;
use fallow_policy::fetch::{IDLE_MIN, WorkPlan, WorkRequest};
use fallow_policy::work_fetch::{FetchPlan, Urgency};

/// What to ask of whom, by the policy that decided it.
#[derive(Clone, Debug)]
pub(crate) enum Plan {
    /// WF1: each project for itself.
    Starvation(FetchPlan),
    /// WF2: one project at a time.
    Shortfall(WorkPlan),
}

impl Default for Plan {
    fn default() -> Self {
        Self::Shortfall(WorkPlan::default())
    }
}

impl Plan {
    /// What a project is to be asked for.
    pub(crate) fn request(&self, id: ProjectId) -> WorkRequest {
        match self {
            Self::Starvation(plan) => plan.of(id).map(|need| need.request).unwrap_or_default(),
            Self::Shortfall(plan) => {
                plan.ask.filter(|ask| ask.project == id).map(|ask| ask.request).unwrap_or_default()
            }
        }
    }

    /// What it may be asked for when an RPC happens anyway.
    pub(crate) fn fill(&self, id: ProjectId) -> WorkRequest {
        match self {
            Self::Starvation(plan) => plan.of(id).map(|need| need.fill).unwrap_or_default(),
            Self::Shortfall(plan) => plan.ride_along(id),
        }
    }

    /// What is lacking where instances idle, whomever it is to be asked of.
    pub(crate) fn for_idle(&self, id: ProjectId) -> WorkRequest {
        let idle = |request: &WorkRequest| request.instances.iter().any(|(_, idle)| *idle >= IDLE_MIN);
        match self {
            Self::Starvation(plan) => {
                let need = plan.of(id).filter(|need| need.urgency == Urgency::NeedWorkImmediately);
                need.map(|need| need.request).unwrap_or_default()
            }
            Self::Shortfall(plan) => plan.ask.map(|ask| ask.request).filter(idle).unwrap_or_default(),
        }
    }

    /// Whether anybody is to be asked for work.
    pub(crate) fn wants_work(&self) -> bool {
        match self {
            Self::Starvation(plan) => plan.urgency > Urgency::None,
            Self::Shortfall(plan) => plan.ask.is_some(),
        }
    }

    /// Why a project is asked for work.
    pub(crate) fn why(&self, id: ProjectId) -> String {
        match self {
            Self::Starvation(plan) => plan.of(id).map(ToString::to_string).unwrap_or_default(),
            Self::Shortfall(plan) => {
                plan.ask.filter(|ask| ask.project == id).map(|ask| ask.why.to_string()).unwrap_or_default()
            }
        }
    }
}
