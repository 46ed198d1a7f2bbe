//! The two peers of a coordinator, as plain gRPC clients: an operator's tool, and an agent that says exactly
//! what a test wants said.
#![allow(dead_code, unreachable_pub, reason = "each test has a part of it")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests: failures are panics")]

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use fallow_proto::PROTOCOL;
use fallow_proto::fleet::v1 as wire;
use fallow_proto::fleet::v1::fleet_client::FleetClient;
use fallow_proto::operator::v1::add_app_version_part::Part;
use fallow_proto::operator::v1::operator_client::OperatorClient;
use fallow_proto::operator::v1::{
    AddAppVersionPart, AddAppVersionRequest, AppFile, CreateTokensRequest, ListHostsRequest,
};
use fallow_tls::{AccessString, Authority, ConnectError, Connector, HostCredentials, HostKey};
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
pub async fn connect(access: &AccessString) -> Result<Client, ConnectError> {
    let channel = channel(access, None).await?;
    let bearer = Bearer(format!("Bearer {}", access.secret).parse().unwrap());
    Ok(OperatorClient::with_interceptor(channel, bearer).max_decoding_message_size(64 << 20))
}

/// A connection to the fleet's port, of a host or of nobody.
pub async fn channel(
    access: &AccessString,
    credentials: Option<Arc<HostCredentials>>,
) -> Result<Channel, ConnectError> {
    let connector = Connector::new(access.authority, credentials).unwrap();
    let endpoint = Endpoint::from_static("http://coordinator.fallow.invalid");
    let dialled = fallow_tls::dial(&connector, &access.addresses, &endpoint).await?;
    Ok(dialled.channel)
}

/// The secrets of new tokens.
pub async fn tokens(operator: &mut Client, count: u32) -> Vec<String> {
    let request = CreateTokensRequest { count, ..CreateTokensRequest::default() };
    operator.create_tokens(request).await.unwrap().into_inner().tokens
}

/// A host of the fleet.
#[derive(Clone, Debug)]
pub struct Identity {
    pub agent_id: String,
    pub access: AccessString,
    pub key: Arc<HostKey>,
    pub certificate: Vec<u8>,
}

impl Identity {
    pub fn credentials(&self) -> Arc<HostCredentials> {
        let credentials = Arc::new(HostCredentials::default());
        credentials.replace(&self.certificate, &self.key).unwrap();
        credentials
    }

    pub async fn channel(&self) -> Channel {
        channel(&self.access, Some(self.credentials())).await.unwrap()
    }

    /// A newer certificate.
    pub async fn renewed(&self) -> Result<Self, Status> {
        let mut client = FleetClient::new(self.channel().await);
        let certificate_request = self.key.certificate_request().unwrap();
        let reply = client.renew(wire::RenewRequest { certificate_request }).await?.into_inner();
        Ok(Self { certificate: reply.certificate, ..self.clone() })
    }
}

pub async fn enroll(access: &AccessString, token: &str) -> Result<Identity, Status> {
    enroll_with(access, token, Arc::new(HostKey::generate().unwrap())).await
}

pub async fn enroll_with(access: &AccessString, token: &str, key: Arc<HostKey>) -> Result<Identity, Status> {
    let request = wire::EnrollRequest {
        token: token.into(),
        hostname: "host".into(),
        agent_version: "0".into(),
        certificate_request: key.certificate_request().unwrap(),
    };
    let mut client = FleetClient::new(channel(access, None).await.unwrap());
    let wire::EnrollReply { agent_id, certificate } = client.enroll(request).await?.into_inner();
    Ok(Identity { agent_id, access: access.clone(), key, certificate })
}

/// A certificate of the authority of the coordinator in this directory, made by hand: what somebody would
/// have who could sign.
pub fn forged(dir: &Path, agent: &str, key: &HostKey, at: fallow_domain::Instant) -> Arc<HostCredentials> {
    let read = |name: &str| std::fs::read_to_string(dir.join(name)).unwrap();
    let authority = Authority::from_pem(&read("authority.pem"), &read("authority.key")).unwrap();
    certified_by(&authority, agent, key, at)
}

/// A host's certificate of this authority, good for a minute.
pub fn certified_by(
    authority: &Authority,
    agent: &str,
    key: &HostKey,
    at: fallow_domain::Instant,
) -> Arc<HostCredentials> {
    let request = key.certificate_request().unwrap();
    let agent = fallow_domain::AgentId(agent.to_owned());
    let issued = authority.issue_host(&request, &agent, at, fallow_domain::Duration::from_secs(60)).unwrap();
    let credentials = Arc::new(HostCredentials::default());
    credentials.replace(&issued.der, key).unwrap();
    credentials
}

/// When the only agent was seen last.
pub async fn seen(operator: &mut Client) -> i64 {
    let mut hosts = operator.list_hosts(ListHostsRequest::default()).await.unwrap().into_inner().hosts;
    hosts.remove(0).last_seen_micros
}

pub fn hello(identity: &Identity, epoch: &str, document_version: u64) -> wire::Hello {
    wire::Hello {
        protocol: PROTOCOL,
        agent_id: identity.agent_id.clone(),
        agent_version: "0".into(),
        epoch: epoch.into(),
        document_version,
        document_content: String::new(),
        boot: Vec::new(),
        machine: Vec::new(),
    }
}

pub fn host() -> wire::Entry {
    let host = wire::HostState { hostname: "host".into(), cpus: 2, usable_cpus: 1, ..Default::default() };
    wire::Entry { key: "host".into(), value: Some(Value::Host(Box::new(host))) }
}

/// An agent's end of a link.
pub struct Agent {
    pub to: mpsc::Sender<wire::FromAgent>,
    pub from: Streaming<wire::FromCoordinator>,
}

impl Agent {
    pub async fn open(identity: &Identity, hello: wire::Hello) -> Self {
        Self::open_over(identity.channel().await, hello).await
    }

    pub async fn open_over(channel: Channel, hello: wire::Hello) -> Self {
        let (to, outgoing) = mpsc::channel(16);
        let mut client = FleetClient::new(channel);
        let from = client.link(ReceiverStream::new(outgoing)).await.unwrap().into_inner();
        let mut agent = Self { to, from };
        agent.say(Said::Hello(hello)).await;
        agent
    }

    pub async fn link(identity: &Identity, hello: wire::Hello) -> (Self, wire::Welcome) {
        let mut agent = Self::open(identity, hello).await;
        match agent.next().await.unwrap() {
            Heard::Welcome(welcome) => (agent, welcome),
            other => panic!("not a welcome: {other:?}"),
        }
    }

    pub async fn refused(identity: &Identity, hello: wire::Hello) -> Status {
        Self::open(identity, hello).await.next().await.unwrap_err()
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

/// Gives an application of a project its first version: a program of one byte.
pub async fn add_app_version(operator: &mut Client, project: &str, application: &str) {
    let file = AppFile {
        name: "program".into(),
        size_bytes: 1,
        sha256: "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881".into(),
        executable: true,
        signature: String::new(),
    };
    let version = AddAppVersionRequest {
        project: project.into(),
        application: application.into(),
        version: 100,
        platform: "x86_64-pc-linux-gnu".into(),
        files: vec![file],
        ..Default::default()
    };
    let parts = [Part::Version(version), Part::Content(b"x".to_vec())];
    let parts = parts.map(|part| AddAppVersionPart { part: Some(part) });
    operator.add_app_version(tokio_stream::iter(parts)).await.unwrap();
}
