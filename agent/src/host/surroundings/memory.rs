//! Whether memory is short: what the kernel says could be had without putting anything out to disk.

use std::fs;
use std::path::Path;

/// It is short where less than one part in so many could be had.
const PARTS: u64 = 10;
/// Likewise while programs wait for memory. They also do where there is plenty: in a control group that has
/// come to its own limit, or while what was read of files comes back from the disk.
const PARTS_PRESSED: u64 = 4;

/// Whether it is. `meminfo` is `/proc/meminfo`; where it does not say, memory is not short. `is_pressed`:
/// the kernel has just told that programs wait for memory.
pub(super) fn is_short(meminfo: &Path, is_pressed: bool) -> bool {
    let parts = if is_pressed { PARTS_PRESSED } else { PARTS };
    let text = fs::read_to_string(meminfo).unwrap_or_default();
    let kibibytes = |name: &str| -> Option<u64> {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        line.split_whitespace().next()?.parse().ok()
    };
    let (all, free) = (kibibytes("MemTotal"), kibibytes("MemAvailable"));
    all.zip(free).is_some_and(|(all, free)| free.saturating_mul(parts) < all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r6_4_memory_is_short_when_hardly_any_could_be_had() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("meminfo");
        for (text, expected, pressed) in [
            ("MemTotal:       1000 kB\nMemFree:           1 kB\nMemAvailable:    250 kB\n", false, false),
            ("MemTotal:       1000 kB\nMemFree:           1 kB\nMemAvailable:    249 kB\n", false, true),
            ("MemTotal:       1000 kB\nMemFree:           1 kB\nMemAvailable:    100 kB\n", false, true),
            ("MemTotal:       1000 kB\nMemFree:           1 kB\nMemAvailable:     99 kB\n", true, true),
            ("MemTotal:       1000 kB\n", false, false),
            ("", false, false),
        ] {
            fs::write(&file, text).unwrap();
            assert_eq!((is_short(&file, false), is_short(&file, true)), (expected, pressed), "{text}");
        }
        assert!(!is_short(Path::new("/nowhere"), true));
    }
}
