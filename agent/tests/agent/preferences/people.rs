//! What BOINC's file says of people at the machine, and of other programs while somebody is there (R6.4,
//! R6.2).

use std::path::Path;
use std::thread::available_parallelism;
use std::time::{Duration, Instant};

use fallow_agent::proc;

use super::project::{WAITS, project};
use super::{Host, Program};
use crate::attach::{RIGHT, attach, status};
use crate::daemon::outcome;
use crate::owner::Dev;
use crate::support::wait_for;

fn stopped(pids: &[u32]) -> Option<()> {
    pids.iter().all(|pid| proc::find(*pid).is_some_and(|process| process.stopped)).then_some(())
}

#[test]
fn r6_2_r6_4_after_a_key_a_host_rests_for_as_long_as_the_override_says() {
    let (server, mut dev, mut host) = (project(vec![WAITS]), Dev::new(), Host::new());
    host.write_over("<run_if_user_active>0</run_if_user_active>\n<idle_time_to_run>0.2</idle_time_to_run>");
    host.watch(&dev);
    host.begin(&server);
    let pids = host.runs(1);
    let pressed = Instant::now();
    dev.key();
    wait_for("the task to be stopped", || stopped(&pids));
    // Tasks stop before the engine has heard why.
    wait_for("the reason to be told", || {
        let (_, text) = outcome(host.path(), &["status"]);
        text.starts_with("resting: somebody uses the machine; goes on 12 s after the last input")
            .then_some(())
    });
    host.goes_on();
    assert!(pressed.elapsed() > Duration::from_secs(11), "{:?}", pressed.elapsed());
    assert_eq!(host.runs(1), pids);
    wait_for("the same process to go on", || stopped(&pids).is_none().then_some(()));
}

#[test]
fn r6_4_a_host_that_nobody_has_used_for_a_minute_rests_until_somebody_does_where_the_override_says_so() {
    let (server, mut dev, mut host) = (project(vec![WAITS]), Dev::new(), Host::new());
    let says = "<run_if_user_active>1</run_if_user_active>\n\
                <suspend_if_no_recent_input>1</suspend_if_no_recent_input>";
    host.write_over(says);
    host.watch(&dev);
    assert_eq!(attach(host.path(), &server.url(""), RIGHT, &["--no-wait"]).0, 0);
    // Until a task runs, somebody is there.
    let mut begun = Instant::now();
    wait_for("a task that runs", || {
        begun = Instant::now();
        dev.key();
        (host.stand() == (serde_json::Value::Null, true)).then_some(())
    });
    host.stops("no input");
    assert!(begun.elapsed() > Duration::from_secs(59), "{:?}", begun.elapsed());
    let (_, text) = outcome(host.path(), &["status"]);
    assert!(text.contains("nobody has used the machine for long"), "{text}");
    dev.key();
    host.goes_on();
}

#[test]
fn r6_4_the_load_of_other_programs_stops_tasks_at_one_limit_in_use_and_at_another_one_else() {
    let (server, mut dev, mut host) = (project(vec![WAITS]), Dev::new(), Host::new());
    let says = |in_use: u32, else_: u32| {
        format!(
            "<run_if_user_active>1</run_if_user_active>\n<idle_time_to_run>0.17</idle_time_to_run>\n\
             <suspend_cpu_usage>{in_use}</suspend_cpu_usage>\n\
             <niu_suspend_cpu_usage>{else_}</niu_suspend_cpu_usage>"
        )
    };
    host.write_over(&says(0, 20));
    host.watch(&dev);
    assert_eq!(
        crate::attach::attach(host.path(), &server.url(""), crate::attach::RIGHT, &["--no-wait"]).0,
        0
    );
    let cpus = available_parallelism().unwrap().get();
    let _spinning: Vec<Program> =
        (0..cpus).map(|_| Program::start(Path::new("/bin/sh"), &["-c", "while :; do :; done"])).collect();
    let why = || status(host.path())["host"]["stopped_for"].as_str().unwrap_or_default().to_owned();
    host.stops("other programs");
    assert!(why().contains("% of them, and other_load_max is 20 %"), "{}", why());
    // Nobody is there, and then it is no matter.
    host.over(&says(20, 0));
    host.goes_on();
    wait_for("tasks to rest for somebody who is there", || {
        dev.key();
        (host.stand() == ("other programs".into(), false)).then_some(())
    });
    assert!(why().contains("% of them, and other_load_max_in_use is 20 %"), "{}", why());
    // He has gone, and the others compute still.
    host.goes_on();
}
