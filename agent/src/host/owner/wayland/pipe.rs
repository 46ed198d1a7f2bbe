//! What a compositor says, handed on a little at a time.
//!
//! The library that reads the protocol goes on reading for as long as anything comes, keeps all of it until
//! it is asked, and keeps every file that comes along. One that never stops would have it read for ever, and
//! fill the memory. So the library has one end of a pair of sockets instead, and between that and the
//! compositor stands this: each step hands on no more than [`CHUNK`], and no files.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;

/// So many bytes are handed on in one step. They fit into any socket, so that no step waits.
const CHUNK: usize = 4096;

/// What stands between the two.
pub(super) struct Pipe {
    compositor: UnixStream,
    library: UnixStream,
}

impl Pipe {
    /// Connects to the compositor at `socket`, and gives what the library is to have for it. May wait for as
    /// long as the compositor does not take connections.
    pub(super) fn connect(socket: &Path) -> io::Result<(Self, UnixStream)> {
        let compositor = UnixStream::connect(socket)?;
        let (library, its_end) = UnixStream::pair()?;
        for one in [&compositor, &library, &its_end] {
            one.set_nonblocking(true)?;
        }
        Ok((Self { compositor, library }, its_end))
    }

    /// Hands on what the library has said.
    pub(super) fn say(&mut self) -> io::Result<()> {
        hand_on(&mut self.library, &mut self.compositor)
    }

    /// Hands on a little of what the compositor has said, if it has.
    pub(super) fn hear(&mut self) -> io::Result<()> {
        hand_on(&mut self.compositor, &mut self.library)
    }

    /// What tells that the compositor has said something.
    pub(super) fn compositor(&self) -> BorrowedFd<'_> {
        self.compositor.as_fd()
    }
}

/// Files that come along are closed by the kernel, since nobody asks for them. Who does not take what is
/// handed on, although it is little and seldom, has stopped taking anything.
fn hand_on(from: &mut UnixStream, to: &mut UnixStream) -> io::Result<()> {
    let mut buffer = [0; CHUNK];
    match from.read(&mut buffer) {
        Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
        Ok(len) => to.write_all(&buffer[..len]),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
        Err(error) => Err(error),
    }
}
