//! What is kept by difference when jobs are edited, compared with what follows from the whole state.

use std::collections::BTreeMap;

use fallow_domain::{Bytes, Duration, Instant, JobId, PerType, SlotId, Usage};
use fallow_policy::confinement::TaskLayers;
use fallow_policy::job_queue::Devices;
use proptest::prelude::*;
use proptest::test_runner::TestCaseError;

use super::{NOW, client, id_of, job, put_job, wake_up};
use crate::described::FileReference;
use crate::end_state::EndState;
use crate::machine::Client;
use crate::record::Record;
use crate::state::{Job, Outcome, Process, Stage};
use crate::{Cause, DiskHeld, Entity, Event, StartFault, TaskSample, TaskView};

/// What a shell has of a client's jobs: their records, and their views.
#[derive(Default)]
struct Shell {
    records: BTreeMap<Vec<u8>, Vec<u8>>,
    views: BTreeMap<JobId, TaskView>,
}

impl Shell {
    fn take_step(&mut self, client: &mut Client) {
        let step = client.finish_step(None);
        for change in step.changes.into_iter().filter(|change| change.key.starts_with(b"job/")) {
            match change.value {
                Some(value) => self.records.insert(change.key, value),
                None => self.records.remove(&change.key),
            };
        }
        for entity in step.touched {
            if let Entity::Job(id) = entity {
                match client.task_view(id) {
                    Some(view) => self.views.insert(id, view),
                    None => self.views.remove(&id),
                };
            }
        }
    }

    fn check(&self, client: &Client) -> Result<(), TestCaseError> {
        let mut records = BTreeMap::new();
        for id in client.state.jobs.keys() {
            let change = Record::Job(*id).change(&client.state, &client.ledger);
            records.insert(change.key, change.value.unwrap());
        }
        let read = |records: &BTreeMap<Vec<u8>, Vec<u8>>| -> BTreeMap<Vec<u8>, serde_json::Value> {
            records.iter().map(|(key, value)| (key.clone(), without_totals(value))).collect()
        };
        prop_assert_eq!(read(&self.records), read(&records));
        let views: Vec<TaskView> = self.views.values().cloned().collect();
        prop_assert_eq!(views, client.task_views());
        prop_assert!(client.state.jobs.is_consistent());
        prop_assert!(client.is_placed());
        Ok(())
    }
}

/// A stored job without its running totals, which are stored every few seconds.
pub(super) fn without_totals(record: &[u8]) -> serde_json::Value {
    let mut job: serde_json::Value = serde_json::from_slice(&record[1..]).unwrap();
    let run = job["run"].as_object_mut().unwrap();
    for total in [
        "charged",
        "charged_coprocessor",
        "process_cpu",
        "elapsed",
        "fraction_done",
        "working_set",
        "peak_working_set",
        "disk_usage",
    ] {
        assert!(run.remove(total).is_some(), "{total}");
    }
    job
}

fn outcome(n: u32) -> Option<Outcome> {
    let exit_status = n as i32 % 2;
    let (message, stderr) = (None, "x".repeat(n as usize / 2));
    (n > 0).then_some(Outcome { exit_status, state: EndState::ComputeError, message, stderr, at: NOW })
}

/// Changes one thing of a job.
fn change(job: &mut Job, what: u8, n: u32) {
    let (secs, at) = (Duration::from_secs(i64::from(n)), NOW + Duration::from_secs(i64::from(n) * 60));
    let run = &mut job.run;
    match what {
        0 => {
            let stages = [Stage::Downloading, Stage::Runnable, Stage::Uploading, Stage::Reporting];
            job.stage = stages[n as usize % 4];
        }
        1 => {
            let processes = [Process::None, Process::Starting, Process::Executing(n), Process::Suspended(n)];
            job.process = processes[n as usize % 4];
        }
        2 => {
            job.process =
                if n.is_multiple_of(2) { Process::Quitting(Some(n)) } else { Process::Aborting(None) }
        }
        3 => job.slot = (n > 0).then(|| SlotId(job.id.0 as u32 * 10 + n)),
        4 => job.outcome = outcome(n),
        5 => job.result.report_deadline = at,
        6 => run.not_before = if n.is_multiple_of(2) { Instant::EPOCH } else { at },
        7 => run.begun = n.is_multiple_of(2),
        8 => run.ran = n.is_multiple_of(2),
        9 => run.live = n.is_multiple_of(2),
        10 => run.starts = n,
        11 => run.failed_starts = n,
        12 => run.premature_exits = n,
        13 => run.quick_exits = n,
        14 => run.checkpoint_cpu = secs,
        15 => run.checkpoint_said = secs,
        16 => run.checkpoint_elapsed = secs,
        17 => run.checkpoint_fraction = f64::from(n) / 10.0,
        18 => run.checkpoint_at = (n > 0).then_some(at),
        19 => run.slice_since = at,
        20 => run.devices = Devices::first(n % 3),
        21 => run.base = secs,
        22 => run.process_cpu = secs,
        23 => run.fraction_done = f64::from(n) / 10.0,
        25 => run.made_room = n,
        26 => run.end_elapsed = secs,
        24 => run.working_set = Bytes::from_mebibytes(u64::from(n) * 2_000),
        _ => (run.elapsed, run.charged, run.disk_usage) = (secs, secs, Bytes(u64::from(n))),
    }
}

/// Something that happens to a job.
fn happens(client: &mut Client, id: JobId, what: u8, n: u32) {
    let cpu_time = Duration::from_secs(i64::from(n));
    let working_set = Bytes::from_mebibytes(u64::from(n) * 2_000);
    let disk = Some(DiskHeld { all: Bytes(1), ..DiskHeld::default() });
    match what {
        0 => client.task_started(id, n, TaskLayers::default()),
        1 => client.task_start_failed(id, "why".to_owned(), StartFault::Host),
        2 => client.task_start_failed(id, "why".to_owned(), StartFault::Slot),
        3 => client.tasks_sampled(&[TaskSample {
            job: id,
            cpu_time,
            status: None,
            working_set,
            swap: None,
            threads: n,
            disk,
        }]),
        4 => client.fall_back(id),
        5 => client.begin_anew(id),
        6 => client.abort_job(id, 203, &Cause::AbortedByProject),
        7 => client.settle_outputs(id),
        8 => client.wake_tasks(),
        _ => client.forget_job(id, n.is_multiple_of(2)),
    }
}

/// Which decisions have become due: what runs, what to fetch, what to report.
fn due(client: &mut Client) -> (bool, bool, bool) {
    let reports = client.reports.next().is_none();
    (client.schedule.take_wanted(), client.fetch.take_wanted(), reports)
}

/// A client with a task that runs, and nothing due.
fn running() -> (Client, JobId) {
    let mut client = client(0, &["a"]);
    let a = id_of(&client, "a");
    let id = put_job(&mut client, 1, a, Usage::ONE_CPU);
    client.edit_job(id, |job| (job.process, job.run.begun) = (Process::Executing(7), true));
    client.handle(NOW, Event::WakeUp);
    assert!(client.reports.next().is_some());
    due(&mut client);
    client.finish_step(None);
    (client, id)
}

#[test]
fn a_look_at_a_task_is_told_to_the_queue_and_makes_no_decision_due() {
    let (mut client, id) = running();
    let (cpu_time, working_set) = (Duration::from_secs(500), Bytes::from_mebibytes(1));
    let (status, threads, disk) = (None, 1, None);
    client.tasks_sampled(&[TaskSample { job: id, cpu_time, status, working_set, swap: None, threads, disk }]);
    assert_eq!(client.workload.queue().get(id).unwrap().working_set, working_set);
    assert_eq!(due(&mut client), (false, false, false));
    assert!(client.finish_step(None).touched.contains(&Entity::Job(id)));
}

#[test]
fn an_edit_makes_due_what_follows_from_it() {
    let (mut client, id) = running();
    client.edit_job(id, |job| job.process = Process::Suspended(7));
    assert_eq!(due(&mut client), (false, false, false));
    assert!(!client.finish_step(None).durable);
    client.edit_job(id, |job| job.result.report_deadline = NOW);
    assert_eq!(due(&mut client), (false, true, true));
    assert!(client.finish_step(None).durable, "the project will not say it again");
    client.edit_job(id, |job| job.process = Process::None);
    assert_eq!(due(&mut client), (true, true, true));
    assert!(!client.finish_step(None).durable);
    client.edit_job(id, |job| job.outcome = outcome(1));
    assert!(client.finish_step(None).durable);
    let said = |job: &mut Job| job.run.checkpoint_said += Duration::from_secs(1);
    due(&mut client);
    client.edit_job(id, said);
    assert!(!due(&mut client).0);
    client.ledger.decided(PerType::default(), true);
    client.edit_job(id, said);
    assert!(due(&mut client).0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn what_is_stored_shown_and_queued_of_jobs_is_what_follows_from_them(
        steps in prop::collection::vec((0_u64..4, 0_u8..38, 0_u32..6), 1..60)
    ) {
        let mut client = client(0, &["a", "b"]);
        let projects = [id_of(&client, "a"), id_of(&client, "b")];
        let mut shell = Shell::default();
        for (number, what, n) in steps {
            let id = JobId(number);
            match what {
                _ if !client.state.jobs.contains_key(&id) => {
                    let cpus = [0.5, 1.0, 2.0, 8.0][number as usize];
                    let mut job = job(number, projects[number as usize % 2], Usage::from_cpus(cpus));
                    job.result.files = vec![FileReference { file_name: format!("out{number}"), ..FileReference::default() }];
                    client.insert_job(job);
                    client.reassess(id);
                }
                28.. => happens(&mut client, id, what - 28, n),
                _ => {
                    client.edit_job(id, |job| change(job, what, n));
                }
            }
            shell.take_step(&mut client);
            shell.check(&client)?;
            let wake_up = client.next_wake_up();
            wake_up::check(&client, wake_up);
        }
    }
}
