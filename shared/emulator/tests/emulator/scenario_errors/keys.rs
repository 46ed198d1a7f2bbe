//! Keys, tables and names: missing, misspelt, doubled, or in the wrong place.

use super::{check, told};

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
        expected one of name, share, available, request_delay, spread, correction, latency_bound, estimated_flops, true_flops, estimate, uses, checkpoint, input, output, memory, jobs, failure, application, queue
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
error: base.toml:20:15: project.p1.queue.1.application: project p1 has no application "p2"
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
        expected one of name, duration, hosts, host, client, project, outage
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
fn a_scenario_without_a_project_is_refused() {
    assert_eq!(
        told("name = \"x\""),
        "error: base.toml:1:1: project: there is none\n        expected at least one [[project]]"
    );
}
