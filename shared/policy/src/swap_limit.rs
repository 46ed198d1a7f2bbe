//! How much of the swap space tasks may hold (R6.4; BOINC: `vm_max_used_pct`), and which of them leave memory
//! when they hold more.
//!
//! Model: as many leave as is needed, the largest first, but those that lose least before others: one that
//! does not run and has saved its state, then one that runs and has, then any. Who need not have left once
//! the others have stays: so tasks that hold little do not leave for one that holds too much by itself. The
//! stock client looks at those that run only, and takes the largest of them.

use std::collections::BTreeSet;

use fallow_domain::{Bytes, JobId};

/// A task in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// Its job.
    pub job: JobId,
    /// What of it is in the swap space.
    pub swap: Bytes,
    /// It runs.
    pub runs: bool,
    /// It has saved its state, so that not all that it did is lost.
    pub is_saved: bool,
}

/// Which tasks leave memory where all together may hold `most` of the swap space.
#[must_use]
pub fn who_leaves(most: Bytes, tasks: impl IntoIterator<Item = Held>) -> Vec<JobId> {
    let mut tasks: Vec<Held> = tasks.into_iter().filter(|task| task.swap > Bytes(0)).collect();
    let mut all = tasks.iter().fold(0, |all: u64, task| all.saturating_add(task.swap.0));
    tasks.sort_by_key(|task| (!task.is_saved, task.runs, std::cmp::Reverse(task.swap), task.job));
    let mut leave = Vec::new();
    for task in tasks {
        if all <= most.0 {
            break;
        }
        all = all.saturating_sub(task.swap.0);
        leave.push(task);
    }
    let mut stays = BTreeSet::new();
    for task in leave.iter().rev() {
        let with_it = all.saturating_add(task.swap.0);
        if with_it <= most.0 {
            all = with_it;
            stays.insert(task.job);
        }
    }
    leave.into_iter().map(|task| task.job).filter(|job| !stays.contains(job)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(job: u64, swap: u64, runs: bool, is_saved: bool) -> Held {
        Held { job: JobId(job), swap: Bytes(swap), runs, is_saved }
    }

    #[test]
    fn r6_4_as_many_tasks_leave_as_hold_too_much_of_the_swap_space_and_those_first_that_lose_least() {
        let tasks = [
            held(1, 50, true, true),
            held(2, 40, false, true),
            held(3, 30, true, false),
            held(4, 20, false, true),
            held(5, 0, false, true),
            held(6, 60, true, true),
        ];
        for (most, expected) in [
            (200, &[][..]),
            (199, &[2]),
            (160, &[2]),
            (159, &[2, 4]),
            (100, &[2, 6]),
            (30, &[2, 4, 6, 1]),
            (0, &[2, 4, 6, 1, 3]),
        ] {
            let left: Vec<u64> = who_leaves(Bytes(most), tasks).iter().map(|job| job.0).collect();
            assert_eq!(left, expected, "{most}");
        }
    }

    #[test]
    fn r6_4_no_task_leaves_for_one_that_holds_too_much_by_itself() {
        let tasks = [held(1, 1, true, true), held(2, 1, false, true), held(9, 200, true, false)];
        assert_eq!(who_leaves(Bytes(100), tasks), [JobId(9)]);
        // Of those that hold little as many stay as fit.
        let tasks = [held(1, 90, true, true), held(2, 30, true, true), held(9, 200, true, false)];
        assert_eq!(who_leaves(Bytes(100), tasks), [JobId(1), JobId(9)]);
    }
}
