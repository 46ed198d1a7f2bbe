//! A change of groups, as operators give it: files that put groups in place, and names of those to remove.

use std::collections::BTreeMap;

use fallow_config::{Diagnostic, Diagnostics, Severity, Source};

use crate::file::GroupFile;
use crate::{DocumentSet, GROUPS_MAX, GroupName, Groups};

/// Bytes of a group's file at most.
pub const FILE_BYTES_MAX: usize = 64 << 10;

/// The text of a group's file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupText {
    /// The file, as it was named.
    pub file: String,
    /// What stands in it.
    pub text: String,
}

/// A change of groups.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// Files, one a group: each takes the place of the group of its name. Their order means nothing.
    pub files: Vec<GroupText>,
    /// Groups to remove.
    pub remove: Vec<String>,
    /// Whether to remove all groups that none of the files is of.
    pub prune: bool,
}

/// A change that is not made.
#[derive(Debug, thiserror::Error)]
pub enum ChangeError {
    /// Everything that is wrong in the files.
    #[error(transparent)]
    Files(#[from] Diagnostics),
    /// A group to be removed that is not there.
    #[error("there is no group {name:?} (there is: {known}): `fallow groups` lists them")]
    UnknownGroup {
        /// The name as given.
        name: String,
        /// The names there are.
        known: String,
    },
}

/// A change whose files were read: that takes time, and needs no documents.
pub struct ReadChange<'c> {
    change: &'c Change,
    read: Vec<GroupFile<'c>>,
    /// What is wrong with files that were not read.
    whole: Vec<Diagnostic>,
}

impl Change {
    /// The groups after this change of a fleet's documents.
    ///
    /// # Errors
    /// [`ChangeError`] with everything that is wrong in the files, or the first group that cannot be removed.
    pub fn groups(&self, set: &DocumentSet) -> Result<Groups, ChangeError> {
        self.read().groups(set)
    }

    /// Reads the files. What is wrong with them is said by [`ReadChange::groups`], with all else.
    #[must_use]
    pub fn read(&self) -> ReadChange<'_> {
        let mut texts: Vec<&GroupText> = self.files.iter().collect();
        texts.sort_by(|a, b| a.file.cmp(&b.file));
        let mut read: Vec<GroupFile<'_>> = Vec::new();
        let mut by_name: BTreeMap<GroupName, usize> = BTreeMap::new();
        let mut whole = Vec::new();
        for GroupText { file, text } in texts.iter().copied() {
            if text.len() > FILE_BYTES_MAX || read.len() == GROUPS_MAX {
                let problem = if text.len() > FILE_BYTES_MAX {
                    format!("the file has {} bytes, more than {FILE_BYTES_MAX}", text.len())
                } else {
                    format!("there are more than {GROUPS_MAX} files")
                };
                whole.push(of_whole(file, problem));
                continue;
            }
            let mut group = GroupFile::read(Source { file, text });
            if let Some((name, said)) = group.group.take() {
                match by_name.get(&name).and_then(|at| texts.get(*at)) {
                    Some(other) => {
                        let reason = format!("group {name} stands in {} as well", other.file);
                        group.error("name", &reason, "each group in one file");
                    }
                    None => {
                        by_name.insert(name.clone(), read.len() + whole.len());
                        group.group = Some((name, said));
                    }
                }
            }
            read.push(group);
        }
        ReadChange { change: self, read, whole }
    }
}

impl ReadChange<'_> {
    /// The groups after this change of a fleet's documents.
    ///
    /// # Errors
    /// As [`Change::groups`].
    pub fn groups(self, set: &DocumentSet) -> Result<Groups, ChangeError> {
        let Change { remove, prune, .. } = self.change;
        let mut groups = if *prune { Groups::default() } else { set.groups.clone() };
        for name in remove {
            let found = name.parse::<GroupName>().ok().filter(|name| set.groups.0.contains_key(name));
            let found = found.ok_or_else(|| {
                let known: Vec<&str> = set.groups.0.keys().map(GroupName::as_str).collect();
                let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
                ChangeError::UnknownGroup { name: name.clone(), known }
            })?;
            groups.0.remove(&found);
        }
        self.put(&mut groups, set)?;
        Ok(groups)
    }

    /// Puts the groups of all files in place.
    fn put(self, groups: &mut Groups, set: &DocumentSet) -> Result<(), Diagnostics> {
        let Self { mut read, mut whole, .. } = self;
        groups.0.extend(read.iter().filter_map(|file| file.group.clone()));
        let after = DocumentSet { fleet: set.fleet.clone(), groups: groups.clone() };
        let mut elsewhere = Vec::new();
        for problem in after.problems() {
            let of_group = |file: &&mut GroupFile<'_>| {
                file.group.as_ref().is_some_and(|(name, _)| *name == problem.group)
            };
            match read.iter_mut().find(of_group) {
                Some(file) => file.error(&problem.key, &problem.reason, &problem.expected),
                None => elsewhere.push(of_whole(&format!("group {}", problem.group), problem.to_string())),
            }
        }
        let mut found: Vec<Diagnostic> = read.into_iter().flat_map(GroupFile::finish).collect();
        found.append(&mut whole);
        // Of groups that stay as they are only what no file is to blame for: they no longer go with the
        // others.
        if found.is_empty() {
            found = elsewhere;
        }
        if found.is_empty() { Ok(()) } else { Err(Diagnostics(found)) }
    }
}

fn of_whole(file: &str, problem: String) -> Diagnostic {
    Source { file, text: "" }.diagnose(Severity::Error, 0..0, "", problem).without_excerpt()
}

#[cfg(test)]
#[path = "change_tests.rs"]
mod tests;
