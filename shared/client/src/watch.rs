//! A host whose sleep nobody tells of: a longer time without a call was slept through.
//!
//! Only while a task executes. One that is stopped uses nothing, and a host is not to be woken to be watched.
//! So while none executes, what it slept until the call that was asked for, and for a minute after that,
//! counts as time in which it was on: an hour at most for each sleep. The shell hears of the end of a sleep
//! as of a clock that was set, and not of how long it was.

use fallow_domain::Instant;

use crate::machine::Client;

impl Client {
    /// Notes that the host is awake.
    pub(crate) fn poll_watch(&mut self) {
        // If that changes anything, its timer has passed, is stale since the clock was set back, or there is
        // no task to watch over.
        self.presence.note_awake(self.clock.now());
    }

    /// When to look again: while a task executes.
    pub(crate) fn next_watch(&self) -> Option<Instant> {
        let watches = !self.config.tells_away && self.executing().next().is_some();
        watches.then(|| self.presence.watch_at())
    }
}
