//! What a coordinator asks of its agents: a versioned document.

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{AccountKey, Invalid, MasterUrl, Preferences, Share};

/// The version of a fleet document. Rises with every change; 0 means that no document was ever accepted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct DocumentVersion(pub u64);

impl fmt::Display for DocumentVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A project that agents shall serve.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProjectAssignment {
    /// Its name in the fleet, such as `mersenne`.
    pub name: String,
    /// Where it is.
    pub url: MasterUrl,
    /// The account that the agent computes for.
    pub account_key: AccountKey,
    /// Its weight against the other projects.
    pub share: Share,
}

/// A coordinator's wishes for an agent: applied whole or not at all, kept when the coordinator is gone
/// (R6.1).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FleetDocument {
    /// Its version.
    pub version: DocumentVersion,
    /// Names what it says, before an agent's own account keys are in it: documents of one version that are
    /// for hosts in other groups have other ones. Empty where nobody said it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub content: String,
    /// The projects to be attached to, each once. Others that came from a document are detached.
    pub projects: Vec<ProjectAssignment>,
    /// What the host may do, before its owner's limits.
    pub preferences: Preferences,
}

impl FleetDocument {
    /// Refuses a document that an agent could not follow.
    ///
    /// # Errors
    /// [`Invalid`] for the first value out of range, or a project named twice.
    pub fn check(&self) -> Result<(), Invalid> {
        self.preferences.check()?;
        let mut seen = BTreeSet::new();
        match self.projects.iter().find(|project| !seen.insert(&project.url)) {
            Some(twice) => Err(Invalid::new("project", &twice.url, "each project once in a document")),
            None => Ok(()),
        }
    }
}
