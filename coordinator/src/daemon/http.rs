//! The projects' HTTP server, bounded in what clients can hold of it.
//!
//! A client that is slow with a request's *head*, or leaves a connection idle, is cut off here: no handler runs yet that
//! could. Bodies are the handlers' own affair, because an upload may take hours. Beyond the most connections, new ones
//! wait in the system's queue.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;

/// What clients may hold.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// For the whole head of a request, from the connection's begin or the end of the answer before.
    pub(super) head: Duration,
    /// Open connections.
    pub(super) connections: usize,
}

impl Bounds {
    /// As long as other servers keep idle connections; half of the descriptors that systemd gives by default may be needed
    /// for files.
    pub(super) const DEFAULT: Self = Self { head: Duration::from_secs(75), connections: 4_096 };
}

/// Bytes of a request that wait in a connection's buffer: with all connections open, a quarter of a gibibyte.
const BUFFER: usize = 64 << 10;
/// After a failed accept, most likely for want of descriptors: trying at once would be a busy loop.
const PAUSE: Duration = Duration::from_millis(500);

/// Serves until `stop` is true and all requests in progress are answered.
pub(super) async fn serve(
    listener: TcpListener,
    router: Router,
    bounds: Bounds,
    mut stop: watch::Receiver<bool>,
) {
    let room = Arc::new(Semaphore::new(bounds.connections));
    let mut connections = JoinSet::new();
    loop {
        let (stream, place) = tokio::select! {
            _ = stopped(&mut stop) => break,
            Some(_) = connections.join_next() => continue,
            next = accept(&listener, &room) => match next {
                Some(next) => next,
                None => continue,
            },
        };
        let (router, stop) = (router.clone(), stopped_owned(stop.clone()));
        connections.spawn(async move {
            attend(stream, router, bounds.head, stop).await;
            drop(place);
        });
    }
    drop(listener);
    while connections.join_next().await.is_some() {}
}

async fn accept(listener: &TcpListener, room: &Arc<Semaphore>) -> Option<(TcpStream, OwnedSemaphorePermit)> {
    let place = room.clone().acquire_owned().await.ok()?;
    match listener.accept().await {
        Ok((stream, _)) => Some((stream, place)),
        Err(error) => {
            tracing::warn!(%error, "a connection to the projects' server is not accepted");
            tokio::time::sleep(PAUSE).await;
            None
        }
    }
}

async fn attend(stream: TcpStream, router: Router, head: Duration, stop: impl Future<Output = ()>) {
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(head).max_buf_size(BUFFER);
    let connection = builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    let mut connection = pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = stop => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::trace!(%error, "a client's connection broke");
    }
}

async fn stopped(stop: &mut watch::Receiver<bool>) {
    // Without anybody who could say so, it is over as well.
    let _ = stop.wait_for(|stop| *stop).await;
}

async fn stopped_owned(mut stop: watch::Receiver<bool>) {
    stopped(&mut stop).await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::routing::get;
    use std::net::SocketAddr;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::time::timeout;

    const SOON: Duration = Duration::from_secs(20);

    async fn start(bounds: Bounds) -> (SocketAddr, watch::Sender<bool>, tokio::task::JoinHandle<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let stop = watch::Sender::new(false);
        let router = Router::new().route("/", get(|| async { "here" }));
        let server = tokio::spawn(serve(listener, router, bounds, stop.subscribe()));
        (address, stop, server)
    }

    /// Says `text` and gives all that comes until the server closes.
    async fn talk(address: SocketAddr, text: &str) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(text.as_bytes()).await.unwrap();
        let mut heard = Vec::new();
        let _ = timeout(SOON, stream.read_to_end(&mut heard)).await.expect("the server closes");
        String::from_utf8(heard).unwrap()
    }

    #[tokio::test]
    async fn clients_that_never_finish_a_head_or_say_nothing_are_cut_off_and_keep_nobody_out() {
        let bounds = Bounds { head: Duration::from_millis(300), connections: 2 };
        let (address, stop, server) = start(bounds).await;
        let slow = ["GET / HTTP/1.1\r\nHost: h\r\nX: ", "", "GET / HTTP/1.1\r\nHost: h\r\n\r\n"];
        let slow = slow.map(|text| tokio::spawn(talk(address, text)));
        // There is room for two only, and yet this one is served.
        let request = "GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";
        assert!(talk(address, request).await.ends_with("here"));
        for talk in slow {
            talk.await.unwrap();
        }
        stop.send_replace(true);
        timeout(SOON, server).await.unwrap().unwrap();
    }
}
