//! `fallow evaluate --labs`: how policies fare on whole scenarios of real labs (R5.30 to R5.35).

use std::process::ExitCode as ProcessExit;
use std::sync::Arc;

use fallow_domain::{Duration, ExitCode, Metric};
use fallow_emulator::experiment::{Case, Sample};
use fallow_emulator::labs::{Contender, LabRuns, Measure, Yardstick, over_scenarios};
use fallow_emulator::plot::{self, Axis, Bar, BarFigure, BarGroup, Curve, Dot, Figure, Origin, Panel, Scale};
use fallow_emulator::scenario::{Buffer, Scenario};
use fallow_policy::composition::Composition;
use serde_json::{Map, Value, json};

use super::Arguments;
use super::scenarios::LabSet;
use crate::cli::runs::{self, BatchEnd, Runs};
use crate::cli::simulate::mean;
use crate::cli::table::{self, Column};
use crate::cli::{Failure, print};

/// Policies that have a name here: as they are called, what they are, and whether almost nothing is kept.
const NAMED: [(&str, &str, bool); 5] = [
    ("default", "", false),
    ("published", "CS2_WF2_WS2_JC2,ws2=published,fetch=any-shortfall,accounting=debt", false),
    ("improved", "CS2_WF2_WS2_JC2,ws2=improved,fetch=any-shortfall,accounting=debt", false),
    ("tiny", "CS2_WF2_WS2_JC2,ws2=improved,fetch=any-shortfall,accounting=debt", true),
    ("WF3", "CS2_WF3_WS2_JC2", false),
];
/// Half of a buffer that is tiny: 0.005 days.
const TINY: Duration = Duration::from_secs(432);
/// How a row over all scenarios is called.
const ALL: &str = "all";
const NOTES: &str = "\
J is idleness, waste and share violation (R5.30 to R5.32); JS has share deviation (R5.35) instead.
Bound: no policy gets JS below it. Blind: the part of jobs that would be late if each was
begun at a random moment and never preempted.
";

/// What a scenario allows, on average over the seeds.
#[derive(Clone, Copy, Debug, Default)]
struct Allowed {
    lower_bound: f64,
    blind: f64,
}

/// What is told of a set.
struct Told<'a> {
    set: LabSet,
    scenarios: &'a [Scenario],
    contenders: &'a [Contender],
    runs: &'a [LabRuns],
    allowed: &'a [Allowed],
}

pub(super) fn run(arguments: &Arguments) -> Result<ProcessExit, Failure> {
    let contenders = contenders(&arguments.policies)?;
    let sets = chosen(arguments)?;
    runs::directory("--out", &arguments.out)?;
    let (count, mut runs) = (sets.len(), Runs::new()?);
    for ((set, scenarios), number) in sets.into_iter().zip(1..) {
        let first = arguments.seed.wrapping_add(set.seeds_from());
        let seeds: Vec<u64> = (0..u64::from(arguments.repeat)).map(|nth| first.wrapping_add(nth)).collect();
        let cases = cases(&scenarios, &contenders, &seeds);
        let what = format!("{} ({number} of {count})", set.name());
        let finished = match runs.make(&cases, &what, &|_, _| {})? {
            BatchEnd::Done(finished) => finished,
            BatchEnd::Interrupted(status) => return Ok(status),
        };
        let mut outcomes = finished.into_iter().map(|run| run.outcome);
        let mut made = Vec::new();
        for scenario in &scenarios {
            for contender in 0..contenders.len() {
                let runs = outcomes.by_ref().take(seeds.len()).collect();
                made.push(LabRuns { scenario: scenario.name.clone(), contender, runs });
            }
        }
        let allowed: Vec<Allowed> = scenarios.iter().map(|scenario| allowed(scenario, &seeds)).collect();
        let told =
            Told { set, scenarios: &scenarios, contenders: &contenders, runs: &made, allowed: &allowed };
        told.write(arguments, first)?;
    }
    Ok(ExitCode::Success.into())
}

/// The policies that are held against each other.
fn contenders(names: &[String]) -> Result<Vec<Contender>, Failure> {
    let all: Vec<String> = NAMED.iter().map(|(name, ..)| (*name).to_owned()).collect();
    let names = if names.is_empty() { &all } else { names };
    let mut contenders: Vec<Contender> = Vec::new();
    for name in names {
        let known = NAMED.iter().find(|(known, ..)| known == name);
        let (text, is_tiny) = known.map_or((name.as_str(), false), |(_, text, is_tiny)| (*text, *is_tiny));
        let composition = match text.is_empty() {
            true => Composition::default(),
            false => text.parse().map_err(|error| {
                let own = all.join(", ");
                Failure::bad_input(format!("--policy: {error}; or one of {own}"))
            })?,
        };
        let buffer = is_tiny.then_some(Buffer { min: TINY, additional: TINY });
        // The same by two names is the same.
        let same = |other: &Contender| other.composition == composition && other.buffer == buffer;
        if !contenders.iter().any(same) {
            contenders.push(Contender { name: name.clone(), composition, buffer });
        }
    }
    Ok(contenders)
}

/// The scenarios that are to be run, by set.
fn chosen(arguments: &Arguments) -> Result<Vec<(LabSet, Vec<Scenario>)>, Failure> {
    let sets: Vec<LabSet> = match arguments.set.as_str() {
        ALL => LabSet::ALL.into(),
        name => LabSet::ALL.into_iter().filter(|set| set.name() == name).collect(),
    };
    if sets.is_empty() {
        let text = format!("--set: no set {:?}; expected tuning, judging or all", arguments.set);
        return Err(Failure::bad_input(text));
    }
    let known: Vec<&str> = sets.iter().flat_map(|set| set.names()).collect();
    if let Some(name) = arguments.only.iter().find(|name| !known.contains(&name.as_str())) {
        let known = known.join(", ");
        return Err(Failure::bad_input(format!("--only: no scenario {name:?}; expected some of {known}")));
    }
    let wanted = |name: &str| arguments.only.is_empty() || arguments.only.iter().any(|only| only == name);
    let mut chosen = Vec::new();
    for set in sets {
        let mut scenarios = set.scenarios(wanted)?;
        if let Some(days) = arguments.days {
            let length = Duration::from_hours(24) * i64::from(days);
            scenarios.iter_mut().for_each(|scenario| scenario.duration = length);
        }
        if !scenarios.is_empty() {
            chosen.push((set, scenarios));
        }
    }
    Ok(chosen)
}

fn cases(scenarios: &[Scenario], contenders: &[Contender], seeds: &[u64]) -> Vec<Case> {
    let mut cases = Vec::new();
    for scenario in scenarios {
        for contender in contenders {
            let scenario = Arc::new(contender.on(scenario));
            cases.extend(seeds.iter().map(|seed| Case {
                scenario: Arc::clone(&scenario),
                composition: contender.composition,
                seed: *seed,
                timeline: false,
            }));
        }
    }
    cases
}

fn allowed(scenario: &Scenario, seeds: &[u64]) -> Allowed {
    let each: Vec<Yardstick> = seeds.iter().map(|seed| Yardstick::of(scenario, *seed)).collect();
    let mean = |of: fn(&Yardstick) -> f64| each.iter().map(of).sum::<f64>() / each.len().max(1) as f64;
    Allowed { lower_bound: mean(|one| one.lower_bound), blind: mean(|one| one.blind) }
}

impl Told<'_> {
    fn write(&self, arguments: &Arguments, first: u64) -> Result<(), Failure> {
        // A part of a set leaves the whole one's files alone.
        let part = if arguments.only.is_empty() { "" } else { "-part" };
        let file = |what: &str, extension: &str| {
            arguments.out.join(format!("labs-{}{part}{what}.{extension}", self.set.name()))
        };
        let text = self.text(arguments.repeat, first);
        runs::write(&file("", "txt"), &text)?;
        runs::write(&file("", "csv"), &self.csv())?;
        let (losses, plane) = (self.losses(), self.plane());
        runs::write(&file("-losses", "svg"), &runs::drawn(plot::bars(&losses))?)?;
        runs::write(&file("-losses", "csv"), &losses.to_csv())?;
        runs::write(&file("-plane", "svg"), &runs::drawn(plot::chart(&plane))?)?;
        runs::write(&file("-plane", "csv"), &plane.to_csv())?;
        match arguments.json {
            true => {
                print(&self.rows().iter().map(|row| format!("{}\n", self.object(row))).collect::<String>())
            }
            false => print(&text),
        }
    }

    /// Every contender on every scenario, then over all of them.
    fn rows(&self) -> Vec<Row> {
        let row = |runs: &LabRuns| {
            let place = self.scenarios.iter().position(|scenario| scenario.name == runs.scenario);
            Row {
                scenario: runs.scenario.clone(),
                contender: runs.contender,
                samples: Measure::ALL.map(|measure| runs.sample(measure)),
                allowed: place.and_then(|place| self.allowed.get(place)).copied().unwrap_or_default(),
            }
        };
        let count = self.allowed.len().max(1) as f64;
        let mean = |of: fn(&Allowed) -> f64| self.allowed.iter().map(of).sum::<f64>() / count;
        let allowed = Allowed { lower_bound: mean(|one| one.lower_bound), blind: mean(|one| one.blind) };
        let over = (0..self.contenders.len()).map(|contender| Row {
            scenario: ALL.to_owned(),
            contender,
            samples: Measure::ALL.map(|measure| over_scenarios(self.runs, contender, measure)),
            allowed,
        });
        self.runs.iter().map(row).chain(over).collect()
    }

    fn text(&self, repeat: u32, first: u64) -> String {
        let mut columns = vec![Column::Text("scenario"), Column::Text("policy")];
        columns.extend(Measure::ALL.map(|measure| Column::Number(measure.name())));
        columns.extend([Column::Number("bound"), Column::Number("blind")]);
        let cells = |row: &Row| {
            let mut cells = vec![row.scenario.clone(), self.contenders[row.contender].name.clone()];
            cells.extend(row.samples.iter().map(|sample| mean(*sample, 3)));
            cells.extend([row.allowed.lower_bound, row.allowed.blind].map(|value| format!("{value:.3}")));
            cells
        };
        let mut text = format!("{}: {} scenarios\n", self.set.name(), self.scenarios.len());
        text.push_str(&table::render(&columns, self.rows().iter().map(cells).collect()));
        for contender in self.contenders {
            let tiny = if contender.buffer.is_some() { ", a buffer of 0.005 + 0.005 days" } else { "" };
            text.push_str(&format!("{}: {}{tiny}\n", contender.name, contender.composition));
        }
        let seeds = match repeat {
            1 => format!("seed {first}, so no intervals"),
            _ => format!("means of {repeat} seeds from {first}, ± half of the 95 % confidence interval"),
        };
        text + &format!("{seeds}\n{NOTES}\n")
    }

    fn object(&self, row: &Row) -> Value {
        let contender = &self.contenders[row.contender];
        let mut object: Map<String, Value> = Map::new();
        let mut set = |key: &str, value: Value| object.insert(key.to_owned(), value);
        set("set", self.set.name().into());
        set("scenario", row.scenario.clone().into());
        set("policy", contender.name.clone().into());
        set("composition", contender.composition.to_string().into());
        for (measure, sample) in Measure::ALL.iter().zip(&row.samples) {
            set(measure.key(), json!(sample.map(|sample| sample.mean)));
            set(&half_key(*measure), json!(sample.and_then(|sample| sample.half_width)));
        }
        set("bound", row.allowed.lower_bound.into());
        set("blind", row.allowed.blind.into());
        Value::Object(object)
    }

    fn csv(&self) -> String {
        let mut heading: Vec<String> = ["set", "scenario", "policy", "composition"].map(String::from).into();
        heading.extend(Measure::ALL.iter().flat_map(|one| [one.key().to_owned(), half_key(*one)]));
        heading.extend(["bound", "blind"].map(String::from));
        let line = |fields: &[String]| plot::record(&fields.iter().map(String::as_str).collect::<Vec<_>>());
        let mut csv = line(&heading);
        for row in self.rows() {
            let object = self.object(&row);
            let field = |key: &String| match &object[key.as_str()] {
                Value::Null => String::new(),
                Value::String(text) => text.clone(),
                value => value.to_string(),
            };
            csv.push_str(&line(&heading.iter().map(field).collect::<Vec<_>>()));
        }
        csv
    }

    /// What is lost to what, by scenario and contender.
    fn losses(&self) -> BarFigure {
        let group = |(scenario, allowed): (&Scenario, &Allowed)| BarGroup {
            name: scenario.name.clone(),
            mark: Some(allowed.blind),
            bars: self
                .runs
                .iter()
                .filter(|runs| runs.scenario == scenario.name)
                .map(|runs| self.bar(runs))
                .collect(),
        };
        BarFigure {
            file: format!("labs-{}-losses", self.set.name()),
            title: format!("What is lost to what, {} scenarios", self.set.name()),
            axis: "JS: idleness, waste and share deviation".to_owned(),
            parts: Measure::LOSSES.map(|metric| metric.name().to_owned()).into(),
            mark: "jobs late if begun blindly".to_owned(),
            groups: self.scenarios.iter().zip(self.allowed).map(group).collect(),
        }
    }

    fn bar(&self, runs: &LabRuns) -> Bar {
        let part = |metric| runs.sample(Measure::Of(metric)).map_or(0.0, |sample| sample.mean);
        let label = self.contenders[runs.contender].name.clone();
        Bar { label, parts: Measure::LOSSES.map(part).into() }
    }

    /// Waste against idleness, a dot for each scenario.
    fn plane(&self) -> Figure {
        let value = |runs: &LabRuns, metric| runs.sample(Measure::Of(metric)).map_or(0.0, |one| one.mean);
        // A curve each: nothing is to join them.
        let curve = |runs: &LabRuns| Curve {
            label: self.contenders[runs.contender].name.clone(),
            origin: Origin::Measured(runs.contender),
            dots: vec![Dot::given(value(runs, Metric::Idleness), value(runs, Metric::Waste))],
        };
        let mut runs: Vec<&LabRuns> = self.runs.iter().collect();
        runs.sort_by_key(|runs| runs.contender);
        let panel = Panel {
            title: "waste against idleness, a dot for each scenario".to_owned(),
            x: Axis { label: Metric::Idleness.name().to_owned(), scale: Scale::Linear },
            y: Metric::Waste.name().to_owned(),
            curves: runs.into_iter().map(curve).collect(),
        };
        Figure {
            file: format!("labs-{}-plane", self.set.name()),
            title: format!("Labs, {} scenarios", self.set.name()),
            panels: vec![panel],
        }
    }
}

/// A contender on a scenario, or over all of them.
struct Row {
    scenario: String,
    contender: usize,
    samples: [Option<Sample>; 8],
    allowed: Allowed,
}

fn half_key(measure: Measure) -> String {
    format!("{}_half_width_95", measure.key())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_go_by_a_name_or_by_their_composition_and_what_is_the_same_is_run_once() {
        let of = |names: &[&str]| {
            contenders(&names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>()).map(|all| {
                all.iter().map(|one| (one.name.clone(), one.composition.to_string())).collect::<Vec<_>>()
            })
        };
        let pair = |name: &str, composition: &str| (name.to_owned(), composition.to_owned());
        let published = "CS2_WF2_WS2_JC2,ws2=published";
        let given = of(&["published", "tiny", "improved", published]).unwrap();
        let improved: Composition = NAMED[2].1.parse().unwrap();
        let improved = improved.to_string();
        assert_eq!(given[0].0, "published");
        assert_eq!(given[1..], [pair("tiny", &improved), pair("improved", &improved)]);
        assert!(of(&[]).unwrap().len() >= 4);
        let failure = of(&["best"]).unwrap_err();
        assert!(failure.to_string().contains("or one of default, published"), "{failure}");
        for (name, text, _) in NAMED {
            assert!(text.is_empty() || text.parse::<Composition>().is_ok(), "{name}");
        }
    }
}
