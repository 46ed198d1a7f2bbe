//! What tasks hold of the memory, and whether those that rest stay there, as BOINC's file says it (R6.4).

use super::Host;
use super::project::{Job, WAITS, are_gone, project, ticks};
use crate::attach::status;
use crate::daemon::outcome;
use crate::owner::Dev;
use crate::support::{is_alive, wait_for};

#[test]
fn r6_4_a_task_that_rests_stays_in_memory_or_leaves_it_as_the_override_says() {
    let (server, mut host) = (project(vec![Job { words: "compute", ..WAITS }]), Host::new());
    host.write_over("<leave_apps_in_memory>1</leave_apps_in_memory>");
    host.start();
    host.begin(&server);
    let pid = host.saved(1)[0];
    assert_eq!(outcome(host.path(), &["suspend"]).0, 0);
    host.stops("owner");
    // It has been told once its CPU time stands still for a while.
    let (mut last, mut looks) = (0, 0);
    wait_for("a task that computes no more", || {
        let now = ticks(pid);
        (last, looks) = if now == last { (last, looks + 1) } else { (now, 0) };
        (looks >= 50).then_some(())
    });
    assert!(is_alive(pid), "it is there");
    assert_eq!(outcome(host.path(), &["resume"]).0, 0);
    assert_eq!(host.runs(1), [pid], "and goes on where it was");
    wait_for("CPU time", || (ticks(pid) > last).then_some(()));

    host.over("<leave_apps_in_memory>0</leave_apps_in_memory>");
    assert_eq!(outcome(host.path(), &["suspend"]).0, 0);
    are_gone(&[pid]);
    host.stops("owner");
    assert_eq!(outcome(host.path(), &["resume"]).0, 0);
    let again = host.runs(1);
    assert!(again != [pid], "{again:?}");
    let notices = status(host.path())["notices"].to_string();
    assert!(notices.contains("resuming job0 from its checkpoint at "), "{notices}");
}

#[test]
fn r6_4_only_as_many_tasks_are_in_memory_as_the_parts_of_it_in_use_and_not_in_use_let() {
    let holds = Job { cpus: 0.5, words: "hold=200", megabytes: 200, ..WAITS };
    let (server, mut dev, mut host) = (project(vec![holds; 2]), Dev::new(), Host::new());
    let people = "<run_if_user_active>1</run_if_user_active>\n<idle_time_to_run>0.17</idle_time_to_run>";
    host.write_over(people);
    host.watch(&dev);
    let memory = wait_for("the machine to be known", || {
        status(host.path())["host"]["machine"]["memory"].as_f64().filter(|memory| *memory > 0.0)
    });
    // Room for one of them, and not for two.
    let one = 300e6 / memory * 100.0;
    let says = |busy: f64, idle: f64| {
        format!(
            "{people}\n<ram_max_used_busy_pct>{busy}</ram_max_used_busy_pct>\n\
             <ram_max_used_idle_pct>{idle}</ram_max_used_idle_pct>"
        )
    };
    if !(0.1..45.0).contains(&one) {
        return println!("skipped: {one} % of the memory are said of no such tasks");
    }
    host.over(&says(one, 90.0));
    host.begin(&server);
    let both = host.saved(2);
    let beside = host.runs_beside(&mut dev, 1);
    let left: Vec<u32> = both.iter().copied().filter(|pid| !beside.contains(pid)).collect();
    are_gone(&left);
    assert!(left.len() == 1 && is_alive(beside[0]), "{beside:?} of {both:?}");
    // Nobody is there any more: then the other limit holds.
    host.runs(2);
    host.over(&says(90.0, one));
    host.runs(1);
    host.over(&says(90.0, 90.0));
    host.runs(2);
}
