//! `fallow hosts show`.

use clap::Args;
use fallow_daemon::clock;
use fallow_domain::{Bytes, DocumentVersion};
use fallow_proto::fleet::disk::act_from_wire;
use fallow_proto::fleet::v1::{DiskDecision, DiskSpace};
use fallow_proto::operator::v1::{
    ExplainHostReply, ExplainHostRequest, ExplainedValue, HadVersion, Label, LabelSource, LostValue,
    TakenBackVersion,
};
use serde_json::{Value, json};

use super::connect::Target;
use super::table::{self, Column::Number, Column::Text};
use super::{Failure, drift, fitted, going_out, hosts, print, print_json};

const EXAMPLE: &str = "\
Examples:
  fallow hosts show lab-pc-7
  fallow hosts show lab-pc-7 --why
  fallow hosts show lab-pc-7 --json | jq .groups

What was decided about the host's disk since its agent was started stands below
its facts: the last 20 deletions, jobs given back and suspensions.

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
    rows.extend(state.disk.iter().flat_map(disk_rows));
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
    if !host.disk_decisions.is_empty() {
        let columns = vec![
            (Text("disk"), 0),
            (Text("what"), 0),
            (Text("file or job"), 0),
            (Number("bytes"), 0),
            (Text("rule"), 0),
            (Text("project"), 1),
            (Text("why"), 2),
        ];
        text += "\n";
        text += &fitted::render(columns, host.disk_decisions.iter().map(decision_row).collect(), wide);
    }
    if why {
        let columns = vec![(Text("value"), 0), (Text("is"), 0), (Text("by"), 0), (Text("prevailed over"), 0)];
        text += "\n";
        text += &fitted::render(columns, reply.values.iter().map(why_row).collect(), wide);
    }
    text
}

/// How it stands with the disk of a host.
fn disk_rows(space: &DiskSpace) -> Vec<(&'static str, String)> {
    let DiskSpace { limit_bytes, limited_by, used_bytes, missing_bytes, suspended, .. } = space;
    let DiskSpace { deleted_files, deleted_bytes, jobs_given_back, .. } = space;
    let mut rows =
        vec![("disk", format!("{} used of {} ({limited_by})", Bytes(*used_bytes), Bytes(*limit_bytes)))];
    if *suspended {
        let missing = Bytes(*missing_bytes);
        rows.push(("disk", format!("computing is suspended: {missing} have to be freed")));
    }
    if *deleted_files > 0 || *jobs_given_back > 0 {
        let (files, jobs) = (table::counted(*deleted_files, "file"), table::counted(*jobs_given_back, "job"));
        let bytes = Bytes(*deleted_bytes);
        rows.push(("disk", format!("since its start: {files} deleted ({bytes}), {jobs} given back")));
    }
    rows
}

/// What was decided about the disk of a host.
fn decision_row(decision: &DiskDecision) -> Vec<String> {
    let DiskDecision { at_micros, act, project_url, name, bytes, rule, why } = decision;
    let amount = if *bytes == 0 { String::new() } else { Bytes(*bytes).to_string() };
    let ago = table::ago(*at_micros, clock::now());
    let what = act_from_wire(*act).as_str().to_owned();
    vec![ago, what, hosts::shown(name.clone()), amount, rule.clone(), project_url.clone(), why.clone()]
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
    use fallow_proto::fleet::v1::{DiskAct, HostState};
    use fallow_proto::operator::v1::Host;

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

    #[test]
    fn r4_13_what_was_decided_about_a_disk_is_shown_with_its_rule_and_forges_no_line() {
        let decision = DiskDecision {
            at_micros: 1,
            act: DiskAct::Deleted.into(),
            project_url: "http://127.0.0.1:1/a/".into(),
            name: "in_7\u{1b}[2J\u{202e}\nforged".into(),
            bytes: 21_000_000,
            rule: "R4.4".into(),
            why: "its project needs room\nforged too".into(),
        };
        let suspended =
            DiskDecision { act: DiskAct::Suspended.into(), name: String::new(), ..decision.clone() };
        let newer = DiskDecision { act: 77, bytes: 0, ..suspended.clone() };
        let disk = DiskSpace {
            limit_bytes: 157_000_000,
            limited_by: "what leaves 1 GiB of the disk free\u{7}".into(),
            used_bytes: 127_000_000,
            missing_bytes: 3_000_000,
            suspended: true,
            deleted_files: 1,
            deleted_bytes: 21_000_000,
            jobs_given_back: 2,
        };
        let state = HostState { disk: Some(disk), ..HostState::default() };
        let host =
            Host { state: Some(state), disk_decisions: vec![decision, suspended, newer], ..Host::default() };
        let reply = ExplainHostReply { host: Some(host), ..ExplainHostReply::default() };
        let text = to_text(&reply, false, &hosts::Names::new(), true);
        println!("{text}");
        for said in [
            "127 MB used of 157 MB (what leaves 1 GiB of the disk free�)",
            "computing is suspended: 3 MB have to be freed",
            "since its start: 1 file deleted (21 MB), 2 jobs given back",
            "in_7�[2J��forged",
            "its project needs room�forged too",
        ] {
            assert!(text.contains(said), "{text} lacks {said}");
        }
        assert!(!text.lines().any(|line| line.trim_start().starts_with("forged")), "{text}");
        let rows: Vec<&str> = text.lines().filter(|line| line.contains("R4.4")).collect();
        assert_eq!(rows.len(), 3, "{text}");
        for (row, what) in rows.iter().zip(["deleted", "suspended", "other"]) {
            assert!(row.contains(what) && row.contains("http://127.0.0.1:1/a/"), "{row}");
        }
        let json = &to_json(&reply)["host"]["disk"];
        assert_eq!((&json["missing_bytes"], &json["suspended"]), (&3_000_000.into(), &true.into()));
        let whats: Vec<&Value> =
            json["decisions"].as_array().unwrap().iter().map(|one| &one["what"]).collect();
        assert_eq!(whats, ["deleted", "suspended", "other"]);
        assert_eq!(json["decisions"][0]["bytes"], 21_000_000);
        // Of an older agent nothing is known.
        let older = ExplainHostReply { host: Some(Host::default()), ..ExplainHostReply::default() };
        assert_eq!(to_json(&older)["host"]["disk"], Value::Null);
        assert!(!to_text(&older, false, &hosts::Names::new(), true).contains("disk"));
    }
}
