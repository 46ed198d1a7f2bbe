//! The one place where clocks are read for the rooms that get the time as a value.

use std::time::SystemTime;

use fallow_domain::Instant;

/// Now. A clock before 1970 is taken for 1970.
#[expect(clippy::disallowed_methods, reason = "this is where the time comes from")]
pub fn now() -> Instant {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Instant::from_micros(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
}
