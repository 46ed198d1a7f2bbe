//! Watching a prefix: one message per batch, a bounded queue per watcher.
//!
//! A watcher that does not keep up is told so and dropped; it then scans again and watches anew. The writer never
//! waits for a watcher, because a slow reader must not stop a daemon from writing its state.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TryRecvError, TrySendError, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Batches a watcher may lag behind: some seconds of a busy coordinator at well under a mebibyte of small values.
pub const WATCH_QUEUE: usize = 1024;

/// The writes of one batch that lie under the watched prefix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The batch's number (see [`Outcome::Applied`](crate::Outcome::Applied)).
    pub revision: u64,
    /// Keys with their new value, or `None` where deleted.
    pub writes: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
}

/// The watcher did not read fast enough and missed changes, or the store was closed: scan and watch again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the watch ended: it lagged more than {WATCH_QUEUE} batches behind, or the store was closed; scan and watch again"
)]
pub struct Lagged;

/// Receives the changes under a prefix.
#[derive(Debug)]
pub struct Watch {
    changes: Receiver<Change>,
}

impl Watch {
    /// Waits for the next change, at most for `patience`. `None`: nothing changed in that time.
    pub fn next_within(&self, patience: Duration) -> Result<Option<Change>, Lagged> {
        match self.changes.recv_timeout(patience) {
            Ok(change) => Ok(Some(change)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => Err(Lagged),
        }
    }

    /// The next change if there is one already.
    pub fn try_next(&self) -> Result<Option<Change>, Lagged> {
        match self.changes.try_recv() {
            Ok(change) => Ok(Some(change)),
            Err(TryRecvError::Empty) => Ok(None),
            Err(TryRecvError::Disconnected) => Err(Lagged),
        }
    }
}

/// All watchers of a store.
#[derive(Debug, Default)]
pub(crate) struct Watchers {
    list: Mutex<Vec<Watcher>>,
}

#[derive(Debug)]
struct Watcher {
    prefix: Vec<u8>,
    changes: SyncSender<Change>,
}

impl Watchers {
    pub(crate) fn add(&self, prefix: &[u8]) -> Watch {
        let (sender, receiver) = sync_channel(WATCH_QUEUE);
        let mut list = self.list.lock().unwrap_or_else(PoisonError::into_inner);
        list.push(Watcher { prefix: prefix.to_vec(), changes: sender });
        Watch { changes: receiver }
    }

    /// Tells every watcher its part of a batch; forgets those that are gone or too slow.
    pub(crate) fn tell(&self, revision: u64, writes: &BTreeMap<Vec<u8>, Option<Vec<u8>>>) {
        let mut list = self.list.lock().unwrap_or_else(PoisonError::into_inner);
        list.retain(|watcher| {
            let part: BTreeMap<_, _> = writes
                .range(watcher.prefix.clone()..)
                .take_while(|(key, _)| key.starts_with(&watcher.prefix))
                .map(|(key, value)| (key.clone(), value.clone()))
                .collect();
            if part.is_empty() {
                return true;
            }
            match watcher.changes.try_send(Change { revision, writes: part }) {
                Ok(()) => true,
                Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => false,
            }
        });
    }
}
