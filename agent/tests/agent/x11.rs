//! Somebody uses a session of X11: a real server and keys that it takes for real ones.

use fallow_agent::host::owner::OwnerSensors;
use tokio::runtime::Runtime;
use x11rb::protocol::sync::ConnectionExt as _;

use crate::support::wait_for;
use crate::yielding::Yielding;

mod server;
pub(crate) use server::Server;

/// For how long nobody has used it, by its own counter, in milliseconds.
fn idle(server: &Server) -> u32 {
    let counters = server.keyboard.sync_list_system_counters().unwrap().reply().unwrap().counters;
    let counter = counters.iter().find(|counter| counter.name == b"IDLETIME").unwrap().counter;
    server.keyboard.sync_query_counter(counter).unwrap().reply().unwrap().counter_value.lo
}

fn listening_to(display: &str, nothing: &tempfile::TempDir) -> OwnerSensors {
    let display = Some(display.to_owned());
    OwnerSensors {
        never_in_use: false,
        devices: nothing.path().to_owned(),
        bus: Some("unix:path=/nowhere/bus".to_owned()),
        display,
        wayland: None,
        session: None,
    }
}

fn stands(yielding: &Yielding) -> (bool, String) {
    let all = yielding.sensors().status();
    let one = all.into_iter().find(|sensor| sensor.sensor == "X server").unwrap();
    (one.on, one.what)
}

#[test]
fn r6_2_at_a_key_in_a_session_of_x11_all_processes_of_all_tasks_stop() {
    let Some(server) = Server::start() else { return };
    let (runtime, nothing) = (Runtime::new().unwrap(), tempfile::tempdir().unwrap());
    let yielding = Yielding::start(&runtime, &listening_to(&server.display, &nothing));
    let answers = (true, format!("display {}", server.display));
    wait_for("the server to answer", || (stands(&yielding) == answers).then_some(()));
    for round in 0..2 {
        // The end of a pause is what is told at once.
        wait_for("a pause", || (idle(&server) > 1_500).then_some(()));
        assert!(!yielding.all_stopped(), "nobody has touched it in round {round}");
        server.key();
        wait_for("all to be stopped", || yielding.all_stopped().then_some(()));
        let of = wait_for("it to be known", || yielding.sensors().last_input()).of;
        assert_eq!(of, format!("the X server of display {}", server.display));
        yielding.resume();
    }
}

#[test]
fn r6_2_an_x_server_that_goes_or_never_answers_holds_up_nothing() {
    let (runtime, nothing) = (Runtime::new().unwrap(), tempfile::tempdir().unwrap());
    // One that takes connections and says nothing.
    let silent = (90..200_u16).find_map(|number| {
        let path = format!("/tmp/.X11-unix/X{number}");
        std::fs::create_dir_all("/tmp/.X11-unix").ok()?;
        let listener = std::os::unix::net::UnixListener::bind(&path).ok()?;
        Some((listener, path, format!(":{number}")))
    });
    let Some((listener, path, display)) = silent else {
        return println!("skipped: no display can be made here (/tmp/.X11-unix)");
    };
    let yielding = Yielding::start(&runtime, &listening_to(&display, &nothing));
    assert_eq!(stands(&yielding), (false, "it has not answered yet".to_owned()));
    drop(listener);
    let _ = std::fs::remove_file(path);
    wait_for("its end to be told", || stands(&yielding).1.contains("no answer from").then_some(()));
    drop(yielding);
    let Some(server) = Server::start() else { return };
    let yielding = Yielding::start(&runtime, &listening_to(&server.display, &nothing));
    wait_for("the server to answer", || stands(&yielding).0.then_some(()));
    drop(server);
    wait_for("its end to be told", || (!stands(&yielding).0).then_some(()));
}
