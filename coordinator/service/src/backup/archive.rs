//! The form of a backup: a tar archive, which other tools can list.
//!
//! ```text
//! fallow-backup.json   first: the format, when it was made, by which version, of which fleet
//! store/000001 ...     all records at one instant, in parts; what comes again replaces what came
//! files/...            files of the coordinator's directory
//! end.json             last: how many entries there are, and SHA-256 of all paths and contents
//! ```
//! A record is the length of its key, the key, the length of its value, the value; lengths are four bytes,
//! the lowest first, and [`GONE`] is that of a record that is not there any more.

use std::ffi::OsStr;
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use fallow_domain::{Instant, hex};
use fallow_store::Copied;
use ring::digest::{Context, SHA256};
use serde::{Deserialize, Serialize};

use super::BackupError;

/// The format that is written, and the newest that is read.
pub(super) const FORMAT: u32 = 1;
pub(super) const HEAD: &str = "fallow-backup.json";
pub(super) const END: &str = "end.json";
pub(super) const STORE: &str = "store";
pub(super) const FILES: &str = "files";
/// The length of the value of a record that is gone.
const GONE: u32 = u32::MAX;
/// Bytes of a part of the records that are read at most: no part is written that is larger.
pub(super) const PART_MAX: u64 = 1 << 30;
/// Bytes of the first and the last entry, which are short.
const SHORT: u64 = 64 << 10;

/// What a backup says of itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Head {
    pub(super) format: u32,
    pub(super) made_at: Instant,
    /// The version of this program.
    pub(super) made_by: String,
    /// The fingerprint of the fleet's authority.
    pub(super) authority: String,
}

/// What is said when all has been said.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct End {
    entries: u64,
    sha256: String,
}

/// What all entries come to.
struct Sum {
    context: Context,
    entries: u64,
}

impl Sum {
    fn new() -> Self {
        Self { context: Context::new(&SHA256), entries: 0 }
    }

    fn begins(&mut self, path: &Path, size: u64) {
        let path = path.as_os_str().as_bytes();
        self.entries += 1;
        self.context.update(&(path.len() as u64).to_be_bytes());
        self.context.update(path);
        self.context.update(&size.to_be_bytes());
    }

    fn end(&self) -> End {
        End { entries: self.entries, sha256: hex(self.context.clone().finish().as_ref()) }
    }
}

/// What is read passes by the sum.
struct Summed<'a, R> {
    inner: R,
    sum: &'a mut Sum,
}

impl<R: Read> Read for Summed<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.sum.context.update(buffer.get(..count).unwrap_or_default());
        Ok(count)
    }
}

/// Writes a backup.
pub(super) struct ArchiveWriter<W: Write> {
    tar: tar::Builder<W>,
    sum: Sum,
}

impl<W: Write> ArchiveWriter<W> {
    pub(super) fn begin(out: W, head: &Head) -> io::Result<Self> {
        let mut archive = Self { tar: tar::Builder::new(out), sum: Sum::new() };
        archive.text(HEAD, &serde_json::to_vec_pretty(head)?)?;
        Ok(archive)
    }

    fn text(&mut self, path: &str, content: &[u8]) -> io::Result<()> {
        self.add(Path::new(path), content.len() as u64, 0o600, content)
    }

    /// Adds so many bytes under a path.
    pub(super) fn add(&mut self, path: &Path, size: u64, mode: u32, content: impl Read) -> io::Result<()> {
        let mut header = tar::Header::new_gnu();
        header.set_size(size);
        header.set_mode(mode);
        header.set_mtime(0);
        self.sum.begins(path, size);
        // A file that became shorter would move all that comes after it.
        let whole = Whole { inner: content.take(size), left: size };
        self.tar.append_data(&mut header, path, Summed { inner: whole, sum: &mut self.sum })
    }

    /// Adds a part of the records.
    pub(super) fn records(&mut self, number: u64, part: &[Copied]) -> io::Result<()> {
        let mut bytes = Vec::new();
        for (key, value) in part {
            let length = |bytes: &[u8]| u32::try_from(bytes.len()).map_err(io::Error::other);
            bytes.extend_from_slice(&length(key)?.to_le_bytes());
            bytes.extend_from_slice(key);
            match value {
                Some(value) => {
                    bytes.extend_from_slice(&length(value)?.to_le_bytes());
                    bytes.extend_from_slice(value);
                }
                None => bytes.extend_from_slice(&GONE.to_le_bytes()),
            }
        }
        self.text(&format!("{STORE}/{number:06}"), &bytes)
    }

    pub(super) fn end(mut self) -> io::Result<()> {
        let end = serde_json::to_vec(&self.sum.end())?;
        self.text(END, &end)?;
        self.tar.into_inner()?.flush()
    }
}

/// Gives an error where there is less than was said.
struct Whole<R> {
    inner: R,
    left: u64,
}

impl<R: Read> Read for Whole<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.left = self.left.saturating_sub(count as u64);
        match count {
            0 if self.left > 0 && !buffer.is_empty() => {
                Err(io::Error::other("the file became shorter while it was read"))
            }
            _ => Ok(count),
        }
    }
}

/// What a backup holds, entry by entry.
pub(super) trait Unpack {
    /// What it says of itself, before anything else.
    fn head(&mut self, head: &Head) -> Result<(), BackupError>;
    /// Records, in their order.
    fn records(&mut self, records: Vec<Copied>) -> Result<(), BackupError>;
    /// A file of the coordinator's directory.
    fn file(&mut self, path: &Path, mode: u32, content: &mut dyn Read) -> Result<(), BackupError>;
}

/// Reads a whole backup. What was taken of one that turns out not to be whole means nothing.
pub(super) fn read(from: impl Read, into: &mut impl Unpack) -> Result<(), BackupError> {
    let broken = |error: io::Error| BackupError::not_whole(error.to_string());
    let mut archive = tar::Archive::new(from);
    let mut sum = Sum::new();
    let mut is_begun = false;
    for entry in archive.entries().map_err(broken)? {
        let mut entry = entry.map_err(broken)?;
        let path = PathBuf::from(OsStr::from_bytes(&entry.path_bytes()));
        let size = entry.size();
        let kind = entry.header().entry_type();
        if !kind.is_file() {
            return Err(BackupError::not_whole(format!("{} is no file", path.display())));
        }
        if path == Path::new(END) && is_begun {
            let end: End = short(&mut entry, size)?;
            return match end == sum.end() {
                true => Ok(()),
                false => Err(BackupError::not_whole("its contents are not those that were written")),
            };
        }
        let mode = entry.header().mode().map_err(broken)?;
        sum.begins(&path, size);
        let mut content = Summed { inner: &mut entry, sum: &mut sum };
        match (is_begun, path.strip_prefix(FILES)) {
            (false, _) if path == Path::new(HEAD) => {
                into.head(&short(&mut content, size)?)?;
                is_begun = true;
            }
            (false, _) => return Err(BackupError::not_whole("it does not begin as one")),
            (true, Ok(file)) => {
                into.file(file, mode, &mut content)?;
                let _ = io::copy(&mut content, &mut io::sink()).map_err(broken)?;
            }
            (true, Err(_)) if path.starts_with(STORE) => {
                let mut bytes = Vec::new();
                let count = content.take(PART_MAX + 1).read_to_end(&mut bytes).map_err(broken)?;
                if count as u64 > PART_MAX {
                    return Err(BackupError::not_whole(format!("{} is too large", path.display())));
                }
                let records = records(&bytes).ok_or_else(|| {
                    BackupError::not_whole(format!("{} does not hold whole records", path.display()))
                })?;
                into.records(records)?;
            }
            (true, Err(_)) => {
                return Err(BackupError::not_whole(format!("{} belongs in no backup", path.display())));
            }
        }
    }
    Err(BackupError::not_whole(if is_begun { "it is cut short" } else { "it is empty" }))
}

fn short<T: for<'de> Deserialize<'de>>(content: &mut impl Read, size: u64) -> Result<T, BackupError> {
    let mut bytes = Vec::new();
    let _ = content
        .take(SHORT.min(size))
        .read_to_end(&mut bytes)
        .map_err(|error| BackupError::not_whole(error.to_string()))?;
    serde_json::from_slice(&bytes).map_err(|error| BackupError::not_whole(error.to_string()))
}

fn records(mut bytes: &[u8]) -> Option<Vec<Copied>> {
    fn number(bytes: &mut &[u8]) -> Option<u32> {
        let (number, rest) = bytes.split_first_chunk::<4>()?;
        *bytes = rest;
        Some(u32::from_le_bytes(*number))
    }
    fn text(bytes: &mut &[u8], length: u32) -> Option<Vec<u8>> {
        let (text, rest) = bytes.split_at_checked(usize::try_from(length).ok()?)?;
        *bytes = rest;
        Some(text.to_vec())
    }
    let mut records = Vec::new();
    while !bytes.is_empty() {
        let length = number(&mut bytes)?;
        let key = text(&mut bytes, length)?;
        let value = match number(&mut bytes)? {
            GONE => None,
            length => Some(text(&mut bytes, length)?),
        };
        records.push((key, value));
    }
    Some(records)
}
