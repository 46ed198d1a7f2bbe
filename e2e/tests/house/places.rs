//! Where requirements are met: the files that name them outside of their tests, which show requirements and
//! are no places of theirs. Of the documents only those in `docs` count: the others speak of ids as such.

use std::collections::{BTreeMap, BTreeSet};

use crate::own_code::own_texts;
use crate::requirements::cited;

/// By requirement: paths from the root.
pub(crate) type Places = BTreeMap<String, BTreeSet<String>>;

pub(crate) fn places() -> Places {
    let mut places = Places::new();
    for (path, text) in own_texts() {
        // The lists are made of what is found here.
        let is_list = path.starts_with("docs/requirements");
        if is_list || path.ends_with(".md") && !path.starts_with("docs/") {
            continue;
        }
        for id in cited(&in_one_line(&text)) {
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
    assert_eq!(cited(&in_one_line("//! Does R1.1 to\n//! R1.3.\n")), ["R1.1", "R1.2", "R1.3"]);
    assert_eq!(cited(&in_one_line("# R1.4\n# R1.6\n")), ["R1.4", "R1.6"]);
}
