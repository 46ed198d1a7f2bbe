//! Eight trees of processes that stop for somebody: what the tests of sensors start, and how long it takes.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fallow_agent::host::owner::{OwnerSensors, Sensors, Tell};
use fallow_agent::proc;
use fallow_boinc::runtime::message::ProcessControl;
use fallow_client::Event;
use fallow_domain::{JobId, SlotId};
use tokio::runtime::Runtime;
use zbus::Variant;

use crate::owner::{Dev, Logind, TREE, go_on, offspring};
use crate::supervision::Bench;
use crate::support::wait_for;
use crate::x11::Server;

const TREES: u32 = 8;

/// Tasks that run, with what senses somebody for whom they are stopped.
pub(crate) struct Yielding {
    sensors: Sensors,
    bench: Bench,
    first: Vec<u32>,
    pids: Vec<u32>,
}

impl Yielding {
    /// Starts the trees, then the sensors.
    pub(crate) fn start(runtime: &Runtime, wanted: &OwnerSensors) -> Self {
        let bench = Bench::new();
        let setups: Vec<_> = (0..TREES)
            .map(|number| {
                let mut setup = bench.script(TREE.trim_start_matches("#!/bin/sh\n"));
                (setup.job, setup.slot) = (JobId(number.into()), SlotId(number));
                setup
            })
            .collect();
        let slots: Vec<PathBuf> = setups.iter().map(|setup| bench.data.slot(setup.slot)).collect();
        setups.into_iter().for_each(|setup| bench.supervisor.start_task(setup));
        let first: Vec<u32> = slots.iter().map(|_| bench.started()).collect();
        wait_for("all trees", || {
            slots.iter().all(|slot| slot.join("stray").exists() && slot.join("up").exists()).then_some(())
        });
        let pids = offspring(&first).iter().map(|process| process.pid).collect();
        let freezer = Arc::clone(bench.supervisor.freezer());
        freezer.arm(true);
        // As the agent has it: stopped before anybody else hears of it.
        let tell: Tell = Arc::new(move |event| {
            if matches!(event, Event::OwnerInput { ago } if ago == fallow_domain::Duration::ZERO) {
                freezer.input();
            }
            true
        });
        let _in = runtime.enter();
        let sensors = Sensors::start(wanted, &tell);
        runtime.block_on(sensors.looked());
        Self { sensors, bench, first, pids }
    }

    pub(crate) fn sensors(&self) -> &Sensors {
        &self.sensors
    }

    pub(crate) fn all_stopped(&self) -> bool {
        self.pids.iter().all(|pid| proc::find(*pid).is_none_or(|process| process.stopped))
    }

    pub(crate) fn resume(&self) {
        for number in 0..TREES {
            self.bench.supervisor.tell(JobId(number.into()), ProcessControl::Resume);
        }
        wait_for("all to go on", || go_on(&self.first));
    }

    /// From each event until nothing computes.
    fn measure(&self, events: usize, mut event: impl FnMut(), mut settle: impl FnMut()) -> Vec<Duration> {
        let all = (0..events).map(|_| {
            settle();
            let begun = Instant::now();
            event();
            while !self.all_stopped() {}
            let took = begun.elapsed();
            self.resume();
            took
        });
        let mut all: Vec<Duration> = all.collect();
        all.sort_unstable();
        all
    }
}

impl Drop for Yielding {
    fn drop(&mut self) {
        self.bench.supervisor.stop(Duration::ZERO);
    }
}

/// How long it takes until nothing of eight trees computes, by the sensor that hears of it. Not a test: it
/// prints. So many events of each as `FALLOW_EVENTS` says; of keys a tenth of that, for after one the
/// devices are not listened to for five seconds.
#[test]
#[ignore = "a measurement: cargo test -p fallow-agent --test agent -- --ignored --nocapture how_long_from"]
fn how_long_from_an_event_to_the_last_process_of_eight_trees() {
    let events = std::env::var("FALLOW_EVENTS").ok().and_then(|count| count.parse().ok()).unwrap_or(1000);
    let runtime = Runtime::new().unwrap();
    let nothing = tempfile::tempdir().unwrap();
    let wanted = |dev: &std::path::Path, display| OwnerSensors {
        never_in_use: false,
        devices: dev.to_owned(),
        bus: Some("unix:path=/nowhere/bus".to_owned()),
        display,
        wayland: None,
        session: None,
    };
    println!(
        "{:<14} {:>6}  {:>9} {:>9} {:>9} {:>9}",
        "sensor", "events", "p50 ms", "p90 ms", "p99 ms", "max ms"
    );
    if let Some(server) = Server::start() {
        let yielding = Yielding::start(&runtime, &wanted(nothing.path(), Some(server.display.clone())));
        // The counter has to have gone on for a second, or it does not fall back.
        let took =
            yielding.measure(events, || server.key(), || std::thread::sleep(Duration::from_millis(1100)));
        print("X server", &took);
    }
    {
        let mut dev = Dev::new();
        let yielding = Yielding::start(&runtime, &wanted(dev.path(), None));
        let took =
            yielding.measure(events / 10, || dev.key(), || std::thread::sleep(Duration::from_millis(5500)));
        print("input devices", &took);
    }
    let Some(logind) = Logind::start(nothing.path()) else { return };
    logind.tell("", "m.AddSession('c1', 'seat0', 1000, 'anna', True)").unwrap();
    logind.session("{'Type': 'tty', 'LockedHint': True}");
    let bus = runtime.block_on(zbus::connection::Builder::address(logind.address.as_str()).build());
    let bus = bus.unwrap();
    let lock = |locked: bool| {
        let body = ("", std::collections::BTreeMap::from([("LockedHint", Variant::from(locked))]));
        let call = bus.call_method(
            Some("org.freedesktop.login1"),
            "/org/freedesktop/login1/session/c1",
            Some("org.freedesktop.DBus.Mock"),
            "UpdateProperties",
            &body,
        );
        runtime.block_on(call).unwrap();
    };
    let wanted = OwnerSensors { bus: Some(logind.address.clone()), ..wanted(nothing.path(), None) };
    let yielding = Yielding::start(&runtime, &wanted);
    // Sessions are looked at once a second at most.
    let took = yielding.measure(
        events,
        || lock(false),
        || {
            lock(true);
            std::thread::sleep(Duration::from_millis(2100));
        },
    );
    print("sessions", &took);
}

/// A line of the table, and a histogram of it.
fn print(sensor: &str, took: &[Duration]) {
    let ms = |took: Duration| took.as_secs_f64() * 1e3;
    let at = |part: f64| ms(took[((took.len() as f64 * part).ceil() as usize).clamp(1, took.len()) - 1]);
    let (count, most) = (took.len(), ms(took[took.len() - 1]));
    println!("{sensor:<14} {count:>6}  {:>9.2} {:>9.2} {:>9.2} {most:>9.2}", at(0.5), at(0.9), at(0.99));
    let mut lower = 0.0;
    for upper in [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, f64::INFINITY] {
        let within = took.iter().filter(|took| (lower..upper).contains(&ms(**took))).count();
        if within > 0 {
            println!("  {lower:>5} to {upper:>5} ms  {within:>6}  {}", "#".repeat(within * 60 / count));
        }
        lower = upper;
    }
}
