//! The X server of the session that the agent was started in: its own counter of how long nobody has used
//! it (`IDLETIME` of the extension SYNC), which also knows of input over the network (a remote desktop).
//!
//! Model: the server tells when the counter falls back, which is at the first input after a second without;
//! for as long as there is input it is asked every few seconds. All of it is done by a thread of its own,
//! for a server that is stuck may leave who calls it waiting for ever.
//!
//! Which server that is, `DISPLAY` says, and the session's user has the right to speak with it (by his file
//! `.Xauthority`). A service has neither. One on another machine (`ssh -X`) is not meant.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration as StdDuration;

use fallow_client::Event;
use fallow_domain::Duration;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use tokio::sync::watch as channel;
use x11rb::connection::Connection;
use x11rb::protocol::Event as XEvent;
use x11rb::protocol::sync::{ConnectionExt, Counter, CreateAlarmAux, Int64, TESTTYPE, VALUETYPE};
use x11rb::rust_connection::RustConnection;

use super::{RENEWED, Report, Sight, TELL_AGAIN, Tell};

pub(super) const NAME: &str = "X server";

/// So long without input is a pause: its end is told at once.
const PAUSE: Int64 = Int64 { hi: 0, lo: 1_000 };
/// A server that cannot be had is tried again after this, and then less and less often.
const RETRY: StdDuration = StdDuration::from_secs(60);
const RETRY_MAX: StdDuration = StdDuration::from_secs(3600);

/// The thread, as long as this lives. It is not waited for.
pub(super) struct Display {
    shared: Arc<Shared>,
}

struct Shared {
    ends: AtomicBool,
    /// Wakes the thread.
    wake: OwnedFd,
}

impl Drop for Display {
    fn drop(&mut self) {
        self.shared.ends.store(true, Ordering::Relaxed);
        // It fails only if it was woken so often that it knows.
        let _ = rustix::io::write(&self.shared.wake, &1_u64.to_ne_bytes());
    }
}

/// Which display of this machine is meant, without its screen: `:0`.
pub(super) fn local(display: &str) -> Option<String> {
    let number = display.strip_prefix("unix:").or_else(|| display.strip_prefix(':'))?;
    let number = number.split('.').next()?;
    number.parse::<u16>().is_ok().then(|| format!(":{number}"))
}

/// Listens to the server of a display, if there is one.
pub(super) fn start(
    display: Option<&str>,
    tell: Tell,
    report: &Arc<Report>,
    sight: channel::Sender<Sight>,
) -> Option<Display> {
    let Some(named) = display else {
        report.note(NAME, false, "none: DISPLAY is not set, as in a session with windows");
        return None;
    };
    let Some(display) = local(named) else {
        report.note(NAME, false, "none: DISPLAY does not name one of this machine");
        return None;
    };
    let started = || {
        let wake = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        let shared = Arc::new(Shared { ends: AtomicBool::new(false), wake });
        let listener =
            Listener { display, tell, report: Arc::clone(report), sight, shared: Arc::clone(&shared) };
        std::thread::Builder::new().name("owner-x11".into()).spawn(move || listener.run())?;
        Ok::<_, std::io::Error>(Display { shared })
    };
    started().inspect_err(|error| report.note(NAME, false, &format!("no thread for it: {error}"))).ok()
}

struct Listener {
    display: String,
    tell: Tell,
    report: Arc<Report>,
    sight: channel::Sender<Sight>,
    shared: Arc<Shared>,
}

type Failure = Box<dyn std::error::Error>;

impl Listener {
    fn run(self) {
        let mut wait = RETRY;
        while !self.ends() {
            match self.follow(&mut wait) {
                Ok(()) => return,
                Err(error) => {
                    self.see(false);
                    self.report.note(NAME, false, &format!("no answer from {}: {error}", self.display));
                }
            }
            if self.sleep(None, Some(wait)).is_err() {
                return;
            }
            wait = (wait * 2).min(RETRY_MAX);
        }
    }

    fn ends(&self) -> bool {
        self.shared.ends.load(Ordering::Relaxed)
    }

    /// Whether the input of this display is seen.
    fn see(&self, seen: bool) {
        self.sight.send_if_modified(|sight| match seen {
            true => sight.displays.insert(self.display.clone()),
            false => sight.displays.remove(&self.display),
        });
    }

    /// Follows one server until it goes, or the agent does.
    fn follow(&self, wait: &mut StdDuration) -> Result<(), Failure> {
        let (server, _) = RustConnection::connect(Some(&self.display))?;
        server.sync_initialize(3, 1)?.reply()?;
        let counters = server.sync_list_system_counters()?.reply()?.counters;
        let idle = counters.iter().find(|counter| counter.name == b"IDLETIME");
        let idle = idle.ok_or("it does not count for how long nobody uses it (IDLETIME)")?.counter;
        let alarm = server.generate_id()?;
        let on_input = CreateAlarmAux::new()
            .counter(idle)
            .value_type(VALUETYPE::ABSOLUTE)
            .value(PAUSE)
            .test_type(TESTTYPE::NEGATIVE_TRANSITION)
            .delta(Int64 { hi: 0, lo: 0 })
            .events(1);
        server.sync_create_alarm(alarm, &on_input)?.check()?;
        *wait = RETRY;
        // Somebody may have used it a moment ago.
        let mut active = self.look(&server, idle)?;
        self.see(true);
        self.report.note(NAME, true, &format!("display {}", self.display));
        while !self.ends() {
            self.sleep(Some(&server), active.then_some(RENEWED))?;
            let mut input = false;
            while let Some(event) = server.poll_for_event()? {
                input |= matches!(event, XEvent::SyncAlarmNotify(event) if event.alarm == alarm);
            }
            match input {
                true => {
                    self.say(Duration::ZERO);
                    active = true;
                }
                false if active => active = self.look(&server, idle)?,
                false => {}
            }
        }
        Ok(())
    }

    /// Tells how long ago there was input last. Whether it was so lately that it may go on.
    fn look(&self, server: &RustConnection, idle: Counter) -> Result<bool, Failure> {
        let Int64 { hi, lo } = server.sync_query_counter(idle)?.reply()?.counter_value;
        let idle = i64::from(hi) << 32 | i64::from(lo);
        let ago = Duration::from_millis(idle.clamp(0, i64::from(u32::MAX)));
        self.say(ago);
        Ok(ago <= Duration::from_secs_f64(RENEWED.as_secs_f64()))
    }

    fn say(&self, ago: Duration) {
        let event = Event::OwnerInput { ago };
        while !(self.tell)(event.clone()) && !self.ends() {
            std::thread::sleep(TELL_AGAIN);
        }
        if ago == Duration::ZERO {
            self.report.saw(&format!("the X server of display {}", self.display));
        }
    }

    /// Sleeps until the server says something, the agent ends, or so long.
    fn sleep(&self, server: Option<&RustConnection>, most: Option<StdDuration>) -> rustix::io::Result<()> {
        let most = most.map(|most| Timespec {
            tv_sec: i64::try_from(most.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(most.subsec_nanos()),
        });
        let mut fds = vec![PollFd::from_borrowed_fd(self.shared.wake.as_fd(), PollFlags::IN)];
        fds.extend(server.map(|server| PollFd::from_borrowed_fd(server.stream().as_fd(), PollFlags::IN)));
        match poll(&mut fds, most.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::local;

    #[test]
    fn r6_2_only_a_server_of_this_machine_is_meant() {
        for (named, meant) in [
            (":0", Some(":0")),
            (":12.1", Some(":12")),
            ("unix:3", Some(":3")),
            ("localhost:10.0", None),
            ("192.0.2.1:0", None),
            (":", None),
            (":x", None),
            ("", None),
            (":99999", None),
        ] {
            assert_eq!(local(named).as_deref(), meant, "{named}");
        }
    }
}
