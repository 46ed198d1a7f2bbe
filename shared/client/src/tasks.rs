//! Tasks: jobs that have, had, or will have a process. What happened to the process, and what that means.

use fallow_boinc::runtime::exit::{self, RestartReason};
use fallow_domain::{Bytes, Duration, Instant, JobId};

use crate::machine::Client;
use crate::record::Record;
use crate::state::{FileStatus, Job, Outcome, Process};
use crate::{Effect, FileKey, NoticeLevel, Reason, TaskEnd, TaskSample};

/// How much of `stderr.txt` a report carries.
const STDERR_MAX: usize = 63 * 1024;
/// What a job's files may hold where its project does not say (BOINC's figure).
const DISK_BOUND: Bytes = Bytes(1_000_000_000);

impl Client {
    /// The process is gone: the task stands where its last checkpoint was.
    pub(crate) fn fall_back(&mut self, id: JobId) {
        if let Some(job) = self.state.jobs.get_mut(&id) {
            job.run.base = job.run.checkpoint_cpu;
            job.run.process_cpu = Duration::ZERO;
            job.run.elapsed = job.run.checkpoint_elapsed;
            job.run.fraction_done = job.run.checkpoint_fraction;
            job.run.live = false;
            job.process = Process::None;
        }
        self.requeue(id);
        self.mark(Record::Job(id));
        self.schedule_due = true;
    }

    pub(crate) fn task_started(&mut self, id: JobId, pid: u32) {
        let Some(job) = self.state.jobs.get_mut(&id) else {
            // Forgotten while it was being started.
            return self.act(Effect::AbortTask { job: id }, Reason::new("tasks", "its job is gone"));
        };
        job.run.ran |= job.process.exists();
        match job.process {
            Process::Starting => {
                self.set_process(id, Process::Executing(pid));
                if self.is_paused(id) {
                    let reason = Reason::new("R2.8", "it began in a pause of the limit on CPU time");
                    self.act(Effect::SuspendTask { job: id }, reason);
                }
            }
            Process::Quitting(_) => self.set_process(id, Process::Quitting(Some(pid))),
            Process::Aborting(_) => self.set_process(id, Process::Aborting(Some(pid))),
            Process::None | Process::Executing(_) | Process::Suspended(_) => {}
        }
        self.mark(Record::Job(id));
    }

    pub(crate) fn task_start_failed(&mut self, id: JobId, reason: String, permanent: bool) {
        let Some(job) = self.state.jobs.get_mut(&id) else { return self.left(id) };
        if !job.process.exists() {
            return;
        }
        job.process = Process::None;
        job.run.live = false;
        if job.outcome.is_some() {
            return self.settle_failed(id);
        }
        if permanent {
            return self.job_failed(id, exit::START_FAILED, 3, reason);
        }
        // A full disk or a lack of processes passes; the job is not to blame.
        job.run.not_before = self.now + Duration::from_secs(60);
        let text = format!("{} could not be started, trying again in a minute: {reason}", job.result.name);
        let project = job.project;
        self.notice(NoticeLevel::Warn, Some(project), text);
        self.requeue(id);
        self.mark(Record::Job(id));
        self.schedule_due = true;
    }

    pub(crate) fn tasks_sampled(&mut self, samples: Vec<TaskSample>) {
        for sample in samples {
            let Some(job) = self.state.jobs.get_mut(&sample.job) else { continue };
            if !job.process.exists() {
                continue;
            }
            job.run.peak_working_set = job.run.peak_working_set.max(sample.working_set);
            job.run.working_set = smooth(job.run.working_set, sample.working_set);
            job.run.disk_usage = job.run.disk_usage.max(sample.disk_usage.unwrap_or_default());
            self.note_progress(sample.job, sample.cpu_time, sample.status.as_ref());
        }
    }

    /// Charges what the process used since the last look, and notices checkpoints.
    pub(crate) fn note_progress(
        &mut self,
        id: JobId,
        process_cpu: Duration,
        status: Option<&fallow_boinc::runtime::message::AppStatus>,
    ) {
        let now = self.now;
        let Some(job) = self.state.jobs.get_mut(&id) else { return };
        let more = (process_cpu - job.run.process_cpu).max(Duration::ZERO);
        job.run.process_cpu += more;
        let mut checkpointed = false;
        if let Some(status) = status {
            if let Some(fraction) = status.fraction_done {
                job.run.fraction_done = fraction.get();
            }
            // BOINC: a checkpoint is a change of what the application says, whatever that is.
            if status.checkpoint_cpu_time != job.run.checkpoint_said
                && status.checkpoint_cpu_time.is_positive()
            {
                job.run.checkpoint_said = status.checkpoint_cpu_time;
                // The kernel's count is believed over the application's where they differ.
                job.run.checkpoint_cpu =
                    status.checkpoint_cpu_time.min(job.run.cpu().max(job.run.checkpoint_cpu));
                job.run.checkpoint_elapsed = job.run.elapsed;
                job.run.checkpoint_fraction = job.run.fraction_done;
                job.run.checkpoint_at = Some(now);
                job.run.premature_exits = 0;
                checkpointed = true;
            }
        }
        self.charge(id, more);
        if checkpointed {
            self.mark(Record::Job(id));
            self.schedule_due |= self.ledger.waits_for_checkpoint;
        }
        self.requeue_running(id);
        self.touch(crate::Entity::Job(id));
    }

    /// The estimate of a running task moves all the time; that alone is no reason to think about fetching work.
    fn requeue_running(&mut self, id: JobId) {
        self.requeue_untold(id);
    }

    pub(crate) fn task_ended(&mut self, id: JobId, end: &TaskEnd) {
        let Some(job) = self.state.jobs.get(&id) else { return self.left(id) };
        if !job.process.exists() {
            // Its end was seen before; what it used is charged.
            return;
        }
        self.note_progress(id, end.cpu_time, None);
        self.outputs_found(id, end);
        self.schedule_due = true;
        let Some(job) = self.state.jobs.get_mut(&id) else { return };
        let expected = matches!(job.process, Process::Quitting(_));
        job.process = Process::None;
        job.run.live = false;
        job.run.ran = true;
        job.run.peak_working_set = job.run.peak_working_set.max(end.peak_working_set);
        job.run.disk_usage = job.run.disk_usage.max(end.disk_usage);
        if let Some(outcome) = &mut job.outcome {
            // It was aborted, and now it is gone.
            outcome.stderr = tail(&end.stderr);
            return self.settle_failed(id);
        }
        match end.exit.outcome(end.finish.as_ref(), end.temporary_exit.as_ref()) {
            exit::Outcome::Finished => self.task_finished(id, end),
            exit::Outcome::Failed { exit_status, mut message } => {
                // One device of many may be broken (R3.14).
                if let Some(job) = self.state.jobs.get(&id)
                    && let Some((kind, _)) = job.usage.coprocessor
                {
                    message = format!("{message} on {kind} {}", job.run.devices);
                }
                self.job_failed(id, exit_status, 3, message);
                if let Some(outcome) = self.state.jobs.get_mut(&id).and_then(|job| job.outcome.as_mut()) {
                    outcome.stderr = tail(&end.stderr);
                }
                self.mark(Record::Job(id));
            }
            exit::Outcome::Restart { delay, reason } => self.task_to_restart(id, delay, &reason, expected),
        }
    }

    fn task_to_restart(&mut self, id: JobId, delay: Duration, reason: &RestartReason, expected: bool) {
        self.fall_back(id);
        let Some(job) = self.state.jobs.get_mut(&id) else { return };
        let counts = !expected && !matches!(reason, RestartReason::Stopped(_));
        job.run.premature_exits += u32::from(counts);
        job.run.not_before = if delay.is_positive() { self.now + delay } else { Instant::EPOCH };
        let (project, name, exits) = (job.project, job.result.name.clone(), job.run.premature_exits);
        if exits > exit::PREMATURE_EXITS_MAX {
            let message =
                format!("exited {exits} times without a finish file and without a checkpoint in between");
            return self.job_failed(id, exit::TOO_MANY_EXITS, 3, message);
        }
        if !expected {
            let why = match reason {
                RestartReason::Premature => "exited without having finished".to_owned(),
                RestartReason::Temporary(exit) => {
                    format!("asked to be started again in {delay}: {}", exit.reason)
                }
                RestartReason::Stopped(signal) => format!("was stopped by signal {signal}"),
            };
            self.notice(NoticeLevel::Warn, Some(project), format!("{name} {why}; it will be started again"));
        }
        self.requeue(id);
    }

    /// The application says it is done: its outputs are checked, sent, and the job reported.
    fn task_finished(&mut self, id: JobId, end: &TaskEnd) {
        let Some(job) = self.state.jobs.get_mut(&id) else { return };
        job.outcome = Some(Outcome {
            exit_status: 0,
            state: 5,
            message: None,
            stderr: tail(&end.stderr),
            at: self.now,
        });
        job.run.fraction_done = 1.0;
        let (project, name, cpu) = (job.project, job.result.name.clone(), job.run.cpu());
        let estimated = self.estimated_total(id);
        if let Some((number, message)) = self.bad_output(id) {
            if let Some(job) = self.state.jobs.get_mut(&id) {
                job.outcome = None;
            }
            self.job_failed(id, number, 3, message);
            if let Some(outcome) = self.state.jobs.get_mut(&id).and_then(|job| job.outcome.as_mut()) {
                outcome.stderr = tail(&end.stderr);
            }
            return;
        }
        self.learn_estimate(id, estimated);
        let text = self.said(|| format!("finished {name} after {cpu} of CPU time"));
        self.notice(NoticeLevel::Info, Some(project), text);
        self.free_slot(id);
        self.settle_outputs(id);
    }

    /// An output that is missing or too large fails the whole job.
    fn bad_output(&self, id: JobId) -> Option<(i32, String)> {
        let job = self.state.jobs.get(&id)?;
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
                _ => None,
            }
        })
    }

    fn outputs_found(&mut self, id: JobId, end: &TaskEnd) {
        let Some(project) = self.state.jobs.get(&id).map(|job| job.project) else { return };
        for output in &end.outputs {
            let key = FileKey { project, name: output.name.clone() };
            if let Some(file) = self.state.files.get_mut(&key) {
                file.found = Some((output.nbytes, output.md5.clone()));
                file.status = FileStatus::Present;
                self.mark(Record::File(key));
            }
        }
    }

    /// Tasks that waited for their own reasons can run now.
    pub(crate) fn wake_tasks(&mut self) {
        let awake = |id: &JobId| {
            let job = self.state.jobs.get(id)?;
            // A clock that was set back must not keep a task waiting for longer than a day (R1.12).
            let due =
                job.run.not_before <= self.now || job.run.not_before - self.now > Duration::from_hours(24);
            (job.run.not_before > Instant::EPOCH && due).then_some(job.id)
        };
        let awake: Vec<JobId> = self.state.slots.values().filter_map(awake).collect();
        for id in awake {
            if let Some(job) = self.state.jobs.get_mut(&id) {
                job.run.not_before = Instant::EPOCH;
            }
            self.requeue(id);
            self.schedule_due = true;
        }
    }

    pub(crate) fn next_task_wake_up(&self) -> Instant {
        let waits =
            |id: &JobId| self.state.jobs.get(id).map(|job| job.run.not_before).filter(|at| *at > self.now);
        self.state.slots.values().filter_map(waits).min().unwrap_or(Instant::FAR_FUTURE)
    }

    /// What the slot and the outputs of a job may hold (BOINC: `rsc_disk_bound`).
    fn disk_bound(&self, job: &Job) -> Bytes {
        let workunit = FileKey { project: job.project, name: job.result.wu_name.clone() };
        let said = self.state.workunits.get(&workunit).and_then(|workunit| workunit.rsc_disk_bound);
        said.filter(|bound| *bound > Bytes(0)).unwrap_or(DISK_BOUND)
    }

    /// Ends tasks that go beyond what their project or this host allows them.
    pub(crate) fn poll_limits(&mut self) {
        let memory = self.memory_limit();
        let broken = |id: &JobId| {
            let job = self.state.jobs.get(id)?;
            if !matches!(job.process, Process::Executing(_)) {
                return None;
            }
            let (run, max) = (&job.run, job.elapsed_max);
            if run.elapsed > max {
                let why = format!("exceeded elapsed time limit: ran for {}, allowed {max}", run.elapsed);
                return Some((job.id, exit::TIME_LIMIT_EXCEEDED, why));
            }
            if run.working_set > memory {
                let why = format!("working set of {} is over this host's limit of {memory}", run.working_set);
                return Some((job.id, exit::MEM_LIMIT_EXCEEDED, why));
            }
            if run.disk_usage <= Bytes(0) {
                return None;
            }
            let disk = self.disk_bound(job);
            (run.disk_usage > disk).then(|| {
                let why = format!("its files hold {}, its project allows {disk}", run.disk_usage);
                (job.id, exit::DISK_LIMIT_EXCEEDED, why)
            })
        };
        let broken: Vec<_> = self.state.slots.values().filter_map(broken).collect();
        for (id, exit_status, why) in broken {
            let pid = self.state.jobs.get(&id).and_then(|job| job.process.pid());
            self.act(Effect::AbortTask { job: id }, Reason::new("limits", why.clone()));
            self.set_process(id, Process::Aborting(pid));
            self.job_failed(id, exit_status, 3, why);
        }
    }
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
