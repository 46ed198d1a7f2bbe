//! Two live processes with one identity, as of a disk image that was started twice: one goes on, the other
//! becomes a host of its own (R6.10).
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests: failures are panics")]

mod peers;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use fallow_coordinator::daemon::{Coordinator, Options};
use fallow_coordinator::fleet::LinkSettings;
use fallow_proto::fleet::v1 as wire;
use fallow_proto::fleet::v1::fleet_client::FleetClient;
use fallow_proto::operator::v1::{
    CreateProjectRequest, CreateTokensRequest, GetDocumentRequest, Host, LabelHostRequest, ListAuditRequest,
    ListHostsRequest, ListRolloutsRequest, NewWorkunit, RevokeHostRequest, RolloutPhase, RolloutPlan,
    SetPreferencesRequest, SetRolloutPlanRequest, SubmitRequest,
};
use fallow_tls::HostKey;
use peers::{Agent, Client, Identity, PATIENCE, add_app_version, connect, enroll, hello, host};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;
use tonic::{Code, Status};
use wire::from_agent::Body as Said;
use wire::from_coordinator::Body as Heard;

async fn start(dir: &Path) -> (Coordinator, Client) {
    started(dir, LinkSettings { heartbeat: Duration::from_millis(500), ..LinkSettings::default() }).await
}

async fn started(dir: &Path, link: LinkSettings) -> (Coordinator, Client) {
    let coordinator = Coordinator::start(Options { link, ..Options::at(dir) }).await.unwrap();
    let operator = connect(coordinator.access()).await.unwrap();
    (coordinator, operator)
}

async fn enrolled(coordinator: &Coordinator, operator: &mut Client) -> Identity {
    let request = CreateTokensRequest { labels: vec!["room=12".into()], ..Default::default() };
    let token = operator.create_tokens(request).await.unwrap().into_inner().tokens.remove(0);
    enroll(coordinator.access(), &token).await.unwrap()
}

async fn hosts(operator: &mut Client) -> Vec<Host> {
    operator.list_hosts(ListHostsRequest::default()).await.unwrap().into_inner().hosts
}

/// The Hello of the process that drew this number.
fn of(identity: &Identity, boot: u8) -> wire::Hello {
    wire::Hello { boot: vec![boot; 16], machine: vec![boot; 32], ..hello(identity, "e", 0) }
}

/// A process that has the link and answers whoever asks whether it is there.
struct First {
    /// How often it was asked.
    asked: Arc<AtomicU64>,
    say: mpsc::Sender<wire::FromAgent>,
    /// What it hears beside that.
    heard: mpsc::UnboundedReceiver<Heard>,
    ended: oneshot::Receiver<Status>,
}

impl First {
    async fn link(identity: &Identity, boot: u8) -> Self {
        let (mut agent, _) = Agent::link(identity, of(identity, boot)).await;
        let (asked, say) = (Arc::new(AtomicU64::new(0)), agent.to.clone());
        let (tell, heard) = mpsc::unbounded_channel();
        let (end, ended) = oneshot::channel();
        let count = asked.clone();
        tokio::spawn(async move {
            loop {
                match agent.next().await {
                    Ok(Heard::Probe(probe)) => {
                        count.fetch_add(1, Ordering::Relaxed);
                        agent.say(Said::ProbeAnswer(wire::ProbeAnswer { number: probe.number })).await;
                    }
                    // As an agent does, which would be taken for gone else.
                    Ok(Heard::Heartbeat(beat)) => agent.say(Said::Heartbeat(beat)).await,
                    Ok(other) => drop(tell.send(other)),
                    Err(status) => {
                        let _ = end.send(status);
                        return;
                    }
                }
            }
        });
        Self { asked, say, heard, ended }
    }

    /// It is linked, and what it says is taken.
    async fn goes_on(&mut self, sequence: u64) {
        self.says(sequence, vec![host()]).await;
    }

    async fn says(&mut self, sequence: u64, entries: Vec<wire::Entry>) {
        let body = match sequence {
            1 => Said::Snapshot(wire::Snapshot { sequence, entries }),
            _ => Said::Delta(wire::Delta { sequence, entries, removed: Vec::new() }),
        };
        self.say.send(wire::FromAgent { traceparent: String::new(), body: Some(body) }).await.unwrap();
        let acknowledged = async {
            loop {
                match self.heard.recv().await.expect("the link stands") {
                    Heard::Acknowledge(acknowledge) if acknowledge.sequence >= sequence => return,
                    _ => {}
                }
            }
        };
        timeout(PATIENCE, acknowledged).await.expect("it is acknowledged");
        assert!(self.ended.try_recv().is_err(), "its stream has ended");
    }
}

/// What a process hears that wants the link: its ticket, if it is told that it is a copy.
async fn told(identity: &Identity, boot: u8) -> Result<String, Heard> {
    let mut agent = Agent::open(identity, of(identity, boot)).await;
    let ticket = match agent.next().await.unwrap() {
        Heard::Copied(copied) => copied.ticket,
        other => return Err(other),
    };
    let end = agent.next().await.unwrap_err();
    assert!(end.code() == Code::AlreadyExists && end.message().contains("is a copy"), "{end}");
    Ok(ticket)
}

async fn separate(first: &Identity, ticket: &str, key: &Arc<HostKey>) -> Result<Identity, Status> {
    let request = wire::SeparateRequest {
        ticket: ticket.to_owned(),
        certificate_request: key.certificate_request().unwrap(),
        hostname: "twin".into(),
    };
    let mut client = FleetClient::new(first.channel().await);
    let wire::SeparateReply { agent_id, certificate } = client.separate(request).await?.into_inner();
    Ok(Identity { agent_id, access: first.access.clone(), key: key.clone(), certificate })
}

fn key() -> Arc<HostKey> {
    Arc::new(HostKey::generate().unwrap())
}

#[tokio::test]
async fn r6_10_the_link_of_the_first_of_two_live_processes_with_one_identity_never_ends_however_often_the_other_asks()
 {
    let dir = tempfile::tempdir().unwrap();
    let (coordinator, mut operator) = start(dir.path()).await;
    let identity = enrolled(&coordinator, &mut operator).await;
    let mut first = First::link(&identity, 1).await;
    first.goes_on(1).await;
    let began = Instant::now();
    for (times, boot) in [2, 2, 3, 2, 3, 4, 2, 2, 2, 2].into_iter().enumerate() {
        told(&identity, boot).await.unwrap();
        first.goes_on(times as u64 + 2).await;
    }
    // Many at once are told side by side.
    let all = (10..40).map(|boot| {
        let identity = identity.clone();
        tokio::spawn(async move { told(&identity, boot).await.unwrap() })
    });
    for one in all.collect::<Vec<_>>() {
        one.await.unwrap();
    }
    assert!(began.elapsed() < PATIENCE / 2, "nobody waits in vain: {:?}", began.elapsed());
    first.goes_on(12).await;
    assert!((1..=40).contains(&first.asked.load(Ordering::Relaxed)));
    assert_eq!(hosts(&mut operator).await.len(), 1, "whoever is told is no host yet");
    coordinator.stop().await.unwrap();
}

/// A lab of machines that were set up from one image and are switched on together.
#[tokio::test]
async fn r6_10_however_many_copies_come_at_once_the_first_process_keeps_its_link() {
    let dir = tempfile::tempdir().unwrap();
    let (coordinator, mut operator) = started(dir.path(), LinkSettings::default()).await;
    let identity = enrolled(&coordinator, &mut operator).await;
    let mut first = First::link(&identity, 1).await;
    first.goes_on(1).await;
    let mut waits = 0;
    for boots in [10..50, 50..90, 90..130, 130..170, 170..210] {
        let all = boots.map(|boot| {
            let identity = identity.clone();
            tokio::spawn(async move { Agent::open(&identity, of(&identity, boot)).await.next().await })
        });
        for one in all.collect::<Vec<_>>() {
            match one.await.unwrap() {
                Ok(Heard::Copied(_)) => {}
                // None of those who were told becomes a host of its own.
                Err(status) if status.message().contains("comes again") => waits += 1,
                other => panic!("it is not told that it is a copy: {other:?}"),
            }
        }
    }
    assert!(waits <= 200 - fallow_coordinator::fleet::limits::TICKETS, "{waits}");
    first.goes_on(2).await;
    assert_eq!(hosts(&mut operator).await.len(), 1);
    coordinator.stop().await.unwrap();
}

#[tokio::test]
async fn r6_10_a_process_that_is_silent_gives_way_to_the_one_after_a_restart_and_is_the_copy_when_it_comes_back()
 {
    let dir = tempfile::tempdir().unwrap();
    // Longer than it is waited for an answer: silence alone ends no link before.
    let (coordinator, mut operator) = started(dir.path(), LinkSettings::default()).await;
    let identity = enrolled(&coordinator, &mut operator).await;
    // Its connection stands, and nobody is behind it: a process that is stopped, or a machine that is gone.
    let (mut silent, _) = Agent::link(&identity, of(&identity, 1)).await;
    let began = Instant::now();
    let mut second = First::link(&identity, 2).await;
    assert!(began.elapsed() >= Duration::from_secs(4), "it was not waited for: {:?}", began.elapsed());
    let ended = silent.ended().await;
    assert!(ended.message().contains("took over"), "{ended}");
    second.goes_on(1).await;
    told(&identity, 1).await.unwrap();
    second.goes_on(2).await;
    coordinator.stop().await.unwrap();
}

#[tokio::test]
async fn r6_10_a_process_that_connects_again_and_one_after_a_clean_end_take_over_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let (coordinator, mut operator) = start(dir.path()).await;
    let identity = enrolled(&coordinator, &mut operator).await;
    let (mut half_open, _) = Agent::link(&identity, of(&identity, 1)).await;
    let (again, _) = timeout(Duration::from_secs(4), Agent::link(&identity, of(&identity, 1)))
        .await
        .expect("the same process does not wait for itself");
    assert!(half_open.ended().await.message().contains("took over"));
    // It ends, and is started again.
    drop(again);
    timeout(Duration::from_secs(4), Agent::link(&identity, of(&identity, 2)))
        .await
        .expect("nobody is there to be waited for");
    coordinator.stop().await.unwrap();
}

#[tokio::test]
async fn r6_10_a_copy_becomes_one_host_with_a_new_key_however_often_it_asks_and_operators_are_told() {
    let dir = tempfile::tempdir().unwrap();
    let (mut coordinator, mut operator) = start(dir.path()).await;
    let identity = enrolled(&coordinator, &mut operator).await;
    let mut first = First::link(&identity, 1).await;
    first.goes_on(1).await;
    let by_operator = LabelHostRequest { host: identity.agent_id.clone(), changes: vec!["owner=ann".into()] };
    operator.label_host(by_operator).await.unwrap();
    let ticket = told(&identity, 2).await.unwrap();
    let wrong = separate(&identity, "guess", &key()).await.unwrap_err();
    assert!(wrong.code() == Code::PermissionDenied && wrong.message().contains("just told"), "{wrong}");
    let old = separate(&identity, &ticket, &identity.key).await.unwrap_err();
    assert!(old.code() == Code::InvalidArgument && old.message().contains("a new key"), "{old}");

    let mine = key();
    let copy = separate(&identity, &ticket, &mine).await.unwrap();
    assert_ne!(copy.agent_id, identity.agent_id);
    // The answer was lost, say.
    assert_eq!(separate(&identity, &ticket, &mine).await.unwrap().agent_id, copy.agent_id);
    let spent = separate(&identity, &ticket, &key()).await.unwrap_err();
    assert_eq!(spent.code(), Code::PermissionDenied);
    first.goes_on(2).await;
    drop(first);
    coordinator.stop().await.unwrap();

    (coordinator, operator) = start(dir.path()).await;
    // And so after a restart.
    assert_eq!(separate(&identity, &ticket, &mine).await.unwrap().agent_id, copy.agent_id);
    let mut firsts = First::link(&identity, 1).await;
    let mut copies = First::link(&copy, 2).await;
    copies.goes_on(1).await;
    firsts.goes_on(3).await;
    let listed = hosts(&mut operator).await;
    let shown: Vec<_> =
        listed.iter().map(|host| (host.agent_id.as_str(), host.connected, host.copy_of.as_str())).collect();
    let of = identity.agent_id.as_str();
    assert_eq!(shown, [(of, true, ""), (copy.agent_id.as_str(), true, of)]);
    assert!(listed[1].copy_note.contains("on another machine"), "{}", listed[1].copy_note);
    assert_eq!(listed[1].copy_note.matches("from 127.0.0.1").count(), 2, "{}", listed[1].copy_note);
    let has = |host: &Host, label: &str| host.labels.iter().any(|held| held == label);
    // What it was enrolled with; what operators said of the first one's machine is not said of it.
    assert!(has(&listed[0], "owner=ann") && has(&listed[1], "room=12") && !has(&listed[1], "owner=ann"));
    let request = ListAuditRequest { action: "host copied".into(), limit: 10, ..Default::default() };
    let log = operator.list_audit(request).await.unwrap().into_inner().entries;
    assert_eq!(log.len(), 1);
    assert!(log[0].object.contains(of) && log[0].after.contains(&copy.agent_id), "{:?}", log[0]);
    coordinator.stop().await.unwrap();
}

#[tokio::test]
async fn r6_10_a_host_that_is_taken_out_of_the_fleet_leaves_no_copies_unsaid_and_makes_none() {
    let dir = tempfile::tempdir().unwrap();
    let (coordinator, mut operator) = start(dir.path()).await;
    let identity = enrolled(&coordinator, &mut operator).await;
    let first = First::link(&identity, 1).await;
    let copy = separate(&identity, &told(&identity, 2).await.unwrap(), &key()).await.unwrap();
    let second = First::link(&copy, 2).await;
    let third = separate(&copy, &told(&copy, 3).await.unwrap(), &key()).await.unwrap();
    let late = told(&identity, 4).await.unwrap();
    let revoke = |host: &str| RevokeHostRequest { host: host.to_owned(), reason: String::new() };
    let said = operator.revoke_host(revoke(&identity.agent_id)).await.unwrap().into_inner();
    assert_eq!(said.copies, [copy.agent_id.clone(), third.agent_id.clone()]);
    let ended = timeout(PATIENCE, first.ended).await.unwrap().unwrap();
    assert_eq!(ended.code(), Code::PermissionDenied);
    let refused = separate(&identity, &late, &key()).await.unwrap_err();
    assert!(refused.message().contains("taken out of the fleet"), "{refused}");
    let refused = Agent::refused(&identity, of(&identity, 4)).await;
    assert_eq!(refused.code(), Code::PermissionDenied);
    let said = operator.revoke_host(revoke(&copy.agent_id)).await.unwrap().into_inner();
    assert_eq!(said.copies, [third.agent_id]);
    drop(second);
    coordinator.stop().await.unwrap();
}

/// How many agents a submission is told of, and how many of them count as one with others.
async fn counted(operator: &mut Client) -> (u64, u64) {
    let workunit = NewWorkunit { application: "a".into(), flops_estimate: 1e9, ..Default::default() };
    let request = SubmitRequest {
        project: "p".into(),
        workunits: vec![workunit],
        check_only: true,
        ..Default::default()
    };
    let reply = operator.submit(request).await.unwrap().into_inner();
    (reply.agents, reply.copied_agents)
}

#[tokio::test]
async fn r6_11_who_submits_is_told_how_many_hosts_count_as_one_with_others_also_when_the_first_one_is_gone() {
    let dir = tempfile::tempdir().unwrap();
    let (coordinator, mut operator) = start(dir.path()).await;
    let request = CreateProjectRequest { name: "p".into(), share: 50.0, ..Default::default() };
    operator.create_project(request).await.unwrap();
    add_app_version(&mut operator, "p", "a").await;
    let identity = enrolled(&coordinator, &mut operator).await;
    enrolled(&coordinator, &mut operator).await;
    assert_eq!(counted(&mut operator).await, (2, 0));
    let _first = First::link(&identity, 1).await;
    let copy = separate(&identity, &told(&identity, 2).await.unwrap(), &key()).await.unwrap();
    let _second = First::link(&copy, 2).await;
    let third = separate(&copy, &told(&copy, 3).await.unwrap(), &key()).await.unwrap();
    assert_eq!(counted(&mut operator).await, (4, 2));
    for (gone, left) in [(&identity, (3, 1)), (&copy, (2, 0)), (&third, (1, 0))] {
        let request = RevokeHostRequest { host: gone.agent_id.clone(), reason: String::new() };
        operator.revoke_host(request).await.unwrap();
        assert_eq!(counted(&mut operator).await, left);
    }
    coordinator.stop().await.unwrap();
}

#[tokio::test]
async fn r6_10_a_certificate_makes_no_more_than_so_many_hosts_in_an_hour_its_copies_included() {
    let dir = tempfile::tempdir().unwrap();
    let (coordinator, mut operator) = start(dir.path()).await;
    let identity = enrolled(&coordinator, &mut operator).await;
    let _first = First::link(&identity, 1).await;
    let mut copies = Vec::new();
    for _ in 0..fallow_coordinator::fleet::limits::COPIES_AN_HOUR {
        copies.push(separate(&identity, &told(&identity, 2).await.unwrap(), &key()).await.unwrap());
    }
    let copy = &copies[0];
    let _copies = First::link(copy, 2).await;
    for of in [&identity, copy] {
        let ticket = told(of, 3).await.unwrap();
        let refused = separate(of, &ticket, &key()).await.unwrap_err();
        assert!(refused.code() == Code::ResourceExhausted && refused.message().contains("60"), "{refused}");
    }
    // Another host's copies are counted by themselves.
    let other = enrolled(&coordinator, &mut operator).await;
    let _others = First::link(&other, 1).await;
    separate(&other, &told(&other, 2).await.unwrap(), &key()).await.unwrap();
    coordinator.stop().await.unwrap();
}

/// A host that follows this version.
fn following(version: u64) -> wire::Entry {
    let mut entry = host();
    if let Some(wire::entry::Value::Host(host)) = &mut entry.value {
        host.document_version = version;
    }
    entry
}

#[tokio::test]
async fn r6_5_a_machine_and_its_copies_are_one_witness_for_a_version() {
    let dir = tempfile::tempdir().unwrap();
    let (coordinator, mut operator) = start(dir.path()).await;
    let request = CreateProjectRequest { name: "p".into(), share: 50.0, ..Default::default() };
    operator.create_project(request).await.unwrap();
    let identity = enrolled(&coordinator, &mut operator).await;
    let mut hosts = vec![First::link(&identity, 1).await];
    for _ in 0..2 {
        let copy = separate(&identity, &told(&identity, 2).await.unwrap(), &key()).await.unwrap();
        hosts.push(First::link(&copy, 2).await);
    }
    for host in &mut hosts {
        host.says(1, vec![following(1)]).await;
    }
    let plan = RolloutPlan { waves: "100%".into(), soak_micros: 5_000_000, ..Default::default() };
    let request = SetRolloutPlanRequest { plan: Some(plan), message: String::new() };
    operator.set_rollout_plan(request).await.unwrap();
    let document = operator.get_document(GetDocumentRequest { released: false }).await.unwrap().into_inner();
    let preferences = document.document.unwrap().preferences.unwrap();
    let preferences = wire::Preferences { cpu_fraction: 0.75, ..preferences };
    let request = SetPreferencesRequest { preferences: Some(preferences), ..Default::default() };
    operator.set_preferences(request).await.unwrap();
    for host in &mut hosts {
        host.says(2, vec![following(2)]).await;
    }
    let all = async {
        loop {
            let reply = operator.list_rollouts(ListRolloutsRequest { limit: 1 }).await.unwrap();
            let rollout = reply.into_inner().rollouts.remove(0);
            if rollout.phase() == RolloutPhase::Completed {
                return rollout;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let rollout = timeout(PATIENCE, all).await.expect("it is completed");
    let last = &rollout.steps.last().unwrap().what;
    assert!(last.contains("1 host with it for"), "{last}");
    coordinator.stop().await.unwrap();
}

#[tokio::test]
async fn r6_10_a_hello_with_a_number_that_is_none_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (coordinator, mut operator) = start(dir.path()).await;
    let identity = enrolled(&coordinator, &mut operator).await;
    for bad in [
        wire::Hello { boot: vec![1; 15], ..of(&identity, 1) },
        wire::Hello { machine: vec![1; 4_096], ..of(&identity, 1) },
    ] {
        assert_eq!(Agent::refused(&identity, bad).await.code(), Code::InvalidArgument);
    }
    coordinator.stop().await.unwrap();
}

#[tokio::test]
async fn r1_4_of_hosts_that_are_copies_of_one_machine_no_two_are_told_of_jobs_before_another_machine_is() {
    let dir = tempfile::tempdir().unwrap();
    let (coordinator, mut operator) = start(dir.path()).await;
    let request = CreateProjectRequest { name: "p".into(), share: 50.0, ..Default::default() };
    operator.create_project(request).await.unwrap();
    add_app_version(&mut operator, "p", "a").await;
    let url = coordinator.projects().projects()[0].url.to_string();
    let project = wire::ProjectState { url: url.clone(), ..Default::default() };
    let attached =
        wire::Entry { key: format!("project/{url}"), value: Some(wire::entry::Value::Project(project)) };
    let identity = enrolled(&coordinator, &mut operator).await;
    let mut hosts = vec![First::link(&identity, 1).await];
    for _ in 0..5 {
        let copy = separate(&identity, &told(&identity, 2).await.unwrap(), &key()).await.unwrap();
        hosts.push(First::link(&copy, 2).await);
    }
    let other = enrolled(&coordinator, &mut operator).await;
    hosts.push(First::link(&other, 1).await);
    for host in &mut hosts {
        host.says(1, vec![self::host(), attached.clone()]).await;
    }
    let workunit = NewWorkunit {
        application: "a".into(),
        flops_estimate: 1e9,
        quorum: 2,
        initial_jobs: 2,
        max_total_jobs: 4,
        ..Default::default()
    };
    let mut other = hosts.pop().unwrap();
    for _ in 0..5 {
        let request =
            SubmitRequest { project: "p".into(), workunits: vec![workunit.clone()], ..Default::default() };
        operator.submit(request).await.unwrap();
        let told = async { while !matches!(other.heard.recv().await, Some(Heard::ContactProject(_))) {} };
        timeout(Duration::from_secs(5), told).await.expect("it is told");
    }
    coordinator.stop().await.unwrap();
}
