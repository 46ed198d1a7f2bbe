//! Short-term debt: instance time owed to projects that have work, by resource type (R2.1, R2.7).
//!
//! For the period since the last decision, the time of a type's instances that all projects used is what
//! there was to give away. A project with a runnable job of the type earns its fraction of that and pays what
//! it used. Afterwards the mean over these projects is subtracted, so that the debts stay centred when a
//! project runs out of work. A project without a runnable job of the type has debt 0 there: it owes nothing,
//! is owed nothing, and counts in no fraction.
//!
//! On a host with CPUs only the fraction is the share fraction. With coprocessors it is what is due to the
//! project of that type, by fair division of the host's total speed (R3.3), over what is due to all: a
//! project with GPU jobs only gets more of the GPU while the others have the CPUs to themselves.
//!
//! The debts stay bounded because what is earned equals what is used, over projects that can all use it.

use std::collections::BTreeMap;
use std::fmt;

use fallow_domain::{Duration, PerType, ProjectId, ResourceType, Share};
use serde::{Deserialize, Serialize, Serializer};

use crate::due::{DueClaim, LastRates};
use crate::plan_host::PlanHost;
use crate::share_fraction::share_fractions;

/// Instance-seconds owed to a project; negative when it got more than its share.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Debt(f64);

impl Debt {
    /// Nothing owed.
    pub const ZERO: Self = Self(0.0);
    /// From instance-seconds; what is not finite becomes zero.
    pub fn from_secs(secs: f64) -> Self {
        if secs.is_finite() { Self(secs) } else { Self::ZERO }
    }
    /// Instance-seconds.
    pub const fn as_secs(self) -> f64 {
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
pub struct ShortTermPeriod {
    /// The project.
    pub project: ProjectId,
    /// Its resource share.
    pub share: Share,
    /// Instance time that its jobs used in the period, of each type; negative counts as none.
    pub used: PerType<Duration>,
    /// Whether it has a runnable job of each type.
    pub runnable: PerType<bool>,
}

/// The debts of all projects of a host. A project not named in the last update has debt 0.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(from = "BTreeMap<ProjectId, Stored>")]
pub struct Debts {
    debts: BTreeMap<ProjectId, PerType<Debt>>,
    due: LastRates,
}

impl Serialize for Debts {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.debts.serialize(serializer)
    }
}

/// A project's debts as they are stored, or as they were when there was one for the CPU only.
#[derive(Deserialize)]
#[serde(untagged)]
enum Stored {
    Cpu(Debt),
    PerType(PerType<Debt>),
}

impl From<BTreeMap<ProjectId, Stored>> for Debts {
    fn from(stored: BTreeMap<ProjectId, Stored>) -> Self {
        let read = |debts| match debts {
            Stored::Cpu(debt) => PerType::cpu(debt),
            Stored::PerType(debts) => debts,
        };
        let debts = stored.into_iter().map(|(id, debts)| (id, read(debts))).collect();
        Self { debts, due: LastRates::default() }
    }
}

impl Debts {
    /// A project's debt for each type.
    pub fn of(&self, project: ProjectId) -> PerType<Debt> {
        self.debts.get(&project).copied().unwrap_or_default()
    }

    /// The projects that take part, with their debts.
    pub fn iter(&self) -> impl Iterator<Item = (ProjectId, PerType<Debt>)> + '_ {
        self.debts.iter().map(|(id, debts)| (*id, *debts))
    }

    /// Settles a period (R2.1). `period` names every attached project once; projects that it leaves out are
    /// forgotten. Returns W for each type, the instance time used by all, which the next decision wants.
    ///
    /// Time used by a project whose last job has just ended is part of W all the same: it was given away.
    pub fn update(&mut self, host: &PlanHost, period: &[ShortTermPeriod]) -> PerType<Duration> {
        let used = PerType::from_fn(|kind| period.iter().map(|p| used(p, kind)).sum());
        let fractions = fractions(&mut self.due, host, period);
        let mut debts: BTreeMap<ProjectId, PerType<Debt>> =
            period.iter().map(|p| (p.project, self.of(p.project))).collect();
        for kind in ResourceType::ALL {
            settle(&mut debts, period, &fractions, kind, used[kind]);
        }
        debts.retain(|_, debts| debts.iter().any(|(_, debt)| *debt != Debt::ZERO));
        self.debts = debts;
        used
    }
}

fn used(period: &ShortTermPeriod, kind: ResourceType) -> Duration {
    period.used[kind].max(Duration::ZERO)
}

/// The part of each type that each project earns; they sum to 1 over the projects with runnable jobs of the
/// type.
fn fractions(
    last: &mut LastRates,
    host: &PlanHost,
    period: &[ShortTermPeriod],
) -> BTreeMap<ProjectId, PerType<f64>> {
    let takes_part = |kind: ResourceType| period.iter().any(|p| p.runnable[kind]);
    let mut fractions = BTreeMap::<ProjectId, PerType<f64>>::new();
    if ResourceType::ALL.into_iter().filter(|kind| takes_part(*kind)).count() <= 1 {
        for kind in ResourceType::ALL {
            let taking_part = period.iter().filter(|p| p.runnable[kind]).map(|p| (p.project, p.share));
            for (project, fraction) in share_fractions(taking_part) {
                fractions.entry(project).or_default()[kind] = fraction;
            }
        }
        return fractions;
    }
    // A type that is not to be used any more (R2.6), with tasks that still were, is divided as if it had an
    // instance.
    let instances = host.instances.map(|kind, count| if takes_part(kind) { (*count).max(1) } else { *count });
    let host = PlanHost { instances, ..*host };
    let claims: Vec<DueClaim> = period
        .iter()
        .map(|p| DueClaim {
            project: p.project,
            share: p.share,
            limit: p.runnable.map(|kind, runs| if *runs { f64::from(instances[kind]) } else { 0.0 }),
        })
        .collect();
    let due = last.of(&host, &claims);
    let sums = PerType::from_fn(|kind| due.iter().map(|due| due[kind]).sum::<f64>());
    for (claim, due) in claims.iter().zip(due) {
        let fraction = due.map(|kind, due| if sums[kind] > 0.0 { due / sums[kind] } else { 0.0 });
        fractions.insert(claim.project, fraction);
    }
    fractions
}

fn settle(
    debts: &mut BTreeMap<ProjectId, PerType<Debt>>,
    period: &[ShortTermPeriod],
    fractions: &BTreeMap<ProjectId, PerType<f64>>,
    kind: ResourceType,
    used_by_all: Duration,
) {
    let (mut sum, mut count) = (0.0, 0.0);
    for p in period {
        let Some(debts) = debts.get_mut(&p.project) else { continue };
        if !p.runnable[kind] {
            debts[kind] = Debt::ZERO;
            continue;
        }
        let fraction = fractions.get(&p.project).map_or(0.0, |fractions| fractions[kind]);
        debts[kind].0 += used_by_all.as_secs_f64() * fraction - used(p, kind).as_secs_f64();
        sum += debts[kind].0;
        count += 1.0;
    }
    for p in period.iter().filter(|p| p.runnable[kind]) {
        if let Some(debts) = debts.get_mut(&p.project) {
            debts[kind].0 -= sum / count;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    use ResourceType::{Cpu, Nvidia};

    fn period(id: u32, share: f64, minutes: f64, runnable: bool) -> ShortTermPeriod {
        let used = PerType::cpu(Duration::from_secs_f64(minutes * 60.0));
        let (share, runnable) = (Share::new(share).unwrap(), PerType::cpu(runnable));
        ShortTermPeriod { project: ProjectId(id), share, used, runnable }
    }

    fn cpus() -> PlanHost {
        PlanHost::cpus(4)
    }

    fn minutes(debts: &Debts, id: u32) -> f64 {
        debts.of(ProjectId(id))[Cpu].as_secs() / 60.0
    }

    #[test]
    fn r2_1_the_worked_example_of_the_document() {
        let mut debts = Debts::default();
        let used = debts.update(&cpus(), &[period(1, 75.0, 25.0, true), period(2, 25.0, 15.0, true)]);
        assert_eq!(used, PerType::cpu(Duration::from_mins(40)));
        assert_eq!((minutes(&debts, 1), minutes(&debts, 2)), (5.0, -5.0));
    }

    #[test]
    fn r2_1_a_project_without_runnable_jobs_has_debt_zero_and_counts_in_no_fraction() {
        let mut debts = Debts::default();
        debts.update(&cpus(), &[period(1, 50.0, 60.0, true), period(2, 50.0, 0.0, true)]);
        assert_eq!(minutes(&debts, 2), 30.0);
        debts.update(&cpus(), &[period(1, 50.0, 60.0, true), period(2, 50.0, 0.0, false)]);
        assert_eq!((minutes(&debts, 1), minutes(&debts, 2)), (0.0, 0.0));
    }

    #[test]
    fn r2_1_debts_stay_centred_when_a_project_runs_out() {
        let mut debts = Debts::default();
        debts.update(
            &cpus(),
            &[period(1, 1.0, 90.0, true), period(2, 1.0, 0.0, true), period(3, 1.0, 0.0, true)],
        );
        debts.update(
            &cpus(),
            &[period(1, 1.0, 0.0, false), period(2, 1.0, 30.0, true), period(3, 1.0, 0.0, true)],
        );
        assert_eq!((minutes(&debts, 2), minutes(&debts, 3)), (-15.0, 15.0));
    }

    #[test]
    fn a_project_with_share_zero_earns_nothing_beside_others() {
        let mut debts = Debts::default();
        debts.update(&cpus(), &[period(1, 100.0, 0.0, true), period(2, 0.0, 60.0, true)]);
        assert_eq!((minutes(&debts, 1), minutes(&debts, 2)), (60.0, -60.0));
    }

    #[test]
    fn r2_1_with_a_gpu_the_fraction_is_that_of_the_fair_division() {
        let mut host = PlanHost::cpus(1);
        (host.instances[Nvidia], host.speeds[Nvidia]) = (1, 2.0);
        let row = |id, cpu, gpu, cpu_secs, gpu_secs| {
            let mut row = period(id, 100.0, 0.0, cpu);
            row.runnable[Nvidia] = gpu;
            row.used = PerType::cpu(Duration::from_secs(cpu_secs));
            row.used[Nvidia] = Duration::from_secs(gpu_secs);
            row
        };
        let mut debts = Debts::default();
        debts.update(&host, &[row(1, false, true, 0, 50), row(2, true, true, 100, 50)]);
        // Project 1 is due three quarters of the GPU and none of the CPU.
        assert_eq!(debts.of(ProjectId(1))[Nvidia].as_secs(), 25.0);
        assert_eq!(debts.of(ProjectId(2))[Nvidia].as_secs(), -25.0);
        assert_eq!(debts.of(ProjectId(2))[Cpu].as_secs(), 0.0);
    }

    #[test]
    fn debts_survive_being_stored() {
        let mut debts = Debts::default();
        debts.update(&cpus(), &[period(1, 75.0, 25.0, true), period(2, 25.0, 15.0, true)]);
        let stored = serde_json::to_string(&debts).unwrap();
        assert_eq!(serde_json::from_str::<Debts>(&stored).unwrap(), debts);
        let old = r#"{"1": 300.0, "2": -300.0}"#;
        assert_eq!(serde_json::from_str::<Debts>(old).unwrap(), debts, "from before there were types");
    }

    fn any_period() -> impl Strategy<Value = Vec<ShortTermPeriod>> {
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
                scale += debts.update(&cpus(), period)[Cpu].as_secs_f64();
                let sum: f64 = debts.iter().map(|(_, debt)| debt[Cpu].as_secs()).sum();
                prop_assert!(sum.abs() <= 1e-9 * scale, "{sum}");
                for row in period.iter().filter(|row| !row.runnable[Cpu]) {
                    prop_assert_eq!(debts.of(row.project), PerType::default());
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
                debts.update(&cpus(), &rows);
                for (_, debt) in debts.iter() {
                    prop_assert!(debt[Cpu].as_secs().abs() <= 3600.0 * shares.len() as f64);
                }
            }
        }
    }
}
