//! `fallow audit`: who did what, and whether the log is as it was written (R6.5, R6.10).

use clap::Args;
use fallow_coordinator::audit::{Actor, Chain, Entry, Head, Outcome, wire as told};
use fallow_domain::{Duration, ExitCode};
use fallow_proto::operator::v1::{ListAuditReply, ListAuditRequest, ListHostsRequest};
use serde_json::{Value, json};

use super::connect::{Client, Target};
use super::fitted::Ranked;
use super::table::{self, Column::Number, Column::Text};
use super::{Failure, fitted, hosts, print, print_json, print_table, tell_limit, units};

const EXAMPLE: &str = "\
Examples:
  fallow audit
  fallow audit --action 'host revoked' --actor ann --since 7d
  fallow audit --limit 1000 --json
  fallow audit --check

What operators changed, which hosts enrolled, and who was refused; the newest
entry is the last. An operator's name is that of his token. One with an @ is
what the tool of somebody said who has the coordinator's own token: he can say
any. Refusals are recorded up to twelve times an hour and kind; the next entry
says how many were not.

Each entry holds the hash of the one before. --check follows all of them and
ends with status 7 if one was changed, moved or taken out. Keep the hash that it
prints in another place: whoever can write the coordinator's store could make a
whole log anew, and has another hash then.";

#[derive(Args, Debug)]
#[command(after_help = EXAMPLE)]
pub(crate) struct Arguments {
    /// The newest so many.
    #[arg(long, default_value_t = 20, value_parser = units::count(1, 1_000))]
    limit: u32,
    /// Only what this operator did, by his name, or this agent, by its id.
    #[arg(long, default_value = "", hide_default_value = true, value_name = "NAME")]
    actor: String,
    /// Only this kind, as it is shown, such as 'host revoked'.
    #[arg(long, default_value = "", hide_default_value = true, value_name = "ACTION")]
    action: String,
    /// Only what is no older than this, such as 12h or 7d.
    #[arg(long, value_name = "TIME", value_parser = units::time)]
    since: Option<Duration>,
    /// Follow the whole chain, and say up to which entry it is whole.
    #[arg(long, conflicts_with_all = ["limit", "actor", "action", "since"])]
    check: bool,
    #[command(flatten)]
    target: Target,
    /// All columns, also where the terminal is too narrow for them.
    #[arg(long)]
    wide: bool,
    /// One JSON object instead of a table.
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(arguments: Arguments) -> Result<(), Failure> {
    let Arguments { limit, actor, action, since, check: is_check, target, wide, json } = arguments;
    let mut client = target.connect().await?;
    if is_check {
        return report(check(&mut client).await?, json);
    }
    let since = since.map(|age| (fallow_daemon::clock::now() - age).as_micros());
    let since_micros = since.unwrap_or_default();
    let request = ListAuditRequest { after: None, limit, action, actor, since_micros };
    let entries = read(client.list_audit(request).await?.into_inner())?.0;
    if json {
        let entries: Vec<Value> = entries.iter().map(to_json).collect();
        return print_json(&json!({ "entries": entries }));
    }
    let names = names(&mut client, &entries).await;
    print_table(entries.is_empty(), "No entry is of that kind.", || {
        fitted::render(columns(), entries.iter().map(|entry| row(entry, &names)).collect(), wide)
    })?;
    tell_limit(entries.len(), limit);
    Ok(())
}

/// What was done to, and why not, is in the last column, which is cut where it is too long.
fn columns() -> Vec<Ranked> {
    vec![
        (Number("entry"), 4),
        (Text("when"), 0),
        (Text("who"), 0),
        (Text("from"), 9),
        (Text("action"), 0),
        (Text("before"), 8),
        (Text("after"), 7),
        (Text("outcome"), 3),
        (Text("message"), 1),
        (Text("to what, and why not"), 0),
    ]
}

/// What the agents are called that did something.
async fn names(client: &mut Client, entries: &[Entry]) -> hosts::Names {
    if !entries.iter().any(|entry| matches!(entry.record.actor, Actor::Agent(_))) {
        return hosts::Names::new();
    }
    // One that is not listed any more is shown by its id.
    let listed = client.list_hosts(ListHostsRequest::default()).await;
    listed.map(|listed| hosts::names(&listed.into_inner().hosts)).unwrap_or_default()
}

/// Up to where the log is whole.
async fn check(client: &mut Client) -> Result<Head, Failure> {
    let mut chain = Chain::default();
    loop {
        let request = ListAuditRequest { after: Some(chain.head().sequence), ..Default::default() };
        let reply = client.list_audit(request).await?.into_inner();
        let is_last = !reply.more;
        let (entries, head) = read(reply)?;
        for entry in &entries {
            chain.follow(entry).map_err(|broken| broken_after(chain, &broken))?;
        }
        if is_last {
            chain.ends(head).map_err(|broken| broken_after(chain, &broken))?;
            return Ok(chain.head());
        }
    }
}

fn broken_after(chain: Chain, broken: &fallow_coordinator::audit::ChainBroken) -> Failure {
    let Head { sequence, hash } = chain.head();
    let whole = match sequence {
        0 => "nothing of it is whole".to_owned(),
        whole => format!("it is whole up to entry {whole} ({})", hash.to_hex()),
    };
    let text = format!(
        "the audit log is broken: {broken}; {whole}. Compare it with a backup of the coordinator's directory"
    );
    Failure::new(ExitCode::BadStore, text)
}

fn report(head: Head, json: bool) -> Result<(), Failure> {
    let Head { sequence, hash } = head;
    match (json, sequence) {
        (true, _) => print_json(&json!({ "whole_up_to": sequence, "hash": hash.to_hex() })),
        (false, 0) => print("The audit log is empty.\n"),
        (false, _) => print(&format!("The audit log is whole up to entry {sequence}, {}.\n", hash.to_hex())),
    }
}

fn read(reply: ListAuditReply) -> Result<(Vec<Entry>, Head), Failure> {
    let bad =
        |error| Failure::caused(ExitCode::BadStore, "the coordinator's answer is not understood", error);
    let head = told::head(&reply).map_err(bad)?;
    let entries = reply.entries.into_iter().map(told::from_wire).collect::<Result<_, _>>();
    Ok((entries.map_err(bad)?, head))
}

fn row(entry: &Entry, names: &hosts::Names) -> Vec<String> {
    let Entry { sequence, at, unrecorded, record, hash: _ } = entry;
    let at = table::instant(at.as_micros());
    // Seconds do.
    let at = at.split_once('.').map_or(at.clone(), |(seconds, _)| format!("{seconds}Z"));
    let (outcome, reason) = match &record.outcome {
        Outcome::Done => ("done", String::new()),
        Outcome::Refused(why) if *unrecorded == 0 => ("refused", format!("refused: {why}")),
        Outcome::Refused(why) => ("refused", format!("refused as {unrecorded} others before: {why}")),
    };
    let object = [record.object.as_str(), &reason].into_iter().filter(|part| !part.is_empty());
    vec![
        sequence.to_string(),
        at,
        who(&record.actor, names),
        record.from.clone(),
        record.action.words().to_owned(),
        short(&record.before),
        short(&record.after),
        outcome.to_owned(),
        record.message.clone(),
        object.collect::<Vec<_>>().join(": "),
    ]
}

/// With what he is. A name with an `@` is what the tool of the directory's owner says; others are those of
/// tokens.
fn who(actor: &Actor, names: &hosts::Names) -> String {
    match actor {
        Actor::Operator(name) | Actor::Named(name) => format!("operator {name}"),
        Actor::Agent(id) => {
            let name = names.get(&id.0).filter(|name| !name.is_empty()).unwrap_or(&id.0);
            format!("agent {}", hosts::shown(name.clone()))
        }
        Actor::Coordinator | Actor::Stranger => actor.name().to_owned(),
    }
}

/// Hashes of documents as other tables show them.
fn short(text: &str) -> String {
    let is_hash = text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    if is_hash { super::changes::short(text).to_owned() } else { text.to_owned() }
}

fn to_json(entry: &Entry) -> Value {
    let Entry { sequence, at, unrecorded, record, hash } = entry;
    let kind = match &record.actor {
        Actor::Operator(_) => "operator",
        Actor::Named(_) => "named operator",
        Actor::Coordinator => "coordinator",
        Actor::Agent(_) => "agent",
        Actor::Stranger => "stranger",
    };
    let (outcome, reason) = match &record.outcome {
        Outcome::Done => ("done", ""),
        Outcome::Refused(why) => ("refused", why.as_str()),
    };
    json!({
        "entry": sequence,
        "at": table::instant(at.as_micros()),
        "actor_kind": kind,
        "actor": record.actor.name(),
        "actor_is_claimed": matches!(record.actor, Actor::Operator(_)),
        "from": record.from,
        "action": record.action.words(),
        "object": record.object,
        "before": record.before,
        "after": record.after,
        "message": record.message,
        "outcome": outcome,
        "reason": reason,
        "unrecorded_before": unrecorded,
        "hash": hash.to_hex(),
    })
}

#[cfg(test)]
mod tests {
    use fallow_coordinator::audit::{Action, Record};
    use fallow_domain::{AgentId, Instant};

    use super::*;

    #[test]
    fn r6_11_a_narrow_terminal_shows_when_who_did_what_and_why_it_was_refused() {
        let entry = |record: Record| Entry {
            sequence: 17,
            at: Instant::from_secs_f64(1_795_804_210.5),
            unrecorded: 0,
            record,
            hash: Head::default().hash,
        };
        let agent = Actor::Agent(AgentId("01J".into()));
        let refused = Record::new(agent, "192.0.2.7:4711", Action::LinkRefused, "").refused("it was revoked");
        let done = Record::new(Actor::Named("ann".into()), "192.0.2.8:1", Action::HostRevoked, "pc-5");
        let names = [("01J".to_owned(), "pc-5".to_owned())].into();
        let rows = [refused, done.because("stolen")].map(|record| row(&entry(record), &names));
        let shown = fitted::shown_at(80, &columns(), &rows);
        assert!(shown.lines().all(|line| line.chars().count() <= 80), "{shown}");
        let parts =
            ["2026-11-27T", "agent pc-5", "link refused", "refused: it", "operator ann", "host revoked"];
        for said in parts {
            assert!(shown.contains(said), "{said} is not in\n{shown}");
        }
        let shown = fitted::shown_at(120, &columns(), &rows);
        assert!(shown.contains("stolen") && shown.contains("refused: it was revoked"), "{shown}");
    }
}
