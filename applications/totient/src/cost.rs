//! What a range costs, for whoever cuts the work into jobs.
//!
//! Model: a number takes a fixed time and some for each prime factor, of which numbers near n have about ln
//! ln n; a segment takes some for each prime up to √n, of which there are about √n / ln √n. The release build
//! was measured at 10⁶ to 9·10¹² (7.5 to 15.3 ns per number) and is met within 7 %. BOINC wants
//! floating-point operations: seconds times the speed that the agent's benchmark gives that machine, 7.7·10⁹
//! per second.

use crate::sieve::SEGMENT;

/// Operations per second of the machine that the model was measured on, as the agent's benchmark counts them.
/// Where the two do not fit together, hosts fetch too much work or too little until they have learned better.
pub const SPEED: f64 = 7.7e9;
/// Seconds that a number takes in any case ...
const NUMBER: f64 = 2e-9;
/// ... and for each factor ...
const FACTOR: f64 = 2e-9;
/// ... and a segment for each prime.
const PRIME: f64 = 16e-9;

/// Floating-point operations of `len` numbers that end at `to`.
fn flops(to: u64, len: u64) -> f64 {
    let log = (to.max(16) as f64).ln();
    let primes = (to as f64).sqrt() / (log / 2.0);
    let segments = len as f64 / SEGMENT as f64;
    SPEED * (len as f64 * (NUMBER + FACTOR * log.ln()) + segments * primes * PRIME)
}

/// Floating-point operations that the range `from..=to` counts for (BOINC: `rsc_fpops_est`).
pub fn estimated_flops(from: u64, to: u64) -> f64 {
    pieces(from, to).map(|(first, last)| flops(last, last - first + 1)).sum()
}

/// Cuts `from..=to` into ranges that follow one another and cost about the same: as many as `jobs`, or as
/// there are segments if they are fewer, and at least one.
pub fn split(from: u64, to: u64, jobs: usize) -> Vec<(u64, u64)> {
    let pieces: Vec<(u64, u64)> = pieces(from, to).collect();
    let total = estimated_flops(from, to);
    let jobs = jobs.clamp(1, pieces.len().max(1));
    let mut ranges = Vec::with_capacity(jobs);
    let (mut start, mut done) = (from, 0.0);
    for (index, &(first, last)) in pieces.iter().enumerate() {
        done += flops(last, last - first + 1);
        let still_to_cut = jobs - 1 - ranges.len();
        let pieces_left = pieces.len() - 1 - index;
        // Cut where the cost is reached, and in time to leave a piece for each of the others.
        let is_reached = done >= total * (ranges.len() + 1) as f64 / jobs as f64;
        if still_to_cut > 0 && (is_reached || pieces_left == still_to_cut) {
            ranges.push((start, last));
            start = last + 1;
        }
    }
    ranges.push((start, to.max(start)));
    ranges
}

/// The range in pieces of so many segments that there are 100,000 pieces at most, however long it is.
fn pieces(from: u64, to: u64) -> impl Iterator<Item = (u64, u64)> {
    let len = (to.saturating_sub(from) / 100_000).div_ceil(SEGMENT).max(1).saturating_mul(SEGMENT);
    let next = move |&first: &u64| first.checked_add(len).filter(|&first| first <= to);
    std::iter::successors(Some(from).filter(|&from| from <= to), next)
        .map(move |first| (first, first.saturating_add(len - 1).min(to)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_range_that_is_none_costs_nothing_and_is_one_job() {
        assert_eq!(estimated_flops(5, 4), 0.0);
        assert_eq!(split(5, 4, 3), [(5, 5)]);
    }

    #[test]
    fn a_range_of_all_numbers_there_are_is_cut_in_bounded_time() {
        let ranges = split(0, u64::MAX, 7);
        assert_eq!((ranges.len(), ranges[6].1), (7, u64::MAX));
    }

    proptest! {
        #[test]
        fn ranges_follow_one_another_and_cost_the_same_but_for_a_segment(
            from in 1_u64..10_u64.pow(12), len in 0_u64..10_u64.pow(9), jobs in 0_usize..50,
        ) {
            let to = from + len;
            let ranges = split(from, to, jobs);
            prop_assert!(ranges.len() <= jobs.max(1));
            prop_assert_eq!((ranges[0].0, ranges[ranges.len() - 1].1), (from, to));
            for pair in ranges.windows(2) {
                prop_assert_eq!(pair[0].1 + 1, pair[1].0);
            }
            let (total, segment) = (estimated_flops(from, to), flops(to, SEGMENT));
            for &(from, to) in &ranges {
                prop_assert!(from <= to);
                prop_assert!(estimated_flops(from, to) <= total / ranges.len() as f64 + 2.0 * segment);
            }
        }
    }
}
