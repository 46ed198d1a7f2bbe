//! What signed documents say, value by value: what somebody looks at before he signs.

use std::collections::{BTreeMap, BTreeSet};

use fallow_domain::AccountKey;

use super::{SIGNED_BYTES_MAX, signed_form};
use crate::{DocumentSet, Preference};

/// Why documents are not to be signed: somebody who looks at their values would not see all that they say.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotSignable {
    /// They are larger than hosts take.
    #[error("they have {0} bytes, and hosts take {SIGNED_BYTES_MAX}: say less in groups")]
    Size(usize),
    /// They cannot be read.
    #[error("they cannot be read ({0})")]
    Documents(String),
    /// They hold more than what was read of them, or hold it in another way.
    #[error("they hold something that this release does not know: sign with the release of the coordinator")]
    Form,
    /// They say something twice, or nothing that hosts could follow.
    #[error("they contradict themselves: {0}")]
    Conflict(String),
}

/// Reads documents that are to be signed. All that they say are the values of [`values_of`], each once.
///
/// # Errors
/// [`NotSignable`].
pub fn signable(documents: &str) -> Result<DocumentSet, NotSignable> {
    if documents.len() > SIGNED_BYTES_MAX {
        return Err(NotSignable::Size(documents.len()));
    }
    let read = serde_json::from_str(documents);
    let set: DocumentSet = read.map_err(|error| NotSignable::Documents(error.to_string()))?;
    if signed_form(&set).map_err(|error| NotSignable::Documents(error.to_string()))? != documents {
        return Err(NotSignable::Form);
    }
    set.fleet.check().map_err(|error| NotSignable::Conflict(error.to_string()))?;
    if let Some(problem) = set.problems().first() {
        return Err(NotSignable::Conflict(problem.to_string()));
    }
    let mut seen = BTreeSet::new();
    for (key, _) in said(&set) {
        if seen.contains(&key) {
            return Err(NotSignable::Conflict(format!("{key} is said twice")));
        }
        seen.insert(key);
    }
    Ok(set)
}

/// Every value of a set under a key, such as `projects.sieve.url` or `groups.room-12.selector`. Names of more
/// than ASCII letters, digits, `_` and `-` stand in quotes, so that each key means one value, and names that
/// look alike do not.
#[must_use]
pub fn values_of(set: &DocumentSet) -> BTreeMap<String, String> {
    said(set).into_iter().collect()
}

/// A value that two sets do not say alike.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SaidDifference {
    /// Its key, as in [`values_of`].
    pub key: String,
    /// What the first one says; none for nothing.
    pub before: Option<String>,
    /// What the other one says.
    pub after: Option<String>,
}

/// The values that differ between two sets, in order of their keys. Account keys are secret: where there is
/// another one that alone is said.
#[must_use]
pub fn said_differences(before: &DocumentSet, after: &DocumentSet) -> Vec<SaidDifference> {
    let (old_keys, new_keys) = (account_keys(before), account_keys(after));
    let (mut old, mut new) = (values_of(before), values_of(after));
    for (key, account) in &new_keys {
        if old_keys.get(key).is_some_and(|was| was != account) {
            old.insert(key.clone(), "one".to_owned());
            new.insert(key.clone(), "another".to_owned());
        }
    }
    let keys: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    let differ = keys.into_iter().filter(|key| old.get(*key) != new.get(*key));
    let difference = |key: &String| SaidDifference {
        key: key.clone(),
        before: old.get(key).cloned(),
        after: new.get(key).cloned(),
    };
    differ.map(difference).collect()
}

/// The accounts that hosts compute for, under the keys that their values would have.
fn account_keys(set: &DocumentSet) -> BTreeMap<String, &AccountKey> {
    let own = set.fleet.projects.iter();
    let own =
        own.map(|project| (format!("projects.{}.account_key", quoted(&project.name)), &project.account_key));
    let mut keys: BTreeMap<String, &AccountKey> = own.collect();
    for (name, group) in &set.groups.0 {
        for (project, said) in &group.projects {
            if let Some(place) = &said.foreign {
                let (name, project) = (quoted(name.as_str()), quoted(project));
                keys.insert(format!("groups.{name}.projects.{project}.account_key"), &place.account_key);
            }
        }
    }
    keys
}

fn said(set: &DocumentSet) -> Vec<(String, String)> {
    let mut values = Vec::new();
    let mut add = |key: String, value: String| values.push((key, value));
    for project in &set.fleet.projects {
        let name = quoted(&project.name);
        add(format!("projects.{name}.url"), plain(&project.url));
        add(format!("projects.{name}.share"), project.share.get().to_string());
        if let Some(key) = project.code_sign_key {
            add(format!("projects.{name}.code_sign_key"), key.to_string());
        }
        if !project.without.is_empty() {
            add(format!("projects.{name}.without"), project.without.to_string());
        }
    }
    for preference in Preference::all_of(&set.fleet.preferences) {
        add(format!("preferences.{}", preference.key()), told(&preference));
    }
    for (name, group) in &set.groups.0 {
        let name = quoted(name.as_str());
        add(format!("groups.{name}.precedence"), group.precedence.to_string());
        add(format!("groups.{name}.selector"), group.selector.to_string());
        for (project, said) in &group.projects {
            let project = quoted(project);
            if let Some(wish) = said.wish {
                add(format!("groups.{name}.projects.{project}"), wish.to_string());
            }
            if let Some(without) = &said.without {
                add(format!("groups.{name}.projects.{project}.without"), without.to_string());
            }
            if let Some(place) = &said.foreign {
                add(format!("groups.{name}.projects.{project}.url"), plain(&place.url));
                if let Some(key) = place.code_sign_key {
                    add(format!("groups.{name}.projects.{project}.code_sign_key"), key.to_string());
                }
            }
        }
        for preference in &group.preferences {
            add(format!("groups.{name}.preferences.{}", preference.key()), told(preference));
        }
    }
    values
}

/// The value of a preference. What people name stands in quotes, so that no two lists look alike.
fn told(preference: &Preference) -> String {
    match preference {
        Preference::ExclusivePrograms(names) | Preference::ExclusiveGpuPrograms(names) => listed(names),
        Preference::ExcludedOfProjects(exclusions) => listed(exclusions),
        Preference::JobsNetwork(Some(projects)) => listed(projects),
        _ => preference.to_string(),
    }
}

fn listed<T: ToString>(all: &BTreeSet<T>) -> String {
    let quoted: Vec<_> = all.iter().map(|one| format!("\"{}\"", plain(one))).collect();
    if quoted.is_empty() { "none".to_owned() } else { quoted.join(", ") }
}

/// A name that is told from all others, however it looks.
fn quoted(name: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    if !name.is_empty() && name.chars().all(is_plain) {
        name.to_owned()
    } else {
        format!("\"{}\"", name.escape_default())
    }
}

/// A text without letters that look like others.
fn plain(text: &impl ToString) -> String {
    text.to_string().escape_default().to_string()
}
