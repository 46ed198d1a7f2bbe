//! One hosted project: its records, files, keys and lock.
//!
//! Everything that changes a project's records runs in [`Project::transact`]: one at a time, reading its own
//! writes, stored as one batch. File content (uploads, comparisons) is read and written outside of it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, Mutex, RwLock};

use fallow_boinc::signature::PublicKey;
use fallow_daemon::lock;
use fallow_domain::{Duration, Instant, Invalid, MasterUrl, PerType};
use fallow_policy::disk::holders::FileHolders;
#[cfg(test)]
use fallow_policy::send::SendChoice;
use fallow_store::Store;

use super::accounts::{self, PendingAccounts};
use super::app_files;
use super::asking_hosts::AskingHosts;
use super::catalog::Catalog;
use super::counted_requesters::CountedRequesters;
use super::error::ProjectError;
use super::host_files;
use super::host_limits::HostLimits;
use super::idle_hosts::IdleHosts;
use super::index::{self, RetryAt};
use super::layout::Layout;
use super::log_limits::LogLimits;
use super::operator_types::{Counts, NewJobs, NoWork, ProjectInfo};
use super::orphans::OrphanSearch;
use super::records::{Account, Counters, ProjectRecord};
use super::settings::{ProjectSettings, StoredPolicy};
use super::signing_keys::SigningKeys;
use super::sticky_inputs::Fingerprints;
use super::store_keys::Keys;
use super::txn::Txn;
use super::workunit::{HostAccount, RETRY_MAX, Workunit};

/// The account that a project is made with: its own, for clients that its operator attaches by hand. In
/// stores of earlier versions all agents had it; there the project has another one of its own by now
/// (`accounts::brought_up`).
pub(crate) const OWN_ACCOUNT: u64 = 1;

/// A project that this coordinator serves.
pub(crate) struct Project {
    pub(crate) name: String,
    pub(crate) url: MasterUrl,
    /// As it is stored, but for the settings.
    pub(crate) record: Mutex<ProjectRecord>,
    settings: RwLock<Arc<ProjectSettings>>,
    pub(crate) keys: Keys,
    pub(crate) layout: Layout,
    pub(crate) signing_keys: SigningKeys,
    pub(crate) store: Arc<dyn Store>,
    /// Held by whoever changes records.
    writer: Mutex<()>,
    /// Held by whoever adds a version of an application, from its files on. They may take minutes.
    pub(crate) publishing: Mutex<()>,
    /// Held by whoever adds workunits, or what they have to go with: files are written before the records
    /// that speak of them, and must not be another call's by then.
    pub(crate) adding: Mutex<()>,
    /// Of inputs that hosts keep.
    pub(crate) fingerprints: Fingerprints,
    /// Held by whoever changes the project's own record: settings wait behind no submission.
    pub(crate) setting: Mutex<()>,
    catalog: RwLock<Arc<Catalog>>,
    /// Agents whose accounts are being made.
    pub(crate) pending_accounts: PendingAccounts,
    /// Files that are being uploaded now: one connection writes to a file at a time.
    pub(crate) uploading: Mutex<BTreeSet<String>>,
    /// Hosts that asked in vain.
    pub(crate) idle_hosts: Mutex<IdleHosts>,
    /// Accounts that asked for work lately.
    pub(crate) requesters: Mutex<CountedRequesters>,
    /// Hosts that asked for work of late.
    pub(crate) asking: Mutex<AskingHosts>,
    /// Files of applications that were not what was signed when this was opened.
    pub(crate) damaged: BTreeSet<String>,
    /// Why the last host that asked got nothing; none once a job is sent. Kept in memory only.
    pub(crate) last_no_work: Mutex<Option<NoWork>>,
    /// Which hosts hold which sticky files.
    pub(crate) holders: Mutex<FileHolders<u64>>,
    /// Files for download that no workunit reads, as far as they were looked for.
    pub(crate) orphan_search: Mutex<OrphanSearch>,
    /// How often it says what becomes of jobs.
    pub(crate) log_limits: LogLimits,
    /// What came to wait for a host since somebody last asked.
    new_jobs: Mutex<NewJobs>,
    /// How many agents are to be told of jobs to be tried again after an error, by the second in which
    /// somebody may have them and the sequence number of their workunit. Kept in memory only: after a restart
    /// it is found anew by those that ask in vain ([`Project::note_retries`]). Backoffs have a longest, so
    /// that there are no more entries than errors in two hours; what lies further ahead than that was noted
    /// before the clock was set back, and is dropped.
    retries: Mutex<BTreeMap<(i64, u64), u64>>,
}

/// How long a host that failed a workunit waits for one that failed it less often.
const LESS_OFTEN_WAIT: Duration = Duration::from_hours(2);

impl Project {
    /// Makes a project: keys, settings and its own account. Where a code-signing key is given, its private
    /// part is kept elsewhere.
    pub(crate) fn create(
        store: Arc<dyn Store>,
        dir: &Path,
        base_url: &str,
        name: &str,
        settings: ProjectSettings,
        code_sign_key: Option<&PublicKey>,
        now: Instant,
    ) -> Result<Self, ProjectError> {
        check_name(name)?;
        settings.check()?;
        let keys = Keys::new(name);
        if store.get(&keys.settings())?.is_some() {
            return Err(ProjectError::ProjectExists { name: name.to_owned() });
        }
        // Keys first: a crash in between leaves keys that the next attempt finds and uses.
        SigningKeys::open_or_create(&Layout::open(dir, name)?.keys(), code_sign_key)?;
        let account = Account { id: OWN_ACCOUNT, ..accounts::own(name, now)? };
        let record = ProjectRecord {
            settings,
            account_key: account.key.clone(),
            created_at: now,
            agent_seed: accounts::new_seed()?,
            shared_account: 0,
            // Who makes a project makes a document that names it.
            agents_told: true,
        };
        let mut txn = Txn::new(&*store);
        txn.put("project", keys.settings(), &record)?;
        put_account(&mut txn, &keys, &account)?;
        let counters = Counters { last_account: OWN_ACCOUNT, has_open_names: true, ..Counters::default() };
        txn.put("counters", keys.counters(), &counters)?;
        let _ = store.apply_durable(txn.into_batch())?;
        Self::open(store, dir, base_url, name)
    }

    /// Opens a project that was made before.
    pub(crate) fn open(
        store: Arc<dyn Store>,
        dir: &Path,
        base_url: &str,
        name: &str,
    ) -> Result<Self, ProjectError> {
        let keys = Keys::new(name);
        let txn = Txn::new(&*store);
        let record = stored(&txn, &keys, name)?;
        let catalog = Catalog::load(&txn, &keys)?;
        let holders = host_files::load(&txn, &keys)?;
        let record = accounts::brought_up(&*store, &keys, name, record)?;
        let requesters = CountedRequesters::load(&txn, &keys, record.shared_account)?;
        let asking = AskingHosts::load(&txn, &keys, record.settings.poll)?;
        drop(txn);
        index::count_open_names(&*store, &keys)?;
        let layout = Layout::open(dir, name)?;
        Ok(Self {
            name: name.to_owned(),
            url: MasterUrl::parse(&format!("{base_url}/{name}/"))?,
            settings: RwLock::new(Arc::new(record.settings.clone())),
            record: Mutex::new(record),
            keys,
            signing_keys: SigningKeys::open(&layout.keys())?,
            damaged: app_files::damaged(name, &catalog, &layout),
            layout,
            store,
            writer: Mutex::new(()),
            publishing: Mutex::new(()),
            adding: Mutex::new(()),
            fingerprints: Fingerprints::default(),
            setting: Mutex::new(()),
            catalog: RwLock::new(Arc::new(catalog)),
            pending_accounts: PendingAccounts::default(),
            uploading: Mutex::new(BTreeSet::new()),
            idle_hosts: Mutex::new(IdleHosts::default()),
            requesters: Mutex::new(requesters),
            asking: Mutex::new(asking),
            last_no_work: Mutex::new(None),
            holders: Mutex::new(holders),
            orphan_search: Mutex::new(OrphanSearch::default()),
            log_limits: LogLimits::default(),
            new_jobs: Mutex::new(NewJobs::default()),
            retries: Mutex::new(BTreeMap::new()),
        })
    }

    /// Runs `change` alone and stores all its writes, or none if it fails.
    pub(crate) fn transact<T>(
        &self,
        change: impl FnOnce(&mut Txn<'_>) -> Result<T, ProjectError>,
    ) -> Result<T, ProjectError> {
        let _alone = lock(&self.writer);
        let mut txn = Txn::new(&*self.store);
        let out = change(&mut txn)?;
        let (new_jobs, retries) = (txn.new_jobs(), txn.take_retries());
        let batch = txn.into_batch();
        if !batch.is_empty() {
            // There are no preconditions that could fail: the lock is the only way here.
            let _ = self.store.apply(batch)?;
        }
        {
            let mut new = lock(&self.new_jobs);
            new.jobs += new_jobs.jobs;
            new.agents += new_jobs.agents;
        }
        self.note_retries(retries);
        Ok(out)
    }

    /// Takes note of workunits that are tried again later: when agents are to be told of each. Hosts that get
    /// nothing find the same one more than once.
    pub(crate) fn note_retries(&self, retries: impl IntoIterator<Item = RetryAt>) {
        let mut pending = lock(&self.retries);
        for retry in retries.into_iter().filter(|retry| retry.agents > 0) {
            pending.insert((second_after(retry.at), retry.workunit), retry.agents);
        }
    }

    /// What came to wait for a host since the last call, agents included for whom a backoff is over.
    pub(crate) fn take_new_jobs(&self, now: Instant) -> NewJobs {
        let mut pending = lock(&self.retries);
        let mut later = pending.split_off(&(second_after(now), 0));
        // After the clock was set back: no backoff is so long, and those are over
        // (`Workunit::retry_backoff`).
        let beyond = later.split_off(&(second_after(now + RETRY_MAX) + 1, 0));
        let due = std::mem::replace(&mut *pending, later);
        let due: u64 = due.values().chain(beyond.values()).sum();
        let new = std::mem::take(&mut *lock(&self.new_jobs));
        NewJobs { agents: new.agents + due, ..new }
    }

    /// What operators and agents need to know of it.
    pub(crate) fn info(&self) -> ProjectInfo {
        let record = lock(&self.record);
        ProjectInfo {
            name: self.name.clone(),
            url: self.url.clone(),
            account_key: record.account_key.clone(),
            settings: ProjectSettings::clone(&self.settings()),
            created_at: record.created_at,
            code_sign_key: self.signing_keys.code_sign_fingerprint(),
            is_signed_elsewhere: !self.signing_keys.signs_files(),
            last_refusal: lock(&self.last_no_work).clone(),
        }
    }

    /// The settings as they are now. Whoever works on a request takes them once: they may change any time.
    pub(crate) fn settings(&self) -> Arc<ProjectSettings> {
        fallow_daemon::read(&self.settings).clone()
    }

    /// Changes settings: all of `changes`, or none if one cannot be.
    pub(crate) fn change_settings(
        &self,
        changes: &[(String, String)],
    ) -> Result<ProjectSettings, ProjectError> {
        let _alone = lock(&self.setting);
        let mut changed = ProjectSettings::clone(&self.settings());
        changes.iter().try_for_each(|(key, value)| changed.set(key, value))?;
        let record = ProjectRecord { settings: changed.clone(), ..lock(&self.record).clone() };
        self.transact_durably(|txn| txn.put("project", self.keys.settings(), &record))?;
        *lock(&self.record) = record;
        *fallow_daemon::write(&self.settings) = Arc::new(changed.clone());
        Ok(changed)
    }

    /// As [`Project::transact`], and on return the writes survive a power cut. The medium is waited for
    /// without the lock, so that several operations share the wait.
    pub(crate) fn transact_durably<T>(
        &self,
        change: impl FnOnce(&mut Txn<'_>) -> Result<T, ProjectError>,
    ) -> Result<T, ProjectError> {
        let out = self.transact(change)?;
        self.store.flush()?;
        Ok(out)
    }

    /// For looking only.
    pub(crate) fn read(&self) -> Txn<'_> {
        Txn::new(&*self.store)
    }

    pub(crate) fn counts(&self) -> Result<Counts, ProjectError> {
        let counters: Option<Counters> = self.read().get("counters", &self.keys.counters())?;
        Ok(counters.unwrap_or_default().counts)
    }

    pub(crate) fn catalog(&self) -> Arc<Catalog> {
        fallow_daemon::read(&self.catalog).clone()
    }

    /// Whether nobody but these is waited for who could run a workunit, so that those have it again who have
    /// failed it.
    pub(crate) fn is_for_anybody(&self, workunit: &Workunit, had: &BTreeSet<u64>, now: Instant) -> bool {
        let catalog = self.catalog();
        let types = catalog.types_of(&workunit.application);
        let can = |limits: &HostLimits, asks: &PerType<bool>| {
            limits.can(&catalog, workunit, |kind| asks[kind] && types[kind])
        };
        lock(&self.requesters).is_for_anybody((workunit, had), now, (&types, can))
    }

    /// Whether a workunit that failed on this account is for it again: nobody is waited for who has not had
    /// it, nor who has failed it less often, but for two hours alone where all of these have asked for work
    /// since: they may have been refused it, as hosts on which it would be late.
    pub(crate) fn is_for_again(&self, workunit: &Workunit, of: HostAccount, now: Instant) -> bool {
        let is_for = |had: &BTreeSet<u64>| self.is_for_anybody(workunit, had, now);
        let (as_often, all) = (workunit.tried_as_often(of), workunit.accounts());
        if is_for(&as_often) {
            return true;
        }
        let since = workunit.quiet_since(now);
        let has_waited = now.since(since) >= LESS_OFTEN_WAIT;
        let have_asked = || {
            let mut requesters = lock(&self.requesters);
            all.difference(&as_often).all(|account| requesters.has_asked_since(*account, since))
        };
        has_waited && have_asked() && is_for(&all)
    }

    pub(crate) fn set_catalog(&self, catalog: Catalog) {
        *fallow_daemon::write(&self.catalog) = Arc::new(catalog);
    }

    /// The name for people.
    pub(crate) fn long_name(&self) -> String {
        match self.settings().long_name.as_str() {
            "" => self.name.clone(),
            long => long.to_owned(),
        }
    }
}

/// Stores an account under its key and its e-mail address.
pub(crate) fn put_account(txn: &mut Txn<'_>, keys: &Keys, account: &Account) -> Result<(), ProjectError> {
    txn.put("account", keys.account(account.key.reveal()), account)?;
    txn.put("account key", keys.account_email(&account.email), &account.key)
}

/// The first whole second that is not before this.
fn second_after(at: Instant) -> i64 {
    const MICROS: i64 = 1_000_000;
    at.as_micros().div_euclid(MICROS) + i64::from(at.as_micros().rem_euclid(MICROS) > 0)
}

fn check_name(name: &str) -> Result<(), Invalid> {
    let ok = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '_';
    if name.starts_with(|c: char| c.is_ascii_lowercase()) && name.len() <= 32 && name.chars().all(ok) {
        return Ok(());
    }
    let expected = "a lower-case letter, then up to 31 lower-case letters, digits, `-` and `_`";
    Err(Invalid::new("project name", name, expected))
}

/// A project as it is stored. One that is whole but for a policy that this program has not says so.
fn stored(txn: &Txn<'_>, keys: &Keys, name: &str) -> Result<ProjectRecord, ProjectError> {
    let read = txn.get("project", &keys.settings());
    if read.is_err()
        && let Ok(Some(by)) = txn.get::<StoredPolicy>("project", &keys.settings())
        && let Some(source) = by.unknown()
    {
        return Err(ProjectError::UnknownPolicy { project: name.to_owned(), source });
    }
    read?.ok_or_else(|| ProjectError::UnknownProject { name: name.to_owned() })
}

#[cfg(test)]
impl Project {
    /// Sends jobs by a policy that the registry need not have.
    pub(crate) fn send_by(&self, policy: SendChoice) {
        let mut settings = ProjectSettings::clone(&self.settings());
        settings.send.policy = policy;
        *self.settings.write().unwrap() = Arc::new(settings);
    }
}

#[cfg(test)]
mod tests {
    use fallow_store::SledStore;

    use super::*;

    #[test]
    fn r6_8_retries_that_are_due_in_one_second_and_are_seen_by_different_hosts_are_told_of_all() {
        let dir = tempfile::tempdir().unwrap();
        let store: Arc<dyn Store> = Arc::new(SledStore::open(dir.path().join("store")).unwrap());
        let (now, url) = (Instant::EPOCH + Duration::from_hours(9), "http://127.0.0.1:1");
        let project =
            Project::create(store, dir.path(), url, "p", ProjectSettings::default(), None, now).unwrap();
        let retry = |workunit, agents| RetryAt { at: now, workunit, agents };
        project.note_retries([retry(1, 3)]);
        project.note_retries([retry(2, 2)]);
        project.note_retries([retry(2, 2), retry(1, 3)]);
        assert_eq!(project.take_new_jobs(now + Duration::from_secs(1)), NewJobs { jobs: 0, agents: 5 });
    }

    #[test]
    fn r5_6_a_project_stored_with_a_policy_that_there_is_not_says_so_with_those_that_there_are() {
        let dir = tempfile::tempdir().unwrap();
        let store: Arc<dyn Store> = Arc::new(SledStore::open(dir.path().join("store")).unwrap());
        let (now, url) = (Instant::EPOCH, "http://127.0.0.1:1");
        let project =
            Project::create(store.clone(), dir.path(), url, "sieve", ProjectSettings::default(), None, now)
                .unwrap();
        let mut record = serde_json::to_value(&*lock(&project.record)).unwrap();
        let mut store_with = |policy: &str| {
            record["settings"]["send"]["policy"] = policy.into();
            let put = |txn: &mut Txn<'_>| txn.put("project", project.keys.settings(), &record);
            project.transact_durably(put).unwrap();
            Project::open(store.clone(), dir.path(), url, "sieve").err()
        };
        let error = store_with("WS0").unwrap();
        let said = fallow_daemon::causes::line(&error);
        assert!(matches!(error, ProjectError::UnknownPolicy { .. }), "{said}");
        for part in ["project sieve", "\"WS0\"", &SendChoice::names()] {
            assert!(said.contains(part), "{part}: {said}");
        }
        // Names of earlier versions are known.
        assert!(store_with("Ws1").is_none());
    }

    #[test]
    fn r6_8_retries_that_were_noted_before_the_clock_was_set_back_are_due() {
        let dir = tempfile::tempdir().unwrap();
        let store: Arc<dyn Store> = Arc::new(SledStore::open(dir.path().join("store")).unwrap());
        let (now, url) = (Instant::EPOCH + Duration::from_hours(9), "http://127.0.0.1:1");
        let project =
            Project::create(store, dir.path(), url, "p", ProjectSettings::default(), None, now).unwrap();
        let retry =
            |minutes, workunit| RetryAt { at: now + Duration::from_mins(minutes), workunit, agents: 1 };
        // The longest backoff that there is, noted half a second after it began.
        project.note_retries([retry(60, 1), retry(10, 2)]);
        let half = Duration::from_micros(500_000);
        assert_eq!(project.take_new_jobs(now + half), NewJobs::default());
        assert_eq!(lock(&project.retries).len(), 2);
        // Set back by half an hour.
        assert_eq!(project.take_new_jobs(now - Duration::from_mins(30)), NewJobs { jobs: 0, agents: 1 });
        assert_eq!(lock(&project.retries).len(), 1);
        assert_eq!(project.take_new_jobs(now + Duration::from_mins(11)), NewJobs { jobs: 0, agents: 1 });
    }
}
