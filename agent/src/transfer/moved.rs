//! What files come to as they cross the wire, both ways, so that there can be a limit to it (R6.4).
//!
//! Nobody asks every second: whoever counts says when it is much. Beside it is added up what all that the
//! agent says to projects comes to, so that it can be told from what other programs say.

use std::sync::atomic::{AtomicU64, Ordering};

use fallow_client::Direction;
use fallow_domain::Bytes;
use tokio::sync::Notify;

/// Whenever files came to so much it is said, so that no kill makes more than that forgotten.
const MUCH: u64 = 16_000_000;

/// What was not told yet.
#[derive(Debug)]
pub(super) struct Moved {
    up: AtomicU64,
    down: AtomicU64,
    /// All of it, and pages and calls, since the start.
    crossed: AtomicU64,
    /// Both are much from here on.
    much: AtomicU64,
    news: Notify,
}

impl Default for Moved {
    fn default() -> Self {
        Self {
            up: AtomicU64::new(0),
            down: AtomicU64::new(0),
            crossed: AtomicU64::new(0),
            much: AtomicU64::new(MUCH),
            news: Notify::new(),
        }
    }
}

impl Moved {
    /// So many bytes of a file go.
    pub(super) fn note(&self, direction: Direction, bytes: u64) {
        self.note_beside(bytes);
        let of = |counted: Direction, count: &AtomicU64| match counted == direction {
            true => count.fetch_add(bytes, Ordering::Relaxed) + bytes,
            false => count.load(Ordering::Relaxed),
        };
        let all = of(Direction::Upload, &self.up) + of(Direction::Download, &self.down);
        if bytes > 0 && all >= self.much.load(Ordering::Relaxed) {
            self.news.notify_one();
        }
    }

    /// So many bytes go that are no file's.
    pub(super) fn note_beside(&self, bytes: u64) {
        self.crossed.fetch_add(bytes, Ordering::Relaxed);
    }

    /// What all went so far.
    pub(super) fn crossed(&self) -> Bytes {
        Bytes(self.crossed.load(Ordering::Relaxed))
    }

    /// Comes back when it is much.
    pub(super) async fn much(&self) {
        self.news.notified().await;
    }

    /// What is not told yet, which is told by that.
    pub(super) fn take(&self) -> (Bytes, Bytes) {
        let taken = |count: &AtomicU64| Bytes(count.swap(0, Ordering::Relaxed));
        (taken(&self.up), taken(&self.down))
    }

    /// So much may come yet, if there is a limit.
    pub(super) fn tell_after(&self, left: Option<Bytes>) {
        self.much.store(left.map_or(MUCH, |left| left.0.clamp(1, MUCH)), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn r6_4_it_is_said_when_files_came_to_what_is_left_and_nothing_is_counted_twice() {
        let moved = Moved::default();
        let is_much =
            async || tokio::time::timeout(std::time::Duration::from_secs(1), moved.much()).await.is_ok();
        moved.tell_after(Some(Bytes(100)));
        moved.note(Direction::Upload, 60);
        assert!(!is_much().await);
        moved.note(Direction::Download, 40);
        assert!(is_much().await);
        assert_eq!((moved.take(), moved.take()), ((Bytes(60), Bytes(40)), (Bytes(0), Bytes(0))));
        moved.tell_after(None);
        moved.note(Direction::Download, MUCH - 1);
        assert!(!is_much().await);
        moved.note(Direction::Download, 1);
        assert!(is_much().await);
        assert_eq!(moved.crossed(), Bytes(100 + MUCH));
        moved.note_beside(7);
        assert_eq!((moved.crossed(), moved.take()), (Bytes(107 + MUCH), (Bytes(0), Bytes(MUCH))));
    }
}
