//! Two machines with addresses of their own, and what runs on them.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use fallow_e2e::{command, peers_required};

pub(crate) const SERVER: &str = "10.77.0.1";
const CLIENTS: &str = "10.77.0.2";

/// Two machines with a cable between them. Dropped, all that runs there is killed.
pub(crate) struct Machines {
    pub(crate) server: String,
    pub(crate) clients: String,
}

impl Machines {
    pub(crate) fn new() -> Option<Self> {
        if !is_root() || Command::new("ip").arg("-V").output().is_err() {
            assert!(!peers_required(), "network namespaces need root and `ip` (Debian's iproute2)");
            eprintln!("no network namespaces: that needs root and `ip` (Debian's iproute2)");
            return None;
        }
        static MADE: AtomicU32 = AtomicU32::new(0);
        let number = format!("{}-{}", std::process::id(), MADE.fetch_add(1, Ordering::Relaxed));
        let machines = Self { server: format!("fallow-s{number}"), clients: format!("fallow-c{number}") };
        let (one, other) = (format!("fs{number}"), format!("fc{number}"));
        for name in [&machines.server, &machines.clients] {
            ip(&["netns", "add", name]);
            ip(&["-n", name, "link", "set", "lo", "up"]);
        }
        let (server, clients) = (machines.server.as_str(), machines.clients.as_str());
        ip(&["link", "add", &one, "netns", server, "type", "veth", "peer", "name", &other, "netns", clients]);
        for (name, link, address) in [(server, &one, SERVER), (clients, &other, CLIENTS)] {
            ip(&["-n", name, "addr", "add", &format!("{address}/24"), "dev", link]);
            ip(&["-n", name, "link", "set", link, "up"]);
        }
        Some(machines)
    }
}

impl Drop for Machines {
    fn drop(&mut self) {
        for name in [&self.server, &self.clients] {
            let pids = Command::new("ip").args(["netns", "pids", name]).output();
            for pid in String::from_utf8_lossy(&pids.unwrap().stdout).split_whitespace() {
                let _ = Command::new("kill").args(["-9", pid]).status();
            }
            let _ = Command::new("ip").args(["netns", "del", name]).status();
        }
    }
}

fn is_root() -> bool {
    fs::read_to_string("/proc/self/status").unwrap().lines().any(|line| line.starts_with("Uid:\t0\t0"))
}

fn ip(arguments: &[&str]) {
    let output = Command::new("ip").args(arguments).output().unwrap();
    assert!(output.status.success(), "ip {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// A command on one of the machines.
pub(crate) fn on(machine: &str, inner: &Command) -> Command {
    let mut command = Command::new("ip");
    command.args(["netns", "exec", machine]).arg(inner.get_program()).args(inner.get_args());
    for (name, value) in inner.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    if let Some(dir) = inner.get_current_dir() {
        command.current_dir(dir);
    }
    command.stdin(Stdio::null());
    command
}

pub(crate) fn logged(mut command: Command, log: &Path) -> Killed {
    let log = File::create(log).unwrap();
    Killed(command.stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap())
}

/// What a command on a machine prints; that it works is expected.
pub(crate) fn said(machine: &str, inner: &Command) -> String {
    let output = on(machine, inner).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{inner:?}: {text}{}", String::from_utf8_lossy(&output.stderr));
    text
}

pub(crate) fn fallow(dir: &Path, arguments: &[&str]) -> Command {
    let mut fallow = command("fallow");
    fallow.args(arguments).arg("--dir").arg(dir);
    fallow
}

/// A process that is killed when it is dropped.
pub(crate) struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
