//! `fallow submit`.

use std::path::PathBuf;

use clap::Args;
use fallow_domain::{Duration, ExitCode};
use fallow_proto::operator::v1::{InputFile, NewWorkunit, OutputFile, SubmitRequest};
use serde_json::json;

use super::connect::Target;
use super::{Failure, batch, print, print_json, units};

const USAGE: &str = "\
fallow submit <PROJECT> --file <FILE> [OPTIONS]
       fallow submit <PROJECT> --app <NAME> --flops <NUMBER> [OPTIONS]";

const EXAMPLE: &str = "\
Examples:
  fallow submit mersenne --file batch.toml
  fallow submit mersenne --app mersenne --input in=range.txt --output out \\
      --flops 6e10 --quorum 2

A batch file holds [[workunits]] with application, flops, and optionally name,
command_line, inputs ({ open_name, text | path, keep_as }), outputs
({ open_name, max_size }), flops_bound, memory, disk, deadline, quorum,
initial_jobs, max_error_jobs, max_total_jobs, comparator. An input with keep_as
stays on hosts under that name, and workunits that read it go there first.
All of a batch is taken, or none.";

/// Adds workunits: one by options, or a batch of them from a file.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLE, override_usage = USAGE)]
pub(super) struct Arguments {
    /// The project.
    project: String,
    /// A batch of workunits, TOML or JSON.
    #[arg(long, value_name = "FILE", conflicts_with = "app", required_unless_present = "app")]
    file: Option<PathBuf>,
    /// The application of a single workunit.
    #[arg(long, value_name = "NAME", requires = "flops")]
    app: Option<String>,
    /// Its name; one is made if there is none.
    #[arg(long, requires = "app", default_value = "")]
    name: String,
    /// What the application is started with.
    #[arg(long, requires = "app", default_value = "", allow_hyphen_values = true)]
    command_line: String,
    /// A file that it reads, and the name under which it opens it.
    #[arg(long, requires = "app", value_name = "OPEN_NAME=PATH", value_parser = input)]
    input: Vec<(String, PathBuf)>,
    /// The name under which it opens a file that it writes.
    #[arg(long, requires = "app", value_name = "OPEN_NAME")]
    output: Vec<String>,
    /// Estimated size in floating-point operations.
    #[arg(long, requires = "app", value_name = "NUMBER", allow_negative_numbers = true)]
    flops: Option<f64>,
    /// Jobs on different hosts that must agree.
    #[arg(long, requires = "app", default_value_t = 1, value_name = "NUMBER", value_parser = units::count(1, 100), allow_negative_numbers = true)]
    quorum: u32,
    /// Time for each job, from when it is sent.
    #[arg(long, requires = "app", default_value = "7days", value_parser = units::deadline, value_name = "TIME")]
    deadline: Duration,
    /// How outputs are compared.
    #[arg(long, requires = "app", default_value = "bytewise", value_name = "NAME")]
    comparator: String,
    #[command(flatten)]
    target: Target,
    /// One JSON object instead of lines.
    #[arg(long)]
    json: bool,
}

fn input(text: &str) -> Result<(String, PathBuf), String> {
    match text.split_once('=') {
        Some((name, path)) if !name.is_empty() && !path.is_empty() => Ok((name.to_owned(), path.into())),
        _ => Err("expected OPEN_NAME=PATH, such as in=range.txt".to_owned()),
    }
}

pub(super) async fn run(arguments: Arguments) -> Result<(), Failure> {
    let workunits = match &arguments.file {
        Some(file) => batch::read(file)?,
        None => vec![single(&arguments)?],
    };
    let mut client = arguments.target.connect().await?;
    let request = SubmitRequest { project: arguments.project.clone(), workunits };
    let names = client.submit(request).await.map_err(|status| {
        let failure = Failure::from(status);
        match &arguments.file {
            Some(file) if failure.code() == ExitCode::BadInput => {
                Failure::bad_input(format!("{}: {failure}", file.display()))
            }
            _ => failure,
        }
    })?;
    let names = names.into_inner().names;
    if arguments.json {
        return print_json(&json!({ "project": arguments.project, "workunits": names }));
    }
    print(&names.iter().map(|name| format!("{name}\n")).collect::<String>())
}

fn single(arguments: &Arguments) -> Result<NewWorkunit, Failure> {
    let mut inputs = Vec::new();
    for (open_name, path) in &arguments.input {
        let content = std::fs::read(path).map_err(|error| Failure::file("read input", path, error))?;
        inputs.push(InputFile { open_name: open_name.clone(), content, keep_as: String::new() });
    }
    let outputs = arguments.output.iter().map(|name| OutputFile { open_name: name.clone(), max_bytes: 0 });
    Ok(NewWorkunit {
        name: arguments.name.clone(),
        application: arguments.app.clone().unwrap_or_default(),
        command_line: arguments.command_line.clone(),
        inputs,
        outputs: outputs.collect(),
        flops_estimate: arguments.flops.unwrap_or_default(),
        quorum: arguments.quorum,
        delay_bound_micros: arguments.deadline.as_micros(),
        comparator: arguments.comparator.clone(),
        ..NewWorkunit::default()
    })
}
