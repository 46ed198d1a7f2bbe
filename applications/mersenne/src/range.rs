//! What a job is about: a range of exponents.

use std::fmt;
use std::str::FromStr;

use fallow_application::program::{InputError, from_to};

/// The largest exponent that a job may name. A single test of it takes hours; a search beyond it is for
/// programs with Fourier transforms.
pub const EXPONENT_MAX: u32 = 1_000_000;

/// The exponents from one to another, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    from: u32,
    to: u32,
}

/// Why an input is no range.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RangeError {
    /// It is no input at all.
    #[error(transparent)]
    Input(#[from] InputError),
    /// Numbers that are no range.
    #[error("exponents from {from} to {to} are no range; expected from <= to <= {EXPONENT_MAX}")]
    Bounds {
        /// The first exponent.
        from: u64,
        /// The last one.
        to: u64,
    },
}

impl Range {
    /// The exponents `from..=to`.
    ///
    /// # Errors
    /// [`RangeError::Bounds`] when the range is empty or goes beyond [`EXPONENT_MAX`].
    pub fn new(from: u64, to: u64) -> Result<Self, RangeError> {
        let bounds = |_| RangeError::Bounds { from, to };
        if from > to || to > u64::from(EXPONENT_MAX) {
            return Err(RangeError::Bounds { from, to });
        }
        Ok(Self { from: from.try_into().map_err(bounds)?, to: to.try_into().map_err(bounds)? })
    }

    /// The first exponent.
    pub const fn from(self) -> u32 {
        self.from
    }

    /// The last exponent.
    pub const fn to(self) -> u32 {
        self.to
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
        let range = Range::new(2, 4_423).unwrap();
        assert_eq!(range.to_string(), "from=2 to=4423");
        assert_eq!(range.to_string().parse(), Ok(range));
        assert_eq!("\n to=4423\tfrom=2 \r\n".parse(), Ok(range));
    }

    #[test]
    fn a_bad_input_says_what_is_wrong_with_it() {
        for (text, says) in [
            ("", "no \"from\""),
            ("from=2", "no \"to\""),
            ("from=2 to=x", "says \"to=x\""),
            ("from=-1 to=5", "says \"from=-1\""),
            ("hello", "says \"hello\""),
            ("from=5 to=2", "from <= to"),
            ("from=2 to=1000001", "<= 1000000"),
            ("from=2 to=99999999999999999999", "says \"to=9"),
        ] {
            let error = text.parse::<Range>().unwrap_err().to_string();
            assert!(error.contains(says), "{text:?}: {error}");
        }
    }
}
