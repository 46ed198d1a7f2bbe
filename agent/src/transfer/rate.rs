//! The most that is moved in a second, each way (R6.4; BOINC: `max_bytes_sec_up`, `max_bytes_sec_down`).
//!
//! Model: all files of one direction share one line. A piece takes its place on it: it may go on once all
//! that was there before has had its time at that speed. Pages and RPCs, which are small, are not held up.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fallow_client::Direction;
use fallow_domain::Bytes;
use tokio::time::{Instant, sleep_until};

use super::moved::Moved;

/// While a piece waits, it is looked so often whether there is another limit by now.
const LOOK: Duration = Duration::from_secs(10);

/// Both directions. Clones are of the same lines.
#[derive(Clone, Debug)]
pub(super) struct Rates {
    pub(super) up: Arc<Rate>,
    pub(super) down: Arc<Rate>,
    /// What went over both.
    pub(super) moved: Arc<Moved>,
}

impl Default for Rates {
    fn default() -> Self {
        let moved = Arc::new(Moved::default());
        let line =
            |direction| Arc::new(Rate { counts: Some((direction, Arc::clone(&moved))), ..Rate::default() });
        Self { up: line(Direction::Upload), down: line(Direction::Download), moved }
    }
}

/// One direction.
#[derive(Debug, Default)]
pub(super) struct Rate {
    /// Bytes in a second; 0 for no limit.
    limit: AtomicU64,
    /// When the line is free.
    free_at: Mutex<Option<Instant>>,
    /// Where it is counted what goes over it.
    counts: Option<(Direction, Arc<Moved>)>,
}

impl Rate {
    pub(super) fn limit(&self, limit: Option<Bytes>) {
        let limit = limit.map_or(0, |limit| limit.0.max(1));
        if self.limit.swap(limit, Ordering::Relaxed) != limit {
            // Who waits by the limit before goes on.
            *fallow_daemon::lock(&self.free_at) = None;
        }
    }

    pub(super) fn is_limited(&self) -> bool {
        self.limit.load(Ordering::Relaxed) > 0
    }

    /// Waits until a piece has had its time. Gives how long that was.
    pub(super) async fn pass(&self, bytes: u64) -> Duration {
        if let Some((direction, moved)) = &self.counts {
            moved.note(*direction, bytes);
        }
        let began = Instant::now();
        let limit = self.limit.load(Ordering::Relaxed);
        if let Some(until) = self.place(began, bytes) {
            while Instant::now() < until && self.limit.load(Ordering::Relaxed) == limit {
                sleep_until(until.min(Instant::now() + LOOK)).await;
            }
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

    /// A limit below which all pieces that wait had gone on after a minute.
    #[tokio::test(start_paused = true)]
    async fn r6_4_a_low_limit_holds_however_many_pieces_wait_until_there_is_another() {
        let (rate, began) = (Arc::new(Rate::default()), Instant::now());
        rate.limit(Some(Bytes(1_000)));
        let passing: Vec<_> = (0..40)
            .map(|_| {
                let rate = rate.clone();
                tokio::spawn(async move { rate.pass(8_000).await })
            })
            .collect();
        let mut took = Vec::new();
        for one in passing {
            took.push(one.await.unwrap());
        }
        took.sort_unstable();
        let expected: Vec<_> = (1..=40).map(|number| Duration::from_secs(8 * number)).collect();
        assert!(took.iter().zip(&expected).all(|(took, least)| took >= least), "{took:?}");
        assert!(began.elapsed() < Duration::from_secs(8 * 40 + 20));
        // Who waits for hours goes on soon after the limit is lifted.
        let (waits, began) = (rate.clone(), Instant::now());
        let waiting = tokio::spawn(async move { waits.pass(10_000_000).await });
        tokio::time::sleep(Duration::from_secs(30)).await;
        rate.limit(None);
        waiting.await.unwrap();
        assert!(began.elapsed() <= Duration::from_secs(30) + LOOK);
    }

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
