//! `fallow hosts`.

use std::collections::BTreeMap;

use clap::{Args, Subcommand};
use fallow_daemon::clock;
use fallow_domain::agent_state::{NetworkRest, SuspendedBy};
use fallow_domain::{DocumentVersion, LabelName, Metric, RPCS_PER_JOB};
use fallow_proto::fleet::disk::act_from_wire;
use fallow_proto::fleet::host::{network_from_wire, suspended_by};
use fallow_proto::fleet::v1::{DiskDecision, DiskSpace, HostState, Metrics};
use fallow_proto::operator::v1::{Host, ListHostsRequest};
use serde_json::{Value, json};

use super::connect::{Client, Target};
use super::table::{self, Column::Number, Column::Text};
use super::{
    Failure, drift, fitted, going_out, host_label, host_removal, host_show, print, print_json, print_told,
};

const EXAMPLE: &str = "\
Examples:
  fallow hosts
  fallow hosts --selector 'room=12, !gpu'
  fallow hosts --drift
  fallow hosts --json | jq '.hosts[] | select(.connected | not)'
  fallow hosts show lab-pc-7 --why
  fallow hosts label lab-pc-7 room=12

A selector is terms parted by commas: room=12, room!=12, gpu, !gpu,
os in (linux, freebsd), room notin (1, 2), cores>=8.";

/// Without a subcommand they are listed.
#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true, after_help = EXAMPLE)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    list: List,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Shows one host: its labels, its groups, and why it is asked for what.
    Show(host_show::Show),
    /// Sets and removes labels of a host.
    Label(host_label::Label),
    /// Takes a host out of the fleet for good, at once.
    #[command(after_help = host_removal::REVOKE)]
    Revoke(host_removal::Revoke),
    /// Removes a host that is gone from the list.
    #[command(after_help = host_removal::FORGET)]
    Forget(host_removal::Forget),
}

#[derive(Args, Debug)]
struct List {
    #[command(flatten)]
    target: Target,
    /// Only hosts with such labels, such as 'room=12, !gpu'.
    #[arg(long, default_value = "", hide_default_value = true)]
    selector: String,
    /// Only hosts that do not follow the documents that they are to follow, and why.
    #[arg(long)]
    drift: bool,
    /// All columns, however narrow the terminal is.
    #[arg(long)]
    wide: bool,
    /// One JSON object instead of a table.
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(arguments: Arguments) -> Result<(), Failure> {
    match arguments.command {
        None => list(arguments.list).await,
        Some(Command::Show(show)) => host_show::run(show).await,
        Some(Command::Label(label)) => host_label::run(label).await,
        Some(Command::Revoke(revoke)) => host_removal::revoke(revoke).await,
        Some(Command::Forget(forget)) => host_removal::forget(forget).await,
    }
}

async fn list(arguments: List) -> Result<(), Failure> {
    let mut client = arguments.target.connect().await?;
    let is_chosen = !arguments.selector.trim().is_empty();
    let request = ListHostsRequest { selector: arguments.selector };
    let mut reply = client.list_hosts(request).await?.into_inner();
    let (now, newest) = (clock::now(), reply.document_version);
    if arguments.drift {
        reply.hosts.retain(|host| drift::cause(host, newest, now).is_some());
    }
    reply.hosts.sort_by_cached_key(|host| (in_order(&name(host)), host.agent_id.clone()));
    if arguments.json {
        let hosts: Vec<_> = reply.hosts.iter().map(|host| host_json(host, newest)).collect();
        return print_json(&json!({ "document_version": reply.document_version, "hosts": hosts }));
    }
    if arguments.drift {
        let rows: Vec<_> =
            reply.hosts.iter().filter_map(|host| drift::row(host, shown(name(host)), newest, now)).collect();
        print(&match rows.is_empty() {
            true => "All hosts follow what they are to follow.\n".to_owned(),
            false => fitted::render(drift::columns(), rows, arguments.wide),
        })?;
        going_out::tell_waiting(&mut client).await;
        return Ok(());
    }
    if reply.hosts.is_empty() {
        return print_told(match is_chosen {
            true => "No host has such labels: `fallow hosts` lists all.\n",
            false => {
                "No hosts yet: `fallow tokens create` makes a token, with which `fallow-agent run` joins.\n"
            }
        });
    }
    let columns = vec![
        (Text("name"), 0),
        (Text("agent"), 9),
        (Text("host"), 10),
        (Text("link"), 0),
        (Text("seen"), 2),
        (Number("document"), 8),
        (Number("CPUs"), 4),
        (Number("running"), 3),
        (Number("jobs held"), 5),
        (Number("CPU time"), 7),
        (Text("labels"), 6),
        (Text("state"), 0),
    ];
    let names = names_of_copied(&mut client, &reply.hosts).await;
    let rows = reply.hosts.iter().map(|host| row(host, reply.document_version, &names)).collect();
    print(&format!("{}{}", fitted::render(columns, rows, arguments.wide), total(&reply.hosts)))
}

/// What hosts are called, by the ids of their agents.
pub(super) type Names = BTreeMap<String, String>;

/// What hosts are called.
pub(super) fn names(hosts: &[Host]) -> Names {
    hosts.iter().map(|host| (host.agent_id.clone(), name(host))).collect()
}

/// What those are called that some of these are copies of. One that is not listed any more has no name.
pub(super) async fn names_of_copied(client: &mut Client, hosts: &[Host]) -> Names {
    let here = names(hosts);
    let is_known = |host: &Host| host.copy_of.is_empty() || here.contains_key(&host.copy_of);
    if hosts.iter().all(is_known) {
        return here;
    }
    let all = client.list_hosts(ListHostsRequest::default()).await;
    all.map_or(here, |all| names(&all.into_inner().hosts))
}

/// How many hosts are listed, and how many of them are there: one line, or none for none.
fn total(hosts: &[Host]) -> String {
    let up = hosts.iter().filter(|host| host.connected).count();
    match hosts.len() {
        0 => String::new(),
        1 => format!("1 host is listed, {}\n", if up == 1 { "up" } else { "down" }),
        all => format!("{all} hosts are listed, {up} of them up\n"),
    }
}

/// A name for sorting: numbers in it count as numbers, so that `pc-2` comes before `pc-10`.
fn in_order(name: &str) -> Vec<(String, Option<u64>)> {
    let mut parts = Vec::new();
    let mut rest = name;
    while !rest.is_empty() {
        let text = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
        let (text, after) = rest.split_at(text);
        let digits = after.find(|c: char| !c.is_ascii_digit()).unwrap_or(after.len());
        let (digits, after) = after.split_at(digits);
        let number = (!digits.is_empty()).then(|| digits.parse().unwrap_or(u64::MAX));
        parts.push((text.to_lowercase(), number));
        rest = after;
    }
    parts
}

/// Who suspended computing, in words; those of a newer coordinator where they are not known here, and nothing
/// where nobody did.
fn suspender(state: &HostState) -> &str {
    match suspended_by(state) {
        None => "",
        Some(SuspendedBy::Other) if !state.suspended_by.is_empty() => &state.suspended_by,
        Some(by) => by.as_str(),
    }
}

/// Which version of the documents it follows, of the one that it is to have; and whether it has yet to get
/// what that version says to it with the labels that it has now.
pub(super) fn follows(host: &Host, newest: u64) -> String {
    // A coordinator that knows no rollouts does not say which.
    let wanted = if host.wanted_version == 0 { newest } else { host.wanted_version };
    let version = host.state.as_ref().map_or(0, |state| state.document_version);
    let (version, wanted) = (DocumentVersion(version), DocumentVersion(wanted));
    format!("{version}/{wanted}{}", if host.has_old_content { " (old labels)" } else { "" })
}

/// What a host is called.
pub(super) fn name(host: &Host) -> String {
    let state = host.state.clone().unwrap_or_default();
    if state.name.is_empty() { state.hostname } else { state.name }
}

/// The most columns of a name in a table: hosts choose their names, and one would push all else aside.
const NAME_COLUMNS: usize = 40;

/// A name as a table shows it.
pub(super) fn shown(name: String) -> String {
    if name.chars().nth(NAME_COLUMNS).is_none() {
        return name;
    }
    name.chars().take(NAME_COLUMNS - 1).chain(['…']).collect()
}

fn row(host: &Host, newest: u64, names: &Names) -> Vec<String> {
    let state = host.state.clone().unwrap_or_default();
    let said = state_of(host, newest, names);
    vec![
        shown(name(host)),
        host.agent_id.clone(),
        shown(state.hostname),
        if host.connected { "up" } else { "down" }.to_owned(),
        table::ago(host.last_seen_micros, clock::now()),
        follows(host, newest),
        format!("{}/{}", state.usable_cpus, state.cpus),
        host.tasks_running.to_string(),
        host.tasks_held.to_string(),
        table::micros(state.cpu_time_micros),
        given_labels(&host.labels),
        said,
    ]
}

/// How a host stands, where that is worth a word.
pub(super) fn state_of(host: &Host, newest: u64, names: &Names) -> String {
    match (host.revoked_at_micros != 0, host.revoked_reason.as_str()) {
        (true, "") => "revoked".to_owned(),
        (true, why) => format!("revoked: {why}"),
        (false, _) => {
            let said = match host.follows_unknown {
                true => format!(
                    "follows version {}, which this coordinator does not have, until version {} is signed",
                    DocumentVersion(host.state.as_ref().map_or(0, |state| state.document_version)),
                    DocumentVersion(newest)
                ),
                false => said(&host.state.clone().unwrap_or_default(), newest),
            };
            let network = match (host.follows_unknown, &host.state) {
                (false, Some(state)) => network(state),
                _ => "",
            };
            [copy_of(host, names), said, network.to_owned()]
                .into_iter()
                .filter(|text| !text.is_empty())
                .collect::<Vec<_>>()
                .join("; ")
        }
    }
}

/// Whose copy a host was, in words; empty for one that was none.
fn copy_of(host: &Host, names: &Names) -> String {
    let of = &host.copy_of;
    let name = names.get(of).filter(|name| !name.is_empty()).unwrap_or(of);
    if of.is_empty() { String::new() } else { format!("copy of {}", shown(name.clone())) }
}

/// What keeps a host from doing what it is asked for, in words.
fn said(state: &HostState, newest: u64) -> String {
    let follows = DocumentVersion(state.document_version);
    if follows > DocumentVersion(newest) {
        return format!(
            "follows version {follows}, which this coordinator does not have: if it was put back to an earlier \
             state, `fallow restore --new-term` begins a new term"
        );
    }
    let (refused, rolled_back) = (state.document_refused_version, state.document_rolled_back_version);
    match (state.document_refusal.as_str(), rolled_back, suspender(state)) {
        // A version that it refuses since it went back from it.
        (why, _, _) if !why.is_empty() => format!("refused document {}: {why}", DocumentVersion(refused)),
        (_, 0, "") => String::new(),
        (_, 0, "hours") => "outside of its hours".to_owned(),
        (_, 0, "in use") => "somebody uses it".to_owned(),
        (_, 0, "snooze") => "paused by somebody there".to_owned(),
        (_, 0, "battery") => "rests for its battery".to_owned(),
        (_, 0, "other programs") => "rests for other programs of its users".to_owned(),
        (_, 0, "no input") => "rests without input (stop_without_input)".to_owned(),
        (_, 0, "preference file") => "its owner's preference file cannot be read".to_owned(),
        (_, 0, "disk") => "has too little space on its disk".to_owned(),
        (_, 0, "start delay") => "waits after its start (start_delay)".to_owned(),
        (_, 0, "confinement") => "lacks layers of confinement that are required".to_owned(),
        (_, 0, by) => format!("suspended by {by}"),
        (..) => {
            format!("went back from version {}: {}", DocumentVersion(rolled_back), state.document_rollback)
        }
    }
}

/// What keeps a host from contacting projects, in words.
fn network(state: &HostState) -> &'static str {
    match network_from_wire(state.network_rests) {
        None => "",
        Some(NetworkRest::Hours) => "outside of its network hours",
        Some(NetworkRest::Amount) => "transfers no more for now (transfer_max)",
        Some(NetworkRest::Wifi) => "not on WiFi (network_wifi_only)",
        Some(NetworkRest::Other) => "contacts no project for now",
    }
}

/// The labels that people gave; those that agents report would fill the line.
fn given_labels(labels: &[String]) -> String {
    let is_given = |label: &&String| {
        let name = label.split_once('=').map_or(label.as_str(), |(name, _)| name);
        !name.parse::<LabelName>().is_ok_and(|name| name.is_fact())
    };
    labels.iter().filter(is_given).map(String::as_str).collect::<Vec<_>>().join(" ")
}

/// Labels as an object.
pub(super) fn labels_json(labels: &[String]) -> Value {
    let pairs = labels.iter().filter_map(|label| label.split_once('='));
    Value::Object(pairs.map(|(name, value)| (name.to_owned(), value.into())).collect())
}

pub(crate) fn metrics_json(metrics: Option<&Metrics>) -> Value {
    let metrics = metrics.copied().unwrap_or_default();
    let each = Metric::ALL.map(|metric| (metric.key(), metric_of(&metrics, metric)));
    let all = each.into_iter().chain([(RPCS_PER_JOB.key, metrics.rpcs_per_job)]);
    Value::Object(all.map(|(key, value)| (key.to_owned(), value.into())).collect())
}

/// One of a host's metrics.
pub(crate) fn metric_of(metrics: &Metrics, metric: Metric) -> Option<f64> {
    match metric {
        Metric::Idleness => metrics.idleness,
        Metric::Waste => metrics.waste,
        Metric::ShareViolation => metrics.share_violation,
        Metric::ShareDeviation => metrics.share_deviation,
        Metric::Monotony => metrics.monotony,
    }
}

/// How it stands with a host's disk, and what was decided; null where neither is known.
fn disk_json(space: Option<&DiskSpace>, decisions: &[DiskDecision]) -> Value {
    if space.is_none() && decisions.is_empty() {
        return Value::Null;
    }
    let space = space.cloned().unwrap_or_default();
    let decision = |one: &DiskDecision| {
        json!({
            "at": table::instant(one.at_micros),
            "what": act_from_wire(one.act).as_str(),
            "project_url": one.project_url,
            "name": one.name,
            "bytes": one.bytes,
            "rule": one.rule,
            "why": one.why,
        })
    };
    json!({
        "limit_bytes": space.limit_bytes,
        "limited_by": space.limited_by,
        "used_bytes": space.used_bytes,
        "missing_bytes": space.missing_bytes,
        "suspended": space.suspended,
        "deleted_files": space.deleted_files,
        "deleted_bytes": space.deleted_bytes,
        "jobs_given_back": space.jobs_given_back,
        "decisions": decisions.iter().map(decision).collect::<Vec<_>>(),
    })
}

pub(crate) fn host_json(host: &Host, newest: u64) -> Value {
    let state = host.state.clone().unwrap_or_default();
    let projects: Vec<_> = host
        .projects
        .iter()
        .map(|project| {
            json!({
                "url": project.url,
                "name": project.name,
                "share": project.share,
                "debt_seconds": project.debt_seconds,
                "cpu_time_micros": project.cpu_time_micros,
                "cpu_in_progress_micros": project.cpu_in_progress_micros,
                "cpu_success_micros": project.cpu_success_micros,
                "cpu_error_micros": project.cpu_error_micros,
                "cpu_late_micros": project.cpu_late_micros,
                "cpu_contested_micros": project.cpu_contested_micros,
                "scheduler_rpcs": project.scheduler_rpcs,
                "scheduler_failures": project.scheduler_failures,
                "min_rpc_time": table::instant(project.min_rpc_time_micros),
                "min_rpc_reason": project.min_rpc_reason,
                "jobs_success": project.jobs_success,
                "jobs_error": project.jobs_error,
                "jobs_late": project.jobs_late,
            })
        })
        .collect();
    let tasks: Vec<_> = host
        .tasks
        .iter()
        .map(|task| {
            json!({
                "project_url": task.project_url,
                "name": task.name,
                "phase": task.phase().as_str_name().trim_start_matches("TASK_PHASE_").to_lowercase(),
                "cpu_time_micros": task.cpu_time_micros,
                "checkpoint_cpu_micros": task.checkpoint_cpu_micros,
                "fraction_done": task.fraction_done,
                "deadline": table::instant(task.deadline_micros),
            })
        })
        .collect();
    let mut all = json!({
        "agent_id": host.agent_id,
        "name": state.name,
        "hostname": state.hostname,
        "connected": host.connected,
        "last_seen": table::instant(host.last_seen_micros),
        "revoked_at": table::instant(host.revoked_at_micros),
        "revoked_reason": host.revoked_reason,
        "copy_of": host.copy_of,
        "copy_note": host.copy_note,
        "certificate_until": table::instant(host.certificate_until_micros),
        "applied_sequence": host.applied_sequence,
        "tasks_held": host.tasks_held,
        "tasks_running": host.tasks_running,
        "is_cut": host.is_cut,
        "cpus": state.cpus,
        "usable_cpus": state.usable_cpus,
        "idle_cpus": state.idle_cpus,
        "suspended_by": suspender(&state),
        "document_version": state.document_version,
        "document_content": state.document_content,
        "document_wanted": host.wanted_version,
        "has_old_content": host.has_old_content,
        "drift": drift::cause(host, newest, clock::now()),
        "document_applied_at": table::instant(state.document_applied_at_micros),
        "document_refused_version": state.document_refused_version,
        "document_refusal": state.document_refusal,
        "document_rolled_back_version": state.document_rolled_back_version,
        "document_rollback": state.document_rollback,
        "document_rolled_back_at": table::instant(state.document_rolled_back_at_micros),
        "organisation_keys": state.organisation_keys,
        "cpu_time_micros": state.cpu_time_micros,
        "scheduler_rpcs": state.scheduler_rpcs,
        "jobs_finished": state.jobs_finished,
        "started_at": table::instant(state.started_at_micros),
        "day": metrics_json(state.day.as_ref()),
        "week": metrics_json(state.week.as_ref()),
        "month": metrics_json(state.month.as_ref()),
        "projects": projects,
        "tasks": tasks,
        "disk": disk_json(state.disk.as_ref(), &host.disk_decisions),
        "labels": labels_json(&host.labels),
    });
    // There is an end to what the macro takes.
    all["network_rests"] = json!(network_from_wire(state.network_rests).map(NetworkRest::as_str));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r6_11_hosts_are_listed_by_name_with_numbers_as_numbers_and_how_many_there_are_is_said() {
        let mut names = ["pc-10", "pc-2", "b", "Pc-2a", "", "99999999999999999999999", "pc-02", "pc-"];
        names.sort_by_cached_key(|name| in_order(name));
        assert_eq!(names, ["", "99999999999999999999999", "b", "pc-", "pc-2", "pc-02", "Pc-2a", "pc-10"]);
        let up = Host { connected: true, ..Host::default() };
        assert_eq!(total(&[]), "");
        assert_eq!(total(std::slice::from_ref(&up)), "1 host is listed, up\n");
        assert_eq!(total(&[up, Host::default()]), "2 hosts are listed, 1 of them up\n");
    }

    #[test]
    fn r6_10_a_name_of_any_length_takes_forty_columns_of_a_table_and_stays_whole_in_json() {
        let called = |name: &str| {
            let state = HostState { name: name.into(), hostname: name.into(), ..Default::default() };
            Host { state: Some(state), ..Default::default() }
        };
        let (fits, long) = ("ž".repeat(40), "ž".repeat(41));
        assert_eq!(row(&called(&fits), 0, &Names::new())[0], fits);
        let cut = format!("{}…", "ž".repeat(39));
        assert_eq!(
            [&row(&called(&long), 0, &Names::new())[0], &row(&called(&long), 0, &Names::new())[2]],
            [&cut, &cut]
        );
        assert_eq!(host_json(&called(&long), 0)["name"], long);
    }

    #[test]
    fn r6_10_a_host_that_was_a_copy_says_of_which_one() {
        let mut host = Host { copy_of: "01J".into(), copy_note: "from there".into(), ..Host::default() };
        assert_eq!(state_of(&host, 0, &Names::new()), "copy of 01J");
        let first = HostState { name: "pc-5".into(), ..HostState::default() };
        let first = Host { agent_id: "01J".into(), state: Some(first), ..Host::default() };
        assert_eq!(state_of(&host, 0, &names(&[first])), "copy of pc-5");
        host.state = Some(HostState { suspended_by: "owner".into(), ..HostState::default() });
        assert_eq!(state_of(&host, 0, &Names::new()), "copy of 01J; suspended by owner");
        let json = host_json(&host, 0);
        assert_eq!((&json["copy_of"], &json["copy_note"]), (&"01J".into(), &"from there".into()));
        assert_eq!(state_of(&Host::default(), 0, &Names::new()), "");
    }

    #[test]
    fn r6_4_a_host_that_contacts_no_project_says_why_beside_all_else() {
        for (rests, said) in [
            (0, ""),
            (1, "outside of its network hours"),
            (2, "transfers no more for now (transfer_max)"),
            (3, "not on WiFi (network_wifi_only)"),
            (77, "contacts no project for now"),
        ] {
            let state = HostState { network_rests: rests, ..HostState::default() };
            let mut host = Host { state: Some(state), ..Host::default() };
            assert_eq!(state_of(&host, 0, &Names::new()), said);
            host.state.as_mut().unwrap().suspended_by = "owner".into();
            let both = state_of(&host, 0, &Names::new());
            assert!(both.starts_with("suspended by owner") && both.ends_with(said), "{both}");
            let json = host_json(&host, 0)["network_rests"].clone();
            assert_eq!(json.is_null(), rests == 0, "{json}");
        }
    }

    #[test]
    fn r6_5_a_host_that_follows_a_version_which_the_coordinator_does_not_have_says_so() {
        let version = DocumentVersion::first_of(2).0;
        let state = HostState { document_version: version, ..HostState::default() };
        let host = Host { state: Some(state), ..Host::default() };
        assert_eq!(state_of(&host, version, &Names::new()), "");
        let said = state_of(&host, 7, &Names::new());
        assert!(said.starts_with("follows version 2.1, which") && said.contains("fallow restore"), "{said}");
    }

    #[test]
    fn r6_5_a_host_that_went_back_from_a_version_says_why_and_so_does_one_that_refuses_it_since() {
        let state = HostState {
            document_rolled_back_version: 7,
            document_rollback: "silence".into(),
            suspended_by: "owner".into(),
            ..HostState::default()
        };
        let mut host = Host { state: Some(state), ..Host::default() };
        assert_eq!(state_of(&host, 0, &Names::new()), "went back from version 7: silence");
        let json = host_json(&host, 0);
        let told = (&json["document_rolled_back_version"], &json["document_rollback"]);
        assert_eq!(told, (&7.into(), &"silence".into()));
        let state = host.state.as_mut().unwrap();
        (state.document_refused_version, state.document_refusal) = (7, "it went back from it".into());
        assert_eq!(state_of(&host, 0, &Names::new()), "refused document 7: it went back from it");
    }

    #[test]
    fn r6_5_a_host_that_follows_the_newest_version_as_it_was_for_its_old_labels_is_marked() {
        let state = fallow_proto::fleet::v1::HostState { document_version: 2, ..Default::default() };
        let mut host = Host { state: Some(state), ..Host::default() };
        assert_eq!(follows(&host, 3), "2/3");
        host.has_old_content = true;
        assert_eq!(follows(&host, 2), "2/2 (old labels)");
        let json = host_json(&host, 0);
        assert_eq!((&json["has_old_content"], &json["document_content"]), (&true.into(), &"".into()));
    }
}
