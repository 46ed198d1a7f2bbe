//! What is wrong with a file, and how it is shown.

use std::fmt;
use std::ops::Range;

use crate::Severity;

/// One thing that is wrong in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// Whether the file can be used all the same.
    pub severity: Severity,
    /// The file, as it was named.
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    /// The column in characters, from 1.
    pub column: usize,
    /// The key, such as `project.p1.latency_bound`; empty for an error of syntax.
    pub key: String,
    /// What is wrong.
    pub problem: String,
    /// What would be right; may be empty.
    pub expected: String,
    /// What may have been meant.
    pub suggestion: Option<String>,
    /// The line as it stands, cut if it is long.
    excerpt: String,
    /// The columns to underline in the excerpt, from 0.
    underline: Range<usize>,
}

/// What is expected and is longer stands behind what may have been meant, in bytes.
const LIST_MAX: usize = 240;

/// Everything that is wrong with a file, at least one error in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostics(pub Vec<Diagnostic>);

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let severity = match self.severity {
            Severity::Warning => "warning",
            Severity::Error => "error",
        };
        write!(f, "{severity}: {}:{}:{}: ", self.file, self.line, self.column)?;
        if !self.key.is_empty() {
            write!(f, "{}: ", self.key)?;
        }
        write!(f, "{}", self.problem)?;
        if !self.excerpt.is_empty() {
            let (from, length) = (self.underline.start, self.underline.len().max(1));
            write!(f, "\n{:>5} | {}", self.line, self.excerpt)?;
            write!(f, "\n      | {:from$}{:^<length$}", "", "")?;
        }
        let expected = Some(&self.expected).filter(|expected| !expected.is_empty());
        let lines = [
            expected.map(|expected| format!("\n        expected {expected}")),
            self.suggestion.as_ref().map(|meant| format!("\n        did you mean {meant}?")),
        ];
        // Behind a long list nobody would find it.
        let [first, second] = if self.expected.len() > LIST_MAX { [1, 0] } else { [0, 1] };
        for line in [first, second].into_iter().filter_map(|at| lines.get(at)?.as_ref()) {
            f.write_str(line)?;
        }
        Ok(())
    }
}

impl fmt::Display for Diagnostics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, diagnostic) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            diagnostic.fmt(f)?;
        }
        Ok(())
    }
}

impl std::error::Error for Diagnostics {}

/// A file's name and text.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    /// Its name, for messages.
    pub file: &'a str,
    /// What stands in it.
    pub text: &'a str,
}

/// Longest excerpt in characters.
const EXCERPT_MAX: usize = 100;

impl Source<'_> {
    /// A diagnostic about the bytes `span`.
    #[must_use]
    pub fn diagnose(&self, severity: Severity, span: Range<usize>, key: &str, problem: String) -> Diagnostic {
        self.diagnose_hiding(severity, span, key, problem, &[])
    }

    /// A diagnostic about the bytes `span` that shows stars in place of those of `hidden`.
    pub(crate) fn diagnose_hiding(
        &self,
        severity: Severity,
        span: Range<usize>,
        key: &str,
        problem: String,
        hidden: &[Range<usize>],
    ) -> Diagnostic {
        let start = self.boundary(span.start);
        let line_start = self.text[..start].rfind('\n').map_or(0, |at| at + 1);
        let line_end = self.text[start..].find('\n').map_or(self.text.len(), |at| start + at);
        let end = self.boundary(span.end).clamp(start, line_end);
        let column = self.text[line_start..start].chars().count();
        let whole = self.text[line_start..line_end].trim_end();
        // A long line is shown from a little before the place.
        let cut = if whole.chars().count() > EXCERPT_MAX { column.saturating_sub(40) } else { 0 };
        let visible = |(at, c): (usize, char)| match c {
            c if c.is_control() => ' ',
            _ if hidden.iter().any(|hidden| hidden.contains(&(line_start + at))) => '*',
            c => c,
        };
        let excerpt: String = whole.char_indices().skip(cut).take(EXCERPT_MAX).map(visible).collect();
        let from = column - cut;
        let to = (from + self.text[start..end].trim_end().chars().count()).min(EXCERPT_MAX.max(from + 1));
        Diagnostic {
            severity,
            file: self.file.into(),
            line: 1 + self.text[..line_start].matches('\n').count(),
            column: column + 1,
            key: key.into(),
            problem,
            expected: String::new(),
            suggestion: None,
            excerpt,
            underline: from..to,
        }
    }

    /// The nearest place at or before `at` that is not within a character.
    fn boundary(&self, at: usize) -> usize {
        let at = at.min(self.text.len());
        (0..=at).rev().find(|&at| self.text.is_char_boundary(at)).unwrap_or(0)
    }
}

impl Diagnostic {
    /// With what would be right.
    #[must_use]
    pub fn expecting(self, expected: impl Into<String>) -> Self {
        Self { expected: expected.into(), ..self }
    }
    /// About the file as a whole: no line of it is to be shown.
    #[must_use]
    pub fn without_excerpt(self) -> Self {
        Self { excerpt: String::new(), ..self }
    }
    /// With what may have been meant.
    #[must_use]
    pub fn suggesting(self, suggestion: Option<String>) -> Self {
        Self { suggestion, ..self }
    }
}
