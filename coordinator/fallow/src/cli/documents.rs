//! `fallow documents`.

use clap::{Args, Subcommand};
use fallow_domain::DocumentVersion;
use fallow_proto::operator::v1::{
    DifferentValue, DocumentContent, DocumentDifference, DocumentInfo, GetDocumentDifferenceRequest,
    GetDocumentVersionRequest, ListDocumentsRequest, SaidValue,
};
use serde_json::{Value, json};

use super::connect::Target;
use super::table::{self, Column::Number, Column::Text};
use super::{Failure, changes, fitted, going_out, print, print_json, print_table, tell_limit, units};

const EXAMPLE: &str = "\
Examples:
  fallow documents
  fallow documents --limit 5 --json
  fallow documents show 7
  fallow documents diff 6 7

Every change of shares, preferences, projects or groups makes a version, which
never changes again. Versions that say the same have the same hash. What each of
them says is kept.";

const SHOW_EXAMPLE: &str = "\
Examples:
  fallow documents show 7
  fallow documents show 2.7 --json

Prints all that a version says: the values for the whole fleet, and those of
each group. Account keys are secret, and never shown.";

const DIFF_EXAMPLE: &str = "\
Examples:
  fallow documents diff 6 7
  fallow documents diff 2.1 2.7 --json

Prints the values that differ, as the two versions say them, whichever hosts
they are for. `fallow diff` says what files would change, and for how many
hosts. A - stands where a version says nothing. Account keys are secret: it is
only said that there is another one.";

/// Without a subcommand they are listed.
#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true, after_help = EXAMPLE)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    /// The newest so many.
    #[arg(long, default_value_t = 20, value_parser = units::count(1, 1_000))]
    limit: u32,
    #[command(flatten)]
    output: Output,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Prints what a version says, value by value.
    #[command(after_help = SHOW_EXAMPLE)]
    Show(Show),
    /// Prints the values that differ between two versions.
    #[command(after_help = DIFF_EXAMPLE)]
    Diff(Diff),
}

#[derive(Args, Debug)]
struct Output {
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
struct Show {
    /// The version, as `fallow documents` lists it.
    version: DocumentVersion,
    #[command(flatten)]
    output: Output,
}

#[derive(Args, Debug)]
struct Diff {
    /// The version that is compared with.
    #[arg(value_name = "OLD")]
    before: DocumentVersion,
    /// The version that is looked at.
    #[arg(value_name = "NEW")]
    after: DocumentVersion,
    #[command(flatten)]
    output: Output,
}

pub(crate) async fn run(arguments: Arguments) -> Result<(), Failure> {
    let Arguments { command, limit, output } = arguments;
    match command {
        None => list(limit, output).await,
        Some(Command::Show(Show { version, output })) => {
            let mut client = output.target.connect().await?;
            let request = GetDocumentVersionRequest { version: version.0 };
            let content = client.get_document_version(request).await?.into_inner();
            if output.json {
                print_json(&content_json(&content))
            } else {
                print(&content_text(&content, output.wide))
            }
        }
        Some(Command::Diff(Diff { before, after, output })) => {
            let mut client = output.target.connect().await?;
            let request = GetDocumentDifferenceRequest { before: before.0, after: after.0 };
            let difference = client.get_document_difference(request).await?.into_inner();
            match output.json {
                true => print_json(&difference_json(&difference)),
                false => print(&difference_text(&difference, (before, after), output.wide)),
            }
        }
    }
}

async fn list(limit: u32, output: Output) -> Result<(), Failure> {
    let mut client = output.target.connect().await?;
    let request = ListDocumentsRequest { limit };
    let documents = client.list_documents(request).await?.into_inner().documents;
    if output.json {
        let documents: Vec<Value> = documents.iter().map(to_json).collect();
        return print_json(&json!({ "documents": documents }));
    }
    let columns = vec![
        (Number("version"), 0),
        (Text("hash"), 5),
        (Text("made"), 3),
        (Text("by"), 0),
        (Text("message"), 4),
        (Text("what was changed"), 0),
    ];
    let nothing = "No documents yet: `fallow project create NAME` makes the first.";
    print_table(documents.is_empty(), nothing, || {
        fitted::render(columns, documents.iter().map(row).collect(), output.wide)
    })?;
    tell_limit(documents.len(), limit);
    going_out::tell_waiting(&mut client).await;
    Ok(())
}

fn content_text(content: &DocumentContent, wide: bool) -> String {
    let info = content.info.clone().unwrap_or_default();
    let rows = [
        ("version", DocumentVersion(info.version).to_string()),
        ("hash", info.hash),
        ("made", table::instant(info.made_at_micros)),
        ("by", info.made_by),
        ("what was changed", info.change),
        ("message", info.message),
    ];
    let rows = rows.into_iter().map(|(what, value)| vec![what.to_owned(), value]).collect();
    let said = |SaidValue { key, value }: &SaidValue| vec![key.clone(), value.clone()];
    let of_version = fitted::render(vec![(Text("of the version"), 0), (Text("is"), 0)], rows, wide);
    let values = content.values.iter().map(said).collect();
    let values = fitted::render(vec![(Text("value"), 0), (Text("is"), 0)], values, wide);
    format!("{of_version}\n{values}")
}

fn content_json(content: &DocumentContent) -> Value {
    let said =
        content.values.iter().map(|SaidValue { key, value }| (key.clone(), Value::from(value.clone())));
    json!({
        "document": content.info.as_ref().map(to_json),
        "values": Value::Object(said.collect()),
    })
}

fn difference_text(
    difference: &DocumentDifference,
    (before, after): (DocumentVersion, DocumentVersion),
    wide: bool,
) -> String {
    if difference.values.is_empty() {
        return format!("No value differs between versions {before} and {after}.\n");
    }
    let columns = vec![(Text("value"), 0), (Text("old"), 0), (Text("new"), 0)];
    let said = |value: &Option<String>| value.clone().unwrap_or_else(|| "-".to_owned());
    let row = |value: &DifferentValue| vec![value.key.clone(), said(&value.before), said(&value.after)];
    fitted::render(columns, difference.values.iter().map(row).collect(), wide)
}

fn difference_json(difference: &DocumentDifference) -> Value {
    let value = |DifferentValue { key, before, after }: &DifferentValue| json!({ "key": key, "before": before, "after": after });
    json!({
        "before": difference.before.as_ref().map(to_json),
        "after": difference.after.as_ref().map(to_json),
        "values": difference.values.iter().map(value).collect::<Vec<_>>(),
    })
}

fn row(document: &DocumentInfo) -> Vec<String> {
    let DocumentInfo { version, hash, made_at_micros, made_by, change, message, groups: _ } = document;
    let made = table::instant(*made_at_micros);
    // Seconds do.
    let made = made.split_once('.').map_or(made.clone(), |(seconds, _)| format!("{seconds}Z"));
    let hash = changes::short(hash).to_owned();
    vec![DocumentVersion(*version).to_string(), hash, made, made_by.clone(), message.clone(), change.clone()]
}

fn to_json(document: &DocumentInfo) -> Value {
    let DocumentInfo { version, hash, made_at_micros, made_by, change, message, groups } = document;
    json!({
        "version": version,
        "hash": hash,
        "made_at": table::instant(*made_at_micros),
        "made_by": made_by,
        "change": change,
        "message": message,
        "groups": groups,
    })
}
