//! `daemon.json`: by which a person or a tool finds a running coordinator.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::StartError;

const NAME: &str = "daemon.json";

/// A running coordinator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DaemonFile {
    /// Its process.
    pub pid: u32,
    /// When that process began, in clock ticks since boot (field 22 of `/proc/PID/stat`): a process of the same id
    /// with another start is another process.
    pub start_time: u64,
    /// Where agents and operators' tools connect to.
    pub fleet: String,
    /// Where its projects are.
    pub http: String,
    /// Its version.
    pub version: String,
}

impl DaemonFile {
    pub(super) fn new(grpc: SocketAddr, http: SocketAddr) -> Self {
        let pid = std::process::id();
        Self {
            pid,
            start_time: process_start(pid).unwrap_or(0),
            fleet: format!("http://{grpc}"),
            http: format!("http://{http}"),
            version: env!("CARGO_PKG_VERSION").to_owned(),
        }
    }

    pub(super) fn write(&self, dir: &Path) -> Result<(), StartError> {
        let text = serde_json::to_vec_pretty(self).unwrap_or_default();
        let new = dir.join("daemon.json.new");
        std::fs::write(&new, text)
            .and_then(|()| std::fs::rename(&new, dir.join(NAME)))
            .map_err(|source| StartError::Directory { dir: dir.to_path_buf(), source })
    }

    pub(super) fn remove(dir: &Path) {
        // Whoever reads a stale one finds that its process is gone.
        let _ = std::fs::remove_file(dir.join(NAME));
    }

    /// Where a coordinator's directory has it.
    #[must_use]
    pub fn path(dir: &Path) -> PathBuf {
        dir.join(NAME)
    }

    /// Reads it.
    ///
    /// # Errors
    /// The system's, `InvalidData` for a file that is none.
    pub fn read(dir: &Path) -> std::io::Result<Self> {
        let bytes = std::fs::read(dir.join(NAME))?;
        serde_json::from_slice(&bytes)
            .map_err(|error| std::io::Error::new(std::io::ErrorKind::InvalidData, error))
    }

    /// Whether the process that wrote it lives.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        process_start(self.pid) == Some(self.start_time)
    }
}

/// When a living process began, in clock ticks since boot; `None` for none, or one that is dead and not yet collected.
#[must_use]
pub fn process_start(pid: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name stands in parentheses and may hold any character.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?;
    if state == "Z" || state == "X" { None } else { fields.nth(18)?.parse().ok() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stale_file_does_not_name_a_living_coordinator() {
        let dir = tempfile::tempdir().unwrap();
        let address = SocketAddr::from(([127, 0, 0, 1], 1));
        let mut file = DaemonFile::new(address, address);
        file.write(dir.path()).unwrap();
        assert_eq!(DaemonFile::read(dir.path()).unwrap(), file);
        assert!(file.is_alive());
        file.start_time += 1;
        assert!(!file.is_alive());
    }
}
