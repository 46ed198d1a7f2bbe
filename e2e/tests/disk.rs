//! The disk of a host as its coordinator shows it: what was deleted and suspended there, by which rule, and
//! that it is over (R4.13).
//!
//! A real agent and a real coordinator on a small volume. By its preferences an agent leaves 1 GiB free, so
//! the volume is a little larger than that.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "tests: failures are panics"
)]

#[allow(dead_code, reason = "the agent's own tests have more of it")]
#[path = "../../agent/tests/agent/small_disk/keeper.rs"]
mod keeper;
#[path = "../../agent/tests/agent/transfers/server.rs"]
mod transfers;

use std::path::{Path, PathBuf};
use std::process::Command;

use fallow_e2e::{Lab, PATIENCE, binary, command, peers_required, wait_for};
use keeper::{INPUT, Keeper};

/// Names the small volume to the child.
const VOLUME: &str = "FALLOW_TEST_SMALL_DISK";

/// Runs one of the tests below as a process of its own, which has a volume of so many megabytes for all that
/// it writes.
fn passes_on_a_tmpfs(megabytes: u32, child: &str) {
    let dir = tempfile::tempdir().unwrap();
    // What the child asks Cargo for is fresh then.
    binary("fallow");
    let script = format!(r#"mount -t tmpfs -o size={megabytes}m none "$1" && shift && exec "$@""#);
    let output = Command::new("unshare")
        .args(["--map-root-user", "--mount", "sh", "-c", &script, "sh"])
        .arg(dir.path())
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", child, "--nocapture", "--test-threads=1"])
        .env(VOLUME, dir.path())
        .env("TMPDIR", dir.path())
        .output();
    let said = output.as_ref().map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    let log = output.as_ref().map(|output| String::from_utf8_lossy(&output.stderr).into_owned());
    if !said.as_ref().is_ok_and(|said| said.contains("running 1 test")) {
        let why = format!("no tmpfs of {megabytes} MB can be mounted here: {log:?}");
        assert!(!peers_required(), "{why}");
        println!("skipped: {why}");
        return;
    }
    let said = said.unwrap_or_default();
    println!("{said}");
    assert!(said.contains("all was as it should"), "{said}{}", log.unwrap_or_default());
}

/// What the owner of the host asks.
fn own(lab: &Lab, arguments: &[&str]) -> String {
    let mut asks = command("fallow-agent");
    asks.env("FALLOW_ACCOUNT_KEY", "0123456789abcdef0123456789abcdef");
    let output = asks.args(arguments).arg("--dir").arg(lab.agent_place(1)).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{arguments:?} ended with {}: {said}", output.status);
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn child_is_shown_what_was_decided(volume: &Path) {
    let lab = Lab::start_with(1, |run| {
        run.args(["--measure-disk-ms", "500"]);
    });
    assert!(lab.agent_place(1).starts_with(volume));
    let id = lab.hosts()[0]["agent_id"].as_str().unwrap().to_owned();
    // As the coordinator has it.
    let disk = || lab.json(&["hosts", "show", &id])["host"]["disk"].clone();
    let find = |what: &str, name: &str| {
        let all = disk()["decisions"].as_array()?.clone();
        all.into_iter().find(|one| one["what"] == what && one["name"] == name)
    };
    let limit = || disk()["limit_bytes"].as_u64();
    let all = wait_for("a measurement", PATIENCE, limit);
    assert!(disk()["limited_by"].as_str().unwrap().contains("disk_free_min"), "{}", disk());
    // So many fit, and there is something left for what the coordinator writes meanwhile.
    let (fits, most) = (5, 5 * INPUT as u64 + INPUT as u64 * 3 / 4);
    let fill = |name: &str, bytes: u64| {
        let file = std::fs::File::create(volume.join(name)).unwrap();
        rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, bytes).unwrap();
    };
    fill("beside", all.checked_sub(most).unwrap());
    let near = most - (2 << 20)..most + (2 << 20);
    wait_for("the limit to be less", PATIENCE, || limit().filter(|limit| near.contains(limit)));

    // More is to be kept than fits.
    let keeper = Keeper::new("cat in >/dev/null || exit 9; echo 0 > boinc_finish_called", fits + 3);
    own(&lab, &["attach", &keeper.server.url("")]);
    let deleted = wait_for("a deletion to be shown", PATIENCE, || find("deleted", "keep_0_in"));
    assert_eq!((&deleted["rule"], &deleted["project_url"]), (&"R4.4".into(), &keeper.server.url("").into()));
    assert!(deleted["bytes"].as_u64() >= Some(INPUT as u64), "{deleted}");
    assert!(deleted["at"].as_str().unwrap().starts_with("20"), "{deleted}");
    let why = deleted["why"].as_str().unwrap();
    assert!(own(&lab, &["disk", "--why"]).contains(&format!("deleted keep_0_in (21 MB): {why}")), "{why}");
    wait_for("all jobs", PATIENCE, || (keeper.reported() == fits + 3).then_some(()));

    // Others fill the volume: what is kept goes, and computing is suspended.
    let free = rustix::fs::statvfs(volume).map(|of| of.f_bavail * of.f_frsize).unwrap();
    fill("others", free.checked_sub(500 << 20).unwrap());
    let suspended = wait_for("the suspension to be shown", PATIENCE, || find("suspended", ""));
    assert!(suspended["rule"] == "R4.8" && suspended["bytes"].as_u64() > Some(0), "{suspended}");
    let last = format!("keep_{}_in", fits + 2);
    let deleted = wait_for("a deletion for the limit", PATIENCE, || find("deleted", &last));
    assert_eq!(deleted["rule"], "R4.8");
    let shown = wait_for("how it stands", PATIENCE, || Some(disk()).filter(|disk| disk["suspended"] == true));
    assert!(shown["missing_bytes"].as_u64() > Some(0), "{shown}");
    let (files, bytes) = (shown["deleted_files"].as_u64().unwrap(), shown["deleted_bytes"].as_u64().unwrap());
    let inputs = 3 + fits as u64;
    assert!(files >= inputs && bytes >= inputs * INPUT as u64, "{shown}");
    let (code, text) = lab.says(&["hosts", "show", &id]);
    println!("{text}");
    for said in
        ["has too little space on its disk", "have to be freed", "keep_0_in", "R4.4", "R4.8", " deleted ("]
    {
        assert!(code == 0 && text.contains(said), "{said}: {text}");
    }

    // There is space again.
    std::fs::remove_file(volume.join("others")).unwrap();
    wait_for("the end of it to be shown", PATIENCE, || find("resumed", ""));
    let shown =
        wait_for("that it goes on", PATIENCE, || Some(disk()).filter(|disk| disk["suspended"] == false));
    assert_eq!(shown["missing_bytes"], 0);
    assert_eq!(lab.hosts()[0]["suspended_by"], "");
    let last = shown["decisions"].as_array().unwrap().last().unwrap().clone();
    assert_eq!(last["what"], "resumed");
}

#[test]
fn child_being_shown() {
    // Passes as a test where there is no volume for it: then it is no child.
    let Some(volume) = std::env::var_os(VOLUME).map(PathBuf::from) else { return };
    child_is_shown_what_was_decided(&volume);
    println!("\nall was as it should");
}

#[test]
fn r4_13_a_coordinator_shows_what_its_hosts_delete_and_why_they_rest_for_want_of_space_until_they_go_on() {
    passes_on_a_tmpfs(1_220, "child_being_shown");
}
