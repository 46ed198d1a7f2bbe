//! Eviction on a full disk: which tasks are killed, which slots are emptied, and which outputs are deleted,
//! before anything can be stored (R6.10).
//!
//! Model: which task is evicted is the client's to say (`Room`). A task that is there is killed, and its slot
//! emptied when it is gone. What one has left that is gone already lies in its slot until the client has it
//! emptied or used again, and it can do neither while nothing can be stored: so it is known here until then.

use std::collections::BTreeMap;
use std::fs::DirEntry;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use fallow_boinc::names;
use fallow_boinc::runtime::exit::ExitMeaning;
use fallow_boinc::runtime::files;
use fallow_client::{Event, Goes, Held, Press, Room, TaskEnd};
use fallow_domain::{Bytes, JobId, SlotId};

use super::Supervision;
use super::disk::Count;
use super::task::Task;
use crate::walk::{Counted, Walk};

/// So many entries of a slot are counted while the supervisor waits: some hundredths of a second.
const IN_ONE_GO: u64 = 5_000;
/// So long entries of one are deleted in one go. The rest goes when a task would have to go once more.
const STRIP: Duration = Duration::from_secs(5);
/// How long the files may be that say how a task has finished.
const FINISH_MAX: u64 = 4 << 10;
/// Likewise, for what it has said.
const STDERR_MAX: u64 = 64 << 10;

/// Tasks that are gone and what they have left, by slot, with their outputs elsewhere.
#[derive(Debug, Default)]
pub(super) struct EndedTasks(BTreeMap<SlotId, (Held, Vec<PathBuf>)>);

impl EndedTasks {
    /// A task is gone.
    pub(super) fn note(&mut self, job: JobId, task: &Task, end: &TaskEnd, outputs: Vec<PathBuf>) {
        // Where it could not be looked at, the last count has to do.
        let holds = Some(end.disk_usage).filter(|bytes| bytes.0 > 0).or(task.disk().map(|held| held.all));
        let (slot, is_finished) = (task.slot(), is_finished(end));
        // Holes take nothing, as far as they were counted. It may have written since then.
        let (counted, takes) = (task.disk().unwrap_or_default().all, task.takes());
        let holes = takes.map_or(0, |takes| counted.0.saturating_sub(takes.0));
        let takes = holds.map(|holds| Bytes(holds.0.saturating_sub(holes)));
        let held = Held { slot, job, holds, takes, is_finished, ..Held::of(slot, job) };
        self.0.insert(slot, (held, outputs));
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

/// What tasks take more since there is no space, or since a task last had to go: by counts that began after
/// that.
///
/// It is the lesser of what the last two say: one count is no moment, and what a task gives back after it was
/// counted may be counted with another.
#[derive(Debug)]
pub(super) struct Shortage {
    since: Instant,
    /// What each task took by the first count that has it.
    taken: BTreeMap<JobId, Bytes>,
    /// When the last count began that was seen, and the growth by it and by the one before.
    last: Option<Instant>,
    growth: [Bytes; 2],
}

impl Shortage {
    fn begin() -> Self {
        Self { since: Instant::now(), taken: BTreeMap::new(), last: None, growth: [Bytes(0); 2] }
    }

    /// Takes note of a count that began since then, unless it has it already. `stays` says whether a task is
    /// there, and to stay.
    fn note(&mut self, count: &Count, stays: impl Fn(JobId) -> bool) {
        if self.last.replace(count.begun) == Some(count.begun) {
            return;
        }
        let (mut before, mut after) = (0_u64, 0_u64);
        for (&job, &bytes) in count.blocks.iter().filter(|(job, _)| stays(**job)) {
            before = before.saturating_add(self.taken.entry(job).or_insert(bytes).0);
            after = after.saturating_add(bytes.0);
        }
        self.growth = [self.growth[1], Bytes(after.saturating_sub(before))];
    }

    /// How much more tasks take together. A count reckons nothing of a task that it has left out.
    fn grown(&self) -> Bytes {
        self.growth[0].min(self.growth[1])
    }
}

impl Supervision {
    /// There is no space, or there is again.
    pub(super) fn set_room(&mut self, room: Option<Room>) {
        let Some(room) = room else {
            (self.room, self.shortage) = (None, None);
            self.unsent.set_short(false);
            return self.end_still_count();
        };
        let shortage = self.shortage.get_or_insert_with(Shortage::begin);
        if let Some(count) = self.disk.counted_after(shortage.since) {
            shortage.note(&count, |job| self.tasks.get(&job).is_some_and(Task::stays));
        }
        self.room = Some(room.after(self.room.as_ref(), shortage.grown()));
        self.unsent.set_short(true);
    }

    /// What tasks hold, and what those have left that are gone.
    fn held(&self) -> Vec<Held> {
        let tasks = self.tasks.iter().map(|(&job, task)| task.held(job));
        tasks.chain(self.ended_tasks.0.values().map(|(held, _)| *held)).collect()
    }

    /// Takes from tasks what they may not hold while there is no space.
    pub(super) fn make_room(&mut self) {
        let Some(presses) = self.room.as_ref().map(Room::presses) else {
            return self.end_still_count();
        };
        let waits = presses && !self.has_counted_still();
        let mut held = self.held();
        if presses && !waits {
            held.iter_mut()
                .filter(|held| held.is_finished && held.in_slot.is_none())
                .for_each(|held| held.in_slot = self.in_slot(held.slot));
        }
        let Some(room) = &mut self.room else { return };
        let go = match waits {
            true => room.clone().pressing(Press::No).who_goes(&held),
            false => room.who_goes(&held),
        };
        // What leaves gives its space back first. Where nobody can be named, it is pressed for that anew.
        let leaves = !go.is_empty() || held.iter().any(|held| held.is_going);
        if presses && (leaves || !waits) {
            *room = std::mem::take(room).pressing(Press::No);
            self.end_still_count();
        }
        for (slot, why) in go {
            if why == Goes::HoldsMost {
                self.shortage = Some(Shortage::begin());
            }
            match self.tasks.values_mut().find(|task| task.slot() == slot) {
                Some(task) => task.discard(why),
                None if why == Goes::Finished => {
                    let all = held.iter().find(|held| held.slot == slot).and_then(|held| held.in_slot);
                    self.strip(slot, all.unwrap_or_default());
                }
                None => self.empty(slot, why),
            }
        }
    }

    /// What lies in the slot of a task that has finished: very much, where it cannot be counted in one go.
    fn in_slot(&self, slot: SlotId) -> Option<Bytes> {
        let (mut walk, mut counted) = (Walk::below(&self.shared.dir.slot(slot)), Counted::default());
        match walk.step(&mut counted, IN_ONE_GO) {
            true => Some(walk.total().blocks),
            false => Some(Bytes(u64::MAX)),
        }
    }

    /// Deletes what lies in the slot of a task that has finished, but what says so.
    fn strip(&mut self, slot: SlotId, rubbish: Bytes) {
        tracing::warn!(%slot, "deleting what a finished task has left, for there is no space on the disk");
        let stays = |entry: &DirEntry| {
            let most = [(files::FINISH, FINISH_MAX), (files::STDERR, STDERR_MAX)];
            let most = most.iter().find(|(name, _)| entry.file_name() == **name).map(|(_, most)| *most);
            most.is_some_and(|most| entry.metadata().is_ok_and(|data| data.is_file() && data.len() <= most))
        };
        let entries = std::fs::read_dir(self.shared.dir.slot(slot)).into_iter().flatten().flatten();
        let entries = entries.filter(|entry| !stays(entry)).map(|entry| entry.path());
        let (end, mut is_whole) = (Instant::now() + STRIP, true);
        let gone = self.delete(entries.take_while(|_| {
            is_whole = Instant::now() < end;
            is_whole
        }));
        // Where nothing of it can be deleted, that is not tried again and again.
        if (is_whole || gone == 0)
            && let Some((held, _)) = self.ended_tasks.0.get_mut(&slot)
        {
            let left = |all: Bytes| Bytes(all.0.saturating_sub(rubbish.0));
            held.in_slot = Some(Bytes(0));
            (held.holds, held.takes) = (held.holds.map(left), held.takes.map(left));
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

    /// Deletes outputs. Returns how many are gone.
    pub(super) fn delete(&self, outputs: impl IntoIterator<Item = PathBuf>) -> usize {
        let take = |path: &PathBuf| {
            let taken = self.shared.dir.trash().take(path);
            let say = |error: &_| tracing::error!(path = %path.display(), %error, "cannot delete it");
            taken.inspect_err(say).is_ok()
        };
        outputs.into_iter().filter(take).count()
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
    use super::*;

    #[test]
    fn r6_10_what_tasks_take_more_is_reckoned_by_the_less_of_two_counts_and_from_the_first_that_has_each() {
        let mut shortage = Shortage::begin();
        let mut begun = Instant::now();
        for (counted, grown) in [
            (&[][..], 0),
            (&[(1, 1_000)], 0),
            (&[(1, 1_200), (2, 50)], 0),
            (&[(1, 1_300), (2, 50)], 200),
            // One has given back what the other one takes, and was counted before that.
            (&[(1, 1_300), (2, 350)], 300),
            (&[(1, 1_000), (2, 350)], 300),
            // Something of one was missed: it is as it was when it is counted again.
            (&[(2, 80)], 30),
            (&[(1, 990), (2, 80)], 20),
            // One that is gone takes nothing from what others take, and one that is new has grown by nothing.
            (&[(2, 60), (3, 7)], 10),
            // One that is to go has taken nothing.
            (&[(2, 60), (9, 7)], 10),
            (&[(2, 60), (9, 90)], 10),
            (&[(2, 60), (9, 90)], 10),
        ] {
            let blocks = counted.iter().map(|&(job, bytes)| (JobId(job), Bytes(bytes))).collect();
            begun += Duration::from_secs(3);
            let count = Count { begun, blocks };
            // It may be seen twice.
            for _ in 0..2 {
                shortage.note(&count, |job| job != JobId(9));
                assert_eq!(shortage.grown(), Bytes(grown), "{counted:?}");
            }
        }
    }

    #[test]
    fn r6_10_a_slot_that_a_job_had_before_takes_no_output_of_its_newer_task() {
        let mut ended_tasks = EndedTasks::default();
        let outputs = || vec![PathBuf::from("output")];
        for (slot, job) in [(SlotId(1), JobId(7)), (SlotId(2), JobId(8))] {
            let held = Held::of(slot, job);
            ended_tasks.0.insert(slot, (held, outputs()));
        }
        ended_tasks.begins(JobId(7), SlotId(3));
        let left = [1, 2, 3].map(|slot| ended_tasks.forget(SlotId(slot)).map(|(_, outputs)| outputs));
        assert_eq!(left, [Some(vec![]), Some(outputs()), None]);
    }
}
