//! Each agent's document names the agent's own accounts (R6.10): no agent is told another's key.
//!
//! The document that is stored and shown to operators names a project's own account. On its way to an agent, the key of
//! every project that this coordinator hosts is replaced. Keys are found once per agent and kept, so that a new document for
//! thousands of agents costs a copy each.

use std::collections::BTreeMap;
use std::sync::Arc;

use fallow_domain::{AccountKey, AgentId, ProjectAssignment};
use fallow_proto::fleet::v1 as wire;
use tonic::Status;

use super::{Agent, Fleet, lock};
use crate::document::Published;

/// Gives agents their accounts in projects.
pub trait Accounts: Send + Sync {
    /// The key of an agent's own account, which is made if there is none. None for a project that is not hosted here:
    /// agents share the account that the document names. Blocks.
    ///
    /// # Errors
    /// In words, why there is no account now.
    fn key(&self, agent: &AgentId, project: &ProjectAssignment) -> Result<Option<AccountKey>, String>;
}

impl Fleet {
    /// Who gives agents their accounts. Said once, before anybody is served.
    pub fn set_accounts(&self, accounts: Arc<dyn Accounts>) {
        if self.accounts.set(accounts).is_err() {
            tracing::error!("the fleet's accounts are given by somebody already");
        }
    }

    /// A document as an agent gets it.
    pub(super) async fn addressed(
        &self,
        agent: &Agent,
        document: &Published,
    ) -> Result<wire::Document, Status> {
        let mut own = document.wire.clone();
        let Some(accounts) = self.accounts.get().cloned() else { return Ok(own) };
        let mut keys = lock(&agent.keys).clone();
        let projects = document.audited.document.projects.iter();
        let lacking: Vec<_> = projects.filter(|project| !keys.contains_key(&project.name)).cloned().collect();
        if !lacking.is_empty() {
            let found = find(accounts, agent.id.clone(), lacking).await?;
            lock(&agent.keys).extend(found.clone());
            keys.extend(found);
        }
        for project in &mut own.projects {
            if let Some(key) = keys.get(&project.name) {
                key.reveal().clone_into(&mut project.account_key);
            }
        }
        Ok(own)
    }
}

async fn find(
    accounts: Arc<dyn Accounts>,
    agent: AgentId,
    projects: Vec<ProjectAssignment>,
) -> Result<BTreeMap<String, AccountKey>, Status> {
    let work = move || {
        let key = |project: ProjectAssignment| Ok((accounts.key(&agent, &project)?, project.name));
        projects.into_iter().map(key).collect::<Result<Vec<_>, String>>()
    };
    let found = tokio::task::spawn_blocking(work).await.map_err(|died| Status::internal(died.to_string()))?;
    let found = found.map_err(|why| {
        tracing::error!(error = why, "an agent's account cannot be made");
        Status::unavailable(format!("the agent's account cannot be made now: {why}"))
    })?;
    Ok(found.into_iter().filter_map(|(key, name)| Some((name, key?))).collect())
}
