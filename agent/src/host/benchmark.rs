//! How fast a CPU of this host is, by the two programs from which BOINC takes its figures: servers estimate
//! run times by them, and refuse jobs that would be late.
//!
//! Model: as in BOINC (`client/cs_benchmark.cpp`), one thread a CPU runs Whetstone, all at once, as CPUs
//! share what they have when all of them compute; then Dhrystone. The time is the CPU time of the thread, so
//! that a busy machine gives the same figures as an idle one; what comes of too little of it is ignored. The
//! figure is the mean of the CPUs'. It is measured in a process of its own at idle priority, see
//! [`crate::engine`]; until then a look of a tenth of a second must do.
//!
//! Left out: memory bandwidth, for which BOINC itself has long sent the constant below.

use std::hint::black_box;
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use fallow_domain::{HostSpeed, Speed};

use super::{dhrystone, whetstone};
use crate::sys;

/// How long each of the two programs runs, as BOINC has it.
pub const PHASE: Duration = Duration::from_secs(10);
/// The part of a phase that a thread must have computed for its result to count (BOINC: 2 of 10 s).
const COMPUTED_MIN: u32 = 5;
/// CPU time of each program when the host is only looked at.
const GLANCE: Duration = Duration::from_millis(50);
/// What BOINC sends.
const MEMBW: f64 = 1e9;

/// Operations per second of one CPU.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Rates {
    fpops: f64,
    iops: f64,
}

impl Rates {
    fn speed(self, measured_at: f64) -> Option<HostSpeed> {
        let speed = |rate| Speed::new(rate).ok();
        Some(HostSpeed { fpops: speed(self.fpops)?, iops: speed(self.iops)?, membw: MEMBW, measured_at })
    }
}

/// Measures all CPUs, with `phase` for each of the two programs. None when no CPU could be computed on for
/// long enough.
pub fn measure(phase: Duration) -> Option<HostSpeed> {
    let cpus = super::ncpus();
    let together = Arc::new(Barrier::new(cpus as usize));
    let threads: Vec<_> = (0..cpus)
        .map(|_| {
            let together = Arc::clone(&together);
            std::thread::spawn(move || one_of_many(&together, phase))
        })
        .collect();
    let rates: Vec<Rates> = threads.into_iter().filter_map(|thread| thread.join().ok().flatten()).collect();
    mean(&rates)?.speed(fallow_daemon::clock::now().as_secs_f64())
}

fn one_of_many(together: &Barrier, phase: Duration) -> Option<Rates> {
    // None of them may leave the others waiting.
    together.wait();
    let end = Instant::now() + phase;
    let fpops = rate(floating_point(), |used| Instant::now() < end || used.is_zero());
    together.wait();
    let end = Instant::now() + phase;
    let iops = rate(integer(), |used| Instant::now() < end || used.is_zero());
    Some(Rates { fpops: enough(fpops, phase)?, iops: enough(iops, phase)? })
}

/// A rate, if enough CPU time went into it.
fn enough(rate: Option<(f64, Duration)>, phase: Duration) -> Option<f64> {
    rate.filter(|(_, used)| *used >= phase / COMPUTED_MIN).map(|(rate, _)| rate)
}

/// Looks at one CPU for a tenth of a second, so that there is something to begin with. `measured_at` is 0: it
/// has yet to be measured. None where the system tells no CPU times.
pub fn glance() -> Option<HostSpeed> {
    let (fpops, _) = rate(floating_point(), |used| used < GLANCE)?;
    let (iops, _) = rate(integer(), |used| used < GLANCE)?;
    Rates { fpops, iops }.speed(0.0)
}

/// Operations per second of CPU time of this thread, and how much of it was used, as long as `goes_on` says
/// of that.
fn rate(mut pass: impl FnMut() -> f64, mut goes_on: impl FnMut(Duration) -> bool) -> Option<(f64, Duration)> {
    let start = sys::thread_cpu_time()?;
    let mut operations = 0.0;
    loop {
        operations += pass();
        let used = sys::thread_cpu_time()?.checked_sub(start)?;
        if !goes_on(used) {
            return Some((operations / used.as_secs_f64(), used));
        }
    }
}

fn floating_point() -> impl FnMut() -> f64 {
    || {
        black_box(whetstone::pass());
        whetstone::OPERATIONS
    }
}

fn integer() -> impl FnMut() -> f64 {
    let mut globals = dhrystone::Globals::new();
    move || {
        black_box(dhrystone::run(&mut globals));
        f64::from(dhrystone::RUNS) / dhrystone::VAX * 1e6
    }
}

fn mean(rates: &[Rates]) -> Option<Rates> {
    let of = |rate: fn(&Rates) -> f64| rates.iter().map(rate).sum::<f64>() / rates.len() as f64;
    (!rates.is_empty()).then(|| Rates { fpops: of(|rates| rates.fpops), iops: of(|rates| rates.iops) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_glance_is_worth_something_and_counts_as_not_measured() {
        let speed = glance().unwrap();
        assert!(speed.fpops.get() > 1e7 && speed.iops.get() > 1e7, "{speed:?}");
        assert_eq!(speed.measured_at, 0.0);
    }

    #[test]
    fn a_thread_that_hardly_computed_gives_no_figure() {
        let computed = |used, rate: f64| enough(Some((rate, Duration::from_millis(used))), PHASE);
        assert_eq!(computed(1_999, 7.0), None);
        assert_eq!(computed(2_000, 7.0), Some(7.0));
    }

    #[test]
    fn the_figure_is_the_mean_of_the_cpus_that_computed() {
        let (slow, fast) = (Rates { fpops: 1.0, iops: 10.0 }, Rates { fpops: 3.0, iops: 30.0 });
        assert_eq!(mean(&[slow, fast]), Some(Rates { fpops: 2.0, iops: 20.0 }));
        assert_eq!(mean(&[]), None);
    }
}
