//! The few calls of the system that no safe crate offers: the only unsafe code of the agent.
//!
//! - a process in a session of its own, at idle priority, without inherited descriptors;
//! - the priority of a session's automatic group, without which that of a process counts for nothing;
//! - `wait4`, which tells the CPU time of a process and of all that it waited for;
//! - the version of the C library;
//! - memory shared with an application, seen as the atomic bytes that `fallow_boinc` works on;
//! - giving freed memory back to the system.
#![allow(unsafe_code)]

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::AtomicU8;

use fallow_boinc::runtime::channel::{Channels, FILE_LEN};
use fallow_domain::Duration;
use memmap2::MmapRaw;
use rustix::process::Pid;

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

/// Makes `command` start in a session of its own (so in a process group of its own too), with this urgency and
/// with no descriptor open but the first three. With `guard`, the new process tells the guard of itself before
/// it becomes the program, so that there is no instant at which nobody would know of it.
pub fn isolate(command: &mut Command, urgency: Urgency, guard: Option<BorrowedFd<'_>>) {
    let guard: Option<RawFd> = guard.map(|fd| fd.as_raw_fd());
    // SAFETY: the closure runs between fork and exec, where only async-signal-safe calls are allowed. All of
    // setsid, setpriority, sched_setscheduler, open, write, close, send, getpid and close_range are plain system calls;
    // nothing here allocates, locks or panics. The descriptor in `guard` is borrowed for the call of `isolate` only, but the
    // keeper of the guard holds it open across the spawn; were it closed, `send` would fail and nothing else.
    unsafe {
        command.pre_exec(move || {
            rustix::process::setsid().map_err(io::Error::from)?;
            lower(urgency);
            lower_own_group(urgency);
            if let Some(fd) = guard {
                announce(fd);
            }
            // CLOEXEC instead of closing: the standard library needs its pipe until the exec. Kernels before 5.11
            // lack this; there the descriptors are closed by their own CLOEXEC flags, which Rust sets on all.
            libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC);
            Ok(())
        });
    }
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

/// Lowers the priority of the caller's automatic group, which it has for itself after setsid: see [`lower_group`].
/// Async-signal-safe.
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

/// Lowers the priority of the automatic group ("autogroup", sched(7)) that a process is in. Where the kernel has such
/// groups, each session is one, and the CPU is shared among groups first and by the processes' own priority only within
/// a group: an idle process in a session of its own would get as much as everything in the owner's.
///
/// Returns false if it is to be tried again: the kernel takes one change in a tenth of a second from ordinary users,
/// of whatever group. A kernel without such groups has nothing to be lowered.
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
    // SAFETY: pointer and length are those of a slice that lives through the call. No signal if the guard is gone.
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

/// The version of the C library that this process runs with, such as `2.36`; none where that is not the GNU one.
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

/// Memory shared with one application: `boinc_mmap_file` of its slot.
#[derive(Debug)]
pub struct SharedMemory {
    map: MmapRaw,
    file: File,
}

impl SharedMemory {
    /// Makes the file anew, zeroed, and maps it.
    pub fn create(path: &Path) -> io::Result<Self> {
        let mut file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(path)?;
        // Written, not only made that long: on a full disk, touching a page that has no place there kills whoever does.
        file.write_all(&[0; FILE_LEN])?;
        let map = MmapRaw::map_raw(&file)?;
        Ok(Self { map, file })
    }

    /// The channels; none when the application has cut the file short, for touching the lost pages would kill
    /// the agent. (An application could still do that in the very instant of an access: then the agent dies as by
    /// any other signal, and starts again from its store.)
    pub fn channels(&self) -> Option<Channels<'_>> {
        if self.file.metadata().ok()?.len() < FILE_LEN as u64 {
            return None;
        }
        // SAFETY: the mapping is valid, readable and writable for its whole length as long as `self` lives, and
        // the bytes are only ever reached as atomics. AtomicU8 has the layout of u8.
        let bytes = unsafe {
            std::slice::from_raw_parts(self.map.as_mut_ptr().cast_const().cast::<AtomicU8>(), self.map.len())
        };
        Channels::new(bytes)
    }
}

/// Gives freed memory back to the system. The C library keeps it for later otherwise, and what one large reply took would
/// be the agent's for good.
pub fn give_back_memory() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: it takes a number, touches nothing but memory that is free, and may be called from any thread at any time.
    unsafe {
        libc::malloc_trim(0);
    }
}
