//! docs/preferences.md: every element of BOINC's preferences has a row there, with the test that shows what
//! it does, or the word that nothing is done.

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

/// A row: the element, what is done, the test.
struct Row {
    element: String,
    what: String,
    test: Option<String>,
}

fn rows() -> Vec<Row> {
    let page = fs::read_to_string(root().join(PAGE)).unwrap();
    let table = page.split("| element | here | shown by |").nth(1).unwrap();
    let lines = table.lines().skip(2).take_while(|line| line.starts_with('|'));
    lines.map(row).collect()
}

fn row(line: &str) -> Row {
    let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
    let [element, what, test] = cells[..] else { panic!("{PAGE}: three columns are expected in {line}") };
    let name = |cell: &str| cell.trim_matches('`').to_owned();
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
    let rows: Vec<String> = rows().into_iter().map(|row| row.element).collect();
    assert_eq!(rows.iter().cloned().collect::<BTreeSet<String>>(), all);
    assert_eq!(rows.len(), all.len(), "one row each");
    // What the code reads and writes is among them, and all of them but those.
    assert_eq!(elements(), all);
}

#[test]
fn every_row_names_a_test_that_exists_or_says_that_nothing_is_done() {
    let texts: Vec<(String, String)> =
        texts().into_iter().filter(|(path, _)| path.ends_with(".rs")).collect();
    let exists = |name: &str| {
        let code = format!("fn {name}(");
        texts.iter().any(|(_, text)| text.contains(&code))
    };
    let mut wrong = Vec::new();
    for Row { element, what, test } in rows() {
        match (what.starts_with("not done"), test) {
            (true, None) => {}
            (true, Some(test)) => wrong.push(format!("{element}: not done, and shown by {test}")),
            (false, None) => wrong.push(format!("{element}: shown by nothing")),
            (false, Some(test)) if !exists(&test) => {
                wrong.push(format!("{element}: no test is called {test}"));
            }
            (false, Some(_)) => {}
        }
    }
    none(&wrong, "rows of docs/preferences.md");
}
