//! The Wayland compositor of the session that the agent was started in, by its idle protocol
//! (`ext_idle_notifier_v1`): it tells when nobody has used the session for a moment, and when somebody does
//! again, whatever device that comes from (a remote desktop too).
//!
//! Model: the end of a pause of a second is told at once. Then nobody listens for `RENEWED`, and for as long
//! as the compositor does not say that the session is idle it counts as used, which is told every so often.
//! Only then the compositor is asked for a sign of life, and asked anew who is idle: one that has stuck, or
//! has forgotten what it was asked while it started, would have somebody there for ever. All of it is done
//! by a thread of its own, and what comes is taken a little at a time (`pipe`).
//!
//! In version 2 of the protocol what counts is input alone; in version 1 also what keeps the screen on, such
//! as a film. When the session was used before the agent listened cannot be asked.

mod pipe;
mod seen;

use std::ffi::OsString;
use std::os::fd::{AsFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration as StdDuration, Instant};

use fallow_client::Event;
use fallow_domain::{Duration, printable};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use tokio::sync::watch as channel;
use wayland_client::backend::WaylandError;
use wayland_client::protocol::wl_registry::WlRegistry;
use wayland_client::protocol::wl_seat::WlSeat;
use wayland_client::{Connection, EventQueue, Proxy as _, QueueHandle};
use wayland_protocols::ext::idle_notify::v1::client::ext_idle_notification_v1::ExtIdleNotificationV1;
use wayland_protocols::ext::idle_notify::v1::client::ext_idle_notifier_v1::ExtIdleNotifierV1;

use super::{RENEWED, Report, Sight, TELL_AGAIN, Tell};
use pipe::Pipe;
use seen::{Offer, Seat, Seen};

pub(super) const NAME: &str = "Wayland";

/// So long without input is a pause: its end is told at once.
const PAUSE: StdDuration = StdDuration::from_secs(1);
/// If nobody is there, the compositor says so within this after it was asked.
const FIRST: StdDuration = StdDuration::from_secs(3);
/// How long an answer may take.
const ANSWER: StdDuration = StdDuration::from_secs(10);
/// A compositor that has said something else than what matters is not listened to for so long.
const REST: StdDuration = StdDuration::from_millis(50);
/// One that cannot be had is tried again after this, and then less and less often.
const RETRY: StdDuration = StdDuration::from_secs(60);
const RETRY_MAX: StdDuration = StdDuration::from_secs(3600);
/// The newest version of the idle protocol that is spoken.
const NOTIFIER_VERSION: u32 = 2;
/// Longest text of a compositor's that is shown, in bytes.
const TEXT_MAX: usize = 300;

/// The thread, as long as this lives. It is not waited for.
pub(super) struct Compositor {
    shared: Arc<Shared>,
}

struct Shared {
    ends: AtomicBool,
    /// Wakes the thread.
    wake: OwnedFd,
}

impl Drop for Compositor {
    fn drop(&mut self) {
        self.shared.ends.store(true, Ordering::Relaxed);
        // It fails only if it was woken so often that it knows.
        let _ = rustix::io::write(&self.shared.wake, &1_u64.to_ne_bytes());
    }
}

/// Where the compositor listens, by `WAYLAND_DISPLAY` and `XDG_RUNTIME_DIR`: none where they name none.
pub fn socket(display: Option<OsString>, runtime_dir: Option<OsString>) -> Option<PathBuf> {
    let display = PathBuf::from(display.filter(|display| !display.is_empty())?);
    if display.is_absolute() {
        return Some(display);
    }
    let dir = PathBuf::from(runtime_dir?);
    dir.is_absolute().then(|| dir.join(display))
}

/// Listens to the compositor at a socket, if there is one, of the session that logind calls `session`.
pub(super) fn start(
    socket: Option<&Path>,
    session: Option<&str>,
    tell: Tell,
    report: &Arc<Report>,
    sight: channel::Sender<Sight>,
) -> Option<Compositor> {
    let Some(socket) = socket else {
        report.note(NAME, false, "none: WAYLAND_DISPLAY is not set, as in a session of Wayland");
        return None;
    };
    let started = || {
        let wake = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        let shared = Arc::new(Shared { ends: AtomicBool::new(false), wake });
        let listener = Listener {
            socket: socket.to_owned(),
            session: session.map(str::to_owned),
            tell,
            report: Arc::clone(report),
            sight,
            shared: Arc::clone(&shared),
        };
        std::thread::Builder::new().name("owner-wayland".into()).spawn(move || listener.run())?;
        Ok::<_, std::io::Error>(Compositor { shared })
    };
    started().inspect_err(|error| report.note(NAME, false, &format!("no thread for it: {error}"))).ok()
}

struct Listener {
    socket: PathBuf,
    session: Option<String>,
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
            // The library panics at some of what a compositor must not say.
            let ended = catch_unwind(AssertUnwindSafe(|| self.follow(&mut wait)))
                .unwrap_or_else(|_| Err("it broke the protocol".into()));
            let Err(error) = ended else { return };
            self.see(false);
            let why = printable::line(&error.to_string(), TEXT_MAX);
            self.report.note(NAME, false, &format!("no answer from {}: {why}", self.socket.display()));
            if self.sleep(None, Some(wait)).is_err() {
                return;
            }
            wait = (wait * 2).min(RETRY_MAX);
        }
    }

    fn ends(&self) -> bool {
        self.shared.ends.load(Ordering::Relaxed)
    }

    /// Whether the input of this session is seen.
    fn see(&self, seen: bool) {
        let Some(session) = &self.session else { return };
        self.sight.send_if_modified(|sight| match seen {
            true => sight.sessions.insert(session.clone()),
            false => sight.sessions.remove(session),
        });
    }

    /// Follows one compositor until it goes, or the agent does.
    fn follow(&self, wait: &mut StdDuration) -> Result<(), Failure> {
        let mut link = Link::connect(&self.socket)?;
        link.ask();
        let until = Instant::now() + ANSWER;
        while link.seen.answers == 0 {
            if self.ends() {
                return Ok(());
            }
            if Instant::now() >= until {
                return Err("it says nothing".into());
            }
            self.turn(&mut link, Some(until))?;
        }
        let offer = link.seen.notifier.ok_or("it does not tell who is idle (ext_idle_notifier_v1)")?;
        let notifier = link.bind(offer);
        link.listen(&notifier);
        *wait = RETRY;
        self.see(true);
        let version = offer.version.min(NOTIFIER_VERSION);
        let where_at = self.socket.display();
        self.report.note(NAME, true, &format!("{where_at}, version {version} of its idle protocol"));
        self.watch(&mut link, &notifier)
    }

    /// Tells of what is sensed.
    fn watch(&self, link: &mut Link, notifier: &ExtIdleNotifierV1) -> Result<(), Failure> {
        // Somebody may be there already, of whom nothing is said before he pauses.
        let mut renew_at = Instant::now() + FIRST;
        let (mut told, mut has_doubts) = (false, true);
        while !self.ends() {
            let used = link.seen.is_used();
            self.turn(link, used.then_some(renew_at))?;
            if link.seen.has_lost_notifier {
                return Err("it does not tell any more who is idle".into());
            }
            let now = Instant::now();
            if link.listen(notifier) {
                renew_at = renew_at.max(now + FIRST);
            }
            match link.seen.take_news() {
                (true, _) => {}
                // What was said while nobody listened may be some seconds old: the last input was then, or
                // later.
                (false, true) if told => {
                    self.say(Duration::from_secs_f64(PAUSE.as_secs_f64()));
                    told = link.seen.is_used();
                    continue;
                }
                (false, false) if link.seen.is_used() && now >= renew_at => {
                    link.see_that_it_lives(now)?;
                    link.listen_anew(notifier);
                    link.say()?;
                    // What was asked of one that was just starting may have got lost.
                    if std::mem::take(&mut has_doubts) {
                        renew_at = now + FIRST;
                        continue;
                    }
                }
                (false, _) => continue,
            }
            self.say(Duration::ZERO);
            told = true;
            renew_at = Instant::now() + RENEWED;
            self.sleep(None, Some(RENEWED))?;
        }
        Ok(())
    }

    /// Waits for the compositor until then at the longest, and takes a little of what it says.
    fn turn(&self, link: &mut Link, until: Option<Instant>) -> Result<(), Failure> {
        link.say()?;
        let most = until.map(|until| until.saturating_duration_since(Instant::now()));
        if !self.sleep(Some(&link.pipe), most)? {
            return Ok(());
        }
        link.hear()?;
        if !link.seen.resumed && !self.ends() {
            self.sleep(None, Some(REST))?;
        }
        Ok(())
    }

    fn say(&self, ago: Duration) {
        let event = Event::OwnerInput { ago };
        while !(self.tell)(event.clone()) && !self.ends() {
            std::thread::sleep(TELL_AGAIN);
        }
        if ago == Duration::ZERO {
            self.report.saw(&format!("the Wayland session at {}", self.socket.display()));
        }
    }

    /// Sleeps until the compositor says something, the agent ends, or so long. Whether it is the first.
    fn sleep(&self, pipe: Option<&Pipe>, most: Option<StdDuration>) -> rustix::io::Result<bool> {
        let most = most.map(|most| Timespec {
            tv_sec: i64::try_from(most.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(most.subsec_nanos()),
        });
        let mut fds = vec![PollFd::from_borrowed_fd(self.shared.wake.as_fd(), PollFlags::IN)];
        fds.extend(pipe.map(|pipe| PollFd::from_borrowed_fd(pipe.compositor(), PollFlags::IN)));
        match poll(&mut fds, most.as_ref()) {
            Ok(_) => Ok(fds.get(1).is_some_and(|fd| !fd.revents().is_empty())),
            Err(rustix::io::Errno::INTR) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// A connection, and what has come by it.
struct Link {
    pipe: Pipe,
    connection: Connection,
    queue: EventQueue<Seen>,
    registry: WlRegistry,
    seen: Seen,
    /// What it was asked last, by how many answers there were then, and when.
    asked: Option<(u32, Instant)>,
}

impl Link {
    fn connect(socket: &Path) -> Result<Self, Failure> {
        let (pipe, its_end) = Pipe::connect(socket)?;
        let connection = Connection::from_socket(its_end)?;
        let queue = connection.new_event_queue();
        let registry = connection.display().get_registry(&queue.handle(), ());
        Ok(Self { pipe, connection, queue, registry, seen: Seen::default(), asked: None })
    }

    /// Asks it for a sign of life, which comes after all that it has said before.
    fn ask(&self) {
        self.connection.display().sync(&self.queue.handle(), ());
    }

    fn bind(&self, offer: Offer) -> ExtIdleNotifierV1 {
        let version = offer.version.min(NOTIFIER_VERSION);
        self.registry.bind(offer.name, version, &self.queue.handle(), ())
    }

    /// Listens to those of its seats that are not listened to yet. Whether there are any.
    fn listen(&mut self, notifier: &ExtIdleNotifierV1) -> bool {
        let mut any = false;
        let handle = self.queue.handle();
        for (name, listened) in self.seen.seats.iter_mut().filter(|(_, listened)| listened.is_none()) {
            let seat: WlSeat = self.registry.bind(*name, 1, &handle, ());
            let notification = notification(notifier, &seat, &handle, *name);
            *listened = Some(Seat { seat, notification, is_idle: false });
            any = true;
        }
        any
    }

    /// Asks anew of its seats that are said to be used: of one that is not it says so in a moment.
    fn listen_anew(&mut self, notifier: &ExtIdleNotifierV1) {
        let handle = self.queue.handle();
        for (name, listened) in &mut self.seen.seats {
            if let Some(seat) = listened.as_mut().filter(|seat| !seat.is_idle) {
                seat.notification.destroy();
                seat.notification = notification(notifier, &seat.seat, &handle, *name);
            }
        }
    }

    /// Fails when it has left the last question without an answer for too long; else asks the next one.
    fn see_that_it_lives(&mut self, now: Instant) -> Result<(), Failure> {
        match self.asked {
            Some((answers, at)) if answers == self.seen.answers => match now.duration_since(at) < ANSWER {
                true => return Ok(()),
                false => return Err("it has stopped answering".into()),
            },
            _ => {}
        }
        self.asked = Some((self.seen.answers, now));
        self.ask();
        Ok(())
    }

    fn say(&mut self) -> Result<(), Failure> {
        self.connection.flush()?;
        Ok(self.pipe.say()?)
    }

    fn hear(&mut self) -> Result<(), Failure> {
        self.pipe.hear()?;
        if let Some(reading) = self.queue.prepare_read() {
            match reading.read() {
                Ok(_) => {}
                Err(WaylandError::Io(error)) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error.into()),
            }
        }
        self.queue.dispatch_pending(&mut self.seen)?;
        Ok(())
    }
}

/// What tells when nobody has used a seat for a moment, and when somebody does again.
fn notification(
    notifier: &ExtIdleNotifierV1,
    seat: &WlSeat,
    handle: &QueueHandle<Seen>,
    name: u32,
) -> ExtIdleNotificationV1 {
    let pause = u32::try_from(PAUSE.as_millis()).unwrap_or(u32::MAX);
    match notifier.version() {
        1 => notifier.get_idle_notification(pause, seat, handle, name),
        _ => notifier.get_input_idle_notification(pause, seat, handle, name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r6_2_the_compositor_is_found_as_programs_of_its_session_find_it() {
        let socket = |display: &str, dir: Option<&str>| socket(Some(display.into()), dir.map(Into::into));
        for (display, dir, at) in [
            ("wayland-1", Some("/run/user/7"), Some("/run/user/7/wayland-1")),
            ("/somewhere/else", None, Some("/somewhere/else")),
            ("wayland-1", None, None),
            ("wayland-1", Some("run"), None),
            ("", Some("/run/user/7"), None),
        ] {
            assert_eq!(socket(display, dir).as_deref(), at.map(Path::new), "{display} {dir:?}");
        }
        assert_eq!(super::socket(None, Some("/run/user/7".into())), None);
    }
}
