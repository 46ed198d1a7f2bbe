//! `fallow simulate`: scenarios × policies × variations × seeds (R5.13, R5.14).

mod inputs;
mod output;
mod pictures;
mod policies;
mod rows;

use std::path::PathBuf;
use std::process::ExitCode as ProcessExit;
use std::sync::Arc;

use clap::{ArgGroup, Args};
use fallow_domain::ExitCode;
use fallow_emulator::experiment::{Case, FinishedRun};
use fallow_emulator::scenario::Variant;
use fallow_policy::composition::Composition;

use super::runs::{self, BatchEnd, Runs};
use super::{Failure, Unacceptable, count, print};

use output::Run;
use rows::{Kind, Rows};

pub(super) use output::mean;

const EXAMPLES: &str = "\
Examples:
  fallow simulate base
  fallow simulate lab.toml --timeline lab.svg
  fallow simulate base --policy CS1 --policy CS2_WF2_WS2_JC2 --repeat 10
  fallow simulate base --vary 'project.p1.latency_bound=3.67 h,7.34 h' \\
      --repeat 10 --plots plots
  fallow simulate scenarios/ --json | jq 'select(.waste > 0.1)'
  fallow simulate --boinc-dir /var/lib/boinc-client
  fallow simulate --show base > mine.toml

A scenario is a TOML file. It has a name and at least one [[project]] with a
name; what else it leaves out has the value of the built-in `base`. Every table
and key, with units, defaults and bounds, is in docs/scenarios.md:

  name = \"tight\"
  duration = \"30 days\"
  [host]
  cpus = 4
  available = { fraction = 0.8, mean = \"1000 s\" }
  [[project]]
  name = \"p1\"
  latency_bound = \"8 h\"
";

const OUTPUT: &str = "\
A seed decides everything: the same command gives the same output, but for
wall_seconds. With --json or --csv each run is written as soon as those before
it are, and what Ctrl-C leaves is whole. As many runs are made at once as there
are CPUs, or RAYON_NUM_THREADS.";

#[derive(Args, Debug)]
#[command(after_help = format!("{EXAMPLES}\n{}\n{OUTPUT}", policies::help()))]
#[command(group(ArgGroup::new("what").required(true).multiple(true).args(["scenarios", "boinc_dir", "show"])))]
pub(crate) struct Arguments {
    /// Scenario files, directories of them, or built-in scenarios: base, batch300, gpu,
    /// mix1 to mix1000.
    #[arg(value_name = "SCENARIO")]
    scenarios: Vec<PathBuf>,
    /// Policies and switches (below), such as CS1_WF2_WS2_JC2; what is left out is as in the default.
    #[arg(long = "policy", value_name = "NAME")]
    policies: Vec<String>,
    /// The first seed.
    #[arg(long, default_value_t = 1, value_name = "N", allow_negative_numbers = true, value_parser = seed)]
    seed: u64,
    /// How many seeds, one after another.
    #[arg(long, default_value_t = 1, value_name = "K", allow_negative_numbers = true)]
    #[arg(value_parser = count(1, 100_000))]
    repeat: u32,
    /// Values that a key of the scenarios takes in turn: a list, or a range such as 1..20 or '1 h..8 h/8'.
    #[arg(long = "vary", value_name = "PATH=V1,V2")]
    vary: Vec<String>,
    /// One JSON object a run, a line each.
    #[arg(long, conflicts_with = "csv")]
    json: bool,
    /// A line of CSV a run, with a heading.
    #[arg(long)]
    csv: bool,
    /// Draws what ran when, in the first of the runs, on the first host.
    #[arg(long, value_name = "FILE.svg")]
    timeline: Option<PathBuf>,
    /// Draws the metrics over the first --vary, or over the scenarios; values beside as CSV.
    #[arg(long, value_name = "DIR")]
    plots: Option<PathBuf>,
    /// Takes host, projects, queue and preferences from a BOINC client's data directory.
    #[arg(long, value_name = "DIR")]
    boinc_dir: Option<PathBuf>,
    /// Prints a scenario as a file to begin one's own with: a built-in one, or a file as it is understood.
    #[arg(long, value_name = "SCENARIO", exclusive = true)]
    show: Option<PathBuf>,
}

/// A seed, for clap.
fn seed(text: &str) -> Result<u64, Box<dyn std::error::Error + Send + Sync>> {
    let expected = "expected a whole number from 0 to 18446744073709551615";
    match text.parse::<i128>() {
        Ok(number) => u64::try_from(number).map_err(|_| Unacceptable(expected.to_owned()).into()),
        Err(_) => Err(expected.into()),
    }
}

/// Runs that differ by their seed only.
struct Group {
    scenario: String,
    variant: Variant,
    composition: Composition,
    runs: Vec<(u64, FinishedRun)>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<ProcessExit, Failure> {
    if let Some(path) = &arguments.show {
        let [shown]: [inputs::Input; 1] =
            inputs::scenarios(std::slice::from_ref(path), None)?.try_into().map_err(|all: Vec<_>| {
                let there = format!("{} holds {} scenarios", path.display(), all.len());
                Failure::bad_input(format!("--show: {there}: name one of them"))
            })?;
        print(&shown.scenario.to_toml())?;
        return Ok(ExitCode::Success.into());
    }
    let compositions = inputs::compositions(&arguments.policies)?;
    let scenarios = inputs::scenarios(&arguments.scenarios, arguments.boinc_dir.as_deref())?;
    let variants = inputs::variants(&scenarios, &arguments.vary)?;
    if let Some(dir) = &arguments.plots {
        runs::directory("--plots", dir)?;
    }
    if let Some(file) = &arguments.timeline {
        runs::file("--timeline", file)?;
    }
    let seeds: Vec<u64> =
        (0..u64::from(arguments.repeat)).map(|nth| arguments.seed.wrapping_add(nth)).collect();
    let mut cases = Vec::new();
    for variant in &variants {
        let scenario = Arc::new(variant.scenario.clone());
        for composition in &compositions {
            cases.extend(seeds.iter().map(|seed| Case {
                scenario: Arc::clone(&scenario),
                composition: *composition,
                seed: *seed,
                timeline: false,
            }));
        }
    }
    if let Some(first) = cases.first_mut() {
        first.timeline = arguments.timeline.is_some();
    }
    let kind = match (arguments.json, arguments.csv) {
        (true, _) => Some(Kind::Json),
        (_, true) => Some(Kind::Csv(output::Extras::of(variants.iter()))),
        _ => None,
    };
    let rows = kind.map(Rows::begin).transpose()?;
    let made = |nth: usize, finished: &FinishedRun| {
        if let Some(rows) = &rows {
            let variant = &variants[nth / seeds.len() / compositions.len()];
            let composition = compositions[nth / seeds.len() % compositions.len()];
            rows.made(nth, &Run { variant, composition, seed: seeds[nth % seeds.len()], finished });
        }
    };
    let batch = Runs::new()?.make(&cases, "simulating", &made)?;
    if let Some(rows) = rows {
        rows.end()?;
    }
    let finished = match batch {
        BatchEnd::Done(finished) => finished,
        BatchEnd::Interrupted(status) => return Ok(status),
    };
    let mut finished = finished.into_iter();
    let mut groups = Vec::new();
    for variant in variants {
        for composition in &compositions {
            groups.push(Group {
                scenario: variant.scenario.name.clone(),
                variant: variant.clone(),
                composition: *composition,
                runs: seeds.iter().copied().zip(finished.by_ref()).collect(),
            });
        }
    }
    if let Some(file) = &arguments.timeline {
        pictures::timeline(file, &groups)?;
    }
    if let Some(dir) = &arguments.plots {
        let first = arguments.vary.first().and_then(|option| option.split('=').next());
        pictures::plots(dir, &groups, first.map(str::trim))?;
    }
    if !arguments.json && !arguments.csv {
        print(&output::table(&groups))?;
    }
    Ok(ExitCode::Success.into())
}
