//! Whether the host is there, and when the shell is to call next.
//!
//! A host goes off or to sleep, and not every shell says so ([`ClientConfig::tells_away`]). So the client
//! takes the host to be there only for as long as the shell was sure to call.
//!
//! [`ClientConfig::tells_away`]: crate::ClientConfig::tells_away

use fallow_domain::{Duration, Instant};

/// A call that comes later than asked for by more than this was slept through, or the clock was set.
const LATE: Duration = Duration::from_secs(60);
/// How often a shell that does not say when the host sleeps is asked to call while tasks compute.
const WATCH_PERIOD: Duration = Duration::from_secs(10);

/// Whether the host is there, and when somebody looks at the clock.
#[derive(Debug)]
pub(crate) struct Presence {
    is_away: bool,
    /// When something is due next, whether the host is there or not.
    due_at: Instant,
    /// When the shell was asked to call.
    call_at: Instant,
    seen_awake_at: Instant,
    /// Since when there was no gap in its being there.
    there_since: Instant,
}

impl Default for Presence {
    fn default() -> Self {
        let epoch = Instant::EPOCH;
        Self { is_away: false, due_at: epoch, call_at: epoch, seen_awake_at: epoch, there_since: epoch }
    }
}

impl Presence {
    /// The host goes off or to sleep.
    pub(crate) fn leave(&mut self) {
        self.is_away = true;
    }

    pub(crate) fn come_back(&mut self) {
        self.is_away = false;
    }

    pub(crate) const fn is_away(&self) -> bool {
        self.is_away
    }

    /// The agent is up, or the host is there again after a time that nobody vouches for.
    pub(crate) fn begin(&mut self, now: Instant) {
        self.there_since = now;
    }

    /// The clock was set back.
    pub(crate) fn clock_set_back(&mut self, now: Instant) {
        self.there_since = self.there_since.min(now);
    }

    /// For how long the host has been there without a gap.
    pub(crate) fn there_for(&self, now: Instant) -> Duration {
        now.since(self.there_since)
    }

    /// Something is due next at that time.
    pub(crate) fn set_due(&mut self, at: Instant) {
        self.due_at = at;
    }

    /// Something is due as soon as the host is there.
    pub(crate) fn set_due_at_once(&mut self) {
        self.due_at = Instant::EPOCH;
    }

    pub(crate) fn is_due(&self, now: Instant) -> bool {
        self.due_at <= now
    }

    /// The shell is asked to call when something is due. Says when that is.
    pub(crate) fn ask_for_call(&mut self) -> Instant {
        self.call_at = self.due_at;
        self.call_at
    }

    /// The shell is not asked to call: it knows best when the host is back.
    pub(crate) fn ask_for_no_call(&mut self) {
        self.call_at = Instant::FAR_FUTURE;
    }

    /// Until when it is vouched for that the host was there, of the time from `from` until now.
    pub(crate) fn vouched(&self, from: Instant, now: Instant) -> Instant {
        if self.is_away { from } else { (self.call_at + LATE).min(now).max(from) }
    }

    /// Takes note that the host is awake, if that is due.
    pub(crate) fn note_awake(&mut self, now: Instant) {
        if now >= self.watch_at() || self.seen_awake_at > now {
            self.seen_awake_at = now;
        }
    }

    /// When that is due.
    pub(crate) fn watch_at(&self) -> Instant {
        self.seen_awake_at + WATCH_PERIOD
    }
}
