//! How long an agent has said nothing, and when it is taken for gone.
//!
//! Model: it is for the time that the protocol says ([`silence`]). A coordinator that stood still itself
//! meanwhile has heard nothing either, so only heartbeats count beside which it listened. None does that
//! comes late: whatever held it up kept the coordinator from hearing as well. At the end it takes a moment to
//! hear what may have come already.

use std::time::Duration;

use fallow_proto::fleet::limits::silence;
use tokio::time::Instant;

use super::limits::DOUBT;

/// When an agent was heard last.
pub(super) struct Hearing {
    heard: Instant,
    /// Heartbeats since then beside which it was listened to it.
    unheard: u32,
    /// It is gone, unless something comes within a moment.
    is_doubted: bool,
}

/// What comes of a heartbeat that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Heard {
    /// It is there, as far as is known. The next heartbeat is due after this time, where that is not the
    /// usual one.
    Waits(Option<Duration>),
    /// It is gone: it has said nothing for so long.
    Gone(Duration),
}

impl Hearing {
    pub(super) const fn new(now: Instant) -> Self {
        Self { heard: now, unheard: 0, is_doubted: false }
    }

    /// Something came from the agent.
    pub(super) const fn heard(&mut self, now: Instant) {
        *self = Self::new(now);
    }

    /// A heartbeat is due. `listens`: what the agent says is heard at present, and was until now.
    pub(super) fn heartbeat(&mut self, now: Instant, every: Duration, listens: bool) -> Heard {
        self.unheard += u32::from(listens);
        let silent = now.saturating_duration_since(self.heard);
        let left = silence(every).saturating_sub(silent);
        if !left.is_zero() {
            return Heard::Waits(Some(left).filter(|left| *left < every));
        }
        if every.saturating_mul(self.unheard) < silence(every) {
            return Heard::Waits(None);
        }
        // What came while nobody listened may be heard only now.
        if std::mem::replace(&mut self.is_doubted, listens) && listens {
            return Heard::Gone(silent);
        }
        Heard::Waits(Some(DOUBT.min(every)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HALF: Duration = Duration::from_secs(30);

    /// Goes through heartbeats at these seconds, beside which it is listened or not, and says when the next
    /// ones are due; none where the agent is taken for gone.
    fn after(beats: &[(u64, bool)], every: Duration) -> Vec<Option<u64>> {
        let began = Instant::now();
        let mut hearing = Hearing::new(began);
        let mut at =
            |secs: u64, listens| hearing.heartbeat(began + Duration::from_secs(secs), every, listens);
        let next = |heard| match heard {
            Heard::Waits(next) => Some(next.unwrap_or(every).as_secs()),
            Heard::Gone(_) => None,
        };
        beats.iter().map(|(secs, listens)| next(at(*secs, *listens))).collect()
    }

    #[test]
    fn r6_3_an_agent_that_says_nothing_is_gone_after_a_minute_and_a_moment() {
        assert_eq!(after(&[(30, true), (60, true), (65, true)], HALF), [Some(30), Some(5), None]);
        let beats = [(15, true), (30, true), (45, true), (60, true), (65, true)];
        let quarter = Duration::from_secs(15);
        assert_eq!(after(&beats, quarter), [Some(15), Some(15), Some(15), Some(5), None]);
    }

    #[test]
    fn r6_3_a_coordinator_that_stood_still_listens_for_as_many_heartbeats_as_ever() {
        // The first one is late.
        let beats = [(900, false), (930, true), (960, true), (965, true)];
        assert_eq!(after(&beats, HALF), [Some(30), Some(30), Some(5), None]);
        let beats = [(59, false), (60, true), (90, true), (95, true)];
        assert_eq!(after(&beats, HALF), [Some(1), Some(30), Some(5), None]);
    }

    #[test]
    fn r6_3_an_agent_that_is_not_listened_to_is_not_gone() {
        let beats = [(30, true), (60, true), (65, false), (70, false), (75, true), (80, true)];
        assert_eq!(after(&beats, HALF), [Some(30), Some(5), Some(5), Some(5), Some(5), None]);
        assert_eq!(after(&[(30, false), (60, false), (90, false)], HALF), [Some(30); 3]);
    }

    #[test]
    fn r6_3_whoever_is_heard_of_is_there_again() {
        let (now, mut hearing) = (Instant::now(), Hearing::new(Instant::now()));
        let late = now + Duration::from_secs(100);
        hearing.heartbeat(late, HALF, true);
        hearing.heartbeat(late, HALF, true);
        hearing.heard(late);
        assert_eq!(hearing.heartbeat(late + HALF, HALF, true), Heard::Waits(None));
    }
}
