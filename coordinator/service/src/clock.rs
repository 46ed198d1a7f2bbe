//! The coordinator's clock: read in the shell, handed on as a value.

use std::time::SystemTime;

use fallow_domain::Instant;

/// Now. A clock before 1970 is taken for 1970.
#[must_use]
pub fn now() -> Instant {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Instant::from_micros(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
}
