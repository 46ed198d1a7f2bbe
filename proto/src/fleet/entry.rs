//! Entries: what an agent says of its host, its disk, its projects and its tasks, each under its key.
//!
//! An entry that means nothing (a negative CPU time, a share that is no number, a key that does not fit its
//! value) is refused with the first thing that cannot be.

use fallow_domain::agent_state::{Entry, EntryKey};
use wire::entry::Value;

use super::limits::KEY_BYTES;
use super::{disk, entry_key, host, project, task, v1 as wire};

/// An entry or a key that cannot be accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("entry {key:?}: {what}")]
pub struct BadEntry {
    /// The entry's key, shortened.
    pub key: String,
    /// What is wrong with it.
    pub what: String,
}

impl BadEntry {
    /// What is wrong with the entry under a key.
    pub fn new(key: &str, what: impl Into<String>) -> Self {
        Self { key: key.chars().take(120).collect(), what: what.into() }
    }
}

/// An entry on the wire.
#[must_use]
pub fn to_wire(entry: &Entry) -> wire::Entry {
    let value = match entry {
        Entry::Host(host) => Value::Host(Box::new(host::to_wire(host))),
        Entry::Disk(decisions) => Value::Disk(disk::to_wire(decisions)),
        Entry::Project(project) => Value::Project(project::to_wire(project)),
        Entry::Task(task) => Value::Task(task::to_wire(task)),
    };
    wire::Entry { key: entry_key::to_wire(&entry.key()), value: Some(value) }
}

/// An entry from the wire.
///
/// # Errors
/// [`BadEntry`] with the first thing that cannot be.
pub fn from_wire(wire: wire::Entry) -> Result<Entry, BadEntry> {
    let wire::Entry { key, value } = wire;
    check_key(&key)?;
    let value = value.ok_or_else(|| BadEntry::new(&key, "has no value, or one of a kind not known here"))?;
    let entry = match value {
        Value::Host(host) => host::from_wire(*host).map(|host| Entry::Host(Box::new(host))),
        Value::Disk(decisions) => disk::from_wire(decisions).map(Entry::Disk),
        Value::Project(project) => project::from_wire(project).map(Entry::Project),
        Value::Task(task) => task::from_wire(task).map(Entry::Task),
    };
    let entry = entry.map_err(|what| BadEntry::new(&key, what))?;
    let expected = entry_key::to_wire(&entry.key());
    if expected == key {
        Ok(entry)
    } else {
        Err(BadEntry::new(&key, format!("holds the value of {expected:?}")))
    }
}

/// The key of an entry that is said to be gone; none for what is a key of no entry that could be here, such
/// as one of a kind that only a newer agent has.
///
/// # Errors
/// [`BadEntry`] for what can be no key at all.
pub fn removed_from_wire(key: &str) -> Result<Option<EntryKey>, BadEntry> {
    check_key(key)?;
    Ok(entry_key::from_wire(key).ok())
}

fn check_key(key: &str) -> Result<(), BadEntry> {
    if key.is_empty() || key.len() > KEY_BYTES || key.chars().any(char::is_control) {
        return Err(BadEntry::new(key, format!("a key has 1 to {KEY_BYTES} printable bytes")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const URL: &str = "http://127.0.0.1:8080/mersenne/";

    fn project() -> wire::Entry {
        let project = wire::ProjectState { url: URL.into(), ..Default::default() };
        wire::Entry { key: format!("project/{URL}"), value: Some(Value::Project(project)) }
    }

    #[test]
    fn an_honest_entry_is_the_same_on_the_wire_again() {
        let host = wire::HostState { day: Some(wire::Metrics::default()), ..Default::default() };
        let host = wire::HostState { week: host.day, month: host.day, cpus: 2, hostname: "h".into(), ..host };
        let task = wire::TaskState { project_url: URL.into(), name: "m_1".into(), ..Default::default() };
        for given in [
            project(),
            wire::Entry { key: "host".into(), value: Some(Value::Host(Box::new(host))) },
            wire::Entry { key: format!("task/{URL}/m_1"), value: Some(Value::Task(task)) },
        ] {
            assert_eq!(to_wire(&from_wire(given.clone()).unwrap()), given);
        }
    }

    #[test]
    fn a_key_that_does_not_fit_its_value_is_refused() {
        let wrong = wire::Entry { key: "host".into(), ..project() };
        assert!(from_wire(wrong).unwrap_err().what.contains("holds the value of"));
        assert!(from_wire(wire::Entry { key: "host".into(), value: None }).is_err());
        let long = wire::Entry { key: "k".repeat(10_000), value: None };
        assert!(from_wire(long).unwrap_err().key.len() < 200);
    }

    #[test]
    fn what_is_wrong_with_a_value_is_said_with_the_key() {
        let mut bad = project();
        bad.value =
            Some(Value::Project(wire::ProjectState { url: URL.into(), share: -1.0, ..Default::default() }));
        let text = from_wire(bad).unwrap_err().to_string();
        assert_eq!(text, format!("entry \"project/{URL}\": share is -1, not from 0 to 1000000000"));
    }

    #[test]
    fn a_removal_of_what_cannot_be_here_removes_nothing_and_one_of_no_key_at_all_is_refused() {
        assert_eq!(removed_from_wire("host"), Ok(Some(EntryKey::Host)));
        assert_eq!(removed_from_wire("disk/of/a/newer/agent"), Ok(None));
        for bad in ["".to_owned(), "a\nb".to_owned(), "k".repeat(641)] {
            assert!(removed_from_wire(&bad).unwrap_err().what.contains("printable"));
        }
    }
}
