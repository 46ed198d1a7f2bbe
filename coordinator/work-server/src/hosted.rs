//! One hosted project: its records, files, keys and lock.
//!
//! Everything that changes a project's records runs in [`Project::transact`]: one at a time, reading its own
//! writes, stored as one batch. File content (uploads, comparisons) is read and written outside of it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use fallow_daemon::lock;
use fallow_domain::{Instant, Invalid, MasterUrl};
use fallow_policy::disk::holders::FileHolders;
use fallow_store::Store;

use super::accounts::{self, Wanted};
use super::catalog::Catalog;
use super::error::ProjectError;
use super::holders;
use super::index::{self, RestEnd};
use super::intact;
use super::keyring::Keyring;
use super::keys::Keys;
use super::layout::Layout;
use super::records::{Account, Counters, ProjectRecord};
use super::seekers::Seekers;
use super::settings::ProjectSettings;
use super::txn::Txn;
use super::types::{Counts, NewJobs, ProjectInfo, Refusal};
use super::waiting::Waiting;
use super::workunit::REST_MAX;

/// The account that a project is made with: its own, for clients that its operator attaches by hand. In stores of earlier
/// versions all agents had it; there the project has another one of its own by now (`accounts::brought_up`).
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
    pub(crate) keyring: Keyring,
    pub(crate) store: Arc<dyn Store>,
    /// Held by whoever changes records.
    writer: Mutex<()>,
    /// Held by whoever adds applications or workunits: files are written before the records that speak of them, and
    /// must not be another call's by then.
    pub(crate) adding: Mutex<()>,
    catalog: RwLock<Arc<Catalog>>,
    /// Agents whose accounts are being made.
    pub(crate) wanted_accounts: Wanted,
    /// Files that are being uploaded now: one connection writes to a file at a time.
    pub(crate) uploading: Mutex<BTreeSet<String>>,
    /// Hosts that asked in vain.
    pub(crate) waiting: Mutex<Waiting>,
    /// Accounts that asked for work lately.
    pub(crate) seekers: Mutex<Seekers>,
    /// Files of applications that were not what was signed when this was opened.
    pub(crate) damaged: BTreeSet<String>,
    /// Why the last host that asked got nothing; none once a job is sent. Kept in memory only.
    pub(crate) refusal: Mutex<Option<Refusal>>,
    /// Which hosts hold which sticky files.
    pub(crate) holders: Mutex<FileHolders<u64>>,
    /// What came to wait for a host since somebody last asked.
    new_jobs: Mutex<NewJobs>,
    /// How many agents are to be told of jobs that rest after an error, by the second in which somebody may have them and
    /// the sequence number of their workunit. Kept in memory only: after a restart it is found anew by those that ask in
    /// vain ([`Project::note_rests`]). Rests have an end, so that there are no more entries than errors in two hours; what lies
    /// further ahead than any rest is long was noted before the clock was set back, and is dropped.
    resting: Mutex<BTreeMap<(i64, u64), u64>>,
}

impl Project {
    /// Makes a project: keys, settings and its own account.
    pub(crate) fn create(
        store: Arc<dyn Store>,
        dir: &Path,
        base_url: &str,
        name: &str,
        settings: ProjectSettings,
        now: Instant,
    ) -> Result<Self, ProjectError> {
        check_name(name)?;
        settings.check()?;
        let keys = Keys::new(name);
        if store.get(&keys.settings())?.is_some() {
            return Err(ProjectError::ProjectExists { name: name.to_owned() });
        }
        // Keys first: a crash in between leaves keys that the next attempt finds and uses.
        Keyring::open_or_create(&Layout::open(dir, name)?.keys())?;
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
        let record: ProjectRecord = txn
            .get("project", &keys.settings())?
            .ok_or_else(|| ProjectError::UnknownProject { name: name.to_owned() })?;
        let catalog = Catalog::load(&txn, &keys)?;
        let holders = holders::load(&txn, &keys)?;
        let record = accounts::brought_up(&*store, &keys, name, record)?;
        let seekers = Seekers::load(&txn, &keys, record.shared_account)?;
        drop(txn);
        index::count_open_names(&*store, &keys)?;
        let layout = Layout::open(dir, name)?;
        Ok(Self {
            name: name.to_owned(),
            url: MasterUrl::parse(&format!("{base_url}/{name}/"))?,
            settings: RwLock::new(Arc::new(record.settings.clone())),
            record: Mutex::new(record),
            keys,
            keyring: Keyring::open(&layout.keys())?,
            damaged: intact::damaged(name, &catalog, &layout),
            layout,
            store,
            writer: Mutex::new(()),
            adding: Mutex::new(()),
            catalog: RwLock::new(Arc::new(catalog)),
            wanted_accounts: Wanted::default(),
            uploading: Mutex::new(BTreeSet::new()),
            waiting: Mutex::new(Waiting::default()),
            seekers: Mutex::new(seekers),
            refusal: Mutex::new(None),
            holders: Mutex::new(holders),
            new_jobs: Mutex::new(NewJobs::default()),
            resting: Mutex::new(BTreeMap::new()),
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
        let (new_jobs, rests) = (txn.new_jobs(), txn.take_rests());
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
        self.note_rests(rests);
        Ok(out)
    }

    /// Takes note of workunits that rest: when agents are to be told of each. Hosts that get nothing come by the same one
    /// more than once.
    pub(crate) fn note_rests(&self, rests: impl IntoIterator<Item = RestEnd>) {
        let mut resting = lock(&self.resting);
        for rest in rests.into_iter().filter(|rest| rest.agents > 0) {
            resting.insert((second_after(rest.at), rest.workunit), rest.agents);
        }
    }

    /// What came to wait for a host since the last call, agents included for whom a rest is over.
    pub(crate) fn take_new_jobs(&self, now: Instant) -> NewJobs {
        let mut resting = lock(&self.resting);
        let mut later = resting.split_off(&(second_after(now), 0));
        // After the clock was set back: no rest is so long, and those are over (`Workunit::rest`).
        let beyond = later.split_off(&(second_after(now + REST_MAX) + 1, 0));
        let rested = std::mem::replace(&mut *resting, later);
        let rested: u64 = rested.values().chain(beyond.values()).sum();
        let new = std::mem::take(&mut *lock(&self.new_jobs));
        NewJobs { agents: new.agents + rested, ..new }
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
            last_refusal: lock(&self.refusal).clone(),
        }
    }

    /// The settings as they are now. Whoever works on a request takes them once: they may change any time.
    pub(crate) fn settings(&self) -> Arc<ProjectSettings> {
        self.settings.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Changes settings: all of `changes`, or none if one cannot be.
    pub(crate) fn change_settings(
        &self,
        changes: &[(String, String)],
    ) -> Result<ProjectSettings, ProjectError> {
        let _alone = lock(&self.adding);
        let mut changed = ProjectSettings::clone(&self.settings());
        changes.iter().try_for_each(|(key, value)| changed.set(key, value))?;
        let record = ProjectRecord { settings: changed.clone(), ..lock(&self.record).clone() };
        self.transact_durably(|txn| txn.put("project", self.keys.settings(), &record))?;
        *lock(&self.record) = record;
        *self.settings.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(changed.clone());
        Ok(changed)
    }

    /// As [`Project::transact`], and on return the writes survive a power cut. The medium is waited for without the
    /// lock, so that several operations share the wait.
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
        self.catalog.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn set_catalog(&self, catalog: Catalog) {
        *self.catalog.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(catalog);
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

#[cfg(test)]
mod tests {
    use fallow_domain::Duration;
    use fallow_store::SledStore;

    use super::*;

    #[test]
    fn r6_8_rests_that_end_in_one_second_and_are_seen_by_different_hosts_are_told_of_all() {
        let dir = tempfile::tempdir().unwrap();
        let store: Arc<dyn Store> = Arc::new(SledStore::open(dir.path().join("store")).unwrap());
        let (now, url) = (Instant::EPOCH + Duration::from_hours(9), "http://127.0.0.1:1");
        let project = Project::create(store, dir.path(), url, "p", ProjectSettings::default(), now).unwrap();
        let rest = |workunit, agents| RestEnd { at: now, workunit, agents };
        project.note_rests([rest(1, 3)]);
        project.note_rests([rest(2, 2)]);
        project.note_rests([rest(2, 2), rest(1, 3)]);
        assert_eq!(project.take_new_jobs(now + Duration::from_secs(1)), NewJobs { jobs: 0, agents: 5 });
    }

    #[test]
    fn r6_8_rests_that_were_noted_before_the_clock_was_set_back_are_over() {
        let dir = tempfile::tempdir().unwrap();
        let store: Arc<dyn Store> = Arc::new(SledStore::open(dir.path().join("store")).unwrap());
        let (now, url) = (Instant::EPOCH + Duration::from_hours(9), "http://127.0.0.1:1");
        let project = Project::create(store, dir.path(), url, "p", ProjectSettings::default(), now).unwrap();
        let rest =
            |minutes, workunit| RestEnd { at: now + Duration::from_mins(minutes), workunit, agents: 1 };
        // The longest rest that there is, noted half a second after it began.
        project.note_rests([rest(60, 1), rest(10, 2)]);
        let half = Duration::from_micros(500_000);
        assert_eq!(project.take_new_jobs(now + half), NewJobs::default());
        assert_eq!(lock(&project.resting).len(), 2);
        // Set back by half an hour.
        assert_eq!(project.take_new_jobs(now - Duration::from_mins(30)), NewJobs { jobs: 0, agents: 1 });
        assert_eq!(lock(&project.resting).len(), 1);
        assert_eq!(project.take_new_jobs(now + Duration::from_mins(11)), NewJobs { jobs: 0, agents: 1 });
    }
}
