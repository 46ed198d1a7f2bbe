//! By debts: short-term for CPU scheduling (R2.1), long-term for work fetch (R3.3).

use fallow_domain::{Duration, PerType};

use super::{AccountingPolicy, AccountingSituation, Debt, FetchPriority};
use crate::job_queue::JobQueue;

/// `accounting=debt`.
#[derive(Clone, Copy, Debug)]
pub struct ByDebts;

impl AccountingPolicy for ByDebts {
    fn name(&self) -> &'static str {
        "debt"
    }

    fn summary(&self) -> &'static str {
        "projects are compared by debts"
    }

    fn owed(&self, situation: &AccountingSituation<'_>) -> Vec<PerType<Debt>> {
        situation.projects.iter().map(|(id, _)| situation.short_term.of(*id)).collect()
    }

    fn fetch_priorities(
        &self,
        situation: &AccountingSituation<'_>,
        _queue: &JobQueue,
        _window: Duration,
    ) -> Vec<FetchPriority> {
        let owed = |id| FetchPriority::Debt(situation.long_term.overall(id, &situation.host.speeds));
        situation.projects.iter().map(|(id, _)| owed(*id)).collect()
    }
}
