//! What a range costs, for whoever cuts the work into jobs.
//!
//! Model: a test of exponent p has p - 2 steps, and a step multiplies numbers of p bits. On the machine that
//! this was measured on, a step of this crate's release build took 11.5 µs at p = 10,000 and grew with p^1.62
//! (between 1,000 and 100,000, within 10 %), plus 50 ns for what does not grow. BOINC wants that as
//! floating-point operations: seconds times the speed that the agent's benchmark gives that machine, 7.7·10⁹
//! per second.

use crate::primes::primes_in;
use crate::range::EXPONENT_MAX;

/// Operations per second of the machine that the model was measured on, as the agent's benchmark counts them.
/// Where the two do not fit together, hosts fetch too much work or too little until they have learned better.
pub const SPEED: f64 = 7.7e9;
/// Seconds of one step at an exponent of 10,000 ...
const STEP_AT_10000: f64 = 11.5e-6;
/// ... which grow with this power of the exponent.
const STEP_GROWTH: f64 = 1.62;
/// Seconds of a step that do not depend on the exponent.
const STEP_OVERHEAD: f64 = 50e-9;

/// Floating-point operations that the test of one exponent counts for.
pub(crate) fn test_flops(exponent: u32) -> f64 {
    let exponent = f64::from(exponent);
    let step = STEP_AT_10000 * (exponent / 10_000.0).powf(STEP_GROWTH) + STEP_OVERHEAD;
    exponent * step * SPEED
}

/// Floating-point operations that the range `from..=to` counts for (BOINC: `rsc_fpops_est`).
pub fn estimated_flops(from: u64, to: u64) -> f64 {
    primes(from, to).into_iter().map(test_flops).sum()
}

/// Cuts `from..=to` into ranges that follow one another and cost about the same: as many as `jobs`, or as
/// there are primes if they are fewer, and at least one.
pub fn split(from: u64, to: u64, jobs: usize) -> Vec<(u64, u64)> {
    let primes = primes(from, to);
    let total: f64 = primes.iter().copied().map(test_flops).sum();
    let jobs = jobs.clamp(1, primes.len().max(1));
    let mut ranges = Vec::with_capacity(jobs);
    let (mut start, mut done) = (from, 0.0);
    for (index, &prime) in primes.iter().enumerate() {
        done += test_flops(prime);
        let still_to_cut = jobs - 1 - ranges.len();
        let primes_left = primes.len() - 1 - index;
        // Cut where the cost is reached, and in time to leave a prime for each of the others.
        let is_reached = done >= total * (ranges.len() + 1) as f64 / jobs as f64;
        if still_to_cut > 0 && (is_reached || primes_left == still_to_cut) {
            ranges.push((start, u64::from(prime)));
            start = u64::from(prime) + 1;
        }
    }
    ranges.push((start, to.max(start)));
    ranges
}

fn primes(from: u64, to: u64) -> Vec<u32> {
    let bounded = |number: u64| u32::try_from(number).unwrap_or(u32::MAX).min(EXPONENT_MAX);
    primes_in(bounded(from), bounded(to))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_range_without_a_prime_is_one_job_that_costs_nothing() {
        assert_eq!(estimated_flops(24, 28), 0.0);
        assert_eq!(split(24, 28, 5), [(24, 28)]);
    }

    #[test]
    fn three_primes_are_three_jobs_at_most() {
        assert_eq!(split(2, 6, 100), [(2, 2), (3, 3), (4, 6)]);
        assert_eq!(split(2, 6, 0), [(2, 6)]);
    }

    #[test]
    fn jobs_of_a_large_range_cost_the_same_within_a_tenth() {
        let ranges = split(2, 11_213, 12);
        assert_eq!(ranges.len(), 12);
        let mean = estimated_flops(2, 11_213) / 12.0;
        for (from, to) in ranges {
            let cost = estimated_flops(from, to);
            assert!((cost / mean - 1.0).abs() < 0.1, "{from}..={to} costs {cost}, the mean is {mean}");
        }
    }

    proptest! {
        #[test]
        fn ranges_follow_one_another_and_none_costs_much_more_than_its_part(
            from in 0_u64..3_000, len in 0_u64..3_000, jobs in 0_usize..50,
        ) {
            let to = from + len;
            let ranges = split(from, to, jobs);
            prop_assert!(ranges.len() <= jobs.max(1));
            prop_assert_eq!((ranges[0].0, ranges[ranges.len() - 1].1), (from, to));
            for pair in ranges.windows(2) {
                prop_assert_eq!(pair[0].1 + 1, pair[1].0);
            }
            let (total, largest) = (estimated_flops(from, to), test_flops(to as u32));
            for &(from, to) in &ranges {
                prop_assert!(from <= to);
                prop_assert!(estimated_flops(from, to) <= total / ranges.len() as f64 + largest * 1.000_001);
            }
        }
    }
}
