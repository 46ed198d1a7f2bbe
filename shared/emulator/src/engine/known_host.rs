//! What a project's server knows of a host.

use fallow_policy::send::Trials;

/// A host, as a project's server knows it.
#[derive(Clone, Debug, Default)]
pub(crate) struct KnownHost {
    /// It was here before.
    pub(crate) known: bool,
    /// Which applications' versions it has, by their places in the project.
    pub(crate) versions: Vec<bool>,
    /// Jobs that it was sent and that are not over.
    pub(crate) held: u64,
    /// Jobs that it was sent.
    pub(crate) jobs_sent: u64,
    /// Jobs that it computed to their end and reported.
    pub(crate) jobs_finished: u64,
    /// Whether jobs are tried on it.
    pub(crate) trials: Trials,
}

impl KnownHost {
    /// Whether this is the first time that it is sent a job of an application.
    pub(crate) fn lacks_version(&mut self, application: usize) -> bool {
        self.versions.get_mut(application).is_some_and(|has| !std::mem::replace(has, true))
    }
}
