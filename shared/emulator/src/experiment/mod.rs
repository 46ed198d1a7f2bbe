//! Experiments: many runs, and what they say together (R5.13, R5.20 to R5.25).
//!
//! *The paper* is here and below D. Kondo, D. P. Anderson and J. McLeod VII: "Performance Evaluation of
//! Scheduling Policies for Volunteer Computing", IEEE e-Science 2007.
//!
//! [`run_all`] makes runs in parallel and keeps their order. An [`Experiment`] is one of the paper's. It
//! names its [`Trial`]s, and makes a [`Report`] of their [`Measurements`]: a table of published and measured
//! values that says of each row whether they agree, and the paper's figures. The scenarios are those of the
//! paper only. What decides is the product's own code. Where a published value is not reached, its row says
//! so.
//!
//! **Published values** are those in the paper's text; its plots were not to be had, so what only they show
//! is compared in words.
//!
//! Policies that the paper does not have (`others`) are run and shown beside its own.

mod batch;
mod report;
mod statistics;
mod trial;

mod buffer;
mod cpu;
mod estimates;
mod fetch;
mod others;
mod rows;
mod send;
mod slack;

use std::sync::Arc;

use fallow_domain::Duration;
use fallow_policy::accounting::AccountingChoice;
use fallow_policy::accounting::debts::ByDebts;
use fallow_policy::completion::CompletionChoice;
use fallow_policy::completion::corrected::Corrected;
use fallow_policy::composition::Composition;
use fallow_policy::cpu_schedule::CpuChoice;
use fallow_policy::cpu_schedule::late_first::LateFirst;
use fallow_policy::fetch::shortfall::Shortfall;
use fallow_policy::fetch::{FetchChoice, FetchWhen};
use fallow_policy::hopeless::AbortWhich;
use fallow_policy::send::in_time::InTime;
use fallow_policy::send::{SendChoice, Ws2Switches};

use crate::plot::{Axis, Curve, Dot, Origin, Panel};
use crate::scenario::Scenario;

pub use batch::{Case, FinishedRun, Interrupted, RunEnvironment, run_all};
pub use report::{Agreement, Report, Row};
pub use statistics::Sample;
pub use trial::{Arm, Measurements, Metric, Trial, cases};

/// A published experiment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Experiment {
    /// R5.20.
    Cpu,
    /// R5.21.
    Slack,
    /// R5.22.
    Buffer,
    /// R5.23.
    Fetch,
    /// R5.24.
    Send,
    /// R5.25.
    Estimates,
}

impl Experiment {
    /// All, in the paper's order.
    pub const ALL: [Self; 6] =
        [Self::Cpu, Self::Slack, Self::Buffer, Self::Fetch, Self::Send, Self::Estimates];

    /// Its name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Slack => "slack",
            Self::Buffer => "buffer",
            Self::Fetch => "fetch",
            Self::Send => "send",
            Self::Estimates => "estimates",
        }
    }

    /// What it is about.
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            Self::Cpu => "CPU scheduling over mixes of projects",
            Self::Slack => {
                "one project with tighter and looser deadlines; work send as published (ws2=published) where no policy is named"
            }
            Self::Buffer => "how much work is kept; work send as published (ws2=published)",
            Self::Fetch => "work fetch over mixes of projects",
            Self::Send => "work send with sizes that vary",
            Self::Estimates => {
                "estimates that are too low; work send as published (ws2=published) but for improved WS2"
            }
        }
    }

    /// The experiment of that name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|experiment| experiment.name() == name)
    }

    /// What is to be run.
    #[must_use]
    pub fn trials(self) -> Vec<Trial> {
        match self {
            Self::Cpu => cpu::trials(),
            Self::Slack => slack::trials(),
            Self::Buffer => buffer::trials(),
            Self::Fetch => fetch::trials(),
            Self::Send => send::trials(),
            Self::Estimates => estimates::trials(),
        }
    }

    /// What the runs show.
    #[must_use]
    pub fn report(self, measured: &Measurements) -> Report {
        match self {
            Self::Cpu => cpu::report(measured),
            Self::Slack => slack::report(measured),
            Self::Buffer => buffer::report(measured),
            Self::Fetch => fetch::report(measured),
            Self::Send => send::report(measured),
            Self::Estimates => estimates::report(measured),
        }
    }
}

/// Time that a base job takes on a base CPU (R5.15): slack is counted in it.
const JOB: Duration = Duration::from_secs(13_000);
/// The base latency bound at which CPU scheduling and work fetch are judged: at the paper's 9 days no
/// deadline is in danger.
const TIGHT: Duration = Duration::from_hours(36);
/// The mixes of the paper.
const MIXES: std::ops::RangeInclusive<u32> = 1..=20;

/// The paper's second policies, with work send improved: by name, so that they stay what they are called
/// whatever the default becomes.
fn improved() -> Composition {
    Composition {
        cpu: CpuChoice::new(&LateFirst),
        fetch: FetchChoice::new(&Shortfall),
        send: SendChoice::new(&InTime),
        completion: CompletionChoice::new(&Corrected),
        fetch_when: FetchWhen::AnyShortfall,
        ws2: Ws2Switches::IMPROVED,
        accounting: AccountingChoice::new(&ByDebts),
        abort: AbortWhich::None,
    }
}

/// The same with work send as the paper has it.
fn published() -> Composition {
    Composition { ws2: Ws2Switches::PUBLISHED, ..improved() }
}

/// The base scenario with one project whose jobs have that slack.
fn with_slack(slack: f64) -> Scenario {
    let mut scenario = Scenario::base();
    for application in scenario.projects.iter_mut().flat_map(|project| &mut project.applications) {
        application.latency_bound = JOB.mul_f64(slack);
    }
    scenario
}

/// A mix whose base latency bound is `base`, if one is given.
fn mix(m: u32, base: Option<Duration>) -> Scenario {
    let mut scenario = Scenario::mix(m);
    for (project, factor) in scenario.projects.iter_mut().zip(1..) {
        for application in &mut project.applications {
            application.latency_bound = base.map_or(application.latency_bound, |base| base * factor);
        }
    }
    scenario
}

/// The mixes 1 to 20 in an arm.
fn mixes(arm: Arm, base: Option<Duration>) -> impl Iterator<Item = Trial> {
    MIXES.map(move |m| Trial { arm, x: f64::from(m), scenario: Arc::new(mix(m, base)) })
}

/// An arm's curve of a metric.
fn curve(measured: &Measurements, arm: Arm, metric: Metric, number: usize) -> Curve {
    named_curve(measured, arm, metric, number, arm.composition.to_string())
}

fn named_curve(measured: &Measurements, arm: Arm, metric: Metric, number: usize, label: String) -> Curve {
    let samples = measured.samples(arm, |_| true, metric).into_iter();
    let dots = samples.map(|(x, sample)| Dot { x, y: sample.mean, half_width: sample.half_width });
    Curve { label, origin: Origin::Measured(number), dots: dots.collect() }
}

/// What the paper's text says of a figure.
fn paper(label: &str, values: &[(f64, f64)]) -> Curve {
    let dots = values.iter().map(|(x, y)| Dot::given(*x, *y)).collect();
    Curve { label: label.to_owned(), origin: Origin::Published, dots }
}

/// What the paper's text makes of our own values: a bound, or what it says of one policy against another.
fn claim(label: &str, values: &[(f64, f64)]) -> Curve {
    Curve { origin: Origin::Claim, ..paper(label, values) }
}

/// A panel of a metric over a parameter; `letter` is the paper's, such as `(a)`.
fn panel(letter: &str, metric: Metric, x: &Axis, curves: Vec<Curve>) -> Panel {
    let title = format!("{letter} {}", metric.name()).trim_start().to_owned();
    Panel { title, x: x.clone(), y: metric.name().to_owned(), curves }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_experiment_has_a_name_and_trials_that_make_sense() {
        for experiment in Experiment::ALL {
            assert_eq!(Experiment::from_name(experiment.name()), Some(experiment));
            let trials = experiment.trials();
            assert!(!trials.is_empty());
            for trial in trials {
                assert!(
                    trial.scenario.is_sound(),
                    "{experiment:?} at {}: {:?}",
                    trial.x,
                    trial.scenario.check()
                );
            }
        }
    }

    #[test]
    fn r5_15_a_tight_mix_scales_its_latency_bound_as_the_mix_does() {
        let bounds: Vec<i64> = mix(3, Some(TIGHT))
            .projects
            .iter()
            .map(|project| project.applications[0].latency_bound.as_micros() / 3_600_000_000)
            .collect();
        assert_eq!(bounds, [36, 72, 108]);
    }
}
