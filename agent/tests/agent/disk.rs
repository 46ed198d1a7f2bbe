//! A disk that fills up under a running agent: the owner is answered and obeyed all the same.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::daemon::{Daemon, outcome};
use crate::support::wait_for;

/// Names the small volume to the child.
const VOLUME: &str = "FALLOW_TEST_SMALL_VOLUME";

#[test]
fn child_on_a_volume_that_fills_up() {
    let Some(volume) = std::env::var_os(VOLUME) else { return };
    let volume = Path::new(&volume);
    let dir = &volume.join("agent");
    let mut daemon = Daemon::start(dir);
    let mut chunk = 1 << 20;
    while chunk > 0 {
        use std::io::Write;
        let file = std::fs::OpenOptions::new().create(true).append(true).open(volume.join("fill"));
        if file.unwrap().write_all(&vec![1; chunk]).is_err() {
            chunk /= 2;
        }
    }
    let prompt = |arguments: &[&str]| {
        let start = Instant::now();
        let said = outcome(dir, arguments);
        assert!(start.elapsed() < Duration::from_secs(3), "{arguments:?} took {:?}", start.elapsed());
        said
    };
    for _ in 0..2 {
        let (code, text) = prompt(&["suspend"]);
        assert!(code == 8 && text.contains("suspended now") && text.contains("no space"), "{code}: {text}");
    }
    let (code, text) = prompt(&["status"]);
    assert!(
        code == 0 && text.contains("suspended by the owner") && text.contains("no space"),
        "{code}: {text}"
    );
    let (code, text) = prompt(&["detach", "http://127.0.0.1:9/p/"]);
    assert!(code == 8 && text.contains("nothing was done"), "{code}: {text}");

    std::fs::remove_file(volume.join("fill")).unwrap();
    wait_for("space", 20, || (!outcome(dir, &["status"]).1.contains("no space")).then_some(()));
    let (code, text) = prompt(&["suspend"]);
    assert_eq!(code, 0, "{text}");
    // What was said while nothing could be stored holds over a kill now.
    daemon.kill();
    drop(daemon);
    let daemon = Daemon::start(dir);
    assert!(outcome(dir, &["status"]).1.contains("suspended by the owner"));
    drop(daemon);

    println!("\nall was as it should");
}

#[test]
fn r4_12_on_a_full_disk_the_owner_is_answered_at_once_and_his_suspension_holds() {
    let dir = tempfile::tempdir().unwrap();
    let script = r#"mount -t tmpfs -o size=16m none "$1" && shift && exec "$@""#;
    let output = Command::new("unshare")
        .args(["--map-root-user", "--mount", "sh", "-c", script, "sh"])
        .arg(dir.path())
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "disk::child_on_a_volume_that_fills_up", "--nocapture", "--test-threads=1"])
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
