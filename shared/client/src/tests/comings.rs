//! What follows when jobs, projects and files come and go, and from edits beside those of `job_edits`,
//! `project_edits` and `host_edits`: each by itself, where another edit of the same event would hide it.

use fallow_domain::{Bytes, Duration, HostFacts, JobId, ProjectId, SlotId, Usage};
use fallow_policy::completion::Learned;
use serde_json::{Value, json};

use super::{NOW, client, host, id_of, job, put_job, url};
use crate::machine::Client;
use crate::record::Record;
use crate::state::{File, FileStatus, Process, Stage, Transfer};
use crate::{Direction, Entity, Event, FileKey, Step, TaskSample};

/// A client that is attached to a project and has a job, with nothing due and nothing to store.
fn settled() -> (Client, ProjectId, JobId) {
    let mut client = client(0, &["a"]);
    let a = id_of(&client, "a");
    let id = put_job(&mut client, 1, a, Usage::ONE_CPU);
    client.handle(NOW, Event::WakeUp);
    client.finish_step(None);
    forget_due(&mut client);
    (client, a, id)
}

fn forget_due(client: &mut Client) {
    client.schedule.take_wanted();
    client.fetch.take_wanted();
    client.refresh_reports();
}

/// Which decisions are due: what runs, what to fetch, what to report.
fn due(client: &mut Client) -> (bool, bool, bool) {
    let reports = client.reports.next().is_none();
    (client.schedule.take_wanted(), client.fetch.take_wanted(), reports)
}

/// Whether a step stores a record of that key, or deletes it.
fn stores(step: &Step, key: &str) -> bool {
    step.changes.iter().any(|change| change.key.starts_with(key.as_bytes()))
}

#[test]
fn nothing_is_left_of_a_job_that_is_taken_out_and_decisions_are_due_without_it() {
    let (mut client, a, _) = settled();
    let mut other = job(2, a, Usage::ONE_CPU);
    other.stage = Stage::Reporting;
    client.insert_job(other);
    let step = client.finish_step(None);
    assert!(step.durable && stores(&step, "job/"));
    let workunit = client.state.jobs[&JobId(2)].workunit();
    client.state.workunits.insert(workunit.clone(), Default::default());
    client.workload.note_told_unrunnable(JobId(2));
    client.finish_step(None);
    forget_due(&mut client);
    client.remove_job(JobId(2)).unwrap();
    assert_eq!(due(&mut client), (false, true, true));
    let step = client.finish_step(None);
    assert!(step.durable && stores(&step, "job/") && stores(&step, "workunit/"));
    assert!(!client.state.workunits.contains_key(&workunit));
    assert!(client.workload.note_told_unrunnable(JobId(2)), "it was forgotten that its owner was told");
}

#[test]
fn a_task_that_has_finished_frees_what_it_held() {
    let (mut client, _, id) = settled();
    client.edit_job(id, |job| (job.process, job.slot) = (Process::Executing(7), Some(SlotId(0))));
    due(&mut client);
    client.finish_job(id, |job| job.process = Process::None);
    let (runs, fetch, _) = due(&mut client);
    assert!(runs && fetch);
}

#[test]
fn a_look_at_a_task_is_shown_and_its_checkpoint_stored() {
    let (mut client, _, id) = settled();
    client.edit_job(id, |job| job.process = Process::Executing(7));
    client.finish_step(None);
    client.edit_job(id, |job| job.process = Process::Executing(8));
    let step = client.finish_step(None);
    assert!(step.touched.contains(&Entity::Job(id)) && !stores(&step, "job/"));
    let sample = |cpu: i64| TaskSample {
        job: id,
        cpu_time: Duration::from_secs(cpu),
        status: None,
        working_set: Bytes(0),
        swap: None,
        threads: 1,
        disk: None,
    };
    client.tasks_sampled(&[sample(1)]);
    client.finish_step(None);
    // The time goes on, whatever else a look shows.
    client.tasks_sampled(&[sample(1)]);
    let step = client.finish_step(None);
    assert!(step.touched.contains(&Entity::Job(id)) && !stores(&step, "job/"));
    client.sample_job(id, |job| job.run.checkpoint_said = Duration::from_secs(1));
    assert!(stores(&client.finish_step(None), "job/"));
}

/// The accounts as they are stored.
fn accounts(client: &Client) -> Value {
    let stored = Record::Ledger.change(&client.state, &client.ledger).value.unwrap();
    serde_json::from_slice(&stored[1..]).unwrap()
}

#[test]
fn a_project_that_is_taken_in_is_stored_with_its_account_and_decisions_are_due() {
    let (mut client, a, _) = settled();
    let mut other = client.state.projects[&a].clone();
    (other.id, other.url) = (ProjectId(7), url("b"));
    client.insert_project(other);
    assert_eq!(due(&mut client), (true, true, false));
    assert!(accounts(&client)["totals"]["7"].is_object(), "its account is shown from the beginning");
    let step = client.finish_step(None);
    assert!(step.durable && stores(&step, "project/0000000007") && stores(&step, "ledger"));
}

#[test]
fn r5_7_jobs_of_a_new_project_are_known_to_be_estimated_by_what_was_learned_before_it_came() {
    let (mut client, a, id) = settled();
    for _ in 0..30 {
        client.edit_job(id, |job| {
            (job.run.elapsed, job.run.base) = (Duration::from_secs(2_000), Duration::from_secs(1_000));
        });
        client.learn_estimate(id, Duration::from_secs(1_000));
    }
    let mut other = client.state.projects[&a].clone();
    (other.id, other.url, other.correction) = (ProjectId(7), url("b"), Default::default());
    client.insert_project(other);
    let completion = client.config.composition.completion;
    let basis = |learned: &Learned| completion.depends_on(learned);
    let learned = Learned { efficiency: client.ledger.cpu_efficiency(), ..Learned::default() };
    assert!(basis(&Learned::default()).has_moved(&basis(&learned)));
    let has_moved = client.workload.estimate_by(ProjectId(7), basis(&learned), || basis(&Learned::default()));
    assert!(!has_moved);
}

#[test]
fn a_project_that_is_taken_out_closes_its_accounts_and_decisions_are_due_without_it() {
    let (mut client, a, id) = settled();
    client.count(a, |totals| totals.rpcs += 1);
    client.forget_job(id, true);
    client.finish_step(None);
    forget_due(&mut client);
    client.remove_project(a).unwrap();
    let (runs, fetch, _) = due(&mut client);
    assert!(runs && fetch);
    let accounts = accounts(&client);
    assert_eq!((&accounts["totals"], &accounts["past"]["rpcs"]), (&json!({}), &json!(1)));
    let step = client.finish_step(None);
    assert!(step.durable && stores(&step, "project/") && stores(&step, "ledger"));
}

#[test]
fn what_is_edited_of_a_project_beside_the_rest_is_stored() {
    let (mut client, a, _) = settled();
    client.edit_job_time(a, Duration::from_secs(7));
    let step = client.finish_step(None);
    assert!(stores(&step, "project/") && !step.durable);
    client.edit_project(a, |project| project.hostid = 7);
    client.finish_step(None);
    client.number_rpc(a);
    let step = client.finish_step(None);
    assert!(stores(&step, "project/") && step.durable, "a server remembers the number");
    // What was owed until then is booked with it.
    client.edit_project(a, |project| project.share = fallow_domain::Share::new(7.0).unwrap());
    assert!(stores(&client.finish_step(None), "ledger"));
    client.count(a, |totals| totals.rpcs += 1);
    assert!(stores(&client.finish_step(None), "ledger"));
}

#[test]
fn numbers_that_are_given_out_are_stored() {
    let (mut client, ..) = settled();
    client.new_job_id();
    let step = client.finish_step(None);
    assert!(stores(&step, "meta") && !step.durable, "the job that gets it is");
    client.new_project_id();
    let step = client.finish_step(None);
    assert!(stores(&step, "meta") && step.durable);
}

#[test]
fn a_host_without_jobs_that_is_measured_anew_may_need_work() {
    let mut client = client(0, &["a"]);
    client.handle(NOW, Event::WakeUp);
    due(&mut client);
    client.edit_host(HostFacts { ncpus: 7, ..host(0) });
    let (runs, fetch, _) = due(&mut client);
    assert!(runs && fetch);
}

pub(super) fn new_file(transfer: bool) -> File {
    let backoff = fallow_policy::transfer_backoff::TransferBackoff::new(NOW);
    File {
        info: Default::default(),
        signed: false,
        status: FileStatus::Absent,
        proof: None,
        found: None,
        stale: Bytes(0),
        transfer: transfer.then_some(Transfer {
            direction: Direction::Download,
            url_index: 0,
            backoff,
            active: false,
        }),
        kept: Default::default(),
    }
}

#[test]
fn files_are_stored_as_they_come_change_and_go_and_their_transfers_are_known() {
    let (mut client, a, id) = settled();
    let key = FileKey { project: a, name: "f".to_owned() };
    client.insert_file(key.clone(), new_file(false));
    let step = client.finish_step(None);
    assert!(stores(&step, "file/") && !step.durable);
    client.edit_file(&key, |file| file.transfer = new_file(true).transfer);
    assert!(stores(&client.finish_step(None), "file/") && client.state.transfers.any());
    client.edit_transfer(&key, |transfer, _| transfer.url_index = 1);
    assert!(stores(&client.finish_step(None), "file/"));
    client.describe_file(&key, |file| file.info.download_urls.push("http://127.0.0.1/f".to_owned()));
    assert!(stores(&client.finish_step(None), "file/"));
    client.edit_file(&key, |file| file.transfer = None);
    assert!(!client.state.transfers.any());
    client.finish_step(None);
    client.edit_file(&key, |file| file.status = FileStatus::Uploaded);
    assert!(client.finish_step(None).durable, "its server would not take it again");
    client.use_file(&key);
    client.state.file_use.wait(key.clone(), id);
    client.edit_file(&key, |file| file.transfer = new_file(true).transfer);
    client.finish_step(None);
    client.remove_file(&key).unwrap();
    assert!(stores(&client.finish_step(None), "file/") && !client.state.transfers.any());
    assert!(!client.state.file_use.is_used(&key) && !client.state.file_use.is_awaited_by(&key, id));
}
