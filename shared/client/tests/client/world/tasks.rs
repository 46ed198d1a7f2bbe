//! The processes of the modelled host: they compute, make checkpoints, end, and leave something on the disk.

use fallow_boinc::runtime::exit::Ended;
use fallow_boinc::runtime::finish::{Finish, TemporaryExit};
use fallow_boinc::runtime::message::AppStatus;
use fallow_client::{
    Event, FileKey, Goes, OutputFound, SlotFound, StartFault, TaskEnd, TaskSample, TaskSetup,
};
use fallow_domain::{Bytes, Duration, Fraction, JobId, SlotId};

use super::{TICK, World};

/// A process.
pub(super) struct Task {
    pub(super) setup: TaskSetup,
    pub(super) executing: bool,
    pub(super) cpu: Duration,
    pub(super) base: Duration,
    pub(super) checkpoint: Duration,
    pub(super) length: Duration,
    pub(super) finished: bool,
}

impl World {
    pub(super) fn slot_found(
        &self,
        slot: SlotId,
        (cpu, checkpoint, finished): (Duration, Duration, bool),
    ) -> SlotFound {
        let outputs: Vec<OutputFound> =
            self.files.iter().filter(|key| key.name.ends_with("_out")).cloned().map(output).collect();
        // Their first start began at nothing.
        let total = self.owners.get(&slot).and_then(|job| self.untaken.get(job)).copied();
        let end = TaskEnd { outputs, ..finished_after(total.unwrap_or_default(), false) };
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

    pub(super) fn compute(&mut self) {
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
                let exits = self.exits_at_once && task.setup.name.starts_with(self.exits_prefix);
                if total >= task.length || exits {
                    ended.push((*job, exits));
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
                working_set: self.working_set,
                swap: self.swap.map(|swap| {
                    if task.setup.name.starts_with(self.swap_prefix) { swap } else { Bytes(4096) }
                }),
                threads: self.threads,
                disk: self.disk_held,
                status: Some(status),
            });
        }
        if !samples.is_empty() {
            self.event(Event::TasksSampled(samples));
        }
        for (job, exits) in ended {
            self.end_task(job, !(self.never_finishes || exits));
        }
    }

    pub(super) fn end_task(&mut self, job: JobId, finished: bool) {
        let Some(task) = self.tasks.remove(&job) else { return };
        let project = self.project_id(&task.setup.url);
        let mut outputs = Vec::new();
        for file in task.setup.files.iter().filter(|file| file.output && finished) {
            self.files.insert(FileKey { project, name: file.name.clone() });
            outputs.push(output(FileKey { project, name: file.name.clone() }));
        }
        if finished && self.takes_nothing {
            return self.leave_untaken(&task);
        }
        self.disk.insert(task.setup.slot, (task.base + task.cpu, task.checkpoint, false));
        self.event(Event::TaskEnded {
            job,
            end: Box::new(TaskEnd {
                exit: Ended::Code(0),
                finish: finished.then_some(Finish::SUCCESS),
                temporary_exit: self.asks_again_in.filter(|_| !finished).map(temporary_exit),
                cpu_time: task.cpu,
                is_charged: false,
                stderr: "done\n".to_owned(),
                outputs,
                peak_working_set: Bytes::from_mebibytes(11),
                disk_usage: Bytes(1000),
                made_room: None,
                memory_exceeded: None,
                killed: None,
            }),
        });
    }

    /// The shell kills a task and deletes all that it has written, to make room on a full disk.
    pub(crate) fn discard(&mut self, job: JobId) {
        let task = self.tasks.remove(&job).expect("a task");
        self.disk.remove(&task.setup.slot);
        let exit = Ended::Signal { number: 9, core_dumped: false };
        let end = finished_after(task.cpu, false);
        let made_room = Some(Goes::HoldsMost);
        let end = TaskEnd { exit, finish: None, outputs: Vec::new(), made_room, ..end };
        self.event(Event::TaskEnded { job, end: Box::new(end) });
    }

    /// A task has finished, and the shell cannot take its outputs: it says that it was stopped.
    fn leave_untaken(&mut self, task: &Task) {
        let total = task.base + task.cpu;
        self.disk.insert(task.setup.slot, (total, task.checkpoint, true));
        self.untaken.insert(task.setup.job, total);
        let exit = Ended::Signal { number: 9, core_dumped: false };
        let end = TaskEnd { exit, finish: None, outputs: Vec::new(), ..finished_after(task.cpu, false) };
        self.event(Event::TaskEnded { job: task.setup.job, end: Box::new(end) });
    }

    /// The shell takes what the last run of a task has left, in place of its start.
    fn take(&mut self, setup: &TaskSetup, total: Duration) {
        let project = self.project_id(&setup.url);
        let outputs = setup.files.iter().filter(|file| file.output);
        let outputs = outputs.map(|file| output(FileKey { project, name: file.name.clone() })).collect();
        let end = TaskEnd { outputs, ..finished_after(total - setup.init_data.wu_cpu_time, true) };
        self.later(Event::TaskEnded { job: setup.job, end: Box::new(end) });
    }

    pub(super) fn start_task(&mut self, setup: TaskSetup) {
        self.assert_nobody_in(setup.slot);
        self.start_times.push(self.now);
        if let Some(fault) = self.fault.take() {
            if let StartFault::Files(names) = &fault {
                let project = self.project_id(&setup.url);
                for name in names {
                    self.files.remove(&FileKey { project, name: name.clone() });
                }
            }
            let (job, reason) = (setup.job, "as the test wants it".to_owned());
            return self.later(Event::TaskStartFailed { job, reason, fault });
        }
        if self.fail_starts > 0 {
            self.fail_starts -= 1;
            let (job, reason) = (setup.job, "the disk is full".to_owned());
            return self.later(Event::TaskStartFailed { job, reason, fault: StartFault::Host });
        }
        if let Some(total) = self.untaken.get(&setup.job).copied() {
            return self.take(&setup, total);
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
        self.later(Event::TaskStarted { job, pid: 1_000, without: self.without });
    }

    pub(super) fn assert_nobody_in(&self, slot: SlotId) {
        let living = self.tasks.values().map(|task| &task.setup.slot).chain(self.dying.values());
        assert!(living.clone().all(|other| *other != slot), "a process still is in slot {slot}");
    }

    pub(crate) fn finish_behind_the_agents_back(&mut self) {
        for task in self.tasks.values_mut().filter(|task| task.executing) {
            let rest = task.length - task.base - task.cpu;
            task.cpu += rest;
            self.cpu_used += rest;
            task.finished = true;
        }
    }

    /// As if the agent had been killed when it had stored that the tasks' slots are theirs, and not yet
    /// emptied them of finished tasks before.
    pub(crate) fn find_finished_tasks_of_others(&mut self) {
        for task in std::mem::take(&mut self.tasks).into_values() {
            self.disk.insert(task.setup.slot, (task.length, task.length, true));
            self.owners.insert(task.setup.slot, JobId(1_000_000));
        }
        self.restart();
    }
}

fn output(key: FileKey) -> OutputFound {
    OutputFound { name: key.name, nbytes: Bytes(10), md5: "0".repeat(32) }
}

fn finished_after(cpu_time: Duration, is_charged: bool) -> TaskEnd {
    TaskEnd {
        exit: Ended::Code(0),
        finish: Some(Finish::SUCCESS),
        temporary_exit: None,
        cpu_time,
        is_charged,
        stderr: String::new(),
        outputs: Vec::new(),
        peak_working_set: Bytes(0),
        disk_usage: Bytes(0),
        made_room: None,
        memory_exceeded: None,
        killed: None,
    }
}

fn temporary_exit(delay: Duration) -> TemporaryExit {
    TemporaryExit { delay, reason: "not yet".to_owned(), notice: false }
}
