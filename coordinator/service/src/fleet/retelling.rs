//! When agents are told again of jobs that nobody took, and how many are (R1.4).
//!
//! All that is known is how many jobs of a project are unsent, at looks some seconds apart; not which. Those
//! of which agents were told again are the older ones, as far as they are unsent; what is more came since.
//!
//! - Of newer jobs as many agents are told as there are jobs, a minute after the first of them came. What
//!   waits already does not hold them up. Where jobs were taken since the last look it is an hour after
//!   that: whoever was told has asked. But what few can compute is not hidden for days by a backlog that
//!   hosts draw on.
//! - Of older ones others are told with pauses that double, up to an hour, and each time twice as many for a
//!   job: there may be none who can compute them, or one who is to be found.
//! - Where nobody could be told it is tried again in a minute, and nothing grows.
//!
//! So newer jobs lead to no more calls than there are jobs, and older ones to [`AGAIN_MAX`] an hour once the
//! pause has grown. That takes two hours, and the pause stays so until no job is unsent. Left out: which
//! jobs are taken. Where it was an older one, a newer one may have to wait with the pause of the older.

use std::time::{Duration, Instant};

use super::contact::STANDS;

/// How often others are told, at least, of jobs that nobody takes.
const PAUSE_MAX: Duration = Duration::from_secs(60 * 60);
/// So many are told then of a project's jobs, at most: there may be none who can compute them.
const AGAIN_MAX: u64 = 200;
/// After so many vain times neither the pause grows nor the number for one job.
const VAIN_MAX: u32 = 8;

/// What is known of the jobs of a project that nobody took.
#[derive(Debug, Default)]
pub(super) struct Retelling {
    /// Unsent jobs at the last look.
    left: u64,
    /// How many came since.
    came: u64,
    /// Of how many of them agents were told again: no more than were unsent at any look since.
    older: u64,
    /// How often that was in vain, since there were none.
    vain: u32,
    /// Of the newer ones; none where there are none.
    newer_wait: Option<Wait>,
    /// Of the older ones; none where there are none.
    older_wait: Option<Wait>,
}

/// How long jobs wait until others are told of them.
#[derive(Clone, Copy, Debug)]
struct Wait {
    since: Instant,
    pause: Duration,
}

/// That agents are to be told again of jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Due {
    /// Since when.
    pub(super) at: Instant,
    /// Of how many.
    pub(super) jobs: u64,
    /// How many agents, at most.
    pub(super) agents: u64,
    /// Whether the newer jobs are among them, and the older ones.
    is_newer: bool,
    is_older: bool,
}

impl Retelling {
    /// Jobs were submitted, or are to be computed once more.
    pub(super) fn new_jobs(&mut self, jobs: u64, now: Instant) {
        self.came = self.came.saturating_add(jobs);
        self.newer_wait.get_or_insert(Wait { since: now, pause: STANDS });
    }

    /// So many jobs are unsent now. Whether others are to be told of them.
    pub(super) fn look(&mut self, unsent: u64, now: Instant) -> Option<Due> {
        let is_taken = unsent < self.left.saturating_add(self.came);
        (self.left, self.came) = (unsent, 0);
        self.older = self.older.min(unsent);
        let newer = unsent - self.older;
        if self.older == 0 {
            (self.vain, self.older_wait) = (0, None);
        }
        match newer {
            0 => self.newer_wait = None,
            // Nobody may have said that they came: they may be from before a start.
            _ => self.new_jobs(0, now),
        }
        let newer_at = self.newer_wait.map(|wait| wait.since + if is_taken { PAUSE_MAX } else { wait.pause });
        let older_at = self.older_wait.map(|wait| wait.since + wait.pause);
        let (newer_at, older_at) = (newer_at.filter(|at| *at <= now), older_at.filter(|at| *at <= now));
        let newer = newer_at.map_or(0, |_| newer);
        let older = older_at.map_or(0, |_| self.older);
        Some(Due {
            at: newer_at.into_iter().chain(older_at).min()?,
            jobs: newer + older,
            agents: newer.saturating_add(older.saturating_mul(1 << self.vain)).min(AGAIN_MAX),
            is_newer: newer_at.is_some(),
            is_older: older_at.is_some(),
        })
    }

    /// Some were told of what was due at this look, or nobody could be.
    pub(super) fn told(&mut self, due: &Due, some: bool, now: Instant) {
        let again = Some(Wait { since: now, pause: STANDS });
        if due.is_newer {
            self.newer_wait = again.filter(|_| !some);
        }
        if due.is_older {
            self.older_wait = again;
        }
        if !some {
            return;
        }
        if due.is_newer {
            self.older = self.left;
        }
        // Newer jobs that join older ones change nothing for those.
        if due.is_older || self.older_wait.is_none() {
            self.vain = (self.vain + 1).min(VAIN_MAX);
            let pause = (STANDS * (1 << self.vain)).min(PAUSE_MAX);
            self.older_wait = Some(Wait { since: now, pause });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The looks of so many seconds, one every 20 s, at which some were told or nobody could be.
    fn looks(
        retelling: &mut Retelling,
        start: Instant,
        seconds: std::ops::Range<u64>,
        unsent: u64,
        some: bool,
    ) -> Vec<(u64, u64)> {
        let mut told = Vec::new();
        for second in seconds.step_by(20) {
            let now = start + Duration::from_secs(second);
            if let Some(due) = retelling.look(unsent, now) {
                retelling.told(&due, some, now);
                told.push((second, due.agents));
            }
        }
        told
    }

    #[test]
    fn r1_4_jobs_that_nobody_takes_are_told_of_again_with_pauses_that_double_and_to_twice_as_many() {
        let (mut calls, start) = (Retelling::default(), Instant::now());
        let after = |seconds| start + Duration::from_secs(seconds);
        calls.new_jobs(1, start);
        let told = looks(&mut calls, start, 0..1_000, 1, true);
        assert_eq!(told, [(60, 1), (180, 2), (420, 4), (900, 8)]);
        // Others that come are told of after a minute, once, and change nothing for it.
        calls.new_jobs(2, after(1_000));
        let told = looks(&mut calls, start, 1_000..3_000, 3, true);
        assert_eq!(told, [(1_060, 2), (1_860, 48)]);
        // All are taken: what comes later begins anew.
        assert_eq!(calls.look(0, after(8_990)), None);
        calls.new_jobs(1, after(9_000));
        assert_eq!(looks(&mut calls, start, 9_000..9_200, 1, true), [(9_060, 1), (9_180, 2)]);
        // Where nobody could be told, it is tried again in a minute, and nothing grows.
        assert_eq!(calls.look(0, after(9_990)), None);
        calls.new_jobs(1, after(10_000));
        let told = looks(&mut calls, start, 10_000..10_200, 1, false);
        assert_eq!(told, [(10_060, 1), (10_120, 1), (10_180, 1)]);
        assert_eq!(looks(&mut calls, start, 10_200..10_400, 1, true), [(10_240, 1), (10_360, 2)]);
    }

    #[test]
    fn r1_4_of_jobs_that_come_and_go_few_are_told_again_however_many_there_are() {
        const HOURS: u64 = 20;
        let (mut calls, start) = (Retelling::default(), Instant::now());
        let after = |seconds| start + Duration::from_secs(seconds);
        // A hundred come every ten minutes, of which hosts take almost all, one by one; some hundreds are
        // always there.
        let mut unsent = 300;
        let mut told = Vec::new();
        for second in (0..HOURS * 3_600).step_by(2) {
            if second % 600 == 0 {
                unsent += 100;
                calls.new_jobs(100, after(second));
            }
            unsent -= u64::from(second % 6 == 0 && second % 600 >= 12);
            if second % 20 == 0
                && let Some(due) = calls.look(unsent, after(second))
            {
                calls.told(&due, true, after(second));
                told.push((second, due.agents));
            }
        }
        assert!(told.len() <= 2 * HOURS as usize + 6, "{told:?}");
        assert!(told.iter().all(|(_, agents)| *agents <= AGAIN_MAX));
        // And nothing is hidden for longer than an hour.
        let times = || std::iter::once(0).chain(told.iter().map(|(second, _)| *second));
        assert!(times().zip(times().skip(1)).all(|(one, next)| next - one <= 3_600), "{told:?}");
    }

    #[test]
    fn r1_4_of_newer_jobs_that_nobody_takes_either_no_more_are_told_than_there_are_and_some_an_hour() {
        const MINUTES: u64 = 600;
        let (mut calls, start) = (Retelling::default(), Instant::now());
        let mut told = 0;
        for look in 0..3 * MINUTES {
            let now = start + Duration::from_secs(20 * look);
            calls.new_jobs(u64::from(look % 3 == 0), now);
            if let Some(due) = calls.look(1 + look / 3, now) {
                calls.told(&due, true, now);
                told += due.agents;
            }
        }
        assert!((MINUTES..=MINUTES + (MINUTES / 60 + 6) * AGAIN_MAX).contains(&told), "{told}");
    }
}
