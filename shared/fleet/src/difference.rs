//! What a change makes different for a host.

use crate::{Effective, Wish};

/// A value that is another one for a host.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ValueChange {
    /// Its key, such as `preferences.cpu_fraction` or `projects.totient`.
    pub key: String,
    /// The value before, for people.
    pub before: String,
    /// The value after.
    pub after: String,
    /// Who says it then.
    pub origin: String,
}

/// The values that differ, in order of their keys.
#[must_use]
pub fn differences(before: &Effective, after: &Effective) -> Vec<ValueChange> {
    let mut changes = Vec::new();
    let absent = || Wish::Absent.to_string();
    let names: std::collections::BTreeSet<&String> =
        before.projects.keys().chain(after.projects.keys()).collect();
    for (old, new) in before.preferences.iter().zip(&after.preferences) {
        if old.value != new.value {
            changes.push(ValueChange {
                key: format!("preferences.{}", new.value.key()),
                before: old.value.to_string(),
                after: new.value.to_string(),
                origin: new.origin.to_string(),
            });
        }
    }
    for name in names {
        let (old, new) = (before.projects.get(name), after.projects.get(name));
        let shown =
            |wish: Option<&crate::Resolved<Wish>>| wish.map_or_else(absent, |one| one.value.to_string());
        let (old, shown_new) = (shown(old), shown(new));
        if old != shown_new {
            changes.push(ValueChange {
                key: format!("projects.{name}"),
                before: old,
                after: shown_new,
                origin: new.map_or_else(String::new, |one| one.origin.to_string()),
            });
        }
    }
    changes.sort();
    changes
}
