//! Amounts that the host's files limit: what is transferred in some days, the swap space, the CPUs (R6.4).

use fallow_client::{Event, RequestedBy};
use fallow_domain::{Bytes, Duration, HostFacts, Preferences};
use fallow_preferences::Said;

use crate::life::document;
use crate::preferences::{owner, part, two_cpus, url, world};
use crate::world::World;

const MINUTE: Duration = Duration::from_mins(1);
const SECOND: Duration = Duration::from_secs(1);

#[test]
fn r6_4_what_files_come_to_in_days_ends_transfers_until_days_pass_and_a_restart_forgets_nothing() {
    let mut world = World::new(12);
    world.add_project("a", 1_000, MINUTE * 10);
    world.event(Event::DocumentOffered(document(1, &[("a", 1.0)], two_cpus()).into()));
    world.run_until("it computes", MINUTE * 10, |world| world.computing() == 2);
    let limit = |megabytes: u64, days: i64| {
        owner(Said {
            transfer_max: Some(Some(Bytes(megabytes * 1_000_000))),
            transfer_period: Some(Duration::from_hours(24) * days),
            ..Said::default()
        })
    };
    let moved = |megabytes: u64| Event::FilesMoved { up: Bytes(0), down: Bytes(megabytes * 1_000_000) };
    world.event(limit(10, 3));
    world.event(moved(4));
    assert_eq!(world.client.transfers_left(), Some(Bytes(6_000_000)));
    assert_eq!(world.client.host_view().network_rests, None);
    world.event(moved(6));
    let why = world.client.host_view().network_rests.unwrap();
    assert!(why.starts_with("files came to 10 MB in the last 3 days, of 10 MB"), "{why}");
    let (calls, transfers) = (world.calls("a").len(), world.transfers.len());
    // It is known after a restart, once the files were read, which is before anything else.
    let mut later = world.restored();
    later.handle(world.now, limit(10, 3));
    assert_eq!(later.transfers_left(), Some(Bytes(0)));
    // Jobs end, and their outputs wait.
    world.run_for(Duration::from_hours(24));
    assert!(world.client.task_views().iter().any(|task| task.phase == fallow_client::Phase::Uploading));
    assert_eq!((world.calls("a").len(), world.transfers.len()), (calls, transfers));
    // Contact that is asked for is made; files wait all the same.
    world.event(Event::ContactRequested { url: url("a"), by: RequestedBy::Owner });
    world.run_until("the contact that was asked for", MINUTE, |world| world.calls("a").len() > calls);
    world.run_for(MINUTE * 10);
    assert_eq!(world.transfers.len(), transfers);
    // On a Friday at eight it began; so it goes on at midnight on Monday.
    world.run_until("it goes on", Duration::from_hours(72), |world| world.transfers.len() > transfers);
    let began = world.transfers[transfers].0.as_micros() / 1_000_000;
    assert_eq!(began / 86_400, 1_800_000_000 / 86_400 + 3);
    assert!(began % 86_400 < 60, "{began}");
    assert_eq!(world.client.transfers_left(), Some(Bytes(10_000_000)));
    assert_eq!(world.client.host_view().network_rests, None);
}

#[test]
fn r6_4_a_transfer_that_is_under_way_is_broken_off_without_blame_when_no_more_may_be_transferred() {
    let mut world = World::new(13);
    world.download_takes = MINUTE;
    world.add_project("a", 1_000, MINUTE * 10);
    world.event(owner(Said { transfer_max: Some(Some(Bytes(10_000_000))), ..Said::default() }));
    world.event(Event::DocumentOffered(document(1, &[("a", 1.0)], two_cpus()).into()));
    world.run_until("a download is under way", MINUTE * 10, |world| !world.transfers.is_empty());
    world.event(Event::FilesMoved { up: Bytes(1), down: Bytes(10_000_000) });
    assert!(world.log.iter().any(|line| line.contains("CancelTransfer")), "{:?}", world.log);
    let begun = world.transfers.len();
    world.run_for(MINUTE * 30);
    assert_eq!((world.transfers.len(), world.computing()), (begun, 0));
    world.event(owner(Said::default()));
    world.run_until("it computes", MINUTE * 5, |world| world.computing() == 2);
    assert!(!world.notices().any(|text| text.contains("trying again")));
}

#[test]
fn r6_4_where_tasks_hold_too_much_of_the_swap_space_some_leave_memory_and_come_back_later() {
    // Two jobs and no more, so that nothing comes in their place.
    let mut world = World::new(24);
    world.add_project("a", 2, MINUTE * 60);
    let preferences = Preferences { leave_in_memory: true, ..two_cpus() };
    world.event(Event::DocumentOffered(document(1, &[("a", 1.0)], preferences).into()));
    world.run_until("it computes", MINUTE * 10, |world| world.computing() == 2);
    let in_memory =
        |world: &World| world.client.task_views().iter().filter(|task| task.pid.is_some()).count();
    let swap = Bytes(100_000_000);
    world.event(Event::HostMeasured(Box::new(HostFacts { swap, ..crate::world::host() })));
    world.swap = Some(Bytes(30_000_000));
    world.run_for(SECOND * 20);
    // All of it may be used.
    assert!(!world.client.counts_swap());
    assert_eq!((world.computing(), in_memory(&world)), (2, 2));
    world.event(owner(Said { swap_fraction: part(0.5), ..Said::default() }));
    assert!(world.client.counts_swap());
    world.run_for(SECOND * 5);
    let why = "tasks hold 60 MB of the swap space, and may hold 50 MB (`swap_fraction`)";
    assert!(world.log.iter().any(|line| line.contains("QuitTask") && line.contains(why)), "{:?}", world.log);
    let away = |world: &World| {
        let begun =
            world.client.task_views().into_iter().filter(|task| task.checkpoint_cpu_time.is_positive());
        begun.filter(|task| task.pid.is_none()).count()
    };
    assert_eq!(away(&world), 1);
    world.swap = Some(Bytes(1_000_000));
    world.run_for(MINUTE * 9);
    assert_eq!(away(&world), 1);
    world.run_until("it comes back", MINUTE * 2, |world| away(world) == 0);
    // Without swap space there is nothing to hold.
    world.event(Event::HostMeasured(Box::new(crate::world::host())));
    assert!(!world.client.counts_swap());
}

#[test]
fn r6_4_nothing_begins_in_the_place_of_a_task_that_had_to_leave_the_swap_space_until_it_fits_again() {
    let mut world = World::new(26);
    world.add_project("a", 20, MINUTE * 60);
    let buffer_min = Duration::from_hours(6);
    let preferences = Preferences { leave_in_memory: true, buffer_min, ..two_cpus() };
    world.event(Event::DocumentOffered(document(1, &[("a", 1.0)], preferences).into()));
    world.run_until("it computes", MINUTE * 10, |world| world.computing() == 2);
    let swap = Bytes(100_000_000);
    world.event(Event::HostMeasured(Box::new(HostFacts { swap, ..crate::world::host() })));
    world.event(owner(Said { swap_fraction: part(0.5), ..Said::default() }));
    let is_start = |line: &&String| line.split(' ').nth(1) == Some("start");
    let starts = |world: &World| world.log.iter().filter(is_start).count();
    let begun = starts(&world);
    assert_eq!(begun, 2);
    world.swap = Some(Bytes(30_000_000));
    world.run_until("one leaves", MINUTE, |world| world.computing() == 1);
    // It does not fit beside the other one, after ten minutes neither.
    world.run_for(MINUTE * 35);
    assert_eq!((world.computing(), starts(&world)), (1, begun));
    let waits =
        world.client.task_views().into_iter().filter(|task| task.phase == fallow_client::Phase::Ready);
    assert!(waits.count() > 0, "there are other jobs that might have begun");
    world.swap = Some(Bytes(1_000_000));
    world.run_until("it comes back", MINUTE * 11, |world| world.computing() == 2);
    assert_eq!(starts(&world), begun + 1);
}

#[test]
fn r6_4_a_task_that_always_holds_too_much_of_the_swap_space_leaves_its_cpus_to_others_and_fails_in_the_end() {
    let mut world = World::new(27);
    world.never_finishes = true;
    world.add_project("greedy", 1, MINUTE * 600);
    world.add_project("other", 20, MINUTE * 600);
    let preferences = Preferences { leave_in_memory: true, ..two_cpus() };
    world.event(Event::DocumentOffered(document(1, &[("greedy", 1.0), ("other", 1.0)], preferences).into()));
    let of = |world: &World, project: &str| {
        let tasks = world.client.task_views();
        tasks.into_iter().filter(|task| task.name.starts_with(project) && task.pid.is_some()).count()
    };
    world.run_until("both compute", MINUTE * 30, |world| of(world, "greedy") == 1 && of(world, "other") == 1);
    let swap = Bytes(100_000_000);
    world.event(Event::HostMeasured(Box::new(HostFacts { swap, ..crate::world::host() })));
    world.event(owner(Said { swap_fraction: part(0.5), ..Said::default() }));
    // The others hold a little.
    (world.swap, world.swap_prefix) = (Some(Bytes(60_000_000)), "greedy");
    world.run_until("it leaves", MINUTE, |world| of(world, "greedy") == 0);
    world.run_until("it has come back and left again", MINUTE * 12, |world| {
        world.log.iter().filter(|line| line.contains("QuitTask")).count() == 2
    });
    // Now others have its place.
    world.run_until("others compute", MINUTE * 5, |world| of(world, "other") == 2);
    world.run_for(MINUTE * 250);
    assert_eq!(world.log.iter().filter(|line| line.contains("QuitTask")).count(), 4);
    let failed = "it soon held more of the swap space, 60 MB now, than the 50 MB";
    assert!(world.log.iter().any(|line| line.contains(failed)), "{:?}", world.log);
    assert_eq!((of(&world, "greedy"), of(&world, "other")), (0, 2));
}

#[test]
fn r6_4_a_number_of_cpus_is_the_most_that_is_used_whatever_part_of_all_they_are() {
    let mut world = world(25, two_cpus());
    let most = |cpus: u32| owner(Said { cpus_max: Some(std::num::NonZeroU32::new(cpus)), ..Said::default() });
    world.event(most(1));
    assert_eq!((world.computing(), world.client.host_view().usable_cpus), (1, 1));
    world.event(most(64));
    assert_eq!((world.computing(), world.client.host_view().usable_cpus), (2, 2));
    // The number holds on a host that has more of them at its next measurement.
    world.event(most(2));
    world.event(Event::HostMeasured(Box::new(HostFacts { ncpus: 8, ..crate::world::host() })));
    assert_eq!(world.client.host_view().usable_cpus, 2);
}
