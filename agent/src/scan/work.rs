//! How long a look has worked.

use std::time::Instant;

use fallow_domain::Duration;

use crate::proc;

/// Of the present thread, from its making on: the time that has passed, but for that in which others had the
/// CPUs. A look has the lowest urgency, and on a busy machine most of its time may be such waiting: what it
/// costs others is the rest.
#[derive(Debug)]
pub(super) struct Work {
    begun: Instant,
    waited: Duration,
}

impl Work {
    pub(super) fn begin() -> Self {
        Self { begun: Instant::now(), waited: waited() }
    }

    pub(super) fn so_far(&self) -> Duration {
        let passed = Duration::from_secs_f64(self.begun.elapsed().as_secs_f64());
        let waited = waited() - self.waited;
        (passed - waited).max(Duration::ZERO)
    }
}

/// For how long the present thread has waited for a CPU since it began; nothing where the kernel does not
/// count it.
fn waited() -> Duration {
    Duration::from_secs_f64(proc::thread_waited().unwrap_or_default().as_secs_f64())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

    use super::*;
    use crate::sys;

    fn computed() -> f64 {
        sys::thread_cpu_time().unwrap().as_secs_f64()
    }

    #[test]
    fn r4_8_a_look_that_waits_for_a_cpu_does_not_work_meanwhile() {
        if proc::thread_waited().is_none() {
            println!("skipped: this kernel does not count what threads wait for CPUs");
            return;
        }
        let over = AtomicBool::new(false);
        let seen = std::thread::scope(|scope| {
            let one = scope.spawn(|| {
                // What comes from here is on the same CPU.
                let allowed = sched_getaffinity(None).unwrap();
                let mut cpu = CpuSet::new();
                cpu.set((0..CpuSet::MAX_CPU).find(|cpu| allowed.is_set(*cpu)).unwrap());
                sched_setaffinity(None, &cpu).unwrap();
                std::thread::scope(|scope| {
                    scope.spawn(|| {
                        while !over.load(Ordering::Relaxed) {
                            std::hint::spin_loop();
                        }
                    });
                    let (work, begun, computed_before) = (Work::begin(), Instant::now(), computed());
                    while computed() - computed_before < 0.5 {
                        std::hint::spin_loop();
                    }
                    let seen = (work.so_far().as_secs_f64(), begun.elapsed().as_secs_f64());
                    over.store(true, Ordering::Relaxed);
                    seen
                })
            });
            one.join().unwrap()
        });
        let (worked, passed) = seen;
        // It computed for half a second, and had half of a CPU for it.
        assert!(worked >= 0.45 && worked < 0.8 * passed, "{worked} s of {passed} s");
    }

    #[test]
    fn r4_8_a_look_that_waits_for_the_disk_works_meanwhile() {
        let work = Work::begin();
        std::thread::sleep(std::time::Duration::from_millis(100));
        assert!(work.so_far().as_secs_f64() >= 0.09, "{:?}", work.so_far());
    }
}
