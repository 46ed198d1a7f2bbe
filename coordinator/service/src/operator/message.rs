//! Why an operator does something, said beside his request: for calls whose requests have no place for it.

use std::fmt::Write as _;

use tonic::Request;

/// Metadata key under which a tool says why, for the audit log: UTF-8, each byte but letters, digits and
/// `-._~ ` written as `%` and two hexadecimal digits. What a request itself says goes before.
pub const MESSAGE: &str = "fallow-message";
/// Bytes of such a message that are kept.
pub const MESSAGE_BYTES: usize = 1_000;

/// A message as it stands under [`MESSAGE`].
#[must_use]
pub fn encoded(message: &str) -> String {
    let mut text = String::with_capacity(message.len());
    for byte in message.bytes() {
        match byte {
            b'-' | b'.' | b'_' | b'~' | b' ' => text.push(char::from(byte)),
            byte if byte.is_ascii_alphanumeric() => text.push(char::from(byte)),
            byte => {
                let _ = write!(text, "%{byte:02X}");
            }
        }
    }
    text
}

/// What was said beside a request; empty for nothing. What is no message is taken for what it looks like: it
/// keeps nobody from doing what he may do.
pub(super) fn of<T>(request: &Request<T>) -> String {
    let text = request.metadata().get(MESSAGE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let bytes = text.as_bytes().get(..text.len().min(3 * MESSAGE_BYTES)).unwrap_or_default();
    fallow_domain::printable::line(&String::from_utf8_lossy(&decoded(bytes)), MESSAGE_BYTES)
}

fn decoded(mut text: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    while let Some((first, rest)) = text.split_first() {
        let digits = rest.get(..2).filter(|_| *first == b'%');
        let byte =
            digits.and_then(|digits| fallow_domain::from_hex(std::str::from_utf8(digits).ok()?)?.pop());
        let (byte, rest) = match byte {
            Some(byte) => (byte, rest.get(2..).unwrap_or_default()),
            None => (*first, rest),
        };
        bytes.push(byte);
        text = rest;
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(value: &str) -> String {
        let mut request = Request::new(());
        request.metadata_mut().insert(MESSAGE, value.parse().unwrap());
        of(&request)
    }

    #[test]
    fn r6_10_a_message_beside_a_request_is_heard_as_it_was_said_within_its_bound() {
        for said in ["", "stolen", "kvůli výuce: 100 %", "a%41b", "\u{1f600}"] {
            let encoded = encoded(said);
            assert!(encoded.bytes().all(|byte| byte.is_ascii_graphic() || byte == b' '), "{encoded}");
            assert_eq!(heard(&encoded), said);
        }
        assert_eq!(of(&Request::new(())), "");
        // Nothing that somebody could write into a table or a terminal by it.
        assert_eq!(heard("a%0Ab%1B"), "a\u{fffd}b\u{fffd}");
        assert_eq!(heard("100%, %zz %4"), "100%, %zz %4");
        assert!(heard(&encoded(&"ů".repeat(5_000))).len() <= MESSAGE_BYTES + 3);
    }
}
