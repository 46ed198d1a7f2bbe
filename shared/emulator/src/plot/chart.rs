//! Charts: curves over a parameter, in panels side by side, with one legend below.
//!
//! Measured values are joined dots with their 95 % intervals, without a stroke at the end where the axis ends
//! before them; published ones are open diamonds around them, and what a published statement makes of our own
//! values are dashes. Curves that coincide stand a pixel or two apart, so that none hides another, where
//! values lie far enough apart.

use super::canvas::{self, Anchor, BLACK, Canvas, DrawError, Drawn, LIGHT, color, fitted, width_of};
use super::figure::{Curve, Dot, Figure, Origin, Panel, Scale, name_at};
use super::{legend, ticks};

const PANEL: (i32, i32) = (480, 320);
const TITLE: i32 = 40;
const TEXT: i32 = 12;
/// The most room that names get which stand upright because they are too wide to lie side by side.
const UPRIGHT: i32 = 150;
/// An interval is drawn if it is longer than this; a shorter one lies within the marker.
const SHORTEST: i32 = 2;
/// Room above the axis's highest value, so that a diamond there stays clear of the title.
const HEAD: i32 = 12;
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
    let upright = figure.panels.iter().map(upright).max().unwrap_or(0);
    let height = PANEL.1 + upright;
    let fields: Vec<Field<'_>> = (0..)
        .zip(&figure.panels)
        .map(|(index, panel)| {
            let (column, row) = (index % columns, index / columns);
            Field::new(panel, (column * PANEL.0, TITLE + row * height))
        })
        .collect();
    let mut lines = legend::lines(figure, width - 2 * MARGIN.1);
    lines.extend(legend::remark(figure, fields.iter().any(Field::cuts)));
    let below = TITLE + rows * height;
    let size = (width, below + legend::height(&lines) + 12);
    canvas::svg(size, |canvas| {
        let title = fitted(&figure.title, 16, width - 2 * MARGIN.1);
        canvas.text(&title, (width / 2, TITLE / 2), 16, Anchor::Center, BLACK)?;
        for field in &fields {
            draw_panel(canvas, field, upright)?;
        }
        legend::draw(canvas, &lines, width, below + 10)
    })
}

/// How much higher a panel has to be for names that do not fit side by side; 0 if they do.
fn upright(panel: &Panel) -> i32 {
    let Scale::Names(names) = &panel.x.scale else { return 0 };
    let widest = names.iter().map(|name| width_of(name, TEXT)).max().unwrap_or(0);
    let room = (PANEL.0 - MARGIN.0 - MARGIN.1 - 24) / names.len().max(1) as i32;
    // Lying, they have the height of a line already.
    if widest + 10 <= room { 0 } else { widest.min(UPRIGHT) - TEXT }
}

/// The field of a panel, and where values lie in it.
struct Field<'a> {
    panel: &'a Panel,
    /// Where the panel begins, with its title.
    above: i32,
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
            panel,
            above: y,
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
        let along = |value: f64| match self.panel.x.scale {
            Scale::Logarithmic => value.max(1e-9).ln(),
            _ => value,
        };
        let part = (along(value) - along(self.low)) / (along(self.high) - along(self.low));
        // Dots at the ends stay clear of the axes.
        let (left, right) = (self.left + 12, self.right - 12);
        left + (part * f64::from(right - left)).round() as i32
    }

    fn y(&self, value: f64) -> i32 {
        let part = value.clamp(0.0, self.most) / self.most;
        self.bottom - (part * f64::from(self.bottom - self.top - HEAD)).round() as i32
    }

    /// Whether so many curves side by side would be seen at other values than their own, since values lie
    /// close together.
    fn is_crowded(&self, count: i32) -> bool {
        let mut places: Vec<i32> =
            self.panel.curves.iter().flat_map(|curve| &curve.dots).map(|dot| self.x(dot.x)).collect();
        places.sort_unstable();
        places.dedup();
        let nearest = places.windows(2).map(|pair| pair[1] - pair[0]).min();
        // From the first to the last at most a third of the way to the next value.
        nearest.is_some_and(|nearest| 3 * 2 * (count - 1) > nearest)
    }

    /// Whether intervals go on beyond the axis.
    fn cuts(&self) -> bool {
        let measured = self.panel.curves.iter().filter(|curve| matches!(curve.origin, Origin::Measured(_)));
        measured.flat_map(|curve| &curve.dots).any(|dot| self.is_cut(dot).0 || self.is_cut(dot).1)
    }

    /// Whether a value's interval goes on below the axis, and above.
    fn is_cut(&self, dot: &Dot) -> (bool, bool) {
        let half = dot.half_width.unwrap_or(0.0);
        // What is not drawn for being too short is not cut either.
        let is_drawn = self.y(dot.y - half) - self.y(dot.y + half) > SHORTEST;
        (is_drawn && dot.y - half < -1e-9, is_drawn && dot.y + half > self.most + 1e-9)
    }
}

fn draw_panel(canvas: &Canvas<'_>, field: &Field<'_>, upright: i32) -> Drawn {
    let panel = field.panel;
    let middle = i32::midpoint(field.left, field.right);
    canvas.text(&panel.title, (middle, field.above + MARGIN.2 / 2), 14, Anchor::Center, BLACK)?;
    draw_axes(canvas, field, upright)?;
    let measured = panel.curves.iter().filter(|curve| matches!(curve.origin, Origin::Measured(_)));
    let count = measured.clone().count() as i32;
    let step = if field.is_crowded(count) { 0 } else { 1 };
    for (index, curve) in measured.enumerate() {
        draw_curve(canvas, curve, field, step * (2 * index as i32 - (count - 1)))?;
    }
    for curve in &panel.curves {
        for dot in &curve.dots {
            let place = (field.x(dot.x), field.y(dot.y));
            match curve.origin {
                Origin::Published => canvas.diamond(place, BLACK)?,
                Origin::Claim => canvas.dash(place, BLACK)?,
                Origin::Measured(_) => {}
            }
        }
    }
    Ok(())
}

fn draw_axes(canvas: &Canvas<'_>, field: &Field<'_>, upright: i32) -> Drawn {
    let panel = field.panel;
    let Field { left, right, top, bottom, .. } = *field;
    for (value, label) in ticks::linear(0.0, field.most, 6) {
        let y = field.y(value);
        canvas.line(&[(left, y), (right, y)], LIGHT, 1)?;
        canvas.text(&label, (left - 8, y), TEXT, Anchor::Right, BLACK)?;
    }
    let marks = match &panel.x.scale {
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
    let is_upright = upright > 0 && matches!(panel.x.scale, Scale::Names(_));
    let widest = marks.iter().map(|(_, label)| width_of(label, TEXT) + 10).max().unwrap_or(0);
    let widest = if is_upright { TEXT + 2 } else { widest };
    let mut free_from = i32::MIN;
    for (value, label) in marks {
        let x = field.x(value);
        if !matches!(panel.x.scale, Scale::Names(_)) {
            canvas.line(&[(x, top), (x, bottom)], LIGHT, 1)?;
        }
        let length = if label.is_empty() { 3 } else { 6 };
        canvas.line(&[(x, bottom), (x, bottom + length)], BLACK, 1)?;
        // A label that would run into the one before it is left out.
        if !label.is_empty() && x - widest / 2 >= free_from {
            let (room, below, anchor) =
                if is_upright { (UPRIGHT, 9, Anchor::UpTo) } else { (right - left, 16, Anchor::Center) };
            canvas.text(&fitted(&label, TEXT, room), (x, bottom + below), TEXT, anchor, BLACK)?;
            free_from = x + widest / 2;
        }
    }
    canvas.line(&[(left, top), (left, bottom), (right, bottom)], BLACK, 1)?;
    let middle = i32::midpoint(left, right);
    canvas.text(&panel.x.label, (middle, bottom + 38 + upright), TEXT, Anchor::Center, BLACK)?;
    canvas.text(&panel.y, (left - 48, i32::midpoint(top, bottom)), TEXT, Anchor::Upwards, BLACK)
}

fn without_decimals((value, _): (f64, String)) -> (f64, String) {
    (value, format!("{value:.0}"))
}

fn draw_curve(canvas: &Canvas<'_>, curve: &Curve, field: &Field<'_>, aside: i32) -> Drawn {
    let Origin::Measured(number) = curve.origin else { return Ok(()) };
    let place = |dot: &super::Dot| (field.x(dot.x) + aside, field.y(dot.y));
    let points: Vec<(i32, i32)> = curve.dots.iter().map(place).collect();
    if points.len() > 1 && !matches!(field.panel.x.scale, Scale::Names(_)) {
        canvas.line(&points, color(number), 2)?;
    }
    for (dot, (x, y)) in curve.dots.iter().zip(points) {
        let half = dot.half_width.unwrap_or(0.0);
        let (low, high) = (field.y(dot.y - half), field.y(dot.y + half));
        if low - high > SHORTEST {
            let (is_cut_below, is_cut_above) = field.is_cut(dot);
            canvas.line(&[(x, low), (x, high)], color(number), 1)?;
            for (end, is_cut) in [(low, is_cut_below), (high, is_cut_above)] {
                if !is_cut {
                    canvas.line(&[(x - 3, end), (x + 3, end)], color(number), 1)?;
                }
            }
        }
        canvas.marker((x, y), number, color(number))?;
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
    fn an_interval_that_goes_on_beyond_the_axis_is_cut_and_the_legend_says_so() {
        let remark = "cut where the axis ends";
        let mut figure = figure();
        // The first curve's last value is 0.1 and the second's 0, each with 0.03 to either side.
        assert!(svg(&figure).unwrap().contains(remark));
        let curves = figure.panels.iter_mut().flat_map(|panel| &mut panel.curves);
        curves.for_each(|curve| curve.dots = curve.dots[1..3].to_vec());
        let drawn = svg(&figure).unwrap();
        assert!(drawn.contains("bars: 95 % confidence intervals") && !drawn.contains(remark));
    }

    #[test]
    fn curves_stand_apart_only_where_values_lie_far_enough_apart() {
        let mut figure = figure();
        let is_crowded = |figure: &Figure| Field::new(&figure.panels[0], (0, 0)).is_crowded(4);
        assert!(!is_crowded(&figure));
        // 1 to 4 take a twentieth of the axis now.
        figure.panels[0].curves[0].dots.push(Dot::given(60.0, 0.0));
        assert!(is_crowded(&figure));
    }

    #[test]
    fn names_that_are_too_wide_to_lie_side_by_side_stand_upright_and_none_is_left_out() {
        let mut figure = figure();
        let names: Vec<String> = (0..20).map(|n| format!("a-scenario-with-a-rather-long-name-{n}")).collect();
        figure.panels.truncate(1);
        figure.panels[0].x.scale = Scale::Names(names);
        let drawn = svg(&figure).unwrap();
        assert!((0..20).all(|n| drawn.contains(&format!("name-{n}\n"))), "{drawn}");
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
