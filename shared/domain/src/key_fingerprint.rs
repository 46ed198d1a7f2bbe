//! The name of a project's code-signing key: short enough for a document and for people (R6.10).

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::{Invalid, from_hex, hex};

const WORD: &str = "sha256:";

/// SHA-256 of a code-signing key in BOINC's text form, without white space at its ends; written as `sha256:`
/// and 64 hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct KeyFingerprint([u8; 32]);

impl KeyFingerprint {
    /// From the 32 bytes of the hash.
    #[must_use]
    pub const fn new(hash: [u8; 32]) -> Self {
        Self(hash)
    }
}

impl fmt::Display for KeyFingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{WORD}{}", hex(&self.0))
    }
}

impl FromStr for KeyFingerprint {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        let hash = text.trim().strip_prefix(WORD).and_then(from_hex);
        let hash = hash.and_then(|hash| <[u8; 32]>::try_from(hash).ok());
        let expected = "sha256: and 64 hexadecimal digits, as `fallow project show` prints it";
        hash.map(Self).ok_or_else(|| Invalid::new("fingerprint of a code-signing key", text, expected))
    }
}

impl From<KeyFingerprint> for String {
    fn from(fingerprint: KeyFingerprint) -> Self {
        fingerprint.to_string()
    }
}

impl TryFrom<String> for KeyFingerprint {
    type Error = Invalid;

    fn try_from(text: String) -> Result<Self, Invalid> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r6_10_a_fingerprint_is_read_as_it_is_written_and_nothing_else_is_one() {
        let fingerprint = KeyFingerprint::new([0xab; 32]);
        assert_eq!(fingerprint.to_string().parse::<KeyFingerprint>().unwrap(), fingerprint);
        let digits = "ab".repeat(32);
        for text in ["", "sha256:", &digits, &format!("sha256:{digits}0"), &format!("ed25519:{digits}")] {
            assert!(text.parse::<KeyFingerprint>().is_err(), "{text}");
        }
    }
}
