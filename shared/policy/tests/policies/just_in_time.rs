//! Work fetch just in time (WF3): what is asked for, of whom, and what is left to others.

use fallow_domain::ResourceType::Cpu;
use fallow_domain::{Duration, PerType, ProjectId};
use fallow_policy::accounting::Debt;
use fallow_policy::fetch::just_in_time::{JustInTime, Occasion, WhyJustInTime};
use fallow_policy::fetch::{FetchDecision, FetchPriority, TypicalJob};
use fallow_policy::job_queue::JobQueue;

use crate::fetch_world::{Attached, FetchWorld, attached, is_asked};
use crate::world::{With, at_min, job};

const HOUR: Duration = Duration::from_hours(1);

/// A project whose jobs take so many hours on a CPU and have so many until their deadlines.
fn sends(id: u32, hours: i64, bound: i64) -> Attached {
    let mut project = attached(id, 100.0);
    let like = TypicalJob { running_time: HOUR * hours, latency_bound: HOUR * bound, instances: 1.0 };
    project.account.typical = PerType::from_fn(|kind| (kind == Cpu).then_some(like));
    project
}

fn owed(mut project: Attached, hours: f64) -> Attached {
    project.account.priority = FetchPriority::Debt(Debt::from_secs(hours * 3_600.0));
    project
}

/// One job of project 1 for each of so many CPUs, with so much left.
fn busy(cpus: u64, left: Duration) -> JobQueue {
    (1..=cpus).map(|id| job(id, 1, 100_000).left(left)).collect()
}

fn occasion(decision: &FetchDecision, id: u32) -> Option<Occasion> {
    let why = decision.of(ProjectId(id))?.why.as_ref()?;
    why.reason().map(|why: &WhyJustInTime| why.occasion)
}

fn seconds(decision: &FetchDecision, id: u32) -> f64 {
    decision.of(ProjectId(id)).map_or(0.0, |asked| asked.request.seconds[Cpu].get())
}

#[test]
fn nothing_is_asked_for_while_no_instance_idles_soon() {
    for (left, asks) in [(4 * 60, true), (6 * 60, false), (3_600, false)] {
        let queue = busy(2, Duration::from_secs(left));
        let world = FetchWorld::new(2, &[sends(1, 1, 48), sends(2, 1, 48)], &queue);
        assert_eq!(world.decision(&JustInTime).wants_work(), asks, "{left} s");
    }
}

#[test]
fn what_idles_is_asked_for_in_the_least_request_with_an_instance_for_each() {
    let queue = busy(1, HOUR);
    let world = FetchWorld::new(4, &[sends(1, 1, 48), owed(sends(2, 1, 48), 5.0)], &queue);
    let decision = world.decision(&JustInTime);
    assert!(!is_asked(&decision, 1) && is_asked(&decision, 2), "who is owed more is asked");
    let asked = decision.of(ProjectId(2)).unwrap();
    assert_eq!((seconds(&decision, 2), asked.request.instances[Cpu]), (1.0, 3.0));
    assert!(matches!(occasion(&decision, 2), Some(Occasion::Idle(idle)) if idle == 3.0));
    assert_eq!(decision.of(ProjectId(1)).unwrap().for_idle, asked.request);
}

#[test]
fn work_that_is_held_counts_against_what_a_project_is_owed() {
    // Six hours of work of the first are held; it is owed four hours more than the second.
    let queue = busy(3, HOUR * 2);
    let world = FetchWorld::new(4, &[owed(sends(1, 1, 48), 4.0), sends(2, 1, 48)], &queue);
    let decision = world.decision(&JustInTime);
    assert!(is_asked(&decision, 2) && !is_asked(&decision, 1), "{decision:?}");
}

#[test]
fn a_project_whose_jobs_cannot_be_in_time_is_not_asked_and_the_next_one_is() {
    let queue = JobQueue::default();
    // Of a host of which nothing is known as much as the whole window is possible.
    let world = FetchWorld::new(1, &[owed(sends(1, 11, 10), 9.0), sends(2, 9, 10)], &queue);
    assert!(is_asked(&world.decision(&JustInTime), 2));
    let world = FetchWorld::new(1, &[sends(1, 11, 10)], &queue);
    let decision = world.decision(&JustInTime);
    assert!(!decision.wants_work() && decision.check_by == world.now + Duration::from_mins(1));
}

#[test]
fn a_host_that_never_stood_idle_holds_nothing_ahead() {
    let queue = busy(1, Duration::from_mins(30));
    for (drought, asks) in [(0, false), (19, false), (20, false), (21, true), (600, true)] {
        let mut world = FetchWorld::new(1, &[sends(1, 1, 480)], &queue);
        world.droughts = PerType::cpu(Duration::from_mins(drought));
        // Half as long again as 20 minutes is covered by the half hour that is held.
        assert_eq!(world.decision(&JustInTime).wants_work(), asks, "{drought} min");
    }
}

#[test]
fn ahead_of_time_the_owners_buffer_is_the_most_and_half_a_job_is_asked_for() {
    let world_of = |held: Duration, buffer: Duration| {
        let queue = busy(1, held);
        let mut world = FetchWorld::new(1, &[sends(1, 2, 480)], &queue);
        world.droughts = PerType::cpu(HOUR * 10);
        world.buffer_min = buffer;
        let decision = world.decision(&JustInTime);
        decision.wants_work().then(|| (seconds(&decision, 1), occasion(&decision, 1)))
    };
    let (asked, occasion) = world_of(HOUR, HOUR * 3).unwrap();
    assert_eq!(asked, 3_600.0);
    assert!(matches!(occasion, Some(Occasion::Ahead { wanted, .. }) if wanted == HOUR * 3), "{occasion:?}");
    assert_eq!(world_of(HOUR * 4, HOUR * 3), None);
    let (_, occasion) = world_of(HOUR * 4, HOUR * 100).unwrap();
    assert!(matches!(occasion, Some(Occasion::Ahead { wanted, .. }) if wanted == HOUR * 15), "{occasion:?}");
}

#[test]
fn ahead_of_time_only_the_best_project_is_asked_and_only_for_what_is_surely_in_time() {
    // Sure are eight hours in ten. One hour is held, and a job of an hour comes before: that of the third
    // project, which has none waiting as the first has.
    for (takes, asks) in [(5, true), (6, true), (7, false)] {
        let queue = busy(1, HOUR);
        let best = owed(sends(2, takes, 10), 50.0);
        let holder = owed(sends(1, 1, 480), -50.0);
        let mut world = FetchWorld::new(1, &[holder, owed(sends(3, 1, 480), 2.0), best], &queue);
        world.droughts = PerType::cpu(HOUR * 2);
        let decision = world.decision(&JustInTime);
        assert_eq!(is_asked(&decision, 2), asks, "{takes} h");
        assert!(!is_asked(&decision, 3), "it is not its turn");
    }
}

#[test]
fn r1_13_between_contacts_work_for_the_interval_is_held_and_nothing_is_fetched_just_in_time() {
    let soon = busy(1, Duration::from_mins(2));
    let mut world = FetchWorld::new(1, &[sends(1, 1, 480)], &soon);
    world.connection_interval = HOUR * 12;
    let decision = world.decision(&JustInTime);
    let occasion = occasion(&decision, 1);
    assert!(matches!(occasion, Some(Occasion::Ahead { wanted, .. }) if wanted == HOUR * 12), "{occasion:?}");
}

#[test]
fn r1_13_at_a_contact_whoever_is_surely_in_time_is_asked_for_all_that_is_lacking_until_the_next() {
    let queue = busy(2, HOUR * 3);
    // Of the first, who is owed more, no job is in time: of its 20 hours eight are left before a contact.
    let projects = [owed(sends(1, 9, 20), 50.0), sends(2, 2, 480)];
    let mut world = FetchWorld::new(2, &projects, &queue);
    world.connection_interval = HOUR * 12;
    let decision = world.decision(&JustInTime);
    assert!(!is_asked(&decision, 1) && is_asked(&decision, 2), "{decision:?}");
    assert_eq!(seconds(&decision, 2), 2.0 * 9.0 * 3_600.0, "nine hours of two CPUs");
}

#[test]
fn r3_9_one_that_hung_and_one_without_a_share_come_last() {
    let queue = JobQueue::default();
    let mut hung = owed(sends(1, 1, 48), 100.0);
    hung.contact.hung = true;
    let mut shareless = owed(sends(2, 1, 48), 100.0);
    shareless.project.share = fallow_domain::Share::new(0.0).unwrap();
    let order = [sends(3, 1, 48), hung, shareless];
    for count in (1..=3).rev() {
        let world = FetchWorld::new(1, &order[3 - count..], &queue);
        let decision = world.decision(&JustInTime);
        assert!(is_asked(&decision, order[3 - count].project.id.0), "{count}");
    }
}

#[test]
fn r3_5_a_project_that_was_never_tried_is_asked_first_and_not_ahead_of_time() {
    let mut untried = attached(2, 100.0);
    untried.account.supplies = PerType::default();
    let queue = JobQueue::default();
    let world = FetchWorld::new(1, &[owed(sends(1, 1, 48), 100.0), untried], &queue);
    assert!(is_asked(&world.decision(&JustInTime), 2));
    let held = busy(1, HOUR);
    let mut world = FetchWorld::new(1, &[owed(sends(1, 1, 48), -100.0), untried], &held);
    world.droughts = PerType::cpu(HOUR * 5);
    assert!(!world.decision(&JustInTime).wants_work());
}

#[test]
fn r2_16_while_enough_is_held_nothing_is_looked_at_again_before_it_may_lack() {
    let queue = busy(2, HOUR * 10);
    let mut world = FetchWorld::new(2, &[sends(1, 1, 480)], &queue);
    world.droughts = PerType::cpu(HOUR * 2);
    let check_by = world.decision(&JustInTime).check_by;
    // Ten hours are held; two are to be, the whole buffer.
    assert!((at_min(8 * 60 - 1)..=at_min(8 * 60 + 1)).contains(&check_by), "{check_by:?}");
}
