//! Who is let in at the fleet's port, and for how long (R6.10).
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests: failures are panics")]

mod peers;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use fallow_coordinator::daemon::{Coordinator, Options};
use fallow_coordinator::fleet::LinkSettings;
use fallow_proto::fleet::v1 as wire;
use fallow_proto::fleet::v1::fleet_client::FleetClient;
use fallow_proto::operator::v1::{
    CreateTokensRequest, ForgetHostRequest, Host, ListHostsRequest, ListTokensRequest, RevokeHostRequest,
};
use fallow_tls::{HostCertificate, HostKey};
use peers::{
    Agent, Client, Identity, PATIENCE, channel, connect, enroll, enroll_with, forged, hello, host, tokens,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::timeout;
use tonic::Code;
use wire::entry::Value;
use wire::from_coordinator::Body as Heard;

async fn start(dir: &Path, certificate_life: fallow_domain::Duration) -> (Coordinator, Client) {
    let link = LinkSettings { heartbeat: Duration::from_secs(2), ..LinkSettings::default() };
    let options = Options { link, certificate_life, ..Options::at(dir) };
    let coordinator = Coordinator::start(options).await.unwrap();
    let operator = connect(coordinator.access()).await.unwrap();
    (coordinator, operator)
}

const DAY: fallow_domain::Duration = fallow_domain::Duration::from_hours(24);

async fn identity(coordinator: &Coordinator, operator: &mut Client) -> Identity {
    let token = tokens(operator, 1).await.remove(0);
    enroll(coordinator.access(), &token).await.unwrap()
}

async fn hosts(operator: &mut Client) -> Vec<Host> {
    operator.list_hosts(ListHostsRequest::default()).await.unwrap().into_inner().hosts
}

#[tokio::test]
async fn r6_10_a_token_enrols_as_many_hosts_as_it_says_and_gives_them_its_labels() {
    let dir = tempfile::tempdir().unwrap();
    let (coordinator, mut operator) = start(dir.path(), DAY).await;
    let request = CreateTokensRequest { uses: 3, labels: vec!["room=12".into()], ..Default::default() };
    let made = operator.create_tokens(request).await.unwrap().into_inner();
    assert!(made.strings[0].starts_with("fallow-enrol-1/127.0.0.1:"));
    assert!(made.strings[0].contains(&coordinator.access().authority.to_string()));
    let key = Arc::new(HostKey::generate().unwrap());
    let first = enroll_with(coordinator.access(), &made.tokens[0], key.clone()).await.unwrap();
    // The answer was lost, say: asked again with the same key.
    let again = enroll_with(coordinator.access(), &made.tokens[0], key).await.unwrap();
    assert_eq!(first.agent_id, again.agent_id);
    for _ in 0..2 {
        enroll(coordinator.access(), &made.tokens[0]).await.unwrap();
    }
    let status = enroll(coordinator.access(), &made.tokens[0]).await.err().unwrap();
    assert!(status.message().contains("3 of 3 times"), "{status}");
    let listed = operator.list_tokens(ListTokensRequest {}).await.unwrap().into_inner().tokens;
    assert_eq!((listed[0].used, listed[0].labels.join(" ").as_str()), (3, "room=12"));
    assert_eq!(hosts(&mut operator).await.len(), 3);
    coordinator.stop().await.unwrap();
}

#[tokio::test]
async fn r6_10_a_host_that_is_revoked_loses_its_link_within_a_second_and_for_good() {
    let dir = tempfile::tempdir().unwrap();
    let (coordinator, mut operator) = start(dir.path(), DAY).await;
    let [thief, other] =
        [identity(&coordinator, &mut operator).await, identity(&coordinator, &mut operator).await];
    let (mut link, _) = Agent::link(&thief, hello(&thief, "e", 0)).await;
    let (mut others, _) = Agent::link(&other, hello(&other, "e", 0)).await;
    let request = RevokeHostRequest { host: thief.agent_id.clone(), reason: "stolen".into() };
    operator.revoke_host(request).await.unwrap();
    let ended = timeout(Duration::from_secs(1), link.ended()).await.expect("within a second");
    assert_eq!(ended.code(), Code::PermissionDenied);
    assert!(
        ended.message().contains("taken out of the fleet") && ended.message().contains("stolen"),
        "{ended}"
    );
    let mut coordinator = coordinator;
    for restarted in [false, true] {
        if restarted {
            drop(others);
            coordinator.stop().await.unwrap();
            (coordinator, operator) = start(dir.path(), DAY).await;
            others = Agent::link(&other, hello(&other, "e", 0)).await.0;
        }
        let refused = Agent::refused(&thief, hello(&thief, "e", 0)).await;
        assert!(refused.message().contains("stolen"), "{refused}");
        let Err(refused) = thief.renewed().await else { panic!("a newer certificate for a thief") };
        assert_eq!(refused.code(), Code::PermissionDenied);
        let listed = hosts(&mut operator).await;
        let listed = listed.iter().find(|host| host.agent_id == thief.agent_id).unwrap();
        assert_eq!((listed.connected, listed.revoked_reason.as_str()), (false, "stolen"));
        others.snapshot(1, vec![host()]).await;
        others.acknowledged(1).await;
    }
    drop(others);
    coordinator.stop().await.unwrap();
}

const URL: &str = "http://127.0.0.1:1/a/";

/// Jobs with names of as many bytes as a name may have.
fn jobs(numbers: std::ops::Range<usize>) -> Vec<wire::Entry> {
    let job = |number: usize| {
        let name = format!("{number:0>255}");
        let task = wire::TaskState { project_url: URL.into(), name: name.clone(), ..Default::default() };
        wire::Entry { key: format!("task/{URL}/{name}"), value: Some(Value::Task(task)) }
    };
    numbers.map(job).collect()
}

/// What the store in this directory holds under a prefix.
fn stored(dir: &Path, prefix: &str) -> usize {
    let store = fallow_store::SledStore::open(dir.join("store")).unwrap();
    fallow_store::Store::scan_prefix(&store, prefix.as_bytes()).unwrap().len()
}

#[tokio::test]
async fn r6_10_what_a_host_said_that_is_taken_out_leaves_memory_and_store_also_when_its_link_stood() {
    let dir = tempfile::tempdir().unwrap();
    let (coordinator, mut operator) = start(dir.path(), DAY).await;
    let linked = identity(&coordinator, &mut operator).await;
    let gone = identity(&coordinator, &mut operator).await;
    let mut links = Vec::new();
    for identity in [&linked, &gone] {
        let (mut link, _) = Agent::link(identity, hello(identity, "e", 0)).await;
        link.snapshot(1, [vec![host()], jobs(0..500)].concat()).await;
        link.acknowledged(1).await;
        links.push(link);
    }
    links.pop();
    let forget = || ForgetHostRequest { host: gone.agent_id.clone() };
    let is_forgotten = async {
        while operator.forget_host(forget()).await.is_err() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(PATIENCE, is_forgotten).await.expect("its link has ended");
    let revoke = RevokeHostRequest { host: linked.agent_id.clone(), reason: String::new() };
    operator.revoke_host(revoke).await.unwrap();
    links[0].ended().await;
    let is_let_go = async {
        while coordinator.fleet().hosts().any(|host| !host.tasks.is_empty()) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(PATIENCE, is_let_go).await.expect("its jobs leave the memory");
    let listed = hosts(&mut operator).await;
    let state = listed[0].state.as_ref().unwrap();
    assert_eq!((listed.len(), state.hostname.as_str(), state.cpus), (1, "host", 2));
    coordinator.stop().await.unwrap();
    for id in [&linked.agent_id, &gone.agent_id] {
        assert_eq!(stored(dir.path(), &format!("fleet/entry/{id}/")), 1, "what the host is");
    }
}

#[tokio::test]
async fn r6_10_a_host_that_says_more_than_it_may_hold_hears_why_and_keeps_what_it_had() {
    let dir = tempfile::tempdir().unwrap();
    let (coordinator, mut operator) = start(dir.path(), DAY).await;
    let identity = identity(&coordinator, &mut operator).await;
    let (mut link, _) = Agent::link(&identity, hello(&identity, "e", 0)).await;
    link.snapshot(1, vec![host()]).await;
    link.acknowledged(1).await;
    let mut sequence = 1;
    let end = loop {
        sequence += 1;
        assert!(sequence < 100, "it may hold whatever it says");
        let from = sequence as usize * 1_000;
        link.delta(sequence, jobs(from..from + 1_000), &[]).await;
        let heard = async {
            loop {
                match link.next().await {
                    Ok(Heard::Acknowledge(one)) if one.sequence >= sequence => return None,
                    Ok(_) => {}
                    Err(status) => return Some(status),
                }
            }
        };
        if let Some(end) = heard.await {
            break end;
        }
    };
    assert_eq!(end.code(), Code::ResourceExhausted);
    assert!(end.message().contains("entries may take 8 MiB"), "{end}");
    let held = coordinator.fleet().hosts().next().unwrap();
    assert_eq!(held.tasks.len(), (sequence as usize - 2) * 1_000);
    // With fewer it goes on.
    let (mut link, welcome) = Agent::link(&identity, hello(&identity, "e", 0)).await;
    link.snapshot(welcome.applied_sequence + 1, vec![host()]).await;
    link.acknowledged(welcome.applied_sequence + 1).await;
    coordinator.stop().await.unwrap();
}

#[tokio::test]
async fn r6_10_a_dead_host_is_forgotten_and_one_that_is_there_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let (coordinator, mut operator) = start(dir.path(), DAY).await;
    let gone = identity(&coordinator, &mut operator).await;
    let there = identity(&coordinator, &mut operator).await;
    let (link, _) = Agent::link(&there, hello(&there, "e", 0)).await;
    let forget = |host: &str| ForgetHostRequest { host: host.to_owned() };
    let refused = operator.forget_host(forget(&there.agent_id)).await.unwrap_err();
    assert!(refused.message().contains("is connected: revoke it first"), "{refused}");
    operator.forget_host(forget(&gone.agent_id)).await.unwrap();
    let left: Vec<_> = hosts(&mut operator).await.into_iter().map(|host| host.agent_id).collect();
    assert_eq!(left, std::slice::from_ref(&there.agent_id));
    let refused = Agent::refused(&gone, hello(&gone, "e", 0)).await;
    assert!(refused.message().contains("was removed from the fleet"), "{refused}");
    let unknown = operator.forget_host(forget("nobody")).await.unwrap_err();
    assert!(unknown.code() == Code::NotFound && unknown.message().contains("fallow hosts"), "{unknown}");
    drop(link);
    coordinator.stop().await.unwrap();
}

#[tokio::test]
async fn r6_10_a_certificate_that_is_another_keys_expired_or_of_nobody_opens_no_link_and_says_why() {
    let dir = tempfile::tempdir().unwrap();
    let (coordinator, mut operator) = start(dir.path(), DAY).await;
    let identity = identity(&coordinator, &mut operator).await;
    let now = fallow_daemon::clock::now();
    let month_ago = now - fallow_domain::Duration::from_hours(30 * 24);
    let other_key = HostKey::generate().unwrap();
    for (credentials, said) in [
        (None, "needs a host's certificate"),
        (Some(forged(dir.path(), &identity.agent_id, &identity.key, month_ago)), "has expired"),
        (Some(forged(dir.path(), &identity.agent_id, &other_key, now)), "a key that is not this host's"),
        (Some(forged(dir.path(), "nobody", &other_key, now)), "does not know this host"),
    ] {
        let channel = channel(&identity.access, credentials).await.unwrap();
        let mut agent = Agent::open_over(channel, hello(&identity, "e", 0)).await;
        let refused = agent.next().await.unwrap_err();
        assert!(refused.message().contains(said), "{refused}");
    }
    coordinator.stop().await.unwrap();
}

#[tokio::test]
async fn r6_10_a_host_that_was_off_for_months_renews_its_certificate_and_another_key_gets_none() {
    let dir = tempfile::tempdir().unwrap();
    let (coordinator, mut operator) = start(dir.path(), DAY).await;
    let identity = identity(&coordinator, &mut operator).await;
    let months_ago = fallow_daemon::clock::now() - fallow_domain::Duration::from_hours(100 * 24);
    let expired = forged(dir.path(), &identity.agent_id, &identity.key, months_ago);
    let channel = channel(&identity.access, Some(expired)).await.unwrap();
    let mut client = FleetClient::new(channel);
    let request = |key: &HostKey| fallow_proto::fleet::v1::RenewRequest {
        certificate_request: key.certificate_request().unwrap(),
    };
    let refused = client.renew(request(&HostKey::generate().unwrap())).await.unwrap_err();
    assert!(refused.message().contains("a host keeps its key"), "{refused}");
    let reply = client.renew(request(&identity.key)).await.unwrap().into_inner();
    let says = HostCertificate::read(&reply.certificate).unwrap();
    assert_eq!((says.agent.0.as_str(), says.key), (identity.agent_id.as_str(), identity.key.fingerprint()));
    let newer = Identity { certificate: reply.certificate, ..identity };
    Agent::link(&newer, hello(&newer, "e", 0)).await;
    coordinator.stop().await.unwrap();
}

/// A number that the environment says, or the ordinary one.
fn given(variable: &str, ordinary: u32) -> u32 {
    std::env::var(variable).map_or(ordinary, |given| given.parse().expect("a number"))
}

/// Eight renewals of certificates that are good for 3 s. `FALLOW_RENEWALS=100 FALLOW_LIFE_SECONDS=20` takes
/// others, and 22 minutes.
#[tokio::test]
async fn r6_10_a_link_outlives_the_certificates_that_are_renewed_under_it_and_ends_when_none_is_left() {
    // So the link lives twice as long as its first certificate is good, with the coordinator's grace.
    let renewals = given("FALLOW_RENEWALS", 8);
    let life = fallow_domain::Duration::from_secs(given("FALLOW_LIFE_SECONDS", 3).into());
    let dir = tempfile::tempdir().unwrap();
    let (coordinator, mut operator) = start(dir.path(), life).await;
    let identity = identity(&coordinator, &mut operator).await;
    let (mut link, _) = Agent::link(&identity, hello(&identity, "e", 0)).await;
    link.snapshot(1, vec![host()]).await;
    link.acknowledged(1).await;
    let (mut sequence, mut newest) = (1, identity.clone());
    let says = |identity: &Identity| HostCertificate::read(&identity.certificate).unwrap();
    for _ in 0..renewals {
        // As agents do: when two thirds of its life are over.
        let due = says(&newest).made_at() + says(&newest).renew_after();
        while fallow_daemon::clock::now() < due {
            for _ in 0..50 {
                sequence += 1;
                link.delta(sequence, vec![host()], &[]).await;
            }
            link.acknowledged(sequence).await;
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        let renewed = newest.renewed().await.unwrap();
        assert!(says(&renewed).not_after > says(&newest).not_after, "{:?}", says(&renewed));
        newest = renewed;
    }
    let held = hosts(&mut operator).await.remove(0);
    assert_eq!((held.connected, held.applied_sequence), (true, sequence));
    println!("{renewals} renewals, {} deltas acknowledged, 1 link", sequence - 1);
    // It lives on as long as something comes; and is renewed no more.
    let ended = timeout(PATIENCE, async {
        loop {
            link.say(fallow_proto::fleet::v1::from_agent::Body::Heartbeat(Default::default())).await;
            if let Ok(Err(status)) = timeout(Duration::from_millis(300), link.message()).await {
                return status;
            }
        }
    });
    let ended = ended.await.expect("it ends");
    assert!(ended.message().contains("has expired"), "{ended}");
    coordinator.stop().await.unwrap();
}

#[tokio::test]
async fn r6_10_whoever_speaks_without_tls_to_the_fleets_port_is_told_so() {
    let dir = tempfile::tempdir().unwrap();
    let (coordinator, _operator) = start(dir.path(), DAY).await;
    let address = coordinator.access().addresses[0].to_string();
    for said in [&b"GET / HTTP/1.1\r\nHost: h\r\n\r\n"[..], b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"] {
        let mut stream = tokio::net::TcpStream::connect(&address).await.unwrap();
        stream.write_all(said).await.unwrap();
        stream.shutdown().await.unwrap();
        let mut answer = String::new();
        timeout(PATIENCE, stream.read_to_string(&mut answer)).await.expect("an answer").unwrap();
        assert!(answer.starts_with("HTTP/1.1 400") && answer.contains("speaks TLS only"), "{answer}");
    }
    coordinator.stop().await.unwrap();
}
