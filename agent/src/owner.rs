//! Whose files are below root's agent, and how they come to another owner (R6.10).
//!
//! Model: by descriptor, one name at a time, and no link is followed. A file that has several names is
//! nobody's to give: another of them may lie anywhere.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, Stat, Uid, chownat, fstat, openat};
use rustix::io::Errno;

/// The first of all numbers.
pub(crate) const FIRST: u32 = 2_010_000_000;
/// How many there are in a block.
pub(crate) const BLOCK: u32 = 16_384;
/// How many blocks there are.
pub(crate) const BLOCKS: u32 = 8_192;

/// Whether a number is that of a user that jobs run as: of root's agents alone. Below another's it may be a
/// person's, and the agent's own.
pub fn is_jobs(number: u32) -> bool {
    (FIRST..FIRST + BLOCK * BLOCKS).contains(&number) && rustix::process::geteuid().is_root()
}

/// Whether a number is that of the user of a slot, of whatever agent.
pub fn is_of_slot(number: u32, slot: u32) -> bool {
    is_jobs(number) && slot.checked_add(1) == Some((number - FIRST) % BLOCK)
}

/// The first number of the block that a number is in.
pub(crate) const fn block_of(number: u32) -> u32 {
    number - (number - FIRST) % BLOCK
}

/// Whose a file is: a user and a group of the same number, or the agent's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    pub(crate) uid: Uid,
    pub(crate) gid: Gid,
}

impl Owner {
    /// This process's own.
    pub fn own() -> Self {
        Self { uid: rustix::process::geteuid(), gid: rustix::process::getegid() }
    }

    pub(crate) fn numbered(number: u32) -> Self {
        Self { uid: Uid::from_raw(number), gid: Gid::from_raw(number) }
    }

    /// The job's whose a file or directory is; none where it is no job's.
    pub(crate) fn jobs(data: &Stat) -> Option<Self> {
        is_jobs(data.st_uid).then(|| Self::numbered(data.st_uid))
    }

    /// Sees to it that what is open is its.
    ///
    /// # Errors
    /// It is another's: a volume knows no users, or has an owner of its own for all.
    pub(crate) fn check(self, file: impl AsFd) -> io::Result<()> {
        let data = fstat(file.as_fd())?;
        // The agent's own may have any group.
        let is_group = !is_jobs(self.gid.as_raw()) || data.st_gid == self.gid.as_raw();
        match data.st_uid == self.uid.as_raw() && is_group {
            true => Ok(()),
            false => Err(io::Error::other(format!(
                "it was given to the user {}, and is the user {}'s: its volume does not keep whose files are",
                self.uid.as_raw(),
                data.st_uid
            ))),
        }
    }

    /// Gives it a file or directory that is open, in whatever way.
    pub(crate) fn give(self, file: impl AsFd) -> Result<(), Errno> {
        chownat(file.as_fd(), c"", Some(self.uid), Some(self.gid), AtFlags::EMPTY_PATH)
    }
}

/// A user of a job, with the groups that it has beside its own.
#[derive(Clone, Debug)]
pub struct JobUser {
    /// Whose its files are.
    pub owner: Owner,
    /// By what it reaches what is not its own.
    pub groups: Vec<Gid>,
}

/// From whom and to whom what lies in a slot is given.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Handover {
    pub(crate) from: Uid,
    pub(crate) to: Owner,
}

/// Gives a file of the agent's that is open to a user, if it has no other name.
pub(crate) fn give_made_file(file: &OwnedFd, to: Owner) -> Result<(), Errno> {
    let data = fstat(file.as_fd())?;
    let is_file = FileType::from_raw_mode(data.st_mode) == FileType::RegularFile;
    let is_made = is_file && data.st_uid == Owner::own().uid.as_raw() && data.st_nlink == 1;
    if is_made { to.give(file) } else { Ok(()) }
}

/// Gives what the agent has just made, a directory that is open, to a user. What is not the agent's, or could
/// have been moved there by others, is not what it has made: that stays as it is.
pub(crate) fn give_made(dir: &OwnedFd, to: Owner) -> Result<(), Errno> {
    let data = fstat(dir.as_fd())?;
    // Whoever moves a directory to another one writes to it.
    let is_made = data.st_uid == Owner::own().uid.as_raw() && data.st_mode & 0o022 == 0;
    if is_made { to.give(dir) } else { Ok(()) }
}

/// Gives what is called `name` in the directory `parent` from one user to another, if it is that one's, and
/// a directory, or an ordinary file, a link or a pipe that has no other name. False where other names keep it
/// from that. What is gone by now needs nothing.
pub(crate) fn give_at(
    parent: BorrowedFd<'_>,
    name: &CStr,
    Handover { from, to }: Handover,
) -> Result<bool, Errno> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = match openat(parent, name, flags, Mode::empty()) {
        Err(Errno::NOENT) => return Ok(true),
        file => file?,
    };
    let data = fstat(&file)?;
    if data.st_uid != from.as_raw() {
        return Ok(true);
    }
    let is_givable = match FileType::from_raw_mode(data.st_mode) {
        FileType::Directory => !crate::tree::is_mounted(parent, name),
        FileType::RegularFile | FileType::Symlink | FileType::Fifo | FileType::Socket => {
            if data.st_nlink > 1 {
                return Ok(false);
            }
            true
        }
        _ => false,
    };
    if is_givable {
        to.give(&file)?;
    }
    Ok(true)
}

/// The mode that a file has when it was taken from a job.
pub(crate) fn taken_mode(data: &Stat) -> Mode {
    Mode::from_raw_mode(data.st_mode & 0o755 | 0o600)
}

/// The name of an open file that leads to that very one, also where it was opened for nothing.
pub(crate) fn in_proc(file: BorrowedFd<'_>) -> String {
    format!("/proc/self/fd/{}", file.as_raw_fd())
}
