//! Instants in words.

use std::time::{Duration, UNIX_EPOCH};

use fallow_domain::Instant;

/// The last second of the year 9999: what lies beyond has no such words.
const LAST: u64 = 253_402_300_799;

/// An instant as `2026-01-31T12:00:00Z`; one before 1970 or after 9999 as the nearest that has these words.
#[must_use]
pub fn utc(at: Instant) -> String {
    let seconds = u64::try_from(at.as_micros()).unwrap_or(0) / 1_000_000;
    humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_secs(seconds.min(LAST))).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_instant_has_words() {
        for (micros, words) in [
            (0, "1970-01-01T00:00:00Z"),
            (i64::MIN, "1970-01-01T00:00:00Z"),
            (1_800_000_000_000_000, "2027-01-15T08:00:00Z"),
            (i64::MAX, "9999-12-31T23:59:59Z"),
        ] {
            assert_eq!(utc(Instant::from_micros(micros)), words);
        }
    }
}
