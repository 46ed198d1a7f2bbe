//! Operators with tokens of their own, against a running coordinator (R6.10).
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests: failures are panics")]

mod peers;

use std::future::poll_fn;
use std::path::Path;
use std::time::Duration;

use axum::body::{Body, Bytes};
use fallow_coordinator::audit::refusals::AN_HOUR;
use fallow_coordinator::daemon::{Coordinator, Options};
use fallow_coordinator::operator::AUTHOR;
use fallow_coordinator::roles::Role;
use fallow_coordinator::roles::rights::{METHODS, command, needed};
use fallow_proto::operator::v1::add_app_version_part::Part;
use fallow_proto::operator::v1::{
    AddAppVersionPart, AddAppVersionRequest, AppFile, AuditActor, AuditEntry, CreateOperatorRequest,
    CreateProjectRequest, GetDocumentRequest, GetJobRequest, ListAuditRequest, ListHostsRequest,
    ListJobsRequest, ListOperatorsRequest, ListProjectsRequest, ListResultsRequest, NewWorkunit,
    OperatorRole, RevokeOperatorRequest, SetSharesRequest, ShareOfProject, SubmitRequest,
};
use fallow_tls::{AccessString, Purpose};
use futures_util::{StreamExt as _, stream};
use peers::{Client, PATIENCE, add_app_version, channel, connect};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use tonic::codegen::{Service as _, http};
use tonic::{Code, Request, Status};

async fn start(dir: &Path) -> (Coordinator, Client) {
    let coordinator = Coordinator::start(Options::at(dir)).await.unwrap();
    let owner = connect(coordinator.access()).await.unwrap();
    (coordinator, owner)
}

async fn create_project(owner: &mut Client, name: &str) {
    let request = CreateProjectRequest { name: name.into(), share: 50.0, ..Default::default() };
    owner.create_project(request).await.unwrap();
}

fn wire(role: Role) -> OperatorRole {
    match role {
        Role::Viewer => OperatorRole::Viewer,
        Role::Submitter => OperatorRole::Submitter,
        Role::Operator => OperatorRole::Operator,
        Role::Administrator => OperatorRole::Administrator,
    }
}

/// A new operator's token. A submitter's project is "sieve".
async fn token(owner: &mut Client, name: &str, role: Role, life_micros: i64) -> AccessString {
    let projects = if role.is_confined() { vec!["sieve".to_owned()] } else { Vec::new() };
    let request = CreateOperatorRequest { name: name.into(), role: wire(role).into(), projects, life_micros };
    let access = owner.create_operator(request).await.unwrap().into_inner().access;
    AccessString::parse(&access, Purpose::Operator).unwrap()
}

async fn become_one(owner: &mut Client, name: &str, role: Role) -> Client {
    connect(&token(owner, name, role, 0).await).await.unwrap()
}

/// All entries of an action, as soon as there are so many: refusals are stored when there is a thread for it.
async fn entries(owner: &mut Client, action: &str, count: usize) -> Vec<AuditEntry> {
    let asked = timeout(PATIENCE, async {
        loop {
            let request = ListAuditRequest { action: action.into(), ..Default::default() };
            let found = owner.list_audit(request).await.unwrap().into_inner().entries;
            if found.len() >= count {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
    asked.await.unwrap_or_else(|_| panic!("{count} entries: {action}"))
}

/// Calls a method by its name and gives the status and the message of the answer's head, if it ends with
/// that.
async fn call(access: &AccessString, method: &str, body: Body) -> (Option<Code>, String) {
    let mut channel = channel(access, None).await.unwrap();
    let request = http::Request::post(format!("http://h/fallow.operator.v1.Operator/{method}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .header("authorization", format!("Bearer {}", access.secret))
        .body(tonic::body::Body::new(body))
        .unwrap();
    let answer = async {
        poll_fn(|context| channel.poll_ready(context)).await.unwrap();
        channel.call(request).await.unwrap()
    };
    let answer = timeout(PATIENCE, answer).await.expect("an answer");
    let status = Status::from_header_map(answer.headers());
    (status.as_ref().map(Status::code), status.map(|status| status.message().to_owned()).unwrap_or_default())
}

/// A message without any field.
fn empty() -> Body {
    Body::from(vec![0; 5])
}

#[tokio::test]
async fn r6_10_every_method_is_refused_to_every_role_that_does_not_have_its_right_and_to_no_other() {
    let dir = tempfile::tempdir().unwrap();
    let (coordinator, mut owner) = start(dir.path()).await;
    create_project(&mut owner, "sieve").await;
    for role in Role::ALL {
        let access = token(&mut owner, &format!("a.{role}"), role, 0).await;
        for (method, right) in METHODS {
            // That ends the coordinator.
            if role.has(*right) && *method == "Shutdown" {
                continue;
            }
            let (code, message) = call(&access, method, empty()).await;
            let needed = if right.roles().is_empty() { "the coordinator's own token" } else { "the role " };
            let is_refused =
                message.contains(&format!("has the role {role}, and {} needs {needed}", command(method)));
            assert_eq!(is_refused, !role.has(*right), "{role} {method}: {code:?} {message}");
            assert!(!is_refused || code == Some(Code::PermissionDenied), "{role} {method}: {code:?}");
        }
        let (code, _) = call(&access, "Dance", empty()).await;
        assert_eq!(code, Some(Code::Unimplemented));
        let (code, _) = call(&access, "x/Shutdown", empty()).await;
        assert_eq!(code, Some(Code::Unimplemented));
    }
    assert_eq!(call(coordinator.access(), "ListAudit", empty()).await.0, None, "the owner may");
    assert_eq!(call(coordinator.access(), "Dance", empty()).await.0, Some(Code::Unimplemented));
    coordinator.stop().await.unwrap();
}

#[tokio::test]
async fn r6_10_who_may_not_call_hears_so_before_anything_but_the_head_of_his_request_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let (coordinator, mut owner) = start(dir.path()).await;
    let access = token(&mut owner, "ann", Role::Viewer, 0).await;
    // Nothing of the body ever comes.
    let body = Body::from_stream(stream::pending::<Result<Bytes, std::convert::Infallible>>());
    let (code, message) = call(&access, "SetShares", body).await;
    assert_eq!(code, Some(Code::PermissionDenied), "{message}");
    let garbage = Body::from_stream(
        stream::iter([Ok::<_, std::convert::Infallible>(Bytes::from_static(b"\0\0\0\0\x02\xff\xff"))])
            .chain(stream::pending()),
    );
    assert_eq!(call(&access, "SetShares", garbage).await.0, Some(Code::PermissionDenied));
    coordinator.stop().await.unwrap();
}

#[tokio::test]
async fn r6_10_a_submitter_sees_and_feeds_the_projects_that_he_is_named_for_and_no_others() {
    let dir = tempfile::tempdir().unwrap();
    let (coordinator, mut owner) = start(dir.path()).await;
    for project in ["other", "sieve"] {
        create_project(&mut owner, project).await;
        add_app_version(&mut owner, project, "app").await;
    }
    let submission = |project: &str, name: &str| SubmitRequest {
        project: project.into(),
        workunits: vec![NewWorkunit {
            name: name.into(),
            application: "app".into(),
            flops_estimate: 1e9,
            ..Default::default()
        }],
        ..Default::default()
    };
    owner.submit(submission("other", "secret")).await.unwrap();
    let mut bob = become_one(&mut owner, "bob", Role::Submitter).await;
    bob.submit(submission("sieve", "mine")).await.unwrap();
    add_app_version(&mut bob, "sieve", "second").await;
    let projects = bob.list_projects(ListProjectsRequest {}).await.unwrap().into_inner().projects;
    assert_eq!(projects.iter().map(|project| project.name.as_str()).collect::<Vec<_>>(), ["sieve"]);
    let jobs = |project: &str| ListJobsRequest { project: project.into(), ..Default::default() };
    for asked in ["", "sieve"] {
        let told = bob.list_jobs(jobs(asked)).await.unwrap().into_inner();
        let told: Vec<_> =
            told.workunits.iter().map(|one| (one.project.as_str(), one.name.as_str())).collect();
        assert_eq!(told, [("sieve", "mine")], "{asked:?}");
    }
    let everything = owner.list_jobs(jobs("")).await.unwrap().into_inner().workunits;
    assert_eq!(everything.len(), 2);
    let job = &everything.iter().find(|one| one.project == "other").unwrap().jobs[0].name;

    let version =
        AddAppVersionRequest { project: "other".into(), application: "a".into(), ..Default::default() };
    let version = AddAppVersionPart { part: Some(Part::Version(version)) };
    let of = |project: &str| GetJobRequest { project: project.into(), name: job.clone() };
    let results = ListResultsRequest { project: "other".into(), ..Default::default() };
    let refusals = [
        bob.submit(submission("other", "more")).await.unwrap_err(),
        bob.submit(SubmitRequest { check_only: true, ..submission("other", "more") }).await.unwrap_err(),
        bob.add_app_version(tokio_stream::iter([version])).await.unwrap_err(),
        bob.list_jobs(jobs("other")).await.unwrap_err(),
        bob.get_job(of("other")).await.unwrap_err(),
        bob.list_results(results).await.unwrap_err(),
        // That there is none he is not told either.
        bob.list_jobs(jobs("none")).await.unwrap_err(),
    ];
    for refusal in refusals {
        assert_eq!(refusal.code(), Code::PermissionDenied, "{refusal}");
        for said in ["bob has the role submitter for sieve", "is not among them", "ask an administrator"] {
            assert!(refusal.message().contains(said), "{refusal}");
        }
    }
    // However long what he asks for is called.
    let long = bob.submit(submission(&"n".repeat(100_000), "more")).await.unwrap_err();
    assert_eq!((long.code(), long.message().len()), (Code::PermissionDenied, 2_000), "{long}");
    assert!(long.message().starts_with("bob has the role submitter") && long.message().ends_with("..."));
    assert_eq!(bob.get_job(of("sieve")).await.unwrap_err().code(), Code::NotFound);
    let recorded = entries(&mut owner, "not allowed", 8).await;
    assert_eq!((recorded[0].actor.as_str(), recorded[0].object.as_str()), ("bob", "Submit"));
    assert_eq!(recorded[0].actor_kind(), AuditActor::NamedOperator);
    assert_eq!(owner.list_jobs(jobs("other")).await.unwrap().into_inner().workunits.len(), 1);
    coordinator.stop().await.unwrap();
}

#[tokio::test]
async fn r6_10_account_keys_are_told_to_administrators_alone() {
    let dir = tempfile::tempdir().unwrap();
    let (coordinator, mut owner) = start(dir.path()).await;
    create_project(&mut owner, "sieve").await;
    let share = |share| SetSharesRequest {
        shares: vec![ShareOfProject { project: "sieve".into(), share }],
        ..Default::default()
    };
    let key = owner.list_projects(ListProjectsRequest {}).await.unwrap().into_inner().projects[0]
        .account_key
        .clone();
    assert!(!key.is_empty());
    for role in Role::ALL {
        let mut operator = become_one(&mut owner, &format!("a.{role}"), role).await;
        let mut told = vec![
            operator.list_projects(ListProjectsRequest {}).await.unwrap().into_inner().projects[0]
                .account_key
                .clone(),
        ];
        let mut documents = Vec::new();
        if role.has(needed("GetDocument").unwrap()) {
            documents.push(operator.get_document(GetDocumentRequest::default()).await.unwrap());
        }
        if role.has(needed("SetShares").unwrap()) {
            documents.push(operator.set_shares(share(20.0)).await.unwrap());
        }
        told.extend(
            documents
                .into_iter()
                .map(|reply| reply.into_inner().document.unwrap().projects.remove(0).account_key),
        );
        let expected = if role == Role::Administrator { key.as_str() } else { "" };
        assert!(told.iter().all(|told| told == expected), "{role}: {told:?}");
    }
    let mut operator = become_one(&mut owner, "maker", Role::Operator).await;
    let request = CreateProjectRequest { name: "second".into(), share: 1.0, ..Default::default() };
    assert_eq!(operator.create_project(request).await.unwrap().into_inner().account_key, "");
    // What agents get is as before.
    assert!(
        coordinator.documents().document().projects.iter().all(|one| !one.account_key.reveal().is_empty())
    );
    coordinator.stop().await.unwrap();
}

#[tokio::test]
async fn r6_10_the_audit_log_has_the_name_of_the_token_and_not_the_one_that_a_tool_claims() {
    let dir = tempfile::tempdir().unwrap();
    let (coordinator, mut owner) = start(dir.path()).await;
    let mut ann = become_one(&mut owner, "ann", Role::Operator).await;
    let mut request =
        Request::new(CreateProjectRequest { name: "sieve".into(), share: 1.0, ..Default::default() });
    request.metadata_mut().insert(AUTHOR, "root@lab".parse().unwrap());
    ann.create_project(request).await.unwrap();
    let made = entries(&mut owner, "project created", 1).await.remove(0);
    assert_eq!((made.actor_kind(), made.actor.as_str()), (AuditActor::NamedOperator, "ann"));
    let document = entries(&mut owner, "document changed", 1).await.remove(0);
    assert_eq!((document.actor_kind(), document.actor.as_str()), (AuditActor::NamedOperator, "ann"));
    let created = entries(&mut owner, "operator created", 1).await.remove(0);
    assert_eq!((created.actor_kind(), created.object.as_str()), (AuditActor::Operator, "ann"));
    assert_eq!(created.after, "role operator, life 90 days");
    coordinator.stop().await.unwrap();
}

#[tokio::test]
async fn r6_10_refusals_for_want_of_a_role_are_recorded_so_many_times_an_hour_whatever_strangers_do() {
    let dir = tempfile::tempdir().unwrap();
    let (coordinator, mut owner) = start(dir.path()).await;
    let stranger = AccessString { secret: "0".repeat(64), ..coordinator.access().clone() };
    let mut stranger = connect(&stranger).await.unwrap();
    for _ in 0..2 * AN_HOUR {
        stranger.list_hosts(ListHostsRequest::default()).await.unwrap_err();
    }
    let mut ann = become_one(&mut owner, "ann", Role::Viewer).await;
    for _ in 0..2 * AN_HOUR {
        let refused = ann.list_audit(ListAuditRequest::default()).await.unwrap_err();
        assert_eq!(refused.code(), Code::PermissionDenied);
    }
    let recorded = entries(&mut owner, "not allowed", AN_HOUR as usize).await;
    assert_eq!(recorded.len(), AN_HOUR as usize);
    assert!(recorded[0].refused && recorded[0].from.starts_with("127.0.0.1:"), "{recorded:?}");
    assert_eq!((recorded[0].actor.as_str(), recorded[0].object.as_str()), ("ann", "ListAudit"));
    assert!(recorded[0].reason.contains("needs the role administrator"), "{recorded:?}");
    coordinator.stop().await.unwrap();
}

#[tokio::test]
async fn r6_10_who_is_revoked_is_cut_off_in_the_middle_of_an_upload_and_told_why() {
    let dir = tempfile::tempdir().unwrap();
    let (coordinator, mut owner) = start(dir.path()).await;
    create_project(&mut owner, "sieve").await;
    let mut bob = become_one(&mut owner, "bob", Role::Submitter).await;
    let file = AppFile {
        name: "program".into(),
        size_bytes: 2,
        sha256: "0".repeat(64),
        executable: true,
        signature: String::new(),
    };
    let version = AddAppVersionRequest {
        project: "sieve".into(),
        application: "app".into(),
        version: 100,
        platform: "x86_64-pc-linux-gnu".into(),
        files: vec![file],
        ..Default::default()
    };
    let (parts, uploaded) = mpsc::channel(2);
    for part in [Part::Version(version), Part::Content(b"x".to_vec())] {
        parts.send(AddAppVersionPart { part: Some(part) }).await.unwrap();
    }
    let mut uploader = bob.clone();
    let upload = tokio::spawn(async move { uploader.add_app_version(ReceiverStream::new(uploaded)).await });
    // It is under way when the first byte is in its file.
    let incoming = coordinator.projects().incoming("sieve").unwrap();
    let begun = async {
        while std::fs::read_dir(&incoming).unwrap().next().is_none() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(PATIENCE, begun).await.expect("the upload begins");
    owner.revoke_operator(RevokeOperatorRequest { name: "bob".into() }).await.unwrap();
    // The coordinator waits 60 s for the next part of an upload.
    let ended = timeout(Duration::from_secs(20), upload).await.expect("it is cut off").unwrap().unwrap_err();
    assert_eq!(ended.code(), Code::PermissionDenied, "{ended}");
    assert!(ended.message().contains("the operator's token of bob was revoked"), "{ended}");
    let again = bob.list_projects(ListProjectsRequest {}).await.unwrap_err();
    assert_eq!(again.code(), Code::PermissionDenied);
    assert!(again.message().contains("was revoked: ask an administrator"), "{again}");
    let recorded = entries(&mut owner, "operator refused", 2).await;
    for (entry, object) in recorded.iter().zip(["AddAppVersion", "ListProjects"]) {
        assert_eq!((entry.actor.as_str(), entry.object.as_str()), ("bob", object));
        assert!(entry.reason.contains("was revoked"), "{entry:?}");
    }
    drop(parts);
    coordinator.stop().await.unwrap();
}

#[tokio::test]
async fn r6_10_tokens_are_good_after_a_restart_but_those_that_expired_or_were_revoked() {
    let dir = tempfile::tempdir().unwrap();
    let (coordinator, mut owner) = start(dir.path()).await;
    let [ann, bob, short] = [
        token(&mut owner, "ann", Role::Viewer, 0).await,
        token(&mut owner, "bob", Role::Viewer, 0).await,
        token(&mut owner, "short", Role::Viewer, 1).await,
    ];
    owner.revoke_operator(RevokeOperatorRequest { name: "bob".into() }).await.unwrap();
    coordinator.stop().await.unwrap();
    let (coordinator, mut owner) = start(dir.path()).await;
    let hosts = |access: AccessString| async move {
        connect(&access).await.unwrap().list_hosts(ListHostsRequest::default()).await
    };
    hosts(ann).await.unwrap();
    assert!(hosts(bob).await.unwrap_err().message().contains("the operator's token of bob was revoked"));
    let expired = hosts(short).await.unwrap_err();
    assert_eq!(expired.code(), Code::PermissionDenied);
    assert!(expired.message().contains("the operator's token of short has expired"), "{expired}");
    let recorded = entries(&mut owner, "operator refused", 2).await;
    assert_eq!([&recorded[0].actor, &recorded[1].actor], ["bob", "short"]);
    let listed = owner.list_operators(ListOperatorsRequest {}).await.unwrap().into_inner().operators;
    let names: Vec<_> = listed.iter().map(|one| (one.name.as_str(), one.revoked_at_micros != 0)).collect();
    assert_eq!(names, [("ann", false), ("bob", true), ("short", false)]);
    coordinator.stop().await.unwrap();
}
