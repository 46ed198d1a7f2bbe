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

#[test]
fn a_misspelt_key_gets_a_suggestion() {
    check(
        "cpus = 2",
        "cpu = 2",
        r#"
error: base.toml:4:1: host.cpu: unknown key in [host]
    4 | cpu = 2
      | ^^^
        expected one of cpus, flops, available, off, connection_interval, memory, disk, network, coprocessor
        did you mean `cpus`?
"#,
    );
}

#[test]
fn no_cpus_are_refused() {
    check(
        "cpus = 2",
        "cpus = 0",
        r#"
error: base.toml:4:8: host.cpus: 0 makes no sense here
    4 | cpus = 0
      |        ^
        expected a whole number of 1 or more
"#,
    );
}

#[test]
fn a_negative_number_of_cpus_is_refused() {
    check(
        "cpus = 2",
        "cpus = -1",
        r#"
error: base.toml:4:8: host.cpus: -1 makes no sense here
    4 | cpus = -1
      |        ^^
        expected a whole number of 1 or more
"#,
    );
}

#[test]
fn half_a_cpu_is_refused() {
    check(
        "cpus = 2",
        "cpus = 2.5",
        r#"
error: base.toml:4:8: host.cpus: 2.5 makes no sense here
    4 | cpus = 2.5
      |        ^^^
        expected a whole number of 1 or more
"#,
    );
}

#[test]
fn a_negative_share_is_refused() {
    check(
        "share = 100",
        "share = -1",
        r#"
error: base.toml:13:9: project.p1.share: -1 makes no sense here
   13 | share = -1
      |         ^^
        expected a resource share: a number from 0 to 1,000,000,000
"#,
    );
}

#[test]
fn a_share_that_is_no_number_is_refused() {
    check(
        "share = 100",
        r#"share = "much""#,
        r#"
error: base.toml:13:9: project.p1.share: "much" makes no sense here
   13 | share = "much"
      |         ^^^^^^
        expected a resource share: a number from 0 to 1,000,000,000
"#,
    );
}

#[test]
fn a_fraction_above_1_is_refused() {
    check(
        "fraction = 0.8",
        "fraction = 1.8",
        r#"
error: base.toml:6:26: host.available.fraction: 1.8 makes no sense here
    6 | available = { fraction = 1.8, mean = "1000 s" }
      |                          ^^^
        expected a fraction: a number from 0 to 1
"#,
    );
}

#[test]
fn a_host_that_is_never_on_is_refused() {
    check(
        "fraction = 0.8",
        "fraction = 0",
        r#"
error: base.toml:6:26: host.available.fraction: 0 makes no sense here
    6 | available = { fraction = 0, mean = "1000 s" }
      |                          ^
        expected a fraction above 0: otherwise it is never on
"#,
    );
}

#[test]
fn a_duration_without_a_unit_is_refused() {
    check(
        r#""100 days""#,
        "100",
        r#"
error: base.toml:2:12: duration: 100 has no unit
    2 | duration = 100
      |            ^^^
        expected a duration with its unit (days, h, min, s or ms), such as "60 min"
"#,
    );
}

#[test]
fn no_duration_at_all_is_refused() {
    check(
        r#""100 days""#,
        r#""0 s""#,
        r#"
error: base.toml:2:12: duration: 0 s makes no sense here
    2 | duration = "0 s"
      |            ^^^^^
        expected a duration from 1 s to 100 years
"#,
    );
}

#[test]
fn a_misspelt_unit_gets_a_suggestion() {
    check(
        r#""100 days""#,
        r#""100 dyas""#,
        r#"
error: base.toml:2:12: duration: "dyas" is no unit of a duration
    2 | duration = "100 dyas"
      |            ^^^^^^^^^^
        expected a duration with its unit (days, h, min, s or ms), such as "60 min"
        did you mean "100 days"?
"#,
    );
}

#[test]
fn a_duration_without_a_number_is_refused() {
    check(
        r#""9 days""#,
        r#""soon""#,
        r#"
error: base.toml:14:17: project.p1.latency_bound: "soon" does not begin with a number
   14 | latency_bound = "soon"
      |                 ^^^^^^
        expected a duration with its unit (days, h, min, s or ms), such as "60 min"
"#,
    );
}

#[test]
fn a_duration_in_quotes_without_a_unit_is_refused() {
    check(
        r#""9 days""#,
        r#""9""#,
        r#"
error: base.toml:14:17: project.p1.latency_bound: a duration needs a unit
   14 | latency_bound = "9"
      |                 ^^^
        expected a duration with its unit (days, h, min, s or ms), such as "60 min"
"#,
    );
}

#[test]
fn a_misspelt_word_gets_a_suggestion() {
    check(
        r#""fixed""#,
        r#""fixd""#,
        r#"
error: base.toml:17:12: project.p1.estimate: "fixd" makes no sense here
   17 | estimate = "fixd"
      |            ^^^^^^
        expected "fixed" or "true"
        did you mean "fixed"?
"#,
    );
}

#[test]
fn a_truth_value_in_place_of_a_word_gets_a_suggestion() {
    check(
        r#""fixed""#,
        "true",
        r#"
error: base.toml:17:12: project.p1.estimate: true makes no sense here
   17 | estimate = true
      |            ^^^^
        expected "fixed" or "true"
        did you mean "true", in quotes?
"#,
    );
}

#[test]
fn a_coprocessor_that_the_host_lacks_is_a_warning() {
    check(
        r#"estimate = "fixed""#,
        "uses = { nvidia = 0.5 }",
        r#"
warning: base.toml:17:19: project.p1.uses.nvidia: the host has no nvidia: no job of this kind will be sent
   17 | uses = { nvidia = 0.5 }
      |                   ^^^
"#,
    );
}

#[test]
fn more_cpus_than_the_host_has_are_a_warning() {
    check(
        r#"estimate = "fixed""#,
        "uses = { cpus = 4 }",
        r#"
warning: base.toml:17:17: project.p1.uses.cpus: its jobs use 4, the host has 2: none will run
   17 | uses = { cpus = 4 }
      |                 ^
"#,
    );
}

#[test]
fn two_kinds_of_coprocessors_are_refused() {
    check(
        r#"estimate = "fixed""#,
        "uses = { cpus = 1, nvidia = 1, amd = 1 }",
        r#"
error: base.toml:17:38: project.p1.uses.amd: a job cannot use both nvidia and amd
   17 | uses = { cpus = 1, nvidia = 1, amd = 1 }
      |                                      ^
        expected one kind of coprocessor at most
"#,
    );
}

#[test]
fn an_unknown_coprocessor_is_refused() {
    check(
        r#"estimate = "fixed""#,
        "uses = { cpus = 1, gpu = 1 }",
        r#"
error: base.toml:17:20: project.p1.uses.gpu: unknown key in uses
   17 | uses = { cpus = 1, gpu = 1 }
      |                    ^^^
        expected one of cpus, nvidia, amd, intel, apple
"#,
    );
}

#[test]
fn a_key_of_another_table_is_sent_there() {
    check(
        r#"estimate = "fixed""#,
        "cpus = 3",
        r#"
error: base.toml:17:1: project.p1.cpus: unknown key in [[project]]
   17 | cpus = 3
      | ^^^^
        expected one of name, share, available, request_delay, correction, latency_bound, estimated_flops, true_flops, estimate, uses, checkpoint, input, output, memory, jobs, failure, application, queue
        did you mean `cpus` of [host]?
"#,
    );
}

#[test]
fn jobs_described_in_two_places_are_refused() {
    check(
        r#"estimate = "fixed""#,
        "[[project.application]]\nname = \"x\"",
        r#"
error: base.toml:14:17: project.p1.latency_bound: `latency_bound` belongs in [[project.application]], since the project has those
   14 | latency_bound = "9 days"
      |                 ^^^^^^^^
        expected it there, or no [[project.application]]
error: base.toml:15:19: project.p1.estimated_flops: `estimated_flops` belongs in [[project.application]], since the project has those
   15 | estimated_flops = 1.3e13
      |                   ^^^^^^
        expected it there, or no [[project.application]]
error: base.toml:16:1: project.p1.true_flops: `true_flops` belongs in [[project.application]], since the project has those
   16 | true_flops = { mean = 1.3e13, deviation = 0.0 }
      | ^^^^^^^^^^
        expected it there, or no [[project.application]]
"#,
    );
}

#[test]
fn two_projects_of_one_name_are_refused() {
    check(
        r#"estimate = "fixed""#,
        "[[project]]\nname = \"p1\"",
        r#"
error: base.toml:18:8: project.p1.name: two projects are named "p1"
   18 | name = "p1"
      |        ^^^^
        expected a name of its own for each
"#,
    );
}

#[test]
fn a_project_without_a_name_is_refused() {
    check(
        r#"estimate = "fixed""#,
        "[[project]]",
        r#"
error: base.toml:17:1: project.2.name: `name` is missing
   17 | [[project]]
      | ^^^^^^^^^^^
        expected a name, such as name = "p1"
"#,
    );
}

#[test]
fn a_queued_job_of_an_unknown_application_is_refused() {
    check(
        r#"estimate = "fixed""#,
        "[[project.queue]]\nname = \"j\"\ndeadline = \"1 day\"\napplication = \"p2\"",
        r#"
error: base.toml:20:15: project.p1.queue.0.application: project p1 has no application "p2"
   20 | application = "p2"
      |               ^^^^
        expected one of the project's applications
"#,
    );
}

#[test]
fn a_single_project_table_is_refused() {
    check(
        "[[project]]",
        "[project]",
        r#"
error: base.toml:11:2: project: a table makes no sense here
   11 | [project]
      |  ^^^^^^^
        expected [[project]], once for each
"#,
    );
}

#[test]
fn a_misspelt_table_gets_a_suggestion() {
    check(
        "[client]",
        "[cleint]",
        r#"
error: base.toml:8:2: cleint: unknown key in the file
    8 | [cleint]
      |  ^^^^^^
        expected one of name, duration, host, client, project
        did you mean `client`?
"#,
    );
}

#[test]
fn a_doubled_host_table_is_refused() {
    check(
        "[host]",
        "[[host]]",
        r#"
error: base.toml:3:1: host: a list makes no sense here
    3 | [[host]]
      | ^^^^^^^^
        expected a table: [host] with cpus, flops, available, off, connection_interval, memory, disk, network, coprocessor
"#,
    );
}

#[test]
fn a_negative_buffer_is_refused() {
    check(
        r#"min = "0.1 days", "#,
        r#"min = "-1 days", "#,
        r#"
error: base.toml:10:18: client.buffer.min: -1 days makes no sense here
   10 | buffer = { min = "-1 days", additional = "0.25 days" }
      |                  ^^^^^^^^^
        expected a duration from 0 s to 31 days
"#,
    );
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
fn a_size_without_a_mean_is_refused() {
    check(
        "{ mean = 1.3e13, deviation = 0.0 }",
        "{ deviation = 0.0 }",
        r#"
error: base.toml:16:1: project.p1.true_flops.mean: `mean` is missing
   16 | true_flops = { deviation = 0.0 }
      | ^^^^^^^^^^
        expected the mean size of a job, such as mean = 1.3e13
"#,
    );
}

#[test]
fn a_job_longer_than_a_life_is_refused() {
    check(
        "{ mean = 1.3e13, deviation = 0.0 }",
        "{ mean = 1.3e33 }",
        r#"
error: base.toml:16:23: project.p1.true_flops.mean: a job takes more than 100 years on this host
   16 | true_flops = { mean = 1.3e33 }
      |                       ^^^^^^
        expected a size that takes from 0.001 s to 100 years
"#,
    );
}

#[test]
fn a_size_that_is_no_number_is_refused() {
    check(
        "{ mean = 1.3e13, deviation = 0.0 }",
        "{ mean = nan }",
        r#"
error: base.toml:16:23: project.p1.true_flops.mean: nan makes no sense here
   16 | true_flops = { mean = nan }
      |                       ^^^
        expected a number of floating-point operations of 0 or more, such as 1.3e13
"#,
    );
}

#[test]
fn a_trace_that_is_not_there_is_refused() {
    check(
        r#"{ fraction = 0.8, mean = "1000 s" }"#,
        r#"{ trace = "x.csv" }"#,
        r#"
error: base.toml:6:23: host.available.trace: cannot read x.csv: entity not found
    6 | available = { trace = "x.csv" }
      |                       ^^^^^^^
        expected a CSV file of on and off times, named from where the scenario is
"#,
    );
}

#[test]
fn an_availability_without_its_mean_interval_is_refused() {
    check(
        r#"{ fraction = 0.8, mean = "1000 s" }"#,
        "0.8",
        r#"
error: base.toml:6:13: host.available: 0.8 makes no sense here
    6 | available = 0.8
      |             ^^^
        expected "always", { fraction = 0.8, mean = "1000 s" } or { trace = "FILE.csv" }
"#,
    );
}

#[test]
fn half_an_availability_is_refused() {
    check(
        r#"{ fraction = 0.8, mean = "1000 s" }"#,
        "{ fraction = 0.8 }",
        r#"
error: base.toml:6:1: host.available.mean: `mean` is missing
    6 | available = { fraction = 0.8 }
      | ^^^^^^^^^
        expected the mean length of an on interval, such as "1000 s"
"#,
    );
}

#[test]
fn a_name_with_a_dot_is_refused() {
    check(
        r#"name = "p1""#,
        r#"name = "a.b""#,
        r#"
error: base.toml:12:8: project.a.b.name: "a.b" is no name
   12 | name = "a.b"
      |        ^^^^^
        expected 1 to 100 characters, none of them . = * , / \ and no blanks around them
"#,
    );
}

#[test]
fn a_file_without_a_name_is_refused() {
    check(
        "name = \"base\"\n",
        "",
        r#"
error: base.toml:1:1: name: `name` is missing
        expected a name, such as name = "base"
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
fn a_scenario_without_a_project_is_refused() {
    assert_eq!(
        told("name = \"x\""),
        "error: base.toml:1:1: project: there is none\n        expected at least one [[project]]"
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
    let Err(complaints) = Scenario::parse("base.toml", &project.repeat(10_000), &NoFiles) else {
        panic!("refused")
    };
    assert_eq!(complaints.0.len(), 100);
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
    let Err(complaints) = Scenario::parse("base.toml", &text, &NoFiles) else { panic!("refused") };
    assert!(complaints.0.iter().any(|complaint| complaint.key == "project.last.latency_bound"));
}
