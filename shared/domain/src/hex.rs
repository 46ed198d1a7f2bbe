//! Bytes as people and files write them.

/// Two lower-case hexadecimal digits for each byte.
pub fn hex(bytes: &[u8]) -> String {
    let digit = |half: u8| char::from_digit(u32::from(half), 16).unwrap_or_default();
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

/// The bytes of a text that [`hex`] could have written, in digits of either case; none if anything else
/// stands there.
pub fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digit = |c: u8| u8::try_from(char::from(c).to_digit(16)?).ok();
    let bytes = text.as_bytes().chunks(2).map(|pair| match pair {
        [high, low] => Some(digit(*high)? << 4 | digit(*low)?),
        _ => None,
    });
    bytes.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_has_two_digits() {
        assert_eq!(hex(&[0, 1, 0x9a, 0xff]), "00019aff");
        assert_eq!(hex(&[]), "");
    }

    #[test]
    fn what_was_written_is_read_and_nothing_else() {
        assert_eq!(from_hex("00019aFf"), Some(vec![0, 1, 0x9a, 0xff]));
        assert_eq!(from_hex(""), Some(vec![]));
        for bad in ["0", "+1", "0g", "\u{e9}", " 0", "0001 ", "00\u{ff10}"] {
            assert_eq!(from_hex(bad), None, "{bad:?}");
        }
    }
}
