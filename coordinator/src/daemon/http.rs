//! The projects' HTTP server, bounded in what clients can hold of it.
//!
//! A client that is slow with a request's *head*, or leaves a connection idle, is cut off here: no handler runs yet that
//! could. Bodies are the handlers' own affair, because an upload may take hours. When all places are taken, the oldest
//! connection that has not shown whose it is gives way to a newcomer; where all have, newcomers wait.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::{Extension, Router};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot, watch};
use tokio::task::JoinSet;
use tower::Layer as _;

use crate::guests::{Guest, Guests};
use crate::seldom::Seldom;

/// What clients may hold.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// For the whole head of a request, from the connection's begin or the end of the answer before.
    pub(super) head: Duration,
    /// Open connections.
    pub(super) connections: usize,
    /// How long one keeps its place whoever it is.
    pub(super) grace: Duration,
}

impl Bounds {
    /// As long as other servers keep idle connections; half of the descriptors that systemd gives by default may be needed
    /// for files.
    pub(super) const DEFAULT: Self =
        Self { head: Duration::from_secs(75), connections: 4_096, grace: Duration::from_secs(2) };
}

/// Bytes of a request that wait in a connection's buffer: with all connections open, a quarter of a gibibyte.
const BUFFER: usize = 64 << 10;
/// After a failed accept, most likely for want of descriptors: trying at once would be a busy loop.
const PAUSE: Duration = Duration::from_millis(500);
static NOT_ACCEPTED: Seldom = Seldom::new();

/// Serves until `stop` is true and all requests in progress are answered.
pub(super) async fn serve(
    listener: TcpListener,
    router: Router,
    bounds: Bounds,
    mut stop: watch::Receiver<bool>,
) {
    let room = Room {
        places: Arc::new(Semaphore::new(bounds.connections)),
        guests: Guests::default(),
        grace: bounds.grace,
    };
    let mut connections = JoinSet::new();
    loop {
        let (stream, seat, goes) = tokio::select! {
            _ = stopped(&mut stop) => break,
            next = accept(&listener, &room) => match next {
                Some(next) => next,
                None => continue,
            },
        };
        // Those that have ended.
        while connections.try_join_next().is_some() {}
        let (router, stop) = (router.clone(), stopped_owned(stop.clone()));
        connections.spawn(async move {
            let served = attend(stream, router, seat.guest.clone(), bounds.head, stop);
            tokio::select! {
                () = served => {}
                () = sent_away(goes) => tracing::trace!("a connection gave way to another"),
            }
            drop(seat);
        });
    }
    drop(listener);
    while connections.join_next().await.is_some() {}
}

/// Where connections find a place.
struct Room {
    places: Arc<Semaphore>,
    guests: Guests,
    grace: Duration,
}

/// A connection's place, until it is dropped.
struct Seat {
    guest: Guest,
    _place: OwnedSemaphorePermit,
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.guest.is_known();
    }
}

impl Room {
    /// A place, which somebody else may have to give up. One only: whoever is sent away leaves at once.
    async fn place(&self) -> Option<OwnedSemaphorePermit> {
        let mut place = pin!(self.places.clone().acquire_owned());
        tokio::select! {
            biased;
            place = place.as_mut() => return place.ok(),
            () = self.guests.oldest_gives_way(self.grace) => {}
        }
        place.await.ok()
    }
}

async fn accept(listener: &TcpListener, room: &Room) -> Option<(TcpStream, Seat, oneshot::Receiver<()>)> {
    match listener.accept().await {
        Ok((stream, _)) => {
            let place = room.place().await?;
            let (guest, goes) = room.guests.enter();
            Some((stream, Seat { guest, _place: place }, goes))
        }
        Err(error) => {
            if let Some(times) = NOT_ACCEPTED.times() {
                tracing::warn!(%error, times, "a connection to the projects' server is not accepted");
            }
            tokio::time::sleep(PAUSE).await;
            None
        }
    }
}

/// Never, for whoever is known.
async fn sent_away(goes: oneshot::Receiver<()>) {
    if goes.await.is_err() {
        std::future::pending::<()>().await;
    }
}

async fn attend(
    stream: TcpStream,
    router: Router,
    guest: Guest,
    head: Duration,
    stop: impl Future<Output = ()>,
) {
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(head).max_buf_size(BUFFER);
    let service = TowerToHyperService::new(Extension(guest).layer(router));
    let connection = builder.serve_connection(TokioIo::new(stream), service);
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
        let known = |guest: Extension<Guest>| async move { guest.is_known() };
        let router = Router::new().route("/", get(|| async { "here" })).route("/known", get(known));
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
        let bounds = Bounds { head: Duration::from_millis(300), connections: 2, grace: SOON };
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

    #[tokio::test]
    async fn r6_10_the_oldest_connection_of_nobody_gives_way_and_one_that_is_known_stays() {
        let bounds = Bounds { head: Duration::from_secs(3_600), connections: 3, grace: Duration::ZERO };
        let (address, stop, server) = start(bounds).await;
        let mut known = TcpStream::connect(address).await.unwrap();
        known.write_all(b"GET /known HTTP/1.1\r\nHost: h\r\n\r\n").await.unwrap();
        timeout(SOON, known.read_u8()).await.expect("an answer").unwrap();
        let mut silent = Vec::new();
        for _ in 0..5 {
            silent.push(TcpStream::connect(address).await.unwrap());
        }
        let request = "GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";
        assert!(talk(address, request).await.ends_with("here"));
        // The first of the silent ones had to go.
        let closed = timeout(SOON, silent[0].read(&mut [0])).await.expect("it is closed");
        assert!(!matches!(closed, Ok(1..)));
        known.write_all(b"GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n").await.unwrap();
        let mut heard = Vec::new();
        timeout(SOON, known.read_to_end(&mut heard)).await.expect("the server closes").unwrap();
        assert!(heard.ends_with(b"here"));
        drop(silent);
        stop.send_replace(true);
        timeout(SOON, server).await.unwrap().unwrap();
    }
}
