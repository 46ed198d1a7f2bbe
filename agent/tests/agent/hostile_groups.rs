//! What jobs do to the control groups of tasks where nothing keeps them from it (R6.10), in real groups.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use fallow_agent::cgroup::Group;
use fallow_agent::confine::Confinement;

use crate::groups::{Place, as_nobody};
use crate::hostile_jobs::NOBODY;
use crate::supervision::{Bench, SLOT};
use crate::support::{agent, wait_for};

#[test]
fn r6_10_however_many_groups_a_job_makes_whoever_removes_them_is_back_in_time() {
    let Some(place) = Place::new() else { return };
    let group = place.group();
    let patience = Duration::from_secs(2);
    // The machine may stand still meanwhile, but not each time.
    let is_in_time = (0..5).any(|_| {
        let slot = group.make("jobs").unwrap().make("slot-0-0").unwrap();
        for name in 0..20_000 {
            std::fs::create_dir_all(slot.path().join(name.to_string())).unwrap();
        }
        let begun = Instant::now();
        let first = group.remove_within("jobs", patience);
        let took = begun.elapsed();
        println!("{took:?}: {first:?}");
        took < patience * 2
    });
    assert!(is_in_time, "it takes too long each time");
    // It may have gone already.
    let is_gone = || !place.path.join("jobs").exists();
    wait_for("the end of them all", || {
        (is_gone() || group.remove_within("jobs", Duration::from_secs(10)).is_ok()).then_some(())
    });
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

#[test]
fn r6_10_what_a_job_opens_of_the_groups_to_other_users_is_closed_again() {
    let name = "hostile_groups::r6_10_what_a_job_opens_of_the_groups_to_other_users_is_closed_again";
    let Some(place) = as_nobody(name) else { return };
    let bench = Bench::in_groups(tempfile::tempdir().unwrap(), Confinement::none(), &place);
    let opens = "jobs=$(echo GROUP/fallow-jobs-*)\n\
                 chmod 0777 GROUP $jobs $jobs/slot-*\n\
                 chmod 0666 GROUP/cgroup.procs $jobs/cgroup.kill $jobs/slot-*/cgroup.kill\n";
    let opens = opens.replace("GROUP", &place.display().to_string());
    let waits = "touch opened; until [ -e go ]; do sleep 0.05; done; exit 3";
    bench.supervisor.start_task(bench.script(&format!("{opens}{waits}")));
    bench.started();
    let slot = bench.data.slot(SLOT);
    wait_for("what it opens", || slot.join("opened").exists().then_some(()));
    let mode = |path: &Path| std::fs::metadata(path).unwrap().mode() & 0o777;
    let above = Group::open(&place).unwrap();
    let jobs = above.children().into_iter().find(|name| name.starts_with("fallow-jobs-")).unwrap();
    // Nobody else comes to what lies below that of all jobs.
    let are_as_before = || {
        let modes = [place.clone(), place.join("cgroup.procs"), place.join(&jobs)].map(|path| mode(&path));
        (modes == [0o755, 0o644, 0o700]).then_some(())
    };
    wait_for("the modes of before", are_as_before);
    std::fs::write(slot.join("go"), "").unwrap();
    bench.ended();
    // Also by one that has ended before it is looked at.
    bench.supervisor.start_task(bench.script(&format!("{opens}exit 4")));
    bench.started();
    bench.ended();
    wait_for("the modes of before, again", are_as_before);
    bench.supervisor.stop(Duration::ZERO);
    wait_for("the end of the bench's groups", || (above.children() == ["leaf"]).then_some(()));
}

#[test]
fn r6_10_a_task_that_runs_takes_few_descriptors_for_its_group() {
    let Some(place) = Place::new() else { return };
    let bench = Bench::in_groups(tempfile::tempdir().unwrap(), Confinement::none(), &place.path);
    bench.supervisor.start_task(bench.script("until [ -e go ]; do sleep 0.05; done; exit 3"));
    bench.started();
    let is_of_a_slot = |link: &Path| {
        let at = std::fs::read_link(link).unwrap_or_default();
        at.starts_with(&place.path) && at.to_string_lossy().contains("/slot-")
    };
    let open = || {
        let all = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
        all.filter(|fd| is_of_a_slot(&fd.path())).count()
    };
    let while_it_runs = open();
    std::fs::write(bench.data.slot(SLOT).join("go"), "").unwrap();
    bench.ended();
    assert!((1..=3).contains(&while_it_runs), "{while_it_runs}");
    assert_eq!(open(), 0, "once it has ended");
}
