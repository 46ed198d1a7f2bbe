//! Whose files go while there is no space on the disk to store anything (R6.10).
//!
//! What the client decides is carried out when it is stored. Here the files of a task may be why nothing can
//! be, so a shell asks at once what may go. Less is lost by some than by others:
//! - What nobody wants goes: of jobs that have failed or were aborted, of projects that leave. At worst, when
//!   the agent ends before that is stored, such a job is computed from its beginning.
//! - So does what holds more than its project allows. Its job fails for that anyway, see `poll_limits`.
//! - With the slot of a task that is not wanted or has not finished go its outputs, wherever they are. If its
//!   job has failed, they would be sent, but they are no result.
//! - What has finished and holds no more than it may stays. Its end is not stored, and it would be computed
//!   once more. If that is not enough for a while, what lies in its slot goes, but neither its outputs nor
//!   what says that it has finished: a job cannot finish and keep the disk full.
//! - If that is not enough either, the one that takes most goes of the project whose tasks take most of the
//!   disk, one at a time. Holes in files take nothing.
//!   A project may allow its jobs more than this host has, and a host that stores nothing gets on with none
//!   of them. Its job is not failed for what the host lacks: it is started again later. A project that
//!   spreads what it holds over many small tasks does not have the large task of another one pay for it. One
//!   goes first that may hold anything, as with a file whose size nobody can tell: no other is to pay for it.

use std::collections::BTreeMap;
use std::fmt;

use fallow_domain::{Bytes, JobId, ProjectId, SlotId};

use crate::machine::Client;
use crate::state::Outcome;

/// What holds less is not worth a task.
const WORTH: Bytes = Bytes(1_000_000);

/// What the files of a task hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// Where they are.
    pub slot: SlotId,
    /// Whose they are.
    pub job: JobId,
    /// How much that is, as far as it was counted: against the bound of its job.
    pub holds: Option<Bytes>,
    /// How much more of the disk would be free without it, as far as it was counted: other than `holds`,
    /// without holes, and with files of its project that were deleted and are there because it has them open.
    pub takes: Option<Bytes>,
    /// That is not all: the rest cannot be counted.
    pub is_uncounted: bool,
    /// It may be any amount: a file is among it whose size cannot be told, it has run while it was to stand
    /// still for its count, or that has missed something or was not over in time.
    pub is_unsized: bool,
    /// The task has finished, and its end is told.
    pub is_finished: bool,
    /// How much its slot has then that nobody needs, where that was looked at.
    pub in_slot: Option<Bytes>,
    /// It was killed to make room, and is not gone yet.
    pub is_going: bool,
}

impl Held {
    /// What is known of a task's files before anything is.
    #[must_use]
    pub const fn of(slot: SlotId, job: JobId) -> Self {
        Self {
            slot,
            job,
            holds: None,
            takes: None,
            is_uncounted: false,
            is_unsized: false,
            is_finished: false,
            in_slot: None,
            is_going: false,
        }
    }
}

/// Why the files of a task go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Goes {
    /// Its result is not wanted: its job failed or was aborted, or its project is to be detached.
    NotWanted,
    /// It holds more than its project allows.
    OverBound,
    /// Something has to go. Its task has finished, and nobody needs what is in its slot.
    Finished,
    /// Something has to go. The tasks of its project hold most, and of these it does.
    HoldsMost,
}

impl fmt::Display for Goes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotWanted => "its result is not wanted",
            Self::OverBound => "it holds more than it may",
            Self::Finished => "its task has finished",
            Self::HoldsMost => "the tasks of its project hold most, and of these it does",
        })
    }
}

/// What tasks may hold while there is no space.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Room {
    /// Whose the jobs are that are wanted, finished ones among them, and how much each may hold.
    most: BTreeMap<JobId, (ProjectId, Bytes)>,
    press: Press,
}

/// Whether a task has to go that holds no more than it may.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Press {
    /// There may be space soon.
    #[default]
    No,
    /// One has to, if tasks take more than when they were counted first after space ran out, or after the
    /// last one had to go: what is freed elsewhere does not last.
    IfGrown,
    /// One has to.
    Now,
}

impl Room {
    /// For these wanted jobs: whose each is, and how much it may hold.
    pub fn of(jobs: impl IntoIterator<Item = (JobId, (ProjectId, Bytes))>) -> Self {
        Self { most: jobs.into_iter().collect(), press: Press::No }
    }

    /// The same where that was not enough for a while.
    #[must_use]
    pub fn pressing(self, press: Press) -> Self {
        Self { press, ..self }
    }

    /// The next room after another one, of which a task that has to go may be left to be named. `grown`: so
    /// much more tasks take than before.
    #[must_use]
    pub fn after(self, before: Option<&Self>, grown: Bytes) -> Self {
        let is_due = before.is_some_and(|before| before.press == Press::Now);
        let press = match self.press {
            Press::IfGrown if grown >= WORTH => Press::Now,
            Press::No | Press::IfGrown if is_due => Press::Now,
            Press::IfGrown => Press::No,
            press => press,
        };
        Self { press, ..self }
    }

    /// Whether a task has to go that holds no more than it may.
    #[must_use]
    pub fn presses(&self) -> bool {
        self.press == Press::Now
    }

    /// Whose files go, and why. One that holds most is named once.
    pub fn who_goes(&mut self, held: &[Held]) -> Vec<(SlotId, Goes)> {
        let stay = || held.iter().filter(|held| !held.is_going);
        let go: Vec<_> = stay().filter_map(|held| Some((held.slot, self.why(held)?))).collect();
        if !self.presses() {
            return go;
        }
        // What leaves gives its space back first.
        if !go.is_empty() || held.iter().any(|held| held.is_going) {
            self.press = Press::No;
            return go;
        }
        let is_large = |bytes: Option<Bytes>| bytes.is_some_and(|bytes| bytes >= WORTH);
        let finished = stay().filter(|held| held.is_finished && is_large(held.in_slot));
        let finished: Vec<_> = finished.map(|held| (held.slot, Goes::Finished)).collect();
        if !finished.is_empty() {
            self.press = Press::No;
            return finished;
        }
        let large = stay().filter(|held| !held.is_finished && (held.is_unsized || is_large(held.takes)));
        let totals = self.totals(held);
        let total = |held: &Held| self.project(held).and_then(|id| totals.get(&id));
        let most = large.max_by_key(|held| (held.is_unsized, total(held), held.takes));
        if most.is_some() {
            self.press = Press::No;
        }
        most.map(|held| (held.slot, Goes::HoldsMost)).into_iter().collect()
    }

    /// What the tasks of each project take, finished ones among them.
    fn totals(&self, held: &[Held]) -> BTreeMap<ProjectId, Bytes> {
        let mut totals = BTreeMap::new();
        for held in held {
            if let (Some(project), Some(takes)) = (self.project(held), held.takes) {
                let total = totals.entry(project).or_insert(Bytes(0));
                *total = Bytes(total.0.saturating_add(takes.0));
            }
        }
        totals
    }

    fn project(&self, held: &Held) -> Option<ProjectId> {
        self.most.get(&held.job).map(|(project, _)| *project)
    }

    fn why(&self, held: &Held) -> Option<Goes> {
        match self.most.get(&held.job) {
            None => Some(Goes::NotWanted),
            Some((_, most)) if held.is_uncounted || held.holds.is_some_and(|holds| holds > *most) => {
                Some(Goes::OverBound)
            }
            Some(_) => None,
        }
    }
}

impl Client {
    /// What tasks may hold while there is no space on the disk to store anything. `leaving` are to be
    /// detached.
    pub fn room(&self, leaving: &[ProjectId]) -> Room {
        let jobs = self.state.jobs.values().filter(|job| {
            !leaving.contains(&job.project) && job.outcome.as_ref().is_none_or(Outcome::is_success)
        });
        Room::of(jobs.map(|job| (job.id, (job.project, self.disk_bound(job)))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MB: u64 = 1_000_000;
    const NONE: [u32; 0] = [];

    /// Of the job with the slot's number.
    fn holds(slot: u32, megabytes: u64) -> Held {
        let (holds, job) = (Some(Bytes(megabytes * MB)), JobId(slot.into()));
        Held { holds, takes: holds, ..Held::of(SlotId(slot), job) }
    }

    /// Jobs 1 to 4 may hold 100 MB each, and are of four projects.
    fn room() -> Room {
        of_projects(&[1, 2, 3, 4])
    }

    /// Jobs from 1 on of these projects, which may hold 100 MB each.
    fn of_projects(projects: &[u32]) -> Room {
        let job = |(id, project): (JobId, &u32)| (id, (ProjectId(*project), Bytes(100 * MB)));
        Room::of((1..).map(JobId).zip(projects).map(job))
    }

    fn going(room: &mut Room, held: &[Held]) -> Vec<u32> {
        room.who_goes(held).into_iter().map(|(slot, _)| slot.0).collect()
    }

    #[test]
    fn r6_10_without_space_what_is_not_wanted_or_holds_too_much_goes_and_nothing_else() {
        let uncounted = Held { holds: None, ..holds(3, 0) };
        let finished = |held| Held { is_finished: true, ..held };
        let table = [
            // what is held; which slots are emptied
            (vec![holds(1, 100), uncounted], vec![]),
            (vec![holds(1, 101), holds(2, 100)], vec![1]),
            (vec![holds(9, 0), holds(1, 1)], vec![9]),
            (vec![finished(holds(1, 100)), finished(holds(2, 101)), finished(holds(9, 1))], vec![2, 9]),
            (vec![Held { is_uncounted: true, ..holds(1, 1) }, holds(2, 1)], vec![1]),
            // The same job, in the slot that it had before.
            (vec![holds(1, 1), Held { slot: SlotId(7), ..holds(1, 200) }], vec![7]),
            (vec![Held { is_going: true, ..holds(1, 200) }], vec![]),
        ];
        for (held, expected) in table {
            assert_eq!(going(&mut room(), &held), expected, "{held:?}");
        }
    }

    #[test]
    fn r6_10_if_that_is_not_enough_what_holds_most_goes_one_at_a_time() {
        let finished = Held { is_finished: true, ..holds(4, 90) };
        let rubbish = |megabytes| Held { in_slot: Some(Bytes(megabytes * MB)), ..finished };
        let all = [holds(1, 20), holds(2, 80), holds(3, 50), rubbish(1)];
        assert_eq!(going(&mut room(), &all), NONE);
        // What nobody needs any more goes before that.
        assert_eq!(room().pressing(Press::Now).who_goes(&all), [(SlotId(4), Goes::Finished)]);
        let all = [holds(1, 20), holds(2, 80), holds(3, 50), rubbish(0)];
        let mut pressing = room().pressing(Press::Now);
        assert_eq!(going(&mut pressing, &all), [2]);
        let dying = [holds(1, 20), Held { is_going: true, ..holds(2, 80) }, holds(3, 50), finished];
        assert_eq!(going(&mut pressing, &dying), NONE, "named once");
        assert_eq!(
            going(&mut room().pressing(Press::Now), &dying),
            NONE,
            "what it held is not given back yet"
        );
        assert_eq!(
            going(&mut room().pressing(Press::Now), &[holds(1, 101), holds(2, 80)]),
            [1],
            "it has to go anyway"
        );
        // Not known yet, and too little: it is named when it is known.
        let mut pressing = room().pressing(Press::Now);
        assert_eq!(going(&mut pressing, &[Held { takes: None, ..holds(1, 0) }, holds(2, 0)]), NONE);
        assert_eq!(going(&mut pressing, &[holds(1, 70), holds(2, 0)]), [1]);
    }

    #[test]
    fn r6_10_what_holds_most_is_whose_end_gives_most_space_back_whatever_its_bound_counts() {
        let takes = |slot, megabytes, of: u64| Held { takes: Some(Bytes(of * MB)), ..holds(slot, megabytes) };
        let pressed = |held: &[Held]| going(&mut room().pressing(Press::Now), held);
        // A file with holes; one that the agent has deleted while it was open.
        assert_eq!(pressed(&[takes(1, 60, 0), takes(2, 40, 40)]), [2]);
        assert_eq!(pressed(&[takes(1, 50, 50), takes(2, 30, 90)]), [2]);
        // They are no way around a bound, and nothing against it.
        assert_eq!(going(&mut room(), &[takes(1, 101, 0), takes(2, 30, 200)]), [1]);
    }

    #[test]
    fn r6_10_while_other_files_go_a_task_has_to_only_where_tasks_have_taken_what_was_freed() {
        let (none, much) = (Bytes(0), Bytes(1_000 * MB));
        let due = room().pressing(Press::Now);
        let table = [
            // wanted now, the room before, grown; whether one has to go
            (Press::No, None, much, false),
            (Press::IfGrown, None, none, false),
            (Press::IfGrown, Some(room()), none, false),
            (Press::IfGrown, Some(room()), much, true),
            (Press::Now, Some(room()), none, true),
            // One that has to go could not be named yet.
            (Press::No, Some(due.clone()), none, true),
            (Press::IfGrown, Some(due), none, true),
        ];
        for (press, before, grown, expected) in table {
            let after = room().pressing(press).after(before.as_ref(), grown);
            assert_eq!(after.presses(), expected, "{press:?} {before:?} {grown}");
        }
    }

    #[test]
    fn r6_10_what_a_project_holds_counts_together_and_its_largest_task_goes() {
        let all = [holds(1, 40), holds(2, 25), holds(3, 24), holds(4, 0)];
        assert_eq!(going(&mut of_projects(&[1, 2, 2, 2]).pressing(Press::Now), &all), [2]);
        assert_eq!(going(&mut of_projects(&[1, 2, 3, 4]).pressing(Press::Now), &all), [1]);
        // What it has finished counts, and stays.
        let finished = [holds(1, 40), holds(2, 25), Held { is_finished: true, ..holds(3, 90) }];
        assert_eq!(going(&mut of_projects(&[1, 2, 2]).pressing(Press::Now), &finished), [2]);
        let nothing_else = [holds(1, 40), holds(2, 0), Held { is_finished: true, ..holds(3, 90) }];
        assert_eq!(going(&mut of_projects(&[1, 2, 2]).pressing(Press::Now), &nothing_else), [1]);
        // One that may hold anything.
        let is_unsized = Held { is_unsized: true, ..holds(4, 0) };
        let all = [holds(1, 40), holds(2, 25), holds(3, 24), is_unsized];
        assert_eq!(going(&mut of_projects(&[1, 2, 2, 3]).pressing(Press::Now), &all), [4]);
    }
}
