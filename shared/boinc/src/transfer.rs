//! Uploads: a request's head, which is lines of text before the file's bytes, and the reply.
//!
//! BOINC's upload handler reads lines and not XML: each element of the head stands on a line of its own, a
//! signature spans lines, and after the line `<data>` follow the file's raw bytes from the offset to the end,
//! without closing tags. A head on a single line is refused there, and here.
//!
//! A server may get the same bytes twice (a client's HTTP library repeats a request whose connection
//! dropped): writing at `offset` must be harmless when it was done before.

use fallow_domain::Bytes;

use crate::FormatError;
use crate::names::{NAME_RULE, is_file_name};
use crate::scheduler::ClientVersion;
use crate::xml::{Reader, Value, Writer, find};

/// Longest head, in bytes. Real ones have below 1000.
pub const HEAD_MAX: usize = 16_384;

const REQUEST: &str = "upload request";
const REPLY: &str = "upload reply";

/// What a client asks of an upload handler (BOINC: `data_server_request`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UploadRequest {
    /// Take these bytes (BOINC: `file_upload`).
    Upload(UploadHeader),
    /// Say how much of a file is there (BOINC: `get_file_size`).
    FileSize {
        /// The client's version.
        client_version: ClientVersion,
        /// The file's name.
        name: String,
    },
}

/// The head of an upload.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UploadHeader {
    /// The client's version.
    pub client_version: ClientVersion,
    /// The file's name.
    pub name: String,
    /// The project's permission: its signature of the name and the maximum size, exactly as the scheduler
    /// gave it.
    pub xml_signature: String,
    /// The size that the file must not exceed, exactly as the scheduler gave it.
    pub max_nbytes: Bytes,
    /// The file's size.
    pub nbytes: Bytes,
    /// MD5 of its content.
    pub md5_cksum: String,
    /// Where in the file the bytes begin.
    pub offset: Bytes,
}

/// What the first bytes of a request say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Head {
    /// More bytes are needed.
    Incomplete,
    /// The head is whole.
    Complete {
        /// What is asked.
        request: UploadRequest,
        /// Where the file's bytes begin in what was read so far; its length if there are none.
        data_at: usize,
    },
}

impl UploadRequest {
    /// Reads a request from the bytes that have arrived so far. Call it again with more while it is
    /// incomplete.
    ///
    /// # Errors
    /// [`FormatError`] when the head is longer than [`HEAD_MAX`], says neither what to do nor with which
    /// file, or is not laid out in lines.
    pub fn parse(received: &[u8]) -> Result<Head, FormatError> {
        let window = &received[..received.len().min(HEAD_MAX)];
        let mut lines = Lines { bytes: window, pos: 0 };
        let mut header = UploadHeader::default();
        let mut seen = 0;
        while let Some(line) = lines.next() {
            let mut reader = Reader::new(REQUEST, line);
            let Some(tag) = first_tag(&mut reader, line)? else { continue };
            match tag.name {
                "data" => return finish_upload(window, header, seen, lines.pos),
                "get_file_size" => return file_size(window, line, header.client_version, lines.pos),
                "name" => seen |= field(&mut reader, &tag, &mut header.name, 1)?,
                "max_nbytes" => seen |= field(&mut reader, &tag, &mut header.max_nbytes, 2)?,
                "nbytes" => seen |= field(&mut reader, &tag, &mut header.nbytes, 4)?,
                "offset" => seen |= field(&mut reader, &tag, &mut header.offset, 8)?,
                "md5_cksum" => reader.set(&tag, &mut header.md5_cksum)?,
                "xml_signature" => match lines.until(b"</xml_signature>") {
                    Some(signature) => {
                        header.xml_signature = String::from_utf8_lossy(signature).trim().to_owned();
                    }
                    None => break,
                },
                _ => {
                    header.client_version.take(&mut reader, &tag)?;
                }
            }
        }
        if received.len() >= HEAD_MAX {
            return Err(FormatError::new(
                REQUEST,
                window,
                HEAD_MAX,
                "",
                format!("a line <data> or <get_file_size> within {HEAD_MAX} bytes"),
            ));
        }
        Ok(Head::Incomplete)
    }

    /// Writes the head of an upload; the file's bytes from the offset to the end follow. For a question for a
    /// file's size, this is the whole request.
    pub fn write(&self) -> String {
        let mut writer = Writer::new();
        writer.open("data_server_request");
        match self {
            Self::Upload(header) => header.write(&mut writer),
            Self::FileSize { client_version, name } => {
                client_version.put(&mut writer);
                writer.text("get_file_size", name);
                writer.close("data_server_request");
            }
        }
        writer.finish()
    }
}

impl UploadHeader {
    fn write(&self, w: &mut Writer) {
        self.client_version.put(w);
        w.flush_left();
        w.line("<file_upload>");
        w.line("<file_info>");
        w.text("name", &self.name);
        w.line("<xml_signature>");
        w.line(&format!("{}</xml_signature>", self.xml_signature.trim()));
        w.value("max_nbytes", &self.max_nbytes);
        w.line("</file_info>");
        w.value("nbytes", &self.nbytes);
        w.text("md5_cksum", &self.md5_cksum);
        w.value("offset", &self.offset);
        w.line("<data>");
    }
}

/// Takes one element that has to be there, and gives its bit.
fn field<'a, T: Value>(
    reader: &mut Reader<'a>,
    tag: &crate::xml::Tag<'a>,
    value: &mut T,
    bit: u8,
) -> Result<u8, FormatError> {
    match T::read(reader, tag)? {
        Some(read) => {
            *value = read;
            Ok(bit)
        }
        None => Err(reader.error_at(tag, format!("a value for <{}>", tag.name))),
    }
}

/// The tag at the start of a line, if the line begins with one.
fn first_tag<'a>(
    reader: &mut Reader<'a>,
    line: &'a [u8],
) -> Result<Option<crate::xml::Tag<'a>>, FormatError> {
    let line = line.trim_ascii_start();
    let Some(rest) = line.strip_prefix(b"<") else { return Ok(None) };
    let len =
        rest.iter().position(|byte| !byte.is_ascii_alphanumeric() && *byte != b'_').unwrap_or(rest.len());
    match std::str::from_utf8(&rest[..len]) {
        Ok(name) if !name.is_empty() => reader.root(name).map(Some),
        _ => Ok(None),
    }
}

fn finish_upload(window: &[u8], header: UploadHeader, seen: u8, data_at: usize) -> Result<Head, FormatError> {
    let expected = match () {
        () if seen & 1 == 0 => "<name> on a line of its own before <data>",
        () if seen & 2 == 0 => "<max_nbytes> on a line of its own before <data>",
        () if seen & 4 == 0 => "<nbytes> on a line of its own before <data>",
        () if seen & 8 == 0 => "<offset> on a line of its own before <data>",
        () if !is_file_name(&header.name) => NAME_RULE,
        () if header.offset > header.nbytes => "an offset within the file",
        () => return Ok(Head::Complete { request: UploadRequest::Upload(header), data_at }),
    };
    Err(FormatError::new(REQUEST, window, data_at, "file_upload", expected))
}

fn file_size(
    window: &[u8],
    line: &[u8],
    client_version: ClientVersion,
    data_at: usize,
) -> Result<Head, FormatError> {
    let mut reader = Reader::new(REQUEST, line);
    let tag = reader.root("get_file_size")?;
    let mut name = String::new();
    reader.set(&tag, &mut name)?;
    if !is_file_name(&name) {
        return Err(FormatError::new(REQUEST, window, data_at, "get_file_size", NAME_RULE));
    }
    Ok(Head::Complete { request: UploadRequest::FileSize { client_version, name }, data_at })
}

/// Whole lines of a buffer that may end in the middle of one.
struct Lines<'a> {
    bytes: &'a [u8],
    pos: usize,
}

impl<'a> Lines<'a> {
    fn next(&mut self) -> Option<&'a [u8]> {
        let rest = &self.bytes[self.pos..];
        let len = rest.iter().position(|&byte| byte == b'\n')?;
        self.pos += len + 1;
        Some(&rest[..len])
    }

    /// Everything up to the line that holds `end`, which must be whole.
    fn until(&mut self, end: &[u8]) -> Option<&'a [u8]> {
        let at = find(self.bytes, end, self.pos)?;
        let block = &self.bytes[self.pos..at];
        self.pos = at;
        self.next()?;
        Some(block)
    }
}

/// How an upload went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UploadStatus {
    /// It is there.
    Ok,
    /// Try again later. Also what a reply without a status means.
    #[default]
    Transient,
    /// Give up.
    Permanent,
}

impl UploadStatus {
    /// The number on the wire.
    pub const fn code(self) -> i32 {
        match self {
            Self::Ok => 0,
            Self::Transient => 1,
            Self::Permanent => -1,
        }
    }

    fn from_code(code: i32) -> Self {
        match code {
            0 => Self::Ok,
            1.. => Self::Transient,
            _ => Self::Permanent,
        }
    }
}

/// What an upload handler answers (BOINC: `data_server_reply`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DataServerReply {
    /// How it went.
    pub status: UploadStatus,
    /// How much of the file is there, in answer to that question.
    pub file_size: Option<Bytes>,
    /// Why it did not go well.
    pub message: Option<String>,
}

impl DataServerReply {
    /// Reads an answer. One without a status is a transient failure.
    ///
    /// # Errors
    /// [`FormatError`] when there is no whole answer in `body`.
    pub fn parse(body: &[u8]) -> Result<Self, FormatError> {
        let mut reader = Reader::new(REPLY, body);
        let root = reader.root("data_server_reply")?;
        let mut reply = Self::default();
        let mut code = None;
        while let Some(tag) = reader.next_child(&root)? {
            match tag.name {
                "status" => reader.set(&tag, &mut code)?,
                "file_size" => reader.set(&tag, &mut reply.file_size)?,
                "message" => reader.set(&tag, &mut reply.message)?,
                _ => reader.skip(&tag)?,
            }
        }
        reply.status = code.map_or(UploadStatus::Transient, UploadStatus::from_code);
        Ok(reply)
    }

    /// Writes an answer, in the spelling that clients look for line by line.
    pub fn write(&self) -> String {
        let mut writer = Writer::new();
        writer.nested("data_server_reply", |w| {
            w.plain("status", self.status.code());
            w.value("message", &self.message);
            w.value("file_size", &self.file_size);
        });
        writer.finish()
    }
}

#[cfg(test)]
#[path = "transfer_tests.rs"]
mod tests;
