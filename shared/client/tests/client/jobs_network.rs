//! Which jobs have the network (R6.10).

use std::collections::BTreeSet;

use fallow_boinc::scheduler::SchedulerReply;
use fallow_client::{ClientConfig, Event};
use fallow_domain::{Duration, MasterUrl, Preferences};
use fallow_preferences::Said;

use crate::life::document;
use crate::preferences::{owner, two_cpus, url};
use crate::world::{World, version};

const MINUTE: Duration = Duration::from_mins(1);

/// A host whose two tasks have just begun, of an application that asks for the network or does not.
fn world(asks: bool, allowed: bool, preferences: Preferences) -> World {
    let mut world = World::with(ClientConfig { jobs_network: allowed, ..ClientConfig::new(41, version()) });
    world.add_project("a", 1_000, Duration::from_mins(10));
    let ask: fn(&mut SchedulerReply, usize) =
        |reply, _| reply.app_versions.iter_mut().for_each(|version| version.needs_network = true);
    world.alter = asks.then_some(ask);
    world.event(Event::DocumentOffered(document(1, &[("a", 1.0)], preferences).into()));
    world.run_until("it computes", MINUTE * 10, |world| world.computing() == 2);
    world
}

fn projects(names: &[&str]) -> Option<BTreeSet<MasterUrl>> {
    Some(names.iter().map(|name| url(name)).collect())
}

fn of(jobs_network: Option<BTreeSet<MasterUrl>>) -> Preferences {
    Preferences { jobs_network, ..two_cpus() }
}

#[test]
fn r6_10_a_job_has_the_network_only_if_its_application_asks_the_owner_allows_it_and_preferences_do() {
    for (asks, allowed, preferences, have) in [
        (true, true, None, 2),
        (true, true, projects(&["a", "b"]), 2),
        (true, true, projects(&["b"]), 0),
        (true, true, projects(&[]), 0),
        (false, true, None, 0),
        (true, false, None, 0),
        // No document widens what the owner does not allow.
        (true, false, projects(&["a"]), 0),
    ] {
        let case = format!("{asks} {allowed} {preferences:?}");
        assert_eq!(world(asks, allowed, of(preferences)).networked(), have, "{case}");
    }
}

#[test]
fn r6_10_when_the_network_is_taken_back_tasks_that_have_it_leave_and_go_on_without() {
    let mut world = world(true, true, of(None));
    let by_owner = |names: &[&str]| owner(Said { jobs_network: Some(projects(names)), ..Said::default() });
    world.event(by_owner(&["a"]));
    assert_eq!((world.start_times.len(), world.networked()), (2, 2), "nothing is taken from it");
    world.event(by_owner(&["b"]));
    world.run_until("they are back", MINUTE, |world| world.computing() == 2);
    assert_eq!((world.start_times.len(), world.networked()), (4, 0));
    // Those that have none lose nothing by less.
    world.event(by_owner(&[]));
    world.run_for(MINUTE);
    assert_eq!((world.start_times.len(), world.computing()), (4, 2));
    // Given back, it is there from the next start on; and what both name is what may have it.
    world.event(owner(Said::default()));
    assert_eq!((world.start_times.len(), world.networked()), (4, 0));
    world.run_until("others have it", MINUTE * 20, |world| world.networked() == 2);
    world.event(by_owner(&["a", "b"]));
    assert_eq!(world.networked(), 2);
    let next = document(2, &[("a", 1.0)], of(projects(&["b", "c"])));
    world.event(Event::DocumentOffered(next.into()));
    world.run_until("they are back", MINUTE, |world| world.computing() == 2);
    assert_eq!(world.networked(), 0);
    let in_force = &world.client.preferences_in_force().values.fleet.jobs_network;
    assert_eq!(*in_force, projects(&["b"]));
}
