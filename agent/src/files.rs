//! Files of untrusted origin: read without following links, without bound on their size but with bound on
//! memory.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use fallow_boinc::{names, signature};
use fallow_domain::{Bytes, printable};
use rustix::fs::{FileType, Mode, OFlags};

pub use crate::tree::remove;
pub use crate::walk::size_below;

/// Longest path in the log, in bytes: as long as the kernel takes one.
const PATH_MAX: usize = 4096;

/// A name that a project or an application gave, for the log. Marks that turn the order of letters around are
/// allowed in it.
pub fn shown(name: &str) -> String {
    printable::line(name, names::NAME_MAX)
}

/// A path that may end in such a name, or in anything that a file can be called.
pub fn shown_path(path: &Path) -> String {
    printable::line(&path.to_string_lossy(), PATH_MAX)
}

/// Opens an ordinary file for reading. A symbolic link in its place is an error: an application could point
/// it anywhere.
pub fn open_plain(path: &Path) -> io::Result<File> {
    let no_follow = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits();
    let file = OpenOptions::new().read(true).custom_flags(no_follow.cast_signed()).open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(io::Error::other("not an ordinary file")) }
}

/// The same of a file that a job may have closed to its own user, the agent's too: it is opened up first.
pub fn open_own(path: &Path) -> io::Result<File> {
    let closed = match open_plain(path) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => error,
        opened => return opened,
    };
    let file = rustix::fs::open(path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
    let data = rustix::fs::fstat(&file)?;
    if FileType::from_raw_mode(data.st_mode) != FileType::RegularFile {
        return Err(closed);
    }
    let mode = Mode::from_raw_mode(data.st_mode).union(Mode::RUSR | Mode::WUSR);
    // Its name in /proc leads to that very file, whatever has its own name by now.
    rustix::fs::chmod(format!("/proc/self/fd/{}", file.as_raw_fd()), mode)?;
    open_plain(path)
}

/// Whether an error in opening a file is about that file: it is not there, or it is none. Others are this
/// host's: too many open files, a disk that does not answer.
pub fn is_its_own(error: &io::Error) -> bool {
    use rustix::io::Errno;
    match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(errno) => {
            matches!(errno, Errno::NOENT | Errno::NOTDIR | Errno::ISDIR | Errno::LOOP | Errno::NXIO)
        }
        // No error of the system: `open_plain` found no ordinary file. The agent itself sees to space, too.
        None => error.kind() != io::ErrorKind::StorageFull,
    }
}

/// All of a file that is no longer than `max`.
pub fn whole(path: &Path, max: u64) -> io::Result<Vec<u8>> {
    let bytes = head(path, max.saturating_add(1))?;
    if bytes.len() as u64 > max { Err(io::ErrorKind::FileTooLarge.into()) } else { Ok(bytes) }
}

/// MD5 in lower-case hexadecimal, and the size.
pub fn md5_of(path: &Path) -> io::Result<(String, Bytes)> {
    signature::md5_of(open_own(path)?)
}

/// At most the first `max` bytes.
pub fn head(path: &Path, max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open_plain(path)?.take(max).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// At most the last `max` bytes.
pub fn tail(path: &Path, max: u64) -> io::Result<Vec<u8>> {
    let mut file = open_plain(path)?;
    let size = file.metadata()?.len();
    file.seek(SeekFrom::Start(size.saturating_sub(max)))?;
    let mut bytes = Vec::new();
    file.take(max).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn the_md5_is_that_of_the_content() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        fs::write(&path, "abc").unwrap();
        assert_eq!(md5_of(&path).unwrap(), ("900150983cd24fb0d6963f7d28e17f72".to_owned(), Bytes(3)));
    }

    #[test]
    fn a_link_is_never_followed() {
        let dir = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("/etc/passwd", dir.path().join("output")).unwrap();
        assert!(md5_of(&dir.path().join("output")).is_err());
        assert!(tail(&dir.path().join("output"), 10).is_err());
    }

    #[test]
    fn a_file_that_has_grown_is_not_read_at_all() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        fs::write(&path, "0123456789").unwrap();
        assert_eq!(whole(&path, 10).unwrap(), b"0123456789");
        assert!(whole(&path, 9).is_err());
    }

    #[test]
    fn a_tail_is_the_end_and_a_head_the_beginning() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        fs::write(&path, "0123456789").unwrap();
        assert_eq!(tail(&path, 3).unwrap(), b"789");
        assert_eq!(tail(&path, 30).unwrap(), b"0123456789");
        assert_eq!(head(&path, 3).unwrap(), b"012");
        assert_eq!(size_below(dir.path()), Bytes(10));
    }
}
