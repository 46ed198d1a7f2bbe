//! docs/requirements.md: each id that is cited anywhere is listed there, once, in order, with places that
//! exist.

use std::collections::BTreeSet;
use std::fs;

use crate::none;
use crate::tree::{root, texts};

/// Says of a requirement that something of it is not there.
const NOT_YET: &str = "not yet";

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

#[test]
fn every_place_that_the_requirements_name_exists() {
    let mut wrong = Vec::new();
    for row in rows() {
        let places = quoted(&row.places);
        for place in &places {
            if !root().join(place.trim_end_matches('/')).exists() {
                wrong.push(format!("{}: no such place as {place}", row.id));
            }
        }
        if places.is_empty() && !row.places.contains(NOT_YET) {
            wrong.push(format!("{}: names no place, and does not say \"{NOT_YET}\"", row.id));
        }
    }
    none(&wrong, "places in docs/requirements.md");
}

#[test]
fn each_requirement_is_listed_once_and_in_order() {
    let ids: Vec<(u32, u32)> = rows().iter().map(|row| order(&row.id)).collect();
    assert!(ids.len() > 90, "{}", ids.len());
    assert!(ids.windows(2).all(|pair| pair[0] < pair[1]), "out of order or twice: {ids:?}");
}

/// A requirement as it is listed: `- ID: what`, and within it `- places; what is not there yet`.
pub(crate) struct Row {
    pub(crate) id: String,
    places: String,
}

impl Row {
    /// A check of `.ci` shows it, or it is not there yet: it need not have a test.
    pub(crate) fn has_no_test(&self) -> bool {
        self.places.contains("`.ci/") || self.places.contains(NOT_YET)
    }
}

pub(crate) fn rows() -> Vec<Row> {
    let text = fs::read_to_string(root().join("docs/requirements.md")).unwrap();
    let items = text.split("\n- R").skip(1).map(|item| item.split("\n\n").next().unwrap());
    items
        .map(|item| {
            let (id, rest) = item.split_once(": ").unwrap_or_else(|| panic!("not \"- ID: what\": R{item}"));
            let (_, places) =
                rest.split_once("\n  - ").unwrap_or_else(|| panic!("no place below it: R{item}"));
            Row { id: format!("R{id}"), places: places.split_whitespace().collect::<Vec<_>>().join(" ") }
        })
        .collect()
}

/// What ids are sorted by: R2.3 comes before R2.10.
pub(crate) fn order(id: &str) -> (u32, u32) {
    let (room, number) = id[1..].split_once('.').unwrap();
    (room.parse().unwrap(), number.parse().unwrap())
}

/// The ids in a line: `R2.3` in text, `r2_3_` at the start of a test's name.
pub(crate) fn cited(line: &str) -> Vec<String> {
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

/// The parts of a text between backquotes.
fn quoted(text: &str) -> Vec<&str> {
    text.split('`').skip(1).step_by(2).collect()
}
