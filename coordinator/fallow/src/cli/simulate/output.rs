//! What runs came to: a table for people, JSON and CSV for programs (R5.14).

use std::collections::BTreeSet;

use fallow_domain::{Duration, Metric, RPCS_PER_JOB};
use fallow_emulator::engine::{BatchOutcome, Parts};
use fallow_emulator::experiment::{FinishedRun, Sample};
use fallow_emulator::plot::record;
use fallow_emulator::scenario::Variant;
use fallow_policy::composition::Composition;
use serde_json::{Map, Number, Value, json};

use super::Group;
use crate::cli::table::{self, Column};

/// A run with what made it.
pub(super) struct Run<'a> {
    pub(super) variant: &'a Variant,
    pub(super) composition: Composition,
    pub(super) seed: u64,
    pub(super) finished: &'a FinishedRun,
}

/// A run as one object on a line.
pub(super) fn json_line(run: &Run<'_>) -> String {
    format!("{}\n", object(run))
}

fn object(run: &Run<'_>) -> Value {
    let outcome = &run.finished.outcome;
    let vary: Map<String, Value> =
        run.variant.labels.iter().map(|(path, value)| (path.clone(), as_written(value))).collect();
    let mut object = json!({
        "scenario": run.variant.scenario.name,
        "policy": run.composition.to_string(),
        "seed": run.seed,
        "vary": vary,
        "rpcs": outcome.rpcs,
        "jobs_sent": outcome.jobs_sent,
        "jobs_finished": outcome.jobs_finished,
        "jobs_late": outcome.jobs_late,
        "jobs_failed": outcome.jobs_failed,
        "mean_queue": outcome.mean_queue,
        "simulated_seconds": outcome.simulated.as_secs_f64(),
        "wall_seconds": run.finished.wall.as_secs_f64(),
    });
    for metric in Metric::ALL {
        object[metric.key()] = outcome.figures.of(metric).into();
    }
    object[RPCS_PER_JOB.key] = outcome.rpcs_per_job.into();
    let scenario = &run.variant.scenario;
    if scenario.hosts.get() > 1 {
        let Parts { with_jobs, least, most } = outcome.parts();
        let values: [Value; 4] = [scenario.hosts.get().into(), with_jobs.into(), least.into(), most.into()];
        HOSTS.into_iter().zip(values).for_each(|(key, value)| object[key] = value);
    }
    if let Some(BatchOutcome { computed, reported }) = outcome.batch {
        let seconds = |end: Option<Duration>| end.map(Duration::as_secs_f64).into();
        BATCH.into_iter().zip([computed, reported]).for_each(|(key, end)| object[key] = seconds(end));
    }
    object
}

/// A number where a number was written, so that programs can sort by it; else the text.
fn as_written(value: &str) -> Value {
    let number = value.parse::<i64>().map(Number::from).ok();
    let number = number.or_else(|| value.parse().ok().and_then(Number::from_f64));
    number.map_or_else(|| value.into(), Value::Number)
}

/// Columns that every run has, as they are called in its object.
const COLUMNS: [&str; 14] = [
    Metric::Idleness.key(),
    Metric::Waste.key(),
    Metric::ShareViolation.key(),
    Metric::ShareDeviation.key(),
    Metric::Monotony.key(),
    "rpcs",
    RPCS_PER_JOB.key,
    "jobs_sent",
    "jobs_finished",
    "jobs_late",
    "jobs_failed",
    "mean_queue",
    "simulated_seconds",
    "wall_seconds",
];

/// Those of runs with several hosts.
const HOSTS: [&str; 4] = ["hosts", "hosts_with_jobs", "host_jobs_least", "host_jobs_most"];
/// Those of runs with a finite supply of jobs: when the last of them was computed, and when it was reported.
const BATCH: [&str; 2] = ["batch_computed_seconds", "batch_reported_seconds"];

/// What is told of some runs only.
#[derive(Clone, Default)]
pub(super) struct Extras {
    /// The keys that were varied, in order: each has a column of its own.
    varied: BTreeSet<String>,
    has_hosts: bool,
    has_batch: bool,
}

impl Extras {
    pub(super) fn of<'v>(variants: impl Iterator<Item = &'v Variant>) -> Self {
        variants.fold(Self::default(), |mut extras, Variant { labels, scenario }| {
            extras.varied.extend(labels.keys().cloned());
            extras.has_hosts |= scenario.hosts.get() > 1;
            extras.has_batch |= scenario.has_batch();
            extras
        })
    }

    /// The columns of CSV, but for those of what was varied.
    fn columns(&self) -> Vec<&'static str> {
        let hosts = HOSTS.into_iter().filter(|_| self.has_hosts);
        COLUMNS.into_iter().chain(hosts).chain(BATCH.into_iter().filter(|_| self.has_batch)).collect()
    }
}

pub(super) fn csv_heading(extras: &Extras) -> String {
    let mut heading = vec!["scenario", "policy", "seed"];
    heading.extend(extras.varied.iter().map(String::as_str));
    heading.extend(extras.columns());
    record(&heading)
}

/// A run as a line.
pub(super) fn csv_line(extras: &Extras, run: &Run<'_>) -> String {
    let object = object(run);
    let labels = &run.variant.labels;
    let mut fields =
        vec![run.variant.scenario.name.clone(), run.composition.to_string(), run.seed.to_string()];
    fields.extend(extras.varied.iter().map(|path| labels.get(path).cloned().unwrap_or_default()));
    fields.extend(extras.columns().into_iter().map(|key| match &object[key] {
        Value::Null => String::new(),
        value => value.to_string(),
    }));
    record(&fields.iter().map(String::as_str).collect::<Vec<_>>())
}

/// A row for what differs by its seed only.
pub(super) fn table(groups: &[Group]) -> String {
    let extras = Extras::of(groups.iter().map(|group| &group.variant));
    let mut columns = vec![Column::Text("scenario"), Column::Text("policy")];
    if !extras.varied.is_empty() {
        columns.push(Column::Text("with"));
    }
    columns.extend(Metric::ALL.map(|metric| Column::Number(metric.name())));
    columns.extend([
        Column::Number("RPCs/job"),
        Column::Number("jobs finished"),
        Column::Number("late"),
        Column::Number("days"),
    ]);
    if extras.has_hosts {
        columns.extend(["hosts", "with jobs", "least", "most"].map(Column::Number));
    }
    if extras.has_batch {
        columns.extend(["batch computed", "reported"].map(Column::Number));
    }
    let rows = groups.iter().map(|group| row(group, &extras)).collect();
    let text = table::render(&columns, rows);
    match groups.iter().map(|group| group.runs.len()).max().unwrap_or(0) {
        0 | 1 => text,
        runs => format!("{text}\nMeans of {runs} seeds; ± is half of the 95 % confidence interval.\n"),
    }
}

fn row(group: &Group, extras: &Extras) -> Vec<String> {
    let of = |value: &dyn Fn(&FinishedRun) -> Option<f64>| {
        Sample::of(&group.runs.iter().filter_map(|(_, run)| value(run)).collect::<Vec<_>>())
    };
    let mut row = vec![group.scenario.clone(), group.composition.to_string()];
    if !extras.varied.is_empty() {
        row.push(labels(group));
    }
    row.extend(Metric::ALL.map(|metric| mean(of(&|run| run.outcome.figures.of(metric)), 3)));
    row.push(mean(of(&|run| run.outcome.rpcs_per_job), 2));
    row.push(mean(of(&|run| Some(run.outcome.jobs_finished as f64)), 0));
    row.push(mean(of(&|run| Some(run.outcome.jobs_late as f64)), 0));
    row.push(mean(of(&|run| Some(run.outcome.simulated.as_secs_f64() / 86_400.0)).map(alone), 1));
    if extras.has_hosts {
        row.push(group.variant.scenario.hosts.to_string());
        let parts = |part: &dyn Fn(Parts) -> f64| mean(of(&|run| Some(part(run.outcome.parts()))), 0);
        row.push(parts(&|parts| parts.with_jobs as f64));
        row.push(parts(&|parts| parts.least as f64));
        row.push(parts(&|parts| parts.most as f64));
    }
    if extras.has_batch {
        let ends: [fn(BatchOutcome) -> Option<Duration>; 2] =
            [|batch| batch.computed, |batch| batch.reported];
        for end in ends {
            let seconds = |run: &FinishedRun| Some(end(run.outcome.batch?)?.as_secs_f64());
            row.push(mean(of(&seconds), 1) + if of(&seconds).is_some() { " s" } else { "" });
        }
    }
    row
}

/// What was varied, as on the command line.
pub(super) fn labels(group: &Group) -> String {
    let each = group.variant.labels.iter().map(|(path, value)| format!("{path}={value}"));
    each.collect::<Vec<_>>().join(" ")
}

fn alone(sample: Sample) -> Sample {
    Sample { half_width: None, ..sample }
}

/// A mean with half of its interval, or a dash.
pub(in crate::cli) fn mean(sample: Option<Sample>, decimals: usize) -> String {
    let Some(sample) = sample else { return "-".to_owned() };
    match sample.half_width {
        // A sum with zero: nothing is "-0".
        Some(half) => format!("{:.decimals$} ±{half:.decimals$}", sample.mean + 0.0),
        None => format!("{:.decimals$}", sample.mean + 0.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_varied_is_a_number_where_it_is_one() {
        assert_eq!(as_written("4"), json!(4));
        assert_eq!(as_written("0.5"), json!(0.5));
        assert_eq!(as_written("3.67 h"), json!("3.67 h"));
        assert_eq!(as_written("nan"), json!("nan"));
    }

    #[test]
    fn a_mean_has_its_interval_if_there_is_one() {
        let sample = Sample { count: 3, mean: 0.12345, half_width: Some(0.01) };
        assert_eq!(mean(Some(sample), 3), "0.123 ±0.010");
        assert_eq!(mean(Some(alone(sample)), 2), "0.12");
        assert_eq!(mean(None, 3), "-");
    }
}
