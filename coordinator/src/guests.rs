//! Connections of nobody in particular: whoever has shown neither an account nor a signature yet.
//!
//! Anybody can open connections, and there is room for so many only. Those that have shown whose they are keep theirs.
//! Of the others the oldest gives way to a newcomer, though each is left some time first.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until};

/// All of them, by age.
#[derive(Clone, Debug, Default)]
pub(crate) struct Guests(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    next: u64,
    waiting: BTreeMap<u64, (Instant, oneshot::Sender<()>)>,
}

/// One connection. Those who serve it say here when it is known whose it is.
#[derive(Clone, Debug)]
pub(crate) struct Guest {
    number: u64,
    all: Guests,
}

impl Guests {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A new connection, and what is sent to it when it has to give way.
    pub(crate) fn enter(&self) -> (Guest, oneshot::Receiver<()>) {
        let (away, goes) = oneshot::channel();
        let mut state = self.state();
        let number = state.next;
        state.next += 1;
        state.waiting.insert(number, (Instant::now(), away));
        (Guest { number, all: self.clone() }, goes)
    }

    /// Sends the oldest away, as soon as it has been here for `grace`. Waits for ever if there is none.
    pub(crate) async fn oldest_gives_way(&self, grace: Duration) {
        while let Some(free_at) = self.send_away(grace) {
            match free_at {
                Some(at) => sleep_until(at).await,
                None => return,
            }
        }
        std::future::pending::<()>().await;
    }

    /// None if nobody is here; otherwise when the oldest may be sent away, if that is not done by now.
    fn send_away(&self, grace: Duration) -> Option<Option<Instant>> {
        let mut state = self.state();
        let oldest = state.waiting.first_entry()?;
        let at = oldest.get().0 + grace;
        if at > Instant::now() {
            return Some(Some(at));
        }
        // If it has just ended, there is a place as well.
        let _ = oldest.remove().1.send(());
        Some(None)
    }
}

impl Guest {
    /// It keeps its place from now on, or it has ended.
    pub(crate) fn is_known(&self) {
        self.all.state().waiting.remove(&self.number);
    }
}
