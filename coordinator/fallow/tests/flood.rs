//! A fleet that goes on while strangers press (R6.10): agents with links of the real protocol report and are
//! acknowledged, beside connections from many addresses of which half say nothing and half say little by
//! little what never becomes a request. Whoever is cut off comes again.
//!
//! 20 agents and 400 connections; `FALLOW_AGENTS=200 FALLOW_IDLE=5000` takes others. The coordinator, a
//! process of its own, has fewer descriptors than that is, so that it must choose;
//! `FALLOW_DESCRIPTORS=20000` gives it others. The times are printed and nothing is asked of them, for they
//! are this machine's.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "tests: failures are panics, and times are printed"
)]

#[path = "../../service/tests/peers/mod.rs"]
mod peers;
#[path = "flood/strangers.rs"]
mod strangers;
mod support;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use fallow_coordinator::daemon::DaemonFile;
use fallow_coordinator::operator::TokenFile;
use fallow_proto::fleet::v1::from_coordinator::Body as Heard;
use fallow_proto::operator::v1::{CreateTokensRequest, Host, ListHostsRequest};
use fallow_tls::AccessString;
use peers::{Agent, Identity, PATIENCE, connect, enroll, hello, host};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use strangers::{Ports, Strangers};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tonic::Status;

/// Reports of each agent that are waited for, without strangers and with them.
const REPORTS: usize = 20;
/// After which a newcomer who was cut off tries again.
const AGAIN: Duration = Duration::from_millis(100);

/// How many there are of what.
struct Sizes {
    agents: usize,
    strangers: usize,
    /// Of the coordinator.
    descriptors: u64,
}

impl Sizes {
    /// What was asked for, as far as this process may have so many descriptors.
    fn given() -> Self {
        let number = |variable: &str, ordinary: usize| {
            std::env::var(variable).map_or(ordinary, |given| given.parse().expect("a number"))
        };
        let agents = number("FALLOW_AGENTS", 20);
        let mut strangers = number("FALLOW_IDLE", 400);
        let own = 2 * agents as u64 + 300;
        let most = descriptors(own + strangers as u64);
        if most < own + strangers as u64 {
            assert!(most > own + 100, "{most} descriptors are too few: raise the limit (ulimit -n)");
            let fewer = usize::try_from(most - own).unwrap();
            println!(
                "this process may have {most} descriptors only (ulimit -n): {fewer} connections of strangers instead of \
                 {strangers}"
            );
            strangers = fewer;
        }
        // Half of them are places at the fleet's port.
        let scarce = (2 * agents + strangers / 8) * 2 + 64;
        let descriptors = number("FALLOW_DESCRIPTORS", scarce) as u64;
        Self { agents, strangers, descriptors: descriptors.min(most) }
    }
}

/// Lets this process have so many descriptors, if it may, and says how many it has.
fn descriptors(wanted: u64) -> u64 {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let wanted = current.map(|current| current.max(wanted));
    // Root may raise both; others may have what the system allows.
    let raised = maximum.and_then(|maximum| Some(maximum.max(wanted?)));
    if setrlimit(Resource::Nofile, Rlimit { current: wanted, maximum: raised }).is_err() {
        let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    }
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    Quiet,
    Flooded,
    Over,
}

/// How long a report waited to be acknowledged, all of it in one phase.
struct Acknowledged {
    agent: usize,
    phase: Phase,
    after: Duration,
}

/// Reports again and again over one link, which must not end, and gives it with the number of its last
/// report.
async fn report(
    number: usize,
    mut agent: Agent,
    pause: Duration,
    phase: watch::Receiver<Phase>,
    told: mpsc::UnboundedSender<Result<Acknowledged, String>>,
) -> (usize, Agent, u64) {
    let mut sequence = 1;
    loop {
        let now = *phase.borrow();
        if now == Phase::Over {
            return (number, agent, sequence);
        }
        sequence += 1;
        let began = Instant::now();
        agent.delta(sequence, vec![host()], &[]).await;
        if let Err(status) = acknowledged(&mut agent, sequence).await {
            let _ = told.send(Err(format!("the link of agent {number} ended: {status}")));
            return (number, agent, sequence);
        }
        if *phase.borrow() == now {
            let _ = told.send(Ok(Acknowledged { agent: number, phase: now, after: began.elapsed() }));
        }
        tokio::time::sleep(pause).await;
    }
}

async fn acknowledged(agent: &mut Agent, sequence: u64) -> Result<(), Status> {
    loop {
        match agent.next().await? {
            Heard::Acknowledge(acknowledge) if acknowledge.sequence >= sequence => return Ok(()),
            _ => {}
        }
    }
}

/// The times of a phase, when each agent has so many, and the strangers have done what they were to do.
async fn times(
    of: Phase,
    agents: usize,
    told: &mut mpsc::UnboundedReceiver<Result<Acknowledged, String>>,
    is_over: impl Fn() -> bool,
) -> Vec<Duration> {
    let (mut times, mut each) = (Vec::new(), BTreeMap::<usize, usize>::new());
    let began = Instant::now();
    while each.len() < agents || each.values().any(|&reports| reports < REPORTS) || !is_over() {
        let next = timeout(PATIENCE, told.recv()).await.expect("a report is acknowledged");
        let Acknowledged { agent, phase, after } =
            next.expect("agents that report").unwrap_or_else(|ended| panic!("{ended}"));
        assert!(began.elapsed() < 5 * PATIENCE, "{of:?}: {} of {agents} agents, {each:?}", each.len());
        if phase == of {
            times.push(after);
            *each.entry(agent).or_default() += 1;
        }
    }
    times.sort();
    times
}

fn line(what: &str, times: &[Duration]) {
    let part = |part: usize| times[(times.len() * part / 100).min(times.len() - 1)].as_secs_f64() * 1e3;
    println!(
        "{what:<22} {:>9} {:>9.1} {:>9.1} {:>9.1}",
        times.len(),
        part(50),
        part(99),
        times.last().unwrap().as_secs_f64() * 1e3
    );
}

/// The hosts, as an operator sees them who connects now, and how often he had to try.
async fn hosts(access: &AccessString) -> (Vec<Host>, u32) {
    let asked = timeout(PATIENCE, async {
        for tries in 1.. {
            if let Ok(mut operator) = connect(access).await
                && let Ok(listed) = operator.list_hosts(ListHostsRequest::default()).await
            {
                return (listed.into_inner().hosts, tries);
            }
            tokio::time::sleep(AGAIN).await;
        }
        unreachable!()
    });
    asked.await.expect("the fleet's port answers an operator")
}

/// How often a client of the projects had to try until it was answered.
async fn page(http: SocketAddr) -> u32 {
    let try_once = async || {
        let mut stream = TcpStream::connect(http).await?;
        stream.write_all(b"GET /none/ HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n").await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        Ok::<_, std::io::Error>(answer)
    };
    let asked = timeout(PATIENCE, async {
        for tries in 1.. {
            if try_once().await.is_ok_and(|answer| answer.starts_with("HTTP/1.1 404")) {
                return tries;
            }
            tokio::time::sleep(AGAIN).await;
        }
        unreachable!()
    });
    asked.await.expect("the projects' port answers a client")
}

/// Agents of the fleet, each with its link.
async fn join(access: &AccessString, count: usize) -> Vec<(Identity, Agent)> {
    let mut operator = connect(access).await.unwrap();
    let request = CreateTokensRequest { uses: count as u32, ..Default::default() };
    let token = operator.create_tokens(request).await.unwrap().into_inner().tokens.remove(0);
    let mut joined = Vec::new();
    for _ in 0..count {
        let identity = enroll(access, &token).await.unwrap();
        let mut agent = Agent::open(&identity, hello(&identity, "e", 0)).await;
        agent.snapshot(1, vec![host()]).await;
        agent.acknowledged(1).await;
        joined.push((identity, agent));
    }
    joined
}

fn coordinator(dir: &Path, descriptors: u64) -> support::Running {
    let mut command = Command::new("prlimit");
    command.arg(format!("--nofile={descriptors}:{descriptors}")).arg(env!("CARGO_BIN_EXE_fallow"));
    command.args(["coordinator", "run", "--dir"]).arg(dir.join("coordinator"));
    support::Running::of(command, dir)
}

#[tokio::test(flavor = "multi_thread")]
async fn r6_10_no_link_ends_and_every_report_is_acknowledged_while_strangers_press_at_both_ports() {
    let Sizes { agents, strangers, descriptors } = Sizes::given();
    let dir = tempfile::tempdir().unwrap();
    let mut running = coordinator(dir.path(), descriptors);
    let access = TokenFile::read(&dir.path().join("coordinator/operator.token")).unwrap();
    let file = DaemonFile::read(&dir.path().join("coordinator")).unwrap();
    let http = file.told.http.trim_start_matches("http://").parse().unwrap();
    let joined = join(&access, agents).await;

    // Two hundred reports a second, however many agents there are.
    let pause = Duration::from_millis(5) * agents as u32;
    let phase = watch::Sender::new(Phase::Quiet);
    let (tell, mut told) = mpsc::unbounded_channel();
    let mut identities = Vec::new();
    let mut reporting = JoinSet::new();
    for (number, (identity, agent)) in joined.into_iter().enumerate() {
        identities.push(identity);
        reporting.spawn(report(number, agent, pause, phase.subscribe(), tell.clone()));
    }
    drop(tell);
    let quiet = times(Phase::Quiet, agents, &mut told, || true).await;

    let ports = Ports { access: access.clone(), http };
    let pressing = Strangers::begin(&ports, strangers);
    pressing.until("each has come", |seen| seen.came >= strangers).await;
    phase.send_replace(Phase::Flooded);
    // Until half of them were cut off, and have come again.
    let is_over = || pressing.seen().cut_off >= strangers / 2;
    let newcomers = async {
        let mut tries = (0, 0);
        for _ in 0..3 {
            tries.0 += hosts(&access).await.1;
            tries.1 += page(http).await;
        }
        tries
    };
    let (flooded, tries) = tokio::join!(times(Phase::Flooded, agents, &mut told, is_over), newcomers);
    phase.send_replace(Phase::Over);

    // It still presses. Each has the link that it began with, and nothing that it said was lost.
    let mut said = BTreeMap::new();
    let mut links = Vec::new();
    while let Some(done) = reporting.join_next().await {
        let (number, agent, sequence) = done.expect("a link ended");
        said.insert(identities[number].agent_id.clone(), sequence);
        links.push(agent);
    }
    assert_eq!(said.len(), agents);
    let (listed, _) = hosts(&access).await;
    assert_eq!(listed.len(), agents);
    for host in listed {
        assert!(host.connected, "{host:?}");
        assert_eq!(host.applied_sequence, said[&host.agent_id], "{host:?}");
    }
    let seen = pressing.seen();
    println!(
        "{agents} agents; {strangers} connections of strangers, who came {} times and were cut off {} times; a coordinator with \
         {descriptors} descriptors",
        seen.came, seen.cut_off
    );
    println!("{:<22} {:>9} {:>9} {:>9} {:>9}", "acknowledged", "reports", "p50 ms", "p99 ms", "max ms");
    line("without strangers", &quiet);
    line("while they press", &flooded);
    println!(
        "newcomers: 3 operators were answered after {} tries in all, 3 clients after {}",
        tries.0, tries.1
    );
    drop((pressing, links));
    assert_eq!(running.stop(), Some(0));
}
