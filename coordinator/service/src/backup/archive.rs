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
use std::io::{self, BufRead, BufReader, Read, Write};
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
/// Bytes of the records that are read before they are handed on.
const BATCH: usize = 4 << 20;
/// Bytes that a record takes in memory besides its own, about.
const RECORD: usize = 64;
/// Bytes of a key, and of a value: no backup is written with longer ones.
const KEY_MAX: u32 = 64 << 10;
const VALUE_MAX: u32 = 256 << 20;
/// Bytes of the name of an entry: the system has no longer ones.
const NAME_MAX: u64 = 4 << 10;
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
            let length = |bytes: &[u8], most: u32| {
                let length = u32::try_from(bytes.len()).ok().filter(|length| *length <= most);
                length.ok_or_else(|| io::Error::other("a record is longer than a backup can hold"))
            };
            bytes.extend_from_slice(&length(key, KEY_MAX)?.to_le_bytes());
            bytes.extend_from_slice(key);
            match value {
                Some(value) => {
                    bytes.extend_from_slice(&length(value, VALUE_MAX)?.to_le_bytes());
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
    // Long names are put together here: tar's reader takes them into memory however long they are, and other
    // tools' extensions, which no backup has.
    let mut long_name: Option<Vec<u8>> = None;
    for entry in archive.entries().map_err(broken)?.raw(true) {
        let mut entry = entry.map_err(broken)?;
        let size = entry.size();
        let kind = entry.header().entry_type();
        if kind.is_gnu_longname() && long_name.is_none() {
            long_name = Some(name(&mut entry, size)?);
            continue;
        }
        let path = long_name.take().unwrap_or_else(|| entry.path_bytes().into_owned());
        let path = PathBuf::from(OsStr::from_bytes(&path));
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
                let mut records = Records(BufReader::new(content));
                let unfit = |error: Unfit| match error {
                    Unfit::Io(error) => broken(error),
                    Unfit::NoRecord => {
                        BackupError::not_whole(format!("{} does not hold whole records", path.display()))
                    }
                };
                while let Some(batch) = records.batch().map_err(unfit)? {
                    into.records(batch)?;
                }
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

/// The name that an entry for a long name holds, which ends with a zero.
fn name(content: &mut impl Read, size: u64) -> Result<Vec<u8>, BackupError> {
    if size > NAME_MAX {
        return Err(BackupError::not_whole("it holds a name that no file can have"));
    }
    let mut bytes = Vec::new();
    let read = content.read_to_end(&mut bytes);
    let _ = read.map_err(|error| BackupError::not_whole(error.to_string()))?;
    if bytes.last() == Some(&0) {
        let _ = bytes.pop();
    }
    Ok(bytes)
}

/// The records of a part, as they are read.
struct Records<R>(R);

enum Unfit {
    Io(io::Error),
    NoRecord,
}

impl From<io::Error> for Unfit {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => Self::NoRecord,
            _ => Self::Io(error),
        }
    }
}

impl<R: BufRead> Records<R> {
    /// The next ones, as many as memory should hold at once; none at the end.
    fn batch(&mut self) -> Result<Option<Vec<Copied>>, Unfit> {
        let (mut records, mut bytes) = (Vec::new(), 0);
        while bytes < BATCH && !self.0.fill_buf()?.is_empty() {
            let length = self.number()?;
            if length == 0 || length > KEY_MAX {
                return Err(Unfit::NoRecord);
            }
            let key = self.text(length)?;
            let value = match self.number()? {
                GONE => None,
                length if length > VALUE_MAX => return Err(Unfit::NoRecord),
                length => Some(self.text(length)?),
            };
            bytes += RECORD + key.len() + value.as_ref().map_or(0, Vec::len);
            records.push((key, value));
        }
        Ok((!records.is_empty()).then_some(records))
    }

    fn number(&mut self) -> Result<u32, Unfit> {
        let mut number = [0; 4];
        self.0.read_exact(&mut number)?;
        Ok(u32::from_le_bytes(number))
    }

    /// Memory is taken as it comes, whatever length is said.
    fn text(&mut self, length: u32) -> Result<Vec<u8>, Unfit> {
        let mut text = Vec::new();
        let count = (&mut self.0).take(length.into()).read_to_end(&mut text)?;
        if count as u64 == u64::from(length) { Ok(text) } else { Err(Unfit::NoRecord) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What was unpacked, and the most records and bytes of them at once.
    #[derive(Default)]
    struct Taken {
        files: Vec<PathBuf>,
        records: Vec<Copied>,
        most: usize,
    }

    impl Unpack for Taken {
        fn head(&mut self, _: &Head) -> Result<(), BackupError> {
            Ok(())
        }

        fn records(&mut self, records: Vec<Copied>) -> Result<(), BackupError> {
            let bytes = records.iter().map(|(key, value)| key.len() + value.as_ref().map_or(0, Vec::len));
            self.most = self.most.max(bytes.sum());
            self.records.extend(records);
            Ok(())
        }

        fn file(&mut self, path: &Path, _: u32, _: &mut dyn Read) -> Result<(), BackupError> {
            self.files.push(path.to_path_buf());
            Ok(())
        }
    }

    fn begin() -> ArchiveWriter<Vec<u8>> {
        let head = Head {
            format: FORMAT,
            made_at: Instant::EPOCH,
            made_by: "1.0.0".to_owned(),
            authority: "fleet".to_owned(),
        };
        ArchiveWriter::begin(Vec::new(), &head).unwrap()
    }

    fn ended(mut archive: ArchiveWriter<Vec<u8>>) -> Vec<u8> {
        let end = serde_json::to_vec(&archive.sum.end()).unwrap();
        archive.text(END, &end).unwrap();
        archive.tar.into_inner().unwrap()
    }

    #[test]
    fn r6_9_records_and_long_names_come_back_a_few_at_a_time() {
        let mut archive = begin();
        let record = |number: u32| (number.to_be_bytes().to_vec(), Some(vec![7; 1 << 20]));
        let records: Vec<Copied> = (1..20).map(record).chain([(b"gone".to_vec(), None)]).collect();
        archive.records(1, &records).unwrap();
        let long = Path::new(FILES).join("projects/p").join("x".repeat(200));
        archive.add(&long, 2, 0o600, &b"in"[..]).unwrap();
        archive.add(&Path::new(FILES).join("projects/p/y"), 2, 0o600, &b"in"[..]).unwrap();
        let mut taken = Taken::default();
        read(&ended(archive)[..], &mut taken).unwrap();
        assert_eq!(taken.records, records);
        assert!(taken.most <= BATCH + (1 << 20), "{} at once", taken.most);
        let expected = ["x".repeat(200), "y".to_owned()].map(|name| Path::new("projects/p").join(name));
        assert_eq!(taken.files, expected);
    }

    /// What is read of a backup whose first entry is followed by one of this kind and name, with zeros that
    /// do not end.
    fn read_of_endless(kind: tar::EntryType, name: &str) -> (u64, String) {
        struct Counted<R>(R, u64);
        impl<R: Read> Read for Counted<R> {
            fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
                let count = self.0.read(buffer)?;
                self.1 += count as u64;
                Ok(count)
            }
        }
        let mut begun = begin();
        let begun = std::mem::take(begun.tar.get_mut());
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(kind);
        header.set_path(name).unwrap();
        header.set_mode(0o600);
        header.set_size(8 << 30);
        header.set_cksum();
        let endless = (&begun[..]).chain(&header.as_bytes()[..]).chain(io::repeat(0));
        let mut counted = Counted(endless, 0);
        let error = read(&mut counted, &mut Taken::default()).unwrap_err();
        (counted.1 - begun.len() as u64, error.to_string())
    }

    #[test]
    fn r6_10_of_a_backup_of_nothing_but_zeros_little_is_read_before_it_is_refused() {
        for (kind, name, said) in [
            (tar::EntryType::Regular, "store/000001", "does not hold whole records"),
            (tar::EntryType::GNULongName, "././@LongLink", "a name that no file can have"),
            (tar::EntryType::XHeader, "PaxHeaders/1", "is no file"),
        ] {
            let (count, told) = read_of_endless(kind, name);
            assert!(count <= 1 << 20 && told.contains(said), "{count} bytes: {told}");
        }
    }

    #[test]
    fn r6_10_nothing_that_a_backup_says_gives_orders_to_a_terminal() {
        let mut archive = begin();
        archive.add(Path::new("\u{1b}]0;owned\u{7}"), 0, 0o600, io::empty()).unwrap();
        let told = read(&ended(archive)[..], &mut Taken::default()).unwrap_err().to_string();
        assert!(told.contains("]0;owned") && !told.contains(char::is_control), "{told:?}");
        let file = BackupError::file("p/\u{1b}[2J", "written")(io::ErrorKind::StorageFull.into());
        assert!(!file.to_string().contains(char::is_control), "{file:?}");
    }
}
