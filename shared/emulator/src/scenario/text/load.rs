//! A scenario file from the disk.

use std::path::Path;

use super::super::files::{Directory, FileError, Files};
use super::super::{Diagnostics, Loaded, Scenario};

/// A scenario file that could not be had.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// It cannot be read.
    #[error(transparent)]
    File(#[from] FileError),
    /// It is wrong.
    #[error(transparent)]
    Wrong(#[from] Diagnostics),
}

impl Scenario {
    /// Reads a scenario file, and the traces it names, which stand relative to it.
    ///
    /// # Errors
    /// [`LoadError`] when it cannot be read, or with everything that is wrong with it.
    pub fn load(path: &Path) -> Result<Loaded, LoadError> {
        let content = Directory::new("").read(&path.to_string_lossy())?;
        let name = path.display().to_string();
        Ok(Self::parse(&name, &String::from_utf8_lossy(&content), &Directory::beside(path))?)
    }
}
