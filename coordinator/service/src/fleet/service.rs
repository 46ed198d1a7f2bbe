//! The gRPC face of the fleet.

use std::pin::Pin;
use std::sync::Arc;

use fallow_proto::fleet::v1::fleet_server::Fleet as Service;
use fallow_proto::fleet::v1::{EnrollReply, EnrollRequest, FromAgent, FromCoordinator};
use fallow_telemetry::RateLimit;
use fallow_telemetry::propagation;
use fallow_work_server::connections::ConnectionHandle;
use tokio::sync::mpsc;
use tokio_stream::Stream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};
use tracing::Instrument as _;

use super::limits::{LINKS, OUTGOING};
use super::token::{self, EnrolError};
use super::{Fleet, link};
use fallow_daemon::clock;

static REFUSED: RateLimit = RateLimit::new();

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
        let EnrollRequest { token, hostname, agent_version } = request.into_inner();
        let fleet = self.0.clone();
        let work = async move {
            let store = fleet.store.clone();
            let enrolled =
                tokio::task::spawn_blocking(move || token::enrol(&*store, clock::now(), &token, &hostname))
                    .await;
            let enrolled = enrolled.map_err(|died| Status::internal(died.to_string()))?;
            if matches!(enrolled, Err(EnrolError::Unknown | EnrolError::Spent)) {
                fleet.guesses.slow_down().await;
            }
            let identity = enrolled.map_err(|error| refusal(&error))?;
            fleet.add(&identity);
            guest.inspect(|guest| guest.authenticated_as(&identity.id.0, LINKS));
            let (id, host) = (&identity.id.0, &identity.record.hostname);
            tracing::info!(agent = id, host, version = agent_version, "agent enrolled");
            Ok(Response::new(EnrollReply { agent_id: identity.id.0, agent_secret: identity.secret }))
        };
        work.instrument(span).await
    }

    async fn link(
        &self,
        request: Request<Streaming<FromAgent>>,
    ) -> Result<Response<Self::LinkStream>, Status> {
        // The answer begins before the Hello is judged: a client may wait for it before it sends anything.
        let (outgoing, replies) = mpsc::channel(OUTGOING);
        let guest = request.extensions().get::<ConnectionHandle>().cloned();
        tokio::spawn(link::serve(self.0.clone(), guest, request.into_inner(), outgoing));
        Ok(Response::new(Box::pin(ReceiverStream::new(replies))))
    }
}

fn refusal(error: &EnrolError) -> Status {
    match error {
        EnrolError::Unknown | EnrolError::Spent => {
            if let Some(times) = REFUSED.allow() {
                tracing::warn!(reason = %error, times, "enrolment refused");
            }
            Status::permission_denied(error.to_string())
        }
        EnrolError::Absurd(why) => Status::invalid_argument(why),
        EnrolError::Random(_) => Status::internal(error.to_string()),
        EnrolError::Store(_) => {
            tracing::error!(error = %error, "enrolment cannot be stored");
            Status::unavailable(error.to_string())
        }
    }
}
