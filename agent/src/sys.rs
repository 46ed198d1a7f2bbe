//! The few calls of the system that no safe crate offers: the only unsafe code of the agent.
//!
//! - a process in a session of its own, at idle priority, without inherited descriptors;
//! - the priority of a session's automatic group, without which that of a process counts for nothing;
//! - `wait4`, which tells the CPU time of a process and of all that it waited for;
//! - the version of the C library;
//! - a process that works in an open directory and executes an open file;
//! - leases, by which nobody changes a file while it is looked at;
//! - System V memory shared with an old application, seen as the atomic bytes that `fallow_boinc` works on;
//! - a process without privileges, of another user, within rules for files and filters of system calls, and
//!   with directories of its own in place of the system's;
//! - a descriptor that the runtime waits for;
//! - limits of what a process may take, the number by which it is known, and its control group;
//! - what a connection holds that nobody has read, or that was not sent;
//! - OpenCL's library, which is loaded when it is asked for;
//! - giving back freed memory to the system, and code that is not run now;
//! - the end of a process, at once.
#![allow(unsafe_code)]

mod confined;
mod entry;
mod limits;
pub mod opencl;
mod own_code;
mod own_places;
mod sockets;

use std::ffi::{CString, OsStr};
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::AtomicU8;

use fallow_boinc::runtime::channel::{Channels, FILE_LEN};
use fallow_domain::Duration;
use rustix::process::Pid;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

pub use confined::{Filter, Means, Rules, as_user, confine, filter_calls, give_up_new_privileges};
pub use entry::{Entry, enter, try_entering};
pub use limits::{Limits, limit, lock_limit};
pub use own_code::{give_back_code, rests, sleeps, works};
pub use own_places::{By, OwnPlaces, Placing};
pub use sockets::{Held, held_by};

use crate::owner::Owner;

/// How much of the machine a process may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Urgency {
    /// Only what nobody else wants: nice 19, and `SCHED_IDLE` where the system allows it (BOINC's CPU jobs).
    Idle,
    /// Nice 10, ordinary class: applications that feed a coprocessor (BOINC: `process_priority_special`).
    Low,
    /// As its parent.
    Inherited,
}

impl Urgency {
    fn nice(self) -> Option<i32> {
        match self {
            Self::Idle => Some(19),
            Self::Low => Some(10),
            Self::Inherited => None,
        }
    }
}

/// Makes `command` start in a session of its own (so in a process group of its own too), with this urgency
/// and with no descriptor open but the first three. With `guard`, the new process tells the guard of itself
/// before it becomes the program, so that there is no instant at which nobody would know of it.
pub fn isolate(command: &mut Command, urgency: Urgency, guard: Option<BorrowedFd<'_>>) {
    let guard: Option<RawFd> = guard.map(|fd| fd.as_raw_fd());
    // SAFETY: the closure runs between fork and exec, where only async-signal-safe calls are allowed. All of
    // setsid, setpriority, sched_setscheduler, open, write, close, send, getpid and close_range are plain
    // system calls; nothing here allocates, locks or panics. The descriptor in `guard` is borrowed for the
    // call of `isolate` only, but the handle of the guard holds it open across the spawn; were it closed,
    // `send` would fail and nothing else.
    unsafe {
        command.pre_exec(move || {
            rustix::process::setsid().map_err(io::Error::from)?;
            lower(urgency);
            lower_own_group(urgency);
            if let Some(fd) = guard {
                announce(fd);
            }
            // CLOEXEC instead of closing: the standard library needs its pipe until the exec. Kernels before
            // 5.11 lack this; there the descriptors are closed by their own CLOEXEC flags, which Rust sets on
            // all.
            libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC);
            Ok(())
        });
    }
}

/// Ends this process at once, and runs nothing of what libraries have registered for the end.
pub fn exit_at_once(code: i32) -> ! {
    // SAFETY: `_exit` takes a number, never returns, and runs nothing of this process.
    unsafe { libc::_exit(code) }
}

/// Lowers the calling thread's priority for good. Failing is no reason not to compute.
pub fn lower(urgency: Urgency) {
    let Some(nice) = urgency.nice() else { return };
    let _ = rustix::process::setpriority_process(None, nice);
    if urgency == Urgency::Idle {
        // SAFETY: `param` lives through the call, pid 0 is the caller itself.
        unsafe {
            let param = libc::sched_param { sched_priority: 0 };
            libc::sched_setscheduler(0, libc::SCHED_IDLE, &raw const param);
        }
    }
}

/// Lowers the priority of the caller's automatic group, which it has for itself after setsid: see
/// [`lower_group`]. Async-signal-safe.
fn lower_own_group(urgency: Urgency) {
    use rustix::fs::{Mode, OFlags, open};
    let text: &[u8] = match urgency {
        Urgency::Idle => b"19",
        Urgency::Low => b"10",
        Urgency::Inherited => return,
    };
    if let Ok(file) = open(c"/proc/self/autogroup", OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty()) {
        let _ = rustix::io::write(&file, text);
    }
}

/// Lowers the priority of the automatic group ("autogroup", sched(7)) that a process is in. Where the kernel
/// has such groups, each session is one, and the CPU is shared among groups first and by the processes' own
/// priority only within a group: an idle process in a session of its own would get as much as everything in
/// the owner's.
///
/// Returns false if it is to be tried again: the kernel takes one change in a tenth of a second from ordinary
/// users, of whatever group. A kernel without such groups has nothing to be lowered.
pub fn lower_group(pid: u32, urgency: Urgency) -> bool {
    let Some(nice) = urgency.nice() else { return true };
    let path = format!("/proc/{pid}/autogroup");
    let Ok(now) = std::fs::read_to_string(&path) else { return true };
    if now.trim_end().ends_with(&format!(" nice {nice}")) {
        return true;
    }
    let written = OpenOptions::new().write(true).open(&path);
    let written = written.and_then(|mut file| file.write_all(nice.to_string().as_bytes()));
    !written.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
}

/// Sends `+PID` to the guard. Async-signal-safe.
fn announce(fd: RawFd) {
    let mut line = [0_u8; 16];
    let mut at = line.len() - 1;
    line[at] = b'\n';
    // SAFETY: getpid has no preconditions.
    let mut pid = unsafe { libc::getpid() }.unsigned_abs();
    loop {
        at -= 1;
        line[at] = b'0' + (pid % 10) as u8;
        pid /= 10;
        if pid == 0 {
            break;
        }
    }
    at -= 1;
    line[at] = b'+';
    let line = &line[at..];
    // SAFETY: pointer and length are those of a slice that lives through the call. No signal if the guard is
    // gone.
    unsafe {
        libc::send(fd, line.as_ptr().cast(), line.len(), libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT);
    }
}

/// Waits for a child process to end and takes its remains away.
///
/// Returns the raw wait status, and the CPU time of the process and of all its children that it waited for.
pub fn wait_with_usage(pid: Pid) -> io::Result<(i32, Duration)> {
    let mut status = 0;
    // SAFETY: an all-zero rusage is a valid one; both pointers live through the call.
    let (found, usage) = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        let found = loop {
            let found = libc::wait4(pid.as_raw_nonzero().get(), &raw mut status, 0, &raw mut usage);
            if found >= 0 || io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
                break found;
            }
        };
        (found, usage)
    };
    if found < 0 {
        return Err(io::Error::last_os_error());
    }
    let of = |time: libc::timeval| Duration::from_secs(time.tv_sec) + Duration::from_micros(time.tv_usec);
    Ok((status, of(usage.ru_utime) + of(usage.ru_stime)))
}

/// So long a thread of a runtime's stays that has nothing to do. While there is one, work that may block
/// waits for it where the system gives no other; without any the runtime panics.
pub const THREADS_STAY: std::time::Duration = std::time::Duration::from_hours(24);

/// CPU time of the calling thread.
pub fn thread_cpu_time() -> Option<std::time::Duration> {
    // SAFETY: an all-zero timespec is a valid one and lives through the call.
    let (result, time) = unsafe {
        let mut time: libc::timespec = std::mem::zeroed();
        (libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time), time)
    };
    let nanos = u32::try_from(time.tv_nsec).ok()?;
    (result == 0)
        .then(|| u64::try_from(time.tv_sec).ok())
        .flatten()
        .map(|secs| std::time::Duration::new(secs, nanos))
}

/// The version of the C library that this process runs with, such as `2.36`; none where that is not the GNU
/// one.
pub fn libc_version() -> Option<String> {
    #[cfg(target_env = "gnu")]
    {
        // SAFETY: it gives a constant string of the library.
        let version = unsafe { std::ffi::CStr::from_ptr(libc::gnu_get_libc_version()) };
        version.to_str().ok().map(str::to_owned)
    }
    #[cfg(not(target_env = "gnu"))]
    None
}

/// Has a process that `command` starts work in `dir`, whatever lies under that directory's name by then.
pub fn work_in(command: &mut Command, dir: BorrowedFd<'_>) {
    let dir = dir.as_raw_fd();
    // SAFETY: fchdir is a plain system call. The descriptor is the caller's, who holds it open across the
    // spawn; were it closed, the call would fail, and with it the spawn.
    unsafe {
        command
            .pre_exec(move || rustix::process::fchdir(BorrowedFd::borrow_raw(dir)).map_err(io::Error::from));
    }
}

/// Has `command` execute what is open as `program`, whatever lies under its name by then. To be called last,
/// when program, arguments and environment of the command are complete; it must have no other environment
/// than it was given.
///
/// Where the system cannot do that (a script, whose interpreter wants a name), the command is executed as
/// usual.
pub fn execute_open(command: &mut Command, program: &File) -> io::Result<()> {
    let text = |text: &OsStr| CString::new(text.as_bytes()).map_err(io::Error::from);
    let arguments = std::iter::once(command.get_program()).chain(command.get_args());
    let arguments: Vec<CString> = arguments.map(text).collect::<Result<_, _>>()?;
    let variables = command.get_envs().filter_map(|(name, value)| {
        let mut entry = name.to_os_string();
        entry.push("=");
        entry.push(value?);
        Some(text(&entry))
    });
    let variables: Vec<CString> = variables.collect::<Result<_, _>>()?;
    let image = Image {
        program: program.as_raw_fd(),
        arguments: Strings::new(arguments),
        variables: Strings::new(variables),
    };
    // SAFETY: execveat is a plain system call. Its pointers lead to arrays that end in a null pointer, and
    // these to strings; all of them are owned by the closure, and were made before the fork.
    unsafe {
        command.pre_exec(move || {
            libc::syscall(
                libc::SYS_execveat,
                image.program,
                c"".as_ptr(),
                image.arguments.pointers(),
                image.variables.pointers(),
                libc::AT_EMPTY_PATH,
            );
            // Still here: the command's own way of executing follows, and says what is wrong if anything is.
            Ok(())
        });
    }
    Ok(())
}

struct Image {
    program: RawFd,
    arguments: Strings,
    variables: Strings,
}

/// Strings as `exec` wants them.
struct Strings {
    _strings: Vec<CString>,
    pointers: Vec<*const libc::c_char>,
}

impl Strings {
    fn new(strings: Vec<CString>) -> Self {
        let pointers = strings.iter().map(|text| text.as_ptr()).chain([std::ptr::null()]).collect();
        Self { _strings: strings, pointers }
    }
    fn pointers(&self) -> *const *const libc::c_char {
        self.pointers.as_ptr()
    }
}

// SAFETY: the pointers lead into `_strings`, which is never changed and lives as long as they do.
unsafe impl Send for Strings {}
// SAFETY: likewise.
unsafe impl Sync for Strings {}

/// `F_SETSIG` of Linux, which the libc crate does not name.
const F_SETSIG: libc::c_int = 10;

/// Keeps others from opening a file for writing, as long as it lives (`F_SETLEASE`): who tries waits.
#[derive(Debug)]
pub struct Lease(File);

impl Lease {
    /// Takes a lease on a file that is open for reading.
    ///
    /// # Errors
    /// `WouldBlock` while anybody has the file open for writing, or mapped so; others where the file system
    /// has no leases.
    pub fn take(file: &File) -> io::Result<Self> {
        // The same open file, for a lease is that file's and not the descriptor's.
        let file = file.try_clone()?;
        // SAFETY: fcntl with integers only. The signal that tells of somebody who waits must not be the usual
        // one, SIGIO, which ends a process that does not expect it; SIGURG is ignored.
        let taken = unsafe {
            libc::fcntl(file.as_raw_fd(), F_SETSIG, libc::SIGURG) == 0
                && libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, libc::F_RDLCK) == 0
        };
        if taken { Ok(Self(file)) } else { Err(io::Error::last_os_error()) }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        // SAFETY: fcntl with integers only.
        unsafe {
            libc::fcntl(self.0.as_raw_fd(), libc::F_SETLEASE, libc::F_UNLCK);
        }
    }
}

/// A System V shared memory segment for one channel file, ours alone. Its length never changes. Removed when
/// dropped.
#[derive(Debug)]
pub struct Segment {
    key: i32,
    id: i32,
    at: *mut libc::c_void,
}

// SAFETY: the memory is reached as atomic bytes only.
unsafe impl Send for Segment {}

impl Segment {
    /// Makes and maps a segment, zeroed by the system, for a user if not for this process's own.
    ///
    /// # Errors
    /// `AlreadyExists` where the key is taken; others where the system has no such memory, or no more of it.
    pub fn create(key: i32, owner: Option<Owner>) -> io::Result<Self> {
        // SAFETY: shmget takes integers. The system chooses the place for shmat, so nothing that is there is
        // covered. An all-zero shmid_ds is a valid one, and lives through the call.
        unsafe {
            let id = libc::shmget(key, FILE_LEN, libc::IPC_CREAT | libc::IPC_EXCL | 0o600);
            if id < 0 {
                return Err(io::Error::last_os_error());
            }
            let at = libc::shmat(id, std::ptr::null(), 0);
            if at as isize == -1 {
                let error = io::Error::last_os_error();
                libc::shmctl(id, libc::IPC_RMID, std::ptr::null_mut());
                return Err(error);
            }
            let made = Self { key, id, at };
            if let Some(owner) = owner {
                let mut data: libc::shmid_ds = std::mem::zeroed();
                (data.shm_perm.uid, data.shm_perm.gid) = (owner.uid.as_raw(), owner.gid.as_raw());
                data.shm_perm.mode = 0o600;
                if libc::shmctl(id, libc::IPC_SET, &raw mut data) != 0 {
                    return Err(io::Error::last_os_error());
                }
            }
            Ok(made)
        }
    }

    /// The key by which an application finds it.
    pub fn key(&self) -> i32 {
        self.key
    }

    /// The channels in it.
    pub fn channels(&self) -> Channels<'_> {
        // SAFETY: the segment is FILE_LEN bytes long, mapped readable and writable as long as `self` lives,
        // and only ever reached as atomics. AtomicU8 has the layout of u8.
        let bytes = unsafe { std::slice::from_raw_parts(self.at.cast_const().cast::<AtomicU8>(), FILE_LEN) };
        match Channels::new(bytes) {
            Some(channels) => channels,
            None => unreachable!("the slice is FILE_LEN bytes long"),
        }
    }

    /// Removes what an earlier life of the agent left under `key`, if it looks like one of its segments: of
    /// this user's making, as long as a channel, and used by nobody any more. True if there was one.
    pub fn remove_left(key: i32) -> bool {
        // SAFETY: an all-zero shmid_ds is a valid one, and lives through the call.
        unsafe {
            let id = libc::shmget(key, 0, 0);
            let mut data: libc::shmid_ds = std::mem::zeroed();
            id >= 0
                && libc::shmctl(id, libc::IPC_STAT, &raw mut data) == 0
                && data.shm_segsz == FILE_LEN
                && data.shm_perm.cuid == rustix::process::geteuid().as_raw()
                && data.shm_nattch == 0
                && libc::shmctl(id, libc::IPC_RMID, std::ptr::null_mut()) == 0
        }
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        // SAFETY: mapped by `create`, and not reached any more.
        unsafe {
            libc::shmdt(self.at);
            libc::shmctl(self.id, libc::IPC_RMID, std::ptr::null_mut());
        }
    }
}

/// Has the runtime wait until something can be read. In a runtime of tokio's.
///
/// # Errors
/// An I/O error of the operating system, when nothing can be waited for there.
pub fn readable_later(file: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an `OwnedFd` is a valid descriptor, and nobody closes or replaces it while it is held: no
    // reference to it is given out by which that could be done.
    Ok(unsafe { AsyncFd::register_with_interest(file, Interest::READABLE) }?)
}

/// The same for what the kernel calls urgent, such as the events of its triggers.
pub fn urgent_later(file: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an `OwnedFd` is a valid descriptor, and nobody closes or replaces it while it is held: no
    // reference to it is given out by which that could be done.
    Ok(unsafe { AsyncFd::register_with_interest(file, Interest::PRIORITY) }?)
}

/// As many bytes hold a bit for each key there is.
pub const INPUT_BITS_LEN: usize = 96;

/// What an input device can tell: the codes of events of a type, or for type 0 the types, a bit for each
/// (`EVIOCGBIT`).
///
/// # Errors
/// An I/O error of the operating system, above all where it is no input device.
pub fn input_bits(device: BorrowedFd<'_>, kind: u16) -> io::Result<[u8; INPUT_BITS_LEN]> {
    let mut bits = [0; INPUT_BITS_LEN];
    // As linux/input.h makes it: read, the length, the letter of input devices, the number.
    let request =
        2 << 30 | (INPUT_BITS_LEN as libc::c_ulong) << 16 | 0x45 << 8 | (0x20 + libc::c_ulong::from(kind));
    // SAFETY: the request writes at most INPUT_BITS_LEN bytes, which `bits` has, and which live through the
    // call. Any bytes are a value of it.
    let result = unsafe { libc::ioctl(device.as_raw_fd(), request as _, bits.as_mut_ptr()) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(bits) }
}
