//! How often tasks are looked at (R6.2).
//!
//! Each second while one computes, is started or is to leave. Tasks whose processes are stopped use nothing,
//! read nothing and write nothing. So once several looks have found all of them so, a look in half a minute
//! is enough, and sooner for their part of the swap space. That one ends is an event, not a look, and an
//! order to go on makes the next look come at once.
//!
//! One may have itself go on in spite of it, by a timer of its own (see [`super::restless`]), and nobody sees
//! what it takes until the next look. So half a minute is only for tasks whose memory and number of processes
//! the kernel bounds, each in a control group of its own, and while nobody wants the machine for himself;
//! else they are looked at every three seconds.
//!
//! A task that rests because it was told to by a message ([`Rest`]) is not stopped: it wakes again and again
//! to look whether it may go on, and ends itself without heartbeats. So it is stopped, too, when it has
//! rested for some looks; it was given the time to finish what it must not leave half done.

use std::time::Duration;

use fallow_domain::Duration as CpuTime;

/// How often tasks are looked at.
const TICK: Duration = Duration::from_secs(1);
/// While all are stopped, and the kernel bounds what each could take.
const ALL_STOPPED: Duration = Duration::from_secs(30);
/// While all are stopped, and nothing but looks bounds what some could take, or keeps it from somebody who is
/// there.
const ALL_STOPPED_UNBOUND: Duration = Duration::from_secs(3);
/// The same while somebody limits what tasks have in the swap space: the system moves stopped ones there.
const ALL_STOPPED_AND_SWAP: Duration = Duration::from_secs(10);
/// How often it is looked whether guard and trash are all right, while there is no task.
/// A guard that is gone is missed when the next task starts, and is started again then.
const NO_TASK: Duration = Duration::from_secs(300);
/// So many looks in a row have to find a task stopped: one that goes on by itself mostly does so soon.
const LOOKS: u32 = 5;
/// One that was told to rest is stopped after so many looks, all a second apart.
const REST_LOOKS: u32 = 10;
/// So much CPU time from one look to the next is no computing.
const LOOKING_TAKES: CpuTime = CpuTime::from_millis(100);

/// What there is to look at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Matters {
    /// There are tasks.
    pub(super) tasks: bool,
    /// All of them are stopped, and have been for some looks.
    pub(super) all_stopped: bool,
    /// Each has a control group of its own, with limits of memory and of processes.
    pub(super) all_bound: bool,
    /// Somebody wants the machine for himself.
    pub(super) wanted: bool,
    /// Something waits to be told, or tasks have to leave, or to make room: it goes on by looks.
    pub(super) under_way: bool,
    /// It is looked at the swap space.
    pub(super) swap: bool,
}

impl Matters {
    /// How long until the next look.
    pub(super) const fn pace(self) -> Duration {
        match self {
            Self { under_way: true, .. } => TICK,
            Self { tasks: false, .. } => NO_TASK,
            Self { all_stopped: false, .. } => TICK,
            Self { all_bound: false, .. } | Self { wanted: true, .. } => ALL_STOPPED_UNBOUND,
            Self { swap: true, .. } => ALL_STOPPED_AND_SWAP,
            _ => ALL_STOPPED,
        }
    }
}

/// Whether a task that is stopped was found so by some looks in a row.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Stillness {
    looks: u32,
    cpu: CpuTime,
}

impl Stillness {
    /// A look: whether its processes were stopped, and its CPU time until now.
    pub(super) fn look(&mut self, is_stopped: bool, cpu: CpuTime) {
        let is_still = is_stopped && cpu == self.cpu;
        (self.looks, self.cpu) = (if is_still { self.looks.saturating_add(1) } else { 0 }, cpu);
    }

    /// It was let go on.
    pub(super) fn goes_on(&mut self) {
        self.looks = 0;
    }

    /// Whether it is to be looked at less often.
    pub(super) const fn is_so(&self) -> bool {
        self.looks >= LOOKS
    }
}

/// Whether a task that was told to rest by a message does so. What it needs to look whether it may go on is
/// no computing; one that is within what it must not leave half done takes more.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rest {
    looks: u32,
    cpu: CpuTime,
}

impl Rest {
    /// A look: whether it is to rest, and its CPU time until now.
    pub(super) fn look(&mut self, is_to_rest: bool, cpu: CpuTime) {
        let rests = is_to_rest && cpu - self.cpu <= LOOKING_TAKES;
        (self.looks, self.cpu) = (if rests { self.looks.saturating_add(1) } else { 0 }, cpu);
    }

    /// Whether it has for so long that it can be stopped.
    pub(super) const fn is_so(&self) -> bool {
        self.looks >= REST_LOOKS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r6_2_tasks_that_are_all_stopped_are_looked_at_less_often_and_any_other_each_second() {
        let unbound = Matters { tasks: true, all_stopped: true, ..Matters::default() };
        let stopped = Matters { all_bound: true, ..unbound };
        let table = [
            (Matters { all_stopped: false, ..stopped }, TICK),
            (Matters { all_stopped: false, swap: true, ..stopped }, TICK),
            (stopped, Duration::from_secs(30)),
            (Matters { swap: true, ..stopped }, Duration::from_secs(10)),
            // One could have itself go on, and nothing bounds what it takes until somebody looks.
            (unbound, Duration::from_secs(3)),
            (Matters { swap: true, ..unbound }, Duration::from_secs(3)),
            (Matters { wanted: true, ..stopped }, Duration::from_secs(3)),
            (Matters { wanted: true, all_stopped: false, ..stopped }, TICK),
            (Matters { all_stopped: false, ..unbound }, TICK),
            (Matters { under_way: true, ..stopped }, TICK),
            (Matters::default(), NO_TASK),
            (Matters { all_stopped: true, swap: true, ..Matters::default() }, NO_TASK),
            (Matters { under_way: true, ..Matters::default() }, TICK),
        ];
        for (matters, pace) in table {
            assert_eq!(matters.pace(), pace, "{matters:?}");
        }
    }

    #[test]
    fn r6_2_a_task_counts_as_stopped_after_some_looks_in_which_it_used_nothing() {
        let cpu = CpuTime::from_millis;
        // What each look finds, from the first on.
        let after = |looks: &[(bool, i64)]| {
            let mut stillness = Stillness::default();
            looks.iter().for_each(|&(stopped, millis)| stillness.look(stopped, cpu(millis)));
            stillness
        };
        // The first look after the stop still finds what it used before.
        let looks = [(false, 10), (true, 20), (true, 20), (true, 20), (true, 20), (true, 20), (true, 20)];
        for (n, is_so) in [(2, false), (3, false), (6, false), (7, true)] {
            assert_eq!(after(&looks[..n]).is_so(), is_so, "after {n} looks");
        }
        for broken in [(true, 21), (false, 20)] {
            let mut found = after(&looks);
            found.look(broken.0, cpu(broken.1));
            assert!(!found.is_so(), "{broken:?}");
        }
        let mut found = after(&looks);
        found.goes_on();
        assert!(!found.is_so());
    }

    #[test]
    fn r6_2_a_task_that_was_told_to_rest_is_stopped_once_it_has_rested_for_ten_looks() {
        let rests_after = |looks: &[(bool, i64)]| {
            let mut rest = Rest::default();
            looks.iter().for_each(|&(told, millis)| rest.look(told, CpuTime::from_millis(millis)));
            rest.is_so()
        };
        // It has computed until it was told, and then only looks whether it may go on.
        let resting = |n: i64| [(false, 1_000)].into_iter().chain((1..=n).map(|k| (true, 1_000 + 100 * k)));
        assert!(!rests_after(&resting(9).collect::<Vec<_>>()));
        assert!(rests_after(&resting(10).collect::<Vec<_>>()));
        // It has something to finish, or was not told.
        let busy = (0..30).map(|k| (true, 1_000 + 101 * k)).collect::<Vec<_>>();
        let untold = (0..30).map(|_| (false, 1_000)).collect::<Vec<_>>();
        assert!(!rests_after(&busy) && !rests_after(&untold));
    }
}
