//! An ordered key-value store behind one small interface; sled is its first engine.
//!
//! Purpose: both daemons keep their state here (R6.9). The interface is what sled and a replicated engine
//! have in common: ordered keys, atomic batches with preconditions. Named keyspaces are plain key prefixes,
//! chosen by the caller (`b"job/"`).
//!
//! Model: one writer process per directory, shown by a lock file with its process id. A [`Batch`] is applied
//! as a whole or not at all, also over a `kill -9`. Two strengths of "applied": [`Store::apply`] survives the
//! death of the process (the bytes are with the kernel), [`Store::apply_durable`] also survives the loss of
//! power (the bytes are on the medium) and costs an fsync of the file and its folder. Values are wrapped in
//! an envelope with a [`Format`] version: an older one is migrated by the caller's function, a newer one
//! refused. Those that are plain structs are JSON in their envelope ([`Format::write`], [`Format::read`]).
//!
//! An exception in `shared/`: this room knows files, because a store that did not would be a stub; it has no
//! clock, no sockets and no async runtime. The calls block: from async code run them where blocking is fine
//! (`spawn_blocking`), or accept the microseconds of [`Store::get`] and the fraction of a millisecond of
//! [`Store::apply`].
//!
//! Omitted: watching a prefix, until several coordinators share a store; several trees, compare-and-swap on
//! anything but equality and absence, time to live, replication.
#![forbid(unsafe_code)]

mod batch;
mod commit_record;
mod copying;
mod engine_files;
mod error;
mod format;
mod kind;
mod quiet;
mod range;
mod sled_store;

use std::ops::ControlFlow;

pub use batch::{Batch, BatchResult, Precondition};
pub use error::StoreError;
pub use format::{Format, Migrate, no_migration};
pub use kind::Kind;
pub use range::KeyRange;
pub use sled_store::{SPARE, SledStore, leaves_enough};

/// A key and its value.
pub type Entry = (Vec<u8>, Vec<u8>);

/// A key and its value in a copy; none where it is gone.
pub type Copied = (Vec<u8>, Option<Vec<u8>>);

/// Entries that are read at once where all are gone through.
const PAGE: usize = 500;

/// What takes the parts of a copy, as long as it goes on.
pub type TakeCopied<'a> = dyn FnMut(Vec<Copied>) -> ControlFlow<()> + 'a;

/// Ordered keys and values, changed in atomic batches (R6.9).
///
/// Object safe, so that a daemon holds an `Arc<dyn Store>` and does not know the engine.
pub trait Store: Send + Sync {
    /// The value under `key`, if there is one.
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError>;

    /// The first `limit` entries of `range` in key order. A scan sees whole batches only.
    ///
    /// To page on, call again with [`KeyRange::after`] the last key.
    fn scan(&self, range: &KeyRange, limit: usize) -> Result<Vec<Entry>, StoreError>;

    /// Applies all of `batch`, or nothing of it if one of its preconditions does not hold.
    ///
    /// On return of [`BatchResult::Applied`] the batch survives the death of this process, but perhaps not a
    /// power cut.
    fn apply(&self, batch: Batch) -> Result<BatchResult, StoreError>;

    /// As [`Store::apply`], and on return the batch survives a power cut too (as far as the medium keeps its
    /// word).
    ///
    /// Measured on a virtual disk of two cores (`cargo run --release -p fallow-store --example cost`): 3 ms a
    /// batch, against 0.3 ms for [`Store::apply`], which waits for the kernel's write but not for the drive's
    /// cache.
    fn apply_durable(&self, batch: Batch) -> Result<BatchResult, StoreError>;

    /// Puts everything applied so far on the medium (see [`Store::apply_durable`]).
    fn flush(&self) -> Result<(), StoreError>;

    /// Gives all entries as they are at one instant between the call and its return, while others write. They
    /// come in parts; what comes again replaces what came before, and a key without a value is gone. `take`
    /// may break off.
    ///
    /// # Errors
    /// Those of [`Store::scan`]; [`StoreError::NotCopied`] when more changes meanwhile than is held in memory
    /// (256 MiB), or a write fails.
    fn copy(&self, take: &mut TakeCopied<'_>) -> Result<(), StoreError>;

    /// Gives each entry of `range` in key order, a few hundred at a time: what is written meanwhile may come
    /// or not.
    ///
    /// # Errors
    /// Those of [`Store::scan`], and what `each` says: it ends then.
    fn for_each(
        &self,
        range: &KeyRange,
        each: &mut dyn FnMut(Vec<u8>, Vec<u8>) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let mut range = range.clone();
        loop {
            let page = self.scan(&range, PAGE)?;
            let Some((last, _)) = page.last() else { return Ok(()) };
            range = range.after(last);
            page.into_iter().try_for_each(|(key, value)| each(key, value))?;
        }
    }

    /// All entries whose key begins with `prefix`, in key order. For keyspaces whose size the caller bounds.
    fn scan_prefix(&self, prefix: &[u8]) -> Result<Vec<Entry>, StoreError> {
        self.scan(&KeyRange::prefix(prefix), usize::MAX)
    }
}
