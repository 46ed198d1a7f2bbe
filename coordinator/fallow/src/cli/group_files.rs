//! Files of groups, as operators name them: files, or directories of them.

use std::path::{Path, PathBuf};

use fallow_fleet::GROUPS_MAX;
use fallow_proto::operator::v1::GroupFile;

use super::{Failure, bounded};

/// Bytes that are read of a file at most. What is longer than a group may be, but not absurd, is refused by
/// the coordinator, with all else that is wrong.
const READ_MAX: u64 = 1 << 20;

/// Reads all files that are named, and those of a directory that end in `.toml`, by their names.
///
/// # Errors
/// [`Failure`] for the first that cannot be read, and for a directory without any.
pub(super) fn read(paths: &[PathBuf]) -> Result<Vec<GroupFile>, Failure> {
    let mut files = Vec::new();
    for path in paths {
        if path.is_dir() {
            files.extend(within(path)?);
        } else {
            files.push(path.clone());
        }
    }
    // One that is named twice, or beside its directory, is one file.
    files.sort();
    files.dedup();
    // Each is a group, and a fleet has no more.
    if files.len() > GROUPS_MAX {
        let text =
            format!("{} files are named, and a fleet has up to {GROUPS_MAX} groups: name fewer", files.len());
        return Err(Failure::bad_input(text));
    }
    files.iter().map(|path| one(path)).collect()
}

fn within(dir: &Path) -> Result<Vec<PathBuf>, Failure> {
    let unreadable = |error| Failure::file("read", dir, error);
    let mut files = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        if path.extension().is_some_and(|extension| extension == "toml") && path.is_file() {
            files.push(path);
        }
    }
    match files.is_empty() {
        true => {
            let text =
                format!("{} holds no file that ends in .toml: each group is one such file", dir.display());
            Err(Failure::bad_input(text))
        }
        false => Ok(files),
    }
}

fn one(path: &Path) -> Result<GroupFile, Failure> {
    let bytes = bounded::read("group", path, READ_MAX)?;
    // What is not text is shown with its line by whoever reads the groups.
    let text = String::from_utf8_lossy(&bytes).into_owned();
    Ok(GroupFile { name: path.display().to_string(), text })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r6_4_files_and_directories_are_read_once_each_and_in_one_order() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["b.toml", "a.toml", "notes.md"] {
            std::fs::write(dir.path().join(name), name).unwrap();
        }
        let read = read(&[dir.path().join("b.toml"), dir.path().to_owned()]).unwrap();
        assert_eq!(read.iter().map(|file| file.text.as_str()).collect::<Vec<_>>(), ["a.toml", "b.toml"]);
        let empty = tempfile::tempdir().unwrap();
        for bad in [empty.path().to_owned(), dir.path().join("c.toml")] {
            assert_eq!(super::read(&[bad]).unwrap_err().code().number(), 3);
        }
        let error = super::read(&["/dev/zero".into()]).unwrap_err();
        assert!(error.to_string().contains("group /dev/zero has more than 1 MiB"), "{error}");
    }
}
