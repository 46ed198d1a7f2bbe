//! `daemon.json`: by which a person or a tool finds a running daemon.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::{ProcessId, file};

const NAME: &str = "daemon.json";
/// No daemon writes a longer one.
const LONGEST: u64 = 64 * 1024;

/// A running daemon, and what it says of itself: where it is reached.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DaemonFile<T> {
    /// Its process.
    #[serde(flatten)]
    pub process: ProcessId,
    /// What it says of itself.
    #[serde(flatten)]
    pub told: T,
}

impl<T> DaemonFile<T> {
    /// Where a daemon's directory has it.
    pub fn path(dir: &Path) -> PathBuf {
        path(dir)
    }

    /// Takes it away, at a clean end. Whoever reads a stale one finds that its process is gone.
    pub fn remove(dir: &Path) {
        let _ = std::fs::remove_file(path(dir));
    }

    /// Of this very process.
    pub fn new(told: T) -> Self {
        Self { process: ProcessId::own(), told }
    }

    /// True while the process that wrote it lives.
    pub fn is_alive(&self) -> bool {
        self.process.is_alive()
    }
}

impl<T: Serialize> DaemonFile<T> {
    /// Writes it in a daemon's directory.
    ///
    /// # Errors
    /// An I/O error of the operating system.
    pub fn write(&self, dir: &Path) -> io::Result<()> {
        file::write_whole(&path(dir), &serde_json::to_vec_pretty(self)?, 0o644)
    }
}

impl<T: DeserializeOwned> DaemonFile<T> {
    /// Reads it.
    ///
    /// # Errors
    /// An I/O error of the operating system; `InvalidData` for a file that is none.
    pub fn read(dir: &Path) -> io::Result<Self> {
        let mut bytes = Vec::new();
        File::open(path(dir))?.take(LONGEST).read_to_end(&mut bytes)?;
        serde_json::from_slice(&bytes).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
    }
}

fn path(dir: &Path) -> PathBuf {
    dir.join(NAME)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
    struct Place {
        fleet: String,
    }

    #[test]
    fn a_file_reads_as_it_was_written_and_knows_whether_its_process_lives() {
        let dir = tempfile::tempdir().unwrap();
        let mut file = DaemonFile::new(Place { fleet: "http://127.0.0.1:1".to_owned() });
        file.write(dir.path()).unwrap();
        assert_eq!(DaemonFile::read(dir.path()).unwrap(), file);
        assert!(file.is_alive());
        file.process.start_time += 1;
        assert!(!file.is_alive());
        let text = std::fs::read_to_string(DaemonFile::<()>::path(dir.path())).unwrap();
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value["pid"], std::process::id());
        assert!(value["start_time"].is_u64() && value["fleet"].is_string(), "{text}");
    }

    #[test]
    fn a_reader_that_wants_the_process_only_reads_any_daemons_file() {
        let dir = tempfile::tempdir().unwrap();
        DaemonFile::new(Place { fleet: String::new() }).write(dir.path()).unwrap();
        assert_eq!(DaemonFile::<()>::read(dir.path()).unwrap().process, ProcessId::own());
        DaemonFile::<()>::remove(dir.path());
        let none = DaemonFile::<()>::read(dir.path()).unwrap_err();
        assert_eq!(none.kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn a_file_that_is_none_is_told_from_one_that_is_not_there() {
        let dir = tempfile::tempdir().unwrap();
        for text in ["", "{", "[]", r#"{"pid":1,"start_time":2}"#] {
            std::fs::write(DaemonFile::<()>::path(dir.path()), text).unwrap();
            let error = DaemonFile::<Place>::read(dir.path()).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{text}");
        }
    }
}
