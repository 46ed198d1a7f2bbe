//! The guard process: what it kills, what it spares.

use std::io::Write;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use fallow_agent::proc;
use fallow_agent::sys::{Urgency, isolate};

use crate::support::{agent, is_alive, wait_for};

fn guard(mark: &str, grace_ms: u64) -> Child {
    Command::new(agent())
        .args(["guard", "--mark", mark, "--grace-ms", &grace_ms.to_string()])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap()
}

/// A process in a session of its own, with a child.
fn task(mark: &str) -> (Child, u32) {
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut command = Command::new("/bin/sh");
    command
        .arg("-c")
        .arg(format!("sleep 1000 & echo $! > {}; wait", file.path().display()))
        .env(proc::MARK, mark);
    isolate(&mut command, Urgency::Idle, None);
    let task = command.spawn().unwrap();
    let child = wait_for("the child", || std::fs::read_to_string(file.path()).ok()?.trim().parse().ok());
    (task, child)
}

#[test]
fn when_the_agent_is_gone_watched_sessions_are_killed_after_the_grace() {
    let mut guard = guard("no such mark", 500);
    let (mut task, child) = task("other");
    let mut line = guard.stdin.take().unwrap();
    writeln!(line, "+{}", task.id()).unwrap();
    assert!(guard.try_wait().unwrap().is_none());
    let start = Instant::now();
    drop(line);
    wait_for("the task's end", || task.try_wait().unwrap());
    assert!(start.elapsed() >= Duration::from_millis(500), "they have their grace");
    wait_for("the child's end", || (!is_alive(child)).then_some(()));
    assert!(guard.wait().unwrap().success());
}

#[test]
fn a_process_that_left_its_session_is_known_by_its_mark() {
    let mark = format!("/nowhere:{}:", std::process::id());
    let mut guard = guard(&mark, 100);
    let (mut task, child) = task(&format!("{mark}3"));
    drop(guard.stdin.take());
    wait_for("the task's end", || task.try_wait().unwrap());
    wait_for("the child's end", || (!is_alive(child)).then_some(()));
    guard.wait().unwrap();
}

#[test]
fn what_is_taken_off_the_list_or_is_another_process_by_now_is_spared() {
    let mut guard = guard("no such mark", 100);
    let (mut removed, _) = task("other");
    let (mut reused, _) = task("other");
    let mut line = guard.stdin.take().unwrap();
    writeln!(line, "+{0}\n-{0}", removed.id()).unwrap();
    // As if the id had been given to a later process.
    writeln!(line, "+{} {}", reused.id(), proc::find(reused.id()).unwrap().start - 1).unwrap();
    drop(line);
    assert!(guard.wait().unwrap().success());
    for task in [&mut removed, &mut reused] {
        assert!(task.try_wait().unwrap().is_none());
        proc::kill_session(task.id());
        task.wait().unwrap();
    }
}

#[test]
fn without_tasks_the_guard_ends_at_once() {
    let mut guard = guard("no such mark", 60_000);
    drop(guard.stdin.take());
    wait_for("the guard's end", || guard.try_wait().unwrap());
}
