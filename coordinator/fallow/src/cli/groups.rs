//! `fallow groups`.

use clap::{Args, Subcommand};
use fallow_domain::DocumentVersion;
use fallow_proto::operator::v1::{ChangeGroupsRequest, Group, ListGroupsRequest, SaidValue};
use serde_json::{Value, json};

use super::changes::How;
use super::connect::Target;
use super::going_out::{self, GoingOut};
use super::table::{Column::Number, Column::Text};
use super::{Failure, changes, fitted, print, print_json, why};

const EXAMPLE: &str = "\
Examples:
  fallow groups
  fallow groups --json | jq '.groups[] | select(.hosts == 0) | .name'
  fallow groups remove room-12 --message 'exams are over'

Groups are put in place with fallow apply. The first one listed prevails over
those below it.";

/// Without a subcommand they are listed.
#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true, after_help = EXAMPLE)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    show: Show,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Removes groups: their hosts are as the rest of the fleet again.
    #[command(after_help = EXAMPLE)]
    Remove(Remove),
}

#[derive(Args, Debug)]
struct Show {
    #[command(flatten)]
    target: Target,
    /// All columns, however narrow the terminal is.
    #[arg(long)]
    wide: bool,
    /// One JSON object instead of a table.
    #[arg(long)]
    json: bool,
}

#[derive(Args, Debug)]
struct Remove {
    /// The groups.
    #[arg(required = true, value_name = "NAME")]
    names: Vec<String>,
    /// Why, for the history of documents.
    #[arg(long, default_value = "", hide_default_value = true, value_name = "TEXT", value_parser = why::message)]
    message: String,
    #[command(flatten)]
    how: GoingOut,
    /// Change nothing, only say what would change.
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    show: Show,
}

pub(crate) async fn run(arguments: Arguments) -> Result<(), Failure> {
    match arguments.command {
        None => list(arguments.show).await,
        Some(Command::Remove(Remove { names, message, how, dry_run, show })) => {
            let mut client = show.target.connect().await?;
            let request = ChangeGroupsRequest {
                remove: names,
                message,
                dry_run,
                emergency: how.emergency,
                ..ChangeGroupsRequest::default()
            };
            let reply = client.change_groups(request).await?.into_inner();
            changes::show(&reply, dry_run, None, &How { json: show.json, wide: show.wide })?;
            if dry_run {
                going_out::tell_waiting(&mut client).await;
            } else {
                going_out::tell(&mut client, reply.rollout).await;
                going_out::tell_at_once(&mut client, reply.rollout, reply.changed_hosts, &how).await;
            }
            Ok(())
        }
    }
}

async fn list(show: Show) -> Result<(), Failure> {
    let mut client = show.target.connect().await?;
    let reply = client.list_groups(ListGroupsRequest {}).await?.into_inner();
    if show.json {
        let groups: Vec<Value> = reply.groups.iter().map(to_json).collect();
        return print_json(&json!({ "document_version": reply.document_version, "groups": groups }));
    }
    let columns = vec![
        (Text("group"), 0),
        (Number("precedence"), 2),
        (Number("hosts"), 1),
        (Text("selector"), 3),
        (Text("what is different"), 0),
    ];
    let table = match reply.groups.as_slice() {
        [] => "No groups yet: `fallow apply -f FILE` puts some in place.\n".to_owned(),
        groups => fitted::render(columns, groups.iter().map(row).collect(), show.wide),
    };
    print(&format!("{table}document version {}\n", DocumentVersion(reply.document_version)))
}

fn row(group: &Group) -> Vec<String> {
    let Group { name, precedence, selector, hosts, values } = group;
    let said = |SaidValue { key, value }: &SaidValue| {
        let name = key.trim_start_matches("preferences.").trim_start_matches("projects.");
        format!("{name} {value}")
    };
    vec![
        name.clone(),
        precedence.to_string(),
        hosts.to_string(),
        if selector.is_empty() { "(every host)".to_owned() } else { selector.clone() },
        values.iter().map(said).collect::<Vec<_>>().join(", "),
    ]
}

fn to_json(group: &Group) -> Value {
    let Group { name, precedence, selector, hosts, values } = group;
    let said = values.iter().map(|SaidValue { key, value }| (key.clone(), Value::from(value.clone())));
    json!({
        "name": name,
        "precedence": precedence,
        "selector": selector,
        "hosts": hosts,
        "values": Value::Object(said.collect()),
    })
}
