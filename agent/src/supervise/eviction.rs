//! Eviction on a full disk: which tasks are killed, which slots are emptied, and which outputs are deleted,
//! before anything can be stored (R6.10).
//!
//! Model: which task is evicted is the client's to say (`Room`). A task that is there is killed, and its slot
//! emptied when it is gone. What one has left that is gone already lies in its slot until the client has it
//! emptied or used again, and it can do neither while nothing can be stored: so it is known here until then.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Instant;

use fallow_boinc::names;
use fallow_boinc::runtime::exit::ExitMeaning;
use fallow_client::{Event, Goes, Held, Room, TaskEnd};
use fallow_domain::{Bytes, JobId, SlotId};

use super::Supervision;
use super::task::Task;

/// Tasks that are gone and what they have left, by slot, with their outputs elsewhere.
#[derive(Debug, Default)]
pub(super) struct EndedTasks(BTreeMap<SlotId, (Held, Vec<PathBuf>)>);

impl EndedTasks {
    /// A task is gone.
    pub(super) fn note(&mut self, job: JobId, task: &Task, end: &TaskEnd, outputs: Vec<PathBuf>) {
        // Where it could not be looked at, the last count has to do.
        let holds = Some(end.disk_usage).filter(|bytes| bytes.0 > 0).or(task.disk().map(|held| held.all));
        let (slot, is_finished) = (task.slot(), is_finished(end));
        self.0.insert(
            slot,
            (Held { slot, job, holds, is_uncounted: false, is_finished, is_going: false }, outputs),
        );
    }

    /// A job's task begins in this slot. The outputs of the job are this one's, whichever slot it had before.
    pub(super) fn begins(&mut self, job: JobId, slot: SlotId) {
        self.0.remove(&slot);
        self.0.values_mut().filter(|(held, _)| held.job == job).for_each(|(_, outputs)| outputs.clear());
    }

    /// A slot is emptied. What was left in it is given out.
    pub(super) fn forget(&mut self, slot: SlotId) -> Option<(Held, Vec<PathBuf>)> {
        self.0.remove(&slot)
    }
}

/// Since when there is no space, and what each task took when it was counted first after that.
#[derive(Debug)]
pub(super) struct Shortage {
    since: Instant,
    taken: BTreeMap<JobId, Bytes>,
}

impl Shortage {
    fn begin() -> Self {
        Self { since: Instant::now(), taken: BTreeMap::new() }
    }

    /// How much more the tasks that were counted since then take together.
    fn grown(&mut self, now: &BTreeMap<JobId, Bytes>) -> Bytes {
        let (mut before, mut after) = (0_u64, 0_u64);
        for (&job, &bytes) in now {
            before = before.saturating_add(self.taken.entry(job).or_insert(bytes).0);
            after = after.saturating_add(bytes.0);
        }
        Bytes(after.saturating_sub(before))
    }
}

impl Supervision {
    /// There is no space, or there is again.
    pub(super) fn set_room(&mut self, room: Option<Room>) {
        let Some(room) = room else {
            (self.room, self.shortage) = (None, None);
            return;
        };
        let shortage = self.shortage.get_or_insert_with(Shortage::begin);
        let since = shortage.since;
        let takes = |(&job, task): (&JobId, &Task)| Some((job, task.meter().blocks(since)?));
        let now: BTreeMap<JobId, Bytes> = self.tasks.iter().filter_map(takes).collect();
        let room = room.after(self.room.as_ref(), shortage.grown(&now));
        if room.presses() {
            shortage.taken = now;
        }
        self.room = Some(room);
    }

    /// What tasks hold, and what those have left that are gone.
    fn held(&self) -> Vec<Held> {
        let tasks = self.tasks.iter().map(|(&job, task)| task.held(job));
        tasks.chain(self.ended_tasks.0.values().map(|(held, _)| *held)).collect()
    }

    /// Takes from tasks what they may not hold while there is no space.
    pub(super) fn make_room(&mut self) {
        let held = self.held();
        let Some(room) = &mut self.room else { return };
        for (slot, why) in room.who_goes(&held) {
            match self.tasks.values_mut().find(|task| task.slot() == slot) {
                Some(task) => task.discard(why),
                None => self.empty(slot, why),
            }
        }
    }

    /// Empties the slot of a task that is gone.
    fn empty(&mut self, slot: SlotId, why: Goes) {
        tracing::warn!(%slot, "emptying the slot of a task that is gone: {why}, and there is no space on the disk");
        let ended = self.ended_tasks.forget(slot);
        self.clean(slot);
        if let Some((held, outputs)) = ended
            && !outputs.is_empty()
            && outputs_go(held.is_finished, why)
        {
            self.delete(outputs);
            self.report(Event::OutputsGone { job: held.job });
        }
    }

    /// Deletes what a task that was killed to make room wrote outside of its slot, if that goes as well.
    pub(super) fn take_outputs(&self, task: &Task, why: Goes, end: &mut TaskEnd) {
        if !outputs_go(is_finished(end), why) {
            return;
        }
        let files = task.files(&self.shared);
        let names = end.outputs.drain(..).map(|output| output.name).filter(|name| names::is_file_name(name));
        let taken = names.map(|name| self.shared.dir.project(task.url()).join(name));
        self.delete(files.outputs.into_iter().chain(taken));
    }

    /// Deletes outputs.
    pub(super) fn delete(&self, outputs: impl IntoIterator<Item = PathBuf>) {
        for path in outputs {
            let path = &path;
            if let Err(error) = self.shared.dir.trash().take(path) {
                tracing::error!(path = %path.display(), %error, "cannot delete an output");
            }
        }
    }
}

/// Those of a task that has finished stay, if they are wanted.
fn outputs_go(is_finished: bool, why: Goes) -> bool {
    !is_finished || why == Goes::NotWanted
}

/// Whether it has all that it was to have.
fn is_finished(end: &TaskEnd) -> bool {
    matches!(end.exit.meaning(end.finish.as_ref(), end.temporary_exit.as_ref()), ExitMeaning::Finished)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn r6_10_what_tasks_take_more_is_reckoned_from_the_first_count_of_each_after_space_ran_out() {
        let takes = |all: &[(u64, u64)]| -> BTreeMap<JobId, Bytes> {
            all.iter().map(|&(job, bytes)| (JobId(job), Bytes(bytes))).collect()
        };
        let mut shortage = Shortage::begin();
        for (now, grown) in [
            (&[][..], 0),
            (&[(1, 1_000)], 0),
            (&[(1, 1_200), (2, 50)], 200),
            // What one gives back another may have taken.
            (&[(1, 1_200), (2, 10)], 160),
            // One that is gone takes nothing from what others take, and one that is new has grown by nothing.
            (&[(2, 60), (3, 7)], 10),
        ] {
            assert_eq!(shortage.grown(&takes(now)), Bytes(grown), "{now:?}");
        }
    }

    #[test]
    fn r6_10_a_count_of_before_space_ran_out_says_nothing_of_what_is_taken_since() {
        let meter = super::super::meter::Meter::default();
        let began = Instant::now();
        meter.note_blocks(began, Bytes(7));
        assert_eq!(meter.blocks(began), None);
        assert_eq!(meter.blocks(began - Duration::from_secs(1)), Some(Bytes(7)));
    }

    #[test]
    fn r6_10_a_slot_that_a_job_had_before_takes_no_output_of_its_newer_task() {
        let mut ended_tasks = EndedTasks::default();
        let outputs = || vec![PathBuf::from("output")];
        for (slot, job) in [(SlotId(1), JobId(7)), (SlotId(2), JobId(8))] {
            let held =
                Held { slot, job, holds: None, is_uncounted: false, is_finished: false, is_going: false };
            ended_tasks.0.insert(slot, (held, outputs()));
        }
        ended_tasks.begins(JobId(7), SlotId(3));
        let left = [1, 2, 3].map(|slot| ended_tasks.forget(SlotId(slot)).map(|(_, outputs)| outputs));
        assert_eq!(left, [Some(vec![]), Some(outputs()), None]);
    }
}
