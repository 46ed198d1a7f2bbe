//! When a failed transfer is tried again, and when it is given up.
//!
//! Model: per file, the nth failure in a row, of all its URLs, waits the nth interval of a backoff from four
//! minutes doubling to six hours, drawn from its upper half; ninety days after it was first tried a file is
//! given up (the figures of the stock client: 120 s times two to the nth, at most 21,600 s). When three
//! transfers in a row fail for one project in one direction, its server is taken to be down and a backoff of
//! the same kind delays those of its files that have failed before. Any success clears it.

use fallow_domain::{Duration, Instant};
use rand::Rng;
use serde::{Deserialize, Serialize};

use crate::backoff::{Backoff, Wait};

/// The backoff per file and per project.
pub const BACKOFF: Backoff = Backoff { first: Duration::from_secs(240), max: Duration::from_hours(6) };

/// A file that could not be transferred for this long is given up.
pub const GIVE_UP_AFTER: Duration = Duration::from_hours(90 * 24);

/// From this many failures in a row a project's server is taken to be down.
pub const PROJECT_FAILURES: u32 = 3;

/// What follows a failed transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterTransferFailure {
    /// It is tried again after this long.
    RetryIn(Duration),
    /// It is given up: the job that needs it fails.
    GiveUp,
}

/// The retries of one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TransferBackoff {
    first_tried: Instant,
    failures: u32,
    wait: Option<Wait>,
}

impl TransferBackoff {
    /// A transfer that begins now.
    pub const fn new(now: Instant) -> Self {
        Self { first_tried: now, failures: 0, wait: None }
    }

    /// Takes note of the time; see `Wait::observe`.
    pub fn observe(&mut self, now: Instant) {
        self.first_tried = self.first_tried.min(now);
        if let Some(wait) = &mut self.wait {
            wait.observe(now);
        }
    }

    /// It failed in a way that may pass.
    pub fn on_failure(&mut self, now: Instant, rng: &mut (impl Rng + ?Sized)) -> AfterTransferFailure {
        if now.since(self.first_tried) >= GIVE_UP_AFTER {
            return AfterTransferFailure::GiveUp;
        }
        self.failures = self.failures.saturating_add(1);
        let length = BACKOFF.draw(self.failures, rng);
        self.wait = Some(Wait::new(now, length));
        AfterTransferFailure::RetryIn(length)
    }

    /// How long until it may be tried; zero for now.
    pub fn left(&self, now: Instant) -> Duration {
        self.wait.map_or(Duration::ZERO, |wait| wait.left(now))
    }

    /// Failures in a row.
    pub const fn failures(&self) -> u32 {
        self.failures
    }
}

/// The failures of one project in one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProjectTransferBackoff {
    failures: u32,
    wait: Option<Wait>,
}

impl ProjectTransferBackoff {
    /// Takes note of the time; see `Wait::observe`.
    pub fn observe(&mut self, now: Instant) {
        if let Some(wait) = &mut self.wait {
            wait.observe(now);
        }
    }

    /// A transfer failed in a way that may pass.
    pub fn on_failure(&mut self, now: Instant, rng: &mut (impl Rng + ?Sized)) {
        self.failures = self.failures.saturating_add(1);
        if self.failures >= PROJECT_FAILURES {
            self.wait = Some(Wait::new(now, BACKOFF.draw(self.failures, rng)));
        }
    }

    /// A transfer succeeded.
    pub fn on_success(&mut self) {
        *self = Self::default();
    }

    /// How long its files that failed before are held back; zero for not at all. A file never tried is tried:
    /// it finds out whether the server is back.
    pub fn wait_left(&self, now: Instant) -> Duration {
        self.wait.map_or(Duration::ZERO, |wait| wait.left(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rand::SeedableRng;
    use rand_pcg::Pcg64;

    #[test]
    fn a_first_failure_waits_two_to_four_minutes_and_none_waits_over_six_hours() {
        let mut rng = Pcg64::seed_from_u64(1);
        let t0 = Instant::from_secs_f64(1.8e9);
        let mut file = TransferBackoff::new(t0);
        let AfterTransferFailure::RetryIn(first) = file.on_failure(t0, &mut rng) else { panic!() };
        assert!(first >= Duration::from_secs(120) && first <= Duration::from_secs(240));
        for _ in 0..50 {
            let AfterTransferFailure::RetryIn(wait) = file.on_failure(t0, &mut rng) else { panic!() };
            assert!(wait <= Duration::from_hours(6));
        }
        assert!(file.left(t0) >= Duration::from_hours(3));
    }

    #[test]
    fn a_file_is_given_up_after_ninety_days() {
        let mut rng = Pcg64::seed_from_u64(1);
        let t0 = Instant::from_secs_f64(1.8e9);
        let mut file = TransferBackoff::new(t0);
        assert_ne!(
            file.on_failure(t0 + Duration::from_hours(89 * 24), &mut rng),
            AfterTransferFailure::GiveUp
        );
        assert_eq!(
            file.on_failure(t0 + Duration::from_hours(90 * 24), &mut rng),
            AfterTransferFailure::GiveUp
        );
    }

    #[test]
    fn the_third_failure_in_a_row_delays_the_projects_other_files_that_failed_before() {
        let mut rng = Pcg64::seed_from_u64(1);
        let t0 = Instant::from_secs_f64(1.8e9);
        let mut project = ProjectTransferBackoff::default();
        for expected in [false, false, true] {
            project.on_failure(t0, &mut rng);
            assert_eq!(project.wait_left(t0).is_positive(), expected);
        }
        project.on_success();
        assert!(!project.wait_left(t0).is_positive());
    }

    proptest! {
        #[test]
        fn r1_12_no_transfer_waits_longer_than_its_maximum_under_clock_jumps(
            jumps in prop::collection::vec(-1e9..1e9_f64, 1..50), seed in any::<u64>(),
        ) {
            let mut rng = Pcg64::seed_from_u64(seed);
            let mut now = Instant::from_secs_f64(1.8e9);
            let mut file = TransferBackoff::new(now);
            for jump in jumps {
                file.on_failure(now, &mut rng);
                now = now + Duration::from_secs_f64(jump);
                file.observe(now);
                prop_assert!(file.left(now) <= BACKOFF.max);
            }
        }
    }
}
