//! What of a job others look at, and what follows when it changes: what to store, to tell, to queue again, which
//! decision has become due.
//!
//! **Model.** An [`Outline`] is what a job amounts to for everybody else: a small value, a pure function of the job. An
//! edit takes one before and one after, and all that follows is their [`Difference`]. So no place that changes a job has
//! to remember what depends on it.
//!
//! **Omitted on purpose.** Running totals (CPU time charged, elapsed time, peaks) change with every look at a task. They are no
//! reason to store a job: they are stored with the accounts that they add up to, every few seconds.

use fallow_domain::{Bytes, Duration, Instant, SlotId};
use fallow_policy::job_queue::Devices;

use crate::state::{Job, Process, Stage};

/// All that others look at. Texts are represented by their lengths: they are written once, with what else ends a job.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Outline {
    place: Place,
    course: Course,
    stored: Stored,
    shown: Shown,
}

/// Where it stands for policies. A change is news to them.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Place {
    stage: Stage,
    over: bool,
    aborting: bool,
    deadline: Instant,
    not_before: Instant,
}

/// How it gets on, which plans expect: the queue is told, and nothing is decided for it.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Course {
    process: bool,
    running: Option<(Instant, Option<Instant>, Devices)>,
    begun: bool,
    cpu: Duration,
    fraction_done: f64,
    working_set: Bytes,
}

/// What must not be lost with a killed agent.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Stored {
    slot: Option<SlotId>,
    outcome: Option<(i32, u8, usize, usize)>,
    base: Duration,
    live: bool,
    starts: u32,
    checkpoint: (Duration, Duration, Duration, f64, Option<Instant>),
    exits: (u32, u32, u32, u32),
    end_elapsed: Duration,
    slice_since: Instant,
    begun: bool,
    ran: bool,
}

/// What its view shows.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Shown {
    process: Process,
    failed: bool,
    checkpoint_cpu: Duration,
}

/// What follows from an edit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Difference {
    /// Its record is to be written.
    pub store: bool,
    /// And must survive a power cut: it is over, or on its way back to its project, or its project gave it another deadline and
    /// will not say it again.
    pub durable: bool,
    /// Its view is to be sent.
    pub show: bool,
    /// The queue is to be told how it stands.
    pub place: bool,
    /// The set of runnable jobs may have changed, which is a reason to check work fetch (R2.16).
    pub news: bool,
    /// It can run now, or what it held is free: a reason to decide what runs (R2.2).
    pub frees: bool,
    /// It has made a checkpoint: the same where the last decision waits for one (R2.5).
    pub checkpoint: bool,
    /// Other jobs may be due for reporting, or at another time (R1.8).
    pub reports: bool,
}

impl Outline {
    pub(crate) fn of(job: &Job) -> Self {
        let (run, process) = (&job.run, job.process);
        let outcome = job.outcome.as_ref();
        let message = |outcome: &crate::state::Outcome| outcome.message.as_ref().map_or(0, String::len);
        Self {
            place: Place {
                stage: job.stage,
                over: outcome.is_some(),
                aborting: matches!(process, Process::Aborting(_)),
                deadline: job.result.report_deadline,
                not_before: run.not_before,
            },
            course: Course {
                process: process.exists(),
                running: process.computes().then_some((run.slice_since, run.checkpoint_at, run.devices)),
                begun: run.begun,
                cpu: run.cpu(),
                fraction_done: run.fraction_done,
                working_set: run.working_set,
            },
            stored: Stored {
                slot: job.slot,
                outcome: outcome.map(|of| (of.exit_status, of.state, message(of), of.stderr.len())),
                base: run.base,
                live: run.live,
                starts: run.starts,
                checkpoint: (
                    run.checkpoint_said,
                    run.checkpoint_cpu,
                    run.checkpoint_elapsed,
                    run.checkpoint_fraction,
                    run.checkpoint_at,
                ),
                exits: (run.premature_exits, run.quick_exits, run.failed_starts, run.made_room),
                end_elapsed: run.end_elapsed,
                slice_since: run.slice_since,
                begun: run.begun,
                ran: run.ran,
            },
            shown: Shown {
                process,
                failed: outcome.is_some_and(|outcome| outcome.exit_status != 0),
                checkpoint_cpu: run.checkpoint_cpu,
            },
        }
    }

    /// What follows when a job that was like this is like that.
    pub(crate) fn until(&self, after: &Self) -> Difference {
        let (was, is) = (&self.place, &after.place);
        let ends = self.course.process && !after.course.process;
        let begins_anew = self.course.begun && !after.course.begun;
        let moved = was != is;
        let over = self.stored.outcome != after.stored.outcome;
        let waited = was.not_before > Instant::EPOCH && is.not_before == Instant::EPOCH;
        let ready = was.stage == Stage::Downloading && is.stage == Stage::Runnable;
        let said = after.stored.checkpoint.0;
        let returns = |place: &Place| matches!(place.stage, Stage::Uploading | Stage::Reporting);
        let leaves = was.stage != is.stage && (returns(was) || returns(is));
        let goes_on = moved || self.course != after.course;
        Difference {
            store: moved || self.stored != after.stored,
            durable: over || leaves || was.deadline != is.deadline,
            show: goes_on || self.shown != after.shown,
            place: goes_on,
            news: moved || ends || begins_anew,
            frees: ready || ends || waited || (is.over && !was.over),
            checkpoint: said.is_positive() && said != self.stored.checkpoint.0,
            reports: leaves || was.deadline != is.deadline,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::Outcome;
    use crate::tests::job;

    /// The names of what follows from an edit of a task that executes.
    fn follows(edit: impl FnOnce(&mut Job)) -> String {
        let mut job = job(1, fallow_domain::ProjectId(0), fallow_domain::Usage::ONE_CPU);
        job.process = Process::Executing(7);
        (job.slot, job.run.begun, job.run.ran, job.run.live) = (Some(SlotId(0)), true, true, true);
        job.run.not_before = Instant::from_secs_f64(1.0);
        let before = Outline::of(&job);
        edit(&mut job);
        let found = before.until(&Outline::of(&job));
        let Difference { store, durable, show, place, news, frees, checkpoint, reports } = found;
        let flags = [
            (store, "store"),
            (durable, "durable"),
            (show, "show"),
            (place, "place"),
            (news, "news"),
            (frees, "frees"),
            (checkpoint, "checkpoint"),
            (reports, "reports"),
        ];
        flags.iter().filter(|(is, _)| *is).map(|(_, name)| *name).collect::<Vec<_>>().join(" ")
    }

    fn failed() -> Option<Outcome> {
        let (message, stderr) = (None, String::new());
        Some(Outcome { exit_status: 1, state: 3, message, stderr, at: Instant::EPOCH })
    }

    #[test]
    fn a_job_whose_last_file_has_come_is_a_reason_to_decide_what_runs() {
        let mut job = job(1, fallow_domain::ProjectId(0), fallow_domain::Usage::ONE_CPU);
        job.stage = Stage::Downloading;
        let before = Outline::of(&job);
        job.stage = Stage::Runnable;
        assert!(before.until(&Outline::of(&job)).frees);
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
        assert_eq!(follows(|job| job.process = Process::Suspended(7)), "show place");
        assert_eq!(follows(|job| job.run.slice_since = Instant::from_secs_f64(9.0)), "store show place");
        assert_eq!(follows(|job| job.process = Process::Aborting(None)), "store show place news");
        assert_eq!(follows(|job| job.process = Process::None), "show place news frees");
        assert_eq!(follows(|job| job.run.not_before = Instant::EPOCH), "store show place news frees");
        assert_eq!(follows(|job| job.run.not_before = Instant::from_secs_f64(2.0)), "store show place news",);
        assert_eq!(follows(|job| job.slot = None), "store");
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
