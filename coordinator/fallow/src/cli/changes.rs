//! What a change of documents makes different, for people and for programs.

use fallow_domain::{DocumentVersion, ExitCode};
use fallow_proto::operator::v1::{Caution, ChangeGroupsReply, ChangedValue, Finding, PreviewReply};
use serde_json::{Value, json};

use super::hosts::Names;
use super::table::{self, Column::Number, Column::Text};
use super::{Failure, fitted, print, print_json, warn};
use crate::printable;

/// Digits of a hash that people are shown.
const HASH_SHOWN: usize = 12;

/// The beginning of a hash: enough to tell versions apart.
pub(super) fn short(hash: &str) -> &str {
    hash.get(..HASH_SHOWN).unwrap_or(hash)
}

/// How it is printed.
pub(super) struct How {
    /// One JSON object.
    pub(super) json: bool,
    /// All columns, however narrow the terminal is.
    pub(super) wide: bool,
}

/// Prints what a change makes different, or fails with everything that is wrong in its files. `names` are
/// those of the hosts that are to be listed one by one, by the ids of their agents.
pub(super) fn show(
    reply: &ChangeGroupsReply,
    is_tried: bool,
    names: Option<&Names>,
    how: &How,
) -> Result<(), Failure> {
    let as_json = how.json;
    if as_json {
        print_json(&to_json(reply))?;
    }
    if !reply.findings.is_empty() {
        return Err(wrong(&reply.findings, as_json));
    }
    if as_json {
        return Ok(());
    }
    print(&to_text(reply, is_tried, names, how.wide))?;
    tell_cautions(&reply.cautions);
    if !reply.choosing_none.is_empty() {
        // Perhaps on purpose: hosts of a new room may come later.
        warn(&format!(
            "no host is chosen by {}: `fallow hosts --selector` tries a selector, `fallow hosts show HOST` shows labels",
            reply.choosing_none.join(", ")
        ));
    }
    Ok(())
}

/// Warns of what preferences come to together.
pub(super) fn tell_cautions(cautions: &[Caution]) {
    for Caution { text, hosts } in cautions {
        let whose =
            if *hosts == 0 { String::new() } else { format!("for {}: ", table::counted(*hosts, "host")) };
        warn(&printable::line(&format!("{whose}{text}"), usize::MAX));
    }
}

/// Prints what a change of the whole fleet's document would make different.
pub(super) fn preview(reply: &PreviewReply, as_json: bool) -> Result<(), Failure> {
    let PreviewReply { values, hosts, changed_hosts, document_version, cautions } = reply;
    if as_json {
        return print_json(&json!({
            "document_version": document_version,
            "hosts": hosts,
            "changed_hosts": changed_hosts,
            "values": values.iter().map(value_json).collect::<Vec<_>>(),
            "cautions": cautions.iter().map(caution_json).collect::<Vec<_>>(),
        }));
    }
    let counted = changed_of(*changed_hosts, *hosts, true);
    print(&format!("{}{counted}; nothing was changed\n", values_table(values, false)))?;
    tell_cautions(cautions);
    Ok(())
}

/// Values that become others, each with the number of its hosts; nothing for none.
fn values_table(values: &[ChangedValue], wide: bool) -> String {
    if values.is_empty() {
        return String::new();
    }
    let columns = vec![
        (Text("value"), 0),
        (Number("hosts"), 0),
        (Text("before"), 1),
        (Text("after"), 0),
        (Text("by"), 2),
    ];
    let row = |value: &ChangedValue| {
        let ChangedValue { key, before, after, origin, hosts, .. } = value;
        vec![key.clone(), hosts.to_string(), before.clone(), after.clone(), origin.clone()]
    };
    fitted::render(columns, values.iter().map(row).collect(), wide)
}

fn changed_of(changed: u64, hosts: u64, is_tried: bool) -> String {
    let get = if is_tried { "would get" } else { "get" };
    format!("{changed} of {} {get} other values", table::counted(hosts, "host"))
}

fn value_json(value: &ChangedValue) -> Value {
    json!({
        "key": value.key,
        "before": value.before,
        "after": value.after,
        "origin": value.origin,
        "hosts": value.hosts,
        "agent_ids": value.agent_ids,
    })
}

fn wrong(findings: &[Finding], is_said: bool) -> Failure {
    let nothing = "the files cannot be used; nothing was changed";
    if is_said {
        return Failure::new(ExitCode::BadInput, nothing);
    }
    let all: Vec<String> = findings.iter().map(|found| printable::lines(&found.text, usize::MAX)).collect();
    Failure::bad_input(format!("{nothing}\n{}", all.join("\n")))
}

fn to_text(reply: &ChangeGroupsReply, is_tried: bool, names: Option<&Names>, wide: bool) -> String {
    let mut text = String::new();
    if let (Some(names), false) = (names, reply.values.is_empty()) {
        let columns = vec![
            (Text("host"), 0),
            (Text("agent"), 9),
            (Text("value"), 0),
            (Text("before"), 2),
            (Text("after"), 0),
            (Text("by"), 0),
        ];
        let mut rows: Vec<_> = reply.values.iter().flat_map(|value| host_rows(value, names)).collect();
        rows.sort();
        text += &fitted::render(columns, rows, wide);
    } else {
        text += &values_table(&reply.values, wide);
    }
    let groups = [("put in place", &reply.put), ("removed", &reply.removed)];
    let groups = groups.into_iter().filter(|(_, names)| !names.is_empty());
    let would = if is_tried { "would be " } else { "" };
    let mut said: Vec<String> =
        groups.map(|(what, names)| format!("{would}{what}: {}", names.join(", "))).collect();
    let is_changed = !said.is_empty();
    if !is_changed {
        said.push("the groups are so already".to_owned());
    }
    said.push(changed_of(reply.changed_hosts, reply.hosts, is_tried));
    said.push(match is_tried {
        true => "nothing was changed".to_owned(),
        false => {
            let unchanged = if is_changed { "" } else { "nothing was changed; " };
            let version = DocumentVersion(reply.document_version);
            format!("{unchanged}document version {version} ({})", short(&reply.hash))
        }
    });
    text + &printable::line(&said.join("; "), usize::MAX) + "\n"
}

fn host_rows(value: &ChangedValue, names: &Names) -> Vec<Vec<String>> {
    let row = |agent: &String| {
        let name = names.get(agent).cloned().unwrap_or_default();
        let ChangedValue { key, before, after, origin, .. } = value;
        vec![name, agent.clone(), key.clone(), before.clone(), after.clone(), origin.clone()]
    };
    value.agent_ids.iter().map(row).collect()
}

fn to_json(reply: &ChangeGroupsReply) -> Value {
    if !reply.findings.is_empty() {
        let finding = |found: &Finding| {
            json!({
                "file": found.file,
                "line": found.line,
                "column": found.column,
                "key": found.key,
                "text": found.text,
            })
        };
        return json!({ "findings": reply.findings.iter().map(finding).collect::<Vec<_>>() });
    }
    json!({
        "document_version": reply.document_version,
        "rollout": reply.rollout,
        "hash": reply.hash,
        "groups_put": reply.put,
        "groups_removed": reply.removed,
        "groups_choosing_none": reply.choosing_none,
        "hosts": reply.hosts,
        "changed_hosts": reply.changed_hosts,
        "values": reply.values.iter().map(value_json).collect::<Vec<_>>(),
        "cautions": reply.cautions.iter().map(caution_json).collect::<Vec<_>>(),
    })
}

fn caution_json(caution: &Caution) -> Value {
    json!({ "text": caution.text, "hosts": caution.hosts })
}
