//! What makes several projects unreachable at once: a network, a power supply, a storage system that they
//! share.

use super::availability::Availability;

/// Something that several projects depend on.
#[derive(Clone, Debug, PartialEq)]
pub struct OutageModel {
    /// Its name. No other has it.
    pub name: String,
    /// The projects whose servers answer only while it is there; none: all of the scenario's.
    pub projects: Vec<String>,
    /// When it is there.
    pub available: Availability,
}

impl OutageModel {
    /// Whether a project depends on it.
    #[must_use]
    pub fn concerns(&self, project: &str) -> bool {
        self.projects.is_empty() || self.projects.iter().any(|name| name == project)
    }
}
