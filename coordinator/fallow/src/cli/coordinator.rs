//! `fallow coordinator run`: the coordinator in the foreground, as a service manager or `fallow up` starts
//! it.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use fallow_coordinator::daemon::{Coordinator, Options, THREADS_STAY, instance};
use fallow_coordinator::fleet::LinkSettings;
use fallow_domain::ExitCode;
use fallow_telemetry::Service;
use fallow_tls::Address;
use tokio::signal::unix::{SignalKind, signal};

use super::{Failure, threads, units};

pub(crate) const EXAMPLE: &str = "\
Example:
  fallow coordinator run --dir /var/lib/fallow-coordinator
  fallow hosts --dir /var/lib/fallow-coordinator
  fallow coordinator run --dir lab/coordinator --listen 0.0.0.0:24001 \\
      --advertise lab.example.org:24001

Where it listens and what it advertises is kept in the directory, so a restart
needs no more than --dir, and --allow-plain-http, --projects-behind-proxy,
--certificate-life and --heartbeat if these are to hold on. It ends cleanly at
SIGTERM or SIGINT; agents go on computing and report when it is back.";

#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// Runs the coordinator in the foreground.
    #[command(after_help = EXAMPLE)]
    Run(Run),
}

#[derive(Args, Debug)]
pub(crate) struct Run {
    /// Its directory; made if there is none. Without it: coordinator in FALLOW_DIR, else in ./fallow-data; or
    /// FALLOW_DIR itself if a coordinator has run there.
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Where to listen for agents and operators, by TLS: 0.0.0.0:24001 for all addresses of this machine;
    /// port 0 for the kept or a free one. Without it: where it did before, or else 127.0.0.1:0.
    #[arg(long, value_name = "ADDRESS", value_parser = units::listen)]
    listen: Option<SocketAddr>,
    /// Where agents and operators reach it, as tokens tell them; may be given more than once. Without it:
    /// as before, or else where it listens, or this machine's name.
    #[arg(long, value_name = "HOST:PORT")]
    advertise: Vec<Address>,
    /// How long certificates of hosts are good; each is renewed when two thirds of that are over.
    #[arg(long, default_value = "30d", value_name = "TIME", value_parser = certificate_life)]
    certificate_life: Duration,
    /// Where to serve the projects by HTTP: with TLS, except on loopback; port 0 for the kept or a free one.
    /// Without it: where it did before, or else 127.0.0.1:0.
    #[arg(long, value_name = "ADDRESS", value_parser = units::listen)]
    http: Option<SocketAddr>,
    /// The URL under which clients reach the projects, without their names, such as https://lab.example.org
    /// behind a reverse proxy. It is part of what projects are known by, and fixed at the first start.
    /// Without it: where they are served.
    #[arg(long, value_name = "URL")]
    projects_url: Option<String>,
    /// Another server stands at --projects-url and shows a certificate of its own: agents accept there,
    /// beside one of the fleet's authority, what their machines trust anywhere. To be said at each start.
    #[arg(long)]
    projects_behind_proxy: bool,
    /// Let BOINC clients come without TLS, which do not know the fleet's certificate authority: whoever is on
    /// the way can read and change what they say and get, account keys included. Programs stay signed; agents
    /// use TLS. To be said at each start.
    #[arg(long)]
    allow_plain_http: bool,
    /// How often the coordinator says something to each agent, which answers; their link is closed after a
    /// minute of silence: after four times that where it is less, and after twice that where it is more.
    /// Agents wait for half a minute at least. A host that is gone without a word is missed after a minute
    /// and a half at the latest
    #[arg(long, default_value = "30s", value_name = "TIME", value_parser = heartbeat)]
    heartbeat: Duration,
}

fn heartbeat(text: &str) -> Result<Duration, Box<dyn std::error::Error + Send + Sync>> {
    let time = humantime::parse_duration(text).map_err(|_| "expected a time such as 500ms or 10s")?;
    let (low, high) = (Duration::from_millis(100), Duration::from_secs(3_600));
    match (low..=high).contains(&time) {
        true => Ok(time),
        false => Err(units::Unacceptable("expected from 100ms to 1h".to_owned()).into()),
    }
}

fn certificate_life(text: &str) -> Result<Duration, Box<dyn std::error::Error + Send + Sync>> {
    let time = humantime::parse_duration(text).map_err(|_| "expected a time such as 12h or 30d")?;
    let (low, high) = (Duration::from_secs(10), Duration::from_secs(366 * 86_400));
    match (low..=high).contains(&time) {
        true => Ok(time),
        false => Err(units::Unacceptable("expected from 10s to 366d".to_owned()).into()),
    }
}

/// Where tools look for a coordinator, given FALLOW_DIR: a directory of `fallow up`, with the coordinator's
/// within, or the coordinator's own.
fn default_dir(root: Option<OsString>) -> PathBuf {
    let root =
        root.filter(|root| !root.is_empty()).map_or_else(|| PathBuf::from("./fallow-data"), PathBuf::from);
    let within = root.join("coordinator");
    let is_own = !within.exists() && root.join("operator.token").exists();
    if is_own { root } else { within }
}

pub(crate) fn run(command: Command) -> Result<(), Failure> {
    let Command::Run(run) = command;
    let dir = run.dir.unwrap_or_else(|| default_dir(std::env::var_os("FALLOW_DIR")));
    let dir = std::path::absolute(&dir).map_err(|error| Failure::file("find", &dir, error))?;
    let link = LinkSettings { heartbeat: run.heartbeat, ..LinkSettings::default() };
    let certificate_life = fallow_domain::Duration::from_secs_f64(run.certificate_life.as_secs_f64());
    let options = Options {
        dir: dir.clone(),
        listen: run.listen,
        advertise: run.advertise,
        certificate_life,
        http: run.http,
        projects_url: run.projects_url,
        projects_behind_proxy: run.projects_behind_proxy,
        allow_plain_http: run.allow_plain_http,
        link,
    };
    // Before anything is made: a refused start leaves nothing behind.
    options.check()?;
    threads::require()?;
    let service = Service {
        name: "fallow-coordinator",
        version: env!("CARGO_PKG_VERSION"),
        instance_id: instance(&dir)?,
    };
    let telemetry = fallow_telemetry::init(&service)
        .map_err(|error| Failure::caused(ExitCode::BadInput, "telemetry cannot be set up", error))?;
    let runtime =
        tokio::runtime::Builder::new_multi_thread().thread_keep_alive(THREADS_STAY).enable_all().build();
    let runtime = runtime.map_err(|error| Failure::internal("the runtime does not start", error))?;
    let served = runtime.block_on(serve(options));
    runtime.shutdown_timeout(Duration::from_secs(1));
    telemetry.shutdown();
    match served? {
        Next::End => Ok(()),
        Next::Anew => Err(begin_anew()),
    }
}

/// What follows when a coordinator has ended.
enum Next {
    End,
    /// It begins again, with what was put into its directory.
    Anew,
}

/// This process begins again, by the same command line. Nothing of its life so far is left in it. Returns
/// only if that fails.
fn begin_anew() -> Failure {
    let mut arguments = std::env::args_os();
    let mut command = std::process::Command::new("/proc/self/exe");
    if let Some(name) = arguments.next() {
        command.arg0(name);
    }
    let error = command.args(arguments).exec();
    Failure::internal(
        "the coordinator has a backup to begin with, and cannot start itself anew: start it",
        error,
    )
}

async fn serve(options: Options) -> Result<Next, Failure> {
    let listen =
        |kind| signal(kind).map_err(|error| Failure::internal("signals cannot be listened to", error));
    let (mut terminate, mut interrupt) = (listen(SignalKind::terminate())?, listen(SignalKind::interrupt())?);
    let mut coordinator = Coordinator::start(options).await?;
    let asked = tokio::select! {
        asked = coordinator.asked_to_stop() => asked,
        _ = terminate.recv() => {
            tracing::info!("SIGTERM: the coordinator stops");
            Ok(())
        }
        _ = interrupt.recv() => {
            tracing::info!("SIGINT: the coordinator stops");
            Ok(())
        }
    };
    let next = if coordinator.restarts() { Next::Anew } else { Next::End };
    let stopped = coordinator.stop().await;
    // Without its directory it cannot end cleanly: that it is gone is what there is to say.
    asked.and(stopped)?;
    Ok(next)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_coordinator_runs_where_tools_with_the_same_fallow_dir_look_for_it() {
        assert_eq!(default_dir(None), PathBuf::from("./fallow-data/coordinator"));
        assert_eq!(default_dir(Some("".into())), PathBuf::from("./fallow-data/coordinator"));
        let dir = tempfile::tempdir().unwrap();
        let root = || Some(dir.path().as_os_str().to_owned());
        assert_eq!(default_dir(root()), dir.path().join("coordinator"));
        std::fs::write(dir.path().join("operator.token"), "").unwrap();
        assert_eq!(default_dir(root()), dir.path());
        std::fs::create_dir(dir.path().join("coordinator")).unwrap();
        assert_eq!(default_dir(root()), dir.path().join("coordinator"));
    }
}
