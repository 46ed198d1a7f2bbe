//! Where requirements are met: the files that name them.
//!
//! Tests show requirements and are no places of theirs: neither files in folders called `tests`, nor those
//! that stand behind `#[cfg(test)]`, nor what follows it at the foot of a file. Of the documents only those
//! in `docs` count: the others speak of ids as such.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

use crate::requirements::cited;
use crate::tree::texts;

/// By requirement: paths from the root.
pub(crate) type Places = BTreeMap<String, BTreeSet<String>>;

pub(crate) fn places() -> Places {
    let texts = texts();
    let tests: BTreeSet<PathBuf> = texts.iter().flat_map(|(path, text)| test_files(path, text)).collect();
    let mut places = Places::new();
    for (path, text) in &texts {
        let is_test = tests.iter().any(|test| Path::new(path).starts_with(test) || path.contains("/tests/"));
        // Made of what is found here.
        let is_list = path.starts_with("docs/requirements");
        if is_test || is_list {
            continue;
        }
        for id in cited(&own_words(path, text)) {
            places.entry(id).or_default().insert(path.clone());
        }
    }
    places
}

/// What a file says outside of its tests, as one line: a range of ids in a comment may be broken over two.
fn own_words(path: &str, text: &str) -> String {
    if path.ends_with(".md") && !path.starts_with("docs/") {
        return String::new();
    }
    let tests = text.match_indices("\n#[cfg(test)]\n").map(|(start, mark)| (start, start + mark.len()));
    let opens = |from: &usize| text[*from..].lines().next().is_some_and(|line| line.contains("mod tests {"));
    let end = tests.filter(|(_, after)| opens(after)).map(|(start, _)| start).next().unwrap_or(text.len());
    let lines = text[..end].lines().map(|line| line.trim().trim_start_matches(['/', '!', '#']).trim_start());
    lines.collect::<Vec<_>>().join(" ")
}

/// The files and folders of the modules that a file has for tests alone.
fn test_files(path: &str, text: &str) -> Vec<PathBuf> {
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let mut found = Vec::new();
    for at in (0..lines.len()).filter(|at| lines[*at] == "#[cfg(test)]") {
        let mut after = lines[at + 1..].iter();
        let folder = Path::new(path).parent().unwrap();
        let mut next = after.next().copied().unwrap_or_default();
        let named = next.strip_prefix("#[path = \"").and_then(|rest| rest.strip_suffix("\"]"));
        if let Some(file) = named {
            found.push(normal(&folder.join(file)));
            next = after.next().copied().unwrap_or_default();
        }
        let name = next.split_once("mod ").and_then(|(_, rest)| rest.strip_suffix(';'));
        if let (Some(name), None) = (name, named) {
            let is_head = ["mod.rs", "lib.rs", "main.rs"].iter().any(|head| path.ends_with(head));
            let stem = Path::new(path).with_extension("");
            let folder = if is_head { folder } else { &stem };
            found.extend([folder.join(name).with_extension("rs"), folder.join(name)]);
        }
    }
    found
}

fn normal(path: &Path) -> PathBuf {
    path.components().filter(|part| *part != Component::CurDir).collect()
}

#[test]
fn what_tests_cite_makes_no_place() {
    let attribute = ["#[cfg", "(test)]"].concat();
    let text = format!(
        "//! Does R1.1 to\n//! R1.3.\nconst RULE: &str = \"R2.1\";\n  // As in R2.2.\n\n{attribute}\nmod tests {{\n// R2.3.\n}}\n"
    );
    assert_eq!(cited(&own_words("shared/a/src/b.rs", &text)), ["R1.1", "R1.2", "R1.3", "R2.1", "R2.2"]);
    assert_eq!(cited(&own_words("run", "# For R6.12.\n")), ["R6.12"]);
    let modules = format!("{attribute}\nmod tests;\n{attribute}\n#[path = \"c_tests.rs\"]\nmod more;\n");
    let files = ["a/b/tests.rs", "a/b/tests", "a/c_tests.rs"].map(PathBuf::from);
    assert_eq!(test_files("a/b.rs", &modules), files);
}
