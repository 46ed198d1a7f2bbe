//! `fallow shares`.

use clap::{Args, Subcommand};
use fallow_domain::{DocumentVersion, Share};
use fallow_proto::fleet::v1::Document;
use fallow_proto::operator::v1::{DocumentReply, GetDocumentRequest, SetSharesRequest, ShareOfProject};
use serde_json::json;

use super::connect::Target;
use super::going_out::{self, GoingOut};
use super::projects::percent;
use super::table::{self, Column::Number, Column::Text};
use super::{Failure, changes, overruled, print, print_json, warn, why};

const EXAMPLE: &str = "\
Examples:
  fallow shares
  fallow shares show --json
  fallow shares set mersenne=25 totient=75
  fallow shares set mersenne=25 --dry-run

A share is a weight: 0, or a number from 0.001 to 1,000,000,000, against the sum
of all of them. Agents follow within a second; those that are away when they
come back.
A share of 0 computes only when nobody else can.";

/// Without a subcommand they are shown.
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
    /// Shows the shares and the version of the document that they are in.
    #[command(after_help = EXAMPLE)]
    Show(Show),
    /// Gives projects new shares, for the whole fleet.
    #[command(after_help = EXAMPLE)]
    Set(Set),
}

#[derive(Args, Debug)]
struct Show {
    #[command(flatten)]
    target: Target,
    /// One JSON object instead of a table.
    #[arg(long)]
    json: bool,
}

#[derive(Args, Debug)]
struct Set {
    /// Project and share.
    #[arg(required = true, value_name = "NAME=SHARE", value_parser = pair)]
    shares: Vec<(String, f64)>,
    /// Why, for the history of documents.
    #[arg(long, default_value = "", hide_default_value = true, value_name = "TEXT", value_parser = why::message)]
    message: String,
    #[command(flatten)]
    how: GoingOut,
    /// Change nothing, only say what would change, and for how many hosts.
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    show: Show,
}

fn pair(text: &str) -> Result<(String, f64), String> {
    let pair = text.split_once('=').filter(|(name, _)| !name.is_empty());
    let pair = pair.and_then(|(name, share)| Some((name.to_owned(), share.parse().ok()?)));
    pair.ok_or_else(|| "expected NAME=SHARE with a number as the share, such as mersenne=75".to_owned())
}

pub(crate) async fn run(arguments: Arguments) -> Result<(), Failure> {
    match arguments.command {
        None => list(arguments.show).await,
        Some(Command::Show(show)) => list(show).await,
        Some(Command::Set(set)) => change(set).await,
    }
}

async fn list(show: Show) -> Result<(), Failure> {
    let mut client = show.target.connect().await?;
    let reply = client.get_document(GetDocumentRequest::default()).await?.into_inner();
    going_out::tell(&mut client, reply.rollout).await;
    print_document(&reply.document.unwrap_or_default(), show.json)
}

async fn change(set: Set) -> Result<(), Failure> {
    let Set { shares, message, how, dry_run, show } = set;
    let request = SetSharesRequest { shares: parse(&shares)?, emergency: how.emergency, message };
    let mut client = show.target.connect().await?;
    if dry_run {
        changes::preview(&client.preview_shares(request).await?.into_inner(), show.json)?;
        going_out::tell_waiting(&mut client).await;
        return Ok(());
    }
    let keys: Vec<String> = request.shares.iter().map(|one| format!("projects.{}", one.project)).collect();
    let reply = client.set_shares(request).await?.into_inner();
    let DocumentReply { document, rollout, changed_hosts, unchanged, cautions: _ } = reply;
    going_out::tell_change(&mut client, rollout, unchanged).await;
    overruled::tell(&mut client, &keys).await;
    print_document(&document.unwrap_or_default(), show.json)?;
    going_out::tell_at_once(&mut client, rollout, changed_hosts, &how).await;
    Ok(())
}

fn print_document(document: &Document, as_json: bool) -> Result<(), Failure> {
    if let Some(project) = document.projects.first().filter(|_| all_are_zero(document)) {
        warn(&format!(
            "all shares are 0 now: no project is owed anything, so agents share out their time as it happens; give one a share above 0, such as {}=1",
            project.name
        ));
    }
    if as_json { print_json(&to_json(document)) } else { print(&to_table(document)) }
}

fn all_are_zero(document: &Document) -> bool {
    document.projects.iter().all(|project| project.share == 0.0)
}

/// Numbers that mean nothing are refused here, before anybody is asked.
fn parse(shares: &[(String, f64)]) -> Result<Vec<ShareOfProject>, Failure> {
    let one = |(project, number): &(String, f64)| {
        let share = Share::given(*number).map_err(|_| {
            Failure::bad_input(format!(
                "{} is no share for {project}: expected 0, or a number from 0.001 to 1,000,000,000, such as {project}=75",
                table::number(*number)
            ))
        })?;
        Ok(ShareOfProject { project: project.clone(), share: share.get() })
    };
    shares.iter().map(one).collect()
}

fn to_table(document: &Document) -> String {
    let all: f64 = document.projects.iter().map(|project| project.share).sum();
    let row = |project: &fallow_proto::fleet::v1::ProjectAssignment| {
        vec![project.name.clone(), table::number(project.share), percent(project.share, all)]
    };
    let rows = document.projects.iter().map(row).collect();
    let columns = [Text("project"), Number("share"), Number("of all shares")];
    format!("{}document version {}\n", table::render(&columns, rows), DocumentVersion(document.version))
}

fn to_json(document: &Document) -> serde_json::Value {
    let projects: Vec<_> = document
        .projects
        .iter()
        .map(|project| json!({ "name": project.name, "url": project.url, "share": project.share }))
        .collect();
    json!({ "document_version": document.version, "projects": projects })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_that_mean_nothing_are_refused_with_what_would_do() {
        for bad in ["-1", "NaN", "inf", "1e300", "1e-300"] {
            let failure = parse(&[pair(&format!("mersenne={bad}")).unwrap()]).unwrap_err();
            assert_eq!(failure.code().number(), 3);
            assert!(failure.to_string().contains("such as mersenne=75"), "{failure}");
            assert!(failure.to_string().len() < 200, "{failure}");
        }
        for unreadable in ["mersenne=", "mersenne=75%", "mersenne", "=1"] {
            assert!(pair(unreadable).unwrap_err().contains("such as mersenne=75"), "{unreadable}");
        }
        assert_eq!(parse(&[pair("a=0.5").unwrap()]).unwrap()[0].share, 0.5);
    }
}
