//! A server of tonic's own, over the same TLS as the coordinator's, that does nothing but carry messages:
//! what the coordinator is measured beside. It gives each host its certificate, acknowledges what comes, and
//! sends a document to every link when it is told to. It stores nothing and checks nothing.
#![allow(dead_code, unreachable_pub, reason = "each benchmark has a part of it")]

#[path = "../../../../shared/tls/tests/support/incoming.rs"]
mod incoming;

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fallow_domain::{AgentId, Duration};
use fallow_proto::fleet::v1 as wire;
use fallow_tls::{AccessString, Authority, CoordinatorCertificate, Purpose};
use tokio::sync::{mpsc, watch};
use tokio_stream::Stream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};
use wire::fleet_server::{Fleet, FleetServer};
use wire::from_agent::Body as Said;
use wire::from_coordinator::Body as Heard;

/// How long its certificates last.
const LIFE: Duration = Duration::from_hours(1);

/// Where a bare server is, and what its links are told.
pub struct Bare {
    pub access: AccessString,
    /// The newest document goes to every link.
    pub document: watch::Sender<Option<wire::Document>>,
}

impl Bare {
    /// Serves until the runtime ends.
    pub async fn start() -> Result<Self, Box<dyn std::error::Error + Send + Sync>> {
        let socket = tokio::net::TcpSocket::new_v4()?;
        socket.bind("127.0.0.1:0".parse()?)?;
        let listener = socket.listen(4_096)?;
        let now = fallow_daemon::clock::now();
        let (authority, ..) = Authority::create(now)?;
        let shown = CoordinatorCertificate::issue(&authority, &[], now, LIFE)?;
        let access = AccessString {
            purpose: Purpose::Operator,
            addresses: vec![listener.local_addr()?.to_string().parse()?],
            authority: authority.fingerprint(),
            secret: "0".repeat(64),
            organisation: Vec::new(),
        };
        let tls = fallow_tls::server_config(&authority, Arc::new(shown))?;
        let (document, newest) = watch::channel(None);
        let service = FleetServer::new(Service { authority, hosts: AtomicU64::new(0), newest });
        let server = tonic::transport::Server::builder().add_service(service);
        tokio::spawn(server.serve_with_incoming(incoming::incoming(listener, tls)));
        Ok(Self { access, document })
    }
}

struct Service {
    authority: Authority,
    hosts: AtomicU64,
    newest: watch::Receiver<Option<wire::Document>>,
}

#[tonic::async_trait]
impl Fleet for Service {
    type LinkStream = Pin<Box<dyn Stream<Item = Result<wire::FromCoordinator, Status>> + Send>>;

    async fn enroll(
        &self,
        request: Request<wire::EnrollRequest>,
    ) -> Result<Response<wire::EnrollReply>, Status> {
        let agent_id = self.hosts.fetch_add(1, Ordering::Relaxed).to_string();
        let certificate_request = request.into_inner().certificate_request;
        let now = fallow_daemon::clock::now();
        let issued = self.authority.issue_host(&certificate_request, &AgentId(agent_id.clone()), now, LIFE);
        let issued = issued.map_err(|error| Status::invalid_argument(error.to_string()))?;
        Ok(Response::new(wire::EnrollReply { agent_id, certificate: issued.der }))
    }

    async fn renew(&self, _: Request<wire::RenewRequest>) -> Result<Response<wire::RenewReply>, Status> {
        Err(Status::unimplemented("not measured"))
    }

    async fn separate(
        &self,
        _: Request<wire::SeparateRequest>,
    ) -> Result<Response<wire::SeparateReply>, Status> {
        Err(Status::unimplemented("not measured"))
    }

    async fn link(
        &self,
        request: Request<Streaming<wire::FromAgent>>,
    ) -> Result<Response<Self::LinkStream>, Status> {
        let (outgoing, replies) = mpsc::channel(8);
        tokio::spawn(carry(request.into_inner(), outgoing, self.newest.clone()));
        Ok(Response::new(Box::pin(ReceiverStream::new(replies))))
    }
}

/// One link, until its agent or the runtime ends it.
async fn carry(
    mut incoming: Streaming<wire::FromAgent>,
    outgoing: mpsc::Sender<Result<wire::FromCoordinator, Status>>,
    mut newest: watch::Receiver<Option<wire::Document>>,
) {
    // What there is already comes first, as the coordinator does it.
    newest.mark_changed();
    loop {
        let body = tokio::select! {
            message = incoming.message() => match message {
                Ok(Some(message)) => acknowledgement(message),
                _ => return,
            },
            changed = newest.changed() => match changed {
                Ok(()) => newest.borrow_and_update().clone().map(Heard::Document),
                Err(_) => return,
            },
        };
        let Some(body) = body else { continue };
        let message = wire::FromCoordinator { traceparent: String::new(), body: Some(body) };
        if outgoing.send(Ok(message)).await.is_err() {
            return;
        }
    }
}

fn acknowledgement(message: wire::FromAgent) -> Option<Heard> {
    let sequence = match message.body {
        Some(Said::Delta(delta)) => delta.sequence,
        Some(Said::Snapshot(snapshot)) => snapshot.sequence,
        _ => return None,
    };
    Some(Heard::Acknowledge(wire::Acknowledge { sequence }))
}
