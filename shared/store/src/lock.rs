//! The lock file: one process per directory, and its id for whoever comes second.
//!
//! The lock is the kernel's (`flock`), so it ends with its process however that dies; the file's content is only for
//! messages and may be stale.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::path::Path;
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::StoreError;

const NAME: &str = "lock";

/// Held while the store is open.
#[derive(Debug)]
pub(crate) struct DirectoryLock {
    _file: File,
}

impl DirectoryLock {
    /// Takes the lock in `dir`, which must exist, or says who holds it.
    pub(crate) fn take(dir: &Path) -> Result<Self, StoreError> {
        let fail = |source| StoreError::from_io(dir, "open its lock file", source);
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(dir.join(NAME))
            .map_err(fail)?;
        match lock_patiently(&file) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => {
                return Err(StoreError::InUse { dir: dir.to_path_buf(), holder: read_holder(&mut file) });
            }
            Err(errno) => return Err(fail(errno.into())),
        }
        file.set_len(0).and_then(|()| file.rewind()).map_err(fail)?;
        writeln!(file, "{}", std::process::id()).map_err(fail)?;
        Ok(Self { _file: file })
    }
}

/// Waits until nobody holds the lock that the engine takes on a file of its own. Whoever calls has this directory to itself,
/// so only somebody who is about to go can hold it: the engine of the store that was just closed, or a process that was being
/// started by this one meanwhile and has its files for a moment. Whatever else is wrong, the engine will say.
pub(crate) fn wait_for_engine(file: &Path) {
    let Ok(file) = File::open(file) else { return };
    if lock_patiently(&file).is_ok() {
        // Said to the kernel, and not left to the closing: a process just started may have this file too.
        let _ = flock(&file, FlockOperation::Unlock);
    }
}

/// How long a killed process may take to end: tens of milliseconds on a busy machine, with a wide margin.
const DYING: Duration = Duration::from_secs(1);

/// A process that was killed a moment ago holds its lock until the kernel has taken it apart, and whoever starts the
/// next one by hand or in a script should not have to know.
#[allow(clippy::disallowed_methods, reason = "this room waits for the world outside, for a bounded time")]
fn lock_patiently(file: &File) -> Result<(), Errno> {
    const ROUND: Duration = Duration::from_millis(50);
    let mut left = DYING;
    loop {
        match flock(file, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) if !left.is_zero() => {
                std::thread::sleep(ROUND);
                left = left.saturating_sub(ROUND);
            }
            result => return result,
        }
    }
}

fn read_holder(file: &mut File) -> Option<u32> {
    let mut text = String::new();
    file.take(32).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}
