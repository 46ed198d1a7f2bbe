//! From an operator's command to the document on every agent, and what an idle agent costs the coordinator.
//!
//! The coordinator is the real program, as a process of its own. The agents are a load generator in this
//! process: each has a key and a certificate of its own, a TLS connection and a link over a real loopback
//! socket, tells of its host, and answers each document by saying that it follows it. Both share this
//! machine's CPUs.
//!
//! `cargo bench -p fallow --bench fleet` takes 1, 200 and 10,000 agents; with any other argument than
//! `--bench` (as in `cargo test --benches`) 1 and 20. Each agent needs a descriptor here and one in the
//! coordinator; where fewer may be open, there are as many agents as descriptors allow. With
//! `FALLOW_AGENTS=400` it takes so many once.

#[path = "../../service/tests/peers/mod.rs"]
mod peers;
#[allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "helpers of tests fail what they are for")]
#[path = "../tests/support/mod.rs"]
mod support;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fallow_coordinator::operator::TokenFile;
use fallow_proto::fleet::v1 as wire;
use fallow_proto::operator::v1::{
    CreateProjectRequest, CreateTokensRequest, GetDocumentRequest, SetPreferencesRequest,
};
use fallow_tls::AccessString;
use peers::{Agent, Client, connect, enroll, hello, host};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use support::Running;
use tokio::sync::{Semaphore, mpsc};
use wire::from_coordinator::Body as Heard;

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Agents that connect at once.
const AT_ONCE: usize = 64;
/// What an agent cost before there was TLS, and what TLS costs, kilobytes: measured on two cores.
const BEFORE: f64 = 55.0 + 9.0;

fn main() -> Result<(), Failure> {
    let is_bench = std::env::args().any(|argument| argument == "--bench");
    let hard = getrlimit(Resource::Nofile).maximum;
    let _ = setrlimit(Resource::Nofile, Rlimit { current: hard, maximum: hard });
    let most = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    println!(
        "{:>7} {:>10} {:>10} {:>10} {:>12} {:>9} {:>9}",
        "agents", "p50 ms", "p99 ms", "last ms", "kB an agent", "ratio", "joined s"
    );
    let given = std::env::var("FALLOW_AGENTS").ok().map(|given| given.parse()).transpose()?;
    for (agents, rounds) in match given {
        Some(agents) => vec![(agents, 50)],
        None if is_bench => vec![(1, 100), (200, 50), (10_000, 10)],
        None => vec![(1, 5), (20, 3)],
    } {
        // One descriptor an agent, and some for those that enrol and for the rest.
        let possible = usize::try_from(most.saturating_sub(1_000)).unwrap_or(usize::MAX);
        if agents > possible {
            println!("{agents:>7} need more descriptors than the {most} that this process may have: fewer");
        }
        let agents = agents.min(possible);
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        runtime.block_on(measure(agents, rounds))?;
        runtime.shutdown_timeout(Duration::from_secs(5));
    }
    Ok(())
}

async fn measure(agents: usize, rounds: u32) -> Result<(), Failure> {
    let dir = tempfile::tempdir()?;
    let mut coordinator = Running::start(dir.path());
    let access = TokenFile::read(&dir.path().join("coordinator/operator.token"))?;
    let mut operator = connect(&access).await?;
    let project = CreateProjectRequest { name: "mersenne".into(), share: 75.0, ..Default::default() };
    operator.create_project(project).await?;
    let before = resident(&coordinator)?;
    let began = Instant::now();
    let (arrived, mut arrivals) = mpsc::unbounded_channel();
    join(&access, &mut operator, agents, &arrived).await?;
    let joined = began.elapsed();
    let mut times = Vec::new();
    let mut last = Vec::new();
    for round in 0..rounds {
        // What an operator does in a quiet moment.
        tokio::time::sleep(Duration::from_millis(200)).await;
        let mut began = Instant::now();
        let newest = match change(&mut operator, round).await {
            Ok(newest) => newest,
            // Where strangers press, an operator's connection that does nothing gives way.
            Err(_) => {
                operator = connect(&access).await?;
                began = Instant::now();
                change(&mut operator, round).await?
            }
        };
        let mut slowest = Duration::ZERO;
        let mut have_it = 0;
        while have_it < agents {
            let (version, at) = arrivals.recv().await.ok_or("the agents are gone")?;
            // What there was when they joined may come late.
            if version != newest {
                continue;
            }
            have_it += 1;
            slowest = slowest.max(at - began);
            times.push(at - began);
        }
        last.push(slowest);
    }
    let kilobytes = resident(&coordinator)?.saturating_sub(before) as f64 / agents as f64;
    times.sort();
    last.sort();
    let ms = |time: &Duration| time.as_secs_f64() * 1e3;
    let part = |part: usize| times.get((times.len() * part / 100).min(times.len() - 1)).map_or(0.0, ms);
    println!(
        "{agents:>7} {:>10.1} {:>10.1} {:>10.1} {kilobytes:>12.1} {:>9.2} {:>9.1}",
        part(50),
        part(99),
        last.last().map_or(0.0, ms),
        kilobytes / BEFORE,
        joined.as_secs_f64()
    );
    let _ = coordinator.stop();
    Ok(())
}

/// Has so many agents enrol and link, each of which tells of every document that comes.
async fn join(
    access: &AccessString,
    operator: &mut Client,
    agents: usize,
    arrived: &mpsc::UnboundedSender<(u64, Instant)>,
) -> Result<(), Failure> {
    let request = CreateTokensRequest { count: 1, uses: u32::try_from(agents)?, ..Default::default() };
    let token = operator.create_tokens(request).await?.into_inner().tokens.remove(0);
    let places = Arc::new(Semaphore::new(AT_ONCE));
    let mut joining = tokio::task::JoinSet::new();
    for _ in 0..agents {
        let place = places.clone().acquire_owned().await?;
        let (access, token, arrived) = (access.clone(), token.clone(), arrived.clone());
        joining.spawn(async move {
            let identity = enroll(&access, &token).await?;
            let mut agent = Agent::open(&identity, hello(&identity, "e", 0)).await;
            agent.snapshot(1, vec![host()]).await;
            agent.acknowledged(1).await;
            drop(place);
            tokio::spawn(follow(agent, arrived));
            Ok::<_, tonic::Status>(())
        });
    }
    while let Some(joined) = joining.join_next().await {
        joined??;
    }
    Ok(())
}

/// Tells when each document comes, and says that it is followed.
async fn follow(mut agent: Agent, arrived: mpsc::UnboundedSender<(u64, Instant)>) {
    let mut sequence = 1;
    while let Ok(Some(message)) = agent.from.message().await {
        if let Some(Heard::Document(document)) = message.body {
            let _ = arrived.send((document.version, Instant::now()));
            let mut entry = host();
            if let Some(wire::entry::Value::Host(host)) = &mut entry.value {
                host.document_version = document.version;
                host.document_content = document.content;
            }
            sequence += 1;
            agent.delta(sequence, vec![entry], &[]).await;
        }
    }
}

/// Asks for other preferences, and gives the version.
async fn change(operator: &mut Client, round: u32) -> Result<u64, Failure> {
    let document = operator.get_document(GetDocumentRequest::default()).await?.into_inner().document;
    let document = document.ok_or("there is no document")?;
    let mut preferences = document.preferences.ok_or("it holds no preferences")?;
    preferences.cpu_fraction = if round.is_multiple_of(2) { 0.5 } else { 0.75 };
    let request = SetPreferencesRequest { preferences: Some(preferences), ..Default::default() };
    let reply = operator.set_preferences(request).await?.into_inner();
    Ok(reply.document.ok_or("no document was made")?.version)
}

/// Memory of the coordinator that is in use, kilobytes.
fn resident(coordinator: &Running) -> Result<u64, Failure> {
    let status =
        std::fs::read_to_string(Path::new("/proc").join(coordinator.0.id().to_string()).join("status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("no VmRSS")?;
    Ok(line.split_whitespace().next().unwrap_or_default().parse()?)
}
