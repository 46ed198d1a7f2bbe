//! Where files come from: the one place of this room, beside its command line, that opens them.
//!
//! Scenarios name other files (traces), and a BOINC data directory is several. Both are read through
//! [`Files`], so that tests and variations need no disk.

use std::io::Read;
use std::path::{Path, PathBuf};

/// The largest file that is read. A trace of a change a minute over a century has half of this.
const FILE_MAX: u64 = 1 << 30;

/// Something that gives the content of files by name.
pub trait Files {
    /// The content of the file `name`.
    ///
    /// # Errors
    /// [`FileError`] when it cannot be had.
    fn read(&self, name: &str) -> Result<Vec<u8>, FileError>;
}

/// A file that could not be read.
#[derive(Debug, thiserror::Error)]
#[error("cannot read {}", path.display())]
pub struct FileError {
    /// The file.
    pub path: PathBuf,
    /// Why.
    #[source]
    pub source: std::io::Error,
}

impl FileError {
    /// True if there is no such file.
    #[must_use]
    pub fn is_missing(&self) -> bool {
        self.source.kind() == std::io::ErrorKind::NotFound
    }
}

/// Files in a directory of this machine.
#[derive(Clone, Debug)]
pub struct Directory(PathBuf);

impl Directory {
    /// Files whose names are relative to `directory`.
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        Self(directory.into())
    }
    /// Files whose names are relative to where `file` is.
    #[must_use]
    pub fn beside(file: &Path) -> Self {
        Self(file.parent().unwrap_or(Path::new("")).into())
    }
}

impl Files for Directory {
    fn read(&self, name: &str) -> Result<Vec<u8>, FileError> {
        let path = self.0.join(name);
        let read = || {
            let mut content = Vec::new();
            std::fs::File::open(&path)?.take(FILE_MAX + 1).read_to_end(&mut content)?;
            if content.len() as u64 > FILE_MAX {
                return Err(std::io::Error::other("it is larger than 1 GiB"));
            }
            Ok(content)
        };
        read().map_err(|source| FileError { path: path.clone(), source })
    }
}

/// No files at all: a scenario that names one is refused.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoFiles;

impl Files for NoFiles {
    fn read(&self, name: &str) -> Result<Vec<u8>, FileError> {
        Err(FileError { path: name.into(), source: std::io::ErrorKind::NotFound.into() })
    }
}

/// Files given by name and content, for tests and examples.
impl<const N: usize> Files for [(&str, &str); N] {
    fn read(&self, name: &str) -> Result<Vec<u8>, FileError> {
        match self.iter().find(|(own, _)| *own == name) {
            Some((_, content)) => Ok(content.as_bytes().to_vec()),
            None => NoFiles.read(name),
        }
    }
}
