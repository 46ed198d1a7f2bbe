//! Bodies that were compressed for the way (`Content-Encoding`).
//!
//! Model: where the stock client says that it takes compressed answers, so does this one, of the two kinds that every
//! server has. A body is expanded as it comes, in pieces so small that no bomb makes much of one; whoever reads it counts
//! what it has become. What was not asked for compressed is taken as it is, for a file may be compressed itself.
//!
//! A part of a file that is asked for with a range is never asked for compressed: a range counts the bytes that cross the
//! wire, and the part that is here was expanded. The stock client asks all the same, and spoils such a file.

use std::io::{self, Write};

use flate2::write::{DeflateDecoder, MultiGzDecoder, ZlibDecoder};
use reqwest::header::{CONTENT_ENCODING, HeaderMap};

/// What is said to be taken: the order of the stock client, without what it takes besides where it was built with more.
pub(super) const ACCEPTED: &str = "deflate, gzip";

/// So many bytes are expanded at a time; each becomes at most a thousand.
pub(super) const PIECE: usize = 4096;

/// Expands a body.
pub(super) enum Decoder {
    Plain,
    Gzip(MultiGzDecoder<Vec<u8>>),
    /// Of `deflate`; what it really is, its first byte tells.
    Unknown,
    Zlib(ZlibDecoder<Vec<u8>>),
    /// Some servers leave the frame away.
    Raw(DeflateDecoder<Vec<u8>>),
}

impl Decoder {
    /// For an answer with these headers.
    ///
    /// # Errors
    /// In words, for an encoding that was not asked for.
    pub(super) fn of(headers: &HeaderMap) -> Result<Self, String> {
        let Some(encoding) = headers.get(CONTENT_ENCODING) else { return Ok(Self::Plain) };
        match encoding.to_str().unwrap_or_default().trim().to_ascii_lowercase().as_str() {
            "" | "identity" => Ok(Self::Plain),
            "gzip" | "x-gzip" => Ok(Self::Gzip(MultiGzDecoder::new(Vec::new()))),
            "deflate" => Ok(Self::Unknown),
            other => Err(format!("the answer is encoded as {other:?}, and only {ACCEPTED} were asked for")),
        }
    }

    /// Expands the next at most [`PIECE`] bytes.
    pub(super) fn expand(&mut self, piece: &[u8]) -> io::Result<Vec<u8>> {
        if let (Self::Unknown, Some(first)) = (&self, piece.first()) {
            let is_zlib = first & 0x0f == 8 && first >> 4 <= 7;
            *self = match is_zlib {
                true => Self::Zlib(ZlibDecoder::new(Vec::new())),
                false => Self::Raw(DeflateDecoder::new(Vec::new())),
            };
        }
        match self {
            Self::Plain | Self::Unknown => Ok(piece.to_vec()),
            Self::Gzip(decoder) => {
                decoder.write_all(piece)?;
                Ok(std::mem::take(decoder.get_mut()))
            }
            Self::Zlib(decoder) => {
                decoder.write_all(piece)?;
                Ok(std::mem::take(decoder.get_mut()))
            }
            Self::Raw(decoder) => {
                decoder.write_all(piece)?;
                Ok(std::mem::take(decoder.get_mut()))
            }
        }
    }

    /// What is left at the end.
    pub(super) fn finish(&mut self) -> io::Result<Vec<u8>> {
        match self {
            Self::Plain | Self::Unknown => Ok(Vec::new()),
            Self::Gzip(decoder) => {
                decoder.try_finish()?;
                Ok(std::mem::take(decoder.get_mut()))
            }
            Self::Zlib(decoder) => {
                decoder.try_finish()?;
                Ok(std::mem::take(decoder.get_mut()))
            }
            Self::Raw(decoder) => {
                decoder.try_finish()?;
                Ok(std::mem::take(decoder.get_mut()))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use flate2::Compression;
    use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};

    use super::*;

    fn expanded(encoding: &str, packed: &[u8]) -> io::Result<Vec<u8>> {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_ENCODING, encoding.parse().unwrap());
        let mut decoder = Decoder::of(&headers).unwrap();
        let mut plain = Vec::new();
        for piece in packed.chunks(100) {
            plain.extend(decoder.expand(piece)?);
        }
        plain.extend(decoder.finish()?);
        Ok(plain)
    }

    #[test]
    fn gzip_and_both_kinds_of_deflate_are_expanded() {
        let text: Vec<u8> = (0..50_000_u32).map(|n| (n % 7) as u8).collect();
        let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
        let mut zlib = ZlibEncoder::new(Vec::new(), Compression::default());
        let mut raw = DeflateEncoder::new(Vec::new(), Compression::default());
        for encoder in [&mut gzip as &mut dyn Write, &mut zlib, &mut raw] {
            encoder.write_all(&text).unwrap();
        }
        assert_eq!(expanded("GZIP", &gzip.finish().unwrap()).unwrap(), text);
        assert_eq!(expanded("deflate", &zlib.finish().unwrap()).unwrap(), text);
        assert_eq!(expanded("deflate", &raw.finish().unwrap()).unwrap(), text);
        assert_eq!(expanded("identity", b"plain").unwrap(), b"plain");
    }

    #[test]
    fn what_is_no_gzip_or_cut_short_is_an_error() {
        let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
        gzip.write_all(b"0123456789").unwrap();
        let packed = gzip.finish().unwrap();
        assert!(expanded("gzip", &packed[..packed.len() - 3]).is_err());
        assert!(expanded("gzip", b"hello, this is no gzip").is_err());
        assert!(expanded("deflate", b"\xff\xff\xff\xff").is_err());
    }

    #[test]
    fn an_encoding_that_was_not_asked_for_is_refused() {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_ENCODING, "br".parse().unwrap());
        assert!(Decoder::of(&headers).is_err());
    }
}
