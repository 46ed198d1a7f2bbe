//! Whether a host computes by the layers that confine jobs there (R6.10).
//!
//! Model: preferences name layers without which nothing is computed, or all. The shell says which layers the
//! host has. What it does not know, and all as long as it has not looked, counts as lacking: a layer is
//! required because jobs are not trusted.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use fallow_domain::RequiredLayer;

/// A layer of confinement on a host, as the shell found it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostLayer {
    /// Its name.
    pub name: String,
    /// Why it is off, if it is.
    pub off: Option<String>,
    /// It counts where all layers are required: a host of this kind can have it.
    pub is_of_all: bool,
}

/// Layers that are required of a host and off there, with why. None lacking where it may compute.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lacking(BTreeMap<String, String>);

impl Lacking {
    /// Whether nothing is lacking.
    pub fn is_nothing(&self) -> bool {
        self.0.is_empty()
    }
}

/// For people, such as `files (switched off)`; layers that are off for the same reason stand together.
impl fmt::Display for Lacking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut by_reason: Vec<(&str, Vec<&str>)> = Vec::new();
        for (name, why) in &self.0 {
            match by_reason.iter_mut().find(|(reason, _)| reason == why) {
                Some((_, names)) => names.push(name),
                None => by_reason.push((why, vec![name])),
            }
        }
        let groups: Vec<String> =
            by_reason.iter().map(|(why, names)| format!("{} ({why})", names.join(", "))).collect();
        f.write_str(&groups.join("; "))
    }
}

/// Layers that the shell gives to each task anew, and may be unable to give to one although others have them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TaskLayers {
    /// Directories of its own in place of `/tmp` and others (`tmp`).
    pub tmp: bool,
    /// A control group of its own (`groups`).
    pub groups: bool,
}

impl TaskLayers {
    /// Those that both have.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self { tmp: self.tmp && other.tmp, groups: self.groups && other.groups }
    }

    /// Whether there is any.
    pub const fn any(self) -> bool {
        self.tmp || self.groups
    }
}

/// Those of them that are required of each task. All layers are without control groups: where a task has
/// none, other means hold it to the same limits.
#[must_use]
pub fn required_of_tasks(required: &BTreeSet<RequiredLayer>, layers: Option<&[HostLayer]>) -> TaskLayers {
    let is_named = |name: &str| required.iter().any(|one| one.name() == name);
    let has_tmp = |layer: &HostLayer| layer.name == "tmp" && layer.is_of_all;
    let all = required.iter().any(RequiredLayer::is_all);
    let all_have_tmp = all && layers.is_some_and(|layers| layers.iter().any(has_tmp));
    TaskLayers { tmp: is_named("tmp") || all_have_tmp, groups: is_named("groups") }
}

/// What a host lacks of the layers that are required. `layers` is none until the shell has looked.
#[must_use]
pub fn lacking(required: &BTreeSet<RequiredLayer>, layers: Option<&[HostLayer]>) -> Lacking {
    let Some(layers) = layers else {
        let why = "it has not been looked yet whether this host has it";
        return Lacking(required.iter().map(|one| (one.name().to_owned(), why.to_owned())).collect());
    };
    let mut lacking = BTreeMap::new();
    for one in required {
        if one.is_all() {
            let off = layers.iter().filter(|layer| layer.is_of_all);
            lacking.extend(off.filter_map(|layer| Some((layer.name.clone(), layer.off.clone()?))));
            continue;
        }
        let why = match layers.iter().find(|layer| layer.name == one.name()) {
            Some(layer) => layer.off.clone(),
            None => Some("this version of the agent does not know it".to_owned()),
        };
        lacking.extend(why.map(|why| (one.name().to_owned(), why)));
    }
    Lacking(lacking)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layer(name: &str, off: Option<&str>, is_of_all: bool) -> HostLayer {
        HostLayer { name: name.to_owned(), off: off.map(str::to_owned), is_of_all }
    }

    fn said(required: &str, layers: Option<&[HostLayer]>) -> String {
        let names = required.split(',').filter(|name| !name.is_empty());
        let required = names.map(|name| RequiredLayer::of_stored(name).unwrap()).collect();
        lacking(&required, layers).to_string()
    }

    #[test]
    fn r6_10_a_host_lacks_what_is_required_and_off_and_each_reason_is_said_once() {
        let layers = [
            layer("files", Some("no Landlock"), true),
            layer("lengths", Some("no Landlock"), true),
            layer("calls", None, true),
            layer("user", Some("not root's"), false),
            layer("groups", Some("not its own"), false),
        ];
        for (required, expected) in [
            ("", ""),
            ("calls", ""),
            ("calls,files", "files (no Landlock)"),
            // `all` asks for what a host of this kind can have, and what it cannot have is asked for by name.
            ("all", "files, lengths (no Landlock)"),
            ("all,user", "files, lengths (no Landlock); user (not root's)"),
            ("groups", "groups (not its own)"),
            ("namespaces", "namespaces (this version of the agent does not know it)"),
        ] {
            assert_eq!(said(required, Some(&layers)), expected, "{required}");
        }
        assert_eq!(said("all", Some(&[layer("files", None, true)])), "");
    }

    #[test]
    fn r6_10_each_task_has_to_have_what_is_required_and_all_is_what_such_a_host_can_have() {
        let layers = [layer("tmp", None, true), layer("groups", None, true)];
        let found = |required: &str| {
            let names = required.split(',').filter(|name| !name.is_empty());
            let required = names.map(|name| RequiredLayer::of_stored(name).unwrap()).collect();
            let found = required_of_tasks(&required, Some(&layers));
            (found.tmp, found.groups)
        };
        assert_eq!(found(""), (false, false));
        assert_eq!(found("files"), (false, false));
        assert_eq!(found("tmp"), (true, false));
        assert_eq!(found("groups,tmp"), (true, true));
        assert_eq!(found("all"), (true, false));
    }

    #[test]
    fn r6_10_until_it_was_looked_all_that_is_required_is_lacking() {
        assert_eq!(said("", None), "");
        assert!(said("all", None).starts_with("all (it has not been looked"));
        assert!(said("files", None).starts_with("files (it has not been looked"));
    }
}
