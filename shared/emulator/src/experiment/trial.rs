//! What an experiment tries, and what came out: figures by arm, parameter and seed.

use std::sync::Arc;

pub use fallow_domain::Metric;
use fallow_policy::composition::Composition;

use super::batch::{Case, FinishedRun};
use super::statistics::Sample;
use crate::engine::{RunFigures, RunOutcome};
use crate::scenario::Scenario;

/// What is compared with what: a composition under the same circumstances over a range of a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arm {
    /// The circumstances, where an experiment has several; they name a figure.
    pub group: &'static str,
    /// The policies.
    pub composition: Composition,
}

/// A scenario of an arm, to be run from several seeds.
#[derive(Clone, Debug)]
pub struct Trial {
    /// Its arm.
    pub arm: Arm,
    /// The parameter's value.
    pub x: f64,
    /// The scenario.
    pub scenario: Arc<Scenario>,
}

/// The cases of trials: each from `repeat` seeds, beginning with `seed`. All arms have the same seeds, so
/// that what they draw alike is alike and differences between them are sharper than either.
#[must_use]
pub fn cases(trials: &[Trial], seed: u64, repeat: usize) -> Vec<Case> {
    let seeds = (0..repeat as u64).map(|nth| seed.wrapping_add(nth));
    let of_trial = |trial: &Trial| {
        let (scenario, composition) = (Arc::clone(&trial.scenario), trial.arm.composition);
        seeds.clone().map(move |seed| Case {
            scenario: Arc::clone(&scenario),
            composition,
            seed,
            timeline: false,
        })
    };
    trials.iter().flat_map(of_trial).collect()
}

/// The figures of an experiment's runs.
#[derive(Clone, Debug)]
pub struct Measurements {
    cells: Vec<Cell>,
}

#[derive(Clone, Debug)]
struct Cell {
    arm: Arm,
    x: f64,
    /// One per seed, in order.
    figures: Vec<RunFigures>,
    /// How far what the projects received is from their shares, one per seed.
    off_shares: Vec<f64>,
}

impl Measurements {
    /// From the runs of [`cases`], in that order.
    #[must_use]
    pub fn new(trials: &[Trial], finished: &[FinishedRun]) -> Self {
        let repeat = finished.len().checked_div(trials.len()).unwrap_or(0).max(1);
        let cells = trials.iter().zip(finished.chunks(repeat)).map(|(trial, runs)| Cell {
            arm: trial.arm,
            x: trial.x,
            figures: runs.iter().map(|run| run.outcome.figures).collect(),
            off_shares: runs.iter().map(|run| off_shares(&trial.scenario, &run.outcome)).collect(),
        });
        Self { cells: cells.collect() }
    }

    /// The parameter's values that an arm was tried at, in order.
    #[must_use]
    pub fn xs(&self, arm: Arm) -> Vec<f64> {
        self.cells.iter().filter(|cell| cell.arm == arm).map(|cell| cell.x).collect()
    }

    /// A metric at one value of the parameter.
    #[must_use]
    pub fn at(&self, arm: Arm, x: f64, metric: Metric) -> Option<Sample> {
        Sample::of(&self.cell(arm, x)?.values(metric))
    }

    /// How far the parts of the processing that the projects received are from their shares, whether or not
    /// the host had work of them: half the sum of the differences. R5.32 compares with what was due to those
    /// with work.
    #[must_use]
    pub fn off_shares(&self, arm: Arm, x: f64) -> Option<Sample> {
        Sample::of(&self.cell(arm, x)?.off_shares)
    }

    /// A metric summed over a range of the parameter, seed by seed.
    #[must_use]
    pub fn sum(&self, arm: Arm, over: impl Fn(f64) -> bool, metric: Metric) -> Option<Sample> {
        Sample::of(&self.sums(arm, over, metric))
    }

    /// How much the sum of `left` exceeds that of `right`, seed by seed.
    #[must_use]
    pub fn excess(
        &self,
        left: Arm,
        right: Arm,
        over: impl Fn(f64) -> bool,
        metric: Metric,
    ) -> Option<Sample> {
        let (left, right) = (self.sums(left, &over, metric), self.sums(right, &over, metric));
        let differences: Vec<f64> = left.iter().zip(&right).map(|(left, right)| left - right).collect();
        Sample::of(&differences)
    }

    /// Where a metric is largest.
    #[must_use]
    pub fn largest(&self, arm: Arm, over: impl Fn(f64) -> bool, metric: Metric) -> Option<(f64, Sample)> {
        let samples = self.samples(arm, over, metric);
        samples.into_iter().reduce(|most, next| if next.1.mean > most.1.mean { next } else { most })
    }

    /// Where a metric is smallest.
    #[must_use]
    pub fn smallest(&self, arm: Arm, over: impl Fn(f64) -> bool, metric: Metric) -> Option<(f64, Sample)> {
        let samples = self.samples(arm, over, metric);
        samples.into_iter().reduce(|least, next| if next.1.mean < least.1.mean { next } else { least })
    }

    /// Where `left` exceeds `right` most.
    #[must_use]
    pub fn largest_excess(
        &self,
        left: Arm,
        right: Arm,
        over: impl Fn(f64) -> bool,
        metric: Metric,
    ) -> Option<(f64, Sample)> {
        let places = self.xs(left).into_iter().filter(|x| over(*x));
        let samples = places.filter_map(|x| Some((x, self.excess(left, right, |other| other == x, metric)?)));
        samples.reduce(|most, next| if next.1.mean > most.1.mean { next } else { most })
    }

    /// How much more a metric is at `right` than at `left` of the parameter.
    #[must_use]
    pub fn rise(&self, arm: Arm, left: f64, right: f64, metric: Metric) -> Option<Sample> {
        let (left, right) = (self.cell(arm, left)?.values(metric), self.cell(arm, right)?.values(metric));
        Sample::of(&left.iter().zip(&right).map(|(left, right)| right - left).collect::<Vec<_>>())
    }

    /// The sum of `part` divided by the sum of `whole`, both over all seeds together; none if the latter
    /// is 0.
    ///
    /// The interval is that of `part - ratio x whole`, seed by seed, over the mean of `whole`: a ratio of
    /// means, since a mean of ratios would be wild where a seed's `whole` is near 0.
    #[must_use]
    pub fn ratio(&self, part: Arm, whole: Arm, over: impl Fn(f64) -> bool, metric: Metric) -> Option<Sample> {
        ratio(&self.sums(part, &over, metric), &self.sums(whole, &over, metric))
    }

    /// A metric at `right` of the parameter as a part of that at `left`, like [`Measurements::ratio`].
    #[must_use]
    pub fn fall(&self, arm: Arm, left: f64, right: f64, metric: Metric) -> Option<Sample> {
        ratio(&self.cell(arm, right)?.values(metric), &self.cell(arm, left)?.values(metric))
    }

    /// A metric over a range of the parameter.
    #[must_use]
    pub fn samples(&self, arm: Arm, over: impl Fn(f64) -> bool, metric: Metric) -> Vec<(f64, Sample)> {
        let cells = self.cells.iter().filter(|cell| cell.arm == arm && over(cell.x));
        cells.filter_map(|cell| Some((cell.x, Sample::of(&cell.values(metric))?))).collect()
    }

    fn cell(&self, arm: Arm, x: f64) -> Option<&Cell> {
        self.cells.iter().find(|cell| cell.arm == arm && cell.x == x)
    }

    fn sums(&self, arm: Arm, over: impl Fn(f64) -> bool, metric: Metric) -> Vec<f64> {
        let mut sums: Vec<f64> = Vec::new();
        for cell in self.cells.iter().filter(|cell| cell.arm == arm && over(cell.x)) {
            sums.resize(cell.figures.len(), 0.0);
            for (sum, figures) in sums.iter_mut().zip(&cell.figures) {
                *sum += figures.of(metric).unwrap_or(0.0);
            }
        }
        sums
    }
}

fn off_shares(scenario: &Scenario, outcome: &RunOutcome) -> f64 {
    let all: f64 = scenario.projects.iter().map(|project| project.share.get()).sum();
    let each = scenario.projects.iter().zip(&outcome.projects);
    each.map(|(own, had)| (had.received.unwrap_or(0.0) - own.share.get() / all.max(1e-9)).abs()).sum::<f64>()
        / 2.0
}

fn ratio(part: &[f64], whole: &[f64]) -> Option<Sample> {
    let (of, all) = (Sample::of(part)?.mean, Sample::of(whole)?.mean);
    let ratio = if all > 1e-9 { of / all } else { return None };
    let residues: Vec<f64> =
        part.iter().zip(whole).map(|(part, whole)| (part - ratio * whole) / all).collect();
    Some(Sample { mean: ratio, ..Sample::of(&residues)? })
}

impl Cell {
    fn values(&self, metric: Metric) -> Vec<f64> {
        self.figures.iter().filter_map(|figures| figures.of(metric)).collect()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A value of the axis, and what was measured there with each seed.
    type Point<'a> = (f64, &'a [f64]);

    /// Measurements of made-up figures: of each arm, the waste at each x and seed.
    pub(crate) fn made_up(arms: &[(Arm, &[Point<'_>])]) -> Measurements {
        let figures = |waste: &f64| RunFigures { waste: Some(*waste), ..RunFigures::default() };
        let mut cells = Vec::new();
        for (arm, points) in arms {
            cells.extend(points.iter().map(|(x, wastes)| Cell {
                arm: *arm,
                x: *x,
                figures: wastes.iter().map(figures).collect(),
                off_shares: Vec::new(),
            }));
        }
        Measurements { cells }
    }

    fn arm(group: &'static str) -> Arm {
        Arm { group, composition: Composition::default() }
    }

    #[test]
    fn sums_and_differences_are_taken_seed_by_seed() {
        let (one, other) = (arm("one"), arm("other"));
        let m = made_up(&[
            (one, &[(1.0, &[0.1, 0.3]), (2.0, &[0.2, 0.4])]),
            (other, &[(1.0, &[0.0, 0.2]), (2.0, &[0.2, 0.4])]),
        ]);
        let sum = m.sum(one, |_| true, Metric::Waste).unwrap();
        assert!((sum.mean - 0.5).abs() < 1e-12 && sum.half_width.unwrap() > 1.0);
        // Each seed differs by the same 0.1: the difference is certain although neither sum is.
        let excess = m.excess(one, other, |_| true, Metric::Waste).unwrap();
        assert!((excess.mean - 0.1).abs() < 1e-12 && excess.half_width.unwrap() < 1e-9);
        let (x, most) = m.largest_excess(one, other, |_| true, Metric::Waste).unwrap();
        assert!(x == 1.0 && (most.mean - 0.1).abs() < 1e-12);
        assert_eq!(m.largest(one, |_| true, Metric::Waste).unwrap().0, 2.0);
        assert_eq!(m.smallest(other, |x| x > 1.0, Metric::Waste).unwrap().0, 2.0);
        let part = m.ratio(other, one, |_| true, Metric::Waste).unwrap();
        assert!((part.mean - 0.8).abs() < 1e-12 && part.half_width.is_some());
        assert_eq!(m.ratio(one, other, |x| x < 0.0, Metric::Waste), None);
        assert!((m.fall(one, 2.0, 1.0, Metric::Waste).unwrap().mean - 2.0 / 3.0).abs() < 1e-12);
        assert!((m.rise(one, 1.0, 2.0, Metric::Waste).unwrap().mean - 0.1).abs() < 1e-12);
        assert_eq!(m.at(one, 3.0, Metric::Waste), None);
        assert_eq!(m.at(one, 1.0, Metric::Idleness), None);
    }
}
