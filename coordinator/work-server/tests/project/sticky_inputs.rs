//! Inputs that hosts keep: one name, one content, for all workunits that read it.

use std::fs;

use fallow_domain::Duration;
use fallow_work_server::NewWorkunit;

use crate::fixture::{Fixture, workunit};

/// A workunit that keeps its input as `rice`.
fn reads(name: &str, content: &str) -> NewWorkunit {
    let mut workunit = workunit("app", content, 1e11, 1);
    workunit.name = name.to_owned();
    workunit.inputs[0].keep_as = "rice".to_owned();
    workunit
}

fn started() -> Fixture {
    let fixture = Fixture::start();
    fixture.project("p");
    fixture.script("p", "app");
    fixture
}

/// Shows R6.8.
#[test]
fn two_contents_under_one_name_are_refused_together_and_either_is_taken_after_that() {
    let fixture = started();
    let mixed = vec![reads("a", "first"), reads("b", "second")];
    let why = fixture.server.submit("p", mixed).unwrap_err().to_string();
    assert!(why.contains("workunit 2 of the submission") && why.contains("rice"), "{why}");
    let kept = fixture.dir.path().join("projects/p/download/kept_rice");
    assert!(!kept.exists());
    fixture.server.submit("p", vec![reads("a", "second"), reads("b", "second")]).unwrap();
    assert_eq!(fs::read(kept).unwrap(), b"second");
}

/// Shows R6.8.
#[test]
fn a_kept_file_of_a_submission_whose_files_could_not_be_written_does_not_block_its_name() {
    let fixture = started();
    let download = fixture.dir.path().join("projects/p/download");
    // In the way of the second workunit's own input.
    fs::create_dir(download.join("b_in0")).unwrap();
    let own = NewWorkunit { name: "b".to_owned(), ..workunit("app", "x", 1e11, 1) };
    fixture.server.submit("p", vec![reads("a", "first"), own.clone()]).unwrap_err();
    fs::remove_dir(download.join("b_in0")).unwrap();
    fixture.server.submit("p", vec![reads("a", "corrected"), own]).unwrap();
    assert_eq!(fs::read(download.join("kept_rice")).unwrap(), b"corrected");
}

/// Shows R6.8.
#[test]
fn what_a_killed_server_left_of_a_submission_that_nobody_repeats_is_gone_some_time_after_it_was_started_again()
 {
    let mut fixture = started();
    let own = NewWorkunit { name: "b".to_owned(), ..workunit("app", "x", 1e11, 1) };
    fixture.server.submit("p", vec![reads("a", "first"), own]).unwrap();
    let download = fixture.dir.path().join("projects/p/download");
    let left = ["c_in0", "c_in1", "kept_wheat"].map(|name| download.join(name));
    left.iter().for_each(|path| fs::write(path, "x").unwrap());
    fixture.restart();
    fixture.server.run_background_work().unwrap();
    assert!(left.iter().all(|path| path.exists()), "its submission may be repeated");
    fixture.advance(Duration::from_hours(25));
    fixture.server.run_background_work().unwrap();
    assert!(!left.iter().any(|path| path.exists()));
    assert!(["b_in0", "kept_rice"].iter().all(|name| download.join(name).exists()));
}

#[test]
fn r6_8_no_name_of_a_kept_input_is_in_the_way_of_another() {
    let fixture = started();
    let keeps = |name: &str, keep_as: &str, content: &str| {
        let mut workunit = reads(name, content);
        workunit.inputs[0].keep_as = keep_as.to_owned();
        workunit
    };
    fixture.server.submit("p", vec![keeps("a", "rice.new", "first")]).unwrap();
    fixture.server.submit("p", vec![keeps("b", "rice", "second")]).unwrap();
    let kept = |name: &str| fs::read(fixture.dir.path().join("projects/p/download").join(name)).unwrap();
    assert_eq!((kept("kept_rice.new"), kept("kept_rice")), (b"first".to_vec(), b"second".to_vec()));
}
