//! Escapes. The reader knows seven of them and leaves every other `&` as it stands; the writer needs four.

use std::borrow::Cow;

/// Turns escapes back into characters: `&lt; &gt; &quot; &apos; &amp; &#xA; &#xD;` and `&#N;` with N below
/// 256, which stands for one byte of UTF-8.
pub fn unescape(raw: &[u8]) -> Cow<'_, str> {
    if !raw.contains(&b'&') {
        return String::from_utf8_lossy(raw);
    }
    let mut bytes = Vec::with_capacity(raw.len());
    let mut rest = raw;
    while let Some(at) = rest.iter().position(|&byte| byte == b'&') {
        bytes.extend_from_slice(&rest[..at]);
        let (byte, len) = escape_at(&rest[at..]);
        bytes.push(byte);
        rest = &rest[at + len..];
    }
    bytes.extend_from_slice(rest);
    match String::from_utf8(bytes) {
        Ok(text) => Cow::Owned(text),
        Err(error) => Cow::Owned(String::from_utf8_lossy(error.as_bytes()).into_owned()),
    }
}

/// The byte that the escape at the start of `text` stands for, and the escape's length.
fn escape_at(text: &[u8]) -> (u8, usize) {
    const NAMED: [(&[u8], u8); 7] = [
        (b"&lt;", b'<'),
        (b"&gt;", b'>'),
        (b"&quot;", b'"'),
        (b"&apos;", b'\''),
        (b"&amp;", b'&'),
        (b"&#xA;", b'\n'),
        (b"&#xD;", b'\r'),
    ];
    if let Some((name, byte)) = NAMED.iter().find(|(name, _)| text.starts_with(name)) {
        return (*byte, name.len());
    }
    numbered(text).unwrap_or((b'&', 1))
}

/// `&#N;` with a decimal N below 256.
fn numbered(text: &[u8]) -> Option<(u8, usize)> {
    let digits = text.strip_prefix(b"&#")?;
    let len = digits.iter().take(4).position(|&byte| byte == b';')?;
    let number = std::str::from_utf8(&digits[..len]).ok()?;
    if !number.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    Some((number.parse().ok()?, len + 3))
}

/// Appends `text`, escaped so that every BOINC reader gives it back: `<`, `&`, line ends, and each byte
/// above 127. Other control characters than tabs are dropped: a NUL ends a BOINC reader's input, and no
/// reader needs the rest.
pub fn escape(text: &str, out: &mut String) {
    out.reserve(text.len());
    let plain = |byte: u8| ((0x20..0x7f).contains(&byte) && byte != b'<' && byte != b'&') || byte == b'\t';
    if text.bytes().all(plain) {
        out.push_str(text);
        return;
    }
    for byte in text.bytes() {
        match byte {
            b'<' => out.push_str("&lt;"),
            b'&' => out.push_str("&amp;"),
            b'\n' => out.push_str("&#xA;"),
            b'\r' => out.push_str("&#xD;"),
            0x80.. => {
                out.push_str("&#");
                out.push_str(&byte.to_string());
                out.push(';');
            }
            byte if plain(byte) => out.push(char::from(byte)),
            _ => (),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn escaped(text: &str) -> String {
        let mut out = String::new();
        escape(text, &mut out);
        out
    }

    #[test]
    fn a_letter_beyond_ascii_becomes_one_escape_per_byte() {
        assert_eq!(escaped("é"), "&#195;&#169;");
        assert_eq!(unescape(b"&#195;&#169;"), "é");
    }

    #[test]
    fn what_is_no_escape_stays_as_it_is() {
        for text in ["a&b", "&", "&#;", "&#256;", "&#xB;", "&nbsp;", "?a=1&auth=2_7", "&#1234;", "&#+1;"] {
            assert_eq!(unescape(text.as_bytes()), text);
        }
        assert_eq!(unescape(b"&amp;lt;"), "&lt;");
    }

    proptest! {
        #[test]
        fn escaped_text_reads_back(text in "[^\\x00-\\x08\\x0b\\x0c\\x0e-\\x1f\\x7f]*") {
            let written = escaped(&text);
            prop_assert!(written.is_ascii() && !written.contains('\n'));
            prop_assert_eq!(unescape(written.as_bytes()).into_owned(), text);
        }
    }
}
