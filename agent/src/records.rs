//! The agent's store: the client's records under `client/`, the shell's own under `shell/`.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use fallow_client::{Change, FileKey};
use fallow_daemon::causes;
use fallow_domain::{HostSpeed, ProjectId};
use fallow_store::{Batch, Format, Kind, SledStore, Store, StoreError, no_migration};
use rand::{RngExt, SeedableRng};
use serde::{Deserialize, Serialize};

use crate::dir::DataDir;
use crate::error::AgentError;

const CLIENT: &[u8] = b"client/";
const HOST_IDENTITY: &[u8] = b"shell/birth";
const SPEED: &[u8] = b"shell/speed";
/// Before the stem of a project whose directory the agent may have made.
const STEM: &[u8] = b"shell/project/";
/// Before the number of a project and the name of a file of its that is being deleted.
const DOOMED: &[u8] = b"shell/doomed/";

const HOST_IDENTITY_FORMAT: Format = Format { name: "host's identity", version: 1, migrate: no_migration };
const STEM_FORMAT: Format = Format { name: "project's directory", version: 1, migrate: no_migration };
const DOOMED_FORMAT: Format = Format { name: "file to delete", version: 1, migrate: no_migration };
/// Version 1 held what loops of our own had measured, some times too little.
const SPEED_FORMAT: Format = Format { name: "host's speed", version: 2, migrate: no_migration };

/// Who this host is towards others: drawn once, when the store is made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostIdentity {
    /// Seed of the client's random stream.
    pub seed: u64,
    /// Names this store towards the coordinator: another store begins its sequence numbers anew (R6.3).
    pub epoch: String,
    /// Names this host towards projects (BOINC: `host_cpid`).
    pub host_cpid: String,
}

impl HostIdentity {
    fn draw() -> Result<Self, AgentError> {
        let mut rng = rand::rngs::StdRng::try_from_rng(&mut rand::rngs::SysRng).map_err(|error| {
            AgentError::system("the system gives no random numbers", std::io::Error::other(error))
        })?;
        let cpid: u128 = rng.random();
        Ok(Self {
            seed: rng.random(),
            epoch: ulid::Ulid::from_parts(
                fallow_daemon::clock::now().as_micros().unsigned_abs() / 1_000,
                rng.random(),
            )
            .to_string(),
            host_cpid: format!("{cpid:032x}"),
        })
    }
}

/// What is stored in one batch.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stored<'a> {
    /// What a step changed.
    pub changes: &'a [Change],
    /// The stems of projects that are new.
    pub stems: &'a [String],
    /// Files that are to be deleted next: by their records nobody may know of them any more.
    pub doomed: &'a [FileKey],
    /// Files whose deletion is over, unless they are doomed once more.
    pub over: &'a [FileKey],
}

impl Stored<'_> {
    /// Whether it is stored at all: what is over alone waits for something else. `durable` has all that was
    /// stored before put on the disk.
    pub const fn is_worth_it(&self, durable: bool) -> bool {
        !self.changes.is_empty() || !self.stems.is_empty() || durable
    }
}

/// The records.
#[derive(Clone)]
pub struct Records {
    store: Arc<dyn Store>,
}

impl Records {
    /// Opens the store.
    ///
    /// # Errors
    /// [`AgentError::Store`].
    pub fn open(dir: &DataDir) -> Result<Self, AgentError> {
        Ok(Self { store: Arc::new(SledStore::open_as(dir.store(), Kind::Agent)?) })
    }

    /// The host's identity, which was drawn when the store was made; drawn now if the store is new.
    ///
    /// # Errors
    /// [`AgentError`] when it cannot be read or written.
    pub fn host_identity(&self) -> Result<HostIdentity, AgentError> {
        if let Some(host_identity) = self.read(HOST_IDENTITY, HOST_IDENTITY_FORMAT)? {
            return Ok(host_identity);
        }
        let host_identity = HostIdentity::draw()?;
        self.write(HOST_IDENTITY, HOST_IDENTITY_FORMAT, &host_identity)?;
        Ok(host_identity)
    }

    /// The speed of this host as it was measured last, however long ago. What an earlier version of this
    /// agent measured by other means counts for nothing.
    pub fn speed(&self) -> Option<HostSpeed> {
        self.read(SPEED, SPEED_FORMAT).ok().flatten()
    }

    /// Keeps a measured speed.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn keep_speed(&self, speed: &HostSpeed) -> Result<(), StoreError> {
        self.write(SPEED, SPEED_FORMAT, speed)
    }

    /// All of the client's records.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn client(&self) -> Result<Vec<fallow_store::Entry>, StoreError> {
        let entries = self.store.scan_prefix(CLIENT)?;
        Ok(entries.into_iter().map(|(key, value)| (key[CLIENT.len()..].to_vec(), value)).collect())
    }

    /// Makes them those of another host, in one batch: it was a copy of the one whose they are. `place` is
    /// where the store is.
    ///
    /// # Errors
    /// [`AgentError`] when that cannot be stored, or what is to stay cannot be read.
    pub fn separate(&self, place: &Path) -> Result<(), AgentError> {
        let changes = fallow_client::separate(self.client()?)
            .map_err(|error| AgentError::Records { dir: place.to_owned(), why: causes::line(&error) })?;
        let host_identity = HOST_IDENTITY_FORMAT.write(HOST_IDENTITY, &HostIdentity::draw()?)?;
        let mut batch = Batch::new().put(HOST_IDENTITY, host_identity).delete(SPEED);
        for Change { key, value } in changes {
            let key = [CLIENT, &key].concat();
            match value {
                Some(value) => batch.add_put(key, value),
                None => batch.add_delete(key),
            }
        }
        let _ = self.store.apply_durable(batch)?;
        Ok(())
    }

    /// The stems of all projects that the agent has or had, until their directories are deleted. Other
    /// directories are not its own.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn stems(&self) -> Result<BTreeSet<String>, StoreError> {
        let entries = self.store.scan_prefix(STEM)?.into_iter();
        Ok(entries.map(|(key, _)| String::from_utf8_lossy(&key[STEM.len()..]).into_owned()).collect())
    }

    /// The directory of a project that the agent had is deleted.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn forget_stem(&self, stem: &str) -> Result<(), StoreError> {
        self.store.apply(Batch::new().delete([STEM, stem.as_bytes()].concat())).map(|_| ())
    }

    /// The files that were being deleted when the store was written last.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn doomed(&self) -> Result<Vec<FileKey>, StoreError> {
        let file = |(key, _): (Vec<u8>, Vec<u8>)| {
            let key = String::from_utf8_lossy(&key[DOOMED.len()..]).into_owned();
            let (project, name) = key.split_once('/')?;
            Some(FileKey { project: ProjectId(project.parse().ok()?), name: name.to_owned() })
        };
        Ok(self.store.scan_prefix(DOOMED)?.into_iter().filter_map(file).collect())
    }

    /// Stores that, all or none. A step that changed nothing is not written, unless it has to be durable;
    /// says whether it was.
    ///
    /// # Errors
    /// [`StoreError`]; then nothing is stored.
    pub fn apply(&self, stored: &Stored<'_>, durable: bool) -> Result<bool, StoreError> {
        if !stored.is_worth_it(durable) {
            return Ok(false);
        }
        let mut batch = Batch::new();
        for change in stored.changes {
            let key = [CLIENT, &change.key].concat();
            match &change.value {
                Some(value) => batch.add_put(key, value.clone()),
                None => batch.add_delete(key),
            }
        }
        for stem in stored.stems {
            batch.add_put([STEM, stem.as_bytes()].concat(), STEM_FORMAT.wrap(b""));
        }
        stored.over.iter().for_each(|file| batch.add_delete(doomed_key(file)));
        stored.doomed.iter().for_each(|file| batch.add_put(doomed_key(file), DOOMED_FORMAT.wrap(b"")));
        // No preconditions, so no conflict.
        let _ = if durable { self.store.apply_durable(batch)? } else { self.store.apply(batch)? };
        Ok(true)
    }

    /// Puts everything on the disk.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn flush(&self) -> Result<(), StoreError> {
        self.store.flush()
    }

    fn read<T: for<'de> Deserialize<'de>>(
        &self,
        key: &[u8],
        format: Format,
    ) -> Result<Option<T>, StoreError> {
        let Some(stored) = self.store.get(key)? else { return Ok(None) };
        format.read(key, &stored).map(Some)
    }

    fn write<T: Serialize>(&self, key: &[u8], format: Format, value: &T) -> Result<(), StoreError> {
        let stored = format.write(key, value)?;
        let _ = self.store.apply_durable(Batch::new().put(key, stored))?;
        Ok(())
    }
}

/// The key under which the name of a file is stored that is being deleted.
fn doomed_key(file: &FileKey) -> Vec<u8> {
    [DOOMED, format!("{}/{}", file.project.0, file.name).as_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_drawn_at_birth_stays() {
        let dir = tempfile::tempdir().unwrap();
        let data = DataDir::at(dir.path());
        let first = Records::open(&data).unwrap().host_identity().unwrap();
        assert_eq!(Records::open(&data).unwrap().host_identity().unwrap(), first);
        assert_eq!((first.host_cpid.len(), first.epoch.len()), (32, 26));
    }

    #[test]
    fn a_clients_changes_come_back_under_their_own_keys() {
        let dir = tempfile::tempdir().unwrap();
        let records = Records::open(&DataDir::at(dir.path())).unwrap();
        records.host_identity().unwrap();
        let put = |key: &str, value: Option<&str>| Change { key: key.into(), value: value.map(Into::into) };
        let apply = |changes: &[Change], stems: &[String], durable| {
            records.apply(&Stored { changes, stems, ..Stored::default() }, durable).unwrap()
        };
        assert!(apply(&[put("a", Some("1")), put("b", Some("2"))], &[], true));
        assert!(apply(&[put("a", None)], &["p".to_owned()], false));
        assert!(!apply(&[], &[], false), "there is nothing to store");
        assert_eq!(records.client().unwrap(), [(b"b".to_vec(), b"2".to_vec())]);
        assert!(records.stems().unwrap().contains("p"));
        records.forget_stem("p").unwrap();
        assert!(records.stems().unwrap().is_empty());
    }

    #[test]
    fn r4_12_a_file_that_is_being_deleted_is_known_until_that_is_over() {
        let dir = tempfile::tempdir().unwrap();
        let records = Records::open(&DataDir::at(dir.path())).unwrap();
        let file = |name: &str| FileKey { project: ProjectId(7), name: name.to_owned() };
        let set = |names: &[&str]| names.iter().map(|name| file(name)).collect::<Vec<_>>();
        let changes = &[Change { key: b"a".to_vec(), value: Some(b"1".to_vec()) }];
        let apply = |doomed: &[&str], over: &[&str]| {
            let (doomed, over) = (&set(doomed), &set(over));
            records.apply(&Stored { changes, doomed, over, ..Stored::default() }, false).unwrap();
            records.doomed().unwrap()
        };
        assert_eq!(apply(&["a", "b c"], &[]), ["a", "b c"].map(file));
        // One that is to be deleted once more stays known.
        assert_eq!(apply(&["a"], &["a", "b c"]), ["a"].map(file));
        assert_eq!(apply(&[], &["a"]), []);
        assert_eq!(records.client().unwrap().len(), 1);
    }

    #[test]
    fn a_speed_is_kept_and_one_measured_by_other_means_counts_for_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let records = Records::open(&DataDir::at(dir.path())).unwrap();
        let number = |value| fallow_domain::Speed::new(value).unwrap();
        let speed = HostSpeed { fpops: number(1e9), iops: number(2e9), membw: 1e9, measured_at: 1000.0 };
        records.keep_speed(&speed).unwrap();
        assert_eq!(records.speed(), Some(speed));
        let old = Format { version: 1, ..SPEED_FORMAT };
        records.write(SPEED, old, &speed).unwrap();
        assert_eq!(records.speed(), None);
    }
}
