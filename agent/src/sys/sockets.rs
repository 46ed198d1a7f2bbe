//! What connections of this process hold.

use std::io;
use std::os::fd::{BorrowedFd, RawFd};

use rustix::io::ioctl_fionread;
use rustix::net::{ipproto, sockopt};

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

/// What the TCP socket with this number in the table of descriptors holds.
///
/// # Errors
/// An I/O error of the operating system, above all where it is no TCP socket, or none that is connected.
pub fn held_by(descriptor: RawFd) -> io::Result<Held> {
    if descriptor < 0 {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    // SAFETY: nothing here closes the descriptor, keeps it or hands it on, and the calls only ask what it is.
    // Where another thread closes it meanwhile, they fail, or they answer about what has got its number.
    let socket = unsafe { BorrowedFd::borrow_raw(descriptor) };
    if sockopt::socket_protocol(socket)? != Some(ipproto::TCP) {
        return Err(io::ErrorKind::Unsupported.into());
    }
    let mut unsent: libc::c_int = 0;
    // SAFETY: the request writes a number into `unsent`, which lives through the call.
    let result = unsafe { libc::ioctl(descriptor, libc::SIOCOUTQNSD as _, &raw mut unsent) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    let (inode, unread) = (rustix::fs::fstat(socket)?.st_ino, ioctl_fionread(socket)?);
    Ok(Held { inode, unread, unsent: u64::try_from(unsent).unwrap_or_default() })
}
