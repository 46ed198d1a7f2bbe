//! What is learned during a transfer, beside how it ends.

use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use fallow_client::{Direction, Traffic};
use fallow_domain::Bytes;
use reqwest::Url;

/// Takes notes during the transfers of one attempt.
#[derive(Debug, Default)]
pub(super) struct TransferLog(Mutex<TransferNotes>);

/// What the transfers of one attempt met.
#[derive(Debug, Default)]
pub(super) struct TransferNotes {
    /// Bodies that were sent on to another host: from where, and to where.
    pub(super) moves: Vec<(Url, Url)>,
    /// What the owner is to hear of the answer.
    pub(super) remarks: Vec<String>,
    /// How fast it went.
    pub(super) traffic: Vec<Traffic>,
}

impl TransferLog {
    pub(super) fn moved(&self, from: &Url, to: &Url) {
        self.lock().moves.push((from.clone(), to.clone()));
    }

    pub(super) fn remark(&self, text: String) {
        self.lock().remarks.push(text);
    }

    pub(super) fn measured(&self, direction: Direction, bytes: u64, took: Duration) {
        if bytes > 0 && !took.is_zero() {
            let took = fallow_domain::Duration::from_secs_f64(took.as_secs_f64());
            self.lock().traffic.push(Traffic { direction, bytes: Bytes(bytes), took });
        }
    }

    /// All of it, at the end.
    pub(super) fn take(&self) -> TransferNotes {
        std::mem::take(&mut *self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, TransferNotes> {
        fallow_daemon::lock(&self.0)
    }
}
