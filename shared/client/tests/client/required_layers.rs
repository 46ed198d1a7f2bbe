//! Layers of confinement that preferences require (R6.10).

use fallow_boinc::scheduler::SchedulerRequest;
use fallow_client::Event;
use fallow_domain::agent_state::SuspendedBy;
use fallow_domain::{Duration, Preferences, RequiredLayer};
use fallow_policy::confinement::{HostLayer, TaskLayers};
use fallow_preferences::Said;

use crate::life::document;
use crate::preferences::{owner, two_cpus, world};
use crate::world::World;

const MINUTE: Duration = Duration::from_mins(1);

fn layer(name: &str, off: Option<&str>) -> HostLayer {
    HostLayer { name: name.to_owned(), off: off.map(str::to_owned), is_of_all: true }
}

/// A host that has `calls` and not `files`.
fn seen() -> Event {
    Event::LayersSeen(vec![layer("files", Some("no Landlock")), layer("calls", None)])
}

fn required(names: &[&str]) -> Preferences {
    let required_layers = names.iter().map(|name| RequiredLayer::of_stored(name).unwrap()).collect();
    Preferences { required_layers, ..two_cpus() }
}

fn by_owner(names: &[&str]) -> Event {
    owner(Said { required_layers: Some(required(names).required_layers), ..Said::default() })
}

fn stand(world: &World) -> (usize, Option<SuspendedBy>) {
    (world.computing(), world.client.host_view().suspended_by)
}

const RESTS: (usize, Option<SuspendedBy>) = (0, Some(SuspendedBy::Confinement));

#[test]
fn r6_10_nothing_is_computed_while_a_layer_is_off_that_the_owner_requires_and_it_goes_on_by_itself() {
    let mut world = world(31, two_cpus());
    world.event(seen());
    world.event(by_owner(&["calls"]));
    assert_eq!(stand(&world), (2, None), "that one is on");
    world.event(by_owner(&["calls", "files"]));
    assert_eq!(stand(&world), RESTS);
    assert_eq!(world.client.host_view().lacks_layers.as_deref(), Some("files (no Landlock)"));
    assert!(world.notices().last().unwrap().contains("files (no Landlock)"));
    // What is said of longer rests goes before what passes, and the owner's own word before all.
    world.event(Event::OwnerInput { ago: Duration::ZERO });
    assert_eq!(stand(&world), RESTS);
    world.event(Event::OwnerSuspended(true));
    assert_eq!(stand(&world), (0, Some(SuspendedBy::Owner)));
    world.event(Event::OwnerSuspended(false));
    world.event(owner(Said::default()));
    assert_eq!((stand(&world), world.client.host_view().lacks_layers), ((2, None), None));
}

#[test]
fn r6_10_a_host_that_lacks_a_required_layer_asks_no_project_for_work() {
    let mut world = world(32, two_cpus());
    world.event(seen());
    world.event(by_owner(&["all"]));
    assert_eq!(stand(&world), RESTS);
    let before = world.requests.len();
    world.run_for(Duration::from_hours(24));
    let asks = |text: &&String| SchedulerRequest::parse(text.as_bytes()).unwrap().cpu_req_secs > 0.0;
    assert_eq!(world.requests[before..].iter().filter(asks).count(), 0, "{:?}", world.requests.last());
    world.event(owner(Said::default()));
    world.run_for(Duration::from_hours(24));
    assert!(world.requests[before..].iter().any(|text| asks(&text)));
}

#[test]
fn r6_10_what_a_document_requires_and_what_the_owner_requires_hold_beside_each_other() {
    let mut world = world(33, two_cpus());
    world.event(seen());
    world.event(Event::DocumentOffered(document(2, &[("a", 1.0)], required(&["files"])).into()));
    assert_eq!(stand(&world), RESTS);
    // The owner cannot take it back, only the coordinator.
    world.event(by_owner(&[]));
    assert_eq!(stand(&world), RESTS);
    world.event(by_owner(&["calls"]));
    let in_force = world.client.preferences_in_force();
    assert_eq!(RequiredLayer::list(&in_force.values.fleet.required_layers), "calls, files");
    world.event(Event::DocumentOffered(document(3, &[("a", 1.0)], two_cpus()).into()));
    assert_eq!(stand(&world), (2, None));
    // One that only a newer version knows: this host cannot know whether it has it.
    world.event(Event::DocumentOffered(document(4, &[("a", 1.0)], required(&["newer"])).into()));
    assert_eq!(stand(&world), RESTS);
    assert!(world.client.host_view().lacks_layers.unwrap().contains("does not know it"));
}

#[test]
fn r6_10_after_a_start_nothing_is_computed_before_it_was_looked_which_layers_there_are() {
    let mut world = world(34, two_cpus());
    world.event(seen());
    world.event(Event::DocumentOffered(document(2, &[("a", 1.0)], required(&["calls"])).into()));
    assert_eq!(stand(&world), (2, None));
    world.restart();
    world.run_for(MINUTE);
    assert_eq!(stand(&world), RESTS);
    world.event(seen());
    world.run_until("it computes", MINUTE, |world| stand(world) == (2, None));
}

#[test]
fn r6_10_tasks_that_were_started_without_what_is_required_leave_and_start_again_with_it() {
    let mut world = World::new(35);
    world.add_project("a", 1_000, Duration::from_mins(10));
    world.event(Event::LayersSeen(vec![layer("tmp", None), layer("groups", None)]));
    world.without = TaskLayers { tmp: true, groups: false };
    world.event(Event::DocumentOffered(document(1, &[("a", 1.0)], two_cpus()).into()));
    world.run_until("it computes", MINUTE * 10, |world| world.computing() == 2);
    let starts = |world: &World| (world.start_times.len(), world.required());
    assert_eq!(starts(&world), (2, TaskLayers::default()));
    world.event(by_owner(&["groups"]));
    world.run_for(MINUTE);
    assert_eq!((starts(&world).0, world.computing()), (2, 2), "that one they have");
    world.without = TaskLayers::default();
    world.event(by_owner(&["all"]));
    world.run_until("they are back", MINUTE, |world| world.computing() == 2);
    assert_eq!(starts(&world), (4, TaskLayers { tmp: true, groups: false }));
    // Lost for a while and there again: what was begun meanwhile is not kept.
    world.without = TaskLayers { tmp: true, groups: false };
    world.event(owner(Said::default()));
    world.run_until("others run", MINUTE * 20, |world| world.start_times.len() == 6);
    world.event(Event::LayersSeen(vec![layer("tmp", Some("none left")), layer("groups", None)]));
    world.event(by_owner(&["tmp"]));
    world.run_for(MINUTE);
    assert_eq!(stand(&world), RESTS);
    // They rest as all tasks do, and are not told to leave for it: they could not start again.
    let told =
        |world: &World| world.log.iter().filter(|line| line.contains("without a layer of conf")).count();
    assert_eq!(told(&world), 2, "the first two");
    world.without = TaskLayers::default();
    world.event(Event::LayersSeen(vec![layer("tmp", None), layer("groups", None)]));
    world.run_until("they are back", MINUTE, |world| world.computing() == 2);
    assert_eq!(starts(&world), (8, TaskLayers { tmp: true, groups: false }));
}
