//! What jobs left, in their slots or under names that are the agent's: taken away at once, removed when there
//! is time (R6.10).
//!
//! Model: a file is deleted; a directory is moved out of the way, whole, which takes one call however much is
//! in it, and also while somebody goes on putting files into it. So whoever wants the name next finds nothing
//! there, and nobody waits. What was moved is removed by a thread of its own at idle priority, in slices, so
//! that one enormous tree does not hold up the removal of small ones. What cannot be removed (it belongs to
//! another user) stays aside, is never used again, and is tried again later and at the next start. Where
//! something is mounted, that stays with all that is in it: it is not the agent's.

use std::collections::BTreeSet;
use std::ffi::{CStr, CString, OsStr};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::fs::{AtFlags, CWD, Dir, Mode, OFlags, open, renameat, unlinkat};
use rustix::io::Errno;

use crate::files::shown_path;
use crate::sys::{self, Urgency};
use crate::tree;

/// How long one tree is worked at before the next has its turn.
const SLICE: Duration = Duration::from_millis(200);
/// After this long, what could not be removed is tried again.
const RETRY: Duration = Duration::from_secs(600);

/// The place for what is to be removed. Clones are the same place.
#[derive(Clone, Debug)]
pub struct Trash(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    dir: PathBuf,
    running: AtomicBool,
    moved: AtomicU64,
    /// When to try again what could not be removed.
    retry_at: std::sync::Mutex<Option<Instant>>,
}

impl Trash {
    /// The trash in the directory `dir`, which is made when it is first needed.
    pub fn at(dir: PathBuf) -> Self {
        Self(Arc::new(Inner {
            dir,
            running: AtomicBool::new(false),
            moved: AtomicU64::new(0),
            // What an earlier life left there.
            retry_at: std::sync::Mutex::new(Some(Instant::now())),
        }))
    }

    /// Its directory.
    pub fn path(&self) -> &Path {
        &self.0.dir
    }

    /// Takes away what is at `path`, if anything, and follows no link at its end. Takes no longer for a
    /// directory with much in it, or with somebody who goes on filling it, than for an empty one.
    ///
    /// # Errors
    /// The system's, where it can be neither moved nor removed within `SLICE`. Something is mounted there.
    pub fn take(&self, path: &Path) -> io::Result<()> {
        let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
        let name = CString::new(name.as_bytes())?;
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let dir = match open(parent, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()) {
            Err(Errno::NOENT | Errno::NOTDIR) => return Ok(()),
            dir => dir?,
        };
        self.take_at(dir.as_fd(), &name).or_else(|_| {
            // Nothing can be moved out of a directory that is closed to its owner.
            let _ = tree::open_up(CWD, parent);
            self.take_at(dir.as_fd(), &name)
        })
    }

    /// The same of what is called `name` in the directory `parent`.
    ///
    /// # Errors
    /// As for [`Self::take`].
    pub fn take_at(&self, parent: BorrowedFd<'_>, name: &CStr) -> io::Result<()> {
        match unlinkat(parent, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => return Ok(()),
            // What unlinking a directory gives, and a directory that may not be written.
            Err(Errno::ISDIR | Errno::PERM | Errno::ACCESS) => {}
            Err(errno) => return Err(errno.into()),
        }
        if unlinkat(parent, name, AtFlags::REMOVEDIR).is_ok() {
            return Ok(());
        }
        if tree::is_mounted(parent, name) {
            let why = "something is mounted there, and stays with what is in it: unmount it first";
            return Err(io::Error::new(io::ErrorKind::ResourceBusy, why));
        }
        let Err(error) = self.put(parent, name) else { return Ok(()) };
        // A directory that is closed to its owner cannot be moved, nor into one.
        let _ = tree::open_up(parent, name);
        self.make();
        if self.put(parent, name).is_ok() {
            return Ok(());
        }
        // There is no place for it elsewhere: on a full volume, perhaps, or where it is mounted.
        match tree::remove_at_until(parent, name, Instant::now() + SLICE) {
            Ok(true) => Ok(()),
            Ok(false) => Err(error),
            Err(other) => Err(other),
        }
    }

    fn put(&self, parent: BorrowedFd<'_>, name: &CStr) -> io::Result<()> {
        let place = place(&self.0.dir)?;
        let age = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |age| age.as_nanos());
        let number = self.0.moved.fetch_add(1, Ordering::Relaxed);
        match renameat(parent, name, &place, format!("{age:x}.{number}")) {
            Ok(()) => {
                self.work();
                Ok(())
            }
            Err(Errno::NOENT) if is_gone(parent, name) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Makes the directory if it is gone or something else.
    fn make(&self) {
        let dir = &self.0.dir;
        if !dir.symlink_metadata().is_ok_and(|data| data.is_dir()) {
            let _ = std::fs::remove_file(dir);
            let _ = std::fs::DirBuilder::new().mode(0o700).create(dir);
        }
        let _ = tree::open_up(CWD, dir);
    }

    /// To be called now and then: tries again what could not be removed.
    pub fn look(&self) {
        if self.retry_at().is_some_and(|at| at <= Instant::now()) {
            self.set_retry(None);
            if std::fs::read_dir(&self.0.dir).is_ok_and(|mut entries| entries.next().is_some()) {
                self.work();
            }
        }
    }

    /// Starts the removal unless it goes on.
    fn work(&self) {
        if self.0.running.swap(true, Ordering::AcqRel) {
            // It looks again before it ends; should it be past that, this brings it back.
            self.set_retry(Some(Instant::now() + SLICE));
            return;
        }
        let inner = Arc::clone(&self.0);
        let work = move || {
            sys::lower(Urgency::Idle);
            empty(&inner.dir);
            inner.running.store(false, Ordering::Release);
        };
        if std::thread::Builder::new().name("trash".into()).spawn(work).is_err() {
            self.0.running.store(false, Ordering::Release);
        }
        self.set_retry(Some(Instant::now() + RETRY));
    }

    fn retry_at(&self) -> Option<Instant> {
        *fallow_daemon::lock(&self.0.retry_at)
    }

    fn set_retry(&self, at: Option<Instant>) {
        *fallow_daemon::lock(&self.0.retry_at) = at;
    }
}

fn is_gone(parent: BorrowedFd<'_>, name: &CStr) -> bool {
    matches!(rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW), Err(Errno::NOENT))
}

/// Opens the trash. A link in its place is none: what it leads to is no rubbish.
fn place(dir: &Path) -> io::Result<OwnedFd> {
    Ok(tree::open_directory(CWD, &CString::new(dir.as_os_str().as_bytes())?)?)
}

/// Removes what is in `dir`, a slice of each at a time. Returns when nothing more can be done.
fn empty(dir: &Path) {
    let Ok(place) = place(dir) else { return };
    let mut stuck = BTreeSet::new();
    loop {
        let mut found = false;
        for name in names(&place) {
            if stuck.contains(&name) {
                continue;
            }
            found = true;
            if let Err(error) = tree::remove_at_until(place.as_fd(), &name, Instant::now() + SLICE) {
                let path = dir.join(OsStr::from_bytes(name.to_bytes()));
                tracing::warn!(path = shown_path(&path), %error, "what a job left cannot be removed; it is tried again later");
                stuck.insert(name);
            }
        }
        if !found {
            return;
        }
    }
}

/// What is in a directory.
fn names(dir: &OwnedFd) -> impl Iterator<Item = CString> {
    let entries = Dir::read_from(dir).into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name().to_owned());
    names.filter(|name| !matches!(name.to_bytes(), b"." | b".."))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// Waits until nothing more is done.
    fn settle(trash: &Trash) {
        while trash.0.running.load(Ordering::Acquire) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn r6_10_a_link_in_place_of_the_trash_costs_nothing_elsewhere() {
        let dir = tempfile::tempdir().unwrap();
        let (elsewhere, at) = (dir.path().join("elsewhere"), dir.path().join("trash"));
        fs::create_dir_all(elsewhere.join("precious/tree")).unwrap();
        std::os::unix::fs::symlink(&elsewhere, &at).unwrap();
        let trash = Trash::at(at.clone());
        trash.look();
        settle(&trash);
        let left = dir.path().join("left");
        fs::create_dir_all(left.join("by/a/job")).unwrap();
        trash.take(&left).unwrap();
        settle(&trash);
        assert!(!left.exists());
        let kept: Vec<_> =
            fs::read_dir(&elsewhere).unwrap().flatten().map(|entry| entry.file_name()).collect();
        assert!(kept == ["precious"] && elsewhere.join("precious/tree").exists(), "{kept:?}");
        assert!(at.symlink_metadata().unwrap().is_dir(), "the trash is the agent's own again");
    }
}
