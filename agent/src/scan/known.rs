//! Which file something in a project's directory is, or is a part of.

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};

use crate::dir::packed_name;

/// What the name of a part ends in that comes compressed. Once it is whole it has another name: see
/// [`packed_name`].
const PACKED: &str = ".gzt";

/// What a file is called among the parts as long as it comes compressed.
pub(super) fn coming_name(name: &str) -> String {
    format!("{name}{PACKED}")
}

/// The names that are known in a project's directory.
pub(super) struct Known<'a> {
    names: &'a BTreeSet<String>,
    /// By what they are called when they have come compressed, until they are expanded. Few are: it is worked
    /// out when there is one.
    packed: OnceCell<BTreeMap<String, &'a str>>,
}

impl<'a> Known<'a> {
    pub(super) const fn new(names: &'a BTreeSet<String>) -> Self {
        Self { names, packed: OnceCell::new() }
    }

    pub(super) fn contains(&self, name: &str) -> bool {
        self.names.contains(name)
    }

    /// Of which file this is a part that comes or has come compressed, if it is one of a known file.
    pub(super) fn unpacked<'n>(&'n self, part: &'n str) -> Option<&'n str> {
        if let Some(name) = part.strip_suffix(PACKED) {
            return Some(name).filter(|name| self.contains(name));
        }
        let all = || self.names.iter().map(|name| (packed_name(name), name.as_str())).collect();
        part.starts_with('%').then(|| self.packed.get_or_init(all).get(part).copied()).flatten()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use fallow_client::FileKey;
    use fallow_domain::ProjectId;

    use super::super::{Places, look_again};
    use super::*;
    use crate::dir::{DataDir, PARTIAL};

    #[test]
    fn r4_1_what_has_come_compressed_is_part_of_its_file_until_it_is_expanded() {
        let place = tempfile::tempdir().unwrap();
        let dir = DataDir::at(place.path());
        let project = dir.projects().join("one");
        let parts = project.join(PARTIAL);
        fs::create_dir_all(&parts).unwrap();
        let [coming, come, forgotten] = [coming_name("f"), packed_name("f"), packed_name("g")];
        fs::write(parts.join("f"), vec![1; 50_000]).unwrap();
        // Of no file that is known.
        fs::write(parts.join(forgotten), vec![1; 10_000]).unwrap();
        let key = FileKey { project: ProjectId(0), name: "f".to_owned() };
        let known = BTreeMap::from([(ProjectId(0), BTreeSet::from(["f".to_owned()]))]);
        let places = Places::new(dir, vec![(ProjectId(0), project.clone())], known);
        fs::write(parts.join(&coming), vec![1; 300_000]).unwrap();
        for renamed in [false, true] {
            if renamed {
                fs::rename(parts.join(&coming), parts.join(&come)).unwrap();
            }
            let mut found = places.scan().unwrap();
            let mut lengths: Vec<u64> = found.files.iter().map(|file| file.length.0).collect();
            lengths.sort_unstable();
            assert_eq!(lengths, [50_000, 300_000], "renamed: {renamed}");
            assert!(found.files.iter().all(|file| file.key == key && file.is_part), "{found:?}");
            // Looked at once more, it takes neither less nor more.
            let before = (found.projects.clone(), found.ours);
            found.put([(key.clone(), look_again(&project, &key).unwrap())].into());
            assert_eq!((found.projects, found.ours), before, "renamed: {renamed}");
        }
    }
}
