//! Jobs that a host is sent on its word alone: beyond its part of a small batch because it names instances as
//! idle (R3.2), and any job while nothing is known of the host yet (`new_hosts`).
//!
//! Why: an instance that idles is to have a job, whatever its host holds; what it holds may wait for
//! something. But only the host says what idles, and one that fails its jobs at once is always idle.
//!
//! Model: one job for each of its instances. As many more as it returns successfully, for these instances may
//! idle again; what a host returns of which nothing is known counts for nothing. A host that returns none and
//! holds more than its part has the next ones after [`FIRST_WAIT`], and each time after twice as long as the
//! time before, up to [`WAIT_MAX`]: in a day it has eight jobs for each instance beyond its part. One that
//! holds no more than its part begins anew.

use fallow_domain::{Duration, Instant};
use serde::{Deserialize, Serialize};

/// An instance that was given a job does not idle at once.
const FIRST_WAIT: Duration = Duration::from_mins(10);
/// What idles for want of a job is not left alone for longer than this.
const WAIT_MAX: Duration = Duration::from_hours(24);
/// Requests overtake each other by less. Further in the future is a time before the clock was set back.
const AHEAD: Duration = Duration::from_mins(5);

/// What a server remembers of the jobs that it sent a host because instances idled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TopUps {
    /// Jobs of the last round, less those that were returned since.
    given: u64,
    /// When that began, and how long after it the next may begin. None if there was none.
    round: Option<(Instant, Duration)>,
}

impl TopUps {
    /// How many jobs a host may be sent that asks, has so many instances, and holds more than its part or
    /// does not.
    pub fn left(&mut self, instances: u64, is_beyond: bool, now: Instant) -> u64 {
        if !is_beyond {
            *self = Self::default();
        }
        let is_over = |(at, wait): (Instant, Duration)| !(at - AHEAD..at + wait).contains(&now);
        if self.round.is_some_and(is_over) {
            self.given = 0;
        }
        instances.max(1).saturating_sub(self.given)
    }

    /// How long after `now` the next round begins of one that has returned nothing, if it waits for that.
    pub fn wait(&self, now: Instant) -> Option<Duration> {
        let (at, wait) = self.round?;
        Some((at + wait).since(now)).filter(|left| left.is_positive())
    }

    /// It was sent so many of them.
    pub fn gave(&mut self, jobs: u64, now: Instant) {
        if jobs > 0 && self.given == 0 {
            let wait = self.round.map_or(FIRST_WAIT, |(_, wait)| (wait * 2).min(WAIT_MAX));
            self.round = Some((now, wait));
        }
        self.given += jobs;
    }

    /// It returned so many jobs successfully.
    pub const fn returned(&mut self, jobs: u64) {
        self.given = self.given.saturating_sub(jobs);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(minutes: i64) -> Instant {
        Instant::EPOCH + Duration::from_mins(100_000 + minutes)
    }

    #[test]
    fn r3_2_each_instance_has_one_job_beyond_the_part_and_another_when_jobs_are_returned() {
        let mut top_ups = TopUps::default();
        assert_eq!(top_ups.left(4, false, at(0)), 4);
        top_ups.gave(3, at(0));
        assert_eq!(top_ups.left(4, true, at(1)), 1);
        assert_eq!([1, 10].map(|minute| top_ups.wait(at(minute))), [Some(Duration::from_mins(9)), None]);
        top_ups.returned(2);
        assert_eq!(top_ups.left(4, true, at(1)), 3);
        top_ups.gave(9, at(1));
        assert_eq!(top_ups.left(4, true, at(9)), 0);
        assert_eq!(top_ups.left(4, false, at(9)), 4, "it holds its part only");
        assert_eq!(TopUps::default().left(0, true, at(0)), 1);
    }

    #[test]
    fn r6_8_who_returns_nothing_waits_twice_as_long_each_time() {
        let mut top_ups = TopUps::default();
        let mut given = Vec::new();
        for minute in 0..60 * 24 * 5 {
            let jobs = top_ups.left(4, true, at(minute));
            top_ups.gave(jobs, at(minute));
            given.extend((jobs > 0).then_some((minute, jobs)));
        }
        let minutes: Vec<i64> = given.iter().map(|(minute, _)| *minute).collect();
        assert_eq!(minutes, [0, 10, 30, 70, 150, 310, 630, 1_270, 2_550, 3_990, 5_430, 6_870]);
        assert!(given.iter().all(|(_, jobs)| *jobs == 4));
    }

    #[test]
    fn r3_2_a_round_that_was_begun_before_the_clock_was_set_back_is_over() {
        let mut top_ups = TopUps::default();
        top_ups.gave(4, at(0));
        assert_eq!(top_ups.left(4, true, at(-4)), 0, "requests overtake each other");
        assert_eq!(top_ups.left(4, true, at(-100)), 4);
    }
}
