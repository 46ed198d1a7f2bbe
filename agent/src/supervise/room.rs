//! Room on a full disk: what is killed, and which slots are emptied, before anything can be stored.
//!
//! Model: who goes is the client's to say (`Room`). A task that is there is killed, and its slot emptied when it is gone. What
//! one has left that is gone already lies in its slot until the client has it emptied or used again, and it can do neither
//! while nothing can be stored: so it is known here until then.

use std::collections::BTreeMap;

use fallow_boinc::runtime::exit::Outcome;
use fallow_client::{Held, TaskEnd};
use fallow_domain::{JobId, SlotId};

use super::Supervision;
use super::task::Task;

/// What tasks that are gone have left, by slot.
#[derive(Debug, Default)]
pub(super) struct Ends(BTreeMap<SlotId, Held>);

impl Ends {
    /// A task is gone.
    pub(super) fn note(&mut self, job: JobId, task: &Task, end: &TaskEnd) {
        // Where it could not be looked at, the last count has to do.
        let holds = Some(end.disk_usage).filter(|bytes| bytes.0 > 0).or(task.disk_usage());
        let outcome = end.exit.outcome(end.finish.as_ref(), end.temporary_exit.as_ref());
        let is_finished = matches!(outcome, Outcome::Finished);
        let slot = task.slot();
        self.0.insert(slot, Held { slot, job, holds, is_finished, is_going: false });
    }

    /// A slot is emptied, or used again.
    pub(super) fn forget(&mut self, slot: SlotId) {
        self.0.remove(&slot);
    }
}

impl Supervision {
    /// Takes from tasks what they may not hold while there is no space.
    pub(super) fn make_room(&mut self) {
        let Some(room) = &mut self.room else { return };
        let tasks = self.tasks.iter().map(|(&job, task)| task.held(job));
        let held: Vec<Held> = tasks.chain(self.ends.0.values().copied()).collect();
        for (slot, why) in room.who_goes(&held) {
            match self.tasks.values_mut().find(|task| task.slot() == slot) {
                Some(task) => task.discard(why),
                None => {
                    tracing::warn!(%slot, "emptying the slot of a task that is gone: {why}, and there is no space on the disk");
                    self.clean(slot);
                }
            }
        }
    }
}
