//! The signals that ask for the end.

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use crate::error::AgentError;

/// Counts the signals that ask for the end: SIGTERM, SIGINT, SIGHUP.
pub(super) fn count_signals() -> Result<(watch::Sender<u32>, watch::Receiver<u32>), AgentError> {
    let on = |kind| signal(kind).map_err(|error| AgentError::system("cannot listen to signals", error));
    let (mut terminate, mut interrupt, mut hang_up) =
        (on(SignalKind::terminate())?, on(SignalKind::interrupt())?, on(SignalKind::hangup())?);
    let (count, counted) = watch::channel(0);
    let ends = count.clone();
    tokio::spawn(async move {
        loop {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
                _ = hang_up.recv() => {}
            }
            count.send_modify(|count| *count += 1);
        }
    });
    Ok((ends, counted))
}

/// Waits for the next signal.
pub(super) async fn another(signals: &mut watch::Receiver<u32>) {
    if signals.changed().await.is_err() {
        std::future::pending::<()>().await;
    }
}
