//! The bytes of a connection: whether its client takes what is written to it.

use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::task::consume_budget;
use tokio::time::Instant;

use super::call::UNAUTHENTICATED_MAX;
use super::{Access, ConnectionHandle};

/// How far what was written to a connection has come.
#[derive(Debug)]
pub(super) struct Flow {
    start: Instant,
    /// When the kernel took something last, in microseconds from the start.
    pub(super) took: AtomicU64,
    /// Something waits until the kernel takes it.
    pub(super) unsent: AtomicBool,
    /// One of its requests was authenticated.
    pub(super) is_known: AtomicBool,
}

impl Flow {
    /// Nothing was written yet.
    pub(super) fn new(start: Instant) -> Self {
        Self {
            start,
            took: AtomicU64::new(0),
            unsent: AtomicBool::new(false),
            is_known: AtomicBool::new(false),
        }
    }

    pub(super) fn took(&self) -> Instant {
        self.start + Duration::from_micros(self.took.load(Ordering::Relaxed))
    }

    pub(super) fn is_unsent(&self) -> bool {
        self.unsent.load(Ordering::Relaxed)
    }

    fn set_unsent(&self, unsent: bool) {
        self.unsent.store(unsent, Ordering::Relaxed);
    }

    pub(super) fn takes(&self) {
        let micros = self.start.elapsed().as_micros();
        self.took.store(u64::try_from(micros).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Takes note of what came of writing so many bytes.
    fn written(&self, wanted: usize, written: &Poll<io::Result<usize>>) {
        match written {
            Poll::Ready(Ok(bytes)) => {
                self.takes();
                if *bytes < wanted {
                    self.set_unsent(true);
                }
            }
            Poll::Ready(Err(_)) => {}
            Poll::Pending => self.set_unsent(true),
        }
    }
}

/// Bytes that are read of a connection before any of its requests is authenticated, where each has to be:
/// the handshake, heads, and what has come of first requests by the time that somebody looks at them.
/// Whatever else a protocol lets a client send, such as pings without end, costs work for every few bytes.
const UNKNOWN_MAX: usize = 6 * UNAUTHENTICATED_MAX;

/// Bytes that take one step of those that tokio gives a task before others have their turn. These are 128: of
/// a client that sends without end, perhaps what costs much for every few bytes, 16 KiB are read in a turn.
const STEP: usize = 128;

/// A connection's stream, which takes note of what its client takes, and reads little of whoever says nothing
/// of himself.
#[derive(Debug)]
pub struct TrackedStream<S> {
    stream: S,
    flow: Arc<Flow>,
    /// Bytes that may still be read until it is known who this is. None where everybody may ask.
    of_unknown: Option<usize>,
}

impl<S> TrackedStream<S> {
    /// The stream of this connection.
    pub fn new(stream: S, handle: &ConnectionHandle) -> Self {
        let of_unknown = match handle.all.0.access {
            Access::Public => None,
            Access::Authenticated { .. } => Some(UNKNOWN_MAX),
        };
        Self { stream, flow: handle.flow.clone(), of_unknown }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for TrackedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
        let bytes = buffer.filled().len().saturating_sub(before);
        for _ in 0..bytes / STEP {
            // Where none is left, the next read waits for the next turn.
            if pin!(consume_budget()).poll(context).is_pending() {
                break;
            }
        }
        if let Some(left) = self.of_unknown {
            self.of_unknown = match self.flow.is_known.load(Ordering::Relaxed) {
                true => None,
                false => Some(left.checked_sub(bytes).ok_or(io::ErrorKind::ConnectionAborted)?),
            };
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for TrackedStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.flow.written(bytes.len(), &written);
        written
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, parts);
        self.flow.written(parts.iter().map(|part| part.len()).sum(), &written);
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    /// Called when all is written that there was to write.
    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        if flushed.is_ready() {
            self.flow.set_unsent(false);
        }
        flushed
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;
    use tokio::io::AsyncReadExt as _;

    use super::super::{Connections, Timeouts};
    use super::*;

    const LIKE_OTHERS: Timeouts = Timeouts {
        silent: Duration::from_secs(2),
        grace: Duration::from_secs(2),
        stall: Duration::from_secs(10),
        answer: Duration::from_secs(60),
    };

    fn connection(access: Access) -> ConnectionHandle {
        Connections::new(access, LIKE_OTHERS, 16, 16).enter(None).0
    }

    /// Reads all that a client sends without end, and gives how much that was, up to so much.
    async fn read_up_to(handle: &ConnectionHandle, most: usize) -> usize {
        let mut stream = TrackedStream::new(tokio::io::repeat(7), handle);
        let (mut buffer, mut read) = (vec![0; 1_000], 0);
        while read < most {
            match stream.read(&mut buffer).await {
                Ok(bytes) => read += bytes,
                Err(_) => break,
            }
        }
        read
    }

    #[tokio::test]
    async fn r6_10_little_is_read_of_a_connection_that_authenticates_nothing_where_it_has_to() {
        let members = Access::Authenticated { within: Duration::from_secs(10) };
        let (stranger, member) = (connection(members), connection(members));
        member.authenticated_as("a", 1);
        let much = 10 * UNKNOWN_MAX;
        assert!(read_up_to(&stranger, much).await <= UNKNOWN_MAX);
        assert!(read_up_to(&member, much).await >= much);
        assert!(read_up_to(&connection(Access::Public), much).await >= much);
    }

    #[tokio::test]
    async fn r6_10_a_client_that_sends_without_end_leaves_others_their_turns() {
        let handle = connection(Access::Public);
        let mut stream = TrackedStream::new(tokio::io::repeat(7), &handle);
        let mut buffer = vec![0; 1_000];
        for _ in 0..3 {
            tokio::task::yield_now().await;
            let mut in_turn = 0;
            // However often it is asked again: whoever serves it does so after each head.
            for _ in 0..1_000 {
                in_turn += stream.read(&mut buffer).now_or_never().map_or(0, Result::unwrap);
            }
            assert!((8 << 10..20 << 10).contains(&in_turn), "{in_turn}");
        }
    }
}
