//! Charts: curves over a parameter, in panels side by side, with one legend below.
//!
//! Measured values are joined dots with their 95 % intervals; published ones are open diamonds around them. Curves that
//! coincide stand a pixel or two apart, so that none hides another.

use super::canvas::{self, Anchor, BLACK, Canvas, DrawError, Drawn, GREY, LIGHT, color, width_of};
use super::figure::{Curve, Figure, Origin, Panel, Scale, name_at};
use super::ticks;

const PANEL: (i32, i32) = (480, 320);
const TITLE: i32 = 40;
const LEGEND_LINE: i32 = 22;
const TEXT: i32 = 12;
/// Room within a panel: left for the values, right, above for its title, below for the axis.
const MARGIN: (i32, i32, i32, i32) = (64, 16, 30, 52);

/// A figure as SVG.
///
/// # Errors
/// [`DrawError`] when the library that draws fails, which it does not on a text.
pub fn svg(figure: &Figure) -> Result<String, DrawError> {
    let columns = figure.panels.len().clamp(1, 2) as i32;
    let rows = (figure.panels.len() as i32 + columns - 1) / columns;
    let width = columns * PANEL.0;
    let legend = legend_lines(figure, width - 2 * MARGIN.1);
    let size = (width, TITLE + rows * PANEL.1 + legend.len() as i32 * LEGEND_LINE + 12);
    canvas::svg(size, |canvas| {
        canvas.text(&figure.title, (width / 2, TITLE / 2), 16, Anchor::Center, BLACK)?;
        for (index, panel) in figure.panels.iter().enumerate() {
            let (column, row) = (index as i32 % columns, index as i32 / columns);
            draw_panel(canvas, panel, (column * PANEL.0, TITLE + row * PANEL.1))?;
        }
        for (index, line) in legend.iter().enumerate() {
            draw_legend(canvas, line, width, TITLE + rows * PANEL.1 + index as i32 * LEGEND_LINE + 10)?;
        }
        Ok(())
    })
}

/// The field of a panel, and where values lie in it.
struct Field<'a> {
    scale: &'a Scale,
    left: i32,
    right: i32,
    top: i32,
    bottom: i32,
    low: f64,
    high: f64,
    most: f64,
    is_whole: bool,
}

impl<'a> Field<'a> {
    fn new(panel: &'a Panel, (x, y): (i32, i32)) -> Self {
        let dots = || panel.curves.iter().flat_map(|curve| &curve.dots);
        let lowest = dots().map(|dot| dot.x).fold(f64::INFINITY, f64::min);
        let highest = dots().map(|dot| dot.x).fold(f64::NEG_INFINITY, f64::max);
        let (low, high) = match &panel.x.scale {
            Scale::Names(names) => (-0.5, names.len().max(1) as f64 - 0.5),
            _ if lowest < highest => (lowest, highest),
            _ if lowest.is_finite() => (lowest - 0.5, lowest + 0.5),
            _ => (0.0, 1.0),
        };
        Self {
            scale: &panel.x.scale,
            left: x + MARGIN.0,
            right: x + PANEL.0 - MARGIN.1,
            top: y + MARGIN.2,
            bottom: y + PANEL.1 - MARGIN.3,
            low,
            high,
            is_whole: dots().all(|dot| dot.x.fract() == 0.0),
            most: ticks::top(dots().map(|dot| (dot.y + dot.half_width.unwrap_or(0.0)).min(dot.y.max(1.0)))),
        }
    }

    fn x(&self, value: f64) -> i32 {
        let along = |value: f64| match self.scale {
            Scale::Logarithmic => value.max(1e-9).ln(),
            _ => value,
        };
        let part = (along(value) - along(self.low)) / (along(self.high) - along(self.low));
        // Dots at the ends stay clear of the axes.
        let (left, right) = (self.left + 12, self.right - 12);
        left + (part * f64::from(right - left)).round() as i32
    }

    fn y(&self, value: f64) -> i32 {
        self.bottom
            - (value.clamp(0.0, self.most) / self.most * f64::from(self.bottom - self.top)).round() as i32
    }
}

fn draw_panel(canvas: &Canvas<'_>, panel: &Panel, at: (i32, i32)) -> Drawn {
    let field = Field::new(panel, at);
    let middle = i32::midpoint(field.left, field.right);
    canvas.text(&panel.title, (middle, at.1 + MARGIN.2 / 2), 14, Anchor::Center, BLACK)?;
    draw_axes(canvas, panel, &field)?;
    let measured = panel.curves.iter().filter(|curve| matches!(curve.origin, Origin::Measured(_)));
    let count = measured.clone().count() as i32;
    for (index, curve) in measured.enumerate() {
        draw_curve(canvas, curve, &field, 2 * index as i32 - (count - 1))?;
    }
    for curve in panel.curves.iter().filter(|curve| curve.origin == Origin::Published) {
        for dot in &curve.dots {
            canvas.diamond((field.x(dot.x), field.y(dot.y)), BLACK)?;
        }
    }
    Ok(())
}

fn draw_axes(canvas: &Canvas<'_>, panel: &Panel, field: &Field<'_>) -> Drawn {
    let Field { left, right, top, bottom, .. } = *field;
    for (value, label) in ticks::linear(0.0, field.most, 6) {
        let y = field.y(value);
        canvas.line(&[(left, y), (right, y)], LIGHT, 1)?;
        canvas.text(&label, (left - 8, y), TEXT, Anchor::Right, BLACK)?;
    }
    let marks = match field.scale {
        // Where all values are whole, what lies between means nothing.
        Scale::Linear if field.is_whole => {
            let whole = |(value, _): &(f64, String)| value.fract() == 0.0;
            ticks::linear(field.low, field.high, 11).into_iter().filter(whole).map(without_decimals).collect()
        }
        Scale::Linear => ticks::linear(field.low, field.high, 11),
        Scale::Logarithmic => ticks::logarithmic(field.low, field.high),
        Scale::Names(names) => {
            let named = |n: usize| (n as f64, name_at(names, n as f64).unwrap_or_default().to_owned());
            (0..names.len()).map(named).collect()
        }
    };
    let widest = marks.iter().map(|(_, label)| width_of(label, TEXT) + 10).max().unwrap_or(0);
    let mut free_from = i32::MIN;
    for (value, label) in marks {
        let x = field.x(value);
        if !matches!(field.scale, Scale::Names(_)) {
            canvas.line(&[(x, top), (x, bottom)], LIGHT, 1)?;
        }
        let length = if label.is_empty() { 3 } else { 6 };
        canvas.line(&[(x, bottom), (x, bottom + length)], BLACK, 1)?;
        // A label that would run into the one before it is left out.
        if !label.is_empty() && x - widest / 2 >= free_from {
            canvas.text(&label, (x, bottom + 16), TEXT, Anchor::Center, BLACK)?;
            free_from = x + widest / 2;
        }
    }
    canvas.line(&[(left, top), (left, bottom), (right, bottom)], BLACK, 1)?;
    let middle = i32::midpoint(left, right);
    canvas.text(&panel.x.label, (middle, bottom + 38), TEXT, Anchor::Center, BLACK)?;
    canvas.text(&panel.y, (left - 48, i32::midpoint(top, bottom)), TEXT, Anchor::Upwards, BLACK)
}

fn without_decimals((value, _): (f64, String)) -> (f64, String) {
    (value, format!("{value:.0}"))
}

fn draw_curve(canvas: &Canvas<'_>, curve: &Curve, field: &Field<'_>, aside: i32) -> Drawn {
    let Origin::Measured(number) = curve.origin else { return Ok(()) };
    let place = |dot: &super::Dot| (field.x(dot.x) + aside, field.y(dot.y));
    let points: Vec<(i32, i32)> = curve.dots.iter().map(place).collect();
    if points.len() > 1 && !matches!(field.scale, Scale::Names(_)) {
        canvas.line(&points, color(number), 2)?;
    }
    for (dot, (x, y)) in curve.dots.iter().zip(points) {
        if let Some(half) = dot.half_width {
            let (low, high) = (field.y(dot.y - half), field.y(dot.y + half));
            if low - high > 2 {
                canvas.line(&[(x, low), (x, high)], color(number), 1)?;
                canvas.line(&[(x - 3, low), (x + 3, low)], color(number), 1)?;
                canvas.line(&[(x - 3, high), (x + 3, high)], color(number), 1)?;
            }
        }
        canvas.marker((x, y), number, color(number))?;
    }
    Ok(())
}

/// A label of the legend, and how it is drawn.
type Entry<'a> = (&'a str, Origin);

fn entry_width(label: &str) -> i32 {
    34 + width_of(label, TEXT) + 22
}

/// Each label once, in lines that are no wider than `width`.
fn legend_lines(figure: &Figure, width: i32) -> Vec<Vec<Entry<'_>>> {
    let mut entries: Vec<Entry<'_>> = Vec::new();
    for curve in figure.panels.iter().flat_map(|panel| &panel.curves) {
        if !entries.iter().any(|(label, _)| *label == curve.label) {
            entries.push((&curve.label, curve.origin));
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

fn draw_legend(canvas: &Canvas<'_>, line: &[Entry<'_>], width: i32, y: i32) -> Drawn {
    let all: i32 = line.iter().map(|(label, _)| entry_width(label)).sum();
    let mut x = (width - all).max(0) / 2;
    for (label, origin) in line {
        match origin {
            Origin::Measured(number) => {
                canvas.line(&[(x, y), (x + 26, y)], color(*number), 2)?;
                canvas.marker((x + 13, y), *number, color(*number))?;
            }
            Origin::Published => canvas.diamond((x + 13, y), BLACK)?,
        }
        canvas.text(label, (x + 34, y), TEXT, Anchor::Left, GREY)?;
        x += entry_width(label);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::{Axis, Dot};
    use super::*;

    fn figure() -> Figure {
        let curve = |label: &str, origin, ys: &[f64]| Curve {
            label: label.into(),
            origin,
            dots: ys
                .iter()
                .enumerate()
                .map(|(n, y)| Dot { x: n as f64 + 1.0, y: *y, half_width: Some(0.03) })
                .collect(),
        };
        let panel = |title: &str, scale| Panel {
            title: title.into(),
            x: Axis { label: "slack".into(), scale },
            y: "waste".into(),
            curves: vec![
                curve("CS1", Origin::Measured(0), &[1.0, 0.8, 0.3, 0.1]),
                curve("CS2", Origin::Measured(1), &[1.0, 0.7, 0.2, 0.0]),
                curve("published", Origin::Published, &[1.0, 0.75, 0.24, 0.02]),
            ],
        };
        let names = ["one", "two", "three", "four"].map(str::to_owned).to_vec();
        let panels = vec![
            panel("(a) linear", Scale::Linear),
            panel("(b) logarithmic", Scale::Logarithmic),
            panel("(c) names", Scale::Names(names)),
        ];
        Figure { file: "f".into(), title: "Figure & title".into(), panels }
    }

    #[test]
    fn r5_14_a_chart_has_its_labels_and_the_same_bytes_for_the_same_values() {
        let drawn = svg(&figure()).unwrap();
        assert_eq!(drawn, svg(&figure()).unwrap());
        for text in ["Figure &amp; title", "(a) linear", "slack", "waste", "CS1", "published", "three"] {
            assert!(drawn.contains(text), "{text}");
        }
    }

    #[test]
    fn a_label_stands_in_the_legend_once() {
        let figure = figure();
        let lines = legend_lines(&figure, 1_000);
        assert_eq!(
            lines,
            [[("CS1", Origin::Measured(0)), ("CS2", Origin::Measured(1)), ("published", Origin::Published)]]
        );
        assert_eq!(legend_lines(&figure, 120).len(), 3);
    }

    #[test]
    fn an_empty_figure_is_still_a_picture() {
        let mut empty = figure();
        empty.panels.iter_mut().for_each(|panel| panel.curves.clear());
        assert!(svg(&empty).unwrap().contains("(a) linear"));
        empty.panels.clear();
        assert!(svg(&empty).unwrap().ends_with("</svg>\n"));
    }
}
