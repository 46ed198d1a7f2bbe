//! Jobs that are tried on a host although they would be late there by their estimates.
//!
//! Why: an estimate may be far too high. A job that is refused for it is never computed on that host, so that
//! nothing ever shows that the estimate is wrong.
//!
//! Model: as long as fewer than [`KNOWN_AFTER`] of a project's jobs were in time on a host, one is sent there
//! although it would be late: one that might well be in time if it took a tenth of its estimate, where there
//! is nothing else to send and the host has no other job of the project. As long as those are in time,
//! another follows. After one that was not, the next comes a month later; and so it does on a host that was
//! sent nothing for a month, whatever is known of it: what is known may have become wrong. A job that failed
//! says nothing about estimates.
//!
//! Not in here: applications of one project whose estimates are not equally good.

use fallow_domain::{Duration, Instant};
use serde::{Deserialize, Serialize};

use super::host_clock::within;
use super::{Offer, SendDecision, SendSituation, WhyNotSent};
use crate::on_time::Sureness;

/// An estimate may be so many times too high.
const TOO_HIGH: f64 = 10.0;
/// After so many jobs that were in time estimates are known well enough.
const KNOWN_AFTER: u32 = 8;
/// What was late is tried again after so long: the host or the estimates may have changed.
const AGAIN_AFTER: Duration = Duration::from_hours(30 * 24);

/// What a server remembers of a host to tell whether a job is tried there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trials {
    /// Jobs of the project that were in time there.
    in_time: u32,
    /// When it was sent one last.
    last_sent: Option<Instant>,
    /// Whether that one, or one sent before it, was in time.
    last_was_in_time: bool,
}

impl Trials {
    /// Whether a job may be tried on the host, which has so many of the project.
    pub fn may_try(&self, held: u64, now: Instant) -> bool {
        // What was sent in the future was sent before the clock was set back.
        let is_long_ago = |at: Instant| !(at..at + AGAIN_AFTER).contains(&now);
        let is_promising = self.in_time < KNOWN_AFTER && self.last_was_in_time;
        held == 0 && (is_promising || self.last_sent.is_none_or(is_long_ago))
    }

    /// The host was sent a job. Until it is reported it was not in time.
    pub const fn sent(&mut self, now: Instant) {
        (self.last_sent, self.last_was_in_time) = (Some(now), false);
    }

    /// A job of the host failed.
    pub const fn failed(&mut self) {
        self.last_sent = None;
    }

    /// A job of the host is over.
    pub const fn over(&mut self, was_in_time: bool) {
        self.in_time = self.in_time.saturating_add(was_in_time as u32);
        self.last_was_in_time = was_in_time;
    }
}

/// Whether a job may be tried that has so long until its deadline.
pub(super) fn fits(situation: &SendSituation<'_>, estimate: Duration, bound: Duration) -> bool {
    let there = match situation.on_time {
        Some(table) => within(table, bound, Sureness::Possible),
        None => bound.mul_f64(situation.host.availability.get()),
    };
    situation.may_try && estimate.mul_f64(1.0 / TOO_HIGH) <= there
}

/// What is sent by a decision; where that is nothing, and only because jobs would be late themselves, the
/// first of them that fits is tried.
pub(super) fn with_trial(
    situation: &SendSituation<'_>,
    offers: &mut dyn Iterator<Item = Offer<usize>>,
    decide: impl FnOnce(&mut dyn Iterator<Item = Offer<usize>>) -> SendDecision<usize>,
) -> SendDecision<usize> {
    let mut fitting = Vec::new();
    let mut sent = decide(&mut offers.inspect(|offer| {
        if fits(situation, offer.estimate, offer.deadline - situation.now) {
            fitting.push(*offer);
        }
    }));
    if sent.send.is_empty() {
        let is_late = |(_, why): &(usize, WhyNotSent)| matches!(why, WhyNotSent::MissesDeadline(_));
        let is_fitting = |id: usize| fitting.iter().find(|offer| offer.id == id);
        let late = sent.refused.iter().position(|one| is_late(one) && is_fitting(one.0).is_some());
        if let Some(offer) = late.and_then(|place| is_fitting(sent.refused.remove(place).0)) {
            sent.open.fill(offer.usage, offer.estimate);
            sent.send.push(offer.id);
            sent.trial = Some(offer.id);
        }
    }
    sent
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_hours(24);

    #[test]
    fn jobs_are_tried_one_by_one_until_eight_were_in_time_and_after_a_late_one_a_month_later() {
        let now = Instant::from_secs_f64(1.8e9);
        let mut trials = Trials::default();
        assert!(trials.may_try(0, now));
        assert!(!trials.may_try(1, now), "it has one");
        trials.sent(now);
        assert!(!trials.may_try(0, now), "whatever became of it, it was not in time yet");
        trials.over(true);
        assert!(trials.may_try(0, now));
        trials.sent(now);
        assert!(!trials.may_try(0, now), "it was never reported");
        trials.over(false);
        assert!(!trials.may_try(0, now + DAY * 29));
        assert!(trials.may_try(0, now + DAY * 30));
        assert!(trials.may_try(0, now - DAY), "the clock was set back");
        (0..7).for_each(|_| trials.over(true));
        trials.sent(now);
        trials.over(true);
        assert!(!trials.may_try(0, now + DAY * 29), "what is refused now is refused with reason");
        assert!(trials.may_try(0, now + DAY * 30), "or is not any more");
        trials.sent(now);
        trials.failed();
        assert!(trials.may_try(0, now), "that says nothing about estimates");
    }
}
