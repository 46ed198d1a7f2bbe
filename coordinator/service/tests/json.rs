//! The operators' API as JSON over HTTP, on the fleet's port, over TLS (R6.11, R6.10).
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests: failures are panics")]

mod peers;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes, to_bytes};
use axum::http::{Method, Request, StatusCode, header};
use fallow_coordinator::daemon::{Coordinator, Options};
use fallow_coordinator::json::{Contract, openapi};
use fallow_coordinator::operator::{AUTHOR, MESSAGE};
use fallow_coordinator::roles::rights::{METHODS, Right};
use fallow_proto::operator::v1::{
    CreateOperatorRequest, CreateProjectRequest, ListAuditRequest, OperatorRole, RevokeOperatorRequest,
};
use futures_util::{StreamExt as _, stream};
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use peers::{Client, PATIENCE, connect};
use rustls::pki_types::{CertificateDer, pem::PemObject as _};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::client::TlsStream;

/// A coordinator with the project "sieve", and what a script knows of it.
struct Lab {
    dir: tempfile::TempDir,
    coordinator: Coordinator,
    owner: Client,
}

impl Lab {
    async fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let coordinator = Coordinator::start(Options::at(dir.path())).await.unwrap();
        let mut owner = connect(coordinator.access()).await.unwrap();
        let request = CreateProjectRequest { name: "sieve".into(), share: 50.0, ..Default::default() };
        owner.create_project(request).await.unwrap();
        Self { dir, coordinator, owner }
    }

    /// The secret of the coordinator's own token.
    fn secret(&self) -> String {
        self.coordinator.access().secret.clone()
    }

    /// A new operator's token: the whole line that he is given.
    async fn token(&mut self, name: &str, role: OperatorRole) -> String {
        let request = CreateOperatorRequest { name: name.into(), role: role.into(), ..Default::default() };
        self.owner.create_operator(request).await.unwrap().into_inner().access
    }

    /// A connection as anybody's HTTP client makes it, that knows the authority's certificate only.
    async fn stream(&self, protocol: Option<&str>) -> TlsStream<TcpStream> {
        stream_to(self.dir.path(), &self.coordinator, protocol).await
    }

    /// The status and the body of the answer to a request, over HTTP/1.1 or HTTP/2.
    async fn ask(&self, protocol: Option<&str>, request: Request<Body>) -> (StatusCode, Bytes) {
        let stream = TokioIo::new(self.stream(protocol).await);
        let answer = if protocol == Some("h2") {
            let (mut client, connection) = http2::handshake(TokioExecutor::new(), stream).await.unwrap();
            tokio::spawn(connection);
            client.send_request(request).await.unwrap()
        } else {
            let (mut client, connection) = http1::handshake(stream).await.unwrap();
            tokio::spawn(connection);
            client.send_request(request).await.unwrap()
        };
        let status = answer.status();
        let body =
            timeout(PATIENCE, to_bytes(Body::new(answer.into_body()), 1 << 20)).await.unwrap().unwrap();
        (status, body)
    }

    /// The answer to a call with a token, over HTTP/1.1.
    async fn post(&self, token: &str, method: &str, body: impl Into<Body>) -> (StatusCode, Value) {
        let (status, body) = self.ask(Some("http/1.1"), post(token, method, body)).await;
        (status, serde_json::from_slice(&body).unwrap_or_else(|error| panic!("{method}: {error}: {body:?}")))
    }
}

async fn stream_to(dir: &Path, coordinator: &Coordinator, protocol: Option<&str>) -> TlsStream<TcpStream> {
    let mut roots = rustls::RootCertStore::empty();
    let authority = std::fs::read(dir.join("authority.pem")).unwrap();
    roots.add(CertificateDer::from_pem_slice(&authority).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = protocol.into_iter().map(|name| name.as_bytes().to_vec()).collect();
    let address = coordinator.access().addresses[0].clone();
    let stream = TcpStream::connect((address.host(), address.port())).await.unwrap();
    stream.set_nodelay(true).unwrap();
    let name = address.host().to_owned().try_into().unwrap();
    tokio_rustls::TlsConnector::from(Arc::new(config)).connect(name, stream).await.unwrap()
}

fn post(token: &str, method: &str, body: impl Into<Body>) -> Request<Body> {
    let request = Request::post(format!("https://lab.example.org/v1/{method}"));
    let request = match token {
        "" => request,
        token => request.header(header::AUTHORIZATION, format!("Bearer {token}")),
    };
    request.header(header::HOST, "lab.example.org").body(body.into()).unwrap()
}

/// Says `text` over HTTP/1.1 and gives all that comes until the server closes.
async fn talk(mut stream: TlsStream<TcpStream>, text: &str) -> String {
    stream.write_all(text.as_bytes()).await.unwrap();
    let mut heard = Vec::new();
    let _ = timeout(PATIENCE, stream.read_to_end(&mut heard)).await.expect("the server closes");
    String::from_utf8(heard).unwrap()
}

#[tokio::test]
async fn r6_11_a_script_asks_in_json_over_http_1_1_and_http_2_with_the_line_that_its_operator_was_given() {
    let mut lab = Lab::start().await;
    let viewer = lab.token("ann", OperatorRole::Viewer).await;
    for protocol in [None, Some("http/1.1"), Some("h2")] {
        for token in [&lab.secret(), &viewer] {
            let (status, body) = lab.ask(protocol, post(token, "ListProjects", "{}")).await;
            assert_eq!(status, StatusCode::OK, "{protocol:?}: {body:?}");
            let body: Value = serde_json::from_slice(&body).unwrap();
            assert_eq!(body["projects"][0]["name"], "sieve", "{body}");
            assert!(body["projects"][0]["share"] == json!(50.0), "{body}");
        }
    }
    lab.coordinator.stop().await.unwrap();
}

#[tokio::test]
async fn r6_10_every_method_of_the_contract_has_its_route_and_is_refused_to_whoever_shows_no_token() {
    let mut lab = Lab::start().await;
    let submitter = CreateOperatorRequest {
        name: "bob".into(),
        role: OperatorRole::Submitter.into(),
        projects: vec!["sieve".into()],
        ..Default::default()
    };
    let submitter = lab.owner.create_operator(submitter).await.unwrap().into_inner().access;
    let paths: Vec<_> = Contract::read().unwrap().methods().map(|(path, _)| path).collect();
    assert_eq!(paths.len(), METHODS.len() + 2, "{paths:?}");
    for path in &paths {
        let method = path.strip_prefix("/v1/").unwrap();
        let (status, body) = lab.post("", method, "{}").await;
        assert_eq!(
            (status, &body["code"]),
            (StatusCode::UNAUTHORIZED, &json!("UNAUTHENTICATED")),
            "{method}"
        );
        let (status, body) = lab.post("wrong", method, "{}").await;
        assert_eq!((status, &body["code"]), (StatusCode::FORBIDDEN, &json!("PERMISSION_DENIED")), "{method}");
        let right = METHODS.iter().find(|(name, _)| *name == method).map_or(Right::Ask, |(_, right)| *right);
        // That does not end by itself.
        if method.ends_with("/Watch") {
            continue;
        }
        // A field that no request has: whoever may call hears of that, whoever may not does not.
        let (status, body) = lab.post(&submitter, method, r#"{"x": 1}"#).await;
        let text = body["message"].as_str().unwrap();
        let expected = match right {
            Right::Ask | Right::SeeProject | Right::Submit => {
                (StatusCode::BAD_REQUEST, "unrecognized field name 'x'")
            }
            _ => (StatusCode::FORBIDDEN, "has the role submitter"),
        };
        assert!(status == expected.0 && text.contains(expected.1), "{method}: {status} {text}");
    }
    for method in
        ["Dance", "x/Shutdown", "fallow.fleet.v1.Fleet/Enroll", "fallow.operator.v1.Operator/Shutdown"]
    {
        assert_eq!(lab.post("", method, "{}").await.0, StatusCode::UNAUTHORIZED, "{method}");
        assert_eq!(lab.post(&lab.secret(), method, "{}").await.0, StatusCode::NOT_FOUND, "{method}");
    }
    let entries = lab.owner.list_audit(ListAuditRequest::default()).await.unwrap().into_inner().entries;
    assert!(entries.iter().any(|entry| entry.refused && entry.actor == "bob"), "refusals are on record");
    lab.coordinator.stop().await.unwrap();
}

#[tokio::test]
async fn r6_10_who_may_not_call_hears_so_before_anything_of_the_body_is_read() {
    let mut lab = Lab::start().await;
    let viewer = lab.token("ann", OperatorRole::Viewer).await;
    for (token, expected) in [("", StatusCode::UNAUTHORIZED), (viewer.as_str(), StatusCode::FORBIDDEN)] {
        for protocol in ["http/1.1", "h2"] {
            // Nothing of the body ever comes.
            let body = Body::from_stream(stream::pending::<Result<Bytes, std::convert::Infallible>>());
            let (status, body) = lab.ask(Some(protocol), post(token, "SetShares", body)).await;
            assert_eq!(status, expected, "{protocol}: {body:?}");
        }
    }
    // Garbage is not looked at.
    assert_eq!(lab.post(&viewer, "SetShares", "{{{").await.0, StatusCode::FORBIDDEN);
    assert_eq!(lab.post(&lab.secret(), "SetShares", "{{{").await.0, StatusCode::BAD_REQUEST);
    lab.coordinator.stop().await.unwrap();
}

/// A client that is answered, and cut off, in the middle of what it sends may never look at the answer.
#[tokio::test]
async fn r6_11_who_is_refused_is_answered_when_his_short_request_is_there() {
    let lab = Lab::start().await;
    for method in ["SetShares", "Dance"] {
        let (parts, body) = tokio::sync::mpsc::channel::<Result<Bytes, std::convert::Infallible>>(1);
        let body = Body::from_stream(tokio_stream::wrappers::ReceiverStream::new(body));
        let mut answer = std::pin::pin!(lab.ask(Some("h2"), post("", method, body)));
        tokio::select! {
            biased;
            (status, _) = &mut answer => panic!("{method}: {status} before the request was there"),
            () = tokio::time::sleep(Duration::from_millis(300)) => {}
        }
        parts.send(Ok(Bytes::from_static(b"{}"))).await.unwrap();
        drop(parts);
        assert_eq!(answer.await.0, StatusCode::UNAUTHORIZED);
    }
    lab.coordinator.stop().await.unwrap();
}

#[tokio::test]
async fn r6_11_the_api_is_described_to_whoever_has_a_token() {
    let lab = Lab::start().await;
    let get = |token: &str| {
        let mut get = post(token, "openapi.json", "");
        *get.method_mut() = Method::GET;
        get
    };
    let (status, body) = lab.ask(Some("http/1.1"), get(&lab.secret())).await;
    assert_eq!(status, StatusCode::OK, "{body:?}");
    let body: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(body, openapi(&Contract::read().unwrap()));
    for (token, expected) in [("", StatusCode::UNAUTHORIZED), ("wrong", StatusCode::FORBIDDEN)] {
        let (status, body) = lab.ask(Some("http/1.1"), get(token)).await;
        assert!(status == expected && body.len() < 1_000, "{status}: {body:?}");
    }
    assert_eq!(lab.post(&lab.secret(), "openapi.json", "").await.0, StatusCode::METHOD_NOT_ALLOWED);
    lab.coordinator.stop().await.unwrap();
}

#[tokio::test]
async fn r6_11_what_goes_wrong_is_said_with_a_status_a_code_and_a_message() {
    let lab = Lab::start().await;
    for (method, body, status, code, said) in [
        ("GetProject", r#"{"name": "none"}"#, 404, "NOT_FOUND", "none"),
        ("CreateProject", r#"{"name": "sieve", "share": 1}"#, 409, "ALREADY_EXISTS", "sieve"),
        ("ListHosts", r#"{"selector": "("}"#, 400, "INVALID_ARGUMENT", "("),
        ("CreateTokens", r#"{"count": "many"}"#, 400, "INVALID_ARGUMENT", "count: "),
        ("grpc.health.v1.Health/Check", r#"{"service": "x"}"#, 404, "NOT_FOUND", "\"x\""),
    ] {
        let (got, body) = lab.post(&lab.secret(), method, body).await;
        let text = body["message"].as_str().unwrap();
        assert_eq!((got.as_u16(), &body["code"]), (status, &json!(code)), "{method}: {text}");
        assert!(text.contains(said), "{method}: {text}");
    }
    let mut get = post(&lab.secret(), "ListHosts", "");
    *get.method_mut() = Method::GET;
    assert_eq!(lab.ask(Some("http/1.1"), get).await.0, StatusCode::METHOD_NOT_ALLOWED);
    lab.coordinator.stop().await.unwrap();
}

#[tokio::test]
async fn r6_11_several_messages_are_lines_both_ways() {
    let lab = Lab::start().await;
    let program = b"#!/bin/sh\n";
    let sha256 = ring::digest::digest(&ring::digest::SHA256, program);
    let hex: String = sha256.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    let file = json!({ "name": "prog", "sizeBytes": "10", "sha256": hex, "executable": true });
    let version = json!({ "version": {
        "project": "sieve", "application": "prog", "version": 100, "platform": "x86_64-pc-linux-gnu", "files": [file],
    }});
    let lines =
        format!("{version}\n{}\n\n{}", json!({ "content": "IyEvYmlu" }), json!({ "content": "L3NoCg==" }));
    let (status, body) = lab.post(&lab.secret(), "AddAppVersion", lines).await;
    assert_eq!(status, StatusCode::OK, "{body}");
    assert_eq!(body["fileNames"].as_array().unwrap().len(), 1, "{body}");

    let stream = TokioIo::new(lab.stream(Some("http/1.1")).await);
    let (mut client, connection) = http1::handshake::<_, Body>(stream).await.unwrap();
    tokio::spawn(connection);
    let answer = client.send_request(post(&lab.secret(), "grpc.health.v1.Health/Watch", "")).await.unwrap();
    assert_eq!(answer.headers()[header::CONTENT_TYPE], "application/x-ndjson");
    let mut lines = Body::new(answer.into_body()).into_data_stream();
    let mut next = async || timeout(PATIENCE, lines.next()).await.unwrap().map(Result::unwrap);
    assert_eq!(next().await.unwrap(), "{\"status\":\"SERVING\"}\n");
    let stopped = tokio::spawn(lab.coordinator.stop());
    assert_eq!(next().await.unwrap(), "{\"status\":\"NOT_SERVING\"}\n");
    assert_eq!(next().await, None);
    stopped.await.unwrap().unwrap();
}

#[tokio::test]
async fn r6_10_long_requests_that_do_not_come_keep_no_other_from_being_carried_out() {
    // Before the first of those that do not come is refused for that.
    const SOON: Duration = Duration::from_secs(30);
    let lab = Lab::start().await;
    let mut begun = Vec::new();
    for number in 1..=6 {
        let mut stream = lab.stream(Some("http/1.1")).await;
        let head = format!(
            "POST /v1/Submit HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer {}\r\nContent-Length: 100\r\n\
             Expect: 100-continue\r\n\r\n",
            lab.secret()
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        // As soon as it is read.
        let mut heard = [0; 21];
        let heard = timeout(SOON, stream.read_exact(&mut heard)).await.map(|_| heard);
        assert_eq!(heard.as_ref().map(|heard| &heard[..12]), Ok(&b"HTTP/1.1 100"[..]), "request {number}");
        begun.push(stream);
    }
    let request = json!({"project": "none"}).to_string();
    let answer = timeout(SOON, lab.post(&lab.secret(), "Submit", request)).await.expect("it has its turn");
    assert_eq!(answer.0, StatusCode::NOT_FOUND, "{answer:?}");
    drop(begun);
    lab.coordinator.stop().await.unwrap();
}

#[tokio::test]
async fn r6_10_an_answer_of_several_lines_ends_with_the_reason_when_the_token_is_revoked() {
    let mut lab = Lab::start().await;
    let viewer = lab.token("ann", OperatorRole::Viewer).await;
    let stream = TokioIo::new(lab.stream(Some("http/1.1")).await);
    let (mut client, connection) = http1::handshake::<_, Body>(stream).await.unwrap();
    tokio::spawn(connection);
    let answer = client.send_request(post(&viewer, "grpc.health.v1.Health/Watch", "")).await.unwrap();
    let mut lines = Body::new(answer.into_body()).into_data_stream();
    let mut next = async || timeout(PATIENCE, lines.next()).await.unwrap().map(Result::unwrap);
    assert_eq!(next().await.unwrap(), "{\"status\":\"SERVING\"}\n");
    lab.owner.revoke_operator(RevokeOperatorRequest { name: "ann".into() }).await.unwrap();
    let last: Value = serde_json::from_slice(&next().await.unwrap()).unwrap();
    assert_eq!(last["error"]["code"], "PERMISSION_DENIED");
    assert!(last["error"]["message"].as_str().unwrap().contains("token of ann was revoked"), "{last}");
    assert_eq!(next().await, None);
    lab.coordinator.stop().await.unwrap();
}

#[tokio::test]
async fn r6_10_what_is_done_in_json_is_on_record_as_what_is_done_over_grpc() {
    let mut lab = Lab::start().await;
    let operator = lab.token("carl", OperatorRole::Operator).await;
    let mut request = post(&lab.secret(), "SetShares", r#"{"shares": [{"project": "sieve", "share": 5}]}"#);
    request.headers_mut().insert(AUTHOR, "root@lab".parse().unwrap());
    request.headers_mut().insert(MESSAGE, "kv%C5%AFli%20exams".parse().unwrap());
    let (status, body) = lab.ask(Some("http/1.1"), request).await;
    assert_eq!(status, StatusCode::OK, "{body:?}");
    let (status, body) =
        lab.post(&operator, "SetShares", r#"{"shares": [{"project": "sieve", "share": 6}]}"#).await;
    assert_eq!(status, StatusCode::OK, "{body}");
    let entries = lab.owner.list_audit(ListAuditRequest::default()).await.unwrap().into_inner().entries;
    let who: Vec<_> = entries.iter().rev().take(2).map(|entry| entry.actor.as_str()).collect();
    assert_eq!(who, ["carl", "root@lab"]);
    let why: Vec<_> = entries.iter().rev().take(2).map(|entry| entry.message.as_str()).collect();
    assert_eq!(why, ["", "kvůli exams"]);
    assert!(entries.iter().rev().take(2).all(|entry| entry.from.starts_with("127.0.0.1:")), "{entries:?}");
    lab.coordinator.stop().await.unwrap();
}

#[tokio::test]
async fn r6_10_grpc_is_not_spoken_over_http_1_1_and_an_answer_is_kept_by_nobody() {
    let lab = Lab::start().await;
    let head = "Host: h\r\nContent-Length: 0\r\nConnection: close\r\nContent-Type: application/grpc\r\n";
    for path in ["/fallow.fleet.v1.Fleet/Enroll", "/fallow.operator.v1.Operator/ListHosts", "/", "/v1/"] {
        let heard =
            talk(lab.stream(Some("http/1.1")).await, &format!("POST {path} HTTP/1.1\r\n{head}\r\n")).await;
        assert!(
            heard.starts_with("HTTP/1.1 404") && heard.contains("the JSON API is at /v1/METHOD"),
            "{heard}"
        );
    }
    let text =
        format!("POST /v1/ListTokens HTTP/1.1\r\n{head}Authorization: Bearer {}\r\n\r\n", lab.secret());
    let heard = talk(lab.stream(None).await, &text).await;
    assert!(heard.starts_with("HTTP/1.1 200") && heard.contains("cache-control: no-store"), "{heard}");
    assert!(heard.ends_with("{\"tokens\":[]}\n"), "{heard}");
    lab.coordinator.stop().await.unwrap();
}
