//! What one project withholds or sends costs no other its turn: schedulers that hang or fail, downloads that
//! stall, jobs without number.

use fallow_boinc::scheduler::{Coprocessor as Needed, SchedulerReply};
use fallow_client::{
    Direction, Event, Phase, RequestedBy, TaskView, Traffic, TransferError, TransferErrorKind,
};
use fallow_domain::{Bytes, Coprocessor, Duration, Fraction, HostFacts, Preferences, ResourceType, Speed};

use crate::hand::{self, Bench};
use crate::life::{document, small_buffers};
use crate::review::{both_cpus, url};
use crate::world::{World, host};

/// Longer than any test lasts.
const NEVER: Duration = Duration::from_hours(1_000);

/// So many seconds as a request asks for, and the instances.
fn asked(request: &str) -> (f64, f64) {
    let value = |name: &str| -> f64 {
        let (_, rest) = request.split_once(&format!("<{name}>")).unwrap();
        rest.split_once('<').unwrap().0.parse().unwrap()
    };
    (value("cpu_req_secs"), value("cpu_req_instances"))
}

/// Projects whose schedulers do not answer, which are owed more than the good one; and the good one.
fn hanging(seed: u64, count: usize) -> World {
    let mut world = World::new(seed);
    let names: Vec<String> = (0..count).map(|n| format!("a{n}")).collect();
    for name in &names {
        world.add_project(name, 100, Duration::from_secs(30));
        world.projects.get_mut(name).unwrap().answers_in = NEVER;
    }
    world.add_project("good", 10_000, Duration::from_secs(30));
    let mut shares: Vec<(&str, f64)> = names.iter().map(|name| (name.as_str(), 100.0)).collect();
    shares.push(("good", 1.0));
    world.event(Event::DocumentOffered(document(1, &shares, both_cpus()).into()));
    world
}

#[test]
fn r1_10_a_scheduler_that_does_not_answer_costs_no_other_project_its_turn() {
    let mut world = hanging(201, 1);
    world.run_until("both CPUs compute", Duration::from_mins(1), |w| w.computing() == 2);
    world.run_until("results are reported", Duration::from_mins(90), |w| w.acknowledged("good") > 50);
    assert_eq!(world.calls("a0").len(), 1, "it is not asked again while its answer may come");
}

#[test]
fn r1_10_not_even_many_schedulers_that_do_not_answer_cost_another_project_its_turn() {
    let mut world = hanging(202, 20);
    world.run_until("both CPUs compute", Duration::from_mins(15), |w| w.computing() == 2);
    let calls: usize = (0..20).map(|n| world.calls(&format!("a{n}")).len()).sum();
    assert!(calls <= 60, "{calls} calls");
    world.run_until("results are reported", Duration::from_mins(90), |w| w.acknowledged("good") > 50);
}

#[test]
fn r1_10_projects_that_hung_come_after_those_that_did_not_however_many_they_are() {
    let mut world = hanging(221, 60);
    world.run_until("both CPUs compute", Duration::from_mins(6), |w| w.computing() == 2);
    let good = world.calls("good")[0];
    for n in 0..60 {
        let before = world.calls(&format!("a{n}")).into_iter().filter(|call| *call < good).count();
        assert_eq!(before, 1, "a{n} is asked once before all others have been asked");
    }
}

#[test]
fn r1_4_what_the_owner_asks_for_asks_for_work_although_many_others_hang() {
    let mut world = hanging(222, 60);
    world.run_for(Duration::from_secs(100));
    assert_eq!((world.computing(), world.calls("good").len()), (0, 0));
    world.event(Event::ContactRequested { url: url("good"), by: RequestedBy::Owner });
    world.run_until("work", Duration::from_secs(10), |w| w.computing() > 0);
}

#[test]
fn r1_10_what_is_asked_of_one_project_is_not_asked_of_another_before_its_answer() {
    let mut world = World::new(203);
    for name in ["a", "b"] {
        world.add_project(name, 10_000, Duration::from_secs(30));
        world.projects.get_mut(name).unwrap().answers_in = Duration::from_secs(10);
    }
    world.event(Event::DocumentOffered(document(1, &[("a", 1.0), ("b", 1.0)], both_cpus()).into()));
    world.run_for(Duration::from_hours(1));
    let mut calls = [world.calls("a"), world.calls("b")].concat();
    calls.sort();
    assert!(calls.len() > 10);
    let wanting = world.requests.iter().filter(|request| asked(request).0 > 0.0).count();
    assert!(wanting > 10, "they ask for work");
    let gaps: Vec<f64> = calls.windows(2).map(|pair| (pair[1] - pair[0]).as_secs_f64()).collect();
    assert!(gaps.iter().all(|gap| *gap >= 10.0), "{gaps:?}");
}

#[test]
fn r1_10_a_finished_job_is_reported_beside_a_request_for_work_that_is_not_answered() {
    let mut world = World::new(204);
    world.add_project("good", 1, Duration::from_secs(100));
    world.projects.get_mut("good").unwrap().report_immediately = true;
    world.event(Event::DocumentOffered(document(1, &[("good", 1.0)], small_buffers()).into()));
    world.run_until("it computes", Duration::from_mins(1), |w| w.computing() == 1);
    world.add_project("a", 100, Duration::from_secs(30));
    world.projects.get_mut("a").unwrap().answers_in = NEVER;
    world.run_for(Duration::from_secs(80));
    let both = document(2, &[("good", 1.0), ("a", 1.0)], small_buffers());
    world.event(Event::DocumentOffered(both.into()));
    world.run_until("the other is asked", Duration::from_secs(15), |w| w.calls("a").len() == 1);
    let asked_at = world.calls("a")[0];
    world.run_until("the report", Duration::from_secs(25), |w| w.acknowledged("good") == 1);
    assert!(world.now - asked_at < Duration::from_secs(28), "before it is left behind");
}

#[test]
fn r1_5_after_a_failure_the_next_project_is_tried_at_once() {
    let mut world = World::new(205);
    let names: Vec<String> = (0..10).map(|n| format!("a{n}")).collect();
    for name in &names {
        world.add_project(name, 100, Duration::from_secs(30));
        world.projects.get_mut(name).unwrap().down = true;
    }
    world.add_project("good", 10_000, Duration::from_secs(30));
    let mut shares: Vec<(&str, f64)> = names.iter().map(|name| (name.as_str(), 100.0)).collect();
    shares.push(("good", 1.0));
    world.event(Event::DocumentOffered(document(1, &shares, both_cpus()).into()));
    world.run_until("both CPUs compute", Duration::from_secs(30), |w| w.computing() == 2);
    let calls: usize = names.iter().map(|name| world.calls(name).len()).sum();
    assert!(calls <= 10, "{calls} calls: each failed once");
}

#[test]
fn r2_16_jobs_whose_downloads_fail_are_no_work_that_keeps_the_host_busy() {
    let mut world = World::new(206);
    world.add_project("a", 10_000, Duration::from_secs(100));
    world.add_project("good", 10_000, Duration::from_secs(30));
    world.fail_prefix = "a_";
    world.fail_download = Some(TransferError::new(TransferErrorKind::Transient, "no connection"));
    world.event(Event::DocumentOffered(document(1, &[("a", 1_000.0), ("good", 1.0)], both_cpus()).into()));
    world.run_until("both CPUs compute", Duration::from_mins(2), |w| w.computing() == 2);
    world.run_for(Duration::from_hours(2));
    assert_eq!(world.computing(), 2);
    let (sent, calls) = (world.projects["a"].sent, world.calls("a").len());
    assert!(sent < 10 && calls < 10, "asked for more, that would fail like the rest: {sent} jobs");
    world.fail_download = None;
    let over = |w: &World| w.acknowledged("a") >= sent;
    world.run_until("its jobs are computed when they come", Duration::from_hours(20), over);
    world.run_until("and it is asked again", Duration::from_hours(1), |w| w.projects["a"].sent > sent);
}

#[test]
fn r2_16_jobs_whose_downloads_come_to_nothing_are_no_work_that_keeps_the_host_busy() {
    let mut world = World::new(207);
    world.add_project("a", 10_000, Duration::from_secs(100));
    world.add_project("good", 10_000, Duration::from_secs(30));
    world.drip_prefix = Some("a_");
    world.event(Event::DocumentOffered(document(1, &[("a", 1_000.0), ("good", 1.0)], both_cpus()).into()));
    world.run_until("both CPUs compute", Duration::from_secs(40), |w| w.computing() == 2);
    world.run_for(Duration::from_hours(1));
    assert_eq!(world.computing(), 2);
    assert!(world.projects["a"].sent < 10, "{} jobs", world.projects["a"].sent);
}

#[test]
fn r2_16_not_even_several_projects_whose_downloads_come_to_nothing_keep_the_host_idle_for_long() {
    let mut world = World::new(215);
    let names: Vec<String> = (0..3).map(|n| format!("a_{n}")).collect();
    names.iter().for_each(|name| world.add_project(name, 10_000, Duration::from_secs(100)));
    world.add_project("good", 10_000, Duration::from_secs(30));
    world.drip_prefix = Some("a_");
    let mut shares: Vec<(&str, f64)> = names.iter().map(|name| (name.as_str(), 1_000.0)).collect();
    shares.push(("good", 1.0));
    world.event(Event::DocumentOffered(document(1, &shares, both_cpus()).into()));
    // Each has a half minute of its own: any of them may be a good one with slow files.
    world.run_until("both CPUs compute", Duration::from_mins(2), |w| w.computing() == 2);
    world.run_for(Duration::from_hours(1));
    assert_eq!(world.computing(), 2);
    names.iter().for_each(|name| assert!(world.projects[name].sent < 10, "{}", world.projects[name].sent));
}

/// A project owed more than the good one, with long jobs.
fn beside_a_good_one(seed: u64) -> World {
    let mut world = World::new(seed);
    world.add_project("a", 10_000, Duration::from_hours(5));
    world.add_project("good", 10_000, Duration::from_secs(30));
    world.exits_prefix = "a_";
    world
}

/// Its jobs need so much memory.
fn need(reply: &mut SchedulerReply, memory: Bytes) {
    for workunit in reply.workunits.iter_mut().filter(|workunit| workunit.name.starts_with("a_")) {
        workunit.rsc_memory_bound = Some(memory);
    }
}

/// Both CPUs compute for the good project, and the other is not asked for ever more.
fn assert_good_one_computes(world: &mut World, within: Duration) {
    world.event(Event::DocumentOffered(document(1, &[("a", 1_000.0), ("good", 1.0)], both_cpus()).into()));
    world.run_until("both CPUs compute", within, |w| w.computing() == 2);
    world.run_for(Duration::from_hours(1));
    let done = world.acknowledged("good");
    assert!(done > 100, "{done} jobs of 30 s in an hour");
    let (sent, calls) = (world.projects["a"].sent, world.calls("a").len());
    assert!(sent < 20 && calls < 30, "asked for more of the same: {sent} jobs in {calls} calls");
}

#[test]
fn r2_16_jobs_that_are_too_large_for_what_may_be_used_here_are_no_work_that_keeps_the_host_busy() {
    let mut world = beside_a_good_one(217);
    world.alter = Some(|reply, _| need(reply, Bytes::from_mebibytes(8_000)));
    assert_good_one_computes(&mut world, Duration::from_secs(30));
    let held = world.client.task_views();
    assert!(held.iter().any(|job| job.name.starts_with("a_")), "they are held and shown");
    assert!(world.view("a").enough.is_some_and(|why| why.contains("cannot run")), "and it is said why");
}

#[test]
fn r2_7_jobs_that_are_too_large_are_known_as_such_after_a_restart_and_run_when_more_is_allowed() {
    let mut world = beside_a_good_one(223);
    world.alter = Some(|reply, _| need(reply, Bytes::from_mebibytes(8_000)));
    assert_good_one_computes(&mut world, Duration::from_secs(30));
    let sent = world.projects["a"].sent;
    world.restart();
    world.run_for(Duration::from_mins(10));
    assert_eq!((world.computing(), world.projects["a"].sent), (2, sent));
    assert!(world.view("a").enough.is_some_and(|why| why.contains("cannot run")));
    let all = Preferences { memory_fraction: Fraction::ONE, ..both_cpus() };
    world.event(Event::DocumentOffered(document(2, &[("a", 1_000.0), ("good", 1.0)], all).into()));
    let runs = |job: &TaskView| job.name.starts_with("a_") && job.phase == Phase::Running;
    world.run_until("they run", Duration::from_mins(1), |w| w.client.task_views().iter().any(runs));
    assert_eq!(world.view("a").enough, None);
}

#[test]
fn a_job_that_needs_more_memory_than_the_host_has_is_given_back_at_once() {
    let mut world = beside_a_good_one(218);
    world.alter = Some(|reply, _| need(reply, Bytes(64_000_000_000)));
    assert_good_one_computes(&mut world, Duration::from_secs(30));
    world.run_until("the report", Duration::from_hours(24), |w| w.acknowledged("a") > 0);
    assert_eq!(world.projects["a"].reports[0].exit_status, 198);
}

#[test]
fn r2_16_jobs_that_leave_at_once_without_having_finished_are_no_work_that_keeps_the_host_busy() {
    let mut world = beside_a_good_one(219);
    world.exits_at_once = true;
    assert_good_one_computes(&mut world, Duration::from_secs(40));
}

#[test]
fn r2_16_jobs_that_ask_to_be_started_again_later_are_no_work_that_keeps_the_host_busy() {
    let mut world = beside_a_good_one(220);
    world.exits_at_once = true;
    world.asks_again_in = Some(Duration::from_secs(10_000));
    assert_good_one_computes(&mut world, Duration::from_secs(40));
    world.exits_at_once = false;
    let sent = world.projects["a"].sent;
    // Those that wait do so after a restart.
    world.restart();
    world.run_for(Duration::from_mins(10));
    assert_eq!((world.computing(), world.projects["a"].sent), (2, sent));
    let computes = |job: &TaskView| job.name.starts_with("a_") && job.cpu_time > Duration::from_mins(1);
    let any = |w: &World| w.client.task_views().iter().any(computes);
    assert!(!any(&world));
    world.run_until("they are computed then", Duration::from_hours(2), any);
}

#[test]
fn r6_10_jobs_that_say_they_use_next_to_nothing_of_a_cpu_do_not_crowd_it() {
    let mut world = World::new(223);
    world.add_project("a", 10_000, Duration::from_secs(600));
    world.alter = Some(|reply, _| {
        for version in &mut reply.app_versions {
            version.avg_ncpus = 0.001;
        }
    });
    world.event(Event::DocumentOffered(document(1, &[("a", 1.0)], both_cpus()).into()));
    world.run_until("tasks", Duration::from_mins(2), |w| w.computing() >= 8);
    for _ in 0..20 {
        world.run_for(Duration::from_mins(1));
        assert!(world.computing() <= 8, "{} tasks on two CPUs", world.computing());
    }
}

#[test]
fn r6_10_jobs_that_say_they_use_next_to_nothing_of_a_gpu_do_not_crowd_the_host() {
    let mut world = World::new(224);
    let gpu = Coprocessor {
        kind: ResourceType::Nvidia,
        count: 1,
        model: "M".to_owned(),
        speed: Speed::new(1e12).unwrap(),
        memory: Bytes::from_mebibytes(8_192),
        driver: "1".to_owned(),
        cuda_version: 0,
        devices: Vec::new(),
    };
    world.event(Event::HostMeasured(Box::new(HostFacts { coprocessors: vec![gpu], ..host() })));
    world.add_project("a", 10_000, Duration::from_secs(600));
    world.working_set = Bytes(1_000_000);
    world.alter = Some(|reply, _| {
        for version in &mut reply.app_versions {
            version.avg_ncpus = 0.001;
            version.coproc = Some(Needed { kind: "NVIDIA".to_owned(), count: 0.001 });
        }
        reply.workunits.iter_mut().for_each(|job| job.rsc_memory_bound = Some(Bytes(1_000_000)));
    });
    world.event(Event::DocumentOffered(document(1, &[("a", 1.0)], both_cpus()).into()));
    world.run_until("tasks", Duration::from_mins(5), |w| w.computing() >= 16);
    for _ in 0..20 {
        world.run_for(Duration::from_mins(1));
        assert!(world.computing() <= 16, "{} tasks on a GPU", world.computing());
    }
}

#[test]
fn r2_16_downloads_are_given_more_time_where_no_other_project_could_have_jobs_meanwhile() {
    let mut world = World::new(214);
    world.add_project("a", 10_000, Duration::from_secs(100));
    world.drip_prefix = Some("a_");
    world.event(Event::DocumentOffered(document(1, &[("a", 1.0)], both_cpus()).into()));
    world.run_until("its jobs", Duration::from_secs(10), |w| !w.client.task_views().is_empty());
    let enough = |w: &World| w.client.project_views()[0].enough.clone();
    world.run_for(Duration::from_mins(10));
    assert_eq!(enough(&world), None);
    world.run_until("the end of patience", Duration::from_mins(10), |w| enough(w).is_some());
}

#[test]
fn r2_16_a_large_file_has_the_time_that_it_takes_here() {
    let mut world = World::new(216);
    world.add_project("a", 10_000, Duration::from_secs(100));
    world.drip_prefix = Some("a_");
    world.alter = Some(|reply, _| {
        for file in reply.files.iter_mut().filter(|file| file.name == "a_app") {
            file.nbytes = Some(Bytes(2_000_000_000));
        }
    });
    let part =
        Traffic { direction: Direction::Download, bytes: Bytes(4_000_000), took: Duration::from_secs(4) };
    world.event(Event::TrafficMeasured(vec![part]));
    world.event(Event::DocumentOffered(document(1, &[("a", 1.0)], both_cpus()).into()));
    let enough = |w: &World| w.client.project_views()[0].enough.clone();
    world.run_for(Duration::from_mins(33));
    assert_eq!(enough(&world), None, "two gigabytes at a megabyte a second take 33 minutes");
    world.run_until("the end of patience", Duration::from_hours(2), |w| enough(w).is_some());
}

#[test]
fn r1_4_a_request_for_contact_is_not_lost_while_an_answer_is_awaited() {
    // Asked when the answer is overdue already, and when it is not yet.
    for waited in [Duration::from_mins(1), Duration::from_secs(5)] {
        let mut world = World::new(215);
        world.add_project("a", 5, Duration::from_secs(30));
        world.projects.get_mut("a").unwrap().answers_in = NEVER;
        world.event(Event::DocumentOffered(document(1, &[("a", 1.0)], small_buffers()).into()));
        world.run_for(waited);
        assert_eq!(world.calls("a").len(), 1);
        world.projects.get_mut("a").unwrap().answers_in = Duration::ZERO;
        world.event(Event::ContactRequested { url: url("a"), by: RequestedBy::Owner });
        world.run_until("it is asked anew", Duration::from_secs(40), |w| w.calls("a").len() == 2);
    }
}

#[test]
fn r1_4_a_request_for_contact_outlives_the_failure_of_an_earlier_rpc() {
    let mut bench = Bench::new();
    assert!(bench.request.take().is_some());
    bench.turn(Event::ContactRequested { url: hand::url(), by: RequestedBy::Owner });
    assert!(bench.request.is_none(), "an answer is awaited");
    let failed = || Err(TransferError::new(TransferErrorKind::Transient, "no connection"));
    bench.turn(Event::SchedulerAnswered { project: bench.project, outcome: failed() });
    bench.turn(Event::WakeUp);
    assert!(bench.request.take().is_some(), "{:?}", bench.notices);
    // That one was made for it: its failure is an answer, and the project is left alone for a while.
    bench.turn(Event::SchedulerAnswered { project: bench.project, outcome: failed() });
    (0..10).for_each(|_| bench.turn(Event::WakeUp));
    assert!(bench.request.is_none());
}

#[test]
fn r3_2_the_first_request_asks_for_a_second_and_the_next_for_what_is_lacking() {
    let mut world = World::with_a_buffer(208);
    world.add_project("a", 10_000, Duration::from_hours(1));
    let more = Preferences { buffer_min: Duration::from_hours(5), ..both_cpus() };
    world.event(Event::DocumentOffered(document(1, &[("a", 1.0)], more).into()));
    world.run_until("both CPUs compute", Duration::from_secs(10), |w| w.computing() == 2);
    world.run_for(Duration::from_secs(10));
    assert_eq!(asked(&world.requests[0]), (1.0, 0.0));
    let (seconds, instances) = asked(&world.requests[1]);
    assert!(seconds > 30_000.0 && instances == 1.0, "{seconds} s, {instances}");
    let waited = world.calls("a")[1] - world.calls("a")[0];
    assert!(waited < Duration::from_secs(3), "its request delay is a second: {waited}");
}

#[test]
fn r3_2_a_project_without_jobs_is_asked_for_a_second_until_it_has_sent_some() {
    let mut world = World::new(209);
    world.add_project("a", 0, Duration::from_hours(1));
    world.event(Event::DocumentOffered(document(1, &[("a", 1.0)], both_cpus()).into()));
    world.run_for(Duration::from_hours(3));
    assert!(world.requests.len() > 3 && world.requests.iter().all(|request| asked(request).0 <= 1.0));
    world.restart();
    world.projects.get_mut("a").unwrap().supply = 10_000;
    world.run_until("jobs arrive", Duration::from_hours(3), |w| w.computing() == 2);
    world.restart();
    let before = world.requests.len();
    world.run_for(Duration::from_hours(3));
    assert!(world.requests[before..].iter().any(|request| asked(request).0 > 1.0), "it is known by now");
}

#[test]
fn r3_9_very_short_jobs_are_held_by_the_hundred_and_not_by_the_ten_thousand() {
    let mut world = World::new(210);
    world.add_project("a", 1_000_000, Duration::from_millis(100));
    let more = Preferences { buffer_min: Duration::from_hours(2), ..both_cpus() };
    world.event(Event::DocumentOffered(document(1, &[("a", 1.0)], more).into()));
    let mut most = 0;
    for _ in 0..150 {
        world.run_for(Duration::from_secs(2));
        most = most.max(world.client.task_views().len());
    }
    assert!((500..1_200).contains(&most), "{most} jobs held");
    assert!(world.acknowledged("a") > 50);
    let calls = world.calls("a").len();
    assert!(calls < 40, "{calls} calls in five minutes");
}

#[test]
fn r1_8_sixty_four_finished_jobs_are_reported_together() {
    let mut world = World::new(211);
    world.add_project("a", 200, Duration::from_secs(10));
    let more = Preferences { buffer_min: Duration::from_hours(2), ..both_cpus() };
    world.event(Event::DocumentOffered(document(1, &[("a", 1.0)], more).into()));
    world.run_until("the first report", Duration::from_mins(6), |w| w.acknowledged("a") > 2);
    assert!(world.acknowledged("a") >= 62, "{}", world.acknowledged("a"));
}

#[test]
fn r1_4_who_owns_the_host_overrides_a_delay_that_a_project_asked_for() {
    let contact = |by| Event::ContactRequested { url: url("a"), by };
    for (by, expected) in [(RequestedBy::Fleet, 1), (RequestedBy::Owner, 2)] {
        let mut world = World::new(212);
        world.add_project("a", 0, Duration::from_secs(30));
        world.alter = Some(|reply, _| reply.request_delay = Duration::from_hours(1));
        world.event(Event::DocumentOffered(document(1, &[("a", 1.0)], small_buffers()).into()));
        world.run_until("the delay", Duration::from_mins(1), |w| w.calls("a").len() == 1);
        world.run_for(Duration::from_mins(1));
        let held = world.client.contact_held_by(&url("a"));
        assert!(held.len() == 1 && held[0].1.contains("asked for a delay"), "{held:?}");
        world.event(contact(by));
        world.run_for(Duration::from_secs(10));
        assert_eq!(world.calls("a").len(), expected, "{by:?}");
        // Its next delay holds like the first.
        world.run_for(Duration::from_mins(50));
        assert_eq!(world.calls("a").len(), expected, "{by:?}");
    }
}

#[test]
fn r1_4_who_owns_the_host_overrides_the_backoffs() {
    let mut world = World::new(213);
    world.add_project("a", 5, Duration::from_secs(30));
    world.projects.get_mut("a").unwrap().down = true;
    world.event(Event::DocumentOffered(document(1, &[("a", 1.0)], small_buffers()).into()));
    world.run_for(Duration::from_hours(9));
    world.projects.get_mut("a").unwrap().down = false;
    world.event(Event::ContactRequested { url: url("a"), by: RequestedBy::Owner });
    world.run_until("its jobs run", Duration::from_secs(10), |w| w.computing() == 1);
}
