//! What somebody is told whose scenario makes no sense: exact texts. Of single values in `values.rs`, of
//! bounds and units in `sense.rs`, of keys, tables and names in `keys.rs`; here, of the file as a whole.

mod keys;
mod sense;
mod values;

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
        Err(diagnostics) => diagnostics.to_string(),
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

#[test]
fn a_text_without_its_end_is_refused() {
    check(
        r#""60 min""#,
        r#""60 min"#,
        r#"
error: base.toml:9:28: invalid basic string, expected `"`
    9 | scheduling_period = "60 min
      |                            ^
"#,
    );
}

#[test]
fn everything_wrong_is_told_at_once_in_the_order_of_the_file() {
    let told = told(
        &FILE
            .replace("cpus = 2", "cpu = 2")
            .replace("share = 100", "share = -1")
            .replace("\"9 days\"", "\"0 s\""),
    );
    let lines: Vec<&str> = told.lines().filter(|line| line.starts_with("error")).collect();
    assert_eq!(
        lines,
        [
            "error: base.toml:4:1: host.cpu: unknown key in [host]",
            "error: base.toml:13:9: project.p1.share: -1 makes no sense here",
            "error: base.toml:14:17: project.p1.latency_bound: 0 s makes no sense here",
        ]
    );
}

#[test]
fn syntax_errors_are_all_told() {
    assert_eq!(
        told("name = \n[x\n[[project]]\n"),
        "error: base.toml:1:8: string values must be quoted, expected literal string\n    1 | name =\n      |        ^\n\
         error: base.toml:2:3: unclosed table, expected `]`\n    2 | [x\n      |   ^"
    );
}

#[test]
fn a_long_line_is_cut_around_the_place() {
    let blanks = " ".repeat(150);
    let told = told(&FILE.replace("cpus = 2", &format!("cpus ={blanks}0")));
    assert!(told.lines().all(|line| line.len() < 120), "{told}");
    assert!(told.contains("4:157: host.cpus: 0 makes no sense here"), "{told}");
}

#[test]
fn a_file_that_is_wrong_throughout_gets_a_hundred_complaints_and_no_more() {
    let project = "[[project]]\nname = \"p\"\nshare = -1\ncolour = 1\n";
    let Err(diagnostics) = Scenario::parse("base.toml", &project.repeat(10_000), &NoFiles) else {
        panic!("refused")
    };
    assert_eq!(diagnostics.0.len(), 100);
}

#[test]
fn deeply_nested_brackets_are_refused_without_harm() {
    let told = told(&format!("name = {}", "[".repeat(20_000)));
    assert!(told.starts_with("error: base.toml:1:"), "{told:.200}");
    let told = self::told(&format!("name = {}", "{a=".repeat(20_000)));
    assert!(told.starts_with("error: base.toml:1:"), "{told:.200}");
    let told = self::told(&format!("{} = 1", vec!["a"; 10_000].join(".")));
    assert!(told.starts_with("error: base.toml:1:"), "{told:.200}");
}

#[test]
fn an_error_behind_a_hundred_warnings_is_still_an_error() {
    let mut text = String::from("name = \"x\"\n");
    for index in 0..150 {
        text += &format!("[[project]]\nname = \"p{index}\"\nuses = {{ nvidia = 1 }}\n");
    }
    text += "[[project]]\nname = \"last\"\nlatency_bound = \"0 s\"\n";
    let Err(diagnostics) = Scenario::parse("base.toml", &text, &NoFiles) else { panic!("refused") };
    assert!(diagnostics.0.iter().any(|diagnostic| diagnostic.key == "project.last.latency_bound"));
}

#[test]
fn r5_13_more_projects_than_can_be_simulated_are_refused_at_the_first_that_is_too_many() {
    let projects = |count: usize| {
        (1..=count)
            .fold(String::from("name = \"x\"\n"), |text, n| text + &format!("[[project]]\nname = \"p{n}\"\n"))
    };
    assert_eq!(told(&projects(1000)), "");
    assert_eq!(
        told(&projects(1001)),
        "error: base.toml:2002:1: project.p1001: there are 1001 projects\n 2002 | [[project]]\n      | ^^^^^^^^^^^\n        \
         expected at most 1,000 [[project]]: no client is attached to more"
    );
}

#[test]
fn r5_13_more_applications_than_can_be_simulated_are_refused_at_the_first_that_is_too_many() {
    let mut text = String::from("name = \"x\"\n[[project]]\nname = \"a\"\n[[project]]\nname = \"b\"\n");
    for n in 1..=999 {
        text += &format!("[[project.application]]\nname = \"n{n}\"\n");
    }
    assert_eq!(told(&text), "");
    text += "[[project.application]]\nname = \"last\"\n";
    assert_eq!(
        told(&text),
        "error: base.toml:2004:1: project.b.application.last: there are 1001 applications in all projects\n \
         2004 | [[project.application]]\n      | ^^^^^^^^^^^^^^^^^^^^^^^\n        \
         expected at most 1,000 kinds of jobs, a project without [[project.application]] has one"
    );
}
