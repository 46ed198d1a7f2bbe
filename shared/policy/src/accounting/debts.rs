//! By debts: short-term for CPU scheduling (R2.1), long-term for work fetch (R3.3).

use fallow_domain::{Duration, PerType};

use super::{AccountingPolicy, Books, Debt, Standing};
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

    fn owed(&self, books: &Books<'_>) -> Vec<PerType<Debt>> {
        books.projects.iter().map(|(id, _)| books.short_term.of(*id)).collect()
    }

    fn standings(&self, books: &Books<'_>, _queue: &JobQueue, _window: Duration) -> Vec<Standing> {
        let owed = |id| Standing::Owed(books.long_term.overall(id, &books.host.speeds));
        books.projects.iter().map(|(id, _)| owed(*id)).collect()
    }
}
