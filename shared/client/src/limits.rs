//! What a task may take, and what happens to one that takes more.
//!
//! Model: the host's and the project's limits are held against what the shell saw last. A task that goes
//! beyond one has failed, with BOINC's number for that limit and the figures. It is told to give up, and
//! killed when it does not; where others on the host suffer from it meanwhile (memory, processes), it is
//! killed at once. That holds as long as it has a process: also while it is to be gone, or to wait.

use fallow_boinc::runtime::exit;
use fallow_domain::{Bytes, JobId};
use fallow_policy::disk::Volume;

use crate::end_state::EndState;
use crate::machine::Client;
use crate::state::{Job, Process};
use crate::{Cause, Effect, FileKey, LimitExceeded, TaskSample};

/// What a job's files may hold where its project does not say (BOINC's figure).
const DISK_BOUND: Bytes = Bytes(1_000_000_000);
/// How many processes and threads a task may have on any host, and how many more for each CPU. Applications
/// of many threads have one or two for each CPU, and those in Java or Python some tens beside.
const THREADS_MAX: u32 = 1_000;
const THREADS_PER_CPU: u32 = 16;

/// What tasks may have on this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskLimits {
    /// Memory of all processes of a single task together, whoever uses the host.
    pub memory: Bytes,
    /// Its processes and threads.
    pub threads: u32,
    /// CPUs that all tasks together may keep busy now. None where all are theirs.
    pub cpus: Option<u32>,
}

impl Client {
    /// What the shell may have the system hold each task to.
    pub fn task_limits(&self) -> TaskLimits {
        TaskLimits {
            memory: self.memory_limit_unused(),
            threads: self.threads_allowed(),
            cpus: self.cpus_allowed(),
        }
    }

    /// CPUs that tasks may keep busy, if not all: those that the preferences leave them, and for each task
    /// that feeds a GPU what it is planned with, for that comes on top. One that feeds none would stand
    /// still.
    fn cpus_allowed(&self) -> Option<u32> {
        let facts = self.state.host.facts()?;
        let feeds = |job: &&Job| job.process.exists() && job.usage.coprocessor.is_some();
        let jobs = self.state.jobs.slots().values().filter_map(|id| self.state.jobs.get(id));
        let feeders: u32 = jobs.filter(feeds).map(|job| (job.usage.cpus.ceil() as u32).max(1)).sum();
        Some(self.usable_cpus().saturating_add(feeders)).filter(|cpus| *cpus < facts.ncpus)
    }

    /// How many processes and threads a task may have. BOINC sets no limit, nor has it a number for one that
    /// is exceeded.
    pub(crate) fn threads_allowed(&self) -> u32 {
        let cpus = self.state.host.facts().map_or(1, |host| host.ncpus);
        THREADS_MAX.saturating_add(cpus.saturating_mul(THREADS_PER_CPU))
    }

    /// What the slot and the outputs of a job may hold: what its project says (BOINC: `rsc_disk_bound`), and
    /// never more than the whole volume has, once it was measured. What is longer than that is full of
    /// holes, and whoever reads it has to read them all. The owner's limit is no bound of a single job: it
    /// may be changed at any time, and nobody's work is to be lost by that (R4.8).
    pub(crate) fn disk_bound(&self, job: &Job) -> Bytes {
        let volume = self.disk.volume().map_or(Bytes(u64::MAX), Volume::size);
        self.disk_bound_said(job).min(volume)
    }

    fn disk_bound_said(&self, job: &Job) -> Bytes {
        let workunit = FileKey { project: job.project, name: job.result.workunit.clone() };
        let said = self.state.workunits.get(&workunit).and_then(|workunit| workunit.disk_bound);
        said.filter(|bound| *bound > Bytes(0)).unwrap_or(DISK_BOUND)
    }

    /// Why what a job's files hold is too much, if it is.
    pub(crate) fn over_disk_bound(&self, id: JobId, held: Bytes) -> Option<LimitExceeded> {
        // Asked of every task at every step, and most were not counted since they began.
        if held == Bytes(0) {
            return None;
        }
        let job = self.state.jobs.get(&id)?;
        let (allowed, nameless) = (self.disk_bound(job), job.run.disk_held.nameless);
        (held > allowed).then_some(LimitExceeded::Disk { held, nameless, allowed })
    }

    /// The same of a task that has a process. One whose files cannot be counted is beyond its bound, whatever
    /// was counted: else what it hides would be nobody's, and all others would rest for want of it.
    fn beyond_disk_bound(&self, job: &Job) -> Option<LimitExceeded> {
        let held = job.run.disk_usage;
        let hides = || {
            let (why, allowed) = (job.run.disk_held.uncounted?, self.disk_bound(job));
            Some(LimitExceeded::UncountedDisk { why, held, allowed })
        };
        self.over_disk_bound(job.id, held).or_else(hides)
    }

    /// Ends tasks that go beyond what their project or this host allows them.
    pub(crate) fn poll_limits(&mut self) {
        // Where less is allowed while somebody uses the host, tasks wait that take more; they have done no
        // wrong.
        let memory = self.memory_limit_unused();
        let broken = |id: &JobId| {
            let job = self.state.jobs.get(id)?;
            let (run, allowed) = (&job.run, job.elapsed_max);
            let (is_executing, keeps_files) = match job.process {
                Process::Executing(_) => (true, true),
                // Perhaps for want of the very space that it holds.
                Process::Suspended(_) => (false, true),
                Process::Quitting(_) => (false, false),
                // It has been told already; what it takes is looked at with each sample.
                Process::None | Process::Starting | Process::Aborting(_) => return None,
            };
            if is_executing && run.elapsed > allowed {
                let why = LimitExceeded::Elapsed { ran: run.elapsed, allowed };
                return Some((job.id, exit::TIME_LIMIT_EXCEEDED, why));
            }
            if run.working_set > memory {
                let why = LimitExceeded::Memory { working_set: run.working_set, limit: memory };
                return Some((job.id, exit::MEM_LIMIT_EXCEEDED, why));
            }
            let why = self.beyond_disk_bound(job).filter(|_| keeps_files)?;
            Some((job.id, exit::DISK_LIMIT_EXCEEDED, why))
        };
        let broken: Vec<_> = self.state.jobs.slots().values().filter_map(broken).collect();
        for (id, exit_status, why) in broken {
            if exit_status == exit::MEM_LIMIT_EXCEEDED {
                self.note_forbidden();
            }
            self.end_beyond(id, exit_status, why);
        }
    }

    /// What is over and told to go, and takes more memory than all may have: it does not listen, and others
    /// suffer from it. None where there is a sample of nothing that is to be gone.
    pub(crate) fn unheeding(&self, samples: &[TaskSample]) -> Vec<(JobId, LimitExceeded)> {
        let limit = self.memory_limit_unused();
        let is_too_much = |sample: &TaskSample| {
            let job = self.state.jobs.get(&sample.job)?;
            let working_set = job.run.working_set;
            let is_to_go = matches!(job.process, Process::Aborting(_));
            let why = LimitExceeded::Memory { working_set, limit };
            (is_to_go && working_set > limit).then_some((sample.job, why))
        };
        samples.iter().filter_map(is_too_much).collect()
    }

    /// Ends a task that goes beyond a limit. Where others on the host suffer from it, it is not asked first.
    pub(crate) fn end_beyond(&mut self, id: JobId, exit_status: i32, why: LimitExceeded) {
        let Some(job) = self.state.jobs.get(&id).filter(|job| job.process.exists()) else { return };
        let (pid, was_over) = (job.process.pid(), job.outcome.is_some());
        let end = match why {
            LimitExceeded::Memory { .. }
            | LimitExceeded::MemoryHeld { .. }
            | LimitExceeded::Swap { .. }
            | LimitExceeded::Threads { .. } => Effect::KillTask { job: id },
            LimitExceeded::Elapsed { .. }
            | LimitExceeded::Disk { .. }
            | LimitExceeded::UncountedDisk { .. } => Effect::AbortTask { job: id },
        };
        self.act(end, Cause::LimitExceeded(why));
        self.set_process(id, Process::Aborting(pid));
        if !was_over {
            self.job_failed(id, exit_status, EndState::ComputeError, why.to_string());
        }
    }
}
