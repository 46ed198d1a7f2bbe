//! A process that gives up privileges, becomes another user, and keeps to rules of Landlock and to filters of
//! system calls (R6.10).

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::Arc;

use crate::owner::JobUser;

/// A filter of system calls, as the kernel takes it.
#[derive(Debug)]
pub struct Filter(Vec<libc::sock_filter>);

impl Filter {
    /// The steps of its program: code, two jumps and an operand each.
    pub fn new(steps: impl Iterator<Item = (u16, u8, u8, u32)>) -> Self {
        Self(steps.map(|(code, jt, jf, k)| libc::sock_filter { code, jt, jf, k }).collect())
    }
}

/// From now on no program that the calling thread executes has more privileges than the thread.
/// Async-signal-safe.
pub fn give_up_new_privileges() -> io::Result<()> {
    Ok(rustix::thread::set_no_new_privs(true)?)
}

/// The calling thread gives up what it may do beyond its user's rights, for good; it needs
/// [`give_up_new_privileges`], or programs of root would bring it back. Async-signal-safe.
fn give_up_capabilities() -> io::Result<()> {
    use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};
    let none = CapabilitySet::empty();
    let none = CapabilitySets { effective: none, permitted: none, inheritable: none };
    // A service manager may have forbidden the call to whoever has nothing to give up.
    if capabilities(None)? != none {
        set_capabilities(None, none)?;
    }
    Ok(())
}

/// Puts filters on the calling thread for good; it needs [`give_up_new_privileges`]. Async-signal-safe.
pub fn filter_calls(filters: &[Filter]) -> io::Result<()> {
    for Filter(steps) in filters {
        let len = u16::try_from(steps.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
        // The kernel only reads it.
        let program = libc::sock_fprog { len, filter: steps.as_ptr().cast_mut() };
        // SAFETY: prctl with the address of a program that lives through the call, with its steps.
        let result =
            unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) };
        if result != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// Rules of Landlock for one process.
#[derive(Debug)]
pub struct Rules {
    /// The rules, as the kernel gave them out.
    pub made: OwnedFd,
    /// What the process may do besides with directories that it alone can name, once it is there and has its
    /// own places: absolute names, and rights of Landlock, as the kernel numbers them, never 0.
    pub on_own: Vec<(CString, u64)>,
}

/// What confines a process.
#[derive(Debug)]
pub struct Means {
    /// It gives up all privileges. Whoever is not root cannot have rules and filters without that.
    pub gives_up: bool,
    /// Rules of Landlock.
    pub rules: Option<Rules>,
    /// Filters of system calls.
    pub filters: Arc<[Filter]>,
    /// The user that it becomes, if another than this process's.
    pub user: Option<JobUser>,
}

/// Has a process that `command` starts be confined by these means. It holds for whatever `command` has it do
/// after that, too. Where it fails, the process is not started, and the error is `PermissionDenied`.
pub fn confine(command: &mut Command, means: Means) {
    let Means { gives_up, rules, filters, user } = means;
    // SAFETY: the closure runs between fork and exec. It makes system calls and nothing else: what they need
    // was made before and is owned by the closure, and neither errors by number nor those of a kind allocate.
    unsafe {
        command.pre_exec(move || {
            let given_up = if gives_up { give_up_new_privileges() } else { Ok(()) };
            let confined = given_up
                .and_then(|()| rules.as_ref().map_or(Ok(()), keep_to))
                .and_then(|()| filter_calls(&filters))
                // Root needs no `no_new_privs` for the two before, and what it becomes would.
                .and_then(|()| user.as_ref().map_or(Ok(()), become_user))
                .and_then(|()| if gives_up { give_up_capabilities() } else { Ok(()) });
            // Whatever it was, it says nothing about the program.
            confined.map_err(|_| io::Error::from_raw_os_error(libc::EPERM))
        });
    }
}

/// Has the calling thread, and no other, be another user for good, with these groups and no others. The
/// kernel takes root's capabilities from it. Async-signal-safe.
pub(super) fn become_user(user: &JobUser) -> io::Result<()> {
    let (uid, gid) = (user.owner.uid, user.owner.gid);
    rustix::thread::set_thread_groups(&user.groups)?;
    rustix::thread::set_thread_res_gid(gid, gid, gid)?;
    rustix::thread::set_thread_res_uid(uid, uid, uid)?;
    Ok(())
}

/// Does something as another user, in a thread that ends with it. A container may not have that user, and a
/// service manager may forbid to become it.
///
/// # Errors
/// The system's, or that of what is done.
pub fn as_user(user: JobUser, act: impl FnOnce() -> io::Result<()> + Send + 'static) -> io::Result<()> {
    let thread = std::thread::Builder::new().name("user".into());
    let tried = thread.spawn(move || become_user(&user).and_then(|()| act()))?;
    let tried = tried.join().unwrap_or_else(|_| Err(io::Error::other("the attempt did not end")));
    // A thread that changes its user closes all of its process to others, so to this agent's own looks.
    rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::Dumpable)?;
    tried
}

/// Has the calling thread keep to rules of Landlock for good; it needs [`give_up_new_privileges`].
/// Async-signal-safe.
fn keep_to(rules: &Rules) -> io::Result<()> {
    for (name, rights) in &rules.on_own {
        add_own(rules, name, *rights)?;
    }
    // SAFETY: integers only; the descriptor is open.
    match unsafe { libc::syscall(libc::SYS_landlock_restrict_self, rules.made.as_raw_fd(), 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The kernel's `landlock_path_beneath_attr`.
#[repr(C, packed)]
struct Beneath {
    allowed_access: u64,
    parent_fd: i32,
}

/// The kernel's `LANDLOCK_RULE_PATH_BENEATH`.
const PATH_BENEATH: libc::c_int = 1;

/// Adds what the calling process may do with a directory that only the process itself can name.
/// Async-signal-safe.
fn add_own(rules: &Rules, name: &CStr, rights: u64) -> io::Result<()> {
    use rustix::fs::{Mode, OFlags, open};
    let own = match open(name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty()) {
        Ok(own) => own,
        // A system that shows nothing of processes.
        Err(rustix::io::Errno::NOENT) => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    let beneath = Beneath { allowed_access: rights, parent_fd: own.as_raw_fd() };
    let rule = &raw const beneath;
    // SAFETY: the address is of a rule that lives through the call, and both descriptors are open.
    match unsafe { libc::syscall(libc::SYS_landlock_add_rule, rules.made.as_raw_fd(), PATH_BENEATH, rule, 0) }
    {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
