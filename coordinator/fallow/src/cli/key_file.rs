//! Files with keys.

use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use fallow_daemon::file::sync_directory_of;

use super::{Failure, bounded};

/// The most that a file with a key has, in bytes.
const SIZE_MAX: u64 = 16 << 10;

/// The text of a file with a key.
pub(super) fn read(file: &Path) -> Result<String, Failure> {
    bounded::read_text("key", file, SIZE_MAX)
}

/// Writes a file that is not there yet. Nothing is overwritten or removed for it: what is there may be a key.
/// Half a key is none: where it cannot be written whole, nothing is left.
pub(super) fn write_new(file: &Path, content: &[u8], mode: u32) -> Result<(), Failure> {
    let fail = |error| Failure::file("write", file, error);
    let opened = std::fs::OpenOptions::new().write(true).create_new(true).mode(mode).open(file);
    let mut opened = opened.map_err(|error| match error.kind() {
        std::io::ErrorKind::AlreadyExists => Failure::bad_input(format!(
            "{} is there already, and is not written over: choose another place, or remove it first",
            file.display()
        )),
        _ => fail(error),
    })?;
    let written = opened.write_all(content).and_then(|()| opened.sync_all());
    written.and_then(|()| sync_directory_of(file)).map_err(|error| {
        // A full disk gets its room back. The first failure is the one to tell.
        let _ = std::fs::remove_file(file);
        fail(error)
    })
}
