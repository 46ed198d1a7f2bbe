//! An agent that is started by hand, from a terminal, beside an owner who works in another one.
//!
//! Where the kernel gives each session a weight of its own, as it does on desktops, what a program's priority
//! says counts within its session only; and an agent under a terminal, unlike one under systemd, has no slice
//! that yields.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use fallow_agent::proc;
use rustix::thread::{CpuSet, sched_getaffinity};

use crate::daemon::outcome;
use crate::guest::{say_autogroups, ticks};
use crate::spinning::{attach, project, running};
use crate::support::{agent, wait_for};

/// A terminal of its own, in which one command runs. Closed when it is dropped, which its programs notice.
struct Terminal(Child);

impl Terminal {
    /// None where there is no `script` to open one with.
    fn open(line: &str) -> Option<Self> {
        let mut script = Command::new("script");
        script.args(["-qec", line, "/dev/null"]).env("SHELL", "/bin/sh").env("FALLOW_LOG", "info");
        script.env_remove("OTEL_EXPORTER_OTLP_ENDPOINT");
        // Held open: its end would be that of whoever types there.
        script.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        script.spawn().ok().map(Self)
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A process that is killed in the end.
struct Killed(u32);

impl Drop for Killed {
    fn drop(&mut self) {
        proc::kill_session(self.0);
    }
}

fn read_pid(path: &Path) -> Option<u32> {
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// Shows R6.10.
#[test]
fn an_agent_from_a_terminal_leaves_a_program_in_another_one_nine_tenths_of_their_cpu() {
    say_autogroups();
    let allowed = sched_getaffinity(None).unwrap();
    let cpu = (0..CpuSet::MAX_CPU).find(|&cpu| allowed.is_set(cpu)).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let agent_dir = dir.path().join("agent");
    // In the terminal's own session, as a shell's command is.
    let start = |name: &str, what: &str| {
        let pid = dir.path().join(name);
        let terminal = Terminal::open(&format!("echo $$ > {}; exec taskset -c {cpu} {what}", pid.display()))?;
        let pid = wait_for(name, || read_pid(&pid));
        Some((terminal, Killed(pid)))
    };
    // The owner is there all the while, and jobs are to run beside him.
    let line = format!("{} run --never-in-use --dir {}", agent().display(), agent_dir.display());
    let Some((_agents, agent)) = start("agent.pid", &line) else {
        println!("skipped: there is no `script` to open a terminal with");
        return;
    };
    wait_for("the agent to answer", || (outcome(&agent_dir, &["status"]).0 == 0).then_some(()));
    attach(&agent_dir, &project("spinning", "while :; do :; done", ""));
    let tasks = wait_for("two tasks", || <[u32; 2]>::try_from(running(&agent_dir)).ok());
    let _tasks = tasks.map(Killed);
    let (_owners, owner) = start("owner.pid", "sh -c 'while :; do :; done'").unwrap();

    // What the agent itself takes is the owner's loss too.
    let pids = [owner.0, tasks[0], tasks[1], agent.0];
    let before = pids.map(ticks);
    let used = wait_for("five seconds of CPU time", || {
        let now = pids.map(ticks);
        let used: [u64; 4] = std::array::from_fn(|at| now[at] - before[at]);
        (used.iter().sum::<u64>() >= 500).then_some(used)
    });
    println!(
        "ticks of the owner's program: {}, of the tasks: {} and {}, of the agent: {}",
        used[0], used[1], used[2], used[3]
    );
    assert!(used[0] * 10 >= used.iter().sum::<u64>() * 9, "owner, tasks and agent: {used:?}");
    assert_eq!(running(&agent_dir).len(), 2, "the tasks ran all the while");
    assert_eq!(outcome(&agent_dir, &["stop"]).0, 0);
}
