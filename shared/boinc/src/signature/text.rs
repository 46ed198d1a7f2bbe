//! Hexadecimal in lines of 64 digits, closed by a dot.

/// Appends `bytes` in lines.
pub(super) fn put_lines(bytes: &[u8], out: &mut String) {
    for line in bytes.chunks(32) {
        out.push_str(&fallow_domain::hex(line));
        out.push('\n');
    }
}

/// The bytes written in hexadecimal in `text`, up to a dot or the end. White space does not count. Nothing if
/// anything else stands there, if there is half a byte, or more than `max` bytes.
pub(super) fn take_hex(text: &str, max: usize) -> Option<Vec<u8>> {
    let digits = text.chars().take_while(|c| *c != '.').filter(|c| !c.is_ascii_whitespace());
    // No more than tell that there are too many.
    let digits: String = digits.take(2 * max + 1).collect();
    fallow_domain::from_hex(&digits).filter(|bytes| bytes.len() <= max)
}
