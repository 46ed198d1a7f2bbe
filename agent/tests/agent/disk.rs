//! A disk that fills up under a running agent: the owner is answered and obeyed all the same.

mod wishes;

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use fallow_agent::dir::DataDir;
use fallow_client::{Event, StartFault, TaskSetup};
use fallow_domain::{Bytes, JobId, MasterUrl, SlotId};

use crate::daemon::{Daemon, command, outcome};
use crate::supervision::Bench;
use crate::support::{put, wait_for};

/// Names the small volume to the child.
const VOLUME: &str = "FALLOW_TEST_SMALL_VOLUME";

/// Runs one of the tests below as a process of its own, which has a volume of so many megabytes.
fn passes_on_a_volume_of(megabytes: u32, child: &str) {
    let dir = tempfile::tempdir().unwrap();
    let script = format!(r#"mount -t tmpfs -o size={megabytes}m none "$1" && shift && exec "$@""#);
    let output = Command::new("unshare")
        .args(["--map-root-user", "--mount", "sh", "-c", &script, "sh"])
        .arg(dir.path())
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", child, "--nocapture", "--test-threads=1"])
        .env(VOLUME, dir.path())
        .output();
    let Ok(output) = output else {
        println!("skipped: there is no `unshare` to make a small volume with");
        return;
    };
    let (said, log) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if !said.contains("running 1 test") {
        println!("skipped: no small volume can be mounted here: {log}");
        return;
    }
    assert!(said.contains("all was as it should"), "{said}{log}");
}

#[test]
fn child_on_a_volume_that_fills_up() {
    let Some(volume) = std::env::var_os(VOLUME) else { return };
    let volume = Path::new(&volume);
    let said = tempfile::tempdir().unwrap();
    // The agent frees a little at times, in which what was said finds space: then all begins anew.
    let begun = (0..10).find_map(|number| {
        let dir = volume.join(format!("agent{number}"));
        let daemon = Daemon::start(&dir);
        fill(volume);
        match answers_on_a_full_volume(volume, &dir) {
            Ok(()) => Some((dir, daemon)),
            Err(found_space) => {
                println!("{found_space}");
                drop(daemon);
                std::fs::remove_file(volume.join("fill")).unwrap();
                std::fs::remove_dir_all(&dir).unwrap();
                None
            }
        }
    });
    let (dir, mut daemon) = begun.expect("the answers are those of an agent that finds space, each time");
    let dir = &dir;
    // What the owner wrote is not lost for want of space.
    let editor = said.path().join("editor");
    std::fs::write(&editor, "#!/bin/sh\necho 'suspended = false' >>\"$1\"\n").unwrap();
    std::fs::set_permissions(&editor, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let mut edit = command(dir, &["preferences", "edit"]);
    edit.env_remove("VISUAL").env("EDITOR", &editor).stdin(Stdio::null());
    let output = edit.output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(8), "{text}");
    let kept = text.split("what you wrote is in ").nth(1).unwrap_or_else(|| panic!("{text}")).trim();
    assert!(std::fs::read_to_string(kept).unwrap().ends_with("suspended = false\n"), "{text}");
    std::fs::remove_file(kept).unwrap();

    std::fs::remove_file(volume.join("fill")).unwrap();
    wait_for("space", || (!outcome(dir, &["status"]).1.contains("no space")).then_some(()));
    let (code, text) = outcome(dir, &["suspend"]);
    assert_eq!(code, 0, "{text}");
    let paused = || {
        let (_, text) = outcome(dir, &["status", "--json"]);
        let status: serde_json::Value = serde_json::from_str(&text).ok()?;
        status["host"]["snoozed_until"].as_f64()
    };
    wait_for("the pause to be stored", paused);
    let (code, text) = outcome(dir, &["snooze", "off"]);
    assert!(code == 0 && text.contains("the pause is over; now: suspended by the owner"), "{text}");
    // What was said while nothing could be stored holds over a kill now.
    daemon.kill();
    drop(daemon);
    let daemon = Daemon::start(dir);
    assert!(outcome(dir, &["status"]).1.contains("suspended by the owner"));
    drop(daemon);

    println!("\nall was as it should");
}

/// What the owner says is obeyed at once, though nothing can be stored. An error where something could.
fn answers_on_a_full_volume(volume: &Path, dir: &Path) -> Result<(), String> {
    // Something else on this machine may hold one answer up, but not one after the other. None of the
    // commands changes the next one's answer.
    let prompt = |arguments: &[&str]| {
        let mut answers = (0..30).map(|_| {
            let start = Instant::now();
            (outcome(dir, arguments), start.elapsed())
        });
        let prompt = answers.find(|(_, took)| *took < Duration::from_secs(3));
        prompt.unwrap_or_else(|| panic!("{arguments:?} takes longer than three seconds")).0
    };
    let full = |arguments: &[&str]| match prompt(arguments) {
        (8, text) => Ok(text),
        (code, text) => Err(format!("{arguments:?}: {code}: {text}")),
    };
    for _ in 0..2 {
        let text = full(&["suspend"])?;
        assert!(text.contains("suspended now") && text.contains("no space"), "{text}");
    }
    let (code, text) = prompt(&["status"]);
    if !text.contains("no space") {
        return Err(text);
    }
    assert!(code == 0 && text.contains("suspended by the owner"), "{code}: {text}");
    let text = full(&["detach", "http://127.0.0.1:9/p/"])?;
    assert!(text.contains("nothing was done"), "{text}");
    // A pause holds at once, too, and ends as it was said.
    let text = full(&["snooze", "2h"])?;
    assert!(text.contains("paused now, for 2 h") && text.contains("no space"), "{text}");
    let (_, text) = outcome(dir, &["resume"]);
    if !text.contains("as soon as that can be stored") {
        return Err(text);
    }
    let (_, line) = outcome(dir, &["status", "--line"]);
    assert!(line.starts_with("snoozed until ") || line.starts_with("suspended by the owner"), "{line}");
    full(&["suspend"])?;
    fill(volume);
    let (_, disk) = outcome(dir, &["disk", "--json"]);
    let disk: serde_json::Value = serde_json::from_str(&disk).unwrap();
    assert!(disk["volume_free"].as_u64().unwrap() < 100_000, "what is free now: {disk}");
    Ok(())
}

#[test]
fn child_whose_owner_fills_the_volume() {
    let Some(volume) = std::env::var_os(VOLUME) else { return };
    let volume = Path::new(&volume);
    let dir = &volume.join("agent");
    // Where there is space.
    let said = tempfile::tempdir().unwrap();
    let log = said.path().join("log");
    let mut run = command(dir, &["run"]);
    run.stdout(Stdio::null()).stderr(std::fs::File::create(&log).unwrap());
    let mut daemon = Daemon::of(run, dir);
    let key = volume.join("key");
    std::fs::write(&key, "0123456789abcdef0123456789abcdef").unwrap();
    let url = "http://127.0.0.1:9/p/";
    let (code, text) =
        outcome(dir, &["attach", url, "--account-key-file", key.to_str().unwrap(), "--no-wait"]);
    assert_eq!(code, 0, "{text}");
    let partial = DataDir::at(dir).partial(&MasterUrl::parse(url).unwrap()).join("image");
    put(&partial, &vec![1; 9 << 20]);
    // What a job has put there is not told one by one.
    for number in 0..300 {
        put(&partial.with_file_name(number.to_string()), b"");
    }
    fill(volume);
    let (code, text) = outcome(dir, &["suspend"]);
    assert!(code == 8, "{code}: {text}");
    // The owner's file stays, and nobody does anything.
    wait_for("space", || (!outcome(dir, &["status"]).1.contains("no space")).then_some(()));
    assert!(!partial.exists());
    daemon.kill();
    let log = std::fs::read_to_string(log).unwrap();
    let told = log.lines().filter(|line| line.contains("download") || line.contains("cannot delete"));
    assert!((1..10).contains(&told.count()), "{log}");

    println!("\nall was as it should");
}

/// Writes until a volume is full.
fn fill(volume: &Path) {
    use std::io::Write;
    // Nearly all at once: an agent that sees it fill up says so before it is full.
    if let Ok(file) = std::fs::OpenOptions::new().create(true).append(true).open(volume.join("fill")) {
        let (flags, begin) = (rustix::fs::FallocateFlags::empty(), file.metadata().unwrap().len());
        let _ = rustix::fs::fallocate(&file, flags, begin, free(volume).saturating_sub(1 << 20).max(1));
    }
    let mut chunk = 1 << 20;
    while chunk > 0 {
        let file = std::fs::OpenOptions::new().create(true).append(true).open(volume.join("fill"));
        if file.unwrap().write_all(&vec![1; chunk]).is_err() {
            chunk /= 2;
        }
    }
}

#[test]
fn child_whose_volume_a_project_fills() {
    let Some(volume) = std::env::var_os(VOLUME) else { return };
    let volume = Path::new(&volume);
    let dir = &volume.join("agent");
    let mut daemon = Daemon::start(dir);
    let key = volume.join("key");
    std::fs::write(&key, "0123456789abcdef0123456789abcdef").unwrap();
    let (first, second) = ("http://127.0.0.1:9/first/", "http://127.0.0.1:9/second/");
    // One that answers, so that the agent knows what it is called.
    let named = crate::spinning::project("Prime Number Search", "sleep 1000", "");
    crate::spinning::attach(dir, &named);
    let third = &named.url("");
    for url in [first, second] {
        let key = key.to_str().unwrap();
        let (code, text) = outcome(dir, &["attach", url, "--account-key-file", key, "--no-wait"]);
        assert_eq!(code, 0, "{text}");
    }
    let data = DataDir::at(dir);
    let partial = |url: &str| data.partial(&MasterUrl::parse(url).unwrap()).join("endless");
    for url in [first, second, third] {
        put(&partial(url), &vec![1; 9 << 20]);
    }
    fill(volume);
    // The agent does not know yet that its volume is full.
    let (code, text) = outcome(dir, &["detach", first]);
    assert!(code == 0 && text.contains("detached from"), "{code}: {text}");
    assert!(!data.project(&MasterUrl::parse(first).unwrap()).exists());
    fill(volume);
    // Now it does, and waits.
    let (code, text) = outcome(dir, &["suspend"]);
    assert!(code == 8, "{code}: {text}");
    let (code, text) = outcome(dir, &["detach", second]);
    assert!(code == 0 && text.contains("detached from"), "{code}: {text}");
    fill(volume);
    let (code, text) = outcome(dir, &["resume"]);
    assert!(code == 8, "{code}: {text}");
    // By what it is called, as at any other time.
    let (code, text) = outcome(dir, &["detach", "Prime Number Search"]);
    assert!(code == 0 && text.contains("detached from"), "{code}: {text}");
    daemon.kill();
    drop(daemon);
    let _daemon = Daemon::start(dir);
    let (code, text) = outcome(dir, &["status"]);
    assert!(code == 0 && !text.contains("http://127.0.0.1:"), "{code}: {text}");

    println!("\nall was as it should");
}

#[test]
fn child_whose_volume_a_job_fills() {
    let Some(volume) = std::env::var_os(VOLUME) else { return };
    let volume = Path::new(&volume);
    let dir = &volume.join("agent");
    let _daemon = Daemon::unconfined(dir);
    // Both of its jobs take all there is, in time, and stay.
    let _hog = is_filled_by_jobs(dir, "while :; do sleep 1; done", Bytes(10_000_000));
    // Nobody has to do anything.
    is_freed_and_all_tasks_fail(volume, dir);
    println!("\nall was as it should");
}

/// Waits until there is space on a volume again, and all tasks have failed.
fn is_freed_and_all_tasks_fail(volume: &Path, dir: &Path) {
    wait_for("space", || (free(volume) > 1_000 << 20).then_some(()));
    let failed = || {
        let (_, text) = outcome(dir, &["status", "--json"]);
        let status: serde_json::Value = serde_json::from_str(&text).ok()?;
        let over = |task: &serde_json::Value| task["phase"] == "failed";
        (status["tasks"].as_array()?.iter().all(over) && status["store_trouble"].is_null()).then_some(())
    };
    wait_for("the jobs' end", failed);
}

fn free(volume: &Path) -> u64 {
    rustix::fs::statvfs(volume).map(|volume| volume.f_bavail * volume.f_frsize).unwrap()
}

/// Has both jobs of a project take all the space there is, then do `then`.
fn is_filled_by_jobs(dir: &Path, then: &str, bound: Bytes) -> (crate::transfers::Server, tempfile::TempDir) {
    // Where there is always space.
    let signs = tempfile::tempdir().unwrap();
    let [go, full] = ["go", "full"].map(|name| signs.path().join(name));
    // All at once: whoever takes it bit by bit may be ended for his bound before it is full.
    let script = r#"while [ ! -e "$0.go" ]; do sleep 0.1; done; at=0; for size in 256 64 16 4 1; do
        while fallocate -o "${at}M" -l "${size}M" fill; do at=$((at + size)); done; done
        cat /dev/zero >>fill; : >"$0.full"; "#;
    let script = script.replace("$0.go", go.to_str().unwrap()).replace("$0.full", full.to_str().unwrap());
    let hog = crate::spinning::bounded(&(script + then), bound);
    crate::spinning::attach(dir, &hog);
    wait_for("both jobs", || (crate::spinning::running(dir).len() == 2).then_some(()));
    put(&go, b"");
    wait_for("a full disk", || full.exists().then_some(()));
    (hog, signs)
}

#[test]
fn child_whose_volume_jobs_fill_and_leave() {
    let Some(volume) = std::env::var_os(VOLUME) else { return };
    let volume = Path::new(&volume);
    let dir = &volume.join("agent");
    let _daemon = Daemon::unconfined(dir);
    // What a program does that meets a full disk: one gives up, the other is killed.
    let then = r#"case "$PWD" in */0) exit 1;; *) kill -9 $$;; esac"#;
    let _hog = is_filled_by_jobs(dir, then, Bytes(10_000_000));
    is_freed_and_all_tasks_fail(volume, dir);
    println!("\nall was as it should");
}

#[test]
fn child_whose_volume_jobs_fill_within_their_bounds() {
    let Some(volume) = std::env::var_os(VOLUME) else { return };
    let volume = Path::new(&volume);
    let dir = &volume.join("agent");
    let _daemon = Daemon::unconfined(dir);
    let _hog = is_filled_by_jobs(dir, "while :; do sleep 1; done", Bytes(1_000_000_000_000_000));
    wait_for("space", || (free(volume) > 100 << 20).then_some(()));
    let goes_on = || {
        let (_, text) = outcome(dir, &["status", "--json"]);
        let status: serde_json::Value = serde_json::from_str(&text).ok()?;
        status["store_trouble"].is_null().then_some(status)
    };
    let status = wait_for("a store", goes_on);
    // It is the host that has too little, and not the job that went wrong.
    let phases: Vec<_> = status["tasks"].as_array().unwrap().iter().map(|task| &task["phase"]).collect();
    assert!(phases.len() == 2 && phases.iter().all(|phase| **phase != "failed"), "{status}");
    println!("\nall was as it should");
}

#[test]
fn child_whose_volume_starts_of_tasks_fill() {
    let Some(volume) = std::env::var_os(VOLUME) else { return };
    let volume = Path::new(&volume);
    let bench = Bench::at(tempfile::tempdir_in(volume).unwrap());
    let script = bench.script("sleep 1000");
    put(&bench.data.project(&crate::support::project()).join("input_1"), &vec![1; 12 << 20]);
    let copies = bench.setup(true, true).files.into_iter().filter(|file| !file.output);
    let copies: Vec<_> = copies.collect();
    let started = (1..=4).find_map(|number| {
        let (job, slot) = (JobId(number), SlotId(u32::try_from(number).unwrap()));
        bench.supervisor.start_task(Box::new(TaskSetup {
            job,
            slot,
            files: copies.clone(),
            ..*script.clone()
        }));
        bench.next("start", |event| match event {
            Event::TaskStarted { .. } => Some(None),
            Event::TaskStartFailed { reason, fault, .. } => Some(Some((slot, reason, fault))),
            _ => None,
        })
    });
    let (slot, reason, fault) = started.unwrap();
    assert!(fault == StartFault::Host && reason.contains("space"), "{reason}");
    assert!(slot > SlotId(1), "there is space for one: {reason}");
    // As much as it takes to store that; and nothing is left of the one that could not be started.
    assert!(free(volume) > 8 << 20, "{} {reason}", free(volume));
    assert!(!bench.data.slot(slot).exists());
    println!("\nall was as it should");
}

#[test]
fn child_in_whose_project_something_is_mounted() {
    let Some(volume) = std::env::var_os(VOLUME) else { return };
    let volume = Path::new(&volume);
    let (elsewhere, project) = (volume.join("elsewhere"), volume.join("project"));
    put(&elsewhere.join("deep/file"), b"precious");
    // A part of the same volume, and a volume; at the top and further below.
    let mounts = ["bound", "tree/bound", "other", "tree/other"].map(|name| project.join(name));
    for (number, at) in mounts.iter().enumerate() {
        std::fs::create_dir_all(at).unwrap();
        let mut mount = Command::new("mount");
        match number < 2 {
            true => mount.arg("--bind").arg(&elsewhere).arg(at),
            false => mount.args(["-t", "tmpfs", "none"]).arg(at),
        };
        assert!(mount.status().unwrap().success());
        put(&at.join("deep/file"), b"precious");
        put(&at.join("file"), b"precious");
    }
    put(&project.join("tree/rubbish/file"), b"");
    let kept = |at: &Path| {
        ["file", "deep/file"]
            .iter()
            .all(|name| std::fs::read(at.join(name)).is_ok_and(|is| is == b"precious"))
    };
    let trash = fallow_agent::trash::Trash::at(volume.join("trash"));
    for at in [&mounts[0], &mounts[2]] {
        let error = trash.take(at).unwrap_err();
        assert!(error.to_string().contains("something is mounted there"), "{error}");
        fallow_agent::files::remove(at).unwrap_err();
        assert!(kept(at), "{at:?}");
    }
    fallow_agent::files::remove(&project.join("tree")).unwrap_err();
    assert!(mounts.iter().all(|at| kept(at)) && kept(&elsewhere));
    assert!(!project.join("tree/rubbish").exists());
    println!("\nall was as it should");
}

#[test]
fn r4_12_what_is_mounted_below_a_project_is_never_emptied() {
    passes_on_a_volume_of(16, "disk::child_in_whose_project_something_is_mounted");
}

#[test]
fn r6_10_jobs_that_fill_the_disk_and_leave_have_failed_and_the_agent_goes_on() {
    passes_on_a_volume_of(1_300, "disk::child_whose_volume_jobs_fill_and_leave");
}

#[test]
fn r6_10_jobs_that_fill_the_disk_within_their_bounds_make_room_and_start_again_later() {
    passes_on_a_volume_of(1_300, "disk::child_whose_volume_jobs_fill_within_their_bounds");
}

#[test]
fn r6_10_copies_of_inputs_leave_the_space_that_the_agent_needs() {
    passes_on_a_volume_of(48, "disk::child_whose_volume_starts_of_tasks_fill");
}

#[test]
fn r6_10_a_job_that_fills_the_disk_is_ended_and_the_agent_goes_on() {
    passes_on_a_volume_of(1_300, "disk::child_whose_volume_a_job_fills");
}

#[test]
fn r4_12_a_project_that_fills_the_disk_can_be_detached() {
    passes_on_a_volume_of(48, "disk::child_whose_volume_a_project_fills");
}

#[test]
fn r4_12_what_came_of_downloads_does_not_keep_the_agent_without_space() {
    passes_on_a_volume_of(48, "disk::child_whose_owner_fills_the_volume");
}

#[test]
fn r4_12_on_a_full_disk_the_owner_is_answered_at_once_and_his_suspension_holds() {
    passes_on_a_volume_of(16, "disk::child_on_a_volume_that_fills_up");
}

#[test]
fn r4_12_a_volume_that_is_too_small_is_named_with_what_is_needed() {
    let dir = tempfile::tempdir().unwrap();
    let script = r#"mount -t tmpfs -o size=2m none "$1" && echo mounted && exec "$2" run --dir "$1/agent""#;
    let output = Command::new("unshare")
        .args(["--map-root-user", "--mount", "sh", "-c", script, "sh"])
        .arg(dir.path())
        .arg(crate::support::agent())
        .output();
    let Ok(output) = output else {
        println!("skipped: there is no `unshare` to make a small volume with");
        return;
    };
    let (said, log) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if !said.contains("mounted") {
        println!("skipped: no small volume can be mounted here: {log}");
        return;
    }
    assert_eq!(output.status.code(), Some(8), "{log}");
    assert!(log.contains("needs 8 MB") && log.matches("no space left").count() == 1, "{log}");
}
