//! Whether memory is short: what the kernel says could be had without putting anything out to disk.

use std::fs;
use std::path::Path;

/// It is short where less than one part in so many could be had.
const PARTS: u64 = 10;

/// Whether it is. `meminfo` is `/proc/meminfo`; where it does not say, memory is not short.
pub(super) fn is_short(meminfo: &Path) -> bool {
    let text = fs::read_to_string(meminfo).unwrap_or_default();
    let kibibytes = |name: &str| -> Option<u64> {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        line.split_whitespace().next()?.parse().ok()
    };
    let (all, free) = (kibibytes("MemTotal"), kibibytes("MemAvailable"));
    all.zip(free).is_some_and(|(all, free)| free.saturating_mul(PARTS) < all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r6_4_memory_is_short_when_hardly_any_could_be_had() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("meminfo");
        for (text, expected) in [
            ("MemTotal:       1000 kB\nMemFree:           1 kB\nMemAvailable:    100 kB\n", false),
            ("MemTotal:       1000 kB\nMemFree:           1 kB\nMemAvailable:     99 kB\n", true),
            ("MemTotal:       1000 kB\n", false),
            ("", false),
        ] {
            fs::write(&file, text).unwrap();
            assert_eq!(is_short(&file), expected, "{text}");
        }
        assert!(!is_short(Path::new("/nowhere")));
    }
}
