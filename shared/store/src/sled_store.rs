//! The store on sled.
//!
//! sled by itself promises less than this crate does; what is added and why:
//! - flushed after every batch, with no timer (`flush_every_ms(None)`): eleven wake-ups a second less on an
//!   idle host;
//! - `fdatasync` for durable batches, because sled's flush is `sync_file_range`, which leaves the drive's
//!   cache alone;
//! - a tally of all entries (count and sum of fingerprints), changed in the same atomic batch and compared on
//!   open, together with the [commit record](crate::commit_record): sled drops damaged parts of its log
//!   silently;
//! - a look at the free space before each batch: sled stops for good at the first failed write, so it should
//!   meet none. If it meets one all the same, it is closed and opened again by the next call;
//! - its panics on damaged files become [`StoreError::Corrupted`].
//!
//! A full disk is an ordinary event (R4.12), and so is a crash.
//!
//! One writer at a time, under a lock of our own: preconditions need it, and scans then see whole batches
//! only.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use fallow_daemon::file_lock::{DYING, FileLock, GOING, LockError, wait_until_free};

use crate::commit_record::CommitRecord;
use crate::copying::Copies;
use crate::engine_files;
use crate::quiet::catching;
use crate::{
    Batch, BatchResult, Entry, Format, KeyRange, Kind, PAGE, Precondition, Store, StoreError, TakeCopied,
    no_migration,
};

/// Layout of the directory: which engine, and how keys are mapped to its keys.
const LAYOUT: Format = Format { name: "store directory", version: 1, migrate: no_migration };
/// The engine's key of the tally; all others are [`DATA`] and the caller's key.
const TALLY: &[u8] = b"t";
const DATA: u8 = b'd';
/// Where the engine's files lie within the directory.
const ENGINE: &str = "sled";
/// Pages the engine may keep in memory, bytes: an agent's whole state is a few mebibytes.
const CACHE: u64 = 32 << 20;
/// Space that must be free beyond a batch, bytes: four of the engine's segments, which it writes whole.
pub const SPARE: u64 = 4 * (512 << 10);
/// Space that a [yielding](Batch::yielding) batch leaves beyond that, bytes: an operator's changes of a fleet
/// of thousands of hosts fit. On a small volume it is an eighth of it.
const LEFT: u64 = 64 << 20;
/// Files of these, unless the volume is small.
const FILES_LEFT: u64 = 1_000;

/// A [`Store`] in a directory of its own, on sled.
#[derive(Debug)]
pub struct SledStore {
    dir: PathBuf,
    state: RwLock<State>,
    copies: Copies,
    // Last, so that it is released after the engine is closed.
    _lock: FileLock,
}

#[derive(Debug)]
enum State {
    Open(Box<Opened>),
    /// A write failed and the engine was closed; the next call opens it again.
    Closed,
    /// The engine or the tally contradicts itself: nothing more is read or written.
    Broken(String),
}

#[derive(Debug)]
struct Opened {
    db: sled::Db,
    file: File,
    folder: File,
    tally: Tally,
    commit_record: CommitRecord,
}

/// What all entries come to: any entry lost, changed or brought back by damage shows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Tally {
    revision: u64,
    count: u64,
    sum: u64,
}

impl SledStore {
    /// Opens the store in `dir`, which is created if missing, and checks every entry (about 0.2 s per
    /// 100,000).
    ///
    /// Errors: [`StoreError::InUse`], [`StoreError::NotWritable`], [`StoreError::Corrupted`],
    /// [`StoreError::NewerFormat`], [`StoreError::Full`]; all but a corrupted store open again once the cause
    /// is gone.
    pub fn open(dir: impl Into<PathBuf>) -> Result<Self, StoreError> {
        Self::open_with(dir.into(), None)
    }

    /// Opens the store in `dir` for a daemon of this kind, and marks a new one as its own; else as
    /// [`Self::open`].
    ///
    /// Errors: besides those of [`Self::open`], [`StoreError::OtherKind`] for another daemon's store. One
    /// that says whose it is (see [`Kind::of`]) is left untouched; an older one is opened to look at its
    /// keys, and not changed.
    pub fn open_as(dir: impl Into<PathBuf>, kind: Kind) -> Result<Self, StoreError> {
        Self::open_with(dir.into(), Some(kind))
    }

    fn open_with(dir: PathBuf, kind: Option<Kind>) -> Result<Self, StoreError> {
        let marked = match kind {
            Some(kind) => {
                let marked = Kind::of(&dir)?;
                kind.require(&dir, marked)?;
                marked
            }
            None => None,
        };
        std::fs::create_dir_all(&dir)
            .map_err(|source| StoreError::from_io(&dir, "create its directory", source))?;
        let lock = lock(&dir)?;
        let opened = Opened::open(&dir, GOING)?;
        if let (Some(kind), None) = (kind, marked) {
            kind.require(&dir, opened.kind_by_keys(&dir)?)?;
            kind.write(&dir)?;
        }
        let state = RwLock::new(State::Open(Box::new(opened)));
        Ok(Self { dir, state, copies: Copies::default(), _lock: lock })
    }

    /// The directory.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    fn read<T>(&self, work: impl FnOnce(&Opened) -> Result<T, sled::Error>) -> Result<T, StoreError> {
        let mut guard = self.state.read().unwrap_or_else(PoisonError::into_inner);
        if matches!(&*guard, State::Closed) {
            drop(guard);
            drop(self.reopened()?);
            guard = self.state.read().unwrap_or_else(PoisonError::into_inner);
        }
        let result = match &*guard {
            State::Open(opened) => catching(|| work(opened)),
            State::Broken(why) => return Err(StoreError::corrupted(&self.dir, why.as_str())),
            // Another call closed it in between.
            State::Closed => return Err(self.closed()),
        };
        drop::<RwLockReadGuard<'_, State>>(guard);
        match result {
            Ok(read) => read.map_err(|error| StoreError::from_sled(&self.dir, "read", error)),
            Err(panic) => {
                Err(self.break_down(&mut self.state.write().unwrap_or_else(PoisonError::into_inner), panic))
            }
        }
    }

    fn write(&self, batch: &Batch, is_durable: bool) -> Result<BatchResult, StoreError> {
        let mut guard = self.reopened()?;
        let State::Open(opened) = &mut *guard else { return Err(self.closed()) };
        let result = catching(|| opened.apply(&self.dir, batch, is_durable));
        match result {
            Ok(Ok(outcome)) => {
                if outcome.is_applied() {
                    self.copies.applied(batch);
                }
                Ok(outcome)
            }
            Ok(Err(Failure::Refused(error))) => Err(error),
            Ok(Err(Failure::Unfinished(error))) => {
                // The engine takes no more writes after a failed one, and what it holds in memory may not be
                // what is on disk: read it anew.
                close(std::mem::replace(&mut *guard, State::Closed));
                self.copies.failed();
                Err(error)
            }
            Err(panic) => Err(self.break_down(&mut guard, panic)),
        }
    }

    /// The state to write to, opened again if a failure had closed it.
    fn reopened(&self) -> Result<RwLockWriteGuard<'_, State>, StoreError> {
        let mut guard = self.state.write().unwrap_or_else(PoisonError::into_inner);
        match &*guard {
            State::Open(_) => {}
            State::Closed => *guard = State::Open(Box::new(Opened::open(&self.dir, DYING)?)),
            State::Broken(why) => return Err(StoreError::corrupted(&self.dir, why.as_str())),
        }
        Ok(guard)
    }

    fn break_down(&self, state: &mut State, why: String) -> StoreError {
        close(std::mem::replace(state, State::Broken(why.clone())));
        StoreError::corrupted(&self.dir, why)
    }

    fn closed(&self) -> StoreError {
        let source = std::io::Error::other("an earlier write failed");
        StoreError::Io { dir: self.dir.clone(), action: "go on", source }
    }
}

impl Store for SledStore {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        self.read(|opened| Ok(opened.db.get(engine_key(key))?.map(|value| value.to_vec())))
    }

    fn scan(&self, range: &KeyRange, limit: usize) -> Result<Vec<Entry>, StoreError> {
        if range.end.as_ref().is_some_and(|end| *end <= range.start) {
            return Ok(Vec::new());
        }
        let start = engine_key(&range.start);
        let end = range.end.as_ref().map_or_else(|| vec![DATA + 1], |end| engine_key(end));
        self.read(|opened| {
            let entries = opened.db.range(start..end).take(limit);
            entries.map(|entry| entry.map(|(key, value)| (key[1..].to_vec(), value.to_vec()))).collect()
        })
    }

    fn apply(&self, batch: Batch) -> Result<BatchResult, StoreError> {
        self.write(&batch, false)
    }

    fn apply_durable(&self, batch: Batch) -> Result<BatchResult, StoreError> {
        self.write(&batch, true)
    }

    fn flush(&self) -> Result<(), StoreError> {
        // An empty batch writes nothing, and being durable makes all before it so.
        self.write(&Batch::new(), true).map(|_| ())
    }

    fn copy(&self, take: &mut TakeCopied<'_>) -> Result<(), StoreError> {
        let noted = self.copies.begin();
        let mut range = KeyRange::all();
        loop {
            let page = self.scan(&range, PAGE)?;
            let Some((last, _)) = page.last() else { break };
            range = range.after(last);
            if take(page.into_iter().map(|(key, value)| (key, Some(value))).collect()).is_break() {
                return Ok(());
            }
        }
        let noted = {
            // Nobody is in the middle of a write.
            let _none = self.state.read().unwrap_or_else(PoisonError::into_inner);
            std::mem::take(&mut *noted.lock().unwrap_or_else(PoisonError::into_inner))
        };
        if let Some(why) = noted.spoilt {
            return Err(StoreError::NotCopied { dir: self.dir.clone(), why });
        }
        let mut changes = noted.changes.into_iter();
        loop {
            let part: Vec<_> = changes.by_ref().take(PAGE).collect();
            if part.is_empty() || take(part).is_break() {
                return Ok(());
            }
        }
    }
}

/// Why a batch is not in the store.
enum Failure {
    /// Nothing was attempted.
    Refused(StoreError),
    /// The engine may hold part of it until it is read anew.
    Unfinished(StoreError),
}

/// Makes the directory this process's own, or says who has it.
fn lock(dir: &Path) -> Result<FileLock, StoreError> {
    FileLock::take(&dir.join("lock")).map_err(|refused| match refused {
        LockError::InUse(holder) => StoreError::InUse { dir: dir.to_path_buf(), holder },
        LockError::Io(source) => StoreError::from_io(dir, "open its lock file", source),
    })
}

impl Opened {
    /// An engine that is about to go is waited for, for so long.
    fn open(dir: &Path, patience: std::time::Duration) -> Result<Self, StoreError> {
        let folder = dir.join(ENGINE);
        wait_until_free(&folder.join("db"), patience);
        engine_files::check_settings(dir, &folder)?;
        engine_files::remove_unfinished(dir, &folder)?;
        let config = sled::Config::new().path(&folder).flush_every_ms(None).cache_capacity(CACHE);
        let db = catching(|| config.open())
            .map_err(|panic| StoreError::corrupted(dir, panic))?
            .map_err(|error| StoreError::from_sled(dir, "open", error))?;
        let tally = catching(|| check(dir, &db)).map_err(|panic| StoreError::corrupted(dir, panic))??;
        let commit_record = CommitRecord::open(dir, tally.revision)?;
        let open_fail = |source| StoreError::from_io(dir, "open its engine's files", source);
        let file = File::open(folder.join("db")).map_err(open_fail)?;
        let folder = File::open(&folder).map_err(open_fail)?;
        // The names of the files just created are part of what a durable batch relies on.
        let own = File::open(dir).map_err(open_fail)?;
        [&folder, &own].into_iter().try_for_each(File::sync_all).map_err(open_fail)?;
        Ok(Self { db, file, folder, tally, commit_record })
    }

    fn kind_by_keys(&self, dir: &Path) -> Result<Option<Kind>, StoreError> {
        let has = |prefix: &[u8]| self.db.scan_prefix(engine_key(prefix)).next().transpose();
        catching(|| Kind::by_keys(|prefix| has(prefix).map(|found| found.is_some())))
            .map_err(|panic| StoreError::corrupted(dir, panic))?
            .map_err(|error| StoreError::from_sled(dir, "read", error))
    }

    fn apply(&mut self, dir: &Path, batch: &Batch, is_durable: bool) -> Result<BatchResult, Failure> {
        let refused = |error| Failure::Refused(StoreError::from_sled(dir, "read", error));
        for precondition in &batch.preconditions {
            let (Precondition::Absent(key) | Precondition::Equals(key, _)) = precondition;
            let found = self.db.get(engine_key(key)).map_err(refused)?;
            let holds = match precondition {
                Precondition::Absent(_) => found.is_none(),
                Precondition::Equals(_, value) => found.as_deref() == Some(value.as_slice()),
            };
            if !holds {
                return Ok(BatchResult::Conflict {
                    key: key.clone(),
                    found: found.map(|value| value.to_vec()),
                });
            }
        }
        let mut tally = self.tally;
        if !batch.writes.is_empty() {
            require_space(dir, batch).map_err(Failure::Refused)?;
            let (writes, after) = self.prepare(batch).map_err(refused)?;
            tally = after;
            let unfinished = |error| Failure::Unfinished(StoreError::from_sled(dir, "write", error));
            self.db.apply_batch(writes).map_err(unfinished)?;
            self.db.flush().map_err(unfinished)?;
        }
        if is_durable {
            // The folder as well: values of half a mebibyte and more lie in files of their own.
            let synced = self.file.sync_data().and_then(|()| self.folder.sync_all());
            synced.map_err(|source| Failure::Unfinished(StoreError::from_io(dir, "sync", source)))?;
        }
        self.commit_record.note(dir, tally.revision, is_durable).map_err(Failure::Unfinished)?;
        self.tally = tally;
        Ok(BatchResult::Applied { revision: tally.revision })
    }

    /// The engine's batch, with the tally as it will be.
    fn prepare(&self, batch: &Batch) -> Result<(sled::Batch, Tally), sled::Error> {
        let mut tally = self.tally;
        let mut writes = sled::Batch::default();
        for (key, value) in &batch.writes {
            let engine_key = engine_key(key);
            if let Some(old) = self.db.get(&engine_key)? {
                tally.remove(key, &old);
            }
            match value {
                Some(value) => {
                    tally.add(key, value);
                    writes.insert(engine_key, value.as_slice());
                }
                None => writes.remove(engine_key),
            }
        }
        tally.revision += 1;
        writes.insert(TALLY, tally.write());
        Ok((writes, tally))
    }
}

/// Reads everything and compares it with the tally.
fn check(dir: &Path, db: &sled::Db) -> Result<Tally, StoreError> {
    let fail = |error| StoreError::from_sled(dir, "read", error);
    let (mut stored, mut found) = (Tally::default(), Tally::default());
    for entry in db.iter() {
        let (key, value) = entry.map_err(fail)?;
        match key.split_first() {
            Some((&DATA, key)) => found.add(key, &value),
            _ if key == TALLY => stored = Tally::read(dir, &value)?,
            _ => return Err(StoreError::corrupted(dir, "it holds a key that was never written")),
        }
    }
    found.revision = stored.revision;
    if found != stored {
        let detail =
            format!("{} entries were written, {} are there or were changed", stored.count, found.count);
        return Err(StoreError::corrupted(dir, detail));
    }
    Ok(stored)
}

impl Tally {
    fn add(&mut self, key: &[u8], value: &[u8]) {
        self.count = self.count.wrapping_add(1);
        self.sum = self.sum.wrapping_add(fingerprint(key, value));
    }

    fn remove(&mut self, key: &[u8], value: &[u8]) {
        self.count = self.count.wrapping_sub(1);
        self.sum = self.sum.wrapping_sub(fingerprint(key, value));
    }

    fn write(self) -> Vec<u8> {
        let numbers = [self.revision, self.count, self.sum];
        LAYOUT.wrap(&numbers.iter().flat_map(|number| number.to_be_bytes()).collect::<Vec<u8>>())
    }

    fn read(dir: &Path, stored: &[u8]) -> Result<Self, StoreError> {
        let bytes = LAYOUT.open(b"", stored).map_err(|error| match error {
            StoreError::NewerFormat { found, supported, .. } => {
                StoreError::NewerFormat { what: format!("the store in {}", dir.display()), found, supported }
            }
            other => StoreError::corrupted(dir, other.to_string()),
        })?;
        let numbers: Vec<u64> = bytes
            .chunks_exact(8)
            .filter_map(|part| Some(u64::from_be_bytes(part.try_into().ok()?)))
            .collect();
        match numbers[..] {
            [revision, count, sum] => Ok(Self { revision, count, sum }),
            _ => Err(StoreError::corrupted(dir, "its tally has the wrong length")),
        }
    }
}

/// FNV-1a over length of key, key and value, then mixed so that sums of similar entries do not cancel.
pub(crate) fn fingerprint(key: &[u8], value: &[u8]) -> u64 {
    let length = (key.len() as u64).to_be_bytes();
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    for byte in length.iter().chain(key).chain(value) {
        hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    hash = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash ^ (hash >> 33)
}

fn engine_key(key: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(key.len() + 1);
    out.push(DATA);
    out.extend_from_slice(key);
    out
}

/// Space that is free on the volume of `dir`, and of how much, bytes.
fn space(dir: &Path) -> std::io::Result<(u64, u64)> {
    Ok(space_of(&rustix::fs::statvfs(dir)?))
}

fn space_of(volume: &rustix::fs::StatVfs) -> (u64, u64) {
    let bytes = |blocks: u64| blocks.saturating_mul(volume.f_frsize);
    (bytes(volume.f_bavail), bytes(volume.f_blocks))
}

/// Space that is kept for batches that do not yield, on a volume of `all` bytes.
fn kept(all: u64) -> u64 {
    SPARE + LEFT.min(all / 8)
}

/// Files that are kept for those in charge, on a volume with room for `all`: a store is not opened without
/// making some, and many small ones take what there may be long before the volume is full.
fn kept_files(all: u64) -> u64 {
    FILES_LEFT.min(all / 8)
}

/// Whether `bytes` more in `dir`, in so many new files, leave its volume enough for what is done by those in
/// charge: the store's batches that do not [yield](Batch::yielding), and the next start; and as much again
/// for those that yield. For files beside a store, and what else can wait longer than the news that batches
/// bring.
///
/// # Errors
/// What the system says of the volume.
pub fn leaves_enough(dir: &Path, bytes: u64, files: u64) -> std::io::Result<bool> {
    let volume = rustix::fs::statvfs(dir)?;
    let (free, all) = space_of(&volume);
    // Some have no number of files that there may be, or do not say how many more.
    let says_nothing = volume.f_files == 0 || volume.f_favail == 0;
    let has_files =
        files == 0 || says_nothing || volume.f_favail >= kept_files(volume.f_files).saturating_add(files);
    Ok(has_files && free >= kept(all).saturating_mul(2).saturating_add(bytes))
}

/// Refuses a batch that the volume has no room for, before the engine sees it.
fn require_space(dir: &Path, batch: &Batch) -> Result<(), StoreError> {
    let size: usize =
        batch.writes.iter().map(|(key, value)| key.len() + value.as_ref().map_or(0, Vec::len) + 64).sum();
    let (free, all) = space(dir).map_err(|error| StoreError::from_io(dir, "look at its volume", error))?;
    let spare = if batch.yields == 0 { SPARE } else { kept(all).saturating_mul(u64::from(batch.yields)) };
    if free < spare.saturating_add(2 * size as u64) {
        return Err(StoreError::from_io(dir, "write", rustix::io::Errno::NOSPC.into()));
    }
    Ok(())
}

/// Drops the engine; its destructor flushes, which can fail again and has nobody to tell.
fn close(state: State) {
    let _ = catching(|| drop(state));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_that_a_failed_write_closed_is_opened_again_by_the_next_call() {
        let dir = tempfile::tempdir().unwrap();
        let store = SledStore::open(dir.path()).unwrap();
        for round in 0..3_u8 {
            close(std::mem::replace(&mut *store.state.write().unwrap(), State::Closed));
            assert_eq!(store.scan_prefix(b"k").unwrap().len(), usize::from(round));
            close(std::mem::replace(&mut *store.state.write().unwrap(), State::Closed));
            assert!(store.apply(Batch::new().put([b'k', round], "v")).unwrap().is_applied());
        }
    }

    #[test]
    fn a_directory_of_a_newer_layout_is_refused_as_newer() {
        let dir = tempfile::tempdir().unwrap();
        let store = SledStore::open(dir.path()).unwrap();
        let newer = Format { version: LAYOUT.version + 1, ..LAYOUT };
        if let State::Open(opened) = &*store.state.read().unwrap() {
            opened.db.insert(TALLY, newer.wrap(b"what it holds is not known here")).unwrap();
        }
        drop(store);
        let error = SledStore::open(dir.path()).unwrap_err();
        assert!(matches!(error, StoreError::NewerFormat { found: 2, supported: 1, .. }), "{error}");
        assert!(error.to_string().contains(dir.path().to_str().unwrap()), "{error}");
    }

    #[test]
    fn after_the_engine_contradicts_itself_nothing_more_is_served() {
        let dir = tempfile::tempdir().unwrap();
        let store = SledStore::open(dir.path()).unwrap();
        let error = store.break_down(&mut store.state.write().unwrap(), "page 3 is another".to_owned());
        assert!(matches!(error, StoreError::Corrupted { .. }));
        assert!(matches!(store.get(b"k"), Err(StoreError::Corrupted { .. })));
        assert!(matches!(store.apply(Batch::new().put("k", "v")), Err(StoreError::Corrupted { .. })));
    }
}
