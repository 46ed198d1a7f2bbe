//! R5.23: work fetch over mixes of 1 to 20 projects, WF1 against WF2.

use fallow_policy::composition::Composition;
use fallow_policy::fetch::FetchChoice;
use fallow_policy::fetch::starvation::Starvation;

use super::{
    Arm, Curve, Measurements, Metric, Report, Row, TIGHT, Trial, claim, curve, improved, mixes, others, panel,
};
use crate::plot::{Axis, Figure, Scale};

const ID: &str = "R5.23";
const BASE: &str = "base";
const TIGHTER: &str = "base latency 36 h";

/// Why monotony differs, and what shows that.
const HABITS: &str = "WF1 holds jobs of every project at once, so the host can switch each scheduling period; WF2 holds \
                      those of the few projects that are owed most, and mostly switches when a job ends. Tried at M = 10 \
                      and base values: WF1 holds 10.7 jobs on average, WF2 3.4; with ten times the buffer WF2 holds 12.1, \
                      and its monotony falls from 0.80 to 0.03, which is WF1's";
/// Why WF2's share violation is no smaller at base values.
const SMALL: &str = "there is hardly any to cut: a mix has 0.003 with WF1 and 0.006 with WF2 on average. WF1, which holds jobs of \
                     every project, can give each its share at any time; WF2 holds those of a few and gives them theirs. \
                     Against the shares alone WF2 is 0.09 off at M = 20, where 100 days are about five jobs of each \
                     project: 0.02 over 400 days, 0.005 over 1,600";
/// Why share violation falls to much less than half at 36 h.
const MORE: &str = "WF2's stays small at any M while WF1's rises up to M = 14: 0.013 and 0.023 at M = 5, which is about half, then \
                    0.010 and 0.050 at 6, 0.010 and 0.186 at 10, 0.010 and 0.323 at 14, 0.011 and 0.225 at 20; over M = 4 \
                    to 20 that is a twentieth. Which of the two is larger or smaller in the paper its text does not say";

fn wf1(group: &'static str) -> Arm {
    Arm { group, composition: Composition { fetch: FetchChoice::new(&Starvation), ..improved() } }
}
fn wf2(group: &'static str) -> Arm {
    Arm { group, composition: improved() }
}
fn own(group: &'static str) -> Vec<Arm> {
    others::arms(group, &["WF1", "WF2"], |fetch| Composition { fetch, ..improved() })
}

pub(super) fn trials() -> Vec<Trial> {
    let arms =
        [(wf1(BASE), None), (wf2(BASE), None), (wf1(TIGHTER), Some(TIGHT)), (wf2(TIGHTER), Some(TIGHT))];
    let own = |group, base| own(group).into_iter().map(move |arm| (arm, base));
    let arms = arms.into_iter().chain(own(BASE, None)).chain(own(TIGHTER, Some(TIGHT)));
    arms.flat_map(|(arm, base)| mixes(arm, base)).collect()
}

pub(super) fn report(m: &Measurements) -> Report {
    let judged = |x: f64| x >= 4.0;
    let over = "summed over M = 4 to 20";
    let mut rows = Vec::new();
    let part = |group, metric| m.ratio(wf2(group), wf1(group), judged, metric);
    for metric in [Metric::Waste, Metric::ShareViolation] {
        let published = if metric == Metric::Waste { "about 0.10" } else { "about 0.50" };
        for (arm, name) in [(wf1(BASE), "WF1"), (wf2(BASE), "WF2")] {
            let what = format!("base values: {name}'s {}, {over}", metric.name());
            let note = if metric == Metric::ShareViolation && name == "WF2" { SMALL } else { "" };
            rows.push(Row::shown(ID, what, "", m.sum(arm, judged, metric)).noting(note));
        }
        let what = format!("base values: WF2's {} as a part of WF1's, {over}", metric.name());
        let ratio = part(BASE, metric);
        let note = match (metric, ratio) {
            (Metric::ShareViolation, _) => SMALL,
            (_, None) => "WF1's is 0 at base values: there is nothing to save",
            _ => "",
        };
        rows.push(Row::shown(ID, what, published, ratio).noting(note));
    }
    for (arm, name) in [(wf1(BASE), "WF1"), (wf2(BASE), "WF2")] {
        let what = format!("base values: {name}'s processing received, how far off the shares (at 4)");
        rows.push(Row::shown(ID, what, "", m.off_shares(arm, 4.0)));
    }
    for (arm, name) in [(wf1(TIGHTER), "WF1"), (wf2(TIGHTER), "WF2")] {
        let what = format!("{TIGHTER}: {name}'s waste, {over}");
        rows.push(Row::shown(ID, what, "", m.sum(arm, judged, Metric::Waste)));
    }
    let what = format!("{TIGHTER}: WF2's waste as a part of WF1's, {over}");
    let waste = part(TIGHTER, Metric::Waste);
    rows.push(Row::judged(ID, what, "about 0.10", "at most 0.20", waste, |part| part <= 0.2));
    let less = m.excess(wf1(TIGHTER), wf2(TIGHTER), judged, Metric::ShareViolation);
    let what = format!("{TIGHTER}: WF1's share violation less WF2's, {over}");
    rows.push(Row::judged(ID, what, "almost halved", "above 0", less, |less| less > 0.0));
    let what = format!("{TIGHTER}: WF2's share violation as a part of WF1's, {over}");
    rows.push(Row::shown(ID, what, "about 0.50", part(TIGHTER, Metric::ShareViolation)).noting(MORE));
    for group in [BASE, TIGHTER] {
        let name = if group == BASE { "base values" } else { group };
        for metric in [Metric::Idleness, Metric::Monotony] {
            let count = m.xs(wf1(group)).into_iter().filter(|x| judged(*x)).count().max(1) as f64;
            let excess = m.excess(wf1(group), wf2(group), judged, metric);
            let mean = excess.map(|sum| super::rows::scaled(sum, 1.0 / count));
            let what = format!("{name}: WF1's {} less WF2's, mean over M = 4 to 20", metric.name());
            let note = match metric {
                Metric::Monotony => HABITS,
                _ => "",
            };
            rows.push(Row::near(ID, what, 0.0, 0.10, mean).noting(note));
        }
    }
    for group in [BASE, TIGHTER] {
        rows.extend(others::rows(ID, m, &own(group), judged, over));
    }
    Report {
        rows,
        figures: vec![figure(m, BASE, "figure-4-fetch"), figure(m, TIGHTER, "figure-4-fetch-36h")],
    }
}

fn figure(m: &Measurements, group: &'static str, file: &str) -> Figure {
    let x = Axis { label: "M, projects in the mix".into(), scale: Scale::Linear };
    let curves = |metric| -> Vec<Curve> {
        let mut curves = vec![curve(m, wf1(group), metric, 1), curve(m, wf2(group), metric, 0)];
        // The paper gives WF2 by WF1: that part of our WF1 is what ours would be, and no published value.
        let (label, part) = match metric {
            Metric::Waste => ("the paper's claim applied to our WF1: about a tenth of its waste", 0.10),
            _ => ("the paper's claim applied to our WF1: about half of its share violation", 0.50),
        };
        let samples = m.samples(wf1(group), |x| x >= 4.0, metric).into_iter();
        curves.push(claim(label, &samples.map(|(x, sample)| (x, part * sample.mean)).collect::<Vec<_>>()));
        curves.extend(others::curves(m, &own(group), metric));
        curves
    };
    let panels = [("(a)", Metric::Waste), ("(b)", Metric::ShareViolation)];
    Figure {
        file: file.into(),
        title: format!("Figure 4: work fetch, {}", if group == BASE { "base values" } else { group }),
        panels: panels.map(|(letter, metric)| panel(letter, metric, &x, curves(metric))).into(),
    }
}
