//! `fallow simulate` and `fallow evaluate` as processes.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests: failures are panics")]

use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use fallow_policy::accounting::AccountingChoice;
use fallow_policy::choice::{Policy, PolicyKind};
use fallow_policy::completion::CompletionPolicy;
use fallow_policy::cpu_schedule::CpuPolicy;
use fallow_policy::fetch::FetchPolicy;
use fallow_policy::send::SendPolicy;
use rustix::process::{Pid, Signal, kill_process};

#[test]
fn r5_12_the_same_seed_gives_the_same_output_whatever_the_number_of_threads() {
    let arguments = [
        &["simulate", "mix2", "base", "--policy", "CS1", "--policy", "CS2", "--seed", "7", "--repeat", "2"][..],
        &["--vary", "duration=2 days,3 days", "--json"],
    ];
    let simulate =
        |threads| command().args(arguments.concat()).env("RAYON_NUM_THREADS", threads).output().unwrap();
    let (one, four) = (simulate("1"), simulate("4"));
    assert_eq!(one.status.code(), Some(0), "{}", text(&one));
    let replay = format!("replay: RAYON_NUM_THREADS=4 fallow {}", arguments.concat().join(" "));
    assert_eq!(without_wall(&one), without_wall(&four), "{replay}");
    let first = &without_wall(&one)[0];
    assert_eq!(without_wall(&one).len(), 16);
    assert_eq!(first["scenario"], "mix2");
    assert_eq!(first["policy"], "CS1_WF2_WS2_JC2");
    assert_eq!(first["seed"], 7);
    assert_eq!(first["vary"], serde_json::json!({ "duration": "2 days" }));
    assert_eq!(first["simulated_seconds"], 2.0 * 86_400.0);
    let figures = ["idleness", "waste", "share_violation", "share_deviation", "monotony", "rpcs_per_job"];
    for key in figures.into_iter().chain(["jobs_finished", "jobs_late"]) {
        assert!(first.get(key).is_some(), "{key} is missing: {first}");
    }
}

#[test]
fn r5_14_a_simulation_is_told_in_tables_csv_and_pictures() {
    let dir = tempfile::tempdir().unwrap();
    let (timeline, plots) = (dir.path().join("t/run.svg"), dir.path().join("plots"));
    let scenarios = dir.path().join("scenarios");
    std::fs::create_dir(&scenarios).unwrap();
    std::fs::write(
        scenarios.join("b.toml"),
        "name = 'second'\nduration = '1 day'\n[[project]]\nname = 'p'\n",
    )
    .unwrap();
    std::fs::write(scenarios.join("a.toml"), "name = 'first'\nduration = '1 day'\n[[project]]\nname = 'p'\n")
        .unwrap();
    let mut simulate = command();
    simulate.arg("simulate").arg(&scenarios).args(["--csv", "--vary", "host.cpus=1,2"]);
    simulate.args(["--policy", "CS2", "--vary", "client.buffer.min=1 h", "--timeline"]);
    let output = simulate.arg(&timeline).arg("--plots").arg(&plots).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    let csv = String::from_utf8(output.stdout).unwrap();
    let names: Vec<&str> = csv.lines().map(|line| line.split(',').next().unwrap()).collect();
    assert_eq!(names, ["scenario", "first", "first", "second", "second"], "{csv}");
    assert!(csv.starts_with("scenario,policy,seed,client.buffer.min,host.cpus,idleness,waste,"), "{csv}");
    let drawn = std::fs::read_to_string(timeline).unwrap();
    assert!(
        drawn.contains("first, CS2_WF2_WS2_JC2, client.buffer.min=1 h host.cpus=1, seed 1")
            && drawn.contains("CPU 0")
    );
    assert!(std::fs::read_to_string(plots.join("metrics.svg")).unwrap().contains("share violation"));
    assert!(std::fs::read_to_string(plots.join("metrics.svg")).unwrap().contains("metrics by host.cpus"));
    assert!(std::fs::read_to_string(plots.join("metrics.csv")).unwrap().contains("measured"));
    let table = command().arg("simulate").arg(&scenarios).args(["--repeat", "2"]).output().unwrap();
    assert!(text(&table).contains("Means of 2 seeds") && text(&table).contains('±'), "{}", text(&table));
}

#[test]
fn r5_14_of_a_batch_on_a_fleet_it_is_told_when_it_ended_and_who_had_which_part() {
    let dir = tempfile::tempdir().unwrap();
    let (fleet, alone) = (dir.path().join("fleet.toml"), dir.path().join("alone.toml"));
    let project = "[[project]]\nname = 'p'\nestimated_flops = 1e12\n";
    let several = format!("name = 'f'\nduration = '1 day'\nhosts = 3\n{project}jobs = 12\n");
    std::fs::write(&fleet, several).unwrap();
    std::fs::write(&alone, format!("name = 'a'\nduration = '1 day'\n{project}")).unwrap();
    let run = |arguments: &[&str]| {
        let output = command().arg("simulate").args([&alone, &fleet]).args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", text(&output));
        String::from_utf8(output.stdout).unwrap()
    };
    let lines: Vec<serde_json::Value> =
        run(&["--json"]).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines[1]["hosts"], 3);
    let number = |key: &str| lines[1][key].as_f64().unwrap_or_else(|| panic!("{key}: {}", lines[1]));
    assert!(number("batch_computed_seconds") >= 1_000.0 && number("batch_reported_seconds") >= 1_000.0);
    assert!(number("host_jobs_least") <= 4.0 && number("host_jobs_most") >= 4.0, "{}", lines[1]);
    assert!((1.0..=3.0).contains(&number("hosts_with_jobs")), "{}", lines[1]);
    for key in ["hosts", "hosts_with_jobs", "batch_computed_seconds"] {
        assert!(lines[0].get(key).is_none(), "{key} says nothing of one host: {}", lines[0]);
    }
    let csv = run(&["--csv"]);
    let heading = "wall_seconds,hosts,hosts_with_jobs,host_jobs_least,host_jobs_most,batch_computed_seconds,\
                   batch_reported_seconds\n";
    assert!(csv.contains(heading), "{csv}");
    // The policy's name has a comma and is quoted.
    let fields = csv.lines().map(|line| line.replace("_JC3,abort", "_JC3 abort").split(',').count());
    let fields: Vec<usize> = fields.collect();
    assert_eq!((fields.len(), fields.iter().min()), (3, fields.iter().max()), "{csv}");
    let table = run(&[]);
    assert!(table.contains("with jobs") && table.contains("batch computed"), "{table}");
}

#[test]
fn r5_13_a_scenario_is_shown_as_a_file_that_simulates_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("own.toml");
    for name in ["base", "gpu", "mix3"] {
        let shown = command().args(["simulate", "--show", name]).output().unwrap();
        assert_eq!(shown.status.code(), Some(0), "{}", text(&shown));
        std::fs::write(&file, &shown.stdout).unwrap();
        let again = command().args(["simulate", "--show"]).arg(&file).output().unwrap();
        assert_eq!(text(&again), text(&shown));
        let simulate = |what: &std::ffi::OsStr| {
            let arguments = ["--vary", "duration=1 day", "--json"];
            command().arg("simulate").arg(what).args(arguments).output().unwrap()
        };
        let (own, built_in) = (simulate(file.as_os_str()), simulate(name.as_ref()));
        assert_eq!(own.status.code(), Some(0), "{}", text(&own));
        assert_eq!(without_wall(&own), without_wall(&built_in), "{name}");
    }
    std::fs::copy(&file, dir.path().join("other.toml")).unwrap();
    let several = command().args(["simulate", "--show"]).arg(dir.path()).output().unwrap();
    assert_eq!(several.status.code(), Some(3), "{}", text(&several));
    assert!(text(&several).contains("name one of them"), "{}", text(&several));
    let mixed = command().args(["simulate", "base", "--show", "gpu"]).output().unwrap();
    assert_eq!(mixed.status.code(), Some(2), "{}", text(&mixed));
}

#[test]
fn the_help_names_every_policy_and_switch_and_the_manual_of_scenarios() {
    let help = command().args(["simulate", "--help"]).output().unwrap();
    assert_eq!(help.status.code(), Some(0));
    let help = text(&help);
    assert!(help.contains("docs/scenarios.md") && help.contains("--show"), "{help}");
    let switches = ["ws2=improved", "ws2=published", "ws2=counted", "ws2=scaled", "fetch=any-shortfall"];
    let switches = switches
        .into_iter()
        .chain(["fetch=below-minimum", "abort=none", "abort=hopeless"])
        .map(str::to_owned);
    let accounts = AccountingChoice::all().map(|policy| format!("accounting={policy}"));
    for switch in switches.chain(accounts) {
        assert!(help.contains(&format!("\n  {switch} ")), "{switch}: {help}");
        let policy = format!("CS2,{switch}");
        let arguments = ["simulate", "base", "--vary", "duration=1 day", "--policy", &policy];
        assert_eq!(command().args(arguments).output().unwrap().status.code(), Some(0), "{policy}");
    }
    fn told<K: PolicyKind + ?Sized>(help: &str) {
        for policy in Policy::<K>::all() {
            let line = help.lines().find(|line| line.starts_with(&format!("  {policy} ")));
            assert!(line.is_some_and(|line| line.ends_with(policy.summary())), "{policy}: {help}");
        }
    }
    told::<dyn CpuPolicy>(&help);
    told::<dyn FetchPolicy>(&help);
    told::<dyn SendPolicy>(&help);
    told::<dyn CompletionPolicy>(&help);
    assert!(help.lines().all(|line| line.chars().count() <= 80), "{help}");
}

#[test]
fn r5_13_what_is_wrong_with_scenarios_is_said_at_once_with_status_3() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("typing.toml"), "name = 't'\n[host]\ncpu = 2\n").unwrap();
    std::fs::write(dir.path().join("absurd.toml"), "name = 'a'\n[host]\ncpus = 0\n").unwrap();
    let output = command().arg("simulate").arg(dir.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(3), "{}", text(&output));
    for said in ["typing.toml:3:1", "did you mean", "cpus", "absurd.toml:3:8", "expected"] {
        assert!(text(&output).contains(said), "{said}: {}", text(&output));
    }
    let empty = tempfile::tempdir().unwrap();
    let (empty, file) = (empty.path().to_str().unwrap(), dir.path().join("typing.toml/plots"));
    let taken = dir.path().join("typing.toml");
    let taken = taken.to_str().unwrap();
    for (arguments, code, said) in [
        (&["simulate", "nowhere.toml"][..], 3, "built-in base, batch300, gpu, mix1"),
        (&["simulate", empty], 3, "expected files named *.toml"),
        (&["simulate", "base", "--policy", "CS0"], 3, "CS1 or CS2"),
        (&["simulate", "base", "--seed", "-1"], 3, "expected a whole number from 0"),
        (&["simulate", "base", "--seed", "few"], 2, "expected a whole number from 0"),
        (&["simulate", "base", "--repeat", "-1"], 3, "expected a whole number from 1"),
        (&["simulate", "base", "--vary", "host.cpu=1"], 3, "did you mean"),
        (&["simulate", "--boinc-dir", empty], 3, "client_state.xml"),
        (&["simulate", "base", "--plots", file.to_str().unwrap()], 3, "a part of that path is a file"),
        (&["simulate", "base", "--plots", taken], 3, "name another, or move the file away"),
        (&["simulate", "base", "--timeline", empty], 3, "name one in it, such as"),
        (&["evaluate", "--out", empty, "--only", "slag"], 3, "expected some of cpu, slack"),
        (&["evaluate", "--out", empty, "--labs", "--set", "third"], 3, "expected tuning, judging or all"),
        (&["evaluate", "--out", empty, "--labs", "--policy", "CS0"], 3, "or one of default, published"),
        (&["evaluate", "--out", empty, "--policy", "CS1"], 2, "--labs"),
        (&["evaluate", "--out", file.to_str().unwrap()], 3, "--out: cannot write into"),
        (&["evaluate", "--out", taken], 3, "is a file, and a directory is needed"),
    ] {
        let output = command().args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {}", text(&output));
        assert!(text(&output).contains(said), "{arguments:?}: {}", text(&output));
    }
}

#[test]
fn r5_14_the_evaluation_writes_its_tables_and_figures() {
    let dir = tempfile::tempdir().unwrap();
    // Two days a run: what is told is the same, what is measured is not.
    let arguments = ["evaluate", "--only", "slack", "--repeat", "1", "--days", "2", "--json", "--out"];
    let output = command().args(arguments).arg(dir.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    let rows: Vec<serde_json::Value> = String::from_utf8_lossy(&output.stdout)
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(rows[0]["what"], "waste at slack 1");
    assert!(rows.iter().all(|row| row["requirement"] == "R5.21" && row["seeds"] == 1), "{rows:?}");
    assert!(rows[..5].iter().all(|row| row["verdict"] == "agrees" || row["verdict"] == "differs"));
    // Notes tell of runs of 100 days.
    assert!(rows.iter().all(|row| row["note"] == ""), "{rows:?}");
    for file in ["table-slack.txt", "table-slack.csv", "figure-2-slack.svg", "figure-2-slack.csv"] {
        assert!(std::fs::metadata(dir.path().join(file)).unwrap().len() > 100, "{file}");
    }
    // A whole evaluation's table would stay.
    assert!(!dir.path().join("table.txt").exists());
    let values = std::fs::read_to_string(dir.path().join("figure-2-slack.csv")).unwrap();
    assert!(values.contains("\nwaste,") && !values.contains("\n "), "{values}");
}

#[test]
fn r5_35_the_evaluation_on_labs_tells_of_each_policy_and_scenario_what_is_lost_to_what() {
    let dir = tempfile::tempdir().unwrap();
    let arguments = ["evaluate", "--labs", "--only", "t08-estimates,j13-first-days", "--repeat", "2"];
    let policies = ["--policy", "published", "--policy", "CS1_WF1_WS1_JC1", "--days", "2", "--out"];
    let evaluate =
        |more: &[&str]| command().args(arguments).args(policies).arg(dir.path()).args(more).output().unwrap();
    let output = evaluate(&["--json"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    let rows: Vec<serde_json::Value> = String::from_utf8_lossy(&output.stdout)
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let names = |key: &str| rows.iter().map(|row| row[key].as_str().unwrap()).collect::<Vec<_>>();
    assert_eq!(names("scenario")[..4], ["t08-estimates", "t08-estimates", "all", "all"]);
    assert_eq!(names("scenario")[4..], ["j13-first-days", "j13-first-days", "all", "all"]);
    assert_eq!(names("policy"), ["published", "CS1_WF1_WS1_JC1"].repeat(4));
    for row in &rows {
        let value = |key: &str| row[key].as_f64().unwrap_or(0.0);
        let sum = value("idleness") + value("waste") + value("share_deviation");
        assert!((sum - value("js")).abs() < 1e-9 && row["js_half_width_95"].is_number(), "{row}");
        assert!((0.0..=1.0).contains(&value("bound")) && row["blind"].is_number(), "{row}");
    }
    for set in ["tuning", "judging"] {
        for end in [".txt", ".csv", "-losses.svg", "-losses.csv", "-plane.svg", "-plane.csv"] {
            let file = dir.path().join(format!("labs-{set}-part{end}"));
            assert!(std::fs::metadata(&file).unwrap().len() > 100, "{}", file.display());
        }
    }
    let output = evaluate(&["--set", "judging"]);
    assert_eq!(output.status.code(), Some(3), "{}", text(&output));
    assert!(text(&output).contains("no scenario \"t08-estimates\"; expected some of j01-classroom"));
}

#[test]
fn a_full_disk_ends_what_simulates_with_status_8_and_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let simulate = ["simulate", "base", "--vary", "duration=1 day"];
    let evaluate = ["evaluate", "--only", "slack", "--repeat", "1", "--days", "1", "--out"];
    let evaluate = [&evaluate[..], &[dir.path().to_str().unwrap()]].concat();
    for (arguments, form) in [
        (&simulate[..], None),
        (&simulate, Some("--json")),
        (&simulate, Some("--csv")),
        (&evaluate, None),
        (&evaluate, Some("--json")),
        (&["simulate"], Some("--help")),
    ] {
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let output = command().args(arguments).args(form).stdout(full).output().unwrap();
        assert_eq!(output.status.code(), Some(8), "{arguments:?} {form:?}: {}", text(&output));
        for said in ["cannot write to standard output", "make room there"] {
            assert!(text(&output).contains(said), "{said}: {}", text(&output));
        }
    }
    // The files were written before.
    assert!(dir.path().join("table-slack.txt").exists());
}

#[test]
fn a_simulation_that_is_interrupted_ends_at_once_with_status_130() {
    let dir = tempfile::tempdir().unwrap();
    interrupt(&["simulate", "mix20", "--vary", "duration=3000 days", "--repeat", "50"]);
    interrupt(&["evaluate", "--days", "3000", "--out", dir.path().to_str().unwrap()]);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "something half-written is left");
}

/// Starts what takes long, interrupts it, and asserts that it ends as it should.
fn interrupt(arguments: &[&str]) {
    let mut child = command().args(arguments).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let began = Instant::now();
    let patient = |what: &str| assert!(began.elapsed() < Duration::from_secs(120), "{arguments:?}: {what}");
    while !catches_interrupts(child.id()) {
        assert_eq!(child.try_wait().unwrap(), None, "{arguments:?} ended by itself");
        patient("it does not listen to signals");
        std::thread::sleep(Duration::from_millis(10));
    }
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        patient("it does not end");
        std::thread::sleep(Duration::from_millis(10));
    };
    assert_eq!(status.code(), Some(130), "{arguments:?}");
}

/// Whether a process has a handler for SIGINT.
fn catches_interrupts(pid: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & 0b10 != 0)
}

/// Output without the one field that may differ between runs.
fn without_wall(output: &Output) -> Vec<serde_json::Value> {
    let lines = String::from_utf8_lossy(&output.stdout).into_owned();
    let object = |line: &str| {
        let mut object: serde_json::Value = serde_json::from_str(line).unwrap();
        assert!(object.as_object_mut().unwrap().remove("wall_seconds").unwrap().is_number());
        object
    };
    lines.lines().map(object).collect()
}

fn command() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fallow"));
    command.env_remove("FALLOW_DIR").env_remove("FALLOW_LOG").env_remove("OTEL_EXPORTER_OTLP_ENDPOINT");
    command.stdin(Stdio::null());
    command
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}
