//! Submissions and applications sent by `fallow` as a process to a coordinator as a process, cut off at any
//! moment.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests: failures are panics")]

mod support;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use support::{Running, command, fallow, text, wait_for};

/// More than one piece has, and not a whole number of pieces.
const MANY: usize = 6_001;

#[test]
fn r6_8_thousands_of_workunits_with_inputs_are_taken_in_pieces_and_a_repeated_submission_once() {
    let dir = tempfile::tempdir().unwrap();
    let mut running = with_application(dir.path());
    let batch = batch(dir.path(), "batch.json", MANY, "");
    let submit = ["submit", "sieve", "--file", batch.to_str().unwrap()];
    let first = fallow(dir.path(), &submit);
    assert_eq!(first.status.code(), Some(0), "{}", text(&first));
    assert_eq!(names(&first).len(), MANY);
    assert_eq!(workunits(dir.path()), MANY);
    let again = fallow(dir.path(), &submit);
    assert_eq!(again.status.code(), Some(0), "{}", text(&again));
    assert!(text(&again).contains("taken before"), "{}", String::from_utf8_lossy(&again.stderr));
    assert_eq!(first.stdout, again.stdout, "the same names in the same order");
    assert_eq!(workunits(dir.path()), MANY);
    // Inputs are those of their workunits, in order.
    let last = names(&first).last().unwrap().clone();
    let input = dir.path().join(format!("coordinator/projects/sieve/download/{last}_in0"));
    assert_eq!(std::fs::read_to_string(input).unwrap(), format!("from={}\n", MANY - 1));
    // Wanted once more: under another key.
    let more = fallow(dir.path(), &[&submit[..], &["--key", "more", "--json"]].concat());
    let more: serde_json::Value = serde_json::from_slice(&more.stdout).unwrap();
    assert_eq!((more["key"].as_str(), more["taken_before"].as_u64()), (Some("more"), Some(0)));
    assert_eq!(workunits(dir.path()), 2 * MANY);
    assert_eq!(running.stop(), Some(0));
}

#[test]
fn r6_8_a_submission_whose_sender_was_killed_is_completed_by_repeating_it() {
    let dir = tempfile::tempdir().unwrap();
    let mut running = with_application(dir.path());
    let batch = batch(dir.path(), "batch.json", MANY, "");
    let submit = ["submit", "sieve", "--file", batch.to_str().unwrap()];
    let mut sender = command();
    let sender = sender.args(submit).env("FALLOW_DIR", dir.path());
    let mut sender = sender.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    wait_for("the first workunits", || (workunits(dir.path()) > 0).then_some(()));
    sender.kill().unwrap();
    sender.wait().unwrap();
    completed(dir.path(), &submit);
    assert_eq!(running.stop(), Some(0));
}

#[test]
fn r6_11_an_interrupted_submission_says_what_is_taken_and_the_same_command_completes_it() {
    let dir = tempfile::tempdir().unwrap();
    let mut running = with_application(dir.path());
    let batch = batch(dir.path(), "batch.json", MANY, "");
    let submit = ["submit", "sieve", "--file", batch.to_str().unwrap()];
    let mut sender = command();
    let sender = sender.args(submit).env("FALLOW_DIR", dir.path());
    let sender = sender.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait_for("the first workunits", || (workunits(dir.path()) > 0).then_some(()));
    kill_process(Pid::from_child(&sender), Signal::INT).unwrap();
    let ended = sender.wait_with_output().unwrap();
    // It may have been done in the same moment.
    if !ended.status.success() {
        assert_eq!(ended.status.code(), Some(130), "{:?}: {}", ended.status, text(&ended));
        let said = String::from_utf8_lossy(&ended.stderr);
        let last = said.lines().last().unwrap();
        assert!(
            last.contains("interrupted: ") && last.contains(&format!("of {MANY} workunits are taken")),
            "{said}"
        );
        assert!(last.contains("repeat the command, and what is missing is added"), "{said}");
    }
    completed(dir.path(), &submit);
    assert_eq!(running.stop(), Some(0));
}

#[test]
fn r6_8_a_submission_during_which_the_coordinator_was_killed_is_completed_by_repeating_it() {
    let dir = tempfile::tempdir().unwrap();
    let mut running = with_application(dir.path());
    let batch = batch(dir.path(), "batch.json", MANY, "");
    let submit = ["submit", "sieve", "--file", batch.to_str().unwrap()];
    let mut sender = command();
    let sender = sender.args(submit).env("FALLOW_DIR", dir.path());
    let sender = sender.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait_for("the first workunits", || (workunits(dir.path()) > 0).then_some(()));
    running.kill();
    let cut_off = sender.wait_with_output().unwrap();
    // It may have been done in the same moment.
    if !cut_off.status.success() {
        assert_eq!(cut_off.status.code(), Some(4), "{}", text(&cut_off));
        let said = text(&cut_off);
        // The first piece may be stored and not acknowledged yet.
        assert!(
            said.contains("taken") && said.contains("repeat the command, and what is missing is added"),
            "{said}"
        );
    }
    let mut running = Running::start(dir.path());
    completed(dir.path(), &submit);
    assert_eq!(running.stop(), Some(0));
}

#[test]
fn a_mistake_in_a_long_batch_stops_it_before_any_of_it_is_taken() {
    let dir = tempfile::tempdir().unwrap();
    let mut running = with_application(dir.path());
    let bad = r#", {"application": "none", "flops": 1e9}"#;
    let batch = batch(dir.path(), "batch.json", MANY, bad);
    let refused = fallow(dir.path(), &["submit", "sieve", "--file", batch.to_str().unwrap()]);
    assert_eq!(refused.status.code(), Some(3), "{}", text(&refused));
    assert!(
        text(&refused).contains("workunit 6002 of the submission: project sieve has no"),
        "{}",
        text(&refused)
    );
    assert_eq!(workunits(dir.path()), 0);
    assert_eq!(running.stop(), Some(0));
}

/// Shows R6.8.
#[test]
fn a_batch_that_keeps_two_contents_under_one_name_is_not_taken_at_all() {
    let dir = tempfile::tempdir().unwrap();
    let mut running = with_application(dir.path());
    // Each is a piece by itself.
    for (name, byte) in [("one", b'1'), ("two", b'2')] {
        std::fs::write(dir.path().join(name), vec![byte; 6 << 20]).unwrap();
    }
    let file = |second: &str| {
        let read = |path: &str| {
            format!(
                "[[workunits]]\napplication = 'a'\nflops = 1e9\ninputs = [{{ open_name = 'in', path = '{path}', keep_as = 'data' }}]\n"
            )
        };
        let batch = dir.path().join("b.toml");
        std::fs::write(&batch, ["one", "one", second].map(read).concat()).unwrap();
        fallow(dir.path(), &["submit", "sieve", "--file", batch.to_str().unwrap()])
    };
    let refused = file("two");
    assert_eq!(refused.status.code(), Some(3), "{}", text(&refused));
    assert_eq!(workunits(dir.path()), 0);
    assert!(text(&refused).contains("workunits 1 and 3"), "{}", text(&refused));
    let taken = file("one");
    assert_eq!((taken.status.code(), names(&taken).len()), (Some(0), 3), "{}", text(&taken));
    let kept = dir.path().join("coordinator/projects/sieve/download/kept_data");
    assert_eq!(std::fs::read(kept).unwrap(), vec![b'1'; 6 << 20]);
    // In pieces, because of what each reads by itself: the second names what came with the first.
    let inputs =
        "[{ open_name = 'in', path = 'one', keep_as = 'more' }, { open_name = 'own', path = 'two' }]";
    let pieces = format!("[[workunits]]\napplication = 'a'\nflops = 1e9\ninputs = {inputs}\n").repeat(3);
    let batch = dir.path().join("pieces.toml");
    std::fs::write(&batch, pieces).unwrap();
    for _ in 0..2 {
        let taken = fallow(dir.path(), &["submit", "sieve", "--file", batch.to_str().unwrap()]);
        assert_eq!((taken.status.code(), names(&taken).len()), (Some(0), 3), "{}", text(&taken));
    }
    assert_eq!(workunits(dir.path()), 6);
    assert_eq!(running.stop(), Some(0));
}

#[test]
fn a_key_names_one_submission_and_options_typed_twice_are_two_workunits_without_it() {
    let dir = tempfile::tempdir().unwrap();
    let mut running = with_application(dir.path());
    let one = ["submit", "sieve", "--app", "a", "--flops", "1e9"];
    let keyed = [&one[..], &["--key", "mine"]].concat();
    assert_eq!(names(&fallow(dir.path(), &one)).len(), 1);
    assert_eq!(names(&fallow(dir.path(), &one)).len(), 1);
    assert_eq!(workunits(dir.path()), 2);
    let first = fallow(dir.path(), &keyed);
    assert_eq!(first.stdout, fallow(dir.path(), &keyed).stdout);
    assert_eq!(workunits(dir.path()), 3);
    for (arguments, said) in [
        ([&keyed[..], &["--quorum", "2"]].concat(), "\"mine\" is another submission's, of 1 workunits"),
        ([&one[..], &["--key", "a/b"]].concat(), "key of a submission"),
        ([&one[..], &["--name", &"x".repeat(300)]].concat(), "1 to 200 ASCII letters"),
    ] {
        let refused = fallow(dir.path(), &arguments);
        assert_eq!(refused.status.code(), Some(3), "{}", text(&refused));
        assert!(text(&refused).contains(said), "{}", text(&refused));
    }
    assert_eq!(running.stop(), Some(0));
}

#[test]
fn r6_11_a_quorum_that_the_fleet_cannot_meet_yet_is_taken_with_a_warning() {
    let dir = tempfile::tempdir().unwrap();
    let mut running = with_application(dir.path());
    let file = dir.path().join("b.toml");
    let each = "[[workunits]]\napplication = 'a'\nflops = 1e9\n";
    std::fs::write(&file, format!("{each}quorum = 20\n{each}quorum = 3\n{each}")).unwrap();
    for arguments in [
        &["submit", "sieve", "--app", "a", "--flops", "1e9", "--quorum", "20"][..],
        &["submit", "sieve", "--file", file.to_str().unwrap()],
    ] {
        let taken = fallow(dir.path(), arguments);
        assert_eq!(taken.status.code(), Some(0), "{}", text(&taken));
        let said = String::from_utf8_lossy(&taken.stderr);
        assert!(
            said.contains("warning: ") && said.contains("20 hosts must agree") && said.contains("0 agents"),
            "{said}"
        );
    }
    assert_eq!(workunits(dir.path()), 4);
    assert_eq!(running.stop(), Some(0));
}

#[test]
fn what_has_no_end_is_refused_as_batch_input_and_application() {
    let dir = tempfile::tempdir().unwrap();
    let mut running = with_application(dir.path());
    let batch = dir.path().join("b.toml");
    let input = "inputs = [{ open_name = 'in', path = '/dev/zero' }]";
    std::fs::write(&batch, format!("[[workunits]]\napplication = 'a'\nflops = 1e9\n{input}\n")).unwrap();
    let app = ["app", "add", "sieve", "b", "/dev/zero", "--version", "1.0", "--any-file"];
    for (arguments, said) in [
        (&["submit", "sieve", "--file", "/dev/zero"][..], "batch /dev/zero has more than 64 MiB"),
        (
            &["submit", "sieve", "--app", "a", "--flops", "1e9", "--input", "in=/dev/zero"],
            "input /dev/zero has more than 48 MiB",
        ),
        (&["submit", "sieve", "--file", batch.to_str().unwrap()], "workunit 1: input /dev/zero has more"),
        (&app, "/dev/zero is not a regular file"),
    ] {
        // In a gibibyte: what would be read without bound would not fit.
        let mut tool = std::process::Command::new("prlimit");
        tool.arg("--as=2147483648").arg(env!("CARGO_BIN_EXE_fallow")).args(arguments);
        let refused = tool.env("FALLOW_DIR", dir.path()).output().unwrap();
        assert_eq!(refused.status.code(), Some(3), "{arguments:?}: {}", text(&refused));
        assert!(text(&refused).contains(said), "{arguments:?}: {}", text(&refused));
    }
    assert_eq!(workunits(dir.path()), 0);
    assert_eq!(running.stop(), Some(0));
}

#[test]
fn r6_11_an_application_is_sent_to_a_coordinator_that_may_not_read_its_files() {
    let dir = tempfile::tempdir().unwrap();
    let private = dir.path().join("private");
    std::fs::create_dir(&private).unwrap();
    let library: Vec<u8> = (0..3_000_000_u32).map(|n| n as u8).collect();
    let (program, data) = (private.join("program"), private.join("data"));
    std::fs::write(&program, "#!/bin/sh\n").unwrap();
    std::fs::write(&data, &library).unwrap();
    let lab = dir.path().join("lab");
    std::fs::create_dir(&lab).unwrap();
    let mut server = command();
    server.args(["coordinator", "run", "--dir"]).arg(lab.join("coordinator"));
    // As another user, where this one may do that; a user without that right sees the same by hand.
    if rustix::process::geteuid().is_root() {
        const NOBODY: u32 = 65_534;
        std::os::unix::fs::chown(&lab, Some(NOBODY), Some(NOBODY)).unwrap();
        std::fs::set_permissions(&private, PermissionsExt::from_mode(0o700)).unwrap();
        std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o755)).unwrap();
        server.uid(NOBODY).gid(NOBODY);
    }
    let mut running = Running::of(server, &lab);
    fallow(&lab, &["project", "create", "sieve"]);
    let (program, data) = (program.to_str().unwrap(), data.to_str().unwrap());
    let add =
        |version: &str| fallow(&lab, &["app", "add", "sieve", "a", program, data, "--version", version]);
    let added = add("1.0");
    assert_eq!(added.status.code(), Some(0), "{}", text(&added));
    let names = names(&added);
    let project = lab.join("coordinator/projects/sieve");
    assert_eq!(std::fs::read(project.join("download").join(&names[1])).unwrap(), library);
    assert_eq!(std::fs::read_dir(project.join("incoming")).unwrap().count(), 0, "nothing is left there");
    assert_eq!(add("1.0").status.code(), Some(3), "it exists already");
    let missing = fallow(&lab, &["app", "add", "sieve", "a", "/nowhere", "--version", "2.0"]);
    assert_eq!(missing.status.code(), Some(3), "{}", text(&missing));
    assert_eq!(running.stop(), Some(0));
}

#[test]
fn a_job_is_shown_with_all_that_is_known_of_it() {
    let dir = tempfile::tempdir().unwrap();
    let mut running = with_application(dir.path());
    let submit = ["submit", "sieve", "--app", "a", "--flops", "1e9", "--name", "w"];
    assert_eq!(fallow(dir.path(), &submit).status.code(), Some(0));
    let shown = fallow(dir.path(), &["jobs", "sieve", "--job", "w_0"]);
    assert_eq!(shown.status.code(), Some(0), "{}", text(&shown));
    assert!(text(&shown).contains("unsent"), "{}", text(&shown));
    let json = fallow(dir.path(), &["jobs", "sieve", "--job", "w_0", "--json"]);
    let json: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!((json["workunit"].as_str(), json["job"]["stderr"].as_str()), (Some("w"), Some("")));
    for unknown in ["w", "w_7", "none_0", "\u{1b}[2J"] {
        let shown = fallow(dir.path(), &["jobs", "sieve", "--job", unknown]);
        assert_eq!(shown.status.code(), Some(3), "{}", text(&shown));
        assert!(text(&shown).contains("has no job") && !text(&shown).contains('\u{1b}'), "{}", text(&shown));
    }
    assert_eq!(running.stop(), Some(0));
}

// ---- helpers ----

/// A coordinator in DIR/coordinator with a project and an application.
fn with_application(dir: &Path) -> Running {
    let running = Running::start(dir);
    assert_eq!(fallow(dir, &["project", "create", "sieve"]).status.code(), Some(0));
    let program = dir.join("program");
    std::fs::write(&program, "#!/bin/sh\n").unwrap();
    let added = fallow(dir, &["app", "add", "sieve", "a", program.to_str().unwrap(), "--version", "1.0"]);
    assert_eq!(added.status.code(), Some(0), "{}", text(&added));
    running
}

/// A batch of so many workunits with an input each, and what more there is.
fn batch(dir: &Path, name: &str, count: usize, more: &str) -> PathBuf {
    let mut text = String::new();
    for number in 0..count {
        let comma = if number == 0 { "" } else { "," };
        write!(text, r#"{comma}{{"application": "a", "flops": 1e9, "inputs": [{{"open_name": "in", "text": "from={number}\n"}}]}}"#)
            .unwrap();
    }
    let path = dir.join(name);
    std::fs::write(&path, format!("{{\"workunits\": [{text}{more}]}}")).unwrap();
    path
}

/// Repeats a submission of [`MANY`] workunits: each is there once then.
fn completed(dir: &Path, submit: &[&str]) {
    assert!(workunits(dir) <= MANY);
    let repeated = fallow(dir, submit);
    assert_eq!(repeated.status.code(), Some(0), "{}", text(&repeated));
    assert_eq!(workunits(dir), MANY);
    let names = names(&repeated);
    assert_eq!(names.len(), MANY);
    assert_eq!(names.into_iter().collect::<BTreeSet<_>>().len(), MANY);
    let inputs = std::fs::read_dir(dir.join("coordinator/projects/sieve/download")).unwrap();
    let inputs = inputs.filter(|file| file.as_ref().unwrap().file_name().to_string_lossy().contains("_in0"));
    assert_eq!(inputs.count(), MANY, "none is left over");
}

fn names(output: &Output) -> Vec<String> {
    String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect()
}

/// How many workunits the project has.
fn workunits(dir: &Path) -> usize {
    let shown = fallow(dir, &["projects", "--json"]);
    let shown: serde_json::Value = serde_json::from_slice(&shown.stdout).unwrap();
    shown["projects"][0]["workunits"].as_u64().unwrap() as usize
}
