//! Each agent's document names the agent's own accounts (R6.10): no agent is told another's key.
//!
//! The documents that are stored and shown to operators name a project's own account. On the way to an agent,
//! which gets what holds for its labels (R6.4), the key of every project that this coordinator hosts is
//! replaced. Keys are found once per agent and kept, so that a new document for thousands of agents costs a
//! copy each.
//!
//! An account that cannot be made now (a full disk) withholds the document from its agent until it can:
//! without its own key the agent would be a stranger to the project. It goes on with the document that it
//! has.

use std::collections::BTreeMap;
use std::sync::Arc;

use fallow_daemon::lock;
use fallow_domain::{AccountKey, AgentId, FleetDocument, ProjectAssignment};

use fallow_fleet::ContentHash;

use super::{Agent, Fleet};
use crate::document::Published;

/// Gives agents their accounts in projects.
pub trait Accounts: Send + Sync {
    /// The key of an agent's own account, which is made if there is none. None for a project that is not
    /// hosted here: agents share the account that the document names. `first` is the agent of the host that
    /// its host is a copy of, if it is one: towards quorums they are one. Blocks.
    ///
    /// # Errors
    /// In words, why there is no account now.
    fn key(
        &self,
        agent: &AgentId,
        first: Option<&AgentId>,
        project: &ProjectAssignment,
    ) -> Result<Option<AccountKey>, String>;
}

impl Fleet {
    /// Who gives agents their accounts. Said once, before anybody is served.
    pub fn set_accounts(&self, accounts: Arc<dyn Accounts>) {
        if self.accounts.set(accounts).is_err() {
            tracing::error!("the fleet's accounts are given by somebody already");
        }
    }

    /// A document as an agent gets it; in words, why there is none now.
    pub(super) async fn addressed(
        &self,
        agent: &Agent,
        document: &Published,
    ) -> Result<FleetDocument, String> {
        if let Some(why) = &*agent.removed.borrow() {
            return Err(why.clone());
        }
        let set = &document.audited.set;
        let mut own = agent.effective(set).document(set);
        // Of what it says to every host with these labels: keys of the agent's own make no other content.
        let content = ContentHash::of_document(&own).map_err(|error| error.to_string())?;
        content.as_str().clone_into(&mut own.content);
        let Some(accounts) = self.accounts.get().cloned() else { return Ok(own) };
        let mut keys = lock(&agent.keys).clone();
        let lacking: Vec<_> =
            own.projects.iter().filter(|project| !keys.contains_key(&project.name)).cloned().collect();
        if !lacking.is_empty() {
            let (found, failed) = find(accounts, (agent.id.clone(), self.first_of(agent)), lacking).await?;
            lock(&agent.keys).extend(found.clone());
            if let Some(why) = failed {
                return Err(why);
            }
            keys.extend(found);
        }
        for project in &mut own.projects {
            if let Some(key) = keys.get(&project.name) {
                project.account_key = key.clone();
            }
        }
        Ok(own)
    }
}

/// The keys of an agent's own accounts in these projects, and why the first of those that are lacking is.
async fn find(
    accounts: Arc<dyn Accounts>,
    (agent, first): (AgentId, Option<AgentId>),
    projects: Vec<ProjectAssignment>,
) -> Result<(BTreeMap<String, AccountKey>, Option<String>), String> {
    let work = move || {
        let (mut found, mut failed) = (BTreeMap::new(), None);
        for project in projects {
            match accounts.key(&agent, first.as_ref(), &project) {
                Ok(key) => found.extend(key.map(|key| (project.name, key))),
                Err(why) => {
                    failed.get_or_insert(format!("project {}: {why}", project.name));
                }
            }
        }
        (found, failed)
    };
    tokio::task::spawn_blocking(work).await.map_err(|died| died.to_string())
}
