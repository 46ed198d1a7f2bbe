//! Preferences in force, as JSON for programs and as a table for people.

use std::fmt::Write;

use comfy_table::{Table, presets};
use fallow_client::Client;
use fallow_domain::printable;
use fallow_preferences::{
    Entry, InForce, Origin, Other, Outdone, OwnerFile, Place, Source, explain, in_force,
};
use serde::{Deserialize, Serialize};

/// Longest value in a table, in bytes.
const VALUE_MAX: usize = 200;

/// A preference in force.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PreferenceStatus {
    /// Its key, as an owner's file has it.
    pub key: String,
    /// Its value with its unit.
    pub value: String,
    /// Where it comes from, such as `default` or `preferences.toml`.
    pub source: String,
    /// The line in that file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<usize>,
    /// What it says, in plain words.
    #[serde(default)]
    pub about: String,
    /// What else was said of it, the strongest first.
    #[serde(default)]
    pub overruled: Vec<SaidStatus>,
}

/// What was said of a preference and is not in force.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SaidStatus {
    /// The value with its unit.
    pub value: String,
    /// Who said it.
    pub source: String,
    /// The line in that file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<usize>,
    /// Why it is not in force.
    pub why: String,
}

impl PreferenceStatus {
    /// Leaves out what it says and said. That it is said stays.
    pub(super) fn hide(&mut self) {
        let values = self.overruled.iter_mut().map(|said| &mut said.value);
        for value in values.chain([&mut self.value]).filter(|value| !value.is_empty()) {
            "(not shown)".clone_into(value);
        }
    }
}

impl SaidStatus {
    /// Where it stands.
    pub fn place(&self) -> String {
        place(&self.source, self.line)
    }

    /// It is one of those that have no hour in common.
    pub fn is_apart(&self) -> bool {
        self.why == Outdone::Apart.as_str()
    }
}

/// What the host's files say and is not taken, for it would loosen what is in force: a line for each.
pub fn not_taken(all: &InForce) -> Vec<String> {
    let mut lines = Vec::new();
    for entry in &all.entries {
        let shown = status(entry);
        let loose = entry.others.iter().zip(&shown.overruled).filter(|(other, _)| {
            let is_file = matches!(other.place.origin, Origin::OwnerFile | Origin::Override);
            is_file && other.why == Outdone::WouldLoosen
        });
        for (other, said) in loose {
            let (key, value) = (entry.key, &shown.value);
            let file =
                if other.place.origin == Origin::OwnerFile { "" } else { "global_prefs_override.xml: " };
            let line = other.place.line.map(|line| format!("line {line}: ")).unwrap_or_default();
            let in_force = place(&shown.source, shown.line);
            lines.push(format!(
                "{file}{line}{key} = {} is not taken: it would loosen ({value}, {in_force})",
                said.value
            ));
        }
    }
    lines
}

/// What an owner's file says that is no limit by itself: a line for each.
pub fn no_limits(file: &OwnerFile) -> Vec<String> {
    let all = in_force(&[Source::limits(Origin::OwnerFile, file.0.clone())]);
    let mut lines = Vec::new();
    for entry in &all.entries {
        let shown = status(entry);
        let loose = entry.others.iter().zip(&shown.overruled);
        for (other, said) in loose.filter(|(other, _)| other.why == Outdone::WouldLoosen) {
            let (line, key, value) = (other.place.line.unwrap_or(0), entry.key, &shown.value);
            lines.push(format!(
                "line {line}: {key} = {} is no limit by itself: without it {value} holds",
                said.value
            ));
        }
    }
    lines
}

/// All preferences in force on a running agent.
pub fn statuses(client: &Client) -> Vec<PreferenceStatus> {
    client.preferences_in_force().entries.iter().map(status).collect()
}

fn status(entry: &Entry) -> PreferenceStatus {
    let Entry { key, value, place, others } = entry;
    let about = explain(key);
    let unit = about.map_or("", |about| about.unit);
    let with_unit = |value: &str| match value {
        "no limit" => value.to_owned(),
        value => format!("{value}{unit}"),
    };
    let said = |Other { value, place, why }: &Other| SaidStatus {
        value: with_unit(value),
        source: source(place),
        line: place.line,
        why: why.as_str().to_owned(),
    };
    PreferenceStatus {
        key: (*key).to_owned(),
        value: with_unit(value),
        source: source(place),
        line: place.line,
        about: about.map(|about| about.text.replace('\n', " ")).unwrap_or_default(),
        overruled: others.iter().map(said).collect(),
    }
}

fn source(place: &Place) -> String {
    printable::line(&place.origin.to_string(), VALUE_MAX)
}

fn place(source: &str, line: Option<usize>) -> String {
    line.map_or_else(|| source.to_owned(), |line| format!("{source}, line {line}"))
}

/// For people: a table, below what keeps the host from computing: files that are wrong, and `lacking` layers.
/// With `why` what else was said of each as well.
pub fn text(all: &[PreferenceStatus], troubles: &[String], lacking: Option<String>, why: bool) -> String {
    let mut out = String::new();
    for trouble in troubles {
        let _ = writeln!(
            out,
            "nothing is computed until this file is mended and taken (fallow-agent preferences reload): {trouble}"
        );
    }
    if let Some(lacking) = lacking {
        let _ = writeln!(out, "{lacking}");
    }
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(["preference", "value", "from"]);
    for one in all {
        let value = printable::line(&one.value, VALUE_MAX);
        table.add_row([one.key.clone(), value, place(&one.source, one.line)]);
        // What contradicts what is shown is not left out: nobody would see why.
        for said in one.overruled.iter().filter(|said| why || said.is_apart()) {
            let value = format!("  {}", printable::line(&said.value, VALUE_MAX));
            let from = format!("  {}: {}", place(&said.source, said.line), said.why);
            table.add_row([String::new(), value, from]);
        }
    }
    for line in table.lines() {
        let _ = writeln!(out, "{}", line.trim_end());
    }
    out
}

#[cfg(test)]
mod tests {
    use fallow_domain::DocumentVersion;
    use fallow_preferences::Said;

    use super::*;

    fn owner(text: &str) -> OwnerFile {
        OwnerFile::read("preferences.toml", text).unwrap()
    }

    #[test]
    fn r6_4_hours_that_have_none_in_common_are_both_shown_without_being_asked_for() {
        let hours = Said { hours: Some("mon-fri 08:00-12:00".parse().unwrap()), ..Said::default() };
        let document = Source::says(Origin::Document(DocumentVersion(3)), hours);
        let file = Source::limits(Origin::OwnerFile, owner("hours = \"fri 18:00-20:00\"\n").0);
        let all: Vec<_> = in_force(&[document, file]).entries.iter().map(status).collect();
        let shown = text(&all, &[], None, false);
        for part in
            ["fri 18:00-20:00", "mon-fri 08:00-12:00", "coordinator's document version 3: these hours"]
        {
            assert!(shown.contains(part), "{part} in\n{shown}");
        }
        assert!(!shown.contains("default:"), "{shown}");
    }

    #[test]
    fn r6_4_what_a_file_says_that_is_not_taken_is_named_with_what_is_in_force() {
        let document = Said { idle_after: Some(fallow_domain::Duration::from_mins(5)), ..Said::default() };
        let document = Source::says(Origin::Document(DocumentVersion(3)), document);
        let file = owner("cpu_fraction = \"50%\"\nidle_after = \"1 min\"\n");
        let found = in_force(&[document, Source::limits(Origin::OwnerFile, file.0.clone())]);
        let line = "line 2: idle_after = 1 min is not taken: it would loosen (5 min, coordinator's document version 3)";
        assert_eq!(not_taken(&found), [line]);
        assert_eq!(
            no_limits(&file),
            ["line 2: idle_after = 1 min is no limit by itself: without it 3 min holds"]
        );
    }
}
