//! Processes as `/proc` shows them.

use std::path::{Path, PathBuf};

/// A process at the time it was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// Its number.
    pub pid: u32,
    /// Its command line.
    pub command: String,
    /// Its working directory.
    pub cwd: PathBuf,
    /// CPU time in clock ticks, its own.
    pub ticks: u64,
    /// It has ended and waits for its parent to notice.
    pub zombie: bool,
}

impl Process {
    /// Reads one.
    pub fn read(pid: u32) -> Option<Self> {
        let proc = PathBuf::from(format!("/proc/{pid}"));
        // The name in parentheses may hold any bytes; what follows the last one is plain.
        let stat = String::from_utf8_lossy(&std::fs::read(proc.join("stat")).ok()?).into_owned();
        let fields: Vec<&str> = stat[stat.rfind(')')? + 1..].split_whitespace().collect();
        let command = std::fs::read(proc.join("cmdline")).ok()?;
        let command = String::from_utf8_lossy(&command).replace('\0', " ").trim().to_owned();
        let cwd = std::fs::read_link(proc.join("cwd")).unwrap_or_default();
        let tick = |index: usize| fields.get(index)?.parse::<u64>().ok();
        Some(Self { pid, command, cwd, ticks: tick(11)? + tick(12)?, zombie: fields.first() == Some(&"Z") })
    }

    /// Sends it a signal; that it is gone already is no error.
    pub fn signal(&self, signal: rustix::process::Signal) {
        if let Some(pid) = i32::try_from(self.pid).ok().and_then(rustix::process::Pid::from_raw) {
            let _ = rustix::process::kill_process(pid, signal);
        }
    }

    /// True while it exists and has not ended.
    pub fn is_alive(&self) -> bool {
        Self::read(self.pid).is_some_and(|now| !now.zombie && now.command == self.command)
    }
}

/// All processes that work in a directory or below it, or have it in their command line.
pub fn processes_in(dir: &Path) -> Vec<Process> {
    let dir = dir.canonicalize().unwrap_or_else(|_| dir.to_owned());
    let text = dir.to_string_lossy().into_owned();
    let own = std::process::id();
    let pids = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(|pid| *pid != own);
    pids.filter_map(Process::read)
        .filter(|process| !process.zombie)
        .filter(|process| process.cwd.starts_with(&dir) || process.command.contains(&text))
        .collect()
}

/// A process that is killed when it is dropped.
pub struct Killed(pub std::process::Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
