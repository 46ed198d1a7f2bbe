//! What of a job others look at, and what follows when it changes: what to store, to tell, to queue again,
//! which decision has become due.
//!
//! **Model.** An [`Outline`] is what a job amounts to for everybody else: a small value, a pure function of
//! the job. An edit takes one before, and all that follows is its [`Difference`] from what the job has
//! become. So no place that changes a job has to remember what depends on it. Every task is looked at every
//! second: nothing is worked out that need not be.
//!
//! **Omitted on purpose.** Running totals (CPU time charged, elapsed time, peaks) change with every look at a
//! task. They are no reason to store a job: they are stored with the accounts that they add up to, every few
//! seconds.

use fallow_domain::{Instant, SlotId, Usage};
use fallow_policy::job_queue::Devices;

use crate::described::JobDescription;
use crate::end_state::EndState;
use crate::state::{Job, Outcome, Process, Run, Stage};

/// A job as it was: all of it that others look at. Texts are represented by their lengths: they are written
/// once, with what else ends a job.
#[derive(Clone, Debug)]
pub(crate) struct Outline {
    stage: Stage,
    slot: Option<SlotId>,
    process: Process,
    deadline: Instant,
    usage: Usage,
    declared: Option<Usage>,
    outcome: Option<(i32, EndState, usize, usize)>,
    run: Run,
}

/// What follows from an edit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Difference {
    /// Its record is to be written.
    pub store: bool,
    /// And must survive a power cut: it is over, or on its way back to its project, or its project gave it
    /// another deadline and will not say it again.
    pub durable: bool,
    /// Its view is to be sent.
    pub show: bool,
    /// The queue is to be told how it stands.
    pub place: bool,
    /// The set of runnable jobs may have changed, which is a reason to check work fetch (R2.16).
    pub news: bool,
    /// Its process is gone: what it is counted with may be another for the next one (R6.4).
    pub ends: bool,
    /// It can run now, or what it held is free: a reason to decide what runs (R2.2).
    pub frees: bool,
    /// It has made a checkpoint: the same where the last decision waits for one (R2.5).
    pub checkpoint: bool,
    /// Other jobs may be due for reporting, or at another time (R1.8).
    pub reports: bool,
    /// It waits in its slot for another time, or in another slot, or in none.
    pub waits: bool,
    /// Another task has a process, or executes, or is in another slot.
    pub computes: bool,
}

/// How a job ended.
fn told(outcome: &Outcome) -> (i32, EndState, usize, usize) {
    let Outcome { exit_status, state, message, stderr, at: _ } = outcome;
    (*exit_status, *state, message.as_ref().map_or(0, String::len), stderr.len())
}

/// What plans expect of a task that runs: since when it does, when it made its last checkpoint, and on what.
fn computing(process: Process, run: &Run) -> Option<(Instant, Option<Instant>, Devices)> {
    process.computes().then_some((run.slice_since, run.checkpoint_at, run.devices))
}

fn is_executing(process: Process) -> bool {
    matches!(process, Process::Executing(_))
}

fn is_aborting(process: Process) -> bool {
    matches!(process, Process::Aborting(_))
}

impl Outline {
    pub(crate) fn of(job: &Job) -> Self {
        Self {
            stage: job.stage,
            slot: job.slot,
            process: job.process,
            deadline: job.result.report_deadline,
            usage: job.usage,
            declared: job.declared,
            outcome: job.outcome.as_ref().map(told),
            run: job.run,
        }
    }

    /// What follows when a job that was like this is like that.
    pub(crate) fn until(&self, job: &Job) -> Difference {
        // Taken apart whole, so that whoever adds something to a job says here what follows when it changes.
        let Job {
            stage,
            slot,
            ref run,
            ref outcome,
            process,
            // Of what its project said only the deadline is ever said anew.
            result: JobDescription { report_deadline: deadline, .. },
            // What its process was given: it changes with the process.
            given: _,
            // They never change.
            id: _,
            project: _,
            version: _,
            received_at: _,
            usage,
            declared,
            flops_estimate: _,
            speed: _,
            elapsed_max: _,
        } = *job;
        let outcome = outcome.as_ref().map(told);
        let found = between(&self.run, run);
        // Mostly neither changes, and then nothing about it has to be compared.
        let turns = self.process != process;
        let over = (self.outcome.is_some() || outcome.is_some()) && self.outcome != outcome;
        // Where it stands for policies: a change is news to them.
        let moved = self.stage != stage
            || self.outcome.is_some() != outcome.is_some()
            || turns && is_aborting(self.process) != is_aborting(process)
            || self.deadline != deadline
            || (self.usage, self.declared) != (usage, declared)
            || found.waits;
        // How it gets on, which plans expect: the queue is told, and nothing is decided for it.
        let goes_on = moved
            || found.progress
            || turns && self.process.exists() != process.exists()
            || computing(self.process, &self.run) != computing(process, run);
        let failed = |outcome: Option<(i32, EndState, usize, usize)>| outcome.is_some_and(|of| of.0 != 0);
        let shown = turns || over && failed(self.outcome) != failed(outcome) || found.shown;
        let ends = turns && self.process.exists() && !process.exists();
        let waited = self.run.not_before > Instant::EPOCH && run.not_before == Instant::EPOCH;
        let ready = self.stage == Stage::Downloading && stage == Stage::Runnable;
        let returns = |stage: Stage| matches!(stage, Stage::Uploading | Stage::Reporting);
        let leaves = self.stage != stage && (returns(self.stage) || returns(stage));
        Difference {
            store: moved || over || self.slot != slot || found.stored,
            durable: over || leaves || self.deadline != deadline,
            show: goes_on || shown,
            place: goes_on,
            ends,
            news: moved || ends || (self.run.begun && !run.begun),
            frees: ready || ends || waited || (outcome.is_some() && self.outcome.is_none()),
            checkpoint: run.checkpoint_said.is_positive() && run.checkpoint_said != self.run.checkpoint_said,
            reports: leaves || self.deadline != deadline,
            waits: self.slot != slot || found.waits,
            computes: self.slot != slot
                || turns
                    && (self.process.exists() != process.exists()
                        || is_executing(self.process) != is_executing(process)),
        }
    }
}

/// What has changed of what a task has done.
struct Changes {
    /// When it may be started.
    waits: bool,
    /// How it gets on, which plans expect.
    progress: bool,
    /// What must not be lost with a killed agent.
    stored: bool,
    /// What its view shows beside.
    shown: bool,
}

fn between(was: &Run, is: &Run) -> Changes {
    let Run {
        base,
        // In `cpu`.
        process_cpu: _,
        live,
        starts,
        checkpoint_cpu,
        checkpoint_said,
        checkpoint_elapsed,
        end_elapsed,
        fraction_done,
        checkpoint_fraction,
        working_set,
        premature_exits,
        quick_exits,
        failed_starts,
        made_room,
        not_before,
        slice_since,
        // Of a task that runs, see `computing`.
        devices: _,
        begun,
        ran,
        checkpoint_at,
        // Running totals.
        charged: _,
        charged_coprocessor: _,
        elapsed: _,
        peak_working_set: _,
        disk_usage: _,
        // Looked at when it is measured.
        swap: _,
        // It changes with `not_before`.
        swapped: _,
        swap_exits: _,
        swap_vain: _,
        elapsed_base: _,
        // As far as limits go, it is looked at in each step.
        disk_held: _,
    } = *is;
    let checkpoint = (was.checkpoint_said, was.checkpoint_cpu, was.checkpoint_elapsed, was.checkpoint_at)
        != (checkpoint_said, checkpoint_cpu, checkpoint_elapsed, checkpoint_at)
        || was.checkpoint_fraction != checkpoint_fraction;
    let exits = (was.premature_exits, was.quick_exits, was.failed_starts, was.made_room)
        != (premature_exits, quick_exits, failed_starts, made_room);
    Changes {
        waits: was.not_before != not_before,
        progress: was.cpu() != is.cpu()
            || was.fraction_done != fraction_done
            || was.working_set != working_set
            || was.begun != begun,
        stored: checkpoint
            || exits
            || (was.live, was.begun, was.ran, was.starts) != (live, begun, ran, starts)
            || (was.base, was.end_elapsed, was.slice_since) != (base, end_elapsed, slice_since),
        shown: was.checkpoint_cpu != checkpoint_cpu,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::job;
    use fallow_domain::Duration;

    /// The names of what follows from an edit of a task that executes.
    fn follows(edit: impl FnOnce(&mut Job)) -> String {
        let mut job = job(1, fallow_domain::ProjectId(0), fallow_domain::Usage::ONE_CPU);
        job.process = Process::Executing(7);
        (job.slot, job.run.begun, job.run.ran, job.run.live) = (Some(SlotId(0)), true, true, true);
        job.run.not_before = Instant::from_secs_f64(1.0);
        let before = Outline::of(&job);
        edit(&mut job);
        let found = before.until(&job);
        let Difference {
            store,
            durable,
            show,
            place,
            news,
            ends,
            frees,
            checkpoint,
            reports,
            waits,
            computes,
        } = found;
        let flags = [
            (store, "store"),
            (durable, "durable"),
            (show, "show"),
            (place, "place"),
            (news, "news"),
            (ends, "ends"),
            (frees, "frees"),
            (checkpoint, "checkpoint"),
            (reports, "reports"),
            (waits, "waits"),
            (computes, "computes"),
        ];
        flags.iter().filter(|(is, _)| *is).map(|(_, name)| *name).collect::<Vec<_>>().join(" ")
    }

    fn failed() -> Option<Outcome> {
        let (message, stderr) = (None, String::new());
        Some(Outcome { exit_status: 1, state: EndState::ComputeError, message, stderr, at: Instant::EPOCH })
    }

    #[test]
    fn a_job_whose_last_file_has_come_is_a_reason_to_decide_what_runs() {
        let mut job = job(1, fallow_domain::ProjectId(0), fallow_domain::Usage::ONE_CPU);
        job.stage = Stage::Downloading;
        let before = Outline::of(&job);
        job.stage = Stage::Runnable;
        assert!(before.until(&job).frees);
    }

    #[test]
    fn what_follows_from_an_edit_is_said_by_its_difference() {
        assert_eq!(follows(|_| {}), "");
        // Running totals alone.
        assert_eq!(follows(|job| job.run.elapsed = Duration::from_secs(1)), "");
        assert_eq!(follows(|job| job.run.charged = Duration::from_secs(1)), "");
        assert_eq!(follows(|job| job.run.process_cpu = Duration::from_secs(1)), "show place");
        assert_eq!(follows(|job| job.run.fraction_done = 0.5), "show place");
        assert_eq!(follows(|job| job.run.checkpoint_said = Duration::from_secs(1)), "store checkpoint");
        assert_eq!(follows(|job| job.process = Process::Executing(8)), "show");
        // Decisions of the scheduler are no news to work fetch.
        assert_eq!(follows(|job| job.process = Process::Suspended(7)), "show place computes");
        assert_eq!(follows(|job| job.run.slice_since = Instant::from_secs_f64(9.0)), "store show place");
        assert_eq!(follows(|job| job.process = Process::Aborting(None)), "store show place news computes");
        assert_eq!(follows(|job| job.process = Process::None), "show place news ends frees computes");
        assert_eq!(follows(|job| job.run.not_before = Instant::EPOCH), "store show place news frees waits");
        assert_eq!(
            follows(|job| job.run.not_before = Instant::from_secs_f64(2.0)),
            "store show place news waits",
        );
        assert_eq!(follows(|job| job.slot = None), "store waits computes");
        assert_eq!(follows(|job| job.run.begun = false), "store show place news");
        assert_eq!(follows(|job| job.stage = Stage::Downloading), "store show place news");
        assert_eq!(
            follows(|job| job.result.report_deadline = Instant::EPOCH),
            "store durable show place news reports",
        );
        assert_eq!(follows(|job| job.outcome = failed()), "store durable show place news frees");
        assert_eq!(follows(|job| job.stage = Stage::Reporting), "store durable show place news reports",);
    }
}
