//! What goes over the network to projects: master pages, scheduler RPCs, files in both directions.
//!
//! Many go on at once, to one project or to several: none waits for another (R1.10).
//!
//! Every call is one attempt and ends in one event. Retries, backoff, which URL comes next and how many go at
//! once are the client's decisions. An end that is still on its way when its transfer is given up does not
//! arrive: it could be taken for that of the next attempt.

mod download;
mod encoding;
pub mod fleet_projects;
mod local;
mod moved;
mod notes;
mod pace;
mod rate;
mod redirect;
mod unpack;
mod upload;
mod verify;
mod volume;
mod web;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};

use fallow_boinc::master;
use fallow_boinc::scheduler::{ClientVersion, SchedulerReply, SchedulerRequest};
use fallow_client::{Download, Event, FileKey, TransferError, TransferErrorKind, Upload};
use fallow_domain::{Bytes, MasterUrl, ProjectId};
use fallow_telemetry::KeyValue;
use fallow_telemetry::names::{DIRECTION, PROJECT, TRANSFERRED};
use fallow_telemetry::opentelemetry::metrics::Counter;
use reqwest::Url;
use tokio::runtime::Handle;
use tokio::sync::mpsc::Sender;
use tokio::task::AbortHandle;
use tracing::Instrument;

use crate::dir::DataDir;
use crate::input::Input;
use crate::ticket::{Ticket, Transfer};
use notes::{TransferLog, TransferNotes};
use pace::Kind;
pub use pace::Limits;
use web::HttpRequest;
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
    /// Of each project, which hosts redirect its requests to which others: reported once, and [`TOLD_MAX`] at
    /// the most.
    told: Mutex<BTreeMap<ProjectId, BTreeSet<(String, String)>>>,
    moved: Counter<u64>,
}

/// Redirects to other hosts that are reported for one project at most: each has a few hosts, and one project
/// must not crowd out what is said of others.
const TOLD_MAX: usize = 10;

#[derive(Default)]
struct Running {
    begun: u64,
    /// With the number of the attempt. One that has ended stays until its end has arrived.
    transfers: BTreeMap<Transfer, (u64, AbortHandle)>,
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
        let transfers = Self { shared: Arc::new(shared) };
        transfers.shared.runtime.spawn(transfers.clone().tell_of_much());
        transfers
    }

    /// Says when files came to much since that was asked last.
    async fn tell_of_much(self) {
        loop {
            self.shared.web.rates().moved.much().await;
            if self.shared.events.send(Input::FilesMoved).await.is_err() {
                return;
            }
        }
    }

    /// What files came to since that was asked last: what was sent, and what was fetched.
    pub fn take_moved(&self) -> (Bytes, Bytes) {
        self.shared.web.rates().moved.take()
    }

    /// What all pages, calls and files came to so far, both ways, with the heads of HTTP.
    pub fn crossed(&self) -> Bytes {
        self.shared.web.rates().moved.crossed()
    }

    /// From now on it is said when files come to so much, and whenever they come to much.
    pub fn tell_after(&self, left: Option<Bytes>) {
        self.shared.web.rates().moved.tell_after(left);
    }

    /// GETs a master page: ends in `MasterPageRead`.
    pub fn fetch_master_page(&self, project: ProjectId, url: MasterUrl) {
        let shared = Arc::clone(&self.shared);
        self.spawn(Transfer::Page(project), move |log| async move {
            let page = shared.web.read_page(url.as_str(), &log).await;
            let outcome = page.map(|page| master::scheduler_urls(&page));
            Event::MasterPageRead { project, outcome }
        });
    }

    /// POSTs a request to a scheduler: ends in `SchedulerAnswered`.
    pub fn call_scheduler(&self, project: ProjectId, url: String, request: &SchedulerRequest) {
        let (shared, request) = (Arc::clone(&self.shared), request.write());
        self.spawn(Transfer::Rpc(project), move |log| async move {
            let outcome = call(&shared.web, &url, request, &log).await;
            Event::SchedulerAnswered { project, outcome }
        });
    }

    /// One attempt at a download: ends in `DownloadEnded`.
    pub fn download(&self, wanted: Box<Download>) {
        let shared = Arc::clone(&self.shared);
        self.spawn(Transfer::File(wanted.file.clone()), move |log| async move {
            let outcome = download::download(&shared.web, &shared.dir, &wanted, &log).await;
            if let Ok(size) = outcome {
                shared.count(&wanted.url, "down", size.0);
            }
            Event::DownloadEnded { file: wanted.file, outcome }
        });
    }

    /// One attempt at an upload: ends in `UploadEnded`.
    pub fn upload(&self, wanted: Box<Upload>) {
        let shared = Arc::clone(&self.shared);
        self.spawn(Transfer::File(wanted.file.clone()), move |log| async move {
            let outcome = upload::upload(&shared.web, &shared.dir, &wanted, shared.version, &log).await;
            if outcome.is_ok() {
                shared.count(&wanted.url, "up", wanted.nbytes.0);
            }
            Event::UploadEnded { file: wanted.file, outcome }
        });
    }

    /// From now on files are moved at most so fast, in bytes a second each way.
    pub fn limit(&self, up: Option<Bytes>, down: Option<Bytes>) {
        let rates = self.shared.web.rates();
        rates.up.limit(up);
        rates.down.limit(down);
    }

    /// Gives up a file's transfer, without an event.
    pub fn cancel(&self, file: &FileKey) {
        self.give_up(&Transfer::File(file.clone()));
    }

    /// Gives up what was asked of a project's scheduler, without an event.
    pub fn cancel_rpc(&self, project: ProjectId) {
        self.give_up(&Transfer::Rpc(project));
    }

    fn give_up(&self, transfer: &Transfer) {
        if let Some((_, running)) = self.running().transfers.remove(transfer) {
            running.abort();
        }
    }

    /// Gives up all that goes on with a project, without events.
    pub fn cancel_project(&self, project: ProjectId) {
        self.running().transfers.retain(|transfer, (_, running)| {
            let same = transfer.project() == project;
            if same {
                running.abort();
            }
            !same
        });
        // Attached once more, it is looked at anew.
        fallow_daemon::lock(&self.shared.told).remove(&project);
    }

    /// Gives up everything, at the end. What had ended before still arrives.
    pub fn cancel_all(&self) {
        self.running().transfers.values().for_each(|(_, running)| running.abort());
    }

    /// An end has arrived. False if that transfer was given up meanwhile: then nobody wants to know of it any
    /// more.
    pub fn settle(&self, ticket: &Ticket) -> bool {
        let mut running = self.running();
        let current = running.transfers.get(ticket.transfer());
        let is_wanted = current.is_some_and(|(attempt, _)| ticket.is_of(*attempt));
        if is_wanted {
            running.transfers.remove(ticket.transfer());
        }
        is_wanted
    }

    fn spawn<F>(&self, transfer: Transfer, work: impl FnOnce(Arc<TransferLog>) -> F)
    where
        F: Future<Output = Event> + Send + 'static,
    {
        let (shared, log) = (Arc::clone(&self.shared), Arc::new(TransferLog::default()));
        let mut running = self.running();
        running.begun += 1;
        let attempt = running.begun;
        let ticket = Ticket::new(transfer.clone(), attempt);
        let (project, work) = (transfer.project(), work(Arc::clone(&log)));
        let task = async move {
            let event = Box::new(work.await);
            let notes = log.take();
            for text in shared.moves_to_tell(project, &notes).into_iter().chain(notes.remarks) {
                let _ = shared.events.send(Input::Remark { project, text }).await;
            }
            let ticket = ticket.measured(notes.traffic);
            let _ = shared.events.send(Input::Transferred(ticket, event)).await;
        };
        let handle = self.shared.runtime.spawn(task.in_current_span());
        if let Some((_, other)) = running.transfers.insert(transfer, (attempt, handle.abort_handle())) {
            other.abort();
        }
    }

    fn running(&self) -> MutexGuard<'_, Running> {
        self.shared.running()
    }
}

impl Shared {
    fn running(&self) -> MutexGuard<'_, Running> {
        fallow_daemon::lock(&self.running)
    }

    /// What has not been told yet of bodies that went to other hosts.
    fn moves_to_tell(&self, project: ProjectId, notes: &TransferNotes) -> Vec<String> {
        if notes.moves.is_empty() {
            return Vec::new();
        }
        let mut told = fallow_daemon::lock(&self.told);
        let told = told.entry(project).or_default();
        let host = |url: &Url| url.origin().ascii_serialization();
        let is_new = |(from, to): &&(Url, Url)| told.len() < TOLD_MAX && told.insert((host(from), host(to)));
        let new = notes.moves.iter().filter(is_new);
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
    log: &TransferLog,
) -> Result<Box<SchedulerReply>, TransferError> {
    let content = bytes::Bytes::from(request);
    let request =
        HttpRequest { url, kind: Kind::Call, from: 0, may_encode: true, content: Some(&content), log };
    let answer = web.send(&request).await?;
    let body = answer.succeeded()?.whole(web::REPLY_MAX).await?;
    if body.is_empty() {
        return Err(TransferError::new(TransferErrorKind::BadReply, format!("{url}: the answer is empty")));
    }
    match parse(body).await {
        Ok((reply, left_out)) => {
            left_out.into_iter().for_each(|text| log.remark(text));
            Ok(Box::new(reply))
        }
        Err(why) => Err(TransferError::new(TransferErrorKind::BadReply, format!("{url}: {why}"))),
    }
}

/// Reads a reply; a large one on a thread of its own, so that nobody else waits for it. With it comes what of
/// it is left out, in words.
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
