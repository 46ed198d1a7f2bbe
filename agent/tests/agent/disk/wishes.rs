//! What the owner wants while nothing can be stored, and wants no more when it can be.

use std::path::Path;
use std::process::Stdio;

use super::{VOLUME, fill, passes_on_a_volume_of};
use crate::daemon::{Daemon, command, outcome};
use crate::support::{put, wait_for};

/// Tries something on the volume, in a directory of its own. An agent may find space for what is said first:
/// then it is tried with another one.
fn try_on_the_volume(is_shown: impl Fn(&Path, &Path) -> bool) {
    let Some(volume) = std::env::var_os(VOLUME) else { return };
    let volume = Path::new(&volume);
    let is_shown = (0..10).any(|number| is_shown(volume, &volume.join(format!("agent{number}"))));
    assert!(is_shown, "the disk was never full");
    println!("\nall was as it should");
}

#[test]
fn child_whose_owner_thinks_better_of_it() {
    try_on_the_volume(is_lifted_for_good);
}

/// Has computing suspended and goes back on it, on a full disk. False if the agent found space.
fn is_lifted_for_good(volume: &Path, dir: &Path) -> bool {
    let signs = tempfile::tempdir().unwrap();
    let ticks = signs.path().join("ticks");
    // Two jobs run and two wait. These are given back when the disk is full, and that has to be stored before
    // the suspension is decided on.
    put(&dir.join("preferences.toml"), b"cpus_max = 1\n");
    let _daemon = Daemon::unconfined(dir);
    let script = format!("while :; do echo >>{}; sleep 0.1; done", ticks.display());
    let projects = ["a", "b"].map(|mark| crate::spinning::project("Ticks", &script, mark));
    projects.iter().for_each(|project| crate::spinning::attach(dir, project));
    wait_for("four jobs", || (outcome(dir, &["status"]).1.matches("spin_").count() == 4).then_some(()));
    let told = || std::fs::metadata(&ticks).map_or(0, |file| file.len());
    let goes_on = |what: &str| {
        let before = told();
        wait_for(what, || (told() > before + 4).then_some(()));
    };
    goes_on("the tasks");
    fill(volume);
    let (suspended, _) = outcome(dir, &["suspend"]);
    let (resumed, answer) = outcome(dir, &["resume"]);
    std::fs::remove_file(volume.join("fill")).unwrap();
    wait_for("space", || (!outcome(dir, &["status"]).1.contains("no space")).then_some(()));
    goes_on("the tasks of an owner who thought better of suspending them");
    suspended == 8 && resumed == 0 && answer.contains("your suspension is lifted; now: ")
}

#[test]
fn child_whose_owner_wants_the_machine() {
    try_on_the_volume(is_stopped_at_once);
}

/// Pauses computing on a full disk. False if the agent found space.
fn is_stopped_at_once(volume: &Path, dir: &Path) -> bool {
    let signs = tempfile::tempdir().unwrap();
    let log = signs.path().join("log");
    let mut runs = command(dir, &["run", "--unconfined"]);
    runs.stdout(Stdio::null()).stderr(std::fs::File::create(&log).unwrap());
    let _daemon = Daemon::of(runs, dir);
    // It reads no messages.
    let project = crate::spinning::project("Deaf", "while :; do :; done", "");
    crate::spinning::attach(dir, &project);
    let tasks = wait_for("both tasks", || {
        let tasks = crate::spinning::running(dir);
        (tasks.len() == 2).then_some(tasks)
    });
    fill(volume);
    // Something else waits to be stored by then.
    let (waits, _) = outcome(dir, &["update", &project.url("")]);
    let (paused, _) = outcome(dir, &["snooze", "1h"]);
    let is_stopped = |pid: &u32| fallow_agent::proc::find(*pid).is_some_and(|task| task.stopped);
    wait_for("all tasks to be stopped", || tasks.iter().all(is_stopped).then_some(()));
    let is_full = (waits, paused) == (8, 8);
    let log = std::fs::read_to_string(log).unwrap();
    // They were not told first, and stopped for not heeding it.
    assert!(!is_full || !log.contains("reads no messages"), "{log}");
    std::fs::remove_file(volume.join("fill")).unwrap();
    // The pause is stored by and by, and then its end as well.
    wait_for("the end of the pause", || (outcome(dir, &["snooze", "off"]).0 == 0).then_some(()));
    wait_for("the tasks", || (!tasks.iter().any(is_stopped)).then_some(()));
    is_full
}

#[test]
fn r6_4_a_pause_stops_tasks_at_once_although_something_else_waits_to_be_stored() {
    passes_on_a_volume_of(1_300, "disk::wishes::child_whose_owner_wants_the_machine");
}

#[test]
fn child_whose_owner_asks_again() {
    try_on_the_volume(is_truthful);
}

/// Has what is stored be taken back, wanted again and taken back, none of which can be stored. False if the
/// agent found space.
fn is_truthful(volume: &Path, dir: &Path) -> bool {
    let mut daemon = Daemon::start(dir);
    for arguments in [&["suspend"][..], &["snooze", "3h"]] {
        let (code, text) = outcome(dir, arguments);
        assert_eq!(code, 0, "{text}");
    }
    fill(volume);
    let asked: [&[&str]; 7] = [
        &["resume"],
        &["suspend"],
        &["resume"],
        &["snooze", "off"],
        &["snooze", "off"],
        &["snooze", "2h"],
        &["snooze", "off"],
    ];
    let is_full = asked.iter().all(|arguments| {
        let (code, text) = outcome(dir, arguments);
        let (_, status) = outcome(dir, &["status"]);
        // What is stored holds over a kill, so nobody may be told that it is over.
        assert!(code == 8 || !status.contains("no space"), "{arguments:?}: {code}: {text}");
        let is_held = code == 8 && status.contains("no space");
        assert!(!is_held || status.starts_with("suspended by the owner"), "{arguments:?}: {status}");
        let ends_with_a_restart = text.contains("it does not hold over a restart");
        assert!(!is_held || !ends_with_a_restart, "{arguments:?}: {text}");
        code == 8
    });
    daemon.kill();
    drop(daemon);
    std::fs::remove_file(volume.join("fill")).unwrap();
    let mut daemon = Daemon::start(dir);
    let (_, status) = outcome(dir, &["status"]);
    assert!(!is_full || status.starts_with("suspended by the owner"), "{status}");
    daemon.kill();
    is_full
}

#[test]
fn r4_12_nobody_is_told_that_what_is_stored_is_over_before_that_is_stored_too() {
    passes_on_a_volume_of(48, "disk::wishes::child_whose_owner_asks_again");
}

#[test]
fn r4_12_what_the_owner_takes_back_before_it_could_be_stored_is_not_done() {
    passes_on_a_volume_of(1_300, "disk::wishes::child_whose_owner_thinks_better_of_it");
}

#[test]
fn child_whose_people_pause_it_for_a_moment() {
    try_on_the_volume(is_over_in_time);
}

/// Asks for the end of a pause that is stored, and then for a pause of a moment, none of which can be stored.
/// False if the agent found space.
fn is_over_in_time(volume: &Path, dir: &Path) -> bool {
    let daemon = Daemon::start(dir);
    let status = || -> (f64, serde_json::Value) {
        let asked = fallow_daemon::clock::now().as_secs_f64();
        (asked, serde_json::from_str(&outcome(dir, &["status", "--json"]).1).unwrap())
    };
    assert_eq!(outcome(dir, &["snooze", "3h"]).0, 0);
    let stored = status().1["host"]["snoozed_until"].clone();
    fill(volume);
    let (ends, _) = outcome(dir, &["snooze", "off"]);
    let after = status().1["host"]["snoozed_until"].clone();
    let (paused, told) = outcome(dir, &["snooze", "2s"]);
    let is_full = (ends, paused) == (8, 8);
    assert!(!is_full || after == stored, "{after} {stored}");
    assert!(!is_full || told.contains("what was stored before holds again after a restart"), "{told}");
    // That of a moment is over when it is over, and the stored one goes on.
    let goes_on = |until: &serde_json::Value| !is_full || *until == stored;
    wait_for("the end of the pause", || {
        let (asked, status) = status();
        let until = &status["host"]["snoozed_until"];
        assert!(!is_full || until.as_f64().is_some_and(|until| until > asked), "{asked}: {until}");
        goes_on(until).then_some(())
    });
    drop(daemon);
    std::fs::remove_file(volume.join("fill")).unwrap();
    is_full
}

#[test]
fn r6_4_a_pause_that_cannot_be_stored_is_over_in_time_and_one_that_is_stored_is_shown_until_its_end_is() {
    passes_on_a_volume_of(48, "disk::wishes::child_whose_people_pause_it_for_a_moment");
}
