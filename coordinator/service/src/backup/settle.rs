//! Puts an unpacked backup in the place of what a coordinator's directory holds.
//!
//! Each step can be done again, so that this goes on wherever it was killed: what is carried over is written
//! in one batch, and each directory is moved out of the way before the new one is moved in.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fallow_daemon::file;
use fallow_daemon::file_lock::{GOING, wait_until_free};
use fallow_domain::{DocumentVersion, Instant};
use fallow_fleet::utc;
use fallow_store::{Batch, Format, KeyRange, Kind, SledStore, Store, StoreError, no_migration};

use super::unpack::{alone, remove};
use super::{BackupError, FILES, PROJECTS, Pending, RESTORED, STORE, pending};
use crate::audit::{self, Action, Actor};
use crate::document::{self, Author, Documents};
use crate::fleet;

/// In the store: which backup was put back last.
const DONE: &[u8] = b"daemon/restored";
const DONE_FORMAT: Format = Format { name: "restored backup", version: 1, migrate: no_migration };
/// Whose identities hold on, and what became of them: hosts, tokens, operators, and the audit log; and what
/// guards changes: by whom documents are signed, and in which waves they go out.
const CARRIED: &[&[u8]] = &[b"fleet/", b"audit/", document::ORGANISATION_KEY, document::PLAN_KEY];
/// But labels: they are as the backup has them, for the hosts that it knows.
const LABELS: &[u8] = b"fleet/labels/";
/// Which versions of the documents each host was given.
const GIVEN: &[u8] = b"fleet/given/";
/// Each host's record, by which the backup knows it.
const HOSTS: &[u8] = b"fleet/agent/";
/// Changes that are written at once.
const WRITTEN: usize = 500;
/// Terms that hosts may claim to know beyond the coordinator's: one that claims more is in error, or lies so
/// that no term is left.
const CLAIMED: u64 = 1_000;

/// What was put back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settled {
    /// When the backup was made.
    pub made_at: Instant,
    /// Where the coordinator's earlier state is now; none where there was none.
    pub replaced: Option<PathBuf>,
    /// The version of the documents that begins the new term; none where there are no documents.
    pub version: Option<DocumentVersion>,
    /// Why identities since the backup could not be carried over; none where they were, or there were none.
    pub lost: Option<String>,
}

/// Puts the backup in place that waits in a coordinator's directory, if one does. Nobody may be at work
/// there. Blocks. `authority_of` gives the fingerprint of the authority that a store names.
///
/// # Errors
/// [`BackupError`]. Where nothing was moved yet, and there is a coordinator to go on with, the backup is
/// removed; else it can be tried again.
pub fn settle(
    dir: &Path,
    now: Instant,
    authority_of: impl Fn(&dyn Store) -> Result<Option<String>, StoreError>,
) -> Result<Option<Settled>, BackupError> {
    if pending(dir)?.is_none() {
        return Ok(None);
    }
    let root = dir.join(RESTORED);
    let _alone = alone(dir)?;
    let Some(waiting) = pending(dir)? else { return Ok(None) };
    let replaced = self::replaced(dir, &waiting.id);
    let mut lost = None;
    let mut version = None;
    // Once something is moved, all that is left is to move the rest.
    if !replaced.exists() && root.join(STORE).exists() {
        let prepared = prepare(dir, &waiting, authority_of, now);
        (lost, version) = prepared.inspect_err(|_| {
            if dir.join(STORE).join("sled").exists() {
                // It would be in every start's way. The first failure is the one to tell.
                let _ = remove(&root);
            }
        })?;
    }
    // What is moved is nobody's any more.
    for store in [root.join(STORE), dir.join(STORE)] {
        wait_until_free(&store.join("sled/db"), GOING);
    }
    for name in [&[PROJECTS], FILES, &[STORE]].concat() {
        exchange(dir, &root, &replaced, name)?;
    }
    file::sync_directory_of(&root).map_err(BackupError::file(dir, "written"))?;
    remove(&root)?;
    let replaced = Some(replaced).filter(|path| path.exists());
    tracing::info!(
        made_at = utc(waiting.made_at),
        replaced = replaced.as_ref().map(|path| path.display().to_string()),
        "a backup was put back"
    );
    Ok(Some(Settled { made_at: waiting.made_at, replaced, version, lost }))
}

/// Makes the unpacked store what the coordinator begins with: why identities since the backup could not be
/// carried over, if they could not, and the version that begins the new term.
fn prepare(
    dir: &Path,
    waiting: &Pending,
    authority_of: impl Fn(&dyn Store) -> Result<Option<String>, StoreError>,
    now: Instant,
) -> Result<(Option<String>, Option<DocumentVersion>), BackupError> {
    let place = dir.join(RESTORED).join(STORE);
    let store: Arc<dyn Store> = Arc::new(SledStore::open_as(place, Kind::Coordinator)?);
    let (lost, present) = carry_over(dir, waiting, &store, authority_of)?;
    let version = begin_term(waiting, &store, present, now)?;
    store.flush()?;
    Ok((lost, version))
}

/// Where what a backup takes the place of is moved.
#[must_use]
pub fn replaced(dir: &Path, id: &str) -> PathBuf {
    dir.join(format!("replaced-{id}"))
}

/// Takes from the present store what has happened to identities since the backup. Gives why not, where the
/// store cannot be read; and the newest version of its documents.
fn carry_over(
    dir: &Path,
    waiting: &Pending,
    to: &Arc<dyn Store>,
    authority_of: impl Fn(&dyn Store) -> Result<Option<String>, StoreError>,
) -> Result<(Option<String>, DocumentVersion), BackupError> {
    let done = to.get(DONE)?;
    let done: Option<String> = done.map(|value| DONE_FORMAT.read(DONE, &value)).transpose()?;
    let place = dir.join(STORE);
    if !place.join("sled").exists() {
        forget_given(&**to)?;
        return Ok((None, DocumentVersion::default()));
    }
    let from = match SledStore::open_as(&place, Kind::Coordinator) {
        Ok(from) => from,
        Err(error @ (StoreError::Corrupted { .. } | StoreError::NewerFormat { .. })) => {
            forget_given(&**to)?;
            return Ok((Some(error.to_string()), DocumentVersion::default()));
        }
        Err(error) => return Err(error.into()),
    };
    if authority_of(&from)?.is_some_and(|authority| authority != waiting.authority) {
        return Err(BackupError::OtherFleet { dir: dir.to_path_buf() });
    }
    let newest = document::newest_version(&from)?;
    if done.as_ref() == Some(&waiting.id) {
        return Ok((None, newest));
    }
    // Nobody else reads there before all of it is written: it goes on wherever it is broken off.
    let mut changes = Changes { to: &**to, batch: Batch::new(), count: 0 };
    // Of hosts that joined since, before they are carried over themselves: then they are known by that.
    from.for_each(&KeyRange::prefix(LABELS), &mut |key, value| {
        let host = [HOSTS, key.strip_prefix(LABELS).unwrap_or_default()].concat();
        match to.get(&host)?.is_some() {
            true => Ok(()),
            false => changes.add(|batch| batch.put(key, value)),
        }
    })?;
    changes.write()?;
    for prefix in CARRIED {
        from.for_each(&KeyRange::prefix(prefix), &mut |key, value| match key.starts_with(LABELS) {
            true => Ok(()),
            false => changes.add(|batch| batch.put(key, value)),
        })?;
        to.for_each(&KeyRange::prefix(prefix), &mut |key, _| match key.starts_with(LABELS)
            || from.get(&key)?.is_some()
        {
            true => Ok(()),
            false => changes.add(|batch| batch.delete(key)),
        })?;
    }
    changes.write()?;
    let _ = to.apply_durable(Batch::new().put(DONE, DONE_FORMAT.write(DONE, &waiting.id)?))?;
    Ok((None, newest))
}

/// Removes what the backup knows of versions that hosts were given. They may have been given others since:
/// of these it would say that they never were, where it is not known.
fn forget_given(store: &dyn Store) -> Result<(), StoreError> {
    let mut changes = Changes { to: store, batch: Batch::new(), count: 0 };
    store.for_each(&KeyRange::prefix(GIVEN), &mut |key, _| changes.add(|batch| batch.delete(key)))?;
    changes.write()
}

/// Changes, written a few hundred at a time.
struct Changes<'a> {
    to: &'a dyn Store,
    batch: Batch,
    count: usize,
}

impl Changes<'_> {
    fn add(&mut self, one: impl FnOnce(Batch) -> Batch) -> Result<(), StoreError> {
        self.batch = one(std::mem::take(&mut self.batch));
        self.count += 1;
        if self.count.is_multiple_of(WRITTEN) { self.write() } else { Ok(()) }
    }

    fn write(&mut self) -> Result<(), StoreError> {
        self.to.apply(std::mem::take(&mut self.batch)).map(drop)
    }
}

/// The documents as the backup has them become the first version of a new term.
fn begin_term(
    waiting: &Pending,
    store: &Arc<dyn Store>,
    present: DocumentVersion,
    now: Instant,
) -> Result<Option<DocumentVersion>, BackupError> {
    let author = Author {
        actor: Actor::Operator(waiting.by.clone()),
        message: waiting.message.clone(),
        ..Author::default()
    };
    let record = author.record(Action::Restored, &format!("the backup of {}", utc(waiting.made_at)));
    let _ = audit::apply(&**store, &Batch::new(), &record)?;
    let documents = Documents::open(store.clone())?;
    let newest = documents.document().version;
    let followed = fleet::followed(&**store)?;
    let is_needed = newest.0 > 0 || present.0 > 0 || followed.iter().any(|version| version.0 > 0);
    if !is_needed {
        return Ok(None);
    }
    let term = next_term(newest.max(present), followed);
    let why = format!("from the backup of {}", utc(waiting.made_at));
    Ok(Some(documents.begin_term_now(author, now, term, &why)?))
}

/// A term after that of the newest version of a coordinator, and after those that its hosts follow, as far
/// as these can be true.
pub(crate) fn next_term(newest: DocumentVersion, followed: impl IntoIterator<Item = DocumentVersion>) -> u64 {
    let own = newest.term();
    let known = followed.into_iter().map(DocumentVersion::term).filter(|term| *term <= own + CLAIMED);
    known.fold(own, u64::max) + 1
}

/// Moves one thing out of the way and the new one in. Where there is no new one, it is in place already, or
/// the backup has none.
fn exchange(dir: &Path, root: &Path, replaced: &Path, name: &str) -> Result<(), BackupError> {
    let (new, place) = (root.join(name), dir.join(name));
    let there = |path: &Path| path.symlink_metadata().is_ok();
    if !there(&new) {
        return Ok(());
    }
    if there(&place) {
        match fs::create_dir(replaced) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(BackupError::file(replaced, "made")(error));
            }
            _ => {}
        }
        fs::rename(&place, replaced.join(name)).map_err(BackupError::file(&place, "moved"))?;
    }
    fs::rename(&new, &place).map_err(BackupError::file(&place, "written"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r6_5_a_new_term_follows_those_that_hosts_know_and_no_host_can_use_terms_up() {
        let version = DocumentVersion::first_of;
        assert_eq!(next_term(DocumentVersion(7), []), 1);
        assert_eq!(next_term(version(2), [DocumentVersion(9), version(5), version(3)]), 6);
        assert_eq!(next_term(version(2), [version(1_002), version(1_003), DocumentVersion(u64::MAX)]), 1_003);
        assert!(version(next_term(version(5), [version(5).next()])) > version(5).next());
    }

    #[test]
    fn r6_10_where_nothing_is_carried_over_it_is_not_known_what_hosts_were_given_since_the_backup() {
        const RECORDS: [&[u8]; 4] =
            [b"fleet/agent/01A", b"fleet/given/01A", b"fleet/given/01B", b"fleet/position/01A"];
        let waiting = Pending {
            id: "01BACKUP".to_owned(),
            made_at: Instant::EPOCH,
            authority: "fleet".to_owned(),
            restored_at: Instant::EPOCH,
            by: "anna".to_owned(),
            message: String::new(),
        };
        // What is left of the keys after a restore to a directory that is so.
        let left = |prepare_dir: fn(&Path)| {
            let (dir, backup) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
            prepare_dir(dir.path());
            let to: Arc<dyn Store> =
                Arc::new(SledStore::open_as(backup.path().join(STORE), Kind::Coordinator).unwrap());
            let _ = to.apply(RECORDS.iter().fold(Batch::new(), |batch, key| batch.put(*key, *b"1"))).unwrap();
            let (lost, _) = carry_over(dir.path(), &waiting, &to, |_| Ok(None)).unwrap();
            let mut keys = Vec::new();
            to.for_each(&KeyRange::prefix(b"fleet/"), &mut |key, _| {
                keys.push(String::from_utf8_lossy(&key).into_owned());
                Ok(())
            })
            .unwrap();
            (lost.is_some(), keys)
        };
        let known = ["fleet/agent/01A", "fleet/position/01A"].map(str::to_owned).to_vec();
        assert_eq!(left(|_| {}), (false, known.clone()), "the directory is empty");
        let corrupt = |dir: &Path| {
            drop(SledStore::open_as(dir.join(STORE), Kind::Coordinator).unwrap());
            wait_until_free(&dir.join(STORE).join("sled/db"), GOING);
            fs::write(dir.join(STORE).join("sled/conf"), b"").unwrap();
        };
        assert_eq!(left(corrupt), (true, known), "its store cannot be read");
        // Where it can, what it has says what they were given.
        let whole = |dir: &Path| {
            let from = SledStore::open_as(dir.join(STORE), Kind::Coordinator).unwrap();
            let _ = from.apply_durable(Batch::new().put(RECORDS[1], *b"2")).unwrap();
            drop(from);
            wait_until_free(&dir.join(STORE).join("sled/db"), GOING);
        };
        assert_eq!(left(whole), (false, vec!["fleet/given/01A".to_owned()]));
    }
}
