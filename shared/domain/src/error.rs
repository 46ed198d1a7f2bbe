//! What is wrong with a value that cannot be accepted.

/// Characters of a value that are repeated: enough to find it by.
const GIVEN_MAX: usize = 200;

/// A value that means nothing in its place. Says what was given and what is expected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} {given:?} is not valid: expected {expected}")]
pub struct Invalid {
    /// What the value was meant to be, such as "share".
    pub what: &'static str,
    /// The value as it was given; of a very long one the beginning.
    pub given: String,
    /// What would have been accepted.
    pub expected: &'static str,
}

impl Invalid {
    /// Builds the error from anything that can be printed.
    pub fn new(what: &'static str, given: impl std::fmt::Display, expected: &'static str) -> Self {
        let mut given = given.to_string();
        if let Some((end, _)) = given.char_indices().nth(GIVEN_MAX) {
            given.truncate(end);
            given.push('…');
        }
        Self { what, given, expected }
    }
}
