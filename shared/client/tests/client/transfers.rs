//! Which transfer begins when: the order of files, mirrors, and projects beside each other.

use fallow_boinc::scheduler::SchedulerReply;
use fallow_client::{Direction, Event, Traffic, TransferError, TransferErrorKind};
use fallow_domain::{Bytes, Duration, Fraction, Preferences};

use crate::life::{document, small_buffers};
use crate::world::World;

fn with_a_dead_mirror(reply: &mut SchedulerReply, _: usize) {
    for file in reply.files.iter_mut().filter(|file| !file.download_urls.is_empty()) {
        file.download_urls.insert(0, format!("http://dead/{}", file.name));
    }
}

/// One that holds many jobs.
fn large_buffers() -> Preferences {
    Preferences { buffer_min: Duration::from_hours(2), ..small_buffers() }
}

#[test]
fn r6_2_a_dead_first_mirror_costs_no_wait_for_the_second() {
    let mut world = World::new(201);
    world.add_project("a", 1, Duration::from_secs(30));
    world.alter = Some(with_a_dead_mirror);
    world.dead_mirror = Some("//dead/");
    world.event(Event::DocumentOffered(document(1, &[("a", 1.0)], small_buffers()).into()));
    world.run_until("the job arrives", Duration::from_mins(1), |w| w.projects["a"].sent == 1);
    world.run_until("it runs", Duration::from_secs(10), |w| w.computing() == 1);
    // Nothing is held against the project's server.
    assert!(!world.notices().any(|text| text.contains("trying again in")), "{:?}", world.notices);
}

#[test]
fn a_file_that_no_mirror_gives_waits_once_and_begins_with_the_first_again() {
    let mut world = World::new(202);
    world.add_project("a", 1, Duration::from_secs(30));
    world.alter = Some(with_a_dead_mirror);
    world.fail_download = Some(TransferError::new(TransferErrorKind::Transient, "no connection"));
    world.event(Event::DocumentOffered(document(1, &[("a", 1.0)], small_buffers()).into()));
    let tried = |world: &World| -> Vec<(f64, bool)> {
        let tries = world.transfers.iter().filter(|(_, name, _)| name == "a_0_in");
        tries.map(|(at, _, from)| (at.as_secs_f64(), from.contains("//dead/"))).collect()
    };
    world.run_until("four tries", Duration::from_hours(1), |w| tried(w).len() == 4);
    let tries = tried(&world);
    let dead: Vec<bool> = tries.iter().map(|(_, dead)| *dead).collect();
    assert_eq!(dead, [true, false, true, false]);
    assert!(tries[1].0 - tries[0].0 < 2.0 && tries[3].0 - tries[2].0 < 2.0, "{tries:?}");
    assert!((119.0..242.0).contains(&(tries[2].0 - tries[1].0)), "{tries:?}");
}

#[test]
fn r6_2_the_application_comes_first_and_then_the_inputs_in_the_order_of_their_jobs() {
    let mut world = World::with_a_buffer(203);
    world.add_project("a", 40, Duration::from_secs(60));
    // The application sorts behind all its inputs by name, and the job of the first name is due last.
    world.alter = Some(|reply, _| {
        let sent = reply.results.len() as i64;
        for (n, result) in reply.results.iter_mut().enumerate() {
            result.report_deadline = result.report_deadline + Duration::from_hours(sent - n as i64);
        }
    });
    world.event(Event::DocumentOffered(document(1, &[("a", 1.0)], large_buffers()).into()));
    world.run_until("all inputs", Duration::from_mins(2), |w| w.transfers.len() >= 41);
    let names: Vec<&str> = world.transfers.iter().map(|(_, name, _)| name.as_str()).collect();
    assert_eq!(names[0], "a_app");
    // The first request asks for no more than one job; the others come with the second.
    assert_eq!(names[1], "a_0_in");
    let expected: Vec<String> = (1..40).rev().map(|n| format!("a_{n}_in")).collect();
    assert_eq!(names[2..41], expected);
}

#[test]
fn an_application_whose_first_mirror_is_dead_is_tried_elsewhere_before_any_input() {
    let mut world = World::with_a_buffer(208);
    world.add_project("a", 40, Duration::from_secs(60));
    world.alter = Some(|reply, _| {
        for file in reply.files.iter_mut().filter(|file| file.name.ends_with("_app")) {
            file.download_urls.insert(0, format!("http://dead/{}", file.name));
        }
    });
    world.dead_mirror = Some("//dead/");
    world.event(Event::DocumentOffered(document(1, &[("a", 1.0)], large_buffers()).into()));
    world.run_until("all inputs", Duration::from_mins(2), |w| w.transfers.len() >= 42);
    let tries = world.transfers.iter().enumerate().filter(|(_, (_, name, _))| name == "a_app");
    let tries: Vec<usize> = tries.map(|(place, _)| place).collect();
    // An input may have the project's other place meanwhile.
    assert!(tries.len() == 2 && tries[0] == 0 && tries[1] <= 2, "{tries:?}");
}

#[test]
fn a_projects_many_files_do_not_keep_anothers_waiting() {
    let mut world = World::new(204);
    world.add_project("a", 200, Duration::from_secs(30));
    world.add_project("b", 1, Duration::from_secs(30));
    // Whatever of the first project is downloaded never ends; the other has the rest of the eight places.
    world.stuck = Some("/a/download");
    world.event(Event::DocumentOffered(document(1, &[("a", 1.0), ("b", 1.0)], large_buffers()).into()));
    world.run_until("the other's job is done", Duration::from_mins(10), |w| w.acknowledged("b") == 1);
    assert_eq!(world.transfers.iter().filter(|(_, name, _)| name.starts_with("a_")).count(), 2);
}

#[test]
fn four_projects_whose_servers_trickle_do_not_keep_a_fifth_waiting_for_days() {
    let mut world = World::new(205);
    for name in ["a", "b", "c", "d"] {
        world.add_project(name, 20, Duration::from_secs(30));
    }
    world.add_project("e", 1, Duration::from_secs(30));
    world.stuck = Some("d/download");
    world.alter = Some(|reply, _| {
        for url in reply.files.iter_mut().flat_map(|file| &mut file.download_urls) {
            *url = url.replace("/a/", "/ad/").replace("/b/", "/bd/").replace("/c/", "/cd/");
        }
    });
    let shares = [("a", 1.0), ("b", 1.0), ("c", 1.0), ("d", 1.0), ("e", 1.0)];
    world.event(Event::DocumentOffered(document(1, &shares, large_buffers()).into()));
    world.run_until("the fifth's job is done", Duration::from_hours(1), |w| w.acknowledged("e") == 1);
}

#[test]
fn a_failure_of_this_host_is_not_held_against_the_server() {
    let mut world = World::new(206);
    world.add_project("a", 1, Duration::from_secs(30));
    world.alter = Some(with_a_dead_mirror);
    world.fail_download = Some(TransferError::new(TransferErrorKind::DiskFull, "no space"));
    world.event(Event::DocumentOffered(document(1, &[("a", 1.0)], small_buffers()).into()));
    world.run_for(Duration::from_mins(30));
    // The same URL again, with the waits of one file, not those of a server that is down.
    let tries = world.transfers.iter().filter(|(_, name, _)| name == "a_0_in");
    assert!(tries.clone().all(|(_, _, from)| from.contains("//dead/")));
    assert!(tries.count() >= 3);
}

#[test]
fn r4_1_a_file_of_unknown_size_may_have_its_projects_share_of_what_is_left_on_the_disk() {
    let mut world = World::new(207);
    world.add_project("a", 1, Duration::from_secs(30));
    world.add_project("b", 0, Duration::from_secs(30));
    world.alter = Some(|reply, _| {
        for file in reply.files.iter_mut().filter(|file| file.name.ends_with("_app")) {
            file.max_nbytes = Some(Bytes(7_000));
        }
    });
    world.event(Event::DocumentOffered(document(1, &[("a", 1.0), ("b", 3.0)], small_buffers()).into()));
    world.run_until("the job runs", Duration::from_mins(5), |w| w.computing() == 1);
    let limit = |name: &str| world.downloads.iter().find(|wanted| wanted.file.name == name).unwrap().limit;
    assert_eq!(limit("a_app"), Bytes(7_000), "the most that the project says");
    let free = 50_000_000_000.0 - 1024.0 * 1024.0 * 1024.0;
    assert_eq!(limit("a_0_in"), Bytes((free / 4.0) as u64));
    assert_eq!(world.downloads[0].keep_free, Bytes::from_mebibytes(1024));
}

/// A project whose one job needs a file of so many bytes; the disk has 100 GB.
fn with_a_large_input(alter: fn(&mut SchedulerReply, usize)) -> World {
    let mut world = World::new(208);
    world.add_project("a", 1, Duration::from_secs(30));
    world.alter = Some(alter);
    world.event(Event::DocumentOffered(document(1, &[("a", 1.0)], small_buffers()).into()));
    world
}

fn inputs_have(reply: &mut SchedulerReply, bytes: u64) {
    for file in reply.files.iter_mut().filter(|file| file.name.ends_with("_in")) {
        file.nbytes = Some(Bytes(bytes));
    }
}

#[test]
fn a_file_that_is_larger_than_the_disk_is_given_up_at_once() {
    let mut world = with_a_large_input(|reply, _| inputs_have(reply, 150_000_000_000));
    world.run_until("the failure is reported", Duration::from_hours(3), |w| w.acknowledged("a") == 1);
    assert!(world.notices().any(|text| text.contains("this host's disk")), "{:?}", world.notices);
    assert!(world.downloads.iter().all(|wanted| wanted.file.name != "a_0_in"));
}

#[test]
fn r4_1_a_file_that_preferences_keep_out_waits_until_they_let_it_in() {
    let mut world = with_a_large_input(|reply, _| inputs_have(reply, 95_000_000_000));
    world.run_for(Duration::from_hours(3));
    assert!(world.notices().any(|text| text.contains("projects may use here")), "{:?}", world.notices);
    assert!(world.downloads.iter().all(|wanted| wanted.file.name != "a_0_in"));
    assert_eq!(world.acknowledged("a"), 0, "its job is kept");
    let all = Preferences { disk_fraction: Fraction::ONE, ..small_buffers() };
    world.event(Event::DocumentOffered(document(2, &[("a", 1.0)], all).into()));
    world.run_until("the job is done", Duration::from_hours(12), |w| w.acknowledged("a") == 1);
    assert_eq!(world.projects["a"].reports[0].exit_status, 0);
}

#[test]
fn r6_10_an_output_that_cannot_be_read_for_a_while_is_sent_later_and_fails_no_job() {
    let mut world = World::new(211);
    world.add_project("a", 1, Duration::from_secs(30));
    world.fail_upload = Some(TransferError::new(TransferErrorKind::LocalFile, "too many open files"));
    world.event(Event::DocumentOffered(document(1, &[("a", 1.0)], small_buffers()).into()));
    world.run_for(Duration::from_mins(10));
    assert!(world.notices().any(|text| text.contains("too many open files; trying again in")));
    world.fail_upload = None;
    world.run_until("the job is reported", Duration::from_hours(6), |w| w.acknowledged("a") == 1);
    assert_eq!(world.projects["a"].reports[0].exit_status, 0);
}

#[test]
fn what_there_is_of_a_download_that_is_given_up_is_deleted() {
    let mut world = World::new(209);
    world.add_project("a", 1, Duration::from_secs(30));
    world.fail_download = Some(TransferError::new(TransferErrorKind::WrongSize, "more than announced"));
    world.event(Event::DocumentOffered(document(1, &[("a", 1.0)], small_buffers()).into()));
    world.run_until("it is given up", Duration::from_mins(5), |w| {
        w.notices().any(|text| text.contains("a_0_in is given up"))
    });
    assert!(world.log.iter().any(|line| line.contains("DeleteFile") && line.contains("a_0_in")));
}

#[test]
fn r6_2_servers_are_told_how_fast_transfers_are() {
    let mut world = World::new(210);
    world.add_project("a", 1, Duration::from_secs(30));
    let part = |direction, bytes| Traffic { direction, bytes: Bytes(bytes), took: Duration::from_secs(4) };
    world.event(Event::TrafficMeasured(vec![
        part(Direction::Download, 4_000_000),
        part(Direction::Upload, 400_000),
    ]));
    world.event(Event::DocumentOffered(document(1, &[("a", 1.0)], small_buffers()).into()));
    world.run_until("a request", Duration::from_mins(5), |w| !w.requests.is_empty());
    let request = &world.requests[0];
    assert!(request.contains("<bwdown>1000000.000000</bwdown>"), "{request}");
    assert!(request.contains("<bwup>100000.000000</bwup>"), "{request}");
    assert!(request.contains("<avg_time_up>1800000000.000000</avg_time_up>"), "{request}");
}

#[test]
fn a_file_of_unknown_size_may_have_the_room_itself_where_its_projects_share_is_zero() {
    let mut world = World::new(209);
    world.add_project("a", 1, Duration::from_secs(30));
    world.add_project("b", 0, Duration::from_secs(30));
    world.event(Event::DocumentOffered(document(1, &[("a", 0.0), ("b", 1.0)], small_buffers()).into()));
    world.run_until("both files are asked for", Duration::from_mins(5), |w| w.downloads.len() >= 2);
    let unknown: Vec<_> = world.downloads.iter().filter(|download| download.nbytes.is_none()).collect();
    assert!(!unknown.is_empty() && unknown.iter().all(|download| download.limit > Bytes(0)), "{unknown:?}");
}
