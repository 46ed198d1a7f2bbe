//! `fallow documents`.

use clap::Args;
use fallow_domain::DocumentVersion;
use fallow_proto::operator::v1::{DocumentInfo, ListDocumentsRequest};
use serde_json::{Value, json};

use super::connect::Target;
use super::table::{self, Column::Number, Column::Text};
use super::{Failure, changes, going_out, print, print_json, units};

const EXAMPLE: &str = "\
Examples:
  fallow documents
  fallow documents --limit 5 --json

Every change of shares, preferences, projects or groups makes a version, which
never changes again. Versions that say the same have the same hash.";

#[derive(Args, Debug)]
#[command(after_help = EXAMPLE)]
pub(crate) struct Arguments {
    /// The newest so many.
    #[arg(long, default_value_t = 20, value_parser = units::count(1, 1_000))]
    limit: u32,
    #[command(flatten)]
    target: Target,
    /// One JSON object instead of a table.
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(arguments: Arguments) -> Result<(), Failure> {
    let mut client = arguments.target.connect().await?;
    let request = ListDocumentsRequest { limit: arguments.limit };
    let documents = client.list_documents(request).await?.into_inner().documents;
    if arguments.json {
        let documents: Vec<Value> = documents.iter().map(to_json).collect();
        return print_json(&json!({ "documents": documents }));
    }
    let columns = [
        Number("version"),
        Text("hash"),
        Text("made"),
        Text("by"),
        Text("what was changed"),
        Text("message"),
    ];
    print(&table::render(&columns, documents.iter().map(row).collect()))?;
    going_out::tell_waiting(&mut client).await;
    Ok(())
}

fn row(document: &DocumentInfo) -> Vec<String> {
    let DocumentInfo { version, hash, made_at_micros, made_by, change, message, groups: _ } = document;
    let made = table::instant(*made_at_micros);
    // Seconds do.
    let made = made.split_once('.').map_or(made.clone(), |(seconds, _)| format!("{seconds}Z"));
    let hash = changes::short(hash).to_owned();
    vec![DocumentVersion(*version).to_string(), hash, made, made_by.clone(), change.clone(), message.clone()]
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
