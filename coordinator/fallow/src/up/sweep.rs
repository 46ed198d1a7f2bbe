//! The proof that nothing is left: no process runs an executable that lies in the directory.
//!
//! Applications are started from their project's directory on the agent, so the executables of their
//! processes lie below ours. Tasks of an agent that was killed end by themselves within ten seconds; what
//! does not is killed.

use std::path::Path;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::time::{Instant, sleep};

use super::interrupt::Interrupts;
use super::progress::Reporter;

/// Tasks without an agent end within ten seconds.
const PATIENCE: Duration = Duration::from_secs(12);
/// The kernel's time to bury what was killed.
const AFTER_KILL: Duration = Duration::from_secs(3);
const POLL: Duration = Duration::from_millis(100);

/// Waits for the end of everything below `dir`, kills what stays, and gives how many processes still are
/// there.
pub(super) async fn clean(dir: &Path, interrupts: &mut Interrupts, reporter: &Reporter) -> usize {
    tokio::select! {
        true = gone_within(dir, PATIENCE) => return 0,
        _ = interrupts.next() => {}
        else => {}
    }
    let left = running(dir);
    reporter.say("killed", &format!("{} tasks without an agent are killed", left.len()));
    for pid in left {
        // Ended in between is what was wanted.
        let _ = kill_process(pid, Signal::KILL);
    }
    gone_within(dir, AFTER_KILL).await;
    running(dir).len()
}

async fn gone_within(dir: &Path, patience: Duration) -> bool {
    let end = Instant::now() + patience;
    while !running(dir).is_empty() {
        if Instant::now() > end {
            return false;
        }
        sleep(POLL).await;
    }
    true
}

/// The processes whose executable lies below `dir`.
fn running(dir: &Path) -> Vec<Pid> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    let pid_of = |entry: std::fs::DirEntry| {
        let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
        let executable = std::fs::read_link(entry.path().join("exe")).ok()?;
        if executable.starts_with(dir) { Pid::from_raw(pid) } else { None }
    };
    entries.flatten().filter_map(pid_of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_found_by_where_its_executable_lies() {
        let dir = tempfile::tempdir().unwrap();
        let path = std::fs::canonicalize(dir.path()).unwrap().join("sleeper");
        let sleep =
            ["/bin/sleep", "/usr/bin/sleep"].into_iter().find(|path| Path::new(path).exists()).unwrap();
        std::fs::copy(sleep, &path).unwrap();
        let mut child = std::process::Command::new(&path).arg("60").spawn().unwrap();
        let found = running(path.parent().unwrap());
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(found.iter().map(|pid| pid.as_raw_pid() as u32).collect::<Vec<_>>(), [child.id()]);
        assert!(running(path.parent().unwrap()).is_empty());
    }
}
