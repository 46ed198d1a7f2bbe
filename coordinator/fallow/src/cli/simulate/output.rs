//! What runs came to: a table for people, JSON and CSV for programs (R5.14).

use std::collections::BTreeSet;

use fallow_domain::{Metric, RPCS_PER_JOB};
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
    object
}

/// A number where a number was written, so that programs can sort by it; else the text.
fn as_written(value: &str) -> Value {
    let number = value.parse::<i64>().map(Number::from).ok();
    let number = number.or_else(|| value.parse().ok().and_then(Number::from_f64));
    number.map_or_else(|| value.into(), Value::Number)
}

/// The keys that were varied, in order: each has a column of its own.
pub(super) fn varied(variants: &[Variant]) -> BTreeSet<String> {
    variants.iter().flat_map(|variant| variant.labels.keys().cloned()).collect()
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

pub(super) fn csv_heading(varied: &BTreeSet<String>) -> String {
    let heading = ["scenario", "policy", "seed"].into_iter().chain(varied.iter().map(String::as_str));
    record(&heading.chain(COLUMNS).collect::<Vec<_>>())
}

/// A run as a line.
pub(super) fn csv_line(varied: &BTreeSet<String>, run: &Run<'_>) -> String {
    let object = object(run);
    let labels = &run.variant.labels;
    let mut fields =
        vec![run.variant.scenario.name.clone(), run.composition.to_string(), run.seed.to_string()];
    fields.extend(varied.iter().map(|path| labels.get(path).cloned().unwrap_or_default()));
    fields.extend(COLUMNS.iter().map(|key| match &object[*key] {
        Value::Null => String::new(),
        value => value.to_string(),
    }));
    record(&fields.iter().map(String::as_str).collect::<Vec<_>>())
}

/// A row for what differs by its seed only.
pub(super) fn table(groups: &[Group]) -> String {
    let is_varied = groups.iter().any(|group| !group.variant.labels.is_empty());
    let mut columns = vec![Column::Text("scenario"), Column::Text("policy")];
    if is_varied {
        columns.push(Column::Text("with"));
    }
    columns.extend(Metric::ALL.map(|metric| Column::Number(metric.name())));
    columns.extend([
        Column::Number("RPCs/job"),
        Column::Number("jobs finished"),
        Column::Number("late"),
        Column::Number("days"),
    ]);
    let rows = groups.iter().map(|group| row(group, is_varied)).collect();
    let text = table::render(&columns, rows);
    match groups.iter().map(|group| group.runs.len()).max().unwrap_or(0) {
        0 | 1 => text,
        runs => format!("{text}\nMeans of {runs} seeds; ± is half of the 95 % confidence interval.\n"),
    }
}

fn row(group: &Group, is_varied: bool) -> Vec<String> {
    let of = |value: &dyn Fn(&FinishedRun) -> Option<f64>| {
        Sample::of(&group.runs.iter().filter_map(|(_, run)| value(run)).collect::<Vec<_>>())
    };
    let mut row = vec![group.scenario.clone(), group.composition.to_string()];
    if is_varied {
        row.push(labels(group));
    }
    row.extend(Metric::ALL.map(|metric| mean(of(&|run| run.outcome.figures.of(metric)), 3)));
    row.push(mean(of(&|run| run.outcome.rpcs_per_job), 2));
    row.push(mean(of(&|run| Some(run.outcome.jobs_finished as f64)), 0));
    row.push(mean(of(&|run| Some(run.outcome.jobs_late as f64)), 0));
    row.push(mean(of(&|run| Some(run.outcome.simulated.as_secs_f64() / 86_400.0)).map(alone), 1));
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
