//! Many connections of nobody, at both ports of a coordinator with few descriptors.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use fallow_coordinator::daemon::DaemonFile;
use fallow_proto::fleet::v1::fleet_client::FleetClient;
use fallow_proto::operator::v1::ListHostsRequest;
use tokio::time::timeout;

use crate::peers::{Agent, Client, connect, enroll, hello, host, tokens};
use crate::support;

/// Whatever happens here happens within a few times the patience with guests.
const LATER: Duration = Duration::from_secs(60);

/// A coordinator in DIR/coordinator with these limits on descriptors, soft and hard.
fn with_descriptors(dir: &Path, soft: u32, hard: u32) -> support::Running {
    let mut command = Command::new("prlimit");
    command.arg(format!("--nofile={soft}:{hard}")).arg(env!("CARGO_BIN_EXE_fallow"));
    command.args(["coordinator", "run", "--heartbeat", "60s", "--dir"]).arg(dir.join("coordinator"));
    support::Running::of(command, dir)
}

fn address(url: &str) -> SocketAddr {
    url.trim_start_matches("http://").trim_end_matches('/').parse().unwrap()
}

/// So many connections that say nothing.
fn silent(url: &str, count: usize) -> Vec<TcpStream> {
    (0..count).map(|_| TcpStream::connect(address(url)).unwrap()).collect()
}

async fn operator(dir: &Path, file: &DaemonFile) -> Client {
    let token = std::fs::read_to_string(dir.join("coordinator/operator.token")).unwrap();
    connect(&file.fleet, token.trim()).await.unwrap()
}

/// Both ports answer whoever comes.
async fn both_answer(dir: &Path, file: &DaemonFile) {
    let hosts = async { operator(dir, file).await.list_hosts(ListHostsRequest {}).await };
    timeout(LATER, hosts).await.expect("the fleet's port answers").unwrap();
    let url = file.http.clone();
    let page = tokio::task::spawn_blocking(move || {
        let mut stream = TcpStream::connect(address(&url)).unwrap();
        stream.set_read_timeout(Some(LATER)).unwrap();
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
    let token = tokens(&mut operator(dir.path(), &file).await, 1).await.remove(0);
    let mut client = FleetClient::connect(file.fleet.clone()).await.unwrap();
    let identity = enroll(&mut client, &token).await.unwrap();
    let mut agent = Agent::open_at(&file.fleet, hello(&identity, "e", 0)).await;
    agent.snapshot(1, vec![host()]).await;
    agent.acknowledged(1).await;
    let silent = silent(&file.fleet, 400);
    both_answer(dir.path(), &file).await;
    for mut stream in silent {
        stream.set_read_timeout(Some(LATER)).unwrap();
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

#[tokio::test]
async fn r6_10_where_descriptors_are_scarce_connections_of_nobody_give_way_at_both_ports() {
    let dir = tempfile::tempdir().unwrap();
    // Fewer than both ports have places for, with what the store takes.
    let mut running = with_descriptors(dir.path(), 64, 64);
    let file = DaemonFile::read(&dir.path().join("coordinator")).unwrap();
    let silent = (silent(&file.fleet, 100), silent(&file.http, 100));
    for _ in 0..3 {
        both_answer(dir.path(), &file).await;
    }
    drop(silent);
    assert_eq!(running.stop(), Some(0));
}
