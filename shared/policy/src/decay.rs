//! The decaying average of CPU time per project, and the ranking made from it (R1.1, R1.2).
//!
//! Model: CPU time fades by a factor e per week. What is used over a stretch of time counts as spread evenly
//! over it, so the average does not depend on how often it is updated.

use std::cmp::Ordering;

use fallow_domain::{Duration, Instant, ProjectId, Share};
use serde::{Deserialize, Serialize};

use crate::math::decay;

/// The time in which CPU time fades by a factor e: a week (R1.1).
pub const DECAY_TIME: Duration = Duration::from_secs(604_800);

/// The decaying average of CPU time given to one project.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct RecentCpu {
    faded_secs: f64,
    at: Instant,
}

impl RecentCpu {
    /// No CPU time yet.
    pub const fn new(now: Instant) -> Self {
        Self { faded_secs: 0.0, at: now }
    }

    /// Adds the CPU time used since the last update. A clock that went backwards makes nothing fade (R1.12).
    pub fn update(&mut self, now: Instant, used: Duration) {
        let steps = now.since(self.at).as_secs_f64() / DECAY_TIME.as_secs_f64();
        let used = used.max(Duration::ZERO).as_secs_f64();
        let (keep, mean) = decay(steps);
        self.faded_secs = self.faded_secs * keep + used * mean;
        self.at = now;
    }

    /// The average: CPU seconds per second of recent time.
    pub fn cpus(&self) -> f64 {
        self.faded_secs / DECAY_TIME.as_secs_f64()
    }
}

/// What the ranking looks at.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ranked {
    /// The project.
    pub project: ProjectId,
    /// Its share.
    pub share: Share,
    /// What it got of late.
    pub recent: RecentCpu,
}

impl Ranked {
    /// The first generation's resource debt, share over decaying average (R1.2); none for a project that was
    /// never computed for, which ranks above all others.
    pub fn resource_debt(&self) -> Option<f64> {
        (self.recent.faded_secs > 0.0).then(|| self.share.get() / self.recent.cpus())
    }

    fn by_debt(&self, other: &Self) -> Ordering {
        let rank =
            |r: &Self| (r.share.get() > 0.0, r.resource_debt().unwrap_or(f64::INFINITY), r.share.get());
        let ((a_counts, a_debt, a_share), (b_counts, b_debt, b_share)) = (rank(self), rank(other));
        b_counts
            .cmp(&a_counts)
            .then(b_debt.total_cmp(&a_debt))
            .then(b_share.total_cmp(&a_share))
            .then(self.project.cmp(&other.project))
    }
}

/// The projects in the order in which they are to be asked (R1.2): largest resource debt first, a project
/// never computed for before all others, a share of zero behind all; then the larger share, then the smaller
/// id.
pub fn rank_projects(projects: &[Ranked]) -> Vec<ProjectId> {
    let mut ranked = projects.to_vec();
    ranked.sort_by(Ranked::by_debt);
    ranked.iter().map(|r| r.project).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(secs: f64) -> Instant {
        Instant::from_secs_f64(1.8e9 + secs)
    }

    #[test]
    fn r1_1_the_average_fades_by_a_factor_e_in_a_week() {
        let mut recent = RecentCpu::new(at(0.0));
        recent.update(at(0.0), Duration::from_hours(10));
        let before = recent.cpus();
        recent.update(at(604_800.0), Duration::ZERO);
        assert!((before / recent.cpus() - std::f64::consts::E).abs() < 1e-9);
    }

    #[test]
    fn r1_1_a_cpu_always_busy_averages_to_one() {
        let mut recent = RecentCpu::new(at(0.0));
        recent.update(at(1e8), Duration::from_secs(100_000_000));
        assert!((recent.cpus() - 1.0).abs() < 1e-9);
    }

    #[test]
    fn r1_12_a_clock_that_jumps_back_fades_nothing_and_loses_nothing() {
        let mut recent = RecentCpu::new(at(0.0));
        recent.update(at(0.0), Duration::from_hours(1));
        let before = recent.cpus();
        recent.update(at(-1e9), Duration::ZERO);
        assert_eq!(recent.cpus(), before);
    }

    #[test]
    fn r1_2_the_largest_debt_comes_first_and_the_never_computed_before_it() {
        let ranked = |id, share, hours| {
            let mut recent = RecentCpu::new(at(0.0));
            recent.update(at(0.0), Duration::from_hours(hours));
            Ranked { project: ProjectId(id), share: Share::new(share).unwrap(), recent }
        };
        let order = rank_projects(&[
            ranked(1, 75.0, 10),
            ranked(2, 25.0, 2),
            ranked(3, 10.0, 0),
            ranked(4, 20.0, 0),
            ranked(5, 0.0, 0),
        ]);
        assert_eq!(order, [4, 3, 2, 1, 5].map(ProjectId));
    }

    proptest! {
        #[test]
        fn r1_1_the_average_does_not_depend_on_how_often_it_is_updated(
            cuts in prop::collection::vec(0.0..1e7_f64, 0..40), cpus in 0.0..64.0_f64,
        ) {
            let mut cuts = cuts;
            cuts.push(1e7);
            cuts.sort_by(f64::total_cmp);
            let (mut once, mut often) = (RecentCpu::new(at(0.0)), RecentCpu::new(at(0.0)));
            once.update(at(1e7), Duration::from_secs_f64(1e7 * cpus));
            let mut last = 0.0;
            for cut in cuts {
                often.update(at(cut), Duration::from_secs_f64((cut - last) * cpus));
                last = cut;
            }
            prop_assert!((once.cpus() - often.cpus()).abs() <= 1e-6 * (1.0 + cpus));
        }
    }
}
