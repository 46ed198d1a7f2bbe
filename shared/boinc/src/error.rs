//! What is wrong with bytes that cannot be read.

use std::fmt;

/// Bytes that are not what they were taken for. Says what was being read, where it went wrong, and what would
/// have been accepted there. The text holds no content of the message: contents can be secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot read the {what}: expected {expected} at {place}")]
pub struct FormatError {
    /// The kind of message, such as `scheduler reply`.
    pub what: &'static str,
    /// Where it went wrong.
    pub place: Place,
    /// What would have been accepted.
    pub expected: String,
}

/// A place in a message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// Bytes before it.
    pub offset: usize,
    /// Its line, from 1.
    pub line: usize,
    /// The element that was being read, empty for none.
    pub element: String,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {} (byte {})", self.line, self.offset)?;
        if self.element.is_empty() { Ok(()) } else { write!(f, ", in <{}>", self.element) }
    }
}

impl FormatError {
    /// An error at byte `offset` of `input`; the line is counted here, as errors are rare.
    pub(crate) fn new(
        what: &'static str,
        input: &[u8],
        offset: usize,
        element: &str,
        expected: impl Into<String>,
    ) -> Self {
        let offset = offset.min(input.len());
        let line = 1 + input.iter().take(offset).filter(|&&byte| byte == b'\n').count();
        // An element's name comes from the message: it is shortened, so that an error stays one line of a
        // log.
        let element = element.chars().filter(|c| !c.is_control()).take(80).collect();
        Self { what, place: Place { offset, line, element }, expected: expected.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_says_what_where_and_what_was_expected() {
        let error = FormatError::new("scheduler reply", b"<a>\n<b>\n", 4, "b", "</b>");
        assert_eq!(
            error.to_string(),
            "cannot read the scheduler reply: expected </b> at line 2 (byte 4), in <b>"
        );
    }
}
