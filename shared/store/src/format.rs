//! The envelope around a value: which version of its format it is in.
//!
//! Layout: magic byte 0xFA, version as big-endian u16, the value's own bytes. What the bytes are (JSON,
//! protobuf) is the caller's matter.

use std::fmt::Display;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::StoreError;

/// First byte of every envelope: not the first byte of any JSON or UTF-8 text, so that a bare value is
/// noticed.
const MAGIC: u8 = 0xFA;

/// A migration: from the version found (always older) and its bytes to the current version's bytes.
pub type Migrate = fn(found: u16, bytes: &[u8]) -> Result<Vec<u8>, String>;

/// One kind of value, its current version, and how older versions become it.
///
/// ```
/// use fallow_store::{Format, no_migration};
/// const JOB: Format = Format { name: "job", version: 1, migrate: no_migration };
/// let stored = JOB.wrap(b"{}");
/// assert_eq!(JOB.open(b"job/1", &stored).unwrap(), b"{}");
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Format {
    /// What the value is, for messages.
    pub name: &'static str,
    /// The version that is written.
    pub version: u16,
    /// Makes an older value current.
    pub migrate: Migrate,
}

/// For a format whose first version is the current one.
pub fn no_migration(found: u16, _bytes: &[u8]) -> Result<Vec<u8>, String> {
    Err(format!("version {found} was never released"))
}

impl Format {
    /// Puts the value's bytes in an envelope of the current version.
    #[must_use]
    pub fn wrap(&self, bytes: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(bytes.len() + 3);
        out.push(MAGIC);
        out.extend_from_slice(&self.version.to_be_bytes());
        out.extend_from_slice(bytes);
        out
    }

    /// Takes the value's bytes out of their envelope, migrated to the current version. `key` is for messages.
    ///
    /// Errors: [`StoreError::NewerFormat`] for a version above the current one, [`StoreError::BadValue`] for
    /// no envelope or a failed migration.
    pub fn open(&self, key: &[u8], stored: &[u8]) -> Result<Vec<u8>, StoreError> {
        let [MAGIC, high, low, bytes @ ..] = stored else {
            return Err(self.bad_value(key, format_args!("{} bytes without a format envelope", stored.len())));
        };
        let found = u16::from_be_bytes([*high, *low]);
        if found > self.version {
            let what = format!("the {} under key {:?}", self.name, printable(key));
            return Err(StoreError::NewerFormat { what, found, supported: self.version });
        }
        if found == self.version {
            return Ok(bytes.to_vec());
        }
        (self.migrate)(found, bytes)
            .map_err(|why| self.bad_value(key, format_args!("migration from version {found} failed: {why}")))
    }

    /// A record as JSON in an envelope of the current version.
    ///
    /// # Errors
    /// [`StoreError::BadValue`] for what JSON cannot hold, such as a map whose keys are no texts.
    pub fn write<T: Serialize + ?Sized>(&self, key: &[u8], record: &T) -> Result<Vec<u8>, StoreError> {
        let bytes = serde_json::to_vec(record).map_err(|error| self.bad_value(key, error))?;
        Ok(self.wrap(&bytes))
    }

    /// A record out of its envelope, migrated to the current version.
    ///
    /// # Errors
    /// Those of [`Format::open`], and [`StoreError::BadValue`] for what is no such record.
    pub fn read<T: DeserializeOwned>(&self, key: &[u8], stored: &[u8]) -> Result<T, StoreError> {
        serde_json::from_slice(&self.open(key, stored)?).map_err(|error| self.bad_value(key, error))
    }

    /// The error for a value that its reader does not understand, and why.
    pub fn bad_value(&self, key: &[u8], why: impl Display) -> StoreError {
        StoreError::BadValue { key: printable(key), format: self.name, detail: why.to_string() }
    }
}

fn printable(key: &[u8]) -> String {
    key.escape_ascii().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shout(found: u16, bytes: &[u8]) -> Result<Vec<u8>, String> {
        match found {
            1 => Ok(bytes.to_ascii_uppercase()),
            _ => Err("unknown".to_owned()),
        }
    }

    const OLD: Format = Format { name: "word", version: 1, migrate: no_migration };
    const NEW: Format = Format { name: "word", version: 2, migrate: shout };

    #[test]
    fn an_older_value_is_migrated() {
        assert_eq!(NEW.open(b"k", &OLD.wrap(b"hello")).unwrap(), b"HELLO");
    }

    #[test]
    fn a_newer_value_is_refused_with_what_to_do() {
        let error = OLD.open(b"word/1", &NEW.wrap(b"x")).unwrap_err();
        assert!(matches!(error, StoreError::NewerFormat { found: 2, supported: 1, .. }));
        let text = error.to_string();
        assert!(text.contains("word/1") && text.contains("start the newer version"), "{text}");
    }

    #[test]
    fn a_value_without_an_envelope_is_named_not_guessed() {
        for stored in [&b""[..], b"{}", b"\xfa", b"\xfa\0"] {
            assert!(matches!(OLD.open(b"k", stored), Err(StoreError::BadValue { .. })));
        }
    }

    #[test]
    fn a_record_comes_back_and_what_is_none_is_named_with_its_key() {
        let stored = OLD.write(b"k", &["a", "b"]).unwrap();
        assert_eq!(OLD.open(b"k", &stored).unwrap(), br#"["a","b"]"#);
        assert_eq!(OLD.read::<Vec<String>>(b"k", &stored).unwrap(), ["a", "b"]);
        let text = OLD.read::<u32>(b"word/1", &stored).unwrap_err().to_string();
        assert!(text.contains("word/1") && text.contains("invalid type"), "{text}");
        // JSON has no such keys.
        let keys = std::collections::BTreeMap::from([((1, 2), 3)]);
        assert!(matches!(OLD.write(b"k", &keys), Err(StoreError::BadValue { .. })));
    }

    #[test]
    fn a_migration_that_fails_says_from_which_version() {
        let zero = Format { name: "word", version: 0, migrate: no_migration };
        let text = NEW.open(b"k", &zero.wrap(b"x")).unwrap_err().to_string();
        assert!(text.contains("from version 0"), "{text}");
    }
}
