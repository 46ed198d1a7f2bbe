//! What a call has taken, its place among others, is kept by the work that it has begun (R6.10).
//!
//! Whoever calls may give up at any moment. What waits then ends; what computes on a thread of its own goes
//! on. If the call's place was free by then, calls that are given up at once would have threads without a
//! bound, and keep all others from theirs.

use std::any::Any;
use std::sync::Arc;

use tokio::task::JoinError;

/// Whatever a call has taken. It is given back when the last one lets go of it.
pub(crate) type Kept = Arc<dyn Any + Send + Sync>;

tokio::task_local! {
    static KEPT: Kept;
}

/// A call, of which all work on threads keeps that, too.
pub(crate) async fn keeping<T>(kept: Kept, call: impl Future<Output = T>) -> T {
    KEPT.scope(kept, call).await
}

/// Runs what blocks, or computes for long, on a thread where that is fine.
///
/// # Errors
/// That it panicked.
pub(crate) async fn on_a_thread<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, JoinError> {
    // None outside of calls.
    let kept = KEPT.try_with(Kept::clone).ok();
    let work = move || {
        let done = work();
        drop(kept);
        done
    };
    tokio::task::spawn_blocking(work).await
}
