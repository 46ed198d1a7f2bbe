//! Backups of coordinators, and what becomes of them.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests: failures are panics")]

mod support;

use std::collections::BTreeSet;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use fallow_domain::ExitCode;
use serde_json::Value;
use support::{Running, fallow, text, wait_for};

/// What a tool says on success.
fn ok(dir: &Path, arguments: &[&str]) -> String {
    let output = fallow(dir, arguments);
    assert!(output.status.success(), "{arguments:?}: {}", text(&output));
    String::from_utf8(output.stdout).unwrap()
}

fn json(dir: &Path, arguments: &[&str]) -> Value {
    serde_json::from_str(&ok(dir, arguments)).unwrap()
}

/// What a tool says that is refused, with this exit status.
fn refused(dir: &Path, arguments: &[&str], code: ExitCode) -> String {
    let output = fallow(dir, arguments);
    assert_eq!(output.status.code(), Some(i32::from(code.number())), "{arguments:?}: {}", text(&output));
    text(&output)
}

fn versions(dir: &Path) -> Vec<String> {
    let table = ok(dir, &["documents"]);
    table.lines().skip(1).filter_map(|line| line.split_whitespace().next().map(str::to_owned)).collect()
}

fn share(dir: &Path) -> f64 {
    json(dir, &["shares", "--json"])["projects"][0]["share"].as_f64().unwrap()
}

/// A coordinator with a project, a backup of that in FILE, and three changes since.
fn changed_since_backup(dir: &Path) -> (Running, String) {
    let running = Running::start(dir);
    let file = dir.join("backup.tar");
    ok(dir, &["project", "create", "demo"]);
    ok(dir, &["backup", file.to_str().unwrap()]);
    for share in ["demo=10", "demo=20", "demo=30"] {
        ok(dir, &["shares", "set", share]);
    }
    assert_eq!((versions(dir).len(), share(dir)), (4, 30.0));
    (running, file.to_str().unwrap().to_owned())
}

#[test]
fn r6_5_a_backup_takes_the_place_of_a_running_coordinator_and_begins_a_new_term() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let (mut running, file) = changed_since_backup(dir);
    let mode = fs::metadata(&file).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "it holds keys");
    let told = ok(dir, &["restore", &file, "--message", "a mistake"]);
    assert!(told.contains("It has begun anew, and runs."), "{told}");
    assert_eq!((versions(dir), share(dir)), (vec!["1".to_owned(), "1.1".to_owned()], 100.0));
    // Changes go on from there.
    ok(dir, &["shares", "set", "demo=40"]);
    assert_eq!(versions(dir).last().unwrap(), "1.2");
    // What was there is there still.
    let replaced = told.lines().find_map(|line| line.strip_prefix("What was there is in ")).unwrap();
    let replaced = Path::new(replaced.split(':').next().unwrap());
    assert!(replaced.join("store/sled/db").exists() && replaced.join("projects/demo").is_dir());
    assert!(!dir.join("coordinator/restored").exists());
    let audit = json(dir, &["audit", "--json"]);
    let entries = audit["entries"].as_array().unwrap();
    let restored = entries.iter().find(|entry| entry["action"] == "restored").unwrap();
    assert_eq!(restored["message"], "a mistake");
    ok(dir, &["audit", "--check"]);
    assert_eq!(running.stop(), Some(0));
}

/// As systemd keeps the directory of a service that has a user of its own.
#[test]
fn r6_10_root_puts_a_backup_back_for_a_user_to_whose_directory_nobody_else_finds_the_way() {
    if !rustix::process::geteuid().is_root() {
        return; // Only root can give files away.
    }
    let place = tempfile::tempdir().unwrap();
    let dir = place.path();
    fs::set_permissions(dir, fs::Permissions::from_mode(0o700)).unwrap();
    let (mut running, file) = changed_since_backup(dir);
    assert_eq!(running.stop(), Some(0));
    let own = dir.join("coordinator");
    let given = Command::new("chown").args(["-R", "12345:12345"]).arg(&own).status().unwrap();
    assert!(given.success());
    let told = ok(dir, &["restore", &file]);
    assert!(told.contains(&format!("The coordinator in {} is as it was at", own.display())), "{told}");
    let roots = Command::new("find").arg(&own).args(["-uid", "0"]).output().unwrap();
    assert_eq!(text(&roots), "");
    assert!(own.join("store/sled/db").exists());
}

#[test]
fn r6_10_what_was_ended_since_a_backup_stays_ended_and_what_was_made_since_stays() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let mut running = Running::start(dir);
    let file = dir.join("backup.tar");
    let file = file.to_str().unwrap();
    ok(dir, &["project", "create", "demo"]);
    let tokens = |dir: &Path| -> Vec<(String, bool)> {
        let all = json(dir, &["tokens", "list", "--json"]);
        let all = all["tokens"].as_array().unwrap().iter();
        all.map(|token| (token["id"].as_str().unwrap().to_owned(), token["state"] == "revoked")).collect()
    };
    ok(dir, &["tokens", "create"]);
    let before = tokens(dir);
    let token = dir.join("ann.token");
    fs::write(&token, ok(dir, &["operators", "create", "ann", "--role", "viewer"])).unwrap();
    ok(dir, &["backup", file]);
    ok(dir, &["tokens", "revoke", &before[0].0]);
    ok(dir, &["tokens", "create"]);
    ok(dir, &["operators", "revoke", "ann"]);
    let after = tokens(dir);
    assert_eq!(after.len(), 2);
    let audit = json(dir, &["audit", "--json"])["entries"].as_array().unwrap().len();
    ok(dir, &["restore", file]);
    assert_eq!(tokens(dir), after);
    let with = ["--operator-token-file", token.to_str().unwrap()];
    refused(dir, &["projects", with[0], with[1]], ExitCode::Refused);
    let now = json(dir, &["audit", "--json"])["entries"].as_array().unwrap().len();
    assert!(now > audit, "the log goes on: {now} entries after {audit}");
    ok(dir, &["audit", "--check"]);
    assert_eq!(running.stop(), Some(0));
}

#[test]
fn r6_10_a_backup_of_before_takes_neither_signatures_nor_waves_away() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let mut running = Running::start(dir);
    ok(dir, &["project", "create", "demo"]);
    let place = |name: &str| dir.join(name).to_str().unwrap().to_owned();
    let (file, key_file) = (place("backup.tar"), place("org.key"));
    ok(dir, &["backup", &file]);
    let key = ok(dir, &["organisation", "new-key", &key_file]).trim().to_owned();
    ok(dir, &["organisation", "set", &key]);
    let sign = ["organisation", "sign", "--key", &key_file, "--yes"];
    ok(dir, &sign);
    ok(dir, &["rollout", "plan", "--waves", "1,100%", "--soak", "1h"]);
    let before = [
        json(dir, &["organisation", "show", "--json"])["keys"].clone(),
        json(dir, &["rollout", "plan", "--json"]),
    ];
    ok(dir, &["restore", &file, "--message", "that was a mistake"]);
    let after = [
        json(dir, &["organisation", "show", "--json"])["keys"].clone(),
        json(dir, &["rollout", "plan", "--json"]),
    ];
    assert_eq!(after, before);
    // What the backup says is not signed by this key: hosts that ask for it get nothing else than before.
    let said = ok(dir, &["organisation", "show"]);
    assert!(said.contains("waits for its signature"), "{said}");
    ok(dir, &sign);
    // Nor does one of after that bring back what has been taken away since.
    ok(dir, &["backup", &place("later.tar")]);
    ok(dir, &["organisation", "set", "--none"]);
    ok(dir, &["restore", &place("later.tar"), "--message", "again"]);
    assert_eq!(json(dir, &["organisation", "show", "--json"])["keys"], Value::Array(Vec::new()));
    assert_eq!(running.stop(), Some(0));
}

#[test]
fn r6_9_two_who_put_a_backup_back_at_once_do_not_get_in_each_others_way() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let (mut running, file) = changed_since_backup(dir);
    assert_eq!(running.stop(), Some(0));
    let mut first = support::command();
    let (input, mut output) = std::io::pipe().unwrap();
    first.args(["restore", "-"]).env("FALLOW_DIR", dir).stdin(input).stdout(std::process::Stdio::null());
    let mut first = first.spawn().unwrap();
    let whole = fs::read(&file).unwrap();
    let (begin, rest) = whole.split_at(whole.len() / 2);
    output.write_all(begin).unwrap();
    support::wait_for("the first one to have begun", || {
        dir.join("coordinator/restored/store").exists().then_some(())
    });
    let told = refused(dir, &["restore", &file], ExitCode::InUse);
    assert!(told.contains("at this moment"), "{told}");
    output.write_all(rest).unwrap();
    drop(output);
    assert!(first.wait().unwrap().success());
    let mut running = Running::start(dir);
    assert_eq!(versions(dir), ["1", "1.1"]);
    assert_eq!(running.stop(), Some(0));
}

#[test]
fn r6_9_a_backup_in_an_empty_directory_is_the_coordinator_that_it_was_made_of() {
    let dir = tempfile::tempdir().unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    let (mut running, file) = changed_since_backup(dir.path());
    // A second one would be a file beside it.
    let told = refused(dir.path(), &["backup", &file], ExitCode::BadInput);
    assert!(told.contains("--force"), "{told}");
    ok(dir.path(), &["backup", &file, "--force"]);
    assert_eq!(running.stop(), Some(0));
    let place = elsewhere.path().join("coordinator");
    let told = ok(elsewhere.path(), &["restore", &file, "--dir", place.to_str().unwrap()]);
    assert!(told.contains("fallow coordinator run --dir"), "{told}");
    for secret in ["operator.token", "authority.key", "projects/demo/keys/code_sign_private"] {
        let [was, is] = [dir.path().join("coordinator"), place.clone()].map(|dir| dir.join(secret));
        assert_eq!(fs::read(was).unwrap(), fs::read(&is).unwrap(), "{secret}");
        assert_eq!(fs::metadata(is).unwrap().permissions().mode() & 0o077, 0, "{secret}");
    }
    let mut running = Running::start(elsewhere.path());
    assert_eq!((versions(elsewhere.path()).last().unwrap().as_str(), share(elsewhere.path())), ("1.1", 30.0));
    ok(elsewhere.path(), &["audit", "--check"]);
    // A copy of the directory by other means is helped without a file.
    let told = ok(elsewhere.path(), &["restore", "--new-term"]);
    assert!(told.contains("Term 2 of the documents begins, with version 2.1."), "{told}");
    assert_eq!(running.stop(), Some(0));
}

/// A batch of some workunits with an input each.
fn batch(dir: &Path, number: u32) -> String {
    let input = |of: u32| format!("inputs = [{{ open_name = \"in\", text = \"{number} {of}\\n\" }}]");
    let workunit = |of| {
        format!("[[workunits]]\nname = \"w{number}-{of}\"\napplication = \"a\"\nflops = 1e9\n{}\n", input(of))
    };
    let path = dir.join(format!("{number}.toml"));
    fs::write(&path, (0..5).map(workunit).collect::<String>()).unwrap();
    path.to_str().unwrap().to_owned()
}

/// Tells a thread that it is over, also where a test fails.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The names of all workunits.
fn workunits(dir: &Path) -> BTreeSet<String> {
    let listed = json(dir, &["jobs", "demo", "--json"]);
    let listed = listed["workunits"].as_array().unwrap().iter();
    listed.map(|workunit| workunit["name"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn r6_9_a_backup_while_work_is_submitted_has_all_that_was_taken_before_with_its_files() {
    let dir = tempfile::tempdir().unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    let (dir, elsewhere) = (dir.path(), elsewhere.path());
    let mut running = Running::start(dir);
    ok(dir, &["project", "create", "demo"]);
    let program = dir.join("program");
    fs::write(&program, "#!/bin/sh\necho 0 >boinc_finish_called\n").unwrap();
    ok(dir, &["app", "add", "demo", "a", program.to_str().unwrap(), "--version", "1.0"]);
    let (taken, is_over) = (AtomicU32::new(0), AtomicBool::new(false));
    let file = |number: usize| dir.join(format!("backup-{number}.tar")).to_str().unwrap().to_owned();
    let mut before: Vec<u32> = Vec::new();
    std::thread::scope(|both| {
        both.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                let number = taken.load(Ordering::Relaxed);
                ok(dir, &["submit", "demo", "--file", &batch(dir, number)]);
                taken.store(number + 1, Ordering::Relaxed);
            }
        });
        let _over = Over(&is_over);
        // Until work was taken while one was made.
        loop {
            let known = before.last().copied().unwrap_or_default();
            wait_for("more to be taken", || (taken.load(Ordering::Relaxed) > known + 1).then_some(()));
            let begun = taken.load(Ordering::Relaxed);
            ok(dir, &["backup", &file(before.len())]);
            before.push(begun);
            if taken.load(Ordering::Relaxed) > begun {
                break;
            }
            assert!(before.len() < 50, "nothing is taken while a backup is made");
        }
    });
    assert_eq!(running.stop(), Some(0));
    for (backup, before) in before.into_iter().enumerate() {
        let place = elsewhere.join(backup.to_string());
        ok(elsewhere, &["restore", &file(backup), "--dir", place.join("coordinator").to_str().unwrap()]);
        let mut running = Running::start(&place);
        let found = workunits(&place);
        for number in 0..before {
            for of in 0..5 {
                let name = format!("w{number}-{of}");
                assert!(found.contains(&name), "{name} was taken before backup {backup}, and is not in it");
            }
        }
        // Each piece is there whole or not at all, with the files that its records name.
        assert_eq!(found.len() % 5, 0, "{found:?}");
        let download = place.join("coordinator/projects/demo/download");
        for name in &found {
            let (number, of) = name[1..].split_once('-').unwrap();
            let text = fs::read_to_string(download.join(format!("{name}_in0"))).unwrap();
            assert_eq!(text, format!("{number} {of}\n"));
        }
        ok(&place, &["audit", "--check"]);
        assert_eq!(running.stop(), Some(0));
    }
}

#[test]
fn r6_9_a_backup_that_is_not_whole_or_of_another_fleet_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let (mut running, file) = changed_since_backup(dir);
    let whole = fs::read(&file).unwrap();
    let bad = dir.join("bad.tar");
    let try_it = |bytes: &[u8], said: &str| {
        fs::write(&bad, bytes).unwrap();
        let told = refused(dir, &["restore", bad.to_str().unwrap()], ExitCode::BadInput);
        assert!(told.contains("no whole backup") && told.contains(said), "{told}");
    };
    try_it(b"", "it is empty");
    try_it(&[7; 10_000], "");
    for cut in [600, 1_500, whole.len() / 2, whole.len() - 2_048] {
        try_it(&whole[..cut], "");
    }
    // Wherever a byte is another one, but in the padding behind the end.
    for place in (0..whole.len() - 2_048).step_by(997) {
        let mut other = whole.clone();
        other[place] ^= 0x10;
        fs::write(&bad, &other).unwrap();
        let output = fallow(dir, &["restore", bad.to_str().unwrap()]);
        // What fills up a block means nothing.
        let is_refused = output.status.code() == Some(3);
        assert!(is_refused || (output.status.success() && whole[place] == 0), "{place}: {}", text(&output));
    }
    assert!(!dir.join("coordinator/restored").exists());
    // Another fleet's coordinator.
    let other = tempfile::tempdir().unwrap();
    let mut running_other = Running::start(other.path());
    assert_eq!(running_other.stop(), Some(0));
    let told = refused(other.path(), &["restore", &file], ExitCode::BadInput);
    assert!(told.contains("of another fleet"), "{told}");
    let mut running_other = Running::start(other.path());
    assert_eq!(running_other.stop(), Some(0));
    assert_eq!(running.stop(), Some(0));
}

/// The same backup with other records behind its own, and the sums of a whole one.
fn with_record(whole: &[u8], key: &[u8], value: &[u8]) -> Vec<u8> {
    use ring::digest::{Context, SHA256};
    let (mut out, mut sum, mut entries) = (Vec::new(), Context::new(&SHA256), 0_u64);
    let mut builder = tar::Builder::new(&mut out);
    let mut archive = tar::Archive::new(whole);
    for entry in archive.entries().unwrap() {
        let mut entry = entry.unwrap();
        let path = entry.path().unwrap().to_str().unwrap().to_owned();
        let mut content = Vec::new();
        std::io::Read::read_to_end(&mut entry, &mut content).unwrap();
        if path == "store/000001" {
            for part in [key, value] {
                content.extend_from_slice(&u32::try_from(part.len()).unwrap().to_le_bytes());
                content.extend_from_slice(part);
            }
        }
        if path == "end.json" {
            let sum = fallow_domain::hex(sum.clone().finish().as_ref());
            content = format!("{{\"entries\":{entries},\"sha256\":\"{sum}\"}}").into_bytes();
        }
        entries += 1;
        sum.update(&(path.len() as u64).to_be_bytes());
        sum.update(path.as_bytes());
        sum.update(&(content.len() as u64).to_be_bytes());
        sum.update(&content);
        let mut header = entry.header().clone();
        header.set_size(content.len() as u64);
        builder.append_data(&mut header, path, &content[..]).unwrap();
    }
    builder.finish().unwrap();
    drop(builder);
    out
}

#[test]
fn r6_9_a_coordinator_goes_on_as_it_was_where_a_backup_turns_out_to_be_nonsense() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let (mut running, file) = changed_since_backup(dir);
    let bad = dir.join("bad.tar");
    fs::write(&bad, with_record(&fs::read(&file).unwrap(), b"document/99999999999999999999", b"nonsense"))
        .unwrap();
    let told = refused(dir, &["restore", bad.to_str().unwrap()], ExitCode::BadInput);
    assert!(told.contains("goes on as it was before"), "{told}");
    assert_eq!((versions(dir).len(), share(dir)), (4, 30.0));
    assert!(!dir.join("coordinator/restored").exists());
    ok(dir, &["restore", &file]);
    assert_eq!(versions(dir), ["1", "1.1"]);
    assert_eq!(running.stop(), Some(0));
}

#[test]
fn r6_5_a_restore_begins_a_term_after_that_of_what_was_there_also_without_documents_in_the_backup() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let mut running = Running::start(dir);
    let file = dir.join("early.tar");
    ok(dir, &["backup", file.to_str().unwrap()]);
    ok(dir, &["project", "create", "demo"]);
    // Neither said, nothing is done.
    let told = refused(dir, &["restore"], ExitCode::Usage);
    assert!(told.contains("--new-term"), "{told}");
    assert_eq!(versions(dir), ["1"]);
    ok(dir, &["restore", "--new-term"]);
    ok(dir, &["restore", "--new-term"]);
    assert_eq!(versions(dir), ["1", "1.1", "2.1"]);
    ok(dir, &["restore", file.to_str().unwrap()]);
    assert_eq!(versions(dir), ["3.1"]);
    assert_eq!(running.stop(), Some(0));
}

#[test]
fn r6_10_a_backup_that_names_places_of_its_own_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (mut running, file) = changed_since_backup(dir.path());
    assert_eq!(running.stop(), Some(0));
    let whole = fs::read(&file).unwrap();
    let place = dir.path().join("new");
    for name in
        ["files/../escaped", "files/projects/../../escaped", "files/daemon.json", "files/projects", "else"]
    {
        let mut out = Vec::new();
        let mut archive = tar::Archive::new(&whole[..]);
        let mut builder = tar::Builder::new(&mut out);
        let mut is_first = true;
        for entry in archive.entries().unwrap() {
            let mut entry = entry.unwrap();
            let mut header = entry.header().clone();
            let path = entry.path().unwrap().into_owned();
            builder.append_data(&mut header, path, &mut entry).unwrap();
            if std::mem::take(&mut is_first) {
                let mut header = tar::Header::new_gnu();
                header.as_gnu_mut().unwrap().name[..name.len()].copy_from_slice(name.as_bytes());
                header.set_size(4);
                header.set_mode(0o644);
                header.set_cksum();
                builder.append(&header, &b"evil"[..]).unwrap();
            }
        }
        builder.finish().unwrap();
        drop(builder);
        let bad = dir.path().join("bad.tar");
        fs::write(&bad, out).unwrap();
        let arguments = ["restore", bad.to_str().unwrap(), "--dir", place.to_str().unwrap()];
        let told = refused(dir.path(), &arguments, ExitCode::BadInput);
        assert!(told.contains("belongs in no backup"), "{name}: {told}");
        assert!(!dir.path().join("escaped").exists() && !place.join("escaped").exists(), "{name}");
    }
}

#[test]
fn r6_10_backups_are_for_who_has_the_coordinators_own_token() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let (mut running, file) = changed_since_backup(dir);
    let token = dir.join("ann.token");
    fs::write(&token, ok(dir, &["operators", "create", "ann", "--role", "administrator"])).unwrap();
    let token = token.to_str().unwrap();
    let other = dir.join("other.tar");
    let told =
        refused(dir, &["backup", other.to_str().unwrap(), "--operator-token-file", token], ExitCode::Refused);
    assert!(told.contains("coordinator's own token"), "{told}");
    assert!(!other.exists());
    let names = fs::read_dir(dir).unwrap().flatten().map(|entry| entry.file_name());
    let left: Vec<_> = names.filter(|name| name.to_string_lossy().ends_with(".part")).collect();
    assert!(left.is_empty(), "{left:?}");
    refused(dir, &["restore", &file, "--operator-token-file", token], ExitCode::Refused);
    // Nor later: nothing is left that a start would take up.
    assert!(!dir.join("coordinator/restored").exists());
    running.kill();
    let mut running = Running::start(dir);
    assert_eq!(versions(dir).len(), 4);
    assert_eq!(running.stop(), Some(0));
}

#[test]
fn r6_9_a_coordinator_that_is_killed_while_a_backup_takes_its_place_ends_up_with_it() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let (mut running, file) = changed_since_backup(dir);
    assert_eq!(running.stop(), Some(0));
    let coordinator = dir.join("coordinator");
    let as_it_was = dir.join("as-it-was");
    let copy = |from: &Path, to: &Path| {
        let _ = fs::remove_dir_all(to);
        let copied = std::process::Command::new("cp").arg("-a").args([from, to]).status().unwrap();
        assert!(copied.success());
    };
    // Unpacked, and not yet put in place: a coordinator that starts does that.
    let mut running = Running::start(dir);
    copy(&coordinator, &as_it_was);
    assert_eq!(running.stop(), Some(0));
    let unpacked =
        fallow_coordinator::daemon::unpack(fs::File::open(&file).unwrap(), &coordinator, "ann@lab", "");
    assert!(fallow_coordinator::backup::arm(&coordinator, &unpacked.unwrap().id).unwrap());
    copy(&coordinator, &as_it_was);
    for delay in (0..120).step_by(6) {
        copy(&as_it_was, &coordinator);
        let mut command = support::command();
        command.args(["coordinator", "run", "--dir"]).arg(&coordinator);
        let mut child = command.stderr(std::process::Stdio::null()).spawn().unwrap();
        // Once the backup is in place, it would be any start that is killed.
        let end = Instant::now() + Duration::from_millis(delay);
        while Instant::now() < end && coordinator.join("restored").exists() {
            std::thread::sleep(Duration::from_millis(1));
        }
        if !coordinator.join("restored").exists() {
            support::wait_for("the coordinator to run", || {
                fallow_coordinator::daemon::DaemonFile::read(&coordinator).ok().map(drop)
            });
        }
        child.kill().unwrap();
        child.wait().unwrap();
        let mut running = Running::start(dir);
        let all = versions(dir);
        assert!(all.first().unwrap() == "1" && all.last().unwrap().contains('.'), "{delay} ms: {all:?}");
        assert_eq!(share(dir), 100.0, "{delay} ms");
        ok(dir, &["audit", "--check"]);
        let replaced = fs::read_dir(&coordinator).unwrap().filter_map(Result::ok);
        let replaced: Vec<_> =
            replaced.filter(|entry| entry.file_name().to_string_lossy().starts_with("replaced-")).collect();
        assert_eq!(replaced.len(), 1, "{delay} ms");
        for name in ["store", "projects", "authority.key", "operator.token"] {
            assert!(replaced[0].path().join(name).exists(), "{delay} ms: {name}");
        }
        assert!(!coordinator.join("restored").exists(), "{delay} ms");
        assert_eq!(running.stop(), Some(0));
    }
}
