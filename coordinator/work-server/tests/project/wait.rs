//! Waiting for what has to come.

use std::time::{Duration, Instant};

/// How long. It costs nothing where it comes, and a machine may be slow.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// Waits until this holds.
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < end, "waited {PATIENCE:?} until {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}
