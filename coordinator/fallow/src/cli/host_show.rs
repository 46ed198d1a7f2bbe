//! `fallow hosts show`.

use clap::Args;
use fallow_daemon::clock;
use fallow_domain::DocumentVersion;
use fallow_proto::operator::v1::{
    ExplainHostReply, ExplainHostRequest, ExplainedValue, HadVersion, Label, LabelSource, LostValue,
    TakenBackVersion,
};
use serde_json::{Value, json};

use super::connect::Target;
use super::table::{self, Column::Text};
use super::{Failure, drift, fitted, going_out, hosts, print, print_json};

const EXAMPLE: &str = "\
Examples:
  fallow hosts show lab-pc-7
  fallow hosts show lab-pc-7 --why
  fallow hosts show lab-pc-7 --json | jq .groups

With --why: each value that the host is asked for, who says it, and what it
prevailed over, the highest first. What the owner of the host limits is the
owner's.";

#[derive(Args, Debug)]
#[command(after_help = EXAMPLE)]
pub(crate) struct Show {
    /// The host, by its agent's id, its name or its host name.
    host: String,
    /// Each value that the host is asked for, and who says it.
    #[arg(long)]
    why: bool,
    #[command(flatten)]
    target: Target,
    /// All columns, however narrow the terminal is.
    #[arg(long)]
    wide: bool,
    /// One JSON object, with the values.
    #[arg(long)]
    json: bool,
}

pub(super) async fn run(arguments: Show) -> Result<(), Failure> {
    let Show { host, why, target, wide, json } = arguments;
    let mut client = target.connect().await?;
    let reply = client.explain_host(ExplainHostRequest { host }).await?.into_inner();
    if json {
        return print_json(&to_json(&reply));
    }
    let names = hosts::names_of_copied(&mut client, reply.host.as_slice()).await;
    print(&to_text(&reply, why, &names, wide))?;
    going_out::tell_waiting(&mut client).await;
    Ok(())
}

fn to_text(reply: &ExplainHostReply, why: bool, names: &hosts::Names, wide: bool) -> String {
    let host = reply.host.clone().unwrap_or_default();
    let state = host.state.clone().unwrap_or_default();
    let mut rows: Vec<(&str, String)> = vec![
        ("name", state.name.clone()),
        ("agent", host.agent_id.clone()),
        ("host", state.hostname),
        ("link", if host.connected { "up" } else { "down" }.to_owned()),
        ("seen", table::ago(host.last_seen_micros, clock::now())),
        ("document", hosts::follows(&host, reply.document_version)),
        ("state", hosts::state_of(&host, reply.document_version, names)),
        ("signed by", state.organisation_keys.join(" ")),
        ("copied", host.copy_note.clone()),
        ("groups", reply.groups.join(", ")),
    ];
    if let Some(why) = drift::cause(&host, reply.document_version, clock::now()) {
        rows.insert(6, ("why not", why));
    }
    rows.extend(reply.taken_back.iter().map(|one| ("taken back", taken_back(one, state.document_version))));
    rows.retain(|(what, value)| !matches!(*what, "copied" | "signed by" | "state") || !value.is_empty());
    let label = |label: &Label| {
        let by = match label.source() {
            LabelSource::Enrolment => " (enrolment)",
            LabelSource::Operator => " (operator)",
            LabelSource::Agent | LabelSource::Unspecified => "",
        };
        ("label", format!("{}={}{by}", label.name, label.value))
    };
    rows.extend(reply.labels.iter().map(label));
    let rows = rows.into_iter().map(|(name, value)| vec![name.to_owned(), value]).collect();
    let mut text = fitted::render(vec![(Text("what"), 0), (Text("value"), 0)], rows, wide);
    if why {
        let columns = vec![(Text("value"), 0), (Text("is"), 0), (Text("by"), 0), (Text("prevailed over"), 0)];
        text += "\n";
        text += &fitted::render(columns, reply.values.iter().map(why_row).collect(), wide);
    }
    text
}

/// What a version that was taken back was to a host that follows another one, or that one still.
fn taken_back(one: &TakenBackVersion, follows: u64) -> String {
    let TakenBackVersion { rollout, version, by_version, .. } = one;
    let [version, by] = [*version, *by_version].map(DocumentVersion);
    match one.had() {
        _ if DocumentVersion(follows) == version => {
            format!("has version {version} still, which rollout {rollout} took back by version {by}")
        }
        HadVersion::TakenBack => {
            format!("was taken back from version {version} by version {by} (rollout {rollout})")
        }
        HadVersion::WentBack => {
            format!("went back from version {version} by itself, which rollout {rollout} took back")
        }
        HadVersion::Never => {
            format!("never had version {version}, which rollout {rollout} took back by version {by}")
        }
        HadVersion::Unspecified => {
            format!("it was not kept whether it had version {version}, which rollout {rollout} took back")
        }
    }
}

fn taken_back_json(one: &TakenBackVersion) -> Value {
    let had = match one.had() {
        HadVersion::TakenBack => "taken back",
        HadVersion::WentBack => "went back by itself",
        HadVersion::Never => "never",
        HadVersion::Unspecified => "unknown",
    };
    json!({ "rollout": one.rollout, "version": one.version, "by_version": one.by_version, "had": had })
}

fn why_row(value: &ExplainedValue) -> Vec<String> {
    let ExplainedValue { key, value, origin, lost } = value;
    let lost: Vec<String> =
        lost.iter().map(|LostValue { origin, value }| format!("{value} by {origin}")).collect();
    vec![key.clone(), value.clone(), origin.clone(), lost.join(", ")]
}

fn to_json(reply: &ExplainHostReply) -> Value {
    let lost = |LostValue { origin, value }: &LostValue| json!({ "origin": origin, "value": value });
    let value = |value: &ExplainedValue| {
        json!({
            "key": value.key,
            "value": value.value,
            "origin": value.origin,
            "prevailed_over": value.lost.iter().map(lost).collect::<Vec<_>>(),
        })
    };
    let label = |label: &Label| {
        let source = match label.source() {
            LabelSource::Enrolment => "enrolment",
            LabelSource::Operator => "operator",
            LabelSource::Agent => "agent",
            LabelSource::Unspecified => "",
        };
        json!({ "name": label.name, "value": label.value, "source": source })
    };
    json!({
        "host": reply.host.as_ref().map(|host| hosts::host_json(host, reply.document_version)),
        "document_version": reply.document_version,
        "labels": reply.labels.iter().map(label).collect::<Vec<_>>(),
        "groups": reply.groups,
        "values": reply.values.iter().map(value).collect::<Vec<_>>(),
        "taken_back": reply.taken_back.iter().map(taken_back_json).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r6_5_a_host_that_a_version_was_taken_from_is_told_from_one_that_never_had_it() {
        let said = |had: HadVersion, follows: u64| {
            let one = TakenBackVersion { rollout: 2, version: 5, by_version: 6, had: had.into() };
            taken_back(&one, follows)
        };
        assert_eq!(said(HadVersion::TakenBack, 6), "was taken back from version 5 by version 6 (rollout 2)");
        assert_eq!(said(HadVersion::Never, 6), "never had version 5, which rollout 2 took back by version 6");
        assert!(said(HadVersion::WentBack, 4).starts_with("went back from version 5 by itself"));
        assert!(said(HadVersion::Unspecified, 6).starts_with("it was not kept whether it had version 5"));
        // One that is away has it still, or had not said so when it was taken back.
        for had in [HadVersion::TakenBack, HadVersion::Never] {
            assert!(said(had, 5).starts_with("has version 5 still"));
        }
    }
}
