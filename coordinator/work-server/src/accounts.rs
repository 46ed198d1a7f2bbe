//! Accounts of the fleet's agents: one for each agent, so that what one has or does is nobody else's
//! (R6.10).
//!
//! An agent's key is derived from a secret of the project and the agent's id (HMAC-SHA256), and so is the
//! same after a restart, and after a return to an older copy of the store: agents ask for their document only
//! when there is a newer one, and would not learn of another key. Without the secret nobody can tell one key
//! from another.
//!
//! A new project is told to all connected agents at once, and each wants its account then. Those that are
//! wanted while others are being put on the medium are made together, with one wait.

use std::collections::BTreeSet;
use std::sync::Mutex;

use fallow_daemon::lock;
use fallow_domain::{AccountKey, AgentId, Instant, hex};
use fallow_store::Store;
use ring::hmac;
use serde::{Deserialize, Serialize};
use tracing::warn;

use super::error::ProjectError;
use super::index;
use super::project::{OWN_ACCOUNT, Project, put_account};
use super::random::random_key;
use super::records::{Account, Counters, Host, ProjectRecord};
use super::settings::ProjectSettings;
use super::store_keys::{Keys, job_of, tail};
use super::txn::Txn;

/// Bytes of a key: 32 hexadecimal digits, as BOINC's own.
const KEY_BYTES: usize = 16;

/// Agents whose accounts are being made.
#[derive(Debug, Default)]
pub(crate) struct PendingAccounts {
    agents: Mutex<BTreeSet<AgentId>>,
    /// Held by who makes the accounts of all of them.
    making: Mutex<()>,
}

/// A secret that agents' keys are derived from.
pub(crate) fn new_seed() -> Result<String, ProjectError> {
    Ok([random_key()?, random_key()?].concat())
}

/// An account for clients that the operator attaches by hand, yet without a number.
pub(crate) fn own(project: &str, now: Instant) -> Result<Account, ProjectError> {
    Ok(Account {
        id: 0,
        key: AccountKey::new(random_key()?),
        email: format!("fleet@{project}.invalid"),
        passwd_hash: String::new(),
        name: "fleet".to_owned(),
        created_at: now,
        cross_project_id: random_key()?,
        agent: None,
        host: 0,
        voter: 0,
    })
}

/// Brings a project from before agents had accounts of their own up to date. It gets a secret for their keys,
/// and a new account of its own, as every agent knows the key of the old one. Nobody may make accounts any
/// more until the operator says so again: that was so without being asked for.
pub(crate) fn brought_up(
    store: &dyn Store,
    keys: &Keys,
    project: &str,
    record: ProjectRecord,
) -> Result<ProjectRecord, ProjectError> {
    if !record.agent_seed.is_empty() {
        return Ok(record);
    }
    let mut txn = Txn::new(store);
    let mut counters: Counters = txn.get("counters", &keys.counters())?.unwrap_or_default();
    counters.last_account = counters.last_account.max(OWN_ACCOUNT) + 1;
    let account = Account { id: counters.last_account, ..own(project, record.created_at)? };
    let was_open = record.settings.account_creation;
    let settings = ProjectSettings { account_creation: false, ..record.settings };
    let record = ProjectRecord {
        settings,
        account_key: account.key.clone(),
        agent_seed: new_seed()?,
        shared_account: OWN_ACCOUNT,
        ..record
    };
    txn.put("counters", keys.counters(), &counters)?;
    put_account(&mut txn, keys, &account)?;
    txn.put("project", keys.settings(), &record)?;
    let _ = store.apply_durable(txn.into_batch())?;
    warn!(
        project,
        "the project has a new account key, as all agents knew the old one: clients that were attached by hand get no \
         more work until they are attached again with the key that `fallow project show {project}` shows"
    );
    if was_open {
        warn!(
            project,
            "nobody can make accounts any more, because who can make one can make two and pass for a quorum: \
             `fallow project set {project} account-creation=true` allows it again"
        );
    }
    Ok(record)
}

/// An account that was closed.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(untagged)]
enum Closed {
    /// What it counted as: its number, or that of the one that it was a copy of.
    Number(u64),
    /// It was never made, or closed before its number was kept.
    Unknown(bool),
}

/// What copies of an agent count as that has no account and will have none: a number that no account has.
fn voter_of_unknown(first: &AgentId) -> u64 {
    let digest = ring::digest::digest(&ring::digest::SHA256, first.0.as_bytes());
    let number = digest.as_ref().iter().take(8).fold(0, |number: u64, byte| number << 8 | u64::from(*byte));
    number | 1 << 63
}

impl Project {
    /// The key of an agent's account, which is made if there is none.
    pub(crate) fn agent_key(&self, agent: &AgentId, now: Instant) -> Result<AccountKey, ProjectError> {
        let key = self.key_of(agent);
        if self.has_account(&self.read(), &key)? {
            return Ok(key);
        }
        if self.is_closed(&self.read(), agent)? {
            return Err(ProjectError::AccountClosed { agent: agent.clone() });
        }
        lock(&self.pending_accounts.agents).insert(agent.clone());
        let _alone = lock(&self.pending_accounts.making);
        // Whoever was alone before may have made it with his own.
        if !self.has_account(&self.read(), &key)? {
            let mut agents = std::mem::take(&mut *lock(&self.pending_accounts.agents));
            // If that failed, it is wanted still.
            agents.insert(agent.clone());
            self.make_accounts(&agents, now)?;
        }
        Ok(key)
    }

    /// Takes an agent's account away for good: whoever shows its key from now on is unknown, and no
    /// other one is made. Its jobs in progress count as lost: nobody waits for them until their
    /// deadlines. Nor does what failed on others wait for it.
    pub(crate) fn close_agent(&self, agent: &AgentId, now: Instant) -> Result<(), ProjectError> {
        let key = self.key_of(agent);
        let _alone = lock(&self.pending_accounts.making);
        lock(&self.pending_accounts.agents).remove(agent);
        if self.is_closed(&self.read(), agent)? {
            return Ok(());
        }
        let host = self.transact_durably(|txn| {
            let account: Option<Account> = txn.get("account", &self.keys.account(key.reveal()))?;
            let host: Option<Host> = match &account {
                Some(account) => txn.get("host", &self.keys.host(account.host))?,
                None => None,
            };
            if let Some(host) = &host {
                self.lose_all(txn, host.id, now)?;
                // After a restart it is none of those who asked.
                txn.put("host", self.keys.host(host.id), &Host { last_request: None, ..host.clone() })?;
            }
            txn.delete(self.keys.account(key.reveal()));
            let closed = account.map_or(Closed::Unknown(true), |account| Closed::Number(account.counts_as()));
            txn.put("closed account", self.keys.closed_agent(&agent.0), &closed)?;
            Ok(host)
        })?;
        if let Some(host) = host {
            lock(&self.requesters).forget(host.host_account(), now);
            lock(&self.asking).cannot_take((host.account, host.id), self.settings().poll, now);
        }
        Ok(())
    }

    fn lose_all(&self, txn: &mut Txn<'_>, host: u64, now: Instant) -> Result<(), ProjectError> {
        let prefix = self.keys.held_by(host);
        for (key, _) in txn.scan(&prefix, None, usize::MAX)? {
            let Some((name, index)) = job_of(tail(&key, &prefix)) else { continue };
            let Some(before) = index::read(txn, &self.keys, name)? else { continue };
            let mut after = before.clone();
            if after.lose(index, now) {
                index::write(txn, &self.keys, Some(&before), &after, now)?;
            }
        }
        Ok(())
    }

    fn is_closed(&self, txn: &Txn<'_>, agent: &AgentId) -> Result<bool, ProjectError> {
        Ok(txn.contains(&self.keys.closed_agent(&agent.0))?)
    }

    fn has_account(&self, txn: &Txn<'_>, key: &AccountKey) -> Result<bool, ProjectError> {
        Ok(txn.contains(&self.keys.account(key.reveal()))?)
    }

    /// Makes the accounts of all these agents, or none.
    fn make_accounts(&self, agents: &BTreeSet<AgentId>, now: Instant) -> Result<(), ProjectError> {
        let new = agents.iter().map(|agent| {
            Ok(Account {
                id: 0,
                key: self.key_of(agent),
                email: format!("{}@{}.invalid", agent.0.to_lowercase(), self.name),
                passwd_hash: String::new(),
                name: "fleet".to_owned(),
                created_at: now,
                cross_project_id: random_key()?,
                agent: Some(agent.clone()),
                host: 0,
                voter: 0,
            })
        });
        let new = new.collect::<Result<Vec<Account>, ProjectError>>()?;
        // Durable before anybody hears of it: an agent that has its key asks for no other.
        self.transact_durably(|txn| {
            let mut counters: Counters = txn.get("counters", &self.keys.counters())?.unwrap_or_default();
            for account in new {
                let is_closed = match &account.agent {
                    Some(agent) => self.is_closed(txn, agent)?,
                    None => false,
                };
                if is_closed || self.has_account(txn, &account.key)? {
                    continue;
                }
                counters.last_account += 1;
                let account = Account { id: counters.last_account, ..account };
                txn.put("account", self.keys.account(account.key.reveal()), &account)?;
            }
            txn.put("counters", self.keys.counters(), &counters)
        })
    }

    /// The same for an agent whose host is a copy of `first`'s: it has an account of its own, and towards
    /// quorums both are one.
    ///
    /// # Errors
    /// As [`Project::agent_key`].
    pub(crate) fn copy_key(
        &self,
        agent: &AgentId,
        first: &AgentId,
        now: Instant,
    ) -> Result<AccountKey, ProjectError> {
        let key = self.agent_key(agent, now)?;
        let place = self.keys.account(key.reveal());
        let is_done = |account: &Account| account.voter != 0;
        if self.account(&key)?.as_ref().is_some_and(is_done) {
            return Ok(key);
        }
        match self.agent_key(first, now) {
            Ok(_) | Err(ProjectError::AccountClosed { .. }) => {}
            Err(error) => return Err(error),
        }
        let (of_first, closed) =
            (self.keys.account(self.key_of(first).reveal()), self.keys.closed_agent(&first.0));
        // Found and kept in one step, for all copies alike: the first one may be taken out meanwhile. Durable
        // before anybody hears of the key.
        self.transact_durably(|txn| {
            let number = match txn.get::<Account>("account", &of_first)? {
                // The first one may be a copy itself.
                Some(account) => Some(account.counts_as()),
                None => match txn.get("closed account", &closed)? {
                    Some(Closed::Number(number)) => Some(number),
                    Some(Closed::Unknown(_)) | None => None,
                },
            };
            let voter = number.unwrap_or_else(|| voter_of_unknown(first));
            match txn.get::<Account>("account", &place)? {
                Some(account) => txn.put("account", place, &Account { voter, ..account }),
                None => Ok(()),
            }
        })?;
        Ok(key)
    }

    fn key_of(&self, agent: &AgentId) -> AccountKey {
        let record = lock(&self.record);
        let secret = hmac::Key::new(hmac::HMAC_SHA256, record.agent_seed.as_bytes());
        let tag = hmac::sign(&secret, agent.0.as_bytes());
        AccountKey::new(hex(tag.as_ref().get(..KEY_BYTES).unwrap_or_default()))
    }

    /// Whether all agents had this account together, in an earlier version: it is sent no more work.
    pub(crate) fn was_shared(&self, account: u64) -> bool {
        account != 0 && account == lock(&self.record).shared_account
    }

    /// Whether the fleet has yet to be sent a document with its agents' own keys.
    pub(crate) fn has_agents_to_tell(&self) -> bool {
        !lock(&self.record).agents_told
    }

    /// They were sent one.
    pub(crate) fn note_agents_told(&self) -> Result<(), ProjectError> {
        let _alone = lock(&self.setting);
        let told = ProjectRecord { agents_told: true, ..lock(&self.record).clone() };
        self.transact_durably(|txn| txn.put("project", self.keys.settings(), &told))?;
        *lock(&self.record) = told;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::atomic::{AtomicU64, Ordering};

    use fallow_boinc::scheduler::{SchedulerReply, SchedulerRequest};
    use fallow_domain::Duration;
    use fallow_store::{Batch, BatchResult, Entry, KeyRange, SledStore, StoreError};

    use super::*;

    const URL: &str = "http://127.0.0.1:1";

    fn now() -> Instant {
        Instant::EPOCH + Duration::from_hours(9)
    }

    #[test]
    fn r6_10_a_host_that_was_taken_out_of_the_fleet_is_unknown_to_its_projects() {
        let dir = tempfile::tempdir().unwrap();
        let store: std::sync::Arc<dyn Store> =
            std::sync::Arc::new(SledStore::open(dir.path().join("store")).unwrap());
        let settings = ProjectSettings::default();
        let project = Project::create(store, dir.path(), URL, "p", settings, None, now()).unwrap();
        let [one, other] = ["01A", "01B"].map(|id| AgentId(id.into()));
        let [key, others] = [&one, &other].map(|agent| project.agent_key(agent, now()).unwrap());
        assert!(rpc(&project, &key, 0, "c").is_some());
        project.close_agent(&one, now()).unwrap();
        assert!(project.account(&key).unwrap().is_none());
        assert!(rpc(&project, &others, 0, "d").is_some());
        // Closed twice: nothing happens. It is not opened again, nor one that never was.
        project.close_agent(&one, now()).unwrap();
        let never = AgentId("01C".into());
        project.close_agent(&never, now()).unwrap();
        for closed in [&one, &never] {
            let error = project.agent_key(closed, now()).unwrap_err();
            assert!(matches!(error, ProjectError::AccountClosed { .. }), "{error}");
        }
        assert!(project.account(&key).unwrap().is_none());
    }

    /// A project as an earlier version left it, and the key that all its agents had.
    fn old(store: &std::sync::Arc<dyn Store>, dir: &Path) -> (Project, AccountKey) {
        let settings = ProjectSettings { account_creation: true, ..ProjectSettings::default() };
        let made = Project::create(store.clone(), dir, URL, "p", settings, None, now()).unwrap();
        let record = lock(&made.record).clone();
        let record = ProjectRecord { agent_seed: String::new(), agents_told: false, ..record };
        made.transact(|txn| txn.put("project", made.keys.settings(), &record)).unwrap();
        drop(made);
        (Project::open(store.clone(), dir, URL, "p").unwrap(), record.account_key)
    }

    /// A request with this key, host number and identity; gives the number that the client is told.
    fn rpc(project: &Project, key: &AccountKey, hostid: u64, cpid: &str) -> Option<u64> {
        ask(project, key, hostid, cpid, 0.0).hostid
    }

    /// The same, and asks for this many seconds of work; gives the reply.
    fn ask(project: &Project, key: &AccountKey, hostid: u64, cpid: &str, seconds: f64) -> SchedulerReply {
        let mut request =
            SchedulerRequest { authenticator: key.clone(), hostid, ..SchedulerRequest::default() };
        request.platform_name = "x86_64-pc-linux-gnu".into();
        request.host_info.host_cpid = cpid.into();
        request.cpu_req_secs = seconds;
        request.work_req_seconds = seconds;
        let account = project.account(key).unwrap().unwrap();
        let (reply, _) =
            project.scheduler_rpc(request.write().as_bytes(), &account, &project.url, now()).unwrap();
        SchedulerReply::parse(reply.as_bytes()).unwrap()
    }

    #[test]
    fn r6_10_the_key_that_all_agents_had_is_sent_no_work_and_the_project_has_a_new_one() {
        let dir = tempfile::tempdir().unwrap();
        let store: std::sync::Arc<dyn Store> =
            std::sync::Arc::new(SledStore::open(dir.path().join("store")).unwrap());
        let (project, shared) = old(&store, dir.path());
        let said = |key: &AccountKey| {
            let reply = ask(&project, key, 0, "evil", 1.0);
            reply.messages.iter().map(|message| message.text.clone()).collect::<Vec<_>>().join("; ")
        };
        assert!(said(&shared).contains("fallow project show p"), "{}", said(&shared));
        let own = project.info().account_key;
        assert_ne!(own, shared);
        assert_eq!(project.account(&own).unwrap().unwrap().agent, None);
        for key in [&own, &project.agent_key(&AgentId("A".into()), now()).unwrap()] {
            assert_eq!(said(key), "This project has no application yet");
        }
        drop(project);
        let project = Project::open(store, dir.path(), URL, "p").unwrap();
        assert_eq!(project.info().account_key, own, "once is enough");
    }

    #[test]
    fn r6_10_settings_of_a_project_change_while_jobs_are_submitted_to_it() {
        let dir = tempfile::tempdir().unwrap();
        let store: std::sync::Arc<dyn Store> =
            std::sync::Arc::new(SledStore::open(dir.path().join("store")).unwrap());
        let settings = ProjectSettings::default();
        let project = Project::create(store, dir.path(), URL, "p", settings, None, now()).unwrap();
        let project = std::sync::Arc::new(project);
        let _submission = lock(&project.adding);
        let (done, is_done) = std::sync::mpsc::channel();
        let changed = project.clone();
        std::thread::spawn(move || {
            changed.change_settings(&[("account-creation".to_owned(), "true".to_owned())]).unwrap();
            changed.note_agents_told().unwrap();
            done.send(()).unwrap();
        });
        is_done.recv_timeout(std::time::Duration::from_secs(60)).expect("they wait for the submission");
        assert!(project.settings().account_creation && !project.has_agents_to_tell());
    }

    #[test]
    fn r6_10_anybody_may_make_an_account_in_an_older_store_only_if_that_is_said_again() {
        let dir = tempfile::tempdir().unwrap();
        let store: std::sync::Arc<dyn Store> =
            std::sync::Arc::new(SledStore::open(dir.path().join("store")).unwrap());
        let (project, _) = old(&store, dir.path());
        assert!(!project.settings().account_creation);
        project.change_settings(&[("account-creation".to_owned(), "true".to_owned())]).unwrap();
        drop(project);
        let project = Project::open(store, dir.path(), URL, "p").unwrap();
        assert!(project.settings().account_creation, "what was decided since stays");
    }

    /// A store that counts how often all was put on the medium.
    struct Counting(SledStore, AtomicU64);

    impl Store for Counting {
        fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
            self.0.get(key)
        }
        fn scan(&self, range: &KeyRange, limit: usize) -> Result<Vec<Entry>, StoreError> {
            self.0.scan(range, limit)
        }
        fn apply(&self, batch: Batch) -> Result<BatchResult, StoreError> {
            self.0.apply(batch)
        }
        fn apply_durable(&self, batch: Batch) -> Result<BatchResult, StoreError> {
            self.1.fetch_add(1, Ordering::SeqCst);
            self.0.apply_durable(batch)
        }
        fn copy(&self, take: &mut fallow_store::TakeCopied<'_>) -> Result<(), StoreError> {
            self.0.copy(take)
        }

        fn flush(&self) -> Result<(), StoreError> {
            self.1.fetch_add(1, Ordering::SeqCst);
            self.0.flush()
        }
    }

    #[test]
    fn r6_10_an_agents_account_is_on_the_medium_before_its_key_goes_out() {
        let dir = tempfile::tempdir().unwrap();
        let inner = SledStore::open(dir.path().join("store")).unwrap();
        let store = std::sync::Arc::new(Counting(inner, AtomicU64::new(0)));
        let settings = ProjectSettings::default();
        let project = Project::create(store.clone(), dir.path(), URL, "p", settings, None, now()).unwrap();
        let before = store.1.load(Ordering::SeqCst);
        project.agent_key(&AgentId("A".into()), now()).unwrap();
        assert_eq!(store.1.load(Ordering::SeqCst), before + 1);
    }

    /// A slow request may take minutes to come, and it is admitted by its first bytes.
    #[test]
    fn r6_10_a_request_that_was_on_its_way_when_its_agent_was_taken_out_is_refused_and_brings_no_account_back()
     {
        for has_host in [false, true] {
            let dir = tempfile::tempdir().unwrap();
            let store = std::sync::Arc::new(SledStore::open(dir.path().join("store")).unwrap());
            let settings = ProjectSettings::default();
            let project = Project::create(store, dir.path(), URL, "p", settings, None, now()).unwrap();
            let agent = AgentId("A".into());
            let key = project.agent_key(&agent, now()).unwrap();
            if has_host {
                assert_eq!(rpc(&project, &key, 0, "one"), Some(1));
            }
            let admitted = project.account(&key).unwrap().unwrap();
            project.close_agent(&agent, now()).unwrap();
            let mut request =
                SchedulerRequest { authenticator: key.clone(), hostid: 1, ..SchedulerRequest::default() };
            request.platform_name = "x86_64-pc-linux-gnu".into();
            let reply = project.scheduler_rpc(request.write().as_bytes(), &admitted, &project.url, now());
            assert!(project.account(&key).unwrap().is_none(), "it stays closed");
            let reply = SchedulerReply::parse(reply.unwrap().0.as_bytes()).unwrap();
            assert_eq!(reply.hostid, None);
            assert!(reply.messages[0].text.contains("account key"), "{:?}", reply.messages);
        }
    }

    #[test]
    fn r6_10_accounts_that_are_wanted_at_once_are_put_on_the_medium_together() {
        const AGENTS: usize = 64;
        let dir = tempfile::tempdir().unwrap();
        let inner = SledStore::open(dir.path().join("store")).unwrap();
        let store = std::sync::Arc::new(Counting(inner, AtomicU64::new(0)));
        let settings = ProjectSettings::default();
        let project = Project::create(store.clone(), dir.path(), URL, "p", settings, None, now()).unwrap();
        let before = store.1.load(Ordering::SeqCst);
        let agents: Vec<_> = (0..AGENTS).map(|number| AgentId(format!("agent {number}"))).collect();
        let keys: Vec<AccountKey> = std::thread::scope(|scope| {
            let one_is_being_made = lock(&project.pending_accounts.making);
            let asked = agents.iter().map(|agent| scope.spawn(|| project.agent_key(agent, now()).unwrap()));
            let asked: Vec<_> = asked.collect();
            while lock(&project.pending_accounts.agents).len() < AGENTS {
                std::thread::yield_now();
            }
            drop(one_is_being_made);
            asked.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(store.1.load(Ordering::SeqCst), before + 1);
        let accounts: Vec<Account> = keys.iter().map(|key| project.account(key).unwrap().unwrap()).collect();
        let ids: BTreeSet<u64> = accounts.iter().map(|account| account.id).collect();
        assert_eq!(ids.len(), AGENTS);
        assert!(accounts.iter().zip(&agents).all(|(account, agent)| account.agent.as_ref() == Some(agent)));
        assert!(lock(&project.pending_accounts.agents).is_empty());
    }

    #[test]
    fn r6_10_an_agent_of_an_older_store_takes_its_own_record_along_and_nobody_elses() {
        let dir = tempfile::tempdir().unwrap();
        let store: std::sync::Arc<dyn Store> =
            std::sync::Arc::new(SledStore::open(dir.path().join("store")).unwrap());
        let (project, shared) = old(&store, dir.path());
        assert!(project.has_agents_to_tell());
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

    #[test]
    fn r6_10_a_copy_of_an_agent_of_an_older_store_takes_nothing_of_the_first_ones_along() {
        let dir = tempfile::tempdir().unwrap();
        let store: std::sync::Arc<dyn Store> =
            std::sync::Arc::new(SledStore::open(dir.path().join("store")).unwrap());
        let (project, shared) = old(&store, dir.path());
        assert_eq!(rpc(&project, &shared, 0, "one"), Some(1));
        let [first, copy] = ["A", "B"].map(|name| AgentId(name.into()));
        let copy = project.copy_key(&copy, &first, now()).unwrap();
        let first = project.agent_key(&first, now()).unwrap();
        assert_eq!(rpc(&project, &copy, 1, "one"), Some(2), "what was on the copied disk is the first one's");
        assert_eq!(rpc(&project, &first, 1, "one"), None, "it goes on as host 1");
    }
}
