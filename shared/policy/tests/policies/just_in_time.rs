//! Work fetch just in time (WF3): what is asked for, of whom, and what is left to others.

use fallow_domain::ResourceType::{Cpu, Nvidia};
use fallow_domain::{Duration, PerType, ProjectId};
use fallow_policy::accounting::Debt;
use fallow_policy::fetch::just_in_time::{JustInTime, Occasion, WhyJustInTime};
use fallow_policy::fetch::shortfall::Shortfall;
use fallow_policy::fetch::{FetchDecision, FetchPriority, TypicalJob};
use fallow_policy::job_queue::{JobQueue, RunState};

use crate::fetch_world::{Attached, FetchWorld, attached, is_asked};
use crate::world::{With, at_min, job};

const HOUR: Duration = Duration::from_hours(1);

/// A project whose jobs take so many hours on a CPU and have so many until their deadlines.
fn sends(id: u32, hours: i64, bound: i64) -> Attached {
    let mut project = attached(id, 100.0);
    let like = TypicalJob { running_time: HOUR * hours, latency_bound: HOUR * bound, instances: 1.0 };
    project.typical = PerType::from_fn(|kind| (kind == Cpu).then_some(like));
    project
}

fn owed(mut project: Attached, hours: f64) -> Attached {
    project.priority = FetchPriority::Debt(Debt::from_secs(hours * 3_600.0));
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
fn what_idles_within_five_minutes_is_asked_for_with_a_job_for_each_instance_that_idles_now() {
    let queue = busy(1, HOUR);
    let world = FetchWorld::new(4, &[sends(1, 1, 48), owed(sends(2, 1, 48), 5.0)], &queue);
    let decision = world.decision(&JustInTime);
    assert!(!is_asked(&decision, 1) && is_asked(&decision, 2), "who is owed more is asked");
    let asked = decision.of(ProjectId(2)).unwrap();
    // So that jobs of seconds are not fetched one by one.
    assert_eq!((seconds(&decision, 2), asked.request.instances[Cpu]), (3.0 * 1_200.0, 3.0));
    assert!(matches!(occasion(&decision, 2), Some(Occasion::Idle { idle: 3.0, .. })));
    assert_eq!(decision.of(ProjectId(1)).unwrap().for_idle, asked.request);
}

#[test]
fn for_what_idles_soon_as_much_is_asked_for_as_twenty_minutes_lack_and_nobody_without_a_share() {
    // Of 64 CPUs two are free after a minute: 19 minutes of each are lacking.
    let busy_for = |id: u64| if id <= 2 { Duration::from_mins(1) } else { HOUR };
    let queue: JobQueue = (1..=64).map(|id| job(id, 1, 100_000).left(busy_for(id))).collect();
    let mut shareless = owed(sends(2, 1, 48), 50.0);
    shareless.project.share = fallow_domain::Share::new(0.0).unwrap();
    let decision = FetchWorld::new(64, &[sends(1, 1, 48), shareless], &queue).decision(&JustInTime);
    assert_eq!(seconds(&decision, 1), 2.0 * 19.0 * 60.0);
    let mut away = sends(1, 1, 48);
    away.contact.may_contact = false;
    assert!(!FetchWorld::new(64, &[away, shareless], &queue).decision(&JustInTime).wants_work());
    let idle = JobQueue::default();
    assert!(FetchWorld::new(64, &[shareless], &idle).decision(&JustInTime).wants_work());
}

/// Projects ask for a pause between RPCs: who is owed most would lose every turn by it.
#[test]
fn r3_9_one_that_may_be_asked_before_anything_idles_does_not_lose_its_turn_to_one_that_may_be_now() {
    let queue = busy(1, Duration::from_mins(4));
    let waits = |mins: i64, edit: fn(&mut Attached)| {
        let mut waiting = owed(sends(1, 1, 48), 5.0);
        waiting.contact.may_contact = false;
        waiting.contact.contact_from = Some(at_min(0) + Duration::from_mins(mins));
        edit(&mut waiting);
        let decision = FetchWorld::new(1, &[waiting, sends(2, 1, 48)], &queue).decision(&JustInTime);
        !is_asked(&decision, 2)
    };
    assert!(waits(1, |_| {}) && waits(4, |_| {}));
    assert!(!waits(5, |_| {}), "something would idle meanwhile");
    assert!(!waits(1, |project| project.contact.hung = true));
    assert!(!waits(1, |project| *project = owed(*project, -5.0)), "it is the turn of the other");
    assert!(!waits(1, |project| project.typical = sends(1, 9, 8).typical), "it would be late");
    // Once something idles, whoever may be asked is.
    let mut waiting = owed(sends(1, 1, 48), 5.0);
    waiting.contact.may_contact = false;
    waiting.contact.contact_from = Some(at_min(1));
    let world = FetchWorld::new(2, &[waiting, sends(2, 1, 48)], &queue);
    assert!(is_asked(&world.decision(&JustInTime), 2));
}

#[test]
fn on_a_host_that_is_on_for_half_of_the_time_what_is_held_and_wanted_is_counted_in_on_time() {
    // An hour of work lasts for two hours by the clock; the buffer of two hours is one hour of computing.
    for (left, asks) in [(59, true), (61, false)] {
        let queue = busy(1, Duration::from_mins(left));
        let mut world = FetchWorld::new(1, &[sends(1, 1, 480)], &queue);
        world.host.active_fraction = fallow_domain::Fraction::new(0.5).unwrap();
        world.droughts = PerType::cpu(HOUR * 9);
        assert_eq!(world.decision(&JustInTime).wants_work(), asks, "{left} min");
    }
    // Five minutes of computing are ten by the clock, which is more than a buffer of nothing shows.
    for (left, asks) in [(4, true), (6, false)] {
        let queue = busy(1, Duration::from_mins(left));
        let mut world = FetchWorld::new(1, &[sends(1, 1, 480)], &queue);
        world.host.active_fraction = fallow_domain::Fraction::new(0.5).unwrap();
        world.buffer_min = Duration::ZERO;
        assert_eq!(world.decision(&JustInTime).wants_work(), asks, "{left} min");
    }
}

#[test]
fn of_many_cpus_half_of_what_is_lacking_ahead_is_asked_for_at_a_time() {
    let queue = busy(64, HOUR);
    let mut world = FetchWorld::new(64, &[sends(1, 1, 480)], &queue);
    world.droughts = PerType::cpu(HOUR * 10);
    // Two hours are to be held, one is.
    assert_eq!(seconds(&world.decision(&JustInTime), 1), 64.0 * 1_800.0);
}

#[test]
fn a_project_that_cannot_be_asked_or_claims_absurd_jobs_keeps_no_other_from_being_asked_ahead() {
    let queue = busy(1, HOUR);
    let mut gone = owed(sends(2, 100_000, 200_000), 9.0);
    gone.contact.backed_off = PerType::cpu(true);
    let absurd = owed(sends(3, 100_000, 90_000), 5.0);
    for other in [gone, absurd] {
        let mut world = FetchWorld::new(1, &[sends(1, 1, 480), other], &queue);
        world.droughts = PerType::cpu(HOUR * 10);
        let decision = world.decision(&JustInTime);
        assert!(is_asked(&decision, 1), "{decision:?}");
    }
}

#[test]
fn that_nobody_can_be_asked_for_what_is_wanted_is_told_and_that_nobody_is_in_time_is_not() {
    let unserved =
        |of: &[Attached], queue: &JobQueue| FetchWorld::new(1, of, queue).decision(&JustInTime).unserved[Cpu];
    let idle = JobQueue::default();
    let mut away = sends(1, 1, 48);
    away.contact.may_contact = false;
    let mut without = sends(2, 1, 48);
    without.project.left_out = PerType::cpu(true);
    assert!(unserved(&[away, without], &idle));
    assert!(!unserved(&[away, sends(3, 1, 48)], &idle), "one is asked");
    assert!(!unserved(&[sends(3, 11, 10)], &idle), "one could be asked: its jobs would be late");
    assert!(!unserved(&[without], &idle) && !unserved(&[], &idle), "whom nobody wants to ask");
    assert!(unserved(&[away], &busy(1, Duration::from_mins(4))), "before it idles");
    assert!(!unserved(&[away], &busy(1, HOUR)), "nothing is wanted");
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
fn ahead_of_time_the_best_project_that_is_surely_in_time_is_asked() {
    // Sure are eight hours in ten. One hour is held, and a job of an hour comes before: that of the third
    // project, which has none waiting as the first has. And one hour is to be left, half of a drought: there
    // may be another when the job ends.
    for (takes, asks) in [(4, true), (5, true), (6, false)] {
        let queue = busy(1, HOUR);
        let best = owed(sends(2, takes, 10), 50.0);
        let holder = owed(sends(1, 1, 480), -50.0);
        let mut world = FetchWorld::new(1, &[holder, owed(sends(3, 1, 480), 2.0), best], &queue);
        world.droughts = PerType::cpu(HOUR * 2);
        let decision = world.decision(&JustInTime);
        assert_eq!(is_asked(&decision, 2), asks, "{takes} h");
        assert!(!is_asked(&decision, 3), "its turn comes when something idles, and nobody takes it before");
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
fn r3_10_what_idles_goes_before_what_will_and_one_request_is_for_all_that_its_project_is_best_for() {
    let mut of = sends(1, 1, 480);
    of.typical = PerType::from_fn(|_| of.typical[Cpu]);
    // The GPU has work for an hour, which is less than is to be held; the CPUs idle.
    let queue: JobQueue = [job(1, 1, 100_000).left(HOUR).nvidia(1.0)].into_iter().collect();
    let mut world = FetchWorld::new(2, &[of], &queue);
    world.host.instances[Nvidia] = 1;
    world.droughts = PerType::from_fn(|_| HOUR * 5);
    let decision = world.decision(&JustInTime);
    let asked = decision.of(ProjectId(1)).unwrap();
    assert!(matches!(occasion(&decision, 1), Some(Occasion::Idle { .. })), "{decision:?}");
    assert!(asked.request.seconds[Cpu].is_positive() && asked.request.seconds[Nvidia].is_positive());
    assert_eq!((asked.request.instances[Cpu] > 0.0, asked.request.instances[Nvidia]), (true, 0.0));
}

#[test]
fn while_something_idles_what_is_lacking_ahead_is_asked_for_too() {
    let queue = JobQueue::default();
    // Its project wants to be asked every half hour only: jobs of five minutes would leave the host idle.
    let mut of = sends(1, 1, 480);
    let asked = |of: Attached, drought: i64| {
        let mut world = FetchWorld::new(2, &[of], &queue);
        world.droughts = PerType::cpu(Duration::from_mins(drought));
        seconds(&world.decision(&JustInTime), 1)
    };
    assert_eq!((asked(of, 0), asked(of, 30)), (2_400.0, 45.0 * 60.0));
    // Not where that is not surely in time.
    of.typical = sends(1, 9, 10).typical;
    assert_eq!(asked(of, 30), 2_400.0);
}

#[test]
fn before_something_idles_nobody_is_asked_while_the_best_is_only_possibly_in_time() {
    let queue = busy(1, Duration::from_mins(4));
    // Sure are eight hours in ten, and possible are ten.
    for (takes, asks) in [(8, [true, false]), (9, [false, false]), (11, [false, true])] {
        let world = FetchWorld::new(1, &[owed(sends(1, takes, 10), 5.0), sends(2, 1, 480)], &queue);
        let decision = world.decision(&JustInTime);
        assert_eq!([1, 2].map(|id| is_asked(&decision, id)), asks, "{takes} h");
    }
}

#[test]
fn r3_7_a_project_whose_jobs_would_be_late_is_there_and_one_that_has_none_is_not() {
    let idle = JobQueue::default();
    let mut late = sends(1, 1, 48);
    late.contact.backed_off = PerType::cpu(true);
    late.contact.has_work = PerType::cpu(true);
    let mut none = sends(2, 1, 48);
    none.contact.backed_off = PerType::cpu(true);
    for (of, unserved) in [(&[late][..], false), (&[none], true), (&[late, none], true)] {
        let world = FetchWorld::new(1, of, &idle);
        assert_eq!(world.decision(&JustInTime).unserved[Cpu], unserved, "{of:?}");
        assert_eq!(world.decision(&Shortfall).unserved[Cpu], unserved, "whatever policy is followed");
    }
}

#[test]
fn r1_13_at_a_contact_whoever_is_surely_in_time_is_asked_for_all_that_is_lacking_until_the_next() {
    let queue = busy(2, HOUR * 3);
    let asked = |projects: &[Attached]| {
        let mut world = FetchWorld::new(2, projects, &queue);
        world.connection_interval = HOUR * 12;
        let decision = world.decision(&JustInTime);
        [1, 2].map(|id| seconds(&decision, id) / 3_600.0)
    };
    assert_eq!(asked(&[sends(1, 2, 480)]), [18.0, 0.0], "nine hours of two CPUs");
    // No job of the first is in time behind three hours, though it is owed more: the second has its part of
    // the 24 hours that are to be held.
    assert_eq!(asked(&[owed(sends(1, 9, 10), 5.0), sends(2, 2, 480)]), [0.0, 12.0]);
    // One that is in time gets what it is owed besides.
    assert_eq!(asked(&[owed(sends(1, 2, 480), 8.0), sends(2, 2, 480)]), [14.0, 0.0]);
}

#[test]
fn r1_13_at_a_contact_all_are_tried_of_whose_jobs_nothing_is_known() {
    let queue = busy(1, HOUR);
    let mut world = FetchWorld::new(1, &[attached(1, 100.0)], &queue);
    assert!(!world.decision(&JustInTime).wants_work(), "elsewhere that can wait");
    world.connection_interval = HOUR * 12;
    assert_eq!(seconds(&world.decision(&JustInTime), 1), 1.0);
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
fn r3_5_a_project_that_was_never_tried_is_asked_first_and_for_one_job_while_nothing_idles() {
    let mut untried = attached(2, 100.0);
    untried.project.supplies = PerType::default();
    let queue = JobQueue::default();
    let world = FetchWorld::new(1, &[owed(sends(1, 1, 48), 100.0), untried], &queue);
    assert!(is_asked(&world.decision(&JustInTime), 2));
    let held = busy(1, HOUR);
    let decision = |untried| {
        let mut world = FetchWorld::new(1, &[owed(sends(1, 1, 48), -100.0), untried], &held);
        world.droughts = PerType::cpu(HOUR * 5);
        world.decision(&JustInTime)
    };
    let asked = decision(untried);
    assert_eq!([1, 2].map(|id| is_asked(&asked, id)), [false, true], "nobody takes its turn");
    assert_eq!((occasion(&asked, 2), seconds(&asked, 2)), (Some(Occasion::Untried), 1.0));
    for change in [
        |of: &mut Attached| of.contact.backed_off = PerType::from_fn(|_| true),
        |of: &mut Attached| of.contact.has_work = PerType::from_fn(|_| true),
        |of: &mut Attached| of.contact.hung = true,
        |of: &mut Attached| of.project.share = fallow_domain::Share::new(0.0).unwrap(),
    ] {
        let mut untried = untried;
        change(&mut untried);
        assert!(!is_asked(&decision(untried), 2), "{untried:?}");
    }
}

/// Or a host of many projects would be late with the first job of each.
#[test]
fn r3_5_while_jobs_of_many_projects_are_held_none_is_asked_only_because_it_was_never_tried() {
    let asks = |held: u32| {
        let queue: JobQueue = (1..=held).map(|id| job(u64::from(id), id, 100_000).left(HOUR)).collect();
        let mut projects: Vec<Attached> = (1..=held).map(|id| sends(id, 1, 48)).collect();
        let mut untried = attached(9, 100.0);
        untried.project.supplies = PerType::default();
        projects.push(untried);
        is_asked(&FetchWorld::new(2, &projects, &queue).decision(&JustInTime), 9)
    };
    assert_eq!([2, 3, 4, 5].map(asks), [true, true, false, false], "of two CPUs");
}

#[test]
fn r2_16_a_project_that_was_never_tried_is_looked_at_when_its_wait_ends() {
    let mut untried = attached(2, 100.0);
    untried.project.supplies = PerType::default();
    untried.contact.may_contact = false;
    untried.contact.contact_from = Some(at_min(90));
    let queue = busy(1, HOUR * 9);
    let decision = FetchWorld::new(1, &[sends(1, 1, 480), untried], &queue).decision(&JustInTime);
    assert_eq!((decision.wants_work(), decision.check_by), (false, at_min(90)));
}

#[test]
fn instances_that_idle_beside_a_job_that_needs_more_are_filled_unless_it_is_that_projects_turn() {
    let wide = |id| job(id, 3, 100_000).cpus(4.0);
    let running = job(1, 1, 100_000).left(HOUR).running_since(0);
    let queue: JobQueue = [running, wide(2)].into_iter().collect();
    let mut of_wide = sends(3, 1, 48);
    of_wide.typical[Cpu].as_mut().unwrap().instances = 4.0;
    let decision = |hours| {
        let projects = [sends(1, 1, 48), owed(sends(2, 1, 48), 5.0), owed(of_wide, hours)];
        FetchWorld::new(4, &projects, &queue).decision(&JustInTime)
    };
    let fills = decision(-9.0);
    assert_eq!(occasion(&fills, 2), Some(Occasion::Unfilled { idle: 3.0 }));
    assert_eq!(fills.of(ProjectId(2)).unwrap().request.instances[Cpu], 3.0);
    assert!(!decision(1e6).wants_work(), "its turn comes when the job on the one CPU is over");
    let fitting: JobQueue = [running, wide(2), job(4, 3, 100_000).cpus(3.0)].into_iter().collect();
    let world = FetchWorld::new(4, &[sends(1, 1, 48), of_wide], &fitting);
    assert!(!world.decision(&JustInTime).wants_work(), "one that fits is about to begin");
    // What was fetched for them is on its way.
    for (cpus, asked) in [(1.0, Some(Occasion::Unfilled { idle: 2.0 })), (3.0, None)] {
        let coming = job(5, 2, 100_000).cpus(cpus).state(RunState::Downloading);
        let filled: JobQueue = [running, wide(2), coming].into_iter().collect();
        let projects = [sends(1, 1, 48), owed(sends(2, 1, 48), 5.0), owed(of_wide, -9.0)];
        let decision = FetchWorld::new(4, &projects, &filled).decision(&JustInTime);
        assert_eq!((occasion(&decision, 2), decision.wants_work()), (asked, asked.is_some()));
    }
}

/// There is no later turn: work for all the time until the next contact is wanted, whatever idles now.
#[test]
fn r1_13_at_a_contact_a_job_that_needs_more_instances_keeps_no_other_from_being_fetched_ahead() {
    let wide = job(2, 3, 100_000).cpus(4.0);
    let queue: JobQueue = [job(1, 1, 100_000).left(HOUR).running_since(0), wide].into_iter().collect();
    let mut of_wide = sends(3, 1, 480);
    of_wide.typical[Cpu].as_mut().unwrap().instances = 4.0;
    let mut world = FetchWorld::new(4, &[sends(1, 1, 480), owed(of_wide, 1e6)], &queue);
    world.connection_interval = HOUR * 24;
    let decision = world.decision(&JustInTime);
    assert!(matches!(occasion(&decision, 3), Some(Occasion::Ahead { .. })), "{decision:?}");
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

#[test]
fn r2_16_whoever_may_not_be_asked_yet_is_looked_at_again_as_soon_as_he_may() {
    let queue = JobQueue::default();
    let mut soon = sends(1, 1, 48);
    soon.contact.may_contact = false;
    let again_in = |delay| {
        soon.contact.contact_from = Some(at_min(0) + delay);
        let decision = FetchWorld::new(1, &[soon], &queue).decision(&JustInTime);
        assert!(!decision.wants_work());
        decision.check_by - at_min(0)
    };
    let few = Duration::from_secs(7);
    assert_eq!([few, HOUR].map(again_in), [few, Duration::from_mins(1)]);
}

/// What is new at a project that had no work would wait there for the ten minutes of its backoff.
#[test]
fn r3_7_one_that_had_no_work_is_asked_for_what_idles_if_an_rpc_happens_anyway_and_it_is_its_turn() {
    let piggyback = |idle: bool, edit: fn(&mut Attached)| {
        let mut project = owed(sends(1, 1, 48), 5.0);
        project.contact.backed_off = PerType::from_fn(|_| true);
        edit(&mut project);
        let queue = if idle { JobQueue::default() } else { busy(1, HOUR) };
        let decision = FetchWorld::new(1, &[project, sends(2, 1, 48)], &queue).decision(&JustInTime);
        assert_eq!((is_asked(&decision, 1), is_asked(&decision, 2)), (false, idle));
        let piggyback = decision.of(ProjectId(1)).unwrap().piggyback;
        (piggyback.seconds[Cpu].get(), piggyback.instances[Cpu])
    };
    assert_eq!(piggyback(true, |_| {}), (1_200.0, 1.0));
    assert_eq!(piggyback(false, |_| {}), (0.0, 0.0), "nothing idles soon");
    for edit in [
        |project: &mut Attached| project.contact.hung = true,
        |project: &mut Attached| project.project.lacks[Cpu] = true,
        |project: &mut Attached| project.typical = sends(1, 9, 8).typical,
        |project: &mut Attached| *project = owed(*project, -5.0),
    ] {
        assert_eq!(piggyback(true, edit), (0.0, 0.0));
    }
}
