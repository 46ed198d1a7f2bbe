//! Memory that large messages have taken goes back to the system when it is free (R6.10): the C library would
//! keep gigabytes of it. One task does that, at a pace, for others may wait meanwhile.

use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout};

/// So much that was taken is worth giving back.
const LARGE: usize = 1 << 20;
/// How long freed memory is kept for what comes next.
const KEPT: Duration = Duration::from_secs(1);
/// At least so long after the last time it is done once more: what works on a message may free what it took
/// long after the message itself is gone.
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
    // Had it failed, the memory would be kept until the next time.
    let give = || async { drop(tokio::task::spawn_blocking(fallow_daemon::give_back_memory).await) };
    whenever(&FREED, give).await;
}

/// Does that now, whenever something was freed, and once more later.
async fn whenever<F: Future<Output = ()>>(freed: &Notify, mut give: impl FnMut() -> F) {
    let mut rest = KEPT;
    let mut is_later = false;
    loop {
        sleep(rest).await;
        let began = Instant::now();
        give().await;
        rest = KEPT.max(began.elapsed() * REST);
        if is_later {
            freed.notified().await;
            is_later = false;
        } else {
            is_later = timeout(LATER, freed.notified()).await.is_err();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn r6_10_memory_is_given_back_after_a_message_and_once_more_half_a_minute_later() {
        let (freed, began) = (Notify::new(), Instant::now());
        let times = RefCell::new(Vec::new());
        let give = || async { times.borrow_mut().push(began.elapsed().as_secs()) };
        let messages = async {
            sleep(Duration::from_secs(100)).await;
            freed.notify_one();
            sleep(Duration::from_millis(500)).await;
            freed.notify_one();
            sleep(Duration::from_secs(1_000)).await;
        };
        tokio::select! { () = messages => {}, () = whenever(&freed, give) => {} }
        // After the start and later; then after the first message, after the second one, and later.
        assert_eq!(times.take(), [1, 32, 101, 102, 133]);
    }
}
