//! Where requirements are met: the files that name them outside of their tests, which show requirements and
//! are no places of theirs.
//!
//! An id counts as `R` with its numbers, not as the start of a test's name. Of the documents only those in
//! `docs` count: the others speak of ids as such. Commands that CI does not run (`.ci/not-run`) show nothing.

use std::collections::{BTreeMap, BTreeSet};

use crate::own_code::own_texts;
use crate::requirements::cited_as_such;

/// By requirement: paths from the root.
pub(crate) type Places = BTreeMap<String, BTreeSet<String>>;

pub(crate) fn places() -> Places {
    let mut places = Places::new();
    for (path, text) in own_texts() {
        // The lists are made of what is found here.
        let is_list = path.starts_with("docs/requirements");
        if is_list || path == ".ci/not-run" || path.ends_with(".md") && !path.starts_with("docs/") {
            continue;
        }
        for id in cited_as_such(&in_one_line(&text)) {
            places.entry(id).or_default().insert(path.clone());
        }
    }
    places
}

/// Without the marks of comments: a range of ids may be broken over two lines.
fn in_one_line(text: &str) -> String {
    let lines = text.lines().map(|line| line.trim().trim_start_matches(['/', '!', '#']).trim_start());
    lines.collect::<Vec<_>>().join(" ")
}

#[test]
fn a_range_of_ids_may_be_broken_over_lines() {
    assert_eq!(cited_as_such(&in_one_line("//! Does R1.1 to\n//! R1.3.\n")), ["R1.1", "R1.2", "R1.3"]);
    assert_eq!(cited_as_such(&in_one_line("# R1.4\n# R1.6\n")), ["R1.4", "R1.6"]);
}

#[test]
fn neither_names_of_tests_nor_commands_that_are_not_run_are_places() {
    let places = places();
    assert!(places.values().all(|paths| !paths.contains(".ci/not-run")));
    assert_eq!(cited_as_such(&in_one_line("cargo test r1_4_\n")), [""; 0]);
}
