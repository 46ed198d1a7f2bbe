//! Lines, texts and shapes on an SVG, in whole pixels.

use std::borrow::Cow;

use plotters::coord::Shift;
use plotters::prelude::{
    Circle, DrawingArea, IntoDrawingArea as _, IntoFont as _, PathElement, Polygon, RGBColor, Rectangle,
    SVGBackend, ShapeStyle, Text, TextStyle,
};
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{Color as _, FontTransform};

/// A picture could not be made.
#[derive(Debug, thiserror::Error)]
#[error("the picture cannot be drawn: {0}")]
pub struct DrawError(String);

pub(crate) type Drawn = Result<(), DrawError>;
pub(crate) type Color = RGBColor;

pub(crate) const BLACK: Color = RGBColor(0x20, 0x20, 0x20);
pub(crate) const GREY: Color = RGBColor(0x60, 0x60, 0x60);
pub(crate) const WHITE: Color = RGBColor(0xff, 0xff, 0xff);
pub(crate) const LIGHT: Color = RGBColor(0xe2, 0xe2, 0xe2);

/// Okabe and Ito's palette but for its black, which is the paper's, and its yellow, which is hard to see on
/// white.
const PALETTE: [Color; 6] = [
    RGBColor(0x00, 0x72, 0xb2),
    RGBColor(0xd5, 0x5e, 0x00),
    RGBColor(0x00, 0x9e, 0x73),
    RGBColor(0xcc, 0x79, 0xa7),
    RGBColor(0x56, 0xb4, 0xe9),
    RGBColor(0xe6, 0x9f, 0x00),
];

/// The colour of that number. After the palette comes its darker, then its lighter form, then it begins anew.
pub(crate) fn color(number: usize) -> Color {
    let RGBColor(r, g, b) = PALETTE[number % PALETTE.len()];
    let shade = |channel: u8| match number / PALETTE.len() % 3 {
        0 => channel,
        1 => (u16::from(channel) * 11 / 20) as u8,
        _ => (255 - (255 - u16::from(channel)) / 2) as u8,
    };
    RGBColor(shade(r), shade(g), shade(b))
}

/// Whether black letters on a colour are easier to read than white ones.
pub(crate) fn wants_black(on: Color) -> bool {
    let RGBColor(r, g, b) = on;
    299 * u32::from(r) + 587 * u32::from(g) + 114 * u32::from(b) > 140_000
}

/// How wide a text is about, in pixels. There are no fonts here: a letter of a sans-serif font is a bit more
/// than half as wide as it is high, on average.
pub(crate) fn width_of(text: &str, size: i32) -> i32 {
    (text.chars().count() as i32) * size * 58 / 100
}

/// A text that is no wider than `width`: of a longer one, its two ends, which is where names differ.
pub(crate) fn fitted(text: &str, size: i32, width: i32) -> Cow<'_, str> {
    if width_of(text, size) <= width {
        return Cow::Borrowed(text);
    }
    let fits = |count: usize| width_of(&"m".repeat(count + 1), size) <= width;
    let all: Vec<char> = text.chars().collect();
    let count = (0..all.len()).rev().find(|count| fits(*count)).unwrap_or(0);
    let (head, tail) = (count.div_ceil(2), count / 2);
    Cow::Owned(all[..head].iter().chain(['…'].iter()).chain(&all[all.len() - tail..]).collect())
}

/// Where a text stands against its point.
#[derive(Clone, Copy)]
pub(crate) enum Anchor {
    /// It begins there.
    Left,
    /// Its middle is there.
    Center,
    /// It ends there.
    Right,
    /// Its middle is there, and it runs upwards.
    Upwards,
    /// It runs upwards and ends there.
    UpTo,
}

/// A white sheet.
pub(crate) struct Canvas<'a> {
    area: DrawingArea<SVGBackend<'a>, Shift>,
}

/// Draws on a sheet of that size and gives the SVG.
pub(crate) fn svg(size: (i32, i32), draw: impl FnOnce(&Canvas<'_>) -> Drawn) -> Result<String, DrawError> {
    let mut text = String::new();
    let size = (size.0.max(1) as u32, size.1.max(1) as u32);
    let canvas = Canvas { area: SVGBackend::with_string(&mut text, size).into_drawing_area() };
    failed(canvas.area.fill(&WHITE))?;
    draw(&canvas)?;
    failed(canvas.area.present())?;
    drop(canvas);
    Ok(text)
}

fn failed<E: std::fmt::Display>(result: Result<(), E>) -> Drawn {
    result.map_err(|error| DrawError(error.to_string()))
}

impl Canvas<'_> {
    /// A line through points.
    pub(crate) fn line(&self, points: &[(i32, i32)], color: Color, width: u32) -> Drawn {
        self.faint_line(points, color, width, 1.0)
    }

    /// A line through points that lets shine through what is below.
    pub(crate) fn faint_line(&self, points: &[(i32, i32)], color: Color, width: u32, opacity: f64) -> Drawn {
        let style = ShapeStyle { color: color.mix(opacity), filled: false, stroke_width: width };
        failed(self.area.draw(&PathElement::new(points.to_vec(), style)))
    }

    /// A filled rectangle.
    pub(crate) fn block(&self, from: (i32, i32), to: (i32, i32), color: Color, opacity: f64) -> Drawn {
        failed(self.area.draw(&Rectangle::new([from, to], color.mix(opacity).filled())))
    }

    /// A filled shape.
    pub(crate) fn shape(&self, points: &[(i32, i32)], color: Color) -> Drawn {
        failed(self.area.draw(&Polygon::new(points.to_vec(), color.filled())))
    }

    /// A text of that height.
    pub(crate) fn text(&self, text: &str, at: (i32, i32), size: i32, anchor: Anchor, color: Color) -> Drawn {
        let horizontal = match anchor {
            Anchor::Left => HPos::Left,
            Anchor::Center | Anchor::Upwards => HPos::Center,
            Anchor::Right | Anchor::UpTo => HPos::Right,
        };
        // The backend divides by 1.24, its idea of the height of a line.
        let font = ("sans-serif", f64::from(size) * 1.24).into_font();
        let font = match anchor {
            Anchor::Upwards | Anchor::UpTo => font.transform(FontTransform::Rotate270),
            _ => font,
        };
        let style = TextStyle::from(font).pos(Pos::new(horizontal, VPos::Center)).color(&color);
        failed(self.area.draw(&Text::new(text.to_owned(), at, style)))
    }

    /// A filled marker; the number decides its shape.
    pub(crate) fn marker(&self, (x, y): (i32, i32), number: usize, color: Color) -> Drawn {
        match number % 4 {
            0 => failed(self.area.draw(&Circle::new((x, y), 4, color.filled()))),
            1 => self.block((x - 3, y - 3), (x + 4, y + 4), color, 1.0),
            2 => self.shape(&[(x - 4, y + 4), (x, y - 4), (x + 4, y + 4)], color),
            _ => self.shape(&[(x - 4, y - 4), (x, y + 4), (x + 4, y - 4)], color),
        }
    }

    /// An open diamond, around what is below it.
    pub(crate) fn diamond(&self, (x, y): (i32, i32), color: Color) -> Drawn {
        self.line(&[(x - 8, y), (x, y - 8), (x + 8, y), (x, y + 8), (x - 8, y)], color, 2)
    }

    /// A short level dash.
    pub(crate) fn dash(&self, (x, y): (i32, i32), color: Color) -> Drawn {
        self.line(&[(x - 6, y), (x + 6, y)], color, 2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_that_is_too_wide_keeps_its_two_ends() {
        assert_eq!(fitted("short", 12, 100), "short");
        let cut = fitted("a-long-name-that-goes-on-to-17", 12, 100);
        assert!(cut.starts_with("a-lon") && cut.ends_with("-to-17") && width_of(&cut, 12) <= 100, "{cut}");
        assert_eq!(fitted("ünïcödé", 12, 1), "…");
    }

    #[test]
    fn eighteen_colours_differ() {
        let mut colors: Vec<(u8, u8, u8)> = (0..18).map(color).map(|RGBColor(r, g, b)| (r, g, b)).collect();
        colors.sort_unstable();
        colors.dedup();
        assert_eq!(colors.len(), 18);
    }
}
