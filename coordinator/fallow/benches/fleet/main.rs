//! From an operator's command to the document on every agent, and what an idle agent costs the coordinator:
//! beside a bare tonic server with the same TLS, messages and connections.
//!
//! The coordinator is the real program, and the bare server this one: each is a process of its own. The
//! agents are a load generator in this process: each has a key and a certificate of its own, a TLS
//! connection and a link over a real loopback socket, tells of its host, and answers each document by saying
//! that it follows it. All share this machine's CPUs.
//!
//! `cargo bench -p fallow --bench fleet` takes 1, 200 and 10,000 agents; with any other argument than
//! `--bench` (as in `cargo test --benches`) 1 and 20. Each agent needs a descriptor here and one in the
//! coordinator; where fewer may be open, there are as many agents as descriptors allow. With
//! `FALLOW_AGENTS=400` it takes so many once.

#[path = "../../../service/benches/bare/mod.rs"]
mod bare;
#[path = "../../../service/tests/peers/mod.rs"]
mod peers;
mod server;
#[allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "helpers of tests fail what they are for")]
#[path = "../../tests/support/mod.rs"]
mod support;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fallow_proto::fleet::v1 as wire;
use fallow_tls::AccessString;
use peers::{Agent, enroll, hello, host};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use server::Server;
use tokio::sync::{Semaphore, mpsc};
use wire::from_coordinator::Body as Heard;

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// A document that came to an agent, and when.
type Arrival = (wire::Document, Instant);

/// Agents that connect at once.
const AT_ONCE: usize = 64;
/// What an agent cost before there was TLS, and what TLS costs, kilobytes: measured on two cores.
const BEFORE: f64 = 55.0 + 9.0;

fn main() -> Result<(), Failure> {
    let arguments: Vec<_> = std::env::args().collect();
    let hard = getrlimit(Resource::Nofile).maximum;
    let _ = setrlimit(Resource::Nofile, Rlimit { current: hard, maximum: hard });
    if let [_, first, file] = arguments.as_slice()
        && first == server::BARE
    {
        return server::serve(Path::new(file));
    }
    let is_bench = arguments.iter().any(|argument| argument == "--bench");
    let most = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    println!(
        "{:>7} {:<11} {:>8} {:>8} {:>8} {:>11} {:>12} {:>8}",
        "agents", "server", "p50 ms", "p99 ms", "last ms", "kB an agent", "of 55+9 kB", "joined s"
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
        let coordinator = in_runtime(async move {
            let server = Server::coordinator().await?;
            measure(server, agents, rounds).await
        })?;
        coordinator.print("coordinator", agents);
        let sent = coordinator.document.clone();
        let bare = in_runtime(async move { measure(Server::bare(&sent)?, agents, rounds).await })?;
        bare.print("bare tonic", agents);
    }
    Ok(())
}

/// With threads of its own, which end with it.
fn in_runtime<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let done = runtime.block_on(work);
    runtime.shutdown_timeout(Duration::from_secs(5));
    done
}

/// What was seen of one server.
struct Measured {
    /// From the command to each agent, sorted.
    times: Vec<Duration>,
    /// The longest of these.
    last: Duration,
    /// The server's memory for one agent.
    kilobytes: f64,
    /// Until all had enrolled and linked.
    joined: Duration,
    /// The last document that came.
    document: wire::Document,
}

impl Measured {
    fn print(&self, server: &str, agents: usize) {
        let ms = |time: &Duration| time.as_secs_f64() * 1e3;
        let part = |part: usize| {
            let index = self.times.len() * part / 100;
            self.times.get(index.min(self.times.len() - 1)).map_or(0.0, ms)
        };
        println!(
            "{agents:>7} {server:<11} {:>8.1} {:>8.1} {:>8.1} {:>11.1} {:>12.2} {:>8.1}",
            part(50),
            part(99),
            ms(&self.last),
            self.kilobytes,
            self.kilobytes / BEFORE,
            self.joined.as_secs_f64()
        );
    }
}

async fn measure(mut server: Server, agents: usize, rounds: u32) -> Result<Measured, Failure> {
    let before = server.resident()?;
    let began = Instant::now();
    let (arrived, mut arrivals) = mpsc::unbounded_channel();
    let token = server.token(agents).await?;
    join(server.access(), &token, agents, &arrived).await?;
    let joined = began.elapsed();
    let mut times = Vec::new();
    let mut last = wire::Document::default();
    for round in 0..rounds {
        // What an operator does in a quiet moment.
        tokio::time::sleep(Duration::from_millis(200)).await;
        let (began, newest) = server.change(round).await?;
        let mut have_it = 0;
        while have_it < agents {
            let (document, at) = arrivals.recv().await.ok_or("the agents are gone")?;
            // What there was when they joined may come late.
            if document.version != newest {
                continue;
            }
            have_it += 1;
            times.push(at - began);
            last = document;
        }
    }
    let kilobytes = server.resident()?.saturating_sub(before) as f64 / agents as f64;
    times.sort();
    let longest = times.last().copied().unwrap_or_default();
    Ok(Measured { times, last: longest, kilobytes, joined, document: last })
}

/// Has so many agents enrol and link, each of which tells of every document that comes.
async fn join(
    access: &AccessString,
    token: &str,
    agents: usize,
    arrived: &mpsc::UnboundedSender<Arrival>,
) -> Result<(), Failure> {
    let places = Arc::new(Semaphore::new(AT_ONCE));
    let mut joining = tokio::task::JoinSet::new();
    for _ in 0..agents {
        let place = places.clone().acquire_owned().await?;
        let (access, token, arrived) = (access.clone(), token.to_owned(), arrived.clone());
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
async fn follow(mut agent: Agent, arrived: mpsc::UnboundedSender<Arrival>) {
    let mut sequence = 1;
    while let Ok(Some(message)) = agent.from.message().await {
        if let Some(Heard::Document(document)) = message.body {
            let mut entry = host();
            if let Some(wire::entry::Value::Host(host)) = &mut entry.value {
                host.document_version = document.version;
                host.document_content = document.content.clone();
            }
            let _ = arrived.send((document, Instant::now()));
            sequence += 1;
            agent.delta(sequence, vec![entry], &[]).await;
        }
    }
}
