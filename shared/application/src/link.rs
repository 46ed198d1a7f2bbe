//! What the computing threads and the library's own thread share.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use fallow_boinc::runtime::channel::{Channel, Channels};
use fallow_boinc::runtime::init_data::AppInitData;
use fallow_boinc::runtime::message::AppStatus;
use fallow_daemon::lock;
use fallow_domain::{Duration, Fraction};

use crate::clock::{process_cpu_time, ticks};
use crate::mapping::Mapping;

/// Both ends of what happens inside the process.
#[derive(Debug)]
pub(crate) struct Link {
    mapping: Option<Mapping>,
    init_data: Mutex<Option<Arc<AppInitData>>>,
    /// CPU time of earlier starts, up to the checkpoint that this start resumes from.
    earlier_cpu: Duration,
    /// The application's own fraction as bits; NaN until it says one.
    fraction: AtomicU64,
    /// CPU time of the job at the last checkpoint, microseconds.
    checkpoint_cpu: AtomicI64,
    ticks_since_checkpoint: AtomicU64,
    checkpoint_period: AtomicU64,
    network_suspended: AtomicBool,
    /// The same as in `gate`, to be looked at without a lock.
    suspended: AtomicBool,
    gate: Mutex<bool>,
    resumed: Condvar,
    exit: Mutex<ExitState>,
    /// Two threads send statuses, and the channel knows one sender only.
    sending: Mutex<()>,
}

/// Whether the process may end now.
#[derive(Debug, Default)]
struct ExitState {
    /// Threads inside of a critical section, which must not be interrupted.
    critical_sections: u32,
    /// The process is about to exit.
    is_decided: bool,
}

/// The period between checkpoints when no client says one (BOINC: 300 s).
const CHECKPOINT_PERIOD_DEFAULT: Duration = Duration::from_secs(300);

impl Link {
    pub(crate) fn new(mapping: Option<Mapping>, init_data: Option<AppInitData>) -> Self {
        let earlier_cpu = init_data.as_ref().map_or(Duration::ZERO, |data| data.wu_cpu_time);
        let link = Self {
            mapping,
            init_data: Mutex::new(None),
            earlier_cpu,
            fraction: AtomicU64::new(f64::NAN.to_bits()),
            checkpoint_cpu: AtomicI64::new(earlier_cpu.as_micros()),
            ticks_since_checkpoint: AtomicU64::new(0),
            checkpoint_period: AtomicU64::new(ticks(CHECKPOINT_PERIOD_DEFAULT)),
            network_suspended: AtomicBool::new(false),
            suspended: AtomicBool::new(false),
            gate: Mutex::new(false),
            resumed: Condvar::new(),
            exit: Mutex::new(ExitState::default()),
            sending: Mutex::new(()),
        };
        link.set_init_data(init_data);
        link
    }

    pub(crate) fn channels(&self) -> Option<Channels<'_>> {
        self.mapping.as_ref().map(Mapping::channels)
    }

    pub(crate) fn init_data(&self) -> Option<Arc<AppInitData>> {
        lock(&self.init_data).clone()
    }

    pub(crate) fn set_init_data(&self, init_data: Option<AppInitData>) {
        if let Some(data) = &init_data {
            self.checkpoint_period.store(ticks(data.checkpoint_period), Ordering::Relaxed);
        }
        *lock(&self.init_data) = init_data.map(Arc::new);
    }

    pub(crate) fn set_fraction(&self, fraction: f64) {
        self.fraction.store(fraction.to_bits(), Ordering::Relaxed);
    }

    pub(crate) fn set_network_suspended(&self, suspended: bool) {
        self.network_suspended.store(suspended, Ordering::Relaxed);
    }

    pub(crate) fn network_suspended(&self) -> bool {
        self.network_suspended.load(Ordering::Relaxed)
    }

    /// CPU time of the job over all starts.
    pub(crate) fn cpu_time(&self) -> Duration {
        self.earlier_cpu + process_cpu_time()
    }

    pub(crate) fn count_tick(&self) {
        self.ticks_since_checkpoint.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn time_to_checkpoint(&self) -> bool {
        self.ticks_since_checkpoint.load(Ordering::Relaxed) >= self.checkpoint_period.load(Ordering::Relaxed)
    }

    pub(crate) fn checkpoint_completed(&self) {
        self.checkpoint_cpu.store(self.cpu_time().as_micros(), Ordering::Relaxed);
        self.checkpoint_postponed();
    }

    pub(crate) fn checkpoint_postponed(&self) {
        self.ticks_since_checkpoint.store(0, Ordering::Relaxed);
    }

    pub(crate) fn set_suspended(&self, suspended: bool) {
        *lock(&self.gate) = suspended;
        self.suspended.store(suspended, Ordering::Release);
        self.resumed.notify_all();
    }

    /// Sleeps here for as long as the application is suspended, unless a thread is inside a critical
    /// section: that has to come to its end first.
    pub(crate) fn pause_point(&self) {
        if !self.suspended.load(Ordering::Acquire) || lock(&self.exit).critical_sections > 0 {
            return;
        }
        let mut suspended = lock(&self.gate);
        while *suspended {
            suspended = self.resumed.wait(suspended).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Sends the status unless the client has not read the last one; true if there is nothing left to send.
    pub(crate) fn send_status(&self) -> bool {
        let Some(channels) = self.channels() else { return true };
        let _sending = lock(&self.sending);
        // Made only when it can be sent, so that it is never an old one.
        !channels.is_full(Channel::AppStatus) && channels.send(Channel::AppStatus, &self.status().text())
    }

    fn status(&self) -> AppStatus {
        let own = f64::from_bits(self.fraction.load(Ordering::Relaxed));
        let (start, end) =
            self.init_data().map_or((0.0, 1.0), |data| (data.fraction_done_start, data.fraction_done_end));
        AppStatus {
            current_cpu_time: self.cpu_time(),
            checkpoint_cpu_time: Duration::from_micros(self.checkpoint_cpu.load(Ordering::Relaxed)),
            fraction_done: (!own.is_nan())
                .then(|| Fraction::clamped(start + own.clamp(0.0, 1.0) * (end - start))),
            ..AppStatus::default()
        }
    }

    /// Begins a critical section: the process does not exit until the answer is dropped. If its exit is
    /// decided already, this waits for it (BOINC: `boinc_begin_critical_section`).
    pub(crate) fn critical_section(&self) -> CriticalSection<'_> {
        let mut exit = lock(&self.exit);
        if exit.is_decided {
            drop(exit);
            loop {
                std::thread::park();
            }
        }
        exit.critical_sections += 1;
        CriticalSection(self)
    }

    /// True if the process may exit now; after that no critical section begins any more.
    pub(crate) fn try_exit(&self) -> bool {
        let mut exit = lock(&self.exit);
        exit.is_decided = exit.critical_sections == 0;
        exit.is_decided
    }
}

/// A critical section, until it is dropped: the process does not exit meanwhile.
#[derive(Debug)]
pub(crate) struct CriticalSection<'a>(&'a Link);

impl Drop for CriticalSection<'_> {
    fn drop(&mut self) {
        let mut exit = lock(&self.0.exit);
        exit.critical_sections = exit.critical_sections.saturating_sub(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_process_exits_only_outside_of_critical_sections() {
        let link = Link::new(None, None);
        let (outer, inner) = (link.critical_section(), link.critical_section());
        assert!(!link.try_exit());
        drop(inner);
        assert!(!link.try_exit());
        drop(outer);
        assert!(link.try_exit());
    }

    #[test]
    fn a_thread_in_a_critical_section_is_not_put_to_sleep() {
        let link = Link::new(None, None);
        link.set_suspended(true);
        let _section = link.critical_section();
        link.pause_point();
    }

    #[test]
    fn cpu_time_and_fraction_continue_where_the_job_stood() {
        let data = AppInitData {
            wu_cpu_time: Duration::from_secs(1_000),
            fraction_done_start: 0.5,
            fraction_done_end: 1.0,
            ..AppInitData::default()
        };
        let link = Link::new(None, Some(data));
        assert_eq!(link.status().fraction_done, None);
        assert_eq!(link.status().checkpoint_cpu_time, Duration::from_secs(1_000));
        assert!(link.status().current_cpu_time > Duration::from_secs(1_000));
        link.set_fraction(0.5);
        assert_eq!(link.status().fraction_done, Some(Fraction::clamped(0.75)));
        link.set_fraction(7.0);
        assert_eq!(link.status().fraction_done, Some(Fraction::ONE));
        link.checkpoint_completed();
        assert!(link.status().checkpoint_cpu_time > Duration::from_secs(1_000));
    }

    #[test]
    fn a_checkpoint_is_due_once_per_period() {
        let data = AppInitData { checkpoint_period: Duration::from_millis(300), ..AppInitData::default() };
        let link = Link::new(None, Some(data));
        for due in [false, false, false, true] {
            assert_eq!(link.time_to_checkpoint(), due);
            link.count_tick();
        }
        link.checkpoint_completed();
        assert!(!link.time_to_checkpoint());
    }
}
