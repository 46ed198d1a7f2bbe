//! `fallow operators` against a running coordinator (R6.10).
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests: failures are panics")]

mod support;

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Output;

use serde_json::Value;
use support::{Running, fallow, text};

fn done(dir: &Path, arguments: &[&str]) -> String {
    let output = fallow(dir, arguments);
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", text(&output));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn r6_10_an_operator_works_with_his_one_line_until_it_is_revoked_and_hears_why_he_is_refused() {
    let (dir, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (dir, elsewhere) = (dir.path(), elsewhere.path());
    let mut running = Running::start(dir);
    done(dir, &["project", "create", "sieve"]);
    let file = elsewhere.join("ann.token");
    let line = done(dir, &["operators", "create", "ann", "--role", "viewer"]);
    assert_eq!(line.lines().count(), 1);
    std::fs::write(&file, line).unwrap();
    let as_ann = |arguments: &[&str]| -> Output {
        fallow(elsewhere, &[arguments, &["--operator-token-file", file.to_str().unwrap()]].concat())
    };
    for allowed in [&["hosts"][..], &["projects"], &["shares", "show"], &["project", "show", "sieve"]] {
        let output = as_ann(allowed);
        assert_eq!(output.status.code(), Some(0), "{allowed:?}: {}", text(&output));
        assert!(!text(&output).contains("account key"), "{}", text(&output));
    }
    for refused in [&["shares", "set", "sieve=5"][..], &["operators", "list"], &["audit"]] {
        let output = as_ann(refused);
        assert_eq!(output.status.code(), Some(5), "{refused:?}: {}", text(&output));
        for said in ["ann has the role viewer", "needs the role ", "ask an administrator"] {
            assert!(text(&output).contains(said), "{}", text(&output));
        }
    }
    assert!(done(dir, &["project", "show", "sieve"]).contains("account key"));
    let revoked = done(dir, &["operators", "revoke", "ann"]);
    assert_eq!(revoked, "The token of operator ann is good for nothing any more.\n");
    let output = as_ann(&["hosts"]);
    assert_eq!(output.status.code(), Some(5), "{}", text(&output));
    assert!(text(&output).contains("the operator's token of ann was revoked"), "{}", text(&output));
    assert_eq!(running.stop(), Some(0));
}

#[test]
fn r6_10_of_the_coordinators_own_token_that_others_can_read_every_command_warns() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let mut running = Running::start(dir);
    let warning = "is the coordinator's own token, and open to other users";
    assert!(!text(&fallow(dir, &["hosts"])).contains(warning));
    let token = dir.join("coordinator/operator.token");
    std::fs::set_permissions(&token, std::fs::Permissions::from_mode(0o644)).unwrap();
    let output = fallow(dir, &["hosts"]);
    assert!(output.status.success() && text(&output).contains(warning), "{}", text(&output));
    assert_eq!(running.stop(), Some(0));
    let mut running = Running::start(dir);
    let audit = done(dir, &["audit", "--action", "found open"]);
    assert!(audit.contains("operator.token"), "{audit}");
    assert!(!text(&fallow(dir, &["hosts"])).contains(warning));
    // Nor is there a rollout of that number.
    let none = fallow(dir, &["rollout", "promote", "--rollout", "0"]);
    assert!(!none.status.success() && text(&none).contains("a whole number from 1"), "{}", text(&none));
    assert_eq!(running.stop(), Some(0));
}

#[test]
fn r6_10_operators_are_listed_within_80_columns_and_in_json_without_their_secrets() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let mut running = Running::start(dir);
    for project in ["sieve", "a-project-with-a-long-name", "third"] {
        done(dir, &["project", "create", project]);
    }
    let name = "a".repeat(32);
    let projects = ["--project", "a-project-with-a-long-name", "--project", "sieve", "--project", "third"];
    let submitter =
        [&["operators", "create", &name, "--role", "submitter", "--expires", "366d"][..], &projects];
    let token = done(dir, &submitter.concat());
    let made: Value = serde_json::from_str(&done(
        dir,
        &["operators", "create", "bob", "--role", "administrator", "--json"],
    ))
    .unwrap();
    assert_eq!(made["operator"]["role"], "administrator");
    assert!(made["token"].as_str().unwrap().starts_with("fallow-operator-1/"), "{made}");
    done(dir, &["operators", "revoke", "bob"]);
    let table = done(dir, &["operators", "list"]);
    for line in table.lines() {
        assert!(line.chars().count() <= 80, "{} columns\n{table}", line.chars().count());
    }
    for said in ["submitter", "366 days", "+2", "administrator", "revoked", "all"] {
        assert!(table.contains(said), "{said} is not in\n{table}");
    }
    let json = done(dir, &["operators", "list", "--json"]);
    let secret = token.trim().split('/').nth(3).unwrap();
    assert!(secret.len() == 64 && !json.contains(secret) && !table.contains(secret));
    let listed: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(listed["operators"][0]["projects"].as_array().unwrap().len(), 3);
    assert_eq!(
        (&listed["operators"][0]["state"], &listed["operators"][1]["state"]),
        (&"good".into(), &"revoked".into())
    );
    assert_eq!(running.stop(), Some(0));
}

#[test]
fn r6_10_what_is_no_operator_is_refused_with_status_3_and_what_would_do() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let mut running = Running::start(dir);
    done(dir, &["project", "create", "sieve"]);
    done(dir, &["operators", "create", "ann", "--role", "viewer"]);
    for (arguments, said) in [
        (&["create", "Ann", "--role", "viewer"][..], "1 to 32 lower-case letters"),
        (&["create", "ann", "--role", "operator"], "fallow operators revoke ann"),
        (&["create", "bob", "--role", "submitter"], "at least one with --project"),
        (&["create", "bob", "--role", "submitter", "--project", "none"], "it hosts: sieve"),
        (&["create", "bob", "--role", "viewer", "--project", "sieve"], "is for all projects"),
        (&["create", "bob", "--role", "viewer", "--expires", "367d"], "from 1s to 366d"),
        (&["revoke", "bob"], "fallow operators list"),
    ] {
        let output = fallow(dir, &[&["operators"], arguments].concat());
        assert_eq!(output.status.code(), Some(3), "{arguments:?}: {}", text(&output));
        assert!(text(&output).contains(said), "{arguments:?}: {}", text(&output));
    }
    assert_eq!(running.stop(), Some(0));
}
