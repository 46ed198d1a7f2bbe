//! Policies that the registry has and the paper has not: run with the paper's own, shown beside them, and not
//! judged.

use fallow_policy::accounting::AccountingChoice;
use fallow_policy::choice::{Policy, PolicyKind};
use fallow_policy::composition::Composition;

use super::{Arm, Curve, Measurements, Metric, Row, curve, improved};

/// Their curves come in the colours after those of the paper's policies.
const FIRST_COLOR: usize = 6;

/// An arm for each policy of a kind but the paper's.
pub(super) fn arms<K: PolicyKind + ?Sized>(
    group: &'static str,
    papers: &[&str],
    with: impl Fn(Policy<K>) -> Composition,
) -> Vec<Arm> {
    arms_of(Policy::all(), group, papers, with)
}

/// An arm for each way to compare projects but those that came with the paper's policies. It has a say in
/// what runs and in what is fetched, and is shown with what runs, where all four metrics are drawn.
pub(super) fn accounts(group: &'static str) -> Vec<Arm> {
    accounts_of(Policy::all(), group)
}

fn accounts_of(all: impl Iterator<Item = AccountingChoice>, group: &'static str) -> Vec<Arm> {
    let with = |accounting| Composition { accounting, ..improved() };
    arms_of(all, group, &["debt", "recent-credit"], with)
}

fn arms_of<K: PolicyKind + ?Sized>(
    all: impl Iterator<Item = Policy<K>>,
    group: &'static str,
    papers: &[&str],
    with: impl Fn(Policy<K>) -> Composition,
) -> Vec<Arm> {
    let others = all.filter(|policy| !papers.contains(&policy.name()));
    others.map(|policy| Arm { group, composition: with(policy) }).collect()
}

/// What they come to in each metric, summed over a range of the parameter.
pub(super) fn rows(
    requirement: &'static str,
    m: &Measurements,
    arms: &[Arm],
    over: impl Fn(f64) -> bool,
    said: &str,
) -> Vec<Row> {
    let row = |(arm, metric): (&Arm, Metric)| {
        let group = if arm.group.is_empty() { String::new() } else { format!("{}: ", arm.group) };
        let what = format!("{group}{}'s {}, {said}", arm.composition, metric.name());
        Row::shown(requirement, what, "", m.sum(*arm, &over, metric))
    };
    arms.iter().flat_map(|arm| Metric::ALL.map(|metric| (arm, metric))).map(row).collect()
}

/// Their curves of a metric.
pub(super) fn curves(m: &Measurements, arms: &[Arm], metric: Metric) -> Vec<Curve> {
    arms.iter().zip(FIRST_COLOR..).map(|(arm, number)| curve(m, *arm, metric, number)).collect()
}

#[cfg(test)]
mod tests {
    use fallow_domain::{Duration, Instant, PerType};
    use fallow_policy::accounting::{AccountingPolicy, AccountingSituation, Debt, FetchPriority};
    use fallow_policy::fetch::{FetchChoice, FetchDecision, FetchPolicy, FetchSituation};
    use fallow_policy::job_queue::JobQueue;

    use super::*;
    use crate::experiment::trial::tests::made_up;

    /// Asks nobody.
    struct Never;

    impl FetchPolicy for Never {
        fn name(&self) -> &'static str {
            "WF0"
        }
        fn summary(&self) -> &'static str {
            "nobody"
        }
        fn decide(&self, _situation: &FetchSituation<'_>) -> FetchDecision {
            FetchDecision::nothing(Instant::FAR_FUTURE)
        }
    }

    #[test]
    fn a_policy_of_ones_own_is_shown_beside_the_papers_and_not_judged() {
        let with = |fetch| Composition { fetch, ..improved() };
        let papers = ["WF1", "WF2"].map(|name| FetchChoice::named(name).unwrap());
        let all = papers.into_iter().chain([FetchChoice::new(&Never)]);
        let arms = arms_of(all, "base", &["WF1", "WF2"], with);
        let names: Vec<String> = arms.iter().map(|arm| arm.composition.to_string()).collect();
        assert_eq!(names, ["CS2_WF0_WS2_JC2"]);
        let m = made_up(&[(arms[0], &[(4.0, &[0.5]), (5.0, &[0.25])])]);
        let rows = rows("R5.23", &m, &arms, |_| true, "in all");
        let waste = rows.iter().find(|row| row.what == "base: CS2_WF0_WS2_JC2's waste, in all").unwrap();
        assert_eq!((waste.measured.unwrap().mean, waste.expected.as_str()), (0.75, ""));
        assert_eq!(curves(&m, &arms, Metric::Waste)[0].dots.len(), 2);
    }

    /// Nobody is owed anything.
    struct Nothing;

    impl AccountingPolicy for Nothing {
        fn name(&self) -> &'static str {
            "toy"
        }
        fn summary(&self) -> &'static str {
            "nobody is owed anything"
        }
        fn owed(&self, situation: &AccountingSituation<'_>) -> Vec<PerType<Debt>> {
            vec![PerType::default(); situation.projects.len()]
        }
        fn fetch_priorities(
            &self,
            situation: &AccountingSituation<'_>,
            _queue: &JobQueue,
            _window: Duration,
        ) -> Vec<FetchPriority> {
            vec![FetchPriority::Score(0.0); situation.projects.len()]
        }
    }

    #[test]
    fn an_accounting_policy_of_ones_own_is_shown_with_what_runs_and_those_that_there_were_are_not() {
        let names =
            |arms: Vec<Arm>| -> Vec<String> { arms.iter().map(|arm| arm.composition.to_string()).collect() };
        let were = ["debt", "recent-credit"].map(|name| AccountingChoice::named(name).unwrap());
        let all = were.into_iter().chain([AccountingChoice::new(&Nothing)]);
        assert_eq!(names(accounts_of(all, "base")), ["CS2_WF2_WS2_JC2,accounting=toy"]);
        // Whichever the registry has.
        let trials = crate::experiment::Experiment::Cpu.trials();
        for arm in accounts("base") {
            assert!(trials.iter().any(|trial| trial.arm == arm), "{}", arm.composition);
        }
    }
}
