//! docs/preferences.md: every element of BOINC's preferences has a row there, with the test that shows what
//! it does on a running agent, or the word that nothing is done.

use std::collections::BTreeSet;
use std::fs;

use crate::none;
use crate::tree::{root, texts};

const PAGE: &str = "docs/preferences.md";
const ELEMENTS: &str = "shared/boinc/src/scheduler/preferences.rs";
/// All that the stock client (8.3) reads in `global_preferences`, and in `cc_config.xml` as a preference.
/// Whoever finds another one adds it here.
const ELEMENTS_OF_BOINC: [&str; 46] = [
    "battery_charge_min_pct",
    "battery_max_temperature",
    "confirm_before_connecting",
    "cpu_scheduling_period_minutes",
    "cpu_usage_limit",
    "daily_xfer_limit_mb",
    "daily_xfer_period_days",
    "day_prefs",
    "disk_interval",
    "disk_max_used_gb",
    "disk_max_used_pct",
    "disk_min_free_gb",
    "dont_verify_images",
    "end_hour",
    "exclusive_app",
    "hangup_if_dialed",
    "host_specific",
    "host_venue",
    "idle_time_to_run",
    "leave_apps_in_memory",
    "max_bytes_sec_down",
    "max_bytes_sec_up",
    "max_cpus",
    "max_ncpus_pct",
    "mod_time",
    "net_end_hour",
    "net_start_hour",
    "network_wifi_only",
    "niu_cpu_usage_limit",
    "niu_max_ncpus_pct",
    "niu_suspend_cpu_usage",
    "override_file_present",
    "ram_max_used_busy_pct",
    "ram_max_used_idle_pct",
    "run_gpu_if_user_active",
    "run_if_user_active",
    "run_on_batteries",
    "source_project",
    "source_scheduler",
    "start_hour",
    "suspend_cpu_usage",
    "suspend_if_no_recent_input",
    "venue",
    "vm_max_used_pct",
    "work_buf_additional_days",
    "work_buf_min_days",
];
/// What of that is no value of its own in the list of the code.
const BESIDE: [&str; 6] =
    ["day_prefs", "exclusive_app", "host_specific", "host_venue", "source_scheduler", "venue"];

/// How a row begins that says that nothing is done.
const NOT_DONE: &str = "not done: ";
/// What a row says that is shown by a test without an agent, with the reason after it.
const NO_AGENT: &str = "no agent shows it:";
/// Scripts for the virtual machine.
const VM: &str = "e2e/vm/";

/// Whether the tests of a file are of running agents. Those of the house read texts.
fn is_of_agents(path: &str) -> bool {
    let places = ["agent/tests/", "e2e/tests/", VM];
    places.iter().any(|place| path.starts_with(place)) && !path.starts_with("e2e/tests/house/")
}

/// A row: the element, what is done, the test.
struct Row {
    element: String,
    what: String,
    test: Option<String>,
}

/// The table of preferences, and that of options of `cc_config.xml`.
const HEADS: [&str; 2] = ["| element | here | shown by |", "| option | here | shown by |"];

fn rows(head: &str) -> Vec<Row> {
    let page = fs::read_to_string(root().join(PAGE)).unwrap();
    let table = page.split(head).nth(1).unwrap();
    let lines = table.lines().skip(2).take_while(|line| line.starts_with('|'));
    lines.map(row).collect()
}

fn row(line: &str) -> Row {
    let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
    let [element, what, test] = cells[..] else { panic!("{PAGE}: three columns are expected in {line}") };
    let name = |cell: &str| cell.trim_matches('`').split('`').next().unwrap_or_default().to_owned();
    Row { element: name(element), what: what.to_owned(), test: (!test.is_empty()).then(|| name(test)) }
}

/// The fields of the structure that reads and writes them.
fn elements() -> BTreeSet<String> {
    let code = fs::read_to_string(root().join(ELEMENTS)).unwrap();
    let fields = code.split("pub struct GlobalPreferences {").nth(1).unwrap().split("\n}").next().unwrap();
    let field = |line: &str| Some(line.trim().strip_prefix("pub ")?.split(':').next()?.to_owned());
    let found: BTreeSet<String> = fields.lines().filter_map(field).collect();
    found.into_iter().chain(BESIDE.map(str::to_owned)).collect()
}

#[test]
fn every_element_of_boincs_preferences_has_a_row_and_no_other_has() {
    let all: BTreeSet<String> = ELEMENTS_OF_BOINC.map(str::to_owned).into();
    let rows: Vec<String> = rows(HEADS[0]).into_iter().map(|row| row.element).collect();
    assert_eq!(rows.iter().cloned().collect::<BTreeSet<String>>(), all);
    assert_eq!(rows.len(), all.len(), "one row each");
    // What the code reads and writes is among them, and all of them but those.
    assert_eq!(elements(), all);
}

/// What stands in the last column: a test, or a script of the virtual machine.
fn is_script(name: &str) -> bool {
    name.starts_with(VM)
}

#[test]
fn every_row_names_a_test_on_a_running_agent_or_says_why_there_is_none() {
    let texts = texts();
    // The files in which a test or a script of that name is, with their text.
    let files = |name: &str| -> Vec<&(String, String)> {
        let code = format!("fn {name}(");
        let has = |(path, text): &&(String, String)| match is_script(name) {
            true => path == name,
            false => path.ends_with(".rs") && text.contains(&code),
        };
        texts.iter().filter(has).collect()
    };
    let mut wrong = Vec::new();
    for Row { element, what, test } in HEADS.into_iter().flat_map(rows) {
        let Some(test) = test else {
            if !what.starts_with(NOT_DONE) {
                wrong.push(format!("{element}: shown by nothing"));
            }
            continue;
        };
        let files = files(&test);
        let of_agents: Vec<_> = files.iter().filter(|(path, _)| is_of_agents(path)).collect();
        match () {
            () if what.starts_with(NOT_DONE) => {
                wrong.push(format!("{element}: not done, and shown by {test}"));
            }
            () if files.is_empty() => wrong.push(format!("{element}: nothing is called {test}")),
            () if what.contains(NO_AGENT) => {}
            () if of_agents.is_empty() => wrong.push(format!(
                "{element}: {test} runs no agent, and the row does not say \"{NO_AGENT} ...\""
            )),
            () if !of_agents.iter().any(|(_, text)| text.contains(&element)) => {
                wrong.push(format!("{element}: the file of {test} does not name it"));
            }
            () => {}
        }
    }
    none(&wrong, "rows of docs/preferences.md");
}

#[test]
fn tests_of_agents_are_told_from_those_of_policies_alone() {
    for path in ["agent/tests/agent/people.rs", "e2e/tests/up.rs", "e2e/vm/swap"] {
        assert!(is_of_agents(path), "{path}");
    }
    for path in
        ["shared/client/tests/client/hours.rs", "agent/src/host/local_time.rs", "e2e/tests/house/main.rs"]
    {
        assert!(!is_of_agents(path), "{path}");
    }
}
