//! What somebody is told whose scenario makes no sense: exact texts.

use fallow_emulator::scenario::{NoFiles, Scenario};

/// The base file of the manual, with one line in the place of another.
const FILE: &str = r#"name = "base"
duration = "100 days"
[host]
cpus = 2
flops = 1e9                          # of one CPU
available = { fraction = 0.8, mean = "1000 s" }
connection_interval = "0 s"
[client]
scheduling_period = "60 min"
buffer = { min = "0.1 days", additional = "0.25 days" }
[[project]]
name = "p1"
share = 100
latency_bound = "9 days"
estimated_flops = 1.3e13
true_flops = { mean = 1.3e13, deviation = 0.0 }
estimate = "fixed"
"#;

fn told(text: &str) -> String {
    match Scenario::parse("base.toml", text, &NoFiles) {
        Ok(loaded) => loaded.warnings.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"),
        Err(complaints) => complaints.to_string(),
    }
}

/// What is said when `line` of the file reads `instead`.
fn check(line: &str, instead: &str, expected: &str) {
    assert!(FILE.contains(line), "{line}");
    let told = told(&FILE.replacen(line, instead, 1));
    assert_eq!(told.trim_end(), expected.trim_matches('\n'), "\n{told}\n");
}

#[test]
fn the_file_itself_has_no_fault() {
    assert_eq!(told(FILE), "");
}
