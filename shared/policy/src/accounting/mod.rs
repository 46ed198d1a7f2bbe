//! By what account projects are compared for processing.
//!
//! A host keeps three accounts: short-term debts (R2.1), long-term debts (R3.3) and, for a policy that asks
//! for it, recent estimated credit. From these an [`AccountingPolicy`] says two things: what each project
//! is owed when CPU scheduling allocates instances, and each project's priority when work is fetched. Each
//! policy is a file here and a line in `registry`.

mod long_term;
mod short_term;

use std::fmt;

use fallow_domain::{Duration, PerType, ProjectId, Share};

use crate::choice::Policy;
use crate::job_queue::JobQueue;
use crate::plan_host::PlanHost;
pub use long_term::{LongTermDebts, LongTermPeriod};
use recent_credit::RecentCredit;
pub use short_term::{Debt, Debts, ShortTermPeriod};

policies!(accounting);

/// The policy that is followed.
pub type AccountingChoice = Policy<dyn AccountingPolicy>;

/// Compares projects.
pub trait AccountingPolicy: Send + Sync + 'static {
    /// Its name in compositions, after `accounting=`: letters, digits and dashes, 16 at most. `toy` is for
    /// tests and examples.
    fn name(&self) -> &'static str;

    /// What it does, in a few words for `--help`: 48 bytes at most.
    fn summary(&self) -> &'static str;

    /// For CPU scheduling: what each project is owed of each type, in instance-seconds, in the order of
    /// `situation.projects`.
    fn owed(&self, situation: &AccountingSituation<'_>) -> Vec<PerType<Debt>>;

    /// For work fetch: how each project stands, in the order of `situation.projects`. `queue` has the jobs
    /// held, and `window` is for how long work is to be held.
    fn fetch_priorities(
        &self,
        situation: &AccountingSituation<'_>,
        queue: &JobQueue,
        window: Duration,
    ) -> Vec<FetchPriority>;

    /// Whether recent estimated credit is to be booked for it.
    fn counts_credit(&self) -> bool {
        false
    }
}

/// The accounts of a host: what an accounting policy decides from.
#[derive(Clone, Copy, Debug)]
pub struct AccountingSituation<'a> {
    /// What it computes with.
    pub host: PlanHost,
    /// Its projects, by id, with their shares.
    pub projects: &'a [(ProjectId, Share)],
    /// What they are owed since their last jobs came.
    pub short_term: &'a Debts,
    /// What they are owed over days and weeks.
    pub long_term: &'a LongTermDebts,
    /// What they were given of late; empty unless the policy asks for it.
    pub credit: &'a RecentCredit,
}

/// A project's priority in work fetch, by whatever account projects are compared. The largest comes first.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FetchPriority {
    /// What it is owed, in CPU seconds: it can be weighed against work that is missing.
    Debt(Debt),
    /// A number that says which project comes first, and nothing else.
    Score(f64),
}

impl fmt::Display for FetchPriority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Debt(debt) => write!(f, "{debt}"),
            Self::Score(score) => write!(f, "{score:.1}"),
        }
    }
}
