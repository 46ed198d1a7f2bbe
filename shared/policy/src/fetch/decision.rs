//! What work fetch has decided.

use fallow_domain::{Instant, PerType, ProjectId};

use super::WorkRequest;
use crate::why::Why;

/// What one project is asked for.
#[derive(Clone, Debug)]
pub struct ProjectRequest {
    /// The project.
    pub project: ProjectId,
    /// What it is to be asked for now; nothing if it is not to be contacted for work.
    pub request: WorkRequest,
    /// What it may be asked for when an RPC happens anyway (R1.9).
    pub piggyback: WorkRequest,
    /// What it may be asked for when its owner asks for contact while it is backed off (R1.4): what instances
    /// idle for.
    pub for_idle: WorkRequest,
    /// Why it is asked.
    pub why: Option<Why>,
}

impl ProjectRequest {
    /// Nothing is asked for.
    pub fn none(project: ProjectId) -> Self {
        let none = WorkRequest::default();
        Self { project, request: none, piggyback: none, for_idle: none, why: None }
    }
}

/// A decision: what each project is asked for, and how long that holds.
#[derive(Clone, Debug)]
pub struct FetchDecision {
    /// By project.
    asks: Vec<ProjectRequest>,
    wants_work: bool,
    /// Types of which more is wanted than is held, whether or not anybody can be asked.
    pub wanted: PerType<bool>,
    /// Types of which work is wanted and nobody who might have some can be asked now
    /// ([`unserved`](super::unserved())): a client learns from it, whatever policy it follows.
    pub unserved: PerType<bool>,
    /// When to decide again although nothing happens. Whatever a policy says, that is no sooner than after
    /// [`CHECK_SOONEST`](super::CHECK_SOONEST).
    pub check_by: Instant,
}

impl Default for FetchDecision {
    /// Nobody is asked, and that is to be looked at again at once.
    fn default() -> Self {
        Self::nothing(Instant::EPOCH)
    }
}

impl FetchDecision {
    /// Of what each project is asked for; one that is left out is asked for nothing.
    pub fn new(mut asks: Vec<ProjectRequest>, check_by: Instant) -> Self {
        asks.sort_by_key(|project_request| project_request.project);
        let wants_work = wants_work(&asks);
        Self { asks, wants_work, wanted: PerType::default(), unserved: PerType::default(), check_by }
    }

    /// Nobody is asked.
    pub fn nothing(check_by: Instant) -> Self {
        Self::new(Vec::new(), check_by)
    }

    /// The same, and of these types work is wanted; of these of them nobody can be asked.
    #[must_use]
    pub fn with_wanted(mut self, types: PerType<bool>, unserved: PerType<bool>) -> Self {
        (self.wanted, self.unserved) = (types, unserved);
        self
    }

    /// What a project is asked for, if anything.
    pub fn of(&self, project: ProjectId) -> Option<&ProjectRequest> {
        let place =
            self.asks.binary_search_by_key(&project, |project_request| project_request.project).ok()?;
        self.asks.get(place)
    }

    /// Leaves out what is asked of some projects.
    pub fn retain(&mut self, keep: impl Fn(ProjectId) -> bool) {
        self.asks.retain(|project_request| keep(project_request.project));
        self.wants_work = wants_work(&self.asks);
    }

    /// Whether anybody is to be asked for work now.
    pub const fn wants_work(&self) -> bool {
        self.wants_work
    }
}

fn wants_work(asks: &[ProjectRequest]) -> bool {
    asks.iter().any(|project_request| !project_request.request.is_none())
}
