//! How fast one CPU is: a second of arithmetic of the kind that Whetstone and Dhrystone count.
//!
//! Model: the same few loops are run until enough CPU time is used, and their operations are counted. The time is
//! that of the thread and not of the clock, so that a busy machine gives the same figures as an idle one; the thread
//! runs at idle priority, so that measuring disturbs nobody. The figures are BOINC's `p_fpops` and `p_iops`, from
//! which servers estimate run times; clients correct the estimates by experience.
//!
//! Left out: memory bandwidth, for which BOINC itself has long sent the constant below.

use std::hint::black_box;
use std::time::{Duration, Instant};

use fallow_domain::{HostSpeed, Speed};

use crate::sys::{self, Urgency};

/// CPU time for each of the two kinds.
const CPU: Duration = Duration::from_millis(500);
/// On a machine that is so busy that we hardly run, less must do.
const WALL: Duration = Duration::from_secs(4);
/// What BOINC sends.
const MEMBW: f64 = 1e9;

/// Measures one CPU. Takes about a second; none where the system does not tell CPU times.
pub fn measure() -> Option<HostSpeed> {
    let measured = std::thread::Builder::new().name("benchmark".into()).spawn(|| {
        sys::lower(Urgency::Idle);
        (rate(floating_point), rate(integer))
    });
    let (fpops, iops) = measured.ok().and_then(|thread| thread.join().ok()).unwrap_or((None, None));
    let speed = |rate: Option<f64>| rate.and_then(|rate| Speed::new(rate).ok());
    let (fpops, iops) = (speed(fpops)?, speed(iops)?);
    Some(HostSpeed { fpops, iops, membw: MEMBW, measured_at: crate::clock::now().as_secs_f64() })
}

/// Operations per second of CPU time.
fn rate(run: fn(&mut [f64; 4], u64) -> u64) -> Option<f64> {
    let (start, began) = (sys::thread_cpu_time()?, Instant::now());
    let (mut state, mut operations, mut round) = ([1.0, -1.0, -1.0, -1.0], 0_u64, 0);
    loop {
        round += 1;
        operations += run(&mut state, round);
        let used = sys::thread_cpu_time()?.checked_sub(start)?;
        if used >= CPU || (began.elapsed() >= WALL && !used.is_zero()) {
            black_box(state);
            return Some(operations as f64 / used.as_secs_f64());
        }
    }
}

/// Whetstone's array elements, and some of its functions. Returns the number of operations.
fn floating_point(e: &mut [f64; 4], _round: u64) -> u64 {
    const LOOPS: u64 = 4_000;
    // Whetstone's constants: they keep the values from running off.
    let (t, t2) = (black_box(0.499_975), black_box(2.0));
    for _ in 0..LOOPS {
        e[0] = (e[0] + e[1] + e[2] - e[3]) * t;
        e[1] = (e[0] + e[1] - e[2] + e[3]) * t;
        e[2] = (e[0] - e[1] + e[2] + e[3]) * t;
        e[3] = (-e[0] + e[1] + e[2] + e[3]) / t2;
    }
    let mut x = black_box(0.75_f64);
    for _ in 0..LOOPS / 20 {
        x = (x.ln() / 0.500_25).exp().sqrt();
    }
    e[0] += x * 1e-9;
    // Sixteen a loop; a function counts as Whetstone weighs it, about eight plain operations.
    LOOPS * 16 + LOOPS / 20 * (3 * 8 + 1)
}

/// Arithmetic, comparisons and memory of small integers, as Dhrystone's mix has them.
fn integer(_: &mut [f64; 4], round: u64) -> u64 {
    const LOOPS: u64 = 4_000;
    let mut table = [0_u32; 64];
    let mut word = black_box(round as u32 | 1);
    for at in 0..LOOPS {
        word = word.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let cell = &mut table[(word >> 26) as usize];
        *cell = if *cell > word { *cell - word } else { word ^ (at as u32) };
    }
    black_box(table);
    // Multiply, add, shift, load, compare, subtract or exclude, store, count.
    LOOPS * 8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_that_runs_this_does_more_than_a_million_operations_a_second() {
        let speed = measure().unwrap();
        assert!(speed.fpops.get() > 1e6 && speed.iops.get() > 1e6, "{speed:?}");
    }
}
