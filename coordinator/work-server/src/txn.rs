//! What one operation reads and writes: it sees its own writes, and all of them are stored in one batch or
//! none.

use std::collections::BTreeMap;

use fallow_store::{Batch, Entry, Format, KeyRange, Store, StoreError, no_migration};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::error::ProjectError;
use super::index::RetryAt;
use super::operator_types::NewJobs;

/// The envelope of every record of a hosted project: JSON, readable by people with a store dump at hand.
const RECORD: Format = Format { name: "project record", version: 1, migrate: no_migration };

/// Reads through pending writes to the store. Made under the project's lock, so nobody else writes meanwhile.
pub(crate) struct Txn<'a> {
    store: &'a dyn Store,
    writes: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
    new_jobs: NewJobs,
    retries: Vec<RetryAt>,
    leaves_space: Leaves,
}

/// For whom the last of the disk's space is left.
#[derive(Clone, Copy)]
enum Leaves {
    Nothing,
    ToThoseInCharge,
    ToHosts,
}

impl<'a> Txn<'a> {
    pub(crate) fn new(store: &'a dyn Store) -> Self {
        let (new_jobs, retries) = (NewJobs::default(), Vec::new());
        Self { store, writes: BTreeMap::new(), new_jobs, retries, leaves_space: Leaves::Nothing }
    }

    /// The writes are a client's doing: the last of the disk's space is not for them ([`Batch::yielding`]).
    pub(crate) fn leave_space(&mut self) {
        self.leaves_space = Leaves::ToThoseInCharge;
    }

    /// The writes are a submitter's doing: what clients report comes before them
    /// ([`Batch::yielding_first`]).
    pub(crate) fn leave_space_to_hosts(&mut self) {
        self.leaves_space = Leaves::ToHosts;
    }

    /// The record under `key`.
    pub(crate) fn get<T: DeserializeOwned>(
        &self,
        what: &'static str,
        key: &[u8],
    ) -> Result<Option<T>, ProjectError> {
        let stored = match self.writes.get(key) {
            Some(pending) => pending.clone(),
            None => self.store.get(key)?,
        };
        Ok(stored.map(|bytes| decode(what, key, &bytes)).transpose()?)
    }

    pub(crate) fn contains(&self, key: &[u8]) -> Result<bool, StoreError> {
        match self.writes.get(key) {
            Some(pending) => Ok(pending.is_some()),
            None => Ok(self.store.get(key)?.is_some()),
        }
    }

    pub(crate) fn put<T: Serialize>(
        &mut self,
        what: &'static str,
        key: Vec<u8>,
        record: &T,
    ) -> Result<(), ProjectError> {
        let value = encode(what, &key, record)?;
        self.writes.insert(key, Some(value));
        Ok(())
    }

    /// Stores bytes that are an index entry and have no format of their own.
    pub(crate) fn put_raw(&mut self, key: Vec<u8>, value: Vec<u8>) {
        self.writes.insert(key, Some(value));
    }

    pub(crate) fn delete(&mut self, key: Vec<u8>) {
        self.writes.insert(key, None);
    }

    /// The first `limit` entries under `prefix`, behind the key `after` if one is given, pending writes
    /// included.
    pub(crate) fn scan(
        &self,
        prefix: &[u8],
        after: Option<&[u8]>,
        limit: usize,
    ) -> Result<Vec<Entry>, StoreError> {
        let mut range = KeyRange::prefix(prefix);
        if let Some(after) = after {
            range = range.after(after);
        }
        let ours = |key: &[u8]| key.starts_with(prefix) && after.is_none_or(|after| key > after);
        // Pending writes may hide as many stored entries, so that as many more are read.
        let pending: Vec<_> = self.writes.iter().filter(|(key, _)| ours(key)).collect();
        let mut entries = self.store.scan(&range, limit.saturating_add(pending.len()))?;
        entries.retain(|(key, _)| !self.writes.contains_key(key));
        entries.extend(pending.into_iter().filter_map(|(key, value)| Some((key.clone(), value.clone()?))));
        entries.sort();
        entries.truncate(limit);
        Ok(entries)
    }

    /// Takes note of jobs that came to wait for a host, and of how many agents may have them now.
    pub(crate) fn note_new_jobs(&mut self, new: NewJobs) {
        self.new_jobs.jobs += new.jobs;
        self.new_jobs.agents += new.agents;
    }

    /// Takes note of a workunit that is tried again later.
    pub(crate) fn note_retry(&mut self, retry: RetryAt) {
        self.retries.push(retry);
    }

    /// The workunits that are tried again later, of those written.
    pub(crate) fn take_retries(&mut self) -> Vec<RetryAt> {
        std::mem::take(&mut self.retries)
    }

    /// What waits for a host now.
    pub(crate) fn new_jobs(&self) -> NewJobs {
        self.new_jobs
    }

    /// All writes.
    pub(crate) fn into_batch(self) -> Batch {
        let mut batch = match self.leaves_space {
            Leaves::Nothing => Batch::new(),
            Leaves::ToThoseInCharge => Batch::new().yielding(),
            Leaves::ToHosts => Batch::new().yielding_first(),
        };
        for (key, value) in self.writes {
            match value {
                Some(value) => batch.add_put(key, value),
                None => batch.add_delete(key),
            }
        }
        batch
    }
}

/// The envelope of one kind of record, named in messages.
const fn record(what: &'static str) -> Format {
    Format { name: what, ..RECORD }
}

pub(crate) fn encode<T: Serialize>(what: &'static str, key: &[u8], value: &T) -> Result<Vec<u8>, StoreError> {
    record(what).write(key, value)
}

pub(crate) fn decode<T: DeserializeOwned>(
    what: &'static str,
    key: &[u8],
    stored: &[u8],
) -> Result<T, StoreError> {
    record(what).read(key, stored)
}

#[cfg(test)]
mod tests {
    use fallow_store::SledStore;

    use super::*;

    #[test]
    fn a_transaction_reads_and_scans_its_own_writes() {
        let dir = tempfile::tempdir().unwrap();
        let store = SledStore::open(dir.path()).unwrap();
        let stored =
            Batch::new().put(*b"p/1", *b"1").put(*b"p/3", *b"3").put(*b"p/4", *b"4").put(*b"q", *b"q");
        assert!(store.apply(stored).unwrap().is_applied());
        let mut txn = Txn::new(&store);
        txn.delete(b"p/1".to_vec());
        txn.put_raw(b"p/2".to_vec(), b"2".to_vec());
        let keys = |after: Option<&[u8]>, limit| -> Vec<String> {
            let entries = txn.scan(b"p/", after, limit).unwrap();
            entries.into_iter().map(|(key, _)| String::from_utf8(key).unwrap()).collect()
        };
        assert_eq!(keys(None, 9), ["p/2", "p/3", "p/4"]);
        assert_eq!(keys(None, 1), ["p/2"]);
        assert_eq!(keys(Some(b"p/2"), 9), ["p/3", "p/4"]);
        assert!(!txn.contains(b"p/1").unwrap());
        let batch = txn.into_batch();
        assert_eq!(batch.len(), 2);
    }
}
