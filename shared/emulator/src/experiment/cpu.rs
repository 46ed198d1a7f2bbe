//! R5.20: CPU scheduling over mixes of 1 to 20 projects, CS1 against CS2.

use fallow_policy::composition::{Composition, CpuPolicy};

use super::rows::{at, scaled, value};
use super::{Arm, Measurements, Metric, Report, Row, TIGHT, Trial, curve, mixes, panel, paper};
use crate::plot::{Axis, Figure, Scale};

const ID: &str = "R5.20";
const BASE: &str = "base";
const TIGHTER: &str = "base latency 36 h";

fn cs1(group: &'static str) -> Arm {
    Arm { group, composition: Composition { cpu: CpuPolicy::Cs1, ..Composition::default() } }
}
fn cs2(group: &'static str) -> Arm {
    Arm { group, composition: Composition::default() }
}

pub(super) fn trials() -> Vec<Trial> {
    let arms =
        [(cs1(BASE), None), (cs2(BASE), None), (cs1(TIGHTER), Some(TIGHT)), (cs2(TIGHTER), Some(TIGHT))];
    arms.into_iter().flat_map(|(arm, base)| mixes(arm, base)).collect()
}

pub(super) fn report(m: &Measurements) -> Report {
    let mut rows = Vec::new();
    let lower = "lower with CS2 for M over 3, often by more than 0.10";
    let over_3 = |x: f64| x > 3.0;
    let all = |_: f64| true;
    let count = |group| m.xs(cs2(group)).into_iter().filter(|x| over_3(*x)).count().max(1) as f64;
    // At base values, as it comes.
    let excess = m.excess(cs1(BASE), cs2(BASE), over_3, Metric::Waste);
    let mean = excess.map(|sum| scaled(sum, 1.0 / count(BASE)));
    rows.push(
        Row::shown(ID, "base values: CS1's waste less CS2's, mean over M = 4 to 20", lower, mean).noting(
            "at a base latency of 9 days no deadline is in danger, so there is nothing for CS2 to save",
        ),
    );
    for (arm, name) in [(cs1(BASE), "CS1"), (cs2(BASE), "CS2")] {
        let most = m.largest(arm, all, Metric::Waste);
        rows.push(Row::shown(
            ID,
            at(format!("base values: {name}'s largest waste"), most),
            "",
            most.map(value),
        ));
    }
    // At 36 h, judged.
    let most = m.largest_excess(cs2(TIGHTER), cs1(TIGHTER), all, Metric::Waste);
    rows.push(Row::judged(
        ID,
        at("base latency 36 h: CS2's waste less CS1's, where it is largest".into(), most),
        "CS2 wastes no more",
        "at most 0 at any M",
        most.map(value),
        |excess| excess <= 1e-9,
    ));
    let sum = m.excess(cs1(TIGHTER), cs2(TIGHTER), all, Metric::Waste);
    let what = "base latency 36 h: CS1's waste less CS2's, summed over M = 1 to 20";
    rows.push(Row::judged(ID, what, lower, "above 0", sum, |sum| sum > 0.0));
    for group in [BASE, TIGHTER] {
        let of = |metric, limit: f64, published: &str| {
            let worst = [cs1(group), cs2(group)].into_iter().filter_map(|arm| m.largest(arm, all, metric));
            let worst = worst.reduce(|most, next| if next.1.mean > most.1.mean { next } else { most });
            let what = at(format!("{}: largest {} of both", circumstances(group), metric.name()), worst);
            let expected = format!("at most {limit:.2}");
            Row::judged(ID, what, published, expected, worst.map(value), |mean| mean <= limit)
        };
        rows.push(of(Metric::Idleness, 0.05, "near 0"));
        rows.push(of(Metric::ShareViolation, 0.10, "mostly under 0.10"));
        let ends = m.rise(cs2(group), 2.0, 20.0, Metric::Monotony);
        let what = format!("{}: CS2's monotony at M = 20 less that at M = 2", circumstances(group));
        rows.push(Row::judged(ID, what, "rises quickly with M", "above 0", ends, |rise| rise > 0.0));
    }
    Report { rows, figures: vec![figure(m, BASE, "figure-1-cpu"), figure(m, TIGHTER, "figure-1-cpu-36h")] }
}

fn circumstances(group: &str) -> &str {
    if group == BASE { "base values" } else { group }
}

fn figure(m: &Measurements, group: &'static str, file: &str) -> Figure {
    let x = Axis { label: "M, projects in the mix".into(), scale: Scale::Linear };
    let curves = |metric| {
        let mut curves = vec![curve(m, cs1(group), metric, 1), curve(m, cs2(group), metric, 0)];
        if metric == Metric::ShareViolation {
            let limit = m.xs(cs2(group)).into_iter().map(|x| (x, 0.10)).collect::<Vec<_>>();
            curves.push(paper("published: share violation mostly under this", &limit));
        }
        curves
    };
    let panels = [
        ("(a)", Metric::Waste),
        ("(b)", Metric::Monotony),
        ("not drawn in the paper:", Metric::ShareViolation),
        ("not drawn in the paper:", Metric::Idleness),
    ];
    Figure {
        file: file.into(),
        title: format!("Figure 1: CPU scheduling, {}", circumstances(group)),
        panels: panels.map(|(letter, metric)| panel(letter, metric, &x, curves(metric))).into(),
    }
}
