//! What the files of this repository say outside of their tests.
//!
//! Tests are files in folders called `tests`, modules that stand behind `#[cfg(test)]`, and what follows such
//! a one at the foot of a file.

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

use crate::tree::texts;

/// All files that are no tests, with their path from the root and their text up to their tests, in order.
pub(crate) fn own_texts() -> Vec<(String, String)> {
    let mut texts = texts();
    let tests: BTreeSet<PathBuf> = texts.iter().flat_map(|(path, text)| test_files(path, text)).collect();
    texts.retain(|(path, _)| {
        !path.contains("/tests/") && !tests.iter().any(|test| Path::new(path).starts_with(test))
    });
    texts.iter_mut().for_each(|(_, text)| text.truncate(up_to_tests(text).len()));
    texts
}

fn up_to_tests(text: &str) -> &str {
    let mut marks = text.match_indices("\n#[cfg(test)]\n");
    let is_module =
        |after: usize| text[after..].lines().next().is_some_and(|line| line.contains("mod tests {"));
    marks.find(|(at, mark)| is_module(at + mark.len())).map_or(text, |(at, _)| &text[..=at])
}

/// The files and folders of the modules that a file has for tests alone.
fn test_files(path: &str, text: &str) -> Vec<PathBuf> {
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let mut found = Vec::new();
    for at in (0..lines.len()).filter(|at| lines[*at] == "#[cfg(test)]") {
        let mut after = lines[at + 1..].iter();
        let folder = Path::new(path).parent().unwrap();
        let next = after.next().copied().unwrap_or_default();
        if let Some(file) = next.strip_prefix("#[path = \"").and_then(|rest| rest.strip_suffix("\"]")) {
            found.push(folder.join(file).components().filter(|part| *part != Component::CurDir).collect());
        } else if let Some(name) = next.split_once("mod ").and_then(|(_, rest)| rest.strip_suffix(';')) {
            let is_head = ["mod.rs", "lib.rs", "main.rs"].iter().any(|head| path.ends_with(head));
            let folder = if is_head { folder.to_owned() } else { Path::new(path).with_extension("") };
            found.extend([folder.join(name).with_extension("rs"), folder.join(name)]);
        }
    }
    found
}

#[test]
fn tests_are_told_by_their_attribute() {
    let attribute = ["#[cfg", "(test)]"].concat();
    let text = format!("one\n{attribute}\nfn two() {{}}\n{attribute}\nmod tests {{\nthree\n");
    assert_eq!(up_to_tests(&text), format!("one\n{attribute}\nfn two() {{}}\n"));
    let modules = format!("{attribute}\nmod tests;\n{attribute}\n#[path = \"c_tests.rs\"]\nmod more;\n");
    let files = ["a/b/tests.rs", "a/b/tests", "a/c_tests.rs"].map(PathBuf::from);
    assert_eq!(test_files("a/b.rs", &modules), files);
}
