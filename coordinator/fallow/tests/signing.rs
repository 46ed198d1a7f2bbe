//! `fallow organisation`: keys, requests and signatures, without any agent.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests: failures are panics")]

mod support;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use fallow_domain::ExitCode;
use serde_json::Value;
use support::{Running, fallow, text};

fn ok(dir: &Path, arguments: &[&str]) -> String {
    let output = fallow(dir, arguments);
    assert!(output.status.success(), "{arguments:?}: {}", text(&output));
    text(&output)
}

fn refused(dir: &Path, arguments: &[&str], code: ExitCode) -> String {
    let output = fallow(dir, arguments);
    assert_eq!(output.status.code(), Some(i32::from(code.number())), "{arguments:?}: {}", text(&output));
    text(&output)
}

/// The paths of files in DIR, and a public key whose private part is in DIR/org.key.
fn organisation(dir: &Path) -> (impl Fn(&str) -> String, String) {
    let place = dir.to_owned();
    let path = move |name: &str| place.join(name).to_str().unwrap().to_owned();
    let key = ok(dir, &["organisation", "new-key", &path("org.key")]).trim().to_owned();
    (path, key)
}

#[test]
fn r6_10_a_key_is_made_for_its_owner_alone_and_never_over_another_file() {
    let dir = tempfile::tempdir().unwrap();
    let (path, key) = organisation(dir.path());
    assert!(key.starts_with("ed25519:") && key.len() == 72, "{key}");
    let file = path("org.key");
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let text = fs::read_to_string(&file).unwrap();
    assert!(text.starts_with("-----BEGIN PRIVATE KEY-----"), "{text}");
    let said = refused(dir.path(), &["organisation", "new-key", &file], ExitCode::BadInput);
    assert!(said.contains("is there already"), "{said}");
    assert_eq!(fs::read_to_string(&file).unwrap(), text);
}

/// Nothing can be written to a file.
fn with_a_full_disk(arguments: &str) -> String {
    let command = format!("trap '' XFSZ; ulimit -f 0; exec {} {arguments}", env!("CARGO_BIN_EXE_fallow"));
    let output = std::process::Command::new("sh").args(["-c", &command]).output().unwrap();
    assert!(!output.status.success(), "{arguments}");
    text(&output)
}

#[test]
fn r6_10_of_a_key_that_cannot_be_written_whole_nothing_is_left() {
    let dir = tempfile::tempdir().unwrap();
    for what in ["organisation", "project"] {
        let file = dir.path().join(what);
        let said = with_a_full_disk(&format!("{what} new-key {}", file.display()));
        assert!(said.contains("cannot write") && said.contains("File too large"), "{said}");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "{said}");
    }
    // The public part cannot be put beside it: then the private one would be in the way of the next try.
    fs::create_dir(dir.path().join("sieve.key.public")).unwrap();
    let file = dir.path().join("sieve.key");
    let file = file.to_str().unwrap();
    refused(dir.path(), &["project", "new-key", file], ExitCode::BadInput);
    assert!(!Path::new(file).exists());
}

#[test]
fn r6_10_new_keys_are_told_to_scripts_in_json() {
    let dir = tempfile::tempdir().unwrap();
    let json = |arguments: &[&str]| -> Value {
        serde_json::from_str(&ok(dir.path(), &[arguments, &["--json"]].concat())).unwrap()
    };
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let made = json(&["organisation", "new-key", &path("org.key")]);
    assert_eq!(made["file"], path("org.key"));
    made["public_key"].as_str().unwrap().parse::<fallow_domain::OrganisationKey>().unwrap();
    let made = json(&["project", "new-key", &path("sieve.key")]);
    let public = fs::read_to_string(made["public_file"].as_str().unwrap()).unwrap();
    assert_eq!(made["public_key"], public.trim());
    assert!(made["fingerprint"].as_str().is_some_and(|text| !text.is_empty()), "{made}");
    assert!(!made.to_string().contains("PRIVATE"), "{made}");
}

#[test]
fn r6_10_who_has_documents_signed_is_told_whose_programs_are_signed_by_a_key_that_the_coordinator_has() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let mut running = Running::start(dir);
    let (path, key) = organisation(dir);
    let said = |arguments: &[&str]| {
        let output = fallow(dir, arguments);
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", text(&output));
        String::from_utf8(output.stderr).unwrap()
    };
    let warns = |of: &str| format!("programs of {of} are signed by a key in the coordinator's directory");
    assert!(!said(&["project", "create", "early"]).contains("are signed by"), "nobody signs documents");
    ok(dir, &["project", "new-key", &path("sieve.key")]);
    said(&["project", "create", "sieve", "--code-sign-key", &path("sieve.key.public")]);
    let told = said(&["organisation", "set", &key]);
    assert!(told.contains(&warns("early")) && told.contains("can sign programs"), "{told}");
    let told = said(&["project", "create", "late"]);
    assert!(told.contains(&warns("late")) && told.contains("--code-sign-key"), "{told}");
    let told = said(&["project", "create", "well", "--code-sign-key", &path("sieve.key")]);
    assert!(!told.contains("are signed by a key in"), "{told}");
    let told = said(&["organisation", "set", "--none"]);
    assert!(!told.contains("are signed by a key in"), "{told}");
    assert!(
        told.contains("does not wait for a signature any more") && told.contains("all hosts at once"),
        "{told}"
    );
    assert_eq!(running.stop(), Some(0));
}

#[test]
fn r6_10_documents_are_signed_on_a_machine_without_a_network_and_brought_back() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let mut running = Running::start(dir);
    let (path, key) = organisation(dir);
    let said =
        refused(dir, &["organisation", "sign", "--key", &path("org.key"), "--yes"], ExitCode::BadInput);
    assert!(said.contains("there is nothing to sign"), "{said}");
    ok(dir, &["organisation", "set", &key, "--message", "from now on"]);
    let said = ok(dir, &["project", "create", "demo"]);
    assert!(said.contains("no host gets it yet: version 1 waits until it is signed"), "{said}");
    let audit = ok(dir, &["audit"]);
    assert!(audit.contains("to be signed") && audit.contains("organisation set"), "{audit}");
    let (request, signed) = (path("request"), path("signed"));
    ok(dir, &["organisation", "sign", "--save", &request]);
    // Without a coordinator.
    let elsewhere = tempfile::tempdir().unwrap();
    let sign = ["organisation", "sign", "--key", &path("org.key"), "--request", &request, "--save", &signed];
    let said = refused(elsewhere.path(), &sign, ExitCode::BadInput);
    assert!(said.contains("projects.demo.url") && said.contains("give --yes"), "{said}");
    assert!(!Path::new(&signed).exists());
    ok(elsewhere.path(), &[&sign[..], &["--yes"]].concat());
    // Nobody has changed it meanwhile.
    let said = ok(dir, &["organisation", "sign", "--signed", &signed, "--message", "agreed"]);
    assert!(said.contains("Version 1 is signed and goes out."), "{said}");
    assert!(ok(dir, &["organisation", "show"]).contains("Version 1 is signed."));
    // A second time, and after a restart.
    let said = refused(dir, &["organisation", "sign", "--signed", &signed], ExitCode::BadInput);
    assert!(said.contains("this was signed before"), "{said}");
    assert_eq!(running.stop(), Some(0));
    let mut running = Running::start(dir);
    assert!(ok(dir, &["organisation", "show"]).contains("Version 1 is signed."));
    // What somebody changed while it was signed has to be looked at.
    let said = ok(dir, &["shares", "set", "demo=10"]);
    assert!(said.contains("no host gets it yet: version 2 waits until it is signed"), "{said}");
    let said = refused(dir, &["organisation", "sign", "--save", &request], ExitCode::BadInput);
    assert!(said.contains("is there already"), "{said}");
    for file in [&request, &signed] {
        fs::remove_file(file).unwrap();
    }
    ok(dir, &["organisation", "sign", "--save", &request]);
    ok(elsewhere.path(), &[&sign[..], &["--yes"]].concat());
    ok(dir, &["shares", "set", "demo=20"]);
    let said = refused(dir, &["organisation", "sign", "--signed", &signed], ExitCode::BadInput);
    assert!(said.contains("the newest version is 3, and 2 was signed"), "{said}");
    assert_eq!(running.stop(), Some(0));
    // What waits waits on.
    let mut running = Running::start(dir);
    assert!(ok(dir, &["organisation", "show"]).contains("Version 3 waits"));
    assert_eq!(running.stop(), Some(0));
}

#[test]
fn r6_10_a_request_that_somebody_has_changed_is_not_signed() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let mut running = Running::start(dir);
    let (path, key) = organisation(dir);
    ok(dir, &["organisation", "set", &key]);
    ok(dir, &["project", "create", "demo"]);
    // With another key nothing is shown that could not be signed by it.
    ok(dir, &["organisation", "new-key", &path("wrong.key")]);
    let wrong = ["organisation", "sign", "--key", &path("wrong.key"), "--yes"];
    let said = refused(dir, &wrong, ExitCode::BadInput);
    assert!(said.contains("wrong.key is not the key that signs here") && said.contains(&key), "{said}");
    assert!(!said.contains("before"), "{said}");
    // What is no key is called none, and no more.
    let token = path("enrolment.token");
    fs::write(&token, ok(dir, &["tokens", "create"])).unwrap();
    for no_key in
        [&["organisation", "sign", "--key", &token, "--yes"][..], &["hosts", "--operator-token-file", &token]]
    {
        let said = refused(dir, no_key, ExitCode::BadInput);
        assert!(!said.contains("open to other users"), "{said}");
    }
    ok(dir, &["organisation", "sign", "--key", &path("org.key"), "--yes"]);
    ok(dir, &["shares", "set", "demo=10"]);
    let request = path("request");
    ok(dir, &["organisation", "sign", "--save", &request]);
    let read: Value = serde_json::from_slice(&fs::read(&request).unwrap()).unwrap();
    let sign =
        ["organisation", "sign", "--key", &path("org.key"), "--request", &request, "--save", &path("s")];
    let sign = [&sign[..], &["--yes"]].concat();
    let _ = fs::remove_file(path("s"));
    // What hosts have, and may be taken back to, is another thing than was signed; or never was.
    let mut evil = read.clone();
    let documents = evil["before"]["documents"].as_str().unwrap().replace("demo", "evil");
    evil["before"]["documents"] = documents.into();
    fs::write(&request, evil.to_string()).unwrap();
    let said = refused(dir, &sign, ExitCode::BadInput);
    assert!(said.contains("the documents are not those that were signed"), "{said}");
    for garbage in ["", "{}", "[1]", "{\"authority\":1}"] {
        fs::write(&request, garbage).unwrap();
        refused(dir, &sign, ExitCode::BadInput);
    }
    // Of a request without them the coordinator takes no signature: hosts could not be taken back.
    let mut without = read.clone();
    without["before"] = Value::Null;
    fs::write(&request, without.to_string()).unwrap();
    ok(dir, &sign);
    let said = refused(dir, &["organisation", "sign", "--signed", &path("s")], ExitCode::BadInput);
    assert!(said.contains("what they may be taken back to"), "{said}");
    // Another key than the coordinator knows.
    let other = ok(dir, &["organisation", "new-key", &path("other.key")]);
    fs::write(&request, read.to_string()).unwrap();
    let with_other = [
        "organisation",
        "sign",
        "--key",
        &path("other.key"),
        "--request",
        &request,
        "--save",
        &path("s"),
        "--yes",
    ];
    let said = refused(dir, &with_other, ExitCode::BadInput);
    assert!(said.contains("hosts follow what is signed by"), "{said}");
    fs::remove_file(path("s")).unwrap();
    ok(dir, &[&with_other[..], &["--known-key", &key, "--good-key", &other]].concat());
    let said = refused(dir, &["organisation", "sign", "--signed", &path("s")], ExitCode::BadInput);
    assert!(said.contains("is not by the key"), "{said}");
    assert!(!said.contains(other.trim()), "{said}");
    assert_eq!(running.stop(), Some(0));
}

#[test]
fn r6_10_who_signs_sees_all_that_he_signs_for_which_fleet_and_since_when() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let mut running = Running::start(dir);
    let (path, key) = organisation(dir);
    ok(dir, &["organisation", "set", &key]);
    ok(dir, &["project", "create", "demo"]);
    let (request, signed) = (path("request"), path("s"));
    ok(dir, &["organisation", "sign", "--save", &request]);
    let read: Value = serde_json::from_slice(&fs::read(&request).unwrap()).unwrap();
    let sign = ["organisation", "sign", "--key", &path("org.key"), "--request", &request, "--save", &signed];
    let sign = [&sign[..], &["--yes"]].concat();
    let _ = fs::remove_file(path("s"));
    // Two projects of one name: each value under a key would hide the other's.
    let mut evil = read.clone();
    let mut documents: Value = serde_json::from_str(read["documents"].as_str().unwrap()).unwrap();
    let mut project = documents["document"]["projects"][0].clone();
    project["url"] = "http://evil.example.org/".into();
    documents["document"]["projects"].as_array_mut().unwrap().insert(0, project);
    evil["documents"] = documents.to_string().into();
    fs::write(&request, evil.to_string()).unwrap();
    let said = refused(dir, &sign, ExitCode::BadInput);
    assert!(said.contains("nothing was signed"), "{said}");
    // Of another fleet of the same organisation.
    let mut other = read.clone();
    other["authority"] = "cd".repeat(32).into();
    fs::write(&request, other.to_string()).unwrap();
    let said = ok(dir, &sign);
    assert!(said.contains(&format!("For the fleet with the authority {}", "cd".repeat(32))), "{said}");
    assert!(said.contains("Nothing was signed before"), "{said}");
    fs::remove_file(&signed).unwrap();
    other["authority"] = "no\nfleet".into();
    fs::write(&request, other.to_string()).unwrap();
    let said = refused(dir, &sign, ExitCode::BadInput);
    assert!(said.contains("nothing was signed"), "{said}");
    fs::write(&request, read.to_string()).unwrap();
    ok(dir, &sign);
    ok(dir, &["organisation", "sign", "--signed", &signed]);
    ok(dir, &["shares", "set", "demo=10"]);
    let said = ok(dir, &["organisation", "sign", "--key", &path("org.key"), "--yes"]);
    assert!(said.contains("Before is what was signed at 20"), "{said}");
    assert_eq!(running.stop(), Some(0));
}

#[test]
fn r6_10_a_key_does_not_sign_that_hosts_believe_only_others_for_they_could_be_nobodys() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let mut running = Running::start(dir);
    let (path, key) = organisation(dir);
    ok(dir, &["organisation", "set", &key]);
    ok(dir, &["project", "create", "demo"]);
    let nobodys = format!("ed25519:{}", "11".repeat(32));
    let file = path("org.key");
    let sign = ["organisation", "sign", "--key", &file, "--yes"];
    let said = refused(dir, &[&sign[..], &["--good-key", &nobodys]].concat(), ExitCode::BadInput);
    assert!(said.contains("Name both with --good-key"), "{said}");
    let many: Vec<String> = (10..18).map(|n| format!("ed25519:{}", n.to_string().repeat(32))).collect();
    let many = many.iter().chain([&key]).flat_map(|key| ["--good-key", key.as_str()]);
    let said = refused(dir, &sign.iter().copied().chain(many).collect::<Vec<_>>(), ExitCode::BadInput);
    assert!(said.contains("more than 8"), "{said}");
    ok(dir, &[&sign[..], &["--good-key", &nobodys, "--good-key", &key]].concat());
    ok(dir, &["shares", "set", "demo=10"]);
    ok(dir, &sign);
    assert_eq!(running.stop(), Some(0));
}

#[test]
fn r6_10_a_token_of_a_fleet_whose_documents_are_signed_has_the_key_and_what_is_no_key_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let mut running = Running::start(dir);
    let (path, key) = organisation(dir);
    assert!(ok(dir, &["tokens", "create"]).starts_with("fallow-enrol-1/"));
    let said = refused(dir, &["organisation", "set", "ed25519:abc"], ExitCode::Usage);
    assert!(said.contains("64 hexadecimal digits"), "{said}");
    refused(dir, &["organisation", "set"], ExitCode::Usage);
    ok(dir, &["organisation", "set", &key]);
    let token = ok(dir, &["tokens", "create"]);
    assert!(token.starts_with("fallow-enrol-2/") && token.contains(&key), "{token}");
    for file in ["/dev/null", "/dev/zero", &path("nothing")] {
        refused(dir, &["organisation", "sign", "--key", file, "--yes"], ExitCode::BadInput);
    }
    assert_eq!(running.stop(), Some(0));
}

#[test]
fn r6_10_a_key_that_hosts_do_not_believe_takes_nobodys_place_unless_somebody_insists() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let mut running = Running::start(dir);
    let (path, key) = organisation(dir);
    ok(dir, &["organisation", "set", &key, &key]);
    assert_eq!(ok(dir, &["organisation", "show"]).matches(&key).count(), 1);
    ok(dir, &["project", "create", "demo"]);
    ok(dir, &["organisation", "sign", "--key", &path("org.key"), "--yes"]);
    let new = ok(dir, &["organisation", "new-key", &path("new.key")]).trim().to_owned();
    let said = refused(dir, &["organisation", "set", &new], ExitCode::BadInput);
    assert!(said.contains("have them believe the new one first"), "{said}");
    // Nor is a key written over.
    let before = fs::read(path("new.key")).unwrap();
    refused(dir, &["organisation", "sign", "--save", &path("new.key")], ExitCode::BadInput);
    assert_eq!(fs::read(path("new.key")).unwrap(), before);
    // Nor what lies beside the file.
    ok(dir, &["organisation", "sign", "--save", &path("new")]);
    assert_eq!(fs::read(path("new.key")).unwrap(), before);
    fs::write(path("kept.new"), "a key").unwrap();
    ok(dir, &["organisation", "sign", "--save", &path("kept")]);
    assert_eq!(fs::read_to_string(path("kept.new")).unwrap(), "a key");
    let said = refused(dir, &["organisation", "set", &key, &new], ExitCode::BadInput);
    assert!(said.contains("have them believe the new one first"), "hosts do not believe all of them: {said}");
    let both = ["--good-key", key.as_str(), "--good-key", new.as_str()];
    ok(dir, &[&["organisation", "sign", "--key", &path("org.key"), "--yes"], &both[..]].concat());
    // Who joins now knows the new one alone.
    let said = ok(dir, &["organisation", "set", &new]);
    assert!(said.contains("waits for its signature"), "{said}");
    let sign = ["organisation", "sign", "--key", &path("new.key"), "--known-key", &key, "--good-key", &new];
    ok(dir, &[&sign[..], &["--yes"]].concat());
    assert!(ok(dir, &["organisation", "show"]).contains("is signed."));
    ok(dir, &["organisation", "set", "--none"]);
    let other = ok(dir, &["organisation", "new-key", &path("other.key")]).trim().to_owned();
    ok(dir, &["organisation", "set", &other]);
    assert_eq!(running.stop(), Some(0));
}

#[test]
fn r6_10_documents_that_are_signed_no_more_go_out_and_what_waited_was_named() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let mut running = Running::start(dir);
    let (path, key) = organisation(dir);
    ok(dir, &["project", "create", "demo"]);
    ok(dir, &["organisation", "set", &key]);
    ok(dir, &["preferences", "set", "--cpu-fraction", "0.5", "--checkpoint-period", "90s"]);
    let documents = ok(dir, &["documents"]);
    assert!(documents.contains("preferences cpu_fraction=50% checkpoint_period=90 s"), "{documents}");
    assert!(documents.contains("version 2 waits until it is signed"), "{documents}");
    let room = path("room.toml");
    fs::write(
        &room,
        "name = \"room\"\nprecedence = 1\nselector = \"room=1\"\n\n[preferences]\nsuspended = true\n",
    )
    .unwrap();
    let diff = ok(dir, &["diff", "-f", &room]);
    assert!(diff.contains("version 2 waits until it is signed"), "{diff}");
    ok(dir, &["organisation", "sign", "--key", &path("org.key"), "--yes"]);
    let said = refused(dir, &["organisation", "sign", "--key", &path("org.key")], ExitCode::BadInput);
    assert!(said.contains("Nothing differs from what was signed before"), "{said}");
    ok(dir, &["shares", "set", "demo=10"]);
    let said = ok(dir, &["organisation", "set", "--none"]);
    assert!(said.contains("Documents are not signed") && !said.contains("waits"), "{said}");
    let documents = ok(dir, &["documents"]);
    assert!(documents.contains("shares demo=10") && !documents.contains("waits until"), "{documents}");
    assert_eq!(running.stop(), Some(0));
}

#[test]
fn r6_5_a_change_that_waits_can_be_said_again_as_an_emergency() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let mut running = Running::start(dir);
    let (path, key) = organisation(dir);
    ok(dir, &["organisation", "set", &key]);
    ok(dir, &["project", "create", "demo"]);
    let file = path("org.key");
    let sign = ["organisation", "sign", "--key", &file, "--yes"];
    ok(dir, &sign);
    ok(dir, &["preferences", "set", "--suspended", "true"]);
    ok(dir, &["preferences", "set", "--suspended", "true", "--emergency"]);
    // A restart forgets nothing of it.
    assert_eq!(running.stop(), Some(0));
    let mut running = Running::start(dir);
    ok(dir, &sign);
    let audit = ok(dir, &["audit"]);
    assert_eq!(audit.matches("to all hosts at once").count(), 1, "{audit}");
    // It is known who said that it is one, and not only who signed it.
    assert_eq!(audit.matches("version 3: preferences, an emergency, to be signed").count(), 1, "{audit}");
    assert_eq!(audit.matches("suspended=true, to be signed").count(), 1, "{audit}");
    assert_eq!(running.stop(), Some(0));
}
