//! `fallow evaluate`: the published evaluation, from the product's own policies (R5.20 to R5.25). "The paper"
//! below is D. Kondo, D. P. Anderson, J. McLeod VII: Performance Evaluation of Scheduling Policies for
//! Volunteer Computing (2007). What it prints and draws is that of R5.14. With `--labs` it is another
//! evaluation (`evaluate/labs.rs`).

mod labs;
mod scenarios;

use std::path::PathBuf;
use std::process::ExitCode as ProcessExit;
use std::sync::Arc;

use clap::Args;
use fallow_domain::{Duration, ExitCode};
use fallow_emulator::experiment::{Agreement, Experiment, Measurements, Report, Row, cases};
use fallow_emulator::plot;
use serde_json::json;

use super::runs::{self, BatchEnd, Runs};
use super::simulate::mean;
use super::table::{self, Column};
use super::{Failure, count, print};

/// Days a run, as in the paper; the notes were written for runs of this length.
const STANDARD_DAYS: u32 = 100;

const EXAMPLES: &str = "\
Examples:
  fallow evaluate --out evaluation
  fallow evaluate --out evaluation --only slack,buffer --repeat 3
  fallow evaluate --out evaluation --json | jq 'select(.verdict == \"differs\")'
  fallow evaluate --labs --out labs --set tuning --policy default --policy WF3

With --labs, policies are held against each other on scenarios of real labs
instead, in two sets: tuning and judging, with other seeds. They are default,
published, improved (WS2 counts what was chosen, and time off), tiny (the same
with a buffer of 0.005 + 0.005 days) and WF3, or those of --policy. DIR gets of
each set a table as text and CSV, and two figures with their values as CSV:
labs-SET-losses (what is lost to what) and labs-SET-plane (waste against
idleness). Without --labs:

Experiments: cpu (R5.20), slack (R5.21), buffer (R5.22), fetch (R5.23), send
(R5.24), estimates (R5.25).

The paper is D. Kondo, D. P. Anderson, J. McLeod VII: Performance Evaluation of
Scheduling Policies for Volunteer Computing (2007).

DIR gets table.txt, table.csv, and of every figure of the paper an SVG with its
values as CSV beside it; with --only the tables are table-NAME-NAME.txt and .csv
instead, so that those of a whole evaluation stay. In figures, open diamonds are
published values; dashes apply a published statement to our own values. A row
agrees or differs, by the tolerance beside it, or is not judged where the paper
gives no value. Notes tell of runs of 100 days and are left out of others.

A full evaluation is 4,190 runs: about eight minutes of CPU time, so four on two
free CPUs. --repeat 1 takes a tenth. Each experiment is written as soon as it is
done, and Ctrl-C leaves what is written.";

#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// Where tables and figures are written.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// One JSON object a row, a line each, instead of tables.
    #[arg(long)]
    json: bool,
    /// How many seeds, one after another.
    #[arg(long, default_value_t = 10, value_name = "K", value_parser = count(1, 10_000))]
    repeat: u32,
    /// The first seed; of the judging set, 1000 later.
    #[arg(long, default_value_t = 1, value_name = "N")]
    seed: u64,
    /// How long each run is; the paper's are 100 days, those of --labs have lengths of their own.
    #[arg(long, value_name = "N", value_parser = count(1, 100_000))]
    days: Option<u32>,
    /// Only these experiments, or with --labs these scenarios.
    #[arg(long, value_name = "NAME,NAME", value_delimiter = ',')]
    only: Vec<String>,
    /// Policies on scenarios of real labs, instead of the published evaluation.
    #[arg(long)]
    labs: bool,
    /// Which scenarios of labs: tuning, judging or all.
    #[arg(long, value_name = "SET", default_value = "all", requires = "labs")]
    set: String,
    /// Policies for --labs, as named above or as for fallow simulate.
    #[arg(long = "policy", value_name = "NAME", requires = "labs")]
    policies: Vec<String>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<ProcessExit, Failure> {
    if arguments.labs {
        return labs::run(arguments);
    }
    let (experiments, days) = (chosen(&arguments.only)?, arguments.days.unwrap_or(STANDARD_DAYS));
    runs::directory("--out", &arguments.out)?;
    let stem = stem(&experiments);
    let table = |extension| arguments.out.join(format!("{stem}.{extension}"));
    let mut texts = String::new();
    let mut csv = csv_heading();
    let (count, mut runs) = (experiments.len(), Runs::new()?);
    for (experiment, number) in experiments.into_iter().zip(1..) {
        let mut trials = experiment.trials();
        for trial in &mut trials {
            Arc::make_mut(&mut trial.scenario).duration = Duration::from_hours(24) * i64::from(days);
        }
        let cases = cases(&trials, arguments.seed, arguments.repeat as usize);
        let finished =
            match runs.make(&cases, &format!("{} ({number} of {count})", experiment.name()), &|_, _| {})? {
                BatchEnd::Done(finished) => finished,
                // What was finished before is written.
                BatchEnd::Interrupted(status) => return Ok(status),
            };
        let mut report = experiment.report(&Measurements::new(&trials, &finished));
        if days != STANDARD_DAYS {
            report.rows.iter_mut().for_each(|row| row.note.clear());
        }
        for figure in &report.figures {
            let file = |extension| arguments.out.join(format!("{}.{extension}", figure.file));
            runs::write(&file("svg"), &runs::drawn(plot::chart(figure))?)?;
            runs::write(&file("csv"), &figure.to_csv())?;
        }
        let text = tell(experiment, &report, arguments);
        texts.push_str(&text);
        report.rows.iter().for_each(|row| csv.push_str(&csv_line(experiment, row)));
        runs::write(&table("txt"), &texts)?;
        runs::write(&table("csv"), &csv)?;
        match arguments.json {
            true => print(&report.rows.iter().map(|row| json_line(experiment, row)).collect::<String>())?,
            false => print(&text)?,
        }
    }
    Ok(ExitCode::Success.into())
}

fn chosen(names: &[String]) -> Result<Vec<Experiment>, Failure> {
    let unknown: Vec<&String> = names.iter().filter(|name| Experiment::from_name(name).is_none()).collect();
    if let Some(name) = unknown.first() {
        let known = Experiment::ALL.map(Experiment::name).join(", ");
        return Err(Failure::bad_input(format!("--only: no experiment {name:?}; expected some of {known}")));
    }
    let is_chosen = |one: &Experiment| names.is_empty() || names.iter().any(|name| name == one.name());
    Ok(Experiment::ALL.into_iter().filter(is_chosen).collect())
}

/// The name of the tables' files, without an extension: a part of the evaluation leaves the whole one's
/// alone.
fn stem(experiments: &[Experiment]) -> String {
    if experiments.len() == Experiment::ALL.len() {
        return "table".to_owned();
    }
    ["table"].into_iter().chain(experiments.iter().map(|one| one.name())).collect::<Vec<_>>().join("-")
}

/// The rows for people.
fn tell(experiment: Experiment, report: &Report, arguments: &Arguments) -> String {
    let columns = [
        Column::Text("what"),
        Column::Text("published"),
        Column::Text("measured"),
        Column::Text("verdict"),
        Column::Text("tolerance"),
    ];
    let mut notes: Vec<&str> = Vec::new();
    let rows = report.rows.iter().map(|row| {
        let mut verdict = row.verdict.to_string();
        if !row.note.is_empty() {
            // The same note on several rows is written once.
            let at = notes.iter().position(|note| *note == row.note).unwrap_or_else(|| {
                notes.push(&row.note);
                notes.len() - 1
            });
            verdict = format!("{verdict} [{}]", at + 1);
        }
        vec![row.what.clone(), row.published.clone(), mean(row.measured, 3), verdict, row.expected.clone()]
    });
    let rows: Vec<Vec<String>> = rows.collect();
    let id = report.rows.first().map_or("", |row| row.requirement);
    let mut text = format!("{id} {}: {}\n", experiment.name(), experiment.title());
    text.push_str(&table::render(&columns, rows));
    for (number, note) in notes.iter().enumerate() {
        text.push_str(&format!("[{}] {note}\n", number + 1));
    }
    if !notes.is_empty() {
        text.push_str("Notes tell of runs of 100 days from 10 seeds.\n");
    }
    let counted = |verdict| report.rows.iter().filter(|row| row.verdict == verdict).count();
    let (agree, differ) = (counted(Agreement::Agrees), counted(Agreement::Differs));
    let seeds = match arguments.repeat {
        1 => "one seed, so no intervals".to_owned(),
        repeat => format!("means of {repeat} seeds, ± half of the 95 % confidence interval"),
    };
    let days = arguments.days.unwrap_or(STANDARD_DAYS);
    text.push_str(&format!("{agree} agree, {differ} differ; {seeds}; {days} days a run\n\n"));
    text
}

fn json_line(experiment: Experiment, row: &Row) -> String {
    let interval = row.measured.filter(|sample| sample.half_width.is_some()).map(|sample| sample.interval());
    let object = json!({
        "experiment": experiment.name(),
        "requirement": row.requirement,
        "what": row.what,
        "published": row.published,
        "measured": row.measured.map(|sample| sample.mean),
        "low_95": interval.map(|(low, _)| low),
        "high_95": interval.map(|(_, high)| high),
        "seeds": row.measured.map(|sample| sample.count),
        "to_agree": row.expected,
        "verdict": row.verdict.to_string(),
        "note": row.note,
    });
    format!("{object}\n")
}

fn csv_heading() -> String {
    plot::record(&[
        "experiment",
        "requirement",
        "what",
        "published",
        "measured",
        "low_95",
        "high_95",
        "seeds",
        "to_agree",
        "verdict",
        "note",
    ])
}

fn csv_line(experiment: Experiment, row: &Row) -> String {
    let interval = row.measured.filter(|sample| sample.half_width.is_some()).map(|sample| sample.interval());
    let number = |value: Option<f64>| value.map(|value| value.to_string()).unwrap_or_default();
    plot::record(&[
        experiment.name(),
        row.requirement,
        &row.what,
        &row.published,
        &number(row.measured.map(|sample| sample.mean)),
        &number(interval.map(|(low, _)| low)),
        &number(interval.map(|(_, high)| high)),
        &row.measured.map(|sample| sample.count.to_string()).unwrap_or_default(),
        &row.expected,
        &row.verdict.to_string(),
        &row.note,
    ])
}
