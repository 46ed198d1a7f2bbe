//! Sessions of people, as logind has them (`org.freedesktop.login1` on the system bus).
//!
//! Model: each signal of logind leads to one look at all sessions, at most one in a second and fewer where
//! nothing changes, however many signals somebody causes. What has changed since the look before is input: a
//! session that begins, becomes the active one, or is unlocked. Sessions on terminals are sensed by the
//! terminals. Of graphical ones on this machine's own seat the input devices tell all, where they can be
//! read, and of one with an X server or a compositor that the agent listens to that one; of the others it is
//! known only what their desktop tells logind (`IdleHint`), and many tell it nothing. So such a session
//! counts as used as long as it is active, not locked and not said to be idle.
//!
//! A signal that itself says of a known session that it is active, unlocked or no longer idle is input at
//! once, before the look that follows and however soon after the one before: answers of logind's may take
//! long on a busy machine.
//!
//! Signals have a connection of their own: what is not taken from it holds up nothing else.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration as StdDuration;

use fallow_client::Event;
use fallow_daemon::clock;
use fallow_domain::{Duration, Instant};
use futures_util::{FutureExt, StreamExt};
use tokio::sync::watch as channel;
use tokio::time::{Instant as TokioInstant, sleep, sleep_until, timeout};
use zbus::{Connection, MatchRule, MessageStream, connection};
use zbus::{OwnedObjectPath, OwnedVariant};

use super::{Report, Sight, TELL_AGAIN, Tell};
use crate::host::alarm::Alarm;

pub(super) const NAME: &str = "sessions";

const LOGIND: &str = "org.freedesktop.login1";
const SESSION: &str = "org.freedesktop.login1.Session";
const PROPERTIES: &str = "org.freedesktop.DBus.Properties";
/// How long an answer may take.
const ANSWER: StdDuration = StdDuration::from_secs(10);
/// Between two looks.
const PAUSE: StdDuration = StdDuration::from_secs(1);
/// The same where looks find nothing new.
const LONG_PAUSE: StdDuration = StdDuration::from_secs(10);
/// So many looks in a row that find nothing new are one signal's too many.
const VAIN_MAX: u32 = 5;
/// After this it is tried again to have the bus; it may come up later than the agent.
const RETRY: StdDuration = StdDuration::from_secs(60);
/// The longest that is waited for it.
const RETRY_MAX: StdDuration = StdDuration::from_secs(3600);
/// So many signals are read between two looks.
const READ_MAX: u32 = 100;
/// How soon it is tried again where it was there before, or somebody may be there of whom only logind tells;
/// and for how long the latter.
const SOON: StdDuration = StdDuration::from_secs(2);
const SOON_MAX: StdDuration = StdDuration::from_secs(600);
/// Most sessions that are looked at.
const SESSIONS_MAX: usize = 256;
/// Signals that wait.
const QUEUE: NonZeroUsize = NonZeroUsize::MIN.saturating_add(31);

/// What matters of a session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Session {
    /// What logind calls it on the bus.
    path: String,
    /// It has windows.
    graphical: bool,
    /// Its screen and its keyboard are this machine's.
    local: bool,
    /// Its X server, such as `:0`; empty where it has none.
    display: String,
    active: bool,
    locked: bool,
    /// Its desktop says that nobody uses it, since then.
    idle: Option<Instant>,
}

impl Session {
    /// What it is now by what has changed of it, if that is something else; and whether that shows that
    /// somebody uses it who did not before. Since when it is idle, a look tells.
    fn after(&self, changed: &Properties) -> Option<(Self, bool)> {
        let says = |key: &str| changed.get(key).and_then(|value| value.downcast_ref::<bool>().ok());
        let now = Self {
            active: says("Active").unwrap_or(self.active),
            locked: says("LockedHint").unwrap_or(self.locked),
            idle: self.idle.filter(|_| says("IdleHint") != Some(false)),
            ..self.clone()
        };
        (now != *self).then(|| (now.clone(), now.has_turned_from(self)))
    }

    /// Whether somebody has come to it who was not there as it was before.
    fn has_turned_from(&self, before: &Self) -> bool {
        !before.active && self.active
            || before.locked && !self.locked
            || before.idle.is_some() && self.idle.is_none()
    }
}

/// By their names.
type Properties = BTreeMap<String, OwnedVariant>;

type Sessions = BTreeMap<String, Session>;

/// What is known of the sessions. It stays while logind cannot be asked: that it is started again sends
/// nobody home, and who comes meanwhile is new when it is back.
#[derive(Default)]
struct Known {
    /// At the last look.
    sessions: Option<Sessions>,
    /// Somebody may be there of whom only logind tells.
    unseen: bool,
}

/// Listens to logind for as long as the agent lives.
pub(super) async fn listen(
    bus: Option<String>,
    tell: Tell,
    report: Arc<Report>,
    mut sight: channel::Receiver<Sight>,
) {
    let mut wait = RETRY;
    let (mut known, mut gone_since) = (Known::default(), None);
    // Where there is no logind, this is all that the agent's own thread is woken for.
    let alarm = Alarm::new();
    loop {
        let error = match connect(bus.as_deref()).await {
            Ok((calls, signals)) => {
                let (error, has_seen) = follow(&calls, signals, &tell, &report, &mut sight, &mut known).await;
                // The bus alone tells of nobody.
                if has_seen {
                    (wait, gone_since) = (SOON, None);
                }
                error
            }
            Err(error) => error,
        };
        report.note(NAME, false, &format!("no logind on the system bus: {error}"));
        if known.unseen {
            if gone_since.get_or_insert_with(TokioInstant::now).elapsed() < SOON_MAX {
                sleep(SOON).await;
            } else {
                // It has been gone for long: nobody is known to be there any more.
                known.unseen = false;
                say(&tell, Event::OwnerUnseen(false)).await;
            }
            continue;
        }
        alarm.after(wait).await;
        wait = (wait * 2).min(RETRY_MAX);
    }
}

/// The bus itself, which says who comes and goes.
const BUS: &str = "org.freedesktop.DBus";

/// Signals of logind, and those of the bus about logind.
type Signals = [MessageStream; 2];

async fn connect(bus: Option<&str>) -> zbus::Result<(Connection, Signals)> {
    let connection = || match bus {
        Some(address) => connection::Builder::address(address),
        None => connection::Builder::system(),
    };
    let all = async {
        let calls = connection().build().await?;
        let listener = connection().build().await?;
        let signals = || MatchRule::builder().msg_type(zbus::message::Type::Signal);
        let its = signals().sender(LOGIND).build()?;
        let about_it = signals().sender(BUS).member("NameOwnerChanged").add_arg(LOGIND).build()?;
        let its = MessageStream::for_match_rule(its, &listener, Some(QUEUE)).await?;
        Ok((calls, [its, MessageStream::for_match_rule(about_it, &listener, Some(QUEUE)).await?]))
    };
    timeout(ANSWER, all).await.unwrap_or_else(|_| Err(late()))
}

fn closed() -> zbus::Error {
    zbus::Error::Failure("the bus has closed the connection".to_owned())
}

fn late() -> zbus::Error {
    zbus::Error::Failure(format!("no answer in {} s", ANSWER.as_secs()))
}

fn is_late(error: &zbus::Error) -> bool {
    *error == late()
}

/// Whether the bus or a program on it says so: the connection is as it should be.
const fn is_answer(error: &zbus::Error) -> bool {
    matches!(error, zbus::Error::MethodError(..) | zbus::Error::FDO(_))
}

/// Whether a program on the bus says so, and not the bus in its place.
fn is_of_program(error: &zbus::Error) -> bool {
    use zbus::fdo::Error as Fdo;
    let of_bus = |error: &Fdo| {
        matches!(
            error,
            Fdo::ServiceUnknown(_)
                | Fdo::NameHasNoOwner(_)
                | Fdo::NoReply(_)
                | Fdo::Timeout(_)
                | Fdo::TimedOut(_)
                | Fdo::Disconnected(_)
                | Fdo::NoServer(_)
        )
    };
    match error {
        zbus::Error::FDO(error) => !of_bus(error),
        _ => is_answer(error),
    }
}

/// Follows the sessions until something goes wrong. Says what, and whether it ever saw them.
///
/// That logind has gone and does not come back at once is nothing wrong with the bus: it says when there is
/// one again, and so soon they are looked at.
async fn follow(
    calls: &Connection,
    [mut signals, mut owners]: Signals,
    tell: &Tell,
    report: &Report,
    sight: &mut channel::Receiver<Sight>,
    known: &mut Known,
) -> (zbus::Error, bool) {
    let (mut vain, mut away, mut has_seen, mut has_changed) = (0, SOON, false, false);
    loop {
        let sessions = match timeout(ANSWER, sessions(calls)).await.unwrap_or_else(|_| Err(late())) {
            Ok(sessions) => sessions,
            // It is not there or not ready, and the bus is.
            Err(error) if is_answer(&error) || is_late(&error) => {
                report.note(NAME, false, &format!("logind does not answer: {error}"));
                let patience = if known.unseen { SOON } else { away };
                away = (away * 2).min(RETRY_MAX);
                // Also one that is there and says something again is asked.
                let sign = async {
                    tokio::select! {
                        owner = owners.next() => owner,
                        signal = signals.next() => signal,
                    }
                };
                match timeout(patience, sign).await {
                    Ok(Some(Ok(_))) => {
                        drain(&mut owners);
                        drain(&mut signals);
                        sleep(PAUSE).await;
                        continue;
                    }
                    // It is asked again; whoever may be there is not waited for without end.
                    Err(_) if !known.unseen => continue,
                    _ => return (error, has_seen),
                }
            }
            Err(error) => return (error, has_seen),
        };
        away = SOON;
        let is_news = known.sessions.as_ref() != Some(&sessions) || has_changed;
        vain = if is_news { 0 } else { vain + 1 };
        // At the start nobody knows since when things are as they are.
        for (session, event) in news(known.sessions.as_ref().unwrap_or(&sessions), &sessions, clock::now()) {
            say(tell, event).await;
            report.saw(&format!("the session {session}"));
        }
        let sees = sight.borrow_and_update().clone();
        let is_unseen = sessions.iter().any(|(id, one)| is_unseen(id, one, &sees));
        if is_unseen != known.unseen || !has_seen {
            known.unseen = is_unseen;
            say(tell, Event::OwnerUnseen(is_unseen)).await;
        }
        known.sessions = Some(sessions);
        has_seen = true;
        report.note(NAME, true, "as logind has them");
        let pause = if vain < VAIN_MAX { PAUSE } else { LONG_PAUSE };
        has_changed = match rest(pause, (&mut signals, &mut owners), tell, report, sight, known).await {
            Ok(has_changed) => has_changed,
            Err(error) => return (error, true),
        };
        // Those that have come together are looked at together.
        drain(&mut signals);
        drain(&mut owners);
    }
}

/// Waits until there is to be another look: after a pause, and not before something has changed. Input that a
/// signal itself shows is told at once, also in the pause; once, for the tasks rest then. The last that came
/// after that is told at the end of the pause, with how long ago it was. Says whether signals have told how
/// sessions are.
async fn rest(
    pause: StdDuration,
    (signals, owners): (&mut MessageStream, &mut MessageStream),
    tell: &Tell,
    report: &Report,
    sight: &mut channel::Receiver<Sight>,
    known: &mut Known,
) -> zbus::Result<bool> {
    let until = TokioInstant::now() + pause;
    let (mut is_due, mut has_changed, mut has_told, mut sees) = (false, false, false, true);
    let (mut read, mut untold) = (0, None);
    let rested = loop {
        tokio::select! {
            // Signals that are there come before the end of the pause, after which they are passed over.
            biased;
            // A look is due before more than these are worth reading.
            changed = next_change(signals, known.sessions.as_ref()), if read < READ_MAX => {
                (read, is_due) = (read + 1, true);
                let changed = match changed {
                    Ok(changed) => changed,
                    Err(error) => break Err(error),
                };
                if let Some((id, session, turned)) = changed {
                    if turned && !has_told {
                        has_told = true;
                        say(tell, Event::OwnerInput { ago: Duration::ZERO }).await;
                        report.saw(&format!("the session {id}"));
                    } else if turned {
                        untold = Some((id.clone(), TokioInstant::now()));
                    }
                    // The look that follows need not tell of it once more.
                    known.sessions.get_or_insert_default().insert(id, session);
                    has_changed = true;
                }
            }
            // It has gone, or is back: the look says which.
            owner = owners.next() => {
                is_due = true;
                if !matches!(owner, Some(Ok(_))) {
                    break Err(closed());
                }
            }
            // Where the thread that listens to devices is gone, nothing changes there any more.
            changed = sight.changed(), if sees => (sees, is_due) = (changed.is_ok(), is_due || changed.is_ok()),
            () = sleep_until(until), if is_due => break Ok(has_changed),
        }
    };
    if let Some((id, at)) = untold {
        say(tell, Event::OwnerInput { ago: at.elapsed().into() }).await;
        report.saw(&format!("the session {id}"));
    }
    rested
}

/// Takes the signals that wait: what they tell the next look shows.
fn drain(signals: &mut MessageStream) {
    for _ in 0..QUEUE.get() {
        if !matches!(signals.next().now_or_never(), Some(Some(Ok(_)))) {
            break;
        }
    }
}

/// Waits for a signal that something of logind's has changed: it may send others. Names the session that has
/// changed, if the signal says so itself, with what it is now and whether somebody has turned to it.
async fn next_change(
    signals: &mut MessageStream,
    known: Option<&Sessions>,
) -> zbus::Result<Option<(String, Session, bool)>> {
    loop {
        let signal = signals.next().await.ok_or_else(closed)??;
        let header = signal.header();
        let interface = header.interface().map_or("", |interface| interface.as_str());
        if interface == PROPERTIES {
            let path = header.path().map_or("", |path| path.as_str());
            let of = known.into_iter().flatten().find(|(_, session)| session.path == path);
            let Ok((of_what, changed, _)) = signal.body().deserialize::<(String, Properties, Vec<String>)>()
            else {
                return Ok(None);
            };
            let of = of.filter(|_| of_what == SESSION);
            let after = of.and_then(|(id, session)| Some((id, session.after(&changed)?)));
            return Ok(after.map(|(id, (now, turned))| (id.clone(), now, turned)));
        }
        if interface.starts_with(LOGIND) {
            return Ok(None);
        }
    }
}

/// Whether somebody may use a session of whose input nothing can be seen.
fn is_unseen(id: &str, session: &Session, sight: &Sight) -> bool {
    let listened = sight.displays.contains(&session.display) || sight.sessions.contains(id);
    let seen = session.local && sight.devices || listened;
    session.graphical && !seen && session.active && !session.locked && session.idle.is_none()
}

/// What has changed that shows somebody.
fn news<'a>(before: &Sessions, now: &'a Sessions, at: Instant) -> Vec<(&'a str, Event)> {
    let since = |then: Instant| at.since(then).max(Duration::ZERO);
    let mut events = Vec::new();
    for (id, session) in now {
        let was = before.get(id);
        let began = was.is_none();
        let turned = was.is_some_and(|was| session.has_turned_from(was));
        if began || turned {
            events.push((id.as_str(), Event::OwnerInput { ago: Duration::ZERO }));
        } else if let (Some(None), Some(idle)) = (was.map(|was| was.idle), session.idle) {
            events.push((id.as_str(), Event::OwnerInput { ago: since(idle) }));
        }
    }
    events
}

async fn say(tell: &Tell, event: Event) {
    while !tell(event.clone()) {
        sleep(TELL_AGAIN).await;
    }
}

/// All sessions of people.
async fn sessions(bus: &Connection) -> zbus::Result<Sessions> {
    type Listed = Vec<(String, u32, String, String, OwnedObjectPath)>;
    let manager = Some("org.freedesktop.login1.Manager");
    let reply =
        bus.call_method(Some(LOGIND), "/org/freedesktop/login1", manager, "ListSessions", &()).await?;
    let listed: Listed = reply.body().deserialize()?;
    let mut sessions = Sessions::new();
    for (id, _, _, _, path) in listed.into_iter().take(SESSIONS_MAX) {
        match session(bus, &path).await {
            Ok(Some(session)) => drop(sessions.insert(id, session)),
            Ok(None) => {}
            // It has just ended. That logind has is another thing: who is there is not known then.
            Err(error) if is_of_program(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(sessions)
}

async fn session(bus: &Connection, path: &OwnedObjectPath) -> zbus::Result<Option<Session>> {
    let reply = bus.call_method(Some(LOGIND), path.as_str(), Some(PROPERTIES), "GetAll", &SESSION).await?;
    let body = reply.body();
    let all: Properties = body.deserialize()?;
    let text = |key: &str| all.get(key).and_then(|value| value.downcast_ref::<&str>().ok()).unwrap_or("");
    let is = |key: &str| all.get(key).and_then(|value| value.downcast_ref::<bool>().ok()).unwrap_or(false);
    // Those of greeters, of the system's own programs and of timers are nobody's.
    // Nor is anybody in one that is over, whose programs run on.
    if text("Class") != "user" || text("State") == "closing" {
        return Ok(None);
    }
    let since = all.get("IdleSinceHint").and_then(|value| value.downcast_ref::<u64>().ok());
    let since = since.and_then(|micros| i64::try_from(micros).ok()).unwrap_or(0);
    Ok(Some(Session {
        path: path.as_str().to_owned(),
        graphical: matches!(text("Type"), "x11" | "wayland" | "mir"),
        local: !is("Remote"),
        display: super::x11::local(text("Display")).unwrap_or_default(),
        active: is("Active"),
        locked: is("LockedHint"),
        idle: is("IdleHint").then(|| Instant::from_micros(since)),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Instant = Instant::from_micros(1_800_000_000_000_000);

    fn desktop() -> Session {
        let (path, display) = ("/1".to_owned(), ":0".to_owned());
        Session { path, graphical: true, local: true, display, active: true, locked: false, idle: None }
    }

    fn of(session: Session) -> Sessions {
        Sessions::from([("1".to_owned(), session)])
    }

    #[test]
    fn r6_2_a_session_that_nobody_can_look_into_is_used_until_it_is_locked_left_or_idle() {
        let sight = |devices, displays: &[&str]| Sight {
            devices,
            displays: displays.iter().map(|one| (*one).to_owned()).collect(),
            sessions: ["2".to_owned()].into(),
        };
        let is_unseen = |session: &Session, sight: &Sight| super::is_unseen("1", session, sight);
        let unseen = |session| [false, true].map(|devices| is_unseen(&session, &sight(devices, &[":1"])));
        // Nor is one that is seen by its compositor.
        assert!(!super::is_unseen("2", &Session { local: false, ..desktop() }, &sight(false, &[])));
        // Nor is one that is seen by its X server, also from another machine.
        assert!(!is_unseen(&Session { local: false, ..desktop() }, &sight(false, &[":0"])));
        assert!(is_unseen(&Session { display: String::new(), ..desktop() }, &sight(false, &[":0"])));
        assert_eq!(unseen(desktop()), [true, false]);
        assert_eq!(unseen(Session { local: false, ..desktop() }), [true, true]);
        for nobody in [
            Session { locked: true, ..desktop() },
            Session { active: false, ..desktop() },
            Session { idle: Some(NOW), ..desktop() },
            Session { graphical: false, ..desktop() },
        ] {
            assert_eq!(unseen(nobody), [false, false]);
        }
    }

    #[test]
    fn r6_2_a_session_that_begins_is_unlocked_or_comes_to_the_front_is_input() {
        let input = |before: Sessions, now: Session| {
            let now = of(now);
            let events = news(&before, &now, NOW);
            let ago = |(_, event): &(&str, Event)| match event {
                Event::OwnerInput { ago } => Some(ago.as_secs_f64()),
                _ => None,
            };
            events.iter().filter_map(ago).collect::<Vec<_>>()
        };
        assert_eq!(input(Sessions::new(), desktop()), [0.0]);
        assert_eq!(input(of(Session { locked: true, ..desktop() }), desktop()), [0.0]);
        assert_eq!(input(of(Session { active: false, ..desktop() }), desktop()), [0.0]);
        let idle = |secs| Session { idle: Some(NOW - Duration::from_secs(secs)), ..desktop() };
        assert_eq!(input(of(idle(600)), desktop()), [0.0]);
        // Its desktop says since when.
        assert_eq!(input(of(desktop()), idle(120)), [120.0]);
        assert!(input(of(idle(120)), idle(120)).is_empty() && input(of(desktop()), desktop()).is_empty());
        assert!(input(of(desktop()), Session { locked: true, ..desktop() }).is_empty());
    }

    #[test]
    fn r6_2_a_signal_is_input_by_itself_where_it_says_what_was_not_so_before() {
        let changed =
            |key: &str, value: bool| Properties::from([(key.to_owned(), OwnedVariant::from(value))]);
        let idle = Session { idle: Some(NOW), ..desktop() };
        let locked = Session { locked: true, ..desktop() };
        let left = Session { active: false, ..desktop() };
        let says = [("Active", true), ("LockedHint", false), ("IdleHint", false)];
        for (session, expected) in [
            (left, [true, false, false]),
            (locked, [false, true, false]),
            (idle, [false, false, true]),
            (desktop(), [false; 3]),
        ] {
            let after = says.map(|(key, value)| session.after(&changed(key, value)));
            let turned = after.clone().map(|after| after.is_some_and(|(_, turned)| turned));
            assert_eq!(turned, expected);
            // The look that finds it so has nothing to tell.
            assert!(after.into_iter().flatten().all(|(now, _)| now == desktop()));
            // That somebody goes is no input, nor is another word.
            let goes = says.map(|(key, value)| session.after(&changed(key, !value)));
            assert!(goes.into_iter().flatten().all(|(_, turned)| !turned));
            assert_eq!(session.after(&changed("Remote", false)), None);
        }
        // Who comes back before the next look is noticed.
        let (locked, _) = desktop().after(&changed("LockedHint", true)).unwrap();
        assert_eq!(locked.after(&changed("LockedHint", false)), Some((desktop(), true)));
    }
}
