//! What connections of this process hold.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::RawFd;

/// What a TCP socket holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// The number by which the kernel knows the socket.
    pub inode: u64,
    /// Bytes that have come and that nobody has read.
    pub unread: u64,
    /// Bytes that were written and have not been sent yet.
    pub unsent: u64,
}

/// What the TCP socket with this number in the table of descriptors holds. Another thread may close it at any
/// time: then this fails, or it is of what has got the number since.
///
/// # Errors
/// An I/O error of the operating system, above all where it is no TCP socket, or none that is connected.
pub fn held_by(descriptor: RawFd) -> io::Result<Held> {
    // No borrowed descriptor is made of the number, for that would promise that it stays open.
    let mut protocol: libc::c_int = 0;
    let mut length = libc::socklen_t::try_from(size_of_val(&protocol)).map_err(io::Error::other)?;
    // SAFETY: the kernel writes a number of `length` bytes into `protocol`, and into `length` how many it
    // wrote; both live through the call.
    checked(unsafe {
        let into = (&raw mut protocol).cast();
        libc::getsockopt(descriptor, libc::SOL_SOCKET, libc::SO_PROTOCOL, into, &raw mut length)
    })?;
    if protocol != libc::IPPROTO_TCP {
        return Err(io::ErrorKind::Unsupported.into());
    }
    let (unsent, unread) =
        (asked(descriptor, libc::SIOCOUTQNSD as _)?, asked(descriptor, libc::FIONREAD as _)?);
    let mut about = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: the kernel writes all of `about`, which lives through the call, unless it fails.
    checked(unsafe { libc::fstat(descriptor, about.as_mut_ptr()) })?;
    // SAFETY: the call has not failed.
    let inode = unsafe { about.assume_init() }.st_ino;
    Ok(Held { inode, unread, unsent })
}

/// The number that the kernel gives for one of the two requests above.
fn asked(descriptor: RawFd, request: libc::c_ulong) -> io::Result<u64> {
    let mut number: libc::c_int = 0;
    // SAFETY: both requests write one number into `number`, which lives through the call, or they fail.
    checked(unsafe { libc::ioctl(descriptor, request as _, &raw mut number) })?;
    Ok(u64::try_from(number).unwrap_or_default())
}

fn checked(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
