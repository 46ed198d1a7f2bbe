//! The event loop: one task owns the client, takes one input at a time, stores what changed, then acts.
//!
//! Model: everything that happens comes as an [`Input`] over one bounded queue; whoever has something to say
//! waits when the queue is full, but the supervisor of tasks, which keeps what it has to say. For each, the
//! client gives a step; its changes are stored in one atomic batch before any of its actions is carried out,
//! so that a `kill -9` between the two leaves a client that will want the same again. Actions never wait
//! here: processes and transfers go on elsewhere and come back as inputs.

mod attach;
mod benchmark;
mod confinement;
mod deletions;
mod disk;
mod enrolment;
mod full_disk;
mod gpus;
mod layers;
mod life;
mod metrics;
mod parts;
mod pauses;
mod project_dirs;
mod requests;
mod room;
mod run;
mod settings;
mod signals;
mod supervisor;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration as StdDuration;

use fallow_boinc::runtime::exit::Ended;
use fallow_boinc::runtime::message::ProcessControl;
use fallow_boinc::scheduler::SchedulerRequest;
use fallow_client::{Action, Client, Effect, Entity, Event, FileKey, NoticeLevel, RequestedBy};
use fallow_daemon::clock;
use fallow_domain::agent_state::EntryKey;
use fallow_domain::{Instant, JobId, MasterUrl, ProjectId, printable};
use fallow_policy::confinement::HostLayer;
use tokio::sync::{mpsc, oneshot, watch};
use tracing::Instrument;

use crate::confine::Confinement;
use crate::control::notices::Notices;
use crate::control::protocol::{Request, Response};
use crate::control::status::Notice;
use crate::dir::DataDir;
use crate::error::AgentError;
use crate::files::{shown, shown_path};
use crate::fleet::link::Link;
use crate::fleet::{Arrived, Ask, Entries, Followed, entries};
use crate::host::local_time::WallClock;
use crate::host::owner::Sensors;
use crate::host::surroundings::Watcher;
use crate::input::Input;
use crate::records::Records;
use crate::supervise::groups::Groups;
use crate::supervise::{Delivery, Supervisor};
use crate::transfer::Transfers;
use crate::transfer::fleet_projects::FleetProjects;
use attach::Waiters;
use deletions::Deletions;
use disk::DiskLooks;
use full_disk::{Departing, Departure, StoredRests, UnstoredPause};
use gpus::Gpus;
use metrics::Metrics;
use pauses::Pauses;
pub use run::{Finished, Opened, open, run};
pub use settings::{Enrolment, Settings};

/// Inputs that may wait.
const QUEUE: usize = 256;
/// Longest notice, in bytes.
const NOTICE_MAX: usize = 2_000;

/// Somebody at the control socket, who waits for an answer. On a queue of its own, for these are answered
/// also while the engine can take nothing else in.
pub type Asked = (Request, oneshot::Sender<Response>);

struct Engine {
    client: Client,
    records: Records,
    dir: DataDir,
    hostname: String,
    transfers: Transfers,
    /// Where the coordinator's own projects are.
    fleet_projects: FleetProjects,
    supervisor: Supervisor,
    link: Option<Link>,
    metrics: Metrics,
    /// The keys under which the coordinator knows things, also of those that are gone.
    keys: BTreeMap<Entity, EntryKey>,
    notices: Notices,
    wake_at: Option<Instant>,
    /// What the client knows of the clock on the wall.
    wall_clock: WallClock,
    /// What keeps jobs in their slots, and what of it this host lacks.
    confinement: Confinement,
    /// What keeps them in control groups.
    groups: Arc<Groups>,
    /// What the client was told of both.
    told_layers: Option<Vec<HostLayer>>,
    /// What senses whether somebody uses the machine; none before the client is up.
    sensors: Option<Sensors>,
    /// Who looks at batteries and other programs; none before the client is up.
    surroundings: Option<Watcher>,
    /// Projects whose stems are stored.
    known: BTreeSet<ProjectId>,
    /// There is a new project, for which the owner may have put something in its directory.
    is_new_project: bool,
    /// Who waits for what comes of an attachment.
    waiters: Waiters,
    requests: mpsc::Receiver<Asked>,
    /// The request that the present turn is for, and who waits for its answer.
    asking: Option<Asked>,
    /// Nothing was decided on it yet: the client hears the news first.
    is_undecided: bool,
    /// Who is to be told what follows from what was done, and what is said before that.
    wants_line: Option<(String, oneshot::Sender<Response>)>,
    /// A turn has begun something.
    has_acted: bool,
    /// What keeps the store from being written, while it is waited for.
    store_trouble: Option<String>,
    /// What rests all tasks over a restart, too: the client may know more while its last step is not stored.
    stored: StoredRests,
    /// What the owner wants since then: suspended or not. The client is told when it can store it (see
    /// `full_disk`).
    owner_wish: Option<bool>,
    /// Tasks are stopped for such a wish.
    holds_tasks: bool,
    /// A pause that somebody wants since then, likewise.
    pause_wish: Option<UnstoredPause>,
    /// Who has paused computing, where that was in this life of the agent.
    snoozed_by: Option<String>,
    /// Who has paused it until when, likewise.
    pauses: Pauses,
    /// The project that the present turn detaches.
    departure: Option<Departure>,
    /// Projects to be detached when it can be stored.
    departing: VecDeque<Departing>,
    /// Which deletions the store knows of.
    deletions: Deletions,
    /// Who looks at the disk.
    disk: DiskLooks,
    /// Who looks at GPUs.
    gpus: Gpus,
    /// The speed of the CPUs is to be measured after the present turn.
    measures_speed: bool,
    /// That is to end, if it goes on.
    gives_up_measuring: bool,
    stopping: bool,
    /// Somebody at the control socket asked for the end.
    stop_asked: bool,
    /// The agent is another host from now on, and is to start anew.
    separated: bool,
    /// Signals that asked for the end so far.
    signals: watch::Receiver<u32>,
}

impl Engine {
    async fn take(&mut self, input: Input) -> Result<(), AgentError> {
        match input {
            Input::Event(event) => self.turn(*event, None).await,
            Input::FilesMoved => self.files_moved().await,
            Input::Transferred(ticket, _) if !self.transfers.settle(&ticket) => Ok(()),
            Input::Transferred(mut ticket, event) => {
                self.files_moved().await?;
                let traffic = ticket.traffic();
                if !traffic.is_empty() {
                    self.turn(Event::TrafficMeasured(traffic), None).await?;
                }
                let is_large = is_large(&event);
                self.turn(*event, None).await?;
                if is_large {
                    tokio::task::block_in_place(fallow_daemon::give_back_memory);
                }
                Ok(())
            }
            Input::Remark { project, text } => {
                self.notice(NoticeLevel::Warn, Some(project), &text);
                Ok(())
            }
            Input::DiskFound(found) => self.disk_found(found).await,
            Input::Arrived(arrived) => self.arrived(arrived).await,
            Input::Ask(ask) => {
                self.answer(ask);
                Ok(())
            }
        }
    }

    /// Tells the client what files came to since it was told last.
    async fn files_moved(&mut self) -> Result<(), AgentError> {
        let (up, down) = self.transfers.take_moved();
        match up.0 + down.0 {
            0 => Ok(()),
            _ => self.turn(Event::FilesMoved { up, down }, None).await,
        }
    }

    /// One turn of the client. `trace` is the context of a change that the coordinator is to hear of at once.
    async fn turn(&mut self, event: Event, trace: Option<String>) -> Result<(), AgentError> {
        self.tell_news().await?;
        self.turn_only(event, trace).await
    }

    /// What the client hears before all else: the hour, and what is free on the volume.
    async fn tell_news(&mut self) -> Result<(), AgentError> {
        if let Some(local) = self.wall_clock.due(clock::now()) {
            self.tell(Event::LocalTime(local), None).await?;
        }
        if let Some(free) = self.disk.news(self.dir.path()) {
            self.tell(Event::VolumeSeen { free }, None).await?;
        }
        Ok(())
    }

    /// What the client hears before what somebody wants: all that a turn tells it first.
    async fn tell_all_news(&mut self) -> Result<(), AgentError> {
        self.tell_news().await?;
        if self.client.lacks_layers() {
            self.look_for_lost_layers();
            self.tell_layers().await?;
        }
        Ok(())
    }

    /// A turn of the client that has heard the news.
    async fn turn_only(&mut self, event: Event, trace: Option<String>) -> Result<(), AgentError> {
        let of_owner = matches!(event, Event::OwnerInput { .. } | Event::OwnerUnseen(_));
        let tries = matches!(event, Event::TaskStarted { .. } | Event::TaskStartFailed { .. });
        let rests = self.client.lacks_layers();
        if rests {
            self.look_for_lost_layers();
        }
        if tries || rests {
            self.tell_layers().await?;
        }
        self.tell(event, trace).await?;
        if of_owner && self.supervisor.freezer().has_fired() {
            self.tell(Event::TasksFrozen, None).await?;
        }
        if std::mem::take(&mut self.is_new_project) {
            let found = crate::preferences::read_app_configs(&self.dir, &self.client);
            self.tell(Event::NewAppConfigsRead(found), None).await?;
        }
        Ok(())
    }

    async fn tell(&mut self, event: Event, trace: Option<String>) -> Result<(), AgentError> {
        let urgent = trace.is_some();
        let leaves = self.leaves(&event);
        let step = self.client.handle(clock::now(), event);
        let freezes = |action: &Action| matches!(action.effect, Effect::FreezeTasks);
        if !self.stopping && step.actions.iter().any(freezes) {
            // Somebody wants the machine. That is promised to nobody, and a later life of the agent has other
            // processes.
            self.supervisor.freeze();
        }
        // Before a task is started by it.
        self.supervisor.allow(self.client.task_limits());
        self.store(&step).await?;
        self.stored = StoredRests::of(&self.client);
        self.wake_at = step.wake_at;
        for entity in step.touched {
            self.touch(entity, urgent, trace.clone());
        }
        for Action { effect, reason } in step.actions {
            let is_notice = matches!(effect, Effect::Notice { .. });
            let is_said = is_notice || matches!(effect, Effect::TellVerdict { .. });
            if self.stopping && (!is_said || leaves) {
                // What the client wants now it will want again after the next start.
                continue;
            }
            if !is_notice {
                let (why, what) =
                    (printable::line(&reason.why.to_string(), NOTICE_MAX), self.describe(&effect));
                tracing::debug!(rule = reason.rule.id(), why, "{}", printable::line(&what, NOTICE_MAX));
            }
            self.has_acted |= !is_said;
            self.dispatch(effect);
        }
        if !self.stopping {
            self.hold_tasks();
            self.deletions.tried();
        }
        self.metrics.update(&self.client);
        self.attend();
        Ok(())
    }

    /// Sees to it that the sensors know what is at stake.
    fn attend(&self) {
        self.supervisor.freezer().arm(self.client.is_armed());
        self.supervisor.want(self.client.is_wanted_by_people());
        if let Some(sensors) = &self.sensors {
            sensors.attend(self.client.attention());
        }
        self.supervisor.look_at_swap(self.client.counts_swap());
        let (up, down) = self.client.rates_max();
        self.transfers.limit(up, down);
        self.transfers.tell_after(self.client.transfers_left());
        if let Some(surroundings) = &self.surroundings {
            surroundings.attend(self.client.looks_for());
        }
    }

    /// Whether a task has left because the agent ends; says what becomes of it.
    fn leaves(&self, event: &Event) -> bool {
        let Event::TaskEnded { job, end } = event else { return false };
        if !self.stopping || !matches!(end.exit, Ended::Signal { .. }) {
            return false;
        }
        if let Some(task) = self.client.task_view(*job) {
            tracing::info!(
                "{} has left; after the next start it goes on from its last checkpoint, at {} of CPU time",
                shown(&task.name),
                task.checkpoint_cpu_time
            );
        }
        true
    }

    fn touch(&mut self, entity: Entity, urgent: bool, trace: Option<String>) {
        let Some(link) = &self.link else { return };
        let key = match entries::key(&self.client, entity) {
            Some(key) => {
                self.keys.insert(entity, key.clone());
                Some(key)
            }
            // It is gone; the coordinator knows it by its old key, if at all.
            None => self.keys.remove(&entity),
        };
        if let Some(key) = key {
            link.touch(key, entity, urgent && entity == Entity::Host, trace);
        }
    }

    fn answer(&mut self, ask: Ask) {
        match ask {
            Ask::Entries(keys, reply) => {
                let mut found = Entries::default();
                let name = self.dir.called();
                for (key, entity) in keys {
                    match entries::entry(&self.client, &self.hostname, &name, entity) {
                        Some(entry) => found.entries.push(entry),
                        None => found.removed.push(key),
                    }
                }
                let _ = reply.send(found);
            }
            Ask::Keys(reply) => {
                let key = |entity| Some((entries::key(&self.client, entity)?, entity));
                let keys: Vec<_> = self.client.entities().into_iter().filter_map(key).collect();
                self.keys.extend(keys.iter().map(|(key, entity)| (*entity, key.clone())));
                let _ = reply.send(keys);
            }
            Ask::Version(reply) => {
                let view = self.client.host_view();
                let _ = reply.send((view.document_version.0, view.document_content));
            }
        }
    }

    async fn arrived(&mut self, arrived: Arrived) -> Result<(), AgentError> {
        match arrived {
            Arrived::ProjectsAt { url, behind_proxy, authority } => {
                self.fleet_projects.note(&url, behind_proxy, authority);
                Ok(())
            }
            Arrived::Separated => {
                self.separated = true;
                Ok(())
            }
            Arrived::Acknowledged(Followed { version, taken_at }) => {
                self.turn(Event::DocumentAcknowledged { version, taken_at }, None).await
            }
            Arrived::Contact(url) => {
                self.turn(Event::ContactRequested { url, by: RequestedBy::Fleet }, None).await
            }
            Arrived::Document { version, outcome, traceparent } => {
                let span = tracing::info_span!("apply fleet document", %version);
                fallow_telemetry::propagation::set_parent(&span, &traceparent);
                // Empty where nothing is traced: urgent all the same.
                let trace = fallow_telemetry::propagation::traceparent_of(&span).unwrap_or_default();
                let event = match outcome {
                    Ok(document) => Event::DocumentOffered(document),
                    Err(reason) => Event::DocumentUnreadable { version, reason },
                };
                self.turn(event, Some(trace)).instrument(span).await
            }
        }
    }

    fn dispatch(&mut self, effect: Effect) {
        match effect {
            Effect::FetchMasterPage { project, url } => self.transfers.fetch_master_page(project, url),
            Effect::CallScheduler { project, url, mut request } => {
                self.client.list_jobs(project, &mut request);
                self.read_trickles(project, &mut request);
                self.transfers.call_scheduler(project, url, &request);
            }
            Effect::GiveUpRpc { project } => self.transfers.cancel_rpc(project),
            Effect::Download(wanted) => self.transfers.download(wanted),
            Effect::Upload(wanted) => self.transfers.upload(wanted),
            Effect::CancelTransfer { file } => self.transfers.cancel(&file),
            Effect::StartTask(setup) => self.supervisor.start_task(setup),
            // Done before the step was stored.
            Effect::FreezeTasks => {}
            Effect::SuspendTask { job } => self.supervisor.tell(job, ProcessControl::Suspend),
            Effect::ResumeTask { job } => self.supervisor.tell(job, ProcessControl::Resume),
            Effect::QuitTask { job } => self.supervisor.tell(job, ProcessControl::Quit),
            Effect::AbortTask { job } => self.supervisor.tell(job, ProcessControl::Abort),
            Effect::KillTask { job } => self.supervisor.kill(job),
            Effect::DeliverTrickle { job, slot, name, text } => {
                self.supervisor.deliver(job, slot, Delivery::Trickle { name, text });
            }
            Effect::TellUpload { job, slot, open_name, status } => {
                self.supervisor.deliver(job, slot, Delivery::UploadStatus { open_name, status });
            }
            Effect::CleanSlot { slot } => self.supervisor.clean(slot),
            Effect::DeleteFile { file, url } => self.delete_file(&file, &url),
            Effect::DeleteProject { project, url } => self.delete_project(project, &url),
            Effect::MeasureDisk => self.measure_disk(),
            Effect::MeasureSpeed => self.measures_speed = true,
            Effect::GiveUpMeasuring => self.gives_up_measuring = true,
            Effect::WatchDevices(every) => self.gpus.watch(every.map(StdDuration::from)),
            Effect::LinkAnew => {
                if let Some(link) = &self.link {
                    link.begin_anew();
                }
            }
            Effect::TellVerdict { waiter, url, verdict } => self.tell_verdict(waiter, &url, &verdict),
            Effect::Notice { level, project, text } => self.notice(level, project, &text),
        }
    }

    /// Puts the text of messages into a request. One whose file is gone is not told, nor one that has grown
    /// since it was taken in: what a request holds is reckoned by what they were.
    fn read_trickles(&self, project: ProjectId, request: &mut SchedulerRequest) {
        let Some(url) = self.client.project_view(project).map(|view| view.url) else { return };
        request.trickles.retain_mut(|trickle| {
            let secs = trickle.time.as_secs_f64() as i64;
            let name = fallow_boinc::runtime::files::trickle_up(&trickle.result_name, secs);
            let path = self.dir.project(&url).join(&name);
            let max = self.client.trickle_size(&FileKey { project, name }).unwrap_or_default();
            let text = crate::files::whole(&path, max.0);
            text.map(|text| trickle.text = String::from_utf8_lossy(&text).into_owned()).is_ok()
        });
    }

    fn delete_file(&self, file: &FileKey, url: &MasterUrl) {
        self.transfers.cancel(file);
        if !fallow_boinc::names::is_file_name(&file.name) {
            return;
        }
        let partial = self.dir.partial(url);
        let parts = [file.name.clone(), format!("{}.gzt", file.name), crate::dir::packed_name(&file.name)];
        let parts = parts.map(|name| partial.join(name));
        for path in parts.into_iter().chain([self.dir.project(url).join(&file.name)]) {
            // Whatever lies there by now, and whoever goes on filling it.
            if let Err(error) = tokio::task::block_in_place(|| self.dir.trash().take(&path)) {
                tracing::warn!(path = shown_path(&path), %error, "cannot delete a file");
            }
        }
    }

    fn delete_project(&mut self, project: ProjectId, url: &MasterUrl) {
        self.transfers.cancel_project(project);
        let (path, stem) = (self.dir.project(url), self.dir.project_name(url));
        if let Err(error) = tokio::task::block_in_place(|| self.dir.trash().take(&path)) {
            tracing::warn!(path = %path.display(), %error, "cannot delete a project's directory");
            return;
        }
        tokio::task::block_in_place(fallow_daemon::give_back_memory);
        if let Err(error) = tokio::task::block_in_place(|| self.records.forget_stem(&stem)) {
            // It is looked for again at the next start, and not found.
            tracing::debug!(%error, "cannot store that a project's directory is deleted");
        }
    }

    fn notice(&mut self, level: NoticeLevel, project: Option<ProjectId>, text: &str) {
        let url = project.and_then(|id| self.client.project_view(id)).map(|view| view.url.to_string());
        // What a project or a job says must not forge other lines of the log, nor order a terminal about.
        let text = printable::joined(text, NOTICE_MAX);
        let about = url.as_deref().unwrap_or_default();
        let level = match level {
            NoticeLevel::Info => {
                tracing::info!(project = about, "{text}");
                "info"
            }
            NoticeLevel::Warn => {
                tracing::warn!(project = about, "{text}");
                "warn"
            }
            NoticeLevel::Error => {
                tracing::error!(project = about, "{text}");
                "error"
            }
        };
        let time = clock::now().as_secs_f64();
        self.notices.add(Notice { time, level: level.to_owned(), project_url: url, text });
    }

    /// An effect in words, for the log.
    fn describe(&self, effect: &Effect) -> String {
        let task =
            |job: &JobId| self.client.task_view(*job).map_or_else(|| format!("job {job}"), |view| view.name);
        match effect {
            Effect::FetchMasterPage { url, .. } => format!("fetching the master page {url}"),
            Effect::CallScheduler { url, .. } => format!("calling the scheduler {url}"),
            Effect::GiveUpRpc { project } => {
                let view = self.client.project_view(*project);
                let whose = view.map_or_else(|| format!("project {project}"), |view| view.url.to_string());
                format!("giving up the call of the scheduler of {whose}")
            }
            Effect::Download(wanted) => format!("downloading {}", wanted.file.name),
            Effect::Upload(wanted) => format!("uploading {}", wanted.file.name),
            Effect::CancelTransfer { file } => format!("giving up the transfer of {}", file.name),
            Effect::StartTask(setup) => format!("starting task {} in slot {}", setup.name, setup.slot),
            Effect::FreezeTasks => "stopping all tasks at once".to_owned(),
            Effect::SuspendTask { job } => format!("suspending task {}", task(job)),
            Effect::ResumeTask { job } => format!("resuming task {} in memory", task(job)),
            Effect::QuitTask { job } => format!("taking task {} out of memory", task(job)),
            Effect::AbortTask { job } => format!("aborting task {}", task(job)),
            Effect::KillTask { job } => format!("killing task {}", task(job)),
            Effect::DeliverTrickle { job, .. } => format!("delivering a message to task {}", task(job)),
            Effect::TellUpload { job, open_name, status, .. } => {
                format!("telling task {} that the upload of {open_name} ended with {status}", task(job))
            }
            Effect::CleanSlot { slot } => format!("emptying slot {slot}"),
            Effect::DeleteFile { file, .. } => format!("deleting {}", file.name),
            Effect::DeleteProject { url, .. } => format!("deleting the files of {url}"),
            Effect::LinkAnew => "beginning the link to the coordinator anew".to_owned(),
            Effect::WatchDevices(Some(every)) => format!("looking every {every} who uses devices"),
            Effect::WatchDevices(None) => "looking no more who uses devices".to_owned(),
            Effect::MeasureDisk => "measuring the disk".to_owned(),
            Effect::MeasureSpeed => "measuring the speed of the CPUs".to_owned(),
            Effect::GiveUpMeasuring => "giving up to measure the speed of the CPUs".to_owned(),
            Effect::TellVerdict { url, verdict, .. } => {
                let is = if verdict.is_ok() { "is" } else { "is not" };
                format!("telling who wants {url} that it {is} attached")
            }
            Effect::Notice { .. } => "notice".to_owned(),
        }
    }

    /// How long until the client wants to be woken. Bounded both ways: a clock that jumps must not make the
    /// agent sleep for years, nor a wake-up in the past make it spin.
    fn nap(&self, is_told_of_jumps: bool) -> StdDuration {
        const SHORTEST: StdDuration = StdDuration::from_millis(10);
        let longest = StdDuration::from_secs(if is_told_of_jumps { 1800 } else { 60 });
        let now = clock::now();
        let until = self.wake_at.unwrap_or(Instant::FAR_FUTURE).min(self.wall_clock.until().max(now));
        let look = self.lost_layers_due_in().filter(|_| self.client.lacks_layers());
        StdDuration::from(until - now).min(look.unwrap_or(longest)).clamp(SHORTEST, longest)
    }
}

/// Whether an event is a reply so large that the memory it took is worth being given back.
fn is_large(event: &Event) -> bool {
    const LARGE: usize = 1_000;
    let Event::SchedulerAnswered { outcome: Ok(reply), .. } = event else { return false };
    reply.files.len() + reply.results.len() + reply.app_versions.len() + reply.result_acks.len() > LARGE
}

/// The link's way to the engine.
struct ToEngine(mpsc::Sender<Input>);

impl crate::fleet::link::Engine for ToEngine {
    async fn ask(&self, ask: Ask) {
        let _ = self.0.send(Input::Ask(ask)).await;
    }
    async fn arrived(&self, arrived: Arrived) {
        let _ = self.0.send(Input::Arrived(arrived)).await;
    }
}
