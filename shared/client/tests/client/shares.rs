//! What became of shares as a user sees them (R5.35), and of time spent for nothing (R5.31).

use fallow_boinc::scheduler::{Message, Priority, SchedulerReply};
use fallow_client::{ClientConfig, Event, Phase};
use fallow_domain::{Duration, Fraction};

use crate::life::{document, small_buffers};
use crate::world::{World, version};

/// Share violation and share deviation of five hours in which the second of two projects with equal shares
/// has no jobs to send, or is down, or changes its replies.
fn beside_one_without_jobs(
    policy: &str,
    down: bool,
    alter: Option<fn(&mut SchedulerReply, usize)>,
) -> [f64; 2] {
    let composition = policy.parse().unwrap();
    let mut world = World::with(ClientConfig { composition, ..ClientConfig::new(301, version()) });
    world.add_project("a", 100_000, Duration::from_mins(20));
    world.add_project("b", 0, Duration::from_mins(20));
    world.projects.get_mut("b").unwrap().down = down;
    world.alter = alter;
    world.event(Event::DocumentOffered(document(1, &[("a", 50.0), ("b", 50.0)], small_buffers()).into()));
    world.run_for(Duration::from_hours(5));
    let figures = &world.client.host_view().figures[1];
    [figures.share_violation, figures.share_deviation].map(|figure| figure.map_or(f64::NAN, Fraction::get))
}

fn refuses(reply: &mut SchedulerReply, _: usize) {
    let text = "Tasks won't finish in time: BOINC runs 80.0% of the time".to_owned();
    reply.messages.push(Message { priority: Priority::Low, text });
}

fn supports_nothing(reply: &mut SchedulerReply, _: usize) {
    if reply.results.is_empty() {
        reply.no_rsc_apps.push("CPU".to_owned());
    }
}

#[test]
fn r5_35_a_project_whose_jobs_would_be_late_is_owed_its_half_whatever_the_policies_make_of_that() {
    for policy in ["WF1", "WF2", "WF3"] {
        let [violation, deviation] = beside_one_without_jobs(policy, false, Some(refuses));
        assert!(violation < 0.01, "{policy}: {violation}");
        assert!((deviation - 0.5).abs() < 0.01, "{policy}: {deviation}");
    }
}

#[test]
fn r5_35_a_project_that_is_down_or_says_that_it_has_nothing_is_owed_nothing_meanwhile() {
    let nothing: Option<fn(&mut SchedulerReply, usize)> = Some(supports_nothing);
    for (down, alter) in [(false, None), (false, nothing), (true, None)] {
        let [violation, deviation] = beside_one_without_jobs("WF2", down, alter);
        assert!(violation < 0.01, "{violation}");
        // The seconds in which it is asked again.
        assert!(deviation < 0.05, "down {down}, altered {}: {deviation}", alter.is_some());
    }
}

/// The waste of a host with one job that is under way when its project does something about it.
fn waste_after(then: impl Fn(&mut World)) -> Option<f64> {
    let mut world = World::new(302);
    world.add_project("a", 1, Duration::from_mins(30));
    world.event(Event::DocumentOffered(document(1, &[("a", 1.0)], small_buffers()).into()));
    let computes = |w: &World| w.client.task_views().iter().any(|task| task.phase == Phase::Running);
    world.run_until("it computes", Duration::from_mins(10), computes);
    world.run_for(Duration::from_mins(5));
    then(&mut world);
    world.run_for(Duration::from_hours(3));
    world.client.host_view().figures[2].waste.map(Fraction::get)
}

#[test]
fn r5_31_what_a_job_used_that_is_given_up_after_it_was_started_is_waste() {
    assert_eq!(waste_after(|_| ()), Some(0.0));
    let aborted = waste_after(|world| {
        world.alter = Some(|reply, _| reply.result_aborts.push("a_0_0".to_owned()));
        let url = world.view("a").url;
        world.event(Event::ContactRequested { url, by: fallow_client::RequestedBy::Owner });
    });
    assert_eq!(aborted, Some(1.0), "by its project");
    let detached = waste_after(|world| {
        let url = world.view("a").url;
        world.event(Event::Detach { url });
    });
    assert_eq!(detached, Some(1.0), "with its project");
    let unreported = waste_after(|world| {
        world.projects.get_mut("a").unwrap().down = true;
        let waits = |w: &World| w.client.task_views().iter().any(|task| task.phase == Phase::ReadyToReport);
        world.run_until("it is to be reported", Duration::from_hours(1), waits);
        let url = world.view("a").url;
        world.event(Event::Detach { url });
        assert_eq!(world.client.totals().jobs_success, 0);
    });
    assert_eq!(unreported, Some(1.0), "finished, with its project before that heard of it");
}

#[test]
fn r5_31_a_job_that_failed_after_its_deadline_is_waste_as_one_that_was_done_then() {
    let late = waste_after(|world| {
        world.exits_at_once = true;
        world.jump(Duration::from_hours(8 * 24));
    });
    assert_eq!(late, Some(1.0));
}
