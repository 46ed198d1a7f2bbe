//! Small words of reports.

use super::Sample;

/// A place where something is largest or smallest.
pub(super) type Extreme = Option<(f64, Sample)>;

/// The sample of a place.
pub(super) fn value((_, sample): (f64, Sample)) -> Sample {
    sample
}

/// A row's text with the place.
pub(super) fn at(text: String, place: Extreme) -> String {
    match place {
        Some((x, _)) => format!("{text} (at {x})"),
        None => text,
    }
}

/// A sample times a positive number.
pub(super) fn scaled(sample: Sample, factor: f64) -> Sample {
    Sample { mean: sample.mean * factor, half_width: sample.half_width.map(|half| half * factor), ..sample }
}
