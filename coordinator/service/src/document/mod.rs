//! The fleet's documents: versioned, immutable, every version kept with who made it, when and why (R6.5).
//!
//! A version is of the whole: the document of the whole fleet and all groups ([`DocumentSet`]), so one
//! number says what an agent follows. The newest is at hand in [`Documents::watch`]: whoever looks late sees
//! the newest only, so a slow agent never costs memory. A change is stored for good before anybody hears of
//! it. Shares and preferences stand in it (R6.4).
//!
//! A change goes to all hosts at once, or in waves where operators have a plan for it
//! ([`fallow_rollout`]): the rollout is stored with the version, and says from then on which hosts are to
//! have it ([`Release`]).

mod fleet_wide;
mod making;
mod release;
mod rollout;
mod signing;
mod term;
mod version;

use std::sync::{Arc, OnceLock, Weak};

use fallow_domain::{
    AccountKey, DocumentVersion, FleetDocument, Instant, Invalid, MasterUrl, Preferences, ProjectAssignment,
    printable,
};
use fallow_fleet::{Change, ChangeError, DocumentSet, GroupName, Groups, GroupsChanged};
use fallow_rollout::{OrderError, Plan, Rollout, Wave};
use fallow_store::{Entry, KeyRange, Store, StoreError};
use tokio::sync::{Mutex, watch};

pub use fleet_wide::FleetChange;
use making::Making;
pub(crate) use release::PLAN_KEY;
use release::{ROLLOUT, ROLLOUTS};
pub use release::{Reach, Release};
pub(crate) use signing::ORGANISATION_KEY;
pub use signing::{Organisation, ToSign};
pub use version::{Audited, Head, Published};
use version::{FORMAT, PREFIX};

use crate::audit::{Action, Actor, Record};
use crate::kept::on_a_thread;

/// Bytes of a message that says why a version was made.
const MESSAGE_MAX: usize = 1_000;
/// Versions that are read at once where many are listed: each may be large.
const PAGE: usize = 2;

/// A change of the document that is not made.
#[derive(Debug, thiserror::Error)]
pub enum DocumentError {
    /// No project of this name in the fleet.
    #[error("there is no project {name:?} in the fleet (there is: {known}): `fallow projects` lists them")]
    UnknownProject {
        /// The name as given.
        name: String,
        /// The names there are.
        known: String,
    },
    /// A project named twice.
    #[error("project {name:?} is named twice: give each project one share")]
    NamedTwice {
        /// The name.
        name: String,
    },
    /// A request that asks for nothing.
    #[error("nothing to change was named: give at least one NAME=SHARE")]
    Nothing,
    /// Groups that are wrong, or not there.
    #[error(transparent)]
    Groups(#[from] ChangeError),
    /// A change while another one goes out.
    #[error(
        "rollout {number} {stands}: wait until it is over (`fallow rollout watch`), take it back (`fallow rollout abort`), or use \
         --emergency: that takes it back and goes to all hosts at once"
    )]
    UnderWay {
        /// The rollout.
        number: u64,
        /// How it stands, in words.
        stands: String,
    },
    /// A change that was made from a version which is not the newest any more.
    #[error(
        "these preferences were made from version {made_from} of the document, and version {newest} is there by \
         now: read it, and change it anew"
    )]
    Overtaken {
        /// What it was made from.
        made_from: DocumentVersion,
        /// What it would replace.
        newest: DocumentVersion,
    },
    /// An order to a rollout that does not follow it.
    #[error(transparent)]
    Order(#[from] OrderError),
    /// An order where nothing was ever rolled out, or somebody else gave one at the same time.
    #[error("{0}")]
    NoRollout(String),
    /// A change that the fleet's groups do not allow.
    #[error("that does not go with the fleet's groups: {0}")]
    Conflict(String),
    /// A version that there is not.
    #[error("there is no version {0} of the documents: `fallow documents` lists them")]
    UnknownVersion(DocumentVersion),
    /// A signature that is not taken.
    #[error("{0}")]
    NotSigned(String),
    /// A change while one waits to be signed that is to go to all hosts at once then.
    #[error(
        "version {0} waits to be signed (`fallow organisation sign`), and goes to all hosts at once then: sign it first, or this change \
         would go with it; --emergency says that it may"
    )]
    Urgent(DocumentVersion),
    /// It cannot be written down.
    #[error("the documents cannot be serialised")]
    Serialise(#[from] serde_json::Error),
    /// A value that means nothing in its place.
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Who changes something, and in which trace.
#[derive(Clone, Debug, Default)]
pub struct Author {
    /// Who it is.
    pub actor: Actor,
    /// The address at the other end of the connection; empty for none.
    pub from: String,
    /// W3C trace context of the call; empty for none.
    pub traceparent: String,
    /// Why, in the operator's words; may be empty.
    pub message: String,
    /// What he changes goes to all hosts at once, whatever the plan is and whatever goes out now.
    pub emergency: bool,
    /// So it does, and nobody called it an emergency: accounts that are made anew, a new term.
    pub by_rule: bool,
}

impl Author {
    /// The same with these words for why; where there are none, with those that he gave beside his request.
    #[must_use]
    pub fn saying(self, message: String) -> Self {
        if message.is_empty() { self } else { Self { message, ..self } }
    }

    /// What he does, for the audit log.
    #[must_use]
    pub fn record(&self, action: Action, object: &str) -> Record {
        Record::new(self.actor.clone(), &self.from, action, object).because(&self.message)
    }
}

/// All versions of the document.
pub struct Documents {
    store: Arc<dyn Store>,
    current: Arc<watch::Sender<Arc<Release>>>,
    // One change at a time: each starts from the newest.
    changing: Arc<Mutex<()>>,
    reach: OnceLock<Weak<dyn Reach>>,
}

impl Documents {
    /// Reads the newest version, if there is any, and the newest rollout.
    ///
    /// # Errors
    /// What the store says.
    pub fn open(store: Arc<dyn Store>) -> Result<Self, StoreError> {
        let published = |audited: Audited| -> Result<_, StoreError> {
            let signed = signing::signed_of(&*store, audited.set.fleet.version)?;
            Ok(Arc::new(Published { audited, traceparent: String::new(), signed }))
        };
        let newest = newest(&*store, PREFIX, &KeyRange::prefix(PREFIX))?
            .map(|(key, value)| version::read(&key, &value))
            .transpose()?;
        let rollout: Option<Rollout> = self::newest(&*store, ROLLOUTS, &KeyRange::prefix(ROLLOUTS))?
            .map(|(key, value)| ROLLOUT.read(&key, &value))
            .transpose()?;
        let base = match rollout.as_ref().filter(|rollout| rollout.is_open()) {
            Some(rollout) => Some(published(read_version(&*store, rollout.base)?)?),
            None => None,
        };
        let held = signing::held(&*store)?;
        let followed = held.as_ref().map(|held| held.followed).filter(|followed| followed.0 > 0);
        let followed = followed.map(|followed| published(read_version(&*store, followed)?)).transpose()?;
        let (newest, rollout) = (newest.map(published).transpose()?, rollout.map(Arc::new));
        let is_urgent = held.as_ref().is_some_and(|held| held.is_urgent);
        let release = Release { newest, rollout, base, is_held: held.is_some(), followed, is_urgent };
        let current = Arc::new(watch::Sender::new(Arc::new(release)));
        Ok(Self { store, current, changing: Arc::default(), reach: OnceLock::new() })
    }

    /// Who says for how many hosts changes make a difference. Said once, before anybody is served.
    pub fn set_reach(&self, reach: Weak<dyn Reach>) {
        if self.reach.set(reach).is_err() {
            tracing::error!("who knows the fleet's hosts is said already");
        }
    }

    /// What is released, now and whenever that is something else.
    #[must_use]
    pub fn watch(&self) -> watch::Receiver<Arc<Release>> {
        self.current.subscribe()
    }

    /// What is released.
    #[must_use]
    pub fn release(&self) -> Arc<Release> {
        self.current.borrow().clone()
    }

    /// The newest version, also while a rollout has not brought it to all hosts; `None` before the first
    /// project.
    #[must_use]
    pub fn current(&self) -> Option<Arc<Published>> {
        self.release().newest.clone()
    }

    /// The newest fleet-wide document, or one of version 0 without projects.
    #[must_use]
    pub fn document(&self) -> FleetDocument {
        self.current().map_or_else(|| empty().fleet, |published| published.audited.set.fleet.clone())
    }

    /// All newest documents, or a set of version 0 that says nothing.
    #[must_use]
    pub fn set(&self) -> DocumentSet {
        set_of(self.current().as_deref())
    }

    /// Whether there is a version of this number.
    ///
    /// # Errors
    /// What the store says.
    pub fn has_version(&self, version: DocumentVersion) -> Result<bool, StoreError> {
        Ok(self.store.get(&key(version))?.is_some())
    }

    /// The newest versions with their audit records, at most so many, oldest first.
    ///
    /// # Errors
    /// What the store says.
    pub fn history(&self, limit: usize) -> Result<Vec<Head>, StoreError> {
        let mut found = Vec::new();
        let mut newest = self.document().version;
        // Stretch by stretch: where a term begins, the numbers before are far behind, and some may be
        // missing.
        loop {
            let before = DocumentVersion(newest.0.saturating_sub((limit - found.len()) as u64));
            let first = DocumentVersion::first_of(newest.term());
            let before = before.max(DocumentVersion(first.0.saturating_sub(1)));
            let mut heads = heads(&*self.store, before, newest)?;
            heads.append(&mut found);
            found = heads;
            let earlier = KeyRange::between(PREFIX, key(before.next()));
            match (found.len() < limit).then(|| self::newest(&*self.store, PREFIX, &earlier)).transpose()? {
                Some(Some((key, _))) => newest = DocumentVersion(number(PREFIX, &key)?),
                _ => return Ok(found),
            }
        }
    }

    /// A version, with all that it says. Every version is kept.
    ///
    /// # Errors
    /// [`DocumentError::UnknownVersion`], and what the store says.
    pub fn version(&self, version: DocumentVersion) -> Result<Audited, DocumentError> {
        let key = key(version);
        let value = self.store.get(&key)?.ok_or(DocumentError::UnknownVersion(version))?;
        Ok(version::read(&key, &value)?)
    }

    /// Adds a project, or brings an assignment of the same name up to date.
    ///
    /// # Errors
    /// [`DocumentError`]; nothing is changed then.
    pub async fn put_project(
        &self,
        author: Author,
        now: Instant,
        assignment: ProjectAssignment,
    ) -> Result<FleetDocument, DocumentError> {
        self.change_fleet(author, now, move |document| {
            let said = format!("project {}", assignment.name);
            match document.projects.iter_mut().find(|project| project.name == assignment.name) {
                Some(project) => *project = assignment,
                None => document.projects.push(assignment),
            }
            Ok(said)
        })
        .await
    }

    /// Makes a new version with these keys of projects' own accounts, also if it is the same but for its
    /// number: agents ask for their document only when there is a newer one. Keys of projects that are not
    /// in it mean nothing.
    ///
    /// # Errors
    /// [`DocumentError`].
    pub async fn renew(
        &self,
        author: Author,
        now: Instant,
        change: &str,
        keys: &[(MasterUrl, AccountKey)],
    ) -> Result<FleetDocument, DocumentError> {
        if self.current().is_none() {
            return Ok(empty().fleet);
        }
        // Agents would compute for accounts that are not theirs meanwhile.
        let author = Author { emergency: true, by_rule: true, ..author };
        let (change, keys) = (change.to_owned(), keys.to_vec());
        self.change_fleet(author, now, move |document| {
            document.version = document.version.next();
            for project in &mut document.projects {
                if let Some((_, key)) = keys.iter().find(|(url, _)| *url == project.url) {
                    project.account_key = key.clone();
                }
            }
            Ok(change)
        })
        .await
    }

    /// Changes groups, all of them or none, and gives the documents before and after. What is so already
    /// makes no new version.
    ///
    /// # Errors
    /// [`DocumentError`]; nothing is changed then.
    pub async fn change_groups(
        &self,
        author: Author,
        now: Instant,
        change: Change,
    ) -> Result<(DocumentSet, DocumentSet), DocumentError> {
        let (change, mut turn) = (Arc::new(change), None);
        loop {
            let (making, changing) = (self.making(author.clone(), now), self.changing.clone());
            let (store, change, had) = (self.store.clone(), change.clone(), turn.take());
            let made = blocking(move || {
                // Reading the files takes longest: others who change documents do not wait for it, unless
                // one of them had his turn when they were read for the first time.
                let read = change.read();
                let alone = had.or_else(|| changing.try_lock_owned().ok())?;
                Some(making.make(alone, |set| {
                    let groups = read.groups(set)?;
                    require_planned(release::plan(&*store)?.as_ref(), &groups)?;
                    let said = what_changed(&set.groups, &groups);
                    set.groups = groups;
                    Ok(said)
                }))
            });
            if let Some(made) = made.await {
                return made;
            }
            // Nobody waits for his turn on a thread: whose turn it is may wait for that very one, where
            // there are few. So the files are read once more.
            turn = Some(self.changing.clone().lock_owned().await);
        }
    }

    /// Refuses groups that lack one which the plan for rollouts names.
    pub(crate) fn require_planned(&self, groups: &Groups) -> Result<(), DocumentError> {
        require_planned(release::plan(&*self.store)?.as_ref(), groups)
    }

    async fn change_fleet(
        &self,
        author: Author,
        now: Instant,
        edit: impl FnOnce(&mut FleetDocument) -> Result<String, DocumentError> + Send + 'static,
    ) -> Result<FleetDocument, DocumentError> {
        let making = self.making(author, now);
        let alone = self.changing.clone().lock_owned().await;
        let made = blocking(move || making.make(alone, |set| edit(&mut set.fleet)));
        made.await.map(|(_, set)| set.fleet)
    }

    fn making(&self, author: Author, now: Instant) -> Making {
        let reach = self.reach.get().and_then(Weak::upgrade);
        Making { store: self.store.clone(), current: self.current.clone(), reach, author, now }
    }
}

/// Runs what blocks on a thread where that is fine.
pub(crate) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let done = on_a_thread(work).await;
    done.unwrap_or_else(|died| std::panic::resume_unwind(died.into_panic()))
}

/// Sees to it that the groups are there that the plan for rollouts names: without one no change could be
/// made.
fn require_planned(plan: Option<&Plan>, groups: &Groups) -> Result<(), DocumentError> {
    for wave in plan.iter().flat_map(|plan| &plan.waves) {
        if let Wave::Group(name) = wave
            && !groups.0.contains_key(name)
        {
            return Err(no_group(name));
        }
    }
    Ok(())
}

fn no_group(name: &GroupName) -> DocumentError {
    DocumentError::Conflict(format!(
        "the plan for rollouts names group {name}, which has to be there: `fallow groups` lists them, \
         `fallow rollout plan` changes the plan"
    ))
}

fn under_way(rollout: &Rollout) -> DocumentError {
    DocumentError::UnderWay { number: rollout.number, stands: rollout.stands() }
}

/// What a version says; nothing, if there is none.
pub(crate) fn set_of(published: Option<&Published>) -> DocumentSet {
    published.map_or_else(empty, |published| published.audited.set.clone())
}

/// The versions after one, up to another.
fn heads(store: &dyn Store, before: DocumentVersion, last: DocumentVersion) -> Result<Vec<Head>, StoreError> {
    let mut range = KeyRange::between(key(before.next()), key(last.next()));
    let mut heads = Vec::new();
    loop {
        let page = store.scan(&range, PAGE)?;
        for (key, value) in &page {
            heads.push(version::read_head(key, value)?);
        }
        match page.last() {
            Some((last, _)) => range = range.after(last),
            None => return Ok(heads),
        }
    }
}

/// A version that is there.
fn read_version(store: &dyn Store, version: DocumentVersion) -> Result<Audited, StoreError> {
    let key = key(version);
    let value =
        store.get(&key)?.ok_or_else(|| FORMAT.bad_value(&key, "a rollout needs it, and it is missing"))?;
    version::read(&key, &value)
}

/// The newest version that a store has; 0 for none.
pub(crate) fn newest_version(store: &dyn Store) -> Result<DocumentVersion, StoreError> {
    let newest = newest(store, PREFIX, &KeyRange::prefix(PREFIX))?;
    newest.map_or(Ok(DocumentVersion::default()), |(key, _)| number(PREFIX, &key).map(DocumentVersion))
}

/// Twenty digits, so that versions sort as they were made.
fn key(version: DocumentVersion) -> Vec<u8> {
    format!("document/{:020}", version.0).into_bytes()
}

/// The newest of what is stored under numbers. There may be many, and each may be large: they are not gone
/// through, but it is asked whether there is one so far behind another, in steps that double, then halve.
fn newest(store: &dyn Store, prefix: &[u8], all: &KeyRange) -> Result<Option<Entry>, StoreError> {
    let Some(mut newest) = store.scan(all, 1)?.pop() else { return Ok(None) };
    let (mut step, mut doubling) = (1_u64, true);
    while step > 0 {
        let (key, _) = &newest;
        let before = number(prefix, key)?.saturating_add(step - 1);
        let before = [prefix, format!("{before:020}").as_bytes()].concat();
        match store.scan(&all.after(&before), 1)?.pop() {
            Some(later) => newest = later,
            None => doubling = false,
        }
        step = if doubling { step.saturating_mul(2) } else { step / 2 };
    }
    Ok(Some(newest))
}

/// The number under a key.
fn number(prefix: &[u8], key: &[u8]) -> Result<u64, StoreError> {
    let digits = key.strip_prefix(prefix).and_then(|digits| std::str::from_utf8(digits).ok());
    let number = digits.and_then(|digits| digits.parse().ok());
    number.ok_or_else(|| FORMAT.bad_value(key, "it has no number of a version"))
}

/// Which groups are others, in words, and how many more of them where there is no room for all.
fn what_changed(before: &Groups, after: &Groups) -> String {
    let GroupsChanged { put, removed } = before.changed(after);
    let put = put.into_iter().map(ToString::to_string);
    // What is gone is named first: it is not there to be looked at.
    let all: Vec<String> = removed.into_iter().map(|name| format!("{name} removed")).chain(put).collect();
    let mut said = String::from("groups ");
    for (at, one) in all.iter().enumerate() {
        if said.len() + one.len() > MESSAGE_MAX {
            said += &format!("and {} more, ", all.len() - at);
            break;
        }
        said += &format!("{one}, ");
    }
    said.truncate(said.trim_end_matches(", ").len());
    printable::line(&said, MESSAGE_MAX + 100)
}

fn empty() -> DocumentSet {
    let fleet = FleetDocument {
        content: String::new(),
        version: DocumentVersion(0),
        projects: Vec::new(),
        preferences: Preferences::default(),
    };
    DocumentSet { fleet, groups: Groups::default() }
}

#[cfg(test)]
mod tests;
