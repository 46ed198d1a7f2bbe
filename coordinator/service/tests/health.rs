//! gRPC's health and reflection services on the fleet's port, over TLS (R6.11).
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests: failures are panics")]

mod peers;

use std::path::Path;

use fallow_coordinator::daemon::{Coordinator, Options};
use fallow_coordinator::roles::Role;
use fallow_proto::operator::v1::operator_server::SERVICE_NAME;
use fallow_proto::operator::v1::{
    CreateOperatorRequest, CreateProjectRequest, ListAuditRequest, OperatorRole,
};
use fallow_tls::{AccessString, Purpose};
use futures_util::stream;
use peers::{Client, PATIENCE, channel, connect};
use tokio::time::timeout;
use tonic::{Code, Request, Status};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tonic_reflection::pb::v1::ServerReflectionRequest;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;

async fn start(dir: &Path) -> (Coordinator, Client) {
    let coordinator = Coordinator::start(Options::at(dir)).await.unwrap();
    let owner = connect(coordinator.access()).await.unwrap();
    (coordinator, owner)
}

/// A request that shows this secret; without one, none.
fn with_token<T>(secret: &str, message: T) -> Request<T> {
    let mut request = Request::new(message);
    if !secret.is_empty() {
        request.metadata_mut().insert("authorization", format!("Bearer {secret}").parse().unwrap());
    }
    request
}

async fn check(access: &AccessString, secret: &str, service: &str) -> Result<ServingStatus, Status> {
    let mut client = HealthClient::new(channel(access, None).await.unwrap());
    let request = HealthCheckRequest { service: service.to_owned() };
    Ok(client.check(with_token(secret, request)).await?.into_inner().status())
}

async fn reflect(
    access: &AccessString,
    secret: &str,
    ask: MessageRequest,
) -> Result<MessageResponse, Status> {
    let mut client = ServerReflectionClient::new(channel(access, None).await.unwrap());
    let request = ServerReflectionRequest { host: String::new(), message_request: Some(ask) };
    let asked = client.server_reflection_info(with_token(secret, stream::iter([request]))).await?;
    Ok(asked.into_inner().message().await?.unwrap().message_response.unwrap())
}

#[tokio::test]
async fn r6_11_operators_of_every_role_may_ask_whether_the_coordinator_serves_and_what_can_be_asked_of_it() {
    let dir = tempfile::tempdir().unwrap();
    let (coordinator, mut owner) = start(dir.path()).await;
    owner.create_project(CreateProjectRequest { name: "sieve".into(), ..Default::default() }).await.unwrap();
    let access = coordinator.access();
    let mut secrets = vec![access.secret.clone()];
    for (role, number) in Role::ALL.into_iter().zip(1_i32..) {
        let projects = if role.is_confined() { vec!["sieve".to_owned()] } else { Vec::new() };
        let role_named = OperatorRole::try_from(number).unwrap();
        let request = CreateOperatorRequest {
            name: format!("a.{role}"),
            role: role_named.into(),
            projects,
            ..Default::default()
        };
        let token = owner.create_operator(request).await.unwrap().into_inner().access;
        secrets.push(AccessString::parse(&token, Purpose::Operator).unwrap().secret);
    }
    for secret in secrets {
        for service in ["", SERVICE_NAME, "fallow.fleet.v1.Fleet"] {
            assert_eq!(check(access, &secret, service).await.unwrap(), ServingStatus::Serving);
        }
        let unknown = check(access, &secret, "Dance").await.unwrap_err();
        assert!(unknown.code() == Code::NotFound && unknown.message().contains("\"Dance\""), "{unknown}");
        let listed = reflect(access, &secret, MessageRequest::ListServices(String::new())).await.unwrap();
        let MessageResponse::ListServicesResponse(listed) = listed else { panic!("{listed:?}") };
        let names: Vec<_> = listed.service.into_iter().map(|service| service.name).collect();
        let expected = [SERVICE_NAME, "grpc.health.v1.Health", "grpc.reflection.v1.ServerReflection"];
        assert_eq!(names, expected);
        for symbol in [format!("{SERVICE_NAME}.ListHosts"), "fallow.fleet.v1.HostState".to_owned()] {
            let asked = MessageRequest::FileContainingSymbol(symbol);
            let found = reflect(access, &secret, asked).await.unwrap();
            assert!(matches!(found, MessageResponse::FileDescriptorResponse(_)), "{found:?}");
        }
    }
    coordinator.stop().await.unwrap();
}

#[tokio::test]
async fn r6_10_whoever_shows_no_token_is_told_nothing_of_health_or_services_and_that_is_on_record() {
    let dir = tempfile::tempdir().unwrap();
    let (coordinator, mut owner) = start(dir.path()).await;
    for (secret, code) in [("", Code::Unauthenticated), ("wrong", Code::PermissionDenied)] {
        let access = coordinator.access();
        assert_eq!(check(access, secret, "").await.unwrap_err().code(), code);
        let list = MessageRequest::ListServices(String::new());
        assert_eq!(reflect(access, secret, list).await.unwrap_err().code(), code);
    }
    let recorded = timeout(PATIENCE, async {
        loop {
            let entries = owner.list_audit(ListAuditRequest::default()).await.unwrap().into_inner().entries;
            let refused: Vec<_> = entries.into_iter().filter(|entry| entry.refused).collect();
            if !refused.is_empty() {
                return refused;
            }
            tokio::task::yield_now().await;
        }
    });
    let recorded = recorded.await.unwrap();
    assert_eq!(recorded[0].object, "/grpc.health.v1.Health/Check");
    coordinator.stop().await.unwrap();
}

#[tokio::test]
async fn r6_11_who_watches_is_told_that_the_coordinator_stops_and_then_the_watch_ends() {
    let dir = tempfile::tempdir().unwrap();
    let (coordinator, _owner) = start(dir.path()).await;
    let mut client = HealthClient::new(channel(coordinator.access(), None).await.unwrap());
    let request = with_token(&coordinator.access().secret, HealthCheckRequest::default());
    let mut watch = client.watch(request).await.unwrap().into_inner();
    assert_eq!(watch.message().await.unwrap().unwrap().status(), ServingStatus::Serving);
    let request = with_token(&coordinator.access().secret, HealthCheckRequest { service: "Dance".into() });
    let mut unknown = client.watch(request).await.unwrap().into_inner();
    assert_eq!(unknown.message().await.unwrap().unwrap().status(), ServingStatus::ServiceUnknown);
    let stopped = tokio::spawn(coordinator.stop());
    let told = timeout(PATIENCE, watch.message()).await.unwrap().unwrap();
    assert_eq!(told.unwrap().status(), ServingStatus::NotServing);
    assert!(timeout(PATIENCE, watch.message()).await.unwrap().unwrap().is_none(), "it ends, and is not cut");
    stopped.await.unwrap().unwrap();
}
