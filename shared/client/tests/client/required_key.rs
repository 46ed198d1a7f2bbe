//! A code-signing key that the coordinator's document names: no other signs a project's programs (R6.10).

use fallow_boinc::scheduler::{FileInfo, FileRef, SchedulerReply};
use fallow_boinc::signature::{PrivateKey, PublicKey};
use fallow_client::{Event, FileKey};
use fallow_domain::{
    AccountKey, Bytes, DocumentVersion, FleetDocument, Preferences, ProjectAssignment, ResourceTypes, Share,
};
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng as _, SeedableRng as _};

use crate::hand::{Bench, KEY, add_job, add_version, file, refer, url};
use crate::world::CODE_SIGN_KEY;

/// Another key than [`CODE_SIGN_KEY`].
fn other_key() -> PublicKey {
    let mut random = Pcg64Mcg::seed_from_u64(7);
    PrivateKey::generate(&mut |bytes| random.fill_bytes(bytes)).unwrap().public_key()
}

fn key() -> PublicKey {
    PublicKey::parse(CODE_SIGN_KEY).unwrap()
}

/// A document that names a key of the project, or none.
fn document(version: u64, key: Option<&PublicKey>) -> Event {
    let project = ProjectAssignment {
        name: "p".to_owned(),
        url: url(),
        account_key: AccountKey::new(KEY),
        share: Share::DEFAULT,
        code_sign_key: key.map(PublicKey::fingerprint),
        without: ResourceTypes::default(),
    };
    Event::DocumentOffered(
        FleetDocument {
            content: String::new(),
            version: DocumentVersion(version),
            projects: vec![project],
            preferences: Preferences::default(),
        }
        .into(),
    )
}

/// A reply with this key and a job of a program that is said to be signed by it.
fn reply(key: &str, number: u32) -> SchedulerReply {
    let mut reply = SchedulerReply { code_sign_key: Some(key.to_owned()), ..SchedulerReply::default() };
    add_version(&mut reply, "app", number);
    reply.files[0].file_signature = Some("00\n.".to_owned());
    add_job(&mut reply, "app", number, &format!("job{number}"));
    reply
}

/// The keys by which the program of the last task that began may be signed.
fn signers(bench: &Bench) -> Vec<String> {
    let program = &bench.started.last().unwrap().application[0];
    program.signatures.iter().map(|one| one.key.clone()).collect()
}

#[test]
fn r6_10_a_key_that_the_document_does_not_name_signs_nothing() {
    let mut bench = Bench::new();
    bench.downloads_end = true;
    bench.turn(document(1, Some(&other_key())));
    bench.answer(&reply(CODE_SIGN_KEY, 1));
    let said =
        format!("the project's code-signing key is {}, and the fleet's documents name", key().fingerprint());
    assert_eq!(bench.notices_with(&said), 1, "{:?}", bench.notices);
    assert!(bench.started.is_empty(), "it has taken a job of which it runs nothing");
    assert_eq!(bench.stored("job/"), 0);
    let early = bench.now + fallow_domain::Duration::from_mins(59);
    while bench.now < early {
        bench.now = bench.now + fallow_domain::Duration::from_mins(1);
        bench.turn(Event::WakeUp);
    }
    assert!(bench.request.is_none(), "it is asked again within the hour");
    bench.restart();
    let request = bench.answer(&reply(&other_key().to_text(), 2));
    assert_eq!(request.code_sign_key, None);
    let request = bench.answer(&SchedulerReply::default());
    assert_eq!(request.code_sign_key, Some(other_key().to_text()));
    assert!(signers(&bench).iter().all(|key| *key == other_key().to_text()));
}

#[test]
fn r6_10_a_key_that_was_taken_on_trust_is_forgotten_with_what_it_signed_when_the_document_names_another() {
    let mut bench = Bench::new();
    bench.downloads_end = true;
    bench.answer(&reply(CODE_SIGN_KEY, 1));
    assert!(signers(&bench).contains(&CODE_SIGN_KEY.to_owned()));
    bench.turn(document(1, Some(&other_key())));
    // The request that was on its way.
    bench.answer(&SchedulerReply::default());
    let mut more = SchedulerReply { code_sign_key: Some(other_key().to_text()), ..SchedulerReply::default() };
    add_job(&mut more, "app", 1, "more");
    let request = bench.answer(&more);
    assert_eq!(request.code_sign_key, None);
    // The shell compares what lies there, signed by the former key, with what this one has signed.
    assert_eq!(bench.started.len(), 2);
    assert_eq!(signers(&bench), [other_key().to_text()]);
    // Nobody signed the change from one to the other but who named it in the document.
    bench.turn(document(2, Some(&key())));
    bench.answer(&SchedulerReply {
        code_sign_key: Some(CODE_SIGN_KEY.to_owned()),
        ..SchedulerReply::default()
    });
    assert_eq!(bench.answer(&SchedulerReply::default()).code_sign_key.as_deref(), Some(CODE_SIGN_KEY));
}

#[test]
fn r6_10_a_key_that_no_document_names_any_more_is_as_one_that_was_taken_on_trust() {
    let mut bench = Bench::new();
    bench.turn(document(1, Some(&key())));
    let offered =
        |key: &str| SchedulerReply { code_sign_key: Some(key.to_owned()), ..SchedulerReply::default() };
    bench.answer(&offered(CODE_SIGN_KEY));
    bench.turn(document(2, None));
    bench.answer(&offered(&other_key().to_text()));
    assert_eq!(bench.notices_with("without a signature by the one held"), 1, "{:?}", bench.notices);
    assert_eq!(bench.answer(&SchedulerReply::default()).code_sign_key.as_deref(), Some(CODE_SIGN_KEY));
}

#[test]
fn r6_10_a_program_that_is_described_after_its_version_needs_its_signature_as_any() {
    for needs_key in [true, false] {
        let mut bench = Bench::new();
        bench.downloads_end = true;
        if needs_key {
            bench.turn(document(1, Some(&key())));
        }
        let mut first =
            SchedulerReply { code_sign_key: Some(CODE_SIGN_KEY.to_owned()), ..SchedulerReply::default() };
        add_version(&mut first, "app", 1);
        let described = std::mem::take(&mut first.files);
        bench.answer(&first);
        let mut second = SchedulerReply { files: described, ..SchedulerReply::default() };
        add_job(&mut second, "app", 1, "job");
        bench.answer(&second);
        let downloads: Vec<_> = bench.begun.iter().filter(|one| one.file.name == "app_1").collect();
        assert!(!downloads.is_empty() && downloads.iter().all(|one| one.signature.is_some()));
        assert_eq!(bench.started.len(), 1);
        assert!(
            bench.started[0].application.len() == 1 && bench.started[0].application[0].signatures.is_empty()
        );
    }
}

#[test]
fn r6_10_a_job_that_brings_a_library_or_takes_the_place_of_a_signed_file_is_not_started() {
    for (name, place, is_output, needs_key, starts) in [
        ("evil", "helper", false, false, false),
        ("evil", "libm.so.6", false, true, false),
        ("libm.so.6", "table", false, true, false),
        ("libm.so.6", "table", false, false, true),
        ("table", "table", false, true, true),
        ("numbers.sorted", "model.sol", false, true, true),
        ("helper_1", "helper", false, true, true),
        ("libours.so", "libours.so", false, true, true),
        // What a job writes is no program, and is not written over one.
        ("helper_1", "helper", true, false, false),
        ("libours.so", "table", true, false, false),
        ("libm.so.6", "table", true, true, false),
        ("table", "libm.so.6", true, true, false),
        ("table", "table", true, true, true),
    ] {
        let mut bench = Bench::new();
        bench.downloads_end = true;
        if needs_key {
            bench.turn(document(1, Some(&key())));
        }
        let mut offered = reply(CODE_SIGN_KEY, 1);
        for (ours, open_name) in [("helper_1", "helper"), ("libours.so", "libours.so")] {
            let signed = FileInfo { file_signature: Some("00\n.".to_owned()), ..file(ours) };
            offered.files.push(signed);
            offered.app_versions[0].files.push(FileRef { open_name: Some(open_name.into()), ..refer(ours) });
        }
        offered.files.push(file(name));
        let place_of = FileRef { open_name: Some(place.into()), ..refer(name) };
        match is_output {
            true => offered.results[0].files.push(place_of),
            false => offered.workunits[0].files.push(place_of),
        }
        bench.answer(&offered);
        let row = format!("{name} as {place}, an output: {is_output}");
        assert_eq!(bench.started.len(), usize::from(starts), "{row}: {:?}", bench.notices);
    }
}

#[test]
fn r6_10_a_library_that_came_for_another_job_needs_a_signature_too() {
    let mut bench = Bench::new();
    bench.downloads_end = true;
    bench.turn(document(1, Some(&key())));
    let mut offered = reply(CODE_SIGN_KEY, 1);
    offered.files.push(file("libm.so.6"));
    offered.workunits[0].files.push(FileRef { open_name: Some("table".into()), ..refer("libm.so.6") });
    let downloads = bench.downloads_of(&offered);
    let signed = |name: &str| downloads.iter().find(|one| one.file.name == name).unwrap().signature.is_some();
    assert!(signed("libm.so.6") && signed("app_1") && !signed("job1_in"));
}

#[test]
fn r6_10_who_brings_jobs_and_shows_no_key_where_one_is_required_brings_none() {
    let mut bench = Bench::new();
    bench.downloads_end = true;
    bench.turn(document(1, Some(&key())));
    let shown = SchedulerReply { code_sign_key: None, ..reply(CODE_SIGN_KEY, 1) };
    bench.answer(&shown);
    assert_eq!((bench.stored("job/"), bench.started.len()), (0, 0));
    assert_eq!(bench.notices_with("shows no code-signing key"), 1, "{:?}", bench.notices);
}

/// A reply with a job that brings a library among its inputs.
fn with_library(number: u32) -> SchedulerReply {
    let mut offered = reply(CODE_SIGN_KEY, number);
    offered.files.push(file("libm.so.6"));
    offered.workunits[0].files.push(FileRef { open_name: Some("table".into()), ..refer("libm.so.6") });
    offered
}

#[test]
fn r6_10_a_library_that_was_here_before_a_key_was_named_goes() {
    for is_restarted in [false, true] {
        let mut bench = Bench::new();
        bench.downloads_end = true;
        let mut brought = with_library(1);
        brought.files.iter_mut().for_each(|file| file.sticky = true);
        bench.answer(&brought);
        assert_eq!(bench.started.len(), 1);
        let begun = bench.begun.len();
        bench.turn(document(1, Some(&key())));
        if is_restarted {
            let here = |name: &str| (FileKey { project: bench.project, name: name.to_owned() }, Bytes(10));
            bench.restart_with(["app_1", "job1_in", "libm.so.6"].map(here).to_vec());
        }
        assert!(bench.deleted.contains(&"libm.so.6".to_owned()), "{:?}", bench.deleted);
        assert!(!bench.deleted.contains(&"app_1".to_owned()), "{:?}", bench.deleted);
        let mut more =
            SchedulerReply { code_sign_key: Some(CODE_SIGN_KEY.to_owned()), ..SchedulerReply::default() };
        add_job(&mut more, "app", 1, "more");
        more.workunits[0].files.push(refer("libm.so.6"));
        bench.answer(&more);
        let again: Vec<_> = bench.begun[begun..].iter().filter(|one| one.file.name == "libm.so.6").collect();
        assert!(!again.is_empty() && again.iter().all(|one| one.signature.is_some()), "{again:?}");
    }
}

#[test]
fn r6_10_a_library_that_the_named_key_has_signed_stays() {
    let mut bench = Bench::new();
    bench.downloads_end = true;
    let mut offered = reply(CODE_SIGN_KEY, 1);
    offered.files.push(FileInfo { file_signature: Some("00\n.".to_owned()), ..file("libours.so") });
    offered.app_versions[0].files.push(refer("libours.so"));
    bench.answer(&offered);
    bench.turn(document(1, Some(&key())));
    assert!(bench.deleted.is_empty(), "{:?}", bench.deleted);
    bench.turn(document(2, Some(&other_key())));
    assert_eq!(bench.deleted, ["libours.so"]);
}

#[test]
fn r6_10_a_program_on_its_way_when_a_key_is_named_is_checked_by_that_key() {
    let mut bench = Bench::new();
    bench.answer(&reply(CODE_SIGN_KEY, 1));
    assert!(bench.begun.iter().any(|one| one.file.name == "app_1"));
    let begun = bench.begun.len();
    bench.turn(document(1, Some(&other_key())));
    assert_eq!(bench.cancelled, ["app_1"]);
    bench.turn(Event::WakeUp);
    let again: Vec<_> = bench.begun[begun..].iter().filter(|one| one.file.name == "app_1").collect();
    let keys: Vec<_> = again.iter().map(|one| one.signature.as_ref().map(|one| one.key.clone())).collect();
    assert_eq!(keys, [Some(String::new())], "it is begun again, with no key that could prove it yet");
}

#[test]
fn r6_10_once_the_documents_name_the_right_key_the_project_is_asked_at_once() {
    let mut bench = Bench::new();
    bench.downloads_end = true;
    bench.turn(document(1, Some(&other_key())));
    bench.answer(&reply(CODE_SIGN_KEY, 1));
    assert!(bench.request.is_none());
    bench.turn(document(2, Some(&key())));
    bench.turn(Event::WakeUp);
    assert!(bench.request.is_some(), "the hour was for the other key");
    bench.answer(&reply(CODE_SIGN_KEY, 2));
    assert_eq!(bench.started.len(), 1);
}
