//! What can go wrong with a store: each says what, where, and what to do next.

use std::io;
use std::path::{Path, PathBuf};

use crate::Kind;

/// A store could not be opened, read or written.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Another process works in this directory.
    #[error(
        "the store in {dir} is in use by {}: stop that process first, or choose another directory",
        holder_text(.holder)
    )]
    InUse {
        /// The store's directory.
        dir: PathBuf,
        /// Process id of the holder, if its lock file named one.
        holder: Option<u32>,
    },
    /// The directory cannot be created or written.
    #[error(
        "the store directory {dir} is not writable: check its owner and mode, and that its volume is mounted read-write"
    )]
    NotWritable {
        /// The store's directory.
        dir: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// What is on disk is not what was written. The engine may have rewritten parts while it tried to
    /// recover.
    #[error(
        "the store in {dir} is corrupted ({detail}): restore {} from a copy, or move it away as a whole and start anew",
        whole(.dir)
    )]
    Corrupted {
        /// The store's directory.
        dir: PathBuf,
        /// What showed it.
        detail: String,
    },
    /// The store is another daemon's. Nothing in it was touched.
    #[error(
        "the store in {dir} belongs to {found}, not to {wanted}: nothing was changed; name another directory"
    )]
    OtherKind {
        /// The store's directory.
        dir: PathBuf,
        /// Whose it is.
        found: Kind,
        /// Who wanted to open it.
        wanted: Kind,
    },
    /// A value or the directory was written by a newer version of this software.
    #[error(
        "{what} has format version {found}, newer than the {supported} this program knows: start the newer version of the program that wrote it"
    )]
    NewerFormat {
        /// The value's format and key, or the directory.
        what: String,
        /// The version found.
        found: u16,
        /// The newest version this program reads.
        supported: u16,
    },
    /// A value is not in its envelope, or its migration failed.
    #[error("the {format} under key {key:?} cannot be read ({detail}): restore the store from a copy")]
    BadValue {
        /// The key, printable bytes as they are.
        key: String,
        /// Name of the format expected.
        format: &'static str,
        /// What is wrong with it.
        detail: String,
    },
    /// No space left on the store's volume (R4.12). What was applied before is kept; the batch that met this
    /// is not acknowledged. The store goes on by itself once there is space.
    #[error("no space left on the volume of the store in {dir}: free some, the store then goes on by itself")]
    Full {
        /// The store's directory.
        dir: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// It changed too much, or a write failed, while it was copied.
    #[error("the store in {dir} was not copied: {why}; try again when less is written to it")]
    NotCopied {
        /// The store's directory.
        dir: PathBuf,
        /// What was in the way.
        why: &'static str,
    },
    /// Any other failure of the system.
    #[error("the store in {dir} failed to {action}")]
    Io {
        /// The store's directory.
        dir: PathBuf,
        /// What was being done.
        action: &'static str,
        /// What the system said.
        #[source]
        source: io::Error,
    },
}

impl StoreError {
    /// Sorts a system error into the kinds an operator handles differently.
    pub(crate) fn from_io(dir: &Path, action: &'static str, source: io::Error) -> Self {
        let dir = dir.to_path_buf();
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::Full { dir, source },
            io::ErrorKind::PermissionDenied
            | io::ErrorKind::ReadOnlyFilesystem
            | io::ErrorKind::NotADirectory => Self::NotWritable { dir, source },
            _ => Self::Io { dir, action, source },
        }
    }

    /// Sorts an error of the engine likewise.
    pub(crate) fn from_sled(dir: &Path, action: &'static str, error: sled::Error) -> Self {
        match error {
            sled::Error::Io(source) if source.kind() == io::ErrorKind::InvalidData => {
                Self::corrupted(dir, source.to_string())
            }
            sled::Error::Io(source) => Self::from_io(dir, action, source),
            other => Self::corrupted(dir, other.to_string()),
        }
    }

    pub(crate) fn corrupted(dir: &Path, detail: impl Into<String>) -> Self {
        Self::Corrupted { dir: dir.to_path_buf(), detail: detail.into() }
    }
}

/// The directory that a store is part of: a daemon refuses to make a new store beside what it kept with the
/// old one.
fn whole(store: &Path) -> String {
    let parent = store.parent().filter(|parent| parent.parent().is_some());
    format!("the whole directory {}", parent.unwrap_or(store).display())
}

fn holder_text(holder: &Option<u32>) -> String {
    match holder {
        Some(pid) => format!("process {pid}"),
        None => "another process".to_owned(),
    }
}
