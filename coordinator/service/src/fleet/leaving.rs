//! What is given back of agents that are no members of the fleet any more (R6.10).
//!
//! Such an agent stays on record, so that its certificate is known to mean nothing. Of what it said of itself
//! is kept what hosts are listed by and what projects had of it; the rest goes from memory and from the
//! store, so that whoever takes a hostile host out has back what it took. On a full disk, where a removal
//! takes space at first, that of operators is left alone, and what is in the store is removed at the next
//! start that finds space.

use std::sync::Arc;

use fallow_daemon::lock;
use fallow_store::{Batch, Store, StoreError};

use super::state::Writes;
use super::{Agent, Fleet};

/// Writes of one batch.
const PART: usize = 8_192;

impl Fleet {
    /// Lets go what an agent holds that is no member. As long as a connection of it has not ended, nothing:
    /// it comes here at its end.
    pub(super) fn let_go(&self, agent: &Agent) {
        if agent.is_member() {
            return;
        }
        let Ok(_turn) = agent.turn.try_lock() else { return };
        if let Err(error) = self.keep_rest(agent) {
            tracing::warn!(
                agent = agent.id.0,
                error = %error,
                "what an agent said that is no member of the fleet any more stays in the store until the coordinator starts \
                 and finds space on its disk: make room there"
            );
        }
    }

    /// The same at the end of a connection.
    pub(super) async fn let_go_after_link(self: &Arc<Self>, agent: &Arc<Agent>) {
        if agent.is_member() {
            return;
        }
        let (fleet, agent) = (self.clone(), agent.clone());
        // Only a panic in there would be an error.
        let _ = tokio::task::spawn_blocking(move || fleet.let_go(&agent)).await;
    }

    /// The same for all that are no members, at the start.
    pub(super) fn let_go_all(&self) {
        for id in self.removed() {
            if let Some(agent) = self.agent(&id.0) {
                self.let_go(&agent);
            }
        }
    }

    fn keep_rest(&self, agent: &Agent) -> Result<(), StoreError> {
        let (change, jobs, rest) = lock(&agent.state).plan_rest(&agent.id)?;
        if change.is_empty() {
            return Ok(());
        }
        let removed = remove(&*self.store, jobs).and_then(|()| write(&*self.store, rest));
        // In memory in any case. What is left in the store comes to the same when it is read.
        lock(&agent.state).take(change, &mut lock(&self.totals));
        removed
    }
}

/// Removes what may be removed in parts.
pub(super) fn remove(store: &dyn Store, writes: Writes) -> Result<(), StoreError> {
    let mut writes = writes.into_iter().peekable();
    while writes.peek().is_some() {
        write(store, writes.by_ref().take(PART).collect())?;
    }
    Ok(())
}

fn write(store: &dyn Store, writes: Writes) -> Result<(), StoreError> {
    let mut batch = Batch::new().yielding();
    for (key, value) in writes {
        match value {
            Some(value) => batch.add_put(key, value),
            None => batch.add_delete(key),
        }
    }
    // It requires nothing, so that it is applied.
    store.apply(batch).map(drop)
}
