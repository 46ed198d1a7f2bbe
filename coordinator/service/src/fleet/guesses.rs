//! Wrong tokens and secrets cost whoever shows them time: all of them wait in one line.
//!
//! Nobody guesses 256 bits; but each guess costs us a look-up and a line of the log, and an honest typo can
//! wait a moment. Whoever shows the right one does not wait.

use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::{sleep, timeout};

/// What a wrong one takes of the line.
const EACH: Duration = Duration::from_millis(200);
/// Nobody waits longer: the line has a length.
const MOST: Duration = Duration::from_secs(5);

/// Those who showed a wrong token or secret wait in it, one after the other.
#[derive(Debug, Default)]
pub(super) struct FailedAuthDelay(Mutex<()>);

impl FailedAuthDelay {
    /// Returns when whoever showed a wrong one has waited.
    pub(super) async fn slow_down(&self) {
        let turn = async {
            let _turn = self.0.lock().await;
            sleep(EACH).await;
        };
        let _ = timeout(MOST, turn).await;
    }
}
