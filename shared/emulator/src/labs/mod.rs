//! Hosts and projects as labs have them, and how policies fare on them.
//!
//! The published evaluation varies one thing at a time on one kind of host. Here each scenario is a whole
//! one, and what counts is the sum of what is lost: J is idleness, waste and share violation (R5.30 to
//! R5.32), JS has share deviation (R5.35) in the place of the last. Beside each stands what the scenario
//! allows ([`Yardstick`]). A metric of which a run can say nothing counts as 0 in a sum: nobody was idle,
//! nothing was wasted.
//!
//! A *contender* is a composition with a name, and perhaps a buffer that replaces the scenario's.

mod yardstick;

use fallow_domain::Metric;
use fallow_policy::composition::Composition;

use crate::engine::RunOutcome;
use crate::experiment::Sample;
use crate::scenario::{Buffer, Scenario};

pub use yardstick::Yardstick;

/// Policies under a name.
#[derive(Clone, Debug, PartialEq)]
pub struct Contender {
    /// Its name in tables.
    pub name: String,
    /// The policies.
    pub composition: Composition,
    /// How much work is kept, where it is not for the scenario to say.
    pub buffer: Option<Buffer>,
}

impl Contender {
    /// A scenario as it runs under it.
    #[must_use]
    pub fn on(&self, scenario: &Scenario) -> Scenario {
        let mut scenario = scenario.clone();
        scenario.client.buffer = self.buffer.unwrap_or(scenario.client.buffer);
        scenario
    }
}

/// What is told of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// One of the metrics.
    Of(Metric),
    /// Scheduler RPCs per job (R5.34).
    RpcsPerJob,
    /// Idleness, waste and share violation.
    J,
    /// Idleness, waste and share deviation.
    JS,
}

impl Measure {
    /// All, in the order of tables.
    pub const ALL: [Self; 8] = [
        Self::Of(Metric::Idleness),
        Self::Of(Metric::Waste),
        Self::Of(Metric::ShareViolation),
        Self::Of(Metric::ShareDeviation),
        Self::Of(Metric::Monotony),
        Self::RpcsPerJob,
        Self::J,
        Self::JS,
    ];

    /// What JS is the sum of: the causes of loss.
    pub const LOSSES: [Metric; 3] = [Metric::Idleness, Metric::Waste, Metric::ShareDeviation];

    /// Its name for people.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Of(metric) => metric.name(),
            Self::RpcsPerJob => "RPCs/job",
            Self::J => "J",
            Self::JS => "JS",
        }
    }

    /// Its key in JSON and CSV.
    #[must_use]
    pub const fn key(self) -> &'static str {
        match self {
            Self::Of(metric) => metric.key(),
            Self::RpcsPerJob => fallow_domain::RPCS_PER_JOB.key,
            Self::J => "j",
            Self::JS => "js",
        }
    }

    /// What it is of a run.
    #[must_use]
    pub fn of(self, run: &RunOutcome) -> Option<f64> {
        let sum = |metrics: [Metric; 3]| {
            metrics.into_iter().map(|metric| run.figures.of(metric).unwrap_or(0.0)).sum::<f64>()
        };
        match self {
            Self::Of(metric) => run.figures.of(metric),
            Self::RpcsPerJob => run.rpcs_per_job,
            Self::J => Some(sum([Metric::Idleness, Metric::Waste, Metric::ShareViolation])),
            Self::JS => Some(sum(Self::LOSSES)),
        }
    }
}

/// The runs of a contender on a scenario, a seed each.
#[derive(Clone, Debug)]
pub struct LabRuns {
    /// The scenario's name.
    pub scenario: String,
    /// The contender's place among them.
    pub contender: usize,
    /// What came of them.
    pub runs: Vec<RunOutcome>,
}

impl LabRuns {
    /// The mean of a measure over the seeds, of those of which it can be told.
    #[must_use]
    pub fn sample(&self, measure: Measure) -> Option<Sample> {
        Sample::of(&self.runs.iter().filter_map(|run| measure.of(run)).collect::<Vec<_>>())
    }
}

/// The mean of a measure over the scenarios that a contender ran, as it varies from seed to seed: of each
/// seed the mean over the scenarios of which it can be told.
#[must_use]
pub fn over_scenarios(all: &[LabRuns], contender: usize, measure: Measure) -> Option<Sample> {
    let own: Vec<&LabRuns> = all.iter().filter(|runs| runs.contender == contender).collect();
    let seeds = own.iter().map(|runs| runs.runs.len()).max().unwrap_or(0);
    let mean = |seed: usize| {
        let values = own.iter().filter_map(|runs| measure.of(runs.runs.get(seed)?));
        Sample::of(&values.collect::<Vec<f64>>()).map(|sample| sample.mean)
    };
    Sample::of(&(0..seeds).filter_map(mean).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use fallow_domain::Duration;

    use super::*;
    use crate::engine::{RunFigures, RunOptions, run};

    fn outcome(figures: RunFigures) -> RunOutcome {
        let day = Scenario { duration: Duration::from_hours(1), ..Scenario::base() };
        RunOutcome { figures, ..run(&day, Composition::default(), 1, RunOptions::default()) }
    }

    #[test]
    fn r5_35_js_is_idleness_waste_and_share_deviation_and_what_cannot_be_told_is_no_loss() {
        let figures = RunFigures {
            idleness: Some(0.125),
            waste: None,
            share_violation: Some(0.0625),
            share_deviation: Some(0.25),
            monotony: Some(0.9),
        };
        let run = outcome(figures);
        assert_eq!([Measure::J, Measure::JS].map(|measure| measure.of(&run)), [Some(0.1875), Some(0.375)]);
        assert_eq!(Measure::Of(Metric::Waste).of(&run), None);
    }

    #[test]
    fn r5_13_a_mean_over_scenarios_has_the_interval_of_its_seeds() {
        let runs = |scenario: &str, contender, wastes: &[f64]| LabRuns {
            scenario: scenario.to_owned(),
            contender,
            runs: wastes
                .iter()
                .map(|waste| outcome(RunFigures { waste: Some(*waste), ..RunFigures::default() }))
                .collect(),
        };
        let all = [runs("a", 0, &[0.1, 0.3]), runs("b", 0, &[0.3, 0.1]), runs("a", 1, &[0.5, 0.5])];
        let waste = Measure::Of(Metric::Waste);
        let sample = over_scenarios(&all, 0, waste).unwrap();
        assert!((sample.mean - 0.2).abs() < 1e-12 && sample.half_width.unwrap() < 1e-9, "{sample:?}");
        assert_eq!(over_scenarios(&all, 1, waste).unwrap().mean, 0.5);
        assert!(all[0].sample(waste).unwrap().half_width.unwrap() > 0.5);
        assert_eq!(over_scenarios(&all, 2, waste), None);
    }

    #[test]
    fn a_contender_may_have_a_buffer_of_its_own() {
        let buffer = Buffer { min: Duration::from_secs(1), additional: Duration::from_secs(2) };
        let contender =
            Contender { name: "tiny".into(), composition: Composition::default(), buffer: Some(buffer) };
        assert_eq!(contender.on(&Scenario::base()).client.buffer, buffer);
        let other = Contender { buffer: None, ..contender };
        assert_eq!(other.on(&Scenario::base()), Scenario::base());
    }
}
