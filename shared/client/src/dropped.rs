//! Why a job that a project sends is not taken.

/// Why a job that a project sends cannot be had here. It is dropped, and the server learns of it as of any
/// lost job.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Dropped {
    /// What it computes is not known.
    #[error("its workunit {0} did not come with it")]
    NoWorkunit(String),
    /// Nothing was measured of the host yet.
    #[error("the host is not known yet")]
    NoHost,
    /// The host cannot run what it needs.
    #[error("this host does not run programs for {0}")]
    Platform(String),
    /// Its program is not known.
    #[error("there is no version {number} of {app} for {platform}")]
    NoVersion {
        /// The number of the version that it names.
        number: u32,
        /// The application's short name.
        app: String,
        /// The platform that it is to run on.
        platform: String,
    },
    /// It needs a kind of coprocessor that nobody here knows.
    #[error("it needs a coprocessor {0:?}, unknown here")]
    Coprocessor(String),
}
