//! A code-signing key that the coordinator's document names: no other signs a project's programs (R6.10).

use fallow_boinc::scheduler::{FileRef, SchedulerReply};
use fallow_boinc::signature::{PrivateKey, PublicKey};
use fallow_client::Event;
use fallow_domain::{AccountKey, DocumentVersion, FleetDocument, Preferences, ProjectAssignment, Share};
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
    };
    Event::DocumentOffered(FleetDocument {
        content: String::new(),
        version: DocumentVersion(version),
        projects: vec![project],
        preferences: Preferences::default(),
    })
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
    assert!(program.signed);
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
    let mut more = SchedulerReply::default();
    add_job(&mut more, "app", 1, "more");
    let request = bench.answer(&more);
    assert_eq!(request.code_sign_key, None);
    assert_eq!(bench.started.len(), 1, "the program lies there, signed by the former key");
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
        assert!(bench.started.iter().all(|task| task.application.len() == 1 && task.application[0].signed));
    }
}

#[test]
fn r6_10_a_job_that_brings_a_library_or_takes_the_place_of_a_signed_file_is_not_started() {
    for (name, place, needs_key, starts) in [
        ("evil", "helper", false, false),
        ("evil", "libm.so.6", true, false),
        ("libm.so.6", "table", true, false),
        ("libm.so.6", "table", false, true),
        ("table", "table", true, true),
        ("numbers.sorted", "model.sol", true, true),
        ("helper_1", "helper", true, true),
    ] {
        let mut bench = Bench::new();
        bench.downloads_end = true;
        if needs_key {
            bench.turn(document(1, Some(&key())));
        }
        let mut offered = reply(CODE_SIGN_KEY, 1);
        let mut helper = file("helper_1");
        helper.file_signature = Some("00\n.".to_owned());
        offered.files.push(helper);
        offered.files.push(file(name));
        offered.app_versions[0].files.push(FileRef { open_name: Some("helper".into()), ..refer("helper_1") });
        offered.workunits[0].files.push(FileRef { open_name: Some(place.into()), ..refer(name) });
        bench.answer(&offered);
        assert_eq!(bench.started.len(), usize::from(starts), "{name} as {place}: {:?}", bench.notices);
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
}
