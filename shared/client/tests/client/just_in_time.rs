//! A client that fetches work just in time (WF3).

use fallow_boinc::scheduler::{Message, Priority, SchedulerRequest};
use fallow_client::{Client, ClientConfig, Event};
use fallow_domain::{Duration, Preferences};

use crate::life::{document, small_buffers};
use crate::review::both_cpus;
use crate::world::{World, version};

fn world(seed: u64, policy: &str) -> World {
    let composition = policy.parse().unwrap();
    World::of_two_alike(ClientConfig { composition, ..ClientConfig::new(seed, version()) })
}

/// Calls of a day to a server whose jobs would all be late here.
fn calls_to_one_that_refuses(policy: &str) -> usize {
    let mut world = world(201, policy);
    world.add_project("a", 0, Duration::from_secs(30));
    world.alter = Some(|reply, _| {
        let text = "Tasks won't finish in time: BOINC runs 80.0% of the time".to_owned();
        reply.messages.push(Message { priority: Priority::Low, text });
    });
    world.event(Event::DocumentOffered(document(1, &[("a", 1.0)], small_buffers())));
    world.run_for(Duration::from_hours(24));
    world.calls("a").len()
}

#[test]
fn r3_7_whose_jobs_would_be_late_is_asked_every_ten_minutes_and_never_more_seldom() {
    let calls = calls_to_one_that_refuses("WF3");
    assert!((100..=150).contains(&calls), "{calls} calls in a day");
    let calls = calls_to_one_that_refuses("WF2");
    assert!(calls < 20, "{calls} calls in a day: as one that has no work");
}

#[test]
fn a_job_for_each_cpu_is_held_and_the_next_comes_when_one_is_about_to_end() {
    let mut world = world(202, "WF3");
    world.add_project("a", 1_000, Duration::from_hours(1));
    let buffer = Duration::from_hours(12);
    let large = Preferences { buffer_min: buffer, buffer_additional: buffer, ..both_cpus() };
    world.event(Event::DocumentOffered(document(1, &[("a", 1.0)], large)));
    world.run_until("both CPUs compute", Duration::from_mins(30), |w| w.computing() == 2);
    let (mut most, mut idle) = (0, 0);
    for _ in 0..12 * 60 {
        world.run_for(Duration::from_mins(1));
        most = most.max(
            world.client.task_views().iter().filter(|task| task.cpu_time < Duration::from_hours(1)).count(),
        );
        idle += usize::from(world.computing() < 2);
    }
    assert!(most <= 4, "{most} jobs held");
    assert!(idle <= 3, "a CPU stood idle in {idle} of 720 minutes");
    assert!(world.acknowledged("a") >= 20);
}

#[test]
fn r1_12_what_was_learned_of_a_hosts_hours_survives_a_restart() {
    let mut world = world(203, "WF3");
    world.add_project("a", 10, Duration::from_mins(10));
    world.event(Event::DocumentOffered(document(1, &[("a", 1.0)], small_buffers())));
    for _ in 0..4 {
        world.run_for(Duration::from_hours(8));
        world.sleep(Duration::from_hours(16));
    }
    world.run_for(Duration::from_hours(1));
    let told = |client: &Client| {
        let mut request = SchedulerRequest::default();
        client.tell_on_time(&mut request);
        let table = request.time_stats.fallow_on_time.unwrap();
        table.rows().iter().map(|row| (row.length, row.possible)).collect::<Vec<_>>()
    };
    let before = told(&world.client);
    world.restart();
    for ((length, before), (_, after)) in before.into_iter().zip(told(&world.client)) {
        // The last minutes may not be stored yet.
        let differ = (before - after).as_secs_f64().abs();
        assert!(differ <= length.as_secs_f64() / 200.0, "of {length} {before} before, {after} after");
    }
}
