//! Whose a store is, so that one daemon never takes up another's.
//!
//! Model: a file `kind` beside the engine's holds one word. It is looked at before anything is made or
//! opened, so that a store that is refused stays as it is, to the byte. A store made before there was such a
//! file is recognised by its keys, and gets the file then. Empty stores belong to whoever opens them first.

use std::fmt;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::Path;

use crate::StoreError;

const NAME: &str = "kind";
/// No word is as long.
const WORD_MAX: u64 = 64;

/// Whose a store is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// An agent's: its client's records.
    Agent,
    /// A coordinator's: its fleet, documents and projects.
    Coordinator,
}

impl Kind {
    /// A coordinator's first: what an agent once wrote into a coordinator's store does not make it an
    /// agent's.
    const ALL: [Self; 2] = [Self::Coordinator, Self::Agent];

    /// The word in the file.
    const fn word(self) -> &'static str {
        match self {
            Self::Agent => "agent",
            Self::Coordinator => "coordinator",
        }
    }

    /// What keys begin with in stores of this kind that have no file yet.
    pub(crate) const fn prefixes(self) -> &'static [&'static [u8]] {
        match self {
            Self::Agent => &[b"client/", b"shell/"],
            Self::Coordinator => &[b"daemon/", b"document/", b"fleet/", b"project/"],
        }
    }

    /// What the store in `dir` says of itself; none if there is no store, or it does not say. Touches
    /// nothing.
    ///
    /// # Errors
    /// [`StoreError::Corrupted`] for a word that is none, or what the system says.
    pub fn of(dir: &Path) -> Result<Option<Self>, StoreError> {
        let mut text = String::new();
        let read = File::open(dir.join(NAME)).and_then(|file| file.take(WORD_MAX).read_to_string(&mut text));
        match read {
            Ok(_) => {}
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
                return Ok(None);
            }
            Err(error) if error.kind() == ErrorKind::InvalidData => {
                return Err(unknown(dir, "bytes that are no text"));
            }
            Err(error) => return Err(StoreError::from_io(dir, "read its file \"kind\"", error)),
        }
        match text.trim() {
            // A power cut before its content was on the medium.
            "" => Ok(None),
            word => Self::ALL
                .into_iter()
                .find(|kind| kind.word() == word)
                .map(Some)
                .ok_or_else(|| unknown(dir, word)),
        }
    }

    /// Whose the keys of a store are: of the first kind for which `has` finds a key with one of its prefixes.
    pub(crate) fn by_keys<E>(mut has: impl FnMut(&[u8]) -> Result<bool, E>) -> Result<Option<Self>, E> {
        for kind in Self::ALL {
            for prefix in kind.prefixes() {
                if has(prefix)? {
                    return Ok(Some(kind));
                }
            }
        }
        Ok(None)
    }

    /// Refuses a store of another kind.
    pub(crate) fn require(self, dir: &Path, found: Option<Self>) -> Result<(), StoreError> {
        match found {
            Some(found) if found != self => {
                Err(StoreError::OtherKind { dir: dir.to_path_buf(), found, wanted: self })
            }
            _ => Ok(()),
        }
    }

    /// Writes the file.
    pub(crate) fn write(self, dir: &Path) -> Result<(), StoreError> {
        fallow_daemon::file::write_whole(&dir.join(NAME), format!("{}\n", self.word()).as_bytes(), 0o644)
            .map_err(|source| StoreError::from_io(dir, "write its file \"kind\"", source))
    }
}

impl fmt::Display for Kind {
    /// "an agent", "a coordinator".
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Agent => "an agent",
            Self::Coordinator => "a coordinator",
        })
    }
}

fn unknown(dir: &Path, found: &str) -> StoreError {
    StoreError::corrupted(
        dir,
        format!("its file \"kind\" holds {found:?}; expected \"agent\" or \"coordinator\""),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Batch, SledStore, Store};

    /// Every file below a directory, with its content and when it was written.
    fn everything(dir: &Path) -> Vec<(std::path::PathBuf, Vec<u8>, std::time::SystemTime)> {
        let (mut found, mut dirs) = (Vec::new(), vec![dir.to_path_buf()]);
        while let Some(dir) = dirs.pop() {
            for entry in std::fs::read_dir(dir).unwrap().map(Result::unwrap) {
                let written = entry.metadata().unwrap().modified().unwrap();
                if entry.file_type().unwrap().is_dir() {
                    dirs.push(entry.path());
                } else {
                    found.push((entry.path(), std::fs::read(entry.path()).unwrap(), written));
                }
            }
        }
        found.sort();
        found
    }

    #[test]
    fn a_store_of_another_kind_is_refused_and_nothing_in_it_is_touched() {
        let dir = tempfile::tempdir().unwrap();
        drop(SledStore::open_as(dir.path(), Kind::Coordinator).unwrap());
        let before = everything(dir.path());
        let error = SledStore::open_as(dir.path(), Kind::Agent).unwrap_err();
        assert!(
            matches!(error, StoreError::OtherKind { found: Kind::Coordinator, wanted: Kind::Agent, .. }),
            "{error}"
        );
        assert!(error.to_string().contains("belongs to a coordinator, not to an agent"), "{error}");
        assert_eq!(everything(dir.path()), before);
        drop(SledStore::open_as(dir.path(), Kind::Coordinator).unwrap());
    }

    #[test]
    fn a_store_made_before_the_mark_is_recognised_by_its_keys_and_marked() {
        for (key, kind, other) in [
            (&b"fleet/agent/1"[..], Kind::Coordinator, Kind::Agent),
            (b"client/meta", Kind::Agent, Kind::Coordinator),
        ] {
            let dir = tempfile::tempdir().unwrap();
            let _ = SledStore::open(dir.path()).unwrap().apply(Batch::new().put(key, "v")).unwrap();
            assert_eq!(Kind::of(dir.path()).unwrap(), None);
            let error = SledStore::open_as(dir.path(), other).unwrap_err();
            assert!(matches!(error, StoreError::OtherKind { found, .. } if found == kind), "{error}");
            drop(SledStore::open_as(dir.path(), kind).unwrap());
            assert_eq!(Kind::of(dir.path()).unwrap(), Some(kind));
        }
    }

    #[test]
    fn what_an_agent_once_wrote_into_a_coordinators_store_does_not_make_it_an_agents() {
        let dir = tempfile::tempdir().unwrap();
        let both = Batch::new().put("project/1", "v").put("shell/birth", "v");
        let _ = SledStore::open(dir.path()).unwrap().apply(both).unwrap();
        assert!(SledStore::open_as(dir.path(), Kind::Agent).is_err());
        assert!(SledStore::open_as(dir.path(), Kind::Coordinator).is_ok());
    }

    #[test]
    fn a_mark_that_is_no_kind_is_named_and_an_empty_one_is_written_anew() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(NAME), "printer").unwrap();
        let error = SledStore::open_as(dir.path(), Kind::Agent).unwrap_err();
        assert!(error.to_string().contains("printer"), "{error}");
        std::fs::write(dir.path().join(NAME), "").unwrap();
        drop(SledStore::open_as(dir.path(), Kind::Agent).unwrap());
        assert_eq!(Kind::of(dir.path()).unwrap(), Some(Kind::Agent));
    }
}
