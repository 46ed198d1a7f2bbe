//! `fallow` as a process: what it says and how it ends when something is wrong.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests: failures are panics")]

mod support;

use std::io::Write as _;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use fallow_coordinator::daemon::DaemonFile;
use fallow_coordinator::operator::TokenFile;
use fallow_tls::AccessString;
use support::{Running, fallow, run, text, wait_for};

#[test]
fn a_coordinator_is_run_asked_and_stopped() {
    let dir = tempfile::tempdir().unwrap();
    let mut running = Running::start(dir.path());
    for (list, said) in [
        (&["hosts"][..], "No hosts yet: `fallow tokens create`"),
        (&["projects"], "No projects yet"),
        (&["jobs"], "No jobs yet"),
        (&["tokens", "list"], "No tokens yet"),
        (&["operators", "list"], "No operators yet"),
        (&["groups"], "No groups yet: `fallow apply"),
        (&["documents"], "No documents yet"),
        (&["rollout", "list"], "Nothing was rolled out so far"),
    ] {
        let listed = fallow(dir.path(), list);
        assert!(text(&listed).starts_with(said), "{list:?}: {}", text(&listed));
    }
    let asked = fallow(dir.path(), &["project", "create", "sieve", "--share", "30", "--json"]);
    assert_eq!(asked.status.code(), Some(0), "{}", text(&asked));
    let shown: serde_json::Value =
        serde_json::from_slice(&fallow(dir.path(), &["shares", "show", "--json"]).stdout).unwrap();
    assert_eq!(shown["projects"][0]["share"], 30.0);
    for listing in [&["hosts"][..], &["projects"], &["jobs"], &["results", "sieve"], &["preferences", "show"]]
    {
        let json = fallow(dir.path(), &[listing, &["--json"]].concat());
        assert!(serde_json::from_slice::<serde_json::Value>(&json.stdout).is_ok(), "{}", text(&json));
        assert_eq!(fallow(dir.path(), listing).status.code(), Some(0));
    }
    let tokens = fallow(dir.path(), &["tokens", "create", "--count", "3"]);
    assert_eq!(String::from_utf8_lossy(&tokens.stdout).lines().count(), 3);
    let said = String::from_utf8_lossy(&tokens.stderr);
    assert!(said.contains("only this machine can use it") && said.contains("--advertise"), "{said}");
    let project = text(&fallow(dir.path(), &["project", "create", "sums"]));
    assert!(project.contains("only this machine reaches it there"), "{project}");
    assert_eq!(running.stop(), Some(0));
    assert!(!DaemonFile::path(&dir.path().join("coordinator")).exists());
}

#[test]
fn values_that_mean_nothing_are_refused_with_status_3() {
    let dir = tempfile::tempdir().unwrap();
    let mut running = Running::start(dir.path());
    fallow(dir.path(), &["project", "create", "sieve"]);
    let batch = dir.path().join("batch.toml");
    std::fs::write(&batch, "[[workunits]]\napplication = 'none'\nflops = 1e9\n").unwrap();
    let batch = batch.to_str().unwrap();
    let no_quorum = dir.path().join("no-quorum.toml");
    std::fs::write(&no_quorum, "[[workunits]]\napplication = 'none'\nflops = 1e9\nquorum = 0\n").unwrap();
    let no_quorum = no_quorum.to_str().unwrap();
    let several = dir.path().join("several.toml");
    std::fs::write(&several, "[[workunits]]\napplication = 'none'\nflops = 1e9\n".repeat(2)).unwrap();
    let several = several.to_str().unwrap();
    let (directory, program) = (dir.path().to_str().unwrap(), env!("CARGO_BIN_EXE_fallow"));
    for (arguments, said) in [
        (&["shares", "set", "sieve=-1"][..], "a number from 0.001 to 1,000,000,000"),
        (&["shares", "set", "sieve=1e-300"], "a number from 0.001 to 1,000,000,000"),
        (&["preferences", "set", "--cpu-fraction", "1e-300"], "from 0.001 to 1"),
        (&["preferences", "set", "--disk-fraction", "-1"], "a part from 0 to 1"),
        (&["shares", "set", "sieve=NaN"], "a number from 0.001 to 1,000,000,000"),
        (&["app", "add", "sieve", "a", directory, "--version", "1.0"], "is a directory"),
        (&["app", "add", "sieve", "a", program, "--version", "0.0"], "such as 1.0"),
        (
            &["app", "add", "sieve", "a", program, "--version", "1.0", "--platform", "bogus"],
            "such as x86_64-pc-linux-gnu",
        ),
        (&["submit", "sieve", "--app", "a", "--flops", "1e9", "--quorum", "0"], "a whole number from 1"),
        (&["submit", "sieve", "--file", no_quorum], "quorum = 0: expected a value above 0"),
        (&["rollout", "plan", "--waves", ""], "--at-once is for changes without waves"),
        (&["rollout", "plan", "--waves", "10%,5%"], "each larger than the one before"),
        (&["rollout", "plan", "--waves", "1", "--soak", "1s"], "5s to 30d"),
        (&["rollout", "plan", "--waves", "1", "--without", "bogus"], "expected refused, lost"),
        (&["rollout", "plan", "--waves", "no-such-group"], "no-such-group, which has to be there"),
        (&["rollout", "abort"], "nothing was rolled out"),
        (&["shares", "set", "other=1"], "no project \"other\""),
        (&["jobs", "other"], "no project \"other\""),
        (&["results", "other"], "no project \"other\""),
        (&["project", "create", "sieve"], "exists already"),
        (&["project", "create", "Bad Name"], "is not valid"),
        (&["project", "create", "more", "--share=-5"], "resource share"),
        (&["project", "create", "more", "--share", "-1"], "resource share"),
        (&["tokens", "create", "--count", "-1"], "a whole number from 1"),
        (&["up", "--agents", "-1"], "a whole number from 2 to 64"),
        (&["submit", "sieve", "--app", "a", "--flops", "1e9", "--deadline", "0s"], "from 1s to 3650days"),
        (&["submit", "sieve", "--file", batch], "batch.toml: project sieve has no version of an application"),
        (
            &["submit", "sieve", "--file", several],
            "several.toml: workunit 1 of the submission: project sieve has no",
        ),
        (&["submit", "sieve", "--file", "/nowhere.toml"], "cannot read batch /nowhere.toml"),
        (&["submit", "sieve", "--app", "a", "--flops=-1"], "floating-point operations"),
        (&["app", "add", "sieve", "a", "/nowhere", "--version", "1.0"], "cannot read /nowhere"),
        (&["app", "add", "sieve", "a", batch, "--version", "1.0"], "neither an executable nor a script"),
        (&["preferences", "set", "--scheduling-period", "1ms"], "scheduling period"),
    ] {
        let output = fallow(dir.path(), arguments);
        assert_eq!(output.status.code(), Some(3), "{arguments:?}: {}", text(&output));
        assert!(text(&output).contains(said), "{arguments:?}: {}", text(&output));
    }
    assert_eq!(running.stop(), Some(0));
}

#[test]
fn settings_of_a_project_are_shown_and_changed_by_their_names() {
    let dir = tempfile::tempdir().unwrap();
    let mut running = Running::start(dir.path());
    fallow(dir.path(), &["project", "create", "sieve"]);
    let shown = |arguments: &[&str]| -> serde_json::Value {
        let output = fallow(dir.path(), arguments);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output));
        serde_json::from_slice(&output.stdout).unwrap()
    };
    assert_eq!(shown(&["project", "show", "sieve", "--json"])["settings"]["poll"], "5m");
    let change = ["project", "set", "sieve", "poll=90s", "send=WS2,ws2=published", "--json"];
    assert_eq!(shown(&change)["settings"]["send"], "WS2,ws2=published");
    let table = fallow(dir.path(), &["project", "show", "sieve"]);
    assert!(text(&table).contains("1m 30s"), "{}", text(&table));
    // The operator who asks is shown what a client is attached with by hand; nobody is who changes something.
    let key = shown(&["projects", "--json"])["projects"][0]["account_key"].as_str().unwrap().to_owned();
    assert_eq!(shown(&["project", "show", "sieve", "--json"])["account_key"], key.as_str());
    assert!(text(&table).contains(&key) && text(&table).contains("account key"), "{}", text(&table));
    assert_eq!(
        shown(&["project", "set", "sieve", "poll=90s", "--json"])["account_key"],
        serde_json::Value::Null
    );
    for (bad, code, said) in [
        ("pol=1s", 3, "request-delay, poll"),
        ("poll=soon", 3, "such as 90s"),
        ("send=WS0", 3, "WS2,ws2=published"),
        ("poll", 2, "such as poll=5m"),
    ] {
        let output = fallow(dir.path(), &["project", "set", "sieve", "jobs-per-cpu=7", bad]);
        assert_eq!(output.status.code(), Some(code), "{bad}: {}", text(&output));
        assert!(text(&output).contains(said), "{bad}: {}", text(&output));
    }
    // All or none.
    assert_eq!(shown(&["project", "show", "sieve", "--json"])["settings"]["jobs-per-cpu"], "1000");
    assert_eq!(fallow(dir.path(), &["project", "show", "other"]).status.code(), Some(3));
    assert_eq!(running.stop(), Some(0));
}

#[test]
fn r3_12_a_version_for_a_gpu_is_added_with_what_its_jobs_use() {
    let dir = tempfile::tempdir().unwrap();
    let mut running = Running::start(dir.path());
    fallow(dir.path(), &["project", "create", "sieve"]);
    let program = dir.path().join("program");
    std::fs::write(&program, "#!/bin/sh\n").unwrap();
    let add = |uses: &str| {
        let program = program.to_str().unwrap();
        let arguments = ["app", "add", "sieve", "a", program, "--version", "1.0", "--uses", uses];
        fallow(dir.path(), &arguments)
    };
    assert_eq!(add("cpu=2").status.code(), Some(0));
    // The same version for another resource type is another.
    let gpu = add("nvidia=0.5,cpu=0.1");
    assert_eq!(gpu.status.code(), Some(0), "{}", text(&gpu));
    assert!(text(&gpu).contains("__nvidia"), "{}", text(&gpu));
    assert_eq!(add("nvidia=1").status.code(), Some(3), "it exists already");
    for (bad, code) in
        [("tpu=1", 2), ("nvidia", 2), ("nvidia=-1", 3), ("nvidia=1,amd=1", 3), ("nvidia=100", 3)]
    {
        assert_eq!(add(bad).status.code(), Some(code), "{bad}: {}", text(&add(bad)));
    }
    let submit = fallow(dir.path(), &["submit", "sieve", "--app", "a", "--flops", "1e9"]);
    assert_eq!(submit.status.code(), Some(0), "{}", text(&submit));
    assert_eq!(running.stop(), Some(0));
}

#[test]
fn what_is_there_already_is_named_as_it_was_written() {
    let dir = tempfile::tempdir().unwrap();
    let mut running = Running::start(dir.path());
    fallow(dir.path(), &["project", "create", "sieve"]);
    let program = dir.path().join("program");
    std::fs::write(&program, "#!/bin/sh\n").unwrap();
    let add = ["app", "add", "sieve", "a", program.to_str().unwrap(), "--version", "1.0"];
    assert_eq!(fallow(dir.path(), &add).status.code(), Some(0));
    let again = fallow(dir.path(), &add);
    assert_eq!(again.status.code(), Some(3));
    assert!(text(&again).contains("a version 1.0 for"), "{}", text(&again));
    let data = dir.path().join("data");
    std::fs::write(&data, "x").unwrap();
    let any = ["app", "add", "sieve", "b", data.to_str().unwrap(), "--version", "1.0", "--any-file"];
    assert_eq!(fallow(dir.path(), &any).status.code(), Some(0));
    let batch = dir.path().join("batch.toml");
    let of = |name: &str| format!("[[workunits]]\nname = '{name}'\napplication = 'a'\nflops = 1e9\n");
    std::fs::write(&batch, [of("one"), of("other"), of("one")].concat()).unwrap();
    let submit = ["submit", "sieve", "--file", batch.to_str().unwrap()];
    let twice = fallow(dir.path(), &submit);
    assert_eq!(twice.status.code(), Some(3));
    assert!(
        text(&twice).contains("workunits 1 and 3 of the submission have the same name \"one\""),
        "{}",
        text(&twice)
    );
    std::fs::write(&batch, of("one")).unwrap();
    assert_eq!(fallow(dir.path(), &submit).status.code(), Some(0));
    let other = [&submit[..], &["--key", "other"]].concat();
    assert!(text(&fallow(dir.path(), &other)).contains("has a workunit \"one\" already"));
    assert_eq!(running.stop(), Some(0));
}

#[test]
fn shares_that_are_all_zero_are_set_with_a_warning() {
    let dir = tempfile::tempdir().unwrap();
    let mut running = Running::start(dir.path());
    fallow(dir.path(), &["project", "create", "sieve"]);
    let zero = fallow(dir.path(), &["shares", "set", "sieve=0", "--json"]);
    assert_eq!(zero.status.code(), Some(0));
    assert!(String::from_utf8_lossy(&zero.stderr).contains("all shares are 0 now"), "{}", text(&zero));
    assert!(serde_json::from_slice::<serde_json::Value>(&zero.stdout).is_ok());
    assert!(fallow(dir.path(), &["shares", "set", "sieve=1"]).stderr.is_empty());
    assert_eq!(running.stop(), Some(0));
}

#[test]
fn r3_14_devices_are_excluded_for_a_whole_fleet_by_their_names() {
    let dir = tempfile::tempdir().unwrap();
    let mut running = Running::start(dir.path());
    let set =
        |devices: &str| fallow(dir.path(), &["preferences", "set", "--excluded-devices", devices, "--json"]);
    let shown = |output: &Output| -> serde_json::Value {
        serde_json::from_slice::<serde_json::Value>(&output.stdout).unwrap()["preferences"]["excluded_devices"].clone()
    };
    assert_eq!(shown(&set("nvidia:1,nvidia:0,amd:2")), serde_json::json!(["nvidia:0", "nvidia:1", "amd:2"]));
    fallow(dir.path(), &["preferences", "set", "--suspended", "true"]);
    let table = text(&fallow(dir.path(), &["preferences"]));
    assert!(table.contains("nvidia:0, nvidia:1, amd:2"), "what is not named stays as it is: {table}");
    let bad = set("cpu:0");
    assert!(bad.status.code() == Some(2) && text(&bad).contains("such as nvidia:0"), "{}", text(&bad));
    assert_eq!(shown(&set("none")), serde_json::json!([]));
    assert_eq!(running.stop(), Some(0));
}

#[test]
fn r6_4_preferences_that_say_nothing_together_or_keep_a_fleet_from_computing_are_warned_of() {
    let dir = tempfile::tempdir().unwrap();
    let mut running = Running::start(dir.path());
    let set = |words: &[&str]| {
        let output = fallow(dir.path(), &[&["preferences", "set"], words].concat());
        assert_eq!(output.status.code(), Some(0), "{}", text(&output));
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let said = set(&["--stop-without-input", "2m", "--dry-run"]);
    assert!(said.contains("computing stops after 2 min without input"), "{said}");
    let said = set(&["--stop-without-input", "2m"]);
    assert!(said.contains("make stop_without_input the longer one"), "{said}");
    // What was changed is shown, and nothing else.
    let output = fallow(dir.path(), &["preferences", "set", "--idle-after", "5m", "--buffer-min", "2h"]);
    let shown = String::from_utf8_lossy(&output.stdout).into_owned();
    let rows: Vec<Vec<&str>> = shown.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(
        (&rows[1][..], &rows[2][..]),
        (&["buffer-min", "2.4", "h", "2", "h"][..], &["idle-after", "3", "min", "5", "min"][..]),
        "{shown}"
    );
    assert!(rows.len() == 4 && shown.contains("document version "), "{shown}");
    // However much it is, the log says at its end how it went out.
    let (programs, hours) =
        (format!("a{}", "b".repeat(250)), "mon 01:00-02:00, tue 03:00-04:00, wed 05:00-06:00");
    let often =
        ["--exclusive-programs", "--exclusive-gpu-programs"].map(|option| [option, programs.as_str()]);
    let hours = ["--hours", "--network-hours"].map(|option| [option, hours]);
    set(&[&often.concat()[..], &hours.concat()[..], &["--report-at-once", "true", "--emergency"]].concat());
    let audit = text(&fallow(dir.path(), &["audit", "--json", "--limit", "1"]));
    assert!(audit.contains(", an emergency, to all hosts at once"), "{audit}");
    let history = text(&fallow(dir.path(), &["documents", "--json"]));
    assert!(history.contains("bbb… ") && history.contains(" report_at_once=true"), "{history}");
    set(&[
        "--exclusive-programs",
        "none",
        "--exclusive-gpu-programs",
        "none",
        "--hours",
        "always",
        "--network-hours",
        "always",
    ]);
    // It is so also after a change of something else, and no longer after it was mended.
    assert!(set(&["--cpu-fraction", "50%"]).contains("stop_without_input"));
    assert_eq!(set(&["--stop-without-input", "none"]), "");
    assert!(set(&["--transfer-period", "30days"]).contains("means nothing without transfer_max"));
    assert_eq!(set(&["--transfer-max", "10GB"]), "");
    assert_eq!(running.stop(), Some(0));
}

#[test]
fn r6_10_layers_of_confinement_are_required_of_a_whole_fleet_by_their_names() {
    let dir = tempfile::tempdir().unwrap();
    let mut running = Running::start(dir.path());
    let set =
        |layers: &str| fallow(dir.path(), &["preferences", "set", "--required-layers", layers, "--json"]);
    let shown = |output: &Output| -> serde_json::Value {
        serde_json::from_slice::<serde_json::Value>(&output.stdout).unwrap()["preferences"]["required_layers"]
            .clone()
    };
    assert_eq!(shown(&set("files,calls")), serde_json::json!(["calls", "files"]));
    fallow(dir.path(), &["preferences", "set", "--suspended", "true"]);
    let table = text(&fallow(dir.path(), &["preferences"]));
    assert!(table.contains("calls, files"), "what is not named stays as it is: {table}");
    let bad = set("fils");
    assert!(bad.status.code() == Some(2) && text(&bad).contains("tmp or groups"), "{}", text(&bad));
    assert_eq!(shown(&set("all")), serde_json::json!(["all"]));
    assert_eq!(shown(&set("none")), serde_json::json!([]));
    assert_eq!(running.stop(), Some(0));
}

#[test]
fn r6_10_projects_whose_jobs_may_use_the_network_are_named_for_a_whole_fleet() {
    let dir = tempfile::tempdir().unwrap();
    let mut running = Running::start(dir.path());
    let set = |urls: &str| fallow(dir.path(), &["preferences", "set", "--jobs-network", urls, "--json"]);
    let shown = |output: &Output| -> serde_json::Value {
        serde_json::from_slice::<serde_json::Value>(&output.stdout).unwrap()["preferences"]["jobs_network"]
            .clone()
    };
    let url = "https://example.org/project/";
    assert_eq!(shown(&set("HTTPS://example.org/project")), serde_json::json!([url]));
    fallow(dir.path(), &["preferences", "set", "--suspended", "true"]);
    let table = text(&fallow(dir.path(), &["preferences"]));
    assert!(table.contains(url), "what is not named stays as it is: {table}");
    let bad = set("example");
    assert!(bad.status.code() == Some(2) && text(&bad).contains("project URL"), "{}", text(&bad));
    assert_eq!((shown(&set("none")), shown(&set("all"))), (serde_json::json!([]), serde_json::Value::Null));
    assert_eq!(running.stop(), Some(0));
}

#[test]
fn shares_and_preferences_alone_are_shown_and_the_manual_names_no_other_page() {
    let dir = tempfile::tempdir().unwrap();
    let mut running = Running::start(dir.path());
    for alone in ["shares", "preferences"] {
        let shown = fallow(dir.path(), &[alone]);
        assert_eq!(shown.status.code(), Some(0), "{}", text(&shown));
        assert_eq!(shown.stdout, fallow(dir.path(), &[alone, "show"]).stdout);
    }
    assert_eq!(running.stop(), Some(0));
    let page = text(&fallow(dir.path(), &["man"]));
    for part in [".SH EXAMPLES", ".SH \"EXIT STATUS\"", ".SH ENVIRONMENT", ".SS \"fallow shares set", "130"] {
        assert!(page.contains(part), "{part}");
    }
    assert!(!page.contains("(1)") && !page.contains("SUBCOMMANDS"));
}

#[test]
fn r6_11_the_api_is_described_without_a_coordinator() {
    let dir = tempfile::tempdir().unwrap();
    let described = fallow(dir.path(), &["openapi"]);
    assert_eq!(described.status.code(), Some(0), "{}", text(&described));
    let described: serde_json::Value = serde_json::from_slice(&described.stdout).unwrap();
    assert!(described["openapi"].as_str().unwrap().starts_with("3.1."));
    assert!(described["paths"]["/v1/Submit"]["post"].is_object());
}

#[test]
fn what_cannot_be_read_gives_status_2_and_an_example() {
    let dir = tempfile::tempdir().unwrap();
    for (arguments, said) in [
        (
            &["coordinator", "run", "--listen", "24999"][..],
            "expected an IP address and a port, such as 127.0.0.1:24001",
        ),
        (&["shares", "set", "sieve=much"], "such as mersenne=75"),
        (&["hosts", "--coordinator", "garbage"], "such as lab.example.org:24001"),
        (&["hosts", "--coordinator", "http://127.0.0.1:1"], "TLS only"),
        (&["up", "--agents", "few"], "a whole number from 2 to 64"),
        (&["preferences", "set"], "such as `fallow preferences set --cpu-fraction 50%`"),
        (&["submit", "primes"], "fallow submit <PROJECT> --file <FILE>"),
        (&["submit", "primes"], "fallow submit <PROJECT> --app <NAME> --flops <NUMBER>"),
    ] {
        let output = fallow(dir.path(), arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", text(&output));
        assert!(text(&output).contains(said), "{arguments:?}: {}", text(&output));
    }
}

#[test]
fn r6_11_a_batch_is_read_from_standard_input() {
    let dir = tempfile::tempdir().unwrap();
    let mut running = Running::start(dir.path());
    fallow(dir.path(), &["project", "create", "sieve"]);
    for (batch, said) in [
        (
            "[[workunits]]\napplication = 'none'\nflops = 1e9\n",
            "standard input: project sieve has no version",
        ),
        (
            r#" {"workunits": [{"application": "none", "flops": 1e9}]}"#,
            "standard input: project sieve has no",
        ),
        ("[[workunits]]\nflop = 1\n", "workunit 1: line 2, column 1: unknown field `flop`"),
    ] {
        let mut submit = support::command();
        submit.args(["submit", "sieve", "--file", "-"]).env("FALLOW_DIR", dir.path());
        submit.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut submit = submit.spawn().unwrap();
        submit.stdin.take().unwrap().write_all(batch.as_bytes()).unwrap();
        let output = submit.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(3), "{}", text(&output));
        assert!(text(&output).contains(said), "{}", text(&output));
    }
    // Where there is nothing to list, a word about it instead of a bare heading.
    let none = fallow(dir.path(), &["results", "sieve"]);
    assert_eq!((none.status.code(), none.stdout.len()), (Some(0), 0), "{}", text(&none));
    assert!(text(&none).contains("no workunit of sieve is validated yet"), "{}", text(&none));
    assert_eq!(running.stop(), Some(0));
}

#[test]
fn a_first_start_on_a_port_that_is_taken_leaves_nothing_behind() {
    let dir = tempfile::tempdir().unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = taken.local_addr().unwrap().to_string();
    for option in ["--listen", "--http"] {
        let output = run(&dir.path().join("lab/coordinator"), &[option, &at]);
        assert_eq!(output.status.code(), Some(6), "{}", text(&output));
        assert!(text(&output).contains("ss -ltnp"), "{}", text(&output));
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "{option}");
    }
}

#[test]
fn tools_call_the_directory_of_an_agent_that_does_not_run_what_it_is() {
    let dir = tempfile::tempdir().unwrap();
    drop(fallow_store::SledStore::open_as(dir.path().join("store"), fallow_store::Kind::Agent).unwrap());
    let output = fallow(dir.path(), &["hosts"]);
    assert_eq!(output.status.code(), Some(3), "{}", text(&output));
    assert!(text(&output).contains("is an agent's directory"), "{}", text(&output));
    assert!(!text(&output).contains("coordinator run"), "{}", text(&output));
}

#[test]
fn a_coordinator_that_is_not_there_gives_status_4_and_a_wrong_token_5() {
    let dir = tempfile::tempdir().unwrap();
    let output = fallow(dir.path(), &["hosts"]);
    assert_eq!(output.status.code(), Some(4));
    assert!(text(&output).contains("fallow coordinator run"), "{}", text(&output));
    let mut running = Running::start(dir.path());
    let address = DaemonFile::read(&dir.path().join("coordinator")).unwrap().told.fleet;
    let wrong = dir.path().join("wrong.token");
    std::fs::write(&wrong, with_secret(dir.path(), "0").reveal()).unwrap();
    let with_token = |address: &str| {
        fallow(
            dir.path(),
            &["hosts", "--coordinator", address, "--operator-token-file", wrong.to_str().unwrap()],
        )
    };
    let output = with_token(&address);
    assert_eq!(output.status.code(), Some(5), "{}", text(&output));
    assert_eq!(running.stop(), Some(0));
    assert_eq!(with_token(&address).status.code(), Some(4));
}

/// The token of the coordinator in DIR/coordinator with another secret.
fn with_secret(dir: &Path, digit: &str) -> AccessString {
    let own = TokenFile::read(&dir.join("coordinator/operator.token")).unwrap();
    AccessString { secret: digit.repeat(64), ..own }
}

/// Shows R6.10.
#[test]
fn an_operators_token_says_where_its_coordinator_is_and_no_other_is_told_its_secret() {
    let (dir, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut running = Running::start(dir.path());
    let mut other = Running::start(elsewhere.path());
    let nowhere = tempfile::tempdir().unwrap();
    let file = dir.path().join("coordinator/operator.token");
    let hosts = |more: &[&str]| {
        let all = [&["hosts", "--operator-token-file", file.to_str().unwrap()], more].concat();
        fallow(nowhere.path(), &all)
    };
    let right = hosts(&[]);
    assert_eq!(right.status.code(), Some(0), "{}", text(&right));
    let others = DaemonFile::read(&elsewhere.path().join("coordinator")).unwrap().told.fleet;
    let wrong = hosts(&["--coordinator", &others]);
    assert_eq!(wrong.status.code(), Some(5), "{}", text(&wrong));
    assert!(text(&wrong).contains("is of another authority"), "{}", text(&wrong));
    assert_eq!((running.stop(), other.stop()), (Some(0), Some(0)));
}

/// Shows R6.10.
#[test]
fn tokens_have_uses_an_end_and_labels_and_are_listed_and_ended() {
    let dir = tempfile::tempdir().unwrap();
    let mut running = Running::start(dir.path());
    let create = ["tokens", "create", "--uses", "400", "--expires", "7d", "--label", "room=12"];
    let made = fallow(dir.path(), &create);
    assert!(text(&made).starts_with("fallow-enrol-1/127.0.0.1:"), "{}", text(&made));
    let listed = fallow(dir.path(), &["tokens", "list", "--json"]);
    let listed: serde_json::Value = serde_json::from_slice(&listed.stdout).unwrap();
    let token = &listed["tokens"][0];
    assert_eq!(
        (&token["uses"], &token["labels"][0], &token["state"]),
        (&400.into(), &"room=12".into(), &"open".into())
    );
    let id = token["id"].as_str().unwrap();
    let ended = fallow(dir.path(), &["tokens", "revoke", id]);
    assert_eq!(ended.status.code(), Some(0), "{}", text(&ended));
    let table = fallow(dir.path(), &["tokens", "list"]);
    assert!(text(&table).contains("revoked") && text(&table).contains("0 of 400"), "{}", text(&table));
    for (arguments, said) in [
        (&["tokens", "create", "--expires", "400d"][..], "from 1s to 366d"),
        (&["tokens", "create", "--uses", "0"], "a whole number from 1"),
        (&["tokens", "create", "--label", "room"], "such as room=12"),
        (&["tokens", "create", "--label", "os=linux"], "a name that agents do not report"),
        (&["tokens", "revoke", "nonsense"], "fallow tokens list"),
        (&["hosts", "revoke", "nobody"], "there is no host \"nobody\""),
        (&["hosts", "forget", "nobody"], "there is no host \"nobody\""),
    ] {
        let output = fallow(dir.path(), arguments);
        assert_eq!(output.status.code(), Some(3), "{arguments:?}: {}", text(&output));
        assert!(text(&output).contains(said), "{arguments:?}: {}", text(&output));
    }
    assert_eq!(running.stop(), Some(0));
}

#[test]
fn an_address_that_is_not_the_coordinators_is_told_apart_from_one_where_nobody_answers() {
    let dir = tempfile::tempdir().unwrap();
    let mut running = Running::start(dir.path());
    let daemon = DaemonFile::read(&dir.path().join("coordinator")).unwrap();
    let at = |address: &str| fallow(dir.path(), &["hosts", "--coordinator", address]);
    // The directory's own token is used.
    let right = at(&daemon.told.fleet);
    assert_eq!(right.status.code(), Some(0), "{}", text(&right));
    let projects = at(daemon.told.http.trim_start_matches("http://"));
    assert_eq!(projects.status.code(), Some(4), "{}", text(&projects));
    for said in ["not a coordinator's gRPC port", "port of the projects", &daemon.told.fleet] {
        assert!(text(&projects).contains(said), "{said}: {}", text(&projects));
    }
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let other_at = other.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        use std::io::Write as _;
        for mut stream in other.incoming().flatten() {
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n");
        }
    });
    let output = at(&other_at);
    assert_eq!(output.status.code(), Some(4), "{}", text(&output));
    assert!(text(&output).contains("not a coordinator's gRPC port"), "{}", text(&output));
    assert!(text(&output).contains(&format!("projects' port is {}", daemon.told.http)), "{}", text(&output));
    let garbage = at("garbage");
    assert_eq!(garbage.status.code(), Some(2), "{}", text(&garbage));
    assert!(text(&garbage).contains("such as lab.example.org:24001"), "{}", text(&garbage));
    assert_eq!(running.stop(), Some(0));
    let nobody = at(&daemon.told.fleet);
    assert_eq!(nobody.status.code(), Some(4));
    assert!(
        text(&nobody).contains("Connection refused") && !text(&nobody).contains("transport"),
        "{}",
        text(&nobody)
    );
}

#[test]
fn a_token_file_that_will_not_do_is_named_with_where_the_right_one_is() {
    let dir = tempfile::tempdir().unwrap();
    let mut running = Running::start(dir.path());
    let address = DaemonFile::read(&dir.path().join("coordinator")).unwrap().told.fleet;
    let file = dir.path().join("mine");
    let file = file.to_str().unwrap();
    let with_file = || fallow(dir.path(), &["hosts", "--operator-token-file", file]);
    let missing = with_file();
    assert_eq!(missing.status.code(), Some(3), "{}", text(&missing));
    assert!(text(&missing).contains(&format!("there is no {file}")), "{}", text(&missing));
    std::fs::write(file, "hello").unwrap();
    let garbage = with_file();
    assert_eq!(garbage.status.code(), Some(3), "{}", text(&garbage));
    assert!(text(&garbage).contains("operator.token in the coordinator's directory"), "{}", text(&garbage));
    assert!(!text(&garbage).contains("delete"), "{}", text(&garbage));
    // What an earlier version wrote.
    std::fs::write(file, "0".repeat(64)).unwrap();
    assert_eq!(with_file().status.code(), Some(3));
    std::fs::write(file, with_secret(dir.path(), "0").reveal()).unwrap();
    let wrong = with_file();
    assert_eq!(wrong.status.code(), Some(5), "{}", text(&wrong));
    assert!(text(&wrong).contains("operator.token in this coordinator's directory"), "{}", text(&wrong));
    assert!(text(&wrong).contains("is an operator's token, and open to other users"), "{}", text(&wrong));
    let empty = tempfile::tempdir().unwrap();
    let none = fallow(empty.path(), &["hosts", "--coordinator", &address]);
    assert_eq!(none.status.code(), Some(3), "{}", text(&none));
    assert!(text(&none).contains("--operator-token-file"), "{}", text(&none));
    assert_eq!(running.stop(), Some(0));
}

#[test]
fn what_another_process_holds_gives_status_6() {
    let dir = tempfile::tempdir().unwrap();
    let mut running = Running::start(dir.path());
    let coordinator = dir.path().join("coordinator");
    let output = run(&coordinator, &[]);
    assert_eq!(output.status.code(), Some(6));
    assert!(text(&output).contains("in use by process"), "{}", text(&output));
    let address = DaemonFile::read(&coordinator).unwrap().told.fleet;
    assert_eq!(running.stop(), Some(0));
    let address = address.strip_prefix("https://").unwrap().to_owned();
    // A port that was left may be that of somebody's connection for a moment.
    let _taken = wait_for("its port", || TcpListener::bind(&address).ok());
    let output = run(&coordinator, &[]);
    assert_eq!(output.status.code(), Some(6));
    assert!(text(&output).contains(&address) && text(&output).contains("ss -ltnp"), "{}", text(&output));
}

#[test]
fn addresses_at_which_projects_cannot_be_known_are_refused_with_the_reason() {
    let dir = tempfile::tempdir().unwrap();
    for (arguments, said) in [
        (&["--http", "[::1]:0"][..], "use 127.0.0.1"),
        (&["--http", "0.0.0.0:0", "--projects-url", "https://lab"], "--projects-url https://lab.example.org"),
        (&["--http", "0.0.0.0:0", "--advertise", "lab:24001"], "--projects-url https://lab.example.org"),
    ] {
        let output = run(&dir.path().join("coordinator"), arguments);
        assert_eq!(output.status.code(), Some(3), "{arguments:?}: {}", text(&output));
        assert!(text(&output).contains(said), "{}", text(&output));
        assert!(!dir.path().join("coordinator").exists(), "nothing is left behind");
    }
}

#[test]
fn a_damaged_store_gives_status_7_and_is_left_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let mut running = Running::start(dir.path());
    fallow(dir.path(), &["project", "create", "sieve"]);
    assert_eq!(running.stop(), Some(0));
    let coordinator = dir.path().join("coordinator");
    let path = coordinator.join("store/sled/db");
    let mut bytes = std::fs::read(&path).unwrap();
    let place = bytes.windows(8).position(|window| window == b"document").unwrap();
    bytes[place] ^= 0x55;
    std::fs::write(&path, &bytes).unwrap();
    let output = run(&coordinator, &[]);
    assert_eq!(output.status.code(), Some(7), "{}", text(&output));
    assert!(text(&output).contains("corrupted"), "{}", text(&output));
}

#[test]
fn an_agents_directory_is_refused_with_status_3_and_not_touched() {
    let dir = tempfile::tempdir().unwrap();
    let (marked, unmarked) = (dir.path().join("marked"), dir.path().join("unmarked"));
    drop(fallow_store::SledStore::open_as(marked.join("store"), fallow_store::Kind::Agent).unwrap());
    drop(fallow_store::SledStore::open(unmarked.join("store")).unwrap());
    std::fs::write(unmarked.join("identity.json"), "{}").unwrap();
    for place in [&marked, &unmarked] {
        let names = || {
            let mut names: Vec<_> = [place.clone(), place.join("store")]
                .iter()
                .flat_map(|dir| std::fs::read_dir(dir).unwrap().flatten())
                .map(|entry| (entry.path(), entry.metadata().unwrap().modified().unwrap()))
                .collect();
            names.sort();
            names
        };
        let before = names();
        let output = run(place, &[]);
        assert_eq!(output.status.code(), Some(3), "{}", text(&output));
        assert!(text(&output).contains("agent") && text(&output).contains("another"), "{}", text(&output));
        assert_eq!(names(), before);
    }
    // And a coordinator's own says whose it is.
    let coordinator = stopped_with_a_project(dir.path());
    let kind = fallow_store::Kind::of(&coordinator.join("store")).unwrap();
    assert_eq!(kind, Some(fallow_store::Kind::Coordinator));
}

#[test]
fn a_store_that_was_deleted_beside_its_projects_gives_status_7_and_nothing_is_begun_anew() {
    let dir = tempfile::tempdir().unwrap();
    let coordinator = stopped_with_a_project(dir.path());
    for remains in ["projects", "operator.token"] {
        std::fs::remove_dir_all(coordinator.join("store")).unwrap();
        let output = run(&coordinator, &[]);
        assert_eq!(output.status.code(), Some(7), "{}", text(&output));
        for said in ["store is missing", remains, "put the store back", "move all of"] {
            assert!(text(&output).contains(said), "{said}: {}", text(&output));
        }
        assert!(!coordinator.join("store").exists());
        // An empty one is as good as none; and the token alone shows that there was one.
        std::fs::create_dir(coordinator.join("store")).unwrap();
        assert_eq!(run(&coordinator, &[]).status.code(), Some(7));
        let _ = std::fs::remove_dir_all(coordinator.join("projects"));
    }
    // What a start leaves that dies before it made its store is no sign of an earlier one.
    std::fs::remove_file(coordinator.join("operator.token")).unwrap();
    assert_eq!(Running::start(dir.path()).stop(), Some(0));
}

#[test]
fn keys_and_names_that_are_garbage_give_status_7_with_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let coordinator = stopped_with_a_project(dir.path());
    let garbage: [&[u8]; 2] = [b"garbage\n", &[0xff, 0xfe, 0x00, 0x9f]];
    let keys = ["code_sign_private", "code_sign_public", "upload_private", "upload_public"];
    let keys = keys.map(|key| (format!("projects/sieve/keys/{key}"), "restore it from a copy"));
    let others = ["operator.token", "instance"].map(|name| (name.to_owned(), "restore it, or delete it"));
    for (name, advice) in keys.iter().chain(&others) {
        let path = coordinator.join(name);
        let whole = std::fs::read(&path).unwrap();
        for bytes in garbage {
            std::fs::write(&path, bytes).unwrap();
            let output = run(&coordinator, &[]);
            assert_eq!(output.status.code(), Some(7), "{name}: {}", text(&output));
            assert!(
                text(&output).contains(name) && text(&output).contains(advice),
                "{name}: {}",
                text(&output)
            );
            assert!(!text(&output).contains("free space"), "{}", text(&output));
        }
        std::fs::write(&path, whole).unwrap();
    }
    let keys = coordinator.join("projects/sieve/keys");
    let own = std::fs::read(keys.join("upload_public")).unwrap();
    std::fs::copy(keys.join("code_sign_public"), keys.join("upload_public")).unwrap();
    let output = run(&coordinator, &[]);
    assert_eq!(output.status.code(), Some(7));
    assert!(text(&output).contains("belongs to another private key"), "{}", text(&output));
    std::fs::write(keys.join("upload_public"), own).unwrap();
    assert_eq!(Running::start(dir.path()).stop(), Some(0));
}

#[test]
fn a_usage_line_does_not_ask_for_what_the_environment_gives_and_a_minus_is_no_option() {
    let dir = tempfile::tempdir().unwrap();
    let usage = fallow(dir.path(), &["jobs", "--nonsense"]);
    assert_eq!(usage.status.code(), Some(2));
    assert!(!text(&usage).contains("--dir <DIR>"), "{}", text(&usage));
    for arguments in [
        &["preferences", "set", "--buffer-min", "-1"][..],
        &["submit", "p", "--app", "a", "--flops", "1", "--deadline", "-1"],
        &["evaluate", "--out", "x", "--seed", "-1"],
        &["coordinator", "run", "--heartbeat", "-1"],
    ] {
        let output = fallow(dir.path(), arguments);
        assert!(!text(&output).contains("unexpected argument"), "{arguments:?}: {}", text(&output));
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", text(&output));
    }
}

#[test]
fn a_directory_that_cannot_be_made_gives_status_8_and_a_file_in_its_place_3() {
    let dir = tempfile::tempdir().unwrap();
    let output = run(Path::new("/proc/fallow"), &[]);
    assert_eq!(output.status.code(), Some(8), "{}", text(&output));
    assert!(text(&output).contains("cannot be made or written"), "{}", text(&output));
    let file = dir.path().join("file");
    std::fs::write(&file, "").unwrap();
    for place in [file.clone(), file.join("coordinator")] {
        let output = run(&place, &[]);
        assert_eq!(output.status.code(), Some(3), "{}", text(&output));
        assert!(text(&output).contains("file is not a directory"), "{}", text(&output));
    }
}

#[test]
fn a_coordinator_whose_directory_was_removed_ends_with_status_7() {
    let dir = tempfile::tempdir().unwrap();
    let mut running = Running::start(dir.path());
    std::fs::remove_dir_all(dir.path().join("coordinator")).unwrap();
    let status = wait_for("its end without its directory", || running.0.try_wait().unwrap());
    assert_eq!(status.code(), Some(7));
}

#[test]
fn r6_10_a_directory_that_was_made_open_to_others_is_closed_at_the_start() {
    use std::os::unix::fs::PermissionsExt as _;
    let dir = tempfile::tempdir().unwrap();
    let own = dir.path().join("coordinator");
    std::fs::create_dir(&own).unwrap();
    std::fs::set_permissions(&own, std::fs::Permissions::from_mode(0o755)).unwrap();
    let mut running = Running::start(dir.path());
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&own), 0o700);
    for name in ["store", "store/sled", "store/sled/db", "operator.token"] {
        assert_eq!(mode(&own.join(name)) & 0o077, 0, "{name}");
    }
    assert_eq!(running.stop(), Some(0));
}

// ---- helpers ----

/// The directory of a coordinator that has a project and does not run.
fn stopped_with_a_project(dir: &Path) -> PathBuf {
    let mut running = Running::start(dir);
    let made = fallow(dir, &["project", "create", "sieve"]);
    assert_eq!(made.status.code(), Some(0), "{}", text(&made));
    assert_eq!(running.stop(), Some(0));
    dir.join("coordinator")
}
