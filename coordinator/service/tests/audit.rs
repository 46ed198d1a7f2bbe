//! The audit log of a running coordinator (R6.5, R6.10).
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests: failures are panics")]

mod peers;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use fallow_coordinator::audit::refusals::AN_HOUR;
use fallow_coordinator::audit::{Chain, wire as told};
use fallow_coordinator::backup::Source;
use fallow_coordinator::daemon::{Coordinator, Options};
use fallow_coordinator::operator::OperatorService;
use fallow_coordinator::roles::Caller;
use fallow_proto::operator::v1::operator_server::Operator as _;
use fallow_proto::operator::v1::{
    AuditActor, AuditEntry, CreateProjectRequest, ForgetHostRequest, LabelHostRequest, ListAuditReply,
    ListAuditRequest, ListHostsRequest, ListTokensRequest, NewWorkunit, RevokeHostRequest,
    RevokeTokenRequest, SetProjectRequest, SetSharesRequest, Setting, ShareOfProject, ShutdownRequest,
    SubmitRequest,
};
use fallow_store::{Batch, KeyRange, Kind, SledStore, Store as _};
use fallow_tls::AccessString;
use peers::{Agent, Client, PATIENCE, add_app_version, connect, enroll, hello, tokens};
use tokio::sync::watch;
use tonic::{Code, Request};

async fn start(dir: &Path) -> (Coordinator, Client) {
    let coordinator = Coordinator::start(Options::at(dir)).await.unwrap();
    let operator = connect(coordinator.access()).await.unwrap();
    (coordinator, operator)
}

/// A page, asked for as it is usual.
async fn page(operator: &mut Client, request: ListAuditRequest) -> ListAuditReply {
    operator.list_audit(request).await.unwrap().into_inner()
}

async fn entries(operator: &mut Client) -> Vec<AuditEntry> {
    page(operator, ListAuditRequest::default()).await.entries
}

/// All entries of an action, as soon as there are so many: refusals are stored when there is a thread for it.
async fn of(operator: &mut Client, action: &str, count: usize) -> Vec<AuditEntry> {
    let asked = tokio::time::timeout(PATIENCE, async {
        loop {
            let request = ListAuditRequest { action: action.into(), ..Default::default() };
            let found = page(operator, request).await.entries;
            if found.len() >= count {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
    asked.await.unwrap_or_else(|_| panic!("{count} entries: {action}"))
}

/// Follows the whole chain, as a tool does.
async fn whole(operator: &mut Client) -> u64 {
    let mut chain = Chain::default();
    loop {
        let request = ListAuditRequest { after: Some(chain.head().sequence), limit: 3, ..Default::default() };
        let reply = page(operator, request).await;
        let head = told::head(&reply).unwrap();
        for entry in reply.entries {
            chain.follow(&told::from_wire(entry).unwrap()).unwrap();
        }
        if !reply.more {
            chain.ends(head).unwrap();
            return head.sequence;
        }
    }
}

async fn create(operator: &mut Client, name: &str) {
    let request = CreateProjectRequest { name: name.into(), share: 75.0, ..Default::default() };
    operator.create_project(request).await.unwrap();
}

/// As `fallow` asks: with the operator's name.
fn by<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.metadata_mut().insert(fallow_coordinator::operator::AUTHOR, "ann@lab".parse().unwrap());
    request
}

#[tokio::test]
async fn r6_10_everything_that_operators_do_is_in_the_audit_log_with_who_did_what_and_from_where() {
    let dir = tempfile::tempdir().unwrap();
    let (coordinator, mut operator) = start(dir.path()).await;
    assert_eq!(whole(&mut operator).await, 0);
    create(&mut operator, "primes").await;
    let setting = Setting { key: "poll".into(), value: "90s".into() };
    let request = SetProjectRequest { name: "primes".into(), settings: vec![setting] };
    operator.set_project(by(request)).await.unwrap();
    add_app_version(&mut operator, "primes", "sieve").await;
    let workunit = NewWorkunit { application: "sieve".into(), flops_estimate: 1e9, ..Default::default() };
    let submission = SubmitRequest {
        project: "primes".into(),
        workunits: vec![workunit],
        key: "night".into(),
        digest: "d".into(),
        total: 1,
        ..Default::default()
    };
    for check_only in [true, false, false] {
        let submission = SubmitRequest { check_only, ..submission.clone() };
        operator.submit(submission).await.unwrap();
    }
    let share = ShareOfProject { project: "primes".into(), share: 20.0 };
    operator.set_shares(by(SetSharesRequest { shares: vec![share], ..Default::default() })).await.unwrap();
    let [token, unused] = tokens(&mut operator, 2).await.try_into().unwrap();
    let listed = operator.list_tokens(ListTokensRequest {}).await.unwrap().into_inner().tokens;
    operator.revoke_token(RevokeTokenRequest { id: listed[0].id.clone() }).await.unwrap();
    let enrolled = match enroll(coordinator.access(), &token).await {
        Ok(identity) => identity,
        Err(_) => enroll(coordinator.access(), &unused).await.unwrap(),
    };
    let host = enrolled.agent_id.clone();
    let label = LabelHostRequest { host: host.clone(), changes: vec!["room=12".into()] };
    operator.label_host(label).await.unwrap();
    let revoke = RevokeHostRequest { host: host.clone(), reason: "stolen\nfrom room 12".into() };
    operator.revoke_host(by(revoke)).await.unwrap();
    operator.forget_host(ForgetHostRequest { host: host.clone() }).await.unwrap();

    let done = entries(&mut operator).await.into_iter().filter(|entry| !entry.refused).collect::<Vec<_>>();
    let actions: Vec<&str> = done.iter().map(|entry| entry.action.as_str()).collect();
    let expected = [
        "project created",
        "document changed",
        "project changed",
        "app version added",
        "submitted",
        "document changed",
        "tokens created",
        "token revoked",
        "enrolled",
        "host labelled",
        "host revoked",
        "host forgotten",
    ];
    assert_eq!(actions, expected);
    let [_, document, project, version, submitted, shares, made, ended, joined, labelled, revoked, _] =
        &done[..]
    else {
        panic!("{done:?}")
    };
    assert_eq!((document.object.as_str(), document.before.as_str()), ("version 1: project primes", ""));
    assert_eq!((project.actor.as_str(), project.object.as_str()), ("ann@lab", "primes"));
    assert_eq!((project.before.as_str(), project.after.as_str()), ("poll=5m", "poll=90s"));
    assert!(version.object.starts_with("sieve 1.0 of project primes, for x86_64"), "{version:?}");
    assert_eq!(submitted.after, "workunits 1 to 1 of 1, key night");
    assert_eq!((shares.object.as_str(), &shares.before), ("version 2: shares primes=20", &document.after));
    assert_eq!(made.object.split(' ').count(), 2);
    assert!(made.object.contains(&ended.object) && made.after.starts_with("uses 1, life "), "{made:?}");
    assert_eq!((joined.actor_kind(), &joined.actor), (AuditActor::Agent, &host));
    assert_eq!((labelled.before.as_str(), labelled.after.as_str()), ("", "room=12"));
    assert_eq!((revoked.actor_kind(), revoked.actor.as_str()), (AuditActor::Operator, "ann@lab"));
    assert_eq!((revoked.message.as_str(), &revoked.object), ("stolen\u{fffd}from room 12", &labelled.object));
    for entry in &done {
        assert!(entry.from.starts_with("127.0.0.1:"), "{entry:?}");
    }
    whole(&mut operator).await;
    coordinator.stop().await.unwrap();
}

#[tokio::test]
async fn r6_10_what_an_operator_changes_is_recorded_also_if_he_goes_away_meanwhile() {
    let dir = tempfile::tempdir().unwrap();
    let (coordinator, mut operator) = start(dir.path()).await;
    create(&mut operator, "primes").await;
    let source = Source {
        dir: dir.path().to_path_buf(),
        store: Arc::new(SledStore::open(dir.path().join("unused")).unwrap()),
        projects: coordinator.projects().clone(),
        authority: coordinator.access().authority.to_string(),
    };
    let service = OperatorService::new(
        coordinator.fleet().clone(),
        coordinator.documents().clone(),
        coordinator.operators().clone(),
        coordinator.access().clone(),
        (watch::Sender::new(false), Arc::default()),
        source,
    );
    let setting = Setting { key: "poll".into(), value: "90s".into() };
    let request = SetProjectRequest { name: "primes".into(), settings: vec![setting] };
    {
        let mut request = by(request);
        request.extensions_mut().insert(Caller::Owner);
        let call = std::pin::pin!(service.set_project(request));
        // Polled once: the change is on its way. Then the caller goes.
        assert!(futures_util::poll!(call).is_pending());
    }
    let recorded = of(&mut operator, "project changed", 1).await;
    assert_eq!((recorded[0].after.as_str(), recorded[0].refused), ("poll=90s", false));
    drop(service);
    coordinator.stop().await.unwrap();
}

#[tokio::test]
async fn r6_10_the_chain_goes_on_after_a_restart_and_the_shutdown_is_in_it() {
    let dir = tempfile::tempdir().unwrap();
    let (mut coordinator, mut operator) = start(dir.path()).await;
    for name in ["a", "b", "c"] {
        create(&mut operator, name).await;
    }
    let before = whole(&mut operator).await;
    operator.shutdown(by(ShutdownRequest {})).await.unwrap();
    coordinator.asked_to_stop().await.unwrap();
    coordinator.stop().await.unwrap();
    let (coordinator, mut operator) = start(dir.path()).await;
    create(&mut operator, "d").await;
    assert_eq!(whole(&mut operator).await, before + 3);
    let after = entries(&mut operator).await;
    let stopped = &after[before as usize];
    assert_eq!((stopped.action.as_str(), stopped.actor.as_str()), ("shutdown", "ann@lab"));
    coordinator.stop().await.unwrap();
}

#[tokio::test]
async fn r6_10_who_is_refused_is_recorded_so_many_times_an_hour() {
    let dir = tempfile::tempdir().unwrap();
    let (coordinator, mut operator) = start(dir.path()).await;
    let stranger = AccessString { secret: "0".repeat(64), ..coordinator.access().clone() };
    let mut stranger = connect(&stranger).await.unwrap();
    for _ in 0..2 * AN_HOUR {
        let refused = stranger.list_hosts(ListHostsRequest::default()).await.unwrap_err();
        assert_eq!(refused.code(), Code::PermissionDenied);
    }
    let recorded = of(&mut operator, "operator refused", AN_HOUR as usize).await;
    assert_eq!(recorded.len(), AN_HOUR as usize);
    assert_eq!((recorded[0].actor_kind(), recorded[0].refused), (AuditActor::Stranger, true));
    assert!(recorded[0].reason.contains("operator.token") && recorded[0].from.starts_with("127.0.0.1:"));

    let refused = enroll(coordinator.access(), "no token").await.err().unwrap();
    let recorded = of(&mut operator, "enrolment refused", 1).await;
    assert_eq!((recorded[0].reason.as_str(), recorded[0].object.as_str()), (refused.message(), "host"));

    let token = tokens(&mut operator, 1).await.remove(0);
    let identity = enroll(coordinator.access(), &token).await.unwrap();
    let revoke = RevokeHostRequest { host: identity.agent_id.clone(), reason: "stolen".into() };
    operator.revoke_host(revoke).await.unwrap();
    Agent::refused(&identity, hello(&identity, "e", 0)).await;
    assert!(identity.renewed().await.is_err());
    let recorded = of(&mut operator, "link refused", 2).await;
    assert_eq!((recorded[0].actor_kind(), &recorded[0].actor), (AuditActor::Agent, &identity.agent_id));
    assert!(recorded[0].reason.contains("stolen"), "{recorded:?}");
    assert_eq!([&recorded[0].object, &recorded[1].object], ["a link", "a newer certificate"]);

    let unknown = ForgetHostRequest { host: "nobody".into() };
    operator.forget_host(by(unknown)).await.unwrap_err();
    let recorded = of(&mut operator, "host forgotten", 1).await;
    assert_eq!((recorded[0].refused, recorded[0].object.as_str()), (true, "nobody"));
    assert_eq!(recorded[0].actor, "ann@lab");
    whole(&mut operator).await;
    coordinator.stop().await.unwrap();
}

#[tokio::test]
async fn entries_are_found_by_actor_action_and_time_and_come_in_pages() {
    let dir = tempfile::tempdir().unwrap();
    let (coordinator, mut operator) = start(dir.path()).await;
    for name in ["a", "b", "c"] {
        create(&mut operator, name).await;
    }
    let request = CreateProjectRequest { name: "d".into(), share: 1.0, ..Default::default() };
    operator.create_project(by(request)).await.unwrap();
    let sequences =
        |reply: &ListAuditReply| reply.entries.iter().map(|entry| entry.sequence).collect::<Vec<_>>();
    let newest = page(&mut operator, ListAuditRequest { limit: 3, ..Default::default() }).await;
    assert_eq!((sequences(&newest), newest.more), (vec![6, 7, 8], true));
    let on = page(&mut operator, ListAuditRequest { after: Some(2), limit: 2, ..Default::default() }).await;
    assert_eq!((sequences(&on), on.more, on.head_sequence), (vec![3, 4], true, 8));
    let created = ListAuditRequest { action: "project created".into(), ..Default::default() };
    assert_eq!(sequences(&page(&mut operator, created.clone()).await), [1, 3, 5, 7]);
    let anns = ListAuditRequest { actor: "ann@lab".into(), ..created };
    assert_eq!(sequences(&page(&mut operator, anns).await), [7]);
    let since_micros = newest.entries[1].at_micros;
    let late = ListAuditRequest { since_micros, ..Default::default() };
    assert_eq!(sequences(&page(&mut operator, late).await), [7, 8]);
    let end = ListAuditRequest { after: Some(u64::MAX), ..Default::default() };
    assert!(sequences(&page(&mut operator, end).await).is_empty());
    let bad = ListAuditRequest { action: "danced".into(), ..Default::default() };
    let refused = operator.list_audit(bad).await.unwrap_err();
    assert!(refused.message().contains("host revoked"), "{refused}");
    coordinator.stop().await.unwrap();
}

#[tokio::test]
async fn r6_10_a_coordinator_whose_log_was_cut_off_does_not_start() {
    let dir = tempfile::tempdir().unwrap();
    let (coordinator, mut operator) = start(dir.path()).await;
    create(&mut operator, "a").await;
    coordinator.stop().await.unwrap();
    {
        let store = Arc::new(SledStore::open_as(dir.path().join("store"), Kind::Coordinator).unwrap());
        let last = store.scan(&KeyRange::prefix(b"audit/entry/"), 100).unwrap().pop().unwrap();
        assert!(store.apply_durable(Batch::new().delete(last.0)).unwrap().is_applied());
    }
    let Err(error) = Coordinator::start(Options::at(dir.path())).await else { panic!("it starts") };
    assert_eq!(error.exit_code().number(), 7, "{error}");
    assert!(fallow_daemon::causes::line(&error).contains("written last"), "{error}");
}
