//! `--vary`: paths, values, and what is said about wrong ones.

use fallow_domain::{Duration, Fraction};
use fallow_emulator::scenario::{Availability, NoFiles, Scenario, Vary};

fn varied(scenario: &Scenario, option: &str) -> Vec<Scenario> {
    let vary = Vary::parse(option).unwrap_or_else(|error| panic!("{error}"));
    let variants = scenario.variants(&[vary], &NoFiles).unwrap_or_else(|error| panic!("{error}"));
    variants.into_iter().map(|variant| variant.scenario).collect()
}

fn told(scenario: &Scenario, option: &str) -> String {
    let vary = match Vary::parse(option) {
        Ok(vary) => vary,
        Err(error) => return error.to_string(),
    };
    scenario.variants(&[vary], &NoFiles).map(|_| String::new()).unwrap_or_else(|error| error.to_string())
}

#[test]
fn r5_13_a_key_of_one_project_takes_each_value_in_turn() {
    let scenarios = varied(&Scenario::mix(3), "project.p1.latency_bound=3.67 h,7.34 h");
    let bounds: Vec<_> =
        scenarios.iter().map(|scenario| scenario.projects[0].applications[0].latency_bound).collect();
    assert_eq!(bounds, [Duration::from_secs(13_212), Duration::from_secs(26_424)]);
    let untouched = Scenario::mix(3);
    assert!(scenarios.iter().all(|scenario| scenario.projects[1..] == untouched.projects[1..]));
    assert!(scenarios.iter().all(|scenario| scenario.host == untouched.host));
}

#[test]
fn r5_13_the_number_of_hosts_and_how_jobs_are_spread_can_be_varied() {
    let base = Scenario::base();
    let hosts: Vec<u32> = varied(&base, "hosts=1,30").iter().map(|scenario| scenario.hosts.get()).collect();
    assert_eq!(hosts, [1, 30]);
    let spread = varied(&base, "project.p1.spread=true,false");
    assert_eq!(spread.iter().map(|scenario| scenario.projects[0].spread).collect::<Vec<_>>(), [true, false]);
    let more = told(&base, "hosts=1001");
    assert!(more.contains("1001 makes no sense here") && more.contains("from 1 to 1,000"), "{more}");
    assert!(told(&base, "hosts=0").contains("expected a whole number of 1 or more"));
}

#[test]
fn a_star_means_all_projects() {
    for scenario in varied(&Scenario::mix(3), "project.*.share=7") {
        assert!(scenario.projects.iter().all(|project| project.share.get() == 7.0));
    }
}

#[test]
fn keys_go_on_into_tables() {
    let scenarios = varied(&Scenario::base(), "client.buffer.min=1 h..8.4 h/3");
    let buffers: Vec<_> =
        scenarios.iter().map(|scenario| scenario.client.buffer.min.as_secs_f64() / 3600.0).collect();
    assert_eq!(buffers, [1.0, 4.7, 8.4]);
    let scenarios = varied(&Scenario::base(), "host.available.fraction=0.2,1");
    assert_eq!(scenarios[0].host.available.fraction(), Fraction::clamped(0.2));
    let scenarios = varied(&Scenario::base(), "project.p1.true_flops.deviation=1e13");
    assert_eq!(scenarios[0].projects[0].applications[0].true_flops.deviation.get(), 1e13);
}

#[test]
fn whole_tables_words_and_absent_keys_can_be_varied() {
    let base = Scenario::base();
    let options = "host.available=always,{ fraction = 0.5, mean = \"1 h\" }";
    assert_eq!(varied(&base, options)[0].host.available, Availability::Always);
    assert_eq!(varied(&base, options)[1].host.available.fraction(), Fraction::clamped(0.5));
    let hours = varied(&base, "host.available.hours=9-17,22-6");
    assert_eq!(hours[1].host.available.fraction(), Fraction::clamped(8.0 / 24.0));
    assert_eq!(varied(&base, "project.p1.estimate=fixed,true").len(), 2);
    assert!(!varied(&base, "client.leave_in_memory=false")[0].client.leave_in_memory);
    assert!(varied(&base, "host.memory=16 GiB")[0].host.memory.is_some());
    assert_eq!(varied(&base, "host.cpus=1..4")[3].host.cpus.get(), 4);
    assert_eq!(varied(&base, "duration=10 days")[0].duration, Duration::from_hours(240));
}

#[test]
fn applications_and_coprocessors_are_named() {
    let gpu = Scenario::gpu();
    let scenario = &varied(&gpu, "project.b.application.cpu.latency_bound=1 day")[0];
    assert_eq!(scenario.projects[1].applications[1].latency_bound, Duration::from_hours(24));
    assert_eq!(scenario.projects[1].applications[0], gpu.projects[1].applications[0]);
    let scenario = &varied(&gpu, "project.*.application.*.latency_bound=1 day")[0];
    let all = scenario.projects.iter().flat_map(|project| &project.applications);
    assert!(all.into_iter().all(|application| application.latency_bound == Duration::from_hours(24)));
    assert_eq!(varied(&gpu, "host.coprocessor.nvidia.count=2")[0].host.coprocessors[0].count.get(), 2);
}

#[test]
fn r5_11_a_varied_scenario_keeps_its_traces() {
    let text = "name = \"x\"\n[host]\navailable = { trace = \"t.csv\" }\n[[project]]\nname = \"p\"\n";
    let files = [("t.csv", "0,on\n8,off\n10.5,end\n"), ("u.csv", "0,on\n")];
    let scenario = Scenario::parse("x", text, &files).unwrap().scenario;
    assert_eq!(varied(&scenario, "host.cpus=8")[0].host.available, scenario.host.available);
    let vary = Vary::parse("host.available.trace=t.csv,u.csv").unwrap();
    let variants = scenario.variants(&[vary], &files).unwrap();
    assert_eq!(variants[0].scenario, scenario);
    assert_eq!(variants[1].scenario.host.available.fraction(), Fraction::ONE);
    let drawn =
        Scenario::base().variants(&[Vary::parse("host.available.trace=u.csv").unwrap()], &files).unwrap();
    assert_eq!(drawn[0].scenario.host.available, variants[1].scenario.host.available);
}

#[test]
fn several_options_give_every_combination_with_its_labels() {
    let options = ["host.cpus=1,2", "project.p1.share=10,20,30"].map(|option| Vary::parse(option).unwrap());
    let variants = Scenario::base().variants(&options, &NoFiles).unwrap();
    let labels: Vec<String> = variants
        .iter()
        .map(|variant| variant.labels.values().cloned().collect::<Vec<_>>().join("/"))
        .collect();
    assert_eq!(labels, ["1/10", "1/20", "1/30", "2/10", "2/20", "2/30"]);
    assert_eq!(variants[5].scenario.host.cpus.get(), 2);
    assert_eq!(variants[5].scenario.projects[0].share.get(), 30.0);
    assert_eq!(variants[5].labels["project.p1.share"], "30");
}

#[test]
fn no_options_give_the_scenario_itself() {
    let variants = Scenario::base().variants(&[], &NoFiles).unwrap();
    assert_eq!(variants.len(), 1);
    assert_eq!(variants[0].scenario, Scenario::base());
}

#[test]
fn a_wrong_option_says_what_is_wrong_what_is_expected_and_what_was_meant() {
    let mix = |option: &str, expected: &str| {
        assert_eq!(told(&Scenario::mix(2), option), format!("--vary '{option}': {expected}"));
    };
    mix(
        "host.cpu=2",
        "unknown key in [host]\n        expected one of cpus, flops, available, off, connection_interval, memory, disk, \
         network, coprocessor\n        did you mean `cpus`?",
    );
    mix(
        "project.p9.share=1",
        "\"p9\" is not a project of the scenario\n        expected p1, p2 or *\n        did you mean p1?",
    );
    mix(
        "project.p1.latency_bound=9",
        "9 has no unit\n        expected a duration with its unit (weeks, days, h, min, s, ms or us), such as \"60 min\"",
    );
    mix(
        "hots.cpus=2",
        "there is no \"hots\" in a scenario\n        expected duration, hosts, host.KEY, host.coprocessor.KIND.KEY, \
         client.KEY, project.NAME.KEY, project.NAME.application.NAME.KEY or outage.NAME.KEY\n        did you mean host?",
    );
    mix(
        "host.cpus",
        "there is no = in it\n        expected PATH=VALUE,VALUE such as project.p1.latency_bound=3.67 h,7.34 h",
    );
    mix("host.cpus=0", "0 makes no sense here\n        expected a whole number of 1 or more");
    mix(
        "project.*.share=-1",
        "project.p1.share: -1 makes no sense here\n        expected a resource share: a number from 0 to 1,000,000,000",
    );
    mix(
        "host.coprocessor.nvidia.count=1",
        "\"nvidia\" is not a coprocessor of the host\n        expected one: there is none at all",
    );
    mix(
        "project.p1.name=p2",
        "project.p2.name: two projects are named \"p2\"\n        expected a name of its own for each",
    );
    mix(
        "project.p1.estimate=tru",
        "\"tru\" makes no sense here\n        expected \"fixed\" or \"true\"\n        did you mean \"true\"?",
    );
    let gpu = |option: &str, expected: &str| {
        assert_eq!(told(&Scenario::gpu(), option), format!("--vary '{option}': {expected}"));
    };
    gpu(
        "project.b.latency_bound=1 day",
        "latency_bound is a key of applications, and the project has several\n        expected \
         application.NAME.latency_bound with one of gpu, cpu, or *",
    );
    gpu(
        "host.coprocessor.nvida.count=3",
        "\"nvida\" is not a coprocessor of the host\n        expected nvidia or *\n        did you mean nvidia?",
    );
}

#[test]
fn too_many_combinations_and_a_key_given_twice_are_refused() {
    let vary = |option: &str| Vary::parse(option).unwrap();
    let error = |options: &[Vary]| Scenario::base().variants(options, &NoFiles).unwrap_err().to_string();
    assert_eq!(
        error(&[vary("host.cpus=1,2"), vary("host.cpus=3")]),
        "--vary 'host.cpus': it is varied twice\n        expected one --vary with all its values"
    );
    assert_eq!(
        error(&[vary("host.cpus=1..20"), vary("project.p1.share=1..9000")]),
        "--vary 'project.p1.share': there are too many combinations\n        expected at most 100000 combinations"
    );
}
