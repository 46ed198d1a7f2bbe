//! What a task may take holds as long as it has a process, whatever it was told.

use fallow_boinc::runtime::exit;
use fallow_boinc::runtime::finish::Finish;
use fallow_boinc::scheduler::FileInfo;
use fallow_domain::{
    Bytes, DocumentVersion, Duration, FleetDocument, Fraction, HostFacts, JobId, Preferences, ResourceType,
    SlotId, Usage,
};

use super::{NOW, client, host, id_of, job, put_job};
use crate::described::FileReference;
use crate::end_state::EndState;
use crate::machine::Client;
use crate::state::{Outcome, Process};
use crate::{Effect, Event, OutputFound, TaskEnd, TaskSample};

/// A client with a task in this state.
fn with(process: Process) -> (Client, JobId) {
    let mut client = client(0, &["a"]);
    let a = id_of(&client, "a");
    let id = put_job(&mut client, 1, a, Usage::ONE_CPU);
    client.edit_job(id, |job| {
        (job.process, job.slot, job.run.begun) = (process, Some(SlotId(0)), true);
        if matches!(process, Process::Aborting(_)) {
            let (message, stderr) = (Some("too much on the disk".to_owned()), String::new());
            let (exit_status, state, at) = (exit::DISK_LIMIT_EXCEEDED, EndState::ComputeError, NOW);
            job.outcome = Some(Outcome { exit_status, state, message, stderr, at });
        }
    });
    client.handle(NOW, Event::WakeUp);
    (client, id)
}

/// How often it is killed when it is seen so after so many seconds.
fn kills(client: &mut Client, job: JobId, seconds: i64, working_set: Bytes) -> usize {
    let (cpu_time, threads, disk, status) = (Duration::ZERO, 1, None, None);
    let sample = TaskSample { job, cpu_time, working_set, swap: None, threads, disk, status };
    let step = client.handle(NOW + Duration::from_secs(seconds), Event::TasksSampled(vec![sample]));
    let is_killed = |effect: &Effect| matches!(effect, Effect::KillTask { job: killed } if *killed == job);
    step.actions.iter().filter(|action| is_killed(&action.effect)).count()
}

#[test]
fn r6_10_a_task_that_does_not_go_when_it_is_told_to_and_takes_too_much_memory_is_killed() {
    let (little, much) = (Bytes::from_mebibytes(100), Bytes::from_mebibytes(100_000));
    for (process, failed_with) in [
        (Process::Executing(7), exit::MEM_LIMIT_EXCEEDED),
        (Process::Suspended(7), exit::MEM_LIMIT_EXCEEDED),
        (Process::Quitting(Some(7)), exit::MEM_LIMIT_EXCEEDED),
        // It has failed for something else already.
        (Process::Aborting(Some(7)), exit::DISK_LIMIT_EXCEEDED),
    ] {
        let (mut client, id) = with(process);
        assert_eq!(kills(&mut client, id, 1, little), 0, "{process:?}");
        assert_eq!(kills(&mut client, id, 2, much), 1, "{process:?}");
        let job = &client.state.jobs[&id];
        assert_eq!(job.outcome.as_ref().unwrap().exit_status, failed_with, "{process:?}");
        assert_eq!(job.process, Process::Aborting(Some(7)), "{process:?}");
        // Once a look, until it is gone.
        assert_eq!(kills(&mut client, id, 3, much), 1, "{process:?}");
        assert!(client.handle(NOW + Duration::from_secs(3), Event::WakeUp).actions.is_empty(), "{process:?}");
    }
}

#[test]
fn r6_10_a_task_that_the_system_killed_for_its_memory_has_failed_for_that_and_no_other_that_is_killed() {
    for (memory_exceeded, exit) in [
        (Some(Bytes(900_000_000)), exit::Ended::Signal { number: 9, core_dumped: false }),
        // What had started its processes says it with a number of its own.
        (Some(Bytes(900_000_000)), exit::Ended::Code(137)),
        (None, exit::Ended::Signal { number: 9, core_dumped: false }),
    ] {
        let (mut client, id) = with(Process::Executing(7));
        let end = TaskEnd {
            exit,
            finish: None,
            temporary_exit: None,
            cpu_time: Duration::ZERO,
            is_charged: false,
            stderr: String::new(),
            outputs: Vec::new(),
            peak_working_set: Bytes(0),
            disk_usage: Bytes(0),
            made_room: None,
            memory_exceeded,
            killed: None,
        };
        client.handle(NOW, Event::TaskEnded { job: id, end: Box::new(end) });
        let outcome = client.state.jobs[&id].outcome.clone();
        // One that is killed otherwise is started again, which this client has nothing for.
        let outcome = outcome.filter(|outcome| outcome.exit_status == exit::MEM_LIMIT_EXCEEDED);
        let said = outcome.map(|outcome| (outcome.exit_status, outcome.message.unwrap_or_default()));
        let says = "it needed more memory than the 900 MB that it may have here: the system killed it";
        let expected = memory_exceeded.map(|_| (exit::MEM_LIMIT_EXCEEDED, says.to_owned()));
        assert_eq!(said, expected, "{memory_exceeded:?} {exit:?}");
    }
}

#[test]
fn r6_2_what_the_agent_killed_is_not_said_to_be_stopped_by_others() {
    for (killed, says) in [
        (None, "was stopped by signal 9; it is started again"),
        (Some("it told nothing"), "was killed by this agent, for it told nothing; it is started again"),
    ] {
        let (mut client, id) = with(Process::Executing(7));
        let end = TaskEnd {
            exit: exit::Ended::Signal { number: 9, core_dumped: false },
            finish: None,
            temporary_exit: None,
            cpu_time: Duration::ZERO,
            is_charged: false,
            stderr: String::new(),
            outputs: Vec::new(),
            peak_working_set: Bytes(0),
            disk_usage: Bytes(0),
            made_room: None,
            memory_exceeded: None,
            killed: killed.map(str::to_owned),
        };
        let step = client.handle(NOW, Event::TaskEnded { job: id, end: Box::new(end) });
        let notices = step.actions.iter().filter(|action| matches!(action.effect, Effect::Notice { .. }));
        let said = format!("{:?}", notices.collect::<Vec<_>>());
        assert!(said.contains(says), "{said}");
    }
}

#[test]
fn r4_8_outputs_that_hold_too_much_together_fail_their_job_and_it_is_said_what_all_of_them_hold() {
    let mut client = client(0, &["a"]);
    let a = id_of(&client, "a");
    let names = ["first", "second"];
    let mut job = job(1, a, Usage::ONE_CPU);
    let output = |name: &str| FileReference { file_name: name.to_owned(), ..FileReference::default() };
    job.result.files = names.map(output).into();
    for name in names {
        client.put_file(a, FileInfo { name: name.to_owned(), ..FileInfo::default() }.into());
    }
    let id = job.id;
    client.insert_job(job);
    client.reassess(id);
    client.edit_job(id, |job| {
        (job.process, job.slot, job.run.begun) = (Process::Executing(7), Some(SlotId(0)), true);
    });
    client.handle(NOW, Event::WakeUp);
    // The second one was not read: beside the first it was too much.
    let found = |name: &str, md5: &str| OutputFound {
        name: name.to_owned(),
        nbytes: Bytes(700_000_000),
        md5: md5.to_owned(),
    };
    let end = TaskEnd {
        exit: exit::Ended::Code(0),
        finish: Some(Finish::read(b"0\n")),
        temporary_exit: None,
        cpu_time: Duration::ZERO,
        is_charged: false,
        stderr: String::new(),
        outputs: vec![found("first", "0123456789abcdef0123456789abcdef"), found("second", "")],
        peak_working_set: Bytes(0),
        disk_usage: Bytes(0),
        made_room: None,
        memory_exceeded: None,
        killed: None,
    };
    client.handle(NOW, Event::TaskEnded { job: id, end: Box::new(end) });
    let outcome = client.state.jobs[&id].outcome.clone().unwrap();
    let said = outcome.message.unwrap_or_default();
    assert_eq!(outcome.exit_status, exit::DISK_LIMIT_EXCEEDED, "{said}");
    assert!(said.contains("its files hold 1400 MB"), "{said}");
}

#[test]
fn r6_10_tasks_keep_so_many_cpus_busy_as_preferences_leave_them_and_more_for_those_that_feed_gpus() {
    let half = Preferences { cpu_fraction: Fraction::clamped(0.5), ..Preferences::default() };
    let document = |preferences| FleetDocument {
        content: String::new(),
        version: DocumentVersion(1),
        preferences,
        projects: Vec::new(),
    };
    let mut client = client(2, &["a"]);
    client.edit_host(HostFacts { ncpus: 8, ..host(2) });
    assert_eq!(client.task_limits().cpus, None, "all are theirs");
    client.offer_document(document(half));
    assert_eq!(client.task_limits().cpus, Some(4));
    let a = id_of(&client, "a");
    for (number, cpus, expected) in [(1, 0.1, Some(5)), (2, 1.5, Some(7)), (3, 1.0, None)] {
        let gpu = Usage { cpus, coprocessor: Some((ResourceType::Nvidia, 1.0)) };
        let id = put_job(&mut client, number, a, gpu);
        client.edit_job(id, |job| {
            (job.process, job.slot) = (Process::Executing(7), Some(SlotId(u32::try_from(number).unwrap())));
        });
        assert_eq!(client.task_limits().cpus, expected, "{number}");
    }
}
