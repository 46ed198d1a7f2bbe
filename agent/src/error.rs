//! What ends the agent or refuses a command, and the exit code that says so.

use std::io;
use std::path::PathBuf;

use fallow_domain::ExitCode;
use fallow_domain::printable::shell_path;
use fallow_store::StoreError;

/// An error that reaches the person at the command line.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// Another process works in the data directory.
    #[error("the agent directory {dir} is in use by {}: stop that process (fallow-agent stop --dir {}), or choose another directory", holder_text(.holder), shell_path(dir))]
    InUse {
        /// The directory.
        dir: PathBuf,
        /// Its holder's process id, if it left one.
        holder: Option<u32>,
    },
    /// The data directory cannot be used.
    #[error(
        "the agent directory {dir} cannot be created or written: check its owner, its mode and the space on its volume"
    )]
    Directory {
        /// The directory.
        dir: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The store cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The records in the store make no client.
    #[error(
        "the records in {dir} cannot be read: {why}. Restore the whole directory {0} from a copy, or move it away as a whole and start anew",
        dir.parent().unwrap_or(dir).display()
    )]
    Records {
        /// The store.
        dir: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// Something given makes no sense.
    #[error("{what}")]
    BadInput {
        /// What, where and what to do.
        what: String,
    },
    /// Somebody does not answer.
    #[error("{what}")]
    Unreachable {
        /// Who, where, why, and what to do.
        what: String,
    },
    /// Somebody answered and refused.
    #[error("{what}")]
    Refused {
        /// What was refused, why, and what to do.
        what: String,
    },
    /// No room for what has to be stored.
    #[error("{what}")]
    NoSpace {
        /// What, where, and what to do.
        what: String,
    },
    /// Files of the agent's own are missing, or hold what it never wrote.
    #[error("{what}")]
    Damaged {
        /// Which, what is wrong with them, and what to do.
        what: String,
    },
    /// A fault of the system that no other kind names.
    #[error("{what}")]
    System {
        /// What was being done.
        what: String,
        /// What the system said.
        #[source]
        source: io::Error,
    },
}

impl AgentError {
    /// A value that makes no sense.
    pub fn bad_input(what: impl Into<String>) -> Self {
        Self::BadInput { what: what.into() }
    }
    /// No answer.
    pub fn unreachable(what: impl Into<String>) -> Self {
        Self::Unreachable { what: what.into() }
    }
    /// A refusal.
    pub fn refused(what: impl Into<String>) -> Self {
        Self::Refused { what: what.into() }
    }
    /// No room.
    pub fn no_space(what: impl Into<String>) -> Self {
        Self::NoSpace { what: what.into() }
    }
    /// Missing or garbled.
    pub fn damaged(what: impl Into<String>) -> Self {
        Self::Damaged { what: what.into() }
    }
    /// A fault of the system.
    pub fn system(what: impl Into<String>, source: io::Error) -> Self {
        Self::System { what: what.into(), source }
    }

    /// What the process ends with.
    pub fn exit_code(&self) -> ExitCode {
        match self {
            Self::InUse { .. } | Self::Store(StoreError::InUse { .. }) => ExitCode::InUse,
            Self::Directory { .. }
            | Self::NoSpace { .. }
            | Self::Store(StoreError::NotWritable { .. } | StoreError::Full { .. }) => ExitCode::NoSpace,
            Self::Store(
                StoreError::Corrupted { .. } | StoreError::NewerFormat { .. } | StoreError::BadValue { .. },
            )
            | Self::Records { .. }
            | Self::Damaged { .. } => ExitCode::BadStore,
            Self::System { source, .. } if is_of_the_volume(source.kind()) => ExitCode::NoSpace,
            Self::Store(StoreError::Io { .. } | StoreError::NotCopied { .. }) | Self::System { .. } => {
                ExitCode::Internal
            }
            Self::BadInput { .. } | Self::Store(StoreError::OtherKind { .. }) => ExitCode::BadInput,
            Self::Unreachable { .. } => ExitCode::Unreachable,
            Self::Refused { .. } => ExitCode::Refused,
        }
    }
}

/// Whether a volume is full, or not there to be written.
const fn is_of_the_volume(kind: io::ErrorKind) -> bool {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, ReadOnlyFilesystem, StorageFull};
    matches!(kind, FileTooLarge | QuotaExceeded | ReadOnlyFilesystem | StorageFull)
}

fn holder_text(holder: &Option<u32>) -> String {
    holder.map_or_else(|| "another process".to_owned(), |pid| format!("process {pid}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r6_11_a_full_or_read_only_volume_has_its_own_exit_status_whatever_was_to_be_written() {
        use rustix::io::Errno;
        for (errno, code) in [
            (Errno::NOSPC, ExitCode::NoSpace),
            (Errno::DQUOT, ExitCode::NoSpace),
            (Errno::ROFS, ExitCode::NoSpace),
            (Errno::IO, ExitCode::Internal),
        ] {
            let error = AgentError::system("cannot write identity.json", errno.into());
            assert_eq!(error.exit_code(), code, "{errno}");
        }
    }
}
