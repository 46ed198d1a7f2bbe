//! `fallow coordinator run`: the coordinator in the foreground, as a service manager or `fallow up` starts it.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use fallow_domain::ExitCode;
use fallow_telemetry::Service;
use tokio::signal::unix::{SignalKind, signal};

use super::{Failure, units};
use crate::daemon::{Coordinator, Options, instance};
use crate::fleet::LinkSettings;

pub(super) const EXAMPLE: &str = "\
Example:
  fallow coordinator run --dir /var/lib/fallow/coordinator
  fallow hosts --dir /var/lib/fallow/coordinator

Ports are chosen at first start and kept in the directory, so a restart needs
no more than --dir. It ends cleanly at SIGTERM or SIGINT; agents go on computing
and report when it is back.";

#[derive(Subcommand, Debug)]
pub(super) enum Command {
    /// Runs the coordinator in the foreground.
    #[command(after_help = EXAMPLE)]
    Run(Run),
}

#[derive(Args, Debug)]
pub(super) struct Run {
    /// Its directory; made if there is none.
    #[arg(long, default_value = "./fallow-data/coordinator", value_name = "DIR")]
    dir: PathBuf,
    /// Where to listen for agents and operators: loopback only; port 0 for the kept or a free one.
    #[arg(long, default_value = "127.0.0.1:0", value_name = "ADDRESS", value_parser = units::listen)]
    listen: SocketAddr,
    /// Where to serve the projects by HTTP: likewise.
    #[arg(long, default_value = "127.0.0.1:0", value_name = "ADDRESS", value_parser = units::listen)]
    http: SocketAddr,
    /// How often each side of a link says something at least; after three times that in silence it is closed.
    #[arg(long, default_value = "10s", value_name = "TIME", value_parser = heartbeat)]
    heartbeat: Duration,
}

fn heartbeat(text: &str) -> Result<Duration, Box<dyn std::error::Error + Send + Sync>> {
    let time = humantime::parse_duration(text)?;
    let (low, high) = (Duration::from_millis(100), Duration::from_secs(3_600));
    match (low..=high).contains(&time) {
        true => Ok(time),
        false => Err(units::Unacceptable("expected from 100ms to 1h".to_owned()).into()),
    }
}

pub(super) fn run(command: Command) -> Result<(), Failure> {
    let Command::Run(run) = command;
    let dir = std::path::absolute(&run.dir).map_err(|error| Failure::file("find", &run.dir, error))?;
    let service = Service {
        name: "fallow-coordinator",
        version: env!("CARGO_PKG_VERSION"),
        instance_id: instance(&dir)?,
    };
    let telemetry = fallow_telemetry::init(&service)
        .map_err(|error| Failure::caused(ExitCode::BadInput, "telemetry cannot be set up", error))?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::internal("the runtime does not start", error))?;
    let link = LinkSettings { heartbeat: run.heartbeat };
    let options = Options { dir, listen: run.listen, http: run.http, link };
    let served = runtime.block_on(serve(options));
    runtime.shutdown_timeout(Duration::from_secs(1));
    telemetry.shutdown();
    served
}

async fn serve(options: Options) -> Result<(), Failure> {
    let listen =
        |kind| signal(kind).map_err(|error| Failure::internal("signals cannot be listened to", error));
    let (mut terminate, mut interrupt) = (listen(SignalKind::terminate())?, listen(SignalKind::interrupt())?);
    let mut coordinator = Coordinator::start(options).await?;
    tokio::select! {
        () = coordinator.asked_to_stop() => {}
        _ = terminate.recv() => tracing::info!("SIGTERM: the coordinator stops"),
        _ = interrupt.recv() => tracing::info!("SIGINT: the coordinator stops"),
    }
    Ok(coordinator.stop().await?)
}
