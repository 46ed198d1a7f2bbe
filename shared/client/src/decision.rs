//! A decision that holds for a while: what was decided and when, until when it holds, and whether something
//! has happened that it depends on.

use fallow_domain::{Duration, Instant};

/// What runs, or what work to ask of whom.
#[derive(Debug)]
pub(crate) struct Decision<T> {
    is_wanted: bool,
    made_at: Instant,
    holds_until: Instant,
    made: T,
}

impl<T: Default> Default for Decision<T> {
    fn default() -> Self {
        let (made_at, holds_until) = (Instant::EPOCH, Instant::EPOCH);
        Self { is_wanted: false, made_at, holds_until, made: T::default() }
    }
}

impl<T> Decision<T> {
    /// What was decided last.
    pub(crate) const fn made(&self) -> &T {
        &self.made
    }

    /// Something has happened that it depends on.
    pub(crate) fn want(&mut self) {
        self.is_wanted = true;
    }

    /// Whether something has since it was made.
    pub(crate) const fn is_wanted(&self) -> bool {
        self.is_wanted
    }

    /// Whether it is to be made anew. So it is where it was made later than now: the clock was set back.
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        self.is_wanted || now >= self.holds_until || self.made_at > now
    }

    /// How long ago it was made.
    pub(crate) fn age(&self, now: Instant) -> Duration {
        now.since(self.made_at)
    }

    /// Until when it holds if nothing happens.
    pub(crate) const fn holds_until(&self) -> Instant {
        self.holds_until
    }

    /// It was made now, and holds until then.
    pub(crate) fn make(&mut self, now: Instant, holds_until: Instant, made: T) {
        *self = Self { is_wanted: false, made_at: now, holds_until, made };
    }

    /// Whether something has happened, which is forgotten.
    #[cfg(test)]
    pub(crate) fn take_wanted(&mut self) -> bool {
        std::mem::take(&mut self.is_wanted)
    }
}
