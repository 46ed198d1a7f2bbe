//! One instance per slot: a lock that the kernel drops when the process ends, however it does.

use std::fs::{File, OpenOptions};
use std::io;

use fallow_boinc::runtime::files;
use rustix::fs::{FlockOperation, fcntl_lock};
use rustix::io::Errno;

/// The lock, held as long as this lives. Closing any other handle of the same file would drop it, too: that
/// is how record locks work, and why nobody else here opens it.
#[derive(Debug)]
pub(crate) struct SlotLock {
    _file: File,
}

impl SlotLock {
    /// Tries once to get the lock; none if another process has it.
    pub(crate) fn try_acquire() -> io::Result<Option<Self>> {
        let file = OpenOptions::new().write(true).create(true).truncate(false).open(files::LOCK)?;
        match fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(Self { _file: file })),
            // Systems differ in which of the two they say.
            Err(Errno::AGAIN | Errno::ACCESS) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}
