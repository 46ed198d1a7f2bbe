//! A copy of a host becomes a host of its own (R6.10), whatever moment it is killed at.
//!
//! The coordinator says that another live process has this identity. Then:
//! 1. A new key is made, on the disk in `separation.key`: asked again with it, the coordinator gives the same
//!    host.
//! 2. The coordinator certifies it. The new identity and its key are written in one step, as
//!    `separation.json`. This decides: before it the agent is the copy that it was, and is told again; after
//!    it, it is the new host.
//! 3. The agent ends its tasks, and starts anew as a program (`exec`). Whoever starts in a directory with
//!    `separation.json` [finishes](finish) before anything else: kills what is left of tasks, deletes their
//!    slots and the files of projects, makes the store that of another host, puts key and identity in their
//!    places, and only then deletes `separation.json`. Each step may be repeated.
//!
//! So a new identity never meets an old job. Started anew rather than turned on: an agent's start is what
//! copes with anything that an earlier life left.

use std::io;
use std::path::{Path, PathBuf};

use fallow_daemon::file;
use fallow_domain::AgentId;
use fallow_tls::HostKey;
use serde::{Deserialize, Serialize};

use super::identity::Identity;
use crate::dir::{DataDir, write_atomically};
use crate::error::AgentError;
use crate::records::Records;
use crate::supervise::leftovers;

/// `separation.json`.
#[derive(Serialize, Deserialize)]
struct Stored {
    /// PEM.
    key: String,
    /// As `identity.json`.
    identity: serde_json::Value,
}

/// That this start is the first one of a new host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Separated {
    /// Whose copy it was; none where its identity could not be read.
    pub first: Option<AgentId>,
    /// Who it is.
    pub agent: AgentId,
}

/// The key that the copy is to have: the one of an earlier try, or a new one.
///
/// # Errors
/// [`AgentError::System`] when it cannot be made or written.
pub(super) fn key(dir: &DataDir) -> Result<HostKey, AgentError> {
    let path = dir.separation_key();
    if let Some(key) = std::fs::read_to_string(&path).ok().and_then(|pem| HostKey::from_pem(&pem).ok()) {
        return Ok(key);
    }
    let fail = |error| AgentError::system(format!("cannot write {}", path.display()), error);
    let key = HostKey::generate().map_err(|error| fail(io::Error::other(error)))?;
    write_atomically(&path, key.to_pem().as_bytes(), 0o600).map_err(fail)?;
    Ok(key)
}

/// From now on the agent is the new host.
///
/// # Errors
/// [`AgentError::System`] when it cannot be written: it is the copy that it was.
pub(super) fn decide(dir: &DataDir, identity: &Identity, key: &HostKey) -> Result<(), AgentError> {
    let path = dir.separation();
    let fail = |error| AgentError::system(format!("cannot write {}", path.display()), error);
    let stored = Stored { key: key.to_pem(), identity: identity.to_json() };
    let text = serde_json::to_vec_pretty(&stored).map_err(|error| fail(error.into()))?;
    write_atomically(&path, &text, 0o600).map_err(fail)
}

/// Finishes what was decided, if anything was. To be called at the start, before anything is read.
///
/// # Errors
/// [`AgentError`]: the agent must not go on then; the next start tries again.
pub fn finish(dir: &DataDir, records: &Records) -> Result<Option<Separated>, AgentError> {
    let path = dir.separation();
    let Some((identity, key)) = read(&path)? else { return Ok(None) };
    let first = Identity::read(&dir.identity()).ok().flatten().map(|first| first.agent_id().clone());
    let first = first.filter(|first| first != identity.agent_id());
    // What jobs have made is deleted below, so nothing of it is taken.
    drop(leftovers::take_over(dir, &|| true));
    delete_files(dir, records)?;
    records.separate(&dir.store())?;
    let fail = |error| AgentError::system(format!("cannot finish what {} says", path.display()), error);
    write_atomically(&dir.identity_key(), key.to_pem().as_bytes(), 0o600).map_err(fail)?;
    identity.write(&dir.identity())?;
    file::remove_if_there(&dir.separation_key()).map_err(fail)?;
    file::remove_if_there(&path).map_err(fail)?;
    file::sync_directory_of(&path).map_err(fail)?;
    Ok(Some(Separated { first, agent: identity.agent_id().clone() }))
}

fn read(path: &Path) -> Result<Option<(Identity, HostKey)>, AgentError> {
    let bad = |why: String| {
        AgentError::damaged(format!(
            "{} cannot be read ({why}), which says that this agent is a host of its own by now, and no copy any more: restore it \
             from a copy; or delete it, and the agent's coordinator tells it what it is once more",
            path.display()
        ))
    };
    let bytes = match std::fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(bad(error.to_string())),
    };
    let stored: Stored = serde_json::from_slice(&bytes).map_err(|error| bad(error.to_string()))?;
    let identity = Identity::from_json(stored.identity).map_err(bad)?;
    let key = HostKey::from_pem(&stored.key).map_err(|error| bad(fallow_daemon::causes::line(&error)))?;
    if identity.says.key != key.fingerprint() {
        return Err(bad("its certificate is for another key".to_owned()));
    }
    Ok(Some((identity, key)))
}

/// Deletes the slots, and the directories of projects that the agent had. What else lies beside those was not
/// made by it.
fn delete_files(dir: &DataDir, records: &Records) -> Result<(), AgentError> {
    let own = records.stems()?;
    let is_own = |path: &Path| path.file_name().is_some_and(|name| own.contains(&*name.to_string_lossy()));
    let projects = entries(&dir.projects()).filter(|path| is_own(path));
    for path in entries(&dir.slots()).chain(projects) {
        let fail = |error| AgentError::system(format!("cannot delete {}", path.display()), error);
        dir.trash().take(&path).map_err(fail)?;
    }
    Ok(())
}

fn entries(dir: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    std::fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::identity::tests::sample;
    use fallow_client::Change;

    use crate::records::Stored;

    /// An agent's directory with an identity, a job in a slot, a project and its files.
    fn copied() -> (tempfile::TempDir, DataDir, Identity) {
        let place = tempfile::tempdir().unwrap();
        let dir = DataDir::at(place.path());
        drop(dir.lock().unwrap());
        let key = super::super::identity::key(&dir).unwrap();
        let first = sample(&key);
        first.write(&dir.identity()).unwrap();
        let records = Records::open(&dir).unwrap();
        records.host_identity().unwrap();
        let job = Change { key: b"job/1".to_vec(), value: Some(b"1{}".to_vec()) };
        let (changes, stems) = (&[job][..], &["p".to_owned()][..]);
        records.apply(&Stored { changes, stems, ..Stored::default() }, true).unwrap();
        for path in ["slots/0/in", "projects/p/program", "projects/somebodys/own"] {
            let path = dir.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "x").unwrap();
        }
        (place, dir, first)
    }

    fn decided(dir: &DataDir) -> Identity {
        let key = key(dir).unwrap();
        let new = sample(&key);
        decide(dir, &new, &key).unwrap();
        new
    }

    #[test]
    fn r6_10_until_it_is_decided_a_copy_is_who_it_was_and_asks_with_one_key() {
        let (_place, dir, first) = copied();
        let mine = key(&dir).unwrap();
        assert_eq!(key(&dir).unwrap().fingerprint(), mine.fingerprint());
        let records = Records::open(&dir).unwrap();
        assert_eq!(finish(&dir, &records).unwrap(), None);
        assert_eq!(Identity::read(&dir.identity()).unwrap(), Some(first));
        assert_eq!(records.client().unwrap().len(), 1);
        assert!(dir.path().join("slots/0/in").exists());
    }

    #[test]
    fn r6_10_once_it_is_decided_the_new_host_has_nothing_of_the_first_ones_however_often_it_is_finished() {
        let (_place, dir, _) = copied();
        let before = Records::open(&dir).unwrap().host_identity().unwrap();
        let new = decided(&dir);
        let marker = std::fs::read(dir.separation()).unwrap();
        for is_repeated in [false, true] {
            if is_repeated {
                // Killed just before the marker was deleted.
                std::fs::write(dir.separation(), &marker).unwrap();
            }
            let records = Records::open(&dir).unwrap();
            let found = finish(&dir, &records).unwrap().unwrap();
            assert_eq!(&found.agent, new.agent_id());
            let after = records.host_identity().unwrap();
            assert!(after.epoch != before.epoch && after.host_cpid != before.host_cpid);
            assert!(records.client().unwrap().iter().all(|(key, _)| key == b"meta"));
            assert_eq!(Identity::read(&dir.identity()).unwrap().as_ref(), Some(&new));
            assert_eq!(super::super::identity::key(&dir).unwrap().fingerprint(), new.says.key);
            for gone in ["slots/0", "projects/p", "separation.json", "separation.key"] {
                assert!(!dir.path().join(gone).exists(), "{gone}");
            }
            assert!(dir.path().join("projects/somebodys/own").exists());
        }
    }

    #[test]
    fn r6_10_a_start_after_a_kill_between_the_steps_goes_on_to_the_end() {
        let (_place, dir, _) = copied();
        let new = decided(&dir);
        // The new key is in its place, and the identity is still the first one's.
        let pem = std::fs::read(dir.separation_key()).unwrap();
        std::fs::write(dir.identity_key(), pem).unwrap();
        let records = Records::open(&dir).unwrap();
        records.separate(&dir.store()).unwrap();
        finish(&dir, &records).unwrap().unwrap();
        assert_eq!(Identity::read(&dir.identity()).unwrap(), Some(new));
        assert!(!dir.separation().exists());
    }

    #[test]
    fn r6_10_a_marker_that_cannot_be_read_says_what_to_do_and_changes_nothing() {
        let (_place, dir, first) = copied();
        decided(&dir);
        std::fs::write(dir.separation(), "{").unwrap();
        let records = Records::open(&dir).unwrap();
        let error = finish(&dir, &records).unwrap_err().to_string();
        assert!(error.contains("separation.json") && error.contains("or delete it"), "{error}");
        assert_eq!(Identity::read(&dir.identity()).unwrap(), Some(first));
    }
}
