//! What changes when a timer is due, one by one, where random histories seldom come by. Each event ends with
//! a look at the whole table of timers (`wake_up`), which fails where one was left stale.

use fallow_boinc::scheduler::FileInfo;
use fallow_domain::{
    AccountKey, Bytes, DocumentVersion, Duration, FleetDocument, Fraction, Instant, JobId, PerType,
    Preferences, ProjectAssignment, ProjectId, ResourceTypes, Share, SlotId, Usage,
};
use fallow_policy::backoff::Wait;
use fallow_policy::fetch::WorkRequest;
use fallow_policy::rpc_timing::RequestedBy;
use fallow_policy::transfer_backoff::TransferBackoff;

use super::{NOW, client, id_of, job, put_job, url, wake_up};
use crate::described::FileReference;
use crate::machine::Client;
use crate::state::{Process, Stage, Transfer};
use crate::transfers::Rank;
use crate::{AttachRequest, Direction, Event, FileKey, TransferError, TransferErrorKind, Waiter};

const HOUR: Duration = Duration::from_hours(1);

fn check(client: &mut Client) {
    let at = client.next_wake_up();
    wake_up::check(client, at);
}

/// A client of a host that is connected every two days, an hour and a second after it was.
fn disconnected() -> (Client, ProjectId, Instant) {
    let mut client = client(0, &["a"]);
    let a = id_of(&client, "a");
    let account_key = client.state.projects[&a].account_key.clone();
    let assigned = ProjectAssignment {
        name: "a".to_owned(),
        url: url("a"),
        account_key,
        share: Share::DEFAULT,
        code_sign_key: None,
        without: ResourceTypes::default(),
    };
    let preferences = Preferences { connection_interval: HOUR * 48, ..Preferences::default() };
    let document = FleetDocument {
        content: String::new(),
        version: DocumentVersion(1),
        projects: vec![assigned],
        preferences,
    };
    client.handle(NOW, Event::DocumentOffered(document.into()));
    let now = NOW + HOUR + Duration::from_secs(1);
    client.handle(now, Event::WakeUp);
    assert_eq!(client.next_connection(), Some(NOW + HOUR * 48));
    (client, a, now)
}

#[test]
fn r1_13_a_finished_job_with_a_nearer_deadline_opens_the_network_sooner() {
    let (mut client, a, now) = disconnected();
    let mut finished = job(1, a, Usage::ONE_CPU);
    finished.stage = Stage::Uploading;
    finished.result.report_deadline = NOW + HOUR * 40;
    client.insert_job(finished);
    client.handle(now, Event::WakeUp);
    assert_eq!(client.next_connection(), Some(NOW + HOUR * 16));
}

#[test]
fn r1_13_contact_that_is_wanted_opens_the_network_when_the_delay_of_its_project_ends() {
    let (mut client, a, now) = disconnected();
    let read = Ok(vec!["http://127.0.0.1/cgi".to_owned()]);
    client.handle(now, Event::MasterPageRead { project: a, outcome: read });
    client.edit_rpc(a, |rpc| rpc.on_request_delay(now, HOUR * 10));
    client.handle(now, Event::WakeUp);
    assert_eq!(client.next_contact(), None);
    client.handle(now, Event::ContactRequested { url: url("a"), by: RequestedBy::Fleet });
    assert_eq!(client.next_contact(), Some(now + HOUR * 10));
}

#[test]
fn r3_11_the_backoffs_of_a_project_that_leaves_are_waited_for_no_longer() {
    let mut client = client(0, &["a", "b"]);
    let b = id_of(&client, "b");
    client.handle(NOW, Event::OwnerSuspended(true));
    let asked = WorkRequest::cpu(HOUR, 1.0);
    client.types_answered(b, &asked, &PerType::default(), None);
    // So late that its end comes before the next check.
    let end = client.ledger.type_backoffs().next_end(NOW).unwrap();
    let now = end - Duration::from_secs(30);
    client.handle(now, Event::WakeUp);
    assert_eq!(client.next_fetch_check(), Some(end));
    client.edit_project(b, |project| project.detach_when_done = true);
    client.handle(now, Event::WakeUp);
    assert!(client.next_fetch_check().unwrap() > end);
}

#[test]
fn r3_11_nor_are_those_of_a_project_that_leaves_when_no_scheduler_is_left_to_ask() {
    let mut client = client(0, &["a", "b"]);
    let b = id_of(&client, "b");
    client.handle(NOW, Event::OwnerSuspended(true));
    client.types_answered(b, &WorkRequest::cpu(HOUR, 1.0), &PerType::default(), None);
    let end = client.ledger.type_backoffs().next_end(NOW).unwrap();
    let begun = end - Duration::from_secs(30);
    client.wanted_mut().ask(b, RequestedBy::Fleet, false);
    let schedulers = ["http://127.0.0.1/1", "http://127.0.0.1/2"].map(str::to_owned);
    let read = |urls: &[String]| Event::MasterPageRead { project: b, outcome: Ok(urls.to_vec()) };
    client.handle(begun, read(&schedulers));
    assert!(client.sessions.in_flight(b).is_some());
    // Nobody asks for another RPC to it. Its page is read again meanwhile and names one scheduler only, and
    // it is to leave: only the RPC keeps it here.
    client.wanted_mut().forget(b);
    client.pages_mut().begin(b);
    client.handle(begun, read(&schedulers[..1]));
    client.edit_project(b, |project| project.detach_when_done = true);
    let now = begun + Duration::from_secs(5);
    client.handle(now, Event::WakeUp);
    assert!(client.state.projects.contains_key(&b));
    assert_eq!(client.next_fetch_check(), Some(end));
    let transient = TransferError::new(TransferErrorKind::Transient, "no connection");
    client.handle(now, Event::SchedulerAnswered { project: b, outcome: Err(transient) });
    assert!(!client.state.projects.contains_key(&b));
    check(&mut client);
    assert!(client.next_fetch_check().unwrap() > end);
}

#[test]
fn r6_2_who_waits_for_what_a_project_says_is_told_in_time() {
    let mut client = client(0, &[]);
    let account_key = Some(AccountKey::new("0123456789abcdef0123456789abcdef"));
    let request = AttachRequest { waiter: Waiter(1), url: url("a"), account_key, share: None, unseen: false };
    client.handle(NOW, Event::Attach(request));
    assert!(client.next_attachment().is_some());
    client.handle(NOW, Event::WaiterGone(Waiter(1)));
    assert_eq!(client.next_attachment(), None);
}

/// A client with a task that executes.
fn computing() -> (Client, JobId) {
    let mut client = client(0, &["a"]);
    let a = id_of(&client, "a");
    let id = put_job(&mut client, 1, a, Usage::ONE_CPU);
    client.edit_job(id, |job| (job.process, job.slot) = (Process::Executing(7), Some(SlotId(0))));
    check(&mut client);
    (client, id)
}

#[test]
fn r6_2_a_host_is_woken_to_see_that_it_is_awake_only_while_a_task_executes() {
    let (mut client, id) = computing();
    assert!(client.next_watch().is_some());
    client.edit_job(id, |job| job.process = Process::Suspended(7));
    check(&mut client);
    assert_eq!(client.next_watch(), None, "it is stopped");
    client.edit_job(id, |job| job.process = Process::Executing(7));
    check(&mut client);
    assert!(client.next_watch().is_some());
}

#[test]
fn r2_8_a_limit_on_cpu_time_that_the_coordinator_sets_is_kept_from_then_on() {
    let (mut client, _) = computing();
    assert_eq!(client.next_throttle(), None);
    let preferences = Preferences { cpu_time_fraction: Fraction::clamped(0.5), ..Preferences::default() };
    let document = FleetDocument {
        content: String::new(),
        version: DocumentVersion(1),
        projects: Vec::new(),
        preferences,
    };
    client.edit_meta(|meta| meta.document = Some(document));
    check(&mut client);
    assert!(client.next_throttle().is_some());
}

#[test]
fn a_task_that_is_to_be_started_later_is_waited_for_in_its_slot_and_without_one() {
    let until = NOW + Duration::from_secs(60);
    let (mut client, id) = computing();
    client.edit_job(id, |job| job.run.not_before = until);
    check(&mut client);
    assert_eq!(client.next_restart(), Some(until));
    client.edit_job(id, |job| job.slot = None);
    check(&mut client);
    assert_eq!(client.next_restart(), None, "it runs");
    client.edit_job(id, |job| (job.process, job.stage) = (Process::None, Stage::Downloading));
    check(&mut client);
    assert_eq!(client.next_restart(), None, "it has no files");
    client.edit_job(id, |job| job.stage = Stage::Runnable);
    check(&mut client);
    assert_eq!(client.next_restart(), Some(until));
}

#[test]
fn r1_10_an_rpc_that_has_ended_is_not_waited_for() {
    let mut client = client(0, &["a"]);
    let a = id_of(&client, "a");
    let read = Ok(vec!["http://127.0.0.1/cgi".to_owned()]);
    client.handle(NOW, Event::MasterPageRead { project: a, outcome: read });
    // It holds up no others any more, and does not hang yet.
    let now = NOW + Duration::from_secs(10);
    client.handle(now, Event::WakeUp);
    assert!(client.next_session_change().is_some());
    let transient = TransferError::new(TransferErrorKind::Transient, "no connection");
    client.handle(now, Event::SchedulerAnswered { project: a, outcome: Err(transient) });
    assert_eq!(client.next_session_change(), None);
}

#[test]
fn downloads_are_waited_for_while_they_are_under_way_or_wait_themselves() {
    let mut client = client(0, &["a"]);
    let a = id_of(&client, "a");
    let key = FileKey { project: a, name: "f".to_owned() };
    let info = FileInfo { name: "f".to_owned(), ..FileInfo::default() };
    client.put_file(a, info.into());
    let backoff = TransferBackoff::new(NOW);
    let transfer = Transfer { direction: Direction::Download, url_index: 0, backoff, active: true };
    client.edit_file_wanted(&key, Rank::LAST, |file| file.transfer = Some(transfer));
    assert_eq!(client.state.transfers.active(Direction::Download).count(), 1);
    client.handle(NOW, Event::WakeUp);
    assert!(client.next_stall().is_some());
    client.edit_transfer(&key, |transfer, rng| {
        transfer.active = false;
        transfer.backoff.on_failure(NOW, rng)
    });
    check(&mut client);
    assert!(client.next_transfer_wake_up().is_some());
    client.edit_transfer(&key, |transfer, _| transfer.active = true);
    client.handle(NOW, Event::WakeUp);
    client.handle(NOW, Event::Detach { url: url("a") });
    assert_eq!((client.next_stall(), client.next_transfer_wake_up()), (None, None));
}

/// Uploads of a client, of which one is under way for a job, and another has failed and waits. Its project is
/// held back for longer than that.
fn held_back(direction: Direction) -> (Client, JobId, [FileKey; 2]) {
    let mut client = client(0, &["a"]);
    let a = id_of(&client, "a");
    let keys = ["sent", "failed"].map(|name| FileKey { project: a, name: name.to_owned() });
    let mut finished = job(1, a, Usage::ONE_CPU);
    finished.stage = Stage::Uploading;
    finished.result.files =
        vec![FileReference { file_name: keys[0].name.clone(), ..FileReference::default() }];
    client.insert_job(finished);
    for key in &keys {
        let info = FileInfo { name: key.name.clone(), ..FileInfo::default() };
        client.put_file(a, info.into());
        let backoff = TransferBackoff::new(NOW);
        let transfer = Transfer { direction, url_index: 0, backoff, active: true };
        client.edit_file_wanted(key, Rank::LAST, |file| file.transfer = Some(transfer));
    }
    client.edit_transfer(&keys[1], |transfer, rng| {
        transfer.active = false;
        transfer.backoff.on_failure(NOW, rng)
    });
    while client.held_back.left(a, direction, NOW) < HOUR {
        client.held_back.failed(a, direction, NOW, client.random.stream());
    }
    client.handle(NOW, Event::WakeUp);
    assert!(client.next_transfer_wake_up().unwrap() >= NOW + HOUR);
    (client, JobId(1), keys)
}

#[test]
fn an_upload_that_ends_well_lets_others_begin_also_when_nobody_wanted_it_any_more() {
    let (mut client, id, [sent, _]) = held_back(Direction::Upload);
    client.outputs_gone(id);
    assert!(client.state.files[&sent].transfer.is_none());
    client.handle(NOW, Event::WakeUp);
    client.handle(NOW, Event::UploadEnded { file: sent, outcome: Ok(()) });
    check(&mut client);
    assert!(client.next_transfer_wake_up().unwrap() < NOW + HOUR);
}

#[test]
fn a_download_that_ends_well_lets_others_begin_also_when_nobody_wanted_it_any_more() {
    let (mut client, _, [came, _]) = held_back(Direction::Download);
    client.edit_file(&came, |file| file.transfer = None);
    client.handle(NOW, Event::WakeUp);
    client.handle(NOW, Event::DownloadEnded { file: came, outcome: Ok(Bytes(1)) });
    check(&mut client);
    assert!(client.next_transfer_wake_up().unwrap() < NOW + HOUR);
}

#[test]
fn a_project_that_is_taken_in_is_waited_for_like_any_other() {
    let mut client = client(0, &["a"]);
    check(&mut client);
    let a = id_of(&client, "a");
    let mut other = client.state.projects[&a].clone();
    (other.id, other.url) = (ProjectId(7), url("b"));
    other.contact_by = Some(Wait::new(NOW, Duration::from_secs(20)));
    client.insert_project(other);
    check(&mut client);
    assert_eq!(client.next_project(), Some(NOW + Duration::from_secs(20)));
}

#[test]
fn r1_6_a_page_is_waited_for_again_when_it_is_not_being_read_any_more() {
    let mut client = client(0, &["a"]);
    let a = id_of(&client, "a");
    assert!(client.pages.is_being_read(a));
    let transient = TransferError::new(TransferErrorKind::Transient, "no connection");
    client.handle(NOW, Event::MasterPageRead { project: a, outcome: Err(transient) });
    let due_at = client.next_master_page().unwrap();
    assert!(due_at > NOW);
    client.pages_mut().begin(a);
    check(&mut client);
    assert_eq!(client.next_master_page(), None);
    client.pages_mut().end(a);
    check(&mut client);
    assert_eq!(client.next_master_page(), Some(due_at));
}
