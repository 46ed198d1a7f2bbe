//! Why there is no backup, or why it is not put back.

use std::io;
use std::path::PathBuf;

use fallow_domain::{ExitCode, printable};
use fallow_store::StoreError;

use crate::document::DocumentError;

/// Bytes of what is quoted.
const SHOWN: usize = 4 << 10;

/// A backup that is not made, or not put back.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// A file of the coordinator cannot be read or written.
    #[error("{} cannot be {what}", printable::line(&.path.to_string_lossy(), SHOWN))]
    File {
        /// Which.
        path: PathBuf,
        /// What was to be done, such as "read".
        what: &'static str,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// Whoever takes the backup takes no more of it.
    #[error("the backup was broken off")]
    BrokenOff(#[source] io::Error),
    /// It is no backup, or damaged.
    #[error("this is no whole backup of a coordinator ({detail}): nothing was changed; use another copy")]
    NotWhole {
        /// What is wrong with it.
        detail: String,
    },
    /// It was made by a newer version of this program.
    #[error(
        "the backup has format {found}, and this version of fallow reads {supported} at most: use the version that made it"
    )]
    Newer {
        /// Its format.
        found: u32,
        /// The newest that is known.
        supported: u32,
    },
    /// The directory is another fleet's.
    #[error(
        "the backup is of another fleet than the coordinator in {dir} (its certificate authority is another one): nothing was \
         changed; put it back into an empty directory"
    )]
    OtherFleet {
        /// The directory.
        dir: PathBuf,
    },
    /// Somebody else puts a backup back at this moment.
    #[error("a backup is being put back in {dir} at this moment: wait until that is over")]
    UnderWay {
        /// The directory.
        dir: PathBuf,
    },
    /// The documents do not begin a new term.
    #[error(transparent)]
    Document(#[from] DocumentError),
    /// A store.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl BackupError {
    pub(super) fn file(path: impl Into<PathBuf>, what: &'static str) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::File { path, what, source }
    }

    pub(super) fn not_whole(detail: impl Into<String>) -> Self {
        // It may quote what the backup says.
        Self::NotWhole { detail: printable::line(&detail.into(), SHOWN) }
    }

    /// The exit status that it gives.
    #[must_use]
    pub fn exit_code(&self) -> ExitCode {
        match self {
            Self::NotWhole { .. } | Self::Newer { .. } | Self::OtherFleet { .. } => ExitCode::BadInput,
            Self::UnderWay { .. } | Self::Store(StoreError::InUse { .. }) => ExitCode::InUse,
            Self::File { .. } | Self::Store(StoreError::Full { .. } | StoreError::NotWritable { .. }) => {
                ExitCode::NoSpace
            }
            Self::Store(StoreError::Corrupted { .. } | StoreError::NewerFormat { .. }) => ExitCode::BadStore,
            Self::BrokenOff(_) | Self::Document(_) | Self::Store(_) => ExitCode::Internal,
        }
    }
}
