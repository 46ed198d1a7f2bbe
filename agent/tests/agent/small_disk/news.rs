//! Others fill a small real volume while an agent has no tasks, so that it is mostly a measurement by which
//! it hears of that: what is deleted then is missing neither from what is free nor from what may be used.

use std::path::Path;

use fallow_policy::disk::DeletionChoice;

use super::lab::{Input, Job, Lab, MIB};
use super::plan::{agent, at_rest, done_in_all, names, others_leave};
use super::{Kind, as_child, disk, passes_on};
use crate::daemon::outcome;

const FILES: [&str; 8] = ["file_0", "file_1", "file_2", "file_3", "file_4", "file_5", "file_6", "file_7"];

fn child_without_tasks(volume: &Path) {
    let dir = &volume.join("agent");
    let elsewhere = tempfile::tempdir().unwrap();
    let [log, go] = ["log", "go"].map(|name| elsewhere.path().join(name));
    let _daemon = agent(dir, &log);
    disk(dir);
    let lab = Lab::new(100.0, DeletionChoice::default(), &go);
    lab.attach(dir);
    for name in FILES {
        lab.has_done(dir, Job::short(name, Input::kept(name, 10 * MIB)));
    }
    for gone in 1..=6 {
        let used = at_rest(dir)["used"].as_u64().unwrap();
        others_leave(dir, volume, used - 3 * MIB);
        // No job needs the program either, which was not used for longest.
        let done = done_in_all(dir, 1 + gone);
        let done = names(&done);
        assert_eq!((done[0], &done[1..]), ("spin", &FILES[..gone]), "{}", outcome(dir, &["disk", "--why"]).1);
    }
}

#[test]
fn child_hearing_by_measurements() {
    as_child(child_without_tasks);
}

#[test]
fn r4_8_on_a_tmpfs_that_others_fill_no_more_goes_than_has_to_although_it_goes_during_a_measurement() {
    passes_on(Kind::Tmpfs, 1_400, "small_disk::news::child_hearing_by_measurements");
}
