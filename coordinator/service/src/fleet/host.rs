//! What the fleet says of an agent to whoever lists it.

use fallow_domain::agent_state::{DiskDecision, HostState, ProjectState, TaskState};
use fallow_domain::{AgentId, DocumentVersion, Instant, Labels};
use fallow_fleet::DocumentSet;

use super::Agent;
use super::copies::CopyOf;
use super::enrol::Revocation;
use super::given::Given;
use crate::document::Release;
use fallow_daemon::lock;

/// An agent and what it said last.
#[derive(Clone, Debug, PartialEq)]
pub struct Host {
    /// Its id.
    pub agent: AgentId,
    /// Its stream is open.
    pub connected: bool,
    /// When something came from it last; the epoch for never.
    pub last_seen: Instant,
    /// The last message that was applied.
    pub applied_sequence: u64,
    /// Its labels.
    pub labels: Labels,
    /// The host. Of an agent that has told nothing yet only the name is known.
    pub state: HostState,
    /// Its projects, in order of their URLs.
    pub projects: Vec<ProjectState>,
    /// Its tasks, in order of their projects' URLs and their names.
    pub tasks: Vec<TaskState>,
    /// What was decided about its disk, the last at the end.
    pub disk_decisions: Vec<DiskDecision>,
    /// That it was taken out of the fleet.
    pub revoked: Option<Revocation>,
    /// Whose copy it was before it became a host of its own.
    pub copy_of: Option<CopyOf>,
    /// Its newest certificate is good until then; the epoch where it was not seen since the coordinator's
    /// start.
    pub certificate_until: Instant,
    /// The versions that it was given; none where that was not kept yet.
    given: Option<Given>,
}

impl Host {
    fn was_given(&self, version: DocumentVersion) -> Option<bool> {
        self.given.as_ref().and_then(|given| given.has(version))
    }

    /// The documents that it is to have by what is released.
    #[must_use]
    pub fn set(&self, release: &Release) -> DocumentSet {
        let has = self.state.document_version;
        let of = release.of(&self.agent, has, |version| self.was_given(version), || self.labels.clone());
        // Nothing is sent to who keeps what it has while a version waits for its signature.
        crate::document::set_of(of.or_else(|| release.base()).map(|newest| &**newest))
    }

    /// The version of these.
    #[must_use]
    pub fn wanted(&self, release: &Release) -> DocumentVersion {
        let has = self.state.document_version;
        let wanted = release.of(&self.agent, has, |version| self.was_given(version), || self.labels.clone());
        let version =
            |published: &std::sync::Arc<crate::document::Published>| published.audited.set.fleet.version;
        // While a version waits for its signature, who has more than the others is to keep it.
        let keeps = release.is_held && release.newest.as_ref().is_some_and(|newest| has <= version(newest));
        wanted.map_or(if keeps { has } else { DocumentVersion(0) }, version)
    }
}

impl Agent {
    pub(super) fn host(&self) -> Host {
        let (hostname, revoked, copy_of) = {
            let record = lock(&self.record);
            (record.hostname.clone(), record.revoked.clone(), record.copy_of.clone())
        };
        let labels = self.labels();
        let state = lock(&self.state);
        let unknown = || HostState { hostname: hostname.clone(), ..HostState::default() };
        Host {
            agent: self.id.clone(),
            connected: self.is_connected(),
            last_seen: self.last_seen(),
            applied_sequence: state.position.sequence,
            labels,
            state: state.host().cloned().unwrap_or_else(unknown),
            projects: state.projects().cloned().collect(),
            tasks: state.tasks().cloned().collect(),
            disk_decisions: state.disk_decisions().to_vec(),
            revoked,
            copy_of,
            certificate_until: self.certificate_until(),
            given: lock(&self.given).clone(),
        }
    }
}
