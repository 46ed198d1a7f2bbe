//! A client that fetches work just in time (WF3).

use fallow_boinc::scheduler::{Message, PART_REFUSAL, Priority, SchedulerReply, SchedulerRequest};
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
    world.event(Event::DocumentOffered(document(1, &[("a", 1.0)], small_buffers()).into()));
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
        world.event(Event::DocumentOffered(document(1, &[("a", 1.0)], small_buffers()).into()));
        world.run_until("a CPU computes", Duration::from_mins(30), |w| w.computing() > 0);
        let mut idle = 0;
        for _ in 0..6 * 60 {
            world.run_for(Duration::from_mins(1));
            idle += usize::from(world.computing() == 0);
        }
        assert!(idle <= 18, "{policy}: idle in {idle} of 360 minutes");
    }
}

/// Else it would be asked every ten minutes, and be owed more and more.
#[test]
fn r6_10_a_project_that_gives_a_part_to_a_host_that_has_none_of_its_jobs_is_as_one_without_work() {
    for policy in ["WF2", "WF3"] {
        let mut world = world(208, policy);
        world.add_project("a", 1_000, Duration::from_mins(4));
        world.alter = Some(|reply, _| in_parts(reply, 1));
        world.event(Event::DocumentOffered(document(1, &[("a", 1.0)], small_buffers()).into()));
        world.run_for(Duration::from_hours(24));
        let calls = world.calls("a").len();
        assert!(calls < 20, "{policy}: {calls} calls in a day");
    }
}

#[test]
fn a_job_for_each_cpu_is_held_and_the_next_comes_when_one_is_about_to_end() {
    let mut world = world(202, "WF3");
    world.add_project("a", 1_000, Duration::from_hours(1));
    let buffer = Duration::from_hours(12);
    let large = Preferences { buffer_min: buffer, buffer_additional: buffer, ..both_cpus() };
    world.event(Event::DocumentOffered(document(1, &[("a", 1.0)], large).into()));
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
    world.event(Event::DocumentOffered(document(1, &[("a", 1.0)], small_buffers()).into()));
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

fn refuses_as_late(reply: &mut SchedulerReply, _: usize) {
    reply.results.clear();
    let text = "Tasks won't finish in time: BOINC runs 80.0% of the time".to_owned();
    reply.messages.push(Message { priority: Priority::Low, text });
}

/// Jobs of an hour that are held half a day after six hours in which something happened, by a client that
/// follows WF3 from then on.
fn held_after(happens: impl Fn(&mut World), policy: &str) -> usize {
    let composition = policy.parse().unwrap();
    let mut world = World::with(ClientConfig { composition, ..ClientConfig::new(206, version()) });
    world.add_project("a", 10_000, Duration::from_hours(1));
    let buffer = Duration::from_hours(4);
    let large = Preferences { buffer_min: buffer, buffer_additional: buffer, ..both_cpus() };
    world.event(Event::DocumentOffered(document(1, &[("a", 1.0)], large).into()));
    world.run_for(Duration::from_hours(2));
    happens(&mut world);
    world.run_for(Duration::from_hours(6));
    (world.projects.get_mut("a").unwrap().down, world.alter) = (false, None);
    world.run_for(Duration::from_hours(4));
    world.config.composition = "WF3".parse().unwrap();
    world.restart();
    world.run_for(Duration::from_hours(12));
    world.client.task_views().iter().filter(|task| task.cpu_time < Duration::from_hours(1)).count()
}

#[test]
fn r3_2_work_is_held_against_droughts_that_were_learned_under_any_policy_and_late_refusals_are_none() {
    let down = |world: &mut World| world.projects.get_mut("a").unwrap().down = true;
    let late = |world: &mut World| world.alter = Some(refuses_as_late);
    for policy in ["WF2", "WF3"] {
        let held = [held_after(|_| {}, policy), held_after(late, policy), held_after(down, policy)];
        assert!(held[0] <= 4 && held[1] <= 4 && held[2] >= 8, "{policy}: {held:?}");
    }
}

/// A contact at which nothing is wanted is none in which there was no chance.
#[test]
fn r1_13_time_between_contacts_is_no_drought() {
    let composition = "WF3".parse().unwrap();
    let mut world = World::with(ClientConfig { composition, ..ClientConfig::new(207, version()) });
    world.add_project("a", 1_000, Duration::from_hours(10));
    let (buffer, interval) = (Duration::from_hours(12), Duration::from_mins(10));
    let preferences = Preferences { buffer_min: buffer, connection_interval: interval, ..both_cpus() };
    world.event(Event::DocumentOffered(document(1, &[("a", 1.0)], preferences).into()));
    world.run_for(Duration::from_hours(35));
    let held = world.client.task_views().len();
    assert!(held <= 4, "{held} jobs of ten hours are held against ten minutes");
}
