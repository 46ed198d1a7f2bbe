//! What goes over the network to projects: master pages, scheduler RPCs, files in both directions.
//!
//! Many go on at once, to one project or to several: none waits for another (R1.10).
//!
//! Every call is one attempt and ends in one event. Retries, backoff, which URL comes next and how many go at once
//! are the client's decisions. An end that is still on its way when its transfer is given up does not arrive: it could be
//! taken for that of the next attempt.

mod download;
mod encoding;
mod local;
mod pace;
mod redirect;
mod space;
mod trail;
mod unpack;
mod upload;
mod verify;
mod web;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fallow_boinc::master;
use fallow_boinc::scheduler::{ClientVersion, SchedulerReply, SchedulerRequest};
use fallow_client::{Download, Event, FileKey, Traffic, TransferError, TransferErrorKind, Upload};
use fallow_domain::{MasterUrl, ProjectId};
use fallow_telemetry::KeyValue;
use fallow_telemetry::names::{DIRECTION, PROJECT, TRANSFERRED};
use fallow_telemetry::opentelemetry::metrics::Counter;
use reqwest::Url;
use tokio::runtime::Handle;
use tokio::sync::mpsc::Sender;
use tokio::task::AbortHandle;
use tracing::Instrument;

use crate::dir::DataDir;
use crate::engine::Input;
use pace::Kind;
pub use pace::Limits;
use trail::{Found, Trail};
use web::Ask;
pub use web::{USER_AGENT, Web};

/// A reply of at most so many bytes, a hundred jobs or so, is read faster than a thread is begun for it.
const SMALL_REPLY: usize = 256 << 10;

/// Transfers that are under way.
#[derive(Clone)]
pub struct Transfers {
    shared: Arc<Shared>,
}

struct Shared {
    runtime: Handle,
    web: Web,
    dir: DataDir,
    version: ClientVersion,
    events: Sender<Input>,
    running: Mutex<Running>,
    /// Of each project, which hosts send its requests on to which others: said once, and [`TOLD_MAX`] at the most.
    told: Mutex<BTreeMap<ProjectId, BTreeSet<(String, String)>>>,
    moved: Counter<u64>,
}

/// So many moves to other hosts are said of a project. Each has a few hosts; more are no news, and what one has too many of
/// keeps no other's from being said.
const TOLD_MAX: usize = 10;

#[derive(Default)]
struct Running {
    begun: u64,
    /// With the number of the attempt. One that has ended stays until its end has arrived.
    transfers: BTreeMap<What, (u64, AbortHandle)>,
}

/// Which attempt an event is the end of.
#[derive(Debug)]
pub struct Ticket {
    what: What,
    attempt: u64,
    traffic: Vec<Traffic>,
}

impl Ticket {
    /// What was measured on the way.
    pub fn traffic(&mut self) -> Vec<Traffic> {
        std::mem::take(&mut self.traffic)
    }
}

/// What a transfer is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum What {
    Page(ProjectId),
    Rpc(ProjectId),
    File(FileKey),
}

impl What {
    fn project(&self) -> ProjectId {
        match self {
            Self::Page(project) | Self::Rpc(project) => *project,
            Self::File(file) => file.project,
        }
    }
}

impl Transfers {
    /// Nothing under way yet. Events go to `events`; tasks run on the current runtime.
    pub fn new(web: Web, dir: DataDir, version: ClientVersion, events: Sender<Input>) -> Self {
        let moved = TRANSFERRED.u64_counter(&fallow_telemetry::meter("fallow_agent"));
        let shared = Shared {
            runtime: Handle::current(),
            web,
            dir,
            version,
            events,
            running: Mutex::default(),
            told: Mutex::default(),
            moved,
        };
        Self { shared: Arc::new(shared) }
    }

    /// GETs a master page: ends in `MasterPageRead`.
    pub fn fetch_master_page(&self, project: ProjectId, url: MasterUrl) {
        let shared = Arc::clone(&self.shared);
        self.spawn(What::Page(project), move |trail| async move {
            let page = shared.web.read_page(url.as_str(), &trail).await;
            let outcome = page.map(|page| master::scheduler_urls(&page));
            Event::MasterPageRead { project, outcome }
        });
    }

    /// POSTs a request to a scheduler: ends in `SchedulerAnswered`.
    pub fn call_scheduler(&self, project: ProjectId, url: String, request: &SchedulerRequest) {
        let (shared, request) = (Arc::clone(&self.shared), request.write());
        self.spawn(What::Rpc(project), move |trail| async move {
            let outcome = call(&shared.web, &url, request, &trail).await;
            Event::SchedulerAnswered { project, outcome }
        });
    }

    /// One attempt at a download: ends in `DownloadEnded`.
    pub fn download(&self, wanted: Box<Download>) {
        let shared = Arc::clone(&self.shared);
        self.spawn(What::File(wanted.file.clone()), move |trail| async move {
            let outcome = download::download(&shared.web, &shared.dir, &wanted, &trail).await;
            if let Ok(size) = outcome {
                shared.count(&wanted.url, "down", size.0);
            }
            Event::DownloadEnded { file: wanted.file, outcome }
        });
    }

    /// One attempt at an upload: ends in `UploadEnded`.
    pub fn upload(&self, wanted: Box<Upload>) {
        let shared = Arc::clone(&self.shared);
        self.spawn(What::File(wanted.file.clone()), move |trail| async move {
            let outcome = upload::upload(&shared.web, &shared.dir, &wanted, shared.version, &trail).await;
            if outcome.is_ok() {
                shared.count(&wanted.url, "up", wanted.nbytes.0);
            }
            Event::UploadEnded { file: wanted.file, outcome }
        });
    }

    /// Gives up a file's transfer, without an event.
    pub fn cancel(&self, file: &FileKey) {
        self.give_up(&What::File(file.clone()));
    }

    /// Gives up what was asked of a project's scheduler, without an event.
    pub fn cancel_rpc(&self, project: ProjectId) {
        self.give_up(&What::Rpc(project));
    }

    fn give_up(&self, what: &What) {
        if let Some((_, running)) = self.running().transfers.remove(what) {
            running.abort();
        }
    }

    /// Gives up all that goes on with a project, without events.
    pub fn cancel_project(&self, project: ProjectId) {
        self.running().transfers.retain(|what, (_, running)| {
            let same = what.project() == project;
            if same {
                running.abort();
            }
            !same
        });
        // Attached once more, it is looked at anew.
        self.shared.told.lock().unwrap_or_else(PoisonError::into_inner).remove(&project);
    }

    /// True while a page or an answer of a project's scheduler is awaited.
    pub fn is_talking(&self, project: ProjectId) -> bool {
        let running = self.running();
        [What::Page(project), What::Rpc(project)].iter().any(|what| running.transfers.contains_key(what))
    }

    /// Gives up everything, at the end. What had ended before still arrives.
    pub fn cancel_all(&self) {
        self.running().transfers.values().for_each(|(_, running)| running.abort());
    }

    /// An end has arrived. False if that transfer was given up meanwhile: then nobody wants to know of it any more.
    pub fn settle(&self, ticket: &Ticket) -> bool {
        let mut running = self.running();
        let is_wanted =
            running.transfers.get(&ticket.what).is_some_and(|(attempt, _)| *attempt == ticket.attempt);
        if is_wanted {
            running.transfers.remove(&ticket.what);
        }
        is_wanted
    }

    fn spawn<F>(&self, what: What, work: impl FnOnce(Arc<Trail>) -> F)
    where
        F: Future<Output = Event> + Send + 'static,
    {
        let (shared, trail) = (Arc::clone(&self.shared), Arc::new(Trail::default()));
        let mut running = self.running();
        running.begun += 1;
        let attempt = running.begun;
        let mut ticket = Ticket { what: what.clone(), attempt, traffic: Vec::new() };
        let (project, work) = (what.project(), work(Arc::clone(&trail)));
        let task = async move {
            let event = Box::new(work.await);
            let found = trail.take();
            for text in shared.moves_to_tell(project, &found).into_iter().chain(found.remarks) {
                let _ = shared.events.send(Input::Remark { project, text }).await;
            }
            ticket.traffic = found.traffic;
            let _ = shared.events.send(Input::Transferred(ticket, event)).await;
        };
        let handle = self.shared.runtime.spawn(task.in_current_span());
        if let Some((_, other)) = running.transfers.insert(what, (attempt, handle.abort_handle())) {
            other.abort();
        }
    }

    fn running(&self) -> MutexGuard<'_, Running> {
        self.shared.running()
    }
}

impl Shared {
    fn running(&self) -> MutexGuard<'_, Running> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What of a trail has not been said yet about bodies that went to other hosts.
    fn moves_to_tell(&self, project: ProjectId, found: &Found) -> Vec<String> {
        if found.moves.is_empty() {
            return Vec::new();
        }
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let told = told.entry(project).or_default();
        let host = |url: &Url| url.origin().ascii_serialization();
        let is_new = |(from, to): &&(Url, Url)| told.len() < TOLD_MAX && told.insert((host(from), host(to)));
        let new = found.moves.iter().filter(is_new);
        new.map(|(from, to)| {
            let (from, to) = (web::short(from), web::short(to));
            format!("{from} sends requests on to another host: what is meant for it, the account key too, goes to {to}")
        })
        .collect()
    }

    fn count(&self, project: &MasterUrl, direction: &'static str, bytes: u64) {
        self.moved
            .add(bytes, &[KeyValue::new(PROJECT, project.to_string()), KeyValue::new(DIRECTION, direction)]);
    }
}

async fn call(
    web: &Web,
    url: &str,
    request: String,
    trail: &Trail,
) -> Result<Box<SchedulerReply>, TransferError> {
    let content = bytes::Bytes::from(request);
    let ask = Ask { url, kind: Kind::Call, from: 0, may_encode: true, content: Some(&content), trail };
    let answer = web.ask(&ask).await?;
    let body = answer.succeeded()?.whole(web::REPLY_MAX).await?;
    if body.is_empty() {
        return Err(TransferError::new(TransferErrorKind::BadReply, format!("{url}: the answer is empty")));
    }
    match parse(body).await {
        Ok((reply, left_out)) => {
            left_out.into_iter().for_each(|text| trail.remark(text));
            Ok(Box::new(reply))
        }
        Err(why) => Err(TransferError::new(TransferErrorKind::BadReply, format!("{url}: {why}"))),
    }
}

/// Reads a reply; a large one on a thread of its own, so that nobody else waits for it. With it comes what of it is left
/// out, in words.
async fn parse(body: Vec<u8>) -> Result<(SchedulerReply, Option<String>), String> {
    let read = |body: &[u8]| {
        let mut reply = SchedulerReply::parse(body).map_err(|error| error.to_string())?;
        let left_out = fallow_client::cut(&mut reply);
        Ok((reply, left_out))
    };
    if body.len() <= SMALL_REPLY {
        return read(&body);
    }
    let read = tokio::task::spawn_blocking(move || read(&body)).await;
    read.unwrap_or_else(|error| Err(format!("reading the reply was broken off: {error}")))
}
