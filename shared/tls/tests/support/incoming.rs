//! Connections over TLS for a server of tonic's own, as tests and benchmarks have one.
#![allow(unreachable_pub, reason = "each of them has this file as a module of its own")]

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use fallow_tls::Peer;
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio_rustls::server::TlsStream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::server::Connected;

/// A connection, and who is at its other end: services find that among a request's extensions.
pub struct Connection(TlsStream<TcpStream>, Arc<Peer>);

/// The connections that a listener accepts.
pub fn incoming(listener: TcpListener, config: Arc<ServerConfig>) -> ReceiverStream<io::Result<Connection>> {
    let (accepted, stream) = mpsc::channel(64);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            if accepted.is_closed() {
                return;
            }
            let _ = stream.set_nodelay(true);
            let (config, accepted) = (config.clone(), accepted.clone());
            tokio::spawn(async move {
                if let Ok((stream, peer)) = fallow_tls::accept(config, stream).await {
                    let _ = accepted.send(Ok(Connection(stream, Arc::new(peer)))).await;
                }
            });
        }
    });
    ReceiverStream::new(stream)
}

impl Connected for Connection {
    type ConnectInfo = Arc<Peer>;

    fn connect_info(&self) -> Arc<Peer> {
        self.1.clone()
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}
