//! What a change makes different for a host.

use std::collections::BTreeSet;

use fallow_domain::{AccountKey, Labels};

use crate::{DocumentSet, Effective, Foreign, Resolved, Wish};

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

/// The values that differ between documents for a host with these labels, in order of their keys.
#[must_use]
pub fn differences(before: &DocumentSet, after: &DocumentSet, labels: &Labels) -> Vec<ValueChange> {
    let sets = [before, after];
    let (before, after) = (Effective::of(before, labels), Effective::of(after, labels));
    let mut changes = Vec::new();
    let absent = || Wish::Absent.to_string();
    let names: BTreeSet<&String> = before.projects.keys().chain(after.projects.keys()).collect();
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
        let shown = |wish: Option<&Resolved<Wish>>| wish.map_or_else(absent, |one| one.value.to_string());
        let is_wanted = |wish: Option<&Resolved<Wish>>| wish.is_some_and(|one| one.value != Wish::Absent);
        if is_wanted(old) && is_wanted(new) {
            let places = sets.map(|set| set.place(name));
            if let [Some(old), Some(new)] = &places {
                changes.extend(moved(name, old, new, sets[1]));
            }
        }
        if is_wanted(new) {
            let said = |effective: &Effective| effective.without.get(name).cloned();
            let said = [&before, &after].map(said);
            let [old, shown] =
                said.each_ref().map(|said| said.as_ref().map(|said| said.value.clone()).unwrap_or_default());
            if old != shown {
                changes.push(ValueChange {
                    key: format!("projects.{name}.without"),
                    before: old.to_string(),
                    after: shown.to_string(),
                    origin: said[1].as_ref().map_or_else(String::new, |said| said.origin.to_string()),
                });
            }
        }
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

/// What is another where a project is, and for whom it computes there. Keys of accounts are secret: it is
/// said that there is another one.
fn moved(name: &str, old: &Foreign, new: &Foreign, set: &DocumentSet) -> Vec<ValueChange> {
    let key = |one: &Foreign| one.code_sign_key.map_or_else(|| "none".to_owned(), |key| key.to_string());
    let account = |one: &AccountKey| if *one == old.account_key { "one" } else { "another" }.to_owned();
    let values = [
        ("url", old.url.to_string(), new.url.to_string()),
        ("account_key", account(&old.account_key), account(&new.account_key)),
        ("code_sign_key", key(old), key(new)),
    ];
    let origin = set.origin_of_place(name).map_or_else(String::new, |origin| origin.to_string());
    let change = |(field, before, after): (&str, String, String)| ValueChange {
        key: format!("projects.{name}.{field}"),
        before,
        after,
        origin: origin.clone(),
    };
    values.into_iter().filter(|(_, before, after)| before != after).map(change).collect()
}

#[cfg(test)]
mod tests {
    use fallow_domain::{DocumentVersion, FleetDocument, Preferences};

    use super::*;
    use crate::{Change, GroupText, Groups};

    #[test]
    fn r6_5_where_a_project_is_and_for_whom_it_computes_are_values_that_differ() {
        let with = |place: &str| {
            let text = format!(
                "name = \"all\"\nprecedence = 1\nselector = \"room=12\"\n[projects.p]\nshare = 10\n{place}\n"
            );
            let file = GroupText { file: "all.toml".into(), text };
            let fleet = FleetDocument {
                content: String::new(),
                version: DocumentVersion(1),
                projects: Vec::new(),
                preferences: Preferences::default(),
            };
            let set = DocumentSet { fleet, groups: Groups::default() };
            let groups = Change { files: vec![file], ..Change::default() }.groups(&set).unwrap();
            DocumentSet { groups, ..set }
        };
        let key = |digit: &str| format!("code_sign_key = \"sha256:{}\"", digit.repeat(64));
        let first =
            with(&format!("url = \"http://127.0.0.1:1/p/\"\naccount_key = \"secret1\"\n{}", key("1")));
        let second =
            with(&format!("url = \"http://127.0.0.1:2/p/\"\naccount_key = \"secret2\"\n{}", key("2")));
        let chosen = Labels::read(["room=12"]).unwrap();
        let changes = differences(&first, &second, &chosen);
        let keys: Vec<_> = changes.iter().map(|one| (one.key.as_str(), one.origin.as_str())).collect();
        let origin = "group all";
        let expected = ["projects.p.account_key", "projects.p.code_sign_key", "projects.p.url"];
        assert_eq!(keys, expected.map(|key| (key, origin)));
        assert_eq!(
            (changes[2].before.as_str(), changes[2].after.as_str()),
            ("http://127.0.0.1:1/p/", "http://127.0.0.1:2/p/")
        );
        assert!(!format!("{changes:?}").contains("secret"));
        assert_eq!(differences(&first, &first, &chosen), []);
        assert_eq!(differences(&first, &second, &Labels::default()), [], "a host without the project");
    }
}
