//! Operators who ask for more than they take, or begin more than they end, beside those who do their work
//! (R6.10).
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests: failures are panics")]

mod peers;

use std::convert::Infallible;
use std::future::poll_fn;
use std::path::Path;
use std::time::Duration;

use axum::body::{Body, Bytes};
use fallow_coordinator::daemon::{Coordinator, Options};
use fallow_coordinator::fleet::LinkSettings;
use fallow_proto::fleet::v1 as wire;
use fallow_proto::operator::v1::{
    CreateOperatorRequest, CreateProjectRequest, ListHostsRequest, NewWorkunit, OperatorRole, SubmitRequest,
};
use fallow_tls::{AccessString, Connector, Purpose};
use futures_util::{StreamExt as _, stream};
use peers::{Agent, Client, PATIENCE, add_app_version, connect, enroll, hello, host, tokens};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tonic::codegen::{Service as _, http};
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};
use wire::entry::Value;

const URL: &str = "http://127.0.0.1:1/a/";
/// Of one operator, at the same time.
const CONNECTIONS: usize = 8;
const CALLS_EACH: usize = 16;
/// All that are asked or begun at once; a megabyte of each is more than the calls of one operator may take.
const CALLS: usize = CONNECTIONS * CALLS_EACH;

async fn start(dir: &Path) -> (Coordinator, Client) {
    let link = LinkSettings { heartbeat: Duration::from_hours(1), ..LinkSettings::default() };
    let coordinator = Coordinator::start(Options { link, ..Options::at(dir) }).await.unwrap();
    let owner = connect(coordinator.access()).await.unwrap();
    let mut admin = owner.clone();
    let request = CreateProjectRequest { name: "sieve".into(), share: 50.0, ..Default::default() };
    admin.create_project(request).await.unwrap();
    add_app_version(&mut admin, "sieve", "app").await;
    (coordinator, owner)
}

async fn operator(owner: &mut Client, name: &str, role: OperatorRole) -> AccessString {
    let projects = if role == OperatorRole::Submitter { vec!["sieve".to_owned()] } else { Vec::new() };
    let request =
        CreateOperatorRequest { name: name.into(), role: role.into(), projects, ..Default::default() };
    let access = owner.create_operator(request).await.unwrap().into_inner().access;
    AccessString::parse(&access, Purpose::Operator).unwrap()
}

/// A connection that gives little room for answers.
async fn narrow(access: &AccessString) -> Channel {
    let connector = Connector::new(access.authority, None).unwrap();
    let endpoint = Endpoint::from_static("http://coordinator.fallow.invalid")
        .initial_stream_window_size(65_535)
        .initial_connection_window_size(65_535);
    fallow_tls::dial(&connector, &access.addresses, &endpoint).await.unwrap().channel
}

/// Begins a call, and gives its answer as soon as its head comes.
async fn begin(mut channel: Channel, secret: String, method: &str, body: Body) -> http::Response<Body> {
    let request = http::Request::post(format!("http://h/fallow.operator.v1.Operator/{method}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .header("authorization", format!("Bearer {secret}"))
        .body(tonic::body::Body::new(body))
        .unwrap();
    poll_fn(|context| channel.poll_ready(context)).await.unwrap();
    channel.call(request).await.unwrap().map(Body::new)
}

/// What all calls of one operator begin with on all his connections, none of which he goes on with.
async fn begin_all(
    access: &AccessString,
    method: &'static str,
    body: fn() -> Body,
) -> JoinSet<http::Response<Body>> {
    let mut begun = JoinSet::new();
    for _ in 0..CONNECTIONS {
        let channel = narrow(access).await;
        for _ in 0..CALLS_EACH {
            let (channel, secret) = (channel.clone(), access.secret.clone());
            begun.spawn(async move { begin(channel, secret, method, body()).await });
        }
    }
    begun
}

fn is_refused(answer: &http::Response<Body>) -> bool {
    let Some(status) = Status::from_header_map(answer.headers()) else { return false };
    if status.code() == Code::DeadlineExceeded {
        return false;
    }
    assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
    assert!(status.message().contains("try again"), "{status}");
    true
}

/// This process, with the coordinator in it.
fn resident_bytes() -> usize {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: usize = pages.split(' ').nth(1).unwrap().parse().unwrap();
    pages * rustix::param::page_size()
}

/// A host that says as much as it may.
async fn talkative(coordinator: &Coordinator, owner: &mut Client) {
    let token = tokens(owner, 1).await.remove(0);
    let identity = enroll(coordinator.access(), &token).await.unwrap();
    let (mut agent, _) = Agent::link(&identity, hello(&identity, "e", 0)).await;
    let job = |number: usize| {
        let name = format!("{number:0>255}");
        let task = wire::TaskState { project_url: URL.into(), name: name.clone(), ..Default::default() };
        wire::Entry { key: format!("task/{URL}/{name}"), value: Some(Value::Task(task)) }
    };
    agent.snapshot(1, std::iter::once(host()).chain((0..8_000).map(job)).collect()).await;
    agent.acknowledged(1).await;
}

async fn hosts(client: &mut Client) -> usize {
    let listed = timeout(PATIENCE, client.list_hosts(ListHostsRequest::default())).await.expect("an answer");
    listed.unwrap().into_inner().hosts.len()
}

#[tokio::test]
async fn r6_10_a_viewer_who_takes_no_answers_takes_little_memory_and_keeps_nobody_from_his_work() {
    let dir = tempfile::tempdir().unwrap();
    let (coordinator, mut owner) = start(dir.path()).await;
    for _ in 0..4 {
        talkative(&coordinator, &mut owner).await;
    }
    let greedy = operator(&mut owner, "eve", OperatorRole::Viewer).await;
    let honest = operator(&mut owner, "ann", OperatorRole::Viewer).await;
    let mut honest = connect(&honest).await.unwrap();
    assert_eq!(hosts(&mut honest).await, 4);
    let before = resident_bytes();
    let mut begun = begin_all(&greedy, "ListHosts", || Body::from(vec![0; 5])).await;
    let (mut held, mut refused) = (Vec::new(), 0);
    while held.len() + refused < CALLS {
        // Meanwhile others go on.
        assert_eq!((hosts(&mut honest).await, hosts(&mut owner).await), (4, 4));
        while let Ok(Some(answer)) = timeout(Duration::from_millis(100), begun.join_next()).await {
            let answer = answer.unwrap();
            match is_refused(&answer) {
                true => refused += 1,
                false => held.push(answer),
            }
        }
    }
    // An answer has nine megabytes: all of them would take a gigabyte.
    assert!((2..=16).contains(&held.len()), "{}", held.len());
    let took = resident_bytes().saturating_sub(before);
    assert!(took < 500 << 20, "{took}");
    // What he takes in the end comes whole.
    let mut first = held.pop().unwrap().into_body().into_data_stream();
    drop(held);
    let mut bytes = 0;
    while let Some(part) = timeout(PATIENCE, first.next()).await.expect("it goes on") {
        bytes += part.unwrap().len();
    }
    assert!(bytes > 8 << 20, "{bytes}");
    assert_eq!(hosts(&mut connect(&greedy).await.unwrap()).await, 4);
    coordinator.stop().await.unwrap();
}

/// A request of 40 MB of which a third comes.
fn unfinished() -> Body {
    let announced = 40_u32 << 20;
    let head = Bytes::from([&[0][..], &announced.to_be_bytes()].concat());
    let parts = (0..13).map(|_| Bytes::from(vec![0; 1 << 20]));
    let parts = stream::iter(std::iter::once(head).chain(parts).map(Ok::<_, Infallible>));
    Body::from_stream(parts.chain(stream::pending()))
}

#[tokio::test]
async fn r6_10_a_submitter_who_ends_no_request_takes_little_memory_and_keeps_nobody_from_submitting() {
    let dir = tempfile::tempdir().unwrap();
    let (coordinator, mut owner) = start(dir.path()).await;
    let greedy = operator(&mut owner, "eve", OperatorRole::Submitter).await;
    let honest = operator(&mut owner, "ann", OperatorRole::Submitter).await;
    let mut honest = connect(&honest).await.unwrap();
    let before = resident_bytes();
    let mut begun = begin_all(&greedy, "Submit", unfinished).await;
    let (mut answered, mut refused, mut most) = (0, 0, 0);
    // Those that are read end when nothing more comes, a minute later.
    while answered < CALLS - 16 {
        let workunit = NewWorkunit { application: "app".into(), flops_estimate: 1e9, ..Default::default() };
        let request =
            SubmitRequest { project: "sieve".into(), workunits: vec![workunit; 10], ..Default::default() };
        for client in [&mut honest, &mut owner] {
            let submitted = timeout(PATIENCE, client.submit(request.clone())).await.expect("an answer");
            assert_eq!(submitted.unwrap().into_inner().names.len(), 10);
        }
        while let Ok(Some(answer)) = timeout(Duration::from_millis(100), begun.join_next()).await {
            answered += 1;
            refused += usize::from(is_refused(&answer.unwrap()));
        }
        most = most.max(resident_bytes());
    }
    assert!(refused >= CALLS - 32, "{refused}");
    let took = most.saturating_sub(before);
    assert!(took < 500 << 20, "{took}");
    coordinator.stop().await.unwrap();
}
