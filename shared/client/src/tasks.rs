//! Tasks: jobs that have, had, or will have a process. What happened to the process, and what that
//! means; also that a full disk ended it (R4.12).

use std::collections::BTreeSet;

use fallow_boinc::runtime::exit::{self, RestartReason};
use fallow_boinc::runtime::message::AppStatus;
use fallow_domain::{Bytes, Duration, Instant, JobId};
use fallow_policy::confinement::TaskLayers;

use crate::devices::devices_of;
use crate::end_state::EndState;
use crate::machine::Client;
use crate::set_aside::is_due;
use crate::state::{FileStatus, Job, Outcome, Process, Stage};
use crate::timers::Timer;
use crate::{
    Cause, DiskHeld, Effect, FileKey, Goes, LimitExceeded, NoticeLevel, StartFault, TaskEnd, TaskSample,
};

/// How much of `stderr.txt` a report carries.
const STDERR_MAX: usize = 63 * 1024;
/// The first wait after a start that the host could not bring about; it doubles.
const START_WAIT: Duration = Duration::from_secs(60);
/// The longest one.
const START_WAIT_MAX: Duration = Duration::from_secs(3600);
/// So often in a row another slot, or files that are fetched again, are tried without a wait.
const START_TRIES: u32 = 3;
/// The first wait of a task that was ended to make room on a full disk; it doubles, up to [`START_WAIT_MAX`].
const SPACE_WAIT: Duration = Duration::from_mins(10);
/// The first wait after an exit without a finish file; it doubles. A program that does not use BOINC's
/// library would else be started ten times a second.
const EXIT_WAIT: Duration = Duration::from_secs(10);
/// The longest one.
const EXIT_WAIT_MAX: Duration = Duration::from_secs(600);
/// An exit so soon after its start is no accident of a loaded host, whose applications leave after half a
/// minute without a heartbeat and have computed by then.
const QUICK: Duration = Duration::from_secs(20);
/// So many quick exits in a row fail the job: it would do the same a hundred times.
const QUICK_EXITS_MAX: u32 = 5;

impl Client {
    /// The process is gone: the task stands where its last checkpoint was.
    pub(crate) fn fall_back(&mut self, id: JobId) {
        self.edit_job(id, |job| {
            job.run.base = job.run.checkpoint_cpu;
            job.run.process_cpu = Duration::ZERO;
            job.run.swap = Bytes(0);
            job.run.elapsed = job.run.checkpoint_elapsed;
            job.run.fraction_done = job.run.checkpoint_fraction;
            job.run.live = false;
            job.process = Process::None;
        });
    }

    pub(crate) fn task_started(&mut self, id: JobId, pid: u32, without: TaskLayers) {
        let before = self.edit_job(id, |job| {
            job.given.without = without;
            job.run.ran |= job.process.exists();
            job.run.failed_starts = 0;
            // It computes again.
            job.run.end_elapsed = Duration::ZERO;
            let now = match job.process {
                Process::Starting => Process::Executing(pid),
                Process::Quitting(_) => Process::Quitting(Some(pid)),
                Process::Aborting(_) => Process::Aborting(Some(pid)),
                same @ (Process::None | Process::Executing(_) | Process::Suspended(_)) => same,
            };
            std::mem::replace(&mut job.process, now)
        });
        match before {
            // Forgotten while it was being started.
            None => self.act(Effect::AbortTask { job: id }, Cause::JobGone),
            Some(Process::Starting) if self.is_paused(id) => {
                self.act(Effect::SuspendTask { job: id }, Cause::BegunInPause);
            }
            Some(_) => {}
        }
        // Required since its start was decided.
        self.take_unconfined_off();
    }

    pub(crate) fn task_start_failed(&mut self, id: JobId, reason: String, fault: StartFault) {
        let Some(job) = self.state.jobs.get(&id) else { return self.left(id) };
        if !job.process.exists() {
            return;
        }
        if job.outcome.is_some() || fault == StartFault::Job {
            // Nothing to do where it is over already.
            self.job_failed(id, exit::START_FAILED, EndState::ComputeError, reason);
            self.process_gone(id);
            return self.settle_failed(id);
        }
        let (project, job_name, slot) = (job.project, job.result.name.clone(), job.slot);
        let failures = job.run.failed_starts.saturating_add(1);
        let wait = match &fault {
            // Another slot, or the file that is fetched, is likely to help at once. Not for ever.
            StartFault::Slot | StartFault::Files(_) if failures <= START_TRIES => Duration::ZERO,
            _ => doubled(START_WAIT, failures - 1, START_WAIT_MAX),
        };
        let not_before = self.wait_for(wait);
        self.edit_job(id, |job| {
            job.process = Process::None;
            job.run.live = false;
            job.run.failed_starts = failures;
            job.run.not_before = not_before;
        });
        let next = match &fault {
            StartFault::Slot => "it takes another slot".to_owned(),
            StartFault::Files(names) => format!("getting {} again", names.join(", ")),
            _ => format!("this host's trouble, not the job's; trying again in {wait}"),
        };
        self.notice(
            NoticeLevel::Warn,
            Some(project),
            format!("{job_name} could not be started: {reason}; {next}"),
        );
        match fault {
            StartFault::Slot => {
                if let Some(slot) = slot {
                    self.state.slots.spoil(slot, self.now());
                }
                self.begin_anew(id);
            }
            StartFault::Files(names) => self.fetch_again(id, &names),
            // A full disk, perhaps.
            StartFault::Host => self.disk_was_full(),
            StartFault::Job => {}
        }
    }

    /// Whether a file is one of a job's application.
    fn is_of_version(&self, id: JobId, name: &str) -> bool {
        let version = self.state.jobs.get(&id).and_then(|job| self.state.versions.get(&job.version));
        version.is_some_and(|version| version.files.iter().any(|file| file.file_name == name))
    }

    /// Files that a job needs are gone or were changed since they came.
    fn fetch_again(&mut self, id: JobId, names: &[String]) {
        let Some(project) = self.edit_job(id, |job| {
            job.stage = Stage::Downloading;
            job.project
        }) else {
            return;
        };
        for name in names {
            let key = FileKey { project, name: name.clone() };
            let is_program = self.is_of_version(id, name);
            self.edit_file(&key, |file| {
                if file.status == FileStatus::Present {
                    file.status = FileStatus::Absent;
                }
                // An older version may have stored it as one that needs no signature.
                file.signed |= is_program;
            });
        }
        self.settle_job_files(id);
    }

    pub(crate) fn tasks_sampled(&mut self, samples: &[TaskSample]) {
        let contested = self.is_contested();
        let allowed = self.threads_allowed();
        let crowds: Vec<(JobId, u32)> = samples
            .iter()
            .filter(|sample| sample.threads > allowed)
            .map(|sample| (sample.job, sample.threads))
            .collect();
        for sample in samples {
            if !self.state.jobs.get(&sample.job).is_some_and(|job| job.process.exists()) {
                continue;
            }
            self.look_at(sample.job, sample.cpu_time, contested, sample.status.as_ref(), |job| {
                job.run.peak_working_set = job.run.peak_working_set.max(sample.working_set);
                job.run.working_set = smooth(job.run.working_set, sample.working_set);
                job.run.swap = sample.swap.unwrap_or(job.run.swap);
                if let Some(held) = sample.disk {
                    job.run.disk_held = held;
                    job.run.disk_usage = job.run.disk_usage.max(held.all);
                }
            });
        }
        for (id, threads) in crowds {
            self.end_beyond(id, exit::ABORTED_BY_CLIENT, LimitExceeded::Threads { threads, allowed });
        }
        if samples.iter().any(|sample| sample.swap.is_some()) {
            self.keep_swap_limit();
        }
        for (id, why) in self.unheeding(samples) {
            self.end_beyond(id, exit::MEM_LIMIT_EXCEEDED, why);
        }
    }

    /// Charges what the process used since the last look, and notices checkpoints.
    pub(crate) fn note_progress(&mut self, id: JobId, process_cpu: Duration, status: Option<&AppStatus>) {
        let contested = self.is_contested();
        self.look_at(id, process_cpu, contested, status, |_| {});
    }

    fn look_at(
        &mut self,
        id: JobId,
        process_cpu: Duration,
        contested: bool,
        status: Option<&AppStatus>,
        change: impl FnOnce(&mut Job),
    ) {
        let now = self.now();
        let Some(job) = self.state.jobs.get(&id) else { return };
        let (project, more) = (job.project, (process_cpu - job.run.process_cpu).max(Duration::ZERO));
        self.charge(id, project, more, contested);
        self.sample_job(id, |job| {
            change(job);
            job.run.charged += more;
            job.run.process_cpu += more;
            if let Some(status) = status {
                note_status(job, status, now);
            }
        });
    }

    /// What a process used counts towards the result, and is charged already. So does the time that it took.
    fn note_charged(&mut self, id: JobId, process_cpu: Duration) {
        self.edit_job(id, |job| {
            job.run.process_cpu = job.run.process_cpu.max(process_cpu);
            job.run.elapsed = job.run.elapsed.max(job.run.end_elapsed);
        });
    }

    /// From when on a job that waits so long may be started.
    fn wait_for(&self, wait: Duration) -> Instant {
        if wait.is_positive() { self.now() + wait } else { Instant::EPOCH }
    }

    fn process_gone(&mut self, id: JobId) {
        self.edit_job(id, |job| {
            job.process = Process::None;
            job.run.live = false;
            job.run.disk_held = DiskHeld::default();
        });
    }

    pub(crate) fn task_ended(&mut self, id: JobId, end: &TaskEnd) {
        let Some(job) = self.state.jobs.get(&id) else { return self.left(id) };
        if !job.process.exists() {
            // Its end was seen before; what it used is charged.
            return;
        }
        match end.is_charged {
            true => self.note_charged(id, end.cpu_time),
            false => self.note_progress(id, end.cpu_time, None),
        }
        let ended = end.exit.meaning(end.finish.as_ref(), end.temporary_exit.as_ref());
        let has_finished = matches!(ended, exit::ExitMeaning::Finished);
        match end.made_room.is_some_and(|why| !has_finished || why == Goes::NotWanted) {
            true => self.outputs_gone(id),
            false => self.outputs_found(id, end),
        }
        let Some(job) = self.state.jobs.get(&id) else { return };
        let expected = matches!(job.process, Process::Quitting(_));
        let was_over = job.outcome.is_some();
        let is_finished = !was_over && matches!(ended, exit::ExitMeaning::Finished);
        let failure = match &ended {
            _ if was_over => None,
            exit::ExitMeaning::Finished => self.bad_output(id),
            // It would need as much once more, wherever it goes on.
            _ if let Some(most) = end.memory_exceeded => {
                let why = LimitExceeded::MemoryHeld { most };
                Some((exit::MEM_LIMIT_EXCEEDED, why.to_string()))
            }
            exit::ExitMeaning::Failed { exit_status, message } => {
                // One device of many may be broken (R3.14).
                let on = devices_of(job).map(|(kind, devices)| self.ran_on(kind, devices));
                Some((*exit_status, format!("{message}{}", on.unwrap_or_default())))
            }
            // It would fill the disk once more before it is looked at.
            exit::ExitMeaning::Restart { .. } => self
                .over_disk_bound(id, end.disk_usage)
                .map(|over| (exit::DISK_LIMIT_EXCEEDED, over.to_string())),
        };
        let goes_on = !was_over && failure.is_none();
        if let Some((exit_status, message)) = failure {
            if end.memory_exceeded.is_some() {
                self.note_forbidden();
            }
            self.job_failed(id, exit_status, EndState::ComputeError, message);
        }
        let (stderr, at) = (tail(&end.stderr), self.now());
        let gone = |job: &mut Job| {
            job.process = Process::None;
            job.run.live = false;
            job.run.ran = true;
            job.run.disk_held = DiskHeld::default();
            job.run.peak_working_set = job.run.peak_working_set.max(end.peak_working_set);
            job.run.disk_usage = job.run.disk_usage.max(end.disk_usage);
            if is_finished {
                job.run.fraction_done = 1.0;
            }
            match &mut job.outcome {
                // It failed, or it was aborted, and now it is gone.
                Some(outcome) => outcome.stderr = stderr,
                None if is_finished => {
                    job.outcome =
                        Some(Outcome { exit_status: 0, state: EndState::Done, message: None, stderr, at });
                    return true;
                }
                None => {}
            }
            false
        };
        let succeeded = if is_finished { self.finish_job(id, gone) } else { self.edit_job(id, gone) };
        match ended {
            _ if succeeded == Some(true) => self.task_finished(id),
            exit::ExitMeaning::Restart { delay, reason } if goes_on => match end.made_room {
                Some(why) => self.task_to_wait_for_space(id, &reason, end.disk_usage, why),
                None => self.task_to_restart(id, delay, &reason, end.killed.as_deref(), expected),
            },
            _ => self.settle_failed(id),
        }
    }

    /// A task gave way to what has to be stored. It may hold so much, and this host had no more: it begins
    /// anew when there may be more, later each time.
    fn task_to_wait_for_space(&mut self, id: JobId, reason: &RestartReason, held: Bytes, why: Goes) {
        let Some((wait, project, name)) = self.edit_job(id, |job| {
            let wait = doubled(SPACE_WAIT, job.run.made_room, START_WAIT_MAX);
            job.run.made_room = job.run.made_room.saturating_add(1);
            (wait, job.project, job.result.name.clone())
        }) else {
            return;
        };
        self.task_to_restart(id, wait, reason, None, true);
        self.begin_anew(id);
        let why = match why {
            Goes::NotWanted => "its project was to be detached".to_owned(),
            Goes::OverBound => format!("it held {held}, more than it may"),
            Goes::Finished => "its task had finished".to_owned(),
            Goes::HoldsMost => {
                format!(
                    "of the jobs that computed those of its project held most, and this one most of them, {held}"
                )
            }
        };
        let text = format!(
            "{name} was ended to make room, for there was no space on the disk: {why}; it begins anew in {wait}"
        );
        self.notice(NoticeLevel::Warn, Some(project), text);
    }

    fn task_to_restart(
        &mut self,
        id: JobId,
        delay: Duration,
        reason: &RestartReason,
        killed: Option<&str>,
        expected: bool,
    ) {
        // Before it falls back: how long this try has lasted.
        let lasted = self.edit_job(id, |job| {
            job.run.end_elapsed = job.run.end_elapsed.max(job.run.elapsed);
            job.run.elapsed - job.run.checkpoint_elapsed
        });
        self.fall_back(id);
        let Some(job) = self.state.jobs.get(&id) else { return };
        let counts = !expected && !matches!(reason, RestartReason::Stopped(_));
        let asked = matches!(reason, RestartReason::Temporary(_));
        let is_quick = !expected && !asked && lasted.is_none_or(|lasted| lasted < QUICK);
        let exits = job.run.premature_exits + u32::from(counts);
        let quick = if is_quick { job.run.quick_exits + 1 } else { 0 };
        // Where the original starts it again at once.
        let wait = match reason {
            RestartReason::Premature if counts => doubled(EXIT_WAIT, exits - 1, EXIT_WAIT_MAX),
            // Once may be the host going down. A job that stops itself again and again is no better than one
            // that exits.
            RestartReason::Stopped(_) if quick > 1 => doubled(EXIT_WAIT, quick - 2, EXIT_WAIT_MAX),
            _ => delay,
        };
        let wait = wait.max(delay);
        let (project, name, checkpoint) = (job.project, job.result.name.clone(), job.run.checkpoint_cpu);
        // One that was told to leave may have to stay away.
        let not_before = self.wait_for(wait).max(job.run.not_before);
        self.edit_job(id, |job| {
            (job.run.premature_exits, job.run.quick_exits) = (exits, quick);
            job.run.not_before = not_before;
        });
        let gives_up = match (exits > exit::PREMATURE_EXITS_MAX, counts && quick >= QUICK_EXITS_MAX) {
            (true, _) => Some(format!("{exits} times, without a checkpoint in between")),
            (_, true) => Some(format!("{quick} times in a row, each time within 20 s of its start")),
            (false, false) => None,
        };
        if let Some(times) = gives_up {
            let message = format!("too many exit(0)s: the application left without having finished {times}");
            return self.job_failed(id, exit::TOO_MANY_EXITS, EndState::ComputeError, message);
        }
        if !expected {
            let why = match reason {
                RestartReason::Stopped(_) if let Some(why) = killed => {
                    format!("was killed by this agent, for {why}")
                }
                RestartReason::Premature => "exited with 0 and has not said that it is finished".to_owned(),
                RestartReason::Temporary(exit) => format!("asked to be started again later: {}", exit.reason),
                RestartReason::Stopped(signal) => format!("was stopped by signal {signal}"),
            };
            let from = match checkpoint.is_positive() {
                true => format!("from its checkpoint at {checkpoint} of CPU time"),
                false => "and has told of no checkpoint: unless it has kept one for itself, it begins anew"
                    .to_owned(),
            };
            let when = if wait.is_positive() { format!(" in {wait}") } else { String::new() };
            self.notice(
                NoticeLevel::Warn,
                Some(project),
                format!("{name} {why}; it is started again{when} {from}"),
            );
        }
    }

    /// The application says it is done, and its outputs are as they should be: they are sent, and the job
    /// reported.
    fn task_finished(&mut self, id: JobId) {
        let Some(job) = self.state.jobs.get(&id) else { return };
        let (project, name, cpu) = (job.project, job.result.name.clone(), job.run.cpu());
        self.learn_estimate(id, self.estimated_total(id));
        let text = self.said(|| format!("finished {name} after {cpu} of CPU time"));
        self.notice(NoticeLevel::Info, Some(project), text);
        self.free_slot(id);
        self.settle_outputs(id);
    }

    /// An output that is missing or too large fails the whole job.
    fn bad_output(&self, id: JobId) -> Option<(i32, String)> {
        let job = self.state.jobs.get(&id)?;
        let allowed = self.disk_bound(job);
        job.result.files.iter().find_map(|output| {
            let key = FileKey { project: job.project, name: output.file_name.clone() };
            let file = self.state.files.get(&key)?;
            let name = &output.file_name;
            match (&file.found, file.info.max_nbytes) {
                (None, _) if !output.optional => {
                    Some((exit::OUTPUT_MISSING, upload_error(name, exit::OUTPUT_MISSING)))
                }
                (Some((nbytes, _)), Some(max)) if max > Bytes(0) && *nbytes > max => {
                    Some((exit::OUTPUT_TOO_BIG, upload_error(name, exit::OUTPUT_TOO_BIG)))
                }
                // Nobody has read it, for with those before it it was too much.
                (Some((_, md5)), _) if md5.is_empty() => {
                    let held = self.found_of_outputs(job);
                    let over = LimitExceeded::Disk { held, nameless: Bytes(0), allowed };
                    Some((exit::DISK_LIMIT_EXCEEDED, over.to_string()))
                }
                _ => None,
            }
        })
    }

    /// What was found of all outputs of a job together.
    fn found_of_outputs(&self, job: &Job) -> Bytes {
        let found = |key: FileKey| Some(self.state.files.get(&key)?.found.as_ref()?.0);
        job.output_files().into_iter().filter_map(found).fold(Bytes(0), Bytes::plus)
    }

    fn outputs_found(&mut self, id: JobId, end: &TaskEnd) {
        let Some(project) = self.state.jobs.get(&id).map(|job| job.project) else { return };
        for output in &end.outputs {
            let key = FileKey { project, name: output.name.clone() };
            let is_stale = self.edit_file(&key, |file| {
                if file.status == FileStatus::Uploaded {
                    // It was sent early, and is not sent again (BOINC likewise): a server would append what
                    // is longer by now.
                    return false;
                }
                let found = Some((output.nbytes, output.md5.clone()));
                let before = std::mem::replace(&mut file.found, found).unwrap_or_default();
                let is_changed = before != Default::default() && file.found.as_ref() != Some(&before);
                // What is being sent early is not what it has become.
                let is_stale = is_changed && file.transfer.take().is_some();
                if is_stale || (is_changed && matches!(file.status, FileStatus::Failed(..))) {
                    file.stale = file.stale.max(before.0);
                }
                // One that its project would refuse is not sent (BOINC likewise), and may not even have been
                // read.
                let is_too_big =
                    file.info.max_nbytes.is_some_and(|max| max > Bytes(0) && output.nbytes > max);
                let failed = |status, why: &str| FileStatus::Failed(status, why.to_owned());
                file.status = match (is_too_big, output.md5.is_empty()) {
                    (true, _) => failed(exit::OUTPUT_TOO_BIG, "larger than its project takes"),
                    (false, true) => failed(exit::DISK_LIMIT_EXCEEDED, "larger than its job's files may be"),
                    (false, false) => FileStatus::Present,
                };
                is_stale
            });
            if is_stale.is_some() {
                self.disk.output_found(output.nbytes);
            }
            if is_stale == Some(true) {
                self.act(Effect::CancelTransfer { file: key }, Cause::WrittenSince);
            }
        }
    }

    /// The outputs of a job without a process were deleted to make room. They may have been on their way.
    pub(crate) fn outputs_deleted(&mut self, id: JobId) {
        self.outputs_gone(id);
        if self.state.jobs.get(&id).is_none_or(|job| job.stage != Stage::Uploading) {
            return;
        }
        self.edit_job(id, |job| {
            if let Some(outcome) = job.outcome.as_mut().filter(|outcome| outcome.is_success()) {
                outcome.state = EndState::UploadFailed;
                outcome.exit_status = exit::UPLOAD_FAILED;
                outcome.message = Some("its outputs were deleted to make room on a full disk".to_owned());
            }
        });
        self.settle_outputs(id);
    }

    /// The outputs of a job were deleted to make room. Those that its project has stay as they are.
    pub(crate) fn outputs_gone(&mut self, id: JobId) {
        let outputs = self.state.jobs.get(&id).map(Job::output_files).unwrap_or_default();
        for key in outputs {
            let is_sent = self.edit_file(&key, |file| {
                if file.status == FileStatus::Uploaded {
                    return false;
                }
                let is_sent = file.transfer.take().is_some();
                let before = file.found.take().unwrap_or_default().0;
                if is_sent || matches!(file.status, FileStatus::Failed(..)) {
                    // Its server may have some of what it was.
                    file.stale = file.stale.max(before);
                }
                file.status = FileStatus::Absent;
                is_sent
            });
            if is_sent == Some(true) {
                self.act(Effect::CancelTransfer { file: key }, Cause::MadeRoom);
            }
        }
    }

    /// Tasks that waited for their own reasons can run now.
    pub(crate) fn wake_tasks(&mut self) {
        if !self.timers.may_be_due(Timer::Restart, self.now()) {
            return;
        }
        let awake = |id: &JobId| {
            let job = self.state.jobs.get(id)?;
            let due = is_due(job.run.not_before, self.now());
            (job.run.not_before > Instant::EPOCH && due).then_some(job.id)
        };
        // Those whose slot was given up wait as well.
        let slots = self.state.jobs.slots().values().filter_map(awake);
        let awake: BTreeSet<JobId> = slots.chain(self.workload.set_aside().due(self.now())).collect();
        let mut swap = self.swap_held();
        for id in awake {
            let not_before = self.comes_back(id, &mut swap);
            self.edit_job(id, |job| job.run.not_before = not_before);
        }
    }

    /// When one of them can.
    pub(crate) fn next_restart(&self) -> Option<Instant> {
        let waits =
            |id: &JobId| self.state.jobs.get(id).map(|job| job.run.not_before).filter(|at| *at > self.now());
        let slots = self.state.jobs.slots().values().filter_map(waits);
        slots.chain(self.workload.set_aside().next(self.now())).min()
    }
}

/// What an application says of its progress, and whether it has made a checkpoint.
fn note_status(job: &mut Job, status: &AppStatus, now: Instant) {
    let run = &mut job.run;
    if let Some(fraction) = status.fraction_done {
        run.fraction_done = fraction.get();
    }
    // BOINC: a checkpoint is a change of what the application says, whatever that is.
    if status.checkpoint_cpu_time == run.checkpoint_said || !status.checkpoint_cpu_time.is_positive() {
        return;
    }
    run.checkpoint_said = status.checkpoint_cpu_time;
    // The kernel's count is believed over the application's where they differ.
    run.checkpoint_cpu = status.checkpoint_cpu_time.min(run.cpu().max(run.checkpoint_cpu));
    run.checkpoint_elapsed = run.elapsed;
    run.checkpoint_fraction = run.fraction_done;
    run.checkpoint_at = Some(now);
    run.premature_exits = 0;
    run.quick_exits = 0;
    run.swap_vain = 0;
}

/// `first`, doubled so many times, but no longer than `most`.
pub(crate) fn doubled(first: Duration, times: u32, most: Duration) -> Duration {
    (0..times.min(32)).fold(first, |wait, _| (wait + wait).min(most))
}

/// Memory is judged by a smoothed figure, so that one peak does not end a job.
fn smooth(old: Bytes, new: Bytes) -> Bytes {
    if old == Bytes(0) { new } else { Bytes::from_f64(old.as_f64() * 0.5 + new.as_f64() * 0.5) }
}

fn upload_error(name: &str, number: i32) -> String {
    format!(
        "<upload_error>\n<file_xfer_error>\n  <file_name>{name}</file_name>\n  \
         <error_code>{number}</error_code>\n</file_xfer_error>\n</upload_error>"
    )
}

fn tail(text: &str) -> String {
    let mut from = text.len().saturating_sub(STDERR_MAX);
    while !text.is_char_boundary(from) {
        from += 1;
    }
    text[from..].to_owned()
}
