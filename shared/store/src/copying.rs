//! A copy of a store at one instant, while others write to it.
//!
//! Model: entries are read page by page, as long as that takes, and what is written meanwhile is noted: the
//! last value of each key. Put on top of the pages, these are all entries at the instant at which the noting
//! ended. Nobody who writes waits for longer than for a scan of one page.
//!
//! Bounds: what is noted lies in memory, [`NOTED`] bytes at most; a store that changes faster than it is read
//! is not copied.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::Batch;

/// Bytes that are noted at most: of the changes while one copy is made.
pub(crate) const NOTED: usize = 256 << 20;

/// What was written since a copy was begun.
#[derive(Debug, Default)]
pub(crate) struct Noted {
    /// The last value of each key; none where it is gone.
    pub(crate) changes: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
    bytes: usize,
    /// Why there is no copy.
    pub(crate) spoilt: Option<&'static str>,
}

/// The copies that are being made.
#[derive(Debug, Default)]
pub(crate) struct Copies(Mutex<Vec<Weak<Mutex<Noted>>>>);

impl Copies {
    /// Notes from now on what is written, as long as the caller keeps it.
    pub(crate) fn begin(&self) -> Arc<Mutex<Noted>> {
        let noted = Arc::default();
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|one| one.strong_count() > 0);
        all.push(Arc::downgrade(&noted));
        noted
    }

    /// Notes a batch that was applied.
    pub(crate) fn applied(&self, batch: &Batch) {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for noted in all.iter().filter_map(Weak::upgrade) {
            noted.lock().unwrap_or_else(PoisonError::into_inner).add(batch);
        }
    }

    /// A write failed, and what came of it will only be seen when the store is read anew.
    pub(crate) fn failed(&self) {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for noted in all.iter().filter_map(Weak::upgrade) {
            noted.lock().unwrap_or_else(PoisonError::into_inner).spoil("a write to it failed meanwhile");
        }
    }
}

impl Noted {
    fn spoil(&mut self, why: &'static str) {
        self.spoilt = Some(why);
        self.changes.clear();
    }

    fn add(&mut self, batch: &Batch) {
        let size = |value: &Option<Vec<u8>>| value.as_ref().map_or(0, Vec::len);
        if self.spoilt.is_some() {
            return;
        }
        for (key, value) in &batch.writes {
            self.bytes += key.len() + size(value);
            if let Some(before) = self.changes.insert(key.clone(), value.clone()) {
                self.bytes -= key.len() + size(&before);
            }
        }
        if self.bytes > NOTED {
            self.spoil("more than 256 MiB changed meanwhile");
        }
    }
}
