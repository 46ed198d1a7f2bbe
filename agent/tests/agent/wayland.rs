//! Somebody uses a session of Wayland: a real compositor and keys that it takes for real ones; and what
//! passes for a compositor and lies.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use fallow_agent::host::owner::{OwnerSensors, Sensors, Tell};
use fallow_client::Event;
use tokio::runtime::Runtime;

use crate::support::wait_for;
use crate::yielding::Yielding;

mod compositor;
mod liar;

use compositor::Compositor;
use liar::{Liar, listened_to, message, number, offer};

fn listening_to(socket: &Path) -> OwnerSensors {
    OwnerSensors {
        never_in_use: false,
        devices: PathBuf::from("/nowhere"),
        bus: Some("unix:path=/nowhere/bus".to_owned()),
        display: None,
        wayland: Some(socket.to_owned()),
        session: None,
    }
}

fn stands(sensors: &Sensors) -> (bool, String) {
    let all = sensors.status();
    let one = all.into_iter().find(|sensor| sensor.sensor == "Wayland").unwrap();
    (one.on, one.what)
}

/// Sensors that tell nobody, and when they told of input just now.
fn alone(runtime: &Runtime, socket: &Path) -> (Sensors, Arc<Mutex<Vec<Instant>>>) {
    let told = Arc::new(Mutex::new(Vec::new()));
    let tell: Tell = {
        let told = Arc::clone(&told);
        Arc::new(move |event| {
            if matches!(event, Event::OwnerInput { ago } if ago == fallow_domain::Duration::ZERO) {
                told.lock().unwrap().push(Instant::now());
            }
            true
        })
    };
    let _in = runtime.enter();
    (Sensors::start(&listening_to(socket), &tell), told)
}

#[test]
fn r6_2_at_a_key_in_a_session_of_wayland_all_processes_of_all_tasks_stop() {
    let Some(compositor) = Compositor::start() else { return };
    let runtime = Runtime::new().unwrap();
    let yielding = Yielding::start(&runtime, &listening_to(&compositor.socket()));
    // On a loaded machine it takes its time to answer.
    let what = wait_for("the compositor to answer", || {
        let (on, what) = stands(yielding.sensors());
        on.then_some(what)
    });
    assert!(what.ends_with("version 1 of its idle protocol"), "{what}");
    for round in 0..2 {
        // The end of a pause is what is told at once.
        compositor.wait_for_pause();
        assert!(!yielding.all_stopped(), "nobody has touched it in round {round}");
        compositor.key();
        wait_for("all to be stopped", || yielding.all_stopped().then_some(()));
        let of = wait_for("it to be known", || yielding.sensors().last_input()).of;
        assert_eq!(of, format!("the Wayland session at {}", compositor.socket().display()));
        yielding.resume();
    }
    drop(compositor);
    wait_for("its end to be told", || (!stands(yielding.sensors()).0).then_some(()));
}

#[test]
fn r6_2_a_compositor_that_says_nothing_or_what_it_must_not_holds_up_nothing() {
    let runtime = Runtime::new().unwrap();
    let silent = Liar::new();
    let (sensors, _) = alone(&runtime, &silent.socket());
    let _caller = silent.caller();
    runtime.block_on(sensors.looked());
    assert_eq!(stands(&sensors), (false, "it has not answered yet".to_owned()));
    wait_for("it to be given up", || stands(&sensors).1.contains("it says nothing").then_some(()));

    for (lie, why) in [
        // An error without a text, at which the library panics.
        (message(1, 0, &[number(1), number(0), number(0)].concat()), "it broke the protocol"),
        (message(77, 3, &[]), "Malformed"),
        (vec![0xff; 4096], "Malformed"),
        // No idle protocol, as many have none.
        ([offer(1, "wl_seat", 8), message(3, 0, &number(0))].concat(), "ext_idle_notifier_v1"),
        (Vec::new(), "no answer from"),
    ] {
        let liar = Liar::new();
        let (sensors, told) = alone(&runtime, &liar.socket());
        let mut caller = liar.caller();
        let _ = caller.write_all(&lie);
        if lie.is_empty() {
            drop(caller);
        }
        wait_for(why, || {
            runtime.block_on(sensors.looked());
            let (on, what) = stands(&sensors);
            assert!(!on, "{what}");
            what.contains(why).then_some(())
        });
        assert!(told.lock().unwrap().is_empty());
    }
}

#[test]
fn r6_2_of_a_compositor_that_floods_little_is_taken() {
    let runtime = Runtime::new().unwrap();
    let liar = Liar::new();
    let (sensors, _) = alone(&runtime, &liar.socket());
    let mut caller = liar.caller();
    let sent = Arc::new(AtomicUsize::new(0));
    let flood = std::thread::spawn({
        let (sent, said) = (Arc::clone(&sent), offer(3, "wl_output", 4).repeat(1000));
        move || {
            while let Ok(len) = caller.write(&said) {
                sent.fetch_add(len, Ordering::Relaxed);
            }
        }
    });
    wait_for("it to be given up", || {
        runtime.block_on(sensors.looked());
        stands(&sensors).1.contains("it says nothing").then_some(())
    });
    flood.join().unwrap();
    // Ten seconds, four kilobytes twenty times in each, and what sockets hold.
    let sent = sent.load(Ordering::Relaxed);
    assert!(sent < 3 << 20, "{sent} bytes were taken");
}

#[test]
fn r6_2_who_lies_that_somebody_comes_and_goes_all_the_time_is_heard_every_few_seconds_only() {
    let runtime = Runtime::new().unwrap();
    let liar = Liar::new();
    let (sensors, told) = alone(&runtime, &liar.socket());
    let mut caller = liar.caller();
    let object = listened_to(&mut caller);
    let flood = std::thread::spawn(move || {
        let said = [message(object, 0, &[]), message(object, 1, &[])].concat().repeat(1000);
        while caller.write(&said).is_ok() {}
    });
    let times = wait_for("three lies to be told", || {
        let told = told.lock().unwrap();
        (told.len() >= 3).then(|| told.clone())
    });
    assert!(times.windows(2).all(|two| two[1] - two[0] >= Duration::from_secs(5)), "{times:?}");
    drop(sensors);
    // Its end is seen when nobody listens any more.
    drop(liar);
    flood.join().unwrap();
}

#[test]
fn r6_2_a_compositor_that_sticks_while_somebody_is_there_does_not_keep_him_there() {
    let runtime = Runtime::new().unwrap();
    let liar = Liar::new();
    let (sensors, told) = alone(&runtime, &liar.socket());
    let mut caller = liar.caller();
    listened_to(&mut caller);
    wait_for("it to be on", || stands_at_all(&sensors).filter(|(on, _)| *on));
    // It never says that anybody is idle, so somebody may be there.
    wait_for("somebody to be told of", || (!told.lock().unwrap().is_empty()).then_some(()));
    wait_for("it to be given up", || stands(&sensors).1.contains("it has stopped answering").then_some(()));
    assert!(told.lock().unwrap().len() <= 4, "{:?}", told.lock().unwrap());
}

fn stands_at_all(sensors: &Sensors) -> Option<(bool, String)> {
    sensors.status().iter().any(|sensor| sensor.sensor == "Wayland").then(|| stands(sensors))
}
