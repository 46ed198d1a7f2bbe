//! What must hold when things go wrong in the middle: crashes, clocks, servers that say odd things, processes
//! that take their time.

use fallow_boinc::scheduler::FileInfo;
use fallow_client::{Event, FileKey, Phase, RequestedBy, TransferError, TransferErrorKind};
use fallow_domain::{Duration, Fraction, MasterUrl, Preferences, ProjectId};

use crate::hand::KEY;
use crate::life::{document, small_buffers};
use crate::world::{World, attach_unseen};

pub(crate) fn both_cpus() -> Preferences {
    Preferences { cpu_fraction: Fraction::ONE, ..small_buffers() }
}

pub(crate) fn url(name: &str) -> MasterUrl {
    MasterUrl::parse(&format!("http://127.0.0.1/{name}/")).unwrap()
}

pub(crate) fn attach(name: &str) -> Event {
    attach_unseen(url(name), KEY, None)
}

#[track_caller]
fn assert_all_cpu_time_is_counted_once(world: &World) {
    let totals = world.client.totals();
    let (counted, used) = (totals.cpu.as_secs_f64(), world.cpu_used.as_secs_f64());
    assert!((counted - used).abs() < 1.1, "counted {counted}, used {used}");
    let parts = totals.cpu_in_progress + totals.cpu_success + totals.cpu_error + totals.cpu_late;
    assert_eq!(parts, totals.cpu);
}

#[test]
fn an_agent_killed_twice_in_a_row_charges_the_lost_work_once() {
    let mut world = World::new(101);
    world.add_project("a", 1, Duration::from_secs(300));
    world.event(Event::DocumentOffered(document(1, &[("a", 1.0)], small_buffers()).into()));
    world.run_until("some work", Duration::from_mins(10), |w| w.longest_task() >= Duration::from_secs(48));
    world.event(Event::OwnerSuspended(true));
    for _ in 0..3 {
        world.restart();
    }
    assert_all_cpu_time_is_counted_once(&world);
}

#[test]
fn a_task_that_left_memory_is_not_charged_again_after_a_restart() {
    let mut world = World::new(102);
    world.add_project("a", 1, Duration::from_secs(300));
    let leaving = Preferences { leave_in_memory: false, ..small_buffers() };
    world.event(Event::DocumentOffered(document(1, &[("a", 1.0)], leaving).into()));
    world.run_until("some work", Duration::from_mins(10), |w| w.longest_task() >= Duration::from_secs(48));
    world.event(Event::OwnerSuspended(true));
    world.run_for(Duration::from_secs(30));
    assert_eq!(world.computing(), 0);
    world.restart();
    assert_all_cpu_time_is_counted_once(&world);
}

#[test]
fn a_task_whose_start_could_not_be_noted_on_a_full_disk_keeps_its_cpu_time_and_its_checkpoint() {
    let mut world = World::new(103);
    world.add_project("a", 1, Duration::from_secs(300));
    world.fill_disk_after_start = true;
    world.event(Event::DocumentOffered(document(1, &[("a", 1.0)], small_buffers()).into()));
    world.run_until("some work", Duration::from_mins(10), |w| w.longest_task() >= Duration::from_secs(48));
    world.restart();
    let task = &world.client.task_views()[0];
    assert!(task.checkpoint_cpu_time >= Duration::from_secs(43), "{task:?}");
    assert_all_cpu_time_is_counted_once(&world);
    world.restart();
    assert_all_cpu_time_is_counted_once(&world);
}

#[test]
fn a_task_that_falls_back_to_its_checkpoint_shows_the_fraction_done_of_then() {
    let mut world = World::new(104);
    world.add_project("a", 1, Duration::from_secs(300));
    world.event(Event::DocumentOffered(document(1, &[("a", 1.0)], small_buffers()).into()));
    world.run_until("some work", Duration::from_mins(10), |w| w.longest_task() >= Duration::from_secs(48));
    world.event(Event::OwnerSuspended(true));
    world.restart();
    let task = &world.client.task_views()[0];
    let expected = task.checkpoint_cpu_time.as_secs_f64() / 300.0;
    assert!(task.cpu_time == task.checkpoint_cpu_time, "{task:?}");
    assert!((task.fraction_done - expected).abs() < 0.01, "{task:?}, expected {expected}");
}

#[test]
fn r6_1_a_project_of_the_document_that_its_owner_detached_stays_so_until_he_attaches_it() {
    let mut world = World::new(105);
    world.add_project("a", 100, Duration::from_secs(30));
    world.add_project("b", 100, Duration::from_secs(30));
    let both = |version| {
        Event::DocumentOffered(document(version, &[("a", 1.0), ("b", 1.0)], small_buffers()).into())
    };
    world.event(both(1));
    world.event(Event::Detach { url: url("a") });
    world.event(both(2));
    world.restart();
    world.event(Event::DocumentOffered(document(3, &[("b", 1.0)], small_buffers()).into()));
    world.event(both(4));
    let names = |world: &World| -> Vec<String> {
        world.client.project_views().into_iter().map(|view| view.name).collect()
    };
    assert_eq!(names(&world), ["b"]);
    assert_eq!(world.client.host_view().declined, [url("a")]);
    world.event(attach_unseen(url("a"), &"f".repeat(32), None));
    assert_eq!(names(&world), ["b"], "the document names another account");
    world.event(attach_unseen(url("a"), KEY, None));
    assert_eq!(names(&world), ["b", "a"]);
    assert!(world.client.host_view().declined.is_empty());
    assert!(world.view("a").from_document);
}

#[test]
fn crashes_at_any_time_lose_no_job_and_count_every_cpu_second_once() {
    for seed in 0..12_u64 {
        let mut world = World::new(1_000 + seed);
        world.add_project("a", 6, Duration::from_secs(37));
        world.add_project("b", 6, Duration::from_secs(23));
        world.event(Event::DocumentOffered(document(1, &[("a", 2.0), ("b", 1.0)], both_cpus()).into()));
        for crash in 0..25 {
            world.run_for(Duration::from_secs((3 + (seed * 7 + crash * 5) % 17) as i64));
            world.restart();
        }
        world.run_until("all jobs acknowledged", Duration::from_hours(12), |w| {
            w.client.task_views().is_empty() && w.acknowledged("a") >= 1 && w.acknowledged("b") >= 1
        });
        let totals = world.client.totals();
        let (counted, used) = (totals.cpu.as_secs_f64(), world.cpu_used.as_secs_f64());
        assert!((counted - used).abs() < 1.1, "seed {seed}: counted {counted}, used {used}");
        assert_eq!(totals.cpu_in_progress, Duration::ZERO, "seed {seed}");
        assert_eq!(world.slots_in_use(), 0, "seed {seed}: every slot is given back");
        assert_eq!(world.stored("job/") + world.stored("workunit/"), 0, "seed {seed}");
        assert_eq!(world.stored("file/"), 2, "seed {seed}: only the two programs are left");
    }
}

#[test]
fn a_job_aborted_before_a_crash_is_reported_after_it_and_not_computed_again() {
    let mut world = World::new(103);
    world.add_project("a", 1, Duration::from_secs(300));
    world.alter = Some(|reply, before| {
        if before > 0 {
            reply.result_aborts = vec!["a_0_0".to_owned()];
        }
    });
    world.event(Event::DocumentOffered(document(1, &[("a", 1.0)], small_buffers()).into()));
    world.run_until("some work", Duration::from_mins(10), |w| w.longest_task() >= Duration::from_secs(20));
    world.event(Event::ContactRequested { url: url("a"), by: RequestedBy::Fleet });
    world.run_until("the abort", Duration::from_mins(10), |w| w.computing() == 0);
    world.restart();
    let used = world.cpu_used;
    world.run_until("the report", Duration::from_hours(3), |w| w.acknowledged("a") == 1);
    assert_eq!(world.projects["a"].reports[0].exit_status, 202);
    assert_eq!(world.cpu_used, used);
    assert_all_cpu_time_is_counted_once(&world);
}

#[test]
fn the_slot_of_a_forgotten_job_is_left_alone_until_its_process_is_gone() {
    let mut world = World::new(104);
    world.add_project("a", 2, Duration::from_secs(300));
    world.add_project("b", 9, Duration::from_secs(300));
    world.event(Event::DocumentOffered(document(1, &[("a", 9.0), ("b", 1.0)], small_buffers()).into()));
    world.run_until("both have work", Duration::from_mins(30), |w| {
        let of = |name: &str| w.client.task_views().iter().any(|t| t.project_url == url(name));
        w.computing() == 1 && of("a") && of("b")
    });
    // The world asserts that nobody else comes into a slot before its process has left.
    world.event(Event::Detach { url: url("a") });
    world.run_until("b computes", Duration::from_mins(5), |w| w.computing() == 1);
    world.run_for(Duration::from_mins(2));
    assert_eq!(world.slots_in_use(), 1, "the forgotten job's slot is empty now");
}

#[test]
fn a_file_that_was_given_up_is_tried_again_for_the_next_job() {
    let mut world = World::new(105);
    world.add_project("a", 40, Duration::from_secs(30));
    world.fail_suffix = "_app";
    world.fail_download = Some(TransferError::new(TransferErrorKind::Permanent, "404"));
    // Later replies do not describe again what the client has.
    world.alter = Some(|reply, before| {
        if before > 0 {
            reply.app_versions.clear();
            reply.files.retain(|file| !file.name.ends_with("_app"));
        }
    });
    let one_by_one = Preferences {
        buffer_min: Duration::from_secs(10),
        buffer_additional: Duration::ZERO,
        ..small_buffers()
    };
    world.event(Event::DocumentOffered(document(1, &[("a", 1.0)], one_by_one).into()));
    world.run_until("a failure", Duration::from_hours(3), |w| w.client.totals().jobs_error > 0);
    world.fail_download = None;
    world.run_until("a success", Duration::from_hours(12), |w| w.client.totals().jobs_success > 0);
}

#[test]
fn a_job_whose_file_its_project_never_described_fails_and_is_reported() {
    let mut world = World::new(106);
    world.add_project("a", 1, Duration::from_secs(30));
    world.alter = Some(|reply, _| reply.files.retain(|file| !file.name.ends_with("_in")));
    world.event(Event::DocumentOffered(document(1, &[("a", 1.0)], small_buffers()).into()));
    world.run_until("the failure is acknowledged", Duration::from_hours(8), |w| w.acknowledged("a") == 1);
    assert_eq!(world.projects["a"].reports[0].exit_status, -186);
}

#[test]
fn r5_31_a_late_job_counts_as_wasted_while_its_outputs_are_on_their_way_too() {
    let mut world = World::new(135);
    world.add_project("a", 1, Duration::from_secs(30));
    world.fail_upload = Some(TransferError::new(TransferErrorKind::Transient, "no connection"));
    world.event(Event::DocumentOffered(document(1, &[("a", 1.0)], small_buffers()).into()));
    let uploading = |w: &World| w.client.task_views().iter().any(|task| task.phase == Phase::Uploading);
    world.run_until("an upload fails", Duration::from_mins(10), uploading);
    let waste = |w: &World| w.client.host_view().figures[2].waste.map(Fraction::get);
    assert!(waste(&world).is_none_or(|waste| waste == 0.0), "it is in time so far");
    world.jump(Duration::from_hours(8 * 24));
    world.run_for(Duration::from_secs(2));
    assert!(uploading(&world));
    assert_eq!(waste(&world), Some(1.0));
}

#[test]
fn a_host_that_slept_for_days_does_not_blame_its_jobs() {
    let mut world = World::new(109);
    world.add_project("a", 1, Duration::from_secs(60));
    world.event(Event::DocumentOffered(document(1, &[("a", 1.0)], small_buffers()).into()));
    world.run_until("some work", Duration::from_mins(10), |w| w.longest_task() >= Duration::from_secs(20));
    world.jump(Duration::from_hours(5 * 24));
    world.run_until("the job is done", Duration::from_hours(3), |w| w.acknowledged("a") == 1);
    let report = &world.projects["a"].reports[0];
    assert_eq!(report.exit_status, 0);
    assert!(report.final_elapsed_time < Duration::from_mins(3), "{}", report.final_elapsed_time);
    assert!(report.final_elapsed_time >= Duration::from_secs(60), "{}", report.final_elapsed_time);
}

#[test]
fn r5_8_a_learned_correction_holds_for_the_jobs_already_queued() {
    let mut world = World::new(110);
    world.add_project("a", 1_000, Duration::from_secs(30));
    world.slowness = 4.0;
    let buffers = Preferences {
        buffer_min: Duration::from_secs(1_000),
        buffer_additional: Duration::from_secs(60),
        ..small_buffers()
    };
    world.event(Event::DocumentOffered(document(1, &[("a", 1.0)], buffers).into()));
    world.run_until("one is finished", Duration::from_hours(1), |w| {
        w.notices().any(|text| text.starts_with("finished"))
    });
    let sent = world.projects["a"].sent;
    world.run_for(Duration::from_mins(30));
    assert_eq!(world.projects["a"].sent, sent, "what is queued lasts for an hour");
}

#[test]
fn r5_33_a_cpu_that_goes_to_another_project_when_a_job_ends_counts_as_switched() {
    let mut world = World::new(112);
    world.add_project("a", 400, Duration::from_secs(30));
    world.add_project("b", 400, Duration::from_secs(30));
    let slices = Preferences { scheduling_period: Duration::from_secs(60), ..small_buffers() };
    world.event(Event::DocumentOffered(document(1, &[("a", 1.0), ("b", 1.0)], slices).into()));
    world.run_for(Duration::from_hours(1));
    let monotony = world.client.host_view().figures[0].monotony.unwrap().get();
    assert!(monotony < 0.5, "{monotony}");
}

#[test]
fn what_came_as_an_input_is_fetched_anew_when_it_becomes_part_of_a_program() {
    let mut world = World::new(113);
    world.add_project("a", 2, Duration::from_secs(30));
    world.alter = Some(|reply, before| {
        if before > 0 {
            for version in &mut reply.app_versions {
                version.version_num = 101;
                version.files[0].file_name = "a_0_in".to_owned();
            }
            for result in &mut reply.results {
                result.version_num = 101;
            }
        }
    });
    let one_by_one = Preferences {
        buffer_min: Duration::from_secs(10),
        buffer_additional: Duration::ZERO,
        ..small_buffers()
    };
    world.event(Event::DocumentOffered(document(1, &[("a", 1.0)], one_by_one).into()));
    world.run_until("both are done", Duration::from_hours(6), |w| w.acknowledged("a") == 2);
    let fetched = world.log.iter().filter(|line| line.contains("download a_0_in")).count();
    assert_eq!(fetched, 2);
}

#[test]
fn files_that_no_job_came_with_leave_no_record() {
    let mut world = World::new(114);
    world.add_project("a", 1, Duration::from_secs(30));
    world.alter =
        Some(|reply, _| reply.files.push(FileInfo { name: "stray".to_owned(), ..FileInfo::default() }));
    world.event(Event::DocumentOffered(document(1, &[("a", 1.0)], small_buffers()).into()));
    world.run_until("done", Duration::from_hours(3), |w| w.acknowledged("a") == 1);
    world.run_for(Duration::from_secs(5));
    assert_eq!(world.stored("file/"), 1, "the program only");
}

#[test]
fn r4_12_files_without_an_owner_are_removed_at_the_next_start() {
    let mut world = World::new(115);
    world.add_project("a", 2, Duration::from_secs(30));
    world.event(Event::DocumentOffered(document(1, &[("a", 1.0)], small_buffers()).into()));
    world.run_until("a task runs", Duration::from_mins(10), |w| w.computing() == 1);
    world.leave_behind(FileKey { project: ProjectId(0), name: "stray".to_owned() });
    world.restart();
    assert!(!world.has_file("stray"));
    assert!(world.has_file("a_app"));
}

#[test]
fn a_slot_that_a_failed_start_left_half_filled_is_filled_anew() {
    let mut world = World::new(116);
    world.add_project("a", 1, Duration::from_secs(30));
    world.fail_starts = 2;
    world.event(Event::DocumentOffered(document(1, &[("a", 1.0)], small_buffers()).into()));
    world.run_until("the job is done", Duration::from_hours(3), |w| w.acknowledged("a") == 1);
    assert_eq!(world.log.iter().filter(|line| line.contains("start a_0_0 in 0, fresh")).count(), 3);
}

#[test]
fn a_backlog_of_reports_goes_out_in_several_requests_and_every_job_is_told_of_in_each() {
    let mut world = World::new(119);
    world.add_project("a", 600, Duration::from_secs(2));
    let buffers = Preferences {
        buffer_min: Duration::from_secs(1_300),
        buffer_additional: Duration::from_secs(60),
        ..both_cpus()
    };
    world.event(Event::DocumentOffered(document(1, &[("a", 1.0)], buffers).into()));
    world.run_until("all are here", Duration::from_hours(1), |w| w.client.task_views().len() == 600);
    world.projects.get_mut("a").unwrap().down = true;
    world.run_for(Duration::from_mins(40));
    world.projects.get_mut("a").unwrap().down = false;
    world.requests.clear();
    world.run_until("all are acknowledged", Duration::from_hours(8), |w| w.acknowledged("a") == 600);
    let counts = |text: &String| (text.matches("<result>").count(), text.matches("<other_result>").count());
    let counts: Vec<_> = world.requests.iter().map(counts).collect();
    assert!(counts.iter().all(|(reported, _)| *reported <= 256), "{counts:?}");
    let mut left = 600;
    for (reported, other) in counts {
        assert_eq!(reported + other, left);
        left -= reported;
    }
}

/// A stream of numbers for stories that are to be the same every time.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

#[test]
fn whatever_owners_coordinators_and_crashes_do_the_books_balance_and_the_work_gets_done() {
    for seed in 0..10 {
        let mut dice = Dice(seed);
        let mut world = World::new(2_000 + seed);
        world.add_project("a", 40, Duration::from_secs(41));
        world.add_project("b", 40, Duration::from_secs(7));
        let mut version = 1;
        world.event(Event::DocumentOffered(document(version, &[("a", 1.0), ("b", 1.0)], both_cpus()).into()));
        for _ in 0..60 {
            world.run_for(Duration::from_secs(1 + dice.roll(40) as i64));
            match dice.roll(12) {
                0 => world.restart(),
                1 => world.event(Event::OwnerSuspended(true)),
                2 | 3 => world.event(Event::OwnerSuspended(false)),
                4 => world.event(Event::Detach { url: url(["a", "b"][dice.roll(2) as usize]) }),
                5 => {
                    version += 1;
                    let preferences = Preferences { leave_in_memory: dice.roll(2) == 0, ..both_cpus() };
                    let preferences = if dice.roll(2) == 0 { preferences } else { small_buffers() };
                    let shares = [("a", 1.0 + dice.roll(9) as f64), ("b", 1.0)];
                    world.event(Event::DocumentOffered(document(version, &shares, preferences).into()));
                }
                6 => {
                    version += 1;
                    world.event(Event::DocumentOffered(document(version, &[("a", 1.0)], both_cpus()).into()));
                }
                7 => world.fail_starts = 2,
                8 => world.jump(Duration::from_secs(dice.roll(20_000) as i64 - 10_000)),
                9 => world.event(Event::ContactRequested { url: url("a"), by: RequestedBy::Fleet }),
                10 => world.event(attach(["a", "b"][dice.roll(2) as usize])),
                _ => {}
            }
        }
        world.event(Event::OwnerSuspended(false));
        version += 1;
        world.event(Event::DocumentOffered(document(version, &[("a", 1.0), ("b", 1.0)], both_cpus()).into()));
        world.event(attach("a"));
        world.event(attach("b"));
        world.run_until("all jobs are over", Duration::from_hours(24), |w| {
            w.client.task_views().is_empty() && w.projects.values().all(|project| project.sent == 40)
        });
        world.run_for(Duration::from_mins(1));
        assert_eq!(world.slots_in_use(), 0, "seed {seed}: every slot is given back");
        assert_eq!(world.stored("job/") + world.stored("workunit/"), 0, "seed {seed}");
        let totals = world.client.totals();
        assert_eq!(totals.cpu_in_progress, Duration::ZERO, "seed {seed}");
        assert_eq!(totals.cpu_success + totals.cpu_error + totals.cpu_late, totals.cpu, "seed {seed}");
        let (counted, used) = (totals.cpu.as_secs_f64(), world.cpu_used.as_secs_f64());
        // What a detached task uses while it leaves is nobody's any more.
        assert!(
            counted <= used + 1.1 && counted >= used - 40.0,
            "seed {seed}: counted {counted}, used {used}"
        );
    }
}
