//! What old versions of the documents say, what a change would make different, and why somebody does
//! something, against a running coordinator (R6.5, R6.10).
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests: failures are panics")]

#[path = "../../service/tests/peers/mod.rs"]
mod peers;
mod support;

use std::path::Path;

use fallow_tls::{AccessString, Purpose};
use peers::enroll;
use serde_json::Value;
use support::{Running, done, fallow, json, text};

const ROOM: &str = "name = \"room-12\"\nprecedence = 20\nselector = \"room=12\"\n\n[projects.far]\n\
    url = \"https://far.example.org/\"\naccount_key = \"SECRET\"\nshare = 5\n\n\
    [preferences]\ncpu_fraction = \"50%\"\n";

/// The words of the line that begins with one.
fn line<'t>(table: &'t str, begin: &str) -> Vec<&'t str> {
    let lines = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    lines.into_iter().find(|words| words.first() == Some(&begin)).unwrap_or_default()
}

#[test]
fn r6_5_what_each_version_says_and_what_differs_between_two_is_shown_without_account_keys() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let mut running = Running::start(dir);
    done(dir, &["project", "create", "sums"]);
    done(dir, &["shares", "set", "sums=75", "--message", "exams"]);
    std::fs::write(dir.join("room.toml"), ROOM).unwrap();
    let room = dir.join("room.toml");
    let room = room.to_str().unwrap();
    done(dir, &["apply", "-f", room]);
    let key = json(dir, &["project", "show", "sums"])["account_key"].as_str().unwrap().to_owned();

    // Also what was said before the newest version.
    let first = done(dir, &["documents", "show", "1"]);
    assert_eq!(line(&first, "projects.sums.share"), ["projects.sums.share", "100"], "{first}");
    let second = done(dir, &["documents", "show", "2"]);
    assert_eq!(line(&second, "projects.sums.share")[1], "75", "{second}");
    assert_eq!(line(&second, "message")[1], "exams", "{second}");
    assert_eq!(line(&second, "preferences.cpu_fraction")[1], "100%", "{second}");
    let third = json(dir, &["documents", "show", "3"]);
    assert_eq!(third["values"]["groups.room-12.preferences.cpu_fraction"], "50%");
    assert_eq!(third["values"]["groups.room-12.selector"], "room=12");
    let listed = json(dir, &["documents"]);
    assert_eq!(third["document"], listed["documents"][2]);

    let difference = done(dir, &["documents", "diff", "1", "2"]);
    assert_eq!(difference.lines().count(), 2, "{difference}");
    assert_eq!(line(&difference, "projects.sums.share")[1..], ["100", "75"]);
    let difference = json(dir, &["documents", "diff", "2", "3"]);
    let values = difference["values"].as_array().unwrap();
    let selector = values.iter().find(|value| value["key"] == "groups.room-12.selector").unwrap();
    assert_eq!((&selector["before"], &selector["after"]), (&Value::Null, &"room=12".into()));
    assert_eq!((&difference["before"]["version"], &difference["after"]["version"]), (&2.into(), &3.into()));
    assert!(
        done(dir, &["documents", "diff", "2", "2"]).contains("No value differs between versions 2 and 2")
    );

    std::fs::write(room, ROOM.replace("SECRET", "HIDDEN")).unwrap();
    done(dir, &["apply", "-f", room]);
    let another = done(dir, &["documents", "diff", "3", "4"]);
    let account = "groups.room-12.projects.far.account_key";
    assert_eq!(line(&another, account), [account, "one", "another"], "{another}");
    let all = [first, second, third.to_string(), difference.to_string(), another].concat();
    for secret in ["SECRET", "HIDDEN", &key] {
        assert!(!all.contains(secret), "{secret} is in\n{all}");
    }

    for (bad, code, said) in [
        (&["documents", "show", "9"][..], 3, "there is no version 9 of the documents: `fallow documents`"),
        (&["documents", "diff", "1", "2.7"], 3, "there is no version 2.7"),
        (&["documents", "show", "newest"], 2, "such as 7, or 2.7"),
    ] {
        let output = fallow(dir, bad);
        assert_eq!(output.status.code(), Some(code), "{bad:?}: {}", text(&output));
        assert!(text(&output).contains(said), "{bad:?}: {}", text(&output));
    }
    assert_eq!(running.stop(), Some(0));
}

/// So many hosts that have enrolled and are away.
async fn hosts(dir: &Path, count: usize) {
    let token = done(dir, &["tokens", "create", "--uses", &count.to_string()]);
    let access = AccessString::parse(token.trim(), Purpose::Enrolment).unwrap();
    for _ in 0..count {
        enroll(&access, &access.secret).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn r6_5_a_change_of_the_whole_fleet_is_tried_first_and_changes_nothing_then() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let mut running = Running::start(dir);
    for project in ["primes", "sums"] {
        done(dir, &["project", "create", project]);
    }
    hosts(dir, 2).await;
    let tried = done(dir, &["preferences", "set", "--cpu-fraction", "10%", "--dry-run"]);
    let row = line(&tried, "preferences.cpu_fraction");
    assert_eq!(row[1..], ["2", "100%", "10%", "fleet"], "{tried}");
    assert!(tried.contains("2 of 2 hosts would get other values; nothing was changed"), "{tried}");
    assert_eq!(tried.lines().count(), 3, "{tried}");
    let tried = json(dir, &["shares", "set", "sums=7", "primes=100", "--dry-run"]);
    let values = tried["values"].as_array().unwrap();
    assert_eq!(
        (values.len(), &values[0]["key"], &values[0]["hosts"]),
        (1, &"projects.sums".into(), &2.into())
    );
    assert_eq!((&values[0]["before"], &values[0]["after"]), (&"share 100".into(), &"share 7".into()));
    let same = done(dir, &["shares", "set", "sums=100", "--dry-run"]);
    assert_eq!(same, "0 of 2 hosts would get other values; nothing was changed\n");
    assert_eq!(json(dir, &["documents"])["documents"].as_array().unwrap().len(), 2);
    assert_eq!(json(dir, &["audit"])["entries"].as_array().unwrap().len(), 7);

    // Refused as the change itself would be.
    for change in [
        &["shares", "set", "other=1"][..],
        &["shares", "set", "sums=1", "sums=2"],
        &["preferences", "set", "--buffer-min", "400d"],
    ] {
        let refused = fallow(dir, change);
        let tried = fallow(dir, &[change, &["--dry-run"]].concat());
        assert_eq!(refused.status.code(), Some(3), "{}", text(&refused));
        assert_eq!(tried.status.code(), Some(3), "{}", text(&tried));
        assert_eq!(text(&tried), text(&refused));
    }
    done(dir, &["rollout", "plan", "--waves", "1,100%"]);
    let begun = fallow(dir, &["shares", "set", "sums=50"]);
    assert!(text(&begun).contains("as rollout 1"), "{}", text(&begun));
    let tried = fallow(dir, &["shares", "set", "sums=60", "--dry-run"]);
    assert_eq!(tried.status.code(), Some(3));
    assert!(text(&tried).contains("rollout 1 is"), "{}", text(&tried));
    let tried = done(dir, &["shares", "set", "sums=60", "--dry-run", "--emergency"]);
    assert!(tried.contains("share 100") && tried.contains("share 60"), "{tried}");
    let made = text(&fallow(dir, &["shares", "set", "sums=60", "--emergency"]));
    let gone = "it took the place of rollout 1, which operator@";
    assert!(
        made.contains(gone) && made.contains("began: what version 3 said is taken back with it"),
        "{made}"
    );
    // Nobody else is told so, nor is whoever makes the next emergency.
    let next = ["shares", "set", "sums=70", "--emergency"];
    for later in [&["shares"][..], &["preferences"], &["shares", "set", "sums=60"], &next] {
        let later = text(&fallow(dir, later));
        assert!(!later.contains("took the place"), "{later}");
    }
    assert_eq!(running.stop(), Some(0));
}

#[test]
fn r6_5_what_is_not_named_of_a_plan_stays_and_the_audit_log_has_all_that_guards_the_fleet() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let mut running = Running::start(dir);
    let refused = fallow(dir, &["rollout", "plan", "--soak", "10m"]);
    assert_eq!(refused.status.code(), Some(3));
    assert!(text(&refused).contains("there is no plan yet: name its waves"), "{}", text(&refused));
    let plan = |arguments: &[&str]| done(dir, &[&["rollout", "plan"], arguments].concat());
    plan(&["--waves", "1,100%", "--approval-over", "5", "--without", "idle,failed"]);
    let guarded = ", not judged by: idle, failed; one for more than 5 hosts waits for a second person.\n";
    assert_eq!(
        plan(&["--soak", "10m"]),
        format!("Changes go out in waves of 1,100%, each watched for 10 min{guarded}")
    );
    assert_eq!(
        plan(&["--waves", "2,100%"]),
        format!("Changes go out in waves of 2,100%, each watched for 10 min{guarded}")
    );
    let free = "Changes go out in waves of 2,100%, each watched for 10 min.\n";
    assert_eq!(plan(&["--without", "none", "--approval-over", "none"]), free);
    assert_eq!(plan(&[]), free);
    let entries = json(dir, &["audit"])["entries"].as_array().unwrap().clone();
    let last = entries.iter().rfind(|entry| entry["action"] == "rollout planned").unwrap();
    let before =
        "waves of 2,100%, 10 min each, not judged by idle, failed; a second person for more than 5 hosts";
    assert_eq!(last["before"], before);
    assert_eq!(last["after"], "waves of 2,100%, 10 min each; no second person");
    let wrong = fallow(dir, &["rollout", "plan", "--approval-over", "some"]);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(text(&wrong).contains("expected a number of hosts, or none"), "{}", text(&wrong));
    assert_eq!(running.stop(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn r6_5_who_changes_many_hosts_at_once_without_a_plan_is_told_so_and_how_it_goes_in_waves() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let mut running = Running::start(dir);
    done(dir, &["project", "create", "sums"]);
    hosts(dir, 9).await;
    let told = |arguments: &[&str]| {
        let output = fallow(dir, arguments);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output));
        let said = String::from_utf8(output.stderr).unwrap();
        said.lines().find(|line| line.contains("at once")).unwrap_or_default().to_owned()
    };
    assert_eq!(told(&["shares", "set", "sums=9"]), "", "few hosts");
    hosts(dir, 1).await;
    let said =
        "fallow: it went to 10 hosts at once: after `fallow rollout plan --waves 1,10%,100%` changes go";
    assert!(told(&["shares", "set", "sums=10"]).starts_with(said));
    assert_eq!(told(&["shares", "set", "sums=10"]), "", "nothing was changed");
    assert_eq!(told(&["shares", "set", "sums=11", "--emergency"]), "", "it was to go at once");
    assert!(told(&["preferences", "set", "--cpu-fraction", "50%"]).starts_with(said));
    std::fs::write(dir.join("all.toml"), ROOM.replace("room=12", "")).unwrap();
    let group = dir.join("all.toml");
    let group = group.to_str().unwrap();
    assert_eq!(told(&["apply", "-f", group, "--dry-run"]), "", "nothing was changed");
    assert!(told(&["apply", "-f", group]).starts_with(said));
    assert!(told(&["groups", "remove", "room-12"]).starts_with(said));
    // What has to be signed goes out when it is.
    let key = dir.join("org.key");
    let key = key.to_str().unwrap();
    let public = done(dir, &["organisation", "new-key", key]);
    done(dir, &["organisation", "set", public.trim()]);
    assert_eq!(told(&["shares", "set", "sums=12"]), "", "it waits");
    assert!(told(&["organisation", "sign", "--key", key, "--yes"]).starts_with(said));
    done(dir, &["organisation", "set", "--none"]);
    done(dir, &["rollout", "plan", "--waves", "1,100%"]);
    assert_eq!(told(&["shares", "set", "sums=13"]), "", "it goes out in waves");
    assert_eq!(running.stop(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn r6_10_whoever_does_something_says_why_and_the_audit_log_has_it() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let mut running = Running::start(dir);
    hosts(dir, 1).await;
    let host = json(dir, &["hosts"])["hosts"][0]["agent_id"].as_str().unwrap().to_owned();
    let token = json(dir, &["tokens", "list"])["tokens"][0]["id"].as_str().unwrap().to_owned();
    let program = env!("CARGO_BIN_EXE_fallow");
    let app = ["app", "add", "sums", "a", program, "--version", "1.0"];
    for (arguments, action) in [
        (&["project", "create", "sums"][..], "project created"),
        (&["project", "set", "sums", "poll=1m"], "project changed"),
        (&app, "app version added"),
        (&["submit", "sums", "--app", "a", "--flops", "1e9"], "submitted"),
        (&["tokens", "create"], "tokens created"),
        (&["tokens", "revoke", &token], "token revoked"),
        (&["hosts", "label", &host, "room=12"], "host labelled"),
        (&["hosts", "forget", &host], "host forgotten"),
        (&["operators", "create", "ann", "--role", "viewer"], "operator created"),
        (&["operators", "revoke", "ann"], "operator revoked"),
    ] {
        let why = format!("kvůli „{action}“: 100 %");
        done(dir, &[arguments, &["--message", &why]].concat());
        let found = json(dir, &["audit", "--action", action]);
        let newest = found["entries"].as_array().unwrap().last().unwrap().clone();
        assert_eq!(newest["message"], why, "{arguments:?}");
    }
    // What a command's request itself says is in its place, and nothing is said for nothing.
    done(dir, &["shares", "set", "sums=7", "--message", "exams"]);
    done(dir, &["shares", "set", "sums=8"]);
    let found = json(dir, &["audit", "--action", "document changed"]);
    let said: Vec<_> =
        found["entries"].as_array().unwrap().iter().map(|one| one["message"].clone()).collect();
    assert_eq!(said[said.len() - 2..], ["exams", ""]);
    let long = fallow(dir, &["tokens", "create", "--message", &"x".repeat(1_001)]);
    assert_eq!(long.status.code(), Some(3), "{}", text(&long));
    assert!(text(&long).contains("it has 1001 bytes: expected 1000 at most"), "{}", text(&long));
    let long = fallow(dir, &["shares", "set", "sums=9", "--message", &"x".repeat(1_001)]);
    assert_eq!(long.status.code(), Some(3), "{}", text(&long));
    assert_eq!(running.stop(), Some(0));
}
