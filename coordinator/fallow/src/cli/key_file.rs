//! Files with keys.

use std::io::Write as _;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

use fallow_daemon::file::sync_directory_of;

use super::{Failure, bounded, warn};

/// The most that a file with a key has, in bytes.
const SIZE_MAX: u64 = 16 << 10;

/// The text of a file with a private key.
pub(super) fn read(file: &Path) -> Result<String, Failure> {
    bounded::read_text("key", file, SIZE_MAX)
}

/// Warns of one that others can read. Only of what was found to be a key.
pub(super) fn warn_if_open_key(file: &Path) {
    warn_if_open(file, "a private key", "make a new key");
}

/// Warns where a file that holds a secret is not for its owner alone: `anew` says what helps if others have
/// read it.
pub(super) fn warn_if_open(file: &Path, what: &str, anew: &str) {
    if let Some(warning) = is_open(file, what, anew) {
        warn(&warning);
    }
}

/// What is to be said of such a file.
fn is_open(file: &Path, what: &str, anew: &str) -> Option<String> {
    let data = std::fs::metadata(file).ok()?;
    let is_open = data.is_file() && data.permissions().mode() & 0o077 != 0;
    is_open.then(|| {
        format!(
            "warning: {} is {what}, and open to other users: close it (chmod 600), and {anew} if one of them may have read it",
            file.display()
        )
    })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r6_10_of_a_key_that_others_can_read_a_warning_says_so() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("org.key");
        write_new(&file, b"key", 0o600).unwrap();
        assert_eq!(is_open(&file, "a private key", "make a new key"), None);
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o640)).unwrap();
        assert!(is_open(&file, "a private key", "make a new key").unwrap().contains("chmod 600"));
    }
}
