//! A process that finds directories of its own under some names of the system's (R6.10).
//!
//! It has a namespace of mounts to itself, and mounts them there; for all others these names lead to what
//! they led to before. Who is not root may do that in a namespace of users alone, where the process stays
//! the user that it is. So may root that has no right to mount anything, once it has become another user.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{CWD, Mode, OFlags, open};
use rustix::io::Errno;
use rustix::mount::{
    MountFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags, mount, mount_change, move_mount,
    open_tree,
};
use rustix::thread::{UnshareFlags, unshare_unsafe};

use crate::owner::{JobUser, Owner};

use super::confined::become_user;

/// What a process finds under names of the system's. All that it takes is made before the fork.
#[derive(Clone, Debug)]
pub struct OwnPlaces {
    /// By what right it makes them.
    pub by: By,
    /// The directory that it finds at `shown_at`, seen from where it works. It can neither rename nor remove
    /// that, so what it writes there always lies there.
    pub shown: CString,
    /// Absolute names of directories that are there.
    pub shown_at: Vec<CString>,
    /// The absolute name of a directory that is there, where it finds memory (`tmpfs`), and the options of
    /// that memory.
    pub memory: Option<(CString, CString)>,
    /// Whether it finds in `/proc` only processes that it may look into.
    pub hides_processes: bool,
}

/// By what right a process makes places of its own.
#[derive(Clone, Debug)]
pub enum By {
    /// Root's: it needs no namespace of users.
    Root,
    /// That which it has in a namespace of users of its own. It is this user, and stays it.
    Itself(Owner),
    /// The same of a user that it becomes before, for good.
    Becoming(JobUser),
}

impl By {
    /// This process's own right.
    pub fn own() -> Self {
        if rustix::process::geteuid().is_root() { Self::Root } else { Self::Itself(Owner::own()) }
    }

    /// Whose the process is in a namespace of users. None where it needs no such namespace.
    fn user(&self) -> Option<Owner> {
        match self {
            Self::Root => None,
            Self::Itself(owner) => Some(*owner),
            Self::Becoming(user) => Some(user.owner),
        }
    }
}

/// What an attempt to make them ends with that went well, for then there is no program to be executed.
const MADE: Errno = Errno::CANCELED;

impl OwnPlaces {
    /// Whether a process that is given them becomes the user of its job by that, with all groups of the job.
    pub fn becomes_user(&self) -> bool {
        matches!(self.by, By::Becoming(_))
    }

    /// Makes them for the calling process, which has one thread. Async-signal-safe.
    fn enter(&self, maps: &Maps) -> io::Result<()> {
        if let By::Becoming(user) = &self.by {
            become_user(user)?;
        }
        let in_users = self.by.user().is_some();
        let users = if in_users { UnshareFlags::NEWUSER } else { UnshareFlags::empty() };
        // SAFETY: the memory and the descriptors of the process stay what they were; what namespaces it is
        // in, nothing else relies on.
        unsafe { unshare_unsafe(users | UnshareFlags::NEWNS)? };
        if self.becomes_user() {
            // Whoever becomes another user is closed to that one as well, so to itself in `/proc`. Nothing
            // else runs as this user now, or it could look into this copy of the agent (`slot::hand_over`).
            rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::Dumpable)?;
        }
        if in_users {
            maps.write()?;
        }
        // What is mounted here is not for others; what the owner of the machine mounts or unmounts still is
        // seen.
        mount_change(c"/", MountPropagationFlags::REC | MountPropagationFlags::DOWNSTREAM)?;
        // On itself first: what something is mounted on stays where it is.
        for place in std::iter::once(&self.shown).chain(&self.shown_at) {
            let flags = OpenTreeFlags::OPEN_TREE_CLONE
                | OpenTreeFlags::OPEN_TREE_CLOEXEC
                | OpenTreeFlags::AT_RECURSIVE
                | OpenTreeFlags::AT_SYMLINK_NOFOLLOW;
            let tree = open_tree(CWD, &*self.shown, flags)?;
            move_mount(&tree, c"", CWD, &**place, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)?;
        }
        let closed = MountFlags::NOSUID | MountFlags::NODEV;
        if let Some((place, options)) = &self.memory {
            mount(c"tmpfs", &**place, c"tmpfs", closed, &**options)?;
        }
        if self.hides_processes {
            // By this word of the option, for kernels that know its number alone (before Linux 5.8) hide
            // processes from all of the system by it.
            mount(c"proc", c"/proc", c"proc", closed | MountFlags::NOEXEC, c"hidepid=invisible")?;
        }
        Ok(())
    }

    /// Makes them for a process that ends right after, as one that `command` would start, to see whether
    /// that can be done.
    ///
    /// # Errors
    /// The system's, where it cannot.
    pub fn try_out(self, mut command: Command) -> io::Result<()> {
        let maps = Maps::of(self.by.user());
        // SAFETY: the closure runs between fork and exec. It makes system calls and nothing else: what they
        // need was made before and is owned by the closure.
        unsafe {
            command.pre_exec(move || self.enter(&maps).and_then(|()| Err(MADE.into())));
        }
        match command.spawn() {
            Err(error) if error.raw_os_error() == Some(MADE.raw_os_error()) => Ok(()),
            Err(error) => Err(error),
            Ok(mut child) => child.wait().map(drop),
        }
    }

    /// Has a process that `command` starts have them. To be called before what lowers its urgency, for all of
    /// the system waits while something is mounted, and after what says where it works. Where they cannot be
    /// made, the process is not started, and what is returned says why.
    ///
    /// # Errors
    /// The system has no more descriptors.
    pub fn give(self, command: &mut Command) -> io::Result<Placing> {
        let maps = Maps::of(self.by.user());
        let said = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let says = said.as_fd().as_raw_fd();
        // SAFETY: as above. The descriptor is the caller's, who holds it open across the spawn.
        unsafe {
            command.pre_exec(move || {
                self.enter(&maps).inspect_err(|error| {
                    let number = error.raw_os_error().unwrap_or(libc::EIO).unsigned_abs();
                    let said = u64::from(number).to_ne_bytes();
                    let _ = rustix::io::write(BorrowedFd::borrow_raw(says), &said);
                })
            });
        }
        Ok(Placing(said))
    }
}

/// Tells how a process fared that was to be given places of its own.
#[derive(Debug)]
pub struct Placing(OwnedFd);

impl Placing {
    /// Why it has none. None if it has them.
    pub fn failure(&self) -> Option<io::Error> {
        let mut number = [0; 8];
        let len = rustix::io::read(&self.0, &mut number).ok()?;
        let number = (len == number.len()).then(|| u64::from_ne_bytes(number))?;
        Some(io::Error::from_raw_os_error(i32::try_from(number).ok()?))
    }
}

/// How a process says in a namespace of users who it is.
#[derive(Debug)]
struct Maps(Option<[CString; 2]>);

impl Maps {
    fn of(user: Option<Owner>) -> Self {
        let map = |number: u32| CString::new(format!("{number} {number} 1")).unwrap_or_default();
        Self(user.map(|user| [map(user.uid.as_raw()), map(user.gid.as_raw())]))
    }

    /// Async-signal-safe.
    fn write(&self) -> io::Result<()> {
        let Some([user, group]) = &self.0 else { return Ok(()) };
        said(c"/proc/self/uid_map", user)?;
        // Linux takes no group without that from whoever is not root.
        said(c"/proc/self/setgroups", c"deny")?;
        said(c"/proc/self/gid_map", group)
    }
}

/// Async-signal-safe.
fn said(path: &CStr, text: &CStr) -> io::Result<()> {
    let file = open(path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
    let written = rustix::io::write(&file, text.to_bytes())?;
    if written == text.to_bytes().len() { Ok(()) } else { Err(Errno::IO.into()) }
}
