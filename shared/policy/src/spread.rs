//! How many jobs of a project a host may hold, when jobs are few and hosts are many.
//!
//! Why: a host asks for as many jobs as fill its buffer by their estimates. A batch of short jobs, or of jobs
//! that are shorter than their estimates, goes whole to the first hosts that ask, and the others idle.
//!
//! Model: guided self-scheduling (C. D. Polychronopoulos and D. J. Kuck, "Guided Self-Scheduling: A Practical
//! Scheduling Scheme for Parallel Supercomputers", IEEE Transactions on Computers C-36(12), 1987). Who comes
//! for work gets a part of what is left, so parts shrink towards the end and all come to it at about the same
//! time. Theirs is 1/p of it for p processors. Ours is half of that, since hosts are unlike: one that is slow
//! or goes off must not hold the batch up with a part that was even. While there is much more than hosts can
//! take, the bound is far above what they ask for.

/// Most jobs that a host may hold: at least `instances`, so that none of its processors idles; else half of
/// an even part of the `unsent` jobs among all `hosts`.
#[must_use]
pub const fn most_jobs(unsent: u64, hosts: u64, instances: u64) -> u64 {
    let parts = hosts.saturating_mul(2);
    let part = if parts == 0 { unsent } else { unsent.div_ceil(parts) };
    if part > instances { part } else { instances }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_an_even_part_is_sent_and_never_less_than_fills_the_host() {
        assert_eq!(most_jobs(6_000, 300, 1), 10);
        assert_eq!(most_jobs(6_001, 300, 1), 11);
        assert_eq!(most_jobs(6_000, 300, 64), 64);
        assert_eq!(most_jobs(0, 300, 4), 4);
        assert_eq!(most_jobs(u64::MAX, 1, 1), u64::MAX / 2 + 1);
    }

    #[test]
    fn nobody_divides_by_no_hosts() {
        assert_eq!([most_jobs(10, 0, 1), most_jobs(10, u64::MAX, 1)], [10, 1]);
    }

    #[test]
    fn hosts_that_ask_in_turn_all_get_a_part_and_the_parts_shrink() {
        let (mut unsent, mut parts) = (600_u64, Vec::new());
        while unsent > 0 {
            let part = most_jobs(unsent, 30, 1).min(unsent);
            unsent -= part;
            parts.push(part);
        }
        assert!(parts.len() >= 30 && parts.is_sorted_by(|earlier, later| earlier >= later), "{parts:?}");
        assert_eq!((parts[0], parts[29] >= 1), (10, true));
    }
}
