//! What jobs do to the control groups of tasks where nothing keeps them from it (R6.10), in real groups.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use fallow_agent::cgroup::Group;

use crate::groups::{Place, as_nobody};
use crate::hostile_jobs::NOBODY;
use crate::support::{agent, wait_for};

#[test]
fn r6_10_however_many_groups_a_job_makes_whoever_removes_them_is_back_in_time() {
    let Some(place) = Place::new() else { return };
    let group = place.group();
    let slot = group.make("jobs").unwrap().make("slot-0-0").unwrap();
    for name in 0..20_000 {
        std::fs::create_dir(slot.path().join(name.to_string())).unwrap();
    }
    let patience = Duration::from_secs(2);
    let begun = Instant::now();
    let first = group.remove_within("jobs", patience);
    let took = begun.elapsed();
    assert!(took < patience * 2, "{took:?}: {first:?}");
    wait_for("the end of them all", || group.remove_within("jobs", Duration::from_secs(10)).ok());
}

#[test]
fn r6_10_a_group_is_removed_whatever_its_name() {
    let Some(place) = Place::new() else { return };
    let group = place.group();
    let jobs = group.make("jobs").unwrap();
    for name in [&b"\xff"[..], b" ", b"..."] {
        std::fs::create_dir_all(jobs.path().join(OsStr::from_bytes(name)).join("inner")).unwrap();
    }
    group.remove_within("jobs", Duration::from_secs(1)).unwrap();
}

#[test]
fn r6_10_what_is_deep_in_groups_is_killed_with_few_descriptors_also_where_the_kernel_kills_no_groups() {
    let Some(place) = Place::new().filter(|_| rustix::process::geteuid().is_root()) else { return };
    let group = place.group();
    let jobs = group.make("fallow-jobs-1-deep").unwrap();
    let slot = jobs.make("slot-0-0").unwrap();
    let mut tree = vec![group.path().to_path_buf(), jobs.path().to_path_buf(), slot.path().to_path_buf()];
    for _ in 0..100 {
        tree.push(tree.last().unwrap().join("inner"));
        std::fs::create_dir(tree.last().unwrap()).unwrap();
    }
    // The guard's user may write all but `cgroup.kill`, as if there were none.
    for dir in &tree {
        for path in [dir.clone(), dir.join("cgroup.procs")] {
            chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
        }
    }
    let innermost = Group::open(tree.last().unwrap()).unwrap();
    let mut sleepers = [&slot, &innermost].map(|group| {
        let door = group.file("cgroup.procs", true).unwrap();
        let mut command = Command::new("sleep");
        command.arg("1000").uid(NOBODY).gid(NOBODY);
        fallow_agent::sys::enter(&mut command, std::os::fd::AsFd::as_fd(&door));
        command.spawn().unwrap()
    });
    let guard = Command::new("sh")
        .args(["-c", "ulimit -n 40; exec \"$0\" \"$@\""])
        .arg(agent())
        .args(["guard", "--mark", "no such mark", "--grace-ms", "300", "--groups"])
        .arg(jobs.path())
        .stdin(Stdio::null())
        .uid(NOBODY)
        .gid(NOBODY)
        .status()
        .unwrap();
    assert!(guard.success());
    let ended = sleepers.each_mut().map(|sleeper| sleeper.try_wait().unwrap().is_some());
    for sleeper in &mut sleepers {
        let _ = sleeper.kill();
        sleeper.wait().unwrap();
    }
    assert_eq!((ended, group.children()), ([true; 2], Vec::new()));
}

#[test]
fn r6_10_a_job_that_closes_the_groups_without_a_pause_keeps_nobody_from_a_group() {
    let name = "hostile_groups::r6_10_a_job_that_closes_the_groups_without_a_pause_keeps_nobody_from_a_group";
    let Some(place) = as_nobody(name) else { return };
    let above = Group::open(&place).unwrap();
    let jobs = above.make("jobs").unwrap();
    let (is_over, closed) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    std::fs::set_permissions(jobs.path(), std::fs::Permissions::from_mode(0o000)).unwrap();
                    closed.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let done = std::panic::catch_unwind(|| {
            for name in 0..200 {
                let (name, before) = (format!("slot-0-{name}"), closed.load(Ordering::Relaxed));
                while closed.load(Ordering::Relaxed) < before + 2 {
                    std::thread::yield_now();
                }
                let group = jobs.make(&name).unwrap();
                group.file("cgroup.procs", true).unwrap();
                jobs.child(&name).unwrap();
                jobs.remove_within(&name, Duration::from_secs(10)).unwrap();
            }
        });
        is_over.store(true, Ordering::Relaxed);
        done.unwrap();
    });
    assert_eq!(jobs.children(), Vec::<String>::new());
    above.remove_within("jobs", Duration::from_secs(10)).unwrap();
}
