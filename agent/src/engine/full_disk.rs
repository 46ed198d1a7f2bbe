//! Storing a step, and what goes on while the disk is too full for it.
//!
//! Model: nothing may be done that is not stored (R4.12), so the engine waits, with everything held as it is:
//! tasks go on computing, events queue up. The owner is answered all the same. His suspension is carried out
//! at once, around the client, because it can do no harm; the client is told, and it is stored, when there is
//! space. So is a pause, which ends by itself.
//!
//! That wish is kept here and is no state of the client: the client's last step is not stored yet, and
//! another one must not be taken before it is. Only a suspension is carried out ahead of that. It is taken
//! back here as long as the client has not heard of it; a suspension that the client knows of ends when that
//! can be stored.
//!
//! A project that he detaches may be what fills the disk, and has to go although its going cannot be stored.
//! So first what the project can give again is deleted: its downloads, whole and in part. That needs no
//! storing, for a file that is gone is fetched again after a restart. With the space the detachment is
//! stored, and then the rest is carried out.
//!
//! Tasks that hold more than they may are killed and their slots emptied, see `room`. If there is no space
//! for a minute, so is the largest one of the project whose tasks hold most, and another one a minute later.
//! Before that files go that no job needs, some between two tries, in the order in which the client would
//! give them up, and whoever asks is answered between them. Where tasks have taken what was freed so, they do
//! not wait until all such files are gone.
//!
//! If nobody makes space, parts of downloads go too, for the agent would stand still beside them, and no
//! download would come to an end. Those that were written to a moment ago stay.
//!
//! Left out: the coordinator, which hears nothing meanwhile.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use fallow_boinc::runtime::message::ProcessControl;
use fallow_client::{Client, Entity, Event, Phase, Press, SNOOZE_MAX, Step};
use fallow_daemon::clock;
use fallow_domain::{MasterUrl, ProjectId};
use fallow_store::{SPARE, StoreError};
use tokio::sync::{oneshot, watch};

use super::Engine;
use super::deletions::Deletions;
use super::parts::{self, Freed, PARTS_STAY};
use super::requests::{SUSPENDED, others_pause};
use crate::control::people::user_name;
use crate::control::protocol::{Request, Response};
use crate::control::summary::whole;
use crate::error::AgentError;
use crate::records::Stored;

/// How long to wait before another try.
const PAUSE: Duration = Duration::from_secs(5);

/// How long tasks take to leave, and their slots to be emptied, when a project is detached: so many tries, so
/// far apart.
const TRIES: u32 = 12;
/// Likewise.
const TRY_AGAIN: Duration = Duration::from_millis(200);

/// How long there is no space before a task has to go that holds no more than it may, and how long until the
/// next one has to.
const PRESS: Duration = Duration::from_secs(60);

/// How long the engine waits for files to be deleted, however many there are.
pub(super) const SOON: Duration = Duration::from_secs(1);

/// A project that the owner detaches.
#[derive(Debug)]
pub(super) struct Departure {
    pub(super) project: ProjectId,
    pub(super) url: MasterUrl,
    /// What it can give again.
    pub(super) files: Vec<String>,
}

/// A pause that somebody has asked for and that is not stored yet.
#[derive(Clone, Debug)]
pub(super) struct UnstoredPause {
    /// Until when; none: the one that the client knows of is to end.
    pub(super) until: Option<fallow_domain::Instant>,
    /// Who has asked for it.
    pub(super) by: Option<String>,
}

/// What rests all tasks as far as it is stored.
#[derive(Clone, Copy, Debug)]
pub(super) struct StoredRests {
    suspended: bool,
    snoozed_until: Option<fallow_domain::Instant>,
}

impl StoredRests {
    /// As a client knows it whose last step is stored.
    pub(super) fn of(client: &Client) -> Self {
        Self { suspended: client.owner_suspended(), snoozed_until: client.snoozed_until() }
    }

    fn is_any(self) -> bool {
        self.suspended || self.pause().is_some()
    }

    /// Until when computing is paused by what is stored; none where it is not.
    pub(super) fn pause(self) -> Option<fallow_domain::Instant> {
        self.snoozed_until.filter(|until| *until > clock::now())
    }

    pub(super) const fn suspended(self) -> bool {
        self.suspended
    }

    /// What becomes of a wish by a restart as long as it is not stored.
    fn after_a_restart(self) -> &'static str {
        match self.is_any() {
            true => "until it is, what was stored before holds again after a restart",
            false => "until it is, it does not hold over a restart",
        }
    }
}

/// Who waits for a project to be detached, as long as he waits.
pub(super) type Departing = (MasterUrl, Option<oneshot::Sender<Response>>);

impl Engine {
    /// Stores a step's changes, however long it takes to get the space; unless the agent is to end.
    pub(super) async fn store(&mut self, step: &Step) -> Result<(), AgentError> {
        let new: Vec<(ProjectId, String)> = self.new_projects(step).collect();
        let stems: Vec<String> = new.iter().map(|(_, stem)| stem.clone()).collect();
        let doomed = Deletions::of(step);
        let (begun, mut has_given_up, mut told, mut hurry) = (Instant::now(), false, None, 0);
        let (mut given_up, mut has_waited, mut rounds) = (0, false, 0_u32);
        let mut press_at = begun + PRESS;
        loop {
            let over = self.deletions.over();
            let batch = Stored { changes: &step.changes, stems: &stems, doomed: &doomed, over };
            let apply = || self.records.apply(&batch, step.durable);
            // Another thread takes over from one that may block, and wakes the machine for it.
            let applied = match batch.is_worth_it(step.durable) {
                true => tokio::task::block_in_place(apply),
                false => apply(),
            };
            match applied {
                Ok(is_written) => {
                    if is_written {
                        self.deletions.stored(doomed);
                    }
                    self.is_new_project |= !new.is_empty();
                    self.known.extend(new.into_iter().map(|(project, _)| project));
                    if self.store_trouble.take().is_some() {
                        self.supervisor.make_room(None);
                        tracing::info!("there is space on the disk again");
                    }
                    return Ok(());
                }
                Err(error @ StoreError::Full { .. }) if !self.stopping && *self.signals.borrow() == 0 => {
                    if self.store_trouble.is_none() {
                        tracing::error!(%error, "waiting for space on the disk");
                    }
                    self.store_trouble = Some(error.to_string());
                    if let Some(departure) = self.departure.take() {
                        self.make_room(&departure);
                        hurry = TRIES;
                        continue;
                    }
                    if hurry > 0 {
                        hurry -= 1;
                        // What was wanted just before may be stored by one of the first tries.
                        if rounds < 2 {
                            tokio::time::sleep(TRY_AGAIN).await;
                            continue;
                        }
                        // Whoever asks while many small files go is answered between them.
                        self.answer_held_back();
                        if self.answer_meanwhile(TRY_AGAIN).await {
                            hurry = TRIES;
                        }
                        continue;
                    }
                    rounds = rounds.saturating_add(1);
                    let is_pressing = Instant::now() >= press_at;
                    if is_pressing {
                        press_at = Instant::now() + PRESS;
                    }
                    self.answer_departing();
                    self.take_from_tasks(None, Press::No);
                    let freed = self.give_up_unneeded();
                    if is_pressing {
                        let press = if freed.is_some() { Press::IfGrown } else { Press::Now };
                        self.take_from_tasks(None, press);
                    }
                    if let Some(freed) = freed {
                        given_up += freed.0;
                        // A file system may take a moment to have their space: what is enough for any batch
                        // may be enough. With less there is nothing to wait for.
                        let may_do = given_up > SPARE;
                        hurry = if may_do && !std::mem::replace(&mut has_waited, true) { TRIES } else { 1 };
                        continue;
                    }
                    // The owner is not kept waiting for it again and again.
                    if begun.elapsed() >= PARTS_STAY
                        && self.give_up_parts(&mut told)
                        && !std::mem::replace(&mut has_given_up, true)
                    {
                        continue;
                    }
                    self.answer_held_back();
                    if self.answer_meanwhile(PAUSE).await {
                        hurry = TRIES;
                    }
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Projects whose directories may be made from now on, so that the store has to know them as the agent's
    /// own.
    fn new_projects(&self, step: &Step) -> impl Iterator<Item = (ProjectId, String)> {
        step.touched.iter().filter_map(|entity| match entity {
            Entity::Project(id) if !self.known.contains(id) => {
                let view = self.client.project_view(*id)?;
                self.dir.name_project(&view.url, &view.directory);
                Some((*id, view.directory))
            }
            _ => None,
        })
    }

    /// Does what was wanted while nothing could be stored, and what is wanted while that is done.
    pub(super) async fn keep_wishes(&mut self) -> Result<(), AgentError> {
        while self.owner_wish.is_some() || self.pause_wish.is_some() || !self.departing.is_empty() {
            self.keep_owner_wish().await?;
            self.keep_departures().await?;
        }
        // The client has heard of all that holds them.
        self.holds_tasks = false;
        Ok(())
    }

    /// Tells the client what the owner wanted while nothing could be stored.
    async fn keep_owner_wish(&mut self) -> Result<(), AgentError> {
        while self.owner_wish.is_some() || self.pause_wish.is_some() {
            // As long as that waits for space, the wishes are here for whoever asks, and there may be more.
            self.tell_all_news().await?;
            if let Some(suspended) = self.owner_wish.take() {
                self.tell(Event::OwnerSuspended(suspended), None).await?;
                continue;
            }
            let Some(pause) = self.pause_wish.take() else { continue };
            let zero = fallow_domain::Duration::ZERO;
            let left = pause.until.map_or(zero, |until| until.since(clock::now())).max(zero);
            self.snoozed_by = pause.by.filter(|_| left.is_positive());
            // What is over meanwhile is nothing to be told, unless another pause goes on.
            if left.is_positive() || self.client.snoozed_until().is_some() {
                self.tell(Event::Snoozed(left), None).await?;
            }
            self.let_go_on();
        }
        Ok(())
    }

    /// Lets tasks go on after a pause that nothing but this knew of.
    fn end_unstored_pause(&mut self) {
        let now = clock::now();
        if let Some(until) = self.pause_wish.as_mut().and_then(|pause| pause.until.as_mut()) {
            // The clock may have been set back.
            *until = (*until).min(now + SNOOZE_MAX);
        }
        let is_over = |pause: &UnstoredPause| pause.until.is_some_and(|until| until <= now);
        if self.pause_wish.as_ref().is_some_and(is_over) {
            // One that the client knows of ended when this one was asked for.
            let is_stored = self.client.snoozed_until().is_some();
            self.pause_wish = is_stored.then_some(UnstoredPause { until: None, by: None });
            self.let_go_on();
        }
    }

    /// How long a pause still is that nothing but this knows of.
    fn unstored_pause_left(&self) -> Option<Duration> {
        let left = self.pause_wish.as_ref()?.until?.since(clock::now());
        Some(Duration::from_micros(u64::try_from(left.as_micros()).unwrap_or_default()))
    }

    /// Whether somebody wants all tasks to rest and the client has not heard of it.
    fn has_rest_wish(&self) -> bool {
        self.owner_wish == Some(true) || self.pause_wish.as_ref().is_some_and(|one| one.until.is_some())
    }

    /// Stops tasks at once, also those that the client has go on meanwhile, if somebody wants that.
    pub(super) fn hold_tasks(&mut self) {
        if self.has_rest_wish() {
            self.holds_tasks = true;
            self.supervisor.freeze();
            self.tell_running(ProcessControl::Suspend);
        }
    }

    /// What was held around the client goes on, unless something else holds it so: another wish, what is
    /// stored, or somebody at the machine of whom the client has not heard yet.
    fn let_go_on(&mut self) {
        let else_held = self.has_rest_wish() || self.stored.is_any() || self.supervisor.freezer().is_news();
        if self.holds_tasks && !else_held {
            self.holds_tasks = false;
            self.supervisor.want(self.client.is_wanted_by_people());
            self.tell_running(ProcessControl::Resume);
        }
    }

    /// Detaches what the owner wanted to be detached while nothing could be stored.
    async fn keep_departures(&mut self) -> Result<(), AgentError> {
        while let Some((url, reply)) = self.departing.pop_front() {
            // Whoever waits for it is answered while that waits for space once more.
            let request = Request::Detach { url: url.to_string() };
            self.asking = reply.map(|reply| (request, reply));
            let response = self.detach(url).await?;
            self.respond(response);
        }
        Ok(())
    }

    /// What a project that leaves can give again.
    pub(super) fn departure(&self, url: &MasterUrl) -> Option<Departure> {
        let project = self.client.standing(url).attached?;
        Some(Departure { project, url: url.clone(), files: self.client.refetchable(project) })
    }

    /// Deletes it.
    fn make_room(&self, departure: &Departure) {
        let Departure { project, url, files } = departure;
        tracing::warn!(project = %url, "deleting its downloads, so that its detachment can be stored");
        self.transfers.cancel_project(*project);
        self.take_from_tasks(Some(url), Press::No);
        let whole = files.iter().filter(|name| fallow_boinc::names::is_file_name(name));
        let whole = whole.map(|name| self.dir.project(url).join(name));
        let (mut freed, end) = (Freed::default(), Instant::now() + SOON);
        tokio::task::block_in_place(|| {
            for path in std::iter::once(self.dir.partial(url)).chain(whole) {
                freed.delete(self.dir.trash(), &path, end);
                // The rest goes with the project.
                if Instant::now() >= end {
                    break;
                }
            }
        });
        freed.say_stuck(&mut None);
    }

    /// Deletes the parts of downloads that nothing was written to for a while. A download that still waits
    /// for its server begins again. True if there were any. `told` is what was said of those that cannot be
    /// deleted.
    fn give_up_parts(&self, told: &mut Option<(PathBuf, String)>) -> bool {
        let projects = self.client.project_views();
        let places: Vec<PathBuf> = projects.iter().map(|project| self.dir.partial(&project.url)).collect();
        let give_up = || parts::give_up(self.dir.trash(), &places, Instant::now() + SOON);
        let freed = tokio::task::block_in_place(give_up);
        if freed.gone > 0 {
            let parts = freed.gone;
            tracing::warn!(parts, "deleted parts of downloads, for there is no space to store anything");
        }
        freed.say_stuck(told);
        freed.gone > 0
    }

    /// Frees what a project has, if the owner wants that, so that it can be detached next.
    fn takes_departure(&mut self, request: &Request) -> Option<MasterUrl> {
        let Request::Detach { url } = request else { return None };
        let departure = self.departure(&self.attached(url).ok()?)?;
        self.make_room(&departure);
        Some(departure.url)
    }

    /// Who waits for that to be stored has waited in vain.
    fn answer_departing(&mut self) {
        let why = self.store_trouble.clone().unwrap_or_default();
        for (url, reply) in &mut self.departing {
            if let Some(reply) = reply.take() {
                let _ = reply.send(Response::failed(&AgentError::no_space(format!(
                    "the downloads of {url} are deleted, and there is still no space to store more: it is detached as soon \
                     as that can be stored: {why}"
                ))));
            }
        }
    }

    /// Answers who has asked before it was known that his wish cannot be stored, and who wants to hear what
    /// the agent does since then.
    fn answer_held_back(&mut self) {
        self.tell_line();
        if let Some((request, reply)) = self.asking.take() {
            let _ = reply.send(self.answer_held(&request));
        }
    }

    /// Answers the owner for so long, until it is time for another try, or for the end. True if room was made
    /// meanwhile.
    async fn answer_meanwhile(&mut self, pause: Duration) -> bool {
        let mut signals: watch::Receiver<u32> = self.signals.clone();
        let pause = tokio::time::sleep(pause);
        tokio::pin!(pause);
        loop {
            self.end_unstored_pause();
            let pause_left = self.unstored_pause_left();
            tokio::select! {
                () = &mut pause => return false,
                () = tokio::time::sleep(pause_left.unwrap_or_default()), if pause_left.is_some() => {}
                _ = signals.wait_for(|&count| count > 0) => return false,
                Some((request, reply)) = self.requests.recv() => {
                    if let Some(url) = self.takes_departure(&request) {
                        self.departing.push_back((url, Some(reply)));
                        return true;
                    }
                    self.end_unstored_pause();
                    let _ = reply.send(self.answer_unstored(&request));
                }
            }
        }
    }

    /// For the request whose own step is held back. The client knows of it already, unless it is undecided.
    fn answer_held(&mut self, request: &Request) -> Response {
        match request {
            Request::Resume {} | Request::Snooze { .. } if self.is_undecided => self.answer_unstored(request),
            Request::Suspend {}
            | Request::Snooze { seconds: 1.., .. }
            | Request::Status {}
            | Request::Disk {}
            | Request::Stop {} => self.answer_unstored(request),
            Request::Resume {}
            | Request::Snooze { seconds: 0, .. }
            | Request::Exclude { .. }
            | Request::ReloadPreferences {}
            | Request::Attach { .. }
            | Request::Detach { .. }
            | Request::Update { .. } => {
                let why = self.store_trouble.clone().unwrap_or_default();
                Response::unstored("this cannot be stored now, and is done as soon as it can be", &why)
            }
        }
    }

    /// There is to be no pause any more.
    fn end_pause(&mut self, unstored: impl Fn(&str) -> Response) -> Response {
        if self.client.snoozed_until().or(self.stored.snoozed_until).is_some() {
            self.pause_wish = Some(UnstoredPause { until: None, by: None });
            return unstored("the pause ends as soon as that can be stored");
        }
        let was = self.pause_wish.take().is_some_and(|pause| pause.until.is_some());
        self.let_go_on();
        self.lifted(if was { "the pause is over" } else { "there was no pause" })
    }

    fn answer_unstored(&mut self, request: &Request) -> Response {
        let why = self.store_trouble.clone().unwrap_or_default();
        let unstored = |what: &str| Response::unstored(what, &why);
        match request {
            Request::Status {} => self.answer_status(),
            Request::Disk {} => self.answer_disk(),
            Request::Stop {} => Response::ending(),
            Request::Suspend {} if self.client.owner_suspended() && self.stored.suspended => {
                self.owner_wish = None;
                Response::done(SUSPENDED)
            }
            Request::Suspend {} => {
                self.owner_wish = Some(true);
                self.hold_tasks();
                unstored(&format!(
                    "computing is suspended now, but that cannot be stored: {}",
                    self.stored.after_a_restart()
                ))
            }
            Request::Resume {} if !self.client.owner_suspended() && !self.stored.suspended => {
                let was = self.owner_wish.take() == Some(true);
                self.let_go_on();
                self.lifted(if was {
                    "your suspension is lifted"
                } else {
                    "there was no suspension of yours"
                })
            }
            Request::Resume {} => {
                self.owner_wish = Some(false);
                unstored("your suspension is lifted as soon as that can be stored")
            }
            Request::Snooze { seconds, by } => {
                let asked = fallow_domain::Duration::from_secs(i64::try_from(*seconds).unwrap_or(i64::MAX));
                let pause = match self.ask_for_pause(asked, *by) {
                    Ok(pause) => pause,
                    Err(error) => return Response::failed(&error),
                };
                let Some(pause) = pause else { return self.end_pause(unstored) };
                self.pause_wish =
                    Some(UnstoredPause { until: Some(pause.until), by: pause.by.map(user_name) });
                self.hold_tasks();
                let now = clock::now();
                unstored(&match pause.by == *by {
                    true => format!(
                        "computing is paused now, for {}, but that cannot be stored: {}",
                        whole(pause.until.since(now)),
                        self.stored.after_a_restart()
                    ),
                    false => others_pause(&pause, asked, now) + "; what you asked for cannot be stored now",
                })
            }
            Request::Exclude { .. }
            | Request::ReloadPreferences {}
            | Request::Attach { .. }
            | Request::Detach { .. }
            | Request::Update { .. } => unstored("nothing was done, for it could not be stored"),
        }
    }

    fn tell_running(&self, message: ProcessControl) {
        // What the client has decided may not have been carried out yet, so for a suspension every process is
        // meant, and each one that is about to start.
        let all = message == ProcessControl::Suspend;
        let views = self.client.task_views().into_iter();
        for task in views.filter(|task| (all && task.pid.is_some()) || task.phase == Phase::Running) {
            self.supervisor.tell(task.id, message);
        }
    }
}
