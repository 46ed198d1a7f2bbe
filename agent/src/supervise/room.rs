//! Room on a full disk: what is killed, and which slots are emptied, before anything can be stored.
//!
//! Model: who goes is the client's to say (`Room`). A task that is there is killed, and its slot emptied when it is gone. What
//! one has left that is gone already lies in its slot until the client has it emptied or used again, and it can do neither
//! while nothing can be stored: so it is known here until then.

use std::collections::BTreeMap;
use std::path::PathBuf;

use fallow_boinc::runtime::exit::Outcome;
use fallow_client::{Goes, Held, TaskEnd};
use fallow_domain::{JobId, SlotId};

use super::Supervision;
use super::task::Task;

/// What tasks that are gone have left, by slot, with their outputs elsewhere that nothing is sent from.
#[derive(Debug, Default)]
pub(super) struct Ends(BTreeMap<SlotId, (Held, Vec<PathBuf>)>);

impl Ends {
    /// A task is gone.
    pub(super) fn note(&mut self, job: JobId, task: &Task, end: &TaskEnd, outputs: Vec<PathBuf>) {
        // Where it could not be looked at, the last count has to do.
        let holds = Some(end.disk_usage).filter(|bytes| bytes.0 > 0).or(task.disk_usage());
        let (is_finished, outputs) = match outcome(end) {
            Outcome::Finished => (true, Vec::new()),
            Outcome::Failed { .. } => (false, Vec::new()),
            Outcome::Restart { .. } => (false, outputs),
        };
        let slot = task.slot();
        self.0.insert(slot, (Held { slot, job, holds, is_finished, is_going: false }, outputs));
    }

    /// A job's task begins in this slot. The outputs of the job are this one's, whichever slot it had before.
    pub(super) fn begins(&mut self, job: JobId, slot: SlotId) {
        self.0.remove(&slot);
        self.0.values_mut().filter(|(held, _)| held.job == job).for_each(|(_, outputs)| outputs.clear());
    }

    /// A slot is emptied. What is left of its task is given out.
    pub(super) fn forget(&mut self, slot: SlotId) -> Vec<PathBuf> {
        self.0.remove(&slot).map(|(_, outputs)| outputs).unwrap_or_default()
    }
}

impl Supervision {
    /// Takes from tasks what they may not hold while there is no space.
    pub(super) fn make_room(&mut self) {
        let Some(room) = &mut self.room else { return };
        let tasks = self.tasks.iter().map(|(&job, task)| task.held(job));
        let held: Vec<Held> = tasks.chain(self.ends.0.values().map(|(held, _)| *held)).collect();
        for (slot, why) in room.who_goes(&held) {
            match self.tasks.values_mut().find(|task| task.slot() == slot) {
                Some(task) => task.discard(why),
                None => {
                    tracing::warn!(%slot, "emptying the slot of a task that is gone: {why}, and there is no space on the disk");
                    let outputs = self.ends.forget(slot);
                    self.clean(slot);
                    self.take_outputs(&outputs);
                }
            }
        }
    }

    /// Deletes what a task wrote outside of its slot.
    pub(super) fn take_outputs(&self, outputs: &[PathBuf]) {
        for path in outputs {
            if let Err(error) = self.shared.dir.trash().take(path) {
                tracing::error!(path = %path.display(), %error, "cannot delete an output");
            }
        }
    }
}

/// Whether the outputs of a task go that was killed to make room. Those of a job that is over are sent, even if it failed,
/// unless they are more than it may have.
pub(super) fn outputs_go(end: &TaskEnd, why: Goes) -> bool {
    match outcome(end) {
        Outcome::Finished => false,
        Outcome::Failed { .. } => why == Goes::OverBound,
        Outcome::Restart { .. } => true,
    }
}

fn outcome(end: &TaskEnd) -> Outcome {
    end.exit.outcome(end.finish.as_ref(), end.temporary_exit.as_ref())
}

#[cfg(test)]
mod tests {
    use super::*;
    use fallow_boinc::runtime::exit::Ended;
    use fallow_boinc::runtime::finish::Finish;
    use fallow_domain::{Bytes, Duration};

    fn end(exit: Ended) -> TaskEnd {
        TaskEnd { exit, ..super::super::collect::interrupted(Duration::ZERO, Bytes(0)) }
    }

    #[test]
    fn r6_10_what_a_result_is_sent_from_stays_and_other_outputs_go() {
        let killed = end(Ended::Signal { number: 9, core_dumped: false });
        let finished = TaskEnd { finish: Some(Finish::read(b"0\n")), ..end(Ended::Code(0)) };
        let all = [Goes::NotWanted, Goes::OverBound, Goes::HoldsMost];
        for (end, go) in [
            (killed, [true, true, true]),
            (end(Ended::Code(1)), [false, true, false]),
            (finished, [false, false, false]),
        ] {
            assert_eq!(all.map(|why| outputs_go(&end, why)), go, "{:?}", end.exit);
        }
    }

    #[test]
    fn r6_10_a_slot_that_a_job_had_before_takes_no_output_of_its_newer_task() {
        let mut ends = Ends::default();
        let outputs = || vec![PathBuf::from("output")];
        for (slot, job) in [(SlotId(1), JobId(7)), (SlotId(2), JobId(8))] {
            let held = Held { slot, job, holds: None, is_finished: false, is_going: false };
            ends.0.insert(slot, (held, outputs()));
        }
        ends.begins(JobId(7), SlotId(3));
        assert_eq!([1, 2, 3].map(|slot| ends.forget(SlotId(slot))), [vec![], outputs(), vec![]]);
    }
}
