//! Scenario files: those that come with the product, and every way back.

use std::num::NonZeroU32;
use std::path::Path;

use fallow_domain::{Bytes, Duration, Flops, Fraction, Share, Speed};
use fallow_emulator::scenario::{
    ApplicationModel, Availability, Bandwidth, Buffer, ClientModel, CoprocessorKind, CoprocessorModel,
    CoprocessorUse, Directory, Estimate, HostModel, NoFiles, OffKind, OfficeHours, OutageModel, ProjectModel,
    QueuedJob, QueuedState, Scenario, TrueFlops, Uses,
};
use proptest::prelude::*;

fn shipped(name: &str) -> Scenario {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios").join(name);
    let loaded = Scenario::load(&path).unwrap_or_else(|error| panic!("{name}: {error}"));
    assert_eq!(loaded.warnings, [], "{name}");
    loaded.scenario
}

fn parsed(text: &str) -> Scenario {
    match Scenario::parse("test.toml", text, &NoFiles) {
        Ok(loaded) => loaded.scenario,
        Err(diagnostics) => panic!("{diagnostics}\n---\n{text}"),
    }
}

#[test]
fn r5_15_the_shipped_base_and_mix_are_the_built_in_ones() {
    assert_eq!(shipped("base.toml"), Scenario::base());
    assert_eq!(shipped("mix20.toml"), Scenario::mix(20));
}

#[test]
fn r5_13_the_shipped_batch_is_the_built_in_one() {
    assert_eq!(shipped("batch300.toml"), Scenario::batch300());
}

#[test]
fn r3_13_the_shipped_gpu_example_is_the_built_in_one() {
    assert_eq!(shipped("gpu.toml"), Scenario::gpu());
}

#[test]
fn r5_13_every_shipped_scenario_reads_without_a_warning_and_writes_back_equal() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios");
    let mut count = 0;
    for entry in std::fs::read_dir(&directory).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if name.ends_with(".toml") {
            let scenario = shipped(&name);
            assert_eq!(format!("{}.toml", scenario.name), name);
            let files = Directory::new(&directory);
            assert_eq!(Scenario::parse(&name, &scenario.to_toml(), &files).unwrap().scenario, scenario);
            count += 1;
        }
    }
    assert!(count >= 6, "{count} scenarios are shipped");
}

#[test]
fn r5_13_the_examples_of_the_manual_read_without_a_warning_and_write_back_equal() {
    let manual = include_str!("../../../../docs/scenarios.md");
    let blocks = |kind: &str| -> Vec<&str> {
        let after = manual.split(kind).skip(1);
        after.map(|rest| rest.split("```").next().unwrap()).collect()
    };
    let (scenarios, traces) = (blocks("```toml\n"), blocks("```csv\n"));
    assert_eq!((scenarios.len(), traces.len()), (2, 1));
    let files = [("office.csv", traces[0])];
    for text in scenarios {
        let loaded = Scenario::parse("manual.toml", text, &files).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(loaded.warnings, []);
        let scenario = loaded.scenario;
        assert_eq!(Scenario::parse("back", &scenario.to_toml(), &files).unwrap().scenario, scenario);
        if scenario.host.off == OffKind::Shutdown {
            assert_eq!(scenario.host.available.fraction(), Fraction::clamped(9.0 / 24.0));
        }
    }
}

#[test]
fn what_a_file_leaves_out_has_the_base_value() {
    let scenario = parsed("name = \"base\"\n[[project]]\nname = \"p1\"\n");
    assert_eq!(scenario, Scenario::base());
}

#[test]
fn the_two_ways_to_write_a_size_mean_the_same() {
    let with = |line: &str| {
        parsed(&format!("name = \"x\"\n[[project]]\nname = \"p\"\n{line}\n")).projects[0].applications[0]
            .clone()
    };
    let table = with("true_flops = { mean = 2e13, deviation = 0.0 }");
    assert_eq!(with("true_flops = 2e13"), table);
    assert_eq!(with("estimated_flops = 2e13"), table);
    assert_eq!(with("estimated_flops = 20_000_000_000_000"), table);
}

#[test]
fn everything_optional_of_a_project_can_be_said() {
    let scenario = parsed(
        r#"
        name = "x"
        [[host.coprocessor]]
        type = "nvidia"
        count = 1
        flops = 2e9
        [[project]]
        name = "p"
        available = { fraction = 0.95, mean = "1 day" }
        uses = { cpus = 1.0, nvidia = 0.5 }
        checkpoint = "5 min"
        input = "1 MB"
        output = "1 MB"
        jobs = 500
        "#,
    );
    let project = &scenario.projects[0];
    assert_eq!(project.available.fraction(), Fraction::clamped(0.95));
    let application = &project.applications[0];
    let coprocessor = Some(CoprocessorUse { kind: CoprocessorKind::Nvidia, instances: 0.5 });
    assert_eq!(application.uses, Uses { cpus: 1.0, coprocessor });
    assert_eq!(application.checkpoint, Some(Duration::from_mins(5)));
    assert_eq!((application.input, application.output), (Bytes(1_000_000), Bytes(1_000_000)));
    assert_eq!(application.jobs, Some(500));
    assert_eq!(scenario.host.speed_for(application.uses), Speed::new(1e9).ok());
}

#[test]
fn a_queue_can_be_written_down() {
    let scenario = parsed(
        "name = \"x\"\n[[project]]\nname = \"p\"\n[[project.queue]]\nname = \"j\"\nreceived = \"-2 h\"\n\
         deadline = \"3 days\"\nfraction_done = 0.5\nelapsed = \"1 h\"\nremaining = \"1 h\"\nstate = \"running\"\n",
    );
    let job = &scenario.projects[0].queue[0];
    assert_eq!(job.received, Duration::from_hours(-2));
    assert_eq!((job.application.as_str(), job.state), ("p", QueuedState::Running));
}

#[test]
fn r5_11_a_recorded_trace_is_read_from_beside_the_scenario() {
    let text = "name = \"x\"\n[host]\navailable = { trace = \"t.csv\" }\n[[project]]\nname = \"p\"\n";
    let files = [("t.csv", "0,on\n8,off\n10,end\n")];
    let scenario = Scenario::parse("test.toml", text, &files).unwrap().scenario;
    assert_eq!(scenario.host.available.fraction(), Fraction::clamped(0.8));
}

#[test]
fn the_preferences_are_those_of_the_file() {
    let scenario = shipped("lab.toml");
    let preferences = scenario.preferences();
    assert_eq!(preferences.check(), Ok(()));
    assert_eq!(preferences.usable_cpus(scenario.host.cpus.get()), 6);
    assert_eq!(preferences.buffer_min, Duration::from_hours(12));
    assert!(!preferences.leave_in_memory);
}

proptest! {
    #[test]
    fn r5_13_a_scenario_written_out_reads_back_equal(scenario in scenarios()) {
        let text = scenario.to_toml();
        let back = Scenario::parse("test.toml", &text, &NoFiles);
        prop_assert_eq!(back.map(|loaded| loaded.scenario).map_err(|error| error.to_string()), Ok(scenario), "{}", text);
    }

    #[test]
    fn no_text_makes_the_reader_panic(
        text in "(name|host|project|[\\[\\]{}=\"\\n.,éx]|true|[0-9]{1,3}| ){0,60}",
    ) {
        let _ = Scenario::parse("test.toml", &text, &NoFiles).map_err(|diagnostics| diagnostics.to_string());
    }
}

fn durations(high_secs: i64) -> impl Strategy<Value = Duration> {
    prop_oneof![
        (1..=high_secs).prop_map(Duration::from_secs),
        (1_000_000..=high_secs * 1_000_000).prop_map(Duration::from_micros),
    ]
}

fn bytes() -> impl Strategy<Value = Bytes> {
    (0_u64..1 << 50).prop_map(Bytes)
}

fn fractions() -> impl Strategy<Value = Fraction> {
    (0.01..=1.0).prop_map(Fraction::clamped)
}

fn names() -> impl Strategy<Value = String> {
    "[a-zA-Z\"'éü]([a-z0-9 _#-]{0,8}[a-z0-9])?"
}

fn available() -> impl Strategy<Value = Availability> {
    prop_oneof![
        Just(Availability::Always),
        (fractions(), durations(1_000_000))
            .prop_map(|(fraction, mean)| Availability::OnOff { fraction, mean }),
        office_hours().prop_map(Availability::Hours),
    ]
}

prop_compose! {
    fn office_hours()(
        days in 1_u32..128, from in 0_i64..1_440, length in 60_i64..1_440, jitter in 0_i64..30, absent in 0.0..0.9,
    ) -> OfficeHours {
        OfficeHours {
            days: std::array::from_fn(|day| days >> day & 1 == 1),
            from: Duration::from_mins(from),
            to: Duration::from_mins(from + length),
            jitter: Duration::from_mins(jitter),
            absent: Fraction::clamped(absent),
        }
    }
}

fn bandwidth() -> impl Strategy<Value = Option<Bandwidth>> {
    proptest::option::of((1_u64..1 << 40).prop_map(|bytes| Bandwidth::from_bytes_per_second(bytes).unwrap()))
}

prop_compose! {
    fn hosts()(
        cpus in 1_u32..100, flops in 1e8..1e12, available in available(), shutdown: bool, interval in durations(86_400),
        coprocessor in proptest::option::of((0_usize..4, 1_u32..8, 1e8..1e13)), memory in proptest::option::of(bytes()),
        disk in proptest::option::of(bytes()), download in bandwidth(), upload in bandwidth(),
    ) -> HostModel {
        HostModel {
            cpus: NonZeroU32::new(cpus).unwrap(),
            flops: Speed::new(flops).unwrap(),
            available,
            off: if shutdown { OffKind::Shutdown } else { OffKind::Suspend },
            connection_interval: interval,
            coprocessors: coprocessor.into_iter().map(|(kind, count, flops)| CoprocessorModel {
                kind: CoprocessorKind::ALL[kind],
                count: NonZeroU32::new(count).unwrap(),
                flops: Speed::new(flops).unwrap(),
            }).collect(),
            memory, disk, download, upload,
        }
    }
}

prop_compose! {
    fn clients()(
        period in durations(86_400), min in durations(86_400), additional in durations(86_400), leave_in_memory: bool,
        checkpoint in durations(86_400), fractions in [fractions(), fractions(), fractions(), fractions()],
        disk_free_min in bytes(),
    ) -> ClientModel {
        ClientModel {
            scheduling_period: period,
            buffer: Buffer { min, additional },
            leave_in_memory,
            checkpoint_period: checkpoint,
            cpu_fraction: fractions[0],
            cpu_time_fraction: fractions[1],
            memory_fraction: fractions[2],
            disk_fraction: fractions[3],
            disk_free_min,
        }
    }
}

prop_compose! {
    fn applications()(
        name in names(), weight in 0.1..10.0, latency in durations(10_000_000), estimated in 1e12..1e16,
        mean in 1e12..1e15, deviation in 0.0..1e15, log_deviation in 0.01..5.0, is_log: bool, follows: bool, cpus in 0.25..4.0,
        coprocessor in proptest::option::of((0_usize..4, 0.1..2.0)), checkpoint in proptest::option::of(durations(86_400)),
        sizes in [bytes(), bytes(), bytes()], jobs in proptest::option::of(0_u64..1 << 40), failure in fractions(),
    ) -> ApplicationModel {
        ApplicationModel {
            name,
            weight,
            latency_bound: latency,
            estimated_flops: Flops::new(estimated).unwrap(),
            true_flops: match is_log {
                true => TrueFlops { log_deviation, ..TrueFlops::all(Flops::new(mean).unwrap()) },
                false => TrueFlops::normal(Flops::new(mean).unwrap(), Flops::new(deviation).unwrap()),
            },
            estimate: if follows { Estimate::True } else { Estimate::Fixed },
            uses: Uses {
                cpus,
                coprocessor: coprocessor.map(|(kind, instances)| CoprocessorUse {
                    kind: CoprocessorKind::ALL[kind],
                    instances,
                }),
            },
            checkpoint,
            input: sizes[0],
            output: sizes[1],
            memory: sizes[2],
            jobs,
            failure,
        }
    }
}

prop_compose! {
    fn projects()(
        name in names(), share in 0.0..1000.0, available in available(), delay in durations(86_400), correction in 0.1..10.0,
        spread: bool, mut applications in proptest::collection::vec(applications(), 1..3), inline: bool,
        jobs in proptest::collection::vec((durations(1000), durations(1_000_000), fractions(), 0_usize..4), 0..3),
    ) -> ProjectModel {
        for (index, application) in applications.iter_mut().enumerate() {
            application.name += &index.to_string();
        }
        if inline && applications.len() == 1 {
            applications[0].name.clone_from(&name);
            applications[0].weight = 1.0;
        }
        let queue = jobs.into_iter().enumerate().map(|(index, (received, deadline, done, state))| QueuedJob {
            name: format!("job {index}"),
            application: applications[0].name.clone(),
            received: -received,
            deadline,
            fraction_done: done,
            elapsed: received,
            remaining: (state > 1).then_some(deadline),
            state: QueuedState::ALL[state],
        }).collect();
        let share = Share::new(share).unwrap();
        ProjectModel { name, share, available, request_delay: delay, spread, correction, applications, queue }
    }
}

prop_compose! {
    fn scenarios()(
        name in names(), duration in durations(100_000_000), count in 1_u32..=1_000, host in hosts(), client in clients(),
        mut projects in proptest::collection::vec(projects(), 1..4),
        outages in proptest::collection::vec((available(), 0_usize..4), 0..3),
    ) -> Scenario {
        for (index, project) in projects.iter_mut().enumerate() {
            let name = format!("{}{index}", project.name);
            if let [only] = project.applications.as_mut_slice() && only.name == project.name {
                only.name.clone_from(&name);
                project.queue.iter_mut().for_each(|job| job.application.clone_from(&name));
            }
            project.name = name;
        }
        let first = |count: usize| projects.iter().take(count).map(|project| project.name.clone()).collect();
        let outages = (0..).zip(outages).map(|(index, (available, count))| OutageModel {
            name: format!("o{index}"),
            projects: first(count),
            available,
        });
        let hosts = NonZeroU32::new(count).unwrap();
        Scenario { name, duration, hosts, host, client, outages: outages.collect(), projects }
    }
}
