//! A file's lock: one process at a time, and its id for whoever comes second.
//!
//! The lock is the kernel's (`flock`), so it ends with its process however that dies; the file's content is
//! only for messages and may be stale.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

/// Held by the process that has the file to itself. The kernel lets go of it however the process ends.
#[derive(Debug)]
pub struct FileLock(#[expect(dead_code, reason = "held, not used")] File);

/// Why a lock is not taken.
#[derive(Debug)]
pub enum LockError {
    /// Another process has it: its id, if it left one.
    InUse(Option<u32>),
    /// The file cannot be opened, locked or written.
    Io(io::Error),
}

impl From<io::Error> for LockError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl FileLock {
    /// Takes the lock on a file, which is made if there is none, and leaves this process's id in it. A
    /// process that was killed a moment ago holds its lock until the kernel has taken it apart, and whoever
    /// starts the next one by hand or in a script should not have to know: for that the lock is waited for a
    /// second.
    ///
    /// # Errors
    /// [`LockError`].
    pub fn take(path: &Path) -> Result<Self, LockError> {
        Self::take_pausing(path, pause)
    }

    fn take_pausing(path: &Path, pause: impl FnMut(Duration)) -> Result<Self, LockError> {
        let mut options = OpenOptions::new();
        // Whatever the process's mask is, others do not write whose it is.
        options.read(true).write(true).create(true).truncate(false).mode(0o644);
        let mut file = options.open(path)?;
        match lock_patiently(&file, DYING, pause) {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(LockError::InUse(holder(&file))),
            Err(TryLockError::Error(error)) => return Err(LockError::Io(error)),
        }
        file.set_len(0)?;
        file.rewind()?;
        writeln!(file, "{}", std::process::id())?;
        Ok(Self(file))
    }
}

/// Waits until nobody holds the lock of a file, for so long at most. For a lock that somebody else takes, who
/// will say what is wrong, and that only those hold who are about to go.
pub fn wait_until_free(path: &Path, patience: Duration) {
    let Ok(file) = File::open(path) else { return };
    if lock_patiently(&file, patience, pause).is_ok() {
        // Said to the kernel, and not left to the closing: a process just started may have this file too.
        let _ = file.unlock();
    }
}

/// How long a killed process may take to end: tens of milliseconds on a busy machine, with a wide margin.
pub const DYING: Duration = Duration::from_secs(1);
/// How long one may take of which nothing else is left: nobody waits for an answer meanwhile.
pub const GOING: Duration = Duration::from_secs(30);

#[expect(clippy::disallowed_methods, reason = "this room waits for the world outside, for a bounded time")]
fn pause(time: Duration) {
    std::thread::sleep(time);
}

fn lock_patiently(
    file: &File,
    patience: Duration,
    mut pause: impl FnMut(Duration),
) -> Result<(), TryLockError> {
    const ROUND: Duration = Duration::from_millis(50);
    let mut left = patience;
    loop {
        match file.try_lock() {
            Err(TryLockError::WouldBlock) if !left.is_zero() => {
                pause(ROUND);
                left = left.saturating_sub(ROUND);
            }
            result => return result,
        }
    }
}

fn holder(file: &File) -> Option<u32> {
    let mut text = String::new();
    file.take(32).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_learns_whose_the_lock_is_and_gets_it_when_it_is_free() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let first = FileLock::take(&path).unwrap();
        let refused = FileLock::take(&path).unwrap_err();
        assert!(matches!(refused, LockError::InUse(Some(pid)) if pid == std::process::id()), "{refused:?}");
        drop(first);
        FileLock::take(&path).unwrap();
    }

    #[test]
    fn a_lock_that_cannot_be_made_is_no_lock_in_use() {
        let dir = tempfile::tempdir().unwrap();
        let refused = FileLock::take(&dir.path().join("none/lock")).unwrap_err();
        assert!(matches!(&refused, LockError::Io(error) if error.kind() == io::ErrorKind::NotFound));
    }

    #[test]
    fn a_holder_that_is_about_to_go_is_waited_for_but_not_for_ever() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let mut held = Some(FileLock::take(&path).unwrap());
        let mut waited = Duration::ZERO;
        let taken = FileLock::take_pausing(&path, |time| {
            waited += time;
            if waited > DYING / 2 {
                held = None;
            }
        });
        assert!(taken.is_ok() && waited < DYING, "{taken:?} after {waited:?}");
        waited = Duration::ZERO;
        let refused = FileLock::take_pausing(&path, |time| waited += time).unwrap_err();
        assert!(
            matches!(refused, LockError::InUse(Some(_))) && waited == DYING,
            "{refused:?} after {waited:?}"
        );
    }
}
