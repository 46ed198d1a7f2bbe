//! Bodies that were compressed for the way (`Content-Encoding`), expanded within bounds (R6.10).
//!
//! Model: where the stock client says that it takes compressed answers, so does this one, of the two kinds
//! that every server has. A body is expanded as it comes, in pieces so small that no bomb makes much of one;
//! whoever reads it counts what it has become. What was not asked for compressed is taken as it is, for a
//! file may be compressed itself.
//!
//! As in libcurl, a body without a byte is an empty one, and what follows a complete one is an error. More
//! than libcurl does: a body that stops in the middle is an error, gzip in several members is taken, as its
//! format has it, and a body that goes on and on without anything in it is given up.
//!
//! A part of a file that is asked for with a range is never asked for compressed: a range counts the bytes
//! that cross the wire, and the part that is here was expanded. The stock client asks all the same, and
//! spoils such a file.

use std::io::{self, Write};

use flate2::write::MultiGzDecoder;
use flate2::{Decompress, FlushDecompress, Status};
use reqwest::header::{CONTENT_ENCODING, HeaderMap};

/// What is said to be taken: the order of the stock client, without what it takes besides where it was built
/// with more.
pub(super) const ACCEPTED: &str = "deflate, gzip";

/// So many bytes are expanded at a time; each becomes at most a thousand.
pub(super) const PIECE: usize = 4096;

/// A body may cross the wire with so many bytes, and twice as many as it becomes. Compression hardly ever
/// makes anything longer; but a stream may go on for ever and become nothing, and bounds on what it becomes
/// would not end it.
const HOLLOW_MAX: u64 = 64 << 10;

/// What may follow a body without a frame: what is left of a frame that somebody did not understand (libcurl
/// likewise).
const RAW_TRAILER_MAX: usize = 4;

/// Expands a body.
pub(super) struct Decoder {
    kind: Kind,
    /// Bytes that came.
    packed: u64,
    /// Bytes that they became.
    plain: u64,
}

enum Kind {
    Plain,
    Gzip(MultiGzDecoder<Vec<u8>>),
    /// Of `deflate`; what it really is, its first byte tells.
    Unknown,
    Deflate(Inflate),
}

impl Decoder {
    /// For an answer that is taken as it is.
    pub(super) fn plain() -> Self {
        Kind::Plain.into()
    }

    /// For an answer with these headers.
    ///
    /// # Errors
    /// In words, for an encoding that was not asked for.
    pub(super) fn of(headers: &HeaderMap) -> Result<Self, String> {
        let Some(encoding) = headers.get(CONTENT_ENCODING) else { return Ok(Self::plain()) };
        match encoding.to_str().unwrap_or_default().trim().to_ascii_lowercase().as_str() {
            "" | "identity" => Ok(Self::plain()),
            "gzip" | "x-gzip" => Ok(Kind::Gzip(MultiGzDecoder::new(Vec::new())).into()),
            "deflate" => Ok(Kind::Unknown.into()),
            other => Err(format!("the answer is encoded as {other:?}, and only {ACCEPTED} were asked for")),
        }
    }

    /// True if bytes stay what they are.
    pub(super) fn is_plain(&self) -> bool {
        matches!(self.kind, Kind::Plain)
    }

    /// Expands the next at most [`PIECE`] bytes.
    ///
    /// # Errors
    /// When the body is not what it should be, or goes on with nothing in it.
    pub(super) fn expand(&mut self, piece: &[u8]) -> io::Result<Vec<u8>> {
        let plain = self.kind.expand(piece)?;
        self.packed = self.packed.saturating_add(piece.len() as u64);
        self.plain = self.plain.saturating_add(plain.len() as u64);
        if !self.is_plain() && self.packed > self.plain.saturating_mul(2).saturating_add(HOLLOW_MAX) {
            let what = format!("{} bytes came, and only {} were in them", self.packed, self.plain);
            return Err(io::Error::new(io::ErrorKind::InvalidData, what));
        }
        Ok(plain)
    }

    /// What is left at the end.
    ///
    /// # Errors
    /// When more should have come.
    pub(super) fn finish(&mut self) -> io::Result<Vec<u8>> {
        match &mut self.kind {
            Kind::Gzip(decoder) if self.packed > 0 => {
                decoder.try_finish()?;
                Ok(std::mem::take(decoder.get_mut()))
            }
            Kind::Deflate(inflate) if !inflate.is_complete => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(Vec::new()),
        }
    }
}

impl From<Kind> for Decoder {
    fn from(kind: Kind) -> Self {
        Self { kind, packed: 0, plain: 0 }
    }
}

impl Kind {
    fn expand(&mut self, piece: &[u8]) -> io::Result<Vec<u8>> {
        if let (Self::Unknown, Some(first)) = (&self, piece.first()) {
            // Some servers leave the frame away.
            let has_frame = first & 0x0f == 8 && first >> 4 <= 7;
            *self = Self::Deflate(Inflate::new(has_frame));
        }
        match self {
            Self::Plain | Self::Unknown => Ok(piece.to_vec()),
            Self::Gzip(decoder) => {
                decoder.write_all(piece)?;
                Ok(std::mem::take(decoder.get_mut()))
            }
            Self::Deflate(inflate) => inflate.expand(piece),
        }
    }
}

/// A stream of `deflate`, with the frame of zlib or without.
struct Inflate {
    stream: Decompress,
    is_complete: bool,
    /// How many bytes may still follow.
    trailer: usize,
}

impl Inflate {
    fn new(has_frame: bool) -> Self {
        let trailer = if has_frame { 0 } else { RAW_TRAILER_MAX };
        Self { stream: Decompress::new(has_frame), is_complete: false, trailer }
    }

    fn expand(&mut self, mut piece: &[u8]) -> io::Result<Vec<u8>> {
        let mut plain = Vec::new();
        while !self.is_complete {
            plain.reserve(PIECE);
            let (taken, made) = (self.stream.total_in(), plain.len());
            let status = self.stream.decompress_vec(piece, &mut plain, FlushDecompress::None)?;
            let taken = usize::try_from(self.stream.total_in() - taken).unwrap_or(piece.len());
            piece = piece.get(taken..).unwrap_or_default();
            self.is_complete = status == Status::StreamEnd;
            if taken == 0 && plain.len() == made {
                break;
            }
        }
        if piece.len() > self.trailer {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "more follows where it should be over"));
        }
        self.trailer -= piece.len();
        Ok(plain)
    }
}

#[cfg(test)]
mod tests {
    use flate2::Compression;
    use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};

    use super::*;

    fn gzip(plain: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(plain).unwrap();
        encoder.finish().unwrap()
    }

    fn deflate(plain: &[u8], has_frame: bool) -> Vec<u8> {
        let mut zlib = ZlibEncoder::new(Vec::new(), Compression::default());
        let mut raw = DeflateEncoder::new(Vec::new(), Compression::default());
        zlib.write_all(plain).unwrap();
        raw.write_all(plain).unwrap();
        if has_frame { zlib.finish().unwrap() } else { raw.finish().unwrap() }
    }

    fn expanded(encoding: &str, packed: &[u8]) -> io::Result<Vec<u8>> {
        // However it comes in pieces, the same comes of it.
        let [one, other] = [1, 100].map(|size| expanded_by(size, encoding, packed));
        assert_eq!(one.as_ref().ok(), other.as_ref().ok(), "{encoding}");
        other
    }

    fn expanded_by(size: usize, encoding: &str, packed: &[u8]) -> io::Result<Vec<u8>> {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_ENCODING, encoding.parse().unwrap());
        let mut decoder = Decoder::of(&headers).unwrap();
        let mut plain = Vec::new();
        for piece in packed.chunks(size) {
            plain.extend(decoder.expand(piece)?);
        }
        plain.extend(decoder.finish()?);
        Ok(plain)
    }

    #[test]
    fn gzip_and_both_kinds_of_deflate_are_expanded() {
        let text: Vec<u8> = (0..50_000_u32).map(|n| (n % 7) as u8).collect();
        assert_eq!(expanded("GZIP", &gzip(&text)).unwrap(), text);
        assert_eq!(expanded("deflate", &deflate(&text, true)).unwrap(), text);
        assert_eq!(expanded("deflate", &deflate(&text, false)).unwrap(), text);
        assert_eq!(expanded("identity", b"plain").unwrap(), b"plain");
        let members = [gzip(&text[..10_000]), gzip(&text[10_000..])].concat();
        assert_eq!(expanded("gzip", &members).unwrap(), text);
    }

    #[test]
    fn what_is_no_gzip_or_cut_short_is_an_error() {
        for (encoding, packed) in [
            ("gzip", gzip(b"0123456789")),
            ("deflate", deflate(b"0123456789", true)),
            ("deflate", deflate(b"0123456789", false)),
        ] {
            for len in 1..packed.len() {
                assert!(expanded(encoding, &packed[..len]).is_err(), "{len} bytes of {encoding}");
            }
        }
        assert!(expanded("gzip", b"hello, this is no gzip").is_err());
        assert!(expanded("deflate", b"\xff\xff\xff\xff").is_err());
    }

    #[test]
    fn what_follows_a_complete_body_is_an_error_and_no_body_at_all_is_an_empty_one() {
        let followed = |mut packed: Vec<u8>, by: usize| {
            packed.resize(packed.len() + by, b'x');
            packed
        };
        for by in [1, 4, 5, 12, 200] {
            assert!(expanded("gzip", &followed(gzip(b"text"), by)).is_err(), "{by}");
            assert!(expanded("deflate", &followed(deflate(b"text", true), by)).is_err(), "{by}");
            // What may be left of a frame is passed over, as in libcurl.
            assert_eq!(expanded("deflate", &followed(deflate(b"text", false), by)).is_ok(), by <= 4, "{by}");
        }
        for encoding in ["gzip", "deflate", "identity"] {
            assert_eq!(expanded(encoding, b"").unwrap(), b"", "{encoding}");
        }
    }

    #[test]
    fn a_body_that_goes_on_with_nothing_in_it_is_given_up() {
        let hollow = gzip(b"").repeat(10_000);
        let error = expanded("gzip", &hollow).unwrap_err().to_string();
        assert!(error.contains("only 0 were in them"), "{error}");
        // Stored blocks without a byte.
        let hollow = [&[0x78, 0x9c][..], &[0, 0, 0, 0xff, 0xff].repeat(40_000)].concat();
        assert!(expanded("deflate", &hollow).unwrap_err().to_string().contains("only 0 were in them"));
        // What cannot be made shorter is not hollow.
        let mut state = 1_u32;
        let noise = std::iter::repeat_with(|| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        });
        let noise: Vec<u8> = noise.take(300_000).collect();
        assert_eq!(expanded_by(PIECE, "gzip", &gzip(&noise)).unwrap(), noise);
        assert_eq!(expanded_by(PIECE, "deflate", &deflate(&noise, false)).unwrap(), noise);
    }

    #[test]
    fn an_encoding_that_was_not_asked_for_is_refused() {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_ENCODING, "br".parse().unwrap());
        assert!(Decoder::of(&headers).is_err());
    }
}
