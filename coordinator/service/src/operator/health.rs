//! Whether the coordinator serves, as gRPC's health service says it (R6.11).
//!
//! It serves until it begins to stop: from then on its port takes no connection any more, and calls in
//! progress are finished. Whoever watches is told so, and the watch ends.

use std::pin::Pin;

use fallow_proto::fleet::v1::fleet_server;
use fallow_proto::operator::v1::operator_server;
use futures_util::{Stream, stream};
use tokio::sync::watch;
use tonic::{Request, Response, Status};
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_server::Health;
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};

/// What may be asked about: everything at once, by the empty name, or a service of the port.
const SERVICES: [&str; 3] = ["", operator_server::SERVICE_NAME, fleet_server::SERVICE_NAME];

/// Serves gRPC's health service.
#[derive(Clone, Debug)]
pub struct HealthService {
    stop: watch::Receiver<bool>,
}

impl HealthService {
    /// For a coordinator that begins to stop when `stop` becomes true.
    #[must_use]
    pub const fn new(stop: watch::Receiver<bool>) -> Self {
        Self { stop }
    }
}

/// What whoever watches is told next.
enum Next {
    /// How it is.
    Now,
    /// How it is once the coordinator stops.
    AtTheEnd,
}

/// How a service is, while the coordinator stops or does not.
fn status_of(service: &str, stops: bool) -> ServingStatus {
    match (SERVICES.contains(&service), stops) {
        (false, _) => ServingStatus::ServiceUnknown,
        (true, false) => ServingStatus::Serving,
        (true, true) => ServingStatus::NotServing,
    }
}

fn said(status: ServingStatus) -> HealthCheckResponse {
    HealthCheckResponse { status: status.into() }
}

#[tonic::async_trait]
impl Health for HealthService {
    async fn check(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<HealthCheckResponse>, Status> {
        let service = request.into_inner().service;
        match status_of(&service, *self.stop.borrow()) {
            ServingStatus::ServiceUnknown => Err(Status::not_found(format!(
                "this port serves nothing that is called {service:?}: ask for {SERVICES:?}, where the empty name is \
                 for all of it"
            ))),
            status => Ok(Response::new(said(status))),
        }
    }

    type WatchStream = Pin<Box<dyn Stream<Item = Result<HealthCheckResponse, Status>> + Send>>;

    async fn watch(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let service = request.into_inner().service;
        let stop = self.stop.clone();
        // What comes next: how it is now, then how it is once the coordinator stops, then nothing.
        let told = stream::unfold(Some(Next::Now), move |next| {
            let (service, mut stop) = (service.clone(), stop.clone());
            async move {
                if let Next::AtTheEnd = next? {
                    // Without anybody who could say so, it stops as well.
                    let _ = stop.wait_for(|stop| *stop).await;
                    return Some((Ok(said(status_of(&service, true))), None));
                }
                let stops = *stop.borrow();
                Some((Ok(said(status_of(&service, stops))), (!stops).then_some(Next::AtTheEnd)))
            }
        });
        Ok(Response::new(Box::pin(told)))
    }
}
