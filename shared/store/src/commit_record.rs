//! The commit record: how many batches were acknowledged, in the file `witness` beside the engine's own
//! files.
//!
//! sled's recovery drops a damaged tail of its log without a word, and a scan of what is left looks healthy.
//! So the number of the last batch is also written here. A store that comes back with fewer batches than that
//! has lost acknowledged ones and is reported as corrupted. After a power cut, batches that were applied but
//! not made durable may rightly be gone: the record holds the boot it was written in, and another boot is
//! held to the durable number only.

use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::StoreError;
use crate::sled_store::fingerprint;

const NAME: &str = "witness";
const LENGTH: usize = 48;
const MAGIC: [u8; 8] = *b"FLWWIT\0\x01";

/// The record's file. Its numbers only grow.
#[derive(Debug)]
pub(crate) struct CommitRecord {
    file: File,
    boot: u64,
    durable: u64,
}

/// What the file holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Numbers {
    boot: u64,
    applied: u64,
    durable: u64,
}

impl CommitRecord {
    /// Opens the record in `dir` and compares it with `revision`, the batches that the engine brought back.
    pub(crate) fn open(dir: &Path, revision: u64) -> Result<Self, StoreError> {
        let fail = |source| StoreError::from_io(dir, "open its witness file", source);
        let path = dir.join(NAME);
        if revision > 0 && !path.try_exists().map_err(fail)? {
            let detail = "its file \"witness\" is missing, so that lost batches would not show; \
                          an empty file of that name takes the store as it is";
            return Err(StoreError::corrupted(dir, detail));
        }
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(fail)?;
        let mut bytes = Vec::with_capacity(LENGTH);
        (&mut file).take(LENGTH as u64).read_to_end(&mut bytes).map_err(fail)?;
        let boot = boot();
        let mut durable = 0;
        // An empty file is a store whose first batch never came, or a power cut before its content was on the
        // medium.
        if !bytes.is_empty() {
            let numbers = Numbers::read(&bytes)
                .ok_or_else(|| StoreError::corrupted(dir, "its witness file is not as it was written"))?;
            let is_this_boot = numbers.boot == boot && boot != UNKNOWN_BOOT;
            let promised = if is_this_boot { numbers.applied } else { numbers.durable };
            if revision < promised {
                let detail = format!("{promised} batches were acknowledged, {revision} are there");
                return Err(StoreError::corrupted(dir, detail));
            }
            durable = numbers.durable;
        }
        Ok(Self { file, boot, durable })
    }

    /// Notes that `applied` batches are with the kernel, and, if so, on the medium.
    pub(crate) fn note(&mut self, dir: &Path, applied: u64, is_durable: bool) -> Result<(), StoreError> {
        if is_durable {
            self.durable = applied;
        }
        let numbers = Numbers { boot: self.boot, applied, durable: self.durable };
        self.file
            .write_all_at(&numbers.write(), 0)
            .map_err(|source| StoreError::from_io(dir, "write its witness file", source))
    }
}

impl Numbers {
    fn write(self) -> [u8; LENGTH] {
        let mut bytes = [0; LENGTH];
        bytes[..8].copy_from_slice(&MAGIC);
        for (place, number) in [(8, self.boot), (16, self.applied), (24, self.durable)] {
            bytes[place..place + 8].copy_from_slice(&number.to_be_bytes());
        }
        let check = fingerprint(&bytes[..LENGTH - 8], b"");
        bytes[LENGTH - 8..].copy_from_slice(&check.to_be_bytes());
        bytes
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        let number = |place: usize| -> Option<u64> {
            Some(u64::from_be_bytes(bytes.get(place..place + 8)?.try_into().ok()?))
        };
        let whole = bytes.len() == LENGTH && bytes.starts_with(&MAGIC);
        let check = fingerprint(bytes.get(..LENGTH - 8)?, b"");
        let numbers = Self { boot: number(8)?, applied: number(16)?, durable: number(24)? };
        (whole && number(LENGTH - 8)? == check).then_some(numbers)
    }
}

/// Where the system does not say which boot it is (in a sandbox without `/proc/sys`, for instance).
const UNKNOWN_BOOT: u64 = 0;

/// Identifies the running boot.
fn boot() -> u64 {
    // With the line's end, as records hold it since there are any.
    fallow_daemon::proc::boot().map_or(UNKNOWN_BOOT, |id| fingerprint(format!("{id}\n").as_bytes(), b""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_reads_as_it_was_written_and_not_otherwise() {
        let numbers = Numbers { boot: 7, applied: 9, durable: 3 };
        let bytes = numbers.write();
        assert_eq!(Numbers::read(&bytes), Some(numbers));
        for place in 0..LENGTH {
            let mut damaged = bytes;
            damaged[place] ^= 1;
            assert_eq!(Numbers::read(&damaged), None, "byte {place}");
        }
        assert_eq!(Numbers::read(&bytes[..LENGTH - 1]), None);
    }

    #[test]
    fn an_earlier_boot_is_held_to_its_durable_batches_only() {
        let dir = tempfile::tempdir().unwrap();
        let numbers = Numbers { boot: boot().wrapping_add(1), applied: 9, durable: 3 };
        std::fs::write(dir.path().join(NAME), numbers.write()).unwrap();
        assert!(CommitRecord::open(dir.path(), 3).is_ok());
        assert!(matches!(CommitRecord::open(dir.path(), 2), Err(StoreError::Corrupted { .. })));
    }

    #[test]
    fn a_store_with_batches_and_without_its_witness_is_not_taken_up_until_somebody_says_so() {
        let dir = tempfile::tempdir().unwrap();
        assert!(CommitRecord::open(dir.path(), 0).is_ok(), "a new store has none");
        std::fs::remove_file(dir.path().join(NAME)).unwrap();
        for _ in 0..2 {
            assert!(matches!(CommitRecord::open(dir.path(), 1), Err(StoreError::Corrupted { .. })));
        }
        std::fs::write(dir.path().join(NAME), b"").unwrap();
        assert!(CommitRecord::open(dir.path(), 1).is_ok());
    }

    #[test]
    fn this_boot_is_held_to_every_batch() {
        let dir = tempfile::tempdir().unwrap();
        let mut witness = CommitRecord::open(dir.path(), 0).unwrap();
        witness.note(dir.path(), 9, false).unwrap();
        assert!(CommitRecord::open(dir.path(), 9).is_ok());
        assert!(matches!(CommitRecord::open(dir.path(), 8), Err(StoreError::Corrupted { .. })));
    }
}
