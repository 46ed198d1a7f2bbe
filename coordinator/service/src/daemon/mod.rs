//! The coordinator as a process: its directory, ports, servers and end.
//!
//! ```text
//! DIR/store/          all records; its lock makes the directory one process's own
//! DIR/projects/NAME/  a project's keys and files
//! DIR/operator.token  what the tools of its owner show (0600)
//! DIR/authority.pem   the fleet's certificate authority; its key beside it in authority.key (0600)
//! DIR/daemon.json     where the running coordinator is found; absent after a clean end
//! DIR/instance        its name in telemetry, the same after a restart
//! ```
//! Ports are chosen at first start and kept: agents and clients know them.

mod accounts;
mod address;
mod authority;
mod descriptors;
mod directory_watch;
mod error;
mod file;
mod found_open;
mod metrics;
mod port;
mod private;
mod projects_url;
mod refusals;
mod serve;

use std::io::Read;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fallow_daemon::clock;
use fallow_domain::Duration;
use fallow_store::{Kind, SledStore, Store, StoreError};
use fallow_tls::{AccessString, Address, Authority, CoordinatorCertificate, Purpose};
use fallow_work_server::ProjectServer;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::backup::{self, Restored, Settled, Source};
use crate::document::Documents;
use crate::fleet::{Fleet, Issuer, LinkSettings};
use crate::operator::TokenFile;
use crate::roles::Operators;

use projects_url::{Served, Wanted};

pub use error::StartError;
pub use file::{Addresses, DaemonFile};
pub use serve::THREADS_STAY;

/// The file with the operator's token.
const TOKEN: &str = "operator.token";

/// How to run a coordinator.
#[derive(Clone, Debug)]
pub struct Options {
    /// Its directory.
    pub dir: PathBuf,
    /// Where it listens for agents and operators; port 0 for the kept or a free one. Without it as it was, or
    /// on this machine alone.
    pub listen: Option<SocketAddr>,
    /// Where agents and operators' tools reach it, if that is not where it listens.
    pub advertise: Vec<Address>,
    /// The life of certificates.
    pub certificate_life: Duration,
    /// Where it serves its projects by HTTP, with TLS on all but loopback addresses; likewise.
    pub http: Option<SocketAddr>,
    /// The URL by which its projects are known, if that is not where it serves them.
    pub projects_url: Option<String>,
    /// Another server stands where that URL leads to: agents accept its certificate where their machines do.
    pub projects_behind_proxy: bool,
    /// Clients of the projects may come without TLS, wherever they are.
    pub allow_plain_http: bool,
    /// The fleet link.
    pub link: LinkSettings,
}

/// How long certificates of hosts and of the coordinator's ports are good. They are renewed when two thirds
/// of it are over.
pub const CERTIFICATE_LIFE: Duration = Duration::from_hours(30 * 24);

impl Options {
    /// The usual ones for a directory: free ports of this machine's own.
    #[must_use]
    pub fn at(dir: impl Into<PathBuf>) -> Self {
        Self {
            dir: dir.into(),
            listen: None,
            advertise: Vec::new(),
            certificate_life: CERTIFICATE_LIFE,
            http: None,
            projects_url: None,
            projects_behind_proxy: false,
            allow_plain_http: false,
            link: LinkSettings::default(),
        }
    }

    /// Refuses addresses that a coordinator cannot serve at. Nothing is touched.
    ///
    /// # Errors
    /// [`StartError`] with the address and why.
    pub fn check(&self) -> Result<(), StartError> {
        address::check(self)
    }
}

/// A running coordinator.
pub struct Coordinator {
    dir: PathBuf,
    grpc: SocketAddr,
    access: AccessString,
    tls: Arc<rustls::ServerConfig>,
    projects_tls: Arc<rustls::ServerConfig>,
    served: Served,
    store: Arc<dyn Store>,
    store_id: Option<(u64, u64)>,
    fleet: Arc<Fleet>,
    documents: Arc<Documents>,
    projects: ProjectServer,
    operators: Arc<Operators>,
    stop: watch::Sender<bool>,
    restarts: Arc<AtomicBool>,
    connection_limits: descriptors::ConnectionLimits,
    descriptors: port::Descriptors,
    servers: JoinSet<()>,
    _metrics: metrics::Registered,
}

impl Coordinator {
    /// Opens the directory and starts to serve.
    ///
    /// # Errors
    /// [`StartError`]; nothing runs then.
    pub async fn start(options: Options) -> Result<Self, StartError> {
        options.check()?;
        let (dir, certificate_life, link) = (options.dir.clone(), options.certificate_life, options.link);
        let opened = tokio::task::spawn_blocking({
            let dir = dir.clone();
            move || -> Result<(Arc<dyn Store>, String, Authority), StartError> {
                require_own(&dir)?;
                let open = found_open::look(&dir);
                private::take(&dir)?;
                private::require_owner(&dir)?;
                go_on_with_a_backup(&dir)?;
                require_store(&dir)?;
                private::close_store(&dir)?;
                let store: Arc<dyn Store> =
                    Arc::new(SledStore::open_as(dir.join("store"), Kind::Coordinator)?);
                private::close_store(&dir)?;
                let secret = TokenFile::secret(&dir.join(TOKEN))?;
                let authority = authority::open_or_create(&dir, &*store)?;
                found_open::tell(&*store, &open);
                Ok((store, secret, authority))
            }
        });
        let (store, secret, authority) = opened.await.map_err(StartError::Died)??;
        let places = address::places(&*store, &options)?;
        let (grpc, http) = address::bind(&*store, &places)?;
        let (grpc_at, http_at) = (address::local(&grpc)?, address::local(&http)?);
        let addresses = authority::addresses(&places.advertise, grpc_at);
        let access = AccessString {
            purpose: Purpose::Operator,
            addresses: addresses.clone(),
            authority: authority.fingerprint(),
            secret,
            organisation: Vec::new(),
        };
        TokenFile::write(&dir.join(TOKEN), &access)?;
        let served = address::projects_url(&*store, options.projects_url.as_deref(), |url| {
            let wanted = Wanted {
                url,
                listens: http_at,
                advertised: &places.advertise,
                plain: options.allow_plain_http,
                behind_proxy: options.projects_behind_proxy,
            };
            projects_url::served(&wanted)
        })?;
        let names = authority::names(&addresses, &[grpc_at, http_at], &served.url);
        let issuer = Arc::new(Issuer { authority, life: certificate_life });
        let shown = CoordinatorCertificate::issue(&issuer.authority, &names, clock::now(), certificate_life);
        let shown = Arc::new(shown.map_err(StartError::Tls)?);
        let tls = fallow_tls::server_config(&issuer.authority, shown.clone()).map_err(StartError::Tls)?;
        let projects_tls = fallow_tls::public_config(shown.clone()).map_err(StartError::Tls)?;
        let documents = Arc::new(Documents::open(store.clone())?);
        let operators = Arc::new(Operators::open(store.clone())?);
        let fleet = Fleet::open(store.clone(), documents.clone(), issuer.clone(), link)?;
        let projects = tokio::task::spawn_blocking({
            let (store, dir) = (store.clone(), dir.join("projects"));
            let url = served.url.clone();
            move || ProjectServer::open(store, &dir, &url)
        });
        let projects = projects.await.map_err(StartError::Died)??;
        if let Some(plain) = &served.plain_url {
            projects.serve_plainly_at(plain);
        }
        fleet.set_projects_url(&served.url, served.behind_proxy);
        // Whatever kept that from being done when they were taken out.
        let (closing, removed) = (projects.clone(), fleet.removed());
        let closed = move || removed.iter().try_for_each(|agent| closing.close_agent(agent));
        tokio::task::spawn_blocking(closed).await.map_err(StartError::Died)??;
        fleet.set_accounts(Arc::new(accounts::ProjectAccounts(projects.clone())));
        accounts::tell_agents(&documents, &projects).await?;
        let registered = metrics::register(&fleet, &documents, &projects);
        let store_id = directory_watch::directory_id(&dir.join("store"))
            .map_err(|source| StartError::Directory { dir: dir.clone(), source })?;
        let stop = watch::Sender::new(false);
        let mut coordinator = Self {
            store_id,
            dir,
            grpc: grpc_at,
            access,
            tls,
            projects_tls,
            served,
            store,
            fleet,
            documents,
            projects,
            operators,
            stop,
            restarts: Arc::default(),
            connection_limits: descriptors::connection_limits(),
            descriptors: port::Descriptors::default(),
            servers: JoinSet::new(),
            _metrics: registered,
        };
        let valid = authority::keep_valid(shown, issuer, names, coordinator.stop.subscribe());
        coordinator.servers.spawn(valid);
        serve::grpc(&mut coordinator, grpc)?;
        serve::http(&mut coordinator, http)?;
        serve::new_jobs(&mut coordinator);
        serve::rollouts(&mut coordinator);
        serve::memory(&mut coordinator);
        DaemonFile::new(Addresses::new(coordinator.grpc, &coordinator.served.url))
            .write(&coordinator.dir)
            .map_err(|source| StartError::Directory { dir: coordinator.dir.clone(), source })?;
        if !grpc_at.ip().is_loopback()
            && http_at.ip().is_loopback()
            && coordinator.served.url.starts_with("http://")
        {
            tracing::warn!(
                projects = %coordinator.http_url(),
                "hosts on other machines can join, and cannot reach the projects: say with --http where these are served, before the \
                 first project is made"
            );
        }
        tracing::info!(
            dir = %coordinator.dir.display(),
            fleet = %coordinator.fleet_url(),
            projects = %coordinator.http_url(),
            agents = coordinator.fleet.enrolled(),
            document = %coordinator.documents.document().version,
            "coordinator runs"
        );
        Ok(coordinator)
    }

    /// Where agents and operators' tools connect to.
    #[must_use]
    pub fn fleet_url(&self) -> String {
        format!("https://{}", self.grpc)
    }

    /// Where the projects are.
    #[must_use]
    pub fn http_url(&self) -> String {
        self.served.url.clone()
    }

    /// What operators' tools reach it by.
    #[must_use]
    pub fn access(&self) -> &AccessString {
        &self.access
    }

    /// Its agents.
    #[must_use]
    pub fn fleet(&self) -> &Arc<Fleet> {
        &self.fleet
    }

    /// Its documents.
    #[must_use]
    pub fn documents(&self) -> &Arc<Documents> {
        &self.documents
    }

    /// Operators with tokens of their own.
    #[must_use]
    pub fn operators(&self) -> &Arc<Operators> {
        &self.operators
    }

    /// Its projects.
    #[must_use]
    pub fn projects(&self) -> &ProjectServer {
        &self.projects
    }

    /// What backups are made of.
    fn source(&self) -> Source {
        Source {
            dir: self.dir.clone(),
            store: self.store.clone(),
            projects: self.projects.clone(),
            authority: self.access.authority.to_string(),
        }
    }

    /// Whether it was asked to begin anew once it has ended: with the backup that waits in its directory.
    #[must_use]
    pub fn restarts(&self) -> bool {
        self.restarts.load(Ordering::Relaxed)
    }

    /// Returns when an operator asks for the end, or a server ends by itself.
    ///
    /// # Errors
    /// [`StartError::Gone`] when the directory was removed or another one took its place: what is
    /// acknowledged from then on would be lost with this process.
    pub async fn asked_to_stop(&mut self) -> Result<(), StartError> {
        let mut stop = self.stop.subscribe();
        let store = self.dir.join("store");
        tokio::select! {
            _ = stop.wait_for(|stop| *stop) => Ok(()),
            _ = self.servers.join_next() => {
                tracing::error!("a server ended by itself; the coordinator stops");
                Ok(())
            }
            () = directory_watch::replaced(&store, self.store_id) => {
                let dir = self.dir.clone();
                tracing::error!(dir = %dir.display(), "the coordinator's directory is gone; it stops");
                Err(StartError::Gone { dir })
            }
        }
    }

    /// Ends cleanly: links are closed with the reason, calls in progress are finished, everything is on the
    /// medium.
    ///
    /// # Errors
    /// When the store cannot be flushed.
    pub async fn stop(mut self) -> Result<(), StartError> {
        self.fleet.stop();
        self.stop.send_replace(true);
        let all = async { while self.servers.join_next().await.is_some() {} };
        if tokio::time::timeout(serve::PATIENCE, all).await.is_err() {
            tracing::warn!("some connections did not end in time and are cut");
            self.servers.shutdown().await;
        }
        let (store, dir) = (self.store.clone(), self.dir.clone());
        // Dropping the projects waits for their background work, which may be at work.
        let flushed = tokio::task::spawn_blocking(move || {
            drop(self);
            store.flush()
        });
        flushed.await.map_err(StartError::Died)??;
        DaemonFile::remove(&dir);
        tracing::info!("coordinator stopped");
        Ok(())
    }
}

/// Unpacks a backup into a coordinator's directory, which is made if there is none. Nothing follows from
/// that before it is said that it is to take the coordinator's place ([`backup::arm`]). Blocks. `by` and
/// `message` are for the audit log.
///
/// # Errors
/// [`StartError`]; nothing waits then.
pub fn unpack(from: impl Read, dir: &Path, by: &str, message: &str) -> Result<Restored, StartError> {
    require_own(dir)?;
    private::take(dir)?;
    let own = authority::fingerprint(dir);
    Ok(backup::unpack(from, dir, own.as_deref(), (by, message), clock::now())?)
}

/// Puts the backup in place that waits, if one does. If it is unusable, and was removed therefore, the
/// coordinator goes on with what it has: hosts and researchers wait for it.
fn go_on_with_a_backup(dir: &Path) -> Result<(), StartError> {
    match settle(dir) {
        Ok(_) => Ok(()),
        Err(error) if dir.join("store/sled").exists() && backup::pending(dir)?.is_none() => {
            let error = fallow_daemon::causes::line(&error);
            tracing::error!(error, "the backup is not put back: the coordinator goes on as it was before");
            Ok(())
        }
        Err(error) => Err(error),
    }
}

/// Puts the backup in place that waits in a coordinator's directory, if one does. No coordinator may be at
/// work there; one that starts there does this itself. Blocks.
///
/// # Errors
/// [`StartError`]. It can be tried again.
pub fn settle(dir: &Path) -> Result<Option<Settled>, StartError> {
    let settled = backup::settle(dir, clock::now(), authority::stored)?;
    if let Some(Settled { lost: Some(why), .. }) = &settled {
        tracing::warn!(
            why,
            "what became of hosts, tokens and operators since the backup is not known any more: who was taken out of the fleet since              then has to be taken out again"
        );
    }
    Ok(settled)
}

/// The name of the coordinator in `dir` for telemetry, made at first start.
///
/// # Errors
/// [`StartError::Directory`]; and one for a directory that is an agent's, which is not touched then.
pub fn instance(dir: &Path) -> Result<String, StartError> {
    require_own(dir)?;
    private::take(dir)?;
    let path = dir.join("instance");
    let fail = |source| StartError::Directory { dir: dir.to_path_buf(), source };
    match std::fs::read(&path) {
        Ok(bytes) => {
            let name = std::str::from_utf8(&bytes).unwrap_or_default().trim();
            let known = ulid::Ulid::from_string(name).map_err(|_| StartError::Instance(path.clone()))?;
            return Ok(known.to_string());
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => return Err(fail(error)),
    }
    let name = ulid::Ulid::new().to_string();
    fallow_daemon::file::write_whole(&path, format!("{name}\n").as_bytes(), 0o644).map_err(fail)?;
    Ok(name)
}

/// Refuses an agent's directory before anything is written there: its store says whose it is; in one from
/// before stores did, what only agents keep.
fn require_own(dir: &Path) -> Result<(), StartError> {
    let store = dir.join("store");
    match Kind::of(&store)? {
        Some(Kind::Coordinator) => return Ok(()),
        Some(found) => {
            return Err(StoreError::OtherKind { dir: store, found, wanted: Kind::Coordinator }.into());
        }
        None => {}
    }
    let evidence = ["identity.json", "control.sock", "slots"].map(|name| dir.join(name));
    match evidence.into_iter().find(|path| path.exists()) {
        Some(evidence) if !dir.join("operator.token").exists() => {
            Err(StartError::OfAgent { dir: dir.to_path_buf(), evidence })
        }
        _ => Ok(()),
    }
}

/// Refuses to begin anew where an earlier run has been: the store is made before the token and the projects,
/// so without it they are what is left of a loss.
fn require_store(dir: &Path) -> Result<(), StartError> {
    let store = dir.join("store");
    let is_empty = |path: &Path| std::fs::read_dir(path).map_or(true, |mut entries| entries.next().is_none());
    let token = dir.join("operator.token");
    let projects = dir.join("projects");
    let evidence = if !is_empty(&projects) { projects } else { token };
    if is_empty(&store.join("sled")) && evidence.exists() {
        return Err(StartError::StoreMissing { dir: dir.to_path_buf(), store, evidence });
    }
    Ok(())
}
