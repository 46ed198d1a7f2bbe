//! Pictures of runs and experiments, as SVG: charts of figures over a parameter, sums and their parts,
//! and what ran when (R5.14).
//!
//! A picture is a text made from values alone: the same values give the same bytes. Colours are Okabe and
//! Ito's, which colour-blind people tell apart; where there are more curves than colours, shades and markers
//! differ too.

mod bars;
mod canvas;
mod chart;
mod figure;
mod legend;
mod ticks;
mod timeline;

pub use bars::{Bar, BarFigure, BarGroup, svg as bars};
pub use canvas::DrawError;
pub use chart::svg as chart;
pub use figure::{Axis, Curve, Dot, Figure, Origin, Panel, Scale, record};
pub use timeline::{TimelineFigure, svg as timeline};
