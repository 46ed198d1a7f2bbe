//! The published evaluation in small: fewer values of the parameter, shorter runs, one or two seeds. `fallow
//! evaluate` makes all of it.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use fallow_domain::Duration;
use fallow_emulator::experiment::{
    Agreement, Experiment, Measurements, Row, RunEnvironment, Trial, cases, run_all,
};

use crate::engine_runs::DAY;

/// The rows of an experiment of which only these trials are run, each for so many days.
fn rows(experiment: Experiment, days: i64, seeds: usize, keep: impl Fn(&Trial) -> bool) -> Vec<Row> {
    let mut trials: Vec<Trial> = experiment.trials().into_iter().filter(|trial| keep(trial)).collect();
    assert!(!trials.is_empty(), "no trials of {experiment:?} are left");
    for trial in &mut trials {
        Arc::make_mut(&mut trial.scenario).duration = DAY * days;
    }
    let (clock, progress, stop) = (|| Duration::ZERO, |_: usize| {}, AtomicBool::new(false));
    let shell = RunEnvironment { clock: &clock, progress: &progress, finished: &|_, _| {}, stop: &stop };
    let finished = run_all(&cases(&trials, 1, seeds), shell).unwrap();
    experiment.report(&Measurements::new(&trials, &finished)).rows
}

/// Asserts that so many rows were judged and measured, and that all of these agree.
fn agree(rows: &[Row], count: usize) {
    let judged: Vec<&Row> =
        rows.iter().filter(|row| row.verdict != Agreement::NotJudged && row.measured.is_some()).collect();
    let differ: Vec<&&Row> = judged.iter().filter(|row| row.verdict == Agreement::Differs).collect();
    assert!(differ.is_empty(), "{differ:#?}");
    assert_eq!(judged.len(), count, "{judged:#?}");
}

fn policy(trial: &Trial) -> String {
    trial.arm.composition.to_string()
}

#[test]
fn r5_20_with_tight_deadlines_cs2_wastes_less_than_cs1_and_neither_idles() {
    let mixes = [4.0, 7.0, 10.0];
    let rows = rows(Experiment::Cpu, 30, 1, |trial| trial.arm.group != "base" && mixes.contains(&trial.x));
    agree(&rows, 4);
}

#[test]
fn r5_21_waste_by_slack_is_as_published() {
    let slacks = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 60.0];
    let published = |trial: &Trial| policy(trial).ends_with("ws2=published");
    let rows = rows(Experiment::Slack, 10, 1, |trial| published(trial) && slacks.contains(&trial.x));
    agree(&rows, 9);
}

#[test]
fn r5_22_waste_falls_with_the_buffer_and_is_flat_at_slack_2_between_5_and_7_hours() {
    let buffers = [1.0, 5.0, 6.0, 7.0, 8.4];
    agree(&rows(Experiment::Buffer, 10, 1, |trial| buffers.contains(&trial.x)), 9);
}

#[test]
fn r5_23_with_tight_deadlines_wf2_wastes_at_most_a_fifth_of_wf1_and_keeps_shares_better() {
    let mixes = [14.0, 18.0];
    let mut rows =
        rows(Experiment::Fetch, 40, 1, |trial| trial.arm.group != "base" && mixes.contains(&trial.x));
    // Monotony is judged as well, and differs: the evaluation's table says why.
    rows.retain(|row| {
        row.what.contains("WF2's waste as a part of WF1's") || row.what.contains("share violation less WF2's")
    });
    agree(&rows, 2);
}

#[test]
fn r5_24_with_sizes_that_vary_ws2_wastes_less_than_ws1_and_idles_more() {
    let factors = [100.0, 1000.0];
    let rows = rows(Experiment::Send, 60, 1, |trial| {
        factors.contains(&trial.x) && !policy(trial).ends_with("ws2=published")
    });
    agree(&rows, 2);
}

#[test]
fn r5_25_at_slack_2_with_estimates_that_are_too_low_jc1_wastes_nearly_all_and_jc2_no_more_than_without() {
    let factors = [1.0, 4.0, 6.0];
    let published = |trial: &Trial| policy(trial).ends_with("ws2=published");
    let rows = rows(Experiment::Estimates, 20, 1, |trial| {
        trial.arm.group == "slack 2" && published(trial) && factors.contains(&trial.x)
    });
    agree(&rows, 3);
}
