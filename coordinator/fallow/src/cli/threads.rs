//! Whether the system has threads for a coordinator. Asked before anything begins: where a runtime gets none
//! it panics, and a store that gets none waits for them for ever.

use std::num::NonZero;
use std::sync::{Arc, Mutex};
use std::thread::{Builder, available_parallelism};

use fallow_daemon::lock;

use super::Failure;

/// So many it has soon after its start at most, beside one for each CPU: the store's, its own, those of
/// telemetry, and some for what may block.
const THREADS: usize = 18;

/// Sees to it that there are as many as a coordinator takes.
///
/// # Errors
/// [`Failure`] that says how many there are.
pub(super) fn require() -> Result<(), Failure> {
    let wanted = THREADS + available_parallelism().map_or(1, NonZero::get);
    // All of them at a time.
    let gate = Arc::new(Mutex::new(()));
    let closed = lock(&gate);
    let (mut threads, mut refused) = (Vec::new(), None);
    while threads.len() < wanted && refused.is_none() {
        let gate = Arc::clone(&gate);
        match Builder::new().spawn(move || drop(lock(&gate))) {
            Ok(thread) => threads.push(thread),
            Err(error) => refused = Some(error),
        }
    }
    drop(closed);
    let had = threads.len();
    for thread in threads {
        let _ = thread.join();
    }
    refused.map_or(Ok(()), |error| {
        let what = format!(
            "a coordinator takes {wanted} threads, and the system gives it {had}: let its user have more processes \
             (ulimit -u; TasksMax of a unit), or end some of his"
        );
        Err(Failure::internal(what, error))
    })
}
