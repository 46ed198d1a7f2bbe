//! Labels, groups and versions of documents: what operators ask of them (R6.4, R6.5).

use std::sync::Arc;

use fallow_config::Diagnostic;
use fallow_domain::{AgentId, Labels};
use fallow_fleet::{
    Change, ChangeError, Contents, DocumentSet, Effective, GROUPS_MAX, Group, GroupName, GroupText, Origin,
    Resolved, ValueChange, Wish,
};
use fallow_proto::operator::v1 as wire;
use tonic::Status;

use super::{convert, status, unblocked};
use crate::document::{Author, DocumentError, Documents, Head};
use crate::fleet::Fleet;
use crate::fleet::labels::Explained;
use crate::fleet::preview::Preview;
use fallow_daemon::clock;

/// Findings that are told at most: whoever gets as many has other files in mind.
const FINDINGS_MAX: usize = 1_000;
/// Versions that are listed at once.
const VERSIONS_MAX: usize = 1_000;

/// Puts groups in place, or says what that would change.
pub(super) async fn change(
    fleet: Arc<Fleet>,
    documents: Arc<Documents>,
    author: Author,
    request: wire::ChangeGroupsRequest,
) -> Result<wire::ChangeGroupsReply, Status> {
    let wire::ChangeGroupsRequest { files, remove, prune, dry_run, per_host, message, emergency } = request;
    if files.len() > GROUPS_MAX || remove.len() > GROUPS_MAX {
        let text = format!("a change has up to {GROUPS_MAX} files and removes up to {GROUPS_MAX} groups");
        return Err(Status::invalid_argument(text));
    }
    if prune && files.is_empty() {
        let text = "without a file, all groups would go: name them to be removed instead";
        return Err(Status::invalid_argument(text));
    }
    let text = |file: wire::GroupFile| GroupText { file: file.name, text: file.text };
    let change = Change { files: files.into_iter().map(text).collect(), remove, prune };
    let made = if dry_run {
        let documents = documents.clone();
        unblocked(move || {
            let before = documents.set();
            let groups = change.groups(&before)?;
            documents.require_planned(&groups)?;
            let after = DocumentSet { groups, ..before.clone() };
            Ok((before, after))
        })
        .await?
    } else {
        let author = Author { emergency, ..author.saying(message) };
        documents.change_groups(author, clock::now(), change).await
    };
    let (before, after) = match made {
        Err(DocumentError::Groups(ChangeError::Files(found))) => {
            let findings = found.0.iter().take(FINDINGS_MAX).map(finding).collect();
            return Ok(wire::ChangeGroupsReply { findings, ..wire::ChangeGroupsReply::default() });
        }
        made => made.map_err(|error| status::of_document(&error))?,
    };
    // What is only tried, or so already, goes out by none.
    let rollout = if dry_run || before == after { 0 } else { documents.rollout_of(after.fleet.version) };
    let reply = unblocked(move || changed(&fleet, &before, &after, per_host)).await??;
    Ok(wire::ChangeGroupsReply { rollout, ..reply })
}

/// What a change amounts to, host by host.
fn changed(
    fleet: &Fleet,
    before: &DocumentSet,
    after: &DocumentSet,
    per_host: bool,
) -> Result<wire::ChangeGroupsReply, Status> {
    let hash = after.hash().map_err(|error| Status::internal(error.to_string()))?;
    let changed = before.groups.changed(&after.groups);
    let Preview { hosts, changed_hosts, values } = fleet.preview(before, after);
    let put: Vec<_> =
        changed.put.iter().filter_map(|name| Some((*name, &after.groups.0.get(*name)?.selector))).collect();
    let selectors: Vec<_> = put.iter().map(|(_, selector)| *selector).collect();
    let chosen = if selectors.is_empty() { Vec::new() } else { fleet.chosen(&selectors) };
    let none = put.iter().zip(&chosen).filter(|(_, hosts)| **hosts == 0);
    Ok(wire::ChangeGroupsReply {
        findings: Vec::new(),
        document_version: after.fleet.version.0,
        hash: hash.as_str().to_owned(),
        put: names(&changed.put),
        removed: names(&changed.removed),
        values: values.into_iter().map(|changed| value_to_wire(changed, per_host)).collect(),
        hosts,
        changed_hosts,
        rollout: 0,
        choosing_none: none.map(|((name, _), _)| name.to_string()).collect(),
        cautions: cautions(fleet, after),
    })
}

/// What operators are warned of with these documents.
pub(super) fn cautions(fleet: &Fleet, set: &DocumentSet) -> Vec<wire::Caution> {
    fleet.cautions(set).into_iter().map(|(text, hosts)| wire::Caution { text, hosts }).collect()
}

/// A value that becomes another one, with the agents of its hosts, whose ids are said `per_host`.
pub(super) fn value_to_wire(
    (change, agents): (ValueChange, Vec<AgentId>),
    per_host: bool,
) -> wire::ChangedValue {
    wire::ChangedValue {
        key: change.key,
        before: change.before,
        after: change.after,
        origin: change.origin,
        hosts: agents.len() as u64,
        agent_ids: if per_host { agents.into_iter().map(|id| id.0).collect() } else { Vec::new() },
    }
}

fn finding(found: &Diagnostic) -> wire::Finding {
    wire::Finding {
        file: found.file.clone(),
        line: found.line as u64,
        column: found.column as u64,
        key: found.key.clone(),
        text: found.to_string(),
    }
}

fn names(groups: &[&GroupName]) -> Vec<String> {
    groups.iter().map(ToString::to_string).collect()
}

/// All groups, the one that prevails over the others first.
pub(super) fn list(fleet: &Fleet, set: &DocumentSet) -> wire::ListGroupsReply {
    let mut groups: Vec<_> = set.groups.0.iter().collect();
    groups.sort_by_key(|(_, group)| std::cmp::Reverse(group.precedence));
    let selectors: Vec<_> = groups.iter().map(|(_, group)| &group.selector).collect();
    let hosts = fleet.chosen(&selectors);
    let group = |((name, group), hosts): ((&GroupName, &Group), u64)| wire::Group {
        name: name.to_string(),
        precedence: group.precedence,
        selector: group.selector.to_string(),
        hosts,
        values: group
            .projects
            .iter()
            .flat_map(|(project, said)| {
                let key = format!("projects.{project}");
                let without = said
                    .without
                    .as_ref()
                    .map(|types| said_value(format!("{key}.without"), types.to_string()));
                said.wish.map(|wish| said_value(key, wish.to_string())).into_iter().chain(without)
            })
            .chain(
                group
                    .preferences
                    .iter()
                    .map(|one| said_value(format!("preferences.{}", one.key()), one.to_string())),
            )
            .collect(),
    };
    wire::ListGroupsReply {
        groups: groups.into_iter().zip(hosts).map(group).collect(),
        document_version: set.fleet.version.0,
    }
}

fn said_value(key: String, value: String) -> wire::SaidValue {
    wire::SaidValue { key, value }
}

/// What a host is asked for, and why.
pub(super) fn explained(explained: &Explained) -> wire::ExplainHostReply {
    let Explained { host, set, enrolled_with, given_labels, groups, effective } = explained;
    let Effective { projects, without, preferences } = effective;
    let projects = projects.iter().map(|(name, resolved)| value(format!("projects.{name}"), resolved));
    let preferences =
        preferences.iter().map(|resolved| value(format!("preferences.{}", resolved.value.key()), resolved));
    let wanted = effective.projects.iter().filter(|(_, wish)| wish.value != Wish::Absent);
    let keys = wanted.clone().filter_map(|(name, _)| {
        Some(wire::ExplainedValue {
            key: format!("projects.{name}.code_sign_key"),
            value: set.place(name)?.code_sign_key?.to_string(),
            origin: set.origin_of_place(name)?.to_string(),
            lost: Vec::new(),
        })
    });
    let without = wanted
        .filter_map(|(name, _)| Some((name, without.get(name)?)))
        .map(|(name, resolved)| value(format!("projects.{name}.without"), resolved));
    wire::ExplainHostReply {
        labels: host
            .labels
            .iter()
            .map(|(name, value)| wire::Label {
                name: name.to_string(),
                value: value.to_string(),
                source: source(name.as_str(), enrolled_with, given_labels).into(),
            })
            .collect(),
        host: Some(convert::host(host, set, &mut Contents::of(set))),
        document_version: set.fleet.version.0,
        groups: groups.iter().map(ToString::to_string).collect(),
        values: projects.chain(keys).chain(without).chain(preferences).collect(),
        taken_back: Vec::new(),
    }
}

fn value<T: std::fmt::Display>(key: String, resolved: &Resolved<T>) -> wire::ExplainedValue {
    let Resolved { value, origin, losers } = resolved;
    let lost = |(origin, value): &(Origin, T)| wire::LostValue {
        origin: origin.to_string(),
        value: value.to_string(),
    };
    wire::ExplainedValue {
        key,
        value: value.to_string(),
        origin: origin.to_string(),
        lost: losers.iter().map(lost).collect(),
    }
}

/// Who says a label of a host.
fn source(name: &str, enrolled_with: &Labels, given: &Labels) -> wire::LabelSource {
    match (enrolled_with.get(name), given.get(name)) {
        (Some(_), _) => wire::LabelSource::Enrolment,
        (None, Some(_)) => wire::LabelSource::Operator,
        (None, None) => wire::LabelSource::Agent,
    }
}

/// How many versions an operator asks for.
pub(super) fn limit(limit: u32) -> usize {
    match limit as usize {
        0 => 100,
        limit => limit.min(VERSIONS_MAX),
    }
}

/// A version, without what it says.
pub(super) fn version(head: Head) -> wire::DocumentInfo {
    wire::DocumentInfo {
        version: head.version.0,
        hash: head.hash.as_str().to_owned(),
        made_at_micros: head.made_at.as_micros(),
        made_by: head.made_by,
        change: head.change,
        message: head.message,
        groups: head.groups,
    }
}
