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
    /// What is wrong with the value, where it is known already what it was meant to be.
    #[must_use]
    pub fn problem(&self) -> String {
        match self.what {
            "program" => format!("{:?} is no name of a program", self.given),
            _ => format!("{} is out of range", self.given),
        }
    }

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r6_4_a_name_that_is_none_is_shown_in_quotes_and_a_number_as_it_is() {
        assert_eq!(Invalid::new("program", "", "a name").problem(), "\"\" is no name of a program");
        assert_eq!(Invalid::new("time", "5 s", "more").problem(), "5 s is out of range");
    }
}
