//! Checkpoints that are whole or not there.
//!
//! Two halves, each useful alone. [`write_atomically`] makes sure that a file holds either its old or its new
//! content, whatever happens to the process or the machine. [`seal`] and [`unseal`] wrap a text so that one
//! of another program, another version, or with damage in it is recognised; then an application says so and
//! starts over, which costs time but never correctness.

use std::io;
use std::path::Path;

/// Why a checkpoint is not used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unusable {
    /// Another program or another version of this one wrote it.
    #[error("the checkpoint is not of the kind {expected:?}")]
    OtherKind {
        /// What it should have been.
        expected: String,
    },
    /// It is torn or damaged.
    #[error("the checkpoint is damaged: its checksum does not fit")]
    Damaged,
    /// It is whole, but of another job, or says what cannot be.
    #[error("the checkpoint does not fit this job: {0}")]
    Unfit(&'static str),
}

/// Replaces a file by one with this content: written beside it, flushed to the disk, then renamed.
///
/// # Errors
/// When the directory or the disk refuses; the old content is then still there.
pub fn write_atomically(path: &Path, content: &[u8]) -> io::Result<()> {
    fallow_daemon::file::write_whole(path, content, 0o666)
}

/// Wraps a text: a first line with its kind, a last line with a checksum. `kind` names the program and the
/// version of its format, such as `mersenne 1`.
pub fn seal(kind: &str, body: &str) -> String {
    let text = format!("{kind}\n{body}\n");
    let checksum = checksum(text.as_bytes());
    format!("{text}{checksum:016x}\n")
}

/// The text in a wrapping of this kind.
///
/// # Errors
/// [`Unusable`] when it is of another kind or damaged.
pub fn unseal<'a>(kind: &str, content: &'a str) -> Result<&'a str, Unusable> {
    let rest = content.strip_prefix(kind).and_then(|rest| rest.strip_prefix('\n'));
    let rest = rest.ok_or_else(|| Unusable::OtherKind { expected: kind.to_owned() })?;
    let (body, last) =
        rest.strip_suffix('\n').and_then(|rest| rest.rsplit_once('\n')).ok_or(Unusable::Damaged)?;
    if seal(kind, body) == content && last.len() == 16 { Ok(body) } else { Err(Unusable::Damaged) }
}

/// FNV-1a of 64 bits: recognises torn writes and flipped bits, and nothing that somebody means to hide.
pub fn checksum(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sealed_text_comes_back_and_nothing_less_does() {
        let sealed = seal("mersenne 1", "range 2 100\nfound 2 3 5");
        assert_eq!(unseal("mersenne 1", &sealed), Ok("range 2 100\nfound 2 3 5"));
        for len in 0..sealed.len() {
            assert!(unseal("mersenne 1", &sealed[..len]).is_err(), "{len}");
        }
        assert_eq!(unseal("mersenne 1", &sealed.replace("100", "101")), Err(Unusable::Damaged));
        let expected = "mersenne 2".to_owned();
        assert_eq!(unseal("mersenne 2", &sealed), Err(Unusable::OtherKind { expected }));
    }

    #[test]
    fn the_checksum_is_the_published_one() {
        assert_eq!(checksum(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(checksum(b"a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(checksum(b"foobar"), 0x8594_4171_f739_67e8);
    }
}
