//! The only clock of the library: sleeping for a tick, and the CPU time that the kernel has counted.

use fallow_domain::Duration;
use rustix::time::{ClockId, clock_gettime};

/// How often the library looks at its channel (BOINC: 10 Hz).
pub(crate) const TICK: Duration = Duration::from_millis(100);

/// How many ticks a length of time has, at least one.
pub(crate) fn ticks(time: Duration) -> u64 {
    u64::try_from(time.as_micros() / TICK.as_micros()).unwrap_or(0).max(1)
}

/// Sleeps for one tick.
#[expect(clippy::disallowed_methods, reason = "the library is an application's shell: this is its clock")]
pub(crate) fn sleep_one_tick() {
    std::thread::sleep(TICK.into());
}

/// CPU time of this process, all threads, user and system.
pub(crate) fn process_cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::from_micros(time.tv_sec.saturating_mul(1_000_000).saturating_add(time.tv_nsec / 1_000))
}
