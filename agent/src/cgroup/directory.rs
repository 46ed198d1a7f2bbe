//! The directory of a group, held open, and what is done in it although a job may close it by its modes.

use std::ffi::{CStr, CString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Instant;

use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Mode, OFlags, chmodat, fchmod, fstat, mkdirat, open, openat, statat,
    unlinkat,
};
use rustix::io::Errno;
use rustix::path::Arg;

/// The mode of a group that is made here. No other user comes to what is below it, whatever modes that has: a
/// job may change them, and who may write there kills and stops all that is in the group.
const OWN: Mode = Mode::RWXU;
/// The mode of a group's file that was closed.
pub const FILE: Mode = Mode::from_raw_mode(0o644);
/// So often modes are put right for one call: a job may close them again and again meanwhile, and nearly
/// always wins, but not for so long. It takes some 50 ms.
pub const TRIES: u32 = 10_000;
/// So often it is tried again where the modes are right: then something else is in the way, if not somebody
/// who has put them right just before.
const SEEN_RIGHT: u32 = 16;
/// What nobody but its user may do in a group that was found, and with its files.
const WRITTEN: Mode = Mode::WGRP.union(Mode::WOTH);

/// A group's directory.
#[derive(Debug)]
pub(super) struct Directory(OwnedFd);

impl Directory {
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let open_up = || change_at(CWD, path, opened);
        Ok(Self(insisting(|| open(path, flags(), Mode::empty()), open_up)?))
    }

    /// Opens one below it, or the one above it (`..`).
    pub(super) fn child(&self, name: impl Arg + Copy) -> io::Result<Self> {
        let opened = self.at(name, |dir| openat(dir, name, flags(), Mode::empty()), opened);
        Ok(Self(opened?))
    }

    pub(super) fn make(&self, name: &str) -> io::Result<Self> {
        self.anyway(|dir| mkdirat(dir, name, OWN))?;
        // One that cannot be opened is of no use, and would stay.
        self.child(name).inspect_err(|_| drop(self.remove(name)))
    }

    /// Removes one that has neither a process nor a group below it, if it is there.
    pub(super) fn remove(&self, name: impl Arg + Copy) -> io::Result<()> {
        match self.anyway(|dir| unlinkat(dir, name, AtFlags::REMOVEDIR)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed,
        }
    }

    /// The names of those below it.
    ///
    /// # Errors
    /// `TimedOut`: they are not all read by then.
    pub(super) fn names(&self, by: Instant) -> io::Result<Vec<CString>> {
        let listed = self.anyway(|dir| openat(dir, ".", flags(), Mode::empty()))?;
        let mut names = Vec::new();
        for entry in Dir::new(listed)? {
            let entry = entry?;
            let name = entry.file_name();
            if entry.file_type() == FileType::Directory && ![c".", c".."].contains(&name) {
                names.push(name.to_owned());
            }
            in_time(by)?;
        }
        Ok(names)
    }

    pub(super) fn file(&self, name: &str, writes: bool) -> io::Result<File> {
        let how = if writes { OFlags::WRONLY } else { OFlags::RDONLY };
        let how = how | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let opened = self.at(name, |dir| openat(dir, name, how, Mode::empty()), |mode| mode.union(FILE));
        Ok(opened?.into())
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.anyway(|dir| mode_at(dir, name)).is_ok()
    }

    /// The names of its files that are this user's, so that a job may change their modes.
    pub(super) fn own_files(&self) -> io::Result<Vec<CString>> {
        let me = rustix::process::geteuid().as_raw();
        let listed = self.anyway(|dir| openat(dir, ".", flags(), Mode::empty()))?;
        let mut names = Vec::new();
        for entry in Dir::new(listed)? {
            let entry = entry?;
            let name = entry.file_name();
            let is_own = || statat(&self.0, name, AtFlags::SYMLINK_NOFOLLOW).is_ok_and(|it| it.st_uid == me);
            if entry.file_type() == FileType::RegularFile && is_own() {
                names.push(name.to_owned());
            }
        }
        Ok(names)
    }

    /// Takes from all but its user what changes something in it. Whether they had that.
    pub(super) fn close(&self) -> bool {
        let me = rustix::process::geteuid().as_raw();
        let Ok(seen) = fstat(&self.0) else { return false };
        let mode = Mode::from_raw_mode(seen.st_mode);
        seen.st_uid == me && opened(mode) != mode && fchmod(&self.0, opened(mode)).is_ok()
    }

    /// Takes from all but its user what changes one of its files. Whether they had that.
    pub(super) fn close_file(&self, name: &CStr) -> bool {
        self.anyway(|dir| change_at(dir, name, |mode| mode.difference(WRITTEN))).unwrap_or(false)
    }

    /// Closes a group below it, which was made here, to all but its user. Whether it was open.
    pub(super) fn close_child(&self, name: &str) -> bool {
        self.anyway(|dir| change_at(dir, name, |_| OWN)).unwrap_or(false)
    }

    /// Does something with what is in it. Where it was closed, or what is meant, that is opened first, with
    /// the mode that follows from the one that it has.
    fn at<T>(
        &self,
        name: impl Arg + Copy,
        act: impl Fn(&OwnedFd) -> Result<T, Errno>,
        mode: impl Fn(Mode) -> Mode,
    ) -> io::Result<T> {
        let open_up = || {
            let (dir, it) = (open_up(&self.0), change_at(&self.0, name, &mode));
            Ok(dir.unwrap_or(false) | it.unwrap_or(false))
        };
        Ok(insisting(|| act(&self.0), open_up)?)
    }

    /// Does something in it. Where it was closed to its owner, it is opened first.
    fn anyway<T>(&self, act: impl Fn(&OwnedFd) -> Result<T, Errno>) -> io::Result<T> {
        Ok(insisting(|| act(&self.0), || open_up(&self.0))?)
    }
}

impl AsFd for Directory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// The mode with which a group's directory is its user's again, and nobody else's to change. Safe between
/// fork and exec.
pub fn opened(mode: Mode) -> Mode {
    mode.union(OWN).difference(WRITTEN)
}

/// Whether there is still time.
///
/// # Errors
/// `TimedOut`: there is not.
pub(super) fn in_time(by: Instant) -> io::Result<()> {
    if Instant::now() < by { Ok(()) } else { Err(io::ErrorKind::TimedOut.into()) }
}

/// Does something again and again, as long as modes are in its way and can be changed: `open_up` says whether
/// they were not right.
fn insisting<T>(
    act: impl Fn() -> Result<T, Errno>,
    open_up: impl Fn() -> Result<bool, Errno>,
) -> Result<T, Errno> {
    let (mut done, mut seen_right) = (act(), 0);
    for _ in 0..TRIES {
        if !matches!(done, Err(Errno::ACCESS)) || seen_right > SEEN_RIGHT {
            break;
        }
        match open_up() {
            Ok(was_closed) => seen_right += u32::from(!was_closed),
            Err(_) => break,
        }
        done = act();
    }
    done
}

fn open_up(dir: &OwnedFd) -> Result<bool, Errno> {
    let mode = Mode::from_raw_mode(fstat(dir)?.st_mode);
    let is_closed = opened(mode) != mode;
    if is_closed {
        fchmod(dir, opened(mode))?;
    }
    Ok(is_closed)
}

/// Has something have the mode that follows from the one that it has. Whether that is another one.
fn change_at(
    dir: impl AsFd + Copy,
    name: impl Arg + Copy,
    right: impl Fn(Mode) -> Mode,
) -> Result<bool, Errno> {
    let mode = mode_at(dir, name)?;
    let is_wrong = right(mode) != mode;
    if is_wrong {
        chmodat(dir, name, right(mode), AtFlags::empty())?;
    }
    Ok(is_wrong)
}

fn mode_at(dir: impl AsFd, name: impl Arg) -> Result<Mode, Errno> {
    Ok(Mode::from_raw_mode(statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)?.st_mode))
}

fn flags() -> OFlags {
    OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC
}
