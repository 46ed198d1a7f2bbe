//! The world around the client: what happens next, and telling the client of it.

use std::collections::VecDeque;

use fallow_boinc::runtime::exit::Ended;
use fallow_boinc::runtime::finish::Finish;
use fallow_client::{Client, Event, OutputFound, RequestedBy, Startup, TaskEnd, TaskSample};
use fallow_domain::{
    AccountKey, Bytes, DocumentVersion, Duration, FleetDocument, Instant, JobId, MasterUrl, PerType,
    ProjectAssignment, ProjectId,
};
use fallow_policy::composition::Composition;

use super::RunOptions;
use super::account::{Account, RunSummary};
use super::availability::{AllOn, OnOff};
use super::calendar::{Calendar, CalendarEvent};
use super::host::{Task, Tasks};
use super::outcome::{EndedJob, RunOutcome};
use super::random::Stream;
use super::server::Server;
use super::setup::{facts, new_client, url};
use super::supply::{Supply, instances};
use super::timeline::Recorder;
use crate::scenario::{OffKind, ProjectModel, Scenario};

/// When simulations begin. Some time after the epoch, which means "never" to a client.
const BEGINNING: Instant = Instant::from_micros(1_000_000_000_000_000);
/// How often a run looks whether it is to go on, in things that happen.
const WATCH_PERIOD: u64 = 4_096;
/// SIGTERM, which ends processes when a host is switched off.
const TERMINATED: Ended = Ended::Signal { number: 15, core_dumped: false };

/// A host with its client, and the projects, at a moment of virtual time.
pub(crate) struct World<'a> {
    pub(super) scenario: &'a Scenario,
    pub(super) composition: Composition,
    pub(super) options: RunOptions<'a>,
    pub(super) now: Instant,
    end: Instant,
    /// How long the host was on.
    pub(super) clock: Duration,
    availability: OnOff,
    on: bool,
    pub(super) instances: PerType<u32>,
    pub(super) calendar: Calendar,
    pub(super) tasks: Tasks,
    pub(super) servers: Vec<Server<'a>>,
    /// The client's numbers of the projects, in the scenario's order.
    pub(super) ids: Vec<ProjectId>,
    /// When each direction of the link is free, by the host's clock: down, up.
    pub(super) link_free: [Duration; 2],
    pub(super) client: Client,
    attached: bool,
    pub(super) wake_at: Option<Instant>,
    /// What the client is still to be told of this moment.
    pub(super) soon: VecDeque<Event>,
    pub(super) account: Account,
    pub(super) recorder: Option<Recorder>,
}

impl<'a> World<'a> {
    pub(crate) fn new(
        scenario: &'a Scenario,
        composition: Composition,
        seed: u64,
        options: RunOptions<'a>,
    ) -> Self {
        let host = &scenario.host;
        let server = |(index, model): (usize, &'a ProjectModel)| {
            let own = Stream::named(seed, &["project", &model.name, "availability"]);
            let own = OnOff::new(&model.available, BEGINNING, own);
            // The same for all that depend on it, since it draws the same.
            let outages = scenario.outages.iter().filter(|outage| outage.concerns(&model.name));
            let outages = outages.map(|outage| {
                let stream = Stream::named(seed, &["outage", &outage.name, "availability"]);
                OnOff::new(&outage.available, BEGINNING, stream)
            });
            let up = AllOn::new([own].into_iter().chain(outages));
            Server::new(model, up, Supply::new(model, host, seed), url(index))
        };
        let instances = instances(host);
        let availability =
            OnOff::new(&host.available, BEGINNING, Stream::named(seed, &["host", "availability"]));
        Self {
            scenario,
            composition,
            options,
            now: BEGINNING,
            end: BEGINNING + scenario.duration,
            clock: Duration::ZERO,
            availability,
            on: true,
            instances,
            calendar: Calendar::default(),
            tasks: Tasks::default(),
            servers: scenario.projects.iter().enumerate().map(server).collect(),
            ids: Vec::new(),
            link_free: [Duration::ZERO; 2],
            client: new_client(seed, composition),
            attached: false,
            wake_at: None,
            soon: VecDeque::new(),
            account: Account::new(scenario.projects.len(), BEGINNING),
            recorder: options.timeline.then(|| Recorder::new(BEGINNING, &instances)),
        }
    }

    /// Runs to the end, or until the watcher says no.
    pub(crate) fn run(mut self) -> RunOutcome {
        let startup = Startup { host: facts(&self.scenario.host), slots: Vec::new(), files: Vec::new() };
        self.tell(Event::Started(Box::new(startup)));
        if self.availability.is_on(self.now) {
            self.attach();
        } else {
            self.go_off();
        }
        let mut happened = 0_u64;
        while self.advance() {
            happened += 1;
            let watched = happened.is_multiple_of(WATCH_PERIOD);
            if let Some(watch) = self.options.watch.filter(|_| watched)
                && !watch(self.now - BEGINNING)
            {
                break;
            }
        }
        self.close()
    }

    /// The projects and the preferences reach the client as a coordinator's document does.
    fn attach(&mut self) {
        self.attached = true;
        let assignment = |(index, project): (usize, &ProjectModel)| {
            Some(ProjectAssignment {
                name: project.name.clone(),
                url: MasterUrl::parse(&url(index)).ok()?,
                account_key: AccountKey::new("0"),
                share: project.share,
            })
        };
        let document = FleetDocument {
            version: DocumentVersion(1),
            projects: self.scenario.projects.iter().enumerate().filter_map(assignment).collect(),
            preferences: self.scenario.preferences(),
        };
        self.tell(Event::DocumentOffered(document));
        // What the client is to hold from the beginning comes with a first contact, whether it would ask for
        // work or not.
        let held = self.scenario.projects.iter().enumerate().filter(|(_, project)| !project.queue.is_empty());
        let urls: Vec<_> = held.filter_map(|(index, _)| MasterUrl::parse(&url(index)).ok()).collect();
        urls.into_iter().for_each(|url| {
            self.soon.push_front(Event::ContactRequested { url, by: RequestedBy::Fleet });
        });
    }

    /// Lets the next thing happen. False at the end of the run.
    fn advance(&mut self) -> bool {
        if let Some(event) = self.soon.pop_front() {
            self.look();
            self.tell(event);
            return true;
        }
        let mut next = self.availability.changes_at().min(self.end);
        if self.on {
            if let Some(at) = self.calendar.next_at() {
                next = next.min(self.now + (at - self.clock));
            }
            next = next.min(self.wake_at.unwrap_or(Instant::FAR_FUTURE).max(self.now));
        }
        self.move_to(next);
        if self.now >= self.end {
            return false;
        }
        if self.on {
            // What happened comes before what is to be decided, and both before the host goes off.
            if let Some(event) = self.calendar.pop(self.clock) {
                self.happen(event);
                return true;
            }
            if self.wake_at.is_some_and(|at| at <= self.now) {
                self.wake();
                return true;
            }
        }
        match (self.availability.is_on(self.now), self.on) {
            (true, false) => self.come_back(),
            (false, true) => self.go_off(),
            (true, true) | (false, false) => {}
        }
        true
    }

    fn move_to(&mut self, next: Instant) {
        if self.on {
            self.clock += next - self.now;
        }
        self.now = next;
    }

    /// Tells the client of something, and does what it says.
    pub(super) fn tell(&mut self, event: Event) {
        self.account.events += 1;
        let step = self.client.handle(self.now, event);
        self.carry_out(step);
    }

    /// Brings the tasks up to date, and tells the client how far they are if it does not know. Says whether
    /// there was anything to tell. Whatever the client decides, it decides after that.
    fn look(&mut self) -> bool {
        let samples = self.samples();
        let news = !samples.is_empty();
        if news {
            self.tell(Event::TasksSampled(samples));
        }
        news
    }

    /// Brings the tasks up to date. How far those are that the client does not know of.
    fn samples(&mut self) -> Vec<TaskSample> {
        let Self { tasks, account, servers, .. } = self;
        tasks.update(self.clock, |task, ran| book(account, servers, task, ran));
        tasks.samples()
    }

    fn wake(&mut self) {
        self.wake_at = None;
        // Either makes the client look what is due.
        if !self.look() {
            self.tell(Event::WakeUp);
        }
    }

    fn go_off(&mut self) {
        self.on = false;
        if let Some(recorder) = &mut self.recorder {
            recorder.host(false, self.now);
        }
        self.tell(Event::HostAway);
        if self.scenario.host.off == OffKind::Shutdown {
            self.look();
            for job in self.tasks.ids() {
                self.end_task(job, TERMINATED);
            }
            // The client hears of it while the host is away: it decides nothing before the host is back.
            while let Some(event) = self.soon.pop_front() {
                self.tell(event);
            }
        }
    }

    fn come_back(&mut self) {
        self.on = true;
        if let Some(recorder) = &mut self.recorder {
            recorder.host(true, self.now);
        }
        if self.wake_at.is_none_or(|at| at <= self.now) {
            self.look();
        }
        self.tell(Event::HostBack);
        if !self.attached {
            self.attach();
        } else if self.scenario.host.off == OffKind::Shutdown {
            self.tell(Event::WakeUp);
        }
    }

    fn happen(&mut self, event: CalendarEvent) {
        match event {
            CalendarEvent::End { job, turn } => {
                if self.tasks.get(job).is_some_and(|task| task.turn == turn) {
                    self.look();
                    self.task_over(job);
                }
            }
            CalendarEvent::Checkpoint { job, turn } => {
                if self.tasks.get(job).is_some_and(|task| task.turn == turn) {
                    self.look();
                    self.plan_checkpoint(job);
                }
            }
            CalendarEvent::Answer { project, request } => self.answer(project, *request),
            CalendarEvent::Page { project, url } => self.read_page(project, &url),
            CalendarEvent::Transfer { file, upload, changes } => {
                self.transfer_over(file, upload, Some(changes));
            }
        }
    }

    /// A task is at its end, unless the client had its process ended at this very moment.
    fn task_over(&mut self, job: JobId) {
        let Some(failed) = self.tasks.get(job).and_then(Task::over) else { return };
        self.end_task(job, if failed { Ended::Code(1) } else { Ended::Code(0) });
    }

    /// Ends a task's process, and lets the client know.
    pub(super) fn end_task(&mut self, job: JobId, exit: Ended) {
        let Some(mut task) = self.tasks.end(job, self.clock) else { return };
        let ran = task.take_unbooked();
        book(&mut self.account, &mut self.servers, &task, ran);
        if let Some(recorder) = &mut self.recorder {
            recorder.stops(job, self.now);
        }
        let finished = exit == Ended::Code(0) && task.over() == Some(false);
        if !finished {
            self.account.lost += task.unkept();
        }
        let sent = self.servers.get_mut(task.project).and_then(|server| server.jobs.get_mut(task.number));
        if let Some(sent) = sent {
            sent.kept = task.kept();
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
        };
        self.soon.push_back(Event::TaskEnded { job, end: Box::new(end) });
    }

    pub(super) fn ended_job(
        &mut self,
        project: usize,
        number: u64,
        job: &super::jobs::SentJob,
        failed: bool,
    ) {
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

    fn close(mut self) -> RunOutcome {
        // What was done until the end counts, though what the client would do about it is not done any more.
        let samples = self.samples();
        let last = if samples.is_empty() { Event::WakeUp } else { Event::TasksSampled(samples) };
        self.client.handle(self.now, last);
        self.count_late();
        let summary = RunSummary {
            simulated: self.now - BEGINNING,
            host_on: self.clock,
            instances: self.instances,
            ids: std::mem::take(&mut self.ids),
            timeline: self.recorder.take().map(|recorder| recorder.close(self.now)),
        };
        self.account.close(summary, &self.scenario.host, &self.servers, &self.client, self.now)
    }

    /// Jobs that are past their deadline and were never reported are late (R5.31).
    fn count_late(&mut self) {
        for (project, server) in self.servers.iter_mut().enumerate() {
            let overdue = server.jobs.iter().filter(|(_, job)| job.deadline < self.now);
            for (number, job) in overdue.map(|(number, job)| (number, *job)).collect::<Vec<_>>() {
                server.late(&job);
                if let Some(recorder) = &mut self.recorder {
                    recorder.ended_job(EndedJob {
                        project,
                        job: number,
                        sent: job.sent - BEGINNING,
                        deadline: job.deadline - BEGINNING,
                        reported: None,
                        met: false,
                        failed: false,
                    });
                }
            }
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
