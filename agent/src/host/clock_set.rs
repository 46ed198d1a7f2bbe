//! Tells that the clock on the wall was set, or that the machine slept: until then nobody has to look.
//!
//! By a timer of the kernel's that never comes, and is called off by either (`TFD_TIMER_CANCEL_ON_SET`).

use std::io;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use tokio::io::unix::AsyncFd;

use crate::sys;

/// The year 2255: no time that anybody sets a clock to.
const NEVER: i64 = 9_000_000_000;

/// What is asked; it has nothing to say where the kernel gives no such timer.
#[derive(Debug)]
pub struct ClockSet(Option<AsyncFd<OwnedFd>>);

impl ClockSet {
    /// From now on. In a runtime of tokio's.
    pub fn watch() -> Self {
        Self(timer().inspect_err(|error| tracing::debug!(%error, "nothing tells that the clock is set")).ok())
    }

    /// Whether it would be told.
    pub const fn is_told(&self) -> bool {
        self.0.is_some()
    }

    /// Waits until the clock is set, or the machine wakes up. May be dropped and called again.
    pub async fn changed(&mut self) {
        let Some(timer) = &self.0 else { return std::future::pending().await };
        loop {
            let Ok(mut ready) = timer.readable().await else { return std::future::pending().await };
            let read =
                ready.try_io(|timer| rustix::io::read(timer.get_ref(), &mut [0; 8]).map_err(io::Error::from));
            match read {
                Ok(Err(error)) if error.raw_os_error() == Some(Errno::CANCELED.raw_os_error()) => return,
                // It cannot come; nothing is asked again and again of one that is broken.
                Ok(_) => break,
                Err(_not_yet) => {}
            }
        }
        self.0 = None;
        std::future::pending::<()>().await;
    }
}

fn timer() -> io::Result<AsyncFd<OwnedFd>> {
    let timer = timerfd_create(TimerfdClockId::Realtime, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)?;
    let never = Timespec { tv_sec: NEVER, tv_nsec: 0 };
    let once = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value: never };
    timerfd_settime(&timer, TimerfdTimerFlags::ABSTIME | TimerfdTimerFlags::CANCEL_ON_SET, &once)?;
    sys::readable_later(timer)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// That it is told when the clock is set, e2e/vm/unit shows: here the clock is everybody's.
    #[tokio::test]
    async fn r6_4_a_clock_that_nobody_sets_is_told_of_and_says_nothing() {
        let mut clock = ClockSet::watch();
        assert!(clock.is_told());
        let soon = std::time::Duration::from_millis(50);
        assert!(tokio::time::timeout(soon, clock.changed()).await.is_err());
        assert!(clock.is_told(), "it is still waited for");
    }
}
