//! Bounds and units, and that nothing is said of what was not written.

use fallow_emulator::scenario::{NoFiles, Scenario};

use super::{check, told};

#[test]
fn more_cpus_than_any_host_has_are_refused() {
    check("cpus = 2", "cpus = 4096", "");
    check(
        "cpus = 2",
        "cpus = 4097",
        r#"
error: base.toml:4:8: host.cpus: 4097 makes no sense here
    4 | cpus = 4097
      |        ^^^^
        expected a whole number from 1 to 4,096: no host has more
"#,
    );
}

#[test]
fn a_coprocessor_that_lacks_its_speed_is_no_reason_to_warn_of_its_absence() {
    check(
        r#"estimate = "fixed""#,
        "uses = { nvidia = 1 }\n[[host.coprocessor]]\ntype = \"nvidia\"",
        r#"
error: base.toml:18:1: host.coprocessor.nvidia.flops: `flops` is missing
   18 | [[host.coprocessor]]
      | ^^^^^^^^^^^^^^^^^^^^
        expected the speed of one, such as flops = 2e9
"#,
    );
}

#[test]
fn a_coprocessor_without_its_kind_is_counted_from_1() {
    check(
        r#"estimate = "fixed""#,
        "[[host.coprocessor]]\nflops = 1e9",
        r#"
error: base.toml:17:1: host.coprocessor.1.type: `type` is missing
   17 | [[host.coprocessor]]
      | ^^^^^^^^^^^^^^^^^^^^
        expected its kind, such as type = "nvidia"
"#,
    );
}

#[test]
fn a_size_of_0_is_refused_where_it_is_written_and_nowhere_else() {
    let with = |line: &str| told(&format!("name = \"x\"\n[[project]]\nname = \"p\"\n{line}\n"));
    for key in ["true_flops", "estimated_flops"] {
        for (value, problem) in
            [("0", "0 makes no sense here"), ("1e30", "a job takes more than 36,500 days on this host")]
        {
            let told = with(&format!("{key} = {value}"));
            assert_eq!(told.matches("error: ").count(), 1, "{told}");
            assert!(told.contains(&format!("base.toml:4:{}: project.p.{key}", key.len() + 4)), "{told}");
            assert!(told.contains(problem), "{told}");
        }
    }
}

#[test]
fn a_fraction_may_be_per_cents() {
    let with = |value: &str| {
        told(&format!("name = \"x\"\nclient = {{ cpu_fraction = {value} }}\n[[project]]\nname = \"p\"\n"))
    };
    assert_eq!(with("\"50%\""), "");
    let text = "name = \"x\"\n[client]\ncpu_fraction = \"50 %\"\n[[project]]\nname = \"p\"\n";
    let scenario = Scenario::parse("x", text, &NoFiles).unwrap().scenario;
    assert_eq!(scenario.client.cpu_fraction.get(), 0.5);
    for bad in ["\"150%\"", "\"half\"", "\"%\"", "\"nan%\"", "\"-1%\""] {
        let told = with(bad);
        assert!(told.contains("expected a fraction: a number from 0 to 1, or such as \"50%\""), "{told}");
    }
}

#[test]
fn a_size_in_a_unit_that_there_is_not_gets_all_units_and_no_other_size() {
    check(
        "cpus = 2",
        "cpus = 2\nmemory = \"2 PB\"",
        r#"
error: base.toml:5:10: host.memory: "PB" is no unit of a size
    5 | memory = "2 PB"
      |          ^^^^^^
        expected a size with its unit (B, kB, MB, GB, TB, KiB, MiB, GiB or TiB), such as "1 MB"
"#,
    );
}

#[test]
fn r5_11_sizes_are_normal_or_log_normal_and_not_both() {
    check("deviation = 0.0", "deviation = 0.0, log_deviation = 0.5", "");
    check(
        "deviation = 0.0",
        "deviation = 1e12, log_deviation = 0.5",
        r#"
error: base.toml:16:65: project.p1.true_flops.log_deviation: sizes cannot be both normal and log-normal
   16 | true_flops = { mean = 1.3e13, deviation = 1e12, log_deviation = 0.5 }
      |                                                                 ^^^
        expected a deviation, or a log_deviation
"#,
    );
    check(
        "deviation = 0.0",
        "log_deviation = 6",
        r#"
error: base.toml:16:47: project.p1.true_flops.log_deviation: 6 makes no sense here
   16 | true_flops = { mean = 1.3e13, log_deviation = 6 }
      |                                               ^
        expected a number from 0 to 5
"#,
    );
}
