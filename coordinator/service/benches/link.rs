//! Deltas per second over the fleet link, against a bare tonic stream that carries the same messages over the
//! same TLS, with a host's certificate on each connection.
//!
//! Both sides of both run in this process over real loopback sockets, with the agents on threads of their
//! own. The coordinator is the real one: it checks, stores in its real store (group commit), keeps its
//! totals, acknowledges. The bare server decodes each message and acknowledges the newest. Agents keep eight
//! messages under way, as the real one does. `cargo bench -p fallow-coordinator --bench link`; with any other
//! argument than `--bench` (as in `cargo test --benches`) it makes a short run of it.

mod bare;
#[path = "../tests/peers/mod.rs"]
mod peers;

use std::time::{Duration, Instant};

use bare::Bare;
use fallow_coordinator::daemon::{Coordinator, Options};
use fallow_coordinator::fleet::LinkSettings;
use fallow_proto::PROTOCOL;
use fallow_proto::fleet::v1 as wire;
use fallow_proto::operator::v1::CreateTokensRequest;
use peers::{Identity, connect, enroll};
use prost::Message as _;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;
use wire::fleet_client::FleetClient;
use wire::from_agent::Body as Said;
use wire::from_coordinator::Body as Heard;

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Messages that an agent keeps under way.
const WINDOW: u64 = 8;
const URL: &str = "http://127.0.0.1:20000/mersenne/";

fn main() -> Result<(), Failure> {
    let is_bench = std::env::args().any(|argument| argument == "--bench");
    let time = if is_bench { Duration::from_secs(5) } else { Duration::from_millis(300) };
    println!("one delta: {} bytes, two entries; each figure over {time:?}", delta(1).encode_to_vec().len());
    println!("{:>7} {:>14} {:>14} {:>7}", "agents", "fleet link /s", "bare tonic /s", "ratio");
    for agents in [1, 10, 100, 1_000] {
        let link = measure(agents, time, real)?;
        let bare = measure(agents, time, bare)?;
        println!("{agents:>7} {link:>14.0} {bare:>14.0} {:>7.2}", link / bare);
    }
    Ok(())
}

/// A server: where it is, and the identities of its agents.
struct Server {
    identities: Vec<Identity>,
    _running: Running,
}

enum Running {
    Real { _coordinator: Box<Coordinator>, _dir: tempfile::TempDir },
    Bare(#[expect(dead_code, reason = "it lives as long as the measurement")] Bare),
}

fn measure<F>(agents: usize, time: Duration, start: fn(usize) -> F) -> Result<f64, Failure>
where
    F: Future<Output = Result<Server, Failure>> + Send + 'static,
{
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let rate = runtime.block_on(async move {
        let server = start(agents).await?;
        let mut running = Vec::new();
        for identity in &server.identities {
            running.push(tokio::spawn(agent(identity.clone(), time)));
        }
        let mut rate = 0.0;
        for agent in running {
            rate += agent.await??;
        }
        Ok::<_, Failure>(rate)
    });
    runtime.shutdown_timeout(Duration::from_secs(1));
    rate
}

/// Sends deltas for so long, and gives how many were acknowledged per second.
async fn agent(identity: Identity, time: Duration) -> Result<f64, Failure> {
    let mut client = FleetClient::new(identity.channel().await);
    let (to, outgoing) = mpsc::channel(16);
    let say = |body| wire::FromAgent { traceparent: String::new(), body: Some(body) };
    to.send(say(Said::Hello(wire::Hello {
        protocol: PROTOCOL,
        agent_id: identity.agent_id,
        agent_version: "bench".into(),
        epoch: "e".into(),
        document_version: 0,
        document_content: String::new(),
        boot: Vec::new(),
        machine: Vec::new(),
    })))
    .await?;
    to.send(say(Said::Snapshot(wire::Snapshot { sequence: 1, entries: Vec::new() }))).await?;
    let mut from = client.link(ReceiverStream::new(outgoing)).await?.into_inner();
    acknowledged(&mut from).await?;
    let (began, mut sent, mut applied) = (Instant::now(), 1, 1);
    while began.elapsed() < time || applied < sent {
        while sent < applied + WINDOW && began.elapsed() < time {
            sent += 1;
            to.send(delta(sent)).await?;
        }
        applied = acknowledged(&mut from).await?;
    }
    Ok((applied - 1) as f64 / began.elapsed().as_secs_f64())
}

async fn acknowledged(from: &mut Streaming<wire::FromCoordinator>) -> Result<u64, Failure> {
    while let Some(message) = from.message().await? {
        if let Some(Heard::Acknowledge(acknowledge)) = message.body {
            return Ok(acknowledge.sequence);
        }
    }
    Err("the stream ended".into())
}

/// What a running task changes: its own entry and its project's.
fn delta(sequence: u64) -> wire::FromAgent {
    let micros = sequence as i64 * 1_000_000;
    let project = wire::ProjectState {
        url: URL.into(),
        name: "mersenne".into(),
        share: 75.0,
        debt_seconds: 1.5,
        cpu_time_micros: micros,
        cpu_in_progress_micros: micros,
        cpu_contested_micros: micros / 2,
        scheduler_rpcs: 12,
        jobs_success: 30,
        ..Default::default()
    };
    let name = "mersenne_0000009792_0000010250_1";
    let task = wire::TaskState {
        project_url: URL.into(),
        name: name.into(),
        phase: wire::TaskPhase::Running.into(),
        cpu_time_micros: micros,
        fraction_done: 0.5,
        deadline_micros: 1_800_000_000_000_000,
        checkpoint_cpu_micros: micros,
    };
    let entry = |key, value| wire::Entry { key, value: Some(value) };
    let entries = vec![
        entry(format!("project/{URL}"), wire::entry::Value::Project(project)),
        entry(format!("task/{URL}/{name}"), wire::entry::Value::Task(task)),
    ];
    let body = Said::Delta(wire::Delta { sequence, entries, removed: Vec::new() });
    wire::FromAgent { traceparent: String::new(), body: Some(body) }
}

/// The real coordinator, with its agents enrolled.
async fn real(agents: usize) -> Result<Server, Failure> {
    let dir = tempfile::tempdir()?;
    // As fast as it goes, which no agent may.
    let link = LinkSettings { messages_a_second: u32::MAX, ..LinkSettings::default() };
    let coordinator = Coordinator::start(Options { link, ..Options::at(dir.path()) }).await?;
    let access = coordinator.access().clone();
    let mut operator = connect(&access).await?;
    let request = CreateTokensRequest { uses: u32::try_from(agents)?, ..Default::default() };
    let token = operator.create_tokens(request).await?.into_inner().tokens.remove(0);
    let mut identities = Vec::new();
    for _ in 0..agents {
        identities.push(enroll(&access, &token).await?);
    }
    let running = Running::Real { _coordinator: Box::new(coordinator), _dir: dir };
    Ok(Server { identities, _running: running })
}

/// A server that does nothing but carry messages, with as many hosts.
async fn bare(agents: usize) -> Result<Server, Failure> {
    let bare = Bare::start().await?;
    let mut identities = Vec::new();
    for _ in 0..agents {
        identities.push(enroll(&bare.access, "").await?);
    }
    Ok(Server { identities, _running: Running::Bare(bare) })
}
