//! Trees of files that somebody else made: opened and removed, however deep, wide or closed they are. What
//! they take is measured in [`crate::walk`].
//!
//! Model: everything goes by descriptors and single names, never by a path through the tree, so that no link
//! is followed and no depth is too deep. No call recurses, and each holds a handful of descriptors at most.
//!
//! Removing flattens: the subdirectories of a subdirectory are lifted to the top until there are none, so
//! the tree itself is the list of what there is to do, and who is interrupted goes on where he was.
//!
//! Directories that their owner closed to himself are opened again. What belongs to another user, or is
//! mounted there, stays, and is an error.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Mode, OFlags, Stat, StatxAttributes, StatxFlags, chmod, fchmod, fstat, open,
    openat, renameat, statat, statx, unlinkat,
};
use rustix::io::Errno;

/// Entries between two looks at the clock.
const STRIDE: u32 = 64;

/// Removes a file or a directory with all that is in it, and follows no link; what is not there is no error.
/// There is no end to it while somebody goes on creating files there: where that may be and others wait, see
/// [`crate::trash`].
///
/// # Errors
/// The system's, for the first thing that could not be removed; everything else is gone then.
pub fn remove(path: &Path) -> io::Result<()> {
    remove_until(path, None).map(drop)
}

/// The same, but no longer than until `end`. False when something is left to be done.
///
/// # Errors
/// As for [`remove`].
pub fn remove_until(path: &Path, end: Option<Instant>) -> io::Result<bool> {
    let Some(name) = path.file_name() else { return Err(io::ErrorKind::InvalidInput.into()) };
    let name = CString::new(name.as_bytes())?;
    let parent = match path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        Some(parent) => match open(parent, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
        {
            Err(Errno::NOENT | Errno::NOTDIR) => return Ok(true),
            parent => Some(parent?),
        },
        None => None,
    };
    let parent = parent.as_ref().map_or(CWD, AsFd::as_fd);
    Ok(Removal::new(end).run(parent, &name)?)
}

/// Removes what is called `name` in the directory `parent`, but no longer than until `end`. False when
/// something is left to be done.
///
/// # Errors
/// As for [`remove`].
pub fn remove_at_until(parent: BorrowedFd<'_>, name: &CStr, end: Instant) -> io::Result<bool> {
    Ok(Removal::new(Some(end)).run(parent, name)?)
}

/// One call's work.
struct Removal {
    end: Option<Instant>,
    /// Makes the names under which directories are lifted its own.
    stamp: u128,
    lifted: u64,
    stride: u32,
    removed: bool,
    trouble: Option<Errno>,
}

/// Time is up.
struct Late;

impl Removal {
    fn new(end: Option<Instant>) -> Self {
        let stamp = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |age| age.as_nanos());
        Self { end, stamp, lifted: 0, stride: 0, removed: false, trouble: None }
    }

    fn run(&mut self, parent: BorrowedFd<'_>, name: &CStr) -> Result<bool, Errno> {
        match unlinkat(parent, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => return Ok(true),
            // What unlinking a directory gives, and a directory that may not be written.
            Err(Errno::ISDIR | Errno::PERM | Errno::ACCESS) => {}
            Err(errno) => return Err(errno),
        }
        if !is_directory(&statat(parent, name, AtFlags::SYMLINK_NOFOLLOW)?) {
            return unlinkat(parent, name, AtFlags::empty()).map(|()| true);
        }
        if self.rmdir(parent, name) {
            return Ok(true);
        }
        if is_mounted(parent, name) {
            return Err(Errno::BUSY);
        }
        let top = open_directory(parent, name)?;
        let device = fstat(&top)?.st_dev;
        loop {
            self.removed = false;
            self.trouble = None;
            match self.pass(top.as_fd(), device) {
                Err(Late) => return Ok(false),
                Ok(true) => {}
                // Nothing was found any more, or nothing could be done about it.
                Ok(false) => break,
            }
        }
        match unlinkat(parent, name, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => Ok(true),
            Err(errno) => Err(self.trouble.unwrap_or(errno)),
        }
    }

    /// Removes what is in `top`; subdirectories that are not empty leave their own behind in it. True if
    /// another pass can do more.
    fn pass(&mut self, top: BorrowedFd<'_>, device: u64) -> Result<bool, Late> {
        self.each(top, |removal, entry| removal.remove_entry(top, entry, device))?;
        Ok(self.removed)
    }

    /// Calls `act` for every entry of a directory.
    fn each(
        &mut self,
        dir: BorrowedFd<'_>,
        mut act: impl FnMut(&mut Self, &CStr) -> Result<(), Late>,
    ) -> Result<(), Late> {
        let mut entries = match Dir::read_from(dir) {
            Ok(entries) => entries,
            Err(errno) => {
                self.trouble.get_or_insert(errno);
                return Ok(());
            }
        };
        while let Some(entry) = entries.read() {
            let Ok(entry) = entry else { break };
            self.look_at_the_clock()?;
            if !is_dots(entry.file_name()) {
                act(self, entry.file_name())?;
            }
        }
        Ok(())
    }

    fn remove_entry(&mut self, top: BorrowedFd<'_>, name: &CStr, device: u64) -> Result<(), Late> {
        if self.unlink(top, name) || self.rmdir(top, name) {
            return Ok(());
        }
        if is_mounted(top, name) {
            return self.note(Errno::XDEV);
        }
        let sub = match open_directory(top, name) {
            Ok(sub) if fstat(&sub).is_ok_and(|data| data.st_dev == device) => sub,
            Ok(_) => return self.note(Errno::XDEV),
            Err(errno) => return self.note(errno),
        };
        self.each(sub.as_fd(), |removal, entry| {
            if !(removal.unlink(sub.as_fd(), entry) || removal.rmdir(sub.as_fd(), entry)) {
                removal.lift(sub.as_fd(), entry, top);
            }
            Ok(())
        })?;
        self.rmdir(top, name);
        Ok(())
    }

    /// Moves a directory to the top.
    fn lift(&mut self, from: BorrowedFd<'_>, name: &CStr, top: BorrowedFd<'_>) {
        // Who moves a directory writes into it: its `..` changes.
        let opened = open_up(from, name);
        loop {
            self.lifted += 1;
            let lifted = format!(".{:x}.{}", self.stamp, self.lifted);
            match renameat(from, name, top, lifted.as_str()) {
                Ok(()) => return self.removed = true,
                // The name is taken, which only somebody who wants to be in the way could bring about.
                Err(Errno::NOTEMPTY | Errno::EXIST | Errno::NOTDIR) => {}
                Err(errno) => {
                    self.trouble.get_or_insert(opened.err().unwrap_or(errno));
                    return;
                }
            }
        }
    }

    fn unlink(&mut self, dir: BorrowedFd<'_>, name: &CStr) -> bool {
        match unlinkat(dir, name, AtFlags::empty()) {
            Ok(()) => self.removed = true,
            Err(Errno::NOENT) => {}
            Err(Errno::ISDIR | Errno::PERM) => return false,
            Err(errno) => {
                self.trouble.get_or_insert(errno);
                return false;
            }
        }
        true
    }

    fn rmdir(&mut self, dir: BorrowedFd<'_>, name: &CStr) -> bool {
        let gone = unlinkat(dir, name, AtFlags::REMOVEDIR);
        self.removed |= gone.is_ok();
        matches!(gone, Ok(()) | Err(Errno::NOENT))
    }

    fn note(&mut self, errno: Errno) -> Result<(), Late> {
        self.trouble.get_or_insert(errno);
        Ok(())
    }

    fn look_at_the_clock(&mut self) -> Result<(), Late> {
        self.stride += 1;
        let late = || self.end.is_some_and(|end| Instant::now() >= end);
        if self.stride.is_multiple_of(STRIDE) && late() { Err(Late) } else { Ok(()) }
    }
}

/// How directories are opened.
pub const LIST: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::NONBLOCK)
    .union(OFlags::CLOEXEC);

/// Opens a directory for all that can be done with it. One that is closed to its owner is opened up first.
pub fn open_directory(parent: BorrowedFd<'_>, name: &CStr) -> Result<OwnedFd, Errno> {
    let dir = match openat(parent, name, LIST, Mode::empty()) {
        Err(Errno::ACCESS) => {
            open_up(parent, name)?;
            openat(parent, name, LIST, Mode::empty())?
        }
        opened => opened?,
    };
    let mode = Mode::from_raw_mode(fstat(&dir)?.st_mode);
    if !mode.contains(Mode::RWXU) {
        // Where it is somebody else's, what cannot be done says so by itself.
        let _ = fchmod(&dir, mode.union(Mode::RWXU));
    }
    Ok(dir)
}

/// Opens a directory to list what is in it. One that is closed to its owner is opened up first if `opens`
/// says so, unless it is somebody's who mounted it there.
pub fn list_directory(parent: BorrowedFd<'_>, name: &CStr, opens: bool) -> Result<OwnedFd, Errno> {
    let dir = openat(parent, name, LIST, Mode::empty());
    let is_open = |dir: &OwnedFd| {
        let reads = Mode::RUSR.union(Mode::XUSR);
        fstat(dir).is_ok_and(|data| Mode::from_raw_mode(data.st_mode).contains(reads))
    };
    if !opens || dir.as_ref().is_ok_and(is_open) || is_mounted(parent, name) {
        return dir;
    }
    open_directory(parent, name)
}

/// Gives the owner of a directory all rights to it.
pub fn open_up<P: rustix::path::Arg>(parent: BorrowedFd<'_>, name: P) -> Result<(), Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let dir = openat(parent, name, flags, Mode::empty())?;
    let mode = Mode::from_raw_mode(fstat(&dir)?.st_mode);
    if mode.contains(Mode::RWXU) {
        return Ok(());
    }
    // A descriptor of a directory that may not be read cannot change its mode; its name in /proc can, and
    // leads to that very directory.
    chmod(format!("/proc/self/fd/{}", dir.as_raw_fd()), mode.union(Mode::RWXU))
}

/// Whether something is mounted at `name` in the directory `parent`: another volume, or a directory from
/// elsewhere on this one, which a kernel before 5.8 does not say.
pub fn is_mounted(parent: BorrowedFd<'_>, name: &CStr) -> bool {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
    let is_root = statx(parent, name, flags, StatxFlags::TYPE)
        .is_ok_and(|data| data.stx_attributes.contains(StatxAttributes::MOUNT_ROOT));
    let device = |name: &CStr| statat(parent, name, flags).map(|data| data.st_dev);
    is_root || matches!((device(c"."), device(name)), (Ok(here), Ok(there)) if here != there)
}

fn is_directory(data: &Stat) -> bool {
    FileType::from_raw_mode(data.st_mode) == FileType::Directory
}

fn is_dots(name: &CStr) -> bool {
    matches!(name.to_bytes(), b"." | b"..")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::walk::size_below;
    use fallow_domain::Bytes;
    use std::fs;
    use std::time::Duration;

    /// Nests directories without ever having a path for them.
    fn nest(dir: &Path, depth: usize) {
        let mut at = open(dir, LIST, Mode::empty()).unwrap();
        for _ in 0..depth {
            rustix::fs::mkdirat(&at, c"d", Mode::RWXU).unwrap();
            at = openat(&at, c"d", LIST, Mode::empty()).unwrap();
        }
        let file = openat(&at, c"f", OFlags::CREATE | OFlags::WRONLY, Mode::RWXU).unwrap();
        rustix::io::write(file, &[0; 100]).unwrap();
    }

    #[test]
    fn no_depth_is_too_deep_to_be_measured_and_removed() {
        let dir = tempfile::tempdir().unwrap();
        let deep = dir.path().join("deep");
        fs::create_dir(&deep).unwrap();
        nest(&deep, 3_000);
        // On a thread with little stack: neither call may need more with depth.
        let work = move || {
            assert_eq!(size_below(&deep), Bytes(3_000 * 4096 + 100));
            remove(&deep).unwrap();
            assert!(!deep.exists());
        };
        std::thread::Builder::new().stack_size(128 * 1024).spawn(work).unwrap().join().unwrap();
    }

    #[test]
    fn a_removal_can_be_interrupted_and_goes_on() {
        let dir = tempfile::tempdir().unwrap();
        let deep = dir.path().join("deep");
        fs::create_dir(&deep).unwrap();
        nest(&deep, 2_000);
        let mut slices = 0;
        while !remove_until(&deep, Some(Instant::now() + Duration::from_millis(2))).unwrap() {
            slices += 1;
        }
        assert!(slices > 0 && !deep.exists());
    }

    #[test]
    fn a_wide_tree_is_measured_whole_and_links_lead_nowhere() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("outside"), [0; 5000]).unwrap();
        let tree = dir.path().join("tree");
        for number in 0..50 {
            let sub = tree.join(format!("{number}/a/b"));
            fs::create_dir_all(&sub).unwrap();
            fs::write(sub.join("f"), [0; 10]).unwrap();
            std::os::unix::fs::symlink("../../../../outside", sub.join("l")).unwrap();
            std::os::unix::fs::symlink("../..", sub.join("m")).unwrap();
        }
        let links = 50 * ("../../../../outside".len() + "../..".len()) as u64;
        assert_eq!(size_below(&tree), Bytes(50 * 10 + 150 * 4096 + links));
        remove(&tree).unwrap();
        assert!(!tree.exists() && dir.path().join("outside").exists());
    }

    #[test]
    fn what_is_not_there_is_removed_already_and_a_link_is_removed_itself() {
        let dir = tempfile::tempdir().unwrap();
        remove(&dir.path().join("a/b")).unwrap();
        fs::create_dir(dir.path().join("kept")).unwrap();
        std::os::unix::fs::symlink("kept", dir.path().join("link")).unwrap();
        remove(&dir.path().join("link")).unwrap();
        assert!(dir.path().join("kept").exists() && !dir.path().join("link").exists());
    }
}
