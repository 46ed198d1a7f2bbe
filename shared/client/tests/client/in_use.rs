//! Hosts that somebody uses (R6.2, R6.4).

use fallow_client::{Effect, Event, RequestedBy, Rests};
use fallow_domain::agent_state::SuspendedBy;
use fallow_domain::{Duration, Preferences};

use crate::life::{document, small_buffers};
use crate::preferences::{two_cpus, url};
use crate::world::World;

const MINUTE: Duration = Duration::from_mins(1);

/// A host with work that computes, under these preferences.
fn world(seed: u64, preferences: Preferences) -> World {
    let mut world = World::new(seed);
    world.add_project("a", 1_000, Duration::from_secs(30));
    world.event(Event::DocumentOffered(document(1, &[("a", 1.0)], preferences).into()));
    world.run_until("it computes", MINUTE * 10, |world| world.computing() == 1);
    world
}

fn input() -> Event {
    Event::OwnerInput { ago: Duration::ZERO }
}

fn suspended_by(world: &World) -> Option<SuspendedBy> {
    world.client.host_view().suspended_by
}

#[test]
fn r6_2_a_host_rests_from_the_first_input_until_three_minutes_after_the_last() {
    let mut world = world(1, small_buffers());
    let told = world.notices().count();
    world.event(input());
    assert_eq!((world.computing(), suspended_by(&world)), (0, Some(SuspendedBy::InUse)));
    assert!(world.notices().last().unwrap().contains("somebody uses the machine, until 3"));
    let view = world.client.host_view().in_use;
    assert_eq!((view.is_so, view.until), (true, Some(world.now + MINUTE * 3)));
    // It goes on for a while, and nobody is told again.
    for _ in 0..20 {
        world.run_for(Duration::from_secs(30));
        world.event(input());
        assert_eq!((world.computing(), suspended_by(&world)), (0, Some(SuspendedBy::InUse)));
    }
    let last = world.now;
    assert_eq!(world.notices().count(), told + 1);
    world.run_for(MINUTE * 3 - Duration::from_secs(2));
    assert_eq!(suspended_by(&world), Some(SuspendedBy::InUse));
    world.run_until("it computes again", MINUTE, |world| world.computing() == 1);
    assert!((world.now - last - MINUTE * 3).as_secs_f64().abs() < 5.0, "{}", world.now - last);
    assert_eq!((suspended_by(&world), world.client.host_view().in_use.until), (None, None));
}

#[test]
fn r6_2_all_processes_are_stopped_first_and_the_tasks_stay_in_memory() {
    for leave_in_memory in [false, true] {
        let preferences = Preferences { leave_in_memory, checkpoint_period: MINUTE, ..small_buffers() };
        let mut world = world(2, preferences);
        world.run_for(MINUTE * 5);
        let step = world.client.handle(world.now, input());
        let effects: Vec<&Effect> = step.actions.iter().map(|action| &action.effect).collect();
        let done: Vec<_> = effects
            .iter()
            .filter(|effect| !matches!(effect, Effect::Notice { .. } | Effect::CancelTransfer { .. }))
            .collect();
        assert!(matches!(done[..], [Effect::FreezeTasks, Effect::SuspendTask { .. }]), "{effects:?}");
        assert!(step.actions[0].reason.to_string().contains("somebody uses the host"));
        // The next input is nothing new.
        let step = world.client.handle(world.now + Duration::from_secs(5), input());
        assert!(step.actions.is_empty(), "{:?}", step.actions);
    }
}

#[test]
fn r6_2_files_wait_while_somebody_has_the_machine_for_himself_and_projects_are_contacted_all_the_same() {
    let why = |world: &World| world.client.host_view().files_wait;
    let cancels = |world: &World| world.log.iter().filter(|line| line.contains("CancelTransfer")).count();
    let comes = [
        (input(), "somebody uses this machine"),
        (Event::Snoozed(Duration::from_hours(1)), "somebody has paused computing"),
    ];
    for (comes, reason) in comes {
        let mut world = World::new(2);
        world.download_takes = MINUTE;
        world.add_project("a", 1_000, MINUTE * 10);
        let preferences = Preferences { run_in_use: false, ..two_cpus() };
        world.event(Event::DocumentOffered(document(1, &[("a", 1.0)], preferences).into()));
        world.run_until("a download is under way", MINUTE * 10, |world| !world.transfers.is_empty());
        let (under_way, before) = (world.transfers.len(), cancels(&world));
        assert_eq!(why(&world), None);
        world.event(comes.clone());
        assert_eq!((cancels(&world) - before, why(&world).as_deref()), (under_way, Some(reason)));
        let begun = world.transfers.len();
        for _ in 0..20 {
            world.run_for(MINUTE * 2);
            if matches!(comes, Event::OwnerInput { .. }) {
                world.event(input());
            }
            assert_eq!((world.transfers.len(), why(&world).as_deref()), (begun, Some(reason)));
        }
        let calls = world.calls("a").len();
        world.event(Event::ContactRequested { url: url("a"), by: RequestedBy::Owner });
        world.run_until("contact", MINUTE * 2, |world| world.calls("a").len() > calls);
        // Each goes on by itself, and nobody is to blame.
        world.run_until("it computes", MINUTE * 30, |world| world.computing() > 0);
        assert_eq!(why(&world), None);
        assert!(!world.notices().any(|text| text.contains("trying again")));
    }
}

#[test]
fn r6_2_files_come_while_somebody_uses_a_host_that_computes_all_the_same() {
    let mut world = World::new(2);
    world.add_project("a", 1_000, MINUTE * 10);
    world.event(Event::DocumentOffered(document(1, &[("a", 1.0)], two_cpus()).into()));
    for _ in 0..10 {
        world.event(input());
        world.run_for(MINUTE);
    }
    assert!(world.computing() > 0);
}

#[test]
fn r6_2_somebody_of_whose_input_nothing_can_be_seen_uses_the_host_until_he_is_gone() {
    let mut world = world(3, small_buffers());
    world.event(Event::OwnerUnseen(true));
    world.run_for(Duration::from_hours(3));
    let view = world.client.host_view().in_use;
    assert_eq!((world.computing(), view.is_so, view.until), (0, true, None));
    world.event(Event::OwnerUnseen(false));
    world.run_until("it computes again", MINUTE, |world| world.computing() == 1);
    // One who was seen a minute ago is there for two more.
    world.event(Event::OwnerInput { ago: MINUTE });
    assert_eq!(suspended_by(&world), Some(SuspendedBy::InUse));
    world.run_for(MINUTE * 2 + Duration::from_secs(2));
    assert_eq!(suspended_by(&world), None);
    // Input long ago is none.
    world.event(Event::OwnerInput { ago: MINUTE * 4 });
    assert_eq!(suspended_by(&world), None);
}

#[test]
fn r6_4_a_document_says_whether_a_host_computes_in_use_and_when_it_is_idle() {
    let mut world = world(4, Preferences { run_in_use: true, ..small_buffers() });
    world.event(input());
    world.run_for(MINUTE);
    let view = world.client.host_view();
    assert_eq!((world.computing(), view.suspended_by), (1, None));
    assert_eq!((view.in_use.is_so, view.in_use.rests), (true, Rests::Coprocessors));
    let idle_after = Duration::from_mins(10);
    let next = Preferences { idle_after, ..small_buffers() };
    // It is in use when the document comes that says so.
    world.event(Event::DocumentOffered(document(2, &[("a", 1.0)], next).into()));
    assert_eq!((world.computing(), suspended_by(&world)), (0, Some(SuspendedBy::InUse)));
    world.run_for(MINUTE * 8);
    assert_eq!(suspended_by(&world), Some(SuspendedBy::InUse));
    world.run_until("it computes again", MINUTE * 2, |world| world.computing() == 1);
    // The owner's word holds beside it.
    world.event(input());
    world.event(Event::OwnerSuspended(true));
    world.run_for(MINUTE * 20);
    assert_eq!((world.computing(), suspended_by(&world)), (0, Some(SuspendedBy::Owner)));
}

#[test]
fn r6_2_neither_a_clock_that_is_set_nor_a_restart_leaves_a_host_in_use_for_ever() {
    let mut world = world(5, small_buffers());
    world.event(input());
    world.jump(Duration::from_hours(-5));
    world.run_for(MINUTE);
    assert_eq!(suspended_by(&world), Some(SuspendedBy::InUse));
    world.run_for(MINUTE * 3);
    assert_eq!(suspended_by(&world), None);
    world.event(input());
    world.jump(Duration::from_hours(5));
    world.run_for(Duration::from_secs(5));
    assert_eq!(suspended_by(&world), None);
    world.event(input());
    assert_eq!(suspended_by(&world), Some(SuspendedBy::InUse));
    // The sensors of the next life say who is there.
    world.restart();
    world.run_until("it computes again", MINUTE * 2, |world| world.computing() == 1);
}

#[test]
fn r6_2_a_pause_ends_by_itself_holds_over_a_restart_and_is_never_longer_than_a_day() {
    let mut world = world(6, Preferences { run_in_use: true, ..small_buffers() });
    world.event(Event::Snoozed(Duration::from_hours(2)));
    let begun = world.now;
    assert_eq!((world.computing(), suspended_by(&world)), (0, Some(SuspendedBy::Snooze)));
    world.run_for(MINUTE * 30);
    world.restart();
    world.run_for(MINUTE * 60);
    assert_eq!((world.computing(), suspended_by(&world)), (0, Some(SuspendedBy::Snooze)));
    assert_eq!(world.client.host_view().snoozed_until, Some(begun + Duration::from_hours(2)));
    world.run_until("it computes again", MINUTE * 31, |world| world.computing() == 1);
    assert!((world.now - begun - Duration::from_hours(2)).as_secs_f64().abs() < 60.0);
    assert!(world.notices().any(|text| text.contains("the pause is over")));
    // It can be ended before, and no clock that is set back makes it longer.
    world.event(Event::Snoozed(Duration::from_hours(2)));
    world.event(Event::Snoozed(Duration::ZERO));
    assert_eq!(suspended_by(&world), None);
    world.event(Event::Snoozed(Duration::from_hours(1_000)));
    world.jump(Duration::from_hours(-900));
    world.run_for(Duration::from_hours(23));
    assert_eq!(suspended_by(&world), Some(SuspendedBy::Snooze));
    world.run_for(Duration::from_hours(1) + MINUTE);
    assert_eq!((suspended_by(&world), world.client.host_view().snoozed_until), (None, None));
}

#[test]
fn r6_4_a_pause_that_changes_nothing_is_neither_stored_nor_said_again_however_often_it_is_asked_for() {
    let mut world = world(6, Preferences { run_in_use: true, ..small_buffers() });
    let said = |world: &World| world.notices().filter(|text| text.contains("pause")).count();
    // What follows from it, but for when to look again.
    let follows = |world: &mut World, time: Duration| {
        let step = world.client.handle(world.now, Event::Snoozed(time));
        let follows = (step.changes.len(), step.actions.len());
        (follows, world.client.host_view().snoozed_until.map(|until| until - world.now))
    };
    let two = Duration::from_hours(2);
    world.event(Event::Snoozed(two));
    assert_eq!(said(&world), 1);
    for _ in 0..4 {
        world.now = world.now + Duration::from_secs(1);
        let (follows, left) = follows(&mut world, two);
        assert_eq!(follows, (0, 0));
        assert!(left < Some(two));
    }
    // Seconds later it is another end, and so is an earlier one.
    world.now = world.now + Duration::from_secs(1);
    for time in [two, MINUTE] {
        let (follows, left) = follows(&mut world, time);
        assert!(follows.0 > 0 && follows.1 > 0, "{follows:?}");
        assert_eq!(left, Some(time));
    }
    world.event(Event::Snoozed(Duration::ZERO));
    assert_eq!(follows(&mut world, Duration::ZERO), ((0, 0), None));
}

#[test]
fn r6_2_tasks_that_a_sensor_stopped_go_on_unless_the_host_gives_way() {
    // Whether a task goes on that has a process by now.
    let resumed = |world: &mut World| {
        assert!(world.client.has_processes());
        let step = world.client.handle(world.now, Event::TasksFrozen);
        step.actions.iter().filter(|action| matches!(action.effect, Effect::ResumeTask { .. })).count()
    };
    // The document that says so came while the sensor stopped them.
    let mut world = world(5, Preferences { run_in_use: true, ..small_buffers() });
    world.run_for(Duration::from_secs(5));
    world.event(input());
    assert!(!world.client.is_armed());
    assert_eq!(resumed(&mut world), 1);
    world.event(Event::Snoozed(MINUTE));
    assert_eq!(resumed(&mut world), 0, "paused");
    let mut world = self::world(6, small_buffers());
    world.run_for(Duration::from_secs(5));
    assert!(world.client.is_armed());
    // It was so long ago that nobody uses the host any more.
    world.event(Event::OwnerInput { ago: MINUTE * 4 });
    assert_eq!(resumed(&mut world), 1);
    world.event(input());
    assert!(!world.client.is_armed(), "all are stopped already");
    assert_eq!(resumed(&mut world), 0);
}
