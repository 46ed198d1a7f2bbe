//! Locks within a process.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Takes the lock whatever became of its last holder. For values that no holder leaves half changed.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
