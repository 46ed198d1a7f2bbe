//! What signed documents say, value by value: what somebody looks at before he signs.

use std::collections::BTreeMap;

use crate::{DocumentSet, Preference};

/// Every value of a set under a key, such as `projects.sieve.url` or `groups.room-12.selector`.
#[must_use]
pub fn values_of(set: &DocumentSet) -> BTreeMap<String, String> {
    let mut values = BTreeMap::new();
    let mut add = |key: String, value: String| drop(values.insert(key, value));
    for project in &set.fleet.projects {
        add(format!("projects.{}.url", project.name), project.url.to_string());
        add(format!("projects.{}.share", project.name), project.share.get().to_string());
    }
    for preference in Preference::all_of(&set.fleet.preferences) {
        add(format!("preferences.{}", preference.key()), preference.to_string());
    }
    for (name, group) in &set.groups.0 {
        add(format!("groups.{name}.precedence"), group.precedence.to_string());
        add(format!("groups.{name}.selector"), group.selector.to_string());
        for (project, said) in &group.projects {
            add(format!("groups.{name}.projects.{project}"), said.wish.to_string());
            if let Some(place) = &said.foreign {
                add(format!("groups.{name}.projects.{project}.url"), place.url.to_string());
            }
        }
        for preference in &group.preferences {
            add(format!("groups.{name}.preferences.{}", preference.key()), preference.to_string());
        }
    }
    values
}
