use super::*;
use crate::daemon::refusals::Port;
use axum::body::{Body, Bytes, to_bytes};
use axum::http::{Request, StatusCode};
use axum::routing::{get, post};
use fallow_daemon::clock;
use fallow_tls::{Authority, CoordinatorCertificate};
use futures_util::{StreamExt as _, stream};
use std::future::poll_fn;
use std::net::SocketAddr;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::advance;
use tonic::codegen::Service as _;
use tonic::transport::{Channel, Endpoint};

const SOON: Duration = Duration::from_secs(120);
/// Bytes of an answer in one part: more than the kernel holds for a client.
const LARGE: usize = 16 << 20;

const REQUEST: &str = "GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";
const LONG: Duration = Duration::from_secs(3_600);
/// Connections are evicted at once, but for those that take their answer.
const HASTE: Timeouts = Timeouts { silent: Duration::ZERO, grace: Duration::ZERO, stall: LONG, answer: LONG };

fn bounds(head: Duration, connections: usize, timeouts: Timeouts) -> Bounds {
    Bounds { protocol: Protocol::Projects { head }, connections, timeouts }
}

async fn start(bounds: Bounds) -> (SocketAddr, watch::Sender<bool>, tokio::task::JoinHandle<()>) {
    start_speaking(bounds, true).await
}

/// The fleet's port speaks HTTP/2 or HTTP/1.1.
async fn start_speaking(
    bounds: Bounds,
    is_http2: bool,
) -> (SocketAddr, watch::Sender<bool>, tokio::task::JoinHandle<()>) {
    start_with(bounds, Tls::None { is_http2 }).await
}

async fn start_with(
    bounds: Bounds,
    tls: Tls,
) -> (SocketAddr, watch::Sender<bool>, tokio::task::JoinHandle<()>) {
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
    let refusals = Refusals::new(Port::Projects, |_| {});
    let served = serve(listener, router, bounds, tls, Descriptors::default(), refusals, stop.subscribe());
    let server = tokio::spawn(served);
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
async fn r6_10_whoever_says_nothing_at_a_port_with_tls_is_cut_off_in_time_and_holds_up_no_stop() {
    let authority = Authority::create(clock::now()).unwrap().0;
    let names = ["localhost".to_owned()];
    let certificate = CoordinatorCertificate::issue(
        &authority,
        &names,
        clock::now(),
        fallow_domain::Duration::from_hours(24),
    );
    let config = fallow_tls::public_config(Arc::new(certificate.unwrap())).unwrap();
    let tls = Tls::Public { config, allows_plain: true, is_public_plain: true };
    let timeouts = Timeouts { silent: LONG, grace: LONG, ..HASTE };
    let (address, stop, server) =
        start_with(bounds(Duration::from_millis(300), 4, timeouts), tls.clone()).await;
    is_closed(&mut TcpStream::connect(address).await.unwrap()).await;
    stop.send_replace(true);
    timeout(SOON, server).await.unwrap().unwrap();
    // It is cut off at once when the port closes, and not when the time of those is over that do something.
    let (address, stop, server) = start_with(bounds(LONG, 4, timeouts), tls).await;
    let mut silent = TcpStream::connect(address).await.unwrap();
    assert!(talk(address, REQUEST).await.ends_with("here"), "it was let in before");
    stop.send_replace(true);
    is_closed(&mut silent).await;
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
async fn post_bytes(channel: &mut Channel, path: &str, bytes: usize, is_whole: bool) -> Option<StatusCode> {
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
    let pool = ConnectionPool::new(bounds(LONG, 1, Timeouts { grace, ..HASTE }), Descriptors::default());
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

#[tokio::test]
async fn r6_10_over_http_1_1_whoever_is_slow_or_idle_is_cut_off_at_the_fleets_port_as_well() {
    let soon = Duration::from_millis(300);
    let fleet = |authenticate_within, keepalive| Bounds {
        protocol: Protocol::Fleet { authenticate_within, keepalive },
        connections: 100,
        timeouts: HASTE,
    };
    let (address, _stop, server) = start_speaking(fleet(soon, LONG), false).await;
    // Nothing, a part of a head, and a part of a body of nobody.
    for text in
        ["", "POST /known HTTP/1.1\r\nHost: h\r\nX", "POST /read HTTP/1.1\r\nContent-Length: 9\r\n\r\nx"]
    {
        is_closed(&mut say(address, text).await).await;
    }
    server.abort();
    let (address, _stop, server) = start_speaking(fleet(LONG, soon), false).await;
    // Of somebody who is known: what he begins then has to come in time, too.
    let known = "POST /known HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n";
    for then in ["", "POST /known HTTP/1.1\r\nX"] {
        let mut stream = say(address, known).await;
        answered(&mut stream).await;
        stream.write_all(then.as_bytes()).await.unwrap();
        is_closed(&mut stream).await;
    }
    // His body takes its time.
    let mut slow = begun(address).await;
    sleep(soon * 2).await;
    assert!(is_open(&slow));
    slow.write_all(b"x").await.unwrap();
    answered(&mut slow).await;
    server.abort();
}

/// A connection that comes from one of this machine's own addresses.
async fn from(source: &str, address: SocketAddr) -> TcpStream {
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind(format!("{source}:0").parse().unwrap()).unwrap();
    socket.connect(address).await.unwrap()
}

/// Whether the other end keeps a connection: nothing came of it until now.
fn is_open(stream: &TcpStream) -> bool {
    matches!(stream.try_read(&mut [0]), Err(error) if error.kind() == std::io::ErrorKind::WouldBlock)
}

#[tokio::test]
async fn r6_10_a_flood_from_one_address_keeps_nobody_else_out_and_evicts_nobody_else() {
    // Nobody has to go for being silent while this test lasts.
    let timeouts = Timeouts { silent: LONG, grace: LONG, ..HASTE };
    let (address, stop, server) = start(bounds(LONG, 40, timeouts)).await;
    let mut slow = from("127.0.0.2", address).await;
    let mut flood = Vec::new();
    for _ in 0..200 {
        flood.push(from("127.0.0.3", address).await);
    }
    // Others are served at once, as often as they come.
    for source in ["127.0.0.4", "127.0.0.5", "127.0.0.4"] {
        let mut stream = from(source, address).await;
        stream.write_all(REQUEST.as_bytes()).await.unwrap();
        let mut heard = String::new();
        timeout(SOON, stream.read_to_string(&mut heard)).await.expect("an answer").unwrap();
        assert!(heard.ends_with("here"), "{source}: {heard}");
    }
    // The flood's older ones went for them and for its own newer ones.
    for stream in &mut flood[..160] {
        is_closed(stream).await;
    }
    // Whoever was there before, and was as silent, is still served.
    assert!(is_open(&slow));
    slow.write_all(REQUEST.as_bytes()).await.unwrap();
    answered(&mut slow).await;
    drop((slow, flood));
    stop.send_replace(true);
    timeout(SOON, server).await.unwrap().unwrap();
}

#[tokio::test]
async fn r6_10_an_address_that_says_nothing_keeps_a_quarter_of_the_places_when_its_time_is_over() {
    let timeouts = Timeouts { silent: Duration::ZERO, ..HASTE };
    let (address, stop, server) = start(bounds(LONG, 40, timeouts)).await;
    let mut flood = Vec::new();
    for _ in 0..30 {
        flood.push(from("127.0.0.3", address).await);
    }
    let others = from("127.0.0.2", address).await;
    for stream in &mut flood[..20] {
        is_closed(stream).await;
    }
    // All that came before this one are let in by now.
    assert!(talk(address, REQUEST).await.ends_with("here"));
    assert!(flood[20..].iter().all(is_open) && is_open(&others));
    drop((flood, others));
    stop.send_replace(true);
    timeout(SOON, server).await.unwrap().unwrap();
}
