//! The coordinator's ports, bounded in what clients can hold of them (R6.10).
//!
//! A port has places for so many connections. When all are taken, a connection that is not authenticated is
//! evicted for a newcomer ([`connections`]); where there is none, newcomers wait. The same when the process
//! has no descriptor left. Members leave some places to others: whoever finds the fleet too large for its
//! coordinator can ask it why.
//!
//! A client of the projects that is slow with a request's *head*, or leaves a connection idle, is cut off
//! here: no handler runs yet that could. Bodies are the handlers' own affair, because an upload may take
//! hours. At the fleet's port, a connection that does not authenticate in time is closed whatever it does,
//! and little is read of a request before it authenticates. TLS is spoken there: who shows no certificate of
//! a host, or one, is told to whoever serves the request ([`fallow_tls::Peer`]).

use std::future::Future;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use axum::{Extension, Router, middleware};
use fallow_telemetry::RateLimit;
use fallow_work_server::Via;
use fallow_work_server::connections::{self, Access, ConnectionHandle, Connections, Timeouts, TrackedStream};
use hyper::server::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use rustix::io::Errno;
use rustix::net::sockopt;
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use tonic::transport::server::TcpConnectInfo;
use tower::Layer as _;

/// The protocol of a port, with its time limits.
#[derive(Clone, Copy, Debug)]
pub(super) enum Protocol {
    /// HTTP/1, for everybody.
    Projects {
        /// For the whole head of a request, from the connection's begin or the end of the answer before.
        head: Duration,
    },
    /// HTTP/2, for those who authenticate.
    Fleet {
        /// Within so long a connection has to authenticate.
        authenticate_within: Duration,
        /// A connection that is silent for so long is asked whether it lives: frees what a vanished host
        /// held.
        keepalive: Duration,
    },
}

/// How TLS is spoken at a port.
#[derive(Clone)]
pub(super) enum Tls {
    /// Not at all.
    #[cfg(test)]
    None,
    /// By everybody; hosts show who they are.
    Mutual(Arc<ServerConfig>),
    /// By whoever wants to; nobody is asked who he is.
    Public {
        config: Arc<ServerConfig>,
        /// Others are served as well.
        allows_plain: bool,
        /// Others are told the same addresses.
        is_public_plain: bool,
    },
}

/// What clients may hold.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    pub(super) protocol: Protocol,
    /// Open connections.
    pub(super) connections: usize,
    pub(super) timeouts: Timeouts,
}

const TIMEOUTS: Timeouts = Timeouts {
    silent: Duration::from_secs(2),
    grace: Duration::from_secs(2),
    stall: Duration::from_secs(10),
    answer: Duration::from_secs(60),
};

impl Bounds {
    /// Of the projects' server. A whole head has to come within 75 s, as long as other servers keep idle
    /// connections.
    pub(super) const fn projects(connections: usize) -> Self {
        let protocol = Protocol::Projects { head: Duration::from_secs(75) };
        Self { protocol, connections, timeouts: TIMEOUTS }
    }

    /// Of the port of agents and operators. A connection has to authenticate within 10 s.
    pub(super) const fn fleet(connections: usize) -> Self {
        let protocol = Protocol::Fleet {
            authenticate_within: Duration::from_secs(10),
            keepalive: Duration::from_secs(60),
        };
        // Agents and tools send their first request at once.
        let timeouts = Timeouts { silent: Duration::from_millis(500), ..TIMEOUTS };
        Self { protocol, connections, timeouts }
    }

    /// Places that members may keep in all: they leave every sixteenth to operators and to whoever is new, 64
    /// at most and one at least.
    fn kept(&self) -> usize {
        (self.connections - (self.connections / 16).clamp(1, 64)).max(1)
    }
}

/// Bytes of a request that wait in a connection's buffer: with 4,096 connections to the projects' server, a
/// quarter of a gibibyte.
const BUFFER: usize = 64 << 10;
/// Bytes of an answer that wait in the kernel for a client that takes them slowly. As many as the kernel
/// would take are megabytes for each, and hide for minutes whether it takes any.
const SENT: usize = 256 << 10;
/// Requests at once on a connection to the fleet's port: an agent has its link, a tool a call or two.
const STREAMS: u32 = 16;
/// Bytes that come of a request, and of all on a connection, before they are read: with 16,384 connections
/// two gibibytes.
const REQUEST_WINDOW: u32 = 64 << 10;
const CONNECTION_WINDOW: u32 = 128 << 10;
/// After a failed accept, when no connection can be evicted: trying at once would be a busy loop.
const PAUSE: Duration = Duration::from_millis(500);
/// A TLS handshake has to be over within so long.
const HANDSHAKE: Duration = Duration::from_secs(5);
/// The first byte of whoever speaks TLS.
const TLS_HANDSHAKE: u8 = 22;
/// What somebody is told who does not speak TLS where it is spoken, and why.
const NO_TLS: &str = "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\nThis port speaks TLS only: ";
const FLEET_WANTS_TLS: &str = "it is for agents and operators' tools of the fleet.\n";
const PROJECTS_WANT_TLS: &str = "use https. BOINC clients need the certificate of the fleet's authority for it \
    (authority.pem), or the coordinator has to allow plain HTTP (--allow-plain-http).\n";
/// What an evicted connection takes to close.
const LEAVING: Duration = Duration::from_millis(10);

/// Serves until `stop` is true and all requests in progress are answered.
pub(super) async fn serve(
    listener: TcpListener,
    router: Router,
    bounds: Bounds,
    tls: Tls,
    mut stop: watch::Receiver<bool>,
) {
    let pool = ConnectionPool::new(bounds);
    let router = router.layer(middleware::from_fn(connections::attend));
    let mut connections = JoinSet::new();
    loop {
        let (stream, permit, evicted) = tokio::select! {
            _ = stopped(&mut stop) => break,
            next = accept(&listener, &pool) => match next {
                Some(next) => next,
                None => continue,
            },
        };
        // Those that have ended.
        while connections.try_join_next().is_some() {}
        let (router, tls, stop) = (router.clone(), tls.clone(), stopped_owned(stop.clone()));
        connections.spawn(async move {
            let handle = permit.handle.clone();
            tokio::select! {
                () = converse(stream, router, handle.clone(), bounds.protocol, tls, stop) => {}
                () = until_evicted(evicted) => tracing::trace!("a connection was evicted for another"),
                () = unauthenticated(&handle, bounds.protocol) => tracing::trace!("closed: not authenticated within its time limit"),
            }
            drop(permit);
        });
    }
    drop(listener);
    while connections.join_next().await.is_some() {}
}

/// The places of one port for connections.
struct ConnectionPool {
    bounds: Bounds,
    places: Arc<Semaphore>,
    connections: Connections,
    not_accepted: RateLimit,
    crowded: RateLimit,
    /// Since when newcomers find no place, or no descriptor, and when one was last waited for.
    full: Mutex<Option<(Instant, Instant)>>,
}

/// A connection's place, until it is dropped.
struct ConnectionPermit {
    handle: ConnectionHandle,
    _place: OwnedSemaphorePermit,
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.handle.leaves();
    }
}

impl ConnectionPool {
    fn new(bounds: Bounds) -> Self {
        let open = match bounds.protocol {
            Protocol::Projects { .. } => Access::Public,
            Protocol::Fleet { authenticate_within, .. } => {
                Access::Authenticated { within: authenticate_within }
            }
        };
        Self {
            bounds,
            places: Arc::new(Semaphore::new(bounds.connections)),
            connections: Connections::new(open, bounds.timeouts, bounds.kept()),
            not_accepted: RateLimit::new(),
            crowded: RateLimit::new(),
            full: Mutex::default(),
        }
    }

    /// Evicts a connection, as soon as one may be.
    async fn evict_one(&self) {
        let waiter = Waiter::begins(self);
        self.connections.evict_one(waiter.since, || self.say_crowded()).await;
    }

    fn say_crowded(&self) {
        let Some(times) = self.crowded.allow() else { return };
        let places = self.bounds.connections;
        match self.bounds.protocol {
            Protocol::Projects { .. } => tracing::warn!(
                places,
                times,
                "clients of the projects have all connections that they may keep: further ones wait, or are soon cut off for \
                 others; let the coordinator have more descriptors (ulimit -n, or LimitNOFILE in its unit)"
            ),
            Protocol::Fleet { .. } => tracing::warn!(
                places,
                times,
                "agents and operators have all connections that they may keep: further ones wait, or are soon cut off for \
                 others; let the coordinator have more descriptors (ulimit -n, or LimitNOFILE in its unit), or fewer agents"
            ),
        }
    }

    fn full(&self) -> MutexGuard<'_, Option<(Instant, Instant)>> {
        fallow_daemon::lock(&self.full)
    }

    /// A place, for which another connection may be evicted. One only: it closes at once.
    async fn place(&self) -> Option<OwnedSemaphorePermit> {
        let mut place = pin!(self.places.clone().acquire_owned());
        tokio::select! {
            biased;
            place = place.as_mut() => return place.ok(),
            () = self.evict_one() => {}
        }
        place.await.ok()
    }
}

/// A connection that waits for a place, or a descriptor.
struct Waiter<'a> {
    pool: &'a ConnectionPool,
    /// Since when there is none. A port that has one for a moment only is full all the time.
    since: Instant,
}

impl<'a> Waiter<'a> {
    fn begins(pool: &'a ConnectionPool) -> Self {
        let now = Instant::now();
        let lately = pool.full().filter(|(_, last)| now <= *last + pool.bounds.timeouts.grace);
        Self { pool, since: lately.map_or(now, |(since, _)| since) }
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        *self.pool.full() = Some((self.since, Instant::now()));
    }
}

/// The next connection. Nothing ends this: a server that gave up would cut off the whole fleet.
async fn accept(
    listener: &TcpListener,
    pool: &ConnectionPool,
) -> Option<(TcpStream, ConnectionPermit, oneshot::Receiver<()>)> {
    match listener.accept().await {
        Ok((stream, _)) => {
            // Messages are small and waited for; without this they wait for each other. A connection that is
            // gone already says so at the first read.
            let _ = stream.set_nodelay(true);
            let place = pool.place().await?;
            let (handle, evicted) = pool.connections.enter();
            Some((stream, ConnectionPermit { handle, _place: place }, evicted))
        }
        Err(error) => {
            if let Some(times) = pool.not_accepted.allow() {
                tracing::warn!(%error, times, "a connection is not accepted");
            }
            let is_exhausted =
                [Some(Errno::MFILE), Some(Errno::NFILE)].contains(&Errno::from_io_error(&error));
            match is_exhausted && timeout(PAUSE, pool.evict_one()).await.is_ok() {
                true => sleep(LEAVING).await,
                false => sleep(PAUSE).await,
            }
            None
        }
    }
}

/// Never, for one that is not evicted.
async fn until_evicted(evicted: oneshot::Receiver<()>) {
    if evicted.await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// Returns when the time to authenticate is over and this connection has not.
async fn unauthenticated(handle: &ConnectionHandle, protocol: Protocol) {
    if let Protocol::Fleet { authenticate_within, .. } = protocol {
        sleep(authenticate_within).await;
        if !handle.was_authenticated() {
            return;
        }
    }
    std::future::pending::<()>().await;
}

async fn converse(
    stream: TcpStream,
    router: Router,
    handle: ConnectionHandle,
    protocol: Protocol,
    tls: Tls,
    stop: impl Future<Output = ()>,
) {
    if let Protocol::Projects { .. } = protocol {
        // Without it there is more memory for this one, and that is all.
        let _ = sockopt::set_socket_send_buffer_size(&stream, SENT);
    }
    let from = stream.peer_addr().ok();
    // Whoever serves the request may ask it for its address.
    let address = TcpConnectInfo { local_addr: None, remote_addr: from };
    let router = Extension(address).layer(Extension(handle.clone()).layer(router));
    let tracked = |stream| TrackedStream::new(stream, &handle);
    match tls {
        #[cfg(test)]
        Tls::None => speak(tracked(stream), TowerToHyperService::new(router), protocol, stop).await,
        Tls::Mutual(_) if !speaks_tls(&stream).await => refuse_plain(stream, from, FLEET_WANTS_TLS).await,
        Tls::Mutual(config) => {
            let accepted = timeout(HANDSHAKE, fallow_tls::accept(config, tracked(stream))).await;
            let Some((stream, peer)) = greeted(accepted, from) else { return };
            let service = TowerToHyperService::new(Extension(Arc::new(peer)).layer(router));
            speak(stream, service, protocol, stop).await;
        }
        Tls::Public { config, allows_plain, is_public_plain } => {
            if speaks_tls(&stream).await {
                let accepted = timeout(HANDSHAKE, fallow_tls::accept_anybody(config, tracked(stream))).await;
                let Some(stream) = greeted(accepted, from) else { return };
                speak(stream, TowerToHyperService::new(router), protocol, stop).await;
            } else if allows_plain {
                let via = if is_public_plain { Via::Public } else { Via::Plain };
                let service = TowerToHyperService::new(Extension(via).layer(router));
                speak(tracked(stream), service, protocol, stop).await;
            } else {
                refuse_plain(stream, from, PROJECTS_WANT_TLS).await;
            }
        }
    }
}

/// Whether what a client begins with is a TLS handshake. Waits for its first byte; whoever sends none is cut
/// off elsewhere.
async fn speaks_tls(stream: &TcpStream) -> bool {
    let mut first = [0];
    !matches!(stream.peek(&mut first).await, Ok(1)) || first[0] == TLS_HANDSHAKE
}

/// What came of a handshake.
fn greeted<T>(
    accepted: Result<std::io::Result<T>, tokio::time::error::Elapsed>,
    from: Option<SocketAddr>,
) -> Option<T> {
    match accepted {
        Ok(Ok(greeted)) => Some(greeted),
        Ok(Err(error)) => {
            if let Some(times) = NOT_GREETED.allow() {
                let error = fallow_daemon::causes::line(&error);
                tracing::warn!(?from, error, times, "a TLS connection came to nothing");
            }
            None
        }
        Err(_) => {
            tracing::trace!("closed: the handshake took too long");
            None
        }
    }
}

static NOT_GREETED: RateLimit = RateLimit::new();

/// Says to whoever speaks without TLS that it takes that.
async fn refuse_plain(mut stream: TcpStream, from: Option<SocketAddr>, why: &str) {
    if let Some(times) = NOT_GREETED.allow() {
        tracing::warn!(?from, times, "refused: somebody speaks without TLS where it is spoken");
    }
    let _ = timeout(HANDSHAKE, async {
        stream.write_all(format!("{NO_TLS}{why}").as_bytes()).await?;
        stream.shutdown().await?;
        // Closed with something unread, the connection would be reset before the answer is read.
        tokio::io::copy(&mut tokio::io::AsyncReadExt::take(&mut stream, 64 << 10), &mut tokio::io::sink())
            .await
    })
    .await;
}

/// Serves the requests of a connection.
async fn speak<S, V>(stream: S, service: V, protocol: Protocol, stop: impl Future<Output = ()>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    V: hyper::service::Service<
            axum::http::Request<hyper::body::Incoming>,
            Response = axum::response::Response,
            Error = std::convert::Infallible,
        > + Send
        + 'static,
    V::Future: Send,
{
    let stream = TokioIo::new(stream);
    let ended = match protocol {
        Protocol::Projects { head } => {
            let mut builder = http1::Builder::new();
            builder.timer(TokioTimer::new()).header_read_timeout(head).max_buf_size(BUFFER);
            let connection = builder.serve_connection(stream, service);
            until(connection, |connection| connection.graceful_shutdown(), stop).await
        }
        Protocol::Fleet { keepalive, .. } => {
            let mut builder = http2::Builder::new(TokioExecutor::new());
            builder.timer(TokioTimer::new()).keep_alive_interval(keepalive).max_concurrent_streams(STREAMS);
            builder
                .initial_stream_window_size(REQUEST_WINDOW)
                .initial_connection_window_size(CONNECTION_WINDOW);
            let connection = builder.serve_connection(stream, service);
            until(connection, |connection| connection.graceful_shutdown(), stop).await
        }
    };
    if let Err(error) = ended {
        tracing::trace!(%error, "a client's connection broke");
    }
}

/// The connection's end; from `stop` on, requests in progress are finished and no others begun.
async fn until<C: Future>(
    connection: C,
    finish: impl FnOnce(Pin<&mut C>),
    stop: impl Future<Output = ()>,
) -> C::Output {
    let mut connection = pin!(connection);
    tokio::select! {
        ended = connection.as_mut() => ended,
        () = stop => {
            finish(connection.as_mut());
            connection.await
        }
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
    use axum::body::{Body, Bytes, to_bytes};
    use axum::http::{Request, StatusCode};
    use axum::routing::{get, post};
    use futures_util::{StreamExt as _, stream};
    use std::future::poll_fn;
    use std::net::SocketAddr;
    use tokio::io::AsyncReadExt as _;
    use tokio::time::advance;
    use tonic::codegen::Service as _;
    use tonic::transport::{Channel, Endpoint};

    const SOON: Duration = Duration::from_secs(120);
    /// Bytes of an answer in one part: more than the kernel holds for a client.
    const LARGE: usize = 16 << 20;

    const REQUEST: &str = "GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";
    const LONG: Duration = Duration::from_secs(3_600);
    /// Connections are evicted at once, but for those that take their answer.
    const HASTE: Timeouts =
        Timeouts { silent: Duration::ZERO, grace: Duration::ZERO, stall: LONG, answer: LONG };

    fn bounds(head: Duration, connections: usize, timeouts: Timeouts) -> Bounds {
        Bounds { protocol: Protocol::Projects { head }, connections, timeouts }
    }

    async fn start(bounds: Bounds) -> (SocketAddr, watch::Sender<bool>, tokio::task::JoinHandle<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let stop = watch::Sender::new(false);
        // Answers when the request has come whole.
        let known = |handle: Extension<ConnectionHandle>, body: Body| async move {
            handle.authenticated_as("somebody", 2);
            let _ = to_bytes(body, 8 << 20).await;
            "known"
        };
        let endless = || async {
            Body::from_stream(stream::repeat(Ok::<_, std::convert::Infallible>(Bytes::from_static(
                &[b'x'; 1 << 16],
            ))))
        };
        let router = Router::new()
            .route("/", get(|| async { "here" }))
            .route("/known", post(known))
            .route(
                "/read",
                post(|body: Body| async {
                    to_bytes(body, 8 << 20).await.map(|_| "whole").map_err(|_| StatusCode::BAD_REQUEST)
                }),
            )
            .route("/large", get(|| async { vec![b'x'; LARGE] }))
            .route("/endless", get(endless));
        let server = tokio::spawn(serve(listener, router, bounds, Tls::None, stop.subscribe()));
        (address, stop, server)
    }

    async fn say(address: SocketAddr, text: &str) -> TcpStream {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(text.as_bytes()).await.unwrap();
        stream
    }

    /// Waits until an answer has begun.
    async fn answered(stream: &mut TcpStream) {
        timeout(SOON, stream.read_u8()).await.expect("an answer").unwrap();
    }

    /// A request of somebody, of which a byte is missing.
    async fn begun(address: SocketAddr) -> TcpStream {
        let head = "POST /known HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nExpect: 100-continue\r\n\r\n";
        let mut stream = say(address, head).await;
        // It is asked for when it is known whose it is.
        let mut asked = [0; 25];
        timeout(SOON, stream.read_exact(&mut asked)).await.expect("it is asked for").unwrap();
        assert_eq!(&asked, b"HTTP/1.1 100 Continue\r\n\r\n");
        stream
    }

    async fn is_closed(stream: &mut TcpStream) {
        let mut rest = Vec::new();
        let _ = timeout(SOON, stream.read_to_end(&mut rest)).await.expect("it is closed");
    }

    /// Says `text` and gives all that comes until the server closes.
    async fn talk(address: SocketAddr, text: &str) -> String {
        let mut stream = say(address, text).await;
        let mut heard = Vec::new();
        let _ = timeout(SOON, stream.read_to_end(&mut heard)).await.expect("the server closes");
        String::from_utf8(heard).unwrap()
    }

    #[tokio::test]
    async fn clients_that_never_finish_a_head_or_say_nothing_are_cut_off_and_keep_nobody_out() {
        let timeouts = Timeouts { silent: SOON, grace: SOON, ..HASTE };
        let (address, stop, server) = start(bounds(Duration::from_millis(300), 2, timeouts)).await;
        let slow = ["GET / HTTP/1.1\r\nHost: h\r\nX: ", "", "GET / HTTP/1.1\r\nHost: h\r\n\r\n"];
        let slow = slow.map(|text| tokio::spawn(talk(address, text)));
        // There is room for two only, and yet this one is served.
        assert!(talk(address, REQUEST).await.ends_with("here"));
        for talk in slow {
            talk.await.unwrap();
        }
        stop.send_replace(true);
        timeout(SOON, server).await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn r6_10_the_oldest_connection_of_nobody_gives_way_and_one_that_is_known_stays() {
        let (address, stop, server) = start(bounds(LONG, 3, HASTE)).await;
        let mut known = begun(address).await;
        let mut silent = Vec::new();
        for _ in 0..5 {
            silent.push(say(address, "").await);
        }
        assert!(talk(address, REQUEST).await.ends_with("here"));
        // The first of the silent ones had to go.
        is_closed(&mut silent[0]).await;
        known.write_all(b"x").await.unwrap();
        answered(&mut known).await;
        drop((silent, known));
        stop.send_replace(true);
        timeout(SOON, server).await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn r6_10_connections_that_were_known_and_do_nothing_now_give_way() {
        let (address, stop, server) = start(bounds(LONG, 2, HASTE)).await;
        let mut idle = Vec::new();
        for _ in 0..2 {
            let mut stream = begun(address).await;
            stream.write_all(b"x").await.unwrap();
            answered(&mut stream).await;
            idle.push(stream);
        }
        assert!(talk(address, REQUEST).await.ends_with("here"));
        is_closed(&mut idle[0]).await;
        drop(idle);
        stop.send_replace(true);
        timeout(SOON, server).await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn r6_10_somebody_who_waits_gets_a_place_as_soon_as_a_known_one_has_its_answer() {
        let (address, stop, server) = start(bounds(LONG, 1, HASTE)).await;
        let mut known = begun(address).await;
        let newcomer = tokio::spawn(talk(address, REQUEST));
        known.write_all(b"x").await.unwrap();
        answered(&mut known).await;
        assert!(newcomer.await.unwrap().ends_with("here"));
        is_closed(&mut known).await;
        stop.send_replace(true);
        timeout(SOON, server).await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn r6_10_a_download_stays_when_newer_connections_that_say_nothing_come() {
        let (address, _stop, server) = start(bounds(LONG, 3, HASTE)).await;
        let mut download = say(address, "GET /endless HTTP/1.1\r\nHost: h\r\n\r\n").await;
        answered(&mut download).await;
        let mut silent = Vec::new();
        for _ in 0..10 {
            silent.push(say(address, "").await);
        }
        assert!(talk(address, REQUEST).await.ends_with("here"));
        // More than what is on its way already.
        let mut part = vec![0; 16 << 20];
        timeout(SOON, download.read_exact(&mut part)).await.expect("it goes on").unwrap();
        drop((download, silent));
        server.abort();
    }

    #[tokio::test]
    async fn r6_10_an_answer_whose_last_part_is_not_sent_yet_stays_when_newer_connections_come() {
        let (address, _stop, server) = start(bounds(LONG, 3, HASTE)).await;
        let mut download = say(address, "GET /large HTTP/1.1\r\nHost: h\r\n\r\n").await;
        answered(&mut download).await;
        // These have been idle for a shorter time than nothing was to be done any more for the first one.
        let mut idle = Vec::new();
        for _ in 0..2 {
            let mut stream = say(address, "GET / HTTP/1.1\r\nHost: h\r\n\r\n").await;
            answered(&mut stream).await;
            idle.push(stream);
        }
        assert!(talk(address, REQUEST).await.ends_with("here"));
        let mut part = vec![0; LARGE];
        timeout(SOON, download.read_exact(&mut part)).await.expect("it goes on").unwrap();
        // With all of it taken it is idle, and is evicted after the other one that was so before.
        for _ in 0..2 {
            let mut stream = say(address, "GET / HTTP/1.1\r\nHost: h\r\n\r\n").await;
            answered(&mut stream).await;
            idle.push(stream);
            assert!(talk(address, REQUEST).await.ends_with("here"));
        }
        is_closed(&mut download).await;
        server.abort();
    }

    /// What comes of a request at the fleet's port with so many bytes, and whether more are awaited. None
    /// without connection.
    async fn post_bytes(
        channel: &mut Channel,
        path: &str,
        bytes: usize,
        is_whole: bool,
    ) -> Option<StatusCode> {
        let begin =
            stream::iter(vec![Ok::<_, std::convert::Infallible>(Bytes::from(vec![0; 1 << 10])); bytes >> 10]);
        let body = match is_whole {
            true => Body::from_stream(begin),
            false => Body::from_stream(begin.chain(stream::pending())),
        };
        let request = Request::post(format!("http://h{path}")).body(tonic::body::Body::new(body)).unwrap();
        let answer = async {
            poll_fn(|context| channel.poll_ready(context)).await.ok()?;
            Some(channel.call(request).await.ok()?.status())
        };
        timeout(SOON, answer).await.expect("an answer")
    }

    #[tokio::test]
    async fn r6_10_who_is_not_known_at_the_fleets_port_says_little_and_soon() {
        // A machine may be slower than this time, and then nothing is shown: it is tried with longer ones.
        let mut authenticate_within = Duration::from_millis(300);
        while !is_cut_short_unless_known(authenticate_within).await {
            assert!(authenticate_within < SOON, "whoever is known is cut off");
            authenticate_within *= 3;
        }
    }

    /// Looks at a port with this time to authenticate. False if somebody was cut off who had hurried.
    async fn is_cut_short_unless_known(authenticate_within: Duration) -> bool {
        let protocol = Protocol::Fleet { authenticate_within, keepalive: LONG };
        let (address, _stop, server) = start(Bounds { protocol, connections: 100, timeouts: HASTE }).await;
        let url = format!("http://{address}");
        let mut channel = Endpoint::from_shared(url).unwrap().connect().await.unwrap();
        // The connection is known by its first request, which goes on. Of others nobody knows whose they are.
        let mut first = channel.clone();
        let first = tokio::spawn(async move { post_bytes(&mut first, "/known", 1 << 10, false).await });
        let hurried = async {
            (post_bytes(&mut channel, "/known", 1 << 20, true).await? == StatusCode::OK
                && post_bytes(&mut channel, "/read", 4 << 10, true).await? == StatusCode::OK)
                .then_some(())
        };
        if hurried.await.is_none() || first.is_finished() {
            server.abort();
            return false;
        }
        assert_eq!(post_bytes(&mut channel, "/read", 1 << 20, true).await, Some(StatusCode::BAD_REQUEST));
        assert_eq!(post_bytes(&mut channel, "/read", 4 << 10, false).await, Some(StatusCode::BAD_REQUEST));
        assert!(!first.is_finished(), "whoever is known takes his time");
        server.abort();
        true
    }

    #[tokio::test(start_paused = true)]
    async fn r6_10_a_port_that_has_places_for_a_moment_only_is_full_all_the_time() {
        let grace = Duration::from_secs(10);
        let pool = ConnectionPool::new(bounds(LONG, 1, Timeouts { grace, ..HASTE }));
        let waiter = Waiter::begins(&pool);
        let since = waiter.since;
        advance(grace * 2).await;
        drop(waiter);
        advance(grace).await;
        assert_eq!(Waiter::begins(&pool).since, since, "a long wait is not forgotten");
        advance(grace + Duration::from_millis(1)).await;
        assert!(Waiter::begins(&pool).since > since, "nobody waited for a while");
    }

    #[tokio::test]
    async fn r6_10_requests_of_nobody_on_a_connection_share_what_is_read_of_them() {
        let protocol = Protocol::Fleet { authenticate_within: LONG, keepalive: LONG };
        let (address, _stop, server) = start(Bounds { protocol, connections: 100, timeouts: HASTE }).await;
        let url = format!("http://{address}");
        let channel = Endpoint::from_shared(url).unwrap().connect().await.unwrap();
        // Whichever is read first: there is no room for both, and each alone is short enough.
        let [mut first, mut second] = [channel.clone(), channel.clone()];
        let refused = tokio::select! {
            status = post_bytes(&mut first, "/read", 24 << 10, false) => status,
            status = post_bytes(&mut second, "/read", 24 << 10, false) => status,
        };
        assert_eq!(refused, Some(StatusCode::BAD_REQUEST));
        // What they had of it is given back when they have ended.
        let mut third = channel;
        let is_read =
            async { while post_bytes(&mut third, "/read", 24 << 10, true).await != Some(StatusCode::OK) {} };
        timeout(SOON, is_read).await.expect("it is read in the end");
        server.abort();
    }

    #[test]
    fn r6_10_members_leave_places_to_others_however_few_there_are() {
        let kept = |connections| Bounds::fleet(connections).kept();
        assert_eq!([1, 2, 24, 160, 6_144, 16_384].map(kept), [1, 1, 23, 150, 6_080, 16_320]);
        assert_eq!(Bounds::projects(7).kept(), 6);
    }

    #[tokio::test]
    async fn r6_10_whoever_says_nothing_at_the_fleets_port_is_cut_off_though_there_are_places() {
        let protocol = Protocol::Fleet { authenticate_within: Duration::from_millis(300), keepalive: LONG };
        let (address, stop, server) = start(Bounds { protocol, connections: 100, timeouts: HASTE }).await;
        // Nothing, and a beginning as it should be, with settings.
        for text in ["", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0"] {
            is_closed(&mut say(address, text).await).await;
        }
        stop.send_replace(true);
        timeout(SOON, server).await.unwrap().unwrap();
    }
}
