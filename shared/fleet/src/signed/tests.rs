//! What hosts accept, against everything that a coordinator in wrong hands can send.

use fallow_domain::{
    AccountKey, DocumentVersion, Duration, FleetDocument, Instant, KeyFingerprint, Labels, MasterUrl,
    OrganisationKey, Preferences, ProjectAssignment, ResourceTypes, Share, SignedDocuments,
};
use proptest::prelude::*;

use super::*;
use crate::{Group, Groups, ProjectWish, Wish};

const NOW: Instant = Instant::from_micros(1_800_000_000_000_000);

fn pair() -> KeyPair {
    let der = ring::signature::Ed25519KeyPair::generate_pkcs8(&ring::rand::SystemRandom::new()).unwrap();
    KeyPair::from_der(der.as_ref()).unwrap()
}

fn project(name: &str, key: &str) -> ProjectAssignment {
    ProjectAssignment {
        name: name.into(),
        url: MasterUrl::parse(&format!("https://{name}.example.org/")).unwrap(),
        account_key: AccountKey::new(key),
        share: Share::given(33.3).unwrap(),
        code_sign_key: None,
        without: ResourceTypes::default(),
    }
}

fn set(projects: &[&str]) -> DocumentSet {
    let group = Group {
        precedence: 10,
        selector: "room=12".parse().unwrap(),
        projects: [(
            "sieve".to_owned(),
            ProjectWish { wish: Some(Wish::Absent), without: None, foreign: None },
        )]
        .into(),
        preferences: Vec::new(),
    };
    let fleet = FleetDocument {
        version: DocumentVersion(7),
        content: "c".into(),
        projects: projects.iter().map(|name| project(name, "a-secret")).collect(),
        preferences: Preferences::default(),
    };
    DocumentSet { fleet, groups: Groups([("room-12".parse().unwrap(), group)].into()) }
}

fn statement(documents: &str, keys: &[&KeyPair], signed_at: Instant) -> Statement {
    Statement {
        authority: "ab".repeat(32),
        content: content_of(documents),
        before: None,
        keys: keys.iter().map(|pair| pair.public()).collect(),
        signed_at,
        good_until: signed_at + Duration::from_hours(24 * 365),
    }
}

fn signed(pair: &KeyPair, documents: &str, signed_at: Instant) -> SignedDocuments {
    pair.sign(&statement(documents, &[pair], signed_at), documents)
}

fn trust(pair: &KeyPair) -> Trust {
    Trust::new("ab".repeat(32), vec![pair.public()])
}

fn form(projects: &[&str]) -> String {
    signed_form(&set(projects)).unwrap()
}

#[test]
fn r6_10_what_is_signed_holds_no_account_key_and_no_version() {
    let documents = form(&["sieve"]);
    assert!(!documents.contains("a-secret"));
    let mut other = set(&["sieve"]);
    (other.fleet.version, other.fleet.projects[0].account_key) = (DocumentVersion(8), AccountKey::new("b"));
    assert_eq!(signed_form(&other).unwrap(), documents);
}

#[test]
fn r6_10_the_key_of_a_projects_programs_is_signed_and_the_coordinator_can_name_no_other() {
    let (pair, key) = (pair(), |byte| Some(KeyFingerprint::new([byte; 32])));
    let mut signing = set(&["sieve"]);
    signing.fleet.projects[0].code_sign_key = key(1);
    let documents = signed_form(&signing).unwrap();
    assert_eq!(super::values_of(&signing)["projects.sieve.code_sign_key"], key(1).unwrap().to_string());
    let accepted = trust(&pair).accept(Some(&signed(&pair, &documents, NOW)), NOW).unwrap();
    for sent_key in [None, key(2)] {
        let mut sent = set(&["sieve"]).fleet;
        sent.projects[0].code_sign_key = sent_key;
        assert_eq!(accepted.document(&Labels::default(), &sent).unwrap().projects[0].code_sign_key, key(1));
    }
}

#[test]
fn r6_10_a_host_works_out_by_itself_what_was_signed_for_it() {
    let (pair, documents) = (pair(), form(&["sieve", "totient"]));
    let accepted = trust(&pair).accept(Some(&signed(&pair, &documents, NOW)), NOW).unwrap();
    // The coordinator says another share, and computing without limits.
    let mut sent = set(&["sieve", "totient"]).fleet;
    (sent.projects[0].share, sent.preferences.suspended) = (Share::given(1.0).unwrap(), true);
    sent.projects[0].account_key = AccountKey::new("this host's own");
    let document = accepted.document(&Labels::default(), &sent).unwrap();
    assert_eq!(document.projects[0].share, Share::given(33.3).unwrap());
    assert_eq!(document.projects[0].account_key.reveal(), "this host's own");
    assert!(!document.preferences.suspended);
    assert_eq!((document.version, document.content.as_str()), (DocumentVersion(7), "c"));
    // In room 12 one project less.
    let labels = Labels::read(["room=12"]).unwrap();
    let error = accepted.document(&labels, &sent).unwrap_err();
    assert_eq!(error, NotAccepted::Unasked { url: "https://sieve.example.org/".into() });
    sent.projects.remove(0);
    assert_eq!(accepted.document(&labels, &sent).unwrap().projects.len(), 1);
    sent.projects.clear();
    let error = accepted.document(&labels, &sent).unwrap_err();
    assert_eq!(error, NotAccepted::NoAccount { url: "https://totient.example.org/".into() });
}

#[test]
fn r6_10_unsigned_wrongly_signed_and_changed_documents_are_refused() {
    let (pair, other, documents) = (pair(), self::pair(), form(&["sieve"]));
    let trust = trust(&pair);
    let good = signed(&pair, &documents, NOW);
    assert!(trust.accept(Some(&good), NOW).is_ok());
    let refused = |offered: Option<&SignedDocuments>| trust.accept(offered, NOW).unwrap_err();
    assert!(matches!(refused(None), NotAccepted::Unsigned { .. }));
    assert!(matches!(refused(Some(&signed(&other, &documents, NOW))), NotAccepted::OtherSignature { .. }));
    let evil = good.taken_back(&form(&["sieve", "evil"]));
    assert_eq!(refused(Some(&evil)), NotAccepted::Content);
    let text = good.statement.replace("signed ", "signed 1");
    let changed = SignedDocuments { statement: text, ..good };
    assert!(matches!(refused(Some(&changed)), NotAccepted::OtherSignature { .. }));
    // What the key signs for another fleet, or for another purpose.
    let elsewhere = Statement { authority: "cd".repeat(32), ..statement(&documents, &[&pair], NOW) };
    let elsewhere = pair.sign(&elsewhere, &documents);
    assert!(matches!(refused(Some(&elsewhere)), NotAccepted::OtherFleet { .. }));
}

#[test]
fn r6_10_older_expired_and_future_signatures_are_refused_and_the_newest_holds_for_ever() {
    let (pair, old, new) = (pair(), form(&["old"]), form(&["new"]));
    let day = Duration::from_hours(24);
    let first = signed(&pair, &old, NOW);
    let second = signed(&pair, &new, NOW + day);
    let trust = trust(&pair).accept(Some(&first), NOW).unwrap().trust;
    let trust = trust.accept(Some(&second), NOW + day).unwrap().trust;
    let refused = |offered: &SignedDocuments, now| trust.accept(Some(offered), now).unwrap_err();
    assert!(matches!(refused(&first, NOW + day), NotAccepted::Older { .. }));
    // Of the same instant, and something else.
    let twin = signed(&pair, &old, NOW + day);
    assert!(matches!(refused(&twin, NOW + day), NotAccepted::Older { .. }));
    assert!(matches!(refused(&signed(&pair, &old, NOW + day.mul_f64(9.0)), NOW), NotAccepted::Ahead { .. }));
    let years = NOW + day.mul_f64(1_000.0);
    assert!(matches!(
        refused(&signed(&pair, &old, NOW + day.mul_f64(2.0)), years),
        NotAccepted::Expired { .. }
    ));
    assert!(trust.accept(Some(&second), years).is_ok(), "what a host follows it goes on to follow");
}

#[test]
fn r6_10_a_host_is_taken_back_to_what_the_newest_statement_names_and_to_nothing_else() {
    let (pair, bad, before, ancient) = (pair(), form(&["bad"]), form(&["before"]), form(&["ancient"]));
    let statement = Statement { before: Some(content_of(&before)), ..statement(&bad, &[&pair], NOW) };
    let offered = pair.sign(&statement, &bad);
    let trust = trust(&pair).accept(Some(&offered), NOW).unwrap().trust;
    let back = trust.accept(Some(&offered.taken_back(&before)), NOW).unwrap();
    assert_eq!(back.set.fleet.projects[0].name, "before");
    assert_eq!(trust.accept(Some(&offered.taken_back(&ancient)), NOW), Err(NotAccepted::Content));
}

#[test]
fn r6_10_the_old_key_brings_in_the_new_one_which_takes_the_old_ones_place() {
    let (old, new, documents) = (self::pair(), self::pair(), form(&["sieve"]));
    let hour = Duration::from_hours(1);
    let both = old.sign(&statement(&documents, &[&old, &new], NOW), &documents);
    let alone = new.sign(&statement(&documents, &[&new], NOW + hour), &documents);
    let trust = trust(&old);
    assert!(trust.accept(Some(&alone), NOW).is_err());
    let trust = trust.accept(Some(&both), NOW).unwrap().trust;
    let trust = trust.accept(Some(&alone), NOW).unwrap().trust;
    assert_eq!(trust.keys, [new.public()]);
    // Whoever names the old one means the same organisation.
    assert!(trust.knows(&old.public()) && trust.knows(&new.public()) && !trust.knows(&pair().public()));
    assert_eq!(trust.former, [old.public()]);
    let late = signed(&old, &documents, NOW + hour.mul_f64(2.0));
    assert!(matches!(trust.accept(Some(&late), NOW), Err(NotAccepted::OtherSignature { .. })));
}

#[test]
fn r6_10_keys_that_openssl_makes_are_read_and_anything_else_is_no_key() {
    // PKCS#8 without the public part, as `openssl genpkey -algorithm ed25519 -outform DER` writes it: the
    // first key of RFC 8032, section 7.1.
    let seed = "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60";
    let der = fallow_domain::from_hex(&format!("302e020100300506032b657004220420{seed}")).unwrap();
    let public = KeyPair::from_der(&der).unwrap().public();
    assert_eq!(
        public.to_string(),
        "ed25519:d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"
    );
    assert_eq!(KeyPair::from_der(b"").unwrap_err(), KeyPairError::NoKey);
    assert_eq!(KeyPair::from_der(&der[1..]).unwrap_err(), KeyPairError::NoKey);
}

/// Documents with a change of the set, and all of it shown.
fn with(change: impl FnOnce(&mut DocumentSet)) -> Result<DocumentSet, NotSignable> {
    let mut documents = set(&["sieve"]);
    change(&mut documents);
    signable(&signed_form(&documents).unwrap())
}

#[test]
fn r6_10_documents_that_say_more_than_a_signer_is_shown_are_not_to_be_signed() {
    let good = form(&["sieve"]);
    assert_eq!(signed_form(&signable(&good).unwrap()).unwrap(), good);
    // Of two projects with one name hosts would attach to both.
    let error = with(|set| {
        let evil = MasterUrl::parse("https://evil.example.org/").unwrap();
        let evil = ProjectAssignment { url: evil, ..set.fleet.projects[0].clone() };
        set.fleet.projects.insert(0, evil);
    });
    assert_eq!(error, Err(NotSignable::Conflict("projects.sieve.url is said twice".into())));
    let error = with(|set| {
        let group = set.groups.0.values_mut().next().unwrap();
        group.preferences = vec![crate::Preference::Suspended(true), crate::Preference::Suspended(false)];
    });
    assert!(matches!(error, Err(NotSignable::Conflict(_))), "{error:?}");
    // What this release would pass over, and a later one might follow.
    let more = good.replacen('{', "{\"more\":1,", 1);
    assert!(serde_json::from_str::<DocumentSet>(&more).is_ok());
    assert_eq!(signable(&more), Err(NotSignable::Form));
    assert_eq!(signable(&good.replace("33.3", "33.30")), Err(NotSignable::Form));
    let huge = format!("{good}{}", " ".repeat(SIGNED_BYTES_MAX));
    assert!(matches!(signable(&huge), Err(NotSignable::Size(_))));
}

#[test]
fn r6_10_no_name_hides_the_value_of_another_and_alike_names_are_told_apart() {
    let place = |url: &str| {
        let foreign = crate::Foreign {
            url: MasterUrl::parse(url).unwrap(),
            account_key: AccountKey::new(""),
            code_sign_key: None,
        };
        ProjectWish { foreign: Some(foreign), ..ProjectWish::share(Share::given(5.0).unwrap()) }
    };
    let shown = with(|set| {
        let group = set.groups.0.values_mut().next().unwrap();
        group.projects.insert("p".into(), place("https://evil.example.org/"));
        group.projects.insert("p.url".into(), place("https://good.example.org/"));
        set.fleet.projects.push(project("primes", ""));
        set.fleet
            .projects
            .push(ProjectAssignment { name: "pr\u{456}mes\u{200b}".into(), ..project("other", "") });
    });
    let values = values_of(&shown.unwrap());
    let urls = values.values().filter(|value| value.starts_with("https://")).count();
    assert_eq!(urls, 5, "{values:?}");
    assert_eq!(values["groups.room-12.projects.p.url"], "https://evil.example.org/");
    assert_eq!(values["groups.room-12.projects.\"p.url\".url"], "https://good.example.org/");
    assert!(values.contains_key("projects.\"pr\\u{456}mes\\u{200b}\".url"), "{values:?}");
}

#[test]
fn r6_10_lists_that_differ_look_different_to_whoever_signs_them() {
    let naming = |names: &[&str]| {
        let mut set = set(&["sieve"]);
        set.fleet.preferences.local.exclusive_programs = names.iter().map(|name| (*name).into()).collect();
        let group = set.groups.0.values_mut().next().unwrap();
        let programs = names.iter().map(|name| (*name).into()).collect();
        group.preferences = vec![crate::Preference::ExclusiveGpuPrograms(programs)];
        set
    };
    let pairs: [[&[&str]; 2]; 2] = [[&[], &["none"]], [&["a, b"], &["a", "b"]]];
    for pair in pairs {
        let [before, after] = pair.map(naming);
        let found = crate::said_differences(&before, &after);
        let keys: Vec<_> = found.iter().map(|one| one.key.as_str()).collect();
        let expected =
            ["groups.room-12.preferences.exclusive_gpu_programs", "preferences.exclusive_programs"];
        assert_eq!(keys, expected, "{pair:?}");
    }
    let values = values_of(&naming(&["a, b", "bl\u{435}nder"]));
    assert_eq!(values["preferences.exclusive_programs"], "\"a, b\", \"bl\\u{435}nder\"");
}

#[test]
fn r6_5_every_value_that_differs_is_named_and_of_account_keys_only_that_there_is_another() {
    let place = |key: &str| {
        let url = MasterUrl::parse("https://far.example.org/").unwrap();
        let foreign = crate::Foreign { url, account_key: AccountKey::new(key), code_sign_key: None };
        ProjectWish { foreign: Some(foreign), ..ProjectWish::share(Share::given(5.0).unwrap()) }
    };
    let old = set(&["sieve", "primes"]);
    let mut new = set(&["sieve", "sums"]);
    new.fleet.version = DocumentVersion(8);
    let group = new.groups.0.values_mut().next().unwrap();
    group.precedence = 11;
    group.projects.insert("far".into(), place("b-secret"));
    new.fleet.projects[0].account_key = AccountKey::new("c-secret");
    let said = |before: &DocumentSet, after: &DocumentSet| -> Vec<String> {
        let text = |value: Option<String>| value.unwrap_or_else(|| "-".into());
        said_differences(before, after)
            .into_iter()
            .map(|one| format!("{} {} {}", one.key, text(one.before), text(one.after)))
            .collect()
    };
    let expected = [
        "groups.room-12.precedence 10 11",
        "groups.room-12.projects.far - share 5",
        "groups.room-12.projects.far.url - https://far.example.org/",
        "projects.primes.share 33.3 -",
        "projects.primes.url https://primes.example.org/ -",
        "projects.sieve.account_key one another",
        "projects.sums.share - 33.3",
        "projects.sums.url - https://sums.example.org/",
    ];
    assert_eq!(said(&old, &new), expected);
    assert_eq!(said(&new, &new.clone()), [""; 0]);
    let mut other = new.clone();
    let group = other.groups.0.values_mut().next().unwrap();
    group.projects.insert("far".into(), place("d-secret"));
    assert_eq!(said(&new, &other), ["groups.room-12.projects.far.account_key one another"]);
    assert!(!format!("{:?}", said_differences(&old, &other)).contains("secret"));
}

proptest! {
    #[test]
    fn r6_10_a_statement_has_one_text_and_no_other_text_is_one(at in any::<usize>(), byte in any::<u8>()) {
        let statement = Statement {
            before: Some(content_of("b")),
            keys: vec![OrganisationKey::new([1; 32]), OrganisationKey::new([2; 32])],
            ..statement("a", &[], NOW)
        };
        let text = statement.text();
        prop_assert_eq!(Statement::parse(&text), Ok(statement.clone()));
        let mut bytes = text.clone().into_bytes();
        let at = at % bytes.len();
        bytes[at] = byte;
        if let Ok(changed) = String::from_utf8(bytes) && changed != text {
            prop_assert_ne!(Statement::parse(&changed), Ok(statement));
        }
    }

    #[test]
    fn r6_10_no_bytes_are_accepted_that_the_key_has_not_signed(
        statement in ".{0,300}", signature in prop::collection::vec(any::<u8>(), 0..80), documents in ".{0,300}",
    ) {
        let trust = Trust::new("ab".repeat(32), vec![OrganisationKey::new([7; 32]), pair().public()]);
        let offered = SignedDocuments { statement, signature, documents };
        prop_assert!(trust.accept(Some(&offered), NOW).is_err());
    }
}
