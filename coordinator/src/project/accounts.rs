//! Accounts of the fleet's agents: one for each agent, so that what one has or does is nobody else's.
//!
//! An agent's key is derived from a secret of the project and the agent's id (HMAC-SHA256), and so is the same after a
//! restart, and after a return to an older copy of the store: agents ask for their document only when there is a newer
//! one, and would not learn of another key. Without the secret nobody can tell one key from another.

use fallow_domain::{AccountKey, AgentId, Instant};
use fallow_store::Store;
use ring::hmac;

use super::error::ProjectError;
use super::hosted::{Project, lock};
use super::keys::{Keys, hex};
use super::random::random_key;
use super::records::{Account, Counters, ProjectRecord};
use super::txn::Txn;

/// Bytes of a key: 32 hexadecimal digits, as BOINC's own.
const KEY_BYTES: usize = 16;

/// A secret that agents' keys are derived from.
pub(crate) fn new_seed() -> Result<String, ProjectError> {
    Ok([random_key()?, random_key()?].concat())
}

/// Gives the record of a project from before agents had accounts of their own a secret for their keys.
pub(crate) fn with_seed(
    store: &dyn Store,
    keys: &Keys,
    record: ProjectRecord,
) -> Result<ProjectRecord, ProjectError> {
    if !record.agent_seed.is_empty() {
        return Ok(record);
    }
    let record = ProjectRecord { agent_seed: new_seed()?, ..record };
    let mut txn = Txn::new(store);
    txn.put("project", keys.settings(), &record)?;
    let _ = store.apply_durable(txn.into_batch())?;
    Ok(record)
}

impl Project {
    /// The key of an agent's account, which is made if there is none.
    pub(crate) fn agent_key(&self, agent: &AgentId, now: Instant) -> Result<AccountKey, ProjectError> {
        let key = self.key_of(agent);
        let known = |txn: &Txn<'_>| txn.contains(&self.keys.account(key.reveal()));
        if known(&self.read())? {
            return Ok(key);
        }
        let account = Account {
            id: 0,
            key: key.clone(),
            email: format!("{}@{}.invalid", agent.0.to_lowercase(), self.name),
            passwd_hash: String::new(),
            name: "fleet".to_owned(),
            created_at: now,
            cross_project_id: random_key()?,
            agent: Some(agent.clone()),
            host: 0,
        };
        self.transact(|txn| {
            if known(txn)? {
                return Ok(());
            }
            let mut counters: Counters = txn.get("counters", &self.keys.counters())?.unwrap_or_default();
            counters.last_account += 1;
            let account = Account { id: counters.last_account, ..account };
            txn.put("counters", self.keys.counters(), &counters)?;
            txn.put("account", self.keys.account(account.key.reveal()), &account)
        })?;
        Ok(key)
    }

    fn key_of(&self, agent: &AgentId) -> AccountKey {
        let record = lock(&self.record);
        let secret = hmac::Key::new(hmac::HMAC_SHA256, record.agent_seed.as_bytes());
        let tag = hmac::sign(&secret, agent.0.as_bytes());
        AccountKey::new(hex(tag.as_ref().get(..KEY_BYTES).unwrap_or_default()))
    }

    /// Whether the fleet has yet to be sent a document with its agents' own keys.
    pub(crate) fn has_agents_to_tell(&self) -> bool {
        !lock(&self.record).agents_told
    }

    /// They were sent one.
    pub(crate) fn note_agents_told(&self) -> Result<(), ProjectError> {
        let _alone = lock(&self.adding);
        let told = ProjectRecord { agents_told: true, ..lock(&self.record).clone() };
        self.transact_durably(|txn| txn.put("project", self.keys.settings(), &told))?;
        *lock(&self.record) = told;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use fallow_boinc::scheduler::{SchedulerReply, SchedulerRequest};
    use fallow_domain::Duration;
    use fallow_store::SledStore;

    use super::*;
    use crate::project::settings::ProjectSettings;

    const URL: &str = "http://127.0.0.1:1";

    fn now() -> Instant {
        Instant::EPOCH + Duration::from_hours(9)
    }

    /// A project as an earlier version left it.
    fn old(store: &std::sync::Arc<dyn Store>, dir: &Path) -> Project {
        let settings = ProjectSettings::default();
        let made = Project::create(store.clone(), dir, URL, "p", settings, now()).unwrap();
        let record = lock(&made.record).clone();
        let record = ProjectRecord { agent_seed: String::new(), agents_told: false, ..record };
        made.transact(|txn| txn.put("project", made.keys.settings(), &record)).unwrap();
        drop(made);
        Project::open(store.clone(), dir, URL, "p").unwrap()
    }

    /// A request with this key, host number and identity; gives the number that the client is told.
    fn rpc(project: &Project, key: &AccountKey, hostid: u64, cpid: &str) -> Option<u64> {
        let mut request =
            SchedulerRequest { authenticator: key.clone(), hostid, ..SchedulerRequest::default() };
        request.platform_name = "x86_64-pc-linux-gnu".into();
        request.host_info.host_cpid = cpid.into();
        let account = project.account(key).unwrap().unwrap();
        let (reply, _) = project.scheduler_rpc(request.write().as_bytes(), &account, now()).unwrap();
        SchedulerReply::parse(reply.as_bytes()).unwrap().hostid
    }

    #[test]
    fn r6_10_an_agent_of_an_older_store_takes_its_own_record_along_and_nobody_elses() {
        let dir = tempfile::tempdir().unwrap();
        let store: std::sync::Arc<dyn Store> =
            std::sync::Arc::new(SledStore::open(dir.path().join("store")).unwrap());
        let project = old(&store, dir.path());
        assert!(project.has_agents_to_tell());
        let shared = project.info().account_key;
        assert_eq!(rpc(&project, &shared, 0, "one"), Some(1));
        assert_eq!(rpc(&project, &shared, 0, "two"), Some(2));
        let key = |name: &str| project.agent_key(&AgentId(name.into()), now()).unwrap();
        assert_eq!(rpc(&project, &key("A"), 1, "one"), None, "it goes on as host 1");
        assert_eq!(rpc(&project, &key("B"), 1, "one"), Some(3), "host 1 is another agent's");
        assert_eq!(rpc(&project, &key("C"), 2, "guessed"), Some(4), "host 2 has another identity");
        assert_eq!(rpc(&project, &shared, 2, "two"), None, "who has heard of nothing yet goes on");
        assert_eq!(rpc(&project, &shared, 1, "one"), Some(5), "the number is the agent's alone by now");
        let before = key("A");
        project.note_agents_told().unwrap();
        drop(project);
        let project = Project::open(store, dir.path(), URL, "p").unwrap();
        assert!(!project.has_agents_to_tell());
        assert_eq!(project.agent_key(&AgentId("A".into()), now()).unwrap(), before);
    }
}
