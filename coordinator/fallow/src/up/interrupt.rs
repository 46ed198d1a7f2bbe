//! Ctrl-C, Ctrl-\\, SIGTERM and a terminal that goes away: the first asks for a clean end, the next for a
//! quick one.

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::cli::Failure;

/// The signals that ask for an end.
pub(super) struct Interrupts {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
    quit: Signal,
}

impl Interrupts {
    /// From now on they no longer end the process by themselves.
    pub(super) fn listen() -> Result<Self, Failure> {
        let listen =
            |kind| signal(kind).map_err(|error| Failure::internal("signals cannot be listened to", error));
        Ok(Self {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
            hangup: listen(SignalKind::hangup())?,
            quit: listen(SignalKind::quit())?,
        })
    }

    /// Waits for the next one, and says whether it is one that a key sends.
    pub(super) async fn next(&mut self) -> bool {
        tokio::select! {
            _ = self.interrupt.recv() => true,
            _ = self.quit.recv() => true,
            _ = self.terminate.recv() => false,
            _ = self.hangup.recv() => false,
        }
    }
}
