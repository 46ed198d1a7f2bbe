//! How the state is stored: one record per key, as JSON under a format version.
//!
//! Records are small and change one at a time, so JSON's size does not matter, and a person can read a store
//! that misbehaves. Unknown fields are ignored and missing ones refused, so that an older record is not taken
//! for a new one.

use fallow_domain::{JobId, ProjectId};
use fallow_policy::completion::Experience;
use fallow_policy::on_time::OnTime;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::accounts::Ledger;
use crate::state::{File, Job, Meta, Project, State};
use crate::versions::VersionKey;
use crate::{Change, FileKey};

/// The format of the values that this version writes.
const FORMAT: u8 = b'1';

/// What a record holds.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Record {
    Meta,
    Ledger,
    Metrics,
    OnTime,
    TransferDays,
    Experience(ProjectId),
    Project(ProjectId),
    Version(VersionKey),
    Workunit(FileKey),
    File(FileKey),
    Job(JobId),
}

/// A store that cannot be taken up again.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// A record of a later version of this program.
    #[error(
        "the record {key:?} has format {found}, newer than this version's {ours}; install the newer version again"
    )]
    Newer {
        /// Its key.
        key: String,
        /// Its format.
        found: char,
        /// What this version writes.
        ours: char,
    },
    /// A record that cannot be read.
    #[error("the record {key:?} cannot be read; move the agent's store directory away to begin anew")]
    Unreadable {
        /// Its key.
        key: String,
        /// What is wrong with it.
        #[source]
        source: Option<serde_json::Error>,
    },
}

impl Record {
    /// The key in the store. Names may hold any character but end the key, so no two records share one.
    pub(crate) fn key(&self) -> String {
        match self {
            Self::Meta => "meta".to_owned(),
            Self::Ledger => "ledger".to_owned(),
            Self::Metrics => "metrics".to_owned(),
            Self::OnTime => "on_time".to_owned(),
            Self::TransferDays => "transfer_days".to_owned(),
            Self::Experience(id) => format!("experience/{:010}", id.0),
            Self::Project(id) => format!("project/{:010}", id.0),
            Self::Version(v) => {
                format!(
                    "version/{:010}/{}/{}/{:?}/{}",
                    v.project.0, v.number, v.platform, v.plan_class, v.app
                )
            }
            Self::Workunit(key) => format!("workunit/{:010}/{}", key.project.0, key.name),
            Self::File(key) => format!("file/{:010}/{}", key.project.0, key.name),
            Self::Job(id) => format!("job/{:020}", id.0),
        }
    }

    /// The record as it stands, or its absence.
    pub(crate) fn change(&self, state: &State, ledger: &Ledger) -> Change {
        let value = match self {
            Self::Meta => encode(&*state.host),
            Self::Ledger => encode(ledger),
            Self::Metrics => encode(ledger.metrics()),
            Self::OnTime => encode(ledger.on_time()),
            Self::TransferDays => encode(state.quota.days()),
            Self::Experience(id) => {
                ledger.experience_of(*id).and_then(|experience| encode(&(id, experience)))
            }
            Self::Project(id) => state.projects.get(id).and_then(encode),
            Self::Version(key) => state.versions.get(key).and_then(|version| encode(&(key, version))),
            Self::Workunit(key) => state.workunits.get(key).and_then(|workunit| encode(&(key, workunit))),
            Self::File(key) => state.files.get(key).and_then(|file| encode(&(key, file))),
            Self::Job(id) => state.jobs.get(id).and_then(encode),
        };
        Change { key: self.key().into_bytes(), value }
    }
}

fn encode<T: Serialize>(value: &T) -> Option<Vec<u8>> {
    let mut bytes = vec![FORMAT];
    // Writing plain data into memory fails only where a map has keys that are no strings, and none has.
    serde_json::to_writer(&mut bytes, value).ok()?;
    Some(bytes)
}

fn decode<T: DeserializeOwned>(key: &str, bytes: &[u8]) -> Result<T, RestoreError> {
    match bytes.split_first() {
        Some((&FORMAT, json)) => serde_json::from_slice(json)
            .map_err(|source| RestoreError::Unreadable { key: key.to_owned(), source: Some(source) }),
        Some((&newer, _)) if newer > FORMAT => {
            Err(RestoreError::Newer { key: key.to_owned(), found: newer as char, ours: FORMAT as char })
        }
        _ => Err(RestoreError::Unreadable { key: key.to_owned(), source: None }),
    }
}

/// What was learned, if it is sound. What is damaged is learned anew: it is worth no stop.
fn or_anew<T>(
    read: Result<T, RestoreError>,
    is_sound: impl FnOnce(&T) -> bool,
) -> Result<Option<T>, RestoreError> {
    match read {
        Err(newer @ RestoreError::Newer { .. }) => Err(newer),
        read => Ok(read.ok().filter(is_sound)),
    }
}

/// Takes one stored record into the state.
///
/// # Errors
/// [`RestoreError`] for a record that is newer or cannot be read.
pub(crate) fn restore(
    state: &mut State,
    ledger: &mut Ledger,
    key: &[u8],
    value: &[u8],
) -> Result<(), RestoreError> {
    let key = String::from_utf8_lossy(key).into_owned();
    match key.split('/').next().unwrap_or_default() {
        "meta" => state.host = decode::<Meta>(&key, value)?.into(),
        "ledger" => ledger.restore(decode(&key, value)?),
        "metrics" => ledger.restore_metrics(decode(&key, value)?),
        "on_time" => {
            if let Some(on_time) = or_anew(decode::<OnTime>(&key, value), OnTime::is_sound)? {
                ledger.restore_on_time(on_time);
            }
        }
        // Not learned anew: what was moved would be forgotten, and the limit of the owner not be kept.
        "transfer_days" => state.quota.restore(decode(&key, value)?),
        "experience" => {
            type Stored = (ProjectId, Experience<VersionKey>);
            let is_sound = |(_, experience): &Stored| experience.is_sound();
            if let Some((id, experience)) = or_anew(decode::<Stored>(&key, value), is_sound)? {
                ledger.restore_experience(id, experience);
            }
        }
        "project" => {
            let mut project: Project = decode(&key, value)?;
            project.read_web_preferences();
            state.projects.insert(project);
        }
        "version" => {
            let (id, version) = decode(&key, value)?;
            state.versions.insert(id, version);
        }
        "workunit" => {
            let (id, workunit) = decode(&key, value)?;
            state.workunits.insert(id, workunit);
        }
        "file" => {
            let (id, file): (FileKey, File) = decode(&key, value)?;
            state.files.insert(id, file);
        }
        "job" => {
            let job: Job = decode(&key, value)?;
            state.jobs.insert(job);
        }
        _ => return Err(RestoreError::Unreadable { key, source: None }),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use fallow_domain::Bytes;

    use super::*;
    use crate::described::FileDescription;

    /// Shows R6.2.
    #[test]
    fn an_upload_that_an_earlier_version_would_begin_anew_begins_anew() {
        let stale = |told: &str| {
            let info = FileDescription { name: "out".into(), ..FileDescription::default() };
            let info = serde_json::to_string(&info).unwrap();
            let file = format!(
                r#"1[{{"project":1,"name":"out"}},{{"info":{info},"signed":false,"status":"Present","found":null,
                {told}"transfer":null}}]"#
            );
            let (mut state, mut ledger) = (State::default(), Ledger::default());
            restore(&mut state, &mut ledger, b"file/0000000001/out", file.as_bytes()).unwrap();
            let (key, file) = state.files.first_key_value().unwrap();
            // As it is stored from now on.
            let again = Record::File(key.clone()).change(&state, &ledger).value.unwrap();
            let (mut later, mut ledger) = (State::default(), Ledger::default());
            restore(&mut later, &mut ledger, b"file/0000000001/out", &again).unwrap();
            assert_eq!(later.files[key].stale, file.stale);
            file.stale
        };
        let stored = ["", r#""anew":false,"#, r#""anew":true,"#, r#""stale":7,"#];
        assert_eq!(stored.map(stale), [Bytes(0), Bytes(0), Bytes(u64::MAX), Bytes(7)]);
    }
}
