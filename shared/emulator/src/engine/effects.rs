//! Carries out what the client asks for.

use fallow_boinc::runtime::exit::Ended;
use fallow_boinc::scheduler::SchedulerRequest;
use fallow_client::{
    Action, Effect, Event, FileKey, StartFault, Step, TaskSetup, TransferError, TransferErrorKind,
};
use fallow_domain::{Bytes, Duration, JobId, MasterUrl, ProjectId};
use fallow_policy::confinement::TaskLayers;

use super::arrival::{Arrival, DeferredList};
use super::calendar::CalendarEvent;
use super::host::TaskStart;
use super::jobs::number_of;
use super::machine::Machine;
use super::setup::place;
use super::world::Shared;

impl Machine {
    pub(super) fn carry_out(&mut self, shared: &mut Shared<'_>, step: Step) {
        self.wake_at = step.wake_at;
        for Action { effect, .. } in step.actions {
            self.effect(shared, effect);
        }
    }

    fn effect(&mut self, shared: &mut Shared<'_>, effect: Effect) {
        match effect {
            Effect::FetchMasterPage { project, url } => {
                if shared.options.rpc_latency.is_positive() {
                    self.calendar
                        .enter(self.clock + shared.options.rpc_latency, CalendarEvent::Page { project, url });
                } else {
                    self.read_page(shared, project, &url);
                }
            }
            Effect::CallScheduler { project, mut request, .. } => {
                if shared.composition.send.needs_on_time() {
                    self.client.tell_on_time(&mut request);
                }
                if shared.options.rpc_latency.is_positive() {
                    if shared.composition.send.needs_workload() {
                        self.client.list_workload(&mut request);
                    }
                    self.calendar.enter(
                        self.clock + shared.options.rpc_latency,
                        CalendarEvent::Answer { project, request },
                    );
                } else {
                    self.answer(shared, project, *request);
                }
            }
            Effect::Download(download) => {
                let nbytes = download.nbytes.unwrap_or_default();
                self.begin_transfer(shared, download.file, false, nbytes);
            }
            Effect::Upload(upload) => self.begin_transfer(shared, upload.file, true, upload.nbytes),
            Effect::StartTask(setup) => self.start_task(shared, *setup),
            Effect::ResumeTask { job } => {
                if let Some((ends_at, turn)) = self.tasks.resume(job, self.clock) {
                    self.task_runs(shared, job, ends_at, turn);
                }
            }
            Effect::SuspendTask { job } => {
                if self.tasks.suspend(job, self.clock)
                    && let Some(recorder) = &mut self.recorder
                {
                    recorder.stops(job, self.now);
                }
            }
            Effect::QuitTask { job } => self.end_task(shared, job, QUIT),
            Effect::AbortTask { job } | Effect::KillTask { job } => self.end_task(shared, job, ABORTED),
            // Bytes that a transfer which was given up would still have sent are not taken back; no server
            // here hangs.
            // Nobody sits at a simulated host, either.
            Effect::CancelTransfer { .. }
            | Effect::FreezeTasks
            | Effect::GiveUpRpc { .. }
            | Effect::CleanSlot { .. }
            | Effect::DeliverTrickle { .. }
            | Effect::TellUpload { .. }
            | Effect::DeleteFile { .. }
            | Effect::DeleteProject { .. }
            | Effect::MeasureSpeed
            | Effect::GiveUpMeasuring
            | Effect::MeasureDisk
            | Effect::WatchDevices(_)
            | Effect::LinkAnew
            | Effect::TellVerdict { .. }
            | Effect::Notice { .. } => {}
        }
    }

    /// The scenario's place of a project.
    pub(super) fn place_of(&self, project: ProjectId) -> Option<usize> {
        self.ids.iter().position(|id| *id == project)
    }

    pub(super) fn read_page(&mut self, shared: &mut Shared<'_>, project: ProjectId, url: &MasterUrl) {
        let Some(index) = place(url) else { return };
        if self.ids.len() <= index {
            self.ids.resize(index + 1, ProjectId(u32::MAX));
        }
        if self.ids[index] != project {
            self.ids[index] = project;
            let correction = shared.servers.get(index).map_or(1.0, |server| server.model.correction);
            if correction != 1.0 {
                self.client.adopt_correction(project, correction);
            }
        }
        let up = shared.servers.get_mut(index).is_some_and(|server| server.up.is_on(self.now));
        let outcome = if up { Ok(vec![format!("{url}scheduler")]) } else { Err(down()) };
        self.soon.push_back(Event::MasterPageRead { project, outcome });
    }

    pub(super) fn answer(&mut self, shared: &mut Shared<'_>, project: ProjectId, request: SchedulerRequest) {
        let Some(place) = self.place_of(project) else { return };
        let Some(server) = shared.servers.get_mut(place) else { return };
        server.counts.rpcs += 1;
        if !server.up.is_on(self.now) {
            server.counts.rpcs_failed += 1;
            self.soon.push_back(Event::SchedulerAnswered { project, outcome: Err(down()) });
            return;
        }
        let mut reports = Vec::new();
        let (instances, composition) = (&shared.instances, &shared.composition);
        let list = |request: &mut SchedulerRequest| self.client.list_workload(request);
        let is_listed = request.in_progress_results.is_some();
        let deferred = (composition.send.needs_workload() && !is_listed)
            .then(|| DeferredList { sums: self.client.workload_sums(), list: &list });
        let arrival = Arrival { host: self.number, request, deferred };
        let reply = server.answer(arrival, instances, composition, self.now, &mut reports);
        if self.recorder.is_some() {
            for report in &reports {
                self.ended_job(place, report.number, &report.job, report.failed);
            }
        }
        let held = shared.servers.iter().map(|server| server.jobs.len()).sum();
        shared.account.holds(held, self.now);
        self.soon.push_back(Event::SchedulerAnswered { project, outcome: Ok(Box::new(reply)) });
    }

    fn begin_transfer(&mut self, shared: &mut Shared<'_>, file: FileKey, upload: bool, nbytes: Bytes) {
        let host = &shared.scenario.host;
        let bandwidth = if upload { host.upload } else { host.download };
        let Some(bandwidth) = bandwidth.filter(|_| nbytes > Bytes(0)) else {
            return self.transfer_over(shared, file, upload, None);
        };
        let Some(server) = self.place_of(file.project).and_then(|place| shared.servers.get_mut(place)) else {
            return;
        };
        if !server.up.is_on(self.now) {
            return self.transfer_over(shared, file, upload, None);
        }
        let changes = server.up.changes();
        let free = &mut self.link_free[usize::from(upload)];
        *free = (*free).max(self.clock) + bandwidth.time_for(nbytes).max(Duration::from_micros(1));
        let at = *free;
        self.calendar.enter(at, CalendarEvent::Transfer { file, upload, changes });
    }

    /// A transfer is over: well, if its server is up and has been so since `changes` was counted.
    pub(super) fn transfer_over(
        &mut self,
        shared: &mut Shared<'_>,
        file: FileKey,
        upload: bool,
        changes: Option<u64>,
    ) {
        let server = self.place_of(file.project).and_then(|place| shared.servers.get_mut(place));
        let up = server.is_some_and(|server| {
            server.up.is_on(self.now) && changes.is_none_or(|changes| server.up.changes() == changes)
        });
        self.soon.push_back(match (upload, up) {
            (true, _) => Event::UploadEnded { file, outcome: if up { Ok(()) } else { Err(down()) } },
            (false, _) => Event::DownloadEnded { file, outcome: if up { Ok(Bytes(0)) } else { Err(down()) } },
        });
    }

    fn start_task(&mut self, shared: &mut Shared<'_>, setup: TaskSetup) {
        let job = setup.job;
        let begun = self.begin_task(shared, setup);
        self.soon.push_back(match begun {
            Some(()) => Event::TaskStarted { job, pid: 1, without: TaskLayers::default() },
            None => Event::TaskStartFailed {
                job,
                reason: "no project has sent such a job".to_owned(),
                fault: StartFault::Job,
            },
        });
    }

    fn begin_task(&mut self, shared: &mut Shared<'_>, setup: TaskSetup) -> Option<()> {
        let (project, number) = (place(&setup.url)?, number_of(&setup.name)?);
        let server = shared.servers.get_mut(project)?;
        let sent = server.jobs.get_mut(number)?;
        if setup.fresh {
            sent.kept = Duration::ZERO;
        }
        let application = server.supply.applications.get(sent.application)?;
        let output = setup.files.into_iter().find(|file| file.output);
        let begin = TaskStart {
            project,
            number,
            usage: application.usage,
            memory: application.model.memory,
            length: sent.length,
            fails_at: sent.fails_at,
            interval: application.model.checkpoint,
            base: sent.kept,
            output: output.map(|file| (file.name, application.model.output)),
        };
        let (ends_at, turn) = self.tasks.begin(setup.job, begin, self.clock);
        self.task_runs(shared, setup.job, ends_at, turn);
        Some(())
    }

    fn task_runs(&mut self, shared: &Shared<'_>, job: JobId, ends_at: Duration, turn: u32) {
        self.calendar.enter(ends_at, CalendarEvent::End { job, turn });
        self.plan_checkpoint(shared, job);
        if let Some(recorder) = &mut self.recorder
            && let Some(task) = self.tasks.get(job)
        {
            recorder.runs(job, task.usage, task.project, task.number, self.now);
        }
    }

    /// A client waits for checkpoints of tasks that it takes out of memory when it preempts them: of those on
    /// coprocessors whatever the preferences say. Of others it need not hear of each.
    pub(super) fn plan_checkpoint(&mut self, shared: &Shared<'_>, job: JobId) {
        let stays = shared.scenario.client.leave_in_memory;
        let task = self.tasks.get(job).filter(|task| !stays || task.usage.coprocessor.is_some());
        let next = task.and_then(|task| Some((task.next_checkpoint(self.clock)?, task.turn)));
        if let Some((at, turn)) = next {
            self.calendar.enter(at, CalendarEvent::Checkpoint { job, turn });
        }
    }
}

/// A process that was asked to leave exits with 0 and no finish file.
const QUIT: Ended = Ended::Code(0);
/// BOINC's exit code of a process that was told to give up.
const ABORTED: Ended = Ended::Code(194);

fn down() -> TransferError {
    TransferError::new(TransferErrorKind::Transient, "the project's server is down")
}
