//! What the owner wants while nothing can be stored, and wants no more when it can be.

use std::path::Path;

use super::{VOLUME, fill, passes_on_a_volume_of};
use crate::daemon::{Daemon, outcome};
use crate::support::{put, wait_for};

#[test]
fn child_whose_owner_thinks_better_of_it() {
    let Some(volume) = std::env::var_os(VOLUME) else { return };
    let volume = Path::new(&volume);
    // An agent may find space for what is said first. Then it is tried with another one.
    let is_shown = (0..4).any(|number| is_lifted_for_good(volume, &volume.join(format!("agent{number}"))));
    assert!(is_shown, "the disk was never full");
    println!("\nall was as it should");
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
    let (_, answer) = outcome(dir, &["resume"]);
    std::fs::remove_file(volume.join("fill")).unwrap();
    wait_for("space", || (!outcome(dir, &["status"]).1.contains("no space")).then_some(()));
    goes_on("the tasks of an owner who thought better of suspending them");
    suspended == 8 && answer.contains("lifted")
}

#[test]
fn r4_12_what_the_owner_takes_back_before_it_could_be_stored_is_not_done() {
    passes_on_a_volume_of(1_300, "disk::wishes::child_whose_owner_thinks_better_of_it");
}
