//! R5.22: how waste depends on the work that is kept, at slack 1 to 5.

use std::sync::Arc;

use fallow_domain::Duration;

use super::slack::{PUBLISHED, TOLERANCE};
use super::{
    Arm, Curve, Measurements, Metric, Report, Row, Sample, Trial, named_curve, paper, published, with_slack,
};
use crate::plot::{Axis, Figure, Panel, Scale};

const ID: &str = "R5.22";
/// Hours; the last is the base value (R5.15).
const BUFFERS: [f64; 16] = [1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 5.5, 6.0, 6.5, 7.0, 7.5, 8.0, 8.4];
const WHOLE: f64 = 8.4;
const SLACKS: [(&str, f64); 5] =
    [("slack 1", 1.0), ("slack 2", 2.0), ("slack 3", 3.0), ("slack 4", 4.0), ("slack 5", 5.0)];

/// Where the palette's darker colours begin.
const DARKER: usize = 6;

fn arm(slack: f64) -> Arm {
    let group = SLACKS.iter().find(|(_, known)| *known == slack).map_or("", |(name, _)| *name);
    Arm { group, composition: published() }
}

pub(super) fn trials() -> Vec<Trial> {
    let trial = |slack: f64, hours: f64| {
        let mut scenario = with_slack(slack);
        // Both parts shrink alike, so that the largest is the base scenario.
        let buffer = &mut scenario.client.buffer;
        let whole = Duration::from_secs_f64(hours * 3_600.0);
        buffer.min = whole.mul_f64(0.1 / 0.35);
        buffer.additional = whole - buffer.min;
        Trial { arm: arm(slack), x: hours, scenario: Arc::new(scenario) }
    };
    SLACKS.iter().flat_map(|(_, slack)| BUFFERS.map(|hours| trial(*slack, hours))).collect()
}

pub(super) fn report(m: &Measurements) -> Report {
    let at = |slack, hours| m.at(arm(slack), hours, Metric::Waste);
    let range = |slack, over: &dyn Fn(f64) -> bool| {
        let most = m.largest(arm(slack), over, Metric::Waste)?;
        let least = m.smallest(arm(slack), over, Metric::Waste)?;
        let half_width = most.1.half_width.zip(least.1.half_width).map(|(most, least)| most + least);
        Some(Sample { mean: most.1.mean - least.1.mean, half_width, ..most.1 })
    };
    let mut rows: Vec<Row> = PUBLISHED
        .iter()
        .map(|(slack, waste)| {
            let what = format!("waste at slack {slack} with the whole buffer, 8.4 h");
            Row::near(ID, what, *waste, TOLERANCE, at(*slack, WHOLE))
        })
        .collect();
    let least = m.smallest(arm(1.0), |_| true, Metric::Waste).map(|(_, sample)| sample);
    let stays = "stays 1";
    rows.push(Row::judged(
        ID,
        "least waste at slack 1 over all buffers",
        stays,
        "at least 0.90",
        least,
        |w| w >= 0.9,
    ));
    let flat = range(2.0, &|hours| (5.0..=7.0).contains(&hours));
    let what = "waste at slack 2, largest less smallest at 5 to 7 h";
    rows.push(Row::judged(ID, what, "constant", "at most 0.10", flat, |spread| spread <= TOLERANCE));
    rows.push(
        Row::shown(ID, "waste at slack 2 with 6 h", "only in the plot", at(2.0, 6.0))
            .noting("an independent simulation of the same policies gave 0.50"),
    );
    for slack in [2.0, 3.0] {
        let fall = m.fall(arm(slack), WHOLE, 1.0, Metric::Waste);
        let what = format!("waste at slack {slack}: at 1 h, as a part of that at 8.4 h");
        rows.push(Row::judged(ID, what, "falls steeply", "at most 0.50", fall, |part| part <= 0.5));
    }
    Report { rows, figures: vec![figure(m)] }
}

fn figure(m: &Measurements) -> Figure {
    let curves = SLACKS.iter().enumerate().map(|(number, (name, slack))| {
        named_curve(m, arm(*slack), Metric::Waste, number, (*name).to_owned())
    });
    let known: Vec<(f64, f64)> = PUBLISHED.iter().map(|(_, waste)| (WHOLE, *waste)).collect();
    let curves: Vec<Curve> = curves.chain([paper("published, slack 1 to 5 from above", &known)]).collect();
    // The paper draws a surface: here its lines of equal slack, and those of equal buffer.
    let by_buffer = Panel {
        title: "waste by buffer".into(),
        x: Axis { label: "buffer, minimum and additional, in hours".into(), scale: Scale::Linear },
        y: "waste".into(),
        curves,
    };
    let shown = [1.0, 2.5, 4.0, 5.0, 7.0, WHOLE];
    let across = shown.iter().enumerate().map(|(number, hours)| {
        let dots = SLACKS.iter().filter_map(|(_, slack)| {
            let sample = m.at(arm(*slack), *hours, Metric::Waste)?;
            Some(crate::plot::Dot { x: *slack, y: sample.mean, half_width: sample.half_width })
        });
        let label = format!("buffer {hours} h");
        // Colours of their own: these lines are not those of the panel beside.
        let origin = crate::plot::Origin::Measured(number + DARKER);
        Curve { label, origin, dots: dots.collect() }
    });
    let by_slack = Panel {
        title: "waste by slack".into(),
        x: Axis { label: "slack".into(), scale: Scale::Linear },
        y: "waste".into(),
        curves: across.chain([paper("published, buffer 8.4 h", &PUBLISHED)]).collect(),
    };
    Figure {
        file: "figure-3-buffer".into(),
        title: "Figure 3: waste by buffer and slack, as lines of the surface".into(),
        panels: vec![by_buffer, by_slack],
    }
}
