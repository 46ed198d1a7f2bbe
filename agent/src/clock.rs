//! The one place where the agent looks at the clock on the client's behalf.

use std::time::{SystemTime, UNIX_EPOCH};

use fallow_domain::{Duration, Instant};

/// Now, in the client's terms.
pub fn now() -> Instant {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Instant::EPOCH + Duration::from(since)
}
