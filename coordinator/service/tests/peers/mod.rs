//! The two peers of a coordinator, as plain gRPC clients: an operator's tool, and an agent that says exactly
//! what a test wants said.
#![allow(dead_code, unreachable_pub, reason = "each test has a part of it")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests: failures are panics")]

use std::time::Duration;

use fallow_coordinator::daemon::Coordinator;
use fallow_proto::PROTOCOL;
use fallow_proto::fleet::v1 as wire;
use fallow_proto::fleet::v1::fleet_client::FleetClient;
use fallow_proto::operator::v1::operator_client::OperatorClient;
use fallow_proto::operator::v1::{CreateTokensRequest, ListHostsRequest};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::Interceptor;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status, Streaming};
use wire::entry::Value;
use wire::from_agent::Body as Said;
use wire::from_coordinator::Body as Heard;

/// What has to come is waited for so long: it costs nothing where it comes, and a machine may be slow.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// The operators' service, with the token in every call.
pub type Client = OperatorClient<InterceptedService<Channel, Bearer>>;

/// What each call carries.
#[derive(Clone)]
pub struct Bearer(MetadataValue<Ascii>);

impl Interceptor for Bearer {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        request.metadata_mut().insert("authorization", self.0.clone());
        Ok(request)
    }
}

/// An operator's tool.
pub async fn connect(url: &str, token: &str) -> Result<Client, tonic::transport::Error> {
    let channel = Endpoint::from_shared(url.to_owned())?.tcp_nodelay(true).connect().await?;
    let bearer = Bearer(format!("Bearer {token}").parse().unwrap());
    Ok(OperatorClient::with_interceptor(channel, bearer).max_decoding_message_size(64 << 20))
}

pub async fn tokens(operator: &mut Client, count: u32) -> Vec<String> {
    operator.create_tokens(CreateTokensRequest { count }).await.unwrap().into_inner().tokens
}

pub async fn enroll(client: &mut FleetClient<Channel>, token: &str) -> Result<wire::EnrollReply, Status> {
    let request =
        wire::EnrollRequest { token: token.into(), hostname: "host".into(), agent_version: "0".into() };
    client.enroll(request).await.map(tonic::Response::into_inner)
}

/// When the only agent was seen last.
pub async fn seen(operator: &mut Client) -> i64 {
    let mut hosts = operator.list_hosts(ListHostsRequest::default()).await.unwrap().into_inner().hosts;
    hosts.remove(0).last_seen_micros
}

pub fn hello(identity: &wire::EnrollReply, epoch: &str, document_version: u64) -> wire::Hello {
    wire::Hello {
        protocol: PROTOCOL,
        agent_id: identity.agent_id.clone(),
        agent_secret: identity.agent_secret.clone(),
        agent_version: "0".into(),
        epoch: epoch.into(),
        document_version,
    }
}

pub fn host() -> wire::Entry {
    let host = wire::HostState { hostname: "host".into(), cpus: 2, usable_cpus: 1, ..Default::default() };
    wire::Entry { key: "host".into(), value: Some(Value::Host(host)) }
}

/// An agent's end of a link.
pub struct Agent {
    pub to: mpsc::Sender<wire::FromAgent>,
    pub from: Streaming<wire::FromCoordinator>,
}

impl Agent {
    pub async fn open(coordinator: &Coordinator, hello: wire::Hello) -> Self {
        Self::open_at(&coordinator.fleet_url(), hello).await
    }

    pub async fn open_at(url: &str, hello: wire::Hello) -> Self {
        let mut client = FleetClient::connect(url.to_owned()).await.unwrap();
        let (to, outgoing) = mpsc::channel(16);
        let from = client.link(ReceiverStream::new(outgoing)).await.unwrap().into_inner();
        let mut agent = Self { to, from };
        agent.say(Said::Hello(hello)).await;
        agent
    }

    pub async fn link(coordinator: &Coordinator, hello: wire::Hello) -> (Self, wire::Welcome) {
        let mut agent = Self::open(coordinator, hello).await;
        match agent.next().await.unwrap() {
            Heard::Welcome(welcome) => (agent, welcome),
            other => panic!("not a welcome: {other:?}"),
        }
    }

    pub async fn refused(coordinator: &Coordinator, hello: wire::Hello) -> Status {
        Self::open(coordinator, hello).await.next().await.unwrap_err()
    }

    pub async fn say(&mut self, body: Said) {
        // The coordinator may have ended the stream already: what it says then is what a test looks at.
        let _ = self.to.send(wire::FromAgent { traceparent: String::new(), body: Some(body) }).await;
    }

    pub async fn snapshot(&mut self, sequence: u64, entries: Vec<wire::Entry>) {
        self.say(Said::Snapshot(wire::Snapshot { sequence, entries })).await;
    }

    pub async fn delta(&mut self, sequence: u64, entries: Vec<wire::Entry>, removed: &[&str]) {
        let removed = removed.iter().map(|&key| key.to_owned()).collect();
        self.say(Said::Delta(wire::Delta { sequence, entries, removed })).await;
    }

    pub async fn message(&mut self) -> Result<wire::FromCoordinator, Status> {
        let message = timeout(PATIENCE, self.from.message()).await.expect("nothing came")?;
        Ok(message.expect("the stream ended without a reason"))
    }

    pub async fn next(&mut self) -> Result<Heard, Status> {
        Ok(self.message().await?.body.expect("an empty message"))
    }

    /// Reads on until a document comes, and gives the key of its only project.
    pub async fn account_key(&mut self) -> String {
        loop {
            if let Heard::Document(document) = self.next().await.unwrap() {
                return document.projects[0].account_key.clone();
            }
        }
    }

    /// Reads on until everything up to `sequence` is acknowledged.
    pub async fn acknowledged(&mut self, sequence: u64) {
        loop {
            match self.next().await.unwrap() {
                Heard::Acknowledge(acknowledge) if acknowledge.sequence >= sequence => return,
                _ => {}
            }
        }
    }

    /// Reads on until the stream ends, and gives the reason.
    pub async fn ended(&mut self) -> Status {
        loop {
            if let Err(status) = self.next().await {
                return status;
            }
        }
    }
}
