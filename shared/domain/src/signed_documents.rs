//! Documents with what an organisation says of them, as they are stored and sent (R6.10).

use serde::{Deserialize, Serialize};

/// A statement, its signature, and the documents that it is about. What they mean, `fallow-fleet` says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SignedDocuments {
    /// What was signed, byte for byte.
    pub statement: String,
    /// The Ed25519 signature of it.
    #[serde(with = "digits")]
    pub signature: Vec<u8>,
    /// The documents.
    pub documents: String,
}

impl SignedDocuments {
    /// The same statement with other documents: those that it may be taken back to.
    #[must_use]
    pub fn taken_back(&self, documents: &str) -> Self {
        Self { documents: documents.to_owned(), ..self.clone() }
    }
}

/// Bytes as hexadecimal digits.
mod digits {
    use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _};

    use crate::{from_hex, hex};

    pub(super) fn serialize<S: Serializer>(bytes: &[u8], to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&hex(bytes))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u8>, D::Error> {
        let text = String::deserialize(from)?;
        from_hex(&text).ok_or_else(|| D::Error::custom("no hexadecimal digits"))
    }
}
