//! By recent estimated credit: how BOINC's client compares projects today (its `REC` policies).
//!
//! Model: what a project's jobs compute is counted in units of estimated credit: 200 for a day of one
//! GFLOPS of peak speed, whatever the resource type. Each project has an average of it per day, which fades
//! by half in ten days. A project whose part of all credit is larger than its part of all shares comes
//! later. Unlike a debt the average forgets: a project that had no work for a month is not owed a month.
//!
//! The same averages are used in two forms.
//! - `priorities` is for work fetch: minus the project's part of the credit over its part of the shares,
//!   less what is queued of it.
//! - `as_debt` is for CPU scheduling, which needs an amount of time: it takes the expected payoff of a job
//!   off what its project is owed. Here a project is owed the difference between its part of the shares
//!   and its part of the credit, in seconds of a day of the host. So an hour counts as a 24th of all
//!   credit, as in BOINC's client. (That one divides by the share where this one subtracts; both give 0
//!   where the shares are kept.)

use std::collections::BTreeMap;

use fallow_domain::{Duration, InstanceSeconds, Instant, PerType, ProjectId, Share, Speed};
use serde::{Deserialize, Serialize};

use super::{AccountingPolicy, AccountingSituation, Debt, FetchPriority};
use crate::job_queue::JobQueue;
use crate::math::decay;
use crate::plan_host::PlanHost;
use crate::share_fraction::share_fractions;

/// The time in which credit fades to a half (BOINC: `rec_half_life_days`).
pub const HALF_LIFE: Duration = Duration::from_hours(240);

/// Estimated credit for a day of one GFLOPS.
const CREDIT_PER_GFLOPS_DAY: f64 = 200.0;
const DAY_SECS: f64 = 86_400.0;
const LN_2: f64 = std::f64::consts::LN_2;

/// A project without a share ranks below any with one, as long as no part of a share is a thousand times its
/// own.
const NO_SHARE: f64 = -1_000.0;

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Average {
    per_day: f64,
    at: Option<Instant>,
}

/// The averages of a host.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RecentCredit(BTreeMap<ProjectId, Average>);

/// A project that is ranked, and the work of it that is queued, in CPU seconds weighted by speed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ProjectBacklog {
    /// The project.
    pub project: ProjectId,
    /// Its share.
    pub share: Share,
    /// Estimated work queued, as seconds of one CPU: those of each type times its relative speed.
    pub queued: InstanceSeconds,
}

/// `accounting=recent-credit`.
#[derive(Clone, Copy, Debug)]
pub struct ByRecentCredit;

impl AccountingPolicy for ByRecentCredit {
    fn name(&self) -> &'static str {
        "recent-credit"
    }

    fn summary(&self) -> &'static str {
        "by recent estimated credit, as BOINC does today"
    }

    fn counts_credit(&self) -> bool {
        true
    }

    fn owed(&self, situation: &AccountingSituation<'_>) -> Vec<PerType<Debt>> {
        let owed = situation.credit.as_debt(&situation.host, situation.projects.iter().copied());
        let of = |id| owed.get(id).copied().unwrap_or(Debt::ZERO);
        situation.projects.iter().map(|(id, _)| PerType::from_fn(|_| of(id))).collect()
    }

    fn fetch_priorities(
        &self,
        situation: &AccountingSituation<'_>,
        queue: &JobQueue,
        window: Duration,
    ) -> Vec<FetchPriority> {
        let host = &situation.host;
        let queued = |id| -> f64 {
            host.types().map(|kind| queue.remaining_on(id, kind).as_secs_f64() * host.speeds[kind]).sum()
        };
        let rank = |(project, share): &(ProjectId, Share)| ProjectBacklog {
            project: *project,
            share: *share,
            queued: InstanceSeconds::new(queued(*project)),
        };
        let ranks: Vec<ProjectBacklog> = situation.projects.iter().map(rank).collect();
        let priorities = situation.credit.priorities(host, window, &ranks);
        let of = |id| FetchPriority::Score(priorities.get(id).copied().unwrap_or(0.0));
        situation.projects.iter().map(|(id, _)| of(id)).collect()
    }
}

impl RecentCredit {
    /// Books instance time that a project's jobs used since the last call. `cpu` is the speed of one CPU,
    /// `speeds` are relative to it. A clock that went backwards makes nothing fade (R1.12).
    pub fn update(
        &mut self,
        project: ProjectId,
        now: Instant,
        used: &PerType<Duration>,
        speeds: &PerType<f64>,
        cpu: Speed,
    ) {
        let cpu_secs: f64 =
            used.iter().map(|(kind, used)| used.max(&Duration::ZERO).as_secs_f64() * speeds[kind]).sum();
        let credit = cpu_secs * cpu.get() * CREDIT_PER_GFLOPS_DAY / (DAY_SECS * 1e9);
        let average = self.0.entry(project).or_default();
        let elapsed = average.at.map_or(Duration::ZERO, |at| now.since(at));
        let fades = elapsed.as_secs_f64() * LN_2 / HALF_LIFE.as_secs_f64();
        // Credit spread evenly over a time that is a part of the memory: (1 - w) x / time, whose limit for no
        // time at all is ln 2 x / half-life; the mean decay is both.
        let (keep, mean) = decay(fades);
        let fresh = credit * DAY_SECS * LN_2 / HALF_LIFE.as_secs_f64() * mean;
        average.per_day = average.per_day * keep + fresh;
        average.at = Some(now);
    }

    /// A project's average in estimated credit per day, as it stood at its last update.
    pub fn of(&self, project: ProjectId) -> f64 {
        self.0.get(&project).map_or(0.0, |average| average.per_day)
    }

    /// Forgets a project that is detached.
    pub fn forget(&mut self, project: ProjectId) {
        self.0.remove(&project);
    }

    /// For CPU scheduling: what each project is owed of every type, in seconds. Over the projects given it
    /// sums to 0.
    pub fn as_debt(
        &self,
        host: &PlanHost,
        projects: impl Iterator<Item = (ProjectId, Share)> + Clone,
    ) -> BTreeMap<ProjectId, Debt> {
        let shares = share_fractions(projects);
        let all: f64 = shares.keys().map(|id| self.of(*id)).sum();
        let day = DAY_SECS * whole_speed(host);
        let owed = |id: &ProjectId, share: f64| {
            let part = if all > 0.0 { self.of(*id) / all } else { share };
            Debt::from_secs((share - part) * day)
        };
        shares.iter().map(|(id, share)| (*id, owed(id, *share))).collect()
    }

    /// For work fetch: the priority of each project, at most 0 and larger for whom to ask first. What is
    /// queued counts as its part of what the host computes within `buffer`.
    pub fn priorities(
        &self,
        host: &PlanHost,
        buffer: Duration,
        projects: &[ProjectBacklog],
    ) -> BTreeMap<ProjectId, f64> {
        let shares = share_fractions(projects.iter().map(|p| (p.project, p.share)));
        let all: f64 = projects.iter().map(|p| self.of(p.project)).sum();
        let capacity = buffer.as_secs_f64().max(1.0) * whole_speed(host);
        let priority = |p: &ProjectBacklog| {
            let part = if all > 0.0 { self.of(p.project) / all } else { 0.0 };
            let queued = p.queued.get().max(0.0) / capacity;
            match shares.get(&p.project) {
                Some(share) if *share > 0.0 => -(part + queued) / share,
                _ => NO_SHARE - part - queued,
            }
        };
        projects.iter().map(|p| (p.project, priority(p))).collect()
    }
}

/// The speed of all instances together, in CPUs.
fn whole_speed(host: &PlanHost) -> f64 {
    let speed: f64 = host.instances.iter().map(|(kind, count)| f64::from(*count) * host.speeds[kind]).sum();
    speed.max(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const P: ProjectId = ProjectId(1);

    fn at(days: f64) -> Instant {
        Instant::from_secs_f64(1.8e9) + Duration::from_days_f64(days)
    }
    fn gflops() -> Speed {
        Speed::new(1e9).unwrap()
    }
    fn book(credit: &mut RecentCredit, id: u32, days: f64, cpu_days: f64) {
        let used = PerType::cpu(Duration::from_days_f64(cpu_days));
        credit.update(ProjectId(id), at(days), &used, &PerType::cpu(1.0), gflops());
    }
    fn share(share: f64) -> Share {
        Share::new(share).unwrap()
    }

    #[test]
    fn a_cpu_of_a_gflops_earns_two_hundred_a_day() {
        let mut credit = RecentCredit::default();
        book(&mut credit, 1, 0.0, 0.0);
        book(&mut credit, 1, 400.0, 400.0);
        assert!((credit.of(P) - 200.0).abs() < 1e-6, "{}", credit.of(P));
    }

    #[test]
    fn credit_fades_by_half_in_ten_days() {
        let mut credit = RecentCredit::default();
        book(&mut credit, 1, 0.0, 1.0);
        let before = credit.of(P);
        book(&mut credit, 1, 10.0, 0.0);
        assert!((credit.of(P) / before - 0.5).abs() < 1e-9);
        // A day of credit in no time: ln 2 / 10 of it is in the average at once.
        assert!((before - 200.0 * LN_2 / 10.0).abs() < 1e-9);
    }

    #[test]
    fn r1_12_a_clock_that_jumps_back_fades_nothing() {
        let mut credit = RecentCredit::default();
        book(&mut credit, 1, 0.0, 1.0);
        let before = credit.of(P);
        book(&mut credit, 1, -300.0, 0.0);
        assert_eq!(credit.of(P), before);
    }

    #[test]
    fn who_got_more_than_its_share_ranks_lower_and_no_share_last() {
        let mut credit = RecentCredit::default();
        book(&mut credit, 1, 0.0, 3.0);
        book(&mut credit, 2, 0.0, 1.0);
        let host = PlanHost::cpus(2);
        let rank = |id, weight, queued| ProjectBacklog {
            project: ProjectId(id),
            share: share(weight),
            queued: InstanceSeconds::new(queued),
        };
        let buffer = Duration::from_hours(1);
        let ranks =
            credit.priorities(&host, buffer, &[rank(1, 75.0, 0.0), rank(2, 25.0, 0.0), rank(3, 0.0, 0.0)]);
        for (rank, expected) in ranks.into_values().zip([-1.0, -1.0, -1_000.0]) {
            assert!((rank - expected).abs() < 1e-9, "{rank}");
        }
        let ranks = credit.priorities(&host, buffer, &[rank(1, 50.0, 0.0), rank(2, 50.0, 7_200.0)]);
        assert_eq!(ranks.into_values().collect::<Vec<_>>(), [-1.5, -2.5], "what is queued counts");
        let projects = [(ProjectId(1), share(50.0)), (ProjectId(2), share(50.0))];
        let owed: Vec<f64> =
            credit.as_debt(&host, projects.into_iter()).into_values().map(Debt::as_secs).collect();
        assert!(
            (owed[0] + 43_200.0).abs() < 1e-6 && (owed[1] - 43_200.0).abs() < 1e-6,
            "half a day: {owed:?}"
        );
    }

    #[test]
    fn averages_survive_being_stored() {
        let mut credit = RecentCredit::default();
        book(&mut credit, 1, 0.0, 3.0);
        let stored = serde_json::to_string(&credit).unwrap();
        let restored: RecentCredit = serde_json::from_str(&stored).unwrap();
        assert!((restored.of(P) - credit.of(P)).abs() < 1e-9);
    }

    proptest! {
        #[test]
        fn the_average_does_not_depend_on_how_often_it_is_updated(
            cuts in prop::collection::vec(0.0..100.0_f64, 0..40), cpus in 0.0..64.0_f64,
        ) {
            let mut cuts = cuts;
            cuts.push(100.0);
            cuts.sort_by(f64::total_cmp);
            let (mut once, mut often) = (RecentCredit::default(), RecentCredit::default());
            for credit in [&mut once, &mut often] {
                book(credit, 1, 0.0, 0.0);
            }
            book(&mut once, 1, 100.0, 100.0 * cpus);
            let mut last = 0.0;
            for cut in cuts {
                book(&mut often, 1, cut, (cut - last) * cpus);
                last = cut;
            }
            prop_assert!((once.of(P) - often.of(P)).abs() <= 1e-6 * (1.0 + once.of(P)));
        }

        #[test]
        fn what_is_owed_by_recent_credit_sums_to_zero(
            rows in prop::collection::vec((0.0..100.0_f64, 0.0..50.0_f64), 1..9),
        ) {
            let mut credit = RecentCredit::default();
            for (id, (_, days)) in (1..).zip(&rows) {
                book(&mut credit, id, 0.0, *days);
            }
            let projects: Vec<_> = (1..).zip(&rows).map(|(id, (weight, _))| (ProjectId(id), share(*weight))).collect();
            let owed = credit.as_debt(&PlanHost::cpus(4), projects.iter().copied());
            prop_assert!(owed.values().map(|owed| owed.as_secs()).sum::<f64>().abs() < 1e-6);
        }
    }
}
