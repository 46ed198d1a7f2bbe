//! Values that make no sense, or none together with others.

use super::check;

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
fn r5_13_hours_that_are_none_are_refused() {
    check(
        r#"{ fraction = 0.8, mean = "1000 s" }"#,
        r#"{ days = "mon-fri", hours = "9-25" }"#,
        r#"
error: base.toml:6:41: host.available.hours: "9-25" makes no sense here
    6 | available = { days = "mon-fri", hours = "9-25" }
      |                                         ^^^^^^
        expected two times of the day, such as "9-17:30", or "22-6" over midnight
"#,
    );
}

#[test]
fn r5_13_a_jitter_of_half_of_the_hours_is_refused() {
    check(
        r#"{ fraction = 0.8, mean = "1000 s" }"#,
        r#"{ hours = "9-11", jitter = "1 h" }"#,
        r#"
error: base.toml:6:40: host.available.jitter: 1 h makes no sense here
    6 | available = { hours = "9-11", jitter = "1 h" }
      |                                        ^^^^^
        expected from 0 s to less than half of the hours
"#,
    );
}

#[test]
fn r5_13_an_outage_of_a_project_that_is_not_there_is_refused() {
    check(
        "estimate = \"fixed\"\n",
        "[[outage]]\nname = \"net\"\nprojects = [\"p2\"]\navailable = \"always\"\n",
        r#"
error: base.toml:19:12: outage.net.projects: there is no project "p2"
   19 | projects = ["p2"]
      |            ^^^^^^
        expected names of the scenario's projects
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
        expected a fraction: a number from 0 to 1, or such as "50%"
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
        expected a duration with its unit (weeks, days, h, min, s, ms or us), such as "60 min"
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
        expected a duration from 1 s to 36,500 days
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
        expected a duration with its unit (weeks, days, h, min, s, ms or us), such as "60 min"
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
        expected a duration with its unit (weeks, days, h, min, s, ms or us), such as "60 min"
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
        expected a duration with its unit (weeks, days, h, min, s, ms or us), such as "60 min"
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
fn a_job_longer_than_a_life_is_refused() {
    check(
        "{ mean = 1.3e13, deviation = 0.0 }",
        "{ mean = 1.3e33 }",
        r#"
error: base.toml:16:23: project.p1.true_flops.mean: a job takes more than 36,500 days on this host
   16 | true_flops = { mean = 1.3e33 }
      |                       ^^^^^^
        expected a size that takes from 0.001 s to 36,500 days
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
        expected "always", { fraction = 0.8, mean = "1000 s" }, { hours = "9-17" } or { trace = "FILE.csv" }
"#,
    );
}
