//! Speeds of transfer, as people write them: `10 Mbit/s`. They read back equal.

use fallow_config::{BadAmount, amount, not_negative, write_amount};
use fallow_domain::amount::Units;

use super::super::Bandwidth;

/// Speeds of transfer, in bytes per second.
const SPEEDS: Units = &[
    ("GB/s", 1e9),
    ("MB/s", 1e6),
    ("kB/s", 1e3),
    ("KB/s", 1e3),
    ("B/s", 1.0),
    ("Gbit/s", 125e6),
    ("Mbit/s", 125e3),
    ("kbit/s", 125.0),
];

/// Reads a speed of transfer such as `10 MB/s`.
pub(crate) fn parse_bandwidth(text: &str) -> Result<Bandwidth, BadAmount> {
    let bytes = not_negative(amount(text, SPEEDS, "a transfer speed")?, "a transfer speed")?;
    Bandwidth::from_bytes_per_second(bytes)
        .ok_or_else(|| BadAmount { problem: "nothing would ever be transferred".into(), suggestion: None })
}

/// Writes a speed of transfer so that it reads back equal.
pub(crate) fn write_bandwidth(bandwidth: Bandwidth) -> String {
    let bytes = i64::try_from(bandwidth.bytes_per_second()).unwrap_or(i64::MAX);
    write_amount(bytes, SPEEDS, &["GB/s", "MB/s", "kB/s"], "B/s")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_speed_is_in_bits_or_bytes_and_a_bad_one_says_what_is_wrong_with_it() {
        assert_eq!(parse_bandwidth("8 Mbit/s"), parse_bandwidth("1 MB/s"));
        for (text, suggestion) in [("2 MiB/s", None), ("2 Mb/s", None), ("2 mbit/s", Some("2 Mbit/s"))] {
            assert_eq!(parse_bandwidth(text).unwrap_err().suggestion.as_deref(), suggestion, "{text}");
        }
        assert_eq!(parse_bandwidth("0 B/s").unwrap_err().problem, "nothing would ever be transferred");
    }

    proptest! {
        #[test]
        fn no_text_makes_a_speed_panic(text in "\\PC{0,12}") {
            let _ = parse_bandwidth(&text);
        }
    }
}
