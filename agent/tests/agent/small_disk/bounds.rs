//! Each of the owner's three bounds on a small real volume: the smallest holds to the byte, is named, and
//! what was used least recently goes for it; and files whose deletion a server asks for (R4.11).

use std::path::Path;

use fallow_policy::disk::DeletionChoice;
use serde_json::Value;

use super::lab::{Input, Job, Lab, MIB, Order};
use super::plan::{
    FREE_MIN, Known, Part, agent, done, done_in_all, files_here, measured_anew, model_of, names, of_project,
    planned,
};
use super::{Kind, as_child, disk, passes_on, suspended_by};
use crate::daemon::outcome;
use crate::spinning::running;
use crate::support::{put, wait_for};

const KEPT: [&str; 7] = ["k0", "k1", "k2", "k3", "k4", "k5", "k6"];

fn kept(number: usize) -> Input {
    Input::kept(KEPT[number], 19 * MIB)
}

fn of(found: &Value, amount: &str) -> u64 {
    found[amount].as_u64().unwrap()
}

/// The owner's file says this from now on. Gives the disk as it was found before.
fn owner(dir: &Path, text: &str) -> Value {
    let found = disk(dir);
    std::fs::write(dir.join("preferences.toml"), text).unwrap();
    let (code, said) = outcome(dir, &["preferences", "reload"]);
    assert_eq!(code, 0, "{said}");
    found
}

fn holds(dir: &Path, limit: u64, preference: &str) {
    let found = wait_for("the limit", || {
        let found = disk(dir);
        found["limit_why"].as_str().unwrap().contains(preference).then_some(found)
    });
    assert_eq!(found["limit"].as_u64(), Some(limit), "{found}");
    assert!(found["used"].as_u64() <= Some(limit), "{found}");
}

fn child_bounds(volume: &Path) {
    let dir = &volume.join("agent");
    let elsewhere = tempfile::tempdir().unwrap();
    let [log, go] = ["log", "go"].map(|name| elsewhere.path().join(name));
    std::fs::create_dir(dir).unwrap();
    std::fs::write(dir.join("preferences.toml"), "disk_max = \"100 MB\"\n").unwrap();
    let _daemon = agent(dir, &log);
    holds(dir, 100_000_000, "disk_max = 100 MB");
    let lab = Lab::new(100.0, DeletionChoice::default(), &go);
    lab.attach(dir);
    lab.sends(dir, [Job::waiting("run", Input::passing("in", 5 * MIB))]);
    wait_for("the task", || (running(dir).len() == 1).then_some(()));
    // Four of 19 mebibytes fit beside it, and five do not: the first ones go for the last.
    let jobs = ["j0", "j1", "j2", "j3", "j4", "j5", "j6"];
    for (number, name) in jobs.into_iter().enumerate() {
        lab.has_done(dir, Job::short(name, kept(number)));
        assert!(disk(dir)["used"].as_u64() <= Some(100_000_000));
    }
    assert_eq!(names(&done(dir)), ["k0", "k1", "k2"]);
    let here = |lab: &Lab| {
        let list = lab.hears(dir).sticky_files;
        list.into_iter().filter(|file| file.status == 1).map(|file| file.name).collect::<Vec<_>>()
    };
    assert_eq!(files_here(dir), ["in", "k3", "k4", "k5", "k6"]);
    assert_eq!(here(&lab), ["k3", "k4", "k5", "k6"]);

    // Each time a smaller bound: what it costs is what the policy plans.
    let smaller = |text: &str, preference: &str, limit: u64| {
        let before = done(dir);
        let found = owner(dir, text);
        let gone = names(&before);
        let left = KEPT.iter().enumerate().filter(|(_, name)| !gone.contains(name));
        let files = left.map(|(number, _)| Known {
            input: kept(number),
            came: i64::try_from(number).unwrap(),
            used: i64::try_from(number).unwrap(),
        });
        let parts = [Part { lab: &lab, files: files.collect(), queued: Vec::new() }];
        let plan = model_of(&parts, &found, limit).shrink().unwrap();
        let planned = planned(&parts, &plan);
        let done = done_in_all(dir, before.len() + planned.len());
        assert_eq!(done[before.len()..], planned);
        holds(dir, limit, preference);
        names(&planned).into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    let found = disk(dir);
    // Which is about 73 MB.
    let part = (of(&found, "size") as f64 * 0.05) as u64;
    let gone = smaller("disk_max = \"100 MB\"\ndisk_fraction = \"5%\"\n", "disk_fraction = 5%", part);
    assert_eq!(gone, ["k3"]);
    let found = disk(dir);
    let leaves = of(&found, "volume_free") + of(&found, "used") - 55_000_000;
    let text = format!("disk_max = \"100 MB\"\ndisk_fraction = \"5%\"\ndisk_free_min = \"{leaves} B\"\n");
    let before = done(dir).len();
    owner(dir, &text);
    assert_eq!(names(&done_in_all(dir, before + 1)[before..]), ["k4"]);
    let found = disk(dir);
    assert!(found["limit_why"].as_str().unwrap().contains("disk_free_min"), "{found}");
    assert!(of(&found, "limit").abs_diff(55_000_000) < MIB, "{found}");
    let free = rustix::fs::statvfs(volume).map(|of| of.f_bavail * of.f_frsize).unwrap();
    assert!(free >= leaves, "{free} {leaves}");

    // None of it: what is free counts, and nothing else goes.
    owner(dir, "");
    let found = wait_for("more", || {
        let found = disk(dir);
        (found["limit"].as_u64() > Some(200 * MIB)).then_some(found)
    });
    let why = found["limit_why"].as_str().unwrap();
    assert!(why.contains("disk_free_min = 1 GiB, default"), "{why}");
    // What takes no blocks on a tmpfs and is counted, such as directories, is used and allowed alike.
    let (limit, used, free) = (of(&found, "limit"), of(&found, "used"), of(&found, "volume_free"));
    assert!((limit - used).abs_diff(free - FREE_MIN) < 200_000, "{found}");
    assert_eq!((done(dir).len(), suspended_by(dir)), (5, Value::Null));
    is_asked_for(dir, &lab, &go);
}

/// A server asks for the deletion of one file that is kept and of one that a task reads.
fn is_asked_for(dir: &Path, lab: &Lab, go: &Path) {
    lab.has_done(dir, Job::short("j7", Input::kept("k7", 20 * MIB)));
    lab.sends(dir, [Job::waiting("run_2", Input::kept("k8", 5 * MIB))]);
    wait_for("the second task", || (running(dir).len() == 2).then_some(()));
    assert_eq!(files_here(dir), ["in", "k5", "k6", "k7", "k8"]);
    let used = || {
        measured_anew(dir);
        of_project(&disk(dir), lab)["used"].as_u64().unwrap()
    };
    let before = used();
    let unwanted = vec!["k7", "k8", "nothing", "in"];
    lab.says(|_| Order { unwanted, ..Order::default() });
    lab.asked_until(dir, "the file's end", || (!files_here(dir).contains(&"k7".to_owned())).then_some(()));
    let list = lab.hears(dir).sticky_files;
    assert!(!list.iter().any(|file| file.name == "k7"), "{list:?}");
    assert!(used().abs_diff(before - 20 * MIB) < MIB, "its space is free");
    // What tasks read is there until they have read it.
    assert_eq!(files_here(dir), ["in", "k5", "k6", "k8"]);
    put(go, b"");
    for name in ["run_0", "run_2_0"] {
        let report = lab.asked_until(dir, "the reports", || lab.report(name));
        assert_eq!(report.exit_status, 0, "{report:?}");
    }
    lab.asked_until(dir, "the end of what was not wanted", || {
        (files_here(dir) == ["k5", "k6"]).then_some(())
    });
    let list = lab.hears(dir).sticky_files;
    assert_eq!(list.iter().map(|file| file.name.as_str()).collect::<Vec<_>>(), ["k5", "k6"]);
}

#[test]
fn child_bounded() {
    as_child(child_bounds);
}

/// Shows R4.4, R4.8, R4.11.
#[test]
fn r4_1_on_a_tmpfs_the_smallest_of_the_owners_bounds_holds_and_files_go_when_their_server_asks_for_it() {
    passes_on(Kind::Tmpfs, 1_400, "small_disk::bounds::child_bounded");
}

/// Shows R4.4, R4.8, R4.11.
#[test]
fn r4_1_on_an_ext4_the_smallest_of_the_owners_bounds_holds_and_files_go_when_their_server_asks_for_it() {
    passes_on(Kind::Ext4, 1_400, "small_disk::bounds::child_bounded");
}
