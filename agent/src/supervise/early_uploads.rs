//! Outputs that applications want sent before their job ends: looked at beside the supervisor's second.
//!
//! Model: one look at a time for each task, in a thread of its own at idle priority, for to work out the sum
//! of a large output takes longer than a second. What is asked for meanwhile is looked at once more after it.
//! So no job holds up the heartbeats of others (R6.10).

use std::thread::JoinHandle;

use crate::sys::{self, Urgency};

/// The looks at one task's outputs.
#[derive(Debug, Default)]
pub(super) struct EarlyLook {
    wanted: bool,
    running: Option<JoinHandle<()>>,
}

impl EarlyLook {
    /// To be called once a second: starts a look if there is `news`, or was some since the last one began,
    /// and none goes on. `work` makes what the look does.
    pub(super) fn look<W: FnOnce() + Send + 'static>(&mut self, news: bool, work: impl FnOnce() -> W) {
        self.wanted |= news;
        if !self.wanted || self.running.as_ref().is_some_and(|running| !running.is_finished()) {
            return;
        }
        let work = work();
        let look = move || {
            sys::lower(Urgency::Idle);
            work();
        };
        self.running = std::thread::Builder::new().name("upload".into()).spawn(look).ok();
        // No thread, no look: the next second tries again.
        self.wanted = self.running.is_none();
    }
}
