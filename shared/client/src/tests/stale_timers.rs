//! What changes when a timer is due, one by one, where random histories seldom come by. Each event ends with
//! a look at the whole table of timers (`wake_up`), which fails where one was left stale.

use fallow_domain::{
    DocumentVersion, Duration, FleetDocument, Instant, PerType, Preferences, ProjectAssignment, ProjectId,
    Share, Usage,
};
use fallow_policy::backoff::Wait;
use fallow_policy::fetch::WorkRequest;
use fallow_policy::rpc_timing::Asker;

use super::{NOW, client, id_of, job, url, wake_up};
use crate::machine::Client;
use crate::state::Stage;
use crate::{Event, TransferError, TransferErrorKind};

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
    let assigned =
        ProjectAssignment { name: "a".to_owned(), url: url("a"), account_key, share: Share::DEFAULT };
    let preferences = Preferences { connection_interval: HOUR * 48, ..Preferences::default() };
    let document = FleetDocument { version: DocumentVersion(1), projects: vec![assigned], preferences };
    client.handle(NOW, Event::DocumentOffered(document));
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
    client.handle(now, Event::ContactRequested { url: url("a"), by: Asker::Fleet });
    assert_eq!(client.next_contact(), Some(now + HOUR * 10));
}

#[test]
fn r3_11_the_backoffs_of_a_project_that_leaves_are_waited_for_no_longer() {
    let mut client = client(0, &["a", "b"]);
    let b = id_of(&client, "b");
    client.handle(NOW, Event::OwnerSuspended(true));
    let asked = WorkRequest::cpu(HOUR, 1.0);
    client.types_answered(b, &asked, &PerType::default());
    client.handle(NOW, Event::WakeUp);
    assert!(client.ledger.type_backoffs.next_end(NOW).is_some());
    client.edit_project(b, |project| project.detach_when_done = true);
    client.handle(NOW, Event::WakeUp);
    assert_eq!(client.ledger.type_backoffs.next_end(NOW), None);
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
