//! The control group of one task.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use fallow_domain::{Bytes, Duration};

use super::bounds::is_to_blame;
use super::{GONE, Made};
use crate::cgroup::{self, Group, number};

/// A task's group. A job may close what is in it; what is needed of it is opened all the same.
#[derive(Debug)]
pub(crate) struct TaskGroup {
    made: Arc<Made>,
    name: String,
    /// None once it is to be gone.
    open: Mutex<Option<Open>>,
    /// The memory that it has at most, in bytes; all bits set where nothing bounds it.
    most: AtomicU64,
    /// The kernel bounds its number of processes.
    counts_processes: bool,
}

/// What is open of it as long as it is there.
#[derive(Debug)]
struct Open {
    group: Group,
    /// Opened before a job is in it, which could close it again and again: at the end it must not fail.
    kill: Option<File>,
    /// It is read at each look.
    cpu: Option<File>,
}

/// By this a process that was just forked enters a task's group.
#[derive(Debug)]
pub(crate) struct Door {
    procs: File,
    made: Arc<Made>,
}

impl Door {
    /// What the process writes to.
    pub(crate) fn procs(&self) -> BorrowedFd<'_> {
        self.procs.as_fd()
    }

    /// The group that is above the task's and the one that the agent is in.
    pub(crate) fn above(&self) -> BorrowedFd<'_> {
        self.made.own.as_fd()
    }
}

impl TaskGroup {
    /// That of a group which was made for a task, and the way into it.
    /// `counts_processes` says that the kernel bounds these.
    pub(super) fn of(
        made: &Arc<Made>,
        name: String,
        group: Group,
        counts_processes: bool,
    ) -> io::Result<(Self, Door)> {
        let door = Door { procs: group.file("cgroup.procs", true)?, made: Arc::clone(made) };
        let (kill, cpu) = (group.file("cgroup.kill", true).ok(), group.file("cpu.stat", false).ok());
        let open = Mutex::new(Some(Open { group, kill, cpu }));
        let most = AtomicU64::new(u64::MAX);
        Ok((Self { made: Arc::clone(made), name, open, most, counts_processes }, door))
    }

    /// Whether the kernel bounds both its memory and its number of processes.
    pub(crate) fn is_bound(&self) -> bool {
        self.counts_processes && self.most.load(Ordering::Relaxed) != u64::MAX
    }

    /// Kills all that is in it, at once.
    pub(crate) fn kill(&self) {
        if let Some(open) = &*fallow_daemon::lock(&self.open) {
            open.kill();
        }
    }

    /// The CPU time of all that was ever in it.
    pub(crate) fn cpu(&self) -> Option<Duration> {
        let open = fallow_daemon::lock(&self.open);
        let micros = number(&cgroup::read(open.as_ref()?.cpu.as_ref()?).ok()?, "usage_usec")?;
        i64::try_from(micros).ok().map(Duration::from_micros)
    }

    /// How much memory it had at most, if the kernel killed it because it needed more than that.
    pub(crate) fn memory_exceeded(&self) -> Option<Bytes> {
        let events = fallow_daemon::lock(&self.open).as_ref()?.group.read("memory.events").ok()?;
        let most = self.most.load(Ordering::Relaxed);
        is_to_blame(&events, most, self.made.memory_max()).then_some(Bytes(most))
    }

    /// Ends all that is in it, and removes it.
    pub(crate) fn end(&self) {
        // Others do not wait while it goes.
        let Some(open) = fallow_daemon::lock(&self.open).take() else { return };
        open.kill();
        drop(open);
        self.made.remove(&self.name, GONE);
    }

    /// Has it have at most so much memory, if that is not less than before.
    pub(super) fn allow(&self, most: u64) {
        let before = self.most.load(Ordering::Relaxed);
        if before != u64::MAX && most <= before {
            return;
        }
        let open = fallow_daemon::lock(&self.open);
        let Some(Open { group, .. }) = &*open else { return };
        match group.write("memory.max", &most.to_string()) {
            Ok(()) => self.most.store(most, Ordering::Relaxed),
            Err(error) => {
                tracing::warn!(group = self.name, %error, "cannot bound the memory of a control group");
            }
        }
    }
}

impl Open {
    fn kill(&self) {
        let killed = self.kill.as_ref().is_some_and(|kill| cgroup::write(kill, "1").is_ok());
        if !killed {
            self.group.kill();
        }
    }
}
