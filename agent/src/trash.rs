//! What jobs left, in their slots or under names that are the agent's: taken away at once, removed when there is time.
//!
//! Model: a file is deleted; a directory is moved out of the way, whole, which takes one call however much is in it, and
//! also while somebody goes on putting files into it. So whoever wants the name next finds nothing there, and nobody waits.
//! What was moved is removed by a thread of its own at idle priority, in slices, so that one enormous tree does not hold
//! up the removal of small ones. What cannot be removed (it belongs to another user) stays aside, is never used again,
//! and is tried again later and at the next start.

use std::collections::BTreeMap;
use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, open, renameat, unlinkat};
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

    /// Takes away what is at `path`, if anything, and follows no link at its end. Takes no longer for a directory with much
    /// in it, or with somebody who goes on filling it, than for an empty one.
    ///
    /// # Errors
    /// The system's, where it can be neither moved nor removed within `SLICE`.
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
        let age = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |age| age.as_nanos());
        let number = self.0.moved.fetch_add(1, Ordering::Relaxed);
        match renameat(parent, name, CWD, self.0.dir.join(format!("{age:x}.{number}"))) {
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
            let _ = std::fs::create_dir(dir);
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
        *self.0.retry_at.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn set_retry(&self, at: Option<Instant>) {
        *self.0.retry_at.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = at;
    }
}

fn is_gone(parent: BorrowedFd<'_>, name: &CStr) -> bool {
    matches!(rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW), Err(Errno::NOENT))
}

/// Removes what is in `dir`, a slice of each at a time. Returns when nothing more can be done.
fn empty(dir: &Path) {
    let mut stuck: BTreeMap<PathBuf, ()> = BTreeMap::new();
    loop {
        let mut found = false;
        for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
            let path = entry.path();
            if stuck.contains_key(&path) {
                continue;
            }
            found = true;
            if let Err(error) = tree::remove_until(&path, Some(Instant::now() + SLICE)) {
                tracing::warn!(path = shown_path(&path), %error, "what a job left cannot be removed; it is tried again later");
                stuck.insert(path, ());
            }
        }
        if !found {
            return;
        }
    }
}
