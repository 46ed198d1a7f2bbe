//! A version of the fleet's documents as it is stored, as it is published, and as it is listed.

use std::collections::BTreeMap;
use std::sync::Arc;

use fallow_domain::{DocumentVersion, Instant, SignedDocuments};
use fallow_fleet::{ContentHash, DocumentSet};
use fallow_store::{Format, StoreError};
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};

/// Version 1 had the fleet-wide document alone: a set without groups.
pub(super) const FORMAT: Format = Format { name: "document", version: 2, migrate };
pub(super) const PREFIX: &[u8] = b"document/";

fn migrate(_found: u16, bytes: &[u8]) -> Result<Vec<u8>, String> {
    // What version 1 lacks is left out, and read as none.
    Ok(bytes.to_vec())
}

/// A version with its audit record. It never changes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Audited {
    /// All documents.
    #[serde(flatten)]
    pub set: DocumentSet,
    /// The hash of what they say; empty only in what was stored before there was one.
    #[serde(default)]
    pub hash: ContentHash,
    /// When it was made.
    pub made_at: Instant,
    /// By whom.
    pub made_by: String,
    /// What was changed, in words.
    pub change: String,
    /// Why, in the words of who made it; may be empty.
    #[serde(default)]
    pub message: String,
}

/// A version with its audit record, but without what it says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// Its number.
    pub version: DocumentVersion,
    /// The hash of what it says.
    pub hash: ContentHash,
    /// When it was made.
    pub made_at: Instant,
    /// By whom.
    pub made_by: String,
    /// What was changed, in words.
    pub change: String,
    /// Why, in the words of who made it; may be empty.
    pub message: String,
    /// How many groups it has.
    pub groups: u64,
}

/// What is read of a version for its head: the rest is passed over.
#[derive(Deserialize)]
struct StoredHead {
    document: StoredDocument,
    #[serde(default)]
    groups: BTreeMap<String, IgnoredAny>,
    #[serde(default)]
    hash: ContentHash,
    made_at: Instant,
    made_by: String,
    change: String,
    #[serde(default)]
    message: String,
}

#[derive(Deserialize)]
struct StoredDocument {
    version: DocumentVersion,
}

/// The newest version.
#[derive(Clone, Debug)]
pub struct Published {
    /// The documents with their audit record.
    pub audited: Audited,
    /// The trace context of the change that made it; empty after a restart.
    pub traceparent: String,
    /// What the fleet's organisation has signed of it; none where it signs nothing, or has not yet.
    pub signed: Option<Arc<SignedDocuments>>,
}

/// Reads a stored version.
pub(super) fn read(key: &[u8], value: &[u8]) -> Result<Audited, StoreError> {
    let mut audited: Audited = FORMAT.read(key, value)?;
    // An older version may have stored them in another form.
    for project in &mut audited.set.fleet.projects {
        project.url = project.url.renewed();
    }
    if audited.hash == ContentHash::default() {
        audited.hash = audited.set.hash().map_err(|error| FORMAT.bad_value(key, error))?;
    }
    Ok(audited)
}

impl Audited {
    /// It without what it says.
    #[must_use]
    pub fn head(&self) -> Head {
        let Self { set, hash, made_at, made_by, change, message } = self;
        Head {
            version: set.fleet.version,
            hash: hash.clone(),
            made_at: *made_at,
            made_by: made_by.clone(),
            change: change.clone(),
            message: message.clone(),
            groups: set.groups.0.len() as u64,
        }
    }
}

/// Reads what is listed of a stored version.
pub(super) fn read_head(key: &[u8], value: &[u8]) -> Result<Head, StoreError> {
    let StoredHead { document, groups, mut hash, made_at, made_by, change, message } =
        FORMAT.read(key, value)?;
    if hash == ContentHash::default() {
        hash = read(key, value)?.hash;
    }
    let (version, groups) = (document.version, groups.len() as u64);
    Ok(Head { version, hash, made_at, made_by, change, message, groups })
}
