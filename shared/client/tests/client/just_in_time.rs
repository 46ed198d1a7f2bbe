//! A client that fetches work just in time (WF3).

use fallow_boinc::scheduler::{Message, PART_REFUSAL, Priority, SchedulerReply};
use fallow_client::{ClientConfig, Event};
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

/// Every other request brings what it asks for; to those between the project says that the host has its part.
fn in_parts(reply: &mut SchedulerReply, before: usize) {
    if before % 2 == 1 {
        reply.results.clear();
        let text = format!("{PART_REFUSAL}: it may hold 1 of the 9 jobs that wait, as 9 hosts ask for work");
        reply.messages.push(Message { priority: Priority::Low, text });
    }
}

#[test]
fn r3_7_who_has_its_part_of_a_batch_comes_again_when_a_job_of_it_ends_and_does_not_idle() {
    for policy in ["WF2", "WF3"] {
        let mut world = world(204, policy);
        world.add_project("a", 1_000, Duration::from_mins(4));
        world.alter = Some(in_parts);
        world.event(Event::DocumentOffered(document(1, &[("a", 1.0)], small_buffers())));
        world.run_until("a CPU computes", Duration::from_mins(30), |w| w.computing() > 0);
        let mut idle = 0;
        for _ in 0..6 * 60 {
            world.run_for(Duration::from_mins(1));
            idle += usize::from(world.computing() == 0);
        }
        assert!(idle <= 18, "{policy}: idle in {idle} of 360 minutes");
    }
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
    world.run_for(Duration::from_hours(30));
    assert_eq!(world.stored("on_time"), 1);
    world.restart();
    world.run_for(Duration::from_hours(2));
}
