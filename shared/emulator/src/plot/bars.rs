//! Stacked bars: what sums are made up of, one bar below the other, in groups.
//!
//! Parts have the palette's colours in their order; a mark across a group's bars is a value beside which they
//! are to be seen.

use super::canvas::{self, Anchor, BLACK, DrawError, Drawn, GREY, LIGHT, color, fitted, width_of};
use super::figure::record;
use super::ticks;

const WIDTH: i32 = 900;
const LEFT: i32 = 190;
const RIGHT: i32 = 30;
const TITLE: i32 = 40;
const TEXT: i32 = 12;
const ROW: i32 = 15;
const HEADING: i32 = 22;
const AXIS: i32 = 34;
const LEGEND: i32 = 26;

/// Bars in groups.
#[derive(Clone, Debug, PartialEq)]
pub struct BarFigure {
    /// The stem of its files' names.
    pub file: String,
    /// What it shows.
    pub title: String,
    /// What the axis shows.
    pub axis: String,
    /// What the parts are called.
    pub parts: Vec<String>,
    /// What the marks are, if there are any.
    pub mark: String,
    /// The groups, from top to bottom.
    pub groups: Vec<BarGroup>,
}

/// Bars that belong together.
#[derive(Clone, Debug, PartialEq)]
pub struct BarGroup {
    /// What they are about.
    pub name: String,
    /// A value to hold against them.
    pub mark: Option<f64>,
    /// The bars, from top to bottom.
    pub bars: Vec<Bar>,
}

/// A bar.
#[derive(Clone, Debug, PartialEq)]
pub struct Bar {
    /// What it is about.
    pub label: String,
    /// Its parts, from left to right, none below 0.
    pub parts: Vec<f64>,
}

impl Bar {
    fn length(&self) -> f64 {
        self.parts.iter().map(|part| part.max(0.0)).sum()
    }
}

impl BarFigure {
    /// Its values as CSV, with a heading.
    #[must_use]
    pub fn to_csv(&self) -> String {
        let mut csv = String::from("group,bar,part,value\n");
        for group in &self.groups {
            for bar in &group.bars {
                for (part, value) in self.parts.iter().zip(&bar.parts) {
                    csv.push_str(&record(&[&group.name, &bar.label, part, &value.to_string()]));
                }
            }
            if let Some(mark) = group.mark {
                csv.push_str(&record(&[&group.name, "", &self.mark, &mark.to_string()]));
            }
        }
        csv
    }
}

/// Bars as SVG.
///
/// # Errors
/// [`DrawError`] when the library that draws fails, which it does not on a text.
pub fn svg(figure: &BarFigure) -> Result<String, DrawError> {
    let bars = || figure.groups.iter().flat_map(|group| &group.bars);
    let marks = figure.groups.iter().filter_map(|group| group.mark);
    let most = ticks::top(bars().map(Bar::length).chain(marks));
    let rows: i32 = figure.groups.iter().map(|group| HEADING + ROW * group.bars.len() as i32).sum();
    let bottom = TITLE + rows + 8;
    let x = |value: f64| LEFT + (value / most * f64::from(WIDTH - LEFT - RIGHT)).round() as i32;
    canvas::svg((WIDTH, bottom + AXIS + LEGEND), |canvas| {
        canvas.text(
            &fitted(&figure.title, 16, WIDTH - 20),
            (WIDTH / 2, TITLE / 2),
            16,
            Anchor::Center,
            BLACK,
        )?;
        for (value, label) in ticks::linear(0.0, most, 11) {
            canvas.line(&[(x(value), TITLE), (x(value), bottom)], LIGHT, 1)?;
            canvas.text(&label, (x(value), bottom + 9), TEXT, Anchor::Center, BLACK)?;
        }
        let middle = i32::midpoint(LEFT, WIDTH - RIGHT);
        canvas.text(&figure.axis, (middle, bottom + 24), TEXT, Anchor::Center, BLACK)?;
        let mut y = TITLE;
        for group in &figure.groups {
            canvas.text(
                &fitted(&group.name, TEXT, WIDTH),
                (8, y + HEADING / 2 + 2),
                TEXT,
                Anchor::Left,
                BLACK,
            )?;
            y += HEADING;
            let top = y;
            for bar in &group.bars {
                let label = fitted(&bar.label, TEXT, LEFT - 16);
                canvas.text(&label, (LEFT - 8, y + ROW / 2), TEXT, Anchor::Right, GREY)?;
                let mut from = 0.0;
                for (number, part) in bar.parts.iter().enumerate() {
                    let to = from + part.max(0.0);
                    if x(to) > x(from) {
                        canvas.block((x(from), y + 2), (x(to), y + ROW - 2), color(number), 1.0)?;
                    }
                    from = to;
                }
                y += ROW;
            }
            if let Some(mark) = group.mark {
                canvas.line(&[(x(mark), top), (x(mark), y)], BLACK, 2)?;
            }
        }
        legend(canvas, figure, bottom + AXIS + LEGEND / 2)
    })
}

fn legend(canvas: &canvas::Canvas<'_>, figure: &BarFigure, y: i32) -> Drawn {
    let mut x = LEFT;
    for (number, part) in figure.parts.iter().enumerate() {
        canvas.block((x, y - 5), (x + 16, y + 5), color(number), 1.0)?;
        canvas.text(part, (x + 22, y), TEXT, Anchor::Left, GREY)?;
        x += 22 + width_of(part, TEXT) + 22;
    }
    if figure.groups.iter().any(|group| group.mark.is_some()) {
        canvas.line(&[(x + 8, y - 7), (x + 8, y + 7)], BLACK, 2)?;
        canvas.text(&figure.mark, (x + 20, y), TEXT, Anchor::Left, GREY)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure() -> BarFigure {
        let bar = |label: &str, parts: [f64; 2]| Bar { label: label.into(), parts: parts.to_vec() };
        let group = |name: &str, mark| BarGroup {
            name: name.into(),
            mark,
            bars: vec![bar("one", [0.1, 0.2]), bar("two", [0.0, 0.05])],
        };
        BarFigure {
            file: "f".into(),
            title: "Losses & causes".into(),
            axis: "loss".into(),
            parts: vec!["idleness".into(), "waste".into()],
            mark: "blind".into(),
            groups: vec![group("first", Some(0.3)), group("second", None)],
        }
    }

    #[test]
    fn r5_14_bars_have_their_labels_and_the_same_bytes_for_the_same_values() {
        let drawn = svg(&figure()).unwrap();
        assert_eq!(drawn, svg(&figure()).unwrap());
        for text in ["Losses &amp; causes", "first", "second", "two", "idleness", "blind", "loss"] {
            assert!(drawn.contains(text), "{text}");
        }
        // White ground, four bars of two parts of which two are nothing, two in the legend.
        assert_eq!(drawn.matches("<rect").count(), 1 + 6 + 2);
        let empty = BarFigure { groups: Vec::new(), ..figure() };
        assert!(svg(&empty).unwrap().ends_with("</svg>\n"));
    }

    #[test]
    fn r5_14_bars_are_also_a_table() {
        let csv = figure().to_csv();
        assert!(
            csv.starts_with("group,bar,part,value\nfirst,one,idleness,0.1\nfirst,one,waste,0.2\n"),
            "{csv}"
        );
        assert!(csv.contains("first,,blind,0.3\n") && !csv.contains("second,,blind"), "{csv}");
    }
}
