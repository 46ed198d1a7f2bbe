//! A host with its client: what happens next on it, and telling the client of it.

use std::collections::VecDeque;

use fallow_boinc::runtime::exit::Ended;
use fallow_boinc::runtime::finish::Finish;
use fallow_client::{Client, Event, OutputFound, RequestedBy, Startup, TaskEnd, TaskSample};
use fallow_domain::{
    AccountKey, Bytes, DocumentVersion, Duration, FleetDocument, Instant, JobId, MasterUrl,
    ProjectAssignment, ProjectId, ResourceTypes,
};

use super::account::Account;
use super::availability::OnOff;
use super::calendar::{Calendar, CalendarEvent};
use super::host::{Task, Tasks};
use super::jobs::SentJob;
use super::outcome::EndedJob;
use super::server::Server;
use super::setup::{facts, new_client, url};
use super::timeline::Recorder;
use super::world::{BEGINNING, Shared};
use crate::scenario::{OffKind, ProjectModel};

/// SIGTERM, which ends processes when a host is switched off.
const TERMINATED: Ended = Ended::Signal { number: 15, core_dumped: false };

/// A host with its client at a moment of virtual time.
pub(crate) struct Machine {
    /// Its place among the hosts.
    pub(super) number: usize,
    pub(super) now: Instant,
    end: Instant,
    /// How long it was on.
    pub(super) clock: Duration,
    availability: OnOff,
    on: bool,
    pub(super) calendar: Calendar,
    pub(super) tasks: Tasks,
    /// The client's numbers of the projects, in the scenario's order.
    pub(super) ids: Vec<ProjectId>,
    /// When each direction of the link is free, by the host's clock: down, up.
    pub(super) link_free: [Duration; 2],
    pub(super) client: Client,
    attached: bool,
    pub(super) wake_at: Option<Instant>,
    /// What the client is still to be told of this moment.
    pub(super) soon: VecDeque<Event>,
    pub(super) recorder: Option<Recorder>,
}

impl Machine {
    pub(crate) fn new(number: usize, seed: u64, availability: OnOff, shared: &Shared<'_>) -> Self {
        // One can be looked at in a picture, not hundreds.
        let is_recorded = shared.options.timeline && number == 0;
        Self {
            number,
            now: BEGINNING,
            end: BEGINNING + shared.scenario.duration,
            clock: Duration::ZERO,
            availability,
            on: true,
            calendar: Calendar::default(),
            tasks: Tasks::default(),
            ids: Vec::new(),
            link_free: [Duration::ZERO; 2],
            client: new_client(seed, number, shared.composition),
            attached: false,
            wake_at: None,
            soon: VecDeque::new(),
            recorder: is_recorded.then(|| Recorder::new(BEGINNING, &shared.instances)),
        }
    }

    /// Its client starts.
    pub(crate) fn begin(&mut self, shared: &mut Shared<'_>) {
        let startup = Startup {
            host: facts(&shared.scenario.host),
            slots: Vec::new(),
            files: Vec::new(),
            doomed: Vec::new(),
        };
        self.tell(shared, Event::Started(Box::new(startup)));
        if self.availability.is_on(self.now) {
            self.attach(shared);
        } else {
            self.go_off(shared);
        }
    }

    /// The projects and the preferences reach the client as a coordinator's document does.
    fn attach(&mut self, shared: &mut Shared<'_>) {
        self.attached = true;
        let assignment = |(index, project): (usize, &ProjectModel)| {
            Some(ProjectAssignment {
                name: project.name.clone(),
                url: MasterUrl::parse(&url(index)).ok()?,
                account_key: AccountKey::new("0"),
                share: project.share,
                code_sign_key: None,
                without: ResourceTypes::default(),
            })
        };
        let document = FleetDocument {
            content: String::new(),
            version: DocumentVersion(1),
            projects: shared.scenario.projects.iter().enumerate().filter_map(assignment).collect(),
            preferences: shared.scenario.preferences(),
        };
        self.tell(shared, Event::DocumentOffered(document.into()));
        // What the client is to hold from the beginning comes with a first contact, whether it would ask for
        // work or not.
        let held =
            shared.scenario.projects.iter().enumerate().filter(|(_, project)| !project.queue.is_empty());
        let urls: Vec<_> = held.filter_map(|(index, _)| MasterUrl::parse(&url(index)).ok()).collect();
        urls.into_iter().for_each(|url| {
            self.soon.push_front(Event::ContactRequested { url, by: RequestedBy::Fleet });
        });
    }

    /// When the next thing happens; the end of the run if nothing does.
    pub(crate) fn next_at(&self) -> Instant {
        if !self.soon.is_empty() {
            return self.now;
        }
        let mut next = self.availability.changes_at().min(self.end);
        if self.on {
            if let Some(at) = self.calendar.next_at() {
                next = next.min(self.now + (at - self.clock));
            }
            next = next.min(self.wake_at.unwrap_or(Instant::FAR_FUTURE).max(self.now));
        }
        next
    }

    /// Lets the next thing happen. False at the end of the run.
    pub(crate) fn advance(&mut self, shared: &mut Shared<'_>) -> bool {
        if let Some(event) = self.soon.pop_front() {
            self.look(shared);
            self.tell(shared, event);
            return true;
        }
        self.move_to(self.next_at());
        if self.now >= self.end {
            return false;
        }
        if self.on {
            // What happened comes before what is to be decided, and both before the host goes off.
            if let Some(event) = self.calendar.pop(self.clock) {
                self.happen(shared, event);
                return true;
            }
            if self.wake_at.is_some_and(|at| at <= self.now) {
                self.wake(shared);
                return true;
            }
        }
        match (self.availability.is_on(self.now), self.on) {
            (true, false) => self.come_back(shared),
            (false, true) => self.go_off(shared),
            (true, true) | (false, false) => {}
        }
        true
    }

    /// Time passes in which nothing happens.
    pub(super) fn move_to(&mut self, next: Instant) {
        if self.on {
            self.clock += next - self.now;
        }
        self.now = next;
    }

    /// Tells the client of something, and does what it says.
    pub(super) fn tell(&mut self, shared: &mut Shared<'_>, event: Event) {
        shared.account.events += 1;
        let step = self.client.handle(self.now, event);
        self.carry_out(shared, step);
    }

    /// Brings the tasks up to date, and tells the client how far they are if it does not know. Says whether
    /// there was anything to tell. Whatever the client decides, it decides after that.
    fn look(&mut self, shared: &mut Shared<'_>) -> bool {
        let samples = self.samples(shared);
        let news = !samples.is_empty();
        if news {
            self.tell(shared, Event::TasksSampled(samples));
        }
        news
    }

    /// Brings the tasks up to date. How far those are that the client does not know of.
    pub(super) fn samples(&mut self, shared: &mut Shared<'_>) -> Vec<TaskSample> {
        let Shared { account, servers, .. } = shared;
        self.tasks.update(self.clock, |task, ran| book(account, servers, task, ran));
        self.tasks.samples()
    }

    fn wake(&mut self, shared: &mut Shared<'_>) {
        self.wake_at = None;
        // Either makes the client look what is due.
        if !self.look(shared) {
            self.tell(shared, Event::WakeUp);
        }
    }

    fn go_off(&mut self, shared: &mut Shared<'_>) {
        self.on = false;
        if let Some(recorder) = &mut self.recorder {
            recorder.host(false, self.now);
        }
        self.tell(shared, Event::HostAway);
        if shared.scenario.host.off == OffKind::Shutdown {
            self.look(shared);
            for job in self.tasks.ids() {
                self.end_task(shared, job, TERMINATED);
            }
            // The client hears of it while the host is away: it decides nothing before the host is back.
            while let Some(event) = self.soon.pop_front() {
                self.tell(shared, event);
            }
        }
    }

    fn come_back(&mut self, shared: &mut Shared<'_>) {
        self.on = true;
        if let Some(recorder) = &mut self.recorder {
            recorder.host(true, self.now);
        }
        if self.wake_at.is_none_or(|at| at <= self.now) {
            self.look(shared);
        }
        self.tell(shared, Event::HostBack);
        if !self.attached {
            self.attach(shared);
        } else if shared.scenario.host.off == OffKind::Shutdown {
            self.tell(shared, Event::WakeUp);
        }
    }

    fn happen(&mut self, shared: &mut Shared<'_>, event: CalendarEvent) {
        match event {
            CalendarEvent::End { job, turn } => {
                if self.tasks.get(job).is_some_and(|task| task.turn == turn) {
                    self.look(shared);
                    self.task_over(shared, job);
                }
            }
            CalendarEvent::Checkpoint { job, turn } => {
                if self.tasks.get(job).is_some_and(|task| task.turn == turn) {
                    self.look(shared);
                    self.plan_checkpoint(shared, job);
                }
            }
            CalendarEvent::Answer { project, request } => self.answer(shared, project, *request),
            CalendarEvent::Page { project, url } => self.read_page(shared, project, &url),
            CalendarEvent::Transfer { file, upload, changes } => {
                self.transfer_over(shared, file, upload, Some(changes));
            }
        }
    }

    /// A task is at its end, unless the client had its process ended at this very moment.
    fn task_over(&mut self, shared: &mut Shared<'_>, job: JobId) {
        let Some(failed) = self.tasks.get(job).and_then(Task::over) else { return };
        self.end_task(shared, job, if failed { Ended::Code(1) } else { Ended::Code(0) });
    }

    /// Ends a task's process, and lets the client know.
    pub(super) fn end_task(&mut self, shared: &mut Shared<'_>, job: JobId, exit: Ended) {
        let Some(mut task) = self.tasks.end(job, self.clock) else { return };
        let ran = task.take_unbooked();
        book(&mut shared.account, &mut shared.servers, &task, ran);
        if let Some(recorder) = &mut self.recorder {
            recorder.stops(job, self.now);
        }
        let finished = exit == Ended::Code(0) && task.over() == Some(false);
        if !finished {
            shared.account.lost += task.unkept();
        }
        let sent = shared.servers.get_mut(task.project).and_then(|server| server.jobs.get_mut(task.number));
        if let Some(sent) = sent {
            sent.kept = task.kept();
            sent.computed = task.over().map(|_| self.now);
        }
        let output = |(name, nbytes)| OutputFound { name, nbytes, md5: "0".repeat(32) };
        let end = TaskEnd {
            exit,
            finish: finished.then_some(Finish::SUCCESS),
            temporary_exit: None,
            cpu_time: task.process_cpu(),
            is_charged: false,
            stderr: String::new(),
            outputs: task.output.filter(|_| finished).map(output).into_iter().collect(),
            peak_working_set: Bytes(0),
            disk_usage: Bytes(0),
            made_room: None,
            memory_exceeded: None,
            killed: None,
        };
        self.soon.push_back(Event::TaskEnded { job, end: Box::new(end) });
    }

    pub(super) fn ended_job(&mut self, project: usize, number: u64, job: &SentJob, failed: bool) {
        let met = self.now <= job.deadline;
        let ended_job = EndedJob {
            project,
            job: number,
            sent: job.sent - BEGINNING,
            deadline: job.deadline - BEGINNING,
            reported: Some(self.now - BEGINNING),
            met,
            failed,
        };
        if let Some(recorder) = &mut self.recorder {
            recorder.ended_job(ended_job);
        }
    }
}

/// Books running time of a task: its project's and its job's.
fn book(account: &mut Account, servers: &mut [Server<'_>], task: &Task, ran: Duration) {
    account.ran(task.project, task.usage, ran);
    if let Some(job) = servers.get_mut(task.project).and_then(|server| server.jobs.get_mut(task.number)) {
        job.ran += ran;
    }
}
