//! Hosts that follow newer documents than the coordinator has (R6.5): it was put back to an earlier state,
//! and they take nothing of what it says.

use fallow_domain::DocumentVersion;
use fallow_telemetry::RateLimit;

use super::{Agent, Fleet};

static NEWER: RateLimit = RateLimit::new();

impl Fleet {
    /// Tells operators of a host that follows a version of which this coordinator does not know.
    pub(super) fn look_for_newer(&self, agent: &Agent, follows: DocumentVersion) {
        let newest = self.documents.document().version;
        if follows > newest
            && let Some(times) = NEWER.allow()
        {
            tracing::warn!(
                agent = agent.id.0,
                %follows,
                %newest,
                times,
                "a host follows a newer version of the documents than there is here, and refuses what this coordinator says: if the \
                 coordinator was put back to an earlier state, `fallow restore --new-term` begins a new term, which all hosts take"
            );
        }
    }
}
