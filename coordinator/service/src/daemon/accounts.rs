//! Agents' accounts are those of the projects that this coordinator hosts.

use fallow_domain::{AccountKey, AgentId, ProjectAssignment};
use fallow_work_server::{ProjectError, ProjectServer};

use super::StartError;
use crate::audit::Actor;
use crate::document::{Author, DocumentError, Documents};
use crate::fleet::Accounts;
use fallow_daemon::clock;

/// Gives the fleet the keys of its agents' accounts in hosted projects.
pub(super) struct ProjectAccounts(pub(super) ProjectServer);

impl Accounts for ProjectAccounts {
    fn key(
        &self,
        agent: &AgentId,
        first: Option<&AgentId>,
        project: &ProjectAssignment,
    ) -> Result<Option<AccountKey>, String> {
        match self.0.project(&project.name) {
            Ok(info) if info.url == project.url => {
                let key = match first {
                    Some(first) => self.0.copy_key(&project.name, agent, first),
                    None => self.0.agent_key(&project.name, agent),
                };
                key.map(Some).map_err(|error| error.to_string())
            }
            Ok(_) | Err(ProjectError::UnknownProject { .. }) => Ok(None),
            Err(error) => Err(error.to_string()),
        }
    }
}

/// In a store of an earlier version all agents had one account of a project together. A new version of the
/// document, of the same content, brings each its own.
pub(super) async fn tell_agents(documents: &Documents, projects: &ProjectServer) -> Result<(), StartError> {
    if !projects.has_agents_to_tell() {
        return Ok(());
    }
    let author = Author { actor: Actor::Coordinator, ..Author::default() };
    let change = "each agent has an account of its own in every hosted project";
    // The old key of a project's own account was all agents'.
    let keys: Vec<_> = projects.projects().into_iter().map(|info| (info.url, info.account_key)).collect();
    documents.renew(author, clock::now(), change, &keys).await.map_err(|error| match error {
        DocumentError::Store(error) => StartError::Store(error),
        other => StartError::Document(other),
    })?;
    let projects = projects.clone();
    let noted = tokio::task::spawn_blocking(move || projects.note_agents_told()).await;
    Ok(noted.map_err(StartError::Died)??)
}
