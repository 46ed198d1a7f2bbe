//! Bounds on what one entry may hold. An entry beyond them is refused.

use std::time::Duration;

/// Bytes of a key: a URL of 255, a job name of 255 and their prefix fit.
pub const KEY_BYTES: usize = 640;
/// Bytes of any text in an entry: reasons are sentences.
pub const TEXT_BYTES: usize = 1_024;
/// Microseconds that any duration may have: 3,000 years of CPU time, so that sums over a million agents hold.
pub const MICROS_MAX: i64 = 100_000_000_000_000_000;
/// Debt that can be meant, CPU seconds either way.
pub const DEBT_MAX: f64 = 1e12;
/// Projects of the document that an owner may have detached, and devices that he may exclude: as many as a
/// document may name, and more than there are.
pub const DECLINED: usize = 1_000;
/// Preferences of which an owner may have said where he says them: more than there are.
pub const OWNER_PLACES: usize = 64;
/// Decisions about its disk that a host tells of: the last ones. As many and as long ones as may be take less
/// than 32 KiB.
pub const DISK_DECISIONS: usize = 20;
/// Bytes of the name of a file or a job in one of these.
pub const DISK_NAME_BYTES: usize = 255;
/// Bytes of its rule.
pub const DISK_RULE_BYTES: usize = 32;
/// Bytes of its reason.
pub const DISK_WHY_BYTES: usize = 600;
/// Programs, and exclusions of devices, in one list of an owner's word: as many as a document and two files
/// of the host may name together.
pub const LISTED: usize = 300;
/// Layers of confinement that may be required: more than there are.
pub const LAYERS: usize = 32;

/// How long a link may be silent on which a heartbeat comes so often, until the other side is taken for gone:
/// four heartbeats, but no longer than a minute where that are two at least.
#[must_use]
pub fn silence(heartbeat: Duration) -> Duration {
    let minute = Duration::from_secs(60);
    heartbeat.saturating_mul(4).min(minute).max(heartbeat.saturating_mul(2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r6_3_who_is_gone_is_missed_within_a_minute_unless_heartbeats_are_further_apart_than_half_of_one() {
        let secs = Duration::from_secs;
        let table = [(1, 4), (10, 40), (15, 60), (20, 60), (30, 60), (40, 80), (600, 1_200)];
        for (heartbeat, expected) in table {
            assert_eq!(silence(secs(heartbeat)), secs(expected), "{heartbeat}");
        }
    }
}
