//! Messages between jobs and their projects, and outputs that are sent early.

use fallow_boinc::scheduler::{SchedulerReply, TrickleDown};
use fallow_client::{Event, FileKey, OutputFound, TransferError, TransferErrorKind};
use fallow_domain::{Bytes, Duration, Instant, JobId, ProjectId};

use crate::hand::Bench;
use crate::life::{document, small_buffers};
use crate::world::World;

/// A host whose one job has run for a minute.
fn computing() -> (World, JobId, ProjectId) {
    let mut world = World::new(14);
    world.add_project("a", 1, Duration::from_hours(2));
    world.event(Event::DocumentOffered(document(1, &[("a", 1.0)], small_buffers()).into()));
    world.run_for(Duration::from_secs(60));
    let job = world.client.task_views()[0].clone();
    (world, job.id, job.project)
}

fn message(world: &mut World, job: JobId, project: ProjectId, secs: i64) -> FileKey {
    let key = FileKey { project, name: format!("trickle_up_a_0_0_{secs}.xml") };
    world.files.insert(key.clone());
    world.event(Event::TrickleFound { job, name: key.name.clone(), nbytes: Bytes(30) });
    key
}

#[test]
fn r6_2_a_jobs_message_is_told_soon_and_deleted_when_it_is_acknowledged() {
    let (mut world, job, project) = computing();
    let before = world.requests.len();
    let key = message(&mut world, job, project, 1_000);
    world.run_for(Duration::from_secs(30));
    assert_eq!(world.requests.len(), before + 1, "one request, at once");
    let request = world.requests.last().unwrap();
    assert!(request.contains("<msg_from_host>") && request.contains("<variety>x</variety>"), "{request}");
    assert!(
        request.contains("<result_name>a_0_0</result_name>") && request.contains("<time>1000"),
        "{request}"
    );
    assert!(!world.files.contains(&key), "it is deleted");
    world.run_for(Duration::from_hours(1));
    let told = world.requests.iter().filter(|request| request.contains("<msg_from_host>")).count();
    assert_eq!(told, 1);
}

#[test]
fn r6_2_a_message_that_is_not_acknowledged_goes_with_later_requests_also_after_a_restart() {
    let (mut world, job, project) = computing();
    world.acks_no_trickles = true;
    let key = message(&mut world, job, project, 1_000);
    world.run_for(Duration::from_secs(30));
    let calls = world.requests.len();
    world.run_for(Duration::from_secs(600));
    assert_eq!(world.requests.len(), calls, "told once, it brings about no further request by itself");
    world.acks_no_trickles = false;
    world.restart();
    world.run_for(Duration::from_secs(600));
    assert!(world.requests[calls..].iter().any(|request| request.contains("<msg_from_host>")));
    assert!(!world.files.contains(&key));
}

#[test]
fn r6_10_a_job_that_sends_messages_without_end_is_held_to_a_number() {
    let (mut world, job, project) = computing();
    world.projects.get_mut("a").unwrap().down = true;
    for secs in 0..200 {
        message(&mut world, job, project, secs);
    }
    let kept = world.files.iter().filter(|key| key.name.starts_with("trickle_up_")).count();
    assert_eq!(kept, 50);
    assert!(world.notices.iter().any(|notice| notice.contains("is dropped")));
}

#[test]
fn r6_2_a_projects_message_reaches_the_slot_of_its_job() {
    let (mut world, job, project) = computing();
    world.alter = Some(|reply, _| {
        let message = |name: &str| TrickleDown {
            result_name: name.to_owned(),
            time: Instant::EPOCH + Duration::from_secs(77),
            text: "<order>go</order>".to_owned(),
        };
        reply.trickle_downs = vec![message("a_0_0"), message("nobody")];
    });
    message(&mut world, job, project, 1_000);
    world.run_for(Duration::from_secs(30));
    let told = format!("trickle for {job}: trickle_down_77 <order>go</order>");
    assert!(world.log.contains(&told), "{:#?}", world.log);
    assert!(world.notices.iter().any(|notice| notice.contains("nobody is dropped")));
}

#[test]
fn r6_10_messages_that_are_found_at_a_start_are_held_to_the_same_bounds() {
    let mut bench = Bench::new();
    bench.answer(&SchedulerReply::default());
    let message = |name: &str, nbytes| {
        (FileKey { project: ProjectId(0), name: format!("trickle_up_{name}.xml") }, Bytes(nbytes))
    };
    let mut files: Vec<_> = (1..=200).map(|secs| message(&format!("many_{secs}"), 30)).collect();
    // One that is too long must not be in the way of the others either.
    files.extend([message("long_0", 5 << 20), message("good_77", 30)]);
    bench.restart_with(files);
    let request = bench.answer(&SchedulerReply::default());
    let told = |name: &str| request.trickles.iter().filter(|trickle| trickle.result_name == name).count();
    assert_eq!((told("good"), told("many"), told("long")), (1, 50, 0));
    assert_eq!(bench.deleted.len(), 151, "{:?}", bench.deleted);
}

#[test]
fn r6_2_an_early_output_that_changes_is_not_sent_again_once_it_was_sent() {
    let (mut world, job, project) = computing();
    let key = FileKey { project, name: "a_0_out".to_owned() };
    world.files.insert(key.clone());
    let early = |nbytes| OutputFound { name: key.name.clone(), nbytes: Bytes(nbytes), md5: "1".repeat(32) };
    world.event(Event::UploadWanted { job, output: early(4) });
    world.run_for(Duration::from_secs(30));
    world.event(Event::UploadWanted { job, output: early(5) });
    world.run_until("the job is done", Duration::from_hours(5), |w| w.acknowledged("a") == 1);
    let uploads = world.transfers.iter().filter(|(_, name, _)| name == "a_0_out").count();
    assert_eq!(uploads, 1, "a server would append what is longer, and take no notice of what is not");
    assert_eq!(world.projects["a"].reports[0].exit_status, 0);
}

#[test]
fn r6_2_an_early_output_that_changes_before_it_was_sent_is_sent_from_its_beginning() {
    let (mut world, job, project) = computing();
    let key = FileKey { project, name: "a_0_out".to_owned() };
    world.files.insert(key.clone());
    let early = OutputFound { name: key.name, nbytes: Bytes(4), md5: "1".repeat(32) };
    world.fail_upload = Some(TransferError::new(TransferErrorKind::Transient, "no connection"));
    world.event(Event::UploadWanted { job, output: early });
    world.run_until("it computed", Duration::from_hours(5), |w| w.computing() == 0);
    world.fail_upload = None;
    world.run_until("the job is done", Duration::from_hours(5), |w| w.acknowledged("a") == 1);
    let stale: Vec<Bytes> = world.uploads.iter().map(|upload| upload.stale).collect();
    assert!(stale.len() > 1 && stale[0] == Bytes(0) && stale.last() == Some(&Bytes(4)), "{stale:?}");
}

#[test]
fn r6_2_an_output_is_sent_early_told_and_not_sent_again() {
    let (mut world, job, project) = computing();
    let key = FileKey { project, name: "a_0_out".to_owned() };
    world.files.insert(key.clone());
    let output = OutputFound { name: key.name, nbytes: Bytes(10), md5: "0".repeat(32) };
    world.event(Event::UploadWanted { job, output: output.clone() });
    world.run_for(Duration::from_secs(30));
    let uploads = |world: &World| world.log.iter().filter(|line| line.contains("upload a_0_out")).count();
    assert_eq!(uploads(&world), 1);
    assert!(world.log.contains(&format!("upload of out of {job}: 0")), "{:#?}", world.log);
    // Of another job, or none at all: nothing happens.
    let other = OutputFound { name: "a_1_out".to_owned(), ..output };
    world.event(Event::UploadWanted { job, output: other });
    world.run_until("the job is done", Duration::from_hours(5), |w| w.acknowledged("a") == 1);
    assert_eq!(uploads(&world), 1, "what it left at its end is the same");
    assert_eq!(world.projects["a"].reports[0].exit_status, 0);
}

#[test]
fn r6_10_an_output_that_was_deleted_to_make_room_is_not_sent_until_there_is_a_new_one() {
    let (mut world, job, project) = computing();
    let key = FileKey { project, name: "a_0_out".to_owned() };
    world.files.insert(key.clone());
    let early = OutputFound { name: key.name, nbytes: Bytes(4), md5: "1".repeat(32) };
    world.fail_upload = Some(TransferError::new(TransferErrorKind::Transient, "no connection"));
    world.event(Event::UploadWanted { job, output: early });
    world.run_for(Duration::from_secs(30));
    world.discard(job);
    let tried = world.uploads.len();
    world.run_until("it computes again", Duration::from_hours(5), |w| w.computing() == 1);
    world.fail_upload = None;
    world.run_for(Duration::from_mins(5));
    assert_eq!(world.uploads.len(), tried, "there is nothing to be sent");
    world.run_until("the job is done", Duration::from_hours(5), |w| w.acknowledged("a") == 1);
    assert_eq!(world.uploads.last().unwrap().stale, Bytes(4), "its server may have some of the old one");
    assert_eq!(world.projects["a"].reports[0].exit_status, 0);
}

#[test]
fn r6_10_a_job_that_is_over_does_not_wait_for_outputs_that_were_deleted_to_make_room() {
    let (mut world, job, _) = computing();
    world.fail_upload = Some(TransferError::new(TransferErrorKind::Transient, "no connection"));
    world.run_until("it computed", Duration::from_hours(5), |w| w.computing() == 0);
    world.run_for(Duration::from_mins(1));
    assert_eq!(world.acknowledged("a"), 0);
    world.event(Event::OutputsGone { job });
    world.run_until("the job is reported", Duration::from_hours(5), |w| w.acknowledged("a") == 1);
    assert_ne!(world.projects["a"].reports[0].exit_status, 0, "there is no result");
}
