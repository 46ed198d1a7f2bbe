//! What jobs left in their slots: set aside at once, removed when there is time.
//!
//! Model: a slot is emptied by moving it out of the way, whole, which takes one call however much is in it; so whoever gets
//! the number next finds nothing there. What was moved is removed by a thread of its own at idle priority, in slices, so
//! that one enormous tree does not hold up the removal of small ones. What cannot be removed (it belongs to another
//! user) stays aside, is never used again, and is tried again later and at the next start.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::fs::CWD;

use crate::dir::DataDir;
use crate::files::shown_path;
use crate::sys::{self, Urgency};
use crate::tree;

/// How long one tree is worked at before the next has its turn.
const SLICE: Duration = Duration::from_millis(200);
/// After this long, what could not be removed is tried again.
const RETRY: Duration = Duration::from_secs(600);

/// The place for what is to be removed.
#[derive(Debug)]
pub(super) struct Trash {
    dir: PathBuf,
    running: Arc<AtomicBool>,
    moved: AtomicU64,
    /// When to try again what could not be removed.
    retry_at: std::sync::Mutex<Option<Instant>>,
}

impl Trash {
    pub(super) fn new(dir: &DataDir) -> Self {
        Self {
            dir: dir.trash(),
            running: Arc::default(),
            moved: AtomicU64::new(0),
            // What an earlier life left there.
            retry_at: std::sync::Mutex::new(Some(Instant::now())),
        }
    }

    /// Moves what is at `path`, if anything, out of the way.
    ///
    /// # Errors
    /// The system's, where it can be neither moved nor removed.
    pub(super) fn set_aside(&self, path: &Path) -> io::Result<()> {
        let Err(error) = self.put(path) else { return Ok(()) };
        // A directory that is closed to its owner cannot be moved, nor out of or into one.
        for dir in [path.parent(), Some(path)].into_iter().flatten() {
            let _ = tree::open_up(CWD, dir);
        }
        self.make();
        if self.put(path).is_ok() {
            return Ok(());
        }
        // There is no place for it elsewhere: on a full volume, perhaps, or where it is mounted.
        match tree::remove_until(path, Some(Instant::now() + SLICE)) {
            Ok(true) => Ok(()),
            Ok(false) => Err(error),
            Err(other) => Err(other),
        }
    }

    fn put(&self, path: &Path) -> io::Result<()> {
        let age = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |age| age.as_nanos());
        let number = self.moved.fetch_add(1, Ordering::Relaxed);
        let to = self.dir.join(format!("{age:x}.{number}"));
        match std::fs::rename(path, &to) {
            Ok(()) => {
                self.work();
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound && path.symlink_metadata().is_err() => {
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Makes the directory if it is gone or something else.
    fn make(&self) {
        if !self.dir.symlink_metadata().is_ok_and(|data| data.is_dir()) {
            let _ = tree::remove(&self.dir);
            let _ = std::fs::create_dir(&self.dir);
        }
        let _ = tree::open_up(CWD, &self.dir);
    }

    /// To be called now and then: tries again what could not be removed.
    pub(super) fn look(&self) {
        if self.retry_at().is_some_and(|at| at <= Instant::now()) {
            self.set_retry(None);
            if std::fs::read_dir(&self.dir).is_ok_and(|mut entries| entries.next().is_some()) {
                self.work();
            }
        }
    }

    /// Starts the removal unless it goes on.
    fn work(&self) {
        if self.running.swap(true, Ordering::AcqRel) {
            // It looks again before it ends; should it be past that, this brings it back.
            self.set_retry(Some(Instant::now() + SLICE));
            return;
        }
        let (dir, running) = (self.dir.clone(), Arc::clone(&self.running));
        let work = move || {
            sys::lower(Urgency::Idle);
            empty(&dir);
            running.store(false, Ordering::Release);
        };
        if std::thread::Builder::new().name("trash".into()).spawn(work).is_err() {
            self.running.store(false, Ordering::Release);
        }
        self.set_retry(Some(Instant::now() + RETRY));
    }

    fn retry_at(&self) -> Option<Instant> {
        *self.retry_at.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn set_retry(&self, at: Option<Instant>) {
        *self.retry_at.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = at;
    }
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
