//! The bytes of a connection: whether its client takes what is written to it.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

use super::ConnectionHandle;

/// How far what was written to a connection has come.
#[derive(Debug)]
pub(super) struct Flow {
    start: Instant,
    /// When the kernel took something last, in microseconds from the start.
    pub(super) took: AtomicU64,
    /// Something waits until the kernel takes it.
    pub(super) unsent: AtomicBool,
}

impl Flow {
    /// Nothing was written yet.
    pub(super) fn new(start: Instant) -> Self {
        Self { start, took: AtomicU64::new(0), unsent: AtomicBool::new(false) }
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

/// A connection's stream, which takes note of what its client takes.
#[derive(Debug)]
pub struct TrackedStream<S> {
    stream: S,
    flow: Arc<Flow>,
}

impl<S> TrackedStream<S> {
    /// The stream of this connection.
    pub fn new(stream: S, handle: &ConnectionHandle) -> Self {
        Self { stream, flow: handle.flow.clone() }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for TrackedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
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
