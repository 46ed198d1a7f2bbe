//! How a process that was just forked enters a control group, and whether one can.

use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{AtFlags, Mode, chmodat, fchmod, fstat};
use rustix::io::Errno;

use crate::cgroup::{FILE, TRIES, opened};

/// Has a process that `command` starts enter the control group that `door` is of, its open `cgroup.procs`.
/// To be called first, so that all of the process counts there. Where it fails, the process is not started.
pub fn enter(command: &mut Command, door: BorrowedFd<'_>) {
    let door = door.as_raw_fd();
    // SAFETY: the closure runs between fork and exec and makes one system call. The descriptor is the
    // caller's, who holds it open across the spawn; were it closed, the call would fail, and with it the
    // spawn.
    unsafe {
        command.pre_exec(move || {
            // The kernel takes 0 for whoever writes it.
            rustix::io::write(BorrowedFd::borrow_raw(door), b"0").map(drop).map_err(io::Error::from)
        });
    }
}

/// Tells how a process that was to enter a group fared. It lies in no memory of the parent's, for it is the
/// child that finds out.
#[derive(Debug)]
pub struct Entry(OwnedFd);

impl Entry {
    /// As [`enter`], but what is returned says why a process could not, and one that need not (`must`) is
    /// started all the same, where its parent is.
    ///
    /// The kernel lets a process go from one group to another who may write `cgroup.procs` of the group that
    /// is above both, by its mode at that time. That is `above`, a directory. It belongs to the user that
    /// jobs run as, and nothing keeps them from changing modes: so it is put right where it is in the way.
    ///
    /// # Errors
    /// The system has no more descriptors.
    pub fn of(
        command: &mut Command,
        door: BorrowedFd<'_>,
        above: BorrowedFd<'_>,
        must: bool,
    ) -> io::Result<Self> {
        let said = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let [door, above, says] = [door, above, said.as_fd()].map(|fd| fd.as_raw_fd());
        // SAFETY: the closure runs between fork and exec. It makes system calls and nothing else, with names
        // that live for ever. The descriptors are the caller's, who holds them open across the spawn.
        unsafe {
            command.pre_exec(move || {
                let [door, above, says] = [door, above, says].map(|fd| BorrowedFd::borrow_raw(fd));
                let Err(error) = go(door, above) else { return Ok(()) };
                let number = u64::from(error.raw_os_error().unsigned_abs());
                let _ = rustix::io::write(says, &number.to_ne_bytes());
                if must { Err(error.into()) } else { Ok(()) }
            });
        }
        Ok(Self(said))
    }

    /// Once the process runs, or was not started: why it is not in its group. None if it is.
    pub fn failure(&self) -> Option<io::Error> {
        let mut number = [0; 8];
        let len = rustix::io::read(&self.0, &mut number).ok()?;
        let number = (len == number.len()).then(|| u64::from_ne_bytes(number))?;
        Some(io::Error::from_raw_os_error(i32::try_from(number).ok()?))
    }
}

/// What an attempt ends with that went well, for then there is no program to be executed.
const DONE: Errno = Errno::CANCELED;

/// Has a process that ends right after enter a group, as [`Entry::of`] says, to see whether one can.
///
/// # Errors
/// The system's, where it cannot.
pub fn try_entering(door: BorrowedFd<'_>, above: BorrowedFd<'_>) -> io::Result<()> {
    // Never executed: the attempt ends before.
    let mut command = Command::new("/");
    let entry = Entry::of(&mut command, door, above, true)?;
    // SAFETY: the closure runs between fork and exec, and does nothing.
    unsafe { command.pre_exec(|| Err(DONE.into())) };
    match command.spawn() {
        Err(error) if error.raw_os_error() == Some(DONE.raw_os_error()) => Ok(()),
        Err(error) => Err(entry.failure().unwrap_or(error)),
        Ok(mut child) => child.wait().map(drop),
    }
}

/// Async-signal-safe.
fn go(door: BorrowedFd<'_>, above: BorrowedFd<'_>) -> Result<(), Errno> {
    let mut tries = 0;
    loop {
        // The kernel takes 0 for whoever writes it.
        match rustix::io::write(door, b"0") {
            Err(Errno::ACCESS) if tries < TRIES => {
                let mode = fstat(above).map(|seen| Mode::from_raw_mode(seen.st_mode));
                let dir = mode.and_then(|mode| fchmod(above, opened(mode)));
                let file = chmodat(above, c"cgroup.procs", FILE, AtFlags::empty());
                // What is not its user's to open is not closed by one who was that user.
                if dir.or(file).is_err() {
                    return Err(Errno::ACCESS);
                }
                tries += 1;
            }
            done => return done.map(drop),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    #[test]
    fn r6_10_a_process_that_has_to_be_in_a_group_and_cannot_enter_it_is_not_executed() {
        let dir = tempfile::tempdir().unwrap();
        let (above, mark) = (File::open(dir.path()).unwrap(), dir.path().join("executed"));
        // Nobody can write by that.
        std::fs::write(dir.path().join("procs"), "").unwrap();
        let door = File::open(dir.path().join("procs")).unwrap();
        let run = |must| {
            let mut command = Command::new("touch");
            command.arg(&mark);
            let entry = Entry::of(&mut command, door.as_fd(), above.as_fd(), must).unwrap();
            let ended = command.spawn().and_then(|mut child| child.wait());
            (ended.is_ok_and(|status| status.success()), entry.failure().and_then(|why| why.raw_os_error()))
        };
        let why = Some(Errno::BADF.raw_os_error());
        assert_eq!((run(true), mark.exists()), ((false, why), false));
        assert_eq!((run(false), mark.exists()), ((true, why), true));
        assert_eq!(try_entering(door.as_fd(), above.as_fd()).unwrap_err().raw_os_error(), why);
        let open = File::create(dir.path().join("procs")).unwrap();
        try_entering(open.as_fd(), above.as_fd()).unwrap();
        assert_eq!(std::fs::read_to_string(dir.path().join("procs")).unwrap(), "0");
    }
}
