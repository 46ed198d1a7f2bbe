//! Pictures of runs.

use std::num::NonZeroU32;
use std::path::Path;

use fallow_domain::ResourceType;
use fallow_emulator::experiment::{Metric, Sample};
use fallow_emulator::plot::{self, Axis, Curve, Dot, Figure, Lanes, Origin, Panel, Scale};
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
    let lanes = Lanes { title: &title, length: run.outcome.simulated, instances, projects };
    write(file, &drawn(plot::timeline(&lanes, timeline))?)?;
    let runs: usize = groups.iter().map(|group| group.runs.len()).sum();
    if runs > 1 {
        warn(&format!("{} shows the first of {runs} runs: {title}", file.display()));
    }
    Ok(())
}

/// The four metrics over the first varied key, or over the scenarios.
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
    let curve = |number: usize, label: &String, metric: Metric| {
        let own = groups.iter().filter(|group| name(group) == *label);
        let dots = own.filter_map(|group| {
            let values: Vec<f64> =
                group.runs.iter().filter_map(|(_, run)| metric.of(&run.outcome.figures)).collect();
            let sample = Sample::of(&values)?;
            let x = places.iter().position(|known| *known == place(group))? as f64;
            Some(Dot { x, y: sample.mean, half_width: sample.half_width })
        });
        Curve { label: label.clone(), origin: Origin::Measured(number), dots: dots.collect() }
    };
    let panels = Metric::ALL.map(|metric| Panel {
        title: metric.name().to_owned(),
        x: Axis {
            label: path.cloned().unwrap_or_else(|| "scenario".to_owned()),
            scale: Scale::Names(places.clone()),
        },
        y: metric.name().to_owned(),
        curves: names.iter().enumerate().map(|(number, label)| curve(number, label, metric)).collect(),
    });
    Figure {
        file: "metrics".to_owned(),
        title: path.map_or_else(|| "metrics by scenario".to_owned(), |path| format!("metrics by {path}")),
        panels: panels.into(),
    }
}

fn type_of(kind: CoprocessorKind) -> ResourceType {
    match kind {
        CoprocessorKind::Nvidia => ResourceType::Nvidia,
        CoprocessorKind::Amd => ResourceType::Amd,
        CoprocessorKind::Intel => ResourceType::Intel,
        CoprocessorKind::Apple => ResourceType::Apple,
    }
}
