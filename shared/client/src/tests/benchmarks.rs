//! Tasks while the CPUs are measured.

use fallow_domain::{Duration, JobId, SlotId, Usage};

use super::{NOW, client, id_of, put_job};
use crate::machine::Client;
use crate::state::Process;
use crate::{Effect, Event, Step};

/// Jobs that are to be suspended, and to be resumed.
fn told(step: &Step) -> (Vec<JobId>, Vec<JobId>) {
    let (mut suspended, mut resumed) = (Vec::new(), Vec::new());
    for action in &step.actions {
        match action.effect {
            Effect::SuspendTask { job } => suspended.push(job),
            Effect::ResumeTask { job } => resumed.push(job),
            _ => {}
        }
    }
    (suspended, resumed)
}

/// A client with two tasks that run on one CPU.
fn running() -> Client {
    let mut client = client(0, &["a"]);
    let a = id_of(&client, "a");
    for (id, slot) in [
        (put_job(&mut client, 1, a, Usage::from_cpus(0.5)), 0),
        (put_job(&mut client, 2, a, Usage::from_cpus(0.5)), 1),
    ] {
        let job = client.state.jobs.get_mut(&id).unwrap();
        (job.process, job.slot) = (Process::Executing(7), Some(SlotId(slot)));
        (job.run.begun, job.run.ran, job.run.live) = (true, true, true);
        client.state.slots.insert(SlotId(slot), id);
    }
    client.handle(NOW, Event::WakeUp);
    client
}

const BOTH: [JobId; 2] = [JobId(1), JobId(2)];

#[test]
fn r6_2_tasks_hold_their_breath_while_the_cpus_are_measured_as_in_the_stock_client() {
    let mut client = running();
    let step = client.handle(NOW, Event::BenchmarksRun(true));
    assert_eq!(told(&step), (BOTH.to_vec(), vec![]));
    let suspended = step.actions.iter().find(|action| matches!(action.effect, Effect::SuspendTask { .. }));
    assert!(suspended.unwrap().reason.why.contains("CPU benchmarks"));
    assert_eq!(client.paused_cpus(), 1.0, "no time goes to them");
    let soon = NOW + Duration::from_secs(20);
    for event in [Event::BenchmarksRun(true), Event::WakeUp] {
        assert_eq!(told(&client.handle(soon, event)), (vec![], vec![]));
    }
    assert_eq!(told(&client.handle(soon, Event::BenchmarksRun(false))), (vec![], BOTH.to_vec()));
    assert_eq!(told(&client.handle(soon, Event::BenchmarksRun(false))), (vec![], vec![]));
    assert_eq!(client.paused_cpus(), 0.0);
}

#[test]
fn a_measurement_without_an_end_keeps_tasks_waiting_for_a_minute_and_no_longer() {
    let mut client = running();
    let step = client.handle(NOW, Event::BenchmarksRun(true));
    let minute = NOW + Duration::from_secs(60);
    assert!(step.wake_at.unwrap() <= minute);
    let before = client.handle(minute - Duration::from_secs(1), Event::WakeUp);
    assert_eq!(told(&before), (vec![], vec![]));
    assert_eq!(told(&client.handle(minute, Event::WakeUp)), (vec![], BOTH.to_vec()));
    // Nor does a clock that is set back.
    client.handle(minute, Event::BenchmarksRun(true));
    assert_eq!(told(&client.handle(NOW, Event::WakeUp)), (vec![], BOTH.to_vec()));
}
