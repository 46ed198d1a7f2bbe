//! Tasks while the CPUs are measured.

use fallow_domain::{
    DocumentVersion, Duration, FleetDocument, JobId, Preferences, ResourceType, SlotId, Usage,
};

use super::{NOW, client, id_of, put_job};
use crate::machine::Client;
use crate::state::Process;
use crate::{Benchmarks, Effect, Event, Step};

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
        client.edit_job(id, |job| {
            (job.process, job.slot) = (Process::Executing(7), Some(SlotId(slot)));
            (job.run.begun, job.run.ran, job.run.live) = (true, true, true);
        });
    }
    client.handle(NOW, Event::WakeUp);
    client
}

const BOTH: [JobId; 2] = [JobId(1), JobId(2)];

#[test]
fn r6_2_tasks_hold_their_breath_while_the_cpus_are_measured_as_in_the_stock_client() {
    let mut client = running();
    let step = client.handle(NOW, Event::BenchmarksRun(Benchmarks::Begin));
    assert_eq!(told(&step), (BOTH.to_vec(), vec![]));
    let suspended = step.actions.iter().find(|action| matches!(action.effect, Effect::SuspendTask { .. }));
    assert!(suspended.unwrap().reason.why.to_string().contains("CPU benchmarks"));
    assert_eq!(client.paused_cpus(), 1.0, "no time goes to them");
    let soon = NOW + Duration::from_secs(20);
    for event in [Event::BenchmarksRun(Benchmarks::Begin), Event::WakeUp] {
        assert_eq!(told(&client.handle(soon, event)), (vec![], vec![]));
    }
    assert_eq!(told(&client.handle(soon, Event::BenchmarksRun(Benchmarks::End))), (vec![], BOTH.to_vec()));
    assert_eq!(told(&client.handle(soon, Event::BenchmarksRun(Benchmarks::End))), (vec![], vec![]));
    assert_eq!(client.paused_cpus(), 0.0);
}

#[test]
fn a_measurement_without_an_end_keeps_tasks_waiting_for_a_minute_and_no_longer() {
    let mut client = running();
    let step = client.handle(NOW, Event::BenchmarksRun(Benchmarks::Begin));
    let minute = NOW + Duration::from_secs(60);
    assert!(step.wake_at.unwrap() <= minute);
    let before = client.handle(minute - Duration::from_secs(1), Event::WakeUp);
    assert_eq!(told(&before), (vec![], vec![]));
    assert_eq!(told(&client.handle(minute, Event::WakeUp)), (vec![], BOTH.to_vec()));
    // Nor does a clock that is set back.
    client.handle(minute, Event::BenchmarksRun(Benchmarks::Begin));
    assert_eq!(told(&client.handle(NOW, Event::WakeUp)), (vec![], BOTH.to_vec()));
}

/// How many notices come with a step.
fn notices(step: &Step) -> usize {
    step.actions.iter().filter(|action| matches!(action.effect, Effect::Notice { .. })).count()
}

/// Shows R6.2.
#[test]
fn a_measurement_that_is_tried_again_is_not_told_and_leaves_jobs_on_coprocessors_alone() {
    let mut client = client(1, &["a"]);
    let a = id_of(&client, "a");
    let gpu = Usage::from_cpus(0.1).with_coprocessor(ResourceType::Nvidia, 1.0);
    for (number, slot, usage) in [(1, 0, Usage::from_cpus(1.0)), (2, 1, gpu)] {
        let id = put_job(&mut client, number, a, usage);
        client.edit_job(id, |job| {
            (job.process, job.slot) = (Process::Executing(7), Some(SlotId(slot)));
            (job.run.begun, job.run.ran, job.run.live) = (true, true, true);
        });
    }
    client.handle(NOW, Event::WakeUp);
    let run = |client: &mut Client, what| {
        let step = client.handle(NOW, Event::BenchmarksRun(what));
        (told(&step), notices(&step))
    };
    assert_eq!(run(&mut client, Benchmarks::Begin), ((BOTH.to_vec(), vec![]), 1));
    assert_eq!(run(&mut client, Benchmarks::End), ((vec![], BOTH.to_vec()), 1));
    assert_eq!(run(&mut client, Benchmarks::Retry), ((vec![JobId(1)], vec![]), 0));
    assert_eq!(client.paused_cpus(), 1.0);
    assert_eq!(run(&mut client, Benchmarks::End), ((vec![], vec![JobId(1)]), 0));
}

/// Shows R6.2.
#[test]
fn the_cpus_are_measured_when_that_is_due_unless_the_owner_or_the_coordinator_wants_no_computing() {
    let document = |version, suspended| {
        let preferences = Preferences { suspended, ..Preferences::default() };
        let version = DocumentVersion(version);
        Event::DocumentOffered(
            FleetDocument { content: String::new(), version, projects: Vec::new(), preferences }.into(),
        )
    };
    let table = [
        (None, true),
        (Some(Event::OwnerSuspended(true)), false),
        (Some(Event::OwnerSuspended(false)), true),
        (Some(document(1, true)), false),
        (Some(document(2, false)), true),
    ];
    let mut client = running();
    for (before, measured) in table {
        let shown = format!("{before:?}");
        if let Some(event) = before {
            client.handle(NOW, event);
        }
        for due in [Benchmarks::Begin, Benchmarks::Retry] {
            let step = client.handle(NOW, Event::BenchmarksRun(due));
            let asked = step.actions.iter().filter(|action| matches!(action.effect, Effect::MeasureSpeed));
            assert_eq!(asked.count(), usize::from(measured), "{due:?} after {shown}");
            client.handle(NOW, Event::BenchmarksRun(Benchmarks::End));
        }
    }
}

fn give_up(step: &Step) -> usize {
    step.actions.iter().filter(|action| matches!(action.effect, Effect::GiveUpMeasuring)).count()
}

#[test]
fn r6_2_a_measurement_is_given_up_as_soon_as_somebody_wants_the_cpus_for_himself() {
    let input = Event::OwnerInput { ago: Duration::ZERO };
    for wanted in [input.clone(), Event::Snoozed(Duration::from_hours(1)), Event::OwnerSuspended(true)] {
        let mut client = running();
        client.handle(NOW, Event::BenchmarksRun(Benchmarks::Begin));
        let soon = NOW + Duration::from_secs(5);
        assert_eq!(give_up(&client.handle(soon, wanted.clone())), 1, "{wanted:?}");
        assert_eq!(give_up(&client.handle(soon, Event::WakeUp)), 0, "it is told once");
        // And none is begun.
        client.handle(soon, Event::BenchmarksRun(Benchmarks::End));
        let step = client.handle(soon, Event::BenchmarksRun(Benchmarks::Retry));
        assert!(
            !step.actions.iter().any(|action| matches!(action.effect, Effect::MeasureSpeed)),
            "{wanted:?}"
        );
    }
    // Nor for whom nothing else rests.
    let mut client = running();
    let preferences = Preferences { run_in_use: true, ..Preferences::default() };
    let (version, projects) = (DocumentVersion(1), Vec::new());
    let document = FleetDocument { content: String::new(), version, projects, preferences };
    client.handle(NOW, Event::DocumentOffered(document.into()));
    client.handle(NOW, Event::BenchmarksRun(Benchmarks::Begin));
    assert_eq!(give_up(&client.handle(NOW, input)), 1);
}
