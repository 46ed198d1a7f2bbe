//! The coordinator's two servers.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::time::Duration;

use fallow_domain::MasterUrl;
use fallow_proto::fleet::v1::fleet_server::FleetServer;
use fallow_proto::operator::v1::operator_server::{self, OperatorServer};
use fallow_work_server::ProjectServer;
use tonic::service::Routes;
use tonic_health::pb::health_server::{self, HealthServer};
use tonic_reflection::pb::v1::server_reflection_server;
use tonic_reflection::server::v1::{ServerReflection, ServerReflectionServer};

use super::refusals::{Port, Refusals};
use super::{Coordinator, StartError, address, port};
use crate::fleet::limits::MESSAGE_BYTES;
use crate::fleet::{FleetService, ShortFirst};
use crate::json::{self, Contract};
use crate::operator::{Guard, HealthService, OperatorService};

/// How long calls in progress may take to finish at the end.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);
/// A submission of many workunits with their input files.
const OPERATOR_BYTES: usize = 64 << 20;

/// Serves agents and operators.
pub(super) fn grpc(coordinator: &mut Coordinator, listener: TcpListener) -> Result<(), StartError> {
    let listener = to_tokio(listener)?;
    let fleet = FleetServer::new(FleetService::new(coordinator.fleet.clone()))
        .max_decoding_message_size(MESSAGE_BYTES);
    let operator = OperatorService::new(
        coordinator.fleet.clone(),
        coordinator.documents.clone(),
        coordinator.operators.clone(),
        coordinator.access.clone(),
        (coordinator.stop.clone(), coordinator.restarts.clone()),
        coordinator.source(),
    );
    let operator = OperatorServer::new(operator).max_decoding_message_size(OPERATOR_BYTES);
    let (operators, audit) = (coordinator.operators.clone(), coordinator.fleet.audit().clone());
    let guard = Guard::new(&coordinator.access.secret, operators, audit);
    let health = HealthServer::new(HealthService::new(coordinator.stop.subscribe()));
    let grpc = Routes::new(ShortFirst::new(fleet))
        .add_service(guard.around(operator))
        .add_service(guard.around(health))
        .add_service(guard.around(reflection()?))
        .into_axum_router();
    let router = json::router(Contract::read()?, grpc, &guard);
    let bounds = port::Bounds::fleet(coordinator.connection_limits.fleet);
    let tls = port::Tls::Mutual(coordinator.tls.clone());
    let (descriptors, stop) = (coordinator.descriptors.clone(), coordinator.stop.subscribe());
    let refusals = refusals(coordinator, Port::Fleet);
    let served = port::serve(listener, router, bounds, tls, descriptors, refusals, stop);
    let (fleet, mut stop) = (coordinator.fleet.clone(), coordinator.stop.subscribe());
    coordinator.servers.spawn(async move {
        let stopped = async {
            let _ = stop.wait_for(|stop| *stop).await;
            // Links would never end by themselves.
            fleet.stop();
        };
        tokio::join!(served, stopped);
    });
    Ok(())
}

/// Tells operators' tools, such as grpcurl, what can be asked of the coordinator.
fn reflection() -> Result<ServerReflectionServer<impl ServerReflection>, StartError> {
    let builder = tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(fallow_proto::DESCRIPTORS)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET);
    // Not the fleet's: agents alone speak it.
    let names =
        [operator_server::SERVICE_NAME, health_server::SERVICE_NAME, server_reflection_server::SERVICE_NAME];
    let builder = names.into_iter().fold(builder, |builder, name| builder.with_service_name(name));
    Ok(builder.build_v1()?)
}

/// How long new jobs may lie there before agents are told of them: jobs that are submitted one by one make
/// one call.
const NEW_JOBS: Duration = Duration::from_millis(200);
/// How often it is looked whether jobs are left that nobody took of those who were told.
const LEFT: Duration = Duration::from_secs(20);

/// How long a thread of a coordinator's runtime stays that has nothing to do: through many looks for jobs
/// that are left, each of which one of them makes. So there is always one, unless all of the process stood
/// still for that long, and work waits for it where the system gives no other. Without any the runtime
/// panics.
pub const THREADS_STAY: Duration = Duration::from_mins(10);

/// Drives rollouts of documents (R6.5).
pub(super) fn rollouts(coordinator: &mut Coordinator) {
    let (fleet, documents) = (coordinator.fleet.clone(), coordinator.documents.clone());
    let stop = coordinator.stop.subscribe();
    coordinator.servers.spawn(crate::fleet::rollout::drive(fleet, documents, stop));
}

/// Gives memory back that is not needed any more.
pub(super) fn memory(coordinator: &mut Coordinator) {
    let mut stop = coordinator.stop.subscribe();
    coordinator.servers.spawn(async move {
        tokio::select! {
            () = crate::operator::give_back() => {}
            () = async { drop(stop.wait_for(|stop| *stop).await) } => {}
        }
    });
}

/// Tells agents of new jobs: just submitted, or to be computed once more; and agents that come back of what
/// waits for them (R1.4).
pub(super) fn new_jobs(coordinator: &mut Coordinator) {
    let (fleet, projects) = (coordinator.fleet.clone(), coordinator.projects.clone());
    let mut stop = coordinator.stop.subscribe();
    coordinator.servers.spawn(async move {
        let mut ticks = tokio::time::interval(NEW_JOBS);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut left = tokio::time::interval(LEFT);
        left.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                _ = left.tick() => {
                    fleet.contact_again(&unsent(&projects).await);
                    continue;
                }
                () = async { drop(stop.wait_for(|stop| *stop).await) } => return,
            }
            // Before the new ones are told of: those that come between count as new alone.
            let unsent = if fleet.has_returned() { unsent(&projects).await } else { BTreeMap::new() };
            for (url, new) in projects.take_new_jobs() {
                fleet.contact(&url, new.jobs, new.agents);
            }
            fleet.contact_returned(&unsent);
        }
    });
}

/// Unsent jobs of each project that has any.
async fn unsent(projects: &ProjectServer) -> BTreeMap<MasterUrl, u64> {
    let projects = projects.clone();
    let count = move || {
        let all = projects.projects().into_iter();
        let unsent = all.filter_map(|info| {
            let jobs = projects.counts(&info.name).ok()?.jobs_unsent;
            (jobs > 0).then_some((info.url, jobs))
        });
        unsent.collect()
    };
    // It reads the store.
    tokio::task::spawn_blocking(count).await.unwrap_or_default()
}

/// Serves the projects.
pub(super) fn http(coordinator: &mut Coordinator, listener: TcpListener) -> Result<(), StartError> {
    let listener = to_tokio(listener)?;
    let router = coordinator.projects.router();
    let stop = coordinator.stop.subscribe();
    let bounds = port::Bounds::projects(coordinator.connection_limits.projects);
    let tls = port::Tls::Public {
        config: coordinator.projects_tls.clone(),
        allows_plain: coordinator.served.allows_plain,
        is_public_plain: coordinator.served.plain_url.is_none(),
    };
    let descriptors = coordinator.descriptors.clone();
    let refusals = refusals(coordinator, Port::Projects);
    coordinator.servers.spawn(port::serve(listener, router, bounds, tls, descriptors, refusals, stop));
    Ok(())
}

/// Who is turned away at a port, for the audit log.
fn refusals(coordinator: &Coordinator, port: Port) -> Refusals {
    let audit = coordinator.fleet.audit().clone();
    Refusals::new(port, move |record| audit.refused(record))
}

fn to_tokio(listener: TcpListener) -> Result<tokio::net::TcpListener, StartError> {
    let address = address::local(&listener)?;
    tokio::net::TcpListener::from_std(listener).map_err(|source| StartError::Listen { address, source })
}
