//! `fallow results`.

use std::path::PathBuf;

use clap::Args;
use fallow_proto::operator::v1::{CanonicalResult, ListResultsRequest};
use serde_json::json;

use super::connect::{Client, Target};
use super::table::{self, Column::Number, Column::Text};
use super::{Failure, print, print_json, warn};

#[derive(Args, Debug)]
#[command(
    after_help = "Example:\n  fallow results mersenne\n  fallow results mersenne --save ./outputs\n  fallow results mersenne --json | jq -r '.results[].outputs[].text'"
)]
pub(crate) struct Arguments {
    /// The project.
    project: String,
    /// Writes the files to DIR/WORKUNIT/NAME.
    #[arg(long, value_name = "DIR")]
    save: Option<PathBuf>,
    #[command(flatten)]
    target: Target,
    /// One JSON object instead of a table; outputs that are text are in it.
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(arguments: Arguments) -> Result<(), Failure> {
    let mut client = arguments.target.connect().await?;
    let results = all(&mut client, &arguments.project).await?;
    if let Some(dir) = &arguments.save {
        save(dir, &results)?;
    }
    if arguments.json {
        let results: Vec<_> = results.iter().map(result_json).collect();
        return print_json(&json!({ "project": arguments.project, "results": results }));
    }
    if results.is_empty() {
        let project = &arguments.project;
        warn(&format!(
            "no workunit of {project} is validated yet: `fallow jobs {project}` shows how they stand"
        ));
        return Ok(());
    }
    let columns =
        [Text("workunit"), Text("job"), Number("hosts that agree"), Text("output"), Number("bytes")];
    let rows = results.iter().flat_map(|result| {
        result.outputs.iter().map(|output| {
            vec![
                result.workunit.clone(),
                result.job.clone(),
                result.agreeing_hosts.to_string(),
                output.open_name.clone(),
                output.content.len().to_string(),
            ]
        })
    });
    print(&table::render(&columns, rows.collect()))
}

/// The canonical outputs of all validated workunits of a project.
pub(crate) async fn all(client: &mut Client, project: &str) -> Result<Vec<CanonicalResult>, Failure> {
    let mut results: Vec<CanonicalResult> = Vec::new();
    loop {
        let after = results.last().map(|last| last.workunit.clone()).unwrap_or_default();
        let request = ListResultsRequest { project: project.to_owned(), after, limit: 0 };
        let page = client.list_results(request).await?.into_inner();
        let is_last = !page.more || page.results.is_empty();
        results.extend(page.results);
        if is_last {
            return Ok(results);
        }
    }
}

fn save(dir: &std::path::Path, results: &[CanonicalResult]) -> Result<(), Failure> {
    for result in results {
        let dir = dir.join(file_name(&result.workunit)?);
        std::fs::create_dir_all(&dir).map_err(|error| unwritable(&dir, &error))?;
        for output in &result.outputs {
            let path = dir.join(file_name(&output.open_name)?);
            std::fs::write(&path, &output.content).map_err(|error| unwritable(&path, &error))?;
        }
    }
    Ok(())
}

fn unwritable(path: &std::path::Path, error: &std::io::Error) -> Failure {
    Failure::unwritable(&format!("--save: cannot write {}", path.display()), error)
}

/// A name that stays within its directory.
fn file_name(name: &str) -> Result<&str, Failure> {
    if name.is_empty() || name.contains(['/', '\0']) || name.starts_with('.') {
        return Err(Failure::bad_input(format!("{name:?} is not the name of a file: it is not written")));
    }
    Ok(name)
}

fn result_json(result: &CanonicalResult) -> serde_json::Value {
    let outputs: Vec<_> = result
        .outputs
        .iter()
        .map(|output| {
            let text = std::str::from_utf8(&output.content).ok();
            json!({ "open_name": output.open_name, "bytes": output.content.len(), "text": text })
        })
        .collect();
    json!({
        "workunit": result.workunit,
        "job": result.job,
        "agreeing_hosts": result.agreeing_hosts,
        "outputs": outputs,
    })
}
