//! The files of this repository, without what is built.

use std::fs;
use std::path::{Path, PathBuf};

/// All text files of the tree with their path from its root, in order.
pub(crate) fn texts() -> Vec<(String, String)> {
    let mut files = Vec::new();
    collect(&root(), &mut files);
    files.sort();
    let texts = files.into_iter().filter_map(|path| {
        let text = fs::read_to_string(&path).ok()?;
        Some((path.strip_prefix(root()).unwrap().to_str().unwrap().to_owned(), text))
    });
    texts.collect()
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            // Build outputs lie where CARGO_TARGET_DIR says, so they are told by their tag as well.
            if !is_ignored(&entry.path()) && !entry.path().join("CACHEDIR.TAG").exists() {
                collect(&entry.path(), files);
            }
        } else if kind.is_file() && entry.metadata().unwrap().len() < 2 << 20 {
            files.push(entry.path());
        }
    }
}

/// Folders at the root that are git's own, or that `.gitignore` names (`/target`, `/target-*`).
fn is_ignored(folder: &Path) -> bool {
    let Ok(name) = folder.strip_prefix(root()) else { return false };
    let name = name.to_str().unwrap_or_default();
    let ignored = fs::read_to_string(root().join(".gitignore")).unwrap();
    let named = ignored.lines().filter_map(|line| line.strip_prefix('/')).any(|pattern| {
        match pattern.strip_suffix('*') {
            Some(start) => name.starts_with(start),
            None => name == pattern,
        }
    });
    named || name == ".git"
}

pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_path_buf()
}
