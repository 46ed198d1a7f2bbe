//! Preferences in force, as JSON for programs and as a table for people.

use std::fmt::Write;

use comfy_table::{Table, presets};
use fallow_client::Client;
use fallow_domain::printable;
use fallow_preferences::{Entry, Other, Place, explain};
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

/// For people: a table; with `why` what else was said of each as well.
pub fn text(all: &[PreferenceStatus], troubles: &[String], why: bool) -> String {
    let mut out = String::new();
    for trouble in troubles {
        let _ = writeln!(out, "nothing is computed until this file is mended: {trouble}");
    }
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(["preference", "value", "from"]);
    for one in all {
        let value = printable::line(&one.value, VALUE_MAX);
        table.add_row([one.key.clone(), value, place(&one.source, one.line)]);
        for said in one.overruled.iter().filter(|_| why) {
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
