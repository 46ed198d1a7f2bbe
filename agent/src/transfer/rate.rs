//! The most that is moved in a second, each way (R6.4; BOINC: `max_bytes_sec_up`, `max_bytes_sec_down`).
//!
//! Model: all files of one direction share one line. A piece takes its place on it: it may go on once all
//! that was there before has had its time at that speed. Pages and RPCs, which are small, are not held up.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fallow_domain::Bytes;
use tokio::time::{Instant, sleep_until};

/// A pause is never longer than this, so that a limit that is lifted holds nobody back for long.
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// Both directions. Clones are of the same lines.
#[derive(Clone, Debug, Default)]
pub(super) struct Rates {
    pub(super) up: Arc<Rate>,
    pub(super) down: Arc<Rate>,
}

/// One direction.
#[derive(Debug, Default)]
pub(super) struct Rate {
    /// Bytes in a second; 0 for no limit.
    limit: AtomicU64,
    /// When the line is free.
    free_at: Mutex<Option<Instant>>,
}

impl Rate {
    pub(super) fn limit(&self, limit: Option<Bytes>) {
        self.limit.store(limit.map_or(0, |limit| limit.0.max(1)), Ordering::Relaxed);
    }

    pub(super) fn is_limited(&self) -> bool {
        self.limit.load(Ordering::Relaxed) > 0
    }

    /// Waits until a piece has had its time. Gives how long that was.
    pub(super) async fn pass(&self, bytes: u64) -> Duration {
        let began = Instant::now();
        if let Some(until) = self.place(began, bytes) {
            sleep_until(until.min(began + PAUSE_MAX)).await;
        }
        began.elapsed()
    }

    /// Until when a piece that comes now has to wait.
    fn place(&self, now: Instant, bytes: u64) -> Option<Instant> {
        let limit = self.limit.load(Ordering::Relaxed);
        let mut free_at = fallow_daemon::lock(&self.free_at);
        if limit == 0 {
            *free_at = None;
            return None;
        }
        let from = free_at.map_or(now, |free_at| free_at.max(now));
        let takes = Duration::from_secs_f64((bytes as f64 / limit as f64).min(86_400.0));
        *free_at = Some(from + takes);
        *free_at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r6_4_pieces_of_all_files_share_the_bytes_of_a_second() {
        let (rate, now) = (Rate::default(), Instant::now());
        let second = Duration::from_secs(1);
        assert_eq!(rate.place(now, 1 << 30), None);
        rate.limit(Some(Bytes(1000)));
        assert_eq!(rate.place(now, 1000), Some(now + second));
        assert_eq!(rate.place(now, 500), Some(now + second * 3 / 2));
        // What was not used is not saved up.
        let later = now + second * 60;
        assert_eq!(rate.place(later, 1000), Some(later + second));
        rate.limit(None);
        assert_eq!(rate.place(later, 1000), None);
        rate.limit(Some(Bytes(1000)));
        assert_eq!(rate.place(later, 0), Some(later));
    }
}
