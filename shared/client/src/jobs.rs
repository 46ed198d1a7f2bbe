//! Jobs from arrival to oblivion: which files they wait for, how they fail, when they are forgotten.

use fallow_boinc::runtime::exit;
use fallow_domain::{Instant, JobId, ResourceType};
use fallow_policy::cpu_schedule::WhyNotRun;
use fallow_policy::job_queue::{Cpus, JobSnapshot, RunState};

use crate::devices::devices_of;
use crate::end_state::EndState;
use crate::machine::Client;
use crate::slots::Leaving;
use crate::state::{FileStatus, Job, Outcome, Process, Stage};
use crate::timers::Timer;
use crate::workload::{Needs, Place};
use crate::{Cause, Effect, FileKey, NoticeLevel};

impl Client {
    /// Works out what is not stored: who uses which file, who waits, who holds a slot, what the policies look
    /// at.
    pub(crate) fn rebuild(&mut self) {
        self.rebuild_projects();
        let versions: Vec<_> = self.state.versions.keys().cloned().collect();
        for key in versions {
            for file in self.version_files(&key) {
                self.use_file(&file);
            }
        }
        let jobs: Vec<JobId> = self.state.jobs.keys().copied().collect();
        for id in jobs {
            self.await_files(id);
            self.reassess(id);
            for file in self.job_files(id) {
                self.use_file(&file);
            }
        }
        let projects: Vec<_> = self.state.projects.keys().copied().collect();
        for project in projects {
            self.estimates_changed(project);
        }
        self.place_transfers();
    }

    /// Takes note of the files that a job waits for.
    fn await_files(&mut self, id: JobId) {
        if self.state.jobs.get(&id).is_some_and(|job| job.stage == Stage::Downloading) {
            for key in self.missing_files(id) {
                self.state.file_use.wait(key, id);
            }
        }
    }

    /// The files that a job reads: its version's and its workunit's.
    pub(crate) fn input_files(&self, job: &Job) -> Vec<FileKey> {
        self.state.input_files(job)
    }

    pub(crate) fn version_files(&self, key: &crate::versions::VersionKey) -> Vec<FileKey> {
        self.state.version_files(key)
    }

    /// The files that a job keeps alive.
    fn job_files(&self, id: JobId) -> Vec<FileKey> {
        let Some(job) = self.state.jobs.get(&id) else { return Vec::new() };
        let mut keys = self.input_files(job);
        keys.extend(job.output_files());
        keys
    }

    fn missing_files(&self, id: JobId) -> Vec<FileKey> {
        let Some(job) = self.state.jobs.get(&id) else { return Vec::new() };
        let here = |key: &FileKey| {
            self.state
                .files
                .get(key)
                .is_some_and(|f| matches!(f.status, FileStatus::Present | FileStatus::Uploaded))
        };
        self.input_files(job).into_iter().filter(|key| !here(key)).collect()
    }

    /// Takes in a job that was checked already.
    pub(crate) fn add_job(&mut self, job: Job) {
        let id = job.id;
        self.insert_job(job);
        for file in self.job_files(id) {
            self.use_file(&file);
        }
        self.reassess(id);
        self.settle_job_files(id);
    }

    /// Starts getting what a job lacks; lets it run when it lacks nothing.
    pub(crate) fn settle_job_files(&mut self, id: JobId) {
        if self.state.jobs.get(&id).is_none_or(|job| job.stage != Stage::Downloading) {
            return;
        }
        let missing = self.missing_files(id);
        // Nothing could ever bring a file that the project has not described.
        if let Some(unknown) = missing.iter().find(|key| !self.state.files.contains_key(*key)) {
            return self.job_lacks_unknown_file(id, unknown);
        }
        for key in &missing {
            self.state.file_use.wait(key.clone(), id);
            self.want_file(key, id);
        }
        if missing.is_empty() {
            self.edit_job(id, |job| job.stage = Stage::Runnable);
        }
    }

    /// Puts a job where it stands now for plans, and says where that is.
    pub(crate) fn place_job(&mut self, id: JobId) -> Place {
        let job = self.state.jobs.get(&id);
        let place = job.map_or(Place::Nowhere, |job| self.place_of(job));
        let needs = job.and_then(|job| self.needs_of(job));
        let moved = self.workload.place(id, &place, needs);
        if moved.queued {
            self.timers.stale(Timer::Schedule);
        }
        if moved.wait {
            self.timers.stale(Timer::Restart);
        }
        place
    }

    fn place_of(&self, job: &Job) -> Place {
        let Some(snapshot) = self.snapshot(job) else { return Place::Nowhere };
        // One that runs does run.
        if snapshot.is_running() {
            return Place::Queued(snapshot);
        }
        let until = self.waits_until(job);
        let forbidden = self.app_configs.is_wrong(job.project);
        match forbidden || until.is_some() || self.can_never_run(&snapshot).is_some() {
            true => Place::Aside(snapshot, until),
            false => Place::Queued(snapshot),
        }
    }

    /// What a CPU job needs that waits for files.
    fn needs_of(&self, job: &Job) -> Option<Needs> {
        let waits = job.stage == Stage::Downloading && job.outcome.is_none();
        (waits && job.usage.main_type() == ResourceType::Cpu).then(|| Needs {
            project: job.project,
            cpus: Cpus::of(job.usage).as_f64(),
            memory: self.memory_estimate(job),
        })
    }

    /// Why a job could not run here even if nothing else did, and nobody used the host.
    fn can_never_run(&self, job: &JobSnapshot) -> Option<WhyNotRun> {
        let ncpus = self.state.host.facts()?.ncpus;
        let mut unused = self.schedule_host(false);
        unused.usable = self.state.host.unused().usable_cpus(ncpus);
        unused.memory_limit = self.memory_limit_unused();
        // Those that rest now are there again later.
        unused.devices = self.usable_devices();
        unused.can_never_run(&job.needs())
    }

    /// Whether a job that is not over cannot run here, whatever else does.
    pub(crate) fn may_never_run(&self, job: &Job) -> bool {
        self.snapshot(job).is_some_and(|snapshot| self.can_never_run(&snapshot).is_some())
    }

    /// Until when a job waits before it is started again, if it does.
    fn waits_until(&self, job: &Job) -> Option<Instant> {
        (job.stage == Stage::Runnable && job.run.not_before > self.now()).then_some(job.run.not_before)
    }

    /// Tells the owner once of a job that cannot run here under the present preferences.
    pub(crate) fn tell_unrunnable(&mut self, job: &JobSnapshot) {
        let Some(why) = self.can_never_run(job) else { return };
        // That passes, and is told of the device.
        if job.usage.coprocessor.is_some_and(|(kind, _)| self.known_devices.is_left_alone(kind)) {
            return;
        }
        let Some(name) = self.state.jobs.get(&job.id).map(|job| job.result.name.clone()) else { return };
        if self.workload.note_told_unrunnable(job.id) {
            let text = format!("{name} cannot run on this host: {why}");
            self.notice(NoticeLevel::Warn, Some(job.project), text);
        }
    }

    fn snapshot(&self, job: &Job) -> Option<JobSnapshot> {
        // Only its process, its slot or its files may still be there.
        if job.outcome.is_some() {
            return None;
        }
        let state = match job.stage {
            // It keeps no instance busy; what it lacks is asked of others.
            Stage::Downloading if self.is_stalled(job) => return None,
            Stage::Downloading => RunState::Downloading,
            Stage::Runnable if matches!(job.process, Process::Aborting(_)) => return None,
            Stage::Runnable if job.process.computes() => RunState::Running {
                slice_began: job.run.slice_since,
                checkpointed_at: job.run.checkpoint_at.unwrap_or(job.run.slice_since),
                devices: job.run.devices,
            },
            Stage::Runnable if job.run.begun => RunState::Preempted,
            Stage::Runnable => RunState::Unstarted,
            Stage::Uploading | Stage::Reporting => return None,
        };
        let working_set = if job.run.begun { job.run.working_set } else { self.memory_estimate(job) };
        Some(JobSnapshot {
            id: job.id,
            project: job.project,
            application: self.app_configs.number(job.project, &job.version.app),
            barred: self.barred(job),
            usage: job.usage,
            state,
            deadline: job.result.report_deadline - self.preferences().connection_interval,
            working_set,
            remaining: self.running_time_left(job),
        })
    }

    /// Whether policies hold of each job what follows from the state as it is now.
    #[cfg(test)]
    pub(crate) fn is_placed(&self) -> bool {
        let mut anew = crate::workload::Workload::default();
        for (id, job) in self.state.jobs.iter() {
            anew.place(*id, &self.place_of(job), self.needs_of(job));
        }
        self.workload.is_like(&anew)
    }

    pub(crate) fn memory_estimate(&self, job: &Job) -> fallow_domain::Bytes {
        let workunit = FileKey { project: job.project, name: job.result.workunit.clone() };
        let bound = self.state.workunits.get(&workunit).and_then(|workunit| workunit.memory_bound);
        bound.unwrap_or(fallow_domain::Bytes(100_000_000))
    }

    /// A job has failed: what there is of its outputs is still sent, and the failure reported. Its project is
    /// contacted less (R1.3 c).
    pub(crate) fn job_failed(
        &mut self,
        id: JobId,
        exit_status: i32,
        state: EndState,
        message: impl Into<String>,
    ) {
        let message = message.into();
        let Some(job) = self.state.jobs.get(&id).filter(|job| job.outcome.is_none()) else { return };
        let (project, name) = (job.project, job.result.name.clone());
        let (said, stderr, at) = (Some(message.clone()), String::new(), self.now());
        self.edit_job(id, |job| {
            job.outcome = Some(Outcome { exit_status, state, message: said, stderr, at });
        });
        let what = exit::name(exit_status).map_or(String::new(), |name| format!(" ({name})"));
        self.notice(
            NoticeLevel::Error,
            Some(project),
            format!("{name} failed with {exit_status}{what}: {message}"),
        );
        // A job that somebody did not want any more says nothing about the project.
        if state != EndState::Aborted {
            let now = self.now();
            self.with_rpc(project, |rpc, rng| rpc.on_job_failure(now, rng));
        }
        if !self.state.jobs.get(&id).is_some_and(|job| job.process.exists()) {
            self.settle_failed(id);
        }
    }

    /// A failed job without a process: on to the upload of what there is, or the report.
    pub(crate) fn settle_failed(&mut self, id: JobId) {
        self.free_slot(id);
        self.settle_outputs(id);
    }

    /// Ends a job that somebody does not want any more.
    pub(crate) fn abort_job(&mut self, id: JobId, exit_status: i32, why: &Cause) {
        let Some(job) = self.state.jobs.get(&id) else { return };
        if matches!(job.stage, Stage::Uploading | Stage::Reporting) {
            return;
        }
        if job.process.exists() {
            let pid = job.process.pid();
            self.act(Effect::AbortTask { job: id }, why.clone());
            self.set_process(id, Process::Aborting(pid));
        }
        self.job_failed(id, exit_status, EndState::Aborted, why.to_string());
    }

    /// Sends the outputs that are there; with none left to send, the job can be reported.
    pub(crate) fn settle_outputs(&mut self, id: JobId) {
        let Some(job) = self.state.jobs.get(&id) else { return };
        let project = job.project;
        let mut sending = false;
        for key in job.output_files() {
            let Some(file) = self.state.files.get(&key) else { continue };
            let send = file.found.is_some()
                && !file.info.upload_urls.is_empty()
                && file.status == FileStatus::Present;
            if send && file.transfer.is_none() {
                self.start_upload(&key);
            }
            sending |= send;
        }
        let stage = if sending { Stage::Uploading } else { Stage::Reporting };
        self.edit_job(id, |job| job.stage = stage);
        if stage == Stage::Reporting {
            // Not before: until it is reported, its server counts it as held.
            self.part_is_done(project);
        }
    }

    /// An output is sent or given up.
    pub(crate) fn output_settled(&mut self, key: &FileKey) {
        let uploading = |id: &JobId| self.state.jobs.uploading().contains(id);
        let found: Vec<JobId> = self.state.jobs.writers(key).filter(uploading).collect();
        for id in found {
            self.output_of_job_settled(id, key);
        }
    }

    fn output_of_job_settled(&mut self, id: JobId, key: &FileKey) {
        let failed =
            self.state.files.get(key).is_some_and(|file| matches!(file.status, FileStatus::Failed(..)));
        if failed {
            self.edit_job(id, |job| {
                // BOINC's client reports such a job as done; a server would look for an output that never
                // comes.
                if let Some(outcome) = job.outcome.as_mut().filter(|outcome| outcome.exit_status == 0) {
                    outcome.state = EndState::UploadFailed;
                    outcome.exit_status = exit::UPLOAD_FAILED;
                    outcome.message = Some(format!("{} could not be uploaded", key.name));
                }
            });
        }
        self.settle_outputs(id);
    }

    /// The server knows how the job ended, or nobody wants to know: everything of it goes.
    pub(crate) fn forget_job(&mut self, id: JobId, is_reported: bool) {
        self.give_back_slot(id);
        let files = self.job_files(id);
        let Some(job) = self.remove_job(id) else { return };
        self.book_job(&job, is_reported);
        for key in files {
            self.state.file_use.wait_no_more(&key, id);
            self.unuse_file(&key);
        }
    }

    /// Gives back the slot of a job that is forgotten: at once, or when its process has left.
    fn give_back_slot(&mut self, id: JobId) {
        let Some(job) = self.state.jobs.get(&id).filter(|job| job.process.exists()) else {
            return self.free_slot(id);
        };
        let on = devices_of(job);
        if let Some(slot) = self.edit_job(id, |job| job.slot.take()).flatten() {
            self.state.slots.leave(id, Leaving { slot, on });
        }
    }

    /// The process of a forgotten job is gone: nobody is in its slot any more.
    pub(crate) fn left(&mut self, id: JobId) {
        if let Some(Leaving { slot, on }) = self.state.slots.left(id) {
            // Whoever waits for its device can begin.
            if on.is_some() {
                self.want_schedule();
            }
            self.act(Effect::CleanSlot { slot }, Cause::ProcessGone);
        }
    }

    /// Empties and gives back a job's slot.
    pub(crate) fn free_slot(&mut self, id: JobId) {
        if let Some(slot) = self.edit_job(id, |job| job.slot.take()).flatten() {
            self.act(Effect::CleanSlot { slot }, Cause::JobOver);
        }
    }
}
