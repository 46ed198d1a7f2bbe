//! A host whose sleep nobody tells of: a longer time without a call was slept through.

use fallow_domain::{Duration, Instant};

use crate::machine::Client;
use crate::timers::Timer;

/// How often a shell that does not say when the host sleeps is asked to call while there are tasks.
const WATCH_PERIOD: Duration = Duration::from_secs(10);

impl Client {
    /// Notes that the host is awake.
    pub(crate) fn poll_watch(&mut self) {
        if self.now.since(self.seen_awake_at) >= WATCH_PERIOD || self.seen_awake_at > self.now {
            self.seen_awake_at = self.now;
            self.timers.stale(Timer::Watch);
        }
    }

    /// When to look again: while a task has a process.
    pub(crate) fn next_watch(&self) -> Option<Instant> {
        let has_process = |job| self.state.jobs.get(job).is_some_and(|job| job.process.exists());
        let watches = !self.config.tells_away && self.state.jobs.slots().values().any(has_process);
        watches.then(|| self.seen_awake_at + WATCH_PERIOD)
    }
}
