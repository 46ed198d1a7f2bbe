//! Memory that large messages have taken goes back to the system when it is free (R6.10): the C library would
//! keep gigabytes of it. One task does that, at a pace, for others may wait meanwhile.

use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout};

/// So much that was taken is worth giving back.
const LARGE: usize = 1 << 20;
/// How long freed memory is kept for what comes next.
const KEPT: Duration = Duration::from_secs(1);
/// So long after the last time it is done once more: what works on a message may free what it took long after
/// the message itself is gone.
const LATER: Duration = Duration::from_secs(30);
/// Between two times lies so many times as long as the first one took.
const REST: u32 = 20;
/// What large messages took is free.
static FREED: Notify = Notify::const_new();

/// A message of so many bytes is gone.
pub(super) fn freed(bytes: usize) {
    if bytes >= LARGE {
        FREED.notify_one();
    }
}

/// Gives back what the start has taken, and from then on what large messages have. It does not end.
pub(crate) async fn give_back() {
    let mut rest = KEPT;
    let mut is_later = false;
    loop {
        sleep(rest).await;
        let began = Instant::now();
        // Had it failed, the memory would be kept until the next time.
        let _ = tokio::task::spawn_blocking(fallow_daemon::give_back_memory).await;
        rest = KEPT.max(began.elapsed() * REST);
        if is_later {
            FREED.notified().await;
            is_later = false;
        } else {
            is_later = timeout(LATER, FREED.notified()).await.is_err();
        }
    }
}
