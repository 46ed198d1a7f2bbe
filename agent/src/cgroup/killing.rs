//! The end of all that is in a group.

use std::ffi::CStr;
use std::io;
use std::time::{Duration, Instant};

use super::directory::Directory;
use super::walk::{Visit, walk};
use super::{Group, LOOK, processes};
use crate::proc;

/// How often the processes of a group are killed one by one, where the kernel cannot kill a group.
const ROUNDS: u32 = 20;
/// How long that takes at most. Whoever waits for it has other tasks to look at.
const PATIENCE: Duration = Duration::from_secs(1);

impl Group {
    /// Kills everything in it and below it.
    pub fn kill(&self) {
        match self.write("cgroup.kill", "1") {
            Ok(()) => {}
            // Before Linux 5.14.
            Err(_) => self.kill_each(),
        }
    }

    /// In rounds, for a process may fork between the look and the kill.
    pub(super) fn kill_each(&self) {
        let by = Instant::now() + PATIENCE;
        for _ in 0..ROUNDS {
            let mut round = Round { killed: kill(self.processes()) };
            let names = self.dir.names(by).unwrap_or_default();
            // What is out of reach is so in the next round, too, or is gone.
            let _ = walk(&self.dir, names, by, &mut round);
            if round.killed == 0 || Instant::now() >= by {
                return;
            }
            // Those that were killed take a moment to be gone.
            std::thread::sleep(LOOK);
        }
    }
}

struct Round {
    killed: usize,
}

impl Visit for Round {
    fn before(&mut self, above: &Directory, name: &CStr) -> bool {
        self.killed += above.child(name).map_or(0, |group| kill(processes(&group)));
        true
    }

    fn after(&mut self, _: &Directory, _: &CStr) {}

    fn missed(&mut self, _: io::Error) {}
}

/// How many were killed.
fn kill(processes: io::Result<Vec<u32>>) -> usize {
    let pids: Vec<_> = processes.unwrap_or_default().into_iter().filter_map(proc::to_pid).collect();
    for &pid in &pids {
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
    }
    pids.len()
}
