//! Files that are there whole or not at all, and secrets that only their owner can read (R6.10).
//!
//! One rule for all of them: the content is written beside the file, by a new file that no link leads
//! elsewhere and that has its mode from the first byte; it is put on the medium, gets the file's name, and
//! the name is put there too. After a crash or a power cut a reader finds the old content or the new one. Two
//! who write one file at the same time are to be kept apart by whoever calls.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Where the content of a file is while it is written: beside it, `.new` behind its name.
pub fn beside(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    name.into()
}

/// Writes a file in one step, with this mode where the process's mask allows it.
///
/// # Errors
/// An I/O error of the operating system. The file is as it was then, or new, but perhaps not after a power
/// cut.
pub fn write_whole(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    write_by(path, &beside(path), content, mode)
}

/// The same by a file of another name, on the same file system: for places where `.new` may be somebody's.
///
/// # Errors
/// An I/O error of the operating system. The file is as it was then, or new, but perhaps not after a power
/// cut.
pub fn write_by(path: &Path, new: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    // One left over from a crash has an unknown mode; a link leads anywhere.
    remove_if_there(new)?;
    // If it is there now, it is somebody else's.
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(new)?;
    let mut write = || {
        file.write_all(content)?;
        file.sync_all()?;
        fs::rename(new, path)
    };
    write().inspect_err(|_| {
        // A full disk gets its room back. The first failure is the one to tell.
        let _ = fs::remove_file(new);
    })?;
    sync_directory_of(path)
}

/// Makes sure that a renamed or removed file stays so after a power cut.
///
/// # Errors
/// An I/O error of the operating system.
pub fn sync_directory_of(path: &Path) -> io::Result<()> {
    match path.parent() {
        Some(parent) if parent.as_os_str().is_empty() => File::open(".")?.sync_all(),
        Some(parent) => File::open(parent)?.sync_all(),
        None => Ok(()),
    }
}

/// Takes rights away from a file or a directory that was made beforehand, perhaps by somebody else: all in
/// `rights`, such as `0o077` for what the group and others may do. Gives the mode that it had, if it had any
/// of them.
///
/// # Errors
/// An I/O error of the operating system: it may lie open then.
pub fn close(path: &Path, rights: u32) -> io::Result<Option<u32>> {
    let mode = fs::metadata(path)?.permissions().mode() & 0o7777;
    if mode & rights == 0 {
        return Ok(None);
    }
    fs::set_permissions(path, fs::Permissions::from_mode(mode & !rights))?;
    Ok(Some(mode))
}

/// Removes a file that may be gone already.
///
/// # Errors
/// An I/O error of the operating system.
pub fn remove_if_there(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_file_is_replaced_whole_and_nothing_is_left_beside_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("record");
        write_whole(&path, b"old", 0o600).unwrap();
        write_whole(&path, b"new", 0o600).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    /// Shows R6.10.
    #[test]
    fn what_was_left_beside_it_decides_neither_place_nor_mode() {
        let dir = tempfile::tempdir().unwrap();
        let (path, elsewhere) = (dir.path().join("token"), dir.path().join("elsewhere"));
        fs::write(&elsewhere, "untouched").unwrap();
        symlink(&elsewhere, beside(&path)).unwrap();
        write_whole(&path, b"secret", 0o600).unwrap();
        assert_eq!(fs::read(&elsewhere).unwrap(), b"untouched");
        fs::write(beside(&path), "half").unwrap();
        fs::set_permissions(beside(&path), fs::Permissions::from_mode(0o666)).unwrap();
        write_whole(&path, b"secret", 0o600).unwrap();
        let data = path.symlink_metadata().unwrap();
        assert!(data.is_file());
        assert_eq!(data.permissions().mode() & 0o777, 0o600);
    }

    /// Shows R6.10.
    #[test]
    fn what_was_open_to_others_is_closed_to_them_and_stays_its_owners() {
        let dir = tempfile::tempdir().unwrap();
        let mode = || fs::metadata(dir.path()).unwrap().permissions().mode() & 0o7777;
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(close(dir.path(), 0o027).unwrap(), Some(0o755));
        assert_eq!(mode(), 0o750);
        assert_eq!(close(dir.path(), 0o027).unwrap(), None);
        assert_eq!(close(dir.path(), 0o077).unwrap(), Some(0o750));
        assert_eq!(mode(), 0o700);
        assert!(close(&dir.path().join("none"), 0o077).is_err());
    }

    #[test]
    fn a_failure_leaves_the_old_content_and_nothing_beside_it() {
        let dir = tempfile::tempdir().unwrap();
        // A directory has the name, so the last step fails.
        let path = dir.path().join("record");
        fs::create_dir(&path).unwrap();
        write_whole(&path, b"new", 0o600).unwrap_err();
        assert!(path.is_dir() && !beside(&path).exists());
        // Nothing was ever there to write in.
        write_whole(&dir.path().join("none/record"), b"new", 0o600).unwrap_err();
    }
}
