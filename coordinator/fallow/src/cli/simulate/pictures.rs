//! Pictures of runs: timelines and plots (R5.14).

use std::num::NonZeroU32;
use std::path::Path;

use fallow_domain::ResourceType;
use fallow_domain::amount::{self, TIMES};
use fallow_emulator::experiment::{Metric, Sample};
use fallow_emulator::plot::{self, Axis, Curve, Dot, Figure, Origin, Panel, Scale, TimelineFigure};
use fallow_emulator::scenario::CoprocessorKind;

use super::{Group, output};
use crate::cli::runs::{drawn, write};
use crate::cli::{Failure, warn};

/// Draws what ran when in the first run.
pub(super) fn timeline(file: &Path, groups: &[Group]) -> Result<(), Failure> {
    let Some(group) = groups.first() else { return Ok(()) };
    let Some((seed, run)) = group.runs.first() else { return Ok(()) };
    let Some(timeline) = &run.outcome.timeline else { return Ok(()) };
    let scenario = &group.variant.scenario;
    let cpus = scenario.preferences().usable_cpus(scenario.host.cpus.get());
    let mut instances = vec![(ResourceType::Cpu, cpus)];
    instances
        .extend(scenario.host.coprocessors.iter().map(|one| (type_of(one.kind), NonZeroU32::get(one.count))));
    let varied = match output::labels(group) {
        none if none.is_empty() => none,
        some => format!(", {some}"),
    };
    let title = format!("{}, {}{varied}, seed {seed}", group.scenario, group.composition);
    let projects = scenario.projects.iter().map(|project| project.name.as_str()).collect();
    let figure = TimelineFigure { title: &title, length: run.outcome.simulated, instances, projects };
    write(file, &drawn(plot::timeline(&figure, timeline))?)?;
    let runs: usize = groups.iter().map(|group| group.runs.len()).sum();
    if runs > 1 {
        warn(&format!("{} shows the first of {runs} runs: {title}", file.display()));
    }
    Ok(())
}

/// The metrics over the first varied key, or over the scenarios.
pub(super) fn plots(dir: &Path, groups: &[Group], first: Option<&str>) -> Result<(), Failure> {
    let figure = figure(groups, first);
    write(&dir.join(format!("{}.svg", figure.file)), &drawn(plot::chart(&figure))?)?;
    write(&dir.join(format!("{}.csv", figure.file)), &figure.to_csv())
}

fn figure(groups: &[Group], first: Option<&str>) -> Figure {
    // Labels are in the order of their names, not of the options.
    let mut paths = groups.iter().flat_map(|group| group.variant.labels.keys());
    let path = paths.clone().find(|path| Some(path.as_str()) == first).or_else(|| paths.next());
    let place = |group: &Group| match path {
        Some(path) => group.variant.labels.get(path).cloned().unwrap_or_default(),
        None => group.scenario.clone(),
    };
    let has_several = groups.iter().any(|group| group.scenario != groups[0].scenario);
    // What is not along the axis tells curves apart.
    let name = |group: &Group| {
        let mut name = group.composition.to_string();
        if path.is_some() && has_several {
            name = format!("{}: {name}", group.scenario);
        }
        for (key, value) in group.variant.labels.iter().filter(|(key, _)| Some(*key) != path) {
            name = format!("{name} {key}={value}");
        }
        name
    };
    let (mut places, mut names) = (Vec::new(), Vec::new());
    for group in groups {
        for (known, new) in [(&mut places, place(group)), (&mut names, name(group))] {
            if !known.contains(&new) {
                known.push(new);
            }
        }
    }
    let numbers = path.and_then(|_| amounts(&places));
    let curve = |number: usize, label: &String, metric: Metric| {
        let own = groups.iter().filter(|group| name(group) == *label);
        let mut dots: Vec<Dot> = own
            .filter_map(|group| {
                let values: Vec<f64> =
                    group.runs.iter().filter_map(|(_, run)| run.outcome.figures.of(metric)).collect();
                let sample = Sample::of(&values)?;
                let nth = places.iter().position(|known| *known == place(group))?;
                let x =
                    numbers.as_ref().and_then(|(_, values)| values.get(nth).copied()).unwrap_or(nth as f64);
                Some(Dot { x, y: sample.mean, half_width: sample.half_width })
            })
            .collect();
        dots.sort_by(|a, b| a.x.total_cmp(&b.x));
        Curve { label: label.clone(), origin: Origin::Measured(number), dots }
    };
    let along = path.cloned().unwrap_or_else(|| "scenario".to_owned());
    let axis = match &numbers {
        Some((unit, _)) if unit.is_empty() => Axis { label: along, scale: Scale::Linear },
        Some((unit, _)) => Axis { label: format!("{along} ({unit})"), scale: Scale::Linear },
        None => {
            Axis { label: along, scale: Scale::Names(places.iter().map(|place| rounded(place)).collect()) }
        }
    };
    let panels = Metric::ALL.map(|metric| Panel {
        title: metric.name().to_owned(),
        x: axis.clone(),
        y: metric.name().to_owned(),
        curves: names.iter().enumerate().map(|(number, label)| curve(number, label, metric)).collect(),
    });
    Figure {
        file: "metrics".to_owned(),
        title: path.map_or_else(|| "metrics by scenario".to_owned(), |path| format!("metrics by {path}")),
        panels: panels.into(),
    }
}

/// Units of time that an axis may be in, the longest first.
const AXES: [&str; 4] = ["days", "h", "min", "s"];
/// An axis is in the longest unit of which its end has so many.
const UNITS_MIN: f64 = 3.0;

/// The values as numbers in one unit, if they are at least two amounts of the same kind. Times are brought to
/// one unit.
fn amounts(places: &[String]) -> Option<(String, Vec<f64>)> {
    let parts: Vec<(f64, &str)> = places.iter().map(|place| number_and_unit(place)).collect::<Option<_>>()?;
    let (_, unit) = *parts.first().filter(|_| parts.len() > 1)?;
    if parts.iter().all(|(_, other)| *other == unit) && time_unit(unit).is_none() {
        return Some((unit.to_owned(), parts.into_iter().map(|(number, _)| number).collect()));
    }
    let seconds: Vec<f64> = parts
        .iter()
        .map(|(number, unit)| time_unit(unit).map(|seconds| number * seconds))
        .collect::<Option<_>>()?;
    let end = seconds.iter().copied().fold(0.0, f64::max);
    let mut axes = AXES.iter().filter_map(|name| Some((*name, time_unit(name)?)));
    let (name, each) = axes.find(|(_, each)| end >= UNITS_MIN * each).unwrap_or(("s", 1.0));
    Some((name.to_owned(), seconds.into_iter().map(|seconds| seconds / each).collect()))
}

/// `6.5 h` as a number and its unit.
fn number_and_unit(text: &str) -> Option<(f64, &str)> {
    let (number, unit) = amount::split(text);
    let number: f64 = number.replace('_', "").parse().ok()?;
    // `2-hosts` is a name.
    let is_unit = unit.starts_with(|c: char| c.is_alphabetic() || "%/".contains(c)) || unit.is_empty();
    (number.is_finite() && is_unit).then_some((number, unit))
}

fn time_unit(name: &str) -> Option<f64> {
    amount::factor(TIMES, name).map(|micros| micros / 1e6)
}

/// A value as a label: a number in it has four digits at most.
fn rounded(place: &str) -> String {
    let Some((number, unit)) = number_and_unit(place) else { return place.to_owned() };
    let decimals = match number.abs() {
        small if small < 10.0 => 3,
        middle if middle < 100.0 => 2,
        large if large < 1_000.0 => 1,
        _ => 0,
    };
    let text = format!("{number:.decimals$}");
    let text = if decimals > 0 { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{text} {unit}").trim_end().to_owned()
}

fn type_of(kind: CoprocessorKind) -> ResourceType {
    match kind {
        CoprocessorKind::Nvidia => ResourceType::Nvidia,
        CoprocessorKind::Amd => ResourceType::Amd,
        CoprocessorKind::Intel => ResourceType::Intel,
        CoprocessorKind::Apple => ResourceType::Apple,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(places: &[&str]) -> Option<(String, Vec<f64>)> {
        amounts(&places.iter().map(|place| (*place).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn r5_14_amounts_are_drawn_along_an_axis_in_one_unit_and_anything_else_by_its_name() {
        assert_eq!(of(&["1 h", "90 min", "2 h"]), Some(("min".into(), vec![60.0, 90.0, 120.0])));
        assert_eq!(of(&["1 h", "8 h"]), Some(("h".into(), vec![1.0, 8.0])));
        assert_eq!(of(&["36 h", "9 days"]), Some(("days".into(), vec![1.5, 9.0])));
        assert_eq!(of(&["0.1", "1e9", "-2"]), Some((String::new(), vec![0.1, 1e9, -2.0])));
        assert_eq!(of(&["1 GB", "2 GB"]), Some(("GB".into(), vec![1.0, 2.0])));
        for names in [
            &["1 GB", "2 MB"][..],
            &["1 h", "none"],
            &["CS1", "CS2"],
            &["1 h"],
            &["1", "2 h"],
            &["1-week.csv", "2-week.csv"],
        ] {
            assert_eq!(of(names), None, "{names:?}");
        }
    }

    #[test]
    fn a_number_in_a_label_has_four_digits() {
        let shown = ["6.85714285714 h", "0.25", "1200 s", "12.3456", "CS1", "100 %", "2-hosts"].map(rounded);
        assert_eq!(shown, ["6.857 h", "0.25", "1200 s", "12.35", "CS1", "100 %", "2-hosts"]);
    }
}
