//! The real agent on a small real volume, a tmpfs and an ext4 of a file, filled from inside and outside: what
//! goes for what, what never goes, and who rests until there is space again.
//!
//! By its preferences an agent leaves 1 GiB free, so the volumes are a little larger than that, and next to
//! nothing of them is ever written.

mod amounts;
mod bounds;
mod given_back;
mod histories;
mod keeper;
mod lab;
mod news;
mod plan;
mod preferences;
mod shares;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering;

use keeper::{INPUT, Keeper};

use crate::daemon::{Daemon, command, outcome};
use crate::spinning::{attach, running};
use crate::support::{is_alive, put, wait_for};

/// Names the small volume to the child.
const VOLUME: &str = "FALLOW_TEST_SMALL_DISK";
/// BOINC's number for what the client itself has given back.
const GIVEN_BACK: i32 = 194;

/// The kinds of volume.
#[derive(Clone, Copy, Debug)]
enum Kind {
    /// For which a user namespace is enough.
    Tmpfs,
    /// For which root and a loop device are needed.
    Ext4,
}

/// Runs one of the tests below as a process of its own, which has a volume of so many megabytes.
fn passes_on(kind: Kind, megabytes: u32, child: &str) {
    let dir = tempfile::tempdir().unwrap();
    let (image, mount) = (dir.path().join("image"), dir.path().join("mount"));
    std::fs::create_dir(&mount).unwrap();
    let script = match kind {
        Kind::Tmpfs => format!(r#"mount -t tmpfs -o size={megabytes}m none "$2""#),
        Kind::Ext4 => format!(
            r#"truncate -s {megabytes}M "$1" && mkfs.ext4 -q -F -m 0 -O ^has_journal "$1" && mount -o loop "$1" "$2""#
        ),
    };
    let map: &[&str] = if matches!(kind, Kind::Tmpfs) { &["--map-root-user"] } else { &[] };
    let output = Command::new("unshare")
        .args(map)
        .args(["--mount", "sh", "-c", &format!(r#"{script} && shift 2 && exec "$@""#), "sh"])
        .args([&image, &mount])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", child, "--nocapture", "--test-threads=1"])
        .env(VOLUME, &mount)
        .output();
    let said = output.as_ref().map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    let log = output.as_ref().map(|output| String::from_utf8_lossy(&output.stderr).into_owned());
    if !said.as_ref().is_ok_and(|said| said.contains("running 1 test")) {
        let why =
            format!("no {kind:?} of {megabytes} MB can be mounted here, for which root is needed: {log:?}");
        assert!(std::env::var_os("FALLOW_REQUIRE_PEERS").is_none_or(|value| value != "1"), "{why}");
        println!("skipped: {why}");
        return;
    }
    let said = said.unwrap_or_default();
    assert!(said.contains("all was as it should"), "{said}{}", log.unwrap_or_default());
}

fn volume() -> Option<PathBuf> {
    std::env::var_os(VOLUME).map(PathBuf::from)
}

/// An agent that looks at the disk twice a second, and its log.
fn agent(dir: &Path, log: &Path) -> Daemon {
    let mut run = command(dir, &["run", "--measure-disk-ms", "500"]);
    let log = std::fs::OpenOptions::new().create(true).append(true).open(log).unwrap();
    run.stdout(Stdio::null()).stderr(log);
    Daemon::of(run, dir)
}

/// What `fallow-agent disk --json` says, once the disk was measured.
fn disk(dir: &Path) -> serde_json::Value {
    wait_for("a measurement", || {
        let (code, text) = outcome(dir, &["disk", "--json"]);
        assert_eq!(code, 0, "{text}");
        let disk: serde_json::Value = serde_json::from_str(&text).unwrap();
        (!disk["measured_at"].is_null()).then_some(disk)
    })
}

fn suspended_by(dir: &Path) -> serde_json::Value {
    let (_, text) = outcome(dir, &["status", "--json"]);
    serde_json::from_str::<serde_json::Value>(&text).unwrap_or_default()["host"]["suspended_by"].clone()
}

/// The names of the inputs that are here.
fn inputs(dir: &Path) -> Vec<String> {
    let projects = std::fs::read_dir(dir.join("projects")).into_iter().flatten().flatten();
    let files =
        projects.flat_map(|project| std::fs::read_dir(project.path()).into_iter().flatten().flatten());
    let names = files.map(|file| file.file_name().to_string_lossy().into_owned());
    names.filter(|name| name.starts_with("keep_")).collect()
}

/// Writes to a volume so that it leaves so many bytes. On ext4 nothing is written for it.
fn leave(volume: &Path, bytes: u64) {
    let file = std::fs::OpenOptions::new().create(true).append(true).open(volume.join("fill")).unwrap();
    // A signal may interrupt it, and others may have taken some of it meanwhile.
    for _ in 0..10 {
        let free = rustix::fs::statvfs(volume).map(|of| of.f_bavail * of.f_frsize).unwrap();
        let Some(more) = free.checked_sub(bytes).filter(|more| *more > 0) else { return };
        let at = file.metadata().unwrap().len();
        let _ = rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), at, more);
    }
}

/// The limit is kept although more is to be kept than fits: what was used least recently goes, running jobs
/// lose nothing, and the server hears what is here.
fn child_keeps_its_limit(volume: &Path) {
    let dir = &volume.join("agent");
    let elsewhere = tempfile::tempdir().unwrap();
    let log = elsewhere.path().join("log");
    let _daemon = agent(dir, &log);
    let limit = disk(dir)["limit"].as_u64().unwrap();
    let fits = usize::try_from(limit).unwrap() / INPUT;
    assert!((4..13).contains(&fits), "{limit}");
    let supply = fits + 4;
    let keeper = Keeper::new("cat in >/dev/null || exit 9; echo 0 > boinc_finish_called", supply);
    attach(dir, &keeper.server);
    wait_for("all jobs", || {
        let held = inputs(dir).len();
        assert!(held <= fits, "{held} inputs are here, and {fits} fit");
        (keeper.reported() == supply).then_some(())
    });
    let text = std::fs::read_to_string(&log).unwrap();
    assert!(!text.contains("failed with"), "{text}");
    let found = disk(dir);
    assert!(found["used"].as_u64() <= found["limit"].as_u64(), "{found}");
    let here = inputs(dir);
    assert!(!here.contains(&"keep_0_in".to_owned()), "{here:?}");
    assert!(here.contains(&format!("keep_{}_in", supply - 1)), "{here:?}");
    let (code, why) = outcome(dir, &["disk", "--why"]);
    assert!(code == 0 && why.contains("deleted keep_0_in (21 MB): its project needs room"), "{why}");
    assert!(why.contains("Would go next") && why.contains("what leaves 1 GiB of the disk free"), "{why}");
    println!("{why}");
    let told = wait_for("a list of what is here", || {
        let told = keeper.last_request();
        told.contains(&format!("<name>keep_{}_in</name>", supply - 1)).then_some(told)
    });
    assert!(!told.contains("<name>keep_0_in</name>"), "{told}");
    for amount in ["<project_disk_free>", "<potentially_free_offender>", "<potentially_free_self>"] {
        assert!(told.contains(amount), "{told}");
    }
}

/// Others fill the volume: tasks rest, keep all that is theirs, and go on by themselves. Then a kept file
/// vanishes, and nobody minds.
fn child_rests_until_there_is_space(volume: &Path) {
    let dir = &volume.join("agent");
    let elsewhere = tempfile::tempdir().unwrap();
    let [log, go] = ["log", "go"].map(|name| elsewhere.path().join(name));
    let mut run = command(dir, &["run", "--measure-disk-ms", "500", "--unconfined"]);
    run.stdout(Stdio::null()).stderr(std::fs::File::create(&log).unwrap());
    let _daemon = Daemon::of(run, dir);
    disk(dir);
    let script = format!(
        "while [ ! -e {} ]; do sleep 0.1; done; cat in >/dev/null || exit 9; echo 0 > boinc_finish_called",
        go.display()
    );
    let keeper = Keeper::new(&script, 1);
    attach(dir, &keeper.server);
    let pid = wait_for("a task", || running(dir).first().copied());
    leave(volume, 500 << 20);
    wait_for("rest", || (suspended_by(dir) == "disk").then_some(()));
    let (_, status) = outcome(dir, &["status"]);
    assert!(status.contains("too little space on the disk"), "{status}");
    let (_, why) = outcome(dir, &["disk", "--why"]);
    assert!(
        why.contains("computing is suspended: usage exceeds the disk limit") && why.contains("Free "),
        "{why}"
    );
    println!("{why}");
    assert!(is_alive(pid) && running(dir).is_empty(), "{status}");
    assert_eq!(inputs(dir), ["keep_0_in"], "what runs needs it");
    std::fs::remove_file(volume.join("fill")).unwrap();
    wait_for("work again", || (suspended_by(dir).is_null() && running(dir) == [pid]).then_some(()));
    put(&go, b"");
    wait_for("the report", || (keeper.reported() == 1).then_some(()));
    // Nobody needs it any more: somebody deletes it, and it is not told of.
    assert_eq!(inputs(dir), ["keep_0_in"]);
    let kept = std::fs::read_dir(dir.join("projects")).unwrap().flatten().next().unwrap().path();
    std::fs::remove_file(kept.join("keep_0_in")).unwrap();
    wait_for("that it is seen", || {
        outcome(dir, &["disk", "--why"]).1.contains("gone from the disk").then_some(())
    });
    let text = std::fs::read_to_string(&log).unwrap();
    assert!(!text.contains("failed with"), "{text}");
}

/// The volume is filled to the last block again and again, and the agent killed in between: no job is lost
/// or done twice, and what no job needs makes room for the store.
fn child_loses_nothing_at_the_last_block(volume: &Path) {
    let dir = &volume.join("agent");
    let elsewhere = tempfile::tempdir().unwrap();
    let log = elsewhere.path().join("log");
    // A job that ends at a time when nothing can be written waits until something can be.
    let script = "sleep 1; cat in >/dev/null || exit 9; \
                  until echo 0 2>/dev/null > boinc_finish_called; do sleep 0.1; done 2>/dev/null";
    let keeper = Keeper::new(script, 8);
    let mut daemon = agent(dir, &log);
    disk(dir);
    attach(dir, &keeper.server);
    for round in 1..=4 {
        wait_for("some jobs", || (keeper.reported() >= round).then_some(()));
        leave(volume, 0);
        // Whatever it is at, it answers, and says what keeps it.
        wait_for("rest", || {
            let (code, text) = outcome(dir, &["status"]);
            assert_eq!(code, 0, "{text}");
            (text.contains("no space") || text.contains("too little space")).then_some(())
        });
        daemon.kill();
        drop(daemon);
        std::fs::remove_file(volume.join("fill")).unwrap();
        daemon = agent(dir, &log);
    }
    // An answer that an agent did not live to store has the report sent again, as BOINC's client does. That
    // it says the same is looked at, for each job has one outcome.
    let reports = || {
        let said = keeper.reports().into_iter().map(|report| (report.name, report.exit_status));
        said.collect::<BTreeSet<_>>()
    };
    wait_for("all jobs", || (reports().len() >= 8).then_some(()));
    let reports = reports();
    let names: Vec<&str> = reports.iter().map(|(name, _)| name.as_str()).collect();
    let expected: Vec<String> = (0..8).map(|number| format!("keep_{number}_0")).collect();
    assert_eq!(names, expected);
    // What had not begun may be given back: by that its server loses nothing.
    assert!(reports.iter().all(|(_, status)| [0, GIVEN_BACK].contains(status)), "{reports:?}");
    drop(daemon);
}

/// A job fills the volume with what no directory shows: a file that it has open and has deleted. It is ended
/// for that, and the host goes on by itself.
fn child_ends_who_hides(volume: &Path) {
    let dir = &volume.join("agent");
    let elsewhere = tempfile::tempdir().unwrap();
    let log = elsewhere.path().join("log");
    let script = "grep -q '<result_name>keep_0_0<' init_data.xml || { echo 0 > boinc_finish_called; exit 0; }
        exec 3> hidden; rm hidden; dd if=/dev/zero bs=1048576 count=400 >&3 2>/dev/null; sleep 1000";
    let keeper = Keeper::new(script, 1);
    let _daemon = agent(dir, &log);
    disk(dir);
    attach(dir, &keeper.server);
    wait_for("the end of who hides", || (keeper.reported() == 1).then_some(()));
    wait_for("work again", || suspended_by(dir).is_null().then_some(()));
    keeper.supply.store(2, Ordering::Relaxed);
    // It would ask by itself, but later each time that there was nothing.
    assert_eq!(outcome(dir, &["update", &keeper.server.url("")]).0, 0);
    wait_for("another job", || (keeper.reported() == 2).then_some(()));
    let reports = keeper.reports();
    let of = |name: &str| reports.iter().find(|report| report.name == name).unwrap();
    assert_eq!(
        (of("keep_0_0").exit_status, of("keep_1_0").exit_status),
        (196, 0),
        "{reports:?}\n{}",
        std::fs::read_to_string(&log).unwrap()
    );
    let message = of("keep_0_0").stderr_out.message.clone().unwrap_or_default();
    assert!(message.contains("without a name"), "{message}");
    let found = disk(dir);
    assert!(found["used"].as_u64() <= found["limit"].as_u64(), "{found}");
}

/// Passes as a test where there is no volume for it: then it is no child.
fn as_child(child: impl FnOnce(&Path)) {
    let Some(volume) = volume() else { return };
    child(&volume);
    println!("\nall was as it should");
}

#[test]
fn child_keeping_its_limit() {
    as_child(child_keeps_its_limit);
}

#[test]
fn child_resting() {
    as_child(child_rests_until_there_is_space);
}

#[test]
fn child_losing_nothing() {
    as_child(child_loses_nothing_at_the_last_block);
}

#[test]
fn child_ending_who_hides() {
    as_child(child_ends_who_hides);
}

#[test]
fn r4_8_on_a_tmpfs_a_job_that_fills_it_with_what_has_no_name_is_ended_and_the_host_goes_on() {
    passes_on(Kind::Tmpfs, 1_250, "small_disk::child_ending_who_hides");
}

#[test]
fn r4_8_on_an_ext4_a_job_that_fills_it_with_what_has_no_name_is_ended_and_the_host_goes_on() {
    passes_on(Kind::Ext4, 1_250, "small_disk::child_ending_who_hides");
}

#[test]
fn r4_4_on_a_tmpfs_the_limit_is_kept_and_kept_files_give_way_the_least_recently_used_first() {
    passes_on(Kind::Tmpfs, 1_174, "small_disk::child_keeping_its_limit");
}

#[test]
fn r4_4_on_an_ext4_the_limit_is_kept_and_kept_files_give_way_the_least_recently_used_first() {
    passes_on(Kind::Ext4, 1_250, "small_disk::child_keeping_its_limit");
}

#[test]
fn r4_8_on_a_tmpfs_that_others_fill_tasks_rest_and_go_on_by_themselves() {
    passes_on(Kind::Tmpfs, 1_174, "small_disk::child_resting");
}

#[test]
fn r4_8_on_an_ext4_that_others_fill_tasks_rest_and_go_on_by_themselves() {
    passes_on(Kind::Ext4, 1_250, "small_disk::child_resting");
}

#[test]
fn r4_12_on_an_ext4_that_is_full_to_the_last_block_no_job_is_lost_or_done_twice() {
    passes_on(Kind::Ext4, 1_250, "small_disk::child_losing_nothing");
}
