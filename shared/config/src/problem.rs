//! What may be wrong with what a file says as a whole.

use std::fmt;

/// Something in a file that means nothing, or that is unlikely to be meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Whether the file can be used all the same.
    pub severity: Severity,
    /// Where, such as `project.p1.latency_bound`.
    pub path: String,
    /// What is wrong.
    pub reason: String,
    /// What would be right; may be empty.
    pub expected: String,
}

/// Whether a file with a problem can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// It means something, though perhaps not what was meant.
    Warning,
    /// It means nothing.
    Error,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let severity = match self.severity {
            Severity::Warning => "warning",
            Severity::Error => "error",
        };
        write!(f, "{severity}: {}: {}", self.path, self.reason)?;
        if self.expected.is_empty() { Ok(()) } else { write!(f, ": expected {}", self.expected) }
    }
}
