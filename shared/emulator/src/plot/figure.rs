//! What a chart shows, as data: panels of curves. Drawn as SVG by `chart.rs`, written as CSV here.

/// A figure: panels that share their legend.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// The stem of its files' names.
    pub file: String,
    /// What it shows.
    pub title: String,
    /// Side by side, in rows of two.
    pub panels: Vec<Panel>,
}

/// One coordinate system.
#[derive(Clone, Debug, PartialEq)]
pub struct Panel {
    /// What it shows, such as `(a) waste`.
    pub title: String,
    /// The horizontal axis.
    pub x: Axis,
    /// What the vertical axis shows: a fraction from 0 to 1.
    pub y: String,
    /// The curves, those of one label alike in all panels.
    pub curves: Vec<Curve>,
}

/// A horizontal axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    /// What it shows, with its unit.
    pub label: String,
    /// How values lie on it.
    pub scale: Scale,
}

/// How values lie on an axis.
#[derive(Clone, Debug, PartialEq)]
pub enum Scale {
    /// Evenly.
    Linear,
    /// By their logarithm: above 0 only.
    Logarithmic,
    /// At 0, 1, 2, … under these names.
    Names(Vec<String>),
}

/// Values in the order of their `x`.
#[derive(Clone, Debug, PartialEq)]
pub struct Curve {
    /// Its name in the legend.
    pub label: String,
    /// Where the values come from.
    pub origin: Origin,
    /// The values.
    pub dots: Vec<Dot>,
}

/// Where values come from, which decides how they are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// From our runs: joined dots in the palette's colour of that number, with error bars.
    Measured(usize),
    /// From the paper: open markers, not joined.
    Published,
    /// A published statement, such as a bound or a difference, applied to our own values: dashes, not joined.
    /// No value of the paper's.
    Claim,
}

/// One value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dot {
    /// Where.
    pub x: f64,
    /// The value or mean.
    pub y: f64,
    /// Half the width of its 95 % interval, if it has one.
    pub half_width: Option<f64>,
}

impl Dot {
    /// A value that is given.
    #[must_use]
    pub const fn given(x: f64, y: f64) -> Self {
        Self { x, y, half_width: None }
    }
}

impl Figure {
    /// Its values as CSV, with a heading.
    #[must_use]
    pub fn to_csv(&self) -> String {
        let mut csv = String::from("panel,curve,origin,x_label,x,y_label,y,half_width_95\n");
        for panel in &self.panels {
            for curve in &panel.curves {
                let origin = match curve.origin {
                    Origin::Measured(_) => "measured",
                    Origin::Published => "published",
                    Origin::Claim => "claim",
                };
                for dot in &curve.dots {
                    let x = match &panel.x.scale {
                        Scale::Names(names) => name_at(names, dot.x).unwrap_or_default().to_owned(),
                        _ => dot.x.to_string(),
                    };
                    let half = dot.half_width.map(|half| half.to_string()).unwrap_or_default();
                    let fields = [
                        &panel.title,
                        &curve.label,
                        origin,
                        &panel.x.label,
                        &x,
                        &panel.y,
                        &dot.y.to_string(),
                        &half,
                    ];
                    csv.push_str(&record(&fields));
                }
            }
        }
        csv
    }
}

/// The name that stands at `x`.
pub(crate) fn name_at(names: &[String], x: f64) -> Option<&str> {
    let nearest = x.round();
    let near = (x - nearest).abs() < 1e-6 && nearest >= 0.0;
    near.then(|| names.get(nearest as usize).map(String::as_str)).flatten()
}

/// A line of CSV (RFC 4180).
#[must_use]
pub fn record(fields: &[&str]) -> String {
    let quoted = |field: &&str| match field.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", field.replace('"', "\"\"")),
        false => (*field).to_owned(),
    };
    let mut line = fields.iter().map(quoted).collect::<Vec<_>>().join(",");
    line.push('\n');
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r5_14_a_figure_is_also_a_table() {
        let dots = vec![Dot { x: 1.0, y: 0.5, half_width: Some(0.25) }, Dot::given(2.0, 0.0)];
        let curve = Curve { label: "CS1, alone".into(), origin: Origin::Measured(0), dots };
        let x = Axis { label: "M".into(), scale: Scale::Linear };
        let dots = vec![Dot::given(1.0, 0.25)];
        let claim = Curve { label: "half of it".into(), origin: Origin::Claim, dots };
        let panel = Panel { title: "(a) waste".into(), x, y: "waste".into(), curves: vec![curve, claim] };
        let figure = Figure { file: "f".into(), title: "F".into(), panels: vec![panel] };
        assert_eq!(
            figure.to_csv(),
            "panel,curve,origin,x_label,x,y_label,y,half_width_95\n\
             (a) waste,\"CS1, alone\",measured,M,1,waste,0.5,0.25\n\
             (a) waste,\"CS1, alone\",measured,M,2,waste,0,\n\
             (a) waste,half of it,claim,M,1,waste,0.25,\n"
        );
    }
}
