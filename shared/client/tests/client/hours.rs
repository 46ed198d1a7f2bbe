//! Hours in which a host may compute (R6.4).

use fallow_client::Event;
use fallow_domain::agent_state::SuspendedBy;
use fallow_domain::{Duration, Hours, Instant, LocalTime, OwnerLimits, Preferences};

use crate::life::{document, small_buffers};
use crate::world::World;

const MINUTE: Duration = Duration::from_mins(1);

/// From so many minutes after an instant to so many, by a clock that shows UTC and this more.
fn between(start: Instant, from: i64, to: i64, ahead: Duration) -> Hours {
    let local = LocalTime { offset: ahead, ..LocalTime::UTC };
    let show = |minutes| local.show(start + Duration::from_mins(minutes));
    let (from, to) = (show(from), show(to));
    let (day, time) = from.split_once(' ').unwrap();
    format!("{day} {time}-{}", to.split_once(' ').unwrap().1).parse().unwrap()
}

/// A host with work that may compute in these hours, begun at a whole minute.
fn world(seed: u64, hours: impl FnOnce(Instant) -> Hours) -> World {
    let mut world = World::new(seed);
    world.add_project("a", 1_000, Duration::from_secs(30));
    let into = world.now.as_micros().rem_euclid(60_000_000);
    world.run_for(Duration::from_micros(60_000_000 - into));
    let preferences = Preferences { hours: hours(world.now), ..small_buffers() };
    world.event(Event::DocumentOffered(document(1, &[("a", 1.0)], preferences).into()));
    world
}

fn suspended_by(world: &World) -> Option<SuspendedBy> {
    world.client.host_view().suspended_by
}

#[test]
fn r6_4_a_host_computes_in_its_hours_and_rests_outside_of_them_whatever_happens_between() {
    let mut world = world(1, |now| between(now, 10, 40, Duration::ZERO));
    let start = world.now;
    world.run_for(MINUTE * 5);
    assert_eq!((world.computing(), suspended_by(&world)), (0, Some(SuspendedBy::Hours)));
    let until = LocalTime::UTC.show(start + MINUTE * 10);
    assert_eq!(world.client.host_view().hours_change, Some(until.clone()));
    assert!(
        world.notices().any(|text| text.contains("rests outside of its hours") && text.ends_with(&until))
    );
    world.run_until("it computes", MINUTE * 10, |world| world.computing() == 1);
    assert!((world.now.since(start) - MINUTE * 10).as_secs_f64() < 30.0, "{}", world.now.since(start));
    world.restart();
    world.run_until("it computes again", MINUTE, |world| world.computing() == 1);
    world.run_until("it rests", MINUTE * 40, |world| world.computing() == 0 && suspended_by(world).is_some());
    assert!((world.now.since(start) - MINUTE * 40).as_secs_f64().abs() < 2.0, "{}", world.now.since(start));
    world.restart();
    world.run_for(Duration::from_hours(8));
    assert_eq!((world.computing(), suspended_by(&world)), (0, Some(SuspendedBy::Hours)));
    // The next document says every hour.
    world.event(Event::DocumentOffered(document(2, &[("a", 1.0)], small_buffers()).into()));
    world.run_until("it computes", MINUTE * 10, |world| world.computing() == 1);
    assert_eq!((suspended_by(&world), world.client.host_view().hours_change), (None, None));
}

#[test]
fn r6_4_hours_follow_the_clock_on_the_wall_also_when_summer_begins_and_when_it_is_set() {
    let hour = Duration::from_hours(1);
    let mut world = world(2, |now| between(now, 60, 120, hour * 2));
    let start = world.now;
    // It shows two hours more than UTC for 90 minutes, and then one hour more.
    world.event(Event::LocalTime(LocalTime { offset: hour * 2, until: start + MINUTE * 90 }));
    world.run_for(MINUTE * 59);
    assert_eq!(suspended_by(&world), Some(SuspendedBy::Hours));
    world.run_for(MINUTE * 2);
    assert_eq!(suspended_by(&world), None);
    world.run_for(MINUTE * 29);
    world.event(Event::LocalTime(LocalTime { offset: hour, until: Instant::FAR_FUTURE }));
    world.run_for(MINUTE);
    // 90 minutes are the half hour before the hours begin again.
    assert_eq!(suspended_by(&world), Some(SuspendedBy::Hours));
    world.run_for(MINUTE * 30);
    assert_eq!(suspended_by(&world), None);
    // Somebody sets the clock: forward beyond the hours, and back to where they are not yet.
    world.jump(hour * 2);
    world.run_for(MINUTE);
    assert_eq!(suspended_by(&world), Some(SuspendedBy::Hours));
    world.jump(hour * -2);
    world.run_for(MINUTE);
    assert_eq!(suspended_by(&world), None);
    world.jump(MINUTE * -50);
    world.run_for(MINUTE);
    assert_eq!((suspended_by(&world), world.computing()), (Some(SuspendedBy::Hours), 0));
}

#[test]
fn r6_4_the_owners_word_holds_in_the_hours_too() {
    let mut world = world(3, |now| between(now, 10, 40, Duration::ZERO));
    world.event(Event::OwnerSuspended(true));
    world.run_for(MINUTE * 20);
    assert_eq!((world.computing(), suspended_by(&world)), (0, Some(SuspendedBy::Owner)));
    world.event(Event::OwnerSuspended(false));
    world.run_until("it computes", MINUTE * 10, |world| world.computing() == 1);
    world.run_for(MINUTE * 20);
    assert_eq!(suspended_by(&world), Some(SuspendedBy::Hours));
    // Nothing of the owner's opens them.
    assert_eq!(Preferences::default().tightened(&OwnerLimits::default()).hours, Hours::default());
}
