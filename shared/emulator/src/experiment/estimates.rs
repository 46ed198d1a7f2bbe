//! R5.25: estimates that are too low by a factor, JC1 against JC2, at slack 2 and 3.
//!
//! At base latency bounds nothing is late whatever is believed. Work send is as published, as in the paper;
//! the improved one is shown beside it.

use std::sync::Arc;

use fallow_domain::Flops;
use fallow_policy::completion::CompletionChoice;
use fallow_policy::completion::by_size::BySize;
use fallow_policy::completion::corrected::Corrected;
use fallow_policy::composition::Composition;

use super::{
    Arm, Curve, Measurements, Metric, Report, Row, Sample, Trial, claim, curve, improved, others, published,
    with_slack,
};
use crate::plot::{Axis, Figure, Panel, Scale};

const ID: &str = "R5.25";
const FACTORS: [f64; 9] = [1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 5.0, 6.0];
/// Why JC1's waste stays below 1 at slack 3.
const EARLY: &str = "of the jobs with which the host fills its buffer at once, the first two on a CPU are in time whatever is \
                     believed: 2 x 13,000 s of computing, 80% of the time on, take 32,500 s of a latency bound of 39,000 s";
const SLACKS: [(&str, f64); 2] = [("slack 2", 2.0), ("slack 3", 3.0)];

fn arm(group: &'static str, composition: Composition, completion: CompletionChoice) -> Arm {
    Arm { group, composition: Composition { completion, ..composition } }
}

fn arms(group: &'static str) -> [Arm; 4] {
    let (jc1, jc2) = (CompletionChoice::new(&BySize), CompletionChoice::new(&Corrected));
    [
        arm(group, published(), jc1),
        arm(group, published(), jc2),
        arm(group, improved(), jc1),
        arm(group, improved(), jc2),
    ]
}

fn own(group: &'static str) -> Vec<Arm> {
    others::arms(group, &["JC1", "JC2"], |completion| Composition { completion, ..published() })
}

pub(super) fn trials() -> Vec<Trial> {
    let trial = |arm, slack: f64, factor: f64| {
        let mut scenario = with_slack(slack);
        for application in scenario.projects.iter_mut().flat_map(|project| &mut project.applications) {
            let estimated = application.true_flops.mean.get() / factor;
            application.estimated_flops = Flops::new(estimated).unwrap_or(application.true_flops.mean);
        }
        Trial { arm, x: factor, scenario: Arc::new(scenario) }
    };
    let of_slack = |(group, slack): (&'static str, f64)| {
        arms(group)
            .into_iter()
            .chain(own(group))
            .flat_map(move |arm| FACTORS.map(|factor| trial(arm, slack, factor)))
    };
    SLACKS.into_iter().flat_map(of_slack).collect()
}

pub(super) fn report(m: &Measurements) -> Report {
    let mut rows = Vec::new();
    for (group, _) in SLACKS {
        let [jc1, jc2, jc1_improved, jc2_improved] = arms(group);
        let at_1 = |left, right| m.excess(left, right, |f| f == 1.0, Metric::Waste);
        let what = format!("{group}: JC1's waste less JC2's at f = 1");
        rows.push(Row::near(ID, what, 0.0, 0.02, at_1(jc1, jc2)));
        let what = format!("{group}: JC1's waste at f = 4");
        let waste = m.at(jc1, 4.0, Metric::Waste);
        let note = if group == "slack 3" { EARLY } else { "" };
        rows.push(
            Row::judged(ID, what, "nearly 1", "at least 0.90", waste, |waste| waste >= 0.9).noting(note),
        );
        let what = format!("{group}: JC2's waste over f = 1 to 6, largest less smallest");
        rows.push(Row::judged(ID, what, "constant", "at most 0.10", spread(m, jc2), |spread| spread <= 0.1));
        for (arm, name) in [(jc1_improved, "JC1"), (jc2_improved, "JC2")] {
            let what = format!("{group}, improved WS2: {name}'s waste at f = 4");
            rows.push(Row::shown(ID, what, "", m.at(arm, 4.0, Metric::Waste)));
        }
        rows.extend(others::rows(ID, m, &own(group), |_| true, "summed over f = 1 to 6"));
    }
    Report { rows, figures: vec![figure(m)] }
}

/// Largest less smallest, with an interval that is wide enough for both.
fn spread(m: &Measurements, arm: Arm) -> Option<Sample> {
    let (_, most) = m.largest(arm, |_| true, Metric::Waste)?;
    let (_, least) = m.smallest(arm, |_| true, Metric::Waste)?;
    let half_width = most.half_width.zip(least.half_width).map(|(most, least)| most + least);
    Some(Sample { mean: most.mean - least.mean, half_width, ..most })
}

fn figure(m: &Measurements) -> Figure {
    let x = Axis { label: "f, true size over estimated size".into(), scale: Scale::Linear };
    let of_slack = |(group, _): (&'static str, f64)| {
        let [jc1, jc2, jc1_improved, jc2_improved] = arms(group);
        let numbered = [(jc1, 1), (jc2, 0), (jc1_improved, 5), (jc2_improved, 4)];
        let mut curves: Vec<Curve> =
            numbered.into_iter().map(|(arm, number)| curve(m, arm, Metric::Waste, number)).collect();
        curves.push(claim("the paper's claim: JC1 at f = 4 nearly 1", &[(4.0, 1.0)]));
        if let Some(first) = m.at(jc2, 1.0, Metric::Waste) {
            let constant = [2.0, 3.0, 4.0, 5.0, 6.0].map(|factor| (factor, first.mean));
            curves.push(claim("the paper's claim applied to our JC2: as at f = 1", &constant));
        }
        curves.extend(others::curves(m, &own(group), Metric::Waste));
        Panel { title: format!("waste at {group}"), x: x.clone(), y: "waste".into(), curves }
    };
    Figure {
        file: "figure-6-estimates".into(),
        title: "Figure 6: estimates that are too low".into(),
        panels: SLACKS.map(of_slack).into(),
    }
}
