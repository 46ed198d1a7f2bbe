//! Master page, configuration, accounts, downloads, keys.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use fallow_boinc::account::{AccountOut, ProjectConfig, create_query, error_num, lookup_query, passwd_hash};
use fallow_boinc::master;
use fallow_work_server::{NewAppVersion, ProjectError, ProjectServer, ProjectSettings};

use crate::fixture::{Fixture, PLATFORM};
use crate::http::{get, request};

fn account(url: &str) -> AccountOut {
    let answer = get(url);
    assert_eq!(answer.status, 200);
    AccountOut::parse(&answer.body).unwrap()
}

#[test]
fn r6_8_the_master_page_names_the_scheduler_in_both_forms() {
    let fixture = Fixture::start();
    let info = fixture.project("p");
    let page = get(info.url.as_str());
    assert_eq!(page.status, 200);
    let scheduler = format!("{}/p/cgi", fixture.base);
    assert_eq!(master::scheduler_urls(&page.body), [scheduler.as_str()]);
    assert!(page.text().contains(&format!("<link rel=\"boinc_scheduler\" href=\"{scheduler}\"")));
    assert!(page.text().contains(&format!("<scheduler>{scheduler}</scheduler>")));
    assert_eq!(get(&format!("{}/q/", fixture.base)).status, 404);
}

#[test]
fn r6_8_the_configuration_says_which_platforms_there_are() {
    let fixture = Fixture::start();
    let info = fixture.project("p");
    fixture.script("p", "app");
    let config = ProjectConfig::parse(&get(&format!("{}get_project_config.php", info.url)).body).unwrap();
    assert_eq!(config.master_url, info.url.as_str());
    assert_eq!(config.platforms.len(), 1);
    assert_eq!(config.platforms[0].platform_name, PLATFORM);
    assert!(config.account_creation_disabled && config.client_account_creation_disabled);
}

#[test]
fn r6_8_an_account_is_made_once_and_found_with_its_password_only() {
    let fixture = Fixture::start();
    let info = fixture.project("p");
    fixture.set("p", "account-creation", "true");
    let url = |query: String| format!("{}{query}", info.url);
    let (email, hash) = ("Alice@example.org", passwd_hash("secret", "Alice@example.org"));
    let AccountOut::Authenticator(key) = account(&url(create_query(email, &hash, "Alice", None))) else {
        panic!("no key")
    };
    assert_eq!(key.reveal().len(), 32);
    assert_eq!(account(&url(lookup_query(email, &hash))), AccountOut::Authenticator(key.clone()));
    assert_eq!(account(&url(create_query(email, &hash, "Alice", None))), AccountOut::Authenticator(key));
    assert_eq!(
        account(&url("lookup_account.php?email_addr=alice%40example%2Eorg".into())),
        AccountOut::Exists
    );

    let other = passwd_hash("other", email);
    for (query, expected) in [
        (lookup_query(email, &other), error_num::BAD_PASSWD),
        (lookup_query("bob@example.org", &hash), error_num::NOT_FOUND),
        (create_query(email, &other, "Alice", None), error_num::NOT_UNIQUE),
        (create_query("nobody", &hash, "Nobody", None), error_num::BAD_EMAIL_ADDR),
        (create_query("c@example.org", &hash, "<b>", None), error_num::BAD_USER_NAME),
        (create_query("c@example.org", "short", "C", None), error_num::BAD_PASSWD),
        ("lookup_account.php".to_owned(), error_num::NOT_FOUND),
    ] {
        let AccountOut::Error { num, .. } = account(&url(query.clone())) else { panic!("{query}") };
        assert_eq!(num, expected, "{query}");
    }
}

#[test]
fn r6_8_the_fleets_account_cannot_be_looked_up() {
    let fixture = Fixture::start();
    let info = fixture.project("p");
    for hash in ["", "00000000000000000000000000000000"] {
        let answer = account(&format!("{}{}", info.url, lookup_query("fleet@p.invalid", hash)));
        assert!(!matches!(answer, AccountOut::Authenticator(_)), "{answer:?}");
    }
}

#[test]
fn r6_10_strangers_get_no_account_unless_the_operator_says_so() {
    let fixture = Fixture::start();
    let info = fixture.server.create_project("closed", ProjectSettings::default()).unwrap();
    let query = create_query("a@example.org", &passwd_hash("x", "a@example.org"), "A", None);
    let answer = account(&format!("{}{query}", info.url));
    assert!(matches!(answer, AccountOut::Error { num: error_num::CREATION_DISABLED, .. }));
    fixture.set("closed", "account-creation", "true");
    assert!(matches!(account(&format!("{}{query}", info.url)), AccountOut::Authenticator(_)));
}

#[test]
fn r6_8_downloads_take_ranges_and_do_not_leave_their_directory() {
    let fixture = Fixture::start();
    let info = fixture.project("p");
    let file = fixture.script("p", "app");
    let url = format!("{}download/{file}", info.url);
    let whole = get(&url);
    assert_eq!((whole.status, whole.body.starts_with(b"#!/bin/sh")), (200, true));
    let part = request("GET", &url, "Range: bytes=2-\r\n", b"");
    assert_eq!((part.status, &part.body[..]), (206, &whole.body[2..]));
    assert!(part.header("content-range").unwrap().starts_with("bytes 2-"));
    let part = request("GET", &url, "Range: bytes=0-1\r\n", b"");
    assert_eq!((part.status, part.body), (206, b"#!".to_vec()));
    assert_eq!(request("GET", &url, "Range: bytes=9999999-\r\n", b"").status, 416);
    let head = request("HEAD", &url, "", b"");
    assert_eq!((head.status, head.body.len()), (200, 0));
    assert_eq!(head.header("content-length").unwrap(), whole.body.len().to_string());

    for bad in [
        "nothing",
        "..%2Fkeys%2Fcode_sign_private",
        "%2e%2e/keys/upload_private",
        "../keys/upload_private",
        "",
    ] {
        let status = get(&format!("{}download/{bad}", info.url)).status;
        assert!(status == 404 || status == 400, "{bad}: {status}");
    }
}

#[test]
fn r6_8_a_file_of_an_application_that_was_changed_is_not_given_out() {
    let mut fixture = Fixture::start();
    let info = fixture.project("p");
    let file = fixture.script("p", "app");
    let url = |fixture: &Fixture| format!("{}download/{file}", fixture.server.project("p").unwrap().url);
    assert_eq!(get(&url(&fixture)).status, 200);
    let path = fixture.dir.path().join("projects/p/download").join(&file);
    let whole = std::fs::read(&path).unwrap();
    std::fs::write(&path, &whole[1..]).unwrap();
    assert_eq!(get(&url(&fixture)).status, 503);
    std::fs::write(&path, &whole).unwrap();
    assert_eq!(get(&url(&fixture)).status, 200);
    // Another content of the same size is found when the project is opened.
    let mut other = whole.clone();
    other[0] ^= 1;
    std::fs::write(&path, &other).unwrap();
    fixture.restart();
    assert_eq!(get(&url(&fixture)).status, 503);
    std::fs::write(&path, &whole).unwrap();
    fixture.restart();
    assert_eq!(get(&url(&fixture)).status, 200);
    drop(info);
}

#[test]
fn r6_8_private_keys_are_for_the_server_only() {
    let mut fixture = Fixture::start();
    fixture.project("p");
    let keys = fixture.dir.path().join("projects/p/keys");
    let mode = |path: &std::path::Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&keys), 0o700);
    for name in ["code_sign_private", "upload_private"] {
        assert_eq!(mode(&keys.join(name)), 0o600, "{name}");
        fs::set_permissions(keys.join(name), fs::Permissions::from_mode(0o644)).unwrap();
    }
    // Whoever opened them to others: they are closed at the next start.
    fs::set_permissions(&keys, fs::Permissions::from_mode(0o755)).unwrap();
    fixture.restart();
    assert_eq!((mode(&keys), mode(&keys.join("code_sign_private"))), (0o700, 0o600));
}

#[test]
fn r6_8_without_the_private_code_signing_key_all_but_adding_versions_works() {
    let mut fixture = Fixture::start();
    fixture.project("p");
    fs::remove_file(fixture.dir.path().join("projects/p/keys/code_sign_private")).unwrap();
    fixture.restart();
    let program = fixture.dir.path().join("program");
    fs::write(&program, "#!/bin/sh\n").unwrap();
    let version = NewAppVersion {
        application: "app".into(),
        version: 100,
        platform: PLATFORM.into(),
        files: vec![program],
        ..NewAppVersion::default()
    };
    let error = fixture.server.add_app_version("p", &version).unwrap_err();
    assert!(matches!(error, ProjectError::KeyElsewhere { .. }), "{error}");
    assert_eq!(get(&format!("{}/p/", fixture.base)).status, 200);
}

#[test]
fn lost_public_keys_are_never_made_anew_in_silence() {
    let mut fixture = Fixture::start();
    fixture.project("p");
    fs::write(fixture.dir.path().join("projects/p/keys/upload_private"), "garbage").unwrap();
    fixture.stop();
    let store = fixture.store();
    let failed = ProjectServer::open(store, &fixture.dir.path().join("projects"), &fixture.base);
    let error = failed.err().expect("garbage is no key");
    assert!(error.to_string().contains("upload_private"), "{error}");
}

#[test]
fn r6_8_everything_is_there_after_a_restart() {
    let mut fixture = Fixture::start();
    let before = fixture.project("p");
    fixture.project("q-2");
    fixture.script("p", "app");
    fixture.restart();
    let projects = fixture.server.projects();
    assert_eq!(projects.iter().map(|info| info.name.as_str()).collect::<Vec<_>>(), ["p", "q-2"]);
    assert_eq!(projects[0], before);
    let config = ProjectConfig::parse(&get(&format!("{}get_project_config.php", before.url)).body).unwrap();
    assert_eq!(config.platforms.len(), 1);
}

#[test]
fn what_operators_get_wrong_is_said() {
    let fixture = Fixture::start();
    fixture.project("p");
    let make = |name: &str| fixture.server.create_project(name, ProjectSettings::default()).unwrap_err();
    assert!(matches!(make("p"), ProjectError::ProjectExists { .. }));
    for bad in ["", "P", "a/b", "..", "9a", "a b"] {
        assert!(matches!(make(bad), ProjectError::Invalid(_)), "{bad}");
    }
    assert!(matches!(fixture.server.counts("x").unwrap_err(), ProjectError::UnknownProject { .. }));
    fixture.script("p", "app");
    let again = fixture.try_script("p", "app").unwrap_err();
    assert!(matches!(again, ProjectError::VersionExists { .. }), "{again}");
}

#[test]
fn r6_8_versions_that_are_added_at_once_are_all_there() {
    let fixture = Fixture::start();
    let info = fixture.project("p");
    let program = fixture.dir.path().join("program");
    std::fs::write(&program, "x").unwrap();
    std::thread::scope(|scope| {
        for number in 0..8 {
            let (server, files) = (&fixture.server, vec![program.clone()]);
            let version = NewAppVersion {
                application: "app".into(),
                friendly_name: String::new(),
                version: 100,
                platform: format!("platform-{number}-linux"),
                files,
                ..NewAppVersion::default()
            };
            scope.spawn(move || server.add_app_version("p", &version).unwrap());
        }
    });
    let config = get(&format!("{}get_project_config.php", info.url)).text();
    for number in 0..8 {
        assert!(config.contains(&format!("platform-{number}-linux")), "{config}");
    }
}

#[test]
fn r6_8_a_file_that_one_application_has_published_is_not_replaced_by_anothers() {
    let fixture = Fixture::start();
    let info = fixture.project("p");
    let add = |application: &str, content: &str| {
        let dir = fixture.dir.path().join(application);
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::write(dir.join("program"), application).unwrap();
        std::fs::write(dir.join("table"), content).unwrap();
        let version = NewAppVersion {
            application: application.into(),
            friendly_name: String::new(),
            version: 100,
            platform: crate::fixture::PLATFORM.into(),
            files: vec![dir.join("program"), dir.join("table")],
            ..NewAppVersion::default()
        };
        fixture.server.add_app_version("p", &version)
    };
    let names = add("first", "1 2 3").unwrap();
    let refused = add("second", "4 5 6").unwrap_err().to_string();
    assert!(refused.contains("rename it"), "{refused}");
    assert_eq!(get(&format!("{}download/{}", info.url, names[1])).text(), "1 2 3");
    // The same content may be shared.
    assert_eq!(add("third", "1 2 3").unwrap()[1], names[1]);
}

#[test]
fn r6_8_of_two_submissions_of_one_name_one_is_kept_with_its_own_input() {
    let fixture = Fixture::start();
    let info = fixture.project("p");
    fixture.script("p", "app");
    for round in 0..10 {
        let name = format!("w{round}");
        let submit = |input: &str| {
            let workunit = crate::fixture::workunit("app", input, 1e9, 1);
            fixture
                .server
                .submit("p", vec![fallow_work_server::NewWorkunit { name: name.clone(), ..workunit }])
        };
        let (one, other) = std::thread::scope(|scope| {
            let one = scope.spawn(|| submit("one"));
            let other = submit("other");
            (one.join().unwrap(), other)
        });
        assert_ne!(one.is_ok(), other.is_ok());
        let kept = if one.is_ok() { "one" } else { "other" };
        assert_eq!(get(&format!("{}download/{name}_in0", info.url)).text(), kept);
    }
}
