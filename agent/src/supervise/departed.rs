//! The CPU time of a task's processes that are gone.
//!
//! Model: when a process ends, its parent gets its time from the kernel if it waits for it. One whose parent
//! was gone before, or that ignores how its children end, takes its time out of the kernel's books. So at
//! each look the time of those that are gone since the look before is compared with what the nearest of their
//! ancestors that lives has got since; what is missing there is kept here, as it was seen last.
//!
//! Left out: what such a process used after it was last seen, and one that comes and goes between two looks.

use std::collections::BTreeMap;

use crate::proc::{self, Process};

/// What was seen at the last look, and what is gone.
#[derive(Debug, Default)]
pub(super) struct Departed {
    seen: BTreeMap<u32, Seen>,
    /// Clock ticks, by the first process of the task.
    gone: BTreeMap<u32, u64>,
}

#[derive(Clone, Copy, Debug)]
struct Seen {
    leader: u32,
    parent: u32,
    start: u64,
    ticks: u64,
    waited: u64,
}

impl Departed {
    /// Clock ticks of those of a task that are gone, and that no other process of it has got.
    pub(super) fn gone(&self, leader: u32) -> u64 {
        self.gone.get(&leader).copied().unwrap_or(0)
    }

    /// Looks at the processes of all tasks, each with its task's first process. One of which more may be
    /// known by now is looked at again.
    pub(super) fn look(&mut self, members: &mut [(u32, Process)]) {
        self.compare(members, proc::find);
    }

    fn compare(&mut self, members: &mut [(u32, Process)], again: impl Fn(u32) -> Option<Process>) {
        let at: BTreeMap<u32, usize> =
            members.iter().enumerate().map(|(at, (_, process))| (process.pid, at)).collect();
        let alive = |pid: u32, start: u64| at.get(&pid).copied().filter(|&at| members[at].1.start == start);
        // Of ancestors that live, and of tasks where there is none.
        let (mut owed, mut lost): (BTreeMap<usize, u64>, Vec<(u32, u64)>) = (BTreeMap::new(), Vec::new());
        for (&pid, seen) in self.seen.iter().filter(|(pid, seen)| alive(**pid, seen.start).is_none()) {
            let (total, mut parent, mut steps) = (seen.ticks + seen.waited, seen.parent, 0);
            let heir = loop {
                let Some(other) = self.seen.get(&parent).filter(|_| steps < self.seen.len()) else {
                    break None;
                };
                if let Some(at) = alive(parent, other.start) {
                    break Some(at);
                }
                (parent, steps) = (other.parent, steps + 1);
            };
            match heir {
                Some(at) => *owed.entry(at).or_default() += total,
                // The first process's own is told by whoever waits for it.
                None if pid == seen.leader => {}
                None => lost.push((seen.leader, total)),
            }
        }
        for (at, owed) in owed {
            let (leader, process) = &mut members[at];
            let before = self.seen.get(&process.pid).map_or(0, |seen| seen.waited);
            if process.waited_ticks - before.min(process.waited_ticks) < owed {
                // It was read of before it had waited, perhaps.
                *process = again(process.pid).filter(|now| now.start == process.start).unwrap_or(*process);
            }
            let got = process.waited_ticks.saturating_sub(before);
            lost.push((*leader, owed.saturating_sub(got)));
        }
        for (leader, ticks) in lost {
            *self.gone.entry(leader).or_default() += ticks;
        }
        self.seen = members
            .iter()
            .map(|&(leader, Process { pid, parent, start, ticks, waited_ticks: waited, .. })| {
                (pid, Seen { leader, parent, start, ticks, waited })
            })
            .collect();
        self.gone.retain(|leader, _| self.seen.values().any(|seen| seen.leader == *leader));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(pid: u32, parent: u32, ticks: u64, waited_ticks: u64) -> (u32, Process) {
        let own = proc::find(std::process::id()).unwrap();
        (10, Process { pid, parent, start: 1, ticks, waited_ticks, ..own })
    }

    /// What is gone after looks at these.
    fn gone(looks: &[&[(u32, Process)]]) -> u64 {
        let mut departed = Departed::default();
        for look in looks {
            departed.compare(&mut look.to_vec(), |_| None);
        }
        departed.gone(10)
    }

    #[test]
    fn r6_10_the_time_of_what_nobody_waited_for_is_kept_and_of_others_is_not_counted_twice() {
        let first = |waited| process(10, 1, 5, waited);
        // Its parent waited, for it and for another that was never seen.
        assert_eq!(gone(&[&[first(0), process(11, 10, 7, 0)], &[first(9)]]), 0);
        // Its parent does not want to know.
        assert_eq!(gone(&[&[first(3), process(11, 10, 7, 2)], &[first(3)]]), 9);
        // It had no parent any more, nor had its child one after it.
        let detached = [first(0), process(11, 1, 7, 0), process(12, 11, 4, 0)];
        assert_eq!(gone(&[&detached, &[first(0), process(12, 1, 6, 0)], &[first(0)]]), 13);
        // Parent and child went together, and each was waited for.
        let tree = [first(0), process(11, 10, 7, 0), process(12, 11, 4, 0)];
        assert_eq!(gone(&[&tree, &[first(11)]]), 0);
        assert_eq!(gone(&[&tree, &[first(7)]]), 4);
        // The id is another's by now.
        let mut later = process(11, 10, 1, 0);
        later.1.start = 2;
        assert_eq!(gone(&[&[first(0), process(11, 1, 7, 0)], &[first(0), later]]), 7);
        // The task itself is gone.
        assert_eq!(gone(&[&[first(0), process(11, 1, 7, 0)], &[]]), 0);
    }

    #[test]
    fn r6_10_a_parent_that_was_looked_at_before_it_waited_is_looked_at_again() {
        let mut departed = Departed::default();
        departed.compare(&mut [process(10, 1, 5, 0), process(11, 10, 7, 0)], |_| None);
        let mut members = [process(10, 1, 5, 0)];
        departed.compare(&mut members, |_| Some(process(10, 1, 5, 8).1));
        assert_eq!((departed.gone(10), members[0].1.waited_ticks), (0, 8));
    }
}
