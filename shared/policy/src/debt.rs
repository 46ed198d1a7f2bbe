//! Short-term debt: CPU time owed to projects that have work (R2.1, R2.7).
//!
//! For the period since the last decision, the CPU time that all projects used is what there was to give away.
//! A project with a runnable job earns its share fraction of that and pays what it used. Afterwards the mean
//! over these projects is subtracted, so that the debts stay centred when a project runs out of work. A project
//! without a runnable job has debt 0: it owes nothing, is owed nothing, and its share counts in no fraction.
//!
//! The debts stay bounded because what is earned equals what is used, over projects that can all use it.

use std::collections::BTreeMap;
use std::fmt;

use fallow_domain::{Duration, ProjectId, Share};
use serde::{Deserialize, Serialize};

use crate::share_fraction::share_fractions;

/// CPU seconds owed to a project; negative when it got more than its share.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Debt(f64);

impl Debt {
    /// Nothing owed.
    pub const ZERO: Self = Self(0.0);
    /// From CPU seconds; what is not finite becomes zero.
    pub fn from_cpu_secs(secs: f64) -> Self {
        if secs.is_finite() { Self(secs) } else { Self::ZERO }
    }
    /// CPU seconds.
    pub const fn as_cpu_secs(self) -> f64 {
        self.0
    }
}

impl fmt::Display for Debt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.1} CPU s", self.0)
    }
}

/// What one project did since the last update.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ProjectPeriod {
    /// The project.
    pub project: ProjectId,
    /// Its resource share.
    pub share: Share,
    /// CPU time that its jobs used in the period; negative counts as none.
    pub used: Duration,
    /// Whether it has a runnable job.
    pub runnable: bool,
}

/// The debts of all projects of a host. A project not named in the last update has debt 0.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Debts(BTreeMap<ProjectId, Debt>);

impl Debts {
    /// A project's debt.
    pub fn of(&self, project: ProjectId) -> Debt {
        self.0.get(&project).copied().unwrap_or_default()
    }

    /// The projects that take part, with their debts.
    pub fn iter(&self) -> impl Iterator<Item = (ProjectId, Debt)> + '_ {
        self.0.iter().map(|(id, debt)| (*id, *debt))
    }

    /// Settles a period (R2.1). `period` names every attached project once; projects that it leaves out are
    /// forgotten. Returns W, the CPU time used by all, which the next decision wants.
    ///
    /// CPU time used by a project whose last job has just ended is part of W all the same: it was given away.
    pub fn update(&mut self, period: &[ProjectPeriod]) -> Duration {
        let used: Duration = period.iter().map(|p| p.used.max(Duration::ZERO)).sum();
        let taking_part = period.iter().filter(|p| p.runnable);
        let fractions = share_fractions(taking_part.clone().map(|p| (p.project, p.share)));
        let mut debts: BTreeMap<ProjectId, Debt> = taking_part
            .map(|p| {
                let earned = used.as_secs_f64() * fractions.get(&p.project).copied().unwrap_or(0.0);
                let paid = p.used.max(Duration::ZERO).as_secs_f64();
                (p.project, Debt(self.of(p.project).0 + earned - paid))
            })
            .collect();
        let mean = debts.values().map(|debt| debt.0).sum::<f64>() / debts.len().max(1) as f64;
        for debt in debts.values_mut() {
            debt.0 -= mean;
        }
        self.0 = debts;
        used
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn period(id: u32, share: f64, minutes: f64, runnable: bool) -> ProjectPeriod {
        let used = Duration::from_secs_f64(minutes * 60.0);
        ProjectPeriod { project: ProjectId(id), share: Share::new(share).unwrap(), used, runnable }
    }

    fn minutes(debts: &Debts, id: u32) -> f64 {
        debts.of(ProjectId(id)).as_cpu_secs() / 60.0
    }

    #[test]
    fn r2_1_the_worked_example_of_the_document() {
        let mut debts = Debts::default();
        let used = debts.update(&[period(1, 75.0, 25.0, true), period(2, 25.0, 15.0, true)]);
        assert_eq!(used, Duration::from_mins(40));
        assert_eq!((minutes(&debts, 1), minutes(&debts, 2)), (5.0, -5.0));
    }

    #[test]
    fn r2_1_a_project_without_runnable_jobs_has_debt_zero_and_counts_in_no_fraction() {
        let mut debts = Debts::default();
        debts.update(&[period(1, 50.0, 60.0, true), period(2, 50.0, 0.0, true)]);
        assert_eq!(minutes(&debts, 2), 30.0);
        debts.update(&[period(1, 50.0, 60.0, true), period(2, 50.0, 0.0, false)]);
        assert_eq!((minutes(&debts, 1), minutes(&debts, 2)), (0.0, 0.0));
    }

    #[test]
    fn r2_1_debts_stay_centred_when_a_project_runs_out() {
        let mut debts = Debts::default();
        debts.update(&[period(1, 1.0, 90.0, true), period(2, 1.0, 0.0, true), period(3, 1.0, 0.0, true)]);
        debts.update(&[period(1, 1.0, 0.0, false), period(2, 1.0, 30.0, true), period(3, 1.0, 0.0, true)]);
        assert_eq!((minutes(&debts, 2), minutes(&debts, 3)), (-15.0, 15.0));
    }

    #[test]
    fn a_project_with_share_zero_earns_nothing_beside_others() {
        let mut debts = Debts::default();
        debts.update(&[period(1, 100.0, 0.0, true), period(2, 0.0, 60.0, true)]);
        assert_eq!((minutes(&debts, 1), minutes(&debts, 2)), (60.0, -60.0));
    }

    #[test]
    fn debts_survive_being_stored() {
        let mut debts = Debts::default();
        debts.update(&[period(1, 75.0, 25.0, true), period(2, 25.0, 15.0, true)]);
        let stored = serde_json::to_string(&debts).unwrap();
        assert_eq!(serde_json::from_str::<Debts>(&stored).unwrap(), debts);
    }

    fn any_period() -> impl Strategy<Value = Vec<ProjectPeriod>> {
        prop::collection::vec((0.0..1e9_f64, -1.0..1e5_f64, any::<bool>()), 0..8).prop_map(|rows| {
            (1..).zip(rows).map(|(id, (share, used, runnable))| period(id, share, used, runnable)).collect()
        })
    }

    proptest! {
        #[test]
        fn r2_7_the_sum_of_debts_is_zero_after_every_update(
            history in prop::collection::vec(any_period(), 1..30),
        ) {
            let mut debts = Debts::default();
            let mut scale = 1.0;
            for period in &history {
                scale += debts.update(period).as_secs_f64();
                let sum: f64 = debts.iter().map(|(_, debt)| debt.as_cpu_secs()).sum();
                prop_assert!(sum.abs() <= 1e-9 * scale, "{sum}");
                for row in period.iter().filter(|row| !row.runnable) {
                    prop_assert_eq!(debts.of(row.project), Debt::ZERO);
                }
            }
        }

        #[test]
        fn r2_7_debts_stay_bounded_when_the_most_owed_project_runs(
            shares in prop::collection::vec(0.1..100.0_f64, 2..8),
            slices in prop::collection::vec(1.0..60.0_f64, 1..300),
        ) {
            let mut debts = Debts::default();
            for slice in slices {
                let most = (1..=shares.len() as u32)
                    .max_by(|a, b| minutes(&debts, *a).total_cmp(&minutes(&debts, *b)));
                let rows: Vec<_> = (1..).zip(&shares)
                    .map(|(id, share)| period(id, *share, if Some(id) == most { slice } else { 0.0 }, true))
                    .collect();
                debts.update(&rows);
                for (_, debt) in debts.iter() {
                    prop_assert!(debt.as_cpu_secs().abs() <= 3600.0 * shares.len() as f64);
                }
            }
        }
    }
}
