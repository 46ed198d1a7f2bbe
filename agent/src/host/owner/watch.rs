//! The thread that waits for input, and looks at terminals.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Instant;

use fallow_client::{Attention, Event};
use fallow_domain::Duration;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use tokio::sync::watch as channel;

use super::devices::{Devices, Seen};
use super::terminals::Terminals;
use super::{RENEWED, Report, Sight, TELL_AGAIN, Tell};

/// The thread, as long as this lives.
pub(super) struct Watch {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    /// How closely it is to be looked.
    attention: Mutex<Attention>,
    ends: AtomicBool,
    /// Wakes the thread.
    wake: OwnedFd,
}

impl Shared {
    fn wake(&self) {
        // It fails only if it was woken so often that it knows.
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
    }
}

impl Watch {
    pub(super) fn start(
        dev: PathBuf,
        tell: Tell,
        report: Arc<Report>,
        sight: channel::Sender<Sight>,
    ) -> io::Result<Self> {
        let wake = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        let shared = Arc::new(Shared { attention: Mutex::default(), ends: AtomicBool::new(false), wake });
        let thread = std::thread::Builder::new().name("owner".into()).spawn({
            let shared = Arc::clone(&shared);
            move || {
                let devices = Devices::new(dev.join("input"));
                let watching =
                    Watching { devices, terminals: Terminals::new(dev), tell, report, sight, shared };
                watching.run();
            }
        })?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// How closely it is to be looked from now on.
    pub(super) fn attend(&self, attention: Attention) {
        let before = std::mem::replace(&mut *fallow_daemon::lock(&self.shared.attention), attention);
        if attention > before {
            self.shared.wake();
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.shared.ends.store(true, Ordering::Relaxed);
        self.shared.wake();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Watching {
    devices: Devices,
    terminals: Terminals,
    tell: Tell,
    report: Arc<Report>,
    sight: channel::Sender<Sight>,
    shared: Arc<Shared>,
}

impl Watching {
    fn run(mut self) {
        let mut quiet_until = None;
        let mut untold: Option<Event> = None;
        loop {
            let now = Instant::now();
            if self.devices.rescan_if_due(now) {
                let (on, what) = self.devices.status();
                self.report.note(super::devices::NAME, on, &what);
                let all = self.devices.sees_all();
                self.sight.send_if_modified(|sight| std::mem::replace(&mut sight.devices, all) != all);
            }
            let attention = *fallow_daemon::lock(&self.shared.attention);
            let seen = self.terminals.look_if_due(now, attention, fallow_daemon::clock::now());
            if let Some((ago, terminal)) = seen {
                untold = Some(Event::OwnerInput { ago });
                self.report.saw(&format!("the terminal {}", terminal.display()));
            }
            if let Some(event) = untold.take()
                && !(self.tell)(event.clone())
            {
                untold = Some(event);
            }
            let (on, what) = self.terminals.status();
            self.report.note(super::terminals::NAME, on, &what);
            quiet_until = quiet_until.filter(|until| now < *until);
            let mut wake_at = self.terminals.due(attention).min(self.devices.due(now));
            wake_at = quiet_until.map_or(wake_at, |until| wake_at.min(until));
            if untold.is_some() {
                wake_at = wake_at.min(now + TELL_AGAIN);
            }
            if let Some(device) = self.sleep(now, wake_at, quiet_until.is_some()) {
                untold = Some(Event::OwnerInput { ago: Duration::ZERO });
                quiet_until = Some(Instant::now() + RENEWED);
                // At once, before anything else is looked at.
                let event = Event::OwnerInput { ago: Duration::ZERO };
                if (self.tell)(event) {
                    untold = None;
                }
                self.report.saw(&super::devices::described(&device));
            }
            if self.shared.ends.load(Ordering::Relaxed) {
                return;
            }
        }
    }

    /// Sleeps until something is there, or then. Says which device had input.
    fn sleep(&mut self, now: Instant, until: Instant, quiet: bool) -> Option<PathBuf> {
        let wait = until.saturating_duration_since(now);
        // Rounded up, so that it is due when this returns.
        let wait = Timespec {
            tv_sec: i64::try_from(wait.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(wait.subsec_nanos()),
        };
        let listened = if quiet { Vec::new() } else { self.devices.listened(now) };
        let mut fds = vec![PollFd::from_borrowed_fd(self.shared.wake.as_fd(), PollFlags::IN)];
        let changes = self.devices.changes();
        fds.extend(changes.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        let others = fds.len();
        fds.extend(listened.iter().map(|(_, fd)| PollFd::from_borrowed_fd(*fd, PollFlags::IN)));
        crate::sys::sleeps();
        if poll(&mut fds, Some(&wait)).is_err() {
            // A signal.
            return None;
        }
        let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        let (have_changed, ready) = (others == 2 && ready[1], &ready[others..]);
        let ready = listened.iter().zip(ready).filter(|(_, ready)| **ready);
        let ready: Vec<_> = ready.map(|((name, _), _)| name.clone()).collect();
        drop(fds);
        drop(listened);
        let mut count = [0; 8];
        let _ = rustix::io::read(&self.shared.wake, &mut count);
        if have_changed {
            self.devices.note_changes(Instant::now());
        }
        let mut used = None;
        for name in ready {
            if self.devices.take(&name, Instant::now()) == Seen::Input {
                used = Some(name);
            }
        }
        used
    }
}
