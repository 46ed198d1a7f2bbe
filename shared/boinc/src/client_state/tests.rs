use fallow_domain::{Bytes, Duration, Instant};
use proptest::prelude::*;

use super::*;

const CAPTURED: &[u8] = include_bytes!("../../fixtures/client/client_state.xml");
const QUEUE: &[u8] = include_bytes!("../../fixtures/client/queue.xml");

#[test]
fn the_state_of_a_real_client_is_read() {
    let state = ClientState::parse(CAPTURED).unwrap();
    assert_eq!((state.host.p_ncpus, state.host.p_fpops), (2, 1e9));
    assert_eq!(state.time_stats.on_frac, 0.999576);
    assert_eq!(state.last_update, Instant::from_secs_f64(1_795_228_213.981482));
    assert_eq!(state.written_at(), Instant::from_secs_f64(1_795_228_222.997182));
    assert_eq!(state.net_stats.bwup, 208_681.805848);
    let project = &state.projects[0];
    assert_eq!(project.project_name, "Anchor Test Project");
    assert!(project.dont_use_dcf);
    assert_eq!(project.versions.len(), 3);
    assert_eq!(project.files.len(), 5);
    assert_eq!(project.min_rpc_time.since(project.last_rpc_time), Duration::from_secs(7));
}

#[test]
fn what_follows_a_project_belongs_to_it_and_tasks_find_their_jobs() {
    let state = ClientState::parse(QUEUE).unwrap();
    assert_eq!(state.coprocessors[0].kind, "NVIDIA");
    assert_eq!(state.coprocessors[0].count, 1);
    let names: Vec<_> = state.projects.iter().map(|project| project.project_name.as_str()).collect();
    assert_eq!(names, ["Sieve & Sons", "", "Resting"]);
    let [sieve, fold, resting] = state.projects.as_slice() else { panic!("three projects") };
    assert_eq!((sieve.workunits.len(), sieve.results.len(), fold.results.len()), (3, 4, 1));
    assert_eq!(sieve.files[0], StateFile { name: "in_1".into(), nbytes: Bytes(3_000_000) });
    assert_eq!(sieve.workunits[0].files, ["in_1"]);
    let task = sieve.results[0].task.clone().unwrap();
    assert_eq!(
        (task.active_task_state, task.elapsed_time, task.fraction_done),
        (1, Duration::from_mins(30), 0.25)
    );
    assert_eq!(sieve.results[1].task, None);
    assert_eq!(fold.versions[0].coproc.as_ref().unwrap().kind, "NVIDIA");
    assert!(fold.dont_request_more_work && resting.suspended_via_gui);
}

#[test]
fn a_state_that_ends_early_is_refused() {
    let text = String::from_utf8_lossy(QUEUE);
    let (cut, _) = text.split_once("</active_task_set>").unwrap();
    let error = ClientState::parse(cut.as_bytes()).unwrap_err().to_string();
    assert!(
        error.starts_with("cannot read the client state: expected </active_task_set> before the end"),
        "{error}"
    );
    let error = ClientState::parse(b"<html>not found</html>").unwrap_err();
    assert_eq!(
        error.to_string(),
        "cannot read the client state: expected <client_state> at line 1 (byte 22)"
    );
}

#[test]
fn elements_before_the_first_project_belong_to_nobody() {
    let state = ClientState::parse(b"<client_state><result><name>r</name></result></client_state>").unwrap();
    assert_eq!(state, ClientState::default());
}

#[test]
fn a_preference_file_overlays_single_values() {
    let mut preferences = GlobalPreferences::default();
    let file = b"<global_preferences><work_buf_min_days>2</work_buf_min_days>\
                 <venue name=\"home\"><work_buf_min_days>9</work_buf_min_days></venue></global_preferences>";
    overlay_preferences(&mut preferences, file).unwrap();
    overlay_preferences(
        &mut preferences,
        b"<global_preferences><max_ncpus_pct>50</max_ncpus_pct></global_preferences>",
    )
    .unwrap();
    assert_eq!((preferences.work_buf_min_days, preferences.max_ncpus_pct), (2.0, 50.0));
    assert_eq!(preferences.cpu_scheduling_period_minutes, 60.0);
    assert!(overlay_preferences(&mut preferences, b"").is_err());
}

proptest! {
    #[test]
    fn no_damage_makes_the_reader_panic(at in 0..QUEUE.len(), len in 0_usize..200, byte: u8) {
        let mut bytes = QUEUE.to_vec();
        let end = (at + len).min(bytes.len());
        bytes.splice(at..end, [byte]);
        let _ = ClientState::parse(&bytes);
    }
}
