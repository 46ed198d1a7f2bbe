//! Programs that are signed elsewhere (R6.10).

use std::path::Path;

use fallow_boinc::signature::{PrivateKey, md5_hex};
use fallow_work_server::{NewAppVersion, ProjectError, ProjectSettings};

use crate::fixture::Fixture;

/// Files of the server whose name begins so.
fn files(fixture: &Fixture, name: &str) -> usize {
    fn below(dir: &Path, name: &str) -> usize {
        let entries = std::fs::read_dir(dir).unwrap().map(Result::unwrap);
        let count = |entry: std::fs::DirEntry| match entry.file_type().unwrap().is_dir() {
            true => below(&entry.path(), name),
            false => usize::from(entry.file_name().to_string_lossy().starts_with(name)),
        };
        entries.map(count).sum()
    }
    below(fixture.dir.path(), name)
}

/// A code-signing key that the server never has.
fn key_elsewhere(seed: u8) -> PrivateKey {
    let mut next = u64::from(seed);
    let mut fill = |bytes: &mut [u8]| {
        for byte in bytes {
            next = next.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            *byte = (next >> 56) as u8;
        }
    };
    PrivateKey::generate(&mut fill).unwrap()
}

#[test]
fn r6_10_programs_of_a_project_whose_key_is_kept_elsewhere_come_signed_or_not_at_all() {
    let fixture = Fixture::start();
    let (key, stranger) = (key_elsewhere(1), key_elsewhere(2));
    let public = key.public_key();
    let made =
        fixture.server.create_project_signed_by("p", ProjectSettings::default(), Some(&public)).unwrap();
    assert_eq!((made.code_sign_key, made.is_signed_elsewhere), (public.fingerprint(), true));
    let program = fixture.dir.path().join("program");
    std::fs::write(&program, b"#!/bin/sh\n").unwrap();
    let sign =
        |key: &PrivateKey| key.sign_file(&md5_hex(b"#!/bin/sh\n"), &mut |bytes| bytes.fill(7)).unwrap();
    let add = |version: u32, signatures: Vec<String>| {
        let files = vec![program.clone()];
        let new = NewAppVersion {
            application: "app".into(),
            version,
            platform: "x86_64-pc-linux-gnu".into(),
            files,
            signatures,
            ..NewAppVersion::default()
        };
        fixture.server.add_app_version("p", &new)
    };
    let error = add(100, Vec::new()).unwrap_err();
    assert!(matches!(error, ProjectError::KeyElsewhere { .. }), "{error}");
    let error = add(100, vec![sign(&stranger)]).unwrap_err();
    assert!(matches!(error, ProjectError::WrongSignature { .. }), "{error}");
    assert_eq!(files(&fixture, "app_1.00"), 0, "nothing is published that is not signed");
    add(100, vec![sign(&key)]).unwrap();
    assert_eq!(files(&fixture, "app_1.00"), 1);
    assert_eq!((files(&fixture, "code_sign_public"), files(&fixture, "code_sign_private")), (1, 0));
    let again = fixture.server.create_project_signed_by("p", ProjectSettings::default(), Some(&public));
    assert!(matches!(again.unwrap_err(), ProjectError::ProjectExists { .. }));
}

#[test]
fn r6_10_a_project_whose_making_stopped_half_way_does_not_get_a_key_of_the_servers_own() {
    let fixture = Fixture::start();
    let public = key_elsewhere(1).public_key();
    let keys = fixture.dir.path().join("projects/p/keys");
    std::fs::create_dir_all(&keys).unwrap();
    std::fs::write(keys.join("code_sign_public"), format!("{}\n", public.to_text())).unwrap();
    let error = fixture.server.create_project("p", ProjectSettings::default()).unwrap_err();
    assert!(matches!(error, ProjectError::Key { .. }), "{error}");
    assert_eq!(files(&fixture, "code_sign_private"), 0);
    fixture.server.create_project_signed_by("p", ProjectSettings::default(), Some(&public)).unwrap();
}
