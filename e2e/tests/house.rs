//! The house keeps its own rules: what documents say is there, what code cites is listed, commands are run.
//!
//! Text only: nothing here builds or starts anything, so that a wrong word in a document costs seconds to find.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests: failures are panics")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

const REQUIREMENTS: &str = "docs/requirements.md";
const NOT_YET: &str = "not yet";

/// (a) A requirement id in code, tests or documents stands in the list of requirements.
#[test]
fn every_requirement_that_is_cited_is_listed() {
    let listed: BTreeSet<String> = rows().into_iter().map(|row| row.id).collect();
    let mut unknown = Vec::new();
    for (path, text) in texts() {
        for (number, line) in text.lines().enumerate() {
            for id in cited(line) {
                if !listed.contains(&id) {
                    unknown.push(format!("{path}:{}: {id}", number + 1));
                }
            }
        }
    }
    none(&unknown, "cited but not in docs/requirements.md");
}

/// (b) What the list of requirements points at exists.
#[test]
fn every_place_and_test_that_the_requirements_name_exists() {
    let tests = test_names();
    let mut wrong = Vec::new();
    for row in rows() {
        for place in quoted(&row.places) {
            if !root().join(place.trim_end_matches('/')).exists() {
                wrong.push(format!("{}: no such place as {place}", row.id));
            }
        }
        for test in quoted(&row.tests) {
            let found = if test.contains('/') { root().join(test).exists() } else { tests.contains(test) };
            if !found {
                wrong.push(format!("{}: no such test as {test}", row.id));
            }
        }
        for (column, text) in [("place", &row.places), ("test", &row.tests)] {
            if quoted(text).is_empty() && !text.starts_with(NOT_YET) {
                wrong.push(format!("{}: names no {column}, and does not say \"{NOT_YET}\"", row.id));
            }
        }
    }
    none(&wrong, "rows of docs/requirements.md");
}

#[test]
fn each_requirement_is_listed_once_and_in_order() {
    let ids: Vec<(u32, u32)> = rows()
        .iter()
        .map(|row| {
            let (room, number) = row.id[1..].split_once('.').unwrap();
            (room.parse().unwrap(), number.parse().unwrap())
        })
        .collect();
    assert!(ids.len() > 90, "{}", ids.len());
    assert!(ids.windows(2).all(|pair| pair[0] < pair[1]), "out of order or twice: {ids:?}");
}

/// (c) A clone stands alone.
#[test]
fn nothing_names_a_place_outside_the_repository() {
    // In pieces, because this file is read too. A path up and down again into the tree's own `shared` is none.
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

/// (d) A reader can rely on every command shown: CI ran it (`.ci/docs`), or `.ci/not-run` says why not.
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

/// One row of the list of requirements.
struct Row {
    id: String,
    places: String,
    tests: String,
}

fn rows() -> Vec<Row> {
    let text = fs::read_to_string(root().join(REQUIREMENTS)).unwrap();
    let rows = text.lines().filter(|line| line.starts_with("| R") && line.as_bytes()[3].is_ascii_digit());
    rows.map(|line| {
        let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
        let [id, _, places, tests] = cells[..] else { panic!("not four cells: {line}") };
        Row {
            id: id.to_owned(),
            places: places.to_owned(),
            tests: tests.trim_end_matches('|').trim().to_owned(),
        }
    })
    .collect()
}

/// The ids in a line: `R2.3` in text, `r2_3_` at the start of a test's name.
fn cited(line: &str) -> Vec<String> {
    let mut ids = Vec::new();
    let bytes = line.as_bytes();
    for place in 0..bytes.len() {
        let starts_word =
            place == 0 || !(bytes[place - 1].is_ascii_alphanumeric() || bytes[place - 1] == b'_');
        let separator = match bytes[place] {
            b'R' => '.',
            b'r' => '_',
            _ => continue,
        };
        let Some((room, rest)) = line.get(place + 1..).and_then(|rest| rest.split_once(separator)) else {
            continue;
        };
        let number: String = rest.chars().take_while(char::is_ascii_digit).collect();
        let is_name = separator == '.' || rest[number.len()..].starts_with('_');
        let is_room = room.len() == 1 && ("1"..="6").contains(&room);
        if starts_word && is_room && is_name && (1..=2).contains(&number.len()) {
            ids.push(format!("R{room}.{number}"));
        }
    }
    ids
}

/// The parts of a cell between backquotes.
fn quoted(cell: &str) -> Vec<&str> {
    cell.split('`').skip(1).step_by(2).collect()
}

fn test_names() -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for (path, text) in texts() {
        if !path.ends_with(".rs") {
            continue;
        }
        let mut after_attribute = false;
        for line in text.lines().map(str::trim) {
            if line.starts_with("#[test]") || line.starts_with("#[tokio::test") {
                after_attribute = true;
            } else if let Some(name) = line.strip_prefix("fn ").or(line.strip_prefix("async fn ")) {
                if after_attribute {
                    names.insert(name.split(['(', '<']).next().unwrap().to_owned());
                }
                after_attribute = false;
            }
        }
    }
    names
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

/// All text files of the tree with their path from its root, in order.
fn texts() -> Vec<(String, String)> {
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

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_path_buf()
}

fn none(wrong: &[String], what: &str) {
    assert!(wrong.is_empty(), "{what}:\n{}", wrong.join("\n"));
}
