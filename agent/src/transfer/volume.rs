//! Room on the volume for what is downloaded.
//!
//! Model: looked at before a download begins and whenever another piece of it has come. What would not fit
//! beside the space that has to stay free is not begun, or given up with what there is of it, so that one
//! project's file never takes the volume from all others, the store, and the owner.

use std::path::Path;

use fallow_client::{TransferError, TransferErrorKind};
use fallow_domain::Bytes;

/// After so many bytes the volume is looked at again: little beside what has to stay free.
const PIECE: u64 = 8 << 20;

/// Watches a volume while something is written to it.
#[derive(Debug)]
pub(super) struct VolumeWatch<'a> {
    dir: &'a Path,
    keep_free: u64,
    /// Written since the last look.
    written: u64,
}

impl<'a> VolumeWatch<'a> {
    /// Looks whether `more` bytes fit, if it is known how many will come.
    ///
    /// # Errors
    /// `DiskFull`.
    pub(super) fn for_bytes(
        dir: &'a Path,
        keep_free: Bytes,
        more: Option<u64>,
    ) -> Result<Self, TransferError> {
        let space = Self { dir, keep_free: keep_free.0, written: 0 };
        space.look(more.unwrap_or(0)).map(|()| space)
    }

    /// Takes note of what is going to be written.
    ///
    /// # Errors
    /// `DiskFull`.
    pub(super) fn note(&mut self, bytes: u64) -> Result<(), TransferError> {
        self.written += bytes;
        if self.written < PIECE {
            return Ok(());
        }
        self.written = 0;
        self.look(bytes)
    }

    fn look(&self, more: u64) -> Result<(), TransferError> {
        let Some(free) = free(self.dir) else { return Ok(()) };
        if free >= more.saturating_add(self.keep_free) {
            return Ok(());
        }
        let what = format!(
            "no space for it: {} bytes are free at {}, {} of which have to stay so, and {more} more are to come",
            free,
            self.dir.display(),
            self.keep_free
        );
        Err(TransferError::new(TransferErrorKind::DiskFull, what))
    }
}

/// Bytes that may still be written; none when the system does not say.
pub(super) fn free(dir: &Path) -> Option<u64> {
    let volume = rustix::fs::statvfs(dir).ok()?;
    Some(volume.f_bavail.saturating_mul(volume.f_frsize))
}
