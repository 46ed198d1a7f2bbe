//! The owner comes first: what the agent and its tasks leave him of his machine, as the kernel counts it.

use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::Duration as StdDuration;

use fallow_agent::proc;
use fallow_agent::sys::{Urgency, isolate};
use fallow_client::Event;
use fallow_domain::{JobId, SlotId};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::supervision::Bench;
use crate::support::{copy_program, wait_for};

/// The number of an ordinary user.
const NOBODY: u32 = 65534;
const SPIN: &str = "while :; do :; done";

/// A process that is killed with its session in the end.
struct Session(Child);

impl Session {
    fn start(mut command: Command) -> Self {
        isolate(&mut command, Urgency::Inherited, None);
        Self(command.spawn().unwrap())
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        proc::kill_session(self.0.id());
        let _ = self.0.wait();
    }
}

fn shell(script: &str) -> Command {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", script]).stdin(Stdio::null());
    command
}

/// Clock ticks of CPU time that a process itself has used.
pub(crate) fn ticks(pid: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}

/// Says whether the kernel gives every session a weight of its own, so that priorities count within a session
/// only.
pub(crate) fn say_autogroups() {
    match std::fs::read_to_string("/proc/sys/kernel/sched_autogroup_enabled") {
        Ok(text) if text.trim() == "1" => {}
        Ok(_) => {
            println!("automatic scheduling groups are off here: only the processes' own priority is shown");
        }
        Err(_) => println!("this kernel has no automatic scheduling groups: only priority is shown"),
    }
}

/// The nice value of a process's automatic group; none where the kernel has no such groups.
fn group_nice(pid: u32) -> Option<i32> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/autogroup")).ok()?;
    text.trim().rsplit_once(" nice ")?.1.parse().ok()
}

#[test]
fn an_owners_program_beside_two_tasks_on_one_cpu_keeps_nine_tenths_of_it() {
    say_autogroups();
    // Everything on one CPU: threads and processes that come from here inherit it.
    let allowed = sched_getaffinity(None).unwrap();
    let cpu = (0..CpuSet::MAX_CPU).find(|&cpu| allowed.is_set(cpu)).unwrap();
    let mut one = CpuSet::new();
    one.set(cpu);
    sched_setaffinity(None, &one).unwrap();

    // A session of its own, as each of an owner's terminals has.
    let owner = Session::start(shell(SPIN));
    let mut bench = Bench::new();
    for number in [1, 2] {
        let mut setup = bench.script(SPIN);
        (setup.job, setup.slot) = (JobId(number), SlotId(u32::try_from(number).unwrap()));
        bench.supervisor.start_task(setup);
    }
    let tasks = [bench.started(), bench.started()];
    let pids = [owner.0.id(), tasks[0], tasks[1]];
    let before = pids.map(ticks);
    let used = wait_for("three seconds of CPU time", || {
        let now = pids.map(ticks);
        let used: [u64; 3] = std::array::from_fn(|at| now[at] - before[at]);
        (used.iter().sum::<u64>() >= 300).then_some(used)
    });
    println!("ticks of the owner's program: {}, of the tasks: {} and {}", used[0], used[1], used[2]);
    assert!(used[0] * 10 >= used.iter().sum::<u64>() * 9, "owner and tasks: {used:?}");
    bench.supervisor.stop(StdDuration::ZERO);
    bench.supervisor.join();
}

#[test]
fn a_session_that_a_task_makes_itself_is_no_owners_either() {
    let mut bench = Bench::new();
    let setup = bench.script("setsid sh -c 'echo $$ > stray; exec sleep 1000' & wait");
    let slot = bench.data.slot(setup.slot);
    bench.supervisor.start_task(setup);
    let task = bench.started();
    let stray: u32 =
        wait_for("the stray", || std::fs::read_to_string(slot.join("stray")).ok()?.trim().parse().ok());
    if group_nice(task).is_none() {
        println!("this kernel has no automatic scheduling groups: nothing to see");
    } else {
        assert_eq!(group_nice(task), Some(19));
        wait_for("the stray's group to be lowered", || (group_nice(stray) == Some(19)).then_some(()));
    }
    bench.supervisor.stop(StdDuration::ZERO);
    bench.supervisor.join();
}

#[test]
#[ignore = "not a test: run as an ordinary user by the test below"]
fn tasks_that_start_at_once() {
    let mut bench = Bench::new();
    let mut setups = Vec::new();
    for number in 0..6_u64 {
        let mut setup = bench.script("sleep 1000");
        (setup.job, setup.slot) = (JobId(number), SlotId(u32::try_from(number).unwrap()));
        setup.special = number % 2 == 1;
        setups.push(setup);
    }
    // All have the same program, and one that is being written is not executed: none starts before the last
    // has written it.
    for setup in setups {
        bench.supervisor.start_task(setup);
    }
    for _ in 0..6 {
        let pid = bench.next("start", |event| match event {
            Event::TaskStarted { job, pid, .. } => Some((job, pid)),
            Event::TaskStartFailed { reason, .. } => panic!("{reason}"),
            _ => None,
        });
        let wanted = if pid.0.0 % 2 == 1 { 10 } else { 19 };
        if group_nice(pid.1).is_some() {
            wait_for("its group to be lowered", || (group_nice(pid.1) == Some(wanted)).then_some(()));
        }
    }
    bench.supervisor.stop(StdDuration::ZERO);
    bench.supervisor.join();
}

/// The kernel refuses an ordinary user a second change within a tenth of a second, of whatever group.
#[test]
fn tasks_of_an_ordinary_user_that_start_at_once_all_yield() {
    let dir = tempfile::tempdir().unwrap();
    // Where everybody may run it, and the program of the guard beside it.
    let program = dir.path().join("tests");
    copy_program(&std::env::current_exe().unwrap(), &program);
    let mut command = Command::new(&program);
    command
        .args(["guest::tasks_that_start_at_once", "--exact", "--ignored", "--nocapture"])
        .env("TMPDIR", dir.path());
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(dir.path(), Some(NOBODY), Some(NOBODY)).unwrap();
        command.uid(NOBODY).gid(NOBODY);
    }
    let output = command.output().unwrap();
    let said =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
}

/// Read calls of this process's supervising thread so far; none where the kernel does not count them.
fn reads_of_supervisor() -> Option<u64> {
    let thread = std::fs::read_dir("/proc/self/task").unwrap().flatten().find(|thread| {
        std::fs::read_to_string(thread.path().join("comm")).is_ok_and(|name| name.trim() == "supervisor")
    });
    let io = std::fs::read_to_string(thread?.path().join("io")).ok()?;
    io.lines().find_map(|line| line.strip_prefix("syscr: ")?.trim().parse().ok())
}

fn last_id() -> u32 {
    fallow_agent::proc::last_id().unwrap()
}

#[test]
#[ignore = "not a test: run alone in a process by the test below"]
fn one_task_beside_many_processes() {
    let many: u32 = std::env::var("FALLOW_TEST_PROCESSES").unwrap().parse().unwrap();
    let _crowd: Vec<Session> = (0..many).map(|_| Session::start(shell("exec sleep 1000"))).collect();
    let mut bench = Bench::new();
    bench.supervisor.start_task(bench.script("sleep 1000"));
    bench.started();
    for _ in 0..3 {
        bench.sample("a look", |_| true);
    }
    let (before, given) = (reads_of_supervisor(), last_id());
    const LOOKS: u64 = 6;
    for _ in 0..LOOKS {
        bench.sample("a look", |_| true);
    }
    match before.zip(reads_of_supervisor()) {
        Some((before, after)) => {
            // Where ids begin anew at the bottom, all processes are looked at.
            let new = u64::from(last_id()).checked_sub(given.into()).unwrap_or(u64::MAX / LOOKS);
            println!(
                "reads a look: {}, new processes and threads: {}",
                (after - before) / LOOKS,
                new / LOOKS
            );
        }
        None => println!("this kernel counts no reads"),
    }
    bench.supervisor.stop(StdDuration::ZERO);
    bench.supervisor.join();
}

#[test]
fn watching_a_task_does_not_read_of_every_process_on_the_machine() {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["guest::one_task_beside_many_processes", "--exact", "--ignored", "--nocapture"])
        .env("FALLOW_TEST_PROCESSES", "400")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    let Some((_, reads)) = said.split_once("reads a look: ") else {
        println!("{said}");
        return;
    };
    let (reads, new) = reads.lines().next().unwrap().split_once(", new processes and threads: ").unwrap();
    let (reads, new): (u64, u64) = (reads.parse().unwrap(), new.parse().unwrap());
    // Others start processes here too, of which each is looked at: compilers, hundreds in a minute.
    assert!(
        reads < new.saturating_mul(8).saturating_add(300),
        "{reads} reads a look beside 400 processes, of which {new} are new"
    );
}
