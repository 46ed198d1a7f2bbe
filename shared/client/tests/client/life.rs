//! The life of a client, told by driving the machine with a modelled host and modelled projects in virtual
//! time.

use fallow_client::{
    Client, ClientConfig, DiskHeld, Event, Phase, TransferError, TransferErrorKind, Uncounted,
};
use fallow_domain::agent_state::SuspendedBy;
use fallow_domain::{
    AccountKey, Bytes, DocumentVersion, Duration, FleetDocument, Flops, Fraction, MasterUrl, Preferences,
    ProjectAssignment, ResourceTypes, Share,
};

use crate::world::{self, World, host};

pub(crate) fn document(version: u64, shares: &[(&str, f64)], preferences: Preferences) -> FleetDocument {
    let project = |(name, share): &(&str, f64)| ProjectAssignment {
        name: (*name).to_owned(),
        url: MasterUrl::parse(&format!("http://127.0.0.1/{name}/")).unwrap(),
        account_key: AccountKey::new("0123456789abcdef0123456789abcdef"),
        share: Share::new(*share).unwrap(),
        code_sign_key: None,
        without: ResourceTypes::default(),
    };
    FleetDocument {
        content: String::new(),
        version: DocumentVersion(version),
        projects: shares.iter().map(project).collect(),
        preferences,
    }
}

pub(crate) fn small_buffers() -> Preferences {
    Preferences {
        buffer_min: Duration::from_secs(90),
        buffer_additional: Duration::from_secs(30),
        scheduling_period: Duration::from_secs(15),
        checkpoint_period: Duration::from_secs(5),
        leave_in_memory: true,
        cpu_fraction: Fraction::clamped(0.5),
        ..Preferences::default()
    }
}

#[test]
fn a_job_goes_from_attach_to_acknowledged_report() {
    let mut world = World::new(1);
    world.add_project("one", 3, Duration::from_secs(40));
    world.event(Event::DocumentOffered(document(1, &[("one", 100.0)], small_buffers()).into()));
    world.run_until("three jobs acknowledged", Duration::from_hours(3), |w| w.acknowledged("one") == 3);
    // The acknowledgement is still on its way.
    world.run_for(Duration::from_secs(2));
    let totals = world.client.totals();
    assert_eq!((totals.jobs_success, totals.jobs_error, totals.jobs_late), (3, 0, 0));
    assert_eq!(totals.cpu, Duration::from_secs(120));
    assert_eq!(totals.cpu_success, totals.cpu);
    assert!(world.client.task_views().is_empty());
    assert_eq!(world.slots_in_use(), 0, "every slot is given back");
}

/// Shows R2.2 as well.
#[test]
fn r2_1_two_projects_compute_by_their_shares_while_both_have_work() {
    let mut world = World::new(2);
    world.add_project("a", 400, Duration::from_secs(30));
    world.add_project("b", 400, Duration::from_secs(30));
    world.event(Event::DocumentOffered(document(1, &[("a", 75.0), ("b", 25.0)], small_buffers()).into()));
    world.run_for(Duration::from_hours(1));
    let cpu = |name: &str| world.view(name).totals.cpu_contested.as_secs_f64();
    let fraction = cpu("a") / (cpu("a") + cpu("b"));
    assert!((fraction - 0.75).abs() < 0.02, "{fraction}");
    let idle = world.client.host_view().figures[0].idleness.unwrap().get();
    assert!(idle < 0.02, "idle {idle}");
    let violation = world.client.host_view().figures[0].share_violation.unwrap().get();
    assert!(violation < 0.02, "share violation {violation}");
}

/// Shows R6.4.
#[test]
fn new_shares_take_effect_without_restart_and_the_version_is_told_at_once() {
    let mut world = World::new(3);
    world.add_project("a", 400, Duration::from_secs(30));
    world.add_project("b", 400, Duration::from_secs(30));
    world.event(Event::DocumentOffered(document(1, &[("a", 75.0), ("b", 25.0)], small_buffers()).into()));
    world.run_for(Duration::from_mins(5));
    let before = (world.view("a").totals.cpu, world.view("b").totals.cpu);
    world.event(Event::DocumentOffered(document(2, &[("a", 25.0), ("b", 75.0)], small_buffers()).into()));
    assert_eq!(world.client.host_view().document_version, DocumentVersion(2));
    world.run_for(Duration::from_mins(3));
    let a = (world.view("a").totals.cpu - before.0).as_secs_f64();
    let b = (world.view("b").totals.cpu - before.1).as_secs_f64();
    assert!((a / (a + b) - 0.25).abs() < 0.10, "{a} {b}");
}

#[test]
fn r6_1_an_older_or_absurd_document_is_refused_and_the_one_in_force_stays() {
    let mut world = World::new(4);
    world.add_project("a", 1, Duration::from_secs(30));
    world.event(Event::DocumentOffered(document(5, &[("a", 75.0)], small_buffers()).into()));
    world.event(Event::DocumentOffered(document(4, &[], small_buffers()).into()));
    let absurd = Preferences { buffer_min: Duration::from_secs(-1), ..small_buffers() };
    world.event(Event::DocumentOffered(document(6, &[("a", 75.0)], absurd).into()));
    let view = world.client.host_view();
    assert_eq!(view.document_version, DocumentVersion(5));
    let (version, why) = view.document_refused.unwrap();
    assert_eq!(version, DocumentVersion(6));
    assert!(why.contains("minimum work buffer"), "{why}");
    assert_eq!(world.client.project_views().len(), 1);

    // What is followed is offered again: who offered the other one is not heard any more.
    world.event(Event::DocumentOffered(document(5, &[("a", 75.0)], small_buffers()).into()));
    let view = world.client.host_view();
    assert_eq!((view.document_version, view.document_refused), (DocumentVersion(5), None));
    assert_eq!(world.client.project_views().len(), 1);
}

#[test]
fn r6_1_another_fleet_counts_its_documents_by_itself_and_the_same_one_goes_on() {
    let mut world = World::new(4);
    world.add_project("a", 1, Duration::from_secs(30));
    world.event(Event::FleetJoined { authority: "one".into() });
    world.event(Event::DocumentOffered(document(57, &[("a", 75.0)], small_buffers()).into()));
    world.restart();
    world.event(Event::FleetJoined { authority: "one".into() });
    assert_eq!(world.client.host_view().document_version, DocumentVersion(57));
    world.event(Event::DocumentOffered(document(56, &[], small_buffers()).into()));
    assert!(world.client.host_view().document_refused.is_some());
    world.event(Event::FleetJoined { authority: "other".into() });
    let view = world.client.host_view();
    assert_eq!((view.document_version, view.document_refused), (DocumentVersion(0), None));
    assert_eq!(world.client.project_views().len(), 1, "it goes on with what it has until it is told more");
    world.event(Event::DocumentOffered(document(3, &[("a", 25.0)], small_buffers()).into()));
    let view = world.client.host_view();
    assert_eq!((view.document_version, view.document_refused), (DocumentVersion(3), None));
}

/// Shows R6.1.
#[test]
fn the_owners_suspension_holds_against_the_coordinator_and_a_restart() {
    let mut world = World::new(5);
    world.add_project("a", 10, Duration::from_secs(30));
    world.event(Event::DocumentOffered(document(1, &[("a", 1.0)], small_buffers()).into()));
    world.run_until("a task runs", Duration::from_mins(10), |w| w.computing() == 1);
    world.event(Event::OwnerSuspended(true));
    assert_eq!(world.computing(), 0);
    world.event(Event::DocumentOffered(document(2, &[("a", 1.0)], small_buffers()).into()));
    world.restart();
    world.run_for(Duration::from_mins(30));
    assert_eq!(world.computing(), 0);
    assert_eq!(world.client.host_view().suspended_by, Some(SuspendedBy::Owner));
    world.event(Event::OwnerSuspended(false));
    world.run_until("a task runs again", Duration::from_mins(10), |w| w.computing() == 1);
}

#[test]
fn a_killed_agent_resumes_from_the_checkpoint_and_counts_no_cpu_second_twice() {
    let mut world = World::new(6);
    world.add_project("a", 2, Duration::from_secs(100));
    world.event(Event::DocumentOffered(document(1, &[("a", 1.0)], small_buffers()).into()));
    world.run_until("half a job", Duration::from_mins(10), |w| w.longest_task() >= Duration::from_secs(47));
    world.restart();
    world.run_until("both jobs acknowledged", Duration::from_hours(3), |w| w.acknowledged("a") == 2);
    // Checkpoints are every 5 s, so at most that was computed again.
    let (cpu, really) = (world.client.totals().cpu, world.cpu_used);
    assert!(cpu > Duration::from_secs(200) && cpu <= Duration::from_secs(206), "{cpu}");
    assert!((cpu - really).as_secs_f64().abs() < 1.1, "counted {cpu}, used {really}");
    assert!(world.notices().any(|text| text.contains("from its checkpoint at 45 s")), "{:?}", world.notices);
}

#[test]
fn a_finished_job_survives_the_death_of_the_agent_and_is_not_computed_again() {
    let mut world = World::new(7);
    world.add_project("a", 1, Duration::from_secs(30));
    world.event(Event::DocumentOffered(document(1, &[("a", 1.0)], small_buffers()).into()));
    world.run_until("a task runs", Duration::from_mins(10), |w| w.computing() == 1);
    world.finish_behind_the_agents_back();
    world.restart();
    let used = world.cpu_used;
    world.run_until("the job is acknowledged", Duration::from_hours(2), |w| w.acknowledged("a") == 1);
    assert_eq!(world.cpu_used, used, "nothing is computed twice");
}

/// A world in which a task has finished and its outputs could not be taken.
fn with_a_finished_task_that_could_not_be_taken() -> World {
    let mut world = World::new(7);
    world.add_project("a", 1, Duration::from_secs(33));
    world.takes_nothing = true;
    world.event(Event::DocumentOffered(document(1, &[("a", 1.0)], small_buffers()).into()));
    world.run_until("a task runs", Duration::from_mins(10), |w| w.computing() == 1);
    world.run_until("it is gone", Duration::from_mins(10), |w| w.computing() == 0);
    world.takes_nothing = false;
    world
}

/// Sees to it that it was computed once, charged once, and reported with what it took.
fn is_charged_once(mut world: World) {
    world.run_until("the job is acknowledged", Duration::from_hours(2), |w| w.acknowledged("a") == 1);
    let (reported, charged) =
        (world.projects["a"].reports[0].final_cpu_time, world.client.host_view().cpu_time);
    let once = Duration::from_secs(33);
    assert_eq!((world.cpu_used, reported, charged), (once, once, once));
    // Nobody computes more than a second in a second, or the host would seem more efficient than it is.
    let elapsed = world.projects["a"].reports[0].final_elapsed_time;
    let apart = (elapsed - once).as_secs_f64().abs();
    assert!(apart < 2.0, "{elapsed}");
}

/// Shows R4.12.
#[test]
fn a_finished_job_that_is_taken_at_its_next_start_is_charged_once() {
    is_charged_once(with_a_finished_task_that_could_not_be_taken());
}

/// Shows R4.12.
#[test]
fn a_finished_job_that_is_taken_after_a_restart_is_charged_once() {
    let mut world = with_a_finished_task_that_could_not_be_taken();
    world.restart();
    is_charged_once(world);
}

#[test]
fn a_wrong_md5_fails_the_job_and_is_reported_with_the_file() {
    let mut world = World::new(9);
    world.add_project("a", 1, Duration::from_secs(30));
    world.fail_download = Some(TransferError::new(TransferErrorKind::WrongMd5, "MD5 is wrong"));
    world.event(Event::DocumentOffered(document(1, &[("a", 1.0)], small_buffers()).into()));
    world.run_until("the failure is acknowledged", Duration::from_hours(8), |w| w.acknowledged("a") == 1);
    let report = &world.projects["a"].reports[0];
    assert_eq!((report.exit_status, report.state.code()), (-186, 1));
    assert!(report.stderr_out.message.as_ref().unwrap().contains("-119"));
}

#[test]
fn a_project_dropped_by_the_document_loses_no_finished_work() {
    let mut world = World::new(10);
    world.add_project("a", 2, Duration::from_secs(30));
    world.add_project("b", 2, Duration::from_secs(30));
    world.event(Event::DocumentOffered(document(1, &[("a", 1.0), ("b", 1.0)], small_buffers()).into()));
    world.run_until("b has a job", Duration::from_mins(10), |w| {
        w.client.task_views().iter().any(|task| task.project_url.as_str().ends_with("/b/"))
    });
    let held = world.client.task_views().iter().filter(|t| t.project_url.as_str().ends_with("/b/")).count();
    world.event(Event::DocumentOffered(document(2, &[("a", 1.0)], small_buffers()).into()));
    world.run_until("b is gone", Duration::from_hours(3), |w| w.client.project_views().len() == 1);
    assert!(world.acknowledged("b") >= held as u64, "what it held was finished and reported");
}

#[test]
fn an_owner_can_detach_at_once() {
    let mut world = World::new(11);
    world.add_project("a", 2, Duration::from_secs(30));
    let url = MasterUrl::parse("http://127.0.0.1/a/").unwrap();
    world.event(world::attach_unseen(url.clone(), "k", Some(Share::DEFAULT)));
    world.run_until("a task runs", Duration::from_mins(30), |w| w.computing() > 0);
    world.event(Event::Detach { url });
    assert!(world.client.project_views().is_empty());
    assert!(world.client.task_views().is_empty());
    assert_eq!(world.computing(), 0);
}

/// Shows R1.10 and R5.12.
#[test]
fn the_same_events_at_the_same_times_give_the_same_effects() {
    let story = || {
        let mut world = World::new(12);
        world.add_project("a", 30, Duration::from_secs(30));
        world.add_project("b", 30, Duration::from_secs(20));
        world.event(Event::DocumentOffered(document(1, &[("a", 3.0), ("b", 1.0)], small_buffers()).into()));
        world.run_for(Duration::from_mins(20));
        world.log
    };
    assert_eq!(story(), story());
}

#[test]
fn r1_12_a_clock_that_jumps_back_by_a_year_stops_nothing() {
    let mut world = World::new(13);
    world.add_project("a", 40, Duration::from_secs(30));
    world.event(Event::DocumentOffered(document(1, &[("a", 1.0)], small_buffers()).into()));
    world.run_until("some jobs are done", Duration::from_hours(1), |w| w.acknowledged("a") >= 3);
    world.jump(Duration::from_hours(-365 * 24));
    let done = world.acknowledged("a");
    world.run_until("more jobs are done", Duration::from_hours(1), |w| w.acknowledged("a") >= done + 3);
}

#[test]
fn what_a_newer_version_stored_is_refused_with_advice() {
    let config = ClientConfig::new(1, world::version());
    let error = Client::restore(config, [(b"meta".to_vec(), b"9{}".to_vec())]).unwrap_err();
    assert!(error.to_string().contains("newer than this version's"), "{error}");
}

#[test]
fn a_task_that_exits_without_finishing_is_started_again_and_in_the_end_given_up() {
    let mut world = World::new(14);
    world.add_project("a", 1, Duration::from_secs(30));
    world.never_finishes = true;
    world.event(Event::DocumentOffered(document(1, &[("a", 1.0)], small_buffers()).into()));
    world.run_until("the failure is acknowledged", Duration::from_hours(24), |w| w.acknowledged("a") == 1);
    assert_eq!(world.projects["a"].reports[0].exit_status, -226);
}

#[test]
fn r6_2_a_task_that_exits_at_once_is_tried_with_growing_waits_a_few_times_only() {
    let mut world = World::new(14);
    world.add_project("a", 1, Duration::from_secs(300));
    world.exits_at_once = true;
    world.event(Event::DocumentOffered(document(1, &[("a", 1.0)], small_buffers()).into()));
    world.run_until("the failure is acknowledged", Duration::from_hours(2), |w| w.acknowledged("a") == 1);
    assert_eq!(world.projects["a"].reports[0].exit_status, -226);
    assert_eq!(world.start_times.len(), 5, "{:?}", world.start_times);
    let waits: Vec<Duration> = world.start_times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(waits[0] >= Duration::from_secs(10), "{waits:?}");
    assert!(waits.windows(2).all(|pair| pair[1] > pair[0]), "each wait is longer: {waits:?}");
    let said = |text: &str| world.notices.iter().any(|notice| notice.contains(text));
    assert!(said("has told of no checkpoint"), "{:?}", world.notices);
    assert!(!said("resuming"), "{:?}", world.notices);
}

#[test]
fn a_host_that_cannot_start_a_task_fails_no_job_and_waits_longer_each_time() {
    let mut world = World::new(14);
    world.add_project("a", 1, Duration::from_secs(30));
    world.fail_starts = 4;
    world.event(Event::DocumentOffered(document(1, &[("a", 1.0)], small_buffers()).into()));
    world.run_until("the job is done", Duration::from_hours(2), |w| w.acknowledged("a") == 1);
    assert_eq!(world.projects["a"].reports[0].exit_status, 0);
    let waits: Vec<Duration> = world.start_times[..5].windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(waits.windows(2).all(|pair| pair[1] > pair[0]), "{waits:?}");
    assert!(world.notices.iter().any(|notice| notice.contains("this host's trouble, not the job's")));
}

#[test]
fn r6_10_a_slot_that_cannot_be_emptied_is_left_for_another() {
    let mut world = World::new(14);
    world.add_project("a", 1, Duration::from_secs(30));
    world.fault = Some(fallow_client::StartFault::Slot);
    world.event(Event::DocumentOffered(document(1, &[("a", 1.0)], small_buffers()).into()));
    world.run_until("the job is done", Duration::from_hours(2), |w| w.acknowledged("a") == 1);
    assert_eq!(world.projects["a"].reports[0].exit_status, 0);
    let starts: Vec<&String> = world.log.iter().filter(|line| line.contains(" start ")).collect();
    assert!(starts[0].contains(" in 0,") && starts[1].contains(" in 1,"), "{starts:?}");
}

#[test]
fn r6_10_a_file_that_was_changed_since_it_came_is_fetched_again_and_no_job_fails() {
    let mut world = World::new(14);
    world.add_project("a", 1, Duration::from_secs(30));
    world.fault = Some(fallow_client::StartFault::Files(vec!["a_app".to_owned()]));
    world.event(Event::DocumentOffered(document(1, &[("a", 1.0)], small_buffers()).into()));
    world.run_until("the job is done", Duration::from_hours(2), |w| w.acknowledged("a") == 1);
    assert_eq!(world.projects["a"].reports[0].exit_status, 0);
    let fetched = world.log.iter().filter(|line| line.contains("download a_app")).count();
    assert_eq!(fetched, 2, "{:#?}", world.log);
}

#[test]
fn nothing_is_done_before_it_is_stored() {
    // The shell stores a step's changes before it acts; so the record of a started task is in the very same
    // step.
    let mut world = World::new(15);
    world.add_project("a", 1, Duration::from_secs(30));
    world.event(Event::DocumentOffered(document(1, &[("a", 1.0)], small_buffers()).into()));
    world.run_until("a task runs", Duration::from_mins(10), |w| w.computing() == 1);
    let client = world.restored();
    assert_eq!(client.task_views().len(), 1);
    assert_eq!(
        client.task_views()[0].phase,
        Phase::Preempted,
        "begun, and without a process after a restart"
    );
}

#[test]
fn r2_8_a_limit_on_cpu_time_is_kept_smoothly_and_counted_apart() {
    let mut world = World::new(16);
    world.add_project("a", 400, Duration::from_secs(30));
    let half = Preferences { cpu_time_fraction: Fraction::clamped(0.3), ..small_buffers() };
    world.event(Event::DocumentOffered(document(1, &[("a", 1.0)], half).into()));
    world.run_until("a task computes", Duration::from_mins(10), |w| w.cpu_used > Duration::from_secs(1));
    let before = world.cpu_used;
    world.run_for(Duration::from_mins(20));
    let fraction = (world.cpu_used - before).as_secs_f64() / 1_200.0;
    assert!((fraction - 0.3).abs() < 0.02, "{fraction}");
    let throttled = world.client.host_view().figures[0].throttled.as_secs_f64();
    assert!((throttled / 1_200.0 - 0.7).abs() < 0.03, "{throttled} s");
    assert!(world.client.host_view().figures[0].idleness.unwrap().get() < 0.02, "throttled is not idle");
    let finished = world.client.totals().jobs_success;
    assert!(finished >= 10, "{finished} jobs");
    world.event(Event::DocumentOffered(document(2, &[("a", 1.0)], small_buffers()).into()));
    let before = world.cpu_used;
    world.run_for(Duration::from_mins(10));
    assert!((world.cpu_used - before).as_secs_f64() > 590.0, "without a limit it computes all the time");
}

#[test]
fn a_task_whose_files_outgrow_what_its_project_allows_is_aborted_with_196() {
    let mut world = World::new(40);
    world.add_project("a", 1, Duration::from_secs(600));
    world.alter = Some(|reply, _| {
        reply.workunits.iter_mut().for_each(|workunit| workunit.rsc_disk_bound = Some(Bytes(5_000_000)));
    });
    world.event(Event::DocumentOffered(document(1, &[("a", 1.0)], small_buffers()).into()));
    let holds = |bytes| Some(DiskHeld { all: Bytes(bytes), ..DiskHeld::default() });
    world.disk_held = holds(5_000_000);
    world.run_until("a task computes", Duration::from_mins(10), |w| w.computing() == 1);
    world.run_for(Duration::from_mins(1));
    assert_eq!(world.computing(), 1, "as much as it may hold");
    world.disk_held = holds(5_000_001);
    world.run_until("the report", Duration::from_hours(30), |w| w.acknowledged("a") == 1);
    let report = &world.projects["a"].reports[0];
    assert_eq!((report.exit_status, report.state.code()), (196, 3));
    assert_eq!(world.slots_in_use(), 0);
}

#[test]
fn r4_8_a_task_whose_files_cannot_be_counted_or_have_no_name_is_held_to_its_bound_all_the_same() {
    let held =
        |uncounted, nameless| DiskHeld { all: Bytes(nameless + 1), nameless: Bytes(nameless), uncounted };
    let table = [
        (held(Some(Uncounted::TooMany), 0), "they are too many"),
        (held(Some(Uncounted::Moved), 0), "it moves them about"),
        (held(Some(Uncounted::Closed), 0), "it keeps the agent from looking"),
        (held(None, 6_000_000), "6 MB of it without a name and open"),
    ];
    for (held, says) in table {
        let mut world = World::new(40);
        world.add_project("a", 1, Duration::from_secs(600));
        world.alter = Some(|reply, _| {
            let bound = Some(Bytes(5_000_000));
            reply.workunits.iter_mut().for_each(|workunit| workunit.rsc_disk_bound = bound);
        });
        world.event(Event::DocumentOffered(document(1, &[("a", 1.0)], small_buffers()).into()));
        world.run_until("a task computes", Duration::from_mins(10), |w| w.computing() == 1);
        world.disk_held = Some(held);
        world.run_until("the report", Duration::from_hours(30), |w| w.acknowledged("a") == 1);
        let report = &world.projects["a"].reports[0];
        assert_eq!((report.exit_status, report.state.code()), (196, 3), "{held:?}");
        let said = report.stderr_out.message.as_ref().unwrap();
        assert!(said.contains(says), "{said}");
    }
}

#[test]
fn r6_10_a_task_that_runs_longer_than_its_project_allows_is_aborted_with_197() {
    let mut world = World::new(44);
    world.add_project("a", 1, Duration::from_secs(600));
    // 130 s of this host; what is less than two minutes is no bound that a project can have meant.
    world.alter = Some(|reply, _| {
        reply.workunits.iter_mut().for_each(|workunit| workunit.rsc_fpops_bound = Flops::new(1.3e11).ok());
    });
    world.event(Event::DocumentOffered(document(1, &[("a", 1.0)], small_buffers()).into()));
    world.run_until("a task computes", Duration::from_mins(10), |w| w.computing() == 1);
    world.run_for(Duration::from_secs(128));
    assert_eq!(world.computing(), 1);
    world.run_until("the report", Duration::from_hours(30), |w| w.acknowledged("a") == 1);
    let report = &world.projects["a"].reports[0];
    assert_eq!((report.exit_status, report.state.code()), (197, 3));
    // It was asked first: nobody suffers from it.
    assert_eq!((world.killed, world.slots_in_use()), (0, 0));
}

#[test]
fn r6_10_a_task_of_too_many_processes_or_too_much_memory_is_killed_and_others_go_on() {
    // This host's: two CPUs, and nine tenths of its memory.
    for (exit_status, says, take) in [
        (194, "1033 processes", (|w: &mut World| w.threads = 1_033) as fn(&mut World)),
        (198, "working set", |w| w.working_set = host().memory),
    ] {
        let mut world = World::new(43);
        world.add_project("a", 1, Duration::from_secs(600));
        world.event(Event::DocumentOffered(document(1, &[("a", 1.0)], small_buffers()).into()));
        world.threads = 1_032;
        world.run_until("a task computes", Duration::from_mins(10), |w| w.computing() == 1);
        world.run_for(Duration::from_mins(1));
        assert_eq!((world.computing(), world.killed), (1, 0), "as many as it may have");
        take(&mut world);
        world.run_until("the report", Duration::from_hours(30), |w| w.acknowledged("a") == 1);
        let report = &world.projects["a"].reports[0];
        assert_eq!((report.exit_status, report.state.code()), (exit_status, 3));
        let said = report.stderr_out.message.as_ref().unwrap();
        assert!(said.contains(says), "{said}");
        assert_eq!((world.killed, world.slots_in_use()), (1, 0));
    }
}

#[test]
fn r6_10_a_task_that_held_too_much_when_it_was_stopped_is_not_started_again() {
    let mut world = World::new(40);
    world.add_project("a", 1, Duration::from_secs(600));
    // A task of this world leaves 1,000 bytes.
    world.alter = Some(|reply, _| {
        reply.workunits.iter_mut().for_each(|workunit| workunit.rsc_disk_bound = Some(Bytes(999)));
    });
    world.exits_at_once = true;
    world.event(Event::DocumentOffered(document(1, &[("a", 1.0)], small_buffers()).into()));
    world.run_until("the report", Duration::from_hours(30), |w| w.acknowledged("a") == 1);
    let report = &world.projects["a"].reports[0];
    assert_eq!((report.exit_status, report.state.code()), (196, 3));
    assert_eq!((world.start_times.len(), world.slots_in_use()), (1, 0));
}

#[test]
fn a_finished_task_in_the_slot_of_another_job_is_not_taken_for_that_jobs() {
    let mut world = World::new(41);
    world.add_project("a", 1, Duration::from_secs(60));
    world.event(Event::DocumentOffered(document(1, &[("a", 1.0)], small_buffers()).into()));
    world.run_until("a task computes", Duration::from_mins(10), |w| w.computing() == 1);
    world.find_finished_tasks_of_others();
    world.run_until("the report", Duration::from_hours(30), |w| w.acknowledged("a") == 1);
    let report = &world.projects["a"].reports[0];
    assert_eq!((report.exit_status, report.state.code()), (0, 5));
    assert!(report.final_cpu_time >= Duration::from_secs(60), "it was computed: {}", report.final_cpu_time);
}

#[test]
fn a_host_that_goes_away_computes_nothing_is_called_for_nothing_and_counts_as_off() {
    let mut world = World::new(7);
    world.add_project("alpha", 50, Duration::from_mins(20));
    world.event(Event::DocumentOffered(document(1, &[("alpha", 100.0)], small_buffers()).into()));
    world.run_for(Duration::from_mins(5));
    let before = world.client.host_view().cpu_time;
    let step = world.client.handle(world.now, Event::HostAway);
    assert!(step.actions.is_empty() && step.wake_at.is_none());
    let back = world.now + Duration::from_hours(2);
    let step = world.client.handle(back, Event::HostBack);
    assert!(step.wake_at.is_some());
    assert_eq!(world.client.host_view().cpu_time, before);
    let idleness = world.client.host_view().figures[0].idleness.unwrap();
    assert!(idleness.get() < 0.5, "time away is not available time: {idleness}");
}
