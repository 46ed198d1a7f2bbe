//! All hosted projects together: what the coordinator holds.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, RwLock};
use std::thread::JoinHandle;

use fallow_boinc::signature::PublicKey;
use fallow_daemon::lock;
use fallow_domain::{AccountKey, AgentId, Instant, MasterUrl};
use fallow_store::{KeyRange, Store};

use super::background::{self, Wakeup};
use super::error::ProjectError;
use super::operator_types::{
    CanonicalResult, Counts, JobReport, NewAppVersion, NewJobs, NewWorkunit, Page, ProjectInfo,
    SubmissionPiece, SubmissionStatus, WorkunitView,
};
use super::project::Project;
use super::settings::ProjectSettings;
use super::store_keys::PROJECTS;

/// Tells the time; tests have their own.
pub type Clock = Arc<dyn Fn() -> Instant + Send + Sync>;

/// The projects that this coordinator hosts, their HTTP service and their background work (R6.8).
///
/// A handle: clones share everything. All methods but [`ProjectServer::router`] block (store, files, RSA);
/// call them from `spawn_blocking` in async code. Background work (deadlines, comparisons, files nobody
/// needs) runs on a thread of its own until the last handle is gone.
#[derive(Clone)]
pub struct ProjectServer {
    shared: Arc<Shared>,
    _background: Arc<BackgroundWork>,
}

/// What handles, requests and background work share.
pub(crate) struct Shared {
    store: Arc<dyn Store>,
    dir: PathBuf,
    base_url: String,
    /// What clients that come without TLS reach the router under, where that is another address.
    plain_base: OnceLock<String>,
    clock: Clock,
    projects: RwLock<BTreeMap<String, Arc<Project>>>,
    /// Held while a project is made: two calls with one name must not both make it.
    creating: Mutex<()>,
    /// Read by who needs all files to stay, written by who removes some.
    pub(crate) held: RwLock<()>,
    /// Held by who does the background work: another one would take the files for held that it removes.
    pub(crate) background: Mutex<()>,
    pub(crate) wakeup: Wakeup,
}

/// Ends the background thread with the last handle.
struct BackgroundWork {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for BackgroundWork {
    fn drop(&mut self) {
        self.shared.wakeup.stop();
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has said so already.
            let _ = thread.join();
        }
    }
}

impl ProjectServer {
    /// Opens all projects that were made before. `dir` holds a directory for each; `base_url` is what clients
    /// reach the router under, such as `http://127.0.0.1:8080`.
    ///
    /// # Errors
    /// When the store, a directory or a key cannot be used.
    pub fn open(store: Arc<dyn Store>, dir: &Path, base_url: &str) -> Result<Self, ProjectError> {
        Self::open_with_clock(store, dir, base_url, Arc::new(fallow_daemon::clock::now))
    }

    /// As [`ProjectServer::open`], with another clock.
    ///
    /// # Errors
    /// As there.
    pub fn open_with_clock(
        store: Arc<dyn Store>,
        dir: &Path,
        base_url: &str,
        clock: Clock,
    ) -> Result<Self, ProjectError> {
        let base_url = base_url.trim_end_matches('/').to_owned();
        let mut projects = BTreeMap::new();
        for name in names(&*store)? {
            let project = Project::open(store.clone(), dir, &base_url, &name)?;
            projects.insert(name, Arc::new(project));
        }
        let shared = Arc::new(Shared {
            store,
            dir: dir.to_path_buf(),
            base_url,
            plain_base: OnceLock::new(),
            clock,
            projects: RwLock::new(projects),
            creating: Mutex::new(()),
            held: RwLock::new(()),
            background: Mutex::new(()),
            wakeup: Wakeup::default(),
        });
        let thread = background::spawn(shared.clone())?;
        let background = BackgroundWork { shared: shared.clone(), thread: Some(thread) };
        Ok(Self { shared, _background: Arc::new(background) })
    }

    /// Clients that come without TLS ([`Via::Plain`]) are told addresses under this base, such as
    /// `http://10.0.0.5:8080`, in place of the usual ones. Said once, before anybody is served.
    pub fn serve_plainly_at(&self, base: &str) {
        if self.shared.plain_base.set(base.trim_end_matches('/').to_owned()).is_err() {
            tracing::error!("where clients without TLS are served is said already");
        }
    }

    /// Makes a project of this name, with new keys and an account of its own.
    ///
    /// # Errors
    /// [`ProjectError::ProjectExists`], or an unusable name or setting, or a failure of disk or store.
    pub fn create_project(&self, name: &str, settings: ProjectSettings) -> Result<ProjectInfo, ProjectError> {
        self.create_project_signed_by(name, settings, None)
    }

    /// The same with the public part of a code-signing key that is kept elsewhere: who has this machine can
    /// then not have hosts run other programs (R6.10). Versions of applications come with their signatures.
    ///
    /// # Errors
    /// As [`ProjectServer::create_project`].
    pub fn create_project_signed_by(
        &self,
        name: &str,
        settings: ProjectSettings,
        code_sign_key: Option<&PublicKey>,
    ) -> Result<ProjectInfo, ProjectError> {
        let _alone = lock(&self.shared.creating);
        let Shared { store, dir, base_url, .. } = &*self.shared;
        let now = self.shared.now();
        let project = Project::create(store.clone(), dir, base_url, name, settings, code_sign_key, now)?;
        let info = project.info();
        let mut projects = fallow_daemon::write(&self.shared.projects);
        projects.insert(name.to_owned(), Arc::new(project));
        Ok(info)
    }

    /// All projects, by name.
    pub fn projects(&self) -> Vec<ProjectInfo> {
        self.shared.all().iter().map(|project| project.info()).collect()
    }

    /// Changes settings of a project by their names: all or none. Gives them as they are then; they hold from
    /// the next request on.
    ///
    /// # Errors
    /// [`ProjectError::UnknownProject`], a name or value that means nothing, or a failure of the store.
    pub fn change_settings(
        &self,
        project: &str,
        changes: &[(String, String)],
    ) -> Result<ProjectSettings, ProjectError> {
        self.shared.project(project)?.change_settings(changes)
    }

    /// A project by its name.
    ///
    /// # Errors
    /// [`ProjectError::UnknownProject`].
    pub fn project(&self, name: &str) -> Result<ProjectInfo, ProjectError> {
        Ok(self.shared.project(name)?.info())
    }

    /// The key of an agent's own account in a project. The account is made when it is first asked for; the
    /// key stays the same for ever. Whoever gives it to anybody but that agent lets him pass for it.
    ///
    /// # Errors
    /// [`ProjectError::UnknownProject`], or a failure of the store.
    pub fn agent_key(&self, project: &str, agent: &AgentId) -> Result<AccountKey, ProjectError> {
        self.shared.project(project)?.agent_key(agent, self.shared.now())
    }

    /// The same for an agent whose host is a copy of `first`'s: both are one towards quorums.
    ///
    /// # Errors
    /// As [`ProjectServer::agent_key`].
    pub fn copy_key(
        &self,
        project: &str,
        agent: &AgentId,
        first: &AgentId,
    ) -> Result<AccountKey, ProjectError> {
        self.shared.project(project)?.copy_key(agent, first, self.shared.now())
    }

    /// Takes an agent's accounts away in all projects: it was taken out of the fleet. Blocks.
    ///
    /// # Errors
    /// A failure of the store; accounts of the projects before it are closed then.
    pub fn close_agent(&self, agent: &AgentId) -> Result<(), ProjectError> {
        let now = self.shared.now();
        self.shared.all().iter().try_for_each(|project| project.close_agent(agent, now))
    }

    /// Whether there is a project whose agents may still have the one key of an earlier version: then a new
    /// document is due, and [`ProjectServer::note_agents_told`] after it.
    pub fn has_agents_to_tell(&self) -> bool {
        self.shared.all().iter().any(|project| project.has_agents_to_tell())
    }

    /// A new document was made, with which each agent gets its own keys.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn note_agents_told(&self) -> Result<(), ProjectError> {
        let all = self.shared.all();
        all.iter().filter(|project| project.has_agents_to_tell()).try_for_each(|one| one.note_agents_told())
    }

    /// Which projects have jobs that came to wait for a host since the last call, or of which agents are to
    /// be told now.
    pub fn take_new_jobs(&self) -> Vec<(MasterUrl, NewJobs)> {
        let all = self.shared.all();
        let now = self.shared.now();
        let new = all.iter().map(|project| (project.url.clone(), project.take_new_jobs(now)));
        new.filter(|(_, new)| *new != NewJobs::default()).collect()
    }

    /// Asks all hosts that hold a sticky file of a project to delete it, each with its next request, until
    /// its list no longer has it (R4.11). Gives the number of those hosts.
    ///
    /// # Errors
    /// [`ProjectError::UnknownProject`], or a failure of the store.
    pub fn delete_on_hosts(&self, project: &str, file: &str) -> Result<usize, ProjectError> {
        self.shared.project(project)?.delete_on_hosts(file)
    }

    /// Registers a version of an application: its files are copied, signed and offered for download. Gives
    /// their names there.
    ///
    /// # Errors
    /// [`ProjectError::VersionExists`], [`ProjectError::UnknownProject`], names that are unusable or have no
    /// place in a slot, unreadable files.
    pub fn add_app_version(
        &self,
        project: &str,
        version: &NewAppVersion,
    ) -> Result<Vec<String>, ProjectError> {
        self.shared.project(project)?.add_app_version(version)
    }

    /// Adds workunits, all or none, and gives their names in the same order. At most
    /// [`SUBMIT_MAX`](super::SUBMIT_MAX) at a time.
    ///
    /// # Errors
    /// [`ProjectError::WorkunitExists`], [`ProjectError::UnknownApplication`], or a value that means nothing.
    pub fn submit(&self, project: &str, workunits: Vec<NewWorkunit>) -> Result<Vec<String>, ProjectError> {
        Ok(self.submit_piece(project, SubmissionPiece::whole(workunits))?.names)
    }

    /// Adds the workunits of a piece that are not there yet, all or none. Pieces of a submission come in
    /// order; one that was taken before, whole or in part, is not taken again.
    ///
    /// # Errors
    /// As [`ProjectServer::submit`]; [`ProjectError::KeyTaken`], [`ProjectError::PieceTooEarly`].
    pub fn submit_piece(
        &self,
        project: &str,
        piece: SubmissionPiece,
    ) -> Result<SubmissionStatus, ProjectError> {
        self.shared.project(project)?.submit_piece(piece, self.shared.now())
    }

    /// How many accounts of clients outside the fleet asked a project for work within a day.
    ///
    /// # Errors
    /// [`ProjectError::UnknownProject`].
    pub fn accounts_outside(&self, project: &str) -> Result<usize, ProjectError> {
        let project = self.shared.project(project)?;
        Ok(lock(&project.requesters).outside(self.shared.now()))
    }

    /// A directory for files that are being received for a project. Nothing but this coordinator reads it,
    /// and what is left there is removed at the next start.
    ///
    /// # Errors
    /// [`ProjectError::UnknownProject`].
    pub fn incoming(&self, project: &str) -> Result<PathBuf, ProjectError> {
        Ok(self.shared.project(project)?.layout.incoming())
    }

    /// Workunits and their jobs in order of name, from behind `after`; at most `limit`, or
    /// [`PAGE_MAX`](super::PAGE_MAX) for 0.
    ///
    /// # Errors
    /// [`ProjectError::UnknownProject`], or a failure of the store.
    pub fn list_workunits(
        &self,
        project: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Page<WorkunitView>, ProjectError> {
        self.shared.project(project)?.list_workunits(after, limit, self.shared.now())
    }

    /// All that is known of a job by its name: how it ended, with which exit status, and what it said.
    ///
    /// # Errors
    /// [`ProjectError::UnknownProject`], [`ProjectError::UnknownJob`], or a failure of the store.
    pub fn job(&self, project: &str, job: &str) -> Result<JobReport, ProjectError> {
        self.shared.project(project)?.job(job, self.shared.now())
    }

    /// The chosen outputs of validated workunits in order of name, as in [`ProjectServer::list_workunits`]. A
    /// page holds about 2 MiB of content at most, unless a single workunit has more.
    ///
    /// # Errors
    /// As there, or an output file that cannot be read.
    pub fn list_results(
        &self,
        project: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Page<CanonicalResult>, ProjectError> {
        self.shared.project(project)?.list_results(after, limit)
    }

    /// How many workunits and jobs there are in which state. Costs one read.
    ///
    /// # Errors
    /// [`ProjectError::UnknownProject`], or a failure of the store.
    pub fn counts(&self, project: &str) -> Result<Counts, ProjectError> {
        self.shared.project(project)?.counts()
    }

    /// Does at once what background work would do in its time: passed deadlines, comparisons, deletions.
    ///
    /// # Errors
    /// A failure of the store or of a file.
    pub fn run_background_work(&self) -> Result<(), ProjectError> {
        background::run(&self.shared)
    }

    /// No file that a record speaks of is removed as long as this is held. Blocks until a removal that is
    /// going on is over.
    pub fn hold_files(&self) -> impl Drop + '_ {
        self.shared.held.read().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }
}

/// How a request came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Via {
    /// Under the addresses that projects are known by.
    #[default]
    Public,
    /// Without TLS, where projects are known by addresses with it.
    Plain,
}

impl Shared {
    /// The URL of a project as whoever comes so reaches it: what he is told is to be reached in the same way.
    pub(crate) fn url_via(&self, project: &Project, via: Via) -> MasterUrl {
        let plain = self.plain_base.get().filter(|_| via == Via::Plain);
        let plain = plain.and_then(|base| MasterUrl::parse(&format!("{base}/{}/", project.name)).ok());
        plain.unwrap_or_else(|| project.url.clone())
    }

    pub(crate) fn now(&self) -> Instant {
        (self.clock)()
    }

    pub(crate) fn all(&self) -> Vec<Arc<Project>> {
        fallow_daemon::read(&self.projects).values().cloned().collect()
    }

    pub(crate) fn project(&self, name: &str) -> Result<Arc<Project>, ProjectError> {
        let projects = fallow_daemon::read(&self.projects);
        projects.get(name).cloned().ok_or_else(|| ProjectError::UnknownProject { name: name.to_owned() })
    }
}

/// The names of all projects in the store: jumps from project to project, however much each one holds.
fn names(store: &dyn Store) -> Result<Vec<String>, ProjectError> {
    let mut names = Vec::new();
    let all = KeyRange::prefix(PROJECTS.as_bytes());
    let mut rest = all.clone();
    while let Some((key, _)) = store.scan(&rest, 1)?.into_iter().next() {
        let tail = String::from_utf8_lossy(&key[PROJECTS.len()..]).into_owned();
        let name = tail.split('/').next().unwrap_or_default().to_owned();
        // `/` is the last byte of a project's prefix, so that nothing of it lies behind this.
        rest = all.after(format!("{PROJECTS}{name}/\u{7f}").as_bytes());
        names.push(name);
    }
    Ok(names)
}
