//! A host whose sleep nobody tells of: a longer time without a call was slept through.

use fallow_domain::Instant;

use crate::machine::Client;

impl Client {
    /// Notes that the host is awake.
    pub(crate) fn poll_watch(&mut self) {
        // If that changes anything, its timer has passed, is stale since the clock was set back, or there is
        // no task to watch over.
        self.presence.note_awake(self.clock.now());
    }

    /// When to look again: while a task has a process.
    pub(crate) fn next_watch(&self) -> Option<Instant> {
        let has_process = |job| self.state.jobs.get(job).is_some_and(|job| job.process.exists());
        let watches = !self.config.tells_away && self.state.jobs.slots().values().any(has_process);
        watches.then(|| self.presence.watch_at())
    }
}
