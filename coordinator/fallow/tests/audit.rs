//! `fallow audit` against a running coordinator (R6.5, R6.10).
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests: failures are panics")]

mod support;

use fallow_store::{Batch, KeyRange, Kind, SledStore, Store as _};
use support::{Running, command, done, fallow, json, text, wait_for};

#[test]
fn r6_10_operators_see_who_did_what_and_that_the_log_is_whole() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let mut running = Running::start(dir);
    assert_eq!(done(dir, &["audit", "--check"]), "The audit log is empty.\n");
    let ann =
        command().args(["project", "create", "sieve"]).env("FALLOW_DIR", dir).env("USER", "ann").output();
    assert_eq!(ann.unwrap().status.code(), Some(0));
    done(dir, &["tokens", "create", "--label", "room=12"]);
    let unknown = fallow(dir, &["hosts", "revoke", "nobody", "--message", "stolen"]);
    assert_eq!(unknown.status.code(), Some(3));
    let refused = wait_for("the refusal", || {
        let found = json(dir, &["audit", "--action", "host revoked"]);
        found["entries"].get(0).cloned()
    });
    assert_eq!((&refused["outcome"], &refused["message"]), (&"refused".into(), &"stolen".into()));
    assert!(refused["reason"].as_str().unwrap().contains("there is no host"), "{refused}");
    let table = done(dir, &["audit"]);
    assert_eq!(table.lines().count(), 5, "{table}");
    for said in [
        "operator ann@",
        "project created",
        "version 1: project sieve",
        "labels room=12",
        "refused",
        "there is no host",
    ] {
        assert!(table.contains(said), "{said} is not in\n{table}");
    }
    let all = json(dir, &["audit", "--since", "1h"]);
    let made = &all["entries"][0];
    assert_eq!((&made["entry"], &made["actor_kind"]), (&1.into(), &"operator".into()));
    let who = made["actor"].as_str().unwrap();
    assert!(who.starts_with("ann@"), "{made}");
    assert_eq!(json(dir, &["audit", "--actor", who])["entries"].as_array().unwrap().len(), 2);
    assert_eq!(done(dir, &["audit", "--limit", "1"]).lines().count(), 2);
    let cut = text(&fallow(dir, &["audit", "--limit", "1"]));
    assert!(cut.contains("the newest 1 are listed, there may be more: --limit"), "{cut}");
    assert!(!text(&fallow(dir, &["audit", "--limit", "1000"])).contains("there may be more"));
    let end = &all["entries"][3]["hash"];
    let whole = done(dir, &["audit", "--check"]);
    assert_eq!(whole, format!("The audit log is whole up to entry 4, {}.\n", end.as_str().unwrap()));
    assert_eq!(json(dir, &["audit", "--check"])["hash"], *end);
    let bad = fallow(dir, &["audit", "--action", "danced"]);
    assert_eq!(bad.status.code(), Some(3), "{}", text(&bad));
    assert_eq!(running.stop(), Some(0));
}

#[test]
fn r6_10_what_a_call_fails_for_takes_little_of_the_log_however_often_and_long_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let mut running = Running::start(dir);
    let name = "\u{1}".repeat(100_000);
    for _ in 0..20 {
        assert_eq!(fallow(dir, &["hosts", "show", &name]).status.code(), Some(3));
    }
    assert_eq!(running.stop(), Some(0));
    let log = std::fs::metadata(dir.join("log")).unwrap().len();
    assert!(log < 20_000, "{log} bytes of log");
}

#[test]
fn r6_10_a_log_that_somebody_changed_is_found_out_with_the_place_and_status_7() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let mut running = Running::start(dir);
    for project in ["a", "b"] {
        done(dir, &["project", "create", project]);
    }
    assert_eq!(running.stop(), Some(0));
    {
        let store = SledStore::open_as(dir.join("coordinator/store"), Kind::Coordinator).unwrap();
        let (key, value) = store.scan(&KeyRange::prefix(b"audit/entry/"), 3).unwrap().pop().unwrap();
        let changed = String::from_utf8_lossy(&value[3..]).replace("\"object\":\"b\"", "\"object\":\"c\"");
        assert!(changed.contains("\"object\":\"c\""), "{changed}");
        let changed = [&value[..3], changed.as_bytes()].concat();
        assert!(store.apply_durable(Batch::new().put(key, changed)).unwrap().is_applied());
    }
    let mut running = Running::start(dir);
    let broken = fallow(dir, &["audit", "--check"]);
    assert_eq!(broken.status.code(), Some(7), "{}", text(&broken));
    for said in ["entry 3 was changed", "whole up to entry 2 ("] {
        assert!(text(&broken).contains(said), "{}", text(&broken));
    }
    assert_eq!(running.stop(), Some(0));
}
