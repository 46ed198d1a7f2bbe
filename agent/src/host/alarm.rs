//! Wakes the agent when it has waited for long enough: once.
//!
//! By a timer of the kernel's. The runtime's own timers are kept by how far off they are, and one that is far
//! off wakes its thread several times on the way, each time to be sorted in anew. An agent at rest waits for
//! little else (R6.12).

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use tokio::io::unix::AsyncFd;

use crate::sys;

/// One that is set anew for each wait. Where the kernel gives no such timer, the runtime's own is used.
#[derive(Debug)]
pub struct Alarm(Option<AsyncFd<OwnedFd>>);

impl Alarm {
    /// One that is not set. In a runtime of tokio's.
    pub fn new() -> Self {
        Self(timer().inspect_err(|error| tracing::debug!(%error, "the kernel gives no timer")).ok())
    }

    /// Comes back after so long, by the clock that does not go on while the machine sleeps. May be dropped,
    /// and called again.
    pub async fn after(&self, wait: Duration) {
        match &self.0 {
            Some(timer) if set(timer, wait).is_ok() && rings(timer).await.is_ok() => {}
            _ => tokio::time::sleep(wait).await,
        }
    }
}

impl Default for Alarm {
    fn default() -> Self {
        Self::new()
    }
}

fn timer() -> io::Result<AsyncFd<OwnedFd>> {
    let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)?;
    sys::readable_later(timer)
}

/// What was set before is forgotten, also where it has come.
fn set(timer: &AsyncFd<OwnedFd>, wait: Duration) -> io::Result<()> {
    // Nothing at all would be no timer.
    let wait = wait.max(Duration::from_nanos(1));
    let at = Timespec {
        tv_sec: i64::try_from(wait.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: wait.subsec_nanos().into(),
    };
    let once = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value: at };
    timerfd_settime(timer, TimerfdTimerFlags::empty(), &once)?;
    Ok(())
}

async fn rings(timer: &AsyncFd<OwnedFd>) -> io::Result<()> {
    loop {
        let mut ready = timer.readable().await?;
        let read =
            ready.try_io(|timer| rustix::io::read(timer.get_ref(), &mut [0; 8]).map_err(io::Error::from));
        match read {
            Ok(read) => return read.map(drop),
            // It was another wait's.
            Err(_not_yet) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[tokio::test]
    async fn r6_12_an_alarm_rings_for_the_wait_that_was_asked_for_last() {
        let alarm = Alarm::new();
        assert!(alarm.0.is_some(), "this kernel has such timers");
        // One that was given up before it rang, and one that has rung unheard.
        for given_up in [Duration::from_hours(1), Duration::ZERO] {
            let waited = tokio::time::timeout(Duration::from_millis(20), alarm.after(given_up)).await;
            assert_eq!(waited.is_ok(), given_up == Duration::ZERO);
            let (began, wait) = (Instant::now(), Duration::from_millis(30));
            set(alarm.0.as_ref().unwrap(), Duration::ZERO).unwrap();
            tokio::time::sleep(Duration::from_millis(5)).await;
            alarm.after(wait).await;
            assert!(began.elapsed() >= wait);
        }
    }

    #[tokio::test]
    async fn r6_12_without_a_timer_of_the_kernels_it_is_waited_as_long() {
        let (began, wait) = (Instant::now(), Duration::from_millis(20));
        Alarm(None).after(wait).await;
        assert!(began.elapsed() >= wait);
    }

    /// A thread that waits for nothing else is woken once, however far off it is.
    #[test]
    fn r6_12_an_alarm_wakes_its_thread_once() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let woken = || {
            let text = std::fs::read_to_string("/proc/thread-self/status").unwrap();
            let line = text.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:")).unwrap();
            line.trim().parse::<u64>().unwrap()
        };
        let for_ten = || {
            runtime.block_on(async {
                let alarm = Alarm::new();
                // Whatever is waited for at the first time only.
                alarm.after(Duration::from_millis(1)).await;
                let before = woken();
                for _ in 0..10 {
                    alarm.after(Duration::from_millis(137)).await;
                }
                woken() - before
            })
        };
        // Where memory is short or a disk slow, a thread also waits for its own code.
        let mut found = Vec::new();
        let is_few = (0..5).any(|_| {
            found.push(for_ten());
            found.last().is_some_and(|woken| *woken <= 12)
        });
        assert!(is_few, "woken so many times for ten alarms, in each attempt: {found:?}");
    }
}
