//! What documents say, as a hash: hosts in other groups may get other documents of one version (R6.5).

use std::collections::BTreeMap;

use fallow_domain::{FleetDocument, Labels, from_hex, hex};
use ring::digest::{SHA256, digest};
use serde::{Deserialize, Serialize};

use crate::{DocumentSet, Effective, GroupName};

/// SHA-256 of what documents say, in hexadecimal digits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ContentHash(String);

impl ContentHash {
    /// The digits; empty for none.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Maps and sets are ordered and numbers written in one way, so the bytes that are hashed are canonical.
    pub(crate) fn of(said: &impl Serialize) -> Result<Self, serde_json::Error> {
        Ok(Self::from_bytes(digest(&SHA256, &serde_json::to_vec(said)?).as_ref()))
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Self {
        Self(hex(bytes))
    }

    /// From 64 digits as they are written.
    pub(crate) fn from_digits(digits: &str) -> Option<Self> {
        let bytes = from_hex(digits).filter(|bytes| bytes.len() == 32)?;
        Some(Self::from_bytes(&bytes)).filter(|hash| hash.as_str() == digits)
    }

    /// The hash of what a host's document says, whatever its version.
    ///
    /// # Errors
    /// What the serialisation says, where a value cannot be written.
    pub fn of_document(document: &FleetDocument) -> Result<Self, serde_json::Error> {
        let FleetDocument { version: _, content: _, projects, preferences } = document;
        Self::of(&(projects, preferences))
    }
}

/// The contents of the documents of one set, each computed once.
pub struct Contents<'s> {
    set: &'s DocumentSet,
    known: BTreeMap<Vec<&'s GroupName>, ContentHash>,
}

impl<'s> Contents<'s> {
    /// Those of a set.
    #[must_use]
    pub fn of(set: &'s DocumentSet) -> Self {
        Self { set, known: BTreeMap::new() }
    }

    /// The content of the document for a host with these labels.
    ///
    /// # Errors
    /// As [`ContentHash::of_document`].
    pub fn for_labels(&mut self, labels: &Labels) -> Result<ContentHash, serde_json::Error> {
        // Nothing else of a host goes into its document.
        let groups: Vec<&GroupName> = self.set.groups.of(labels).into_iter().map(|(name, _)| name).collect();
        if let Some(known) = self.known.get(&groups) {
            return Ok(known.clone());
        }
        let content = ContentHash::of_document(&Effective::of(self.set, labels).document(self.set))?;
        self.known.insert(groups, content.clone());
        Ok(content)
    }
}
