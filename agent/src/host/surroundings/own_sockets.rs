//! What the agent's own connections hold, so that it is not taken for other programs' (R6.4).
//!
//! The agent counts what it moves when it reads or writes it. Where it reads slowly, by a limit on downloads,
//! the kernel receives megabytes of each connection before that, and they have crossed the interface. So what
//! waits to be read is added to what the agent counts, and what waits to be sent is taken off. A connection
//! that is closed with something unread in it has moved that as well. How much there was is known of the last
//! look: some of it may have been read since, and counts twice. So while many small files come slowly, each
//! over a connection of its own, others are seen late: what the agent reads hides as much of theirs.
//!
//! Connections within the machine are not left out: a proxy may be at the other end, and what the agent has
//! not read of it has crossed the interface too.

use std::collections::BTreeMap;
use std::fs;

use crate::sys::{self, Held};

/// At most so many descriptors are looked at. That takes some hundredths of a second.
const DESCRIPTORS_MAX: usize = 10_000;

/// What was seen of them so far.
#[derive(Debug, Default)]
pub(super) struct OwnSockets {
    /// What each held at the last look, by inode.
    last: BTreeMap<u64, Held>,
    /// What was closed unread, all together.
    discarded: u64,
}

/// What is to be made of what the agent counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Uncounted {
    /// Came and is not counted yet, or never will be.
    pub(super) came: u64,
    /// Is counted and has yet to go.
    pub(super) to_go: u64,
}

impl OwnSockets {
    /// Takes in what all of them hold now.
    pub(super) fn take(&mut self, now: Vec<Held>) -> Uncounted {
        let now = now.into_iter().map(|held| (held.inode, held)).collect();
        let before = std::mem::replace(&mut self.last, now);
        let closed = before.into_iter().filter(|(inode, _)| !self.last.contains_key(inode));
        self.discarded += closed.map(|(_, held)| held.unread).sum::<u64>();
        Uncounted {
            came: self.discarded + self.last.values().map(|held| held.unread).sum::<u64>(),
            to_go: self.last.values().map(|held| held.unsent).sum(),
        }
    }
}

/// What the TCP connections of this process hold.
pub(super) fn held() -> Vec<Held> {
    let open = fs::read_dir("/proc/self/fd").into_iter().flatten().flatten().take(DESCRIPTORS_MAX);
    let numbers = open.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    numbers.filter_map(|number| sys::held_by(number).ok()).collect()
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd as _;

    use super::*;

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (one, listener.accept().unwrap().0)
    }

    fn inode(socket: &TcpStream) -> u64 {
        rustix::fs::fstat(socket.as_fd()).unwrap().st_ino
    }

    /// What is held by these alone: other tests of this process have connections too.
    fn held_by(inodes: &[u64]) -> Vec<Held> {
        held().into_iter().filter(|held| inodes.contains(&held.inode)).collect()
    }

    fn send(to: &mut TcpStream, bytes: usize) {
        to.write_all(&vec![1; bytes]).unwrap();
    }

    /// Fills all buffers, up to where the kernel takes no more at that moment. Gives how much that was.
    fn fill(to: &mut TcpStream) -> u64 {
        to.set_nonblocking(true).unwrap();
        let piece = [1; 16 << 10];
        let written = std::iter::from_fn(|| to.write(&piece).ok());
        written.map(|bytes| bytes as u64).sum()
    }

    #[test]
    fn r6_4_what_came_and_was_not_read_is_the_agents_own_also_when_it_is_never_read() {
        let (mut mine, mut peer) = pair();
        let of = [inode(&mine)];
        let mut own = OwnSockets::default();
        assert_eq!(own.take(held_by(&of)), Uncounted { came: 0, to_go: 0 });
        send(&mut peer, 40_000);
        let mut seen = vec![0; 40_000];
        while mine.peek(&mut seen).unwrap() < seen.len() {}
        assert_eq!(own.take(held_by(&of)).came, 40_000);
        // What is read is counted by whoever reads.
        mine.read_exact(&mut seen[..30_000]).unwrap();
        assert_eq!(own.take(held_by(&of)).came, 10_000);
        // Another number for the same connection makes no difference.
        let again = mine.try_clone().unwrap();
        assert_eq!(own.take(held_by(&of)).came, 10_000);
        drop((mine, again));
        for _ in 0..2 {
            assert_eq!(own.take(held_by(&of)), Uncounted { came: 10_000, to_go: 0 });
        }
    }

    #[test]
    fn r6_4_what_was_written_and_not_sent_is_not_moved_yet() {
        let (mut mine, peer) = pair();
        let (of, from) = ([inode(&mine)], [inode(&peer)]);
        let until = std::time::Instant::now() + std::time::Duration::from_secs(30);
        let mut written = 0;
        let uncounted = loop {
            // What is on its way when the kernel takes no more has arrived soon, and then it takes more.
            written += fill(&mut mine);
            // The peer first, or what arrives in between counts twice.
            let uncounted = OwnSockets::default().take([held_by(&from), held_by(&of)].concat());
            if uncounted.to_go > 0 {
                break uncounted;
            }
            assert!(std::time::Instant::now() < until, "all is sent");
        };
        // All that is not in the peer's buffer is in this one's, or on its way.
        assert!(uncounted.came + uncounted.to_go <= written, "{uncounted:?} {written}");
    }

    #[test]
    fn r6_4_what_is_no_connection_holds_nothing() {
        use std::os::fd::AsRawFd as _;
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let file = tempfile::tempfile().unwrap();
        let (one, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        for number in [listener.as_raw_fd(), file.as_raw_fd(), one.as_raw_fd(), -1, i32::MAX] {
            assert!(sys::held_by(number).is_err());
        }
    }
}
