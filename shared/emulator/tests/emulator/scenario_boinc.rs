//! Scenarios from the data directories of BOINC clients.

use fallow_domain::{Duration, Fraction};
use fallow_emulator::scenario::{Availability, BoincError, Directory, NoFiles, Scenario};
use proptest::prelude::*;

/// Written by hand, with a queue.
const QUEUE: &str = include_str!("../../../boinc/fixtures/client/queue.xml");
const PREFERENCES: &str = "<global_preferences>\n<work_buf_min_days>0.5</work_buf_min_days>\n\
                           <work_buf_additional_days>1</work_buf_additional_days>\n</global_preferences>\n";
const OVERRIDE: &str = "<global_preferences>\n<max_ncpus_pct>50</max_ncpus_pct>\n\
                        <cpu_scheduling_period_minutes>0</cpu_scheduling_period_minutes>\n</global_preferences>\n";

/// Sizes: a job of 7.2e12 at 2e9 FLOPS is estimated at an hour, which is 1.44e13 on a CPU of 4e9 FLOPS, and
/// takes a quarter more by the project's correction factor.
const EXPECTED: &str = r#"name = "bench"
duration = "100 days"

[host]
cpus = 4
flops = 4e9
available = { fraction = 0.4, mean = "8 h" }
off = "shutdown"
connection_interval = "0 s"
memory = "16 GiB"
disk = "101 GB"
network = { down = "2.5 MB/s", up = "625 kB/s" }

[[host.coprocessor]]
type = "nvidia"
count = 1
flops = 1.2738e13

[client]
scheduling_period = "1 h"
buffer = { min = "0.5 days", additional = "1 day" }
leave_in_memory = false
cpu_fraction = 0.5
disk_free_min = "107374182 B"

[[project]]
name = "Sieve & Sons"
share = 300
request_delay = "1 min"
correction = 1.25

[[project.application]]
name = "sieve"
weight = 3
latency_bound = "120933 s"
estimated_flops = 1.92e13
true_flops = { mean = 2.4e13, deviation = 0.0 }
estimate = "fixed"
input = "1 MB"
memory = "300 MB"

[[project.queue]]
name = "wu_1_0"
application = "sieve"
received = "-1 h"
deadline = "2 days"
fraction_done = 0.25
elapsed = "30 min"
remaining = "6412.5 s"
state = "running"

[[project.queue]]
name = "wu_2_0"
application = "sieve"
received = "-1 h"
deadline = "1 day"
remaining = "1.25 h"

[[project.queue]]
name = "wu_3_0"
application = "sieve"
received = "-10000 s"
deadline = "1 day"
fraction_done = 1.0
elapsed = "3500 s"
remaining = "0 s"
state = "finished"

[[project]]
name = "two_example_fold"
share = 100

[[project.application]]
name = "fold cuda"
weight = 1
latency_bound = "1 day"
estimated_flops = 4.58568e16
true_flops = { mean = 4.58568e16, deviation = 0.0 }
estimate = "fixed"
uses = { cpus = 0.5, nvidia = 1.0 }
jobs = 0

[[project.queue]]
name = "f_1_0"
application = "fold cuda"
received = "-0.5 days"
deadline = "0.5 days"
fraction_done = 0.5
elapsed = "15 min"
remaining = "22.5 min"
state = "preempted"
"#;

#[test]
fn r5_11_host_projects_queue_and_preferences_come_from_a_data_directory() {
    let files = [
        ("client_state.xml", QUEUE),
        ("global_prefs.xml", PREFERENCES),
        ("global_prefs_override.xml", OVERRIDE),
    ];
    let read = Scenario::from_boinc(&files).unwrap();
    assert_eq!(read.scenario.to_toml(), EXPECTED);
    assert_eq!(
        read.notes,
        [
            "The host computes 40.0% of the time; lengths of its intervals are not recorded: 8 h on average are assumed.",
            "Project Sieve & Sons: jobs left out as failed or aborted: 1.",
            "Project two_example_fold sends no more work.",
            "Project Resting is suspended and left out.",
        ]
    );
    assert_eq!(Scenario::parse("x", EXPECTED, &NoFiles).unwrap().scenario, read.scenario);
}

#[test]
fn r5_11_a_real_clients_directory_is_a_scenario() {
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/../boinc/fixtures/client");
    let read = Scenario::from_boinc(&Directory::new(directory)).unwrap();
    let scenario = read.scenario;
    assert_eq!((scenario.name.as_str(), scenario.host.cpus.get()), ("vm", 2));
    assert_eq!(scenario.host.available, Availability::Always);
    assert_eq!(scenario.client.buffer.additional, Duration::from_hours(12));
    let project = &scenario.projects[0];
    assert_eq!(
        (project.name.as_str(), project.request_delay),
        ("Anchor Test Project", Duration::from_secs(7))
    );
    assert_eq!(project.applications[0].true_flops, Scenario::base().projects[0].applications[0].true_flops);
    assert_eq!(
        read.notes,
        [
            "There is no global_prefs.xml: the preferences are those of a client without any.",
            "Project Anchor Test Project has no jobs queued: jobs of the base scenario are assumed.",
        ]
    );
}

#[test]
fn a_directory_that_is_no_clients_is_refused_with_the_reason() {
    let refused = |files: &[(&str, &str); 1]| {
        let error = Scenario::from_boinc(files).unwrap_err();
        let source = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
        format!("{error}: {source}")
    };
    assert_eq!(refused(&[("readme", "")]), "cannot read client_state.xml: entity not found");
    assert_eq!(
        refused(&[("client_state.xml", "<html>")]),
        "client_state.xml is not a BOINC client's: cannot read the client state: expected <client_state> at line 1 (byte 6)"
    );
    let nothing = [("client_state.xml", "<client_state></client_state>")];
    assert!(matches!(Scenario::from_boinc(&nothing), Err(BoincError::NoProject)));
}

#[test]
fn figures_that_make_no_sense_have_their_defaults() {
    let state = "<client_state><host_info><p_ncpus>0</p_ncpus><p_fpops>-1</p_fpops></host_info>\
                 <time_stats><on_frac>-1</on_frac><active_frac>7</active_frac></time_stats>\
                 <project><master_url>http://a.b/</master_url><resource_share>-5</resource_share>\
                 <duration_correction_factor>1e300</duration_correction_factor></project>\
                 <project><master_url>http://a.b/</master_url></project></client_state>";
    let scenario = Scenario::from_boinc(&[("client_state.xml", state)]).unwrap().scenario;
    assert_eq!((scenario.host.cpus.get(), scenario.host.flops.get()), (1, 1e9));
    assert_eq!(scenario.host.available.fraction(), Fraction::ONE);
    assert_eq!(scenario.host.memory, None);
    let names: Vec<&str> = scenario.projects.iter().map(|project| project.name.as_str()).collect();
    assert_eq!(names, ["a_b", "a_b 2"]);
    assert_eq!((scenario.projects[0].share.get(), scenario.projects[0].correction), (100.0, 100.0));
}

proptest! {
    #[test]
    fn no_damaged_state_makes_the_reader_panic_or_give_nonsense(
        at in 0..QUEUE.len(), len in 0_usize..40, instead in "[0-9e<>./-]{0,12}",
    ) {
        let end = (at + len).min(QUEUE.len());
        let damaged = format!("{}{instead}{}", &QUEUE[..at], &QUEUE[end..]);
        if let Ok(read) = Scenario::from_boinc(&[("client_state.xml", damaged.as_str())]) {
            let back = Scenario::parse("x", &read.scenario.to_toml(), &NoFiles);
            prop_assert_eq!(back.map(|loaded| loaded.scenario).map_err(|error| error.to_string()), Ok(read.scenario));
        }
    }
}
