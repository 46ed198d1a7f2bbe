//! When it is looked what goes on around the tasks, and that no job starts on what was seen before (R6.4).

use std::num::NonZeroU32;

use fallow_client::{ClientConfig, Event, Surroundings};
use fallow_domain::Duration;
use fallow_domain::agent_state::SuspendedBy;
use fallow_policy::looks::LookPace;
use fallow_preferences::Said;

use crate::life::document;
use crate::preferences::{owner, two_cpus, url};
use crate::world::{World, attach_unseen, version};

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_mins(1);

/// A host whose shell answers what it is asked.
fn host(seed: u64) -> World {
    let config = ClientConfig { answers_looks: true, ..ClientConfig::new(seed, version()) };
    let mut world = World::with(config);
    world.add_project("a", 1_000, Duration::from_mins(10));
    world
}

/// The shell has looked, and answers a question.
fn answer(world: &mut World, number: u64, on_battery: bool) {
    world.event(Event::SurroundingsSeen(Surroundings { number, on_battery, ..Surroundings::default() }));
}

fn pace(world: &World) -> LookPace {
    world.client.looks_for().pace
}

fn asked(world: &World) -> u64 {
    world.client.looks_for().number
}

/// The look before the first request is answered, and a job comes.
fn job_comes(world: &mut World) {
    assert_eq!(pace(world), LookPace::Seldom);
    let number = asked(world);
    answer(world, number, false);
    world.run_until("a job is here", MINUTE * 10, |world| pace(world) == LookPace::Often);
}

fn rests_on_battery(world: &World) -> bool {
    world.client.host_view().suspended_by == Some(SuspendedBy::Battery)
}

#[test]
fn r6_4_no_job_starts_on_the_battery_because_the_last_look_was_old() {
    let mut world = host(61);
    world.run_for(MINUTE);
    assert_eq!(pace(&world), LookPace::Never, "no job can come");
    assert!(!world.client.looks_for().battery);
    world.event(attach_unseen(url("a"), "key", None));
    assert_eq!(pace(&world), LookPace::Seldom, "work may be asked for");
    assert!(world.client.looks_for().battery);
    let before = asked(&world);
    world.run_for(SECOND * 30);
    assert!(world.client.task_views().is_empty(), "nothing is asked for before it was looked");
    answer(&mut world, before, false);
    world.run_until("a job is here", MINUTE * 10, |world| !world.client.task_views().is_empty());
    // Not for so long that it is waited for no longer.
    world.run_for(SECOND * 30);
    assert_eq!(pace(&world), LookPace::Often);
    assert!(asked(&world) > before);
    // What is known is from before: it was on mains then.
    assert!(world.start_times.is_empty());
    answer(&mut world, before, false);
    world.run_for(SECOND * 5);
    assert!(world.start_times.is_empty(), "that look was made before there were jobs");
    let now = asked(&world);
    answer(&mut world, now, true);
    world.run_for(SECOND * 5);
    assert!(world.start_times.is_empty() && rests_on_battery(&world));
    assert_eq!(pace(&world), LookPace::Often, "it is looked when that is over");
    answer(&mut world, now, false);
    world.run_until("it computes", MINUTE, |world| world.computing() > 0);
}

#[test]
fn r6_4_while_computing_is_paused_nothing_is_looked_at_and_no_job_goes_on_before_the_first_look_after_it() {
    let mut world = host(62);
    world.event(Event::DocumentOffered(document(1, &[("a", 1.0)], two_cpus()).into()));
    job_comes(&mut world);
    let first = asked(&world);
    answer(&mut world, first, false);
    world.run_until("it computes", MINUTE * 10, |world| world.computing() == 2);
    // A task that runs does not wait for looks: they go on.
    world.run_for(MINUTE * 5);
    assert_eq!((asked(&world), world.computing()), (first, 2));
    world.event(Event::OwnerSuspended(true));
    world.run_for(SECOND * 2);
    assert_eq!((world.computing(), pace(&world)), (0, LookPace::Never));
    let awaits = |world: &World| world.client.host_view().awaits_look;
    assert!(!world.client.looks_for().battery && !awaits(&world));
    world.event(Event::OwnerSuspended(false));
    world.run_for(SECOND * 5);
    assert_eq!((world.computing(), pace(&world)), (0, LookPace::Often));
    let again = asked(&world);
    // Why nothing computes can be seen, although nobody suspends it.
    assert!(again > first && awaits(&world) && world.client.host_view().suspended_by.is_none());
    answer(&mut world, again, true);
    world.run_for(SECOND * 5);
    assert!(world.computing() == 0 && rests_on_battery(&world) && !awaits(&world));
    answer(&mut world, again, false);
    world.run_until("it computes", MINUTE, |world| world.computing() == 2);
}

/// What is told when it is.
const OVER: &str = "what computing rested for is over";

#[test]
fn r6_4_that_a_host_is_off_its_battery_is_not_said_while_nobody_looks() {
    let mut world = host(63);
    world.event(Event::DocumentOffered(document(1, &[("a", 1.0)], two_cpus()).into()));
    job_comes(&mut world);
    let number = asked(&world);
    answer(&mut world, number, true);
    assert_eq!((told(&world, "runs on its battery"), told(&world, OVER)), (1, 0));
    world.event(Event::OwnerSuspended(true));
    // Nobody looks any more, and so nothing is seen.
    answer(&mut world, number, false);
    world.run_for(MINUTE);
    assert_eq!(told(&world, OVER), 0);
    world.event(Event::OwnerSuspended(false));
    let number = asked(&world);
    answer(&mut world, number, true);
    world.run_for(MINUTE);
    assert_eq!((told(&world, "runs on its battery"), told(&world, OVER)), (1, 0), "it was said before");
    answer(&mut world, number, false);
    assert_eq!(told(&world, OVER), 1);
}

/// What is told when a look did not come.
const IN_VAIN: &str = "it was not seen within";

fn told(world: &World, what: &str) -> usize {
    world.notices().filter(|text| text.contains(what)).count()
}

#[test]
fn r6_4_a_look_that_never_ends_keeps_no_host_from_computing_and_is_told() {
    let mut world = host(64);
    world.event(Event::DocumentOffered(document(1, &[("a", 1.0)], two_cpus()).into()));
    job_comes(&mut world);
    // Nothing else happens by then but that its time is over.
    world.run_for(SECOND * 50);
    assert!(world.start_times.is_empty() && world.client.host_view().awaits_look);
    assert_eq!(told(&world, IN_VAIN), 0);
    world.run_until("it computes", SECOND * 20, |world| world.computing() > 0);
    assert_eq!((told(&world, IN_VAIN), world.client.host_view().awaits_look), (1, false));
    // It counts once it comes.
    let number = asked(&world);
    answer(&mut world, number, true);
    assert!(world.computing() == 0 && rests_on_battery(&world));
    // The next one has its own time, and is told of anew.
    world.event(Event::OwnerSuspended(true));
    answer(&mut world, number, false);
    world.event(Event::OwnerSuspended(false));
    world.run_for(SECOND * 50);
    assert_eq!((world.computing(), told(&world, IN_VAIN)), (0, 1));
    world.run_until("it computes again", SECOND * 20, |world| world.computing() > 0);
    assert_eq!(told(&world, IN_VAIN), 2);
}

#[test]
fn r6_4_a_battery_that_was_too_hot_has_not_cooled_because_nobody_looked_meanwhile() {
    let mut world = host(65);
    world.event(Event::DocumentOffered(document(1, &[("a", 1.0)], two_cpus()).into()));
    let most = Some(NonZeroU32::new(45));
    world.event(owner(Said { battery_temperature_max: most, ..Said::default() }));
    job_comes(&mut world);
    let seen = |world: &mut World, battery_temperature: Option<u32>| {
        let number = asked(world);
        world.event(Event::SurroundingsSeen(Surroundings {
            number,
            battery_temperature,
            ..Surroundings::default()
        }));
    };
    let pause = |world: &mut World| {
        world.event(Event::OwnerSuspended(true));
        seen(world, None);
        world.run_for(SECOND * 5);
        world.event(Event::OwnerSuspended(false));
    };
    seen(&mut world, Some(46));
    assert!(world.computing() == 0 && rests_on_battery(&world));
    pause(&mut world);
    seen(&mut world, Some(43));
    world.run_for(SECOND * 5);
    assert!(world.computing() == 0 && rests_on_battery(&world), "it has not come to 40 yet");
    pause(&mut world);
    seen(&mut world, Some(40));
    world.run_until("it computes", MINUTE, |world| world.computing() > 0);
    // One that had cooled may be as warm as is allowed.
    pause(&mut world);
    seen(&mut world, Some(43));
    world.run_until("it goes on", MINUTE, |world| world.computing() > 0);
    // One that tells it no more, although it is looked, keeps nobody.
    seen(&mut world, Some(46));
    assert!(rests_on_battery(&world));
    pause(&mut world);
    seen(&mut world, None);
    world.run_until("it goes on without", MINUTE, |world| world.computing() > 0);
}

#[test]
fn r6_4_a_look_that_never_ends_keeps_no_host_from_computing_when_its_hours_begin() {
    let mut world = host(66);
    world.event(Event::DocumentOffered(document(1, &[("a", 1.0)], two_cpus()).into()));
    job_comes(&mut world);
    let number = asked(&world);
    answer(&mut world, number, false);
    world.run_until("it computes", MINUTE * 10, |world| world.computing() > 0);
    // The world begins on a Friday at eight.
    let hours = "fri 08:30-18:00".parse().unwrap();
    world.event(owner(Said { hours: Some(hours), ..Said::default() }));
    world.run_for(SECOND * 2);
    assert_eq!((world.computing(), pace(&world)), (0, LookPace::Never));
    world.run_until("its hours", MINUTE * 31, |world| world.client.awaits_look());
    assert_eq!((world.computing(), told(&world, IN_VAIN)), (0, 0));
    world.run_until("it computes again", SECOND * 70, |world| world.computing() > 0);
    assert_eq!(told(&world, IN_VAIN), 1);
}

#[test]
fn r6_4_a_host_without_jobs_asks_for_none_on_its_battery_because_nobody_looked_while_it_rested() {
    let mut world = host(67);
    world.event(attach_unseen(url("a"), "key", None));
    let number = asked(&world);
    answer(&mut world, number, true);
    assert_eq!((told(&world, "runs on its battery"), rests_on_battery(&world)), (1, true));
    for _ in 0..3 {
        world.event(Event::OwnerSuspended(true));
        assert_eq!(pace(&world), LookPace::Never);
        // Nothing is seen, for nobody looks.
        let number = asked(&world);
        answer(&mut world, number, false);
        world.run_for(SECOND * 5);
        world.event(Event::OwnerSuspended(false));
        world.run_for(SECOND * 5);
        let number = asked(&world);
        answer(&mut world, number, true);
        world.run_for(SECOND * 5);
    }
    assert!(world.client.task_views().is_empty() && rests_on_battery(&world));
    assert_eq!((told(&world, "runs on its battery"), told(&world, OVER)), (1, 0));
    let number = asked(&world);
    answer(&mut world, number, false);
    assert_eq!(told(&world, OVER), 1);
    world.run_until("a job is here", MINUTE * 10, |world| !world.client.task_views().is_empty());
}
