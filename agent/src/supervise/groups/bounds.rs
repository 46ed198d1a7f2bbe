//! What control groups are held to: pure arithmetic.

use fallow_domain::Bytes;

use crate::cgroup::{OTHERS_MEMORY, below, memory_of_a_task, number};

/// A task's group has so much more memory than its task may, and no less than this: the client judges what a
/// task has over some seconds, so a short peak is no excess yet.
const MARGIN_PART: u64 = 2;
const MARGIN_MIN: u64 = 64 << 20;
/// The period of quotas of CPU time, in microseconds. Who has used up his is not stopped before the next one
/// begins, so it is shorter than the kernel's own.
const CPU_PERIOD: u64 = 10_000;
/// So often the number of processes that a task may have before the kernel gives it no more.
const PROCESSES: u64 = 2;
/// The same of processes and threads.
const OTHERS_PROCESSES: u64 = 512;

/// The most memory that the kernel gives all tasks together, where all of the agent has no more than the
/// ceiling. Where they come to that, it chooses which goes, and no one is said to take too much.
pub(super) fn all_memory(ceiling: u64) -> u64 {
    below(ceiling, OTHERS_MEMORY, 1)
}

/// The same of processes and threads.
pub(super) fn all_processes(ceiling: u64) -> u64 {
    below(ceiling, OTHERS_PROCESSES, 1)
}

/// What the kernel gives a task that may have so much, where all of the agent has no more than the ceiling.
pub(super) fn memory_max(allowed: Bytes, ceiling: Option<u64>) -> u64 {
    let max = allowed.0.saturating_add((allowed.0 / MARGIN_PART).max(MARGIN_MIN));
    ceiling.map_or(max, |ceiling| max.min(memory_of_a_task(ceiling)))
}

/// What the kernel is told of so many CPUs (`cpu.max`): microseconds in each period, and the period.
pub(super) fn cpu_max(cpus: Option<u32>) -> String {
    let most = cpus.map_or_else(|| "max".to_owned(), |cpus| (u64::from(cpus) * CPU_PERIOD).to_string());
    format!("{most} {CPU_PERIOD}")
}

/// The processes and threads that the kernel gives a task which may have so many, where all of the agent has
/// no more than the ceiling.
pub(super) fn processes_max(allowed: u64, ceiling: Option<u64>) -> u64 {
    let max = allowed.saturating_mul(PROCESSES);
    ceiling.map_or(max, |ceiling| max.min(below(ceiling, OTHERS_PROCESSES, 2)))
}

/// Whether the kernel killed what is in a group because it needed more memory than the group may have, by
/// its `memory.events`. What was killed for want of memory above it has done no wrong: then `oom` counts
/// there alone. Nor has one that would have more by now, and was not given it in time.
pub(super) fn is_to_blame(events: &str, most: u64, now: Option<u64>) -> bool {
    let has = |word| number(events, word).is_some_and(|times| times > 0);
    let is_bounded = most < u64::MAX && now.is_none_or(|now| now <= most);
    is_bounded && has("oom") && has("oom_kill")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r6_10_a_group_has_half_as_much_memory_more_than_its_task_may_and_less_than_what_is_above_it() {
        let gib = |gib: u64| gib << 30;
        let cases = [
            // Enough for a short peak to pass.
            (gib(16), None, gib(24)),
            (gib(16), Some(gib(64)), gib(24)),
            (0, None, MARGIN_MIN),
            (100 << 20, None, 164 << 20),
            // Below the ceiling by what the agent and other tasks take, or by half where that is more.
            (gib(16), Some(gib(16)), gib(16) - 2 * OTHERS_MEMORY),
            (gib(16), Some(100 << 20), 50 << 20),
            (u64::MAX, None, u64::MAX),
        ];
        for (allowed, ceiling, expected) in cases {
            assert_eq!(memory_max(Bytes(allowed), ceiling), expected, "{allowed} {ceiling:?}");
        }
    }

    #[test]
    fn r6_10_a_group_has_twice_the_processes_that_its_task_may_and_less_than_what_is_above_it() {
        let cases = [
            (1_032, None, 2_064),
            (1_032, Some(4_096), 2_064),
            // A host of 128 CPUs.
            (3_048, Some(4_096), 4_096 - 2 * OTHERS_PROCESSES),
            (1_032, Some(100), 50),
        ];
        for (allowed, ceiling, expected) in cases {
            assert_eq!(processes_max(allowed, ceiling), expected, "{allowed} {ceiling:?}");
        }
    }

    #[test]
    fn r6_10_all_groups_together_leave_the_agent_its_part_of_what_is_above_it() {
        assert_eq!([4_096, 600, 100, 1, 0].map(all_processes), [3_584, 450, 75, 1, 0]);
        assert_eq!([1 << 30, 100 << 20].map(all_memory), [(1 << 30) - OTHERS_MEMORY, 75 << 20]);
        // A single one leaves some of that to its neighbours: it comes to its own end first, and is to blame.
        for ceiling in [1 << 40, 1 << 30, 100 << 20] {
            assert!(memory_max(Bytes(u64::MAX), Some(ceiling)) < all_memory(ceiling), "{ceiling}");
            assert!(processes_max(u64::MAX, Some(ceiling)) < all_processes(ceiling), "{ceiling}");
        }
    }

    #[test]
    fn r6_10_a_task_is_to_blame_for_what_its_own_group_lacks_alone() {
        let events = |oom: u64, kills: u64| {
            format!("low 0\nhigh 0\nmax 9\noom {oom}\noom_kill {kills}\noom_group_kill 1\n")
        };
        let cases = [
            (events(1, 3), 4_000, Some(4_000), true),
            (events(1, 3), 4_000, None, true),
            // All tasks together, or the machine, came to their end.
            (events(0, 3), 4_000, Some(4_000), false),
            (events(1, 0), 4_000, Some(4_000), false),
            (String::new(), 4_000, Some(4_000), false),
            // Less than before is no excuse; more, which it did not get in time, is.
            (events(1, 3), 4_000, Some(3_000), true),
            (events(1, 3), 4_000, Some(5_000), false),
            // A bound of the job's own, below its group.
            (events(1, 3), u64::MAX, None, false),
        ];
        for (events, most, now, expected) in cases {
            assert_eq!(is_to_blame(&events, most, now), expected, "{events} {most} {now:?}");
        }
    }
}
