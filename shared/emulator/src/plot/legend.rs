//! What the curves of a figure are: each label once, in lines below the panels.

use super::canvas::{Anchor, BLACK, Canvas, Drawn, GREY, color, fitted, width_of};
use super::figure::{Curve, Figure, Origin};

const LINE: i32 = 22;
const TEXT: i32 = 12;

/// A label, and how what it names is drawn; a remark has no drawing.
pub(super) type Entry<'a> = (&'a str, Option<Origin>);

fn entry_width(label: &str) -> i32 {
    34 + width_of(label, TEXT) + 22
}

/// Each label once, in lines that are no wider than `width`.
pub(super) fn lines(figure: &Figure, width: i32) -> Vec<Vec<Entry<'_>>> {
    let mut entries: Vec<Entry<'_>> = Vec::new();
    for curve in curves(figure).filter(|curve| !curve.dots.is_empty()) {
        if !entries.iter().any(|(label, _)| *label == curve.label) {
            entries.push((&curve.label, Some(curve.origin)));
        }
    }
    let mut lines: Vec<Vec<Entry<'_>>> = Vec::new();
    let mut used = 0;
    for entry in entries {
        let needs = entry_width(entry.0);
        match lines.last_mut() {
            Some(line) if used + needs <= width => line.push(entry),
            _ => {
                lines.push(vec![entry]);
                used = 0;
            }
        }
        used += needs;
    }
    lines
}

/// What the bars are, if there are any; `cuts`, if some go on beyond an axis.
pub(super) fn remark(figure: &Figure, cuts: bool) -> Option<Vec<Entry<'static>>> {
    let has_bars = curves(figure).flat_map(|curve| &curve.dots).any(|dot| dot.half_width.is_some());
    let text = match cuts {
        true => "bars: 95 % confidence intervals, cut where the axis ends (there without a stroke)",
        false => "bars: 95 % confidence intervals",
    };
    has_bars.then(|| vec![(text, None)])
}

/// How high it is.
pub(super) fn height(lines: &[Vec<Entry<'_>>]) -> i32 {
    lines.len() as i32 * LINE
}

/// Draws it with the middle of its first line at `y`.
pub(super) fn draw(canvas: &Canvas<'_>, lines: &[Vec<Entry<'_>>], width: i32, y: i32) -> Drawn {
    for (line, y) in lines.iter().zip((y..).step_by(LINE as usize)) {
        let all: i32 = line.iter().map(|(label, _)| entry_width(label)).sum();
        let mut x = (width - all).max(0) / 2;
        for (label, origin) in line {
            match origin {
                None => {
                    canvas.text(label, (width / 2, y), TEXT, Anchor::Center, GREY)?;
                    continue;
                }
                Some(Origin::Measured(number)) => {
                    canvas.line(&[(x, y), (x + 26, y)], color(*number), 2)?;
                    canvas.marker((x + 13, y), *number, color(*number))?;
                }
                Some(Origin::Published) => canvas.diamond((x + 13, y), BLACK)?,
                Some(Origin::Claim) => canvas.dash((x + 13, y), BLACK)?,
            }
            let text = fitted(label, TEXT, width - 34);
            canvas.text(&text, (x + 34, y), TEXT, Anchor::Left, GREY)?;
            x += entry_width(label);
        }
    }
    Ok(())
}

fn curves(figure: &Figure) -> impl Iterator<Item = &Curve> {
    figure.panels.iter().flat_map(|panel| &panel.curves)
}

#[cfg(test)]
mod tests {
    use super::super::{Axis, Dot, Panel, Scale};
    use super::*;

    #[test]
    fn a_label_stands_in_the_legend_once_if_there_is_anything_of_it() {
        let curve =
            |label: &str, origin, dots: &[Dot]| Curve { label: label.into(), origin, dots: dots.into() };
        let dot = [Dot::given(1.0, 0.5)];
        let curves = vec![
            curve("CS1", Origin::Measured(0), &dot),
            curve("CS2", Origin::Measured(1), &[]),
            curve("published", Origin::Published, &dot),
        ];
        let x = Axis { label: "slack".into(), scale: Scale::Linear };
        let panel = Panel { title: String::new(), x, y: "waste".into(), curves };
        let mut figure = Figure { file: "f".into(), title: "f".into(), panels: vec![panel.clone(), panel] };
        let both = [("CS1", Some(Origin::Measured(0))), ("published", Some(Origin::Published))];
        assert_eq!(lines(&figure, 1_000), [both]);
        assert_eq!(lines(&figure, 120).len(), 2);
        assert_eq!(remark(&figure, false), None);
        figure.panels[0].curves[0].dots[0].half_width = Some(0.1);
        assert!(remark(&figure, false).is_some());
    }
}
