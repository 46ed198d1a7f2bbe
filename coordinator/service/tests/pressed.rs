//! Calls that are given up, said in pieces, or more in memory than on the wire, of whoever has a certificate,
//! a token, or nothing; beside an operator who does his work (R6.10).
//!
//! `FALLOW_TARGET=DIR FALLOW_TARGET_PID=PID` presses on a coordinator that runs, and measures that process.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests: failures are panics")]
#![allow(clippy::disallowed_methods, reason = "times are measured")]

mod peers;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes};
use fallow_coordinator::daemon::{Coordinator, Options};
use fallow_coordinator::operator::TokenFile;
use fallow_proto::fleet::v1 as wire;
use fallow_proto::operator::v1::{
    CreateOperatorRequest, CreateProjectRequest, InputFile, ListHostsRequest, NewWorkunit, OperatorRole,
    RevokeHostRequest, SubmitRequest,
};
use fallow_tls::{AccessString, Connector, HostCredentials, HostKey, Purpose};
use fallow_work_server::SUBMIT_MAX;
use peers::{Agent, Client, Identity, PATIENCE, add_app_version, channel, connect, enroll, hello, tokens};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tonic::codegen::{Service as _, http};
use tonic::transport::Channel;
use wire::from_agent::Body as Said;
use wire::from_coordinator::Body as Heard;

const MIB: usize = 1 << 20;

/// The memory of this process is measured, by one test at a time.
static ALONE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

struct Target {
    _alone: tokio::sync::MutexGuard<'static, ()>,
    access: AccessString,
    owner: Client,
    process: String,
    coordinator: Option<Coordinator>,
    _dir: tempfile::TempDir,
}

impl Target {
    async fn start() -> Self {
        let alone = ALONE.lock().await;
        let dir = tempfile::tempdir().unwrap();
        let (access, process, coordinator) = match std::env::var("FALLOW_TARGET") {
            Ok(target) => {
                let access = TokenFile::read(&std::path::Path::new(&target).join("operator.token")).unwrap();
                (access, std::env::var("FALLOW_TARGET_PID").unwrap(), None)
            }
            Err(_) => {
                let coordinator = Coordinator::start(Options::at(dir.path())).await.unwrap();
                (coordinator.access().clone(), "self".to_owned(), Some(coordinator))
            }
        };
        let owner = connect(&access).await.unwrap();
        Self { _alone: alone, access, owner, process, coordinator, _dir: dir }
    }

    async fn project(&mut self) {
        let request = CreateProjectRequest { name: "sieve".into(), share: 50.0, ..Default::default() };
        if self.owner.create_project(request).await.is_ok() {
            add_app_version(&mut self.owner, "sieve", "app").await;
        }
    }

    async fn operator(&mut self, name: &str, role: OperatorRole) -> AccessString {
        let projects = if role == OperatorRole::Submitter { vec!["sieve".to_owned()] } else { Vec::new() };
        let name = format!("{name}{}", std::process::id());
        let request = CreateOperatorRequest { name, role: role.into(), projects, ..Default::default() };
        let access = self.owner.create_operator(request).await.unwrap().into_inner().access;
        AccessString::parse(&access, Purpose::Operator).unwrap()
    }

    async fn host(&mut self) -> Identity {
        let token = tokens(&mut self.owner, 1).await.remove(0);
        enroll(&self.access, &token).await.unwrap()
    }

    fn resident(&self) -> usize {
        resident(&self.process)
    }

    async fn stop(self) {
        if let Some(coordinator) = self.coordinator {
            coordinator.stop().await.unwrap();
        }
    }
}

fn resident(process: &str) -> usize {
    let pages = std::fs::read_to_string(format!("/proc/{process}/statm")).unwrap();
    pages.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * rustix::param::page_size()
}

/// How long an operator's listing takes, and the memory, as long as this goes on: the most of both.
async fn watched(target: &mut Target, over: Arc<AtomicBool>) -> (Duration, usize) {
    let (process, most) = (target.process.clone(), Arc::new(AtomicUsize::new(0)));
    let seen = most.clone();
    let looking = tokio::spawn(async move {
        loop {
            seen.fetch_max(resident(&process), Ordering::Relaxed);
            sleep(Duration::from_millis(20)).await;
        }
    });
    let mut slowest = Duration::ZERO;
    while !over.load(Ordering::Relaxed) {
        let began = Instant::now();
        timeout(PATIENCE, target.owner.list_hosts(ListHostsRequest::default())).await.unwrap().unwrap();
        slowest = slowest.max(began.elapsed());
        sleep(Duration::from_millis(50)).await;
    }
    looking.abort();
    (slowest, most.load(Ordering::Relaxed))
}

fn in_a_while(time: Duration) -> Arc<AtomicBool> {
    let over = Arc::new(AtomicBool::new(false));
    let tell = over.clone();
    tokio::spawn(async move {
        sleep(time).await;
        tell.store(true, Ordering::Relaxed);
    });
    over
}

/// HTTP/2 by hand: calls that are said whole and given up a moment later, one after the other, so that a
/// dozen are open at once. Gives how many were begun.
async fn give_up(
    access: AccessString,
    credentials: Option<Arc<HostCredentials>>,
    path: &'static str,
    message: Vec<u8>,
    over: Arc<AtomicBool>,
) -> usize {
    let mut begun = 0;
    while !over.load(Ordering::Relaxed) {
        let connector = Connector::new(access.authority, credentials.clone()).unwrap();
        if let Ok(stream) = connector.connect(&access.addresses[0]).await {
            let _ = give_up_over(stream, path, &message, &over, &mut begun).await;
        }
    }
    begun
}

fn frame(kind: u8, flags: u8, stream: u32, content: &[u8]) -> Vec<u8> {
    let length = u32::try_from(content.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), content].concat()
}

fn head_of(path: &str) -> Vec<u8> {
    let fields = [
        (":method", "POST"),
        (":scheme", "https"),
        (":path", path),
        (":authority", "h"),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
    ];
    let text = |text: &str| [&[text.len() as u8], text.as_bytes()].concat();
    fields.iter().flat_map(|(name, value)| [vec![0], text(name), text(value)].concat()).collect()
}

async fn give_up_over(
    stream: impl tokio::io::AsyncRead + tokio::io::AsyncWrite,
    path: &str,
    message: &[u8],
    over: &AtomicBool,
    begun: &mut usize,
) -> std::io::Result<()> {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    const OPEN: usize = 12;
    let (mut reads, mut writes) = tokio::io::split(stream);
    // What may be sent on all streams together.
    let window = tokio::sync::Semaphore::new(65_535);
    let (tell, mut answered) = tokio::sync::mpsc::unbounded_channel();
    let read = async {
        let mut head = [0; 9];
        loop {
            reads.read_exact(&mut head).await?;
            let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
            let mut content = vec![0; length];
            reads.read_exact(&mut content).await?;
            match (head[3], &head[5..]) {
                (8, [0, 0, 0, 0]) => {
                    window.add_permits(u32::from_be_bytes(content.try_into().unwrap()) as usize);
                }
                (7, _) => return Ok(()),
                (1, _) => drop(tell.send(u32::from_be_bytes(head[5..9].try_into().unwrap()))),
                _ => {}
            }
        }
    };
    let write = async {
        writes.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await?;
        writes.write_all(&frame(4, 0, 0, &[])).await?;
        let head = head_of(path);
        let content = [&[0][..], &u32::try_from(message.len()).unwrap().to_be_bytes(), message].concat();
        for number in 0_u32.. {
            if over.load(Ordering::Relaxed) {
                break;
            }
            let stream = 2 * number + 1;
            let mut said = frame(1, 4, stream, &head);
            window.acquire_many(content.len() as u32).await.unwrap().forget();
            let parts = content.chunks(16_384);
            let last = parts.len() - 1;
            for (at, part) in parts.enumerate() {
                said.extend(frame(0, u8::from(at == last), stream, part));
            }
            if number as usize >= OPEN && path.ends_with("Link") {
                // As soon as its answer begins.
                let Some(begun) = answered.recv().await else { break };
                said.extend(frame(3, 0, begun, &8_u32.to_be_bytes()));
            } else if number as usize >= OPEN {
                said.extend(frame(3, 0, stream - 2 * OPEN as u32, &8_u32.to_be_bytes()));
            }
            writes.write_all(&said).await?;
            writes.flush().await?;
            *begun += 1;
        }
        Ok(())
    };
    tokio::select! { end = read => end, end = write => end }
}

/// A process that has the link and answers whoever asks whether it is there.
async fn first(identity: &Identity) -> tokio::task::JoinHandle<()> {
    let said = wire::Hello { boot: vec![1; 16], ..hello(identity, "e", 0) };
    let (mut agent, _) = Agent::link(identity, said).await;
    tokio::spawn(async move {
        while let Ok(heard) = agent.next().await {
            match heard {
                Heard::Probe(probe) => {
                    agent.say(Said::ProbeAnswer(wire::ProbeAnswer { number: probe.number })).await;
                }
                Heard::Heartbeat(beat) => agent.say(Said::Heartbeat(beat)).await,
                _ => {}
            }
        }
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn r6_10_a_copied_identity_that_asks_to_part_and_gives_up_delays_no_revocation() {
    let mut target = Target::start().await;
    let identity = target.host().await;
    let others: Vec<_> = [target.host().await, target.host().await].into_iter().collect();
    let began = Instant::now();
    let revoke = |host: &Identity| RevokeHostRequest { host: host.agent_id.clone(), ..Default::default() };
    target.owner.revoke_host(revoke(&others[0])).await.unwrap();
    let quiet = began.elapsed();
    let _first = first(&identity).await;
    // A hundred tickets, none of which is used.
    let mut told = 0;
    for boot in 0..100_u8 {
        let said = wire::Hello { boot: [&[9; 15][..], &[boot]].concat(), ..hello(&identity, "e", 0) };
        let mut copy = Agent::open(&identity, said).await;
        told += usize::from(matches!(copy.next().await, Ok(Heard::Copied(_))));
    }
    println!("{told} tickets; a revocation takes {quiet:?}");
    let request = wire::SeparateRequest {
        ticket: "t".repeat(30_000),
        certificate_request: HostKey::generate().unwrap().certificate_request().unwrap(),
        hostname: "twin".into(),
    };
    let before = target.resident();
    let over = in_a_while(Duration::from_secs(8));
    let message = prost::Message::encode_to_vec(&request);
    let mut pressing = JoinSet::new();
    for _ in 0..4 {
        let path = "/fallow.fleet.v1.Fleet/Separate";
        let credentials = Some(identity.credentials());
        pressing.spawn(give_up(target.access.clone(), credentials, path, message.clone(), over.clone()));
    }
    sleep(Duration::from_secs(2)).await;
    let began = Instant::now();
    let mut owner = target.owner.clone();
    let revoking = revoke(&others[1]);
    let revoked = tokio::spawn(async move {
        let revoked = timeout(PATIENCE, owner.revoke_host(revoking)).await;
        (began.elapsed(), revoked.is_ok_and(|revoked| revoked.is_ok()))
    });
    let (slowest, most) = watched(&mut target, over).await;
    let begun: usize = pressing.join_all().await.into_iter().sum();
    let (after, is_revoked) = revoked.await.unwrap();
    println!(
        "{begun} calls begun; revocation after {after:?} ({is_revoked}), slowest list {slowest:?}, memory {} MiB more",
        most.saturating_sub(before) / MIB
    );
    assert!(is_revoked && after < Duration::from_secs(5) + 10 * quiet, "{after:?}");
    assert!(most.saturating_sub(before) < 300 * MIB, "{most}");
    target.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn r6_10_strangers_who_ask_for_a_link_and_give_up_take_no_memory() {
    let mut target = Target::start().await;
    let before = target.resident();
    let over = in_a_while(Duration::from_secs(8));
    let mut pressing = JoinSet::new();
    for _ in 0..4 {
        let path = "/fallow.fleet.v1.Fleet/Link";
        pressing.spawn(give_up(target.access.clone(), None, path, Vec::new(), over.clone()));
    }
    let (slowest, most) = watched(&mut target, over).await;
    let begun: usize = pressing.join_all().await.into_iter().sum();
    let more = most.saturating_sub(before);
    println!("{begun} calls begun; slowest list {slowest:?}, memory {} MiB more", more / MIB);
    assert!(more < 100 * MIB, "{more}");
    target.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn r6_10_a_copy_that_asks_for_certificates_without_end_keeps_no_host_from_renewing_its_own() {
    let dir = tempfile::tempdir().unwrap();
    // A host's certificate may be renewed once a second.
    let options =
        Options { certificate_life: fallow_domain::Duration::from_secs(100), ..Options::at(dir.path()) };
    let coordinator = Coordinator::start(options).await.unwrap();
    let mut owner = connect(coordinator.access()).await.unwrap();
    let token = tokens(&mut owner, 1).await.remove(0);
    let identity = enroll(coordinator.access(), &token).await.unwrap();
    let over = Arc::new(AtomicBool::new(false));
    let mut pressing = JoinSet::new();
    for _ in 0..2 {
        let mut copy = wire::fleet_client::FleetClient::new(identity.channel().await);
        let certificate_request = identity.key.certificate_request().unwrap();
        let over = over.clone();
        pressing.spawn(async move {
            let mut renewed = 0;
            while !over.load(Ordering::Relaxed) {
                let request = wire::RenewRequest { certificate_request: certificate_request.clone() };
                renewed += u32::from(copy.renew(request).await.is_ok());
            }
            renewed
        });
    }
    let mut newest = std::collections::BTreeSet::new();
    for _ in 0..4 {
        // What anybody was given before is older than the pause by then.
        sleep(Duration::from_millis(1_100)).await;
        let renewed = timeout(PATIENCE, identity.renewed()).await.unwrap().expect("it is refused to nobody");
        newest.insert(renewed.certificate.clone());
    }
    over.store(true, Ordering::Relaxed);
    let others: u32 = pressing.join_all().await.into_iter().sum();
    println!("{others} renewals of its copy");
    assert!(newest.len() == 4 && others > 0, "{} different ones", newest.len());
    coordinator.stop().await.unwrap();
}

/// Begins a call, and gives its answer.
async fn begin(
    mut channel: Channel,
    secret: String,
    method: &str,
    body: Body,
) -> Option<http::Response<Body>> {
    let request = http::Request::post(format!("http://h/fallow.operator.v1.Operator/{method}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .header("authorization", format!("Bearer {secret}"))
        .body(tonic::body::Body::new(body))
        .unwrap();
    std::future::poll_fn(|context| channel.poll_ready(context)).await.ok()?;
    Some(channel.call(request).await.ok()?.map(Body::new))
}

#[tokio::test(flavor = "multi_thread")]
async fn r6_10_submissions_of_many_short_workunits_take_no_more_memory_than_a_submitter_may() {
    let mut target = Target::start().await;
    target.project().await;
    let greedy = target.operator("eve", OperatorRole::Submitter).await;
    let workunit = NewWorkunit { application: "app".into(), flops_estimate: 1e9, ..Default::default() };
    // As many as are taken, and as many as are read before they are refused.
    let messages = [SUBMIT_MAX, 100_000].map(|count| {
        let request = SubmitRequest {
            project: "sieve".into(),
            workunits: vec![workunit.clone(); count],
            check_only: true,
            ..Default::default()
        };
        let request = prost::Message::encode_to_vec(&request);
        println!("{} KiB of {count} workunits", request.len() >> 10);
        Bytes::from([&[0][..], &u32::try_from(request.len()).unwrap().to_be_bytes(), &request].concat())
    });
    let before = target.resident();
    let mut pressing = JoinSet::new();
    for _ in 0..2 {
        let channel = channel(&target.access, None).await.unwrap();
        for message in messages.iter().cycle().take(8) {
            let (channel, secret, message) = (channel.clone(), greedy.secret.clone(), message.clone());
            pressing.spawn(async move {
                for _ in 0..2 {
                    let _ =
                        begin(channel.clone(), secret.clone(), "Submit", Body::from(message.clone())).await;
                }
            });
        }
    }
    let over = Arc::new(AtomicBool::new(false));
    let tell = over.clone();
    let all = tokio::spawn(async move {
        let _ =
            timeout(Duration::from_secs(60), async { while pressing.join_next().await.is_some() {} }).await;
        tell.store(true, Ordering::Relaxed);
    });
    let (slowest, most) = watched(&mut target, over).await;
    all.await.unwrap();
    let more = most.saturating_sub(before);
    println!("slowest list {slowest:?}, memory {} MiB more", more / MIB);
    assert!(more < 500 * MIB, "{} MiB", more / MIB);
    target.stop().await;
}

/// The C library would keep most of it, for each thread that took some of it.
#[tokio::test(flavor = "multi_thread")]
async fn r6_10_what_long_messages_took_of_the_memory_is_given_back() {
    let mut target = Target::start().await;
    target.project().await;
    let before = target.resident();
    let input = |number: usize| InputFile {
        open_name: format!("in{number}"),
        content: vec![7; 100 << 10],
        ..Default::default()
    };
    let workunit = NewWorkunit {
        application: "app".into(),
        flops_estimate: 1e9,
        inputs: (0..100).map(input).collect(),
        ..Default::default()
    };
    let mut sending = JoinSet::new();
    for number in 0..4 {
        let eve = target.operator(&format!("eve{number}"), OperatorRole::Submitter).await;
        let workunits = vec![workunit.clone(); 4];
        let request =
            SubmitRequest { project: "sieve".into(), workunits, check_only: true, ..Default::default() };
        let mut client = connect(&eve).await.unwrap();
        sending.spawn(async move {
            for _ in 0..6 {
                client.submit(request.clone()).await.unwrap();
            }
        });
    }
    let over = Arc::new(AtomicBool::new(false));
    let tell = over.clone();
    let all = tokio::spawn(async move {
        while sending.join_next().await.is_some() {}
        tell.store(true, Ordering::Relaxed);
    });
    let (_, most) = watched(&mut target, over).await;
    all.await.unwrap();
    println!("{} MiB more", most.saturating_sub(before) / MIB);
    // The longer it takes, the longer it is until the next time.
    let given_back = timeout(Duration::from_secs(180), async {
        while target.resident().saturating_sub(before) > 80 * MIB {
            sleep(Duration::from_millis(50)).await;
        }
    });
    let is_given_back = given_back.await.is_ok();
    let left = target.resident().saturating_sub(before) / MIB;
    println!("{left} MiB of it left");
    assert!(is_given_back, "{left} MiB");
    target.stop().await;
}
