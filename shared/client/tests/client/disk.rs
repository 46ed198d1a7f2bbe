//! The disk on a modelled host: what goes when it is short, what is told of it, what is believed.

use fallow_client::{ClientConfig, DiskFound, DiskHeld, Event, FileKey, Phase};
use fallow_domain::agent_state::DiskDecision;
use fallow_domain::{Bytes, Duration, Fraction, Preferences, ProjectId};

use crate::life::{document, small_buffers};
use crate::world::{World, version};

/// Of a host that leaves half of ten thousand bytes free.
fn half_of_it() -> Preferences {
    Preferences { disk_free_min: Bytes(5_000), ..all_of_it() }
}

/// Of a host whose disk may be filled.
fn all_of_it() -> Preferences {
    Preferences {
        cpu_fraction: Fraction::ONE,
        disk_fraction: Fraction::ONE,
        disk_free_min: Bytes(0),
        ..small_buffers()
    }
}

fn sticky_input(name: &str) -> FileKey {
    FileKey { project: ProjectId(0), name: name.to_owned() }
}

/// Project a alone, whose inputs are of 100 bytes and to be kept.
fn keeping(size: u64, supply: u64) -> World {
    let mut world = World::on_a_volume(7, size);
    world.alter = Some(|reply, _| {
        for file in reply.files.iter_mut().filter(|file| file.name.ends_with("_in")) {
            (file.nbytes, file.sticky) = (Some(Bytes(100)), true);
        }
    });
    world.add_project("a", supply, Duration::from_secs(30));
    world.add_project("b", 0, Duration::from_secs(30));
    world.event(Event::DocumentOffered(document(1, &[("a", 3.0), ("b", 1.0)], all_of_it()).into()));
    world
}

#[test]
fn r4_4_sticky_files_that_no_job_needs_give_way_the_least_recently_used_first() {
    let mut world = keeping(480, 8);
    world.run_until("all jobs are done", Duration::from_hours(2), |w| w.acknowledged("a") == 8);
    assert!(!world.has_file("a_0_in") && world.has_file("a_7_in"), "{:?}", world.files);
    let deeds = world.client.disk_view().unwrap().deeds;
    let first = deeds.iter().find(|deed| deed.text.starts_with("deleted")).unwrap();
    assert!(first.text.starts_with("deleted a_0_in (100 B): its project needs room"), "{}", first.text);
    assert!(first.text.contains("not used for"), "{}", first.text);
    assert!(world.on_disk() <= 480, "{}", world.on_disk());
}

#[test]
fn r4_8_computing_is_suspended_while_others_fill_the_disk_and_resumes_by_itself() {
    let mut world = keeping(10_000, 40);
    world.event(Event::DocumentOffered(document(2, &[("a", 3.0), ("b", 1.0)], half_of_it()).into()));
    world.run_until("tasks run", Duration::from_mins(10), |w| w.computing() > 0);
    world.run_for(Duration::from_secs(5));
    world.fill(9_000);
    world.run_until("it rests", Duration::from_mins(11), World::is_short);
    assert_eq!(world.computing(), 0);
    let view = world.client.disk_view().unwrap();
    assert!(view.suspended.unwrap().contains("Free "), "{:?}", view.deeds);
    let running = world.client.task_views().into_iter().filter(|task| task.pid.is_some()).count();
    assert!(running > 0, "what runs is never given up");
    world.fill(0);
    world.run_until("it goes on", Duration::from_mins(2), |w| w.computing() > 0);
    world.run_until("all are reported", Duration::from_hours(3), |w| w.acknowledged("a") == 40);
    let text = world.client.disk_view().unwrap().deeds.pop().unwrap().text;
    assert!(text.contains("computing may go on"), "{text}");
}

#[test]
fn r4_8_a_job_that_may_hold_more_than_the_whole_disk_has_is_ended_when_its_files_are_longer() {
    let mut world = World::on_a_volume(7, 10_000);
    world.alter = Some(|reply, _| {
        let bound = Some(Bytes(1_000_000_000_000_000));
        reply.workunits.iter_mut().for_each(|workunit| workunit.rsc_disk_bound = bound);
    });
    world.add_project("a", 2, Duration::from_secs(600));
    world.event(Event::DocumentOffered(document(1, &[("a", 1.0)], half_of_it()).into()));
    world.disk_held = Some(DiskHeld { all: Bytes(10_000), ..DiskHeld::default() });
    world.run_until("a task computes", Duration::from_mins(10), |w| w.computing() > 0);
    world.run_for(Duration::from_mins(1));
    assert!(
        world.computing() > 0,
        "it is no longer than the disk, and what all may have is no bound of a single one"
    );
    world.disk_held = Some(DiskHeld { all: Bytes(10_001), ..DiskHeld::default() });
    world.run_until("the report", Duration::from_hours(30), |w| w.acknowledged("a") > 0);
    let report = &world.projects["a"].reports[0];
    assert_eq!((report.exit_status, report.state.code()), (196, 3));
    let said = report.stderr_out.message.as_ref().unwrap();
    assert!(said.contains("its files hold 10 kB, and may hold 10 kB"), "{said}");
}

#[test]
fn r4_8_queued_jobs_are_given_back_and_running_ones_stay() {
    let mut world = keeping(10_000, 40);
    let long = Preferences { buffer_min: Duration::from_secs(600), ..half_of_it() };
    world.event(Event::DocumentOffered(document(2, &[("a", 3.0), ("b", 1.0)], long).into()));
    world.run_until("many jobs", Duration::from_mins(10), |w| w.client.task_views().len() > 10);
    world.run_for(Duration::from_secs(20));
    let running: Vec<String> = world
        .client
        .task_views()
        .into_iter()
        .filter(|task| task.pid.is_some())
        .map(|task| task.name)
        .collect();
    assert!(!running.is_empty());
    // The owner wants more of it left: that is done at once, by the last look.
    let tighter = Preferences { disk_free_min: Bytes(9_500), ..all_of_it() };
    world.event(Event::DocumentOffered(document(3, &[("a", 3.0), ("b", 1.0)], tighter).into()));
    world.run_until("jobs are given back", Duration::from_mins(1), |w| {
        w.client.task_views().iter().any(|task| task.phase == Phase::Failed)
    });
    for task in world.client.task_views() {
        let failed = task.phase == Phase::Failed;
        assert!(!(failed && running.contains(&task.name) && task.pid.is_some()), "{task:?}");
    }
    let deeds = world.client.disk_view().unwrap().deeds;
    assert!(deeds.iter().any(|deed| deed.text.starts_with("gave a_")), "{deeds:?}");
}

#[test]
fn r4_9_r4_11_requests_tell_three_amounts_and_list_what_is_kept() {
    let mut world = keeping(1_000, 3);
    world.run_until("all jobs are done", Duration::from_hours(2), |w| w.acknowledged("a") == 3);
    let last = world.requests.last().unwrap();
    for listed in ["<project_disk_free>", "<potentially_free_offender>", "<potentially_free_self>"] {
        assert!(last.contains(listed), "{last}");
    }
    assert!(last.contains("<name>a_0_in</name>\n") && last.contains("<status>1</status>"), "{last}");
    // Asked to, it deletes one.
    world.alter = Some(|reply, _| reply.deleted_files.push("a_0_in".to_owned()));
    world.projects.get_mut("a").unwrap().supply = 4;
    world.run_until("one more", Duration::from_hours(2), |w| w.acknowledged("a") == 4);
    assert!(!world.has_file("a_0_in") && world.has_file("a_1_in"));
    let says = |world: &mut World, text: &str| {
        let is_it = |told: &DiskDecision| text.contains(&told.why) && text.contains(&told.name);
        world.client.disk_decisions().any(is_it)
            && world.client.disk_view().unwrap().deeds.iter().any(|deed| deed.text == text)
    };
    assert!(says(&mut world, "deleted a_0_in (100 B): its project wants it kept no longer"));
    // And when their time is over.
    world.alter = Some(|reply, _| {
        for file in reply.files.iter_mut().filter(|file| file.name.ends_with("_in")) {
            (file.nbytes, file.sticky) = (Some(Bytes(100)), true);
            file.sticky_lifetime = Some(Duration::from_hours(1));
        }
    });
    world.projects.get_mut("a").unwrap().supply = 5;
    world.run_until("one more", Duration::from_hours(2), |w| w.acknowledged("a") == 5);
    world.run_until("it goes", Duration::from_hours(3), |w| !w.has_file("a_4_in"));
    assert!(says(&mut world, "deleted a_4_in (100 B): it was kept for as long as its project wanted"));
}

#[test]
fn r4_12_a_file_that_vanishes_is_fetched_again_and_one_that_nobody_owns_goes_after_its_grace() {
    let mut world = keeping(10_000, 3);
    let here = |w: &World| w.has_file("a_0_in") && w.has_file("a_app");
    world.run_until("files came", Duration::from_mins(10), here);
    world.event(Event::OwnerSuspended(true));
    world.spoil(&sticky_input("a_0_in"), Some(3));
    world.spoil(&sticky_input("a_app"), None);
    world.stray(sticky_input("stray"), 50);
    world.run_until("they came again", Duration::from_mins(12), |w| {
        w.transfers.iter().filter(|(_, name, _)| name == "a_0_in" || name == "a_app").count() == 4
    });
    assert!(world.has_file("stray"));
    world.crash();
    assert!(world.has_file("stray"), "a start does not end its grace");
    world.run_until("the stray is gone", Duration::from_mins(61 + 10), |w| !w.has_file("stray"));
    world.event(Event::OwnerSuspended(false));
    world.run_until("all are reported", Duration::from_hours(3), |w| w.acknowledged("a") == 3);
    let failed = world.projects["a"].reports.iter().filter(|report| report.exit_status != 0).count();
    assert_eq!(failed, 0);
}

#[test]
fn r4_1_the_disk_is_measured_every_ten_minutes() {
    let mut world = keeping(10_000, 0);
    world.run_for(Duration::from_hours(2));
    let looks = world.volume.as_ref().unwrap().looks;
    assert!((11..=14).contains(&looks), "{looks}");
}

#[test]
fn r4_12_files_that_cannot_be_looked_at_for_now_are_not_lost_and_count_as_before() {
    let mut world = keeping(10_000, 3);
    world.run_until("all jobs are done", Duration::from_hours(2), |w| w.acknowledged("a") == 3);
    world.run_for(Duration::from_mins(11));
    let before = world.client.disk_view().unwrap().used;
    // The directory of the project is behind a network that is down; then single files cannot be read.
    let unsure = world.files.iter().cloned().collect();
    let unseen = [ProjectId(0)].into();
    let nothing = || DiskFound { size: Bytes(10_000), free: Bytes(9_000), ..DiskFound::default() };
    let projects = vec![(ProjectId(0), Bytes(0))];
    let looks = [DiskFound { unseen, projects, ..nothing() }, DiskFound { unsure, ..nothing() }];
    for found in looks {
        world.client.handle(world.now, Event::DiskMeasured(Ok(Box::new(found.clone()))));
        let view = world.client.disk_view().unwrap();
        assert!(!view.deeds.iter().any(|deed| deed.text.contains("gone from the disk")), "{view:?}");
        if !found.unseen.is_empty() {
            let own = Bytes(7);
            assert_eq!(view.used.plus(own), before, "{view:?}");
        }
    }
    let kept = world.client.known_files()[&ProjectId(0)].len();
    assert!(kept >= 3, "{kept}");
    let found = nothing();
    world.client.handle(world.now, Event::DiskMeasured(Ok(Box::new(found))));
    assert!(world.client.known_files().get(&ProjectId(0)).is_none_or(|files| files.len() < kept));
}

#[test]
fn r4_4_no_file_comes_before_the_disk_was_measured() {
    let measure_disk = Some(Duration::from_mins(10));
    // Whoever looks at the disk does not answer.
    let mut world = World::with(ClientConfig { measure_disk, ..ClientConfig::new(7, version()) });
    world.add_project("a", 3, Duration::from_secs(30));
    world.event(Event::DocumentOffered(document(1, &[("a", 3.0)], all_of_it()).into()));
    world.run_until("a job", Duration::from_mins(10), |w| !w.client.task_views().is_empty());
    world.run_for(Duration::from_mins(10));
    assert!(world.transfers.is_empty(), "{:?}", world.transfers);
    let found = DiskFound { size: Bytes(10_000), free: Bytes(9_000), ..DiskFound::default() };
    world.event(Event::DiskMeasured(Ok(Box::new(found))));
    world.run_until("all jobs are done", Duration::from_hours(2), |w| w.acknowledged("a") == 3);
}

#[test]
fn r4_4_a_file_of_which_nobody_says_how_large_it_is_comes_only_if_something_is_free_and_no_larger_than_that()
{
    let mut world = keeping(10_000, 4);
    world.alter = Some(|reply, _| {
        reply.files.iter_mut().filter(|file| file.name.ends_with("_in")).for_each(|file| file.nbytes = None);
    });
    world.run_until("a first input", Duration::from_mins(10), |w| {
        w.downloads.iter().any(|download| download.file.name == "a_0_in")
    });
    let inputs = |w: &World| {
        let downloads = w.downloads.iter().filter(|download| download.file.name.ends_with("_in"));
        downloads.map(|download| (download.limit, download.limited_by_host)).collect::<Vec<_>>()
    };
    let sum: u64 = inputs(&world).iter().map(|(limit, _)| limit.0).sum();
    assert!(sum <= 10_000 && inputs(&world).iter().all(|(_, by_host)| *by_host), "{:?}", inputs(&world));
    // Others leave nothing: no further one comes, until they do.
    world.run_until("all jobs are done", Duration::from_hours(2), |w| w.acknowledged("a") == 4);
    let before = inputs(&world).len();
    world.fill(20_000);
    world.run_for(Duration::from_mins(1));
    world.projects.get_mut("a").unwrap().supply = 6;
    world.run_for(Duration::from_hours(3));
    assert_eq!(inputs(&world).len(), before, "{:?}", inputs(&world));
    world.fill(0);
    world.run_until("all are done", Duration::from_hours(30), |w| w.acknowledged("a") == 6);
}

#[test]
fn r4_8_others_that_fill_the_disk_are_noticed_at_the_next_pass_and_not_at_the_next_measurement() {
    let mut world = keeping(10_000, 40);
    world.event(Event::DocumentOffered(document(2, &[("a", 3.0), ("b", 1.0)], half_of_it()).into()));
    world.run_until("tasks run", Duration::from_mins(10), |w| w.computing() > 0);
    world.fill(9_000);
    world.run_for(Duration::from_secs(2));
    assert!(world.is_short());
    world.fill(0);
    world.run_for(Duration::from_secs(2));
    assert!(!world.is_short());
}
