//! Jobs that read no messages, and those that take long to leave, beside somebody who wants the machine.

use fallow_agent::proc;
use fallow_boinc::runtime::message::ProcessControl;

use crate::messages::say;
use crate::supervision::{Bench, JOB};
use crate::support::wait_for;

/// Shows R6.2: also while it uses next to no CPU time, and each time.
#[test]
fn r6_2_a_script_is_stopped_where_others_rest_and_goes_on_where_they_do() {
    let bench = Bench::new();
    bench.supervisor.start_task(bench.script("while :; do sleep 0.1; done"));
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

/// Shows R6.2: one that says how far it is, as those do that are made with BOINC's library.
#[test]
fn r6_2_a_job_that_takes_long_to_leave_has_to_hurry_for_somebody_who_wants_the_machine() {
    let bench = Bench::new();
    let status = "<current_cpu_time>1</current_cpu_time>\\n<checkpoint_cpu_time>0</checkpoint_cpu_time>\\n";
    bench.supervisor.start_task(bench.script(&format!("{} sleep 1000", say(5, status))));
    bench.started();
    bench.sample("what it says", |sample| sample.status.is_some());
    bench.supervisor.tell(JOB, ProcessControl::Quit);
    bench.supervisor.freeze();
    let why = bench.ended().killed;
    assert_eq!(why.as_deref(), Some("somebody wants the machine, and it was told to leave before"));
}
