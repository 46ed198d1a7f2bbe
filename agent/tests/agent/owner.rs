//! Somebody sits down at the machine: the real agent with real trees of processes, and what senses him.
//!
//! There is no input device on most machines that run tests. A pipe with the kernel's own events in it stands
//! where one would be; terminals are real, and logind is that of python3-dbusmock on a bus of the test's own.

mod logind;

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use fallow_agent::proc::{self, Process};
pub(crate) use logind::Logind;
use rustix::fs::{AtFlags, Mode, Timespec, Timestamps, utimensat};

use crate::attach::{RIGHT, attach, status};
use crate::daemon::{Daemon, command, outcome};
use crate::support::{is_alive, wait_for};
use crate::turns::working;

/// Four processes that compute, one in a session of its own, and two that wait for them.
pub(crate) const TREE: &str = "#!/bin/sh
spin() { while :; do :; done; }
(setsid sh -c '(while :; do :; done) & echo > stray; while :; do :; done') &
spin &
echo > up
spin
";

/// Where there is a keyboard and no terminal.
pub(crate) struct Dev {
    dir: tempfile::TempDir,
    /// Its other end.
    keyboard: File,
}

impl Dev {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let input = dir.path().join("input");
        std::fs::create_dir(&input).unwrap();
        let path = input.join("event0");
        let made = Command::new("mkfifo").arg(&path).status().unwrap();
        assert!(made.success());
        // For both, so that neither end waits for the other, nor the pipe ends.
        let keyboard = OpenOptions::new().read(true).write(true).open(&path).unwrap();
        Self { dir, keyboard }
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    /// An event as the kernel writes it: when, its type, its code, its value.
    fn event(&mut self, kind: u16, code: u16, value: i32) {
        let mut event = vec![0; 2 * size_of::<isize>()];
        event.extend_from_slice(&kind.to_ne_bytes());
        event.extend_from_slice(&code.to_ne_bytes());
        event.extend_from_slice(&value.to_ne_bytes());
        self.keyboard.write_all(&event).unwrap();
    }

    /// The key A goes down.
    pub(crate) fn key(&mut self) {
        self.event(1, 30, 1);
    }
}

fn run(dir: &Path, dev: &Path, bus: &str) -> Daemon {
    let mut run = command(dir, &["run", "--benchmark-after-ms", "10000000"]);
    run.arg("--devices-dir").arg(dev).env_remove("FALLOW_NEVER_IN_USE").env_remove("DISPLAY");
    run.env_remove("WAYLAND_DISPLAY").env_remove("XDG_SESSION_ID");
    run.env("DBUS_SYSTEM_BUS_ADDRESS", bus).stdout(Stdio::null()).stderr(Stdio::null());
    Daemon::of(run, dir)
}

const NO_BUS: &str = "unix:path=/nowhere/bus";

/// All that has come from these processes, and lives.
pub(crate) fn offspring(first: &[u32]) -> Vec<Process> {
    let all = proc::all();
    let mut found: Vec<Process> =
        all.iter().filter(|process| first.contains(&process.pid) && !process.zombie).copied().collect();
    let mut at = 0;
    while let Some(parent) = found.get(at).map(|process| process.pid) {
        found.extend(all.iter().filter(|process| process.parent == parent && !process.zombie));
        at += 1;
    }
    found
}

/// The first processes of tasks, once each is a whole tree.
fn trees(dir: &Path) -> Vec<u32> {
    wait_for("tasks that are whole trees", || {
        let status = status(dir);
        let tasks = status["tasks"].as_array()?;
        let running: Vec<u32> = tasks
            .iter()
            .filter(|task| task["phase"] == "running")
            .filter_map(|task| u32::try_from(task["pid"].as_u64()?).ok())
            .collect();
        let slots = std::fs::read_dir(dir.join("slots")).ok()?.flatten();
        let up = slots.filter(|slot| ["up", "stray"].iter().all(|name| slot.path().join(name).exists()));
        (!running.is_empty() && up.count() == running.len()).then_some(running)
    })
}

pub(crate) fn are_stopped(first: &[u32]) -> Option<()> {
    let all = offspring(first);
    (all.len() >= first.len() * 4 && all.iter().all(|process| process.stopped)).then_some(())
}

pub(crate) fn go_on(first: &[u32]) -> Option<()> {
    let all = offspring(first);
    (all.len() >= first.len() * 4 && all.iter().all(|process| !process.stopped)).then_some(())
}

fn sensor(dir: &Path, name: &str) -> (bool, String) {
    let status = status(dir);
    let all = status["sensors"].as_array().unwrap();
    let one = all.iter().find(|one| one["sensor"] == name).unwrap();
    (one["on"].as_bool().unwrap(), one["what"].as_str().unwrap().to_owned())
}

#[test]
fn r6_2_at_the_first_key_all_processes_of_all_tasks_stop_and_status_says_why() {
    let (server, mut dev, dir) = (working(TREE.as_bytes()), Dev::new(), tempfile::tempdir().unwrap());
    let dir = dir.path();
    let _daemon = run(dir, dev.path(), NO_BUS);
    assert_eq!(attach(dir, &server.url(""), RIGHT, &["--no-wait"]).0, 0);
    let tasks = trees(dir);
    assert_eq!(sensor(dir, "input devices"), (true, "1 of them".to_owned()));
    // The lid is no key.
    dev.event(5, 0, 1);
    dev.event(0, 0, 0);
    assert_eq!(status(dir)["host"]["in_use"], false);
    dev.key();
    wait_for("all to be stopped", || are_stopped(&tasks));
    let text = wait_for("the reason to be told", || {
        let (_, text) = outcome(dir, &["status"]);
        let rests = "resting: somebody uses the machine; goes on 3 min after the last input, so not before ";
        (text.starts_with(rests) && text.contains("used last: the input device event0")).then_some(text)
    });
    assert!(
        text.contains("input devices on (1 of them)") && text.contains("sessions off (no logind"),
        "{text}"
    );
    // Whether the kernel tells of memory pressure is said too, with why not.
    let pressure = status(dir)["memory_pressure"].clone();
    let said = if pressure["on"] == true { "memory pressure on (" } else { "memory pressure off (" };
    assert!(text.contains(said) && !pressure["what"].as_str().unwrap().is_empty(), "{text}");
    let network = status(dir)["network_traffic"].clone();
    let said = if network["on"] == true { "network traffic on (" } else { "network traffic off (" };
    assert!(text.contains(said) && !network["what"].as_str().unwrap().is_empty(), "{text}");
    let host = status(dir)["host"].clone();
    assert_eq!((&host["suspended_by"], &host["in_use"]), (&"in use".into(), &true.into()));
    // Nothing stopped is left behind, nor is it waited for.
    let all = offspring(&tasks);
    let (code, text) = outcome(dir, &["stop"]);
    assert_eq!(code, 0, "{text}");
    wait_for("all to be gone", || all.iter().all(|process| !is_alive(process.pid)).then_some(()));
}

#[test]
fn r6_2_nothing_that_was_stopped_is_left_by_an_agent_that_is_killed() {
    let (server, mut dev, dir) = (working(TREE.as_bytes()), Dev::new(), tempfile::tempdir().unwrap());
    let dir = dir.path();
    let mut daemon = run(dir, dev.path(), NO_BUS);
    assert_eq!(attach(dir, &server.url(""), RIGHT, &["--no-wait"]).0, 0);
    let tasks = trees(dir);
    dev.key();
    wait_for("all to be stopped", || are_stopped(&tasks));
    let all = offspring(&tasks);
    daemon.kill();
    wait_for("all to be gone", || all.iter().all(|process| !is_alive(process.pid)).then_some(()));
}

#[test]
fn r6_2_a_key_that_never_comes_up_is_looked_at_every_few_seconds_only() {
    let (mut dev, dir) = (Dev::new(), tempfile::tempdir().unwrap());
    let dir = dir.path();
    let _daemon = run(dir, dev.path(), NO_BUS);
    let pid = u32::try_from(status(dir)["pid"].as_u64().unwrap()).unwrap();
    dev.key();
    wait_for("the first key", || status(dir)["host"]["in_use"].as_bool().filter(|in_use| *in_use));
    let before = wake_ups(pid);
    let begun = Instant::now();
    // More than the kernel keeps of a device, and than the pipe in its place holds.
    rustix::fs::fcntl_setfl(&dev.keyboard, rustix::fs::OFlags::NONBLOCK).unwrap();
    while begun.elapsed() < Duration::from_secs(4) {
        for _ in 0..100 {
            let _ = dev.keyboard.write(&[0; 24 * 64]);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let woken = wake_ups(pid) - before;
    assert!(woken <= 10, "{woken} times in four seconds");
}

#[test]
fn r6_2_whoever_may_ask_the_agent_may_pause_it_for_a_while() {
    let (server, dir) = (working(TREE.as_bytes()), tempfile::tempdir().unwrap());
    let dir = dir.path();
    let mut daemon = Daemon::start(dir);
    assert_eq!(attach(dir, &server.url(""), RIGHT, &["--no-wait"]).0, 0);
    let tasks = trees(dir);
    for bad in ["2 days", "0s", "soon"] {
        assert_eq!(outcome(dir, &["snooze", bad]).0, 3, "{bad}");
    }
    let (code, text) = outcome(dir, &["snooze", "2h"]);
    assert!(code == 0 && text.contains("computing is paused for 2 h;"), "{text}");
    wait_for("all to be stopped", || are_stopped(&tasks));
    let (_, text) = outcome(dir, &["status"]);
    assert!(text.starts_with("snoozed until ") && text.contains("snooze --dir "), "{text}");
    let (code, line) = outcome(dir, &["status", "--line"]);
    let by = fallow_agent::control::people::user_name(rustix::process::geteuid().as_raw());
    assert!(code == 0 && line.lines().count() == 1 && line.contains(&format!(" by {by}; ")), "{line}");
    let told = status(dir)["line"].as_str().unwrap().to_owned();
    assert_eq!(fallow_agent::control::hints::about(dir, &told), line.trim_end());
    let (code, text) = outcome(dir, &["snooze", "off"]);
    assert!(code == 0 && text.contains("the pause is over; now: computing: "), "{text}");
    wait_for("all to go on", || go_on(&tasks));
    let (code, text) = outcome(dir, &["snooze", "off"]);
    assert!(code == 0 && text.contains("there was no pause; now: computing: "), "{text}");
    let (code, text) = outcome(dir, &["resume"]);
    assert!(code == 0 && text.contains("there was no suspension of yours; now: computing: "), "{text}");
    assert_eq!(outcome(dir, &["suspend"]).0, 0);
    let (code, text) = outcome(dir, &["resume"]);
    assert!(code == 0 && text.contains("your suspension is lifted; now: computing: "), "{text}");
    assert_eq!(outcome(dir, &["snooze", "2h"]).0, 0);
    daemon.kill();
    let _daemon = Daemon::start(dir);
    assert_eq!(status(dir)["host"]["suspended_by"], "snooze");
}

#[test]
fn r6_2_who_types_in_a_terminal_uses_the_machine() {
    let (server, dev, dir) = (working(TREE.as_bytes()), Dev::new(), tempfile::tempdir().unwrap());
    let dir = dir.path();
    let (mut typist, mut reader, path) = terminal();
    // Read from an hour ago for the last time.
    let hour_ago = fallow_daemon::clock::now().as_secs_f64() as i64 - 3_600;
    let then = Timespec { tv_sec: hour_ago, tv_nsec: 0 };
    let then = Timestamps { last_access: then, last_modification: then };
    if let Err(error) = utimensat(rustix::fs::CWD, &path, &then, AtFlags::empty()) {
        return println!("skipped: the time of a terminal cannot be set here: {error}");
    }
    std::fs::create_dir(dev.path().join("pts")).unwrap();
    std::os::unix::fs::symlink(&path, dev.path().join("pts/0")).unwrap();
    let _daemon = run(dir, dev.path(), NO_BUS);
    assert_eq!(attach(dir, &server.url(""), RIGHT, &["--no-wait"]).0, 0);
    let tasks = trees(dir);
    // What is written to a terminal nobody has typed.
    reader.write_all(b"output\r\n").unwrap();
    assert_eq!((status(dir)["host"]["in_use"].as_bool(), sensor(dir, "terminals").0), (Some(false), true));
    typist.write_all(b"ls\n").unwrap();
    let mut line = [0; 3];
    reader.read_exact(&mut line).unwrap();
    assert_eq!(&line, b"ls\n");
    wait_for("all to be stopped", || are_stopped(&tasks));
}

/// A terminal: the end of who types, that of the program that reads, and where it is.
fn terminal() -> (File, File, PathBuf) {
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    let master: OwnedFd = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&master).unwrap();
    unlockpt(&master).unwrap();
    let path = PathBuf::from(ptsname(&master, Vec::new()).unwrap().into_string().unwrap());
    let reader =
        rustix::fs::open(&path, rustix::fs::OFlags::RDWR | rustix::fs::OFlags::NOCTTY, Mode::empty());
    let _ = master.as_fd();
    (master.into(), reader.unwrap().into(), path)
}

#[test]
fn r6_2_sensors_that_cannot_be_had_say_why_and_a_server_has_none() {
    let (nothing, dir) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (nothing, dir) = (nothing.path(), dir.path());
    let daemon = run(dir, nothing, NO_BUS);
    let (on, why) = sensor(dir, "input devices");
    assert!(!on && why.contains("input: No such file"), "{why}");
    wait_for("that to be told", || {
        let (on, why) = sensor(dir, "sessions");
        (!on && why.contains("no logind on the system bus")).then_some(())
    });
    assert_eq!(status(dir)["host"]["in_use"], false);
    // Nothing is to be seen: what waits for it sleeps.
    let pid = u32::try_from(status(dir)["pid"].as_u64().unwrap()).unwrap();
    let before = wake_ups(pid);
    std::thread::sleep(Duration::from_secs(3));
    let woken = wake_ups(pid) - before;
    assert!(woken <= 3, "{woken} times in three seconds");
    drop(daemon);
    let mut server = command(dir, &["run", "--never-in-use"]);
    server.stdout(Stdio::null()).stderr(Stdio::null());
    let _daemon = Daemon::of(server, dir);
    for name in ["input devices", "terminals", "sessions", "X server", "Wayland"] {
        assert_eq!(sensor(dir, name), (false, "nobody sits at this machine (--never-in-use)".to_owned()));
    }
}

#[test]
fn r6_2_while_all_tasks_are_stopped_they_are_not_looked_at_each_second() {
    let (server, dir) = (working(TREE.as_bytes()), tempfile::tempdir().unwrap());
    let dir = dir.path();
    let _daemon = Daemon::start(dir);
    assert_eq!(attach(dir, &server.url(""), RIGHT, &["--no-wait"]).0, 0);
    let tasks = trees(dir);
    let pid = u32::try_from(status(dir)["pid"].as_u64().unwrap()).unwrap();
    assert_eq!(outcome(dir, &["snooze", "2h"]).0, 0);
    wait_for("all to be stopped", || are_stopped(&tasks));
    let (mut count, mut since) = (wake_ups_of(pid, "supervisor"), Instant::now());
    // Where nothing bounds them but looks, these come every three seconds.
    let more_than_two = Duration::from_millis(2_500);
    wait_for("a sleep of more than two seconds", || {
        let now = wake_ups_of(pid, "supervisor");
        if now != count {
            (count, since) = (now, Instant::now());
        }
        (since.elapsed() >= more_than_two).then_some(())
    });
    // One that is told to go on is looked at each second again.
    assert_eq!(outcome(dir, &["snooze", "off"]).0, 0);
    wait_for("all to go on", || go_on(&tasks));
    wait_for("looks", || (wake_ups_of(pid, "supervisor") >= count + 5).then_some(()));
}

/// How often the thread of an agent that waits for input has slept.
fn wake_ups(agent: u32) -> u64 {
    wake_ups_of(agent, "owner")
}

/// The same of any of its threads.
fn wake_ups_of(agent: u32, thread: &str) -> u64 {
    let threads = std::fs::read_dir(format!("/proc/{agent}/task")).unwrap().flatten();
    let is_it = |path: &PathBuf| {
        std::fs::read_to_string(path.join("comm")).is_ok_and(|name| name.trim_end() == thread)
    };
    let thread = threads.map(|entry| entry.path()).find(is_it).unwrap();
    let status = std::fs::read_to_string(thread.join("status")).unwrap();
    let count = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:")).unwrap();
    count.trim().parse().unwrap()
}

impl Logind {
    /// It ends; the bus goes on.
    fn stop(&mut self) {
        self.mock.kill().unwrap();
        self.mock.wait().unwrap();
    }

    /// Something has its name, and answers nothing.
    fn be_silent(&mut self) {
        let mut silent = Command::new("/usr/bin/python3");
        let program = "import dbus, sys, time
b = dbus.bus.BusConnection(sys.argv[1])
b.request_name('org.freedesktop.login1')
time.sleep(1000)";
        self.mock = silent.args(["-c", program, &self.address]).spawn().unwrap();
    }
}

#[test]
fn r6_2_a_session_whose_input_nobody_can_see_is_used_until_it_is_locked() {
    let (server, nothing, dir) =
        (working(TREE.as_bytes()), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let Some(logind) = Logind::start(nothing.path()) else { return };
    logind.tell("", "m.AddSession('c1', 'seat0', 1000, 'anna', True)").unwrap();
    logind.session("{'Type': 'tty'}");
    let dir = dir.path();
    let _daemon = run(dir, nothing.path(), &logind.address);
    assert_eq!(attach(dir, &server.url(""), RIGHT, &["--no-wait"]).0, 0);
    let tasks = trees(dir);
    assert_eq!(sensor(dir, "sessions"), (true, "as logind has them".to_owned()));
    assert_eq!(status(dir)["host"]["in_use"], false, "terminals tell of that one");
    logind.session("{'Type': 'wayland'}");
    wait_for("all to be stopped", || are_stopped(&tasks));
    let host = wait_for("it to be known", || {
        Some(status(dir)["host"].clone()).filter(|host| host["suspended_by"] == "in use")
    });
    assert_eq!((&host["in_use"], &host["in_use_until"]), (&true.into(), &serde_json::Value::Null));
    logind.session("{'LockedHint': True}");
    wait_for("all to go on", || go_on(&tasks));
    // Who unlocks it is there, and for three minutes after that however soon he leaves.
    logind.session("{'LockedHint': False}");
    wait_for("all to be stopped again", || are_stopped(&tasks));
    logind.session("{'LockedHint': True}");
    wait_for("an end of it to be known", || status(dir)["host"]["in_use_until"].as_f64());
    are_stopped(&tasks).unwrap();
}

#[test]
fn r6_2_a_logind_that_is_started_again_sends_nobody_home() {
    let (server, nothing, dir) =
        (working(TREE.as_bytes()), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let Some(mut logind) = Logind::start(nothing.path()) else { return };
    logind.tell("", "m.AddSession('c1', 'seat0', 1000, 'anna', True)").unwrap();
    logind.session("{'Type': 'tty'}");
    let dir = dir.path();
    let _daemon = run(dir, nothing.path(), &logind.address);
    assert_eq!(attach(dir, &server.url(""), RIGHT, &["--no-wait"]).0, 0);
    let tasks = trees(dir);
    logind.session("{'Type': 'wayland'}");
    wait_for("all to be stopped", || are_stopped(&tasks));
    logind.stop();
    wait_for("its end to be told", || (!sensor(dir, "sessions").0).then_some(()));
    let host = status(dir)["host"].clone();
    assert_eq!((&host["in_use"], &host["suspended_by"]), (&true.into(), &"in use".into()));
    are_stopped(&tasks).unwrap();
    // What it says when it is back, counts: here that nobody is there.
    logind.start_again();
    wait_for("it to be heard again", || sensor(dir, "sessions").0.then_some(()));
    wait_for("all to go on", || go_on(&tasks));
}

#[test]
fn r6_2_who_comes_while_logind_is_started_again_is_noticed_when_it_is_back() {
    let (server, nothing, dir) =
        (working(TREE.as_bytes()), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let Some(mut logind) = Logind::start(nothing.path()) else { return };
    let dir = dir.path();
    let _daemon = run(dir, nothing.path(), &logind.address);
    assert_eq!(attach(dir, &server.url(""), RIGHT, &["--no-wait"]).0, 0);
    let tasks = trees(dir);
    wait_for("it to be heard", || sensor(dir, "sessions").0.then_some(()));
    logind.stop();
    wait_for("its end to be told", || (!sensor(dir, "sessions").0).then_some(()));
    logind.start_again();
    logind.tell("", "m.AddSession('c2', 'seat0', 1000, 'anna', True)").unwrap();
    logind.tell("/session/c2", "m.UpdateProperties('', {'Type': 'tty'})").unwrap();
    wait_for("all to be stopped", || are_stopped(&tasks));
    let host = wait_for("it to be known", || {
        Some(status(dir)["host"].clone()).filter(|host| host["suspended_by"] == "in use")
    });
    assert!(host["in_use_until"].is_f64(), "{host}");
}

#[test]
fn r6_2_a_logind_that_starts_after_the_agent_is_heard_of_from_the_bus() {
    let (nothing, dir) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let Some(mut logind) = Logind::bus_alone(nothing.path()) else { return };
    let dir = dir.path();
    let _daemon = run(dir, nothing.path(), &logind.address);
    // It has a bus, and listens there.
    wait_for("that to be told", || {
        let (on, why) = sensor(dir, "sessions");
        (!on && why.contains("logind does not answer")).then_some(())
    });
    logind.start_again();
    wait_for("it to be heard", || sensor(dir, "sessions").0.then_some(()));
    // The same once it was there.
    logind.stop();
    wait_for("its end to be told", || {
        let (on, why) = sensor(dir, "sessions");
        (!on && why.contains("logind does not answer")).then_some(())
    });
}

#[test]
fn r6_2_who_unlocks_a_session_for_a_moment_right_after_another_change_of_it_is_noticed() {
    let (server, nothing, dir) =
        (working(TREE.as_bytes()), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let Some(logind) = Logind::start(nothing.path()) else { return };
    logind.tell("", "m.AddSession('c1', 'seat0', 1000, 'anna', True)").unwrap();
    logind.session("{'Type': 'tty', 'LockedHint': True}");
    let dir = dir.path();
    let _daemon = run(dir, nothing.path(), &logind.address);
    assert_eq!(attach(dir, &server.url(""), RIGHT, &["--no-wait"]).0, 0);
    wait_for("it to be heard", || sensor(dir, "sessions").0.then_some(()));
    let tasks = trees(dir);
    // A change has the sessions looked at, and then not again for a second: all this happens in that.
    let changes = "import time
m.UpdateProperties('', {'IdleHint': False})
time.sleep(0.3)
for what in ({'IdleHint': False}, {'LockedHint': False}, {'LockedHint': True}):
    m.UpdateProperties('', what)";
    logind.tell("/session/c1", changes).unwrap();
    wait_for("all to be stopped", || are_stopped(&tasks));
}

#[test]
fn r6_2_who_unlocks_a_session_twice_within_a_moment_was_there_the_second_time_too() {
    let (server, nothing, dir) =
        (working(TREE.as_bytes()), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let Some(logind) = Logind::start(nothing.path()) else { return };
    logind.tell("", "m.AddSession('c1', 'seat0', 1000, 'anna', True)").unwrap();
    logind.session("{'Type': 'tty', 'LockedHint': True}");
    let dir = dir.path();
    let _daemon = run(dir, nothing.path(), &logind.address);
    assert_eq!(attach(dir, &server.url(""), RIGHT, &["--no-wait"]).0, 0);
    wait_for("it to be heard", || sensor(dir, "sessions").0.then_some(()));
    let tasks = trees(dir);
    // All this happens in the second between two looks. What the next one finds is as it was before.
    let second = nothing.path().join("second");
    let changes = format!(
        "import time
m.UpdateProperties('', {{'IdleHint': False}})
time.sleep(0.1)
for what in (False, True):
    m.UpdateProperties('', {{'LockedHint': what}})
time.sleep(0.6)
open('{}', 'w').write(str(time.time()))
for what in (False, True):
    m.UpdateProperties('', {{'LockedHint': what}})",
        second.display()
    );
    logind.tell("/session/c1", &changes).unwrap();
    let second: f64 = std::fs::read_to_string(second).unwrap().parse().unwrap();
    wait_for("the second time to be known", || {
        let host = status(dir)["host"].clone();
        let since = host["in_use_until"].as_f64()? - host["idle_after"].as_f64()?;
        // The clock that says how long ago it was and this one may differ by a little.
        (since > second - 0.1).then_some(())
    });
    wait_for("all to be stopped still", || are_stopped(&tasks));
}

#[test]
fn r6_2_who_comes_while_logind_answers_nothing_is_noticed_when_it_does() {
    let (server, nothing, dir) =
        (working(TREE.as_bytes()), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let Some(mut logind) = Logind::start(nothing.path()) else { return };
    let dir = dir.path();
    let _daemon = run(dir, nothing.path(), &logind.address);
    assert_eq!(attach(dir, &server.url(""), RIGHT, &["--no-wait"]).0, 0);
    let tasks = trees(dir);
    wait_for("it to be heard", || sensor(dir, "sessions").0.then_some(()));
    logind.stop();
    logind.be_silent();
    wait_for("its silence to be told", || sensor(dir, "sessions").1.contains("no answer in").then_some(()));
    logind.stop();
    logind.start_again();
    logind.tell("", "m.AddSession('c2', 'seat0', 1000, 'anna', True)").unwrap();
    logind.tell("/session/c2", "m.UpdateProperties('', {'Type': 'tty'})").unwrap();
    wait_for("all to be stopped", || are_stopped(&tasks));
}
