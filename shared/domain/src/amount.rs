//! Amounts as people write them: a number and its unit, such as `3.67 h` or `64MiB`.
//!
//! What may be written where (parts of a unit, no unit at all, negative amounts) is for each reader to say.

/// Names of a unit, and how much it is in the smallest. The first name of a value is how it is written.
pub type Units = &'static [(&'static str, f64)];

/// Times, in microseconds.
pub const TIMES: Units = &[
    ("days", 86_400e6),
    ("day", 86_400e6),
    ("d", 86_400e6),
    ("weeks", 604_800e6),
    ("week", 604_800e6),
    ("h", 3_600e6),
    ("hours", 3_600e6),
    ("hour", 3_600e6),
    ("min", 60e6),
    ("minutes", 60e6),
    ("minute", 60e6),
    ("m", 60e6),
    ("s", 1e6),
    ("sec", 1e6),
    ("seconds", 1e6),
    ("second", 1e6),
    ("ms", 1e3),
    ("us", 1.0),
];

/// Sizes, in bytes.
pub const SIZES: Units = &[
    ("TB", 1e12),
    ("GB", 1e9),
    ("MB", 1e6),
    ("kB", 1e3),
    ("KB", 1e3),
    ("B", 1.0),
    ("TiB", 1_099_511_627_776.0),
    ("GiB", 1_073_741_824.0),
    ("MiB", 1_048_576.0),
    ("KiB", 1024.0),
    ("kiB", 1024.0),
];

/// How much a unit of this name is in the smallest.
pub fn factor(units: Units, name: &str) -> Option<f64> {
    units.iter().find(|(unit, _)| *unit == name).map(|(_, factor)| *factor)
}

/// Splits an amount into its number and its unit, neither of them looked at.
pub fn split(text: &str) -> (&str, &str) {
    let text = text.trim();
    // An exponent is part of the number; the `e` of no unit stands behind a digit and before one.
    let bytes = text.as_bytes();
    let digit = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_digit);
    let part = |at: usize| match bytes[at] {
        b'0'..=b'9' | b'.' | b'_' => true,
        b'+' | b'-' => at == 0 || matches!(bytes[at - 1], b'e' | b'E'),
        b'e' | b'E' => {
            at > 0
                && (digit(at - 1) || bytes[at - 1] == b'.')
                && (digit(at + 1) || (matches!(bytes.get(at + 1), Some(b'+' | b'-')) && digit(at + 2)))
        }
        _ => false,
    };
    let end = (0..bytes.len()).find(|&at| !part(at)).unwrap_or(bytes.len());
    (&text[..end], text[end..].trim_start())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exponent_is_part_of_the_number_and_blanks_are_of_neither() {
        for (text, parts) in [
            (" 3.67 h ", ("3.67", "h")),
            ("64MiB", ("64", "MiB")),
            ("1e3s", ("1e3", "s")),
            ("-1.5 h", ("-1.5", "h")),
            ("1_000 s", ("1_000", "s")),
            ("5000", ("5000", "")),
            ("50%", ("50", "%")),
            ("10 Mbit/s", ("10", "Mbit/s")),
            ("soon", ("", "soon")),
            ("", ("", "")),
        ] {
            assert_eq!(split(text), parts, "{text:?}");
        }
        assert_eq!(factor(SIZES, "MiB"), Some(1_048_576.0));
        assert_eq!(factor(TIMES, "parsec"), None);
    }
}
