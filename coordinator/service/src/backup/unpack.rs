//! Unpacks a backup beside what a coordinator's directory holds.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Component, Path, PathBuf};

use fallow_daemon::file;
use fallow_daemon::file_lock::{FileLock, LockError};
use fallow_domain::Instant;
use fallow_store::{Batch, Copied, Kind, SledStore, Store as _};
use serde::{Deserialize, Serialize};

use super::archive::{self, Head, Unpack};
use super::{BackupError, COMPLETE, FILES, PROJECTS, RESTORED, STORE, UNPACKED};

/// In a coordinator's directory.
const LOCK: &str = "restore.lock";

/// What a backup was, once it is unpacked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restored {
    /// Tells it from others: what it takes the place of is moved to `replaced-` and this.
    pub id: String,
    /// When it was made.
    pub made_at: Instant,
    /// Of which fleet: the fingerprint of its authority.
    pub authority: String,
    /// How many records it has.
    pub records: u64,
    /// How many files.
    pub files: u64,
}

/// A backup that waits to take the coordinator's place.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Pending {
    /// Tells it from others.
    pub id: String,
    /// When the backup was made.
    pub made_at: Instant,
    /// Of which fleet.
    pub authority: String,
    /// When it was unpacked.
    pub restored_at: Instant,
    /// Who puts it back, as he is called in the audit log.
    pub by: String,
    /// Why, in his words; may be empty.
    pub message: String,
}

/// The backup that waits in a coordinator's directory to take its place; none if there is none, or none that
/// is complete.
///
/// # Errors
/// [`BackupError::File`].
pub fn pending(dir: &Path) -> Result<Option<Pending>, BackupError> {
    read(&dir.join(RESTORED).join(COMPLETE))
}

/// Says that the unpacked backup of this id is to take the coordinator's place. False if none is there.
///
/// # Errors
/// [`BackupError`]; nothing waits then.
pub fn arm(dir: &Path, id: &str) -> Result<bool, BackupError> {
    let _alone = alone(dir)?;
    let root = dir.join(RESTORED);
    let unpacked = root.join(UNPACKED);
    if read(&unpacked)?.is_none_or(|unpacked| unpacked.id != id) {
        return Ok(false);
    }
    let complete = root.join(COMPLETE);
    let renamed = fs::rename(&unpacked, &complete).and_then(|()| file::sync_directory_of(&complete));
    renamed.map_err(BackupError::file(complete, "written"))?;
    Ok(true)
}

/// Removes an unpacked backup, whether or not it is to take the coordinator's place.
///
/// # Errors
/// [`BackupError`].
pub fn disarm(dir: &Path) -> Result<(), BackupError> {
    let _alone = alone(dir)?;
    remove(&dir.join(RESTORED))
}

fn read(path: &Path) -> Result<Option<Pending>, BackupError> {
    match fs::read(path) {
        Ok(bytes) => serde_json::from_slice(&bytes)
            .map(Some)
            .map_err(|error| BackupError::file(path, "read")(io::Error::other(error))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(BackupError::file(path, "read")(error)),
    }
}

/// Unpacks a backup into a coordinator's directory, which may not be there yet. It takes the coordinator's
/// place when somebody says so ([`arm`]). Blocks. `by` and `message` are for the audit log; `authority` is
/// the fingerprint of the authority whose the directory is, if it is any fleet's.
///
/// # Errors
/// [`BackupError`]; nothing waits then.
pub fn unpack(
    from: impl Read,
    dir: &Path,
    authority: Option<&str>,
    (by, message): (&str, &str),
    now: Instant,
) -> Result<Restored, BackupError> {
    let root = dir.join(RESTORED);
    let mut builder = DirBuilder::new();
    builder.recursive(true).mode(0o700).create(dir).map_err(BackupError::file(dir, "made"))?;
    let _alone = alone(dir)?;
    remove(&root)?;
    let unpacked = unpack_into(from, &root, |backup| match authority {
        Some(own) if own != backup => Err(BackupError::OtherFleet { dir: dir.to_path_buf() }),
        _ => Ok(()),
    });
    let done = unpacked.and_then(|restored| {
        let pending = Pending {
            id: restored.id.clone(),
            made_at: restored.made_at,
            authority: restored.authority.clone(),
            restored_at: now,
            by: by.to_owned(),
            message: message.to_owned(),
        };
        let path = root.join(UNPACKED);
        let text = serde_json::to_vec_pretty(&pending).map_err(io::Error::other);
        let written = text.and_then(|text| {
            // All of it is on the medium before it counts.
            rustix::fs::syncfs(File::open(&root)?)?;
            file::write_whole(&path, &text, 0o600)
        });
        written.map_err(BackupError::file(&path, "written"))?;
        Ok(restored)
    });
    if done.is_err() {
        // A full disk gets its room back. The first failure is the one to tell.
        let _ = remove(&root);
    }
    done
}

/// Held by who unpacks a backup or puts it in place.
pub(super) fn alone(dir: &Path) -> Result<FileLock, BackupError> {
    let path = dir.join(LOCK);
    FileLock::take(&path).map_err(|refused| match refused {
        LockError::InUse(_) => BackupError::UnderWay { dir: dir.to_path_buf() },
        LockError::Io(error) => BackupError::file(path, "locked")(error),
    })
}

/// Removes what an earlier attempt has left.
pub(super) fn remove(root: &Path) -> Result<(), BackupError> {
    // First what makes it count.
    file::remove_if_there(&root.join(COMPLETE)).map_err(BackupError::file(root, "removed"))?;
    match fs::remove_dir_all(root) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(BackupError::file(root, "removed")(error))
        }
        _ => Ok(()),
    }
}

fn unpack_into(
    from: impl Read,
    root: &Path,
    check_fleet: impl Fn(&str) -> Result<(), BackupError>,
) -> Result<Restored, BackupError> {
    let mut staged = Staged { root: root.to_path_buf(), check_fleet, store: None, restored: None };
    archive::read(from, &mut staged)?;
    let store = staged.store.ok_or_else(|| BackupError::not_whole("it holds no records"))?;
    store.flush()?;
    staged.restored.ok_or_else(|| BackupError::not_whole("it is empty"))
}

/// What is unpacked so far.
struct Staged<C> {
    root: PathBuf,
    check_fleet: C,
    store: Option<SledStore>,
    restored: Option<Restored>,
}

impl<C: Fn(&str) -> Result<(), BackupError>> Unpack for Staged<C> {
    fn head(&mut self, head: &Head) -> Result<(), BackupError> {
        if head.format > archive::FORMAT {
            return Err(BackupError::Newer { found: head.format, supported: archive::FORMAT });
        }
        (self.check_fleet)(&head.authority)?;
        // A coordinator without projects had no directory for them; that of another one would stay.
        make_dir(&self.root.join(PROJECTS))?;
        self.store = Some(SledStore::open_as(self.root.join(STORE), Kind::Coordinator)?);
        self.restored = Some(Restored {
            id: ulid::Ulid::new().to_string(),
            made_at: head.made_at,
            authority: head.authority.clone(),
            records: 0,
            files: 0,
        });
        Ok(())
    }

    fn records(&mut self, records: Vec<Copied>) -> Result<(), BackupError> {
        let (Some(store), Some(restored)) = (&self.store, &mut self.restored) else { return Ok(()) };
        restored.records += records.len() as u64;
        let batch = records.into_iter().fold(Batch::new(), |batch, (key, value)| match value {
            Some(value) => batch.put(key, value),
            None => batch.delete(key),
        });
        let _ = store.apply(batch)?;
        Ok(())
    }

    fn file(&mut self, path: &Path, mode: u32, content: &mut dyn Read) -> Result<(), BackupError> {
        // Within the directory, and only what is a coordinator's.
        let mut parts = path.components();
        let is_plain = parts.clone().all(|part| matches!(part, Component::Normal(_)));
        let is_known = parts.next().is_some_and(|first| {
            let first = first.as_os_str();
            let is_alone = parts.next().is_none();
            (is_alone && FILES.iter().any(|name| first == *name)) || (!is_alone && first == PROJECTS)
        });
        if !is_plain || !is_known {
            return Err(BackupError::not_whole(format!("{} belongs in no backup", path.display())));
        }
        let path = self.root.join(path);
        if let Some(parent) = path.parent() {
            make_dir(parent)?;
        }
        let file = OpenOptions::new().write(true).create_new(true).mode(mode & 0o755 | 0o600).open(&path);
        let mut file = match file {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                return Err(BackupError::not_whole(format!("it holds {} twice", path.display())));
            }
            file => file.map_err(BackupError::file(&path, "written"))?,
        };
        copy(content, &mut file, &path)?;
        if let Some(restored) = &mut self.restored {
            restored.files += 1;
        }
        Ok(())
    }
}

/// Copies, and tells whose fault it is if that fails.
fn copy(from: &mut dyn Read, to: &mut File, path: &Path) -> Result<(), BackupError> {
    use std::io::Write as _;
    let mut buffer = vec![0; 64 << 10];
    loop {
        let count = from.read(&mut buffer).map_err(|error| BackupError::not_whole(error.to_string()))?;
        let Some(bytes) = buffer.get(..count).filter(|bytes| !bytes.is_empty()) else { return Ok(()) };
        to.write_all(bytes).map_err(BackupError::file(path, "written"))?;
    }
}

fn make_dir(path: &Path) -> Result<(), BackupError> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.map_err(BackupError::file(path, "made"))
}
