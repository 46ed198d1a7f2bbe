//! The gRPC face of the fleet.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;

use fallow_domain::printable;
use fallow_proto::fleet::limits::TEXT_BYTES;
use fallow_proto::fleet::v1::fleet_server::Fleet as Service;
use fallow_proto::fleet::v1::{
    EnrollReply, EnrollRequest, FromAgent, FromCoordinator, RenewReply, RenewRequest, SeparateReply,
    SeparateRequest,
};
use fallow_telemetry::RateLimit;
use fallow_telemetry::propagation;
use fallow_tls::Peer;
use fallow_work_server::connections::{ConnectionHandle, Source};
use tokio::sync::mpsc;
use tokio_stream::Stream;
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Request, Response, Status, Streaming};
use tracing::Instrument as _;

use super::copies::{CopyError, Parting};
use super::enrol::{self, Asked, EnrolError, Enrolled};
use super::limits::{LINKS, OUTGOING};
use super::{Fleet, link};
use crate::audit::wire::address_of;
use crate::audit::{Action, Actor, Record};
use crate::kept::{keeping, on_a_thread};
use fallow_daemon::{causes, clock};

static REFUSED: RateLimit = RateLimit::new();
static NOT_ENROLLED: RateLimit = RateLimit::new();

/// Serves the fleet contract.
#[derive(Clone)]
pub struct FleetService(Arc<Fleet>);

impl FleetService {
    /// For a server.
    #[must_use]
    pub fn new(fleet: Arc<Fleet>) -> Self {
        Self(fleet)
    }
}

#[tonic::async_trait]
impl Service for FleetService {
    type LinkStream = Pin<Box<dyn Stream<Item = Result<FromCoordinator, Status>> + Send>>;

    async fn enroll(&self, request: Request<EnrollRequest>) -> Result<Response<EnrollReply>, Status> {
        let span = tracing::info_span!(
            "fallow.fleet.v1.Fleet/Enroll",
            "otel.kind" = "server",
            "rpc.system.name" = "grpc",
            "rpc.method" = "fallow.fleet.v1.Fleet/Enroll"
        );
        propagation::extract_metadata(&span, request.metadata());
        let guest = request.extensions().get::<ConnectionHandle>().cloned();
        let from = address_of(&request);
        let EnrollRequest { token, hostname, agent_version, certificate_request } = request.into_inner();
        let fleet = self.0.clone();
        let work = async move {
            let refused = Record::new(Actor::Stranger, &from, Action::EnrolmentRefused, &hostname);
            let source = from.parse().ok().map(|address: SocketAddr| Source::of(address.ip()));
            let asked = Asked { token, hostname, certificate_request, from };
            // Before it waits for others, with all that it has sent.
            if let Err(absurd) = asked.check() {
                fleet.audit.refused(refused.refused(&absurd.to_string()));
                return Err(refusal(&absurd));
            }
            let enrolling = fleet.clone();
            // Stored and taken up in one go, or recorded as refused, whether or not the caller goes away
            // meanwhile.
            let place = fleet.strangers.place(source).await;
            let enrolled = keeping(
                Arc::new(place),
                on_a_thread(move || {
                    let enrolled = enrol::enrol(&*enrolling.store, &enrolling.issuer, clock::now(), &asked);
                    enrolled
                        .inspect(|enrolled| enrolling.add(enrolled))
                        .inspect_err(|error| enrolling.audit.refused(refused.refused(&error.to_string())))
                }),
            );
            let enrolled = enrolled.await;
            let enrolled = enrolled.map_err(|died| Status::internal(died.to_string()))?;
            if matches!(&enrolled, Err(error) if is_guess(error)) {
                fleet.guesses.slow_down().await;
            }
            let enrolled = enrolled.map_err(|error| refusal(&error))?;
            guest.inspect(|guest| guest.authenticated_as(&enrolled.id.0, LINKS));
            let (id, host) = (&enrolled.id.0, &enrolled.record.hostname);
            // Whoever has enrolled may ask again as often as he likes.
            if enrolled.is_new {
                let version = printable::line(&agent_version, TEXT_BYTES);
                tracing::info!(agent = id, host, version, "agent enrolled");
            }
            Ok(Response::new(EnrollReply { agent_id: enrolled.id.0, certificate: enrolled.issued.der }))
        };
        work.instrument(span).await
    }

    async fn renew(&self, request: Request<RenewRequest>) -> Result<Response<RenewReply>, Status> {
        let peer = request.extensions().get::<Arc<Peer>>().cloned();
        let guest = request.extensions().get::<ConnectionHandle>().cloned();
        let from = address_of(&request);
        let agent = match self.0.member(peer.as_ref()) {
            Ok((agent, _)) => agent,
            Err(status) => {
                say_refused(&status);
                record_refused(&self.0, peer.as_deref(), &from, "a newer certificate", &status);
                self.0.guesses.slow_down().await;
                return Err(status);
            }
        };
        guest.inspect(|guest| guest.authenticated_as(&agent.id.0, LINKS));
        let fleet = self.0.clone();
        let certified = move || fleet.renew(peer.as_ref(), &request.into_inner().certificate_request);
        // It computes a signature.
        let place = agent.renewing.clone().acquire_owned().await;
        let certified = keeping(Arc::new(place), on_a_thread(certified)).await;
        let certificate = certified.map_err(|died| Status::internal(died.to_string()))??;
        Ok(Response::new(RenewReply { certificate }))
    }

    async fn separate(&self, request: Request<SeparateRequest>) -> Result<Response<SeparateReply>, Status> {
        let peer = request.extensions().get::<Arc<Peer>>().cloned();
        let guest = request.extensions().get::<ConnectionHandle>().cloned();
        let from = address_of(&request);
        let SeparateRequest { ticket, certificate_request, hostname } = request.into_inner();
        let asked = Parting { ticket, hostname, certificate_request, from: from.clone() };
        let (fleet, shown) = (self.0.clone(), peer.clone());
        let parted = match self.0.member(peer.as_ref()) {
            Ok((agent, _)) => {
                let place = agent.calls.clone().acquire_owned().await;
                // Stored and taken up in one go, whether or not the caller goes away meanwhile.
                let part = on_a_thread(move || fleet.separate(shown.as_ref(), &asked, clock::now()));
                let parted = keeping(Arc::new(place), part).await;
                parted.map_err(|died| Status::internal(died.to_string()))?
            }
            Err(status) => Err(CopyError::Caller(status)),
        };
        match parted {
            Ok(Enrolled { id, issued, .. }) => {
                guest.inspect(|guest| guest.authenticated_as(&id.0, LINKS));
                Ok(Response::new(SeparateReply { agent_id: id.0, certificate: issued.der }))
            }
            Err(error) => {
                let status = Status::from(error);
                if status.code() != Code::Unavailable {
                    say_refused(&status);
                    record_refused(&self.0, peer.as_deref(), &from, "an identity of its own", &status);
                    self.0.guesses.slow_down().await;
                }
                Err(status)
            }
        }
    }

    async fn link(
        &self,
        request: Request<Streaming<FromAgent>>,
    ) -> Result<Response<Self::LinkStream>, Status> {
        // The answer begins before the Hello is judged: a client may wait for it before it sends anything.
        let (outgoing, replies) = mpsc::channel(OUTGOING);
        let guest = request.extensions().get::<ConnectionHandle>().cloned();
        let peer = request.extensions().get::<Arc<Peer>>().cloned();
        let caller = link::Caller { guest, peer, from: address_of(&request) };
        tokio::spawn(link::serve(self.0.clone(), caller, request.into_inner(), outgoing));
        Ok(Response::new(Box::pin(ReceiverStream::new(replies).map(|reply| *reply))))
    }
}

/// Whether somebody may be trying tokens.
fn is_guess(error: &EnrolError) -> bool {
    use EnrolError::{Expired, RevokedToken, Spent, TakenOut, Unknown};
    matches!(error, Unknown | Spent(_) | Expired | RevokedToken | TakenOut)
}

/// Says now and then that a call of an agent was refused.
pub(super) fn say_refused(status: &Status) {
    if let Some(times) = REFUSED.allow() {
        tracing::warn!(reason = status.message(), times, "an agent was refused");
    }
}

/// Keeps on record that a host, or somebody who is none, was refused.
pub(super) fn record_refused(fleet: &Fleet, peer: Option<&Peer>, from: &str, what: &str, status: &Status) {
    let actor = match peer {
        Some(Peer::Host(certificate)) => Actor::Agent(certificate.agent.clone()),
        Some(Peer::Anonymous) | None => Actor::Stranger,
    };
    fleet.audit.refused(Record::new(actor, from, Action::LinkRefused, what).refused(status.message()));
}

fn refusal(error: &EnrolError) -> Status {
    match error {
        error if is_guess(error) => {
            let status = Status::permission_denied(error.to_string());
            say_refused(&status);
            status
        }
        EnrolError::Absurd(why) => Status::invalid_argument(why),
        EnrolError::Request(_) => Status::invalid_argument(causes::line(error)),
        _ => {
            if let Some(times) = NOT_ENROLLED.allow() {
                tracing::error!(error = %error, times, "enrolment cannot be stored");
            }
            Status::unavailable(error.to_string())
        }
    }
}
