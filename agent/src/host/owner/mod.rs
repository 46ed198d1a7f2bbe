//! Who uses this machine (R6.2): sensors, which tell the client of input and of people. Whether anything
//! follows from it is the client's to say.
//!
//! Model: one thread sleeps until an input device has something, and looks at terminals now and then
//! (`watch`); a task of the runtime listens to logind (`logind`). The first input after a pause is told at
//! once. Then nobody listens to the devices for `RENEWED`: whether there was input meanwhile their queues
//! tell, which the kernel bounds. So a key that is held down, and a device that never stops, cost as much as
//! one key in that time. Terminals are looked at more seldom, the longer a look at all of them takes.
//!
//! An agent that was started in a session of X11 listens to its server as well (`x11`), one of a session of
//! Wayland to its compositor (`wayland`).
//!
//! The load of other programs, batteries and memory pressure are looked at elsewhere
//! ([`super::surroundings`]).

mod devices;
mod logind;
mod terminals;
mod watch;
mod wayland;
mod x11;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration as StdDuration;

use fallow_client::{Attention, Event};
use fallow_daemon::clock;
use serde::{Deserialize, Serialize};
use tokio::sync::watch as channel;
use tokio::task::JoinHandle;

use watch::Watch;

pub use wayland::socket as wayland_socket;

/// While there is input, it is told again so often.
const RENEWED: StdDuration = StdDuration::from_secs(5);
/// How long the start of the agent waits for the first look of all.
const FIRST_LOOK: StdDuration = StdDuration::from_secs(2);
/// How soon the engine is told again what it had no room for.
const TELL_AGAIN: StdDuration = StdDuration::from_millis(50);

/// Which sensors are wanted.
#[derive(Clone, Debug)]
pub struct OwnerSensors {
    /// None: nobody ever uses this machine as far as the agent is concerned.
    pub never_in_use: bool,
    /// Where devices and terminals are: `/dev`.
    pub devices: PathBuf,
    /// Where the system bus is, if not where it always is (for tests).
    pub bus: Option<String>,
    /// The X server that the agent's session has, as `DISPLAY` says it.
    pub display: Option<String>,
    /// Where the Wayland compositor that the agent's session has listens ([`wayland_socket`]).
    pub wayland: Option<PathBuf>,
    /// What logind calls the agent's session, as `XDG_SESSION_ID` says it.
    pub session: Option<String>,
}

/// Of what all input is seen, whoever has the session.
#[derive(Clone, Debug, Default)]
struct Sight {
    /// The devices of this machine.
    devices: bool,
    /// X servers, such as `:0`.
    displays: BTreeSet<String>,
    /// Sessions of which a compositor tells, as logind calls them.
    sessions: BTreeSet<String>,
}

/// Passes on an event. False when the engine has no room for it: it is to be passed on again.
pub type Tell = Arc<dyn Fn(Event) -> bool + Send + Sync>;

/// A sensor, as `fallow-agent status` has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SensorStatus {
    /// What it senses: `input devices`, `terminals`, `sessions`, `X server` or `Wayland`.
    pub sensor: String,
    /// Whether it senses anything.
    pub on: bool,
    /// What it has, or why it is off.
    pub what: String,
}

/// What was used last, as `fallow-agent status` has it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LastInput {
    /// The device, the terminal, the session, the X server or the compositor.
    pub of: String,
    /// When, seconds since the epoch.
    pub at: f64,
}

/// What all sensors are at.
#[derive(Debug, Default)]
struct Report {
    sensors: Mutex<Vec<SensorStatus>>,
    last: Mutex<Option<LastInput>>,
}

impl Report {
    /// Notes where there was input just now.
    fn saw(&self, of: &str) {
        let input = LastInput { of: of.to_owned(), at: clock::now().as_secs_f64() };
        *fallow_daemon::lock(&self.last) = Some(input);
    }

    /// Notes how a sensor stands; the log says what is new.
    fn note(&self, sensor: &str, on: bool, what: &str) {
        let status = SensorStatus { sensor: sensor.to_owned(), on, what: what.to_owned() };
        let mut all = fallow_daemon::lock(&self.sensors);
        match all.iter_mut().find(|other| other.sensor == sensor) {
            Some(other) if *other == status => return,
            Some(other) => *other = status,
            None => all.push(status),
        }
        tracing::info!(sensor, on, what, "senses whether somebody uses the machine");
    }
}

/// The sensors, as long as they live.
pub struct Sensors {
    report: Arc<Report>,
    watch: Option<Watch>,
    logind: Option<JoinHandle<()>>,
    _x11: Option<x11::Display>,
    _wayland: Option<wayland::Compositor>,
}

const ALL: [&str; 5] = [devices::NAME, terminals::NAME, logind::NAME, x11::NAME, wayland::NAME];

impl Sensors {
    /// Starts the sensors. Those that cannot be had say so, and are off.
    pub fn start(wanted: &OwnerSensors, tell: &Tell) -> Self {
        let report = Arc::new(Report::default());
        if wanted.never_in_use {
            for sensor in ALL {
                report.note(sensor, false, "nobody sits at this machine (--never-in-use)");
            }
            return Self { report, watch: None, logind: None, _x11: None, _wayland: None };
        }
        let (sight, seen) = channel::channel(Sight::default());
        let display = wanted.display.as_deref();
        let x11 = x11::start(display, Arc::clone(tell), &report, sight.clone());
        let (compositor, session) = (wanted.wayland.as_deref(), wanted.session.as_deref());
        let wayland = wayland::start(compositor, session, Arc::clone(tell), &report, sight.clone());
        let watch = Watch::start(wanted.devices.clone(), Arc::clone(tell), Arc::clone(&report), sight);
        let watch = watch.inspect_err(|error| {
            report.note(devices::NAME, false, &format!("no thread for it: {error}"));
            report.note(terminals::NAME, false, &format!("no thread for it: {error}"));
        });
        let logind =
            tokio::spawn(logind::listen(wanted.bus.clone(), Arc::clone(tell), Arc::clone(&report), seen));
        Self { report, watch: watch.ok(), logind: Some(logind), _x11: x11, _wayland: wayland }
    }

    /// Waits until each has looked once, but not long: a client that starts knows then who is there.
    pub async fn looked(&self) {
        let end = tokio::time::Instant::now() + FIRST_LOOK;
        while tokio::time::Instant::now() < end {
            let known = self.status();
            if ALL.iter().all(|name| known.iter().any(|one| one.sensor == *name)) {
                return;
            }
            tokio::time::sleep(StdDuration::from_millis(5)).await;
        }
        let known = self.status();
        for name in ALL.iter().filter(|name| known.iter().all(|one| one.sensor != **name)) {
            self.report.note(name, false, "it has not answered yet");
        }
    }

    /// How closely it is to be looked at what tells nothing by itself: terminals.
    pub fn attend(&self, attention: Attention) {
        if let Some(watch) = &self.watch {
            watch.attend(attention);
        }
    }

    /// How each stands.
    pub fn status(&self) -> Vec<SensorStatus> {
        fallow_daemon::lock(&self.report.sensors).clone()
    }

    /// What was used last, since the agent was started.
    pub fn last_input(&self) -> Option<LastInput> {
        fallow_daemon::lock(&self.report.last).clone()
    }
}

impl Drop for Sensors {
    fn drop(&mut self) {
        if let Some(logind) = &self.logind {
            logind.abort();
        }
    }
}
