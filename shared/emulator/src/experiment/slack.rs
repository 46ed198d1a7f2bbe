//! R5.21: one project whose latency bound is 1 to 60 times what a job takes.

use std::sync::Arc;

use fallow_policy::composition::Composition;
use fallow_policy::send::Ws2Switches;

use super::rows::{at, value};
use super::{
    Arm, Curve, Measurements, Metric, Report, Row, Trial, curve, improved, panel, paper, published,
    with_slack,
};
use crate::plot::{Axis, Figure, Panel, Scale};

const ID: &str = "R5.21";
const SLACKS: [f64; 17] =
    [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 15.0, 20.0, 25.0, 30.0, 40.0, 50.0, 60.0];
/// Waste by slack, as published; beyond it is 0.
pub(super) const PUBLISHED: [(f64, f64); 5] = [(1.0, 1.0), (2.0, 0.75), (3.0, 0.24), (4.0, 0.02), (5.0, 0.0)];
/// How near is near enough.
pub(super) const TOLERANCE: f64 = 0.10;

const CALM: [Metric; 3] = [Metric::Idleness, Metric::ShareViolation, Metric::Monotony];

fn arm(ws2: Ws2Switches) -> Arm {
    Arm { group: "", composition: Composition { ws2, ..improved() } }
}

/// As published, and with each of the improvements.
fn arms() -> [Arm; 4] {
    let (count_chosen, scale_by_availability) = (true, true);
    [
        Arm { group: "", composition: published() },
        arm(Ws2Switches { count_chosen, ..Ws2Switches::PUBLISHED }),
        arm(Ws2Switches { scale_by_availability, ..Ws2Switches::PUBLISHED }),
        arm(Ws2Switches::IMPROVED),
    ]
}

pub(super) fn trials() -> Vec<Trial> {
    let trial = |(arm, slack)| Trial { arm, x: slack, scenario: Arc::new(with_slack(slack)) };
    arms().into_iter().flat_map(|arm| SLACKS.map(|slack| (arm, slack))).map(trial).collect()
}

pub(super) fn report(m: &Measurements) -> Report {
    let as_published = arms()[0];
    let mut rows = Vec::new();
    for (slack, waste) in PUBLISHED {
        let measured = m.at(as_published, slack, Metric::Waste);
        rows.push(Row::near(ID, format!("waste at slack {slack}"), waste, TOLERANCE, measured));
    }
    let most = m.largest(as_published, |slack| slack > 5.0, Metric::Waste);
    rows.push(Row::near(
        ID,
        at("largest waste at slack 6 to 60".into(), most),
        0.0,
        TOLERANCE,
        most.map(value),
    ));
    for metric in CALM {
        let most = m.largest(as_published, |_| true, metric);
        let what = at(format!("largest {} at any slack", metric.name()), most);
        rows.push(Row::near(ID, what, 0.0, 0.02, most.map(value)));
    }
    for arm in &arms()[1..] {
        for (slack, waste) in &PUBLISHED[..3] {
            let what = format!("{}: waste at slack {slack}", arm.composition);
            let published = format!("{waste:.2} (WS2 as published)");
            rows.push(Row::shown(ID, what, published, m.at(*arm, *slack, Metric::Waste)));
        }
    }
    Report { rows, figures: vec![figure(m)] }
}

fn figure(m: &Measurements) -> Figure {
    let x = Axis { label: "slack, latency bound in times of a job's length".into(), scale: Scale::Linear };
    // Beyond 5 it is 0 everywhere: a few markers say so.
    let beyond = [10.0, 20.0, 30.0, 40.0, 50.0, 60.0].map(|slack| (slack, 0.0));
    let known: Vec<(f64, f64)> = PUBLISHED.into_iter().chain(beyond).collect();
    let calm = [(1.0, 0.0)].into_iter().chain(beyond).collect::<Vec<_>>();
    let first =
        |curve: Curve| Curve { dots: curve.dots.into_iter().filter(|dot| dot.x <= 10.0).collect(), ..curve };
    let curves = |metric, published: &[(f64, f64)]| {
        let of_arm = |(number, arm): (usize, Arm)| curve(m, arm, metric, number);
        let mut curves: Vec<Curve> = arms().into_iter().enumerate().map(of_arm).collect();
        curves.push(paper("published", published));
        curves
    };
    let wastes = || curves(Metric::Waste, &known);
    let near = Panel {
        title: "waste up to slack 10".into(),
        ..panel("", Metric::Waste, &x, wastes().into_iter().map(first).collect())
    };
    let others = CALM.into_iter().map(|metric| panel("", metric, &x, curves(metric, &calm)));
    let panels = [panel("", Metric::Waste, &x, wastes()), near].into_iter().chain(others);
    Figure { file: "figure-2-slack".into(), title: "Figure 2: slack".into(), panels: panels.collect() }
}
