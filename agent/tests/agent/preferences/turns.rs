//! How long a project's task keeps a CPU before another project's has its turn, as BOINC's file says it
//! (R6.4, R2.4).

use fallow_agent::proc;

use super::Host;
use super::project::{WAITS, project};
use crate::attach::{RIGHT, attach, status};
use crate::support::wait_for;

#[test]
fn r2_4_r6_4_two_projects_have_a_cpu_in_turns_that_are_as_long_as_the_override_says() {
    let (one, other, mut host) = (project(vec![WAITS]), project(vec![WAITS]), Host::new());
    let says = |minutes: f64| {
        format!(
            "<max_ncpus_pct>0.1</max_ncpus_pct>\n<leave_apps_in_memory>0</leave_apps_in_memory>\n\
             <cpu_scheduling_period_minutes>{minutes}</cpu_scheduling_period_minutes>"
        )
    };
    host.write_over(&says(60.0));
    host.start();
    host.begin(&one);
    let first = host.saved(1)[0];
    assert_eq!(attach(host.path(), &other.url(""), RIGHT, &["--no-wait"]).0, 0);
    wait_for("the other project's job", || {
        let tasks = status(host.path())["tasks"].clone();
        tasks.as_array()?.iter().any(|task| task["phase"] == "ready").then_some(())
    });
    assert_eq!(host.runs(1), [first], "its hour is not over");
    // Turns of four seconds.
    host.over(&says(4.0 / 60.0));
    let mut turns = vec![(first, started(first).unwrap())];
    while turns.len() < 6 {
        let (last, _) = turns[turns.len() - 1];
        let next = wait_for("another turn", || {
            let pid = host.running(1)?[0];
            if pid == last { None } else { Some((pid, started(pid)?)) }
        });
        turns.push(next);
    }
    // The first one was begun under the other period. A process may begin late, by which the turn before it
    // is longer.
    let lengths: Vec<u64> = turns[1..].windows(2).map(|pair| pair[1].1 - pair[0].1).collect();
    let second = rustix::param::clock_ticks_per_second();
    println!("turns of {lengths:?} clock ticks, {second} a second");
    assert!(lengths.iter().sum::<u64>() >= lengths.len() as u64 * 2 * second, "{lengths:?}");
    let urls: Vec<String> = [&one, &other].map(|server| server.url("")).into();
    let spent = |url: &String| {
        let projects = status(host.path())["projects"].clone();
        let project = projects.as_array().unwrap().iter().find(|one| one["url"] == url.as_str()).cloned();
        project.unwrap()["cpu_time"].as_f64().unwrap()
    };
    assert!(urls.iter().all(|url| spent(url) > 0.0), "both had turns");
}

/// When a process began, in clock ticks since the machine did.
fn started(pid: u32) -> Option<u64> {
    proc::find(pid).map(|process| process.start)
}
