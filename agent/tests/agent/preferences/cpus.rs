//! How many CPUs tasks have, and how much of their time, as BOINC's file says it (R6.4, R2.8).

use std::process::{Command, Stdio};
use std::thread::available_parallelism;

use super::Host;
use super::project::{Job, WAITS, are_gone, project, ticks};
use crate::owner::Dev;
use crate::support::{is_alive, wait_for};

#[test]
fn r6_4_so_many_tasks_run_as_the_parts_of_the_cpus_in_use_and_not_in_use_let() {
    let all = available_parallelism().unwrap().get();
    let half = (all / 2).max(1);
    let (server, mut dev, mut host) = (project(vec![WAITS; all]), Dev::new(), Host::new());
    let people = "<run_if_user_active>1</run_if_user_active>\n<idle_time_to_run>0.17</idle_time_to_run>";
    host.write_over(&format!(
        "{people}\n<max_ncpus_pct>50</max_ncpus_pct>\n<niu_max_ncpus_pct>100</niu_max_ncpus_pct>"
    ));
    host.watch(&dev);
    host.begin(&server);
    let before = host.saved(all);
    let beside = host.runs_beside(&mut dev, half);
    assert!(beside.iter().all(|pid| before.contains(pid)), "{beside:?} go on of {before:?}");
    let left: Vec<u32> = before.into_iter().filter(|pid| !beside.contains(pid)).collect();
    are_gone(&left);
    // Nobody types any more.
    host.runs(all);
    // The other way round, the tighter of the two holds for both.
    host.over(&format!(
        "{people}\n<max_ncpus_pct>100</max_ncpus_pct>\n<niu_max_ncpus_pct>50</niu_max_ncpus_pct>"
    ));
    let left = host.runs(half);
    host.runs_beside(&mut dev, half);
    host.over(people);
    let again = host.runs(all);
    assert!(left.iter().all(|pid| again.contains(pid)), "{left:?} went on: {again:?}");
}

/// Gives a process the priority of other programs: where these leave nothing of the CPUs, a task would get
/// nothing, and nothing could be compared. Only root may; else it has to be a machine that is not busy.
fn as_other_programs(pid: u32) {
    let pid = pid.to_string();
    let set = |program: &str, words: &[&str]| {
        let _ =
            Command::new(program).args(words).arg(&pid).stdout(Stdio::null()).stderr(Stdio::null()).status();
    };
    set("chrt", &["--other", "--pid", "0"]);
    set("renice", &["-n", "0", "-p"]);
}

/// What a process gets of the CPUs beside another one, which gets three seconds of them or more.
fn part(limited: u32, free: u32) -> f64 {
    let (begun, before) = (std::time::Instant::now(), [ticks(limited), ticks(free)]);
    let enough = 3 * rustix::param::clock_ticks_per_second();
    wait_for("CPU time", || {
        // Two rounds of a limit to a fifth.
        let is_long = begun.elapsed() > std::time::Duration::from_secs(10);
        (is_long && ticks(free) - before[1] >= enough).then_some(())
    });
    (ticks(limited) - before[0]) as f64 / (ticks(free) - before[1]) as f64
}

#[test]
fn r2_8_r6_4_a_task_gets_a_fifth_of_a_cpu_where_either_limit_on_cpu_time_says_so() {
    let half = Job { cpus: 0.5, words: "compute", ..WAITS };
    let server = project(vec![half, Job { is_unlimited: true, ..half }]);
    let (mut dev, mut host) = (Dev::new(), Host::new());
    let says = |in_use: u32, else_: u32| {
        format!(
            "<run_if_user_active>1</run_if_user_active>\n<cpu_usage_limit>{in_use}</cpu_usage_limit>\n\
             <niu_cpu_usage_limit>{else_}</niu_cpu_usage_limit>"
        )
    };
    host.write_over(&says(100, 20));
    host.watch(&dev);
    host.begin(&server);
    host.runs(2);
    let pid = |name: &str| {
        let tasks = crate::attach::status(host.path())["tasks"].clone();
        let task = tasks.as_array().unwrap().iter().find(|task| task["name"] == name).unwrap();
        u32::try_from(task["pid"].as_u64().unwrap()).unwrap()
    };
    let (limited, free) = (pid("job0"), pid("job1"));
    as_other_programs(limited);
    as_other_programs(free);
    let nobody = part(limited, free);
    host.over(&says(20, 100));
    // Others on one of the CPUs may take some of either, but not each time.
    let unlimited =
        (0..4).map(|_| part(limited, free)).fold(0.0, |most, one| if most > 0.6 { most } else { one });
    wait_for("that somebody uses the machine", || {
        dev.key();
        (crate::attach::status(host.path())["host"]["in_use"] == true).then_some(())
    });
    let in_use = part(limited, free);
    println!(
        "of the CPU time of another task: {nobody:.2} with nobody there, {in_use:.2} in use, {unlimited:.2} else"
    );
    assert!((0.02..0.5).contains(&nobody) && (0.02..0.5).contains(&in_use), "{nobody} {in_use}");
    assert!(unlimited > 0.6, "{unlimited}");
    // Neither was started anew meanwhile.
    assert_eq!(host.runs(2).len(), 2);
    assert!([limited, free].iter().all(|pid| is_alive(*pid)));
    drop(host);
    are_gone(&[limited, free]);
}
