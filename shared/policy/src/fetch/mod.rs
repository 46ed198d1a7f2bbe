//! What is fetched: whom to ask for how much work of each type.
//!
//! A [`FetchPolicy`] decides from a [`FetchSituation`] what a host is to ask of each project, and until when
//! that holds if nothing happens ([`FetchDecision`]). Each policy is a file here and a line in `registry`;
//! what carries decisions out knows none of them by name. `docs/policies.md` shows how one is added.
//!
//! What no policy decides: who may be contacted at all (`rpc_timing`, `rpc_session`), and what is enough of
//! one project whatever is lacking (`bounds`).

pub mod bounds;
mod decision;
mod request;
mod situation;
mod typical;
mod unserved;

use std::cmp::Ordering;

use fallow_domain::{Duration, ProjectId, Share};

use crate::accounting::Debt;
pub use crate::accounting::FetchPriority;
use crate::choice::Policy;
use crate::decay::RecentCpu;
pub use decision::{FetchDecision, ProjectRequest};
pub use request::{IDLE_MIN, REQUEST_MIN, WorkRequest};
pub use situation::{FetchContact, FetchProject, FetchSituation, FetchWhen};
pub use typical::{RecentJobs, TypicalJob};
pub use unserved::unserved;

/// Work fetch is checked at least this often where its outcome may change with time alone (R2.16).
pub const CHECK_PERIOD: Duration = Duration::from_secs(60);
/// Nor is it checked again sooner, however soon a decision says that it ends. Who follows decisions sees to
/// that, so that no policy has to.
pub const CHECK_SOONEST: Duration = Duration::from_secs(1);

policies!(fetch);

/// The policy that is followed.
pub type FetchChoice = Policy<dyn FetchPolicy>;

/// Decides whom to ask for how much work of each type.
pub trait FetchPolicy: Send + Sync + 'static {
    /// Its name in compositions: `WF`, then letters or digits, four at most. `WF0` is for tests and examples.
    fn name(&self) -> &'static str;

    /// What it does, in a few words for `--help`: 48 bytes at most.
    fn summary(&self) -> &'static str;

    /// Decides. The same situation gives the same decision.
    fn decide(&self, situation: &FetchSituation<'_>) -> FetchDecision;

    /// Whether [`FetchSituation::outlook`] is to be made for it. Without, no time is spent on that and it is
    /// empty.
    fn looks_ahead(&self) -> bool {
        true
    }

    /// How much computing ahead [`FetchSituation::outlook`] is to tell of at the least, however small the
    /// buffer is.
    fn looks_at_least(&self) -> Duration {
        Duration::ZERO
    }

    /// How a project that had no work is left alone for a while.
    fn backoff(&self) -> WorkBackoff {
        WorkBackoff::ByType
    }

    /// Whether a server that refuses its jobs because they would be late is left alone as one that has none,
    /// longer each time. Where not, it is asked again after ten minutes, and goes on earning.
    fn holds_late_refusals_against(&self) -> bool {
        true
    }

    /// Whether it looks at [`RankedProject::recent`]. If not, a client that never follows another policy does
    /// not keep account of it.
    fn ranks_by_recent_cpu(&self) -> bool {
        true
    }

    /// Whether it looks at [`FetchSituation::on_time`] and [`FetchSituation::droughts`]. If not, a client
    /// that never follows another policy does not learn them.
    fn looks_at_habits(&self) -> bool {
        true
    }

    /// All projects in the order in which they are contacted where several are to be (R1.11): by default the
    /// one that is owed most first, by overall long-term debt (R3.4).
    fn rank(&self, projects: &[RankedProject]) -> Vec<ProjectId> {
        let mut ranked: Vec<&RankedProject> = projects.iter().collect();
        ranked.sort_by(|a, b| by_debt(a, b));
        ranked.iter().map(|project| project.id).collect()
    }
}

fn by_debt(a: &RankedProject, b: &RankedProject) -> Ordering {
    b.debt.as_secs().total_cmp(&a.debt.as_secs()).then(a.id.cmp(&b.id))
}

/// What a project that had no work is not asked for until its backoff is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkBackoff {
    /// Any work (R1.5).
    ByProject,
    /// Work of the types that it had none of (R3.7).
    ByType,
}

/// A project whose turn to be contacted is looked for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RankedProject {
    /// The project.
    pub id: ProjectId,
    /// Its share.
    pub share: Share,
    /// The CPU time that it was given of late (R1.1).
    pub recent: RecentCpu,
    /// Its overall long-term debt, in CPU seconds (R3.4).
    pub debt: Debt,
}
