//! The fleet link and the operator API over real loopback sockets and a real store.
//!
//! The agent here is a plain gRPC client that says exactly what a test wants said.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests: failures are panics")]

#[path = "../../../shared/tls/tests/support/incoming.rs"]
mod incoming;
mod peers;

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fallow_coordinator::daemon::{Coordinator, Options};
use fallow_coordinator::document::{Author, Documents};
use fallow_coordinator::fleet::token::{self, TokenTerms};
use fallow_coordinator::fleet::{Accounts, Fleet, FleetService, Issuer, LinkSettings};
use fallow_daemon::clock;
use fallow_domain::{AccountKey, AgentId, Instant, MasterUrl, ProjectAssignment, ResourceTypes, Share};
use fallow_proto::fleet::v1 as wire;
use fallow_proto::fleet::v1::fleet_server::FleetServer;
use fallow_proto::operator::v1::{
    CreateProjectRequest, ListHostsRequest, ListProjectsRequest, NewWorkunit, SetSharesRequest,
    ShareOfProject, SubmitRequest,
};
use fallow_store::{SledStore, Store};
use fallow_tls::{AccessString, Authority, CoordinatorCertificate, Purpose};
use peers::{
    Agent, Client, Identity, PATIENCE, add_app_version, channel, connect, enroll, hello, host, seen, tokens,
};
use tokio::time::timeout;
use tokio_stream::{StreamExt as _, StreamMap};
use tonic::Code;
use tonic::codegen::Service;
use wire::entry::Value;
use wire::from_agent::Body as Said;
use wire::from_coordinator::Body as Heard;

// ---- enrolment ----

#[tokio::test]
async fn a_token_enrols_one_agent_and_a_spent_or_wrong_one_is_refused_with_the_reason() {
    let dir = tempfile::tempdir().unwrap();
    let (coordinator, mut operator) = start(dir.path()).await;
    let token = tokens(&mut operator, 1).await.remove(0);
    let access = coordinator.access();
    enroll(access, &token).await.unwrap();
    for (token, said) in [(token.as_str(), "used before"), ("made up", "not one of this coordinator's")] {
        let status = enroll(access, token).await.unwrap_err();
        assert_eq!(status.code(), Code::PermissionDenied);
        assert!(
            status.message().contains(said) && status.message().contains("fallow tokens create"),
            "{status}"
        );
    }
    coordinator.stop().await.unwrap();
}

/// This process, with the coordinator in it.
fn resident_bytes() -> usize {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: usize = pages.split(' ').nth(1).unwrap().parse().unwrap();
    pages * rustix::param::page_size()
}

#[tokio::test]
async fn r6_10_messages_that_strangers_announce_and_do_not_send_take_no_memory() {
    const CONNECTIONS: usize = 40;
    const REQUESTS: usize = 16;
    let dir = tempfile::tempdir().unwrap();
    let (coordinator, _operator) = start(dir.path()).await;
    // The largest message of an agent, of which nothing comes.
    let announced = 8 << 20;
    let head = [&[0][..], &u32::to_be_bytes(announced)].concat();
    let before = resident_bytes();
    let mut requests = tokio::task::JoinSet::new();
    for _ in 0..CONNECTIONS {
        let channel = channel(coordinator.access(), None).await.unwrap();
        for _ in 0..REQUESTS {
            let (mut channel, head) = (channel.clone(), head.clone());
            requests.spawn(async move {
                let begin = tokio_stream::once(Ok::<_, std::convert::Infallible>(head));
                let body = axum::body::Body::from_stream(begin.chain(tokio_stream::pending()));
                let request = axum::http::Request::post("http://h/fallow.fleet.v1.Fleet/Link")
                    .header("content-type", "application/grpc")
                    .body(tonic::body::Body::new(body))
                    .unwrap();
                std::future::poll_fn(|context| Service::poll_ready(&mut channel, context)).await.unwrap();
                if let Ok(answer) = channel.call(request).await {
                    let _ = axum::body::to_bytes(axum::body::Body::new(answer.into_body()), 1 << 20).await;
                }
            });
        }
    }
    // Until all are cut off.
    let mut most = before;
    let mut end = std::pin::pin!(requests.join_all());
    while timeout(Duration::from_millis(100), end.as_mut()).await.is_err() {
        most = most.max(resident_bytes());
    }
    let took = most - before;
    assert!(took < CONNECTIONS * REQUESTS * announced as usize / 20, "{took}");
    coordinator.stop().await.unwrap();
}

#[tokio::test]
async fn r6_10_an_agent_with_another_hosts_name_or_another_protocol_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (coordinator, mut operator) = start(dir.path()).await;
    let identity = identity(&coordinator, &mut operator).await;
    let other = wire::Hello { agent_id: "nobody".into(), ..hello(&identity, "e", 0) };
    let status = Agent::refused(&identity, other).await;
    assert_eq!(status.code(), Code::PermissionDenied, "{status}");
    let status = Agent::refused(&identity, wire::Hello { protocol: 99, ..hello(&identity, "e", 0) }).await;
    assert!(status.message().contains("update the older"), "{status}");
    coordinator.stop().await.unwrap();
}

// ---- the link ----

#[tokio::test]
async fn r6_3_snapshot_and_deltas_are_applied_in_order_and_acknowledged() {
    let dir = tempfile::tempdir().unwrap();
    let (coordinator, mut operator) = start(dir.path()).await;
    let identity = identity(&coordinator, &mut operator).await;
    let (mut agent, welcome) = Agent::link(&identity, hello(&identity, "e", 0)).await;
    assert_eq!((welcome.epoch.as_str(), welcome.applied_sequence), ("", 0));
    agent.snapshot(1, vec![host(), project(10)]).await;
    agent.acknowledged(1).await;
    agent.delta(2, vec![project(25)], &[]).await;
    agent.delta(3, vec![task("one")], &[]).await;
    agent.delta(4, vec![], &["task/http://127.0.0.1:1/a//one"]).await;
    agent.acknowledged(4).await;
    // What was applied before is acknowledged again, and changes nothing.
    agent.delta(2, vec![project(99)], &[]).await;
    agent.acknowledged(2).await;
    let held = operator.list_hosts(ListHostsRequest::default()).await.unwrap().into_inner().hosts.remove(0);
    assert_eq!((held.connected, held.applied_sequence, held.tasks.len()), (true, 4, 0));
    assert_eq!(held.projects[0].cpu_time_micros, 25);
    assert_eq!(coordinator.fleet().project_totals(&url()).cpu, 25);
    coordinator.stop().await.unwrap();
}

#[tokio::test]
async fn r6_3_a_gap_ends_the_stream_with_the_reason_and_the_agent_resumes() {
    let dir = tempfile::tempdir().unwrap();
    let (coordinator, mut operator) = start(dir.path()).await;
    let identity = identity(&coordinator, &mut operator).await;
    let (mut agent, _) = Agent::link(&identity, hello(&identity, "e", 0)).await;
    agent.snapshot(1, vec![project(10)]).await;
    agent.acknowledged(1).await;
    agent.delta(3, vec![project(30)], &[]).await;
    let status = agent.ended().await;
    assert!(status.code() == Code::Aborted && status.message().contains("2 was due"), "{status}");
    let (mut agent, welcome) = Agent::link(&identity, hello(&identity, "e", 0)).await;
    assert_eq!((welcome.epoch.as_str(), welcome.applied_sequence), ("e", 1));
    agent.delta(2, vec![project(20)], &[]).await;
    agent.delta(3, vec![project(30)], &[]).await;
    agent.acknowledged(3).await;
    assert_eq!(coordinator.fleet().project_totals(&url()).cpu, 30);
    coordinator.stop().await.unwrap();
}

#[tokio::test]
async fn r6_3_a_restart_of_the_coordinator_loses_nothing_and_counts_nothing_twice() {
    let dir = tempfile::tempdir().unwrap();
    let (coordinator, mut operator) = start(dir.path()).await;
    let identity = identity(&coordinator, &mut operator).await;
    let (mut agent, _) = Agent::link(&identity, hello(&identity, "e", 0)).await;
    agent.snapshot(1, vec![host(), project(10)]).await;
    agent.delta(2, vec![project(20)], &[]).await;
    agent.acknowledged(2).await;
    let at = coordinator.fleet_url();
    coordinator.stop().await.unwrap();
    let status = agent.ended().await;
    assert!(status.code() == Code::Unavailable && status.message().contains("stopping"), "{status}");

    let (coordinator, mut operator) = start(dir.path()).await;
    assert_eq!(coordinator.fleet_url(), at, "the ports are kept");
    assert_eq!(coordinator.fleet().project_totals(&url()).cpu, 20);
    let (mut agent, welcome) = Agent::link(&identity, hello(&identity, "e", 0)).await;
    assert_eq!((welcome.epoch.as_str(), welcome.applied_sequence), ("e", 2));
    // The acknowledgement of 2 may have been lost: it is sent again, and then comes what happened meanwhile.
    agent.delta(2, vec![project(20)], &[]).await;
    agent.delta(3, vec![project(50)], &[]).await;
    agent.acknowledged(3).await;
    assert_eq!(coordinator.fleet().project_totals(&url()).cpu, 50);
    // The agent's store was made anew: what it had computed before is not forgotten.
    let (mut agent, _) = Agent::link(&identity, hello(&identity, "another", 0)).await;
    agent.delta(4, vec![project(1)], &[]).await;
    assert!(agent.ended().await.message().contains("before the first snapshot"));
    let (mut agent, _) = Agent::link(&identity, hello(&identity, "another", 0)).await;
    agent.snapshot(1, vec![project(7)]).await;
    agent.acknowledged(1).await;
    assert_eq!(coordinator.fleet().project_totals(&url()).cpu, 57);
    let hosts = operator.list_hosts(ListHostsRequest::default()).await.unwrap().into_inner().hosts;
    assert_eq!(hosts.len(), 1);
    coordinator.stop().await.unwrap();
}

#[tokio::test]
async fn r6_3_when_an_agent_was_seen_does_not_go_back_with_a_restart_of_the_coordinator() {
    let dir = tempfile::tempdir().unwrap();
    let (coordinator, mut operator) = start(dir.path()).await;
    let identity = identity(&coordinator, &mut operator).await;
    let (mut agent, _) = Agent::link(&identity, hello(&identity, "e", 0)).await;
    agent.snapshot(1, vec![host()]).await;
    agent.acknowledged(1).await;
    let at_snapshot = seen(&mut operator).await;
    // A heartbeat changes nothing else.
    agent.say(Said::Heartbeat(wire::Heartbeat { sent_at_micros: 1 })).await;
    let later = async {
        while seen(&mut operator).await <= at_snapshot {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(PATIENCE, later).await.unwrap();
    let before = seen(&mut operator).await;
    coordinator.stop().await.unwrap();
    let (coordinator, mut operator) = start(dir.path()).await;
    assert_eq!(seen(&mut operator).await, before);
    // Its stream goes on where it was.
    let (mut agent, welcome) = Agent::link(&identity, hello(&identity, "e", 0)).await;
    assert_eq!((welcome.epoch.as_str(), welcome.applied_sequence), ("e", 1));
    agent.delta(2, vec![project(20)], &[]).await;
    agent.acknowledged(2).await;
    coordinator.stop().await.unwrap();
}

#[tokio::test]
async fn r6_3_a_newer_connection_takes_over_and_many_deltas_in_flight_all_count() {
    let dir = tempfile::tempdir().unwrap();
    let (coordinator, mut operator) = start(dir.path()).await;
    let identity = identity(&coordinator, &mut operator).await;
    let (mut first, _) = Agent::link(&identity, hello(&identity, "e", 0)).await;
    first.snapshot(1, vec![project(1)]).await;
    for sequence in 2..=500 {
        first.delta(sequence, vec![project(sequence as i64)], &[]).await;
    }
    let (mut second, welcome) = Agent::link(&identity, hello(&identity, "e", 0)).await;
    let status = first.ended().await;
    assert!(status.code() == Code::Aborted && status.message().contains("took over"), "{status}");
    let applied = welcome.applied_sequence;
    assert_eq!(coordinator.fleet().project_totals(&url()).cpu, i128::from(applied));
    for sequence in applied + 1..=600 {
        second.delta(sequence, vec![project(sequence as i64)], &[]).await;
    }
    second.acknowledged(600).await;
    assert_eq!(coordinator.fleet().project_totals(&url()).cpu, 600);
    coordinator.stop().await.unwrap();
}

#[tokio::test]
async fn absurd_entries_are_refused_and_leave_no_trace() {
    let dir = tempfile::tempdir().unwrap();
    let (coordinator, mut operator) = start(dir.path()).await;
    let identity = identity(&coordinator, &mut operator).await;
    let mut nan = project(10);
    if let Some(Value::Project(project)) = &mut nan.value {
        project.debt_seconds = f64::NAN;
    }
    let misplaced = wire::Entry { key: "host".into(), value: project(10).value };
    let empty = wire::Entry { key: "host".into(), value: None };
    let many = vec![project(1); 20_001];
    for entries in [vec![project(1), nan], vec![project(-5)], vec![misplaced], vec![empty], many] {
        let (mut agent, _) = Agent::link(&identity, hello(&identity, "e", 0)).await;
        agent.snapshot(1, entries).await;
        let status = agent.ended().await;
        assert!(
            status.code() == Code::InvalidArgument && status.message().contains("message 1 is refused"),
            "{status}"
        );
    }
    assert_eq!(coordinator.fleet().project_totals(&url()).cpu, 0);
    let held = operator.list_hosts(ListHostsRequest::default()).await.unwrap().into_inner().hosts.remove(0);
    assert_eq!((held.applied_sequence, held.projects.len()), (0, 0));
    coordinator.stop().await.unwrap();
}

#[tokio::test]
async fn an_agent_that_falls_silent_is_taken_for_gone_and_one_that_beats_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let link = LinkSettings { heartbeat: Duration::from_millis(200), ..LinkSettings::default() };
    let (coordinator, mut operator) = start_with(dir.path(), link).await;
    let (lively, silent) =
        (identity(&coordinator, &mut operator).await, identity(&coordinator, &mut operator).await);
    let (mut lively, _) = Agent::link(&lively, hello(&lively, "e", 0)).await;
    let (mut silent, _) = Agent::link(&silent, hello(&silent, "e", 0)).await;
    let beats = lively.to.clone();
    let beating = tokio::spawn(async move {
        loop {
            let beat = Said::Heartbeat(wire::Heartbeat { sent_at_micros: 1 });
            if beats.send(wire::FromAgent { traceparent: String::new(), body: Some(beat) }).await.is_err() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    });
    let status = silent.ended().await;
    assert!(status.code() == Code::DeadlineExceeded && status.message().contains("nothing came"), "{status}");
    // The coordinator beats as well.
    assert!(matches!(lively.next().await.unwrap(), Heard::Heartbeat(_)));
    assert_eq!(coordinator.fleet().connected(), 1);
    beating.abort();
    coordinator.stop().await.unwrap();
}

#[tokio::test]
async fn r6_3_a_coordinator_that_stood_still_takes_no_agent_for_gone() {
    let dir = tempfile::tempdir().unwrap();
    let heartbeat = Duration::from_secs(1);
    let (coordinator, mut operator) =
        start_with(dir.path(), LinkSettings { heartbeat, ..LinkSettings::default() }).await;
    let identity = identity(&coordinator, &mut operator).await;
    let (mut agent, _) = Agent::link(&identity, hello(&identity, "e", 0)).await;
    agent.snapshot(1, vec![project(1)]).await;
    agent.acknowledged(1).await;
    // As a machine that is suspended, or swaps: nothing of this process goes on for many heartbeats.
    std::thread::sleep(heartbeat * 10);
    for sequence in 2..12 {
        agent.delta(sequence, vec![project(2)], &[]).await;
        agent.acknowledged(sequence).await;
        tokio::time::sleep(heartbeat / 2).await;
    }
    assert_eq!(coordinator.fleet().connected(), 1);
    coordinator.stop().await.unwrap();
}

#[tokio::test]
async fn r6_10_an_agent_that_says_very_much_is_read_at_its_pace_and_others_are_not_held_up() {
    let dir = tempfile::tempdir().unwrap();
    let link =
        LinkSettings { heartbeat: Duration::from_hours(1), messages_a_second: 20, ..LinkSettings::default() };
    let (coordinator, mut operator) = start_with(dir.path(), link).await;
    let loud = identity(&coordinator, &mut operator).await;
    let other = identity(&coordinator, &mut operator).await;
    let (mut link, _) = Agent::link(&loud, hello(&loud, "e", 0)).await;
    link.snapshot(1, vec![project(1)]).await;
    let say = link.to.clone();
    const ALL: u64 = 1_000;
    let saying = tokio::spawn(async move {
        for sequence in 2..=ALL {
            let delta = wire::Delta { sequence, entries: vec![project(1)], removed: Vec::new() };
            let body = Some(Said::Delta(delta));
            say.send(wire::FromAgent { traceparent: String::new(), body }).await.unwrap();
        }
    });
    // What it has saved up is taken at once.
    link.acknowledged(100).await;
    let (mut quiet, _) = Agent::link(&other, hello(&other, "e", 0)).await;
    for sequence in 1..=20 {
        quiet.snapshot(sequence, vec![project(2)]).await;
        quiet.acknowledged(sequence).await;
    }
    let held = coordinator.fleet().hosts().find(|host| host.agent.0 == loud.agent_id).unwrap();
    assert!((100..ALL).contains(&held.applied_sequence), "{}", held.applied_sequence);
    // And goes on, without an error.
    link.acknowledged(held.applied_sequence + 20).await;
    saying.abort();
    coordinator.stop().await.unwrap();
}

// ---- new jobs ----

#[tokio::test]
async fn r1_4_agents_with_the_project_are_told_at_once_of_new_jobs_and_no_more_of_them_than_jobs() {
    let dir = tempfile::tempdir().unwrap();
    let (coordinator, mut operator) = start(dir.path()).await;
    let (url, attached) = with_application(&coordinator, &mut operator).await;
    // The third has another project only.
    let mut agents = Vec::new();
    for entries in [vec![host(), attached.clone()], vec![host(), attached], vec![host(), project(1)]] {
        let identity = identity(&coordinator, &mut operator).await;
        let (mut agent, _) = Agent::link(&identity, hello(&identity, "e", 1)).await;
        agent.snapshot(1, entries).await;
        agent.acknowledged(1).await;
        agents.push(agent);
    }
    for (jobs, told) in [(1, 1), (2, 2), (50, 2)] {
        submit(&mut operator, jobs).await;
        assert_eq!(contacts(&mut agents, told).await, vec![url.clone(); told], "{jobs} jobs");
    }
    coordinator.stop().await.unwrap();
}

#[tokio::test]
async fn r1_4_agents_that_come_back_are_told_of_jobs_that_wait_and_no_more_of_them_than_jobs() {
    let dir = tempfile::tempdir().unwrap();
    let (coordinator, mut operator) = start(dir.path()).await;
    let (url, attached) = with_application(&coordinator, &mut operator).await;
    let mut identities = Vec::new();
    for _ in 0..3 {
        let identity = identity(&coordinator, &mut operator).await;
        let (mut agent, _) = Agent::link(&identity, hello(&identity, "e", 1)).await;
        agent.snapshot(1, vec![host(), attached.clone()]).await;
        agent.acknowledged(1).await;
        identities.push(identity);
    }
    all_are_gone(&coordinator).await;
    submit(&mut operator, 2).await;
    let mut first = come_back(&coordinator, &identities[..1]).await;
    assert_eq!(contacts(&mut first, 1).await, vec![url.clone()]);
    // That call stands for a job until it is taken: one is left, however often somebody comes.
    for told in [1, 0] {
        let mut others = come_back(&coordinator, &identities[1..]).await;
        assert_eq!(contacts(&mut others, told).await, vec![url.clone(); told]);
    }
    drop(first);
    coordinator.stop().await.unwrap();
    // A new coordinator knows of no calls; all come at once.
    let (coordinator, _operator) = start(dir.path()).await;
    let mut all = come_back(&coordinator, &identities).await;
    assert_eq!(contacts(&mut all, 2).await, vec![url.clone(); 2]);
    coordinator.stop().await.unwrap();
}

#[tokio::test]
async fn r1_4_an_agent_that_was_told_before_it_left_is_told_again_when_it_comes_back() {
    let dir = tempfile::tempdir().unwrap();
    let (coordinator, mut operator) = start(dir.path()).await;
    let (url, attached) = with_application(&coordinator, &mut operator).await;
    let identity = identity(&coordinator, &mut operator).await;
    let (mut agent, _) = Agent::link(&identity, hello(&identity, "e", 1)).await;
    agent.snapshot(1, vec![host(), attached]).await;
    agent.acknowledged(1).await;
    submit(&mut operator, 1).await;
    assert_eq!(contacts(std::slice::from_mut(&mut agent), 1).await, vec![url.clone()]);
    drop(agent);
    all_are_gone(&coordinator).await;
    submit(&mut operator, 1).await;
    let mut back = come_back(&coordinator, std::slice::from_ref(&identity)).await;
    assert_eq!(contacts(&mut back, 1).await, vec![url]);
    coordinator.stop().await.unwrap();
}

#[tokio::test]
async fn r1_4_an_agent_that_comes_back_to_a_project_without_jobs_is_left_in_peace() {
    let dir = tempfile::tempdir().unwrap();
    let (coordinator, mut operator) = start(dir.path()).await;
    let (_, attached) = with_application(&coordinator, &mut operator).await;
    let identity = identity(&coordinator, &mut operator).await;
    let (mut agent, _) = Agent::link(&identity, hello(&identity, "e", 1)).await;
    agent.snapshot(1, vec![host(), attached, project(1)]).await;
    agent.acknowledged(1).await;
    let mut back = come_back(&coordinator, std::slice::from_ref(&identity)).await;
    assert_eq!(contacts(&mut back, 0).await, Vec::<String>::new());
    coordinator.stop().await.unwrap();
}

// ---- the document ----

#[tokio::test]
async fn r6_5_a_new_document_reaches_connected_agents_within_a_second_and_others_when_they_come() {
    let dir = tempfile::tempdir().unwrap();
    let (coordinator, mut operator) = start(dir.path()).await;
    create(&mut operator, "a").await;
    let identities =
        [identity(&coordinator, &mut operator).await, identity(&coordinator, &mut operator).await];
    let (mut agent, _) = Agent::link(&identities[0], hello(&identities[0], "e", 0)).await;
    let Heard::Document(first) = agent.next().await.unwrap() else { panic!("no document") };
    assert_eq!((first.version, first.projects.len()), (1, 1));
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    // Something else on this machine may hold one of them up, but not one after the other.
    let mut last = first.version;
    for share in 25..60 {
        let mut request = tonic::Request::new(shares(&[("a", f64::from(share))]));
        request.metadata_mut().insert("traceparent", trace.parse().unwrap());
        operator.set_shares(request).await.unwrap();
        let set = tokio::time::Instant::now();
        let pushed = agent.message().await.unwrap();
        let is_soon = set.elapsed() < Duration::from_secs(1);
        assert_eq!(pushed.traceparent, trace);
        let Some(Heard::Document(next)) = pushed.body else { panic!("no document") };
        last += 1;
        assert_eq!((next.version, next.projects[0].share), (last, f64::from(share)));
        if is_soon {
            break;
        }
        assert!(share < 59, "each takes longer than a second");
    }
    // One that comes later gets the newest, one that has it gets none.
    let (mut late, _) = Agent::link(&identities[1], hello(&identities[1], "e", 1)).await;
    assert!(matches!(late.next().await.unwrap(), Heard::Document(document) if document.version == last));
    let (mut knows, _) = Agent::link(&identities[1], hello(&identities[1], "e", last)).await;
    knows.snapshot(1, vec![]).await;
    knows.acknowledged(1).await;
    coordinator.stop().await.unwrap();
}

#[tokio::test]
async fn r6_10_each_agent_is_sent_an_account_of_its_own_and_the_same_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let (coordinator, mut operator) = start(dir.path()).await;
    let agents = [identity(&coordinator, &mut operator).await, identity(&coordinator, &mut operator).await];
    let (mut early, _) = Agent::link(&agents[0], hello(&agents[0], "e", 0)).await;
    create(&mut operator, "lab").await;
    let mut keys = vec![early.account_key().await];
    for agent in &agents {
        keys.push(Agent::link(agent, hello(agent, "e", 0)).await.0.account_key().await);
    }
    let shown = coordinator.projects().project("lab").unwrap().account_key;
    assert_eq!(keys[0], keys[1]);
    assert!(keys[1] != keys[2] && keys.iter().all(|key| key.len() == 32 && key != shown.reveal()));
    drop(operator);
    coordinator.stop().await.unwrap();
    let (_coordinator, _operator) = start(dir.path()).await;
    for (agent, key) in agents.iter().zip(&keys[1..]) {
        assert_eq!(Agent::link(agent, hello(agent, "e", 0)).await.0.account_key().await, *key);
    }
}

/// Makes no account until it may.
#[derive(Default)]
struct Reluctant {
    may: AtomicBool,
    asked: AtomicU64,
}

impl Accounts for Reluctant {
    fn key(
        &self,
        _: &AgentId,
        _: Option<&AgentId>,
        _: &ProjectAssignment,
    ) -> Result<Option<AccountKey>, String> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        let may = self.may.load(Ordering::SeqCst);
        may.then(|| Some(AccountKey::new("own"))).ok_or_else(|| "no space left".to_owned())
    }
}

/// Keeps the warnings of the thread that it is set for.
#[derive(Clone, Default)]
struct Warnings(Arc<Mutex<Vec<String>>>);

impl tracing::Subscriber for Warnings {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        *metadata.level() <= tracing::Level::WARN
    }
    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }
    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}
    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
    fn event(&self, event: &tracing::Event<'_>) {
        let mut said = Fields(String::new());
        event.record(&mut said);
        self.0.lock().unwrap().push(said.0);
    }
    fn enter(&self, _: &tracing::span::Id) {}
    fn exit(&self, _: &tracing::span::Id) {}
}

struct Fields(String);

impl tracing::field::Visit for Fields {
    fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
        self.0.push_str(&format!("{field}={value:?} "));
    }
}

#[tokio::test]
async fn r6_3_an_agent_whose_account_cannot_be_made_keeps_its_link_and_is_sent_the_document_later() {
    let warnings = Warnings::default();
    let _listening = tracing::subscriber::set_default(warnings.clone());
    let dir = tempfile::tempdir().unwrap();
    let store: Arc<dyn Store> = Arc::new(SledStore::open(dir.path()).unwrap());
    let documents = Arc::new(Documents::open(store.clone()).unwrap());
    let link = LinkSettings { heartbeat: Duration::from_secs(1), ..LinkSettings::default() };
    let (authority, ..) = Authority::create(clock::now()).unwrap();
    let issuer = Arc::new(Issuer { authority, life: fallow_domain::Duration::from_hours(1) });
    let fleet = Fleet::open(store.clone(), documents.clone(), issuer.clone(), link).unwrap();
    let accounts = Arc::new(Reluctant::default());
    fleet.set_accounts(accounts.clone());
    let assignment = ProjectAssignment {
        name: "a".into(),
        url: MasterUrl::parse(URL).unwrap(),
        account_key: AccountKey::new("the project's own"),
        share: Share::DEFAULT,
        code_sign_key: None,
        without: ResourceTypes::default(),
    };
    documents.put_project(Author::default(), Instant::EPOCH, assignment).await.unwrap();
    let token = token::create(&*store, &Author::default(), clock::now(), 1, &TokenTerms::default())
        .unwrap()
        .remove(0);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let access = AccessString {
        purpose: Purpose::Operator,
        addresses: vec![listener.local_addr().unwrap().to_string().parse().unwrap()],
        authority: issuer.authority.fingerprint(),
        secret: "0".repeat(64),
        organisation: Vec::new(),
    };
    let shown = CoordinatorCertificate::issue(&issuer.authority, &[], clock::now(), issuer.life).unwrap();
    let tls = fallow_tls::server_config(&issuer.authority, Arc::new(shown)).unwrap();
    let service = FleetServer::new(FleetService::new(fleet.clone()));
    let serving = tonic::transport::Server::builder()
        .add_service(service)
        .serve_with_incoming(incoming::incoming(listener, tls));
    let serving = tokio::spawn(serving);

    let identity = enroll(&access, &token).await.unwrap();
    let mut agent = Agent::open(&identity, hello(&identity, "e", 0)).await;
    agent.snapshot(1, vec![project(10)]).await;
    agent.acknowledged(1).await;
    // It is tried again and again, and meanwhile state goes on flowing.
    let mut sequence = 1;
    while accounts.asked.load(Ordering::SeqCst) < 4 {
        sequence += 1;
        agent.delta(sequence, vec![project(sequence as i64)], &[]).await;
        agent.acknowledged(sequence).await;
    }
    let said = |warnings: &Warnings| {
        let all = warnings.0.lock().unwrap().clone();
        all.into_iter().filter(|text| text.contains("no space left")).collect::<Vec<_>>()
    };
    assert_eq!(said(&warnings).len(), 1, "{:?}", said(&warnings));
    accounts.may.store(true, Ordering::SeqCst);
    assert_eq!(agent.account_key().await, "own");
    assert_eq!(said(&warnings).len(), 1);
    serving.abort();
}

#[tokio::test]
async fn shares_that_mean_nothing_and_unknown_projects_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (coordinator, mut operator) = start(dir.path()).await;
    create(&mut operator, "a").await;
    for (bad, code) in [
        (vec![("a", -1.0)], Code::InvalidArgument),
        (vec![("a", f64::NAN)], Code::InvalidArgument),
        (vec![("a", 1e300)], Code::InvalidArgument),
        (vec![("a", 1.0), ("b", 1.0)], Code::NotFound),
        (vec![], Code::InvalidArgument),
    ] {
        let status = operator.set_shares(shares(&bad)).await.unwrap_err();
        assert_eq!(status.code(), code, "{status}");
    }
    for (name, share, code) in [
        ("a", 1.0, Code::AlreadyExists),
        ("b", -1.0, Code::InvalidArgument),
        ("../b", 1.0, Code::InvalidArgument),
    ] {
        let request = CreateProjectRequest { name: name.into(), share, ..Default::default() };
        assert_eq!(operator.create_project(request).await.unwrap_err().code(), code, "{name}");
    }
    assert_eq!(coordinator.documents().document().version.0, 1);
    let projects = operator.list_projects(ListProjectsRequest {}).await.unwrap().into_inner().projects;
    assert_eq!(projects.iter().map(|project| project.name.as_str()).collect::<Vec<_>>(), ["a"]);
    coordinator.stop().await.unwrap();
}

// ---- operators ----

#[tokio::test]
async fn a_call_without_the_operators_token_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (coordinator, _) = start(dir.path()).await;
    let mut stranger =
        connect(&AccessString { secret: "0".repeat(64), ..coordinator.access().clone() }).await.unwrap();
    let status = stranger.list_hosts(ListHostsRequest::default()).await.unwrap_err();
    assert!(
        status.code() == Code::PermissionDenied && status.message().contains("operator.token"),
        "{status}"
    );
    coordinator.stop().await.unwrap();
}

#[tokio::test]
async fn a_directory_has_one_coordinator_at_a_time() {
    let dir = tempfile::tempdir().unwrap();
    let (coordinator, _) = start(dir.path()).await;
    let Err(error) = Coordinator::start(options(dir.path(), LinkSettings::default())).await else {
        panic!("two in one directory")
    };
    assert_eq!(error.exit_code().number(), 6, "{error}");
    coordinator.stop().await.unwrap();
}

// ---- helpers ----

const URL: &str = "http://127.0.0.1:1/a/";

fn url() -> MasterUrl {
    MasterUrl::parse(URL).unwrap()
}

fn options(dir: &Path, link: LinkSettings) -> Options {
    Options { link, ..Options::at(dir) }
}

async fn start(dir: &Path) -> (Coordinator, Client) {
    // Agents here do not beat, and are not taken for gone, however long a test takes.
    start_with(dir, LinkSettings { heartbeat: Duration::from_hours(1), ..LinkSettings::default() }).await
}

async fn start_with(dir: &Path, link: LinkSettings) -> (Coordinator, Client) {
    let coordinator = Coordinator::start(options(dir, link)).await.unwrap();
    let operator = connect(coordinator.access()).await.unwrap();
    (coordinator, operator)
}

async fn identity(coordinator: &Coordinator, operator: &mut Client) -> Identity {
    let token = tokens(operator, 1).await.remove(0);
    enroll(coordinator.access(), &token).await.unwrap()
}

/// A project `a` with an application `app`: its URL, and the entry of an agent that has it.
async fn with_application(coordinator: &Coordinator, operator: &mut Client) -> (String, wire::Entry) {
    create(operator, "a").await;
    add_app_version(operator, "a", "app").await;
    let url = coordinator.projects().projects()[0].url.to_string();
    let attached = wire::Entry {
        key: format!("project/{url}"),
        value: Some(Value::Project(wire::ProjectState { url: url.clone(), ..Default::default() })),
    };
    (url, attached)
}

/// Waits until the links of all agents have ended.
async fn all_are_gone(coordinator: &Coordinator) {
    let gone = async {
        while coordinator.fleet().connected() > 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(PATIENCE, gone).await.expect("they are gone");
}

/// Workunits of one job each.
async fn submit(operator: &mut Client, jobs: usize) {
    let workunit = NewWorkunit { application: "app".into(), flops_estimate: 1e9, ..Default::default() };
    let request =
        SubmitRequest { project: "a".into(), workunits: vec![workunit; jobs], ..Default::default() };
    operator.submit(request).await.unwrap();
}

/// New links of agents that have said all before. Those that are to be told of jobs that wait are told from
/// now on.
async fn come_back(coordinator: &Coordinator, agents: &[Identity]) -> Vec<Agent> {
    let mut back = Vec::new();
    for identity in agents {
        back.push(Agent::link(identity, hello(identity, "e", 1)).await.0);
    }
    let dealt_with = async {
        while coordinator.fleet().has_returned() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(PATIENCE, dealt_with).await.expect("it is decided who is told");
    back
}

/// What these are told to contact: waits for so many, and a moment for one too many.
async fn contacts(agents: &mut [Agent], expected: usize) -> Vec<String> {
    let mut all: StreamMap<usize, _> = agents.iter_mut().map(|agent| &mut agent.from).enumerate().collect();
    let mut contacts = Vec::new();
    loop {
        let patience = if contacts.len() < expected { PATIENCE } else { Duration::from_secs(1) };
        let next = async {
            loop {
                let (_, message) = all.next().await.expect("a link ended");
                if let Some(Heard::ContactProject(contact)) = message.unwrap().body {
                    return contact.url;
                }
            }
        };
        match timeout(patience, next).await {
            Ok(url) => contacts.push(url),
            Err(_) => return contacts,
        }
    }
}

async fn create(operator: &mut Client, name: &str) {
    let request = CreateProjectRequest {
        name: name.into(),
        share: 75.0,
        request_delay_micros: 0,
        settings: Vec::new(),
        emergency: false,
        code_sign_key: String::new(),
    };
    operator.create_project(request).await.unwrap();
}

fn shares(shares: &[(&str, f64)]) -> SetSharesRequest {
    let one = |&(project, share): &(&str, f64)| ShareOfProject { project: project.to_owned(), share };
    SetSharesRequest { shares: shares.iter().map(one).collect(), ..Default::default() }
}

fn project(cpu_time_micros: i64) -> wire::Entry {
    let project = wire::ProjectState { url: URL.into(), cpu_time_micros, ..Default::default() };
    wire::Entry { key: format!("project/{URL}"), value: Some(Value::Project(project)) }
}

fn task(name: &str) -> wire::Entry {
    let task = wire::TaskState { project_url: URL.into(), name: name.into(), ..Default::default() };
    wire::Entry { key: format!("task/{URL}/{name}"), value: Some(Value::Task(task)) }
}

// ---- disks ----

/// A report of what was decided about a disk.
fn decided(decisions: Vec<wire::DiskDecision>) -> wire::Entry {
    wire::Entry { key: "disk".into(), value: Some(Value::Disk(wire::DiskDecisions { decisions })) }
}

fn deletion(number: u64) -> wire::DiskDecision {
    wire::DiskDecision {
        at_micros: 1_800_000_000_000_000,
        act: wire::DiskAct::Deleted.into(),
        project_url: "http://127.0.0.1:1/a/".into(),
        name: format!("in_{number}"),
        bytes: number,
        rule: "R4.8".into(),
        why: "each project loses a file in turn".into(),
    }
}

#[tokio::test]
async fn r4_13_what_a_hostile_host_tells_of_its_disk_is_bounded_and_what_an_honest_one_tells_is_shown() {
    let dir = tempfile::tempdir().unwrap();
    let (coordinator, mut operator) = start(dir.path()).await;
    let token = tokens(&mut operator, 1).await.remove(0);
    let identity = enroll(coordinator.access(), &token).await.unwrap();
    let list = async |operator: &mut Client| {
        operator.list_hosts(ListHostsRequest::default()).await.unwrap().into_inner().hosts.remove(0)
    };
    let (mut agent, welcome) = Agent::link(&identity, hello(&identity, "e", 0)).await;
    assert!(welcome.takes_disk);
    agent.snapshot(1, vec![host(), decided(vec![deletion(1)])]).await;
    agent.acknowledged(1).await;
    drop(agent);
    // Nothing of such a report is kept, not even what is good in it, and the link ends.
    let with = |change: fn(&mut wire::DiskDecision)| {
        let mut decision = deletion(2);
        change(&mut decision);
        vec![decision]
    };
    for (hostile, why) in [
        ((0..20_000).map(deletion).collect(), "20000 decisions about a disk are more than 20"),
        (with(|one| one.name = "n".repeat(1 << 20)), "name has more than 255 bytes"),
        (with(|one| one.why = "w".repeat(1 << 20)), "reason has more than 600 bytes"),
        (with(|one| one.rule = "r".repeat(1 << 20)), "rule has more than 32 bytes"),
        (with(|one| one.project_url = format!("http://a/{}/", "u".repeat(1 << 20))), "URL"),
        (with(|one| one.name = "\u{1b}[2J\r\0".into()), "control characters"),
        (with(|one| one.at_micros = i64::MIN), "a decision's time"),
    ] {
        let (mut agent, _) = Agent::link(&identity, hello(&identity, "e", 0)).await;
        agent.delta(2, vec![decided(hostile)], &[]).await;
        let status = agent.ended().await;
        assert!(status.message().contains(why), "{status} lacks {why}");
        let shown = list(&mut operator).await;
        assert_eq!((shown.applied_sequence, shown.disk_decisions), (1, vec![deletion(1)]));
    }
    // As many and as long ones as may be, again and again: the last are kept, in less than 32 KiB.
    let (mut agent, _) = Agent::link(&identity, hello(&identity, "e", 0)).await;
    let longest = |number: u64| wire::DiskDecision {
        name: format!("{number:0>255}"),
        rule: "r".repeat(32),
        why: "w".repeat(600),
        ..deletion(number)
    };
    for sequence in 2..=50 {
        let last = (sequence..sequence + 20).map(longest).collect();
        agent.delta(sequence, vec![decided(last)], &[]).await;
    }
    agent.acknowledged(50).await;
    let shown = list(&mut operator).await;
    assert_eq!(shown.disk_decisions, (50..70).map(longest).collect::<Vec<_>>());
    assert!(shown.disk_decisions.iter().map(prost::Message::encoded_len).sum::<usize>() < 32 << 10);
    // It outlives a restart of the coordinator, and goes when the agent says that it is gone.
    coordinator.stop().await.unwrap();
    let (coordinator, mut operator) = start(dir.path()).await;
    assert_eq!(list(&mut operator).await.disk_decisions, shown.disk_decisions);
    let identity = Identity { access: coordinator.access().clone(), ..identity };
    let (mut agent, _) = Agent::link(&identity, hello(&identity, "e", 0)).await;
    agent.delta(51, vec![], &["disk"]).await;
    agent.acknowledged(51).await;
    assert_eq!(list(&mut operator).await.disk_decisions, vec![]);
    coordinator.stop().await.unwrap();
}
