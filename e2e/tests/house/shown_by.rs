//! docs/requirements-tests.md: the tests of each requirement, as their names and doc comments say.
//!
//! The ids of a test are that at the start of its name (`r6_2_...`) and those in the doc comment above it
//! (`/// Shows R6.2.`).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use crate::generated;
use crate::none;
use crate::places::places;
use crate::requirements::{Row, cited, listed, order};
use crate::tree::texts;

const LIST: &str = "docs/requirements-tests.md";

#[test]
fn the_list_of_the_requirements_tests_is_that_of_the_code() {
    generated::check(LIST, &list(&tests()));
}

#[test]
fn every_requirement_has_a_test_or_says_that_it_has_none() {
    let (tests, places) = (tests(), places());
    let needs = |id: &String, row: &Row| !row.needs_no_test(places.get(id));
    let without = listed().into_iter().filter(|(id, row)| needs(id, row) && !tests.contains_key(id));
    let without: Vec<String> = without.map(|(id, _)| id).collect();
    none(&without, "shown by no test and no check of .ci, without a `nothing_yet` in docs/requirements.toml");
}

#[test]
fn a_tests_ids_are_those_of_its_name_and_of_its_doc_comment() {
    // In pieces, because this file is read too.
    let attribute = ["#[", "test]"].concat();
    let text = format!(
        "/// See R1.1.\nstruct None;\n/// Shows R2.3 and R2.10.\n{attribute}\n#[ignore = \"R1.2\"]\nfn r1_4_one() {{}}\n\
         {attribute}\nfn two() {{}}\n/// Shows R1.5.\nfn no_test() {{}}\n"
    );
    let found = tests_in(&text);
    let ids = |ids: &[&str]| ids.iter().map(|id| (*id).to_owned()).collect::<BTreeSet<_>>();
    let right = [("r1_4_one".to_owned(), ids(&["R1.4", "R2.3", "R2.10"])), ("two".to_owned(), ids(&[]))];
    assert_eq!(found, right);
}

/// By requirement and file: the names of its tests.
type Tests = BTreeMap<String, BTreeMap<String, BTreeSet<String>>>;

fn tests() -> Tests {
    let mut all = Tests::new();
    for (path, text) in texts().into_iter().filter(|(path, _)| path.ends_with(".rs")) {
        for (name, ids) in tests_in(&text) {
            for id in ids {
                all.entry(id).or_default().entry(path.clone()).or_default().insert(name.clone());
            }
        }
    }
    all
}

/// The tests of a file with their ids.
fn tests_in(text: &str) -> Vec<(String, BTreeSet<String>)> {
    let mut found = Vec::new();
    let (mut comment, mut is_test) = (BTreeSet::new(), false);
    for line in text.lines().map(str::trim) {
        if line.starts_with("///") {
            comment.extend(cited(line));
        } else if line.starts_with("#[") {
            is_test |= line.starts_with("#[test]") || line.starts_with("#[tokio::test");
        } else {
            let name = line.strip_prefix("fn ").or(line.strip_prefix("async fn ")).filter(|_| is_test);
            if let Some(name) = name.and_then(|rest| rest.split(['(', '<']).next()) {
                comment.extend(cited(name));
                found.push((name.to_owned(), comment));
            }
            (comment, is_test) = (BTreeSet::new(), false);
        }
    }
    found
}

fn list(tests: &Tests) -> String {
    let mut text = format!(
        "# Tests of each requirement\n\
         What [requirements.md](requirements.md) asks for, and the tests that show it, file by file. A test belongs to\n\
         the ids in its name (`r6_2_...` is R6.2) and in its doc comment. This file is generated and not to be edited;\n\
         this command writes it anew:\n\n```console\n$ {}\n```\n",
        generated::COMMAND
    );
    let mut ids: Vec<&String> = tests.keys().collect();
    ids.sort_by_key(|id| order(id));
    for id in ids {
        writeln!(text, "\n## {id}").unwrap();
        for (path, names) in &tests[id] {
            writeln!(text, "- {path}").unwrap();
            for name in names {
                writeln!(text, "  - `{name}`").unwrap();
            }
        }
    }
    text
}
