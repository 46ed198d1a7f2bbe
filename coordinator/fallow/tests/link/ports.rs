//! Many connections of nobody, at both ports of a coordinator with few descriptors.

use std::convert::Infallible;
use std::future::poll_fn;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::pin::pin;
use std::process::Command;

use axum::body::{Body, Bytes, HttpBody as _};
use fallow_coordinator::daemon::DaemonFile;
use fallow_coordinator::operator::TokenFile;
use fallow_proto::operator::v1::ListHostsRequest;
use fallow_tls::AccessString;
use futures_util::{StreamExt as _, stream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tonic::codegen::{Service as _, http};
use tonic::transport::Channel;

use crate::peers::{Agent, Client, PATIENCE, channel, connect, enroll, hello, host, tokens};
use crate::support;

/// A coordinator in DIR/coordinator with these limits on descriptors, soft and hard.
fn with_descriptors(dir: &Path, soft: u32, hard: u32) -> support::Running {
    let mut command = Command::new("prlimit");
    command.arg(format!("--nofile={soft}:{hard}")).arg(env!("CARGO_BIN_EXE_fallow"));
    command.args(["coordinator", "run", "--heartbeat", "10m", "--dir"]).arg(dir.join("coordinator"));
    support::Running::of(command, dir)
}

fn address(url: &str) -> SocketAddr {
    url.trim_start_matches("http://").trim_start_matches("https://").trim_end_matches('/').parse().unwrap()
}

/// So many connections that say nothing.
fn silent(url: &str, count: usize) -> Vec<TcpStream> {
    (0..count).map(|_| TcpStream::connect(address(url)).unwrap()).collect()
}

fn access(dir: &Path) -> AccessString {
    TokenFile::read(&dir.join("coordinator/operator.token")).unwrap()
}

async fn operator(dir: &Path) -> Client {
    connect(&access(dir)).await.unwrap()
}

/// Both ports answer whoever comes.
async fn both_answer(dir: &Path, file: &DaemonFile) {
    let hosts = async { operator(dir).await.list_hosts(ListHostsRequest::default()).await };
    timeout(PATIENCE, hosts).await.expect("the fleet's port answers").unwrap();
    let url = file.told.http.clone();
    let page = tokio::task::spawn_blocking(move || {
        let mut stream = TcpStream::connect(address(&url)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(b"GET /none/ HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    });
    assert!(page.await.unwrap().starts_with("HTTP/1.1 404"));
}

#[tokio::test]
async fn r6_10_connections_that_say_nothing_keep_nobody_out_of_the_fleets_port_and_are_closed() {
    let dir = tempfile::tempdir().unwrap();
    let mut running = with_descriptors(dir.path(), 256, 256);
    let file = DaemonFile::read(&dir.path().join("coordinator")).unwrap();
    let token = tokens(&mut operator(dir.path()).await, 1).await.remove(0);
    let identity = enroll(&access(dir.path()), &token).await.unwrap();
    let mut agent = Agent::open(&identity, hello(&identity, "e", 0)).await;
    agent.snapshot(1, vec![host()]).await;
    agent.acknowledged(1).await;
    let silent = silent(&file.told.fleet, 400);
    both_answer(dir.path(), &file).await;
    for mut stream in silent {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        // What is said to it first are settings of HTTP/2; in the end it is closed, with a reset or without.
        if let Err(error) = stream.read_to_end(&mut Vec::new()) {
            assert_ne!(error.kind(), std::io::ErrorKind::WouldBlock, "it is still open");
        }
    }
    // The link stayed all the time.
    agent.delta(2, vec![host()], &[]).await;
    agent.acknowledged(2).await;
    assert_eq!(running.stop(), Some(0));
}

#[tokio::test]
async fn r6_10_a_coordinator_takes_all_the_descriptors_that_it_may_have() {
    let dir = tempfile::tempdir().unwrap();
    let mut running = with_descriptors(dir.path(), 64, 1_024);
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", running.0.id())).unwrap();
    let files = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    assert_eq!(files.split_whitespace().collect::<Vec<_>>()[3..5], ["1024", "1024"]);
    assert_eq!(running.stop(), Some(0));
}

/// How many descriptors a process has open.
fn open(running: &support::Running) -> usize {
    std::fs::read_dir(format!("/proc/{}/fd", running.0.id())).unwrap().count()
}

#[tokio::test]
async fn r6_10_where_descriptors_are_scarce_connections_of_nobody_give_way_at_both_ports() {
    let dir = tempfile::tempdir().unwrap();
    let mut running = with_descriptors(dir.path(), 1_024, 1_024);
    let file = DaemonFile::read(&dir.path().join("coordinator")).unwrap();
    // Far fewer than both ports have places for.
    let most = open(&running) + 20;
    let limit =
        ["prlimit".to_owned(), format!("--pid={}", running.0.id()), format!("--nofile={most}:{most}")];
    assert!(Command::new(&limit[0]).args(&limit[1..]).status().unwrap().success());
    let silent = (silent(&file.told.fleet, 100), silent(&file.told.http, 100));
    // All of them are in use for a moment only, again and again.
    support::wait_for("no descriptor is left", || {
        let log = std::fs::read_to_string(dir.path().join("log")).unwrap();
        log.contains("a connection is not accepted").then_some(())
    });
    for _ in 0..3 {
        both_answer(dir.path(), &file).await;
    }
    drop(silent);
    assert_eq!(running.stop(), Some(0));
}

/// The largest size that a process has had, in KiB.
fn peak(running: &support::Running) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", running.0.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}

/// A call whose message is said to have 7 MiB: 4 MiB of it come.
async fn unfinished(mut channel: Channel, method: &str) {
    let message = stream::iter(vec![Ok::<_, Infallible>(Bytes::from_static(&[0; 64 << 10])); 64]);
    let begin = stream::iter([Ok(Bytes::from_static(&[0, 0, 0x70, 0, 0]))]);
    let body = tonic::body::Body::new(Body::from_stream(begin.chain(message).chain(stream::pending())));
    let request = http::Request::post(format!("http://h/fallow.fleet.v1.Fleet/{method}"));
    let request = request.header("content-type", "application/grpc").body(body).unwrap();
    poll_fn(|context| channel.poll_ready(context)).await.unwrap();
    // It is refused, or the connection is cut off.
    if let Ok(answer) = channel.call(request).await {
        let mut answer = pin!(answer.into_body());
        while let Some(Ok(_)) = poll_fn(|context| answer.as_mut().poll_frame(context)).await {}
    }
}

#[tokio::test]
async fn r6_10_messages_of_nobody_that_never_end_take_no_memory() {
    let dir = tempfile::tempdir().unwrap();
    let mut running = with_descriptors(dir.path(), 256, 256);
    let file = DaemonFile::read(&dir.path().join("coordinator")).unwrap();
    let before = peak(&running);
    let channel = channel(&access(dir.path()), None).await.unwrap();
    let calls: Vec<_> = (0..24)
        .map(|number| {
            let method = if number % 2 == 0 { "Enroll" } else { "Link" };
            tokio::spawn(unfinished(channel.clone(), method))
        })
        .collect();
    for call in calls {
        timeout(PATIENCE, call).await.expect("it ends").unwrap();
    }
    let took = peak(&running) - before;
    assert!(took < 16 << 10, "{took} KiB");
    both_answer(dir.path(), &file).await;
    assert_eq!(running.stop(), Some(0));
}

#[tokio::test]
async fn r6_10_operators_are_served_though_agents_take_all_places() {
    /// Of 128 descriptors.
    const PLACES: usize = 48;
    let dir = tempfile::tempdir().unwrap();
    let mut running = with_descriptors(dir.path(), 128, 128);
    let file = DaemonFile::read(&dir.path().join("coordinator")).unwrap();
    let tokens = tokens(&mut operator(dir.path()).await, PLACES as u32 + 4).await;
    let (welcome, mut welcomed) = mpsc::unbounded_channel();
    let mut links = JoinSet::new();
    for token in tokens {
        let identity = enroll(&access(dir.path()), &token).await.unwrap();
        let welcome = welcome.clone();
        links.spawn(async move {
            let mut agent = Agent::open(&identity, hello(&identity, "e", 0)).await;
            let mut welcome = Some(welcome);
            while let Ok(Some(_)) = agent.from.message().await {
                welcome.take().map(|welcome| welcome.send(()));
            }
        });
    }
    for _ in 0..PLACES {
        timeout(PATIENCE, welcomed.recv()).await.expect("as many agents as there are places").unwrap();
    }
    both_answer(dir.path(), &file).await;
    assert_eq!(running.stop(), Some(0));
}
