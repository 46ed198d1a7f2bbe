//! Jobs that read no messages, and those that take long to leave, beside somebody who wants the machine.

use fallow_agent::proc;
use fallow_boinc::runtime::message::ProcessControl;
use fallow_client::Event;

use crate::messages::say;
use crate::supervision::{Bench, JOB};
use crate::support::wait_for;

/// Nothing is shown as stopped that waits for a process of its own to begin.
const WAITS: &str = "exec sleep 1000";

/// Shows R6.2: also while it uses next to no CPU time, and each time.
#[test]
fn r6_2_a_script_is_stopped_where_others_rest_and_goes_on_where_they_do() {
    let bench = Bench::new();
    bench.supervisor.start_task(bench.script(WAITS));
    let pid = bench.started();
    let is_stopped = || proc::find(pid).is_some_and(|process| process.stopped);
    for _ in 0..2 {
        bench.supervisor.tell(JOB, ProcessControl::Suspend);
        wait_for("the script to be stopped", || is_stopped().then_some(()));
        bench.supervisor.tell(JOB, ProcessControl::Resume);
        wait_for("the script to go on", || (!is_stopped()).then_some(()));
    }
    bench.supervisor.kill(JOB);
    assert_eq!(bench.ended().killed.as_deref(), Some("it takes more than it may"));
}

/// Shows R6.2.
#[test]
fn r6_2_a_script_that_is_to_leave_has_no_time_to_compute_on() {
    for message in [ProcessControl::Quit, ProcessControl::Abort] {
        let bench = Bench::new();
        bench.supervisor.start_task(bench.script("sleep 1000"));
        bench.started();
        bench.supervisor.tell(JOB, message);
        let why = bench.ended().killed;
        assert_eq!(why.as_deref(), Some("it was told to leave, and reads no messages"));
    }
}

/// A script that says how far it is, as those do that are made with BOINC's library, and that reads nothing.
fn speaking(bench: &Bench, rest: &str) {
    let status = "<current_cpu_time>1</current_cpu_time>\\n<checkpoint_cpu_time>0</checkpoint_cpu_time>\\n";
    bench.supervisor.start_task(bench.script(&format!("{} {rest}", say(5, status))));
    bench.started();
    bench.sample("what it says", |sample| sample.status.is_some());
}

/// Shows R6.2: whether it was about to leave before, or is to leave because somebody wants the machine.
#[test]
fn r6_2_a_job_that_takes_long_to_leave_has_to_hurry_for_somebody_who_wants_the_machine() {
    for was_to_leave in [false, true] {
        let bench = Bench::new();
        speaking(&bench, "sleep 1000");
        if !was_to_leave {
            bench.supervisor.freeze();
        }
        bench.supervisor.tell(JOB, ProcessControl::Quit);
        if was_to_leave {
            bench.supervisor.freeze();
        }
        let why = bench.ended().killed;
        assert_eq!(why.as_deref(), Some("somebody wants the machine, and it is to leave"), "{was_to_leave}");
    }
}

/// Shows R6.2.
#[test]
fn r6_2_a_job_that_hears_has_its_time_to_leave_where_nobody_wants_the_machine() {
    let bench = Bench::new();
    speaking(&bench, "sleep 8; echo 0 > boinc_finish_called; exit 0");
    bench.supervisor.tell(JOB, ProcessControl::Quit);
    let end = bench.ended();
    assert!(end.killed.is_none() && end.finish.is_some(), "{end:?}");
}

/// Shows R2.8: a limit on CPU time has jobs rest for a second at a time.
#[test]
fn r2_8_a_script_that_is_known_to_read_nothing_is_stopped_at_once() {
    let bench = Bench::new();
    bench.supervisor.start_task(bench.script(WAITS));
    let pid = bench.started();
    let is_stopped = || proc::find(pid).is_some_and(|process| process.stopped);
    let stops = |stopped: bool| {
        let message = if stopped { ProcessControl::Suspend } else { ProcessControl::Resume };
        bench.supervisor.tell(JOB, message);
        wait_for("what it was told", || (is_stopped() == stopped).then_some(()));
    };
    stops(true);
    stops(false);
    // Each look tells what it has seen, before the next order is carried out.
    let is_stopped_without_a_look = || {
        bench.events.try_iter().for_each(drop);
        stops(true);
        stops(false);
        !bench.events.try_iter().any(|event| matches!(event, Event::TasksSampled(_)))
    };
    assert!((0..100).any(|_| is_stopped_without_a_look()), "it was stopped by looks alone");
    bench.supervisor.kill(JOB);
    bench.ended();
}
