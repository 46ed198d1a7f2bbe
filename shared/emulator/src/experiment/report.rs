//! What an experiment shows: published against measured, with a verdict a row.

use std::fmt;

use super::statistics::Sample;
use crate::plot::Figure;

/// Whether a measured figure is the published one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Agreement {
    /// What was published is found.
    Agrees,
    /// It is not.
    Differs,
    /// Shown beside what was published, but not judged: the row says why.
    NotJudged,
}

impl Agreement {
    /// Of a condition.
    #[must_use]
    pub const fn of(holds: bool) -> Self {
        if holds { Self::Agrees } else { Self::Differs }
    }
}

impl fmt::Display for Agreement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Agrees => "agrees",
            Self::Differs => "differs",
            Self::NotJudged => "not judged",
        })
    }
}

/// A published statement and what became of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The requirement, such as `R5.21`.
    pub requirement: &'static str,
    /// What is compared.
    pub what: String,
    /// What was published, in words or figures.
    pub published: String,
    /// What it takes to agree; empty for what is not judged.
    pub expected: String,
    /// What was measured; none if nothing could be.
    pub measured: Option<Sample>,
    /// Whether they agree.
    pub verdict: Agreement,
    /// Where they differ, what is known of the reason, or how the row is to be read.
    pub note: String,
}

impl Row {
    /// A row that is judged. What could not be measured differs.
    pub(crate) fn judged(
        requirement: &'static str,
        what: impl Into<String>,
        published: impl Into<String>,
        expected: impl Into<String>,
        measured: Option<Sample>,
        holds: impl Fn(f64) -> bool,
    ) -> Self {
        let verdict = Agreement::of(measured.is_some_and(|sample| holds(sample.mean)));
        Self {
            requirement,
            what: what.into(),
            published: published.into(),
            expected: expected.into(),
            measured,
            verdict,
            note: String::new(),
        }
    }

    /// A row within `tolerance` of a published value.
    pub(crate) fn near(
        requirement: &'static str,
        what: impl Into<String>,
        published: f64,
        tolerance: f64,
        measured: Option<Sample>,
    ) -> Self {
        // The rounding of a difference of decimals is no difference.
        let holds = |mean: f64| (mean - published).abs() <= tolerance + 1e-9;
        let expected = format!("within {tolerance:.2}");
        Self::judged(requirement, what, format!("{published:.2}"), expected, measured, holds)
    }

    /// A row that is shown and not judged.
    pub(crate) fn shown(
        requirement: &'static str,
        what: impl Into<String>,
        published: impl Into<String>,
        measured: Option<Sample>,
    ) -> Self {
        let row = Self::judged(requirement, what, published, "", measured, |_| true);
        Self { verdict: Agreement::NotJudged, ..row }
    }

    /// With a note.
    pub(crate) fn noting(self, note: impl Into<String>) -> Self {
        Self { note: note.into(), ..self }
    }
}

/// All that an experiment shows.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Published against measured.
    pub rows: Vec<Row>,
    /// The paper's figures from our measurements.
    pub figures: Vec<Figure>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(mean: f64) -> Option<Sample> {
        Some(Sample { count: 3, mean, half_width: Some(0.01) })
    }

    #[test]
    fn a_figure_agrees_up_to_its_tolerance_and_differs_beyond() {
        let verdict = |mean| Row::near("R5.21", "waste at slack 3", 0.24, 0.10, measured(mean)).verdict;
        assert_eq!(verdict(0.24), Agreement::Agrees);
        assert_eq!(verdict(0.34), Agreement::Agrees);
        assert_eq!(verdict(0.14), Agreement::Agrees);
        assert_eq!(verdict(0.341), Agreement::Differs);
        assert_eq!(verdict(0.139), Agreement::Differs);
    }

    #[test]
    fn what_could_not_be_measured_differs_and_what_is_only_shown_does_not() {
        assert_eq!(Row::near("R5.21", "waste", 0.0, 0.1, None).verdict, Agreement::Differs);
        assert_eq!(Row::shown("R5.20", "waste", "lower", None).verdict, Agreement::NotJudged);
    }
}
