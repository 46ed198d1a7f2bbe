//! Submissions in pieces, without a process around them.

use std::sync::Arc;

use fallow_boinc::runtime::slot_names::Owner;
use fallow_domain::Flops;
use fallow_store::{SledStore, Store};

use super::*;
use crate::operator_types::{NewAppVersion, OutputSpec};
use crate::settings::ProjectSettings;
use crate::workunit::Rules;

/// Workunits of one submission, from a place on.
fn piece(offset: u64, count: usize, check_only: bool) -> SubmissionPiece {
    let workunits = vec![NewWorkunit::new("app", Flops::new(1e9).unwrap()); count];
    SubmissionPiece { key: "k".into(), digest: "d".into(), total: 12, offset, check_only, workunits }
}

/// A project with an application, and when that is.
fn started(dir: &std::path::Path) -> (Project, Instant) {
    let store: Arc<dyn Store> = Arc::new(SledStore::open(dir.join("store")).unwrap());
    let now = Instant::EPOCH + Duration::from_hours(9);
    let settings = ProjectSettings::default();
    let project = Project::create(store, dir, "http://127.0.0.1:1", "p", settings, None, now).unwrap();
    let program = dir.join("program");
    std::fs::write(&program, "#!/bin/sh\n").unwrap();
    let version = NewAppVersion {
        application: "app".into(),
        version: 100,
        platform: "x86_64-pc-linux-gnu".into(),
        files: vec![program],
        ..NewAppVersion::default()
    };
    project.add_app_version(&version).unwrap();
    (project, now)
}

#[test]
fn r6_10_a_piece_has_no_more_workunits_and_inputs_than_others_can_wait_for() {
    let dir = tempfile::tempdir().unwrap();
    let (project, now) = started(dir.path());
    let submit =
        |workunits| project.submit_piece(SubmissionPiece::whole(workunits), now).unwrap_err().to_string();
    let workunit = NewWorkunit::new("app", Flops::new(1e9).unwrap());
    let refused = submit(vec![workunit.clone(); SUBMIT_MAX + 1]);
    assert!(refused.contains("at most 1,000 at a time"), "{refused}");
    let inputs = (0..100).map(|number| NewInput { open_name: format!("in{number}"), ..NewInput::default() });
    let output = |number| OutputSpec { open_name: format!("out{number}"), max_bytes: Bytes(1) };
    let rules = Rules { initial_jobs: 100, max_total_jobs: 100, ..workunit.rules };
    let with_inputs = NewWorkunit { inputs: inputs.collect(), ..workunit.clone() };
    let with_outputs = NewWorkunit { outputs: (0..100).map(output).collect(), ..workunit.clone() };
    let with_jobs = NewWorkunit { rules, ..workunit.clone() };
    let of_each =
        |count| [&with_inputs, &with_outputs, &with_jobs].map(|one| vec![one.clone(); count]).concat();
    for workunits in [
        vec![with_inputs.clone(); SUBMIT_ALL_MAX / 100],
        vec![with_outputs.clone(); SUBMIT_ALL_MAX / 100],
        vec![with_jobs.clone(); SUBMIT_ALL_MAX / 100 + 1],
        of_each(SUBMIT_ALL_MAX / 300 + 1),
    ] {
        let refused = submit(workunits);
        assert!(refused.contains("inputs, outputs and initial jobs \"5"), "{refused}");
        assert!(refused.contains("at most 5,000 of all workunits"), "{refused}");
    }
    // One alone that has too many is told of its own bound, and which it is.
    let too_many = (0..40_000).map(output).collect();
    let refused = submit(vec![workunit.clone(), NewWorkunit { outputs: too_many, ..workunit.clone() }]);
    assert!(refused.contains("workunit 2 of the submission") && refused.contains("100 outputs"), "{refused}");
    let rules = Rules { initial_jobs: 40_000, ..workunit.rules };
    let refused = submit(vec![workunit.clone(), NewWorkunit { rules, ..workunit }]);
    assert!(
        refused.contains("workunit 2 of the submission") && refused.contains("initial jobs"),
        "{refused}"
    );
}

/// Each piece of a submission may name all that hosts keep, however much that is. Shows R6.8.
#[test]
fn r6_10_what_hosts_keep_is_read_once_and_not_for_each_piece_that_names_it() {
    let dir = tempfile::tempdir().unwrap();
    let (project, now) = started(dir.path());
    project.submit_piece(keeping(0, b"abc", false, false), now).unwrap();
    let path = project.layout.download("kept_data");
    let name = |content: &[u8]| project.submit_piece(keeping(1, content, true, true), now);
    name(b"abc").unwrap();
    // Nobody does this but somebody who wants to know whether it is read.
    let before = std::fs::metadata(&path).unwrap().modified().unwrap();
    let overwrite = |content: &[u8], modified| {
        std::fs::write(&path, content).unwrap();
        std::fs::File::options().write(true).open(&path).unwrap().set_modified(modified).unwrap();
    };
    overwrite(b"xyz", before);
    name(b"abc").unwrap();
    // A file that was changed is read.
    overwrite(b"xyz", before + std::time::Duration::from_secs(1));
    name(b"abc").unwrap_err();
    name(b"xyz").unwrap();
    std::fs::remove_file(&path).unwrap();
    let why = project.submit_piece(keeping(1, b"xyz", true, false), now).unwrap_err().to_string();
    assert!(why.contains("nothing is kept under this name yet"), "{why}");
}

/// Shows R6.8.
#[test]
fn a_repeated_piece_reads_the_names_of_its_own_workunits_alone_wherever_it_is_cut() {
    let dir = tempfile::tempdir().unwrap();
    let (project, now) = started(dir.path());
    let mut names = Vec::new();
    for (offset, count) in [(0, 3), (3, 3), (6, 6)] {
        names.extend(project.submit_piece(piece(offset, count, false), now).unwrap().names);
    }
    for check_only in [true, false] {
        for (offset, count) in [(0, 12), (1, 4), (5, 2), (7, 5), (3, 9)] {
            let again = project.submit_piece(piece(offset, count, check_only), now).unwrap();
            let from = offset as usize;
            assert_eq!((again.names.as_slice(), again.known), (&names[from..from + count], count as u64));
        }
    }
    // Nobody looks at the pages before.
    project
        .transact(|txn| {
            txn.put_raw(project.keys.submission_names("k", 0), b"unreadable".to_vec());
            Ok(())
        })
        .unwrap();
    let again = project.submit_piece(piece(6, 6, false), now).unwrap();
    assert_eq!(again.names, names[6..]);
    project.submit_piece(piece(0, 3, false), now).unwrap_err();
}

fn fingerprint(content: &[u8]) -> String {
    fallow_domain::hex(ring::digest::digest(&ring::digest::SHA256, content).as_ref())
}

/// Workunit `number` of three, which keeps its input as `data`: its content, or the fingerprint of that.
fn keeping(number: u64, content: &[u8], is_named: bool, check_only: bool) -> SubmissionPiece {
    let mut piece = SubmissionPiece { total: 3, ..piece(number, 1, check_only) };
    let mut input = NewInput { open_name: "in".into(), keep_as: "data".into(), ..NewInput::default() };
    match is_named {
        true => input.sha256 = fingerprint(content),
        false => input.content = content.to_vec(),
    }
    piece.workunits[0].inputs = vec![input];
    piece
}

/// Shows R6.8.
#[test]
fn a_kept_input_is_sent_once_and_named_by_its_fingerprint_from_then_on() {
    let dir = tempfile::tempdir().unwrap();
    let (project, now) = started(dir.path());
    let submit = |piece| project.submit_piece(piece, now);
    for number in 0..3 {
        submit(keeping(number, b"abc", true, true)).unwrap();
    }
    let why = submit(keeping(0, b"abc", true, false)).unwrap_err().to_string();
    assert!(why.contains("nothing is kept under this name yet"), "{why}");
    submit(keeping(0, b"abc", false, false)).unwrap();
    for check_only in [true, false] {
        let why = submit(keeping(1, b"another", true, check_only)).unwrap_err().to_string();
        assert!(why.contains("no other content has"), "{why}");
    }
    submit(keeping(1, b"abc", true, false)).unwrap();
    let names = submit(keeping(2, b"abc", false, false)).unwrap().names;
    let read = |name: &str| index::read(&project.read(), &project.keys, name).unwrap().unwrap().inputs;
    let input = InputRef {
        open_name: "in".into(),
        file_name: "kept_data".into(),
        nbytes: 3,
        md5: md5_hex("abc"),
        sticky: true,
    };
    let first = format!("app_{:08}", 1);
    assert_eq!([read(&names[0]), read(&first)], [vec![input.clone()], vec![input]]);
    let mut bare = keeping(2, b"abc", true, true);
    bare.total = 4;
    bare.offset = 3;
    bare.key.clear();
    bare.workunits[0].inputs[0].keep_as.clear();
    assert!(submit(bare).unwrap_err().to_string().contains("fingerprint of an input"));
}

/// Shows R6.8.
#[test]
fn what_a_server_that_died_left_of_a_submission_is_removed_a_day_later_and_nothing_that_a_workunit_reads() {
    let dir = tempfile::tempdir().unwrap();
    let (project, _) = started(dir.path());
    let since = std::time::UNIX_EPOCH.elapsed().unwrap();
    let now = Instant::from_secs_f64(since.as_secs_f64());
    let with_inputs = |kept: &str| {
        let mut workunit = with_files(&["in", "kept"], &["out"]);
        workunit.inputs[1].keep_as = kept.into();
        workunit
    };
    let called_so = NewWorkunit { name: "kept_a".into(), ..with_inputs("a") };
    project.submit_piece(SubmissionPiece::whole(vec![called_so, with_inputs("b")]), now).unwrap();
    // Files are written, and then it dies.
    let workunits = vec![with_inputs("b"), with_inputs("c"), with_inputs("c")];
    let mut sticky_inputs = StickyInputs::new(&project.layout, &project.fingerprints);
    for input in workunits.iter().map(|workunit| &workunit.inputs[1]) {
        sticky_inputs.add(input, false).unwrap();
    }
    let rest = Remaining { workunits, from: 0, total: 3 };
    let named = project.name_all(&rest).unwrap();
    project.prepare_all(rest, named, &mut sticky_inputs, now).unwrap();
    let files = || {
        let entries = std::fs::read_dir(project.layout.downloads()).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter(|name| !name.contains("x86_64")).collect::<std::collections::BTreeSet<_>>()
    };
    let (read, left) = (
        ["kept_a_in0", "app_00000002_in0", "kept_a", "kept_b"],
        ["app_00000003_in0", "app_00000004_in0", "app_00000005_in0", "kept_c"],
    );
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let later = |hours| now + Duration::from_hours(hours);
    assert_eq!(project.remove_orphans(later(0)).unwrap(), 0);
    assert_eq!(project.remove_orphans(later(23)).unwrap(), 0);
    assert_eq!(files(), names(&[read, left].concat()), "it may still be repeated");
    assert_eq!(project.remove_orphans(later(30)).unwrap(), 4);
    assert_eq!(files(), names(&read));
    // The name under which an input was to be kept is free.
    let mut other = with_inputs("c");
    other.inputs[1].content = b"another".to_vec();
    project.submit_piece(SubmissionPiece::whole(vec![other]), now).unwrap();
    assert_eq!(project.remove_orphans(later(60)).unwrap(), 0);
    assert_eq!(files(), names(&[&read[..], &["app_00000003_in0", "kept_c"]].concat()));
}

#[test]
fn an_input_file_names_its_workunit() {
    for (name, workunit) in [
        ("a_in0", Some("a")),
        ("a_in0_in99", Some("a_in0")),
        ("a_in100", None),
        ("a_in01", None),
        ("a", None),
    ] {
        assert_eq!(split_input_name(name), workunit, "{name}");
    }
}

/// A workunit that reads and writes files of these names.
fn with_files(inputs: &[&str], outputs: &[&str]) -> NewWorkunit {
    let input = |name: &&str| NewInput { open_name: (*name).to_owned(), ..NewInput::default() };
    let output = |name: &&str| OutputSpec { open_name: (*name).to_owned(), max_bytes: Bytes(9) };
    NewWorkunit {
        inputs: inputs.iter().map(input).collect(),
        outputs: outputs.iter().map(output).collect(),
        ..NewWorkunit::new("app", Flops::new(1e9).unwrap())
    }
}

#[test]
fn r6_8_files_that_have_no_place_of_their_own_in_a_slot_are_refused_with_the_whole_batch() {
    let dir = tempfile::tempdir().unwrap();
    let (project, now) = started(dir.path());
    std::fs::write(dir.path().join("table"), "1 2 3").unwrap();
    let version = NewAppVersion {
        application: "app".into(),
        version: 200,
        platform: "x86_64-pc-linux-gnu".into(),
        files: vec![dir.path().join("program"), dir.path().join("table")],
        ..NewAppVersion::default()
    };
    project.add_app_version(&version).unwrap();
    let good = || with_files(&["in", "data/in"], &["out", "data/out", "stdout.txt", "init_data"]);
    let of_runtime = [
        "init_data.xml",
        "boinc_finish_called",
        "boinc_temporary_exit",
        "boinc_setup_complete",
        "boinc_task_state.xml",
        "stderr.txt",
        "boinc_lockfile",
        "boinc_mmap_file",
        "trickle_up.xml",
        "boinc_ufr_out",
        "boinc_ufs_out",
        "trickle_down_7",
        "Init_Data.xml",
        "boinc_lockfile/x",
    ];
    for name in of_runtime {
        for bad in [with_files(&["in"], &[name]), with_files(&[name], &["out"])] {
            let refused = project.submit_piece(SubmissionPiece::whole(vec![good(), bad, good()]), now);
            let why = refused.unwrap_err().to_string();
            let named = format!("workunit 2 of the submission: open name {name:?}");
            assert!(
                why.starts_with(&named) && why.contains("the BOINC client's or its library's own"),
                "{why}"
            );
        }
    }
    for (bad, names) in [
        (with_files(&["in"], &["in"]), ["\"in\"", "\"in\""]),
        (with_files(&[], &["out", "out/x"]), ["\"out\"", "\"out/x\""]),
        (with_files(&[], &["a/b/c", "a", "x"]), ["\"a/b/c\"", "\"a\""]),
        (with_files(&["in/x"], &["in"]), ["\"in/x\"", "\"in\""]),
        (with_files(&[], &["out", "Out"]), ["\"out\"", "\"Out\""]),
        (with_files(&[], &["a/out", "A/out."]), ["\"a/out\"", "\"A/out.\""]),
        (with_files(&[], &["table"]), ["\"table\"", "application"]),
        (with_files(&[], &["table/x"]), ["\"table/x\"", "application"]),
        (with_files(&["table/x"], &["out"]), ["\"table/x\"", "application"]),
        (with_files(&["in", "TABLE/x"], &[]), ["\"TABLE/x\"", "application"]),
    ] {
        let refused = project.submit_piece(SubmissionPiece::whole(vec![good(), good(), bad]), now);
        let why = refused.unwrap_err().to_string();
        assert!(why.starts_with("workunit 3 of the submission: open name"), "{why}");
        assert!(names.iter().all(|name| why.contains(name)), "{why}");
    }
    assert_eq!(project.counts().unwrap().workunits, 0, "none is taken");
    // What an application brings, a workunit may replace for itself.
    let own_table = with_files(&["table"], &["out"]);
    project.submit_piece(SubmissionPiece::whole(vec![good(), own_table]), now).unwrap();
}

/// Adds version `number` of an application: its program, and files of these names.
fn add_files(project: &Project, number: u32, files: &[&str]) -> Result<Vec<String>, ProjectError> {
    let dir = tempfile::tempdir().unwrap();
    let files = ["program"].iter().chain(files).map(|name| dir.path().join(name));
    let version = NewAppVersion {
        application: "app".into(),
        version: number,
        platform: "x86_64-pc-linux-gnu".into(),
        files: files.inspect(|path| std::fs::write(path, "#!/bin/sh\n").unwrap()).collect(),
        ..NewAppVersion::default()
    };
    project.add_app_version(&version)
}

#[test]
fn r6_8_a_version_with_a_file_that_has_no_place_of_its_own_in_a_slot_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (project, _) = started(dir.path());
    let downloads = || walk(&project.layout.downloads());
    let before = downloads();
    for (bad, said) in [
        (&["table", "init_data.xml"][..], "\"init_data.xml\" is the BOINC client's or its library's own"),
        (&["stderr.txt"], "\"stderr.txt\" is the BOINC client's or its library's own"),
        (&["table", "Table"], "\"Table\" has the same place as \"table\""),
        (&["program_1"], ""),
    ] {
        match add_files(&project, 200, bad) {
            Err(why) => assert!(!said.is_empty() && why.to_string().contains(said), "{why}"),
            Ok(_) => assert!(said.is_empty(), "{bad:?} was taken"),
        }
        assert!(said.is_empty() || downloads() == before, "{bad:?} left files");
    }
}

#[test]
fn r6_8_a_version_whose_files_take_the_place_of_an_open_workunits_is_refused_until_that_is_over() {
    let dir = tempfile::tempdir().unwrap();
    let (project, now) = started(dir.path());
    let open = with_files(&["in", "given/in"], &["out", "data/out"]);
    project.submit_piece(SubmissionPiece::whole(vec![with_files(&[], &["x"]), open]), now).unwrap();
    for (bad, other) in [("out", "out"), ("OUT", "out"), ("data", "data/out"), ("given", "given/in")] {
        let why = add_files(&project, 200, &["table", bad]).unwrap_err().to_string();
        let names = [format!("{bad:?}"), format!("{other:?}"), "app_00000002".to_owned()];
        assert!(names.iter().all(|name| why.contains(name)), "{why}");
    }
    add_files(&project, 200, &["in"]).unwrap();
    project
        .transact(|txn| {
            let before = index::read(txn, &project.keys, "app_00000002")?.unwrap();
            let state = WorkunitState::Failed { reason: "tried enough".into() };
            index::write(txn, &project.keys, Some(&before), &Workunit { state, ..before.clone() }, now)
        })
        .unwrap();
    add_files(&project, 201, &["out"]).unwrap();
}

#[test]
fn r6_8_whoever_adds_a_version_reads_the_names_of_open_workunits_files_and_no_workunits() {
    let dir = tempfile::tempdir().unwrap();
    let (project, now) = started(dir.path());
    let open = vec![with_files(&["in"], &["out"]); 3];
    let names = project.submit_piece(SubmissionPiece::whole(open), now).unwrap().names;
    let unreadable = |txn: &mut Txn<'_>| {
        txn.put_raw(project.keys.workunit(&names[0]), b"unreadable".to_vec());
        Ok(())
    };
    project.transact(unreadable).unwrap();
    add_files(&project, 200, &["table"]).unwrap();
}

#[test]
fn r6_8_names_of_open_workunits_files_are_counted_in_a_store_of_an_earlier_version() {
    let dir = tempfile::tempdir().unwrap();
    let (project, now) = started(dir.path());
    project
        .submit_piece(SubmissionPiece::whole(vec![with_files(&["in"], &["out", "data/out"]); 2]), now)
        .unwrap();
    let counts = |project: &Project| project.read().scan(&project.keys.all_open_names(), None, 9).unwrap();
    let kept = counts(&project);
    assert_eq!(kept.len(), 3);
    // Some are missing, and one is too many: a version without them was here for a while.
    project
        .transact(|txn| {
            kept.iter().for_each(|(key, _)| txn.delete(key.clone()));
            txn.put("count", project.keys.open_name("app", true, "gone"), &1_u64)?;
            let counters: Counters = txn.get("counters", &project.keys.counters())?.unwrap();
            txn.put("counters", project.keys.counters(), &Counters { has_open_names: false, ..counters })
        })
        .unwrap();
    let project = Project::open(project.store.clone(), dir.path(), "http://127.0.0.1:1", "p").unwrap();
    assert_eq!(counts(&project), kept);
    assert!(add_files(&project, 200, &["out"]).is_err());
    add_files(&project, 200, &["gone"]).unwrap();
}

fn walk(dir: &std::path::Path) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let mut found: Vec<_> =
        entries.flat_map(|path| if path.is_dir() { walk(&path) } else { vec![path] }).collect();
    found.sort();
    found
}

#[test]
fn r6_8_an_input_may_replace_a_file_of_the_application_but_be_in_no_directory_of_its_name() {
    let of = |name| {
        let mut names = SlotNames::of(Owner::Application);
        names.note([name]);
        names
    };
    let clash = |input, file| check_places(&with_files(&[input], &["out"]), &of(file));
    assert_eq!(clash("data/x", "data/x"), Ok(()));
    assert_eq!(clash("data/y", "data/x"), Ok(()));
    for (input, file) in [("data", "data/x"), ("table/x", "table")] {
        assert!(matches!(clash(input, file), Err(SlotClash::Inside { .. })), "{input} beside {file}");
    }
}
