//! Bytes as people and files write them.

/// Two lower-case hexadecimal digits for each byte.
pub fn hex(bytes: &[u8]) -> String {
    let digit = |half: u8| char::from_digit(u32::from(half), 16).unwrap_or_default();
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_has_two_digits() {
        assert_eq!(hex(&[0, 1, 0x9a, 0xff]), "00019aff");
        assert_eq!(hex(&[]), "");
    }
}
