//! What the system is told that a process may take, for itself and for all that comes from it.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// A limit as `prlimit64` takes it on all processors: that in force, and what it may be set to.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct Limit {
    soft: u64,
    hard: u64,
}

/// What a process may take; 0 where nothing is said.
#[derive(Clone, Copy, Debug, Default)]
pub struct Limits {
    /// How long each file may become that it writes, in bytes. Beyond it, it is killed by SIGXFSZ.
    pub file: u64,
    /// How many processes and threads its user may have for it to start another (no limit for root).
    pub processes: u64,
    /// The number by which it is known (see [`crate::brand`]).
    pub brand: u64,
}

/// Has a process that `command` starts keep to these limits, leave no image of its memory behind when it
/// crashes, and be the first to go when the machine has no memory left. Where an administrator has set a
/// lower limit, that stays.
pub fn limit(command: &mut Command, limits: Limits) {
    // SAFETY: the closure runs between fork and exec. It makes system calls and nothing else: prlimit, open,
    // write and close, with what lives through them.
    unsafe {
        command.pre_exec(move || {
            let _ = set(libc::RLIMIT_CORE as i32, 0);
            let given = [
                (libc::RLIMIT_FSIZE as i32, limits.file),
                (libc::RLIMIT_NPROC as i32, limits.processes),
                (libc::RLIMIT_LOCKS as i32, limits.brand),
            ];
            for (resource, value) in given {
                if value > 0 {
                    let _ = set(resource, value);
                }
            }
            go_first();
            Ok(())
        });
    }
}

/// Async-signal-safe.
fn set(resource: i32, value: u64) -> io::Result<()> {
    let new = Limit { soft: value, hard: value };
    // SAFETY: prlimit64 of the caller itself; `new` lives through the call.
    let result = unsafe {
        libc::syscall(libc::SYS_prlimit64, 0, resource, &raw const new, std::ptr::null_mut::<Limit>())
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Has the system end the caller before others where it has no memory left: the highest score there is, to
/// which anybody may raise his own. Async-signal-safe.
fn go_first() {
    use rustix::fs::{Mode, OFlags, open};
    if let Ok(file) = open(c"/proc/self/oom_score_adj", OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty()) {
        let _ = rustix::io::write(&file, b"1000");
    }
}

/// The limit of a process's file locks, which counts for nothing in Linux; none where it has none, or where
/// it is gone or closed to this user.
pub fn lock_limit(pid: u32) -> Option<u64> {
    let id = i32::try_from(pid).ok().filter(|&pid| pid > 0)?;
    let mut now = Limit::default();
    // SAFETY: prlimit64 that only asks; `now` lives through the call, and any bits are a value of it.
    let result = unsafe {
        libc::syscall(
            libc::SYS_prlimit64,
            id,
            libc::RLIMIT_LOCKS as i32,
            std::ptr::null::<Limit>(),
            &raw mut now,
        )
    };
    match result {
        0 => (now.hard != u64::MAX).then_some(now.hard),
        // Root in a container is not told it in this way of processes of other users.
        _ if rustix::process::geteuid().is_root() => shown_lock_limit(pid),
        _ => None,
    }
}

/// The same as the kernel shows it to everybody.
fn shown_lock_limit(pid: u32) -> Option<u64> {
    let limits = std::fs::read_to_string(format!("/proc/{pid}/limits")).ok()?;
    let locks = limits.lines().find_map(|line| line.strip_prefix("Max file locks"))?;
    locks.split_whitespace().nth(1)?.parse().ok()
}
