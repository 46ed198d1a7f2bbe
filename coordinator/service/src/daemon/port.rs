//! The coordinator's ports, bounded in what clients can hold of them (R6.10).
//!
//! A port has places for so many connections. When all are taken, a connection that is not authenticated is
//! evicted for a newcomer ([`connections`]); where there is none, newcomers wait. The same when the process
//! has no descriptor left: then first what a flood has at any port ([`Descriptors`]). One address can have a
//! quarter of the places with connections that say nothing, and gives way first. Members leave some places to
//! others: whoever finds the fleet too large for its coordinator can ask it why.
//!
//! A client of the projects that is slow with a request's *head*, or leaves a connection idle, is cut off
//! here: no handler runs yet that could. Bodies are the handlers' own affair, because an upload may take
//! hours. At the fleet's port, a connection that does not authenticate in time is closed whatever it does,
//! and little is read of a request before it authenticates. TLS is spoken there: who shows no certificate of
//! a host, or one, is told to whoever serves the request ([`fallow_tls::Peer`]). HTTP/1.1 is spoken there by
//! scripts of operators that cannot speak HTTP/2; each next head of theirs has to come in time, too.

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
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use tonic::transport::server::TcpConnectInfo;
use tower::Layer as _;

use super::refusals::Refusals;

/// The protocol of a port, with its time limits.
#[derive(Clone, Copy, Debug)]
pub(super) enum Protocol {
    /// HTTP/1, for everybody.
    Projects {
        /// For the whole head of a request, from the connection's begin or the end of the answer before.
        head: Duration,
    },
    /// HTTP/2 or HTTP/1.1, for those who authenticate.
    Fleet {
        /// Within so long a connection has to authenticate.
        authenticate_within: Duration,
        /// A connection that is silent for so long is asked whether it lives: frees what a vanished host
        /// held. With HTTP/1.1 it is closed if it is idle for so long.
        keepalive: Duration,
    },
}

/// What is spoken on a connection, with its time limit: as in [`Protocol`].
enum Http {
    One { head: Duration },
    Two { keepalive: Duration },
}

impl Protocol {
    const fn spoken(self, is_http2: bool) -> Http {
        match self {
            Self::Projects { head } => Http::One { head },
            Self::Fleet { keepalive, .. } if is_http2 => Http::Two { keepalive },
            Self::Fleet { keepalive, .. } => Http::One { head: keepalive },
        }
    }
}

/// How TLS is spoken at a port.
#[derive(Clone)]
pub(super) enum Tls {
    /// Not at all.
    #[cfg(test)]
    None {
        /// Nobody agrees on that without it.
        is_http2: bool,
    },
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
pub(super) const HANDSHAKE: Duration = Duration::from_secs(5);
/// The first byte of whoever speaks TLS.
const TLS_HANDSHAKE: u8 = 22;
/// What an evicted connection takes to close.
const LEAVING: Duration = Duration::from_millis(10);

/// Serves until `stop` is true and all requests in progress are answered.
pub(super) async fn serve(
    listener: TcpListener,
    router: Router,
    bounds: Bounds,
    tls: Tls,
    descriptors: Descriptors,
    refusals: Refusals,
    mut stop: watch::Receiver<bool>,
) {
    let pool = ConnectionPool::new(bounds, descriptors);
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
        let refusals = refusals.clone();
        connections.spawn(async move {
            let handle = permit.handle.clone();
            tokio::select! {
                () = converse(stream, router, handle.clone(), bounds.protocol, tls, &refusals, stop) => {}
                () = until_evicted(evicted) => tracing::trace!("a connection was evicted for another"),
                () = unauthenticated(&handle, bounds.protocol) => tracing::trace!("closed: not authenticated within its time limit"),
            }
            drop(permit);
        });
    }
    drop(listener);
    while connections.join_next().await.is_some() {}
}

/// The connections of all ports of a process, which have its descriptors between them: one that finds none
/// left may take what a flood has at another port.
#[derive(Clone, Default)]
pub(super) struct Descriptors(Arc<Mutex<Vec<Connections>>>);

impl Descriptors {
    fn share(&self, connections: &Connections) {
        fallow_daemon::lock(&self.0).push(connections.clone());
    }

    /// Evicts a connection of an address that has more than its part of a port, if there is any.
    fn evict_of_flood(&self) -> bool {
        fallow_daemon::lock(&self.0).iter().any(Connections::evict_of_flood)
    }
}

/// The places of one port for connections.
struct ConnectionPool {
    bounds: Bounds,
    places: Arc<Semaphore>,
    connections: Connections,
    descriptors: Descriptors,
    not_accepted: RateLimit,
    crowded: RateLimit,
    flooded: RateLimit,
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
    fn new(bounds: Bounds, descriptors: Descriptors) -> Self {
        let open = match bounds.protocol {
            Protocol::Projects { .. } => Access::Public,
            Protocol::Fleet { authenticate_within, .. } => {
                Access::Authenticated { within: authenticate_within }
            }
        };
        let connections = Connections::new(open, bounds.timeouts, bounds.connections, bounds.kept());
        descriptors.share(&connections);
        Self {
            bounds,
            places: Arc::new(Semaphore::new(bounds.connections)),
            connections,
            descriptors,
            not_accepted: RateLimit::new(),
            crowded: RateLimit::new(),
            flooded: RateLimit::new(),
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

    /// Says who opens connections and says nothing on them.
    fn say_flooded(&self, from: SocketAddr) {
        let Some(silent) = self.connections.beyond_its_part(from.ip()) else { return };
        let Some(times) = self.flooded.allow() else { return };
        tracing::warn!(
            from = %from.ip(),
            silent,
            times,
            "an address opens connections and says nothing on them: its older ones are closed, others are served as before; if it \
             is none of your machines, keep it out with a packet filter"
        );
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
        Ok((stream, from)) => {
            // Messages are small and waited for; without this they wait for each other. A connection that is
            // gone already says so at the first read.
            let _ = stream.set_nodelay(true);
            let place = pool.place().await?;
            let (handle, evicted) = pool.connections.enter(Some(from.ip()));
            pool.say_flooded(from);
            Some((stream, ConnectionPermit { handle, _place: place }, evicted))
        }
        Err(error) => {
            if let Some(times) = pool.not_accepted.allow() {
                tracing::warn!(%error, times, "a connection is not accepted");
            }
            let is_exhausted =
                [Some(Errno::MFILE), Some(Errno::NFILE)].contains(&Errno::from_io_error(&error));
            let is_freed = is_exhausted
                && (pool.descriptors.evict_of_flood() || timeout(PAUSE, pool.evict_one()).await.is_ok());
            match is_freed {
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
    refusals: &Refusals,
    stop: impl Future<Output = ()>,
) {
    if let Protocol::Projects { .. } = protocol {
        // Without it there is more memory for this one, and that is all.
        let _ = sockopt::set_socket_send_buffer_size(&stream, SENT);
    }
    if let Protocol::Fleet { keepalive, .. } = protocol {
        ask_whether_it_lives(&stream, keepalive);
    }
    let from = stream.peer_addr().ok();
    // Whoever serves the request may ask it for its address.
    let address = TcpConnectInfo { local_addr: None, remote_addr: from };
    let router = Extension(address).layer(Extension(handle.clone()).layer(router));
    let tracked = |stream| TrackedStream::new(stream, &handle);
    let mut stop = pin!(stop);
    match tls {
        #[cfg(test)]
        Tls::None { is_http2 } => {
            let http = protocol.spoken(is_http2);
            speak(tracked(stream), TowerToHyperService::new(router), http, stop).await;
        }
        Tls::Mutual(_) if !speaks_tls(&stream).await => refusals.plain(stream, from).await,
        Tls::Mutual(config) => {
            let accepted = timeout(HANDSHAKE, fallow_tls::accept(config, tracked(stream))).await;
            let Some((stream, peer)) = refusals.greeted(accepted, from) else { return };
            let service = TowerToHyperService::new(Extension(Arc::new(peer)).layer(router));
            let http = protocol.spoken(fallow_tls::speaks_http2(&stream));
            speak(stream, service, http, stop).await;
        }
        Tls::Public { config, allows_plain, is_public_plain } => {
            let Http::One { head } = protocol.spoken(false) else { return };
            let begins = tokio::select! {
                is_tls = timeout(head, speaks_tls(&stream)) => is_tls,
                () = stop.as_mut() => return,
            };
            // Whoever says nothing for as long as a request may take asks for nothing.
            let Ok(is_tls) = begins else { return };
            if is_tls {
                let accepted = timeout(HANDSHAKE, fallow_tls::accept_anybody(config, tracked(stream))).await;
                let Some(stream) = refusals.greeted(accepted, from) else { return };
                speak(stream, TowerToHyperService::new(router), protocol.spoken(false), stop).await;
            } else if allows_plain {
                let via = if is_public_plain { Via::Public } else { Via::Plain };
                let service = TowerToHyperService::new(Extension(via).layer(router));
                speak(tracked(stream), service, protocol.spoken(false), stop).await;
            } else {
                refusals.plain(stream, from).await;
            }
        }
    }
}

/// Has the kernel ask a client that is silent whether it lives: over HTTP/1.1 nobody else does while an
/// answer goes on.
fn ask_whether_it_lives(stream: &TcpStream, keepalive: Duration) {
    // Where that cannot be, what a vanished client held is freed when something is sent to it.
    let _ = sockopt::set_tcp_keepidle(stream, keepalive);
    let _ = sockopt::set_tcp_keepintvl(stream, keepalive / 6);
    let _ = sockopt::set_tcp_keepcnt(stream, 3);
    let _ = sockopt::set_socket_keepalive(stream, true);
}

/// Whether what a client begins with is a TLS handshake. Waits for its first byte; whoever sends none is cut
/// off elsewhere.
async fn speaks_tls(stream: &TcpStream) -> bool {
    let mut first = [0];
    !matches!(stream.peek(&mut first).await, Ok(1)) || first[0] == TLS_HANDSHAKE
}

/// Serves the requests of a connection.
async fn speak<S, V>(stream: S, service: V, http: Http, stop: impl Future<Output = ()>)
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
    let ended = match http {
        Http::One { head } => {
            let mut builder = http1::Builder::new();
            builder.timer(TokioTimer::new()).header_read_timeout(head).max_buf_size(BUFFER);
            let connection = builder.serve_connection(stream, service);
            until(connection, |connection| connection.graceful_shutdown(), stop).await
        }
        Http::Two { keepalive } => {
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
#[path = "port_tests.rs"]
mod tests;
