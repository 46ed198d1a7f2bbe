//! Entries in the store.
//!
//! ```text
//! audit/head            number and hash of the newest entry
//! audit/entry/NUMBER    an entry; twenty digits, so that entries sort as they were made
//! ```
//! Whoever adds an entry replaces the head that it read, in the same batch, so no two follow the same one.
//! Within a process they come one after the other: hundreds of hosts that enrol at once would else outrun
//! each other.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use fallow_daemon::{causes, clock, lock};
use fallow_domain::Instant;
use fallow_store::{Batch, BatchResult, Format, KeyRange, Store, StoreError, no_migration};

use super::chain::{Entry, Head};
use super::record::{Action, Record};
use super::refusals::Refusals;

const HEAD: &[u8] = b"audit/head";
const ENTRIES: &[u8] = b"audit/entry/";
const HEAD_FORMAT: Format = Format { name: "end of the audit log", version: 1, migrate: no_migration };
const ENTRY_FORMAT: Format = Format { name: "entry of the audit log", version: 1, migrate: no_migration };

/// Held by whoever adds an entry.
static ADDING: Mutex<()> = Mutex::new(());

/// Entries that are given out at once.
pub const PAGE_MAX: usize = 1_000;

/// Applies a change with its entry in the audit log, for good: both are stored, or neither.
///
/// # Errors
/// What the store says.
pub fn apply(store: &dyn Store, change: &Batch, record: &Record) -> Result<BatchResult, StoreError> {
    let _alone = lock(&ADDING);
    add(store, change, record, 0)
}

/// For who holds [`ADDING`].
fn add(
    store: &dyn Store,
    change: &Batch,
    record: &Record,
    unrecorded: u64,
) -> Result<BatchResult, StoreError> {
    loop {
        let held = store.get(HEAD)?;
        let head = read_head(held.as_deref())?;
        let entry = head.followed_by(clock::now(), unrecorded, record.clone());
        let key = key(entry.sequence);
        let batch = match held {
            Some(held) => change.clone().require_value(HEAD, held),
            None => change.clone().require_absent(HEAD),
        };
        let batch = batch
            .require_absent(key.clone())
            .put(key.clone(), ENTRY_FORMAT.write(&key, &entry)?)
            .put(HEAD, HEAD_FORMAT.write(HEAD, &entry.head())?);
        match store.apply_durable(batch)? {
            BatchResult::Conflict { key, .. } if key == HEAD => {}
            BatchResult::Conflict { key: beyond, .. } if beyond == key => {
                return Err(beyond_the_end(&key));
            }
            result => return Ok(result),
        }
    }
}

fn read_head(held: Option<&[u8]>) -> Result<Head, StoreError> {
    held.map_or(Ok(Head::default()), |held| HEAD_FORMAT.read(HEAD, held))
}

fn beyond_the_end(key: &[u8]) -> StoreError {
    ENTRY_FORMAT.bad_value(key, "it stands beyond the end of the audit log")
}

/// Twenty digits, so that entries sort as they were made.
fn key(sequence: u64) -> Vec<u8> {
    [ENTRIES, format!("{sequence:020}").as_bytes()].concat()
}

/// Which entries are asked for.
#[derive(Clone, Debug, Default)]
pub struct Query {
    /// Those behind this one, oldest first; none for the newest ones.
    pub after: Option<u64>,
    /// At most so many.
    pub limit: usize,
    /// Of this kind.
    pub action: Option<Action>,
    /// By whoever is called so; empty for all.
    pub actor: String,
    /// From then on.
    pub since: Option<Instant>,
}

impl Query {
    fn wants(&self, entry: &Entry) -> bool {
        self.action.is_none_or(|action| action == entry.record.action)
            && (self.actor.is_empty() || self.actor == entry.record.actor.name())
            && self.since.is_none_or(|since| entry.at >= since)
    }
}

/// Some entries, oldest first.
#[derive(Clone, Debug, Default)]
pub struct Page {
    /// The entries.
    pub entries: Vec<Entry>,
    /// There may be others in the direction in which they were looked for.
    pub more: bool,
    /// The end of the log as it was before they were read.
    pub head: Head,
}

/// The log of a coordinator.
pub struct AuditLog {
    store: Arc<dyn Store>,
    refused: Arc<Mutex<Refused>>,
}

/// Who was refused.
#[derive(Default)]
struct Refused {
    counted: Refusals,
    /// In the order in which they were refused, with how many were not recorded before each.
    unwritten: VecDeque<(Record, u64)>,
}

impl AuditLog {
    /// Looks whether its newest entry is the one that was written last. The whole chain is followed by
    /// `fallow audit --check`.
    ///
    /// # Errors
    /// What the store says; [`StoreError::BadValue`] for a log with another end.
    pub fn open(store: Arc<dyn Store>) -> Result<Self, StoreError> {
        let head = read_head(store.get(HEAD)?.as_deref())?;
        if head.sequence > 0 {
            let key = key(head.sequence);
            let newest =
                store.get(&key)?.map(|stored| ENTRY_FORMAT.read::<Entry>(&key, &stored)).transpose()?;
            if newest.is_none_or(|newest| newest.head() != head) {
                return Err(ENTRY_FORMAT.bad_value(&key, "it is not the one that was written last"));
            }
        }
        let beyond = store.scan(&KeyRange::prefix(ENTRIES).after(&key(head.sequence)), 1)?;
        match beyond.first() {
            Some((key, _)) => Err(beyond_the_end(key)),
            None => Ok(Self { store, refused: Arc::default() }),
        }
    }

    /// Records what was done, and is stored elsewhere already.
    ///
    /// # Errors
    /// What the store says.
    pub fn done(&self, record: &Record) -> Result<(), StoreError> {
        apply(&*self.store, &Batch::new(), record).map(drop)
    }

    /// Records that somebody was refused, if there were not too many lately. Nobody waits for it, and it is
    /// stored as soon as there is a thread for it, in the order of the refusals: whoever is refused is not
    /// told whether it is recorded.
    pub fn refused(&self, record: Record) {
        {
            let mut refused = lock(&self.refused);
            let Some(unrecorded) = refused.counted.count(record.action, &record.actor, clock::now()) else {
                return;
            };
            refused.unwritten.push_back((record, unrecorded));
        }
        let (store, refused) = (self.store.clone(), self.refused.clone());
        tokio::task::spawn_blocking(move || {
            let _alone = lock(&ADDING);
            // Threads come in any order, so each writes what is first, not what it was started for.
            let Some((record, unrecorded)) = lock(&refused).unwritten.pop_front() else { return };
            if let Err(error) = add(&*store, &Batch::new(), &record, unrecorded) {
                let error = causes::line(&error);
                tracing::error!(error, action = %record.action, "a refusal is not in the audit log");
            }
        });
    }

    /// Some of its entries.
    ///
    /// # Errors
    /// What the store says.
    pub fn page(&self, query: &Query) -> Result<Page, StoreError> {
        let head = read_head(self.store.get(HEAD)?.as_deref())?;
        let limit = query.limit.clamp(1, PAGE_MAX);
        let (entries, more) = match query.after {
            Some(after) => self.following(query, after, head.sequence, limit)?,
            None => self.newest(query, head.sequence, limit)?,
        };
        Ok(Page { entries, more, head })
    }

    fn following(
        &self,
        query: &Query,
        mut after: u64,
        end: u64,
        limit: usize,
    ) -> Result<(Vec<Entry>, bool), StoreError> {
        let mut found = Vec::new();
        while after < end {
            for entry in self.between(after, end)? {
                if found.len() == limit {
                    return Ok((found, true));
                }
                found.extend(Some(entry).filter(|entry| query.wants(entry)));
            }
            after = after.saturating_add(PAGE_MAX as u64);
        }
        Ok((found, false))
    }

    /// Reads backwards, block by block.
    fn newest(&self, query: &Query, mut end: u64, limit: usize) -> Result<(Vec<Entry>, bool), StoreError> {
        let mut found = Vec::new();
        while end > 0 {
            let after = end.saturating_sub(PAGE_MAX as u64);
            for entry in self.between(after, end)?.into_iter().rev() {
                if found.len() == limit {
                    found.reverse();
                    return Ok((found, true));
                }
                found.extend(Some(entry).filter(|entry| query.wants(entry)));
            }
            end = after;
        }
        found.reverse();
        Ok((found, false))
    }

    /// What is stored of entries behind `after`, up to `end` and at most a page.
    fn between(&self, after: u64, end: u64) -> Result<Vec<Entry>, StoreError> {
        let end = end.min(after.saturating_add(PAGE_MAX as u64));
        let range = KeyRange::between(key(after.saturating_add(1)), key(end.saturating_add(1)));
        let stored = self.store.scan(&range, PAGE_MAX)?;
        stored.iter().map(|(key, value)| ENTRY_FORMAT.read(key, value)).collect()
    }
}

#[cfg(test)]
mod tests {
    use fallow_store::SledStore;

    use super::*;
    use crate::audit::{Actor, Chain};

    fn record(object: &str) -> Record {
        Record::new(Actor::Coordinator, "", Action::ProjectCreated, object)
    }

    fn whole(store: &Arc<dyn Store>) -> u64 {
        let log = AuditLog::open(store.clone()).unwrap();
        let mut chain = Chain::default();
        let page = log.page(&Query { after: Some(0), limit: PAGE_MAX, ..Query::default() }).unwrap();
        page.entries.iter().for_each(|entry| chain.follow(entry).unwrap());
        chain.ends(page.head).unwrap();
        chain.head().sequence
    }

    #[test]
    fn r6_10_a_change_and_its_entry_are_stored_together_or_not_at_all() {
        let dir = tempfile::tempdir().unwrap();
        let store: Arc<dyn Store> = Arc::new(SledStore::open(dir.path()).unwrap());
        let change = Batch::new().require_absent("k").put("k", "v");
        assert!(apply(&*store, &change, &record("a")).unwrap().is_applied());
        assert_eq!((whole(&store), store.get(b"k").unwrap()), (1, Some(b"v".to_vec())));
        let again = apply(&*store, &change, &record("b")).unwrap();
        assert!(matches!(again, BatchResult::Conflict { key, .. } if key == b"k"));
        assert_eq!(whole(&store), 1);
    }

    #[test]
    fn r6_10_entries_that_come_at_once_make_one_chain() {
        let dir = tempfile::tempdir().unwrap();
        let store: Arc<dyn Store> = Arc::new(SledStore::open(dir.path()).unwrap());
        std::thread::scope(|scope| {
            for thread in 0..8 {
                let store = &store;
                scope.spawn(move || {
                    for at in 0..10 {
                        let change = Batch::new().put(format!("{thread}/{at}"), "");
                        assert!(apply(&**store, &change, &record("a")).unwrap().is_applied());
                    }
                });
            }
        });
        assert_eq!(whole(&store), 80);
    }

    #[test]
    fn r6_10_an_entry_beyond_the_end_is_an_error_and_is_not_written_over() {
        let dir = tempfile::tempdir().unwrap();
        let store: Arc<dyn Store> = Arc::new(SledStore::open(dir.path()).unwrap());
        for object in ["a", "b"] {
            let _ = apply(&*store, &Batch::new(), &record(object)).unwrap();
        }
        let page =
            AuditLog::open(store.clone()).unwrap().page(&Query { limit: 2, ..Query::default() }).unwrap();
        let first = HEAD_FORMAT.write(HEAD, &page.entries[0].head()).unwrap();
        assert!(store.apply(Batch::new().put(HEAD, first)).unwrap().is_applied());
        for error in [AuditLog::open(store.clone()).err(), apply(&*store, &Batch::new(), &record("c")).err()]
        {
            assert!(error.unwrap().to_string().contains("beyond the end"));
        }
    }
}
