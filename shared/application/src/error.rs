//! What keeps an application from starting.

use std::io;

/// Why [`crate::Application::start`] failed. Under a client it never returns for the second reason: the
/// process asks to be started again later, and exits.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The lock file cannot be opened or locked.
    #[error("cannot lock {file} in the current directory; make the directory writable and start again")]
    Lock {
        /// The file's name.
        file: &'static str,
        /// Why.
        source: io::Error,
    },
    /// Another instance runs here.
    #[error(
        "another instance of an application runs in this directory; wait for its end, or use another one"
    )]
    Occupied,
    /// The library's thread cannot be started.
    #[error("cannot start the thread that listens to the client")]
    Thread(#[source] io::Error),
}
