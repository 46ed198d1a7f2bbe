//! What a job is about: a range of whole numbers.

use std::fmt;
use std::str::FromStr;

use fallow_application::program::{InputError, from_to};

/// The largest number that a job may name. The primes up to its square root take a few megabytes.
pub const NUMBER_MAX: u64 = 10_000_000_000_000;
/// The longest range of one job: some minutes of work, a table of 600 rows.
pub const LENGTH_MAX: u64 = 10_000_000_000;

/// The numbers from one to another, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    from: u64,
    to: u64,
}

/// Why an input is no range.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RangeError {
    /// It is no input at all.
    #[error(transparent)]
    Input(#[from] InputError),
    /// Numbers that are no range.
    #[error(
        "numbers from {from} to {to} are no range; expected 1 <= from <= to <= {NUMBER_MAX}, \
         {LENGTH_MAX} numbers at most"
    )]
    Bounds {
        /// The first number.
        from: u64,
        /// The last one.
        to: u64,
    },
}

impl Range {
    /// The numbers `from..=to`.
    ///
    /// # Errors
    /// [`RangeError::Bounds`] when the range is empty, too long, or goes beyond [`NUMBER_MAX`].
    pub const fn new(from: u64, to: u64) -> Result<Self, RangeError> {
        if from < 1 || from > to || to > NUMBER_MAX || to - from >= LENGTH_MAX {
            return Err(RangeError::Bounds { from, to });
        }
        Ok(Self { from, to })
    }

    /// The first number.
    pub const fn from(self) -> u64 {
        self.from
    }

    /// The last number.
    pub const fn to(self) -> u64 {
        self.to
    }

    /// How many numbers there are.
    pub const fn len(self) -> u64 {
        self.to - self.from + 1
    }

    /// Never: a range holds a number at least.
    pub const fn is_empty(self) -> bool {
        false
    }
}

impl fmt::Display for Range {
    /// The text of an input file.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "from={} to={}", self.from, self.to)
    }
}

impl FromStr for Range {
    type Err = RangeError;
    /// Reads an input file: `from=A to=B`, in any order, with white space between and around.
    fn from_str(text: &str) -> Result<Self, RangeError> {
        let (from, to) = from_to(text)?;
        Self::new(from, to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_input_reads_as_it_is_written() {
        let range = Range::new(1_000_000_000_000, 1_000_999_999_999).unwrap();
        assert_eq!(range.to_string(), "from=1000000000000 to=1000999999999");
        assert_eq!(range.to_string().parse(), Ok(range));
        assert_eq!(range.len(), 1_000_000_000);
    }

    #[test]
    fn a_bad_input_says_what_is_wrong_with_it() {
        for (text, says) in [
            ("", "no \"from\""),
            ("from=2", "no \"to\""),
            ("from=2 to=x", "says \"to=x\""),
            ("hello", "says \"hello\""),
            ("from=0 to=5", "1 <= from"),
            ("from=5 to=2", "from <= to"),
            ("from=1 to=10000000000001", "<= 10000000000000"),
            ("from=1 to=10000000001", "10000000000 numbers at most"),
        ] {
            let error = text.parse::<Range>().unwrap_err().to_string();
            assert!(error.contains(says), "{text:?}: {error}");
        }
    }
}
