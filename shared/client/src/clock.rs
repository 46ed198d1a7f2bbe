//! What time it is for the client: the time of the event that it looks at.

use fallow_domain::Instant;

/// The time of the present event, and since when the agent is up.
#[derive(Debug)]
pub(crate) struct Clock {
    now: Instant,
    started_at: Instant,
}

impl Default for Clock {
    fn default() -> Self {
        Self { now: Instant::EPOCH, started_at: Instant::EPOCH }
    }
}

impl Clock {
    pub(crate) const fn now(&self) -> Instant {
        self.now
    }

    /// It is so late now. Says whether the clock was set back.
    pub(crate) fn turn(&mut self, now: Instant) -> bool {
        let before = std::mem::replace(&mut self.now, now);
        now < before
    }

    /// The agent is up from now on.
    pub(crate) fn start(&mut self) {
        self.started_at = self.now;
    }

    pub(crate) const fn started_at(&self) -> Instant {
        self.started_at
    }
}
