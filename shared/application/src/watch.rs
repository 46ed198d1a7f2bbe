//! Is the client still there?
//!
//! Model: three signs that it is not. Its process number is free; it was our parent and is no longer; or the
//! process with its number is dead or another one by now, as its start time tells. The signal that Linux can
//! send on a parent's death is not used: it fires when the parent's *thread* ends, which a client with a pool
//! of threads would see as random kills, and a client that forks twice is nobody's parent.

use fallow_daemon::proc;
use rustix::process::{Pid, getppid, test_kill_process};

/// The client as it was when we started.
#[derive(Debug)]
pub(crate) struct ClientWatch {
    pid: Pid,
    was_parent: bool,
    started: Option<u64>,
}

impl ClientWatch {
    /// Remembers the client; none if its number is not known.
    pub(crate) fn new(client_pid: u32) -> Option<Self> {
        let pid = Pid::from_raw(i32::try_from(client_pid).ok()?)?;
        let started = proc::find(client_pid).map(|client| client.start);
        Some(Self { pid, was_parent: getppid() == Some(pid), started })
    }

    /// True when the client that we knew is no more.
    pub(crate) fn is_gone(&self) -> bool {
        // A client of another user, as in a sandbox, may not be signalled but lives.
        if test_kill_process(self.pid) == Err(rustix::io::Errno::SRCH) {
            return true;
        }
        if self.was_parent && getppid() != Some(self.pid) {
            return true;
        }
        // Where there is no /proc, or we may not read it, the two signs above have to do.
        let now = u32::try_from(self.pid.as_raw_pid()).ok().and_then(proc::find);
        now.is_some_and(|now| now.zombie || self.started.is_some_and(|started| started != now.start))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_client_that_lives_is_not_gone() {
        let own = ClientWatch::new(std::process::id()).unwrap();
        assert!(own.started.is_some_and(|started| started > 0));
        assert!(!own.is_gone());
        assert!(ClientWatch::new(0).is_none());
    }

    #[test]
    fn a_dead_client_is_gone_even_before_somebody_buries_it() {
        let mut client = Command::new("sleep").arg("60").spawn().unwrap();
        let watch = ClientWatch::new(client.id()).unwrap();
        assert!(!watch.is_gone());
        client.kill().unwrap();
        // The kernel makes it a zombie in its own time.
        while !watch.is_gone() {
            std::thread::yield_now();
        }
        client.wait().unwrap();
        assert!(watch.is_gone());
    }

    #[test]
    fn another_process_with_the_clients_number_is_not_the_client() {
        let mut watch = ClientWatch::new(std::process::id()).unwrap();
        watch.started = watch.started.map(|started| started - 1);
        assert!(watch.is_gone());
    }

    #[test]
    fn a_client_that_was_our_parent_and_is_not_any_more_is_gone() {
        let watch = ClientWatch { pid: rustix::process::getpid(), was_parent: true, started: None };
        assert!(watch.is_gone());
    }
}
