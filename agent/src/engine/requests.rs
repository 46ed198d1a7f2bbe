//! What people at this host ask for.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use fallow_client::{AppConfigFound, Event, ProjectView, RequestedBy};
use fallow_daemon::clock;
use fallow_domain::{Device, Duration, Instant, MasterUrl};

use super::full_disk::StoredRests;
use super::pauses::{Asker, Pause};
use super::{Asked, Engine};
use crate::control::people::user_name;
use crate::control::preferences::not_taken;
use crate::control::protocol::{Request, Response};
use crate::control::status::{HostStatus, Status, projects, tasks};
use crate::control::summary;
use crate::error::AgentError;
use crate::host::owner::Sensors;
use crate::host::surroundings::Watcher;

/// What somebody is answered.
enum Answer {
    Whole(Response),
    /// This, and the line of `fallow-agent status --line` after it: what follows from what was done. Jobs may
    /// wait for a look at the battery and other programs first.
    AndLine(String),
}

impl Answer {
    /// This was done; now something else is so.
    fn lifted(what: &str) -> Self {
        Self::AndLine(now(what))
    }
}

impl From<Response> for Answer {
    fn from(response: Response) -> Self {
        Self::Whole(response)
    }
}

/// What the owner is told whose suspension is stored.
pub(super) const SUSPENDED: &str =
    "computing is suspended until you resume it, whatever the coordinator says";

impl Engine {
    /// What pause is in force when somebody wants one of so long, or, for none, his own to be over; none
    /// where there is none then.
    ///
    /// # Errors
    /// Only somebody else may end the one that is there.
    pub(super) fn ask_for_pause(
        &mut self,
        time: Duration,
        by: Option<u32>,
    ) -> Result<Option<Pause>, AgentError> {
        let (now, own) = (clock::now(), rustix::process::geteuid().as_raw());
        let asker = match by {
            Some(user) if user != 0 && user != own => Asker::Person(user),
            owner => Asker::Owner(owner.unwrap_or(own)),
        };
        let stored = self.client.snoozed_until();
        let holds = self.pause_wish.as_ref().map_or(stored, |wish| wish.until);
        self.pauses.ask(asker, time, now, holds).map_err(|pause| {
            AgentError::refused(format!(
                "computing is paused for {} more by {}: of all others only the user that the agent runs as and root \
                 may end that",
                summary::whole(pause.until.since(now)),
                whose(&pause)
            ))
        })
    }

    /// Carries a request out. An error is one that ends the agent; a refusal is a response.
    pub(super) async fn serve(&mut self, (request, reply): Asked) -> Result<(), AgentError> {
        self.asking = Some((request.clone(), reply));
        match request {
            Request::Attach { url, account_key, share, no_wait } if !self.stopping => {
                self.attach((url, account_key, share), no_wait).await
            }
            request => {
                match self.carry_out(request).await? {
                    Answer::Whole(response) => self.respond(response),
                    Answer::AndLine(text) => {
                        self.wants_line = self.asking.take().map(|(_, reply)| (text, reply));
                    }
                }
                Ok(())
            }
        }
    }

    /// Answers the request that the present turn is for, unless that was done while the turn had to wait.
    pub(super) fn respond(&mut self, response: Response) {
        if let Some((_, reply)) = self.asking.take() {
            let _ = reply.send(response);
        }
    }

    /// Answers whoever is to be told what is so now, if somebody waits for that.
    pub(super) fn tell_line(&mut self) {
        if let Some((text, reply)) = self.wants_line.take() {
            let _ = reply.send(self.and_line(&text));
        }
    }

    /// What is told to somebody who asks how it goes.
    pub(super) fn answer_status(&self) -> Response {
        let status = Some(Box::new(self.status()));
        Response::Done { text: String::new(), for_people: None, status, disk: None }
    }

    /// The agent has ended but for its answers: whoever still asks is told so.
    pub(super) fn answer_no_more(&mut self) {
        self.requests.close();
        while self.requests.try_recv().is_ok() {}
        (self.asking, self.wants_line) = (None, None);
        self.waiters = super::attach::Waiters::default();
    }

    async fn carry_out(&mut self, request: Request) -> Result<Answer, AgentError> {
        if self.stopping && !matches!(request, Request::Status {} | Request::Disk {} | Request::Stop {}) {
            return Ok(Response::failed(&AgentError::unreachable("the agent is just ending")).into());
        }
        if matches!(request, Request::Suspend {} | Request::Resume {} | Request::Snooze { .. }) {
            // The client hears the news first. If they have to wait for space on the disk, whoever asks is
            // answered meanwhile, may want something else by then, and nothing must have been agreed on.
            self.is_undecided = true;
            self.tell_all_news().await?;
            self.is_undecided = false;
            if self.asking.is_none() {
                // The client is told what is wanted by now: see `keep_wishes`.
                return Ok(Response::done("it was answered").into());
            }
        }
        match request {
            Request::Status {} => Ok(self.answer_status().into()),
            Request::Disk {} => Ok(self.answer_disk().into()),
            Request::Stop {} => {
                self.stop_asked = true;
                Ok(Response::ending().into())
            }
            Request::Suspend {} => {
                self.tell(Event::OwnerSuspended(true), None).await?;
                Ok(Response::done(SUSPENDED).into())
            }
            Request::Snooze { seconds, by } => {
                let was = self.client.snoozed_until();
                let asked = Duration::from_secs(i64::try_from(seconds).unwrap_or(i64::MAX));
                let pause = match self.ask_for_pause(asked, by) {
                    Ok(pause) => pause,
                    Err(error) => return Ok(Response::failed(&error).into()),
                };
                let left = pause.map_or(Duration::ZERO, |pause| pause.until.since(clock::now()));
                self.snoozed_by = pause.and_then(|pause| pause.by).map(user_name);
                self.tell(Event::Snoozed(left.max(Duration::ZERO)), None).await?;
                let is = self.client.snoozed_until();
                Ok(match (is.and(pause), was) {
                    (Some(pause), _) if pause.by != by => {
                        Response::done(others_pause(&pause, asked, clock::now())).into()
                    }
                    (Some(pause), _) => Response::done(format!(
                        "computing is paused for {}; `fallow-agent snooze off` ends that before",
                        pause_left(pause.until.since(clock::now()), asked)
                    ))
                    .into(),
                    (None, Some(_)) => Answer::lifted("the pause is over"),
                    (None, None) => Answer::lifted("there was no pause"),
                })
            }
            Request::Resume {} => {
                let was = self.client.owner_suspended();
                self.tell(Event::OwnerSuspended(false), None).await?;
                Ok(Answer::lifted(match was {
                    true => "your suspension is lifted",
                    false => "there was no suspension of yours",
                }))
            }
            Request::Exclude { devices } => {
                let here: BTreeSet<Device> =
                    self.client.device_views().iter().map(|one| one.device).collect();
                let strange = Device::list(devices.difference(&here));
                let strange = match (devices.is_subset(&here), here.is_empty()) {
                    (true, _) => String::new(),
                    (false, true) => {
                        "; this machine has no GPU that is known, so it changes nothing now".to_owned()
                    }
                    (false, false) => {
                        format!("; not on this machine: {strange}, which has {}", Device::list(&here))
                    }
                };
                self.turn(Event::OwnerExcludedDevices(devices), None).await?;
                let view = self.client.host_view();
                let (all, own) = (view.excluded_devices, view.owner.excluded_devices);
                let fleet = Device::list(all.difference(&own));
                let text = match (all.is_empty(), all.len() == own.len()) {
                    (true, _) => "all devices may be used".to_owned(),
                    (false, true) => format!("devices that are not used: {}", Device::list(&all)),
                    (false, false) => {
                        let own = Device::list(&own);
                        format!(
                            "devices that are not used: excluded here {own}; besides by the fleet's preferences {fleet}"
                        )
                    }
                };
                Ok(Response::done(text + &strange).into())
            }
            Request::ReloadPreferences {} => self.reload_preferences().await,
            // Answered by `attach`.
            Request::Attach { .. } => {
                Ok(Response::failed(&AgentError::unreachable("the agent is just ending")).into())
            }
            Request::Detach { url } => match self.attached(&url) {
                Ok(url) => self.detach(url).await.map(Answer::Whole),
                Err(error) => Ok(Response::failed(&error).into()),
            },
            Request::Update { url } => match self.attached(&url) {
                Ok(url) => {
                    let text = match self.client.awaits_answer(&url) {
                        true => {
                            format!("an answer of {url} is awaited; if none comes soon, it is asked anew")
                        }
                        false => {
                            contact(&url, &self.client.contact_held_by(&url), fallow_daemon::clock::now())
                        }
                    };
                    self.turn(Event::ContactRequested { url, by: RequestedBy::Owner }, None).await?;
                    Ok(Response::done(text).into())
                }
                Err(error) => Ok(Response::failed(&error).into()),
            },
        }
    }

    /// Takes the host's preference files as they are now, and the owner's files of projects; all of them, or
    /// none where one is wrong.
    async fn reload_preferences(&mut self) -> Result<Answer, AgentError> {
        let files = crate::preferences::read_all(&self.dir);
        let app_configs = crate::preferences::read_app_configs(&self.dir, &self.client);
        let faults = app_configs.values().filter_map(|found| match found {
            AppConfigFound::Wrong(faults) => Some(faults.join("\n")),
            AppConfigFound::Read(..) | AppConfigFound::Sent => None,
        });
        let faults: Vec<String> = faults.collect();
        if files.troubles.is_empty() && !faults.is_empty() {
            let what = format!(
                "the preferences stay as they were, for an app_config.xml is wrong; after a start of the agent it \
                 would keep its project from computing:\n{}",
                faults.join("\n")
            );
            return Ok(Response::failed(&AgentError::bad_input(what)).into());
        }
        if !files.troubles.is_empty() {
            let what = format!(
                "the preferences stay as they were, for a file is wrong; after a start of the agent it would \
                 keep it from computing:\n{}",
                files.troubles.join("\n")
            );
            return Ok(Response::failed(&AgentError::bad_input(what)).into());
        }
        self.turn(Event::PreferenceFilesRead(Box::new(files)), None).await?;
        self.turn(Event::AppConfigsRead(app_configs), None).await?;
        let in_force = self.client.preferences_in_force();
        let mut text = "the preferences are taken: fallow-agent preferences shows them".to_owned();
        let notes = not_taken(in_force).into_iter().chain(self.client.cautions());
        for note in notes {
            let _ = write!(text, "\n{note}");
        }
        text.push('\n');
        Ok(Answer::AndLine(text))
    }

    /// What was done, and what is so since then, in the words of `fallow-agent status --line`.
    pub(super) fn lifted(&self, what: &str) -> Response {
        self.and_line(&now(what))
    }

    /// This, and the line as each may see it who asks.
    fn and_line(&self, text: &str) -> Response {
        let status = self.status();
        let told = Response::done(format!("{text}{}", status.line));
        told.but_to_people(format!("{text}{}", status.for_people().line))
    }

    /// Detaches a project, if it still is attached.
    pub(super) async fn detach(&mut self, url: MasterUrl) -> Result<Response, AgentError> {
        let mut text = format!(
            "detached from {url}: its jobs are aborted, which may take a minute, and its files deleted"
        );
        if self.client.standing(&url).assigned.is_some() {
            text += ". It stays so, whatever the coordinator says, until you attach it again";
        }
        self.departure = self.departure(&url);
        let turned = self.turn(Event::Detach { url }, None).await;
        self.departure = None;
        // What the turn itself took is free only now.
        tokio::task::block_in_place(fallow_daemon::give_back_memory);
        turned.map(|()| Response::done(text))
    }

    /// The project that the owner means by its URL, or by its name if no other has it.
    pub(super) fn attached(&self, said: &str) -> Result<MasterUrl, AgentError> {
        let views = self.client.project_views();
        // As it is listed: an older version may have attached a project in another form.
        if let Some(view) = views.iter().find(|view| view.url.as_str() == said.trim()) {
            return Ok(view.url.clone());
        }
        let url = MasterUrl::parse(said).ok();
        if let Some(url) = url.filter(|url| views.iter().any(|view| view.url == *url)) {
            return Ok(url);
        }
        let mut named = views.iter().filter(|view| !view.name.is_empty() && view.name == said.trim());
        let shown = |view: &ProjectView| match view.name.as_str() {
            "" => view.url.to_string(),
            name => format!("{name} ({})", view.url),
        };
        match (named.next(), named.next()) {
            (Some(view), None) => Ok(view.url.clone()),
            (Some(_), Some(_)) => Err(AgentError::bad_input(format!(
                "several projects are called {said:?}: name the URL of one of {}",
                views.iter().map(shown).collect::<Vec<_>>().join(", ")
            ))),
            (None, _) => {
                let known: Vec<String> = views.iter().map(shown).collect();
                let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
                let said: String = said.chars().take(255).collect();
                Err(AgentError::bad_input(format!(
                    "this agent is not attached to {said:?}; it is attached to: {known}"
                )))
            }
        }
    }

    fn status(&self) -> Status {
        let mut host = HostStatus::of(&self.client);
        let unstored = self.pause_wish.as_ref().and_then(|pause| Some((pause.until?, &pause.by)));
        // What is stored holds as long as its end cannot be stored, of which the client may know already.
        let stored = self.store_trouble.is_some().then_some(self.stored);
        let paused = stored.and_then(StoredRests::pause).filter(|_| host.snoozed_until.is_none());
        if let Some(until) = unstored.map(|(until, _)| until).or(paused) {
            host.snoozed_until = Some(until.as_secs_f64());
            // What goes on for longer is said first.
            if !matches!(
                host.suspended_by.as_deref(),
                Some("owner" | "coordinator" | "confinement" | "hours")
            ) {
                host.suspended_by = Some("snooze".to_owned());
            }
        }
        if self.owner_wish == Some(true) || stored.is_some_and(StoredRests::suspended) {
            host.suspended_by = Some("owner".to_owned());
        }
        let (tasks, tasks_left_out) = tasks(&self.client);
        if host.snoozed_until.is_some() {
            host.snoozed_by = unstored.map_or_else(|| self.snoozed_by.clone(), |(_, by)| by.clone());
        }
        let mut status = Status {
            line: String::new(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            dir: self.dir.path().display().to_string(),
            fleet: self.link.as_ref().map(crate::fleet::link::Link::status),
            host,
            projects: projects(&self.client),
            tasks,
            tasks_left_out,
            notices: self.notices.all(),
            store_trouble: self.store_trouble.clone(),
            confinement: self.layers(),
            sensors: self.sensors.as_ref().map(Sensors::status).unwrap_or_default(),
            memory_pressure: self.surroundings.as_ref().map(|watcher| watcher.pressure().clone()),
            network_traffic: self.surroundings.as_ref().map(Watcher::network),
            last_input: self.sensors.as_ref().and_then(Sensors::last_input),
            preferences: crate::control::preferences::statuses(&self.client),
            preference_troubles: self.client.preference_troubles().to_vec(),
        };
        status.line = summary::line(&status, clock::now(), &summary::WallClock::system());
        status
    }
}

/// What was done, before what is so since then.
fn now(what: &str) -> String {
    format!("{what}; now: ")
}

/// Whose it is.
fn whose(pause: &Pause) -> String {
    let unknown = || "somebody who is not known any more".to_owned();
    pause.by.map_or_else(unknown, user_name)
}

/// That computing stays paused for somebody else, whatever this one wants.
pub(super) fn others_pause(pause: &Pause, asked: Duration, now: Instant) -> String {
    let own = if asked.is_positive() { "" } else { "your pause is over; " };
    format!("{own}computing stays paused for {}, by {}", summary::whole(pause.until.since(now)), whose(pause))
}

/// How long a pause goes on: as long as was asked for, but for what storing it took. One that ends within
/// five seconds of the present one changes nothing.
fn pause_left(left: Duration, asked: Duration) -> String {
    let slack = Duration::from_secs(6);
    summary::whole(if left - asked < slack && asked - left < slack { asked } else { left })
}

/// Tells the owner that a project is contacted at his word, and what he overrides by it (R1.4).
fn contact(url: &MasterUrl, held_by: &[(Instant, String)], now: Instant) -> String {
    let waits: Vec<String> = held_by
        .iter()
        .map(|(until, why)| format!("{why}, and would be left alone for {} more", until.since(now)))
        .collect();
    match waits.is_empty() {
        true => format!("{url} is contacted now"),
        false => format!("{url} is contacted now, although {}", waits.join("; ")),
    }
}
