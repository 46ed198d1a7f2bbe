//! The public part of the key with which an organisation signs what its machines may be told (R6.10).

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::{Invalid, from_hex, hex};

const WORD: &str = "ed25519:";

/// An Ed25519 public key, written as `ed25519:` and 64 hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct OrganisationKey([u8; 32]);

impl OrganisationKey {
    /// From its 32 bytes.
    #[must_use]
    pub const fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Its bytes.
    #[must_use]
    pub const fn bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Its first digits, to tell it from others in a message.
    #[must_use]
    pub fn short(&self) -> String {
        self.to_string().chars().take(WORD.len() + 12).collect()
    }
}

impl fmt::Display for OrganisationKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{WORD}{}", hex(&self.0))
    }
}

impl FromStr for OrganisationKey {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        let bytes = text.trim().strip_prefix(WORD).and_then(from_hex);
        let bytes = bytes.and_then(|bytes| <[u8; 32]>::try_from(bytes).ok());
        let expected = "ed25519: and 64 hexadecimal digits, as `fallow organisation new-key` prints it";
        bytes.map(Self).ok_or_else(|| Invalid::new("public key of an organisation", text, expected))
    }
}

impl From<OrganisationKey> for String {
    fn from(key: OrganisationKey) -> Self {
        key.to_string()
    }
}

impl TryFrom<String> for OrganisationKey {
    type Error = Invalid;

    fn try_from(text: String) -> Result<Self, Invalid> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r6_10_a_public_key_is_read_as_it_is_written_and_nothing_else_is_one() {
        let key = OrganisationKey::new([0xab; 32]);
        assert_eq!(key.to_string().parse::<OrganisationKey>().unwrap(), key);
        assert_eq!(key.short(), "ed25519:abababababab");
        let digits = "ab".repeat(32);
        for text in ["", "ed25519:", &digits, &format!("ed25519:{digits}0"), &format!("ed25519:{digits}00")] {
            assert!(text.parse::<OrganisationKey>().is_err(), "{text}");
        }
    }
}
