//! A modelled host with modelled projects: carries out effects in virtual time, one CPU second per second.

use std::collections::{BTreeMap, BTreeSet};

use fallow_boinc::runtime::exit::Ended;
use fallow_boinc::runtime::finish::Finish;
use fallow_boinc::runtime::message::AppStatus;
use fallow_boinc::scheduler::{
    App, AppVersion, ClientVersion, FileInfo, FileRef, ReportedResult, ResultJob, SchedulerReply,
    SchedulerRequest, Workunit,
};
use fallow_client::{
    Action, Client, ClientConfig, Effect, Event, FileKey, OutputFound, ProjectView, SlotFound, Startup, Step,
    TaskEnd, TaskSample, TaskSetup, TransferError, TransferErrorKind,
};
use fallow_domain::{
    Bytes, Duration, Flops, Fraction, HostFacts, HostSpeed, Instant, JobId, MasterUrl, ProjectId, SlotId,
    Speed,
};

pub(crate) fn version() -> ClientVersion {
    ClientVersion { major: 8, minor: 3, release: 0 }
}

/// A modelled project: a finite supply of equal jobs.
#[derive(Default)]
pub(crate) struct Project {
    pub(crate) supply: u64,
    pub(crate) sent: u64,
    cpu: Duration,
    pub(crate) down: bool,
    pub(crate) calls: Vec<Instant>,
    pub(crate) reports: Vec<ReportedResult>,
}

struct Task {
    setup: TaskSetup,
    executing: bool,
    cpu: Duration,
    base: Duration,
    checkpoint: Duration,
    length: Duration,
    finished: bool,
}

pub(crate) struct World {
    pub(crate) now: Instant,
    pub(crate) client: Client,
    seed: u64,
    store: BTreeMap<Vec<u8>, Vec<u8>>,
    pub(crate) projects: BTreeMap<String, Project>,
    tasks: BTreeMap<JobId, Task>,
    /// Checkpoints on the disk, by slot.
    disk: BTreeMap<SlotId, (Duration, Duration, bool)>,
    /// Whose they are.
    owners: BTreeMap<SlotId, JobId>,
    /// By which start of theirs.
    starts: BTreeMap<SlotId, u32>,
    files: BTreeSet<FileKey>,
    queue: Vec<(Instant, Event)>,
    wake_at: Instant,
    urls: BTreeMap<ProjectId, String>,
    pub(crate) cpu_used: Duration,
    pub(crate) notices: Vec<String>,
    pub(crate) log: Vec<String>,
    /// The requests as they were written.
    pub(crate) requests: Vec<String>,
    pub(crate) fail_download: Option<TransferError>,
    pub(crate) fail_upload: Option<TransferError>,
    /// Which downloads fail then, by the end of their names.
    pub(crate) fail_suffix: &'static str,
    pub(crate) never_finishes: bool,
    /// What a project changes in its reply, given the number of replies before.
    pub(crate) alter: Option<fn(&mut SchedulerReply, usize)>,
    /// Schedulers take requests and never answer.
    pub(crate) silent: bool,
    /// Scheduler URLs that a master page names.
    pub(crate) schedulers: usize,
    /// So many starts fail from now on.
    pub(crate) fail_starts: u32,
    /// How much longer jobs take than their projects say.
    pub(crate) slowness: f64,
    /// How often the client was called.
    pub(crate) turns: u64,
    /// What the files of every task hold.
    pub(crate) disk_usage: Option<Bytes>,
    /// The disk is full from the next start of a task on: the shell holds every step back, and tells the client nothing.
    pub(crate) fill_disk_after_start: bool,
    disk_full: bool,
    /// Aborted processes that have not left yet.
    dying: BTreeMap<JobId, SlotId>,
}

const TICK: Duration = Duration::from_secs(1);
const LATENCY: Duration = Duration::from_millis(300);
/// How long an aborted process takes to leave.
const LEAVING: Duration = Duration::from_secs(10);

impl World {
    pub(crate) fn new(seed: u64) -> Self {
        let client = Client::restore(ClientConfig::new(seed, version()), []).unwrap();
        let mut world = Self {
            now: Instant::from_secs_f64(1_800_000_000.0),
            client,
            seed,
            store: BTreeMap::new(),
            projects: BTreeMap::new(),
            tasks: BTreeMap::new(),
            disk: BTreeMap::new(),
            owners: BTreeMap::new(),
            starts: BTreeMap::new(),
            files: BTreeSet::new(),
            queue: Vec::new(),
            wake_at: Instant::FAR_FUTURE,
            urls: BTreeMap::new(),
            cpu_used: Duration::ZERO,
            notices: Vec::new(),
            log: Vec::new(),
            requests: Vec::new(),
            fail_download: None,
            fail_upload: None,
            fail_suffix: "_in",
            never_finishes: false,
            alter: None,
            silent: false,
            schedulers: 1,
            fail_starts: 0,
            slowness: 1.0,
            turns: 0,
            disk_usage: None,
            fill_disk_after_start: false,
            disk_full: false,
            dying: BTreeMap::new(),
        };
        world.start();
        world
    }

    pub(crate) fn add_project(&mut self, name: &str, supply: u64, cpu: Duration) {
        self.projects.insert(name.to_owned(), Project { supply, cpu, ..Project::default() });
    }

    pub(crate) fn event(&mut self, event: Event) {
        if self.disk_full {
            return;
        }
        self.turns += 1;
        let step = self.client.handle(self.now, event);
        self.carry_out(step);
    }

    pub(crate) fn run_for(&mut self, length: Duration) {
        let end = self.now + length;
        while self.now < end {
            self.tick();
        }
    }

    pub(crate) fn run_until(&mut self, what: &str, at_most: Duration, done: impl Fn(&Self) -> bool) {
        let end = self.now + at_most;
        while !done(self) {
            assert!(self.now < end, "not within {at_most}: {what}\n{}", self.log.join("\n"));
            self.tick();
        }
    }

    pub(crate) fn jump(&mut self, by: Duration) {
        self.now = self.now + by;
        // A shell sleeps for a length of time, whatever the clock says meanwhile.
        if self.wake_at < Instant::FAR_FUTURE {
            self.wake_at = self.wake_at + by;
        }
        for (at, _) in &mut self.queue {
            *at = *at + by;
        }
    }

    /// kill -9 and start again: processes are gone, slots and files are there.
    pub(crate) fn restart(&mut self) {
        for task in self.tasks.values() {
            self.disk.insert(task.setup.slot, (task.base + task.cpu, task.checkpoint, task.finished));
        }
        self.tasks.clear();
        self.dying.clear();
        self.queue.clear();
        self.client = self.restored();
        self.disk_full = false;
        self.start();
    }

    pub(crate) fn restored(&self) -> Client {
        let config = ClientConfig::new(self.seed, version());
        Client::restore(config, self.store.clone()).unwrap()
    }

    pub(crate) fn finish_behind_the_agents_back(&mut self) {
        for task in self.tasks.values_mut().filter(|task| task.executing) {
            let rest = task.length - task.base - task.cpu;
            task.cpu += rest;
            self.cpu_used += rest;
            task.finished = true;
        }
    }

    /// When a project's scheduler was called.
    pub(crate) fn calls(&self, name: &str) -> Vec<Instant> {
        self.projects[name].calls.clone()
    }
    pub(crate) fn acknowledged(&self, name: &str) -> u64 {
        self.projects[name].reports.len() as u64
    }
    /// How many records the store holds under a prefix.
    pub(crate) fn stored(&self, prefix: &str) -> usize {
        self.store.keys().filter(|key| key.starts_with(prefix.as_bytes())).count()
    }
    /// As if the agent had been killed when it had stored that the tasks' slots are theirs, and not yet emptied them of
    /// finished tasks before.
    pub(crate) fn find_finished_tasks_of_others(&mut self) {
        for task in std::mem::take(&mut self.tasks).into_values() {
            self.disk.insert(task.setup.slot, (task.length, task.length, true));
            self.owners.insert(task.setup.slot, JobId(1_000_000));
        }
        self.restart();
    }
    /// A file in a project's directory that no record tells of.
    pub(crate) fn leave_behind(&mut self, file: FileKey) {
        self.files.insert(file);
    }
    pub(crate) fn has_file(&self, name: &str) -> bool {
        self.files.iter().any(|key| key.name == name)
    }
    pub(crate) fn computing(&self) -> usize {
        self.tasks.values().filter(|task| task.executing).count()
    }
    pub(crate) fn slots_in_use(&self) -> usize {
        self.disk.len()
    }
    pub(crate) fn longest_task(&self) -> Duration {
        self.tasks.values().map(|task| task.base + task.cpu).max().unwrap_or_default()
    }
    pub(crate) fn view(&self, name: &str) -> ProjectView {
        self.client.project_views().into_iter().find(|view| view.name == name).unwrap()
    }
    pub(crate) fn notices(&self) -> impl Iterator<Item = &String> {
        self.notices.iter()
    }

    fn start(&mut self) {
        let files = self.files.iter().map(|key| (key.clone(), Bytes(10))).collect();
        let slots = self.disk.iter().map(|(slot, found)| self.slot_found(*slot, *found)).collect();
        self.event(Event::Started(Box::new(Startup { host: host(), slots, files })));
    }

    fn slot_found(&self, slot: SlotId, (cpu, checkpoint, finished): (Duration, Duration, bool)) -> SlotFound {
        let outputs: Vec<OutputFound> = self
            .files
            .iter()
            .filter(|key| key.name.ends_with("_out"))
            .map(|key| OutputFound { name: key.name.clone(), nbytes: Bytes(10), md5: "0".repeat(32) })
            .collect();
        let end = TaskEnd {
            exit: Ended::Code(0),
            finish: Some(Finish::SUCCESS),
            temporary_exit: None,
            cpu_time: Duration::ZERO,
            stderr: String::new(),
            outputs,
            peak_working_set: Bytes(0),
            disk_usage: Bytes(0),
        };
        SlotFound {
            slot,
            job: self.owners.get(&slot).copied(),
            start: self.starts.get(&slot).copied(),
            last_status: Some(AppStatus {
                current_cpu_time: cpu,
                checkpoint_cpu_time: checkpoint,
                ..AppStatus::default()
            }),
            finished: finished.then(|| Box::new(end)),
        }
    }

    fn tick(&mut self) {
        let end = self.now + TICK;
        loop {
            let next =
                self.queue.iter().enumerate().min_by_key(|(_, (at, _))| *at).map(|(i, (at, _))| (i, *at));
            match next {
                Some((i, at)) if at <= end && at <= self.wake_at => {
                    self.now = self.now.max(at);
                    let (_, event) = self.queue.remove(i);
                    if let Event::TaskEnded { job, .. } = &event {
                        self.dying.remove(job);
                    }
                    self.event(event);
                }
                _ if self.wake_at <= end => {
                    self.now = self.now.max(self.wake_at);
                    self.wake_at = Instant::FAR_FUTURE;
                    self.event(Event::WakeUp);
                }
                _ => break,
            }
        }
        self.now = end;
        self.compute();
    }

    fn compute(&mut self) {
        let mut samples = Vec::new();
        let mut ended = Vec::new();
        for (job, task) in &mut self.tasks {
            if task.executing {
                let step = TICK.min(task.length - task.base - task.cpu);
                task.cpu += step;
                self.cpu_used += step;
                let total = task.base + task.cpu;
                if total - task.checkpoint >= Duration::from_secs(5) && !self.never_finishes {
                    task.checkpoint = total;
                }
                if total >= task.length {
                    ended.push(*job);
                }
            }
            let status = AppStatus {
                current_cpu_time: task.base + task.cpu,
                checkpoint_cpu_time: task.checkpoint,
                fraction_done: Some(Fraction::clamped(
                    (task.base + task.cpu).as_secs_f64() / task.length.as_secs_f64(),
                )),
                ..AppStatus::default()
            };
            samples.push(TaskSample {
                job: *job,
                cpu_time: task.cpu,
                working_set: Bytes::from_mebibytes(10),
                disk_usage: self.disk_usage,
                status: Some(status),
            });
        }
        if !samples.is_empty() {
            self.event(Event::TasksSampled(samples));
        }
        for job in ended {
            self.end_task(job, !self.never_finishes);
        }
    }

    fn end_task(&mut self, job: JobId, finished: bool) {
        let Some(task) = self.tasks.remove(&job) else { return };
        let project = self.project_id(&task.setup.url);
        let mut outputs = Vec::new();
        for file in task.setup.files.iter().filter(|file| file.output && finished) {
            self.files.insert(FileKey { project, name: file.name.clone() });
            outputs.push(OutputFound { name: file.name.clone(), nbytes: Bytes(10), md5: "0".repeat(32) });
        }
        self.disk.insert(task.setup.slot, (task.base + task.cpu, task.checkpoint, false));
        self.event(Event::TaskEnded {
            job,
            end: Box::new(TaskEnd {
                exit: Ended::Code(0),
                finish: finished.then_some(Finish::SUCCESS),
                temporary_exit: None,
                cpu_time: task.cpu,
                stderr: "done\n".to_owned(),
                outputs,
                peak_working_set: Bytes::from_mebibytes(11),
                disk_usage: Bytes(1000),
            }),
        });
    }

    fn project_id(&self, url: &MasterUrl) -> ProjectId {
        *self.urls.iter().rfind(|(_, known)| **known == url.as_str()).unwrap().0
    }

    fn carry_out(&mut self, step: Step) {
        for change in step.changes {
            match change.value {
                Some(value) => self.store.insert(change.key, value),
                None => self.store.remove(&change.key),
            };
        }
        if let Some(at) = step.wake_at {
            assert!(at > self.now, "a wake-up in the past");
            self.wake_at = at;
        }
        for Action { effect, reason } in step.actions {
            self.log.push(format!("{} {} {reason}", self.now.as_secs_f64(), brief(&effect)));
            self.effect(effect);
        }
    }

    fn later(&mut self, event: Event) {
        self.queue.push((self.now + LATENCY, event));
    }

    fn effect(&mut self, effect: Effect) {
        match effect {
            Effect::FetchMasterPage { project, url } => {
                self.urls.insert(project, url.as_str().to_owned());
                let schedulers = (0..self.schedulers).map(|n| format!("{url}cgi{n}")).collect();
                self.later(Event::MasterPageRead { project, outcome: Ok(schedulers) });
            }
            Effect::CallScheduler { project, mut request, .. } => {
                if self.silent {
                    return;
                }
                self.client.list_jobs(project, &mut request);
                let outcome = self.serve(project, &request);
                self.later(Event::SchedulerAnswered { project, outcome });
            }
            Effect::Download(download) => {
                let fails = download.file.name.ends_with(self.fail_suffix);
                let outcome = match &self.fail_download {
                    Some(error) if fails => Err(error.clone()),
                    _ => Ok(Bytes(10)),
                };
                if outcome.is_ok() {
                    self.files.insert(download.file.clone());
                }
                self.later(Event::DownloadEnded { file: download.file, outcome });
            }
            Effect::Upload(upload) => {
                assert!(self.files.contains(&upload.file));
                let outcome = self.fail_upload.clone().map_or(Ok(()), Err);
                self.later(Event::UploadEnded { file: upload.file, outcome });
            }
            Effect::StartTask(setup) => self.start_task(*setup),
            Effect::SuspendTask { job } => self.tasks.get_mut(&job).unwrap().executing = false,
            Effect::ResumeTask { job } => self.tasks.get_mut(&job).unwrap().executing = true,
            Effect::QuitTask { job } => self.end_task(job, false),
            Effect::AbortTask { job } => {
                let Some(task) = self.tasks.remove(&job) else { return };
                self.dying.insert(job, task.setup.slot);
                self.disk.insert(task.setup.slot, (task.base + task.cpu, task.checkpoint, false));
                let ended = Event::TaskEnded {
                    job,
                    end: Box::new(TaskEnd {
                        exit: Ended::Code(194),
                        finish: None,
                        temporary_exit: None,
                        cpu_time: task.cpu,
                        stderr: String::new(),
                        outputs: Vec::new(),
                        peak_working_set: Bytes(0),
                        disk_usage: Bytes(0),
                    }),
                };
                self.queue.push((self.now + LEAVING, ended));
            }
            Effect::CleanSlot { slot } => {
                self.assert_nobody_in(slot);
                self.disk.remove(&slot);
            }
            Effect::DeleteFile { file, .. } => {
                self.files.remove(&file);
            }
            Effect::DeleteProject { project, .. } => self.files.retain(|key| key.project != project),
            Effect::CancelTransfer { file } => {
                self.queue.retain(
                    |(_, event)| !matches!(event, Event::DownloadEnded { file: f, .. } if *f == file),
                );
            }
            Effect::Notice { text, .. } => self.notices.push(text),
        }
    }

    fn assert_nobody_in(&self, slot: SlotId) {
        let living = self.tasks.values().map(|task| &task.setup.slot).chain(self.dying.values());
        assert!(living.clone().all(|other| *other != slot), "a process still is in slot {slot}");
    }

    fn start_task(&mut self, setup: TaskSetup) {
        self.assert_nobody_in(setup.slot);
        if self.fail_starts > 0 {
            self.fail_starts -= 1;
            let (job, reason) = (setup.job, "the disk is full".to_owned());
            return self.later(Event::TaskStartFailed { job, reason, permanent: false });
        }
        if setup.fresh {
            self.disk.remove(&setup.slot);
        }
        self.owners.insert(setup.slot, setup.job);
        self.starts.insert(setup.slot, setup.start);
        self.disk_full = self.fill_disk_after_start;
        let checkpoint = self.disk.get(&setup.slot).map_or(Duration::ZERO, |found| found.1);
        self.disk.insert(setup.slot, (checkpoint, checkpoint, false));
        let length = Duration::from_secs_f64(setup.init_data.rsc_fpops_est / 1e9 * self.slowness);
        let job = setup.job;
        assert_eq!(
            setup.init_data.wu_cpu_time, checkpoint,
            "the client and the slot agree on the checkpoint"
        );
        let task = Task {
            setup,
            executing: true,
            cpu: Duration::ZERO,
            base: checkpoint,
            checkpoint,
            length,
            finished: false,
        };
        assert!(self.tasks.insert(job, task).is_none(), "one process per job");
        self.later(Event::TaskStarted { job, pid: 1_000 });
    }

    fn serve(
        &mut self,
        id: ProjectId,
        request: &SchedulerRequest,
    ) -> Result<Box<SchedulerReply>, TransferError> {
        let (now, url) = (self.now, self.urls[&id].clone());
        let name = url.trim_end_matches('/').rsplit('/').next().unwrap().to_owned();
        let project = self.projects.get_mut(&name).unwrap();
        project.calls.push(now);
        if project.down {
            return Err(TransferError::new(TransferErrorKind::Transient, "connection refused"));
        }
        // What crosses the wire is the text; so the formats take part.
        let text = request.write();
        let request = SchedulerRequest::parse(text.as_bytes()).unwrap();
        self.requests.push(text);
        let mut reply = SchedulerReply {
            hostid: (request.hostid == 0).then_some(7),
            request_delay: Duration::from_secs(1),
            code_sign_key: Some("1024\n00\n.".to_owned()),
            result_acks: request.results.iter().map(|result| result.name.clone()).collect(),
            ..SchedulerReply::default()
        };
        project.reports.extend(request.results);
        let mut seconds = request.cpu_req_secs;
        while seconds > 0.0 && project.sent < project.supply {
            seconds -= project.cpu.as_secs_f64();
            add_job(&mut reply, &name, &url, project.sent, project.cpu, now);
            project.sent += 1;
        }
        if let Some(alter) = self.alter {
            alter(&mut reply, project.calls.len() - 1);
        }
        Ok(Box::new(SchedulerReply::parse(reply.write().as_bytes()).unwrap()))
    }
}

fn add_job(reply: &mut SchedulerReply, project: &str, url: &str, number: u64, cpu: Duration, now: Instant) {
    let file = |name: &str, urls: &[String], upload: bool| FileInfo {
        name: name.to_owned(),
        download_urls: if upload { Vec::new() } else { urls.to_vec() },
        upload_urls: if upload { urls.to_vec() } else { Vec::new() },
        max_nbytes: upload.then_some(Bytes(1000)),
        ..FileInfo::default()
    };
    let (app, stem) = (format!("{project}_app"), format!("{project}_{number}"));
    let (input, output) = (format!("{stem}_in"), format!("{stem}_out"));
    let refer = |name: &str, open: &str, main| FileRef {
        file_name: name.to_owned(),
        open_name: Some(open.to_owned()),
        main_program: main,
        ..FileRef::default()
    };
    let download = |name: &str| vec![format!("{url}download/{name}")];
    if reply.apps.is_empty() {
        reply.apps.push(App { name: app.clone(), ..App::default() });
        reply.files.push(file(&app, &download(&app), false));
        reply.app_versions.push(AppVersion {
            app_name: app.clone(),
            version_num: 100,
            platform: "x86_64-pc-linux-gnu".to_owned(),
            api_version: Some("8.0.0".to_owned()),
            files: vec![refer(&app, &app, true)],
            flops: Some(Speed::new(1e9).unwrap()),
            ..AppVersion::default()
        });
    }
    reply.files.push(file(&input, &download(&input), false));
    reply.files.push(file(&output, &[format!("{url}file_upload_handler")], true));
    reply.workunits.push(Workunit {
        name: stem.clone(),
        app_name: app,
        rsc_fpops_est: Some(Flops::new(cpu.as_secs_f64() * 1e9).unwrap()),
        rsc_fpops_bound: Some(Flops::new(cpu.as_secs_f64() * 1e12).unwrap()),
        files: vec![refer(&input, "in", false)],
        ..Workunit::default()
    });
    reply.results.push(ResultJob {
        name: format!("{stem}_0"),
        wu_name: stem,
        report_deadline: now + Duration::from_hours(24 * 7),
        files: vec![refer(&output, "out", false)],
        platform: "x86_64-pc-linux-gnu".to_owned(),
        version_num: 100,
        ..ResultJob::default()
    });
}

fn brief(effect: &Effect) -> String {
    match effect {
        Effect::CallScheduler { project, request, .. } => {
            format!("call {project} for {} reporting {}", request.cpu_req_secs, request.results.len())
        }
        Effect::StartTask(setup) => {
            let how = if setup.fresh { "fresh" } else { "resumed" };
            format!("start {} in {}, {how}", setup.name, setup.slot)
        }
        Effect::Download(download) => format!("download {}", download.file.name),
        Effect::Upload(upload) => format!("upload {}", upload.file.name),
        other => format!("{other:?}"),
    }
}

fn host() -> HostFacts {
    let speed = Speed::new(1e9).unwrap();
    HostFacts {
        timezone: 0,
        domain_name: "host".to_owned(),
        ip_addr: "127.0.0.1".to_owned(),
        host_cpid: "0".repeat(32),
        ncpus: 2,
        cpu_vendor: "v".to_owned(),
        cpu_model: "m".to_owned(),
        cpu_features: String::new(),
        speed: HostSpeed { fpops: speed, iops: speed, membw: 1e9, measured_at: 0.0 },
        memory: Bytes::from_mebibytes(8_192),
        cache: Bytes::from_mebibytes(1),
        swap: Bytes(0),
        disk_total: Bytes(100_000_000_000),
        disk_free: Bytes(50_000_000_000),
        os_name: "Linux".to_owned(),
        os_version: "1".to_owned(),
        platforms: vec!["x86_64-pc-linux-gnu".to_owned()],
        coprocessors: Vec::new(),
    }
}
