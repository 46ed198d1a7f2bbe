//! The way by which outputs of a job that runs come to where they are sent from.
//!
//! Model: a large output is copied for minutes, and its job may end meanwhile. What the job has left is taken
//! then, and is what counts: so the way is closed before, copies that are still being made are given up, and
//! none of them is put over what was taken.

use std::io;
use std::sync::Mutex;

use rustix::io::Errno;

/// Open as long as a job's outputs may still change.
#[derive(Debug, Default)]
pub(super) struct EarlyDoor {
    is_closed: Mutex<bool>,
}

impl EarlyDoor {
    /// Closes it for good. On return nothing is on its way through, and nothing will be.
    pub(super) fn close(&self) {
        *fallow_daemon::lock(&self.is_closed) = true;
    }

    /// Whether it is still open.
    pub(super) fn is_open(&self) -> bool {
        !*fallow_daemon::lock(&self.is_closed)
    }

    /// Puts an output into its place. Whoever closes the door waits for that, so it is to take no time.
    ///
    /// # Errors
    /// `CANCELED` where the door is closed; then nothing is put anywhere. Else what comes of `put`.
    pub(super) fn pass(&self, put: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        let is_closed = fallow_daemon::lock(&self.is_closed);
        if *is_closed { Err(Errno::CANCELED.into()) } else { put() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r6_10_nothing_passes_a_door_that_is_closed() {
        let door = EarlyDoor::default();
        door.pass(|| Ok(())).unwrap();
        door.close();
        let put = door.pass(|| unreachable!("it is closed"));
        assert!(!door.is_open() && put.unwrap_err().raw_os_error() == Some(Errno::CANCELED.raw_os_error()));
    }
}
