//! What files of the host, web sites of projects and things around the tasks lead to (R6.4, R6.2).

use fallow_client::{ClientConfig, CpuWork, Event, NetworkOver, PreferenceFiles, RequestedBy, Surroundings};
use std::num::NonZeroU32;

use fallow_domain::agent_state::SuspendedBy;
use fallow_domain::{Bytes, Duration, Fraction, MasterUrl, OwnerLimits, Preferences};
use fallow_preferences::Said;

use crate::life::{document, small_buffers};
use crate::world::{World, attach_unseen, version};

const MINUTE: Duration = Duration::from_mins(1);
const SECOND: Duration = Duration::from_secs(1);

/// A host with work that computes under its fleet's preferences.
pub(crate) fn world(seed: u64, preferences: Preferences) -> World {
    let mut world = World::new(seed);
    world.add_project("a", 1_000, Duration::from_mins(10));
    world.event(Event::DocumentOffered(document(1, &[("a", 1.0)], preferences).into()));
    world.run_until("it computes", MINUTE * 10, |world| world.computing() == 2);
    world
}

pub(crate) fn url(name: &str) -> MasterUrl {
    MasterUrl::parse(&format!("http://127.0.0.1/{name}/")).unwrap()
}

pub(crate) fn owner(said: Said) -> Event {
    Event::PreferenceFilesRead(Box::new(PreferenceFiles { owner: Some(said), ..PreferenceFiles::default() }))
}

fn suspended_by(world: &World) -> Option<SuspendedBy> {
    world.client.host_view().suspended_by
}

pub(crate) fn part(value: f64) -> Option<Fraction> {
    Some(Fraction::clamped(value))
}

fn input() -> Event {
    Event::OwnerInput { ago: Duration::ZERO }
}

pub(crate) fn two_cpus() -> Preferences {
    Preferences { run_in_use: true, cpu_fraction: Fraction::ONE, ..small_buffers() }
}

#[test]
fn r6_4_the_owners_file_holds_at_once_and_what_it_no_longer_says_is_over() {
    let mut world = world(1, two_cpus());
    world.event(owner(Said { cpu_fraction: part(0.5), ..Said::default() }));
    assert_eq!((world.computing(), world.client.host_view().usable_cpus), (1, 1));
    world.event(owner(Said { suspended: Some(true), ..Said::default() }));
    assert_eq!((world.computing(), suspended_by(&world)), (0, Some(SuspendedBy::Owner)));
    world.event(owner(Said::default()));
    assert_eq!((world.computing(), suspended_by(&world)), (2, None));
}

#[test]
fn r6_4_r6_5_the_coordinator_hears_of_what_the_owner_takes_away_by_commands_and_by_files() {
    let mut world = world(1, two_cpus());
    let said = Said { cpu_fraction: part(0.5), memory_fraction: part(0.75), ..Said::default() };
    world.event(Event::PreferenceFilesRead(Box::new(PreferenceFiles {
        owner: Some(said),
        client_config: Some(Said { cpu_fraction: part(0.25), ..Said::default() }),
        ..PreferenceFiles::default()
    })));
    let view = world.client.host_view();
    assert_eq!(view.owner, OwnerLimits::default());
    let limits = view.owner_limits;
    assert_eq!((limits.cpu_fraction, limits.memory_fraction), (part(0.25), part(0.75)));
    assert_eq!((limits.disk_fraction, limits.suspended), (None, false));
    // Where he says it, too, and only where he is the stricter one.
    let word = Said {
        hours: Some("mon-fri 18:00-08:00".parse().unwrap()),
        buffer_min: Some(Duration::from_hours(216)),
        exclusive_programs: Some(["chess".to_owned()].into()),
        lines: [("hours", 7), ("buffer_min", 8), ("exclusive_programs", 9)].into(),
        ..Said::default()
    };
    world.event(owner(word.clone()));
    let told = world.client.host_view().owner_word.unwrap();
    assert_eq!(told.said, 3);
    assert_eq!(Some(&told.preferences.hours), word.hours.as_ref());
    let place = |key: &str, place: &str| (key.to_owned(), place.to_owned());
    // Which programs he names stays with him.
    let in_force = &world.client.preferences_in_force().values.fleet.local;
    assert_eq!(Some(&in_force.exclusive_programs), word.exclusive_programs.as_ref());
    assert!(!format!("{told:?}").contains("chess"), "{told:?}");
    let places = [
        place("hours", "preferences.toml, line 7"),
        place("exclusive_programs", "preferences.toml, line 9, names not told"),
    ];
    assert_eq!(told.places, places.into());
    // Nor can it be found out by asking.
    for (version, name) in [(1, "go"), (2, "chess")] {
        let mut asked = two_cpus();
        asked.local.exclusive_programs = [name.to_owned()].into();
        world.event(Event::DocumentOffered(document(version, &[("a", 1.0)], asked).into()));
        let told = world.client.host_view().owner_word.unwrap();
        assert!(told.places.contains_key("exclusive_programs"), "{name}");
        assert_eq!(told.preferences.local.exclusive_programs, [name.to_owned()].into());
    }
    world.event(Event::OwnerSuspended(true));
    let told = world.client.host_view().owner_word.unwrap();
    assert_eq!(told.places.get("suspended").map(String::as_str), Some("suspend or exclude"));
    world.event(Event::OwnerSuspended(false));
    world.event(owner(Said::default()));
    assert_eq!(world.client.host_view().owner_word, None);
    world.event(owner(Said { suspended: Some(true), ..Said::default() }));
    let limits = world.client.host_view().owner_limits;
    assert_eq!((limits.cpu_fraction, limits.suspended), (None, true));
}

#[test]
fn r6_4_a_file_that_cannot_be_read_keeps_the_host_from_computing_until_it_is_mended() {
    let mut world = world(2, two_cpus());
    let troubles = vec!["line 3: nonsense".to_owned()];
    world.event(Event::PreferenceFilesRead(Box::new(PreferenceFiles {
        troubles,
        ..PreferenceFiles::default()
    })));
    assert_eq!((world.computing(), suspended_by(&world)), (0, Some(SuspendedBy::PreferenceFile)));
    assert!(world.notices().any(|text| text.contains("line 3: nonsense")));
    assert_eq!(world.client.preference_troubles().len(), 1);
    world.event(owner(Said::default()));
    assert_eq!((world.computing(), suspended_by(&world)), (2, None));
}

#[test]
fn r6_4_while_a_preference_file_cannot_be_read_no_file_is_transferred_for_it_may_have_limited_that() {
    let mut world = world(28, two_cpus());
    let most = Bytes(10_000_000);
    world.event(owner(Said { transfer_max: Some(Some(most)), ..Said::default() }));
    world.event(Event::FilesMoved { up: Bytes(0), down: most });
    world.run_for(MINUTE * 15);
    let waits = |world: &World| {
        let tasks = world.client.task_views();
        tasks.iter().filter(|task| task.phase == fallow_client::Phase::Uploading).count()
    };
    let waiting = waits(&world);
    assert!(waiting > 0);
    // The limit is not known any more.
    let troubles = vec!["line 3: nonsense".to_owned()];
    world.event(Event::PreferenceFilesRead(Box::new(PreferenceFiles {
        troubles,
        ..PreferenceFiles::default()
    })));
    world.run_for(MINUTE * 30);
    assert_eq!(waits(&world), waiting);
    world.event(owner(Said::default()));
    world.run_until("what waited is sent", MINUTE * 5, |world| waits(world) == 0);
}

#[test]
fn r6_4_what_holds_in_use_holds_for_as_long_as_somebody_uses_the_host() {
    let mut world = world(3, Preferences { idle_after: MINUTE, ..two_cpus() });
    world.event(owner(Said { cpu_fraction_in_use: part(0.5), ..Said::default() }));
    assert_eq!(world.client.host_view().usable_cpus, 2);
    assert!(!world.client.host_view().is_less_in_use);
    world.event(input());
    assert_eq!((world.computing(), world.client.host_view().usable_cpus), (1, 1));
    assert!(world.client.host_view().is_less_in_use);
    world.run_for(MINUTE + SECOND * 2);
    assert!(!world.client.host_view().is_less_in_use);
    assert_eq!((world.computing(), world.client.host_view().usable_cpus), (2, 2));
    // Memory: two tasks of 10 MiB each do not fit into 15 of 8192 MiB.
    world.event(owner(Said { memory_fraction_in_use: part(15.0 / 8_192.0), ..Said::default() }));
    world.run_for(SECOND * 2);
    assert_eq!(world.computing(), 2);
    world.event(input());
    world.run_for(SECOND * 2);
    assert_eq!(world.computing(), 1);
    // The limit on CPU time: half of the time all hold their breath.
    world.event(owner(Said { cpu_time_fraction_in_use: part(0.5), ..Said::default() }));
    world.event(input());
    let before = world.cpu_used;
    world.run_for(SECOND * 40);
    let used = (world.cpu_used - before).as_secs_f64();
    assert!((30.0..50.0).contains(&used), "{used} s of 80");
}

#[test]
fn r6_4_a_task_that_takes_more_memory_than_is_allowed_in_use_waits_and_has_not_failed() {
    // With tasks that give way at the first key, and with tasks that go on.
    for run_in_use in [false, true] {
        let mut world = world(3, Preferences { idle_after: MINUTE, run_in_use, ..two_cpus() });
        // A task takes 10 MiB, and 8 of 8192 MiB are allowed.
        world.event(owner(Said { memory_fraction_in_use: part(8.0 / 8_192.0), ..Said::default() }));
        world.run_for(SECOND * 2);
        assert_eq!(world.computing(), 2);
        world.event(input());
        world.run_for(SECOND * 10);
        assert_eq!(world.computing(), 0);
        assert!(!world.notices().any(|text| text.contains("cannot run on this host")));
        world.run_for(MINUTE * 2);
        assert_eq!(world.computing(), 2);
        let failed = |task: &fallow_client::TaskView| task.phase == fallow_client::Phase::ReadyToReport;
        assert!(!world.client.task_views().iter().any(failed), "{}", world.log.join("\n"));
    }
}

#[test]
fn r6_4_what_the_owner_limits_for_good_while_he_is_there_is_looked_at_for_jobs_that_can_never_run() {
    let mut world = world(5, Preferences { idle_after: MINUTE, run_in_use: true, ..two_cpus() });
    let little = part(8.0 / 8_192.0);
    world.event(owner(Said { memory_fraction_in_use: little, ..Said::default() }));
    world.event(input());
    world.run_for(SECOND * 10);
    let told = |world: &World| world.notices().any(|text| text.contains("cannot run on this host"));
    assert_eq!((world.computing(), told(&world)), (0, false));
    // What holds at this moment is the same.
    world.event(owner(Said { memory_fraction: little, memory_fraction_in_use: little, ..Said::default() }));
    assert!(told(&world));
}

#[test]
fn r6_4_on_its_battery_a_host_computes_only_where_that_is_said() {
    let mut world = world(4, two_cpus());
    let on = |on_battery| Event::SurroundingsSeen(Surroundings { on_battery, ..Surroundings::default() });
    assert!(world.client.looks_for().battery);
    world.event(on(true));
    assert_eq!((world.computing(), suspended_by(&world)), (0, Some(SuspendedBy::Battery)));
    assert!(world.notices().last().unwrap().contains("battery"));
    world.event(on(false));
    assert_eq!((world.computing(), suspended_by(&world)), (2, None));
    // Beside a document no file of the host loosens that.
    world.event(owner(Said { run_on_batteries: Some(true), ..Said::default() }));
    world.event(on(true));
    assert_eq!(world.computing(), 0);
}

#[test]
fn r6_4_a_host_on_its_battery_goes_on_where_an_override_says_so_and_nobody_else_anything() {
    let mut world = World::new(5);
    world.add_project("a", 1_000, Duration::from_mins(10));
    world.event(attach_unseen(url("a"), "key", None));
    world.run_until("it computes", MINUTE * 10, |world| world.computing() == 2);
    let said = Said { run_on_batteries: Some(true), ..Said::default() };
    let files = PreferenceFiles { overrides: Some(said), ..PreferenceFiles::default() };
    world.event(Event::PreferenceFilesRead(Box::new(files)));
    assert!(!world.client.looks_for().battery);
    world.event(Event::SurroundingsSeen(Surroundings { on_battery: true, ..Surroundings::default() }));
    assert_eq!((world.computing(), suspended_by(&world)), (2, None));
}

#[test]
fn r6_4_a_host_computes_only_while_its_battery_is_charged_enough_and_cool() {
    let mut world = world(4, two_cpus());
    let charged = |charge: f64| {
        Event::SurroundingsSeen(Surroundings { battery_charge: part(charge), ..Surroundings::default() })
    };
    let looks = |world: &World| (world.client.looks_for().charge, world.client.looks_for().heat);
    assert_eq!(looks(&world), (false, false));
    world.event(owner(Said { battery_charge_min: Some(part(0.5)), ..Said::default() }));
    assert_eq!((looks(&world), world.computing()), ((true, false), 2));
    world.event(charged(0.49));
    assert_eq!((world.computing(), suspended_by(&world)), (0, Some(SuspendedBy::Battery)));
    let why = world.client.host_view().stopped_for.unwrap();
    assert_eq!(why, "its battery is charged to 49 %, and battery_charge_min is 50 %");
    world.event(charged(0.5));
    assert_eq!((world.computing(), suspended_by(&world)), (2, None));
    // A battery that does not tell it keeps nobody.
    world.event(charged(0.1));
    world.event(Event::SurroundingsSeen(Surroundings::default()));
    assert_eq!(world.computing(), 2);

    let hot = |degrees| {
        let battery_temperature = Some(degrees);
        Event::SurroundingsSeen(Surroundings { battery_temperature, ..Surroundings::default() })
    };
    let most =
        |degrees| owner(Said { battery_temperature_max: Some(NonZeroU32::new(degrees)), ..Said::default() });
    world.event(most(45));
    assert_eq!(looks(&world), (false, true));
    world.event(hot(45));
    assert_eq!(world.computing(), 2);
    for degrees in [46, 45, 41] {
        world.event(hot(degrees));
        assert_eq!((world.computing(), suspended_by(&world)), (0, Some(SuspendedBy::Battery)), "{degrees}");
    }
    let why = world.client.host_view().stopped_for.unwrap();
    assert_eq!(why, "its battery has 41 °C, and battery_temperature_max is 45 °C: until it has 40 °C");
    world.event(hot(40));
    assert_eq!((world.computing(), suspended_by(&world)), (2, None));
    world.event(hot(45));
    assert_eq!(world.computing(), 2);
    // A limit that is raised lets it go on.
    world.event(hot(50));
    world.event(most(60));
    assert_eq!(world.computing(), 2);
}

fn over(network: Option<NetworkOver>) -> Event {
    Event::SurroundingsSeen(Surroundings { network, ..Surroundings::default() })
}

#[test]
fn r6_4_off_wifi_no_project_is_contacted_and_files_wait_where_the_owner_wants_that() {
    let mut world = World::new(14);
    world.download_takes = MINUTE;
    world.add_project("a", 1_000, MINUTE * 10);
    let wifi_only = owner(Said { network_wifi_only: Some(true), ..Said::default() });
    let cable = || over(Some(NetworkOver::Other("eth0".to_owned())));
    world.event(Event::DocumentOffered(document(1, &[("a", 1.0)], two_cpus()).into()));
    world.run_until("a download is under way", MINUTE * 10, |world| !world.transfers.is_empty());
    assert!(!world.client.looks_for().wifi);
    world.event(wifi_only);
    assert!(world.client.looks_for().wifi);
    // Until it was looked nothing begins, and what is under way goes on.
    let cancels = |world: &World| world.log.iter().filter(|line| line.contains("CancelTransfer")).count();
    assert_eq!(cancels(&world), 0);
    let why = |world: &World| world.client.host_view().network_rests;
    assert!(why(&world).unwrap().starts_with("it is looked"), "{:?}", why(&world));
    let under_way = world.transfers.len();
    world.event(cable());
    assert_eq!(cancels(&world), under_way, "{:?}", world.log);
    assert_eq!(why(&world).unwrap(), "this machine is not on WiFi but on eth0 (`network_wifi_only`)");
    let (calls, begun) = (world.calls("a").len(), world.transfers.len());
    world.run_for(MINUTE * 30);
    assert_eq!((world.calls("a").len(), world.transfers.len(), world.computing()), (calls, begun, 0));
    // Contact that is asked for is made; files wait all the same.
    world.event(Event::ContactRequested { url: url("a"), by: RequestedBy::Owner });
    world.run_until("the contact that was asked for", MINUTE, |world| world.calls("a").len() > calls);
    assert_eq!(world.transfers.len(), begun);
    world.event(over(Some(NetworkOver::Wifi)));
    assert_eq!(why(&world), None);
    world.run_until("it computes", MINUTE * 5, |world| world.computing() == 2);
    assert!(!world.notices().any(|text| text.contains("trying again")));
    // Without a way out it is on no WiFi either; and a preference that is taken back is over.
    world.event(over(Some(NetworkOver::Nothing)));
    assert_eq!(why(&world).unwrap(), "this machine is not on WiFi (`network_wifi_only`)");
    assert_eq!(world.computing(), 2, "what is here computes");
    world.event(owner(Said::default()));
    assert_eq!(why(&world), None);
}

#[test]
fn r6_4_while_an_exclusive_program_runs_nothing_is_computed() {
    let mut world = world(6, two_cpus());
    let runs = |name: Option<&str>| {
        Event::SurroundingsSeen(Surroundings {
            exclusive: name.map(str::to_owned),
            ..Surroundings::default()
        })
    };
    world.event(owner(Said { exclusive_programs: Some(["game".to_owned()].into()), ..Said::default() }));
    assert_eq!(world.client.looks_for().programs, ["game".to_owned()].into());
    world.event(runs(Some("game")));
    assert_eq!((world.computing(), suspended_by(&world)), (0, Some(SuspendedBy::OtherPrograms)));
    world.event(runs(None));
    assert_eq!((world.computing(), suspended_by(&world)), (2, None));
    // One that is not exclusive any more keeps nobody, although it still was when it was seen.
    world.event(runs(Some("game")));
    world.event(owner(Said::default()));
    assert_eq!(world.computing(), 2);
}

/// So many seconds on, with a look at the CPUs every ten: others use so much of them.
fn load(world: &mut World, seconds: i64, others: f64, worked: &mut f64) {
    for _ in 0..seconds / 10 {
        let before = world.cpu_used;
        world.run_for(SECOND * 10);
        let ours = (world.cpu_used - before).as_secs_f64();
        *worked += ours + others * 2.0 * 10.0;
        let time = Duration::from_secs_f64(*worked);
        let cpu_worked = Some(CpuWork { time, cpus: 2 });
        world.event(Event::SurroundingsSeen(Surroundings { cpu_worked, ..Surroundings::default() }));
    }
}

#[test]
fn r6_4_what_other_programs_use_of_the_cpus_is_what_tasks_did_not() {
    let (mut world, mut worked) = (world(7, two_cpus()), 1_000.0);
    assert!(!world.client.looks_for().load);
    world.event(owner(Said { other_load_max: Some(part(0.25)), ..Said::default() }));
    assert!(world.client.looks_for().load);
    // Tasks use both CPUs, and nobody else anything.
    load(&mut world, 60, 0.0, &mut worked);
    assert_eq!((world.computing(), suspended_by(&world)), (2, None));
    load(&mut world, 20, 0.2, &mut worked);
    assert_eq!(suspended_by(&world), None);
    load(&mut world, 20, 0.4, &mut worked);
    assert_eq!((world.computing(), suspended_by(&world)), (0, Some(SuspendedBy::OtherPrograms)));
    assert!(world.client.looks_for().load, "it is looked when that is over");
    load(&mut world, 60, 0.3, &mut worked);
    assert_eq!(world.computing(), 0);
    load(&mut world, 60, 0.1, &mut worked);
    assert_eq!((world.computing(), suspended_by(&world)), (2, None));
    // In use less is enough.
    let said = Said { other_load_max_in_use: Some(part(0.05)), ..Said::default() };
    world.event(owner(said));
    load(&mut world, 30, 0.1, &mut worked);
    assert_eq!(world.computing(), 2);
    world.event(input());
    load(&mut world, 30, 0.1, &mut worked);
    assert_eq!(world.computing(), 0);
}

#[test]
fn r6_4_looks_that_come_close_together_do_not_make_the_tasks_own_time_that_of_others() {
    let (mut world, mut worked) = (world(27, two_cpus()), 1_000.0);
    world.event(owner(Said { other_load_max: Some(part(0.25)), ..Said::default() }));
    load(&mut world, 30, 0.0, &mut worked);
    // Each time the CPUs have worked on, and of the tasks that is not known yet.
    for _ in 0..4 {
        worked += 1.0;
        world.now = world.now + Duration::from_micros(500_000);
        let cpu_worked = Some(CpuWork { time: Duration::from_secs_f64(worked), cpus: 2 });
        world.event(Event::SurroundingsSeen(Surroundings { cpu_worked, ..Surroundings::default() }));
        assert_eq!((world.computing(), suspended_by(&world)), (2, None));
    }
}

#[test]
fn r6_4_a_look_after_a_sleep_or_a_jump_of_the_clock_says_nothing_of_others() {
    let (mut world, mut worked) = (world(8, two_cpus()), 1_000.0);
    world.event(owner(Said { other_load_max: Some(part(0.25)), ..Said::default() }));
    load(&mut world, 30, 0.0, &mut worked);
    world.jump(Duration::from_hours(3));
    worked += 3_600.0;
    load(&mut world, 10, 0.0, &mut worked);
    assert_eq!(suspended_by(&world), None);
    world.jump(Duration::from_hours(-5));
    load(&mut world, 10, 0.0, &mut worked);
    assert_eq!(suspended_by(&world), None);
}

#[test]
fn r6_4_without_input_for_long_a_host_stops_so_that_it_can_go_to_sleep() {
    let mut world = world(9, two_cpus());
    world.event(owner(Said { stop_without_input: Some(Some(MINUTE * 30)), ..Said::default() }));
    world.event(input());
    let last = world.now;
    world.run_for(MINUTE * 29);
    assert_eq!(suspended_by(&world), None);
    world.run_until("it stops", MINUTE * 2, |world| world.computing() == 0);
    assert!((world.now - last - MINUTE * 30).as_secs_f64().abs() < 2.0);
    assert_eq!(suspended_by(&world), Some(SuspendedBy::NoInput));
    world.event(input());
    assert_eq!((world.computing(), suspended_by(&world)), (2, None));
}

#[test]
fn r6_4_a_host_that_stops_before_it_begins_says_that_it_never_computes() {
    let why = |stop: Duration| {
        let mut world = world(9, two_cpus());
        let run_in_use = Some(false);
        world.event(owner(Said { stop_without_input: Some(Some(stop)), run_in_use, ..Said::default() }));
        world.event(input());
        world.run_for(stop + MINUTE);
        world.client.host_view().stopped_for.unwrap_or_default()
    };
    assert!(why(MINUTE * 30).starts_with("nobody has used the machine for long, so that it may go to sleep"));
    let never = why(MINUTE);
    assert!(never.starts_with("this machine would never compute: it stops after"), "{never}");
}

#[test]
fn r6_4_where_nobody_looks_for_input_none_is_missed() {
    for senses_input in [true, false] {
        let config = ClientConfig { senses_input, ..ClientConfig::new(9, version()) };
        let mut world = World::with(config);
        world.event(owner(Said { stop_without_input: Some(Some(MINUTE * 10)), ..Said::default() }));
        world.run_for(Duration::from_hours(1));
        assert_eq!(world.client.host_view().suspended_by.is_some(), senses_input);
        // Nor is anybody warned that it would never compute, where that is not so.
        let run_in_use = Some(false);
        let stop_without_input = Some(Some(MINUTE));
        world.event(owner(Said { stop_without_input, run_in_use, ..Said::default() }));
        assert_eq!(!world.client.cautions().is_empty(), senses_input);
    }
}

#[test]
fn r6_4_outside_of_network_hours_no_project_is_contacted_and_the_rest_goes_on() {
    let mut world = World::new(10);
    world.add_project("a", 1_000, Duration::from_secs(30));
    world.event(Event::DocumentOffered(document(1, &[("a", 1.0)], two_cpus()).into()));
    world.run_until("it computes", MINUTE * 10, |world| world.computing() == 2);
    // The world begins on a Friday at eight.
    let hours = "fri 12:00-13:00".parse().unwrap();
    world.event(owner(Said { network_hours: Some(hours), ..Said::default() }));
    // What was under way comes to its end.
    world.run_for(SECOND * 10);
    let (calls, turns) = (world.calls("a").len(), world.turns);
    world.run_for(Duration::from_hours(2));
    assert_eq!(world.calls("a").len(), calls);
    assert!(world.turns - turns < 40_000, "{}", world.turns - turns);
    // Whoever is at the host goes before its hours.
    let by = RequestedBy::Owner;
    world.event(Event::ContactRequested { url: url("a"), by });
    world.run_until("the contact that was asked for", MINUTE, |world| world.calls("a").len() > calls);
    world.run_for(MINUTE);
    let calls = world.calls("a").len();
    world.run_for(Duration::from_hours(1));
    assert_eq!(world.calls("a").len(), calls);
    let is_open = |world: &World| world.calls("a").len() > calls;
    world.run_until("the network is open", Duration::from_hours(2), is_open);
    let second = world.calls("a").last().unwrap().as_micros() / 1_000_000 % 86_400;
    assert!((43_200..43_260).contains(&second), "it is noon: {second}");
}

#[test]
fn r6_4_the_most_of_the_disk_is_told_to_projects() {
    let mut world = world(11, two_cpus());
    let share = |world: &World| -> f64 {
        let request = world.requests.last().unwrap();
        let (_, rest) = request.split_once("<d_project_share>").unwrap();
        rest.split_once('<').unwrap().0.parse().unwrap()
    };
    let before = share(&world);
    assert!(before > 4e10, "{before}");
    world.event(owner(Said { disk_max: Some(Some(Bytes(3_000_000_000))), ..Said::default() }));
    let asked = world.requests.len();
    world.run_until("another request", Duration::from_hours(24), |world| world.requests.len() > asked);
    assert!((share(&world) - 3e9).abs() < 1e6, "{}", share(&world));
}

const SITE: &str = "<source_project>http://127.0.0.1/a/</source_project>\n<mod_time>1000</mod_time>\n\
    <run_if_user_active>1</run_if_user_active>\n<run_on_batteries>1</run_on_batteries>\n\
    <max_ncpus_pct>100</max_ncpus_pct>\n<suspend_cpu_usage>0</suspend_cpu_usage>\n\
    <ram_max_used_busy_pct>90</ram_max_used_busy_pct>\n\
    <venue name=\"home\">\n<run_if_user_active>1</run_if_user_active>\n<max_ncpus_pct>50</max_ncpus_pct>\n</venue>";

fn origin(world: &World, key: &str) -> String {
    let all = &world.client.preferences_in_force().entries;
    all.iter().find(|entry| entry.key == key).unwrap().place.to_string()
}

/// A host that computes for a project whose user has set preferences there; no fleet's.
fn of_site(seed: u64, venue: fn(&mut fallow_boinc::scheduler::SchedulerReply, usize)) -> World {
    let mut world = World::new(seed);
    world.alter = Some(venue);
    world.add_project("a", 1_000, Duration::from_mins(10));
    world.event(attach_unseen(url("a"), "key", None));
    world.run_until("it computes", MINUTE * 10, |world| world.computing() > 0);
    world
}

#[test]
fn r6_4_preferences_of_a_web_site_hold_where_no_document_does_and_over_a_restart() {
    let mut world = of_site(12, |reply, _| reply.global_preferences = Some(SITE.to_owned()));
    world.run_for(SECOND * 10);
    assert_eq!(world.client.host_view().usable_cpus, 2);
    assert!(origin(&world, "run_in_use").starts_with("preferences on the web site of http://"));
    world.event(input());
    assert_eq!((world.computing(), suspended_by(&world)), (2, None), "its user lets it compute in use");
    world.restart();
    assert!(origin(&world, "run_in_use").contains("web site"));
    // The fleet's document goes before it, whole.
    world.event(Event::DocumentOffered(document(1, &[("a", 1.0)], small_buffers()).into()));
    assert_eq!(origin(&world, "run_in_use"), "coordinator's document version 1");
    world.event(input());
    assert_eq!((world.computing(), suspended_by(&world)), (0, Some(SuspendedBy::InUse)));
}

#[test]
fn r6_4_a_host_at_a_venue_has_the_preferences_of_that_venue_and_nothing_beside() {
    let mut world = of_site(13, |reply, _| {
        reply.global_preferences = Some(SITE.to_owned());
        reply.host_venue = Some("home".to_owned());
    });
    world.run_for(SECOND * 10);
    assert_eq!((world.client.host_view().usable_cpus, world.computing()), (1, 1));
    assert!(origin(&world, "cpu_fraction").ends_with("for venue home"), "{}", origin(&world, "cpu_fraction"));
    // What stands outside of the venue is forgotten.
    world.event(Event::SurroundingsSeen(Surroundings { on_battery: true, ..Surroundings::default() }));
    assert_eq!(suspended_by(&world), Some(SuspendedBy::Battery));
}

#[test]
fn r6_4_of_several_web_sites_the_one_that_was_edited_last_counts_until_its_project_is_detached() {
    let mut world = of_site(14, |reply, _| reply.global_preferences = Some(SITE.to_owned()));
    // Whoever was called less often so far has a newer one.
    world.alter = Some(|reply, before| {
        let newer = format!("<mod_time>{}<", 5_000 - before);
        reply.global_preferences = Some(SITE.replace("<mod_time>1000<", &newer));
    });
    world.add_project("b", 1_000, Duration::from_mins(10));
    world.event(attach_unseen(url("b"), "key", None));
    world.run_until("the newer one", MINUTE * 10, |world| origin(world, "run_in_use").ends_with("/b/"));
    world.event(Event::Detach { url: url("b") });
    assert!(origin(&world, "run_in_use").ends_with("/a/"), "{}", origin(&world, "run_in_use"));
}

#[test]
fn r6_4_preferences_that_are_said_to_be_of_the_future_are_as_old_as_they_came() {
    let mut world = of_site(16, |reply, _| {
        reply.global_preferences = Some(SITE.replace("<mod_time>1000<", "<mod_time>9e9<"));
    });
    assert!(origin(&world, "run_in_use").ends_with("/a/"));
    world.run_for(Duration::from_hours(2));
    // An hour after that its user edits them on the other's web site.
    world.alter = Some(|reply, _| {
        let later = format!("<mod_time>{}<", 1_800_000_000 + 3_600);
        reply.global_preferences = Some(SITE.replace("<mod_time>1000<", &later));
    });
    world.add_project("b", 1_000, Duration::from_mins(10));
    world.event(attach_unseen(url("b"), "key", None));
    world.run_until("the later ones", MINUTE * 10, |world| origin(world, "run_in_use").ends_with("/b/"));
}

#[test]
fn r6_4_whatever_a_project_sends_as_preferences_the_owner_is_not_outdone() {
    let mut world = of_site(15, |reply, _| {
        reply.global_preferences = Some("<run_if_user_active>1</run_if_user_active><venue".to_owned());
    });
    world.run_for(SECOND * 10);
    // What cannot be read says nothing.
    assert_eq!(origin(&world, "run_in_use"), "default");
    world.alter = Some(|reply, _| reply.global_preferences = Some(SITE.to_owned()));
    world.event(owner(Said { run_in_use: Some(false), ..Said::default() }));
    world.run_until("its preferences", Duration::from_hours(24), |world| {
        origin(world, "cpu_fraction").contains("web site")
    });
    world.event(input());
    assert_eq!((world.computing(), suspended_by(&world)), (0, Some(SuspendedBy::InUse)));
}

#[test]
fn r1_11_the_work_that_is_asked_for_follows_both_buffers() {
    let asked = |min: i64, additional: i64| {
        let mut world = World::with_a_buffer(17);
        world.add_project("a", 1_000, MINUTE * 10);
        let preferences = Preferences {
            buffer_min: Duration::from_hours(min),
            buffer_additional: Duration::from_hours(additional),
            ..two_cpus()
        };
        world.event(Event::DocumentOffered(document(1, &[("a", 1.0)], preferences).into()));
        world.run_until("work", MINUTE * 10, |world| world.projects["a"].sent > 0);
        world.run_for(MINUTE);
        world.projects["a"].sent
    };
    // Of two CPUs, in jobs of ten minutes: twelve an hour.
    let close = |jobs: u64, hours: u64| (hours * 12..=hours * 12 + 6).contains(&jobs);
    for (min, additional) in [(1, 0), (1, 2), (3, 1)] {
        let jobs = asked(min, additional);
        assert!(close(jobs, (min + additional).unsigned_abs()), "{jobs} jobs for {min} h and {additional} h");
    }
}

#[test]
fn r6_4_tasks_that_wait_stay_in_memory_only_where_preferences_say_so() {
    for leave_in_memory in [true, false] {
        let mut world = world(18, Preferences { leave_in_memory, ..two_cpus() });
        // Until each has saved its state: before that it would lose all.
        world.run_for(SECOND * 20);
        world.event(owner(Said { suspended: Some(true), ..Said::default() }));
        world.run_for(SECOND * 5);
        let in_memory = world.client.task_views().iter().filter(|task| task.pid.is_some()).count();
        assert_eq!((world.computing(), in_memory), (0, if leave_in_memory { 2 } else { 0 }));
    }
    // The owner's file takes that away, too.
    let mut world = world(19, Preferences { leave_in_memory: true, ..two_cpus() });
    world.run_for(SECOND * 20);
    world.event(owner(Said { suspended: Some(true), leave_in_memory: Some(false), ..Said::default() }));
    world.run_for(SECOND * 5);
    assert!(world.client.task_views().iter().all(|task| task.pid.is_none()));
}

#[test]
fn r6_4_tasks_that_do_not_fit_into_the_part_of_the_memory_wait() {
    let mut world = world(20, two_cpus());
    // Two tasks of 10 MiB each do not fit into 15 of 8192 MiB.
    world.event(owner(Said { memory_fraction: part(15.0 / 8_192.0), ..Said::default() }));
    world.run_for(SECOND * 2);
    assert_eq!(world.computing(), 1);
    world.event(owner(Said::default()));
    world.run_until("both", MINUTE, |world| world.computing() == 2);
}

#[test]
fn r6_4_parts_of_the_disk_and_space_that_stays_free_are_told_to_projects() {
    // Of 100 GB, 50 of them free.
    for (said, expected) in [
        (Said { disk_fraction: part(0.02), ..Said::default() }, 2e9),
        (Said { disk_free_min: Some(Bytes(46_000_000_000)), ..Said::default() }, 4e9),
        (Said { disk_free_min: Some(Bytes(60_000_000_000)), ..Said::default() }, 0.0),
    ] {
        let mut world = world(21, two_cpus());
        world.event(owner(said));
        let asked = world.requests.len();
        world.run_until("another request", Duration::from_hours(24), |world| world.requests.len() > asked);
        let request = world.requests.last().unwrap();
        let (_, rest) = request.split_once("<d_project_share>").unwrap();
        let share: f64 = rest.split_once('<').unwrap().0.parse().unwrap();
        // What the projects' own files take counts as theirs.
        assert!((share - expected).abs() < 1e8, "{share} for {expected}");
    }
}

#[test]
fn r6_4_where_memory_is_short_tasks_that_do_not_run_leave_it_one_by_one_once_they_have_saved_their_state() {
    let mut world = world(22, Preferences { leave_in_memory: true, ..two_cpus() });
    let short = || Event::SurroundingsSeen(Surroundings { memory_short: true, ..Surroundings::default() });
    let in_memory =
        |world: &World| world.client.task_views().iter().filter(|task| task.pid.is_some()).count();
    world.run_for(SECOND * 20);
    // Those that run are left alone.
    assert!(!world.client.looks_for().memory);
    world.event(short());
    world.run_for(SECOND * 2);
    assert_eq!((world.computing(), in_memory(&world)), (2, 2));
    world.event(owner(Said { suspended: Some(true), ..Said::default() }));
    assert!(world.client.looks_for().memory);
    for left in [1, 0] {
        world.event(short());
        world.run_for(SECOND * 2);
        assert_eq!(in_memory(&world), left);
    }
    world.event(owner(Said::default()));
    world.run_until("they go on from there", MINUTE, |world| world.computing() == 2);
    assert!(world.client.task_views().iter().all(|task| task.checkpoint_cpu_time >= SECOND * 15));
}

#[test]
fn r6_4_where_memory_is_short_no_task_leaves_it_before_the_one_that_was_told_to_has_left() {
    let mut world = world(22, Preferences { leave_in_memory: true, ..two_cpus() });
    let short = || Event::SurroundingsSeen(Surroundings { memory_short: true, ..Surroundings::default() });
    let told = |world: &World| world.log.iter().filter(|line| line.contains("QuitTask")).count();
    world.run_for(SECOND * 20);
    world.event(owner(Said { suspended: Some(true), ..Said::default() }));
    world.leaves_late = true;
    for _ in 0..3 {
        world.event(short());
        world.run_for(SECOND * 2);
        assert_eq!(told(&world), 1);
    }
}

#[test]
fn r6_4_a_task_without_a_checkpoint_stays_in_memory_however_short_that_is() {
    let mut world = World::new(23);
    world.add_project("a", 2, Duration::from_mins(10));
    // These never save their state.
    world.never_finishes = true;
    world.event(Event::DocumentOffered(document(1, &[("a", 1.0)], two_cpus()).into()));
    world.run_until("it computes", MINUTE * 10, |world| world.computing() == 2);
    world.run_for(SECOND * 20);
    world.event(owner(Said { suspended: Some(true), ..Said::default() }));
    assert!(!world.client.looks_for().memory, "nobody looks for what would change nothing");
    world.event(Event::SurroundingsSeen(Surroundings { memory_short: true, ..Surroundings::default() }));
    world.run_for(SECOND * 2);
    assert_eq!(world.client.task_views().iter().filter(|task| task.pid.is_some()).count(), 2);
}
