//! `fallow hosts label`.

use std::collections::BTreeMap;

use clap::Args;
use fallow_proto::operator::v1::{ExplainHostReply, ExplainHostRequest, LabelHostRequest, ListHostsRequest};
use serde_json::json;

use super::connect::{Client, Target};
use super::why::Why;
use super::{Failure, hosts, print, print_json};
use crate::printable;

const EXAMPLE: &str = "\
Examples:
  fallow hosts label lab-pc-7 room=12 site=brno
  fallow hosts label lab-pc-7 room-
  fallow hosts label lab-pc-7 lab-pc-8 lab-pc-9 room=13
  fallow hosts label --selector room=12 room=13

NAME=VALUE sets a label, NAME- removes it; whatever else is named is a host, and
so is the first word without --selector. Groups choose hosts by their labels
(fallow apply). Agents report some themselves (os, arch, cores, memory_mib, gpu,
virtual, container, container_engine, hostname, agent_name, agent_version):
those, and labels that a host was enrolled with, are not changed here.";

#[derive(Args, Debug)]
#[command(after_help = EXAMPLE)]
pub(crate) struct Label {
    /// Hosts, by their agents' ids, their names or their host names, and labels: NAME=VALUE to set one, NAME-
    /// to remove one.
    #[arg(required = true, value_name = "HOST|LABEL")]
    words: Vec<String>,
    /// All hosts with such labels, such as 'room=12, !gpu', instead of hosts by name.
    #[arg(long)]
    selector: Option<String>,
    #[command(flatten)]
    why: Why,
    #[command(flatten)]
    target: Target,
    /// One JSON object instead of lines.
    #[arg(long)]
    json: bool,
}

/// Which hosts are named, and what is to be changed of them.
fn parted(words: Vec<String>, is_selected: bool) -> Result<(Vec<String>, Vec<String>), Failure> {
    let is_label = |(at, word): &(usize, String)| {
        (*at > 0 || is_selected) && (word.contains('=') || word.ends_with('-'))
    };
    let (labels, hosts): (Vec<_>, Vec<_>) = words.into_iter().enumerate().partition(is_label);
    let [labels, hosts] =
        [labels, hosts].map(|words| words.into_iter().map(|(_, word)| word).collect::<Vec<_>>());
    match () {
        () if labels.is_empty() => Err(Failure::bad_input(
            "no label is named: NAME=VALUE sets one, such as room=12, and NAME- removes one: nothing was changed",
        )),
        () if is_selected && !hosts.is_empty() => Err(Failure::bad_input(format!(
            "{} is no label (NAME=VALUE, or NAME- to remove it), and hosts are named either by --selector or one by \
             one: nothing was changed",
            hosts.join(", ")
        ))),
        () => Ok((hosts, labels)),
    }
}

pub(super) async fn run(arguments: Label) -> Result<(), Failure> {
    let Label { words, selector, why, target, json } = arguments;
    let (mut named, changes) = parted(words, selector.is_some())?;
    let mut client = target.connect().await?;
    if let Some(selector) = selector {
        let listed = client.list_hosts(ListHostsRequest { selector: selector.clone() }).await?.into_inner();
        let members = listed.hosts.into_iter().filter(|host| host.revoked_at_micros == 0);
        named = members.map(|host| host.agent_id).collect();
        if named.is_empty() {
            return Err(Failure::bad_input(format!("{selector:?} chooses no host: nothing was changed")));
        }
    }
    // Whoever misspells one host of many is told so before anything is changed.
    let mut before = Vec::new();
    for host in named {
        let as_is = explained(&mut client, host.clone()).await?;
        before.push((host, as_is));
    }
    let mut done: Vec<Labelled> = Vec::new();
    for (host, before) in before {
        let request = why.of(LabelHostRequest { host: host.clone(), changes: changes.clone() });
        let labelled = async {
            client.label_host(request).await?;
            explained(&mut client, host).await
        };
        let after = labelled.await.map_err(|failure: Failure| so_far(&failure, &done))?;
        done.push(Labelled { before, after });
    }
    if json {
        let hosts: Vec<_> = done.iter().map(Labelled::to_json).collect();
        // Of one host its labels are told as of old, too.
        let labels = done.first().filter(|_| done.len() == 1).map(|one| json!(labels(&one.after)));
        return print_json(&json!({ "hosts": hosts, "labels": labels }));
    }
    print(&done.iter().map(|one| one.said(&changes)).collect::<String>())
}

async fn explained(client: &mut Client, host: String) -> Result<ExplainHostReply, Failure> {
    Ok(client.explain_host(ExplainHostRequest { host }).await?.into_inner())
}

/// A failure in the middle of many names those whose labels are changed by then.
fn so_far(failure: &Failure, done: &[Labelled]) -> Failure {
    let names: Vec<String> = done.iter().map(Labelled::name).collect();
    match names.as_slice() {
        [] => Failure::new(failure.code(), failure.to_string()),
        names => Failure::new(failure.code(), format!("{failure}; done are: {}", names.join(", "))),
    }
}

fn labels(of: &ExplainHostReply) -> BTreeMap<&str, &str> {
    of.labels.iter().map(|label| (label.name.as_str(), label.value.as_str())).collect()
}

/// A host before and after.
struct Labelled {
    before: ExplainHostReply,
    after: ExplainHostReply,
}

impl Labelled {
    fn name(&self) -> String {
        let host = self.after.host.clone().unwrap_or_default();
        let name = hosts::name(&host);
        printable::line(if name.is_empty() { &host.agent_id } else { &name }, usize::MAX)
    }

    /// What has become another one, and in which groups the host is now.
    fn said(&self, changes: &[String]) -> String {
        let (before, after) = (labels(&self.before), labels(&self.after));
        let names = changes.iter().map(|change| {
            let name = change.split_once('=').map_or(change.as_str(), |(name, _)| name);
            (name.trim_end_matches('-'), change)
        });
        let said = names.map(|(name, change)| match (before.get(name), after.get(name)) {
            (None, None) => format!("{change}: it has no such label"),
            (was, is) if was == is => format!("{change}: it is so already"),
            (Some(was), None) => format!("{name}={was} is removed"),
            (Some(was), Some(is)) => format!("{name}={is}, which was {was}"),
            (None, Some(is)) => format!("{name}={is}, which is new"),
        });
        let said = said.collect::<Vec<_>>().join("; ");
        let groups = match self.after.groups.as_slice() {
            [] => "it is in no group".to_owned(),
            [one] => format!("it is in the group {one}"),
            several => format!("it is in the groups {}", several.join(", ")),
        };
        format!("{}: {}\n", self.name(), printable::line(&format!("{said}; {groups}"), usize::MAX))
    }

    fn to_json(&self) -> serde_json::Value {
        let host = self.after.host.clone().unwrap_or_default();
        json!({
            "agent_id": host.agent_id,
            "name": hosts::name(&host),
            "labels": labels(&self.after),
            "groups": self.after.groups,
        })
    }
}

#[cfg(test)]
mod tests {
    use fallow_proto::fleet::v1::HostState;
    use fallow_proto::operator::v1::{Host, Label};

    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn r6_4_several_hosts_are_labelled_at_once_and_what_is_missing_is_said() {
        let (hosts, labels) = parted(words("pc- pc-5 room=13 rack-"), false).unwrap();
        assert_eq!((hosts, labels), (words("pc- pc-5"), words("room=13 rack-")));
        let (hosts, labels) = parted(words("room=13"), true).unwrap();
        assert_eq!((hosts.len(), labels), (0, words("room=13")));
        for (bad, is_selected, said) in
            [("pc-4 pc-5", false, "no label is named"), ("pc-4 room=13", true, "pc-4 is no label")]
        {
            let failure = parted(words(bad), is_selected).unwrap_err().to_string();
            assert!(failure.contains(said), "{failure}");
        }
    }

    #[test]
    fn r6_4_who_labels_a_host_hears_what_has_changed_and_in_which_groups_it_is() {
        let reply = |labels: &[(&str, &str)], groups: &[&str]| ExplainHostReply {
            host: Some(Host {
                state: Some(HostState { name: "pc-4".into(), ..HostState::default() }),
                ..Host::default()
            }),
            labels: labels
                .iter()
                .map(|(name, value)| Label {
                    name: (*name).into(),
                    value: (*value).into(),
                    ..Label::default()
                })
                .collect(),
            groups: groups.iter().map(|group| (*group).to_owned()).collect(),
            ..ExplainHostReply::default()
        };
        let moved = Labelled {
            before: reply(&[("room", "12"), ("rack", "1"), ("os", "linux")], &[]),
            after: reply(&[("room", "13"), ("site", "brno"), ("os", "linux")], &["quiet", "room-13"]),
        };
        assert_eq!(
            moved.said(&words("room=13 site=brno rack- nolabel-")),
            "pc-4: room=13, which was 12; site=brno, which is new; rack=1 is removed; nolabel-: it has no such \
             label; it is in the groups quiet, room-13\n"
        );
        let same = Labelled { before: reply(&[("room", "12")], &[]), after: reply(&[("room", "12")], &[]) };
        assert_eq!(same.said(&words("room=12")), "pc-4: room=12: it is so already; it is in no group\n");
    }
}
