//! The house keeps its own rules: what documents say is there, what code cites is listed, commands are run.
//!
//! Text only: nothing here builds or starts anything, so that a wrong word in a document costs seconds to
//! find.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests: failures are panics")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

mod client_parts;
mod generated;
mod import_circles;
mod own_code;
mod places;
mod preferences;
mod requirements;
mod shown_by;
mod tree;

use tree::{root, texts};

/// A clone stands alone.
#[test]
fn nothing_names_a_place_outside_the_repository() {
    // In pieces, because this file is read too. A path up and down again into the tree's own `shared` is
    // none.
    let (beside, elsewhere) = (["..", "/shared/"].concat(), ["/wo", "rk/"].concat());
    let is_own = |rest: &str| {
        let end = rest.find(['"', '\'', ')', '`', ' ']).unwrap_or(rest.len());
        end > 0 && root().join("shared").join(&rest[..end]).exists()
    };
    let mut wrong = Vec::new();
    for (path, text) in texts() {
        for (number, line) in text.lines().enumerate() {
            if line.split(beside.as_str()).skip(1).any(|rest| !is_own(rest))
                || line.contains(elsewhere.as_str())
            {
                wrong.push(format!("{path}:{}: {}", number + 1, line.trim()));
            }
        }
    }
    none(&wrong, "places outside");
}

/// A reader can rely on every command shown: CI ran it (`.ci/docs`), or `.ci/not-run` says why not.
#[test]
fn every_command_shown_is_run_or_declared_with_the_reason() {
    let declared = declared();
    let mut used = BTreeSet::new();
    let mut wrong = Vec::new();
    for path in documents() {
        let text = fs::read_to_string(root().join(&path)).unwrap();
        let mut fence: Option<String> = None;
        for (number, line) in text.lines().enumerate() {
            let place = format!("{path}:{}", number + 1);
            if let Some(info) = line.trim_start().strip_prefix("```") {
                fence = if fence.is_some() { None } else { Some(info.trim().to_owned()) };
                continue;
            }
            let Some(info) = &fence else { continue };
            let command = line.trim().trim_start_matches("$ ");
            let is_ours = ["cargo ", "fallow ", "fallow-agent ", "./target/"]
                .iter()
                .any(|start| command.starts_with(start));
            match info.as_str() {
                "sh" => {}
                "console" if !command.is_empty() && line.starts_with("$ ") => {
                    if declared.contains_key(command) {
                        used.insert(command.to_owned());
                    } else {
                        wrong.push(format!("{place}: not in .ci/not-run: {command}"));
                    }
                }
                "console" => {}
                other if is_ours => {
                    wrong.push(format!("{place}: a command in a {other:?} block is never run: {command}"));
                }
                _ => {}
            }
        }
    }
    wrong.extend(
        declared
            .keys()
            .filter(|command| !used.contains(*command))
            .map(|command| format!(".ci/not-run: shown nowhere: {command}")),
    );
    none(&wrong, "commands");
}

/// The lists of places in CONTRIBUTING.md lead somewhere.
#[test]
fn every_path_in_the_contributors_guide_exists() {
    let text = fs::read_to_string(root().join("CONTRIBUTING.md")).unwrap();
    let quoted = text.split('`').skip(1).step_by(2);
    let paths = quoted.filter(|part| part.contains('/') && !part.contains(char::is_whitespace));
    let missing: Vec<String> = paths.filter(|path| !root().join(path).exists()).map(str::to_owned).collect();
    none(&missing, "no such place, in CONTRIBUTING.md");
}

/// Comments keep to the width that rustfmt gives to code; it does not look at them. Rows of tables have to be
/// as long as they are.
#[test]
fn no_comment_is_wider_than_code_may_be() {
    let format = fs::read_to_string(root().join("rustfmt.toml")).unwrap();
    let width = format.lines().find_map(|line| line.strip_prefix("max_width = ")).unwrap();
    let width: usize = width.trim().parse().unwrap();
    let mut wrong = Vec::new();
    for (path, text) in texts().into_iter().filter(|(path, _)| path.ends_with(".rs")) {
        for (number, line) in text.lines().enumerate() {
            let comment = line.trim_start().strip_prefix("//");
            let is_row =
                comment.is_some_and(|text| text.trim_start_matches(['/', '!']).trim_start().starts_with('|'));
            if comment.is_some() && !is_row && line.chars().count() > width {
                wrong.push(format!("{path}:{}", number + 1));
            }
        }
    }
    none(&wrong, "comments that are too wide");
}

/// The exit codes that ARCHITECTURE.md promises to scripts are those of the code.
#[test]
fn the_table_of_exit_codes_is_that_of_the_code() {
    let code = fs::read_to_string(root().join("shared/domain/src/exit_code.rs")).unwrap();
    let mut numbers: Vec<u8> = code
        .lines()
        .filter_map(|line| line.strip_prefix("    ")?.strip_suffix(',')?.split_once(" = ")?.1.parse().ok())
        .collect();
    // A process that a signal ended gives what shells have for it, not a code of ours.
    numbers.push(130);
    let table = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let section = table.split("## Exit codes").nth(1).unwrap().split("\n## ").next().unwrap();
    let shown: Vec<u8> =
        section.lines().filter_map(|line| line.split('|').nth(1)?.trim().parse().ok()).collect();
    assert_eq!(shown, numbers);
}

/// `.ci/not-run`: the command, two spaces or more and `#`, the reason.
fn declared() -> BTreeMap<String, String> {
    let text = fs::read_to_string(root().join(".ci/not-run")).unwrap();
    let lines = text.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#'));
    lines
        .map(|line| {
            let (command, reason) = line.rsplit_once("  #").unwrap_or_else(|| panic!("no reason: {line}"));
            assert!(!reason.trim().is_empty(), "no reason: {line}");
            (command.trim().to_owned(), reason.trim().to_owned())
        })
        .collect()
}

fn documents() -> Vec<String> {
    texts().into_iter().map(|(path, _)| path).filter(|path| path.ends_with(".md")).collect()
}

fn none(wrong: &[String], what: &str) {
    assert!(wrong.is_empty(), "{what}:\n{}", wrong.join("\n"));
}
