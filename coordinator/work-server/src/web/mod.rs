//! The HTTP service of all projects, each under `/NAME/`.
//!
//! | path under `/NAME` | what |
//! | --- | --- |
//! | `/` | the master page, which names the scheduler |
//! | `/get_project_config.php`, `/lookup_account.php`, `/create_account.php` | accounts |
//! | `/cgi` | the scheduler RPC |
//! | `/download/FILE` | files for clients, with ranges |
//! | `/file_upload_handler` | files from clients, with resume |
//!
//! Bodies are bounded and clients that stop sending are dropped. What blocks (store, files, RSA) runs on
//! threads for that. A failure of ours is status 503, upon which clients try again later; what is wrong with
//! a request is said in BOINC's own way, with status 200.

mod admission;
mod download;
mod pages;
mod scheduler;
mod upload;

use std::sync::Arc;

use axum::extract::DefaultBodyLimit;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Extension, Router};
use fallow_domain::MasterUrl;
use tokio::sync::Semaphore;
use tracing::error;

use self::admission::Admission;
use super::error::ProjectError;
use super::project::Project;
use super::server::{ProjectServer, Shared, Via};
use crate::connections::ConnectionHandle;
use crate::workunit::Job;

/// Memory for the bodies of scheduler RPCs: for their first so many KiB, this many KiB of all of them
/// together. Who says little needs little, and is kept out by nobody who says more: that comes from another
/// budget, and who finds that one used up comes again.
const BODIES_KIB: [(usize, usize); 3] = [(32, 64 << 10), (1 << 10, 192 << 10), (usize::MAX, 256 << 10)];
/// Memory for reading them; more wait. Nobody who is slow holds any of it.
const READING_MEMORY_KIB: usize = 512 << 10;

/// What handlers share.
#[derive(Clone)]
struct Web {
    server: ProjectServer,
    bodies: Budgets,
    reading_memory: Arc<Semaphore>,
    admission: Arc<Admission>,
}

/// Memory for bodies, by how much of each has come.
#[derive(Clone)]
struct Budgets([Budget; 3]);

#[derive(Clone)]
struct Budget {
    /// Which part of a body it is for: up to here, from where the one before ends.
    to_kib: usize,
    memory: Arc<Semaphore>,
}

impl Budgets {
    fn new() -> Self {
        Self(BODIES_KIB.map(|(to_kib, kib)| Budget { to_kib, memory: Arc::new(Semaphore::new(kib)) }))
    }
}

impl ProjectServer {
    /// The HTTP service of all projects, each under `/NAME/`. Projects made later are served as well.
    pub fn router(&self) -> Router {
        router(self.clone())
    }
}

fn router(server: ProjectServer) -> Router {
    Router::new()
        .route("/{project}/", get(pages::master))
        .route("/{project}/get_project_config.php", get(pages::config))
        .route("/{project}/lookup_account.php", get(pages::lookup_account))
        .route("/{project}/create_account.php", get(pages::create_account))
        .route("/{project}/cgi", post(scheduler::rpc))
        .route("/{project}/download/{file}", get(download::file))
        .route("/{project}/file_upload_handler", post(upload::handle))
        // Each handler has a bound of its own.
        .layer(DefaultBodyLimit::disable())
        .with_state(Web {
            server,
            bodies: Budgets::new(),
            reading_memory: Arc::new(Semaphore::new(READING_MEMORY_KIB)),
            admission: Arc::default(),
        })
}

impl Web {
    fn shared(&self) -> &Arc<Shared> {
        self.server.shared()
    }

    /// A project's URL, as whoever asks reaches it.
    fn url(&self, project: &Project, via: Option<Extension<Via>>) -> MasterUrl {
        self.shared().url_via(project, via.map(|Extension(via)| via).unwrap_or_default())
    }

    fn project(&self, name: &str) -> Result<Arc<Project>, Failure> {
        self.shared().project(name).map_err(|_| Failure::NotFound)
    }
}

/// Why there is no proper answer.
enum Failure {
    /// No such project or file.
    NotFound,
    /// The body is too large.
    TooLarge,
    /// The client stopped sending.
    Timeout,
    /// The connection broke.
    Broken,
    /// The account has as many requests on their way as it may.
    Busy,
    /// Our fault; it is in the log.
    Ours,
}

impl From<ProjectError> for Failure {
    fn from(problem: ProjectError) -> Self {
        error!(error = &problem as &dyn std::error::Error, "a request failed");
        Self::Ours
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let (status, text) = match self {
            Self::NotFound => (StatusCode::NOT_FOUND, "There is nothing here.\n"),
            Self::TooLarge => (StatusCode::PAYLOAD_TOO_LARGE, "The request is too large.\n"),
            Self::Timeout => (StatusCode::REQUEST_TIMEOUT, "The request did not arrive in time.\n"),
            Self::Broken => (StatusCode::BAD_REQUEST, "The request did not arrive whole.\n"),
            Self::Busy => {
                (StatusCode::SERVICE_UNAVAILABLE, "Other requests of this account are on their way.\n")
            }
            Self::Ours => {
                (StatusCode::SERVICE_UNAVAILABLE, "The project cannot answer now. Try again later.\n")
            }
        };
        (status, text).into_response()
    }
}

/// Runs what blocks on a thread for that.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Failure> {
    tokio::task::spawn_blocking(work).await.map_err(|problem| {
        error!(error = &problem as &dyn std::error::Error, "a request's work broke off");
        Failure::Ours
    })
}

/// Connections that an account of a project can keep at once, where there are places enough: as many as one
/// of a user can have requests at the scheduler. With more of them, which wait for these, it comes after all
/// strangers.
const KEPT_CONNECTIONS: usize = admission::OTHER_REQUESTS as usize;

/// Who can keep connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Holder {
    Account(u64),
    /// Of a job from before jobs named an account: nobody knows which of its host's this was, and others have
    /// such jobs too.
    Host(u64),
}

impl Holder {
    /// Of a job.
    fn of(job: &Job) -> Self {
        if job.account == 0 { Self::Host(job.host) } else { Self::Account(job.account) }
    }

    /// Its name among those of all projects.
    fn name(self, project: &str) -> String {
        match self {
            Self::Account(account) => format!("{project}/{account}"),
            Self::Host(host) => format!("{project}/host/{host}"),
        }
    }
}

/// Whoever has shown an account, or a signature for a job that one has, keeps the connection for this
/// request.
fn known(connection: Option<Extension<ConnectionHandle>>, project: &str, holder: Holder) {
    if let Some(Extension(connection)) = connection {
        connection.authenticated_as(&holder.name(project), KEPT_CONNECTIONS);
    }
}

fn xml(body: String) -> Response {
    ([(header::CONTENT_TYPE, "text/xml; charset=utf-8")], body).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r6_10_hosts_whose_jobs_name_no_account_keep_connections_each_for_itself() {
        let job = |account, host| Job { account, host, ..Job::unsent(0) };
        let name = |account, host| Holder::of(&job(account, host)).name("p");
        assert_eq!(name(7, 1), name(7, 2));
        assert_eq!(name(7, 1), Holder::Account(7).name("p"));
        assert_ne!(name(0, 1), name(0, 2));
        assert_ne!(name(0, 7), name(7, 7));
    }
}
