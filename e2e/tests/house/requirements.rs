//! docs/requirements.md: each requirement with the places that are found for it.
//!
//! Text comes from one source, `docs/requirements.toml`: what is asked for, and what of it is not there yet.
//! Places are the files that name the id (`places`).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;

use crate::generated;
use crate::none;
use crate::places::{Places, places};
use crate::tree::{root, texts};

const SOURCE: &str = "docs/requirements.toml";
const LIST: &str = "docs/requirements.md";

#[test]
fn every_requirement_that_is_cited_is_listed() {
    let listed = listed();
    let mut unknown = Vec::new();
    for (path, text) in texts() {
        for (number, line) in text.lines().enumerate() {
            for id in cited(line).into_iter().filter(|id| !listed.contains_key(id)) {
                unknown.push(format!("{path}:{}: {id}", number + 1));
            }
        }
    }
    none(&unknown, "cited but not in docs/requirements.toml");
}

#[test]
fn every_requirement_has_a_place_or_nothing_of_it_is_there_yet() {
    let places = places();
    let wrong = listed().into_iter().filter(|(id, row)| places.contains_key(id) == row.is_wholly_missing());
    let wrong: Vec<String> = wrong.map(|(id, _)| id).collect();
    none(
        &wrong,
        "no file names it without a `nothing_yet` in docs/requirements.toml, or one does in spite of it",
    );
}

/// A source that is read wrongly would leave all other checks of it with nothing to check.
#[test]
fn more_than_ninety_requirements_are_listed() {
    assert!(listed().len() > 90, "{}", listed().len());
}

#[test]
#[should_panic(expected = "R2.1 stands under no head")]
fn a_requirement_under_a_missing_head_is_an_error() {
    parts("[R1]\ntitle = \"One\"\n[\"R2.1\"]\nwhat = \"two\"\n");
}

#[test]
#[should_panic(expected = "R1.1 has both `not_yet` and `nothing_yet`")]
fn what_is_wholly_missing_is_not_missing_in_part() {
    parts("[R1]\ntitle = \"One\"\n[\"R1.1\"]\nwhat = \"a\"\nnot_yet = \"b\"\nnothing_yet = \"c\"\n");
}

#[test]
fn only_what_is_wholly_missing_or_checked_by_ci_needs_no_test() {
    let row = |key: &str| {
        let source = format!("[R1]\ntitle = \"One\"\n[\"R1.1\"]\nwhat = \"a\"\n{key} = \"b\"\n");
        parts(&source).remove(0).rows.remove(0).1
    };
    let [in_part, wholly] = [row("not_yet"), row("nothing_yet")];
    let [checked, coded] = [".ci/units", "a.rs"].map(|path| BTreeSet::from([path.to_owned()]));
    assert!(!in_part.needs_no_test(None) && !in_part.needs_no_test(Some(&coded)));
    assert!(in_part.needs_no_test(Some(&checked)) && wholly.needs_no_test(None));
}

#[test]
fn the_list_of_requirements_is_that_of_its_source_and_of_the_code() {
    generated::check(LIST, &list(&source(), &places()));
}

#[test]
fn ids_are_found_at_the_start_of_names_in_text_and_within_ranges() {
    let found = cited("fn r6_2_one() // R1.1, (R2.10 to R2.12; R3.3) but not xR1.2, R7.1, R1.123 or r1_2");
    assert_eq!(found, ["R6.2", "R1.1", "R2.10", "R2.11", "R2.12", "R3.3"]);
    assert_eq!(cited_as_such("cargo test r1_4_  # R1.5"), ["R1.5"]);
}

/// A requirement as its source has it.
pub(crate) struct Row {
    what: String,
    missing: Missing,
}

/// What of a requirement is not there yet, in words.
enum Missing {
    No,
    /// Something of it (`not_yet`).
    Part(String),
    /// All of it (`nothing_yet`).
    All(String),
}

impl Row {
    fn new(mut fields: Fields<'_>) -> Self {
        let missing = match (fields.optional("not_yet"), fields.optional("nothing_yet")) {
            (None, None) => Missing::No,
            (Some(part), None) => Missing::Part(part),
            (None, Some(all)) => Missing::All(all),
            (Some(_), Some(_)) => panic!("{SOURCE}: {} has both `not_yet` and `nothing_yet`", fields.of),
        };
        Self { what: fields.required("what"), missing }
    }

    fn is_wholly_missing(&self) -> bool {
        matches!(self.missing, Missing::All(_))
    }

    /// A check of `.ci` shows it, or nothing of it is there yet: it need not have a test.
    pub(crate) fn needs_no_test(&self, places: Option<&BTreeSet<String>>) -> bool {
        self.is_wholly_missing()
            || places.is_some_and(|paths| paths.iter().any(|path| path.starts_with(".ci/")))
    }
}

pub(crate) fn listed() -> BTreeMap<String, Row> {
    source().into_iter().flat_map(|part| part.rows).collect()
}

/// Requirements with a common origin.
struct Part {
    /// Such as `R1 Scheduler RPC timing`.
    title: String,
    /// Paragraphs that introduce it.
    about: Vec<String>,
    rows: Vec<(String, Row)>,
}

fn source() -> Vec<Part> {
    parts(&fs::read_to_string(root().join(SOURCE)).unwrap())
}

fn parts(text: &str) -> Vec<Part> {
    let table: toml::Table = text.parse().unwrap_or_else(|error| panic!("{SOURCE}: {error}"));
    let (rows, heads): (toml::Table, toml::Table) = table.into_iter().partition(|(id, _)| id.contains('.'));
    let mut rows: Vec<(String, toml::Value)> = rows.into_iter().collect();
    rows.sort_by_key(|(id, _)| order(id));
    let head_of = |id: &str| id.split('.').next().unwrap().to_owned();
    for (id, _) in &rows {
        assert!(heads.contains_key(&head_of(id)), "{SOURCE}: {id} stands under no head");
    }
    let part = |(part, head): (String, toml::Value)| {
        let mut head = Fields::of(&part, head);
        let title = format!("{part} {}", head.required("title"));
        let about = ["source", "note"].map(|key| Some((key, head.optional(key)?)));
        let about = about.into_iter().flatten();
        let about = about.map(|(key, text)| if key == "source" { format!("Source: {text}") } else { text });
        let own = rows.iter().filter(|(id, _)| head_of(id) == part);
        let own = own.map(|(id, row)| (id.clone(), Row::new(Fields::of(id, row.clone()))));
        Part { title, about: about.collect(), rows: own.collect() }
    };
    heads.into_iter().map(part).collect()
}

/// The texts under a heading of the source. All have to be asked for.
struct Fields<'a> {
    of: &'a str,
    left: toml::Table,
}

impl<'a> Fields<'a> {
    fn of(of: &'a str, value: toml::Value) -> Self {
        match value {
            toml::Value::Table(left) => Self { of, left },
            other => panic!("{SOURCE}: {of} is no table: {other}"),
        }
    }

    fn required(&mut self, key: &str) -> String {
        self.optional(key).unwrap_or_else(|| panic!("{SOURCE}: {} has no `{key}`", self.of))
    }

    fn optional(&mut self, key: &str) -> Option<String> {
        let value = self.left.remove(key)?;
        let text = value.as_str().map(str::trim).filter(|text| !text.is_empty());
        Some(text.unwrap_or_else(|| panic!("{SOURCE}: `{key}` of {} says nothing", self.of)).to_owned())
    }
}

impl Drop for Fields<'_> {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            assert!(self.left.is_empty(), "{SOURCE}: {} has unknown keys: {}", self.of, self.left);
        }
    }
}

fn list(parts: &[Part], places: &Places) -> String {
    let mut text = format!(
        "# Requirements\n\
         Every requirement of Fallow's specification: its id, what it asks for, what of that is not there yet, and the\n\
         files that name it, room by room. Ids stand in comments and reasons, at the start of tests' names (`r2_3_...`)\n\
         and in tests' doc comments, so that one gets from a line of code to its reason and back.\n\
         [requirements-tests.md](requirements-tests.md) lists the tests of each.\n\n\
         Both files are generated and not to be edited. What is asked for stands in\n\
         [requirements.toml](requirements.toml), places and tests are found in the code; this command writes both anew:\n\n\
         ```console\n$ {}\n```\n",
        generated::COMMAND
    );
    for part in parts {
        writeln!(text, "\n## {}", part.title).unwrap();
        for paragraph in &part.about {
            wrap(&mut text, "", paragraph);
        }
        text.push('\n');
        for (id, row) in &part.rows {
            wrap(&mut text, "- ", &format!("{id}: {}", row.what));
            match &row.missing {
                Missing::No => {}
                Missing::Part(part) => wrap(&mut text, "  - ", &format!("not yet: {part}")),
                Missing::All(all) => wrap(&mut text, "  - ", &format!("nothing yet: {all}")),
            }
            for (room, files) in by_room(places.get(id).into_iter().flatten()) {
                wrap(&mut text, "  - ", &format!("{room}: {}", files.join(", ")));
            }
        }
    }
    text
}

/// Files by the folder above `src`, as they are shown: `shared/client/src`: `jobs.rs`, `rpc.rs`.
fn by_room<'a>(paths: impl Iterator<Item = &'a String>) -> BTreeMap<String, Vec<String>> {
    let mut rooms: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for path in paths {
        let (room, file) = match path.split_once("/src/") {
            Some((room, file)) => (format!("{room}/src"), file),
            None => path.rsplit_once('/').map_or((".".to_owned(), path.as_str()), |(a, b)| (a.to_owned(), b)),
        };
        rooms.entry(format!("`{room}`")).or_default().push(format!("`{file}`"));
    }
    rooms
}

/// Adds an item or a paragraph in lines of at most 118 columns.
fn wrap(text: &mut String, bullet: &str, words: &str) {
    let indent = " ".repeat(bullet.len());
    let mut line = bullet.trim_end().to_owned();
    for word in words.split_whitespace() {
        if line.chars().count() + 1 + word.chars().count() > 118 {
            writeln!(text, "{line}").unwrap();
            line.clone_from(&indent);
            line.push_str(word);
        } else {
            line.push_str(if line.is_empty() { "" } else { " " });
            line.push_str(word);
        }
    }
    writeln!(text, "{line}").unwrap();
}

/// What ids are sorted by: R2.3 comes before R2.10.
pub(crate) fn order(id: &str) -> (u32, u32) {
    let numbers = id.strip_prefix('R').and_then(|rest| rest.split_once('.'));
    let numbers = numbers.and_then(|(room, number)| Some((room.parse().ok()?, number.parse().ok()?)));
    numbers.unwrap_or_else(|| panic!("{id:?} is no id"))
}

/// The ids in a text: `R2.3`, all of `R2.3 to R2.6`, and `r2_3_` at the start of a test's name.
pub(crate) fn cited(text: &str) -> Vec<String> {
    ids_after(text, &['R', 'r'])
}

/// As [`cited`], without those of tests' names.
pub(crate) fn cited_as_such(text: &str) -> Vec<String> {
    ids_after(text, &['R'])
}

fn ids_after(text: &str, initials: &[char]) -> Vec<String> {
    let mut ids: Vec<String> = Vec::new();
    // Where the last id ended.
    let mut end = 0;
    for (start, _) in text.match_indices(initials) {
        let Some((id, length)) = id_at(text, start) else { continue };
        let last = ids.last().filter(|_| &text[end..start] == " to ").map(|last| order(last));
        let (room, number) = order(&id);
        if let Some((_, from)) = last.filter(|(of, _)| *of == room) {
            ids.extend((from + 1..number).map(|between| format!("R{room}.{between}")));
        }
        ids.push(id);
        end = start + length;
    }
    ids
}

/// The id that begins there, and its length in the text.
fn id_at(text: &str, start: usize) -> Option<(String, usize)> {
    let separator = if text[start..].starts_with('R') { '.' } else { '_' };
    let starts_word =
        !text[..start].ends_with(|before: char| before.is_ascii_alphanumeric() || before == '_');
    let (room, rest) = text[start + 1..].split_once(separator)?;
    let number: String = rest.chars().take_while(char::is_ascii_digit).collect();
    let is_name = separator == '.' || rest[number.len()..].starts_with('_');
    let is_room = room.len() == 1 && ("1"..="6").contains(&room);
    let is_id = starts_word && is_room && is_name && (1..=2).contains(&number.len());
    is_id.then(|| (format!("R{room}.{number}"), 3 + number.len()))
}
