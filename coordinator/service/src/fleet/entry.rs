//! What one message of an agent says: how much that may be. What each entry may hold is said in the contract
//! ([`fallow_proto::fleet::entry`]).
//!
//! One entry that means nothing refuses the whole message: applying the rest would leave a state that the
//! agent never had.

use std::collections::{BTreeMap, BTreeSet};

use fallow_domain::agent_state::{Entry, EntryKey};
use fallow_proto::fleet::entry::{self, BadEntry};
use fallow_proto::fleet::v1 as wire;

use super::limits::ENTRIES_PER_MESSAGE;

/// Entries by their keys.
pub(super) type Entries = BTreeMap<EntryKey, Entry>;

/// All entries of a message. Of two under one key the later counts.
///
/// # Errors
/// [`BadEntry`] for the first bad one, or for too many.
pub(super) fn read_all(entries: Vec<wire::Entry>) -> Result<Entries, BadEntry> {
    if entries.len() > ENTRIES_PER_MESSAGE {
        let what = format!("{} entries in one message, more than {ENTRIES_PER_MESSAGE}", entries.len());
        return Err(BadEntry::new("", what));
    }
    let keyed = |wire| entry::from_wire(wire).map(|entry| (entry.key(), entry));
    entries.into_iter().map(keyed).collect()
}

/// The keys of entries that are said to be gone, each once; those that no entry can have here are passed
/// over.
///
/// # Errors
/// [`BadEntry`] for the first that is no key, or for too many.
pub(super) fn read_removed(keys: &[String]) -> Result<BTreeSet<EntryKey>, BadEntry> {
    if keys.len() > ENTRIES_PER_MESSAGE {
        let what = format!("{} removals in one message, more than {ENTRIES_PER_MESSAGE}", keys.len());
        return Err(BadEntry::new("", what));
    }
    keys.iter().filter_map(|key| entry::removed_from_wire(key).transpose()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(cpus: u32) -> wire::Entry {
        let host = wire::HostState { cpus, ..Default::default() };
        wire::Entry { key: "host".into(), value: Some(wire::entry::Value::Host(Box::new(host))) }
    }

    #[test]
    fn one_bad_entry_refuses_the_message() {
        assert_eq!(read_all(vec![host(1), host(2)]).unwrap().len(), 1);
        let bad = wire::Entry { key: "disk".into(), ..host(1) };
        assert!(read_all(vec![host(1), bad]).unwrap_err().what.contains("holds the value of"));
    }

    #[test]
    fn a_message_of_too_many_entries_is_refused() {
        assert!(read_all(vec![host(1); ENTRIES_PER_MESSAGE + 1]).is_err());
        assert!(read_removed(&vec!["host".into(); ENTRIES_PER_MESSAGE + 1]).is_err());
        assert!(read_removed(&vec!["host".into(); ENTRIES_PER_MESSAGE]).is_ok_and(|keys| keys.len() == 1));
    }

    #[test]
    fn what_cannot_be_here_is_not_removed() {
        let keys = ["host", "task/never/there", "disk/of/a/newer/agent"].map(str::to_owned);
        assert_eq!(read_removed(&keys).unwrap(), [EntryKey::Host].into());
        assert!(read_removed(&["a\nb".to_owned()]).is_err());
    }
}
