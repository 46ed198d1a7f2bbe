//! Submissions in pieces, without a process around them.

use std::sync::Arc;

use fallow_domain::Flops;
use fallow_store::{SledStore, Store};

use super::*;
use crate::project::settings::ProjectSettings;
use crate::project::types::NewAppVersion;

/// Workunits of one submission, from a place on.
fn piece(offset: u64, count: usize, check_only: bool) -> Piece {
    let workunits = vec![NewWorkunit::new("app", Flops::new(1e9).unwrap()); count];
    Piece { key: "k".into(), digest: "d".into(), total: 12, offset, check_only, workunits }
}

/// A project with an application, and when that is.
fn started(dir: &std::path::Path) -> (Project, Instant) {
    let store: Arc<dyn Store> = Arc::new(SledStore::open(dir.join("store")).unwrap());
    let now = Instant::EPOCH + Duration::from_hours(9);
    let settings = ProjectSettings::default();
    let project = Project::create(store, dir, "http://127.0.0.1:1", "p", settings, now).unwrap();
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
    crate::secret::hex(ring::digest::digest(&ring::digest::SHA256, content).as_ref())
}

/// Workunit `number` of three, which keeps its input as `data`: its content, or the fingerprint of that.
fn keeping(number: u64, content: &[u8], is_named: bool, check_only: bool) -> Piece {
    let mut piece = Piece { total: 3, ..piece(number, 1, check_only) };
    let mut input = NewInput { open_name: "in".into(), keep_as: "data".into(), ..NewInput::default() };
    match is_named {
        true => input.sha256 = fingerprint(content),
        false => input.content = content.to_vec(),
    }
    piece.workunits[0].inputs = vec![input];
    piece
}

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
